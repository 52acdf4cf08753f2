"""Values, candidates and estimates of local collections as lines of text."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import IO, Any, TypeAlias

from rich.console import Console
from rich.text import Text

from dither.brief import printable
from dither.cli.screen import grid
from dither.errors import InvalidData, InvalidParameter
from dither.local.core.consistent import Consistency
from dither.local.core.protocol import Aggregator
from dither.local.core.tables import within
from dither.local.frequency.oracle import Shares
from dither.local.frequency.participation import Attendance
from dither.local.means.mean import MeanEstimate
from dither.local.means.vectors import VectorEstimate
from dither.local.ranges.estimates import RangeEstimates
from dither.local.rappor.protocol import RapporAggregator
from dither.local.sketches.sketch import Discovered, SketchAggregator

Reader: TypeAlias = Callable[[str], Any]
STDIN = "-"
LONGEST_NUMBER = 400


@dataclass(frozen=True, slots=True)
class Line:
    """One estimate with its interval; ``moved`` says that a rule made it possible, so that it is shown as it is."""

    label: str
    value: float
    low: float
    high: float
    moved: bool = False

    @property
    def shown(self) -> float:
        """The estimate as people read it; files have the unbiased one."""
        return self.value if self.moved else within(self.value, (self.low, self.high))


# ------------------------------------------------------------------ files


def read_json(path: Path, what: str) -> Any:
    """A JSON file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise InvalidData(f"{path} can't be read: {what} was expected there") from None
    except (ValueError, RecursionError):
        raise InvalidData(f"{path} isn't JSON: {what} was expected there") from None


@contextmanager
def opened(path: str) -> Iterator[IO[str]]:
    """A file of lines, or the standard input for -; bytes that aren't UTF-8 are kept apart, not refused."""
    if path == STDIN:
        yield sys.stdin
        return
    with ExitStack() as undo:
        try:
            stream = undo.enter_context(Path(path).open(encoding="utf-8", errors="surrogateescape"))
        except OSError:
            raise InvalidData(f"{path} can't be read: is the name right?") from None
        yield stream


def lines_of(path: str) -> Iterator[str]:
    """The lines of a file without their ends."""
    with opened(path) as stream:
        for line in stream:
            yield line.rstrip("\r\n")


# ------------------------------------------------------------------ values


def reader_of(description: Mapping[str, Any]) -> Reader:
    """How one value of a collection is read from a line; errors don't repeat it."""
    name = description.get("protocol")
    if name in ("rappor", "sequence_fragments"):
        return _text
    if name == "heavy_hitters":
        return _whole if description.get("values") == "integers" else _text
    if name in ("one_bit_mean", "laplace_mean", "piecewise_mean", "hybrid_mean"):
        return _number
    if name in ("one_bit_vector", "sampled_vector"):
        return _numbers
    if name == "attributes":
        return _record
    listed = _listed(description.get("domain"))
    if name == "participation":
        return lambda line: listed(line) if line else None
    return listed


def takes_blank_lines(description: Mapping[str, Any]) -> bool:
    """Whether a blank line is somebody who didn't answer; else it is skipped."""
    return description.get("protocol") == "participation"


def _listed(domain: Any) -> Reader:
    if domain is None:
        return _text
    if isinstance(domain, int):
        return _whole
    labels = {str(label): label for label in domain}

    def place(line: str) -> Any:
        if line not in labels:
            raise InvalidData(f"the value must be one of the {len(labels)} labels; nothing was drawn")
        return labels[line]

    return place


def _text(line: str) -> str:
    return line


def _whole(line: str) -> int:
    text = line.strip()
    if len(text) > LONGEST_NUMBER or not text.lstrip("-").isdecimal():
        raise InvalidData("the value must be a whole number; nothing was drawn")
    return int(text)


def _number(line: str) -> Fraction:
    try:
        if len(line) > LONGEST_NUMBER or "e" in line.lower():
            raise ValueError  # noqa: TRY301 - a number of a million digits isn't meant
        return Fraction(line.strip())
    except (ValueError, ZeroDivisionError):
        raise InvalidData("the value must be a number such as 3 or 0.25; nothing was drawn") from None


def _numbers(line: str) -> list[Fraction]:
    return [_number(part) for part in line.strip().strip("[]").split(",")]


def _record(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        raise InvalidData("the value must be a JSON object with every attribute; nothing was drawn") from None


# ------------------------------------------------------------------ estimates


def estimated(
    aggregate: Aggregator[Any],
    *,
    confidence: float,
    candidates: Sequence[str] | None = None,
    consistent: Consistency | None = None,
) -> tuple[list[Line], list[str]]:
    """The estimates of an aggregate, and what else is to be said."""
    if not aggregate.reports:
        raise InvalidData("there are no reports of this collection to estimate from")
    if isinstance(aggregate, RapporAggregator):
        return _decoded(aggregate, _needed(candidates, "texts"), confidence)
    reader: Any = aggregate
    if isinstance(aggregate, SketchAggregator):
        asked = None if aggregate.protocol.domain is not None else _needed(candidates, "values")
        found = reader.estimate(confidence, values=asked, consistent=consistent)
    else:
        rule = {"consistent": consistent} if consistent is not None else {}
        try:
            found = reader.estimate(confidence, **rule)
        except TypeError:
            raise InvalidParameter("--consistent is for shares of listed values; these are other estimates") from None
    return _lines(found), _notes(found)


def _needed(candidates: Sequence[str] | None, what: str) -> Sequence[str]:
    if not candidates:
        raise InvalidParameter(
            f"this collection has no list of {what}: give a file of candidates, one on each line, with --candidates"
        )
    return candidates


def _decoded(aggregate: RapporAggregator, texts: Sequence[str], confidence: float) -> tuple[list[Line], list[str]]:
    found = aggregate.decode(texts, confidence=confidence)
    rows = zip(found.candidates, found.shares, found.intervals, found.present, strict=True)
    lines = [Line(text, float(share), float(ends[0]), float(ends[1])) for text, share, ends, there in rows if there]
    low, high = (100 * end for end in found.listed_interval)
    listed = 100 * within(found.listed, found.listed_interval)
    notes = [
        f"{len(lines)} of {len(texts)} candidates are there; of the others nobody may be",
        f"about {listed:.3g}% of people have a value of the list ({low:.3g}% to {high:.3g}%)",
    ]
    if found.misfit < 1e-4:
        notes.append("the bits don't fit the list well: a frequent value is missing from it")
    return lines, notes


def _lines(found: Any) -> list[Line]:
    if isinstance(found, Shares):
        labels = found.labels if found.labels is not None else range(len(found.values))
        return _rows(labels, found.values, found.intervals, moved=found.rule is not None)
    if isinstance(found, Discovered):
        return _lines(found.shares) if found.values else []
    if isinstance(found, Attendance):
        labels = found.labels if found.labels is not None else range(len(found.values))
        rows = _rows(labels, found.values, found.intervals)
        return [*rows, Line("(took part)", found.took_part, *found.took_part_interval)]
    if isinstance(found, MeanEstimate):
        return [Line("mean", found.value, *found.interval)]
    if isinstance(found, VectorEstimate):
        return _rows(range(len(found.values)), found.values, found.intervals)
    if isinstance(found, RangeEstimates):
        labels = found.domain.labels or range(found.domain.size)
        return _rows([f"up to {label}" for label in labels], found.cdf(), found.cdf_intervals())
    if isinstance(found, dict):
        return [replace(line, label=f"{name} = {line.label}") for name, part in found.items() for line in _lines(part)]
    raise InvalidParameter(f"estimates of the kind {type(found).__name__} have no table: read them in Python")


def _rows(labels: Iterable[Any], values: Any, intervals: Any, *, moved: bool = False) -> list[Line]:
    rows = zip(labels, values, intervals, strict=True)
    return [Line(str(label), float(value), float(ends[0]), float(ends[1]), moved) for label, value, ends in rows]


def _notes(found: Any) -> list[str]:
    if isinstance(found, Discovered):
        return [f"{found.tested:,} values were looked at; all that nobody has are left out, at the stated confidence"]
    if isinstance(found, Attendance):
        return ["shares are those among the people who took part"]
    if isinstance(found, Shares) and found.rule is not None:
        return [f"{found.rule.sentence}; the intervals are those before"]
    return []


# ------------------------------------------------------------------ writing


def show_lines(lines: Sequence[Line], most: int, screen: Console) -> None:
    """A table, the largest first unless they have an order of their own."""
    ordered = any(line.label.startswith("up to ") for line in lines)
    shown = list(lines if ordered else sorted(lines, key=lambda line: -line.value))
    table = grid("value", "estimate", "interval", right=("estimate", "interval"))
    for line in shown[:most]:
        ends = f"{line.low:.4g} … {line.high:.4g}"
        table.add_row(Text(printable(line.label)), f"{line.shown:.4g}", Text(ends, style="dim"))
    screen.print(table)
    if len(shown) > most:
        screen.print(f"… {len(shown) - most} more (--top, or --format csv)")


def write_csv(lines: Sequence[Line], stream: IO[str]) -> None:
    """All lines, in their order."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(("value", "estimate", "low", "high"))
    writer.writerows((line.label, line.value, line.low, line.high) for line in lines)
