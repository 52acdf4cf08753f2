"""Exact parameters: every privacy parameter is a fraction, entered as people write it.

A float enters by its shortest decimal (``0.1`` is one tenth, not the binary number nearest to it), a string
as a decimal or a quotient (``"1/4"``), so that ``RandomizedResponse(lie="1/4")`` has ε = ln 3 exactly.
"""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from numbers import Rational
from typing import TypeAlias

import numpy as np

from dither.errors import InvalidParameter

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
