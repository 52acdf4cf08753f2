"""However large a value is, its repr is short: consoles, logs and error reports show it whole."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import dither as dp
from dither import anonymize, local
from dither.brief import shortly
from dither.curator.price.quote import Quote, QuotedColumn
from dither.curator.results import Answer, Bars, Cost
from dither.local.core.protocol import Protocol
from dither.privacy import Adjacency, PureLoss, compose
from dither.query.measure.measures import Measured
from dither.query.price.noise import QueryBudget, price
from dither.query.schema import Schema
from dither.query.sql import bind

LONGEST = 2000
LABELS = [f"label number {i}" for i in range(5000)]
COLUMNS = "\n".join(f'c{i} = {{ type = "text", in = {LABELS[:200]} }}' for i in range(200))
POLICY = f"""
[source]
database = "shop.duckdb"
[budget]
epsilon_budget = 3
analysts = "any"
[tables.orders]
private = true
privacy_unit_column = "user_id"
[tables.orders.columns]
user_id = {{ type = "integer" }}
city = {{ type = "text", in = {LABELS} }}
{COLUMNS}
"""
MANY = compose([(PureLoss(Fraction(1, i)), i) for i in range(2, 2000)])
AGGREGATES = ", ".join(f"COUNT(c{i}) AS a{i}" for i in range(100))


@pytest.fixture(scope="module")
def policy():
    return dp.Policy.parse(POLICY.replace("'", '"'))


@pytest.fixture(scope="module")
def priced(policy):
    question = bind(
        f"SELECT city, {AGGREGATES} FROM orders WHERE {' OR '.join(['c1 = c2'] * 300)} GROUP BY city", policy.schema
    )
    return question, price(question.aggregation, QueryBudget(kind="pure", main=Fraction(1)), Adjacency.ADD_REMOVE)


def quote_of(question, priced):
    columns = tuple(
        QuotedColumn(name=f"a{i}", error="±1", half_width=1.0, mechanism="Laplace noise, scale 1") for i in range(100)
    )
    return Quote(
        epsilon=1.0, delta=0.0, charge="ε = 1", booked="charged", free=False, fits=True, left="all", groups="x" * 5000,
        unit="each", columns=columns, confidence=0.95, notes=("note " * 50,) * 50, key="k", priced=priced,
        shape=question.shape, explains=False, more=None, share=None, needs_approval=False,
    )  # fmt: skip


def test_quotes_plans_and_policies(policy, priced):
    question, cost = priced
    big = (
        quote_of(question, cost),
        cost,
        cost.lowered,
        cost.measurement,
        question,
        question.aggregation,
        question.shape,
    )
    for value in (*big, *question.aggregation.keys, policy, policy.schema, *policy.schema.tables.values()):
        assert len(repr(value)) < LONGEST, type(value)
        assert repr(value).startswith(type(value).__name__)


def test_answers():
    table = pa.table({f"column {i}": np.arange(5000) for i in range(200)})
    bars = {name: Bars(low=np.arange(900.0), high=np.arange(900.0), text="x" * 5000) for name in table.column_names}
    cost = Cost(epsilon=1.0, delta=0.0, charged=True, left="all")
    answer = Answer(table=table, bars=bars, confidence=0.95, receipt=None, cost=cost, notes=("note " * 100,) * 100)
    assert len(repr(answer)) < LONGEST
    assert len(repr(bars["column 1"])) < LONGEST


def test_losses():
    laplace = sum((dp.Laplace(i).loss(dp.Sensitivity.l1(1)) for i in range(2, 200)), PureLoss(1))
    for loss in (MANY, laplace, dp.poisson(MANY, rate="1/10"), dp.as_replace(MANY), MANY + laplace, 10 * laplace):
        assert len(repr(loss)) < LONGEST, type(loss)


def test_protocols_and_mechanisms():
    made = [dp.KaryResponse(LABELS, keep="1/2"), dp.TreeCounter(scale=3, horizon=10**6)]
    made.append(local.Attributes.for_epsilon({f"question {i}": LABELS[:50] for i in range(40)}, 1))
    for name in local.__all__:
        found = getattr(local, name)
        if isinstance(found, type) and issubclass(found, Protocol) and hasattr(found, "for_epsilon"):
            try:
                made.append(found.for_epsilon(LABELS, 1))
            except (AttributeError, TypeError, dp.DitherError):  # a protocol that takes no labels
                continue
    assert len(made) > 8
    for value in made:
        assert len(repr(value)) < LONGEST, type(value)


def test_anonymised_tables():
    people = pa.table({"age": np.arange(2000) % 90, "ill": LABELS[:2000]})
    configuration = anonymize.Configuration.of(quasi=["age"], sensitive=["ill"], k=5)
    for value in (configuration, anonymize.mondrian(people, configuration), anonymize.risk(people)):
        assert len(repr(value)) < LONGEST, type(value)


def test_exact_numbers_are_not_shown():
    measured = Measured(keys=pa.table({"k0": ["Basel"]}), size=1, totals=(np.array([41]),))
    assert repr(measured) == "Measured(…)"


def test_short_values_are_shown_whole():
    assert repr(Schema(tables={}, adjacency=Adjacency.ADD_REMOVE)).startswith("Schema(tables={}, ")
    assert shortly((1, "a", None)) == "(1, 'a', None)"
    assert shortly((1,)) == "(1,)"
    assert shortly({"a": [1, 2]}) == "{'a': [1, 2]}"
    assert shortly(frozenset({3})) == "frozenset(3)"
    assert shortly("x" * 1000).endswith("…")
