"""One writer for all threads of a process: whatever waits is done in one transaction and made durable by one commit.

An interrupt (Ctrl-C) may strike between any two steps of the main thread, which may be doing the work of others. So the
turn is only ever taken by ``with`` on the lock itself, which can't lose it; a job leaves the queue only once its asker
was told; and whoever comes next first undoes what was left half done.
"""

from __future__ import annotations

import contextlib
import copy
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from dither.errors import DitherError, LedgerCorrupt, LedgerError, LedgerRolledBack, LedgerUncertain
from dither.ledger.store.connection import BELOW, CLOSED, fault
from dither.ledger.store.transaction import Books

T = TypeVar("T")
LONGEST_WAIT = 0.05
# seconds between looks whether another process is done writing, at first and at last
FIRST_LOOK, LAST_LOOK = 0.0003, 0.01
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
                    # whoever has the turn does this job too, or notifies; the timeout is for what an interrupt lost
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
        """Do this with the next transaction, whoever's it is; nobody is told how it went."""
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
        if job.done:  # otherwise whoever has done it will see
            self._undo(job)

    def _undo(self, job: _Job[Any]) -> None:
        with contextlib.suppress(IndexError):
            result, undo = job.results.pop(), job.undo
            if undo is not None:
                self.later(lambda: undo(result))

    def _batch(self) -> None:
        # others append while we look, and only whoever has the turn removes
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
                # what didn't reach the disk may yet be found there by whoever recovers the write-ahead log
                self._roll_back()
                # whoever opens the ledger next will see
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

        SQLite itself would look again after up to a tenth of a second, and whoever looks more often gets it each time.
        """
        until, look = time.monotonic() + self._patience, FIRST_LOOK
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
                look = min(1.1 * look, LAST_LOOK)
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
        except Exception as problem:  # noqa: BLE001 it is told to whoever asked for this, not to whoever does it
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
