"""The accounts of a policy: their caps in the ledger's currency, and what of them an analyst may know.

An analyst knows their own account alone. What others have spent can't be read off a price, however often one asks: the
dataset's account decides only when a question is charged, and then says no more than yes or no.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dither.curator.exchange import Exchange
from dither.curator.policy.policy import Policy
from dither.errors import OutOfBudget
from dither.ledger import Account, Amount, Balance, Ledger, Limit

# The name under which the owner of the data asks; bound by the dataset's budget alone.
OWNER = "owner"


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLine:
    """An account as people read it: spending as ε at the account's ``delta``, and the share of its cap that is used up.

    In zCDP the two differ: half of ρ is more than half of ε. ``share`` is what decides how much more can be asked; an
    account without a cap of its own has none.
    """

    account: str
    epsilon_spent: float
    epsilon_budget: float | None
    share: float | None
    delta: float
    exactly: str

    def __str__(self) -> str:
        text = f"ε = {self.epsilon_spent:.4g} spent"
        if self.epsilon_budget is None or self.share is None:
            return f"{text} (not capped by a budget of its own)"
        return f"{text} of {self.epsilon_budget:g} ({100 * (1 - self.share):.3g}% of the budget is left)"


class Accounts:
    """Who pays for a question, how much each may spend, and what each is told."""

    def __init__(self, policy: Policy, exchange: Exchange, ledger: Ledger) -> None:
        self._policy, self._exchange, self._ledger = policy, exchange, ledger
        self._limits = self._caps()

    @property
    def dataset(self) -> Account:
        """The account from which everybody's questions are paid."""
        return Account((self._policy.source.name,))

    def account(self, analyst: str) -> Account:
        """The analyst's account under the dataset's."""
        return Account((self._policy.source.name, analyst))

    def limits(self) -> dict[Account, Limit]:
        """The policy's caps in the ledger's currency."""
        return dict(self._limits)

    def _caps(self) -> dict[Account, Limit]:
        caps = {self.dataset: self._exchange.limit(self._policy.budget.epsilon_budget)}
        for name, own in self._policy.analysts.items():
            if own.epsilon_budget is not None:
                caps[self.account(name)] = self._exchange.limit(own.epsilon_budget, own.delta_budget)
        return caps

    def lines(self, analyst: str) -> tuple[BudgetLine, ...]:
        """Every account for the owner; for an analyst their own."""
        if analyst != OWNER:
            self._policy.analyst(analyst)
            return (self.line(self._spent(self.account(analyst))),)
        found = {balance.account: balance for balance in self._ledger.balances()}
        for account in self._limits:
            found.setdefault(account, self._spent(account))
        return tuple(self.line(found[account]) for account in sorted(found, key=lambda one: one.path))

    def left(self, analyst: str) -> str:
        """What is left to an analyst, in words; to the owner, of the dataset's budget."""
        own = self.account(analyst)
        return str(self.line(self._spent(self.dataset if analyst == OWNER and own not in self._limits else own)))

    def fits(self, amount: Amount, key: str, analyst: str) -> bool:
        """Whether a question fits in the account that this analyst may know; for the owner, in the dataset's too."""
        own = self.account(analyst)
        payers = (self.dataset, own) if analyst == OWNER else (own,)
        return all(self._allows(payer, amount) or self._ledger.paid(key, payer) for payer in payers)

    def out_of_budget(self, amount: Amount, epsilon: float | None, analyst: str) -> OutOfBudget:
        """Why a question can't be paid for, in words; of other accounts than the analyst's no more than that."""
        exactly = amount.in_words(self._exchange.currency)
        cost = exactly if epsilon is None else f"ε = {epsilon:.4g} ({exactly})"
        known = self.dataset if analyst == OWNER else self.account(analyst)
        if self._allows(known, Amount(amount.main, 0)) and not self._allows(known, amount):
            why = "the δ that is left for discovering keys is too little: group by keys that the policy declares"
        elif analyst == OWNER or not self._allows(known, amount):
            why = f"it doesn't fit in the budget: {self.left(analyst)}"
        else:
            why = "the dataset's budget, which all analysts share, doesn't allow it any more"
        advice = "Ask with a smaller ε or a larger error"
        advice += "" if analyst == OWNER else ", or ask the owner of the data for more"
        return OutOfBudget(f"this costs {cost}, and {why}. Nothing was spent. {advice}; what was paid for stays free.")

    def line(self, balance: Balance) -> BudgetLine:
        """A balance as people read it."""
        limit, delta = self._limits.get(balance.account), self._delta(balance.account)
        cap = self._cap(balance.account)
        return BudgetLine(
            account="/".join(balance.account.path),
            epsilon_spent=self._exchange.epsilon_of(balance.spent, delta),
            epsilon_budget=None if cap is None else float(cap),
            share=None if limit is None else _used(balance.spent, limit),
            delta=float(delta),
            exactly=balance.spent.in_words(self._exchange.currency),
        )

    def _spent(self, account: Account) -> Balance:
        found = self._ledger.balance(account)
        return found or Balance(account=account, limit=None, spent=Amount(), remaining=None)

    def _allows(self, account: Account, amount: Amount) -> bool:
        limit = self._limits.get(account)
        return limit is None or limit.allows(self._spent(account).spent + amount)

    def _cap(self, account: Account) -> Fraction | None:
        if account == self.dataset:
            return self._policy.budget.epsilon_budget
        entry = self._policy.analysts.get(account.path[-1])
        return entry.epsilon_budget if entry else None

    def _delta(self, account: Account) -> Fraction:
        """The δ at which an account's spending is read: the analyst's own where the policy states one."""
        entry = self._policy.analysts.get(account.path[-1]) if len(account.path) > 1 else None
        if entry is None or entry.delta_budget is None:
            return self._policy.budget.delta_budget
        return entry.delta_budget


def _used(spent: Amount, limit: Limit) -> float:
    """The larger share of the two parts of a budget that is used up."""
    parts = [(spent.main, limit.main), (spent.delta, limit.delta)]
    return max((used / most if most else float(used > 0)) for used, most in parts)
