"""Finds the original rows behind a released table: which fit which printed class, and whether all can be placed.

Rows of a release have no numbers, and classes may overlap, so "every row comes from one original row" is a question of
matching: it holds if and only if the maximum flow from original rows to released ones reaches all of the latter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from dither.anonymize.printed import Reading, bits
from dither.anonymize.values import Counts

# Words of the table "which classes does this value fit" that are kept for a column, and that a block works on.
KEPT_WORDS = 1 << 24
BLOCK_WORDS = 1 << 22
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
    """
    rows = columns[0][1].size
    words = max(1, -(-classes // 64))
    tables = [_words_of_all(fit) if fit.reading.domain * words <= KEPT_WORDS else None for fit, _ in columns]
    step = max(1, BLOCK_WORDS // words)
    for first in range(0, rows, step):
        block = slice(first, min(rows, first + step))
        fits: npt.NDArray[np.uint64] | None = None
        for (fit, values), table in zip(columns, tables, strict=True):
            here = _words_of_some(fit, values[block]) if table is None else table[values[block]]
            fits = here if fits is None else fits & here
        assert fits is not None
        row, word = np.nonzero(fits)
        single = np.unpackbits(fits[row, word].view(np.uint8).reshape(-1, 8), axis=1, bitorder="little")
        which, bit = np.nonzero(single)
        yield row[which] + first, word[which] * 64 + bit


def _words_of_all(fit: Fit) -> npt.NDArray[np.uint64]:
    return _words_of_some(fit, np.arange(fit.reading.domain))


def _words_of_some(fit: Fit, values: Counts) -> npt.NDArray[np.uint64]:
    """For each value a row of bits, one for each class that it fits."""
    distinct, inverse = np.unique(values, return_inverse=True)
    step = max(1, (1 << 26) // max(1, fit.text_of_class.size))
    parts = [
        bits(fit.reading.stands_for(distinct[first : first + step])[:, fit.text_of_class])
        for first in range(0, distinct.size, step)
    ]
    if not parts:
        return np.zeros((0, max(1, -(-fit.text_of_class.size // 64))), np.uint64)
    return np.concatenate(parts)[inverse.reshape(-1)]


def placed(row: Counts, wanted: Counts, have: Counts, need: Counts) -> int | None:
    """How many of the needed rows can be taken from those at hand, each once; ``None`` if there are too many pairs.

    Pair ``i`` says that originals of sort ``row[i]``, of which there are ``have[row[i]]``, may be released ones of sort
    ``wanted[i]``, of which ``need[wanted[i]]`` are to be explained.
    """
    if not row.size:
        return 0
    if np.bincount(row, minlength=have.size).max() <= 1:
        # no choice: every original can only be in one place
        available = np.bincount(wanted, weights=have[row], minlength=need.size).astype(np.int64)
        return int(np.minimum(available, need).sum())
    if row.size > MOST_PAIRS:
        return None
    source, sink = have.size + need.size, have.size + need.size + 1
    start = np.concatenate((np.full(have.size, source), row, have.size + np.arange(need.size)))
    end = np.concatenate((np.arange(have.size), have.size + wanted, np.full(need.size, sink)))
    most = np.concatenate((have, np.minimum(have[row], need[wanted]), need))
    graph = csr_array((most.astype(np.int32), (start, end)), shape=(sink + 1, sink + 1))
    return int(maximum_flow(graph, source, sink).flow_value)
