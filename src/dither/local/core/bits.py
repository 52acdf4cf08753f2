"""Rows of bits, many people at once: exact coins, packed payloads, column sums.

Bit v of a payload is bit v mod 8, from the lowest, of byte v div 8; bits beyond the last value are zero.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from dither.entropy import Source, bernoulli_many
from dither.local.core.protocol import Counts, Payloads

Bits = npt.NDArray[np.bool_]
# Work is done in blocks of about this many bytes, which stay in the second-level cache.
BLOCK_BYTES = 1 << 20


def in_blocks(given: npt.NDArray[Any], width: int, block: int, draw: Callable[..., Payloads]) -> Payloads:
    """Payloads of many people as ``draw`` makes them of what is ``given`` of ``block`` people at a time."""
    rows = np.empty((given.shape[0], width), dtype=np.uint8)
    for start in range(0, given.shape[0], block):
        rows[start : start + block] = draw(given[start : start + block])
    return rows


def coin_rows(p: Fraction, rows: int, columns: int, source: Source) -> Bits:
    """Independent coins, each true with probability exactly ``p``, at one byte of randomness for most.

    U < p is decided by the first 8 bits of U unless they equal those of p; then it is a coin with the probability that
    the remaining bits of p spell.
    """
    scaled = p * 256
    whole = scaled.numerator // scaled.denominator
    if whole >= 256:
        return np.ones((rows, columns), dtype=np.bool_)
    first = source.fill(rows * columns)
    coins = first < whole
    if scaled != whole:
        ties = np.flatnonzero(first == whole)
        if ties.size:
            coins[ties] = bernoulli_many(scaled - whole, ties.size, source)
    return coins.reshape(rows, columns)


def one_hot_coins(places: npt.NDArray[Any], columns: int, keep: Fraction, noise: Fraction, source: Source) -> Payloads:
    """Packed rows of coins of which the one at each row's place is true with ``keep``, all others with ``noise``."""
    bits = coin_rows(noise, places.size, columns, source)
    bits[np.arange(places.size), places] = bernoulli_many(keep, places.size, source)
    return packed(bits)


def odd_ones(words: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Whether each word, at least 0, has an odd number of ones, as 0 or 1; numpy counts them since version 2 alone."""
    kind = words.dtype.type
    shift = 4 * words.dtype.itemsize
    while shift:
        words = words ^ (words >> kind(shift))
        shift //= 2
    return np.asarray(words & kind(1))


def packed(bits: Bits) -> Payloads:
    """Rows of bits as bytes."""
    return np.packbits(bits, axis=1, bitorder="little")


def column_sums(payloads: Payloads, columns: int) -> Counts:
    """How many rows have each bit set."""
    sums = np.zeros(columns, dtype=np.int64)
    # a byte counts up to 255 rows, and adding bytes is eight times as quick as adding words
    for start in range(0, payloads.shape[0], 255):
        bits = np.unpackbits(payloads[start : start + 255], axis=1, count=columns, bitorder="little")
        sums += np.add.reduce(bits, axis=0, dtype=np.uint8)
    return sums


def padding_is_zero(payloads: Payloads, columns: int) -> Bits:
    """Which rows have no bit beyond the last column."""
    used = columns % 8
    if not used:
        return np.ones(payloads.shape[0], dtype=np.bool_)
    return payloads[:, -1] < np.uint8(1 << used)
