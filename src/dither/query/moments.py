"""Variances, covariances and correlations from noisy sums, with intervals from moving each sum by its noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dither.mechanisms import DiscreteGaussian, DiscreteLaplace
from dither.query.plan import Function
from dither.query.recipes import Centred, Moments, Product
from dither.query.spread import half_width, multiplier, standard_deviation

Noise: TypeAlias = DiscreteLaplace | DiscreteGaussian
Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
Cells: TypeAlias = Mapping[int, Floats]

DEFAULT_CONFIDENCE = Fraction(19, 20)
# Variances below this share of the largest possible one count as none in a correlation.
SMALLEST_SHARE = 1e-12
SAMPLES = (Function.VAR_SAMP, Function.STDDEV_SAMP, Function.COVAR_SAMP)
ROOTS = (Function.STDDEV_POP, Function.STDDEV_SAMP)
COVARIANCES = (Function.COVAR_POP, Function.COVAR_SAMP)


@dataclass(frozen=True, slots=True)
class Range:
    """Values and the ends of their intervals."""

    value: Floats
    low: Floats
    high: Floats


def moments(recipe: Moments, cells: Sequence[Ints], noise: Sequence[Noise], confidence: Fraction) -> Range:
    """The aggregate and its interval in each group.

    Each noisy sum is moved by its own half width, up and down, and the changes of the result are added in squares, each
    side by itself: the delta method with secants for slopes, so that curvature widens the side it bends to. Measured
    coverage is in tests/noise/test_release.py; it isn't a theorem.
    """
    floats = {cell: cells[cell].astype(np.float64) for cell in recipe.cells}
    counts = floats[recipe.count]
    lowest, highest = _limits(recipe)
    clear = counts > half_width(noise[recipe.count], DEFAULT_CONFIDENCE)
    known = counts > half_width(noise[recipe.count], confidence)
    if recipe.function is Function.CORR:
        known &= _variances_clear(recipe, cells, noise, confidence)
    statistic = _statistic(recipe)
    raw = statistic(floats)
    up, down = np.zeros_like(counts), np.zeros_like(counts)
    times = multiplier(noise[recipe.count], confidence)
    for cell in recipe.cells:
        move = times * standard_deviation(noise[cell])
        ends = [statistic({**floats, cell: floats[cell] + side * move}) - raw for side in (-1.0, 1.0)]
        up += np.maximum(np.maximum(ends[0], ends[1]), 0.0) ** 2
        down += np.minimum(np.minimum(ends[0], ends[1]), 0.0) ** 2
    middle = 0.0 if lowest < 0 else (lowest + highest) / 2
    value = np.where(clear, np.clip(raw, lowest, highest), middle)
    low = np.where(known, np.clip(raw - np.sqrt(down), lowest, highest), lowest)
    high = np.where(known, np.clip(raw + np.sqrt(up), lowest, highest), highest)
    found = Range(value, np.minimum(low, value), np.maximum(high, value))
    if recipe.function in ROOTS:
        return Range(np.sqrt(found.value), np.sqrt(found.low), np.sqrt(found.high))
    return found


def _variances_clear(
    recipe: Moments, cells: Sequence[Ints], noise: Sequence[Noise], confidence: Fraction
) -> npt.NDArray[np.bool_]:
    """Where both variances are surely above zero; elsewhere a correlation could be anything."""
    clear = np.ones(cells[recipe.count].shape, dtype=np.bool_)
    for part, square, half in ((recipe.x, recipe.xx, recipe.half_x), (recipe.y, recipe.yy, recipe.half_y)):
        assert part is not None
        variance = replace(
            recipe, function=Function.VAR_POP, x=part, y=None, xx=square, yy=None, xy=None, half_x=half, half_y=half
        )
        clear &= moments(variance, cells, noise, confidence).low > SMALLEST_SHARE * float(half**2)
    return clear


def _limits(recipe: Moments) -> tuple[float, float]:
    """What the bounds allow: a variance is at most the square of half their width, twice that for samples of two."""
    if recipe.function is Function.CORR:
        return -1.0, 1.0
    largest = float(recipe.half_x * recipe.half_y) * (2 if recipe.function in SAMPLES else 1)
    return (-largest if recipe.function in COVARIANCES else 0.0), largest


def _statistic(recipe: Moments) -> Callable[[Cells], Floats]:
    """The variance (of which the root is taken last), covariance or correlation as a function of the sums."""
    x, y = recipe.x, recipe.y or recipe.x

    def covariance(cells: Cells, left: Centred, right: Centred, product: Product) -> Floats:
        n = np.maximum(cells[recipe.count], 1.0)
        mean = float(product.area) * cells[product.cell] / n
        return mean - _off(cells, left, product.centres[0], n) * _off(cells, right, product.centres[1], n)

    def plain(cells: Cells) -> Floats:
        product = recipe.xy or recipe.xx
        assert product is not None
        found = covariance(cells, x, y, product)
        if recipe.function in SAMPLES:
            n = np.maximum(cells[recipe.count], 2.0)
            found = found * (n / (n - 1))
        return found

    def correlation(cells: Cells) -> Floats:
        assert recipe.xx is not None
        assert recipe.yy is not None
        assert recipe.xy is not None
        across = covariance(cells, x, y, recipe.xy)
        variances = [covariance(cells, x, x, recipe.xx), covariance(cells, y, y, recipe.yy)]
        least = [SMALLEST_SHARE * float(half**2) for half in (recipe.half_x, recipe.half_y)]
        scale = np.sqrt(np.maximum(variances[0], least[0])) * np.sqrt(np.maximum(variances[1], least[1]))
        # a variance lost in noise says nothing
        nothing = (variances[0] <= least[0]) | (variances[1] <= least[1])
        return np.where(nothing, 0.0, across / scale)

    return correlation if recipe.function is Function.CORR else plain


def _off(cells: Cells, part: Centred, centre: Fraction, n: Floats) -> Floats:
    """The mean, from the centre of a product's grid."""
    return float(part.centre - centre) + float(part.step) * cells[part.cell] / n
