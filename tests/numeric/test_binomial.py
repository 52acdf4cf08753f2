"""Exact bounds of a probability: compared with binomial sums in fractions, and with the inverse that they widen."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import betainc, betaincc, betaincinv

from dither.numeric.binomial import at_least_down, at_most_up, clopper_pearson, clopper_pearson_of_each


def tail(n, p, least):
    """Pr[Bin(n, p) ≥ least], exactly."""
    p = Fraction(p)
    return sum(math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(least, n + 1))


@pytest.mark.parametrize("failure", [0.3, 0.01, 1e-9])
@pytest.mark.parametrize(("inside", "draws"), [(1, 1), (1, 20), (7, 20), (19, 20), (20, 20), (3, 60), (45, 60)])
def test_lower_ends_are_sound_and_tight(inside, draws, failure):
    low = at_least_down(inside, draws, failure)
    assert tail(draws, low, inside) <= Fraction(failure)
    assert tail(draws, low * (1 + 1e-8), inside) > Fraction(failure)


@pytest.mark.parametrize("failure", [0.3, 0.01, 1e-9])
@pytest.mark.parametrize(("inside", "draws"), [(0, 1), (0, 20), (7, 20), (19, 20), (3, 60), (45, 60)])
def test_upper_ends_are_sound_and_tight(inside, draws, failure):
    high = at_most_up(inside, draws, failure)
    assert 1 - tail(draws, high, inside + 1) <= Fraction(failure) * (1 + Fraction(1, 10**9))
    assert 1 - tail(draws, high * (1 - 1e-8), inside + 1) > Fraction(failure)


def test_ends_that_need_no_draw():
    assert at_least_down(0, 10, 0.1) == 0
    assert at_most_up(10, 10, 0.1) == 1
    assert at_least_down(0, 0, 0.1) == 0
    assert at_most_up(0, 0, 0.1) == 1


@pytest.mark.parametrize("failure", [1e-2, 1e-12, 1e-40])
@pytest.mark.parametrize(("inside", "draws"), [(0, 10**9), (1, 10**9), (10**5, 10**9), (5 * 10**8, 10**9)])
def test_ends_hold_for_many_draws_and_tiny_failures(inside, draws, failure):
    low, high = at_least_down(inside, draws, failure), at_most_up(inside, draws, failure)
    assert 0 <= low <= inside / draws <= high <= 1
    if inside:
        assert betainc(inside, draws - inside + 1, low) <= failure * (1 + 1e-6)
        assert low > inside / draws - 20 * math.sqrt(inside) / draws
    assert betaincc(inside + 1, draws - inside, high) <= failure * (1 + 1e-6)


@pytest.mark.parametrize(
    ("inside", "draws", "failure"), [(1, 10**7, 0.045), (1, 10**9, 1e-12), (2, 10**9, 1e-6), (5, 10**9, 0.045)]
)
def test_upper_ends_of_rare_events_are_sound_to_the_last_digit(inside, draws, failure):
    """The library's inverse is off by up to 5e-8 of the failure here, on the wrong side."""
    high = Fraction(at_most_up(inside, draws, failure))
    with localcontext() as context:
        context.prec = 60
        p = Decimal(high.numerator) / Decimal(high.denominator)
        below = sum(math.comb(draws, k) * p**k * (1 - p) ** (draws - k) for k in range(inside + 1))
        assert Decimal(failure) * Decimal("0.999") < below <= Decimal(failure)


@pytest.mark.parametrize("failure", [0.3, 0.05, 1e-9])
@pytest.mark.parametrize("draws", [1, 20, 1000])
def test_an_interval_is_wider_than_the_inverse_and_hardly_so(draws, failure):
    for inside in {0, 1, draws // 2, draws - 1, draws}:
        low, high = clopper_pearson(inside, draws, failure)
        least = betaincinv(inside, draws - inside + 1, failure / 2) if inside else 0.0
        most = 1.0 - betaincinv(draws - inside, inside + 1, failure / 2) if inside < draws else 1.0
        assert 0 <= least * (1 - 1e-6) <= low <= least
        assert most <= high <= min(1.0, most + 1e-6)


def test_many_counts_have_the_intervals_of_each():
    counts = np.array([7, 0, 1, 500, 999, 1000, 7, -3, 2000])
    low, high = clopper_pearson_of_each(counts, 1000, 0.01)
    for place, count in enumerate(np.clip(counts, 0, 1000)):
        assert (low[place], high[place]) == clopper_pearson(int(count), 1000, 0.01)
    assert all(end.shape == (0,) for end in clopper_pearson_of_each([], 10, 0.01))
