"""A small made-up shop: its policy and its data."""

import tempfile
from functools import cache
from pathlib import Path

import duckdb

from dither.server.limits import ServerLimits

# for tests that aren't about the number of requests: a fast machine mustn't meet that limit
ROOMY = ServerLimits(rate=1e6, burst=10**6)

POLICY = """
[source]
database = "shop.duckdb"
name = "shop"
ledger_head = "shop.head"

[budget]
epsilon_budget = {budget}
delta_budget = 1e-6
max_epsilon_per_query = 1
default_epsilon = 0.1
{more}

[analysts.ana]
epsilon_budget = {ana}

[analysts.bob]
epsilon_budget = 0.5

[analysts.looker]
epsilon_budget = 1

[tables.orders]
private = true
privacy_unit_column = "customer"
max_groups_contributed = 2
max_rows_contributed = 3

[tables.orders.columns]
customer = {{ type = "integer" }}
city = {{ type = "text", in = ["Basel", "Bern", "Zug"] }}
product = {{ type = "text" }}
day = {{ type = "date" }}
amount = {{ type = "double", between = [0, 50], step = 0.5 }}
secret = {{ type = "text", hidden = true }}

[tables.cities]
public = true
unique = [["city"]]

[tables.cities.columns]
city = {{ type = "text" }}
canton = {{ type = "text" }}
"""
ORDERS = """
CREATE TABLE orders AS SELECT
    (i % 400)::BIGINT AS customer,
    ['Basel', 'Bern', 'Zug'][1 + i % 3] AS city,
    'article ' || (i % 7) AS product,
    DATE '2025-01-01' + (i % 365)::INT AS day,
    ((i * 7) % 100) / 2.0 AS amount,
    'never shown' AS secret
FROM range(1200) AS t(i)
"""
CITIES = (
    "CREATE TABLE cities AS SELECT * FROM (VALUES ('Basel', 'BS'), ('Bern', 'BE'), ('Zug', 'ZG')) AS t(city, canton)"
)


def make_shop(directory: Path, *, more: str = "", budget: float = 100, ana: float = 50) -> Path:
    """Write the shop's data and policy into a directory; ``more`` are further lines of its [budget]."""
    (directory / "shop.duckdb").write_bytes(_data())
    path = directory / "dither.toml"
    path.write_text(POLICY.format(more=more, budget=budget, ana=ana), encoding="utf-8")
    return path


@cache
def _data() -> bytes:
    """The shop's DuckDB file, made once."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "shop.duckdb"
        with duckdb.connect(str(path)) as database:
            database.execute(ORDERS)
            database.execute(CITIES)
        return path.read_bytes()
