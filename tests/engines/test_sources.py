"""Sources that would break a promise are refused on opening, and those that change are noticed."""

import os
import re
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dither.engines import DuckDBEngine
from dither.errors import SourceError
from dither.query.kinds import Kind
from dither.query.schema import ColumnFacts, TableFacts
from support import duckdb_files
from support.sizes import some

make, schema, table, values = duckdb_files.make, duckdb_files.schema, duckdb_files.table, duckdb_files.values

ORDERS = table(who=Kind.INTEGER, n=Kind.INTEGER)
TEXT = "who,n\n1,1\n2,2\n"


def public(name="pub", unique=(), **kinds):
    columns = {column: ColumnFacts(name=column, kind=kind) for column, kind in kinds.items()}
    return TableFacts(name=name, private=False, columns=columns, unique=tuple(map(frozenset, unique)))


# ------------------------------------------------------------------ one file, several names


@pytest.mark.parametrize("name", ["copy.csv", "ord*.csv", "hard.csv", "link.csv", "orders.csv", "./orders.csv"])
def test_a_private_file_is_not_public_under_another_name(tmp_path, name):
    (tmp_path / "orders.csv").write_text(TEXT, encoding="utf-8")
    shutil.copy(tmp_path / "orders.csv", tmp_path / "copy.csv")
    os.link(tmp_path / "orders.csv", tmp_path / "hard.csv")
    (tmp_path / "link.csv").symlink_to(tmp_path / "orders.csv")
    files = {"orders": tmp_path / "orders.csv", "pub": tmp_path / name}
    facts = schema(ORDERS, public(n=Kind.INTEGER))
    if name == "copy.csv":
        DuckDBEngine.open(files, facts).close()
        return
    for order in (files, dict(reversed(files.items()))):
        with pytest.raises(SourceError, match=r"tables (orders and pub|pub and orders) read the same file"):
            DuckDBEngine.open(order, facts)


def test_a_row_is_not_read_twice(tmp_path):
    (tmp_path / "a.csv").write_text(TEXT, encoding="utf-8")
    (tmp_path / "b.csv").symlink_to(tmp_path / "a.csv")
    for twice in ([tmp_path / "a.csv"] * 2, tmp_path / "*.csv", [tmp_path / "a.csv", tmp_path / "b.csv"]):
        with pytest.raises(SourceError, match=r"table orders reads .* more than once"):
            DuckDBEngine.open({"orders": twice}, schema(ORDERS))
    rows, other = table(unit=None, n=Kind.INTEGER), table("other", unit=None, n=Kind.INTEGER)
    both = {"orders": tmp_path / "a.csv", "other": tmp_path / "b.csv"}
    with pytest.raises(SourceError, match="orders and other read the same file"):
        DuckDBEngine.open(both, schema(rows, other))
    # the unit is who in both, so its rows are its own however often they are read; and public rows are no secret
    DuckDBEngine.open(both, schema(ORDERS, table("other", who=Kind.INTEGER))).close()
    DuckDBEngine.open(both, schema(public("orders", n=Kind.INTEGER), public("other", n=Kind.INTEGER))).close()


# ------------------------------------------------------------------ change


def test_files_that_appear_later_are_not_read(tmp_path):
    (tmp_path / "a.csv").write_text(TEXT, encoding="utf-8")
    with DuckDBEngine.open({"orders": tmp_path / "*.csv"}, schema(ORDERS)) as engine:
        before = engine.version()
        (tmp_path / "b.csv").write_text("who,n\n3,3\n", encoding="utf-8")
        assert (engine.version(), engine.unchanged()) == (before, True)
        assert values(engine, ORDERS, 1) == {1: 1, 2: 1}
    with DuckDBEngine.open({"orders": tmp_path / "*.csv"}, schema(ORDERS)) as engine:
        assert engine.version() != before


def test_every_file_counts_in_the_version(tmp_path):
    for name in "abc":
        pq.write_table(pa.table({"who": [1], "n": [1]}), tmp_path / f"{name}.parquet")
    source = {"orders": tmp_path / "[ab].parquet", "pub": tmp_path / "c.parquet"}
    for name in "abc":
        with DuckDBEngine.open(source, schema(ORDERS, public(n=Kind.INTEGER))) as engine:
            before = engine.version()
            assert engine.unchanged()
            pq.write_table(pa.table({"who": [1, 2], "n": [1, 2]}), tmp_path / f"{name}.parquet")
            assert engine.version() != before
            assert not engine.unchanged()


def test_another_file_of_the_same_size_and_time_is_a_change(tmp_path):
    path, other = tmp_path / "a.csv", tmp_path / "new"
    path.write_text(TEXT, encoding="utf-8")
    with DuckDBEngine.open({"orders": path}, schema(ORDERS)) as engine:
        before = engine.version()
        other.write_text(TEXT.replace("2", "9"), encoding="utf-8")
        shutil.copystat(path, other)
        other.replace(path)
        # a copy of the data keeps its version, so that questions needn't be paid again
        assert engine.version() == before
        assert not engine.unchanged()
        path.unlink()
        assert engine.version() != before
        assert not engine.unchanged()


# ------------------------------------------------------------------ collations


COLLATIONS = ["NOCASE", "NOACCENT", "NFC", "NOCASE.NOACCENT"]


@pytest.mark.parametrize(
    ("name", "collation"),
    some([(name, collation) for name in ("orders", "seen", "seen_again") for collation in COLLATIONS], 3),
)
def test_ids_under_a_collation_are_refused(tmp_path, collation, name):
    path = make(
        tmp_path / "ids.duckdb",
        f"CREATE TABLE orders (who VARCHAR COLLATE {collation}, n BIGINT, plain VARCHAR)",
        "INSERT INTO orders VALUES ('bob', 1, 'bob'), ('BOB', 1, 'BOB')",
        "CREATE VIEW seen AS SELECT who, n, plain FROM orders",
        "CREATE VIEW seen_again AS SELECT who AS who, n + 1 AS n, plain FROM seen",
    )
    for declared in ({"n": Kind.INTEGER}, {"who": Kind.TEXT, "n": Kind.INTEGER}):
        with pytest.raises(SourceError, match=re.escape(f'column who of "{name}" has a collation')):
            DuckDBEngine.open(path, schema(table(name, **declared)))
    # a column beside it, and a collation on a column that identifies nobody, are fine
    facts = table(name, unit="plain", who=Kind.TEXT, n=Kind.INTEGER)
    with DuckDBEngine.open(path, schema(facts)) as engine:
        assert values(engine, facts, 0) == {"BOB": 1, "bob": 1}


# ------------------------------------------------------------------ unique


@pytest.mark.parametrize(
    ("written", "kind", "rows", "unique"),
    [
        ("VARCHAR", Kind.INTEGER, "'7', '07'", False),
        ("VARCHAR", Kind.INTEGER, "'7', '+7'", False),
        ("VARCHAR", Kind.INTEGER, "'7', ' 7 '", False),
        ("VARCHAR", Kind.TEXT, "'7', '07', '+7'", True),
        ("VARCHAR", Kind.INTEGER, "'7', '8', 'x', 'y', NULL, NULL", True),
        ("TIMESTAMP", Kind.DATE, "'2024-01-01 01:00:00', '2024-01-01 02:00:00'", False),
        ("TIMESTAMP", Kind.TIMESTAMP, "'2024-01-01 01:00:00', '2024-01-01 02:00:00'", True),
        ("TIMESTAMP", Kind.DATE, "'2024-01-01 01:00:00', '2024-01-02 01:00:00', 'infinity', '-infinity'", True),
        ("DECIMAL(4, 2)", Kind.INTEGER, "1.10, 1.20", False),
        ("HUGEINT", Kind.DOUBLE, "9007199254740992, 9007199254740993", False),
        ("DOUBLE", Kind.DOUBLE, "'0.0', '-0.0'", False),
        ("DOUBLE", Kind.DOUBLE, "'nan', '-nan'", False),
        ("INTEGER", Kind.BOOLEAN, "1, 2", False),
        ("VARCHAR COLLATE NOCASE", Kind.TEXT, "'a', 'A'", True),
        ("VARCHAR COLLATE NOCASE", Kind.TEXT, "'a', 'a'", False),
    ],
)
def test_public_keys_are_unique_as_they_are_read(tmp_path, written, kind, rows, unique):
    path = make(
        tmp_path / "pub.duckdb",
        f"CREATE TABLE pub (k {written}, g INTEGER)",
        f"INSERT INTO pub SELECT CAST(k AS {written.partition(' COLL')[0]}), 1 FROM (SELECT unnest([{rows}]) AS k)",
    )
    facts = public(unique=[["k"]], k=kind, g=Kind.INTEGER)
    if unique:
        DuckDBEngine.open(path, schema(facts)).close()
    else:
        with pytest.raises(SourceError, match=r"pub holds some values of k more than once"):
            DuckDBEngine.open(path, schema(facts))
    # two columns are unique together where one of them differs
    DuckDBEngine.open(path, schema(public(k=kind, g=Kind.INTEGER))).close()


def test_several_columns_are_unique_together(tmp_path):
    (tmp_path / "pub.csv").write_text("k,d\n7,1\n07,2\n", encoding="utf-8")
    facts = {"k": Kind.INTEGER, "d": Kind.INTEGER}
    DuckDBEngine.open({"pub": tmp_path / "pub.csv"}, schema(public(unique=[["k", "d"]], **facts))).close()
    with pytest.raises(SourceError, match="values of k more than once"):
        DuckDBEngine.open({"pub": tmp_path / "pub.csv"}, schema(public(unique=[["k", "d"], ["k"]], **facts)))
    (tmp_path / "pub.csv").write_text("k,d\n7,1\n07,+1\n", encoding="utf-8")
    with pytest.raises(SourceError, match="values of d, k more than once"):
        DuckDBEngine.open({"pub": tmp_path / "pub.csv"}, schema(public(unique=[["k", "d"]], **facts)))
