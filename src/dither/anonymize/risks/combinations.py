"""How many rows a combination of columns tells apart, for every combination up to a size, over millions of rows.

Rows that are alone already stay alone when more is known, so each search goes on with the others only: stripped
partitions (Huhtala, Kärkkäinen, Porkka & Toivonen 1999). A combination whose last column splits nothing tells as much
as it does without that column, whatever else is added; such branches are copied instead of counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np
import pyarrow as pa

from dither.anonymize.encoding import cleaned, dictionary
from dither.anonymize.table.row_keys import order_of
from dither.anonymize.table.values import Codes, Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """How far a set of columns tells rows apart: the classes of rows that are alike in all of them."""

    columns: tuple[str, ...]
    rows: int
    classes: int
    unique: int
    smallest: int
    small: int

    @property
    def unique_share(self) -> float:
        """The share of rows that are alone with their values."""
        return self.unique / self.rows

    @property
    def small_share(self) -> float:
        """The share of rows in classes smaller than the k of the report."""
        return self.small / self.rows

    @property
    def expected(self) -> float:
        """The share of rows that somebody who knows the columns of everybody is expected to identify.

        In a class of f rows one guess in f is right, so each class brings one right guess: classes over rows (Dankar &
        El Emam 2010).
        """
        return self.classes / self.rows


@dataclass(frozen=True, slots=True)
class Partition:
    """The classes with two rows or more: their rows, class by class, and the class of each."""

    rows: Counts
    classes: Counts


def unwrapped_type(kind: Any) -> Any:
    """The type of the values themselves, without dictionaries and extension types around them."""
    while True:
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        elif pa.types.is_dictionary(kind):
            kind = kind.value_type
        else:
            return kind


def unwrapped(column: Any) -> Any:
    """The values themselves, however the column stores them."""
    while True:
        if isinstance(column.type, pa.BaseExtensionType):
            inside: Any = column.type.storage_type
            column = pa.chunked_array([chunk.storage for chunk in column.chunks], inside)
        elif pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        else:
            return column


def codes_of(column: pa.ChunkedArray[Any]) -> tuple[Codes, int]:
    """Equal values as equal numbers from 0, and how many there are; missing values (NULL, NaN) are one value."""
    codes, values = dictionary(cleaned(unwrapped(column)))
    return codes, len(values)


@dataclass(slots=True)
class Search:
    """A search over combinations: columns as codes, and what was found so far."""

    names: Sequence[str]
    columns: Sequence[tuple[Codes, int]]
    k: int
    counted: Callable[[], None]
    found: dict[tuple[int, ...], Combination]

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return int(self.columns[0][0].size)

    def run(self, among: Sequence[int], size: int) -> None:
        """Find every combination of ``among`` with at most ``size`` columns."""
        # columns with many values first: they leave few rows for the combinations that begin with them
        order = sorted(among, key=lambda place: (-self.columns[place][1], place))
        start = Partition(np.arange(self.rows, dtype=np.int64), np.zeros(self.rows, np.int64))
        copies: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
        self._extend((), start, (0, 1 if self.rows else 0), order, size, copies)
        for combination, same in reversed(copies):
            told = self.found[_key(same)]
            self._keep(combination, told.classes, told.unique, told.smallest, told.small)

    def _extend(
        self,
        known: tuple[int, ...],
        partition: Partition,
        counts: tuple[int, int],
        order: Sequence[int],
        size: int,
        copies: list[tuple[tuple[int, ...], tuple[int, ...]]],
    ) -> None:
        alone, classes = counts
        for position, place in enumerate(order):
            combination, rest = (*known, place), order[position + 1 :]
            deeper = len(combination) < size and bool(rest)
            split, sizes = _split(partition, self.columns[place], keep=deeper)
            singles = int(np.count_nonzero(sizes == 1))
            now_alone, now_classes = alone + singles, alone + sizes.size
            small = now_alone if self.k > 1 else 0
            small += int(sizes[(sizes > 1) & (sizes < self.k)].sum())
            smallest = 1 if now_alone else int(sizes.min())
            self._keep(combination, now_classes, now_alone, smallest, small)
            if not deeper:
                continue
            if now_classes == self.rows:
                for more in _subsets(rest, size - len(combination)):
                    self._keep((*combination, *more), self.rows, self.rows, 1, self.rows if self.k > 1 else 0)
            elif known and now_classes == classes:
                # the last column is determined by the others
                copies += [((*combination, *m), (*known, *m)) for m in _subsets(rest, size - len(combination))]
            else:
                self._extend(combination, split, (now_alone, now_classes), rest, size, copies)

    def _keep(self, places: tuple[int, ...], classes: int, unique: int, smallest: int, small: int) -> None:
        key = _key(places)
        self.counted()
        self.found[key] = Combination(
            columns=tuple(self.names[place] for place in key),
            rows=self.rows,
            classes=classes,
            unique=unique,
            smallest=smallest,
            small=small,
        )


def number_of_combinations(columns: int, size: int) -> int:
    """How many there are with one to ``size`` columns."""
    return sum(comb(columns, each) for each in range(1, size + 1))


def _key(places: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(places))


def _subsets(places: Sequence[int], size: int) -> list[tuple[int, ...]]:
    """Every choice of one to ``size`` of the places, in the order of the search."""
    if size == 0:
        return []
    chosen: list[tuple[int, ...]] = []
    for position, place in enumerate(places):
        chosen.append((place,))
        chosen += [(place, *more) for more in _subsets(places[position + 1 :], size - 1)]
    return chosen


def _split(partition: Partition, column: tuple[Codes, int], *, keep: bool) -> tuple[Partition, Counts]:
    """Split each class by one more column: what remains in classes of two or more, and the sizes of all parts.

    Without ``keep`` only the sizes are wanted, and the first result is empty.
    """
    codes, size = column
    number = int(partition.classes[-1]) + 1 if partition.classes.size else 0
    keys = partition.classes * size + codes[partition.rows]
    nothing = Partition(np.empty(0, np.int64), np.empty(0, np.int64))
    if not keys.size:
        return nothing, np.empty(0, np.int64)
    if not keep:
        if number * size <= 4 * keys.size + 1024:
            sizes = np.bincount(keys)
            return nothing, sizes[sizes > 0]
        keys.sort()
        return nothing, np.diff(_starts(keys), append=keys.size)
    order = order_of(keys, number * size)
    keys = keys[order]
    sizes = np.diff(_starts(keys), append=keys.size)
    shared = sizes > 1
    left = np.repeat(np.arange(np.count_nonzero(shared)), sizes[shared])
    return Partition(partition.rows[order[np.repeat(shared, sizes)]], left), sizes


def _starts(keys: Counts) -> Counts:
    """Where a new key begins in sorted keys."""
    return np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
