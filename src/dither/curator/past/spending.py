"""How spending grew: for a picture of what is left of each budget over time."""

from __future__ import annotations

from dither.curator.charging import Accounts
from dither.curator.past.log import PastQuestions
from dither.curator.results import Spending
from dither.ledger import Account

MOST_POINTS = 500


def history(past: PastQuestions, account: Account | None, accounts: Accounts) -> tuple[Spending, ...]:
    """The points of one account or of all in order, at most ``MOST_POINTS`` of each, with the first and the last."""
    lines = ((at, accounts.line(payer, spent)) for payer, at, spent in past.spent(account, _chosen))
    return tuple(
        Spending(at=at, account=line.account, epsilon_spent=line.epsilon_spent, share=line.share) for at, line in lines
    )


def _chosen(count: int) -> list[int]:
    if count <= MOST_POINTS:
        return list(range(count))
    return [round(place * (count - 1) / (MOST_POINTS - 1)) for place in range(MOST_POINTS)]
