"""Everything that dither claims, audited in one go: mechanisms, questions, and the zoo, which shows that audits catch.

One false alarm anywhere in the table has a chance of at most 1 − confidence: the failure is divided among the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial

from dither.audit.claims import Claim, telling_delta
from dither.audit.lower_bound import Budget, seconds_of
from dither.audit.queries.audit import QueryAudit, audit_query
from dither.audit.queries.neighbour_test import NeighbourTest
from dither.audit.result import LowerBound
from dither.audit.search import search
from dither.audit.suite.mechanisms import Subject, subjects
from dither.audit.suite.questions import QUESTIONS, Asked, shop
from dither.audit.zoo import Specimen, audit_specimen, specimens
from dither.errors import InvalidParameter, near_names
from dither.mechanisms.base import failure_probability
from dither.progress import Watch, part_of, unwatched

FEW_PAIRS = 12
# How often the stated time (on one core that has nothing else to do) a broken specimen may take to be caught.
CAUGHT_WITHIN = 4.0


class Part(Enum):
    """What a row of the table is about, and what is expected of it."""

    MECHANISMS = "mechanisms of dither"
    """Every mechanism that is exported: its loss must hold."""
    QUESTIONS = "questions in SQL"
    """Every aggregate of SQL: what it is charged must hold."""
    RIGHT = "zoo: right ones, to be left alone"
    BROKEN = "zoo: broken ones, to be caught"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What an audit found about one thing, beside what was expected.

    ``neighbours`` is there for questions alone. ``about`` says what is asked, or what is wrong with a specimen.
    """

    name: str
    part: Part
    about: str
    claim: Claim
    bound: LowerBound
    neighbours: NeighbourTest | None = None
    broken: bool
    seconds: float

    @property
    def expected(self) -> bool:
        """Whether it came out as it should: broken ones caught, everything else held."""
        return self.broken == (self.part is Part.BROKEN)

    @property
    def claimed(self) -> float:
        """The ε that is claimed at the δ of the bound."""
        return self.claim.epsilon(self.bound.delta)

    @property
    def share(self) -> float:
        """The lower bound as a share of the claim: 1 says that the claim is tight, more that it is false.

        A claim can be found false at less than 1: it is a whole curve, and may be broken at another point of it.
        """
        return self.bound.epsilon / self.claimed if self.claimed > 0 else float(self.bound.epsilon > 0)

    @property
    def verdict(self) -> str:
        """Whether it was caught, held or is broken; in capitals where that wasn't expected."""
        if self.part is Part.BROKEN:
            return "caught" if self.broken else "NOT CAUGHT"
        return "BROKEN" if self.broken else "held"


def audit_everything(
    *,
    budget_each: Budget = "2s",
    confidence: float = 0.99,
    parts: Collection[Part] = tuple(Part),
    workers: int | None = None,
    watch: Watch = unwatched,
    found: Callable[[Row], None] | None = None,
) -> tuple[Row, ...]:
    """Audit every mechanism, every aggregate and the zoo, each for ``budget_each``.

    Guarantee: the chance that any row is called broken though its claim holds is at most 1 − ``confidence``.

    Args:
        budget_each: Wall-clock time for each.
        confidence: That of the whole table.
        parts: Which parts to audit; all by default.
        workers: How many processes count at once, as for ``lower_bound``.
        watch: Called with the share that is done and a few words; it may raise to stop.
        found: Called with each row as it comes.
    """
    seconds = seconds_of(budget_each)
    failure_probability(confidence)
    todo = [work for part in Part if part in parts for work in _works(part)]
    alone = 1 - (1 - confidence) / max(1, len(todo))
    rows = []
    for place, work in enumerate(todo):
        step = part_of(watch, place / len(todo), (place + 1) / len(todo))
        row = work(seconds, alone, workers, step)
        rows.append(row)
        if found is not None:
            found(row)
    watch(1.0, "done")
    return tuple(rows)


_Work = Callable[[float, float, int | None, Watch], Row]


def _works(part: Part) -> Iterator[_Work]:
    """What is to be done for a part, row by row; nothing is audited yet."""
    match part:
        case Part.MECHANISMS:
            yield from (partial(_mechanism, each) for each in subjects())
        case Part.QUESTIONS:
            yield from (partial(_question, each) for each in QUESTIONS)
        case Part.RIGHT | Part.BROKEN:
            yield from (partial(_specimen, each) for each in specimens() if each.broken == (part is Part.BROKEN))


def _named(watch: Watch, name: str) -> Watch:
    return lambda share, doing: watch(share, f"{name}: {doing}")


def _mechanism(subject: Subject, seconds: float, confidence: float, workers: int | None, watch: Watch) -> Row:
    watch = _named(watch, subject.name)
    bound = audit_subject(subject, budget=seconds, confidence=confidence, workers=workers, watch=watch)
    return _row(subject.name, Part.MECHANISMS, subject.about, Claim(subject.claim), bound)


def audit_subject(
    subject: Subject,
    *,
    budget: Budget = "60s",
    confidence: float = 0.99,
    workers: int | None = None,
    watch: Watch = unwatched,
) -> LowerBound:
    """Audit a mechanism of dither against its own claim, on inputs that are hard on it."""
    return search(
        subject.mechanism,
        subject.pairs,
        claim=subject.claim,
        delta=telling_delta(subject.claim),
        confidence=confidence,
        budget=budget,
        workers=workers,
        watch=watch,
    )


def _question(asked: Asked, seconds: float, confidence: float, workers: int | None, watch: Watch) -> Row:
    audit = audit_query(
        shop(asked.currency),
        asked.sql,
        epsilon=asked.epsilon,
        pairs=FEW_PAIRS,
        confidence=confidence,
        budget=seconds,
        workers=workers,
        watch=_named(watch, asked.name),
    )
    bound = max(audit.bounds, key=lambda each: (each.broken, each.epsilon))
    row = _row(asked.name, Part.QUESTIONS, asked.sql, audit.claim, bound)
    return replace(row, neighbours=audit.neighbours, broken=audit.broken, seconds=audit.seconds)


def _specimen(specimen: Specimen, seconds: float, confidence: float, workers: int | None, watch: Watch) -> Row:
    # a broken one may take the time that it needs: it stops as soon as it is caught
    allowed = max(seconds, CAUGHT_WITHIN * specimen.seconds) if specimen.broken else seconds
    watch = _named(watch, specimen.name)
    bound = audit_specimen(specimen, budget=allowed, confidence=confidence, workers=workers, watch=watch)
    part = Part.BROKEN if specimen.broken else Part.RIGHT
    about = specimen.mistake or specimen.remark or f"the right twin; {specimen.source}"
    return _row(specimen.name, part, about, Claim(specimen.claim), bound)


def audit_named_specimen(
    name: str, *, budget: Budget | None = None, confidence: float = 0.99, watch: Watch = unwatched
) -> Row:
    """One specimen of the zoo by its name, for so long or for what its entry states."""
    for specimen in specimens():
        if specimen.name == name:
            seconds = CAUGHT_WITHIN * specimen.seconds if budget is None else seconds_of(budget)
            return _specimen(specimen, seconds, confidence, None, watch)
    close = ", ".join(near_names(name, [specimen.name for specimen in specimens()]))
    hint = f"did you mean {close}?" if close else "dither audit zoo lists all"
    raise InvalidParameter(f"{name!r} isn't in the zoo; {hint}")


def rows_of(audit: QueryAudit) -> tuple[Row, ...]:
    """What was found about one question, as rows of a report: releases, keys that are one unit's, whole answers."""
    return tuple(
        Row(
            name=title,
            part=Part.QUESTIONS,
            about=" ".join(audit.sql.split()),
            claim=audit.claim,
            bound=bound,
            neighbours=audit.neighbours if bound is audit.bounds[0] else None,
            broken=bound.broken or (bool(audit.neighbours.broken) and bound is audit.bounds[0]),
            seconds=bound.seconds,
        )
        for title, bound in audit.titled
    )


def _row(name: str, part: Part, about: str, claim: Claim, bound: LowerBound) -> Row:
    return Row(name=name, part=part, about=about, claim=claim, bound=bound, broken=bound.broken, seconds=bound.seconds)
