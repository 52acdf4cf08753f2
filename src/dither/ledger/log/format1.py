"""The tables of format 1 (dither 0.1.0), read for ever: checked, and read through what upgrading makes of them.

Balances and the states of questions stood beside the log there, and nothing but a replay tied them to it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from dither.errors import LedgerCorrupt
from dither.ledger.entry import canonical, digest
from dither.ledger.store import schema
from dither.ledger.store.rows import AccountRow, QuestionRow

FORMAT = 1

TABLES = """
CREATE TABLE entry(
    seq INTEGER PRIMARY KEY CHECK(seq >= 1),
    at TEXT NOT NULL,
    kind TEXT NOT NULL
        CHECK(kind IN ('opened', 'limits', 'reserve', 'charge', 'redeem', 'answer', 'failed', 'adopted')),
    body TEXT NOT NULL,
    previous TEXT NOT NULL CHECK(length(previous) = 64),
    hash TEXT NOT NULL UNIQUE CHECK(length(hash) = 64)
) STRICT;

CREATE TABLE account(
    path TEXT PRIMARY KEY NOT NULL,
    main_limit INTEGER CHECK(main_limit >= 0),
    delta_limit INTEGER CHECK(delta_limit >= 0),
    main_spent INTEGER NOT NULL DEFAULT 0 CHECK(main_spent >= 0),
    delta_spent INTEGER NOT NULL DEFAULT 0 CHECK(delta_spent >= 0),
    CHECK((main_limit IS NULL) = (delta_limit IS NULL))
) STRICT;

CREATE TABLE question(
    key TEXT PRIMARY KEY NOT NULL,
    main INTEGER NOT NULL CHECK(main >= 0),
    delta INTEGER NOT NULL CHECK(delta >= 0),
    reserved INTEGER NOT NULL UNIQUE REFERENCES entry(seq),
    state TEXT NOT NULL CHECK(state IN ('reserved', 'failed', 'answered')),
    claim INTEGER NOT NULL REFERENCES entry(seq),
    owner TEXT NOT NULL,
    answered INTEGER UNIQUE REFERENCES entry(seq),
    answer BLOB,
    CHECK((state = 'answered') = (answered IS NOT NULL)),
    CHECK((state = 'answered') = (answer IS NOT NULL))
) STRICT;

CREATE TABLE payment(
    key TEXT NOT NULL REFERENCES question(key),
    account TEXT NOT NULL REFERENCES account(path),
    seq INTEGER NOT NULL REFERENCES entry(seq),
    PRIMARY KEY(key, account)
) STRICT, WITHOUT ROWID;
"""

TRIGGERS = (
    schema.TRIGGERS_OF_LOG
    + """
CREATE TRIGGER account_spends_within_its_limit BEFORE UPDATE ON account
WHEN NEW.path IS NOT OLD.path
    OR NEW.main_spent < OLD.main_spent
    OR NEW.delta_spent < OLD.delta_spent
    OR (NEW.main_limit IS NULL AND OLD.main_limit IS NOT NULL)
    OR (NEW.main_spent > OLD.main_spent AND NEW.main_spent > NEW.main_limit)
    OR (NEW.delta_spent > OLD.delta_spent AND NEW.delta_spent > NEW.delta_limit)
BEGIN SELECT RAISE(ABORT, 'what was spent stays spent, within the limit'); END;

CREATE TRIGGER question_never_goes BEFORE DELETE ON question
BEGIN SELECT RAISE(ABORT, 'a question stays'); END;

CREATE TRIGGER question_is_answered_once BEFORE UPDATE ON question
WHEN OLD.state = 'answered'
    OR NEW.key IS NOT OLD.key
    OR NEW.main IS NOT OLD.main
    OR NEW.delta IS NOT OLD.delta
    OR NEW.reserved IS NOT OLD.reserved
    OR NEW.claim < OLD.claim
BEGIN SELECT RAISE(ABORT, 'a question is answered once'); END;

CREATE TRIGGER payment_never_changes BEFORE UPDATE ON payment
BEGIN SELECT RAISE(ABORT, 'a payment stays'); END;

CREATE TRIGGER payment_never_goes BEFORE DELETE ON payment
BEGIN SELECT RAISE(ABORT, 'a payment stays'); END;
"""
)


def create(db: sqlite3.Connection) -> None:
    """Make the tables inside the caller's transaction: for tests, and to know what they look like."""
    schema.create(db, TABLES, TRIGGERS, version=FORMAT)


def is_intact(db: sqlite3.Connection) -> bool:
    """Whether tables, constraints and triggers are those of format 1."""
    return schema.is_intact(db, TABLES, TRIGGERS, version=FORMAT)


def expect_tables(
    db: sqlite3.Connection, accounts: Iterable[AccountRow], questions: Iterable[QuestionRow], seq: int
) -> None:
    """The tables beside the log are what replaying it gives; raises LedgerCorrupt otherwise."""
    balances = {
        canonical(row.account.path): (
            *((row.limit.main, row.limit.delta) if row.limit else (None, None)),
            row.spent.main,
            row.spent.delta,
        )
        for row in accounts
    }
    query = "SELECT path, main_limit, delta_limit, main_spent, delta_spent FROM account"
    if {path: tuple(rest) for path, *rest in db.execute(query)} != balances:
        raise LedgerCorrupt(f"a balance isn't what the entries up to {seq} add up to")
    known = {row.key: row for row in questions}
    query = "SELECT key, main, delta, reserved, state, claim, owner, answered, answer FROM question"
    count = 0
    for key, main, delta, reserved, state, claim, owner, answered, answer in db.execute(query):
        count += 1
        row = known.get(key)
        if row is None:
            raise LedgerCorrupt(f"a question was never reserved by the entries up to {seq}")
        kept = (main, delta, reserved, state, claim, owner, answered, None if answer is None else digest(answer))
        amount = row.amount
        if kept != (
            amount.main, amount.delta, row.reserved, row.state, row.claim, row.owner, row.answered, row.digest
        ):  # fmt: skip
            raise LedgerCorrupt(f"a question or its answer isn't what was logged since entry {row.reserved}")
    if count != len(known):
        raise LedgerCorrupt(f"a question of the entries up to {seq} is missing")
    paid = {(row.key, canonical(account.path), by) for row in known.values() for account, by in row.paid}
    if set(db.execute("SELECT key, account, seq FROM payment")) != paid:
        raise LedgerCorrupt(f"a payment isn't what the entries up to {seq} say")
