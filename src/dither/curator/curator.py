"""The curator answers questions: it prices, charges, runs, adds noise, stores and only then releases."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from dither.curator.accounts import OWNER, Accounts, BudgetLine
from dither.curator.answer import Answer, Cost, PublicReceipt
from dither.curator.asked import Asked
from dither.curator.charging import LOG, Charging, cause_of
from dither.curator.computation import Computation, decode, encode
from dither.curator.exchange import Exchange
from dither.curator.policy.policy import Policy
from dither.curator.pricing import Prepared, Pricing
from dither.curator.quote import Quote
from dither.curator.records import open_ledger
from dither.curator.release import Released, release
from dither.curator.search import Stored, find_bounds
from dither.curator.shape import shape
from dither.curator.statistical import Statistic, statistical_query
from dither.engines import DuckDBEngine, Engine
from dither.errors import Failed, LedgerMismatch, Refused, SourceError
from dither.ledger import Ledger, Reservation
from dither.numeric import Number, as_fraction, positive_int
from dither.query.price import Priced

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
        exchange = Exchange(policy.budget.delta_budget)
        if (ledger.currency, ledger.adjacency) != (exchange.currency, policy.schema.adjacency):
            raise LedgerMismatch(
                f"the ledger adds {ledger.currency.value} for {ledger.adjacency.value}; the policy needs "
                f"{exchange.currency.value} for {policy.schema.adjacency.value}"
            )
        self._opened = engine.version()
        self._accounts = Accounts(policy, exchange, ledger)
        self._charging = Charging(ledger, self._accounts)
        version = policy.source.version or self._opened
        self._pricing = Pricing(policy, exchange, ledger, self._accounts, version=version)

    @classmethod
    def open(cls, policy: str | Path | Policy, *, engine: Engine | None = None, ledger: Ledger | None = None) -> Self:
        """Open a policy's data and ledger; every problem is said at once, and nothing is read or charged.

        Without a ``ledger`` the policy's own is opened, and begun if it isn't there. What is given is closed with the
        curator.
        """
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
        return self._in_time(started, lambda: self._answer(sql, asked))

    def _answer(self, sql: str, asked: Asked) -> Answer:
        prepared = self._pricing.prepare(sql, asked)
        if prepared.question.explain:
            return _explained(prepared.quote)
        self._expect_same_data()
        reservation = self._charging.answered(
            key=prepared.quote.key,
            analyst=asked.analyst,
            loss=prepared.loss,
            note=self._note(asked.analyst, sql=sql, epsilon=f"{prepared.quote.epsilon:.6g}"),
            epsilon=prepared.quote.epsilon,
            work=lambda: self._execute(sql, asked, prepared).seal(),
        )
        return self._deliver(sql, asked, prepared, reservation)

    def _execute(self, sql: str, asked: Asked, prepared: Prepared) -> Stored:
        """Run and add noise. The receipt is on disk; from here on nothing is refunded."""
        salt = secrets.token_bytes(16)
        if prepared.search_budget is None:
            return Stored(bounds={}, released=self._released(prepared.priced, salt))
        found = find_bounds(self._engine, self.policy.schema, prepared.searched, prepared.search_budget, salt)
        try:
            bounds, priced = self._pricing.on_found(sql, prepared, asked, found)
            return Stored(bounds=bounds, released=self._released(priced, salt))
        except Exception as problem:
            # What fails now may have failed because of the noise in the bounds. Run again at no cost, it would show
            # fresh noise each time: so this is the answer. Closing and changed files have nothing to do with noise.
            if self._charging.closing or self._engine.version() != self._opened:
                raise
            LOG.error("a question has no answer after its bounds were found: %s", type(problem).__name__)
            return Stored(bounds=found, released=None, cause=cause_of(problem))

    def _released(self, priced: Priced, salt: bytes) -> bytes:
        measured = self._engine.run(priced.measurement, salt=salt)
        self._expect_same_data()
        return release(priced, measured).to_bytes()

    def _expect_same_data(self) -> None:
        """Files are read with the layout that they had when they were opened, and answers are named by their version.

        So a change is noticed before anything is charged, and again before anything is released.
        """
        if self._engine.version() != self._opened:
            raise SourceError(
                "the data changed since it was opened; nothing is answered from it: open the policy again"
            )

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
        quote = prepared.quote
        charged = reservation.charged.main > 0 or reservation.charged.delta > 0
        found = (
            f"bounds found for {place[0]}.{place[1]}: [{float(found.low):g}, {float(found.high):g}]"
            for place, found in bounds.items()
        )
        return Answer(
            table=table,
            bars=bars,
            confidence=float(asked.confidence),
            receipt=PublicReceipt.of(reservation.receipt),
            cost=Cost(
                epsilon=quote.epsilon, delta=quote.delta, charged=charged, left=self._accounts.left(asked.analyst)
            ),
            notes=(*found, *self._pricing.cut(prepared.question.aggregation)),
        )

    def run(self, computation: Computation, *, analyst: str = OWNER) -> Any:
        """Charge the loss of a computation, then hand it the table; returns what it released, from the record.

        For anything that states its loss before it sees data: an estimator, a synthesiser, a mechanism of your own. See
        ``Computation`` for what it has to promise. The same key again gives the same result, free.

        Raises Refused if its loss is stated for another adjacency or is more than a question may cost, OutOfBudget if
        it doesn't fit in the budget any more, and Failed, with the receipt, if it fails after the charge.
        """
        started = time.monotonic()
        return self._in_time(started, lambda: self._run(computation, analyst))

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
        self._expect_same_data()

        def work() -> bytes:
            data = self._engine.rows(
                computation.table, tuple(computation.columns), rows=computation.rows, salt=secrets.token_bytes(16)
            )
            self._expect_same_data()
            return encode(computation.release(data))

        reservation = self._charging.answered(
            key=self._pricing.key_of_computation(computation, loss),
            analyst=analyst,
            loss=loss,
            note=self._note(analyst, computation=computation.key()),
            epsilon=None,
            work=work,
        )
        assert reservation.answer is not None
        return decode(reservation.answer)

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
        return self._accounts.lines(analyst)

    @property
    def ledger(self) -> Ledger:
        """The record of everything that was spent; for the owner."""
        return self._ledger

    def close(self) -> None:
        """Release the data and the ledger; questions that run in other threads are stopped and waited for."""
        try:
            self._charging.finish(self._engine.interrupt)
        finally:
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

    def _note(self, analyst: str, **about: str) -> dict[str, str]:
        """What the owner finds in the ledger beside a charge."""
        return {**about, "analyst": analyst, "units": self.policy.unit_statement(), "policy": self.policy.fingerprint()}

    def _in_time(self, started: float, work: Callable[[], T]) -> T:
        """Do the work and leave at a multiple of the policy's step; an interrupt leaves at once."""
        with self._charging.under_way():
            try:
                result = work()
            except Exception:
                self._wait(started)
                raise
            self._wait(started)
            return result

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
