"""The lazy inverse-CDF table: an exact draw from a discrete law for the price of one table look-up.

A draw is the symbol i with C_i ≤ U < C_(i+1), where U is uniform on [0, 1) and the C_i are the
cumulative probabilities: real numbers, known only through integer bounds of any precision. U is
read in three stages, and each stage answers only what the bits read so far imply:

1. 16 bits index a table with one entry per cell of width 2^-16. An entry holds the symbol if no
   threshold can lie in the cell, or says that more bits are needed (a few per cent of draws).
2. 64 bits are compared with floor(C_i · 2^64) by binary search.
3. If the 64 bits touch a threshold (about 2^-50 of draws), bits and precision grow until they
   don't.

So the law is exactly the one stated, whatever the word sizes; they only set the speed. The idea is
that of Knuth & Yao (1976); bounds instead of rounded probabilities answer the attack of Mironov
(2012), which needs a rounded law.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dither.entropy.intervals import POLYNOMIAL_ERROR, POWER_ERROR
from dither.entropy.source import Source

AMBIGUOUS = np.int16(-32768)
_TAIL = np.int64(np.iinfo(np.int64).min)
_MORE_BITS = 64
_TABLE_GUARD = 16
_DECIDE_GUARD = 32
CHUNK = 1 << 16
"""Draws made at a time: their words and codes stay in the second-level cache."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """How many bits each stage reads and how wide a float comparison counts as doubtful.

    Changes speed, never the law: tests set tiny words to make the rare stages common. Without a first stage every draw
    takes the same steps.
    """

    first: int = 16
    second: int = 64
    doubt: float = 2 * POLYNOMIAL_ERROR

    @property
    def alike(self) -> bool:
        """Whether there is no short cut for common outcomes, from which their time could be told."""
        return self.first == 0


FAST = Resolution()
ALIKE = Resolution(first=0, doubt=2 * POWER_ERROR)
"""For few draws, whose time would tell what was drawn."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Bounds of cumulative probabilities: lows[i] ≤ 2^precision · C_i ≤ lows[i] + slack.

    ``lows`` rise from C_0 = 0. The last one starts the tail: what lies above it.
    """

    lows: list[int]
    slack: int


class Law(Protocol):
    """What a table needs to know about a discrete law over symbols 0, 1, 2 and so on."""

    def thresholds(self, precision: int) -> Thresholds:
        """Bounds of the cumulative probabilities at a precision."""
        ...

    def codes(self, symbols: NDArray[np.int64]) -> NDArray[np.int64]:
        """The outcomes that symbols stand for."""
        ...

    @property
    def period(self) -> int:
        """How far the tail of a law without memory lies from 0; 0 for a law with memory.

        Without memory, the tail is the law itself moved outwards by the period, so that thresholds
        needn't reach far. With memory, thresholds reach further as the precision grows.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stages:
    """What stages 1 and 2 look up: a code for each cell, then floors and the codes above them."""

    cells: NDArray[np.int16]
    floors: NDArray[np.uint64]
    codes: NDArray[np.int64]


class LazyTable:
    """Exact draws from a law; see the module's docstring for how and why."""

    __slots__ = ("_built", "_law", "_resolution", "_second_shift")

    def __init__(self, law: Law, resolution: Resolution = FAST) -> None:
        self._law = law
        self._resolution = resolution
        self._second_shift = resolution.second - resolution.first
        self._built: _Stages | None = None

    @property
    def _stages(self) -> _Stages:
        # Made for the first draw, a millisecond: most mechanisms are made to state a price, and never draw. Two threads
        # may both make them, and make the same.
        if self._built is None:
            self._built = self._build()
        return self._built

    def _build(self) -> _Stages:
        law = self._law
        bounds = law.thresholds(self._resolution.second + _TABLE_GUARD)
        # With slack below one unit of the second stage, C_i · 2^64 lies in [floor, floor + 2).
        assert bounds.slack < 1 << _TABLE_GUARD, "the law's bounds are too loose for a table"
        floors = np.array([low >> _TABLE_GUARD for low in bounds.lows], np.uint64)
        codes = law.codes(np.arange(floors.size))
        if law.period:
            codes[-1] = _TAIL
        cells = np.zeros(0, np.int16) if self._resolution.alike else self._first_stage(floors, codes)
        return _Stages(cells=cells, floors=floors, codes=codes)

    def _first_stage(self, floors: NDArray[np.uint64], codes: NDArray[np.int64]) -> NDArray[np.int16]:
        shift = np.uint64(self._second_shift)
        size = 1 << self._resolution.first
        starts = (floors >> shift).astype(np.int64)
        small = codes.copy()
        small[-1] = AMBIGUOUS
        assert np.abs(small).max() <= -int(AMBIGUOUS), "outcomes near 0 must fit 16 bits"
        cells = np.repeat(small, np.diff(starts, append=size)).astype(np.int16)
        # A threshold known as [floor, floor + 2) lies in the cell of its floor or, if the floor is
        # the last point of its cell, perhaps in the next. C_0 = 0 divides nothing.
        mask = (np.uint64(1) << shift) - np.uint64(1)
        at_edge = (floors[1:] & mask) == mask
        cells[starts[1:]] = AMBIGUOUS
        cells[np.minimum(starts[1:][at_edge] + 1, size - 1)] = AMBIGUOUS
        cells[starts[-1] :] = AMBIGUOUS  # the tail is never a code of its own
        return cells

    def prefixes(self, n: int, source: Source) -> NDArray[np.uint16]:
        """The first bits of n uniform numbers."""
        words = source.u16(n)
        if self._resolution.first < 16:
            return words >> np.uint16(16 - self._resolution.first)
        return words

    def look_up(self, prefixes: NDArray[np.uint16], out: NDArray[np.int16]) -> NDArray[np.intp]:
        """Stage 1: codes into ``out``; returns the places whose prefix doesn't imply one."""
        np.take(self._stages.cells, prefixes, mode="clip", out=out)
        return np.flatnonzero(out == AMBIGUOUS)

    def refine(self, prefixes: NDArray[np.uint16], source: Source) -> NDArray[np.int64]:
        """Stages 2 and 3: the codes of uniform numbers with ambiguous prefixes."""
        shift = self._second_shift
        u = source.u64(prefixes.size) >> np.uint64(64 - shift)
        u |= prefixes.astype(np.uint64) << np.uint64(shift)
        return self._searched(u, source)

    def search(self, n: int, source: Source) -> NDArray[np.int64]:
        """Stages 2 and 3 alone: n codes, each found by the same steps."""
        return self._searched(source.u64(n) >> np.uint64(64 - self._resolution.second), source)

    def _searched(self, u: NDArray[np.uint64], source: Source) -> NDArray[np.int64]:
        floors = self._stages.floors
        symbols = np.searchsorted(floors, u, side="right") - 1
        codes: NDArray[np.int64] = self._stages.codes[symbols]
        # u ≥ floor + 2 implies U ≥ C_i, and u < the next floor implies U < C_(i+1).
        unsure = u - floors[symbols] <= 1
        if not self._law.period:
            unsure |= symbols == floors.size - 1
        for i in np.flatnonzero(unsure):
            codes[i] = self._decide(int(u[i]), source)
        tail = np.flatnonzero(codes == _TAIL)
        if tail.size:
            inner = self.search(tail.size, source) if self._resolution.alike else self.draw(tail.size, source)
            codes[tail] = np.where(inner >= 0, inner + self._law.period, inner - self._law.period)
        return codes

    def _decide(self, u: int, source: Source) -> int:
        """Stage 3: reads on until the symbol is implied; ``u`` holds the bits read so far."""
        nbits = self._resolution.second
        while True:
            u = u << _MORE_BITS | source.bits(_MORE_BITS)
            nbits += _MORE_BITS
            bounds = self._law.thresholds(nbits + _DECIDE_GUARD)
            lows, last = bounds.lows, len(bounds.lows) - 1
            # The largest i with C_i ≤ U for sure; C_0 = 0 is exact, so there always is one.
            i = max(0, bisect_right(lows, (u << _DECIDE_GUARD) - bounds.slack) - 1)
            if i == last:
                if self._law.period:
                    return int(_TAIL)
            elif (u + 1) << _DECIDE_GUARD <= lows[i + 1]:
                return int(self._law.codes(np.array([i]))[0])

    def draw(self, n: int, source: Source) -> NDArray[np.int64]:
        """``n`` independent draws."""
        out = np.empty(n, np.int64)
        self.into(out, source)
        return out

    def into(self, out: NDArray[np.int64], source: Source) -> None:
        """Fills ``out`` with independent draws."""
        scratch = np.empty(min(CHUNK, out.size), np.int16)
        for start in range(0, out.size, CHUNK):
            part = out[start : start + CHUNK]
            codes = scratch[: part.size]
            prefixes = self.prefixes(part.size, source)
            ambiguous = self.look_up(prefixes, codes)
            np.copyto(part, codes)
            if ambiguous.size:
                part[ambiguous] = self.refine(prefixes[ambiguous], source)
