"""Public values of expressions over one column of dates with bounds: every calendar day, hour or month between them.

The bounds of the column, cut down by conditions on it that a question states, hold finitely many stretches of time on
each of which the expression has one value: the years for year(d), the hours for date_trunc('hour', d), the days before
and after the constant that d is compared with. The expression is computed once in each of them, as engines compute it.

What comes out depends on the policy and on the text alone, so privacy doesn't rest on it: a value that was missing
would be left out of an answer, and one too many has noise and nothing else. NULL is among the values only where the
expression makes it of a date, or where a join does.
"""

from __future__ import annotations

import datetime as dt
import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from dither.query.expressions.evaluation import compiled, moment
from dither.query.expressions.public_values import Uncertain
from dither.query.kinds import (
    Calendar,
    Call,
    Column,
    Dated,
    Expression,
    Facts,
    Interval,
    Kind,
    Later,
    Literal,
    Value,
    ascending,
)
from dither.query.refusals import spend

MOST_MOMENTS = 30_000
MOST_KEYS = 10_000
# Larger expressions are left to the rules for lists of values.
LARGEST = 200
# Engines and Python agree on these; beyond, sums leave what Python can write.
FIRST_YEAR, LAST_YEAR = 1, 9998

_MICROSECOND = dt.timedelta(microseconds=1)
_DAY = dt.timedelta(days=1)
_FIXED = {"hour": dt.timedelta(hours=1), "minute": dt.timedelta(minutes=1), "second": dt.timedelta(seconds=1)}
_MONTHS = {"year": 12, "quarter": 3, "month": 1}
# from coarse to fine: an expression that changes with a coarser one changes with the finer one at most
_UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "exact")
_PARTS = {
    **dict.fromkeys(("year", "quarter", "month", "week", "day", "hour", "minute", "second")),
    "day_of_week": "day",
    "day_of_year": "day",
}
_COMPARED = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "distinct_from", "in", "nullif")
_MIRRORED = {"less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal"}

Moments: TypeAlias = Iterator[dt.datetime]


class _TooMany(Exception):  # noqa: N818 - never leaves this module
    """There are more stretches of time than are computed one by one."""


# ---------------------------------------------------------------------------------------------- facts


def calendar_of(bounds: Interval, kind: Kind) -> Calendar | None:
    """The calendar between bounds as policies have them: days, or microseconds, since 1970; None beyond its years."""
    day, time = dt.date(1970, 1, 1), dt.datetime(1970, 1, 1)  # noqa: DTZ001 - timestamps without a zone are UTC
    try:
        ends = [
            day + int(end) * _DAY if kind is Kind.DATE else time + int(end) * _MICROSECOND
            for end in (bounds.low, bounds.high)
        ]
    except OverflowError:
        return None
    first, last = ends
    return Calendar(kind, first, last) if first.year >= FIRST_YEAR and last.year <= LAST_YEAR else None


def column_of(calendar: Calendar) -> Facts:
    """What is known of the column itself, as a group key."""
    return dated_facts(Facts(), Dated(calendar=calendar, expression=Column("x", calendar.kind)))


def dated_facts(otherwise: Facts, dated: Dated) -> Facts:
    """The facts of an expression over dates; ``otherwise`` is what is known without looking at the calendar."""

    def values() -> tuple[Value, ...] | None:
        universe = otherwise.keys
        found = listed(dated, None if universe is None else frozenset(universe))
        return universe if found is None else found

    later = Later((), values)
    return Facts(bounds=otherwise.bounds, step=otherwise.step, keys=later, dated=dated)  # type: ignore[arg-type]


def called(name: str, arguments: Sequence[tuple[Expression, Dated | None]], kind: Kind) -> Dated | None:
    """A call on expressions over dates: None where it reads another column too, or several calendars."""
    found = [dated for _, dated in arguments if dated is not None]
    if not found or any(dated.calendar is not found[0].calendar or dated.nullable for dated in found):
        return None
    if any(dated is None and not isinstance(expression, Literal) for expression, dated in arguments):
        return None
    size = 1 + sum(dated.size for dated in found) + len(arguments)
    if size > LARGEST:
        return None
    parts = tuple(expression if dated is None else dated.expression for expression, dated in arguments)
    conditions = tuple(dict.fromkeys(condition for dated in found for condition in dated.conditions))
    return Dated(calendar=found[0].calendar, expression=Call(name, parts, kind), conditions=conditions, size=size)


def where(facts: Facts, conditions: Sequence[Dated]) -> Facts:
    """The facts of a value whose rows fulfil conditions; those on other dates say nothing of it."""
    known = facts.for_keys
    if known is None or known.dated is None:
        return facts
    dated = known.dated
    for one in conditions:
        size = dated.size + one.size
        if one.calendar is dated.calendar and one.expression not in dated.conditions and size <= LARGEST:
            dated = replace(dated, conditions=(*dated.conditions, one.expression), size=size)
    # the list without these conditions is an upper end, and what is left if they can't be computed
    return facts if dated is known.dated else replace(facts, for_keys=dated_facts(known, dated))


def apart(facts: Facts) -> Facts:
    """The same for a value of another row: its dates aren't those of the row's own columns any more."""
    known = facts.for_keys
    if known is None or known.dated is None:
        return facts
    own = known.dated.calendar
    return replace(
        facts, for_keys=dated_facts(known, replace(known.dated, calendar=Calendar(own.kind, own.first, own.last)))
    )


def united(one: Facts, other: Facts, either: Facts) -> Facts:
    """The facts of a column with the rows of two: ``either``, and the days from the first to the last of both."""
    ends = [_span(facts.for_keys) for facts in (one, other)]
    if either.for_keys is None or ends[0] is None or ends[1] is None or ends[0].kind is not ends[1].kind:
        return either
    calendar = Calendar(ends[0].kind, min(ends[0].first, ends[1].first), max(ends[0].last, ends[1].last))
    nullable = any(facts.for_keys.dated.nullable for facts in (one, other) if facts.for_keys and facts.for_keys.dated)
    dated = Dated(calendar=calendar, expression=Column("x", calendar.kind), nullable=nullable)
    return replace(either, for_keys=dated_facts(either.for_keys, dated))


def _span(facts: Facts | None) -> Calendar | None:
    """What its conditions leave of the calendar of a column; None if the value is computed from it."""
    if facts is None or facts.dated is None or not isinstance(facts.dated.expression, Column):
        return None
    calendar = facts.dated.calendar
    first, last = _shortened(calendar, [part for one in facts.dated.conditions for part in _conjuncts(one)])
    if first > last:
        return calendar
    days = calendar.kind is Kind.DATE
    return Calendar(calendar.kind, first.date() if days else first, last.date() if days else last)


def undated(facts: Facts) -> Facts:
    """The same without the calendar: the values alone."""
    known = facts.for_keys
    if known is None or known.dated is None:
        return facts
    return replace(facts, for_keys=replace(known, keys=Later((), lambda: known.keys), dated=None))  # type: ignore[arg-type]


def or_null(facts: Facts) -> Facts:
    """What is known of group keys, if any, where NULL may stand instead."""
    known = facts.for_keys
    if known is None:
        return facts

    def values() -> tuple[Value, ...] | None:
        return known.keys if known.keys is None or None in known.keys else (*known.keys, None)

    dated = None if known.dated is None else replace(known.dated, nullable=True)
    return replace(facts, for_keys=replace(known, keys=Later((), values), dated=dated))  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------- the list


def listed(dated: Dated, universe: frozenset[Value] | None) -> tuple[Value, ...] | None:
    """The values in ascending order; None where they are too many, or not certain.

    ``universe`` holds all of them, where that is known: once all were met, nothing more is computed.
    """
    conditions = [part for condition in dated.conditions for part in _conjuncts(condition)]
    first, last = _shortened(dated.calendar, conditions)
    for considered in (conditions, []) if conditions else ([],):
        try:
            return _found(dated, considered, first, last, universe)
        except (Uncertain, _TooMany, OverflowError):
            continue
    return None


def _found(
    dated: Dated,
    conditions: Sequence[Expression],
    first: dt.datetime,
    last: dt.datetime,
    universe: frozenset[Value] | None,
) -> tuple[Value, ...]:
    value, kind = compiled(dated.expression), dated.calendar.kind
    tests = [_possible(condition) for condition in conditions]
    units, cuts = set[str](), set[dt.datetime]()
    for expression in (dated.expression, *conditions):
        _looks(expression, "exact", units, cuts)
    if kind is Kind.DATE:
        units = {unit if _UNITS.index(unit) < _UNITS.index("day") else "day" for unit in units}
        cuts = {_next_day(cut) for cut in cuts}
    if universe is None and _size(first, last, units) > MOST_MOMENTS:
        raise _TooMany
    found = set[Value]()
    if all(test(None) for test in tests):
        # a date that is missing has no group of its own, but the expression may make a value of it
        missing = value(None)
        found |= set() if missing is None else {missing}
    if dated.nullable:
        found.add(None)
    for place, when in enumerate(_moments(first, last, units, cuts)):
        if place % 1000 == 0:
            if place >= MOST_MOMENTS or len(found) > MOST_KEYS:
                raise _TooMany
            spend(min(1000, MOST_MOMENTS))
        date: Value = when.date() if kind is Kind.DATE else when
        if all(test(date) for test in tests):
            found.add(value(date))
            if universe is not None and len(found) >= len(universe) and found >= universe:
                break
    if len(found) > MOST_KEYS:
        raise _TooMany
    return ascending(found)


def _possible(condition: Expression) -> Callable[[Value], bool]:
    """Whether a row with this date may fulfil the condition; yes where that isn't certain."""
    try:
        test = compiled(condition)
    except Uncertain:
        return lambda _: True

    def possible(date: Value) -> bool:
        try:
            return test(date) is True
        except (Uncertain, OverflowError):
            return True

    return possible


def _conjuncts(condition: Expression) -> Iterator[Expression]:
    if isinstance(condition, Call) and condition.function == "and":
        for argument in condition.arguments:
            yield from _conjuncts(argument)
    else:
        yield condition


def _shortened(calendar: Calendar, conditions: Sequence[Expression]) -> tuple[dt.datetime, dt.datetime]:
    """The part of the calendar that comparisons of the column itself with constants leave."""
    first, last = moment(calendar.first), moment(calendar.last)
    for condition in conditions:
        if not isinstance(condition, Call):
            continue
        name, (one, *others) = condition.function, condition.arguments
        if name in _MIRRORED and isinstance(one, Literal):
            name, one, others = _MIRRORED[name], others[0], [one]
        elif name == "equal" and isinstance(one, Literal):
            one, others = others[0], [one]
        if not _is_column(one) or not all(isinstance(o, Literal) and isinstance(o.value, dt.date) for o in others):
            continue
        constants = [moment(o.value) for o in others if isinstance(o, Literal) and isinstance(o.value, dt.date)]
        if name in ("equal", "in", "greater_equal", "greater"):
            first = max(first, min(constants) + (_MICROSECOND if name == "greater" else 0 * _DAY))
        if name in ("equal", "in", "less_equal", "less"):
            last = min(last, max(constants) - (_MICROSECOND if name == "less" else 0 * _DAY))
    if calendar.kind is Kind.DATE:
        return _next_day(first), last.replace(hour=0, minute=0, second=0, microsecond=0)
    return first, last


def _next_day(when: dt.datetime) -> dt.datetime:
    """The first midnight that isn't before."""
    day = when.replace(hour=0, minute=0, second=0, microsecond=0)
    return day if day == when else day + _DAY


def _is_column(expression: Expression) -> bool:
    """Whether it is the column itself, as a date or as the timestamp of its midnight."""
    if isinstance(expression, Call) and expression.function == "to_timestamp":
        return isinstance(expression.arguments[0], Column)
    return isinstance(expression, Column)


# ---------------------------------------------------------------------------------------------- stretches of time


def _looks(expression: Expression, unit: str, units: set[str], cuts: set[dt.datetime]) -> None:
    """Collect what an expression changes with: at the start of which units of time, and at which moments.

    ``unit`` is how closely whoever uses the expression looks at it, if it is a date.
    """
    if isinstance(expression, Column):
        units.add(unit)
    if not isinstance(expression, Call):
        return
    name, arguments = expression.function, expression.arguments
    if name in _PARTS and arguments[0].kind.temporal:
        _looks(arguments[0], _PARTS[name] or name, units, cuts)
    elif name in ("date_trunc", "date_diff"):
        for argument in arguments[1:]:
            _looks(argument, _constant_unit(arguments[0]), units, cuts)
    elif name == "date_add":
        # by whole units: stretches of the finer of both stay whole, those of months and weeks don't
        step = _constant_unit(arguments[2])
        _looks(arguments[0], _finest(unit, step, "day"), units, cuts)
        _looks(arguments[1], "exact", units, cuts)
    elif name == "to_date" and arguments[0].kind.temporal:
        _looks(arguments[0], unit if _UNITS.index(unit) < _UNITS.index("day") else "day", units, cuts)
    elif name == "to_timestamp" and arguments[0].kind.temporal:
        _looks(arguments[0], unit, units, cuts)
    elif name in _COMPARED and any(map(_is_column, arguments)) and all(map(_is_simple, arguments)):
        for argument in arguments:
            if isinstance(argument, Literal) and isinstance(argument.value, dt.date):
                cuts |= {moment(argument.value), moment(argument.value) + _MICROSECOND}
            elif name == "nullif":
                _looks(argument, unit, units, cuts)
    elif name in ("is_null", "is_not_null") and _is_column(arguments[0]):
        return
    else:
        results = list(range(len(arguments))) if name == "coalesce" else []
        if name == "case":
            results = [*range(1, len(arguments) - 1, 2), len(arguments) - 1]
        for place, argument in enumerate(arguments):
            _looks(argument, unit if place in results else "exact", units, cuts)


def _is_simple(expression: Expression) -> bool:
    return _is_column(expression) or isinstance(expression, Literal)


def _constant_unit(expression: Expression) -> str:
    unit = expression.value if isinstance(expression, Literal) else None
    return unit if isinstance(unit, str) and unit in _UNITS else "exact"


def _finest(*units: str) -> str:
    return max(units, key=_UNITS.index)


def _moments(first: dt.datetime, last: dt.datetime, units: set[str], cuts: set[dt.datetime]) -> Moments:
    """A moment of each stretch from the first to the last, ascending: its start, or the first moment of all."""
    if first > last:
        return
    ways: list[Moments] = [_starts(unit, first) for unit in units]
    ways.append(iter(sorted(cut for cut in cuts if cut > first)))
    before = first
    yield first
    for when in heapq.merge(*ways):
        if when > last:
            return
        if when > before:
            yield when
        before = when


def _size(first: dt.datetime, last: dt.datetime, units: set[str]) -> int:
    """About how many stretches there are of units of fixed length."""
    steps = [_step(unit) for unit in units if unit not in _MONTHS and unit != "week"]
    return max(((last - first) // step for step in steps), default=0)


def _step(unit: str) -> dt.timedelta:
    return _FIXED.get(unit, _MICROSECOND if unit == "exact" else _DAY)


def _starts(unit: str, first: dt.datetime) -> Moments:
    """Where the units after the first moment start, without an end but that of the years."""
    if unit in _MONTHS:
        months = _MONTHS[unit]
        place = (first.year * 12 + first.month - 1) // months * months
        while place + months < (LAST_YEAR + 1) * 12:
            place += months
            yield dt.datetime(place // 12, place % 12 + 1, 1)  # noqa: DTZ001
        return
    step = _step(unit)
    start = first
    if unit in ("week", "day"):
        start = start.replace(hour=0, minute=0, second=0, microsecond=0)
    elif unit != "exact":
        start = start.replace(
            minute=0 if unit == "hour" else start.minute,
            second=start.second if unit == "second" else 0,
            microsecond=0,
        )
    if unit == "week":
        start, step = start - start.weekday() * _DAY, 7 * _DAY
    while True:
        start += step
        yield start
