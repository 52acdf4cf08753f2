"""The ledger in a file: SQLite with a write-ahead log, flushed at every commit, its head kept in a second place."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

from dither.errors import (
    InvalidParameter,
    LedgerBusy,
    LedgerCorrupt,
    LedgerError,
    LedgerMismatch,
    LedgerOutdated,
    LedgerRolledBack,
)
from dither.ledger.amount import Currency, Units
from dither.ledger.entry import Entry, EntryKind, Opening, Verified, read_entry
from dither.ledger.head import (
    ADOPT,
    HeadFile,
    HeadMark,
    Inheritance,
    OwnerLock,
    SecondPlace,
    flush_directory,
    flush_file,
    known_by,
)
from dither.ledger.log import format1
from dither.ledger.log.replay import verify
from dither.ledger.log.upgrade import upgrade as upgraded
from dither.ledger.memory import MemoryLedger
from dither.ledger.store.charge_or_replay import Books
from dither.ledger.store.one_writer import (
    CLOSED,
    Guard,
    KeptLedger,
    connect,
    expect_sqlite,
    fault,
    transaction,
    translated,
)
from dither.ledger.store.schema import APPLICATION_ID, FORMAT, create, is_intact
from dither.privacy import Adjacency, Json

T = TypeVar("T")
PATIENCE = 30.0


class Reader:
    """The tables of an open ledger for those who only look; opened with the first look."""

    def __init__(self, path: Path, opening: Opening, owner: OwnerLock) -> None:
        self._path, self._opening, self._owner = path, opening, owner
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._books: Books | None = None
        self._inheritance: Inheritance | None = None
        self._closed = False

    def look(self, what: Callable[[Books], T]) -> T:
        """Look something up in what was committed by now, without waiting for the writer."""
        with self._lock:
            if self._closed:
                raise LedgerError(CLOSED)
            if self._books is None:
                self._books = self._open()
            return what(self._books)

    def version(self) -> object:
        """A number that SQLite changes with every commit of another connection, of this process or not."""
        return self.look(lambda books: books.data_version())

    def _open(self) -> Books:
        db = self._db = self._db or connect(str(self._path), patience=PATIENCE)
        db.execute("PRAGMA query_only = ON")
        # a forked child must leave this connection alone, too
        self._inheritance = Inheritance(self._lock, self._owner, db)
        return Books(db, self._opening, token=self._owner.token, alive=self._owner.alive)

    def close(self) -> None:
        """Let go of the connection. Idempotent."""
        with self._lock:
            self._closed = True
            self._books = self._inheritance = None
            if self._db is not None:
                self._db.close()
                self._db = None


# later versions of dither will have few more
LARGEST_FORMAT = 1000
OLD_FORMAT = (
    "this ledger has format 1, of dither 0.1.0, in which balances weren't tied to the log. Upgrade it first; all "
    "that was spent and answered is kept: dither ledger upgrade"
)


class HeadGuard(Guard):
    """Holds a ledger's file to its head: the file is never behind it, and whatever is returned is covered by it."""

    def __init__(self, path: Path, db: sqlite3.Connection, books: Books, head: HeadFile, owner: OwnerLock) -> None:
        self.head = head
        self._path, self._identity = path, _identity(path)
        self._db, self._books, self._owner = db, books, owner
        self._known: HeadMark | None = None
        self._covered = 0  # the furthest entry whose head was made durable by this very object

    def expect_same_file(self) -> None:
        """Raise if another file is at the ledger's place."""
        if _identity(self._path) != self._identity:
            raise LedgerError("the file of the ledger was moved or replaced while it was open: open it again")

    def expect_in_chain(self) -> None:
        """Raise unless the head is in the chain; read under the write lock, so that it can't run ahead."""
        ledger, reached = self._books.opening.ledger, self._books.tail()
        known = self.head.read()
        if known is None:
            raise LedgerRolledBack(f"the head of this ledger is missing, so it may be an old copy; {ADOPT}")
        if known.ledger != ledger:
            raise LedgerRolledBack(f"the head at {self.head.path} is that of another ledger; {ADOPT}")
        if known.seq > reached[0]:
            raise LedgerRolledBack(
                f"the ledger ends at entry {reached[0]}, and {known.seq} are known to have been written: "
                f"an old copy was put in its place; {ADOPT}"
            )
        ends_there = (known.seq, known.hash) == reached
        # where the log was seen to end, nothing more is to be found; at first that entry must be readable, too
        if known.seq > 0 and (self._known is None or not ends_there):
            self._expect_entry(known)
        if not ends_there and self.head.announced() != HeadMark(ledger, *reached):
            # nobody who is known wrote this: a machine that died, or somebody around dither, whose seals may fit
            verify(self._db, self._books.opening, known)
        self._known = known

    def _expect_entry(self, known: HeadMark) -> None:
        try:
            is_there = self._books.entry(known.seq).hash == known.hash
        except LedgerCorrupt:
            is_there = False
        if not is_there:
            raise LedgerRolledBack(
                f"entry {known.seq} isn't the one that is known to have been written: this is a fork; {ADOPT}"
            )

    def announce(self) -> None:
        """Say which entry is about to be committed."""
        self.head.announce(HeadMark(self._books.opening.ledger, *self._books.tail()))

    def advance(self) -> None:
        """Move the head to what the transaction saw, if it isn't there."""
        # what the transaction saw is durable, whoever wrote it; the head that covers it may not be, if its writer died
        reached = self._books.tail()
        if self._known is None or min(self._known.seq, self._covered) < reached[0]:
            standing = self.head.advance(HeadMark(self._books.opening.ledger, *reached))
            if standing.seq > reached[0]:
                self._expect_entry(standing)
            self._covered = standing.seq

    def let_go(self) -> None:
        """Let others redeem what was left open."""
        self._owner.release()


class SqliteLedger(KeptLedger):
    """The durable ledger of one dataset.

    Guarantee: whatever ``reserve`` and ``record`` return is on disk, in the file and in its head, before they return.
    Assumes: a local disk that flushes when told to, and POSIX file locks; the head is out of reach of whoever might put
        an old file in the ledger's place.
    """

    def __init__(
        self,
        db: sqlite3.Connection,
        books: Books,
        *,
        path: Path,
        owner: OwnerLock,
        head: HeadFile,
        adopt: bool,
        replaced: Json | None,
        patience: float,
    ) -> None:
        """Not for callers: use ``SqliteLedger.open``."""
        self._guard = HeadGuard(path, db, books, head, owner)
        super().__init__(db, books, self._guard, patience=patience)
        self.path, self.head = path, head
        self._inheritance = Inheritance(self._writer.turn, owner, db)
        self._reader = Reader(path, books.opening, owner)
        if adopt:
            self._adopt(replaced)
        with self._writer.turn, translated():
            self._db.execute("BEGIN")
            try:
                books.expect_whole()
            finally:
                self._db.execute("ROLLBACK")
        # looks at the head, and moves on one that a crash left behind
        self._writer.run(lambda: None)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        currency: Currency,
        adjacency: Adjacency,
        unit: str,
        dataset: str,
        head: str | os.PathLike[str] | None = None,
        create: bool = True,
        adopt: bool = False,
        upgrade: bool = False,
        same_people: Units | None = None,
        lock_timeout: float = 30.0,
    ) -> SqliteLedger:
        """Open the ledger at ``path``; unless ``create`` is off, make it if there was none.

        Args:
            path: The file; its directory must exist.
            currency: What is added up: pure ε, or ρ and δ.
            adjacency: Which neighbours every loss must be stated for.
            unit: Who is protected, in words.
            dataset: The name of the data.
            head: The second place that knows how far the ledger has got; by default a file in the user's state
                directory.
            create: Whether to make the ledger if there is none.
            adopt: Declares the file to be the latest copy although its head is missing or says otherwise (a new
                machine, a disk that died); it is verified, and the chain keeps a record of it.
            upgrade: Makes format 2 out of a ledger of format 1, which is refused otherwise.
            same_people: With ``upgrade``, the owner's word that all units it was used for name the same people as
                these.
            lock_timeout: How many seconds to wait for other processes.

        Raises:
            LedgerMismatch: it was kept for something else.
            LedgerRolledBack: it is older than its head knows.
            LedgerCorrupt: its records contradict each other.
        """
        expect_sqlite()
        place = Path(path).absolute().resolve()
        if not place.parent.is_dir():
            raise LedgerError(f"there is no directory {place.parent} to keep the ledger in: make it first")
        if place.exists() and not place.is_file():
            raise LedgerError(f"{place} is no file, so it can't be a ledger")
        wanted = Opening(
            ledger=secrets.token_hex(16),
            currency=Currency(currency),
            adjacency=Adjacency(adjacency),
            unit=_text(unit, "unit"),
            dataset=_text(dataset, "dataset"),
            sums=Currency(currency).sums,
        )
        second = SecondPlace(place, None if head is None else Path(head).absolute())
        known = second.last_known() if adopt else second.known()
        if not place.exists():
            if adopt:
                raise LedgerError(f"there is no ledger at {place} to adopt: put its latest copy there first")
            if known is not None:
                raise second.lost()
            if not create:
                raise _nothing_at(place)
        with ExitStack() as undo:
            owner = OwnerLock(place.with_name(place.name + ".owners"))
            undo.callback(owner.release)
            with translated():
                db = connect(str(place), patience=lock_timeout)
                undo.callback(db.close)
                if known is not None:
                    _expect_marked(db)
                opening = _opening(db, wanted, place, second, patience=lock_timeout, adopt=adopt, create=create)
            _make_durable(place)
            stranger = known is not None and known["ledger"] != opening.ledger
            if stranger and not adopt:
                raise second.lost()
            second_file = HeadFile(second.head_of(opening.ledger))
            if _format(db) == format1.FORMAT:
                # one that is adopted is upgraded, too: format 1 has no way to keep a record of that any more
                if not upgrade and not adopt:
                    raise LedgerOutdated(OLD_FORMAT)
                if owner.others():
                    raise LedgerError("another process has this ledger open: end it first, then upgrade again")
                known_head = None if adopt else _head_of(second_file, opening)
                with translated(), transaction(db):
                    made = upgraded(db, opening, known_head, units=same_people, token=owner.token)
                    if not adopt:
                        second_file.announce(HeadMark(opening.ledger, *made.tail()))
            books = Books(db, opening, token=owner.token, alive=owner.alive)
            replaced = known if stranger else None
            ledger = cls(
                db,
                books,
                path=place,
                owner=owner,
                head=second_file,
                adopt=adopt,
                replaced=replaced,
                patience=lock_timeout,
            )
            second.note(opening.ledger)
            undo.pop_all()
        return ledger

    def _replay(self) -> Verified:
        # before the snapshot: the head is never ahead of what is durable
        known = _head_of(self.head, self._books.opening)
        with self._reading() as db:
            return verify(db, self._books.opening, known)

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        self._guard.expect_same_file()
        db = connect(str(self.path), patience=30.0)
        try:
            db.execute("PRAGMA query_only = ON")
            db.execute("BEGIN")
            yield db
        finally:
            db.close()

    def _look_up(self, look: Callable[[Books], T]) -> T:
        self._writer.expect_usable()
        with translated():
            return self._reader.look(look)

    def version(self) -> object | None:
        """The version of the data, as the connection for looks sees it."""
        self._writer.expect_usable()
        with translated():
            return self._reader.version()

    def close(self) -> None:
        """Let go of the ledger."""
        if not self._writer.is_inherited:
            with translated():
                self._reader.close()
        super().close()

    def _adopt(self, replaced: Json | None) -> None:
        """Log that the owner vouches for this copy, and let the head follow it; nothing to do if they agree."""
        with self._writer.turn, translated(), transaction(self._db):
            self._books.begin()
            if replaced is None and self._agrees():
                return
            self.head.expect_head()
            # the owner vouches that it is the latest copy, not that it adds up
            verify(self._db, self._books.opening, None)
            adopted = self._books.append(EntryKind.ADOPTED, {"known": replaced or known_by(self.head)})
        self.head.replace(HeadMark(self._books.opening.ledger, *adopted[:2]))

    def _agrees(self) -> bool:
        try:
            self._guard.expect_in_chain()
        except (LedgerRolledBack, LedgerCorrupt):
            return False
        return True


def upgraded_copy(path: Path, head: str | os.PathLike[str] | None) -> MemoryLedger:
    """What a ledger of format 1 would be after upgrading, in memory and for reading; the file is left as it is."""
    copy, token = connect(":memory:"), secrets.token_hex(16)
    try:
        with translated(), contextlib.closing(connect(str(path), patience=30.0)) as original:
            # before the copy: the head is never ahead of what is durable
            known = _known_head(path, head, _kept_opening(original))
            original.backup(copy)
            opening = _kept_opening(copy)
            with transaction(copy):
                books = upgraded(copy, opening, known, units=None, token=token)
    except BaseException:
        copy.close()
        raise
    return MemoryLedger.of(copy, books)


def verify_format1(path: Path, head: str | os.PathLike[str] | None) -> Verified:
    """Replay a ledger of format 1 and compare all that it keeps, as ``verify`` does for one that is open."""
    place = Path(path).absolute().resolve()
    with translated(), contextlib.closing(connect(str(place), patience=30.0)) as db:
        db.execute("PRAGMA query_only = ON")
        opening = _kept_opening(db)
        known = _known_head(place, head, opening)
        db.execute("BEGIN")
        return verify(db, opening, known)


def latest_of_format1(path: Path, head: str | os.PathLike[str] | None, count: int) -> list[Entry]:
    """The last entries of a ledger of format 1, in the log's order."""
    with translated(), contextlib.closing(connect(str(path), patience=30.0)) as db:
        db.execute("PRAGMA query_only = ON")
        known = _known_head(path, head, _kept_opening(db))
        rows = db.execute("SELECT * FROM entry ORDER BY seq DESC LIMIT ?", (max(int(count), 0),)).fetchall()
        if known.seq > (rows[0][0] if rows else 0):
            raise LedgerRolledBack(
                f"{known.seq} entries are known to have been written, and not all are there; {ADOPT}"
            )
    return [read_entry(row) for row in reversed(rows)]


def _known_head(path: Path, head: str | os.PathLike[str] | None, opening: Opening) -> HeadMark:
    """How far a ledger is known to have got, by the second place that was named for it."""
    second = SecondPlace(path.absolute().resolve(), None if head is None else Path(head).absolute())
    return _head_of(HeadFile(second.head_of(opening.ledger)), opening)


def _head_of(head: HeadFile, opening: Opening) -> HeadMark:
    known = head.read()
    if known is None or known.ledger != opening.ledger:
        raise LedgerRolledBack(f"the head of this ledger is missing or that of another, before entry 1; {ADOPT}")
    return known


def _opening(
    db: sqlite3.Connection,
    wanted: Opening,
    path: Path,
    second: SecondPlace,
    *,
    patience: float,
    adopt: bool,
    create: bool,
) -> Opening:
    """What the ledger is kept for; makes the tables of a new one."""
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA fullfsync = ON")
    if _is_blank(db):
        if not create:
            raise _nothing_at(path)
        with transaction(db):
            if _is_blank(db):
                _begin(db, wanted, path, second, adopt=adopt)
        _make_durable(path)
    _expect_format(db)
    _write_ahead(db, patience)
    kept = _kept_opening(db)
    differences = kept.differences(wanted)
    if differences:
        raise LedgerMismatch(
            f"this ledger was kept for something else ({'; '.join(differences)}); what was spent can't be converted: "
            "keep to what it says, or keep a new ledger for the new statement"
        )
    return kept


def _begin(db: sqlite3.Connection, wanted: Opening, path: Path, second: SecondPlace, *, adopt: bool) -> None:
    """Make the tables and the first entry.

    Still with a rollback journal: the commit puts them into the file itself, so that a copy without the write-ahead log
    is that of a known ledger at entry 1, never of none. Whoever dies before leaves a file of no bytes, or a journal
    that makes it one again; a blank database of any bytes is what is left of something else.
    """
    if path.stat().st_size > 0:
        raise LedgerError(
            f"{path} is an empty database: perhaps a copy without its write-ahead log ({path.name}-wal). Put back the "
            "latest copy of the ledger with all its files; if there never was one, move this file away"
        )
    if not adopt and second.known() is not None:
        raise second.lost()
    path.chmod(0o600)  # answers and causes of failures are the owner's; SQLite gives its other files the same mode
    # the head comes first: a ledger without one is always suspect, however early its maker died
    HeadFile(second.head_of(wanted.ledger)).replace(HeadMark.start(wanted.ledger))
    create(db)
    books = Books(db, wanted, token="", alive=lambda _: False)
    books.append(EntryKind.OPENED, wanted.to_json())


def _make_durable(path: Path) -> None:
    """Flush what was just read: its writer may have died between writing and flushing it, which nobody can tell.

    SQLite takes such a commit for good when it recovers the write-ahead log. What is released from it must not be lost
    to a power cut: the same question would get a second answer. The database itself is flushed by SQLite before the
    log is let go; it must not be opened here, since closing it again would drop SQLite's locks.
    """
    try:
        flush_file(path.with_name(path.name + "-wal"))
        flush_directory(path.parent)
    except OSError as problem:
        raise LedgerError("the ledger can't be flushed to its disk; check the disk before going on") from problem


def _nothing_at(path: Path) -> LedgerError:
    return LedgerError(f"there is no ledger at {path}")


def _kept_opening(db: sqlite3.Connection) -> Opening:
    row = db.execute("SELECT body FROM entry WHERE seq = 1 AND kind = 'opened'").fetchone()
    if row is None:
        raise LedgerCorrupt("entry 1 is missing from the ledger")
    return _read_opening(row[0])


def _read_opening(text: str) -> Opening:
    try:
        return Opening.from_json(json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError) as problem:
        raise LedgerCorrupt(f"entry 1 of the ledger can't be read: {problem}") from problem


def _is_blank(db: sqlite3.Connection) -> bool:
    """Whether nothing was ever written: what a maker who died early leaves behind is blank too."""
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (objects,) = db.execute("SELECT COUNT(*) FROM sqlite_schema").fetchone()
    return bool(application == version == objects == 0)


def _expect_marked(db: sqlite3.Connection) -> None:
    """Where a ledger is known to have been kept, a file that doesn't say it is one is a damaged ledger."""
    if _is_blank(db):
        return  # which is told apart from one that never was
    if db.execute("PRAGMA application_id").fetchone() != (APPLICATION_ID,) or not 0 < _format(db) < LARGEST_FORMAT:
        raise LedgerCorrupt(
            "the first page of the ledger is damaged, before entry 1; keep the file, and put back the latest copy"
        )


def _expect_format(db: sqlite3.Connection) -> None:
    if db.execute("PRAGMA application_id").fetchone() != (APPLICATION_ID,):
        raise LedgerError("this is a SQLite database but no ledger of dither; give the ledger a file of its own")
    version = _format(db)
    if version not in (FORMAT, format1.FORMAT):
        raise LedgerError(f"the ledger has format {version}, and this version of dither knows formats 1 and 2 only")
    if not (is_intact if version == FORMAT else format1.is_intact)(db):
        raise LedgerCorrupt("tables or triggers of the ledger were changed, before entry 1; run `dither ledger verify`")


def _format(db: sqlite3.Connection) -> int:
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    return version


def _write_ahead(db: sqlite3.Connection, patience: float) -> None:
    """Change to write-ahead logging, which doesn't wait for other processes by itself."""
    deadline = time.monotonic() + patience
    while True:
        try:
            mode = db.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as problem:
            if not isinstance(fault(problem), LedgerBusy) or time.monotonic() >= deadline:
                raise
            time.sleep(0.01)
            continue
        if mode != ("wal",):
            raise LedgerError("the ledger's disk can't share memory between processes: keep it on a local disk")
        return


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        there = path.stat()
    except OSError:
        return None
    return there.st_dev, there.st_ino


def _text(value: object, name: str) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidParameter(f"{name} must be a text that isn't empty")
    return value
