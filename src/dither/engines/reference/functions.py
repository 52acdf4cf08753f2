"""Every function of the registry in plain Python, one value at a time: slow, and obviously right.

An oracle for engines, so nothing here is shared with their SQL. Values: None, bool, int, float, str, date, datetime.
"""

from __future__ import annotations

import calendar
import datetime as dt
import math
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any, TypeAlias

from dither.query.kinds import LONGEST_TEXT, Call, Column, Expression, Kind, Literal

Row: TypeAlias = Mapping[str, Any]

_DAY = r"(?!0000)\d{4}-\d{2}-\d{2}"
_INTEGER = re.compile(r" *([+-]?\d+) *", re.ASCII)
_DOUBLE = re.compile(r" *([+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?) *", re.ASCII)
_DATE = re.compile(rf" *({_DAY}) *", re.ASCII)
_MOMENT = re.compile(rf" *({_DAY})(?:[ T](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{{1,6}}))?)?)? *", re.ASCII)


def evaluate(expression: Expression, row: Row) -> Any:
    """The value of an expression on one row."""
    if isinstance(expression, Column):
        return row[expression.name]
    if isinstance(expression, Literal):
        return in_kind(expression.value, expression.kind)
    values = [evaluate(argument, row) for argument in expression.arguments]
    name = expression.function
    if name in _WITH_NULLS:
        return in_kind(_WITH_NULLS[name](expression, values), expression.kind)
    if any(value is None for value in values):
        return None
    return in_kind(_STRICT[name](expression, *values), expression.kind)


def in_kind(value: Any, kind: Kind) -> Any:
    """The value in its kind: integers that don't fit are NULL, whole numbers among doubles are doubles."""
    if value is None:
        return None
    if kind is Kind.INTEGER:
        return int(value) if -(2**63) <= value < 2**63 else None
    if kind is Kind.DOUBLE:
        return float(value)
    if kind is Kind.TIMESTAMP and not isinstance(value, dt.datetime):
        return dt.datetime(value.year, value.month, value.day)  # noqa: DTZ001
    if kind is Kind.DATE and isinstance(value, dt.datetime):
        return value.date()
    return value


def order_key(value: Any) -> Any:
    """Something that sorts as values do: NaN greater than every number, −0 equal to 0, text by its bytes."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value + 0.0)
    if isinstance(value, str):
        return value.encode()
    return (0, value) if isinstance(value, int) and not isinstance(value, bool) else value


def plain(value: Any) -> Any:
    """The one form of equal values, fit to be a key of a dictionary: NaN is a word here, as it equals nothing."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def _comparable(call: Call, a: Any, b: Any) -> tuple[Any, Any]:
    kinds = {argument.kind for argument in call.arguments}
    if kinds == {Kind.INTEGER, Kind.DOUBLE}:
        a, b = float(a), float(b)
    if kinds == {Kind.DATE, Kind.TIMESTAMP}:
        a, b = in_kind(a, Kind.TIMESTAMP), in_kind(b, Kind.TIMESTAMP)
    return order_key(a), order_key(b)


def _compare(test: Callable[[Any, Any], bool]) -> Callable[..., Any]:
    return lambda call, a, b: test(*_comparable(call, a, b))


def _float_or(value: Callable[[], float], *, overflow: float = math.inf) -> float | None:
    """A result of the C library: NULL outside the domain and for NaN, infinite where it overflows."""
    try:
        result = value()
    except OverflowError:
        return overflow
    except ValueError:
        return None
    return None if math.isnan(result) else result


def _power(_: Call, a: float, b: float) -> float | None:
    a, b = float(a) + 0.0, float(b)
    if a == 0 and b < 0:
        return math.inf
    negative = a < 0 and b.is_integer() and b % 2 == 1
    return _float_or(lambda: math.pow(a, b), overflow=-math.inf if negative else math.inf)


def _log(function: Callable[[float], float]) -> Callable[..., Any]:
    return lambda _, x: _float_or(lambda: function(float(x)))


def _double(call: Call, x: float, operation: Callable[[float], int]) -> float:
    return x if call.kind is Kind.INTEGER or not math.isfinite(x) else float(operation(x))


def _round(call: Call, x: Any, digits: int = 0) -> Any:
    if call.kind is Kind.INTEGER:
        unit = 10 ** max(0, -digits)
        size = (2 * abs(x) + unit) // (2 * unit) * unit
        return size if x >= 0 else -size
    if not math.isfinite(x):
        return x
    power = math.pow(10.0, abs(digits)) if abs(digits) < 309 else math.inf
    scaled = x * power if digits >= 0 else x / power
    if not math.isfinite(scaled):
        return x
    whole = math.copysign(math.floor(abs(scaled)), scaled)
    if abs(scaled) - abs(whole) >= 0.5:
        whole += math.copysign(1.0, scaled)
    result = whole / power if digits >= 0 else whole * power
    return result if digits < 0 or math.isfinite(result) else x


def _divide_whole(_: Call, a: int, b: int) -> int | None:
    return None if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _modulo(_: Call, a: int, b: int) -> int | None:
    # the smallest integer has no opposite, and its division by −1 is where an engine would raise
    return None if b == 0 else int(math.copysign(1, a)) * (abs(a) % abs(b))


def _arithmetic(operation: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def apply(call: Call, a: Any, b: Any) -> Any:
        return operation(a, b) if call.kind is Kind.INTEGER else operation(float(a), float(b))

    return apply


def _divide(_: Call, a: float, b: float) -> float | None:
    return None if b == 0 else float(a) / float(b)


def _substring(_: Call, text: str, start: int, length: int) -> str:
    return "".join(c for place, c in enumerate(text, start=1) if start <= place < start + length)


def _left(_: Call, text: str, size: int) -> str:
    return text[:size]


def _right(_: Call, text: str, size: int) -> str:
    return "" if size == 0 else text[-size:]


def _concat(_: Call, *parts: str) -> str:
    return "".join(parts)[:LONGEST_TEXT]


def _replace(_: Call, text: str, old: str, new: str) -> str:
    """Of a text so much is used that the result can't be longer than LONGEST_TEXT, however often ``old`` occurs."""
    most = LONGEST_TEXT // max(1, math.ceil(Fraction(len(new), max(1, len(old)))))
    return text[:most] if old == "" else text[:most].replace(old, new)


def _simple_case(text: str, change: Callable[[str], str], special: Mapping[str, str]) -> str:
    """Case of one character at a time: what becomes several characters stays as it is."""
    changed = ((c, special.get(c, change(c))) for c in text)
    return "".join(new if len(new) == 1 else c for c, new in changed)


def _lower(text: str) -> str:
    return _simple_case(text, str.lower, {"İ": "i"})


def _upper(text: str) -> str:
    return _simple_case(text, str.upper, {"ß": "ẞ"})


def _like(text: str, pattern: str) -> bool:
    parts = {"%": ".*", "_": "."}
    return re.fullmatch("".join(parts.get(c, re.escape(c)) for c in pattern), text, re.DOTALL) is not None


def _add_months(moment: dt.datetime, months: int) -> dt.datetime | None:
    place = moment.year * 12 + moment.month - 1 + months
    year, month = place // 12, place % 12 + 1
    if not 1 <= year <= 9999:
        return None
    return moment.replace(year=year, month=month, day=min(moment.day, calendar.monthrange(year, month)[1]))


def _date_add(_: Call, when: Any, amount: int, unit: str) -> Any:
    moment = in_kind(when, Kind.TIMESTAMP)
    months = {"year": 12, "quarter": 3, "month": 1}
    if unit in months:
        return _add_months(moment, amount * months[unit])
    seconds = {"week": 604800, "day": 86400, "hour": 3600, "minute": 60, "second": 1}
    try:
        return moment + dt.timedelta(seconds=amount * seconds[unit])
    except OverflowError:
        return None


def _number(unit: str, when: Any) -> int:
    """The number of the year, quarter, … in which a moment lies; only differences mean something."""
    moment = in_kind(when, Kind.TIMESTAMP)
    months = {"year": 12, "quarter": 3, "month": 1}
    if unit in months:
        return int((moment.year * 12 + moment.month - 1) // months[unit])
    days = moment.toordinal()
    if unit == "week":
        return int((days - 1) // 7)  # day 1 was a Monday
    seconds = {"day": 86400, "hour": 3600, "minute": 60, "second": 1}
    return int((days * 86400 + moment.hour * 3600 + moment.minute * 60 + moment.second) // seconds[unit])


def _date_trunc(_: Call, unit: str, when: Any) -> Any:
    moment = in_kind(when, Kind.TIMESTAMP)
    start = moment.replace(second=0, microsecond=0)
    if unit == "minute":
        return start
    start = start.replace(minute=0)
    if unit == "hour":
        return start
    start = start.replace(hour=0)
    if unit == "week":
        return start - dt.timedelta(days=start.weekday())
    if unit in ("month", "quarter", "year"):
        start = start.replace(day=1)
    if unit == "quarter":
        start = start.replace(month=(start.month - 1) // 3 * 3 + 1)
    return start.replace(month=1) if unit == "year" else start


def _to_boolean(_: Call, x: Any) -> bool | None:
    if isinstance(x, str):
        return {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}.get(_lower(x.strip(" ")))
    return bool(x)


def _to_integer(_: Call, x: Any) -> int | None:
    if isinstance(x, str):
        found = _INTEGER.fullmatch(x)
        if found is None:
            return None
        # Python refuses to read more than 4,300 digits, and 64 bits need 19
        digits = found[1].lstrip("+-").lstrip("0")[:20]
        return int(digits or "0") * (-1 if found[1].startswith("-") else 1)
    if isinstance(x, float):
        return round(x) if math.isfinite(x) else None
    return int(x)


def _to_double(_: Call, x: Any) -> float | None:
    if isinstance(x, str):
        found = _DOUBLE.fullmatch(x)
        return float(found[1]) if found else None
    return float(x)


def _to_text(_: Call, x: Any) -> str | None:
    if isinstance(x, bool):
        return "true" if x else "false"
    if isinstance(x, float):
        return None if math.isnan(x) else repr(x + 0.0)
    if isinstance(x, dt.datetime):
        text = x.isoformat(sep=" ")
        return text.rstrip("0") if "." in text else text
    return x.isoformat() if isinstance(x, dt.date) else str(x)


def _to_date(_: Call, x: Any) -> dt.date | None:
    if not isinstance(x, str):
        return in_kind(x, Kind.DATE)  # type: ignore[no-any-return]
    found = _DATE.fullmatch(x)
    try:
        return dt.date.fromisoformat(found[1]) if found else None
    except ValueError:
        return None


def _to_timestamp(_: Call, x: Any) -> dt.datetime | None:
    if not isinstance(x, str):
        return in_kind(x, Kind.TIMESTAMP)  # type: ignore[no-any-return]
    found = _MOMENT.fullmatch(x)
    if found is None:
        return None
    day, hour, minute, second, part = found.groups()
    try:
        clock = dt.time(int(hour or 0), int(minute or 0), int(second or 0), int((part or "").ljust(6, "0")))
        return dt.datetime.combine(dt.date.fromisoformat(day), clock)
    except ValueError:
        return None


def parsed(text: str, kind: Kind) -> Any:
    """A text read as a value of a kind, as columns of CSV files are."""
    if kind is Kind.TEXT:
        return text
    readers: dict[Kind, Callable[..., Any]] = {
        Kind.BOOLEAN: _to_boolean,
        Kind.INTEGER: _to_integer,
        Kind.DOUBLE: _to_double,
        Kind.DATE: _to_date,
        Kind.TIMESTAMP: _to_timestamp,
    }
    return in_kind(readers[kind](Call("", (), kind), text), kind)


# ------------------------------------------------------------------ functions that see NULL


def _and(_: Call, values: list[Any]) -> bool | None:
    return False if False in values else None if None in values else True


def _or(_: Call, values: list[Any]) -> bool | None:
    return True if True in values else None if None in values else False


def _in(call: Call, values: list[Any]) -> bool | None:
    first, *others = values
    if first is None:
        return None
    known = [_comparable(call, first, other) for other in others if other is not None]
    return True if any(a == b for a, b in known) else None if None in others else False


def _distinct_from(call: Call, values: list[Any]) -> bool:
    a, b = values
    if a is None or b is None:
        return (a is None) != (b is None)
    left, right = _comparable(call, a, b)
    return bool(left != right)


def _extreme(pick: Callable[..., Any]) -> Callable[[Call, list[Any]], Any]:
    def apply(call: Call, values: list[Any]) -> Any:
        known = [in_kind(value, call.kind) for value in values if value is not None]
        return pick(known, key=order_key) if known else None

    return apply


def _case(_: Call, values: list[Any]) -> Any:
    for condition, value in zip(values[:-1:2], values[1::2], strict=True):
        if condition is True:
            return value
    return values[-1]


def _nullif(call: Call, values: list[Any]) -> Any:
    a, b = values
    if a is None or b is None:
        return a
    left, right = _comparable(call, a, b)
    return None if left == right else a


_WITH_NULLS: Mapping[str, Callable[[Call, list[Any]], Any]] = MappingProxyType(
    {
        "and": _and,
        "or": _or,
        "in": _in,
        "distinct_from": _distinct_from,
        "is_null": lambda _, values: values[0] is None,
        "is_not_null": lambda _, values: values[0] is not None,
        "greatest": _extreme(max),
        "least": _extreme(min),
        "case": _case,
        "coalesce": lambda _, values: next((value for value in values if value is not None), None),
        "nullif": _nullif,
    }
)

_STRICT: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "add": _arithmetic(lambda a, b: a + b),
        "subtract": _arithmetic(lambda a, b: a - b),
        "multiply": _arithmetic(lambda a, b: a * b),
        "negate": lambda _, x: -x,
        "abs": lambda _, x: abs(x),
        "divide": _divide,
        "integer_divide": _divide_whole,
        "modulo": _modulo,
        "power": _power,
        "sqrt": _log(math.sqrt),
        "exp": _log(math.exp),
        "ln": _log(math.log),
        "log10": _log(math.log10),
        "log2": _log(math.log2),
        "floor": lambda call, x: _double(call, x, math.floor),
        "ceil": lambda call, x: _double(call, x, math.ceil),
        "trunc": lambda call, x: _double(call, x, math.trunc),
        "round": _round,
        "sign": lambda _, x: None if x != x else (x > 0) - (x < 0),
        "is_nan": lambda _, x: math.isnan(x),
        "equal": _compare(lambda a, b: a == b),
        "not_equal": _compare(lambda a, b: a != b),
        "less": _compare(lambda a, b: a < b),
        "less_equal": _compare(lambda a, b: a <= b),
        "greater": _compare(lambda a, b: a > b),
        "greater_equal": _compare(lambda a, b: a >= b),
        "not": lambda _, x: not x,
        "lower": lambda _, x: _lower(x),
        "upper": lambda _, x: _upper(x),
        "trim": lambda _, x: x.strip(" "),
        "ltrim": lambda _, x: x.lstrip(" "),
        "rtrim": lambda _, x: x.rstrip(" "),
        "length": lambda _, x: len(x),
        "substring": _substring,
        "left": _left,
        "right": _right,
        "concat": _concat,
        "replace": _replace,
        "starts_with": lambda _, x, y: x.startswith(y),
        "ends_with": lambda _, x, y: x.endswith(y),
        "contains": lambda _, x, y: y in x,
        "like": lambda _, x, y: _like(x, y),
        "ilike": lambda _, x, y: _like(_lower(x), _lower(y)),
        "position": lambda _, needle, x: x.find(needle) + 1,
        "year": lambda _, x: x.year,
        "quarter": lambda _, x: (x.month + 2) // 3,
        "month": lambda _, x: x.month,
        "day": lambda _, x: x.day,
        "day_of_week": lambda _, x: x.isoweekday(),
        "day_of_year": lambda _, x: x.timetuple().tm_yday,
        "week": lambda _, x: x.isocalendar()[1],
        "hour": lambda _, x: in_kind(x, Kind.TIMESTAMP).hour,
        "minute": lambda _, x: in_kind(x, Kind.TIMESTAMP).minute,
        "second": lambda _, x: in_kind(x, Kind.TIMESTAMP).second,
        "date_trunc": _date_trunc,
        "date_add": _date_add,
        "date_diff": lambda _, unit, a, b: _number(unit, b) - _number(unit, a),
        "to_boolean": _to_boolean,
        "to_integer": _to_integer,
        "to_double": _to_double,
        "to_text": _to_text,
        "to_date": _to_date,
        "to_timestamp": _to_timestamp,
    }
)
