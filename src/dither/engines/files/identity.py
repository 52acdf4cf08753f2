"""The owner's files by what they are, whatever their names: which of them are the same, and whether one has changed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from dither.errors import SourceError
from dither.query.schema import Schema, TableFacts

State: TypeAlias = tuple[tuple[str, int, int, int, int] | None, ...]
"""Name, device, number on it, size and time of change of each file; None where there is none."""


def state_of(files: Iterable[Path]) -> State:
    """What can be told about files without reading them."""
    found: list[tuple[str, int, int, int, int] | None] = []
    for file in files:
        try:
            facts = file.stat()
        except OSError:
            found.append(None)
        else:
            found.append((file.name, facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns))
    return tuple(found)


def fingerprint(state: State) -> str:
    """The same for equal names, sizes and times, so that it stays when files are copied to another disk with those."""
    parts = [f"{facts[0]}\0{facts[3]}\0{facts[4]}" for facts in state if facts is not None]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def expect_separate(files: Mapping[str, Sequence[Path]], schema: Schema) -> None:
    """A file with protected rows is read once, and under one name: raises SourceError.

    Twice in one table, or in two where the row is the unit, a row would count twice; in a public table it would be no
    secret. Links and patterns give one file several names, so files are compared by device and number.
    """
    readers: dict[tuple[int, int], list[TableFacts]] = {}
    for name, paths in files.items():
        table = schema.tables.get(name)
        if table is None:
            continue
        for path in paths:
            facts = path.stat()
            others = readers.setdefault((facts.st_dev, facts.st_ino), [])
            for other in others:
                if other is table:
                    raise SourceError(f"table {name} reads {path} more than once: list each file once")
                if other.private != table.private or (table.private and None in (table.unit_column, other.unit_column)):
                    raise SourceError(
                        f"tables {other.name} and {name} read the same file, {path}: leave one of them out"
                    )
            others.append(table)
