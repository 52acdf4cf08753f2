"""The six questions of the SQL benchmarks, what each is compared with, and the policies under which they are asked."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from dither.policy import Policy
from sql_data import AGE_GROUPS, CITIES

GROUPS, ROWS = 4, 4


class Level(Enum):
    """Who is protected: each row, or each user with at most ``GROUPS`` groups and ``ROWS`` rows in each."""

    ROW = "row"
    USER = "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question, the same aggregation without privacy, and what GROUP BY user_id, key alone computes for it."""

    name: str
    sql: str
    raw: str
    per_user: str

    def beside(self, level: Level) -> str:
        """What it is measured against: at user level the aggregates per user are computed and added up, not shown."""
        if level is Level.ROW:
            return self.raw
        return f"SELECT count(*), sum(n), sum(s) FROM ({self.per_user})"


def _per_user(key: str, value: str, table: str = "orders") -> str:
    keys = f"user_id, {key}" if key else "user_id"
    return f"SELECT {keys}, count(*) AS n, {value} AS s FROM {table} GROUP BY {keys}"


_JOINED = "orders JOIN users USING (user_id)"

QUESTIONS = (
    Question(
        name="Q1 COUNT(*)",
        sql="SELECT COUNT(*) AS n FROM orders",
        raw="SELECT count(*) FROM orders",
        per_user=_per_user("", "0"),
    ),
    Question(
        name="Q2 SUM, AVG by city",
        sql="SELECT city, SUM(amount) AS total, AVG(amount) AS mean FROM orders GROUP BY city",
        raw="SELECT city, sum(amount), avg(amount) FROM orders GROUP BY city",
        per_user=_per_user("city", "sum(amount)"),
    ),
    Question(
        name="Q3 COUNT by product, keys discovered",
        sql="SELECT product, COUNT(*) AS n FROM orders GROUP BY product",
        raw="SELECT product, count(*) FROM orders GROUP BY product",
        per_user=_per_user("product", "0"),
    ),
    Question(
        name="Q4 median and p95",
        sql="SELECT MEDIAN(amount) AS middle, QUANTILE_CONT(amount, 0.95) AS high FROM orders",
        raw="SELECT median(amount), quantile_cont(amount, 0.95) FROM orders",
        per_user=_per_user("", "sum(amount)"),
    ),
    Question(
        name="Q5 COUNT(DISTINCT user_id) by day",
        sql="SELECT day, COUNT(DISTINCT user_id) AS users FROM orders GROUP BY day",
        raw="SELECT day, count(DISTINCT user_id) FROM orders GROUP BY day",
        per_user=_per_user("day", "0"),
    ),
    Question(
        name="Q6 join users, SUM by age group",
        sql="SELECT age_group, SUM(amount) AS total FROM orders JOIN users USING (user_id) GROUP BY age_group",
        raw=f"SELECT age_group, sum(amount) FROM {_JOINED} GROUP BY age_group",
        per_user=_per_user("age_group", "sum(amount)", _JOINED),
    ),
)

# Budgets are far larger than anybody should have, so that every repeat can be charged as a new question.
_POLICY = """
[source]
database = "{database}"
name = "shop"
version = "{version}"
ledger = "{ledger}"
ledger_head = "{ledger}.head"

[budget]
epsilon_budget = 100000
delta_budget = 0.01
delta_per_query = 1e-8
max_epsilon_per_query = 10

[tables.orders]
private = true
{unit}

[tables.orders.columns]
user_id = {{ type = "integer" }}
city = {{ type = "text", in = [{cities}] }}
product = {{ type = "text" }}
day = {{ type = "date" }}
amount = {{ type = "double", between = [0, 100], step = 0.01 }}

[tables.users]
{users}

[tables.users.columns]
user_id = {{ type = "integer" }}
age_group = {{ type = "text", in = [{ages}] }}
"""


def policy(database: Path, ledger: Path, level: Level, version: int = 1) -> Policy:
    """Public facts and bounds of the benchmark's shop; to another version of the data every question is new."""
    own = f'privacy_unit_column = "user_id"\nmax_groups_contributed = {GROUPS}\nmax_rows_contributed = {ROWS}'
    row = level is Level.ROW
    text = _POLICY.format(
        database=database,
        ledger=ledger,
        version=version,
        unit='privacy_unit = "row"' if row else own,
        users='public = true\nunique = [["user_id"]]' if row else f"private = true\n{own}",
        cities=", ".join(f'"city {i:02}"' for i in range(CITIES)),
        ages=", ".join(f'"{age}"' for age in AGE_GROUPS),
    )
    return Policy.parse(text, base=database.parent)
