"""Values that units vouch for: exact against brute force, in DuckDB and the reference engine, on all small worlds."""

from collections import defaultdict
from itertools import combinations_with_replacement, product
from random import Random

import duckdb
import numpy as np
import pytest

from dither.engines import DuckDBEngine, ReferenceEngine
from dither.engines.matching import vouched_for
from dither.engines.reference.engine import _handed_out
from dither.query.aggregates.catalogue import lower
from dither.query.kinds import Kind
from dither.query.schema import ColumnFacts, Schema, TableFacts
from dither.query.sql import bind


def largest(edges, most):
    """Every way to hand values out."""
    units_of = defaultdict(list)
    for unit, value in edges:
        units_of[value].append(unit)
    best = 0
    for picked in product(*[(None, *units) for units in units_of.values()]):
        given = [unit for unit in picked if unit is not None]
        if all(given.count(unit) <= most for unit in given):
            best = max(best, len(given))
    return best


def by_flow(edges, most):
    unit, value = (np.array([edge[side] for edge in edges], dtype=np.int64) for side in (0, 1))
    return int(vouched_for(unit, value, most).sum())


def by_paths(edges, most):
    units_of = defaultdict(list)
    for unit, value in edges:
        units_of[value].append(unit)
    return _handed_out(units_of, most)


def by_popularity(edges, most):
    """A mutant: values in the order of how few units have them, each to its unit with most values left."""
    units_of, having = defaultdict(list), defaultdict(list)
    for unit, value in edges:
        units_of[value].append(unit)
        having[unit].append(value)
    given = defaultdict(int)
    for value in sorted(units_of, key=lambda each: (-len(units_of[each]), each)):
        free = [unit for unit in units_of[value] if given[unit] < most]
        if free:
            given[max(free, key=lambda unit: (len(having[unit]), unit))] += 1
    return sum(given.values())


def worlds(units, values):
    """All tables of so many units, each with some of the values."""
    sets = [[v for v in range(values) if mask >> v & 1] for mask in range(2**values)]
    # which unit is which makes no difference
    for owned in combinations_with_replacement(sets, units):
        yield [(unit, value) for unit, own in enumerate(owned) for value in own]


def furthest(number, most):
    """How far one unit moves a number at most."""
    found = 0
    for edges in worlds(3, 4):
        whole = number(edges, most)
        for gone in range(3):
            found = max(found, abs(whole - number([edge for edge in edges if edge[0] != gone], most)))
    return found


@pytest.mark.parametrize("most", [1, 2])
def test_both_are_the_size_of_a_largest_matching(most):
    for edges in worlds(3, 3):
        assert by_flow(edges, most) == by_paths(edges, most) == largest(edges, most), edges
    random = Random(most)
    for _ in range(300):
        edges = sorted({(random.randrange(5), random.randrange(7)) for _ in range(random.randrange(1, 14))})
        assert by_flow(edges, most) == by_paths(edges, most) == largest(edges, most), edges


@pytest.mark.parametrize("most", [1, 2])
def test_a_unit_moves_it_by_no_more_than_it_may_vouch_for(most):
    assert furthest(by_flow, most) == most


def test_an_order_that_data_decides_is_noticed():
    assert furthest(by_popularity, 1) > 1


def opened(folder, rows, most, groups=1):
    table = TableFacts(
        name="t",
        private=True,
        unit_column="who",
        columns={
            "who": ColumnFacts(name="who", kind=Kind.INTEGER),
            "city": ColumnFacts(name="city", kind=Kind.INTEGER, keys=(0, 1, None)),
            "item": ColumnFacts(name="item", kind=Kind.TEXT),
        },
        groups=groups,
        rows=most,
    )
    schema = Schema({"t": table})
    path = folder / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t (who BIGINT, city BIGINT, item VARCHAR)")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
    return path, schema


@pytest.mark.parametrize("by_city", [False, True])
def test_engines_agree_with_brute_force(tmp_path, by_city):
    """Values that are NULL, units of nobody, groups without a value, and values that peeling takes away."""
    for seed in range(12):
        random = Random(seed)
        rows = [
            (random.choice([None, *range(5)]), random.choice([0, 1, None]), random.choice([None, *"aabbcdefgh"]))
            for _ in range(random.choice([0, 6, 30]))
        ]
        rows += [(7, 0, None)]
        folder = tmp_path / f"{seed}"
        folder.mkdir()
        most = random.choice([1, 2, 3])
        path, schema = opened(folder, rows, most, groups=3)
        text = (
            "SELECT COUNT(DISTINCT item) AS n FROM t"
            if not by_city
            else ("SELECT city, COUNT(DISTINCT item) AS n FROM t GROUP BY city")
        )
        measurement = lower(bind(text, schema).aggregation).measurement
        assert not measurement.chooses
        with DuckDBEngine.open(path, schema, threads=1) as engine:
            found = engine.run(measurement, salt=b"a salt that is long enough")
        listed = [dict(zip(("who", "city", "item"), row, strict=True)) for row in rows]
        slow = ReferenceEngine({"t": listed}, schema).run(measurement, salt=b"a salt that is long enough")
        assert found.distinct[0].tolist() == slow.distinct[0].tolist()
        cities = found.keys.column("k0").to_pylist() if by_city else [None]
        for place, city in enumerate(cities):
            inside = [row for row in rows if row[0] is not None and row[2] is not None]
            edges = sorted({(row[0], row[2]) for row in inside if not by_city or row[1] == city})
            assert found.distinct[0][place] == largest(edges, most), (seed, city)
