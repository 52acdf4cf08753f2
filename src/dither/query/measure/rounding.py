"""Scales as short fractions, rounded up: more noise than needed, never less."""

from __future__ import annotations

import math
from fractions import Fraction

from dither.errors import Refused
from dither.numeric import ceil_div

# Of a zCDP budget so much is divided: sums of floats, each rounded up, then stay within it.
MARGIN = 1 - Fraction(1, 2**40)
SCALE_BITS = 40
LONGEST_EXACT = 2**64
# Noise of this scale still fits 64 bits, but for a chance below e^-64.
LARGEST_SCALE = 2**55


def expect_scale(scale: Fraction) -> Fraction:
    """The scale, refused if its noise might not fit the numbers that are released."""
    if scale > LARGEST_SCALE:
        raise Refused(
            "the budget is too small for this question: its noise would be larger than any answer",
            code="budget_too_small",
            hint="Spend more, or ask for fewer columns.",
        )
    return scale


def short_up(value: Fraction) -> Fraction:
    """A positive fraction as it is if its terms are short, else rounded up to 40 significant bits.

    Example:
        >>> short_up(Fraction(1, 3)), short_up(Fraction(10**30 + 1, 10**30)) > 1
        (Fraction(1, 3), True)
    """
    if value.numerator < LONGEST_EXACT and value.denominator < LONGEST_EXACT:
        return value
    shift = SCALE_BITS - (value.numerator.bit_length() - value.denominator.bit_length())
    return _halved(_doubled_up(value, shift), shift)


def sqrt_up(value: Fraction) -> Fraction:
    """A short fraction whose square is no less than ``value`` > 0, and larger by less than 2^-38 of it.

    Example:
        >>> sqrt_up(Fraction(9, 4)), sqrt_up(Fraction(2)) ** 2 >= 2
        (Fraction(3, 2), True)
    """
    roots = math.isqrt(value.numerator), math.isqrt(value.denominator)
    if roots[0] ** 2 == value.numerator and roots[1] ** 2 == value.denominator:
        return short_up(Fraction(roots[0], roots[1]))
    half = (value.numerator.bit_length() - value.denominator.bit_length()) // 2
    shift = SCALE_BITS - half
    root = math.isqrt(_doubled_up(value, 2 * shift) - 1) + 1
    return _halved(root, shift)


def _doubled_up(value: Fraction, times: int) -> int:
    """A whole number that is no less than value · 2^times: the smallest."""
    if times >= 0:
        return ceil_div(value.numerator << times, value.denominator)
    return ceil_div(value.numerator, value.denominator << -times)


def _halved(whole: int, times: int) -> Fraction:
    """A whole number over 2^times."""
    return Fraction(whole, 1 << times) if times >= 0 else Fraction(whole << -times)
