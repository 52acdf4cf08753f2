"""Generalisation hierarchies: what a value becomes, level by level, until everything is the same.

Level 0 is the value itself; the last level, ``height``, is one group for everything. From one level to the next groups
only merge, which is what lets a search conclude from one level about those above it. A hierarchy is a table of labels
(from a file in ARX's format, from a mapping, made automatically) or a rule (intervals, prefixes, dates).

A missing value is a group of its own below the top, unless a table has a line for it, whose first field is empty.
"""

from __future__ import annotations

import csv
import io
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from dither.anonymize.values import ANYTHING, Codes, Floats, plain
from dither.errors import InvalidParameter, SourceError
from dither.numeric import Number

Step: TypeAlias = Literal["day", "month", "quarter", "year", "decade"]
Labels: TypeAlias = tuple[str | None, ...]

SEPARATORS = (";", ",", "\t", "|")


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
            lines.append((_text(leaf), *(_text(label) for label in labels)))
        return TableHierarchy.of(lines, "the mapping")

    @staticmethod
    def intervals(widths: Sequence[Number], origin: Number = 0) -> Hierarchy:
        """Numbers in intervals of growing width, each a multiple of the one before: ``intervals((5, 10, 20))``."""
        from dither.anonymize.hierarchy_rules import Intervals

        return Intervals.of(widths, origin)

    @staticmethod
    def prefixes(length: int) -> Hierarchy:
        """Codes such as postcodes of at most ``length`` characters, which lose one more at the end at each level."""
        from dither.anonymize.hierarchy_rules import Prefixes

        return Prefixes(length)

    @staticmethod
    def dates(steps: Sequence[Step] = ("month", "quarter", "year", "decade")) -> Hierarchy:
        """Dates and timestamps by calendar; start with "day" for timestamps."""
        from dither.anonymize.hierarchy_rules import Dates

        return Dates(tuple(steps))

    @staticmethod
    def automatic(values: Any, counts: Any = None, *, fanout: int = 2) -> TableHierarchy:
        """A hierarchy of the given values: at each level ``fanout`` neighbouring groups merge, balanced by counts."""
        from dither.anonymize.hierarchy_rules import automatic_lines

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
        _expect_tree(self.lines, "the hierarchy")
        if len(self.lines[0]) < 2 or len({line[-1] for line in self.lines}) > 1 or self.lines != _nested(self.lines):
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
        _expect_tree(every, where)
        kept = tuple(dict.fromkeys(every))
        if len({line[-1] for line in kept}) > 1 or len(kept[0]) == 1:
            _expect_no_star(kept, where)
            kept = tuple((*line, ANYTHING) for line in kept)
        return cls(_nested(kept))

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


def _expect_tree(lines: Sequence[Sequence[str]], where: str) -> None:
    """Every value has a label at every level, and groups only merge."""
    if not lines:
        raise InvalidParameter(f"{where} has no lines: it needs one for each value, from level 0 to the top")
    _expect_even(lines, where)
    _expect_labels(lines, where)
    _expect_no_contradiction(lines, where)


def _expect_even(lines: Sequence[Sequence[str]], where: str) -> None:
    width = len(lines[0])
    for number, line in enumerate(lines, 1):
        if len(line) != width or not line:
            value = f" ({line[0]!r})" if line else ""
            raise InvalidParameter(
                f"{where}: line {number}{value} has {len(line)} fields and the first has {width}: every value needs a "
                "label at every level, and a field that contains the separator needs quotes"
            )
        if not all(isinstance(label, str) for label in line):
            raise InvalidParameter(
                f"{where}: line {number} ({line[0]!r}) must be texts, the value's own included: Hierarchy.from_mapping "
                "takes values of other types"
            )


def _expect_labels(lines: Sequence[Sequence[str]], where: str) -> None:
    """An empty label reads as a missing value, so it may stand for nothing else."""
    for number, line in enumerate(lines, 1):
        if line[0] and not all(line):
            level = line.index("")
            raise InvalidParameter(
                f"{where}: line {number} ({line[0]!r}) has no label at level {level}: an empty one would read as a "
                "missing value; write one, and see that lines don't end in a separator"
            )
    if not lines[0][-1] and len(lines[0]) > 1:
        raise InvalidParameter(f"{where}: the last level needs a label for everything, such as {ANYTHING!r}")


def _expect_no_contradiction(lines: Sequence[Sequence[str]], where: str) -> None:
    """Groups only merge: the label at one level decides the label at the next."""
    for level in range(len(lines[0]) - 1):
        above: dict[str, Sequence[str]] = {}
        for line in lines:
            other = above.setdefault(line[level], line)
            if other[level + 1] == line[level + 1]:
                continue
            if level == 0:
                raise InvalidParameter(
                    f"{where}: the value {line[0]!r} has two lines that say different things: leave one"
                )
            raise InvalidParameter(
                f"{where}: {other[0]!r} and {line[0]!r} are both {line[level]!r} at level {level}, but at level "
                f"{level + 1} one is {other[level + 1]!r} and the other {line[level + 1]!r}: groups may only merge"
            )


def _expect_no_star(lines: Sequence[Sequence[str]], where: str) -> None:
    """A last level that is ``*`` for some values only is a mistake, mostly a line with the names of the columns."""
    starred = [line[-1] == ANYTHING for line in lines]
    if len(lines[0]) == 1 or not any(starred):
        return
    number = starred.index(False)
    value, label = lines[number][0], lines[number][-1]
    hint = "; if it has the names of the columns, say header=True or remove it" if number == 0 else ""
    raise InvalidParameter(
        f"{where}: line {number + 1} ({value!r}) ends in {label!r} and others in {ANYTHING!r}: the last level must be "
        f"one label for everything{hint}"
    )


def _nested(lines: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
    """The lines in an order in which every group of every level is one stretch, groups as they first appear."""
    first: list[dict[str, int]] = [{} for _ in lines[0]]
    for number, line in enumerate(lines):
        for seen, label in zip(first, line, strict=True):
            seen.setdefault(label, number)
    return tuple(
        sorted(lines, key=lambda line: [seen[label] for seen, label in zip(first[::-1], line[::-1], strict=True)])
    )


def _text(value: Any) -> str:
    if value is None:
        return ""
    text: str | None = plain(pa.array([value])).to_pylist()[0]
    return "" if text is None else text
