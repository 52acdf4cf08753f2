"""The Laplace mechanism, on a grid for real-valued answers and on the whole numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Self

import numpy as np

from dither.entropy import SYSTEM, DiscreteLaplaceSampler, Source, laplace_sampler
from dither.mechanisms import grid
from dither.mechanisms.base import Floats, NoiseMechanism, RealLaw, failure_probability, per_coordinate, release_whole
from dither.numeric import Number, fraction_down, fraction_up, positive, positive_int, up
from dither.numeric.rounding import SLACK
from dither.privacy import Adjacency, Array, Cells, Direction, Guarantee, PrivacyLoss, Sensitivity, mirrored
from dither.privacy.renyi import check_order, pure_renyi
from dither.privacy.sensitivity import expect_sensitivity


@dataclass(frozen=True, slots=True)
class LaplaceLoss(PrivacyLoss, kind="laplace"):
    """Laplace noise whose scale is 1/ε of the l1 sensitivity, in any number of dimensions."""

    exact_epsilon: Fraction
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    symmetric = True  # reflection swaps the pair

    def __post_init__(self) -> None:
        positive(self.exact_epsilon, "epsilon")

    def pure_exactly(self) -> Fraction:
        """As it was stated."""
        return self.exact_epsilon

    def pure(self) -> float:
        """Sensitivity over scale."""
        return fraction_up(self.exact_epsilon)

    def profile(self, epsilon: Array, direction: Direction) -> Array:  # noqa: ARG002
        """H(ε) = 1 − e^{(ε − Δ/b)/2} for 0 ≤ ε ≤ Δ/b."""
        gap = np.minimum((np.abs(epsilon) - self.pure()) / 2, 0.0)
        return mirrored(-np.expm1(gap) * (1 + SLACK), epsilon)

    def cells(self, edges: Array, direction: Direction) -> Cells:  # noqa: ARG002
        """Density ¼e^{(l−ε)/2} under P between two point masses: ½ at ε and ½e^−ε at −ε."""
        pure = self.pure()
        inner = np.clip(edges, -pure, pure)
        width = -np.expm1(-np.diff(inner) / 2)
        p = 0.5 * np.exp((inner[1:] - pure) / 2) * width
        q = 0.5 * np.exp(-(inner[:-1] + pure) / 2) * width
        atoms = np.array([pure, -pure])
        return Cells(p, q, 0.0, atoms, np.array([0.5, 0.5 * math.exp(-pure)]), 1e-14)

    def renyi(self, order: float) -> float:
        """The closed form of Mironov 2017, Proposition 6."""
        check_order(order)
        e, a = self.pure(), order
        if e > 600 / a:
            return pure_renyi(e, a)
        inner = a / (2 * a - 1) * math.exp((a - 1) * e) + (a - 1) / (2 * a - 1) * math.exp(-a * e)
        return min(pure_renyi(e, a), up((math.log(inner) + 4e-16) / (a - 1)))

    def kl(self) -> float:
        """ε − 1 + e^−ε."""
        e = self.pure()
        return up(e + math.expm1(-e)) + 1e-17

    def grouped(self, size: int) -> LaplaceLoss:
        """A group of k moves the answer k times as far."""
        return LaplaceLoss(positive_int(size, "size") * self.exact_epsilon, self.adjacency)


@dataclass(frozen=True, slots=True)
class Laplace(NoiseMechanism):
    """Adds Laplace noise of a stated scale to real-valued answers.

    Guarantee: Δ₁/scale-private for answers of l1 sensitivity Δ₁ in any dimension (Dwork et al. 2006),
        with the curve of one coordinate that moves by Δ₁; see laplace.md.
    Assumes: the stated sensitivity holds for the floats as they are passed in.
    Accuracy: Pr[|error| > scale·ln(1/β)] = β; E|error| = scale.

    Example:
        >>> Laplace(scale=2).loss(Sensitivity.l1(1)).pure()
        0.5
        >>> round(Laplace(scale=2).error(confidence=0.95), 3)
        5.991
        >>> Laplace(scale=-1)
        Traceback (most recent call last):
        dither.errors.InvalidParameter: scale must be greater than 0; got -1
    """

    scale: Fraction
    _exponent: int = field(init=False, repr=False, compare=False)
    _scalar: DiscreteLaplaceSampler = field(init=False, repr=False, compare=False)

    def __init__(self, scale: Number) -> None:
        exact = positive(scale, "scale")
        object.__setattr__(self, "scale", exact)
        object.__setattr__(self, "_exponent", grid.L1_GRID.exponent(exact))
        object.__setattr__(self, "_scalar", self._sampler(1))

    def _sampler(self, coordinates: int) -> DiscreteLaplaceSampler:
        wide = self.scale * grid.L1_GRID.widening(coordinates)
        return laplace_sampler(wide / Fraction(2) ** self._exponent)

    def loss(self, sensitivity: Sensitivity) -> LaplaceLoss:
        """ε = Δ₁/scale; a Δ₁ below 2^-16 scales is charged as that."""
        expect_sensitivity(sensitivity)
        share = max(sensitivity.l1_bound() / self.scale, grid.LEAST_SHARE)
        return LaplaceLoss(share, sensitivity.adjacency)

    def error(self, confidence: Number = 0.95, *, coordinates: int = 1) -> float:
        """The absolute error that none of ``coordinates`` coordinates exceeds with this confidence.

        Args:
            confidence: How sure it is, between 0 and 1.
            coordinates: How many numbers it is to hold for at once.
        """
        k = positive_int(coordinates, "coordinates")
        failure = per_coordinate(failure_probability(confidence), k)
        wide = fraction_up(self.scale * grid.L1_GRID.widening(k))
        return up(-wide * math.log(failure)) + math.ldexp(1.0, self._exponent)

    def release(self, exact: Any, *, source: Source = SYSTEM) -> Any:
        """The answer plus noise: a float for a number, a float64 array of the same shape for an array.

        Args:
            exact: The exact answer: a number or an array.
            source: Source of randomness; anything but the default is for tests.
        """
        return grid.L1_GRID.release(exact, self._sampler, self._scalar, self._exponent, source)

    def law(self, exact: float) -> RealLaw:
        """½e^{−|x|/b} tails around the answer; the grid is far too fine to be seen."""
        scale = float(self.scale)

        def cdf(x: Floats) -> Floats:
            tail = 0.5 * np.exp(-np.abs(x - exact) / scale)
            return np.where(x < exact, tail, 1 - tail)

        return RealLaw(cdf)

    @classmethod
    def calibrated(cls, guarantee: Guarantee, sensitivity: Sensitivity) -> Self | None:
        """Scale Δ₁/ε; with δ > 0 the curve 1 − e^{(ε−Δ₁/scale)/2} = δ allows Δ₁/scale = ε − 2·ln(1−δ).

        Args:
            guarantee: The (ε, δ) to be met.
            sensitivity: How far one unit moves the exact answer.
        """
        epsilon = guarantee.epsilon
        if guarantee.delta:
            # loss() answers in floats that are rounded up by a few units: stay clear of that
            more = epsilon * (1 - Fraction(1, 2**45)) + Fraction(-2 * math.log1p(-fraction_down(guarantee.delta)))
            epsilon = max(epsilon, more)
        return cls(sensitivity.l1_bound() / epsilon)


@dataclass(frozen=True, slots=True)
class DiscreteLaplaceLoss(PrivacyLoss, kind="discrete_laplace"):
    """Discrete Laplace noise of a stated scale on whole-number answers that move by at most ``shift``."""

    scale: Fraction
    shift: int
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    symmetric = True  # reflection swaps the pair

    def __post_init__(self) -> None:
        positive(self.scale, "scale")
        positive_int(self.shift, "shift")

    @property
    def allowance(self) -> float:
        """The absolute allowance in the profile."""
        return 2e-15 * (1 + self.pure())

    @property
    def exact_epsilon(self) -> Fraction:
        """Sensitivity over scale."""
        return self.shift / self.scale

    def pure_exactly(self) -> Fraction:
        """As it was stated."""
        return self.exact_epsilon

    def pure(self) -> float:
        """Sensitivity over scale."""
        return fraction_up(self.exact_epsilon)

    def profile(self, epsilon: Array, direction: Direction) -> Array:  # noqa: ARG002
        """The best event is {x ≤ j}, j = ⌊(n − ε·scale)/2⌋: (1 − e^ε·q^{n−j} + q·(1 − q^j))/(1+q), q = e^{−1/scale}."""
        distance = np.minimum(np.abs(epsilon), self.pure())
        scale, n = float(self.scale), self.shift
        q = math.exp(-1 / scale)
        # the two floors around the ideal cut cover every rounding of the division
        ideal = np.floor((n - distance * scale) / 2)
        best = np.zeros_like(distance)
        for j in (ideal - 1, ideal, ideal + 1):
            cut = np.clip(j, 0, n)
            matched = np.expm1(np.minimum(distance - (n - cut) / scale, 1.0))
            best = np.maximum(best, (-matched - q * np.expm1(-cut / scale)) / (1 + q))
        # the exponents are differences of numbers up to the pure ε, beyond which there is nothing
        best = np.where(distance >= self.pure(), 0.0, best * (1 + SLACK) + 1e-15 * (1 + self.pure()))
        return mirrored(np.minimum(best, 1.0), epsilon)

    def grouped(self, size: int) -> DiscreteLaplaceLoss:
        """A group of k moves the answer k times as far."""
        return DiscreteLaplaceLoss(self.scale, positive_int(size, "size") * self.shift, self.adjacency)


@dataclass(frozen=True, slots=True)
class DiscreteLaplace(NoiseMechanism):
    """Adds whole-number noise, Pr[z] ∝ e^{−|z|/scale}, to whole-number answers such as counts.

    Guarantee: Δ₁/scale-private (Ghosh, Roughgarden & Sundararajan 2009); see laplace.md.
    Accuracy: Pr[|error| > m] = 2q^{m+1}/(1+q) with q = e^{−1/scale}.

    Example:
        >>> DiscreteLaplace(scale=2).loss(Sensitivity.l1(1)).pure()
        0.5
        >>> DiscreteLaplace(scale=2).error(confidence=0.95)
        6.0
    """

    scale: Fraction
    _noise: DiscreteLaplaceSampler = field(init=False, repr=False, compare=False)

    def __init__(self, scale: Number) -> None:
        object.__setattr__(self, "scale", positive(scale, "scale"))
        object.__setattr__(self, "_noise", laplace_sampler(self.scale))

    def loss(self, sensitivity: Sensitivity) -> DiscreteLaplaceLoss:
        """ε = Δ₁/scale, Δ₁ rounded down to a whole number since answers are."""
        expect_sensitivity(sensitivity)
        return DiscreteLaplaceLoss(self.scale, sensitivity.integer_l1(), sensitivity.adjacency)

    def error(self, confidence: Number = 0.95, *, coordinates: int = 1) -> float:
        """The smallest m with Pr[|error| > m] ≤ 1 − confidence, for all coordinates together.

        Args:
            confidence: How sure it is, between 0 and 1.
            coordinates: How many numbers it is to hold for at once.
        """
        failure = per_coordinate(failure_probability(confidence), positive_int(coordinates, "coordinates"))
        scale = fraction_up(self.scale)
        # 2q^{m+1}/(1+q) ≤ β
        need = scale * (math.log(2) - math.log1p(math.exp(-1 / scale)) - math.log(failure)) - 1
        return float(max(0, math.ceil(up(need, 2.0**-40))))

    def release(self, exact: Any, *, source: Source = SYSTEM) -> Any:
        """The answer plus noise: an int for a whole number, an int64 array for an integer array.

        Args:
            exact: The exact answer: a number or an array.
            source: Source of randomness; anything but the default is for tests.
        """
        return release_whole(exact, self._noise, source)

    def law(self, exact: float) -> RealLaw:
        """Pr[z ≤ −m] = q^m/(1+q) for m ≥ 1, and the mirror image above."""
        scale = float(self.scale)

        def cdf(x: Floats) -> Floats:
            steps = np.floor(x - exact)
            q = math.exp(-1 / scale)
            below = np.exp(-np.abs(steps) / scale) / (1 + q)
            return np.where(steps < 0, below, 1 - q * below)

        return RealLaw(cdf)

    def worst_pair(self, sensitivity: Sensitivity) -> tuple[int, int]:
        """Whole numbers as far apart as the sensitivity allows."""
        return 0, sensitivity.integer_l1()
