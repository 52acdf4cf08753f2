"""Directed rounding: a helper whose name ends in ``_up`` or is ``up`` never returns less than the truth.

IEEE-754 guarantees +, −, ×, ÷ and √ to half a unit in the last place. The C library and scipy promise nothing
formally; the functions used here (exp, log, expm1, log1p, ndtr, log_ndtr) are accurate to a few units, and every
result is moved outward by far more than that (``SLACK``), so a loss is over- and never understated.

What is rounded so begins exact: every privacy parameter is a fraction, entered as people write it. A float enters by
its shortest decimal (``0.1`` is one tenth, not the binary number nearest to it), a string as a decimal or a quotient
(``"1/4"``), so that ``RandomizedResponse(lie="1/4")`` has ε = ln 3 exactly.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction
from numbers import Rational
from typing import TypeAlias

import numpy as np

from dither.errors import InvalidParameter

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


EXPONENT = re.compile(r"[eE][+-]?([0-9_]+)\s*$")
LARGEST_EXPONENT = 400
LONGEST_TEXT = 4000
# What bars and errors are stated with where nobody says otherwise.
DEFAULT_CONFIDENCE = Fraction(19, 20)
Number: TypeAlias = "int | float | str | Fraction | Decimal | np.integer | np.floating"


def as_fraction(value: Number, name: str = "value") -> Fraction:
    """The exact value that a person meant by ``value``.

    Example:
        >>> as_fraction(0.1), as_fraction("1/4"), as_fraction(3)
        (Fraction(1, 10), Fraction(1, 4), Fraction(3, 1))
        >>> as_fraction(float("nan"), "scale")
        Traceback (most recent call last):
        dither.errors.InvalidParameter: scale must be a finite number, a Fraction or a string such as "1/4"; got nan
    """
    if type(value) is Fraction:  # what comes most often
        return value
    if isinstance(value, bool | np.bool_):
        raise InvalidParameter(f"{name} must be a number; got the truth value {value}")
    if isinstance(value, str | Decimal):
        _expect_short(str(value), name)
    try:
        if isinstance(value, float | np.floating):
            # numpy floats of lower precision keep their own shortest decimal
            return Fraction(str(value))
        if isinstance(value, str):
            return Fraction(value.strip())
        if isinstance(value, Rational | np.integer):
            return Fraction(int(value)) if isinstance(value, int | np.integer) else Fraction(value)
        if isinstance(value, Decimal):
            return Fraction(value)
    except (ValueError, ZeroDivisionError, OverflowError):
        pass
    raise InvalidParameter(f'{name} must be a finite number, a Fraction or a string such as "1/4"; got {value!r}')


def _expect_short(text: str, name: str) -> None:
    """Refuse exponents that no parameter has: 1e99999999 would be a number of a hundred million digits."""
    found = EXPONENT.search(text)
    if found and (len(found.group(1)) > LONGEST_TEXT or int(found.group(1)) > LARGEST_EXPONENT):
        raise InvalidParameter(f"{name} must have an exponent between -{LARGEST_EXPONENT} and {LARGEST_EXPONENT}")
    if len(text) > LONGEST_TEXT:
        raise InvalidParameter(f"{name} must have at most {LONGEST_TEXT} characters")


def positive(value: Number, name: str) -> Fraction:
    """``value`` as an exact number above zero."""
    exact = as_fraction(value, name)
    if exact <= 0:
        raise InvalidParameter(f"{name} must be greater than 0; got {value!r}")
    return exact


def probability(value: Number, name: str, *, least: Number = 0, most: Number = 1) -> Fraction:
    """``value`` as an exact probability within [least, most]."""
    exact = as_fraction(value, name)
    if not as_fraction(least) <= exact <= as_fraction(most):
        raise InvalidParameter(f"{name} must lie between {least} and {most}; got {value!r}")
    return exact


def positive_int(value: object, name: str, *, least: int = 1) -> int:
    """``value`` as a whole number that is at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InvalidParameter(f"{name} must be a whole number of at least {least}; got {value!r}")
    return int(value)


def ceil_div(numerator: int, denominator: int) -> int:
    """The smallest integer that is no less than the quotient."""
    return -(-numerator // denominator)
