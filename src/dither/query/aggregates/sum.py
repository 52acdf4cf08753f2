"""SUM: clamped rows on a grid, of which a unit adds what so many rows can add."""

from __future__ import annotations

from fractions import Fraction

from dither.errors import Refused
from dither.query.aggregates.base import (
    PER_GROUP,
    PER_ROW,
    WEIGHT,
    Building,
    Constant,
    Definition,
    Linear,
    Pair,
    Recipe,
    Written,
    bounded,
    counted,
    shown,
    the_one,
    where_true,
)
from dither.query.kinds import Interval, Kind
from dither.query.measure.clamped_grids import bounds_of, places_of, sum_grid
from dither.query.measure.measures import LARGEST_PART
from dither.query.plan.plan import Aggregate, Argument, Function
from dither.query.refusals import refused

# Sums of integers come out as 64-bit integers unless their step is so large that the product might not fit.
LARGEST_WHOLE_STEP = 2**30


def _bind(call: Written) -> Aggregate:
    call.expect(1)
    value = call.over(call.value(0))
    if value.kind is Kind.BOOLEAN:
        call.expect_named(WEIGHT)
        return Aggregate(function=Function.COUNT, arguments=(counted(where_true(value)),))
    per_row, per_group = call.pair(PER_ROW), call.pair(PER_GROUP)
    argument = bounded(call, value, per_row, per_group)
    if per_group is not None:
        _expect_narrower(call, argument, per_group)
    return Aggregate(function=Function.SUM, arguments=(argument,), per_group=per_group)


def _expect_narrower(call: Written, argument: Argument, given: Pair) -> None:
    bounds = argument.facts.bounds
    if bounds is not None and not argument.facts.auto:
        least, most = min(bounds.low * call.rows, Fraction(0)), max(bounds.high * call.rows, Fraction(0))
        if given[0] < least or given[1] > most:
            reason = f"the policy bounds one unit's sum in a group by {shown(least)} and {shown(most)}"
            raise refused("bounds_wider", reason, "State narrower bounds, or none")


def _lower(building: Building, aggregate: Aggregate) -> Recipe:
    """Clamped rows on a grid; what a unit adds is clamped to what ``rows`` rows can add, or to the stated bounds."""
    argument = the_one(aggregate)
    bounds = bounds_of(argument, aggregate.per_group)
    most = LARGEST_PART // building.rows
    grid = sum_grid(argument, bounds, most, aggregate.per_group)
    if aggregate.per_group is not None and len(set(places_of(aggregate.per_group, grid.step))) == 1:
        # next to bounds of rows as wide as these a group's would vanish: rows are clamped to those of the group first
        grid = sum_grid(argument, _within(bounds, aggregate.per_group), most, aggregate.per_group)
    low, high = building.rows * min(grid.low, 0), building.rows * max(grid.high, 0)
    if aggregate.per_group is not None:
        low, high = clamped(aggregate.per_group, grid.step, low, high)
    integers = argument.expression.kind is Kind.INTEGER
    whole = integers and grid.step.denominator == 1 and grid.step <= LARGEST_WHOLE_STEP
    if low == high == 0:
        # everything is clamped to zero, so the sum says nothing about anybody
        return Constant(Fraction(0), whole=whole)
    cell, fine = building.part((grid.of(argument.expression),), (), (low, high))
    return Linear(cell=cell, step=grid.step / fine, whole=whole)


def _within(bounds: Interval, per_group: Pair) -> Interval:
    """Bounds of rows, clamped to what a group may hold and to zero."""
    low, high = min(per_group[0], Fraction(0)), max(per_group[1], Fraction(0))
    return Interval(min(max(bounds.low, low), high), min(max(bounds.high, low), high))


def clamped(per_group: Pair, step: Fraction, low: int, high: int) -> tuple[int, int]:
    """Bounds stated by the question, in steps, where they are narrower than [low, high]."""
    least, most = places_of(per_group, step)
    if least == most and per_group[0] < per_group[1]:
        raise Refused(
            "the contribution bounds of a group are too close to each other",
            code="bounds_empty",
            hint="State contribution_bounds_per_group => (low, high) further apart, and whole numbers for a COUNT.",
        )
    return min(max(least, low), high), min(max(most, low), high)


def _kind(aggregate: Aggregate) -> Kind:
    """Integers that are clamped to bounds with decimals no longer add up to integers."""
    (argument,) = aggregate.arguments
    bounds = argument.facts.bounds
    ends = [*((bounds.low, bounds.high) if bounds is not None else ()), *(aggregate.per_group or ())]
    return argument.expression.kind if all(end.denominator == 1 for end in ends) else Kind.DOUBLE


DEFINITIONS = (
    Definition(
        name="sum",
        spellings=("sum",),
        bind=_bind,
        functions=(Function.SUM,),
        lower=_lower,
        kind=_kind,
        examples=("SUM(amount)",),
        named=(PER_ROW, PER_GROUP, WEIGHT),
    ),
)
