"""A shop that is made up for the demo and the guides: orders and customers, no real person in it."""

from __future__ import annotations

from pathlib import Path

CITIES = ("Basel", "Bern", "Geneva", "Lausanne", "Zurich")
AGES = ("18-29", "30-44", "45-64", "65+")
CUSTOMERS = 20_000
ORDERS = 120_000
DAYS = 365

POLICY = """\
# What is public about this shop, and how much may be learned about anyone in it.
[source]
database = "shop.duckdb"
name = "shop"

[budget]
epsilon_budget = 3
delta_budget = 1e-6
max_epsilon_per_query = 1
default_epsilon = 0.1

[analysts.ana]
epsilon_budget = 1.5

[tables.orders]
private = true
privacy_unit_column = "customer"
max_groups_contributed = 3
max_rows_contributed = 8

[tables.orders.columns]
customer = { type = "integer" }
city = { type = "text", in = ["Basel", "Bern", "Geneva", "Lausanne", "Zurich"] }
product = { type = "text" }
day = { type = "date" }
amount = { type = "double", between = [0, 100], step = 0.01 }

[tables.customers]
private = true
privacy_unit_column = "customer"
one_row_per_unit = true

[tables.customers.columns]
customer = { type = "integer" }
age = { type = "text", in = ["18-29", "30-44", "45-64", "65+"] }
"""


def set_up(directory: Path) -> Path:
    """Make the shop in a directory with its policy, whose path is returned.

    The ledger's head stays there too, so that nothing is left behind in the user's directories.
    """
    make_shop(directory)
    path = directory / "dither.toml"
    path.write_text(POLICY.replace('name = "shop"', 'name = "shop"\nledger_head = "shop.head"'), encoding="utf-8")
    return path


def make_shop(directory: Path) -> Path:
    """Write ``shop.duckdb`` into a directory, the same one each time."""
    import duckdb
    import numpy as np
    import pyarrow as pa

    # the data is made up, so a plain generator does; noise never comes from it
    maker = np.random.default_rng(2026)
    activity = maker.lognormal(0.0, 1.0, CUSTOMERS)
    customer = maker.choice(CUSTOMERS, size=ORDERS, p=activity / activity.sum())
    home = maker.choice(len(CITIES), size=CUSTOMERS, p=(0.17, 0.13, 0.2, 0.1, 0.4))
    away = maker.random(ORDERS) < 0.1
    city = np.where(away, maker.integers(0, len(CITIES), ORDERS), home[customer])
    product = np.minimum(maker.zipf(1.3, ORDERS), 3000)
    amount = np.round(np.minimum(maker.gamma(1.8, 14.0, ORDERS), 400.0), 2)
    orders = pa.table(
        {
            "customer": pa.array(customer.astype(np.int64)),
            "city": pa.array(np.array(CITIES)[city]),
            "product": [f"article {number:04d}" for number in product],
            "day": pa.array(np.datetime64("2025-01-01") + maker.integers(0, DAYS, ORDERS)),
            "amount": pa.array(amount),
        }
    )
    ages = maker.choice(len(AGES), size=CUSTOMERS, p=(0.22, 0.33, 0.3, 0.15))
    customers = pa.table(
        {"customer": pa.array(np.arange(CUSTOMERS, dtype=np.int64)), "age": pa.array(np.array(AGES)[ages])}
    )
    path = directory / "shop.duckdb"
    with duckdb.connect(str(path)) as database:
        for name, table in (("orders", orders), ("customers", customers)):
            database.register("made_up", table)
            database.execute(f"CREATE TABLE {name} AS SELECT * FROM made_up")  # noqa: S608
            database.unregister("made_up")
    return path
