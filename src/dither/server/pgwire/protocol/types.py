"""Values on the wire: PostgreSQL's types, their text and binary forms, and which Arrow types become which.

The text forms are those that PostgreSQL prints with its settings as they come (ISO dates, shortest floats).
"""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dither.query.kinds import Kind

BOOL, INT8, INT2, INT4, TEXT, OID = 16, 20, 21, 23, 25, 26
FLOAT4, FLOAT8, UNKNOWN, BPCHAR, VARCHAR, NAME = 700, 701, 705, 1042, 1043, 19
DATE, TIMESTAMP, TIMESTAMPTZ, NUMERIC = 1082, 1114, 1184, 1700
TEXTS = frozenset({TEXT, VARCHAR, BPCHAR, NAME, UNKNOWN})
INTEGERS = {INT2: 2, INT4: 4, INT8: 8}
SIZES = {
    BOOL: 1,
    INT2: 2,
    NAME: 64,
    **dict.fromkeys((INT4, FLOAT4, DATE, OID), 4),
    **dict.fromkeys((INT8, FLOAT8, TIMESTAMP, TIMESTAMPTZ), 8),
}
OF_KIND = {
    Kind.BOOLEAN: BOOL,
    Kind.INTEGER: INT8,
    Kind.DOUBLE: FLOAT8,
    Kind.TEXT: TEXT,
    Kind.DATE: DATE,
    Kind.TIMESTAMP: TIMESTAMP,
}
DAY_ZERO = dt.date(2000, 1, 1)
MOMENT_ZERO = dt.datetime(2000, 1, 1)  # noqa: DTZ001 - timestamps of answers have no time zone
# PostgreSQL writes floats with an exponent from 10^15 up and below 10^-4.
_FIXED_FROM, _FIXED_BELOW = -4, 15
ROWS_AT_ONCE = 1000

Encoder = Callable[[Any], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class WireColumn:
    """A column of a result: its name and PostgreSQL's number for its type."""

    name: str
    oid: int

    @property
    def size(self) -> int:
        """The size of a value in bytes; −1 if it isn't fixed."""
        return SIZES.get(self.oid, -1)


def columns_of(schema: pa.Schema) -> tuple[WireColumn, ...]:
    """The columns of a result with this schema."""
    return tuple(WireColumn(name=field.name, oid=oid_of(field.type)) for field in schema)


def oid_of(kind: pa.DataType) -> int:
    """PostgreSQL's type for an Arrow type; text for those that have none.

    Example:
        >>> oid_of(pa.int64()), oid_of(pa.string())
        (20, 25)
    """
    if pa.types.is_boolean(kind):
        return BOOL
    if pa.types.is_integer(kind):
        return INT8
    if pa.types.is_floating(kind):
        return FLOAT8
    if pa.types.is_date(kind):
        return DATE
    return TIMESTAMP if pa.types.is_timestamp(kind) else TEXT


def fits(found: Sequence[WireColumn], told: Sequence[WireColumn]) -> bool:
    """Whether columns can be sent where these were told: the same types, or integers for floats."""
    return len(found) == len(told) and all(
        one.oid == other.oid or (one.oid, other.oid) == (INT8, FLOAT8) for one, other in zip(found, told, strict=True)
    )


def as_told(table: pa.Table, told: Sequence[WireColumn]) -> pa.Table:
    """The table with the types that a client was told; raises ValueError if its values can't be of these types.

    What fits by its price may not fit by its answer: where bounds are searched for, the grid of a sum is known late.
    """
    if table.num_columns != len(told):
        raise ValueError("columns")
    columns = [_of_type(column, each.oid) for column, each in zip(table.columns, told, strict=True)]
    return pa.Table.from_arrays(columns, names=[each.name for each in told])


def _of_type(column: pa.ChunkedArray[Any], oid: int) -> pa.ChunkedArray[Any]:
    found = oid_of(column.type)
    if found == oid:
        return column
    if (found, oid) == (INT8, FLOAT8):
        return column.cast(pa.float64(), safe=False)
    if (found, oid) == (FLOAT8, INT8):
        # as PostgreSQL casts; what is out of range raises
        return pc.round(column, round_mode="half_to_even").cast(pa.int64())
    raise ValueError(oid)


# ---------------------------------------------------------------------- to the wire


def float_text(value: float) -> str:
    """A float as PostgreSQL prints it: the shortest digits that mean this float.

    Of some floats above 2^53 PostgreSQL prints one digit more; both texts mean the same float.

    Example:
        >>> float_text(1.0), float_text(1e15), float_text(0.0001), float_text(-1.5e-7), float_text(math.inf)
        ('1', '1e+15', '0.0001', '-1.5e-07', 'Infinity')
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    plain = "".join(map(str, digits)).rstrip("0") or "0"
    assert isinstance(exponent, int)
    power = len(digits) + exponent - 1
    minus = "-" if sign else ""
    if value == 0:
        return minus + "0"
    if _FIXED_FROM <= power < _FIXED_BELOW:
        if power < 0:
            return f"{minus}0.{'0' * (-power - 1)}{plain}"
        whole, part = plain[: power + 1].ljust(power + 1, "0"), plain[power + 1 :]
        return minus + whole + (f".{part}" if part else "")
    mantissa = plain[0] + (f".{plain[1:]}" if len(plain) > 1 else "")
    return f"{minus}{mantissa}e{'-' if power < 0 else '+'}{abs(power):02d}"


def timestamp_text(value: dt.datetime) -> str:
    """A timestamp as PostgreSQL prints it: the fraction of the second without zeros at its end."""
    text = f"{value.date().isoformat()} {value:%H:%M:%S}"
    return text + (f".{value.microsecond:06d}".rstrip("0") if value.microsecond else "")


def _text_bytes(value: object) -> bytes:
    # text can't hold NUL in PostgreSQL, and clients would cut it there
    return str(value).replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace")


TEXT_FORMS: dict[int, Encoder] = {
    BOOL: lambda value: b"t" if value else b"f",
    INT8: lambda value: b"%d" % value,
    FLOAT8: lambda value: float_text(value).encode(),
    DATE: lambda value: value.isoformat().encode(),
    TIMESTAMP: lambda value: timestamp_text(value).encode(),
    TEXT: _text_bytes,
}
BINARY_FORMS: dict[int, Encoder] = {
    BOOL: lambda value: b"\1" if value else b"\0",
    INT8: struct.Struct("!q").pack,
    FLOAT8: struct.Struct("!d").pack,
    DATE: lambda value: struct.pack("!i", (value - DAY_ZERO).days),
    TIMESTAMP: lambda value: struct.pack("!q", (value - MOMENT_ZERO) // dt.timedelta(microseconds=1)),
    TEXT: _text_bytes,
}


def encoder(oid: int, form: int) -> Encoder:
    """Makes the wire form of values of a type in text (0) or binary (1)."""
    return (BINARY_FORMS if form else TEXT_FORMS)[oid]


def encoded_rows(
    table: pa.Table, columns: Sequence[WireColumn], forms: Sequence[int]
) -> Iterator[list[tuple[bytes | None, ...]]]:
    """The rows of a table on the wire, in parts that don't take long each."""
    for start in range(0, table.num_rows, ROWS_AT_ONCE):
        part = table.slice(start, ROWS_AT_ONCE)
        described = zip(part.columns, columns, forms, strict=True)
        yield list(zip(*(encoded_column(cells, column.oid, form) for cells, column, form in described), strict=True))


def encoded_column(values: pa.ChunkedArray[Any], oid: int, form: int) -> list[bytes | None]:
    """A column of a result on the wire."""
    encode = encoder(oid, form)
    return [None if value is None else encode(value) for value in values.to_pylist()]
