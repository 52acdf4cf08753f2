"""Generalisation hierarchies: what a value becomes, level by level, until everything is the same.

Level 0 is the value itself; the last level, ``height``, is one group for everything. From one level to the next groups
only merge, which is what lets a search conclude from one level about those above it. A hierarchy is a table of labels
(from a file in ARX's format, from a mapping, made automatically) or a rule (intervals, prefixes, dates).

A missing value is a group of its own below the top, unless a table has a line for it, whose first field is empty.
"""

from __future__ import annotations

import csv
import datetime as dt
import io
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from dither.anonymize.hierarchy._lines import automatic_lines, expect_no_star, expect_tree, nested, text_of
from dither.anonymize.table.values import ANYTHING, AxisKind, Codes, Floats, kind_of, numbers, plain
from dither.errors import InvalidData, InvalidParameter, SourceError
from dither.numeric import Number, as_fraction, positive, positive_int

Step: TypeAlias = Literal["day", "month", "quarter", "year", "decade"]
Labels: TypeAlias = tuple[str | None, ...]

SEPARATORS = (";", ",", "\t", "|")

# Quotients this near to a whole number are computed again exactly: float division errs by parts in 1e16.
NEAR = 1e-9


class Hierarchy(ABC):
    """Maps every value to a label at each level, from itself (level 0) to one label for everything (``height``)."""

    __slots__ = ()

    @property
    @abstractmethod
    def height(self) -> int:
        """The last level, at which everything is one group."""

    @abstractmethod
    def _labels(self, level: int, values: pa.Array[Any]) -> tuple[list[str | None], list[Any]]:
        """The label of each value that isn't missing at a level between, and what to sort groups by."""

    def unknown(self, values: pa.Array[Any]) -> list[Any]:  # noqa: ARG002
        """The values that the hierarchy doesn't cover: for the owner's eyes."""
        return []

    def check(self, values: pa.Array[Any], name: str = "values") -> None:
        """Raise if a value isn't covered; the message doesn't show it, since it is data."""
        unknown = len(self.unknown(values))
        if unknown:
            raise InvalidParameter(
                f"{unknown} of the {len(values)} distinct values of {name!r} are not in its hierarchy: add a line for "
                "each (hierarchy.unknown(values) lists them), and see that the file's separator and spelling are right"
            )

    def level_codes(self, level: int, values: pa.Array[Any]) -> tuple[Codes, Labels]:
        """The group of each value at a level, numbered in the hierarchy's order, and the label of each group.

        The label of a group of missing values is ``None``.

        Example:
            >>> tens = Hierarchy.intervals((10, 20))
            >>> codes, labels = tens.level_codes(1, pa.array([25, 3, 29]))
            >>> codes.tolist(), labels
            ([1, 0, 1], ('0–9', '20–29'))
        """
        if not 0 <= level <= self.height:
            raise InvalidParameter(f"level must lie between 0 and {self.height}; got {level}")
        if level == self.height:
            return np.zeros(len(values), np.int32), (self.top,)
        labels, keys = self._labels(level, values)
        return _numbered(labels, keys)

    @property
    def top(self) -> str:
        """The label of everything."""
        return ANYTHING

    def levels(self, values: pa.Array[Any]) -> tuple[Codes, ...]:
        """The groups of all levels, from 0 to ``height``."""
        return tuple(self.level_codes(level, values)[0] for level in range(self.height + 1))

    def order(self, values: pa.Array[Any]) -> Codes:
        """An order of the values in which every group of every level is one stretch."""
        return np.lexsort(self.levels(values)).astype(np.int32)

    def distances(self, values: pa.Array[Any]) -> Floats:
        """The distance between each two values: the level at which they meet, over the height (Li et al. 2007)."""
        levels = self.levels(values)
        apart = np.zeros((len(values), len(values)))
        for codes in levels[:-1]:
            apart += codes[:, None] != codes[None, :]
        return apart / self.height

    @staticmethod
    def from_csv(path: str | Path, separator: str = ";", *, header: bool = False) -> TableHierarchy:
        """A hierarchy from a file in ARX's format: a line for each value, its labels from level 0 to the top.

        ARX's files have no line of names above; ``header`` is for those of others that do.
        """
        return TableHierarchy.read(path, separator, header=header)

    @staticmethod
    def from_mapping(mapping: Mapping[Any, Sequence[Any] | str]) -> TableHierarchy:
        """A hierarchy from a value's labels above itself: ``{"Paris": ("France", "Europe"), …}``.

        If the last labels differ, ``*`` is put above them.

        Example:
            >>> places = Hierarchy.from_mapping({"Paris": "France", "Lyon": "France", "Rome": "Italy"})
            >>> places.height, places.level_codes(1, pa.array(["Rome", "Lyon"]))[1]
            (2, ('France', 'Italy'))
        """
        lines = []
        for leaf, above in mapping.items():
            labels = (above,) if isinstance(above, str) else tuple(above)
            lines.append((text_of(leaf), *(text_of(label) for label in labels)))
        return TableHierarchy.of(lines, "the mapping")

    @staticmethod
    def intervals(widths: Sequence[Number], origin: Number = 0) -> Hierarchy:
        """Numbers in intervals of growing width, each a multiple of the one before: ``intervals((5, 10, 20))``."""
        return Intervals.of(widths, origin)

    @staticmethod
    def prefixes(length: int) -> Hierarchy:
        """Codes such as postcodes of at most ``length`` characters, which lose one more at the end at each level."""
        return Prefixes(length)

    @staticmethod
    def dates(steps: Sequence[Step] = ("month", "quarter", "year", "decade")) -> Hierarchy:
        """Dates and timestamps by calendar; start with "day" for timestamps."""
        return Dates(tuple(steps))

    @staticmethod
    def automatic(values: Any, counts: Any = None, *, fanout: int = 2) -> TableHierarchy:
        """A hierarchy of the given values: at each level ``fanout`` neighbouring groups merge, balanced by counts."""
        return TableHierarchy.of(automatic_lines(values, counts, fanout), "the automatic hierarchy")


@dataclass(frozen=True, slots=True)
class TableHierarchy(Hierarchy):
    """A hierarchy that lists every value with its labels, as ARX's files do.

    ``lines`` has the text of a value (empty for the missing value) and its label at each level above.

    Example:
        >>> ages = TableHierarchy.of([("1", "0–4", "*"), ("2", "0–4", "*"), ("7", "5–9", "*")])
        >>> ages.height, ages.level_codes(1, pa.array([7, 1, 2]))[0].tolist()
        (2, [1, 0, 0])
    """

    lines: tuple[tuple[str, ...], ...]
    _line_of: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        expect_tree(self.lines, "the hierarchy")
        if len(self.lines[0]) < 2 or len({line[-1] for line in self.lines}) > 1 or self.lines != nested(self.lines):
            raise InvalidParameter(
                "the lines of a hierarchy must be in order and end in one label for everything: TableHierarchy.of sees "
                "to both"
            )
        line_of: dict[str, int] = {}
        for number, line in enumerate(self.lines):
            line_of.setdefault(line[0], number)
        object.__setattr__(self, "_line_of", line_of)

    @classmethod
    def of(cls, lines: Iterable[Sequence[str]], where: str = "the hierarchy") -> TableHierarchy:
        """A checked hierarchy; a last level that isn't one group gets ``*`` above it."""
        every = [tuple(line) for line in lines]
        expect_tree(every, where)
        kept = tuple(dict.fromkeys(every))
        if len({line[-1] for line in kept}) > 1 or len(kept[0]) == 1:
            expect_no_star(kept, where)
            kept = tuple((*line, ANYTHING) for line in kept)
        return cls(nested(kept))

    @classmethod
    def read(cls, path: str | Path, separator: str = ";", *, header: bool = False) -> TableHierarchy:
        """A hierarchy from a file; a byte-order mark, quotes and Windows line ends are understood."""
        if len(separator) != 1 or separator in '"\r\n':
            raise InvalidParameter(f"separator must be one character, such as ';'; got {separator!r}")
        file = Path(path)
        try:
            content = file.read_text(encoding="utf-8-sig")
        except OSError:
            raise SourceError(f"the hierarchy {str(path)!r} can't be read: no such file, or no right to") from None
        except UnicodeDecodeError:
            raise SourceError(f"the hierarchy {str(path)!r} is not UTF-8 text: save it as UTF-8") from None
        try:
            lines = [
                line for line in csv.reader(io.StringIO(content, newline=""), delimiter=separator, strict=True) if line
            ]
        except csv.Error:
            raise SourceError(
                f"the hierarchy {str(path)!r} has a quote that doesn't end, or text behind a quote: put quotes around "
                "whole fields and double those inside"
            ) from None
        if lines and all(len(line) == 1 for line in lines):
            others = [mark for mark in SEPARATORS if mark != separator and all(mark in line[0] for line in lines)]
            hint = f"; it looks as if the separator were {others[0]!r}" if others else ""
            raise InvalidParameter(
                f"{file.name} has one column when lines are split at {separator!r}, and a hierarchy needs at least two"
                f"{hint}"
            )
        return cls.of(lines[1:] if header else lines, file.name)

    def to_csv(self, path: str | Path, separator: str = ";") -> None:
        """Write the hierarchy in ARX's format."""
        with Path(path).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, delimiter=separator, lineterminator="\n").writerows(self.lines)

    @property
    def height(self) -> int:
        """The last level, at which everything is one group."""
        return len(self.lines[0]) - 1

    @property
    def top(self) -> str:
        """The label of everything."""
        return self.lines[0][-1]

    def unknown(self, values: pa.Array[Any]) -> list[Any]:
        """The values that have no line."""
        texts = plain(values).to_pylist()
        return [
            value
            for value, text in zip(values.to_pylist(), texts, strict=True)
            if text is not None and text not in self._line_of
        ]

    def _labels(self, level: int, values: pa.Array[Any]) -> tuple[list[str | None], list[Any]]:
        texts = plain(values).to_pylist()
        places = [self._line_of.get("" if text is None else text) for text in texts]
        if any(place is None and text is not None for place, text in zip(places, texts, strict=True)):
            self.check(values)
        # a missing value whose label is empty, as at level 0, is still missing
        labels = [
            None if place is None or (text is None and not self.lines[place][level]) else self.lines[place][level]
            for place, text in zip(places, texts, strict=True)
        ]
        # lines are nested, so the first line of a group sorts the group
        return labels, [len(self.lines) if place is None else place for place in places]


def _numbered(labels: list[str | None], keys: list[Any]) -> tuple[Codes, Labels]:
    """Number groups by the smallest key in each; the group without a label comes last."""
    first: dict[str, Any] = {}
    for label, key in zip(labels, keys, strict=True):
        if label is not None and (label not in first or key < first[label]):
            first[label] = key
    ordered: list[str | None] = [*sorted(first, key=first.__getitem__)]
    if None in labels:
        ordered.append(None)
    number = {label: code for code, label in enumerate(ordered)}
    return np.fromiter((number[label] for label in labels), np.int32, len(labels)), tuple(ordered)


def hierarchies_in(folder: str | Path, columns: Iterable[str], *, separator: str = ";") -> dict[str, Hierarchy]:
    """The hierarchies that a folder has for some columns; a column without a file is left out.

    The file of a column ``age`` is ``age.csv``, ``hierarchy_age.csv`` or ``…_hierarchy_age.csv``, as ARX's examples
    are named.
    """
    place = Path(folder)
    if not place.is_dir():
        raise SourceError(f"{str(folder)!r} is not a folder of hierarchies")
    files = sorted(place.glob("*.csv"))
    found: dict[str, Hierarchy] = {}
    for column in columns:
        named = re.compile(rf"((.*_)?hierarchy_)?{re.escape(column)}\.csv", re.DOTALL)
        fitting = [file for file in files if named.fullmatch(file.name)]
        if len(fitting) > 1:
            names = ", ".join(file.name for file in fitting)
            raise InvalidParameter(f"{str(folder)!r} has several hierarchies for {column!r}: {names}; leave one")
        if fitting:
            found[column] = Hierarchy.from_csv(fitting[0], separator)
    return found


@dataclass(frozen=True, slots=True)
class Intervals(Hierarchy):
    """Numbers in half-open intervals ``[origin + i·width, origin + (i+1)·width)``.

    Whole numbers are printed with both ends, ``20–24``; others as ``[20, 25)``.
    """

    widths: tuple[Fraction, ...]
    origin: Fraction

    @classmethod
    def of(cls, widths: Sequence[Number], origin: Number = 0) -> Intervals:
        """Intervals whose widths each divide the next."""
        exact = tuple(positive(width, "width") for width in widths)
        if not exact:
            raise InvalidParameter("intervals need at least one width, such as intervals((5, 10, 20))")
        for level, (narrow, wide) in enumerate(pairwise(exact), 1):
            if (wide / narrow).denominator != 1 or wide == narrow:
                raise InvalidParameter(
                    f"width {_short(wide)} of level {level + 1} must be a multiple of {_short(narrow)}, the width of "
                    f"level {level}: otherwise intervals would overlap instead of merging"
                )
        return cls(exact, as_fraction(origin, "origin"))

    @property
    def height(self) -> int:
        """The last level, at which everything is one group."""
        return len(self.widths) + 1

    def _labels(self, level: int, values: pa.Array[Any]) -> tuple[list[str | None], list[Any]]:
        if kind_of(values.type, "values") is not AxisKind.NUMBER or types.is_duration(values.type):
            raise InvalidParameter(f"intervals are for numbers; the column has the type {values.type}")
        places = [math.inf if math.isnan(place) else place for place in numbers(values, AxisKind.NUMBER).tolist()]
        if level == 0:
            return plain(values).to_pylist(), places
        width = self.widths[level - 1]
        whole = types.is_integer(values.type) and width.denominator == 1 and self.origin.denominator == 1
        labels: list[str | None] = []
        for value in _multiples(values, self.origin, width):
            if value is None:
                labels.append(None)
                continue
            low = self.origin + value * width
            labels.append(_closed(low, low + width - 1) if whole else f"[{_short(low)}, {_short(low + width)})")
        return labels, places


def _multiples(values: pa.Array[Any], origin: Fraction, width: Fraction) -> list[int | None]:
    """⌊(value − origin)/width⌋ without rounding errors: 0.3 is in [0.3, 0.4), though 0.3/0.1 < 3 in floats."""
    if types.is_integer(values.type) and width.denominator == 1 and origin.denominator == 1:
        return [None if value is None else (value - int(origin)) // int(width) for value in values.to_pylist()]
    places = numbers(values, AxisKind.NUMBER)
    if np.isinf(places).any():
        raise InvalidData("intervals need finite numbers; the column holds an infinite one: replace it by missing")
    quotients = (places - float(origin)) / float(width)
    large = np.abs(quotients) > 1e6
    # a difference of large numbers is off by a part of them, not of itself
    off = NEAR + 4 * np.finfo(np.float64).eps * (np.abs(places) + abs(float(origin))) / float(width)
    doubtful = np.isfinite(quotients) & (large | (np.abs(quotients - np.round(quotients)) < off))
    result: list[int | None] = [None if math.isnan(q) else math.floor(q) for q in quotients.tolist()]
    for place in np.flatnonzero(doubtful).tolist():
        exact = as_fraction(values[place].as_py(), "value")
        result[place] = math.floor((exact - origin) / width)
    return result


@dataclass(frozen=True, slots=True)
class Prefixes(Hierarchy):
    """Codes such as postcodes: one more character at the end becomes ``*`` at each level.

    Whole numbers are codes whose leading zeros were lost, and get them back.
    """

    length: int

    def __post_init__(self) -> None:
        positive_int(self.length, "length")

    @property
    def height(self) -> int:
        """The last level, at which everything is one group."""
        return self.length

    def unknown(self, values: pa.Array[Any]) -> list[Any]:
        """The values that are longer than ``length``."""
        texts = plain(values).to_pylist()
        return [
            value for value, text in zip(values.to_pylist(), texts, strict=True) if text and len(text) > self.length
        ]

    def _labels(self, level: int, values: pa.Array[Any]) -> tuple[list[str | None], list[Any]]:
        self.check(values)
        texts: list[str | None] = plain(values).to_pylist()
        keys = [text or "" for text in texts]
        if level == 0:
            return texts, keys
        if types.is_integer(values.type):
            keys = [key.zfill(self.length) for key in keys]
        kept = self.length - level
        return [None if text is None else key[:kept] + "*" * level for text, key in zip(texts, keys, strict=True)], keys


@dataclass(frozen=True, slots=True)
class Dates(Hierarchy):
    """Dates by calendar: ``2020-03-31``, ``2020-03``, ``2020-Q1``, ``2020``, ``2020s``."""

    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        known = get_args(Step)
        if not self.steps or any(step not in known for step in self.steps):
            raise InvalidParameter(f"steps must be some of {', '.join(known)}; got {self.steps!r}")
        if [known.index(step) for step in self.steps] != sorted({known.index(step) for step in self.steps}):
            raise InvalidParameter(f"steps must grow, in the order {', '.join(known)}; got {self.steps!r}")

    @property
    def height(self) -> int:
        """The last level, at which everything is one group."""
        return len(self.steps) + 1

    def _labels(self, level: int, values: pa.Array[Any]) -> tuple[list[str | None], list[Any]]:
        if not (types.is_date(values.type) or types.is_timestamp(values.type)):
            raise InvalidParameter(f"this hierarchy is for dates and timestamps; the column has the type {values.type}")
        places = [math.inf if math.isnan(place) else place for place in numbers(values, AxisKind.DATE).tolist()]
        if level == 0:
            return plain(values).to_pylist(), places
        days: Any = values
        if types.is_timestamp(values.type):
            # the day on the wall, as level 0 prints it; nanoseconds have no Python value, and aren't needed
            days = (days if values.type.tz is None else pc.local_timestamp(days)).cast(pa.date32(), safe=False)
        return [None if day is None else _calendar(day, self.steps[level - 1]) for day in days.to_pylist()], places


def _calendar(day: dt.date, step: Step) -> str:
    if step == "day":
        return day.isoformat()[:10]
    year = f"{day.year:04d}"
    if step == "month":
        return f"{year}-{day.month:02d}"
    if step == "quarter":
        return f"{year}-Q{(day.month + 2) // 3}"
    return year if step == "year" else f"{year[:3]}0s"


def _closed(low: Fraction, high: Fraction) -> str:
    return _short(low) if low == high else f"{_short(low)}–{_short(high)}"


def _short(value: Fraction) -> str:
    """A fraction as people write it: whole, decimal where that ends, else a quotient."""
    if value.denominator == 1:
        return str(value.numerator)
    rest, places = value.denominator, 0
    while rest % 10 == 0 or rest % 5 == 0 or rest % 2 == 0:
        rest //= 10 if rest % 10 == 0 else 5 if rest % 5 == 0 else 2
        places += 1
    if rest != 1:
        return str(value)
    digits = str(abs(value.numerator) * 10**places // value.denominator).zfill(places + 1)
    sign = "-" if value < 0 else ""
    return f"{sign}{digits[:-places]}.{digits[-places:]}".rstrip("0").rstrip(".")
