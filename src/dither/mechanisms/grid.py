"""Real-valued answers on a grid: floor, add whole-number noise, convert.

An answer is floored to a multiple of g = 2^k, with the noise scale between 2^49·g and 2^50·g, noise is drawn on
that grid, and the exact whole-number sum is converted to a float. What leaves is a function of that sum alone, so no
low-order bits of the answer survive (Mironov 2012) and every grid point is reachable from every answer.

Flooring moves a coordinate by less than g, so the answers of two neighbours come at most ``coordinates``·g (in l1) or
√``coordinates``·g (in l2) further apart than promised. The noise drawn is wider than stated by a factor that pays for
this, for every sensitivity of at least 2^-16 scales; a smaller sensitivity is charged as that one.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Protocol

import numpy as np

from dither.entropy import SYSTEM, Source
from dither.mechanisms.base import Floats, Ints

BITS = 50
# A sensitivity below this share of the scale is charged as this share.
LEAST_SHARE = Fraction(1, 2**16)
# Flooring by g ≤ scale·2^-49 is at most this share of the least sensitivity, per coordinate.
SLACK_SHARE = Fraction(1, 2 ** (BITS - 1)) / LEAST_SHARE
# Answers are clamped to ±2^94 grid points (2^44 scales and more): beyond, a float can't hold the noise anyway.
CLAMP = 2.0**94
LARGEST_ARRAY = 2**31
CHUNK = 1 << 15
WORD = 32
WORD_MASK = (1 << WORD) - 1


class Sampler(Protocol):
    """Exact whole-number noise."""

    def into(self, out: Ints, source: Source = SYSTEM) -> None:
        """Fill an array with draws."""
        ...

    def one(self, source: Source = SYSTEM) -> int:
        """One draw."""
        ...


def grid_exponent(scale: Fraction) -> int:
    """K with 2^(BITS−1) ≤ scale/2^k < 2^BITS."""
    floor_log = scale.numerator.bit_length() - scale.denominator.bit_length()
    if Fraction(2) ** floor_log > scale:
        floor_log -= 1
    return floor_log - BITS + 1


def widening(coordinates: int, *, root: bool) -> Fraction:
    """The factor by which noise on ``coordinates`` coordinates is wider than stated, to pay for flooring.

    Sizes are rounded up to a power of two (of four for l2), so that few different samplers are ever needed.
    """
    doublings = max(coordinates - 1, 0).bit_length()
    return 1 + SLACK_SHARE * (1 << ((doublings + 1) // 2 if root else doublings))


def add_to_array(exact: Floats, sampler: Sampler, exponent: int, source: Source) -> Floats:
    """Floor to the grid, add noise exactly, convert to floats; in chunks that stay in the cache.

    A grid coordinate can exceed 64 bits, so it is kept as high·2^32 + low with 0 ≤ low < 2^32.
    """
    flat = exact.ravel()
    noise = np.empty(flat.size, dtype=np.int64)
    sampler.into(noise, source)
    out = np.empty(flat.size, dtype=np.float64)
    width = min(CHUNK, flat.size)
    units, high_part = np.empty(width), np.empty(width)
    high_words, low_words = np.empty(width, dtype=np.int64), np.empty(width, dtype=np.int64)
    with np.errstate(over="ignore", under="ignore"):
        for start in range(0, flat.size, CHUNK):
            draws = noise[start : start + CHUNK]
            n = draws.size
            t, h, hi, lo = units[:n], high_part[:n], high_words[:n], low_words[:n]
            np.ldexp(flat[start : start + n], -exponent, out=t)
            np.clip(t, -CLAMP, CLAMP, out=t)
            np.floor(t, out=t)
            np.multiply(t, 2.0**-WORD, out=h)
            np.floor(h, out=h)
            np.copyto(hi, h, casting="unsafe")
            np.multiply(h, 2.0**WORD, out=h)
            t -= h  # exact: t modulo 2^32
            np.copyto(lo, t, casting="unsafe")
            lo += draws
            hi += lo >> WORD
            lo &= WORD_MASK
            np.multiply(hi, 2.0**WORD, out=h)
            h += lo
            np.ldexp(h, exponent, out=out[start : start + n])
    return out.reshape(exact.shape)


def add_to_scalar(exact: float, noise: int, exponent: int) -> float:
    """The same for one number, with Python's integers."""
    try:
        units = math.ldexp(exact, -exponent)
    except OverflowError:
        units = math.copysign(CLAMP, exact)
    total = math.floor(min(max(units, -CLAMP), CLAMP)) + noise
    return math.ldexp(float(total), exponent)
