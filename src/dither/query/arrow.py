"""Arrow types of the kinds: one for each, whatever the engine used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from dither.query.kinds import Kind, Value

TYPES: dict[Kind, pa.DataType] = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.INTEGER: pa.int64(),
    Kind.DOUBLE: pa.float64(),
    Kind.TEXT: pa.string(),
    Kind.DATE: pa.date32(),
    Kind.TIMESTAMP: pa.timestamp("us"),
}


def array_of(values: Sequence[Value], kind: Kind) -> pa.Array[Any]:
    """Public values as an Arrow array."""
    plain = [_plain(value, kind) for value in values]
    return pa.array(plain, TYPES[kind])


def _plain(value: Value, kind: Kind) -> object:
    if value is None or isinstance(value, bool):
        return value
    if kind is Kind.INTEGER:
        return int(value)  # type: ignore[arg-type]
    # adding 0 turns −0.0 into 0.0, which is the same key
    return float(value) + 0.0 if kind is Kind.DOUBLE else value  # type: ignore[arg-type]
