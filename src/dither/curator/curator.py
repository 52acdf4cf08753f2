"""The curator answers questions: it prices, charges, runs, adds noise, stores and only then releases."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from dither.curator.accounts import OWNER, Accounts, BudgetLine
from dither.curator.answer import OLDER, ROUNDED_INWARDS, Answer, Cost, PublicReceipt
from dither.curator.approvals import Approvals
from dither.curator.asked import Asked
from dither.curator.charging import Charging
from dither.curator.computation import Computation, data_of, encode, expect_runnable, given
from dither.curator.exchange import Exchange
from dither.curator.execution import Execution
from dither.curator.history import Spending, history
from dither.curator.outlook import Outlook, outlook_of
from dither.curator.past import (
    ANOTHER,
    AnswerPage,
    Past,
    PastQuestions,
    outdated,
    terms_of,
    unanswered,
    unknown_receipt,
)
from dither.curator.policy.policy import Policy
from dither.curator.pricing import KEY_VERSION, Prepared, Pricing, rounded_inwards
from dither.curator.quote import Quote, explained
from dither.curator.records import Record, of_ledger, open_ledger
from dither.curator.release import Released
from dither.curator.remember import Remembered
from dither.curator.requests import Request, Requests, requests_beside
from dither.curator.search import Stored
from dither.curator.shape import shape
from dither.curator.statistical import Statistic, statistical_query
from dither.engines import DuckDBEngine, Engine, share_of_memory
from dither.engines.intake import TableReport
from dither.errors import Failed, LedgerMismatch
from dither.ledger import Account, Ledger, Reservation, Verified
from dither.numeric import Number, as_fraction
from dither.privacy import Guarantee

T = TypeVar("T")


class Curator:
    """Holds the data and the budget of one policy; the only way from one to the other.

    Guarantee: whatever analysts ask, and however they choose the next question, all answers together are private as
        the policy's budget states, for the policy's unit and adjacency: every charge is durable before data is read
        and is never given back.

    Example:
        >>> curator = Curator.open("dither.toml")  # doctest: +SKIP
        >>> curator.sql("SELECT city, COUNT(*) AS n FROM orders GROUP BY city", epsilon=0.5)  # doctest: +SKIP
    """

    def __init__(self, policy: Policy, engine: Engine, ledger: Ledger) -> None:
        self.policy = policy
        self._engine = engine
        self._ledger = ledger
        exchange = Exchange(policy.budget.delta_budget, ledger.sums)
        if (ledger.currency, ledger.adjacency) != (exchange.currency, policy.schema.adjacency):
            raise LedgerMismatch(
                f"the ledger adds {ledger.currency.value} for {ledger.adjacency.value}; the policy needs "
                f"{exchange.currency.value} for {policy.schema.adjacency.value}"
            )
        ledger.bind(policy.units(), note=False)
        opened = engine.version()
        self._protected = {"units": policy.unit_statement(), "policy": policy.fingerprint()}
        self._requests = Requests(requests_beside(ledger))
        self._accounts = Accounts(policy, exchange, ledger, self._requests.granted)
        step = float(policy.budget.round_answer_time_up_to)
        self._charging = Charging(ledger, self._accounts, policy.units(), step=step)
        version = policy.source.version or opened
        self._pricing = Pricing(
            policy, exchange, ledger, self._accounts, version=version, approved=self._requests.approved
        )
        self._approvals = Approvals(policy, self._pricing, self._accounts, self._charging, self._requests)
        self._execution = Execution(policy, engine, self._pricing, opened=opened)
        self._past = PastQuestions(ledger, exchange)
        self._memory = Remembered()

    @classmethod
    def open(
        cls,
        policy: str | Path | Policy,
        *,
        engine: Engine | None = None,
        ledger: Ledger | None = None,
        memory_limit: str | None = None,
        sharing: int = 1,
        accepted: str | None = None,
    ) -> Self:
        """Open a policy's data and ledger; every problem is said at once, and nothing is charged.

        A version of the data that wasn't opened before is looked at as a whole, and accepted unless more of it is left
        out than the policy says; ``reports`` tells the owner what. ``accepted`` is the version that another process of
        the owner opened: that one is taken as it is, and no other is opened.

        Without a ``ledger`` the policy's own is opened, and begun if it isn't there. What is given is closed with the
        curator. ``memory_limit`` ("4GiB") is for the engine that is opened here; what doesn't fit goes to disk. If
        ``sharing`` curators work at once, each takes its part of what one takes by default.
        """
        rules = policy if isinstance(policy, Policy) else Policy.load(Path(policy))
        with ExitStack() as undo:
            # what was opened here is closed if the rest can't be opened
            limit = memory_limit or (share_of_memory(sharing) if sharing > 1 else None)
            held = engine or undo.enter_context(
                DuckDBEngine.open(
                    rules.source.location,
                    rules.schema,
                    memory_limit=limit,
                    intake=rules.source.intake(accepted=accepted),
                )
            )
            book = ledger or undo.enter_context(open_ledger(rules))
            curator = cls(rules, held, book)
            undo.pop_all()
        return curator

    def price(
        self,
        sql: str,
        *,
        epsilon: Number | None = None,
        error: Number | Mapping[str, Number] | None = None,
        analyst: str = OWNER,
        weights: Mapping[str, Number] | None = None,
        confidence: Number = Fraction(19, 20),
    ) -> Quote:
        """What a question would cost, the error of every column, and what would be left; reads no data and is free."""
        asked = Asked.of(epsilon=epsilon, error=error, weights=weights, confidence=confidence, analyst=analyst)
        return self._pricing.prepare(sql, asked).quote

    def sql(
        self,
        sql: str,
        *,
        epsilon: Number | None = None,
        error: Number | Mapping[str, Number] | None = None,
        analyst: str = OWNER,
        weights: Mapping[str, Number] | None = None,
        confidence: Number = Fraction(19, 20),
    ) -> Answer:
        """Answer a question. Give ``epsilon``, or ``error`` for the smallest ε whose error is no larger.

        ``weights`` says how much of the budget each named column gets relative to the others. A question that was
        asked before is answered from the record, free. Raises Refused or OutOfBudget before anything is charged, and
        Failed, with the receipt, after.
        """
        started = time.monotonic()
        asked = Asked.of(epsilon=epsilon, error=error, weights=weights, confidence=confidence, analyst=analyst)
        return self._charging.paced(started, lambda: self._answer(sql, asked))

    def remembered(
        self,
        sql: str,
        *,
        epsilon: Number | None = None,
        error: Number | Mapping[str, Number] | None = None,
        analyst: str = OWNER,
        weights: Mapping[str, Number] | None = None,
        confidence: Number = Fraction(19, 20),
    ) -> Answer | None:
        """The answer that this process delivered to this analyst for exactly this before, if it still has it.

        Free, and takes microseconds. None where the data changed since, and where the policy rounds answer times.
        """
        asked = Asked.of(epsilon=epsilon, error=error, weights=weights, confidence=confidence, analyst=analyst)
        found = self._memory.get((sql, *asked.signature))
        if found is None or self._charging.closing or self._execution.changed:
            return None
        return replace(found, cost=replace(found.cost, charged=False, left=self._accounts.left(analyst)))

    def remember(
        self,
        sql: str,
        answer: Answer,
        *,
        epsilon: Number | None = None,
        error: Number | Mapping[str, Number] | None = None,
        analyst: str = OWNER,
        weights: Mapping[str, Number] | None = None,
        confidence: Number = Fraction(19, 20),
    ) -> None:
        """Take over what another curator of the same policy and ledger answered to exactly this; see ``remembered``."""
        asked = Asked.of(epsilon=epsilon, error=error, weights=weights, confidence=confidence, analyst=analyst)
        # what wasn't charged for (EXPLAIN PRIVACY) tells of balances, which change
        if answer.receipt is not None and not self.policy.budget.round_answer_time_up_to:
            self._memory.keep((sql, *asked.signature), answer)

    def _answer(self, sql: str, asked: Asked) -> Answer:
        prepared = self._pricing.prepare(sql, asked)
        if prepared.question.explain:
            return explained(prepared.quote)
        self._pricing.quoting.expect_approved(prepared.key, prepared.epsilon, asked.analyst)
        answer = self._charged(sql, asked, prepared)
        if not self.policy.budget.round_answer_time_up_to:
            self._memory.keep((sql, *asked.signature), answer)
        return answer

    def _charged(self, sql: str, asked: Asked, prepared: Prepared) -> Answer:
        self._execution.expect_ready()
        reservation = self._charging.answered(
            key=prepared.key,
            analyst=asked.analyst,
            loss=prepared.loss,
            note=self._note(
                asked.analyst,
                sql=sql,
                epsilon=f"{prepared.epsilon:.6g}",
                asked=prepared.terms.to_json(),
                key_version=KEY_VERSION,
            ),
            epsilon=prepared.epsilon,
            work=lambda: self._execution.stored(sql, asked, prepared, closing=lambda: self._charging.closing).seal(),
        )
        return self._deliver(sql, asked, prepared, reservation)

    def _deliver(self, sql: str, asked: Asked, prepared: Prepared, reservation: Reservation) -> Answer:
        """The stored bytes as a table of the wanted shape: post-processing, free."""
        assert reservation.answer is not None
        stored, number = Stored.unseal(reservation.answer), reservation.receipt.number
        if stored.released is None:
            raise Failed(number, final=True)
        bounds = stored.bounds
        priced = self._pricing.with_bounds(sql, prepared, asked, bounds) if bounds else prepared.priced
        errors = priced.errors(asked.confidence)
        table, bars = shape(Released.from_bytes(stored.released), prepared.question.shape, errors, asked.confidence)
        charged = reservation.charged.main > 0 or reservation.charged.delta > 0
        found = (
            f"bounds found for {place[0]}.{place[1]}: [{float(found.low):g}, {float(found.high):g}]"
            for place, found in bounds.items()
        )
        older = self._execution.older(stored.data)
        return Answer(
            table=table,
            bars=bars,
            confidence=float(asked.confidence),
            receipt=PublicReceipt.of(reservation.receipt),
            cost=Cost(
                epsilon=prepared.epsilon,
                delta=self._pricing.delta_of(prepared),
                charged=charged,
                left=self._accounts.left(asked.analyst),
            ),
            notes=(*([OLDER] if older else []), *found, *self._pricing.quoting.notes(prepared.question)),
            older_than_data=older,
        )

    # ------------------------------------------------------------------ what was asked before

    def answers(
        self, analyst: str = OWNER, *, search: str = "", before: str | None = None, count: int = 50
    ) -> AnswerPage:
        """Questions that were paid for, newest first: an analyst's own; everybody's for the owner, or if all share.

        ``search`` keeps those whose text holds it, ``before`` is the receipt number at which the last page ended.
        """
        own = self._account_of(analyst)
        everybody = analyst == OWNER or self.policy.budget.share_answers
        return self._past.page(
            account=own, everybody=everybody, named=analyst == OWNER, search=search, before=before, count=count
        )

    def past(self, number: str, *, analyst: str = OWNER) -> Past:
        """What was asked under a receipt number; Refused where there is none that this analyst may see."""
        own = self._account_of(analyst)
        everybody = analyst == OWNER or self.policy.budget.share_answers
        return self._past.one(number, account=own, everybody=everybody, named=analyst == OWNER)

    def answer(self, number: str, *, analyst: str = OWNER) -> Answer:
        """The answer of a receipt again, free; Refused where there is none, or none that this analyst may read."""
        started = time.monotonic()
        return self._charging.paced(started, lambda: self._again(number, analyst))

    def _again(self, number: str, analyst: str) -> Answer:
        own, charge = self._account_of(analyst), self._past.charge(number)
        everybody = analyst == OWNER or self.policy.budget.share_answers
        if charge is None or not (charge.account == own or everybody):
            raise unknown_receipt()
        sql, terms = terms_of(charge)
        asked = replace(terms.asked, analyst=analyst)
        prepared = self._pricing.prepare(sql, asked, again=terms)
        if charge.note.get("key_version") is None and charge.note.get("policy") == self._protected["policy"]:
            # of version 1: its terms are all in the note, so nothing has to be computed again to know it
            prepared = replace(prepared, key=charge.key)
        if prepared.key != charge.key:
            raise outdated()
        if charge.answered:
            stored = self._charging.stored(key=charge.key, account=charge.account, loss=prepared.loss)
            answer = self._deliver(sql, asked, prepared, stored)
            if charge.note.get("key_version") is None and rounded_inwards(prepared.question):
                answer = replace(answer, notes=(ROUNDED_INWARDS, *answer.notes))
            return answer if charge.account == own or analyst == OWNER else _unnamed(answer)
        if charge.account != own:
            raise unanswered()
        if terms.version != self._pricing.version:
            raise outdated()
        # paid for by this account and not answered: redeemed, at no cost, as by asking the same again
        return self._charged(sql, asked, prepared)

    def history(self, analyst: str = OWNER) -> tuple[Spending, ...]:
        """How spending grew: of every account for the owner, of their own for an analyst."""
        own = self._account_of(analyst)
        return history(self._past, None if analyst == OWNER else own, self._accounts)

    def guarantee(self, analyst: str = OWNER) -> Guarantee:
        """What the answers so far can tell about one person: those that the analyst paid for; all, for the owner.

        Where answers are shared, an analyst's own account bounds what they caused and not what they may read: that is
        bounded by the dataset's.
        """
        self._account_of(analyst)
        self._expect_bound()
        return self._accounts.guarantee(analyst)

    def records(self, *, count: int = 50, before: int | None = None) -> tuple[Record, ...]:
        """The entries of the ledger, newest first; ``before`` is the number of an entry. For the owner alone."""
        return of_ledger(self._ledger, self.policy, count=count, before=before)

    def verify(self) -> Verified:
        """Replay the whole ledger; for the owner alone."""
        return self._ledger.verify()

    def _account_of(self, analyst: str) -> Account:
        """The analyst's account; Refused if the policy doesn't let this name ask."""
        if analyst != OWNER:
            self.policy.analyst(analyst)
        return self._accounts.account(analyst)

    # ------------------------------------------------------------------ what the owner is asked for

    def request_question(
        self,
        sql: str,
        *,
        analyst: str,
        why: str = "",
        epsilon: Number | None = None,
        error: Number | Mapping[str, Number] | None = None,
        weights: Mapping[str, Number] | None = None,
        confidence: Number = Fraction(19, 20),
    ) -> Request:
        """Ask the owner to approve a question that costs more than the analyst may ask without; free."""
        asked = Asked.of(epsilon=epsilon, error=error, weights=weights, confidence=confidence, analyst=analyst)
        return self._approvals.question(sql, asked, why)

    def request_budget(self, analyst: str, *, epsilon: Number, why: str = "") -> Request:
        """Ask the owner to raise the analyst's own budget by ``epsilon``."""
        return self._approvals.budget(analyst, epsilon, why)

    def requests(self, analyst: str = OWNER, *, waiting_only: bool = False) -> tuple[Request, ...]:
        """What was asked of the owner, newest first: everybody's for the owner, their own for an analyst."""
        return self._approvals.all(analyst, waiting_only=waiting_only)

    def outlook(self, request: Request) -> Outlook:
        """What approving a request would bring, in words; for the owner alone."""
        return outlook_of(self, request)

    def decide(self, number: str, *, approve: bool, why: str = "") -> Request:
        """Approve or refuse a request; for the owner alone. A budget that is raised stays so."""
        return self._approvals.decide(number, approve=approve, why=why)

    # ------------------------------------------------------------------ computations

    def run(self, computation: Computation, *, analyst: str = OWNER) -> Any:
        """Charge the loss of a computation, then hand it the table; returns what it released, from the record.

        For anything that states its loss before it sees data: an estimator, a synthesiser, a mechanism of your own. See
        ``Computation`` for what it has to promise. The same key gives the same result, free, and warns if it is old.

        Raises Refused if its loss is stated for another adjacency or is more than a question may cost, OutOfBudget if
        it doesn't fit in the budget any more, and Failed, with the receipt, if it fails after the charge.
        """
        started = time.monotonic()
        return self._charging.paced(started, lambda: self._run(computation, analyst))

    def _run(self, computation: Computation, analyst: str) -> Any:
        loss = computation.loss()
        expect_runnable(computation, loss, self.policy.schema)
        key = self._pricing.key_of_computation(computation, loss)
        self._pricing.quoting.check_computation(loss, key, analyst, most=self._pricing.most_epsilon(analyst))
        self._execution.expect_ready()

        def work() -> bytes:
            columns, salt = tuple(computation.columns), secrets.token_bytes(16)
            with self._execution.engine() as engine:
                data = engine.rows(computation.table, columns, rows=computation.rows, salt=salt)
            self._execution.expect_same_data()
            return encode(computation.release(data), self._execution.data)

        reservation = self._charging.answered(
            key=key,
            analyst=analyst,
            loss=loss,
            note=self._note(analyst, computation=computation.key()),
            epsilon=None,
            work=work,
        )
        assert reservation.answer is not None
        return given(reservation.answer, older=self._execution.older(data_of(reservation.answer)))

    def statistical_query(
        self,
        table: str,
        predicate_sql: str,
        *,
        tolerance: Number,
        confidence: Number = Fraction(19, 20),
        count_epsilon: Number | None = None,
        analyst: str = OWNER,
    ) -> Statistic:
        """The share of a table's rows for which a predicate holds, within ±``tolerance``; for learners that ask many.

        Two questions: the number of rows, with ``count_epsilon`` (a twentieth of the most that a question may cost),
        which is paid for once for all predicates; then the average of the predicate as 0 and 1, with the smallest ε
        that reaches the tolerance. A unit with more rows than ``max_rows_contributed`` counts as so many, with its own
        share of them.

        Raises InvalidParameter where the noisy number of rows shows that the tolerance can't be reached; the count was
        charged then.
        """
        most = self._pricing.most_epsilon(analyst)
        spend = most / 20 if count_epsilon is None else as_fraction(count_epsilon)
        return statistical_query(
            self.sql,
            self.price,
            table,
            predicate_sql,
            tolerance=tolerance,
            confidence=confidence,
            count_epsilon=spend,
            most=most,
            analyst=analyst,
        )

    def most_epsilon(self, analyst: str = OWNER) -> Fraction:
        """The most that one question of this analyst may cost."""
        return self._pricing.most_epsilon(analyst)

    def budget(self, analyst: str = OWNER) -> tuple[BudgetLine, ...]:
        """What was spent and what is left: every account for the owner, their own for an analyst."""
        self._expect_bound()
        return self._accounts.lines(analyst)

    @property
    def spent_by_levels(self) -> bool:
        """Whether spending is told by levels, for a δ of its own, and the guarantee by the cap: ledgers of 0.1.0."""
        return self._accounts.by_levels

    def _expect_bound(self) -> None:
        """Another process may have begun the ledger since, for other units: their spending isn't told for these."""
        self._ledger.bind(self.policy.units(), note=False)

    @property
    def version(self) -> str:
        """A fingerprint of the data as it was opened; for the owner's side only."""
        return self._execution.opened

    @property
    def reports(self) -> tuple[TableReport, ...]:
        """What was found when the tables were looked at: counts of the data itself, for the owner alone."""
        return self._engine.reports if isinstance(self._engine, DuckDBEngine) else ()

    @property
    def broken(self) -> bool:
        """Whether the engine can't run anything any more: questions are refused until the policy is opened again."""
        return self._execution.broken

    @property
    def ledger(self) -> Ledger:
        """The record of everything that was spent; for the owner."""
        return self._ledger

    def close(self) -> None:
        """Release the data and the ledger; questions that run in other threads are stopped and waited for."""
        try:
            self._charging.finish(self._engine.interrupt)
        finally:
            self._memory.forget()
            self._execution.forget()
            self._past.close()
            self._requests.close()
            try:
                self._engine.close()
            finally:
                self._ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _note(self, analyst: str, **about: object) -> dict[str, object]:
        """What the owner finds in the ledger beside a charge."""
        return {**about, "analyst": analyst, **self._protected}


def _unnamed(answer: Answer) -> Answer:
    """An answer that another paid for, without their name."""
    assert answer.receipt is not None
    return replace(answer, receipt=replace(answer.receipt, account=ANOTHER))
