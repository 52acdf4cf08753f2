"""Connections to SQLite, and what goes wrong below in the ledger's own words: its messages never reach a caller."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from dither.errors import LedgerBusy, LedgerCorrupt, LedgerError

OLDEST_SQLITE = (3, 37, 0)  # STRICT tables
CLOSED = "the ledger was closed: open it again"
DAMAGED = "the file is damaged or no ledger; keep it, and put back the latest copy"
# What SQLite's library raises; the second where its own message holds what a damaged page says.
BELOW = (sqlite3.Error, UnicodeDecodeError)


@contextmanager
def translated() -> Iterator[None]:
    """Turn every error of SQLite into a LedgerError that says what to do."""
    try:
        yield
    except BELOW as problem:
        raise fault(problem) from problem


def fault(problem: Exception) -> LedgerError:
    """The ledger's word for an error of SQLite."""
    if isinstance(problem, UnicodeDecodeError):
        return LedgerCorrupt(DAMAGED)
    name: str = getattr(problem, "sqlite_errorname", "") or ""
    if not name and str(problem).startswith("Could not decode to UTF-8"):
        return LedgerCorrupt(DAMAGED)
    if isinstance(problem, sqlite3.ProgrammingError) and not name:
        return LedgerError(CLOSED)
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return LedgerBusy("another process holds the ledger; this call charged nothing, ask again")
    if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
        return LedgerCorrupt(DAMAGED)
    if name.startswith("SQLITE_CONSTRAINT"):
        return LedgerCorrupt("the ledger's own constraints refused a change, so its records contradict each other")
    if name.startswith(("SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH")):
        return LedgerError("the ledger can't be written: it and its directory must be writable")
    if name.startswith("SQLITE_CANTOPEN"):
        return LedgerError("the ledger can't be opened: check that its directory exists and is writable")
    if name.startswith("SQLITE_FULL"):
        return LedgerError("the disk of the ledger is full; this call charged nothing")
    if name.startswith("SQLITE_IOERR"):
        return LedgerError("the disk of the ledger reports errors; check it before going on")
    return LedgerError("the ledger can't be used; run `dither ledger verify`")


def expect_sqlite() -> None:
    """Refuse a SQLite that would read the tables' constraints otherwise than they are meant."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        wanted = ".".join(str(part) for part in OLDEST_SQLITE)
        raise LedgerError(f"the ledger needs SQLite {wanted} or later; this Python has {sqlite3.sqlite_version}")
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        try:
            db.execute("SELECT value FROM json_each('[]')")
        except sqlite3.OperationalError as problem:  # could be left out of a build before 3.38
            raise LedgerError("the ledger needs a SQLite with JSON functions; this Python's has none") from problem


def connect(place: str, *, patience: float = 0.0) -> sqlite3.Connection:
    """A connection whose transactions are ours to begin, used by many threads one at a time."""
    db = sqlite3.connect(place, isolation_level=None, check_same_thread=False, timeout=patience)
    db.execute("PRAGMA foreign_keys = ON")
    db.execute("PRAGMA recursive_triggers = ON")  # REPLACE must fire the triggers that forbid deleting
    db.execute("PRAGMA trusted_schema = OFF")
    return db


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """All that is done in it or nothing, under SQLite's lock for writing."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
