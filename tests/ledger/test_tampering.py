"""Changes made by hand, to every column of every table: verify notices, and the second belt refuses."""

import json
import sqlite3

import pytest

from dither.errors import LedgerCorrupt, LedgerRolledBack
from dither.ledger import Limit
from dither.ledger.entry import GENESIS, canonical, link
from dither.ledger.store.schema import TRIGGERS, create

from .files import SHOP, ask, key, opened


def by_hand(place, *statements):
    """Change the file as someone with an editor could: without triggers, then putting them back."""
    db = sqlite3.connect(place, isolation_level=None)
    names = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'")]
    for name in names:
        db.execute(f"DROP TRIGGER {name}")
    db.execute("PRAGMA ignore_check_constraints = ON")
    for statement in statements:
        db.execute(*statement) if isinstance(statement, tuple) else db.execute(statement)
    for trigger in TRIGGERS.split("END;"):
        if trigger.strip():
            db.execute(trigger.strip() + "END;")
    db.close()


CHANGES = [
    ("entry", "seq", "seq + 100", "seq = (SELECT MAX(seq) FROM entry)"),
    ("entry", "at", "'2020-01-01T00:00:00.000Z'", "seq = 4"),
    ("entry", "kind", "'charge'", "kind = 'reserve'"),
    ("entry", "body", "replace(body, '125000000000', '1')", "kind = 'reserve'"),
    ("entry", "body", "replace(body, '1/8', '1/9')", "kind = 'reserve'"),
    ("entry", "body", "replace(body, 'cause', 'other')", "kind = 'failed'"),
    ("entry", "body", "replace(body, '2000000000000', '9000000000000')", "kind = 'limits'"),
    ("entry", "body", "body || ' '", "seq = 1"),
    ("entry", "previous", f"'{'1' * 64}'", "seq = 3"),
    ("entry", "hash", f"'{'2' * 64}'", "seq = 3"),
    ("account", "path", """'["shop","zoe"]'""", """path = '["shop","ana"]'"""),
    ("account", "place", "replace(place, '0', '1')", """path = '["shop"]'"""),
    ("account", "other_limits", "'[1]'", """path = '["shop"]'"""),
    ("account", "count_limits", "'{\"hits\":1}'", """path = '["shop"]'"""),
    ("account", "restated", "restated + 1", """path = '["shop"]'"""),
    ("account", "first_delta", "first_delta + 1", """path = '["shop"]'"""),
    ("account", "others_spent", "'[1]'", """path = '["shop"]'"""),
    ("account", "counts", """'{"hits":1}'""", """path = '["shop"]'"""),
    ("account", "main_limit", "main_limit + 1", """path = '["shop"]'"""),
    ("account", "delta_limit", "delta_limit + 1", """path = '["shop"]'"""),
    ("account", "main_spent", "main_spent - 1", """path = '["shop"]'"""),
    ("account", "delta_spent", "delta_spent + 1", """path = '["shop"]'"""),
    ("question", "key", "'" + "a" * 64 + "'", "state = 'failed'"),
    ("question", "main", "main - 1", "1"),
    ("question", "delta", "delta + 1", "1"),
    ("question", "others", "'[1]'", "1"),
    ("question", "counts", "'{\"hits\":1}'", "state = 'failed'"),
    ("question", "continues", "2", "state = 'failed'"),
    ("question", "paid", "replace(paid, 'bob', 'eve')", "paid LIKE '%bob%'"),
    ("question", "digest", "replace(digest, '0', '1')", "state = 'answered'"),
    ("question", "reserved", "reserved + 1", "state = 'failed'"),
    ("question", "state", "'reserved'", "state = 'failed'"),
    ("question", "claim", "claim + 1", "state = 'failed'"),
    ("question", "owner", "'someone'", "state = 'reserved'"),
    ("question", "answered", "answered - 1", "state = 'answered'"),
    ("question", "answer", "CAST('other' AS BLOB)", "state = 'answered'"),
    ("seal", "tree", "'account'", "tree = 'question' AND length(place) = 3"),
    ("seal", "place", "place || '0'", "tree = 'question' AND length(place) = 3"),
    ("seal", "below", "zeroblob(512)", "tree = 'account' AND place = ''"),
]


def test_every_column_is_tampered_with():
    db = sqlite3.connect(":memory:")
    create(db)
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    columns = {(table, row[1]) for table in tables for row in db.execute(f"PRAGMA table_info({table})")}
    db.close()
    assert {(table, column) for table, column, _, _ in CHANGES} == columns


@pytest.mark.parametrize(("table", "column", "value", "where"), CHANGES)
def test_verify_notices_every_changed_column(used, table, column, value, where):
    with opened(used) as ledger:
        ledger.verify()
        before = ledger._db.execute(f"SELECT COUNT(*) FROM {table} WHERE {where}").fetchone()[0]
        assert before >= 1
        by_hand(used, f"UPDATE OR IGNORE {table} SET {column} = {value} WHERE {where}")
        with pytest.raises((LedgerCorrupt, LedgerRolledBack), match=r"entr(y|ies)|file"):
            ledger.verify()


@pytest.mark.parametrize("table", ["entry", "account", "question", "seal"])
def test_verify_notices_missing_rows(used, table):
    by_hand(
        used,
        f"DELETE FROM {table} WHERE rowid IN (SELECT MAX(rowid) FROM {table})"
        if table != "seal"
        else "DELETE FROM seal WHERE tree = 'question' AND length(place) = 3",
    )
    with pytest.raises((LedgerCorrupt, LedgerRolledBack)), opened(used) as ledger:
        ledger.verify()


def test_verify_notices_a_missing_seal(used):
    with opened(used) as ledger:
        db = sqlite3.connect(used)
        db.execute("DROP TRIGGER entry_never_changes")
        db.close()
        with pytest.raises(LedgerCorrupt, match="triggers"):
            ledger.verify()
    with pytest.raises(LedgerCorrupt, match="triggers"):
        opened(used)


INSERT = "INSERT INTO question(others, paid, key, main, delta, reserved, state, claim, owner)"


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entry SET at = 'x'",
        "DELETE FROM entry WHERE seq = (SELECT MAX(seq) FROM entry)",
        "INSERT OR REPLACE INTO entry SELECT * FROM entry WHERE seq = 3",
        "INSERT INTO entry SELECT seq + 50, at, kind, body, previous, hash || 'x' FROM entry WHERE seq = 1",
        "UPDATE account SET main_spent = 0",
        "UPDATE account SET main_spent = main_spent + 2000000000000",
        "UPDATE account SET main_limit = NULL, delta_limit = NULL",
        "DELETE FROM account",
        "UPDATE question SET answer = x'00' WHERE state = 'answered'",
        "UPDATE question SET main = 0",
        "DELETE FROM question",
        "UPDATE question SET paid = '[]'",
        f"{INSERT} VALUES('[]', '[]', 'k', -1, 0, 1, 'reserved', 1, 'o')",
        f"{INSERT} VALUES('[]', '[]', 'k', 'x', 0, 1, 'reserved', 1, 'o')",
        f"{INSERT} VALUES('[]', '[]', 'k', 1, 0, 1, 'answered', 1, 'o')",
        "INSERT INTO seal VALUES('other', '', zeroblob(512))",
        "INSERT INTO seal VALUES('account', 'x', x'00')",
    ],
)
def test_the_second_belt_holds(used, statement):
    with opened(used) as ledger:
        before = list(ledger._db.iterdump())
        with pytest.raises(sqlite3.IntegrityError):
            ledger._db.execute(statement)
        assert list(ledger._db.iterdump()) == before


def test_a_chain_rewritten_from_end_to_end_is_noticed_by_the_head(used):
    """Someone who computes all hashes anew, and takes out one question everywhere."""
    db = sqlite3.connect(used)
    rows = db.execute("SELECT seq, at, kind, body FROM entry ORDER BY seq").fetchall()
    db.close()
    kept = [row for row in rows if key(4) not in row[3]]
    statements, previous = [f"DELETE FROM question WHERE key = '{key(4)}'", "DELETE FROM entry"], GENESIS
    for seq, (_, at, kind, body) in enumerate(kept, 1):
        this = link(seq, at, kind, body, previous)
        statements.append(("INSERT INTO entry VALUES(?, ?, ?, ?, ?, ?)", (seq, at, kind, body, previous, this)))
        previous = this
    statements.append('UPDATE account SET main_spent = main_spent - 125000000000 WHERE path <> \'["shop","bob"]\'')
    by_hand(used, *statements)
    with pytest.raises((LedgerRolledBack, LedgerCorrupt)):
        opened(used)
    # the owner's word is that it is the latest copy, not that it adds up
    with pytest.raises(LedgerCorrupt, match="vouches for"):
        opened(used, adopt=True)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (lambda body: {**body, "amount": {"main": 1, "delta": 0}}, "less than its loss"),
        (lambda body: {**body, "payers": [["shop"]]}, "wrong accounts"),
        (lambda body: {**body, "path": ["cellar", "ana"]}, "no limit"),
        (lambda body: {**body, "loss": {**body["loss"], "adjacency": "replace"}}, "adjacency"),
        (
            lambda body: {
                **body,
                "amount": {"main": 3 * 10**12, "delta": 0},
                "after": [{"main": 3 * 10**12, "delta": 0}, {"main": 3 * 10**12, "delta": 0}],
            },
            "exceeds its limit",
        ),
        (lambda body: {**body, "after": [{"main": 0, "delta": 0}] * 2}, "other balances"),
        (lambda body: {**body, "seal": "0" * 64}, "seals other"),
        (
            lambda body: {**body, "amount": {"main": -1, "delta": 0}},
            "its hash is right.*its amount: main must be a whole",
        ),
        (lambda body: {name: body[name] for name in body if name != "loss"}, "its field 'loss' is missing"),
        (lambda body: {**body, "loss": {"version": 1, "kind": "unheard of"}}, "its loss: unknown kind.*'unheard of'"),
        (lambda body: {**body, "loss": {**body["loss"], "epsilon": None}}, "its loss: epsilon must be a finite number"),
        (lambda body: {**body, "path": None}, "its path: expected a list of names"),
    ],
)
def test_entries_that_break_a_rule_are_noticed_even_with_right_hashes(place, body, reason):
    with opened(place) as ledger:
        ledger.set_limits({SHOP: Limit.pure(2)})
        ask(ledger, 1)
        seq, at, kind, text, previous, _ = ledger._db.execute("SELECT * FROM entry WHERE seq = 3").fetchone()
        changed = canonical(body(json.loads(text)))
        this = link(seq, at, kind, changed, previous)
        by_hand(place, ("UPDATE entry SET body = ?, hash = ? WHERE seq = 3", (changed, this)))
        with pytest.raises(LedgerCorrupt, match=f"entry 3 .*{reason}"):
            ledger.verify()


def test_a_changed_answer_is_not_released(used):
    with opened(used) as ledger:
        by_hand(used, f"UPDATE question SET answer = x'00' WHERE key = '{key(1)}'")
        with pytest.raises(LedgerCorrupt, match="isn't released"):
            ask(ledger, 1)
