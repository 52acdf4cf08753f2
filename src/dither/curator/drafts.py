"""New policies and advice on existing ones: for ``dither init`` and ``dither check``; names and types, no values."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from dither.curator.policy.advice import advise
from dither.curator.policy.draft import draft, write_new
from dither.curator.policy.findings import Finding, Level
from dither.curator.policy.policy import Policy, read_file
from dither.engines import DuckDBEngine
from dither.query.schema import Schema

__all__ = ["Finding", "Level", "check", "draft_for", "write_new"]


def draft_for(source: Path | Mapping[str, Path], *, base: Path) -> str:
    """The text of a policy for a database, or for files by table, with paths relative to where it will stand."""
    with DuckDBEngine.open(source, Schema({})) as engine:
        description = engine.describe()
    if isinstance(source, Mapping):
        return draft(description, {name: _relative(path, base) for name, path in source.items()})
    return draft(description, _relative(source, base))


def check(path: Path) -> list[Finding]:
    """Everything to know about a policy file, errors first; opens the data's catalogue if the file says where it is."""
    reading = read_file(path)
    if reading.source is None:
        return list(reading.errors)
    with DuckDBEngine.open(reading.source.location, Schema({})) as engine:
        found = advise(reading, engine.describe())
    if any(one.level is Level.ERROR for one in found):
        return found
    # everything that could still be wrong is between the schema and the engine: let it say so
    policy = Policy.of(reading)
    DuckDBEngine.open(policy.source.location, policy.schema).close()
    return found


def _relative(path: Path, base: Path) -> str:
    return Path(os.path.relpath(path, base)).as_posix()
