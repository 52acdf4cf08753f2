"""What is on disk when something is returned, and what a copy, a lost file or a wrong name can't be mistaken for."""

import os
import shutil
import sqlite3
import stat
import threading

import pytest

from dither.errors import LedgerCorrupt, LedgerError, LedgerRolledBack, LedgerUncertain
from dither.ledger import Account, Amount, EntryKind, Limit, MemoryLedger, SqliteLedger
from dither.ledger.head import SLOT, SLOTS, HeadFile, HeadMark, OwnerLock
from dither.ledger.store.one_writer import Writer
from dither.ledger.store.schema import TRIGGERS

from .files import BOB, KEPT_FOR, SHOP, answer, ask


def opened(place, **other):
    return SqliteLedger.open(place, **{**KEPT_FOR, "lock_timeout": 2.0, **other})


@pytest.fixture
def used(place):
    with opened(place) as ledger:
        ledger.set_limits({SHOP: Limit.pure(2), BOB: Limit.pure(1)})
        answer(ledger, 1)
    return place


# ------------------------------------------------------------------ copies without the write-ahead log


@pytest.mark.parametrize("head", [None, "head"])
def test_a_new_ledger_copied_without_its_log_is_no_new_ledger(place, tmp_path, head):
    """Before the first checkpoint, too: a copy of the file alone must not begin with a fresh budget."""
    where = {} if head is None else {"head": tmp_path / head}
    with opened(place, **where) as ledger:
        ledger.set_limits({SHOP: Limit.pure(1)})
        answer(ledger, 1)
        copy = place.with_name("copy")
        shutil.copy(place, copy)
        with pytest.raises(LedgerRolledBack, match="ends at entry 1, and 4 are known"):
            opened(copy, **where)


def test_a_blank_database_is_no_new_ledger(place):
    """What copying the file of a ledger without its log could leave, and what nobody who dies early leaves."""
    db = sqlite3.connect(place)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("CREATE TABLE mine(x)")
    blank = place.with_name("blank")
    shutil.copy(place, blank)
    db.close()
    assert blank.stat().st_size > 0
    before = blank.read_bytes()
    for more in ({}, {"adopt": True}, {"create": False}):
        with pytest.raises(LedgerError, match=r"empty database|no ledger"):
            opened(blank, **more)
    assert blank.read_bytes() == before


def test_a_maker_who_died_early_leaves_no_obstacle(place):
    place.touch()
    with opened(place) as ledger:
        assert ledger.verify().entries == 1


def test_many_make_one_ledger(place):
    together, made, problems = threading.Barrier(6), [], []

    def make():
        together.wait()
        try:
            with opened(place, lock_timeout=20.0) as ledger:
                made.append(ledger._books.opening.ledger)
        except Exception as problem:  # noqa: BLE001 told below
            problems.append(problem)

    makers = [threading.Thread(target=make) for _ in range(6)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    assert not problems
    assert len(made) == 6
    assert len(set(made)) == 1


# ------------------------------------------------------------------ flushing what the dead left unflushed


def test_opening_flushes_the_log_that_it_read_before_anything_is_returned(used, monkeypatch):
    """Its writer may have died between write and flush; SQLite recovers such a commit and thinks it durable."""
    with opened(used) as first:
        answer(first, 10)
        log = used.with_name(used.name + "-wal")
        assert log.stat().st_size > 0
        happened = []
        run = Writer.run

        def told(writer, work, **more):
            happened.append("transaction")
            return run(writer, work, **more)

        monkeypatch.setattr(Writer, "run", told)
        monkeypatch.setattr("dither.ledger.head.flush", lambda descriptor: happened.append(_inode(descriptor)))
        monkeypatch.setattr("dither.ledger.sqlite.flush_directory", lambda path: happened.append(path))
        with opened(used) as second:
            assert ask(second, 10).replayed
        assert happened[: happened.index("transaction")] == [log.stat().st_ino, used.parent]


def _inode(descriptor):

    return os.fstat(descriptor).st_ino


def test_a_log_that_cant_be_flushed_refuses(used, monkeypatch):
    def fails(descriptor):
        raise OSError(5, "no")

    with opened(used) as first:
        answer(first, 10)
        with monkeypatch.context() as patched:
            patched.setattr("dither.ledger.head.flush", fails)
            with pytest.raises(LedgerError, match="flushed"):
                opened(used)


def test_a_head_that_someone_else_wrote_is_flushed_before_it_covers_anything(used, monkeypatch):
    flushed = []
    with opened(used) as first, opened(used) as second:
        answer(first, 10)
        monkeypatch.setattr("dither.ledger.head.flush", flushed.append)
        assert ask(second, 10).replayed
        assert len(flushed) == 1
        assert ask(second, 10).replayed
        assert len(flushed) == 1


def test_a_head_that_fails_after_the_charge_says_so(used, monkeypatch):
    def fails(descriptor):
        raise OSError(28, "No space left on device")

    with opened(used) as ledger:
        with monkeypatch.context() as patched:
            patched.setattr("dither.ledger.head.flush", fails)
            with pytest.raises(LedgerUncertain, match="no further cost") as refused:
                ask(ledger, 10)
            assert "space" not in str(refused.value)
        again = ask(ledger, 10, timeout=0)
        assert (again.answer, again.charged) == (None, Amount())
        ledger.record(again, b"x")
        assert ledger.balance(SHOP).spent == Amount(250_000_000_000)
        ledger.verify()


# ------------------------------------------------------------------ forks


def test_two_copies_at_work_release_one_answer(place, monkeypatch):
    """The directory is copied with an open reservation; both copies answer while the other is in its transaction."""
    with opened(place) as ours:
        ours.set_limits({SHOP: Limit.pure(1)})
        asked = ask(ours, 1)
        shutil.copytree(place.parent, place.parent.with_name("copy"))
        with opened(place.parent.with_name("copy") / place.name) as theirs:
            record, redeemed = ours._books.record, []

            def meanwhile(*arguments):
                redeemed.append(ask(theirs, 1))
                return record(*arguments)

            monkeypatch.setattr(ours._books, "record", meanwhile)
            with pytest.raises(LedgerRolledBack, match="fork"):
                ours.record(asked, b"ours")
            with pytest.raises(LedgerRolledBack, match="fork"):
                ask(ours, 1)
            assert theirs.record(redeemed[0], b"theirs").answer == b"theirs"
            theirs.verify()


def test_a_head_further_on_must_be_in_the_chain(used, monkeypatch):
    with opened(used) as ledger:
        record = ledger._books.record
        asked = ask(ledger, 10)

        def meanwhile(*arguments):
            head = ledger.head.read()
            ledger.head.advance(HeadMark(head.ledger, head.seq + 3, "f" * 64))
            return record(*arguments)

        monkeypatch.setattr(ledger._books, "record", meanwhile)
        with pytest.raises(LedgerRolledBack, match="fork"):
            ledger.record(asked, b"x")


def test_the_head_refuses_another_entry_under_the_same_number(tmp_path):
    head = HeadFile(tmp_path / "head")
    head.advance(HeadMark("a" * 32, 5, "5" * 64))
    assert head.advance(HeadMark("a" * 32, 5, "5" * 64)).seq == 5
    assert head.advance(HeadMark("a" * 32, 4, "4" * 64)).seq == 5
    for other in (HeadMark("a" * 32, 5, "6" * 64), HeadMark("b" * 32, 9, "9" * 64)):
        with pytest.raises(LedgerRolledBack, match="fork"):
            head.advance(other)
    assert head.read() == HeadMark("a" * 32, 5, "5" * 64)


# ------------------------------------------------------------------ adopting


@pytest.mark.parametrize("content", [b"dear to someone", b"x" * SLOTS * SLOT, b"dither-head-1 " + b"x" * SLOTS * SLOT])
@pytest.mark.parametrize("adopt", [False, True])
def test_a_head_that_is_another_file_is_left_alone(used, tmp_path, content, adopt):
    dear = tmp_path / "dear"
    dear.write_bytes(content)
    fresh = used.with_name("fresh")
    for ledger in (used, fresh):
        with pytest.raises(LedgerError, match=r"not the head|no ledger at"):
            opened(ledger, head=dear, adopt=adopt)
    assert dear.read_bytes() == content
    assert not fresh.exists()
    opened(used).close()


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 2 * SLOT, b"dither-head-1 torn", b"\0" * SLOT + b"dither-head-1 torn"]
)
def test_a_damaged_head_can_be_adopted(used, tmp_path, content):
    (tmp_path / "head").write_bytes(content)
    with pytest.raises(LedgerError):
        opened(used, head=tmp_path / "head")
    with opened(used, head=tmp_path / "head", adopt=True) as ledger:
        assert ledger.verify().adopted == 1
    opened(used, head=tmp_path / "head").close()


def test_adopting_verifies_before_it_moves_the_head(used, tmp_path, state):
    shutil.copy(used, tmp_path / "old")
    with opened(used) as ledger:
        answer(ledger, 10)
    db = sqlite3.connect(tmp_path / "old")
    db.execute("DROP TRIGGER account_spends_within_its_limit")
    db.execute("UPDATE account SET main_spent = 0")
    (trigger,) = (text for text in TRIGGERS.split("END;") if "account_spends" in text)
    db.execute(trigger.strip() + "END;")
    db.commit()
    db.close()
    shutil.copy(tmp_path / "old", used)
    heads = {path: path.read_bytes() for path in (state / "heads").iterdir()}
    with pytest.raises(LedgerCorrupt, match="balance"):
        opened(used, adopt=True)
    assert {path: path.read_bytes() for path in (state / "heads").iterdir()} == heads
    with sqlite3.connect(used) as db:
        assert db.execute("SELECT COUNT(*) FROM entry WHERE kind = ?", (EntryKind.ADOPTED.value,)).fetchone() == (0,)
    db.close()


def test_a_missing_ledger_is_made_only_if_wanted(place, used):
    for missing in (place.with_name("none"), place.with_name("empty")):
        if missing.name == "empty":
            missing.touch()
        with pytest.raises(LedgerError, match="there is no ledger at"):
            opened(missing, create=False)
    assert not place.with_name("none").exists()
    assert not place.with_name("none.owners").exists()
    with pytest.raises(LedgerError, match=r"no ledger at .* to adopt"):
        opened(place.with_name("none"), adopt=True)
    opened(used, create=False).close()
    used.unlink()
    with pytest.raises(LedgerRolledBack, match="gone"):
        opened(used, create=False)


# ------------------------------------------------------------------ looking things up


@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_one_balance_and_the_latest_entries(place, kind):
    with opened(place) if kind == "disk" else MemoryLedger() as ledger:
        ledger.set_limits({SHOP: Limit.pure(1)})
        answer(ledger, 1)
        answer(ledger, 2, BOB)
        for balance in ledger.balances():
            assert ledger.balance(balance.account) == balance
        assert ledger.balance(BOB).spent == Amount(125_000_000_000)
        assert ledger.balance(Account(("shop", "eve"))) is None
        entries = list(ledger.entries())
        for count in (0, 1, 3, len(entries), 100):
            assert ledger.latest(count) == entries[len(entries) - min(count, len(entries)) :]


def test_nothing_reads_all_accounts_to_find_one(place):
    with opened(place) as ledger:
        ledger.set_limits({SHOP: Limit.pure(1)})
        statements = []
        ledger._db.set_trace_callback(statements.append)
        ledger.balance(SHOP)
        answer(ledger, 1)
        ledger.set_limits({SHOP: Limit.pure(2)})
        ledger._db.set_trace_callback(None)
        looked = [text for text in statements if text.startswith("SELECT") and "FROM account" in text]
        assert len(looked) >= 3
        for text in looked:
            ((_, _, _, plan),) = ledger._db.execute("EXPLAIN QUERY PLAN " + text).fetchall()
            assert plan.startswith("SEARCH account")


# ------------------------------------------------------------------ owners and modes


def test_an_owner_that_is_no_token_is_dead_and_names_no_file(used):
    dear = used.with_name("dear")
    dear.write_text("to someone")
    owner = OwnerLock(used.with_name("ledger.db.owners"))
    (owner.directory / "stranger").write_text("not a sign of life")
    for token in ("../dear", "stranger", "", ".", str(dear), "A" * 32, "a" * 33):
        assert not owner.alive(token)
    assert dear.exists()
    assert (owner.directory / "stranger").exists()
    (owner.directory / ("a" * 32)).mkdir()
    (owner.directory / ("b" * 32)).symlink_to(dear)
    for token in ("a" * 32, "b" * 32):
        with pytest.raises(LedgerError, match="who else is at work"):
            owner.alive(token)
    assert dear.exists()
    owner.release()


def test_directories_of_the_state_are_the_owners_alone_and_flushed(used, state, tmp_path, monkeypatch):
    for directory in (state.parent, state, state / "heads", state / "ledgers"):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in state.rglob("*") if path.is_file()} == {0o600}
    flushed = []
    monkeypatch.setattr("dither.ledger.head.flush_directory", flushed.append)
    place = tmp_path / "some" / "where"
    HeadFile(place / "head").advance(HeadMark("a" * 32, 1, "1" * 64))
    assert flushed == [tmp_path, tmp_path / "some", place]
