"""A small shop for the whole path: policy, engine, ledger and curator, made anew where a test needs its own."""

import shutil
import threading
from types import SimpleNamespace

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from dither.curator import Curator
from dither.curator.epsilon_to_currency import Exchange
from dither.engines import DuckDBEngine
from dither.ledger import MemoryLedger
from dither.policy import Policy

CITIES = ("Basel", "Bern", "Zug")
ITEMS = 40
UNITS = 600
PER_UNIT = 4

POLICY = """
[source]
database = "shop.duckdb"
name = "shop"
version = "{version}"

[budget]
epsilon_budget = {budget}
delta_budget = {delta}
max_epsilon_per_query = {most}
adjacency = "{adjacency}"
{more}

[analysts.ana]
epsilon_budget = {budget}

[analysts.bob]
epsilon_budget = 0.5
max_epsilon_per_query = 0.25

[tables.orders]
private = true
{unit}

[tables.orders.columns]
customer = {{ type = "integer" }}
city = {{ type = "text", in = ["Basel", "Bern", "Zug"] }}
item = {{ type = "text" }}
amount = {{ type = "double", between = [0, 50], step = 0.25 }}
pieces = {{ type = "integer", between = [0, 8] }}
rating = {{ type = "double", between = "auto" }}
stars = {{ type = "integer", between = "auto" }}
note = {{ type = "text", hidden = true }}
"""
BY_UNIT = 'privacy_unit_column = "customer"\nmax_groups_contributed = 2\nmax_rows_contributed = 4'
BY_ROW = 'privacy_unit = "row"'


def orders():
    """Every customer has four orders in one city, so that no bound cuts anything; all amounts are on the grid."""
    maker = np.random.default_rng(7)
    size = UNITS * PER_UNIT
    customer = np.repeat(np.arange(UNITS), PER_UNIT)
    pieces = maker.integers(0, 9, size)
    amount = np.clip(np.round(4 * (20 + 2 * pieces + maker.normal(0, 6, size))) / 4, 0, 50)
    return pa.table(
        {
            "customer": customer,
            "city": np.array(CITIES)[customer % 3],
            "item": [f"item {n:02d}" for n in maker.integers(0, ITEMS, size)],
            "amount": amount,
            "pieces": pieces,
            "rating": np.round(maker.uniform(1, 6, size), 1),
            "stars": maker.integers(1, 6, size),
            "note": ["secret"] * size,
        }
    )


def put_table(path, table, name="orders"):
    with duckdb.connect(str(path)) as database:
        database.register("made_up", table)
        database.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM made_up")


@pytest.fixture(scope="session")
def shop(tmp_path_factory):
    """The directory of a database that no test changes."""
    directory = tmp_path_factory.mktemp("shop")
    put_table(directory / "shop.duckdb", orders())
    return directory


@pytest.fixture(scope="session")
def open_shop(tmp_path_factory, shop):
    """The same, for those who open it with one thread: it stays open, so that they share it in half the time."""
    directory = tmp_path_factory.mktemp("open")
    shutil.copy(shop / "shop.duckdb", directory)
    policy = Policy.parse(policy_text(), base=directory)
    with DuckDBEngine.open(policy.source.location, policy.schema, threads=1):
        yield directory


def policy_text(*, version="1", budget="10", delta="1e-6", most="5", adjacency="add_remove", unit=BY_UNIT, more=""):
    return POLICY.format(
        version=version, budget=budget, delta=delta, most=most, adjacency=adjacency, unit=unit, more=more
    )


def memory_ledger(policy):
    return MemoryLedger(
        currency=Exchange(policy.budget.delta_budget).currency,
        adjacency=policy.schema.adjacency,
        unit=policy.unit_level(),
        dataset=policy.source.name,
    )


class Watched:
    """An engine that counts what is run, and fails where it is told to."""

    def __init__(self, engine):
        self._engine = engine
        self.runs = 0
        self.fails_with = None
        self.started = threading.Event()

    def _seen(self):
        self.runs += 1
        self.started.set()
        if self.fails_with is not None:
            raise self.fails_with

    def run(self, measurement, *, salt):
        self._seen()
        return self._engine.run(measurement, salt=salt)

    def rows(self, table, columns, *, rows, salt):
        self._seen()
        return self._engine.rows(table, columns, rows=rows, salt=salt)

    def __getattr__(self, name):
        return getattr(self._engine, name)


@pytest.fixture
def opened(open_shop):
    """Make curators on the shop; ``opened(budget="1").curator``."""
    made = []

    def make(*, ledger=None, directory=open_shop, engine=None, **settings):
        policy = Policy.parse(policy_text(**settings), base=directory)
        engine = engine or Watched(DuckDBEngine.open(policy.source.location, policy.schema, threads=1))
        curator = Curator(policy, engine, ledger or memory_ledger(policy))
        made.append(curator)
        return SimpleNamespace(curator=curator, engine=engine, policy=policy, ledger=curator.ledger)

    yield make
    for curator in made:
        curator.close()


@pytest.fixture(scope="session")
def data():
    """The orders as they are in the database."""
    return orders()


@pytest.fixture
def policy_of(shop):
    """Policies of the shop: ``policy_of(budget="1")``."""
    return lambda directory=shop, **settings: Policy.parse(policy_text(**settings), base=directory)


@pytest.fixture(scope="session")
def policy_texts():
    """The text of the shop's policy: ``policy_texts(budget="1")``."""
    return policy_text


@pytest.fixture(scope="session")
def ledger_of():
    """A ledger in memory for a policy."""
    return memory_ledger


@pytest.fixture
def write_orders():
    """Write the shop with one column all of one value: ``write_orders(directory, rating=0.0)``."""

    def write(directory, **constant):
        table = orders()
        for name, value in constant.items():
            place = table.column_names.index(name)
            table = table.set_column(place, name, pa.array([value] * table.num_rows, table.schema.field(name).type))
        put_table(directory / "shop.duckdb", table)

    return write


@pytest.fixture
def write_table():
    """Write a table into a database: ``write_table(path, table)``."""
    return put_table
