"""Every way in which a ledger's file can't be opened or used: a clear error, and nothing lost."""

import hashlib
import itertools
import os
import secrets
import sqlite3
import stat

import pytest

from dither.errors import LedgerBusy, LedgerCorrupt, LedgerError, LedgerMismatch, LedgerRolledBack, OutOfBudget
from dither.ledger import Account, Amount, Currency, Limit
from dither.ledger.entry import GENESIS, link
from dither.ledger.head import SLOT, HeadFile
from dither.privacy import Adjacency, PureLoss
from dither.privacy.unit import Unit

from .files import ANA, BOB, SHOP, answer, ask, key, opened


def test_opening_again_keeps_everything(used):
    with opened(used) as ledger:
        before = list(ledger._db.iterdump())
    with opened(used) as ledger:
        assert list(ledger._db.iterdump()) == before
        assert answer(ledger, 1).charged == Amount()
        left = ask(ledger, 3)  # its owner closed the ledger
        assert (left.answer, left.charged) == (None, Amount())


def test_an_owner_that_is_alive_is_waited_for(used):
    with opened(used) as first, opened(used) as second:
        reservation = ask(first, 20)
        with pytest.raises(LedgerBusy):
            ask(second, 20, timeout=0.05)
        first.record(reservation, b"x")
        assert ask(second, 20, BOB).answer == b"x"


def test_a_reservation_belongs_to_the_ledger_that_gave_it(used):
    with opened(used) as first, opened(used) as second:
        reservation = ask(first, 20)
        with pytest.raises(LedgerError, match="must not be released"):
            second.record(reservation, b"x")
        second.fail(reservation, "not mine to give up")
        assert first.record(reservation, b"x").answer == b"x"


def test_a_claim_taken_over_can_not_answer(used):
    first, second = opened(used), opened(used)
    stale = ask(first, 20)
    first._guard._owner.forget()  # as if the process were dead, though it isn't: a wrong verdict must do no harm
    fresh = ask(second, 20)
    assert fresh.charged == Amount()
    with pytest.raises(LedgerError, match="must not be released"):
        first.record(stale, b"stale")
    assert second.record(fresh, b"fresh").answer == b"fresh"
    with pytest.raises(LedgerError, match="must not be released"):
        first.record(stale, b"stale")
    first.fail(stale, "too late")
    second.verify()
    first.close()
    second.close()


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"currency": Currency.ZCDP}, "currency: the ledger has 'pure', now asked for 'zcdp'"),
        ({"adjacency": Adjacency.REPLACE}, "adjacency: the ledger has 'add_remove'"),
        ({"unit": "each row"}, "unit: the ledger has 'each user_id', now asked for 'each row'"),
        ({"dataset": "cellar"}, "dataset"),
    ],
)
def test_a_ledger_of_something_else_is_refused(used, other, said):
    before = used.read_bytes()
    with pytest.raises(LedgerMismatch, match=said) as refused:
        opened(used, **other)
    assert "can't be converted" in str(refused.value)
    assert used.read_bytes() == before


def no_engine_words(problem):
    assert "sqlite" not in str(problem).lower() or "SQLite database but no ledger" in str(problem)


@pytest.mark.parametrize("size", [1, 16, 100, 4096, 20_000])
def test_a_file_that_is_no_database_is_refused_and_kept(place, size):
    content = b"not a ledger, but dear to someone\n" * (size // 34 + 1)
    place.write_bytes(content)
    with pytest.raises(LedgerCorrupt) as refused:
        opened(place)
    no_engine_words(refused.value)
    assert place.read_bytes() == content


def test_a_damaged_ledger_is_refused_and_kept(used):
    content = bytearray(used.read_bytes())
    for page in range(4096, len(content), 4096):
        content[page : page + 64] = b"\xff" * 64
    used.write_bytes(content)
    with pytest.raises((LedgerCorrupt, LedgerRolledBack)) as refused, opened(used) as ledger:
        ledger.verify()
    no_engine_words(refused.value)


def test_a_truncated_ledger_is_refused(used):
    used.write_bytes(used.read_bytes()[:8192])
    with pytest.raises((LedgerCorrupt, LedgerRolledBack)), opened(used) as ledger:
        ledger.verify()


def test_another_database_is_refused_and_not_changed(place):
    db = sqlite3.connect(place)
    db.execute("CREATE TABLE mine(x)")
    db.commit()
    db.close()
    before = place.read_bytes()
    with pytest.raises(LedgerError, match="no ledger"):
        opened(place)
    assert place.read_bytes() == before


@pytest.mark.parametrize("version", [3, 99])
def test_an_unknown_format_is_refused(used, version):
    db = sqlite3.connect(used)
    db.execute(f"PRAGMA user_version = {version}")
    db.close()
    with pytest.raises(LedgerError, match=f"format {version}"):
        opened(used)


def test_a_ledger_without_a_format_is_damaged(used):
    db = sqlite3.connect(used)
    db.execute("PRAGMA user_version = 0")
    db.close()
    with pytest.raises(LedgerCorrupt, match="first page"):
        opened(used)


def test_a_locked_ledger_is_busy_and_loses_nothing(used):
    with opened(used) as ledger:
        before = ledger.balances()
        other = sqlite3.connect(used, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        for act in (lambda: ask(ledger, 30), lambda: ledger.set_limits({SHOP: Limit.pure(9)})):
            with pytest.raises(LedgerBusy, match="another process") as refused:
                act()
            no_engine_words(refused.value)
        with pytest.raises(LedgerBusy):
            opened(used)
        other.execute("ROLLBACK")
        other.close()
        assert ledger.balances() == before
        answer(ledger, 30)


def test_places_that_cant_hold_a_ledger(place, tmp_path):
    with pytest.raises(LedgerError, match="no directory"):
        opened(tmp_path / "nowhere" / "ledger.db")
    with pytest.raises(LedgerError, match="no file"):
        opened(place.parent)
    (place.parent / "ledger.db.owners").write_text("in the way")
    with pytest.raises(LedgerError, match="directory of the ledger"):
        opened(place)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_read_only_directory_is_refused(used):
    used.parent.chmod(0o500)
    try:
        with pytest.raises(LedgerError, match="writable"):
            opened(used)
    finally:
        used.parent.chmod(0o700)


def test_a_ledger_that_turns_read_only_refuses(used):
    with opened(used) as ledger:
        ledger._db.execute("PRAGMA query_only = ON")
        with pytest.raises(LedgerError, match="writable"):
            ask(ledger, 30)
        ledger._db.execute("PRAGMA query_only = OFF")
        ledger.verify()


def test_a_full_disk_refuses_and_loses_nothing(used):
    with opened(used) as ledger:
        before = ledger.balances()
        (pages,) = ledger._db.execute("PRAGMA page_count").fetchone()
        ledger._db.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(LedgerError, match="full"):
            ledger.reserve(key=key(30), account=ANA, loss=PureLoss(0), note={"long": "x" * 50_000})
        ledger._db.execute("PRAGMA max_page_count = 1000000")
        assert ledger.balances() == before
        answer(ledger, 30)
        ledger.verify()


def test_no_home_and_no_locks_are_said_clearly(place, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr("dither.ledger.head.fcntl", None)
        with pytest.raises(LedgerError, match="POSIX"):
            opened(place)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr("pathlib.Path.home", _no_home)
    with pytest.raises(LedgerError, match="head="):
        opened(place)


def _no_home():
    raise RuntimeError


def test_an_old_sqlite_is_refused(place, monkeypatch):
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 36, 0))
    with pytest.raises(LedgerError, match=r"SQLite 3\.37"):
        opened(place)


def test_files_are_the_owners_alone(place):
    with opened(place) as ledger:
        ledger.set_limits({SHOP: Limit.pure(1)})
        answer(ledger, 1)
        files = [path for path in place.parent.rglob("*") if path.is_file()] + [ledger.head.path]
        assert len(files) == 5  # the ledger, its write-ahead log, its shared memory, the sign of life, the head
        assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_the_settings_that_make_commits_durable(place):
    with opened(place) as ledger:
        settings = {
            name: ledger._db.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "foreign_keys", "recursive_triggers", "user_version")
        }
    assert settings == {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "recursive_triggers": 1,
        "user_version": 2,
    }


def test_the_form_of_the_chain_is_permanent():
    assert link(1, "2026-01-01T00:00:00.000Z", "limits", '{"limits":[]}', GENESIS) == (
        hashlib.sha256(
            b'["dither-ledger-1",1,"2026-01-01T00:00:00.000Z","limits","{\\"limits\\":[]}","' + b"0" * 64 + b'"]'
        ).hexdigest()
    )


def test_what_is_written_is_permanent(place, tmp_path, monkeypatch):
    """Given the time and the random numbers, every entry and the head are the same bytes, for ever."""
    number, minute = itertools.count(1), itertools.count(1)
    monkeypatch.setattr(secrets, "token_hex", lambda size: f"{next(number):0{2 * size}x}")
    monkeypatch.setattr("dither.ledger.store.charge_or_replay.now", lambda: f"2026-01-01T00:{next(minute):02d}:00.000Z")
    head = tmp_path / "head"
    with opened(place, head=head) as ledger:
        ledger.set_limits({SHOP: Limit.pure(2), BOB: Limit(10**12, 0, Currency.PURE, counts={"hits": 2})})
        first = answer(ledger, 1).receipt
        answer(ledger, 1, BOB)
        ledger.record(ask(ledger, 5, counts={"hits": 1}, continues=first.seq), b"more exact")
        ledger.bind({"orders": Unit(("shop", "customer")), "visits": Unit(("shop", "customer"))})
        ledger.fail(ask(ledger, 2), "cause")
        redeemed = ask(ledger, 2, BOB)
        ledger.record(redeemed, b"later")
        with pytest.raises(OutOfBudget):
            ledger.reserve(key=key(3), account=BOB, loss=PureLoss(1), note={})
        note = {"sql": "SELECT 'é'\n", "n": [1, 2.5, None, True], "z": {"b": 1, "a": (1, 2)}}
        ledger.record(
            ledger.reserve(key=key(4), account=Account(("shop", "a", "ñ")), loss=PureLoss("1/3"), note=note), b""
        )
        tables = ("entry", "account", "question", "seal")
        kept = [ledger._db.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall() for table in tables]
    assert (
        hashlib.sha256(repr(kept).encode()).hexdigest()
        == "fb9b87f83a8092e6a2dfb5788e188a0638c28402dff186acc53cc9bbb92a0e9f"
    )
    slots = head.read_bytes()
    assert (
        hashlib.sha256(slots[: 2 * SLOT]).hexdigest()
        == "2cb3944a33f6f78254c37574d4ce4041e0d7ee58522700da93bb459fbdd9e054"
    )
    # the last entry was announced before it was committed
    assert slots[2 * SLOT :] == HeadFile(head).read().slot()


def test_lowering_a_limit_below_what_was_spent_survives_verify(used):
    with opened(used) as ledger:
        ledger.set_limits({SHOP: Limit.pure("1/8")})
        with pytest.raises(OutOfBudget):
            ask(ledger, 40)
        verified = ledger.verify()
        assert verified.balances == ledger.balances()
        assert verified.balances[0].remaining == Amount()


def test_another_process_is_waited_for_by_short_looks(used, monkeypatch):
    """SQLite's own pauses grow to a tenth of a second: whoever looks so seldom is left behind by those who don't."""
    pauses = []
    with opened(used, lock_timeout=20.0) as ledger, sqlite3.connect(used, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")

        def paused(seconds):
            pauses.append(seconds)
            if len(pauses) == 5:
                other.execute("ROLLBACK")

        monkeypatch.setattr("dither.ledger.store.one_writer.time.sleep", paused)
        assert ask(ledger, 20).charged != Amount()
        # and everything else still waits as long as was said
        assert ledger._db.execute("PRAGMA busy_timeout").fetchone() == (20_000,)
    other.close()
    assert len(pauses) == 5
    assert 0 < min(pauses) <= max(pauses) < 0.001
