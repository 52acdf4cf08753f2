"""Estimates as a person reads them: a short table with intervals, as text and in a notebook."""

from __future__ import annotations

import html
import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dither.brief import printable
from dither.mechanisms.base import Floats
from dither.mechanisms.response_estimates import ReadOnlyArrays

# Rows of a table; the arrays have all.
MOST_ROWS = 20
# Digits that are worth reading: two of the width of the narrowest interval, and no more than this behind the point.
MOST_DIGITS = 7
BEYOND = "estimates beyond what is possible are shown as the nearest that is; the unbiased ones are in the arrays"


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateRow:
    """What one line is about, its estimate and its interval."""

    name: str
    value: float
    interval: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateTable:
    """The first rows of some estimates and what there is to know about all of them.

    ``rows`` are those that are shown, ``number`` says how many there are, ``notes`` is what the intervals mean.
    ``cut`` says that an estimate beyond its interval, which ends at what is possible, is shown as the nearest end.
    """

    names: str
    values: str
    rows: Sequence[EstimateRow]
    number: int
    notes: Sequence[str]
    cut: bool = True

    def cells(self) -> list[tuple[str, str, str]]:
        """Name, estimate and interval as texts."""
        widths = [high - low for low, high in (row.interval for row in self.rows) if 0 < high - low < math.inf]
        digits = 2 - math.ceil(math.log10(min(widths))) if widths else 4
        digits = min(max(digits, 0), MOST_DIGITS)
        return [
            (
                printable(row.name),
                f"{within(row.value, row.interval) if self.cut else row.value:,.{digits}f}",
                f"{row.interval[0]:,.{digits}f} … {row.interval[1]:,.{digits}f}",
            )
            for row in self.rows
        ]

    def foot(self) -> list[str]:
        """What is said below the table."""
        left = self.number - len(self.rows)
        beyond = self.cut and any(within(row.value, row.interval) != row.value for row in self.rows)
        return [*([f"… {left:,} more"] if left > 0 else []), *self.notes, *([BEYOND] if beyond else [])]

    def text(self) -> str:
        """The table for a terminal."""
        lines = [(self.names, self.values, "interval"), *self.cells()]
        first, second = (max(len(line[place]) for line in lines) for place in (0, 1))
        told = [f"{name:<{first}}  {value:>{second}}  {ends}" for name, value, ends in lines]
        return "\n".join([*told, *self.foot()])

    def markup(self) -> str:
        """The table for a notebook."""
        left, right = "<td style='text-align:left'>", "<td style='text-align:right'>"
        head = "".join(f"<th>{html.escape(name)}</th>" for name in (self.names, self.values, "interval"))
        body = "".join(
            f"<tr>{left}{html.escape(name)}</td>{right}{value}</td>{left}{ends}</td></tr>"
            for name, value, ends in self.cells()
        )
        foot = "<br>".join(html.escape(note) for note in self.foot())
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return f"<div>{table}<small>{foot}</small></div>"


def rows_of(names: Iterable[object], values: Floats, intervals: Floats) -> list[EstimateRow]:
    """The lines of some estimates, one for each name."""
    return [
        EstimateRow(name=str(name), value=float(value), interval=(float(low), float(high)))
        for name, value, (low, high) in zip(names, values, intervals, strict=False)
    ]


class Shown(ReadOnlyArrays):
    """An estimate that is a table when it is printed. Its subclasses are dataclasses with ``repr=False``."""

    __slots__ = ()

    @abstractmethod
    def table(self) -> EstimateTable:
        """What is shown."""

    def __str__(self) -> str:
        return self.table().text()

    def __repr__(self) -> str:
        return self.table().text()

    def _repr_html_(self) -> str:
        return self.table().markup()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Estimates(Shown):
    """Several unbiased estimates with their variances and intervals, which hold at ``confidence``: each, or all."""

    values: Floats
    variances: Floats
    intervals: Floats
    confidence: float
    simultaneous: bool
    reports: int


def within(value: float, interval: tuple[float, float]) -> float:
    """The estimate as it is shown: an unbiased one may lie where no share or mean can, and its interval doesn't.

    Example:
        >>> within(1.677, (0.686, 1.0)), within(-0.02, (0.0, 0.01)), within(0.25, (0.2, 0.3))
        (1.0, 0.0, 0.25)
    """
    return min(max(value, interval[0]), interval[1])


def meaning(confidence: float, *, simultaneous: bool, reports: int) -> str:
    """What the intervals of some estimates promise.

    Example:
        >>> meaning(0.95, simultaneous=True, reports=1000)
        '95% intervals, which hold all together; 1,000 reports'
    """
    which = "which hold all together" if simultaneous else "each by itself"
    return f"{100 * confidence:g}% intervals, {which}; {reports:,} report{'' if reports == 1 else 's'}"
