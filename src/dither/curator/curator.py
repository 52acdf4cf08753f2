"""The curator answers questions: it prices, charges, runs, adds noise, stores and only then releases."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Self

from dither.curator.answers.in_memory_cache import fixed
from dither.curator.answers.post_processing import shape
from dither.curator.answers.release import Released, Stored, public_groups
from dither.curator.approval.approvals import Approvals
from dither.curator.approval.preview import Outlook, outlook_of
from dither.curator.asker import OWNER
from dither.curator.charging import ChargeClaim
from dither.curator.computation import Computation, data_of, given
from dither.curator.past.log import ANOTHER, Charged, outdated, terms_of, unanswered, unknown_receipt
from dither.curator.past.records import of_ledger, open_ledger
from dither.curator.past.spending import history
from dither.curator.price.computation_quote import ComputationQuote
from dither.curator.price.pricing import KEY_VERSION, Prepared, rounded_inwards
from dither.curator.price.profiles import KnownProfile, name_of_form
from dither.curator.price.quote import Quote, explained
from dither.curator.results import (
    OLDER,
    ROUNDED_INWARDS,
    Answer,
    AnswerPage,
    BudgetLine,
    Cost,
    Past,
    PublicReceipt,
    Record,
    Request,
    Spending,
)
from dither.curator.statistical_query import Statistic, statistical_query
from dither.curator.terms import Terms
from dither.curator.vault import Vault
from dither.engines import Engine, share_of_memory
from dither.engines.opening import OpenedEngine, open_engine
from dither.errors import Failed
from dither.ledger import Ledger, Reservation, Verified
from dither.numeric import DEFAULT_CONFIDENCE, Number, as_fraction
from dither.policy.policy import Policy
from dither.privacy import Guarantee
from dither.query.intake import TableReport

AS_USUAL = Terms()


class AnalystView:
    """What one analyst asks of a curator, under their own name; see the methods of ``Curator``.

    Example:
        >>> ana = Curator.open("dither.toml").analyst("ana")  # doctest: +SKIP
        >>> ana.sql("SELECT COUNT(*) AS n FROM orders", Terms.of(epsilon=0.5))  # doctest: +SKIP
    """

    def __init__(self, vault: Vault, name: str) -> None:
        self._vault, self.who = vault, vault.accounts.asker(name)

    # ------------------------------------------------------------------ the steps of an answer

    def price(self, sql: str, terms: Terms = AS_USUAL) -> Quote:
        """What a question would cost; free."""
        return self._vault.quoting.quote(self._prepare(sql, terms))

    def sql(self, sql: str, terms: Terms = AS_USUAL) -> Answer:
        """The answer to a question: bind and price, approve, charge, run, record, deliver."""
        with self._vault.running.paced():
            prepared = self._prepare(sql, terms)
            if prepared.question.explain:
                return explained(self._vault.quoting.quote(prepared))
            if prepared.question.listing:
                return self._listed(prepared)
            if self._vault.quoting.known(prepared):
                return self._of_known(prepared)
            self._approve(prepared)
            with self._claim(prepared) as claim:
                claim.charge()
                if claim.stored is None:
                    released = self._vault.execution.run(prepared)
                    claim.record(released)
            answer = self._deliver(prepared, claim.settled())
            self.remember(sql, terms, answer)
            return answer

    def profile(self, table: str, terms: Terms = AS_USUAL, *, where: str = "") -> Answer:
        """How many units have how many rows of a table: an answer that everybody may know from then on."""
        return self.sql(profile_text(table, where), terms)

    def profiles(self) -> tuple[KnownProfile, ...]:
        """The profiles of this version of the data that were paid for."""
        self._vault.expect_bound()
        return self._vault.profiles.known()

    def price_run(self, computation: Computation, *, delta: Number | None = None) -> ComputationQuote:
        """What a computation would cost, how it can be booked, and what each booking closes; free."""
        return self._vault.bookings.quote(computation, delta, self.who)

    def run(self, computation: Computation, *, delta: Number | None = None) -> Any:
        """What a computation released: the same steps."""
        vault = self._vault
        with vault.running.paced():
            booked = vault.bookings.chosen(computation, delta, self.who)
            note = vault.charging.note(self.who.name, computation=computation.key(), **booked.note)
            claim = ChargeClaim(vault.charging, key=booked.key, who=self.who, loss=booked.loss, note=note)
            reservation = self._settled(claim, computation)
            assert reservation.answer is not None
            return given(reservation.answer, older=vault.execution.older(data_of(reservation.answer)))

    def _listed(self, prepared: Prepared) -> Answer:
        """Public values: nothing is charged, run or recorded."""
        vault, confidence = self._vault, prepared.terms.confidence
        table, bars = shape(public_groups(prepared.priced), prepared.question.shape, (), confidence)
        return Answer(
            table=table,
            bars=bars,
            confidence=float(confidence),
            receipt=None,
            cost=Cost(epsilon=0.0, delta=0.0, charged=False, left=vault.accounts.left(self.who)),
            notes=vault.quoting.notes(prepared.question),
        )

    def _of_known(self, prepared: Prepared) -> Answer:
        """A profile that somebody paid for, at no cost."""
        found = self._vault.profiles.no_worse(prepared.priced)
        charge = None if found is None else self._vault.past.charge(found.number)
        if charge is None:
            raise unknown_receipt()
        return self._of_charge(charge)

    def _prepare(self, sql: str, terms: Terms) -> Prepared:
        """Bind and price: free, of public facts alone."""
        return self._vault.pricing.prepare(sql, terms, self.who)

    def _approve(self, prepared: Prepared) -> None:
        """Refuse what the owner has to approve first."""
        self._vault.quoting.expect_approved(prepared)

    def _claim(self, prepared: Prepared) -> ChargeClaim:
        """What charges for a question, once the data is there to answer it."""
        self._vault.execution.expect_ready()
        note = self._vault.charging.note(
            self.who.name,
            sql=prepared.sql,
            epsilon=f"{prepared.epsilon:.6g}",
            asked=prepared.settled.to_json(),
            key_version=KEY_VERSION,
            **({"profile": name_of_form(prepared.priced.aggregation)} if prepared.question.profile else {}),
        )
        charging, loss, cost = self._vault.charging, prepared.loss, prepared.epsilon
        return ChargeClaim(charging, key=prepared.key, who=self.who, loss=loss, note=note, epsilon=cost)

    def _settled(self, claim: ChargeClaim, work: Prepared | Computation) -> Reservation:
        """Charge, run and record, or find what was recorded: the same steps for whatever is worked on."""
        execution = self._vault.execution
        execution.expect_ready()
        with claim:
            claim.charge()
            if claim.stored is None:
                claim.record(execution.run(work) if isinstance(work, Prepared) else execution.compute(work))
        return claim.settled()

    def _deliver(self, prepared: Prepared, reservation: Reservation) -> Answer:
        """The stored bytes as a table of the wanted shape: post-processing, free."""
        vault = self._vault
        assert reservation.answer is not None
        stored, number = Stored.unseal(reservation.answer), reservation.receipt.number
        if stored.released is None:
            raise Failed(number, final=True)
        bounds, confidence = stored.bounds, prepared.terms.confidence
        prepared = vault.pricing.with_rows(prepared, stored.rows)
        priced = vault.pricing.with_bounds(prepared, bounds) if bounds else prepared.priced
        released = Released.from_bytes(stored.released)
        table, bars = shape(released, prepared.question.shape, priced.errors(confidence), confidence)
        found = (
            f"bounds found for {place[0]}.{place[1]}: [{float(found.low):g}, {float(found.high):g}]"
            for place, found in bounds.items()
        )
        older = vault.execution.older(stored.data)
        nothing = vault.quoting.nothing_shown(priced) if released.size == 0 else ()
        return Answer(
            table=table,
            bars=bars,
            confidence=float(confidence),
            receipt=PublicReceipt.of(reservation.receipt, vault.ledger.currency),
            cost=Cost(
                epsilon=prepared.epsilon,
                delta=prepared.delta,
                charged=reservation.charged.main != 0 or reservation.charged.delta > 0,
                left=vault.accounts.left(self.who),
            ),
            notes=(*([OLDER] if older else []), *nothing, *found, *vault.quoting.notes(prepared.question)),
            older_than_data=older,
        )

    # ------------------------------------------------------------------ what was asked before

    def remembered(self, sql: str, terms: Terms = AS_USUAL) -> Answer | None:
        """The answer that this process delivered to this analyst for exactly this before, if it still has it.

        Free, and takes microseconds. None where the data changed since, and where the policy rounds answer times.
        """
        vault = self._vault
        found = vault.memory.get(self.who.name, (sql, terms.signature))
        if found is None or vault.running.closing or vault.execution.changed:
            return None
        return replace(found, cost=replace(found.cost, charged=False, left=vault.accounts.left(self.who)))

    def remember(self, sql: str, terms: Terms, answer: Answer) -> None:
        """Keep what was answered to exactly this, here or by another curator of the same policy and ledger."""
        # what wasn't charged for (EXPLAIN PRIVACY) tells of balances, which change
        if answer.receipt is not None and not self._vault.policy.budget.round_answer_time_up_to:
            self._vault.memory.keep(self.who.name, (sql, terms.signature), fixed(answer))

    def answers(self, *, search: str = "", before: str | None = None, count: int = 50) -> AnswerPage:
        """Questions that were paid for, newest first."""
        return self._vault.past.page(self.who, search=search, before=before, count=count)

    def past(self, number: str) -> Past:
        """What was asked under a receipt number."""
        return self._vault.past.one(number, self.who)

    def answer(self, number: str) -> Answer:
        """The answer of a receipt again, free."""
        with self._vault.running.paced():
            return self._again(number)

    def _again(self, number: str) -> Answer:
        vault, who = self._vault, self.who
        charge = vault.past.charge(number)
        if charge is None or not (charge.account == who.account or who.reads_all):
            raise unknown_receipt()
        return self._of_charge(charge)

    def _of_charge(self, charge: Charged) -> Answer:
        vault, who = self._vault, self.who
        sql, settled = terms_of(charge)
        prepared = vault.pricing.prepare(sql, settled.terms, who, again=settled, charged=charge.key)
        first_version = charge.note.get("key_version") is None
        if first_version and charge.note.get("policy") == vault.protected["policy"]:
            # its terms are all in the note, so nothing has to be computed again to know it
            prepared = replace(prepared, key=charge.key)
        if prepared.key != charge.key:
            raise outdated()
        if charge.answered:
            stored = vault.charging.stored(key=charge.key, account=charge.account, loss=prepared.loss)
            answer = self._deliver(prepared, stored)
            if first_version and rounded_inwards(prepared.question):
                answer = replace(answer, notes=(ROUNDED_INWARDS, *answer.notes))
            return answer if charge.account == who.account or who.owner else _unnamed(answer)
        if charge.account != who.account:
            raise unanswered()
        if settled.version != vault.pricing.version:
            raise outdated()
        # paid for by this account and not answered: redeemed, at no cost, as by asking the same again
        return self._deliver(prepared, self._settled(self._claim(prepared), prepared))

    def history(self) -> tuple[Spending, ...]:
        """How spending grew: of every account for the owner, of their own for an analyst."""
        return history(self._vault.past, None if self.who.owner else self.who.account, self._vault.accounts)

    def guarantee(self) -> Guarantee:
        """What the answers so far can tell about one person."""
        self._vault.expect_bound()
        return self._vault.accounts.guarantee(self.who)

    def budget(self) -> tuple[BudgetLine, ...]:
        """What was spent and what is left."""
        self._vault.expect_bound()
        return self._vault.accounts.lines(self.who)

    # ------------------------------------------------------------------ what the owner is asked for

    def request_question(self, sql: str, terms: Terms = AS_USUAL, *, why: str = "") -> Request:
        """Ask the owner to approve a question."""
        return Approvals(self._vault).question(self._prepare(sql, terms), why)

    def request_budget(self, epsilon: Number, *, why: str = "") -> Request:
        """Ask the owner to raise the analyst's own budget by ``epsilon``."""
        return Approvals(self._vault).budget(self.who, epsilon, why)

    def requests(self, *, waiting_only: bool = False) -> tuple[Request, ...]:
        """What was asked of the owner, newest first: everybody's for the owner, their own for an analyst."""
        whose = None if self.who.owner else self.who.account.path[-1]
        return self._vault.requests.all(whose, waiting_only=waiting_only)


class OwnerView(AnalystView):
    """What the owner alone may ask."""

    def records(self, *, count: int = 50, before: int | None = None) -> tuple[Record, ...]:
        """The entries of the ledger, newest first; ``before`` is the number of an entry."""
        return of_ledger(self._vault.ledger, self._vault.policy, count=count, before=before)

    def verify(self) -> Verified:
        """Replay the whole ledger."""
        return self._vault.ledger.verify()

    def outlook(self, request: Request) -> Outlook:
        """What approving a request would bring, in words."""
        return outlook_of(self._vault, request)

    def decide(self, number: str, *, approve: bool, why: str = "") -> Request:
        """Approve or refuse a request. A budget that is raised stays so."""
        return Approvals(self._vault).decide(number, approve=approve, why=why)


class Curator:
    """Holds the data and the budget of one policy; the only way from one to the other.

    Guarantee: whatever analysts ask, and however they choose the next question, all answers together are private as
        the policy's budget states, for the policy's unit and adjacency: every charge is durable before data is read
        and is never given back.

    ``analyst`` and ``owner`` are the same for one who asks; the methods here take the name with each question.

    Example:
        >>> curator = Curator.open("dither.toml")  # doctest: +SKIP
        >>> curator.sql("SELECT city, COUNT(*) AS n FROM orders GROUP BY city", epsilon=0.5)  # doctest: +SKIP
    """

    def __init__(self, policy: Policy, engine: Engine, ledger: Ledger) -> None:
        self.policy = policy
        self._vault = Vault(policy, engine, ledger)

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
        out than the policy says; ``reports`` tells the owner what.

        Args:
            policy: A policy, or the path of its file.
            engine: What runs questions; DuckDB on the policy's source by default. Closed with the curator.
            ledger: The record of what was spent; the policy's own by default, begun if it isn't there. Closed with the
                curator.
            memory_limit: Of the engine that is opened here, such as "4GiB"; what doesn't fit goes to disk.
            sharing: How many curators work at once; each takes its part of what one takes by default.
            accepted: The version of the data that another process of the owner opened: that one is taken as it is, and
                no other is opened.

        Raises:
            InvalidPolicy: with every mistake in the file.
            SourceError: where the data isn't what the policy says.
            LedgerError: where the ledger can't be used, or was kept for something else.
        """
        rules = policy if isinstance(policy, Policy) else Policy.load(Path(policy))
        with ExitStack() as undo:
            # what was opened here is closed if the rest can't be opened
            limit = memory_limit or (share_of_memory(sharing) if sharing > 1 else None)
            held = engine or undo.enter_context(
                open_engine(
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

    def analyst(self, name: str) -> AnalystView:
        """The curator as one analyst sees it; Refused if the policy doesn't let this name ask.

        Args:
            name: As the policy has it.
        """
        return AnalystView(self._vault, name)

    @property
    def owner(self) -> OwnerView:
        """The curator as the owner of the data sees it."""
        return OwnerView(self._vault, OWNER)

    def price(
        self,
        sql: str,
        *,
        epsilon: Number | None = None,
        error: Number | Mapping[str, Number] | None = None,
        analyst: str = OWNER,
        weights: Mapping[str, Number] | None = None,
        confidence: Number = DEFAULT_CONFIDENCE,
        noise: str | None = None,
    ) -> Quote:
        """What a question would cost, the error of every column, and what would be left; reads no data and is free.

        Args:
            sql: As for ``sql``.
            epsilon: As for ``sql``.
            error: As for ``sql``.
            analyst: Who would pay; the owner by default.
            weights: As for ``sql``.
            confidence: As for ``sql``.
            noise: As for ``sql``.

        Raises:
            Refused: for public reasons, with a code, a hint and the place in the text.
        """
        terms = Terms.of(epsilon=epsilon, error=error, weights=weights, confidence=confidence, noise=noise)
        return self.analyst(analyst).price(sql, terms)

    def sql(
        self,
        sql: str,
        *,
        epsilon: Number | None = None,
        error: Number | Mapping[str, Number] | None = None,
        analyst: str = OWNER,
        weights: Mapping[str, Number] | None = None,
        confidence: Number = DEFAULT_CONFIDENCE,
        noise: str | None = None,
    ) -> Answer:
        """Answer a question. Give ``epsilon``, or ``error`` for the smallest ε whose error is no larger.

        A question that was asked before is answered from the record, free.

        Args:
            sql: One SELECT with aggregates over tables of the policy.
            epsilon: The loss to spend, above 0 and at most what the policy lets one question cost. A float counts as
                its shortest decimal.
            error: Half the width of the interval of every column, or by the column's name, in the column's units.
            analyst: Who asks and pays; the owner by default.
            weights: How much of the budget each named column gets relative to the others; 1 by default.
            confidence: The rate at which intervals cover, between 0 and 1; it costs nothing.
            noise: "laplace" or "gaussian"; where it isn't said the policy chooses.

        Returns:
            The released table with its intervals, its cost and its receipt.

        Raises:
            Refused: before the charge, for public reasons; free.
            OutOfBudget: before the charge; free.
            Failed: after the charge, with the receipt; ask the same again at no cost.
        """
        terms = Terms.of(epsilon=epsilon, error=error, weights=weights, confidence=confidence, noise=noise)
        return self.analyst(analyst).sql(sql, terms)

    def profile(
        self,
        table: str,
        *,
        epsilon: Number | None = None,
        where: str = "",
        analyst: str = OWNER,
        noise: str | None = None,
    ) -> Answer:
        """How many units have how many rows of a table: paid for once, then a public fact of this version of the data.

        One unit moves one count by 1, whatever it has, so a profile costs no more than a histogram. The owner buys it,
        or an analyst whom the owner lets (``request_question`` with ``PROFILE table``); who asks for one that is known,
        with no more ε, gets that one, free. Answers then tell how many units a bound cuts.

        Args:
            table: A private table with a privacy unit column.
            epsilon: The loss to spend, as for ``sql``.
            where: A condition on its rows, as it stands after WHERE.
            analyst: Who asks and pays; the owner by default.
            noise: As for ``sql``.

        Returns:
            The ends of each bin (``rows_from``, ``rows_to``) and the noisy number of units in it (``units``).
        """
        return self.analyst(analyst).profile(table, Terms.of(epsilon=epsilon, noise=noise), where=where)

    def profiles(self) -> tuple[KnownProfile, ...]:
        """The profiles of this version of the data that were paid for, by whomever: public facts."""
        return self.owner.profiles()

    # ------------------------------------------------------------------ what was asked before

    def answers(
        self, analyst: str = OWNER, *, search: str = "", before: str | None = None, count: int = 50
    ) -> AnswerPage:
        """Questions that were paid for, newest first: an analyst's own; everybody's for the owner, or if all share.

        Args:
            analyst: Who asks; the owner by default.
            search: Only those whose text holds this.
            before: The receipt number at which the last page ended.
            count: How many at most.
        """
        return self.analyst(analyst).answers(search=search, before=before, count=count)

    def past(self, number: str, *, analyst: str = OWNER) -> Past:
        """What was asked under a receipt number; Refused where there is none that this analyst may see.

        Args:
            number: Of the receipt.
            analyst: Who asks; the owner by default.
        """
        return self.analyst(analyst).past(number)

    def answer(self, number: str, *, analyst: str = OWNER) -> Answer:
        """The answer of a receipt again, free; Refused where there is none, or none that this analyst may read.

        Args:
            number: Of the receipt.
            analyst: Who asks; the owner by default.
        """
        return self.analyst(analyst).answer(number)

    def history(self, analyst: str = OWNER) -> tuple[Spending, ...]:
        """How spending grew: of every account for the owner, of their own for an analyst.

        Args:
            analyst: Who asks; the owner by default.
        """
        return self.analyst(analyst).history()

    def guarantee(self, analyst: str = OWNER) -> Guarantee:
        """What the answers so far can tell about one person: those that the analyst paid for; all, for the owner.

        Where answers are shared, an analyst's own account bounds what they caused and not what they may read: that is
        bounded by the dataset's.

        Args:
            analyst: Whose answers; everybody's for the owner.
        """
        return self.analyst(analyst).guarantee()

    def records(self, *, count: int = 50, before: int | None = None) -> tuple[Record, ...]:
        """The entries of the ledger, newest first; for the owner alone.

        Args:
            count: How many at most.
            before: Only entries with smaller numbers than this.
        """
        return self.owner.records(count=count, before=before)

    def verify(self) -> Verified:
        """Replay the whole ledger; for the owner alone."""
        return self.owner.verify()

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
        confidence: Number = DEFAULT_CONFIDENCE,
        noise: str | None = None,
    ) -> Request:
        """Ask the owner to approve a question that costs more than the analyst may ask without; free.

        Args:
            sql: The question.
            analyst: Who wants to ask it.
            why: What the owner should know.
            epsilon: As for ``sql``.
            error: As for ``sql``.
            weights: As for ``sql``.
            confidence: As for ``sql``.
            noise: As for ``sql``.
        """
        terms = Terms.of(epsilon=epsilon, error=error, weights=weights, confidence=confidence, noise=noise)
        return self.analyst(analyst).request_question(sql, terms, why=why)

    def request_budget(self, analyst: str, *, epsilon: Number, why: str = "") -> Request:
        """Ask the owner to raise the analyst's own budget by ``epsilon``.

        Args:
            analyst: Whose budget.
            epsilon: By how much.
            why: What the owner should know.
        """
        return self.analyst(analyst).request_budget(epsilon, why=why)

    def requests(self, analyst: str = OWNER, *, waiting_only: bool = False) -> tuple[Request, ...]:
        """What was asked of the owner, newest first: everybody's for the owner, their own for an analyst.

        Args:
            analyst: Who asks; the owner by default.
            waiting_only: Leave out what was decided.
        """
        return self.analyst(analyst).requests(waiting_only=waiting_only)

    def outlook(self, request: Request) -> Outlook:
        """What approving a request would bring, in words; for the owner alone.

        Args:
            request: One of ``requests``.
        """
        return self.owner.outlook(request)

    def decide(self, number: str, *, approve: bool, why: str = "") -> Request:
        """Approve or refuse a request; for the owner alone. A budget that is raised stays so.

        Args:
            number: Of the request.
            approve: Whether it is granted.
            why: What the analyst is told.
        """
        return self.owner.decide(number, approve=approve, why=why)

    # ------------------------------------------------------------------ computations

    def price_run(
        self, computation: Computation, *, analyst: str = OWNER, delta: Number | None = None
    ) -> ComputationQuote:
        """What a computation would cost, every way to book it and what each closes; runs nothing, and is free.

        Args:
            computation: What would be run, with the loss that it states.
            analyst: Who would pay; the owner by default.
            delta: As for ``run``.

        Raises:
            Refused: for public reasons, as ``run`` does before it charges.
        """
        return self.analyst(analyst).price_run(computation, delta=delta)

    def run(self, computation: Computation, *, analyst: str = OWNER, delta: Number | None = None) -> Any:
        """Charge the loss of a computation, then hand it the table; returns what it released, from the record.

        For anything that states its loss before it sees data: an estimator, a synthesiser, a mechanism of your own. See
        ``Computation`` for what it has to promise. The same key gives the same result, free, and warns if it is old.

        Raises Refused if its loss is stated for another adjacency or is more than a question may cost, OutOfBudget if
        it doesn't fit in the budget any more, and Failed, with the receipt, if it fails after the charge.

        Its loss is booked on its own sums, where its ε or its ρ is no more than the policy lets one question cost;
        else, if there is a δ, from its exact curve at the policy's δ of a question. ``delta`` says otherwise, and
        another booking is another computation. ``price_run`` says beforehand what each closes.

        Args:
            computation: What is to be run, with the loss that it states.
            analyst: Who pays; the owner by default.
            delta: 0 to book it on its own sums; a δ, at most the policy's of a question, to book it from its curve as
                (ε, δ), giving that δ away.
        """
        return self.analyst(analyst).run(computation, delta=delta)

    def statistical_query(
        self,
        table: str,
        predicate_sql: str,
        *,
        tolerance: Number,
        confidence: Number = DEFAULT_CONFIDENCE,
        count_epsilon: Number | None = None,
        analyst: str = OWNER,
    ) -> Statistic:
        """The share of a table's rows for which a predicate holds, within ±``tolerance``; for learners that ask many.

        Two questions: the number of rows, with ``count_epsilon`` (a twentieth of the most that a question may cost),
        which is paid for once for all predicates; then the average of the predicate as 0 and 1, with the smallest ε
        that reaches the tolerance. A unit with more rows than ``max_rows_contributed`` counts as so many, with its own
        share of them.

        Args:
            table: A private table of the policy.
            predicate_sql: A condition over its columns, as it stands after WHERE.
            tolerance: Half the width of the interval of the share, between 0 and 1.
            confidence: The rate at which that interval covers.
            count_epsilon: The ε of the number of rows.
            analyst: Who asks and pays.

        Raises:
            InvalidParameter: where the noisy number of rows shows that the tolerance can't be reached; the count was
                charged then.
        """
        view = self.analyst(analyst)
        most = view.who.most_epsilon
        return statistical_query(
            view.sql,
            view.price,
            table,
            predicate_sql,
            tolerance=tolerance,
            confidence=confidence,
            count_epsilon=most / 20 if count_epsilon is None else as_fraction(count_epsilon),
            most=most,
        )

    def most_epsilon(self, analyst: str = OWNER) -> Fraction:
        """The most that one question of this analyst may cost.

        Args:
            analyst: Who would ask; the owner by default.
        """
        return self.analyst(analyst).who.most_epsilon

    def budget(self, analyst: str = OWNER) -> tuple[BudgetLine, ...]:
        """What was spent and what is left: every account for the owner, their own for an analyst.

        Args:
            analyst: Who asks; the owner by default.
        """
        return self.analyst(analyst).budget()

    @property
    def spent_by_levels(self) -> bool:
        """Whether spending is told by levels, for a δ of its own, and the guarantee by the cap: ledgers of 0.1.0."""
        return self._vault.accounts.by_levels

    @property
    def version(self) -> str:
        """A fingerprint of the data as it was opened; for the owner's side only."""
        return self._vault.execution.opened

    @property
    def reports(self) -> tuple[TableReport, ...]:
        """What was found when the tables were looked at: counts of the data itself, for the owner alone."""
        engine = self._vault.engine
        return engine.reports if isinstance(engine, OpenedEngine) else ()

    @property
    def broken(self) -> bool:
        """Whether the engine can't run anything any more: questions are refused until the policy is opened again."""
        return self._vault.execution.broken

    @property
    def ledger(self) -> Ledger:
        """The record of everything that was spent; for the owner."""
        return self._vault.ledger

    def close(self) -> None:
        """Release the data and the ledger; questions that run in other threads are stopped and waited for."""
        self._vault.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def profile_text(table: str, where: str = "") -> str:
    """The question for the profile of a table."""
    name = ".".join('"' + part.replace('"', '""') + '"' for part in table.split("."))
    return f"PROFILE {name}" + (f" WHERE {where}" if where.strip() else "")


def _unnamed(answer: Answer) -> Answer:
    """An answer that another paid for, without their name."""
    assert answer.receipt is not None
    return replace(answer, receipt=replace(answer.receipt, account=ANOTHER))
