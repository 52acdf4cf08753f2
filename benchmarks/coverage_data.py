"""The tables, questions and worlds of the coverage benchmark: skewed data, whose exact answers plain DuckDB knows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from dither.curator import Curator
from dither.engines import DuckDBEngine
from dither.policy import Policy

GROUPS = 50

POLICY = """
[source]
database = "t.duckdb"
version = "{version}"

[budget]
epsilon_budget = 1000000
delta_budget = {delta}
max_epsilon_per_query = 100

[tables.t]
private = true
privacy_unit = "row"

[tables.t.columns]
x = {{ type = "double", between = [0, 100], step = 0.01 }}
y = {{ type = "integer", between = [0, 20] }}
g = {{ type = "integer", between = [0, 3] }}
k = {{ type = "integer", between = [0, {last}] }}

[tables.visits]
private = true
privacy_unit_column = "person"
max_rows_contributed = 20
max_groups_contributed = 1

[tables.visits.columns]
person = {{ type = "integer" }}
x = {{ type = "double", between = [0, 100], step = 0.01 }}

[tables.units]
private = true
privacy_unit_column = "person"
max_rows_contributed = {unit_rows}
max_groups_contributed = 1

[tables.units.columns]
person = {{ type = "integer" }}
k = {{ type = "integer", between = [0, {last}] }}
x = {{ type = "double", between = [0, 100], step = 0.01 }}
"""

COUNTS = ", ".join(f"COUNT_IF(g = {n})" for n in range(4))
AGGREGATES = {
    "COUNT": "COUNT(*)",
    "COUNT(DISTINCT)": "COUNT(DISTINCT y)",
    "SUM": "SUM(x)",
    "AVG": "AVG(x)",
    "VAR_POP": "VAR_POP(x)",
    "VAR_SAMP": "VAR_SAMP(x)",
    "STDDEV_POP": "STDDEV_POP(x)",
    "STDDEV_SAMP": "STDDEV_SAMP(x)",
    "COVAR_POP": "COVAR_POP(x, y)",
    "COVAR_SAMP": "COVAR_SAMP(x, y)",
    "CORR": "CORR(x, y)",
}
EXPRESSIONS = {
    "ROUND of AVG": "ROUND(AVG(x), 2)",
    "FLOOR of AVG": "FLOOR(AVG(x))",
    "CAST of AVG to an integer": "CAST(AVG(x) AS INTEGER)",
    "AVG − AVG": "AVG(x) - AVG(y)",
    "ABS of a difference": "ABS(COUNT_IF(g = 0) - COUNT_IF(g = 1))",
    "GREATEST of four": f"GREATEST({COUNTS})",
    "LEAST of four": f"LEAST({COUNTS})",
    "a sum of three": "COUNT_IF(g = 0) + COUNT_IF(g = 1) + COUNT_IF(g = 2)",
    "SUM − 10·COUNT": "SUM(x) - 10 * COUNT(*)",
    "a share": "100.0 * COUNT_IF(g = 0) / COUNT(*)",
    "a share of parts": "COUNT_IF(g = 0) / (COUNT_IF(g = 0) + COUNT_IF(g = 1) + COUNT_IF(g = 2))",
    "SUM / NULLIF, COALESCE": "COALESCE(SUM(x) / NULLIF(COUNT(*), 0), 0)",
    "CASE": "CASE WHEN COUNT(*) > 100 THEN AVG(x) WHEN COUNT(*) > 5 THEN 0 ELSE -1 END",
    "STDDEV / AVG": "STDDEV(x) / AVG(x)",
    "COUNT · AVG": "COUNT(*) * AVG(x)",
    "a power": "POWER(AVG(x) - 50, 2)",
    "a logarithm": "LN(GREATEST(COUNT_IF(g = 0), 1))",
    "a root": "SQRT(ABS(SUM(x) - 1000))",
    "EXP": "EXP(AVG(x) / 50)",
    "SIGN": "SIGN(COUNT_IF(g = 0) - COUNT_IF(g = 1))",
    "whole division": "COUNT(*) // 7",
    "remainder": "COUNT(*) % 7",
    "NULLIF": "NULLIF(COUNT_IF(g = 3), COUNT_IF(g = 2))",
}
FORMS = AGGREGATES | EXPRESSIONS
# On a table with a unit column, where everybody has as many rows as count and is in one group: nothing is cut off, so
# that plain DuckDB says what the exact answer is.
UNIT_FORMS = {
    "COUNT(DISTINCT unit)": "COUNT(DISTINCT person)",
    "COUNT of units' rows": "COUNT(*)",
    "SUM of units' rows": "SUM(x)",
    "AVG of units' rows": "AVG(x)",
}
UNIT_ROWS = 4


def _log_normal(rng: np.random.Generator, size: int) -> np.ndarray:
    return np.exp(rng.normal(1, 1.5, size))


def _rare(rng: np.random.Generator, size: int) -> np.ndarray:
    return 100.0 * (rng.random(size) < 0.01)


def _at_bounds(rng: np.random.Generator, size: int) -> np.ndarray:
    return 100.0 * (rng.random(size) < 0.4)


def _constant(_: np.random.Generator, size: int) -> np.ndarray:
    return np.full(size, 37.25)


SHAPES = {"log-normal": _log_normal, "1% of rows": _rare, "at the bounds": _at_bounds, "constant": _constant}


def rows_of(kind: str, size: int) -> pa.Table:
    """A table on the grid of the policy, so that plain DuckDB says what the exact bounded answer is."""
    rng = np.random.default_rng(size)
    x = np.round(np.clip(SHAPES[kind](rng, size), 0, 100), 2)
    y = np.full(size, 7) if kind == "constant" else np.clip(np.rint(x / 5 + rng.normal(0, 2, size)), 0, 20)
    return pa.table(
        {"x": x, "y": y.astype(np.int64), "g": rng.integers(0, 4, size), "k": rng.integers(0, GROUPS, size)}
    )


def visits() -> pa.Table:
    """People with far more rows than count, of which a tenth is at 1 and the rest at 0."""
    people = np.repeat(np.arange(400), 200)
    return pa.table({"person": people, "x": (np.arange(people.size) % 10 == 0) * 1.0})


def units(kind: str = "log-normal", people: int = 40 * GROUPS) -> pa.Table:
    """People in one group each, with as many rows as count."""
    rng = np.random.default_rng(people)
    person = np.repeat(np.arange(people), UNIT_ROWS)
    return pa.table(
        {"person": person, "k": person % GROUPS, "x": np.round(np.clip(SHAPES[kind](rng, person.size), 0, 100), 2)}
    )


@dataclass(frozen=True, slots=True)
class World:
    """A table behind a curator, and the same in plain DuckDB."""

    curator: Curator
    engine: DuckDBEngine
    plain: duckdb.DuckDBPyConnection

    def truth(self, sql: str) -> float | None:
        """What plain DuckDB says; None for NULL and NaN."""
        (value,) = self.plain.execute(f"SELECT {sql} FROM t").fetchone() or (None,)
        return None if value is None or math.isnan(float(value)) else float(value)

    def close(self) -> None:
        self.curator.close()
        self.plain.close()


def world(directory: Path, table: pa.Table, delta: str, *, version: str = "1") -> World:
    """Opened as an owner would, in a directory of its own."""
    directory.mkdir(parents=True, exist_ok=True)
    with duckdb.connect(str(directory / "t.duckdb")) as database:
        for name, each in (("t", table), ("visits", visits()), ("units", units())):
            database.register("made_up", each)
            database.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM made_up")
    (directory / "dither.toml").write_text(
        POLICY.format(delta=delta, version=version, last=GROUPS - 1, unit_rows=UNIT_ROWS)
    )
    policy = Policy.load(directory / "dither.toml")
    plain = duckdb.connect()
    plain.register("t", table)
    plain.register("units", units())
    engine = DuckDBEngine.open(policy.source.location, policy.schema, threads=1)
    return World(Curator.open(policy, engine=engine), engine, plain)
