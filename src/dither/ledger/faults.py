"""What went wrong below, in the ledger's own words: SQLite's messages never reach a caller."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from dither.errors import LedgerBusy, LedgerCorrupt, LedgerError

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
