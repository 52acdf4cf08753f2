"""Private quantiles: exact sensitivity and law over all small tables, edge values, accuracy."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st

from dither.checks.statistics import chi_square_counts, proportion_at_most
from dither.errors import InvalidData, InvalidParameter
from dither.mechanisms.exponential import BoundedRangeLoss
from dither.mechanisms.quantile import Quantile, rank_sensitivity
from dither.privacy import Adjacency, Direction, Guarantee, Sensitivity

ALPHA = 1e-9
ADD, REPLACE = Adjacency.ADD_REMOVE, Adjacency.REPLACE
POINTS = 5
QS = [Fraction(1, 2), Fraction(1, 4), Fraction(9, 10), Fraction(1, 3)]


def rank_error(x: int, table, q: Fraction) -> Fraction:
    """The definition, point by point."""
    below, not_above = sum(v < x for v in table), sum(v <= x for v in table)
    wanted = q * len(table)
    return max(Fraction(0), below - wanted, wanted - not_above)


def scores_of(table, q: Fraction) -> list[Fraction]:
    return [-rank_error(x, table, q) for x in range(POINTS)]


def tables(largest: int):
    for size in range(largest + 1):
        yield from itertools.combinations_with_replacement(range(POINTS), size)


def add_remove_pairs(largest: int):
    for table in tables(largest - 1):
        for value in range(POINTS):
            yield table, tuple(sorted([*table, value]))


def replace_pairs(largest: int):
    for table in tables(largest - 1):
        for a, b in itertools.combinations(range(POINTS), 2):
            yield tuple(sorted([*table, a])), tuple(sorted([*table, b]))


@pytest.mark.parametrize("q", QS)
@pytest.mark.parametrize(("adjacency", "pairs"), [(ADD, add_remove_pairs), (REPLACE, replace_pairs)])
def test_sensitivity_over_all_small_tables(q, adjacency, pairs):
    # exact, for every table of up to 5 values on 5 points: never more, and attained
    largest = widest = Fraction(0)
    for one, other in pairs(5):
        moves = [a - b for a, b in zip(scores_of(one, q), scores_of(other, q), strict=True)]
        largest = max(largest, *(abs(m) for m in moves))
        widest = max(widest, max(moves) - min(moves))
    assert largest == rank_sensitivity(q, adjacency)
    assert widest <= 2 * largest
    if q in (Fraction(1, 2), Fraction(1, 4), Fraction(1, 3)):
        assert widest == 2 * largest  # so no smaller range would do


@pytest.mark.parametrize("q", QS)
@pytest.mark.parametrize(("adjacency", "pairs"), [(ADD, add_remove_pairs), (REPLACE, replace_pairs)])
def test_law_over_all_small_tables(q, adjacency, pairs):
    mechanism = Quantile(scale=2, bounds=(0, POINTS - 1), step=1, q=q)
    loss = mechanism.loss(adjacency)
    laws = {table: mechanism.law(list(table)).probabilities for table in tables(4)}
    for table, law in list(laws.items())[::7]:
        expected = np.exp(np.array([float(s) for s in scores_of(table, q)]) / 2)
        assert np.allclose(law, expected / expected.sum(), rtol=1e-12)
    epsilons = np.linspace(-loss.pure(), loss.pure(), 5)
    bounds = loss.profile(epsilons, Direction.REMOVE)
    for one, other in pairs(4):
        p, r = laws[one], laws[other]
        assert np.abs(np.log(p / r)).max() <= loss.pure() * (1 + 1e-12)
        gaps = np.maximum(p - np.exp(epsilons)[:, None] * r, 0).sum(axis=1)
        assert (gaps <= bounds + 1e-12).all()


@pytest.mark.parametrize("adjacency", [ADD, REPLACE])
@pytest.mark.parametrize("q", QS)
def test_worst_pair_shows_a_halved_sensitivity(q, adjacency):
    mechanism = Quantile(scale=2, bounds=(0, 64), step=1, q=q)
    one, other = mechanism.worst_pair(adjacency)
    logs = np.log(mechanism.law(one).probabilities / mechanism.law(other).probabilities)
    assert logs.max() - logs.min() == pytest.approx(mechanism.loss(adjacency).pure(), rel=1e-9)
    # the mutant: half the sensitivity at the same scale promises half the range
    assert logs.max() - logs.min() > 1.9 * float(rank_sensitivity(q, adjacency)) / 2


def test_counting_the_median_for_add_remove_as_for_replace_is_no_free_lunch():
    median = Quantile(scale=1, bounds=(0, 4), step=1)
    assert median.loss(ADD) == BoundedRangeLoss(Fraction(1))
    assert median.loss(REPLACE) == BoundedRangeLoss(Fraction(2), REPLACE)
    assert Quantile(scale=1, bounds=(0, 4), step=1, q="9/10").loss(ADD).pure() == 1.8
    assert median.loss(ADD, rows=3).pure() == 3


@pytest.mark.parametrize("adjacency", [ADD, REPLACE])
def test_several_rows_per_unit(adjacency):
    # two values of one unit: exact over all tables of up to 2 others
    q = Fraction(1, 4)
    most = 2 * rank_sensitivity(q, adjacency)
    seen = Fraction(0)
    units = list(tables(2))
    for rest in tables(2):
        for before, after in itertools.combinations(units, 2):
            if adjacency is ADD and before:
                continue
            one, other = scores_of(rest + before, q), scores_of(rest + after, q)
            seen = max(seen, *(abs(a - b) for a, b in zip(one, other, strict=True)))
    assert seen == most


def test_several_quantiles_compose():
    qs = ("1/4", "1/2", "3/4")
    mechanism = Quantile(scale=4, bounds=(0, 4), step=1, q=qs)
    assert mechanism.loss(ADD).pure() == 1
    assert mechanism.loss(REPLACE).pure() == 1.5
    assert mechanism.loss(REPLACE) == 3 * BoundedRangeLoss(Fraction(1, 2), REPLACE)
    out = mechanism.release([0, 1, 2, 3, 4])
    assert isinstance(out, tuple)
    assert len(out) == 3
    assert list(out) == sorted(out)
    sharp = Quantile(scale="1/1000", bounds=(0, 100), step=1, q=qs).release(np.arange(101))
    assert sharp == (25, 50, 75)
    with pytest.raises(InvalidParameter, match="ascending"):
        Quantile(scale=1, bounds=(0, 1), step=1, q=(0.5, 0.25))
    with pytest.raises(InvalidParameter, match="one quantile or several"):
        Quantile(scale=1, bounds=(0, 1), step=1, q=())


def test_releases_have_the_law():
    # Catches a scale 40 % off, and lengths of intervals that are ignored.
    mechanism = Quantile(scale=2, bounds=(0, 40), step=1, q="1/3")
    values = [3, 3, 9, 17, 17, 17, 30]
    law = mechanism.law(values).probabilities
    expected = np.exp([-float(rank_error(x, values, Fraction(1, 3))) / 2 for x in range(41)])
    assert np.allclose(law, expected / expected.sum(), rtol=1e-12)

    def p_value(tried: Quantile, table) -> float:
        drawn = np.array([tried.release(table) for _ in range(3000)], dtype=int)
        return chi_square_counts(np.bincount(drawn, minlength=41).astype(float), law)

    assert p_value(mechanism, values) > ALPHA
    assert p_value(Quantile(scale="1.2", bounds=(0, 40), step=1, q="1/3"), values) < ALPHA
    ignored = np.zeros(41)
    for table_point in {0, *values, *(v + 1 for v in values)}:
        ignored[table_point] = law[table_point]
    assert chi_square_counts(3000 * ignored / ignored.sum(), law) < ALPHA


@given(
    st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=12),
    st.sampled_from(QS),
    st.sampled_from([("-3", "5", "1/2"), ("0", "1", "1/7"), ("-1e9", "1e9", "1e8")]),
)
def test_any_values_are_accepted_and_give_the_defined_law(values, q, frame):
    low, high, step = (Fraction(x) for x in frame)
    mechanism = Quantile(scale=1, bounds=(low, high), step=step, q=q)
    law = mechanism.law(values).probabilities
    kept = [min(max(v, float(low)), float(high)) for v in values if not math.isnan(v)]
    places = [min(max(round((v - float(low)) / float(step)), 0), law.size - 1) for v in kept]
    expected = np.exp([-float(rank_error(x, places, q)) for x in range(law.size)])
    assert np.allclose(law, expected / expected.sum(), rtol=1e-10)
    assert float(low) <= mechanism.release(values) <= float(high)


def test_missing_and_odd_values():
    median = Quantile(scale="1/1000", bounds=(0, 10), step=1)
    assert median.release([math.inf] * 3) == 10
    assert median.release([-math.inf, -1e308, 3]) == 0
    assert median.release([math.nan, None, 4, Decimal("4.2"), Fraction(4)]) == 4
    assert median.release([10**400, 10**400]) == 10
    assert median.release([2**63, 2**64]) == 10
    assert np.allclose(median.law([math.nan, math.nan]).probabilities, 1 / 11)
    assert np.allclose(median.law([]).probabilities, 1 / 11)
    assert median.release(np.array([3, 4, 5], dtype=np.uint8)) == 4
    for bad in (["a"], [True, False], [[1.0]], 3.0, np.array([1j]), [object()]):
        with pytest.raises(InvalidData):
            median.release(bad)


def test_moving_a_value_to_missing_stays_within_both_losses():
    # under replace a number may become NaN; that is a removal, which costs less
    for q in QS:
        for table in tables(4):
            for i in range(len(table)):
                fewer = table[:i] + table[i + 1 :]
                moved = [abs(a - b) for a, b in zip(scores_of(table, q), scores_of(fewer, q), strict=True)]
                assert max(moved) <= rank_sensitivity(q, REPLACE)


def test_huge_grids_are_never_listed():
    mechanism = Quantile(scale=1, bounds=(0, 2**62), step=1)
    assert 0 <= mechanism.release([2.0**61]) <= 2**62
    assert mechanism.error() < 62 * math.log(2) + math.log(20)
    fine = Quantile(scale="1/1000", bounds=(-1, 1), step=Fraction(1, 2**40))
    assert fine.release([0.25, 0.25, 0.25]) == 0.25
    with pytest.raises(InvalidParameter, match="law"):
        fine.law([0.0])


def test_a_million_values_take_no_step_each(steps_within):
    values = np.random.default_rng(1).normal(size=10**6)
    mechanism = Quantile(scale=20, bounds=(-8, 8), step=Fraction(1, 2**36))
    with steps_within(50_000):
        found = mechanism.release(values)
    rank = int((values < found).sum())
    # fails one in 10^9: the stated error at that confidence
    assert abs(rank - 500_000) <= mechanism.error(1 - Fraction(1, 10**9)) + 1


def test_rank_error_is_met_and_meaningful():
    rng = np.random.default_rng(2)
    values = rng.integers(0, 1000, size=300)
    mechanism = Quantile(scale=5, bounds=(0, 1000), step=1, q=("1/10", "1/2"))
    bound = mechanism.error(0.9)

    def p_value(tried: Quantile) -> float:
        missed = 0
        for _ in range(600):
            pair = zip(tried.release(values), tried.quantiles, strict=True)
            missed += any(rank_error(x, values.tolist(), q) > bound for x, q in pair)
        return proportion_at_most(missed, 600, 0.1)

    assert p_value(mechanism) > ALPHA
    # Catches ten times the scale: values that lie apart are found more easily than those that the bound is meant for.
    assert p_value(Quantile(scale=50, bounds=(0, 1000), step=1, q=("1/10", "1/2"))) < ALPHA
    # attained when a single point is right: all values on one point
    single = Quantile(scale=5, bounds=(0, 1000), step=1)
    law = single.law([500] * 10**5).probabilities
    assert law[500] > 0.999
    two = Quantile(scale=5, bounds=(0, 1), step=1)
    n = 2 * round(two.error(0.9))
    assert two.law([0] * n).probabilities[1] == pytest.approx(0.1, rel=0.2)


def test_calibration():
    frame = {"bounds": (0, 1), "step": "1/10"}
    assert Quantile.calibrated(Guarantee(1), ADD, **frame).scale == 1
    assert Quantile.calibrated(Guarantee(1), REPLACE, **frame, rows=2).scale == 4
    three = Quantile.calibrated(Guarantee(1), ADD, **frame, q=("1/4", "1/2", "3/4"))
    assert three.scale == 4
    assert three.loss(ADD).pure() == 1
    many = [Fraction(i, 11) for i in range(1, 11)]
    approximate = Quantile.calibrated(Guarantee(1, "1e-6"), ADD, **frame, q=many)
    assert approximate.loss(ADD).epsilon("1e-6") <= 1
    pure = Quantile.calibrated(Guarantee(1), ADD, **frame, q=many)
    assert approximate.scale < 0.99 * pure.scale
    single = Quantile.calibrated(Guarantee(1, "1e-6"), ADD, **frame)
    assert single.scale < 1
    assert single.loss(ADD).epsilon("1e-6") <= 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scale": 0}, "scale"),
        ({"step": 0}, "step"),
        ({"step": "2/3"}, "whole number of steps"),
        ({"bounds": (1, 1)}, "low < high"),
        ({"bounds": (1, 0)}, "low < high"),
        ({"bounds": (0, math.inf)}, "finite"),
        ({"bounds": 3}, "pair"),
        ({"bounds": (0, 2**63)}, "2\\^62"),
        ({"q": 0}, "strictly between"),
        ({"q": 1}, "strictly between"),
        ({"q": "1/1000003"}, "denominator"),
        ({"q": math.nan}, "finite"),
        ({"q": None}, "q must be"),
    ],
)
def test_bad_parameters_are_refused(change, message):
    good = {"scale": 1, "bounds": (0, 1), "step": 1, "q": "1/2"}
    with pytest.raises(InvalidParameter, match=message):
        Quantile(**{**good, **change})


def test_bad_losses_are_refused():
    mechanism = Quantile(scale=1, bounds=(0, 1), step=1)
    with pytest.raises(InvalidParameter, match="adjacency"):
        mechanism.loss(Sensitivity.linf(1))
    with pytest.raises(InvalidParameter, match="rows"):
        mechanism.loss(ADD, rows=0)
