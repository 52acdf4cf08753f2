"""Whether a release tells the truth about the table that it was made from; part of the verifier."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from dither.anonymize.attributes import Attribute, Configuration, Role
from dither.anonymize.findings import Finding, Problem
from dither.anonymize.grouping import Printed, distinct, texts_of
from dither.anonymize.matching import Fit, fitting, placed
from dither.anonymize.models import KMap
from dither.anonymize.printed import read_cells
from dither.anonymize.values import ANYTHING, Counts
from dither.errors import InvalidParameter


def people(model: KMap, printed: Printed, quasi: list[Attribute]) -> list[int]:
    """How many people of a population each class stands for."""
    found = np.zeros(len(printed.groups), np.int64)
    lacking = [attribute.name for attribute in quasi if attribute.name not in model.population.column_names]
    if lacking:
        raise InvalidParameter(f"the population has no column {', '.join(map(repr, lacking))}")
    columns, numbers = distinct(model.population, [attribute.name for attribute in quasi], model.count)
    fits = [
        (_fit(printed, attribute, place, values), codes)
        for place, (attribute, (values, codes)) in enumerate(zip(quasi, columns, strict=True))
    ]
    if printed.groups and numbers.size:
        for row, group in fitting(fits, len(printed.groups)):
            np.add.at(found, group, numbers[row])
    return [int(number) for number in found]


def untruths(
    printed: Printed, configuration: Configuration, original: pa.Table, starred: set[int]
) -> Iterator[Finding | str]:
    """What is wrong with a release against its original, and notes on what couldn't be decided."""
    quasi = [configuration.attribute(name) for name in printed.keys[: printed.width]]
    names = [attribute.name for attribute in quasi]
    lacking = [name for name in (*names, *printed.kept) if name not in original.column_names]
    if lacking:
        raise InvalidParameter(f"the original has no column {', '.join(map(repr, lacking))}")
    rows = printed.texts.num_rows
    if rows > original.num_rows:
        yield Finding(
            problem=Problem.TOO_MANY_ROWS,
            text=f"the release has {rows} rows and the original {original.num_rows}",
            count=rows - original.num_rows,
        )
    columns_of: dict[str, Any] = {f"quasi {place}": original.column(name) for place, name in enumerate(names)}
    columns_of |= {f"kept {place}": texts_of(original.column(name)) for place, name in enumerate(printed.kept)}
    known = pa.table(columns_of)
    columns, have = distinct(known, known.column_names)
    fits = []
    for place, attribute in enumerate(quasi):
        values, codes = columns[place]
        fit = _fit(printed, attribute, place, values)
        fits += [(fit, codes), *_ends(printed, attribute, values, codes)]
        yield from _unreadable(attribute, fit)
    yield from _unexplained(printed, fits, columns[len(quasi) :], have, starred)


def _fit(printed: Printed, attribute: Attribute, place: int, domain: Any) -> Fit:
    """How the texts of a quasi-identifier are read over a domain, and which text each class has."""
    texts: dict[str | None, int] = {}
    of_class = [texts.setdefault(group[place], len(texts)) for group in printed.groups]
    return Fit(read_cells(list(texts), attribute, domain), np.array(of_class, np.int64))


def _ends(printed: Printed, attribute: Attribute, values: Any, codes: Counts) -> Iterator[tuple[Fit, Counts]]:
    """Columns with the ends of ranges must tell the truth too; they say nothing about missing values."""
    further = printed.keys[printed.width :]
    low, high = f"{attribute.name}_low", f"{attribute.name}_high"
    if low not in further and high not in further:
        return
    places = [printed.keys.index(name) if name in further else None for name in (low, high)]
    texts: dict[str | None, int] = {}
    of_class = []
    for group in printed.groups:
        ends = [None if place is None else group[place] for place in places]
        text = ANYTHING if None in ends else f"{{{ends[0]}–{ends[1]}, NULL}}"
        of_class.append(texts.setdefault(text, len(texts)))
    plainly = Attribute(name=attribute.name, role=Role.QUASI, kind=attribute.kind, order=attribute.order)
    yield Fit(read_cells(list(texts), plainly, values), np.array(of_class, np.int64)), codes


def _unreadable(attribute: Attribute, fit: Fit) -> Iterator[Finding]:
    number = len(fit.reading.unreadable)
    if not number:
        return
    listed = attribute.hierarchy is not None
    why = "are not labels that its hierarchy has for the original's values" if listed else "can't be read"
    yield Finding(
        problem=Problem.NOT_IN_HIERARCHY if listed else Problem.NOT_FROM_ORIGINAL,
        text=f"{number} different cells of {attribute.name!r} {why}",
        column=attribute.name,
        count=number,
    )


def _unexplained(
    printed: Printed, fits: list[tuple[Fit, Counts]], kept: list[tuple[Any, Counts]], have: Counts, starred: set[int]
) -> Iterator[Finding | str]:
    """Every released row comes from an original row of its own, with everything that is kept unchanged."""
    sorts: dict[tuple[Any, ...], int] = {}
    need: list[int] = []
    for group, told, number in printed.within(printed.kept):
        if group not in starred:
            sorts[(group, *told)] = len(need)
            need.append(number)
    released = sum(need)
    row, sort = _pairs(fits, _told(kept, have.size), sorts, len(printed.groups))
    explained = placed(row, sort, have, np.array(need, np.int64))
    if explained is None:
        yield "classes overlap so much that released rows were not matched with original ones one by one"
    elif explained < released:
        yield Finding(
            problem=Problem.NOT_FROM_ORIGINAL,
            text=f"{released - explained} of {released} released rows come from no original row: a cell doesn't stand "
            "for the value that was there, or something that is kept was changed",
            count=released - explained,
        )


def _pairs(
    fits: list[tuple[Fit, Counts]], told: list[tuple[Any, ...]], sorts: dict[tuple[Any, ...], int], classes: int
) -> tuple[Counts, Counts]:
    """Which sorts of original rows may be which sorts of released ones."""
    rows, found = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    if told and classes:
        for row, group in fitting(fits, classes):
            pairs = zip(row.tolist(), group.tolist(), strict=True)
            sort = np.fromiter((sorts.get((g, *told[r]), -1) for r, g in pairs), np.int64, row.size)
            rows.append(row[sort >= 0])
            found.append(sort[sort >= 0])
    return np.concatenate(rows), np.concatenate(found)


def _told(kept: list[tuple[Any, Counts]], rows: int) -> list[tuple[Any, ...]]:
    """What is kept of each distinct original row, as text."""
    if not kept:
        return [()] * rows
    spelled = []
    for values, codes in kept:
        texts = values.to_pylist()
        spelled.append([texts[code] for code in codes.tolist()])
    return list(zip(*spelled, strict=True))
