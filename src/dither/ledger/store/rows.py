"""What is kept beside the log: a row for each account and question, and the seals by which entries vouch for them.

The tables and the replay of the log use the same rows, so that both can be compared to the letter.

The rows of a table are sorted by the first digits of a digest into places, and a tree of SHA-256 digests stands over
them, sixteen children to a node. The top goes into each entry that is written, with what the ledger is kept for, and
the entry into the chain; so whoever trusts the last entry (the head, kept elsewhere, does) can check one row, or that
there is none, by a handful of digests, however long the log is. A change by hand to a balance or to the state of a
question is noticed before anything is charged or released by it.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dither.errors import LedgerCorrupt
from dither.ledger.amount import NOTHING, Account, Amount, Currency, Limit, expect_counts
from dither.ledger.entry import Balance, canonical

ACCOUNT_COLUMNS = (
    "path", "place", "main_limit", "delta_limit", "other_limits", "count_limits", "restated", "first_delta",
    "main_spent", "delta_spent", "others_spent", "counts",
)  # fmt: skip
QUESTION_COLUMNS = (
    "key", "main", "delta", "others", "counts", "reserved", "continues", "paid", "state", "claim", "owner",
    "answered", "digest",
)  # fmt: skip


def place_of(account: Account) -> str:
    """Where an account stands among others: by a digest, so that all places fill alike."""
    return hashlib.sha256(canonical(account.path).encode("ascii")).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountRow:
    """An account: its limit if it has one, how often that was changed after something was spent, what was spent.

    ``first_delta`` is the δ of the limit under which it first spent, its own or the dataset's: what was spent is read
    at that one for ever, since a δ that is stated later may have been chosen by the answers.
    """

    account: Account
    limit: Limit | None = None
    restated: int = 0
    first_delta: int | None = None
    spent: Amount = NOTHING
    counts: Mapping[str, int] = field(default_factory=dict)

    def limited(self, limit: Limit) -> AccountRow:
        """With another limit; one that is stated after something was spent may have been chosen by the answers."""
        another = self.limit is None or not limit.is_that_of(self.limit)
        return replace(self, limit=limit, restated=self.restated + (another and self.spent != NOTHING))

    def has(self, limit: Limit) -> bool:
        """Whether stating this limit says nothing new."""
        known = self.limit
        return (
            known is not None
            and (len(limit.others), limit.counts, limit.currency) == (len(known.others), known.counts, known.currency)
            and limit.is_that_of(known)
        )

    def charged(self, amount: Amount, counts: Mapping[str, int], dataset: AccountRow) -> AccountRow:
        """After a payment; ``dataset`` is the account that everybody's payments are booked on."""
        first = self.first_delta
        if first is None and (limit := self.limit or dataset.limit) is not None:
            first = limit.delta
        return replace(self, spent=self.spent + amount, counts=self.counted(counts), first_delta=first)

    def counted(self, counts: Mapping[str, int]) -> Mapping[str, int]:
        """What is counted for it with these besides."""
        return {name: self.counts.get(name, 0) + counts.get(name, 0) for name in {*self.counts, *counts}}

    def exceeds(self) -> bool:
        """Whether more was spent or counted than its limit says."""
        limit = self.limit
        return limit is not None and (not limit.allows(self.spent) or bool(limit.exceeded(self.counts)))

    @property
    def balance(self) -> Balance:
        """As callers see it."""
        limit = self.limit
        return Balance(
            account=self.account,
            limit=limit,
            spent=self.spent,
            remaining=limit.after(self.spent) if limit else None,
            restated=self.restated,
            first_delta=self.first_delta,
            counts=self.counts,
        )

    def values(self) -> tuple[Any, ...]:
        """The row of the table."""
        limit = self.limit
        limits: tuple[Any, ...] = (None, None, None, None)
        if limit is not None:
            limits = (limit.main, limit.delta, canonical(limit.others), canonical(dict(limit.counts)))
        path, counts = canonical(self.account.path), canonical(dict(self.counts))
        return path, place_of(self.account), *limits, self.restated, self.first_delta, *_columns(self.spent), counts

    @classmethod
    def of(cls, row: Sequence[Any], currency: Currency) -> AccountRow:
        """The inverse of ``values``."""
        path, _, main, delta, others, most_counted, restated, first_delta, *spent, counts = row
        limit = None
        if others is not None:
            limit = Limit(main, delta, currency, tuple(json.loads(others)), json.loads(most_counted))
        return cls(
            account=Account(tuple(json.loads(path))),
            limit=limit,
            restated=restated,
            first_delta=first_delta,
            spent=Amount(spent[0], spent[1], tuple(json.loads(spent[2]))),
            counts=_read_counts(counts),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionRow:
    """A question: its price, who paid and by which entry, who may answer it, and what was answered.

    ``counts`` are what it counts for whoever pays, ``continues`` is the entry of the receipt that it goes on from.
    """

    key: str
    amount: Amount
    reserved: int
    owner: str
    claim: int
    paid: tuple[tuple[Account, int], ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    continues: int | None = None
    state: str = "reserved"
    answered: int | None = None
    digest: str | None = None

    @property
    def payers(self) -> frozenset[Account]:
        """Who paid."""
        return frozenset(account for account, _ in self.paid)

    def paid_by(self, account: Account) -> int | None:
        """The entry by which an account paid."""
        return next((seq for payer, seq in self.paid if payer == account), None)

    def charged(self, payers: Sequence[Account], seq: int) -> QuestionRow:
        """After these accounts paid."""
        return replace(self, paid=(*self.paid, *((payer, seq) for payer in payers)))

    def claimed(self, seq: int, owner: str) -> QuestionRow:
        """After someone else took it over."""
        return replace(self, state="reserved", claim=seq, owner=owner)

    def failed(self) -> QuestionRow:
        """After it could not be answered."""
        return replace(self, state="failed")

    def ended(self, seq: int, digest: str) -> QuestionRow:
        """After its answer was recorded."""
        return replace(self, state="answered", answered=seq, digest=digest)

    def values(self) -> tuple[Any, ...]:
        """The row of the table, without the answer's bytes."""
        amount = _columns(self.amount)
        paid = canonical([[list(account.path), seq] for account, seq in self.paid])
        end = self.state, self.claim, self.owner, self.answered, self.digest
        return self.key, *amount, canonical(dict(self.counts)), self.reserved, self.continues, paid, *end

    @classmethod
    def of(cls, row: Sequence[Any]) -> QuestionRow:
        """The inverse of ``values``."""
        key, main, delta, others, counts, reserved, continues, paid, state, claim, owner, answered, digest = row
        return cls(
            key=key,
            amount=Amount(main, delta, tuple(json.loads(others))),
            counts=_read_counts(counts),
            reserved=reserved,
            continues=continues,
            paid=tuple((Account(tuple(path)), seq) for path, seq in json.loads(paid)),
            state=state,
            claim=claim,
            owner=owner,
            answered=answered,
            digest=digest,
        )


def _read_counts(text: str) -> Mapping[str, int]:
    counts: Mapping[str, int] = json.loads(text)
    expect_counts(counts)
    return counts


def _columns(amount: Amount) -> tuple[int | None, int, str]:
    return amount.main, amount.delta, canonical(amount.others)


def row_text(values: Sequence[Any]) -> str:
    """A row as it enters a seal."""
    return canonical(list(values))


# ---------------------------------------------------------------------------------------------- seals


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
