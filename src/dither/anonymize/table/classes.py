"""Classes of rows that look alike: their sizes, and how often each sensitive value occurs in each of them.

Everything is a flat array, so that a hundred thousand classes are checked at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dither.anonymize.table.values import Codes, Counts
from dither.errors import InvalidParameter

SUPPRESSED = -1


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Histogram:
    """How often each value occurs in each class, without the zeros.

    The values of class ``i`` are ``codes[starts[i]:starts[i + 1]]``, rising, and ``counts`` runs along. ``size`` is the
    number of values that the column has.
    """

    starts: Counts
    codes: Codes
    counts: Counts
    size: int

    @classmethod
    def of(cls, of_row: npt.NDArray[Any], codes: npt.NDArray[Any], *, number: int, size: int) -> Self:
        """The histogram of a column given by its codes; rows whose class is −1 are left out."""
        if of_row.shape != codes.shape:
            raise InvalidParameter("the classes and the column must have the same number of rows")
        kept = of_row >= 0
        if not kept.all():
            of_row, codes = of_row[kept], codes[kept]
        ones = np.ones(0, np.int64)
        return cls._summed(of_row.astype(np.int64), codes, ones, number=number, size=size)

    @classmethod
    def _summed(cls, rows: Counts, codes: npt.NDArray[Any], counts: Counts, *, number: int, size: int) -> Self:
        """Sum ``counts`` (ones if empty) by class and code."""
        if not number or not size:
            starts, none = np.zeros(number + 1, np.int64), np.zeros(0, np.int64)
            return cls(starts=starts, codes=none.astype(np.int32), counts=none, size=size)
        key = rows * size + codes
        cells = number * size
        if cells <= max(4 * key.size, 1 << 16):
            # integer sums by way of float weights are exact up to 2^53, far above any number of rows
            dense = np.bincount(key, weights=counts if counts.size else None, minlength=cells)
            found = np.flatnonzero(dense)
            sums = dense[found].astype(np.int64)
        elif counts.size:
            # groups of a hierarchy are mostly stretches of codes, and then there is nothing to sort
            if (key[1:] < key[:-1]).any():
                order = np.argsort(key, kind="stable")
                key, counts = key[order], counts[order]
            first = np.flatnonzero(np.concatenate(([True], key[1:] != key[:-1])))
            found, sums = key[first], np.add.reduceat(counts, first) if first.size else counts[:0]
        else:
            found, sums = np.unique(key, return_counts=True)
        starts = np.searchsorted(found, np.arange(number + 1, dtype=np.int64) * size)
        return cls(
            starts=starts.astype(np.int64),
            codes=(found % size).astype(np.int32),
            counts=sums.astype(np.int64),
            size=size,
        )

    @property
    def number(self) -> int:
        """How many classes there are."""
        return self.starts.size - 1

    @property
    def class_of_entry(self) -> Counts:
        """The class that each entry of ``codes`` and ``counts`` belongs to."""
        return np.repeat(np.arange(self.number, dtype=np.int64), np.diff(self.starts))

    def merged(self, into: npt.NDArray[Any], number: int) -> Histogram:
        """The histogram after class ``i`` became part of class ``into[i]`` (−1: left out); no rows are needed."""
        rows = np.asarray(into, np.int64)[self.class_of_entry]
        kept = rows >= 0
        return Histogram._summed(rows[kept], self.codes[kept], self.counts[kept], number=number, size=self.size)

    def recoded(self, groups: Codes, size: int) -> Histogram:
        """The histogram after code ``c`` became code ``groups[c]``: a coarser level of a hierarchy."""
        return Histogram._summed(self.class_of_entry, groups[self.codes], self.counts, number=self.number, size=size)

    def sums(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The sum of ``values``, one for each entry, within each class; exact for integers and for objects."""
        total = np.concatenate((np.zeros(1, values.dtype), np.cumsum(values, dtype=values.dtype)))
        result: npt.NDArray[Any] = total[self.starts[1:]] - total[self.starts[:-1]]
        return result


@dataclass(frozen=True, slots=True, eq=False)
class Classes:
    """Which class each row is in: ``of_row`` counts from 0, and −1 is a suppressed row."""

    of_row: npt.NDArray[Any]
    sizes: Counts

    def __post_init__(self) -> None:
        if self.of_row.ndim != 1 or not np.issubdtype(self.of_row.dtype, np.signedinteger):
            raise InvalidParameter("of_row must be one array of whole numbers: the class of each row, −1 if suppressed")
        kept = int(self.sizes.sum()) if self.sizes.size else 0
        if kept != int(np.count_nonzero(self.of_row >= 0)):
            raise InvalidParameter("sizes must be the number of rows of each class, and add up to all that are kept")

    @classmethod
    def of(cls, of_row: npt.NDArray[Any], number: int | None = None) -> Self:
        """Classes from the class of each row; ``number`` when some classes may be empty."""
        kept = of_row[of_row >= 0]
        if number is None:
            number = int(kept.max()) + 1 if kept.size else 0
        if kept.size and int(kept.max()) >= number:
            raise InvalidParameter(f"of_row names a class beyond the {number} that there are")
        return cls(of_row, np.bincount(kept, minlength=number).astype(np.int64))

    @property
    def number(self) -> int:
        """How many classes there are."""
        return self.sizes.size

    @property
    def suppressed(self) -> int:
        """How many rows are in no class."""
        return self.of_row.size - int(self.sizes.sum())

    def histogram(self, codes: npt.NDArray[Any], size: int) -> Histogram:
        """How often each of the ``size`` values of a column occurs in each class."""
        return Histogram.of(self.of_row, codes, number=self.number, size=size)

    def sums(self, weights: Counts) -> Counts:
        """The sum of whole-number weights of rows (people of a population, say) within each class."""
        kept = self.of_row >= 0
        # float weights are exact up to 2^53
        return np.bincount(self.of_row[kept], weights=weights[kept], minlength=self.number).astype(np.int64)
