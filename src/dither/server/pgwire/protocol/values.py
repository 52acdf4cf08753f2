"""Parameters from the wire: a client's bytes become Python values, by the type that they were declared or guessed.

Texts follow what PostgreSQL reads in its ISO settings, as far as drivers use it. What can't be read raises
``InvalidValue``, which names the type and never repeats the value.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import struct
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias

import numpy as np

from dither.server.pgwire.protocol import types


@dataclass(frozen=True, slots=True)
class Null:
    """A missing value of a type: what a column is can depend on the type of a parameter without a value."""

    oid: int


Parameter: TypeAlias = bool | int | float | Decimal | str | dt.date | dt.datetime | Null

TRUE_WORDS = frozenset({"t", "tr", "tru", "true", "y", "ye", "yes", "on", "1"})
FALSE_WORDS = frozenset({"f", "fa", "fal", "fals", "false", "n", "no", "of", "off", "0"})
LONGEST_NUMBER = 400
# PostgreSQL knows no time zones further from Greenwich
MOST_HOURS = 15
NUMERIC_NEGATIVE, NUMERIC_BASE, MOST_GROUPS = 0x4000, 10_000, 100
_WHOLE = re.compile(r"\s*[+-]?[0-9]+\s*")
_DECIMAL = re.compile(r"\s*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?\s*")
_NOT_FINITE = re.compile(r"\s*(?:nan|[+-]?inf(?:inity)?)\s*", re.IGNORECASE)
_MOMENT = re.compile(
    r"\s*(?P<day>\d{4}-\d{2}-\d{2})(?:[ T](?P<clock>\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?))?"
    r"\s*(?P<zone>Z|[+-]\d{2}(?::?\d{2})?(?::?\d{2})?)?\s*",
    re.ASCII,
)
NAMES = {
    types.BOOL: "boolean",
    types.INT2: "smallint",
    types.INT4: "integer",
    types.INT8: "bigint",
    types.FLOAT4: "real",
    types.FLOAT8: "double precision",
    types.NUMERIC: "numeric",
    types.DATE: "date",
    types.TIMESTAMP: "timestamp",
    types.TIMESTAMPTZ: "timestamp with time zone",
    types.OID: "oid",
    **dict.fromkeys(types.TEXTS, "text"),
}


class InvalidValue(Exception):  # noqa: N818
    """A parameter can't be read; ``sqlstate`` says in which way."""

    def __init__(self, number: int, sqlstate: str, reason: str) -> None:
        self.sqlstate = sqlstate
        super().__init__(f"parameter ${number} {reason}")


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def read_value(raw: bytes | None, oid: int, *, form: int, number: int) -> Parameter:
    """The value of parameter ``number``, sent as text (0) or binary (1)."""
    if oid not in NAMES:
        raise InvalidValue(number, "0A000", f"has a type (oid {oid}) that questions can't use")
    if raw is None:
        return Null(oid)
    if (not form or oid in types.TEXTS) and not _is_utf8(raw):
        raise InvalidValue(number, "22021", "isn't UTF-8, the only encoding of this server")
    try:
        value: Parameter | None = _binary(raw, oid) if form else _text(raw.decode(), oid)
    except (ValueError, ArithmeticError, struct.error, InvalidOperation):
        value = None
    if value is None:
        raise InvalidValue(number, "22P03" if form else "22P02", f"can't be read as {NAMES[oid]}")
    if isinstance(value, float | Decimal) and not math.isfinite(value):
        raise InvalidValue(number, "22003", "must be a finite number")
    if isinstance(value, str) and "\0" in value:
        raise InvalidValue(number, "22021", "holds a zero byte")
    return value


def _text(text: str, oid: int) -> Parameter:
    if oid in types.TEXTS:
        return text
    if oid == types.BOOL:
        word = text.strip().lower()
        if word not in TRUE_WORDS | FALSE_WORDS:
            raise ValueError(oid)
        return word in TRUE_WORDS
    if oid in (types.DATE, types.TIMESTAMP, types.TIMESTAMPTZ):
        return _moment(text, oid)
    if len(text) > LONGEST_NUMBER:
        raise ValueError(oid)
    if oid in types.INTEGERS or oid == types.OID:
        if not _WHOLE.fullmatch(text):
            raise ValueError(oid)
        return _fitting(int(text), oid)
    if _NOT_FINITE.fullmatch(text):
        return math.nan
    if not _DECIMAL.fullmatch(text):
        raise ValueError(oid)
    if oid == types.NUMERIC:
        return Decimal(text.strip())
    value = _short_float(np.float64(text)) if oid == types.FLOAT4 else float(text)
    if value == 0 and any(digit in "123456789" for digit in text.lower().partition("e")[0]):
        # closer to zero than any float: as PostgreSQL, better refused than changed
        return math.nan
    return value


def _short_float(value: np.floating[Any]) -> float:
    """The digits of a 32-bit number, not those that widening it would show."""
    with np.errstate(over="ignore", under="ignore"):
        return float(str(np.float32(value)))


def _fitting(value: int, oid: int) -> int:
    if oid == types.OID:
        low, high = 0, 2**32
    else:
        bits = 8 * types.INTEGERS[oid] - 1
        low, high = -(2**bits), 2**bits
    if not low <= value < high:
        raise ValueError(oid)
    return value


def _moment(text: str, oid: int) -> dt.date | dt.datetime:
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise ValueError(oid)
    day = dt.date.fromisoformat(found["day"])
    clock = found["clock"] or "00:00"
    shift = _shift(found["zone"] or "Z")
    if oid == types.DATE:
        # as PostgreSQL: a time and a zone after the date are read and left out
        dt.time.fromisoformat(_padded(clock))
        return day
    value = dt.datetime.combine(day, dt.time.fromisoformat(_padded(clock)))
    # without a time zone in the type, PostgreSQL leaves that of the text out; this server's own is UTC
    return value - shift if oid == types.TIMESTAMPTZ else value


def _padded(clock: str) -> str:
    whole, dot, part = clock.partition(".")
    return f"{whole}.{part.ljust(6, '0')}" if dot else whole


def _shift(zone: str) -> dt.timedelta:
    if zone == "Z":
        return dt.timedelta()
    digits = zone[1:].replace(":", "").ljust(6, "0")
    hours, minutes, seconds = int(digits[:2]), int(digits[2:4]), int(digits[4:])
    if hours > MOST_HOURS or minutes > 59 or seconds > 59:
        raise ValueError(zone)
    size = dt.timedelta(hours=hours, minutes=minutes, seconds=seconds)
    return -size if zone[0] == "-" else size


def _binary(raw: bytes, oid: int) -> Parameter:
    if oid in types.TEXTS:
        return raw.decode()
    if oid == types.BOOL:
        if raw not in (b"\0", b"\1"):
            raise ValueError(oid)
        return raw == b"\1"
    if oid in types.INTEGERS or oid == types.OID:
        if len(raw) != types.SIZES[oid]:
            raise ValueError(oid)
        return int.from_bytes(raw, "big", signed=oid != types.OID)
    if oid == types.FLOAT8:
        return float(struct.unpack("!d", raw)[0])
    if oid == types.FLOAT4:
        return _short_float(np.float64(struct.unpack("!f", raw)[0]))
    if oid == types.NUMERIC:
        return _numeric(raw)
    if oid == types.DATE:
        return types.DAY_ZERO + dt.timedelta(days=struct.unpack("!i", raw)[0])
    return types.MOMENT_ZERO + dt.timedelta(microseconds=struct.unpack("!q", raw)[0])


def _numeric(raw: bytes) -> Decimal | float:
    """A binary numeric: its groups of four decimal digits, the weight of the first and the sign."""
    count, weight, sign, _ = struct.unpack_from("!hhHH", raw)
    if sign not in (0, NUMERIC_NEGATIVE):
        return math.nan
    if not 0 <= count <= MOST_GROUPS or len(raw) != 8 + 2 * count or abs(weight) > MOST_GROUPS:
        raise ValueError("numeric")
    groups = struct.unpack_from(f"!{count}H", raw, 8)
    if any(group >= NUMERIC_BASE for group in groups):
        raise ValueError("numeric")
    digits = tuple(int(digit) for group in groups for digit in f"{group:04d}")
    return Decimal((int(sign == NUMERIC_NEGATIVE), digits or (0,), 4 * (weight - count + 1) if count else 0))
