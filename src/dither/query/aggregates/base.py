"""What aggregates have in common: cells and choices that are measured, recipes that read them, how calls are bound.

Everything here follows from public facts. What one unit adds to a cell is bounded by the cell itself, so the price can
be computed before data is read. What a recipe makes of released cells is post-processing, so it is free: the same cells
give the same values and intervals, bit by bit. Intervals speak of the noise alone. What clamping, the grid and the
bound on contributions did to the exact answer isn't in them.

Values stay unbiased where they can: a noisy count below zero is shown as it is, since cutting it off would make sums of
counts too large. Ratios can't be unbiased; they are kept within what the declared bounds allow. Where the noisy count
isn't clearly above zero nothing is known, whatever the group holds: the interval is all that the bounds allow, and the
value its middle, so that an empty group answers like any other.

Bounds come from the policy, from interval arithmetic, or from the question itself; the question's may only be narrower.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar, NoReturn, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dither.errors import InvalidParameter
from dither.mechanisms import DiscreteGaussian, Exponential, PermuteAndFlip, Quantile
from dither.mechanisms.base import Source
from dither.privacy import PrivacyLoss
from dither.query.aggregates.spread import Bools as Bools, Floats, Noise, spread_of_sum
from dither.query.aggregates.vicinity import Nearby, Vicinity
from dither.query.arrow import TYPES
from dither.query.expressions.functions import Typed, apply, literal
from dither.query.kinds import NOTHING, Column, Expression, Facts, Interval, Kind, Value, canonical, columns
from dither.query.measure.clamped_grids import LARGEST_INTEGER
from dither.query.measure.measures import LARGEST_PART, Bins, Cap, Exact, Total, WeightedTotals
from dither.query.plan.plan import Aggregate, Argument, Function, Gridded
from dither.query.refusals import refused

Ints: TypeAlias = npt.NDArray[np.int64]
Chooser: TypeAlias = Quantile | PermuteAndFlip | Exponential
Item = TypeVar("Item")

DEFAULT_CONFIDENCE = Fraction(19, 20)
# In so many parts of a step sums are counted that are scaled down, where they fit.
FINEST = 64
# Sums of integers come out as 64-bit integers up to this.
LARGEST_WHOLE = 2**61


# ---------------------------------------------------------------------------------------------- what is measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One number for each group: what is measured, and the part of one unit in it, [low, high] or nothing."""

    exact: Exact
    low: int
    high: int


class AggregateChoice(ABC):
    """What a mechanism of its own chooses in each group, from rows counted in ``bins``.

    ``counts`` says what is counted, for people; ``drawn`` is the type of what is chosen.
    """

    __slots__ = ()

    bins: int
    counts: ClassVar[str]
    drawn: ClassVar[type[np.generic]]

    @abstractmethod
    def alone(self, rows: int) -> Fraction:
        """By how much so many rows that come or go move scores, relative to each other."""

    @abstractmethod
    def chooser(self, scale: Fraction, *, pure: bool) -> Chooser:
        """The mechanism, for a budget of pure ε or of zCDP."""

    @abstractmethod
    def loss(self, ratio: Fraction, *, pure: bool) -> PrivacyLoss:
        """What one choice costs a unit that comes or goes, whose rows move scores by so many scales."""

    @abstractmethod
    def release(self, chooser: Chooser, bins: Ints, counts: Ints, source: Source) -> int | float:
        """One draw in one group."""

    @abstractmethod
    def error(self, chooser: Chooser, confidence: Fraction) -> Prediction:
        """The error to expect."""

    def places(self, drawn: npt.NDArray[Any]) -> list[int]:
        """The place of the histogram that each draw is, for what is counted around it."""
        return [int(one) for one in drawn]


@dataclass(slots=True)
class Building:
    """Cells and choices so far; what two aggregates have in common exists once.

    ``alone`` are arguments that one aggregate alone asks about. Where it is ``scaled``, a unit counts as at most
    ``rows`` rows in all ``groups`` together. ``bases`` are the places of cells whose parts of one
    unit aren't negative and add up to no more than the largest of each: they share one sensitivity, and one budget.
    """

    rows: int
    alone: Set[Expression] = frozenset()
    scaled: bool = False
    groups: int = 1
    cells: list[Cell] = field(default_factory=list)
    bases: list[tuple[int, ...]] = field(default_factory=list)
    bins: list[Bins] = field(default_factory=list)
    choices: list[AggregateChoice] = field(default_factory=list)
    vicinities: list[Vicinity] = field(default_factory=list)

    def total(
        self,
        factors: tuple[Gridded, ...],
        present: tuple[Expression, ...],
        part: tuple[int, int],
        cap: Cap = Cap.CLAMP,
    ) -> int:
        """The place of a sum of products, of which a unit's part is within ``part``."""
        total = total_of(factors, present, part, cap)
        return self.cell(Cell(exact=total, low=part[0], high=part[1]))

    def part(
        self,
        factors: tuple[Gridded, ...],
        present: tuple[Expression, ...],
        part: tuple[int, int],
        *,
        once: bool = False,
    ) -> tuple[int, int]:
        """The place of such a sum, of parts that are bounded one by one or all together; and its parts of a step.

        ``part`` is what it may add to one group, or to all of them.
        """
        if not self.scaled:
            return self.total(factors, present, part), 1
        most = max(-part[0], part[1])
        fine = max(1, min(FINEST, 1 << (LARGEST_PART // most).bit_length() - 1))
        low, high = (-most * fine if part[0] < 0 else 0), (most * fine if part[1] > 0 else 0)
        total = total_of(factors, present, (low, high), Cap.SCALE)
        return self.cell(Cell(exact=replace(total, fine=fine, once=once), low=low, high=high)), fine

    def cell(self, cell: Cell) -> int:
        """The place of a cell."""
        return place_in(self.cells, cell)

    def count(self, *present: Expression) -> int:
        """The place of the number of rows in which nothing of this is missing."""
        return self.total((), present, (0, self.rows))

    def basis(self, most: int, *parts: tuple[tuple[Total, int], ...]) -> tuple[int, ...]:
        """The places of cells that are combinations of totals, of which one unit has at most ``most`` in all."""
        exact = (WeightedTotals(parts=each) for each in parts)
        places = tuple(self.cell(Cell(exact=each, low=0, high=most)) for each in exact)
        place_in(self.bases, places)
        return places

    def counted(self, grid: Gridded) -> int:
        """The place of a histogram."""
        return place_in(self.bins, Bins(grid=grid))

    def choice(self, choice: AggregateChoice) -> int:
        """The place of a choice."""
        return place_in(self.choices, choice)

    def vicinity(self, choice: int, last: int) -> int:
        """The place of the counts around a choice on a grid from 0 to ``last``; choices from the same bins share it."""
        bins = self.choices[choice].bins
        for place, known in enumerate(self.vicinities):
            if known.bins == bins:
                if choice not in known.choices:
                    self.vicinities[place] = replace(known, choices=(*known.choices, choice))
                return place
        self.vicinities.append(Vicinity(bins=bins, last=last, choices=(choice,)))
        return len(self.vicinities) - 1


def total_of(
    factors: tuple[Gridded, ...], present: tuple[Expression, ...], part: tuple[int, int], cap: Cap = Cap.CLAMP
) -> Total:
    """A sum of products, of which a unit's part is within ``part``."""
    # which of the expressions that must be there comes first makes no difference
    ordered = tuple(sorted(set(present), key=canonical))
    return Total(factors=factors, present=ordered, low=part[0], high=part[1], cap=cap)


def place_in(items: list[Item], item: Item) -> int:
    """Where the item is in the list, to which it is added if it isn't there."""
    if item not in items:
        items.append(item)
    return items.index(item)


# ---------------------------------------------------------------------------------------------- what is released


@dataclass(frozen=True, slots=True, kw_only=True)
class Noisy:
    """What was released about ``size`` groups: cells with the law of their noise, choices, and counts around these."""

    size: int
    cells: Sequence[Ints]
    noise: Sequence[Noise]
    choices: Sequence[npt.NDArray[Any]]
    nearby: Sequence[Nearby] = ()
    nearby_noise: Sequence[Noise] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """An aggregate's value in each group and the ends of its interval; the ends of choices are NULL."""

    value: pa.Array[Any]
    low: pa.Array[Any]
    high: pa.Array[Any]

    @classmethod
    def of(cls, value: npt.NDArray[Any], low: npt.NDArray[Any], high: npt.NDArray[Any]) -> Estimate:
        """From arrays of numbers."""
        return cls(value=pa.array(value), low=pa.array(low), high=pa.array(high))


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanisms:
    """The mechanisms of a priced question: one for each cell, one for each choice, one for what is counted around."""

    noise: Sequence[Noise]
    choices: Sequence[AggregateChoice]
    choosers: Sequence[Chooser]
    nearby: Sequence[Noise] = ()


# ---------------------------------------------------------------------------------------------- recipes


class Recipe(ABC):
    """How an aggregate is read off released cells and choices.

    It is kept with an answer: the fields and names of its classes are permanent (``catalogue.to_json``).
    """

    __slots__ = ()

    @property
    def cells(self) -> tuple[int, ...]:
        """The cells that it is read off, each once."""
        return ()

    @property
    def choices(self) -> tuple[int, ...]:
        """The choices that it is read off."""
        return ()

    @property
    def bare(self) -> bool:
        """Whether it is a choice without an interval."""
        return False

    @property
    def linear(self) -> tuple[tuple[tuple[int, Fraction], ...], Fraction] | None:
        """(cell, weight) pairs and a constant, if it is a linear form of cells."""
        return None

    @property
    def affine(self) -> tuple[tuple[tuple[int, Fraction], ...], Fraction] | None:
        """The linear form that computed columns may be made of: none where it is cut at what can be."""
        return self.linear

    @abstractmethod
    def estimate(self, noisy: Noisy, confidence: Fraction = DEFAULT_CONFIDENCE) -> Estimate:
        """Values, and intervals that cover the exact answers with this probability each."""

    def points(self, noisy: Noisy) -> pa.Array[Any]:
        """Values alone, where intervals aren't needed: much quicker for means and moments."""
        return self.estimate(noisy).value

    def ends(self, noisy: Noisy, confidence: Fraction) -> tuple[Floats, Floats, Bools] | None:
        """The interval where it isn't a linear form, and where there may be no exact value at all; None if unknown."""
        del noisy, confidence
        return None

    @abstractmethod
    def error(self, by: Mechanisms, confidence: Fraction) -> Prediction:
        """The error to expect at this confidence, before data is read."""

    def spreads(self, by: Mechanisms) -> tuple[float, ...]:
        """How far off it is at 95%, for some data at which ways of measuring it are compared; none if never compared.

        Every way to read an aggregate takes the same data, in the same order and units.
        """
        del by
        return ()

    def mechanism(self, by: Mechanisms) -> str:
        """What it is released by, in words."""
        law = "Gaussian" if isinstance(by.noise[self.cells[0]], DiscreteGaussian) else "Laplace"
        return f"{law} noise on {len(self.cells)} sums"


@dataclass(frozen=True, slots=True)
class Constant(Recipe):
    """An aggregate that its public bounds alone decide: no unit can move it, so it is exact and free."""

    value: Fraction
    whole: bool = False

    @property
    def linear(self) -> tuple[tuple[tuple[int, Fraction], ...], Fraction]:
        """No cell."""
        return (), self.value

    def estimate(self, noisy: Noisy, confidence: Fraction = DEFAULT_CONFIDENCE) -> Estimate:
        """The same everywhere."""
        del confidence
        same, drawn = (int(self.value), np.int64) if self.whole else (float(self.value), np.float64)
        value = np.full(noisy.size, same, drawn)
        return Estimate.of(value, value, value)

    def error(self, by: Mechanisms, confidence: Fraction) -> Fixed:
        """None."""
        del by, confidence
        return Fixed(0.0, noise=False)

    def mechanism(self, by: Mechanisms) -> str:
        """None."""
        del by
        return "decided by public bounds"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenValue(Recipe):
    """A mode: what a mechanism chose, by its place among the public values; as it is, a quantile of dither 0.1."""

    choice: int
    values: tuple[Value, ...] | None = None
    kind: Kind = Kind.DOUBLE

    @property
    def choices(self) -> tuple[int, ...]:
        """The one."""
        return (self.choice,)

    @property
    def bare(self) -> bool:
        """Yes."""
        return True

    def estimate(self, noisy: Noisy, confidence: Fraction = DEFAULT_CONFIDENCE) -> Estimate:
        """What was drawn, without an interval."""
        del confidence
        drawn = noisy.choices[self.choice]
        value: pa.Array[Any]
        if self.values is None:
            value = pa.array(drawn.astype(np.float64))
        else:
            value = array_of(self.values, self.kind).take(pa.array(drawn))
        nothing = pa.nulls(noisy.size, value.type)
        return Estimate(value=value, low=nothing, high=nothing)

    def error(self, by: Mechanisms, confidence: Fraction) -> Prediction:
        """As its mechanism says it."""
        return by.choices[self.choice].error(by.choosers[self.choice], confidence)

    def mechanism(self, by: Mechanisms) -> str:
        """The mechanism's name and scale."""
        chooser = by.choosers[self.choice]
        name = "permute-and-flip" if isinstance(chooser, PermuteAndFlip) else "exponential mechanism"
        return f"{name}, scale {float(chooser.scale):.4g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear(Recipe):
    """step · cell: counts and sums. ``whole`` answers are integers."""

    cell: int
    step: Fraction
    whole: bool

    @property
    def cells(self) -> tuple[int, ...]:
        """The one it is read off."""
        return (self.cell,)

    @property
    def linear(self) -> tuple[tuple[tuple[int, Fraction], ...], Fraction]:
        """The cell, in steps."""
        return ((self.cell, self.step),), Fraction(0)

    def estimate(self, noisy: Noisy, confidence: Fraction = DEFAULT_CONFIDENCE) -> Estimate:
        """The cell plus and minus the exact quantile of its noise."""
        cell, half = noisy.cells[self.cell], noisy.noise[self.cell].error(confidence)
        if self.whole and self.step.denominator != 1:
            return self._rounded(cell, half)
        if self.whole:
            # of steps beyond the largest answer there is none but zero
            step = min(int(self.step), LARGEST_WHOLE + 1)
            bound = LARGEST_WHOLE // step
            reach = int(min(half, bound))
            inside = _cut(cell, bound)
            return Estimate.of(*(_cut(inside + d, bound) * step for d in (0, -reach, reach)))
        middle, width = cell.astype(np.float64), float(self.step)
        return Estimate.of(middle * width, (middle - half) * width, (middle + half) * width)

    def _rounded(self, cell: Ints, half: float) -> Estimate:
        """Whole numbers, read off parts of them: the nearest, and those next to the ends on the outer side."""
        times, parts = min(self.step.numerator, LARGEST_WHOLE), self.step.denominator
        bound = LARGEST_WHOLE // times
        reach, inside = int(min(half, bound)), _cut(cell, bound)
        low, high = _cut(inside - reach, bound) * times, _cut(inside + reach, bound) * times
        return Estimate.of((2 * inside * times + parts) // (2 * parts), low // parts, -(-high // parts))

    def error(self, by: Mechanisms, confidence: Fraction) -> Fixed:
        """That of the noise, whatever the data."""
        return Fixed(float(self.step) * by.noise[self.cell].error(confidence))

    def spreads(self, by: Mechanisms) -> tuple[float, ...]:
        """The error."""
        return (spread_of_sum([(float(self.step), by.noise[self.cell])], DEFAULT_CONFIDENCE),)

    def mechanism(self, by: Mechanisms) -> str:
        """The noise, in units of the answer."""
        noise = by.noise[self.cell]
        law = "Gaussian noise, σ =" if isinstance(noise, DiscreteGaussian) else "Laplace noise, scale"
        return f"{law} {float(self.step * noise.scale):.4g}"


def _cut(numbers: Ints, bound: int) -> Ints:
    """Clamped to ±bound: for few numbers, np.clip takes several times as long."""
    inside: Ints = np.minimum(np.maximum(numbers, -bound), bound)
    return inside


def array_of(values: Sequence[Value], kind: Kind) -> pa.Array[Any]:
    """Public values as an Arrow array."""
    plain = [_plain(value, kind) for value in values]
    return pa.array(plain, TYPES[kind])


def _plain(value: Value, kind: Kind) -> object:
    if value is None or isinstance(value, bool):
        return value
    if kind is Kind.INTEGER:
        return int(value)  # type: ignore[arg-type]
    # adding 0 turns −0.0 into 0.0, which is the same key
    return float(value) + 0.0 if kind is Kind.DOUBLE else value  # type: ignore[arg-type]


def is_aggregate(name: str) -> bool:
    """Whether a column of a released table is an aggregate's value: neither a key nor the end of an interval."""
    return name[0] == "a" and "." not in name


# ----------------------------------------------------------------------------------------- how aggregates are written


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


# ------------------------------------------------------------------------------ the error before data is read


class Prediction(ABC):
    """What public facts tell of an aggregate's error in one group."""

    __slots__ = ()

    @property
    def half_width(self) -> float | None:
        """Half the width of the interval, if no data has a say in it."""
        return self.at(None)

    def at(self, rows: int | None) -> float | None:
        """Half the width in a group of so many rows, by the sentence's own digits; None if that doesn't tell it."""
        del rows
        return None

    @abstractmethod
    def __str__(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Fixed(Prediction):
    """The same whatever the data: that of a count or a sum, or, without ``noise``, of what public bounds decide."""

    half: float
    noise: bool = True

    def at(self, rows: int | None) -> float:
        """That of the noise."""
        del rows
        return self.half

    def __str__(self) -> str:
        return f"±{short(self.half)}" if self.noise else "exact"


@dataclass(frozen=True, slots=True, kw_only=True)
class PerRow(Prediction):
    """A number over the rows of the group, or the ``root`` of that; ``about`` if it is a bound to first order.

    ``counted`` says what stands for rows where that is another number.

    Example:
        >>> error = PerRow(over_rows=11_951.2)
        >>> str(error), error.at(1000)
        ('±(11,952 / rows in the group)', 11.952)
    """

    over_rows: float
    root: bool = False
    about: bool = False
    counted: str = "rows"

    def at(self, rows: int | None) -> float | None:
        """The formula for so many rows."""
        if rows is None:
            return None
        half = _rounded_up(self.over_rows) / rows
        return math.sqrt(half) if self.root else half

    def __str__(self) -> str:
        before = ("at most about " if self.about else "") + ("±√" if self.root else "±")
        return f"{before}({short(self.over_rows)} / {self.counted} in the group)"


@dataclass(frozen=True, slots=True)
class Ranks(Prediction):
    """How many ranks a quantile may be off."""

    ranks: float

    def __str__(self) -> str:
        return f"±{short(self.ranks)} ranks"


@dataclass(frozen=True, slots=True)
class Rarer(Prediction):
    """By how many rows a mode may be rarer than the most frequent value."""

    rows: float

    def __str__(self) -> str:
        return f"a value that occurs at most {short(self.rows)} times less often than the most frequent one"


@dataclass(frozen=True, slots=True)
class Unknown(Prediction):
    """Nothing is known but why."""

    why: str

    def __str__(self) -> str:
        return self.why


def short(value: float) -> str:
    """Rounded up to three digits, or to a whole number above 1000."""
    text = f"{_rounded_up(value):,.{_decimals(value)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _decimals(value: float) -> int:
    return max(0, 2 - math.floor(math.log10(value))) if value else 0


def _rounded_up(value: float) -> float:
    scale = 10.0 ** _decimals(value)
    # what is a short number already must not be pushed to the next one by its last bit
    return math.ceil(value * scale * (1 - 1e-12)) / scale
