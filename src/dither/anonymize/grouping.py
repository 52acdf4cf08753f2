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
from dither.anonymize.values import Counts, plain

COUNT = "count_all"
PEOPLE = "\0people"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Printed:
    """A released table as text: the quasi-identifiers that rows are grouped by, what is kept besides, and the groups.

    The first ``width`` of ``keys`` are the quasi-identifiers; columns with the ends of ranges follow.
    """

    texts: pa.Table
    keys: tuple[str, ...]
    width: int
    kept: tuple[str, ...]
    groups: list[tuple[Any, ...]]
    sizes: list[int]
    number: dict[tuple[Any, ...], int]

    @classmethod
    def of(cls, texts: pa.Table, keys: Sequence[str], width: int, kept: Sequence[str]) -> Printed:
        """The groups of rows that print the same."""
        groups, sizes = grouped(texts, keys)
        number = {group: place for place, group in enumerate(groups)}
        return cls(
            texts=texts,
            keys=tuple(keys),
            width=width,
            kept=tuple(kept),
            groups=groups,
            sizes=sizes,
            number=number,
        )

    def within(self, names: Sequence[str]) -> list[tuple[int, tuple[Any, ...], int]]:
        """For each group and each combination of further columns in it: the group, the combination, and its rows."""
        pairs, numbers = grouped(self.texts, [*self.keys, *names])
        cut = len(self.keys)
        return [(self.number[pair[:cut]], pair[cut:], rows) for pair, rows in zip(pairs, numbers, strict=True)]


def grouped(table: pa.Table, names: Sequence[str]) -> tuple[list[tuple[Any, ...]], list[int]]:
    """The distinct combinations of some columns, and how many rows have each."""
    if not table.num_rows:
        return [], []
    if not names:
        return [()], [table.num_rows]
    every: Any = ([], COUNT)
    found = table.group_by(list(names), use_threads=False).aggregate([every])
    keys = zip(*(found.column(name).to_pylist() for name in names), strict=True)
    return list(keys), [int(number) for number in np.asarray(found.column(COUNT))]


def distinct(
    table: pa.Table, names: Sequence[str], count: str | None = None
) -> tuple[list[tuple[Any, Counts]], Counts]:
    """The distinct combinations: for each column its values, and each combination's place in them; and their rows.

    With ``count``, rows are not counted: that column is added up.
    """
    coded: dict[str, Any] = {}
    domains = []
    for name in names:
        codes, domain = _coded(decoded(table.column(name)))
        domains.append(domain)
        coded[name] = codes
    if count is not None:
        coded[PEOPLE] = table.column(count)
    wanted: Any = ([], COUNT) if count is None else (PEOPLE, "sum")
    found = pa.table(coded).group_by(list(names), use_threads=False).aggregate([wanted])
    numbers = found.column(COUNT if count is None else f"{PEOPLE}_sum")
    places = [np.asarray(found.column(name)).astype(np.int64) for name in names]
    return list(zip(domains, places, strict=True)), np.asarray(numbers).astype(np.int64)


def _coded(column: Any) -> tuple[Any, Any]:
    if types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
    if types.is_null(column.type):
        column = column.cast(pa.string())
    encoded = column.dictionary_encode(null_encoding="encode").combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):
        # a column without rows has no chunk to combine
        return pa.array([], pa.int32()), pa.array([], column.type)
    return encoded.indices, encoded.dictionary


def decoded(column: Any) -> Any:
    """A column of plain values."""
    return column.cast(column.type.value_type) if types.is_dictionary(column.type) else column


def value_type(column: Any) -> Any:
    """The type of a column's plain values."""
    return column.type.value_type if types.is_dictionary(column.type) else column.type


def texts_of(column: Any) -> Any:
    """A column as printed; the text of each distinct value is made once."""
    values = decoded(column)
    if types.is_string(values.type):
        return values
    if types.is_nested(values.type):
        return pa.array([None if value is None else repr(value) for value in values.to_pylist()], pa.string())
    codes, domain = _coded(values)
    return plain(domain).take(codes)


def in_order(values: Any, attribute: Attribute) -> Any:
    """Distinct values from the smallest up, the missing one last."""
    if attribute.order is None:
        return values.take(pc.sort_indices(values))
    texts = plain(values).to_pylist()
    rank = {plain(pa.array([value])).to_pylist()[0]: place for place, value in enumerate(attribute.order)}
    places = sorted(range(len(texts)), key=lambda place: rank.get(texts[place], len(rank)))
    return values.take(pa.array(places, pa.int64()))
