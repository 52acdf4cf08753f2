"""Coins whose probability is exact: rational, or e^-x for a rational x.

A uniform number U is read bit by bit, and only as far as the comparison with the coin's probability
needs (lazy comparison after von Neumann 1951, Knuth & Yao 1976). A prefix of U either implies the
outcome or more bits are read; nothing is rounded, so the probability is met exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dither.entropy import intervals
from dither.entropy.source import SYSTEM, Source
from dither.errors import InvalidParameter

_WORD = 16
_COIN_BITS = 32
_MORE_BITS = 64
_GUARD = 8
_CHUNK = 1 << 15


def bernoulli(p: Fraction, source: Source = SYSTEM) -> bool:
    """True with probability exactly ``p``."""
    _check_probability(p)
    return less_than_exp(source.bits(_MORE_BITS), _MORE_BITS, Fraction(0), source, factor=p)


def bernoulli_many(p: Fraction, n: int, source: Source = SYSTEM) -> NDArray[np.bool_]:
    """``n`` independent coins, each true with probability exactly ``p``.

    U < p is decided by the first 16 bits of U unless they equal those of p; then it is a coin with
    the probability that the remaining bits of p spell.
    """
    _check_probability(p)
    scaled = p * (1 << _WORD)
    whole = scaled.numerator // scaled.denominator
    rest = scaled - whole
    if whole == 1 << _WORD:
        return np.ones(n, np.bool_)
    words = source.u16(n)
    coins: NDArray[np.bool_] = words < whole
    if rest:
        ties = np.flatnonzero(words == whole)
        if ties.size:
            coins[ties] = bernoulli_many(rest, ties.size, source)
    return coins


def bernoulli_exp(x: Fraction, source: Source = SYSTEM) -> bool:
    """True with probability exactly e^-x, for a rational x ≥ 0."""
    return less_than_exp(source.bits(_MORE_BITS), _MORE_BITS, x, source)


def bernoulli_exp_many(gaps: NDArray[np.float64], scale: Fraction, source: Source = SYSTEM) -> NDArray[np.bool_]:
    """Independent coins; coin i is true with probability exactly e^(-gaps[i]/scale).

    Each gap is taken as the exact binary value of its float; an infinite gap never comes up true.
    """
    gaps = np.ascontiguousarray(gaps, np.float64)
    if gaps.ndim != 1 or not (gaps >= 0).all():
        raise InvalidParameter("gaps must be a one-dimensional array of numbers of at least 0")

    def exact(i: int) -> Fraction | None:
        return None if gaps[i] == np.inf else Fraction(float(gaps[i]))

    return flip(gaps, exact, scale, source)


def flip(
    gaps: NDArray[np.float64], exact_gap: Callable[[int], Fraction | None], scale: Fraction, source: Source
) -> NDArray[np.bool_]:
    """Coins of probability e^(-gap/scale) where ``gaps`` hold the exact gaps rounded once.

    The floats only give bounds of each probability (see ``intervals.steps``); a coin whose first 32
    bits fall between the bounds, about 3 in 10,000, is decided by integers from its exact gap
    (None if infinite).
    """
    rate = intervals.step_rate(scale)
    coins = np.empty(gaps.size, np.bool_)
    for start in range(0, gaps.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        upper = intervals.exp_neg_upper(intervals.steps(gaps[part], rate))
        upper *= 2.0**_COIN_BITS
        words = source.u32(upper.size)
        u = words.astype(np.float64)
        doubtful = u < upper
        # u < 2^32 and the bounds are floats with 53 bits, so both comparisons are between exact
        # numbers. Beyond TRUSTED_STEPS the bound is below 2^-900, and u + 1 ≥ 1 can't be under it.
        u += 1.0
        upper *= intervals.TIGHTNESS
        heads = u <= upper
        coins[part] = heads
        doubtful &= ~heads
        for i in np.flatnonzero(doubtful):
            at = start + int(i)
            gap = exact_gap(at)
            coins[at] = gap is not None and less_than_exp(int(words[i]), _COIN_BITS, gap / scale, source)
    return coins


def less_than_exp(u: int, nbits: int, x: Fraction, source: Source, factor: Fraction = Fraction(1)) -> bool:
    """Whether U < factor · e^-x, where ``u`` holds the first ``nbits`` bits of a uniform U.

    Reads further bits of U from ``source`` until the answer no longer depends on the bits unread.
    """
    numerator, denominator = factor.numerator, factor.denominator
    # A large factor meets a tiny e^-x: both bounds must be known to about 2^-nbits of the product.
    extra = max(0, numerator.bit_length() - denominator.bit_length() + 1) + _GUARD
    while True:
        lo, hi = intervals.exp_neg_bounds(x, nbits + extra)
        if (u + 1) * denominator << extra <= lo * numerator:
            return True
        if u * denominator << extra >= hi * numerator:
            return False
        u = u << _MORE_BITS | source.bits(_MORE_BITS)
        nbits += _MORE_BITS


def _check_probability(p: Fraction) -> None:
    if not 0 <= p <= 1:
        raise InvalidParameter("a probability must lie between 0 and 1")
