"""What a ledger speaks of: entries in a chain of hashes, balances, receipts, reservations.

Entries form a chain: each holds the SHA-256 of the one before, so that no entry can be changed, dropped or put in
between without changing every later one. The form is permanent: format 2, and format 1, whose entries have no seal.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from fractions import Fraction
from typing import Any

from dither.errors import InvalidParameter, LedgerCorrupt
from dither.ledger.amount import Account, Amount, Currency, Limit, Sum
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

    ``sums`` are added up side by side, the one that amounts are told in first, each with its share of the reading's δ.
    """

    ledger: str
    currency: Currency
    adjacency: Adjacency
    unit: str
    dataset: str
    sums: tuple[Sum, ...]
    format: int = 2

    def __post_init__(self) -> None:
        if sum((one.share for one in self.sums), Fraction(0)) > 1:
            raise InvalidParameter("the shares of all sums are parts of one δ, so they add up to at most 1")

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
