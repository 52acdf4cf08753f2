"""Certified brackets of random sampled compositions, against enumeration in sixty digits: low ≤ truth ≤ high.

No noise is drawn: the losses are random, their laws are enumerated, and every one of them must be bracketed.
"""

import math
from decimal import Decimal
from fractions import Fraction
from importlib import import_module

import numpy as np
import pytest

from dither.mechanisms.discrete_gaussian import DiscreteGaussianLoss
from dither.privacy import (
    Adjacency,
    Composed,
    Direction,
    PrivacyLoss,
    PureLoss,
    as_replace,
    composition,
    poisson,
)
from dither.privacy.distributions.lattice import _convex
from dither.privacy.kinds import KINDS
from dither.privacy.sampling import PoissonSampled
from support.sizes import short_or_full

from .enumeration import Truth, approximate, binary, discrete_laplace, kary, pure

MOST_ATOMS = 300
DELTAS = ("0.3", "0.1", "0.03", "1e-2", "1e-3", "1e-5", "1e-8", "1e-12")
POINTS = np.linspace(-0.5, 2.5, 13)


def fraction(rng, low, high):
    return Fraction(int(rng.integers(round(low * 1000), round(high * 1000) + 1)), 1000)


def leaf(rng, adjacency) -> Truth:
    kind = rng.integers(5)
    if kind == 0:
        return pure(fraction(rng, 0.05, 1.5), adjacency)
    if kind == 1:
        return binary(1 + fraction(rng, 0.05, 3), adjacency)
    if kind == 2:
        return kary(1 + fraction(rng, 0.2, 6), int(rng.integers(3, 9)), adjacency)
    if kind == 3:
        return discrete_laplace(fraction(rng, 0.8, 6), int(rng.integers(1, 5)), adjacency)
    return approximate(fraction(rng, 0.05, 1), Fraction(int(rng.integers(1, 50)), 10**6), adjacency)


def composed(rng, adjacency, parts) -> Truth:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    times = int(rng.integers(1, 5))
    while times > 1 and total.atoms**times > MOST_ATOMS * math.factorial(times):
        times -= 1
    return total.repeated(times)


def changed(rng, adjacency, truth) -> Truth:
    """Sampled, or with a chance of giving everything away beside it."""
    if rng.integers(4) == 0:
        return truth.given_away(Fraction(int(rng.integers(1, 1000)), 10**7))
    if adjacency is Adjacency.ADD_REMOVE:
        return truth.poisson(fraction(rng, 0.02, 0.95))
    population = int(rng.integers(2, 60))
    return truth.without_replacement(int(rng.integers(1, population)), population)


def random_truth(seed: int) -> Truth:
    """A composition under sampling; half of them sampled, composed or given away once more."""
    rng = np.random.default_rng(seed)
    adjacency = Adjacency.ADD_REMOVE if rng.integers(3) else Adjacency.REPLACE
    inner = composed(rng, adjacency, [leaf(rng, adjacency) for _ in range(rng.integers(1, 4))])
    truth = changed(rng, adjacency, inner)
    for _ in range(rng.integers(3)):
        again = rng.integers(3)
        if again == 0 and truth.atoms <= 60:
            truth = composed(rng, adjacency, [truth, leaf(rng, adjacency)])
        elif again == 1 and truth.atoms <= 25:
            truth = truth.repeated(2)
        else:
            truth = changed(rng, adjacency, truth)
    return truth


def wrong_brackets(truth: Truth) -> list[str]:
    """What the bounds of ε and of both curves say that enumeration contradicts."""
    out = []
    for delta in DELTAS:
        exact = truth.epsilon(Fraction(delta))
        low, high = truth.loss.epsilon_bounds(delta)
        if not Decimal(low) <= exact:
            out.append(f"δ = {delta}: certified {low!r} above the truth {exact:.12f}")
        if not exact <= Decimal(high):
            out.append(f"δ = {delta}: {high!r} below the truth {exact:.12f}")
    for direction in truth.loss.directions:
        below, above = truth.loss.profile_down(POINTS, direction), truth.loss.profile(POINTS, direction)
        for epsilon, low, high in zip(POINTS, below, above, strict=True):
            exact = truth.curve(float(epsilon), direction)
            if not Decimal(float(low)) <= exact <= Decimal(float(high)):
                out.append(f"{direction.value}, ε = {epsilon}: {exact:.15f} isn't in [{low!r}, {high!r}]")
    return out


@pytest.mark.parametrize("seed", range(100, short_or_full(104, 124)))
def test_random_sampled_compositions_are_bracketed(seed):
    truth = random_truth(seed)
    assert wrong_brackets(truth) == []
    # and not by bounds that say nothing
    for delta in ("0.03", "1e-3", "1e-5"):
        low, high = truth.loss.epsilon_bounds(delta)
        exact = float(truth.epsilon(Fraction(delta)))
        assert low >= 0.99 * exact - 1e-3 or math.isinf(high)


def test_an_upper_bound_that_is_transformed_is_no_lower_bound(monkeypatch):
    """The mutant: sampling reads its base's polygon as if it were the curve."""
    monkeypatch.setattr(Composed, "profile_down", PrivacyLoss.profile_down)
    assert any(wrong_brackets(random_truth(seed)) for seed in range(100, 106))


def test_a_polygon_that_is_not_read_lower_is_no_lower_bound(monkeypatch):
    """The mutant: the split form without what it moves the losses by."""
    monkeypatch.setattr(composition, "_moved", lambda *_: 0.0)
    composition._curves_down.cache_clear()
    try:
        assert any(wrong_brackets(random_truth(seed)) for seed in range(100, 112))
    finally:
        composition._curves_down.cache_clear()


def test_losses_made_of_others_state_their_curve_from_below():
    """The default is for closed forms: a loss that holds another and inherits it transforms an upper bound."""
    for home in KINDS.values():
        import_module(home.partition(":")[0])
    holders = {
        kind: loss
        for kind, loss in PrivacyLoss._kinds.items()
        if loss.__module__.startswith("dither.") and {"base", "parts"} & set(loss.__dataclass_fields__)
    }
    assert {"composed", "poisson", "without_replacement", "given_away", "grouped", "replaced"} <= set(holders)
    assert [kind for kind, loss in holders.items() if loss.profile_down is PrivacyLoss.profile_down] == []


@pytest.mark.parametrize("size", [2, 3])
def test_groups_of_compositions_bracket_their_bound(size):
    """As stated: (kε, δ·(e^{kε}−1)/(e^ε−1)), of the exact curve of the composition."""
    one = (pure(Fraction(1, 3), Adjacency.ADD_REMOVE).repeated(3) + binary(Fraction(2), Adjacency.ADD_REMOVE)).poisson(
        Fraction(1, 4)
    )
    for loss, way in ((one.loss.grouped(size), size), (as_replace(one.loss), 2)):
        for epsilon in (0.1, 0.4, 0.8):
            growth = math.expm1(epsilon) / math.expm1(epsilon / way)
            stated = max(float(one.curve(epsilon / way, d)) for d in Direction) * growth
            found = max(float(loss.profile_down(np.array([epsilon]), d)[0]) for d in Direction)
            assert 0.99 * stated <= found <= stated
        for delta in ("0.03", "1e-4"):
            low, high = loss.epsilon_bounds(delta)
            assert low <= high
            assert low < high or high == 0


def test_the_pure_epsilon_is_bracketed_too():
    """Rounded down below; and parts that are worst in different directions have no worst direction together."""
    for truth in (random_truth(seed) for seed in (102, 103, 105, 106)):
        low, high = truth.loss.epsilon_bounds(0)
        top = max(truth.of(d).epsilon(Decimal(0)) for d in Direction)
        assert Decimal(low) <= top <= Decimal(high)
    third = PureLoss("0.3")
    for loss, exact in ((third, "0.3"), (7 * third, "2.1"), (poisson(third, 1 - Fraction(1, 10**12)), None)):
        low, high = loss.epsilon_bounds(0)
        assert low <= high
        if exact:
            assert Fraction(low) <= Fraction(exact) <= Fraction(high)

    first = pure(Fraction(2), Adjacency.ADD_REMOVE).poisson(Fraction(1, 2))
    second = pure(Fraction(3, 2), Adjacency.ADD_REMOVE).poisson(Fraction(1, 3))
    both = first + Truth(Turned(second.loss), second.add, second.remove)
    exact = max(both.of(d).epsilon(Decimal(0)) for d in Direction)
    low, high = both.loss.epsilon_bounds(0)
    assert Decimal(low) <= exact < Decimal(high) * Decimal("0.99")
    assert wrong_brackets(both) == []


class Turned(PoissonSampled, kind="turned round"):
    """A sampled loss whose directions are exchanged, as a mechanism that leaves out who takes part would have it."""

    __slots__ = ()

    def __init__(self, sampled):
        PoissonSampled.__init__(self, sampled.base, sampled.rate)

    def profile(self, epsilon, direction):
        return PoissonSampled.profile(self, epsilon, direction.reversed)

    def profile_down(self, epsilon, direction):
        return PoissonSampled.profile_down(self, epsilon, direction.reversed)

    def cells(self, edges, direction):
        return None


def test_large_scales_are_bounded_by_the_continuous_curve_both_ways():
    """Just above the scales that are summed, against the sum itself."""
    shift = 30_000
    sums, near = (DiscreteGaussianLoss(Fraction(20000 + extra) ** 2, shift) for extra in (0, Fraction(1, 10**6)))
    points = np.linspace(0.0, 6.0, 25)
    exact = sums.profile(points, Direction.REMOVE)
    # a scale larger by 5e-11 changes the curve by less than this
    assert np.all(near.profile_down(points, Direction.REMOVE) <= exact * (1 + 1e-8))
    assert np.all(near.profile_down(points, Direction.REMOVE) >= exact * (1 - 1e-3))
    assert np.all(near.profile(points, Direction.REMOVE) >= exact * (1 - 1e-8))


@pytest.mark.parametrize("seed", range(20))
def test_a_hull_is_found_where_the_next_float_is_too_far(seed):
    """Near corners are so steep that no float makes the halves meet exactly: the end goes below, and isn't given up."""
    top = np.random.default_rng(seed).uniform(0.1, 0.6)
    points = 1.2e-4 * np.arange(400)
    heights = top - (1 - top) / 2 * np.expm1(points)
    heights[0] *= 1 + 1e-8
    found = _convex(points, heights, points, heights)
    assert found is not None
    (_, _, stays), (_, _, leaves), lowered = found
    assert top - 1e-12 < lowered <= top
    assert lowered + stays + leaves <= 1 + 2.0**-50
