"""Zero-concentrated privacy (zCDP): ε(δ) ↔ ρ, and losses whose Rényi view is the line of their ρ."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dither.numeric import Number, fraction_up, largest_true, positive_int, up
from dither.numeric.rounding import SLACK
from dither.privacy.curve import Array, Direction, mirrored
from dither.privacy.loss import PrivacyLoss, nonnegative
from dither.privacy.renyi import best_order, check_order, epsilon_of_order, reading
from dither.privacy.unit import Adjacency

# Beyond this ρ·α may leave the floats.
_HUGE = 1e300
# How near two steps in a row are at the best order, where ε(α) is flat.
_NEAR, _MOST_STEPS = 1e-8, 200


def zcdp_epsilon(rho: float, delta: float) -> float:
    """ε(δ) of ρ-zCDP through the best order; below ρ + 2√(ρ ln(1/δ)).

    Example:
        >>> zcdp_epsilon(0.5, 1e-6) < 0.5 + 2 * math.sqrt(0.5 * math.log(1e6))
        True
    """
    if rho == 0:
        return 0.0
    if rho > _HUGE or delta >= 1:
        return best_order(lambda order: epsilon_of_order(rho * order, order, delta))
    # every order gives a bound; the best is where ρ(α − 1)² + ln(δα) = 0, which rises with α: Newton's steps, kept
    # between two ends
    log_delta = math.log(delta)
    low, high = 0.0, math.sqrt(-log_delta / rho)
    gap = high
    for _ in range(_MOST_STEPS):
        height = rho * gap * gap + log_delta + math.log1p(gap)
        low, high = (low, gap) if height > 0 else (gap, high)
        following = gap - height / (2 * rho * gap + 1 / (1 + gap))
        if not low < following < high:
            following = (low + high) / 2
        near = abs(following - gap) <= _NEAR * gap
        gap = following
        if near:
            break
    return reading(rho * (1 + gap), gap, delta)


def zcdp_for_epsilon(epsilon: float, delta: float) -> float:
    """The largest ρ (rounded down) whose ε(δ) is no more than ``epsilon``; what is returned was seen to fit.

    Example:
        >>> rho = zcdp_for_epsilon(1, 1e-6)
        >>> zcdp_epsilon(rho, 1e-6) <= 1 < zcdp_epsilon(rho * (1 + 1e-9), 1e-6)
        True
    """
    return zcdp_bought(epsilon, delta)[0]


def zcdp_bought(epsilon: float, delta: float) -> tuple[float, float]:
    """The ρ of ``zcdp_for_epsilon``, and its ε(δ) read back.

    Example:
        >>> zcdp_bought(1, 1e-6) == (zcdp_for_epsilon(1, 1e-6), zcdp_epsilon(zcdp_for_epsilon(1, 1e-6), 1e-6))
        True
    """
    # ρ + 2√(ρ ln(1/δ)) is above ε(δ), so where it equals ε there is room left
    root = math.sqrt(math.log(1 / delta) + epsilon) - math.sqrt(math.log(1 / delta))

    def read(rho: float) -> float:
        return zcdp_epsilon(rho, delta)

    last, rho = root * root, 1.25 * root * root
    before, error = read(last) - epsilon, read(rho) - epsilon
    for _ in range(50):
        if abs(rho - last) <= 1e-13 * rho or error == before:
            break
        # ε(δ) rises and bends one way only, so the line through two points soon meets it
        step = error * (rho - last) / (error - before)
        last, before, rho = rho, error, max(rho - step, rho / 4)
        error = read(rho) - epsilon
    found = rho * (1 - 2e-13)
    back = read(found)
    if back <= epsilon < read(found * (1 + 1e-11)):
        return found, back
    # the curve has a corner where it leaves zero, which lines don't find: look between two ends instead
    top = max(root * root, 1e-300)
    while read(top) <= epsilon:
        top *= 2
    found = largest_true(lambda value: read(value) <= epsilon, 0.0, top, relative=1e-12)
    return found, read(found)


def zcdp_tail(rho: float, delta: float) -> float:
    """A bound that the loss itself exceeds with probability at most δ: ρ + 2√(ρ ln(1/δ)) (Bun & Steinke 2016)."""
    return up(rho + 2 * math.sqrt(rho * math.log(1 / delta)))


class ConcentratedLoss(PrivacyLoss):
    """A loss whose Rényi view is the line of its exact zCDP parameter: D_α ≤ ρα."""

    __slots__ = ()

    @abstractmethod
    def zcdp_exactly(self) -> Fraction:
        """The parameter ρ."""

    def zcdp(self) -> float:
        """The parameter ρ, rounded up."""
        return fraction_up(self.zcdp_exactly())

    def renyi(self, order: float) -> float:
        """ρ·α."""
        check_order(order)
        return up(order * self.zcdp())


@dataclass(frozen=True, slots=True)
class ZcdpLoss(ConcentratedLoss, kind="zcdp"):
    """ρ-zCDP: D_α ≤ ρα for every order α > 1 and both directions, and nothing more is known.

    Guarantee: Bun & Steinke 2016; converted to (ε, δ) with Canonne, Kamath & Steinke 2020, Proposition 12.

    Example:
        >>> (2 * ZcdpLoss("1/4")).zcdp()
        0.5
    """

    rho: Fraction
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    symmetric = True  # both directions have one bound
    tight = False  # a bound only

    def __init__(self, rho: Number, adjacency: Adjacency = Adjacency.ADD_REMOVE) -> None:
        object.__setattr__(self, "rho", nonnegative(rho, "rho"))
        object.__setattr__(self, "adjacency", adjacency)

    def zcdp_exactly(self) -> Fraction:
        """As it was stated."""
        return self.rho

    def gaussian(self) -> float:
        """ZCDP alone implies no Gaussian trade-off curve."""
        return math.inf

    def profile(self, epsilon: Array, direction: Direction) -> Array:  # noqa: ARG002
        """The bound of the best order at each point, where ρ(2α−1) − ε + ln(1−1/α) = 0; any order is valid."""
        distance = np.abs(epsilon)
        rho = self.zcdp()
        if rho == 0:
            return mirrored(np.zeros_like(distance), epsilon)
        low, high = np.full(distance.shape, -30.0), np.full(distance.shape, 60.0)
        for _ in range(60):
            middle = (low + high) / 2
            order = 1 + np.exp(middle)
            rising = rho * (2 * order - 1) - distance + np.log(np.exp(middle) / order) > 0
            low, high = np.where(rising, low, middle), np.where(rising, middle, high)
        gap = np.exp((low + high) / 2)
        order = 1 + gap
        exponent = gap * (rho * order - distance) + order * np.log(gap / order) - np.log(gap)
        return mirrored(np.exp(np.minimum(exponent + 1e-14 * order, 0.0)) * (1 + SLACK), epsilon)

    def _epsilon_up(self, delta: float) -> float:
        return zcdp_epsilon(self.zcdp(), delta)

    @classmethod
    def merge(cls, parts: list[tuple[PrivacyLoss, int]]) -> list[tuple[PrivacyLoss, int]]:
        """ρ adds (Bun & Steinke 2016, Lemma 1.7)."""
        total = sum((count * loss.zcdp_exactly() for loss, count in parts), Fraction(0))
        return [(cls(total, parts[0][0].adjacency), 1)]

    def grouped(self, size: int) -> ZcdpLoss:
        """ρ grows with the square of the group (Bun & Steinke 2016, Proposition 1.9)."""
        return ZcdpLoss(positive_int(size, "size") ** 2 * self.rho, self.adjacency)
