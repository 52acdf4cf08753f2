"""The query audit: is what one question would be charged for all that it gives away?

From the policy alone tables are made up, of its shape and beyond it. Two tests are run on them. *Neighbours*: pairs of
tables that differ in one unit are measured exactly by the engine, and nothing may differ by more than the price
assumed. *Black box*: on the pair that moved furthest, noisy outputs are drawn on both sides and told apart as well as
possible; releases first, many of them, then whole answers of a curator, as an analyst gets them. Where keys are
discovered, releases are also told apart on a pair in which some keys are one unit's alone. The owner's data and ledger
are never opened.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from dither.audit.claims import Claim, telling_delta
from dither.audit.drawing import clock
from dither.audit.lower_bound import Budget, lower_bound, seconds_of
from dither.audit.queries.answers import answering, asking
from dither.audit.queries.neighbour_test import NeighbourTest, Pair, measure_neighbours
from dither.audit.queries.rehearsal import pricing_of, rehearsed
from dither.audit.queries.releases import Releases
from dither.audit.result import LowerBound
from dither.curator import OWNER
from dither.curator.price.pricing import Prepared, Pricing
from dither.curator.price.quote import Quote
from dither.curator.terms import Terms
from dither.errors import InvalidParameter
from dither.mechanisms.base import failure_probability
from dither.numeric import Number, positive_int
from dither.policy.policy import Policy
from dither.privacy import Adjacency
from dither.progress import Watch, part_of, unwatched
from dither.query.kinds import Interval
from dither.query.price.noise import Priced

# Of the time: the neighbour test until the first, then (where keys are discovered) which keys are shown until the
# second, releases until the third, whole answers after that.
MEASURED, SHOWN, RELEASED = 0.25, 0.4, 0.65
# What is left of the time for a step that comes late: in seconds, or as a share of all if that is more.
LEAST, LEAST_SHARE = 0.15, 0.1
# Where bounds are searched for, the neighbour test stands on some that a search may find.
FOUND = ((0, 1024), (-1, 1), (1, 2))
SCORED = "the score of a release says how much likelier its noisy cells are on x than on x_neighbour"
NAMES = {
    Adjacency.ADD_REMOVE: ("the tables", "the tables without one unit"),
    Adjacency.REPLACE: ("the tables", "the tables with one unit replaced"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryAudit:
    """What was found out about one question.

    ``release`` is the bound from noisy cells (None where their noise is known only after a search for bounds),
    ``keys`` the same on tables in which one unit alone holds some of the keys (None where these are public),
    ``answers`` the one from whole answers. All hold at once with ``confidence``; what the neighbour test finds is
    certain.
    """

    sql: str
    quote: Quote
    claim: Claim
    neighbours: NeighbourTest
    release: LowerBound | None
    answers: LowerBound
    confidence: float
    seconds: float
    keys: LowerBound | None = None

    @property
    def broken(self) -> bool:
        """Whether anything contradicts the price."""
        return bool(self.neighbours.broken) or any(bound.broken for bound in self.bounds)

    @property
    def bounds(self) -> tuple[LowerBound, ...]:
        """Of releases, of keys that are one unit's alone, and of answers."""
        return tuple(bound for _, bound in self.titled)

    @property
    def titled(self) -> tuple[tuple[str, LowerBound], ...]:
        """The bounds with their titles."""
        found = (("releases", self.release), ("keys", self.keys), ("answers", self.answers))
        return tuple((title, bound) for title, bound in found if bound is not None)

    @property
    def names(self) -> tuple[str, str]:
        """What the two made-up databases are."""
        return NAMES[self.quote.priced.adjacency]

    @property
    def verdict(self) -> str:
        """Whether the price held, and the evidence, as a sentence."""
        if self.neighbours.broken:
            return "BROKEN. One unit moves more than was paid for: the pairs of tables above prove it"
        if self.broken:
            return (
                f"BROKEN. Outputs tell neighbours apart better than the price allows (confidence {self.confidence:g})"
            )
        return (
            "held. Nothing contradicts the price; one unit uses up to "
            f"{100 * self.neighbours.furthest:.0f}% of what it was charged for"
        )

    @property
    def parts(self) -> tuple[tuple[str, str], ...]:
        """All of it in words: titles and texts."""
        delta = f", δ = {self.quote.delta:.2g}" if self.quote.delta else ""
        return (
            ("question", " ".join(self.sql.split())),
            ("protects", self.quote.unit),
            ("claim", f"ε = {self.quote.epsilon:.4g}{delta} ({self.quote.booked})"),
            ("neighbours", str(self.neighbours)),
            ("compared", f"x is {self.names[0]}; x_neighbour is {self.names[1]}\n{SCORED}"),
            *((title, self._in_words(bound)) for title, bound in self.titled),
            ("verdict", self.verdict),
        )

    def _in_words(self, bound: LowerBound) -> str:
        there = self.claim.epsilon(bound.delta)
        return (
            f"{bound}\nAt δ = {bound.delta:g} the claim is ε = {there:.4g}; this bound shows ε ≥ {bound.epsilon:.4f}."
        )

    def __str__(self) -> str:
        return "\n".join(f"{title:<12}" + text.replace("\n", "\n" + 12 * " ") for title, text in self.parts)


def audit_query(
    policy: Policy | str | Path,
    sql: str,
    *,
    epsilon: Number | None = None,
    analyst: str = OWNER,
    pairs: int = 40,
    confidence: float = 0.99,
    budget: Budget = "60s",
    seed: int = 0,
    workers: int | None = None,
    watch: Watch = unwatched,
) -> QueryAudit:
    """Audit one question on made-up tables; opens neither the owner's data nor the ledger, and charges nothing.

    Args:
        policy: The policy, or its file; only what it states as public is used.
        sql: The question.
        epsilon: How much it would spend; else the policy's default, or the most that a question may cost.
        analyst: Who would ask.
        pairs: How many pairs of made-up tables the neighbour test measures, if the time allows.
        confidence: The probability with which all bounds hold at once; what the neighbour test finds is certain.
        budget: Wall-clock time for everything.
        seed: Makes the tables; noise is always fresh.
        workers: How many processes count at once, as for ``lower_bound``.
        watch: Called with the share that is done and a few words; it may raise to stop.

    Raises:
        Refused: Where the question would be refused.
    """
    clock = _Clock(seconds_of(budget))
    positive_int(pairs, "pairs")
    failure_probability(confidence)
    rules = policy if isinstance(policy, Policy) else Policy.load(policy)
    with tempfile.TemporaryDirectory(prefix="dither-") as place:
        folder = Path(place)
        with pricing_of(rehearsed(rules, {}, folder / "price")) as (pricing, quoting):
            who = quoting.asker(analyst)
            terms = Terms.of(epsilon=epsilon)
            if epsilon is None and rules.budget.default_epsilon is None:
                terms = Terms(epsilon=who.most_epsilon)
            prepared = pricing.prepare(sql, terms, who)
            if prepared.question.explain:
                raise InvalidParameter("audit the question itself: leave EXPLAIN PRIVACY out")
            if prepared.question.listing:
                raise InvalidParameter("this question shows public values alone: there is nothing to audit")
            if prepared.rows_budget is not None:
                raise InvalidParameter(
                    "this question chooses its bound on rows itself: audit it with a stated one, OPTIONS "
                    "(max_rows_contributed = 20), and audit the profile, PROFILE and the table"
                )
            quote = quoting.quote(prepared)
            prices = _prices(pricing, prepared)
        test, pair, alone = measure_neighbours(
            rules.schema,
            prepared,
            prices,
            folder,
            pairs=pairs,
            seconds=clock.until(MEASURED),
            seed=seed,
            watch=part_of(watch, 0.0, MEASURED),
        )
        if prepared.search_budget is not None:
            alone = None
        box = _BlackBox(
            prepared=prepared,
            pair=pair,
            claim=Claim(prepared.loss),
            # two or three bounds are stated, and each may be wrong so much less often
            confidence=1 - (1 - confidence) / (2 if alone is None else 3),
            clock=clock,
            workers=workers,
        )
        keys = None if alone is None else replace(box, pair=alone).releases(part_of(watch, MEASURED, SHOWN), SHOWN)
        release = box.releases(part_of(watch, SHOWN, RELEASED), RELEASED) if prepared.search_budget is None else None
        answers = box.answers(rules, folder, watch)
    watch(1.0, "done")
    return QueryAudit(
        sql=sql,
        quote=quote,
        claim=box.claim,
        neighbours=test,
        release=release,
        answers=answers,
        confidence=confidence,
        seconds=clock.passed,
        keys=keys,
    )


class _Clock:
    """How much of the time is left."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._started = seconds, clock.now()

    @property
    def passed(self) -> float:
        return clock.now() - self._started

    def until(self, share: float) -> float:
        """Seconds until this share of the time has passed."""
        return max(LEAST, LEAST_SHARE * self._seconds, share * self._seconds - self.passed)


@dataclass(frozen=True, slots=True, kw_only=True)
class _BlackBox:
    """Noisy outputs on the pair of databases that moved furthest, told apart as well as possible."""

    prepared: Prepared
    pair: Pair
    claim: Claim
    confidence: float
    clock: _Clock
    workers: int | None

    @property
    def names(self) -> tuple[str, str]:
        return NAMES[self.pair.priced.adjacency]

    def releases(self, watch: Watch, share: float) -> LowerBound:
        """Many releases of exact cells that were measured once, until this share of the time has passed."""
        releases = Releases.of(self.pair.priced, *self.pair.measured, self.names)
        found = lower_bound(
            releases.mechanism,
            *releases.sides,
            claim=self.claim,
            delta=telling_delta(self.claim.loss),
            confidence=self.confidence,
            budget=self.clock.until(share),
            workers=self.workers,
            watch=watch,
        )
        return releases.in_words(found)

    def answers(self, rules: Policy, folder: Path, watch: Watch) -> LowerBound:
        """Fewer answers, each from a curator that has never answered before."""
        first, second = (
            rehearsed(rules, tables, folder / name)
            for tables, name in zip(self.pair.tables, ("x", "neighbour"), strict=True)
        )
        with asking((first, second), self.names, self.prepared) as sides:
            return lower_bound(
                answering(),
                *sides,
                claim=self.claim,
                delta=telling_delta(self.claim.loss),
                confidence=self.confidence,
                budget=self.clock.until(1.0),
                workers=1,
                watch=part_of(watch, RELEASED, 1.0),
            )


def _prices(pricing: Pricing, prepared: Prepared) -> Sequence[Priced]:
    """The price, or where bounds are searched for, prices on bounds that a search may find."""
    if prepared.search_budget is None:
        return (prepared.priced,)
    bounds = [Interval(Fraction(low), Fraction(high)) for low, high in FOUND]
    return [pricing.with_bounds(prepared, dict.fromkeys(prepared.searched, each)) for each in bounds]
