"""What single values are: how a column is cut, how a value is printed, and where it lies on a line.

Everything here works on the distinct values of a column, never on its rows.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from dither.errors import InvalidParameter

Codes: TypeAlias = npt.NDArray[np.int32]
Counts: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]
Floats: TypeAlias = npt.NDArray[np.float64]

ANYTHING = "*"
UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
# The fraction of a whole second.
NO_FRACTION = r"\.0+(Z|[+-][0-9]{4})?$"
# What Arrow spells with an exponent, nearly so, or not as a number.
ODD_DECIMAL = r"e|n|^-0$|^-?0\.0000"


class AxisKind(Enum):
    """How a quasi-identifier is cut: along a line, or into sets."""

    NUMBER = "number"
    DATE = "date"
    ORDERED = "ordered"
    CATEGORY = "category"

    @property
    def on_a_line(self) -> bool:
        """Whether values have an order in which neighbours belong together."""
        return self is not AxisKind.CATEGORY


def kind_of(kind: pa.DataType, name: str) -> AxisKind:
    """How a column of this Arrow type is cut unless its attribute says otherwise.

    Example:
        >>> kind_of(pa.int64(), "age"), kind_of(pa.dictionary(pa.int8(), pa.string()), "city")
        (<AxisKind.NUMBER: 'number'>, <AxisKind.CATEGORY: 'category'>)
    """
    if types.is_dictionary(kind):
        return kind_of(kind.value_type, name)
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_duration(kind):
        return AxisKind.NUMBER
    if types.is_date(kind) or types.is_timestamp(kind) or types.is_time(kind):
        return AxisKind.DATE
    if types.is_boolean(kind) or is_text(kind) or types.is_null(kind):
        return AxisKind.CATEGORY
    raise InvalidParameter(
        f"column {name!r} has the type {kind}; anonymising needs numbers, dates, times, booleans or text: "
        "convert the column, or leave it out"
    )


def is_text(kind: pa.DataType) -> bool:
    """Whether values of this Arrow type are text."""
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def plain(values: pa.Array[Any] | pa.ChunkedArray[Any]) -> Any:
    """The text of exact values, as releases print them: ``39``, ``1.5``, ``2020-03-31``, ``true``; missing is NULL.

    Example:
        >>> plain(pa.array([1.0, 0.25, None])).to_pylist(), plain(pa.array([True])).to_pylist()
        (['1', '0.25', None], ['true'])
    """
    if types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if is_text(values.type):
        return values.cast(pa.string())
    if types.is_duration(values.type):
        return values.cast(pa.int64()).cast(pa.string())
    if types.is_floating(values.type):
        return _plain_floats(values)
    texts = values.cast(pa.string())
    timed = types.is_timestamp(values.type) or types.is_time(values.type)
    return pc.replace_substring_regex(texts, NO_FRACTION, r"\1") if timed else texts


def _plain_floats(values: Any) -> Any:
    """Shortest decimals without an exponent where that is readable, so that 1e5 and 100000 are the same text."""
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    half = types.is_float16(values.type)
    # Arrow writes the same shortest decimals; only very large and small numbers, -0, NaN and halves are left to numpy
    texts = values.cast(pa.float32() if half else values.type).cast(pa.string())
    kind = np.float16 if half else np.float32 if types.is_float32(values.type) else np.float64
    own = pc.is_valid(values) if half else pc.match_substring_regex(texts, ODD_DECIMAL)
    if not pc.any(own).as_py():
        return texts
    spelled = [_plain_float(kind(value)) for value in values.filter(own).to_pylist()]
    return pc.replace_with_mask(texts, own, pa.array(spelled, pa.string()))


def _plain_float(value: Any) -> str | None:
    if np.isnan(value):
        return None
    if value != 0 and not 1e-5 <= abs(float(value)) < 1e16:
        return str(value)
    text = np.format_float_positional(value, trim="-")
    return "0" if text == "-0" else text


def numbers(values: pa.Array[Any], kind: AxisKind) -> Floats:
    """Where each value lies on a line: numbers as they are, dates in days, ordered values by rank; missing is NaN."""
    if kind in (AxisKind.ORDERED, AxisKind.CATEGORY):
        places = np.arange(len(values), dtype=np.float64)
        places[np.asarray(values.is_null())] = np.nan
        return places
    sort = values.type
    if types.is_date(sort) or types.is_timestamp(sort):
        if types.is_date32(sort):
            return _floats(values.cast(pa.int32()))
        a_day = 86_400 * UNITS["ms" if types.is_date64(sort) else sort.unit]
        return _floats(values.cast(pa.int64())) / a_day
    if types.is_time(sort) or types.is_duration(sort):
        wide = pa.int32() if types.is_time32(sort) else pa.int64()
        return _floats(values.cast(wide))
    return _floats(values)


def _floats(values: pa.Array[Any]) -> Floats:
    if not types.is_floating(values.type):
        values = values.cast(pa.float64(), safe=False)
    # NULL becomes NaN
    return np.array(values.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)
