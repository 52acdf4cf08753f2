"""Made-up tables in databases to attack through SQL: one that answers exactly, and the same one behind a curator."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import TypeAlias

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dither.curator import Curator
from dither.errors import InvalidParameter
from dither.mechanisms import DiscreteLaplace
from dither.numeric import Number, as_fraction, positive
from dither.policy import Policy

Ask: TypeAlias = Callable[[str], pa.Table]

ATTACKER = "mallory"
SOURCE = """\
[source]
database = "data.duckdb"
ledger_head = "data.head"

[budget]
epsilon_budget = {epsilon!r}
analysts = "any"

"""


@contextmanager
def exact_database(name: str, table: pa.Table) -> Iterator[Ask]:
    """A database that answers whatever it is asked, exactly and for ever: what is attacked without dither."""
    with duckdb.connect(":memory:") as database:
        database.register("made_up", table)
        # the name is a constant of ours, and so is the text: nothing of a user's is in it
        database.execute(f"CREATE TABLE {name} AS SELECT * FROM made_up")  # noqa: S608
        yield lambda sql: database.sql(sql).to_arrow_table()


@contextmanager
def curated_database(name: str, table: pa.Table, *, tables: str, epsilon: Fraction) -> Iterator[Curator]:
    """The same behind a curator with a budget of its own, in a temporary directory.

    ``tables`` is the part of a policy that states the public facts about the table.
    """
    with tempfile.TemporaryDirectory(prefix="dither-attack-") as directory:
        place = Path(directory)
        with duckdb.connect(str(place / "data.duckdb")) as database:
            database.register("made_up", table)
            database.execute(f"CREATE TABLE {name} AS SELECT * FROM made_up")  # noqa: S608
        policy = Policy.parse(SOURCE.format(epsilon=float(epsilon)) + tables, base=place)
        with Curator.open(policy) as curator:
            yield curator


def as_budget(epsilon: Number) -> Fraction:
    """An ε that a policy can state exactly: a decimal number above 0."""
    budget = as_fraction(float(positive(epsilon, "epsilon")), "epsilon")
    if budget <= 0:
        raise InvalidParameter(f"epsilon must be greater than 0; got {epsilon!r}")
    return budget


def noise_of(curator: Curator, sql: str, epsilon: Number) -> DiscreteLaplace:
    """The noise that an answer with one cell would have: public, and the attacker's to use."""
    noise = curator.price(sql, epsilon=epsilon, analyst=ATTACKER).priced.noise
    if len(noise) != 1 or not isinstance(noise[0], DiscreteLaplace):
        raise InvalidParameter(
            "the noise of one count or one sum is known; ask for one of them, with a budget of ε alone"
        )
    return noise[0]


def column(table: pa.Table, name: str) -> npt.NDArray[np.float64]:
    """A column of an answer as numbers."""
    return np.asarray(table.column(name).to_numpy(), dtype=np.float64)
