"""Groups the rows of a released table by what is printed in them, with Arrow's own hashing; for the verifier alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from dither.anonymize.attributes import Attribute
from dither.anonymize.table.values import Counts, plain

MOST = 1 << 62


@dataclass(frozen=True, slots=True, eq=False)
class Coded:
    """A column as its distinct values, the missing one among them, and the place of each row's value in them."""

    codes: Counts
    values: pa.Array[Any]

    @classmethod
    def of(cls, column: Any) -> Coded:
        """A column of any type that Arrow can hash; NaN is missing, and −0 is 0."""
        if types.is_dictionary(column.type):
            return cls._of_dictionary(column)
        column = decoded(column)
        half = types.is_float16(column.type)
        if half:
            # Arrow computes little with these, and below version 21 neither finds NaN nor what is distinct
            column = column.cast(pa.float32())
        if types.is_floating(column.type):
            zero: Any = pa.scalar(0.0, column.type)
            column = pc.add(column, zero)
            column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
        if types.is_null(column.type):
            column = column.cast(pa.string())
        if isinstance(column, pa.ChunkedArray):
            column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
        encoded = column.dictionary_encode(null_encoding="encode")
        values = encoded.dictionary.cast(pa.float16()) if half else encoded.dictionary
        return cls(encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), values)

    @classmethod
    def _of_dictionary(cls, column: Any) -> Coded:
        """A column that has its distinct values listed already, though some may be there twice, or not be used."""
        if isinstance(column, pa.ChunkedArray):
            parts = column.unify_dictionaries().chunks
            column = pa.concat_arrays(parts) if parts else pa.array([], column.type)
        values = pa.concat_arrays([column.dictionary, pa.nulls(1, column.dictionary.type)])
        indices = column.indices.fill_null(len(values) - 1) if column.null_count else column.indices
        known = cls.of(values)
        codes = known.codes[indices.to_numpy(zero_copy_only=False)]
        used = np.bincount(codes, minlength=known.size) > 0
        return cls((np.cumsum(used) - 1)[codes], known.values.filter(pa.array(used)))

    @classmethod
    def printed(cls, column: Any) -> Coded:
        """A column as it is printed: values with the same text are one."""
        if not types.is_dictionary(column.type):
            column = decoded(column)
        try:
            by_value = cls.of(column)
            by_text = cls.of(spelled(by_value.values))
        except pa.ArrowNotImplementedError:
            # lists, structures and calendar intervals have no text in Arrow
            return cls.of(
                pa.array([None if value is None else repr(value) for value in column.to_pylist()], pa.string())
            )
        return cls(by_text.codes[by_value.codes], by_text.values)

    def by_frequency(self) -> Coded:
        """The same with the most frequent values first."""
        order = np.argsort(-self.counts, kind="stable")
        became = np.empty(order.size, np.int64)
        became[order] = np.arange(order.size)
        return Coded(became[self.codes], self.values.take(order))

    @property
    def size(self) -> int:
        """How many distinct values there are."""
        return len(self.values)

    @property
    def counts(self) -> Counts:
        """How many rows have each value."""
        return np.bincount(self.codes, minlength=self.size)

    def texts(self) -> list[str | None]:
        """The distinct values of a printed column."""
        found: list[str | None] = self.values.to_pylist()
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Sorts:
    """Rows that agree as one: which sort each row is of, the first row of each sort, and how many rows it has."""

    of_row: Counts
    first: Counts
    rows: Counts

    @classmethod
    def of(cls, columns: Sequence[tuple[Counts, int]], rows: int) -> Sorts:
        """The sorts of rows with these codes, each column with a bound for its codes; without columns there is one."""
        key, bound = np.zeros(rows, np.int64), 1
        for codes, size in columns:
            if bound * max(1, size) >= MOST:
                key = _numbered(key)
                bound = rows
            key = key * size + codes
            bound *= max(1, size)
        of_row = _numbered(key)
        number = int(of_row.max(initial=-1)) + 1
        first = np.zeros(number, np.int64)
        # the last assignment stays, so from the end
        first[of_row[::-1]] = np.arange(rows)[::-1]
        return cls(of_row, first, np.bincount(of_row, minlength=number))

    @property
    def number(self) -> int:
        """How many sorts there are."""
        return self.first.size


def _numbered(keys: Counts) -> Counts:
    """Numbers from 0 on in the order of appearance, the same for the same key."""
    return Coded.of(pa.array(keys, pa.int64())).codes


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Printed:
    """A released table as text: the quasi-identifiers that rows are grouped by, what is kept besides, and the groups.

    The first ``width`` of ``keys`` are the quasi-identifiers; columns with the ends of ranges follow.
    """

    columns: dict[str, Coded]
    keys: tuple[str, ...]
    width: int
    kept: tuple[str, ...]
    groups: Sorts

    @classmethod
    def of(cls, columns: dict[str, Coded], keys: Sequence[str], width: int, kept: Sequence[str], rows: int) -> Printed:
        """The groups of rows that print the same."""
        groups = Sorts.of([(columns[name].codes, columns[name].size) for name in keys], rows)
        return cls(columns=columns, keys=tuple(keys), width=width, kept=tuple(kept), groups=groups)

    def cells(self, name: str) -> Counts:
        """Which of its texts each group has in one of the keys."""
        return self.columns[name].codes[self.groups.first]

    def within(self, name: str) -> tuple[list[int], list[int], list[int]]:
        """For each group and each value of a kept column in it: the group, the value's place, and its rows."""
        column = self.columns[name]
        groups = self.groups
        sorts = Sorts.of([(groups.of_row, groups.number), (column.codes, column.size)], groups.of_row.size)
        return groups.of_row[sorts.first].tolist(), column.codes[sorts.first].tolist(), sorts.rows.tolist()


def decoded(column: Any) -> Any:
    """A column of plain values."""
    if types.is_run_end_encoded(column.type):
        column = pc.call_function("run_end_decode", [column])
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.cast(column.type.storage_type)
    return column.cast(column.type.value_type) if types.is_dictionary(column.type) else column


def value_type(column: Any) -> Any:
    """The type of a column's plain values."""
    return decoded(column.slice(0, 0)).type


def spelled(values: Any) -> Any:
    """The text of distinct values; bytes need not be text, and are written as hexadecimal digits."""
    if types.is_binary(values.type) or types.is_large_binary(values.type) or types.is_fixed_size_binary(values.type):
        return pa.array([None if value is None else value.hex() for value in values.to_pylist()], pa.string())
    return plain(values)


def in_order(values: Any, attribute: Attribute) -> Any:
    """Distinct values from the smallest up, the missing one last."""
    if attribute.order is None:
        return values.take(pc.sort_indices(values))
    texts = plain(values).to_pylist()
    rank = {plain(pa.array([value])).to_pylist()[0]: place for place, value in enumerate(attribute.order)}
    places = sorted(range(len(texts)), key=lambda place: rank.get(texts[place], len(rank)))
    return values.take(pa.array(places, pa.int64()))
