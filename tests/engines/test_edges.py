"""Every function on every edge value, alone and in pairs: nothing raises, and all equals the reference.

Run on the lowest and on the newest allowed DuckDB: what raises for one row tells of that row, whatever the noise.
"""

import dataclasses
import datetime as dt
import math
import re
import sys
from collections import Counter
from itertools import product

import duckdb
import pyarrow as pa
import pytest

from dither.engines import DuckDBEngine
from dither.engines.duckdb import behaviour as duckdb_behaviour
from dither.engines.duckdb.behaviour import misbehaving
from dither.engines.duckdb.functions import DUCKDB
from dither.engines.duckdb.sources import in_kind
from dither.engines.reference.functions import evaluate
from dither.errors import Refused, SourceError
from dither.query.expressions.functions import FUNCTIONS, Typed, apply, literal
from dither.query.kinds import NOTHING, Call, Column, Kind
from support import duckdb_files
from support.sizes import some

B, I, D, T, DA, TS = Kind.BOOLEAN, Kind.INTEGER, Kind.DOUBLE, Kind.TEXT, Kind.DATE, Kind.TIMESTAMP  # noqa: E741
HIGHEST, LOWEST, LARGEST, INF, NAN = 2**63 - 1, -(2**63), sys.float_info.max, math.inf, math.nan
POWERS = [1.0, 2.0**53, 2.0**63, 2.0**64, 1e15, 1e16, 1e23, 2e23, 1e300, LARGEST]
EDGES = {
    B: [None, True, False],
    I: [None, 0, LOWEST, 3652058, 120_000, 10**12, 10**17 + 5]
    + [sign * n for n in (1, 2, 7, 10**5, 2**31, 2**32, 2**53 + 1, 2**62, HIGHEST) for sign in (1, -1)],
    D: [None, 0.0, -0.0, INF, -INF, NAN, 1 / 3, -0.5, 1.5, 2.5, -2.5, 2.675, -8.0, 0.1, 123456.789]
    + [sign * x for x in (*POWERS, 5e-324, 2.2e-308, 1e-300, 1e-5) for sign in (1, -1)]
    + [9223372036854774784.0, 4503599627370497.5, 709.7, 709.79, -745.1, -745.2, 1024.0, -1075.0],
    T: [None, "", "a", "é", "É", "straße", "İ", "日本", "😀", "a\0b", " a ", "\ta\n", "%", "_", "\\", "'", '"']
    + ["a" * 5000, "é" * 4097, "😀" * 4097, "12", " 12 ", "+7", "-0", "1_000", "1e3", "0x10", "12.5", ".5", "5."]
    + ["-", "nan", "inf", "1e999", "-1e999", "1e-999", "9" * 400, f"0.{'0' * 400}1", "0" * 4500 + "1"]
    + [str(n) for n in (HIGHEST, HIGHEST + 1, LOWEST, LOWEST - 1)]
    + ["TRUE", "t", "yes", "1", "0", "12\n", "\n12", "１２", "٣", "infinity", "-infinity", "epoch", "today"]
    + ["2024-02-29", "2023-02-29", "2024-04-31", "2024-13-01", "2024-01-00", "2024-1-5", " 2024-01-01"]
    + ["0000-01-01", "0001-01-01", "9999-12-31", "10000-01-01", "2024-02-29T24:00", "2024-02-29 12:30:61"]
    + ["2024-02-29 23:59:59.5", "2024-02-29 12:30:59.1234567", "9999-12-31 23:59:59.999999", "2024-02-29 12:30+02"],
    DA: [None, *map(dt.date.fromisoformat, ("0001-01-01", "0004-02-29", "1582-10-04", "1969-12-31", "1970-01-01"))]
    + [dt.date.fromisoformat(f"{year}-01-31") for year in (2000, 2021, 2024)]
    + [dt.date.fromisoformat(day) for day in ("2000-02-29", "2021-01-03", "2024-12-30", "9999-12-31")],
    TS: [None, *map(dt.datetime.fromisoformat, ("0001-01-01", "0001-01-01 00:00:00.000001", "1970-01-01 00:10"))]
    + [dt.datetime.fromisoformat(f"{day} 23:59:59.999999") for day in ("1969-12-31", "2021-01-03", "9999-12-31")]
    + [dt.datetime.fromisoformat("2024-02-29 12:30:59.5")],
}
ARROW = {B: pa.bool_(), I: pa.int64(), D: pa.float64(), T: pa.string(), DA: pa.date32(), TS: pa.timestamp("us")}
UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
CONSTANTS = [
    *(literal(n, I) for n in (0, 1, 3, -1, -6, 15, -15, HIGHEST, LOWEST)),
    *(literal(x, D) for x in (0.0, -1.0, 0.5, NAN)),
    *(literal(t, T) for t in (*UNITS, "", "a", "%", "_a%", "%\\%", "É%")),
]


@pytest.fixture(scope="module")
def connection():
    with duckdb.connect(config={"threads": 1}) as opened:
        for kind, values in EDGES.items():
            opened.register("given", pa.table({"x": pa.array(values, type=ARROW[kind])}))
            opened.execute(f"CREATE TABLE {kind.value}_ AS SELECT * FROM given")
            opened.unregister("given")
        yield opened


def column(place, kind):
    return Typed(Column(f"c{place}", kind), NOTHING)


def calls(name):
    """All calls of a function that the registry allows, on columns and constants."""
    shapes = [[column(0, kind)] for kind in Kind]
    shapes += [[column(0, kind), other] for kind in Kind for other in (*(column(1, k) for k in Kind), *CONSTANTS)]
    shapes += [[constant, column(1, kind)] for kind in Kind for constant in CONSTANTS]
    if name in ("date_add", "date_diff"):
        units = [literal(unit, T) for unit in UNITS]
        when = [column(place, kind) for kind in (DA, TS) for place in (0, 1)]
        shapes += [[a, b, unit] for a in when[::2] for b in (column(1, I), *CONSTANTS[:9]) for unit in units]
        shapes += [[unit, a, b] for unit in units for a in when[::2] for b in when[1::2]]
    if name in ("substring", "replace", "case"):
        shapes += [[column(0, kind), a, b] for kind in Kind for a, b in product(CONSTANTS, repeat=2)]
        shapes += [[column(0, B), column(1, kind), column(2, kind)] for kind in (B, I, DA)]
    for arguments in shapes:
        try:
            yield apply(name, arguments).expression
        except Refused:
            continue


def rows_of(connection, expression, sql):
    """The values of each row's columns, and what DuckDB says."""
    kinds = kinds_of(expression)
    listed = "".join(f"{name}.rowid, " for name in kinds)
    for *places, found in connection.execute(f"SELECT {listed}{sql} FROM {tables(kinds)}").fetchall():
        yield {name: EDGES[kinds[name]][place] for name, place in zip(kinds, places, strict=True)}, found


def kinds_of(expression):
    return {found.name: found.kind for found in walk(expression) if isinstance(found, Column)}


def tables(kinds):
    return ", ".join(f"{kind.value}_ AS {name}" for name, kind in kinds.items())


def walk(expression):
    yield expression
    for argument in expression.arguments if isinstance(expression, Call) else ():
        yield from walk(argument)


def scope():
    return {f"c{place}": f"c{place}.x" for place in range(3)}


def alike(found, wanted, kind):
    if found is None or wanted is None or kind is not D:
        return found == wanted
    if math.isnan(found) or math.isnan(wanted):
        return math.isnan(found) and math.isnan(wanted)
    # libraries of C differ in the last digits of pow, exp and ln
    return found == wanted or math.isclose(found, wanted, rel_tol=1e-13, abs_tol=1e-320)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_raises_for_no_value_and_equals_the_reference(connection, name):
    seen = 0
    for expression in calls(name):
        for values, found in rows_of(connection, expression, DUCKDB.expression(expression, scope())):
            seen += 1
            wanted = evaluate(expression, values)
            assert alike(found, wanted, expression.kind), (expression, values)
    assert seen


CONSTANT = {
    B: literal(True, B),
    I: literal(5, I),
    D: literal(2.5, D),
    T: literal("a", T),
    DA: literal(dt.date(2000, 1, 31), DA),
    TS: literal(dt.datetime(2000, 1, 31), TS),  # noqa: DTZ001
}


def of_columns(name):
    """A call for each list of kinds that the registry allows: with columns where that may be."""
    shapes = [[column(place, kind) for place, kind in enumerate(kinds)] for kinds in product(Kind, repeat=2)]
    shapes += [[column(0, kind)] for kind in Kind]
    shapes += [[column(0, kind), literal(-1, I)] for kind in (I, D)] if name == "round" else []
    shapes += [[column(0, B), column(1, kind), column(2, kind)] for kind in (B, DA)] if name == "case" else []
    units = [literal(unit, T) for unit in UNITS]
    moments = [column(0, kind) for kind in (DA, TS)]
    shapes += [[unit, when] for unit in units for when in moments] if name == "date_trunc" else []
    shapes += [[when, column(1, I), unit] for unit in units for when in moments] if name == "date_add" else []
    shapes += [[unit, when, column(1, TS)] for unit in units for when in moments] if name == "date_diff" else []
    for arguments in shapes:
        try:
            yield apply(name, arguments)
        except Refused:
            continue


@pytest.mark.parametrize("name", some(sorted(FUNCTIONS), 2))
def test_a_function_is_the_same_wherever_it_stands(connection, name):
    """What is grouped by or compared with a constant is rewritten by the optimizer, which knows the columns' extremes.

    DuckDB below 2 dropped a TRY_CAST that is compared, and took NULL for a date where date_trunc is grouped by.
    """
    for call in of_columns(name):
        expression = call.expression
        sql, kinds = DUCKDB.expression(expression, scope()), kinds_of(expression)
        rows = list(rows_of(connection, expression, sql))
        groups = connection.execute(f"SELECT {sql} AS k, count(*) FROM {tables(kinds)} GROUP BY k").fetchall()
        assert Counter({told(key): count for key, count in groups}) == Counter(told(value) for _, value in rows), sql
        compared = apply("not_equal", [call, CONSTANT[call.kind]]).expression
        for values, found in rows_of(connection, compared, DUCKDB.expression(compared, scope())):
            assert found == evaluate(compared, values), (compared, values)


@pytest.mark.parametrize("stored", ["HUGEINT", "UHUGEINT", "UBIGINT", "DECIMAL(38, 0)", "DECIMAL(30, 2)", "DOUBLE"])
def test_a_number_beyond_64_bits_is_null_also_where_it_is_compared(connection, stored):
    value = in_kind("n", stored, I)
    connection.execute(f"CREATE OR REPLACE TEMP TABLE wide AS SELECT CAST(1e19 AS {stored}) AS n")
    assert connection.execute(f"SELECT {value} IS NULL, {value} <> 5 FROM wide").fetchall() == [(True, None)]


def told(value):
    """Of equal values the same text."""
    return repr(value + 0.0 if isinstance(value, float) else value)


STRICT = {
    "sqrt": "x >= 0",
    "ln": "x > 0",
    "log10": "x > 0",
    "log2": "x > 0",
}


@pytest.mark.parametrize("name", STRICT)
def test_the_sql_itself_keeps_to_the_domain(connection, name):
    """Also where this version of DuckDB is lenient: here each function raises outside of its domain, and for NaN."""
    inside = f"CASE WHEN {STRICT[name]} AND NOT isnan(x) THEN {name}(x) WHEN x IS NOT NULL THEN error('no') END"
    connection.execute(f"CREATE OR REPLACE TEMP MACRO strict_{name}(x) AS {inside}")
    for kind in (I, D):
        expression = Call(name, (Column("c0", kind),), D)
        sql = re.sub(rf"\b{name}\(", f"strict_{name}(", DUCKDB.expression(expression, scope()))
        assert "strict_" in sql
        for values, found in rows_of(connection, expression, sql):
            assert alike(found, evaluate(expression, values), D), values


# ------------------------------------------------------------------ what is tried at opening


def test_this_version_behaves():
    with duckdb.connect() as empty:
        assert misbehaving(empty, DUCKDB) == ()


@pytest.mark.parametrize(
    ("name", "sql"),
    [
        ("sqrt", "CASE WHEN {0} < 0 THEN error('negative') ELSE sqrt({0}) END"),
        ("ln", "ln(abs({0}))"),
        ("to_integer", "CAST({0} AS BIGINT)"),
        ("divide", "({0} / {1})"),
        ("multiply", "({0} * {1})"),
        ("negate", "(-{0})"),
        ("date_add", "({0} + to_days(CAST({1} AS INTEGER)))"),
    ],
)
def test_a_function_that_misbehaves_is_named(name, sql):
    functions = {**DUCKDB.functions, name: lambda _, arguments: sql.format(*arguments)}
    with duckdb.connect() as empty:
        assert name in misbehaving(empty, dataclasses.replace(DUCKDB, functions=functions))


def test_every_function_that_may_fail_is_tried():
    tried = {call.function for call in duckdb_behaviour.CALLS}
    assert tried >= {name for name, scalar in FUNCTIONS.items() if scalar.may_fail}


@pytest.fixture
def opening(tmp_path, monkeypatch):
    """Opens a file in what seems a new process, in which nothing was tried yet."""
    path = duckdb_files.make(tmp_path / "data.duckdb", "CREATE TABLE orders(who BIGINT, place VARCHAR, amount DOUBLE)")
    monkeypatch.setattr(duckdb_behaviour, "_found", None)

    def opened():
        DuckDBEngine.open(path, duckdb_files.schema(duckdb_files.ORDERS)).close()

    return opened


def test_an_engine_that_misbehaves_isnt_opened(opening, monkeypatch):
    opening()
    monkeypatch.setattr(duckdb_behaviour, "_found", None)
    functions = {**DUCKDB.functions, "sqrt": lambda _, arguments: f"error(CAST({arguments[0]} AS VARCHAR))"}
    monkeypatch.setattr(duckdb_behaviour, "DUCKDB", dataclasses.replace(DUCKDB, functions=functions))
    for _ in range(2):
        with pytest.raises(SourceError, match=rf"version {re.escape(duckdb.__version__)} .* of sqrt: .*1\.4\.4"):
            opening()


def test_a_version_that_is_too_old_isnt_opened(opening, monkeypatch):
    monkeypatch.setattr(duckdb, "__version__", "1.4.0")
    with pytest.raises(SourceError, match=r"version 1\.4\.0 .*1\.4\.4"):
        opening()


@pytest.mark.parametrize(("version", "fine"), [("1.4.4", True), ("2.0.0.dev12", True), ("1.4.3", False)])
def test_versions_are_compared_by_their_numbers(monkeypatch, version, fine):
    monkeypatch.setattr(duckdb, "__version__", version)
    assert (duckdb_behaviour._version() >= duckdb_behaviour.LOWEST_VERSION) == fine
