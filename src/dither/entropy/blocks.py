"""Exact integer noise of any scale: a lazy table of blocks, a rejection within the block, pools of draws.

It also decouples when a draw is made from what it is: the time of a single release says nothing
about the value of its noise, whose rare values take longer to draw.

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

An integer is x = c·2^m + l with 0 ≤ l < 2^m. The block c comes from a table that gives every block
the weight of its point nearest to 0; l is uniform; and x is accepted with probability e^-t(x),
where t(x) is how much further the law has fallen at x than at that nearest point. What is accepted
has the law's weights, exactly (rejection sampling; the blocks are narrow, so t is small and about
99 in 100 draws are accepted). Small scales have m = 0 and no rejection.

Few draws are made otherwise: from wider blocks, whose short table is made sooner, and each by the
same steps, so that their time doesn't tell what they are. Only how often a proposal is rejected
varies, and that is independent of what is accepted in the end.
"""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from dither.entropy.bernoulli import less_than_exp
from dither.entropy.intervals import (
    POLYNOMIAL_ERROR,
    POLYNOMIAL_LIMIT,
    POWER_ERROR,
    POWER_LIMIT,
    exp_neg_polynomial,
    exp_neg_power,
)
from dither.entropy.source import SYSTEM, Source, SystemSource
from dither.errors import InvalidParameter

_FIRST_BATCH = 16
_LARGEST_BATCH = 4096
_GROWTH = 4


class Pool:
    """Values drawn ahead; each is handed out once, to one thread of one process.

    ``list.pop`` and ``list.extend`` are atomic, so no lock is needed, and none can be left locked
    by a fork or a signal. Two threads that find the pool empty both refill it, which only makes it
    larger.
    """

    __slots__ = ("__weakref__", "_batch", "_values")

    def __init__(self) -> None:
        self._values: list[int] = []
        self._batch = _FIRST_BATCH
        _POOLS.add(self)

    def pop(self, draw: Callable[[int], NDArray[np.int64]]) -> int:
        """A value that was never handed out; ``draw`` makes a batch when there is none."""
        try:
            return self._values.pop()
        except IndexError:
            pass
        # A mechanism made for one release shouldn't pay for thousands; one that is used a lot
        # should.
        batch, self._batch = self._batch, min(self._batch * _GROWTH, _LARGEST_BATCH)
        fresh: list[int] = draw(batch).tolist()
        value = fresh.pop()
        self._values.extend(fresh)
        return value

    def clear(self) -> None:
        """Forgets the values drawn ahead."""
        self._values.clear()

    def __len__(self) -> int:
        return len(self._values)

    # A copy, whether pickled to another process or made here, starts empty: values in both would be
    # the same noise on two answers.
    def __reduce__(self) -> tuple[type[Pool], tuple[()]]:
        return Pool, ()

    def __copy__(self) -> Pool:
        return Pool()

    def __deepcopy__(self, memo: object) -> Pool:
        return Pool()


# Weak, so that a pool lives no longer than its sampler.
_POOLS: WeakSet[Pool] = WeakSet()


def _empty_all() -> None:
    # A forked child inherits the values that its parent is going to use: the same noise on two
    # answers would cancel in their difference.
    for pool in list(_POOLS):
        pool.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_empty_all)


# ---------------------------------------------------------------------------------------------- tables


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


# ---------------------------------------------------------------------------------------------- samplers


_COIN_BITS = 16 + 64
# Block numbers from here on are looked at in full: 16-bit arithmetic on them could wrap.
_FAR = 1 << 11
# How few draws are made by the same steps. The number alone decides, so that draws from a given source are always the
# same.
_FEW = 64


class IntegerSampler(ABC):
    """Draws from an exact law on the integers; subclasses state the law."""

    __slots__ = ("_alike", "_doubt", "_few", "_pool", "_shift", "_table")

    def __init__(self, law: Law, shift: int, resolution: Resolution = FAST) -> None:
        self._few: IntegerSampler | None = None if resolution is FAST else self
        self._table = LazyTable(law, resolution)
        self._shift = shift
        self._alike = resolution.alike
        self._doubt = resolution.doubt
        self._pool = Pool()

    @abstractmethod
    def _for_few(self) -> IntegerSampler:
        """A sampler of the same law with wider blocks, whose draws are all made by the same steps."""

    @abstractmethod
    def _suspects(self, codes: NDArray[np.int16], coins: NDArray[np.uint16]) -> NDArray[np.bool_]:
        """Where the coin's first 16 bits don't imply acceptance in block c, whatever l.

        Asked for block numbers below 2^11 in size; the answer for others is not used.
        """

    @abstractmethod
    def _falls(self, x: NDArray[np.int64]) -> NDArray[np.float64]:
        """t(x) to a relative error of 2^-49."""

    @abstractmethod
    def _fall(self, x: int) -> Fraction:
        """t(x) exactly."""

    def sample(self, n: int, source: Source = SYSTEM) -> NDArray[np.int64]:
        """``n`` independent draws."""
        out = np.empty(n, np.int64)
        self._for(n)._fill(out, source)  # noqa: SLF001
        return out

    def into(self, out: NDArray[np.int64], source: Source = SYSTEM) -> None:
        """Fills ``out``, a contiguous int64 array of any shape, with independent draws."""
        if out.dtype != np.int64 or not out.flags.c_contiguous or not out.flags.writeable:
            raise InvalidParameter("out must be a writable, contiguous array of int64")
        self._for(out.size)._fill(out.reshape(-1), source)  # noqa: SLF001

    def one(self, source: Source = SYSTEM) -> int:
        """One draw; from the system's source it comes out of a pool drawn ahead."""
        if isinstance(source, SystemSource):
            return self._pool.pop(self.sample)
        return int(self.sample(1, source)[0])

    def _for(self, n: int) -> IntegerSampler:
        """The sampler for this number of draws."""
        if n > _FEW:
            return self
        if self._few is None:
            self._few = self._for_few()
        return self._few

    def _fill(self, out: NDArray[np.int64], source: Source) -> None:
        if self._alike:
            self._fill_alike(out, source)
            return
        if self._shift == 0:
            self._table.into(out, source)
            return
        scratch = np.empty(min(CHUNK, out.size), np.int16)
        rejected = []
        for start in range(0, out.size, CHUNK):
            part = out[start : start + CHUNK]
            refused = self._propose(part, scratch[: part.size], source)
            if refused.size:
                rejected.append(refused + start)
        if rejected:
            again = np.concatenate(rejected)
            drawn = np.empty(again.size, np.int64)
            self._fill(drawn, source)
            out[again] = drawn

    def _fill_alike(self, out: NDArray[np.int64], source: Source) -> None:
        """Draws by the same steps whatever comes out."""
        waiting = np.arange(out.size)
        while waiting.size:
            x, accepted = self._table.search(waiting.size, source), np.ones(waiting.size, np.bool_)
            if self._shift:
                x = self._blocks(x) | (source.u64(x.size).view(np.int64) & np.int64((1 << self._shift) - 1))
                accepted = self._accept(x, source.u16(x.size), source)
            out[waiting] = x
            waiting = waiting[~accepted]

    def _blocks(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where blocks begin, by their numbers."""
        # Blocks beyond the range of int64 are drawn with a probability below 2^-184 (Laplace)
        # or 2^-11000 (Gaussian) at the largest scale allowed; they saturate.
        limit = np.iinfo(np.int64).max >> self._shift
        begins: NDArray[np.int64] = np.clip(codes, -limit, limit) << self._shift
        return begins

    def _propose(self, out: NDArray[np.int64], codes: NDArray[np.int16], source: Source) -> NDArray[np.intp]:
        """Fills ``out`` with proposals and returns the places of those that were rejected."""
        table, shift = self._table, self._shift
        prefixes = table.prefixes(out.size, source)
        ambiguous = table.look_up(prefixes, codes)
        coins = source.u16(out.size)
        suspect = self._suspects(codes, coins)
        self._join(codes, out, source)
        if ambiguous.size:
            blocks = table.refine(prefixes[ambiguous], source)
            out[ambiguous] = self._blocks(blocks) | (out[ambiguous] & ((1 << shift) - 1))
            suspect[ambiguous] = (np.absolute(blocks) >= _FAR) | self._suspects(
                blocks.astype(np.int16), coins[ambiguous]
            )
        unsure = np.flatnonzero(suspect)
        return unsure[~self._accept(out[unsure], coins[unsure], source)]

    def _join(self, codes: NDArray[np.int16], out: NDArray[np.int64], source: Source) -> None:
        """Puts uniform offsets behind the block numbers: c·2^m + l."""
        shift, mask = self._shift, (1 << self._shift) - 1
        if shift <= 16:
            # 16 + 16 bits fit 32, whose arithmetic is twice as fast.
            narrow = codes.astype(np.int32)
            narrow <<= shift
            narrow |= (source.u16(out.size) & np.uint16(mask)).astype(np.int32)
            np.copyto(out, narrow)
            return
        if shift == 32 and sys.byteorder == "little":
            # block and offset are the two halves of the word: no arithmetic at all
            halves = out.view(np.int32)
            halves[0::2] = source.u32(out.size).view(np.int32)
            halves[1::2] = codes
            return
        np.left_shift(codes, shift, out=out, dtype=np.int64, casting="unsafe")
        if shift <= 32:
            out |= source.u32(out.size) & np.uint32(mask)
        else:
            out |= source.u64(out.size).view(np.int64) & np.int64(mask)

    def _accept(self, x: NDArray[np.int64], coins: NDArray[np.uint16], source: Source) -> NDArray[np.bool_]:
        """Exactly U < e^-t(x), for each x, where ``coins`` are the first 16 bits of U."""
        falls = self._falls(x)
        # falls are larger in wide blocks, and what floats don't settle would take longer
        limit, exp_neg = (POWER_LIMIT, exp_neg_power) if self._alike else (POLYNOMIAL_LIMIT, exp_neg_polynomial)
        small = falls <= limit
        bound = exp_neg(np.where(small, falls, 0.0))
        words = source.u64(x.size)
        u = (coins + words * 2.0**-64) * 2.0**-16
        accepted: NDArray[np.bool_] = u < bound
        # Doubt is twice the error of the bound, which leaves room for the rounding of u (2^-52).
        for i in np.flatnonzero((np.abs(u - bound) < self._doubt) | ~small):
            bits = int(coins[i]) << 64 | int(words[i])
            accepted[i] = less_than_exp(bits, _COIN_BITS, self._fall(int(x[i])), source)
        return accepted
