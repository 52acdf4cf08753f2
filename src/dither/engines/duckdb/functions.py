"""DuckDB's SQL for every function of the registry: total, deterministic, each argument written once.

Facts about DuckDB that the templates rest on (tested in tests/engines on the lowest and the newest version, and tried
by duckdb_behaviour.py at opening): arithmetic of doubles never raises (1e308 · 10 is infinity); 64-bit integers, casts
and dates raise, unless they are done in more bits and cut down by TRY_CAST; roots and logarithms raise outside of their
domains in versions below 2, so nothing from there reaches them; NaN equals itself and is the greatest number; text
compares by its UTF-8 bytes.

TRY isn't used: a row that fails in it costs a thousand times a row that doesn't, which a clock would notice.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from dither.engines.duckdb.group_choice import rank
from dither.engines.relations import Dialect, Template, common_kind, literal_argument
from dither.errors import InvalidParameter
from dither.query.kinds import LONGEST_TEXT, Call, Kind
from dither.query.plan.plan import Gridded

TYPES: Mapping[Kind, str] = MappingProxyType(
    {
        Kind.BOOLEAN: "BOOLEAN",
        Kind.INTEGER: "BIGINT",
        Kind.DOUBLE: "DOUBLE",
        Kind.TEXT: "VARCHAR",
        Kind.DATE: "DATE",
        Kind.TIMESTAMP: "TIMESTAMP",
    }
)
NAN, ZERO = "CAST('nan' AS DOUBLE)", "CAST('0.0' AS DOUBLE)"
FIRST_DAY, LAST_DAY = "DATE '0001-01-01'", "DATE '9999-12-31'"
FIRST_MOMENT, LAST_MOMENT = "TIMESTAMP '0001-01-01 00:00:00'", "TIMESTAMP '9999-12-31 23:59:59.999999'"
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001
_MICROSECOND = dt.timedelta(microseconds=1)
_LOWEST = (dt.datetime.min - _EPOCH) // _MICROSECOND  # noqa: DTZ901
_SHIFT = 2**64 - 1 - ((dt.datetime.max - _EPOCH) // _MICROSECOND - _LOWEST)  # noqa: DTZ901
_SMALLEST = math.ulp(0.0)

# Texts that are read as numbers, dates and truth values: the same few forms on every engine. Everything else is NULL.
_YEAR = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9][0-9]|[0-9][1-9][0-9]{2}|[1-9][0-9]{3})"
_DAY = _YEAR + "-[0-9]{2}-[0-9]{2}"
INTEGER_TEXT = "[+-]?[0-9]+"
DOUBLE_TEXT = "[+-]?(?:[0-9]+[.]?[0-9]*|[.][0-9]+)(?:[eE][+-]?[0-9]+)?"
DATE_TEXT = _DAY
TIMESTAMP_TEXT = _DAY + "(?:[ T](?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:[.][0-9]{1,6})?)?)?"
TRUE_TEXTS, FALSE_TEXTS = ("true", "t", "1"), ("false", "f", "0")


def parsed(sql: str, kind: Kind) -> str:
    """A text read as a value of a kind; NULL where it isn't one."""
    if kind is Kind.TEXT:
        return sql
    if kind is Kind.BOOLEAN:
        pairs = [(text, "TRUE") for text in TRUE_TEXTS] + [(text, "FALSE") for text in FALSE_TEXTS]
        return f"CASE lower(trim({sql}, ' ')) " + " ".join(f"WHEN '{t}' THEN {v}" for t, v in pairs) + " END"
    patterns = {
        Kind.INTEGER: INTEGER_TEXT,
        Kind.DOUBLE: DOUBLE_TEXT,
        Kind.DATE: DATE_TEXT,
        Kind.TIMESTAMP: TIMESTAMP_TEXT,
    }
    return f"TRY_CAST(regexp_extract({sql}, '^ *({patterns[kind]}) *$', 1) AS {TYPES[kind]})"


def grid(sql: str, kind: Kind, gridded: Gridded) -> str:
    """clamp(round(x / step), low, high) − offset as an integer; NULL for NULL and NaN. ``sql`` is a plain name.

    The middle branch comes first because most values lie in the bounds. Half a step is rounded to even.
    """
    low, high, offset = gridded.low, gridded.high, gridded.offset
    if gridded.down:
        # from the very number that is counted upwards, so that both add up to the width whatever rounding does
        if offset or high - low >= 2**63:
            raise InvalidParameter("a grid that counts down has no offset, and its width must fit in 64 bits")
        return f"(CAST({high} AS BIGINT) - {grid(sql, kind, replace(gridded, down=False))})"
    if low > high or max(abs(low), abs(high), abs(low - offset), abs(high - offset)) >= 2**63:
        raise InvalidParameter("a grid needs low ≤ high, and its values must fit in 64 bits")
    small = max(abs(low), abs(high), abs(low - offset), abs(high - offset)) < 2**31
    whole = "INTEGER" if small else "BIGINT"
    ends = (f"CAST({low - offset} AS {whole})", f"CAST({high - offset} AS {whole})")
    moved = f" - CAST({offset} AS {whole})" if offset else ""
    if kind is Kind.INTEGER and gridded.step == 1:
        inside = f"WHEN {sql} BETWEEN {low} AND {high} THEN CAST({sql} AS {whole}){moved}"
        return f"CASE {inside} WHEN {sql} < {low} THEN {ends[0]} WHEN {sql} > {high} THEN {ends[1]} END"
    if not kind.number:
        raise InvalidParameter(f"only numbers can be put on a grid; this is a {kind.value}")
    number = sql if kind is Kind.DOUBLE else f"CAST({sql} AS DOUBLE)"
    limits = [float(bound * gridded.step) for bound in (low, high)]
    ordinary = all(x == 0 or 1e-290 < abs(x) < 1e290 for x in limits)
    if ordinary and max(abs(low), abs(high)) < 2**50 and gridded.step.numerator < 2**50:
        # Clamping x itself changes nothing: x, its product and the limits are rounded by parts in 2^52, far less than
        # half a step, so next to a bound both ways give that bound; and no product overflows. It saves work: DuckDB
        # computes the clamp once for all grids with the same bounds, as those of a SUM and an AVG.
        return f"TRY_CAST({_scaled(_clamped(number, number, limits, limits), gridded)} AS {whole}){moved}"
    scaled = _scaled(number, gridded)
    # 2^63 is between the bounds as a double, if high is 2^63 − 1, but isn't an integer of 64 bits
    rounded = f"CAST(least(greatest(coalesce(TRY_CAST({scaled} AS BIGINT), {high}), {low}), {high}) AS {whole})"
    return _clamped(scaled, f"{rounded}{moved}", [float(low), float(high)], ends)


def _scaled(sql: str, gridded: Gridded) -> str:
    """A number in steps of the grid."""
    p, q = gridded.step.numerator, gridded.step.denominator
    scaled = f"({sql} * {_double(q)})" if q != 1 else sql
    return f"({scaled} / {_double(p)})" if p != 1 else scaled


def _clamped(sql: str, inside: str, limits: Sequence[float], ends: Sequence[float | str]) -> str:
    """What stands for a number between the limits, below and above them; NULL for NULL and NaN."""
    low, high = (_real_literal(limit) for limit in limits)
    below, above = (end if isinstance(end, str) else _real_literal(end) for end in ends)
    return (
        f"CASE WHEN {sql} BETWEEN {low} AND {high} THEN {inside} WHEN {sql} < {low} THEN {below} "
        f"WHEN {sql} <= CAST('inf' AS DOUBLE) THEN {above} END"
    )


def _double(value: int) -> str:
    return _real_literal(float(value))


def _real_literal(value: float) -> str:
    """A double: with an exponent DuckDB reads one right away. A sign would turn -{literal} into a comment."""
    if not math.isfinite(value) or math.copysign(1.0, value) < 0:
        return f"CAST('{value!r}' AS DOUBLE)"
    return repr(value) if "e" in repr(value) else f"{value!r}e0"


# ------------------------------------------------------------------ templates


def _w(call: Call, arguments: Sequence[str], kind: Kind) -> list[str]:
    """All arguments in one kind."""
    return [DUCKDB.widen(sql, e.kind, kind) for sql, e in zip(arguments, call.arguments, strict=True)]


def _arithmetic(operator: str) -> Template:
    def template(call: Call, arguments: Sequence[str]) -> str:
        a, b = _w(call, arguments, call.kind)
        # 128 bits hold every sum and product of two integers of 64
        return (
            _narrowed(f"CAST({a} AS HUGEINT) {operator} {b}") if call.kind is Kind.INTEGER else f"({a} {operator} {b})"
        )

    return template


def _narrowed(sql: str) -> str:
    """NULL beyond 64 bits. Versions below 2 drop a TRY_CAST that is compared with a constant: so it never is."""
    return f"(TRY_CAST({sql} AS BIGINT) | 0)"


def _negate(call: Call, arguments: Sequence[str]) -> str:
    if call.kind is Kind.INTEGER:
        return _narrowed(f"-CAST({arguments[0]} AS HUGEINT)")
    return f"(-{arguments[0]})"


def _abs(call: Call, arguments: Sequence[str]) -> str:
    if call.kind is Kind.INTEGER:
        return _narrowed(f"abs(CAST({arguments[0]} AS HUGEINT))")
    return f"abs({arguments[0]})"


def _divide(call: Call, arguments: Sequence[str]) -> str:
    a, b = _w(call, arguments, Kind.DOUBLE)
    return f"({a} / NULLIF({b}, {ZERO}))"


def _whole_division(operator: str) -> Template:
    return lambda _, arguments: _narrowed(f"CAST({arguments[0]} AS HUGEINT) {operator} NULLIF({arguments[1]}, 0)")


def _power(call: Call, arguments: Sequence[str]) -> str:
    a, b = _w(call, arguments, Kind.DOUBLE)
    return f"NULLIF(pow({a} + {ZERO}, {b}), {NAN})"


def _real(name: str, *, above: float | None = None) -> Template:
    """A function of a double, of those greater than ``above`` if that is stated; NULL for all others and for NaN.

    What lies below becomes ``above`` and that becomes NULL, as NULL itself does (greatest ignores it): the function
    sees only what is in its domain, with the argument written once.
    """

    def template(call: Call, arguments: Sequence[str]) -> str:
        (x,) = _w(call, arguments, Kind.DOUBLE)
        limit = "" if above is None else _real_literal(above)
        return f"{name}(NULLIF({f'NULLIF(greatest({x}, {limit}), {limit})' if limit else x}, {NAN}))"

    return template


def _to_whole(name: str) -> Template:
    return lambda call, arguments: arguments[0] if call.kind is Kind.INTEGER else f"{name}({arguments[0]})"


def _round(call: Call, arguments: Sequence[str]) -> str:
    digits = literal_argument(call, 1, Kind.INTEGER) if len(arguments) > 1 else 0
    if not isinstance(digits, int):
        return DUCKDB.literal(None, call.kind)
    digits = max(-400, min(400, digits))
    if call.kind is Kind.DOUBLE and digits < 0:  # round(x, -1) of an infinite x is 0 in versions below 2
        power = _real_literal(float(10 ** min(-digits, 308)))
        return f"(round({arguments[0]} / {power}) * {power})"
    if call.kind is Kind.DOUBLE:
        return f"round({arguments[0]})" if digits == 0 else f"round({arguments[0]}, {digits})"
    if digits >= 0:
        return arguments[0]
    return _narrowed(f"round(CAST({arguments[0]} AS DECIMAL(38, 0)), {max(digits, -37)})")


def _sign(call: Call, arguments: Sequence[str]) -> str:
    known = f"NULLIF({arguments[0]}, {NAN})" if call.arguments[0].kind is Kind.DOUBLE else arguments[0]
    return f"CAST(sign({known}) AS BIGINT)"


def _extreme(name: str) -> Template:
    return lambda call, arguments: f"{name}({', '.join(_w(call, arguments, call.kind))})"


def _compare(operator: str) -> Template:
    def template(call: Call, arguments: Sequence[str]) -> str:
        a, b = _w(call, arguments, common_kind(call.arguments))
        return f"({a} {operator} {b})"

    return template


def _in(call: Call, arguments: Sequence[str]) -> str:
    first, *others = _w(call, arguments, common_kind(call.arguments))
    return f"({first} IN ({', '.join(others)}))"


def _joined(operator: str) -> Template:
    return lambda _, arguments: f"({f' {operator} '.join(arguments)})"


def _case(call: Call, arguments: Sequence[str]) -> str:
    wide = [DUCKDB.widen(sql, e.kind, call.kind) for sql, e in zip(arguments[1::2], call.arguments[1::2], strict=True)]
    default = DUCKDB.widen(arguments[-1], call.arguments[-1].kind, call.kind)
    branches = " ".join(f"WHEN {c} THEN {v}" for c, v in zip(arguments[:-1:2], wide, strict=True))
    return f"CASE {branches} ELSE {default} END"


def _nullif(call: Call, arguments: Sequence[str]) -> str:
    a, b = _w(call, arguments, common_kind(call.arguments))
    if call.arguments[0].kind is call.kind and common_kind(call.arguments) is not call.kind:
        return f"CASE WHEN {a} = {b} THEN NULL ELSE {arguments[0]} END"
    return f"NULLIF({a}, {b})"


def _call(name: str) -> Template:
    return lambda _, arguments: f"{name}({', '.join(arguments)})"


def _trim(name: str) -> Template:
    return lambda _, arguments: f"{name}({arguments[0]}, ' ')"


def _substring(call: Call, arguments: Sequence[str]) -> str:
    start, length = (literal_argument(call, place, Kind.INTEGER) for place in (1, 2))
    if not isinstance(start, int) or not isinstance(length, int):
        return DUCKDB.literal(None, Kind.TEXT)
    first, size = _span(start, length)
    return f"substring({arguments[0]}, {first}, {size})"


def _span(start: int, length: int) -> tuple[int, int]:
    """Positions from ``start`` on, ``length`` of them, cut to those that exist in any text."""
    first = min(max(start, 1), 2**31 - 1)
    return first, min(max(start + length - first, 0), 2**31 - 1)


def _concat(_: Call, arguments: Sequence[str]) -> str:
    """Parts are cut before they are joined: e || e, nested, would double a text that only some rows have."""
    joined = " || ".join(f"left({part}, {LONGEST_TEXT})" for part in arguments)
    return f"left({joined}, {LONGEST_TEXT})"


def _replace(call: Call, arguments: Sequence[str]) -> str:
    """So much of the text that the result can't be too long, also for one row in a million: memory would tell of it."""
    old, new = (literal_argument(call, place, Kind.TEXT) for place in (1, 2))
    if not isinstance(old, str) or not isinstance(new, str):
        return DUCKDB.literal(None, Kind.TEXT)
    growth = max(1, -(-len(new) // max(1, len(old))))
    return f"replace(left({arguments[0]}, {LONGEST_TEXT // growth}), {arguments[1]}, {arguments[2]})"


def _end(name: str) -> Template:
    def template(call: Call, arguments: Sequence[str]) -> str:
        size = literal_argument(call, 1, Kind.INTEGER)
        if not isinstance(size, int):
            return DUCKDB.literal(None, Kind.TEXT)
        return f"{name}({arguments[0]}, {max(-(2**31) + 1, min(2**31 - 1, size))})"

    return template


def _ilike(_: Call, arguments: Sequence[str]) -> str:
    return f"(lower({arguments[0]}) LIKE lower({arguments[1]}))"


def _position(_: Call, arguments: Sequence[str]) -> str:
    return f"CAST(instr({arguments[1]}, {arguments[0]}) AS BIGINT)"


def _date_trunc(call: Call, arguments: Sequence[str]) -> str:
    unit = literal_argument(call, 0, Kind.TEXT)
    if unit not in ("year", "quarter", "month", "week", "day", "hour", "minute"):
        raise InvalidParameter("date_trunc needs year, quarter, month, week, day, hour or minute")
    # Versions below 2 take a NULL for a date, or raise, where this is grouped by and they know the argument's extremes;
    # of what was added to they know none.
    moment = f"(CAST({arguments[1]} AS TIMESTAMP) + to_days(0))"
    return f"CAST(date_trunc('{unit}', {moment}) AS {TYPES[call.kind]})"


# For each unit: the function that makes an interval, how many of its units, and so many digits of an amount that it can
# reach from the year 1 to the year 9999 but not beyond what DuckDB's timestamps hold.
_INTERVALS = {
    "year": ("to_months", 12, 5),
    "quarter": ("to_months", 3, 6),
    "month": ("to_months", 1, 6),
    "week": ("to_days", 7, 6),
    "day": ("to_days", 1, 7),
    "hour": ("to_hours", 1, 8),
    "minute": ("to_minutes", 1, 10),
    "second": ("to_seconds", 1, 12),
}


def _date_add(call: Call, arguments: Sequence[str]) -> str:
    unit = literal_argument(call, 2, Kind.TEXT)
    if unit not in _INTERVALS:
        raise InvalidParameter(f"date_add needs one of {', '.join(_INTERVALS)}")
    name, factor, digits = _INTERVALS[str(unit)]
    width = "INTEGER" if name in ("to_months", "to_days") else "BIGINT"
    amount = f"CAST(TRY_CAST({arguments[1]} AS DECIMAL({digits}, 0)) AS {width})"
    moved = f"CAST({arguments[0]} AS TIMESTAMP) + {name}({amount}{f' * {factor}' if factor > 1 else ''})"
    # Years 1 to 9999, as everywhere: the ends of an unsigned type cut off both sides, with the argument written once.
    above = f"TRY_CAST(CAST(epoch_us({moved}) AS HUGEINT) - ({_LOWEST}) AS UBIGINT)"
    below = f"TRY_CAST(CAST({above} AS HUGEINT) + {_SHIFT} AS UBIGINT)"
    return f"CAST(make_timestamp(CAST(CAST({below} AS HUGEINT) - {_SHIFT - _LOWEST} AS BIGINT)) AS {TYPES[call.kind]})"


def _date_diff(call: Call, arguments: Sequence[str]) -> str:
    unit = literal_argument(call, 0, Kind.TEXT)
    if unit not in _INTERVALS:
        raise InvalidParameter(f"date_diff needs one of {', '.join(_INTERVALS)}")
    a, b = (f"CAST({sql} AS TIMESTAMP)" for sql in arguments[1:])
    if unit == "week":
        # DuckDB counts spans of seven days here, not Mondays passed
        return f"(date_diff('day', date_trunc('week', {a}), date_trunc('week', {b})) // 7)"
    return f"date_diff('{unit}', {a}, {b})"


# how kinds that aren't texts become another; texts are parsed
_CASTS: Mapping[Kind, Mapping[Kind, str]] = {
    Kind.BOOLEAN: {Kind.INTEGER: "({} <> 0)"},
    Kind.INTEGER: dict.fromkeys((Kind.BOOLEAN, Kind.DOUBLE), "TRY_CAST({} AS BIGINT)"),
    Kind.DOUBLE: dict.fromkeys((Kind.BOOLEAN, Kind.INTEGER), "CAST({} AS DOUBLE)"),
}


def _cast_to(kind: Kind) -> Template:
    def template(call: Call, arguments: Sequence[str]) -> str:
        given, cast = call.arguments[0].kind, _CASTS[kind]
        if given is kind:
            return arguments[0]
        if given is Kind.TEXT:
            return parsed(arguments[0], kind)
        if given not in cast:
            raise _no_cast(call)
        return cast[given].format(arguments[0])

    return template


def _to_text(call: Call, arguments: Sequence[str]) -> str:
    # one text for equal doubles: no −0, and nothing for NaN, whose sign bit DuckDB would show
    x = f"NULLIF({arguments[0]} + {ZERO}, {NAN})" if call.arguments[0].kind is Kind.DOUBLE else arguments[0]
    return f"CAST({x} AS VARCHAR)"


def _to_moment(kind: Kind) -> Template:
    def template(call: Call, arguments: Sequence[str]) -> str:
        given = call.arguments[0].kind
        if given is Kind.TEXT:
            return parsed(arguments[0], kind)
        if given.temporal:
            return f"CAST({arguments[0]} AS {TYPES[kind]})"
        raise _no_cast(call)

    return template


def _no_cast(call: Call) -> InvalidParameter:
    return InvalidParameter(f"{call.function} can't be applied to a {call.arguments[0].kind.value}")


FUNCTIONS: Mapping[str, Template] = MappingProxyType(
    {
        "add": _arithmetic("+"),
        "subtract": _arithmetic("-"),
        "multiply": _arithmetic("*"),
        "negate": _negate,
        "abs": _abs,
        "divide": _divide,
        "integer_divide": _whole_division("//"),
        "modulo": _whole_division("%"),
        "power": _power,
        "sqrt": _real("sqrt", above=-_SMALLEST),
        "exp": _real("exp"),
        "ln": _real("ln", above=0.0),
        "log10": _real("log10", above=0.0),
        "log2": _real("log2", above=0.0),
        "floor": _to_whole("floor"),
        "ceil": _to_whole("ceil"),
        "trunc": _to_whole("trunc"),
        "round": _round,
        "sign": _sign,
        "greatest": _extreme("greatest"),
        "least": _extreme("least"),
        "is_nan": _call("isnan"),
        "equal": _compare("="),
        "not_equal": _compare("<>"),
        "less": _compare("<"),
        "less_equal": _compare("<="),
        "greater": _compare(">"),
        "greater_equal": _compare(">="),
        "distinct_from": _compare("IS DISTINCT FROM"),
        "in": _in,
        "is_null": lambda _, arguments: f"({arguments[0]} IS NULL)",
        "is_not_null": lambda _, arguments: f"({arguments[0]} IS NOT NULL)",
        "and": _joined("AND"),
        "or": _joined("OR"),
        "not": lambda _, arguments: f"(NOT {arguments[0]})",
        "case": _case,
        "coalesce": _extreme("coalesce"),
        "nullif": _nullif,
        "lower": _call("lower"),
        "upper": _call("upper"),
        "trim": _trim("trim"),
        "ltrim": _trim("ltrim"),
        "rtrim": _trim("rtrim"),
        "length": _call("length"),
        "substring": _substring,
        "left": _end("left"),
        "right": _end("right"),
        "concat": _concat,
        "replace": _replace,
        "starts_with": _call("starts_with"),
        "ends_with": _call("ends_with"),
        "contains": _call("contains"),
        "like": lambda _, arguments: f"({arguments[0]} LIKE {arguments[1]})",
        "ilike": _ilike,
        "position": _position,
        "year": _call("year"),
        "quarter": _call("quarter"),
        "month": _call("month"),
        "day": _call("day"),
        "day_of_week": _call("isodow"),
        "day_of_year": _call("dayofyear"),
        "week": _call("week"),
        "hour": _call("hour"),
        "minute": _call("minute"),
        "second": _call("second"),
        "date_trunc": _date_trunc,
        "date_add": _date_add,
        "date_diff": _date_diff,
        "to_boolean": _cast_to(Kind.BOOLEAN),
        "to_integer": _cast_to(Kind.INTEGER),
        "to_double": _cast_to(Kind.DOUBLE),
        "to_text": _to_text,
        "to_date": _to_moment(Kind.DATE),
        "to_timestamp": _to_moment(Kind.TIMESTAMP),
    }
)

DUCKDB = Dialect(
    name="DuckDB",
    types=TYPES,
    functions=FUNCTIONS,
    grid=grid,
    rank=rank,
    whole=_narrowed,
    wide="HUGEINT",
)
