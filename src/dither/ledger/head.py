"""How far a ledger had got, kept in a second place, so that an old copy put in its place is noticed.

The head is a small file of two slots, each with its own checksum. The older slot is overwritten and flushed, so a
crash in the middle leaves the other. It only ever moves forward, under a lock, after the entry it names is durable and
before anything is returned: whatever left this machine is covered by it. It can be behind the ledger after a crash,
never ahead of it, unless the ledger was rolled back or forked.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dither.errors import LedgerCorrupt, LedgerError
from dither.ledger.entry import GENESIS
from dither.ledger.owners import expect_locks

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

SLOT = 256
FORM = "dither-head-1"
_flush = getattr(os, "fdatasync", os.fsync)


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a ledger's chain."""

    ledger: str
    seq: int
    hash: str

    @classmethod
    def start(cls, ledger: str) -> Mark:
        """Before the first entry."""
        return cls(ledger, 0, GENESIS)

    def slot(self) -> bytes:
        """The text of a slot, with its checksum."""
        text = f"{FORM} {self.ledger} {self.seq} {self.hash}"
        line = f"{text} {hashlib.sha256(text.encode('ascii')).hexdigest()}"
        return line.ljust(SLOT - 1).encode("ascii") + b"\n"

    @classmethod
    def from_slot(cls, slot: bytes) -> Mark | None:
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

    def read(self) -> Mark | None:
        """The furthest mark, or None if none was ever written; raises LedgerCorrupt if neither slot can be read."""
        with self._opened(create=False) as descriptor:
            if descriptor is None or os.fstat(descriptor).st_size == 0:
                return None
            slots = _slots(descriptor)
            if not any(slots):
                fcntl.flock(descriptor, fcntl.LOCK_EX)  # perhaps both were being written while we looked
                slots = _slots(descriptor)
            if not any(slots):
                raise LedgerCorrupt(
                    "the ledger's head file is damaged; if this is the latest copy of the ledger, adopt it"
                )
            return _furthest(slots)

    def advance(self, mark: Mark) -> None:
        """Move forward to the mark, durably; does nothing if the head is there or beyond."""
        with self._opened(create=True) as descriptor:
            assert descriptor is not None
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            slots = _slots(descriptor)
            known = _furthest(slots)
            if known is None or known.seq < mark.seq:
                _write(descriptor, 1 - slots.index(known) if known is not None else 0, mark)

    def replace(self, mark: Mark) -> None:
        """Forget what was known: only for a new ledger, or one that its owner adopted."""
        with self._opened(create=True) as descriptor:
            assert descriptor is not None
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            slots = _slots(descriptor)
            known = _furthest(slots)
            # the furthest slot goes last: until then the old head stands, and adopting can be done again
            last = slots.index(known) if known is not None else 1
            _write(descriptor, 1 - last, mark)
            _write(descriptor, last, mark)

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
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
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
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft = place.with_name(f"{place.name}.{secrets.token_hex(8)}")
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


def flush_directory(path: Path) -> None:
    """Make a new name in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_file(path: Path) -> None:
    """Make a file's content durable."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _slots(descriptor: int) -> list[Mark | None]:
    text = os.pread(descriptor, 2 * SLOT, 0)
    return [Mark.from_slot(text[:SLOT]), Mark.from_slot(text[SLOT : 2 * SLOT])]


def _furthest(slots: list[Mark | None]) -> Mark | None:
    return max((mark for mark in slots if mark is not None), key=lambda mark: mark.seq, default=None)


def _write(descriptor: int, slot: int, mark: Mark) -> None:
    os.pwrite(descriptor, mark.slot(), slot * SLOT)
    _flush(descriptor)
