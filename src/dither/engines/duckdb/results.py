"""Results of queries, in two ways: as Arrow for many rows, and by way of NumPy for few.

DuckDB's Python library parses and plans a query twice before it gives Arrow, once for the types and once to run it. For
small tables that takes longer than the query itself. Its DB-API plans once, but makes a Python object of every text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import duckdb
import numpy as np
import pyarrow as pa

from dither.engines.base import EngineFailure
from dither.engines.sql import Source
from dither.query.kinds import Kind
from dither.query.measure.measures import Measurement
from dither.query.plan.plan import Join, JoinKind, Relation, Scan, Union

Read: TypeAlias = Callable[[duckdb.DuckDBPyConnection, str], pa.Table]

LONGEST_SQL = 16_000_000
MOST_FEW = 20_000
"""Rows of the largest table up to which ``fetch_few`` is the faster way."""
# what a join of small tables may grow to, so that no result of Python objects takes much memory
_MOST_JOINED = 2**20
# So many texts of LONGEST_TEXT characters, of four bytes each, fit in the 2 GiB that a batch of Arrow texts can hold.
_BATCH = 100_000
# Those whose values come through NumPy as they are; of dates and timestamps that depends on DuckDB's version.
_FEW_KINDS = (Kind.BOOLEAN, Kind.INTEGER, Kind.DOUBLE, Kind.TEXT)
_TYPES: Mapping[str, pa.DataType] = MappingProxyType(
    {
        "bool": pa.bool_(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "uint64": pa.uint64(),
        "float64": pa.float64(),
        "object": pa.string(),
    }
)


def fetch(cursor: duckdb.DuckDBPyConnection, sql: str) -> pa.Table:
    """The result of a query."""
    _expect_length(sql)
    table: pa.Table = cursor.sql(sql).to_arrow_table(_BATCH)
    return table


def fetch_few(cursor: duckdb.DuckDBPyConnection, sql: str) -> pa.Table:
    """The same, faster, where there are few rows: of truth values, integers of 64 bits, doubles and texts only."""
    _expect_length(sql)
    columns = cursor.execute(sql).fetchnumpy()
    return pa.Table.from_arrays([_array(name, values) for name, values in columns.items()], names=list(columns))


def _expect_length(sql: str) -> None:
    if len(sql) > LONGEST_SQL:
        raise EngineFailure(f"the query has {len(sql)} characters")


def _array(name: str, values: Any) -> pa.Array[Any]:
    kind = _TYPES.get(str(values.dtype))
    if kind is None:
        raise EngineFailure(f"column {name} has type {values.dtype}")
    if isinstance(values, np.ma.MaskedArray):
        return pa.array(values.data, type=kind, mask=np.ma.getmaskarray(values), from_pandas=False)
    return pa.array(values, type=kind, from_pandas=False)


def reader(measurement: Measurement, sources: Mapping[str, Source]) -> Read:
    """The faster way for the totals of a measurement, from what the catalogue says about the size of tables.

    It has no influence on the result.
    """
    if any(key.kind not in _FEW_KINDS for key in measurement.keys):
        return fetch
    largest, rows = _sizes(measurement.relation, sources)
    return fetch_few if largest <= MOST_FEW and rows <= _MOST_JOINED else fetch


def _sizes(relation: Relation, sources: Mapping[str, Source]) -> tuple[float, float]:
    """Rows of the largest table, and how many rows there can be at most; infinite where it isn't known."""
    match relation:
        case Scan():
            source = sources.get(relation.table)
            rows = float("inf") if source is None or source.rows is None else float(source.rows)
            return rows, rows
        case Join():
            (left, rows), (right, matches) = _sizes(relation.left, sources), _sizes(relation.right, sources)
            fans_out = relation.kind in (JoinKind.INNER, JoinKind.LEFT)
            return max(left, right), rows * max(matches, 1.0) if fans_out else rows
        case Union():
            sizes = [_sizes(given, sources) for given in relation.inputs]
            return max(largest for largest, _ in sizes), sum(rows for _, rows in sizes)
        case _:
            return _sizes(relation.input, sources)
