"""Lowering: what is measured, within which bounds, and that answers are read off it exactly where there is no noise."""

import itertools
import math
from dataclasses import replace
from fractions import Fraction as F

import pytest
from hypothesis import given, strategies as st

from dither.errors import InvalidParameter, Refused
from dither.query.aggregates.base import ChosenValue, Constant, Linear
from dither.query.aggregates.catalogue import from_json, lower, to_json
from dither.query.aggregates.mean import Mean
from dither.query.aggregates.moments import MomentsRecipe
from dither.query.aggregates.quantile import Located
from dither.query.kinds import Column, Facts, Interval, Kind
from dither.query.measure.clamped_grids import bin_grid, centred_grid, common_step, sum_grid
from dither.query.measure.measures import LARGEST_PART, Cap, DistinctValues, WeightedTotals
from dither.query.plan.plan import Aggregate, Aggregation, Argument, Function, Key, Scan

SCAN = Scan(table="t", private=True, unit_column="u", columns=(), fields=())


def argument(low, high, *, step=None, name="c0", kind=Kind.DOUBLE, keys=None):
    bounds = None if low is None else Interval(F(low), F(high))
    return Argument(expression=Column(name, kind), facts=Facts(bounds=bounds, step=step and F(step), keys=keys))


def aggregation(*aggregates, keys=(), groups=1, rows=1, discover=False, units="column"):
    return Aggregation(
        relation=SCAN,
        units=units,
        keys=keys,
        aggregates=aggregates,
        groups=groups,
        rows=rows,
        discover=discover,
        tables=("t",),
    )


def ask(function, *arguments, **more):
    return Aggregate(function=function, arguments=arguments, **more)


def key(*values):
    return Key(expression=Column("c9", Kind.INTEGER), kind=Kind.INTEGER, values=values or None)


X = argument(0, 100, step="1/100")
N = argument(0, 20, name="c1", kind=Kind.INTEGER)


def part_of(total, rows_of_unit, rows):
    """What one unit adds, straight from the words of Total and Cap. A row is a mapping from column to value."""
    products = []
    for row in rows_of_unit:
        needed = [g.expression.name for g in total.factors] + [e.name for e in total.present]
        if any(row[name] is None for name in needed):
            continue
        product = 1
        for g in total.factors:
            place = math.floor(F(row[g.expression.name]) / g.step + F(1, 2))
            product *= min(max(place, g.low), g.high) - g.offset
        products.append(product)
    if not products:
        return 0
    value = sum(products)
    if total.cap is Cap.UNIT_MEAN:
        rows = 1
    if total.cap is not Cap.CLAMP and len(products) > rows:
        value = value * rows // len(products)
    return min(max(value, total.low), total.high)


# ---------------------------------------------------------------------------------------------- totals


def test_counts_and_units():
    lowered = lower(aggregation(ask(Function.COUNT), ask(Function.COUNT_UNITS), ask(Function.COUNT, X), rows=3))
    assert [(t.present, t.low, t.high) for t in lowered.measurement.totals] == [
        ((), 0, 3),
        ((), 0, 1),
        ((X.expression,), 0, 3),
    ]
    assert all(t.factors == () and t.cap is Cap.CLAMP for t in lowered.measurement.totals)
    assert lowered.recipes[0] == Linear(cell=0, step=F(1), whole=True)


def test_a_question_can_only_narrow_the_bounds_of_a_count():
    wide = lower(aggregation(ask(Function.COUNT, per_group=(F(0), F(50))), rows=3))
    narrow = lower(aggregation(ask(Function.COUNT, per_group=(F(0), F(2))), rows=3))
    none = lower(aggregation(ask(Function.COUNT, per_group=(F(0), F(0))), rows=3))
    assert (wide.cells[0].high, narrow.cells[0].high) == (3, 2)
    assert none.recipes == (Constant(F(0), whole=True),)
    assert none.measurement.totals == ()


@pytest.mark.parametrize(
    ("facts", "rows", "part"),
    [
        (argument(0, 100, step="1/100"), 2, (0, 20000)),
        (argument(-3, 5, kind=Kind.INTEGER), 2, (-6, 10)),
        (argument(2, 5, kind=Kind.INTEGER), 1, (0, 5)),  # an absent unit adds nothing, so 0 is in the range
        (argument(-5, -2, kind=Kind.INTEGER), 1, (-5, 0)),
        (argument("1/2", "51/10", kind=Kind.INTEGER), 1, (0, 51)),  # in tenths: the clamped value 5.1 is on the grid
        (argument(0, 100, step=60, kind=Kind.INTEGER), 2, (0, 10)),  # in twenties
    ],
)
def test_sums_are_clamped_to_what_so_many_rows_can_add(facts, rows, part):
    cell = lower(aggregation(ask(Function.SUM, facts), rows=rows)).cells[0]
    assert (cell.low, cell.high) == part
    assert (cell.exact.low, cell.exact.high, cell.exact.cap) == (*part, Cap.CLAMP)


def test_a_question_can_only_narrow_the_bounds_of_a_sum():
    def part(low, high):
        cell = lower(aggregation(ask(Function.SUM, N, per_group=(F(low), F(high))), rows=2)).cells[0]
        return cell.low, cell.high

    assert part(-5, 1000) == (0, 40)
    assert part(3, 7) == (3, 7)
    assert part(90, 99) == (40, 40)
    assert part("1/3", "2/3") == (1, 2)  # in thirds: a grid that holds the bounds
    with pytest.raises(Refused, match="too close") as refused:
        lower(aggregation(ask(Function.SUM, argument(0, 10**10), per_group=(F(10**9), 10**9 + F(1, 10**6))), rows=2))
    assert refused.value.code == "bounds_empty"


@pytest.mark.parametrize(("low", "high"), [(-(2**65), 2**65), (2**64, 2**65), (-(2**65), -(2**64)), (0, 10**12)])
def test_narrow_bounds_of_a_group_do_not_vanish_next_to_those_of_rows(low, high):
    """They did: what was clamped to (0, 5) was told as an exact 0."""
    lowered = lower(aggregation(ask(Function.SUM, argument(low, high), per_group=(F(-1), F(5))), rows=2))
    (cell,), recipe = lowered.cells, lowered.recipes[0]
    largest, smallest = ([{"c0": F(end)}] * 2 for end in (high, low))
    assert part_of(cell.exact, largest, 2) * recipe.step == (5 if high > 0 else -1)
    assert part_of(cell.exact, smallest, 2) * recipe.step == (-1 if low < 0 else 0 if low == 0 else 5)


def test_bounds_per_group_are_enough_for_a_sum():
    unknown = argument(None, None, kind=Kind.INTEGER)
    cell = lower(aggregation(ask(Function.SUM, unknown, per_group=(F(2), F(9))))).cells[0]
    assert (cell.low, cell.high) == (2, 9)
    assert (cell.exact.factors[0].low, cell.exact.factors[0].high) == (0, 9)


def test_what_two_aggregates_have_in_common_is_measured_once():
    lowered = lower(
        aggregation(
            ask(Function.COUNT, X), ask(Function.AVG, X), ask(Function.VAR_POP, X), ask(Function.SUM, X), rows=2
        )
    )
    count, mean, variance, total = lowered.recipes
    assert mean.count == variance.count == count.cell
    assert mean.x == variance.x
    assert len(lowered.cells) == 4
    assert total.cell not in (*mean.cells, *variance.cells)  # capped and centred in another way


def test_pairs_count_only_where_both_are_there():
    lowered = lower(aggregation(ask(Function.CORR, X, N), ask(Function.COVAR_POP, X, N), ask(Function.COVAR_POP, N, X)))
    assert len(lowered.cells) == 7  # count, x, y, xx, yy, xy, and yx
    for cell in lowered.cells:
        used = {g.expression for g in cell.exact.factors} | set(cell.exact.present)
        assert used == {X.expression, N.expression}


def test_covariance_with_itself_is_the_variance():
    covariance, variance = lower(aggregation(ask(Function.COVAR_POP, X, X), ask(Function.VAR_POP, X))).recipes
    assert covariance.xy == variance.xx
    assert covariance.cells == variance.cells


def test_distinct_values_and_choices():
    lowered = lower(
        aggregation(
            ask(Function.COUNT_DISTINCT, X),
            ask(Function.QUANTILE, X, quantile=F(1, 2)),
            ask(Function.QUANTILE, X, quantile=F(9, 10)),
            ask(Function.QUANTILE, X, quantile=F(1, 2)),
            rows=3,
        )
    )
    assert lowered.measurement.distinct == (DistinctValues(expression=X.expression),)
    assert (lowered.cells[0].low, lowered.cells[0].high) == (0, 3)
    assert len(lowered.measurement.bins) == 1
    assert [choice.quantile for choice in lowered.choices] == [F(1, 2), F(9, 10)]
    assert [recipe.choice for recipe in lowered.recipes[1:]] == [0, 1, 0]
    grid = lowered.measurement.bins[0].grid
    assert (grid.low, grid.high, grid.offset, grid.step) == (0, 10000, 0, F(1, 100))


def test_mode_counts_public_values_by_their_place():
    colour = Argument(expression=Column("c5", Kind.TEXT), facts=Facts(keys=("blue", "green", "red", None)))
    lowered = lower(aggregation(ask(Function.MODE, colour)))
    grid = lowered.measurement.bins[0].grid
    assert (grid.low, grid.high) == (0, 2)
    case = grid.expression
    assert case.function == "case"
    assert [e.value for e in case.arguments[1::2]] == [0, 1, 2]
    assert [e.arguments[1].value for e in case.arguments[:-1:2]] == ["blue", "green", "red"]
    assert case.arguments[-1].value is None
    assert lowered.recipes[0] == ChosenValue(choice=0, values=("blue", "green", "red"), kind=Kind.TEXT)
    integers = lower(aggregation(ask(Function.MODE, argument(-1, 3, kind=Kind.INTEGER))))
    assert integers.recipes[0].values == (-1, 0, 1, 2, 3)


# ---------------------------------------------------------------------------------------------- bounds


def parts_of(cell):
    """The totals of a cell, with their weights."""
    return cell.exact.parts if isinstance(cell.exact, WeightedTotals) else [(cell.exact, 1)]


@st.composite
def facts_of(draw):
    low = draw(st.fractions(-1000, 1000))
    width = draw(st.fractions(0, 1000))
    kind = draw(st.sampled_from([Kind.INTEGER, Kind.DOUBLE]))
    step = draw(st.sampled_from([None, F(1), F(1, 4), F(1, 100), F(3)]))
    name = draw(st.sampled_from(["c0", "c1"]))
    return argument(low, low + width, step=step, kind=kind, name=name)


NUMBERS = [Function.SUM, Function.AVG, Function.AVG_PER_UNIT, Function.VAR_SAMP, Function.COVAR_POP, Function.COUNT]


@given(
    st.sampled_from(NUMBERS),
    facts_of(),
    facts_of(),
    st.integers(1, 4),
    st.lists(st.tuples(*[st.none() | st.fractions(-2000, 2000)] * 2), max_size=6),
)
def test_no_unit_adds_more_than_claimed_and_no_part_is_too_large(function, x, y, rows, table):
    arguments = (x, y) if function is Function.COVAR_POP else (x,)
    unit = [{"c0": a, "c1": b} for a, b in table]
    lowered = lower(aggregation(ask(function, *arguments), rows=rows))
    for cell in lowered.cells:
        assert -LARGEST_PART <= cell.low <= cell.high <= LARGEST_PART
        if any(total.cap is not Cap.CLAMP for total, _ in parts_of(cell)) or len(unit) <= rows:
            # without the last clamp: the range must hold of itself, or clamping would bias
            free = sum(
                weight * part_of(replace(total, low=-(10**30), high=10**30) if total.factors else total, unit, rows)
                for total, weight in parts_of(cell)
            )
            assert min(cell.low, 0) <= free <= max(cell.high, 0)
    for basis in (block for block in lowered.blocks if len(block) > 1):
        cells = [lowered.cells[place] for place in basis]
        parts = [sum(weight * part_of(total, unit, rows) for total, weight in parts_of(cell)) for cell in cells]
        assert min(parts) >= 0
        assert sum(parts) <= min(cell.high for cell in cells)


@pytest.mark.parametrize("function", [Function.AVG, Function.VAR_POP])
def test_the_claimed_ends_are_reached(function):
    x = argument(-2, 3, kind=Kind.INTEGER)
    for cell in lower(aggregation(ask(function, x), rows=2)).cells:
        tables = itertools.product([None, -2, -1, 0, 1, 2, 3], repeat=3)
        parts = {
            sum(weight * part_of(total, [{"c0": a} for a in table], 2) for total, weight in parts_of(cell))
            for table in tables
        }
        assert max(parts) == cell.high
        assert min(parts) == min(cell.low, 0)


def test_a_mean_is_centred_on_a_grid_finer_than_the_step():
    grid = centred_grid(argument(0, 1, kind=Kind.INTEGER), Interval(F(0), F(1)), LARGEST_PART)
    assert grid.centred == (-512, 512)
    assert grid.step == F(1, 1024)
    x = argument(10, 20, kind=Kind.INTEGER)
    recipe = lower(aggregation(ask(Function.AVG, x), ask(Function.VAR_POP, x))).recipes[0]
    assert recipe.x.centre == 15


def test_grids_use_the_declared_step_or_a_power_of_two_that_fits():
    assert sum_grid(X, X.facts.bounds, LARGEST_PART).step == F(1, 100)
    assert sum_grid(N, N.facts.bounds, LARGEST_PART).step == 1
    free = argument(0, 100)
    grid = sum_grid(free, free.facts.bounds, LARGEST_PART)
    assert grid.high <= LARGEST_PART < 2 * grid.high
    assert grid.step.numerator == 1
    assert math.log2(grid.step.denominator).is_integer()
    wide = argument(-(10**15), 10**15, kind=Kind.INTEGER)
    assert sum_grid(wide, wide.facts.bounds, LARGEST_PART).step == 2**20
    assert bin_grid(free, free.facts.bounds).high == 51200
    points = bin_grid(wide, wide.facts.bounds)
    assert 2**15 < points.high - points.low <= 2**16 + 1
    assert points.centred[0] == 0


STEPS = [None, F(1), F(60), F(1, 100), F(1, 4), F(5, 2), F(10**6)]
ENDS = st.one_of(
    st.sampled_from([F(0), F(100), F(50), F(-3), F(33, 10), F(1, 3), F(10**12), F(3.3000000000000003), F(1, 10**9)]),
    st.decimals(-1000, 1000, places=3).map(F),
    st.floats(-1e6, 1e6).map(F),
)


@given(
    st.sampled_from(["sum", "mean", "product", "bins"]),
    st.sampled_from(STEPS),
    st.sampled_from([Kind.INTEGER, Kind.DOUBLE]),
    ENDS,
    ENDS,
    st.sampled_from([1, 10, 10**6]),
    st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=8),
)
def test_a_grid_holds_the_values_and_what_they_are_clamped_to(use, step, kind, one, other, rows, places):
    """A value on its step, clamped to the bounds, is a point of the grid: exactly where one that holds all fits."""
    low, high = min(one, other), max(one, other)
    if low == high:
        return
    step = F(math.ceil(step)) if kind is Kind.INTEGER and step is not None else step
    given, bounds = argument(low, high, step=step, kind=kind), Interval(low, high)
    most = LARGEST_PART // rows
    if use == "product":
        most = math.isqrt(most)
    grid = {"sum": sum_grid, "mean": centred_grid, "product": centred_grid}.get(use, lambda a, b, _: bin_grid(a, b))(
        given, bounds, most
    )
    assert grid.low < grid.high
    whole = step if step is not None else (F(1) if kind is Kind.INTEGER else None)
    values = [low, high, *(F(place) * (whole or F(1, 997)) for place in places)]
    held = whole is not None and all((end / grid.step).denominator == 1 for end in (low, high, whole))
    # bounds are doubles, so they may miss a step in their last digits
    slack = bounds.magnitude / 2**44
    for value in values:
        clamped = min(max(value, low), high)
        on = min(max(round(value / grid.step), grid.low), grid.high) * grid.step
        assert abs(on - clamped) <= (0 if held else grid.step / 2 if bounds.width > grid.step else grid.step) + slack
    if whole is None:
        return
    # where a grid of the common divisor has few enough points, it is that one, or one that is finer
    steps = (bounds.width if use != "sum" else 2 * bounds.magnitude) / 2 / common_step([whole, low, high])
    limit = 2**18 if use == "bins" else most // 2
    if steps <= limit and bounds.magnitude / common_step([whole, low, high]) <= 2**40:
        assert held


def test_the_smallest_grid_in_which_everything_is_exact():
    hours = argument(0, 1440, step=60, kind=Kind.INTEGER)
    assert sum_grid(hours, Interval(F(0), F(100)), LARGEST_PART).step == 20
    assert sum_grid(hours, Interval(F(0), F(50)), LARGEST_PART).step == 10
    assert sum_grid(hours, Interval(F(0), F(1440)), LARGEST_PART, (F(0), F(100))).step == 20
    points = bin_grid(hours, Interval(F(0), F(100)))
    assert (points.step, points.low, points.high) == (20, 0, 5)
    # what arithmetic of doubles made of 3.3 is no reason for a grid of 10^-16
    tenths = argument(0, F(3.3000000000000003), step="1/10")
    assert sum_grid(tenths, tenths.facts.bounds, LARGEST_PART).step == F(1, 10)
    # a step that must be halved to fit is still exact for values
    odd = argument(0, F(333333333, 10**7), step="1/100")
    assert (F(1, 100) / bin_grid(odd, odd.facts.bounds).step).denominator == 1


# ---------------------------------------------------------------------------------------------- constants and refusals


def test_what_bounds_alone_decide_needs_no_noise():
    same = argument(7, 7, kind=Kind.INTEGER)
    zero = argument(0, 0)
    lowered = lower(
        aggregation(
            ask(Function.AVG, same),
            ask(Function.VAR_SAMP, same),
            ask(Function.SUM, zero),
            ask(Function.QUANTILE, same, quantile=F(1, 2)),
            ask(Function.COVAR_POP, same, X),
        )
    )
    assert [recipe.value for recipe in lowered.recipes] == [7, 0, 0, 7, 0]
    assert lowered.cells == lowered.choices == lowered.measurement.totals == ()
    # but the sum of a constant counts rows, so it is as secret as they are
    assert isinstance(lower(aggregation(ask(Function.SUM, same))).recipes[0], Linear)


@pytest.mark.parametrize(
    ("aggregate", "code"),
    [
        (ask(Function.SUM, argument(None, None)), "bounds_unknown"),
        (ask(Function.AVG, argument(None, None)), "bounds_unknown"),
        (ask(Function.SUM, argument(0, 10**100)), "bounds_extreme"),
        (ask(Function.MODE, argument(None, None, kind=Kind.TEXT)), "mode_needs_keys"),
        (ask(Function.MODE, argument(0, 10**6, kind=Kind.INTEGER)), "mode_needs_keys"),
        (ask(Function.CORR, X, argument(1, 1, name="c1")), "constant_argument"),
    ],
)
def test_refusals(aggregate, code):
    with pytest.raises(Refused) as refused:
        lower(aggregation(aggregate))
    assert refused.value.code == code
    assert refused.value.hint


def test_too_many_public_groups():
    many = key(*range(1001))
    with pytest.raises(Refused, match="1,002,001") as refused:
        lower(aggregation(ask(Function.COUNT), keys=(many, many)))
    assert refused.value.code == "too_many_groups"
    some = key(*range(400))
    assert lower(aggregation(ask(Function.SUM, X), keys=(some, some))).span.cells == 160_000
    with pytest.raises(Refused, match="quantiles"):
        lower(aggregation(ask(Function.QUANTILE, X, quantile=F(1, 2)), keys=(some, some)))


@pytest.mark.parametrize(
    "wrong",
    [
        aggregation(ask(Function.COUNT), units="row", rows=2),
        aggregation(ask(Function.COUNT), units="row", groups=2),
        aggregation(ask(Function.COUNT), keys=(key(),)),
        aggregation(ask(Function.QUANTILE, X)),
        aggregation(ask(Function.CORR, X)),
    ],
)
def test_impossible_plans(wrong):
    with pytest.raises(InvalidParameter):
        lower(wrong)


# ---------------------------------------------------------------------------------------------- groups


@pytest.mark.parametrize(
    ("keys", "groups", "expected"),
    [((), 5, 1), ((key(1, 2, 3),), 5, 3), ((key(1, 2, 3), key(1, 2)), 5, 5), ((key(1, 2, 3),), 2, 2)],
)
def test_a_unit_is_in_no_more_groups_than_there_are(keys, groups, expected):
    assert lower(aggregation(ask(Function.COUNT), keys=keys, groups=groups)).measurement.groups == expected


def test_discovered_keys_are_counted_by_units():
    lowered = lower(aggregation(ask(Function.COUNT), keys=(key(),), groups=4, rows=2, discover=True))
    assert lowered.span.cells is None
    units = lowered.measurement.totals[lowered.units]
    assert (units.factors, units.present, units.low, units.high) == ((), (), 0, 1)
    shared = lower(aggregation(ask(Function.COUNT_UNITS), keys=(key(),), groups=4, discover=True))
    assert len(shared.measurement.totals) == 1


def test_recipes_survive_json():
    functions = [Function.COUNT, Function.SUM, Function.AVG, Function.STDDEV_POP, Function.MODE]
    asked = [ask(f, *(() if f is Function.COUNT else (N,))) for f in functions]
    asked += [ask(Function.CORR, X, N), ask(Function.AVG, argument(3, 3)), ask(Function.QUANTILE, X, quantile=F(1, 3))]
    recipes = lower(aggregation(*asked)).recipes
    assert {type(recipe) for recipe in recipes} == {Linear, Mean, MomentsRecipe, ChosenValue, Constant, Located}
    for recipe in recipes:
        assert from_json(to_json(recipe)) == recipe
    with pytest.raises(InvalidParameter):
        from_json(["nonsense", {}])
