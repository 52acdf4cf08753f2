"""Hierarchies that are rules: intervals of numbers, prefixes of codes, the calendar, and automatic merging."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from dither.anonymize.hierarchies import Hierarchy, Step
from dither.anonymize.values import ANYTHING, Kind, kind_of, numbers, plain
from dither.errors import InvalidData, InvalidParameter
from dither.numeric import Number, as_fraction, positive, positive_int

# Quotients this near to a whole number are computed again exactly: float division errs by parts in 1e16.
NEAR = 1e-9


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
        if kind_of(values.type, "values") is not Kind.NUMBER or types.is_duration(values.type):
            raise InvalidParameter(f"intervals are for numbers; the column has the type {values.type}")
        places = [math.inf if math.isnan(place) else place for place in numbers(values, Kind.NUMBER).tolist()]
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
    places = numbers(values, Kind.NUMBER)
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
        places = [math.inf if math.isnan(place) else place for place in numbers(values, Kind.DATE).tolist()]
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


def automatic_lines(values: Any, counts: Any, fanout: int) -> list[tuple[str, ...]]:
    """The lines of a hierarchy in which neighbouring groups merge, ``fanout`` at a time, until one is left.

    Numbers, dates and times merge with their neighbours and are printed as intervals; others are taken from the rarest
    up, so that rare values merge with rare ones, and are printed as sets. The last group becomes ``*``.
    """
    positive_int(fanout, "fanout", least=2)
    array = values if isinstance(values, pa.Array) else pa.array(values)
    weights = np.ones(len(array)) if counts is None else np.asarray(counts, np.float64)
    if weights.shape != (len(array),) or not (weights >= 0).all():
        raise InvalidParameter("counts must be one number of at least 0 for each value")
    present = np.flatnonzero(~np.asarray(array.is_null()))
    if not present.size:
        raise InvalidParameter("an automatic hierarchy needs at least one value that isn't missing")
    array, weights = array.take(present), weights[present]
    kind = kind_of(array.type, "values")
    texts: list[str] = plain(array).to_pylist()
    if len(set(texts)) != len(texts):
        raise InvalidParameter("an automatic hierarchy needs distinct values, and their counts beside them")
    order = np.argsort(numbers(array, kind) if kind.on_a_line else weights, kind="stable")
    texts, weights = [texts[place] for place in order], weights[order]
    lines: list[tuple[str, ...]] = [(text,) for text in texts]
    # groups are stretches of the order: the place where each begins
    starts = np.arange(len(texts))
    while starts.size > 1:
        starts = _merged(starts, weights, fanout)
        ends = np.append(starts[1:], len(texts))
        labels = [
            _label(texts[first:end], on_a_line=kind.on_a_line) if starts.size > 1 else ANYTHING
            for first, end in zip(starts.tolist(), ends.tolist(), strict=True)
        ]
        group = np.repeat(np.arange(starts.size), ends - starts)
        lines = [(*line, labels[place]) for line, place in zip(lines, group.tolist(), strict=True)]
    return lines


def _merged(starts: Any, weights: Any, fanout: int) -> Any:
    """Fewer groups: at most ``fanout`` neighbours become one, light ones first to reach an equal share."""
    total = np.add.reduceat(weights, starts)
    target = weights.sum() / max(1, math.ceil(starts.size / fanout))
    kept, members, weight = [int(starts[0])], 1, float(total[0])
    for start, more in zip(starts[1:].tolist(), total[1:].tolist(), strict=True):
        if members >= fanout or (weight + more > 1.5 * target and members > 1):
            kept.append(start)
            members, weight = 1, more
        else:
            members, weight = members + 1, weight + more
    return np.array(kept)


def _label(texts: Sequence[str], *, on_a_line: bool) -> str:
    if len(texts) == 1:
        return texts[0]
    if on_a_line:
        return f"{texts[0]}–{texts[-1]}"
    return "{" + ", ".join(_quoted(text) for text in sorted(texts)) + "}"


def _quoted(text: str) -> str:
    """A member of a printed set, in quotes where it could be misread."""
    plain_enough = text and text == text.strip() and text != "NULL" and not any(mark in text for mark in '*{},"–')
    return text if plain_enough else json.dumps(text, ensure_ascii=False)


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
