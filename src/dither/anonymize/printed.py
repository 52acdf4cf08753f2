"""Reads the cells of a released table: which original values a printed text may stand for.

The grammar is that of :mod:`dither.anonymize.release`, written down a second time so that a mistake on either side
shows: a value, ``low–high``, a set ``{a, b, NULL}``, ``*``, NULL, or a label of the column's hierarchy. Where a text
can be read in two ways it stands for the values of both, since nobody who reads the table could tell.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as types

from dither.anonymize.attributes import Attribute
from dither.anonymize.values import ANYTHING, Bools, Counts, Kind, is_text, kind_of, plain

DASH = "–"
NULL = "NULL"

# Both ends of a range, the same text twice for a single value; None for the missing value.
Member: TypeAlias = "tuple[str, str] | None"


class Unreadable(ValueError):  # noqa: N818
    """A text that the grammar doesn't know; never leaves this package."""


def members(text: str) -> list[Member]:
    """The values and ranges that a text names.

    Example:
        >>> members("20–29"), members('{a, "b, c", NULL}'), members("a, b")
        ([('20', '29')], [('a', 'a'), ('b, c', 'b, c'), None], [('a, b', 'a, b')])
    """
    if not (text.startswith("{") and text.endswith("}") and len(text) > 2):
        found, end = _member(text, 0, stops=DASH)
        if end != len(text):
            raise Unreadable
        return [found]
    result, place = [], 1
    while True:
        found, place = _member(text, place, stops=DASH + ",}")
        result.append(found)
        if text[place:] == "}":
            return result
        if text[place : place + 2] != ", ":
            raise Unreadable
        place += 2


def _member(text: str, place: int, *, stops: str) -> tuple[Member, int]:
    low, quoted, end = _end(text, place, stops)
    if text[end : end + 1] == DASH:
        high, _, end = _end(text, end + 1, stops)
        return (low, high), end
    if low == NULL and not quoted and "}" in stops:
        return None, end
    return (low, low), end


def _end(text: str, place: int, stops: str) -> tuple[str, bool, int]:
    """One value from a place on: its text, whether it is quoted, and where it ends."""
    if text[place : place + 1] == '"':
        try:
            value, end = json.JSONDecoder().raw_decode(text, place)
        except ValueError:
            raise Unreadable from None
        return str(value), True, end
    end = place
    while end < len(text) and text[end] not in stops:
        end += 1
    if end == place:
        raise Unreadable
    return text[place:end], False, end


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Reading:
    """Which values of a column each text stands for.

    Text ``i`` stands for the values at the places ``values[starts[i]:starts[i + 1]]`` of ``domain``, and for all those
    from ``low[i]`` up to but not including ``high[i]`` in the order ``sorted_places``.
    """

    domain: int
    rank: Counts
    low: Counts
    high: Counts
    starts: Counts
    values: Counts
    unreadable: tuple[int, ...]

    def stands_for(self, places: Counts) -> Bools:
        """For each of the places of the domain, and each text: whether the text stands for that value."""
        rank = self.rank[places][:, None]
        found: Bools = (self.low[None, :] <= rank) & (rank < self.high[None, :])
        row_of = np.full(self.domain, -1, np.int64)
        row_of[places] = np.arange(places.size)
        rows = row_of[self.values]
        texts = np.repeat(np.arange(self.low.size), np.diff(self.starts))
        kept = rows >= 0
        found[rows[kept], texts[kept]] = True
        return found


def read_cells(texts: Sequence[str | None], attribute: Attribute, domain: pa.Array[Any]) -> Reading:
    """Which of the distinct values of an original column each text stands for."""
    reader = _Reader(attribute, domain)
    low, high = np.zeros(len(texts), np.int64), np.zeros(len(texts), np.int64)
    values: list[list[int]] = []
    unreadable = []
    for number, text in enumerate(texts):
        try:
            stretch, single = reader.read(text)
        except Unreadable:
            unreadable.append(number)
            stretch, single = (0, 0), []
        low[number], high[number] = stretch
        values.append(single)
    starts = np.concatenate(([0], np.cumsum([len(single) for single in values], dtype=np.int64)))
    flat = np.fromiter((place for single in values for place in single), np.int64)
    return Reading(
        domain=len(domain),
        rank=reader.rank,
        low=low,
        high=high,
        starts=starts.astype(np.int64),
        values=flat,
        unreadable=tuple(unreadable),
    )


class _Reader:
    """Reads the texts of one column."""

    def __init__(self, attribute: Attribute, domain: pa.Array[Any]) -> None:
        self.attribute = attribute
        self.type = domain.type
        self.size = len(domain)
        self.kind = attribute.kind or (
            Kind.ORDERED if attribute.order is not None else kind_of(domain.type, attribute.name)
        )
        texts = plain(domain).to_pylist()
        self.missing = [place for place, text in enumerate(texts) if text is None]
        self.places: dict[str, list[int]] = {}
        for place, text in enumerate(texts):
            if text is not None:
                self.places.setdefault(text, []).append(place)
        self.labels = self._labels(domain)
        self.order = {} if attribute.order is None else _ranks(attribute.order)
        # every value that isn't missing, in order; ranges are stretches of this
        present = [place for place, text in enumerate(texts) if text is not None]
        keys = self._keys(domain, texts) if self.kind.on_a_line else list(range(self.size))
        present.sort(key=keys.__getitem__)
        self.sorted_keys = [keys[place] for place in present]
        self.rank = np.full(self.size, -1, np.int64)
        self.rank[present] = np.arange(len(present))

    def read(self, text: str | None) -> tuple[tuple[int, int], list[int]]:
        """A stretch of the sorted values, and single places besides."""
        everything = (0, len(self.sorted_keys))
        if self.labels is not None:
            if text == ANYTHING:
                return everything, self.missing
            if text not in self.labels:
                raise Unreadable
            return (0, 0), self.labels[text]
        if text is None:
            return (0, 0), self.missing
        if text == ANYTHING:
            return everything, self.missing
        return self._named(text)

    def _named(self, text: str) -> tuple[tuple[int, int], list[int]]:
        stretch, single = (0, 0), list(self.places.get(text, ()))
        try:
            for member in members(text):
                if member is None:
                    single += self.missing
                elif member[0] == member[1]:
                    single += self.places.get(member[0], ())
                    if self.kind.on_a_line and not is_text(self.type):
                        # 1.50 and 1.5 are one number in two spellings
                        single += self._between(*self._stretch(*member))
                elif stretch == (0, 0):
                    stretch = self._stretch(*member)
                else:
                    single += self._between(*self._stretch(*member))
        except Unreadable:
            if not single:
                raise
        return stretch, single

    def _stretch(self, low: str, high: str) -> tuple[int, int]:
        if not self.kind.on_a_line:
            raise Unreadable
        first = bisect_left(self.sorted_keys, self._key(low))
        return first, max(first, bisect_right(self.sorted_keys, self._key(high)))

    def _between(self, first: int, end: int) -> list[int]:
        found = np.flatnonzero((self.rank >= first) & (self.rank < end))
        return [int(place) for place in found]

    def _key(self, text: str) -> Any:
        if self.order:
            if text not in self.order:
                raise Unreadable
            return self.order[text]
        try:
            if types.is_duration(self.type):
                return int(text)
            if types.is_time(self.type):
                # Arrow reads no times of day, but moments: those of the first day are numbered alike
                moment = pa.array([f"1970-01-01 {text}"]).cast(pa.timestamp(self.type.unit))
                return moment.cast(pa.int64())[0].as_py()
            return _comparable(pa.array([text]).cast(self.type))[0]
        except (pa.ArrowException, ValueError):
            raise Unreadable from None

    def _keys(self, domain: pa.Array[Any], texts: list[str | None]) -> list[Any]:
        if not self.order:
            return _comparable(domain)
        return [self.order.get("" if text is None else text, -1) for text in texts]

    def _labels(self, domain: pa.Array[Any]) -> dict[str | None, list[int]] | None:
        """With a hierarchy, a cell says a label of the hierarchy and nothing else."""
        hierarchy = self.attribute.hierarchy
        if hierarchy is None:
            return None
        found: dict[str | None, dict[int, None]] = {}
        for level in range(hierarchy.height + 1):
            codes, labels = hierarchy.level_codes(level, domain)
            for place, code in enumerate(codes.tolist()):
                found.setdefault(labels[code], {})[place] = None
        return {label: list(places) for label, places in found.items()}


def _ranks(order: Sequence[Any]) -> dict[str, int]:
    return {plain(pa.array([value])).to_pylist()[0]: rank for rank, value in enumerate(order)}


def _comparable(values: pa.Array[Any]) -> list[Any]:
    """Python values that compare as the column's do; times as whole numbers, since nanoseconds have no Python type."""
    if types.is_temporal(values.type):
        short = types.is_date32(values.type) or types.is_time32(values.type)
        values = values.cast(pa.int32() if short else pa.int64())
    return values.to_pylist()


def bits(found: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint64]:
    """Rows of truth values as rows of 64-bit words."""
    words = -(-found.shape[1] // 64)
    padded = np.zeros((found.shape[0], words * 64), bool)
    padded[:, : found.shape[1]] = found
    return np.packbits(padded, axis=1, bitorder="little").view(np.uint64)
