"""Keys that became public: answered without δ, with gaps filled; what was paid for when they weren't is found again."""

import datetime as dt
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from dither.curator import Curator
from dither.curator.terms import Terms
from dither.engines import DuckDBEngine
from dither.policy import Policy
from dither.query.measure.measures import contribution
from dither.query.sql import grouping
from dither.query.sql.grouping import _Grouping

POLICY = """
[source]
database = "trips.duckdb"
name = "trips"
version = "1"

[budget]
epsilon_budget = 100
delta_budget = {delta}
max_epsilon_per_query = 20

[analysts.ana]
epsilon_budget = 100

[analysts.bob]
epsilon_budget = 100

[tables.trips]
private = true
privacy_unit_column = "rider"
max_groups_contributed = 2
max_rows_contributed = 1

[tables.trips.columns]
rider = {{ type = "integer" }}
day = {{ type = "date", between = [2024-02-28, 2024-07-01] }}
start = {{ type = "timestamp", between = [2024-02-28T00:00:00, 2024-07-01T23:59:59.999999] }}
fare = {{ type = "double", between = [0, 2], step = 0.5 }}
seats = {{ type = "integer", between = [1, 200_000] }}
"""
MONTHLY = "SELECT date_trunc('month', day) AS month, COUNT(*) AS n FROM trips GROUP BY month ORDER BY month"
PAID = [
    MONTHLY,
    "SELECT year(start) AS y, COUNT(*) AS n, AVG(fare) AS f FROM trips GROUP BY y",
    "SELECT month(day) AS m, COUNT(*) AS n FROM trips WHERE day < DATE '2024-06-01' GROUP BY m",
    "SELECT fare, isodow(day) AS d, COUNT(*) AS n FROM trips GROUP BY ALL",
    "SELECT seats, COUNT(*) AS n FROM trips WHERE seats BETWEEN 1 AND 3 GROUP BY seats",
]


def trips():
    """Nobody rides in May; some rows are out of the bounds, some have no date."""
    size = 4000
    rider = np.arange(size)
    days = [dt.date(2024, (3, 4, 6)[n % 3], 1 + n % 28) for n in range(size)]
    days[0], days[1], days[2] = dt.date(2024, 2, 27), dt.date(2025, 3, 5), None
    return pa.table(
        {
            "rider": rider,
            "day": pa.array(days, pa.date32()),
            "start": pa.array([None if d is None else dt.datetime.combine(d, dt.time(23, 59, 59)) for d in days]),
            "fare": (rider % 5) / 2.0,
            "seats": 1 + rider % 3,
        }
    )


@pytest.fixture
def opened(tmp_path, write_table, ledger_of):
    """Curators on the trips, on one ledger for each δ: ``opened(delta="0")``."""
    write_table(tmp_path / "trips.duckdb", trips(), "trips")
    ledgers, made = {}, []

    def make(delta="1e-6"):
        policy = Policy.parse(POLICY.format(delta=delta), base=tmp_path)
        ledger = ledgers.setdefault(delta, ledger_of(policy))
        made.append(Curator(policy, DuckDBEngine.open(policy.source.location, policy.schema, threads=1), ledger))
        return made[-1]

    return make


def _as_before(monkeypatch):
    monkeypatch.setattr(_Grouping, "_public_keys", lambda _, former: former)


@pytest.mark.parametrize("delta", ["0", "1e-6"])
def test_gaps_are_filled_and_no_delta_is_needed(opened, delta):
    curator = opened(delta)
    quote = curator.price(MONTHLY, epsilon=20)
    assert "6 public" in quote.groups
    answer = curator.sql(MONTHLY, epsilon=20)
    months = [row["month"] for row in answer.table.to_pylist()]
    assert months == [dt.date(2024, month, 1) for month in (2, 3, 4, 5, 6, 7)]
    counts = answer.table.column("n").to_pylist()
    # 4,000 rows, of which two are in no month of the calendar and one is in none at all
    assert [abs(n - m) < 60 for n, m in zip(counts, (1, 1333, 1333, 0, 1331, 0), strict=True)] == [True] * 6
    hours = curator.sql("SELECT hour(start) AS h, COUNT(*) FROM trips GROUP BY h", epsilon=1)
    assert hours.table.num_rows == 24


@pytest.mark.parametrize("sql", PAID)
def test_what_was_paid_for_as_discovered_is_served_as_it_was(opened, monkeypatch, sql):
    with monkeypatch.context() as before:
        _as_before(before)
        old = opened()
        asked = old.analyst("ana").price(sql, _terms(2))
        first = old.analyst("ana").sql(sql, _terms(2))
    assert first.cost.charged
    now = opened()
    again = now.analyst("ana").sql(sql, _terms(2))
    assert not again.cost.charged
    assert again.table.equals(first.table)
    assert now.analyst("ana").price(sql, _terms(2)).free
    assert asked.key != now.analyst("bob").price(sql, _terms(2)).key
    by_number = now.analyst("ana").answer(first.receipt.number)
    assert by_number.table.equals(first.table)
    # the owner, who reads everybody's, finds it too
    assert now.answer(first.receipt.number).table.equals(first.table)
    # other terms are another question, and so are the same of somebody else: as groups are known now
    other = now.analyst("ana").sql(sql, _terms(3))
    assert other.cost.charged
    assert now.analyst("bob").sql(sql, _terms(2)).cost.charged
    assert other.table.num_rows == now.analyst("bob").sql(sql, _terms(2)).table.num_rows


def _terms(epsilon):
    return Terms.of(epsilon=epsilon)


def test_what_was_paid_for_and_not_answered_is_redeemed_as_it_was_charged(opened, monkeypatch):
    with monkeypatch.context() as before:
        _as_before(before)
        old = opened()
        monkeypatch.setattr(DuckDBEngine, "run", _failing)
        with pytest.raises(Exception, match="receipt"):
            old.analyst("ana").sql(MONTHLY, _terms(2))
    monkeypatch.undo()
    now = opened()
    answer = now.analyst("ana").sql(MONTHLY, _terms(2))
    assert not answer.cost.charged
    assert answer.table.num_rows == 3


def _failing(*_, **__):
    raise RuntimeError("no")


# ------------------------------------------------------------------ limits that were the strictest of all tables

STAYS = """
[tables.stays]
private = true
privacy_unit_column = "rider"
max_rows_contributed = 2

[tables.stays.columns]
rider = {{ type = "integer" }}
nights = {{ type = "integer", between = [0, 9] }}
"""
JOINED = [
    "SELECT COUNT(*) AS n FROM trips WHERE rider IN (SELECT rider FROM stays WHERE nights > 1)",
    "SELECT COUNT(*) AS n, SUM(fare) AS f FROM trips JOIN stays USING (rider)",
    "SELECT month(day) AS m, COUNT(*) AS n FROM trips JOIN stays USING (rider) GROUP BY m",
]


@pytest.fixture
def with_stays(tmp_path, write_table, ledger_of):
    """Curators on trips that a rider has four of, and on two stays of each rider, all on one ledger."""
    rides = pa.concat_tables([trips()] * 4)
    nights = pa.table({"rider": np.repeat(np.arange(4000), 2), "nights": np.arange(8000) % 5})
    write_table(tmp_path / "trips.duckdb", rides, "trips")
    write_table(tmp_path / "trips.duckdb", nights, "stays")
    text = POLICY.replace("max_rows_contributed = 1", "max_rows_contributed = 4") + STAYS
    policy = Policy.parse(text.format(delta="1e-6"), base=tmp_path)
    ledger = ledger_of(policy)
    return lambda: Curator(policy, DuckDBEngine.open(policy.source.location, policy.schema, threads=1), ledger)


def _strictest(relation, tables, keys=()):
    found = contribution(relation, tables, keys)
    read = [tables[factor.table] for factor in found.factors] or [tables["stays"]]
    groups, rows = min(table.groups for table in read), min(min(table.rows for table in read), 2)
    return replace(found, groups=groups, rows=rows, most_groups=None, most_rows=None)


@pytest.mark.parametrize("sql", JOINED)
def test_what_was_paid_for_under_the_strictest_limit_is_served_as_it_was(with_stays, monkeypatch, sql):
    with monkeypatch.context() as before:
        before.setattr(grouping, "contribution", _strictest)
        before.setattr(grouping, "_formerly", lambda *_: None)
        _as_before(before)
        first = with_stays().analyst("ana").sql(sql, _terms(2))
    assert first.cost.charged
    now = with_stays()
    again = now.analyst("ana").sql(sql, _terms(2))
    assert not again.cost.charged
    assert again.table.equals(first.table)
    other = now.analyst("bob").sql(sql, _terms(2))
    assert other.cost.charged
    # as it is read now nothing is cut; then, half of the trips were, or three quarters of the pairs
    assert sum(other.table.column("n").to_pylist()) > 1.8 * sum(first.table.column("n").to_pylist())
