"""Who pays, and the way of one question through the ledger: charge, record, and how each failure is reported.

An analyst knows their own account alone. What others have spent can't be read off a price, however often one asks: the
dataset's account decides only when a question is charged, and then says no more than yes or no.

From the moment at which a charge may be on disk nothing escapes but the recorded answer, ``Failed`` with the receipt,
or the interrupt that stopped it; whatever else was raised may quote data, and goes to the ledger alone.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Self

from dither.curator.answer_time import UnderWay
from dither.curator.asker import OWNER, Asker
from dither.curator.epsilon_to_currency import HALF, Exchange
from dither.curator.results import BudgetLine
from dither.errors import DitherError, Failed, LedgerCorrupt, OutOfBudget, SourceError
from dither.ledger import Account, Amount, Balance, Currency, EntryKind, Ledger, Limit, Reservation
from dither.ledger.amount import DELTA_UNITS, Units
from dither.policy.policy import Policy
from dither.privacy import Guarantee, PrivacyLoss

# What a guarantee says of an account that spent nothing: one unit of the ledger, since ε is above 0.
NEXT_TO_NOTHING = Fraction(1, 10**12)
# For so many analysts what is left to them is kept in words, until anybody is charged.
MOST_SAID = 1000
Granted = Callable[[], Mapping[str, Fraction]]


@dataclass(frozen=True, slots=True)
class _Caps:
    """The caps of all accounts that have one, as ε and in the ledger's currency, once so much was granted."""

    granted: Mapping[str, Fraction]
    epsilons: Mapping[Account, Fraction]
    limits: Mapping[Account, Limit]


class Accounts:
    """Who pays for a question, how much each may spend, and what each is told.

    ``granted`` says by how much the owner raised the ε of analysts since; each is added to the cap in the policy.
    """

    def __init__(self, policy: Policy, exchange: Exchange, ledger: Ledger, granted: Granted = dict) -> None:
        self._policy, self._exchange, self._ledger, self._granted = policy, exchange, ledger, granted
        self._dataset = Account((policy.source.name,))
        self._askers: dict[str, Asker] = {}
        self._said: dict[str, tuple[object, _Caps, str]] = {}
        self._known: _Caps | None = None

    @property
    def dataset(self) -> Account:
        """The account from which everybody's questions are paid."""
        return self._dataset

    def account(self, analyst: str) -> Account:
        """The account of a name under the dataset's."""
        return Account((self._policy.source.name, analyst))

    def asker(self, name: str) -> Asker:
        """Who asks under this name; Refused if the policy doesn't let it ask."""
        known = self._askers.get(name)
        if known is not None:
            return known
        owner, listed = name == OWNER, name in self._policy.analysts
        rules = None if owner and not listed else self._policy.analyst(name)
        budget, own = self._policy.budget, self.account(name)
        most = budget.max_epsilon_per_query
        made = Asker(
            name=name,
            owner=owner,
            account=own,
            told=self.dataset if owner and (rules is None or rules.epsilon_budget is None) else own,
            most_epsilon=most if rules is None else min(most, rules.max_epsilon_per_query),
            approval_above=None if owner or rules is None else rules.needs_approval_above,
            reads_all=owner or budget.share_answers,
        )
        if owner or listed:
            self._askers[name] = made
        return made

    def limits(self) -> Mapping[Account, Limit]:
        """The caps in the ledger's currency, with what the owner granted; the same object until one of them changes."""
        return self._caps().limits

    def _caps(self) -> _Caps:
        granted = self._granted()
        known = self._known
        if known is not None and known.granted == granted:
            return known
        caps = {self.dataset: self._policy.budget.epsilon_budget}
        limits = {self.dataset: self._exchange.limit(self._policy.budget.epsilon_budget)}
        for name, own in self._policy.analysts.items():
            if own.epsilon_budget is not None:
                account, cap = self.account(name), own.epsilon_budget + granted.get(name, Fraction(0))
                caps[account], limits[account] = cap, self._exchange.limit(cap, own.delta_budget)
        self._known = _Caps(granted, caps, limits)
        return self._known

    def lines(self, who: Asker) -> tuple[BudgetLine, ...]:
        """Every account for the owner; for an analyst their own."""
        if not who.owner:
            return (self._line(self._spent(who.account), self._caps(), told=True),)
        found = {balance.account: balance for balance in self._ledger.balances()}
        for account in self.limits():
            found.setdefault(account, self._spent(account))
        caps, ordered = self._caps(), sorted(found, key=lambda one: one.path)
        return tuple(self._line(found[account], caps, told=account == who.told) for account in ordered)

    def left(self, who: Asker) -> str:
        """What is left to an analyst, in words; to the owner, of the dataset's budget."""
        # the version first: if somebody is charged in between, the text is too new for it and is made again
        version, caps = self._ledger.version(), self._caps()
        known = self._said.get(who.name)
        if known is not None and version is not None and known[0] == version and known[1] is caps:
            return known[2]
        text = str(self._line(self._spent(who.told), caps))
        if len(self._said) >= MOST_SAID:
            self._said.clear()
        self._said[who.name] = (version, caps, text)
        return text

    def left_after(self, amount: Amount, who: Asker) -> tuple[str, Amount]:
        """What would be left once this was paid too, of what the analyst may know: in words, and of each sum.

        Without a cap a sum is as it would be spent: None if it were closed.
        """
        spent, limit = self._spent(who.told).spent + amount, self.limits().get(who.told)
        return str(self.line(who.told, spent)), spent if limit is None else limit.after(spent)

    def fits(self, amount: Amount, key: str, who: Asker) -> bool:
        """Whether a question fits in the account that this analyst may know; for the owner, in the dataset's too."""
        payers = (self.dataset, who.account) if who.owner else (who.account,)
        return all(self._allows(payer, amount) or self._ledger.paid(key, payer) for payer in payers)

    def room(self, amount: Amount, who: Asker) -> tuple[int, float] | None:
        """How many questions of this price fit in what is left, and which share of the budget one takes or closes.

        Of the account that the analyst may know; None if it has no cap of its own.
        """
        limit = self.limits().get(who.told)
        if limit is None:
            return None
        spent = self._spent(who.told).spent
        return limit.room(spent, amount), float(limit.used(spent + amount) - limit.used(spent))

    def room_after(self, first: Amount, then: Amount, who: Asker) -> int | None:
        """How many questions of one price fit once another was paid; None without a cap of its own."""
        limit = self.limits().get(who.told)
        return None if limit is None else limit.room(self._spent(who.told).spent + first, then)

    def guarantee(self, who: Asker) -> Guarantee:
        """What the spending of the account that the analyst may know promises so far.

        Guarantee: all answers that this account paid for by now are together (ε, δ)-private, at whatever moment this is
            read, for every set of transcripts whose ε is at most the one that is told. In zCDP, δ is the half that
            pays for reading, and what was spent on discovering keys besides. A cap lowers this ε only if it wasn't
            changed since answers were seen. A ledger of format 1 tells what such a cap promises in all.
        """
        balance, caps = self._spent(who.told), self._caps()
        if self._exchange.currency is Currency.PURE or balance.spent == Amount():
            return Guarantee(Fraction(self._so_far(balance, caps)) or NEXT_TO_NOTHING)
        delta = self._exchange.delta_so_far(balance.spent, self._delta(balance))
        cap = self._cap(balance, caps)
        if cap is not None and self.by_levels:
            return Guarantee(cap, delta)
        return Guarantee(Fraction(self._so_far(balance, caps)), delta)

    @property
    def by_levels(self) -> bool:
        """Whether what was spent so far is read by levels of ρ, for a δ of its own: a ledger of format 1 has no orders.

        Then a guarantee is that of the cap, and isn't the number beside which it is told.
        """
        return self._exchange.currency is Currency.ZCDP and not self._exchange.has_orders

    def _so_far(self, balance: Balance, caps: _Caps) -> float:
        """What an account spent by now, as ε."""
        return self._exchange.epsilon_so_far(balance.spent, self._delta(balance), self._cap(balance, caps))

    def _cap(self, balance: Balance, caps: _Caps) -> Fraction | None:
        """The ε of an account's cap, if what it spent is within it, and answers had no part in choosing it.

        The ledger knows whether a cap was changed after something was spent; the policy may be newer than what it has.
        """
        limit, known = caps.limits.get(balance.account), balance.limit
        if limit is None or known is None or balance.restated or not limit.is_that_of(known):
            return None
        return caps.epsilons[balance.account] if limit.allows(balance.spent) else None

    def out_of_budget(self, amount: Amount, epsilon: float | None, who: Asker) -> OutOfBudget:
        """Why a question can't be paid for, in words; of other accounts than the analyst's no more than that."""
        exactly = amount.in_words(self._exchange.currency)
        cost = exactly if epsilon is None else f"ε = {epsilon:.4g} ({exactly})"
        known = self.dataset if who.owner else who.account
        if self._allows(known, replace(amount, delta=0)) and not self._allows(known, amount):
            why = "the δ that is left for discovering keys is too little: group by keys that the policy declares"
            if epsilon is None:  # a computation, which has no price in ε
                why = "the δ that is left to give away is too little: book it at a smaller delta, or with delta=0"
        elif who.owner or not self._allows(known, amount):
            why = f"it doesn't fit in the budget: {self.left(who)}"
        else:
            why = "the dataset's budget, which all analysts share, doesn't allow it any more"
        advice = "Ask with a smaller ε or a larger error"
        advice += "" if who.owner else ", or ask the owner of the data for more"
        return OutOfBudget(f"this costs {cost}, and {why}. Nothing was spent. {advice}; what was paid for stays free.")

    def line(self, account: Account, spent: Amount) -> BudgetLine:
        """An account as people read it when it had spent so much."""
        return self._line(replace(self._spent(account), spent=spent), self._caps())

    def _line(self, balance: Balance, caps: _Caps, *, told: bool = False) -> BudgetLine:
        limit, cap = caps.limits.get(balance.account), caps.epsilons.get(balance.account)
        delta = self._delta(balance)
        return BudgetLine(
            account="/".join(balance.account.path),
            epsilon_spent=self._so_far(balance, caps),
            epsilon_budget=None if cap is None else float(cap),
            share=None if limit is None else float(limit.used(balance.spent)),
            delta=float(delta),
            exactly=balance.spent.in_words(self._exchange.currency),
            told=told,
        )

    def _spent(self, account: Account) -> Balance:
        found = self._ledger.balance(account)
        return found or Balance(account=account, limit=None, spent=Amount(), remaining=None)

    def _allows(self, account: Account, amount: Amount) -> bool:
        limit = self.limits().get(account)
        return limit is None or limit.allows(self._spent(account).spent + amount)

    def cap(self, account: Account) -> Fraction | None:
        """The most that an account may lose, as ε: what the policy states and the owner granted since."""
        return self._caps().epsilons.get(account)

    def _delta(self, balance: Balance) -> Fraction:
        """The δ at which an account's spending is read: the analyst's own where the policy states one.

        Once something was spent it is the δ that was stated then: a later one may be the answers' choice.
        """
        path = balance.account.path
        entry = self._policy.analysts.get(path[-1]) if len(path) > 1 else None
        stated = self._policy.budget.delta_budget
        if entry is not None and entry.delta_budget is not None:
            stated = entry.delta_budget
        first = balance.first_delta
        if first is None or first == Limit.zcdp(0, stated * HALF).delta:
            return stated
        return Fraction(first, DELTA_UNITS) / HALF


# ---------------------------------------------------------------------------------------------- charging


LOG = logging.getLogger("dither.curator")


class Charging:
    """Charges for questions and sees each to its end."""

    def __init__(
        self, ledger: Ledger, accounts: Accounts, units: Units, running: UnderWay, *, protected: Mapping[str, str]
    ) -> None:
        self.ledger, self.accounts, self._units, self._running = ledger, accounts, units, running
        self._protected = protected
        self._stated: Mapping[Account, Limit] | None = None
        self._change = threading.Lock()
        self._claimed: set[ChargeClaim] = set()

    # ------------------------------------------------------------------ one question

    def note(self, analyst: str, **about: object) -> dict[str, object]:
        """What the owner finds in the ledger beside a charge."""
        return {**about, "analyst": analyst, **self._protected}

    def reserve(self, *, key: str, account: Account, loss: PrivacyLoss, note: Mapping[str, Any]) -> Reservation:
        """Charge, or find what was charged before; OutOfBudget if it doesn't fit in the caps as they are now."""
        self.state_limits()
        try:
            return self.ledger.reserve(key=key, account=account, loss=loss, note=note)
        except OutOfBudget:
            # another process may have stated caps that it read before the owner raised them
            self._stated = None
        self.state_limits()
        return self.ledger.reserve(key=key, account=account, loss=loss, note=note)

    def stored(self, *, key: str, account: Account, loss: PrivacyLoss) -> Reservation:
        """The recorded answer of a question that this account paid for; payments last, so nothing is charged."""
        reservation = self.ledger.reserve(key=key, account=account, loss=loss, note={})
        if reservation.answer is None:
            self.ledger.give_up(reservation)
            raise LedgerCorrupt("an answer that the log speaks of isn't stored")
        return reservation

    def begin(self, claim: ChargeClaim) -> None:
        """Count what was charged as worked on; refused once the curator is being closed."""
        with self._change:
            self._claimed.add(claim)
            if self._running.closing:
                raise SourceError("the curator was closed before the question could run")

    def finished(self, claim: ChargeClaim) -> None:
        """No longer worked on; idempotent."""
        with self._change:
            self._claimed.discard(claim)

    def at_work(self, key: str) -> bool:
        """Whether a thread of this process works on the question of this key."""
        with self._change:
            return any(claim.key == key for claim in self._claimed)

    def state_limits(self) -> None:
        """Units and caps, before the first question that may spend and after each change of a cap.

        Who only looks changes nothing: until something is charged, the ledger isn't bound to any unit.
        """
        limits = self.accounts.limits()
        if limits is not self._stated:
            self.ledger.bind(self._units)
            self.ledger.set_limits(limits)
            self._stated = limits


class ChargeClaim:
    """One charge, from before it is on disk until its answer or its failure is recorded.

    Whatever is raised in its ``with`` block, from ``charge`` to ``record``, is kept, since it may depend on the data.
    ``settled``, behind the block, says what may be seen of it: neither what that raises, nor what logging prints when a
    log can't be written, has it as its context.
    """

    def __init__(
        self,
        charging: Charging,
        *,
        key: str,
        who: Asker,
        loss: PrivacyLoss,
        note: Mapping[str, Any],
        epsilon: float | None = None,
    ) -> None:
        self._charging, self._ledger, self.key, self._who = charging, charging.ledger, key, who
        self._loss, self._note, self._epsilon = loss, note, epsilon
        self._reservation: Reservation | None = None
        self.problem: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> bool:
        self.problem = problem
        return True

    def charge(self) -> None:
        """Charge, durably, or find what was charged before; OutOfBudget if it doesn't fit."""
        self._reservation = self._charging.reserve(
            key=self.key, account=self._who.account, loss=self._loss, note=self._note
        )
        if self.stored is None:
            self._charging.begin(self)

    @property
    def stored(self) -> bytes | None:
        """The recorded answer."""
        return None if self._reservation is None else self._reservation.answer

    def record(self, answer: bytes) -> None:
        """Keep the answer, durably; it may be delivered then."""
        assert self._reservation is not None
        self._reservation = self._ledger.record(self._reservation, answer)

    def settled(self) -> Reservation:
        """The reservation with its recorded answer; else what the analyst may see of the problem is raised."""
        problem, self.problem = self.problem, None
        self._charging.finished(self)
        if problem is None:
            assert self._reservation is not None
            return self._reservation
        try:
            if self._reservation is None and isinstance(problem, OutOfBudget):
                amount = self._ledger.price(self._loss)
                raise self._charging.accounts.out_of_budget(amount, self._epsilon, self._who)
            if self._reservation is None and isinstance(problem, Exception):
                raise problem  # in the ledger's own words: it says whether anything was charged
            held = self._reservation or self._lost()
            if held is not None:
                self._fail(held, problem)
            if not isinstance(problem, Exception):
                raise problem
        finally:
            del problem
        assert self._reservation is not None
        raise Failed(self._reservation.receipt.number) from None

    def _fail(self, reservation: Reservation, problem: BaseException) -> None:
        """Say in the ledger why there is no answer; if that can't be written, at least let others redeem the claim."""
        number, kind = reservation.receipt.number, type(problem).__name__
        LOG.error("receipt %s failed: %s; the cause is in the ledger", number, kind)
        with contextlib.suppress(Exception):
            try:
                self._ledger.fail(reservation, cause_of(problem))
            except DitherError:
                LOG.error("receipt %s: the failure can't be written to the ledger", number)  # noqa: TRY400
                self._ledger.give_up(reservation)

    def _lost(self) -> Reservation | None:
        """What an interrupt inside ``reserve`` may have left: charged and claimed by us, and nobody at work on it."""
        with contextlib.suppress(Exception):
            first, own = self._ledger.find(self.key), self._ledger.find(self.key, self._who.account)
            if first is None or own is None or self._charging.at_work(self.key):
                return None
            entries = self._ledger.entries(number=first.number)
            claim = max(entry.seq for entry in entries if entry.kind in (EntryKind.RESERVE, EntryKind.REDEEM))
            return Reservation(receipt=own, answer=None, replayed=False, charged=Amount(), claim=claim)
        return None


def cause_of(problem: BaseException) -> str:
    """Why there is no answer; for the owner alone, as it may quote data."""
    if isinstance(problem, KeyboardInterrupt | SystemExit):
        return "interrupted"
    try:
        return str(getattr(problem, "cause", "")) or f"{type(problem).__name__}: {problem}"
    except Exception:  # noqa: BLE001 - an error that can't even be shown
        return type(problem).__name__
