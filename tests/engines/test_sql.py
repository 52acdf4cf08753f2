"""What the generated SQL leaves out, levels, columns and a second plan, has no influence on any result."""

import math
import struct
from dataclasses import replace
from itertools import product

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from dither.engines import DuckDBEngine, EngineFailure
from dither.engines.bounding import CellsSql
from dither.engines.duckdb import engine as duckdb_engine
from dither.engines.duckdb.engine import fetch, fetch_few, reader
from dither.engines.duckdb.functions import DUCKDB, TYPES, _real_literal
from dither.engines.duckdb.group_choice import SAMPLING
from dither.engines.relations import Relations
from dither.errors import Refused, SourceError
from dither.query.expressions.functions import FUNCTIONS, Typed, apply, literal
from dither.query.kinds import NOTHING, Call, Column, Kind, Literal
from dither.query.measure.measures import Cap, Total
from dither.query.plan.plan import Distinct, FilterRows, Gridded, JoinKind, JoinRows, PlanField, Project, Union
from support import duckdb_files

SALT, ORDERS, make, measure, scan, schema = (
    getattr(duckdb_files, name) for name in ("SALT", "ORDERS", "make", "measure", "scan", "schema")
)

PLACE, AMOUNT = Column("c1", Kind.TEXT), Column("c2", Kind.DOUBLE)
ROWS = """
    CREATE TABLE orders AS SELECT * FROM (VALUES
    (1, 'a', 1.0), (1, 'a', 2.0), (1, 'b', -0.0), (2, 'a', 'nan'::DOUBLE), (2, NULL, 3.0), (3, 'b', NULL),
    (NULL, 'a', 1.0), (NULL, 'nobody', 7.0)) AS t(who, place, amount)
"""


@pytest.fixture
def engine(tmp_path):
    with DuckDBEngine.open(make(tmp_path / "data.duckdb", ROWS), schema(ORDERS)) as opened:
        yield opened


def cells(measured):
    names = [f"k{place}" for place in range(len(measured.keys.column_names))]
    keys = zip(*(measured.keys.column(name).to_pylist() for name in names), strict=True)
    return {key: tuple(total[row] for total in measured.totals) for row, key in enumerate(keys)}


def text_of(engine, measurement):
    relations = Relations(DUCKDB, engine._opened.sources, measurement.units)
    return CellsSql(relations, SAMPLING, measurement, SALT).totals().units


def only(relation, *names):
    return replace(
        relation,
        columns=tuple(pair for pair in relation.columns if pair[0] in names),
        fields=tuple(field for field in relation.fields if field.name in names),
    )


def projected(relation, prefix, *expressions):
    fields = tuple(PlanField(name=f"{prefix}{i}", kind=e.kind, facts=NOTHING) for i, e in enumerate(expressions))
    return Project(input=relation, expressions=expressions, fields=fields)


def test_columns_that_nothing_reads_change_nothing(engine):
    wide, narrow = measure(scan(ORDERS), PLACE, groups=1), measure(only(scan(ORDERS), "c1"), PLACE, groups=1)
    assert text_of(engine, wide) == text_of(engine, narrow)
    assert "amount" not in text_of(engine, wide)
    for salt in range(20):
        one, other = (cells(engine.run(m, salt=salt.to_bytes(8, "big"))) for m in (wide, narrow))
        assert one == other


def test_rows_differ_by_columns_that_nothing_above_reads(engine):
    # two rows of unit 1 in a differ by their amount alone
    assert cells(engine.run(measure(Distinct(input=scan(ORDERS)), PLACE), salt=SALT))[("a",)] == (3,)
    narrow = Distinct(input=only(scan(ORDERS), "c1"))
    assert cells(engine.run(measure(narrow, PLACE), salt=SALT))[("a",)] == (2,)


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_no_condition_lets_rows_of_nobody_in(engine, depth):
    always = Call(
        "or", (Call("is_null", (PLACE,), Kind.BOOLEAN), Call("is_not_null", (PLACE,), Kind.BOOLEAN)), Kind.BOOLEAN
    )
    relation = scan(ORDERS)
    for _ in range(depth):
        relation = FilterRows(input=relation, predicate=always)
    assert cells(engine.run(measure(relation, PLACE), salt=SALT)) == {("a",): (3,), ("b",): (2,), (None,): (1,)}
    assert engine.run(measure(relation), salt=SALT).totals[0].tolist() == [6]


def test_a_condition_may_follow_a_join_and_what_it_adds(engine):
    total = Total(factors=(), present=(Column("d1", Kind.DOUBLE),), low=0, high=50, cap=Cap.CLAMP)
    right = projected(scan(ORDERS), "d", PLACE, AMOUNT)
    same = Call("equal", (PLACE, Column("d0", Kind.TEXT)), Kind.BOOLEAN)
    for kind, wanted in ((JoinKind.INNER, {("a",): 4, ("b",): 1}), (JoinKind.LEFT, {("a",): 4, ("b",): 1, (None,): 0})):
        joined = JoinRows(left=scan(ORDERS), right=right, kind=kind, on_unit=True, condition=same)
        found = cells(engine.run(measure(joined, PLACE, totals=(total,)), salt=SALT))
        assert found == {key: (count,) for key, count in wanted.items()}
        missing = FilterRows(input=joined, predicate=Call("is_null", (Column("d0", Kind.TEXT),), Kind.BOOLEAN))
        count = engine.run(measure(missing), salt=SALT).totals[0].tolist()
        assert count == [0 if kind is JoinKind.INNER else 1]


def test_semi_and_anti_joins_share_the_rows_out(engine):
    right = projected(scan(ORDERS), "d", PLACE, AMOUNT)
    larger = Call("less", (AMOUNT, Column("d1", Kind.DOUBLE)), Kind.BOOLEAN)
    parts = [
        FilterRows(
            input=JoinRows(left=scan(ORDERS), right=right, kind=kind, on_unit=True, condition=larger),
            predicate=Call("is_not_null", (PLACE,), Kind.BOOLEAN),
        )
        for kind in (JoinKind.SEMI, JoinKind.ANTI)
    ]
    counts = [cells(engine.run(measure(part, PLACE), salt=SALT)) for part in parts]
    assert counts == [{("a",): (1,), ("b",): (1,)}, {("a",): (2,), ("b",): (1,)}]


def test_a_union_takes_its_columns_by_place(engine):
    left, right = (
        projected(scan(ORDERS), "d", PLACE, AMOUNT),
        projected(scan(ORDERS), "e", Literal("z", Kind.TEXT), AMOUNT),
    )
    both = Union(inputs=(left, right), fields=left.fields)
    found = cells(engine.run(measure(both, Column("d0", Kind.TEXT)), salt=SALT))
    assert found == {("a",): (3,), ("b",): (2,), ("z",): (6,), (None,): (1,)}


def test_an_expression_is_computed_below_where_it_is_written_twice(engine):
    doubled = projected(scan(ORDERS), "d", PLACE, Call("add", (AMOUNT, AMOUNT), Kind.DOUBLE))
    grid = Gridded(expression=Column("d1", Kind.DOUBLE), step=1, low=0, high=10)
    total = Total(factors=(grid,), present=(), low=0, high=50, cap=Cap.CLAMP)
    measurement = measure(doubled, Column("d0", Kind.TEXT), totals=(total,))
    assert text_of(engine, measurement).count(" + r.") == 1
    assert cells(engine.run(measurement, salt=SALT)) == {("a",): (6,), ("b",): (0,), (None,): (6,)}


def test_names_of_the_owner_are_never_mistaken_for_generated_ones(tmp_path):
    names = ["r", "l", "u", "_k0", "_n", "_h", "v", 'a"b', "a'; --"]
    columns = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
    values = ", ".join(f"i % {place + 2}" for place in range(len(names)))
    create = f"CREATE TABLE orders({', '.join(f'{name} BIGINT' for name in columns.split(', '))})"
    path = make(tmp_path / "odd.duckdb", create, f"INSERT INTO orders SELECT {values} FROM range(60) t(i)")
    facts = duckdb_files.table(unit="u", **dict.fromkeys(names, Kind.INTEGER))
    with DuckDBEngine.open(path, schema(facts)) as engine:
        for place, name in enumerate(names):
            column = Column(f"c{place}", Kind.INTEGER)
            positive = Call("less", (column, Literal(2, Kind.INTEGER)), Kind.BOOLEAN)
            many = Total(factors=(), present=(), low=0, high=100, cap=Cap.CLAMP)
            measurement = measure(FilterRows(input=scan(facts), predicate=positive), column, totals=(many,))
            rows = [i % (place + 2) for i in range(60)]
            assert cells(engine.run(measurement, salt=SALT)) == {(k,): (rows.count(k),) for k in (0, 1)}, name


# ------------------------------------------------------------------ two ways to fetch

CELL = st.tuples(
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=6),
    st.none() | st.floats(),
    st.none() | st.booleans(),
    st.none() | st.integers(0, 2**64 - 1),
)
KINDS = (pa.int64(), pa.string(), pa.float64(), pa.bool_(), pa.uint64())


@pytest.fixture(scope="module")
def connection():
    with duckdb.connect() as opened:
        yield opened


@given(rows=st.lists(CELL, max_size=8))
def test_both_ways_fetch_the_same(connection, rows):
    made = pa.table({f"c{i}": pa.array([row[i] for row in rows], type=kind) for i, kind in enumerate(KINDS)})
    connection.register("given", made)
    many, few = (way(connection, "SELECT * FROM given AS r") for way in (fetch, fetch_few))
    assert few.schema == many.schema
    # NaN isn't equal to itself
    assert [repr(row) for row in few.to_pylist()] == [repr(row) for row in many.to_pylist()]


def test_other_types_than_those_are_no_result(connection):
    with pytest.raises(EngineFailure):
        fetch_few(connection, "SELECT DATE '2020-01-01' AS d")


def test_small_tables_are_fetched_the_fast_way_with_the_same_result(engine, tmp_path, monkeypatch):
    sources = engine._opened.sources
    small, everything = measure(scan(ORDERS), PLACE, groups=1), []
    assert reader(small, sources) is fetch_few
    for most in (duckdb_engine.MOST_FEW, 3):
        monkeypatch.setattr(duckdb_engine, "MOST_FEW", most)
        everything.append([cells(engine.run(small, salt=salt.to_bytes(8, "big"))) for salt in range(10)])
    assert reader(small, sources) is fetch
    assert everything[0] == everything[1]


def texts(*values):
    """An array that nobody checks."""
    ends = [sum(map(len, values[:place])) for place in range(len(values) + 1)]
    offsets = struct.pack(f"{len(ends)}i", *ends)
    return pa.Array.from_buffers(
        pa.string(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(values))]
    )


@pytest.mark.parametrize("column", ["who", "place", "hidden"])
def test_one_name_that_is_no_text_is_told_to_the_owner_and_fails_no_question(tmp_path, column):
    # behind a text with an accent DuckDB stores whatever bytes it is given; lower() of them ends the whole database
    facts = duckdb_files.table(who=Kind.TEXT, place=Kind.TEXT, amount=Kind.DOUBLE)
    for last in (b"z", b"\xff\xfe"):
        columns = {"who": texts(b"1", b"2", b"3", b"4"), "place": texts(b"a", b"a", b"b", b"b"), "amount": [1.0] * 4}
        columns[column] = texts("é".encode(), b"a", b"b", last)
        path = tmp_path / f"{last[0]}.duckdb"
        duckdb_files.write(path, {"orders": pa.table(columns)})
        if last == b"z" or column == "hidden":
            # a column that isn't declared is never read
            with DuckDBEngine.open(path, schema(facts)) as engine:
                lower = Call("lower", (PLACE,), Kind.TEXT)
                assert engine.run(measure(scan(facts), lower), salt=SALT).size == (4 if column == "place" else 2)
            continue
        with pytest.raises(SourceError, match=rf"column orders\.{column} holds text that isn't UTF-8"):
            DuckDBEngine.open(path, schema(facts))


def test_text_of_any_characters_is_fetched_the_fast_way(tmp_path):
    path = make(
        tmp_path / "data.duckdb", "CREATE TABLE orders AS SELECT 1 AS who, 'é' || chr(0) AS place, 1.0 AS amount"
    )
    with DuckDBEngine.open(path, schema(ORDERS)) as engine:
        assert reader(measure(scan(ORDERS), PLACE), engine._opened.sources) is fetch_few
        assert cells(engine.run(measure(scan(ORDERS), PLACE), salt=SALT)) == {("é\0",): (1,)}


def test_every_expression_has_the_type_of_its_kind(connection):
    # NumPy would make a double of an integer of 128 bits and of a decimal
    samples = [Typed(Column(kind.value, kind), NOTHING) for kind in Kind]
    samples += [literal(2, Kind.INTEGER), literal("day", Kind.TEXT)]
    scope = {kind.value: f"CAST(NULL AS {TYPES[kind]})" for kind in Kind}
    kinds, listed = [], []
    for name, size in product(FUNCTIONS, (1, 2, 3)):
        for arguments in product(samples, repeat=size):
            try:
                expression = apply(name, arguments).expression
            except Refused:
                continue
            kinds.append((name, TYPES[expression.kind]))
            listed.append(f"typeof({DUCKDB.expression(expression, scope)})")
    found = connection.execute(f"SELECT {', '.join(listed)}").fetchone()
    assert [(name, kind) for (name, _), kind in zip(kinds, found, strict=True)] == kinds
    assert {name for name, _ in kinds} == set(FUNCTIONS)


def test_what_is_large_unknown_or_of_another_kind_is_fetched_as_arrow(engine):
    one = scan(ORDERS)
    sources = {"orders": replace(engine._opened.sources["orders"], rows=2000)}
    assert reader(measure(one, PLACE), sources) is fetch_few
    assert reader(measure(one, Column("c1", Kind.DATE)), sources) is fetch
    joined = JoinRows(left=one, right=projected(one, "d", PLACE), kind=JoinKind.INNER, on_unit=True, condition=None)
    assert reader(measure(joined), sources) is fetch
    assert reader(measure(replace(joined, kind=JoinKind.SEMI)), sources) is fetch_few
    assert reader(measure(Union(inputs=(one, one), fields=one.fields)), sources) is fetch_few
    for rows in (None, duckdb_engine.MOST_FEW + 1):
        assert reader(measure(one), {"orders": replace(sources["orders"], rows=rows)}) is fetch


@given(value=st.floats())
def test_a_double_is_written_so_that_it_is_read_back(connection, value):
    sql = f"SELECT x, typeof(x) FROM (SELECT {_real_literal(value)} AS x)"
    ((found, kind),) = connection.execute(sql).fetchall()
    assert kind == "DOUBLE"
    assert math.isnan(found) if math.isnan(value) else struct.pack("d", found) == struct.pack("d", value)
