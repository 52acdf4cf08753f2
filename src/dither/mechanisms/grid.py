"""Real-valued answers on a grid: floor, add whole-number noise, convert.

An answer is floored to a multiple of g = 2^k, with the noise scale between 2^(bits−1)·g and 2^bits·g, noise is drawn on
that grid, and the exact whole-number sum is rounded to a float. What leaves is a function of that sum alone, so no
low-order bits of the answer survive (Mironov 2012) and every grid point is reachable from every answer.

Flooring moves a coordinate by less than g, so the answers of two neighbours come at most n·g (in l1) or √n·g (in l2)
further apart than promised. The noise drawn is wider than stated by a factor that pays for this, for every sensitivity
of at least 2^-16 scales; a smaller sensitivity is charged as that one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dither.entropy import Source
from dither.errors import InvalidData, InvalidParameter
from dither.mechanisms.base import Floats, Ints, Sampler, finite_floats

# A sensitivity below this share of the scale is charged as this share.
LEAST_SHARE = Fraction(1, 2**16)
LARGEST_ARRAY = 2**26
SMALLEST_SCALE, LARGEST_SCALE = Fraction(1, 10**290), Fraction(10**290)
CHUNK = 1 << 15
# Whole numbers below this are floats; noise beyond it (e^-32 for Laplace, e^-2^27 for Gaussian) is added as integers.
EXACT = 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """How fine a grid is, relative to the noise on it, and how much wider the noise is for that.

    ``root`` says whether flooring n coordinates adds n or √n grid steps to the sensitivity (l1 or l2), and ``margin``
    multiplies what pays for it, to leave something for other small differences.
    """

    bits: int
    root: bool
    margin: int = 1

    def exponent(self, scale: Fraction) -> int:
        """The k with 2^(bits−1) ≤ scale/2^k < 2^bits."""
        if not SMALLEST_SCALE <= scale <= LARGEST_SCALE:
            raise InvalidParameter("scale must lie between 1e-290 and 1e290, where floats have room for the noise")
        floor_log = scale.numerator.bit_length() - scale.denominator.bit_length()
        if Fraction(2) ** floor_log > scale:
            floor_log -= 1
        return floor_log - self.bits + 1

    def widening(self, coordinates: int) -> Fraction:
        """The factor by which noise on a number of coordinates is wider than stated.

        Sizes are rounded up to a power of two (of four for l2), so that few different samplers are ever needed.
        """
        doublings = max(coordinates - 1, 0).bit_length()
        steps = 1 << ((doublings + 1) // 2 if self.root else doublings)
        return 1 + self.margin * steps * Fraction(1, 2 ** (self.bits - 1)) / LEAST_SHARE

    def release(
        self, exact: Any, sampler: Callable[[int], Sampler], one: Sampler, exponent: int, source: Source
    ) -> float | Floats:
        """A number or an array plus noise; ``sampler(n)`` is wide enough for n coordinates, ``one`` for one."""
        if type(exact) is float and math.isfinite(exact):  # the quick way for what comes most often
            return add_to_scalar(exact, one.one(source), exponent)
        values = finite_floats(exact)
        if values.ndim == 0:
            return add_to_scalar(float(values), one.one(source), exponent)
        if values.size > LARGEST_ARRAY:
            raise InvalidData(f"an array of at most {LARGEST_ARRAY} numbers can be released at once")
        return self.release_array(values, sampler(values.size), exponent, source)

    def release_array(self, exact: Floats, sampler: Sampler, exponent: int, source: Source) -> Floats:
        """The floored answers plus noise, in chunks that stay in the cache.

        Floored answer and noise are whole numbers that floats hold exactly, and IEEE addition rounds their exact sum to
        the nearest float: a function of the sum, as it has to be. Scaling by powers of two is exact, or loses what no
        float holds.
        """
        flat = exact.ravel()
        noise = np.empty(flat.size, dtype=np.int64)
        sampler.into(noise, source)
        released = noise.view(np.float64)  # takes the place of the noise, chunk by chunk
        width = min(CHUNK, flat.size)
        units = np.empty(width)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            for start in range(0, flat.size, CHUNK):
                values, drawn = flat[start : start + CHUNK], noise[start : start + CHUNK]
                t = units[: drawn.size]
                _scale(values, -exponent, t)
                np.floor(t, out=t)
                exceptions = _huge(values, t)
                if self.bits > 44:  # noise on a coarser grid has no chance to exceed a float
                    exceptions += _large(t, drawn, exponent)
                t += drawn  # converted to floats on the way, which is exact but for the exceptions
                _scale(t, exponent, released[start : start + drawn.size])
                for place, value in exceptions:
                    released[start + place] = value
        return released.reshape(exact.shape)


# Flooring costs l1 more than l2, so it needs the finer grid; the coarser one is quicker.
L1_GRID = Grid(bits=48, root=False)
L2_GRID = Grid(bits=39, root=True, margin=2)


def floor_units(exact: float, exponent: int) -> int:
    """A float floored to a multiple of 2^exponent, in those units; exactly, however large."""
    try:
        return math.floor(math.ldexp(exact, -exponent))
    except OverflowError:
        return int(exact) << -exponent  # so large that it is a whole number, and the exponent is negative


def add_to_scalar(exact: float, noise: int, exponent: int) -> float:
    """The floored answer plus noise, as Python integers; the conversion rounds the exact sum to the nearest float."""
    total = floor_units(exact, exponent) + noise
    try:
        return math.ldexp(float(total), exponent)
    except OverflowError:
        pass
    try:
        return float(Fraction(total) * Fraction(2) ** exponent)
    except OverflowError:
        return math.copysign(math.inf, total)


def _scale(values: Floats, exponent: int, out: Floats) -> None:
    """values·2^exponent, also where the factor itself is no float."""
    if -1000 <= exponent <= 1000:
        np.multiply(values, 2.0**exponent, out=out)
    else:
        np.ldexp(values, exponent, out=out)


def _huge(values: Floats, t: Floats) -> list[tuple[int, float]]:
    """Answers with no float in grid units: the noise is far below the spacing of such numbers, so they stay."""
    if math.isfinite(t.sum()):
        return []
    return [(int(i), float(values[i])) for i in np.flatnonzero(~np.isfinite(t))]


def _large(t: Floats, drawn: Ints, exponent: int) -> list[tuple[int, float]]:
    """Noise that is no float: it is added as an integer."""
    if drawn.max() < EXACT and drawn.min() > -EXACT:
        return []
    places = np.flatnonzero(((drawn >= EXACT) | (drawn <= -EXACT)) & np.isfinite(t))
    return [(int(i), math.ldexp(float(int(t[i]) + int(drawn[i])), exponent)) for i in places]
