"""The value of an expression over one date, where every engine is sure to compute the same.

What isn't certain is an ``Uncertain``: a function that isn't here, a number or year that engines may not write, a text
that they may fold differently. NULL is None, in three-valued logic as SQL has it.
"""

from __future__ import annotations

import calendar
import datetime as dt
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from dither.query.expressions.public_values import CERTAIN, LARGEST_INTEGER, Uncertain
from dither.query.kinds import Column, Expression, Kind, Literal, Value

OfDate: TypeAlias = Callable[[Value], Value]

_EXACT = 2**53
_MONTHS = {"year": 12, "quarter": 3, "month": 1}
_SECONDS = {"week": 604_800, "day": 86_400, "hour": 3600, "minute": 60, "second": 1}


def moment(value: dt.date) -> dt.datetime:
    """A date as the timestamp of its midnight."""
    return value if isinstance(value, dt.datetime) else dt.datetime(value.year, value.month, value.day)  # noqa: DTZ001


def compiled(expression: Expression) -> OfDate:
    """What computes the expression from the value of its one column; Uncertain if nothing can."""
    if isinstance(expression, Column):
        return lambda date: date
    if isinstance(expression, Literal):
        constant = _in_kind(expression.value, expression.kind)
        return lambda _: constant
    parts = [compiled(argument) for argument in expression.arguments]
    name, kind = expression.function, expression.kind
    if name == "case":
        return _case(parts, kind)
    if name in _WITH_NULLS:
        seeing = _WITH_NULLS[name]
        return lambda date: _in_kind(seeing([part(date) for part in parts]), kind)
    strict = _STRICT.get(name)
    if strict is None:
        raise Uncertain

    def call(date: Value) -> Value:
        values = [part(date) for part in parts]
        return None if None in values else _in_kind(strict(*values), kind)

    return call


def _in_kind(value: Any, kind: Kind) -> Value:
    if value is None:
        return None
    if kind is Kind.INTEGER:
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) > LARGEST_INTEGER:
            raise Uncertain
    elif kind is Kind.DOUBLE:
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _EXACT:
            raise Uncertain
        return float(value) + 0.0
    elif kind is Kind.TIMESTAMP:
        return moment(value)
    elif kind is Kind.DATE and isinstance(value, dt.datetime):
        return value.date()
    return value  # type: ignore[no-any-return]


def _comparable(value: Any) -> Any:
    if isinstance(value, dt.date):
        return moment(value)
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, int | float) and not abs(value) <= _EXACT:
        raise Uncertain
    return value


def _compare(test: Callable[[Any, Any], bool]) -> Callable[..., Any]:
    return lambda a, b: test(_comparable(a), _comparable(b))


# ------------------------------------------------------------------ functions that see NULL


def _case(parts: list[OfDate], kind: Kind) -> OfDate:
    pairs = list(zip(parts[:-1:2], parts[1::2], strict=True))

    def case(date: Value) -> Value:
        chosen = next((result for condition, result in pairs if condition(date) is True), parts[-1])
        return _in_kind(chosen(date), kind)

    return case


def _and(values: list[Any]) -> bool | None:
    return False if False in values else None if None in values else True


def _or(values: list[Any]) -> bool | None:
    return True if True in values else None if None in values else False


def _in(values: list[Any]) -> bool | None:
    first, *others = values
    if first is None:
        return None
    known = [_comparable(other) for other in others if other is not None]
    return True if _comparable(first) in known else None if None in others else False


def _distinct_from(values: list[Any]) -> bool:
    a, b = values
    return (a is None) != (b is None) if a is None or b is None else bool(_comparable(a) != _comparable(b))


def _nullif(values: list[Any]) -> Any:
    a, b = values
    return None if a is not None and b is not None and _comparable(a) == _comparable(b) else a


def _extreme(pick: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    def apply(values: list[Any]) -> Any:
        known = [value for value in values if value is not None]
        return pick(known, key=_comparable) if known else None

    return apply


_WITH_NULLS: Mapping[str, Callable[[list[Any]], Any]] = MappingProxyType(
    {
        "and": _and,
        "or": _or,
        "in": _in,
        "distinct_from": _distinct_from,
        "is_null": lambda values: values[0] is None,
        "is_not_null": lambda values: values[0] is not None,
        "coalesce": lambda values: next((value for value in values if value is not None), None),
        "nullif": _nullif,
        "greatest": _extreme(max),
        "least": _extreme(min),
    }
)


# ------------------------------------------------------------------ dates


def _date_trunc(unit: Any, when: Any) -> dt.datetime:
    start: dt.datetime = moment(when).replace(second=0, microsecond=0)
    if unit == "minute":
        return start
    start = start.replace(minute=0)
    if unit == "hour":
        return start
    start = start.replace(hour=0)
    if unit == "week":
        return start - dt.timedelta(days=start.weekday())
    if unit in _MONTHS:
        return start.replace(month=start.month - (start.month - 1) % _MONTHS[unit], day=1)
    if unit != "day":
        raise Uncertain
    return start


def _date_add(when: Any, amount: Any, unit: Any) -> dt.datetime:
    start = moment(when)
    if unit in _MONTHS:
        place = start.year * 12 + start.month - 1 + amount * _MONTHS[unit]
        year, month = place // 12, place % 12 + 1
        if not 1 <= year <= 9998:
            raise Uncertain
        return start.replace(year=year, month=month, day=min(start.day, calendar.monthrange(year, month)[1]))
    found = start + dt.timedelta(seconds=amount * _SECONDS[unit])
    if found.year > 9998:
        raise Uncertain
    return found


def _number(unit: str, when: dt.datetime) -> int:
    """The number of the year, quarter, … in which a moment lies; only differences mean something."""
    if unit in _MONTHS:
        return (when.year * 12 + when.month - 1) // _MONTHS[unit]
    days = when.toordinal()
    if unit == "week":
        return (days - 1) // 7  # day 1 was a Monday
    return (days * 86_400 + when.hour * 3600 + when.minute * 60 + when.second) // _SECONDS[unit]


def _date_diff(unit: Any, a: Any, b: Any) -> int:
    return _number(unit, moment(b)) - _number(unit, moment(a))


def _to_text(value: Any) -> Any:
    # engines pad years below 1000 differently
    if isinstance(value, dt.date) and (value.year < 1000 or moment(value).microsecond):
        raise Uncertain
    if isinstance(value, dt.datetime):
        return value.isoformat(sep=" ")
    if isinstance(value, dt.date):
        return value.isoformat()
    return CERTAIN["to_text"](value)


def _truth(value: Any) -> bool:
    if not isinstance(value, bool | int):
        raise Uncertain
    return bool(value)


def _size(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Uncertain
    return abs(value)


_STRICT: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        **CERTAIN,
        "equal": _compare(lambda a, b: a == b),
        "not_equal": _compare(lambda a, b: a != b),
        "less": _compare(lambda a, b: a < b),
        "less_equal": _compare(lambda a, b: a <= b),
        "greater": _compare(lambda a, b: a > b),
        "greater_equal": _compare(lambda a, b: a >= b),
        "not": lambda value: not value,
        "abs": _size,
        "sign": lambda value: math.copysign(1, value) if value else 0,
        "quarter": lambda when: (when.month + 2) // 3,
        "month": lambda when: when.month,
        "day": lambda when: when.day,
        "day_of_week": lambda when: when.isoweekday(),
        "day_of_year": lambda when: when.timetuple().tm_yday,
        "week": lambda when: when.isocalendar()[1],
        "hour": lambda when: moment(when).hour,
        "minute": lambda when: moment(when).minute,
        "second": lambda when: moment(when).second,
        "date_trunc": _date_trunc,
        "date_add": _date_add,
        "date_diff": _date_diff,
        "to_boolean": _truth,
        "to_text": _to_text,
        "to_date": lambda value: value if isinstance(value, dt.date) else _no_text(),
        "to_timestamp": lambda value: value if isinstance(value, dt.date) else _no_text(),
    }
)


def _no_text() -> Any:
    raise Uncertain
