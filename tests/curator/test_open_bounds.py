"""Bounds that the owner left open: paid for as quoted, kept with the answer, and never a surprise."""

import pytest

from dither.errors import (
    Refused,
)
from dither.ledger import Account

COUNTS = "SELECT city, COUNT(*) AS n FROM orders GROUP BY city"


def spent(made, *path):
    return next((b.spent for b in made.ledger.balances() if b.account == Account(path)), None)


def causes(made):
    return [entry.body["cause"] for entry in made.ledger.entries() if entry.kind.value == "failed"]


@pytest.mark.parametrize("unit", ["customer", "row"])
@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
@pytest.mark.parametrize("delta", ["0", "1e-6"])
def test_open_bounds_cost_what_was_quoted_and_are_kept_with_the_answer(opened, delta, adjacency, unit):
    by_row = {"unit": 'privacy_unit = "row"'} if unit == "row" else {}
    made = opened(delta=delta, adjacency=adjacency, **by_row)
    sql = "SELECT city, AVG(rating) AS r FROM orders GROUP BY city"
    quote = made.curator.price(sql, epsilon=4)
    answer = made.curator.sql(sql, epsilon=4)
    assert spent(made, "shop").in_words(made.ledger.currency) == quote.charge
    assert quote.notes == ("bounds of orders.rating are searched for first",)
    # ratings lie between 1 and 6; powers of two around them
    assert answer.notes == ("bounds found for orders.rating: [1, 8]",)
    assert all(1 <= value <= 8 for value in answer.table.column("r").to_pylist())
    again = made.curator.sql(sql + " ORDER BY r", epsilon=4)
    assert again.notes == answer.notes
    assert sorted(map(str, again.to_pylist())) == sorted(map(str, answer.to_pylist()))
    assert not again.cost.charged
    assert made.engine.runs == 2


def test_open_bounds_do_not_become_public_keys(opened):
    made = opened()
    sql = "SELECT stars, AVG(stars) AS m FROM orders GROUP BY stars"
    quote = made.curator.price(sql, epsilon=4)
    assert "discovered" in quote.groups
    answer = made.curator.sql(sql, epsilon=4)
    assert spent(made, "shop").delta > 0
    assert set(answer.table.column("stars").to_pylist()) <= {1, 2, 3, 4, 5}


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT AVG(rating) AS a, SUM(rating, contribution_bounds_per_row => (0, 5)) AS s FROM orders",
        "SELECT SUM(rating, contribution_bounds_per_group => (0, 5)) AS s FROM orders",
        "SELECT SUM(sqrt(rating) + amount) AS s FROM orders",
        "SELECT SUM(stars * stars) AS s, MEDIAN(stars) AS m, STDDEV(rating) AS d FROM orders",
    ],
)
def test_whatever_was_priced_on_open_bounds_is_answered(opened, sql):
    assert len(opened().curator.sql(sql, epsilon=2)) == 1


@pytest.mark.parametrize("expression", ["ln(rating)", "1 / rating", "exp(rating)", "power(power(rating, 8), 8)"])
def test_what_found_bounds_might_not_allow_is_refused_before_the_charge(opened, expression):
    made = opened()
    with pytest.raises(Refused) as refusal:
        made.curator.sql(f"SELECT AVG({expression}) AS m FROM orders", epsilon=1)
    assert refusal.value.code == "bounds_missing"
    assert spent(made, "shop").main == 0


def test_stated_and_open_bounds_are_never_the_same_question(opened):
    curator = opened().curator
    keys = {
        curator.price(f"SELECT {columns} FROM orders", epsilon=1).key
        for columns in (
            "AVG(rating), SUM(rating)",
            "AVG(rating, contribution_bounds_per_row => (-1, 1)), SUM(rating)",
            "AVG(rating), SUM(rating, contribution_bounds_per_row => (-1, 1))",
            "AVG(rating, contribution_bounds_per_row => (-1, 1)), SUM(rating, contribution_bounds_per_row => (-1, 1))",
        )
    }
    assert len(keys) == 4


@pytest.mark.parametrize("value", [0.0, 1e-300, -1e300, float("inf"), float("nan"), None])
def test_open_bounds_survive_any_column(opened, tmp_path, write_orders, value):
    write_orders(tmp_path, rating=value)
    made = opened(directory=tmp_path)
    answer = made.curator.sql("SELECT SUM(rating) AS s, AVG(rating) AS m, MEDIAN(rating) AS d FROM orders", epsilon=4)
    assert answer.table.num_rows == 1
