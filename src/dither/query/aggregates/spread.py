"""The spread of noise and of ratios of noisy numbers: quantiles in closed form, a little on the wide side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from dither.mechanisms import DiscreteGaussian, DiscreteLaplace

Noise: TypeAlias = DiscreteLaplace | DiscreteGaussian
Floats: TypeAlias = npt.NDArray[np.float64]
Box: TypeAlias = tuple[Floats, Floats]
Bools: TypeAlias = npt.NDArray[np.bool_]

# Ratios of two scales, at which quantiles are tabled.
RATIOS = np.linspace(0.0, 1.0, 513)
# Whole-number noise is no further from zero than rounded continuous noise, that is, than continuous noise plus this.
HALF = 0.5


def normal_quantile(confidence: Fraction) -> float:
    """The z with Pr[|N(0, 1)| ≤ z] = confidence."""
    return -float(ndtri(float(1 - confidence) / 2))


def laplace_quantile(confidence: Fraction) -> float:
    """The t with Pr[|Laplace(1)| ≤ t] = confidence."""
    return -math.log(float(1 - confidence))


def half_width(noise: Noise, confidence: Fraction) -> float:
    """A distance that the noise doesn't exceed with this confidence, not only at whole numbers.

    The discrete Laplace law is more peaked than the rounded continuous one: 2q^{m+1}/(1+q) ≤ q^{m+½}.
    """
    unit = normal_quantile(confidence) if isinstance(noise, DiscreteGaussian) else laplace_quantile(confidence)
    return float(noise.scale) * unit + HALF


def standard_deviation(noise: Noise) -> float:
    """The noise's standard deviation, or a little more."""
    scale = float(noise.scale)
    return scale if isinstance(noise, DiscreteGaussian) else math.sqrt(2) * scale


def multiplier(noise: Noise, confidence: Fraction) -> float:
    """How many standard deviations a sum of independent noises of this law stays within, at this confidence.

    For sums of Laplace noises the larger of what one of them and what infinitely many would need: tests/unit compares
    with the exact quantiles of weighted sums.
    """
    normal = normal_quantile(confidence)
    if isinstance(noise, DiscreteGaussian):
        return normal
    return max(normal, laplace_quantile(confidence) / math.sqrt(2))


def reach_in_squares(noise: Noise, confidence: Fraction) -> float:
    """A reach of the noise such that the reaches of several, added in squares, bound their weighted sum."""
    return multiplier(noise, confidence) * standard_deviation(noise) + HALF


def quantile_of_sum(weights: Sequence[tuple[float, Noise]], confidence: Fraction) -> float:
    """A distance that Σ wᵢ·Nᵢ, of independent noises of one law, doesn't exceed with this confidence.

    One noise: its exact quantile. Two Laplace noises: theirs. Else spreads add in squares.
    """
    if not weights:
        return 0.0
    (weight, noise), *others = weights
    if not others:
        return abs(weight) * noise.error(confidence)
    if len(others) == 1 and weight and not isinstance(noise, DiscreteGaussian):
        return abs(weight) * widest(noise, others[0][1], others[0][0] / weight, confidence)
    return math.hypot(*(each * reach_in_squares(one, confidence) for each, one in weights))


def spread_of_sum(weights: Sequence[tuple[float, Noise]], confidence: Fraction) -> float:
    """As ``quantile_of_sum`` of continuous noises: ways of measuring are compared by it, however little noise is."""
    sizes = sorted((abs(weight) * float(noise.scale) for weight, noise in weights), reverse=True)
    if not sizes or not sizes[0]:
        return 0.0
    if any(isinstance(noise, DiscreteGaussian) for _, noise in weights):
        return normal_quantile(confidence) * math.hypot(*sizes)
    if len(sizes) <= 2:
        ratio = sizes[1] / sizes[0] if len(sizes) == 2 else 0.0
        return sizes[0] * float(np.interp(ratio, RATIOS, _laplace_table(confidence)))
    return multiplier(weights[0][1], confidence) * math.sqrt(2) * math.hypot(*sizes)


def widest(numerator: Noise, denominator: Noise, slope: float, confidence: Fraction) -> float:
    """The quantile q(t) of |N − t·M| for independent noises N, M of one law, at t = ``slope``."""
    return float(quantile_of_difference(numerator, denominator, np.array([slope]), confidence)[0])


def quantile_of_difference(numerator: Noise, denominator: Noise, slopes: Floats, confidence: Fraction) -> Floats:
    """q(t) for an array of slopes.

    Gaussian: scales add in squares. Laplace: from a table of the exact quantile on either side of equal scales. The
    quantile is a norm of (1, t), as for every symmetric log-concave law (Bobkov 2010), hence convex, so a chord of the
    table lies above it.
    """
    size = np.abs(slopes)
    if isinstance(numerator, DiscreteGaussian) and isinstance(denominator, DiscreteGaussian):
        return np.hypot(half_width(numerator, confidence), size * half_width(denominator, confidence))
    a, b = float(numerator.scale), float(denominator.scale) * size
    large, small = np.maximum(a, b), np.minimum(a, b)
    table = _laplace_table(confidence)
    place = (RATIOS.size - 1) * (small / large)
    before = np.minimum(place.astype(np.int64), RATIOS.size - 2)
    unit: Floats = table[before] + (place - before) * (table[before + 1] - table[before])
    return large * unit + HALF * (1 + size)


@lru_cache(maxsize=64)
def _laplace_table(confidence: Fraction) -> Floats:
    """The quantile of |X + r·Y| for unit Laplace X, Y and r from 0 to 1: the root of its closed-form tail."""
    ratio = RATIOS
    low, high = np.zeros_like(ratio), np.full_like(ratio, 2 * laplace_quantile(confidence) + 2)
    failure = float(1 - confidence)
    for _ in range(50):
        middle = (low + high) / 2
        beyond = _laplace_tail(middle, ratio) > failure
        low, high = np.where(beyond, middle, low), np.where(beyond, high, middle)
    return high * (1 + 1e-9)


def _laplace_tail(u: Floats, r: Floats) -> Floats:
    """Pr[|X + r·Y| > u] = (e^−u − r²e^{−u/r})/(1 − r²), and (1 + u/2)e^−u for r = 1."""
    inner, equal = (r > 0) & (r < 1), r == 1
    safe = np.where(inner, r, 0.5)
    mixed = (np.exp(-u) - safe**2 * np.exp(-u / safe)) / (1 - safe**2)
    return np.where(equal, (1 + u / 2) * np.exp(-u), np.where(inner, mixed, np.exp(-u)))


# ---------------------------------------------------------------------------------------------- boxes


def hull(several: Sequence[Floats]) -> Box:
    """Of several numbers, the least and the largest in each group."""
    return np.minimum.reduce(several), np.maximum.reduce(several)


def hull_of_products(a: Box, b: Box) -> Box:
    """Where products of two lie."""
    return hull([x * y for x in a for y in b])


def hull_of_differences(a: Box, b: Box) -> Box:
    """Where differences of two lie."""
    return a[0] - b[1], a[1] - b[0]


def largest_size(ends: Box) -> Floats:
    """The largest size."""
    return np.maximum(np.abs(ends[0]), np.abs(ends[1]))


def inverted(g: Box, kappa: Box, noises: Floats, n: Floats, h: float) -> Box:
    """The ends of all v with |g − v·n| ≤ √(P + (κ − v)²h²), for some g and κ in their boxes; infinite if n ≤ h.

    For fixed g and κ they are an interval, whose ends grow with g; ``noises`` is the largest P.
    """
    ends = []
    for side, one in zip((-1.0, 1.0), g, strict=True):
        found = hull([_solution(one, each, noises, n, h, side) for each in kappa])
        outer = found[0] if side < 0 else found[1]
        ends.append(np.where((n > h) & ~np.isnan(outer), outer, side * np.inf))
    return ends[0], ends[1]


def _solution(g: Floats, kappa: Floats, noises: Floats, n: Floats, h: float, side: float) -> Floats:
    """The v with v·n = g ± √(P + (κ − v)²h²)."""
    root = np.sqrt(np.maximum((h * (g - kappa * n)) ** 2 + noises * (n**2 - h**2), 0.0))
    found: Floats = (g * n - kappa * h**2 + side * root) / (n**2 - h**2)
    return found


def hull_of_correlations(across: Box, first: Box, second: Box) -> Box:
    """c/√(v·w) over the box of the three; where a variance may be zero, as far as ±1."""
    least = np.sqrt(np.maximum(first[0], 0.0) * np.maximum(second[0], 0.0))
    most = np.sqrt(np.maximum(first[1], 0.0) * np.maximum(second[1], 0.0))

    def over(numerator: Floats, denominator: Floats) -> Floats:
        bounded = np.where(denominator > 0, numerator / np.where(denominator > 0, denominator, 1.0), np.inf * numerator)
        kept: Floats = np.clip(np.nan_to_num(bounded, nan=0.0), -1.0, 1.0)
        return kept

    low = np.where(across[0] < 0, over(across[0], least), over(across[0], most))
    high = np.where(across[1] > 0, over(across[1], least), over(across[1], most))
    return low, high


def ratios_of_spreads(first: Box, second: Box) -> tuple[Bools, Box, Box]:
    """Where √(v/w) lies over the boxes of two variances, and its inverse; first of all whether both boxes are known."""
    (low_x, high_x), (low_y, high_y) = first, second
    known: Bools = (low_x > 0) & (low_y > 0) & np.isfinite(high_x) & np.isfinite(high_y)
    s = np.sqrt(low_y / high_x), np.sqrt(high_y / low_x)
    return known, s, (1 / s[1], 1 / s[0])


def hull_of_mean_squares(first: Box, second: Box, s: Box) -> Box:
    """Where (s·v + w/s)/2 lies: no less than the geometric mean; convex in s, so no more than at the ends of s."""
    bottoms = [np.maximum(total[0], 0.0) for total in (first, second)]
    return np.sqrt(bottoms[0] * bottoms[1]), np.maximum(*((t * first[1] + second[1] / t) / 2 for t in s))
