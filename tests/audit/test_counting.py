"""What counts say: the failure that several ends and several looks may have together."""

import itertools
import math

import pytest

from dither.audit.counting import Enclosure, epsilon_down, event_intervals, looks
from dither.numeric.binomial import at_least_down, at_most_up


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
    p = Enclosure(0.1, 0.3)
    assert p.complement.low <= 0.7
    assert p.complement.high >= 0.9
    assert Enclosure(0.0, 1.0).complement == Enclosure(0.0, 1.0)
