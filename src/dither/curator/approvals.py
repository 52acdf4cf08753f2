"""Questions above a price and larger budgets: what analysts ask of the owner, and what a decision changes."""

from __future__ import annotations

from fractions import Fraction

from dither.curator.accounts import OWNER, Accounts
from dither.curator.asked import Asked
from dither.curator.charging import Charging
from dither.curator.policy.policy import Policy
from dither.curator.policy.settings import LARGEST_EPSILON
from dither.curator.pricing import Pricing
from dither.curator.requests import Request, RequestKind, Requests
from dither.errors import InvalidParameter, Refused
from dither.ledger.entry import canonical
from dither.numeric import Number, positive


class Approvals:
    """The owner's decisions, and who may ask for them."""

    def __init__(
        self, policy: Policy, pricing: Pricing, accounts: Accounts, charging: Charging, requests: Requests
    ) -> None:
        self._policy, self._pricing, self._accounts, self._charging = policy, pricing, accounts, charging
        self._requests = requests

    def question(self, sql: str, asked: Asked, why: str) -> Request:
        """Ask the owner for one question; the same request again is the one that waits or was approved."""
        prepared = self._pricing.prepare(sql, asked)
        name, key = self._name(asked.analyst), prepared.key
        waits = self._pricing.quoting.waits(key, prepared.epsilon, asked.analyst)
        if prepared.question.explain or not (waits or self._requests.approved(key, name)):
            raise Refused(
                "this question doesn't need the owner's approval",
                code="no_approval_needed",
                hint="Ask it.",
            )
        return self._requests.ask(
            analyst=name,
            kind=RequestKind.QUESTION,
            key=key,
            sql=sql,
            asked=canonical(asked.to_json()),
            epsilon=str(Fraction(prepared.epsilon)),
            why=why,
        )

    def budget(self, analyst: str, epsilon: Number, why: str) -> Request:
        """Ask the owner for more of an analyst's own budget."""
        name, more = self._name(analyst), positive(epsilon, "epsilon")
        cap = self._accounts.cap(self._accounts.account(name))
        if cap is None:
            raise Refused(
                "this analyst has no budget of their own that could be raised",
                code="no_budget_to_raise",
                hint="The dataset's budget binds alone; the owner states it in the policy.",
            )
        if cap + more > LARGEST_EPSILON:
            raise InvalidParameter(f"epsilon must leave the budget at or below {LARGEST_EPSILON}")
        return self._requests.ask(
            analyst=name, kind=RequestKind.BUDGET, key="", sql="", asked="", epsilon=str(more), why=why
        )

    def all(self, analyst: str, *, waiting_only: bool) -> tuple[Request, ...]:
        """Newest first: everybody's for the owner, their own for an analyst."""
        whose = None if analyst == OWNER else self._name(analyst)
        return self._requests.all(whose, waiting_only=waiting_only)

    def decide(self, number: str, *, approve: bool, why: str) -> Request:
        """The owner's decision; a raised cap is stated in the ledger at once."""
        waiting = self._requests.find(number)
        if approve and waiting.kind is RequestKind.BUDGET:
            cap = self._accounts.cap(self._accounts.account(waiting.analyst))
            if cap is None:
                raise Refused(
                    "the policy doesn't give this analyst a budget of their own any more",
                    code="no_budget_to_raise",
                    hint="Add epsilon_budget to the analyst's section first, or refuse the request.",
                )
        decided = self._requests.decide(number, approve=approve, why=why)
        if decided.kind is RequestKind.BUDGET and approve:
            self._charging.state_limits()
        return decided

    def _name(self, analyst: str) -> str:
        """The analyst's name as accounts have it; Refused for who may not ask, and for the owner, who decides."""
        if analyst == OWNER:
            raise Refused("the owner decides and asks nobody", code="no_approval_needed", hint="Ask the question.")
        return self._policy.analyst(analyst).name
