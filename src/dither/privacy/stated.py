"""Losses stated by their guarantee alone: ε, (ε, δ) or ρ, each with the worst curve that the guarantee allows."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dither.errors import InvalidParameter
from dither.numeric import Number, as_fraction, fraction_up, positive_int, up
from dither.numeric.rounding import SLACK
from dither.privacy.curve import Array, Cells, Direction, mirrored
from dither.privacy.loss import PrivacyLoss
from dither.privacy.renyi import check_order, pure_zcdp, zcdp_epsilon
from dither.privacy.unit import Adjacency


def randomized_response_profile(pure: float, epsilon: Array) -> Array:
    """The curve of binary randomised response: (e^ε₀ − e^ε)₊ / (e^ε₀ + 1) for ε ≥ 0."""
    gap = np.minimum(np.abs(epsilon) - pure, 0.0)
    return mirrored(np.asarray(-np.expm1(gap) / (1 + math.exp(-pure)) * (1 + SLACK)), epsilon)


def randomized_response_cells(pure: float, edges: Array) -> Cells:
    """Two point masses: e^ε/(1+e^ε) at ε, the rest at −ε."""
    nothing = np.zeros(edges.size - 1)
    high = 1 / (1 + math.exp(-pure))
    return Cells(nothing, nothing, 0.0, np.array([pure, -pure]), np.array([high, math.exp(-pure) * high]), 4e-16)


def nonnegative(value: Number, name: str) -> Fraction:
    """An exact loss parameter; zero is the loss of an answer that doesn't depend on the data."""
    exact = as_fraction(value, name)
    if exact < 0:
        raise InvalidParameter(f"{name} must not be negative; got {value!r}")
    return exact


@dataclass(frozen=True, slots=True)
class PureLoss(PrivacyLoss, kind="pure"):
    """ε-privacy and nothing more is known.

    Guarantee: the curve of binary randomised response dominates every ε-private mechanism
        (Kairouz, Oh & Viswanath 2015).

    Example:
        >>> (PureLoss(1) + PureLoss("1/2")).pure()
        1.5
    """

    exact_epsilon: Fraction
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    symmetric = True  # both directions have one curve

    def __init__(self, epsilon: Number, adjacency: Adjacency = Adjacency.ADD_REMOVE) -> None:
        object.__setattr__(self, "exact_epsilon", nonnegative(epsilon, "epsilon"))
        object.__setattr__(self, "adjacency", adjacency)

    def pure_exactly(self) -> Fraction:
        """As it was stated."""
        return self.exact_epsilon

    def pure(self) -> float:
        """ε itself."""
        return fraction_up(self.exact_epsilon)

    def profile(self, epsilon: Array, direction: Direction) -> Array:  # noqa: ARG002
        """The curve of randomised response."""
        return randomized_response_profile(self.pure(), epsilon)

    def cells(self, edges: Array, direction: Direction) -> Cells:  # noqa: ARG002
        """Two point masses."""
        return randomized_response_cells(self.pure(), edges)

    def grouped(self, size: int) -> PureLoss:
        """Pure losses multiply by the size of the group."""
        return PureLoss(positive_int(size, "size") * self.exact_epsilon, self.adjacency)


@dataclass(frozen=True, slots=True)
class ApproximateLoss(PrivacyLoss, kind="approximate"):
    """(ε, δ)-privacy and nothing more is known.

    Guarantee: with probability δ the output gives everything away, otherwise it is randomised response; that
        dominates every (ε, δ)-private mechanism (Kairouz, Oh & Viswanath 2015).

    Example:
        >>> loss = ApproximateLoss(1, "1/1000000")
        >>> loss.epsilon(delta=1e-6), loss.pure()
        (1.0, inf)
    """

    exact_epsilon: Fraction
    exact_delta: Fraction
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    symmetric = True  # both directions have one curve

    def __init__(self, epsilon: Number, delta: Number, adjacency: Adjacency = Adjacency.ADD_REMOVE) -> None:
        exact = as_fraction(delta, "delta")
        if not 0 <= exact <= 1:
            raise InvalidParameter(f"delta must lie between 0 and 1; got {delta!r}")
        object.__setattr__(self, "exact_epsilon", nonnegative(epsilon, "epsilon"))
        object.__setattr__(self, "exact_delta", exact)
        object.__setattr__(self, "adjacency", adjacency)

    def pure(self) -> float:
        """ε if δ is zero, else infinity."""
        return fraction_up(self.exact_epsilon) if self.exact_delta == 0 else math.inf

    def approximate_zcdp(self) -> tuple[float, float]:
        """But for probability δ this is ε-private (Bun & Steinke 2016, Lemma 8.8 with the tight ρ of ε)."""
        return pure_zcdp(fraction_up(self.exact_epsilon)), fraction_up(self.exact_delta)

    def decomposed(self) -> tuple[PrivacyLoss, Fraction]:
        """But for probability δ this is ε-private (Kairouz, Oh & Viswanath 2015)."""
        return PureLoss(self.exact_epsilon, self.adjacency), self.exact_delta

    def epsilon(self, delta: Number) -> float:
        """At the stated δ exactly the stated ε: no search, no rounding."""
        if as_fraction(delta, "delta") == self.exact_delta:
            return fraction_up(self.exact_epsilon)
        return PrivacyLoss.epsilon(self, delta)

    def profile(self, epsilon: Array, direction: Direction) -> Array:  # noqa: ARG002
        """δ + (1−δ) times the curve of randomised response."""
        delta = fraction_up(self.exact_delta)
        positive = randomized_response_profile(fraction_up(self.exact_epsilon), np.abs(epsilon))
        return mirrored(delta + (1 - delta) * positive, epsilon)

    def grouped(self, size: int) -> ApproximateLoss:
        """(kε, δ·(e^{kε}−1)/(e^ε−1)), the standard group bound."""
        k = positive_int(size, "size")
        if k == 1:
            return self
        epsilon = fraction_up(self.exact_epsilon)
        if self.exact_delta == 0 or k * epsilon > 700:
            # e^700 times any δ worth stating is more than 1
            return ApproximateLoss(k * self.exact_epsilon, 0 if self.exact_delta == 0 else 1, self.adjacency)
        growth = float(k) if epsilon == 0 else up(math.expm1(k * epsilon) / math.expm1(epsilon))
        grown = min(Fraction(1), self.exact_delta * Fraction(up(growth)))
        return ApproximateLoss(k * self.exact_epsilon, grown, self.adjacency)


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
