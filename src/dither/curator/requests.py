"""What analysts ask of the owner, and what the owner decided: questions above a price, and more budget.

Kept in a small SQLite file beside the ledger. A file that is lost can only take approvals and raised caps away.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import sqlite3
import threading
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

from dither.curator.results import Request, RequestKind, RequestState
from dither.errors import InvalidParameter, LedgerBusy, LedgerError, Refused
from dither.ledger import Ledger, SqliteLedger
from dither.ledger.entry import now

T = TypeVar("T")
MOST_WAITING = 20
LONGEST_WHY = 1000
PATIENCE = 30.0
TABLE = """
CREATE TABLE IF NOT EXISTS request(
    place INTEGER PRIMARY KEY,
    number TEXT NOT NULL UNIQUE,
    at TEXT NOT NULL,
    analyst TEXT NOT NULL,
    kind TEXT NOT NULL CHECK(kind IN ('question', 'budget')),
    key TEXT NOT NULL,
    sql TEXT NOT NULL,
    asked TEXT NOT NULL,
    epsilon TEXT NOT NULL,
    why TEXT NOT NULL,
    state TEXT NOT NULL CHECK(state IN ('waiting', 'approved', 'refused')),
    answer_why TEXT NOT NULL,
    decided TEXT NOT NULL
) STRICT
"""
INDEX = "CREATE INDEX IF NOT EXISTS request_of_analyst ON request(analyst, kind, state)"
COLUMNS = "number, at, analyst, kind, sql, asked, epsilon, why, state, answer_why"


class Requests:
    """The requests of one ledger; safe with several threads and processes. Without a path they live in memory."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._process = os.getpid()
        self._closed = False
        self._granted: tuple[tuple[int, int], dict[str, Fraction]] | None = None

    # ------------------------------------------------------------------ asking and deciding

    def ask(
        self, *, analyst: str, kind: RequestKind, key: str, sql: str, asked: str, epsilon: str, why: str
    ) -> Request:
        """Write down a request; one that waits or was approved for the same question is returned as it is."""
        said = said_text(why)

        def work(db: sqlite3.Connection) -> Request:
            if kind is RequestKind.QUESTION:
                known = db.execute(
                    f"SELECT {COLUMNS} FROM request WHERE analyst = ? AND kind = ? AND key = ? AND state <> ?",  # noqa: S608
                    (analyst, kind.value, key, RequestState.REFUSED.value),
                ).fetchone()
                if known is not None:
                    return _request(known)
            (waiting,) = db.execute(
                "SELECT COUNT(*) FROM request WHERE analyst = ? AND state = ?", (analyst, RequestState.WAITING.value)
            ).fetchone()
            if waiting >= MOST_WAITING:
                raise Refused(
                    f"{waiting} requests of this analyst wait for the owner already",
                    code="too_many_requests",
                    hint="Wait until the owner has decided some of them.",
                )
            number = secrets.token_hex(8)
            db.execute(
                "INSERT INTO request(number, at, analyst, kind, key, sql, asked, epsilon, why, state, answer_why, "
                "decided) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '', '')",
                (number, now(), analyst, kind.value, key, sql, asked, epsilon, said, RequestState.WAITING.value),
            )
            return _found(db, number)

        return self._write(work)

    def decide(self, number: str, *, approve: bool, why: str) -> Request:
        """Approve or refuse a request, once; the same decision again changes nothing."""
        said = said_text(why)
        state = RequestState.APPROVED if approve else RequestState.REFUSED

        def work(db: sqlite3.Connection) -> Request:
            known = _found(db, number)
            if known.state is state:
                return known
            if known.state is not RequestState.WAITING:
                raise Refused(
                    f"this request was {known.state.value} before",
                    code="already_decided",
                    hint="A decision stays; let the analyst ask again.",
                )
            db.execute(
                "UPDATE request SET state = ?, answer_why = ?, decided = ? WHERE number = ?",
                (state.value, said, now(), number),
            )
            return _found(db, number)

        if self._read(lambda _: True, otherwise=False):
            return self._write(work)
        raise _unknown()

    # ------------------------------------------------------------------ looking

    def all(self, analyst: str | None, *, waiting_only: bool) -> tuple[Request, ...]:
        """Newest first: those of one analyst, or everybody's."""
        query = f"SELECT {COLUMNS} FROM request"  # noqa: S608
        conditions, values = [], []
        if analyst is not None:
            conditions.append("analyst = ?")
            values.append(analyst)
        if waiting_only:
            conditions.append("state = ?")
            values.append(RequestState.WAITING.value)
        query += f" WHERE {' AND '.join(conditions)}" if conditions else ""
        rows: list[tuple[Any, ...]] = self._read(
            lambda db: db.execute(f"{query} ORDER BY place DESC", values).fetchall(), otherwise=[]
        )
        return tuple(_request(row) for row in rows)

    def find(self, number: str) -> Request:
        """One request; Refused if there is none of this number."""
        found = self._read(lambda db: _found(db, number), otherwise=None)
        if found is None:
            raise _unknown()
        return found

    def approved(self, key: str, analyst: str) -> bool:
        """Whether the owner approved this question for this analyst."""
        query = "SELECT 1 FROM request WHERE analyst = ? AND kind = ? AND key = ? AND state = ? LIMIT 1"
        values = (analyst, RequestKind.QUESTION.value, key, RequestState.APPROVED.value)
        return self._read(lambda db: db.execute(query, values).fetchone() is not None, otherwise=False)

    def granted(self) -> dict[str, Fraction]:
        """By how much each analyst's ε was raised in all; looked up again only where the file changed."""

        def look(db: sqlite3.Connection) -> dict[str, Fraction]:
            (version,) = db.execute("PRAGMA data_version").fetchone()
            # data_version doesn't count what this very connection writes
            stamp = (version, db.total_changes)
            if self._granted is None or self._granted[0] != stamp:
                sums: dict[str, Fraction] = {}
                query = "SELECT analyst, epsilon FROM request WHERE kind = ? AND state = ?"
                for analyst, epsilon in db.execute(query, (RequestKind.BUDGET.value, RequestState.APPROVED.value)):
                    sums[analyst] = sums.get(analyst, Fraction(0)) + Fraction(epsilon)
                self._granted = (stamp, sums)
            return self._granted[1]

        return self._read(look, otherwise={})

    def close(self) -> None:
        """Close the file. Idempotent."""
        with self._lock:
            self._closed = True
            if self._db is not None and os.getpid() == self._process:
                self._db.close()
                self._db = None

    # ------------------------------------------------------------------ the file

    def _read(self, look: Callable[[sqlite3.Connection], T], *, otherwise: T) -> T:
        """Look something up; where nothing was ever asked there is no file, and none is made."""
        with self._lock, _worded():
            db = self._opened(create=False)
            return otherwise if db is None else look(db)

    def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._lock, _worded():
            db = self._opened(create=True)
            assert db is not None
            db.execute("BEGIN IMMEDIATE")
            try:
                done = work(db)
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
            return done

    def _opened(self, *, create: bool) -> sqlite3.Connection | None:
        if self._closed or os.getpid() != self._process:
            raise LedgerError("the requests were closed, or belong to another process: open the policy again")
        if self._db is not None:
            return self._db
        if self._path is None:
            place = ":memory:"
        else:
            if not create and not self._path.exists():
                return None
            # SQLite gives its other files the rights of this one
            os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
            place = str(self._path)
        db = sqlite3.connect(place, isolation_level=None, check_same_thread=False, timeout=PATIENCE)
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA trusted_schema = OFF")
            db.execute("BEGIN IMMEDIATE")
            db.execute(TABLE)
            db.execute(INDEX)
            db.execute("COMMIT")
        except BaseException:
            db.close()
            raise
        self._db = db
        return db


def requests_beside(ledger: Ledger) -> Path | None:
    """Where the requests of a ledger are kept; None for one in memory."""
    return ledger.path.with_name(ledger.path.name + ".requests") if isinstance(ledger, SqliteLedger) else None


def said_text(why: str) -> str:
    """What somebody says to a request: short, and nothing that steers a terminal."""
    text: object = why
    if not isinstance(text, str) or len(text) > LONGEST_WHY:
        raise InvalidParameter(f"the reason is a text of at most {LONGEST_WHY} characters")
    return "".join(letter if letter.isprintable() or letter == "\n" else " " for letter in text).strip()


@contextlib.contextmanager
def _worded() -> Any:
    try:
        yield
    except sqlite3.OperationalError as problem:
        if "locked" in str(problem) or "busy" in str(problem):
            raise LedgerBusy("another process holds the file of requests: try again") from problem
        raise LedgerError("the file of requests beside the ledger can't be used") from problem
    except (sqlite3.Error, OSError) as problem:
        raise LedgerError("the file of requests beside the ledger can't be used") from problem


def _found(db: sqlite3.Connection, number: str) -> Request:
    row = db.execute(f"SELECT {COLUMNS} FROM request WHERE number = ?", (number,)).fetchone()  # noqa: S608
    if row is None:
        raise _unknown()
    return _request(row)


def _unknown() -> Refused:
    return Refused("there is no request of this number", code="unknown_request", hint="Look at the list of requests.")


def _request(row: tuple[Any, ...]) -> Request:
    number, at, analyst, kind, sql, asked, epsilon, why, state, answer_why = row
    exact = Fraction(epsilon)
    return Request(
        number=number,
        at=at,
        analyst=analyst,
        kind=RequestKind(kind),
        sql=sql,
        asked=json.loads(asked) if asked else {},
        epsilon=f"{float(exact):.6g}",
        why=why,
        state=RequestState(state),
        answer_why=answer_why,
    )
