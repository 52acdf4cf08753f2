"""Taking the owner's data in: how files are to be read, what the owner is told about it, and what may be left out.

The counts here are exact and about the data. They go to the owner alone: never into an answer, a refusal or a log.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from dither.errors import SourceError

MOST_LINES = 20
# numbers, dates and times, truth values: what names of columns hardly ever are
_LIKE_DATA = re.compile(r"[+-]?[0-9.,]+(e[+-]?[0-9]+)?%?|[0-9]{1,4}[-/.][0-9]{1,2}[-/.][0-9]{1,4}([ T].*)?|true|false")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The shares of a table that may be left out before its files are refused; everything, if nothing is said."""

    unreadable: Fraction = Fraction(1)
    without_unit: Fraction = Fraction(1)
    unlisted: Fraction = Fraction(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """How an engine takes files in.

    ``copies`` is the directory for typed copies of CSV files, None for no copies; copies in ``unwanted``, and wherever
    ``dataset`` kept some before, are removed. ``record`` is the file that remembers where that was, and which versions
    of the data were looked at and accepted; None to look at them on every opening. CSV files have the ``delimiter``, or
    the one in their first line, and a line of names if ``header``; blanks around their texts are cut off if ``trim``.
    ``limits`` are for CSV files. With ``names_only`` no value is read, and no question can be asked.
    ``accepted`` is the version that another process of the owner opened: that one isn't judged again, and no other is
    opened.
    """

    copies: Path | None = None
    unwanted: Path | None = None
    record: Path | None = None
    dataset: str = ""
    delimiter: str | None = None
    header: bool = True
    trim: bool = False
    limits: Limits = field(default_factory=Limits)
    names_only: bool = False
    accepted: str | None = None

    @property
    def owner(self) -> str:
        """What tells the copies of this dataset from those of others in the same directory."""
        record = "" if self.record is None else self.record.resolve()
        return hashlib.sha256(f"{record}\0{self.dataset}".encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """Something of a table that no answer has: ``why`` is unreadable, without_unit or unlisted.

    Or that no filter finds: texts with ``blanks`` around them. There is no limit to those.
    """

    why: str
    column: str
    kind: str
    rows: int
    of: int

    @property
    def share(self) -> Fraction:
        """The part of the table's rows."""
        return Fraction(self.rows, self.of) if self.of else Fraction(0)

    def beyond(self, limits: Limits) -> bool:
        """Whether that is more than may be."""
        return bool(self.share > getattr(limits, self.why, 1))

    def __str__(self) -> str:
        what = {
            "unreadable": f"can't be read as {self.kind} in column {self.column}, and are NULL",
            "without_unit": f"have no {self.column}, and count in no answer",
            "blanks": f"have blanks around the text in column {self.column}, and 'a ' isn't 'a': to have them cut off, "
            "write trim = true under [source]",
            "unlisted": f"have a value of {self.column} that isn't listed under in, and are in no group of it",
        }[self.why]
        return f"{self.rows:,} of {self.of:,} rows ({float(100 * self.share):.3g}%) {what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Beyond:
    """A fact of the policy that the data doesn't keep to; for the owner alone.

    ``number`` of so many units, or combinations of ``columns``, have more than ``rows`` rows.
    """

    columns: tuple[str, ...]
    rows: int
    number: int
    of: int
    units: bool

    def __str__(self) -> str:
        what = (
            f"values of {self.columns[0]}" if len(self.columns) == 1 else f"combinations of {', '.join(self.columns)}"
        )
        more = "1 row" if self.rows == 1 else f"{self.rows:,} rows"
        return f"{self.number:,} of {self.of:,} {what} have more than {more}, which the policy says is the most"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReport:
    """What was found when a table was looked at; for the owner alone.

    ``new`` says that it wasn't known before, ``accepted`` that this version was opened before.
    """

    table: str
    rows: int
    left: tuple[Left, ...]
    csv: bool
    new: bool = field(default=True, compare=False)
    accepted: bool = field(default=False, compare=False)

    def beyond(self, limits: Limits) -> tuple[Left, ...]:
        """What is more than may be."""
        return tuple(one for one in self.left if one.beyond(limits))

    def to_json(self) -> dict[str, Any]:
        """For the record."""
        left = [{"why": one.why, "column": one.column, "kind": one.kind, "rows": one.rows} for one in self.left]
        return {"table": self.table, "rows": self.rows, "csv": self.csv, "left": left}

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> TableReport:
        """From the record."""
        rows = int(form["rows"])
        return cls(
            table=str(form["table"]),
            rows=rows,
            csv=bool(form["csv"]),
            left=tuple(Left(**one, of=rows) for one in form["left"]),
            new=False,
            accepted=True,
        )


class NotAccepted(SourceError):  # noqa: N818
    """Files of which more is left out than the limits say; ``reports`` has the counts."""

    reports: tuple[TableReport, ...] = ()


def expect_acceptable(reports: Iterable[TableReport], limits: Limits) -> None:
    """Refuse new CSV files of which too much is left out."""
    looked = tuple(reports)
    unknown = [report for report in looked if report.csv and not report.accepted]
    found = [(report.table, one) for report in unknown for one in report.beyond(limits)]
    if not found:
        return
    lines = [f"  table {table}: {one}" for table, one in found[:MOST_LINES]]
    settings = ", ".join(
        f"{name} = {float(coarse(max(one.share for _, one in found if one.why == why))):g}"
        for why, name in SETTINGS.items()
        if any(one.why == why for _, one in found)
    )
    problem = NotAccepted(
        "the data isn't opened, because too much of it would be left out:\n"
        + "\n".join(lines)
        + "\nMend the files, or the types and keys in the policy. If this is as it should be, write under [source]: "
        + settings
    )
    problem.reports = looked
    raise problem


SETTINGS = {
    "unreadable": "unreadable_up_to",
    "without_unit": "without_unit_up_to",
    "unlisted": "unlisted_up_to",
}
"""The policy's names of the limits."""


def news(reports: Iterable[TableReport]) -> tuple[str, ...]:
    """What to tell the owner about tables that were looked at just now; nothing where nothing is left out."""
    return tuple(f"table {report.table}: {one}" for report in reports if report.new for one in report.left)


def coarse(share: Fraction) -> Fraction:
    """A share to write into a policy: rounded up coarsely, since what is written there says nothing about the data."""
    steps = [Fraction(text) for text in ("0.02", "0.05", "0.1", "0.2", "0.5", "1")]
    return next(step for step in steps if share <= step)


def like_values(names: Iterable[str]) -> tuple[int, ...]:
    """Which names, counted from 1, look like values."""
    return tuple(place for place, name in enumerate(names, 1) if _LIKE_DATA.fullmatch(name.strip().casefold()))
