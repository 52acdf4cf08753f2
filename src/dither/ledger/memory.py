"""A ledger that lives as long as its object: for tests and for trying things out, with the rules of the real one."""

from __future__ import annotations

import secrets
import sqlite3

from dither.ledger.amount import Currency
from dither.ledger.entry import EntryKind, Opening, Verified
from dither.ledger.log.replay import verify
from dither.ledger.store.charge_or_replay import Books
from dither.ledger.store.one_writer import KeptLedger, connect, expect_sqlite, transaction, translated
from dither.ledger.store.schema import create
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
        with translated(), transaction(db):
            create(db)
            books.append(EntryKind.OPENED, opening.to_json())
        super().__init__(db, books)

    @classmethod
    def of(cls, db: sqlite3.Connection, books: Books) -> MemoryLedger:
        """A ledger over tables that are in memory already: a copy, for reading."""
        ledger = cls.__new__(cls)
        KeptLedger.__init__(ledger, db, books)
        return ledger

    def version(self) -> object | None:
        """How many rows were changed."""
        return self._db.total_changes

    def _replay(self) -> Verified:
        return self._read(lambda: verify(self._db, self._books.opening, None))
