"""What the curator tells beside answers: accounts, what was asked, the ledger's entries, requests to the owner.

Data alone: a client at a distance loads these classes, and nothing of how a curator comes by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from dither.drawings.texts import percent
from dither.ledger import (
    Account as Account,
    Amount as Amount,
    Balance as Balance,
    Currency as Currency,
    Limit as Limit,
    Verified as Verified,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLine:
    """An account as people read it: what was spent so far as ε at ``delta``, and the share of its cap that is used up.

    ``epsilon_spent`` may be read at any moment. In zCDP the two differ: half of ρ is more than half of ε. ``share`` is
    what decides how much more can be asked; an account without a cap of its own has none. ``told`` marks the account of
    which prices speak to whoever looks; it isn't compared.
    """

    account: str
    epsilon_spent: float
    epsilon_budget: float | None
    share: float | None
    delta: float
    exactly: str
    told: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        text = f"ε = {self.epsilon_spent:.4g} spent"
        if self.epsilon_budget is None or self.share is None:
            return f"{text} (not capped by a budget of its own)"
        return f"{text} of {self.epsilon_budget:g} ({percent(1 - self.share)} of the budget is left)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """A question that was paid for: its receipt number, when, by whom, its text and its cost.

    ``mine`` says that the account of whoever looks paid for it; ``answered`` that its answer is on record. One that
    isn't answered, because something failed, is run by asking for it again, at no cost. ``epsilon`` is rounded for
    people; ``asked`` has exactly the ε or the error, the weights and the confidence, with which the same question is
    free. It is empty in what came from elsewhere than this ledger's own list, and isn't compared.
    """

    number: str
    at: str
    who: str
    sql: str
    epsilon: str
    cost: str
    mine: bool
    answered: bool
    asked: Mapping[str, Any] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPage:
    """Some of the questions that were paid for, newest first; ``next`` is where the page after this begins, if any."""

    items: tuple[Past, ...]
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What an account had spent in all by a moment, as ε and as the share of its cap as it is now (None without)."""

    at: str
    account: str
    epsilon_spent: float
    share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One entry of the ledger in words.

    ``question`` is what was asked, why it failed, or which limits were stated. ``epsilon`` is the price as the analyst
    saw it, and isn't compared: over HTTP it isn't sent.
    """

    number: int
    at: str
    what: str
    receipt: str
    who: str
    cost: str
    question: str
    epsilon: str = field(default="", compare=False)


class RequestKind(StrEnum):
    """What is asked for."""

    QUESTION = "question"
    BUDGET = "budget"


class RequestState(StrEnum):
    """What became of it."""

    WAITING = "waiting"
    APPROVED = "approved"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Something that an analyst asks of the owner.

    ``epsilon`` is what the question would cost, rounded for people, or by how much the budget is to be raised; ``sql``
    is empty for a budget. ``asked`` says exactly for which ε or error the question would be asked: an approval is for
    that. ``answer_why`` is what the owner says to the decision.
    """

    number: str
    at: str
    analyst: str
    kind: RequestKind
    sql: str
    asked: Mapping[str, Any]
    epsilon: str
    why: str
    state: RequestState
    answer_why: str
