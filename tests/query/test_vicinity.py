"""Counts around a draw, and the interval that they give: exact on all small tables, in all usual definitions."""

import math
from fractions import Fraction
from itertools import combinations_with_replacement, product

import numpy as np
import pytest

from dither.mechanisms import DiscreteGaussian, DiscreteLaplace
from dither.query.aggregates import vicinity
from dither.query.aggregates.vicinity import Nearby, counted_in, empty, ends_around, interval, off_by

F = Fraction
CONFIDENCE = F(19, 20)
# The methods of NumPy: the nine of Hyndman & Fan, and those that take one of two values.
METHODS = (
    *("inverted_cdf", "averaged_inverted_cdf", "closest_observation", "interpolated_inverted_cdf", "hazen", "weibull"),
    *("linear", "median_unbiased", "normal_unbiased", "lower", "higher", "midpoint", "nearest"),
)


def nearby_of(ends, counts):
    return Nearby(starts=np.array([0, len(ends)]), ends=np.array(ends), counts=np.array(counts))


@pytest.mark.parametrize("last", [1, 2, 7, 30, 1023])
def test_bins_cover_the_grid_once_and_widen_away_from_the_draws(last):
    for drawn in ([0], [last], [last // 2], [0, last // 3, last]):
        ends = ends_around(drawn, last).tolist()
        assert ends == sorted(set(ends))
        assert ends[-1] == last
        starts = [0, *(end + 1 for end in ends[:-1])]
        assert sum(end - start + 1 for start, end in zip(starts, ends, strict=True)) == last + 1
        for place in drawn:
            # it is alone in its bin, and no bin is wider than it is away from the nearest draw
            assert (place, place) in set(zip(starts, ends, strict=True))
        for start, end in zip(starts, ends, strict=True):
            away = min(abs(start - place) for place in drawn), min(abs(end - place) for place in drawn)
            assert end - start <= max(min(away), 0)
        assert len(ends) <= len(drawn) * (2 * last.bit_length() + 1) + 1


def test_every_value_is_in_one_bin():
    ends = ends_around([4, 9], 20)
    places, counts = np.arange(-3, 25), np.arange(28) + 1
    found = counted_in(ends, places, counts)
    assert found.sum() == counts.sum()
    upto = [counts[np.clip(places, 0, 20) <= end].sum() for end in ends]
    assert np.cumsum(found).tolist() == upto


def test_a_rank_without_its_row_more_or_less_is_noticed(monkeypatch):
    monkeypatch.setattr(vicinity, "LAST_DIGITS", -1 / 4)
    with pytest.raises(AssertionError):
        test_without_noise_every_definition_of_a_quantile_is_inside()


def test_without_noise_every_definition_of_a_quantile_is_inside():
    """All tables of at most four values on a grid of five: ties, gaps, values at the bounds, nothing; all draws."""
    still, narrow = DiscreteLaplace(F(1, 100)), 0
    for size in range(5):
        for values in combinations_with_replacement(range(5), size):
            exact = np.bincount(values, minlength=5) if size else np.zeros(5, dtype=int)
            for q, drawn in product((F(1, 100), F(1, 4), F(1, 2), F(9, 10)), range(5)):
                ends = ends_around([drawn], 4)
                found = nearby_of(ends, counted_in(ends, np.arange(5), exact))
                low, high = (int(end[0]) for end in interval(found, q, still, CONFIDENCE))
                assert bool(empty(found, still, CONFIDENCE)[0]) is (size == 0)
                if size == 0:
                    assert (low, high) == (0, 4)
                    continue
                narrow += high - low < 4
                quantiles = [float(np.quantile(values, float(q), method=method)) for method in METHODS]
                # what takes more than one row more or less, as "weibull" at the ends, is beyond all values
                assert low <= min(quantiles), (values, q, drawn)
                assert max(quantiles) <= high, (values, q, drawn)
    assert narrow > 2_000


def law(noise, reach):
    """The chances of one noise from −reach to reach."""
    scale, away = float(noise.scale), np.abs(np.arange(-reach, reach + 1))
    chances = np.exp(-((away / scale) ** 2) / 2) if isinstance(noise, DiscreteGaussian) else np.exp(-away / scale)
    return chances / chances.sum()


@pytest.mark.parametrize(
    "noise", [DiscreteLaplace(F(1, 2)), DiscreteLaplace(3), DiscreteGaussian(F(2, 3)), DiscreteGaussian(5)]
)
@pytest.mark.parametrize(("below", "above"), [(1, 1), (1, 4), (3, 2)])
@pytest.mark.parametrize("q", [F(1, 10), F(1, 2), F(3, 4)])
def test_what_sums_of_noises_exceed_against_all_their_values(noise, below, above, q):
    one = law(noise, 80)

    def sums(many):
        chances = np.ones(1)
        for _ in range(many):
            chances = np.convolve(chances, one)
        return chances, np.arange(chances.size) - chances.size // 2

    (a, first), (b, second) = sums(below), sums(above)
    # in whole numbers: tenths and quarters of them are exact
    values = 20 * np.add.outer(float(1 - q) * first, -float(q) * second)
    chances = np.outer(a, b)
    for confidence in (F(4, 5), CONFIDENCE, F(999, 1000)):
        reach = 20 * off_by(noise, q, below, above, confidence)
        failure = float(1 - confidence) / 2
        assert chances[np.rint(values) > reach + 1e-3].sum() <= failure * (1 + 1e-6)
        # and it is the least that does: the next smaller value is exceeded too often
        smaller = np.rint(values)[np.rint(values) < reach - 1e-3].max()
        assert chances[np.rint(values) > smaller].sum() > failure * (1 - 1e-6) or math.isclose(reach, 0, abs_tol=1e-3)


@pytest.mark.parametrize("law_of", [DiscreteLaplace, DiscreteGaussian])
def test_large_scales_are_stretched_and_rare_failures_bounded(law_of):
    for q, below, above in ((F(1, 2), 1, 1), (F(1, 2), 12, 15), (F(9, 10), 3, 20)):
        exact = off_by(law_of(32), q, below, above, CONFIDENCE)
        stretched = off_by(law_of(3200), q, below, above, CONFIDENCE)
        assert 100 * exact <= stretched <= 104 * exact
        rare = [
            off_by(law_of(20), q, below, above, 1 - failure) for failure in (F(1, 10**8), F(1, 10**9), F(1, 10**30))
        ]
        assert rare == sorted(rare)
        assert rare[1] < 1.5 * rare[0]


def test_some_groups_are_taken_with_their_counts():
    three = [[1, 4], [0, 2, 4], [4]]
    flat = Nearby(
        starts=np.array([0, 2, 5, 6]), ends=np.array([end for ends in three for end in ends]), counts=np.arange(6)
    )
    taken = flat.take(np.array([2, 0, 0]))
    assert taken.starts.tolist() == [0, 1, 3, 5]
    assert taken.ends.tolist() == [4, 1, 4, 1, 4]
    assert taken.counts.tolist() == [5, 0, 1, 0, 1]
    assert flat.take(np.zeros(0, dtype=np.int64)).starts.tolist() == [0]
