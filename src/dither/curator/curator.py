"""The curator answers questions: it prices, charges, runs, adds noise, stores and only then releases."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dither.curator.answer import Answer, Cost
from dither.curator.computation import Computation, decode, encode
from dither.curator.exchange import Exchange
from dither.curator.open_bounds import Place
from dither.curator.policy.policy import Policy
from dither.curator.pricing import OWNER, Asked, BudgetLine, Prepared, Pricing
from dither.curator.quote import Quote
from dither.curator.records import open_ledger
from dither.curator.release import Released, release
from dither.curator.search import find_bounds, seal, unseal
from dither.curator.shape import shape
from dither.curator.statistical import Statistic, statistical_query
from dither.engines import DuckDBEngine, Engine
from dither.errors import Failed, Refused
from dither.ledger import Ledger, Reservation
from dither.numeric import Number, as_fraction, positive_int
from dither.query.kinds import Interval

LOG = logging.getLogger("dither.curator")


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
        self._exchange = Exchange(policy.budget.delta_budget)
        self._pricing = Pricing(policy, self._exchange, ledger, version=policy.source.version or engine.version())
        ledger.set_limits(self._pricing.limits())

    @classmethod
    def open(cls, policy: str | Path | Policy, *, engine: Engine | None = None, ledger: Ledger | None = None) -> Self:
        """Open a policy's data and ledger; every problem is said at once, and nothing is read or charged."""
        rules = policy if isinstance(policy, Policy) else Policy.load(Path(policy))
        with ExitStack() as undo:
            # what was opened here is closed if the rest can't be opened
            held = engine or undo.enter_context(DuckDBEngine.open(rules.source.location, rules.schema))
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
        try:
            return self._answer(sql, asked)
        finally:
            self._wait(started)

    def _answer(self, sql: str, asked: Asked) -> Answer:
        prepared = self._pricing.prepare(sql, asked)
        if prepared.question.explain:
            return _explained(prepared.quote)
        reservation = self._ledger.reserve(
            key=prepared.quote.key,
            account=self._pricing.account(asked.analyst),
            loss=prepared.loss,
            note=self._note(asked.analyst, sql=sql, epsilon=f"{prepared.quote.epsilon:.6g}"),
        )
        stored = reservation.answer
        if stored is None:
            stored = self._under_receipt(reservation, lambda: self._execute(sql, asked, prepared))
        return self._deliver(sql, asked, prepared, reservation, stored)

    def _execute(self, sql: str, asked: Asked, prepared: Prepared) -> bytes:
        """Run and add noise. The receipt is on disk; from here on nothing is refunded."""
        salt = secrets.token_bytes(16)
        bounds: dict[Place, Interval] = {}
        priced = prepared.priced
        if prepared.search_budget is not None:
            bounds = find_bounds(self._engine, self.policy.schema, prepared.searched, prepared.search_budget, salt)
            priced = self._pricing.with_bounds(sql, prepared, asked, bounds)
        measured = self._engine.run(priced.measurement, salt=salt)
        return seal(bounds, release(priced, measured).to_bytes())

    def _under_receipt(self, reservation: Reservation, work: Callable[[], bytes]) -> bytes:
        """Store what ``work`` gives, return the stored bytes; a failure leaves the receipt spent and is logged."""
        try:
            recorded = self._ledger.record(reservation, work())
        except (KeyboardInterrupt, SystemExit):
            self._ledger.fail(reservation, "interrupted")
            raise
        except Exception as problem:  # whatever it is may depend on the data: the analyst must not see it
            cause = str(getattr(problem, "cause", "")) or f"{type(problem).__name__}: {problem}"
            LOG.exception("receipt %s failed", reservation.receipt.number)
            self._ledger.fail(reservation, cause)
            raise Failed(reservation.receipt.number) from None
        assert recorded.answer is not None
        return recorded.answer

    def _deliver(self, sql: str, asked: Asked, prepared: Prepared, reservation: Reservation, stored: bytes) -> Answer:
        """The stored bytes as a table of the wanted shape: post-processing, free."""
        bounds, body = unseal(stored)
        priced = self._pricing.with_bounds(sql, prepared, asked, bounds) if bounds else prepared.priced
        errors = priced.errors(asked.confidence)
        table, bars = shape(Released.from_bytes(body), prepared.question.shape, errors, asked.confidence)
        charged = reservation.charged.main > 0 or reservation.charged.delta > 0
        quote = prepared.quote
        left = self._pricing.left(asked.analyst)
        return Answer(
            table=table,
            bars=bars,
            confidence=float(asked.confidence),
            receipt=reservation.receipt,
            cost=Cost(epsilon=quote.epsilon, delta=quote.delta, charged=charged, left=left),
            notes=tuple(
                f"bounds found for {place[0]}.{place[1]}: [{float(found.low):g}, {float(found.high):g}]"
                for place, found in bounds.items()
            ),
        )

    def run(self, computation: Computation, *, analyst: str = OWNER) -> Any:
        """Charge the loss of a computation, then hand it the table; returns what it released, from the record.

        For anything that states its loss before it sees data: an estimator, a synthesiser, a mechanism of your own. See
        ``Computation`` for what it has to promise. The same key again gives the same result, free.

        Raises Refused if its loss is stated for another adjacency or is more than a question may cost, OutOfBudget if
        it doesn't fit in the budget any more, and Failed, with the receipt, if it fails after the charge.
        """
        started = time.monotonic()
        try:
            return self._run(computation, analyst)
        finally:
            self._wait(started)

    def _run(self, computation: Computation, analyst: str) -> Any:
        loss = computation.loss()
        if loss.adjacency is not self.policy.schema.adjacency:
            raise Refused(
                f"the computation's loss is stated for {loss.adjacency.value} and this policy protects against "
                f"{self.policy.schema.adjacency.value}",
                code="adjacency",
                hint="State its loss for the policy's adjacency, or convert it with dither.as_replace.",
            )
        table = self.policy.schema.tables.get(computation.table)
        if table is None or not table.private:
            known = ", ".join(name for name, facts in self.policy.schema.tables.items() if facts.private)
            raise Refused(
                f"{computation.table!r} is not a private table of this policy",
                code="unknown_table",
                hint=f"Private tables are: {known}.",
            )
        missing = [name for name in computation.columns if name not in table.columns or table.columns[name].hidden]
        if missing:
            raise Refused(
                f"the policy doesn't give out the columns {', '.join(missing)}",
                code="unknown_column",
                hint="Use columns that the policy declares and doesn't hide.",
            )
        if not computation.columns:
            raise Refused("the computation names no columns", code="unknown_column", hint="Name at least one.")
        positive_int(computation.rows, "rows")
        self._pricing.check_computation(loss, analyst)
        reservation = self._ledger.reserve(
            key=self._pricing.key_of_computation(computation, loss),
            account=self._pricing.account(analyst),
            loss=loss,
            note=self._note(analyst, computation=computation.key()),
        )
        stored = reservation.answer
        if stored is None:

            def work() -> bytes:
                data = self._engine.rows(
                    computation.table, tuple(computation.columns), rows=computation.rows, salt=secrets.token_bytes(16)
                )
                return encode(computation.release(data))

            stored = self._under_receipt(reservation, work)
        return decode(stored)

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
        which is paid for once for all predicates; then the rows that satisfy the predicate, with the smallest ε that
        reaches the tolerance. A unit counts as at most ``max_rows_contributed`` rows in both.

        Raises InvalidParameter where the noisy number of rows shows that the tolerance can't be reached; the count was
        charged then.
        """
        spend = self._pricing.most_epsilon(analyst) / 20 if count_epsilon is None else as_fraction(count_epsilon)
        return statistical_query(
            self.sql,
            table,
            predicate_sql,
            tolerance=tolerance,
            confidence=confidence,
            count_epsilon=spend,
            analyst=analyst,
        )

    def most_epsilon(self, analyst: str = OWNER) -> Fraction:
        """The most that one question of this analyst may cost."""
        return self._pricing.most_epsilon(analyst)

    def budget(self, analyst: str = OWNER) -> tuple[BudgetLine, ...]:
        """What was spent and what is left: every account for the owner, their own for an analyst."""
        return self._pricing.lines(None if analyst == OWNER else analyst)

    @property
    def ledger(self) -> Ledger:
        """The record of everything that was spent; for the owner."""
        return self._ledger

    def close(self) -> None:
        """Release the data and the ledger."""
        self._engine.close()
        self._ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _note(self, analyst: str, **about: str) -> dict[str, str]:
        """What the owner finds in the ledger beside a charge."""
        return {**about, "analyst": analyst, "units": self.policy.unit_statement(), "policy": self.policy.fingerprint()}

    def _wait(self, started: float) -> None:
        """Leave at a multiple of the step, so that the time of an answer says less about the data (Haeberlen 2011)."""
        step = float(self.policy.budget.round_answer_time_up_to)
        if step > 0:
            passed = time.monotonic() - started
            time.sleep(step - passed % step)


def _explained(quote: Quote) -> Answer:
    """A quote as the answer to EXPLAIN PRIVACY: no data, no charge."""
    return Answer(
        table=quote.to_arrow(),
        bars={},
        confidence=quote.confidence,
        receipt=None,
        cost=Cost(epsilon=0.0, delta=0.0, charged=True, left=quote.left),
        notes=quote.notes,
    )
