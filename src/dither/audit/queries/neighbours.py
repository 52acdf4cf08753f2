"""The neighbour test: does one unit move the exact cells of a question by no more than the price assumed?

A question is bound and priced from public facts, and measured twice with one salt: on some tables and on a neighbour of
theirs, in which one unit is missing (add_remove) or has other rows (replace). What differs between the two is all that
noise has to hide, so every distance that a loss was computed from is checked here: each cell, each vector of cells in
both norms, each histogram, the counts by which keys are selected, and how many groups move at all.

A pass is evidence for these tables and this salt; a breach is a proof that the claim is wrong.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dither.engines.opening import open_engine
from dither.errors import InvalidParameter
from dither.privacy import Adjacency
from dither.query.aggregates.base import Cell
from dither.query.kinds import Kind
from dither.query.measure.measures import BinCounts, Measured
from dither.query.plan.plan import Distinct, FilterRows, JoinRows, PerUnit, Project, Relation, Scan, Union, Window
from dither.query.price.noise import Priced, QueryBudget, price
from dither.query.schema import Schema
from dither.query.sql import bind

Group: TypeAlias = tuple[Any, ...]
Moved: TypeAlias = dict[Group, int]

# Any budget will do: distances don't depend on it. Keys can be discovered with this one.
BUDGET = QueryBudget(kind="zcdp", main=Fraction(1), delta=Fraction(1, 10**6))
SALT = b"the same salt for both"


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """Two databases that differ in one unit: the tables by name, once with and once without it or with its like."""

    before: Mapping[str, pa.Table]
    after: Mapping[str, pa.Table]
    adjacency: Adjacency


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """A claim that didn't hold: how far things may move and how far they did; ``place`` is the cell or histogram.

    Made from exact cells, so it is for the owner's side only, like everything about this test.
    """

    fault: Fault
    place: int
    claimed: int
    found: int


class Fault(Enum):
    """What one unit did that the price doesn't cover."""

    CELL = "a cell moved further than one unit's part in it"
    L1 = "all groups of a cell together moved further than claimed in l1"
    L2 = "all groups of a cell together moved further than claimed in l2"
    GROUPS = "more groups moved than one unit may be in"
    HISTOGRAM = "a histogram moved by more rows than one unit may have in a group"
    ONE_WAY = "a unit that leaves made a count larger"
    SELECTION = "the number of units of a group moved by more than one"
    KEYS = "a group has a key that isn't public"


def neighbour_of(
    tables: Mapping[str, pa.Table], schema: Schema, unit: object, *, replacement: Mapping[str, pa.Table] | None = None
) -> Neighbours:
    """The tables and those without a unit's rows; with ``replacement``, other rows stand in their place.

    Rows of public tables stay.

    Args:
        tables: All tables, by name.
        schema: Which of them are private, and whose their rows are.
        unit: The id, or (table, row number) where every row is a unit.
        replacement: Rows that stand in the unit's place, by table; none by default.
    """
    after = dict(tables)
    removed = 0
    for name, facts in schema.tables.items():
        if not facts.private:
            continue
        table = tables[name]
        ids = table.column(facts.unit_column).to_pylist() if facts.unit_column is not None else None
        others = [
            row
            for row in range(table.num_rows)
            if (ids[row] is None or ids[row] != unit if ids else (name, row) != unit)
        ]
        rest = table.take(pa.array(others, type=pa.int64()))
        removed += table.num_rows - rest.num_rows
        extra = (replacement or {}).get(name)
        after[name] = rest if extra is None else pa.concat_tables([rest, extra.cast(rest.schema)])
    if not removed:
        raise InvalidParameter("there are no rows of this unit: give an id that occurs, or (table, row number)")
    adjacency = Adjacency.ADD_REMOVE if replacement is None else Adjacency.REPLACE
    return Neighbours(before=dict(tables), after=after, adjacency=adjacency)


def check_question(sql: str, schema: Schema, neighbours: Neighbours, *, salt: bytes = SALT) -> tuple[Breach, ...]:
    """Bind, price and measure a question on both neighbours with the DuckDB engine; what the claims don't cover.

    Args:
        sql: The question.
        schema: What is public about the tables.
        neighbours: Both databases; the tables have Arrow types that suit the schema's kinds.
        salt: Decides which groups and rows of a unit count, the same ones on both sides.

    Raises:
        Refused: Where the question would be refused.

    Example:
        >>> from dither.query.kinds import Kind
        >>> from dither.query.schema import ColumnFacts, TableFacts
        >>> user = ColumnFacts(name="user", kind=Kind.INTEGER)
        >>> visits = TableFacts(name="visits", private=True, columns={"user": user}, unit_column="user", rows=2)
        >>> schema, tables = Schema({"visits": visits}), {"visits": pa.table({"user": [1, 1, 1, 2]})}
        >>> check_question("SELECT COUNT(*) FROM visits", schema, neighbour_of(tables, schema, 1))
        ()
    """
    priced = price(bind(sql, schema).aggregation, BUDGET, neighbours.adjacency)
    with tempfile.TemporaryDirectory(prefix="dither-") as folder:
        measured = []
        for side, tables in (("before", neighbours.before), ("after", neighbours.after)):
            files = {name: Path(folder) / f"{side}{place}.parquet" for place, name in enumerate(schema.tables)}
            for name, file in files.items():
                pq.write_table(tables[name], file)
            with open_engine(files, schema, threads=1) as engine:
                measured.append(engine.run(priced.measurement, salt=salt))
    return breaches(priced, *measured)


def reading(relation: Relation, tables: Mapping[str, str]) -> Relation:
    """The same relation over other tables, so that both neighbours can be tables of one database.

    Args:
        relation: The relation of a question.
        tables: For each table, the one to read in its place.
    """
    match relation:
        case Scan():
            return replace(relation, table=tables.get(relation.table, relation.table))
        case JoinRows():
            return replace(relation, left=reading(relation.left, tables), right=reading(relation.right, tables))
        case Union():
            return replace(relation, inputs=tuple(reading(part, tables) for part in relation.inputs))
        case FilterRows() | Project() | Distinct() | PerUnit() | Window():
            return replace(relation, input=reading(relation.input, tables))


# ------------------------------------------------------------------ comparing


def breaches(priced: Priced, before: Measured, after: Measured) -> tuple[Breach, ...]:
    """Everything in which two measurements of neighbours differ by more than the price assumed.

    Args:
        priced: The question with its price.
        before: What was measured with the unit.
        after: What was measured without it, or with another in its place.
    """
    span, adjacency = priced.lowered.span, priced.adjacency
    most = span.groups if adjacency is Adjacency.ADD_REMOVE else span.most_moved
    found: list[Breach] = []
    touched: set[Group] = set()
    for block in priced.lowered.blocks:
        moves = []
        for place in block:
            cell = priced.lowered.cells[place]
            old, new = numbers_of(priced, cell, before), numbers_of(priced, cell, after)
            moves.append(moved_groups(priced, old, new, before, after))
            touched |= moves[-1].keys()
            found += _of_one_cell(place, cell, moves[-1], adjacency)
        # a basis moves as far as one cell would
        amounts = [change for moved in moves for change in moved.values()]
        reach = priced.reaches[block[0]]
        found += _over(Fault.L1, block[0], reach.l1, sum(map(abs, amounts)))
        found += _over(Fault.L2, block[0], reach.l2_squared, sum(amount**2 for amount in amounts))
    for place in range(len(priced.measurement.bins)):
        changes = bin_changes(priced, before, after, place)
        touched |= changes.keys()
        found += _of_one_histogram(place, changes, priced.measurement.rows, adjacency)
    if priced.lowered.units is not None:
        place = priced.lowered.units
        moved = moved_groups(priced, before.totals[place], after.totals[place], before, after)
        touched |= moved.keys()
        for change in moved.values():
            found += _over(Fault.SELECTION, place, 1, abs(change))
            found += _one_way(place, change, adjacency)
    # counts of groups that no cell tells of would be seen too, if their keys were shown
    found += _over(Fault.GROUPS, 0, most, len(touched))
    found += [replace(breach, place=0) for side in (before, after) for breach in _odd_keys(priced, side)]
    return tuple(found)


def difference(left: Measured, right: Measured, priced: Priced) -> bool:
    """Whether two measurements of the same data say anything different.

    Args:
        left: One measurement.
        right: The other.
        priced: The question that both are of.
    """
    if groups_of(priced, left) != groups_of(priced, right):
        return True
    numbers = [*zip(left.totals, right.totals, strict=True), *zip(left.distinct, right.distinct, strict=True)]
    if not all(np.array_equal(a, b) for a, b in numbers):
        return True
    return any(
        _counts(priced, left, a) != _counts(priced, right, b) for a, b in zip(left.bins, right.bins, strict=True)
    )


def _over(fault: Fault, place: int, claimed: int, found: int) -> list[Breach]:
    return [Breach(fault=fault, place=place, claimed=claimed, found=found)] if found > claimed else []


def _one_way(place: int, change: int, adjacency: Adjacency) -> list[Breach]:
    """Counts never grow when a unit leaves; ``change`` is after minus before."""
    return _over(Fault.ONE_WAY, place, 0, change) if adjacency is Adjacency.ADD_REMOVE else []


def _of_one_cell(place: int, cell: Cell, moved: Moved, adjacency: Adjacency) -> list[Breach]:
    low, high = min(cell.low, 0), max(cell.high, 0)
    found: list[Breach] = []
    for change in moved.values():
        if adjacency is Adjacency.REPLACE:
            found += _over(Fault.CELL, place, high - low, abs(change))
        else:
            # what the unit took with it lies between the ends of one part; different values may be held by others too
            found += _over(Fault.CELL, place, high, -change)
            found += _over(Fault.CELL, place, -low, change)
    return found


def _of_one_histogram(
    place: int, changes: dict[Group, dict[int, int]], rows: int, adjacency: Adjacency
) -> list[Breach]:
    most = rows if adjacency is Adjacency.ADD_REMOVE else 2 * rows
    found: list[Breach] = []
    for bins in changes.values():
        found += _over(Fault.HISTOGRAM, place, most, sum(map(abs, bins.values())))
        # each side alone is at most one unit's rows
        found += _over(Fault.HISTOGRAM, place, rows, sum(max(change, 0) for change in bins.values()))
        found += _over(Fault.HISTOGRAM, place, rows, sum(max(-change, 0) for change in bins.values()))
        for change in bins.values():
            found += _one_way(place, change, adjacency)
    return found


def numbers_of(priced: Priced, cell: Cell, measured: Measured) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The exact numbers of a cell, one for each group that occurs."""
    return priced.measurement.numbers(cell.exact, measured)


def groups_of(priced: Priced, measured: Measured) -> list[Group]:
    """The groups in their order, each as values that are equal where keys are: one NaN, one zero."""
    if not priced.measurement.keys:
        return [()] * measured.size
    columns = [measured.keys.column(f"k{place}").to_pylist() for place in range(len(priced.measurement.keys))]
    return [tuple(map(_known, values)) for values in zip(*columns, strict=True)]


def _known(value: object) -> object:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def moved_groups(
    priced: Priced,
    old: np.ndarray[Any, np.dtype[np.int64]],
    new: np.ndarray[Any, np.dtype[np.int64]],
    before: Measured,
    after: Measured,
) -> Moved:
    """After minus before for every group where that isn't 0; a group that doesn't occur has 0."""
    change: Moved = {}
    for sign, numbers, side in ((-1, old, before), (1, new, after)):
        for group, number in zip(groups_of(priced, side), numbers.tolist(), strict=True):
            change[group] = change.get(group, 0) + sign * number
    return {group: amount for group, amount in change.items() if amount}


def _counts(priced: Priced, measured: Measured, histogram: BinCounts) -> dict[tuple[Group, int], int]:
    groups = groups_of(priced, measured)
    counts: dict[tuple[Group, int], int] = {}
    for group, where, count in zip(
        histogram.group.tolist(), histogram.bin.tolist(), histogram.count.tolist(), strict=True
    ):
        counts[groups[group], where] = counts.get((groups[group], where), 0) + count
    return counts


def bin_changes(priced: Priced, before: Measured, after: Measured, place: int) -> dict[Group, dict[int, int]]:
    """By how much the counts of a histogram changed, by group and bin, where they did."""
    old, new = (_counts(priced, side, side.bins[place]) for side in (before, after))
    changes: dict[Group, dict[int, int]] = {}
    for group, where in old.keys() | new.keys():
        change = new.get((group, where), 0) - old.get((group, where), 0)
        if change:
            changes.setdefault(group, {})[where] = change
    return changes


def _odd_keys(priced: Priced, measured: Measured) -> list[Breach]:
    """Public keys are filtered before units choose, or a unit would lose groups to keys that nobody sees."""
    allowed = [
        None if key.values is None else {_known(_in_kind(value, key.kind)) for value in key.values}
        for key in priced.measurement.keys
    ]
    odd = (
        sum(
            any(among is not None and value not in among for value, among in zip(group, allowed, strict=True))
            for group in groups_of(priced, measured)
        )
        if priced.measurement.keys
        else 0
    )
    return _over(Fault.KEYS, 0, 0, odd)


def _in_kind(value: Any, kind: Kind) -> Any:
    return float(value) if kind is Kind.DOUBLE and value is not None else value
