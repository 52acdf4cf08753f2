"""The tables of format 1, permanent once released.

``entry`` is the truth; the other tables are what replaying it gives, kept so that a question is answered by a look-up.
Every column but the answer itself is determined by the log, and the log holds the answer's digest. Constraints and
triggers are a second belt: they refuse what the code should never try. Integers only.
"""

from __future__ import annotations

import sqlite3
from functools import cache

APPLICATION_ID = 0x64707631  # "dpv1"
FORMAT = 1
OLDEST_SQLITE = (3, 37, 0)  # STRICT tables

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

TRIGGERS = """
CREATE TRIGGER entry_never_changes BEFORE UPDATE ON entry
BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END;

CREATE TRIGGER entry_never_goes BEFORE DELETE ON entry
BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END;

CREATE TRIGGER entry_follows_the_last BEFORE INSERT ON entry
WHEN NEW.seq IS NOT (SELECT COALESCE(MAX(seq), 0) + 1 FROM entry)
    OR NEW.previous IS NOT COALESCE(
        (SELECT hash FROM entry ORDER BY seq DESC LIMIT 1),
        '0000000000000000000000000000000000000000000000000000000000000000')
BEGIN SELECT RAISE(ABORT, 'the log is a chain'); END;

CREATE TRIGGER account_never_goes BEFORE DELETE ON account
BEGIN SELECT RAISE(ABORT, 'what was spent stays spent'); END;

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


def create(db: sqlite3.Connection) -> None:
    """Make the tables inside the caller's transaction."""
    for statement in _statements(TABLES, ";") + _statements(TRIGGERS, "END;"):
        db.execute(statement)
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {FORMAT}")


def is_intact(db: sqlite3.Connection) -> bool:
    """Whether tables, constraints and triggers are those of this format: a dropped trigger is a broken seal."""
    return _shape(db) == _expected_shape()


def _statements(text: str, end: str) -> list[str]:
    return [part.strip() + end for part in text.split(end) if part.strip()]


def _shape(db: sqlite3.Connection) -> tuple[tuple[str, str, str], ...]:
    rows = db.execute("SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' ORDER BY type, name")
    return tuple((str(kind), str(name), str(sql)) for kind, name, sql in rows)


@cache
def _expected_shape() -> tuple[tuple[str, str, str], ...]:
    db = sqlite3.connect(":memory:")
    try:
        create(db)
        return _shape(db)
    finally:
        db.close()
