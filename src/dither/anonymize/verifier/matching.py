"""Finds the original rows behind a released table: which fit which printed class, and whether all can be placed.

Rows of a release have no numbers, and classes may overlap, so "every row comes from one original row" is a question of
matching: it holds if and only if the maximum flow from original rows to released ones reaches all of the latter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from dither.anonymize.table.values import Bools, Counts
from dither.anonymize.verifier.parse import NOTHING, Reading

# Pairs of a row and a class that are compared one by one.
FEW_PAIRS = 1 << 14
# Rows and classes by which a cut is chosen.
SAMPLED = 4096
# Pairs that are looked at together where no cut helps.
MANY_PAIRS = 1 << 21
# Truth values of the table "does this text stand for this value" that are kept for a column.
KEPT = 1 << 27
# Beyond this many possible pairs the flow isn't computed.
MOST_PAIRS = 5_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """One quasi-identifier: how its texts are read, and which text each class prints."""

    reading: Reading
    text_of_class: Counts


def fitting(columns: Sequence[tuple[Fit, Counts]], classes: int) -> Iterator[tuple[Counts, Counts]]:
    """Pairs of a row and a class that it fits in every column, block by block.

    Each column comes with the value that each row has there, as its place in the reading's domain. A row is a distinct
    combination of values: the caller has merged equal ones.

    Rows and classes are halved together: at a value of some column rows lie on one side, and classes on one or on both.
    What is left when both are few is compared one by one. Where to cut is a guess that costs time if it is a bad one;
    whatever it is, no pair is lost.
    """
    rows = columns[0][1].size
    if not rows or not classes:
        return
    # those that are slow to compare come last, when few pairs are left
    sides = sorted((_Side.of(fit, codes) for fit, codes in columns), key=lambda side: side.listed.size)
    waiting = [(np.arange(rows), np.arange(classes))]
    while waiting:
        row, group = waiting.pop()
        if not row.size or not group.size:
            continue
        cut = _best_cut(sides, row, group) if row.size * group.size > FEW_PAIRS else None
        if cut is None:
            yield from _compared(sides, row, group)
            continue
        side, mark = cut
        below = side.codes[row] < mark
        waiting.append((row[below], group[side.lowest[group] < mark]))
        waiting.append((row[~below], group[side.highest[group] >= mark]))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Side:
    """A column to cut in: the value of each row, and the lowest and the highest value that each class stands for."""

    fit: Fit
    codes: Counts
    lowest: Counts
    highest: Counts
    table: Bools | None
    listed: Counts

    @classmethod
    def of(cls, fit: Fit, codes: Counts) -> _Side:
        reading = fit.reading
        lowest, highest = reading.extent()
        small = reading.domain * reading.low.size <= KEPT
        return cls(
            fit=fit,
            codes=codes,
            lowest=lowest[fit.text_of_class],
            highest=highest[fit.text_of_class],
            table=reading.stands_for(np.arange(reading.domain)) if small else None,
            listed=NOTHING if small else reading.listed(),
        )

    def fits(self, row: Counts, group: Counts) -> Bools:
        """Pair by pair, whether the class stands for the row's value."""
        text = self.fit.text_of_class[group]
        if self.table is None:
            return self.fit.reading.contains(self.codes[row], text, self.listed)
        return self.table[self.codes[row], text]


def _best_cut(sides: Sequence[_Side], row: Counts, group: Counts) -> tuple[_Side, int] | None:
    """Where the fewest pairs are left to compare; ``None`` if no cut saves any worth speaking of.

    Some of the rows and classes tell where.
    """
    row, group = row[:: 1 + row.size // SAMPLED], group[:: 1 + group.size // SAMPLED]
    best, least = None, 0.9 * row.size * group.size
    for side in sides:
        codes, lowest, highest = side.codes[row], side.lowest[group], side.highest[group]
        middle = int(np.partition(codes, row.size // 2)[row.size // 2])
        for mark in (middle, middle + 1):
            below = int(np.count_nonzero(codes < mark))
            if below in (0, row.size):
                continue
            left, right = np.count_nonzero(lowest < mark), np.count_nonzero(highest >= mark)
            pairs = below * float(left) + (row.size - below) * float(right)
            if pairs < least:
                best, least = (side, mark), pairs
    return best


def _compared(sides: Sequence[_Side], row: Counts, group: Counts) -> Iterator[tuple[Counts, Counts]]:
    """All pairs, a column at a time."""
    step = max(1, MANY_PAIRS // group.size)
    for first in range(0, row.size, step):
        some = row[first : first + step]
        rows, groups = np.repeat(some, group.size), np.tile(group, some.size)
        for side in sides:
            fits = side.fits(rows, groups)
            rows, groups = rows[fits], groups[fits]
        yield rows, groups


def spread(first: Counts, number: Counts, besides: Counts) -> tuple[Counts, Counts]:
    """Every place from each ``first`` on, ``number`` of them, with what stands beside.

    Example:
        >>> [part.tolist() for part in spread(np.array([3, 8]), np.array([2, 1]), np.array([5, 7]))]
        [[3, 4, 8], [5, 5, 7]]
    """
    total = np.cumsum(number)
    place = np.arange(total[-1] if total.size else 0) - np.repeat(total - number - first, number)
    return place, np.repeat(besides, number)


def placed(row: Counts, wanted: Counts, have: Counts, need: Counts) -> int | None:
    """How many of the needed rows can be taken from those at hand, each once; ``None`` if there are too many pairs.

    With too many pairs it may also be a bound from above that is below what is needed.

    Pair ``i`` says that originals of sort ``row[i]``, of which there are ``have[row[i]]``, may be released ones of sort
    ``wanted[i]``, of which ``need[wanted[i]]`` are to be explained.
    """
    if not row.size:
        return 0
    # sums of whole numbers below 2^53, so that floats are exact
    available = np.bincount(wanted, weights=have[row], minlength=need.size).astype(np.int64)
    reached = int(np.minimum(available, need).sum())
    if np.bincount(row, minlength=have.size).max() <= 1:
        # no choice: every original can only be in one place
        return reached
    if row.size > MOST_PAIRS:
        # too few even if every original could be in all its places at once, or not decided
        return reached if reached < int(need.sum()) else None
    source, sink = have.size + need.size, have.size + need.size + 1
    start = np.concatenate((np.full(have.size, source), row, have.size + np.arange(need.size)))
    end = np.concatenate((np.arange(have.size), have.size + wanted, np.full(need.size, sink)))
    most = np.concatenate((have, np.minimum(have[row], need[wanted]), need))
    # scipy below 1.13 takes flows between places of 32 bits alone
    places = (start.astype(np.int32), end.astype(np.int32))
    graph = csr_array((most.astype(np.int32), places), shape=(sink + 1, sink + 1))
    return int(maximum_flow(graph, source, sink).flow_value)
