"""Expressions over released tables: filters, columns and order, computed by a DuckDB that holds no data."""

# ruff: noqa: S608 (generated from plans: names are quoted, literals written by kind)

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

import duckdb
import numpy as np
import pyarrow as pa

from dither.engines.duckdb.connections import keep_from_children
from dither.engines.duckdb.functions import DUCKDB
from dither.engines.relations import quoted
from dither.query.kinds import Expression
from dither.query.plan.plan import Ordering

_LOCK = threading.Lock()
_OPEN: dict[int, duckdb.DuckDBPyConnection] = {}


def _connection() -> duckdb.DuckDBPyConnection:
    """One empty in-memory database for each process, locked before its first use."""
    with _LOCK:
        process = os.getpid()
        if process not in _OPEN:
            database = duckdb.connect(":memory:", config={"threads": 1, "autoload_known_extensions": False})
            keep_from_children(database)
            database.execute("SET enable_external_access = false")
            database.execute("SET lock_configuration = true")
            _OPEN[process] = database
        return _OPEN[process].cursor()


def compute(
    table: pa.Table,
    outputs: Sequence[tuple[str, Expression]],
    *,
    having: Expression | None = None,
    order: Sequence[Ordering] = (),
    limit: int | None = None,
    offset: int = 0,
) -> pa.Table:
    """Columns computed from a released table, filtered, sorted and cut; rows that tie keep their order."""
    scope = {name: f"r.{quoted(name)}" for name in table.column_names}
    place = quoted("place of the row")
    numbered = table.append_column("place of the row", pa.array(np.arange(table.num_rows, dtype=np.int64)))
    chosen = [f"{DUCKDB.expression(expression, scope)} AS {quoted(name)}" for name, expression in outputs]
    sql = f"SELECT {', '.join(chosen)} FROM released AS r"
    if having is not None:
        sql += f" WHERE {DUCKDB.expression(having, scope)}"
    sorting = [
        f"{DUCKDB.expression(item.expression, scope)} {'DESC' if item.descending else 'ASC'} "
        f"NULLS {'FIRST' if item.nulls_first else 'LAST'}"
        for item in order
    ]
    sql += f" ORDER BY {', '.join([*sorting, f'r.{place}'])}"
    if limit is not None:
        sql += f" LIMIT {int(limit)}"
    if offset:
        sql += f" OFFSET {int(offset)}"
    cursor = _connection()
    try:
        cursor.register("released", numbered)
        answer: pa.Table = cursor.sql(sql).to_arrow_table()
    except (RuntimeError, duckdb.Error) as problem:
        if _is_interrupt(problem):
            raise KeyboardInterrupt from None
        raise
    else:
        return answer
    finally:
        cursor.close()


def _is_interrupt(problem: Exception) -> bool:
    """What DuckDB makes of a SIGINT: while a query runs, and while it looks at a table that Python holds."""
    text = str(problem)
    return text == "Query interrupted" or text.rstrip(" :").endswith("failed: KeyboardInterrupt")
