"""The tables on which engines are checked: small, and full of what goes wrong.

NULL, NaN, infinities, −0, empty texts, quotes in names and keys, the ends of 64 bits, dates that other languages don't
have, duplicates, an empty table, rows with a NULL unit id, and one unit that has everything.
"""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import pyarrow as pa

from dither.query.arrow import TYPES
from dither.query.kinds import NOTHING, Kind
from dither.query.plan.plan import PlanField, Scan
from dither.query.schema import ColumnFacts, Schema, TableFacts

Rows: TypeAlias = Sequence[Mapping[str, Any]]
Tables: TypeAlias = Mapping[str, Rows]

B, I, D, T, DA, TS = Kind.BOOLEAN, Kind.INTEGER, Kind.DOUBLE, Kind.TEXT, Kind.DATE, Kind.TIMESTAMP  # noqa: E741
INF, NAN = math.inf, math.nan
LOWEST, HIGHEST = -(2**63), 2**63 - 1
FAR_FUTURE, FAR_PAST = 5_000_000, -5_000_000
"""Days since 1970 in years that dates of Python don't have."""

KINDS: Mapping[str, Mapping[str, Kind]] = MappingProxyType(
    {
        'vis"its': {"who": I, "pl'ace": T, "n": I, "x": D, "ok": B, "day": DA, "at": TS},
        "people": {"who": I, "town": T, "age": I},
        "places": {"name": T, "region": T, "area": D},
        "nothing": {"who": I, "pl'ace": T, "x": D},
        "notes": {"writer": T, "word": T, "y": D},
    }
)
UNITS = MappingProxyType({'vis"its': "who", "people": "who", "nothing": "who", "notes": "writer"})


def schema() -> Schema:
    """The public facts about the tables."""
    return Schema(
        {
            name: TableFacts(
                name=name,
                private=name in UNITS,
                unit_column=UNITS.get(name),
                columns={column: ColumnFacts(name=column, kind=kind) for column, kind in kinds.items()},
            )
            for name, kinds in KINDS.items()
        }
    )


def tables() -> dict[str, list[dict[str, Any]]]:
    """Fresh copies of all rows."""
    day, moment = dt.date, dt.datetime
    visits = [
        (1, "north", 1, 0.5, True, day(2024, 1, 1), moment(2024, 1, 1, 10, 0)),
        (1, "north", 1, 0.5, True, day(2024, 1, 1), moment(2024, 1, 1, 10, 0)),
        (1, "south", HIGHEST, INF, False, day(2024, 2, 29), moment(2024, 2, 29, 23, 59, 59, 999999)),
        (1, "east", LOWEST, -INF, None, day(1, 1, 1), moment(1, 1, 1)),
        (1, "west", 0, NAN, True, day(9999, 12, 31), moment(9999, 12, 31, 23, 59, 59, 999999)),
        (1, "", None, -0.0, None, None, None),
        (1, None, 7, None, False, FAR_FUTURE, moment(1969, 12, 31, 23, 30)),
        (1, "o'neil", 7, 2.5, True, FAR_PAST, moment(1970, 1, 1, 0, 10)),
        (1, 'say "hi"', -7, 1e300, True, day(2000, 2, 29), moment(2000, 2, 29, 0, 0)),
        (1, "unlisted", 3, 3.5, True, day(2024, 1, 7), moment(2024, 1, 7, 1, 2, 3, 500000)),
        (2, "north", 2, 10.25, False, day(2024, 1, 8), moment(2024, 1, 8, 12, 0)),
        (2, "north", 3, -4.5, True, day(2024, 1, 31), moment(2024, 1, 31, 12, 0)),
        (2, "south", None, 99.99, True, day(2023, 12, 31), moment(2023, 12, 31, 12, 30)),
        (2, "south", 2**62, 0.1, None, None, None),
        (2, "south", 2**62, 0.2, False, day(2021, 1, 1), moment(2021, 1, 1)),
        (2, "south", 2**62, 0.3, False, day(2021, 1, 1), moment(2021, 1, 1)),
        (3, "north", -5, 0.0, True, day(2024, 1, 1), moment(2024, 1, 1, 10, 0)),
        (3, None, 5, -0.0, None, day(2024, 1, 1), None),
        (3, "west", 5, NAN, True, None, moment(1600, 2, 29, 4, 5, 6)),
        (LOWEST, "east", 1, 1.0, True, day(1900, 3, 1), moment(1900, 3, 1)),
        (LOWEST, "north", 4, 2.0, False, day(2024, 12, 30), moment(2024, 12, 30, 0, 0, 0, 1)),
        (HIGHEST, "east", 1, 1.0, True, day(1900, 3, 1), moment(1900, 3, 1)),
        (HIGHEST, "east", 9, 50.0, True, day(1900, 3, 1), moment(1900, 3, 1)),
        (HIGHEST, "unlisted", 9, 60.0, True, day(1900, 3, 1), moment(1900, 3, 1)),
        (0, "west", None, None, None, None, None),
        (None, "north", 1, 1.0, True, day(2024, 1, 1), moment(2024, 1, 1)),
        (None, "nobody", 100, 77.0, True, day(2024, 1, 1), moment(2024, 1, 1)),
    ]
    people = [
        (1, "Aachen", 30),
        (2, "Bern", None),
        (2, "bern", 41),
        (3, None, 7),
        (HIGHEST, "Aachen", 99),
        (None, "x", 1),
    ]
    places = [
        ("north", "up", 1.5),
        ("south", "down", NAN),
        ("south", "deep", -0.0),
        ("o'neil", None, 3.0),
        (None, "void", None),
        ("nowhere", "up", 1.5),
    ]
    words = ["a", "b", "", "a'b", "ab", "É", "é", "ẞ"]
    notes: list[tuple[Any, ...]] = [
        (writer, word, float(i)) for writer in ("", "é", "1") for i, word in enumerate(words)
    ]
    notes += [(None, "a", 1.0), ("1", None, NAN), ("1", "a", 0.0)]
    rows: dict[str, Sequence[tuple[Any, ...]]] = {
        'vis"its': visits,
        "people": people,
        "places": places,
        "nothing": [],
        "notes": notes,
    }
    return {name: [dict(zip(KINDS[name], row, strict=True)) for row in found] for name, found in rows.items()}


def as_arrow(tables: Tables) -> dict[str, pa.Table]:
    """The tables to load into an engine."""
    result = {}
    for name, rows in tables.items():
        columns = {}
        for column, kind in KINDS[name].items():
            values = [row[column] for row in rows]
            if kind is DA:
                days = [v if v is None or isinstance(v, int) else (v - dt.date(1970, 1, 1)).days for v in values]
                columns[column] = pa.array(days, type=pa.int32()).cast(pa.date32())
            else:
                columns[column] = pa.array(values, type=TYPES[kind])  # type: ignore[arg-type]
        result[name] = pa.table(columns)
    return result


def readable(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of an Arrow table as the reference reads them."""
    columns = {}
    for name in table.column_names:
        column = table.column(name)
        if pa.types.is_date32(column.type):
            days = column.cast(pa.int32()).to_pylist()
            first, last = ((limit - dt.date(1970, 1, 1)).days for limit in (dt.date.min, dt.date.max))
            known = [d if d is not None and first <= d <= last else None for d in days]
            columns[name] = [None if d is None else dt.date(1970, 1, 1) + dt.timedelta(days=d) for d in known]
        else:
            columns[name] = column.to_pylist()
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def as_known(tables: Tables) -> dict[str, list[dict[str, Any]]]:
    """The tables as the reference reads them: a date outside of the years 1 to 9999 is missing."""
    return {
        name: [{c: None if KINDS[name][c] is DA and isinstance(v, int) else v for c, v in row.items()} for row in found]
        for name, found in tables.items()
    }


def shuffled(tables: Tables, seed: int) -> dict[str, list[Mapping[str, Any]]]:
    """The same rows in another order."""
    result = {}
    for name, rows in tables.items():
        order = list(rows)
        random.Random(seed).shuffle(order)  # noqa: S311
        result[name] = order
    return result


def of_unit(tables: Tables, unit: Any, *, kept: bool) -> dict[str, list[Mapping[str, Any]]]:
    """The tables with only one unit's private rows, or with all but those; None is the rows with a NULL unit id."""
    return {
        name: [row for row in rows if name not in UNITS or (row[UNITS[name]] == unit) == kept]
        for name, rows in tables.items()
    }


def scan(table: str, *, prefix: str = "c") -> Scan:
    """All columns of a table, named c0, c1 and so on."""
    kinds = KINDS[table]
    names = tuple((f"{prefix}{i}", column) for i, column in enumerate(kinds))
    return Scan(
        table=table,
        private=table in UNITS,
        unit_column=UNITS.get(table),
        columns=names,
        fields=tuple(field(name, kinds[column]) for name, column in names),
    )


def field(name: str, kind: Kind) -> PlanField:
    """A column of which nothing is known."""
    return PlanField(name=name, kind=kind, facts=NOTHING)
