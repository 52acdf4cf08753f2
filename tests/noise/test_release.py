"""What is released: noise of the right law in every cell, keys that stay hidden, errors as predicted."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import replace
from fractions import Fraction as F
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from dither.curator.answers.release import Released, release
from dither.entropy import InsecureSeededSource
from dither.errors import InvalidData
from dither.mechanisms import GaussianThreshold, PartitionSelection
from dither.privacy import Adjacency
from dither.query.aggregates.base import Noisy
from dither.query.aggregates.mean import Ends, Mean
from dither.query.kinds import Column, Facts, Interval, Kind
from dither.query.measure.measures import BinCounts, Measured, WeightedTotals
from dither.query.plan.plan import Aggregate, Aggregation, Argument, Function, Key, Scan
from dither.query.price.key_selection import _ladder
from dither.query.price.noise import QueryBudget, price
from support.sizes import some

ADD, REPLACE = Adjacency.ADD_REMOVE, Adjacency.REPLACE
SCAN = Scan(table="t", private=True, unit_column="u", columns=(), fields=())
X = Argument(expression=Column("c0", Kind.DOUBLE), facts=Facts(bounds=Interval(F(0), F(100)), step=F(1, 100)))
N = Argument(expression=Column("c1", Kind.INTEGER), facts=Facts(bounds=Interval(F(0), F(20))))
EVERYTHING = {
    Function.COUNT: (),
    Function.COUNT_UNITS: (),
    Function.COUNT_DISTINCT: (X,),
    Function.SUM: (X,),
    Function.AVG: (X,),
    Function.AVG_PER_UNIT: (X,),
    Function.VAR_POP: (X,),
    Function.VAR_SAMP: (X,),
    Function.STDDEV_POP: (X,),
    Function.STDDEV_SAMP: (X,),
    Function.COVAR_POP: (X, N),
    Function.COVAR_SAMP: (X, N),
    Function.CORR: (X, N),
    Function.QUANTILE: (X,),
    Function.MODE: (N,),
}


def ask(function, *arguments):
    return Aggregate(
        function=function, arguments=arguments, quantile=F(1, 2) if function is Function.QUANTILE else None
    )


def key(values=None, kind=Kind.INTEGER):
    return Key(expression=Column("c9", kind), kind=kind, values=values)


def priced(*functions, budget, keys=(), groups=1, rows=1, discover=False, adjacency=ADD):
    asked = Aggregation(
        relation=SCAN,
        units="column",
        keys=keys,
        aggregates=tuple(f if isinstance(f, Aggregate) else ask(f, *EVERYTHING[f]) for f in functions),
        groups=groups,
        rows=rows,
        discover=discover,
        tables=("t",),
    )
    return price(asked, budget, adjacency)


def measured(question, keys, counts):
    """Made-up cells: every total and every distinct count of a group is ``counts``."""
    columns = {f"k{i}": column for i, column in enumerate(keys)}
    cells = np.asarray(counts, dtype=np.int64)
    some = BinCounts(group=np.arange(cells.size), bin=np.full(cells.size, 3), count=cells)
    return Measured(
        keys=pa.table(columns),
        size=cells.size,
        totals=tuple(cells.copy() for _ in question.measurement.totals),
        bins=tuple(some for _ in question.measurement.bins),
        distinct=tuple(cells.copy() for _ in question.measurement.distinct),
    )


MANY = key(tuple(range(1_000_000)))


def pure(epsilon):
    return QueryBudget(kind="pure", main=F(epsilon))


def zcdp(rho, delta=0):
    return QueryBudget(kind="zcdp", main=F(rho), delta=F(delta))


# ---------------------------------------------------------------------------------------------- the law of the noise


@pytest.mark.parametrize(("adjacency", "kind"), some(list(product(Adjacency, ["pure", "zcdp"])), 3))
def test_noise_has_the_size_that_the_budget_and_the_bounds_ask_for(statistics, kind, adjacency):
    # A million groups. Catches noise 3 % too small, and of course groups, rows or a neighbour forgotten.
    groups, rows, main = 3, 2, F(1, 2)
    question = priced(
        *(Function.COUNT, Function.SUM),
        budget=QueryBudget(kind=kind, main=main),
        keys=(MANY,),
        groups=groups,
        rows=rows,
        adjacency=adjacency,
    )
    here = measured(question, [pa.array([7, 500_000, 999_999])], [40, 50, 60])
    released = release(question, here)
    moved = groups * (2 if adjacency is REPLACE else 1)
    exact = np.zeros(1_000_000, dtype=np.int64)
    exact[[7, 500_000, 999_999]] = [40, 50, 60]
    for cell, per_group in zip(released.cells, (rows, rows * 10_000), strict=True):
        if kind == "pure":
            scale = moved * per_group / (float(main) / 2)
            law = statistics.laplace_cdf
        else:
            scale = math.sqrt(moved) * per_group / math.sqrt(2 * float(main) / 2)
            law = statistics.gaussian_cdf
        noise = cell - exact
        assert statistics.fit(noise, law(scale), scale) > statistics.alpha
        for wrong in (0.97, 1 / groups, 1 / math.sqrt(groups), 1 / rows, 1 / 2, 2, math.sqrt(2)):
            # all but the first are gross
            seen = noise if wrong == 0.97 else noise[:100_000]
            assert statistics.fit(seen, law(scale / wrong), scale / wrong) < statistics.alpha
    assert abs(stats.spearmanr(released.cells[0], released.cells[1]).statistic) < 6.2 / 1000
    assert statistics.pairs(released.cells[0]) > statistics.alpha


@pytest.mark.parametrize("kind", ["pure", "zcdp"])
@pytest.mark.parametrize("function", [Function.COUNT, Function.SUM, Function.COUNT_DISTINCT])
def test_errors_are_as_predicted(function, kind):
    # Both sides: neither larger than predicted nor much smaller. Catches noise 5 % off either way.
    trials = 400_000
    budget = QueryBudget(kind=kind, main=F(1, 5000 if kind == "zcdp" else 50))
    question = priced(function, budget=budget, keys=(key(tuple(range(trials))),), groups=2)
    released = release(question, measured(question, [pa.array([], pa.int64())], []))
    for confidence in (F(1, 2), F(19, 20), F(999, 1000)):
        half = question.errors(confidence)[0].half_width
        # the cell, before a recipe cuts it at what there can be
        ((cell, width),), _ = question.lowered.recipes[0].linear
        values = released.cells[cell] * float(width)
        for wrong, fine in ((1.0, True), (1.05, False), (0.95, False)):
            inside = int((np.abs(values * wrong) <= half).sum())
            # the noise is whole-numbered, so the coverage may be above the stated one by one step's worth
            step = float(width)
            below = int((np.abs(values * wrong) <= half - step).sum())
            enough = stats.binom.cdf(inside, trials, float(confidence)) > 1e-9
            no_more = stats.binom.sf(below - 1, trials, float(confidence)) > 1e-9
            if fine:
                assert enough
                assert no_more
            elif confidence != F(999, 1000):
                assert not (enough and no_more)


@pytest.mark.parametrize(
    ("others", "read"),
    [((), Ends), ((ask(Function.COUNT, X),), Mean)],
    ids=["from_both_ends", "sum_over_count"],
)
@pytest.mark.parametrize("budget", [pure("1/5"), zcdp("1/500")], ids=["pure", "zcdp"])
def test_the_error_of_an_average_is_as_predicted_at_the_end_of_its_bounds(budget, others, read):
    # all values are 100, where a count weighs most; catches 10 %
    trials = 200_000
    question = priced(Function.AVG, *others, budget=budget)
    assert type(question.lowered.recipes[0]) is read
    recipe, half = question.lowered.recipes[0], question.errors()[0].at(1)
    for wrong, fine in ((F(1), True), (F(11, 10), False), (F(9, 10), False)):
        drawn = [type(n)(n.scale * wrong).release(np.zeros(trials, dtype=np.int64)) for n in question.noise]
        # what the noise adds to the sum of (x − mean) over the rows, to first order
        if read is Mean:
            top = recipe.high - recipe.x.centre
            off = drawn[recipe.x.cell] * float(recipe.x.step) - float(top) * drawn[recipe.count]
        else:
            off = drawn[recipe.below] * float(recipe.step)
        inside = int((np.abs(off) <= half).sum())
        # half steps of the count and three digits of the text make it a little wider: 0.7 % of coverage at most
        enough = stats.binom.cdf(inside, trials, 0.95) > 1e-9
        no_more = stats.binom.sf(inside - 1, trials, 0.957) > 1e-9
        assert bool(enough and no_more) is fine


# ---------------------------------------------------------------------------------------------- intervals


def exact_cell(exact, table):
    """A cell of a table at row level, in whole numbers."""
    if isinstance(exact, WeightedTotals):
        return sum(weight * exact_cell(total, table) for total, weight in exact.parts)
    product = np.ones(len(table["c0"]), dtype=np.int64)
    for g in exact.factors:
        places = np.clip(np.rint(table[g.expression.name] / float(g.step)).astype(np.int64), g.low, g.high)
        product *= g.high - places if g.down else places - g.offset
    return int((product // exact.divisor).sum())


def table_of(size):
    rng = np.random.default_rng(size)
    x = np.round(np.clip(rng.gamma(2, 10, size), 0, 100), 2)
    return {"c0": x, "c1": np.clip(np.rint(x / 10 + rng.normal(0, 2, size)), 0, 20)}


def truth_of(function, table):
    x, y = table["c0"], table["c1"]
    return {
        Function.COUNT: x.size,
        Function.SUM: x.sum(),
        Function.AVG: x.mean(),
        Function.VAR_POP: x.var(),
        Function.VAR_SAMP: x.var(ddof=1),
        Function.STDDEV_POP: x.std(),
        Function.STDDEV_SAMP: x.std(ddof=1),
        Function.COVAR_POP: np.cov(x, y, ddof=0)[0, 1],
        Function.COVAR_SAMP: np.cov(x, y)[0, 1],
        Function.CORR: np.corrcoef(x, y)[0, 1],
    }[function]


def covered(function, budget, size, *, trials=100_000, wrong=F(1), confidence=F(19, 20)):
    """How often the interval holds the exact answer, with noise larger than stated by ``wrong``."""
    question = priced(function, budget=budget)
    table = table_of(size)
    cells = []
    for cell, noise in zip(question.lowered.cells, question.noise, strict=True):
        drawn = type(noise)(noise.scale * wrong).release(np.full(trials, exact_cell(cell.exact, table)))
        cells.append(drawn)
    noisy = Noisy(size=trials, cells=cells, noise=question.noise, choices=())
    found = question.lowered.recipes[0].estimate(noisy, confidence)
    truth = truth_of(function, table)
    low, high = found.low.to_numpy(), found.high.to_numpy()
    return int(((low <= truth + 1e-9) & (truth - 1e-9 <= high)).sum())


@pytest.mark.parametrize("budget", [pure("1/5"), zcdp("1/100")], ids=["pure", "zcdp"])
@pytest.mark.parametrize("size", [100, 1000])
@pytest.mark.parametrize("function", [Function.COUNT, Function.SUM, Function.AVG])
def test_intervals_cover_at_their_stated_rate(function, size, budget):
    # These hold by proof. Catches noise that is 15 % larger than the interval believes.
    trials = 100_000
    assert stats.binom.cdf(covered(function, budget, size), trials, 0.95) > 1e-9
    assert stats.binom.cdf(covered(function, budget, size, wrong=F(23, 20)), trials, 0.95) < 1e-9
    assert covered(function, budget, size) < 0.975 * trials  # and no wider than need be


@pytest.mark.parametrize("budget", [pure("1/2"), zcdp("1/20")], ids=["pure", "zcdp"])
@pytest.mark.parametrize("size", [30, 300, 3000])
@pytest.mark.parametrize(
    "function",
    [f for f, arguments in EVERYTHING.items() if f.value.startswith(("var", "stddev", "covar", "corr"))],
)
def test_intervals_of_moments_cover_at_their_stated_rate(function, size, budget):
    # These hold by proof. Means that aren't known make them wide in small groups; in large ones noise that is a
    # quarter larger than the interval believes is caught.
    trials = 40_000
    assert stats.binom.cdf(covered(function, budget, size, trials=trials), trials, 0.95) > 1e-9
    if size == 3000 and function is not Function.CORR:
        assert stats.binom.cdf(covered(function, budget, size, trials=trials, wrong=F(5, 4)), trials, 0.95) < 1e-9


# ---------------------------------------------------------------------------------------------- keys from the data


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_a_key_of_one_unit_is_hidden_but_for_delta(adjacency):
    # A million keys, each held by one unit alone; every unit may hold 2.
    groups, size = 2, 1_000_000
    # a δ that the threshold 8 just meets: Pr[1 + noise ≥ 8] for σ² = 2 or 4 times 2, ρ = ¼
    weights = np.exp(-(np.arange(-80, 81) ** 2) / (8 if adjacency is ADD else 16))
    delta = F(groups * 1.0001 * float(weights[80 + 7 :].sum() / weights.sum()))
    question = priced(
        Function.COUNT, budget=zcdp("1/2", delta), keys=(key(),), groups=groups, discover=True, adjacency=adjacency
    )
    assert isinstance(question.selection.mechanism, GaussianThreshold)
    assert question.selection.mechanism.threshold == 8
    exact = measured(question, [pa.array(np.arange(size))], np.ones(size))
    ladder = _ladder(F(1, 2), delta, groups, adjacency, 10**6)
    for selection in (question.selection, ladder):
        chosen = replace(question, selection=selection)
        shown = release(chosen, exact).size
        assert stats.binom.sf(shown - 1, size, float(delta / groups)) > 1e-9
    # an off-by-one threshold, and a δ that isn't divided among the keys of a unit
    sharp = question.selection.mechanism
    early = replace(question.selection, mechanism=GaussianThreshold(sharp.scale, sharp.threshold - 1))
    shown = release(replace(question, selection=early), exact).size
    assert stats.binom.sf(shown - 1, size, float(delta / groups)) < 1e-9
    undivided = replace(ladder, mechanism=PartitionSelection(ladder.mechanism.epsilon, 2 * groups * delta, 2 * groups))
    shown = release(replace(question, selection=undivided), exact).size
    assert stats.binom.sf(shown - 1, size, float(delta / groups)) < 1e-9


def test_groups_of_the_predicted_size_are_shown():
    # Catches a prediction that is one unit short: groups of that size are shown in 89.8 % or 91.8 %, not in 95 %.
    size = 100_000
    for kind in ("threshold", "ladder"):
        question = priced(Function.COUNT, budget=zcdp("1/2", "1e-6"), keys=(key(),), groups=2, discover=True)
        if kind == "ladder":
            question = replace(question, selection=_ladder(F(1, 4), F(1, 10**6), 2, ADD, 10**6))
        enough = question.selection.enough
        for units, least, most in ((enough, 0.95, 1.0), (enough - 1, 0.0, 0.95)):
            exact = measured(question, [pa.array(np.arange(size))], np.full(size, units))
            shown = release(question, exact).size
            assert stats.binom.cdf(shown, size, least) > 1e-9
            assert most == 1.0 or stats.binom.sf(shown - 1, size, most) > 1e-9
        assert stats.binom.cdf(shown, size, 0.95) < 1e-9


def test_discovered_groups_come_in_the_order_of_their_keys():
    question = priced(
        *(Function.COUNT, Function.QUANTILE),
        budget=zcdp(10**6, "1e-6"),
        keys=(key(kind=Kind.TEXT), key()),
        groups=2,
        discover=True,
    )
    names, numbers = ["b", "a", None, "a", "rare"], [1, 2, 1, None, 5]
    counts = [1000, 2000, 3000, 4000, 1]
    exact = measured(question, [pa.array(names), pa.array(numbers, pa.int32())], counts)
    released = release(question, exact)
    assert released.keys.to_pydict() == {"k0": ["a", "a", "b", None], "k1": [2, None, 1, 1]}
    assert released.keys.schema.types == [pa.string(), pa.int64()]
    assert released.values[0].to_pylist() == [2000, 4000, 1000, 3000]
    assert released.values[1].to_numpy() == pytest.approx(0.03)
    none = release(question, measured(question, [pa.array([], pa.string()), pa.array([], pa.int64())], []))
    assert none.size == 0
    assert Released.from_bytes(none.to_bytes()).keys.schema.types == [pa.string(), pa.int64()]


# ---------------------------------------------------------------------------------------------- public keys

EXACTLY = 10**6  # a budget so large that there is no noise


def test_every_public_combination_answers_and_no_other():
    colours = key(("blue", "red", None), Kind.TEXT)
    question = priced(
        *(Function.COUNT, Function.MODE), budget=pure(EXACTLY), keys=(colours, key((1.5, 2.0, -0.0), Kind.DOUBLE))
    )
    exact = measured(question, [pa.array(["red", None, "green", "blue"]), pa.array([2.0, 1.5, 2.0, 0.0])], [5, 6, 7, 8])
    released = release(question, exact)
    assert released.keys.column("k0").to_pylist() == ["blue"] * 3 + ["red"] * 3 + [None] * 3
    assert released.keys.column("k1").to_pylist() == [1.5, 2.0, 0.0] * 3
    assert released.values[0].to_pylist() == [0, 0, 8, 0, 5, 0, 6, 0, 0]
    chosen = released.values[1].to_pylist()
    assert [chosen[i] for i in (2, 4, 6)] == [3, 3, 3]
    assert all(0 <= value <= 20 for value in chosen)


def test_absent_groups_get_noise_like_any_other(statistics):
    # Catches noise 10 % too small in either half.
    size = 400_000
    question = priced(Function.COUNT, budget=pure(1), keys=(key(tuple(range(size))),))
    released = release(question, measured(question, [pa.array(np.arange(size // 2))], np.full(size // 2, 30)))
    present, absent = released.cells[0][: size // 2] - 30, released.cells[0][size // 2 :]
    for noise in (present, absent):
        assert statistics.fit(noise, statistics.laplace_cdf(1.0), 1.0) > statistics.alpha
        assert statistics.fit(noise, statistics.laplace_cdf(1 / 0.9), 1 / 0.9) < statistics.alpha


def test_without_keys_there_is_one_row():
    question = priced(Function.COUNT, Function.SUM, budget=pure(EXACTLY))
    for size in (0, 1):
        released = release(question, measured(question, [], [9] * size))
        assert released.size == 1
        assert [v.to_pylist() for v in released.values] == [[9.0 * size], [0.09 * size]]


@pytest.mark.parametrize("kind", ["boolean", "date", "timestamp"])
def test_keys_of_other_kinds(kind):
    values = {
        "boolean": (False, True),
        "date": (dt.date(2020, 1, 1), dt.date(2021, 5, 5)),
        "timestamp": (dt.datetime(2020, 1, 1, 12, 30), dt.datetime(2021, 5, 5)),  # noqa: DTZ001
    }[kind]
    question = priced(Function.COUNT, budget=pure(EXACTLY), keys=(key(values, Kind(kind)),))
    released = release(question, measured(question, [pa.array([values[1]])], [4]))
    assert released.keys.column("k0").to_pylist() == list(values)
    assert released.values[0].to_pylist() == [0, 4]


# ---------------------------------------------------------------------------------------------- every aggregate


@pytest.mark.parametrize("budget", [pure(3), zcdp(1), pure("1/100"), pure(EXACTLY)], ids=["3", "rho", "1/100", "exact"])
def test_empty_and_tiny_groups_answer_like_any_other(budget):
    question = priced(*EVERYTHING, budget=budget, keys=(key(tuple(range(200))),), groups=2, rows=2)
    released = release(question, measured(question, [pa.array([0, 1, 2])], [1, 2, 3]))
    for function, found in zip(EVERYTHING, released.estimates(), strict=True):
        assert len(found.value) == 200
        assert found.value.null_count == 0
        assert np.isfinite(found.value.to_numpy()).all()
        if function is Function.MODE:
            assert found.low.null_count == found.high.null_count == 200
            continue
        low, value, high = (a.to_numpy() for a in (found.low, found.value, found.high))
        assert np.isfinite(low).all()
        assert np.isfinite(high).all()
        assert (low <= value).all()
        assert (value <= high).all()


def test_quantiles_in_groups_have_the_law_of_the_mechanism(statistics):
    # one group for each draw, all with the same values; catches a scale half as large (rows or the range forgotten)
    size = 4_000
    median = Aggregate(function=Function.QUANTILE, arguments=(N,), quantile=F(1, 2))
    question = priced(budget=pure(1), keys=(key(tuple(range(size))),), rows=3)
    question = price(replace(question.aggregation, aggregates=(median,)), pure(1), ADD)
    values = [(2, 16), (5, 9), (11, 14)]
    group = np.repeat(np.arange(size), len(values))
    bins, counts = (np.tile([v[i] for v in values], size) for i in (0, 1))
    order = np.random.default_rng(0).permutation(group.size)
    histogram = BinCounts(group=group[order], bin=bins[order], count=counts[order])
    exact = Measured(keys=pa.table({"k0": np.arange(size)}), size=size, totals=(), bins=(histogram,))
    drawn = release(question, exact).values[0].to_numpy()
    listed = np.repeat([v for v, _ in values], [n for _, n in values]).astype(float)
    observed = np.bincount(drawn.astype(int), minlength=21)
    mechanism = question.choosers[0]
    assert mechanism.scale == 6  # range 2·3·½ over half of ε
    for scale, fine in ((6, True), (3, False), (12, False)):
        law = type(mechanism)(scale, bounds=mechanism.bounds, step=mechanism.step, q=F(1, 2)).law(listed)
        assert (statistics.chi_square(observed, law.probabilities) > statistics.alpha) is fine


def test_a_histogram_draws_what_its_values_would():
    question = priced(Function.QUANTILE, budget=pure(1))
    mechanism = question.choosers[0]
    rng = np.random.default_rng(5)
    for size in (0, 1, 5, 300):
        values = np.round(rng.uniform(0, 100, size) ** 2 / 100, 1)
        places, counts = np.unique(np.rint(values * 100).astype(np.int64), return_counts=True)
        shuffled = rng.permutation(places.size)
        for seed in range(5):
            one = mechanism.release(values, source=InsecureSeededSource(seed))
            other = mechanism.release_counts(places[shuffled], counts[shuffled], source=InsecureSeededSource(seed))
            assert one == other
    with pytest.raises(InvalidData):
        mechanism.release_counts([1, 2], [1])
    # beyond the grid, repeated, or not there at all: nothing raises
    assert 0 <= mechanism.release_counts([-5, 10**9, 7, 7], [1, 2, 3, -4]) <= 100


# ---------------------------------------------------------------------------------------------- stored answers


def test_the_environment_has_no_say_in_what_is_stored(monkeypatch):
    question = priced(*EVERYTHING, budget=zcdp(2), keys=(key(("a", "b", None), Kind.TEXT),), groups=2)
    released = release(question, measured(question, [pa.array(["b"])], [70]))
    stored = released.to_bytes()
    # pyarrow would write another version of its format, or another layout
    monkeypatch.setenv("ARROW_PRE_1_0_METADATA_VERSION", "1")
    monkeypatch.setenv("ARROW_PRE_0_15_IPC_FORMAT", "1")
    assert released.to_bytes() == stored


def test_stored_answers_come_back_bit_by_bit():
    question = priced(*EVERYTHING, budget=zcdp(2), keys=(key(("a", "b", None), Kind.TEXT),), groups=2)
    released = release(question, measured(question, [pa.array(["b"])], [70]))
    stored = released.to_bytes()
    again = Released.from_bytes(stored)
    assert again.to_bytes() == stored
    assert again.keys.equals(released.keys)
    assert again.recipes == released.recipes
    assert again.noise == released.noise
    for one, other in zip(released.estimates(F(9, 10)), again.estimates(F(9, 10)), strict=True):
        assert one == other
    for damaged in (b"", stored[:100], stored.replace(b'"version": 1', b'"version": 9'), b"x" * 200):
        with pytest.raises(InvalidData):
            Released.from_bytes(damaged)


def test_a_million_discovered_groups(steps_within):
    size = 1_000_000
    question = priced(Function.COUNT, budget=zcdp("1/10", "1e-6"), keys=(key(),), discover=True)
    exact = measured(question, [pa.array(np.arange(size))], np.full(size, 1000))
    with steps_within(20_000):  # no loop over groups
        assert release(question, exact).size == size
