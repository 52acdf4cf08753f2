"""What ledgers on SQLite share, whether the tables are in a file or in memory."""

from __future__ import annotations

import sqlite3
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from dither.errors import IncompatibleLosses, InvalidParameter, LedgerBusy
from dither.ledger.account import Account
from dither.ledger.amount import Currency, Limit, expect_counts
from dither.ledger.base import GIVEN_UP, PATIENCE, Ledger
from dither.ledger.entry import Balance, Entry, Receipt, Reservation, Verified, as_stored, expect_key, read_entry
from dither.ledger.store.connection import translated
from dither.ledger.store.transaction import Books, Request
from dither.ledger.store.writer import Guard, Writer
from dither.ledger.sums import Sum
from dither.ledger.units import Units, with_further_tables
from dither.privacy import Adjacency, PrivacyLoss
from dither.privacy.loss import expect_loss

T = TypeVar("T")
PAGE = 500
FIRST_LOOK, LAST_LOOK = 0.001, 0.05
KEPT = (
    "another process holds the ledger, so the answer isn't recorded and must not be released. The question was charged "
    "and its receipt is kept: record it again, or ask the same again at no further cost"
)


class KeptLedger(Ledger):
    """A ledger in SQLite tables: the rules are in Books, the transactions in Writer, the rest is here."""

    def __init__(
        self, db: sqlite3.Connection, books: Books, guard: Guard | None = None, *, patience: float = 0.0
    ) -> None:
        self._db, self._books = db, books
        self._writer = Writer(db, books, guard or Guard(), patience=patience)

    @abstractmethod
    def _replay(self) -> Verified:
        """Replay everything, in a read transaction."""

    # ------------------------------------------------------------------ the contract

    @property
    def currency(self) -> Currency:
        """What is added up."""
        return self._books.opening.currency

    @property
    def sums(self) -> tuple[Sum, ...]:
        """What is added up side by side."""
        return self._books.opening.sums

    @property
    def units(self) -> Units:
        """The units of the tables that this ledger was used for."""
        return self._read(self._books.units)

    def bind(self, units: Units, *, rebind: bool = False, note: bool = True) -> None:
        """See that this ledger is kept for these units."""
        if not note:
            with_further_tables(self.units, units)
        elif rebind or with_further_tables(self.units, units) != self.units:
            self._writer.run(lambda: self._books.bind(units, rebind=rebind))

    @property
    def adjacency(self) -> Adjacency:
        """Which neighbours every loss must be stated for."""
        return self._books.opening.adjacency

    @property
    def commits(self) -> int:
        """How many commits this object has made; concurrent requests share them."""
        return self._writer.commits

    def set_limits(self, limits: Mapping[Account, Limit]) -> None:
        """State the limits of these accounts; others keep theirs."""
        stated: dict[Any, Any] = dict(limits)
        if any(not isinstance(a, Account) or not isinstance(limit, Limit) for a, limit in stated.items()):
            raise InvalidParameter("limits are a mapping from Account to Limit")
        self._writer.expect_usable()
        self._writer.run(lambda: self._books.set_limits(stated))

    def reserve(
        self,
        *,
        key: str,
        account: Account,
        loss: PrivacyLoss,
        note: Mapping[str, Any],
        timeout: float = PATIENCE,
        counts: Mapping[str, int] | None = None,
        continues: int | None = None,
    ) -> Reservation:
        """Charge for a question before any data is read, or return its recorded answer."""
        expect_counts(counts or {}, least=1)
        request = replace(self._request(key, account, loss, note), counts=dict(counts or {}), continues=continues)
        deadline, look = time.monotonic() + timeout, FIRST_LOOK
        while True:
            self._writer.expect_usable()
            reservation = self._writer.run(lambda: self._books.reserve(request), undo=self._give_back)
            if reservation is not None:
                return reservation
            while self._is_at_work(request.key):
                if time.monotonic() >= deadline:
                    raise LedgerBusy("someone is at work on the same question; nothing was charged, ask again later")
                time.sleep(min(look, max(deadline - time.monotonic(), 0)))
                look = min(2 * look, LAST_LOOK)

    def record(self, reservation: Reservation, answer: bytes) -> Reservation:
        """Store the answer durably and return the stored bytes."""
        if not isinstance(answer, bytes):
            raise InvalidParameter(f"an answer is recorded as bytes; got {type(answer).__name__}")
        self._writer.expect_usable()
        try:
            # read back in the transaction that stores it, and told only once that is durable
            stored = self._writer.run(lambda: self._books.record(reservation, answer))
        except LedgerBusy as problem:
            raise LedgerBusy(KEPT) from problem
        return replace(reservation, answer=stored)

    def fail(self, reservation: Reservation, cause: str) -> None:
        """Log for the owner why there is no answer."""
        self._writer.expect_usable()
        self._writer.run(lambda: self._books.fail(reservation, str(cause)))

    def give_up(self, reservation: Reservation) -> None:
        """Let the same question be redeemed at once here, by others once this object writes again or is closed."""
        self._books.let_go(reservation)
        self._writer.later(lambda: self._give_back(reservation))

    def _give_back(self, reservation: Reservation | None) -> None:
        """The right to answer, not the charge."""
        if reservation is not None and reservation.answer is None:
            self._books.fail(reservation, GIVEN_UP)

    def balances(self) -> tuple[Balance, ...]:
        """Every account that has a limit or has spent."""
        return self._read(self._books.balances)

    def balance(self, account: Account) -> Balance | None:
        """One account, looked up by its key."""
        return self._look_up(lambda books: books.known_balance(account))

    def latest(self, count: int) -> list[Entry]:
        """The last entries of the log, in its order."""
        query = "SELECT * FROM entry ORDER BY seq DESC LIMIT ?"
        rows = self._read(lambda: self._db.execute(query, (max(int(count), 0),)).fetchall())
        return [read_entry(row) for row in reversed(rows)]

    def entries(self, *, after: int = 0, number: str | None = None) -> Iterator[Entry]:
        """The log in its order, page by page: it only grows, so pages fit together."""
        query = "SELECT * FROM entry WHERE seq > ? AND (? IS NULL OR instr(body, ?)) ORDER BY seq LIMIT ?"
        while True:
            place = (after, number, number, PAGE)
            rows = self._read(lambda place=place: self._db.execute(query, place).fetchall())  # type: ignore[misc]
            found = [read_entry(row) for row in rows]
            yield from (entry for entry in found if number is None or entry.body.get("number") == number)
            if len(rows) < PAGE:
                return
            after = found[-1].seq

    def find(self, key: str, account: Account | None = None) -> Receipt | None:
        """The receipt of whoever asked this question first, or of this account, if it paid."""
        expect_key(key)
        return self._look_up(lambda books: books.receipt(key, account))

    def paid(self, key: str, account: Account) -> bool:
        """Whether asking this question is free for this account."""
        return self.find(key, account) is not None

    def verify(self) -> Verified:
        """Replay everything; raises LedgerCorrupt or LedgerRolledBack, naming the entry where it broke."""
        self._writer.expect_usable()
        with translated():
            return self._replay()

    def close(self) -> None:
        """Let go of the ledger."""
        if not self._writer.is_inherited:
            with translated():
                self._writer.close()

    # ------------------------------------------------------------------ within

    def _request(self, key: str, account: Account, loss: PrivacyLoss, note: Mapping[str, Any]) -> Request:
        expect_loss(loss)
        if not isinstance(account, Account):
            raise InvalidParameter(
                f'the account is an Account, such as Account(("shop", "ana")); got {type(account).__name__}'
            )
        if loss.adjacency is not self.adjacency:
            raise IncompatibleLosses(
                f"this ledger is kept for {self.adjacency.value}; the loss is stated for {loss.adjacency.value}"
            )
        amount = self.price(loss)
        form, plain = as_stored(loss.to_json(), note)
        stored = PrivacyLoss.from_json(form)
        # the stored loss must never price below the charge
        if stored != loss and not self.price(stored) <= amount:
            raise InvalidParameter("the loss costs more when it is read back from its JSON form; it can't be recorded")
        return Request(key=expect_key(key), account=account, amount=amount, loss=stored, form=form, note=plain)

    def _is_at_work(self, key: str) -> bool:
        """Looked up without the write lock, so that those who wait don't hold up those who work."""
        return self._read(lambda: self._books.is_at_work(self._books.question(key)))

    def _read(self, look: Callable[[], T]) -> T:
        self._writer.expect_usable()
        with translated():
            return self._writer.read(look)

    def _look_up(self, look: Callable[[Books], T]) -> T:
        """A look-up that needn't wait for the commits of others, where the ledger can do that."""
        return self._read(lambda: look(self._books))
