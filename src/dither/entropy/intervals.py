"""Bounds of e^-x that are proven, so that no library function ever decides an outcome.

Three tools, from exact to fast: integer bounds of any precision for one rational x; an upper bound,
tight to 0.03 %, for a whole array of floats; a polynomial with a stated error for an array of small
floats. The last two use only operations that IEEE 754 rounds correctly (+, −, ×, ÷, comparison) and
table look-ups.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, repeat

import numpy as np
from numpy.typing import NDArray

from dither.errors import InvalidParameter

# Halvings of x beyond what brings it below 1: the series then gains at least 8 bits with each term.
_EXTRA_HALVINGS = 8
_GUARD = 24


def exp_neg_bounds(x: Fraction, precision: int) -> tuple[int, int]:
    """Integers ``lo`` and ``hi`` with lo ≤ 2^precision · e^-x ≤ hi, for a rational x ≥ 0.

    Example:
        >>> exp_neg_bounds(Fraction(0), 8), exp_neg_bounds(Fraction(10**9), 8)
        ((256, 256), (0, 1))
        >>> exp_neg_bounds(Fraction(1), 20)  # 2^20/e = 385749.55
        (385749, 385750)
    """
    if x < 0 or precision < 0:
        raise InvalidParameter("exp_neg_bounds needs x and precision of at least 0")
    if x == 0:
        return 1 << precision, 1 << precision
    if x >= precision:
        return 0, 1  # 2^p·e^-x ≤ (2/e)^p ≤ 1
    # e^-x = (e^-y)^(2^r) with y = x/2^r < 2^-8. Each squaring at most doubles the relative error,
    # hence r guard bits for the squarings. Whatever the guard, the bounds hold; it only makes them
    # tight.
    halvings = (x.numerator // x.denominator).bit_length() + _EXTRA_HALVINGS
    guard = halvings + _GUARD
    work = precision + guard
    one = 1 << work
    y = (x.numerator << work) // (x.denominator << halvings)  # short of the truth by less than a unit

    # Alternating series of e^-y with terms rounded down. If a term is short by d units, the next is
    # short by at most d/256 + 1 + 1 (two floors), so by induction each by less than 3. When the
    # computed term is 0 the true one is below 3 units, and so is what follows in a falling
    # alternating series. The sum of k terms is therefore within 3(k + 1) units; the unit lost from
    # y adds less than a unit to e^-y.
    total = term = one
    k = 0
    while term:
        k += 1
        term = (term * y >> work) // k
        total += -term if k & 1 else term
    lo, hi = total - 3 * k - 4, min(one, total + 3 * k + 3)

    for _ in range(halvings):
        lo, hi = lo * lo >> work, -(-hi * hi >> work)
    return lo >> guard, -(-hi >> guard)


# --- arrays of floats ---

STEPS = 4096
"""Steps per factor of two in which :func:`steps` measures an exponent."""

MAX_STEPS = 2**50
TRUSTED_STEPS = 2**30
TIGHTNESS = 0.9997
"""The least share of its upper bound that e^-x can be, up to ``TRUSTED_STEPS`` steps."""

_SMALLEST_POWER = 1000
_LOG2_E_DOWN = Fraction("1.44269504088896340735992468100189213742")  # truncated, so below log2(e)
_SCALE_LIMIT = Fraction(2**900)


def step_rate(scale: Fraction) -> float:
    """Steps per unit of gap, a little below 4096·log2(e)/scale: what :func:`steps` needs."""
    if not 1 / _SCALE_LIMIT <= scale <= _SCALE_LIMIT:
        raise InvalidParameter("scale must lie between 2^-900 and 2^900")
    return float(STEPS * _LOG2_E_DOWN / scale * (1 - Fraction(1, 2**39)))


def steps(gaps: NDArray[np.float64], rate: float) -> NDArray[np.int64]:
    """Whole numbers n with e^(-gap/scale) ≤ 2^(-n/4096), for gaps ≥ 0 rounded at most once.

    Upper bound: write t = 4096·log2(e)·gap/scale. The rate carries a factor 1 − 2^-39 and three
    roundings (of the gap, the rate and the product) add at most 3·2^-53 in all, so the float
    product is below t, and so is n, its floor. An infinite product means t > 2^1024/2^900 >
    MAX_STEPS, so the cap is below t too.

    Tightness: t < (n + 1)(1 + 2^-38) < n + 1.01 as long as n ≤ 2^30; so e^-x ≥ 2^(-1.01/4096) ≈
    0.99983 times the bound, and ``TIGHTNESS`` leaves room for the roundings of its callers.
    """
    with np.errstate(over="ignore"):
        product = gaps * rate
    np.minimum(product, float(MAX_STEPS), out=product)
    return product.astype(np.int64)


def mantissas(n: NDArray[np.int64]) -> NDArray[np.float64]:
    """2^(-(n mod 4096)/4096), rounded up."""
    out: NDArray[np.float64] = _mantissa_table()[n & (STEPS - 1)]
    return out


def powers(exponents: NDArray[np.int64]) -> NDArray[np.float64]:
    """2^-exponent for exponents ≥ 0; those above 1000 count as 1000, which rounds up."""
    return _POWERS[np.minimum(exponents, _SMALLEST_POWER)]


def exp_neg_upper(n: NDArray[np.int64]) -> NDArray[np.float64]:
    """Upper bounds of e^-x from the steps of x; a power of two scales without rounding."""
    return mantissas(n) * powers(n >> (STEPS.bit_length() - 1))


_POWERS: NDArray[np.float64] = np.ldexp(1.0, -np.arange(_SMALLEST_POWER + 1))


@lru_cache(maxsize=1)
def _mantissa_table() -> NDArray[np.float64]:
    # 2^(-1/4096) is twelve square roots of 1/2. All integers have 128 fractional bits and are
    # rounded up (+1), so every entry is an upper bound; dividing by 2^75 leaves 53 bits, rounded up
    # once more.
    root = 1 << 127
    for _ in range(STEPS.bit_length() - 1):
        root = math.isqrt(root << 128) + 1
    entries = accumulate(repeat(root, STEPS - 1), lambda a, b: (a * b >> 128) + 1, initial=1 << 128)
    return np.array([-(-entry >> 75) for entry in entries], np.float64) * 2.0**-53


POLYNOMIAL_LIMIT = 2.0**-4
POLYNOMIAL_ERROR = 2.0**-46


def exp_neg_polynomial(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """e^-x for 0 ≤ x ≤ 1/16, within ``POLYNOMIAL_ERROR`` if x is known to a relative 2^-49.

    Degree 9 leaves a remainder below 2^-40/10! < 2^-61. Horner's rule 1 − x·s/k contracts errors
    by x/k ≤ 1/16 and adds three roundings of at most 2^-53 each, so less than 2^-51 in all; the
    argument adds 2^-53.
    """
    s = np.ones_like(x)
    for k in range(9, 0, -1):
        s *= x
        s /= k
        np.subtract(1.0, s, out=s)
    return s


POWER_LIMIT = 1.0
POWER_ERROR = 2.0**-41


def exp_neg_power(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """e^-x for 0 ≤ x ≤ 1, within ``POWER_ERROR`` if x is known to a relative 2^-49.

    The sixteenth power of e^(-x/16), by four squarings. That is at least 0.93 and known within 2^-46, so to a relative
    1.08·2^-46; its power is off by less than 18 times that, and by fifteen roundings of 2^-53.
    """
    s = exp_neg_polynomial(x * POLYNOMIAL_LIMIT)
    for _ in range(4):
        s *= s
    return s
