"""What a level of generalisation for each quasi-identifier makes of a table: its classes, from those of finer levels.

A *node* is one level for each quasi-identifier, in the order of the configuration. Its classes are counted without
going back to the rows: every class of a node is a union of classes of any finer node, so that a few thousand classes
are merged instead of a million rows (roll-up: LeFevre, DeWitt & Ramakrishnan 2005).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dither.anonymize.attributes import Attribute, Role
from dither.anonymize.configuration import Configuration
from dither.anonymize.encoding import Encoded, encode
from dither.anonymize.hierarchy.hierarchies import Hierarchy, TableHierarchy
from dither.anonymize.releases.printing import PrintedColumn, inside
from dither.anonymize.releases.quasi_identifier_axis import Axis
from dither.anonymize.releases.release import Release
from dither.anonymize.table.classes import SUPPRESSED, Classes, Histogram
from dither.anonymize.table.values import ANYTHING, AxisKind, Bools, Codes, Counts

Node: TypeAlias = tuple[int, ...]

_MOST_WIDE = 1 << 62


def with_hierarchies(table: pa.Table, configuration: Configuration) -> Configuration:
    """The configuration with a hierarchy for every quasi-identifier; those that have none get an automatic one.

    Numbers, dates and ordered values merge with their neighbours; other values from the rarest up.
    """
    completed = []
    for attribute in configuration.attributes:
        if attribute.role is Role.QUASI and attribute.hierarchy is None:
            completed.append(replace(attribute, hierarchy=_automatic(encode(table, attribute))))
        else:
            completed.append(attribute)
    return Configuration(tuple(completed), configuration.models, configuration.suppression)


def _automatic(column: Encoded) -> Hierarchy:
    known = column.size - column.missing
    if not known:
        return TableHierarchy.of([("",)])
    values, counts = column.values.slice(0, known), column.counts[:known]
    if column.kind is not AxisKind.ORDERED:
        return Hierarchy.automatic(values, counts)
    # The order is the attribute's and isn't seen in the values: ranks merge with their neighbours.
    ranks = pa.array(np.arange(known))
    levels = Hierarchy.automatic(ranks, counts).levels(ranks)
    texts = [text or "" for text in column.texts[:known]]
    lines: list[list[str]] = [[text] for text in texts]
    for codes in levels[1:-1]:
        first = np.searchsorted(codes, codes)
        last = np.searchsorted(codes, codes, side="right") - 1
        for line, begin, end in zip(lines, first.tolist(), last.tolist(), strict=True):
            line.append(texts[begin] if begin == end else f"{inside(texts[begin])}–{inside(texts[end])}")
    return TableHierarchy.of([[*line, ANYTHING] for line in lines])


@dataclass(frozen=True, slots=True, eq=False)
class Domain:
    """The quasi-identifiers of a table with the groups of all their levels."""

    axes: tuple[Axis, ...]

    @classmethod
    def of(cls, table: pa.Table, attributes: Sequence[Attribute]) -> Domain:
        """The domain of quasi-identifiers that all have a hierarchy."""
        return cls(tuple(Axis.of(encode(table, attribute), attribute) for attribute in attributes))

    @property
    def heights(self) -> Node:
        """The highest level of each quasi-identifier."""
        return tuple(len(axis.groups) - 1 for axis in self.axes)

    @property
    def rows(self) -> int:
        """How many rows the table has."""
        return int(self.axes[0].positions.size)

    def number(self, axis: int, level: int) -> int:
        """How many groups a quasi-identifier has at a level."""
        return len(self.axes[axis].labels[level])

    def above(self, axis: int, start: int, level: int) -> npt.NDArray[Any]:
        """The group at a level that each group of a finer level, ``start``, is in."""
        one = self.axes[axis]
        found: npt.NDArray[Any] = one.groups[level][one.bounds[start][0]]
        return found


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Grouping:
    """The classes of one node: the group of each quasi-identifier, and how many rows each class has.

    ``people`` has, for each k-map model, the people of its population in each class; ``histograms`` the counts of each
    sensitive column that a model speaks about, or None until they are needed.
    """

    node: Node
    groups: tuple[Codes, ...]
    sizes: Counts
    people: tuple[Counts, ...] = ()
    histograms: tuple[Histogram, ...] | None = None

    @property
    def number(self) -> int:
        """How many classes there are."""
        return self.sizes.size


def of_rows(domain: Domain, node: Node, people: Sequence[Counts], columns: Sequence[Encoded]) -> tuple[Grouping, Codes]:
    """The classes of a node counted from the rows, and the class of each row."""
    places = [axis.positions for axis in domain.axes]
    tables = [axis.groups[level] for axis, level in zip(domain.axes, node, strict=True)]
    of_row, number = _alike(places, tables, [domain.number(axis, level) for axis, level in enumerate(node)])
    grouping = Grouping(
        node=node,
        groups=_firsts(places, tables, of_row, number),
        sizes=np.bincount(of_row, minlength=number).astype(np.int64),
        people=tuple(_summed(one, of_row, number) for one in people),
        histograms=tuple(Histogram.of(of_row, one.codes, number=number, size=one.size) for one in columns),
    )
    return grouping, of_row


def rolled_up(domain: Domain, source: Grouping, node: Node) -> tuple[Grouping, Codes]:
    """The classes of a node from those of a finer one, without histograms, and what each of the finer ones became."""
    tables = [
        domain.above(axis, start, level) for axis, (start, level) in enumerate(zip(source.node, node, strict=True))
    ]
    became, number = _alike(source.groups, tables, [domain.number(axis, level) for axis, level in enumerate(node)])
    grouping = Grouping(
        node=node,
        groups=_firsts(source.groups, tables, became, number),
        sizes=_summed(source.sizes, became, number),
        people=tuple(_summed(one, became, number) for one in source.people),
    )
    return grouping, became


def with_histograms(grouping: Grouping, source: Grouping, became: Codes) -> Grouping:
    """The grouping with histograms merged from those of the finer one that it was rolled up from."""
    assert source.histograms is not None
    merged = tuple(one.merged(became, grouping.number) for one in source.histograms)
    return replace(grouping, histograms=merged)


def released(
    table: pa.Table,
    configuration: Configuration,
    domain: Domain,
    *,
    grouping: Grouping,
    of_row: Codes,
    failing: Bools,
    how: str,
) -> Release:
    """The release of a node: every value at its level, and rows of failing classes left out."""
    number = np.where(failing, SUPPRESSED, np.cumsum(~failing) - 1)
    classes = Classes(number[of_row], grouping.sizes[~failing])
    cells = []
    for axis, codes, level in zip(domain.axes, grouping.groups, grouping.node, strict=True):
        position = axis.bounds[level][0][codes[~failing]]
        cells.append(PrintedColumn.under(axis, np.full(position.size, level), position))
    return Release.of(table, configuration, classes, cells, how=how)


def _alike(
    columns: Sequence[npt.NDArray[Any]], tables: Sequence[npt.NDArray[Any]], sizes: Sequence[int]
) -> tuple[Codes, int]:
    """The number of each line, equal for lines whose codes agree after a table for each column, and how many there are.

    A table gives numbers below the column's size; the key of a line has them as digits.
    """
    key = np.zeros(columns[0].size, np.int64)
    width = 1
    for codes, table, size in zip(columns, tables, sizes, strict=True):
        if size == 1:
            continue
        if width * size >= _MOST_WIDE:
            ranks, width = _numbered(key, width)
            key = ranks.astype(np.int64)
        key += (table.astype(np.int64) * width)[codes]
        width *= size
    return _numbered(key, width)


def _numbered(key: Counts, width: int) -> tuple[Codes, int]:
    """Keys below ``width`` renumbered without gaps."""
    if width <= max(4 * key.size, 1 << 12):
        rank = np.cumsum(np.bincount(key, minlength=width) > 0, dtype=np.int64)
        return (rank - 1)[key].astype(np.int32), int(rank[-1]) if rank.size else 0
    # hashing is several times faster than sorting
    encoded = pa.array(key).dictionary_encode()
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int32), len(encoded.dictionary)


def _firsts(
    columns: Sequence[npt.NDArray[Any]], tables: Sequence[npt.NDArray[Any]], became: Codes, number: int
) -> tuple[Codes, ...]:
    """The groups of each class, read off any of its members."""
    member = np.empty(number, np.int64)
    member[became] = np.arange(became.size)
    return tuple(table.astype(np.int32)[codes[member]] for codes, table in zip(columns, tables, strict=True))


def _summed(counts: Counts, became: Codes, number: int) -> Counts:
    # whole numbers as float weights are exact up to 2^53, far above any number of rows
    return np.bincount(became, weights=counts, minlength=number).astype(np.int64)
