"""The Gaussian mechanism for real-valued answers, calibrated exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Self

import numpy as np
from scipy.special import erfcx, log_ndtr, ndtr, ndtri

from dither.entropy import SYSTEM, DiscreteGaussianSampler, Source, gaussian_sampler
from dither.errors import InvalidParameter, NotPrivate
from dither.mechanisms import grid
from dither.mechanisms.base import NoiseMechanism, RealLaw, failure_probability, per_coordinate
from dither.numeric import Number, fraction_up, positive, positive_int, smallest_true, up
from dither.privacy import Adjacency, Array, Cells, Direction, Guarantee, PrivacyLoss, Sensitivity, mirrored
from dither.privacy.sensitivity import expect_sensitivity
from dither.privacy.zcdp import ConcentratedLoss

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(5)
# With five nodes the relative error is below 1e-14 while width·(1 + |z|) stays below this.
NARROW = 0.3
# erfcx, exp and the quadrature together: far above their errors, far below anything that matters
CURVE_SLACK = 2.0**-40
CELL_ERROR = 4e-13
SMALLEST_DELTA = 1e-290


def gaussian_profile(mu: float, epsilon: Array) -> Array:
    """H(ε) = Φ(μ/2 − ε/μ) − e^ε·Φ(−μ/2 − ε/μ) for ε ≥ 0 (Balle & Wang 2018, Theorem 5), to full relative accuracy.

    With Mills' ratio R, e^ε·φ(z₂) = φ(z₁) turns it into φ(z₁)·(R(z₁) − R(z₂)), and for small μ the difference is
    taken as the integral of −R' = 1 − z·R.
    """
    near, far = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        density = np.exp(-0.5 * near * near) / math.sqrt(2 * math.pi)
        if mu < NARROW:
            difference = np.zeros_like(near)
            for node, weight in zip(_NODES, _WEIGHTS, strict=True):
                z = near + 0.5 * mu * (1 + node)
                difference += 0.5 * mu * weight * np.maximum(_minus_slope(z), 0.0)
        else:
            difference = _mills(near) - _mills(far)
        small = density * difference
        plain = ndtr(-near) - np.exp(np.minimum(epsilon + log_ndtr(-far), 0.0))
    # never exactly zero: that would claim a pure ε
    return np.minimum(np.where(near < -4, plain, small) * (1 + CURVE_SLACK) + 1e-300, 1.0)


def _mills(z: Array) -> Array:
    return np.asarray(math.sqrt(math.pi / 2) * erfcx(z / math.sqrt(2)))


def _minus_slope(z: Array) -> Array:
    """−R'(z) = 1 − z·R(z); beyond 50 by its expansion, where the difference has lost its digits."""
    safe = np.minimum(z, 50.0)
    inverse = 1 / np.maximum(z, 50.0) ** 2
    series = inverse * (1 - 3 * inverse * (1 - 5 * inverse * (1 - 7 * inverse)))
    return np.where(z > 50.0, series, 1 - safe * _mills(safe))


def normal_cells(edges: Array) -> Array:
    """Masses of the standard normal between sorted edges, to full relative accuracy."""
    z0, z1 = edges[:-1], edges[1:]
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        width = np.where(np.isfinite(z0) & np.isfinite(z1), z1 - z0, np.inf)
        narrow = width * (1 + np.minimum(np.abs(z0), np.abs(z1)) + width) < NARROW
        left, right = ndtr(-np.abs(z0)), ndtr(-np.abs(z1))
        wide = np.where(z0 >= 0, left - right, np.where(z1 <= 0, right - left, 1 - left - right))
        total = np.zeros(width.size)
        middle = np.where(narrow, z0 + 0.5 * width, 0.0)
        half = np.where(narrow, 0.5 * width, 0.0)
        for node, weight in zip(_NODES, _WEIGHTS, strict=True):
            y = middle + half * node
            total += weight * np.exp(-0.5 * y * y)
    return np.where(narrow, total * half / math.sqrt(2 * math.pi), np.maximum(wide, 0.0))


@dataclass(frozen=True, slots=True)
class GaussianLoss(ConcentratedLoss, kind="gaussian"):
    """Gaussian noise of standard deviation 1/μ of the l2 sensitivity, in any number of dimensions.

    Composition stays Gaussian: μ² adds, so k releases have a closed form.

    Example:
        >>> loss = GaussianLoss(Fraction(1, 4))
        >>> (4 * loss) == GaussianLoss(Fraction(1)), loss.zcdp()
        (True, 0.125)
    """

    mu_squared: Fraction
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    symmetric = True  # reflection swaps the pair

    def __post_init__(self) -> None:
        positive(self.mu_squared, "mu_squared")

    @property
    def mu(self) -> float:
        """Sensitivity over scale."""
        return up(math.sqrt(fraction_up(self.mu_squared)), 2.0**-52)

    @property
    def rho(self) -> Fraction:
        """The zCDP parameter, exactly."""
        return self.mu_squared / 2

    def profile(self, epsilon: Array, direction: Direction) -> Array:  # noqa: ARG002
        """The curve of two normal laws."""
        return mirrored(gaussian_profile(self.mu, np.abs(epsilon)), epsilon)

    def cells(self, edges: Array, direction: Direction) -> Cells:  # noqa: ARG002
        """The loss is N(μ²/2, μ²) under P and N(−μ²/2, μ²) under Q."""
        mu = self.mu
        p = normal_cells(edges / mu - mu / 2)
        q = normal_cells(edges / mu + mu / 2)
        nothing = np.array([])
        return Cells(p, q, float(ndtr(mu / 2 - edges[-1] / mu)), nothing, nothing, CELL_ERROR)

    def zcdp_exactly(self) -> Fraction:
        """μ²/2: the Rényi view is αμ²/2 (Mironov 2017, Proposition 7)."""
        return self.rho

    def kl(self) -> float:
        """μ²/2."""
        return fraction_up(self.rho)

    def gaussian(self) -> float:
        """μ itself."""
        return self.mu

    @classmethod
    def merge(cls, parts: list[tuple[PrivacyLoss, int]]) -> list[tuple[PrivacyLoss, int]]:
        """Independent Gaussians are one Gaussian with the sum of μ²."""
        total = Fraction(0)
        for loss, count in parts:
            assert isinstance(loss, GaussianLoss)
            total += count * loss.mu_squared
        return [(cls(total, parts[0][0].adjacency), 1)]

    def grouped(self, size: int) -> GaussianLoss:
        """A group of k moves the answer k times as far."""
        return GaussianLoss(positive_int(size, "size") ** 2 * self.mu_squared, self.adjacency)


@dataclass(frozen=True, slots=True)
class Gaussian(NoiseMechanism):
    """Adds Gaussian noise of a stated standard deviation to real-valued answers.

    Guarantee: the exact trade-off of N(0,1) against N(Δ₂/scale, 1) for answers of l2 sensitivity Δ₂ in any dimension
        (Balle & Wang 2018); see gaussian.md.
    Assumes: the stated sensitivity holds for the floats as they are passed in.
    Accuracy: quantiles of the normal law.

    Example:
        >>> round(Gaussian(scale=1).loss(Sensitivity.l2(1)).epsilon(delta=1e-6), 5)
        4.88655
        >>> round(Gaussian(scale=1).error(confidence=0.95), 3)
        1.96
    """

    scale: Fraction
    _exponent: int = field(init=False, repr=False, compare=False)
    _scalar: DiscreteGaussianSampler = field(init=False, repr=False, compare=False)

    def __init__(self, scale: Number) -> None:
        exact = positive(scale, "scale")
        object.__setattr__(self, "scale", exact)
        object.__setattr__(self, "_exponent", grid.L2_GRID.exponent(exact))
        object.__setattr__(self, "_scalar", self._sampler(1))

    def _sampler(self, coordinates: int) -> DiscreteGaussianSampler:
        wide = self.scale * grid.L2_GRID.widening(coordinates)
        return gaussian_sampler((wide / Fraction(2) ** self._exponent) ** 2)

    def loss(self, sensitivity: Sensitivity) -> GaussianLoss:
        """μ = Δ₂/scale; a Δ₂ below 2^-16 scales is charged as that."""
        expect_sensitivity(sensitivity)
        share = max(sensitivity.l2_squared() / self.scale**2, grid.LEAST_SHARE**2)
        return GaussianLoss(share, sensitivity.adjacency)

    def error(self, confidence: Number = 0.95, *, coordinates: int = 1) -> float:
        """The absolute error that none of ``coordinates`` coordinates exceeds with this confidence.

        Args:
            confidence: How sure it is, between 0 and 1.
            coordinates: How many numbers it is to hold for at once.
        """
        k = positive_int(coordinates, "coordinates")
        failure = per_coordinate(failure_probability(confidence), k)
        wide = fraction_up(self.scale * grid.L2_GRID.widening(k))
        return up(-wide * float(ndtri(failure / 2))) + math.ldexp(1.0, self._exponent)

    def release(self, exact: Any, *, source: Source = SYSTEM) -> Any:
        """The answer plus noise: a float for a number, a float64 array of the same shape for an array.

        Args:
            exact: The exact answer: a number or an array.
            source: Source of randomness; anything but the default is for tests.
        """
        return grid.L2_GRID.release(exact, self._sampler, self._scalar, self._exponent, source)

    def law(self, exact: float) -> RealLaw:
        """The normal law around the answer; the grid is far too fine to be seen."""
        scale = float(self.scale)
        return RealLaw(lambda x: ndtr((x - exact) / scale))

    @classmethod
    def calibrated(cls, guarantee: Guarantee, sensitivity: Sensitivity) -> Self:
        """The smallest scale for (ε, δ): solves the exact curve, for every ε (Balle & Wang 2018).

        Args:
            guarantee: The (ε, δ) to be met.
            sensitivity: How far one unit moves the exact answer.
        """
        if guarantee.delta == 0:
            raise NotPrivate("Gaussian noise is never private with δ = 0: give the guarantee a delta, or use Laplace")
        delta, epsilon = float(guarantee.delta), np.array([float(guarantee.epsilon)])
        if delta < SMALLEST_DELTA:
            raise NotPrivate(
                f"delta must be at least {SMALLEST_DELTA:g} for Gaussian noise, or use Laplace without one"
            )

        def enough(ratio: float) -> bool:
            """Whether scale = ratio·Δ₂ meets the guarantee."""
            return float(gaussian_profile(1 / ratio, epsilon)[0]) <= delta

        high = 1.0
        while not enough(high):
            high *= 2
        ratio = smallest_true(enough, 1e-6, high, relative=1e-13)
        # loss() evaluates the curve at μ rounded up by a few units; stay clear of that
        exact_ratio = Fraction(ratio) * (1 + Fraction(1, 2**44))
        width = Fraction(up(math.sqrt(fraction_up(sensitivity.l2_squared())), 2.0**-52))
        root = sensitivity.l2_squared()
        if (whole := Fraction(math.isqrt(root.numerator), math.isqrt(root.denominator))) ** 2 == root:
            width = whole
        return cls(exact_ratio * width)


def classical_gaussian_scale(epsilon: Number, delta: Number, sensitivity: Sensitivity) -> float:
    """The textbook √(2 ln(1.25/δ))·Δ₂/ε, for comparison with the exact calibration.

    It is proven for ε ≤ 1 only (Dwork & Roth 2014, Theorem A.1) and is refused beyond; at δ = 1e-5 it stops being
    private at about ε = 9.

    Example:
        >>> classical_gaussian_scale(1, 1e-5, Sensitivity.l2(1))
        4.844...
        >>> classical_gaussian_scale(2, 1e-5, Sensitivity.l2(1))
        Traceback (most recent call last):
        dither.errors.InvalidParameter: the classical constant is proven for epsilon up to 1 only; got 2: ...
    """
    e, d = positive(epsilon, "epsilon"), float(positive(delta, "delta"))
    if e > 1:
        raise InvalidParameter(
            f"the classical constant is proven for epsilon up to 1 only; got {epsilon!r}: use calibrate(Gaussian, …)"
        )
    return up(math.sqrt(2 * math.log(1.25 / d) * fraction_up(sensitivity.l2_squared())) / float(e))
