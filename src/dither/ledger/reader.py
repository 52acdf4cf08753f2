"""Looking things up while a commit is under way: a second connection, which reads what is durable and never writes."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from dither.errors import LedgerError
from dither.ledger.entry import Opening
from dither.ledger.process_locks import Inheritance, OwnerLock
from dither.ledger.store.connection import CLOSED, connect
from dither.ledger.store.transaction import Books

T = TypeVar("T")
PATIENCE = 30.0


class Reader:
    """The tables of an open ledger for those who only look; opened with the first look."""

    def __init__(self, path: Path, opening: Opening, owner: OwnerLock) -> None:
        self._path, self._opening, self._owner = path, opening, owner
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._books: Books | None = None
        self._inheritance: Inheritance | None = None
        self._closed = False

    def look(self, what: Callable[[Books], T]) -> T:
        """Look something up in what was committed by now, whoever holds the writer's turn."""
        with self._lock:
            if self._closed:
                raise LedgerError(CLOSED)
            if self._books is None:
                self._books = self._open()
            return what(self._books)

    def version(self) -> object:
        """A number that SQLite changes with every commit of another connection, of this process or not."""
        return self.look(lambda books: books.data_version())

    def _open(self) -> Books:
        db = self._db = self._db or connect(str(self._path), patience=PATIENCE)
        db.execute("PRAGMA query_only = ON")
        # a forked child must leave this connection alone, too
        self._inheritance = Inheritance(self._lock, self._owner, db)
        return Books(db, self._opening, token=self._owner.token, alive=self._owner.alive)

    def close(self) -> None:
        """Let go of the connection. Idempotent."""
        with self._lock:
            self._closed = True
            self._books = self._inheritance = None
            if self._db is not None:
                self._db.close()
                self._db = None
