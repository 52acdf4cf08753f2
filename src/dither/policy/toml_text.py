"""Writing TOML: keys, values and exact numbers as the owner would type them, for drafts and for lines to copy."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from decimal import Decimal, localcontext
from fractions import Fraction

BARE = re.compile(r"[A-Za-z0-9_-]+")
ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
# longer numbers are shown by their order of magnitude: they are mistakes, or nobody would type them
LONGEST_NUMBER = 40


class Verbatim(str):
    """Text that stands in a line as it is: a placeholder for the owner to fill in."""

    __slots__ = ()


class Inexact(str):
    """The text of a number that isn't finite or too large or small to be meant: ``inf``, ``nan``, ``1e999999``."""

    __slots__ = ()


def toml_key(name: str) -> str:
    """A key, in quotes only where it needs them.

    Example:
        >>> print(toml_key("user_id"), toml_key("first name"), toml_key(""))
        user_id "first name" ""
    """
    return name if BARE.fullmatch(name) else _quoted(name)


def toml_path(path: tuple[str | int, ...]) -> str:
    """A dotted key as it would be written in a header; items of arrays are counted from 1, as people do."""
    text = ""
    for part in path:
        text += f"[{part + 1}]" if isinstance(part, int) else f".{toml_key(part)}"
    return text.removeprefix(".")


def toml_number(number: Fraction | int) -> str:
    """An exact number in decimals.

    Example:
        >>> toml_number(Fraction(1, 100)), toml_number(Fraction(1, 10**8)), toml_number(100)
        ('0.01', '1e-8', '100')
    """
    exact = Fraction(number)
    if exact.denominator == 1:
        whole = str(exact.numerator) if abs(exact.numerator) < 10**LONGEST_NUMBER else ""
        return whole or f"{Decimal(exact.numerator):.3e}"
    # TOML has decimals only, so every number of a policy is one, and the division is exact unless it is absurdly long
    with localcontext(prec=LONGEST_NUMBER):
        decimal = (Decimal(exact.numerator) / Decimal(exact.denominator)).normalize()
    return f"{decimal:e}" if decimal.adjusted() < -4 else f"{decimal:f}"


def toml_value(value: object) -> str:
    """A value on one line.

    Example:
        >>> print(toml_value({"type": "double", "between": [0, Verbatim("HIGH")]}))
        { type = "double", between = [0, HIGH] }
    """
    if isinstance(value, Verbatim | Inexact):
        return str(value)
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | Fraction):
        return toml_number(value)
    if isinstance(value, Mapping):
        inner = ", ".join(f"{toml_key(str(name))} = {toml_value(part)}" for name, part in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml_value(part) for part in value)}]"
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    raise TypeError(f"TOML has no {type(value).__name__}")


def toml_line(name: str, value: object) -> str:
    """A whole line: key = value."""
    return f"{toml_key(name)} = {toml_value(value)}"


def exact_number(text: str) -> Fraction | Inexact:
    """The decimal that was typed, exactly; for ``tomllib.loads(parse_float=…)``.

    Example:
        >>> exact_number("0.1"), exact_number("1e-6")
        (Fraction(1, 10), Fraction(1, 1000000))
    """
    try:
        number = Decimal(text.replace("_", ""))
    except ArithmeticError:  # an exponent beyond what Decimal can hold
        return Inexact(text)
    # a fraction of 1e999999999 would fill the memory; nothing outside the doubles is meant
    if not number.is_finite() or not -330 <= number.adjusted() <= 308 or len(number.as_tuple().digits) > 1000:
        return Inexact(text)
    return Fraction(number)


def _quoted(text: str) -> str:
    return '"' + "".join(ESCAPES.get(c) or _character(c) for c in text) + '"'


def _character(c: str) -> str:
    if c.isprintable():
        return c
    return f"\\u{ord(c):04x}" if ord(c) < 0x10000 else f"\\U{ord(c):08x}"
