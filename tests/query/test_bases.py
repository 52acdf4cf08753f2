"""Aggregates that share one basis: what one unit moves, what is read off exact cells, when it is taken, what covers."""

import itertools
import math
from fractions import Fraction as F

import numpy as np
import pytest
from scipy import stats

from dither.engines.reference.engine import part_of
from dither.entropy import InsecureSeededSource
from dither.mechanisms import DiscreteGaussian, DiscreteLaplace
from dither.privacy import Adjacency
from dither.query.aggregates.base import Linear, Noisy
from dither.query.aggregates.bases import ways
from dither.query.aggregates.bernstein import BernsteinMean, BernsteinMoments, Combined, _reference_norms
from dither.query.aggregates.catalogue import lower
from dither.query.aggregates.mean import Ends, Mean
from dither.query.aggregates.moments import MomentsRecipe, references
from dither.query.kinds import Column, Facts, Interval, Kind
from dither.query.measure.measures import WeightedTotals
from dither.query.plan.plan import Aggregate, Aggregation, Argument, Function, Key, Scan
from dither.query.price import noise
from dither.query.price.noise import QueryBudget, price, price_for_error

SCAN = Scan(table="t", private=True, unit_column="u", columns=(), fields=())
ADD, REPLACE = Adjacency.ADD_REMOVE, Adjacency.REPLACE


def number(name, low, high, *, step=None, kind=Kind.DOUBLE):
    return Argument(expression=Column(name, kind), facts=Facts(bounds=Interval(F(low), F(high)), step=step))


X = number("x", 0, 100)
Y = number("y", -2, 8, step=F(1, 2))
SMALL = number("x", -1, 2, kind=Kind.INTEGER)
OTHER = number("y", 0, 2, kind=Kind.INTEGER)
COUNT_X = Argument(expression=X.expression, facts=Facts())


def ask(function, *arguments):
    return Aggregate(function=function, arguments=arguments)


def asked(*aggregates, units="row", rows=1, groups=1, keys=0):
    values = Key(expression=Column("k", Kind.INTEGER), kind=Kind.INTEGER, values=tuple(range(keys)))
    return Aggregation(
        relation=SCAN,
        units=units,
        keys=(values,) if keys else (),
        aggregates=aggregates,
        groups=groups,
        rows=rows,
        discover=False,
        tables=("t",),
    )


EVERY, OF_X, SUM, AVG = ask(Function.COUNT), ask(Function.COUNT, COUNT_X), ask(Function.SUM, X), ask(Function.AVG, X)
SPREADS = [ask(each, X) for each in (Function.VAR_POP, Function.VAR_SAMP, Function.STDDEV_POP, Function.STDDEV_SAMP)]
PAIRS = [ask(each, X, Y) for each in (Function.COVAR_POP, Function.COVAR_SAMP, Function.CORR)]
PURE, RHO = QueryBudget(kind="pure", main=F(1)), QueryBudget(kind="zcdp", main=F(1, 50))


def every_way(aggregation):
    """Lowered, in each of the ways of each argument; nothing else changed."""
    for alternatives in ways(aggregation):
        for way in alternatives:
            yield lower(aggregation, way)


def parts_of(lowered, block, rows, most):
    """What one unit adds to each cell of a block, straight from the words of Total and Cap."""
    found = []
    for place in block:
        exact = lowered.cells[place].exact
        assert isinstance(exact, WeightedTotals)
        found.append(sum(weight * part_of(total, rows, most) for total, weight in exact.parts))
    return found


# ---------------------------------------------------------------------------------------------- sensitivity


def small(units, rows, pair=False):
    x = SMALL
    counted = Argument(expression=x.expression, facts=Facts())
    plain = [EVERY, ask(Function.COUNT, counted), ask(Function.SUM, x), ask(Function.AVG, x), ask(Function.VAR_POP, x)]
    pairs = [ask(Function.COVAR_POP, x, OTHER), ask(Function.CORR, x, OTHER)]
    return asked(*(pairs if pair else plain), units=units, rows=rows)


@pytest.mark.parametrize(("units", "rows", "most"), [("row", 1, 1), ("column", 1, 3), ("column", 2, 3)])
@pytest.mark.parametrize("pair", [False, True])
def test_no_unit_adds_more_than_one_part_to_all_cells_together(units, rows, most, pair):
    """Over all units of up to ``most`` rows, of values inside and outside of the bounds, or missing."""
    values = [None, float("nan"), -7, -1, 0, 1, 2, 9] if not pair else [None, -1, 1, 9]
    places = list(itertools.product(values, [None, 0, 1, 5] if pair else [0]))
    several = [table for n in range(1, most + 1) for table in itertools.product(places, repeat=n)]
    tables = [[{"x": x, "y": y} for x, y in table] for table in several]
    seen = 0
    for lowered in every_way(small(units, rows, pair)):
        for block in (each for each in lowered.blocks if len(each) > 1):
            high = lowered.cells[block[0]].high
            assert {lowered.cells[place].high for place in block} == {high}
            assert {lowered.cells[place].low for place in block} == {0}
            parts = [parts_of(lowered, block, table, rows) for table in tables]
            assert min(min(each) for each in parts) >= 0
            sums = [sum(each) for each in parts]
            assert max(sums) <= high
            # tight: else noise would be wasted
            assert max(sums) >= high * (1 - 1e-6)
            assert max(max(each) for each in parts) >= high * (1 - 1e-6)
            seen += 1
    assert seen >= (2 if pair else 6)


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_the_claim_is_the_largest_distance_of_neighbours(adjacency):
    """Both norms, over all units of two rows in one group: nobody, or another unit, in its place."""
    aggregation = small("column", 2)
    tables = [
        [{"x": x, "y": 0} for x in table] for n in range(3) for table in itertools.product([None, -1, 0, 2], repeat=n)
    ]
    for lowered in every_way(aggregation):
        for block in (each for each in lowered.blocks if len(each) > 1):
            units = np.array([parts_of(lowered, block, table, 2) for table in tables])
            moved = (
                units - units[:1] if adjacency is ADD else (units[:, None] - units[None]).reshape(-1, units.shape[1])
            )
            reach = lowered.reaches(adjacency)[block[0]]
            l1, l2 = int(np.abs(moved).sum(axis=1).max()), int((moved**2).sum(axis=1).max())
            assert l1 <= reach.l1
            assert l2 <= reach.l2_squared
            assert l1 >= reach.l1 * (1 - 1e-6)
            assert l2 >= reach.l2_squared * (1 - 1e-6)


def test_what_both_ends_cost_is_what_one_of_them_costs():
    """A mutant that adds up sensitivities would have twice the noise; one that takes half of one would have half."""
    priced = price(asked(SUM, AVG), PURE, ADD)
    (block,) = priced.lowered.blocks
    assert len(block) == 2
    size = priced.lowered.cells[block[0]].high
    assert {each.scale for each in priced.noise} == {F(size)}
    assert priced.loss.pure_exactly() == 1
    replaced = price(asked(SUM, AVG), PURE, REPLACE)
    assert {each.scale for each in replaced.noise} == {F(2 * size)}


# ---------------------------------------------------------------------------------------------- exact recipes


def silent(lowered, tables, rows):
    """Cells of all units with noise that is nothing."""
    cells = []
    for cell in lowered.cells:
        pairs = cell.exact.parts if isinstance(cell.exact, WeightedTotals) else [(cell.exact, 1)]
        cells.append(np.array([sum(w * part_of(t, table, rows) for t, w in pairs for table in tables)]))
    nothing = DiscreteLaplace(F(1, 1000))
    return Noisy(size=1, cells=cells, noise=[nothing] * len(cells), choices=())


def truth(aggregate, rows):
    """In rationals, over rows in which no argument is missing."""
    names = [argument.expression.name for argument in aggregate.arguments]
    kept = [[F(row[name]) for name in names] for row in rows if all(row[name] is not None for name in names)]
    n, function = len(kept), aggregate.function
    if function is Function.COUNT:
        return n
    x, y = [row[0] for row in kept], [row[-1] for row in kept]
    if function is Function.SUM:
        return sum(x)
    if function is Function.AVG:
        return sum(x) / n

    def covariance(a, b):
        return sum(p * q for p, q in zip(a, b, strict=True)) / n - sum(a) / n * sum(b) / n

    if function is Function.CORR:
        return float(covariance(x, y)) / math.sqrt(covariance(x, x) * covariance(y, y))
    found = covariance(x, y)
    if function in (Function.VAR_SAMP, Function.STDDEV_SAMP, Function.COVAR_SAMP):
        found = found * n / (n - 1)
    return math.sqrt(found) if function in (Function.STDDEV_POP, Function.STDDEV_SAMP) else found


@pytest.mark.parametrize("units", ["row", "column"])
def test_everything_is_read_off_exact_cells_as_plain_arithmetic_has_it(units):
    random = np.random.default_rng(1)
    rows = [
        {"x": int(x), "y": float(y) / 2}
        for x, y in zip(random.integers(0, 101, 60), random.integers(-4, 17, 60), strict=True)
    ]
    rows += [{"x": None, "y": 1.0}, {"x": 7, "y": None}, {"x": None, "y": None}]
    whole = number("x", 0, 100, kind=Kind.INTEGER)
    counted = Argument(expression=whole.expression, facts=Facts())
    plain = [
        ask(each.function, *[counted if each.function is Function.COUNT else whole] * len(each.arguments))
        for each in (EVERY, OF_X, SUM, AVG, *SPREADS)
    ]
    seen = set()
    for aggregates in (plain, [ask(each.function, whole, Y) for each in PAIRS]):
        for lowered in every_way(asked(*aggregates, units=units)):
            noisy = silent(lowered, [[row] for row in rows], 1)
            for aggregate, recipe in zip(aggregates, lowered.recipes, strict=True):
                wanted = truth(aggregate, rows)
                found = recipe.estimate(noisy)
                value, low, high = (each[0].as_py() for each in (found.value, found.low, found.high))
                if aggregate.function in (Function.COUNT, Function.SUM):
                    assert value == wanted
                    assert isinstance(value, int)
                else:
                    assert value == pytest.approx(float(wanted), rel=1e-6, abs=1e-6)
                    assert recipe.points(noisy)[0].as_py() == value
                assert low - 1e-5 <= wanted <= high + 1e-5
                if not isinstance(recipe, MomentsRecipe):
                    assert high - low <= 2e-3 * max(1.0, abs(float(wanted)))
                seen.add(type(recipe))
    assert seen >= {Combined, Ends, BernsteinMean, BernsteinMoments}


def test_a_unit_of_more_rows_than_count_weighs_as_much_with_its_mean():
    x = number("x", 0, 10, kind=Kind.INTEGER)
    aggregates = (ask(Function.AVG, x), ask(Function.VAR_POP, x))
    tables = [[{"x": v} for v in (0, 3, 10, 10)], [{"x": 4}], [{"x": 2}, {"x": None}, {"x": 9}]]
    weighted = [(F(v), F(2, 4)) for v in (0, 3, 10, 10)] + [(F(4), F(1)), (F(2), F(1)), (F(9), F(1))]
    n = sum(w for _, w in weighted)
    mean = sum(v * w for v, w in weighted) / n
    variance = sum(v * v * w for v, w in weighted) / n - mean * mean
    for lowered in every_way(asked(*aggregates, units="column", rows=2)):
        noisy = silent(lowered, tables, 2)
        values = [recipe.estimate(noisy).value[0].as_py() for recipe in lowered.recipes]
        # a unit's part is rounded down to 2^-30 of the largest there is, or to a thousandth of a step
        assert values == pytest.approx([float(mean), float(variance)], rel=3e-4)


# ---------------------------------------------------------------------------------------------- when it is taken


def apart(aggregation, budget, adjacency, patch):
    with patch.context() as inner:
        inner.setattr(noise, "ways", lambda _: ())
        return price(aggregation, budget, adjacency)


def spreads(priced):
    return [recipe.spreads(priced._by) for recipe in priced.lowered.recipes]


@pytest.mark.parametrize(
    ("aggregates", "recipes", "gains"),
    [
        # both ends have all of it, and the sum of [0, 100] is the upper one
        ([SUM, AVG], [Combined, Ends], [2.0, 2.0]),
        # three cells: 5.2/ε against 6.0/ε
        ([EVERY, AVG], [Combined, Ends], [1.15, 2.0]),
        ([EVERY, SUM, AVG], [Combined, Combined, Ends], [1.7, 3.0, 3.0]),
        # the count has three quarters of the budget today: 4.0/ε, and 4.1/ε from two ends
        ([OF_X, AVG], [Linear, Mean], [1, 1]),
        ([SPREADS[0]], [BernsteinMoments], [1.0]),
        ([AVG, SPREADS[3]], [BernsteinMean, BernsteinMoments], [1.1, 1.9]),
        ([PAIRS[0]], [BernsteinMoments], [1.8]),
        ([PAIRS[2]], [BernsteinMoments], [2.0]),
        ([SUM], [Linear], [1]),
        ([EVERY], [Linear], [1]),
        ([AVG], [Ends], [1]),
    ],
)
def test_with_laplace_noise_a_basis_is_taken_where_it_errs_less(aggregates, recipes, gains, monkeypatch):
    priced = price(asked(*aggregates), PURE, ADD)
    assert [type(each) for each in priced.lowered.recipes] == recipes
    before = spreads(apart(asked(*aggregates), PURE, ADD, monkeypatch))
    for new, old, gain in zip(spreads(priced), before, gains, strict=True):
        assert min(b / a for a, b in zip(new, old, strict=True)) >= gain * 0.999


LISTS = [
    list(each)
    for n in (1, 2, 3)
    for each in itertools.combinations([EVERY, OF_X, SUM, AVG, SPREADS[1], PAIRS[0], PAIRS[2]], n)
] + [[EVERY, AVG, ask(Function.SUM, Y), ask(Function.AVG, Y), PAIRS[2]], [EVERY, OF_X, SUM, AVG, *SPREADS]]


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("budget", [PURE, RHO], ids=["Laplace", "Gaussian"])
@pytest.mark.parametrize(("units", "rows", "groups", "keys"), [("row", 1, 1, 0), ("row", 1, 1, 5), ("column", 3, 2, 5)])
def test_nothing_errs_more_than_if_it_was_measured_apart(budget, adjacency, units, rows, groups, keys, monkeypatch):
    taken = 0
    for aggregates in LISTS:
        aggregation = asked(*aggregates, units=units, rows=rows, groups=groups, keys=keys)
        new, old = price(aggregation, budget, adjacency), apart(aggregation, budget, adjacency, monkeypatch)
        ratios = [
            a / b
            for one, other in zip(spreads(new), spreads(old), strict=True)
            for a, b in zip(one, other, strict=True)
        ]
        assert max(ratios) <= 1.01
        taken += new.lowered != old.lowered
        assert new.loss.pure() <= 1 if budget is PURE else new.loss.zcdp() <= 0.02
    assert taken >= 12


def test_a_unit_of_several_rows_keeps_its_sum_clamped_as_a_whole():
    priced = price(asked(SUM, AVG, units="column", rows=4), PURE, ADD)
    assert isinstance(priced.lowered.recipes[0], Linear)
    assert isinstance(priced.lowered.recipes[1], Ends)


def test_public_facts_alone_decide(monkeypatch):
    """The choice asks for nothing but the question, its budget and adjacency: the same for any data and any ledger."""
    first = price(asked(EVERY, AVG, *SPREADS), PURE, ADD)
    assert first.lowered == price(asked(EVERY, AVG, *SPREADS), PURE, ADD).lowered
    assert price(asked(EVERY, AVG), RHO, ADD).lowered != price(asked(EVERY, AVG), PURE, ADD).lowered


def test_of_very_many_columns_the_first_are_compared():
    """The time of a price doesn't grow with the square of what is asked."""
    several = [number(f"x{place}", 0, 1 + place) for place in range(40)]
    aggregates = [ask(function, x) for x in several for function in (Function.SUM, Function.AVG)]
    found = ways(asked(*aggregates))
    assert 1 <= len(found) < 40
    assert sum(map(len, found)) * len(aggregates) <= 1000
    recipes = price(asked(*aggregates), PURE, ADD).lowered.recipes
    assert isinstance(recipes[0], Combined)
    assert isinstance(recipes[-2], Linear)


def test_the_smallest_budget_for_an_error_knows_of_bases():
    found = price_for_error(asked(EVERY, SUM), {0: F(10), 1: F(600)}, kind="pure", delta=F(0), adjacency=ADD)
    assert all(isinstance(recipe, Combined) for recipe in found.lowered.recipes)
    errors = [each.half_width for each in found.errors()]
    assert errors[0] <= 10
    assert errors[1] <= 600
    less = price(asked(EVERY, SUM), QueryBudget(kind="pure", main=found.budget.main * F(99, 100)), ADD)
    assert less.errors()[0].half_width > 10 or less.errors()[1].half_width > 600
    # apart: 2 · 3.0 / 10
    assert found.budget.main < F(53, 100)


# ---------------------------------------------------------------------------------------------- errors


def test_errors_are_largest_where_the_price_says():
    """Sums of squares of coefficients over all means and moments: at most 1, of nine cells of a covariance 1.25²."""
    for m in np.linspace(0, 1, 41):
        squares = np.array([m * m, m * m - m, (1 - m) ** 2])
        for v in np.linspace(0, m * (1 - m), 11):
            assert ((squares - v) ** 2).sum() <= 1 + 1e-12
        for k in np.linspace(0, 1, 41):
            most, least = min(m * (1 - k), k * (1 - m)), -min(m * k, (1 - m) * (1 - k))
            for degree in (1, 2):
                x, y = (np.linspace(0, 1, degree + 1) - mean for mean in (m, k))
                for c in np.linspace(least, most, 7):
                    assert ((np.outer(x, y) - c) ** 2).sum() <= (1 if degree == 1 else 1.25**2) + 1e-12


def test_spreads_are_those_of_the_forms(monkeypatch):
    """Variances apart: (¼σ)² + (2·(m − ½)σ)² + …; of three cells √Σ(e − v)²."""
    assert _reference_norms(Function.VAR_POP, 3)[0] == pytest.approx(1.0)
    middle = references(Function.VAR_POP).index((0.5, 0.5, 0.0))
    assert _reference_norms(Function.VAR_POP, 3)[middle] == pytest.approx(math.sqrt(3) / 4)
    old = apart(asked(SPREADS[0]), PURE, ADD, monkeypatch)
    (recipe,) = old.lowered.recipes
    assert isinstance(recipe, MomentsRecipe)
    # three cells have a third each: a quarter for squares, nothing for the sum in the middle
    off = stats.laplace.ppf(0.975)
    assert spreads(old)[0][middle] == pytest.approx(3 * off * math.hypot(0.25, 0), rel=0.01)


# ---------------------------------------------------------------------------------------------- coverage

RUNS = 20_000
DATA = {
    "uniform": lambda random, n: random.random((2, n)),
    "at the ends": lambda random, n: (random.random((2, n)) < 0.3).astype(float),
    "near one end": lambda random, n: random.random((2, n)) ** 6,
    "alike": lambda random, n: np.tile(random.random(n), (2, 1)) * 0.8 + random.random((2, n)) * 0.2,
}


@pytest.mark.parametrize("law", [DiscreteLaplace, DiscreteGaussian])
@pytest.mark.parametrize("n", [10, 200])
@pytest.mark.parametrize("data", DATA)
def test_intervals_cover_at_their_stated_rate(law, n, data):
    """20,000 draws a rate, false alarms of 10⁻⁹: caught is 93% for 95%."""
    random = np.random.default_rng(7)
    x, y = DATA[data](random, n)
    x, y = np.rint(x * 100), np.rint(y * 20) / 2 - 2
    rows = [{"x": float(a), "y": float(b)} for a, b in zip(x, y, strict=True)]
    for aggregates in ([EVERY, SUM, AVG, *SPREADS], PAIRS):
        for lowered in every_way(asked(*aggregates)):
            exact = silent(lowered, [[row] for row in rows], 1).cells
            scale = max(cell.high for cell in lowered.cells)
            noises = [
                law(F(cell.high if len(lowered.blocks) < len(lowered.cells) else scale)) for cell in lowered.cells
            ]
            seed = InsecureSeededSource(3)
            cells = [
                each.release(np.full(RUNS, int(one[0])), source=seed) for each, one in zip(noises, exact, strict=True)
            ]
            noisy = Noisy(size=RUNS, cells=cells, noise=noises, choices=())
            for aggregate, recipe in zip(aggregates, lowered.recipes, strict=True):
                if not isinstance(recipe, Combined | BernsteinMean | BernsteinMoments):
                    continue
                wanted = float(truth(aggregate, rows))
                found = recipe.estimate(noisy, F(19, 20))
                low, high = (each.to_numpy().astype(float) for each in (found.low, found.high))
                covered = int(((low <= wanted + 1e-3) & (wanted - 1e-3 <= high)).sum())
                assert stats.binom.cdf(covered, RUNS, 0.95) >= 1e-9, (aggregate.function, type(recipe), covered / RUNS)
