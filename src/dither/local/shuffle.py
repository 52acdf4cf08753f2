"""The shuffle model: reports that arrive without a name and in random order hide each other.

Whoever sees only the shuffled reports (or what was counted from them) learns less about each person than whoever
collects them one by one: a local ε of 1 becomes a central one of a few hundredths among a hundred thousand people. The
bound is numerical and, for what it assumes, exact; proof in ``shuffle.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Self, TypeAlias

import numpy as np
from scipy.optimize import brentq

from dither.errors import InvalidParameter
from dither.local.frequencies import FrequencyOracle
from dither.local.participation import Participation
from dither.local.protocol import Protocol
from dither.local.shuffle_curve import LARGEST_ODDS, ShuffledCurve, curve_of
from dither.local.shuffle_views import Chords
from dither.mechanisms.kary_response import KaryResponseLoss
from dither.mechanisms.randomized_response import RandomizedResponseLoss, check_odds
from dither.numeric import (
    Number,
    as_fraction,
    down,
    exp_up,
    fraction_down,
    fraction_up,
    largest_true,
    log_up,
    positive,
    positive_int,
    up,
)
from dither.privacy import Adjacency, Array, Direction, Json, PrivacyLoss, PureLoss, mirrored

# Odds, weight and the share of reports that everybody sends alike: see ShuffledLoss.
Randomiser: TypeAlias = tuple[Fraction, Fraction, Fraction]

# So many points of a curve are worked out one by one; more are read off chords.
FEW_POINTS = 64
MOST_NODES, FEWEST_NODES = 400, 64
# The work that the chords of one loss may take: nodes times numbers of clones.
CHORD_WORK = 4_000_000
# By how much the curve may overstate δ, measured against exact sums: a share of it, besides what is cut off.
OVERSTATED = 1e-7
# Beyond this a local report keeps nothing secret, and calibration stops.
LARGEST_LOCAL = 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffledLoss(PrivacyLoss, kind="shuffled"):
    """What one report costs, seen among those of ``users`` people, its own included, in random order.

    ``odds``, ``weight`` and ``common`` describe the local randomiser: the curve of one report by itself is no more than
    weight·(odds − e^ε)₊, and with probability ``common`` a report, whatever it is about, is drawn from one law that
    doesn't tell two given values apart.

    Guarantee: the pair of ``shuffle.md`` dominates the shuffled reports of any two neighbours, whatever the others
        report about. With weight = 1/(odds + 1) it is that of Feldman, McMillan & Talwar 2023.
    Assumes: nobody sees which report is whose, nor when it came; at least ``users`` people send a report drawn as the
        protocol says. Count out those who may tell theirs to whoever looks.

    Example:
        >>> loss = ShuffledLoss(odds=Fraction(3), weight=Fraction(1, 4), users=10_000)  # two coins each
        >>> f"{loss.epsilon(delta=1e-6):.4f} instead of {loss.pure():.4f}"
        '0.0489 instead of 1.0986'
    """

    odds: Fraction
    weight: Fraction
    common: Fraction = Fraction(0)
    users: int
    adjacency: Adjacency = Adjacency.REPLACE

    def __post_init__(self) -> None:
        object.__setattr__(self, "odds", check_odds(self.odds))
        object.__setattr__(self, "weight", as_fraction(self.weight, "weight"))
        object.__setattr__(self, "common", as_fraction(self.common, "common"))
        object.__setattr__(self, "users", positive_int(self.users, "users"))
        if not 0 < self.weight * (self.odds + 1) <= 1:
            raise InvalidParameter(
                f"weight must lie above 0 and be at most 1/(odds + 1): both neighbours' probabilities sum to 1; got "
                f"{float(self.weight):g}"
            )
        if not 0 <= self.common <= 1 - self.weight * (self.odds + 1):
            raise InvalidParameter(
                f"common must lie between 0 and 1 − weight·(odds + 1), what else a report can be; got {self.common}"
            )
        if self.odds > LARGEST_ODDS:
            raise InvalidParameter(f"odds must be at most {float(LARGEST_ODDS):g}; got {float(self.odds):g}")

    @property
    def symmetric(self) -> bool:
        """Exchanging the two values swaps the pair."""
        return True

    @property
    def allowance(self) -> float:
        """What is added for numbers of clones that aren't summed over."""
        return self._curve.outside if self.odds > 1 else 0.0

    def pure(self) -> float:
        """That of the report by itself: all others may happen to say the opposite."""
        return log_up(self.odds)

    @property
    def _curve(self) -> ShuffledCurve:
        return curve_of(self.odds, self.weight, self.common, self.users)

    def profile(self, epsilon: Array, direction: Direction) -> Array:  # noqa: ARG002
        """The sum over the number of clones; many points at once are read off chords, which lie above."""
        distance = np.abs(np.asarray(epsilon, dtype=np.float64))
        if self.odds == 1:
            return mirrored(np.zeros(distance.shape), epsilon)
        if distance.size > FEW_POINTS:
            return mirrored(_chords(self).at(distance), epsilon)
        curve = self._curve
        heights = np.array([curve.delta_up(float(e)) for e in distance.ravel()]).reshape(distance.shape)
        return mirrored(heights, epsilon)

    def renyi(self, order: float) -> float:
        """The divergence of the chords' pair."""
        return _chords(self).renyi(order) if self.odds > 1 else 0.0

    def kl(self) -> float:
        """The expected loss of the chords' pair."""
        return _chords(self).kl() if self.odds > 1 else 0.0

    def zcdp(self) -> float:
        """The largest D_α/α."""
        return _zcdp(self) if self.odds > 1 else 0.0

    def _epsilon_up(self, delta: float) -> float:
        pure, curve = self.pure(), self._curve
        if pure == 0 or curve.delta_up(0.0) <= delta:
            return 0.0
        low, high = 0.0, pure
        while curve.delta_up(high / 2) <= delta:
            high /= 2
        low = high / 2

        def excess(epsilon: float) -> float:
            return math.log(max(curve.delta_up(epsilon), 1e-300) / delta)

        found = float(brentq(excess, low, high, xtol=1e-300, rtol=1e-13)) if excess(high) < 0 else high
        # the root may lie on either side: step up until the curve is surely low enough
        step = 1e-13
        while found < pure and curve.delta_up(found) > delta:
            found, step = min(pure, found * (1 + step)), 2 * step
        return min(pure, up(found, 2.0**-50))

    def _epsilon_down(self, delta: float) -> float:
        high = self._epsilon_up(min(1.0, delta * (1 + OVERSTATED) + self.allowance))
        return max(0.0, down(high, 2.0**-36))

    def parameters(self) -> Json:
        """The permanent fields."""
        exact = {"odds": str(self.odds), "weight": str(self.weight), "common": str(self.common)}
        return {**exact, "users": self.users}

    @classmethod
    def from_parameters(cls, parameters: Json) -> Self:
        """The inverse."""
        odds, weight, common = (Fraction(parameters[name]) for name in ("odds", "weight", "common"))
        adjacency = Adjacency(parameters["adjacency"])
        return cls(odds=odds, weight=weight, common=common, users=parameters["users"], adjacency=adjacency)


@lru_cache(maxsize=64)
def _chords(loss: ShuffledLoss) -> Chords:
    curve = curve_of(loss.odds, loss.weight, loss.common, loss.users)
    nodes = max(FEWEST_NODES, min(MOST_NODES, CHORD_WORK // curve.work))
    return Chords.of(curve.delta_up, curve.log_up, loss.pure(), nodes)


@lru_cache(maxsize=64)
def _zcdp(loss: ShuffledLoss) -> float:
    return _chords(loss).zcdp()


def shuffled(local: Protocol | PrivacyLoss | Number, users: int) -> PrivacyLoss:
    """The loss of one report of a local protocol (or loss, or ε) towards those who see only shuffled reports.

    ``users`` is how many people send one report each. Several rounds, each shuffled by itself, cost
    ``rounds * shuffled(…)``. Only pure losses gain.

    Example:
        >>> from dither.local.kary import Kary
        >>> for local in (1, Kary.for_epsilon(2, epsilon=1), Kary.for_epsilon(100, epsilon=1)):
        ...     print(f"{shuffled(local, 10_000).epsilon(delta=1e-6):.4f}")
        0.0432
        0.0432
        0.0072
    """
    if isinstance(local, Protocol):
        oracle = local.oracle if isinstance(local, Participation) else local
        known = _of_oracle(oracle) if isinstance(oracle, FrequencyOracle) else None
        return _hidden(local.loss(), users, known)
    if isinstance(local, PrivacyLoss):
        return _hidden(local, users)
    return _hidden(PureLoss(positive(local, "epsilon"), Adjacency.REPLACE), users)


def _hidden(local: PrivacyLoss, users: int, known: Randomiser | None = None) -> PrivacyLoss:
    count = positive_int(users, "users")
    odds, weight, common = known or _of_loss(local)
    # where there is nothing to lose, or no crowd can hide it, the report itself is the bound
    if odds == 1 or odds > LARGEST_ODDS:
        return local
    return ShuffledLoss(odds=odds, weight=weight, common=common, users=count, adjacency=local.adjacency)


def _of_oracle(oracle: FrequencyOracle) -> Randomiser:
    """Odds, weight and the larger of two laws that don't tell two values apart.

    Every report has its least probability, whoever sends it, or ``odds`` times that if it supports the sender's value.
    So reports that support neither of the two values come from everybody at least as often as from those who have them.
    """
    neither = 1 - oracle.hit - oracle.weight
    rest = 1 - (oracle.odds + 1) * oracle.weight
    return oracle.odds, oracle.weight, max(neither, rest / oracle.odds)


def _of_loss(local: PrivacyLoss) -> Randomiser:
    """The same where nothing is known but the curve of one report: everybody's is at least 1/odds of anybody's."""
    if isinstance(local, RandomizedResponseLoss):
        odds, weight = local.odds, 1 / (local.odds + 1)
    elif isinstance(local, KaryResponseLoss):
        odds, weight = local.odds, local.weight
    else:
        odds, weight = _ends(local)
    return odds, weight, (1 - (odds + 1) * weight) / odds


def _ends(local: PrivacyLoss) -> tuple[Fraction, Fraction]:
    """Odds and weight of a curve that meets the loss's own at its two ends: δ(0) and the pure ε."""
    pure = local.pure()
    if math.isinf(pure):
        raise InvalidParameter(
            "shuffling is known to amplify pure local losses, and this one has no finite ε at δ = 0: bound each "
            "report's ε first"
        )
    large = exp_up(pure)
    if math.isinf(large):
        return LARGEST_ODDS + 1, Fraction(0)
    odds = Fraction(large)
    if odds == 1:
        return odds, Fraction(1, 2)
    return odds, min(1 / (odds + 1), Fraction(local.delta(0)) / (odds - 1))


def local_epsilon_for(
    epsilon: Number,
    delta: Number,
    users: int,
    *,
    make: Callable[[float], Protocol | PrivacyLoss | Number] | None = None,
    tolerance: float = 1e-6,
) -> float:
    """The largest local ε whose reports, shuffled among ``users``, are (``epsilon``, ``delta``)-private.

    ``make`` turns a local ε into the protocol, such as ``lambda e: Kary.for_epsilon(100, e)``; by default nothing is
    known but ε. What is returned was seen to fit, and is within ``tolerance`` of the largest.

    Example:
        >>> local = local_epsilon_for(1, delta=1e-6, users=10_000)
        >>> f"{local:.2f}", shuffled(local, 10_000).epsilon(delta=1e-6) <= 1
        ('5.47', True)
    """
    exact, target = positive(epsilon, "epsilon"), positive(delta, "delta")
    if target >= 1:
        raise InvalidParameter(f"delta must be above 0 and below 1; got {delta!r}")
    count, build = positive_int(users, "users"), make or (lambda e: e)
    room = fraction_down(target)

    def fits(local: float) -> bool:
        return shuffled(build(local), count).delta(exact) <= room

    low = fraction_down(exact)
    # a report by itself is as private as it is among others
    while not fits(low):
        low *= 1 - 1e-9
        if low < fraction_up(exact) * (1 - 1e-6):
            raise InvalidParameter("make must return a protocol whose ε is no more than what it is given")
    high = low
    while fits(high) and high < LARGEST_LOCAL:
        low, high = high, 2 * high
    if high >= LARGEST_LOCAL and fits(LARGEST_LOCAL):
        return LARGEST_LOCAL
    return largest_true(fits, low, min(high, LARGEST_LOCAL), relative=tolerance)
