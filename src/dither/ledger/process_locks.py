"""Who is still at work: every open ledger holds a lock that the operating system lets go of when its process dies.

A lock file per open ledger, locked with flock for as long as it is open. Death by any signal releases the lock, a
process number used again can't fool it, and clocks don't matter. A wrong verdict could make two processes run one
question; it can't make two answers, since only the latest claim may be recorded.

A forked child inherits open ledgers, and is kept from doing harm with them.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import sqlite3
import threading
import weakref
from pathlib import Path

from dither.errors import LedgerError

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
