"""AVG: sums of the distances from both bounds, or a centred sum over a count; and what ratios have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from dither.mechanisms import DiscreteGaussian
from dither.query.aggregates.base import (
    DEFAULT_CONFIDENCE,
    PER_GROUP,
    PER_ROW,
    WEIGHT,
    Bools,
    Building,
    Constant,
    Definition,
    Estimate,
    Mechanisms,
    Noisy,
    PerRow,
    Recipe,
    Written,
    bounded_numbers,
    the_one,
    total_of,
)
from dither.query.aggregates.spread import (
    Floats,
    Noise,
    half_width,
    quantile_of_difference,
    reach_in_squares,
    spread_of_sum,
    widest,
)
from dither.query.kinds import Expression, Interval
from dither.query.measure.clamped_grids import bounds_of, centred_grid
from dither.query.measure.measures import LARGEST_PART, Cap
from dither.query.plan.plan import Aggregate, Argument, Function

# Halvings of where an end of a mean's interval may be: it is then known to 2^-20 of that, and moved outward by it.
HALVINGS = 20
# Where a mean lies between its bounds when ways to measure it are compared.
REFERENCE_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Centred:
    """A sum of values from which ``offset`` steps were taken: the mean is step · (offset + cell / count)."""

    cell: int
    step: Fraction
    offset: int

    @property
    def centre(self) -> Fraction:
        """Where the grid's zero lies."""
        return self.step * self.offset


def centred(building: Building, argument: Argument, present: tuple[Expression, ...]) -> Centred:
    """A cell with a sum around the middle of the bounds, over rows in which nothing of ``present`` is missing."""
    grid = centred_grid(argument, bounds_of(argument), LARGEST_PART // building.rows)
    cell = building.total((grid.of(argument.expression),), present, times(building.rows, grid.centred), Cap.MEAN)
    return Centred(cell=cell, step=grid.step, offset=grid.offset)


def times(rows: int, part: tuple[int, int]) -> tuple[int, int]:
    """What so many rows add up to."""
    return rows * part[0], rows * part[1]


class OverCount(Recipe):
    """What has a noisy count of rows, ``count``, below the line."""

    __slots__ = ()

    count: int

    def ends(self, noisy: Noisy, confidence: Fraction) -> tuple[Floats, Floats, Bools]:
        """Its interval; of no rows, and for samples of one, there is no mean and no variance."""
        found = self.estimate(noisy, confidence)
        few = noisy.cells[self.count] <= half_width(noisy.noise[self.count], confidence) + 1
        return found.low.to_numpy(), found.high.to_numpy(), few


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean(OverCount):
    """AVG: a centred sum over a count, within [low, high]."""

    count: int
    x: Centred
    low: Fraction
    high: Fraction

    @property
    def cells(self) -> tuple[int, ...]:
        """Sum and count."""
        return (self.x.cell, self.count)

    def estimate(self, noisy: Noisy, confidence: Fraction = DEFAULT_CONFIDENCE) -> Estimate:
        """A ratio of noisy numbers, with the set of all t for which S − t·C is no larger than its noise (Fieller 1954).

        For the true ratio t₀ of the exact cells, S − t₀·C is the noise N − t₀·M alone, and |N − t·M| ≤ q(t) with the
        stated probability for every t; so the set covers t₀ with it. As q is a norm of (1, t) whose slope is at most
        |M|'s own quantile, the set is an interval wherever C exceeds that quantile.
        """
        sums, counts = self._sums_and_counts(noisy)
        numerator, denominator = noisy.noise[self.x.cell], noisy.noise[self.count]
        low, high = self._bounds()
        known = counts > half_width(denominator, confidence)
        ends = _ends(sums, counts, numerator, denominator, confidence, low=low, high=high)
        value, bottom, top = (
            _on_scale(self, t)
            for t in (self._ratio(noisy), np.where(known, ends[0], low), np.where(known, ends[1], high))
        )
        return Estimate.of(value, np.minimum(bottom, value), np.maximum(top, value))

    def points(self, noisy: Noisy) -> pa.Array[Any]:
        """The ratio."""
        return pa.array(_on_scale(self, self._ratio(noisy)))

    def _sums_and_counts(self, noisy: Noisy) -> tuple[Floats, Floats]:
        return noisy.cells[self.x.cell].astype(np.float64), noisy.cells[self.count].astype(np.float64)

    def _bounds(self) -> tuple[float, float]:
        low, high = (float((end - self.x.centre) / self.x.step) for end in (self.low, self.high))
        return low, high

    def _ratio(self, noisy: Noisy) -> Floats:
        """The mean in steps from the centre; the middle of the bounds where the count isn't clear of its noise."""
        sums, counts = self._sums_and_counts(noisy)
        low, high = self._bounds()
        clear = counts > half_width(noisy.noise[self.count], DEFAULT_CONFIDENCE)
        return np.where(clear, np.clip(sums / np.maximum(counts, 1.0), low, high), (low + high) / 2)

    def error(self, by: Mechanisms, confidence: Fraction) -> PerRow:
        """Known up to the number of rows: the count's noise weighs most where the mean is at an end of the bounds."""
        top = float(max(self.high - self.x.centre, self.x.centre - self.low) / self.x.step)
        half = widest(by.noise[self.x.cell], by.noise[self.count], top, confidence)
        return PerRow(over_rows=float(self.x.step) * half)

    def spreads(self, by: Mechanisms) -> tuple[float, ...]:
        """The error times the rows, for some means."""
        numerator, denominator = by.noise[self.x.cell], by.noise[self.count]
        low, high = self._bounds()
        slopes = [low + (high - low) * share for share in REFERENCE_SHARES]
        step = float(self.x.step)
        return tuple(spread_of_sum([(step, numerator), (step * t, denominator)], DEFAULT_CONFIDENCE) for t in slopes)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends(Recipe):
    """AVG from its two ends: sums of x − low and of high − x, of which one row adds ``size`` steps to both together.

    So each sum is measured as if it were alone. The mean is step · (first + size · t), with t = above/(above + below).
    """

    above: int
    below: int
    step: Fraction
    first: int
    size: int
    low: Fraction
    high: Fraction

    @property
    def cells(self) -> tuple[int, ...]:
        """Both sums."""
        return (self.above, self.below)

    def estimate(self, noisy: Noisy, confidence: Fraction = DEFAULT_CONFIDENCE) -> Estimate:
        """The share t = U/(U + V), with the set of all t for which (1 − t)·U − t·V is no larger than its noise.

        For the true share of the exact sums that is the noise (1 − t)·N − t·M alone, which is at most q(t) with the
        stated probability, for every t. As q is a norm of (1 − t, t), what is left of the form beyond q is concave in
        t: so it has one zero on either side of the noisy share, or none where an end of the bounds is in the set too.
        """
        middle = self._share(noisy)
        low, high = self._set(noisy, confidence)
        value, bottom, top = (self._on_scale(t) for t in (middle, low, high))
        return Estimate.of(value, np.minimum(bottom, value), np.maximum(top, value))

    def points(self, noisy: Noisy) -> pa.Array[Any]:
        """The mean of the noisy sums."""
        return pa.array(self._on_scale(self._share(noisy)))

    def ends(self, noisy: Noisy, confidence: Fraction) -> tuple[Floats, Floats, Bools]:
        """Its interval; of no rows there is no mean."""
        found = self.estimate(noisy, confidence)
        above, below = self._sums(noisy)
        few = above + below <= self._reach(noisy.noise, confidence, 0.5) * 2 + self.size
        return found.low.to_numpy(), found.high.to_numpy(), few

    def error(self, by: Mechanisms, confidence: Fraction) -> PerRow:
        """Known up to the number of rows: the noise weighs most where the mean is at an end of the bounds."""
        return PerRow(over_rows=float(self.step) * self._reach(by.noise, confidence, 0.0))

    def spreads(self, by: Mechanisms) -> tuple[float, ...]:
        """The error times the rows, for some means."""
        above, below, step = by.noise[self.above], by.noise[self.below], float(self.step)
        ends = ([(step * (1 - t), above), (step * t, below)] for t in REFERENCE_SHARES)
        return tuple(spread_of_sum(each, DEFAULT_CONFIDENCE) for each in ends)

    def rows_for(self, noise: Sequence[Noise], tolerance: Fraction, failure: Fraction) -> float:
        """How many rows are enough for the mean to be within a tolerance, but with the failure probability.

        Of exact sums U, V with noises N, M the noisy share is off by |(1 − t)·N − t·M| / (U + V + N + M). Half of the
        failure is for what is above the line, a quarter for N + M; the rest is left to whoever learns the rows.
        """
        off = float(self.size * self.step / tolerance) * self._reach(noise, 1 - failure / 2, 0.0)
        clear = 2 * self._reach(noise, DEFAULT_CONFIDENCE, 0.5) + 1
        return (max(off, clear) + 2 * self._reach(noise, 1 - failure / 4, 0.5)) / self.size

    def _sums(self, noisy: Noisy) -> tuple[Floats, Floats]:
        return noisy.cells[self.above].astype(np.float64), noisy.cells[self.below].astype(np.float64)

    def _share(self, noisy: Noisy) -> Floats:
        """The middle where both sums together aren't clear of their noise."""
        above, below = self._sums(noisy)
        clear = above + below > 2 * self._reach(noisy.noise, DEFAULT_CONFIDENCE, 0.5)
        return np.where(clear, np.clip(above / np.maximum(above + below, 1.0), 0.0, 1.0), 0.5)

    def _set(self, noisy: Noisy, confidence: Fraction) -> tuple[Floats, Floats]:
        above, below = self._sums(noisy)
        with np.errstate(divide="ignore", invalid="ignore"):
            middle = np.where(above + below > 0, np.clip(above / (above + below), 0.0, 1.0), 0.5)
        found = []
        for side, end in ((-1.0, 0.0), (1.0, 1.0)):

            def beyond(t: Floats, side: float = side) -> Bools:
                form = (1 - t) * above - t * below
                held: Bools = -side * form > self._reaches(noisy.noise, confidence, t)
                return held

            outside = beyond(np.full_like(middle, end))
            # the zero lies between an end that isn't in the set and the noisy share, which is
            inner, outer = middle, np.full_like(middle, end)
            for _ in range(HALVINGS):
                t = (inner + outer) / 2
                out = beyond(t)
                inner, outer = np.where(out, inner, t), np.where(out, t, outer)
            found.append(np.where(outside, outer, end))
        return found[0], found[1]

    def _reach(self, noise: Sequence[Noise], confidence: Fraction, t: float) -> float:
        return float(self._reaches(noise, confidence, np.array([t]))[0])

    def _reaches(self, noise: Sequence[Noise], confidence: Fraction, t: Floats) -> Floats:
        """q(t), a quantile of |(1 − t)·N − t·M|."""
        large, small = np.maximum(1 - t, t), np.minimum(1 - t, t)
        return large * quantile_of_difference(noise[self.above], noise[self.below], small / large, confidence)

    def _on_scale(self, t: Floats) -> Floats:
        return np.clip(float(self.step) * (self.first + self.size * t), float(self.low), float(self.high))


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitEnds(Ends):
    """The same of units, each with its own mean: as many rows as there are units."""

    def error(self, by: Mechanisms, confidence: Fraction) -> PerRow:
        """Known up to the number of units."""
        # named, since a class with slots is made anew, and isn't the one that super() looks for
        return replace(Ends.error(self, by, confidence), counted="units")


def ends_of(
    building: Building, argument: Argument, bounds: Interval, *, missing: bool = False, cap: Cap = Cap.MEAN
) -> tuple[Ends, int | None]:
    """Both ends of one argument, from its centred sum and its count: the engine measures no more than for a mean.

    With ``missing`` a third cell has the rows that have no value, as many steps each: all three add up to all rows.
    """
    rows = cap.rows(building.rows)
    # half of the largest part, since a unit has all of the width in either sum
    grid = centred_grid(argument, bounds, LARGEST_PART // rows // 2)
    low, high = grid.centred
    total = total_of((grid.of(argument.expression),), (), times(rows, grid.centred), cap)
    count = total_of((), (argument.expression,), (0, rows))
    size = high - low
    parts = [((total, 1), (count, -low)), ((total, -1), (count, high))]
    if missing:
        parts.append(((total_of((), (), (0, rows)), size), (count, -size)))
    above, below, *rest = building.basis(size * rows, *parts)
    made = UnitEnds if cap is Cap.UNIT_MEAN else Ends
    ends = made(above=above, below=below, step=grid.step, first=grid.low, size=size, low=bounds.low, high=bounds.high)
    return ends, rest[0] if rest else None


def _bind(call: Written) -> Aggregate:
    return Aggregate(function=Function.AVG, arguments=bounded_numbers(call, 1))


def _lower(building: Building, aggregate: Aggregate) -> Recipe:
    argument = the_one(aggregate)
    bounds = bounds_of(argument)
    if bounds.width == 0:
        return Constant(bounds.low)
    if argument.expression in building.alone and building.rows <= LARGEST_PART // 4:
        return ends_of(building, argument, bounds)[0]
    return Mean(
        count=building.count(argument.expression),
        x=centred(building, argument, ()),
        low=bounds.low,
        high=bounds.high,
    )


def _bind_per_unit(call: Written) -> Aggregate:
    return Aggregate(function=Function.AVG_PER_UNIT, arguments=bounded_numbers(call, 1))


def _lower_per_unit(building: Building, aggregate: Aggregate) -> Recipe:
    """Each unit's mean in the group counts once, whatever its rows: nothing is cut but to the bounds."""
    argument = the_one(aggregate)
    bounds = bounds_of(argument)
    return Constant(bounds.low) if bounds.width == 0 else ends_of(building, argument, bounds, cap=Cap.UNIT_MEAN)[0]


DEFINITIONS = (
    Definition(
        name="avg",
        spellings=("avg", "mean"),
        bind=_bind,
        functions=(Function.AVG,),
        lower=_lower,
        examples=("AVG(amount)",),
        named=(PER_ROW, PER_GROUP, WEIGHT),
    ),
    Definition(
        name="avg_per_unit",
        spellings=("avg_per_unit",),
        bind=_bind_per_unit,
        functions=(Function.AVG_PER_UNIT,),
        lower=_lower_per_unit,
        examples=("AVG_PER_UNIT(amount)",),
        named=(PER_ROW, PER_GROUP, WEIGHT),
    ),
)
