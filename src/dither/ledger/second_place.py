"""The second place that knows how far a ledger has got: where its head is kept, and whether one was known there."""

from __future__ import annotations

import contextlib
from pathlib import Path

from dither.errors import LedgerCorrupt, LedgerRolledBack
from dither.ledger.head import HeadFile, Mark, Register, state_directory
from dither.privacy import Json


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


def in_words(mark: Mark) -> Json:
    """A mark as it is logged."""
    return {"ledger": mark.ledger, "seq": mark.seq, "hash": mark.hash}
