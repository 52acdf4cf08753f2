"""Bounds that the owner left open: found privately, paid for, and kept with the answer."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Literal as OneOf

from dither.engines import Engine
from dither.query.auto_bounds import bounds_from, price_search, search_measurement
from dither.query.expressions import Column
from dither.query.kinds import NOTHING, Interval
from dither.query.plan import Field, Scan
from dither.query.price import QueryBudget
from dither.query.schema import Schema

Place = tuple[str, str]
HEADER = 4


def find_bounds(
    engine: Engine, schema: Schema, places: tuple[Place, ...], budget: QueryBudget, salt: bytes
) -> dict[Place, Interval]:
    """Search each column's bounds with ``budget`` for each."""
    found = {}
    for table_name, column_name in places:
        table = schema.tables[table_name]
        kind = table.columns[column_name].kind
        scan = Scan(
            table=table_name,
            private=True,
            unit_column=table.unit_column,
            columns=(("c0", column_name),),
            fields=(Field(name="c0", kind=kind, facts=NOTHING),),
        )
        units: OneOf["row", "column"] = "row" if table.unit_column is None else "column"
        rows = 1 if units == "row" else table.rows
        measurement = search_measurement(scan, Column("c0", kind), units, rows)
        mechanism = price_search(budget, rows, schema.adjacency)
        found[table_name, column_name] = bounds_from(mechanism, engine.run(measurement, salt=salt))
    return found


def seal(bounds: dict[Place, Interval], released: bytes) -> bytes:
    """What is stored: the bounds that were found, and what was released under them."""
    header = json.dumps([[*place, str(b.low), str(b.high)] for place, b in bounds.items()]).encode()
    return len(header).to_bytes(HEADER, "big") + header + released


def unseal(stored: bytes) -> tuple[dict[Place, Interval], bytes]:
    """The inverse of ``seal``."""
    size = int.from_bytes(stored[:HEADER], "big")
    entries = json.loads(stored[HEADER : HEADER + size])
    bounds = {(t, c): Interval(Fraction(low), Fraction(high)) for t, c, low, high in entries}
    return bounds, stored[HEADER + size :]
