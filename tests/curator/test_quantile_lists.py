"""A list of fractions asks for one column each, which share the weight of one aggregate."""

import shutil
from fractions import Fraction

import duckdb
import pytest

LISTED = "SELECT QUANTILE_CONT(amount, [0.25, 0.5, 0.9]) AS q FROM orders"


@pytest.fixture
def made(opened):
    return opened(budget="1000000", most="1000000")


@pytest.fixture
def plain(shop, tmp_path):
    """What plain DuckDB says."""
    shutil.copy(shop / "shop.duckdb", tmp_path / "plain.duckdb")
    with duckdb.connect(str(tmp_path / "plain.duckdb")) as database:
        yield lambda sql: database.execute(sql).fetchone()[0]


def test_each_column_is_the_quantile_of_plain_duckdb(made, plain):
    """With noise that is nothing; 0.5 is two points of the grid, less than quantiles are apart."""
    answer = made.curator.sql(LISTED, epsilon="100000").table.to_pydict()
    expected = plain("SELECT quantile_cont(amount, [0.25, 0.5, 0.9]) FROM orders")
    assert list(answer) == ["q_25", "q_50", "q_90"]
    assert [answer[name][0] for name in answer] == pytest.approx(expected, abs=0.5)
    assert expected[2] - expected[1] > 2
    ordered = "SELECT PERCENTILE_CONT(ARRAY[0.9, 0.25]) WITHIN GROUP (ORDER BY amount DESC) AS q FROM orders"
    turned = made.curator.sql(ordered, epsilon="100000").table.to_pydict()
    expected = plain("SELECT quantile_cont(amount, [0.1, 0.75]) FROM orders")
    assert [turned["q_90"][0], turned["q_25"][0]] == pytest.approx(expected, abs=0.5)


def test_they_share_the_weight_of_one_aggregate(made):
    priced = made.curator.price(LISTED.replace(" FROM", ", COUNT(*) AS n FROM"), epsilon="1").priced
    weights = {each.function.value: each.weight for each in priced.aggregation.aggregates}
    assert weights == {"count": 1, "quantile": Fraction(1, 3)}
    one = made.curator.price("SELECT QUANTILE_CONT(amount, 0.5) AS q, COUNT(*) AS n FROM orders", epsilon="1").priced
    assert priced.noise == one.noise
    assert len(priced.measurement.bins) == 1
    assert len(priced.choosers) == 3


def test_a_list_of_one_is_that_quantile_and_paid_for_once(made):
    first = made.curator.sql("SELECT QUANTILE_CONT(amount, 0.5) AS q FROM orders", epsilon="1")
    again = made.curator.sql("SELECT QUANTILE_CONT(amount, [0.5]) AS q FROM orders", epsilon="1")
    assert again.table.column("q_50")[0] == first.table.column("q")[0]
    assert made.engine.runs == 1


def test_columns_of_a_list_are_used_by_their_names(made):
    sql = f"SELECT q_90 - q_25 AS spread FROM ({LISTED}) WHERE q_50 > 0"
    assert made.curator.sql(sql, epsilon="100000").table.column("spread")[0].as_py() > 0
