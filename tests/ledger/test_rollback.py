"""Old copies, forks, lost files: the head that is kept in a second place notices."""

import shutil

import pytest

from dither.errors import LedgerCorrupt, LedgerError, LedgerRolledBack, LedgerUncertain
from dither.ledger import EntryKind, Limit
from dither.ledger.head import SLOT, HeadFile, HeadMark

from .files import SHOP, answer, ask, opened


def copy(place, name):
    shutil.copy(place, place.with_name(name))
    return place.with_name(name)


def test_an_old_copy_is_refused(used):
    old = copy(used, "old")
    with opened(used) as ledger:
        answer(ledger, 10)
        spent = ledger.balances()
    new = copy(used, "new")
    shutil.copy(old, used)
    with pytest.raises(LedgerRolledBack, match="ends at entry 10, and 12 are known"):
        opened(used)
    shutil.copy(new, used)
    with opened(used) as ledger:
        assert ledger.balances() == spent
        ledger.verify()


def test_an_old_copy_under_another_name_is_refused(used):
    old = copy(used, "old")
    with opened(used) as ledger:
        answer(ledger, 10)
    with pytest.raises(LedgerRolledBack):
        opened(old)


def test_a_copy_without_the_write_ahead_log_is_refused(used):
    with opened(used) as ledger:
        answer(ledger, 10)
        partial = copy(used, "partial")
    with pytest.raises(LedgerRolledBack, match="ends at entry 10, and 12 are known"):
        opened(partial)


def test_a_fork_is_refused(used, state):
    fork = copy(used, "fork")
    heads = {path: path.read_bytes() for path in (state / "heads").iterdir()}
    with opened(used) as ledger:
        answer(ledger, 10)
        answer(ledger, 11)
    after = {path: path.read_bytes() for path in heads}
    for path, content in heads.items():
        path.write_bytes(content)
    with opened(fork) as ledger:
        for question in range(20, 24):
            answer(ledger, question)
    for path, content in after.items():
        path.write_bytes(content)
    with pytest.raises(LedgerRolledBack, match="fork"):
        opened(fork)
    with opened(used) as ledger:
        ledger.verify()


def test_a_ledger_that_is_rolled_back_while_open_answers_nothing(used):
    with opened(used) as ledger:
        head = ledger.head.read()
        answer(ledger, 10)
        HeadFile(ledger.head.path).advance(HeadMark(head.ledger, head.seq + 50, "f" * 64))
        for act in (lambda: ask(ledger, 11), lambda: ask(ledger, 1), ledger.verify):
            with pytest.raises(LedgerRolledBack):
                act()
    with pytest.raises(LedgerRolledBack):
        opened(used)


def test_a_file_that_is_replaced_while_open_is_noticed(used):
    old = copy(used, "old")
    with opened(used) as ledger:
        used.unlink()
        for act in (lambda: ask(ledger, 11), ledger.verify):
            with pytest.raises(LedgerError, match="moved or replaced"):
                act()
        old.rename(used)
        with pytest.raises(LedgerError, match="moved or replaced"):
            ask(ledger, 11)


def test_a_lost_ledger_is_not_begun_anew(used):
    used.unlink()
    with pytest.raises(LedgerRolledBack, match="gone"):
        opened(used)
    assert not used.exists()
    used.touch()
    with pytest.raises(LedgerRolledBack, match="gone"):
        opened(used)
    with opened(used, adopt=True) as ledger:
        known = [entry.body["known"] for entry in ledger.entries() if entry.kind is EntryKind.ADOPTED]
        assert [mark["seq"] for mark in known] == [10]
        assert ledger.verify().adopted == 1
    with opened(used) as ledger:
        assert ledger.balances() == ()


def test_another_ledger_in_its_place_is_refused(used):
    """A fresh ledger, properly made elsewhere and put where a spent one was."""
    fresh = used.with_name("fresh")
    opened(fresh).close()
    spent = copy(used, "spent")
    fresh.replace(used)
    with pytest.raises(LedgerRolledBack, match="another ledger"):
        opened(used)
    with opened(spent) as ledger:  # moving the file is no offence, as long as its head is known
        ledger.verify()
    with opened(used, adopt=True) as ledger:
        assert ledger.verify().adopted == 1
    opened(used).close()


def test_a_lost_ledger_with_a_head_of_its_own_is_not_begun_anew(place, tmp_path):
    with opened(place, head=tmp_path / "head") as ledger:
        ledger.set_limits({SHOP: Limit.pure(1)})
    place.unlink()
    with pytest.raises(LedgerRolledBack, match="gone"):
        opened(place, head=tmp_path / "head")
    with pytest.raises(LedgerError, match=r"no ledger at .* to adopt"):
        opened(place, head=tmp_path / "head", adopt=True)
    place.touch()
    with opened(place, head=tmp_path / "head", adopt=True) as ledger:
        assert ledger.verify().adopted == 1
    opened(place, head=tmp_path / "head").close()


def test_a_missing_head_is_refused_until_adopted(used, state):
    shutil.rmtree(state)
    with pytest.raises(LedgerRolledBack, match="adopt"):
        opened(used)
    with opened(used, adopt=True) as ledger:
        assert [entry.body["known"] for entry in ledger.entries() if entry.kind is EntryKind.ADOPTED] == [None]
        assert ledger.verify().adopted == 1
    with opened(used, adopt=True) as ledger:
        assert ledger.verify().adopted == 1  # nothing to adopt
    with opened(used) as ledger:
        answer(ledger, 10)


def test_an_old_copy_can_be_adopted_and_that_is_logged(used):
    old = copy(used, "old")
    with opened(used) as ledger:
        answer(ledger, 10)
        head = ledger.head.read()
    shutil.copy(old, used)
    with opened(used, adopt=True) as ledger:
        known = {"ledger": head.ledger, "seq": head.seq, "hash": head.hash}
        assert [entry.body["known"] for entry in ledger.entries() if entry.kind is EntryKind.ADOPTED] == [known]
    with opened(used) as ledger:
        assert ledger.verify().adopted == 1


def test_a_head_that_is_behind_is_moved_on(used, state):
    (path,) = (state / "heads").iterdir()
    before = path.read_bytes()
    with opened(used) as ledger:
        answer(ledger, 10)
    path.write_bytes(before)  # as after a crash between commit and head
    with opened(used) as ledger:
        assert ledger.head.read().seq == 12


def test_a_replayed_answer_is_covered_by_the_head(used, state):
    """Its writer may have died before the head was written; what leaves must be covered all the same."""
    with opened(used) as ledger:
        before = ledger.head.path.read_bytes()
        answer(ledger, 10)
        ledger.head.path.write_bytes(before)
        assert ask(ledger, 10).replayed
        assert ledger.head.read().seq == 12


def test_the_head_survives_a_torn_write(tmp_path):
    head = HeadFile(tmp_path / "deep" / "head")
    assert head.read() is None
    marks = [HeadMark("a" * 32, seq, f"{seq:064x}") for seq in range(1, 6)]
    for mark in marks:
        head.advance(mark)
        assert head.read() == mark
    head.advance(marks[1])
    assert head.read() == marks[-1]
    content = head.path.read_bytes()
    for slot in range(2):
        torn = bytearray(content)
        torn[slot * SLOT + 30 : (slot + 1) * SLOT] = b"\0" * (SLOT - 30)
        head.path.write_bytes(torn)
        assert head.read() in marks[-2:]
        head.advance(HeadMark("a" * 32, 9, "9" * 64))
        assert head.read().seq == 9
    head.path.write_bytes(b"\0" * 2 * SLOT)
    with pytest.raises(LedgerCorrupt, match="head"):
        head.read()


def test_a_head_of_another_ledger_is_refused(used, tmp_path):
    head = tmp_path / "head"
    HeadFile(head).advance(HeadMark("b" * 32, 3, "3" * 64))
    with pytest.raises(LedgerRolledBack, match="another ledger"):
        opened(used, head=head)


def test_a_head_that_cant_be_written_releases_nothing(used, monkeypatch):
    with opened(used) as ledger:
        reservation = ask(ledger, 10)
        with monkeypatch.context() as patched:
            patched.setattr("dither.ledger.head.flush", _fails)
            with pytest.raises(LedgerUncertain, match="head"):
                ledger.record(reservation, b"x")
            with pytest.raises(LedgerError, match="head"):
                ask(ledger, 10)
        # the commit itself was durable: the answer is on record, and paid for
        assert ask(ledger, 10).answer == b"x"
        assert ledger.head.read().seq == 12
        ledger.verify()


def _fails(descriptor):
    raise OSError(5, "no")
