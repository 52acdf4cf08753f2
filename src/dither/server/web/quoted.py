"""Errors before anything is asked, as the page shows them: numbers where they are known, examples where they aren't."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from dither.curator.price.quote import QuotedColumn
from dither.drawings.texts import number

# an error that depends on how many rows a group has, as a quote says it
BY_ROWS = re.compile(r"(at most about )?±(√?)\(([0-9.,]+) / rows in the group\)")
EXAMPLE_ROWS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownError:
    """The error of a column before anything is asked.

    Where it depends on the number of rows, ``half`` is that of a made-up group of ``rows``, and ``words`` the formula.
    """

    name: str
    half: str
    rows: str
    words: str


def shown_error(column: QuotedColumn) -> ShownError:
    """An error as the page shows it, with an example where it is a formula.

    Example:
        >>> from dither.curator.price.quote import QuotedColumn
        >>> column = QuotedColumn(name="m", error="±(5,155,004 / rows in the group)", half_width=None, mechanism="x")
        >>> shown_error(column).half, shown_error(column).rows
        ('5,156', '1,000')
    """
    if column.half_width is not None:
        return ShownError(name=column.name, half=number(column.half_width), rows="", words="")
    found = BY_ROWS.fullmatch(column.error)
    if found is None:
        return ShownError(name=column.name, half="", rows="", words=column.error)
    half = float(found[3].replace(",", "")) / EXAMPLE_ROWS
    half = math.sqrt(half) if found[2] else half
    shown = rounded_up(half, digits=4)
    if not shown:
        return ShownError(name=column.name, half="", rows="", words=column.error)
    return ShownError(name=column.name, half=number(float(shown)), rows=f"{EXAMPLE_ROWS:,}", words=column.error)


def rounded_up(value: float, digits: int = 3) -> str:
    """A few digits, without an exponent; rounded up, so that what is asked for isn't dearer than what was shown."""
    if not 1e-30 < value < 1e30:
        return ""
    places = digits - 1 - math.floor(math.log10(value))
    scaled = math.ceil(value * 10.0**places * (1 - 1e-12))
    return f"{scaled / 10.0**places:.{max(0, places)}f}"
