"""One writer at a time: what stops two processes, or two threads, from writing the ledger at once.

With it what ledgers on SQLite share, in a file or in memory: connections and the contract.

An interrupt (Ctrl-C) may strike between any two steps of the main thread, which may be doing the work of others. So the
turn is only ever taken by ``with`` on the lock itself, which can't lose it; a job leaves the queue only once its asker
was told; and the next thread that takes the turn first rolls back what was left half done.
"""

from __future__ import annotations

import contextlib
import copy
import os
import sqlite3
import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Generic, TypeVar

from dither.errors import (
    DitherError,
    IncompatibleLosses,
    InvalidParameter,
    LedgerBusy,
    LedgerCorrupt,
    LedgerError,
    LedgerRolledBack,
    LedgerUncertain,
)
from dither.ledger.amount import Account, Amount, Currency, Limit, Sum, Units, expect_counts, with_further_tables
from dither.ledger.base import GIVEN_UP, PATIENCE, Ledger
from dither.ledger.entry import (
    Balance,
    Entry,
    Receipt,
    Reservation,
    Verified,
    as_stored,
    expect_key,
    read_entry,
)
from dither.ledger.store.charge_or_replay import Books, ChargeRequest
from dither.privacy import Adjacency, PrivacyLoss
from dither.privacy.loss import expect_loss

T = TypeVar("T")
LONGEST_WAIT = 0.05
# seconds between looks whether another process is done writing, at first and at last
FIRST_POLL, LAST_POLL = 0.0003, 0.01
BROKEN = (
    "writing to the ledger failed, so that it isn't known here what was recorded: open the ledger again; what was "
    "charged can be redeemed at no cost by asking the same"
)
ASK_AGAIN = "nothing was released; ask the same again, at no further cost if it was charged"


class Guard:
    """What stands beside the tables and says how far they have got; nothing does for a ledger in memory."""

    def expect_same_file(self) -> None:
        """Raise if the file isn't the one that was opened."""

    def expect_in_chain(self) -> None:
        """Raise unless the log, as this transaction sees it, goes on from where it is known to have got."""

    def announce(self) -> None:
        """Say, before the commit, how far the ledger is about to get."""

    def advance(self) -> None:
        """Note, after the commit, how far the ledger has got."""

    def let_go(self) -> None:
        """Give up the sign of life, so that others can redeem what was left open."""


class _Job(Generic[T]):
    """Something to do inside a transaction, and later its outcome."""

    def __init__(self, work: Callable[[], T], undo: Callable[[T], object] | None) -> None:
        self.work, self.undo = work, undo
        self.done = False
        self.abandoned = False
        self.results: list[T] = []
        self.problem: BaseException | None = None
        # a Lock used as a one-shot event: an Event has a lock inside that an interrupted thread could keep
        self.event = threading.Lock()
        self.event.acquire()

    def notify(self) -> None:
        with contextlib.suppress(RuntimeError):  # was notified already
            self.event.release()

    def wait(self) -> None:
        self.event.acquire(timeout=LONGEST_WAIT)

    def outcome(self) -> T:
        # taken out, so that the traceback, which holds this job, doesn't keep its caller's reservation alive
        problem, self.problem = self.problem, None
        try:
            if problem is not None:
                raise problem
            return self.results[0]
        finally:
            del problem


class Writer:
    """Runs work in transactions, many callers' work in one: the outcome is told only after the commit is durable.

    If the commit or what follows it fails, nobody is told anything but that; after a commit that failed the ledger
    isn't used any more. Other processes are waited for ``patience`` seconds.
    """

    def __init__(self, db: sqlite3.Connection, books: Books, guard: Guard, *, patience: float = 0.0) -> None:
        self._db, self._books, self._guard, self._patience = db, books, guard, patience
        self._process, self._unusable = os.getpid(), ""
        self._queue: deque[_Job[Any]] = deque()
        self._committing = False
        self.turn = threading.Lock()
        self.commits = 0

    @property
    def is_inherited(self) -> bool:
        """Whether this is the copy of a forked child."""
        return os.getpid() != self._process

    def expect_usable(self) -> None:
        """Raise if the ledger can't be used, or not any more."""
        if self.is_inherited:
            raise LedgerError("a ledger can't be shared with a forked process: open it again there")
        if self._unusable:
            raise LedgerError(self._unusable)

    def close(self) -> None:
        """Let go of the tables; every step may be done again, since closing, too, can be interrupted."""
        with self.turn:
            self._unusable = CLOSED
            self._guard.let_go()
            self._db.close()

    def run(self, work: Callable[[], T], *, undo: Callable[[T], object] | None = None) -> T:
        """Do the work in a transaction of its own or of several, and return when it is durable.

        The work may be done a second time if the first was rolled back. ``undo`` is done in a later transaction if the
        work was done and its outcome could not be told: its asker was interrupted.
        """
        job = _Job(work, undo)
        try:
            self._queue.append(job)
            while not job.done:
                if self.turn.locked():
                    # the thread that has the turn does this job too, or notifies; the timeout is for lost interrupts
                    job.wait()
                    continue
                with self.turn:
                    if not job.done:
                        self._batch()
                self._notify_next()
            return job.outcome()
        except BaseException:
            self._abandon(job)
            raise

    def later(self, work: Callable[[], object]) -> None:
        """Queue this for the next transaction; its outcome is discarded."""
        self._queue.append(_Job(work, None))

    def read(self, look: Callable[[], T]) -> T:
        """Look something up while no transaction of this process is under way."""
        with self.turn:
            self.expect_usable()
            self._roll_back()
            found = look()
        self._notify_next()
        return found

    def _notify_next(self) -> None:
        # a job that found the turn taken was queued before it looked, so it is seen here
        if self._queue:
            with contextlib.suppress(IndexError):
                self._queue[0].notify()

    def _abandon(self, job: _Job[Any]) -> None:
        job.abandoned = True
        if job.done:  # otherwise the thread that does it will see
            self._undo(job)

    def _undo(self, job: _Job[Any]) -> None:
        with contextlib.suppress(IndexError):
            result, undo = job.results.pop(), job.undo
            if undo is not None:
                self.later(lambda: undo(result))

    def _batch(self) -> None:
        # others append while we look; only the thread that has the turn removes
        jobs = [job for job in (self._queue[place] for place in range(len(self._queue))) if not job.abandoned]
        self._committing = False
        try:
            self._tell(jobs, self._transaction(jobs))
        except BaseException:
            # an interrupt: what was rolled back stays in the queue, what may be on record must not be done again
            if self._committing and not self._in_transaction():
                self._tell(jobs, LedgerUncertain(f"the ledger was interrupted while it wrote; {ASK_AGAIN}"))
            self._roll_back()
            raise
        finally:
            while self._queue and (self._queue[0].done or self._queue[0].abandoned):
                self._queue.popleft()

    def _transaction(self, jobs: list[_Job[Any]]) -> DitherError | None:
        """Do everything and commit; the problem that befell all of them, if one did."""
        db = self._db
        try:
            self.expect_usable()
            self._roll_back()
            changes = db.total_changes
            self._begin()
            self._guard.expect_same_file()
            self._books.begin()
            self._guard.expect_in_chain()
            for job in jobs:
                self._one(job)
            changed = db.total_changes != changes
            if changed:
                self._guard.announce()
            else:
                db.execute("ROLLBACK")
        except (*BELOW, DitherError) as problem:
            self._roll_back()
            return _worded(problem)
        if changed:
            self._committing = True
            try:
                db.execute("COMMIT")
            except BELOW as problem:
                # what didn't reach the disk may yet be found there when the write-ahead log is recovered
                self._roll_back()
                # opening the ledger again will tell
                self._unusable = BROKEN
                self._guard.let_go()
                return _uncertain(_worded(problem))
            self.commits += 1
        try:
            # even if nothing changed: what was replayed may be of a process that died before it told anyone
            self._guard.advance()
        except (LedgerRolledBack, LedgerCorrupt) as problem:
            return problem
        except (*BELOW, DitherError) as problem:
            return _uncertain(_worded(problem)) if changed else _worded(problem)
        return None

    def _begin(self) -> None:
        """Take the right to write, in turn with other processes.

        SQLite itself would look again after up to a tenth of a second, and a process that polls more often always wins.
        """
        until, look = time.monotonic() + self._patience, FIRST_POLL
        self._db.execute("PRAGMA busy_timeout = 0")
        try:
            while True:
                try:
                    self._db.execute("BEGIN IMMEDIATE")
                except sqlite3.OperationalError as problem:
                    # errors of Python's own library have no name
                    busy = str(getattr(problem, "sqlite_errorname", "")).startswith("SQLITE_BUSY")
                    if not busy or time.monotonic() >= until:
                        raise
                else:
                    return
                time.sleep(look)
                look = min(1.1 * look, LAST_POLL)
        finally:
            self._db.execute(f"PRAGMA busy_timeout = {round(1000 * self._patience)}")

    def _one(self, job: _Job[Any]) -> None:
        job.results.clear()
        job.problem = None
        if job.abandoned:
            return
        self._db.execute("SAVEPOINT job")
        try:
            job.results.append(job.work())
        except BELOW:
            raise
        except Exception as problem:  # noqa: BLE001 raised in the thread that asked, not in this one
            self._db.execute("ROLLBACK TO job")
            self._books.undone()
            job.problem = problem
        self._db.execute("RELEASE job")

    def _tell(self, jobs: list[_Job[Any]], problem: DitherError | None) -> None:
        for job in jobs:
            if job.done:
                continue
            if problem is not None:
                # each its own: a shared traceback would keep alive what the threads of others hold
                job.problem = copy.copy(problem)
                job.problem.__cause__ = problem.__cause__
                if not isinstance(problem, LedgerUncertain):
                    job.results.clear()
            job.done = True
            if job.abandoned or isinstance(problem, LedgerUncertain):
                self._undo(job)
            job.notify()

    def _in_transaction(self) -> bool:
        try:
            return self._db.in_transaction
        except sqlite3.Error:  # closed
            return False

    def _roll_back(self) -> None:
        if self._in_transaction():
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")


def _worded(problem: Exception) -> DitherError:
    if isinstance(problem, DitherError):
        return problem
    worded = fault(problem)
    worded.__cause__ = problem
    return worded


def _uncertain(problem: DitherError) -> LedgerError:
    worded = LedgerUncertain(f"it isn't known whether this is on record ({problem}); {ASK_AGAIN}")
    worded.__cause__ = problem.__cause__ or problem
    return worded


# ---------------------------------------------------------------------------------------------- connections


OLDEST_SQLITE = (3, 37, 0)  # STRICT tables
CLOSED = "the ledger was closed: open it again"
DAMAGED = "the file is damaged or no ledger; keep it, and put back the latest copy"
# What SQLite's library raises; the second where its own message holds what a damaged page says.
BELOW = (sqlite3.Error, UnicodeDecodeError)


@contextmanager
def translated() -> Iterator[None]:
    """Turn every error of SQLite into a LedgerError that says what to do."""
    try:
        yield
    except BELOW as problem:
        raise fault(problem) from problem


def fault(problem: Exception) -> LedgerError:
    """The ledger's word for an error of SQLite."""
    if isinstance(problem, UnicodeDecodeError):
        return LedgerCorrupt(DAMAGED)
    name: str = getattr(problem, "sqlite_errorname", "") or ""
    if not name and str(problem).startswith("Could not decode to UTF-8"):
        return LedgerCorrupt(DAMAGED)
    if isinstance(problem, sqlite3.ProgrammingError) and not name:
        return LedgerError(CLOSED)
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return LedgerBusy("another process holds the ledger; this call charged nothing, ask again")
    if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
        return LedgerCorrupt(DAMAGED)
    if name.startswith("SQLITE_CONSTRAINT"):
        return LedgerCorrupt("the ledger's own constraints refused a change, so its records contradict each other")
    if name.startswith(("SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH")):
        return LedgerError("the ledger can't be written: it and its directory must be writable")
    if name.startswith("SQLITE_CANTOPEN"):
        return LedgerError("the ledger can't be opened: check that its directory exists and is writable")
    if name.startswith("SQLITE_FULL"):
        return LedgerError("the disk of the ledger is full; this call charged nothing")
    if name.startswith("SQLITE_IOERR"):
        return LedgerError("the disk of the ledger reports errors; check it before going on")
    return LedgerError("the ledger can't be used; run `dither ledger verify`")


def expect_sqlite() -> None:
    """Refuse a SQLite that would read the tables' constraints otherwise than they are meant."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        wanted = ".".join(str(part) for part in OLDEST_SQLITE)
        raise LedgerError(f"the ledger needs SQLite {wanted} or later; this Python has {sqlite3.sqlite_version}")
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        try:
            db.execute("SELECT value FROM json_each('[]')")
        except sqlite3.OperationalError as problem:  # could be left out of a build before 3.38
            raise LedgerError("the ledger needs a SQLite with JSON functions; this Python's has none") from problem


def connect(place: str, *, patience: float = 0.0) -> sqlite3.Connection:
    """A connection whose transactions are ours to begin, used by many threads one at a time."""
    db = sqlite3.connect(place, isolation_level=None, check_same_thread=False, timeout=patience)
    db.execute("PRAGMA foreign_keys = ON")
    db.execute("PRAGMA recursive_triggers = ON")  # REPLACE must fire the triggers that forbid deleting
    db.execute("PRAGMA trusted_schema = OFF")
    return db


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """All that is done in it or nothing, under SQLite's lock for writing."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


# ---------------------------------------------------------------------------------------------- the ledger


PAGE = 500
FIRST_LOOK, LAST_LOOK = 0.001, 0.05
KEPT = (
    "another process holds the ledger, so the answer isn't recorded and must not be released. The question was charged "
    "and its receipt is kept: record it again, or ask the same again at no further cost"
)


class KeptLedger(Ledger):
    """A ledger in SQLite tables: the rules are in Books, the transactions in Writer, the rest is here."""

    def __init__(
        self, db: sqlite3.Connection, books: Books, guard: Guard | None = None, *, patience: float = 0.0
    ) -> None:
        self._db, self._books = db, books
        self._writer = Writer(db, books, guard or Guard(), patience=patience)

    @abstractmethod
    def _replay(self) -> Verified:
        """Replay everything, in a read transaction."""

    # ------------------------------------------------------------------ the contract

    @property
    def currency(self) -> Currency:
        """What is added up."""
        return self._books.opening.currency

    @property
    def sums(self) -> tuple[Sum, ...]:
        """What is added up side by side."""
        return self._books.opening.sums

    @property
    def units(self) -> Units:
        """The units of the tables that this ledger was used for."""
        return self._read(self._books.units)

    def bind(self, units: Units, *, rebind: bool = False, note: bool = True) -> None:
        """See that this ledger is kept for these units."""
        if not note:
            with_further_tables(self.units, units)
        elif rebind or with_further_tables(self.units, units) != self.units:
            self._writer.run(lambda: self._books.bind(units, rebind=rebind))

    @property
    def adjacency(self) -> Adjacency:
        """Which neighbours every loss must be stated for."""
        return self._books.opening.adjacency

    @property
    def commits(self) -> int:
        """How many commits this object has made; concurrent requests share them."""
        return self._writer.commits

    def set_limits(self, limits: Mapping[Account, Limit]) -> None:
        """State the limits of these accounts; others keep theirs."""
        stated: dict[Any, Any] = dict(limits)
        if any(not isinstance(a, Account) or not isinstance(limit, Limit) for a, limit in stated.items()):
            raise InvalidParameter("limits are a mapping from Account to Limit")
        self._writer.expect_usable()
        self._writer.run(lambda: self._books.set_limits(stated))

    def reserve(
        self,
        *,
        key: str,
        account: Account,
        loss: PrivacyLoss,
        note: Mapping[str, Any],
        timeout: float = PATIENCE,
        counts: Mapping[str, int] | None = None,
        continues: int | None = None,
    ) -> Reservation:
        """Charge for a question before any data is read, or return its recorded answer."""
        expect_counts(counts or {}, least=1)
        request = replace(self._request(key, account, loss, note), counts=dict(counts or {}), continues=continues)
        deadline, look = time.monotonic() + timeout, FIRST_LOOK
        while True:
            self._writer.expect_usable()
            reservation = self._writer.run(lambda: self._books.reserve(request), undo=self._give_back)
            if reservation is not None:
                return reservation
            while self._is_at_work(request.key):
                if time.monotonic() >= deadline:
                    raise LedgerBusy("someone is at work on the same question; nothing was charged, ask again later")
                time.sleep(min(look, max(deadline - time.monotonic(), 0)))
                look = min(2 * look, LAST_LOOK)

    def record(self, reservation: Reservation, answer: bytes) -> Reservation:
        """Store the answer durably and return the stored bytes."""
        if not isinstance(answer, bytes):
            raise InvalidParameter(f"an answer is recorded as bytes; got {type(answer).__name__}")
        self._writer.expect_usable()
        try:
            # read back in the transaction that stores it, and told only once that is durable
            stored = self._writer.run(lambda: self._books.record(reservation, answer))
        except LedgerBusy as problem:
            raise LedgerBusy(KEPT) from problem
        return replace(reservation, answer=stored)

    def fail(self, reservation: Reservation, cause: str) -> None:
        """Log for the owner why there is no answer."""
        self._writer.expect_usable()
        self._writer.run(lambda: self._books.fail(reservation, str(cause)))

    def give_up(self, reservation: Reservation) -> None:
        """Let the same question be redeemed at once here, by others once this object writes again or is closed."""
        self._books.let_go(reservation)
        self._writer.later(lambda: self._give_back(reservation))

    def _give_back(self, reservation: Reservation | None) -> None:
        """The right to answer, not the charge."""
        if reservation is not None and reservation.answer is None:
            self._books.fail(reservation, GIVEN_UP)

    def balances(self) -> tuple[Balance, ...]:
        """Every account that has a limit or has spent."""
        return self._read(self._books.balances)

    def balance(self, account: Account) -> Balance | None:
        """One account, looked up by its key."""
        return self._look_up(lambda books: books.known_balance(account))

    def latest(self, count: int) -> list[Entry]:
        """The last entries of the log, in its order."""
        query = "SELECT * FROM entry ORDER BY seq DESC LIMIT ?"
        rows = self._read(lambda: self._db.execute(query, (max(int(count), 0),)).fetchall())
        return [read_entry(row) for row in reversed(rows)]

    def entries(self, *, after: int = 0, number: str | None = None) -> Iterator[Entry]:
        """The log in its order, page by page: it only grows, so pages fit together."""
        query = "SELECT * FROM entry WHERE seq > ? AND (? IS NULL OR instr(body, ?)) ORDER BY seq LIMIT ?"
        while True:
            place = (after, number, number, PAGE)
            rows = self._read(lambda place=place: self._db.execute(query, place).fetchall())  # type: ignore[misc]
            found = [read_entry(row) for row in rows]
            yield from (entry for entry in found if number is None or entry.body.get("number") == number)
            if len(rows) < PAGE:
                return
            after = found[-1].seq

    def find(self, key: str, account: Account | None = None) -> Receipt | None:
        """The receipt of whoever asked this question first, or of this account, if it paid."""
        expect_key(key)
        return self._look_up(lambda books: books.receipt(key, account))

    def paid(self, key: str, account: Account) -> bool:
        """Whether asking this question is free for this account."""
        return self.find(key, account) is not None

    def verify(self) -> Verified:
        """Replay everything; raises LedgerCorrupt or LedgerRolledBack, naming the entry where it broke."""
        self._writer.expect_usable()
        with translated():
            return self._replay()

    def close(self) -> None:
        """Let go of the ledger."""
        if not self._writer.is_inherited:
            with translated():
                self._writer.close()

    # ------------------------------------------------------------------ within

    def _request(self, key: str, account: Account, loss: PrivacyLoss, note: Mapping[str, Any]) -> ChargeRequest:
        expect_loss(loss)
        if not isinstance(account, Account):
            raise InvalidParameter(
                f'the account is an Account, such as Account(("shop", "ana")); got {type(account).__name__}'
            )
        if loss.adjacency is not self.adjacency:
            raise IncompatibleLosses(
                f"this ledger is kept for {self.adjacency.value}; the loss is stated for {loss.adjacency.value}"
            )
        amount = Amount.of(loss, self.currency, self.sums)
        form, plain = as_stored(loss.to_json(), note)
        stored = PrivacyLoss.from_json(form)
        # the stored loss must never price below the charge
        if stored != loss and not Amount.of(stored, self.currency, self.sums) <= amount:
            raise InvalidParameter("the loss costs more when it is read back from its JSON form; it can't be recorded")
        return ChargeRequest(key=expect_key(key), account=account, amount=amount, loss=stored, form=form, note=plain)

    def _is_at_work(self, key: str) -> bool:
        """Looked up without the write lock, so that those who wait don't hold up those who work."""
        return self._read(lambda: self._books.is_at_work(self._books.question(key)))

    def _read(self, look: Callable[[], T]) -> T:
        self._writer.expect_usable()
        with translated():
            return self._writer.read(look)

    def _look_up(self, look: Callable[[Books], T]) -> T:
        """A look-up that needn't wait for the commits of others, where the ledger can do that."""
        return self._read(lambda: look(self._books))
