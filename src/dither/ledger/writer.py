"""One writer for all threads of a process: whatever waits is done in one transaction and made durable by one commit."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from dither.errors import DitherError, LedgerError
from dither.ledger.faults import fault

T = TypeVar("T")
LONGEST_WAIT = 0.05


class _Job(Generic[T]):
    """Something to do inside a transaction, and later its outcome."""

    def __init__(self, work: Callable[[], T]) -> None:
        self.work = work
        self.done = False
        self.called = threading.Event()
        self.abandoned = False
        self.results: list[T] = []
        self.problem: BaseException | None = None

    def outcome(self) -> T:
        if self.problem is not None:
            raise self.problem
        return self.results[0]


class Writer:
    """Runs work in transactions, many callers' work in one: the outcome is told only after the commit is durable.

    ``before`` runs inside each transaction, ``after`` once it is durable, even if nothing changed: what is replayed may
    have been written by a process that died before it told anyone. If the commit or ``after`` fails, nobody is told
    anything but that, and ``broken`` is called.
    """

    def __init__(
        self,
        db: sqlite3.Connection,
        *,
        before: Callable[[], None],
        after: Callable[[], None],
        broken: Callable[[], None],
    ) -> None:
        self._db, self._before, self._after, self._broken = db, before, after, broken
        self._queue: deque[_Job[object]] = deque()
        self.turn = threading.Lock()
        self.commits = 0

    def run(self, work: Callable[[], T]) -> T:
        """Do the work in a transaction of its own or of several, and return when it is durable."""
        job = _Job(work)
        self._queue.append(job)  # type: ignore[arg-type]
        try:
            while not job.done:
                if not self.turn.acquire(blocking=False):
                    # whoever has the turn will do this job too, or call; the timeout is for turns taken by a fork
                    job.called.wait(LONGEST_WAIT)
                    job.called.clear()
                    continue
                try:
                    if not job.done:
                        self._batch()
                finally:
                    self._pass_on()
        except BaseException:
            job.abandoned = True
            raise
        return job.outcome()

    @contextmanager
    def between(self) -> Iterator[None]:
        """A turn for reading: no transaction of this process is under way."""
        self.turn.acquire()
        try:
            yield
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        self.turn.release()
        # a job that found the turn taken was queued before it looked, so it is seen here
        with contextlib.suppress(IndexError):
            self._queue[0].called.set()

    def _batch(self) -> None:
        jobs: list[_Job[object]] = []
        while self._queue:
            jobs.append(self._queue.popleft())
        try:
            problem = self._transaction([job for job in jobs if not job.abandoned])
        except BaseException:
            # an interrupt: roll back, or if the commit may have happened, let nobody go on with what it doesn't know
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            else:
                self._broken()
            _tell(jobs, LedgerError("the ledger was interrupted; ask again"))
            raise
        _tell(jobs, problem)

    def _transaction(self, jobs: list[_Job[object]]) -> DitherError | None:
        """Do everything and commit; the problem that befell all of them, if one did."""
        db, changes = self._db, self._db.total_changes
        try:
            db.execute("BEGIN IMMEDIATE")
            self._before()
            for job in jobs:
                self._one(job)
        except (sqlite3.Error, DitherError) as problem:
            self._roll_back()
            return _worded(problem)
        try:
            if db.total_changes == changes:
                db.execute("ROLLBACK")
            else:
                db.execute("COMMIT")
                self.commits += 1
            self._after()
        except (sqlite3.Error, DitherError) as problem:
            self._roll_back()
            self._broken()
            return _worded(problem)
        return None

    def _one(self, job: _Job[object]) -> None:
        self._db.execute("SAVEPOINT job")
        try:
            job.results.append(job.work())
        except DitherError as problem:
            self._db.execute("ROLLBACK TO job")
            job.problem = problem
        self._db.execute("RELEASE job")

    def _roll_back(self) -> None:
        if self._db.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")


def _worded(problem: Exception) -> DitherError:
    if isinstance(problem, DitherError):
        return problem
    assert isinstance(problem, sqlite3.Error)
    worded = fault(problem)
    worded.__cause__ = problem
    return worded


def _tell(jobs: list[_Job[object]], problem: DitherError | None) -> None:
    for job in jobs:
        if not job.done:
            job.problem = problem or job.problem
            job.done = True
            job.called.set()
