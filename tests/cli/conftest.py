"""The command as it is typed: a small shop in a directory of its own, and the command in a process of its own."""

import sys
from pathlib import Path
from types import SimpleNamespace

import duckdb
import pytest

from dither.cli import main as command

POLICY = """
[source]
{source}
name = "shop"
ledger_head = "shop.head"

[budget]
epsilon_budget = 2
delta_budget = 1e-6
max_epsilon_per_query = 1
{more}

[analysts.ana]
epsilon_budget = 0.5

[tables.orders]
private = true
privacy_unit_column = "customer"
max_groups_contributed = 2
max_rows_contributed = 3

[tables.orders.columns]
customer = {{ type = "integer" }}
city = {{ type = "text", in = ["Basel", "Bern"] }}
amount = {{ type = "double", between = [0, 50], step = 0.5 }}
"""
DATABASE = 'database = "shop.duckdb"'
ROWS = (
    "SELECT i % 300 AS customer, CASE WHEN i % 3 = 0 THEN 'Basel' ELSE 'Bern' END AS city, i % 100 / 2 AS amount "
    "FROM range(900) AS t(i)"
)


def write_data(directory, kind="duckdb"):
    """The same orders as a database, Parquet or CSV file."""
    with duckdb.connect(str(directory / "shop.duckdb") if kind == "duckdb" else ":memory:") as database:
        database.execute(f"CREATE TABLE orders AS {ROWS}")
        if kind != "duckdb":
            database.execute(f"COPY orders TO '{directory / f'orders.{kind}'}'")


def write_policy(directory, source=DATABASE, more=""):
    (directory / "dither.toml").write_text(POLICY.format(source=source, more=more), encoding="utf-8")


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """A directory with data and a policy, which is where commands are typed."""
    write_data(tmp_path)
    write_policy(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """A directory with nothing in it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(forked, monkeypatch):
    """Type a command: ``run("budget")`` gives its status, output and errors, from a process of its own."""
    monkeypatch.delenv("COLUMNS", raising=False)
    return forked


@pytest.fixture
def inside(capfd, monkeypatch):
    """The same in this process, for tests that change what the command finds there; nothing else runs it so."""
    monkeypatch.delenv("COLUMNS", raising=False)

    def typed(*arguments):
        capfd.readouterr()
        status = command.main([str(argument) for argument in arguments])
        sys.stdout.flush()
        said = capfd.readouterr()
        return SimpleNamespace(status=status, out=said.out, err=said.err)

    return typed


@pytest.fixture
def start(installed):
    """Start a command, in a new interpreter, and go on: ``start("ask", …, cwd=…)``."""
    running = []

    def started(*arguments, **options):
        running.append(installed.start(*arguments, **options))
        return running[-1]

    yield started
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def written():
    """``written.data(directory, "csv")`` and ``written.policy(directory, source, more)``."""
    return SimpleNamespace(data=write_data, policy=write_policy, database=DATABASE, path=Path)
