"""Exact discrete Laplace noise: P(x) ∝ e^(-|x|/scale) on the integers, for any rational scale.

The law is that of Ghosh, Roughgarden & Sundararajan (2009), drawn without any floating-point law in
between, as Mironov (2012) shows is needed. The proof is in ``samplers.md``.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from dither.entropy.blocks import ALIKE, FAST, IntegerSampler, Resolution, Thresholds
from dither.entropy.intervals import exp_neg_bounds
from dither.errors import InvalidParameter

MAX_SCALE = Fraction(2**56)
_CACHED = 64
# The tail beyond the table has mass e^-11 < 2^-15; being without memory it is drawn from the same
# table. For few draws, whose time should not tell that they are from the tail, e^-22 < 2^-31.
_TAIL_EXPONENT, _RARE_TAIL_EXPONENT = 11, 22


class DiscreteLaplaceSampler(IntegerSampler):
    """Draws integers with P(x) ∝ e^(-|x|/scale), exactly.

    Accepts scales up to 2^56, at which int64 holds all but e^-128 < 2^-184 of the law (those
    saturate).

    Example:
        >>> sampler = DiscreteLaplaceSampler(Fraction(5, 2))
        >>> sampler.sample(3).dtype, type(sampler.one())
        (dtype('int64'), <class 'int'>)
    """

    __slots__ = ("_quick", "_rate", "_rate_float", "scale")

    def __init__(self, scale: Fraction, resolution: Resolution = FAST) -> None:
        scale = Fraction(scale)
        if not 0 < scale <= MAX_SCALE:
            raise InvalidParameter("the scale of discrete Laplace noise must lie above 0, up to 2^56")
        self.scale = scale
        self._rate = 1 / scale
        # Blocks of 1 below scale 128; above, 64 to 128 blocks per scale keep t(x) below 1/64. Wide
        # blocks: 16 instead of 128, and below 1/8.
        bits = 4 if resolution.alike else 7
        shift = (scale.numerator // scale.denominator >> bits).bit_length()
        self._quick = 0
        self._rate_float = 0.0
        if shift:
            # U < e^-t is certain if (u + 1)/2^16 ≤ 1 - t, as e^-t ≥ 1 - t; t is largest at the far
            # end.
            least = (1 - self._rate * ((1 << shift) - 1)) * 2**16
            self._quick = least.numerator // least.denominator
            self._rate_float = float(self._rate)
        tail = _RARE_TAIL_EXPONENT if resolution.alike else _TAIL_EXPONENT
        super().__init__(_LaplaceBlocks(self._rate, 1 << shift, tail), shift, resolution)

    def __repr__(self) -> str:
        return f"DiscreteLaplaceSampler({self.scale})"

    def _for_few(self) -> DiscreteLaplaceSampler:
        return DiscreteLaplaceSampler(self.scale, ALIKE)

    def _suspects(self, codes: NDArray[np.int16], coins: NDArray[np.uint16]) -> NDArray[np.bool_]:
        del codes  # the same in every block
        out: NDArray[np.bool_] = coins >= self._quick
        return out

    def _falls(self, x: NDArray[np.int64]) -> NDArray[np.float64]:
        # x or ~x: the distance from the near end of the half line; its low bits are the offset
        # within the block, which is below 2^53, so that two roundings are the whole error.
        offsets = (x ^ (x >> 63)) & ((1 << self._shift) - 1)
        return offsets.astype(np.float64) * self._rate_float

    def _fall(self, x: int) -> Fraction:
        return ((x if x >= 0 else ~x) & ((1 << self._shift) - 1)) * self._rate


class _LaplaceBlocks:
    """The law of the block: symbol 2h for x in [hB, hB + B), 2h + 1 for [-hB - B, -hB).

    With q = e^-rate and Q = q^B, a block has the weight Q^h if x ≥ 0 and q·Q^h if x < 0 (whose
    nearest point is one further out); so sign and h are independent, and with k = 1 - (1 - Q)/(1 +
    q) the thresholds are C_(2h) = 1 - Q^h and C_(2h+1) = 1 - k·Q^h.
    """

    __slots__ = ("_block_exponent", "_rate", "period")

    def __init__(self, rate: Fraction, width: int, tail: int = _TAIL_EXPONENT) -> None:
        self._rate = rate
        self._block_exponent = rate * width
        inverse = tail / self._block_exponent
        self.period = inverse.numerator // inverse.denominator + 1

    def codes(self, symbols: NDArray[np.int64]) -> NDArray[np.int64]:
        """The c of x = c·B + l: h for x ≥ 0 and -1 - h for x < 0."""
        return (symbols >> 1) ^ -(symbols & 1)

    def thresholds(self, precision: int) -> Thresholds:
        """Lower bounds from powers of Q that are rounded up."""
        work = precision
        one = 1 << work
        q_lo, q_hi = exp_neg_bounds(self._rate, work)
        Q_lo, Q_hi = exp_neg_bounds(self._block_exponent, work)
        k_hi = one - ((one - Q_hi) << work) // (one + q_hi)
        lows = []
        power = one
        for _ in range(self.period):
            lows.append(one - power)
            lows.append(one - (power * k_hi >> work) - 1)
            power = (power * Q_hi >> work) + 1
        lows.append(one - power)
        # Factors are at most 1, so errors add: each product gains the excess of Q_hi and one unit;
        # k_hi exceeds k by at most the widths of q and Q and two units.
        wide = Q_hi - Q_lo + 1
        slack = self.period * wide + wide + (q_hi - q_lo) + 4
        # Bounds of neighbours may cross by a unit where e^-rate is nearly 0; the thresholds don't.
        return Thresholds(list(accumulate(lows, max)), slack)


@lru_cache(maxsize=_CACHED)
def laplace_sampler(scale: Fraction) -> DiscreteLaplaceSampler:
    """The sampler for a scale, kept for the next mechanism of that scale."""
    return DiscreteLaplaceSampler(scale)
