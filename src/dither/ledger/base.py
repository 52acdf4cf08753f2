"""The contract of a ledger, and what it speaks of: entries in a chain of digests, balances, receipts, reservations.

Entries form a chain: each holds the SHA-256 of the one before, so that no entry can be changed, dropped or put in
between without changing every later one. The form is permanent: format 2, and format 1, whose entries have no seal.

Rules, held by ``dither.checks.check_ledger``:

1. Nothing is run before a durable reservation has charged every account on the requester's path.
2. Each account pays once per question; the same question again is answered from the record.
3. Nothing is released before it is recorded; what is released are the recorded bytes, and one question has one answer.
4. Nothing is refunded: a failure may depend on the data. The same question redeems its reservation instead, which is
   sound because rule 3 shows that nothing of it ever left.
5. Refusing changes nothing and costs nothing.
6. Every charge is booked on all sums that the ledger keeps; what it is kept for never changes unnoticed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Self

from dither.errors import InvalidParameter, LedgerCorrupt
from dither.ledger.amount import Account, Amount, Currency, Limit, Sum, Units
from dither.privacy import Adjacency, Json, PrivacyLoss

GENESIS = "0" * 64
CHAIN = "dither-ledger-1"
KEY = re.compile(r"[0-9a-f]{8,128}")
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


class EntryKind(Enum):
    """What happened."""

    OPENED = "opened"
    LIMITS = "limits"
    RESERVE = "reserve"
    CHARGE = "charge"
    REDEEM = "redeem"
    ANSWER = "answer"
    FAILED = "failed"
    ADOPTED = "adopted"
    BOUND = "bound"
    UPGRADED = "upgraded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One link of the chain; ``at`` is information only, order is by ``seq``."""

    seq: int
    at: str
    kind: EntryKind
    body: Json
    previous: str
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The proof that ``account`` paid for the question ``key`` before data was read.

    ``amount`` is what the question costs each account on the path; ``seq`` and ``hash`` name the entry.
    """

    number: str
    key: str
    account: Account
    amount: Amount
    loss: PrivacyLoss
    at: str
    seq: int
    hash: str


# weakly referenced by the ledger: whoever loses a reservation, to an interrupt for one, isn't at work any more
@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class Reservation:
    """The right to an answer: the stored one, or to run the question once and ``record`` it.

    It lasts as long as this very object is kept, and ends with ``record``, ``fail`` or ``give_up``.
    ``answer`` is None if the caller must run. ``charged`` is what this very call charged, nothing for an account that
    had paid. ``claim`` names the entry that gave the right to run; a later claim takes it away.
    """

    receipt: Receipt
    answer: bytes | None
    replayed: bool
    charged: Amount
    claim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """One account: its own limit if it has one, what it spent, what its own limit leaves.

    ``restated`` counts how often its limit was changed after something had been spent. ``first_delta`` is the δ, in the
    units of ``Limit``, of the limit under which it first spent. ``counts`` are what was counted for it beside the sums.
    """

    account: Account
    limit: Limit | None
    spent: Amount
    remaining: Amount | None
    restated: int = 0
    first_delta: int | None = None
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What a complete replay found to hold: so many entries, these balances, this head of the chain.

    ``adopted`` counts how often the owner declared a ledger to be the latest copy without proof, ``rebound`` how often
    that another unit names the same people. ``format`` is that of the tables.
    """

    entries: int
    balances: tuple[Balance, ...]
    head: str
    adopted: int
    rebound: int = 0
    format: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What a ledger is kept for; none of it can change, since spending can't be converted.

    ``sums`` are added up side by side, the one that decides first, each with its share of the reading's δ.
    """

    ledger: str
    currency: Currency
    adjacency: Adjacency
    unit: str
    dataset: str
    sums: tuple[Sum, ...]
    format: int = 2

    def to_json(self) -> Json:
        """The body of the first entry."""
        form: Json = {
            "format": self.format,
            "ledger": self.ledger,
            "currency": self.currency.value,
            "adjacency": self.adjacency.value,
            "unit": self.unit,
            "dataset": self.dataset,
        }
        return form if self.format == 1 else {**form, "sums": [one.to_json() for one in self.sums]}

    @classmethod
    def from_json(cls, form: Json) -> Opening:
        """The inverse of ``to_json``; the seal of the entry is not part of it."""
        fields = {"format", "ledger", "currency", "adjacency", "unit", "dataset"}
        written = form.get("format")
        if written not in (1, 2) or set(form) - {"seal"} != (fields if written == 1 else fields | {"sums"}):
            raise InvalidParameter("expected the first entry of a ledger, format 1 or 2")
        currency = Currency(form["currency"])
        return cls(
            ledger=str(form["ledger"]),
            currency=currency,
            adjacency=Adjacency(form["adjacency"]),
            unit=str(form["unit"]),
            dataset=str(form["dataset"]),
            sums=currency.first_sums if written == 1 else tuple(Sum.from_json(one) for one in form["sums"]),
            format=written,
        )

    def differences(self, other: Opening) -> list[str]:
        """What differs, in words; the ledger's own name and which sums it keeps don't count."""
        mine, theirs = self.to_json(), other.to_json()
        return [
            f"{name}: the ledger has {mine[name]!r}, now asked for {theirs[name]!r}"
            for name in ("currency", "adjacency", "unit", "dataset")
            if mine[name] != theirs[name]
        ]


def now() -> str:
    """The time as it is written into entries; nothing depends on it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def canonical(value: object) -> str:
    """The one JSON text of a value: sorted keys, no blanks, ASCII, no NaN."""
    try:
        return _CANONICAL.encode(value)
    except (TypeError, ValueError, RecursionError) as problem:
        raise InvalidParameter(
            "a note holds JSON only: texts, finite numbers, truth values, lists, objects"
        ) from problem


def link(seq: int, at: str, kind: str, body: str, previous: str) -> str:
    """The hash of an entry; ``body`` enters as the very text that is stored."""
    return hashlib.sha256(canonical([CHAIN, seq, at, kind, body, previous]).encode("ascii")).hexdigest()


def digest(answer: bytes) -> str:
    """The name of an answer in the log."""
    return hashlib.sha256(answer).hexdigest()


def expect_key(key: object) -> str:
    """Raise unless it is a digest of a question."""
    if not isinstance(key, str) or not KEY.fullmatch(key):
        raise InvalidParameter("the key of a question is a digest: 8 to 128 lower-case hexadecimal digits")
    return key


def as_stored(form: Json, note: Mapping[Any, Any]) -> tuple[Json, Json]:
    """The form of a loss and a note as they will be read back; refuses what JSON can't hold."""
    if any(not isinstance(name, str) for name in note):
        raise InvalidParameter("a note is a mapping from texts to JSON values")
    loss, plain = json.loads(canonical([form, dict(note)]))
    return loss, plain


def read_entry(row: Sequence[Any]) -> Entry:
    """One row of the log; raises LedgerCorrupt where it can't be read."""
    seq, at, kind, text, previous, this = row
    try:
        # unpacking anything but an object raises
        return Entry(seq=seq, at=at, kind=EntryKind(kind), body={**json.loads(text)}, previous=previous, hash=this)
    except (ValueError, TypeError) as problem:
        raise LedgerCorrupt(
            f"entry {seq} of the ledger can't be read: it is no JSON object, or of no known kind"
        ) from problem


# ---------------------------------------------------------------------------------------------- the contract


PATIENCE = 60.0
GIVEN_UP = "given up: interrupted, or the ledger could not be written"


class Ledger(ABC):
    """The durable record of everything that was spent."""

    @property
    @abstractmethod
    def currency(self) -> Currency:
        """What decides whether something fits."""

    @property
    def sums(self) -> tuple[Sum, ...]:
        """What is added up side by side, the sum that decides first; fixed when the ledger was opened first."""
        return self.currency.sums[:1]

    def price(self, loss: PrivacyLoss) -> Amount:
        """What a loss costs on every sum; raises IncompatibleLosses where it has no view that decides."""
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
