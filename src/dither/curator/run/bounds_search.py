"""Bounds that the owner left open: found privately, paid for, and kept with the answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal as OneOf

from dither.engines import Engine
from dither.query.expressions.expressions import Column
from dither.query.kinds import NOTHING, Interval
from dither.query.plan.plan import Field, Scan
from dither.query.price.auto_bounds import bounds_from, price_search, search_measurement
from dither.query.price.price import QueryBudget
from dither.query.schema import Schema

Place = tuple[str, str]
HEADER = 4
LONGEST_CAUSE = 10_000


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What the ledger keeps under a question: the bounds that were found, and what was released under them.

    ``released`` is None where something went wrong after noise had been drawn for the bounds: whether it does may
    depend on that noise, so that another try would be another answer that nobody paid for. Then there is no answer, for
    ever, and ``cause`` says why, to the owner. ``data`` is the fingerprint of the data that was read; None in answers
    that were stored before it was kept.
    """

    bounds: Mapping[Place, Interval]
    released: bytes | None
    cause: str = ""
    data: str | None = None

    def seal(self) -> bytes:
        """The permanent form: a header in JSON, then the released bytes."""
        found = [[*place, str(b.low), str(b.high)] for place, b in self.bounds.items()]
        form: dict[str, Any] = {
            "bounds": found,
            "answered": self.released is not None,
            "cause": self.cause[:LONGEST_CAUSE],
        }
        if self.data is not None:
            form["data"] = self.data
        header = json.dumps(form).encode()
        return len(header).to_bytes(HEADER, "big") + header + (self.released or b"")

    @classmethod
    def unseal(cls, stored: bytes) -> Stored:
        """The inverse of ``seal``."""
        size = int.from_bytes(stored[:HEADER], "big")
        form = json.loads(stored[HEADER : HEADER + size])
        bounds = {(t, c): Interval(Fraction(low), Fraction(high)) for t, c, low, high in form["bounds"]}
        released = stored[HEADER + size :] if form["answered"] else None
        return cls(bounds=bounds, released=released, cause=form["cause"], data=form.get("data"))
