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
from typing import Self

import numpy as np
from scipy.optimize import brentq

from dither.errors import InvalidParameter
from dither.local.core.protocol import Protocol
from dither.local.frequency.oracle import FrequencyOracle
from dither.local.frequency.participation import Participation
from dither.local.shuffling._views import LOWEST, Chords
from dither.local.shuffling.curve import LARGEST_ODDS, Randomiser, ShuffledCurve, curve_of
from dither.mechanisms.kary_response import KaryResponseLoss
from dither.mechanisms.randomized_response import RandomizedResponseLoss, check_odds
from dither.numeric import Number, exp_up, fraction_down, fraction_up, largest_true, log_up, positive, positive_int, up
from dither.numeric.rounding import SLACK
from dither.privacy import Adjacency, Array, Direction, Json, PrivacyLoss, PureLoss, at_least_nothing, mirrored

# As they stand in the permanent form.
FIELDS = ("odds", "weight", "clones", "silent", "common")
# Of several valid bounds the one is taken that is lowest here.
TYPICAL_DELTA, TYPICAL_USERS = Fraction(1, 10**6), 3_000
# Up to this number of points of a curve are computed one by one; more are read off chords.
FEW_POINTS = 64
MOST_NODES, FEWEST_NODES = 400, 64
# The work that the chords of one loss may take: nodes times numbers of clones.
CHORD_WORK = 4_000_000
# Beyond this a local report keeps nothing secret, and calibration stops.
LARGEST_LOCAL = 50.0


@dataclass(frozen=True, slots=True)
class ShuffledLoss(PrivacyLoss, kind="shuffled"):
    """What one report costs, seen among those of ``users`` people, its own included, in random order.

    Guarantee: the pair of ``shuffle.md`` dominates the shuffled reports of any two neighbours, whatever the others
        report about. For binary answers it is that of Feldman, McMillan & Talwar 2023, for any local ε that of 2021.
    Assumes: nobody sees which report is whose, nor when it came; at least ``users`` people send a report drawn as the
        protocol says. Leave out people who may reveal their own report.

    Example:
        >>> two_coins = Randomiser(odds=Fraction(3), weight=Fraction(1, 4), clones=Fraction(1, 4))
        >>> loss = ShuffledLoss(two_coins, users=10_000)
        >>> f"{loss.epsilon(delta=1e-6):.4f} instead of {loss.pure():.4f}"
        '0.0489 instead of 1.0986'
    """

    local: Randomiser
    users: int
    adjacency: Adjacency = Adjacency.REPLACE

    symmetric = True  # exchanging the two values swaps the pair

    def __post_init__(self) -> None:
        local = self.local
        object.__setattr__(self, "users", positive_int(self.users, "users"))
        check_odds(local.odds)
        if local.odds > LARGEST_ODDS:
            raise InvalidParameter(f"odds must be at most {float(LARGEST_ODDS):g}; got {float(local.odds):g}")
        if not 0 < local.weight * (local.odds + 1) <= 1 - local.silent or local.silent < 0:
            raise InvalidParameter(
                "weight·(odds + 1) + silent, all that the user's report can be, must lie between 0 and 1"
            )
        if not (0 < local.clones <= local.weight and local.common >= 0 and 2 * local.clones + local.common <= 1):
            raise InvalidParameter("clones must lie above 0 and be at most weight, and 2·clones + common at most 1")
        if local.silent * local.clones > local.odds * local.common * local.weight:
            raise InvalidParameter("silent·clones must be at most odds·common·weight: the rest isn't hidden by anybody")

    def pure(self) -> float:
        """That of the report by itself: all others may happen to say the opposite."""
        return log_up(self.local.odds)

    @property
    def _curve(self) -> ShuffledCurve:
        return curve_of(self.local, self.users)

    def profile(self, epsilon: Array, direction: Direction) -> Array:  # noqa: ARG002
        """The sum over the number of clones; many points at once are read off chords, which lie above."""
        distance = np.abs(np.asarray(epsilon, dtype=np.float64))
        if self.local.odds == 1:
            return mirrored(np.zeros(distance.shape), epsilon)
        if distance.size > FEW_POINTS:
            return mirrored(_chords(self).at(distance), epsilon)
        curve = self._curve
        heights = np.array([curve.delta_up(float(e)) for e in distance.ravel()]).reshape(distance.shape)
        return mirrored(heights, epsilon)

    def profile_down(self, epsilon: Array, direction: Direction) -> Array:  # noqa: ARG002
        """Sums that leave out what the curve from above adds; many points at once lie above lines through some."""
        distance = np.abs(np.asarray(epsilon, dtype=np.float64))
        if self.local.odds == 1:
            return at_least_nothing(np.zeros(distance.shape), epsilon)
        if distance.size > FEW_POINTS:
            heights = _chords(self).under(_below_chords(self), distance)
        else:
            curve = self._curve
            heights = np.array([curve.delta_down(float(e)) for e in distance.ravel()]).reshape(distance.shape)
        return at_least_nothing(mirrored(heights, epsilon) * (1 - 4 * SLACK), epsilon)

    def renyi(self, order: float) -> float:
        """The divergence of the chords' pair."""
        return _chords(self).renyi(order) if self.local.odds > 1 else 0.0

    def kl(self) -> float:
        """The expected loss of the chords' pair."""
        return _chords(self).kl() if self.local.odds > 1 else 0.0

    def zcdp(self) -> float:
        """The largest D_α/α."""
        return _zcdp(self) if self.local.odds > 1 else 0.0

    def _epsilon_up(self, delta: float) -> float:
        pure, curve = self.pure(), self._curve
        if pure == 0 or curve.delta_up(0.0) <= delta:
            return 0.0
        # halve from the pure ε down, which costs nothing where the curve is out of sight
        high = pure
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
        curve, above = self._curve, math.nextafter(delta, 1.0)
        if self.local.odds == 1 or curve.delta_down(0.0) < above:
            return 0.0
        high = self._epsilon_up(delta)
        return largest_true(lambda epsilon: curve.delta_down(epsilon) >= above, 0.0, high, relative=1e-9)

    def parameters(self) -> Json:
        """The permanent fields."""
        return {**{name: str(getattr(self.local, name)) for name in FIELDS}, "users": self.users}

    @classmethod
    def from_parameters(cls, parameters: Json) -> Self:
        """The inverse."""
        local = Randomiser(**{name: Fraction(parameters[name]) for name in FIELDS})
        return cls(local, parameters["users"], Adjacency(parameters["adjacency"]))


@lru_cache(maxsize=64)
def _chords(loss: ShuffledLoss) -> Chords:
    curve = curve_of(loss.local, loss.users)
    nodes = max(FEWEST_NODES, min(MOST_NODES, CHORD_WORK // curve.work))
    return Chords.of(curve.delta_up, curve.log_up, loss.pure(), nodes)


@lru_cache(maxsize=64)
def _below_chords(loss: ShuffledLoss) -> Array:
    """The curve from below at the chords' ends, down to where it is out of sight."""
    curve, chords = curve_of(loss.local, loss.users), _chords(loss)
    seen = chords.epsilons[chords.logs > math.log(LOWEST)]
    return np.array([curve.delta_down(float(e)) for e in seen])


@lru_cache(maxsize=64)
def _zcdp(loss: ShuffledLoss) -> float:
    return _chords(loss).zcdp()


def shuffled(local: Protocol | PrivacyLoss | Number, users: int) -> PrivacyLoss:
    """The loss of one report of a local protocol (or loss, or ε) towards those who see only shuffled reports.

    The more is known the better: of a protocol its own law is used, of a loss its curve, of a number nothing but that.
    Several rounds, each shuffled by itself, cost ``rounds * shuffled(…)``. Only pure losses gain.

    Args:
        local: A protocol, a loss or a pure ε: what one report costs without shuffling.
        users: How many people send one report each.

    Example:
        >>> from dither.local.frequency.kary import Kary
        >>> for local in (1, Kary.for_epsilon(2, epsilon=1), Kary.for_epsilon(100, epsilon=1)):
        ...     print(f"{shuffled(local, 10_000).epsilon(delta=1e-6):.4f}")
        0.0530
        0.0432
        0.0072
    """
    if isinstance(local, Protocol):
        oracle = local.oracle if isinstance(local, Participation) else local
        if isinstance(oracle, FrequencyOracle):
            return _hidden(local.loss(), _best(_of_oracle(oracle), positive_int(users, "users")), users)
        return shuffled(local.loss(), users)
    loss = local if isinstance(local, PrivacyLoss) else PureLoss(positive(local, "epsilon"), Adjacency.REPLACE)
    return _hidden(loss, _of_loss(loss), users)


def _hidden(loss: PrivacyLoss, known: Randomiser, users: int) -> PrivacyLoss:
    count = positive_int(users, "users")
    # where there is nothing to lose, or no crowd can hide it, the report itself is the bound
    if known.odds == 1 or known.odds > LARGEST_ODDS:
        return loss
    return ShuffledLoss(known, count, loss.adjacency)


def _best(ways: list[Randomiser], users: int) -> Randomiser:
    """All are valid; the one with the lowest ε is taken, judged among a few if there are many users."""
    few = min(users, TYPICAL_USERS)
    return ways[0] if len(ways) == 1 else min(ways, key=lambda way: ShuffledLoss(way, few).epsilon(TYPICAL_DELTA))


def _of_oracle(oracle: FrequencyOracle) -> list[Randomiser]:
    """Two ways to read a frequency oracle.

    Every report has its least probability, whoever sends it, or ``odds`` times that if it supports the sender's value.
    So reports that support neither of two values come from everybody as often as from those who have them; those that
    support both come from everybody at least 1/odds times as often.
    """
    odds, weight = oracle.odds, oracle.weight
    neither, rest = 1 - oracle.hit - weight, 1 - (odds + 1) * weight
    first = Randomiser(odds=odds, weight=weight, clones=weight, silent=neither, common=neither)
    second = Randomiser(odds=odds, weight=weight, clones=weight, silent=rest, common=rest / odds)
    return [first] if neither == rest else [first, second]


def _of_loss(loss: PrivacyLoss) -> Randomiser:
    """What the two ends of a curve say, δ(0) and the pure ε, also if the truth lies below: see ``shuffle.md``."""
    pure = loss.pure()
    if math.isinf(pure):
        raise InvalidParameter(
            "shuffling is known to amplify pure local losses, and this one has no finite ε at δ = 0: bound each "
            "report's ε first"
        )
    large = exp_up(pure) if pure else 1.0
    odds = Fraction(large) if math.isfinite(large) else LARGEST_ODDS + 1
    if isinstance(loss, KaryResponseLoss | RandomizedResponseLoss):
        odds = loss.odds
    if odds == 1 or odds > LARGEST_ODDS:
        return Randomiser(odds=odds, weight=1 / (odds + 1), clones=1 / (odds + 1))
    if isinstance(loss, KaryResponseLoss):
        weight = loss.weight
    else:
        weight = min(1 / (odds + 1), Fraction(loss.delta(0)) / (odds - 1))
    clones = min(weight, 1 / (2 * odds))
    common = 1 / odds - 2 * clones
    silent = min(1 - (odds + 1) * weight, odds * common)
    return Randomiser(odds=odds, weight=weight, clones=clones, silent=silent, common=common)


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

    Args:
        epsilon: Largest ε of one report among all, to those who see them shuffled.
        delta: δ of that reading.
        users: Number of reports; fewer would hide each other less.
        make: Makes the protocol of a local ε.
        tolerance: How far below the largest ε the result may be.

    Example:
        >>> local = local_epsilon_for(1, delta=1e-6, users=10_000)
        >>> f"{local:.2f}", shuffled(local, 10_000).epsilon(delta=1e-6) <= 1
        ('4.80', True)
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
