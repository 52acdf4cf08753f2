"""The cuts of Mondrian, breadth first: all open parts of the table are cut at once, in a few passes over flat arrays.

LeFevre, DeWitt & Ramakrishnan (2006) cut one part at a time at the median of its widest quasi-identifier. Here a round
sorts the rows of all open parts together, each part by the column that is widest in it, finds every median by one
search, and cuts. What a round does to one part depends on that part alone: the result is that of cutting one part after
the other. Why there is one thread is in decision 0014.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dither.anonymize.releases.quasi_identifier_axis import Axis, AxisShape, narrow_for
from dither.progress import Watch

Rows: TypeAlias = npt.NDArray[Any]
Whole: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]
Words: TypeAlias = npt.NDArray[np.uint64]

# Whether each of so many parts satisfies the models, given points and the part that each of them is in.
Permits: TypeAlias = Callable[[Rows, Whole, int], Mask]

# Which cuts along an axis may still succeed: all, only one that separates equal values, none.
_OPEN, _ONLY_RELAXED, _NOTHING = 0, 1, 2

# Columns whose detail doesn't matter (weight 0) are still cut, when nothing else can be.
_LEAST_WEIGHT = 1e-15


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Points:
    """What is cut: points in the space of the quasi-identifiers, with the number of rows that each stands for.

    ``positions`` has a line for each axis, of unsigned numbers. Strict cuts never separate equal rows, so that rows
    which agree in everything can be one point; ``weights`` is None if every point is one row. ``permits`` is None where
    the least size ``least`` is all that is asked.
    """

    axes: tuple[Axis, ...]
    positions: Rows
    weights: Whole | None
    least: int
    strict: bool
    permits: Permits | None

    @property
    def number(self) -> int:
        """How many points there are."""
        return int(self.positions.shape[1])

    @property
    def rows(self) -> int:
        """How many rows they stand for."""
        return self.number if self.weights is None else int(self.weights.sum())

    def summed(self, some: Rows) -> Whole:
        """How many rows the first of some points stand for, the first two, and so on, after a nought."""
        if self.weights is None:
            return np.arange(some.size + 1)
        summed = np.zeros(some.size + 1, np.int64)
        np.cumsum(self.weights[some], out=summed[1:])
        return summed


@dataclass(slots=True, eq=False)
class _Front:
    """The open parts: their points one after the other, where each begins, how many rows it stands for.

    ``spent`` says along which axes a part can't be cut; ``widths`` are the weighted shares of the axes.
    """

    rows: Rows
    starts: Whole
    sizes: Whole
    spent: npt.NDArray[np.int8]
    widths: npt.NDArray[np.float64]

    def counts(self) -> Whole:
        return np.diff(self.starts, append=self.rows.size)

    def only(self, kept: Mask) -> _Front:
        counts = self.counts()
        remaining = counts[kept]
        return _Front(
            self.rows[np.repeat(kept, counts)],
            np.cumsum(remaining) - remaining,
            self.sizes[kept],
            self.spent[kept],
            self.widths[kept],
        )


@dataclass(slots=True, eq=False)
class _Cuts:
    """Where each part of a front is cut, as a place among the points and as a number of rows before it; and whether."""

    places: Whole
    before: Whole
    made: Mask


@dataclass(slots=True, eq=False, kw_only=True)
class _MiddleBlock:
    """In each part, the points with the median value, or under the same child of a tree: from ``under`` to ``upto``."""

    under: Whole
    upto: Whole
    summed: Whole
    base: Whole

    @property
    def before(self) -> Whole:
        """How many rows of the part come before the block."""
        return np.asarray(self.summed[self.under] - self.base)

    @property
    def through(self) -> Whole:
        """How many rows of the part come before the end of the block."""
        return np.asarray(self.summed[self.upto] - self.base)


def partition(points: Points, watch: Watch) -> tuple[Rows, int]:
    """The class of each point, counted from 0, and how many classes there are."""
    return _Partition(points, watch).run()


class _Partition:
    """One run: the points, what is finished, and how far it is."""

    def __init__(self, points: Points, watch: Watch) -> None:
        self.points, self.watch = points, watch
        self.total = points.rows
        self.finished_rows, self.share = 0, 0.0
        self.done: list[tuple[Rows, Whole]] = []
        value_bits = max(int(axis.size) for axis in points.axes).bit_length()
        self.value_bits, self.row_bits = np.uint64(value_bits), np.uint64(max(1, points.number.bit_length()))

    def run(self) -> tuple[Rows, int]:
        rows = np.arange(self.points.number, dtype=np.uint32 if self.points.number < 1 << 32 else np.uint64)
        d = len(self.points.axes)
        front = _Front(rows, np.zeros(1, np.int64), np.array([self.total]), np.zeros((1, d), np.int8), np.zeros((1, d)))
        front.widths = self._widths(rows, front.starts)
        if self.total < 2 * self.points.least:
            self._finish(front, np.ones(1, np.bool_))
            front = front.only(np.zeros(1, np.bool_))
        while front.rows.size:
            self._tell(front)
            front = self._round(front)
        label = np.empty(self.points.number, narrow_for(self.points.number))
        first = 0
        for finished, counts in self.done:
            label[finished] = np.repeat(np.arange(first, first + counts.size, dtype=label.dtype), counts)
            first += counts.size
        return label, first

    def _tell(self, front: _Front) -> None:
        """Say how far it is: a row is done when its class is, and half done when half of the halvings are made."""
        halvings = max(1.0, math.log2(self.total / self.points.least))
        depth = np.minimum(1.0, np.log2(self.total / front.sizes) / halvings)
        now = (self.finished_rows + float(front.sizes @ depth)) / self.total
        self.share = max(self.share, now)
        self.watch(self.share, "cutting")

    def _finish(self, front: _Front, closed: Mask) -> None:
        counts = front.counts()
        self.done.append((front.rows[np.repeat(closed, counts)], counts[closed]))
        self.finished_rows += int(front.sizes[closed].sum())

    def _round(self, front: _Front) -> _Front:
        """Cut every open part once, along its widest axis, and close those that can't be cut."""
        widths = np.where(front.spent == _OPEN, front.widths, 0.0)
        along, rounds = widths.argmax(axis=1), np.arange(front.sizes.size)
        still = widths[rounds, along] > 0
        equal = np.zeros(still.size, np.bool_)
        if not self.points.strict and not still.all():
            # no cut keeps equal values together: now those with the median value may go to either side
            widths = np.where(front.spent == _ONLY_RELAXED, front.widths, 0.0)
            last = widths.argmax(axis=1)
            equal = ~still & (widths[rounds, last] > 0)
            along, still = np.where(equal, last, along), still | equal
        if not still.all():
            self._finish(front, ~still)
            front, along, equal = front.only(still), along[still], equal[still]
        if not front.rows.size:
            return front
        keys = self._sorted(front, along)
        cuts = self._choose(front, along, equal, keys)
        del keys
        return self._children(front, along, equal, cuts)

    def _sorted(self, front: _Front, along: Whole) -> Words:
        """Order the points of each part by their position on the axis of its cut; (part, position) becomes one key."""
        points, counts = self.points, front.counts()
        place = np.repeat(along * points.number, counts)
        place += front.rows
        values = points.positions.reshape(-1)[place]
        del place
        key = np.repeat(np.arange(along.size, dtype=np.uint64) << self.value_bits, counts)
        key |= values
        if int(self.value_bits + self.row_bits) + int(along.size).bit_length() <= 64:
            # the point goes along in the lower bits: sorting one array of words is several times faster than argsort
            key <<= self.row_bits
            key |= front.rows
            key.sort()
            np.bitwise_and(key, _lowest(self.row_bits), out=front.rows, casting="unsafe")
            key >>= self.row_bits
        else:
            order = np.argsort(key, kind="stable")
            key, front.rows = key[order], front.rows[order]
        return key

    def _choose(self, front: _Front, along: Whole, equal: Mask, keys: Words) -> _Cuts:
        """Where each part is cut, if it can be; ``equal`` marks those cut into equal halves, whatever the values."""
        summed = self.points.summed(front.rows)
        base, half = summed[front.starts], front.sizes // 2

        def value_at(places: Whole) -> Whole:
            return (keys[places] & _lowest(self.value_bits)).astype(np.int64)

        low, high = value_at(front.starts), value_at(np.append(front.starts[1:], front.rows.size) - 1)
        median = value_at(np.searchsorted(summed[1:], base + np.maximum(half, 1)))
        part = np.arange(along.size, dtype=np.uint64) << self.value_bits

        def at(position: Whole) -> Whole:
            return np.searchsorted(keys, part + position.astype(np.uint64))

        cuts = _Cuts(front.starts.copy(), np.zeros(along.size, np.int64), np.zeros(along.size, np.bool_))
        alone = self._missing_beside_others(along, low, high)
        if (alone >= 0).any():
            # a missing value beside others covers the whole axis: cut it off first where that can be
            places = np.where(alone >= 0, at(np.maximum(alone, 0)), front.starts)
            self._try(front, cuts, places, summed[places] - base)
        if equal.any():
            places = np.where(equal, np.searchsorted(summed, base + half), front.starts)
            self._try(front, cuts, places, summed[places] - base)
        first, last, tree, range_ = median.copy(), median.copy(), equal.copy(), equal.copy()
        for j, axis in enumerate(self.points.axes):
            here = along == j
            tree[here], range_[here] = axis.shape is AxisShape.TREE, axis.shape is AxisShape.RANGE
            if axis.shape is AxisShape.TREE:
                first[here], last[here] = axis.child_of(low[here], high[here], median[here])
        block = _MiddleBlock(under=at(first), upto=at(last + 1), summed=summed, base=base)
        # under a node of a tree, one child against the others: it gets a label of its own at once
        self._try_apart(front, cuts, block, tree & ~equal)
        nearer = np.abs(block.before - half) < np.abs(block.through - half)
        for lower in (nearer, ~nearer):
            self._try(
                front, cuts, np.where(lower, block.under, block.upto), np.where(lower, block.before, block.through)
            )
        # neither side of the middle category is large enough, but both together may be: categories have no order
        self._try_apart(front, cuts, block, ~tree & ~range_ & ~equal)
        return cuts

    def _missing_beside_others(self, along: Whole, low: Rows, high: Rows) -> Whole:
        """The position of the missing value in parts of a range that have it and others too, else −1."""
        alone = np.full(along.size, -1, np.int64)
        for j, axis in enumerate(self.points.axes):
            if axis.shape is AxisShape.RANGE and axis.missing >= 0:
                alone[(along == j) & (high == axis.missing) & (low != axis.missing)] = axis.missing
        return alone

    def _try_apart(self, front: _Front, cuts: _Cuts, block: _MiddleBlock, which: Mask) -> None:
        """Try to cut off the block around the median from all the rest of its part."""
        rows = block.through - block.before
        apart = ~cuts.made & which & (rows >= self.points.least) & (front.sizes - rows >= self.points.least)
        if not apart.any():
            return
        # points of the rest lie on both sides of the block: move it to the front, and back if it isn't cut off
        _move(front, apart, front.starts, block.under, block.upto)
        places = np.where(apart, front.starts + block.upto - block.under, front.starts)
        self._try(front, cuts, places, np.where(apart, rows, 0))
        _move(front, apart & ~cuts.made, front.starts, places, block.upto)

    def _try(self, front: _Front, cuts: _Cuts, places: Whole, before: Whole) -> None:
        """Take a cut where none was taken yet, if both sides are large enough and satisfy the models."""
        least = self.points.least
        good = ~cuts.made & (before >= least) & (front.sizes - before >= least)
        if self.points.permits is not None and good.any():
            which, counts = np.flatnonzero(good), front.counts()
            place = np.flatnonzero(np.repeat(good, counts))
            part = np.repeat(np.arange(which.size, dtype=np.int64), counts[which])
            side = 2 * part + (place >= np.repeat(places[which], counts[which]))
            holds = self.points.permits(front.rows[place], side, 2 * which.size)
            good[which] = holds[0::2] & holds[1::2]
        cuts.made |= good
        cuts.places[good], cuts.before[good] = places[good], before[good]

    def _children(self, front: _Front, along: Whole, equal: Mask, cuts: _Cuts) -> _Front:
        """The front after the cuts: the halves, those at once finished that are too small to be cut again."""
        cut = cuts.made
        front.spent[np.flatnonzero(~cut), along[~cut]] = np.where(equal, _NOTHING, _ONLY_RELAXED)[~cut]
        if not cut.any():
            return front
        copies = np.where(cut, 2, 1)
        first = np.cumsum(copies) - copies
        second = first[cut] + 1
        number = int(copies.sum())
        starts, sizes = np.empty(number, np.int64), np.empty(number, np.int64)
        starts[first], sizes[first] = front.starts, np.where(cut, cuts.before, front.sizes)
        starts[second], sizes[second] = cuts.places[cut], (front.sizes - cuts.before)[cut]
        new = np.repeat(cut, copies)
        grown = _Front(
            front.rows,
            starts,
            sizes,
            np.repeat(front.spent, copies, axis=0),
            np.repeat(front.widths, copies, axis=0),
        )
        small = sizes < 2 * self.points.least
        if small.any():
            self._finish(grown, small)
            grown, new = grown.only(~small), new[~small]
        if new.any():
            rows = grown.rows if new.all() else grown.rows[np.repeat(new, grown.counts())]
            counts = grown.counts()[new]
            widths = self._widths(rows, np.cumsum(counts) - counts)
            grown.spent[new] *= self._stays_spent(widths, grown.widths[new])
            grown.widths[new] = widths
        return grown

    def _stays_spent(self, widths: npt.NDArray[np.float64], parents: npt.NDArray[np.float64]) -> Mask:
        """Where an axis that couldn't be cut in a part can't be cut in what became of the part either.

        If only sizes matter, a part without a cut that leaves enough rows on both sides has none in any subset. In a
        hierarchy a subset may lie under a lower node, whose children are other blocks. Other models can fail at the
        median of the whole and hold at that of a half.
        """
        if self.points.permits is not None:
            return np.zeros(widths.shape, np.bool_)
        tree = np.array([axis.shape is AxisShape.TREE for axis in self.points.axes])
        stays: Mask = ~tree[None, :] | (widths == parents)
        return stays

    def _widths(self, rows: Rows, starts: Whole) -> npt.NDArray[np.float64]:
        """The weighted share of each axis that each part covers: a line for each part."""
        columns = []
        for axis, positions in zip(self.points.axes, self.points.positions, strict=True):
            columns.append(max(axis.weight, _LEAST_WEIGHT) * axis.share(positions[rows], starts))
        return np.stack(columns, axis=1)


def _lowest(bits: np.uint64) -> np.uint64:
    """A word whose lowest bits are set."""
    return np.uint64((1 << int(bits)) - 1)


def _move(front: _Front, parts: Mask, begin: Whole, middle: Whole, end: Whole) -> None:
    """Within some parts, exchange the stretches of points [begin, middle) and [middle, end)."""
    which = np.flatnonzero(parts)
    counts = (end - begin)[which]
    owner = np.repeat(which, counts)
    place = np.repeat(begin[which] - (np.cumsum(counts) - counts), counts) + np.arange(int(counts.sum()))
    behind = place < middle[owner]
    target = np.where(behind, place + end[owner] - middle[owner], place + begin[owner] - middle[owner])
    moved = front.rows[place]
    front.rows[target] = moved
