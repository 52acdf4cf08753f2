"""Nothing that an analyst writes makes an engine fail, or work much longer, only where somebody is in the data."""

from collections import Counter
from fractions import Fraction

import duckdb
import pytest
from hypothesis import given, strategies as st

from dither.engines import DuckDBEngine, ReferenceEngine
from dither.engines.duckdb import connections, group_choice
from dither.engines.duckdb.functions import DUCKDB
from dither.engines.reference.functions import evaluate
from dither.query.kinds import LONGEST_TEXT, NOTHING, Call, Column, Kind, Literal
from dither.query.measure.measures import Bins, DistinctValues
from dither.query.plan.plan import Gridded, PlanField, Project
from support import duckdb_files
from support.sizes import examples

ORDERS, SALT = duckdb_files.ORDERS, duckdb_files.SALT
make, measure, scan, schema = duckdb_files.make, duckdb_files.measure, duckdb_files.scan, duckdb_files.schema

T = Kind.TEXT
NAME = Column("c1", T)


def field(name):
    return PlanField(name=name, kind=T, facts=NOTHING)


def replaced(text, old, new):
    return Call("replace", (text, Literal(old, T), Literal(new, T)), T)


# ------------------------------------------------------------------ texts


@pytest.fixture(scope="module")
def on_both():
    """``on_both(expression, text)`` is the value by DuckDB, which must be the reference's."""

    def value(expression, text):
        sql = DUCKDB.expression(expression, {"c1": "r.t"})
        found = connection.execute(f"SELECT {sql} FROM (SELECT CAST(? AS VARCHAR) AS t) AS r", [text]).fetchone()[0]
        assert found == evaluate(expression, {"c1": text})
        return found

    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        yield value


@pytest.mark.parametrize("letter", ["a", "ä", "𝄞", "e\u0301"])
@pytest.mark.parametrize("size", [0, 1, 1365, 2048, 4095, 4096, 4097, 9000])
def test_texts_that_expressions_make_are_cut(on_both, letter, size):
    text = (letter * size)[:size]
    assert on_both(Call("concat", (NAME, NAME), T), text) == (text + text)[:LONGEST_TEXT]
    assert on_both(Call("concat", (Literal("q", T), NAME, Literal("z", T)), T), text) == f"q{text}z"[:LONGEST_TEXT]
    for old, new, used in (
        (letter, "xyz", LONGEST_TEXT // 3 if len(letter) == 1 else LONGEST_TEXT // 2),
        (letter * 3, "xyz", LONGEST_TEXT),
        (letter, "", LONGEST_TEXT),
        ("", "xyz", LONGEST_TEXT // 3),
        (letter[0], "x" * LONGEST_TEXT, 1),
        (letter[0], "x" * (LONGEST_TEXT + 1), 0),
    ):
        wanted = text[:used].replace(old, new) if old else text[:used]
        assert on_both(replaced(NAME, old, new), text) == wanted
        assert len(wanted) <= LONGEST_TEXT


@examples(40, 100)
@given(
    text=st.text("ab", max_size=12).map(lambda part: part * 600),
    steps=st.lists(st.tuples(st.text("ab", max_size=3), st.text("abc", max_size=9), st.booleans()), max_size=5),
)
def test_nested_texts_stay_short(on_both, text, steps):
    expression = NAME
    for old, new, doubled in steps:
        expression = replaced(expression, old, new)
        if doubled:
            expression = Call("concat", (expression, expression), T)
    assert not steps or len(on_both(expression, text)) <= LONGEST_TEXT


def test_a_text_that_grows_on_one_row_alone_fails_nothing(tmp_path):
    path = make(
        tmp_path / "bomb.duckdb",
        "CREATE TABLE orders AS SELECT i AS who, 'n' || i AS place, 1.0 AS amount FROM range(1000) t(i)",
        "INSERT INTO orders VALUES (5000, 'Bob', 1)",
    )
    is_bob = Call("equal", (NAME, Literal("Bob", T)), Kind.BOOLEAN)
    grown = of_bob = Call("case", (is_bob, NAME, Literal("", T)), T)
    for _ in range(4):
        grown = replaced(grown, "B", "B" * 4000)  # 2.6e14 characters, if they were made
    doubled, text = Project(input=scan(ORDERS), expressions=(of_bob,), fields=(field("d0"),)), Column("d0", T)
    for level in range(1, 31):  # a thousand million times as long as at the start
        both = Call("concat", (text, text), T)
        doubled = Project(input=doubled, expressions=(both,), fields=(field(f"d{level}"),))
        text = Column(f"d{level}", T)
    with DuckDBEngine.open(path, schema(ORDERS), memory_limit="200MiB", threads=1) as engine:
        for relation, made, longest in ((scan(ORDERS), grown, 4000), (doubled, text, LONGEST_TEXT)):
            found = engine.run(measure(relation, made, Call("length", (made,), Kind.INTEGER), groups=1), salt=SALT)
            assert found.keys.column("k1").to_pylist() == [0, longest]
            assert found.totals[0].tolist() == [1000, 1]


# ------------------------------------------------------------------ large bounds

AMOUNT = Column("c2", Kind.DOUBLE)
GRID = Gridded(expression=AMOUNT, step=Fraction(1), low=0, high=99)


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("limits")
    statement = "CREATE TABLE orders AS SELECT i % 3 AS who, 'p' || (i % 2) AS place, CAST(i % 50 AS DOUBLE) AS amount"
    made = {n: make(folder / f"{n}.duckdb", f"{statement} FROM range({n}) t(i)") for n in (0, 1, 300)}
    engines = {n: DuckDBEngine.open(path, schema(ORDERS)) for n, path in made.items()}
    yield engines
    for engine in engines.values():
        engine.close()


@pytest.mark.parametrize("rows", [63, 64, 999_999, 1_000_000, 10**9, 2**31, 2**62, 2**63, 10**30])
@pytest.mark.parametrize("keys", [(), (NAME,)])
def test_bounds_of_any_size_work_on_any_data(tables, rows, keys):
    question = measure(
        scan(ORDERS), *keys, rows=rows, bins=(Bins(grid=GRID),), distinct=(DistinctValues(expression=AMOUNT),)
    )
    for n, engine in tables.items():
        data = [{"who": i % 3, "place": f"p{i % 2}", "amount": float(i % 50)} for i in range(n)]
        wanted = ReferenceEngine({"orders": data}, schema(ORDERS)).run(question, salt=SALT)
        found = engine.run(question, salt=SALT)
        assert [numbers.tolist() for numbers in (*found.totals, *found.distinct)] == [
            numbers.tolist() for numbers in (*wanted.totals, *wanted.distinct)
        ]
        if rows >= 100:  # fewer than that are a sample
            assert bins(found) == bins(wanted)
        assert found.bins[0].count.sum() == wanted.bins[0].count.sum()


def bins(measured):
    found = measured.bins[0]
    return Counter(dict(zip(zip(found.group.tolist(), found.bin.tolist(), strict=True), found.count, strict=True)))


def test_both_forms_keep_the_same_rows(tables, monkeypatch):
    for rows in (1, 5, 16):
        question = measure(scan(ORDERS), NAME, rows=rows, bins=(Bins(grid=GRID),))
        plain = measure(scan(ORDERS), rows=rows, bins=(Bins(grid=GRID),))
        texts, results = [], []
        for few in (16, 0):
            monkeypatch.setattr(group_choice, "_FEW", few)
            texts.append(group_choice.bins("SELECT 1", ["r.u"], rows, 7))
            found = tables[300].run(question, salt=SALT)
            results.append((bins(found), bins(tables[300].run(plain, salt=SALT))))
        assert texts[0] != texts[1]
        assert results[0] == results[1]


def test_many_units_with_a_large_bound_need_little_memory(tmp_path):
    path = make(
        tmp_path / "many.duckdb",
        "CREATE TABLE orders AS SELECT i AS who, 'p' AS place, 1.0 AS amount FROM range(20000) t(i)",
    )
    question = measure(scan(ORDERS), rows=100_000, distinct=(DistinctValues(expression=AMOUNT),))
    with DuckDBEngine.open(path, schema(ORDERS), memory_limit="200MiB", threads=1) as engine:
        assert engine.run(question, salt=SALT).distinct[0].tolist() == [1]


# ------------------------------------------------------------------ what DuckDB keeps of queries that have ended

LISTS = "SELECT sum(approximate_size), sum(total_insertions) FROM duckdb_eviction_queues()"
LIMIT = "SELECT current_setting('memory_limit')"


def told(engine, sql):
    try:
        return engine._opened.connection.execute(sql).fetchone()
    except duckdb.CatalogException:
        pytest.skip("this version of DuckDB doesn't tell")


@pytest.fixture
def few(monkeypatch):
    """Lists are cleaned after fewer queries than otherwise."""
    monkeypatch.setattr(connections, "CLEANED_AFTER", 10)
    return 10


@pytest.mark.parametrize("limit", [None, "300MiB"])
def test_lists_of_used_blocks_are_cleaned(tmp_path, few, limit):
    path = make(
        tmp_path / "noted.duckdb",
        "CREATE TABLE orders AS SELECT i * 1000003 AS who, 'p' || (i % 3) AS place, 1.0 AS amount FROM range(500) t(i)",
    )
    with DuckDBEngine.open(path, schema(ORDERS), memory_limit=limit, threads=1) as engine:
        before, limited = told(engine, LISTS), told(engine, LIMIT)
        answers = {tuple(engine.run(measure(scan(ORDERS), NAME), salt=SALT).totals[0]) for _ in range(10 * few)}
        after = told(engine, LISTS)
        assert after[1] - before[1] >= 10 * few
        assert after[0] < before[0] + 5 * few
        assert len(answers) == 1
        if limit is not None:
            assert told(engine, LIMIT) == limited


def test_lists_are_not_cleaned_while_a_query_may_run(tables, few):
    engine = tables[300]
    with engine._cursor() as cursor:
        cursor.execute("SELECT who, place, count(*) FROM orders GROUP BY who, place").fetchall()
        held = told(engine, LISTS)[0]
        for _ in range(3 * few):
            engine.run(measure(scan(ORDERS), NAME), salt=SALT)
        assert told(engine, LISTS)[0] >= held + 3 * few
    assert told(engine, LISTS)[0] < 3 * few


def test_the_limit_on_memory_is_the_only_exception_of_the_lock(tables):
    cursor = tables[300]._opened.connection.cursor()
    for attempt in ("SET allowed_configs = ['threads']", "RESET allowed_configs", "SET threads = 1"):
        with pytest.raises(duckdb.Error):
            cursor.execute(attempt)
