"""Parts that are scaled down in all groups together: in no small world does a unit pass the bound, in whole numbers."""

from fractions import Fraction
from itertools import product

import duckdb
import numpy as np
import pytest

from dither.audit import breaches
from dither.audit.queries.neighbours import BUDGET
from dither.engines import DuckDBEngine, ReferenceEngine
from dither.engines.reference import engine as reference
from dither.privacy import Adjacency
from dither.query.kinds import Interval, Kind
from dither.query.measure.measures import LARGEST_PART, Cap
from dither.query.price.noise import price
from dither.query.price.profile import bounded_rows
from dither.query.schema import ColumnFacts, Schema, TableFacts
from dither.query.sql import bind

SALT = b"a salt for everything"
SCHEMA = Schema(
    {
        "t": TableFacts(
            name="t",
            private=True,
            unit_column="u",
            columns={
                "u": ColumnFacts(name="u", kind=Kind.INTEGER),
                "k": ColumnFacts(name="k", kind=Kind.TEXT, keys=("a", "b", "c", None)),
                "x": ColumnFacts(name="x", kind=Kind.INTEGER, between=Interval(Fraction(-3), Fraction(5))),
                "y": ColumnFacts(
                    name="y", kind=Kind.DOUBLE, between=Interval(Fraction(0), Fraction(1)), step=Fraction(1, 4)
                ),
            },
            rows=2**14,
            auto_rows=True,
            auto_groups=True,
        )
    }
)
QUESTION = "SELECT k, COUNT(*) AS n, COUNT(x) AS m, SUM(x) AS s, SUM(y) AS z, COUNT(DISTINCT u) AS p FROM t GROUP BY k"
# rows of one unit: (key, x, y); "d" is no public key
HOLDINGS = (
    (),
    (("a", 1, 0.25),),
    (("d", 5, 1.0),) * 3,
    (("a", -3, 0.0), ("b", 5, 1.0), ("c", -3, 0.5)),
    (("a", 5, 1.0),) * 4 + (("b", None, 0.25), (None, -3, None)),
    (("a", -3, 0.75), ("b", -3, 0.25)) * 3 + (("c", 1, 0.25), ("d", 5, 1.0)),
    (("a", 2, 0.5), ("a", -2, 0.5), ("b", 1, 0.0)),
)
BOUNDS = (1, 2, 3, 5, 2**14)


def priced(rows, adjacency=Adjacency.ADD_REMOVE, sql=QUESTION):
    return price(bounded_rows(bind(sql, SCHEMA), rows).aggregation, BUDGET, adjacency)


def rows_of(world):
    return [{"u": unit, "k": key, "x": x, "y": y} for unit, holding in enumerate(world) for key, x, y in holding]


def slow(asked, world):
    return ReferenceEngine({"t": rows_of(world)}, SCHEMA).run(asked.measurement, salt=SALT)


def table(measured):
    keys = measured.keys.column("k0").to_pylist()
    return {key: tuple(int(total[i]) for total in measured.totals) for i, key in enumerate(keys)}


@pytest.fixture(scope="module", params=BOUNDS)
def worlds(request):
    asked = priced(request.param)
    return request.param, {world: slow(asked, world) for world in product(HOLDINGS, repeat=2)}


def found_breaches(bound, measured):
    one, other = priced(bound), priced(bound, Adjacency.REPLACE)
    for world, before in measured.items():
        for holding in HOLDINGS:
            after = measured[holding, world[1]]
            yield from breaches(other, before, after)
            if holding == ():
                # the second is the one without the unit
                yield from breaches(one, before, after)


def test_no_unit_moves_more_than_was_claimed(worlds):
    assert not list(found_breaches(*worlds))


def test_one_unit_alone_stays_within_the_bound_in_the_norm_of_its_noise(worlds):
    bound, measured = worlds
    asked = priced(bound)
    reached = 0
    for holding in HOLDINGS:
        found = table(measured[holding, ()])
        for place, (cell, reach) in enumerate(zip(asked.lowered.cells, asked.reaches, strict=True)):
            assert cell.exact.cap is Cap.SCALE
            parts = [row[asked.measurement.totals.index(cell.exact)] for row in found.values()]
            assert sum(map(abs, parts)) <= reach.l1 == max(-cell.low, cell.high) <= LARGEST_PART, place
            assert sum(part * part for part in parts) <= reach.l2_squared
            reached += sum(map(abs, parts)) == reach.l1
    # bounds that nobody reaches would be no test
    assert reached or bound > 100


def rounded_down(total, own):
    """Floors: a negative part may pass the bound by a step in each group."""
    sums = {key: sum(reference._counting(total, rows)) for key, rows in own.items()}
    size, most = sum(map(abs, sums.values())), max(-total.low, total.high)
    if size * total.fine <= most:
        return {key: each * total.fine for key, each in sums.items()}
    return {key: each * most // size for key, each in sums.items()}


def group_by_group(total, own):
    """Each group scaled by itself."""
    most, sums = max(-total.low, total.high), {}
    for key, rows in own.items():
        each = sum(reference._counting(total, rows)) * total.fine
        sums[key] = max(-most, min(most, each))
    return sums


@pytest.mark.parametrize("mutant", [rounded_down, group_by_group])
def test_a_broken_rule_is_noticed(mutant, monkeypatch):
    monkeypatch.setattr(reference, "scaled", mutant)
    for bound in BOUNDS[:-1]:
        asked = priced(bound)
        if list(found_breaches(bound, {world: slow(asked, world) for world in product(HOLDINGS, repeat=2)})):
            return
    pytest.fail("the neighbour test doesn't see it")


@pytest.mark.parametrize("bound", BOUNDS)
def test_duckdb_finds_the_same(bound, tmp_path):
    world = (*HOLDINGS, HOLDINGS[5], HOLDINGS[3])
    with duckdb.connect(str(tmp_path / "t.duckdb")) as database:
        database.execute("CREATE TABLE t(u BIGINT, k VARCHAR, x BIGINT, y DOUBLE)")
        database.execute("INSERT INTO t VALUES (NULL, 'a', 1, 0.5)")
        for row in rows_of(world):
            database.execute("INSERT INTO t VALUES (?, ?, ?, ?)", list(row.values()))
    asked = priced(bound)
    with DuckDBEngine.open(tmp_path / "t.duckdb", SCHEMA, threads=1) as engine:
        found = engine.run(asked.measurement, salt=SALT)
    assert table(found) == table(slow(asked, world))


def test_with_a_huge_bound_it_is_what_plain_sql_says(tmp_path):
    maker = np.random.default_rng(3)
    size = 3_000
    columns = {
        "u": maker.integers(0, 40, size),
        "k": np.array(["a", "b", "c"])[maker.integers(0, 3, size)],
        "x": maker.integers(-3, 6, size),
        "y": maker.integers(0, 5, size) / 4,
    }
    with duckdb.connect(str(tmp_path / "t.duckdb")) as database:
        database.register("made", {name: np.asarray(values) for name, values in columns.items()})
        database.execute("CREATE TABLE t AS SELECT u, k, x, y FROM made")
        plain = {
            key: values
            for key, *values in database.execute(
                "SELECT k, COUNT(*), COUNT(x), SUM(x), SUM(y), COUNT(DISTINCT u) FROM t GROUP BY k"
            ).fetchall()
        }
    asked = priced(2**14)
    with DuckDBEngine.open(tmp_path / "t.duckdb", SCHEMA, threads=1) as engine:
        measured = engine.run(asked.measurement, salt=SALT)
    keys = measured.keys.column("k0").to_pylist()
    for place, aggregate in enumerate(asked.aggregation.aggregates):
        recipe = asked.lowered.recipes[place]
        ((cell, step),) = recipe.linear[0]
        exact = asked.measurement.numbers(asked.lowered.cells[cell].exact, measured)
        shown = {key: each * step for key, each in zip(keys, exact.tolist(), strict=True)}
        column = next(
            i
            for i, (name, argument) in enumerate(
                [("count", None), ("count", "x"), ("sum", "x"), ("sum", "y"), ("count_units", None)]
            )
            if name == aggregate.function.value
            and (argument is None) == (not aggregate.arguments)
            and (argument is None or (aggregate.arguments[0].expression.kind is Kind.DOUBLE) == (argument == "y"))
        )
        assert shown == {key: Fraction(values[column]) for key, values in plain.items()}
