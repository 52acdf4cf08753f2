"""Selecting keys that come from the data: which mechanism shows the smallest groups for its share of the budget.

A key is shown by the number of units that hold it; a unit counts once in each of at most G keys. Under add_remove one
unit moves at most G of these counts by 1. Under replace a key that both the old and the new unit hold keeps its count,
so at most 2G counts move, each by 1.

*Independent decisions* (PartitionSelection). Each key's decision is (ε', δ')-private towards one unit more or less, in
both directions, and keys are decided independently; over n moved keys that is δ-approximately ρ-zCDP with ρ = n·ρ(ε'),
ρ(ε') = ε'·tanh(ε'/2), and δ = n·δ' (Bun & Steinke 2016, Lemmas 8.2 and 8.8), n = G or 2G.

*Noisy threshold* (GaussianThreshold). Under add_remove as in partition_selection.md. Under replace let x and x' be the
neighbours, E the event that x shows none of the keys that only the unit holds in x, E' the same for x'. Each has at
most G such keys, so E and E' have probability at least 1 − δ, δ = 1 − (1 − δ₁)^G. Given E and E', what is shown is a
function of the noisy counts of keys that other units hold too, and those move in at most 2G places by 1: ρ = 2G/2σ².
That is δ-approximate ρ-zCDP (Bun & Steinke 2016, Definition 8.1). The curve δ + (1 − δ)·H(ε) bounds the pair as well:
P(S) − e^ε·Q(S) ≤ δ_P + (1 − δ_P)·P_E(S) − e^ε·(1 − δ_Q)·Q_E'(S), which grows with δ_P and δ_Q, both at most δ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np
from scipy.special import gammaln, ndtri, xlog1py, xlogy

from dither.errors import Refused
from dither.mechanisms import GaussianThreshold, PartitionSelection
from dither.mechanisms.discrete_gaussian import discrete_gaussian_tail_up
from dither.mechanisms.partition_selection import GivenAwayLoss
from dither.numeric import fraction_down, fraction_up, largest_true
from dither.privacy import Adjacency, ApproximateLoss, PrivacyLoss, Sensitivity, ZcdpLoss, compose
from dither.privacy.renyi import pure_zcdp
from dither.query.measure.measures import MARGIN, expect_scale, sqrt_up

# Ladders of probabilities longer than this take too long to build for what they gain.
LONGEST_LADDER = 2**14
SHOWN = Fraction(19, 20)
# Beyond this standard deviation a binomial law is read as a normal one, at so many points.
WIDE, POINTS = 500, 4096
# Fewer than one binomial number in 10^12 is so many standard deviations off, or it has so few values that all count.
REACH = 9

Selecting: TypeAlias = PartitionSelection | GaussianThreshold


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySelection:
    """How keys are selected, what that costs, and how many units a group needs to be shown 19 times in 20.

    ``enough`` counts the units that keep the group, after each chose among its groups: see ``enough_of``.
    """

    mechanism: Selecting
    loss: PrivacyLoss
    enough: int

    def enough_of(self, kept: int, held: int) -> int:
        """How many units must be in a group, if each is in ``held`` groups and keeps ``kept``, drawn at random.

        Each of them keeps the group with probability kept/held, independently of the others.
        """
        if held <= kept:
            return self.enough
        # no fewer, since at best all of them keep it
        return _smallest(lambda n: shown_chance(self.mechanism, n, kept / held) >= SHOWN, start=self.enough)

    @property
    def name(self) -> str:
        """The mechanism in words."""
        if isinstance(self.mechanism, PartitionSelection):
            return "partition selection"
        return f"Gaussian threshold, σ = {float(self.mechanism.scale):.4g}, from {self.mechanism.threshold}"


def shown_chance(mechanism: Selecting, units: int, share: float) -> float:
    """The chance that a group is shown that so many units are in, each of which keeps it with probability ``share``.

    The mean of the mechanism's chance over a binomial number of units; of a normal one where that is wide.
    """
    mean, spread = units * share, math.sqrt(units * share * (1 - share))
    if spread <= WIDE:
        first, last = max(0, math.floor(mean - REACH * spread)), min(units, math.ceil(mean + REACH * spread))
        kept = np.arange(first, last + 1)
        ways = gammaln(units + 1) - gammaln(kept + 1) - gammaln(units - kept + 1)
        law = np.exp(ways + xlogy(kept, share) + xlog1py(units - kept, -share))
        return float(law @ mechanism.keep_chances(kept))
    middles = mean + spread * ndtri((np.arange(POINTS) + 0.5) / POINTS)
    return float(mechanism.keep_chances(np.rint(np.clip(middles, 0, units)).astype(np.int64)).mean())


def select_keys(rho: Fraction, delta: Fraction, groups: int, adjacency: Adjacency) -> KeySelection:
    """The better of the two mechanisms for (ρ, δ), where a unit holds at most ``groups`` keys."""
    threshold = _threshold(rho, delta, groups, adjacency)
    ladder = _ladder(rho, delta, groups, adjacency, threshold.enough)
    return ladder if ladder is not None and ladder.enough < threshold.enough else threshold


def select_keys_without_gaussian(epsilon: Fraction, delta: Fraction, groups: int, adjacency: Adjacency) -> KeySelection:
    """Independent decisions for (ε, δ): what is left of them when δ is given away is ε-private."""
    moved = groups if adjacency is Adjacency.ADD_REMOVE else 2 * groups
    exact, chance = epsilon / moved, Fraction(fraction_down(delta / moved * MARGIN))
    if chance <= 0 or _ladder_length(float(exact), float(chance)) > LONGEST_LADDER:
        raise Refused(
            "the ε of this question is too small to discover keys with noise that has an ε",
            code="epsilon_too_small",
            hint="Ask with a larger epsilon, with noise = 'gaussian', or group by keys that the policy declares.",
        )
    mechanism = PartitionSelection(moved * exact, moved * chance, moved)
    loss = compose([(ApproximateLoss(exact, chance, adjacency), moved)])
    return KeySelection(mechanism=mechanism, loss=loss, enough=mechanism.threshold(SHOWN))


def _ladder(rho: Fraction, delta: Fraction, groups: int, adjacency: Adjacency, rival: int) -> KeySelection | None:
    """Independent decisions; None where they would surely need more units than the rival, or too long a ladder."""
    moved = groups if adjacency is Adjacency.ADD_REMOVE else 2 * groups
    each = fraction_down(rho / moved)
    epsilon = largest_true(lambda e: pure_zcdp(e) <= each, 0.0, max(1.0, 2 * each + 2), relative=1e-12)
    chance = Fraction(fraction_down(delta / moved * MARGIN))
    if epsilon <= 0 or chance <= 0:
        return None
    expected = _ladder_length(epsilon, float(chance))
    if expected > LONGEST_LADDER or expected / 2 > 1.1 * rival + 2:
        return None
    exact = Fraction(epsilon)
    mechanism = PartitionSelection(moved * exact, moved * chance, moved)
    loss = compose([(ApproximateLoss(exact, chance, adjacency), moved)])
    return KeySelection(mechanism=mechanism, loss=loss, enough=mechanism.threshold(SHOWN))


def _ladder_length(epsilon: float, delta: float) -> float:
    """About how many units make a key certain: twice what it takes from δ to one half."""
    return 2 * math.log1p(math.tanh(min(epsilon, 1400.0) / 2) / delta) / epsilon + 2


def _threshold(rho: Fraction, delta: Fraction, groups: int, adjacency: Adjacency) -> KeySelection:
    """The noise that ρ allows, and the smallest threshold that keeps the keys of a single unit hidden but for δ."""
    moved = groups if adjacency is Adjacency.ADD_REMOVE else 2 * groups
    scale = expect_scale(sqrt_up(moved / (2 * rho)))
    allowed = delta * MARGIN / groups  # the union bound; 1 − (1 − p)^G is no larger

    def hidden(threshold: int) -> bool:
        return Fraction(discrete_gaussian_tail_up(scale**2, threshold - 1)) <= allowed

    threshold = _smallest(hidden)
    mechanism = GaussianThreshold(scale, threshold)
    lone = mechanism.loss(Sensitivity.contribution(groups=groups, per_group=1))
    loss: PrivacyLoss = lone
    if adjacency is Adjacency.REPLACE:
        loss = GivenAwayLoss(ZcdpLoss(moved / (2 * scale**2), adjacency), lone.chance, adjacency)
    enough = _smallest(lambda n: mechanism.keep_probability(n) >= fraction_up(SHOWN))
    return KeySelection(mechanism=mechanism, loss=loss, enough=enough)


def _smallest(holds: Callable[[int], bool], start: int = 1) -> int:
    """The smallest whole number from ``start`` at which a test that turns true once holds."""
    high = start
    while not holds(high):
        high *= 2
    low = high // 2 + 1 if high > start else start
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return high
