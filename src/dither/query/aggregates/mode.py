"""MODE: the most frequent of some public values, chosen by how often each occurs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

import numpy as np

from dither.errors import Refused
from dither.mechanisms import BoundedRangeLoss, Exponential, PermuteAndFlip, Quantile
from dither.mechanisms.base import Source
from dither.privacy import PrivacyLoss, PureLoss
from dither.query.aggregates.base import (
    WEIGHT,
    AggregateChoice,
    Building,
    Chooser,
    ChosenValue,
    Definition,
    Ints,
    Rarer,
    Recipe,
    Written,
    the_one,
)
from dither.query.kinds import Call, Column, Expression, Kind, Literal, Value, walk
from dither.query.measure.clamped_grids import base_step
from dither.query.plan.plan import Aggregate, Argument, Function, Gridded
from dither.query.refusals import refused, spend

MOST_CANDIDATES = 10_000
# what each takes, in steps of effort
STEPS_OF_CANDIDATE = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeChoice(AggregateChoice):
    """The most frequent of ``candidates`` public values, counted by place in ``bins``."""

    bins: int
    candidates: int
    counts: ClassVar[str] = "rows by value"
    drawn: ClassVar[type[np.generic]] = np.int64

    def alone(self, rows: int) -> Fraction:
        """A row adds 1 to the count of its value; counts are monotone, so one that comes or goes moves them one way."""
        return Fraction(rows)

    def chooser(self, scale: Fraction, *, pure: bool) -> Chooser:
        """Permute-and-flip; in zCDP the exponential mechanism, whose bounded range is cheaper (Cesar & Rogers 2021)."""
        return PermuteAndFlip(scale, monotone=True) if pure else Exponential(scale, monotone=True)

    def loss(self, ratio: Fraction, *, pure: bool) -> PrivacyLoss:
        """That of the mechanism: permute-and-flip has no bounded range."""
        return PureLoss(ratio) if pure else BoundedRangeLoss(ratio)

    def release(self, chooser: Chooser, bins: Ints, counts: Ints, source: Source) -> int:
        """The place of a value."""
        assert not isinstance(chooser, Quantile)
        scores = np.zeros(self.candidates, dtype=np.int64)
        np.add.at(scores, np.clip(bins, 0, self.candidates - 1), counts)
        return chooser.release(scores, source=source)

    def error(self, chooser: Chooser, confidence: Fraction) -> Rarer:
        """In rows."""
        assert not isinstance(chooser, Quantile)
        return Rarer(chooser.error(confidence, candidates=self.candidates))


def _bind(call: Written) -> Aggregate:
    if call.ordered:
        call.descending()
    else:
        call.expect(1)
    value = call.over(call.subject())
    if any(isinstance(part, Column) and part.name in call.units for part in walk(value.expression)):
        raise refused("unit_shown", "MODE of the privacy unit isn't answered")
    keys = tuple(key for key in value.facts.keys or () if key is not None)
    if not keys:
        hint = "GROUP BY it with COUNT(*), or have the owner declare in = […] for its column"
        raise refused("aggregate", "MODE chooses among public values, and these aren't", hint)
    argument = Argument(expression=value.expression, facts=replace(value.facts, keys=keys))
    return Aggregate(function=Function.MODE, arguments=(argument,))


def _lower(building: Building, aggregate: Aggregate) -> Recipe:
    """Rows are counted by the place of their value among the public ones; other values, and NULL, are left out."""
    argument = the_one(aggregate)
    values = _candidates(argument)
    if len(values) > MOST_CANDIDATES:
        raise Refused(
            f"MODE chooses among at most {MOST_CANDIDATES:,} public values",
            code="mode_needs_keys",
            hint="Take the mode of a coarser expression.",
        )
    spend(STEPS_OF_CANDIDATE * len(values))
    last = Gridded(
        expression=_place_expression(argument.expression, values), step=Fraction(1), low=0, high=len(values) - 1
    )
    choice = ModeChoice(bins=building.counted(last), candidates=len(values))
    return ChosenValue(choice=building.choice(choice), values=values, kind=argument.expression.kind)


def _candidates(argument: Argument) -> tuple[Value, ...]:
    facts = argument.facts
    if facts.keys is not None:
        values = tuple(value for value in facts.keys if value is not None)
        if values:
            return values
    elif argument.expression.kind is Kind.INTEGER and facts.bounds is not None:
        step = base_step(argument) or Fraction(1)
        low, high = math.ceil(facts.bounds.low / step), math.floor(facts.bounds.high / step)
        if step.denominator == 1 and low <= high < low + MOST_CANDIDATES:
            return tuple(int(place * step) for place in range(low, high + 1))
    raise Refused(
        "MODE needs to know which values there can be",
        code="mode_needs_keys",
        hint="Have the owner declare in = [...] for the column.",
    )


def _place_expression(expression: Expression, values: tuple[Value, ...]) -> Expression:
    """CASE x WHEN value₀ THEN 0 WHEN value₁ THEN 1 … END."""
    arguments: list[Expression] = []
    for place, value in enumerate(values):
        equal = Call("equal", (expression, Literal(value, expression.kind)), Kind.BOOLEAN)
        arguments += [equal, Literal(place, Kind.INTEGER)]
    return Call("case", (*arguments, Literal(None, Kind.INTEGER)), Kind.INTEGER)


DEFINITIONS = (
    Definition(
        name="mode",
        spellings=("mode",),
        bind=_bind,
        functions=(Function.MODE,),
        lower=_lower,
        kind=lambda aggregate: aggregate.arguments[0].expression.kind,
        arguments=("public values",),
        examples=("MODE(city)",),
        named=(WEIGHT,),
        within=True,
    ),
)
