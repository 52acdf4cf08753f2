"""Which values an expression can have, where that is a public and finite set: groups that need no discovery.

A value that occurs but isn't claimed here would be left out of an answer without a word, so a set is claimed only where
every engine is sure to compute the same values: whole numbers, IEEE arithmetic on doubles, ASCII text, calendar dates.
NULL is in a set only if the owner lists it or the expression makes it (a CASE without ELSE, a LEFT JOIN without match).
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product

from dither.query.expressions.ranges import EXACT_DOUBLE, MOST_VALUES, whole_numbers
from dither.query.kinds import LONGEST_TEXT, Expression, Interval, Kind, Value, ascending, constant
from dither.query.refusals import spend

LARGEST_INTEGER = 2**63 - 1


def with_null(values: tuple[Value, ...] | None) -> tuple[Value, ...] | None:
    """The same set and NULL."""
    return values if values is None or None in values else (*values, None)


class Uncertain(Exception):  # noqa: N818
    """The value can't be told with certainty for every engine."""


def _integer(value: int) -> int:
    if abs(value) > LARGEST_INTEGER:
        raise Uncertain
    return value


def _arithmetic(operation: Callable[[int | float, int | float], int | float]) -> Callable[..., Value]:
    def apply(a: Value, b: Value) -> Value:
        if isinstance(a, int) and isinstance(b, int):
            return _integer(int(operation(a, b)))
        x, y = float(a), float(b)  # type: ignore[arg-type]
        if max(abs(x), abs(y)) > EXACT_DOUBLE:
            raise Uncertain
        # adding 0.0 makes one value of the two zeros
        return operation(x, y) + 0.0

    return apply


def _divide(a: Value, b: Value) -> Value:
    x, y = float(a), float(b)  # type: ignore[arg-type]
    if y == 0 or max(abs(x), abs(y)) > EXACT_DOUBLE:
        raise Uncertain
    return x / y + 0.0


def _integer_divide(a: Value, b: Value) -> Value:
    if not isinstance(a, int) or not isinstance(b, int) or b == 0:
        raise Uncertain
    return _integer((abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1))


def _modulo(a: Value, b: Value) -> Value:
    if not isinstance(a, int) or not isinstance(b, int) or b == 0:
        raise Uncertain
    return (abs(a) % abs(b)) * (-1 if a < 0 else 1)


def _whole(operation: Callable[[float], int]) -> Callable[..., Value]:
    def apply(a: Value) -> Value:
        if isinstance(a, int):
            return a
        if not isinstance(a, float) or not abs(a) <= EXACT_DOUBLE:
            raise Uncertain
        return float(operation(a))

    return apply


def _ascii(text: Value) -> str:
    # engines differ in upper and lower case, blanks and characters beyond ASCII
    if not isinstance(text, str) or not text.isascii():
        raise Uncertain
    return text


def _substring(text: Value, start: Value, length: Value) -> Value:
    if not isinstance(start, int) or not isinstance(length, int) or start < 1 or length < 0:
        raise Uncertain
    return _ascii(text)[start - 1 : start - 1 + length]


def _left(text: Value, size: Value) -> Value:
    if not isinstance(size, int) or size < 0:
        raise Uncertain
    return _ascii(text)[:size]


def _right(text: Value, size: Value) -> Value:
    if not isinstance(size, int) or size < 0:
        raise Uncertain
    return _ascii(text)[-size:] if size else ""


def _replace(text: Value, old: Value, new: Value) -> Value:
    if not isinstance(old, str) or not isinstance(new, str) or not old:
        raise Uncertain
    # engines cut what could become longer
    if len(_ascii(text)) * max(1, -(-len(new) // len(old))) > LONGEST_TEXT:
        raise Uncertain
    return _ascii(text).replace(_ascii(old), _ascii(new))


def _concat(*texts: Value) -> Value:
    if not all(isinstance(text, str) for text in texts):
        raise Uncertain
    joined = "".join(text for text in texts if isinstance(text, str))
    if len(joined) > LONGEST_TEXT:
        raise Uncertain
    return joined


def _day(value: Value) -> dt.date:
    if not isinstance(value, dt.date) or not 1 <= value.year <= 9998:
        raise Uncertain
    return value


def _date_trunc(unit: Value, value: Value) -> Value:
    day = _day(value)
    if unit == "week":
        day -= dt.timedelta(days=day.weekday())
    elif unit in ("year", "quarter", "month"):
        month = {"year": 1, "quarter": day.month - (day.month - 1) % 3, "month": day.month}[str(unit)]
        day = day.replace(month=month, day=1)
    elif unit != "day":
        raise Uncertain
    return day.replace(hour=0, minute=0, second=0, microsecond=0) if isinstance(day, dt.datetime) else day


def _to_text(value: Value) -> Value:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise Uncertain


def _to_integer(value: Value) -> Value:
    if isinstance(value, float):
        if not value.is_integer() or abs(value) > EXACT_DOUBLE:
            raise Uncertain
        return int(value)
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        return value
    raise Uncertain


def _to_double(value: Value) -> Value:
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > EXACT_DOUBLE:
        raise Uncertain
    return float(value)


CERTAIN: dict[str, Callable[..., Value]] = {
    "add": _arithmetic(lambda a, b: a + b),
    "subtract": _arithmetic(lambda a, b: a - b),
    "multiply": _arithmetic(lambda a, b: a * b),
    "divide": _divide,
    "integer_divide": _integer_divide,
    "modulo": _modulo,
    "negate": lambda a: _arithmetic(lambda x, y: x - y)(0, a),
    "floor": _whole(math.floor),
    "ceil": _whole(math.ceil),
    "trunc": _whole(math.trunc),
    "lower": lambda text: _ascii(text).lower(),
    "upper": lambda text: _ascii(text).upper(),
    "left": _left,
    "right": _right,
    "substring": _substring,
    "length": lambda text: len(_ascii(text)),
    "concat": _concat,
    "replace": _replace,
    "year": lambda value: _day(value).year,
    "date_trunc": _date_trunc,
    "to_text": _to_text,
    "to_integer": _to_integer,
    "to_double": _to_double,
}


def _mapped(name: str, keys: Sequence[tuple[Value, ...]]) -> tuple[Value, ...] | None:
    evaluate, size = CERTAIN.get(name), math.prod(len(values) for values in keys)
    if evaluate is None or size > MOST_VALUES:
        return None
    spend(size)
    try:
        results = [None if None in row else evaluate(*row) for row in product(*keys)]
    except (Uncertain, OverflowError):
        return None
    return ascending(results)


def public_values(
    name: str,
    keys: Sequence[tuple[Value, ...] | None],
    arguments: Sequence[Expression],
    kind: Kind,
    *,
    bounds: Interval | None,
    step: Fraction | None,
) -> tuple[Value, ...] | None:
    """The values that a call can have, or None where they aren't public, too many, or not certain."""
    if kind is Kind.BOOLEAN:
        return (False, True)
    if name in ("case", "coalesce"):
        spend(sum(len(values) for values in keys if values is not None))
    found: tuple[Value, ...] | None = None
    if name == "case":
        results = [keys[i] for i in (*range(1, len(arguments) - 1, 2), len(arguments) - 1)]
        if all(values is not None for values in results):
            found = ascending(value for values in results if values is not None for value in values)
    elif name == "coalesce":
        if all(values is not None for values in keys):
            parts = [value for values in keys if values is not None for value in values if value is not None]
            found = ascending([*parts, *([None] if keys[-1] and None in keys[-1] else [])])
    elif name == "nullif":
        found = None if keys[0] is None else ascending([*keys[0], None])
    elif all(values is not None for values in keys):
        found = _mapped(name, [values for values in keys if values is not None])
    if found is not None:
        return found if len(found) <= MOST_VALUES else None
    whole = name in ("floor", "ceil", "trunc") or (
        name == "round" and (len(arguments) == 1 or constant(arguments[1]) == 0)
    )
    if kind is Kind.INTEGER or (kind is Kind.DOUBLE and whole):
        return whole_numbers(bounds, step, kind)
    return None
