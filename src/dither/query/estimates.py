"""Estimates: values and intervals of aggregates from released cells and choices; post-processing, so it is free.

Nothing here reads data or draws noise: the same cells give the same values and intervals, bit by bit. Intervals speak
of the noise alone. What clamping, the grid and the bound on contributions did to the exact answer isn't in them.

Values stay unbiased where they can: a noisy count below zero is shown as it is, since cutting it off would make sums of
counts too large. Ratios can't be unbiased; they are kept within what the declared bounds allow. Where the noisy count
isn't clearly above zero nothing is known, whatever the group holds: the interval is all that the bounds allow, and the
value its middle, so that an empty group answers like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dither.mechanisms import DiscreteGaussian, DiscreteLaplace
from dither.query.arrow import array_of
from dither.query.moments import Range, moment_values, moments
from dither.query.recipes import Chosen, Constant, Linear, Mean, Moments, Recipe
from dither.query.spread import half_width, quantile_of_difference, reach_in_squares

Noise: TypeAlias = DiscreteLaplace | DiscreteGaussian
Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]

DEFAULT_CONFIDENCE = Fraction(19, 20)
# Halvings of where an end of a mean's interval may be: it is then known to 2^-20 of that, and moved outward by it.
HALVINGS = 20
LARGEST_INTEGER = 2**61


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """An aggregate's value in each group and the ends of its interval; the ends of choices are NULL."""

    value: pa.Array[Any]
    low: pa.Array[Any]
    high: pa.Array[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Noisy:
    """What was released about ``size`` groups: cells with the law of their noise, and choices."""

    size: int
    cells: Sequence[Ints]
    noise: Sequence[Noise]
    choices: Sequence[npt.NDArray[Any]]


def estimate(recipe: Recipe, noisy: Noisy, confidence: Fraction = DEFAULT_CONFIDENCE) -> Estimate:
    """One aggregate's values, and intervals that cover the exact answers with this probability each."""
    if isinstance(recipe, Constant):
        whole = recipe.whole
        same = np.full(
            noisy.size, int(recipe.value) if whole else float(recipe.value), np.int64 if whole else np.float64
        )
        return _estimate(same, same, same)
    if isinstance(recipe, Linear):
        return _linear(recipe, noisy, confidence)
    if isinstance(recipe, Chosen):
        return _chosen(recipe, noisy)
    if isinstance(recipe, Mean):
        found = _mean(recipe, noisy, confidence)
    else:
        found = moments(recipe, noisy.cells, noisy.noise, confidence)
    return _estimate(found.value, found.low, found.high)


def values(recipe: Recipe, noisy: Noisy) -> pa.Array[Any]:
    """One aggregate's values alone, where intervals aren't needed: much quicker for means and moments."""
    if isinstance(recipe, Mean):
        return pa.array(_on_scale(recipe, _ratio(recipe, noisy)))
    if isinstance(recipe, Moments):
        return pa.array(moment_values(recipe, noisy.cells, noisy.noise))
    return estimate(recipe, noisy).value


def _estimate(value: npt.NDArray[Any], low: npt.NDArray[Any], high: npt.NDArray[Any]) -> Estimate:
    return Estimate(value=pa.array(value), low=pa.array(low), high=pa.array(high))


def _linear(recipe: Linear, noisy: Noisy, confidence: Fraction) -> Estimate:
    """The cell plus and minus the exact quantile of its noise."""
    cell, half = noisy.cells[recipe.cell], noisy.noise[recipe.cell].error(confidence)
    if recipe.whole:
        # of steps beyond the largest answer there is none but zero
        step = min(int(recipe.step), LARGEST_INTEGER + 1)
        bound = LARGEST_INTEGER // step
        reach = int(min(half, bound))
        inside = _within(cell, bound)
        return _estimate(*(_within(inside + d, bound) * step for d in (0, -reach, reach)))
    middle, width = cell.astype(np.float64), float(recipe.step)
    return _estimate(middle * width, (middle - half) * width, (middle + half) * width)


def _within(numbers: Ints, bound: int) -> Ints:
    """Clamped to ±bound: for few numbers, np.clip takes several times as long."""
    inside: Ints = np.minimum(np.maximum(numbers, -bound), bound)
    return inside


def _chosen(recipe: Chosen, noisy: Noisy) -> Estimate:
    drawn = noisy.choices[recipe.choice]
    value: pa.Array[Any]
    if recipe.values is None:
        value = pa.array(drawn.astype(np.float64))
    else:
        value = array_of(recipe.values, recipe.kind).take(pa.array(drawn))
    nothing = pa.nulls(noisy.size, value.type)
    return Estimate(value=value, low=nothing, high=nothing)


def _mean(recipe: Mean, noisy: Noisy, confidence: Fraction) -> Range:
    """A ratio of noisy numbers, with the set of all t for which S − t·C is no larger than its noise (Fieller 1954).

    For the true ratio t₀ of the exact cells, S − t₀·C is the noise N − t₀·M alone, and |N − t·M| ≤ q(t) with the
    stated probability for every t; so the set covers t₀ with it. As q is a norm of (1, t) whose slope is at most
    |M|'s own quantile, the set is an interval wherever C exceeds that quantile.
    """
    sums, counts = _sums_and_counts(recipe, noisy)
    numerator, denominator = noisy.noise[recipe.x.cell], noisy.noise[recipe.count]
    low, high = _ratio_bounds(recipe)
    known = counts > half_width(denominator, confidence)
    ends = _ends(sums, counts, numerator, denominator, confidence, low=low, high=high)
    value, bottom, top = (
        _on_scale(recipe, t)
        for t in (_ratio(recipe, noisy), np.where(known, ends[0], low), np.where(known, ends[1], high))
    )
    return Range(value, np.minimum(bottom, value), np.maximum(top, value))


def _sums_and_counts(recipe: Mean, noisy: Noisy) -> tuple[Floats, Floats]:
    return noisy.cells[recipe.x.cell].astype(np.float64), noisy.cells[recipe.count].astype(np.float64)


def _ratio_bounds(recipe: Mean) -> tuple[float, float]:
    low, high = (float((end - recipe.x.centre) / recipe.x.step) for end in (recipe.low, recipe.high))
    return low, high


def _ratio(recipe: Mean, noisy: Noisy) -> Floats:
    """The mean in steps from the centre; the middle of the bounds where the count isn't clear of its noise."""
    sums, counts = _sums_and_counts(recipe, noisy)
    low, high = _ratio_bounds(recipe)
    clear = counts > half_width(noisy.noise[recipe.count], DEFAULT_CONFIDENCE)
    return np.where(clear, np.clip(sums / np.maximum(counts, 1.0), low, high), (low + high) / 2)


def _on_scale(recipe: Mean, steps: Floats) -> Floats:
    x = recipe.x
    return np.clip(float(x.centre) + float(x.step) * steps, float(recipe.low), float(recipe.high))


def _ends(
    sums: Floats,
    counts: Floats,
    numerator: Noise,
    denominator: Noise,
    confidence: Fraction,
    *,
    low: float,
    high: float,
) -> tuple[Floats, Floats]:
    """Where S − t·C leaves ±q(t), within [low, high]; of use only where the count is clear of its noise."""
    # (S − tC)² = a² + t²b²: the ends for Gaussian noise; for Laplace noise, which adds up to less, they lie inside
    a, b = reach_in_squares(numerator, confidence), reach_in_squares(denominator, confidence)
    square = counts**2 - b**2
    root = np.sqrt(np.maximum((a * counts) ** 2 + (b * sums) ** 2 - (a * b) ** 2, 0.0))
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        outer = [np.where(square > 0, (sums * counts + side * root) / square, side * np.inf) for side in (-1.0, 1.0)]
        middle = np.clip(sums / np.maximum(counts, 1e-300), low, high)
    outer = [np.clip(end, low, high) for end in outer]
    if isinstance(numerator, DiscreteGaussian) and isinstance(denominator, DiscreteGaussian):
        return outer[0], outer[1]
    both = []
    for side, end in zip((-1.0, 1.0), outer, strict=True):
        # S − tC + side·q(t) falls in t: the end is where it crosses zero
        left, right = (np.minimum(end, middle), middle) if side < 0 else (middle, np.maximum(end, middle))
        for _ in range(HALVINGS):
            t = (left + right) / 2
            above = sums - t * counts + side * quantile_of_difference(numerator, denominator, t, confidence) > 0
            left, right = np.where(above, t, left), np.where(above, right, t)
        both.append(left if side < 0 else right)
    return both[0], both[1]
