"""Reads the cells of a released table: which original values a printed text may stand for.

The grammar is that of :mod:`dither.anonymize.releases.release`, written down a second time so that a mistake on either
side shows: a value, ``low–high``, a set ``{a, b, NULL}``, ``*``, NULL, or a label of the column's hierarchy. Where a
text can be read in two ways it stands for the values of both, since nobody who reads the table could tell.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from dither.anonymize.attributes import Attribute
from dither.anonymize.table.values import ANYTHING, AxisKind, Bools, Counts, is_text, kind_of, plain

DASH = "–"
NULL = "NULL"
# A set of values without quotes and ranges.
PLAIN_SET = r'^\{[^{}"–,]+(, [^{}"–,]+)*\}$'
# One value, or two with a dash between.
PLAIN_RANGE = r"^(?P<low>[^{}\"–*]+)(?:–(?P<high>[^{}\"–*]+))?$"
NOTHING: Counts = np.zeros(0, np.int64)

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

    Text ``i`` stands for the values at the places ``values[starts[i]:starts[i + 1]]`` of a domain, and for all those
    whose ``rank`` lies from ``low[i]`` up to but not including ``high[i]``.
    """

    domain: int
    rank: Counts
    low: Counts
    high: Counts
    starts: Counts
    values: Counts
    unreadable: tuple[int, ...]

    @property
    def texts(self) -> Counts:
        """The text that lists each of ``values``."""
        return np.repeat(np.arange(self.low.size), np.diff(self.starts))

    def stands_for(self, places: Counts) -> Bools:
        """For each of some different places of the domain, and each text: whether the text stands for that value."""
        rank = self.rank[places][:, None]
        found: Bools = (self.low[None, :] <= rank) & (rank < self.high[None, :])
        row_of = np.full(self.domain, -1, np.int64)
        row_of[places] = np.arange(places.size)
        rows = row_of[self.values]
        kept = rows >= 0
        found[rows[kept], self.texts[kept]] = True
        return found

    def merged(self) -> tuple[Reading, Counts]:
        """The same with values as one that the same texts stand for; and what each value became."""
        marks = np.unique(np.concatenate((self.low, self.high)))
        stretch = np.searchsorted(marks, self.rank, side="right")
        listed = np.zeros(self.domain, np.int64)
        place, text = _sorted_pairs(self.values, self.texts)
        begins = np.flatnonzero(np.concatenate((np.ones(min(1, place.size), bool), place[1:] != place[:-1])))
        names: dict[bytes, int] = {}
        for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), place.size], strict=False):
            listed[place[begin]] = names.setdefault(text[begin:end].tobytes(), len(names) + 1)
        _, first, became = np.unique(stretch * (len(names) + 1) + listed, return_index=True, return_inverse=True)
        became = became.reshape(-1)
        number = became[self.values]
        kept = first[number] == self.values
        return (
            Reading(
                domain=first.size,
                rank=self.rank[first],
                low=self.low,
                high=self.high,
                starts=np.concatenate(([0], np.cumsum(kept)))[self.starts],
                values=number[kept],
                unreadable=self.unreadable,
            ),
            became,
        )

    def extent(self) -> tuple[Counts, Counts]:
        """The lowest and the highest place that each text stands for; the other way round if it stands for none."""
        lowest, highest = np.full(self.low.size, self.domain), np.full(self.low.size, -1)
        ranked = np.flatnonzero(self.rank >= 0)
        order = ranked[np.argsort(self.rank[ranked])]
        first, end = (np.searchsorted(self.rank[order], ends) for ends in (self.low, self.high))
        some = np.flatnonzero(first < end)
        if (order[1:] > order[:-1]).all():
            lowest[some], highest[some] = order[first[some]], order[end[some] - 1]
        elif some.size:
            # places aren't in the order of ranks: as wide as can be
            lowest[some], highest[some] = order.min(), order.max()
        np.minimum.at(lowest, self.texts, self.values)
        np.maximum.at(highest, self.texts, self.values)
        return lowest, highest

    def listed(self) -> Counts:
        """The pairs of a listed value and its text as numbers in order, for ``contains``."""
        return np.sort(self.values * self.low.size + self.texts)

    def contains(self, places: Counts, texts: Counts, listed: Counts) -> Bools:
        """Pair by pair, whether the text stands for the value at the place."""
        rank = self.rank[places]
        found: Bools = (self.low[texts] <= rank) & (rank < self.high[texts])
        if listed.size:
            wanted = places * self.low.size + texts
            found |= listed[np.minimum(np.searchsorted(listed, wanted), listed.size - 1)] == wanted
        return found


def _sorted_pairs(first: Counts, second: Counts) -> tuple[Counts, Counts]:
    """Different pairs in order."""
    order = np.lexsort((second, first))
    first, second = first[order], second[order]
    new = np.ones(first.size, bool)
    new[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
    return first[new], second[new]


def read_cells(texts: Sequence[str | None], attribute: Attribute, domain: pa.Array[Any]) -> Reading:
    """Which of the distinct values of an original column each text stands for."""
    reader = _Reader(attribute, domain)
    low, high, done = reader.read_plain(texts)
    values = [NOTHING] * len(texts)
    for number, places in reader.read_sets(texts):
        values[number], done[number] = places, True
    unreadable = []
    for number in np.flatnonzero(~done).tolist():
        try:
            (low[number], high[number]), values[number] = reader.read(texts[number])
        except Unreadable:
            unreadable.append(number)
    starts = np.concatenate(([0], np.cumsum([single.size for single in values], dtype=np.int64)))
    return Reading(
        domain=len(domain),
        rank=reader.rank,
        low=low,
        high=high,
        starts=starts.astype(np.int64),
        values=np.concatenate([NOTHING, *values]),
        unreadable=tuple(unreadable),
    )


class _Reader:
    """Reads the texts of one column."""

    def __init__(self, attribute: Attribute, domain: pa.Array[Any]) -> None:
        self.attribute = attribute
        self.type = domain.type
        self.domain = domain
        self.kind = attribute.kind or (
            AxisKind.ORDERED if attribute.order is not None else kind_of(domain.type, attribute.name)
        )
        # values are compared as they are spelled, or else as numbers: 1.50 and 1.5 are one
        self.by_text = is_text(self.type) or not self.kind.on_a_line or attribute.order is not None
        absent = np.asarray(domain.is_null(), dtype=bool)
        self.missing = np.flatnonzero(absent)
        self.labels = self._labels(domain)
        self.order = {} if attribute.order is None else _ranks(attribute.order)
        # every value that isn't missing, in order; ranges are stretches of this
        present = np.flatnonzero(~absent)
        keys = self._keys(domain.take(present))
        inner = np.argsort(keys, kind="stable")
        self.sorted_keys = keys[inner]
        self.sorted = present[inner]
        self.rank = np.full(len(domain), -1, np.int64)
        self.rank[self.sorted] = np.arange(present.size)

    def read_plain(self, texts: Sequence[str | None]) -> tuple[Counts, Counts, Bools]:
        """Numbers and ranges of numbers all at once: their stretches, and which texts were read so."""
        low, high, done = np.zeros(len(texts), np.int64), np.zeros(len(texts), np.int64), np.zeros(len(texts), bool)
        plainly = types.is_integer(self.type) or types.is_floating(self.type) or types.is_date(self.type)
        if self.labels is not None or self.by_text or not plainly:
            return low, high, done
        ends: Any = pc.extract_regex(pa.array(texts, pa.string()), PLAIN_RANGE)
        places = np.flatnonzero(np.asarray(ends.is_valid()))
        first, last = (ends.field(name).take(places) for name in ("low", "high"))
        last = pc.if_else(pc.equal(last, pa.scalar("")), first, last)
        try:
            keys = [_comparable(end.cast(self._wide)) for end in (first, last)]
        except pa.ArrowException:
            # one of them is no number: one by one
            return low, high, done
        if any(np.isnan(key.astype(np.float64)).any() for key in keys):
            return low, high, done
        low[places] = np.searchsorted(self.sorted_keys, keys[0], side="left")
        high[places] = np.maximum(low[places], np.searchsorted(self.sorted_keys, keys[1], side="right"))
        done[places] = True
        return low, high, done

    def read_sets(self, texts: Sequence[str | None]) -> Iterator[tuple[int, Counts]]:
        """Sets of plainly spelled values all at once: the number of each such text, and the places it stands for."""
        names: Any = plain(self.domain) if self.labels is None and self.by_text else None
        if names is None or len(names.unique()) != len(names):
            return
        found: Any = pa.array(texts, pa.string())
        numbers = np.flatnonzero(
            np.asarray(pc.match_substring_regex(found, PLAIN_SET).fill_null(pa.scalar(value=False)))
        )
        if not numbers.size:
            return
        sets = found.take(numbers)
        members_of: Any = pc.split_pattern(pc.utf8_slice_codeunits(sets, 1, -1), ", ")
        member = members_of.flatten()
        # the word NULL is the missing value, if there is one; the text as a whole may also be a value
        named = pc.if_else(pc.equal(member, pa.scalar(NULL)), pa.scalar(None, pa.string()), member)
        places = np.concatenate([_places(named, names), _places(sets, names)])
        owner = np.concatenate([np.asarray(pc.list_parent_indices(members_of)), np.arange(numbers.size)])
        known = places >= 0
        places, owner = places[known], owner[known].astype(np.int64)
        order = np.argsort(owner, kind="stable")
        parts = np.split(places[order], np.searchsorted(owner[order], np.arange(1, numbers.size)))
        yield from zip(numbers.tolist(), parts, strict=True)

    @property
    def _wide(self) -> pa.DataType:
        """A range may end beyond what the column could hold."""
        return pa.int64() if types.is_signed_integer(self.type) else self.type

    @cached_property
    def places(self) -> dict[str, Counts]:
        """The values that are spelled in each way."""
        found: dict[str, list[int]] = {}
        for place, text in enumerate(plain(self.domain).to_pylist()):
            if text is not None:
                found.setdefault(text, []).append(place)
        return {text: np.array(places, np.int64) for text, places in found.items()}

    def read(self, text: str | None) -> tuple[tuple[int, int], Counts]:
        """A stretch of the sorted values, and single places besides."""
        if text == ANYTHING:
            return (0, self.sorted.size), self.missing
        if self.labels is not None:
            if text not in self.labels:
                raise Unreadable
            return (0, 0), self.labels[text]
        if text is None:
            return (0, 0), self.missing
        return self._named(text)

    def _named(self, text: str) -> tuple[tuple[int, int], Counts]:
        single = [self.places.get(text, NOTHING)] if self.by_text else []
        stretch = (0, 0)
        try:
            for member in members(text):
                if member is None:
                    single.append(self.missing)
                    continue
                low, high = member
                if low == high and self.by_text:
                    single.append(self.places.get(low, NOTHING))
                    continue
                found = self._stretch(low, high)
                if stretch == (0, 0):
                    stretch = found
                else:
                    single.append(self.sorted[slice(*found)])
        except Unreadable:
            if not any(places.size for places in single):
                raise
        return stretch, np.concatenate([NOTHING, *single])

    def _stretch(self, low: str, high: str) -> tuple[int, int]:
        if not self.kind.on_a_line:
            raise Unreadable
        first = int(np.searchsorted(self.sorted_keys, self._key(low), side="left"))
        return first, max(first, int(np.searchsorted(self.sorted_keys, self._key(high), side="right")))

    def _key(self, text: str) -> Any:
        """What a text is compared by."""
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
            key = _comparable(pa.array([text]).cast(self._wide))[0]
        except (pa.ArrowException, ValueError):
            raise Unreadable from None
        if key != key:
            # NaN is no end of a range: it compares with nothing
            raise Unreadable
        return key

    def _keys(self, present: pa.Array[Any]) -> npt.NDArray[Any]:
        if not self.kind.on_a_line:
            return np.arange(len(present))
        if not self.order:
            return _comparable(present)
        return np.array([self.order.get(text, -1) for text in plain(present).to_pylist()], np.int64)

    def _labels(self, domain: pa.Array[Any]) -> dict[str | None, Counts] | None:
        """With a hierarchy, a cell says a label of the hierarchy and nothing else."""
        hierarchy = self.attribute.hierarchy
        if hierarchy is None:
            return None
        found: dict[str | None, list[Counts]] = {}
        for level in range(hierarchy.height + 1):
            codes, labels = hierarchy.level_codes(level, domain)
            order = np.argsort(codes, kind="stable")
            ends = np.cumsum(np.bincount(codes, minlength=len(labels)))
            for label, places in zip(labels, np.split(order, ends[:-1]), strict=True):
                found.setdefault(label, []).append(places)
        return {label: np.unique(np.concatenate(places)) for label, places in found.items()}


def _places(texts: Any, names: Any) -> Counts:
    """Where each text is among the names, NULL included; −1 if it isn't."""
    found: Any = pc.index_in(texts, value_set=names)
    return np.asarray(found.fill_null(-1)).astype(np.int64)


def _ranks(order: Sequence[Any]) -> dict[str, int]:
    return {plain(pa.array([value])).to_pylist()[0]: rank for rank, value in enumerate(order)}


def _comparable(values: pa.Array[Any]) -> npt.NDArray[Any]:
    """An array that compares as the values do; times as whole numbers, since nanoseconds have no Python type."""
    if types.is_temporal(values.type):
        short = types.is_date32(values.type) or types.is_time32(values.type)
        values = values.cast(pa.int32() if short else pa.int64())
    if types.is_integer(values.type) or types.is_floating(values.type):
        return np.asarray(values.to_numpy(zero_copy_only=False))
    found = np.empty(len(values), object)
    found[:] = values.to_pylist()
    return found
