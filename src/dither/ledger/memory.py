"""A ledger that lives as long as its object: for tests and for trying things out, with the rules of the real one."""

from __future__ import annotations

import contextlib
import secrets
import sqlite3

from dither.errors import LedgerError
from dither.ledger.amount import Currency
from dither.ledger.books import Books
from dither.ledger.entry import Kind, Opening, Verified
from dither.ledger.faults import translated
from dither.ledger.kept import KeptLedger
from dither.ledger.replay import verify
from dither.ledger.schema import OLDEST_SQLITE, create
from dither.privacy import Adjacency


class MemoryLedger(KeptLedger):
    """Every rule but durability: what was spent is forgotten with the object, so it protects nobody.

    Example:
        >>> from dither.ledger import Account, Limit
        >>> from dither.privacy import PureLoss
        >>> ledger = MemoryLedger()
        >>> ledger.set_limits({Account(("shop",)): Limit.pure(1)})
        >>> asked = ledger.reserve(key="c0ffee00", account=Account(("shop", "ana")), loss=PureLoss("1/4"), note={})
        >>> ledger.record(asked, b"42").answer, [str(b.spent.main) for b in ledger.balances()]
        (b'42', ['250000000000', '250000000000'])
        >>> ledger.close()
    """

    def __init__(
        self,
        *,
        currency: Currency = Currency.PURE,
        adjacency: Adjacency = Adjacency.ADD_REMOVE,
        unit: str = "each row",
        dataset: str = "scratch",
    ) -> None:
        expect_sqlite()
        opening = Opening(
            ledger=secrets.token_hex(16),
            currency=currency,
            adjacency=adjacency,
            unit=unit,
            dataset=dataset,
            sums=currency.sums,
        )
        token = secrets.token_hex(16)
        db = connect(":memory:")
        books = Books(db, opening, token=token, alive=lambda other: other == token)
        with translated():
            db.execute("BEGIN IMMEDIATE")
            create(db)
            books.append(Kind.OPENED, opening.to_json())
            db.execute("COMMIT")
        super().__init__(db, books)

    @classmethod
    def of(cls, db: sqlite3.Connection, books: Books) -> MemoryLedger:
        """A ledger over tables that are in memory already: a copy, for reading."""
        ledger = cls.__new__(cls)
        KeptLedger.__init__(ledger, db, books)
        return ledger

    def _before(self) -> None:
        self._books.begin()

    def _closing(self) -> None: ...

    def _after(self) -> None: ...

    def pulse(self) -> object | None:
        """How many rows were changed."""
        return self._db.total_changes

    def _replay(self) -> Verified:
        return self._read(lambda: verify(self._db, self._books.opening, None))

    def _let_go(self) -> None: ...


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
