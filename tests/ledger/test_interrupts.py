"""Interrupts between any two steps, threads that close, locks held elsewhere: no turn lost, no question stuck."""

import dis
import hashlib
import os
import signal
import sqlite3
import sys
import threading
import time
from pathlib import Path

import pytest

import dither.ledger
from dither.errors import LedgerBusy, LedgerError, LedgerUncertain
from dither.ledger import Account, Amount, Currency, EntryKind, Limit, MemoryLedger, SqliteLedger
from dither.privacy import Adjacency, PureLoss
from support.sizes import short_or_full

SHOP, ANA = Account(("shop",)), Account(("shop", "ana"))
PRICE = 10**9
PACKAGE = str(Path(dither.ledger.__file__).parent)


def opened(tmp_path, **other):
    kept_for = {"currency": Currency.PURE, "adjacency": Adjacency.ADD_REMOVE, "unit": "each row", "dataset": "shop"}
    return SqliteLedger.open(tmp_path / "ledger.db", head=tmp_path / "head", **kept_for, **other)


@pytest.fixture
def on_disk(tmp_path):
    with opened(tmp_path, lock_timeout=0.2) as ledger:
        ledger.set_limits({SHOP: Limit.pure(1000)})
        yield ledger


@pytest.fixture
def in_memory():
    with MemoryLedger() as ledger:
        ledger.set_limits({SHOP: Limit.pure(1000)})
        yield ledger


def key(question):
    return hashlib.sha256(str(question).encode()).hexdigest()


def ask(ledger, question, timeout=0.0):
    return ledger.reserve(key=key(question), account=ANA, loss=PureLoss("0.001"), note={}, timeout=timeout)


def answer(ledger, question):
    asked = ask(ledger, question)
    return asked if asked.answer is not None else ledger.record(asked, b"x")


class Interrupt:
    """KeyboardInterrupt at the n-th place where CPython looks for signals, inside the ledger: calls, loops, entries."""

    LOOKS = ("CALL", "RESUME", "JUMP_BACKWARD")

    def __init__(self, countdown):
        self.countdown = countdown
        self.fired = False
        self._names, self._last = {}, {}

    def __enter__(self):
        sys.settrace(self._entered)

    def __exit__(self, kind, problem, trace):
        sys.settrace(None)
        return kind is KeyboardInterrupt

    def _entered(self, frame, event, argument):
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return self._step

    def _step(self, frame, event, argument):
        if event != "opcode":
            return self._step
        code = frame.f_code
        if code not in self._names:
            self._names[code] = {step.offset: step.opname for step in dis.get_instructions(code)}
        before, self._last[id(frame)] = self._last.get(id(frame), ""), self._names[code].get(frame.f_lasti, "")
        if before.startswith(self.LOOKS):
            self.countdown -= 1
            if self.countdown == 0:
                self.fired = True
                raise KeyboardInterrupt
        return self._step


def sweep(ledger, act, *, first, stride, most=10**9):
    """Interrupt ``act(question)`` at every ``stride``-th place; afterwards everything is in order, and free if paid."""
    places = 0
    for places in range(first, most, stride):
        interrupt = Interrupt(places)
        with interrupt:
            act(places)
        assert not ledger._writer.turn.locked()
        assert answer(ledger, places).answer == b"x"
        assert not ledger._writer._queue
        if not interrupt.fired:
            break
    asked = len(range(first, places + 1, stride))
    assert {balance.spent.main for balance in ledger.balances()} == {asked * PRICE}
    ledger.verify()
    return asked


def test_an_interrupt_at_every_place_of_a_question(in_memory):
    def whole(question):
        asked = ask(in_memory, question)
        in_memory.record(asked, b"x")

    stride = short_or_full(14, 2)
    assert sweep(in_memory, whole, first=1, stride=stride) > 200 // stride


def test_an_interrupt_at_every_place_of_a_failure(in_memory):
    def whole(question):
        in_memory.fail(ask(in_memory, question), "cause")
        in_memory.balances()

    stride = short_or_full(14, 2)
    assert sweep(in_memory, whole, first=2, stride=stride) > 160 // stride


def test_an_interrupt_anywhere_on_disk(on_disk):
    def whole(question):
        asked = ask(on_disk, question)
        on_disk.record(asked, b"x")

    stride = short_or_full(28, 7)
    assert sweep(on_disk, whole, first=1, stride=stride) > 210 // stride
    assert on_disk.head.read().seq == len(list(on_disk.entries()))


def test_interrupts_are_noticed_where_a_turn_could_be_lost(in_memory, monkeypatch):
    """The sweep has power: a turn that is taken and then guarded is lost by an interrupt in between."""

    def hasty(look):
        in_memory._writer.turn.acquire()
        try:
            return look()
        finally:
            in_memory._writer.turn.release()

    monkeypatch.setattr(in_memory._writer, "read", hasty)
    # here the package's own places are followed only, so the mutant is made to look like one of them
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", str(Path(__file__)))
    lost = False
    for places in range(1, 60):
        with Interrupt(places):
            in_memory.balances()
        if in_memory._writer.turn.locked():
            lost = True
            in_memory._writer.turn.release()
    assert lost


def test_whoever_works_for_others_and_is_interrupted_leaves_nobody_waiting(on_disk):
    """The main thread leads, another thread's question is in its batch, and the interrupt comes anywhere."""
    outcomes, batch, leaders = [], on_disk._writer._batch, []

    def led_by():
        leaders.append(threading.current_thread())
        batch()

    on_disk._writer._batch = led_by

    def other(question):
        try:
            outcomes.append(on_disk.record(ask(on_disk, question), b"x").answer)
        except LedgerUncertain as problem:
            outcomes.append(problem)

    def led(question):
        worker = threading.Thread(target=other, args=(f"other {question}",), daemon=True)
        try:
            with on_disk._writer.turn:
                worker.start()
                while not on_disk._writer._queue:
                    time.sleep(0.0001)
            ask(on_disk, question)
        finally:
            sys.settrace(None)
            worker.join(10)
            assert not worker.is_alive()

    asked = 0
    stride = short_or_full(92, 23)
    for places in range(1, 10**6, stride):
        leaders.clear()
        interrupt = Interrupt(places)
        with interrupt:
            led(places)
        # where the other thread was sooner, this one had less to do: that it came to its end says nothing
        through = not interrupt.fired and leaders[:1] == [threading.current_thread()]
        answer(on_disk, places)
        answer(on_disk, f"other {places}")
        asked += 2
        if through:
            break
    assert len(outcomes) == asked // 2 > 230 // stride
    assert {balance.spent.main for balance in on_disk.balances()} == {asked * PRICE}
    on_disk.verify()


def test_a_job_that_others_did_for_an_interrupted_asker_is_undone(on_disk, tmp_path, monkeypatch):
    """A real SIGINT in the waiting main thread, while another thread has its question in a transaction."""
    writer, reserve = on_disk._writer, on_disk._books.reserve

    struck, taken = threading.Event(), threading.Event()

    def interrupting(request):
        given = reserve(request)
        os.kill(os.getpid(), signal.SIGINT)
        # on a busy machine the main thread may need a while to be interrupted; it must not be the next test's
        struck.wait(10)
        return given

    def lead():
        with writer.turn:
            taken.set()
            while not writer._queue:
                time.sleep(0.001)
            writer._batch()

    worker = threading.Thread(target=lead)
    worker.start()
    taken.wait(10)
    with monkeypatch.context() as patched:
        patched.setattr(on_disk._books, "reserve", interrupting)
        with pytest.raises(KeyboardInterrupt):
            ask(on_disk, 1)
        struck.set()
        worker.join()
    assert on_disk.paid(key(1), ANA)
    with opened(tmp_path) as elsewhere:
        with pytest.raises(LedgerBusy):
            ask(elsewhere, 1)  # the owner lives, and has not yet written that it gave up
        answer(on_disk, 2)
        redeemed = ask(elsewhere, 1)
        assert (redeemed.answer, redeemed.charged) == (None, Amount())
        elsewhere.record(redeemed, b"x")
    assert on_disk.balance(SHOP).spent == Amount(2 * PRICE)
    assert [entry.kind for entry in on_disk.entries()].count(EntryKind.FAILED) == 1
    on_disk.verify()


@pytest.mark.parametrize("where", ["on_disk", "in_memory"])
def test_a_job_that_fails_after_it_wrote_breaks_no_chain(where, request):
    """Three in one transaction: what the second appended is rolled back, and the third follows the first."""
    ledger = request.getfixturevalue(where)
    before, commits = len(list(ledger.entries())), ledger.commits

    def spoiled():
        ledger._books.append(EntryKind.LIMITS, {"limits": []})
        raise LedgerError("on purpose")

    ledger._writer.later(lambda: ledger._books.set_limits({ANA: Limit.pure(3)}))
    ledger._writer.later(spoiled)
    asked = ask(ledger, 1)
    assert ledger.commits == commits + 1
    assert [entry.kind for entry in ledger.entries(after=before)] == [EntryKind.LIMITS, EntryKind.RESERVE]
    assert (asked.receipt.seq, asked.claim) == (before + 2, before + 2)
    ledger._writer.later(spoiled)
    assert ledger.record(asked, b"x").answer == b"x"
    assert ledger.verify().entries == before + 3
    if where == "on_disk":
        assert ledger.head.read().seq == before + 3


def test_the_receipt_of_a_charge_is_the_one_that_is_found_later(on_disk):
    """It is made from what was written, not read back: nothing of it may differ."""
    for question, account in ((1, ANA), (2, SHOP), (3, Account(("shop", "zoë", "x")))):
        loss = PureLoss("0.001")
        asked = on_disk.reserve(key=key(question), account=account, loss=loss, note={"deep": (1, {"b": 2.5})})
        assert asked.receipt == on_disk.find(key(question), account)
        (entry,) = on_disk.entries(after=asked.receipt.seq - 1)
        assert entry.body["note"] == {"deep": [1, {"b": 2.5}]}
        assert (entry.hash, entry.at, entry.body["number"]) == (
            asked.receipt.hash,
            asked.receipt.at,
            asked.receipt.number,
        )
        on_disk.record(asked, b"x")


def test_a_reservation_that_was_lost_is_redeemed_by_the_same_process(on_disk):
    asked = ask(on_disk, 1)
    with pytest.raises(LedgerBusy):
        ask(on_disk, 1)
    del asked  # as when an interrupt strikes before the caller could write down what it got
    again = ask(on_disk, 1)
    assert (again.answer, again.charged) == (None, Amount())
    assert on_disk.record(again, b"x").answer == b"x"


@pytest.mark.parametrize("where", ["on_disk", "in_memory"])
def test_giving_up_lets_the_same_question_be_redeemed_at_once(where, request):
    ledger = request.getfixturevalue(where)
    first = ask(ledger, 1)
    ledger.give_up(first)
    second = ask(ledger, 1)
    assert (second.answer, second.charged) == (None, Amount())
    with pytest.raises(LedgerError, match="must not be released"):
        ledger.record(first, b"stale")
    assert ledger.record(second, b"x").answer == b"x"
    ledger.give_up(second)
    assert ask(ledger, 1).answer == b"x"
    assert ledger.balance(SHOP).spent == Amount(PRICE)
    ledger.verify()
    ledger.close()
    ledger.give_up(second)


def test_recording_while_another_process_holds_the_lock(on_disk):
    reservation = ask(on_disk, 1)
    other = sqlite3.connect(on_disk.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerBusy, match="was charged and its receipt is kept") as busy:
        on_disk.record(reservation, b"x")
    assert "nothing was charged" not in str(busy.value)
    with pytest.raises(LedgerBusy):
        on_disk.fail(reservation, "cause")
    on_disk.give_up(reservation)
    other.execute("ROLLBACK")
    other.close()
    again = ask(on_disk, 1)
    assert again.charged == Amount()
    assert on_disk.record(again, b"y").answer == b"y"
    assert on_disk.balance(SHOP).spent == Amount(PRICE)


def test_recording_again_after_the_lock_was_let_go(on_disk):
    reservation = ask(on_disk, 1)
    other = sqlite3.connect(on_disk.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerBusy):
        on_disk.record(reservation, b"x")
    other.execute("ROLLBACK")
    other.close()
    for _ in range(2):
        assert on_disk.record(reservation, b"x").answer == b"x"
    with pytest.raises(LedgerError, match="must not be released"):
        on_disk.record(reservation, b"y")
    assert [entry.kind for entry in on_disk.entries()].count(EntryKind.ANSWER) == 1
    on_disk.verify()


def test_a_commit_that_fails_is_uncertain_and_ends_the_object(on_disk, tmp_path, monkeypatch):
    class Failing:
        def __init__(self, db):
            self._db = db

        def __getattr__(self, name):
            return getattr(self._db, name)

        def execute(self, statement, *arguments):
            if statement == "COMMIT":
                raise sqlite3.OperationalError("disk I/O error")
            return self._db.execute(statement, *arguments)

    monkeypatch.setattr(on_disk._writer, "_db", Failing(on_disk._db))
    with pytest.raises(LedgerUncertain) as refused:
        ask(on_disk, 1)
    assert "I/O" not in str(refused.value)
    with pytest.raises(LedgerError, match="open the ledger again"):
        ask(on_disk, 1)
    with opened(tmp_path) as again:
        assert answer(again, 1).answer == b"x"
        assert again.balance(SHOP).spent == Amount(PRICE)


@pytest.mark.parametrize("where", ["on_disk", "in_memory"])
def test_closing_under_running_threads_says_closed(where, request):
    ledger = request.getfixturevalue(where)
    problems = []

    def work(worker):
        try:
            for question in range(10**6):
                answer(ledger, (worker, question))
                ledger.balances()
                ledger.latest(3)
        except BaseException as problem:  # noqa: BLE001 told below
            problems.append(problem)

    workers = [threading.Thread(target=work, args=(worker,), daemon=True) for worker in range(5)]
    for worker in workers:
        worker.start()
    time.sleep(0.1)
    ledger.close()
    for worker in workers:
        worker.join(10)
    assert [(type(problem), str(problem)) for problem in problems] == [
        (LedgerError, "the ledger was closed: open it again")
    ] * 5


def test_an_interrupted_close_can_be_finished(tmp_path):
    for places in range(1, 100):
        ledger = opened(tmp_path)
        interrupt = Interrupt(places)
        with interrupt:
            ledger.close()
        ledger.close()
        assert not list((tmp_path / "ledger.db.owners").iterdir())
        with pytest.raises(sqlite3.ProgrammingError):
            ledger._db.execute("SELECT 1")
        if not interrupt.fired:
            break
    assert places > 5
