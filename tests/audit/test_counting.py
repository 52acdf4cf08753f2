"""Exact intervals: compared with binomial sums in fractions, and the failure that several looks may have together."""

import itertools
import math
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from scipy.special import betainc, betaincc

from dither.audit.counting import (
    Interval,
    at_least_down,
    at_most_up,
    epsilon_down,
    event_intervals,
    looks,
)


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


@pytest.mark.parametrize(("p", "q"), [(0.5, 0.2), (0.9, 0.05), (0.3, 0.3)])
def test_all_four_ends_hold_together(p, q):
    """Enumerated: the chance that any end is wrong is at most the failure that was allowed."""
    n, m, failure = 14, 11, 0.2
    wrong = 0.0
    for a, b in itertools.product(range(n + 1), range(m + 1)):
        chance = math.comb(n, a) * p**a * (1 - p) ** (n - a) * math.comb(m, b) * q**b * (1 - q) ** (m - b)
        first, second = event_intervals(a, n, b, m, failure)
        if not (first.low <= p <= first.high and second.low <= q <= second.high):
            wrong += chance
    assert wrong <= failure
    # a mutant that gives every end the whole failure is wrong more often than allowed
    loose = 0.0
    for a, b in itertools.product(range(n + 1), range(m + 1)):
        chance = math.comb(n, a) * p**a * (1 - p) ** (n - a) * math.comb(m, b) * q**b * (1 - q) ** (m - b)
        ends = at_least_down(a, n, failure), at_most_up(a, n, failure), at_least_down(b, m, failure)
        if not (ends[0] <= p <= ends[1] and ends[2] <= q <= at_most_up(b, m, failure)):
            loose += chance
    assert loose > wrong
    assert (p, q) != (0.5, 0.2) or loose > failure


def test_looks_share_the_failure():
    for planned in (1, 2, 3, 7, 128, 1000):
        first = list(itertools.islice(looks(planned), 60))
        assert sum(look.share for look in first) <= 1
        assert [look.blocks for look in first] == sorted({look.blocks for look in first})
        assert [look.share for look in first if look.blocks == planned] == [0.5]
        assert first[0].blocks >= 1


def test_the_epsilon_of_two_ends():
    assert epsilon_down(0.5, 0.1, 0.0) == pytest.approx(math.log(5), rel=1e-12)
    assert epsilon_down(0.5, 0.1, 0.0) < math.log(5)
    assert epsilon_down(0.5, 0.1, 0.2) == pytest.approx(math.log(3), rel=1e-12)
    assert epsilon_down(0.1, 0.5, 0.0) == 0
    assert epsilon_down(0.1, 0.0, 0.2) == 0
    assert epsilon_down(0.3, 0.0, 0.0) == 0  # nothing counted proves no infinite loss


def test_complements_stay_sound():
    p = Interval(0.1, 0.3)
    assert p.complement.low <= 0.7
    assert p.complement.high >= 0.9
    assert Interval(0.0, 1.0).complement == Interval(0.0, 1.0)
