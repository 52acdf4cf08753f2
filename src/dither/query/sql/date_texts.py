"""Dates as texts: ``strftime``, ``dayname`` and ``monthname``, written out in functions that engines have.

No engine's own formats are used, so the texts are the same everywhere, in English, and a calendar's list of them is
exact.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

from dither.query.expressions.functions import Typed, apply, literal
from dither.query.kinds import Kind, Literal
from dither.query.refusals import refused

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


def day_name(when: Typed) -> Typed:
    """The English name of the day of the week."""
    return _named(apply("day_of_week", (when,)), DAYS)


def month_name(when: Typed) -> Typed:
    """The English name of the month."""
    return _named(apply("month", (when,)), MONTHS)


def _named(number: Typed, names: tuple[str, ...]) -> Typed:
    pairs = [
        part
        for place, name in enumerate(names, start=1)
        for part in (apply("equal", (number, literal(place, Kind.INTEGER))), literal(name, Kind.TEXT))
    ]
    return apply("case", (*pairs, literal(None, Kind.TEXT)))


def _digits(function: str, size: int) -> Callable[[Typed], Typed]:
    """A part of a date as so many digits."""

    def made(when: Typed) -> Typed:
        text = apply("to_text", (apply(function, (when,)),))
        padded = apply("concat", (literal("0" * (size - 1), Kind.TEXT), text))
        return apply("right", (padded, literal(size, Kind.INTEGER)))

    return made


def _short(name: Callable[[Typed], Typed]) -> Callable[[Typed], Typed]:
    return lambda when: apply("left", (name(when), literal(3, Kind.INTEGER)))


_CODES: MappingProxyType[str, Callable[[Typed], Typed]] = MappingProxyType(
    {
        "Y": _digits("year", 4),
        "m": _digits("month", 2),
        "d": _digits("day", 2),
        "j": _digits("day_of_year", 3),
        "V": _digits("week", 2),
        "u": _digits("day_of_week", 1),
        "H": _digits("hour", 2),
        "M": _digits("minute", 2),
        "S": _digits("second", 2),
        "A": day_name,
        "B": month_name,
        "a": _short(day_name),
        "b": _short(month_name),
    }
)


def strftime(when: Typed, form: Typed) -> Typed:
    """A date as a text in a format: codes of two characters, and other characters as they are."""
    text = form.expression.value if isinstance(form.expression, Literal) else None
    if when.kind is Kind.TEXT:
        when, form, text = form, when, when.expression.value if isinstance(when.expression, Literal) else None
    if not isinstance(text, str) or not when.kind.temporal:
        raise refused("types", "strftime needs a date and a constant text", "Write strftime(d, '%Y-%m')")
    parts, place, plain = list[Typed](), 0, ""
    while place < len(text):
        code = text[place + 1 : place + 2] if text[place] == "%" else ""
        if code and code in _CODES:
            parts += [literal(plain, Kind.TEXT)] if plain else []
            parts.append(_CODES[code](when))
            place, plain = place + 2, ""
        elif code == "%" or text[place] != "%":
            plain += text[place]
            place += 2 if code else 1
        else:
            known = " ".join(f"%{each}" for each in _CODES)
            raise refused("literal", "this format has a code that isn't supported", f"Codes are {known} and %%")
    parts += [literal(plain, Kind.TEXT)] if plain else []
    if all(isinstance(part.expression, Literal) for part in parts):
        raise refused("literal", "this format has no part of the date", "Write strftime(d, '%Y-%m')")
    return apply("concat", parts) if len(parts) > 1 else parts[0]
