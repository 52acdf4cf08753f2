"""Balances and states are vouched for by the last entry: a change by hand is noticed at opening and at any charge."""

import json
import random
import shutil
import sqlite3

import pytest

from dither.errors import LedgerCorrupt, LedgerError
from dither.ledger import Account, Limit
from dither.ledger.entry import EntryKind, Opening
from dither.ledger.head import SLOT
from dither.ledger.log.replay import verify
from dither.ledger.store.charge_or_replay import Books
from dither.ledger.store.rows import ReplayedTree

from .files import SHOP, answer, ask, key, opened
from .test_tampering import by_hand

BALANCES = [
    "UPDATE account SET main_spent = 0",
    "UPDATE account SET main_spent = main_spent - 125000000000 WHERE path = '[\"shop\"]'",
    "UPDATE account SET main_limit = 9000000000000 WHERE path = '[\"shop\"]'",
    "UPDATE account SET restated = 1",
    'DELETE FROM account WHERE path = \'["shop","bob"]\'',
]
SET_BACK = f"UPDATE question SET state = 'failed', answered = NULL, digest = NULL, answer = NULL WHERE key = '{key(1)}'"


@pytest.mark.parametrize("statement", BALANCES)
def test_an_edited_balance_is_noticed_at_opening(used, statement):
    by_hand(used, statement)
    with pytest.raises(LedgerCorrupt, match="vouches for"):
        opened(used)


@pytest.mark.parametrize("statement", BALANCES)
def test_an_edited_balance_is_noticed_before_a_charge(used, statement):
    with opened(used) as ledger:
        by_hand(used, statement)
        with pytest.raises(LedgerCorrupt, match="vouches for"):
            ask(ledger, 50, Account(("shop", "bob")))


def test_a_question_that_was_set_back_is_not_answered_again(used):
    by_hand(used, SET_BACK)
    with opened(used) as ledger, pytest.raises(LedgerCorrupt, match="vouches for"):
        ask(ledger, 1)


def test_a_question_that_was_taken_out_is_not_charged_anew(used):
    by_hand(used, f"DELETE FROM question WHERE key = '{key(1)}'")
    with opened(used) as ledger, pytest.raises(LedgerCorrupt, match="vouches for"):
        ask(ledger, 1)


def test_a_payment_that_was_made_up_gives_nothing(used):
    eve = Account(("shop", "eve"))
    by_hand(used, f"UPDATE question SET paid = replace(paid, 'bob', 'eve') WHERE key = '{key(1)}'")
    with opened(used) as ledger, pytest.raises(LedgerCorrupt, match="vouches for"):
        ask(ledger, 1, eve)


@pytest.mark.parametrize("depth", range(4))
def test_seals_that_were_made_to_fit_are_noticed(used, depth):
    """Someone who edits a row and puts the right digests above it, up to some level: the level above tells."""
    with opened(used) as ledger:
        tree = ledger._books._questions
        path = [(key(1)[:length], tree.below(key(1)[:length])) for length in range(4)]
    by_hand(used, SET_BACK)
    with sqlite3.connect(used) as db:
        rows = db.execute("SELECT place, below FROM seal WHERE tree = 'question'").fetchall()
    forged = ReplayedTree("question")
    for place, below in rows:
        forged._put(place, bytes(below))
    forged._rows = {key(1)[:4]: {key(1): "anything"}}
    forged.update(key(1))
    changes = [
        ("UPDATE seal SET below = ? WHERE tree = 'question' AND place = ?", (forged.below(place), place))
        for place, _ in path[depth:]
    ]
    by_hand(used, *changes)
    with pytest.raises(LedgerCorrupt, match="vouches for"), opened(used) as ledger:
        ask(ledger, 1)


def forge(path):
    """Someone who can write the file, and not its head: all is given back, sealed, and an entry that vouches for it."""
    db = sqlite3.connect(path, isolation_level=None)
    (text,) = db.execute("SELECT body FROM entry WHERE seq = 1").fetchone()
    triggers = db.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    db.execute("BEGIN IMMEDIATE")
    for name, _ in triggers:
        db.execute(f"DROP TRIGGER {name}")
    db.execute("UPDATE account SET main_spent = 0")
    db.execute("UPDATE question SET state = 'failed', answered = NULL, digest = NULL, answer = NULL")
    books = Books(db, Opening.from_json(json.loads(text)), token="", alive=lambda _: False)
    books._accounts.build(place for (place,) in db.execute("SELECT place FROM account").fetchall())
    books._questions.build(one for (one,) in db.execute("SELECT key FROM question").fetchall())
    books.append(EntryKind.LIMITS, {"limits": []})
    for _, made in triggers:
        db.execute(made)
    db.execute("COMMIT")
    db.close()


def test_an_entry_that_was_made_up_with_its_seals_is_noticed_at_opening(used):
    forge(used)
    for _ in range(2):
        with pytest.raises(LedgerCorrupt, match="seals other balances"):
            opened(used)


def test_an_entry_that_was_made_up_with_its_seals_is_noticed_before_a_charge(used):
    with opened(used) as ledger:
        forge(used)
        for number in (1, 50):
            with pytest.raises(LedgerCorrupt, match="seals other balances"):
                ask(ledger, number)


def test_believing_whatever_lies_beyond_the_head_gives_all_back(used, monkeypatch):
    """The mutant: what was written after the head moved last is taken for what a crash left."""
    monkeypatch.setattr("dither.ledger.sqlite.verify", lambda *_: None)
    forge(used)
    with opened(used) as ledger:
        assert all(balance.spent.main == 0 for balance in ledger.balances())
        assert ask(ledger, 1).answer is None


@pytest.mark.parametrize("announced", [True, False])
def test_what_a_writer_left_behind_its_head_is_replayed_unless_it_was_announced(used, monkeypatch, announced):
    """A process that dies between commit and head leaves its announcement; a machine that dies may lose it."""
    with opened(used) as ledger:
        behind = ledger.head.path.read_bytes()
        ask(ledger, 51)
        ahead = ledger.head.path.read_bytes()
        ledger.head.path.write_bytes(behind[: 2 * SLOT] + (ahead if announced else behind)[2 * SLOT :])
    replays = []
    monkeypatch.setattr("dither.ledger.sqlite.verify", lambda *given: replays.append(given) or verify(*given))
    with opened(used) as ledger:
        assert len(replays) == (0 if announced else 1)
        # from then on the head has caught up
        ask(ledger, 52)
        assert len(replays) == (0 if announced else 1)
        assert ledger.verify().entries == ledger.head.read().seq


def test_an_edited_last_entry_is_noticed(used):
    by_hand(used, "UPDATE entry SET body = replace(body, 'seal', 'zeal') WHERE seq = (SELECT MAX(seq) FROM entry)")
    with pytest.raises(LedgerCorrupt, match="chain breaks"):
        opened(used)


def test_one_row_is_checked_by_few_digests_whatever_the_length_of_the_log(place):
    """Counted in statements, not in seconds."""
    counts = []
    with opened(place) as ledger:
        ledger.set_limits({SHOP: Limit.pure(200)})
        for question in range(300):
            statements = []
            ledger._db.set_trace_callback(statements.append)
            answer(ledger, question)
            ledger._db.set_trace_callback(None)
            counts.append(len(statements))
        ledger.verify()
    assert max(counts[100:]) <= max(counts[:100])
    assert max(counts) < 140
    statements = []
    with opened(place) as ledger:
        ledger._db.set_trace_callback(statements.append)
        ledger._books.expect_whole()
    assert len(statements) < 20


@pytest.mark.parametrize("seed", range(3))
def test_the_tree_is_that_of_its_rows_whatever_their_order(seed):
    draw = random.Random(seed)
    rows = {f"{draw.getrandbits(256):064x}": str(draw.random()) for _ in range(200)}
    tops = set()
    for _ in range(3):
        tree = ReplayedTree("question")
        for name in draw.sample(sorted(rows), len(rows)):
            tree.set(name, "something else")
            tree.set(name, rows[name])
        assert all(tree.holds(name) for name in rows)
        tops.add(tree.top())
    assert len(tops) == 1


@pytest.mark.parametrize("text", ["[oops", "7", "[[1,2]]", None])
@pytest.mark.parametrize("column", ["paid", "others", "counts"])
def test_a_question_that_can_not_be_read_is_damage_to_whoever_only_looks(used, column, text):
    by_hand(used, (f"UPDATE question SET {column} = COALESCE(?, CAST(x'ff41' AS TEXT))", (text,)))
    with opened(used) as ledger, pytest.raises(LedgerCorrupt):
        ledger.find(key(1))


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_page_is_said_to_be_damage(used, seed):
    """Bytes of the file changed anywhere: an error of the ledger, or nothing that matters; never another exception."""
    draw = random.Random(seed)
    original = used.read_bytes()
    (used.parent / "copy").write_bytes(original)
    for trial in range(25):
        data = bytearray(original)
        # the first pages hold the schema
        end = 8192 if trial % 2 else len(data)
        for _ in range(draw.choice([1, 1, 8, 200])):
            data[draw.randrange(0 if trial % 3 else 100, end)] = draw.randrange(256)
        used.write_bytes(bytes(data))
        for left in used.parent.glob("ledger.db-*"):
            left.unlink()
        try:
            with opened(used) as ledger:
                ledger.verify()
                answer(ledger, 1)
                answer(ledger, 77)
        except LedgerError as problem:
            assert str(problem)  # noqa: PT017
        shutil.copy(used.parent / "copy", used)
        ask_head_again(used)


@pytest.mark.parametrize("byte", [60, 62, 68, 69, 71])
def test_a_file_that_is_no_ledger_any_more_is_damage_where_one_is_known(used, byte):
    """The bytes by which SQLite tells whose file this is, and of which format."""
    data = bytearray(used.read_bytes())
    data[byte] ^= 0x10
    used.write_bytes(bytes(data))
    for left in used.parent.glob("ledger.db-*"):
        left.unlink()
    with pytest.raises(LedgerCorrupt, match="first page"):
        opened(used)


def ask_head_again(used):
    """A trial that went well moved the head on: let the next one begin from where this began."""
    with opened(used, adopt=True):
        pass
    (used.parent / "copy").write_bytes(used.read_bytes())
