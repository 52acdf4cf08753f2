"""The tables of format 2, permanent once released.

``entry`` is the truth; ``account`` and ``question`` are what replaying it gives, kept so that a question is answered by
a look-up, and ``seal`` holds the digests by which the last entry vouches for them (``seals.py``). Every column but the
answer itself is determined by the log, and the log holds the answer's digest. Constraints and triggers are a second
belt: they refuse what the code should never try. Integers only; lists and objects are canonical JSON.

A row is written before the entry that seals it, so references are deferred; each needs an index, or SQLite reads all
questions with every entry.

An account stays within its limit if any of its sums does. There is more room than is used: a price, a cap or what was
spent may be NULL on the first sum ("none": a loss without that view closes the sum for good), as it may be on the
others; kinds of entries aren't listed here.
"""

from __future__ import annotations

import contextlib
import sqlite3
from functools import cache

APPLICATION_ID = 0x64707631  # "dpv1"
FORMAT = 2

TABLES = """
CREATE TABLE entry(
    seq INTEGER PRIMARY KEY CHECK(seq >= 1),
    at TEXT NOT NULL,
    kind TEXT NOT NULL CHECK(kind <> ''),
    body TEXT NOT NULL,
    previous TEXT NOT NULL CHECK(length(previous) = 64),
    hash TEXT NOT NULL UNIQUE CHECK(length(hash) = 64)
) STRICT;

CREATE INDEX entry_that_binds ON entry(seq) WHERE kind IN ('bound', 'upgraded');

CREATE TABLE account(
    path TEXT PRIMARY KEY NOT NULL,
    place TEXT NOT NULL UNIQUE CHECK(length(place) = 64),
    main_limit INTEGER CHECK(main_limit >= 0),
    delta_limit INTEGER CHECK(delta_limit >= 0),
    other_limits TEXT,
    count_limits TEXT,
    restated INTEGER NOT NULL DEFAULT 0 CHECK(restated >= 0),
    first_delta INTEGER CHECK(first_delta >= 0),
    main_spent INTEGER DEFAULT 0 CHECK(main_spent >= 0),
    delta_spent INTEGER NOT NULL DEFAULT 0 CHECK(delta_spent >= 0),
    others_spent TEXT NOT NULL DEFAULT '[]',
    counts TEXT NOT NULL DEFAULT '{}',
    CHECK(main_limit IS NULL OR delta_limit IS NOT NULL),
    CHECK((delta_limit IS NULL) = (other_limits IS NULL)),
    CHECK((delta_limit IS NULL) = (count_limits IS NULL))
) STRICT;

CREATE TABLE question(
    key TEXT PRIMARY KEY NOT NULL,
    main INTEGER CHECK(main >= 0),
    delta INTEGER NOT NULL CHECK(delta >= 0),
    others TEXT NOT NULL,
    counts TEXT NOT NULL DEFAULT '{}',
    reserved INTEGER NOT NULL UNIQUE REFERENCES entry(seq) DEFERRABLE INITIALLY DEFERRED,
    continues INTEGER,
    paid TEXT NOT NULL,
    state TEXT NOT NULL CHECK(state IN ('reserved', 'failed', 'answered')),
    claim INTEGER NOT NULL,
    owner TEXT NOT NULL,
    answered INTEGER UNIQUE REFERENCES entry(seq) DEFERRABLE INITIALLY DEFERRED,
    digest TEXT,
    answer BLOB,
    CHECK((state = 'answered') = (answered IS NOT NULL)),
    CHECK((state = 'answered') = (digest IS NOT NULL)),
    CHECK((state = 'answered') = (answer IS NOT NULL))
) STRICT;

CREATE INDEX question_that_continues ON question(continues) WHERE continues IS NOT NULL;

CREATE TABLE seal(
    tree TEXT NOT NULL CHECK(tree IN ('account', 'question')),
    place TEXT NOT NULL,
    below BLOB NOT NULL CHECK(length(below) = 512),
    PRIMARY KEY(tree, place)
) STRICT, WITHOUT ROWID;
"""

# of both formats
TRIGGERS_OF_LOG = """
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
"""

TRIGGERS = (
    TRIGGERS_OF_LOG  # noqa: S608
    + """
CREATE TRIGGER account_spends_within_its_limit BEFORE UPDATE ON account
WHEN NEW.path IS NOT OLD.path
    OR NEW.place IS NOT OLD.place
    OR NEW.main_spent < OLD.main_spent
    OR (OLD.main_spent IS NULL AND NEW.main_spent IS NOT NULL)
    OR NEW.delta_spent < OLD.delta_spent
    OR NEW.restated < OLD.restated
    OR (OLD.first_delta IS NOT NULL AND NEW.first_delta IS NOT OLD.first_delta)
    OR (NEW.delta_limit IS NULL AND OLD.delta_limit IS NOT NULL)
    OR (NEW.main_spent IS NOT OLD.main_spent
        AND NEW.main_limit IS NOT NULL
        AND (NEW.main_spent IS NULL OR NEW.main_spent > NEW.main_limit)
        AND NOT EXISTS(
            SELECT 1 FROM json_each(NEW.others_spent) AS spent
            JOIN json_each(NEW.other_limits) AS most ON most.key = spent.key
            WHERE spent.value <= most.value))
    OR (NEW.delta_spent > OLD.delta_spent AND NEW.delta_spent > NEW.delta_limit)
BEGIN SELECT RAISE(ABORT, 'what was spent stays spent, within the limit'); END;

CREATE TRIGGER question_never_goes BEFORE DELETE ON question
BEGIN SELECT RAISE(ABORT, 'a question stays'); END;

CREATE TRIGGER question_is_answered_once BEFORE UPDATE ON question
WHEN NEW.key IS NOT OLD.key
    OR NEW.main IS NOT OLD.main
    OR NEW.delta IS NOT OLD.delta
    OR NEW.others IS NOT OLD.others
    OR NEW.reserved IS NOT OLD.reserved
    OR NEW.continues IS NOT OLD.continues
    OR NEW.claim < OLD.claim
    OR length(NEW.paid) < length(OLD.paid)
    OR (OLD.state = 'answered' AND (NEW.state IS NOT OLD.state OR NEW.claim IS NOT OLD.claim
        OR NEW.owner IS NOT OLD.owner OR NEW.answered IS NOT OLD.answered OR NEW.digest IS NOT OLD.digest
        OR NEW.answer IS NOT OLD.answer))
BEGIN SELECT RAISE(ABORT, 'a question is answered once'); END;
"""
)


def create(db: sqlite3.Connection, tables: str = TABLES, triggers: str = TRIGGERS, *, version: int = FORMAT) -> None:
    """Make the tables inside the caller's transaction."""
    for text, end in ((tables, ";"), (triggers, "END;")):
        for part in text.split(end):
            if part.strip():
                db.execute(part.strip() + end)
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {version}")


def is_intact(db: sqlite3.Connection, tables: str = TABLES, triggers: str = TRIGGERS, *, version: int = FORMAT) -> bool:
    """Whether tables, constraints and triggers are those of this format: a dropped trigger is a broken seal."""
    return _shape(db) == _expected_shape(tables, triggers, version)


def _shape(db: sqlite3.Connection) -> tuple[tuple[str, str, str], ...]:
    """Every table, index and trigger, with the text that made it."""
    rows = db.execute("SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' ORDER BY type, name")
    return tuple((str(kind), str(name), str(sql)) for kind, name, sql in rows)


@cache
def _expected_shape(tables: str, triggers: str, version: int) -> tuple[tuple[str, str, str], ...]:
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        create(db, tables, triggers, version=version)
        return _shape(db)
