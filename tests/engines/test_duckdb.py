"""What is particular to the DuckDB engine: sources, the lock, errors, interruption, types, exactness."""

# ruff: noqa: E501, DTZ001

import datetime as dt
import os
import signal
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dither.engines import DuckDBEngine, EngineFailure
from dither.errors import InvalidParameter, SourceError
from dither.query.kinds import NOTHING, Call, Column, Kind, Literal
from dither.query.measure.measures import Bins, Cap, DistinctValues, Measurement, Total
from dither.query.plan.plan import Distinct, FilterRows, Gridded, JoinKind, JoinRows, Key, PlanField, Project
from support import duckdb_files
from support.sizes import at_night

COUNT, ORDERS, SALT = duckdb_files.COUNT, duckdb_files.ORDERS, duckdb_files.SALT
make, measure, scan, schema = duckdb_files.make, duckdb_files.measure, duckdb_files.scan, duckdb_files.schema
table, values = duckdb_files.table, duckdb_files.values


@pytest.fixture
def path(tmp_path):
    return make(
        tmp_path / "shop.duckdb",
        "CREATE TABLE orders (who BIGINT, place VARCHAR, amount DOUBLE)",
        "INSERT INTO orders VALUES (1, 'a', 1.5), (1, 'b', 2.5), (2, 'a', 3.5), (NULL, 'a', 9)",
    )


@pytest.fixture
def engine(path):
    with DuckDBEngine.open(path, schema(ORDERS)) as opened:
        yield opened


# ------------------------------------------------------------------ exactness


def test_large_sums_do_not_wrap(tmp_path):
    path = make(
        tmp_path / "large.duckdb",
        "CREATE TABLE orders (who BIGINT, n BIGINT)",
        "INSERT INTO orders SELECT 1, 4611686018427387904 FROM range(3)",
    )
    facts = table(who=Kind.INTEGER, n=Kind.INTEGER)
    n = Column("c1", Kind.INTEGER)
    grid = Gridded(expression=n, step=Fraction(1), low=-(2**62), high=2**62)
    wide = Total(factors=(grid,), present=(), low=-(2**62), high=2**62, cap=Cap.CLAMP)
    square = Total(factors=(grid, Gridded(expression=n, step=Fraction(1), low=0, high=100)), present=(), low=0, high=5,
                   cap=Cap.MEAN)  # fmt: skip
    with DuckDBEngine.open(path, schema(facts)) as engine:
        by_row = engine.run(measure(scan(facts, unit=False), units="row", totals=(wide,)), salt=SALT)
        by_unit = engine.run(measure(scan(facts), totals=(wide, square)), salt=SALT)
    # 3 · 2^62 is cut to 2^62; a wrapped sum would be −2^62
    assert by_row.totals[0].tolist() == [2**62]
    assert [total.tolist() for total in by_unit.totals] == [[2**62], [5]]


def test_rows_of_nobody_are_dropped_at_user_level_only(engine):
    by_unit = engine.run(measure(scan(ORDERS)), salt=SALT)
    by_row = engine.run(measure(scan(ORDERS, unit=False), units="row"), salt=SALT)
    assert (by_unit.totals[0].tolist(), by_row.totals[0].tolist()) == ([3], [4])
    assert (by_unit.size, by_unit.keys.num_columns) == (1, 0)


def test_a_thousand_public_keys_and_their_quotes(tmp_path):
    names = [f'it\'s {i} "quoted" \\ ; -- ' for i in range(3000)]
    path = tmp_path / "keys.parquet"
    pq.write_table(pa.table({"who": range(3000), "place": names, "amount": [1.0] * 3000}), path)
    public = tuple(sorted(names[:2000]))
    key = Key(expression=Column("c1", Kind.TEXT), kind=Kind.TEXT, values=public)
    with DuckDBEngine.open({"orders": path}, schema(ORDERS)) as engine:
        for units, unit in (("row", False), ("column", True)):
            question = Measurement(
                relation=scan(ORDERS, unit=unit), units=units, keys=(key,), groups=1, rows=1, totals=(COUNT,)
            )
            found = engine.run(question, salt=SALT)
            assert found.keys.column("k0").to_pylist() == list(public)
            assert found.totals[0].tolist() == [1] * 2000


def test_threads_of_the_caller_do_not_disturb_each_other(tmp_path):
    path = tmp_path / "many.parquet"
    pq.write_table(
        pa.table({"who": [i % 50 for i in range(5000)], "place": [f"p{i % 17}" for i in range(5000)],
                  "amount": [float(i % 9) for i in range(5000)]}), path)  # fmt: skip
    grid = Gridded(expression=Column("c2", Kind.DOUBLE), step=Fraction(1), low=0, high=9)
    question = measure(scan(ORDERS), Column("c1", Kind.TEXT), groups=3, bins=(Bins(grid=grid),))
    salts = [bytes([i]) * 16 for i in range(6)]
    with DuckDBEngine.open({"orders": path}, schema(ORDERS)) as engine:
        alone = [engine.run(question, salt=salt).totals[0].tolist() for salt in salts]
        with ThreadPoolExecutor(3) as pool:
            together = [r.totals[0].tolist() for r in pool.map(lambda s: engine.run(question, salt=s), salts)]
    assert together == alone
    assert len({tuple(found) for found in alone}) == len(salts)


# ------------------------------------------------------------------ kinds


def test_columns_of_other_types_are_read_in_their_kind(tmp_path):
    path = make(
        tmp_path / "types.duckdb",
        "CREATE TYPE colour AS ENUM ('red', 'it''s')",
        "CREATE TABLE orders (who INTEGER, a DECIMAL(18, 2), b HUGEINT, c FLOAT, d colour, e UUID, f TIMESTAMPTZ, g DATE, "
        "h VARCHAR COLLATE NOCASE, i TINYINT, j TIMESTAMP_NS, k VARCHAR)",
        "INSERT INTO orders VALUES "
        "(1, 1.25, 5, 0.5, 'red', '00000000-0000-0000-0000-000000000001', '2024-01-01 10:00:00+02', 'infinity', 'A', 1, "
        "'2024-01-01 00:00:00', ' 12 '),"
        "(1, NULL, 170141183460469231731687303715884105727, 'nan', 'it''s', NULL, 'infinity', '2024-01-01', 'a', 0, NULL, "
        "'1_2')",
    )
    kinds = {"a": Kind.DOUBLE, "b": Kind.INTEGER, "c": Kind.DOUBLE, "d": Kind.TEXT, "e": Kind.TEXT, "f": Kind.TIMESTAMP,
             "g": Kind.DATE, "h": Kind.TEXT, "i": Kind.BOOLEAN, "j": Kind.DATE, "k": Kind.INTEGER}  # fmt: skip
    facts = table(who=Kind.INTEGER, **kinds)
    with DuckDBEngine.open(path, schema(facts)) as engine:
        found = [values(engine, facts, place + 1) for place in range(len(kinds))]
        assert engine.describe()["orders"]["a"] == "DECIMAL(18,2)"
    assert str(found[2]) == "{0.5: 1, nan: 1}"
    del found[2]
    assert found == [
        {1.25: 1, None: 1},
        {5: 1, None: 1},
        {"it's": 1, "red": 1},
        {"00000000-0000-0000-0000-000000000001": 1, None: 1},
        {dt.datetime(2024, 1, 1, 8): 1, None: 1},
        {dt.date(2024, 1, 1): 1, None: 1},
        {"A": 1, "a": 1},
        {False: 1, True: 1},
        {dt.date(2024, 1, 1): 1, None: 1},
        {12: 1, None: 1},
    ]


@pytest.mark.parametrize(
    ("kind", "ids", "units"),
    [
        ("HUGEINT", "170141183460469231731687303715884105727, 170141183460469231731687303715884105726", 2),
        ("DOUBLE", "0.0, CAST('-0.0' AS DOUBLE)", 1),
        # nobody is called NaN
        ("DOUBLE", "CAST('nan' AS DOUBLE), -CAST('nan' AS DOUBLE)", 0),
        ("DOUBLE", "0.1, 0.10000000000000002", 2),
        ("UUID", "'00000000-0000-0000-0000-000000000001', '00000000-0000-0000-0000-000000000002'", 2),
        ("BLOB", r"'\x00\x41'::BLOB, '\x00\x42'::BLOB", 2),
        ("VARCHAR", "'a', 'A'", 2),
        ("UBIGINT", "18446744073709551615, 18446744073709551614", 2),
    ],
)
def test_ids_of_any_type_tell_units_apart(tmp_path, kind, ids, units):
    path = make(
        tmp_path / "ids.duckdb",
        f"CREATE TABLE orders (who {kind}, n BIGINT)",
        f"INSERT INTO orders SELECT unnest([{ids}]), 1",
    )
    facts = table(n=Kind.INTEGER)
    one = Total(factors=(), present=(), low=0, high=1, cap=Cap.CLAMP)
    with DuckDBEngine.open(path, schema(facts)) as engine:
        assert engine.run(measure(scan(facts), totals=(one,)), salt=SALT).totals[0].tolist() == [units]


def test_units_of_integers_and_texts_are_joined_as_texts(tmp_path):
    path = make(
        tmp_path / "two.duckdb",
        "CREATE TABLE orders (who BIGINT, n BIGINT)",
        "CREATE TABLE people (who VARCHAR, m BIGINT)",
        "INSERT INTO orders VALUES (5, 1), (6, 1)",
        "INSERT INTO people VALUES ('5', 7), ('x', 8)",
    )
    orders, people = table(n=Kind.INTEGER), table("people", m=Kind.INTEGER)
    right = Project(input=scan(people), expressions=(Column("c0", Kind.INTEGER),),
                    fields=(PlanField(name="d0", kind=Kind.INTEGER, facts=NOTHING),))  # fmt: skip
    join = JoinRows(left=scan(orders), right=right, kind=JoinKind.INNER, on_unit=True, condition=None)
    with DuckDBEngine.open(path, schema(orders, people)) as engine:
        found = engine.run(measure(join, Column("d0", Kind.INTEGER)), salt=SALT)
    assert found.keys.column("k0").to_pylist() == [7]


# ------------------------------------------------------------------ sources


def test_csv_is_read_in_the_declared_kinds(tmp_path):
    (tmp_path / "a.csv").write_text('who,place,amount\n1,"a, b",1.5\n2,x,oops\nbad,y,3\n', encoding="utf-8")
    (tmp_path / "b.csv").write_text('who,place,amount\n 07 ,,2e1\n"7",it\'s,inf\n', encoding="utf-8")
    with DuckDBEngine.open({"orders": tmp_path / "*.csv"}, schema(ORDERS)) as engine:
        assert engine.describe() == {"orders": {"who": "BIGINT", "place": "VARCHAR", "amount": "DOUBLE"}}
        assert values(engine, ORDERS, 2) == {1.5: 1, 3.0: 1, 20.0: 1, None: 2}
        # '07' and '7' are one unit, and 'bad' is none
        assert values(engine, ORDERS, 0, units="column") == {1: 1, 2: 1, 7: 2}
    # fields too few or too many are no row that could be left out
    for line in ("3,z", "4,z,1,2"):
        (tmp_path / "b.csv").write_text(f"who,place,amount\n7,a,1\n{line}\n", encoding="utf-8")
        with pytest.raises(SourceError, match=r"b\.csv, line 3, column 1: \d fields, and not 3"):
            DuckDBEngine.open({"orders": tmp_path / "*.csv"}, schema(ORDERS))


def test_files_that_are_not_there_or_not_files(tmp_path, path):
    with pytest.raises(SourceError, match="does not exist"):
        DuckDBEngine.open(tmp_path / "none.duckdb", schema(ORDERS))
    with pytest.raises(SourceError, match="directory"):
        DuckDBEngine.open(tmp_path, schema(ORDERS))
    with pytest.raises(SourceError, match="no file matches"):
        DuckDBEngine.open({"orders": tmp_path / "*.parquet"}, schema(ORDERS))
    with pytest.raises(SourceError, match="one sort"):
        DuckDBEngine.open({"orders": [path]}, schema(ORDERS))
    with pytest.raises(SourceError, match="at least one file"):
        DuckDBEngine.open({"orders": []}, schema(ORDERS))
    wrong = tmp_path / "wrong.duckdb"
    wrong.write_bytes(b"not a database " * 500)
    with pytest.raises(SourceError, match="not a DuckDB database"):
        DuckDBEngine.open(wrong, schema(ORDERS))
    (tmp_path / "wrong.parquet").write_bytes(b"nor this")
    with pytest.raises(SourceError, match="can't be read"):
        DuckDBEngine.open({"orders": tmp_path / "wrong.parquet"}, schema(ORDERS))
    (tmp_path / "twice.csv").write_text("a,a\n", encoding="utf-8")
    with pytest.raises(SourceError, match="a name of its own"):
        DuckDBEngine.open({"orders": tmp_path / "twice.csv"}, schema(ORDERS))


def test_tables_and_columns_that_do_not_fit_are_named(tmp_path, path):
    with pytest.raises(SourceError, match="no table sales; there is orders"):
        DuckDBEngine.open(path, schema(table("sales", who=Kind.INTEGER)))
    with pytest.raises(SourceError, match="orders has no column day"):
        DuckDBEngine.open(path, schema(table(who=Kind.INTEGER, day=Kind.DATE)))
    with pytest.raises(SourceError, match=r"orders\.amount has type DOUBLE, which can't be read as date"):
        DuckDBEngine.open(path, schema(table(who=Kind.INTEGER, amount=Kind.DATE)))
    odd = make(
        tmp_path / "odd.duckdb",
        "CREATE TABLE orders (who INTEGER[], n INTEGER)",
        "CREATE TABLE a (who DOUBLE)",
        "CREATE TABLE b (who BIGINT)",
        "CREATE VIEW v AS SELECT * FROM range(3) t(who) WHERE who > (SELECT count(*) FROM b)",
    )
    with pytest.raises(SourceError, match=r"orders\.who has type INTEGER\[\], which can't identify"):
        DuckDBEngine.open(odd, schema(table(n=Kind.INTEGER)))
    with pytest.raises(SourceError, match=r"a\.who \(DOUBLE\), b\.who \(BIGINT\)"):
        DuckDBEngine.open(odd, schema(table("a"), table("b")))
    with DuckDBEngine.open(odd, schema(table("v", who=Kind.INTEGER))) as engine:
        assert values(engine, table("v", who=Kind.INTEGER), 0) == {1: 1, 2: 1}


def test_a_database_in_use_is_said_to_be(path):
    hold = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    holder = subprocess.Popen([sys.executable, "-c", hold, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == b"open\n"
        with pytest.raises(SourceError, match="another process"):
            DuckDBEngine.open(path, schema(ORDERS))
    finally:
        holder.communicate()


def test_wrong_settings(path):
    with pytest.raises(InvalidParameter, match="memory_limit"):
        DuckDBEngine.open(path, schema(ORDERS), memory_limit="much")


def test_the_version_changes_with_the_data(path):
    with DuckDBEngine.open(path, schema(ORDERS)) as engine:
        before = engine.version()
        assert engine.version() == before
    make(path, "INSERT INTO orders VALUES (3, 'c', 1)")
    with DuckDBEngine.open(path, schema(ORDERS)) as engine:
        assert engine.version() != before


def test_intermediate_files_have_a_place_of_their_own(path):
    engine = DuckDBEngine.open(path, schema(ORDERS), memory_limit="1GiB")
    folder = engine._opened.database.scratch
    assert folder.stat().st_mode & 0o077 == 0
    engine.close()
    assert not folder.exists()


# ------------------------------------------------------------------ ways out


def test_the_connection_reaches_nothing_else(tmp_path, path):
    pq.write_table(pa.table({"who": [1], "place": ["a"], "amount": [1.0]}), tmp_path / "own.parquet")
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n", encoding="utf-8")
    attempts = [
        f"SELECT * FROM read_csv('{secret}')",
        f"SELECT * FROM read_text('{secret}')",
        f"SELECT * FROM '{secret}'",
        f"SELECT * FROM glob('{tmp_path}/*')",
        f"ATTACH '{tmp_path}/other.duckdb' AS other",
        f"COPY (SELECT 1) TO '{tmp_path}/out.csv'",
        f"EXPORT DATABASE '{tmp_path}/out'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "RESET lock_configuration",
        "SET threads = 1",
        f"SET allowed_paths = ['{secret}']",
        "SELECT * FROM rows_of_the_caller",
    ]
    rows_of_the_caller = pa.table({"a": [1]})
    for source in (path, {"orders": tmp_path / "own.parquet"}):
        with DuckDBEngine.open(source, schema(ORDERS)) as engine:
            cursor = engine._opened.connection.cursor()
            for attempt in attempts[:-1]:
                with pytest.raises(duckdb.Error):
                    cursor.execute(attempt).fetchall()
            assert engine.run(measure(scan(ORDERS)), salt=SALT).totals[0].tolist() != [0]
    assert rows_of_the_caller.num_rows == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["own.parquet", "secret.csv", "shop.duckdb"]


def test_errors_of_the_engine_keep_their_text_to_the_owner(engine):
    facts = ORDERS
    broken = {**engine._opened.sources}
    source = broken["orders"]
    columns = {**source.columns, "place": "error('the secret value is ' || r.place)"}
    object.__setattr__(source, "columns", columns)
    with pytest.raises(EngineFailure) as caught:
        engine.run(measure(scan(facts), Column("c1", Kind.TEXT)), salt=SALT)
    assert "secret" not in str(caught.value)
    assert "secret value is" in caught.value.cause
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_closed_engine_fails_cleanly(path):
    engine = DuckDBEngine.open(path, schema(ORDERS))
    engine.close()
    with pytest.raises(EngineFailure):
        engine.run(measure(scan(ORDERS)), salt=SALT)


SLOW = """
    import sys, threading, time
    from pathlib import Path
    sys.path[:0] = [sys.argv[2], str(Path(sys.argv[2]).parent)]
    from dither.engines import DuckDBEngine, EngineFailure
    from test_duckdb import COUNT, SALT, ORDERS, measure, scan, schema
    from dither.query.plan.plan import JoinRows, JoinKind, Project, PlanField
    from dither.query.kinds import Call, Column
    from dither.query.kinds import Kind, NOTHING
    def renamed(p):
        fields = tuple(PlanField(name=f"{p}{i}", kind=f.kind, facts=NOTHING) for i, f in enumerate(scan(ORDERS).fields))
        return Project(input=scan(ORDERS), expressions=tuple(Column(f.name, f.kind) for f in scan(ORDERS).fields), fields=fields)
    relation = scan(ORDERS)
    for p in "def":
        relation = JoinRows(left=relation, right=renamed(p), kind=JoinKind.INNER, on_unit=True,
                        condition=Call("less", (Column("c2", Kind.DOUBLE), Column(p + "2", Kind.DOUBLE)), Kind.BOOLEAN))
    from dither.engines.duckdb import engine as duckdb_engine
    duckdb_engine.MOST_FEW = duckdb_engine._MOST_JOINED = float(sys.argv[3])
    engine = DuckDBEngine.open(sys.argv[1], schema(ORDERS), threads=int(sys.argv[4]))

    def tell():
        while not engine._running:
            time.sleep(0.01)
        # what the processor does from here on is the query
        used = time.process_time()
        while time.process_time() - used < 0.5:
            time.sleep(0.01)
        print("running", flush=True)

    threading.Thread(target=tell, daemon=True).start()
    try:
        engine.run(measure(relation), salt=SALT)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    engine.close()
"""


@pytest.mark.parametrize(
    ("most_few", "threads"),
    [
        *(("0", "1"), ("inf", "2")),
        *(pytest.param("0", "2", marks=at_night), pytest.param("inf", "1", marks=at_night)),
    ],
)
def test_control_c_stops_a_query_whichever_way_it_is_fetched(tmp_path, most_few, threads):
    path = make(
        tmp_path / "slow.duckdb",
        "CREATE TABLE orders AS SELECT 1::BIGINT AS who, 'a' AS place, (i % 997)::DOUBLE AS amount FROM range(6000) t(i)",
    )
    here = str(Path(__file__).parent)
    command = [sys.executable, "-c", textwrap.dedent(SLOW), str(path), here, most_few, threads]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"running\n"
    os.kill(process.pid, signal.SIGINT)
    # the query itself takes far longer
    out, err = process.communicate(timeout=300)
    assert out == b"interrupted\n", err.decode()


# ------------------------------------------------------------------ what is never rendered


def test_plans_that_would_mix_units_are_refused(engine):
    by_row, by_unit = scan(ORDERS, unit=False), scan(ORDERS)
    other = Project(input=by_unit, expressions=(), fields=())
    wrong = [
        measure(Distinct(input=by_row), units="row"),
        measure(JoinRows(left=by_unit, right=other, kind=JoinKind.INNER, on_unit=False, condition=None)),
        measure(JoinRows(left=by_row, right=by_row, kind=JoinKind.INNER, on_unit=True, condition=None), units="row"),
        measure(by_row),
        measure(by_unit, groups=0),
        measure(by_unit, rows=0),
        measure(by_unit, totals=(Total(factors=(), present=(), low=3, high=2, cap=Cap.CLAMP),)),
        measure(by_unit, Column("nope", Kind.TEXT)),
        measure(by_unit, Call("read_csv", (Literal("/etc/passwd", Kind.TEXT),), Kind.TEXT)),
        measure(FilterRows(input=by_unit, predicate=Call("equal", (Column("c1", Kind.TEXT), Literal("\0", Kind.TEXT)), Kind.BOOLEAN))),
        measure(FilterRows(input=by_unit, predicate=Call("equal", (Column("c1", Kind.TEXT), Literal("\ud800", Kind.TEXT)), Kind.BOOLEAN))),
        measure(FilterRows(input=by_unit, predicate=Call("equal", (Column("c0", Kind.INTEGER), Literal(2**63, Kind.INTEGER)), Kind.BOOLEAN))),
        measure(Project(input=by_unit, expressions=(Column("c1", Kind.TEXT),), fields=(PlanField(name="U", kind=Kind.TEXT, facts=NOTHING),))),
    ]  # fmt: skip
    for question in wrong:
        with pytest.raises(InvalidParameter):
            engine.run(question, salt=SALT)


def test_a_salt_must_be_long_enough(engine):
    with pytest.raises(InvalidParameter, match="8 random bytes"):
        engine.run(measure(scan(ORDERS)), salt=b"short")


def test_distinct_units_and_values(engine):
    question = measure(
        scan(ORDERS), Column("c1", Kind.TEXT), distinct=(DistinctValues(expression=Column("c0", Kind.INTEGER)),)
    )
    assert engine.run(question, salt=SALT).distinct[0].tolist() == [2, 1]
