"""COUNT: rows, units or different values, each of which one unit adds to at most a stated number of times."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from dither.query.aggregates.base import (
    DEFAULT_CONFIDENCE,
    PER_GROUP,
    WEIGHT,
    Bools,
    Building,
    Cell,
    Constant,
    Definition,
    Estimate,
    Fixed,
    Ints,
    Linear,
    Mechanisms,
    Noisy,
    Pair,
    Recipe,
    Written,
    counted,
    one,
    the_one,
    where_true,
)
from dither.query.aggregates.spread import Floats
from dither.query.aggregates.sum import clamped
from dither.query.expressions.functions import Typed
from dither.query.kinds import NOTHING, Call, Column, Kind, Literal
from dither.query.measure.clamped_grids import base_step
from dither.query.measure.measures import DistinctValues
from dither.query.plan.plan import Aggregate, Argument, Function
from dither.query.refusals import refused


def _bind(call: Written) -> Aggregate:
    per_group = _bounds(call)
    if call.distinct:
        return _different(call, per_group)
    if not call.star and call.size:
        call.expect(1)
        return _rows(call, call.value(0), per_group)
    if call.size:
        raise refused("types", "COUNT has either * or an argument")
    return _rows(call, one(), per_group)


def _bind_if(call: Written) -> Aggregate:
    per_group = _bounds(call)
    call.expect(1)
    return _rows(call, where_true(call.predicate()), per_group)


def _bind_distinct(call: Written) -> Aggregate:
    return _different(call, _bounds(call))


def _rows(call: Written, value: Typed, per_group: Pair | None) -> Aggregate:
    value = call.over(value)
    every = isinstance(value.expression, Literal) and not value.null
    return Aggregate(function=Function.COUNT, arguments=() if every else (counted(value),), per_group=per_group)


def _different(call: Written, per_group: Pair | None) -> Aggregate:
    if call.size != 1 or call.star:
        raise refused("types", "COUNT(DISTINCT …) needs one argument", "Join several with ||")
    value = call.value(0)
    told = call.over(value)
    arguments = (counted(told),)
    if not _is_unit(call, value):
        # what is known of keys is no part of a question's form, so that it stays the question that it was
        facts = replace(NOTHING, for_keys=told.facts.for_keys or told.facts)
        argument = replace(arguments[0], facts=facts)
        return Aggregate(function=Function.COUNT_DISTINCT, arguments=(argument,), per_group=per_group)
    whole = not call.filtered and isinstance(value.expression, Column)
    return Aggregate(function=Function.COUNT_UNITS, arguments=() if whole else arguments, per_group=per_group)


def _is_unit(call: Written, value: Typed) -> bool:
    """Whether every value is the unit's own id or NULL: the id itself, or CASE WHEN … THEN id END."""
    expression = value.expression
    if not isinstance(expression, Call) or expression.function != "case":
        return call.is_unit(value)
    results = [*expression.arguments[1:-1:2], expression.arguments[-1]]
    ids = [each for each in results if isinstance(each, Column) and each.name in call.units]
    nulls = [each for each in results if isinstance(each, Literal) and each.value is None]
    return bool(ids) and len(ids) + len(nulls) == len(results)


def _bounds(call: Written) -> Pair | None:
    given = call.pair(PER_GROUP)
    if given is None:
        return None
    low, high = given
    if low < 0 or low.denominator != 1 or high.denominator != 1:
        raise refused("options", "bounds of a count are whole numbers from 0")
    if high > call.rows:
        reason = f"the policy lets one unit count as at most {call.rows} rows of a group"
        raise refused("bounds_wider", reason, f"State at most (0, {call.rows})")
    return low, high


def _lower(building: Building, aggregate: Aggregate) -> Recipe:
    """Rows (at most ``rows`` of a unit in a group), units (once) or different values."""
    if aggregate.function is Function.COUNT_DISTINCT:
        cell = Cell(exact=DistinctValues(expression=the_one(aggregate).expression), low=0, high=building.rows)
        return Different(cell=building.cell(cell), most=_possible(the_one(aggregate)))
    most = 1 if aggregate.function is Function.COUNT_UNITS else building.rows
    low, high = 0, most
    if aggregate.per_group is not None and aggregate.function is Function.COUNT:
        low, high = clamped(aggregate.per_group, Fraction(1), 0, most)
    if high == 0:
        return Constant(Fraction(0), whole=True)
    present = tuple(argument.expression for argument in aggregate.arguments)
    once = aggregate.function is Function.COUNT_UNITS
    if once and building.scaled:
        # over all groups
        high = min(building.rows, building.groups)
    place, fine = building.part((), present, (low, high), once=once)
    return Linear(cell=place, step=Fraction(1, fine), whole=True)


def _possible(argument: Argument) -> int | None:
    """How many different values there can be, from public facts; NULL isn't counted."""
    facts = argument.facts.for_keys or argument.facts
    if facts.keys is not None:
        return sum(value is not None for value in facts.keys)
    step = base_step(replace(argument, facts=facts))
    if step is None or facts.bounds is None or facts.auto or not argument.expression.kind.number:
        return None
    return max(0, math.floor(facts.bounds.high / step) - math.ceil(facts.bounds.low / step) + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Different(Recipe):
    """A number of different values, cut at what public facts leave: from 0 to ``most``, where that is known."""

    cell: int
    most: int | None

    @property
    def cells(self) -> tuple[int, ...]:
        """The one it is read off."""
        return (self.cell,)

    @property
    def linear(self) -> tuple[tuple[tuple[int, Fraction], ...], Fraction]:
        """The cell, before it is cut."""
        return ((self.cell, Fraction(1)),), Fraction(0)

    @property
    def affine(self) -> None:
        """None: what is computed is computed from numbers that were cut."""
        return

    def estimate(self, noisy: Noisy, confidence: Fraction = DEFAULT_CONFIDENCE) -> Estimate:
        """The cell plus and minus the exact quantile of its noise, cut at both ends: so it covers as before."""
        found = self._uncut.estimate(noisy, confidence)
        return Estimate.of(*(self._cut(each) for each in (found.value, found.low, found.high)))

    def ends(self, noisy: Noisy, confidence: Fraction) -> tuple[Floats, Floats, Bools]:
        """Its interval; there always is a number."""
        found = self.estimate(noisy, confidence)
        low, high = (each.to_numpy().astype(np.float64) for each in (found.low, found.high))
        return low, high, np.zeros(noisy.size, dtype=np.bool_)

    def error(self, by: Mechanisms, confidence: Fraction) -> Fixed:
        """That of the noise, and no more than there are values."""
        half = self._uncut.error(by, confidence).half
        return Fixed(half if self.most is None else min(half, float(self.most)))

    def spreads(self, by: Mechanisms) -> tuple[float, ...]:
        """Those of the noise, before it is cut."""
        return self._uncut.spreads(by)

    def mechanism(self, by: Mechanisms) -> str:
        """The noise."""
        return self._uncut.mechanism(by)

    @property
    def _uncut(self) -> Linear:
        return Linear(cell=self.cell, step=Fraction(1), whole=True)

    def _cut(self, numbers: pa.Array[Any]) -> Ints:
        return np.asarray(np.clip(numbers.to_numpy(), 0, self.most), dtype=np.int64)


def _definition(name: str, *spellings: str, **more: object) -> Definition:
    return Definition(
        name=name,
        spellings=(name, *spellings),
        lower=_lower,
        kind=lambda _: Kind.INTEGER,
        named=(PER_GROUP, WEIGHT),
        **more,  # type: ignore[arg-type] # fields of their types
    )


DEFINITIONS = (
    _definition(
        "count",
        bind=_bind,
        functions=(Function.COUNT, Function.COUNT_UNITS, Function.COUNT_DISTINCT),
        arguments=("any",),
        examples=("COUNT(*)", "COUNT(day)", "COUNT(DISTINCT customer)", "COUNT(DISTINCT product)"),
        star=True,
        distinct=True,
    ),
    _definition(
        "approx_count_distinct",
        bind=_bind_distinct,
        arguments=("any",),
        examples=("APPROX_COUNT_DISTINCT(day)",),
    ),
    _definition("count_if", "countif", bind=_bind_if, arguments=("boolean",), examples=("COUNT_IF(gift)",)),
)
