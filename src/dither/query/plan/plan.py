"""The plan of a question: relations in which every row belongs to one unit, one bounded aggregation, what follows it.

A relation is private or public. Each row of a private one belongs to exactly one unit: at user level engines carry the
unit's id along in a column that no expression can name; at row level the row itself is the unit. Every node below
keeps that property, so sensitivity never depends on join fan-out: contributions are bounded after the last of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from typing import Literal as OneOf, TypeAlias

from dither.brief import brief
from dither.query.kinds import Expression, Facts, Kind, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanField:
    """A column of a relation: its name in the plan and what is publicly known about it.

    ``unit`` says that this column is the unit's id itself.
    """

    name: str
    kind: Kind
    facts: Facts
    unit: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """A table of the schema; ``columns`` are (name in the plan, name in the table)."""

    table: str
    private: bool
    unit_column: str | None
    columns: tuple[tuple[str, str], ...]
    fields: tuple[PlanField, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterRows:
    """The rows for which the predicate is true."""

    input: Relation
    predicate: Expression

    @property
    def fields(self) -> tuple[PlanField, ...]:
        """As the input's."""
        return self.input.fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """New columns computed from each row; ``fields`` and ``expressions`` go in pairs."""

    input: Relation
    expressions: tuple[Expression, ...]
    fields: tuple[PlanField, ...]


class JoinKind(Enum):
    """What happens to a row on the left: once per match; also without one; kept if matched; kept if not."""

    INNER = "inner"
    LEFT = "left"
    SEMI = "semi"
    ANTI = "anti"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRows:
    """A private relation on the left with a public one, or with a private one of the same units.

    ``on_unit`` says that the right side is private: then rows match only within a unit, besides the condition.
    Otherwise the right side is public. Names of both sides differ. Semi and anti joins keep the left columns only.
    """

    left: Relation
    right: Relation
    kind: JoinKind
    on_unit: bool
    condition: Expression | None

    @property
    def fields(self) -> tuple[PlanField, ...]:
        """Of both sides, or of the left."""
        if self.kind in (JoinKind.SEMI, JoinKind.ANTI):
            return self.left.fields
        return self.left.fields + self.right.fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Union:
    """All rows of several private relations of the same units; columns correspond by position."""

    inputs: tuple[Relation, ...]
    fields: tuple[PlanField, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Distinct:
    """Each combination of unit and columns once."""

    input: Relation

    @property
    def fields(self) -> tuple[PlanField, ...]:
        """As the input's."""
        return self.input.fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Gridded:
    """A number put on a whole-number grid: clamp(round(x / step), low, high) − offset; missing if x is NULL or NaN.

    The value is a whole number between ``low − offset`` and ``high − offset``, whatever x is. ``down`` counts from the
    upper end instead: high − clamp(round(x / step), low, high), and the offset is 0.
    """

    expression: Expression
    step: Fraction
    low: int
    high: int
    offset: int = 0
    down: bool = False

    @property
    def ends(self) -> tuple[int, int]:
        """The smallest and the largest value."""
        return (0, self.high - self.low) if self.down else (self.low - self.offset, self.high - self.offset)


class Inner(Enum):
    """What can be computed over the rows of one unit; all of it exact, whatever the order of rows."""

    COUNT = "count"
    COUNT_DISTINCT = "count_distinct"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"


@dataclass(frozen=True, slots=True, kw_only=True)
class InnerAggregate:
    """An aggregate over rows of one unit. ``grid`` makes sums and means exact; counts of rows have no argument.

    The result of SUM and AVG is (sum of grid values) · step, and that over the count, as a double (an integer for the
    sum of integers).
    """

    function: Inner
    argument: Expression | None
    grid: Gridded | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PerUnit:
    """One row for each unit and combination of keys: GROUP BY unit, keys. ``fields`` are keys, then aggregates."""

    input: Relation
    keys: tuple[Expression, ...]
    aggregates: tuple[InnerAggregate, ...]
    fields: tuple[PlanField, ...]


WindowFunction: TypeAlias = OneOf["row_number", "rank", "dense_rank", "lag", "lead", "first_value", "aggregate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Windowed:
    """One window function, partitioned by the unit and perhaps more.

    Rows that the order leaves tied are ordered by all columns of the input, so that the result doesn't depend on where
    rows are stored. An aggregate with an order runs over the rows up to the current one and its peers.
    """

    function: WindowFunction
    argument: Expression | None
    aggregate: InnerAggregate | None
    offset: int
    partition: tuple[Expression, ...]
    order: tuple[Ordering, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordering:
    """An expression to sort by."""

    expression: Expression
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The input's columns and, behind them, one for each window function."""

    input: Relation
    items: tuple[Windowed, ...]
    fields: tuple[PlanField, ...]


Relation: TypeAlias = Scan | FilterRows | Project | JoinRows | Union | Distinct | PerUnit | Window


class Function(Enum):
    """The private aggregates."""

    COUNT = "count"
    COUNT_UNITS = "count_units"
    COUNT_DISTINCT = "count_distinct"
    SUM = "sum"
    AVG = "avg"
    AVG_PER_UNIT = "avg_per_unit"
    VAR_POP = "var_pop"
    VAR_SAMP = "var_samp"
    STDDEV_POP = "stddev_pop"
    STDDEV_SAMP = "stddev_samp"
    COVAR_POP = "covar_pop"
    COVAR_SAMP = "covar_samp"
    CORR = "corr"
    QUANTILE = "quantile"
    MODE = "mode"


COUNTED_ONCE = (Function.COUNT_UNITS, Function.AVG_PER_UNIT)
"""Those to which a unit adds as much as a row, however many it has: no bound on rows matters to them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """An argument of an aggregate with what is publicly known of its values; a NULL or NaN is left out.

    ``facts`` has the bounds to which each value is clamped: declared, following from declared ones, or stated in the
    question, where they can only be narrower. What one unit adds up to in a group is ``Aggregate.per_group``.
    """

    expression: Expression
    facts: Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """One private aggregate. ``arguments``: none for COUNT(*) and COUNT(DISTINCT unit) over all rows, else one or two.

    ``per_group`` bounds what one unit may add to one group's sum or count, where the question states it.
    """

    function: Function
    arguments: tuple[Argument, ...] = ()
    per_group: tuple[Fraction, Fraction] | None = None
    quantile: Fraction | None = None
    weight: Fraction = Fraction(1)

    __repr__ = brief


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A group key; ``values`` are the public ones in ascending order, or None where they must be discovered."""

    expression: Expression
    kind: Kind
    values: tuple[Value, ...] | None

    __repr__ = brief


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregation:
    """The private part of a question: all of it depends on data through these aggregates alone.

    ``units`` says whether the unit is the row or an id. ``groups`` and ``rows`` bound one unit's contribution: at most
    so many groups, and in each of them it counts as at most so many rows. With any key that isn't public the keys are
    discovered: a group is shown only if enough units are in it. ``tables`` are the private tables it reads. ``scaled``
    says that a unit counts as at most ``rows`` rows in all groups together, by scaling down what it has in each.
    """

    relation: Relation
    units: OneOf["row", "column"]
    keys: tuple[Key, ...]
    aggregates: tuple[Aggregate, ...]
    groups: int
    rows: int
    discover: bool
    tables: tuple[str, ...]
    scaled: bool = False

    __repr__ = brief


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A column of the answer: an expression over keys (``k0``, …) and aggregates (``a0``, …), all released by then.

    ``low(a0)`` and ``high(a0)`` (columns named ``a0.low``, ``a0.high``) are the ends of an aggregate's interval.
    """

    name: str
    expression: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What is done to the released table: filter, columns, order, limit. It reads no data, so it is free."""

    outputs: tuple[Output, ...]
    having: Expression | None = None
    order: tuple[Ordering, ...] = ()
    limit: int | None = None
    offset: int = 0

    __repr__ = brief


# the law of a question's noise, where there is a choice
Law: TypeAlias = OneOf["laplace", "gaussian"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the question's own clause asks for; the policy has the last word on each."""

    epsilon: Fraction | None = None
    delta: Fraction | None = None
    noise: Law | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundQuestion:
    """A bound question: the private aggregation, the shape of the answer, and its options.

    ``listing`` says that it asks for public values alone, which needs no data: SELECT DISTINCT over public keys.
    ``profile`` says that it asks for a profile (``plan.profile``), which everybody may know once it was answered.
    ``auto`` says that its bound on rows, which is the most that may be chosen, is to be chosen by a profile.
    ``former`` is the same question as dither 0.1 and 0.2 read it, if more keys are public now: who paid for that has
    its answer.
    """

    aggregation: Aggregation
    shape: Shape
    options: Options
    explain: bool = False
    listing: bool = False
    profile: bool = False
    auto: bool = False
    former: BoundQuestion | None = field(default=None, repr=False)

    __repr__ = brief
