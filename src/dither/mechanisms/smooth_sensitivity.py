"""Noise that follows a smooth bound of the local sensitivity, and the median released with it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from dither.entropy import SYSTEM, Source, below, bernoulli_exp
from dither.errors import InvalidData, InvalidParameter
from dither.mechanisms.base import FiniteLaw, Floats, Ints, failure_probability
from dither.numeric import Number, as_fraction, down, fraction_down, fraction_up, positive, up
from dither.privacy import Adjacency, ApproximateLoss

# Smooth bounds are computed in floats to a relative 2^-40; β is lowered by more than that.
BOUND_SLACK = 2.0**-40
SMOOTHNESS_SLACK = 2.0**-36
SMALLEST_SMOOTHNESS = 2.0**-30
SMALLEST_DELTA = Fraction(1, 10**290)
# Changes beyond those that shrink e^{-βk} to this are bounded by the whole range.
SMALLEST_WEIGHT = 2.0**-40
STEPS = 2**40


@dataclass(frozen=True, slots=True)
class SmoothLaplace:
    """Adds discrete Laplace noise of scale 2S/ε to a whole number, S being a β-smooth bound of the local sensitivity.

    Guarantee: (ε, δ), if S(x) ≥ |f(x) − f(x')| and S(x) ≤ e^β·S(x') for all neighbours, with
        β = ln(1 + ε/(2·ln(2/δ))) (Nissim, Raskhodnikova & Smith 2007, with a proof for discrete noise). See
        smooth_sensitivity.md.
    Assumes: the bound is smooth with ``smoothness`` for the stated adjacency; its value is as secret as the data.
    Accuracy: Pr[|error| > m] ≤ 2·e^{−(m+1)ε/2S}; it depends on the data through S, so it mustn't be shown.

    Example:
        >>> mechanism = SmoothLaplace(epsilon=1, delta=1e-6)
        >>> round(mechanism.smoothness, 5)  # a little below ε/(2·ln(2/δ)) = 0.03446
        0.03388
        >>> mechanism.loss().epsilon(delta=1e-6)
        1.0
        >>> SmoothLaplace(epsilon=1, delta=0)
        Traceback (most recent call last):
        dither.errors.InvalidParameter: delta must be greater than 0; got 0
    """

    epsilon: Fraction
    delta: Fraction
    adjacency: Adjacency = Adjacency.ADD_REMOVE
    smoothness: float = field(init=False, repr=False, compare=False)

    def __init__(self, epsilon: Number, delta: Number, adjacency: Adjacency = Adjacency.ADD_REMOVE) -> None:
        exact, chance = positive(epsilon, "epsilon"), positive(delta, "delta")
        if not SMALLEST_DELTA <= chance <= Fraction(1, 2):
            raise InvalidParameter(f"delta must lie between {SMALLEST_DELTA} and 1/2; got {delta!r}")
        if not isinstance(adjacency, Adjacency):
            raise InvalidParameter(f"adjacency must be Adjacency.ADD_REMOVE or Adjacency.REPLACE; got {adjacency!r}")
        object.__setattr__(self, "epsilon", exact)
        object.__setattr__(self, "delta", chance)
        object.__setattr__(self, "adjacency", adjacency)
        tail = up(math.log(2) - math.log(fraction_down(chance)))
        smooth = down(math.log1p(down(fraction_down(exact) / (2 * tail)))) - SMOOTHNESS_SLACK
        if smooth < SMALLEST_SMOOTHNESS:
            raise InvalidParameter("epsilon is too small for smooth sensitivity: use noise of the global sensitivity")
        object.__setattr__(self, "smoothness", smooth)

    def loss(self) -> ApproximateLoss:
        """(ε, δ), known before any data, whatever the bound turns out to be."""
        return ApproximateLoss(self.epsilon, self.delta, self.adjacency)

    def error(self, confidence: Number = 0.95, *, smooth_bound: Number) -> float:
        """The absolute error not exceeded with this confidence; as secret as the bound."""
        scale = fraction_up(self._scale(_bound(smooth_bound)))
        return float(max(0, math.ceil(up(scale * math.log(2 / failure_probability(confidence)))) - 1))

    def release(self, exact: int, smooth_bound: Number, *, source: Source = SYSTEM) -> int:
        """The answer plus noise; a float bound is taken at its exact binary value."""
        if isinstance(exact, bool) or not isinstance(exact, int | np.integer):
            raise InvalidData("the answer must be a whole number; put real answers on a grid first")
        return int(exact) + discrete_laplace(self._scale(_bound(smooth_bound)), source)

    def _scale(self, bound: Fraction) -> Fraction:
        return 2 * bound / self.epsilon

    def law(self, smooth_bound: Number, *, reach: int) -> FiniteLaw:
        """The probabilities of −reach … reach around the answer."""
        q = math.exp(-1 / float(self._scale(_bound(smooth_bound))))
        return FiniteLaw((1 - q) / (1 + q) * q ** np.abs(np.arange(-reach, reach + 1)))


def _bound(smooth_bound: Number) -> Fraction:
    if isinstance(smooth_bound, float | np.floating):
        if not (math.isfinite(smooth_bound) and smooth_bound > 0):
            raise InvalidData("the smooth bound must be a positive, finite number; nothing was drawn")
        return Fraction(float(smooth_bound))
    try:
        exact = as_fraction(smooth_bound, "smooth_bound")
    except InvalidParameter:  # its message would show the bound, which is as secret as the data
        exact = Fraction(0)
    if exact <= 0:
        raise InvalidData("the smooth bound must be a positive, finite number; nothing was drawn")
    return exact


def discrete_laplace(scale: Fraction, source: Source = SYSTEM) -> int:
    """One exact draw with Pr[z] ∝ e^{−|z|/scale}, for a scale of any size that is used once.

    The scale depends on the data here, so no table is made for it (Canonne, Kamath & Steinke 2020, Algorithm 2):
    with scale = t/s, u uniform below t kept with probability e^{−u/t}, plus t times a geometric number of e^{−1},
    is a geometric number of e^{−1/t}; its quotient by s is one of e^{−s/t}; a sign makes it two-sided.
    """
    t, s = scale.numerator, scale.denominator
    while True:
        u = below(t, source)
        if not bernoulli_exp(Fraction(u, t), source):
            continue
        v = 0
        while bernoulli_exp(Fraction(1), source):
            v += 1
        size = (u + t * v) // s
        negative = bool(source.bits(1))
        if size or not negative:
            return -size if negative else size


@dataclass(frozen=True, slots=True)
class SmoothMedian:
    """Releases the median of numbers with noise that is small where the data is dense around the median.

    Guarantee: (ε, δ) under replace, the number of values being public (Nissim, Raskhodnikova & Smith 2007). See
        smooth_sensitivity.md.
    Assumes: each unit contributes one value. Values are clamped to [low, high] and put on a grid of 2^40 steps.
    Accuracy: noise of scale 2S/ε, S being the smooth sensitivity, which ``smooth_sensitivity(values)`` computes: as
        secret as the data.

    Example:
        >>> median = SmoothMedian(epsilon=1, delta=1e-6, low=0, high=100)
        >>> values = [50 + i / 100 for i in range(-500, 501)]
        >>> round(median.smooth_sensitivity(values), 2)  # the global sensitivity is 100
        0.11
        >>> median.loss().adjacency
        <Adjacency.REPLACE: 'replace'>
        >>> median.release([])
        Traceback (most recent call last):
        dither.errors.InvalidData: the values must be a one-dimensional array of at least one number
    """

    noise: SmoothLaplace
    low: Fraction
    high: Fraction

    def __init__(self, epsilon: Number, delta: Number, low: Number, high: Number) -> None:
        bottom, top = as_fraction(low, "low"), as_fraction(high, "high")
        if not bottom < top:
            raise InvalidParameter(f"low must be below high; got {low!r} and {high!r}")
        if not math.isfinite(fraction_up(2 * max(abs(bottom), abs(top)))):
            raise InvalidParameter("low and high must be numbers whose difference fits a float")
        object.__setattr__(self, "noise", SmoothLaplace(epsilon, delta, Adjacency.REPLACE))
        object.__setattr__(self, "low", bottom)
        object.__setattr__(self, "high", top)

    def loss(self) -> ApproximateLoss:
        """(ε, δ) under replace."""
        return self.noise.loss()

    def smooth_sensitivity(self, values: Any) -> float:
        """The smooth bound in the units of the values; as secret as the data."""
        return float(self._step * Fraction(smooth_median_bound(self._on_grid(values), STEPS, self.noise.smoothness)))

    def release(self, values: Any, *, source: Source = SYSTEM) -> float:
        """The lower median of the values plus noise, clamped to [low, high]."""
        sorted_steps = self._on_grid(values)
        bound = smooth_median_bound(sorted_steps, STEPS, self.noise.smoothness)
        noisy = self.noise.release(int(sorted_steps[median_rank(sorted_steps.size)]), bound, source=source)
        return float(self.low + min(max(noisy, 0), STEPS) * self._step)

    @property
    def _step(self) -> Fraction:
        return (self.high - self.low) / STEPS

    def _on_grid(self, values: Any) -> Ints:
        """Sorted grid steps from 0 to 2^40; any fixed rounding will do, as each value is rounded by itself."""
        array = np.asarray(values)
        if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iuf":
            raise InvalidData("the values must be a one-dimensional array of at least one number")
        floats: Floats = array.astype(np.float64)
        if np.isnan(floats).any():
            raise InvalidData("the values must not contain NaN; nothing was drawn")
        low, high = float(self.low), float(self.high)
        share = (np.clip(floats, low, high) - low) / (high - low)
        return np.sort(np.clip(np.rint(share * STEPS), 0, STEPS).astype(np.int64))


def median_rank(size: int) -> int:
    """The place of the lower median among ``size`` sorted values, from 0."""
    return (size - 1) // 2


def smooth_median_bound(sorted_values: Ints, largest: int, smoothness: float) -> float:
    """The β-smooth sensitivity of the lower median of whole numbers in [0, largest], rounded up; O(n log n).

    S = max over i ≤ m ≤ j of (x_j − x_i)·e^{−β(j−i−1)}, where values before the first are 0 and after the last are
    ``largest``. Terms with e^{−βk} below 2^-40 are bounded by that many times ``largest``, for every input alike.
    The best j moves up with i, so that halving the range of i narrows the range of j
    (Nissim, Raskhodnikova & Smith 2007).
    """
    n, m = sorted_values.size, median_rank(sorted_values.size)
    window = math.ceil(-math.log(SMALLEST_WEIGHT) / smoothness)
    # only the nearest of the values beyond each end can be the best one
    left = _padded(sorted_values[max(0, m - window) : m + 1][::-1], 0, reached=m < window)[::-1]
    right = _padded(sorted_values[m : m + window + 1], largest, reached=n - 1 - m < window)
    values = np.concatenate([left, right[1:]]).astype(np.float64)
    weights = np.exp(-smoothness * np.arange(-1, values.size - 1))
    centre = left.size - 1
    best = SMALLEST_WEIGHT * largest
    ranges = [(0, centre, centre, values.size - 1)]
    while ranges:
        first, last, near, far = ranges.pop()
        i = (first + last) // 2
        gains = (values[near : far + 1] - values[i]) * weights[near - i : far - i + 1]
        at = int(np.argmax(gains))
        best = max(best, float(gains[at]))
        if first < i:
            ranges.append((first, i - 1, near, near + at))
        if i < last:
            ranges.append((i + 1, last, near + at, far))
    return best * (1 + BOUND_SLACK)


def _padded(values: Ints, end: int, *, reached: bool) -> Ints:
    return np.append(values, np.int64(end)) if reached else values
