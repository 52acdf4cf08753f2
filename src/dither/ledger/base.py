"""The contract of a ledger.

Rules, held by ``dither.checks.check_ledger``:

1. Nothing is run before a durable reservation has charged every account on the requester's path.
2. Each account pays once per question; the same question again is answered from the record.
3. Nothing is released before it is recorded; what is released are the recorded bytes, and one question has one answer.
4. Nothing is refunded: a failure may depend on the data. The same question redeems its reservation instead, which is
   sound because rule 3 shows that nothing of it ever left.
5. Refusing changes nothing and costs nothing.
6. A question fits while any of the sums that the ledger keeps is within the limit, for every account that pays. It is
   booked on all of them; a loss that has no view for a sum closes that sum for good.
7. What a ledger is kept for never changes unnoticed.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Self

from dither.ledger.amount import Account, Amount, Currency, Limit, Sum, Units
from dither.ledger.entry import Balance, Entry, Receipt, Reservation, Verified
from dither.privacy import Adjacency, PrivacyLoss

PATIENCE = 60.0
GIVEN_UP = "given up: interrupted, or the ledger could not be written"


class Ledger(ABC):
    """The durable record of everything that was spent."""

    @property
    @abstractmethod
    def currency(self) -> Currency:
        """What amounts are told in."""

    @property
    def sums(self) -> tuple[Sum, ...]:
        """What is added up side by side, the one that amounts are told in first; fixed with the first entry."""
        return self.currency.sums[:1]

    def price(self, loss: PrivacyLoss) -> Amount:
        """What a loss costs on every sum; raises IncompatibleLosses where it has no view for the first."""
        return Amount.of(loss, self.currency, self.sums)

    @property
    @abstractmethod
    def adjacency(self) -> Adjacency:
        """Which neighbours every loss must be stated for."""

    @abstractmethod
    def bind(self, units: Units, *, rebind: bool = False, note: bool = True) -> None:
        """See that this ledger is kept for these units, table by table; raises LedgerMismatch if it isn't.

        A further table of a known unit is noted (not with ``note=False``, for those who only look). ``rebind`` is the
        owner's word that these units name the same people as those before, and is logged.
        """

    @abstractmethod
    def set_limits(self, limits: Mapping[Account, Limit]) -> None:
        """State the limits of these accounts; others keep theirs.

        A change is logged. Spending is never reset: a limit below what was spent lets nothing more through. A limit
        can be changed but not removed, so that forgetting to state one doesn't open the budget.
        """

    @abstractmethod
    def reserve(
        self,
        *,
        key: str,
        account: Account,
        loss: PrivacyLoss,
        note: Mapping[str, Any],
        timeout: float = PATIENCE,
        counts: Mapping[str, int] | None = None,
        continues: int | None = None,
    ) -> Reservation:
        """Charge for a question before any data is read, or return its recorded answer.

        ``counts`` are added up beside the sums for every account that pays, whose limit may bound them; they belong to
        the question, as its price does. ``continues`` is the entry (``Receipt.seq``) by which this account paid for an
        answered question that the new one goes on from.

        ``key`` names the question; equal keys must mean equal questions, options, data and policy. If someone is at
        work on it, waits up to ``timeout`` seconds for the answer (then LedgerBusy). Raises OutOfBudget without a trace
        where an account on the path can't pay, and LedgerUncertain where it can't be told whether it charged.
        """

    @abstractmethod
    def record(self, reservation: Reservation, answer: bytes) -> Reservation:
        """Store the answer durably and return the stored bytes, the only ones that may be released.

        Raises LedgerError if the right to answer has passed to someone else; then nothing may be released. After
        LedgerBusy and LedgerUncertain the same answer may be recorded again.
        """

    @abstractmethod
    def fail(self, reservation: Reservation, cause: str) -> None:
        """Log for the owner why there is no answer; nothing is refunded, and the same question may redeem it at once.

        Whoever reserved must end with ``record`` or ``fail``, or ``give_up`` where neither can be written: until then
        others who ask the same wait. Does nothing if the right to answer has passed to someone else.
        """

    def give_up(self, reservation: Reservation) -> None:
        """Let the same question be redeemed although ``fail`` can't be written now; never raises, refunds nothing."""
        with contextlib.suppress(Exception):
            self.fail(reservation, GIVEN_UP)

    @abstractmethod
    def balances(self) -> tuple[Balance, ...]:
        """Every account that has a limit or has spent, in the order of their paths."""

    def balance(self, account: Account) -> Balance | None:
        """One account, or None if it has no limit and never spent."""
        return next((balance for balance in self.balances() if balance.account == account), None)

    def version(self) -> object | None:
        """A token that differs after every change of the ledger, by any process; None where there is none."""
        return None

    @abstractmethod
    def entries(self, *, after: int = 0, number: str | None = None) -> Iterator[Entry]:
        """The log in its order, from behind entry ``after``; with ``number``, what concerns that receipt."""

    def latest(self, count: int) -> list[Entry]:
        """The last ``count`` entries of the log, in its order."""
        return list(deque(self.entries(), maxlen=count))

    @abstractmethod
    def find(self, key: str, account: Account | None = None) -> Receipt | None:
        """The receipt of whoever asked this question first, or of this account, if it paid."""

    @abstractmethod
    def paid(self, key: str, account: Account) -> bool:
        """Whether asking this question is free for this account."""

    @abstractmethod
    def verify(self) -> Verified:
        """Replay everything; raises LedgerCorrupt or LedgerRolledBack, naming the entry where it broke."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the ledger; open reservations of this object can then be redeemed by others."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
