"""What a forked child inherits of an open ledger, and how it is kept from doing harm with it."""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref

from dither.ledger.owners import OwnerLock

LONGEST_HOLD = 5.0


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
