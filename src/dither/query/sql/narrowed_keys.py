"""What conditions after WHERE leave of the public values of group keys: March to May are three months, not twelve.

Rows that don't fulfil a condition are dropped by WHERE anyway, so a value that no row left can have needs no group.
Only values that follow from bounds are narrowed. What the owner lists stays as it is listed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice

from dither.query.expressions.calendar_keys import where
from dither.query.expressions.functions import Typed
from dither.query.expressions.ranges import steps_between, whole_numbers
from dither.query.kinds import Call, Column, Dated, Expression, Facts, Interval, Kind, Later, Value, constant, number
from dither.query.plan.plan import PlanField
from dither.query.sql.grouping import derived_again
from dither.query.sql.names import Rows

# Conditions behind these are left to WHERE: what they would narrow has groups without rows.
MOST_CONDITIONS = 100
_MIRRORED = {"less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal"}
_RANGES = ("equal", "less", "less_equal", "greater", "greater_equal", "in")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ends:
    """Numbers from ``low`` to ``high``, None where there is no end; without the end itself if it is ``open``."""

    low: Fraction | None = None
    low_open: bool = False
    high: Fraction | None = None
    high_open: bool = False

    def within(self, other: _Ends) -> _Ends:
        """What is in both."""
        low, low_open = max(
            (self.low, self.low_open), (other.low, other.low_open), key=lambda end: (end[0] is not None, *_known(end))
        )
        high, high_open = min(
            (self.high, self.high_open),
            (other.high, other.high_open),
            key=lambda end: (end[0] is None, _known(end)[0], not end[1]),
        )
        return _Ends(low=low, low_open=low_open, high=high, high_open=high_open)

    def multiples_of(self, step: Fraction, bounds: Interval) -> Interval | None:
        """The multiples of a step in it and between bounds, by the first and the last; None if there is none."""
        low, high = math.ceil(bounds.low / step), math.floor(bounds.high / step)
        if self.low is not None:
            place = self.low / step
            low = max(low, math.floor(place) + 1 if self.low_open else math.ceil(place))
        if self.high is not None:
            place = self.high / step
            high = min(high, math.ceil(place) - 1 if self.high_open else math.floor(place))
        return Interval(low * step, high * step) if low <= high else None

    def holds(self, value: Value) -> bool:
        """Whether a number is in it."""
        exact = number(value)
        assert exact is not None
        low, high = self.low, self.high
        above = low is None or exact > low or (exact == low and not self.low_open)
        return above and (high is None or exact < high or (exact == high and not self.high_open))

    def among(self, bounds: Interval) -> Interval | None:
        """The numbers in it and between bounds, with both ends."""
        low = bounds.low if self.low is None else max(bounds.low, self.low)
        high = bounds.high if self.high is None else min(bounds.high, self.high)
        return Interval(low, high) if low <= high else None


def _known(end: tuple[Fraction | None, bool]) -> tuple[Fraction, bool]:
    return end[0] or Fraction(0), end[1]


def narrowed(rows: Rows, conditions: Sequence[Typed]) -> Rows:
    """The rows with what is known of their columns, as group keys, where all conditions are true."""
    visible = [column for source in rows.sources for column in source.columns]
    fields = {column.field.name: column.field for column in visible if column.field is not None}
    dated, ends = list[Dated](), dict[str, _Ends]()
    parts = (part for condition in conditions for part in _parts(condition, fields))
    for part in islice(parts, MOST_CONDITIONS):
        if part.facts.for_keys is not None and part.facts.for_keys.dated is not None:
            dated.append(part.facts.for_keys.dated)
        for column, found in _ends(part.expression):
            ends[column] = ends.get(column, _Ends()).within(found)
    if not dated and not ends:
        return rows

    def known(field: PlanField) -> PlanField:
        facts = where(field.facts, dated)
        if field.name in ends and field.kind.number and not field.unit:
            facts = _between(facts, field.kind, ends[field.name])
        return field if facts is field.facts else replace(field, facts=facts)

    sources = (
        replace(s, columns=tuple(c if c.field is None else replace(c, field=known(c.field)) for c in s.columns))
        for s in rows.sources
    )
    return replace(rows, sources=tuple(sources))


def _parts(condition: Typed, fields: dict[str, PlanField]) -> Iterator[Typed]:
    """The operands of AND, each with its own facts."""
    expression = condition.expression
    if isinstance(expression, Call) and expression.function == "and":
        for argument in expression.arguments:
            yield from _parts(derived_again(argument, fields), fields)
    else:
        yield condition


def _ends(expression: Expression) -> Iterator[tuple[str, _Ends]]:
    """The column and the range of numbers that a comparison with constants states, if it is one."""
    if not isinstance(expression, Call) or expression.function not in _RANGES:
        return
    name, (one, *others) = expression.function, expression.arguments
    if not isinstance(one, Column) and len(others) == 1:
        name, one, others = _MIRRORED.get(name, name), others[0], [one]
    numbers = [value for other in others if (value := number(constant(other))) is not None]
    if not isinstance(one, Column) or len(numbers) < len(others):
        return
    if name in ("equal", "in"):
        yield one.name, _Ends(low=min(numbers), high=max(numbers))
    elif name in ("less", "less_equal"):
        yield one.name, _Ends(high=numbers[0], high_open=name == "less")
    else:
        yield one.name, _Ends(low=numbers[0], low_open=name == "greater")


def _between(facts: Facts, kind: Kind, ends: _Ends) -> Facts:
    """What is known of a number, as a group key, within a range; as it was where nothing is left."""
    known = facts.for_keys or facts
    bounds, step = known.bounds, known.step
    if bounds is None or known.auto or known.dated is not None:
        return facts
    left = ends.among(bounds) if kind is Kind.DOUBLE else ends.multiples_of(step or Fraction(1), bounds)
    if left is None:
        return facts

    def values() -> tuple[Value, ...] | None:
        keys, every = known.keys, _multiples(bounds, step, kind)
        if keys != every:
            # listed by the owner, or not public for another reason than their number
            return keys
        if kind is Kind.DOUBLE:
            # what is compared are the doubles, not the multiples that they stand for
            return None if keys is None else tuple(key for key in keys if ends.holds(key))
        fewer = None if step is None else ends.multiples_of(step, bounds)
        return keys if fewer is None else _multiples(fewer, step, kind)

    later = Later((), values)
    return replace(facts, for_keys=Facts(bounds=left, step=step, keys=later))  # type: ignore[arg-type]


def _multiples(bounds: Interval, step: Fraction | None, kind: Kind) -> tuple[Value, ...] | None:
    return whole_numbers(bounds, step, kind) if kind is Kind.INTEGER else steps_between(bounds, step)
