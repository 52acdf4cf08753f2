"""Bounds that the owner left open: paid for as quoted, kept with the answer, and never a surprise."""

from fractions import Fraction
from itertools import pairwise

import duckdb
import pytest

from dither.curator import Curator, execution
from dither.curator.answers.release import Stored
from dither.curator.price.pricing import TRIALS, widened
from dither.engines.base import EngineFailure
from dither.errors import Failed, Refused
from dither.ledger import Account, Amount
from dither.query.kinds import Interval

COUNTS = "SELECT city, COUNT(*) AS n FROM orders GROUP BY city"


def spent(made, *path):
    found = made.ledger.balance(Account(path))
    return found.spent if found else Amount()


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
    assert quote.notes[0] == "bounds of orders.rating are searched for first"
    # ratings lie between 1 and 6; powers of two around them
    assert answer.notes[0] == "bounds found for orders.rating: [1, 8]"
    many = "there are 3 public groups, and each customer counts in at most 2: coarser groups would cut less"
    assert quote.notes[1:] == (*answer.notes[1:], *([] if unit == "row" else [many]))
    # what is cut off, and which mean it is
    assert len(answer.notes) == (1 if unit == "row" else 3)
    assert all(1 <= value <= 8 for value in answer.table.column("r").to_pylist())
    again = made.curator.sql(sql + " ORDER BY r", epsilon=4)
    *same, sorted_by = again.notes
    assert tuple(same) == answer.notes
    assert sorted_by.startswith("sorted by noisy values")
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


# ---------------------------------------------------------------- after the search


RATINGS = "SELECT AVG(rating) AS m FROM orders"


def failing_after_the_search(made, problem):
    """The engine fails at its second run: the first is the search."""
    real = made.engine.run

    def run(measurement, *, salt):
        if made.engine.runs >= 1:
            made.engine.runs += 1
            raise problem
        return real(measurement, salt=salt)

    made.engine.run = run
    return real


def test_a_failure_after_the_search_is_the_answer_and_draws_no_noise_again(opened):
    made = opened()
    real = failing_after_the_search(made, EngineFailure("secret-value"))
    with pytest.raises(Failed) as first:
        made.curator.sql(RATINGS, epsilon=2)
    assert first.value.final
    assert "no answer" in str(first.value)
    paid, runs = spent(made, "shop"), made.engine.runs
    made.engine.run = real
    for asking in (RATINGS, "SELECT AVG(rating) AS other FROM orders ORDER BY other"):
        with pytest.raises(Failed) as again:
            made.curator.sql(asking, epsilon=2)
        assert again.value.receipt == first.value.receipt
        assert again.value.final
    assert made.engine.runs == runs
    assert spent(made, "shop") == paid
    assert [entry.kind.value for entry in made.ledger.entries()].count("answer") == 1
    assert "secret-value" not in str(first.value) + repr(first.value.__context__)


def test_a_failure_of_the_search_itself_shows_no_noise_and_is_redeemed(opened):
    made = opened()
    made.engine.fails_with = EngineFailure("no memory")
    with pytest.raises(Failed) as failure:
        made.curator.sql(RATINGS, epsilon=2)
    assert not failure.value.final
    made.engine.fails_with = None
    answer = made.curator.sql(RATINGS, epsilon=2)
    assert answer.receipt.number == failure.value.receipt
    assert not answer.cost.charged


def test_an_interrupt_after_the_search_is_nobody_s_noise_and_is_redeemed(opened):
    made = opened()
    real = failing_after_the_search(made, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        made.curator.sql(RATINGS, epsilon=2)
    made.engine.run = real
    assert not made.curator.sql(RATINGS, epsilon=2).cost.charged


@pytest.mark.parametrize("found", [(4, 8), (3, 3), (-8, -4), (0, 0), (2**60, 2**65)])
@pytest.mark.parametrize("sql", ["LEAST(rating, 3)", "rating"])
def test_bounds_that_leave_one_value_are_widened_to_an_answer(opened, monkeypatch, sql, found):
    made = opened()
    place, bounds = ("orders", "rating"), Interval(*map(Fraction, found))
    monkeypatch.setattr(execution, "find_bounds", lambda *_: {place: bounds})
    answer = made.curator.sql(f"SELECT CORR({sql}, amount) AS c FROM orders", epsilon=2)
    assert len(answer) == 1
    stored = [entry for entry in made.ledger.entries() if entry.kind.value == "answer"]
    assert len(stored) == 1
    low, high = map(float, answer.notes[0].partition("[")[2].rstrip("]").split(","))
    assert low <= found[0]
    assert high >= found[1]


def test_the_widest_bounds_are_those_that_were_tried_before_the_charge():
    place = ("orders", "rating")
    steps = list(widened({place: Interval(Fraction(4), Fraction(8))}))
    assert steps[0] == {place: Interval(Fraction(4), Fraction(8))}
    assert steps[1] == {place: Interval(Fraction(0), Fraction(8))}
    assert steps[-1] == {place: TRIALS[0]}
    for narrow, wide in pairwise(steps):
        assert wide[place].low <= narrow[place].low
        assert wide[place].high >= narrow[place].high


def test_what_is_stored_is_read_back():
    bounds = {("orders", "rating"): Interval(Fraction(-1, 2), Fraction(8))}
    for stored in (
        Stored(bounds=bounds, released=b"bytes"),
        Stored(bounds={}, released=b""),
        Stored(bounds=bounds, released=None, cause="why"),
    ):
        assert Stored.unseal(stored.seal()) == stored


@pytest.mark.parametrize(
    "columns",
    [
        "SUM(x) AS s, SUM(x, contribution_bounds_per_row => (0, 10)) AS s10",
        "SUM(x, contribution_bounds_per_row => (0, 10)) AS s10, SUM(x) AS s",
        "SUM(x) AS s, SUM(x, contribution_bounds_per_row => (0, 10)) AS s10, SUM(y) AS t, SUM(x + y) AS u",
    ],
)
def test_found_bounds_go_to_the_aggregate_that_waited_for_them(tmp_path, columns):
    with duckdb.connect(str(tmp_path / "d.duckdb")) as database:
        database.execute(
            "CREATE TABLE t AS SELECT i AS uid, 500 + 1.5 * (i % 100) AS x, -3.0 AS y FROM range(10000) AS r(i)"
        )
    (tmp_path / "dither.toml").write_text(
        '[source]\ndatabase = "d.duckdb"\nledger_head = "d.head"\n[budget]\nepsilon_budget = 1000\n'
        'analysts = "any"\n[tables.t]\nprivate = true\nprivacy_unit_column = "uid"\n[tables.t.columns]\n'
        'uid = { type = "integer" }\nx = { type = "double", between = "auto" }\n'
        'y = { type = "double", between = "auto" }\n'
    )
    with Curator.open(tmp_path / "dither.toml") as curator:
        (row,) = curator.sql(f"SELECT {columns} FROM t", epsilon=300).to_pylist()
    # every x lies above 10 and below 1024, so nothing is clamped but where the question says so
    assert row["s"] == pytest.approx(5_742_500, rel=0.01)
    assert row["s10"] == pytest.approx(100_000, rel=0.01)
    assert row.get("t", -30_000) == pytest.approx(-30_000, rel=0.01)
    assert row.get("u", 5_712_500) == pytest.approx(5_712_500, rel=0.01)
