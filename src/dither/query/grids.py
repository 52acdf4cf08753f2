"""Whole-number grids: on which multiples of which step an argument is measured, from public facts alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dither.errors import Refused
from dither.query.expressions import Expression
from dither.query.kinds import Interval, Kind
from dither.query.plan import Argument, Gridded

# Values of this size are still exact as floats, so putting them on a grid loses nothing but the rounding itself.
LARGEST_PLACE = 2**52
# How much finer than the declared step a centred grid is at most: units with too many rows count with their mean,
# rounded down to the grid, and a grid that is fine against the step keeps that from biasing averages.
FINER_BITS = 10
LARGEST_BOUND = Fraction(2) ** 256
# Declared steps are used for quantiles up to this many points; else the bounds are cut into about as many below.
MOST_POINTS = 2**20
DEFAULT_POINTS = 2**16


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Steps, ends and offset; ``low`` and ``high`` are multiples of ``step``."""

    step: Fraction
    low: int
    high: int
    offset: int = 0

    def of(self, expression: Expression) -> Gridded:
        """An expression on this grid."""
        return Gridded(expression=expression, step=self.step, low=self.low, high=self.high, offset=self.offset)

    @property
    def centred(self) -> tuple[int, int]:
        """The smallest and the largest value that comes out."""
        return self.low - self.offset, self.high - self.offset


def bounds_of(argument: Argument, per_group: tuple[Fraction, Fraction] | None = None) -> Interval:
    """The bounds of one row's value; refused where nothing is declared.

    Where only the unit's sum is bounded, a row may be as large as that sum.
    """
    bounds = argument.facts.bounds
    if bounds is None and per_group is not None:
        bounds = Interval(min(per_group[0], Fraction(0)), max(per_group[1], Fraction(0)))
    if bounds is None:
        raise Refused(
            "the bounds of an aggregate's argument aren't known",
            code="bounds_unknown",
            hint="Declare between = [low, high] for its columns in the policy, or give contribution_bounds_per_row.",
        )
    if bounds.magnitude > LARGEST_BOUND or 0 < bounds.magnitude < 1 / LARGEST_BOUND:
        raise Refused(
            "the bounds of an aggregate's argument are too large or too small to compute with",
            code="bounds_extreme",
            hint="Declare bounds between 1e-77 and 1e77 in size.",
        )
    return bounds


def base_step(argument: Argument) -> Fraction | None:
    """The declared step; 1 for integers; None where any number may occur."""
    if argument.facts.step is not None:
        return argument.facts.step
    return Fraction(1) if argument.expression.kind is Kind.INTEGER else None


def sum_grid(argument: Argument, bounds: Interval, most: int) -> Grid:
    """The grid of a sum: the declared step if no value exceeds ``most`` steps, else the smallest power of two."""
    step = base_step(argument)
    if step is not None and bounds.magnitude / step <= most and (grid := _inside(bounds, step)) is not None:
        return grid
    return _power_of_two(bounds, most, centred=False)


def centred_grid(argument: Argument, bounds: Interval, most: int) -> Grid:
    """The grid of a mean or a moment: zero lies in the middle of the bounds, which halves what one unit can move.

    At least one bit finer than the declared step (so that the middle is on it), if no value exceeds ``most`` steps. A
    step so coarse that bounds hold one multiple of it isn't used: nothing could move, and nothing would be measured.
    """
    step = base_step(argument)
    if step is not None and (whole := _inside(bounds, step)) is not None and whole.low < whole.high:
        for bits in range(FINER_BITS, -1, -1):
            low, high = whole.low << bits, whole.high << bits
            offset = (low + high) // 2
            if max(high - offset, offset - low) <= most and max(abs(low), abs(high)) <= LARGEST_PLACE:
                return Grid(step=step / 2**bits, low=low, high=high, offset=offset)
    return _power_of_two(bounds, most, centred=True)


def bin_grid(argument: Argument, bounds: Interval) -> Grid:
    """The grid of a quantile, counted from its lower end."""
    step = base_step(argument)
    grid = _inside(bounds, step) if step is not None else None
    if grid is None or grid.high - grid.low >= MOST_POINTS or max(abs(grid.low), abs(grid.high)) > LARGEST_PLACE:
        exponent = _ceil_log2(bounds.width / DEFAULT_POINTS) if bounds.width else _ceil_log2(_size(bounds))
        while bounds.magnitude / _two(exponent) > LARGEST_PLACE:
            exponent += 1
        grid = _outside(bounds, _two(exponent))
    return Grid(step=grid.step, low=grid.low, high=grid.high, offset=grid.low)


def _power_of_two(bounds: Interval, most: int, *, centred: bool) -> Grid:
    exponent = _ceil_log2(_size(bounds) / LARGEST_PLACE)
    while True:
        grid = _outside(bounds, _two(exponent))
        if centred:
            grid = Grid(step=grid.step, low=grid.low, high=grid.high, offset=(grid.low + grid.high) // 2)
        if max(abs(place) for place in grid.centred) <= most:
            return grid
        exponent += 1


def _inside(bounds: Interval, step: Fraction) -> Grid | None:
    """The multiples of a declared step within the bounds; None if there is none."""
    low, high = math.ceil(bounds.low / step), math.floor(bounds.high / step)
    return Grid(step=step, low=low, high=high) if low <= high else None


def _outside(bounds: Interval, step: Fraction) -> Grid:
    return Grid(step=step, low=math.floor(bounds.low / step), high=math.ceil(bounds.high / step))


def _size(bounds: Interval) -> Fraction:
    return bounds.magnitude or Fraction(1)


def _two(exponent: int) -> Fraction:
    return Fraction(2) ** exponent


def _ceil_log2(value: Fraction) -> int:
    """The smallest e with value ≤ 2^e."""
    exponent = value.numerator.bit_length() - value.denominator.bit_length() - 1
    while _two(exponent) < value:
        exponent += 1
    return exponent
