"""Uniform choices without bias: integers, orders and samples.

Reducing a random word modulo n favours small remainders; every function here rejects instead.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dither.entropy.bernoulli import bernoulli_many
from dither.entropy.source import SYSTEM, Source
from dither.errors import InvalidParameter

# Up to this length an index fits beside a 44-bit key in one word, and sorting words is faster than
# sorting an index by its key.
_PACKED_LIMIT = 1 << 20


def below(n: int, source: Source = SYSTEM) -> int:
    """A uniform integer from 0 to n − 1, of any size."""
    if n < 1:
        raise InvalidParameter("a uniform choice needs at least one possibility")
    k = (n - 1).bit_length()
    while True:
        # Given that it is below n, a uniform k-bit integer is uniform below n; this happens at
        # least every second time.
        u = source.bits(k)
        if u < n:
            return u


def below_many(n: int, size: int, source: Source = SYSTEM) -> NDArray[np.int64]:
    """``size`` independent uniform integers from 0 to n − 1, for n up to 2^63."""
    if not 1 <= n <= 1 << 63:
        raise InvalidParameter("below_many needs n between 1 and 2^63")
    mask = (1 << (n - 1).bit_length()) - 1
    out = np.empty(size, np.int64)
    filled = 0
    while filled < size:
        wanted = size - filled
        words = _masked_words(mask, wanted + (wanted * (mask + 1 - n)) // n + 16, source)
        kept = words[words <= n - 1][:wanted]
        out[filled : filled + kept.size] = kept
        filled += kept.size
    return out


def permutation(n: int, source: Source = SYSTEM) -> NDArray[np.int64]:
    """A uniform order of 0 … n − 1.

    Independent uniform keys that are all different are ordered uniformly, by symmetry; so all keys
    are drawn again whenever two are equal, and the order is exactly uniform.
    """
    if n < 0:
        raise InvalidParameter("a permutation needs a length of at least 0")
    if n <= 1:
        return np.arange(n, dtype=np.int64)
    while True:
        keys = source.u64(n)
        if n <= _PACKED_LIMIT:
            index_bits = (n - 1).bit_length()
            shift, index_mask = np.uint64(index_bits), np.uint64((1 << index_bits) - 1)
            keys = keys & ~index_mask
            keys |= np.arange(n, dtype=np.uint64)
            keys.sort()
            order = (keys & index_mask).view(np.int64)
            keys >>= shift
        else:
            order = np.argsort(keys).astype(np.int64, copy=False)
            keys = keys[order]
        if not (keys[1:] == keys[:-1]).any():
            return order


def sample_without_replacement(n: int, k: int, source: Source = SYSTEM) -> NDArray[np.int64]:
    """``k`` different integers below n in random order, every ordered choice equally likely."""
    if not 0 <= k <= n:
        raise InvalidParameter("a sample without replacement can't be larger than what it is taken from")
    if 4 * k >= n:
        return permutation(n, source)[:k]
    # Dropping repeats from a sequence of uniform draws leaves each next new value uniform on the
    # rest.
    drawn = below_many(n, k, source)
    while True:
        _, first = np.unique(drawn, return_index=True)
        if first.size == k:
            return drawn[np.sort(first)]
        drawn = np.concatenate([drawn[np.sort(first)], below_many(n, k - first.size, source)])


def poisson_mask(rate: Fraction, n: int, source: Source = SYSTEM) -> NDArray[np.bool_]:
    """A Poisson sample of n records: each is in it with probability exactly ``rate``."""
    return bernoulli_many(rate, n, source)


def _masked_words(mask: int, n: int, source: Source) -> NDArray[np.unsignedinteger]:
    words: NDArray[np.unsignedinteger]
    if mask < 1 << 16:
        words = source.u16(n)
    elif mask < 1 << 32:
        words = source.u32(n)
    else:
        words = source.u64(n)
    return words & words.dtype.type(mask)
