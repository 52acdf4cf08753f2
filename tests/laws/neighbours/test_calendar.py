"""Groups of a calendar: a unit outside of the bounds, on their edges or within moves no more than is claimed.

Every variant is the base and one unit more, measured by the real engine.
"""

from dataclasses import replace
from datetime import date, datetime
from fractions import Fraction
from itertools import product

import duckdb
import pytest

from dither.audit import breaches, difference, reading
from dither.audit.queries.neighbours import BUDGET
from dither.engines import DuckDBEngine
from dither.privacy import Adjacency
from dither.query.kinds import Interval, Kind
from dither.query.price.noise import price
from dither.query.schema import ColumnFacts, Schema, TableFacts
from dither.query.sql import bind
from support.sizes import some

FIRST, LAST = date(2023, 12, 30), date(2024, 3, 1)
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001
BASE = [(1, "2023-12-30 00:00:00"), (1, "2024-02-29 12:00:00"), (2, "2024-03-01 23:59:59.999999"), (3, None)]
BASE += [(4, "2024-01-01 00:00:00"), (5, "2023-12-29 23:59:59.999999"), (5, "2024-03-02 00:00:00")]
# rows of the unit that comes; how many of them have a day within the bounds
MORE = {
    "before": (["2023-12-29 23:59:59.999999", "2022-03-01 00:00:00"], 0),
    "after": (["2024-03-02 00:00:00", "2025-01-15 08:00:00"], 0),
    "missing": ([None, None], 0),
    "endless": (["infinity", "-infinity"], 0),
    "first": (["2023-12-30 00:00:00"], 1),
    "last": (["2024-03-01 23:59:59.999999"], 1),
    "across": (["2023-12-29 23:59:59.999999", "2023-12-30 00:00:00", "2024-03-01 00:00:00", "2024-03-02 00:00:00"], 2),
    "many": ([f"2024-01-{day:02} 10:30:00" for day in range(1, 29)], 28),
}
DAYS = ("d", "CAST(s AS DATE)", "date_trunc('day', s)", "strftime(d, '%Y-%m-%d')")
KEYS = (*DAYS, "year(d)", "month(s)", "date_trunc('week', d)", "date_trunc('hour', s)", "dayname(s)", "hour(s)")
KEYS += ("CASE WHEN d < DATE '2024-02-01' THEN 'a' ELSE 'b' END", "year(s) * 100 + week(s)")
WHERE = ("", "WHERE d >= DATE '2024-01-01' AND s < TIMESTAMP '2024-03-01 00:00:00'", "WHERE isodow(d) > 5")


def _facts(name):
    day = Interval(*(Fraction((end - EPOCH.date()).days) for end in (FIRST, LAST)))
    moment = Interval(day.low * 86_400_000_000, (day.high + 1) * 86_400_000_000 - 1)
    columns = (
        ColumnFacts(name="u", kind=Kind.INTEGER),
        ColumnFacts(name="d", kind=Kind.DATE, between=day),
        ColumnFacts(name="s", kind=Kind.TIMESTAMP, between=moment),
    )
    return TableFacts(name=name, private=True, columns={c.name: c for c in columns}, unit_column="u", groups=3, rows=2)


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    path = tmp_path_factory.mktemp("calendar") / "w.duckdb"
    with duckdb.connect(str(path)) as db:
        for name, (rows, _) in {"t": ([], 0), **MORE}.items():
            db.execute(f"CREATE TABLE {name} (u BIGINT, d DATE, s TIMESTAMP)")
            for unit, moment in [*BASE, *((9, row) for row in rows)]:
                row = [unit, moment, moment]
                db.execute(f"INSERT INTO {name} VALUES (?, CAST(CAST(? AS TIMESTAMP) AS DATE), ?)", row)
    tables = Schema({name: _facts(name) for name in ("t", *MORE)})
    with DuckDBEngine.open(path, tables, threads=1) as opened:
        yield opened


# by day each condition and each key once or twice
@pytest.mark.parametrize(("key", "where"), some(list(product(KEYS, WHERE)), 4))
def test_a_unit_moves_no_more_than_is_claimed_wherever_its_dates_lie(engine, key, where):
    sql = f"SELECT {key} AS k, COUNT(*), COUNT(DISTINCT u) FROM t {where} GROUP BY k"
    asked = bind(sql, Schema({"t": _facts("t")}))
    assert not asked.aggregation.discover
    for adjacency in Adjacency:
        priced = price(asked.aggregation, BUDGET, adjacency)

        def measured(variant, priced=priced):
            relation = reading(priced.measurement.relation, {"t": variant})
            return engine.run(replace(priced.measurement, relation=relation), salt=b"any salt at all")

        # the unit leaves, or has other rows
        base = measured("t" if adjacency is Adjacency.ADD_REMOVE else "across")
        for variant, (_, within) in MORE.items():
            other = measured(variant)
            assert list(breaches(priced, other, base)) == [], variant
            if key in DAYS and not where and adjacency is Adjacency.ADD_REMOVE:
                assert difference(base, other, priced) == (within > 0), variant
