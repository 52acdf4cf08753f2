"""Statistical queries where people have more rows than count: the share is theirs, and its interval covers."""

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from dither.errors import InvalidParameter, Refused

SURE = 1 - 1e-9


@pytest.fixture
def busy(opened, tmp_path):
    """300 customers with 200 orders each, of which 4 count; a tenth of everybody's orders has 8 pieces."""
    size = 300 * 200
    place = np.arange(size)
    table = pa.table(
        {
            "customer": place // 200,
            "city": np.array(["Basel", "Bern", "Zug"])[place // 200 % 3],
            "item": ["item"] * size,
            "amount": np.full(size, 20.0),
            "pieces": np.where(place % 10 == 0, 8, 0),
            "rating": np.full(size, 3.0),
            "stars": np.full(size, 3),
            "note": ["secret"] * size,
        }
    )
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as database:
        database.register("made_up", table)
        database.execute("CREATE TABLE orders AS SELECT * FROM made_up")

    def make(**settings):
        return opened(directory=tmp_path, **settings)

    return make


@pytest.mark.parametrize("delta", ["0", "1e-6"])
def test_the_share_is_that_of_people_who_have_more_rows_than_count(busy, delta):
    made = busy(delta=delta)
    found = made.curator.statistical_query("orders", "pieces = 8", tolerance="0.2", confidence=SURE, count_epsilon=2)
    assert abs(found.value - 0.1) <= found.tolerance == 0.2
    assert 0 <= found.low <= 0.1 <= found.high <= 1
    assert found.low <= found.value <= found.high
    assert found.epsilon == pytest.approx(sum(answer.cost.epsilon for answer in found.answers))
    # a mutant: two counts, each cut by itself. Everybody has 20 such orders, more than the 4 that count
    both = "SELECT COUNT_IF(pieces = 8) AS hits, COUNT(*) AS n FROM orders"
    (counts,) = made.curator.sql(both, epsilon=5, confidence=SURE).to_pylist()
    assert counts["hits"] / counts["n"] > 0.1 + found.tolerance


def test_the_exact_share_is_that_of_rows_that_count(opened, tmp_path):
    """Ten busy customers with 400 orders, nine tenths of which hit, and 290 with four, a quarter of which does."""
    rows = np.where(np.arange(300) < 10, 400, 4)
    customer = np.repeat(np.arange(300), rows)
    place = np.arange(customer.size) - np.repeat(np.cumsum(rows) - rows, rows)
    hits = np.where(customer < 10, place % 10 != 0, place == 0)
    size = customer.size
    table = pa.table(
        {
            "customer": customer,
            "city": ["Bern"] * size,
            "item": ["item"] * size,
            "amount": np.full(size, 20.0),
            "pieces": np.where(hits, 8, 0),
            "rating": np.full(size, 3.0),
            "stars": np.full(size, 3),
            "note": ["secret"] * size,
        }
    )
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as database:
        database.register("made_up", table)
        database.execute("CREATE TABLE orders AS SELECT * FROM made_up")
    curator = opened(directory=tmp_path).curator
    found = curator.statistical_query("orders", "pieces = 8", tolerance="0.1", confidence=SURE, count_epsilon=2)
    # four rows of each count: ten units at 0.9, the others at 1/4
    counted = (10 * 4 * 0.9 + 290 * 4 * 0.25) / (300 * 4)
    assert abs(found.value - counted) <= found.tolerance
    assert found.low <= counted <= found.high
    # what it isn't, though this is the share among all rows: the bias is in neither the tolerance nor the interval
    assert hits.mean() > 0.7 > found.high
    assert any("each customer counts as at most 4 rows" in note for note in found.answers[1].notes)
    assert "max_rows_contributed" in type(found).__doc__


def test_a_smaller_tolerance_costs_more_and_is_reached(busy):
    made = busy()
    costs = []
    for tolerance in ("0.3", "0.1", "0.05"):
        asked = {"tolerance": tolerance, "confidence": SURE, "count_epsilon": 1}
        found = made.curator.statistical_query("orders", "pieces = 8", **asked)
        costs.append(found.answers[1].cost.epsilon)
        assert abs(found.value - 0.1) <= float(tolerance)
    assert costs == sorted(costs)
    assert costs[0] < costs[-1] / 4


def test_a_predicate_is_refused_before_the_count_is_paid(busy):
    made = busy()
    with pytest.raises(Refused):
        made.curator.statistical_query("orders", "note = 'x'", tolerance="0.1")
    assert made.engine.runs == 0
    with pytest.raises(InvalidParameter, match="too few"):
        made.curator.statistical_query("orders", "pieces = 8", tolerance="0.0001")
    assert made.engine.runs == 1


@pytest.mark.parametrize(
    ("predicate", "share"), [("1 = 1", 1.0), ("pieces IS NULL", 0.0), ("NULLIF(pieces, 0) = 8", 0.1)]
)
def test_constant_and_missing_predicates(busy, predicate, share):
    found = busy().curator.statistical_query("orders", predicate, tolerance="0.3", confidence=SURE, count_epsilon=2)
    assert found.low <= share <= found.high
