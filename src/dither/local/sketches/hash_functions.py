"""The hash functions of a sketch for many values at once.

All functions of a value come from one call of SHAKE128, two bytes each (``clients.sketch``): treated as independent
and uniform, for different values and for different functions alike.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dither.local.clients.base import ValueDomain
from dither.local.clients.rappor import text_of
from dither.local.clients.sketch import PREFIX
from dither.local.core.columns import column_of
from dither.local.core.protocol import Counts
from dither.local.frequency.oracle import Ints, Label, places

Buckets = npt.NDArray[np.uint16]

# Buckets of a table that is made at a time, two bytes each.
TABLE = 1 << 24
# Buckets that are looked up at a time: their places, eight bytes each, fit into the second-level cache.
LOOKED_UP = 1 << 16


@dataclass(frozen=True, slots=True)
class Functions:
    """The hash functions that a seed chooses."""

    seed: bytes
    hashes: int
    buckets: int

    def table(self, values: Iterable[Label]) -> Buckets:
        """The bucket of every value by every function: one row for each value."""
        start = hashlib.shake_128(PREFIX + self.seed)
        digests = []
        for value in values:
            state = start.copy()
            state.update(text_of(value))
            digests.append(state.digest(2 * self.hashes))
        words = np.frombuffer(b"".join(digests), dtype="<u2").reshape(len(digests), self.hashes)
        return np.asarray(words & np.uint16(self.buckets - 1))

    def tables(self, values: Sequence[Label], *, keep: bool) -> Iterable[tuple[int, Buckets]]:
        """The table in parts, each with its first place; a small one is kept for the next time if ``keep``."""
        block = max(1, TABLE // self.hashes)
        if keep and len(values) <= block:
            yield 0, _kept(self, values if isinstance(values, range) else tuple(values))
            return
        for start in range(0, len(values), block):
            yield start, self.table(values[start : start + block])

    def buckets_of_people(self, different: Sequence[Label], codes: Ints, drawn: Ints, *, keep: bool) -> Buckets:
        """The bucket of everybody's value by the function that they drew; ``codes`` are places among ``different``."""
        out = np.empty(codes.size, dtype=np.uint16)
        if len(different) * self.hashes <= TABLE:
            for _, table in self.tables(different, keep=keep):
                out[:] = table.reshape(-1)[codes * self.hashes + drawn]
            return out
        # only what occurs is hashed, in the order of the values, so that no more than one part is held at a time
        present, codes = np.unique(codes, return_inverse=True)
        order = np.argsort(codes, kind="stable")
        rising = codes[order]
        values = [different[int(place)] for place in present]
        for start, table in self.tables(values, keep=False):
            first, last = np.searchsorted(rising, [start, start + table.shape[0]])
            some = order[first:last]
            out[some] = table[codes[some] - start, drawn[some]]
        return out

    def sums_over(self, tables: Sequence[Counts], values: Sequence[Label], *, keep: bool) -> Counts:
        """For each of some tables of functions × buckets, the sum of every value's entries over all functions."""
        out = np.zeros((len(tables), len(values)), dtype=np.int64)
        lines = np.arange(self.hashes, dtype=np.int64) * self.buckets
        # half the memory, wherever counters are as small as that, is twice as quick
        small = max(int(np.abs(table).max()) for table in tables) < 2**31
        flat = [np.ascontiguousarray(table, dtype=np.int32 if small else np.int64).reshape(-1) for table in tables]
        block = max(1, LOOKED_UP // self.hashes)
        for first, found in self.tables(values, keep=keep):
            for start in range(0, found.shape[0], block):
                entries = found[start : start + block] + lines
                at = slice(first + start, first + start + entries.shape[0])
                for number, table in enumerate(flat):
                    # no place can be outside, and clipping is quicker than checking
                    np.add.reduce(table.take(entries, mode="clip"), axis=1, dtype=np.int64, out=out[number, at])
        return out


@lru_cache(maxsize=2)
def _kept(functions: Functions, values: Sequence[Label]) -> Buckets:
    return functions.table(values)


def coded(values: Any, domain: ValueDomain | None) -> tuple[Sequence[Label], Ints]:
    """The different values, and which of them everybody has."""
    if domain is not None:
        return range(domain.size) if domain.labels is None else domain.labels, places(values, domain)
    listed = column_of(values)
    if isinstance(listed, np.ndarray):
        present, codes = np.unique(listed, return_inverse=True)
        return present.tolist(), codes.astype(np.int64, copy=False)
    known: dict[bytes, int] = {}
    found = np.fromiter((known.setdefault(text_of(value), len(known)) for value in listed), dtype=np.int64)
    return [text.decode() for text in known], found
