"""Prices for questions: the policy's limits, the analyst's wishes and the plan, made into a quote. Reads no data."""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

from dither.curator.answers.in_memory_cache import Memory
from dither.curator.asker import Asker
from dither.curator.computation import Computation
from dither.curator.epsilon_to_currency import Exchange
from dither.curator.price.profiles import Profiles
from dither.curator.terms import Settled, Terms
from dither.errors import Refused
from dither.ledger import Currency, EntryKind, Ledger
from dither.ledger.amount import MAIN_UNITS
from dither.ledger.entry import canonical
from dither.mechanisms.partition_selection import GivenAwayLoss
from dither.numeric import fraction_up
from dither.policy.file_schema import LARGEST_EPSILON, SMALLEST_DELTA
from dither.policy.policy import Policy
from dither.privacy import ApproximateLoss, Json, PrivacyLoss, PureLoss, ZcdpLoss
from dither.query.kinds import Column, Expression, Interval, Kind, columns
from dither.query.measure.clamped_grids import holds_bounds
from dither.query.plan.canonical import arranged, canonical_aggregation
from dither.query.plan.plan import Aggregate, Aggregation, BoundQuestion, Law, Shape
from dither.query.plan.profile import profile_of
from dither.query.price.noise import BudgetKind, Priced, QueryBudget, laplace_errs_less, price, price_for_error
from dither.query.price.profile import Profile, bounded_rows, rows_worth_sparing
from dither.query.refusals import limited
from dither.query.schema import ColumnFacts, Schema
from dither.query.sql import bind, bind_with_form


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A question ready to be charged and run: a function of its text, of what was asked by whom, and of the policy.

    ``searched`` are the columns whose bounds must be found first; until then ``priced`` stands on made-up bounds, which
    change the size of the noise but not the loss. So it does where there is a ``rows_budget``, which pays for a profile
    of the question's own. ``epsilon`` and ``delta`` are its cost by itself; ``settled`` are the
    terms with all that was left open in ``terms``.
    """

    sql: str
    terms: Terms
    who: Asker
    question: BoundQuestion
    priced: Priced
    loss: PrivacyLoss
    key: str
    epsilon: float
    delta: float
    searched: tuple[Place, ...]
    search_budget: QueryBudget | None
    rows_budget: QueryBudget | None
    settled: Settled


def aggregates_of(names: frozenset[str] | set[str]) -> list[int]:
    """The indices of the aggregates among the columns of an output (``a0``, ``a0.low``, …)."""
    return sorted({int(name[1:].partition(".")[0]) for name in names if name.startswith("a")})


# What the key of a question is made of: since version 2, of the exact terms on which it was asked.
KEY_VERSION = 2
# How many bound texts and prices are kept, up to which length of the text, and in how many bytes.
KEPT, LONGEST_KEPT, ROOM = 256, 10_000, 64 * 2**20
# what they take for each character of the text, and for each public value that they list, about
BYTES_OF_CHARACTER, BYTES_OF_VALUE = 100, 300
# The part of a question's budget that searches for bounds which the owner left open.
SEARCH_SHARE = Fraction(1, 5)
# Costs are rounded up, so that what asks for exactly the most costs a little more.
ROUNDING = 1 + Fraction(1, 10**9)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bound:
    """A question, and what follows from its text alone: the columns it waits for, and its canonical form.

    ``former`` is the same as it was read when fewer keys were public. ``rows`` is the bound on rows that was chosen.
    """

    question: BoundQuestion
    waiting: tuple[Place, ...]
    form: str
    size: int
    former: _Bound | None = None
    rows: int | None = None

    def with_rows(self, rows: int) -> _Bound:
        """With a bound on rows that was chosen: the same question as one that states it."""
        question = bounded_rows(self.question, rows)
        return replace(self, question=question, form=canonical_aggregation(question.aggregation), rows=rows)

    @classmethod
    def of(cls, sql: str, schema: Schema) -> _Bound:
        question, form = bind_with_form(sql, schema)
        former = None if question.former is None else cls._of(sql, *arranged(question.former), None)
        return cls._of(sql, question, form, former)

    @classmethod
    def _of(cls, sql: str, question: BoundQuestion, form: str, former: _Bound | None) -> _Bound:
        aggregation = question.aggregation
        listed = [key.values for key in aggregation.keys]
        listed += [argument.facts.keys for aggregate in aggregation.aggregates for argument in aggregate.arguments]
        size = BYTES_OF_CHARACTER * len(sql) + BYTES_OF_VALUE * sum(len(values) for values in listed if values)
        size += 0 if former is None else former.size
        return cls(question=question, waiting=searched(aggregation), form=form, size=size, former=former)


class Pricing:
    """Makes quotes for one policy."""

    def __init__(
        self,
        policy: Policy,
        exchange: Exchange,
        ledger: Ledger,
        *,
        version: str,
        profiles: Profiles,
    ) -> None:
        self.policy = policy
        self.version = version
        self._profiles = profiles
        self._exchange = exchange
        self._ledger = ledger
        self._secret = secret_of(ledger)
        self._fingerprint = policy.fingerprint()
        # by analyst, so that the time of a price doesn't tell what others asked
        self._bound = Memory[_Bound](KEPT, room=ROOM, size=lambda bound: bound.size)
        self._bought = lru_cache(KEPT)(
            lambda epsilon, delta, _analyst, discover: exchange.bought(epsilon, delta, discover=discover)
        )
        self._kept = Memory[tuple[Prepared, int]](KEPT, room=ROOM, size=lambda kept: kept[1])
        # whether any question may leave its bound on rows open, besides those that say so
        self._chooses = any(table.auto_rows for table in policy.schema.tables.values())
        self._old_keys = OldKeys(ledger, self._fingerprint, self._present_key)

    def prepare(
        self, sql: str, terms: Terms, who: Asker, *, again: Settled | None = None, charged: str | None = None
    ) -> Prepared:
        """Bind and price; raises Refused for public reasons only.

        ``again`` are the terms of a question that was charged before, under the key ``charged``: what a question may
        cost doesn't matter then.
        """
        if again is not None or len(sql) > LONGEST_KEPT:
            return self._prepared(sql, terms, who, again, charged)[0]
        # what an analyst asks the price of is often asked next; a bound that a profile chose may be another one by then
        known = len(self._profiles.known()) if self._chooses or "auto" in sql.lower() else 0
        return self._kept.made(who.name, (sql, terms.signature, known), lambda: self._prepared(sql, terms, who))[0]

    def _prepared(
        self, sql: str, terms: Terms, who: Asker, again: Settled | None = None, charged: str | None = None
    ) -> tuple[Prepared, int]:
        """The question, and about how many bytes it takes."""
        if len(sql) > LONGEST_KEPT:
            bound = _Bound.of(sql, self.policy.schema)
        else:
            bound = self._bound.made(who.name, sql, lambda: _Bound.of(sql, self.policy.schema))
        with limited():
            return self._as_paid(sql, bound, terms, who, again, charged), bound.size

    def _as_paid(
        self, sql: str, bound: _Bound, asked: Terms, who: Asker, again: Settled | None, charged: str | None
    ) -> Prepared:
        """The question as it was read when its keys weren't public yet, if it was paid for by who asks; else as now.

        Whether others paid for it makes no difference: no price tells what others asked.
        """
        if bound.question.auto:
            return self._with_rows(sql, bound, asked, who, again)
        if bound.former is not None:
            key = self._key_on(sql, bound.former, asked, who, again, listed_now=bound.question.listing)
            if key is not None and (key == charged or self._ledger.paid(key, who.account)):
                bound = bound.former
        return self._priced(sql, bound, asked, who, again)

    def _with_rows(self, sql: str, bound: _Bound, asked: Terms, who: Asker, again: Settled | None) -> Prepared:
        """The question with the bound on rows that was taken when it was paid for; else with that of the best profile.

        Without a profile it finds one of its own, with a part of its budget.
        """
        if asked.error is not None:
            raise Refused(
                "the error can't be promised before the bound on rows is chosen",
                code="error_unknown",
                hint="Ask with epsilon, or state max_rows_contributed in OPTIONS.",
            )
        if again is not None:
            taken = bound if again.rows is None else bound.with_rows(again.rows)
            return self._priced(sql, taken, asked, who, again)
        searching = self._priced(sql, bound, asked, who, None)
        known = self._profiles.of(bound.question.aggregation)
        if not known or self._ledger.paid(searching.key, who.account):
            return searching
        # with a bound of one row nothing is searched for, so that all of the budget is in its noise
        spared = rows_worth_sparing(self._priced(sql, bound.with_rows(1), asked, who, None).priced)
        most = bound.question.aggregation.rows
        chosen = [min(most, one.profile.least_bound(spared)) for one in known]
        made = {rows: self._priced(sql, bound.with_rows(rows), asked, who, None) for rows in dict.fromkeys(chosen)}
        paid = (one for one in made.values() if self._ledger.paid(one.key, who.account))
        return next(paid, made[chosen[0]])

    def _key_on(
        self, sql: str, bound: _Bound, asked: Terms, who: Asker, again: Settled | None, *, listed_now: bool
    ) -> str | None:
        """The key on these terms; None where they name no price, which public values don't have."""
        try:
            return self._key_in_ledger(bound, self._settled(sql, bound, asked, who, again))
        except Refused:
            if listed_now:
                return None
            raise

    def _settled(self, sql: str, bound: _Bound, asked: Terms, who: Asker, again: Settled | None) -> Settled:
        """The terms with all that was left open in them."""
        question = bound.question
        if again is not None:
            delta, law, most = again.delta, asked.noise, Fraction(LARGEST_EPSILON)
        else:
            delta, most = self._delta(question), who.most_epsilon
            law = None
            if not question.listing:
                law = self._law(sql, question, self._weighted(question, asked.weights), asked, bound.waiting)
        taken = replace(asked, noise=law)
        if asked.error is None and not question.listing:
            taken = replace(taken, epsilon=self._epsilon(question, asked, most))
        version = self.version if again is None else again.version
        return Settled(terms=taken, delta=delta, version=version, rows=bound.rows)

    def _key_in_ledger(self, bound: _Bound, settled: Settled) -> str:
        key = self._key(bound, settled)
        return self._old_keys.find(key, settled) or key

    def _priced(self, sql: str, bound: _Bound, asked: Terms, who: Asker, again: Settled | None) -> Prepared:
        question, waiting = bound.question, bound.waiting
        searches = question.auto and bound.rows is None
        parts = len(waiting) + searches
        aggregation = self._weighted(question, asked.weights)
        most = who.most_epsilon if again is None else Fraction(LARGEST_EPSILON)
        settled = self._settled(sql, bound, asked, who, again)
        delta, epsilon, law = settled.delta, settled.terms.epsilon, settled.terms.noise
        if question.listing:
            kind: BudgetKind = "zcdp" if self._exchange.currency is Currency.ZCDP else "pure"
            # of this budget nothing is used
            whole, cost, delta = QueryBudget(kind=kind, main=Fraction(1), delta=Fraction(0)), 0.0, Fraction(0)
            priced = price(aggregation, whole, self.policy.schema.adjacency)
        elif asked.error is not None:
            priced = self._for_error(question, aggregation, asked, delta, waiting, law)
            whole = priced.budget
            cost = self._exchange.epsilon_of_question(whole, delta)
        else:
            assert epsilon is not None
            if law == "laplace":
                kind, keys = self._kind(aggregation, law, delta)
                whole, cost = QueryBudget(kind=kind, main=epsilon, delta=keys), fraction_up(epsilon)
            else:
                whole, cost = self._bought(epsilon, delta, who.name, aggregation.discover)
            rest = replace(whole, main=whole.main * (1 - SEARCH_SHARE)) if parts else whole
            if waiting:
                aggregation, priced = self._supposed(sql, question, asked, waiting, rest)
            else:
                priced = price(aggregation, rest, self.policy.schema.adjacency)
        if Fraction(cost) > most * ROUNDING:
            raise Refused(
                f"this would cost ε = {cost:.4g} and a question may cost at most {float(most):g}",
                code="epsilon_too_large",
                hint="Ask for a larger error, or for fewer columns.",
            )
        loss = self._stated(whole) if parts else priced.loss
        key = self._key_in_ledger(bound, settled)
        share = self._share(whole, parts) if parts else None
        return Prepared(
            sql=sql,
            terms=asked,
            who=who,
            question=question,
            priced=priced,
            loss=loss,
            key=key,
            epsilon=cost,
            delta=float(delta if whole.kind == "zcdp" else whole.delta),
            searched=waiting,
            search_budget=share if waiting else None,
            rows_budget=share if searches else None,
            settled=settled,
        )

    def on_rows(self, prepared: Prepared, found: Profile) -> Prepared:
        """The question with the bound on rows that its own profile chooses, and the noise that this needs."""
        aggregation = prepared.question.aggregation
        spared = rows_worth_sparing(self._on_rows(prepared, 1).priced)
        # nobody has more of these rows than of all of them, so that what is known of those is a limit
        wider = [one.profile.least_bound(spared) for one in self._profiles.around(aggregation)]
        return self._on_rows(prepared, min([aggregation.rows, found.least_bound(spared), *wider]))

    def _on_rows(self, prepared: Prepared, rows: int) -> Prepared:
        question = bounded_rows(prepared.question, rows)
        weighted = self._weighted(question, prepared.terms.weights)
        if prepared.searched:
            weighted = replace(prepared.priced.aggregation, rows=rows)
        priced = price(weighted, prepared.priced.budget, self.policy.schema.adjacency)
        return replace(prepared, question=question, priced=priced)

    def row_profile(self, prepared: Prepared) -> Priced:
        """The profile that a question pays for itself."""
        assert prepared.rows_budget is not None
        aggregation = prepared.question.aggregation
        wanted = profile_of(aggregation.relation, aggregation.tables)
        return price(wanted, prepared.rows_budget, self.policy.schema.adjacency)

    def with_rows(self, prepared: Prepared, rows: int | None) -> Prepared:
        """The question with the bound on rows that its own search found, if it made one."""
        return prepared if rows is None else self._on_rows(prepared, rows)

    def on_found(self, prepared: Prepared, found: Mapping[Place, Interval]) -> tuple[dict[Place, Interval], Priced]:
        """The bounds that were found, or the narrowest around them that can be priced; and that price.

        The widest were tried before the charge (``_supposed``), so that there always are such bounds.
        """
        problem: Refused | None = None
        for bounds in widened(found):
            try:
                return bounds, self.with_bounds(prepared, bounds)
            except Refused as refused:
                problem = refused
        assert problem is not None
        raise problem

    def with_bounds(self, prepared: Prepared, bounds: Mapping[Place, Interval]) -> Priced:
        """The price once bounds were found: the same budget, noise of the size that these bounds need."""
        known = bounded(prepared.sql, prepared.question, self.policy.schema, bounds)
        aggregation = self._weighted(known, prepared.terms.weights)
        return price(aggregation, prepared.priced.budget, self.policy.schema.adjacency)

    def _supposed(
        self, sql: str, question: BoundQuestion, asked: Terms, waiting: tuple[Place, ...], rest: QueryBudget
    ) -> tuple[Aggregation, Priced]:
        """The price on made-up bounds, once every sort of bounds that a search can find has been tried.

        A question that can't be priced on bounds that were found would be refused after its charge, so it is refused
        before it.
        """
        for trial in TRIALS:
            try:
                supposed = bounded(sql, question, self.policy.schema, dict.fromkeys(waiting, trial))
                aggregation = self._weighted(supposed, asked.weights)
                priced = price(aggregation, rest, self.policy.schema.adjacency)
            except Refused as problem:
                if problem.code in ("unknown_weight", "keys_need_delta"):
                    raise
                raise Refused(
                    "the bounds that a search may find for "
                    + ", ".join(f"{table}.{column}" for table, column in waiting)
                    + " wouldn't all do for this question",
                    code="bounds_missing",
                    hint="State contribution_bounds_per_row => (low, high), clamp with LEAST and GREATEST, or have the "
                    "owner declare the bounds.",
                    position=problem.position,
                ) from None
        return aggregation, priced

    def key_of_computation(self, computation: Computation, loss: PrivacyLoss, *, delta: Fraction = Fraction(0)) -> str:
        """The permanent name of a computation on this data under this policy, booked from its curve where δ isn't 0.

        Whoever asks for the same is charged the same, so another booking is another computation.
        """
        what = [computation.key(), computation.table, list(computation.columns), computation.rows, loss.to_json()]
        at = [{"delta": str(delta)}] if delta else []
        return self._named(["computation", 1, [*what, *at]], self.version)

    def _delta(self, question: BoundQuestion) -> Fraction:
        delta = self.policy.budget.delta_per_query
        wanted = question.options.delta
        if wanted is None:
            return delta
        if wanted > delta:
            raise Refused(
                f"the question asks for δ = {_shown(wanted)} and the policy allows {float(delta):.3g} a question",
                code="delta_too_large",
                hint="Leave delta out, or ask for a smaller one.",
            )
        if wanted < min(SMALLEST_DELTA, delta) and self._exchange.currency is Currency.ZCDP:
            raise Refused("a question's delta must be at least 2e-18 where the budget has one", code="delta_too_small",
                          hint="Leave delta out of OPTIONS.")  # fmt: skip
        return wanted

    def _law(
        self,
        sql: str,
        question: BoundQuestion,
        aggregation: Aggregation,
        asked: Terms,
        waiting: tuple[Place, ...],
    ) -> Law | None:
        """The law that the question or the policy chooses for the noise; None where nobody does, and ρ decides.

        By public facts alone: never by what was spent, which the choice would tell.
        """
        budget = self.policy.budget
        stated = {law for law in (asked.noise, question.options.noise) if law is not None}
        if len(stated) > 1:
            raise Refused("the question asks for two laws of its noise", code="noise_conflict",
                          hint="Leave noise out of OPTIONS, or of the terms.")  # fmt: skip
        if self._exchange.currency is Currency.PURE:
            if "gaussian" in stated:
                raise Refused("this budget adds pure ε, and Gaussian noise has none", code="noise_not_allowed",
                              hint="Leave noise out.")  # fmt: skip
            return None
        law = next(iter(stated), None)
        if law is not None and budget.noise not in ("any", law):
            raise Refused(
                f"the policy allows {budget.noise.capitalize()} noise only",
                code="noise_not_allowed",
                hint=f'Leave noise out, or ask the owner to allow it: the policy says noise = "{budget.noise}".',
            )
        if law is not None or budget.noise == "gaussian":
            return law
        if budget.noise == "laplace":
            return "laplace"
        if budget.questions is None:
            return None
        if waiting:
            # how far the bounds reach changes both laws alike
            supposed = bounded(sql, question, self.policy.schema, dict.fromkeys(waiting, TRIALS[-1]))
            aggregation = self._weighted(supposed, asked.weights)
        whole = self._exchange.limit(budget.epsilon_budget)
        precise = laplace_errs_less(
            aggregation,
            epsilon=budget.epsilon_budget / budget.questions,
            rho=Fraction(whole.main, MAIN_UNITS) / budget.questions,
            adjacency=self.policy.schema.adjacency,
        )
        return "laplace" if precise else "gaussian"

    def _epsilon(self, question: BoundQuestion, asked: Terms, most: Fraction) -> Fraction:
        stated = [x for x in (asked.epsilon, question.options.epsilon) if x is not None]
        if not stated and self.policy.budget.default_epsilon is not None:
            stated = [min(self.policy.budget.default_epsilon, most)]
        if not stated:
            raise Refused(
                "the question says neither how much ε to spend nor which error to reach",
                code="epsilon_missing",
                hint=f"Give epsilon (at most {float(most):g}) or error; EXPLAIN PRIVACY shows what an ε would buy.",
            )
        epsilon = min(stated)
        if epsilon > most:
            raise Refused(
                f"the question asks for ε = {_shown(epsilon)} and a question may cost at most {float(most):g}",
                code="epsilon_too_large",
                hint=f"Ask with ε = {float(most):g} or less.",
            )
        return epsilon

    def _weighted(self, question: BoundQuestion, weights: Mapping[str, Fraction]) -> Aggregation:
        """The aggregation with the weights given by output column."""
        aggregation = question.aggregation
        if not weights:
            return aggregation
        chosen = {index: aggregate.weight for index, aggregate in enumerate(aggregation.aggregates)}
        outputs = {output.name: output for output in question.shape.outputs}
        for name, weight in weights.items():
            indices = aggregates_of(columns(outputs[name].expression)) if name in outputs else []
            if not indices:
                raise Refused(f"there is no noisy column {name!r} to weigh", code="unknown_weight",
                              hint="Weights are given by the names of noisy columns of the answer.")  # fmt: skip
            for index in indices:
                chosen[index] = weight
        weighted = tuple(replace(a, weight=chosen[i]) for i, a in enumerate(aggregation.aggregates))
        return replace(aggregation, aggregates=weighted)

    def _for_error(
        self,
        question: BoundQuestion,
        aggregation: Aggregation,
        asked: Terms,
        delta: Fraction,
        waiting: tuple[Place, ...],
        law: Law | None,
    ) -> Priced:
        if waiting:
            raise Refused(
                "the error can't be promised before the bounds of "
                + ", ".join(f"{table}.{column}" for table, column in waiting)
                + " are known",
                code="error_unknown",
                hint="Ask with epsilon, or have the owner declare the bounds.",
            )
        assert asked.error is not None
        targets = _error_targets(question, aggregation, asked.error)
        kind, keys = self._kind(aggregation, law, delta)
        return price_for_error(
            aggregation,
            targets,
            kind=kind,
            delta=keys,
            adjacency=self.policy.schema.adjacency,
            confidence=asked.confidence,
        )

    def _kind(self, aggregation: Aggregation, law: Law | None, delta: Fraction) -> tuple[BudgetKind, Fraction]:
        """What a question is priced in, and its δ for keys."""
        if self._exchange.currency is Currency.PURE:
            return "pure", Fraction(0)
        keys = delta / 2 if aggregation.discover else Fraction(0)
        if law != "laplace":
            return "zcdp", keys
        return ("approximate" if keys else "pure"), keys

    def _share(self, whole: QueryBudget, parts: int) -> QueryBudget:
        return QueryBudget(kind=whole.kind, main=whole.main * SEARCH_SHARE / parts, delta=Fraction(0))

    def _stated(self, whole: QueryBudget) -> PrivacyLoss:
        """The whole budget as a loss, for a question whose noise is known only once bounds were found."""
        adjacency = self.policy.schema.adjacency
        if whole.kind == "pure":
            return PureLoss(whole.main, adjacency)
        if whole.kind == "approximate":
            return ApproximateLoss(whole.main, whole.delta, adjacency)
        loss = ZcdpLoss(whole.main, adjacency)
        return GivenAwayLoss(loss, whole.delta, adjacency) if whole.delta else loss

    def _key(self, bound: _Bound, settled: Settled) -> str:
        """The permanent name of a question: what is computed, and on which terms, all of them exact.

        By the canonical text of what is computed, not by the analyst's: ORDER BY or another alias is the same. A term
        that has its default isn't named, so that terms which later versions add leave the names of before as they are.
        The confidence is a term only where an error was asked for, which it decides.
        """
        question, asked = bound.question, settled.terms
        aggregation = self._weighted(question, asked.weights)
        form = bound.form if aggregation is question.aggregation else canonical_aggregation(aggregation)
        named: Json = {"form": form}
        if asked.error is not None:
            targets = _error_targets(question, aggregation, asked.error)
            named["error"] = [[index, str(half)] for index, half in sorted(targets.items())]
            named["confidence"] = str(asked.confidence)
        else:
            named["epsilon"] = str(asked.epsilon)
        if settled.delta and self._exchange.currency is Currency.ZCDP:
            named["delta"] = str(settled.delta)
        if asked.noise == "laplace":
            # Gaussian noise is what questions had before there was a choice
            named["noise"] = asked.noise
        if bound.waiting:
            # bounds that are searched for must not be taken for stated ones
            named["searched"] = [[sorted(x.facts.auto) for x in a.arguments] for a in question.aggregation.aggregates]
        if question.auto and bound.rows is None:
            # nor must a bound on rows
            named["rows"] = "auto"
        return self._named(["question", KEY_VERSION, named], settled.version)

    def _present_key(self, sql: str, settled: Settled) -> str | None:
        """The key of a question that 0.1.0 was asked on these terms; None if it is another question now, or none."""
        try:
            bound = _Bound.of(sql, self.policy.schema)
            bound = bound.former or bound
            return None if rounded_inwards(bound.question) else self._key(bound, settled)
        except Refused:
            return None

    def _named(self, what: list[object], version: str) -> str:
        """A permanent name for what is asked of this data under this policy.

        The version may be a fingerprint of files, with their exact sizes in it: under a plain hash anybody could check
        guesses of them, so it is keyed with the ledger's secret.
        """
        parts = [*what, self.policy.source.name, version, self._fingerprint]
        text = json.dumps(parts, sort_keys=True, ensure_ascii=True)
        return hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest()


def rounded_inwards(question: BoundQuestion) -> bool:
    """Whether dither 0.1.0 clamped to other bounds than this question states: its answer is to another one."""
    asked = ((aggregate, argument) for aggregate in question.aggregation.aggregates for argument in aggregate.arguments)
    return not all(holds_bounds(argument, aggregate.per_group) for aggregate, argument in asked)


def _error_targets(
    question: BoundQuestion, aggregation: Aggregation, error: Mapping[str, Fraction] | Fraction
) -> dict[int, Fraction]:
    """The half width that each aggregate is to reach; Refused where a name isn't that of a plain aggregate."""
    if not isinstance(error, Mapping):
        return dict.fromkeys(range(len(aggregation.aggregates)), error)
    targets: dict[int, Fraction] = {}
    by_name = {o.name: o.expression for o in question.shape.outputs}
    for name, half in error.items():
        expression = by_name.get(name)
        found = aggregates_of({expression.name}) if isinstance(expression, Column) else []
        if not found:
            raise Refused(f"an error can be asked for plain aggregates only; {name!r} is none",
                          code="error_unknown", hint="Name a column that is COUNT or SUM.")  # fmt: skip
        targets[found[0]] = half
    return targets


def secret_of(ledger: Ledger) -> bytes:
    """A secret that lives as long as the ledger: the random name in its first entry, which analysts never see."""
    return str(next(iter(ledger.entries())).body["ledger"]).encode()


def _shown(number: Fraction) -> str:
    """A number as text; an analyst may type one that no float can hold."""
    return f"{float(number):.6g}" if number < 10**300 else "more than 1e300"


# -------------------------------------------------------------------------- questions charged under keys of version 1


class OldKeys:
    """The keys of version 1 in one ledger, by the keys that the same questions have now.

    Such a key held the ρ that an ε buys, found by a search in floating point: with another mathematical library the
    same question has another one. So it isn't computed again. The note of every charge says what was asked, and on
    which terms; whatever has the same terms, the same policy and the same canonical form is the same question.

    ``key_of`` gives the present key of a text asked on these terms, or None where it can't be asked any more.
    """

    def __init__(self, ledger: Ledger, policy: str, key_of: Callable[[str, Settled], str | None]) -> None:
        self._ledger, self._policy, self._key_of = ledger, policy, key_of
        self._lock = threading.Lock()
        self._by_terms: dict[str, list[tuple[str, str, Settled]]] | None = None
        self._present: dict[str, str | None] = {}

    def find(self, key: str, terms: Settled) -> str | None:
        """The old key of the question that has this key now, if it was charged under one."""
        with self._lock:
            if self._by_terms is None:
                self._by_terms = self._read()
            for sql, old, asked in self._by_terms.get(_bucket(terms.to_json()), ()):
                if old not in self._present:
                    self._present[old] = self._key_of(sql, asked)
                if self._present[old] == key:
                    return old
        return None

    def _read(self) -> dict[str, list[tuple[str, str, Settled]]]:
        """Everything up to the upgrade; a ledger that began in format 2 has no such keys."""
        found: dict[str, list[tuple[str, str, Settled]]] = {}
        for entry in self._ledger.entries():
            if entry.kind is EntryKind.UPGRADED or (entry.kind is EntryKind.OPENED and entry.body.get("format") != 1):
                break
            note = entry.body.get("note")
            if entry.kind is not EntryKind.RESERVE or not isinstance(note, dict) or note.get("policy") != self._policy:
                continue
            sql, form = note.get("sql"), note.get("asked")
            if isinstance(sql, str) and isinstance(form, dict):
                terms = Settled.from_json(form)
                found.setdefault(_bucket(form), []).append((sql, entry.body["key"], terms))
        return found


def _bucket(form: Json) -> str:
    """What must be equal to the letter; the rest is compared by the present key, which knows equal spellings.

    An error may be stated by the name of a column or for all, and δ is no term where pure ε adds up.
    """
    return canonical([form["epsilon"], form["error"] is None, form["version"]])


# ------------------------------------------------------------------------------------ bounds that the owner left open


Place: TypeAlias = tuple[str, str]

# What a search may find, at its extremes; the last one stands in for what it will find.
TRIALS = (
    Interval(-(Fraction(2) ** 65), Fraction(2) ** 65),
    Interval(-(Fraction(2) ** 65), -(Fraction(2) ** 64)),
    Interval(Fraction(2) ** -64, Fraction(2) ** -63),
    Interval(Fraction(0), Fraction(2) ** -63),
    Interval(Fraction(1), Fraction(2)),
    Interval(Fraction(-1), Fraction(1)),
)
# How far bounds are widened where the found ones leave an argument a single value: to zero, then by powers of two.
WIDER = (Fraction(0), *(Fraction(2) ** exponent for exponent in (0, 4, 8, 16, 32, 48, 65)))


def searched(aggregation: Aggregation) -> tuple[Place, ...]:
    """The columns whose bounds must be found before the noise has a size."""
    found = {place for a in aggregation.aggregates for argument in a.arguments for place in argument.facts.auto}
    return tuple(sorted(found))


def bounded(sql: str, question: BoundQuestion, schema: Schema, bounds: Mapping[Place, Interval]) -> BoundQuestion:
    """The question with facts for the arguments that waited for bounds; its relation and groups stay as they are.

    Groups must not change: they were priced as public or discovered before the bounds were known.
    """
    known = bind(sql, with_bounds(schema, bounds))
    places = _places(question.shape, known.shape)
    others = known.aggregation.aggregates
    aggregates = tuple(
        _with_facts(one, others[places[index]] if index in places else _alike(one, others)) if _waits(one) else one
        for index, one in enumerate(question.aggregation.aggregates)
    )
    return replace(question, aggregation=replace(question.aggregation, aggregates=aggregates))


def widened(bounds: Mapping[Place, Interval]) -> Iterator[dict[Place, Interval]]:
    """The bounds that were found, then wider ones around them, and at last the widest that a search can find.

    Found bounds may leave an argument a single value (LEAST(x, 3) above 3), of which there is no correlation. Wider
    bounds are computed from the found ones alone, which are released, so this is post-processing.
    """
    yield dict(bounds)
    for reach in WIDER:
        yield {
            place: Interval(min(found.low, -reach), max(found.high, reach)) if reach else _with_zero(found)
            for place, found in bounds.items()
        }


def _with_zero(found: Interval) -> Interval:
    return Interval(min(found.low, Fraction(0)), max(found.high, Fraction(0)))


def _waits(aggregate: Aggregate) -> bool:
    return any(argument.facts.auto for argument in aggregate.arguments)


def _with_facts(waiting: Aggregate, known: Aggregate) -> Aggregate:
    arguments = tuple(
        replace(given, facts=replace(found.facts, auto=frozenset())) if given.facts.auto else given
        for given, found in zip(waiting.arguments, known.arguments, strict=True)
    )
    return replace(waiting, arguments=arguments)


def _places(waiting: Shape, known: Shape) -> dict[int, int]:
    """Where each aggregate of one bound question is in the other.

    Aggregates are put in the order of a text that has their bounds in it, so that other bounds may be another order.
    What the shapes compute from them doesn't change: walking both at once meets the same aggregate at the same step.
    """
    pairs = zip(_expressions(waiting), _expressions(known), strict=True)
    names = (zip(_leaves(one), _leaves(other), strict=True) for one, other in pairs)
    return {_index(name): _index(found) for part in names for name, found in part if name[0] == "a"}


def _alike(waiting: Aggregate, known: Sequence[Aggregate]) -> Aggregate:
    """For an aggregate of which the shape shows nothing: any that computes the same, whatever its bounds."""
    computed = [argument.expression for argument in waiting.arguments]
    return next(
        one
        for one in known
        if one.function is waiting.function and [argument.expression for argument in one.arguments] == computed
    )


def _expressions(shape: Shape) -> list[Expression]:
    having = [] if shape.having is None else [shape.having]
    return [
        *(output.expression for output in shape.outputs),
        *having,
        *(each.expression for each in shape.order),
    ]


def _leaves(expression: Expression) -> list[str]:
    """The columns that an expression reads, in the order of its text, repeats too."""
    if isinstance(expression, Column):
        return [expression.name]
    return [name for part in getattr(expression, "arguments", ()) for name in _leaves(part)]


def _index(name: str) -> int:
    return int(name[1:].partition(".")[0])


def with_bounds(schema: Schema, bounds: Mapping[Place, Interval]) -> Schema:
    """The schema with bounds where a search stood."""
    tables = dict(schema.tables)
    for (table, column), interval in bounds.items():
        facts = tables[table]
        known = facts.columns[column]
        changed = {**facts.columns, column: replace(known, between=on_step(interval, known), searched=True)}
        tables[table] = replace(facts, columns=changed)
    return Schema(tables, schema.adjacency)


def on_step(interval: Interval, column: ColumnFacts) -> Interval:
    """Bounds moved outward to multiples of the column's step, so that there are values between them."""
    step = column.step or (Fraction(1) if column.kind is Kind.INTEGER else None)
    if step is None:
        return interval
    return Interval(math.floor(interval.low / step) * step, math.ceil(interval.high / step) * step)
