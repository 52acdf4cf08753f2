"""A small shop behind a curator for every attack: its own database, policy, ledger and head, gone after the test."""

import itertools
import sys
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import pytest

from dither import Curator
from dither.engines import DuckDBEngine
from dither.policy import Policy
from dither.query.measure.measures import Measured, Measurement

COLUMNS = {
    "user_id": "BIGINT",
    "city": "VARCHAR",
    "product": "VARCHAR",
    "day": "DATE",
    "amount": "DOUBLE",
    "quantity": "BIGINT",
    "remark": "VARCHAR",
}
POLICY = """\
[source]
database = "shop.duckdb"
name = "shop"
version = "1"
ledger_head = "shop.head"

[budget]
epsilon_budget = {epsilon_budget}
delta_budget = {delta_budget}
adjacency = "{adjacency}"
round_answer_time_up_to = {step}

[analysts.ana]
epsilon_budget = {epsilon_budget}

[analysts.bob]
epsilon_budget = {epsilon_budget}

[tables.orders]
private = true
{unit}

[tables.orders.columns]
user_id = {{ type = "integer" }}
city = {{ type = "text", in = {cities} }}
product = {{ type = "text" }}
day = {{ type = "date" }}
amount = {{ type = "double", between = {amounts}, step = 0.5 }}
quantity = {{ type = "integer", between = {quantities} }}
remark = {{ type = "text" }}
"""
SETTINGS = {
    "epsilon_budget": "100000",
    "delta_budget": "0",
    "adjacency": "add_remove",
    "step": "0",
    "unit": 'privacy_unit_column = "user_id"\nmax_groups_contributed = 2\nmax_rows_contributed = 3',
    "cities": '["Bern", "Lyon", "Oslo"]',
    "amounts": "[0, 100]",
    "quantities": "[0, 20]",
}
ROW_LEVEL = 'privacy_unit = "row"'
# With this much ε the noise of a count is zero but for a chance below e^-1000: what is left is what was measured.
LOUD = 10_000

# databases that were made, by their columns and values
MADE: dict[str, bytes] = {}
MOST_MADE = 20


def order(user_id, **values):
    """One row, with unremarkable values where none are given."""
    usual = {
        "city": "Bern",
        "product": "bread",
        "day": "2024-05-01",
        "amount": 10.0,
        "quantity": 2,
        "remark": "fine",
    }
    return {"user_id": user_id, **usual, **values}


def crowd(size=30, **values):
    """Unremarkable people, a row each."""
    return [order(number, **values) for number in range(1, size + 1)]


class Watched:
    """An engine that remembers what was measured, and may be told the salt so that two runs can be compared."""

    def __init__(self, engine: DuckDBEngine) -> None:
        self.engine = engine
        self.salt: bytes | None = None
        self.seen: list[tuple[Measurement, bytes, Measured]] = []

    def run(self, measurement, *, salt):
        measured = self.engine.run(measurement, salt=self.salt or salt)
        self.seen.append((measurement, salt, measured))
        return measured

    def __getattr__(self, name):
        return getattr(self.engine, name)


@dataclass
class Shop:
    """A directory with data and policy, and the curator that keeps it."""

    directory: Path
    curator: Curator
    engine: Watched
    closed: bool = field(default=False)

    @property
    def policy(self):
        return self.directory / "dither.toml"

    def measured(self, sql, **asked):
        """The exact cells behind an answer, as plain lists; asked for through the front door."""
        self.engine.seen.clear()
        self.curator.sql(sql, **({"epsilon": 1} | asked))
        return [
            (
                found.keys.to_pylist(),
                [total.tolist() for total in found.totals],
                [(h.group.tolist(), h.bin.tolist(), h.count.tolist()) for h in found.bins],
                [one.tolist() for one in found.distinct],
            )
            for _, _, found in self.engine.seen
        ]

    def spent(self):
        """Every account's exact spending."""
        nothing = {"/".join(account.path): (0, 0) for account in self.curator._vault.accounts.limits()}
        booked = self.curator.ledger.balances()
        return nothing | {"/".join(b.account.path): (b.spent.main, b.spent.delta) for b in booked}

    def close(self):
        if not self.closed:
            self.closed = True
            self.curator.close()


def write_shop(directory, rows, *, types=None, **settings):
    """Data and policy without a curator."""
    directory.mkdir(parents=True, exist_ok=True)
    columns = COLUMNS | (types or {})
    values = [row[name] for row in rows for name in columns]
    # many tests have the same rows; equal numbers of other types are other rows
    these = repr((columns, values))
    if these not in MADE:
        with duckdb.connect(directory / "shop.duckdb") as database:
            database.execute(f"CREATE TABLE orders ({', '.join(f'{name} {kind}' for name, kind in columns.items())})")
            if rows:
                slot = ", ".join(f"CAST(? AS {kind})" for kind in columns.values())
                database.execute(f"INSERT INTO orders VALUES {', '.join([f'({slot})'] * len(rows))}", values)
        MADE[these] = (directory / "shop.duckdb").read_bytes()
        if len(MADE) > MOST_MADE:
            del MADE[next(iter(MADE))]
    else:
        (directory / "shop.duckdb").write_bytes(MADE[these])
    text = POLICY.format(**(SETTINGS | settings))
    (directory / "dither.toml").write_text(text, encoding="utf-8")
    return directory


def open_shop(directory, *, salt=None, threads=2):
    """The curator of a directory that ``write_shop`` made."""
    policy = Policy.load(directory / "dither.toml")
    engine = Watched(DuckDBEngine.open(policy.source.location, policy.schema, threads=threads))
    engine.salt = salt
    try:
        return Shop(directory, Curator.open(policy, engine=engine), engine)
    except BaseException:
        engine.close()
        raise


@pytest.fixture(scope="session")
def make():
    """The functions and settings above, for tests that need more than ``shop``."""
    return sys.modules[__name__]


@pytest.fixture
def shop(tmp_path):
    """Makes shops: ``shop(rows, delta_budget="1e-6", …)``; all are closed in the end."""
    numbers, made = itertools.count(), []

    def make(rows, *, salt=None, threads=2, types=None, **settings):
        directory = write_shop(tmp_path / f"shop-{next(numbers)}", rows, types=types, **settings)
        made.append(open_shop(directory, salt=salt, threads=threads))
        return made[-1]

    yield make
    for one in made:
        one.close()
