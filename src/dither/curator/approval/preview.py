"""What the owner sees beside a request before deciding: its price and error, and what is left now and afterwards.

Nothing is charged by looking.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from dither.curator.asker import OWNER
from dither.curator.charging import Accounts
from dither.curator.epsilon_to_currency import Exchange
from dither.curator.price.quote import Quote
from dither.curator.results import BudgetLine, Request, RequestKind
from dither.curator.terms import Terms
from dither.curator.vault import Vault
from dither.errors import DitherError
from dither.numeric.rounding import NEARLY_ALL, SMALLEST, percent


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLeft:
    """What an account has left before and after, in words."""

    whose: str
    now: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What a decision would bring.

    ``quote`` is the question's, as its analyst gets it; ``problem`` says why there is none, ``unfit`` whose budget it
    doesn't fit in.
    """

    accounts: tuple[BudgetLeft, ...]
    quote: Quote | None = None
    problem: str = ""
    unfit: str = ""


def outlook_of(vault: Vault, request: Request) -> Outlook:
    """What is left now, and what would be if this request is approved and, for a question, asked."""
    vault.expect_bound()
    lines = vault.accounts.lines(vault.accounts.asker(OWNER))
    dataset = next(line for line in lines if line.account == vault.policy.source.name)
    try:
        (own,) = vault.accounts.lines(vault.accounts.asker(request.analyst))
        if request.kind is RequestKind.BUDGET:
            return _raised(vault, request, own, dataset)
        return _asked(vault, request, own, dataset)
    except DitherError as error:
        now = BudgetLeft(whose="everybody together", now=_left(dataset), after="–")
        return Outlook(accounts=(now,), problem=str(error))


def _asked(vault: Vault, request: Request, own: BudgetLine, dataset: BudgetLine) -> Outlook:
    quote = _quote(vault, request, request.analyst)
    accounts = [BudgetLeft(whose=request.analyst, now=_left(own), after=_after(own, quote.share))]
    unfit = "" if quote.fits else request.analyst
    after = "–"
    if vault.accounts.asker(OWNER).told == vault.accounts.dataset:
        # an owner without a cap of their own is told about the dataset's account
        whole = _quote(vault, request, OWNER)
        after = _after(dataset, whole.share)
        unfit = unfit or ("" if whole.fits or quote.free else "everybody together")
    accounts.append(BudgetLeft(whose="everybody together", now=_left(dataset), after=after))
    return Outlook(accounts=tuple(accounts), quote=quote, unfit=unfit)


def _quote(vault: Vault, request: Request, name: str) -> Quote:
    terms = Terms.of(**{term: value for term, value in request.asked.items() if term in Terms.__slots__})
    return vault.quoting.quote(vault.pricing.prepare(request.sql, terms, vault.accounts.asker(name)))


def _raised(vault: Vault, request: Request, own: BudgetLine, dataset: BudgetLine) -> Outlook:
    if own.epsilon_budget is None:
        after = own
    else:
        stated = vault.policy.analyst(request.analyst).epsilon_budget or Fraction(0)
        granted: Mapping[str, Fraction] = {
            request.analyst: Fraction(own.epsilon_budget) - stated + Fraction(request.epsilon)
        }
        exchange = Exchange(vault.policy.budget.delta_budget, vault.ledger.sums)
        # the curator's own accounts, as if the grant were made
        raised = Accounts(vault.policy, exchange, vault.ledger, lambda: granted)
        (after,) = raised.lines(raised.asker(request.analyst))
    return Outlook(
        accounts=(
            BudgetLeft(whose=request.analyst, now=_left(own), after=_left(after)),
            BudgetLeft(whose="everybody together", now=_left(dataset), after="the same"),
        )
    )


def _left(line: BudgetLine) -> str:
    if line.share is None or line.epsilon_budget is None:
        return "no budget of their own"
    return f"{percent(1 - line.share)} of ε = {line.epsilon_budget:g}"


def _after(line: BudgetLine, taken: float | None) -> str:
    """Shares add up; the larger of two parts of a budget may add up to less, so this is the least that is left."""
    if line.share is None or taken is None:
        return "–"
    if not taken:
        return "the same"
    left = 1 - line.share - taken
    if left < 0:
        return "too little"
    if left < SMALLEST:
        return "next to nothing"
    return percent(left) if left >= NEARLY_ALL else f"at least {percent(left)}"
