"""Arrow's newer layouts as the older ones that all its functions work on.

Polars hands text over as views and categories as dictionaries of views; Arrow can't cast such a dictionary, take rows
of a view of bytes, or tell an empty text from a missing one when it encodes a view. Decimals of 32 and 64 bits and
columns of runs have no dictionaries at all. Values stay what they are.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from dither.errors import InvalidParameter


def plain_layout(table: pa.Table) -> pa.Table:
    """The table with every column in a layout that can be encoded, sorted and taken from.

    Example:
        >>> town = pa.DictionaryArray.from_arrays(pa.array([0, 0]), pa.array(["Ulm"], pa.string_view()))
        >>> plain_layout(pa.table({"town": town})).schema.field("town").type
        DataType(string)
    """
    for place, field in enumerate(table.schema):
        if _plain_type(field.type) != field.type:
            table = table.set_column(place, field.name, _plain_column(table.column(place), field.name))
    return table


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """The older layout of a type, which is itself for most."""
    if types.is_string_view(kind):
        return pa.string()
    if types.is_binary_view(kind):
        return pa.binary()
    if types.is_decimal(kind) and kind.bit_width < pa.decimal128(1).bit_width:
        return pa.decimal128(kind.precision, kind.scale)
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        inner: pa.DataType = _plain_type(kind.value_type)
        # other dictionaries are left: they are what categories are kept as
        return kind if types.is_dictionary(kind) and inner == kind.value_type else inner
    if types.is_list(kind) or types.is_list_view(kind):
        return pa.list_(_plain_field(kind.value_field))
    if types.is_large_list(kind) or types.is_large_list_view(kind):
        return pa.large_list(_plain_field(kind.value_field))
    if types.is_fixed_size_list(kind):
        fixed: pa.DataType = pa.list_(_plain_field(kind.value_field), kind.list_size)
        return fixed
    if types.is_struct(kind):
        return pa.struct([_plain_field(kind.field(place)) for place in range(kind.num_fields)])
    return kind


def _plain_field(field: pa.Field[Any]) -> pa.Field[Any]:
    return field.with_type(_plain_type(field.type))


def _plain_column(column: pa.ChunkedArray[Any], name: str) -> Any:
    kind: Any = _plain_type(column.type)
    try:
        return pa.chunked_array([_plain_array(chunk).cast(kind) for chunk in column.chunks], kind)
    except pa.ArrowException:
        # Arrow's message might quote a value
        raise InvalidParameter(
            f"column {name!r} has the type {column.type}, which Arrow can't convert to {kind}: convert or drop it"
        ) from None


def _plain_array(array: Any) -> Any:
    if types.is_dictionary(array.type):
        return array.dictionary.cast(_plain_type(array.type)).take(array.indices)
    return pc.call_function("run_end_decode", [array]) if types.is_run_end_encoded(array.type) else array
