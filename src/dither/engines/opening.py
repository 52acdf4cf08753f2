"""Where an engine is chosen, and opened on the tables that a policy names: everybody who opens data does it here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol, Self, runtime_checkable

from dither.engines.base import Engine
from dither.engines.duckdb.engine import DuckDBEngine
from dither.engines.duckdb.sources import Origin
from dither.errors import InvalidParameter
from dither.query.intake import Beyond, Intake, TableReport
from dither.query.schema import Schema


@runtime_checkable
class OpenedEngine(Engine, Protocol):
    """An engine that opened its data by itself: it knows what it found there, and closes it at the end of ``with``."""

    @property
    def reports(self) -> tuple[TableReport, ...]:
        """What was found when the tables were looked at; for the owner alone."""
        ...

    def unique_keys(self) -> Mapping[str, tuple[tuple[str, ...], ...]]:
        """By table the sets of columns that its catalogue holds to be unique."""
        ...

    def beyond_facts(self) -> Mapping[str, tuple[Beyond, ...]]:
        """By table what the policy states of private rows and the data doesn't keep to; for the owner alone."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class Opens(Protocol):
    """How an engine is opened: see ``open_engine``."""

    def __call__(
        self,
        source: Origin,
        schema: Schema,
        *,
        threads: int | None,
        memory_limit: str | None,
        intake: Intake | None,
    ) -> OpenedEngine:
        """The engine on these tables."""
        ...


# one more engine is one more line
ENGINES: Mapping[str, Opens] = MappingProxyType({"duckdb": DuckDBEngine.open})


def open_engine(
    source: Origin,
    schema: Schema,
    *,
    engine: str = "duckdb",
    threads: int | None = None,
    memory_limit: str | None = None,
    intake: Intake | None = None,
) -> OpenedEngine:
    """The engine on these tables; raises SourceError where they aren't what the schema says.

    Args:
        source: A database, or files by table.
        schema: Tables and columns as the policy declares them.
        engine: Which one, of ``ENGINES``.
        threads: How many it uses; all of the machine's by default.
        memory_limit: Such as "4GiB"; most of the machine's memory by default.
        intake: How files are read, and where it is remembered that they were.
    """
    opens = ENGINES.get(engine)
    if opens is None:
        raise InvalidParameter(f"there is no engine {engine!r}; engines are {', '.join(sorted(ENGINES))}")
    return opens(source, schema, threads=threads, memory_limit=memory_limit, intake=intake)
