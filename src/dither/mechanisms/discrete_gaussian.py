"""The Gaussian mechanism on the whole numbers, for counts and other integer answers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from dither.entropy import SYSTEM, DiscreteGaussianSampler, Source, gaussian_sampler
from dither.errors import InvalidSensitivity
from dither.mechanisms.base import Floats, NoiseMechanism, RealLaw, failure_probability, per_coordinate, release_whole
from dither.mechanisms.gaussian import gaussian_profile
from dither.numeric import Number, fraction_up, positive, positive_int, up
from dither.privacy import (
    Adjacency,
    Array,
    Direction,
    Norm,
    PrivacyLoss,
    Sensitivity,
    ZcdpLoss,
    at_least_nothing,
    compose,
    mirrored,
)
from dither.privacy.curve import ROUNDING
from dither.privacy.sensitivity import expect_sensitivity
from dither.privacy.zcdp import ConcentratedLoss

# Tails beyond this many standard deviations weigh less than e^-800.
REACH = 40
# Up to here probabilities are summed; above, the grid is so fine that the continuous curve with a proven margin does.
LARGEST_SUMMED_SCALE = 20000
CURVE_SLACK = 2.0**-40
# A quantile that a sum reaches this closely, relatively, is looked for by summing.
CLOSE = 1e-8
ROOT_OF_TWO_PI = math.sqrt(2 * math.pi)
# Sums of up to 10^6 positive terms in the widest float there is.
SUM_ERROR = 1e-14 + 4e6 * float(np.finfo(np.longdouble).eps)


def _sum_below(variance: Fraction) -> tuple[Floats, float]:
    """Pr[z ≤ −m] for m = 0 … REACH·σ, summed from the far end, and the total weight."""
    sigma = math.sqrt(float(variance))
    steps = np.arange(math.ceil(REACH * sigma) + 2, dtype=np.float64)
    weights = np.exp(-(steps**2) / (2 * float(variance)))
    tail = np.cumsum(weights[::-1], dtype=np.longdouble)[::-1].astype(np.float64)
    total = 2 * float(tail[0]) - 1.0
    return tail / total, total


# for curves, which are looked at again and again; not for errors, whose time would then tell who else asked for one
_below = lru_cache(maxsize=16)(_sum_below)


def _quantile(variance: Fraction, failure: float) -> int | None:
    """The smallest m with Pr[|z| > m] ≤ ``failure``, or None where only the sum itself can tell.

    The sum of all weights beyond m is an integral and a few derivatives at its end (Euler–Maclaurin). What is left out
    is at most |B₆|/6! = 1/30240 times the fifth derivative there and its variation beyond. With 10·m/σ ≤ σ − 10, as
    here, that is less than 1e-9 of the sum, most where σ is near 10. So the sum is believed wherever it is further
    than ``CLOSE`` from the failure.
    """
    sigma, normal = math.sqrt(float(variance)), -float(ndtri(failure / 2))
    if 10 * normal > sigma - 10:
        return None

    def share(steps: int) -> float:
        """Pr[|z| > steps] / failure."""
        n = steps + 1
        slope = n / sigma / sigma
        corrections = 0.5 + slope / 12 + slope * (3 / sigma / sigma - slope * slope) / 720
        density = math.exp(-n * slope / 2) / (sigma * ROOT_OF_TWO_PI)
        return 2 * (float(ndtr(-n / sigma)) + density * corrections) / failure

    # a sum from m + 1 on is about the integral from m + ½; one or two below what that needs is still too few
    steps = max(0, math.floor(normal * sigma - 0.5) - 1)
    short, enough = share(steps), share(steps + 1)
    if enough > 1:
        steps, short, enough = steps + 1, enough, share(steps + 2)
    return steps + 1 if enough < 1 - CLOSE and short > 1 + CLOSE else None


def discrete_gaussian_cdf(variance: Fraction, steps: Floats) -> Floats:
    """Pr[z ≤ steps] for whole numbers, to full relative accuracy below zero."""
    tail, _ = _below(variance)
    at = np.minimum(np.abs(steps), tail.size - 1).astype(np.int64)
    above = np.minimum(at + 1, tail.size - 1)
    return np.where(steps <= 0, tail[at], 1 - tail[above])


def discrete_gaussian_tail_up(variance: Fraction, steps: int) -> float:
    """Pr[z ≥ steps], rounded up; above the summed scales by the margin of discrete_gaussian.md."""
    if variance <= LARGEST_SUMMED_SCALE**2:
        tail = float(discrete_gaussian_cdf(variance, np.array([-float(steps)]))[0])
        return min(1.0, max(up(tail, 2.0**-36), 1e-300))
    # what rounds to at least ``steps`` lies above steps − ½
    z = (steps - 0.5) / math.sqrt(float(variance))
    return min(1.0, max(up(float(ndtr(-z)), 2.0**-36 + 402 / float(variance)), 1e-300))


@dataclass(frozen=True, slots=True)
class DiscreteGaussianLoss(ConcentratedLoss, kind="discrete_gaussian"):
    """Discrete Gaussian noise on one whole number that moves by at most ``shift``."""

    variance: Fraction
    shift: int
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    symmetric = True  # reflection swaps the pair

    def __post_init__(self) -> None:
        positive(self.variance, "variance")
        positive_int(self.shift, "shift")

    @property
    def allowance(self) -> float:
        """Both sums may be off by their own round-off, of which the curve is a small difference."""
        return SUM_ERROR

    @property
    def rho(self) -> Fraction:
        """The zCDP parameter, exactly."""
        return Fraction(self.shift**2 * self.variance.denominator, 2 * self.variance.numerator)

    def profile(self, epsilon: Array, direction: Direction) -> Array:  # noqa: ARG002
        """Pr[z ≤ c] − e^ε·Pr[z ≤ c − n] at the best cut, c just below n/2 − ε·σ²/n."""
        distance = np.abs(epsilon)
        variance, n = float(self.variance), self.shift
        if variance > LARGEST_SUMMED_SCALE**2:
            margin = 201 / variance
            mu = up(n / math.sqrt(variance))
            near = gaussian_profile(mu, np.maximum(distance - 2 * margin, 0.0)) * (1 + 2 * margin)
            return mirrored(np.minimum(near + 1e-300, 1.0), epsilon)
        best = np.zeros_like(distance)
        ideal = np.ceil(n / 2 - distance * variance / n) - 1
        # neighbours of the ideal cut cover every rounding of the division
        for cut in (ideal - 1, ideal, ideal + 1):
            lost = discrete_gaussian_cdf(self.variance, cut)
            kept = discrete_gaussian_cdf(self.variance, cut - n)
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                matched = np.where(kept > 1e-300, np.exp(np.minimum(distance + np.log(kept), 700.0)), 0.0)
            # both sums are good to a few units in the last place of the larger one
            best = np.maximum(best, lost - matched + np.where(lost > matched, SUM_ERROR * lost, 0.0))
        return mirrored(np.minimum(best * (1 + CURVE_SLACK) + 1e-300, 1.0), epsilon)

    def profile_down(self, epsilon: Array, direction: Direction) -> Array:
        """The same; above the summed scales the continuous curve with the margin taken off."""
        if self.variance <= LARGEST_SUMMED_SCALE**2:
            return PrivacyLoss.profile_down(self, epsilon, direction)
        margin = 201 / float(self.variance)
        # from below the events are those of whole numbers: the next cut is up to n/σ² of loss further
        blur = 2 * margin + self.shift / float(self.variance)
        mu = self.shift / math.sqrt(float(self.variance))
        near = gaussian_profile(mu * (1 - 1e-15), np.abs(epsilon) * (1 + ROUNDING) + blur) * (1 - 2 * margin - ROUNDING)
        return at_least_nothing(mirrored(np.maximum(near - 1e-300, 0.0), epsilon) * (1 - ROUNDING), epsilon)

    def zcdp_exactly(self) -> Fraction:
        """At most that of continuous noise, n²/2σ², as every order (Canonne, Kamath & Steinke 2020, Proposition 5)."""
        return self.rho

    def gaussian(self) -> float:
        """Discrete noise has no Gaussian trade-off curve of the same μ."""
        return math.inf

    def grouped(self, size: int) -> DiscreteGaussianLoss:
        """A group of k moves the answer k times as far."""
        return DiscreteGaussianLoss(self.variance, positive_int(size, "size") * self.shift, self.adjacency)


@dataclass(frozen=True, slots=True)
class DiscreteGaussian(NoiseMechanism):
    """Adds whole-number noise, Pr[z] ∝ e^{−z²/2σ²}, to whole-number answers such as counts.

    ``scale`` is σ, the parameter; the standard deviation is never larger.

    Guarantee: Δ₂²/2σ²-zCDP in any dimension (Canonne, Kamath & Steinke 2020, Theorem 14). Where it is known which
        coordinates move how far, the exact curve: one coordinate (Δ₂² < 2, or an l1 bound), or a contribution.
    Accuracy: exact quantiles of the discrete law.

    Example:
        >>> DiscreteGaussian(scale=2).loss(Sensitivity.l2(1)).zcdp()
        0.125
        >>> DiscreteGaussian(scale=2).error(confidence=0.95)
        4.0
    """

    scale: Fraction
    _noise: DiscreteGaussianSampler = field(init=False, repr=False, compare=False)

    def __init__(self, scale: Number) -> None:
        object.__setattr__(self, "scale", positive(scale, "scale"))
        object.__setattr__(self, "_noise", gaussian_sampler(self.scale**2))

    def loss(self, sensitivity: Sensitivity) -> PrivacyLoss:
        """The exact curve where the worst movement is known, else ρ-zCDP."""
        expect_sensitivity(sensitivity)
        variance, adjacency = self.scale**2, sensitivity.adjacency
        if sensitivity.groups is not None:
            each = DiscreteGaussianLoss(variance, _whole(sensitivity.linf_bound()), adjacency)
            return compose([(each, sensitivity.groups)])
        if sensitivity.norm is Norm.L1:
            return DiscreteGaussianLoss(variance, sensitivity.integer_l1(), adjacency)
        squared = _whole(sensitivity.l2_squared())
        if squared == 1:
            return DiscreteGaussianLoss(variance, 1, adjacency)
        return ZcdpLoss(squared / (2 * variance), adjacency)

    def error(self, confidence: Number = 0.95, *, coordinates: int = 1) -> float:
        """The smallest m with Pr[|error| > m] ≤ 1 − confidence, for all coordinates together.

        Args:
            confidence: How sure it is, between 0 and 1.
            coordinates: How many numbers it is to hold for at once.
        """
        failure = per_coordinate(failure_probability(confidence), positive_int(coordinates, "coordinates"))
        variance = self.scale**2
        if variance > LARGEST_SUMMED_SCALE**2:
            margin = 1 + 402 / float(variance)
            return float(math.ceil(up(-float(ndtri(failure / 2 / margin)) * fraction_up(self.scale)) + 1))
        steps = _quantile(variance, failure)
        if steps is not None:
            return float(steps)
        tail, _ = _sum_below(variance)
        # Pr[|z| > m] = 2·Pr[z ≤ −(m+1)]
        enough = np.flatnonzero(2 * tail[1:] * (1 + 1e-12) <= failure)
        return float(enough[0]) if enough.size else float(tail.size)

    def release(self, exact: Any, *, source: Source = SYSTEM) -> Any:
        """The answer plus noise: an int for a whole number, an int64 array for an integer array.

        Args:
            exact: The exact answer: a number or an array.
            source: Source of randomness; anything but the default is for tests.
        """
        return release_whole(exact, self._noise, source)

    def law(self, exact: float) -> RealLaw | None:
        """Sums of the discrete law, where they are short enough."""
        if self.scale > LARGEST_SUMMED_SCALE:
            return None
        return RealLaw(lambda x: discrete_gaussian_cdf(self.scale**2, np.floor(x - exact)))

    def worst_pair(self, sensitivity: Sensitivity) -> tuple[int, int]:
        """Whole numbers as far apart as the sensitivity allows."""
        return 0, _whole(sensitivity.bound)


def _whole(bound: Fraction) -> int:
    """Whole-number answers move by whole numbers, so a bound (or its square) rounds down."""
    steps = math.floor(bound)
    if steps < 1:
        raise InvalidSensitivity(
            "whole-number answers that move by less than 1 don't move at all: the sensitivity must be at least 1"
        )
    return steps
