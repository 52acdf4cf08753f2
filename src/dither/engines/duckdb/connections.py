"""DuckDB's databases that this process has open: one for each file, shared, with a directory for what doesn't fit.

DuckDB opens a file once per process and in one configuration, and POSIX drops a process's locks on a file as soon as
the process closes any descriptor of it. So engines on one file share one database, and the last of them closes it.

After a fork the child has the parent's memory, but none of the threads that work on it. There nothing of the parent is
touched: not its database, not its directory, and its objects are never destroyed.

DuckDB notes each block of memory that a query has used, for when memory gets scarce. It takes the notes
of queries that have ended off its lists only from 32,768 on, which are some 8 MiB in each of up to six lists, scattered
over the heaps of all threads. So they are taken off every thousand queries, when none runs.

Here is also what an engine remembers of the files that it opened, so that a change of them is noticed.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import duckdb

from dither.engines.files.copies import Held
from dither.engines.relations import TableSource
from dither.errors import SourceError
from dither.query.intake import TableReport

_Key: TypeAlias = tuple[Path, int, int]

# after so many queries DuckDB's lists are cleaned
CLEANED_AFTER = 1000
# which may be changed although the configuration is locked: to clean the lists, and it opens no way out
CHANGEABLE = "memory_limit"

_guard = threading.RLock()  # a finaliser may run in a thread that holds it
_handles: set[duckdb.DuckDBPyConnection] = set()
_by_file: dict[_Key, Database] = {}
_of_parent: set[Path] = set()


class Database:
    """An open database, held by one engine, or by several on the same file; make one with ``open_database``."""

    __slots__ = ("_base", "_holders", "_key", "_options", "_own", "_process", "_queries", "_resting", "scratch")

    def __init__(
        self, base: duckdb.DuckDBPyConnection, scratch: Path, options: Mapping[str, str], key: _Key | None
    ) -> None:
        self._base, self.scratch, self._options, self._key = base, scratch, dict(options), key
        self._process, self._holders = os.getpid(), 1
        self._own, self._resting = {base}, {base}
        self._queries: float = 0
        keep_from_children(base)

    @property
    def forked(self) -> bool:
        """Whether this is a copy in a child of the process that opened it."""
        return os.getpid() != self._process

    def connection(self) -> duckdb.DuckDBPyConnection:
        """A connection of its own for a thread; give it back with ``drop``."""
        with _guard:
            made = self._base.cursor()
            self._own.add(made)
            keep_from_children(made)
            return made

    def rest(self, connection: duckdb.DuckDBPyConnection) -> None:
        """A connection that is kept, and on which nothing runs from now on."""
        with _guard:
            self._resting.add(connection)

    def drop(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Close a connection."""
        if self.forked:
            return
        with _guard:
            self._own.discard(connection)
            self._resting.discard(connection)
            _handles.discard(connection)
        connection.close()
        with _guard:
            self._queries += 1
            if self._queries >= CLEANED_AFTER and self._own and self._own <= self._resting:
                self._clean()

    def _clean(self) -> None:
        """Have DuckDB go through its lists: it does where it is to need less memory than it can do with.

        Whoever holds the lock knows that no query runs: those that begin wait for it. Pages of tables are let go of
        too, and read again by the next query.
        """
        self._queries = 0
        limit = self._options.get(CHANGEABLE)
        try:
            self._base.execute(f"SET {CHANGEABLE} = '0B'")
        except duckdb.OutOfMemoryException:
            return  # the usual end: something is always in use, and the limit stays as it was
        except duckdb.Error:
            self._queries = -math.inf  # an older version, whose lock has no exceptions
            return
        finally:
            with suppress(duckdb.Error):
                self._base.execute(f"RESET {CHANGEABLE}" if limit is None else f"SET {CHANGEABLE} = '{limit}'")

    def release(self, connection: duckdb.DuckDBPyConnection | None = None) -> None:
        """One holder and its connection less; the last one closes the database and removes the directory."""
        if self.forked:
            return
        with _guard, suppress(duckdb.Error):
            # at the end of the process a thread may still be in a query, and there is nobody to tell
            if connection is not None:
                self.drop(connection)
        with _guard:
            self._holders -= 1
            if self._holders:
                return
            _handles.difference_update(self._own)
            self._own.clear()
            self._resting.clear()
            if self._key is not None:
                del _by_file[self._key]
            with suppress(duckdb.Error):
                self._base.close()
            shutil.rmtree(self.scratch, ignore_errors=True)


def keep_from_children(connection: duckdb.DuckDBPyConnection) -> None:
    """A connection that a forked child must never destroy: it would wait for threads that it doesn't have."""
    with _guard:
        _handles.add(connection)


def open_database(
    path: Path | None, options: Mapping[str, str], prepare: Callable[[duckdb.DuckDBPyConnection], None]
) -> Database:
    """The database of a file, read-only, or an empty one in memory; ``prepare`` is called once for each, first of all.

    Raises SourceError where the file can't be opened.
    """
    with _guard:
        key = None
        if path is not None:
            facts = path.stat()
            key = (path.resolve(), facts.st_dev, facts.st_ino)
            shared = _by_file.get(key)
            if shared is not None:
                if shared._options != dict(options):  # noqa: SLF001
                    raise _open_already(path)
                shared._holders += 1  # noqa: SLF001
                return shared
        scratch = Path(tempfile.mkdtemp(prefix="dither-"))
        try:
            base = _connect(path, {**options, "temp_directory": str(scratch)})
            try:
                prepare(base)
            except BaseException:
                base.close()
                raise
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise
        database = Database(base, scratch, options, key)
        if key is not None:
            _by_file[key] = database
        return database


def _connect(path: Path | None, settings: Mapping[str, str]) -> duckdb.DuckDBPyConnection:
    if path is None:
        return duckdb.connect(":memory:", config=dict(settings))
    try:
        return duckdb.connect(path.resolve(), read_only=True, config=dict(settings))
    except duckdb.IOException as problem:
        if "lock" in str(problem):
            raise SourceError(f"{path} is in use by another process that may write to it: close that first") from None
        raise SourceError(f"{path} is not a DuckDB database, or a damaged one") from None
    except duckdb.Error as problem:
        if "different configuration" in str(problem) or "Unique file handle conflict" in str(problem):
            raise _open_already(path) from None
        raise SourceError(f"{path} can't be opened as a DuckDB database by version {duckdb.__version__}") from None


def _open_already(path: Path) -> SourceError:
    if path.resolve() in _of_parent:
        return SourceError(f"{path} was open when this process was forked: open it in one of both, after the fork")
    return SourceError(f"{path} is already open in this process with other settings: close it first")


def _in_child() -> None:
    """A child starts without databases; the lock may be held by a thread that doesn't exist here."""
    global _guard
    _guard = threading.RLock()
    for connection in _handles:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
    _of_parent.update(path for path, _, _ in _by_file)
    _handles.clear()
    _by_file.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A locked database with what the catalogue says, and the files that it is made of.

    ``held`` are the typed copies that are read in place of files. ``reading`` is what a version says besides the files:
    the same bytes are other data where texts are trimmed. ``reports`` are for the owner alone.
    """

    database: Database
    connection: duckdb.DuckDBPyConnection
    catalogue: Mapping[str, Mapping[str, str]]
    unique: Mapping[str, tuple[tuple[str, ...], ...]]
    sources: Mapping[str, TableSource]
    files: tuple[Path, ...]
    state: State
    reading: str
    held: tuple[Held, ...]
    copied: State
    reports: tuple[TableReport, ...]
    names_only: bool

    @property
    def copies(self) -> tuple[Path, ...]:
        """Where the typed copies are."""
        return tuple(copy.path for copy in self.held)

    def release(self) -> None:
        """Let go of it all."""
        self.database.release(self.connection)
        for copy in self.held:
            copy.release()
