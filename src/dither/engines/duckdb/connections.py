"""DuckDB's databases that this process has open: one for each file, shared, with a directory for what doesn't fit.

DuckDB opens a file once per process and in one configuration, and POSIX drops a process's locks on a file as soon as
the process closes any descriptor of it. So engines on one file share one database, and the last of them closes it.

After a fork the child has the parent's memory, but none of the threads that work on it. There nothing of the parent is
touched: not its database, not its directory, and its objects are never destroyed.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import duckdb

from dither.errors import SourceError

_Key: TypeAlias = tuple[Path, int, int]

_guard = threading.RLock()  # a finaliser may run in a thread that holds it
_handles: set[duckdb.DuckDBPyConnection] = set()
_by_file: dict[_Key, Database] = {}
_of_parent: set[Path] = set()


class Database:
    """An open database, held by one engine, or by several on the same file; make one with ``open_database``."""

    __slots__ = ("_base", "_holders", "_key", "_options", "_own", "_process", "scratch")

    def __init__(
        self, base: duckdb.DuckDBPyConnection, scratch: Path, options: Mapping[str, str], key: _Key | None
    ) -> None:
        self._base, self.scratch, self._options, self._key = base, scratch, dict(options), key
        self._process, self._holders = os.getpid(), 1
        self._own = {base}
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

    def drop(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Close a connection."""
        if self.forked:
            return
        with _guard:
            self._own.discard(connection)
            _handles.discard(connection)
        connection.close()

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
