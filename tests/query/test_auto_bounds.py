"""The search for bounds: every value has its bin, one unit moves the counts as charged, empty bins aren't found."""

import itertools
import math
from fractions import Fraction as F

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from dither.mechanisms import DiscreteGaussian, DiscreteLaplace
from dither.privacy import Adjacency
from dither.query.kinds import Call, Column, Interval, Kind, Literal
from dither.query.measure.measures import BinCounts, Measured
from dither.query.plan.plan import Scan
from dither.query.price.auto_bounds import (
    BINS,
    FALSE_ALARM,
    NOTHING_FOUND,
    SIDE,
    bin_of,
    bounds_from,
    edges,
    price_search,
    search_measurement,
)
from dither.query.price.noise import QueryBudget

SCAN = Scan(table="t", private=True, unit_column="u", columns=(), fields=())
X = Column("c0", Kind.DOUBLE)
BUDGETS = [QueryBudget(kind="pure", main=F(1, 3)), QueryBudget(kind="zcdp", main=F(1, 50))]


def evaluate(expression, x):
    """The few functions that the search uses, with the engines' meaning: NULL in, NULL out; nothing raises."""
    if isinstance(expression, Column):
        return x
    if isinstance(expression, Literal):
        return expression.value
    assert isinstance(expression, Call)
    if expression.function == "case":
        for condition, result in zip(expression.arguments[:-1:2], expression.arguments[1::2], strict=True):
            if evaluate(condition, x):
                return evaluate(result, x)
        return evaluate(expression.arguments[-1], x)
    values = [evaluate(argument, x) for argument in expression.arguments]
    if expression.function == "is_null":
        return values[0] is None
    if expression.function in ("greatest", "least", "or"):
        known = [v for v in values if v is not None]
        return {"greatest": max, "least": min, "or": any}[expression.function](known) if known else None
    if None in values:
        return None
    return {
        "to_double": float,
        "abs": abs,
        "floor": lambda v: float(math.floor(v)) if math.isfinite(v) else v,
        "log2": lambda v: math.log2(v) if v > 0 else None,
        "add": lambda a, b: a + b,
        "negate": lambda v: -v,
        "less": lambda a, b: a < b,
        "equal": lambda a, b: a == b,
        "is_nan": math.isnan,
    }[expression.function](*values)


def bin_index(x):
    grid = search_measurement(SCAN, X, "column", 1).bins[0].grid
    place = evaluate(grid.expression, x)
    if place is None:
        return None
    return min(max(round(place / grid.step), grid.low), grid.high) - grid.offset


def measured(bins, counts):
    here = BinCounts(
        group=np.zeros(len(bins), np.int64), bin=np.array(bins, np.int64), count=np.array(counts, np.int64)
    )
    return Measured(keys=pa.table({}), size=1, totals=(), bins=(here,))


@given(st.floats(allow_nan=False) | st.integers(-(2**63), 2**63 - 1))
def test_every_value_lies_in_its_bin(x):
    low, high = edges(bin_index(x))
    if x == 0:
        assert (low, high) == (0, 0)
        return
    # what is beyond the range counts at its end; the logarithm may be off by its last bit at a power of two
    size = min(max(abs(x), 2.0**-64), 2.0**64)
    inside = F(size) if x > 0 else -F(size)
    slack = F(1, 2**40)
    assert low - abs(low) * slack <= inside <= high + abs(high) * slack


@pytest.mark.parametrize(
    ("x", "low", "high"), [(1.0, 1, 2), (1.99, 1, 2), (100, 64, 128), (-3, -4, -2), (0.3, F(1, 4), F(1, 2))]
)
def test_bins_are_powers_of_two(x, low, high):
    assert edges(bin_index(x)) == (low, high)


def test_what_is_missing_has_no_bin_and_infinities_have():
    assert bin_index(None) is None
    assert bin_index(math.nan) is None
    assert (bin_index(math.inf), bin_index(-math.inf)) == (BINS - 1, 0)
    assert [edges(i)[0] for i in range(BINS)] == sorted(edges(i)[0] for i in range(BINS))
    assert bin_of(X).kind is Kind.DOUBLE


def test_the_measurement_bounds_each_unit():
    asked = search_measurement(SCAN, X, "column", 7)
    assert (asked.rows, asked.groups, asked.keys, asked.totals) == (7, 1, (), ())
    grid = asked.bins[0].grid
    assert (grid.low - grid.offset, grid.high - grid.offset) == (0, BINS - 1)


# ---------------------------------------------------------------------------------------------- cost


@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_one_unit_moves_the_counts_by_no_more_than_charged(rows, adjacency):
    units = [np.array(u) for u in itertools.product(range(rows + 1), repeat=4) if sum(u) <= rows]
    pairs = itertools.product(units, units if adjacency is Adjacency.REPLACE else units[:1])
    moves = [a - b for a, b in pairs]
    l1, l2 = max(np.abs(m).sum() for m in moves), max((m**2).sum() for m in moves)
    pure = price_search(BUDGETS[0], rows, adjacency)
    zcdp = price_search(BUDGETS[1], rows, adjacency)
    assert pure.mechanism == DiscreteLaplace(3 * int(l1))
    assert pure.loss.pure_exactly() == BUDGETS[0].main
    assert isinstance(zcdp.mechanism, DiscreteGaussian)
    assert int(l2) / (2 * zcdp.mechanism.scale**2) == zcdp.loss.zcdp_exactly() <= BUDGETS[1].main
    assert zcdp.loss.zcdp_exactly() > BUDGETS[1].main * (1 - F(1, 2**30))
    assert pure.loss.adjacency is zcdp.loss.adjacency is adjacency


# ---------------------------------------------------------------------------------------------- what is found


@pytest.mark.parametrize("budget", BUDGETS, ids=["pure", "zcdp"])
def test_empty_bins_are_hardly_ever_found(budget):
    search = price_search(budget, 2, Adjacency.ADD_REMOVE)
    scale, m = float(search.mechanism.scale), search.threshold
    points = np.arange(m + 1, m + 4000)
    if budget.kind == "pure":
        q = math.exp(-1 / scale)
        tail, earlier = (q ** (k + 1) / (1 + q) for k in (m, m - 1))
    else:
        everything = np.exp(-(np.arange(-9000, 9001) ** 2) / (2 * scale**2)).sum()
        tail = np.exp(-(points**2) / (2 * scale**2)).sum() / everything
        earlier = tail + math.exp(-(m**2) / (2 * scale**2)) / everything
    assert tail * BINS <= float(FALSE_ALARM) < earlier * BINS


@pytest.mark.parametrize("budget", BUDGETS, ids=["pure", "zcdp"])
def test_bounds_are_the_outer_edges_of_what_is_there(budget):
    search = price_search(budget, 1, Adjacency.ADD_REMOVE)
    many = 2 * search.threshold + 50
    found = bounds_from(search, measured([bin_index(x) for x in (-3.0, 0.0, 5.0, 90.0)], [many] * 4))
    assert found == Interval(F(-4), F(128))
    positive = bounds_from(search, measured([bin_index(x) for x in (3.0, 5.0)], [many] * 2))
    assert positive == Interval(F(2), F(8))
    # a few outliers don't move the bounds
    outlier = bounds_from(search, measured([bin_index(x) for x in (3.0, 1e9)], [many, 1]))
    assert outlier == Interval(F(2), F(4))


def test_nothing_or_zeros_alone_give_bounds_of_their_own():
    search = price_search(BUDGETS[0], 1, Adjacency.ADD_REMOVE)
    assert bounds_from(search, measured([], [])) == NOTHING_FOUND
    assert bounds_from(search, measured([SIDE], [10**6])) == NOTHING_FOUND
    assert search.bounds(np.full(BINS, search.threshold)) == NOTHING_FOUND
    assert search.bounds(np.full(BINS, search.threshold + 1)) == Interval(-(F(2) ** 65), F(2) ** 65)


@pytest.mark.parametrize("budget", BUDGETS, ids=["pure", "zcdp"])
def test_a_single_unit_changes_what_is_found_no_more_than_the_loss_allows(budget):
    # the events "a bin is found" and "it isn't", with one value more or less; a threshold near the count
    search = price_search(budget, 1, Adjacency.ADD_REMOVE)
    trials, epsilon = 200_000, 0.2
    with_unit = search.mechanism.release(np.full(trials, search.threshold + 1)) > search.threshold
    without = search.mechanism.release(np.full(trials, search.threshold)) > search.threshold
    delta = search.loss.delta(F(epsilon))
    slack = 7 / math.sqrt(trials)
    assert with_unit.mean() <= math.exp(epsilon) * without.mean() + delta + slack
    # the mutant: noise of half the scale
    short = type(search.mechanism)(search.mechanism.scale / 2)
    more, less = (short.release(np.full(trials, search.threshold + n)) > search.threshold for n in (1, 0))
    assert more.mean() > math.exp(epsilon) * less.mean() + delta + slack
    assert stats.binom.sf(int(with_unit.sum()), trials, 0.5) < 1e-3  # the pair is no trivial one
