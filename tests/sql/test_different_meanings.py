"""Pairs that read alike and mean different things: one text for both would replay one's answer for the other."""

import pytest

from dither.errors import Refused
from dither.query.plan import canonical
from dither.query.plan.canonical import canonical_aggregation
from dither.query.sql import bind
from support.schemas import SHOP


def text(sql: str) -> str:
    return canonical_aggregation(bind(sql, SHOP).aggregation)


PAIRS = [
    pytest.param(
        "SELECT COUNT(p.price) FROM orders o LEFT JOIN (SELECT product, coalesce(price, 5) AS price FROM products) p "
        "ON o.product = p.product",
        "SELECT COUNT(coalesce(p.price, 5)) FROM orders o LEFT JOIN products p ON o.product = p.product",
        id="coalesce inside and outside of an outer join",
    ),
    pytest.param(
        "SELECT COUNT(*) FROM orders o LEFT JOIN (SELECT product, price IS NULL AS free FROM products) p "
        "ON o.product = p.product WHERE p.free",
        "SELECT COUNT(*) FROM orders o LEFT JOIN products p ON o.product = p.product WHERE p.price IS NULL",
        id="IS NULL inside and outside of an outer join",
    ),
    pytest.param(
        "SELECT SUM(n, contribution_bounds_per_row => (0, 9)) FROM (SELECT u.user_id, c.n FROM users u LEFT JOIN "
        "(SELECT user_id, coalesce(COUNT(*), 0) AS n FROM orders GROUP BY user_id) c ON u.user_id = c.user_id) x",
        "SELECT SUM(n, contribution_bounds_per_row => (0, 9)) FROM (SELECT u.user_id, coalesce(c.n, 0) AS n FROM "
        "users u LEFT JOIN (SELECT user_id, COUNT(*) AS n FROM orders GROUP BY user_id) c ON u.user_id = c.user_id) x",
        id="coalesce of an inner count",
    ),
    pytest.param(
        "SELECT SUM(f) FROM (SELECT first_value(amount) OVER (PARTITION BY user_id ORDER BY coupon) AS f FROM "
        "(SELECT user_id, amount, quantity, coupon FROM orders) a) b",
        "SELECT SUM(f) FROM (SELECT first_value(amount) OVER (PARTITION BY user_id ORDER BY coupon) AS f FROM "
        "(SELECT user_id, quantity, amount, coupon FROM orders) a) b",
        id="ties are broken by the columns in their order",
    ),
]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_different_meanings_have_different_texts(one, other):
    assert text(one) != text(other)


def test_an_inner_join_reads_the_same_inside_and_outside():
    inside = (
        "SELECT COUNT(p.price) FROM orders o JOIN (SELECT product, coalesce(price, 5) AS price FROM products) p "
        "ON o.product = p.product"
    )
    outside = "SELECT COUNT(coalesce(p.price, 5)) FROM orders o JOIN products p ON o.product = p.product"
    assert text(inside) == text(outside)


def test_expressions_that_double_at_each_level_are_refused_at_once():
    levels = ["WITH a0 AS (SELECT user_id, quantity AS z FROM orders)"]
    levels += [f"a{i + 1} AS (SELECT user_id, z % (z + 1) AS z FROM a{i})" for i in range(40)]
    with pytest.raises(Refused) as refusal:
        bind(", ".join(levels) + " SELECT COUNT(z) FROM a40", SHOP)
    assert refusal.value.code in ("too_long", "too_deep")


@pytest.mark.parametrize("levels", [12, 20, 50])
@pytest.mark.parametrize("outer", ["CAST({} BETWEEN 1 AND 2 AS INTEGER)", "CASE {} WHEN 1 THEN 1 WHEN 2 THEN 2 END"])
def test_operators_that_write_an_expression_twice_at_each_level_are_refused_at_once(outer, levels):
    expression = "quantity"
    for _ in range(levels):
        expression = outer.format(expression)
    with pytest.raises(Refused) as refusal:
        bind(f"SELECT COUNT(*) FROM orders WHERE {expression} = 1", SHOP)
    assert refusal.value.code in ("too_long", "too_deep")


def nested(operation: str, levels: int, conditions: int) -> str:
    rows = "SELECT amount AS a FROM orders"
    for _ in range(levels):
        rows = f"SELECT {operation} AS a FROM ({rows}) AS t"
    return f"SELECT COUNT(*) FROM ({rows}) AS t WHERE " + " AND ".join(f"a <> {i}" for i in range(conditions))


@pytest.mark.parametrize("operation", ["a + a", "least(a + 1, a)", "greatest(a, a)", "coalesce(a, a, 1)"])
def test_what_columns_share_is_read_once(operation, monkeypatch):
    # 8 levels are some hundred parts when written out, and these are in each of 10 conditions
    made = []
    normal = canonical._Forms._normal
    monkeypatch.setattr(canonical._Forms, "_normal", lambda forms, one: made.append(one) or normal(forms, one))
    question = bind(nested(operation, 8, 10), SHOP)
    made.clear()
    canonical_aggregation(question.aggregation)
    assert len(made) < 120


def test_all_conditions_together_are_bounded():
    with pytest.raises(Refused) as refusal:
        bind(nested("a + a", 13, 100), SHOP)
    assert refusal.value.code == "too_long"


def test_long_expressions_that_double_nothing_are_read():
    many = " AND ".join(f"(amount BETWEEN {i} AND {i + 1} OR quantity IN ({i}, {i + 1}))" for i in range(600))
    branches = " ".join(f"WHEN '{i}' THEN {i}" for i in range(600))
    assert bind(f"SELECT COUNT(*) FROM orders WHERE {many} AND CASE upper(product) {branches} END > 2", SHOP)


@pytest.mark.parametrize(("opening", "closing"), [("ARRAY[", "]"), ("DATE (", ")"), ("ROW((", "))")])
@pytest.mark.parametrize("levels", [8, 14, 29])
def test_texts_that_a_parser_reads_twice_at_each_level_are_refused_at_once(opening, closing, levels):
    # one line of this kept the parser busy for years: the steps that it may take are counted
    with pytest.raises(Refused):
        bind(f"SELECT COUNT({opening * levels}1{closing * levels}) FROM orders", SHOP)


def test_long_questions_do_not_run_out_of_steps():
    many = " AND ".join(f"(quantity < {i} OR NOT (quantity >= {i} + 1))" for i in range(300))
    assert bind(f"SELECT COUNT(*) FROM orders WHERE {many}", SHOP)


def test_joins_that_multiply_without_end_are_refused():
    tables = " ".join(f"JOIN orders o{i} ON o{i}.user_id = o.user_id" for i in range(7))
    with pytest.raises(Refused) as refusal:
        bind(f"SELECT COUNT(*) FROM orders o {tables}", SHOP)
    assert refusal.value.code == "join"


@pytest.mark.parametrize("share", ["0", "1", "0.12345678901"])
def test_quantiles_that_no_mechanism_answers_are_refused_before_the_charge(share):
    with pytest.raises(Refused) as refusal:
        bind(f"SELECT QUANTILE_CONT(amount, {share}) FROM orders", SHOP)
    assert refusal.value.code == "literal"
