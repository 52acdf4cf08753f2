"""Whole answers, as an analyst gets them: price, charge, engine, noise, stored bytes, shape; on made-up tables.

Each answer comes from a curator of its own, with a ledger in memory of which nothing was spent, so that none is
replayed from the record, and with a fresh salt.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from dither.audit.drawing.draws import Batched
from dither.curator.curator import Curator
from dither.curator.past.records import ledger_to_look_at
from dither.curator.price.pricing import Prepared
from dither.curator.terms import Terms
from dither.engines import Engine
from dither.engines.opening import open_engine
from dither.policy.policy import Policy
from dither.query.intake import Intake
from dither.query.kinds import Column

# Outputs hold at most so many rows of an answer.
MOST_ROWS = 16


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Asking:
    """One question to one made-up database; what lower_bound calls an input."""

    name: str
    policy: Policy
    engine: Engine
    sql: str
    analyst: str
    terms: Terms
    keys: tuple[str, ...]

    def __repr__(self) -> str:
        return self.name

    def once(self) -> Any:
        """One fresh answer: its rows by key, or one after the other where keys aren't columns of it."""
        with ledger_to_look_at(self.policy) as ledger:
            # not closed: that would close the engine, which serves the next answer too
            curator = Curator(self.policy, self.engine, ledger)
            answer = curator.analyst(self.analyst).sql(self.sql, self.terms)
        rows = answer.to_pylist()[:MOST_ROWS]
        if not self.keys:
            return rows[0] if len(rows) == 1 else rows
        return {
            ", ".join(str(row[name]) for name in self.keys): {n: v for n, v in row.items() if n not in self.keys}
            for row in rows
        }


@contextmanager
def asking(
    policies: tuple[Policy, Policy], names: tuple[str, str], prepared: Prepared
) -> Iterator[tuple[Asking, Asking]]:
    """The question to two made-up databases, as inputs of ``answering``."""
    keys = tuple(
        output.name
        for output in prepared.question.shape.outputs
        if isinstance(output.expression, Column) and output.expression.name.startswith("k")
    )
    if len(keys) != len(prepared.question.aggregation.keys):
        keys = ()
    with ExitStack() as undo:
        sides = []
        for policy, name in zip(policies, names, strict=True):
            intake = Intake(delimiter=policy.source.delimiter, header=policy.source.header)
            opened = open_engine(policy.source.location, policy.schema, threads=1, intake=intake)
            engine = undo.enter_context(opened)
            sides.append(
                Asking(
                    name=name,
                    policy=policy,
                    engine=engine,
                    sql=prepared.sql,
                    analyst=prepared.who.name,
                    terms=prepared.terms,
                    keys=keys,
                )
            )
        yield sides[0], sides[1]


def answering() -> Batched:
    """The curator as a mechanism: draws whole answers one by one, in this process, which holds the engine."""
    return Batched(lambda side, n: [side.once() for _ in range(n)], copies=False)
