"""Beside the tables: the head, which says in a second place how far a ledger has got, its locks, durable files.

The head is a small file of two slots, each with its own checksum. The older slot is overwritten and flushed, so a
crash in the middle leaves the other. It only ever moves forward, under a lock, after the entry it names is durable and
before anything is returned: whatever left this machine is covered by it. It can be behind the ledger after a crash,
never ahead of it, unless the ledger was rolled back or forked.

A third slot announces the entry that is about to be committed. What lies beyond the head and was announced was written
by dither, in this process or another; what wasn't, perhaps around it, and is believed only after a replay of the whole
log. The announcement isn't flushed: if the machine dies, the replay makes up for it.

A lock file per open ledger, locked with flock for as long as it is open. Death by any signal releases the lock, a
process number used again can't fool it, and clocks don't matter. A wrong verdict could make two processes run one
question; it can't make two answers, since only the latest claim may be recorded.

A forked child inherits open ledgers, and is kept from doing harm with them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from dither.errors import LedgerCorrupt, LedgerError, LedgerRolledBack
from dither.ledger.entry import GENESIS
from dither.privacy import Json

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

# where there is such a thing, fsync leaves data in the drive's own cache
_FULL: int | None = getattr(fcntl, "F_FULLFSYNC", None)


def flush(descriptor: int) -> None:
    """Make the content of an open file durable, whoever wrote it."""
    if _FULL is not None:
        fcntl.fcntl(descriptor, _FULL)
    else:
        getattr(os, "fdatasync", os.fsync)(descriptor)


def flush_file(path: Path) -> None:
    """Make a file's content durable; does nothing if there is no such file."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        flush(descriptor)
    finally:
        os.close(descriptor)


def flush_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: Path) -> None:
    """Make a directory and what is missing above it, durably and for the owner alone."""
    if path.is_dir():
        return
    make_directory(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    flush_directory(path.parent)


try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]


# ---------------------------------------------------------------------------------------------- the head


SLOT = 256
# two that take turns, and the announcement
SLOTS = 3
FORM = "dither-head-1"
ADOPT = "if this is the latest copy there is, adopt it (`dither ledger adopt`); that is logged"


@dataclass(frozen=True, slots=True)
class HeadMark:
    """A place in a ledger's chain."""

    ledger: str
    seq: int
    hash: str

    @classmethod
    def start(cls, ledger: str) -> HeadMark:
        """Before the first entry."""
        return cls(ledger, 0, GENESIS)

    def slot(self) -> bytes:
        """The text of a slot, with its checksum."""
        return _slot(self)

    @classmethod
    def from_slot(cls, slot: bytes) -> HeadMark | None:
        """The inverse, or None for a slot that was never or only partly written."""
        with contextlib.suppress(ValueError):
            form, ledger, seq, link, _ = slot.decode("ascii").split()
            mark = cls(ledger, int(seq), link)
            if form == FORM and mark.slot() == slot:
                return mark
        return None


class HeadFile:
    """The head of one ledger in one file."""

    def __init__(self, path: Path) -> None:
        expect_locks()
        self.path = path

    def read(self) -> HeadMark | None:
        """The furthest mark, or None if none was ever written; raises LedgerCorrupt if neither slot can be read."""
        with self._opened(create=False) as descriptor:
            text = b"" if descriptor is None else _text(descriptor)
            if descriptor is None or not text:
                return None
            self._expect_head(text)
            slots = _slots(text)
            if not any(slots):
                fcntl.flock(descriptor, fcntl.LOCK_EX)  # perhaps both were being written while we looked
                slots = _slots(_text(descriptor))
            if not any(slots):
                raise LedgerCorrupt(
                    "the ledger's head file is damaged; if this is the latest copy of the ledger, adopt it"
                )
            return _furthest(slots)

    def advance(self, mark: HeadMark) -> HeadMark:
        """Move forward to the mark, durably; returns the head that now stands, this one or one further on.

        A head that is further on must be in the caller's chain: that is for the caller to see.
        """
        with self._locked() as (descriptor, slots, known):
            if known is None or (known.ledger == mark.ledger and known.seq < mark.seq):
                _write(descriptor, 1 - slots.index(known) if known is not None else 0, mark)
                return mark
            if known.ledger != mark.ledger or (known.seq == mark.seq and known.hash != mark.hash):
                raise LedgerRolledBack(
                    f"entry {mark.seq} was written by two copies of this ledger, or its head by another ledger: this "
                    "is a fork, and nothing of it is released. Keep one copy, the one that its head knows"
                )
            # whoever wrote it may have died before it was durable
            flush(descriptor)
            return known

    @contextmanager
    def _locked(self) -> Iterator[tuple[int, list[HeadMark | None], HeadMark | None]]:
        """The file for one process at a time: its descriptor, its slots, and the furthest of them."""
        with self._opened(create=True) as descriptor:
            assert descriptor is not None
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            text = _text(descriptor)
            self._expect_head(text)
            slots = _slots(text)
            yield descriptor, slots, _furthest(slots)

    def announce(self, mark: HeadMark) -> None:
        """Say which entry is about to be committed; for other processes, and for the next one after a crash."""
        with self._opened(create=False) as descriptor:
            if descriptor is not None:
                os.pwrite(descriptor, mark.slot(), 2 * SLOT)

    def announced(self) -> HeadMark | None:
        """The entry that was announced last, if its announcement can be read."""
        with self._opened(create=False) as descriptor:
            return None if descriptor is None else _mark(_text(descriptor)[2 * SLOT : 3 * SLOT])

    def replace(self, mark: HeadMark) -> None:
        """Forget what was known: only for a new ledger, or one that its owner adopted."""
        with self._locked() as (descriptor, slots, known):
            # the furthest slot goes last: until then the old head stands, and adopting can be done again
            last = slots.index(known) if known is not None else 1
            _write(descriptor, 1 - last, mark)
            _write(descriptor, last, mark)

    def expect_head(self) -> None:
        """Refuse a file that holds something else: adopting a ledger must not cost anyone another file."""
        with self._opened(create=False) as descriptor:
            if descriptor is not None:
                self._expect_head(_text(descriptor))

    def _expect_head(self, text: bytes) -> None:
        form = FORM.encode("ascii")
        if len(text) > SLOTS * SLOT or not (
            text[: len(form)] == form[: len(text)] or text[SLOT:].startswith(form) or not text.strip(b"\0")
        ):
            raise LedgerError(
                f"{self.path} is not the head of a ledger, so it is left alone: name another place for the head, "
                "or move that file away"
            )

    @contextmanager
    def _opened(self, *, create: bool) -> Iterator[int | None]:
        try:
            descriptor = self._open(create=create)
            try:
                yield descriptor
            finally:
                if descriptor is not None:
                    os.close(descriptor)
        except OSError as problem:
            raise LedgerError(
                f"the head of the ledger at {self.path} can't be read or written; make it writable, "
                "or name another place for it"
            ) from problem

    def _open(self, *, create: bool) -> int | None:
        try:
            return os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            if not create:
                return None
        make_directory(self.path.parent)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        flush_directory(self.path.parent)
        return descriptor


class Register:
    """Which ledgers were kept at which paths: a ledger that vanished must not be begun anew unnoticed."""

    def __init__(self, state: Path) -> None:
        self.state = state

    def head_of(self, ledger: str) -> Path:
        """Where the head of a ledger is kept unless its owner says otherwise."""
        return self.state / "heads" / ledger

    def kept_at(self, path: Path) -> str | None:
        """The ledger that was last kept at this path."""
        try:
            return self._note(path).read_text(encoding="ascii").strip() or None
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as problem:
            raise self._unusable() from problem

    def note(self, path: Path, ledger: str) -> None:
        """Remember it, durably."""
        place = self._note(path)
        try:
            if self.kept_at(path) == ledger:
                return
            make_directory(place.parent)
            draft = place.with_name(f"{place.name}.{secrets.token_hex(8)}")
            draft.touch(mode=0o600, exist_ok=False)
            draft.write_text(ledger + "\n", encoding="ascii")
            flush_file(draft)
            draft.replace(place)
            flush_directory(place.parent)
        except OSError as problem:
            raise self._unusable() from problem

    def _note(self, path: Path) -> Path:
        return self.state / "ledgers" / hashlib.sha256(os.fsencode(path)).hexdigest()[:32]

    def _unusable(self) -> LedgerError:
        return LedgerError(
            f"{self.state} must be readable and writable, or give the ledger's head another place (head=…)"
        )


def state_directory() -> Path:
    """The user's state directory: XDG_STATE_HOME, or .local/state in the home directory."""
    stated = os.environ.get("XDG_STATE_HOME", "")
    if stated and Path(stated).is_absolute():
        return Path(stated) / "dither"
    try:
        return Path.home() / ".local" / "state" / "dither"
    except RuntimeError as problem:
        raise LedgerError(
            "there is no home directory to keep the ledger's head in: set XDG_STATE_HOME or head=…"
        ) from problem


class SecondPlace:
    """Where the head is kept, and whether a ledger was known there before."""

    def __init__(self, path: Path, head: Path | None) -> None:
        self._path, self._head = path, head
        self._register = None if head is not None else Register(state_directory())

    def head_of(self, ledger: str) -> Path:
        """The file of this ledger's head."""
        if self._head is not None:
            return self._head
        assert self._register is not None
        return self._register.head_of(ledger)

    def known(self) -> Json | None:
        """How far a ledger had got that was kept here: losing its file must not give the budget back."""
        if self._register is None:
            mark = HeadFile(self.head_of("")).read()
            # before its first entry nothing was spent
            return None if mark is None or mark.seq == 0 else in_words(mark)
        ledger = self._register.kept_at(self._path)
        if ledger is None:
            return None
        return known_by(HeadFile(self.head_of(ledger))) or {"ledger": ledger}

    def last_known(self) -> Json | None:
        """The same for one who vouches: a damaged head says nothing."""
        with contextlib.suppress(LedgerCorrupt):
            return self.known()
        return None

    def lost(self) -> LedgerRolledBack:
        """What to say then."""
        return LedgerRolledBack(
            f"another ledger was kept at {self._path} or under its head, and is gone or lost its entries: put back "
            "its latest copy, or, if nothing that it knew matters any more, adopt what is there, be it an empty file "
            "(`dither ledger adopt`); that is logged"
        )

    def note(self, ledger: str) -> None:
        """Remember that this ledger is kept at this path."""
        if self._register is not None:
            self._register.note(self._path, ledger)


def known_by(head: HeadFile) -> Json | None:
    """What the head says, for the log; a damaged one says nothing."""
    with contextlib.suppress(LedgerCorrupt):
        mark = head.read()
        if mark is not None:
            return in_words(mark)
    return None


def in_words(mark: HeadMark) -> Json:
    """A mark as it is logged."""
    return {"ledger": mark.ledger, "seq": mark.seq, "hash": mark.hash}


def _text(descriptor: int) -> bytes:
    """All slots, and one byte more, which a head doesn't have."""
    return os.pread(descriptor, SLOTS * SLOT + 1, 0)


def _slots(text: bytes) -> list[HeadMark | None]:
    return [_mark(text[:SLOT]), _mark(text[SLOT : 2 * SLOT])]


# the same bytes always mean the same mark: of two slots, one was read before and the other was just written
@lru_cache(maxsize=16)
def _mark(slot: bytes) -> HeadMark | None:
    return HeadMark.from_slot(slot)


@lru_cache(maxsize=16)
def _slot(mark: HeadMark) -> bytes:
    text = f"{FORM} {mark.ledger} {mark.seq} {mark.hash}"
    line = f"{text} {hashlib.sha256(text.encode('ascii')).hexdigest()}"
    return line.ljust(SLOT - 1).encode("ascii") + b"\n"


def _furthest(slots: list[HeadMark | None]) -> HeadMark | None:
    one, other = slots
    return other if one is None or (other is not None and other.seq > one.seq) else one


def _write(descriptor: int, slot: int, mark: HeadMark) -> None:
    os.pwrite(descriptor, mark.slot(), slot * SLOT)
    flush(descriptor)


# ---------------------------------------------------------------------------------------------- locks


try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

TOKEN = re.compile(r"[0-9a-f]{32}")
LONGEST_HOLD = 5.0


class OwnerLock:
    """The sign of life of one open ledger."""

    def __init__(self, directory: Path) -> None:
        """Take a fresh token, and clear away the signs of those who died."""
        expect_locks()
        self.directory = directory
        try:
            directory.mkdir(mode=0o700, exist_ok=True)
            self.token, self._descriptor = self._take()
            self._sweep()
        except OSError as problem:
            raise LedgerError(
                "the directory of the ledger must be writable, and on a disk that supports file locks "
                "(not a network share)"
            ) from problem

    def alive(self, token: str) -> bool:
        """Whether the ledger that took this token is still open somewhere; clears its file away if not."""
        if token == self.token:
            return self._descriptor >= 0
        # the token comes from the ledger's file, which may have been tampered with, and becomes a path
        if not TOKEN.fullmatch(token):
            return False
        try:
            return self._is_locked(self.directory / token)
        except OSError as problem:
            raise LedgerError(
                "it can't be seen who else is at work: the .owners directory beside the ledger must be readable and "
                "writable, and hold nothing but the ledger's own files"
            ) from problem

    def others(self) -> bool:
        """Whether anybody else has the ledger open."""
        return any(self.alive(path.name) for path in self.directory.iterdir() if path.name != self.token)

    def _is_locked(self, path: Path) -> bool:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return False
        try:
            if not _locked(descriptor):
                return True
            with contextlib.suppress(OSError):
                path.unlink()
            return False
        finally:
            os.close(descriptor)

    def release(self) -> None:
        """Let others redeem what this one left open."""
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                (self.directory / self.token).unlink()
            self.forget()

    def forget(self) -> None:
        """Close this process's copy of the lock: a forked child must not keep its parent alive."""
        # forgotten first: closed twice after an interrupt, the number may be someone else's file
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            self.forget()

    def _take(self) -> tuple[str, int]:
        while True:
            token = secrets.token_hex(16)
            path = self.directory / token
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            # between creation and lock, someone's sweep may have taken it for a dead one
            if _locked(descriptor) and _same_file(path, descriptor):
                return token, descriptor
            os.close(descriptor)

    def _sweep(self) -> None:
        for path in self.directory.iterdir():
            if path.name != self.token:
                self.alive(path.name)


def expect_locks() -> None:
    """Refuse systems without flock: a ledger that can't tell the dead from the living isn't offered at all."""
    if fcntl is None:
        raise LedgerError(
            "a ledger on disk needs POSIX file locks (Linux, macOS, BSD); use MemoryLedger to try things out"
        )


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _same_file(path: Path, descriptor: int) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    here = os.fstat(descriptor)
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)


# ------------------------------------------------------------------ forks


class Inheritance:
    """The parts of one open ledger that a fork copies: alive for as long as the ledger keeps it."""

    def __init__(self, turn: threading.Lock, owner: OwnerLock, db: sqlite3.Connection) -> None:
        self.turn, self.owner, self.db = turn, owner, db
        _OPEN.add(self)


_OPEN: weakref.WeakSet[Inheritance] = weakref.WeakSet()
_HELD: list[threading.Lock] = []
# SQLite forbids a child to use an inherited connection, and closing is use
_LEFT_ALONE: list[sqlite3.Connection] = []


def _before() -> None:
    """Hold every open ledger still, so that no child inherits half a transaction."""
    _HELD.extend(lock for lock in [open_one.turn for open_one in _OPEN] if lock.acquire(timeout=LONGEST_HOLD))


def _after() -> None:
    while _HELD:
        _HELD.pop().release()


def _after_in_child() -> None:
    for inherited in list(_OPEN):
        inherited.owner.forget()
        _LEFT_ALONE.append(inherited.db)
    _OPEN.clear()
    _after()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after_in_child)
