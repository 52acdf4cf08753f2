"""verify: replay the whole log and compare everything that was kept with what it must be."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Never

from dither.errors import DitherError, LedgerCorrupt, LedgerRolledBack
from dither.ledger.account import Account
from dither.ledger.amount import Amount, Limit
from dither.ledger.books import read_entry
from dither.ledger.entry import GENESIS, Balance, Entry, Kind, Opening, Verified, canonical, digest, link
from dither.ledger.head import Mark
from dither.ledger.schema import is_intact
from dither.privacy import PrivacyLoss


@dataclass(slots=True)
class _Question:
    amount: Amount
    number: str
    reserved: int
    claim: int
    owner: str
    state: str = "reserved"
    answered: int | None = None
    answer: str | None = None
    paid: dict[Account, int] = field(default_factory=dict)


class Replay:
    """The state of a ledger, built from its entries alone."""

    def __init__(self, opening: Opening) -> None:
        self.opening = opening
        self.seq, self.hash = 0, GENESIS
        self.limits: dict[Account, Limit] = {}
        self.spent: dict[Account, Amount] = {}
        self.questions: dict[str, _Question] = {}
        self.numbers: set[str] = set()
        self.adopted = 0
        self._steps: dict[Kind, Callable[[Entry], None]] = {
            Kind.OPENED: self._opened,
            Kind.LIMITS: self._limits,
            Kind.RESERVE: self._reserve,
            Kind.CHARGE: self._charge,
            Kind.REDEEM: self._redeem,
            Kind.ANSWER: self._answer,
            Kind.FAILED: self._failed,
            Kind.ADOPTED: self._adopt,
        }

    def follow(self, row: tuple[Any, ...]) -> None:
        """Take the next row of the log, or raise LedgerCorrupt with its number."""
        expected = self.seq + 1
        seq, at, kind, text, previous, this = row
        if seq != expected:
            raise LedgerCorrupt(f"entry {expected} is missing from the ledger")
        if previous != self.hash or this != link(seq, at, kind, text, previous):
            raise LedgerCorrupt(f"the chain breaks at entry {seq}: it or the one before was changed")
        try:
            entry = read_entry(row)
            if (seq == 1) != (entry.kind is Kind.OPENED):
                _wrong("only the first entry opens a ledger")
            self._steps[entry.kind](entry)
        except LedgerCorrupt:
            raise
        except (DitherError, KeyError, TypeError, ValueError, AttributeError) as problem:
            raise LedgerCorrupt(f"entry {seq} contradicts what came before it: {_reason(problem)}") from problem
        self.seq, self.hash = seq, this

    def balances(self) -> tuple[Balance, ...]:
        """What every account must show."""
        accounts = sorted({*self.limits, *self.spent}, key=lambda account: account.path)
        return tuple(self._balance(account) for account in accounts)

    def _balance(self, account: Account) -> Balance:
        limit, spent = self.limits.get(account), self.spent.get(account, Amount())
        return Balance(account=account, limit=limit, spent=spent, remaining=limit.after(spent) if limit else None)

    # ------------------------------------------------------------------ one step each

    def _opened(self, entry: Entry) -> None:
        if Opening.from_json(entry.body) != self.opening:
            _wrong("it opens another ledger")

    def _limits(self, entry: Entry) -> None:
        for stated in entry.body["limits"]:
            limit = Limit.from_json(stated["limit"], self.opening.currency)
            self.limits[Account(tuple(stated["account"]))] = limit

    def _reserve(self, entry: Entry) -> None:
        body = entry.body
        if body["key"] in self.questions:
            _wrong("the question was reserved before")
        amount = Amount.from_json(body["amount"])
        account = Account(tuple(body["path"]))
        if account.lineage[0] not in self.limits:
            _wrong("the dataset had no limit")
        question = _Question(amount, body["number"], entry.seq, entry.seq, body["owner"])
        self.questions[body["key"]] = question
        self._pay(entry, question, account.lineage)

    def _charge(self, entry: Entry) -> None:
        question = self.questions[entry.body["key"]]
        account = Account(tuple(entry.body["path"]))
        unpaid = tuple(payer for payer in account.lineage if payer not in question.paid)
        if not unpaid or Amount.from_json(entry.body["amount"]) != question.amount:
            _wrong("it charges what was paid, or another price")
        self._pay(entry, question, unpaid)

    def _pay(self, entry: Entry, question: _Question, payers: tuple[Account, ...]) -> None:
        body = entry.body
        if [list(payer.path) for payer in payers] != body["payers"]:
            _wrong("the wrong accounts paid")
        if body["number"] in self.numbers:
            _wrong("its receipt number was used before")
        loss = PrivacyLoss.from_json(body["loss"])
        if loss.adjacency is not self.opening.adjacency:
            _wrong("its loss is stated for another adjacency")
        if not question.amount.covers(Amount.of(loss, self.opening.currency)):
            _wrong("it charges less than its loss")
        self.numbers.add(body["number"])
        for payer in payers:
            after = self.spent.get(payer, Amount()) + question.amount
            limit = self.limits.get(payer)
            if limit is not None and not limit.allows(after):
                _wrong("an account exceeds its limit")
            self.spent[payer] = after
            question.paid[payer] = entry.seq

    def _redeem(self, entry: Entry) -> None:
        question = self._open_question(entry)
        question.state, question.claim, question.owner = "reserved", entry.seq, entry.body["owner"]

    def _answer(self, entry: Entry) -> None:
        question = self._claimed(entry)
        question.state, question.answered, question.answer = "answered", entry.seq, entry.body["answer"]

    def _failed(self, entry: Entry) -> None:
        self._claimed(entry).state = "failed"

    def _adopt(self, entry: Entry) -> None:
        if set(entry.body) != {"known"}:
            _wrong("it doesn't say what was known")
        self.adopted += 1

    def _open_question(self, entry: Entry) -> _Question:
        question = self.questions[entry.body["key"]]
        if question.state == "answered" or question.number != entry.body["number"]:
            _wrong("the question has its answer, or another receipt")
        return question

    def _claimed(self, entry: Entry) -> _Question:
        question = self._open_question(entry)
        if question.state != "reserved" or question.claim != entry.body["claim"]:
            _wrong("the right to answer was someone else's")
        return question


def verify(db: sqlite3.Connection, opening: Opening, head: Mark | None) -> Verified:
    """Replay everything in the caller's read transaction and compare; ``head`` was read before it began."""
    if not is_intact(db):
        raise LedgerCorrupt("tables or triggers of the ledger were changed, before entry 1")
    if (
        db.execute("PRAGMA integrity_check").fetchall() != [("ok",)]
        or db.execute("PRAGMA foreign_key_check").fetchone()
    ):
        raise LedgerCorrupt("the file of the ledger is damaged; keep it, and put back the latest copy")
    replay, seen_head = Replay(opening), head is None or head.seq == 0
    for row in db.execute("SELECT seq, at, kind, body, previous, hash FROM entry ORDER BY seq"):
        replay.follow(row)
        if head is not None and head.seq == replay.seq:
            if head.hash != replay.hash:
                raise LedgerRolledBack(
                    f"entry {head.seq} isn't the one that was written: the ledger was forked or rewritten"
                )
            seen_head = True
    if replay.seq == 0:
        raise LedgerCorrupt("entry 1 is missing from the ledger")
    if not seen_head:
        assert head is not None
        raise LedgerRolledBack(f"the ledger ends at entry {replay.seq}, and {head.seq} are known to have been written")
    _compare_accounts(db, replay)
    _compare_questions(db, replay)
    return Verified(entries=replay.seq, balances=replay.balances(), head=replay.hash, adopted=replay.adopted)


def _compare_accounts(db: sqlite3.Connection, replay: Replay) -> None:
    expected = {
        canonical(b.account.path): (
            b.limit.main if b.limit else None,
            b.limit.delta if b.limit else None,
            b.spent.main,
            b.spent.delta,
        )
        for b in replay.balances()
    }
    query = "SELECT path, main_limit, delta_limit, main_spent, delta_spent FROM account"
    if {path: tuple(rest) for path, *rest in db.execute(query)} != expected:
        raise LedgerCorrupt(f"a balance isn't what the entries up to {replay.seq} add up to")


def _compare_questions(db: sqlite3.Connection, replay: Replay) -> None:
    count = 0
    query = "SELECT key, main, delta, reserved, state, claim, owner, answered, answer FROM question"
    for key, main, delta, reserved, state, claim, owner, answered, answer in db.execute(query):
        count += 1
        known = replay.questions.get(key)
        if known is None:
            raise LedgerCorrupt(f"a question was never reserved by the entries up to {replay.seq}")
        stored = None if answer is None else digest(answer)
        kept = (Amount(main, delta), reserved, state, claim, owner, answered, stored)
        logged = (known.amount, known.reserved, known.state, known.claim, known.owner, known.answered, known.answer)
        if kept != logged:
            raise LedgerCorrupt(f"a question or its answer isn't what was logged since entry {known.reserved}")
    if count != len(replay.questions):
        raise LedgerCorrupt(f"a question of the entries up to {replay.seq} is missing")
    expected = {
        (key, canonical(account.path), seq)
        for key, question in replay.questions.items()
        for account, seq in question.paid.items()
    }
    if set(db.execute("SELECT key, account, seq FROM payment")) != expected:
        raise LedgerCorrupt(f"a payment isn't what the entries up to {replay.seq} say")


def _wrong(reason: str) -> Never:
    raise ValueError(reason)


def _reason(problem: Exception) -> str:
    return str(problem) if type(problem) is ValueError else "it lacks or garbles a field"
