"""Exact discrete Gaussian noise: P(x) ∝ e^(-x²/2v) on the integers, for any rational variance v.

The law is that of Canonne, Kamath & Steinke (2020). Their sampler rejects from discrete Laplace
draws, one at a time; this one draws from a table and is vectorised. The proof is in
``samplers.md``.
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

MAX_VARIANCE = Fraction(2**112)
_CACHED = 64
# Upper bounds, of which more than half is used; the second is for few draws.
_BLOCKS_PER_SIGMA, _WIDE_BLOCKS_PER_SIGMA = 128, 16
_WEIGHT_GUARD = 64


class DiscreteGaussianSampler(IntegerSampler):
    """Draws integers with P(x) ∝ e^(-x²/2v) for the variance v, exactly.

    Accepts variances up to 2^112 (σ = 2^56), at which int64 holds all but 2^-11000 of the law.

    Example:
        >>> sampler = DiscreteGaussianSampler(Fraction(25, 4))
        >>> sampler.sample(3).dtype, type(sampler.one())
        (dtype('int64'), <class 'int'>)
    """

    __slots__ = ("_half_inverse", "_per_block", "variance")

    def __init__(self, variance: Fraction, resolution: Resolution = FAST) -> None:
        variance = Fraction(variance)
        if not 0 < variance <= MAX_VARIANCE:
            raise InvalidParameter("the variance of discrete Gaussian noise must lie above 0, up to 2^112")
        self.variance = variance
        shift = 0
        blocks = _WIDE_BLOCKS_PER_SIGMA if resolution.alike else _BLOCKS_PER_SIGMA
        while variance > (blocks << shift) ** 2:
            shift += 1
        self._per_block = np.uint16(0)
        self._half_inverse = 0.0
        if shift:
            # t(x) ≤ ((h+1)² - h²)B²/2v ≤ (h + 1)·B²/v; minus 2^16·B²/v, rounded away from 0, as a
            # 16-bit word, so that (h + 1) times it is 2^16(1 - t) modulo 2^16. B²/v ≤ 1/4096; wide
            # blocks, whose B²/v may be 1/64, are for draws without this short cut.
            share = Fraction(4**shift * 2**16) / variance
            self._per_block = np.uint16(2**16 + (-share.numerator // share.denominator))
            self._half_inverse = float(1 / (2 * variance))
        law = _Points(variance) if shift == 0 else _GaussianBlocks(variance / 4**shift)
        super().__init__(law, shift, resolution)

    def __repr__(self) -> str:
        return f"DiscreteGaussianSampler({self.variance})"

    def _for_few(self) -> DiscreteGaussianSampler:
        return DiscreteGaussianSampler(self.variance, ALIKE)

    def _suspects(self, codes: NDArray[np.int16], coins: NDArray[np.uint16]) -> NDArray[np.bool_]:
        # |c| + 1 ≥ h + 1. U < e^-t is certain if u + 1 ≤ 2^16(1 - t). Up to 2^11 blocks of 16 units
        # each stay below 2^16, so the product means what it should.
        least = np.absolute(codes).view(np.uint16)
        least += np.uint16(1)
        least *= self._per_block
        out: NDArray[np.bool_] = coins >= least
        return out

    def _falls(self, x: NDArray[np.int64]) -> NDArray[np.float64]:
        # ((near + d)² - near²)/2v = (2·near + d)·d/2v; near has 11 significant bits, so five
        # roundings are the whole error.
        c = x >> self._shift
        near = (c ^ (c >> 63)) << self._shift
        d = (np.absolute(x) - near).astype(np.float64)
        out: NDArray[np.float64] = (2.0 * near.astype(np.float64) + d) * d * self._half_inverse
        return out

    def _fall(self, x: int) -> Fraction:
        c = x >> self._shift
        near = (c if c >= 0 else ~c) << self._shift
        return (x * x - near * near) / (2 * self.variance)


class _Weights:
    """Bounds of the weights w_h = e^(-h²/2v) and of their sums."""

    __slots__ = ("_variance",)

    period = 0
    copies_of_zero = 1

    def __init__(self, variance: Fraction) -> None:
        self._variance = variance

    def thresholds(self, precision: int) -> Thresholds:
        """Cumulative weights over the total; w_0 counts ``copies_of_zero`` times, others twice."""
        # w_(h+1) = w_h·s_h and s_(h+1) = s_h·r with s_0 = e^(-1/2v), r = e^(-1/v); all at most 1
        # and all rounded down. Errors of products of numbers up to 1 add: s_h is short by at most
        # (h + 1)(d + 1) units, where d is the width of the bounds of s_0 and r, and w_h by at most
        # (h + 1)²(d + 1).
        work = precision + _WEIGHT_GUARD
        s, s_hi = exp_neg_bounds(1 / (2 * self._variance), work)
        r, r_hi = exp_neg_bounds(1 / self._variance, work)
        unit = max(s_hi - s, r_hi - r) + 1
        weights = [1 << work]
        weight = weights[0]
        # Stop where what is left can't be seen at this precision: below 2^-precision.
        while weight >> _WEIGHT_GUARD:
            weight = weight * s >> work
            s = s * r >> work
            weights.append(weight)
        n = len(weights)
        short = n**2 * unit
        # With i = n - 1 the last index, w_(i+j) ≤ w_i·s_i^j: a geometric series bounds the rest.
        s_above = s + n * unit
        rest = (((weights[-1] + short) << work) // ((1 << work) - s_above)) + 1
        partial = [weights[0]] * self.copies_of_zero
        for weight in weights[1:]:
            partial += (weight, weight)
        sums = list(accumulate(partial, initial=0))
        total = sums[-1]
        error = len(partial) * short
        total_hi = total + error + 2 * rest
        # (sum + error)/total - sum/total_hi ≤ (error + total_hi - total)/total, and two floors.
        slack = (((error + total_hi - total) << precision) // total) + 3
        return Thresholds([(part << precision) // total_hi for part in sums], slack)


class _Points(_Weights):
    """The law of x itself: symbols stand for 0, +1, -1, +2, -2 and so on."""

    __slots__ = ()

    def codes(self, symbols: NDArray[np.int64]) -> NDArray[np.int64]:
        """The integers that symbols stand for."""
        return ((symbols + 1) >> 1) * (2 * (symbols & 1) - 1)


class _GaussianBlocks(_Weights):
    """The law of the block: symbol 2h for x in [hB, hB + B), 2h + 1 for [-hB - B, -hB).

    Both get the weight w_h of hB, which no point of theirs exceeds.
    """

    __slots__ = ()

    copies_of_zero = 2

    def codes(self, symbols: NDArray[np.int64]) -> NDArray[np.int64]:
        """The c of x = c·B + l: h for x ≥ 0 and -1 - h for x < 0."""
        return (symbols >> 1) ^ -(symbols & 1)


@lru_cache(maxsize=_CACHED)
def gaussian_sampler(variance: Fraction) -> DiscreteGaussianSampler:
    """The sampler for a variance, kept for the next mechanism of that variance."""
    return DiscreteGaussianSampler(variance)
