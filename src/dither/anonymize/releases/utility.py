"""Whether a classifier still learns from a released table what it would learn from the original.

The classifier is naive Bayes, counting fractions: a cell that stands for m values counts 1/m for each of them, which is
all that a reader of the release knows. It is trained on released rows and tested on original ones, by cross-validation:
the use that somebody has for it who gets the released table and meets new people.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dither.anonymize.attributes import Attribute, Role
from dither.anonymize.encoding import encode
from dither.anonymize.releases.printing import PrintedColumn
from dither.anonymize.releases.quasi_identifier_axis import Axis, AxisShape
from dither.anonymize.releases.release import Release
from dither.anonymize.table.read import as_table
from dither.anonymize.table.values import AxisKind, Counts, Floats
from dither.errors import InvalidParameter
from dither.numeric import positive_int

_MOST_TARGETS = 100
_MOST_BINS = 64
_BINS_OF_A_RANGE = 32
# Rows or classes that are worked on at once, so that memory stays far below that of the table.
_STRETCH = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskUtility:
    """Shares of people whose target a classifier guesses right: trained on released rows, on original ones, not at all.

    ``majority`` is the share of the most frequent value, which needs no training.
    """

    target: str
    released: float
    original: float
    majority: float

    @property
    def kept(self) -> float:
        """How much of what there is to learn beyond the majority is still learned; 1 if there is nothing to learn."""
        gain = self.original - self.majority
        return (self.released - self.majority) / gain if gain > 0 else 1.0

    def __str__(self) -> str:
        return (
            f"{self.target}: {100 * self.released:.1f}% right when trained on the release, {100 * self.original:.1f}% "
            f"on the original, {100 * self.majority:.1f}% by guessing the most frequent value"
        )


def task_utility(release: Release, target: str, *, original: Any, folds: int = 3) -> TaskUtility:
    """How well a classifier predicts a kept column from the quasi-identifiers, after training on the release.

    ``original`` is the table that was released, with its rows in the same order.
    """
    table = as_table(original)
    if table.num_rows != release.classes.of_row.size:
        raise InvalidParameter(
            f"original must be the table that was released, with {release.classes.of_row.size} rows; it has "
            f"{table.num_rows}"
        )
    kept = [a.name for a in release.configuration.attributes if a.role in (Role.SENSITIVE, Role.INSENSITIVE)]
    if target not in kept:
        raise InvalidParameter(f"target must be a column that is kept as it is: one of {', '.join(map(repr, kept))}")
    if positive_int(folds, "folds") < 2:
        raise InvalidParameter("folds must be at least 2: part of the rows are for testing")
    column = encode(table, Attribute(name=target, role=Role.INSENSITIVE, kind=AxisKind.CATEGORY))
    if column.size > _MOST_TARGETS:
        raise InvalidParameter(
            f"target must have at most {_MOST_TARGETS} different values; {target!r} has {column.size}"
        )
    task = _Task(column.codes.astype(np.int64), column.size, folds)
    bins = [_bins(one.axis) for one in release.cells]
    released = [_from_cells(task, release, one, edges) for one, edges in zip(release.cells, bins, strict=True)]
    exact = [_from_values(task, one.axis, edges) for one, edges in zip(release.cells, bins, strict=True)]
    places = [
        np.searchsorted(edges, one.axis.positions, side="right") - 1
        for one, edges in zip(release.cells, bins, strict=True)
    ]
    return TaskUtility(
        target=target,
        released=task.accuracy(released, places, task.prior(release.rows)),
        original=task.accuracy(exact, places, task.prior(np.arange(table.num_rows))),
        majority=float(column.counts.max() / table.num_rows),
    )


class _Task:
    """What is to be predicted, and which rows are tested together."""

    def __init__(self, targets: Counts, size: int, folds: int) -> None:
        self.targets, self.size, self.folds = targets, size, folds
        # multiplying by the golden ratio spreads neighbouring rows evenly, and the same in every run
        spread = (np.arange(targets.size, dtype=np.uint64) * np.uint64(2654435769)) & np.uint64(0xFFFFFFFF)
        self.fold = ((spread * np.uint64(folds)) >> np.uint64(32)).astype(np.int64)
        # one column for each fold and target
        self.cell = self.fold * size + targets

    @property
    def width(self) -> int:
        """How many pairs of fold and target there are."""
        return self.folds * self.size

    def prior(self, rows: Counts) -> Floats:
        """How often each target occurs, fold by fold."""
        return np.bincount(self.cell[rows], minlength=self.width).astype(np.float64)

    def _trained(self, counts: Floats) -> Floats:
        """Counts (…, fold × target) of all folds but one, for each fold: (fold, …, target)."""
        by_fold = counts.reshape(*counts.shape[:-1], self.folds, self.size)
        others = by_fold.sum(axis=-2, keepdims=True) - by_fold
        return np.moveaxis(others, -2, 0)

    def accuracy(self, features: list[Floats], places: list[Counts], prior: Floats) -> float:
        """The share of rows whose target is guessed right by what the other folds say."""
        # one more of everything, so that nothing is impossible (Laplace)
        base = np.log(self._trained(prior) + 1.0)
        likelihoods = []
        for counts in features:
            more = self._trained(counts) + 1.0
            likelihoods.append(np.log(more / more.sum(axis=1, keepdims=True)))
        right = 0
        for begin in range(0, self.targets.size, _STRETCH):
            some = slice(begin, begin + _STRETCH)
            fold = self.fold[some]
            score = base[fold]
            for likelihood, place in zip(likelihoods, places, strict=True):
                score = score + likelihood[fold, place[some]]
            right += int((score.argmax(axis=1) == self.targets[some]).sum())
        return right / self.targets.size


def _bins(axis: Axis) -> Counts:
    """The first position of each bin; bins are stretches of the axis, and the missing value at its end has its own."""
    if axis.size <= (_BINS_OF_A_RANGE if axis.shape is AxisShape.RANGE else _MOST_BINS):
        return np.arange(axis.size)
    if axis.shape is AxisShape.SET:
        # the most frequent categories, and all others together
        return np.arange(_MOST_BINS)
    summed = np.cumsum(axis.counts)
    wanted = np.arange(_BINS_OF_A_RANGE) * (int(summed[-1]) / _BINS_OF_A_RANGE)
    edges = np.unique(np.append(0, np.searchsorted(summed, wanted, side="right")))
    return np.union1d(edges, [axis.missing]) if axis.missing == axis.size - 1 else edges


def _from_values(task: _Task, axis: Axis, edges: Counts) -> Floats:
    """How often each bin occurs with each target, fold by fold, in the original."""
    place = np.searchsorted(edges, axis.positions, side="right") - 1
    counts = np.bincount(place * task.width + task.cell, minlength=edges.size * task.width)
    return counts.astype(np.float64).reshape(edges.size, task.width)


def _from_cells(task: _Task, release: Release, one: PrintedColumn, edges: Counts) -> Floats:
    """How often each bin occurs with each target, fold by fold, as far as the release tells."""
    total = np.zeros((edges.size, task.width))
    ends = np.cumsum(release.classes.sizes)
    # rows of a release stand class by class
    for begin in range(0, release.classes.number, _STRETCH):
        end = min(begin + _STRETCH, release.classes.number)
        rows = release.rows[int(ends[begin] - release.classes.sizes[begin]) : int(ends[end - 1])]
        inside = release.classes.of_row[rows].astype(np.int64) - begin
        counts = np.bincount(inside * task.width + task.cell[rows], minlength=(end - begin) * task.width)
        shares = _shares(one.take(np.arange(begin, end)), edges)
        total += shares.T @ counts.reshape(end - begin, task.width)
    return total


def _shares(one: PrintedColumn, edges: Counts) -> Floats:
    """Which share of the values that each cell stands for lies in each bin: a line for each cell."""
    number = len(one.texts)
    if one.members is not None:
        part, position = one.members
        place = np.searchsorted(edges, position, side="right") - 1
        found: npt.NDArray[Any] = np.bincount(part.astype(np.int64) * edges.size + place, minlength=number * edges.size)
        found = found.reshape(number, edges.size).astype(np.float64)
    else:
        upper = np.append(edges[1:], one.axis.size)
        overlap = np.minimum(one.high[:, None] + 1, upper) - np.maximum(one.low[:, None], edges)
        found = np.maximum(overlap, 0).astype(np.float64)
        missing = one.axis.missing
        outside = one.or_missing & ((missing < one.low) | (missing > one.high))
        found[outside, -1] += 1.0
    shares: Floats = found / found.sum(axis=1, keepdims=True)
    return shares
