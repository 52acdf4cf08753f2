"""Whether a release tells the truth about the table that it was made from; part of the verifier."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dither.anonymize.attributes import Attribute, Role
from dither.anonymize.configuration import Configuration
from dither.anonymize.models.catalogue import KMap
from dither.anonymize.table.values import ANYTHING, Bools, Counts
from dither.anonymize.verifier.findings import Flaw, Problem
from dither.anonymize.verifier.grouping import Coded, Printed, Sorts
from dither.anonymize.verifier.matching import Fit, fitting, placed, spread
from dither.anonymize.verifier.parse import read_cells
from dither.errors import InvalidParameter

# Beyond this many pairs of an original row and a class that it fits, rows aren't matched.
MOST_FITTING = 50_000_000


def people(model: KMap, printed: Printed, quasi: list[Attribute]) -> list[int]:
    """How many people of a population each class stands for."""
    found = np.zeros(printed.groups.number, np.int64)
    population = model.population
    lacking = [attribute.name for attribute in quasi if attribute.name not in population.column_names]
    if lacking:
        raise InvalidParameter(f"the population has no column {', '.join(map(repr, lacking))}")
    fits = [_fit(printed, attribute, Coded.of(population.column(attribute.name))) for attribute in quasi]
    sorts = Sorts.of([(codes, fit.reading.domain) for fit, codes in fits], population.num_rows)
    numbers = sorts.rows
    if model.count is not None:
        numbers = np.zeros(sorts.number, np.int64)
        np.add.at(numbers, sorts.of_row, np.asarray(population.column(model.count)).astype(np.int64))
    if fits:
        for row, group in fitting([(fit, codes[sorts.first]) for fit, codes in fits], found.size):
            np.add.at(found, group, numbers[row])
    return [int(number) for number in found]


def untruths(
    printed: Printed, configuration: Configuration, original: pa.Table, starred: Bools
) -> Iterator[Flaw | str]:
    """What is wrong with a release against its original, and notes on what couldn't be decided."""
    quasi = [configuration.attribute(name) for name in printed.keys[: printed.width]]
    names = [attribute.name for attribute in quasi]
    lacking = [name for name in (*names, *printed.kept) if name not in original.column_names]
    if lacking:
        raise InvalidParameter(f"the original has no column {', '.join(map(repr, lacking))}")
    rows = printed.groups.of_row.size
    if rows > original.num_rows:
        yield Flaw(
            problem=Problem.TOO_MANY_ROWS,
            text=f"the release has {rows} rows and the original {original.num_rows}",
            count=rows - original.num_rows,
        )
    fits: list[tuple[Fit, Counts]] = []
    for attribute in quasi:
        # cuts are often made between frequent and rare values, which makes matching faster
        column = Coded.of(original.column(attribute.name)).by_frequency()
        fit, codes = _fit(printed, attribute, column)
        fits += [(fit, codes), *_ends(printed, attribute, column)]
        yield from _unreadable(attribute, fit)
    yield from _unexplained(printed, fits, original, starred)


def _fit(printed: Printed, attribute: Attribute, column: Coded) -> tuple[Fit, Counts]:
    """How the texts of a quasi-identifier are read over a column, which each class has, and the column's codes."""
    texts = printed.columns[attribute.name].values.to_pylist()
    return _read(texts, printed.cells(attribute.name), attribute, column)


def _read(texts: list[str | None], cells: Counts, attribute: Attribute, column: Coded) -> tuple[Fit, Counts]:
    # values that the same texts stand for need not be told apart
    reading, became = read_cells(texts, attribute, column.values).merged()
    return Fit(reading, cells), became[column.codes]


def _ends(printed: Printed, attribute: Attribute, column: Coded) -> Iterator[tuple[Fit, Counts]]:
    """Columns with the ends of ranges must tell the truth too; they say nothing about missing values."""
    further = printed.keys[printed.width :]
    low, high = f"{attribute.name}_low", f"{attribute.name}_high"
    if low not in further and high not in further:
        return
    spelled = [_spelled(printed, name) if name in further else None for name in (low, high)]
    texts: dict[str | None, int] = {}
    of_class = []
    for place in range(printed.groups.number):
        ends = [None if column_ is None else column_[place] for column_ in spelled]
        text = ANYTHING if None in ends else f"{{{ends[0]}–{ends[1]}, NULL}}"
        of_class.append(texts.setdefault(text, len(texts)))
    plainly = Attribute(name=attribute.name, role=Role.QUASI, kind=attribute.kind, order=attribute.order)
    yield _read(list(texts), np.array(of_class, np.int64), plainly, column)


def _spelled(printed: Printed, name: str) -> list[str | None]:
    texts = printed.columns[name].values.to_pylist()
    return [texts[code] for code in printed.cells(name).tolist()]


def _unreadable(attribute: Attribute, fit: Fit) -> Iterator[Flaw]:
    number = len(fit.reading.unreadable)
    if not number:
        return
    listed = attribute.hierarchy is not None
    why = "are not labels that its hierarchy has for the original's values" if listed else "can't be read"
    yield Flaw(
        problem=Problem.NOT_IN_HIERARCHY if listed else Problem.NOT_FROM_ORIGINAL,
        text=f"{number} different cells of {attribute.name!r} {why}",
        column=attribute.name,
        count=number,
    )


def _unexplained(
    printed: Printed, fits: list[tuple[Fit, Counts]], original: pa.Table, starred: Bools
) -> Iterator[Flaw | str]:
    """Every released row comes from an original row of its own, with everything that is kept unchanged."""
    groups = printed.groups
    shown = np.flatnonzero(~starred[groups.of_row])
    known, told_before, told = _told(printed, original, shown)
    numbers = max(int(told.max(initial=-1)), int(told_before.max(initial=-1))) + 1
    have = Sorts.of([(codes[known], fit.reading.domain) for fit, codes in fits], known.size)
    originals = Sorts.of([(have.of_row, have.number), (told_before, numbers)], known.size)
    wanted = Sorts.of([(groups.of_row[shown], groups.number), (told, numbers)], shown.size)
    sought = _Sought(
        combination=have.of_row[originals.first],
        told=told_before[originals.first],
        wanted=groups.of_row[shown][wanted.first] * numbers + told[wanted.first],
        numbers=numbers,
    )
    pairs = _pairs([(fit, codes[known][have.first]) for fit, codes in fits], groups.number, sought)
    explained = None if pairs is None else placed(*pairs, originals.rows, wanted.rows)
    if explained is None:
        yield "classes overlap so much that released rows were not matched with original ones one by one"
    elif explained < shown.size:
        yield Flaw(
            problem=Problem.NOT_FROM_ORIGINAL,
            text=f"{shown.size - explained} of {shown.size} released rows come from no original row: a cell doesn't "
            "stand for the value that was there, or something that is kept was changed",
            count=shown.size - explained,
        )


def _told(printed: Printed, original: pa.Table, shown: Counts) -> tuple[Counts, Counts, Counts]:
    """What is kept of each row as one number, the same in the original and in the release.

    Original rows that say something that no released row says can't be behind one, and are left out: which are left,
    their numbers, and those of the shown released rows.
    """
    known = np.ones(original.num_rows, bool)
    columns = []
    for name in printed.kept:
        ours = printed.columns[name]
        theirs = Coded.printed(original.column(name))
        place: Any = pc.index_in(theirs.values, value_set=ours.values)
        codes = place.fill_null(-1).to_numpy(zero_copy_only=False)[theirs.codes].astype(np.int64)
        known &= codes >= 0
        columns.append((codes, ours.codes[shown], ours.size))
    left = np.flatnonzero(known)
    both = [(np.concatenate((before[left], now)), size) for before, now, size in columns]
    numbers = Sorts.of(both, left.size + shown.size).of_row
    return left, numbers[: left.size], numbers[left.size :]


class _Sought:
    """Which sorts of released rows an original combination may be, by class and by what is kept."""

    def __init__(self, *, combination: Counts, told: Counts, wanted: Counts, numbers: int) -> None:
        self.order = np.argsort(combination, kind="stable")
        self.told = told[self.order]
        self.begins = np.searchsorted(combination[self.order], np.arange(combination.max(initial=-1) + 2))
        self.place = np.argsort(wanted)
        self.wanted = wanted[self.place]
        self.numbers = numbers

    def found(self, combination: Counts, group: Counts) -> tuple[Counts, Counts]:
        """For pairs of a combination and a class: sorts of original rows, and the sorts of released rows they fit."""
        if not self.wanted.size:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        first = self.begins[combination]
        place, group = spread(first, self.begins[combination + 1] - first, group)
        key = group * self.numbers + self.told[place]
        near = np.minimum(np.searchsorted(self.wanted, key), self.wanted.size - 1)
        same = self.wanted[near] == key
        return self.order[place[same]], self.place[near[same]]


def _pairs(fits: list[tuple[Fit, Counts]], classes: int, sought: _Sought) -> tuple[Counts, Counts] | None:
    """Which sorts of original rows may be which sorts of released ones; ``None`` if they are too many."""
    rows, found = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    looked = 0
    if fits:
        for row, group in fitting(fits, classes):
            looked += row.size
            if looked > MOST_FITTING:
                return None
            original, released = sought.found(row, group)
            rows.append(original)
            found.append(released)
    return np.concatenate(rows), np.concatenate(found)
