"""What an engine is: it answers measurements exactly and within their bounds, and says nothing else about the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from dither.query.measure.measures import Measured, Measurement

SHORTEST_SALT = 8
"""Bytes of randomness that a question's salt needs at least."""


class EngineFailure(Exception):  # noqa: N818
    """An engine could not answer: a generic message for everybody, and ``cause`` for the owner's log.

    An engine's own message may quote data (a value that could not be cast), so it is never part of ``str()``, and the
    original exception isn't chained.
    """

    def __init__(self, cause: str) -> None:
        self.cause = cause
        super().__init__("the engine could not run the measurement; the cause is in the owner's log")


class EngineBroken(EngineFailure):
    """An engine that can't run anything any more: open another one."""


class Engine(Protocol):
    """Where the tables are. Nothing it returns is noisy, so only the curator and conformance suites may hold one.

    ``run`` is deterministic given data, measurement and salt, whatever the order of rows and the number of threads. The
    choice of what a unit keeps depends on that unit's own rows and the salt alone, so for every salt one unit changes
    no more than what the measurement allows it: the bound holds whatever the quality of the hash.
    """

    def describe(self) -> Mapping[str, Mapping[str, str]]:
        """Tables, their columns and the engine's types, from the catalogue: reads no values."""
        ...

    def run(self, measurement: Measurement, *, salt: bytes) -> Measured:
        """The exact, bounded cells. Raises EngineFailure; EngineBroken where the next measurement would fail too."""
        ...

    def rows(self, table: str, columns: Sequence[str], *, rows: int, salt: bytes) -> pa.Table:
        """Rows of a private table in their declared kinds, for computations that state their loss by themselves.

        At most ``rows`` rows of each unit, chosen by the salted hash from the unit's own rows alone; rows with a NULL
        unit id are left out; where each row is a unit, all of them. Sorted by all columns, so that the order says
        nothing.
        """
        ...

    def version(self) -> str:
        """A fingerprint that changes when the data does; for the owner's side only."""
        ...

    def interrupt(self) -> None:
        """Stop what is running, from another thread."""
        ...

    def close(self) -> None:
        """Let go of files and memory."""
        ...
