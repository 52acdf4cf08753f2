"""Rehearsals: a policy with other tables in the place of the owner's, and one engine for many small worlds.

Nothing of the owner's is opened: the policy that is used here points to made-up files in a folder of its own, and its
ledger, which is in memory, is forgotten after each answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from dither.audit.queries.made_up_tables import World, empty_tables
from dither.audit.queries.neighbours import reading
from dither.curator.charging import Accounts
from dither.curator.epsilon_to_currency import Exchange
from dither.curator.past.records import ledger_to_look_at
from dither.curator.price.pricing import Pricing
from dither.curator.price.profiles import Profiles
from dither.curator.price.quoting import Quoting
from dither.engines.opening import OpenedEngine, open_engine
from dither.policy.policy import Policy
from dither.policy.source import PolicySource
from dither.query.measure.measures import Measured, Measurement
from dither.query.schema import Schema

# So many worlds are tables of one database: opening one takes longer than a measurement.
AT_ONCE = 10


def rehearsed(policy: Policy, tables: Mapping[str, pa.Table], folder: Path) -> Policy:
    """The policy on made-up tables, which are written to a folder; tables that aren't given are empty.

    Answers aren't delayed: nothing of the owner's could be told by timing them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for place, (name, table) in enumerate({**empty_tables(policy.schema), **tables}.items()):
        files[name] = folder / f"{place}.parquet"
        pq.write_table(table, files[name])
    source = PolicySource(
        name=policy.source.name, ledger=folder / "ledger", ledger_head=folder / "head", files=files, version="made up"
    )
    return replace(policy, source=source, budget=replace(policy.budget, round_answer_time_up_to=Fraction(0)))


@contextmanager
def pricing_of(policy: Policy) -> Iterator[tuple[Pricing, Quoting]]:
    """How the curator prices questions under a rehearsed policy, of whose budget nothing was spent."""
    with ledger_to_look_at(policy) as ledger:
        exchange = Exchange(policy.budget.delta_budget, ledger.sums)
        profiles = Profiles(ledger, policy=policy.fingerprint(), version="made up")
        pricing = Pricing(policy, exchange, ledger, version="made up", profiles=profiles)
        yield pricing, Quoting(policy, exchange, ledger, Accounts(policy, exchange, ledger), profiles)


def measured_worlds(
    worlds: Iterator[World],
    schema: Schema,
    measurements: Sequence[Measurement],
    folder: Path,
    *,
    count: int,
    salts: Iterator[bytes],
) -> Iterator[tuple[World, list[list[Measured]]]]:
    """So many worlds with their measurements, for the base and then each neighbour, all of a world under one salt.

    Worlds are tables of a DuckDB database and Parquet files in turns, since an engine may treat the two differently
    (statistics of a Parquet file leave NaN out).
    """
    done = 0
    while done < count:
        batch = list(islice(worlds, min(AT_ONCE, count - done)))
        with _engine(batch, schema, folder / f"batch {done}", parquet=done // AT_ONCE % 2 == 1) as engine:
            for number, world in enumerate(batch):
                salt, found = next(salts), []
                for side in range(1 + len(world.others)):
                    names = {name: _name(name, number, side) for name in world.base}
                    found.append([engine.run(_on(names, each), salt=salt) for each in measurements])
                yield world, found
        done += len(batch)


def _on(names: Mapping[str, str], measurement: Measurement) -> Measurement:
    return replace(measurement, relation=reading(measurement.relation, names))


def _name(table: str, number: int, side: int) -> str:
    return f"{table}~{number}~{side}"


def _engine(batch: Sequence[World], schema: Schema, folder: Path, *, parquet: bool) -> OpenedEngine:
    """All worlds of a batch as tables of one engine."""
    folder.mkdir(parents=True)
    tables: dict[str, pa.Table] = {}
    facts: dict[str, Any] = {}
    for number, world in enumerate(batch):
        for side, chosen in enumerate((world.base, *world.others)):
            for name, table in chosen.items():
                own = _name(name, number, side)
                tables[own], facts[own] = table, replace(schema.tables[name], name=own)
    whole = Schema(facts, schema.adjacency)
    if parquet:
        files = {name: folder / f"{place}.parquet" for place, name in enumerate(tables)}
        for name, file in files.items():
            pq.write_table(tables[name], file)
        return open_engine(files, whole, threads=1)
    path = folder / "worlds.duckdb"
    with duckdb.connect(str(path)) as database:
        database.execute("BEGIN")
        for name, table in tables.items():
            database.register("made_up", table)
            quoted = name.replace('"', '""')
            database.execute(f'CREATE TABLE "{quoted}" AS SELECT * FROM made_up')  # noqa: S608  names are quoted
            database.unregister("made_up")
        database.execute("COMMIT")
    return open_engine(path, whole, threads=1)
