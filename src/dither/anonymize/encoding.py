"""Columns as whole numbers: every distinct value has a code, so that rows are compared and counted by numpy.

Missing values (NULL and NaN) are one value of their own, with the last code.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from dither.anonymize.attributes import Attribute, kind_for
from dither.anonymize.hierarchy.hierarchies import Hierarchy
from dither.anonymize.table.values import AxisKind, Codes, Counts, Floats, numbers, plain
from dither.errors import InvalidParameter

Numbers: TypeAlias = npt.NDArray[Any]

# Rows whose ranks are looked up at once, so that wide results don't exist for all rows.
_STRETCH = 1 << 16

_FOUR_DIGITS = r"^[0-9]{4}-"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Encoded:
    """One column as codes into its distinct values.

    ``values`` are sorted for NUMBER, DATE and ORDERED. For CATEGORY they are in the hierarchy's order, in which each
    group is one stretch of codes, or else from the most frequent down. The missing value is the last one.
    """

    name: str
    kind: AxisKind
    codes: Codes
    values: pa.Array[Any]
    missing: bool
    hierarchy: Hierarchy | None = None

    @property
    def size(self) -> int:
        """How many distinct values there are, the missing one included."""
        return len(self.values)

    @property
    def counts(self) -> Counts:
        """How many rows have each value."""
        return np.bincount(self.codes, minlength=self.size).astype(np.int64)

    @property
    def numbers(self) -> Floats:
        """Where each value lies on a line: numbers as they are, dates in days, others by rank; missing is NaN."""
        return numbers(self.values, self.kind)

    @property
    def texts(self) -> list[str | None]:
        """The printed text of each value; ``None`` for the missing one."""
        found: list[str | None] = plain(self.values).to_pylist()
        return found

    def level_codes(self, level: int) -> tuple[Codes, tuple[str | None, ...]]:
        """The group of each value at a level of the hierarchy, and the groups' labels."""
        if self.hierarchy is None:
            raise InvalidParameter(
                f"column {self.name!r} has no hierarchy: give one, such as Hierarchy.intervals((5, 10))"
            )
        return self.hierarchy.level_codes(level, self.values)

    def take(self, rows: Any) -> Encoded:
        """The column for some of the rows only; codes and values stay what they are."""
        return replace(self, codes=self.codes[rows])


def encode(table: pa.Table, attribute: Attribute) -> Encoded:
    """The column of an attribute as codes.

    Example:
        >>> from dither.anonymize.attributes import Attribute, Role
        >>> age = encode(pa.table({"age": [47, None, 31, 47]}), Attribute(name="age", role=Role.QUASI))
        >>> age.codes.tolist(), age.values.to_pylist(), age.missing
        ([1, 2, 0, 1], [31, 47, None], True)
    """
    name = attribute.name
    if name not in table.column_names:
        raise InvalidParameter(f"there is no column {name!r}; the table has {', '.join(map(repr, table.column_names))}")
    column = cleaned(table.column(name))
    kind = kind_for(attribute, column.type)
    if kind.on_a_line and attribute.order is None and _is_number(column.type):
        codes, values = on_a_line(column)
    else:
        found, values = dictionary(column)
        values, rank = _sorted(values, found, kind, attribute)
        codes = rank[found]
    _expect_printable(values, name)
    missing = len(values) > 0 and not values[-1].is_valid
    if attribute.hierarchy is not None:
        attribute.hierarchy.check(values, name)
    return Encoded(name=name, kind=kind, codes=codes, values=values, missing=missing, hierarchy=attribute.hierarchy)


def cleaned(column: pa.ChunkedArray[Any]) -> Any:
    """One plain type, NaN as missing, and one zero: −0.0 is 0.0."""
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if types.is_null(column.type) or types.is_string_view(column.type):
        return column.cast(pa.string())
    if types.is_float16(column.type):
        column = column.cast(pa.float32())
    if types.is_floating(column.type):
        zero: Any = pa.scalar(0.0, column.type)
        positive_zero = pc.add(column, zero)
        return pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), positive_zero)
    return column


def dictionary(column: pa.ChunkedArray[Any]) -> tuple[Codes, pa.Array[Any]]:
    """Codes in order of first appearance, and the values they stand for, NULL included."""
    if not len(column):
        return np.zeros(0, np.int32), pa.array([], column.type)
    encoded: Any = column.dictionary_encode(null_encoding="encode").combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = pa.concat_arrays(encoded.chunks)
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int32), encoded.dictionary


def _is_number(kind: pa.DataType) -> bool:
    """Whether values are stored as numbers of whole bytes that have the same order."""
    return types.is_primitive(kind) and not types.is_boolean(kind)


def on_a_line(column: pa.ChunkedArray[Any]) -> tuple[Codes, pa.Array[Any]]:
    """The rank of each row's value among the different numbers, dates or times of a column, and these in order.

    The missing value comes last. Sorting needs less memory than hashing where most values differ, and less time.
    """
    sort = "f" if types.is_floating(column.type) else "u" if types.is_unsigned_integer(column.type) else "i"
    storage = np.dtype(f"{sort}{column.type.bit_width // 8}")
    array: Any = column.combine_chunks() if column.num_chunks else pa.array([], column.type)
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    missing, kind = array.null_count > 0, array.type
    absent = np.asarray(array.is_null(), dtype=bool) if missing else np.zeros(0, np.bool_)
    array = array.view(pa.from_numpy_dtype(storage))
    line = (array.fill_null(0) if missing else array).to_numpy(zero_copy_only=False)
    present = line[~absent] if missing else line
    codes, values = _by_table(line, present) if _is_dense(present) else _by_sorting(line, present)
    different: Any = pa.array(values).view(kind)
    if missing:
        codes[absent] = values.size
        different = pa.concat_arrays([different, pa.nulls(1, kind)])
    return codes, different


def _is_dense(numbers: Numbers) -> bool:
    """Whether whole numbers span little more than there are rows."""
    if not numbers.size or not np.issubdtype(numbers.dtype, np.integer):
        return False
    return int(numbers.max()) - int(numbers.min()) <= max(numbers.size, 1 << 8)


def _by_table(line: Numbers, present: Numbers) -> tuple[Codes, Numbers]:
    low, high = present.min(), present.max()
    # differences of narrow numbers don't fit their type; those of wide ones do, since they are close together
    wide = line.dtype if line.dtype.itemsize == 8 else np.dtype(np.int64)
    # a missing value was filled with any number, and its rank is replaced later
    place = np.subtract(np.clip(line, low, high) if line.size > present.size else line, low, dtype=wide)
    seen = np.zeros(int(high) - int(low) + 1, np.bool_)
    seen[np.subtract(present, low, dtype=wide)] = True
    rank = np.cumsum(seen, dtype=np.int32)
    rank -= 1
    return rank[place], np.add(np.flatnonzero(seen).astype(wide), low, dtype=wide).astype(line.dtype)


def _by_sorting(line: Numbers, present: Numbers) -> tuple[Codes, Numbers]:
    values = np.sort(present)
    values = values[np.append(np.ones(min(1, values.size), np.bool_), values[1:] != values[:-1])]
    codes = np.empty(line.size, np.int32)
    for begin in range(0, line.size, _STRETCH):
        codes[begin : begin + _STRETCH] = np.searchsorted(values, line[begin : begin + _STRETCH])
    return codes, values


def _expect_printable(values: pa.Array[Any], name: str) -> None:
    """Dates of other than four-digit years have texts that can't be read again."""
    if not (types.is_date(values.type) or types.is_timestamp(values.type)) or values.null_count == len(values):
        return
    span: Any = pc.min_max(values)
    ends = values.filter(pc.or_(pc.equal(values, span["min"]), pc.equal(values, span["max"])))
    if not pc.all(pc.match_substring_regex(plain(ends), _FOUR_DIGITS)).as_py():
        raise InvalidParameter(
            f"column {name!r} has dates outside of the years 0 to 9999, which have no common spelling: replace them by "
            "missing ones"
        )


def _sorted(values: pa.Array[Any], codes: Codes, kind: AxisKind, attribute: Attribute) -> tuple[pa.Array[Any], Codes]:
    """The values in the order of their new codes, and the new code of each old one."""
    order: Any
    absent = np.asarray(values.is_null(), dtype=bool)
    if attribute.order is not None:
        order = np.lexsort((_ranks(values, attribute), absent))
    elif kind.on_a_line:
        order = np.asarray(pc.sort_indices(values))
    elif attribute.hierarchy is not None:
        attribute.hierarchy.check(values, attribute.name)
        inner = attribute.hierarchy.order(values)
        order = inner[np.argsort(absent[inner], kind="stable")]
    else:
        frequency = np.bincount(codes, minlength=len(values))
        order = np.lexsort((np.arange(len(values)), -frequency, absent))
    rank = np.empty(len(values), np.int32)
    rank[order] = np.arange(len(values), dtype=np.int32)
    return values.take(order), rank


def _ranks(values: pa.Array[Any], attribute: Attribute) -> Counts:
    """The place of each value in the attribute's order; a missing value has none and gets the last."""
    wanted = attribute.order or ()
    place = {_comparable(value): rank for rank, value in enumerate(wanted)}
    found = [place.get(_comparable(value)) for value in values.to_pylist()]
    absent = values.to_pylist()
    unknown = sum(rank is None and value is not None for rank, value in zip(found, absent, strict=True))
    if unknown:
        raise InvalidParameter(
            f"{unknown} of the {len(values)} distinct values of {attribute.name!r} are not in its order: list them all"
        )
    return np.array([len(wanted) if rank is None else rank for rank in found], np.int64)


def _comparable(value: Any) -> Any:
    """True and 1 are equal in Python but not in a column."""
    return (type(value) is bool, value)
