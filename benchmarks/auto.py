"""Bounds on rows that a profile chooses: the total error, noise and cut, beside the best bound's and fixed ones'.

Run with ``python benchmarks/auto.py --ratings ratings.csv [--epsilon 0.5] [--draws 1000]``. The ratings are MovieLens
latest-small (100,836 of 610 people), which isn't shipped. Mean |answer − truth| in percent of the truth, over draws of
profile and noise by dither's own mechanisms, on exact numbers of its own engine; "searched" is what a question does
without a profile.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np

from dither.engines import DuckDBEngine
from dither.policy import Policy
from dither.query.plan.profile import UPPER_ENDS, profile_of
from dither.query.price.noise import Priced, QueryBudget, price
from dither.query.price.profile import Profile, rows_worth_sparing
from dither.query.sql import bind

POLICY = """
[source]
database = "ratings.duckdb"
[budget]
epsilon_budget = 10
analysts = "any"
[tables.ratings]
private = true
privacy_unit_column = "userId"
max_rows_contributed = "auto"
columns.userId = { type = "integer" }
columns.rating = { type = "double", between = [0.5, 5], step = 0.5 }
"""
SALT = b"a salt for everything"
SHARE = Fraction(1, 5)


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--ratings", type=Path, required=True)
    options.add_argument("--epsilon", type=Fraction, default=Fraction(1, 2))
    options.add_argument("--draws", type=int, default=1000)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        with duckdb.connect(f"{folder}/ratings.duckdb") as database:
            database.execute("CREATE TABLE ratings AS SELECT userId, rating FROM read_csv(?)", [str(given.ratings)])
            row = database.execute("SELECT COUNT(*), SUM(rating) FROM ratings").fetchone()
        assert row is not None
        policy = Policy.parse(POLICY, base=Path(folder))
        with DuckDBEngine.open(policy.source.location, policy.schema) as engine:
            print(
                "| question | best bound | profile paid before | × best | searched, a fifth | fixed 1 | 5 | 20 | 100 |"
            )
            print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
            for aggregate, truth in zip(("COUNT(*)", "SUM(rating)"), map(float, row), strict=True):
                print(measured(engine, policy, aggregate, truth, given.epsilon, given.draws), flush=True)


def measured(engine: DuckDBEngine, policy: Policy, aggregate: str, truth: float, epsilon: Fraction, draws: int) -> str:
    """One line of the table."""
    paid, part = QueryBudget(kind="pure", main=epsilon), QueryBudget(kind="pure", main=epsilon * (1 - SHARE))
    errors = {
        budget: {rows: _errors(engine, _priced(policy, aggregate, rows, budget), truth, draws) for rows in UPPER_ENDS}
        for budget in (paid, part)
    }
    best = min(float(each.mean()) for each in errors[paid].values())
    before = _chosen(engine, policy, aggregate, paid, paid, errors[paid], draws)
    search = QueryBudget(kind="pure", main=epsilon * SHARE)
    searched = _chosen(engine, policy, aggregate, search, part, errors[part], draws)
    fixed = [float(_errors(engine, _priced(policy, aggregate, n, paid), truth, draws).mean()) for n in (1, 5, 20, 100)]
    cells = [f"{each:.1%}" for each in (best, before)] + [f"{before / best:.2f}", f"{searched:.1%}"]
    return f"| {aggregate} | {' | '.join(cells)} | {' | '.join(f'{each:.1%}' for each in fixed)} |"


def _priced(policy: Policy, aggregate: str, rows: int, budget: QueryBudget) -> Priced:
    options = f"WITH DIFFERENTIAL_PRIVACY OPTIONS (max_rows_contributed = {rows})"
    asked = bind(f"SELECT {options} {aggregate} AS x FROM ratings", policy.schema)
    return price(asked.aggregation, budget, policy.schema.adjacency)


def _errors(engine: DuckDBEngine, priced: Priced, truth: float, draws: int) -> np.ndarray:
    """|answer − truth| / truth, of so many draws of the noise."""
    linear = priced.lowered.recipes[0].linear
    assert linear is not None
    ((_, step),) = linear[0]
    (exact,) = engine.run(priced.measurement, salt=SALT).totals[0]
    noisy = priced.noise[0].release(np.full(draws, exact, dtype=np.int64))
    return np.abs(noisy * float(step) - truth) / truth


def _chosen(
    engine: DuckDBEngine,
    policy: Policy,
    aggregate: str,
    profile: QueryBudget,
    budget: QueryBudget,
    errors: Mapping[int, np.ndarray],
    draws: int,
) -> float:
    """The mean error with the bounds that draws of the profile choose."""
    one_row = _priced(policy, aggregate, 1, budget)
    spared = rows_worth_sparing(one_row)
    wanted = price(profile_of(one_row.aggregation.relation, ("ratings",)), profile, policy.schema.adjacency)
    found = engine.run(wanted.measurement, salt=SALT)
    places = {low: place for place, low in enumerate(wanted.aggregation.keys[0].values or ())}
    exact = np.zeros(len(places), dtype=np.int64)
    for low, units in zip(found.keys.column("k0").to_pylist(), found.totals[0], strict=True):
        exact[places[low]] = units
    total = 0.0
    for draw in range(draws):
        counts = wanted.noise[0].release(exact)
        seen = Profile(counts=tuple(int(count) for count in counts), noise=wanted.noise[0])
        total += float(errors[seen.least_bound(spared)][draw])
    return total / draws


if __name__ == "__main__":
    main()
