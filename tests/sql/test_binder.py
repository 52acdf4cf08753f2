"""What the binder builds: unit tracking, contributions, facts that hold, a normal form that loses no meaning."""

import datetime as dt
import importlib.util
import itertools
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from dither.engines.reference.functions import evaluate
from dither.errors import Refused
from dither.query.expressions.functions import FUNCTIONS, Typed, apply, literal
from dither.query.kinds import Call, Column, Facts, Interval, Kind, Literal
from dither.query.plan.canonical import canonical_aggregation, normal
from dither.query.plan.plan import (
    Distinct,
    FilterRows,
    Function,
    Inner,
    JoinKind,
    JoinRows,
    PerUnit,
    Project,
    Union,
    Window,
)
from dither.query.schema import Schema
from dither.query.sql import bind
from support.schemas import SHOP
from support.sizes import examples

HERE = Path(__file__).resolve().parent


def aggregation(text):
    return bind(text, SHOP).aggregation


def nodes(relation):
    yield relation
    for name in ("input", "left", "right"):
        if hasattr(relation, name):
            yield from nodes(getattr(relation, name))
    for each in getattr(relation, "inputs", ()):
        yield from nodes(each)


def only_node(text, kind):
    found = [node for node in nodes(aggregation(text).relation) if isinstance(node, kind)]
    assert len(found) == 1
    return found[0]


# unit tracking


def test_private_joins_are_on_the_unit_and_only_there():
    join = only_node("SELECT COUNT(*) FROM orders o JOIN clicks c ON o.user_id = c.visitor AND c.seconds > 1", JoinRows)
    assert join.on_unit
    assert join.condition.function == "greater"
    join = only_node("SELECT COUNT(*) FROM orders JOIN products USING (product)", JoinRows)
    assert not join.on_unit
    assert join.condition.function == "equal"


def test_a_public_table_on_the_left_changes_sides():
    join = only_node("SELECT COUNT(*) FROM products p RIGHT JOIN orders o ON o.product = p.product", JoinRows)
    assert (join.kind, join.left.table, join.right.table) == (JoinKind.LEFT, "orders", "products")


def test_not_in_is_an_anti_join_without_nulls():
    join = only_node("SELECT COUNT(*) FROM orders WHERE product NOT IN (SELECT product FROM products)", JoinRows)
    assert join.kind is JoinKind.ANTI
    assert join.left.predicate.function == "is_not_null"
    join = only_node("SELECT COUNT(*) FROM orders WHERE user_id NOT IN (SELECT user_id FROM users)", JoinRows)
    assert (join.kind, join.on_unit, join.condition) == (JoinKind.ANTI, True, None)


def test_inner_aggregates_are_exact_on_a_grid():
    text = (
        "SELECT AVG(t, contribution_bounds_per_row => (0, 9)) "
        "FROM (SELECT user_id, SUM(amount) AS t FROM orders GROUP BY 1)"
    )
    node = only_node(text, PerUnit)
    (inner,) = node.aggregates
    assert inner.function is Inner.SUM
    assert (inner.grid.step, inner.grid.low, inner.grid.high) == (Fraction(1, 100), 0, 10_000)
    assert [field.unit for field in node.fields] == [True, False]


def test_distinct_and_windows_stay_within_a_unit():
    assert only_node("SELECT COUNT(*) FROM (SELECT DISTINCT city FROM orders) t", Distinct)
    text = "SELECT COUNT(*) FROM (SELECT rank() OVER (PARTITION BY city, user_id ORDER BY day) AS r FROM orders) t"
    (item,) = only_node(text, Window).items
    # the unit itself is implied
    assert len(item.partition) == 1


def test_a_left_join_hides_the_unit_of_the_right_side():
    with pytest.raises(Refused) as caught:
        bind(
            "SELECT COUNT(*) FROM orders o LEFT JOIN users u ON o.user_id = u.user_id "
            "JOIN clicks c ON c.visitor = u.user_id",
            SHOP,
        )
    assert caught.value.code == "join"


def test_a_join_multiplies_limits_and_looking_units_up_leaves_them():
    loose = aggregation("SELECT product, COUNT(*) FROM orders GROUP BY product")
    joined = aggregation("SELECT product, COUNT(*) FROM orders JOIN users USING (user_id) GROUP BY product")
    looked = aggregation("SELECT product, COUNT(*) FROM orders WHERE user_id IN (SELECT user_id FROM users) GROUP BY 1")
    missed = aggregation(
        "SELECT product, COUNT(*) FROM orders WHERE user_id NOT IN (SELECT user_id FROM users) GROUP BY 1"
    )
    assert (loose.groups, loose.rows) == (looked.groups, looked.rows) == (missed.groups, missed.rows) == (4, 10)
    # all rows of users are in one group of product
    assert (joined.groups, joined.rows) == (4, 50)


def test_hidden_unit_columns_stay_hidden():
    orders = SHOP.tables["orders"]
    columns = {**orders.columns, "user_id": replace(orders.columns["user_id"], hidden=True)}
    schema = Schema({"orders": replace(orders, columns=columns)})
    assert bind("SELECT COUNT(*) FROM orders", schema).aggregation.relation.unit_column == "user_id"
    with pytest.raises(Refused) as caught:
        bind("SELECT COUNT(DISTINCT user_id) FROM orders", schema)
    assert caught.value.code == "hidden_column"


def test_unions_keep_the_unit_and_widen_bounds():
    text = "SELECT AVG(x) FROM (SELECT amount AS x FROM orders UNION ALL SELECT seconds FROM clicks) t"
    found = aggregation(text)
    assert found.aggregates[0].arguments[0].facts.bounds == Interval(Fraction(0), Fraction(600))
    assert any(isinstance(node, Union) for node in nodes(found.relation))


# facts

VALUES = {
    Kind.INTEGER: st.integers(-50, 50),
    Kind.DOUBLE: st.floats(-50, 50, allow_nan=False).map(lambda x: x + 0.0),
    Kind.BOOLEAN: st.booleans(),
    Kind.TEXT: st.sampled_from(["Bern", "Graz", "oslo", ""]),
    Kind.DATE: st.dates(dt.date(1990, 1, 1), dt.date(2030, 1, 1)),
}


@st.composite
def columns_and_rows(draw):
    """Columns with declared facts, and a row that respects them."""
    made, row = [], {}
    for index, kind in enumerate(
        [Kind.INTEGER, Kind.INTEGER, Kind.DOUBLE, Kind.DOUBLE, Kind.TEXT, Kind.DATE, Kind.BOOLEAN]
    ):
        values = sorted(draw(st.lists(VALUES[kind], min_size=2, max_size=3)))
        facts = Facts(keys=tuple(dict.fromkeys(values)))
        if kind.number:
            bounds = Interval(Fraction(values[0]), Fraction(values[-1]))
            keys = tuple(range(values[0], values[-1] + 1)) if kind is Kind.INTEGER else None
            facts = Facts(bounds=bounds, step=Fraction(1) if kind is Kind.INTEGER else None, keys=keys)
        made.append(Typed(Column(f"c{index}", kind), facts))
        row[f"c{index}"] = draw(st.sampled_from(values))
    return made, row


def constants(draw, name, position):
    if name in ("date_trunc", "date_diff"):
        return literal(draw(st.sampled_from(["year", "quarter", "month", "week", "day"])), Kind.TEXT)
    if name == "date_add":
        return literal("day", Kind.TEXT)
    if name in ("replace", "like", "ilike", "position"):
        return literal("r", Kind.TEXT)
    return literal(draw(st.integers(0 if name != "substring" else 1, 4)), Kind.INTEGER)


@given(columns_and_rows(), st.data())
@examples(100, 300)
def test_facts_hold_for_every_value(made, data):
    """Random expressions over declared columns: the value is within the derived bounds and among the derived values."""
    pool, row = made
    pool = [
        *pool,
        literal(3, Kind.INTEGER),
        literal(-2, Kind.INTEGER),
        literal(0.1, Kind.DOUBLE),
        literal("x", Kind.TEXT),
    ]
    for _ in range(6):
        name = data.draw(st.sampled_from(sorted(FUNCTIONS)))
        arguments = []
        for position in range(data.draw(st.integers(1, 4))):
            if position in FUNCTIONS[name].constants:
                arguments.append(constants(data.draw, name, position))
            else:
                arguments.append(data.draw(st.sampled_from(pool)))
        try:
            pool.append(apply(name, arguments))
        except Refused:
            continue
        made_now = pool[-1]
        value = evaluate(made_now.expression, row)
        if value is None or (isinstance(value, float) and not math.isfinite(value)):
            continue
        facts = made_now.facts
        if facts.bounds is not None:
            assert facts.bounds.low <= Fraction(value) <= facts.bounds.high, (name, arguments)
        if facts.keys is not None:
            assert value in facts.keys, (name, arguments)
            assert len(facts.keys) <= 10_000


@pytest.mark.parametrize("name", ["subtract", "negate", "modulo", "floor"])
def test_a_wrong_rule_is_noticed(name, monkeypatch):
    """A mutant that forgets to swap the ends, or the sign, leaves the bounds."""
    x = Typed(Column("c0", Kind.INTEGER), Facts(bounds=Interval(Fraction(-9), Fraction(-4)), step=Fraction(1)))
    arguments = [x] if name in ("negate", "floor") else [x, literal(5, Kind.INTEGER)]
    right = apply(name, arguments)
    assert all(
        right.facts.bounds.low <= evaluate(right.expression, {"c0": v}) <= right.facts.bounds.high
        for v in range(-9, -3)
    )
    monkeypatch.setitem(
        importlib.import_module("dither.query.expressions.ranges").RULES,
        name,
        lambda known, _: Interval(Fraction(0), Fraction(3)),
    )
    wrong = apply(name, arguments)
    assert not all(0 <= evaluate(wrong.expression, {"c0": v}) <= 3 for v in range(-9, -3))


def test_auto_columns_are_named_only_where_they_decide():
    def argument(text):
        return aggregation(text).aggregates[0].arguments[0].facts

    assert argument("SELECT AVG(rating + amount) FROM orders").auto == frozenset({("orders", "rating")})
    assert argument("SELECT SUM(CASE WHEN rating > 3 THEN 1 ELSE 0 END) FROM orders").auto == frozenset()


# the normal form

SAME = [
    (
        "SELECT city, SUM(amount) AS s FROM orders WHERE amount > 3 AND coupon GROUP BY city",
        "select sum(o.AMOUNT), o.city town from (select * from orders where coupon) o where 3 < amount group by 2",
    ),
    (
        "SELECT COUNT(*) FROM orders WHERE amount BETWEEN 1 AND 5",
        "SELECT COUNT(1) AS n FROM orders WHERE 5 >= amount AND amount >= 1",
    ),
    (
        "SELECT COUNT(*) FROM orders WHERE city IN ('Bern', 'Oslo')",
        "WITH t AS (SELECT city AS c FROM orders) SELECT COUNT(*) FROM t WHERE c IN ('Oslo', 'Bern', 'Bern')",
    ),
    (
        "SELECT SUM(amount), COUNT(*) FROM orders",
        "SELECT COUNT(*), SUM(amount), COUNT(*) * 2 FROM orders",
    ),
    (
        "SELECT city, coupon, COUNT(*) FROM orders GROUP BY city, coupon",
        "SELECT COUNT(*) FROM orders GROUP BY coupon, city HAVING COUNT(*) > 3 LIMIT 2",
    ),
    (
        "SELECT COUNT(*) FROM orders o JOIN users u ON o.user_id = u.user_id AND o.city = u.country",
        "SELECT COUNT(*) FROM orders a JOIN users b ON b.country = a.city AND b.user_id = a.user_id",
    ),
    ("SELECT SUM(amount + quantity) FROM orders", "SELECT SUM(quantity + amount) FROM orders"),
    ("SELECT COUNT(*) FROM orders WHERE NOT product IS NULL", "SELECT COUNT(*) FROM orders WHERE product IS NOT NULL"),
    # what clients send for the same number
    ("SELECT COUNT(*) FROM orders WHERE amount < 20", "SELECT COUNT(*) FROM orders WHERE amount < 20.0"),
    ("SELECT COUNT(*) FROM orders WHERE amount < 20", "SELECT COUNT(*) FROM orders WHERE 2e1 > amount"),
    ("SELECT COUNT(*) FROM orders WHERE amount < 20", "SELECT COUNT(*) FROM orders WHERE amount < CAST(20 AS DOUBLE)"),
    ("SELECT COUNT(*) FROM orders WHERE amount < 20", "SELECT COUNT(*) FROM orders WHERE NOT amount >= 20"),
    ("SELECT COUNT(*) FROM orders WHERE amount IN (1, 2)", "SELECT COUNT(*) FROM orders WHERE amount IN (2.0, 1, 1.0)"),
    ("SELECT COUNT(*) FROM orders WHERE amount = 0", "SELECT COUNT(*) FROM orders WHERE amount = -0.0"),
]

DIFFERENT = [
    "SELECT COUNT(*) FROM orders",
    "SELECT COUNT(*) FROM users",
    "SELECT COUNT(*) FROM orders WHERE coupon",
    "SELECT COUNT(*) FROM orders WHERE NOT coupon",
    "SELECT COUNT(*) FROM orders WHERE product = 'a'",
    "SELECT COUNT(*) FROM orders WHERE product = 'a '",
    "SELECT COUNT(*) FROM orders WHERE product = '1'' text:1''b'",
    "SELECT COUNT(*) FROM orders WHERE product <> 'a'",
    "SELECT COUNT(*) FROM orders WHERE city = 'a'",
    "SELECT COUNT(*) FROM orders WHERE amount > 1",
    "SELECT COUNT(*) FROM orders WHERE amount >= 1",
    "SELECT COUNT(*) FROM orders WHERE amount < 1",
    "SELECT COUNT(*) FROM orders WHERE amount > 1.5",
    "SELECT COUNT(*) FROM orders WHERE amount - quantity > 1",
    "SELECT COUNT(*) FROM orders WHERE quantity - amount > 1",
    "SELECT COUNT(*) FROM orders WHERE amount > 1 OR coupon",
    "SELECT COUNT(*) FROM orders WHERE amount > 1 AND coupon",
    "SELECT COUNT(amount) FROM orders",
    "SELECT COUNT(*, weight => 2) FROM orders",
    "SELECT COUNT(*, contribution_bounds_per_group => (0, 5)) FROM orders",
    "SELECT COUNT(DISTINCT user_id) FROM orders",
    "SELECT COUNT(DISTINCT product) FROM orders",
    "SELECT SUM(amount) FROM orders",
    "SELECT AVG(amount) FROM orders",
    "SELECT SUM(amount, contribution_bounds_per_row => (0, 50)) FROM orders",
    "SELECT SUM(amount, contribution_bounds_per_group => (0, 50)) FROM orders",
    "SELECT MEDIAN(amount) FROM orders",
    "SELECT QUANTILE_CONT(amount, 0.9) FROM orders",
    "SELECT city, COUNT(*) FROM orders GROUP BY city",
    "SELECT upper(city), COUNT(*) FROM orders GROUP BY 1",
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(max_groups_contributed=1) city, COUNT(*) FROM orders GROUP BY city",
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(max_rows_contributed=1) city, COUNT(*) FROM orders GROUP BY city",
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(group_selection_strategy=LAPLACE_THRESHOLD) city, SUM(1) FROM orders GROUP BY 1",  # noqa: E501
    "SELECT COUNT(*) FROM orders JOIN users USING (user_id)",
    "SELECT COUNT(*) FROM orders LEFT JOIN users USING (user_id)",
    "SELECT COUNT(*) FROM orders WHERE user_id IN (SELECT user_id FROM users)",
    "SELECT COUNT(*) FROM orders WHERE user_id NOT IN (SELECT user_id FROM users)",
    "SELECT COUNT(*) FROM orders JOIN products USING (product)",
    "SELECT COUNT(*) FROM orders CROSS JOIN products",
    "SELECT COUNT(*) FROM orders a JOIN orders b USING (user_id)",
    "SELECT COUNT(*) FROM orders a JOIN orders b USING (user_id) WHERE a.amount > 1",
    "SELECT COUNT(*) FROM orders a JOIN orders b USING (user_id) WHERE b.amount > 1",
    "SELECT COUNT(*) FROM (SELECT city FROM orders UNION ALL SELECT city FROM orders) t",
    "SELECT COUNT(*) FROM (SELECT DISTINCT city FROM orders) t",
    "SELECT COUNT(*) FROM (SELECT DISTINCT city, day FROM orders) t",
    "SELECT COUNT(*) FROM (SELECT user_id FROM orders GROUP BY user_id) t",
    "SELECT COUNT(*) FROM (SELECT user_id, city FROM orders GROUP BY user_id, city) t",
    "SELECT COUNT(*) FROM (SELECT user_id, COUNT(*) AS n FROM orders GROUP BY user_id) t WHERE n > 1",
    "SELECT COUNT(*) FROM (SELECT user_id, COUNT(score) AS n FROM orders GROUP BY user_id) t WHERE n > 1",
    "SELECT COUNT(*) FROM (SELECT user_id, COUNT(*) AS n FROM orders WHERE coupon GROUP BY user_id) t WHERE n > 1",
    "SELECT COUNT(*) FROM (SELECT rank() OVER (PARTITION BY user_id ORDER BY day) AS r FROM orders) WHERE r = 1",
    "SELECT COUNT(*) FROM (SELECT rank() OVER (PARTITION BY user_id ORDER BY day DESC) AS r FROM orders) WHERE r = 1",
    "SELECT COUNT(*) FROM (SELECT rank() OVER (PARTITION BY user_id, city ORDER BY day) AS r FROM orders) WHERE r = 1",
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_spelling_vanishes(one, other):
    first, second = bind(one, SHOP).aggregation, bind(other, SHOP).aggregation
    assert canonical_aggregation(first) == canonical_aggregation(second)
    # so a stored answer serves both: its columns are at the same places
    assert [a.function for a in first.aggregates] == [a.function for a in second.aggregates]


def test_meaning_does_not_vanish():
    forms = {text: canonical_aggregation(bind(text, SHOP).aggregation) for text in DIFFERENT}
    for one, other in itertools.combinations(forms, 2):
        assert forms[one] != forms[other], (one, other)


def test_outputs_follow_their_columns():
    question = bind("SELECT SUM(amount) AS s, AVG(amount) AS a, COUNT(*) AS n FROM orders", SHOP)
    by_name = {output.name: output.expression.name for output in question.shape.outputs}
    functions = {f"a{i}": aggregate.function for i, aggregate in enumerate(question.aggregation.aggregates)}
    found = {name: functions[column] for name, column in by_name.items()}
    assert found == {"s": Function.SUM, "a": Function.AVG, "n": Function.COUNT}


A, B, X, Y, Z = (
    Column(n, k)
    for n, k in (
        ("a", Kind.BOOLEAN),
        ("b", Kind.BOOLEAN),
        ("x", Kind.INTEGER),
        ("y", Kind.INTEGER),
        ("z", Kind.DOUBLE),
    )
)
NUMBERS = st.recursive(
    st.one_of(st.sampled_from([X, Y]), st.integers(-2, 2).map(lambda v: Literal(v, Kind.INTEGER))),
    lambda inner: st.builds(
        lambda name, p, q: Call(name, (p, q), Kind.INTEGER),
        st.sampled_from(["add", "subtract", "multiply", "greatest", "least"]),
        inner,
        inner,
    ),
    max_leaves=4,
)
COMPARISONS = ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "distinct_from"]
# whole numbers as doubles and as integers, also where a double is the nearest of several integers
WHOLE = [Literal(v, Kind.INTEGER) for v in (-2, 0, 2, 2**53, 2**53 + 1, -(2**53) - 1)]
CONSTANTS = [
    *WHOLE,
    *(Literal(v, Kind.DOUBLE) for v in (-2.0, -0.0, 0.5, 2.0, 2.0**53, 2.0**54, math.inf)),
    *(Call("to_double", (one,), Kind.DOUBLE) for one in WHOLE),
]
CONDITIONS = st.recursive(
    st.one_of(
        st.sampled_from([A, B]),
        st.builds(
            lambda name, p, q, swap: Call(name, (q, p) if swap else (p, q), Kind.BOOLEAN),
            st.sampled_from(COMPARISONS),
            st.sampled_from([X, Z]),
            st.sampled_from(CONSTANTS),
            st.booleans(),
        ),
        st.builds(
            lambda p, values: Call("in", (p, *values), Kind.BOOLEAN),
            st.sampled_from([X, Z]),
            st.lists(st.sampled_from(CONSTANTS), min_size=1, max_size=3),
        ),
        st.builds(
            lambda name, p, q: Call(name, (p, q), Kind.BOOLEAN),
            st.sampled_from(COMPARISONS),
            NUMBERS,
            NUMBERS,
        ),
        st.builds(
            lambda p, values: Call("in", (p, *(Literal(v, Kind.INTEGER) for v in values)), Kind.BOOLEAN),
            NUMBERS,
            st.lists(st.integers(-2, 2), min_size=1, max_size=3),
        ),
        st.builds(lambda name, p: Call(name, (p,), Kind.BOOLEAN), st.sampled_from(["is_null", "is_not_null"]), NUMBERS),
    ),
    lambda inner: st.one_of(
        st.builds(lambda p: Call("not", (p,), Kind.BOOLEAN), inner),
        st.builds(lambda n, p, q: Call(n, (p, q), Kind.BOOLEAN), st.sampled_from(["and", "or"]), inner, inner),
    ),
    max_leaves=6,
)
ROWS = [
    {"a": a, "b": b, "x": x, "y": y, "z": z}
    for a, b in ((None, None), (None, True), (False, None), (False, True), (True, None), (True, True))
    for x in (None, -1, 2, 2**53 + 1)
    for y, z in ((None, None), (0, -0.0), (2, 2.0), (0, 0.5), (2, math.nan), (2, math.inf), (0, 2.0**53), (2, -2.0))
]


@given(CONDITIONS, CONDITIONS)
@examples(66, 200)
def test_expressions_with_one_normal_form_have_one_value(one, other):
    """The normal form never changes a value, so two expressions that share it are the same function."""
    for row in ROWS:
        assert evaluate(normal(one), row) == evaluate(one, row)
    if normal(one) == normal(other):
        assert all(evaluate(one, row) == evaluate(other, row) for row in ROWS)
    assert normal(normal(one)) == normal(one)


@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons_with_any_spelling_of_a_number_keep_their_value(name):
    for column, constant, turned, negated in itertools.product([X, Z], CONSTANTS, (False, True), (False, True)):
        compared = Call(name, (constant, column) if turned else (column, constant), Kind.BOOLEAN)
        one = Call("not", (compared,), Kind.BOOLEAN) if negated else compared
        assert [evaluate(normal(one), row) for row in ROWS] == [evaluate(one, row) for row in ROWS], one


def test_plan_names_do_not_matter():
    def renamed(relation):
        """The same plan, its scan renamed."""
        if isinstance(relation, FilterRows):
            return replace(relation, input=renamed(relation.input))
        fields = tuple(replace(field, name="z" + field.name) for field in relation.fields)
        back = tuple(Column("z" + field.name, field.kind) for field in relation.fields)
        scan = replace(relation, fields=fields, columns=tuple(("z" + a, b) for a, b in relation.columns))
        return Project(input=scan, expressions=back, fields=relation.fields)

    found = aggregation("SELECT city, SUM(amount) FROM orders WHERE coupon GROUP BY city")
    other = replace(found, relation=renamed(found.relation))
    assert other.relation != found.relation
    assert canonical_aggregation(other) == canonical_aggregation(found)
