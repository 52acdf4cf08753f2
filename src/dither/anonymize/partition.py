"""The cuts of Mondrian, breadth first: all open parts of the table are cut at once, in a few passes over flat arrays.

LeFevre, DeWitt & Ramakrishnan (2006) cut one part at a time at the median of its widest quasi-identifier. Here a round
sorts the rows of all open parts together, each part by the column that is widest in it, finds every median by one
search, and cuts. What a round does to one part depends on that part alone, so that the order of rounds, and how the
parts are shared out among threads, don't change the result.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dither.anonymize.axes import Axis, Shape
from dither.progress import Watch

Rows: TypeAlias = npt.NDArray[Any]
Whole: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]
Words: TypeAlias = npt.NDArray[np.uint64]

# Whether each of so many parts satisfies the models, given points and the part that each of them is in.
Permits: TypeAlias = Callable[[Rows, Whole, int], Mask]

# Which cuts along an axis may still succeed: all, only one that separates equal values, none.
_OPEN, _ONLY_RELAXED, _NOTHING = 0, 1, 2

# Below this many points a second thread costs more than it brings.
_WORTH_A_THREAD = 1 << 17


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Points:
    """What is cut: points in the space of the quasi-identifiers, with the number of rows that each stands for.

    ``positions`` has a line for each axis. Strict cuts never separate equal rows, so that rows which agree in
    everything are one point; ``permits`` is None where the least size ``least`` is all that is asked.
    """

    axes: tuple[Axis, ...]
    positions: Rows
    weights: Whole
    least: int
    strict: bool
    permits: Permits | None

    @property
    def number(self) -> int:
        """How many points there are."""
        return int(self.positions.shape[1])


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
    """Where each part of a front is to be cut, as a place among the points and as a number of rows before it."""

    places: Whole
    before: Whole


def partition(points: Points, *, workers: int, watch: Watch) -> tuple[Whole, int]:
    """The class of each point, counted from 0, and how many classes there are."""
    return _Partition(points, watch).run(workers)


class _Partition:
    """One run: the points, what is finished, and how far it is."""

    def __init__(self, points: Points, watch: Watch) -> None:
        self.points, self.watch = points, watch
        self.total = int(points.weights.sum())
        self.finished_rows = 0
        self.done: list[tuple[Rows, Whole]] = []
        self.lock, self.stop = threading.Lock(), threading.Event()
        self.share = 0.0
        value_bits = max(int(axis.size) for axis in points.axes).bit_length()
        self.value_bits, self.row_bits = np.uint64(value_bits), np.uint64(max(1, points.number.bit_length()))

    def run(self, workers: int) -> tuple[Whole, int]:
        rows = np.arange(self.points.number, dtype=np.int32 if self.points.number < 1 << 31 else np.int64)
        d = len(self.points.axes)
        front = _Front(rows, np.zeros(1, np.int64), np.array([self.total]), np.zeros((1, d), np.int8), np.zeros((1, d)))
        front.widths = self._widths(rows, front.starts)
        if self.total < 2 * self.points.least:
            self._finish(front, np.ones(1, np.bool_))
            front = front.only(np.zeros(1, np.bool_))
        wanted = 1 if workers == 1 or self.points.number < _WORTH_A_THREAD else 4 * workers
        while front.rows.size and (wanted == 1 or front.sizes.size < wanted):
            front = self._round(front)
        if front.rows.size:
            self._share_out(front, workers)
        label = np.empty(self.points.number, np.int64)
        first = 0
        for finished, counts in self.done:
            label[finished] = np.repeat(np.arange(first, first + counts.size), counts)
            first += counts.size
        return label, first

    def _share_out(self, front: _Front, workers: int) -> None:
        """Cut the parts of a front in threads, each with about as many rows; numpy sorts without the interpreter."""
        load = np.zeros(workers, np.int64)
        owner = np.zeros(front.sizes.size, np.int64)
        for part in np.argsort(-front.sizes, kind="stable"):
            owner[part] = int(load.argmin())
            load[owner[part]] += front.sizes[part]
        with ThreadPoolExecutor(workers) as pool:
            running = [pool.submit(self._to_the_end, front.only(owner == w)) for w in range(workers)]
            try:
                for one in running:
                    one.result()
            except BaseException:
                self.stop.set()
                raise

    def _to_the_end(self, front: _Front) -> None:
        try:
            while front.rows.size and not self.stop.is_set():
                front = self._round(front)
        except BaseException:
            self.stop.set()
            raise

    def _tell(self) -> None:
        """Say how far it is: the share of rows whose class is final."""
        with self.lock:
            self.share = max(self.share, self.finished_rows / self.total)
            self.watch(self.share, "cutting")

    def _finish(self, front: _Front, closed: Mask) -> None:
        counts = front.counts()
        with self.lock:
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
        self._tell()
        if not front.rows.size:
            return front
        keys, values = self._sorted(front, along)
        cut, places, before = self._choose(front, along, equal, keys, values)
        return self._children(front, along, equal, cut, places, before)

    def _sorted(self, front: _Front, along: Whole) -> tuple[Words, Rows]:
        """Order the points of each part by their position on the axis of its cut; (part, position) becomes one key."""
        points = self.points
        part = np.repeat(np.arange(along.size, dtype=np.int64), front.counts())
        values = points.positions.reshape(-1)[along[part] * points.number + front.rows]
        key = (part.astype(np.uint64) << self.value_bits) | values.astype(np.uint64)
        if int(self.value_bits + self.row_bits) + int(along.size).bit_length() <= 64:
            # the point goes along in the lower bits: sorting one array of words is several times faster than argsort
            key = (key << self.row_bits) | front.rows.astype(np.uint64)
            key.sort()
            front.rows = (key & ((np.uint64(1) << self.row_bits) - np.uint64(1))).astype(front.rows.dtype)
            key >>= self.row_bits
        else:
            order = np.argsort(key, kind="stable")
            key, front.rows = key[order], front.rows[order]
        return key, (key & ((np.uint64(1) << self.value_bits) - np.uint64(1))).astype(np.int64)

    def _choose(self, front: _Front, along: Whole, equal: Mask, keys: Words, values: Rows) -> tuple[Mask, Whole, Whole]:
        """Which parts are cut, at which place among the points, and how many rows come before it in the part.

        ``equal`` marks the parts that are cut in equal halves, whatever the values.
        """
        ends = np.append(front.starts[1:], front.rows.size)
        summed = np.concatenate((np.zeros(1, np.int64), np.cumsum(self.points.weights[front.rows])))
        base = summed[front.starts]
        half = front.sizes // 2
        median = values[np.searchsorted(summed[1:], base + np.maximum(half, 1))]
        low, high = values[front.starts], values[ends - 1]
        first, last = median.copy(), median.copy()
        loose = np.zeros(along.size, np.bool_)
        alone = np.full(along.size, -1, np.int64)
        for j, axis in enumerate(self.points.axes):
            here = np.flatnonzero(along == j)
            if axis.shape is Shape.TREE:
                first[here], last[here] = axis.child_of(low[here], high[here], median[here])
            if axis.shape is not Shape.RANGE:
                loose[here] = True
            elif axis.missing >= 0:
                mixed = here[(high[here] == axis.missing) & (low[here] != axis.missing)]
                alone[mixed] = axis.missing
        part = np.arange(along.size, dtype=np.uint64) << self.value_bits

        def at(position: Whole) -> Whole:
            return np.searchsorted(keys, part + position.astype(np.uint64))

        under, upto = at(first), at(last + 1)
        candidates: list[_Cuts] = []
        if (alone >= 0).any():
            # a missing value beside others is printed as a set with a hole in it: cut it off first where that can be
            places = np.where(alone >= 0, at(np.maximum(alone, 0)), front.starts)
            candidates.append(_Cuts(places, summed[places] - base))
        if equal.any():
            places = np.where(equal, np.searchsorted(summed, base + half), front.starts)
            candidates.append(_Cuts(places, summed[places] - base))
        lower, upper = summed[under] - base, summed[upto] - base
        nearer = np.abs(lower - half) < np.abs(upper - half)
        candidates += [
            _Cuts(np.where(nearer, under, upto), np.where(nearer, lower, upper)),
            _Cuts(np.where(nearer, upto, under), np.where(nearer, upper, lower)),
        ]
        cut = np.zeros(along.size, np.bool_)
        places, before = front.starts.copy(), np.zeros(along.size, np.int64)
        for candidate in candidates:
            self._try(front, cut, candidate, places, before)
        if loose.any():
            # neither side of the middle value is large enough, but both together may be: categories have no order
            apart = ~cut & loose & ~equal & (upper - lower >= self.points.least) & (lower > 0) & (upper < front.sizes)
            apart &= front.sizes - (upper - lower) >= self.points.least
            if apart.any():
                _to_the_front(front, apart, under, upto)
                taken = np.where(apart, front.starts + upto - under, front.starts)
                self._try(front, cut, _Cuts(taken, np.where(apart, upper - lower, 0)), places, before)
        return cut, places, before

    def _try(self, front: _Front, cut: Mask, candidate: _Cuts, places: Whole, before: Whole) -> None:
        """Take a candidate where none was taken before, if both sides are large enough and satisfy the models."""
        least = self.points.least
        good = ~cut & (candidate.before >= least) & (front.sizes - candidate.before >= least)
        if self.points.permits is not None and good.any():
            which = np.flatnonzero(good)
            counts = front.counts()
            rows = front.rows[np.repeat(good, counts)]
            part = np.repeat(np.arange(which.size, dtype=np.int64), counts[which])
            place = np.flatnonzero(np.repeat(good, counts))
            side = 2 * part + (place >= np.repeat(candidate.places[which], counts[which]))
            holds = self.points.permits(rows, side, 2 * which.size)
            good[which] = holds[0::2] & holds[1::2]
        cut |= good
        places[good], before[good] = candidate.places[good], candidate.before[good]

    def _children(self, front: _Front, along: Whole, equal: Mask, cut: Mask, places: Whole, before: Whole) -> _Front:
        """The front after the cuts: the halves, those at once finished that are too small to be cut again."""
        front.spent[np.flatnonzero(~cut), along[~cut]] = np.where(equal, _NOTHING, _ONLY_RELAXED)[~cut]
        if not cut.any():
            return front
        copies = np.where(cut, 2, 1)
        first = np.cumsum(copies) - copies
        second = first[cut] + 1
        number = int(copies.sum())
        starts, sizes = np.empty(number, np.int64), np.empty(number, np.int64)
        starts[first], sizes[first] = front.starts, np.where(cut, before, front.sizes)
        starts[second], sizes[second] = places[cut], (front.sizes - before)[cut]
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
            rows = grown.rows[np.repeat(new, grown.counts())]
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
        tree = np.array([axis.shape is Shape.TREE for axis in self.points.axes])
        return ~tree[None, :] | (widths == parents)

    def _widths(self, rows: Rows, starts: Whole) -> npt.NDArray[np.float64]:
        """The weighted share of each axis that each part covers: a line for each part."""
        columns = []
        for axis, positions in zip(self.points.axes, self.points.positions, strict=True):
            columns.append(axis.weight * axis.share(positions[rows], starts))
        return np.stack(columns, axis=1)


def _to_the_front(front: _Front, parts: Mask, under: Whole, upto: Whole) -> None:
    """Within some parts, move the points of the block [under, upto) before those that were in front of it."""
    counts = front.counts()
    place = np.flatnonzero(np.repeat(parts, counts))
    which = np.repeat(np.flatnonzero(parts), counts[parts])
    begin, block = front.starts[which], (upto - under)[which]
    inside = (place >= under[which]) & (place < upto[which])
    target = np.where(inside, place - under[which] + begin, np.where(place < under[which], place + block, place))
    moved = front.rows[place]
    front.rows[target] = moved
