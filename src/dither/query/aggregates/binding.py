"""How the text of a question becomes an aggregate of its plan: what every aggregate checks, and what describes it.

Bounds come from the policy, from interval arithmetic, or from the question itself; the question's may only be narrower.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NoReturn, TypeAlias

from dither.errors import InvalidParameter
from dither.query.aggregates.base import Building, Recipe
from dither.query.expressions.expressions import Column, columns
from dither.query.expressions.functions import Typed, apply, literal
from dither.query.kinds import NOTHING, Facts, Interval, Kind
from dither.query.measure.grids import LARGEST_INTEGER
from dither.query.plan.plan import Aggregate, Argument, Function
from dither.query.refusals import refused

Pair: TypeAlias = tuple[Fraction, Fraction]

PER_ROW, PER_GROUP, WEIGHT = "contribution_bounds_per_row", "contribution_bounds_per_group", "weight"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written(ABC):
    """A call of an aggregate as it stands in a text; its parts are bound when they are asked for, in that order.

    ``named`` are the named arguments given, ``size`` is the number of the others. ``filtered`` says that FILTER goes
    with it, ``ordered`` that WITHIN GROUP does. ``units`` are the plan's names of the unit's id, and ``rows`` is how
    many rows of a unit count in a group.
    """

    spelling: str
    size: int
    star: bool
    distinct: bool
    filtered: bool
    ordered: bool
    named: tuple[str, ...]
    units: frozenset[str]
    rows: int

    @abstractmethod
    def value(self, place: int) -> Typed:
        """An argument."""

    @abstractmethod
    def subject(self) -> Typed:
        """What WITHIN GROUP orders by; without it the first argument."""

    @abstractmethod
    def descending(self) -> bool:
        """Whether WITHIN GROUP orders downwards."""

    @abstractmethod
    def predicate(self) -> Typed:
        """The first argument, as a condition."""

    @abstractmethod
    def over(self, value: Typed) -> Typed:
        """The value where the condition of FILTER holds, else NULL, which every aggregate leaves out."""

    @abstractmethod
    def number(self, place: int) -> Fraction | None:
        """An argument that is a number of the text, exactly as its decimal says; None if it isn't one."""

    @abstractmethod
    def pair(self, name: str) -> Pair | None:
        """A named argument of two numbers."""

    @abstractmethod
    def origin(self, name: str) -> tuple[str, str] | None:
        """The table and column that a name of the plan is."""

    def expect(self, count: int) -> None:
        """Refuse any other number of arguments."""
        if self.size != count or self.star:
            raise refused("types", f"{self.spelling.upper()} needs {count} argument{'s' if count > 1 else ''}")

    def expect_named(self, *known: str) -> None:
        """Refuse all other named arguments."""
        for name in self.named:
            if name not in known:
                raise refused("options", f"{name} has no meaning for {self.spelling.upper()}")

    def is_unit(self, value: Typed) -> bool:
        """Whether it is the unit's id itself."""
        return isinstance(value.expression, Column) and value.expression.name in self.units


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """An aggregate: how it is written, bound, lowered, and what it says of itself.

    ``name`` is what the ``spellings`` stand for; ``functions`` are those of the plan that it alone, or it among others,
    is bound to. ``arguments`` are the kinds that it takes; ``examples``, over the orders of a shop, are what the audit
    asks. ``named`` are its named arguments; ``star``, ``distinct`` and ``within`` say what may stand with it;
    ``several`` that a list of constants asks for one column each.
    """

    name: str
    spellings: tuple[str, ...]
    bind: Callable[[Written], Aggregate]
    functions: tuple[Function, ...] = ()
    lower: Callable[[Building, Aggregate], Recipe]
    kind: Callable[[Aggregate], Kind] = lambda _: Kind.DOUBLE
    arguments: tuple[str, ...] = ("number",)
    examples: tuple[str, ...] = ()
    named: tuple[str, ...] = (PER_ROW, WEIGHT)
    star: bool = False
    distinct: bool = False
    within: bool = False
    several: bool = False

    @property
    def takes_bounds(self) -> bool:
        """Whether it clamps its arguments, whose bounds must be known or stated."""
        return PER_ROW in self.named


def the_one(aggregate: Aggregate) -> Argument:
    """The argument of an aggregate that takes one."""
    if len(aggregate.arguments) != 1:
        raise InvalidParameter(f"{aggregate.function.value} takes one argument")
    return aggregate.arguments[0]


# ---------------------------------------------------------------------------------------------- values


def one() -> Typed:
    """The constant 1: what a row counts."""
    return literal(1, Kind.INTEGER)


def where_true(condition: Typed) -> Typed:
    """1 where a condition is true, else NULL."""
    return apply("case", (condition, one(), literal(None, Kind.INTEGER)))


def ones_and_zeros(value: Typed) -> Typed:
    """A boolean as 1 and 0, NULL staying NULL; another value as it is."""
    if value.kind is not Kind.BOOLEAN:
        return value
    zero, nothing = literal(0, Kind.INTEGER), literal(None, Kind.INTEGER)
    return apply("case", (value, one(), apply("not", (value,)), zero, nothing))


def counted(value: Typed) -> Argument:
    """An argument of a count: only whether it is NULL, or equal to another, matters."""
    return Argument(expression=value.expression, facts=NOTHING)


def bounded_numbers(call: Written, count: int) -> tuple[Argument, ...]:
    """The arguments of a mean or a moment: of these both spellings bound each value, and so the mean of any unit."""
    call.expect(count)
    values = [ones_and_zeros(call.over(call.value(place))) for place in range(count)]
    per_row, per_group = call.pair(PER_ROW), call.pair(PER_GROUP)
    if per_row is not None and per_group is not None:
        raise refused("options", "state either bounds per row or per group")
    return tuple(bounded(call, value, per_row or per_group) for value in values)


def bounded(call: Written, value: Typed, per_row: Pair | None, per_group: Pair | None = None) -> Argument:
    """A number with the bounds that its values are clamped to."""
    _expect_number(call, value)
    facts = value.facts
    if per_row is not None:
        low, high = per_row
        declared = facts.bounds
        if declared is not None and not facts.auto and (low < declared.low or high > declared.high):
            reason = f"the policy bounds these values by {shown(declared.low)} and {shown(declared.high)}"
            raise refused("bounds_wider", reason, "State narrower bounds, or none")
        if value.kind is Kind.INTEGER and (low >= LARGEST_INTEGER or high < -LARGEST_INTEGER):
            hint = "State bounds between -9223372036854775808 and 9223372036854775807, or multiply it by 1.0"
            raise refused("types", "no integer lies within these bounds", hint)
        facts = Facts(bounds=Interval(low, high), step=facts.step)
    elif facts.bounds is None and not facts.auto:
        if per_group is None:
            _bounds_missing(call, value)
        low, high = per_group
        # where nothing is known of a row, it is clamped to what a group may hold
        facts = Facts(bounds=Interval(min(low, Fraction(0)), max(high, Fraction(0))), step=facts.step)
    # keys say nothing about a number that is added up, and would only tell two spellings apart
    return Argument(expression=value.expression, facts=replace(facts, keys=None))


def _expect_number(call: Written, value: Typed) -> None:
    name = call.spelling.upper()
    if call.is_unit(value):
        hint = "The unit can be counted: COUNT(DISTINCT …)"
        raise refused("unit_shown", f"{name} of the privacy unit isn't answered", hint)
    if value.kind.temporal:
        hint = "Turn it into a number first, for example date_diff('day', DATE '2020-01-01', d)"
        raise refused("types", f"{name} of a {value.kind.value} isn't supported", hint)
    if not value.kind.number:
        raise refused("types", f"{name} needs numbers and has {value.kind.value}")


def _bounds_missing(call: Written, value: Typed) -> NoReturn:
    origins = [found for name in sorted(columns(value.expression)) if (found := call.origin(name)) is not None]
    named = "Add contribution_bounds_per_row => (low, high), or have the owner declare between = [low, high]"
    if len(origins) == 1 and isinstance(value.expression, Column):
        table, column = origins[0]
        hint = f"{named} for the column {column} of {table}"
    else:
        hint = f"{named} for its columns"
    raise refused("bounds_missing", f"{call.spelling.upper()} needs bounds for its argument", hint)


def shown(number: Fraction) -> str:
    """A bound, in a refusal."""
    return str(number.numerator) if number.denominator == 1 else f"{float(number):g}"
