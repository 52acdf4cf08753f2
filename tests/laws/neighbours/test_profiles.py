"""The neighbour test of profiles, over all small worlds: one unit moves one bin by 1, whatever it has."""

from collections import Counter
from itertools import product

import duckdb
import pytest

from dither.audit import breaches
from dither.audit.queries.neighbours import BUDGET
from dither.engines import DuckDBEngine, ReferenceEngine
from dither.privacy import Adjacency
from dither.query.kinds import Kind
from dither.query.plan.profile import LOWER_ENDS
from dither.query.price.noise import price
from dither.query.schema import ColumnFacts, Schema, TableFacts
from dither.query.sql import bind

SALT = b"a salt for everything"
SCHEMA = Schema(
    {
        "t": TableFacts(
            name="t",
            private=True,
            unit_column="u",
            columns={name: ColumnFacts(name=name, kind=Kind.INTEGER) for name in ("u", "x")},
            # a profile has bounds of its own
            groups=3,
            rows=2,
        ),
        "p": TableFacts(name="p", private=False, columns={"y": ColumnFacts(name="y", kind=Kind.INTEGER)}),
    }
)
QUESTIONS = (
    "PROFILE t",
    "PROFILE t WHERE x > 0",
    "PROFILE t JOIN p ON x = y",
    "PROFILE t WHERE x IN (SELECT y FROM p)",
    "PROFILE (SELECT DISTINCT u, x FROM t) AS d",
)
# what a unit may have: nothing, rows that pass WHERE or don't, many of one
HOLDINGS = ((), (0,), (1,), (1, 1), (0, 1), (1, 2, 2), (1, 1, 0, 2, 1))
PUBLIC = (1, 1, 1, 2)


def rows(world):
    return [{"u": unit, "x": value} for unit, values in enumerate(world) for value in values]


def bins(measured):
    keys = measured.keys.column("k0").to_pylist()
    return Counter(dict(zip(keys, map(int, measured.totals[0]), strict=True)))


def measured_by_reference(priced, world):
    tables = {"t": rows(world), "p": [{"y": value} for value in PUBLIC]}
    return ReferenceEngine(tables, SCHEMA).run(priced.measurement, salt=SALT)


def by_hand(sql, values):
    """The lowest of the bin of a unit with these values; None if it has no rows."""
    if "IN (" in sql:
        many = sum(value in PUBLIC for value in values)
    elif "JOIN" in sql:
        many = sum(PUBLIC.count(value) for value in values)
    elif "DISTINCT" in sql:
        many = len(set(values))
    else:
        many = sum(value > 0 for value in values) if "WHERE" in sql else len(values)
    return max((low for low in LOWER_ENDS if low <= many), default=None)


@pytest.mark.parametrize("sql", QUESTIONS)
def test_all_small_worlds(sql):
    asked = bind(sql, SCHEMA).aggregation
    one, other = (price(asked, BUDGET, adjacency) for adjacency in (Adjacency.ADD_REMOVE, Adjacency.REPLACE))
    assert (one.reaches[0].l1, one.reaches[0].l2_squared) == (1, 1)
    assert (other.reaches[0].l1, other.reaches[0].l2_squared) == (2, 2)
    assert one.measurement.groups == one.measurement.rows == 1
    found = {world: measured_by_reference(one, world) for world in product(HOLDINGS, repeat=2)}
    moved = Counter()
    for world, measured in found.items():
        expected = Counter(low for values in world if (low := by_hand(sql, values)) is not None)
        assert bins(measured) == expected
        for values in HOLDINGS:
            for neighbour in ((values, world[1]), (world[0], values)):
                removed = () in (neighbour[0], neighbour[1])
                assert not list(breaches(one if removed and () not in world else other, measured, found[neighbour]))
                change = {
                    low: bins(found[neighbour])[low] - expected[low] for low in {*expected, *bins(found[neighbour])}
                }
                moved[sum(map(abs, change.values()))] += 1
    # a test of nothing would pass too; and no replacement moves more than two bins
    assert set(moved) == {0, 1, 2}


@pytest.mark.parametrize("sql", QUESTIONS)
def test_duckdb_finds_the_same(sql, tmp_path):
    worlds = [(HOLDINGS[6], HOLDINGS[3]), (HOLDINGS[5], ()), ((), ()), (HOLDINGS[4], HOLDINGS[5])]
    for number, world in enumerate(worlds):
        path = tmp_path / f"{number}.duckdb"
        with duckdb.connect(str(path)) as database:
            database.execute("CREATE TABLE t(u BIGINT, x BIGINT)")
            # rows of nobody are in no bin
            database.execute("INSERT INTO t VALUES (NULL, 1)")
            for row in rows(world):
                database.execute("INSERT INTO t VALUES (?, ?)", [row["u"], row["x"]])
            database.execute("CREATE TABLE p AS SELECT CAST(unnest(?) AS BIGINT) AS y", [list(PUBLIC)])
        priced = price(bind(sql, SCHEMA).aggregation, BUDGET, Adjacency.ADD_REMOVE)
        with DuckDBEngine.open(path, SCHEMA, threads=1) as engine:
            assert bins(engine.run(priced.measurement, salt=SALT)) == bins(measured_by_reference(priced, world))
