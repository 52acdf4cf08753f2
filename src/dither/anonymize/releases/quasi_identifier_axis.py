"""A quasi-identifier as an axis: its values in an order, and how much of it a part of the table covers.

``AxisShape`` has the three ways to print a part. Values stand in an order in which every group of a tree is one
stretch, so that a tree is a range with more structure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property, partial
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dither.anonymize.attributes import Attribute
from dither.anonymize.encoding import Encoded
from dither.anonymize.table.values import AxisKind, Counts, Floats, numbers, plain

Positions: TypeAlias = npt.NDArray[Any]

# Sets are counted in machine words up to this many values, and by sorting beyond.
_MOST_IN_WORDS = 256

# Two different values are never no distance apart, even where floats can't tell: they can still be cut.
_LEAST_SHARE = 1e-12


class AxisShape(Enum):
    """What a part of an axis looks like when it is printed."""

    RANGE = "range"
    """From lowest to highest (numbers, dates, ordered values): it covers the distance between them."""
    SET = "set"
    """Its members (categories): it covers as many of the values."""
    TREE = "tree"
    """The label of the lowest group of a hierarchy that contains all: it covers the values of that group."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Axis:
    """The values of one quasi-identifier in their order, the position of each row, and the groups above.

    ``missing`` is the position of the missing value, or −1. ``groups[level]`` is the group of each position at each
    level of a hierarchy, rising along the positions; ``labels[level]`` has their labels.
    """

    name: str
    shape: AxisShape
    kind: AxisKind
    weight: float
    values: pa.Array[Any]
    positions: Positions
    missing: int
    groups: tuple[Positions, ...] = ()
    labels: tuple[tuple[str | None, ...], ...] = ()

    @classmethod
    def of(cls, encoded: Encoded, attribute: Attribute) -> Self:
        """The axis of an encoded quasi-identifier."""
        size = encoded.size
        narrow = np.uint8 if size < 1 << 8 else np.uint16 if size < 1 << 16 else np.int32
        missing = size - 1 if encoded.missing else -1
        hierarchy = attribute.hierarchy
        made = partial(cls, name=encoded.name, kind=encoded.kind, weight=attribute.weight)
        if hierarchy is None and encoded.kind.on_a_line:
            positions = encoded.codes.astype(narrow, copy=False)
            return made(shape=AxisShape.RANGE, values=encoded.values, positions=positions, missing=missing)
        order = _by_frequency(encoded) if hierarchy is None else hierarchy.order(encoded.values)
        place = np.empty(size, narrow)
        place[order] = np.arange(size)
        made = partial(made, values=encoded.values.take(order), positions=place[encoded.codes])
        if hierarchy is None:
            return made(shape=AxisShape.SET, missing=missing)
        levels = [hierarchy.level_codes(level, encoded.values) for level in range(hierarchy.height + 1)]
        renamed = [_rising(codes[order], labels) for codes, labels in levels]
        return made(
            shape=AxisShape.TREE,
            missing=int(place[missing]) if encoded.missing else -1,
            groups=tuple(codes for codes, _ in renamed),
            labels=tuple(labels for _, labels in renamed),
        )

    @property
    def size(self) -> int:
        """How many different values there are, the missing one included."""
        return len(self.values)

    @cached_property
    def counts(self) -> Counts:
        """How many rows have each value."""
        return np.bincount(self.positions, minlength=self.size).astype(np.int64)

    @cached_property
    def places(self) -> Floats:
        """Where each value of a range lies on a line: numbers as they are, dates in days, ordered values by rank."""
        known = self.size - (self.missing >= 0)
        line = numbers(self.values, self.kind)[:known]
        if known > 1 and not (np.isfinite(line).all() and 0 < line[-1] - line[0] < np.inf):
            # infinite values, or values that floats can't tell apart: by rank
            line = np.arange(known, dtype=np.float64)
        # the place of a missing value is never read
        return np.append(line, 0.0)

    @cached_property
    def length(self) -> float:
        """How far the highest value of a range is from the lowest."""
        known = self.size - (self.missing >= 0)
        return float(self.places[known - 1] - self.places[0]) if known > 1 else 1.0

    @cached_property
    def bounds(self) -> tuple[tuple[Positions, Positions], ...]:
        """At each level of a tree, the first and the last position of each group."""
        result = []
        for codes, labels in zip(self.groups, self.labels, strict=True):
            first = np.searchsorted(codes, np.arange(len(labels)))
            result.append((first, np.append(first[1:], self.size) - 1))
        return tuple(result)

    def meeting_level(self, low: Positions, high: Positions) -> Positions:
        """The lowest level of a tree at which two positions are in one group."""
        level = np.zeros(low.size, np.int64)
        for codes in self.groups:
            level += codes[low] != codes[high]
        return level

    def child_of(self, low: Positions, high: Positions, inside: Positions) -> tuple[Positions, Positions]:
        """The first and last position of the child, of the lowest group that contains low and high, around a position.

        Low and high must differ.
        """
        level = self.meeting_level(low, high) - 1
        first, last = np.empty_like(inside), np.empty_like(inside)
        for k in np.unique(level):
            here = level == k
            group = self.groups[k][inside[here]]
            first[here], last[here] = self.bounds[k][0][group], self.bounds[k][1][group]
        return first, last

    def extent(self, low: Positions, high: Positions) -> tuple[Positions, Positions]:
        """The first and last position of what is printed for values from low to high: of a tree, a whole group."""
        if self.shape is not AxisShape.TREE:
            return low, high
        level = self.meeting_level(low, high)
        first, last = np.empty_like(low), np.empty_like(high)
        for k in np.unique(level):
            here = level == k
            group = self.groups[k][low[here]]
            first[here], last[here] = self.bounds[k][0][group], self.bounds[k][1][group]
        return first, last

    def share(self, positions: Positions, starts: Counts) -> Floats:
        """How much of the axis each part covers, from 0 (one value) to 1 (all); parts are stretches of positions."""
        if self.size < 2 or not starts.size:
            return np.zeros(starts.size)
        if self.shape is AxisShape.SET:
            return (self.distinct(positions, starts) - 1.0) / (self.size - 1)
        return self.share_between(np.minimum.reduceat(positions, starts), np.maximum.reduceat(positions, starts))

    def share_between(self, low: Positions, high: Positions) -> Floats:
        """How much of a range or tree lies between two positions; a missing value beside others counts as all."""
        if self.size < 2:
            return np.zeros(low.size)
        if self.shape is AxisShape.TREE:
            first, last = self.extent(low.astype(np.int64), high.astype(np.int64))
            return np.asarray((last - first) / (self.size - 1.0))
        width = np.where(
            low == high, 0.0, np.maximum((self.places[high] - self.places[low]) / self.length, _LEAST_SHARE)
        )
        if self.missing >= 0:
            width = np.where(high == self.missing, np.where(low == self.missing, 0.0, 1.0), width)
        return width

    def distinct(self, positions: Positions, starts: Counts) -> Counts:
        """How many different values each part has."""
        if self.size > _MOST_IN_WORDS:
            part, _ = self.members(positions, starts)
            return np.bincount(part, minlength=starts.size).astype(np.int64)
        total = np.zeros(starts.size, np.int64)
        one = np.uint64(1)
        for word in range((self.size + 63) // 64):
            bit = one << (positions & 63).astype(np.uint64)
            if self.size > 64:
                bit[positions >> 6 != word] = 0
            total += _ones(np.bitwise_or.reduceat(bit, starts))
        return total

    def members(self, positions: Positions, starts: Counts) -> tuple[Positions, Positions]:
        """The different values of each part, as (part, position) pairs in rising order."""
        part = np.repeat(np.arange(starts.size, dtype=np.int64), np.diff(starts, append=positions.size))
        key = part * self.size + positions
        key.sort()
        key = key[np.concatenate((np.ones(1, np.bool_), key[1:] != key[:-1]))] if key.size else key
        return (key // self.size).astype(narrow_for(starts.size)), (key % self.size).astype(np.int32)


def narrow_for(number: int) -> type[np.int32 | np.int64]:
    """The narrower type that can count up to a number: half the memory, where that is millions of rows."""
    return np.int32 if number < 1 << 31 else np.int64


def _by_frequency(encoded: Encoded) -> Counts:
    """The most frequent category first and the missing one last; equally frequent ones by their text.

    So that nothing depends on the order of rows, which is never released.
    """
    missing = np.asarray(encoded.values.is_null(), dtype=bool)
    return np.lexsort((ranks_of_texts(encoded.values), -encoded.counts, missing))


def ranks_of_texts(values: pa.Array[Any]) -> Counts:
    """The rank of each of some different values by its text; missing comes last."""
    order = np.asarray(pc.sort_indices(plain(values)))
    rank = np.empty(order.size, np.int64)
    rank[order] = np.arange(order.size)
    return rank


def _rising(codes: Positions, labels: tuple[str | None, ...]) -> tuple[Positions, tuple[str | None, ...]]:
    """Groups renumbered in the order in which they appear; each must be one stretch."""
    begins = np.flatnonzero(np.concatenate((np.ones(1, np.bool_), codes[1:] != codes[:-1])))[: codes.size]
    assert begins.size == np.unique(codes).size
    number = np.zeros(codes.size, np.int64)
    number[begins[1:]] = 1
    return np.cumsum(number), tuple(labels[code] for code in codes[begins])


def _ones(words: npt.NDArray[np.uint64]) -> Counts:
    """How many bits are set in each word."""
    u = np.uint64
    words = words - ((words >> u(1)) & u(0x5555555555555555))
    words = (words & u(0x3333333333333333)) + ((words >> u(2)) & u(0x3333333333333333))
    words = (words + (words >> u(4))) & u(0x0F0F0F0F0F0F0F0F)
    return ((words * u(0x0101010101010101)) >> u(56)).astype(np.int64)
