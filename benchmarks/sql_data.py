"""A made-up shop for the SQL benchmarks: ten million orders of half a million users, the same for the same seed.

Run with ``python benchmarks/sql_data.py DIRECTORY`` to make the file and print its path. Activity of users and
popularity of products are skewed, and amounts have a heavy tail, because that is what bounding contributions is for.
Nothing here is secret, so a seeded generator does.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

CITIES = 50
PRODUCTS = 20_000
AGE_GROUPS = ("under 18", "18-24", "25-34", "35-44", "45-54", "55-64", "65-74", "75 and over")
FIRST_DAY = np.datetime64("2025-01-01", "D")
DAYS = 365
ROWS_PER_CHUNK = 1_000_000
LAYOUT = 1
"""Part of the file's name, so that a changed generator never reuses an old file."""

Weights = NDArray[np.float64]
Codes = NDArray[np.int64]


def draw_codes(rng: np.random.Generator, cumulative: Weights, size: int) -> Codes:
    """Codes 0, 1, … with the given cumulative weights, by inversion."""
    codes: Codes = np.searchsorted(cumulative, rng.random(size) * cumulative[-1], side="right")
    return codes


def zipf_cumulative(size: int, exponent: float) -> Weights:
    return np.cumsum(np.arange(1, size + 1, dtype=np.float64) ** -exponent)


def draw_amounts(rng: np.random.Generator, size: int) -> Weights:
    """Amounts in whole cents: nearly all between 0 and 100, one in a hundred from a Pareto tail far above."""
    amounts = rng.lognormal(mean=3.0, sigma=0.8, size=size)
    tail = rng.random(size) < 0.01
    amounts[tail] = 100 * (1 + rng.pareto(1.5, size=int(tail.sum())))
    return np.round(amounts, 2)


def named(codes: Codes, names: list[str]) -> pa.Array[Any]:
    return pa.DictionaryArray.from_arrays(codes.astype(np.int32), names)


def orders(rng: np.random.Generator, user_ids: Codes, activity: Weights, rows: int) -> pa.Table:
    """One chunk of the orders, in no particular order of users, products or days."""
    return pa.table(
        {
            "user_id": user_ids[draw_codes(rng, activity, rows)],
            "city": named(draw_codes(rng, zipf_cumulative(CITIES, 0.7), rows), [f"city {i:02}" for i in range(CITIES)]),
            "product": named(
                draw_codes(rng, zipf_cumulative(PRODUCTS, 1.0), rows), [f"product {i:05}" for i in range(PRODUCTS)]
            ),
            "day": FIRST_DAY + rng.integers(0, DAYS, rows),
            "amount": draw_amounts(rng, rows),
        }
    )


def make(directory: str | Path, rows: int = 10_000_000, users: int = 500_000, seed: int = 2026) -> Path:
    """The path of a DuckDB file with the tables ``orders`` and ``users``, made on first use."""
    if rows < 1 or users < 1:
        raise ValueError("rows and users must be at least 1")
    path = Path(directory) / f"shop-{LAYOUT}-{rows}-{users}-{seed}.duckdb"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    rng = np.random.default_rng(seed)
    # Ids spread over many more values than there are users, as real ids are: no dense table by id can be used.
    user_ids = rng.permutation(np.arange(users, dtype=np.int64) * 7919 + 1_000_003)
    activity = np.cumsum(rng.lognormal(mean=0.0, sigma=1.2, size=users))
    ages = named(rng.integers(0, len(AGE_GROUPS), users), list(AGE_GROUPS))
    with duckdb.connect(str(unfinished)) as connection:
        connection.execute(
            "CREATE TABLE orders (user_id BIGINT, city VARCHAR, product VARCHAR, day DATE, amount DOUBLE)"
        )
        for start in range(0, rows, ROWS_PER_CHUNK):
            connection.register("chunk", orders(rng, user_ids, activity, min(ROWS_PER_CHUNK, rows - start)))
            connection.execute(
                "INSERT INTO orders SELECT user_id, city::VARCHAR, product::VARCHAR, day::DATE, amount FROM chunk"
            )
            connection.unregister("chunk")
        connection.register("people", pa.table({"user_id": user_ids, "age_group": ages}))
        connection.execute("CREATE TABLE users AS SELECT user_id, age_group::VARCHAR AS age_group FROM people")
        connection.unregister("people")
        connection.execute("CHECKPOINT")
    unfinished.rename(path)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--users", type=int, default=500_000)
    parser.add_argument("--seed", type=int, default=2026)
    chosen = parser.parse_args()
    print(make(chosen.directory, chosen.rows, chosen.users, chosen.seed))


if __name__ == "__main__":
    main()
