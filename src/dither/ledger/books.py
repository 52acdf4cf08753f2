"""What happens inside one transaction: the rules of payment, on the tables of the schema."""

from __future__ import annotations

import json
import secrets
import sqlite3
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dither.errors import InvalidParameter, LedgerCorrupt, LedgerError, LedgerMismatch, OutOfBudget
from dither.ledger.account import Account
from dither.ledger.amount import Amount, Limit
from dither.ledger.entry import (
    GENESIS,
    Balance,
    Entry,
    Kind,
    Opening,
    Receipt,
    Reservation,
    canonical,
    digest,
    link,
    now,
)
from dither.privacy import Json, PrivacyLoss

LONGEST_CAUSE = 10_000
NOTHING = Amount()


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A question at the counter: validated, priced, not yet charged.

    ``form`` is what will be stored of the loss, and ``loss`` what will be read from that.
    """

    key: str
    account: Account
    amount: Amount
    loss: PrivacyLoss
    form: Json
    note: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One row of its table, without the answer's bytes."""

    key: str
    amount: Amount
    reserved: int
    state: str
    claim: int
    owner: str
    answered: int | None


class Books:
    """The tables of one ledger; every method runs inside a transaction of the caller's."""

    def __init__(self, db: sqlite3.Connection, opening: Opening, *, token: str, alive: Callable[[str], bool]) -> None:
        self._db, self.opening, self._token, self._alive = db, opening, token, alive
        # what was given out here and is still kept by whoever got it, by claim
        self._given: weakref.WeakValueDictionary[int, Reservation] = weakref.WeakValueDictionary()
        self._tail: tuple[int, str] | None = None

    # ------------------------------------------------------------------ the log

    def begin(self) -> tuple[int, str]:
        """Look where the log ends; every transaction begins with this, for others may have written since the last."""
        self._tail = None
        return self.tail()

    def undone(self) -> None:
        """Look again where the log ends: what was appended may have been rolled back."""
        self._tail = None

    def tail(self) -> tuple[int, str]:
        """Number and hash of the last entry: in a transaction the last by now, after it the last that it saw."""
        if self._tail is None:
            query = "SELECT seq, hash FROM entry ORDER BY seq DESC LIMIT 1"
            self._tail = self._db.execute(query).fetchone() or (0, GENESIS)
        return self._tail

    def append(self, kind: Kind, body: Json) -> tuple[int, str, str]:
        """Add an entry to the chain; its number, hash and time."""
        last, previous = self.tail()
        seq, at, text = last + 1, now(), canonical(body)
        this = link(seq, at, kind.value, text, previous)
        self._db.execute("INSERT INTO entry VALUES(?, ?, ?, ?, ?, ?)", (seq, at, kind.value, text, previous, this))
        self._tail = seq, this
        return seq, this, at

    def entry(self, seq: int) -> Entry:
        """One entry of the log."""
        row = self._db.execute("SELECT * FROM entry WHERE seq = ?", (seq,)).fetchone()
        if row is None:
            raise LedgerCorrupt(f"entry {seq} is missing from the ledger; run `dither ledger verify`")
        return read_entry(row)

    def data_version(self) -> int:
        """SQLite's own count, for this connection, of what other connections committed."""
        version: int = self._db.execute("PRAGMA data_version").fetchone()[0]
        return version

    # ------------------------------------------------------------------ limits and balances

    def set_limits(self, limits: Mapping[Account, Limit]) -> None:
        """Write down the limits that changed."""
        changed = {account: limit for account, limit in limits.items() if self.balance(account).limit != limit}
        for account, limit in changed.items():
            if limit.currency is not self.opening.currency:
                raise LedgerMismatch(
                    f"this ledger adds {self.opening.currency.value}; the limit of {account} is stated in "
                    f"{limit.currency.value}"
                )
        if not changed:
            return
        ordered = sorted(changed.items(), key=lambda item: item[0].path)
        stated = [{"account": list(account.path), "limit": limit.to_json()} for account, limit in ordered]
        self.append(Kind.LIMITS, {"limits": stated})
        for account, limit in ordered:
            self._db.execute(
                "INSERT INTO account(path, main_limit, delta_limit) VALUES(?, ?, ?) "
                "ON CONFLICT(path) DO UPDATE SET main_limit = excluded.main_limit, delta_limit = excluded.delta_limit",
                (canonical(account.path), limit.main, limit.delta),
            )

    def balances(self) -> tuple[Balance, ...]:
        """All accounts, in the order of their paths."""
        rows = self._db.execute("SELECT * FROM account").fetchall()
        return tuple(sorted((self._balance(row) for row in rows), key=lambda balance: balance.account.path))

    def balance(self, account: Account) -> Balance:
        """One account; one that was never named has spent nothing."""
        return self.known_balance(account) or Balance(account=account, limit=None, spent=NOTHING, remaining=None)

    def known_balance(self, account: Account) -> Balance | None:
        """One account, if it has a limit or has spent: looked up by its key, however many there are."""
        row = self._db.execute("SELECT * FROM account WHERE path = ?", (canonical(account.path),)).fetchone()
        return self._balance(row) if row else None

    def _balance(self, row: Sequence[Any]) -> Balance:
        path, *rest = row
        limit, spent = self._standing(rest)
        account = Account(tuple(json.loads(path)))
        return Balance(account=account, limit=limit, spent=spent, remaining=limit.after(spent) if limit else None)

    def _standing(self, row: Sequence[Any]) -> tuple[Limit | None, Amount]:
        main_limit, delta_limit, main, delta = row
        limit = None if main_limit is None else Limit(main_limit, delta_limit, self.opening.currency)
        return limit, Amount(main, delta)

    # ------------------------------------------------------------------ questions

    def question(self, key: str) -> Question | None:
        """What is known of a question."""
        row = self._db.execute(
            "SELECT main, delta, reserved, state, claim, owner, answered FROM question WHERE key = ?", (key,)
        ).fetchone()
        if row is None:
            return None
        main, delta, reserved, state, claim, owner, answered = row
        return Question(
            key=key,
            amount=Amount(main, delta),
            reserved=reserved,
            state=state,
            claim=claim,
            owner=owner,
            answered=answered,
        )

    def is_at_work(self, question: Question | None) -> bool:
        """Whether someone living is running this question now."""
        if question is None or question.state != "reserved":
            return False
        if question.owner == self._token and question.claim not in self._given:
            return False  # given out here, and lost to an interrupt or given up: nobody can record it any more
        return self._alive(question.owner)

    def let_go(self, reservation: Reservation) -> None:
        """Let others here redeem a question before its failure is written down."""
        self._given.pop(reservation.claim, None)

    def answer(self, question: Question) -> bytes:
        """The stored answer, checked against the log."""
        assert question.answered is not None
        (stored,) = self._db.execute("SELECT answer FROM question WHERE key = ?", (question.key,)).fetchone()
        if digest(stored) != self.entry(question.answered).body.get("answer"):
            raise LedgerCorrupt(
                f"a stored answer isn't the one that entry {question.answered} logged; it isn't released"
            )
        return bytes(stored)

    def receipt(self, key: str, account: Account | None = None) -> Receipt | None:
        """The receipt of this account for this question, or of whoever asked first."""
        if account is None:
            question = self.question(key)
            seq = question.reserved if question else None
        else:
            row = self._db.execute(
                "SELECT seq FROM payment WHERE key = ? AND account = ?", (key, canonical(account.path))
            ).fetchone()
            seq = row[0] if row else None
        if seq is None:
            return None
        entry = self.entry(seq)
        try:
            return Receipt(
                number=entry.body["number"],
                key=key,
                account=account or Account(tuple(entry.body["path"])),
                amount=Amount.from_json(entry.body["amount"]),
                loss=PrivacyLoss.from_json(entry.body["loss"]),
                at=entry.at,
                seq=seq,
                hash=entry.hash,
            )
        except (KeyError, TypeError, InvalidParameter) as problem:
            raise LedgerCorrupt(f"entry {seq} can't be read as a receipt") from problem

    # ------------------------------------------------------------------ the rules of payment

    def reserve(self, request: Request) -> Reservation | None:
        """Charge and reserve, replay or redeem; None if someone living is at work on the question."""
        question = self.question(request.key)
        if question is None:
            return self._first(request)
        if self.is_at_work(question):
            return None
        if question.state == "answered":
            charged = self._charge_the_unpaid(request, question)
            return self._reservation(request, charged=charged, claim=question.claim, answer=self.answer(question))
        if not question.amount.covers(request.amount):
            raise LedgerError(
                "this question was reserved at a lower price and not answered; it can't be redeemed at a higher one: "
                "its key must name everything that changes its price"
            )
        charged = self._charge_the_unpaid(request, question)
        number = self.entry(question.reserved).body["number"]
        claim, _, _ = self.append(Kind.REDEEM, {"key": request.key, "number": number, "owner": self._token})
        self._db.execute(
            "UPDATE question SET state = 'reserved', claim = ?, owner = ? WHERE key = ?",
            (claim, self._token, request.key),
        )
        return self._reservation(request, charged=charged, claim=claim)

    def _first(self, request: Request) -> Reservation:
        path = request.account.lineage
        self._expect_fits(path, path, request.amount)
        body = self._bill(request, path, request.amount, request.form)
        seq, this, at = self.append(Kind.RESERVE, {**body, "owner": self._token})
        self._db.execute(
            "INSERT INTO question(key, main, delta, reserved, state, claim, owner) "
            "VALUES(?, ?, ?, ?, 'reserved', ?, ?)",
            (request.key, request.amount.main, request.amount.delta, seq, seq, self._token),
        )
        self._pay(request.key, path, request.amount, seq)
        receipt = Receipt(
            number=body["number"],
            key=request.key,
            account=request.account,
            amount=request.amount,
            loss=request.loss,
            at=at,
            seq=seq,
            hash=this,
        )
        return self._give(receipt, charged=request.amount, claim=seq)

    def _charge_the_unpaid(self, request: Request, question: Question) -> Amount:
        """Each account pays once per question, at the price of the reservation that was answered or is redeemed."""
        path, paid = request.account.lineage, self._payers(request.key)
        unpaid = tuple(account for account in path if account not in paid)
        if not unpaid:
            return NOTHING
        self._expect_fits(path, unpaid, question.amount)
        loss = self.entry(question.reserved).body["loss"]
        seq, _, _ = self.append(Kind.CHARGE, self._bill(request, unpaid, question.amount, loss))
        self._pay(request.key, unpaid, question.amount, seq)
        return question.amount

    def _bill(self, request: Request, payers: Sequence[Account], amount: Amount, loss: Json) -> Json:
        return {
            "number": secrets.token_hex(8),
            "key": request.key,
            "path": list(request.account.path),
            "payers": [list(account.path) for account in payers],
            "amount": amount.to_json(),
            "loss": loss,
            "note": request.note,
        }

    def _expect_fits(self, path: Sequence[Account], payers: Sequence[Account], amount: Amount) -> None:
        """All or nothing; what others have spent isn't told, so sums are given for the asking account only."""
        words, dataset, asking = self.opening.currency, path[0], path[-1]
        whole = self._limit_and_spent(dataset)
        if whole[0] is None:
            raise LedgerError(f"the dataset {dataset} has no limit yet: state one before anything is spent")
        for payer in reversed(payers):
            limit, spent = whole if payer == dataset else self._limit_and_spent(payer)
            if limit is None or limit.allows(spent + amount):
                continue
            if payer == asking:
                raise OutOfBudget(
                    f"the budget of {payer} doesn't allow this: it costs {amount.in_words(words)} and "
                    f"{limit.after(spent).in_words(words)} is left; nothing was spent"
                )
            raise OutOfBudget(f"the budget of {payer} doesn't allow this; nothing was spent")

    def _limit_and_spent(self, account: Account) -> tuple[Limit | None, Amount]:
        """What a balance is made of, for those who pay."""
        query = "SELECT main_limit, delta_limit, main_spent, delta_spent FROM account WHERE path = ?"
        row = self._db.execute(query, (canonical(account.path),)).fetchone()
        return self._standing(row) if row else (None, NOTHING)

    def _pay(self, key: str, payers: Sequence[Account], amount: Amount, seq: int) -> None:
        for payer in payers:
            bill = (amount.main, amount.delta, canonical(payer.path))
            paid = self._db.execute(
                "UPDATE account SET main_spent = main_spent + ?, delta_spent = delta_spent + ? WHERE path = ?", bill
            )
            if paid.rowcount == 0:
                self._db.execute("INSERT INTO account(main_spent, delta_spent, path) VALUES(?, ?, ?)", bill)
            self._db.execute("INSERT INTO payment VALUES(?, ?, ?)", (key, bill[2], seq))

    def _payers(self, key: str) -> set[Account]:
        rows = self._db.execute("SELECT account FROM payment WHERE key = ?", (key,)).fetchall()
        return {Account(tuple(json.loads(path))) for (path,) in rows}

    def _reservation(
        self, request: Request, *, charged: Amount, claim: int, answer: bytes | None = None
    ) -> Reservation:
        receipt = self.receipt(request.key, request.account)
        assert receipt is not None
        return self._give(receipt, charged=charged, claim=claim, answer=answer)

    def _give(self, receipt: Receipt, *, charged: Amount, claim: int, answer: bytes | None = None) -> Reservation:
        given = Reservation(receipt=receipt, answer=answer, replayed=answer is not None, charged=charged, claim=claim)
        if answer is None:
            self._given[claim] = given
        return given

    # ------------------------------------------------------------------ the end of a question

    def record(self, reservation: Reservation, answer: bytes) -> bytes:
        """Store the answer, if the right to do so is still with this claim; the same answer again changes nothing.

        What is returned was read back, and is the answer that was logged.
        """
        key = reservation.receipt.key
        question = self.question(key)
        if question is not None and self._has_recorded(question, reservation, answer):
            return self.answer(question)
        if question is None or not self._holds(question, reservation):
            raise LedgerError(
                "someone else has taken over this question, or it has its answer; this one must not be released. "
                "Ask again at no cost"
            )
        number = self._number(question, reservation)
        body = {"key": key, "number": number, "claim": reservation.claim, "answer": digest(answer)}
        seq, _, _ = self.append(Kind.ANSWER, body)
        self._db.execute(
            "UPDATE question SET state = 'answered', answered = ?, answer = ? WHERE key = ?", (seq, answer, key)
        )
        row = self._db.execute("SELECT answer FROM question WHERE key = ? AND answered = ?", (key, seq)).fetchone()
        if row is None or row[0] != answer:
            raise LedgerCorrupt("the answer that was just recorded is gone; it isn't released")
        return bytes(row[0])

    def fail(self, reservation: Reservation, cause: str) -> None:
        """Log the cause; the reservation can be redeemed."""
        key = reservation.receipt.key
        question = self.question(key)
        if question is None or not self._holds(question, reservation):
            return
        number = self._number(question, reservation)
        body = {"key": key, "number": number, "claim": reservation.claim, "cause": cause[:LONGEST_CAUSE]}
        self.append(Kind.FAILED, body)
        self._db.execute("UPDATE question SET state = 'failed' WHERE key = ?", (key,))

    def _holds(self, question: Question, reservation: Reservation) -> bool:
        return question.state == "reserved" and question.claim == reservation.claim and question.owner == self._token

    def _has_recorded(self, question: Question, reservation: Reservation, answer: bytes) -> bool:
        return (
            question.answered is not None
            and (question.claim, question.owner) == (reservation.claim, self._token)
            and self.entry(question.answered).body.get("answer") == digest(answer)
        )

    def _number(self, question: Question, reservation: Reservation) -> str:
        """The number of the entry that reserved the question."""
        receipt = reservation.receipt
        # what this object gave out, and nobody's copy of it, is known to be from that entry
        if receipt.seq == question.reserved and self._given.get(question.claim) is reservation:
            return receipt.number
        return str(self.entry(question.reserved).body["number"])


def read_entry(row: Sequence[Any]) -> Entry:
    """One row of the log; raises LedgerCorrupt where it can't be read."""
    seq, at, kind, text, previous, this = row
    try:
        # unpacking anything but an object raises
        return Entry(seq=seq, at=at, kind=Kind(kind), body={**json.loads(text)}, previous=previous, hash=this)
    except (ValueError, TypeError) as problem:
        raise LedgerCorrupt(f"entry {seq} of the ledger can't be read") from problem
