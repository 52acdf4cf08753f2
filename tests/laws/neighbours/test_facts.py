"""A fact that is wrong: answers lose what is beyond it, and one unit still moves nothing further than was claimed.

Small worlds, all of them: whatever up to three rows one unit has, beside whatever up to one another has, and every
neighbour of it. The policy says that a unit has one row, or one for each day, and worlds don't keep to it. Where they
do, cells are what plain DuckDB counts and adds up.
"""

from fractions import Fraction
from itertools import combinations_with_replacement, product

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dither.audit import breaches
from dither.audit.queries.neighbours import BUDGET, SALT
from dither.engines import DuckDBEngine, bounding
from dither.engines.reference import engine as reference
from dither.engines.reference.engine import ReferenceEngine
from dither.privacy import Adjacency
from dither.query.kinds import Interval, Kind
from dither.query.measure.measures import Measurement
from dither.query.price.noise import price
from dither.query.schema import ColumnFacts, Schema, TableFacts
from dither.query.sql import bind

COLUMNS = {
    "u": ColumnFacts(name="u", kind=Kind.INTEGER),
    "city": ColumnFacts(name="city", kind=Kind.TEXT, keys=("a", "b")),
    "day": ColumnFacts(name="day", kind=Kind.INTEGER, between=Interval(Fraction(0), Fraction(1))),
    "x": ColumnFacts(name="x", kind=Kind.INTEGER, between=Interval(Fraction(-1), Fraction(2))),
}
KINDS_OF_ROWS = [("a", 0, 2), ("a", 1, -1), ("b", 0, 2), ("b", 5, 7)]
FACTS = {
    "one row": {"rows_at_most": 1},
    "unique unit": {"unique": (frozenset({"u"}),)},
    "two rows": {"rows_at_most": 2},
    "unique day": {"unique": (frozenset({"u", "day"}),)},
}
QUESTIONS = [
    "SELECT COUNT(*), SUM(x), COUNT(DISTINCT u) FROM t",
    "SELECT city, COUNT(*), AVG(x) FROM t GROUP BY city",
    "SELECT day, COUNT(*), SUM(x) FROM t GROUP BY day",
    "SELECT x, COUNT(*), COUNT(DISTINCT u) FROM t GROUP BY x",
    "SELECT city, MEDIAN(x), COUNT(DISTINCT day) FROM t GROUP BY city",
    "SELECT a.city, COUNT(*), SUM(b.x) FROM t a JOIN t b ON a.u = b.u GROUP BY a.city",
    "SELECT COUNT(*) FROM t WHERE u IN (SELECT u FROM t WHERE x > 0)",
    "SELECT city, COUNT(*) FROM (SELECT city FROM t UNION ALL SELECT city FROM t) AS s GROUP BY city",
]
OWN = [rows for size in range(4) for rows in combinations_with_replacement(KINDS_OF_ROWS, size)]
OTHERS = [rows for size in range(2) for rows in combinations_with_replacement(KINDS_OF_ROWS, size)]


def schema(name):
    table = TableFacts(
        name="t", private=True, columns=COLUMNS, unit_column="u", **{"groups": 2, "rows": 3, **FACTS[name]}
    )
    return Schema({"t": table})


def world(own, others):
    rows = [(1, *row) for row in own] + [(2, *row) for row in others]
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows]


def neighbours(name, sql, adjacency, *, own=OWN, others=OTHERS):
    """What is wrong with each pair of neighbours, in the reference engine; nothing is wrong but for mutants."""
    facts = schema(name)
    priced = price(bind(sql, facts).aggregation, BUDGET, adjacency)
    for beside in others:
        measured = [ReferenceEngine({"t": world(o, beside)}, facts).run(priced.measurement, salt=SALT) for o in own]
        if adjacency is Adjacency.ADD_REMOVE:
            pairs = ((found, measured[0]) for found in measured)
        else:
            # a unit that is replaced was there
            pairs = product(measured[1:], measured[1:])
        for before, after in pairs:
            yield breaches(priced, before, after)


@pytest.mark.parametrize("sql", QUESTIONS)
@pytest.mark.parametrize("name", FACTS)
def test_a_wrong_fact_moves_nothing_further_than_claimed(name, sql):
    assert not [found for found in neighbours(name, sql, Adjacency.ADD_REMOVE) if found]
    # of those that are replaced some: all pairs of all are many
    assert not [found for found in neighbours(name, sql, Adjacency.REPLACE, own=OWN[::3], others=OTHERS[:2]) if found]


def _trusting_reference(patch):
    """The unit's groups and rows are taken as they are: the fact says that there aren't more."""
    patch.setattr(ReferenceEngine, "_kept", lambda _self, _unit, own, _measurement, _salt: dict(own))
    patch.setattr(reference, "part_of", lambda total, rows, _most: sum(reference._counting(total, rows)))


def _trusting_groups(patch):
    patch.setattr(Measurement, "most_groups", property(lambda _: None))


def _trusting_rows(patch):
    def capped(self, rows):
        return f"CAST(r.{self.name if self.total.factors else self._counter} AS HUGEINT)"

    patch.setattr(bounding._Part, "capped", capped)


@pytest.mark.parametrize("name", FACTS)
def test_an_engine_that_trusts_the_fact_is_caught(name, monkeypatch):
    _trusting_reference(monkeypatch)
    for sql in QUESTIONS[:3]:
        assert any(neighbours(name, sql, Adjacency.ADD_REMOVE)), sql


def measured_by_duckdb(folder, rows, facts, measurement):
    table = pa.table({name: pa.array([row[name] for row in rows]) for name in COLUMNS})
    kinds = {"u": pa.int64(), "city": pa.string(), "day": pa.int64(), "x": pa.int64()}
    pq.write_table(table.cast(pa.schema(kinds)), folder / "t.parquet")
    with DuckDBEngine.open({"t": folder / "t.parquet"}, facts, threads=1) as engine:
        return engine.run(measurement, salt=SALT)


def by_duckdb(folder, name, sql):
    """What is wrong with two neighbours in DuckDB: a unit with six rows, and its absence."""
    facts = schema(name)
    priced = price(bind(sql, facts).aggregation, BUDGET, Adjacency.ADD_REMOVE)
    worlds = world(KINDS_OF_ROWS + KINDS_OF_ROWS[:2], OTHERS[1]), world((), OTHERS[1])
    return breaches(priced, *(measured_by_duckdb(folder, rows, facts, priced.measurement) for rows in worlds))


@pytest.mark.parametrize("name", ["one row", "unique day"])
def test_duckdb_bounds_a_wrong_fact_too(name, tmp_path):
    for sql in QUESTIONS:
        assert by_duckdb(tmp_path, name, sql) == (), sql


@pytest.mark.parametrize(
    ("mutant", "name", "sql"),
    [
        (_trusting_groups, "one row", QUESTIONS[1]),
        (_trusting_groups, "unique unit", QUESTIONS[3]),
        (_trusting_rows, "one row", QUESTIONS[0]),
        (_trusting_rows, "unique day", QUESTIONS[2]),
    ],
)
def test_duckdb_that_trusts_the_fact_is_caught(mutant, name, sql, tmp_path, monkeypatch):
    mutant(monkeypatch)
    assert by_duckdb(tmp_path, name, sql)


RIGHT = {
    "one row": [(unit, "ab"[unit % 2], unit % 2, unit % 4 - 1) for unit in range(40)],
    "two rows": [(unit, "ab"[n], unit % 2, (unit + n) % 4 - 1) for unit in range(30) for n in range(1 + unit % 2)],
    "unique day": [(unit, "ab"[unit % 2], day, (unit + day) % 4 - 1) for unit in range(30) for day in range(2)],
}
COUNTED = [
    ("SELECT COUNT(*), SUM(x), COUNT(DISTINCT u) FROM t", 3),
    ("SELECT city, COUNT(*), SUM(x) FROM t GROUP BY city ORDER BY city", 2),
    ("SELECT day, COUNT(*), COUNT(DISTINCT u) FROM t GROUP BY day ORDER BY day", 2),
    ("SELECT COUNT(*), SUM(x) FROM t WHERE u IN (SELECT u FROM t WHERE x > 0)", 2),
]


@pytest.mark.parametrize("sql", COUNTED, ids=lambda pair: pair[0])
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_fact_loses_nothing(name, sql, tmp_path):
    text, columns = sql
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in RIGHT[name]]
    facts = schema(name)
    priced = price(bind(text, facts).aggregation, BUDGET, Adjacency.ADD_REMOVE)
    assert priced.measurement.rows <= 2
    measured = measured_by_duckdb(tmp_path, rows, facts, priced.measurement)
    t = duckdb.connect().from_arrow(pa.table({name: [row[name] for row in rows] for name in COLUMNS}))
    plain = list(zip(*t.query("t", text).fetchall(), strict=True))[-columns:]
    aggregates = bind(text, facts).aggregation.aggregates
    assert len(aggregates) == columns
    found = {tuple(priced.measurement.numbers(cell.exact, measured).tolist()) for cell in priced.lowered.cells}
    assert {tuple(map(int, column)) for column in plain} <= found
