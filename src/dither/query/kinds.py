"""Expressions over the columns of one row: their kinds, what is publicly known of their values, their trees.

An analyst's text is bound to these; engines generate their own SQL from them. A name in an expression is one that the
plan gave out (``c0``, ``c1``, …), never the analyst's.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from typing import TypeAlias

from dither.brief import brief

Value: TypeAlias = bool | int | float | Fraction | str | dt.date | dt.datetime | None


# Texts that expressions compute are cut to so many characters: without a bound, a nested replace or || would need more
# memory or time than there is, but only where somebody's row is in the data.
LONGEST_TEXT = 4096


class Kind(Enum):
    """The type of a column or expression, the same on every engine."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    DOUBLE = "double"
    TEXT = "text"
    DATE = "date"
    TIMESTAMP = "timestamp"

    @property
    def number(self) -> bool:
        """Whether values can be added up."""
        return self in (Kind.INTEGER, Kind.DOUBLE)

    @property
    def temporal(self) -> bool:
        """Whether values are points in time."""
        return self in (Kind.DATE, Kind.TIMESTAMP)


class Auto(Enum):
    """Bounds that the owner leaves to a private search, which is charged."""

    AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Interval:
    """Public bounds of a number; where a value lies outside, the plan clamps it."""

    low: Fraction
    high: Fraction

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"an interval needs low ≤ high; got {self.low}, {self.high}")

    @property
    def magnitude(self) -> Fraction:
        """The largest absolute value."""
        return max(abs(self.low), abs(self.high))

    @property
    def width(self) -> Fraction:
        """The distance of the ends."""
        return self.high - self.low


class Later:
    """Public values that are computed when somebody looks at them, from those of ``needs``, which are looked at first.

    Most expressions are never grouped by, and thousands of values each take a while.
    """

    __slots__ = ("make", "needs")

    def __init__(self, needs: Sequence[Facts], make: Callable[[], tuple[Value, ...] | None]) -> None:
        self.needs, self.make = needs, make


class _Keys:
    """The field ``keys`` of facts: given as they are, or later."""

    def __get__(self, facts: Facts | None, _owner: type | None = None) -> tuple[Value, ...] | None:
        if facts is None:
            return None
        held = facts.__dict__
        if isinstance(held["_keys"], Later):
            _compute(facts)
        found: tuple[Value, ...] | None = held["_keys"]
        return found

    def __set__(self, facts: Facts, value: tuple[Value, ...] | Later | None) -> None:
        facts.__dict__["_keys"] = value


def _compute(facts: Facts) -> None:
    # not by calls in calls: expressions may be as deep as Python lets them
    waiting = [facts]
    while waiting:
        later = waiting[-1].__dict__["_keys"]
        if isinstance(later, Later):
            before = [need for need in later.needs if isinstance(need.__dict__["_keys"], Later)]
            if before:
                waiting += before
                continue
            waiting[-1].__dict__["_keys"] = later.make()
        waiting.pop()


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What the owner declares about the values of an expression, or what follows from that.

    Nothing here is believed when an answer is computed: values are clamped to bounds, and other keys left out.
    ``bounds`` is None where nothing is known. ``step`` says that values are whole multiples of it.
    ``keys`` lists the public values in ascending order; None means that they are not public.
    ``auto`` names the columns ((table, column) pairs) whose bounds must be searched before ``bounds`` can be known.
    ``for_keys`` is what is known of group keys where that is more: from a calendar, or from WHERE. It is apart from the
    rest, because the normal forms of aggregates list the rest. ``dated`` says how dates become the values.
    """

    bounds: Interval | None = None
    step: Fraction | None = None
    keys: tuple[Value, ...] | None = _Keys()  # type: ignore[assignment]
    auto: frozenset[tuple[str, str]] = frozenset()
    for_keys: Facts | None = field(default=None, compare=False, repr=False)
    dated: Dated | None = field(default=None, compare=False, repr=False)

    __repr__ = brief

    def __getstate__(self) -> dict[str, object]:
        """Everything, with what was to be computed later."""
        return {**self.__dict__, "_keys": self.keys}


NOTHING = Facts()


# ---------------------------------------------------------------------------------------------- expressions


def ascending(values: Iterable[Value]) -> tuple[Value, ...]:
    """Each value once, smallest first, NULL last."""
    distinct = set(values)
    present = sorted(value for value in distinct if value is not None)
    return (*present, None) if None in distinct else tuple(present)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the relation that the expression is evaluated on."""

    name: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant; None is NULL of the stated kind."""

    value: Value
    kind: Kind


@dataclass(frozen=True, slots=True)
class Call:
    """A function from the registry (functions.py) applied to arguments.

    Every function is deterministic, depends on its arguments alone and can't raise: where the engine would, the
    result is NULL.
    """

    function: str
    arguments: tuple[Expression, ...]
    kind: Kind


Expression: TypeAlias = Column | Literal | Call


@dataclass(frozen=True, slots=True, eq=False)
class Calendar:
    """The values of one column of dates or timestamps, both ends included; each place that reads it has its own."""

    kind: Kind
    first: dt.date
    last: dt.date


@dataclass(frozen=True, slots=True, kw_only=True)
class Dated:
    """An expression over one column of dates, in rows where all ``conditions`` on the same column are true.

    The column has any name, as there is no other. ``nullable`` says that values may be NULL besides, as after a LEFT
    JOIN. ``size`` is how many parts expression and conditions have.
    """

    calendar: Calendar
    expression: Expression
    conditions: tuple[Expression, ...] = ()
    nullable: bool = False
    size: int = 1


def walk(expression: Expression) -> Iterator[Expression]:
    """The expression and everything inside it."""
    yield expression
    if isinstance(expression, Call):
        for argument in expression.arguments:
            yield from walk(argument)


def columns(expression: Expression) -> frozenset[str]:
    """The names of the columns that it reads."""
    return frozenset(node.name for node in walk(expression) if isinstance(node, Column))


def substitute(expression: Expression, replacements: dict[str, Expression]) -> Expression:
    """The expression with columns replaced by other expressions."""
    if isinstance(expression, Column):
        return replacements.get(expression.name, expression)
    if isinstance(expression, Call):
        arguments = tuple(substitute(argument, replacements) for argument in expression.arguments)
        return Call(expression.function, arguments, expression.kind)
    return expression


def canonical(expression: Expression, inner: Callable[[Expression], str] | None = None) -> str:
    """A text that two expressions share exactly if they are the same; part of the ledger's key, so it never changes.

    ``inner`` is what gives the texts of arguments, for those who remember them.
    """
    if isinstance(expression, Column):
        return expression.name
    if isinstance(expression, Literal):
        return f"{expression.kind.value}:{_literal(expression.value)}"
    arguments = " ".join(map(inner or canonical, expression.arguments))
    return f"({expression.function} {arguments})" if arguments else f"({expression.function})"


def _literal(value: Value) -> str:
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, dt.datetime | dt.date):
        return value.isoformat()
    if isinstance(value, int | Fraction):
        return str(value)
    # lengths in front, so that no text can imitate another expression
    return f"{len(value)}'{value}'"


def constant(expression: Expression) -> Value:
    """The value of a literal, or None."""
    return expression.value if isinstance(expression, Literal) else None


def is_null(expression: Expression) -> bool:
    """Whether it is the literal NULL."""
    return isinstance(expression, Literal) and expression.value is None


def number(value: Value) -> Fraction | None:
    """A finite number, exactly; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | Fraction):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return Fraction(value)


def point(expression: Expression) -> Interval | None:
    """The interval of a numeric literal."""
    value = number(constant(expression))
    return None if value is None else Interval(value, value)


def literal_step(value: Value) -> Fraction | None:
    """The step of a constant: its own size, by the shortest decimal that names it."""
    if number(value) is None:
        return None
    return abs(Fraction(repr(value)) if isinstance(value, float) else Fraction(value))  # type: ignore[arg-type]
