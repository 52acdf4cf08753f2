"""The rules of payment: a question is charged once for each account; asked again, it gets its stored answer for free.

Every method runs inside one transaction, on the tables of the schema.

Rows are looked at only after the seal of the last entry has vouched for them, and every entry seals what it changed.
"""

from __future__ import annotations

import secrets
import sqlite3
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dither.errors import InvalidParameter, LedgerCorrupt, LedgerError, LedgerMismatch
from dither.ledger.amount import (
    NO_UNITS,
    NOTHING,
    Account,
    Amount,
    Limit,
    Units,
    units_from_json,
    units_to_json,
    with_further_tables,
)
from dither.ledger.entry import (
    GENESIS,
    Balance,
    Entry,
    EntryKind,
    Opening,
    Receipt,
    Reservation,
    canonical,
    digest,
    link,
    now,
    read_entry,
)
from dither.ledger.store.budget_check import expect_fits
from dither.ledger.store.rows import (
    ACCOUNT_COLUMNS,
    QUESTION_COLUMNS,
    AccountRow,
    QuestionRow,
    TableTree,
    broken,
    place_of,
    row_text,
    sealed,
)
from dither.privacy import Json, PrivacyLoss

LONGEST_CAUSE = 10_000
# What a row raises that isn't one of ours.
UNREADABLE = (InvalidParameter, ValueError, TypeError, AttributeError)
_ACCOUNT, _QUESTION = ", ".join(ACCOUNT_COLUMNS), ", ".join(QUESTION_COLUMNS)
_INSERT_ACCOUNT = f"INSERT INTO account({_ACCOUNT}) VALUES({', '.join('?' * len(ACCOUNT_COLUMNS))})"
_UPDATE_ACCOUNT = f"UPDATE account SET {', '.join(f'{name} = ?' for name in ACCOUNT_COLUMNS[2:])} WHERE path = ?"  # noqa: S608
_INSERT_QUESTION = f"INSERT INTO question({_QUESTION}, answer) VALUES({', '.join('?' * len(QUESTION_COLUMNS))}, ?)"
_UPDATE_QUESTION = (
    f"UPDATE question SET {', '.join(f'{name} = ?' for name in QUESTION_COLUMNS[1:])}, answer = COALESCE(?, answer) "  # noqa: S608
    "WHERE key = ?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargeRequest:
    """A question at the counter: validated, priced, not yet charged.

    ``form`` is what will be stored of the loss, and ``loss`` what will be read from that. ``counts`` are counted for
    every account that pays; ``continues`` is the entry of a receipt that this one goes on from.
    """

    key: str
    account: Account
    amount: Amount
    loss: PrivacyLoss
    form: Json
    note: Json
    counts: Mapping[str, int] = field(default_factory=dict)
    continues: int | None = None


class Books:
    """The tables of one ledger; every method runs inside a transaction of the caller's."""

    def __init__(self, db: sqlite3.Connection, opening: Opening, *, token: str, alive: Callable[[str], bool]) -> None:
        self._db, self.opening, self._token, self._alive = db, opening, token, alive
        self._accounts = TableTree(db, "account", self._texts("account", "place", _ACCOUNT))
        self._questions = TableTree(db, "question", self._texts("question", "key", _QUESTION))
        # what was given out here and is still kept by whoever got it, by claim
        self._given: weakref.WeakValueDictionary[int, Reservation] = weakref.WeakValueDictionary()
        self._tail: tuple[int, str] | None = None
        # the last entry whose hash was seen to be right, and its seal
        self._trusted: tuple[str, str] = "", ""
        self._bound: tuple[int, Units] | None = None

    def _texts(self, table: str, key: str, columns: str) -> Callable[[str], str]:
        query = f"SELECT {columns} FROM {table} WHERE {key} >= ? AND {key} < ? ORDER BY {key}"  # noqa: S608

        def texts(place: str) -> str:
            # "g" follows every hexadecimal digit
            return "\n".join(row_text(row) for row in self._db.execute(query, (place, place + "g")))

        return texts

    # ------------------------------------------------------------------ the log

    def begin(self) -> tuple[int, str]:
        """Look where the log ends; every transaction begins with this, for others may have written since the last.

        The last entry must be what its hash says, and vouch for the tables as they are.
        """
        self._tail = None
        row = self._db.execute("SELECT * FROM entry ORDER BY seq DESC LIMIT 1").fetchone()
        if row is None:
            return self.tail()
        seq, at, kind, text, previous, this = row
        if self._trusted[0] != this:
            entry = read_entry(row)
            if this != link(seq, at, kind, text, previous):
                raise LedgerCorrupt(f"the chain breaks at entry {seq}: it was changed; run `dither ledger verify`")
            self._trusted = this, str(entry.body.get("seal"))
        self._tail = seq, this
        if self._trusted[1] != self.seal():
            raise broken("account")
        return self._tail

    def expect_whole(self) -> None:
        """Everything that can be checked without reading the whole log: for a ledger that is being opened."""
        self.begin()
        self._accounts.expect_whole()
        self._questions.expect_whole()
        found = {self._accounts.leaf(place) for (place,) in self._db.execute("SELECT place FROM account").fetchall()}
        if not all(self._accounts.holds(place) for place in found.union(self._accounts.places())):
            raise broken("account")

    def fill(self, accounts: Iterable[AccountRow], questions: Iterable[tuple[QuestionRow, bytes | None]]) -> None:
        """Write all rows of a ledger that has none yet, and build the digests over them."""
        for account in accounts:
            self._db.execute(_INSERT_ACCOUNT, account.values())
        keys = []
        for question, answer in questions:
            self._db.execute(_INSERT_QUESTION, (*question.values(), answer))
            keys.append(question.key)
        self._accounts.build(place for (place,) in self._db.execute("SELECT place FROM account").fetchall())
        self._questions.build(keys)

    def undone(self) -> None:
        """Look again where the log ends: what was appended may have been rolled back."""
        self._tail = self._bound = None

    def tail(self) -> tuple[int, str]:
        """Number and hash of the last entry: in a transaction the last by now, after it the last that it saw."""
        if self._tail is None:
            query = "SELECT seq, hash FROM entry ORDER BY seq DESC LIMIT 1"
            self._tail = self._db.execute(query).fetchone() or (0, GENESIS)
        return self._tail

    def seal(self, units: Units | None = None) -> str:
        """What an entry vouches for that is written now; ``units`` if it is the one that binds them."""
        kept_for = canonical([self.opening.to_json(), units_to_json(self.units() if units is None else units)])
        return sealed(self._accounts.top(), self._questions.top(), kept_for)

    def append(self, kind: EntryKind, body: Json, *, units: Units | None = None) -> tuple[int, str, str]:
        """Add an entry to the chain, sealing what was changed with it; its number, hash and time."""
        last, previous = self.tail()
        seal = self.seal(units)
        seq, at, text = last + 1, now(), canonical({**body, "seal": seal})
        this = link(seq, at, kind.value, text, previous)
        self._db.execute("INSERT INTO entry VALUES(?, ?, ?, ?, ?, ?)", (seq, at, kind.value, text, previous, this))
        self._tail, self._trusted = (seq, this), (this, seal)
        return seq, this, at

    @property
    def next_seq(self) -> int:
        """The number of the entry that is written next."""
        return self.tail()[0] + 1

    def entry(self, seq: int) -> Entry:
        """One entry of the log."""
        row = self._db.execute("SELECT * FROM entry WHERE seq = ?", (seq,)).fetchone()
        if row is None:
            raise LedgerCorrupt(f"entry {seq} is missing from the ledger; run `dither ledger verify`")
        if row[-1] != link(*row[:-1]):
            raise LedgerCorrupt(f"the chain breaks at entry {seq}: it was changed; run `dither ledger verify`")
        return read_entry(row)

    def data_version(self) -> int:
        """SQLite's own count, for this connection, of what other connections committed."""
        version: int = self._db.execute("PRAGMA data_version").fetchone()[0]
        return version

    # ------------------------------------------------------------------ who is protected

    def units(self) -> Units:
        """The units of all tables that this ledger was used for."""
        query = "SELECT MAX(seq) FROM entry WHERE kind IN ('bound', 'upgraded')"
        (seq,) = self._db.execute(query).fetchone()
        if seq is None:
            return NO_UNITS
        if self._bound is None or self._bound[0] != seq:
            self._bound = seq, units_from_json(self.entry(seq).body["units"])
        return self._bound[1]

    def bind(self, wanted: Units, *, rebind: bool) -> None:
        """Keep the ledger for these tables too; LedgerMismatch if they say another unit, unless the owner rebinds."""
        kept = self.units()
        after = {**kept, **wanted} if rebind else with_further_tables(kept, wanted)
        if after != kept:
            self.append(EntryKind.BOUND, {"units": units_to_json(after), "rebound": rebind and bool(kept)}, units=after)

    # ------------------------------------------------------------------ limits and balances

    def set_limits(self, limits: Mapping[Account, Limit]) -> None:
        """Write down the limits that changed."""
        rows = {account: self._account(account) for account in limits}
        changed = {account: limit for account, limit in limits.items() if not rows[account].has(limit)}
        for account, limit in changed.items():
            if limit.currency is not self.opening.currency:
                raise LedgerMismatch(
                    f"this ledger adds {self.opening.currency.value}; the limit of {account} is stated in "
                    f"{limit.currency.value}"
                )
        if not changed:
            return
        ordered = sorted(changed.items(), key=lambda item: item[0].path)
        for account, limit in ordered:
            self._write_account(rows[account].limited(limit))
        stated = [{"account": list(account.path), "limit": limit.to_json()} for account, limit in ordered]
        self.append(EntryKind.LIMITS, {"limits": stated})

    def balances(self) -> tuple[Balance, ...]:
        """All accounts, in the order of their paths."""
        rows = self._db.execute(f"SELECT {_ACCOUNT} FROM account").fetchall()  # noqa: S608
        found = (self._read_account(row).balance for row in rows)
        return tuple(sorted(found, key=lambda balance: balance.account.path))

    def known_balance(self, account: Account) -> Balance | None:
        """One account, if it has a limit or has spent: looked up by its key, however many there are."""
        row = self._account_row(account)
        return None if row is None else row.balance

    def _account_row(self, account: Account) -> AccountRow | None:
        query = f"SELECT {_ACCOUNT} FROM account WHERE path = ?"  # noqa: S608
        row = self._db.execute(query, (canonical(account.path),)).fetchone()
        return None if row is None else self._read_account(row)

    def _read_account(self, row: Sequence[Any]) -> AccountRow:
        try:
            return AccountRow.of(row, self.opening.currency)
        except UNREADABLE as problem:
            raise broken("account") from problem

    def _account(self, account: Account) -> AccountRow:
        """One account as the log vouches for it; one that was never named has spent nothing."""
        if not self._accounts.holds(place_of(account)):
            raise broken("account")
        return self._account_row(account) or AccountRow(account=account)

    def _write_account(self, row: AccountRow) -> None:
        path, place, *rest = values = row.values()
        if self._db.execute(_UPDATE_ACCOUNT, (*rest, path)).rowcount == 0:
            self._db.execute(_INSERT_ACCOUNT, values)
        self._accounts.update(place)

    # ------------------------------------------------------------------ questions

    def question(self, key: str) -> QuestionRow | None:
        """What is known of a question."""
        row = self._db.execute(f"SELECT {_QUESTION} FROM question WHERE key = ?", (key,)).fetchone()  # noqa: S608
        try:
            return None if row is None else QuestionRow.of(row)
        except UNREADABLE as problem:
            raise broken("question") from problem

    def _sealed_question(self, key: str) -> QuestionRow | None:
        """What the log vouches for of a question, be it that there is none."""
        if not self._questions.holds(key):
            raise broken("question")
        return self.question(key)

    def _write_question(self, row: QuestionRow, answer: bytes | None = None) -> None:
        key, *rest = values = row.values()
        if self._db.execute(_UPDATE_QUESTION, (*rest, answer, key)).rowcount == 0:
            self._db.execute(_INSERT_QUESTION, (*values, answer))
        self._questions.update(key)

    def is_at_work(self, question: QuestionRow | None) -> bool:
        """Whether someone living is running this question now."""
        if question is None or question.state != "reserved":
            return False
        if question.owner == self._token and question.claim not in self._given:
            return False  # given out here, and lost to an interrupt or given up: nobody can record it any more
        return self._alive(question.owner)

    def let_go(self, reservation: Reservation) -> None:
        """Let others here redeem a question before its failure is written down."""
        self._given.pop(reservation.claim, None)

    def answer(self, question: QuestionRow) -> bytes:
        """The stored answer, checked against the log."""
        assert question.answered is not None
        (stored,) = self._db.execute("SELECT answer FROM question WHERE key = ?", (question.key,)).fetchone()
        if digest(stored) != question.digest:
            raise LedgerCorrupt(
                f"a stored answer isn't the one that entry {question.answered} logged; it isn't released"
            )
        return bytes(stored)

    def receipt(self, key: str, account: Account | None = None) -> Receipt | None:
        """The receipt of this account for this question, or of whoever asked first."""
        question = self.question(key)
        if question is None:
            return None
        seq = question.reserved if account is None else question.paid_by(account)
        if seq is None:
            return None
        entry = self.entry(seq)
        try:
            return Receipt(
                number=entry.body["number"],
                key=key,
                account=account or Account(tuple(entry.body["path"])),
                amount=question.amount,
                loss=PrivacyLoss.from_json(entry.body["loss"]),
                at=entry.at,
                seq=seq,
                hash=entry.hash,
            )
        except (KeyError, TypeError, InvalidParameter) as problem:
            raise LedgerCorrupt(f"entry {seq} can't be read as a receipt: {problem}") from problem

    # ------------------------------------------------------------------ the rules of payment

    def reserve(self, request: ChargeRequest) -> Reservation | None:
        """Charge and reserve, replay or redeem; None if someone living is at work on the question."""
        question = self._sealed_question(request.key)
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
        claim = self.next_seq
        redeemed = self.question(request.key)
        assert redeemed is not None
        self._write_question(redeemed.claimed(claim, self._token))
        number = self.entry(question.reserved).body["number"]
        self.append(EntryKind.REDEEM, {"key": request.key, "number": number, "owner": self._token})
        return self._reservation(request, charged=charged, claim=claim)

    def _first(self, request: ChargeRequest) -> Reservation:
        path, seq = request.account.lineage, self.next_seq
        rows = self._fitting(path, path, request.amount, request.counts)
        question = QuestionRow(
            key=request.key,
            amount=request.amount,
            reserved=seq,
            claim=seq,
            owner=self._token,
            counts=request.counts,
            continues=self._continued(request),
        )
        self._write_question(question.charged(path, seq))
        body = self._bill(request, rows, question, request.form)
        if request.continues is not None:
            body["continues"] = request.continues
        _, this, at = self.append(EntryKind.RESERVE, {**body, "owner": self._token})
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

    def _continued(self, request: ChargeRequest) -> int | None:
        """The entry of the receipt that is continued, which the same account must hold, with its answer."""
        seq = request.continues
        if seq is None:
            return None
        row = self._db.execute("SELECT * FROM entry WHERE seq = ?", (seq,)).fetchone()
        entry = None if row is None else read_entry(row)
        if entry is not None and entry.kind in (EntryKind.RESERVE, EntryKind.CHARGE):
            question = self._sealed_question(entry.body["key"])
            # the row is sealed and names the entry by which each account paid, so the entry needn't be believed
            if question is not None and question.state == "answered" and question.paid_by(request.account) == seq:
                return seq
        raise LedgerError("only an answered question of the same account can be continued")

    def _charge_the_unpaid(self, request: ChargeRequest, question: QuestionRow) -> Amount:
        """Each account pays once per question, at the price of the reservation that was answered or is redeemed."""
        path, paid = request.account.lineage, question.payers
        unpaid = tuple(account for account in path if account not in paid)
        if not unpaid:
            return NOTHING
        rows = self._fitting(path, unpaid, question.amount, question.counts)
        loss = self.entry(question.reserved).body["loss"]
        self._write_question(question.charged(unpaid, self.next_seq))
        self.append(EntryKind.CHARGE, self._bill(request, rows, question, loss))
        return question.amount

    def _bill(self, request: ChargeRequest, payers: Sequence[AccountRow], question: QuestionRow, loss: Json) -> Json:
        """Book the payment of these accounts; the body of the entry, with their balances after it."""
        dataset = self._account(request.account.lineage[0])
        after = [row.charged(question.amount, question.counts, dataset) for row in payers]
        for row in after:
            self._write_account(row)
        body: Json = {
            "number": secrets.token_hex(8),
            "key": request.key,
            "path": list(request.account.path),
            "payers": [list(row.account.path) for row in payers],
            "amount": question.amount.to_json(),
            "after": [row.spent.to_json() for row in after],
            "loss": loss,
            "note": request.note,
        }
        return {**body, "counts": dict(question.counts)} if question.counts else body

    def _fitting(
        self, path: Sequence[Account], payers: Sequence[Account], amount: Amount, counts: Mapping[str, int]
    ) -> tuple[AccountRow, ...]:
        """The rows of those who pay, as the log vouches for them; OutOfBudget if one of them can't."""
        rows = {payer: self._account(payer) for payer in (path[0], *payers)}
        return expect_fits(rows, path, payers, amount, counts, self.opening.sums)

    def _reservation(
        self, request: ChargeRequest, *, charged: Amount, claim: int, answer: bytes | None = None
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
        question = self._sealed_question(key)
        if question is not None and self._has_recorded(question, reservation, answer):
            return self.answer(question)
        if question is None or not self._holds(question, reservation):
            raise LedgerError(
                "someone else has taken over this question, or it has its answer; this one must not be released. "
                "Ask again at no cost"
            )
        number, seq = self._number(question, reservation), self.next_seq
        self._write_question(question.ended(seq, digest(answer)), answer)
        self.append(
            EntryKind.ANSWER, {"key": key, "number": number, "claim": reservation.claim, "answer": digest(answer)}
        )
        row = self._db.execute("SELECT answer FROM question WHERE key = ? AND answered = ?", (key, seq)).fetchone()
        if row is None or row[0] != answer:
            raise LedgerCorrupt("the answer that was just recorded is gone; it isn't released")
        return bytes(row[0])

    def fail(self, reservation: Reservation, cause: str) -> None:
        """Log the cause; the reservation can be redeemed."""
        key = reservation.receipt.key
        question = self._sealed_question(key)
        if question is None or not self._holds(question, reservation):
            return
        number = self._number(question, reservation)
        self._write_question(question.failed())
        body = {"key": key, "number": number, "claim": reservation.claim, "cause": cause[:LONGEST_CAUSE]}
        self.append(EntryKind.FAILED, body)

    def _holds(self, question: QuestionRow, reservation: Reservation) -> bool:
        return question.state == "reserved" and question.claim == reservation.claim and question.owner == self._token

    def _has_recorded(self, question: QuestionRow, reservation: Reservation, answer: bytes) -> bool:
        return (
            question.answered is not None
            and (question.claim, question.owner) == (reservation.claim, self._token)
            and question.digest == digest(answer)
        )

    def _number(self, question: QuestionRow, reservation: Reservation) -> str:
        """The number of the entry that reserved the question."""
        receipt = reservation.receipt
        # what this object gave out, and nobody's copy of it, is known to be from that entry
        if receipt.seq == question.reserved and self._given.get(question.claim) is reservation:
            return receipt.number
        return str(self.entry(question.reserved).body["number"])
