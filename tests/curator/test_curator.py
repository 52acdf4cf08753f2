"""The curator from the question to the receipt: prices, charges, replays, refusals, failures."""

import shutil
from fractions import Fraction

import duckdb
import pytest

from dither.curator import Curator
from dither.curator.epsilon_to_currency import Exchange
from dither.engines import DuckDBEngine
from dither.errors import (
    InvalidParameter,
    OutOfBudget,
    Refused,
)
from dither.ledger import Account, Amount, Currency, SqliteLedger
from dither.query.price.noise import price_for_error

COUNTS = "SELECT city, COUNT(*) AS n FROM orders GROUP BY city"


def spent(made, *path):
    found = made.ledger.balance(Account(path))
    return found.spent if found else Amount()


def causes(made):
    return [entry.body["cause"] for entry in made.ledger.entries() if entry.kind.value == "failed"]


# ---------------------------------------------------------------- prices


@pytest.mark.parametrize("delta", ["0", "1e-6"])
@pytest.mark.parametrize(
    "sql",
    [
        COUNTS,
        "SELECT AVG(amount) AS m, SUM(pieces) AS s FROM orders",
        "SELECT MEDIAN(amount) AS m, MODE(city) AS c FROM orders",
        "SELECT AVG(rating) AS m FROM orders",
        "EXPLAIN PRIVACY SELECT COUNT(*) FROM orders",
    ],
)
def test_price_reads_no_data_and_charges_nothing(opened, sql, delta):
    made = opened(delta=delta)
    made.engine.fails_with = AssertionError("a price must not read data")
    made.curator.price(sql, epsilon="1/2")
    assert made.engine.runs == 0
    assert spent(made, "shop").main == 0


@pytest.mark.parametrize("delta", ["0", "1e-6"])
@pytest.mark.parametrize(
    "sql",
    [
        COUNTS,
        "SELECT city, AVG(amount) AS m, COUNT(DISTINCT customer) AS c FROM orders GROUP BY city",
        "SELECT MEDIAN(amount) AS m, VARIANCE(pieces) AS v FROM orders",
        "SELECT AVG(rating) AS m FROM orders",
        "SELECT CORR(stars, amount) AS c FROM orders",
    ],
)
def test_what_is_charged_is_what_was_quoted(opened, sql, delta):
    made = opened(delta=delta)
    quote = made.curator.price(sql, epsilon="1/2")
    answer = made.curator.sql(sql, epsilon="1/2")
    charged = spent(made, "shop", "owner")
    assert charged.in_words(made.ledger.currency) == quote.charge
    assert charged == spent(made, "shop") == answer.receipt.amount
    assert answer.cost.epsilon == quote.epsilon <= 0.5
    assert answer.cost.epsilon > 0.4999


def test_discovered_keys_are_charged_their_delta_as_quoted(opened):
    made = opened()
    sql = "SELECT item, COUNT(*) AS n FROM orders GROUP BY item"
    quote = made.curator.price(sql, epsilon=1)
    made.curator.sql(sql, epsilon=1)
    assert spent(made, "shop").delta > 0
    assert spent(made, "shop").in_words(made.ledger.currency) == quote.charge


def test_the_quote_says_who_is_protected_and_what_is_left(opened):
    made = opened(budget="1", most="1")
    quote = made.curator.price(COUNTS, epsilon="1/2")
    assert "each customer of orders" in str(quote)
    assert "3 public" in quote.groups
    assert quote.fits
    assert not quote.free
    assert quote.error.keys() == {"n"}
    made.curator.sql("SELECT COUNT(*) AS n FROM orders WHERE pieces > 3", epsilon=1)
    late = made.curator.price(COUNTS, epsilon=1)
    assert not late.fits
    assert "doesn't fit" in str(late)


def test_explain_privacy_is_the_quote_as_a_table_and_free(opened):
    made = opened()
    answer = made.curator.sql("EXPLAIN PRIVACY " + COUNTS, epsilon="1/2")
    quote = made.curator.price(COUNTS, epsilon="1/2")
    assert answer.to_pylist() == quote.to_arrow().to_pylist()
    assert answer.receipt is None
    assert made.engine.runs == 0
    assert spent(made, "shop").main == 0


# ---------------------------------------------------------------- error=


@pytest.mark.parametrize("delta", ["0", "1e-6"])
def test_error_asks_for_the_smallest_epsilon(opened, delta):
    made = opened(delta=delta)
    quote = made.curator.price(COUNTS, error=40)
    assert quote.error["n"] <= 40
    budget = quote.priced.budget
    question = quote.priced.aggregation
    assert (
        price_for_error(
            question, {0: Fraction(40)}, kind=budget.kind, delta=budget.delta, adjacency=made.policy.schema.adjacency
        ).budget
        == budget
    )
    # a hair less ε than quoted misses the target
    rates = Exchange(made.policy.budget.delta_budget)
    less = Fraction(quote.epsilon) * (1 - Fraction(1, 10_000))
    bought = rates.for_question(less, made.policy.budget.delta_per_query, discover=False)
    assert bought.main < budget.main
    assert made.curator.price(COUNTS, epsilon=less).error["n"] > 40
    answer = made.curator.sql(COUNTS, error=40)
    assert all(half <= 40 for half in answer.error["n"])


def test_error_by_column_and_what_has_no_error_to_promise(opened):
    curator = opened().curator
    sql = "SELECT COUNT(*) AS n, SUM(amount) AS s FROM orders"
    quote = curator.price(sql, error={"s": 2000})
    assert quote.error["s"] <= 2000
    with pytest.raises(Refused, match="plain aggregates"):
        curator.price(sql, error={"nobody": 3})
    with pytest.raises(Refused, match="depends on the data") as refusal:
        curator.price("SELECT AVG(amount) AS m FROM orders", error=3)
    assert refusal.value.code == "error_unknown"
    with pytest.raises(Refused, match=r"orders\.rating"):
        curator.price("SELECT SUM(rating) AS r FROM orders", error=3)
    with pytest.raises(InvalidParameter, match="not both"):
        curator.price(sql, error=3, epsilon=1)
    with pytest.raises(Refused, match="would cost") as refusal:
        curator.price(sql, error=0.1)
    assert refusal.value.code == "epsilon_too_large"


def test_weights_move_error_between_columns(opened):
    curator = opened().curator
    sql = "SELECT COUNT(*) AS n, SUM(pieces) AS s FROM orders"
    even, uneven = curator.price(sql, epsilon=1), curator.price(sql, epsilon=1, weights={"n": 9})
    # ρ goes as weights and σ as one over its root: 1/2 becomes 9/10, and 1/2 becomes 1/10
    assert uneven.error["n"] / even.error["n"] == pytest.approx((5 / 9) ** 0.5, rel=0.03)
    assert uneven.error["s"] / even.error["s"] == pytest.approx(5**0.5, rel=0.03)
    assert uneven.key != even.key
    with pytest.raises(Refused, match="no noisy column"):
        curator.price(sql, epsilon=1, weights={"x": 2})
    with pytest.raises(InvalidParameter, match="weight of n"):
        curator.price(sql, epsilon=1, weights={"n": 0})


# ---------------------------------------------------------------- refusals and budgets


@pytest.mark.parametrize(
    ("sql", "options", "code"),
    [
        ("SELECT * FROM orders", {"epsilon": 1}, "rows_shown"),
        ("SELECT MAX(amount) FROM orders", {"epsilon": 1}, "aggregate"),
        ("SELECT COUNT(*) FROM nothing", {"epsilon": 1}, "unknown_table"),
        ("SELECT COUNT(note) FROM orders", {"epsilon": 1}, "hidden_column"),
        (COUNTS, {}, "epsilon_missing"),
        (COUNTS, {"epsilon": 6}, "epsilon_too_large"),
        (COUNTS, {"epsilon": 1, "analyst": "eve"}, "unknown_analyst"),
        (COUNTS, {"epsilon": "0.3", "analyst": "bob"}, "epsilon_too_large"),
    ],
)
def test_a_refusal_costs_nothing_and_reads_nothing(opened, sql, options, code):
    made = opened()
    entries = len(list(made.ledger.entries()))
    with pytest.raises(Refused) as refusal:
        made.curator.sql(sql, **options)
    assert refusal.value.code == code
    assert refusal.value.hint
    assert made.engine.runs == 0
    assert spent(made, "shop").main == 0
    assert len(list(made.ledger.entries())) == entries


def test_out_of_budget_is_free_and_the_budget_is_used_to_the_end(opened):
    made = opened(budget="1", delta="0", most="1")
    made.curator.sql(COUNTS, epsilon="3/4")
    before = made.ledger.verify()
    with pytest.raises(OutOfBudget):
        made.curator.sql("SELECT SUM(pieces) AS s FROM orders", epsilon="0.250001")
    assert made.ledger.verify() == before
    assert made.engine.runs == 1
    made.curator.sql("SELECT SUM(pieces) AS s FROM orders", epsilon="1/4")
    assert spent(made, "shop").main == 10**12
    assert made.curator.budget()[0].share == 1.0
    # what was paid for stays free when nothing is left
    assert not made.curator.sql(COUNTS, epsilon="3/4").cost.charged


def test_analysts_have_budgets_and_caps_of_their_own(opened):
    made = opened(delta="0")
    for bound in ("pieces > 1", "pieces > 2"):
        made.curator.sql(f"SELECT COUNT(*) AS n FROM orders WHERE {bound}", epsilon="1/4", analyst="bob")
    with pytest.raises(OutOfBudget):
        made.curator.sql(COUNTS, epsilon="1/4", analyst="bob")
    made.curator.sql(COUNTS, epsilon="1/4", analyst="ana")
    assert spent(made, "shop").main == 3 * 10**12 // 4
    (line,) = made.curator.budget("bob")
    assert (line.account, line.epsilon_spent, line.epsilon_budget) == ("shop/bob", 0.5, 0.5)
    assert {line.account for line in made.curator.budget()} == {"shop", "shop/ana", "shop/bob"}


def test_an_analyst_sees_no_account_but_their_own_and_strangers_none(opened):
    made = opened()
    made.curator.sql(COUNTS, epsilon=1, analyst="ana")
    assert [line.account for line in made.curator.budget("bob")] == ["shop/bob"]
    with pytest.raises(Refused) as refusal:
        made.curator.budget("eve")
    assert refusal.value.code == "unknown_analyst"


def test_two_spellings_of_a_name_are_one_account(opened):
    made = opened(more='analysts = "any"')
    made.curator.sql(COUNTS, epsilon=1, analyst="Zoë")
    again = made.curator.sql(COUNTS, epsilon=1, analyst="Zoe\u0308")
    assert not again.cost.charged


def test_a_cap_on_the_name_owner_binds_the_owner_too(shop, tmp_path):
    source = tmp_path / "owner.toml"
    source.write_text(
        f'[source]\ndatabase = "{shop / "shop.duckdb"}"\nname = "shop"\n[budget]\nepsilon_budget = 3\n'
        "[analysts.owner]\nepsilon_budget = 1\nmax_epsilon_per_query = 0.5\n"
        '[tables.orders]\nprivate = true\nprivacy_unit_column = "customer"\n'
        '[tables.orders.columns]\ncustomer = { type = "integer" }\n'
    )
    with Curator.open(source) as curator, pytest.raises(Refused, match=r"at most 0\.5"):
        curator.price("SELECT COUNT(*) AS n FROM orders", epsilon=1)


def test_the_clause_can_only_make_a_question_stricter(opened):
    made = opened(delta="0")
    clause = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon={}) COUNT(*) AS n FROM orders"
    assert made.curator.price(clause.format("0.25"), epsilon=1).epsilon == 0.25
    assert made.curator.price(clause.format("0.25")).epsilon == 0.25
    with pytest.raises(Refused) as refusal:
        made.curator.price(clause.format("7"))
    assert refusal.value.code == "epsilon_too_large"


def test_pure_budgets_can_not_discover_keys(opened):
    made = opened(delta="0")
    with pytest.raises(Refused, match="needs a δ") as refusal:
        made.curator.sql("SELECT item, COUNT(*) AS n FROM orders GROUP BY item", epsilon=1)
    assert refusal.value.code == "keys_need_delta"
    assert "in = [...]" in refusal.value.hint
    assert spent(made, "shop").main == 0


# ---------------------------------------------------------------- replays


@pytest.mark.parametrize(
    "again",
    [
        "SELECT city, COUNT(*) AS how_many FROM orders GROUP BY city",
        "SELECT COUNT(*) AS n, city FROM orders GROUP BY city ORDER BY n DESC LIMIT 2",
        "SELECT city, COUNT(*) AS n FROM orders GROUP BY 1 HAVING COUNT(*) > 10",
        "SELECT city AS c, 2 * COUNT(*) AS n FROM orders AS o GROUP BY city ORDER BY c",
        "select O.CITY, count(*) from ORDERS o group by o.city",
        "SELECT city, COUNT(*) AS n, DP_INTERVAL_LOW(n) AS low FROM orders GROUP BY city",
    ],
)
def test_the_same_question_in_other_words_is_free(opened, again):
    made = opened()
    first = made.curator.sql(COUNTS, epsilon="1/2")
    paid = spent(made, "shop")
    assert made.curator.price(again, epsilon="1/2").free
    second = made.curator.sql(again, epsilon="1/2")
    assert made.engine.runs == 1
    assert not second.cost.charged
    assert "nothing" in str(second.cost)
    assert spent(made, "shop") == paid
    numbers = {value for row in first.to_pylist() for value in row.values() if isinstance(value, int)}
    shown = {value for row in second.to_pylist() for value in row.values() if isinstance(value, int)}
    if "2 *" not in again and "LOW" not in again:
        assert shown <= numbers


def test_another_epsilon_weight_or_filter_is_another_question(opened):
    made = opened()
    first = made.curator.price(COUNTS, epsilon="1/2").key
    others = [
        made.curator.price(COUNTS, epsilon="0.4").key,
        made.curator.price(COUNTS + " HAVING COUNT(*) > 1", epsilon="0.3").key,
        made.curator.price("SELECT city, COUNT(*) AS n FROM orders WHERE pieces > 1 GROUP BY city", epsilon="1/2").key,
        made.curator.price("SELECT city, COUNT(pieces) AS n FROM orders GROUP BY city", epsilon="1/2").key,
    ]
    assert len({first, *others}) == 5


def test_another_analyst_gets_the_same_answer_and_pays_from_their_own_account(opened):
    made = opened(delta="0")
    first = made.curator.sql(COUNTS, epsilon="1/4", analyst="ana")
    second = made.curator.sql(COUNTS, epsilon="1/4", analyst="bob")
    assert first.to_pylist() == second.to_pylist()
    assert second.cost.charged
    assert made.engine.runs == 1
    assert spent(made, "shop").main == spent(made, "shop", "bob").main == 10**12 // 4


def test_confidence_is_a_way_of_reading_and_not_another_question(opened):
    made = opened()
    wide = made.curator.sql(COUNTS, epsilon="1/2", confidence="0.99")
    narrow = made.curator.sql(COUNTS, epsilon="1/2", confidence="0.5")
    assert made.engine.runs == 1
    assert (narrow.error["n"] < wide.error["n"]).all()
    with pytest.raises(InvalidParameter, match="confidence"):
        made.curator.sql(COUNTS, epsilon="1/2", confidence=1)


def test_another_version_of_the_data_is_a_new_question(opened):
    made = opened()
    made.curator.sql(COUNTS, epsilon="1/2")
    paid = spent(made, "shop").main
    changed = opened(version="2", ledger=made.ledger, engine=made.engine)
    assert changed.curator.sql(COUNTS, epsilon="1/2").cost.charged
    assert spent(made, "shop").main == 2 * paid


def test_without_a_stated_version_changed_files_are_a_new_question(shop, tmp_path):
    shutil.copy(shop / "shop.duckdb", tmp_path / "shop.duckdb")
    (tmp_path / "dither.toml").write_text(
        '[source]\ndatabase = "shop.duckdb"\n[budget]\nepsilon_budget = 3\nanalysts = "any"\n[tables.orders]\n'
        'private = true\nprivacy_unit_column = "customer"\ncolumns.customer = { type = "integer" }\n'
    )
    sql = "SELECT COUNT(*) AS n FROM orders"
    with Curator.open(tmp_path / "dither.toml") as curator:
        key = curator.price(sql, epsilon=1).key
        assert curator.price(sql, epsilon=1).key == key
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as database:
        database.execute("DELETE FROM orders WHERE customer = 1")
    with Curator.open(tmp_path / "dither.toml") as curator:
        assert curator.price(sql, epsilon=1).key != key


def test_two_curators_on_one_ledger_share_the_budget_and_the_record(policy_of, tmp_path):
    policy = policy_of(budget="1", delta="0", most="1")
    facts = {"currency": Currency.PURE, "adjacency": policy.schema.adjacency, "unit": "each id", "dataset": "shop"}
    with (
        SqliteLedger.open(tmp_path / "shop.ledger", **facts) as book,
        SqliteLedger.open(tmp_path / "shop.ledger", **facts) as same,
        DuckDBEngine.open(policy.source.location, policy.schema, threads=1) as engine,
        Curator.open(policy, ledger=book, engine=engine) as one,
        Curator.open(policy, ledger=same, engine=engine) as other,
    ):
        first = one.sql(COUNTS, epsilon="3/4")
        assert other.sql(COUNTS, epsilon="3/4").to_pylist() == first.to_pylist()
        with pytest.raises(OutOfBudget):
            other.sql("SELECT COUNT(*) AS n FROM orders", epsilon="1/2")
        other.sql("SELECT COUNT(*) AS n FROM orders", epsilon="1/4")
        with pytest.raises(OutOfBudget):
            one.sql("SELECT COUNT(pieces) AS n FROM orders", epsilon="1/100")
