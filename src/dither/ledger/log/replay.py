"""verify: replay the whole log and compare everything that was kept with what it must be."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Never, TypeAlias, TypeVar

from dither.errors import DitherError, InvalidParameter, LedgerCorrupt, LedgerError, LedgerMismatch, LedgerRolledBack
from dither.ledger.amount import (
    NO_UNITS,
    Account,
    Amount,
    Limit,
    Units,
    expect_counts,
    units_from_json,
    units_in_note,
    units_to_json,
    with_further_tables,
)
from dither.ledger.entry import (
    GENESIS,
    Balance,
    Entry,
    EntryKind,
    Opening,
    Verified,
    canonical,
    digest,
    link,
    read_entry,
)
from dither.ledger.head import ADOPT, HeadMark
from dither.ledger.log import format1
from dither.ledger.store.rows import (
    ACCOUNT_COLUMNS,
    QUESTION_COLUMNS,
    AccountRow,
    QuestionRow,
    ReplayedTree,
    TableTree,
    place_of,
    row_text,
    sealed,
)
from dither.ledger.store.schema import FORMAT, is_intact
from dither.privacy import Json, PrivacyLoss

T = TypeVar("T")
Others: TypeAlias = tuple[int | None, ...]


class Replay:
    """The state of a ledger, built from its entries alone.

    ``booked`` are what the charges of format 1 cost on the sums that it didn't book, as the upgrade says.
    """

    def __init__(self, opening: Opening, booked: Mapping[int, Others] | None = None) -> None:
        self.opening = opening
        self.format = opening.format
        self.seq, self.hash = 0, GENESIS
        self.accounts: dict[Account, AccountRow] = {}
        self.questions: dict[str, QuestionRow] = {}
        self.units: Units = NO_UNITS
        # format 1: the units that charges state, each with the first entry that does
        self.stated_units: dict[tuple[str, str], int] = {}
        self.adopted = self.rebound = 0
        self._booked, self.booked = booked or {}, dict[int, Others]()
        self._numbers: set[str] = set()
        self._number_of: dict[str, str] = {}
        self._paid: dict[int, tuple[str, Account]] = {}
        self.trees = {name: ReplayedTree(name) for name in ("account", "question")}
        self._steps: dict[EntryKind, Callable[[Entry], None]] = {
            EntryKind.OPENED: self._opened,
            EntryKind.LIMITS: self._limits,
            EntryKind.RESERVE: self._reserve,
            EntryKind.CHARGE: self._charge,
            EntryKind.REDEEM: self._redeem,
            EntryKind.ANSWER: self._answer,
            EntryKind.FAILED: self._failed,
            EntryKind.ADOPTED: self._adopt,
            EntryKind.BOUND: self._bind,
            EntryKind.UPGRADED: self._upgrade,
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
            if (seq == 1) != (entry.kind is EntryKind.OPENED):
                _wrong("only the first entry opens a ledger")
            self._steps[entry.kind](entry)
            if self.format > 1 and entry.body["seal"] != self.seal():
                _wrong("it seals other balances or questions than follow from the log")
        except LedgerCorrupt:
            raise
        except (DitherError, KeyError, TypeError, ValueError, AttributeError) as problem:
            raise LedgerCorrupt(f"entry {seq} {_reason(problem)}") from problem
        self.seq, self.hash = seq, this

    def seal(self) -> str:
        """What the entry that was taken last must vouch for."""
        kept_for = canonical([self.opening.to_json(), units_to_json(self.units)])
        return sealed(self.trees["account"].top(), self.trees["question"].top(), kept_for)

    def balances(self) -> tuple[Balance, ...]:
        """What every account must show."""
        return tuple(self.accounts[account].balance for account in sorted(self.accounts, key=lambda one: one.path))

    # ------------------------------------------------------------------ one step each

    def _opened(self, entry: Entry) -> None:
        if Opening.from_json(entry.body) != self.opening:
            _wrong("it opens another ledger")

    def _limits(self, entry: Entry) -> None:
        for stated in entry.body["limits"]:
            account = Account(tuple(stated["account"]))
            limit = Limit.from_json(stated["limit"], self.opening.currency)
            self._set_account(self._account(account).limited(limit))

    def _reserve(self, entry: Entry) -> None:
        body = entry.body
        if body["key"] in self.questions:
            _wrong("the question was reserved before")
        account = _read(body, "path", _account_at)
        if self._account(account.lineage[0]).limit is None:
            _wrong("the dataset had no limit")
        question = QuestionRow(
            key=body["key"],
            amount=self._amount(entry),
            reserved=entry.seq,
            claim=entry.seq,
            owner=body["owner"],
            counts=_counts(entry),
            continues=self._continued(entry),
        )
        self._number_of[body["key"]] = body["number"]
        self._pay(entry, question, account.lineage)

    def _amount(self, entry: Entry) -> Amount:
        """What an entry charges; on the sums that format 1 didn't book, what its loss costs."""
        charged = _read(entry.body, "amount", Amount.from_json)
        if self.format > 1:
            return charged
        # those of the upgrade, once there was one: another mathematical library may round the last places otherwise
        others = self._booked.get(entry.seq) or self._price(entry).others
        self.booked[entry.seq] = others
        return Amount(charged.main, charged.delta, others)

    def _price(self, entry: Entry) -> Amount:
        loss = _read(entry.body, "loss", PrivacyLoss.from_json)
        if loss.adjacency is not self.opening.adjacency:
            _wrong("its loss is stated for another adjacency")
        return Amount.of(loss, self.opening.currency, self.opening.sums)

    def _continued(self, entry: Entry) -> int | None:
        seq: int | None = entry.body.get("continues")
        if seq is not None:
            if seq not in self._paid:
                _wrong("it continues what wasn't asked")
            key, account = self._paid[seq]
            if account != _read(entry.body, "path", _account_at) or self.questions[key].state != "answered":
                _wrong("it continues what another asked, or what has no answer")
        return seq

    def _charge(self, entry: Entry) -> None:
        question = self._known(entry)
        account = _read(entry.body, "path", _account_at)
        unpaid = tuple(payer for payer in account.lineage if payer not in question.payers)
        if not unpaid or (self._amount(entry), _counts(entry)) != (question.amount, question.counts):
            _wrong("it charges what was paid, or another price")
        self._pay(entry, question, unpaid)

    def _pay(self, entry: Entry, question: QuestionRow, payers: tuple[Account, ...]) -> None:
        body = entry.body
        if [list(payer.path) for payer in payers] != body["payers"]:
            _wrong("the wrong accounts paid")
        if body["number"] in self._numbers:
            _wrong("its receipt number was used before")
        if not question.amount.covers(self._price(entry)):
            _wrong("it charges less than its loss")
        self._numbers.add(body["number"])
        self._paid[entry.seq] = body["key"], _read(body, "path", _account_at)
        self._note_units(entry)
        dataset = self._account(payers[0].lineage[0])
        after = [self._account(payer).charged(question.amount, question.counts, dataset) for payer in payers]
        if self.format > 1 and [row.spent.to_json() for row in after] != body["after"]:
            _wrong("it says other balances than follow from the log")
        for row in after:
            if row.exceeds():
                _wrong("an account exceeds its limit")
            self._set_account(row)
        self._set_question(question.charged(payers, entry.seq))

    def _note_units(self, entry: Entry) -> None:
        if self.format == 1:
            for table, unit in units_in_note(entry.body["note"]).items():
                self.stated_units.setdefault((table, canonical(unit.to_json())), entry.seq)

    def _redeem(self, entry: Entry) -> None:
        self._set_question(self._open_question(entry).claimed(entry.seq, entry.body["owner"]))

    def _answer(self, entry: Entry) -> None:
        self._set_question(self._claimed(entry).ended(entry.seq, entry.body["answer"]))

    def _failed(self, entry: Entry) -> None:
        self._set_question(self._claimed(entry).failed())

    def _adopt(self, entry: Entry) -> None:
        if set(entry.body) - {"seal"} != {"known"}:
            _wrong("it doesn't say what was known")
        self.adopted += 1

    def _bind(self, entry: Entry) -> None:
        units = units_from_json(entry.body["units"])
        if entry.body["rebound"]:
            self.rebound += 1
        elif with_further_tables(self.units, units) != units:
            _wrong("it forgets a table")
        self.units = units

    def _upgrade(self, entry: Entry) -> None:
        if self.format != 1:
            _wrong("the ledger had this format before")
        if entry.body["sums"] != [one.to_json() for one in self.opening.sums]:
            _wrong("it says other sums than were added up")
        if entry.body["others"] != booked_to_json(self.booked):
            _wrong("it says other prices than follow from the log")
        if entry.body["balances"] != [[list(b.account.path), b.spent.to_json()] for b in self.balances()]:
            _wrong("it says other balances than follow from the log")
        self.units = units_from_json(entry.body["units"])
        self.rebound += bool(entry.body["rebound"])
        self.format = 2
        self.fill_trees()

    def fill_trees(self) -> None:
        """Build the digests over what the log of format 1 says."""
        for account in self.accounts.values():
            self._set_account(account)
        for question in self.questions.values():
            self._set_question(question)

    # ------------------------------------------------------------------ rows

    def _account(self, account: Account) -> AccountRow:
        return self.accounts.get(account) or AccountRow(account=account)

    def _set_account(self, row: AccountRow) -> None:
        self.accounts[row.account] = row
        if self.format > 1:
            self.trees["account"].set(place_of(row.account), row_text(row.values()))

    def _set_question(self, row: QuestionRow) -> None:
        self.questions[row.key] = row
        if self.format > 1:
            self.trees["question"].set(row.key, row_text(row.values()))

    def _known(self, entry: Entry) -> QuestionRow:
        key = entry.body["key"]
        if key not in self.questions:
            _wrong("the question was never reserved")
        return self.questions[key]

    def _open_question(self, entry: Entry) -> QuestionRow:
        question = self._known(entry)
        if question.state == "answered" or self._number_of[question.key] != entry.body["number"]:
            _wrong("the question has its answer, or another receipt")
        return question

    def _claimed(self, entry: Entry) -> QuestionRow:
        question = self._open_question(entry)
        if question.state != "reserved" or question.claim != entry.body["claim"]:
            _wrong("the right to answer was someone else's")
        return question


def replayed(db: sqlite3.Connection, opening: Opening, head: HeadMark | None = None) -> Replay:
    """Replay everything; ``head`` must be met on the way."""
    replay, seen_head = Replay(opening, _booked_at_upgrade(db)), head is None or head.seq == 0
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
        raise LedgerRolledBack(
            f"the ledger ends at entry {replay.seq}, and {head.seq} are known to have been written; {ADOPT}"
        )
    return replay


def booked_to_json(booked: Mapping[int, Others]) -> Json:
    """The permanent form in the entry of the upgrade."""
    return {str(seq): list(others) for seq, others in booked.items() if others}


def _booked_at_upgrade(db: sqlite3.Connection) -> Mapping[int, Others]:
    """What the upgrade says that charges before it cost; whether it is right is seen when its entry is met."""
    row = db.execute(
        "SELECT body FROM entry WHERE kind = ? ORDER BY seq LIMIT 1", (EntryKind.UPGRADED.value,)
    ).fetchone()
    try:
        found = {} if row is None else json.loads(row[0])["others"]
        return {int(seq): tuple(others) for seq, others in found.items()}
    except (ValueError, TypeError, KeyError, AttributeError) as problem:
        raise LedgerCorrupt(f"the entry of the upgrade can't be read: {problem}") from problem


def verify(db: sqlite3.Connection, opening: Opening, head: HeadMark | None) -> Verified:
    """Replay everything in the caller's read transaction and compare; ``head`` was read before it began."""
    expect_sound(db)
    replay = replayed(db, opening, head)
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version == format1.FORMAT:
        format1.expect_tables(db, replay.accounts.values(), replay.questions.values(), replay.seq)
    else:
        _compare(db, "account", ACCOUNT_COLUMNS, (row.values() for row in replay.accounts.values()), replay.seq)
        _compare(db, "question", QUESTION_COLUMNS, (row.values() for row in replay.questions.values()), replay.seq)
        _compare_answers(db)
        _compare_trees(db, replay)
    return Verified(
        entries=replay.seq,
        balances=replay.balances(),
        head=replay.hash,
        adopted=replay.adopted,
        rebound=replay.rebound,
        format=version,
    )


def expect_sound(db: sqlite3.Connection) -> None:
    """The file itself is whole, and its tables and triggers are those of its format."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    intact = {format1.FORMAT: format1.is_intact, FORMAT: is_intact}.get(version)
    if intact is None or not intact(db):
        raise LedgerCorrupt("tables or triggers of the ledger were changed, before entry 1")
    if (
        db.execute("PRAGMA integrity_check").fetchall() != [("ok",)]
        or db.execute("PRAGMA foreign_key_check").fetchone()
    ):
        raise LedgerCorrupt("the file of the ledger is damaged; keep it, and put back the latest copy")


def _compare(
    db: sqlite3.Connection, table: str, columns: tuple[str, ...], logged: Iterable[tuple[Any, ...]], seq: int
) -> None:
    expected = {str(values[0]): values for values in logged}
    what = "a balance" if table == "account" else "a question, or who paid for it,"
    count = 0
    for row in db.execute(f"SELECT {', '.join(columns)} FROM {table}"):  # noqa: S608
        count += 1
        if expected.get(str(row[0])) != tuple(row):
            raise LedgerCorrupt(f"{what} isn't what the entries up to {seq} say")
    if count != len(expected):
        raise LedgerCorrupt(f"{what} is missing that the entries up to {seq} speak of")


def _compare_answers(db: sqlite3.Connection) -> None:
    for answered, logged, answer in db.execute(
        "SELECT answered, digest, answer FROM question WHERE state = 'answered'"
    ):
        if answer is None or digest(answer) != logged:
            raise LedgerCorrupt(f"an answer isn't the one that entry {answered} logged")


def _compare_trees(db: sqlite3.Connection, replay: Replay) -> None:
    for name, tree in replay.trees.items():
        kept = TableTree(db, name, lambda _place: "")
        kept.expect_whole()
        if kept.top() != tree.top():
            raise LedgerCorrupt(f"the seals aren't what the entries up to {replay.seq} say")


class _ContradictionError(ValueError):
    """An entry that can be read and can't be true."""


def _wrong(reason: str) -> Never:
    raise _ContradictionError(reason)


def _read(body: Json, name: str, reader: Callable[[Any], T]) -> T:
    """What a field says; where that can't be read, the reason names the field."""
    try:
        return reader(body[name])
    except (DitherError, TypeError, ValueError, AttributeError) as problem:
        raise LedgerError(f"its {name}: {problem}") from problem


def _counts(entry: Entry) -> Json:
    counts: Json = entry.body.get("counts", {})
    expect_counts(counts, least=1)
    return counts


def _account_at(path: object) -> Account:
    if not isinstance(path, list):
        raise InvalidParameter("expected a list of names")
    return Account(tuple(path))


def _reason(problem: Exception) -> str:
    """What is wrong with an entry, for the owner: losses, amounts and accounts, never what was asked or answered."""
    if isinstance(problem, _ContradictionError | LedgerMismatch):
        return f"contradicts what came before it: {problem}"
    why = f"its field {problem} is missing" if isinstance(problem, KeyError) else str(problem)
    # a later version of dither may have written it, or a program that states losses of its own
    return f"can't be read, though it is as it was written (its hash is right): {why}"
