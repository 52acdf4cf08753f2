"""The released table: what is printed for every class, and everything its owner may want to know about it.

**What a cell of a quasi-identifier says.** Every quasi-identifier becomes a column of text (dictionary-encoded), the
same for all rows of a class. The text is one of

=================  ==================================================================================================
``23``             the value itself: numbers and dates as Arrow writes them, text unchanged
``20–29``          a number, date or ordered value from 20 to 29, both included; the dash is an en dash (U+2013), so
                   that ``-5–-3`` and ``2001-01-01–2001-12-31`` can't be misread
``{a, b, c}``      one of these categories, in alphabetical order
``{20–29, NULL}``  a value in that range, or none; ``{a, NULL}`` likewise
NULL               a missing value, and nothing else (an empty field in a CSV file)
``*``              any value, or none
any other text     the label that the column's hierarchy has for the value, as the hierarchy spells it
=================  ==================================================================================================

In a set or a range, a value that is empty, is ``*`` or ``NULL``, begins or ends with a space, or contains one of
``{ } , " –`` is written as a JSON string (``{"a, b", c}``). Standing alone, a value is written as a JSON string only
if it is empty, is ``*``, begins with ``{`` or ``"``, or contains ``–``. Labels of hierarchies are never quoted.

**Which rows.** Identifying columns are gone. Rows of suppressed people are left out. Rows are ordered by what they
say (by class, then by the other columns), never as they came: the order of the original table is often that of names
or of dates, and would tell people of one class apart. ``Release.rows`` has the original position of every row; it is
for the owner, and isn't part of the table.

k-anonymity and its kin claim no privacy loss: they limit what one kind of attacker learns from one table, and say
nothing about two releases or about what else is known.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
import pyarrow.parquet as parquet
import pyarrow.types as types

from dither.anonymize.attributes import Role
from dither.anonymize.configuration import Configuration
from dither.anonymize.releases.printing import PrintedColumn
from dither.anonymize.releases.quality import Quality, quality_of
from dither.anonymize.releases.quasi_identifier_axis import AxisShape
from dither.anonymize.table.classes import Classes
from dither.anonymize.table.row_keys import alike, keys_of, order_of
from dither.anonymize.table.values import Codes, Counts
from dither.errors import InvalidParameter, MissingLibrary


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Release:
    """An anonymised table, with what its owner knows about it; only ``table`` is meant to be given away.

    ``classes`` says for each row of the original table in which class it is (−1: suppressed), ``rows`` for each row of
    the released one where it was, ``cells`` what is printed for each class. ``how`` says how it was made.
    """

    table: pa.Table
    classes: Classes
    configuration: Configuration
    how: str
    cells: tuple[PrintedColumn, ...]
    rows: Counts

    @classmethod
    def of(
        cls,
        table: pa.Table,
        configuration: Configuration,
        classes: Classes,
        cells: Sequence[PrintedColumn],
        *,
        how: str,
    ) -> Release:
        """The release of a table whose rows are in these classes, with the cells of each quasi-identifier in order.

        Classes that print the same are one: nobody who reads the table can tell them apart.
        """
        if classes.of_row.size != table.num_rows:
            raise InvalidParameter("classes must say for each row of the table in which class it is")
        names = [attribute.name for attribute in configuration.quasi]
        if [one.axis.name for one in cells] != names or any(len(one.texts) != classes.number for one in cells):
            raise InvalidParameter(f"cells are needed for every class and each of {', '.join(map(repr, names))}")
        if (classes.sizes == 0).any():
            raise InvalidParameter("every class must have a row")
        ranked = [_ranked(one) for one in cells]
        first, became, _ = alike([codes for codes, _ in ranked], [len(texts) for _, texts in ranked])
        printed = {name: (codes[first], texts) for name, (codes, texts) in zip(names, ranked, strict=True)}
        del ranked
        of_row = _renamed(classes.of_row, became)
        merged = Classes(of_row, np.bincount(became, weights=classes.sizes, minlength=first.size).astype(np.int64))
        rows = _in_order(table, configuration, of_row, first.size)
        columns = {}
        for attribute in configuration.attributes:
            if attribute.role is Role.QUASI:
                codes, texts = printed[attribute.name]
                indices = pa.array(codes[of_row[rows]])
                columns[attribute.name] = _dictionary(indices, texts)
            elif attribute.role is not Role.IDENTIFYING:
                columns[attribute.name] = _kept(table.column(attribute.name), rows)
        return cls(
            # a new table: metadata of the old one may tell of the file, the index or unused categories
            table=pa.table({name: columns[name] for name in table.column_names if name in columns}),
            classes=merged,
            configuration=configuration,
            how=how,
            cells=tuple(_merged(one, first, became) for one in cells),
            rows=rows,
        )

    def quality(self) -> Quality:
        """How much detail was lost."""
        return quality_of(self.classes, self.cells)

    def with_bounds(self) -> pa.Table:
        """The table with two more columns for each range, its lowest and its highest value: ``age_low, age_high``.

        They have the type of the original column and can be computed with. Where nothing but a missing value is
        printed, they are NULL.
        """
        table = self.table
        of_row = self.classes.of_row[self.rows]
        for one in self.cells:
            if one.axis.shape is not AxisShape.RANGE:
                continue
            nothing = pa.array((one.high < one.low)[of_row])
            for suffix, positions in (("low", one.low), ("high", one.high)):
                name = f"{one.axis.name}_{suffix}"
                if name in table.column_names:
                    raise InvalidParameter(f"the table already has a column {name!r}: rename it first")
                ends = one.axis.values.take(pa.array(np.maximum(positions, 0)[of_row]))
                table = table.append_column(name, pc.if_else(nothing, pa.scalar(None, ends.type), ends))
        return table

    def to_arrow(self) -> pa.Table:
        """The released table."""
        return self.table

    def to_pandas(self) -> Any:
        """The released table as a pandas frame; quasi-identifiers are categories."""
        return self.table.to_pandas()

    def to_polars(self) -> Any:
        """The released table as a polars frame."""
        try:
            import polars as pl
        except ImportError:
            raise MissingLibrary("this needs polars: pip install polars") from None
        return pl.from_arrow(self.table)

    def save(self, path: str | Path) -> None:
        """Write the released table, and nothing else, to a .parquet or .csv file.

        In a CSV file an empty field is a missing value, and ``""`` an empty text. The file appears when it is complete.
        """
        target = Path(path)
        if target.suffix not in (".parquet", ".csv"):
            raise InvalidParameter(f"a release is saved as .parquet or .csv; got {target.name!r}")
        draft = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            if target.suffix == ".parquet":
                parquet.write_table(self.table, draft)
            else:
                columns: dict[str, Any] = {
                    name: column.cast(pa.string()) if types.is_dictionary(column.type) else column
                    for name, column in zip(self.table.column_names, self.table.columns, strict=True)
                }
                arrow_csv.write_csv(pa.table(columns), draft)
            draft.replace(target)
        except pa.ArrowCancelled:
            raise KeyboardInterrupt from None
        except pa.ArrowException:
            # Arrow's message might quote a value
            hint = ": use .parquet" if target.suffix == ".csv" else ": leave it out"
            raise InvalidParameter(
                f"a {target.suffix} file can't hold a column of one of the types {self._types()}{hint}, or convert it"
            ) from None
        except OSError:
            raise InvalidParameter(
                f"{str(target)!r} can't be written: is there such a directory, and room in it?"
            ) from None
        finally:
            draft.unlink(missing_ok=True)

    def _types(self) -> str:
        kept = (field.type for field in self.table.schema if not types.is_dictionary(field.type))
        return ", ".join(dict.fromkeys(map(str, kept)))

    def __repr__(self) -> str:
        return (
            f"Release({self.how}: {self.table.num_rows:,} rows in {self.classes.number:,} classes, "
            f"{self.classes.suppressed:,} suppressed)"
        )


def _dictionary(indices: pa.Array[Any], texts: pa.Array[Any]) -> pa.Array[Any]:
    """A dictionary column; a NULL in the dictionary becomes a NULL in the rows, which every reader understands."""
    missing = texts.null_count
    if missing:
        # the only NULL stands last
        indices = pc.if_else(
            pc.equal(indices, pa.scalar(len(texts) - 1, pa.int32())), pa.scalar(None, pa.int32()), indices
        )
        texts = texts.slice(0, len(texts) - 1)
    return pa.DictionaryArray.from_arrays(indices, texts)


def _ranked(one: PrintedColumn) -> tuple[Codes, pa.Array[Any]]:
    """The different texts in the order of the axis, NULL last, and which of them each class has."""
    encoded = one.texts.dictionary_encode(null_encoding="encode")
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    texts = encoded.dictionary
    low, high = np.full(len(texts), one.axis.size, np.int32), np.full(len(texts), -1, np.int32)
    np.minimum.at(low, codes, one.low)
    np.maximum.at(high, codes, one.high)
    low[np.asarray(texts.is_null(), dtype=bool)] = one.axis.size
    # ranges of an axis differ in their ends; sets and labels may not
    keys, bound = keys_of([low, high + 1], [one.axis.size + 1, one.axis.size + 1])
    order = order_of(keys, bound)
    keys = keys[order]
    if (keys[1:] == keys[:-1]).any():
        by_text = np.empty(len(texts), np.int32)
        by_text[np.asarray(pc.sort_indices(texts))] = np.arange(len(texts), dtype=np.int32)
        order = np.lexsort((by_text, high, low))
    rank = np.empty(len(texts), np.int32)
    rank[order] = np.arange(len(texts), dtype=np.int32)
    found = rank[codes], texts.take(order)
    # Arrow keeps what it needed meanwhile for later
    pa.default_memory_pool().release_unused()
    return found


def _merged(one: PrintedColumn, first: Counts, became: Counts) -> PrintedColumn:
    """The cells after classes that print the same became one: as wide as the widest of them."""
    chosen = one.take(first)
    if first.size == became.size:
        return chosen
    for ours, theirs, widen in (
        (chosen.low, one.low, np.minimum),
        (chosen.high, one.high, np.maximum),
        (chosen.shares, one.shares, np.maximum),
        (chosen.or_missing, one.or_missing, np.logical_or),
    ):
        widen.at(ours, became, theirs)
    return chosen


def _renamed(of_row: npt.NDArray[Any], became: Counts) -> npt.NDArray[Any]:
    renamed: npt.NDArray[Any] = np.append(became, -1)[of_row]
    return renamed.astype(np.int32) if became.size < 1 << 31 else renamed


def _in_order(table: pa.Table, configuration: Configuration, of_row: npt.NDArray[Any], number: int) -> Counts:
    """The rows that aren't suppressed, by class and then by what else they say."""
    kept = None if (of_row >= 0).all() else np.flatnonzero(of_row >= 0)
    columns, sizes = [of_row if kept is None else of_row[kept]], [number]
    for attribute in configuration.attributes:
        if attribute.role in (Role.SENSITIVE, Role.INSENSITIVE):
            codes, size = _sortable(table.column(attribute.name))
            columns.append(codes if kept is None else codes[kept])
            sizes.append(size)
    keys, bound = keys_of(columns, sizes)
    del columns
    order = order_of(keys, bound)
    return order if kept is None else kept[order]


def _sortable(column: pa.ChunkedArray[Any]) -> tuple[Codes, int]:
    """The rank of each row's value among the different values of its column."""
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    try:
        encoded: Any = pa.concat_arrays(column.dictionary_encode(null_encoding="encode").unify_dictionaries().chunks)
        order = np.asarray(pc.sort_indices(encoded.dictionary))
    except pa.ArrowException:
        # lists and other nested values have no order in Arrow: by their text
        texts = np.array([repr(value) for value in column.to_pylist()])
        values, codes = np.unique(texts, return_inverse=True)
        return codes.reshape(-1).astype(np.int32), values.size
    rank = np.empty(order.size, np.int32)
    rank[order] = np.arange(order.size, dtype=np.int32)
    return rank[encoded.indices.to_numpy(zero_copy_only=False)], max(1, order.size)


def _kept(column: pa.ChunkedArray[Any], rows: Counts) -> Any:
    """A column in its new order; plain, since a dictionary may hold values of rows that are gone."""
    wanted = _plain_type(column.type)
    if wanted != column.type:
        column = column.cast(wanted)
    return column.take(rows)


def _plain_type(kind: pa.DataType) -> Any:
    """A type without dictionaries at any depth, and with plain text, as Arrow can't take rows of polars' text."""
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return _plain_type(kind.value_type)
    if types.is_string_view(kind):
        return pa.string()
    if types.is_struct(kind):
        return pa.struct(
            [(kind.field(place).name, _plain_type(kind.field(place).type)) for place in range(kind.num_fields)]
        )
    if types.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain_type(kind.item_type))
    if types.is_fixed_size_list(kind):
        return pa.list_(_plain_type(kind.value_type), kind.list_size)
    if types.is_large_list(kind):
        return pa.large_list(_plain_type(kind.value_type))
    return pa.list_(_plain_type(kind.value_type)) if types.is_list(kind) else kind
