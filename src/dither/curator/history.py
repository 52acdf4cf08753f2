"""How spending grew: for a picture of what is left of each budget over time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from dither.curator.accounts import Accounts
from dither.ledger import Account, Amount

MOST_POINTS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What an account had spent in all by a moment, as ε and as the share of its cap as it is now (None without)."""

    at: str
    account: str
    epsilon_spent: float
    share: float | None


def history(payments: Sequence[tuple[str, str, Amount]], accounts: Accounts) -> tuple[Spending, ...]:
    """The points of each account in order, at most ``MOST_POINTS`` of them, always with the first and the last."""
    found = {path: list(group) for path, group in groupby(payments, key=lambda one: one[0])}
    return tuple(point for path in sorted(found, key=json.loads) for point in _of(found[path], accounts))


def _of(payments: Sequence[tuple[str, str, Amount]], accounts: Accounts) -> Iterator[Spending]:
    wanted = _chosen(len(payments))
    spent = Amount()
    for place, (path, at, more) in enumerate(payments):
        spent += more
        if place in wanted:
            account = Account(tuple(json.loads(path)))
            line = accounts.line(account, spent)
            yield Spending(at=at, account=line.account, epsilon_spent=line.epsilon_spent, share=line.share)


def _chosen(count: int) -> frozenset[int]:
    if count <= MOST_POINTS:
        return frozenset(range(count))
    return frozenset(round(place * (count - 1) / (MOST_POINTS - 1)) for place in range(MOST_POINTS))
