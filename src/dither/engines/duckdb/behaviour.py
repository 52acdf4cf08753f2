"""Does the installed DuckDB compute what the generated SQL rests on? A few values are tried when data is opened.

What raises for one person's row tells of that row, whatever the noise; versions differ in what raises. The SQL guards
its domains by itself, the requirements name versions on which everything was tested, and this is the third lock: for
versions that are newer than that, builds of other people, and requirements that were overruled.
"""

# ruff: noqa: S608 (constants of this file, written by kind)

from __future__ import annotations

import datetime as dt
import math
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from dither.engines.duckdb.functions import DUCKDB
from dither.engines.reference.functions import evaluate
from dither.engines.relations import INT64_HIGH, INT64_LOW, Dialect
from dither.errors import SourceError
from dither.query.kinds import Call, Column, Expression, Kind, Literal, Value

LOWEST_VERSION = (1, 4, 4)
"""What pyproject.toml requires; a test holds both together."""

_B, _I, _D, _T, _DA, _TS = Kind.BOOLEAN, Kind.INTEGER, Kind.DOUBLE, Kind.TEXT, Kind.DATE, Kind.TIMESTAMP
_N, _M, _X, _Y = Column("n", _I), Column("m", _I), Column("x", _D), Column("y", _D)
_TEXT, _OTHER, _DAY, _AT = Column("t", _T), Column("o", _T), Column("d", _DA), Column("s", _TS)
_COLUMNS = (_N, _M, _X, _Y, _TEXT, _OTHER, _DAY, _AT)
_day, _moment = dt.date.fromisoformat, dt.datetime.fromisoformat
_FIRST, _LAST = dt.date.min, dt.date.max
_BEGIN, _END = dt.datetime.min, dt.datetime.max  # noqa: DTZ901

_ROWS: tuple[tuple[Value, ...], ...] = (
    (INT64_LOW, -1, -1.0, 0.5, "nan", "Z", _FIRST, _BEGIN),
    (INT64_LOW, INT64_LOW, -0.0, -1.0, "1e999", "a", _LAST, _END),
    (INT64_HIGH, INT64_HIGH, 0.0, 0.0, str(2**63), "é", _LAST, _BEGIN),
    (INT64_HIGH, 0, math.inf, math.inf, "2023-02-29", "", _FIRST, _END),
    (0, 0, -math.inf, 1e308, "infinity", "%", _day("2024-02-29"), _moment("2024-02-29 23:59")),
    (1, -2, math.nan, 2.0, "", "_", _day("2021-01-03"), _moment("1969-12-31 23:59")),
    (-7, 2, 1e308, 1e308, "0000-01-01", "İ", _day("1970-01-01"), _moment("1970-01-01")),
    (2**62, 2, 2.0**63, -1075.0, "10000-01-01", "ß", _day("2000-02-29"), _moment("2000-02-29")),
    (None, 1, None, 1.0, None, "a", None, None),
    (12, 5, 2.5, 2.0, " 12 ", "a", _day("2024-01-31"), _moment("2024-01-31")),
)


def _lit(value: Value, kind: Kind) -> Literal:
    return Literal(value, kind)


def _calls() -> tuple[Call, ...]:
    found: list[tuple[str, Kind, tuple[Expression, ...]]] = []
    for name in ("add", "subtract", "multiply"):
        found += [(name, _I, (_N, _M)), (name, _D, (_X, _Y))]
    found += [("integer_divide", _I, (_N, _M)), ("modulo", _I, (_N, _M)), ("divide", _D, (_X, _Y))]
    found += [("power", _D, (_X, _Y)), ("divide", _D, (_N, _M))]
    for name in ("negate", "abs", "floor", "ceil", "trunc"):
        found += [(name, _I, (_N,)), (name, _D, (_X,))]
    found += [(name, _D, (column,)) for name in ("sqrt", "exp", "ln", "log10", "log2") for column in (_X, _N)]
    found += [("round", _D, (_X, _lit(digits, _I))) for digits in (-2, 2)]
    found += [("round", _I, (_N, _lit(-15, _I))), ("sign", _I, (_X,)), ("is_nan", _B, (_X,))]
    found += [(name, _D, (_X, _Y)) for name in ("greatest", "least", "coalesce", "nullif")]
    found += [(name, _B, (_X, _Y)) for name in ("less", "less_equal", "equal", "distinct_from", "in")]
    found += [("less", _B, (_TEXT, _OTHER)), ("like", _B, (_TEXT, _lit("_%", _T)))]
    found += [("date_trunc", _DA, (_lit("week", _T), _DAY)), ("date_trunc", _TS, (_lit("quarter", _T), _AT))]
    found += [("date_add", _DA, (_DAY, _N, _lit(unit, _T))) for unit in ("year", "day")]
    found += [("date_add", _TS, (_AT, _N, _lit(unit, _T))) for unit in ("month", "week", "hour", "second")]
    found += [("date_diff", _I, (_lit(unit, _T), _DAY, _AT)) for unit in ("week", "second")]
    found += [("to_boolean", _B, (_TEXT,)), ("to_integer", _I, (_TEXT,)), ("to_integer", _I, (_X,))]
    found += [("to_double", _D, (_TEXT,)), ("to_text", _T, (_X,))]
    found += [("to_date", _DA, (_TEXT,)), ("to_timestamp", _TS, (_TEXT,))]
    found += [(name, _I, (_DAY,)) for name in ("year", "week", "day_of_week")]
    return tuple(Call(name, arguments, kind) for name, kind, arguments in found)


CALLS = _calls()

_lock = threading.Lock()
_found: tuple[str, ...] | None = None


def expect_behaviour(connection: duckdb.DuckDBPyConnection) -> None:
    """Raise SourceError if DuckDB is too old, or computes something else than the generated SQL rests on.

    ``connection`` is one to an empty database. It takes milliseconds, once for each process: the library can't change
    under it.
    """
    global _found
    with _lock:
        if _found is None:
            _found = misbehaving(connection, DUCKDB) if _version() >= LOWEST_VERSION else ("its age",)
        found = _found
    if found:
        needed = ".".join(map(str, LOWEST_VERSION))
        raise SourceError(
            f"DuckDB version {duckdb.__version__} can't be used, because of {', '.join(found[:5])}: questions would "
            "fail or differ because of single rows, which tells of them. "
            f"Install version {needed}, or a later one on which dither was tested"
        )


def is_known_to_behave() -> bool:
    """Whether this process has seen already that it computes what is expected."""
    return _found == ()


def _version() -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", duckdb.__version__)[:3])


def misbehaving(connection: duckdb.DuckDBPyConnection, dialect: Dialect) -> tuple[str, ...]:
    """The functions that raise for one of the rows, or give another value than the reference."""
    kinds = ", ".join(f'"{column.name}" {dialect.types[column.kind]}' for column in _COLUMNS)
    rows = (
        ", ".join(dialect.literal(value, column.kind) for value, column in zip(row, _COLUMNS, strict=True))
        for row in _ROWS
    )
    connection.execute(f"CREATE OR REPLACE TEMP TABLE r ({kinds})")
    # rows of a table, since constants are computed when a query is planned, and their errors are swallowed there
    connection.execute(f"INSERT INTO r VALUES {', '.join(f'({row})' for row in rows)}")
    names = []
    if not _agree(connection, dialect, CALLS):
        names = [call.function for call in CALLS if not _agree(connection, dialect, [call])] or [
            "what they make together"
        ]
    if connection.execute("SELECT sum(n) FROM r WHERE n > 100").fetchall() != [(2 * INT64_HIGH + 2**62,)]:
        names.append("sum")
    if not _takes_arrow(connection):
        names.append("Arrow tables")
    return tuple(dict.fromkeys(names))


def _takes_arrow(connection: duckdb.DuckDBPyConnection) -> bool:
    """Units' choices come back as Arrow tables. Older versions load what they need for that with the first of them.

    It should be missed here, and not after a charge.
    """
    try:
        connection.register("given", pa.table({"n": pa.array([1], type=pa.int64())}))
        rows = connection.execute("SELECT n FROM given").fetchall()
        connection.unregister("given")
    except (duckdb.Error, ImportError):
        return False
    return rows == [(1,)]


def _agree(connection: duckdb.DuckDBPyConnection, dialect: Dialect, calls: Sequence[Call]) -> bool:
    scope = {column.name: f'r."{column.name}"' for column in _COLUMNS}
    listed = ", ".join(dialect.expression(call, scope) for call in calls)
    try:
        rows = connection.execute(f"SELECT {listed} FROM r ORDER BY r.rowid").fetchall()
    except (duckdb.Error, ValueError, OverflowError):
        return False
    for given, found in zip(_ROWS, rows, strict=True):
        known: Mapping[str, Any] = {column.name: value for column, value in zip(_COLUMNS, given, strict=True)}
        if not all(_alike(value, evaluate(call, known), call.kind) for call, value in zip(calls, found, strict=True)):
            return False
    return True


def _alike(found: Any, wanted: Any, kind: Kind) -> bool:
    if found is None or wanted is None or kind is not Kind.DOUBLE:
        return bool(found == wanted)
    if math.isnan(found) or math.isnan(wanted):
        return math.isnan(found) and math.isnan(wanted)
    # libraries of C differ in the last digits of pow, exp and ln
    return math.isclose(found, wanted, rel_tol=1e-9)
