"""Mondrian: k-anonymity by cutting the table into ever smaller parts (LeFevre, DeWitt & Ramakrishnan 2006).

A part is cut at the median of the quasi-identifier that covers most in it, as long as both halves satisfy every model;
what is printed for a part is the tightest range, set or label around its rows. *Strict* cuts keep equal values
together, so that classes are boxes of which no two share a point; *relaxed* ones may put rows with the median value on
either side, so that halves are equal and detail is kept where a value is frequent, at the price of ranges that touch.
Which of the rows with that value go where is decided by their order in the table. In a hierarchy the label of one class
may stand for values of another: what is left when Rome has a class of its own is still printed as Europe.

Whatever a cut leaves behind satisfies the models, and so does the result; it is checked again at the end, on the
classes as they are printed.

It claims no privacy loss. Which rows fall into one class depends on the data, and an attacker who knows the algorithm
may draw conclusions from where it stopped (Wong et al. 2007).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dither.anonymize.attributes import Attribute
from dither.anonymize.configuration import Configuration, configured
from dither.anonymize.encoding import Encoded, encode
from dither.anonymize.hierarchy.hierarchies import Hierarchy
from dither.anonymize.models.catalogue import KAnonymity, KMap, Model, Overall
from dither.anonymize.partition.splits import Points, partition
from dither.anonymize.releases.printing import PrintedColumn
from dither.anonymize.releases.quasi_identifier_axis import Axis, narrow_for
from dither.anonymize.releases.release import Release
from dither.anonymize.table.classes import Classes, Histogram
from dither.anonymize.table.read import as_table
from dither.anonymize.table.row_keys import keys_of, order_of
from dither.anonymize.table.values import Bools, Counts
from dither.errors import InvalidParameter
from dither.numeric import positive_int
from dither.progress import Watch, part_of, unwatched

Whole: TypeAlias = npt.NDArray[Any]
S = TypeVar("S")
T = TypeVar("T")

# Equal rows are merged before cutting unless more than this share of them is left.
_MOSTLY_DIFFERENT = 0.8


def mondrian(
    table: Any,
    configuration: Configuration | None = None,
    *,
    quasi: Sequence[str | Attribute] | Mapping[str, Hierarchy | None] = (),
    sensitive: Sequence[str | Attribute] | Mapping[str, Hierarchy | None] = (),
    identifying: Sequence[str] = (),
    insensitive: Sequence[str] = (),
    k: int | None = None,
    models: Iterable[Model] = (),
    weights: Mapping[str, float] | None = None,
    strict: bool = True,
    workers: int | None = None,
    watch: Watch = unwatched,
) -> Release:
    """A release of the table, as detailed as cutting at medians makes it, whose classes satisfy every model.

    Say what the columns are by a configuration, or by the keywords that ``Configuration.of`` takes. Nobody is
    suppressed.

    Assumes: that one row is one person; people with several rows are told apart by nothing here.

    Args:
        table: Anything that ``as_table`` reads.
        configuration: Roles and models, in place of the keywords down to ``weights``.
        quasi: What others may know of a person, as in ``Configuration.of``.
        sensitive: What nobody should learn of a person; kept as it is.
        identifying: Columns to remove, as are those that are named nowhere.
        insensitive: Columns to keep that are neither known nor harmful.
        k: How many rows must look alike at least.
        models: What every class must satisfy, besides ``k``.
        weights: How much a quasi-identifier's detail matters; 1 where none is given.
        strict: Whether equal values stay together; else rows with the median value may go to either side.
        workers: In how many threads columns are read and printed: as many as there are cores, at most four. It changes
            nothing but the time.
        watch: Called with the share that is done and a few words; it may raise to stop.

    Raises:
        InvalidParameter: If the table doesn't suit the configuration, or no release can satisfy it.

    Example:
        >>> ages = pa.table({"age": [31, 33, 38, 52, 55, 59], "ill": [True, False, True, False, True, False]})
        >>> mondrian(ages, quasi=["age"], sensitive=["ill"], k=3).table.column("age").to_pylist()
        ['31–38', '31–38', '31–38', '52–59', '52–59', '52–59']
    """
    arrow = as_table(table)
    asked = configured(
        arrow,
        configuration,
        quasi=quasi,
        sensitive=sensitive,
        identifying=identifying,
        insensitive=insensitive,
        k=k,
        models=tuple(models),
        weights=weights,
    )
    watch(0.0, "reading columns")
    threads = min(4, os.cpu_count() or 1) if workers is None else positive_int(workers, "workers")
    axes = tuple(_each(partial(_axis, arrow), asked.quasi, threads))
    rules = _Rules(arrow, asked)
    rules.expect_possible()
    classes, cells = _cut(axes, rules, strict=strict, threads=threads, watch=watch)
    release = Release.of(arrow, asked, classes, cells, how=f"mondrian {'strict' if strict else 'relaxed'}")
    watch(0.95, "checking")
    rules.expect_satisfied(release.classes)
    watch(1.0, "done")
    return release


def _axis(table: pa.Table, attribute: Attribute) -> Axis:
    axis = Axis.of(encode(table, attribute), attribute)
    pa.default_memory_pool().release_unused()
    return axis


def _printed(axis: Axis, positions: Whole, starts: Counts) -> PrintedColumn:
    cells = PrintedColumn.of_sorted(axis, positions, starts)
    # Arrow keeps what it needed meanwhile for later, which is more than the result
    pa.default_memory_pool().release_unused()
    return cells


def _each(work: Callable[[S], T], items: Iterable[S], threads: int) -> list[T]:
    """The work on each item, in order; numpy and Arrow let other threads run during theirs."""
    if threads == 1:
        return [work(item) for item in items]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, items))


def _cut(
    axes: tuple[Axis, ...], rules: _Rules, *, strict: bool, threads: int, watch: Watch
) -> tuple[Classes, list[PrintedColumn]]:
    """The classes, and what is printed for each."""
    points, point_of_row = _points(axes, rules, strict=strict)
    label, number = partition(points, part_of(watch, 0.1, 0.8))
    watch(0.8, "printing")
    order = order_of(label, number)
    counts = np.bincount(label, minlength=number)
    starts = np.cumsum(counts) - counts
    columns = list(zip(axes, points.positions, strict=True))
    cells = _each(lambda column: _printed(column[0], column[1][order], starts), columns, threads)
    return Classes.of(label if point_of_row is None else label[point_of_row], number), cells


def _points(axes: tuple[Axis, ...], rules: _Rules, *, strict: bool) -> tuple[Points, Whole | None]:
    """What is cut, and which point each row is in; None if every row is a point."""
    columns: list[Whole] = [axis.positions for axis in axes]
    weights: Counts | None = None
    point_of_row: Whole | None = None
    # rows are points where equal ones may be separated
    merged = _alike(columns, [axis.size for axis in axes]) if strict else None
    if merged is not None:
        first, point_of_row, weights = merged
        columns = [column[first] for column in columns]
    wide = max(axis.size for axis in axes)
    narrow = np.uint8 if wide <= 1 << 8 else np.uint16 if wide <= 1 << 16 else np.uint32
    positions = np.empty((len(axes), columns[0].size), narrow)
    for line, column in zip(positions, columns, strict=True):
        line[:] = column
    points = Points(
        axes=axes,
        positions=positions,
        weights=weights,
        least=rules.configuration.least,
        strict=strict,
        permits=rules.at_points(weights, point_of_row),
    )
    return points, point_of_row


def _alike(columns: list[Whole], sizes: list[int]) -> tuple[Whole, Whole, Counts] | None:
    """Rows that agree as one: the first of each, which one each row became, and how many there were of each.

    None if most differ: then merging them would save no work and cost memory.
    """
    keys, bound = keys_of(columns, sizes)
    order = order_of(keys, bound)
    keys = keys[order]
    new = np.append(np.ones(1, np.bool_), keys[1:] != keys[:-1])
    del keys
    begins = np.flatnonzero(new)
    if begins.size > _MOSTLY_DIFFERENT * order.size:
        return None
    became = np.empty(order.size, narrow_for(order.size))
    became[order] = np.cumsum(new, dtype=became.dtype) - 1
    return order[begins], became, np.diff(begins, append=order.size)


class _Rules:
    """The models of a configuration, ready to be asked about any parts of a table."""

    def __init__(self, table: pa.Table, configuration: Configuration) -> None:
        self.configuration = configuration
        wanted = {model.sensitive for model in configuration.models}
        self.columns: dict[str, Encoded] = {
            attribute.name: encode(table, attribute)
            for attribute in configuration.sensitive
            if attribute.name in wanted
        }
        self.overall = {name: Overall.of(column) for name, column in self.columns.items()}
        quasi = [attribute.name for attribute in configuration.quasi]
        self.people = {
            number: model.of_rows(table, quasi)
            for number, model in enumerate(configuration.models)
            if isinstance(model, KMap)
        }
        self.rows = table.num_rows

    def _failing(self, classes: Classes) -> list[Model]:
        found = []
        for number, model in enumerate(self.configuration.models):
            name = model.sensitive
            column, overall = (None, None) if name is None else (self.columns[name], self.overall[name])
            if not model.holds(classes, column, overall=overall, population=self.people.get(number)).all():
                found.append(model)
        return found

    def expect_possible(self) -> None:
        """Raise if a monotone model fails for the whole table as one class: then it fails for every release."""
        failing = [model for model in self._failing(Classes.of(np.zeros(self.rows, np.int32))) if model.monotone]
        if failing:
            raise InvalidParameter(
                f"no release can satisfy {failing[0].sentence()}: the whole table as one class doesn't; ask for less"
            )

    def expect_satisfied(self, classes: Classes) -> None:
        """Raise if a class fails; only a model that isn't monotone can."""
        failing = self._failing(classes)
        if failing:
            raise InvalidParameter(
                f"cutting at medians found no release that satisfies {failing[0].sentence()}: ask for less, or use "
                "a model that merging classes can't break"
            )

    def at_points(self, weights: Counts | None, point_of_row: Whole | None) -> _AtPoints | None:
        """The models as a question about points; None if the size of a class is all that they look at."""
        if all(isinstance(model, KAnonymity) for model in self.configuration.models):
            return None
        if point_of_row is None:
            point_of_row = np.arange(self.rows)
        number = self.rows if weights is None else weights.size
        return _AtPoints(
            models=self.configuration.models,
            weights=weights,
            overall=self.overall,
            histograms={
                name: Histogram.of(point_of_row, column.codes, number=number, size=column.size)
                for name, column in self.columns.items()
            },
            people={
                model: np.bincount(point_of_row, weights=people, minlength=number).astype(np.int64)
                for model, people in self.people.items()
            },
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _AtPoints:
    """Whether parts made of points satisfy the models, from counts of the points alone."""

    models: tuple[Model, ...]
    weights: Counts | None
    overall: dict[str, Overall]
    histograms: dict[str, Histogram]
    people: dict[int, Counts]

    def __call__(self, points: npt.NDArray[Any], part: Counts, number: int) -> Bools:
        weights = None if self.weights is None else self.weights[points]
        sizes = np.bincount(part, weights=weights, minlength=number).astype(np.int64)
        counted = {name: _some(histogram, points).merged(part, number) for name, histogram in self.histograms.items()}
        good = np.ones(number, np.bool_)
        for place, model in enumerate(self.models):
            name, people = model.sensitive, self.people.get(place)
            if people is not None:
                people = np.bincount(part, weights=people[points], minlength=number).astype(np.int64)
            if name is None:
                good &= model.check(sizes, population=people)
            else:
                good &= model.check(sizes, counted[name], self.overall[name], people)
        return good


def _some(histogram: Histogram, points: npt.NDArray[Any]) -> Histogram:
    """The histogram of some of its classes, in the order given."""
    begin = histogram.starts[points]
    counts = histogram.starts[points + 1] - begin
    starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
    entries = np.repeat(begin - starts[:-1], counts) + np.arange(int(starts[-1]))
    return Histogram(
        starts=starts, codes=histogram.codes[entries], counts=histogram.counts[entries], size=histogram.size
    )
