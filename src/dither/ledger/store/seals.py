"""Seals: how the last entry of the log vouches for every row that was kept beside it.

The rows of a table are sorted by the first digits of a digest into places, and a tree of SHA-256 digests stands over
them, sixteen children to a node. The top goes into each entry that is written, with what the ledger is kept for, and
the entry into the chain; so whoever trusts the last entry (the head, kept elsewhere, does) can check one row, or that
there is none, by a handful of digests, however long the log is. A change by hand to a balance or to the state of a
question is noticed before anything is charged or released by it.
"""

from __future__ import annotations

import hashlib
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator

from dither.errors import LedgerCorrupt

WIDTH = 32
EMPTY = bytes(WIDTH)
NO_CHILDREN = bytes(16 * WIDTH)
# A million questions are about sixteen to a place; the nodes above them take two megabytes at the most.
DEPTHS = {"account": 2, "question": 4}


class Tree(ABC):
    """The digests over the rows of one table; ``text`` gives the canonical text of the rows at a place."""

    def __init__(self, name: str, text: Callable[[str], str]) -> None:
        self.name, self._text, self.depth = name, text, DEPTHS[name]

    @abstractmethod
    def below(self, place: str) -> bytes:
        """The sixteen digests under a node; all zero where nothing is."""

    @abstractmethod
    def _put(self, place: str, below: bytes) -> None: ...

    def top(self) -> bytes:
        """The digest over everything."""
        return _digest(self.below(""))

    def leaf(self, key: str) -> str:
        """The place of a row whose digest is this."""
        return key[: self.depth]

    def holds(self, key: str) -> bool:
        """Whether the rows at the place of this key are those that the top vouches for."""
        place = self.leaf(key)
        found = self._of_rows(place)
        for length in range(self.depth - 1, -1, -1):
            below, child = self.below(place[:length]), int(place[length], 16)
            if below[WIDTH * child : WIDTH * (child + 1)] != found:
                return False
            found = _digest(below)
        return True

    def update(self, key: str) -> None:
        """Take in what was written at the place of this key."""
        place = self.leaf(key)
        found = self._of_rows(place)
        for length in range(self.depth - 1, -1, -1):
            below, child = self.below(place[:length]), int(place[length], 16)
            changed = below[: WIDTH * child] + found + below[WIDTH * (child + 1) :]
            self._put(place[:length], changed)
            found = _digest(changed)

    def _of_rows(self, place: str) -> bytes:
        text = self._text(place)
        return hashlib.sha256(text.encode("ascii")).digest() if text else EMPTY


class TableTree(Tree):
    """A tree whose nodes are rows of the ledger's own table."""

    def __init__(self, db: sqlite3.Connection, name: str, text: Callable[[str], str]) -> None:
        super().__init__(name, text)
        self._db = db

    def below(self, place: str) -> bytes:
        """One row, or none."""
        query = "SELECT below FROM seal WHERE tree = ? AND place = ?"
        row = self._db.execute(query, (self.name, place)).fetchone()
        return NO_CHILDREN if row is None else bytes(row[0])

    def _put(self, place: str, below: bytes) -> None:
        self._db.execute("INSERT OR REPLACE INTO seal VALUES(?, ?, ?)", (self.name, place, below))

    def expect_whole(self) -> None:
        """Every node under the top is the one that its parent names; what is at the places is looked at when used."""
        query = "SELECT place, below FROM seal WHERE tree = ?"
        nodes = {str(place): bytes(below) for place, below in self._db.execute(query, (self.name,))}
        above = {place[:-1] for place in nodes if place} | {place for place in nodes if len(place) < self.depth - 1}
        for place in above:
            below = nodes.get(place, NO_CHILDREN)
            named = b"".join(_digest(nodes.get(f"{place}{child:x}", NO_CHILDREN)) for child in range(16))
            if below != named:
                raise broken(self.name)

    def places(self) -> Iterator[str]:
        """Where the digests say that there are rows."""
        query = "SELECT place, below FROM seal WHERE tree = ? AND length(place) = ?"
        for place, below in self._db.execute(query, (self.name, self.depth - 1)).fetchall():
            for child in range(16):
                if below[WIDTH * child : WIDTH * (child + 1)] != EMPTY:
                    yield f"{place}{child:x}"

    def build(self, keys: Iterable[str]) -> None:
        """Make the tree over all rows at once."""
        for place in sorted({self.leaf(key) for key in keys}):
            self.update(place)


class ReplayedTree(Tree):
    """A tree in memory, over rows as the log says they must be."""

    def __init__(self, name: str) -> None:
        super().__init__(name, self._rows_at)
        self._nodes: dict[str, bytes] = {}
        self._rows: dict[str, dict[str, str]] = {}

    def below(self, place: str) -> bytes:
        """From memory."""
        return self._nodes.get(place, NO_CHILDREN)

    def _put(self, place: str, below: bytes) -> None:
        self._nodes[place] = below

    def _rows_at(self, place: str) -> str:
        rows = self._rows.get(place, {})
        return "\n".join(rows[key] for key in sorted(rows))

    def set(self, key: str, text: str) -> None:
        """Write one row."""
        self._rows.setdefault(self.leaf(key), {})[key] = text
        self.update(key)


def broken(name: str) -> LedgerCorrupt:
    """What to say of a table that isn't what the log vouches for."""
    what = "balances aren't" if name == "account" else "questions, or who paid for them, aren't"
    return LedgerCorrupt(
        f"{what} what the last entry of the log vouches for: the ledger was changed by hand or its disk is damaged. "
        "Nothing is charged or released; keep the file, put back the latest copy, and run `dither ledger verify`"
    )


def sealed(account: bytes, question: bytes, kept_for: str) -> str:
    """The seal of an entry: the tops of both trees, and what the ledger is kept for."""
    return hashlib.sha256(account + question + kept_for.encode("ascii")).hexdigest()


def _digest(below: bytes) -> bytes:
    return EMPTY if below == NO_CHILDREN else hashlib.sha256(below).digest()
