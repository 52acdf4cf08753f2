"""Every aggregate of the SQL front door as a question to audit, on a policy of a shop that doesn't exist."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from dither.policy.policy import Policy
from dither.query.aggregates.catalogue import DEFINITIONS

_TABLES = """
[tables.orders]
private = true
privacy_unit_column = "customer"
max_groups_contributed = 2
max_rows_contributed = 3

[tables.orders.columns]
customer = { type = "integer" }
city = { type = "text", in = ["Basel", "Bern", "Geneva", "Zurich"] }
product = { type = "text" }
day = { type = "date" }
gift = { type = "boolean" }
amount = { type = "double", between = [0, 100], step = 0.01 }
rating = { type = "integer", between = [1, 5] }
weight = { type = "double", between = "auto" }

[tables.customers]
private = true
privacy_unit_column = "customer"

[tables.customers.columns]
customer = { type = "integer" }
age = { type = "text", in = ["18-29", "30-44", "45-64", "65+"] }

[tables.cities]
public = true
unique = [["city"]]

[tables.cities.columns]
city = { type = "text", in = ["Basel", "Bern", "Geneva", "Zurich"] }
language = { type = "text", in = ["de", "fr"] }
"""
_SOURCE = """
[source]
database = "shop.duckdb"
name = "shop"
"""


class ShopBudget(Enum):
    """What the shop's budget adds up, and against which change its customers are protected: as the policy says it."""

    ZCDP = "epsilon_budget = 8\ndelta_budget = 1e-6"
    PURE = "epsilon_budget = 8"
    REPLACED = 'epsilon_budget = 8\ndelta_budget = 1e-6\nadjacency = "replace"'


def shop(currency: ShopBudget) -> Policy:
    """The policy of the shop; there is no data behind it."""
    return Policy.parse(f'{_SOURCE}\n[budget]\nanalysts = "any"\n{currency.value}\n{_TABLES}', base="nowhere")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question to the shop: its name in the table, and the aggregates that it is there for."""

    name: str
    sql: str
    aggregates: tuple[str, ...]
    currency: ShopBudget = ShopBudget.ZCDP
    epsilon: str = "4"


QUESTIONS: tuple[Asked, ...] = (
    *(
        Asked(name=example, sql=f"SELECT {example} AS x FROM orders", aggregates=(one.name,))  # noqa: S608
        for one in DEFINITIONS.values()
        for example in one.examples
    ),
    Asked(
        name="by public keys",
        sql="SELECT city, COUNT(*) AS n, SUM(amount) AS s FROM orders GROUP BY city ORDER BY n DESC",
        aggregates=("count", "sum"),
    ),
    Asked(
        name="by discovered keys",
        sql="SELECT product, COUNT(*) AS n, AVG(amount) AS a FROM orders GROUP BY product",
        aggregates=("count", "avg"),
    ),
    Asked(
        name="per unit, then a mean",
        sql=(
            "SELECT AVG(t, contribution_bounds_per_row => (0, 500)) AS a FROM "
            "(SELECT customer, SUM(amount) AS t FROM orders GROUP BY customer)"
        ),
        aggregates=("avg",),
    ),
    Asked(
        name="a join of private tables",
        sql=(
            "SELECT c.age, COUNT(DISTINCT o.customer) AS n FROM orders o JOIN customers c USING (customer) "
            "GROUP BY c.age"
        ),
        aggregates=("count",),
    ),
    Asked(
        name="a join with a public table",
        sql="SELECT t.language, COUNT(*) AS n FROM orders o JOIN cities t ON o.city = t.city GROUP BY t.language",
        aggregates=("count",),
    ),
    Asked(name="bounds searched for", sql="SELECT SUM(weight) AS s FROM orders", aggregates=("sum",)),
    Asked(
        name="by public keys, pure ε",
        sql=(
            "SELECT city, COUNT(*) AS n, SUM(amount) AS s, MEDIAN(amount) AS m, MODE(rating) AS r FROM orders "
            "GROUP BY city"
        ),
        aggregates=("count", "sum", "median", "mode"),
        currency=ShopBudget.PURE,
        epsilon="2",
    ),
    Asked(
        name="by public keys, replace",
        sql="SELECT city, COUNT(*) AS n, SUM(amount) AS s FROM orders GROUP BY city",
        aggregates=("count", "sum"),
        currency=ShopBudget.REPLACED,
    ),
    Asked(
        name="by discovered keys, replace",
        sql="SELECT product, COUNT(*) AS n FROM orders GROUP BY product",
        aggregates=("count",),
        currency=ShopBudget.REPLACED,
    ),
)
