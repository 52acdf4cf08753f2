"""Errors before anything is asked, as the page shows them: numbers where they are known, examples where they aren't."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dither.curator.price.quote import QuotedColumn
from dither.drawings.texts import number

# of the group that is an example where an error depends on how many rows a group has
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
        >>> from dither.query.aggregates.base import PerRow
        >>> mean = QuotedColumn(name="m", error="…", half_width=None, mechanism="", predicted=PerRow(over_rows=5155004))
        >>> shown_error(mean).half, shown_error(mean).rows
        ('5,156', '1,000')
    """
    if column.half_width is not None:
        return ShownError(name=column.name, half=number(column.half_width), rows="", words="")
    half = None if column.predicted is None else column.predicted.at(EXAMPLE_ROWS)
    shown = "" if half is None else rounded_up(half, digits=4)
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
