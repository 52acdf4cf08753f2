"""Questions above a price and larger budgets: what analysts ask of the owner, and what a decision changes."""

from __future__ import annotations

from fractions import Fraction

from dither.curator.asker import Asker
from dither.curator.price.pricing import Prepared
from dither.curator.results import Request, RequestKind
from dither.curator.vault import Vault
from dither.errors import InvalidParameter, Refused
from dither.ledger.entry import canonical
from dither.numeric import Number, positive
from dither.policy.file_schema import LARGEST_EPSILON


class Approvals:
    """The owner's decisions, and who may ask for them."""

    def __init__(self, vault: Vault) -> None:
        self._vault, self._requests, self._accounts = vault, vault.requests, vault.accounts

    def question(self, prepared: Prepared, why: str) -> Request:
        """Ask the owner for one question; the same request again is the one that waits or was approved."""
        name, key = _asking(prepared.who), prepared.key
        waits = self._vault.quoting.waits(prepared)
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
            sql=prepared.sql,
            asked=canonical(prepared.terms.to_json()),
            epsilon=str(Fraction(prepared.epsilon)),
            why=why,
        )

    def budget(self, who: Asker, epsilon: Number, why: str) -> Request:
        """Ask the owner for more of an analyst's own budget."""
        name, more = _asking(who), positive(epsilon, "epsilon")
        cap = self._accounts.cap(who.account)
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
            self._vault.charging.state_limits()
        return decided


def _asking(who: Asker) -> str:
    """The analyst's name as accounts have it; Refused for the owner, who decides."""
    if who.owner:
        raise Refused("the owner decides and asks nobody", code="no_approval_needed", hint="Ask the question.")
    return who.account.path[-1]
