"""What was asked and paid for: the log of the ledger by receipt number and account, for lists that analysts may see.

The ledger's tables have a permanent form in which a question is found by its key alone. So this keeps an index of the
log and brings it up to date before it is read: in a file without a name, which goes with the process, so that a server
takes no more memory the longer the log is. Analysts get receipt numbers, which are random, and times; the
places in the log would tell how much others have asked.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from dither.curator.asker import Asker
from dither.curator.epsilon_to_currency import Exchange
from dither.curator.results import AnswerPage, Past
from dither.curator.terms import Settled
from dither.errors import InvalidParameter, Refused
from dither.ledger import Account, Amount, Entry, EntryKind, Ledger
from dither.ledger.entry import canonical
from dither.privacy import PrivacyLoss

ANOTHER = "another analyst"
MOST_ITEMS = 500
# of the index, what is kept in memory
CACHE_KIB = 2048
TABLES = """
CREATE TABLE charge(
    seq INTEGER PRIMARY KEY, number TEXT NOT NULL UNIQUE, at TEXT NOT NULL, account TEXT NOT NULL, key TEXT NOT NULL,
    sql TEXT, epsilon TEXT NOT NULL, asked TEXT NOT NULL, main INTEGER, delta INTEGER NOT NULL
);
CREATE INDEX charge_of_account ON charge(account, seq);
CREATE TABLE payment(
    account TEXT NOT NULL, place INTEGER NOT NULL, at TEXT NOT NULL, spent TEXT NOT NULL,
    PRIMARY KEY(account, place)
) WITHOUT ROWID;
CREATE TABLE payer(account TEXT PRIMARY KEY, payments INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE answered(key TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE read(seq INTEGER NOT NULL);
INSERT INTO read VALUES(0);
"""
LISTED = (
    "SELECT number, at, account, sql, epsilon, asked, main, delta, "
    "EXISTS(SELECT 1 FROM answered a WHERE a.key = c.key) FROM charge c WHERE"
)
# what a question is asked again with; of the rest of a note, the data's version is for the owner's side only
ASKED = ("epsilon", "error", "weights", "confidence", "noise")


@dataclass(frozen=True, slots=True, kw_only=True)
class Charged:
    """One charge as the index finds it again: who paid and under which key, and what the entry says of the question."""

    number: str
    account: Account
    key: str
    note: Mapping[str, Any]
    answered: bool


class PastQuestions:
    """The index of one ledger's charges."""

    def __init__(self, ledger: Ledger, exchange: Exchange) -> None:
        self._ledger, self._exchange = ledger, exchange
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None

    def page(self, who: Asker, *, search: str, before: str | None, count: int) -> AnswerPage:
        """Questions of one account or of everybody, as ``who`` may read them."""
        if not 1 <= count <= MOST_ITEMS:
            raise InvalidParameter(f"count is a whole number from 1 to {MOST_ITEMS}")
        own = canonical(who.account.path)
        conditions, values = ["sql IS NOT NULL"], []
        if not who.reads_all:
            conditions.append("account = ?")
            values.append(own)
        if search:
            conditions.append("holds(sql, ?)")
            values.append(search.casefold())
        with self._current() as db:
            if before is not None:
                place = db.execute("SELECT seq, account FROM charge WHERE number = ?", (before,)).fetchone()
                if place is None or not (who.reads_all or place[1] == own):
                    raise unknown_receipt()
                conditions.append("seq < ?")
                values.append(place[0])
            query = f"{LISTED} {' AND '.join(conditions)} ORDER BY seq DESC LIMIT ?"
            rows = db.execute(query, (*values, count + 1)).fetchall()
        items = tuple(self._past(row, own=own, named=who.owner) for row in rows[:count])
        return AnswerPage(items=items, next=items[-1].number if len(rows) > count else None)

    def one(self, number: str, who: Asker) -> Past:
        """The question of one receipt; Refused where there is none, or none that ``who`` may see."""
        own = canonical(who.account.path)
        with self._current() as db:
            row = db.execute(f"{LISTED} sql IS NOT NULL AND number = ?", (number,)).fetchone()
        if row is None or not (who.reads_all or row[2] == own):
            raise unknown_receipt()
        return self._past(row, own=own, named=who.owner)

    def charge(self, number: str) -> Charged | None:
        """The charge of a receipt number, whoever's it is."""
        with self._current() as db:
            row = db.execute(
                "SELECT seq, account, key, EXISTS(SELECT 1 FROM answered a WHERE a.key = c.key) FROM charge c "
                "WHERE number = ?",
                (number,),
            ).fetchone()
        if row is None:
            return None
        seq, _, key, answered = row
        entry = next(iter(self._ledger.entries(after=seq - 1)))
        note = entry.body.get("note")
        return Charged(
            number=number,
            account=Account(tuple(entry.body["path"])),
            key=key,
            note=note if isinstance(note, dict) else {},
            answered=bool(answered),
        )

    def spent(
        self, account: Account | None, wanted: Callable[[int], Iterable[int]]
    ) -> list[tuple[Account, str, Amount]]:
        """(account, time, what it had spent in all by then), in order: of one account, or of all.

        After the payments that ``wanted`` names, counted from 0, of so many as the account made.
        """
        one = "SELECT at, spent FROM payment WHERE account = ? AND place = ?"
        with self._current() as db:
            payers = db.execute("SELECT account, payments FROM payer").fetchall()
            asked = {path: count for path, count in payers if account is None or path == canonical(account.path)}
            rows = [
                (Account(tuple(_path(path))), *db.execute(one, (path, place)).fetchone())
                for path in sorted(asked, key=json.loads)
                for place in wanted(asked[path])
            ]
        return [(payer, at, Amount.from_json(json.loads(spent))) for payer, at, spent in rows]

    def close(self) -> None:
        """Forget the index. Idempotent."""
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None

    def _past(self, row: tuple[Any, ...], *, own: str, named: bool) -> Past:
        number, at, account, sql, epsilon, asked, main, delta, answered = row
        mine = account == own
        return Past(
            number=number,
            at=at,
            who=_path(account)[-1] if mine or named else ANOTHER,
            sql=sql,
            epsilon=epsilon,
            cost=self._exchange.in_words(Amount(main, delta)),
            mine=mine,
            answered=bool(answered),
            asked=json.loads(asked),
        )

    @contextmanager
    def _current(self) -> Iterator[sqlite3.Connection]:
        """The index, with everything that is in the log by now."""
        with self._lock:
            if self._db is None:
                # a name of no letters is a file of SQLite's own that nobody else can open
                self._db = sqlite3.connect("", isolation_level=None, check_same_thread=False)
                self._db.execute("PRAGMA synchronous = OFF")
                self._db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
                self._db.executescript(TABLES)
                self._db.create_function("holds", 2, lambda text, part: part in text.casefold(), deterministic=True)
            db = self._db
            if db.in_transaction:  # an interrupt struck while it was brought up to date
                db.execute("ROLLBACK")
            db.execute("BEGIN")
            (last,) = db.execute("SELECT seq FROM read").fetchone()
            spent: dict[str, tuple[int, Amount]] = {}
            for entry in self._ledger.entries(after=last):
                self._take(db, entry, spent)
                last = entry.seq
            counted = ((payer, place + 1) for payer, (place, _) in spent.items())
            db.executemany("INSERT OR REPLACE INTO payer VALUES(?, ?)", counted)
            db.execute("UPDATE read SET seq = ?", (last,))
            db.execute("COMMIT")
            yield db

    def _take(self, db: sqlite3.Connection, entry: Entry, spent: dict[str, tuple[int, Amount]]) -> None:
        """Add an entry; ``spent`` has the last payment of those who paid since the index was brought up to date."""
        body = entry.body
        if entry.kind is EntryKind.ANSWER:
            db.execute("INSERT OR IGNORE INTO answered VALUES(?)", (body["key"],))
        if entry.kind not in (EntryKind.RESERVE, EntryKind.CHARGE):
            return
        amount, note = Amount.from_json(body["amount"]), body["note"]
        if len(amount.others) != len(self._ledger.sums) - 1:
            # charged in format 1, which booked the sum that decides alone
            whole = self._ledger.price(PrivacyLoss.from_json(body["loss"]))
            amount = Amount(amount.main, amount.delta, whole.others)
        form = note.get("asked")
        asked = {name: form[name] for name in ASKED if name in form} if isinstance(form, dict) else {}
        about = (note.get("sql"), str(note.get("epsilon", "")), canonical(asked), amount.main, amount.delta)
        db.execute(
            "INSERT OR REPLACE INTO charge VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (entry.seq, body["number"], entry.at, canonical(body["path"]), body["key"], *about),
        )
        for payer in map(canonical, body["payers"]):
            place, before = spent.get(payer) or self._last_payment(db, payer)
            spent[payer] = place + 1, before + amount
            row = (payer, place + 1, entry.at, canonical(spent[payer][1].to_json()))
            db.execute("INSERT OR REPLACE INTO payment VALUES(?, ?, ?, ?)", row)

    def _last_payment(self, db: sqlite3.Connection, payer: str) -> tuple[int, Amount]:
        last = "SELECT place, spent FROM payment WHERE account = ? ORDER BY place DESC LIMIT 1"
        found = db.execute(last, (payer,)).fetchone()
        return (found[0], Amount.from_json(json.loads(found[1]))) if found else (-1, Amount())


def _path(account: str) -> list[str]:
    path: list[str] = json.loads(account)
    return path


def terms_of(charge: Charged) -> tuple[str, Settled]:
    """The text and the terms of a charge; Refused for a computation, and for notes that don't say enough."""
    sql, form = charge.note.get("sql"), charge.note.get("asked")
    if not isinstance(sql, str):
        raise unknown_receipt()
    if not isinstance(form, dict):
        raise outdated()
    try:
        return sql, Settled.from_json(form)
    except (KeyError, TypeError, ValueError):
        raise outdated() from None


def outdated() -> Refused:
    """An answer that is on record but can't be shown under the policy as it is now."""
    return Refused(
        "this was asked of other data, under another policy, or before receipts told all that was asked",
        code="answer_outdated",
        hint="Ask the question again: if nothing has changed since, it is free.",
    )


def unanswered() -> Refused:
    """A question that another paid for and that failed: whoever paid can have it run again."""
    return Refused(
        "this question was paid for and has no answer yet",
        code="not_answered",
        hint="Whoever asked it gets its answer by asking again, at no cost.",
    )


def unknown_receipt() -> Refused:
    """The same whether there is no such receipt or it is another's."""
    return Refused(
        "there is no answer of this number among those that you may read",
        code="unknown_receipt",
        hint="Look at the list of answers for the numbers of your receipts.",
    )
