"""Exact integer noise of any scale: a table of blocks, then a rejection within the block.

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

import sys
from abc import ABC, abstractmethod
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dither.entropy.bernoulli import less_than_exp
from dither.entropy.intervals import POLYNOMIAL_LIMIT, POWER_LIMIT, exp_neg_polynomial, exp_neg_power
from dither.entropy.pool import Pool
from dither.entropy.source import SYSTEM, Source, SystemSource
from dither.entropy.table import CHUNK, FAST, Law, LazyTable, Resolution
from dither.errors import InvalidParameter

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
