"""Whole-number grids: on which multiples of which step an argument is measured, from public facts alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from dither.errors import Refused
from dither.query.kinds import Expression, Interval, Kind
from dither.query.plan.plan import Argument, Gridded

# Values of this size are still exact as floats, so putting them on a grid loses nothing but the rounding itself.
LARGEST_PLACE = 2**52
# How much finer than the declared step a centred grid is at most: units with too many rows count with their mean,
# rounded down to the grid, and a grid that is fine against the step keeps that from biasing averages.
FINER_BITS = 10
LARGEST_BOUND = Fraction(2) ** 256
# no integer is beyond, and sums of them come out as integers of as many bits
LARGEST_INTEGER = Fraction(2) ** 63
# A bound this near to a multiple of the step, as a share of the largest one, is that multiple: doubles are no finer.
LAST_DIGITS = Fraction(1, 2**45)
# Declared steps are used for quantiles up to this many points; else the bounds are cut into about as many below.
MOST_POINTS = 2**20
DEFAULT_POINTS = 2**16


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeGrid:
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
            hint="Give contribution_bounds_per_row, or have the owner declare between = [low, high] for its columns.",
        )
    if bounds.magnitude > LARGEST_BOUND or 0 < bounds.magnitude < 1 / LARGEST_BOUND:
        raise Refused(
            "the bounds of an aggregate's argument are too large or too small to compute with",
            code="bounds_extreme",
            hint="Have the owner declare bounds between 1e-77 and 1e77 in size, or state such bounds in the question.",
        )
    if argument.expression.kind is not Kind.INTEGER:
        return bounds
    if bounds.low >= LARGEST_INTEGER or bounds.high < -LARGEST_INTEGER:
        # only a search can have found such bounds, by its noise: no value is near them
        bounds = Interval(min(bounds.low, Fraction(0)), max(bounds.high, Fraction(0)))
    return Interval(max(bounds.low, -LARGEST_INTEGER), min(bounds.high, LARGEST_INTEGER - 1))


def base_step(argument: Argument) -> Fraction | None:
    """The declared step; 1 for integers; None where any number may occur."""
    if argument.facts.step is not None:
        return argument.facts.step
    return Fraction(1) if argument.expression.kind is Kind.INTEGER else None


def sum_grid(
    argument: Argument, bounds: Interval, most: int, per_group: tuple[Fraction, Fraction] | None = None
) -> WholeGrid:
    """The grid of a sum: one that holds values and bounds if none exceeds ``most`` steps, else a power of two.

    ``per_group`` are the ends that a unit's sum is clamped to: they are on the grid too.
    """

    def fits(grid: WholeGrid) -> bool:
        return max(abs(grid.low), abs(grid.high)) <= most

    grid = holding(bounds, base_step(argument), per_group or (), fits)
    return grid or _power_of_two(bounds, most, centred=False)


def centred_grid(argument: Argument, bounds: Interval, most: int, finer: int = FINER_BITS) -> WholeGrid:
    """The grid of a mean or a moment: zero lies in the middle of the bounds, which halves what one unit can move.

    Up to ``finer`` bits finer than the step that holds values and bounds (so that the middle is on it), as long as no
    value exceeds ``most`` steps. A step so coarse that bounds hold one multiple of it isn't used: nothing could move,
    and nothing would be measured.
    """

    def fits(grid: WholeGrid) -> bool:
        within = max(abs(place) for place in grid.centred) <= most
        return within and max(abs(grid.low), abs(grid.high)) <= LARGEST_PLACE

    held = holding(bounds, base_step(argument), (), lambda grid: fits(_in_the_middle(grid)))
    if held is None:
        return _power_of_two(bounds, most, centred=True)
    several = (_in_the_middle(_halved(held, bits)) for bits in range(finer, -1, -1))
    return next(grid for grid in several if fits(grid))


def bin_grid(argument: Argument, bounds: Interval) -> WholeGrid:
    """The grid of a quantile, counted from its lower end."""

    def fits(grid: WholeGrid) -> bool:
        return grid.high - grid.low < MOST_POINTS and max(abs(grid.low), abs(grid.high)) <= LARGEST_PLACE

    grid = holding(bounds, base_step(argument), (), fits)
    if grid is None:
        exponent = _ceil_log2(bounds.width / DEFAULT_POINTS) if bounds.width else _ceil_log2(_size(bounds))
        while bounds.magnitude / _two(exponent) > LARGEST_PLACE:
            exponent += 1
        grid = _around(bounds, _two(exponent))
    return replace(grid, offset=grid.low)


def places_of(ends: tuple[Fraction, Fraction], step: Fraction) -> tuple[int, int]:
    """The nearest places of a grid, halves to even, as engines round values.

    Rounding is monotone, so clamping places to these ends is the same as clamping values to the bounds, then rounding.
    """
    return round(ends[0] / step), round(ends[1] / step)


def holding(
    bounds: Interval, step: Fraction | None, others: Sequence[Fraction], fits: Callable[[WholeGrid], bool]
) -> WholeGrid | None:
    """A grid of which all multiples of ``step``, the bounds and the others are points; None where values have no step.

    Values beyond the bounds are clamped to them: a grid that doesn't hold the bounds would clamp to something else. Its
    step is the greatest common divisor. If that one is too fine, the step is halved as often as fits: values stay exact
    and bounds go to the nearest point. None too if not even the step itself fits, or bounds that differ became one.
    """
    if step is None:
        return None
    ends = [_on(end, step, bounds.magnitude) for end in (bounds.low, bounds.high)]

    def usable(grid: WholeGrid) -> bool:
        return fits(grid) and (grid.low < grid.high or not bounds.width)

    grid = _near(Interval(ends[0], ends[1]), common_step([step, *ends, *others]))
    if usable(grid):
        return grid
    # no grid has more places than LARGEST_PLACE on a side
    finest = max(_ceil_log2(step * LARGEST_PLACE / _size(bounds)), 0)
    finer = (_near(bounds, step / 2**bits) for bits in range(finest, -1, -1))
    return next((grid for grid in finer if usable(grid)), None)


def _on(end: Fraction, step: Fraction, size: Fraction) -> Fraction:
    """The multiple of the step that a bound is meant to be, if they differ by no more than doubles are rounded by.

    Bounds of doubles are doubles: that of amount * 0.1 may be 3.3000000000000003, of which no step is a divisor.
    """
    multiple = round(end / step) * step
    return multiple if abs(end - multiple) <= size * LAST_DIGITS else end


def holds_bounds(argument: Argument, per_group: tuple[Fraction, Fraction] | None) -> bool:
    """Whether all bounds are multiples of the argument's own step: then every version clamps to the same values.

    dither 0.1.0 measured on multiples of that step alone, and rounded other bounds inwards.
    """
    step, bounds = base_step(argument), argument.facts.bounds
    if step is None:
        return True
    ends = [*(per_group or ()), *((bounds.low, bounds.high) if bounds else ())]
    size = max((abs(end) for end in ends), default=Fraction(0))
    return all(_on(end, step, size) % step == 0 for end in ends)


def common_step(numbers: Sequence[Fraction]) -> Fraction:
    """The largest number of which all are whole multiples; zeros take part in any.

    Example:
        >>> common_step([Fraction(60), Fraction(100), Fraction(0)]), common_step([Fraction(1), Fraction(21, 2)])
        (Fraction(20, 1), Fraction(1, 2))
    """
    denominator = math.lcm(*(number.denominator for number in numbers))
    return Fraction(math.gcd(*(int(number * denominator) for number in numbers)), denominator)


def _power_of_two(bounds: Interval, most: int, *, centred: bool) -> WholeGrid:
    exponent = _ceil_log2(_size(bounds) / LARGEST_PLACE)
    while True:
        grid = _around(bounds, _two(exponent))
        if centred:
            grid = _in_the_middle(grid)
        if max(abs(place) for place in grid.centred) <= most:
            return grid
        exponent += 1


def _near(bounds: Interval, step: Fraction) -> WholeGrid:
    low, high = places_of((bounds.low, bounds.high), step)
    return WholeGrid(step=step, low=low, high=high)


def _around(bounds: Interval, step: Fraction) -> WholeGrid:
    """The nearest places of the bounds; those outside of them where both have the same, though they differ."""
    near = _near(bounds, step)
    if near.low < near.high or bounds.width == 0:
        return near
    return WholeGrid(step=step, low=math.floor(bounds.low / step), high=math.ceil(bounds.high / step))


def _halved(grid: WholeGrid, bits: int) -> WholeGrid:
    return WholeGrid(step=grid.step / 2**bits, low=grid.low << bits, high=grid.high << bits)


def _in_the_middle(grid: WholeGrid) -> WholeGrid:
    return replace(grid, offset=(grid.low + grid.high) // 2)


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
