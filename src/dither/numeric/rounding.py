"""Directed rounding: a helper whose name ends in ``_up`` or is ``up`` never returns less than the truth.

IEEE-754 guarantees +, −, ×, ÷ and √ to half a unit in the last place. The C library and scipy promise nothing
formally; the functions used here (exp, log, expm1, log1p, ndtr, log_ndtr) are accurate to a few units, and every
result is moved outward by far more than that (``SLACK``), so a loss is over- and never understated.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

# Relative allowance for one library-function result: 2^-44 is about 256 units in the last place.
SLACK = 2.0**-44
# Beyond these a share's three digits would say all, or nothing.
NEARLY_ALL, SMALLEST = 0.9995, 0.0001


def up(value: float, slack: float = SLACK) -> float:
    """A float at least as large as any true value that ``value`` approximates to ``slack``."""
    return value + abs(value) * slack if math.isfinite(value) and value else value


def down(value: float, slack: float = SLACK) -> float:
    """A float at most as large as any true value that ``value`` approximates to ``slack``."""
    return value - abs(value) * slack if math.isfinite(value) and value else value


def fraction_up(value: Fraction) -> float:
    """The smallest float that is no less than an exact fraction.

    Example:
        >>> fraction_up(Fraction(1, 2)), fraction_up(Fraction(1, 3)) >= Fraction(1, 3)
        (0.5, True)
    """
    try:
        nearest = value.numerator / value.denominator
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    if math.isinf(nearest):
        return nearest
    numerator, denominator = nearest.as_integer_ratio()
    enough = numerator * value.denominator >= value.numerator * denominator
    return nearest if enough else math.nextafter(nearest, math.inf)


def fraction_down(value: Fraction) -> float:
    """The largest float that is no more than an exact fraction."""
    return -fraction_up(-value)


def exp_up(value: float) -> float:
    """An upper bound of e^value; infinity where it exceeds a float."""
    return up(math.exp(value)) if value < 709.0 else math.inf


def log_up(value: Fraction) -> float:
    """An upper bound of ln(value) that is within a few units in the last place.

    Example:
        >>> log_up(Fraction(3)) >= math.log(3), log_up(Fraction(1))
        (True, 0.0)
    """
    if value == 1:
        return 0.0
    # Near 1 the quotient is rounded before the logarithm, which loses digits: use log1p of the exact excess.
    excess = value - 1
    if abs(excess) < Fraction(1, 2):
        return math.nextafter(math.nextafter(math.log1p(fraction_up(excess)), math.inf), math.inf)
    approx = math.log(value.numerator) - math.log(value.denominator)
    magnitude = max(abs(math.log(value.numerator)), abs(math.log(value.denominator)), abs(approx))
    return approx + 2 * math.ulp(magnitude)


def near_float(value: float | Decimal | Fraction) -> float:
    """The float nearest to a number: infinity where none is near, NaN for one that signals.

    Example:
        >>> near_float(Fraction(1, 4)), near_float(10**400), near_float(Decimal("sNaN"))
        (0.25, inf, nan)
    """
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except ValueError:  # a signalling NaN
        return math.nan


def percent(share: float) -> str:
    """A share with three digits; what isn't all is never called all, and what isn't nothing never nothing.

    Example:
        >>> percent(1.0), percent(0.99996), percent(0.5), percent(0.00002), percent(0.0)
        ('100%', 'over 99.9%', '50%', 'under 0.01%', '0%')
    """
    if NEARLY_ALL <= share < 1:
        return "over 99.9%"
    return "under 0.01%" if 0 < share < SMALLEST else f"{100 * max(share, 0.0):.3g}%"
