"""Transactions: nothing is written here, so they change nothing but the status that clients follow."""

from __future__ import annotations

from dither.server.pgwire.protocol.errors import WireReport, failure, notice
from dither.server.pgwire.sql.commands import Transaction

IDLE, OPEN, FAILED = b"I", b"T", b"E"
MOST_SAVEPOINTS = 1000


class TransactionState:
    """Whether a transaction is open or has failed, and its savepoints, as PostgreSQL would have it."""

    def __init__(self) -> None:
        self.status = IDLE
        self.savepoints: list[str] = []
        # the statement that began it, with its modes
        self.opening = "BEGIN"
        # several statements of one message are a block without a BEGIN
        self.implicit = False
        # an error came up since the client was told that the server is ready
        self.broken = False

    @property
    def in_block(self) -> bool:
        """Whether the next statement is one of several that are kept or undone together."""
        return self.status != IDLE or self.implicit

    def fail(self) -> None:
        """An error came up: an open transaction can only be rolled back."""
        self.broken = True
        if self.status == OPEN:
            self.status = FAILED

    def settle(self) -> None:
        """A message, or all up to a Sync, is done with."""
        self.implicit = self.broken = False

    def expect_working(self) -> None:
        """Refuse everything but the end of a failed transaction."""
        if self.status == FAILED:
            raise failure(
                "25P02",
                "current transaction is aborted, commands ignored until end of transaction block",
                hint="Send ROLLBACK. Answers that were given stay charged.",
            )

    def run(self, wanted: Transaction, tag: str) -> tuple[str, WireReport | None]:
        """Do what the statement says; the tag of its completion, and a warning."""
        if wanted.action == "begin":
            return self._begin(tag)
        if wanted.action in ("commit", "rollback"):
            return self._end(wanted)
        if self.status == IDLE:
            raise failure("25P01", f"{tag or 'this'} can only be used in transaction blocks")
        if wanted.action == "savepoint":
            self.expect_working()
            if len(self.savepoints) >= MOST_SAVEPOINTS:
                raise failure(
                    "53400", f"a transaction may have {MOST_SAVEPOINTS} savepoints", hint="Release some first."
                )
            self.savepoints.append(wanted.name)
            return tag, None
        if wanted.name not in self.savepoints:
            self.fail()
            raise failure("3B001", "there is no savepoint of this name")
        place = len(self.savepoints) - 1 - self.savepoints[::-1].index(wanted.name)
        if wanted.action == "release":
            self.expect_working()
            del self.savepoints[place:]
        else:
            del self.savepoints[place + 1 :]
            self.status = OPEN
        return tag, None

    def _begin(self, tag: str) -> tuple[str, WireReport | None]:
        self.expect_working()
        if self.status == OPEN:
            again = notice("there is already a transaction in progress", severity="WARNING", sqlstate="25001")
            return tag, again
        self.status = OPEN
        return tag, None

    def _end(self, wanted: Transaction) -> tuple[str, WireReport | None]:
        none_open = notice("there is no transaction in progress", severity="WARNING", sqlstate="25P01")
        warning = none_open if self.status == IDLE else None
        if wanted.chain and self.status == IDLE:
            raise failure("25P01", "AND CHAIN can only be used in transaction blocks")
        tag = "ROLLBACK" if wanted.action == "rollback" or self.status == FAILED else "COMMIT"
        self.status = OPEN if wanted.chain else IDLE
        self.savepoints.clear()
        return tag, warning
