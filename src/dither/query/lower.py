"""Lowering: an aggregation becomes whole-number cells that an engine measures, and recipes that read answers off them.

Everything here follows from public facts. What one unit adds to a cell is bounded by the cell itself, so the price can
be computed before data is read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias, TypeVar

from dither.brief import brief
from dither.errors import InvalidParameter, Refused
from dither.query.effort import spend
from dither.query.expressions import Call, Expression, Literal, canonical
from dither.query.grids import Grid, base_step, bin_grid, bounds_of, centred_grid, places_of, sum_grid
from dither.query.kinds import Interval, Kind, Value
from dither.query.measures import LARGEST_PART, Bins, Cap, DistinctValues, Measurement, Total
from dither.query.plan import Aggregate, Aggregation, Argument, Function, Gridded
from dither.query.reach import Span
from dither.query.recipes import Centred, Chosen, Constant, Linear, Mean, Moments, Product, Recipe

MOST_GROUPS = 1_000_000
# Quantiles and modes are drawn group by group, about a millisecond each.
MOST_CHOSEN_GROUPS = 100_000
MOST_CANDIDATES = 10_000
# what each takes, in steps of effort
STEPS_OF_CANDIDATE = 5
# Sums of integers come out as 64-bit integers unless their step is so large that the product might not fit.
LARGEST_WHOLE_STEP = 2**30

Exact: TypeAlias = Total | DistinctValues
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One number for each group: what is measured, and the part of one unit in it, [low, high] or nothing."""

    exact: Exact
    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantileChoice:
    """A quantile of the values counted in ``bins``."""

    bins: int
    grid: Gridded
    quantile: Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeChoice:
    """The most frequent of ``candidates`` public values, counted by place in ``bins``."""

    bins: int
    candidates: int


ChoiceOf: TypeAlias = QuantileChoice | ModeChoice


@dataclass(frozen=True, slots=True, kw_only=True)
class Lowered:
    """What to measure and how to read it.

    ``cells`` get noise, ``choices`` are made by a mechanism of their own. ``units`` is the place among the totals of
    the number of units in each group, where keys must be discovered by it.
    """

    measurement: Measurement
    cells: tuple[Cell, ...]
    choices: tuple[ChoiceOf, ...]
    recipes: tuple[Recipe, ...]
    units: int | None
    span: Span

    __repr__ = brief

    def needs(self, index: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The cells and the choices that an aggregate is read off."""
        recipe = self.recipes[index]
        return recipe.cells, (recipe.choice,) if isinstance(recipe, Chosen) else ()


@dataclass(slots=True)
class _Building:
    """Cells and choices so far; what two aggregates have in common exists once."""

    rows: int
    cells: list[Cell] = field(default_factory=list)
    bins: list[Bins] = field(default_factory=list)
    choices: list[ChoiceOf] = field(default_factory=list)

    def total(
        self,
        factors: tuple[Gridded, ...],
        present: tuple[Expression, ...],
        part: tuple[int, int],
        cap: Cap = Cap.CLAMP,
    ) -> int:
        # which of the expressions that must be there comes first makes no difference
        ordered = tuple(sorted(set(present), key=canonical))
        total = Total(factors=factors, present=ordered, low=part[0], high=part[1], cap=cap)
        return self.cell(Cell(exact=total, low=part[0], high=part[1]))

    def cell(self, cell: Cell) -> int:
        return _place(self.cells, cell)

    def count(self, *present: Expression) -> int:
        return self.total((), present, (0, self.rows))

    def counted(self, grid: Gridded) -> int:
        return _place(self.bins, Bins(grid=grid))

    def choice(self, choice: ChoiceOf) -> int:
        return _place(self.choices, choice)


def _place(items: list[Item], item: Item) -> int:
    if item not in items:
        items.append(item)
    return items.index(item)


def lower(aggregation: Aggregation) -> Lowered:
    """The measurement of an aggregation and the recipe of each aggregate; raises Refused for public reasons only."""
    groups, rows = aggregation.groups, aggregation.rows
    if aggregation.units == "row" and (groups, rows) != (1, 1):
        raise InvalidParameter("at row level a unit is one row in one group: state groups = 1 and rows = 1")
    if rows > LARGEST_PART:
        raise Refused("a unit may count with too many rows", code="rows_too_many", hint="Lower max_rows_contributed.")
    span = Span.of(groups, public_groups(aggregation))
    building = _Building(rows)
    recipes = tuple(_recipe(building, aggregate) for aggregate in aggregation.aggregates)
    if building.choices and span.cells is not None and span.cells > MOST_CHOSEN_GROUPS:
        raise Refused(
            f"quantiles and modes are answered for at most {MOST_CHOSEN_GROUPS:,} groups",
            code="too_many_groups",
            hint="Group by fewer keys, or by coarser ones.",
        )
    totals = [cell.exact for cell in building.cells if isinstance(cell.exact, Total)]
    units = None
    if aggregation.discover:
        units = _place(totals, Total(factors=(), present=(), low=0, high=1, cap=Cap.CLAMP))
    measurement = Measurement(
        relation=aggregation.relation,
        units=aggregation.units,
        keys=aggregation.keys,
        groups=span.groups,
        rows=rows,
        totals=tuple(totals),
        bins=tuple(building.bins),
        distinct=tuple(cell.exact for cell in building.cells if isinstance(cell.exact, DistinctValues)),
    )
    return Lowered(
        measurement=measurement,
        cells=tuple(building.cells),
        choices=tuple(building.choices),
        recipes=recipes,
        units=units,
        span=span,
    )


def public_groups(aggregation: Aggregation) -> int | None:
    """How many groups answer, where that is public; None where keys are discovered."""
    if aggregation.discover:
        return None
    if any(key.values is None for key in aggregation.keys):
        raise InvalidParameter("a key without public values must be discovered: state discover = True")
    size = math.prod(len(key.values or ()) for key in aggregation.keys)
    if size > MOST_GROUPS:
        raise Refused(
            f"the public keys have {size:,} combinations, and at most {MOST_GROUPS:,} groups are answered",
            code="too_many_groups",
            hint="Group by fewer keys, or by coarser ones.",
        )
    if size == 0:
        raise InvalidParameter("a public key needs at least one value")
    return size


def _recipe(building: _Building, aggregate: Aggregate) -> Recipe:
    function = aggregate.function
    if function in (Function.COUNT, Function.COUNT_UNITS):
        return _count(building, aggregate)
    if function is Function.COUNT_DISTINCT:
        cell = Cell(exact=DistinctValues(expression=_one(aggregate).expression), low=0, high=building.rows)
        return Linear(cell=building.cell(cell), step=Fraction(1), whole=True)
    if function is Function.SUM:
        return _sum(building, aggregate)
    if function is Function.AVG:
        return _mean(building, _one(aggregate))
    if function is Function.QUANTILE:
        return _quantile(building, aggregate)
    if function is Function.MODE:
        return _mode(building, _one(aggregate))
    return _moments(building, aggregate)


def _one(aggregate: Aggregate) -> Argument:
    if len(aggregate.arguments) != 1:
        raise InvalidParameter(f"{aggregate.function.value} takes one argument")
    return aggregate.arguments[0]


def _count(building: _Building, aggregate: Aggregate) -> Recipe:
    """Rows (at most ``rows`` of a unit in a group) or units (once)."""
    most = 1 if aggregate.function is Function.COUNT_UNITS else building.rows
    low, high = 0, most
    if aggregate.per_group is not None and aggregate.function is Function.COUNT:
        low, high = _clamped(aggregate.per_group, Fraction(1), 0, most)
    if high == 0:
        return Constant(Fraction(0), whole=True)
    present = tuple(argument.expression for argument in aggregate.arguments)
    return Linear(cell=building.total((), present, (low, high)), step=Fraction(1), whole=True)


def _sum(building: _Building, aggregate: Aggregate) -> Recipe:
    """Clamped rows on a grid; what a unit adds is clamped to what ``rows`` rows can add, or to the stated bounds."""
    argument = _one(aggregate)
    bounds = bounds_of(argument, aggregate.per_group)
    most = LARGEST_PART // building.rows
    grid = sum_grid(argument, bounds, most, aggregate.per_group)
    if aggregate.per_group is not None and len(set(places_of(aggregate.per_group, grid.step))) == 1:
        # next to bounds of rows as wide as these a group's would vanish: rows are clamped to those of the group first
        grid = sum_grid(argument, _within(bounds, aggregate.per_group), most, aggregate.per_group)
    low, high = building.rows * min(grid.low, 0), building.rows * max(grid.high, 0)
    if aggregate.per_group is not None:
        low, high = _clamped(aggregate.per_group, grid.step, low, high)
    integers = argument.expression.kind is Kind.INTEGER
    whole = integers and grid.step.denominator == 1 and grid.step <= LARGEST_WHOLE_STEP
    if low == high == 0:
        # everything is clamped to zero, so the sum says nothing about anybody
        return Constant(Fraction(0), whole=whole)
    cell = building.total((grid.of(argument.expression),), (), (low, high))
    return Linear(cell=cell, step=grid.step, whole=whole)


def _within(bounds: Interval, per_group: tuple[Fraction, Fraction]) -> Interval:
    """Bounds of rows, clamped to what a group may hold and to zero."""
    low, high = min(per_group[0], Fraction(0)), max(per_group[1], Fraction(0))
    return Interval(min(max(bounds.low, low), high), min(max(bounds.high, low), high))


def _clamped(per_group: tuple[Fraction, Fraction], step: Fraction, low: int, high: int) -> tuple[int, int]:
    """Bounds stated by the question, in steps, where they are narrower than [low, high]."""
    least, most = places_of(per_group, step)
    if least == most and per_group[0] < per_group[1]:
        raise Refused(
            "the contribution bounds of a group are too close to each other",
            code="bounds_empty",
            hint="State contribution_bounds_per_group => (low, high) further apart, and whole numbers for a COUNT.",
        )
    return min(max(least, low), high), min(max(most, low), high)


def _centred(building: _Building, argument: Argument, present: tuple[Expression, ...]) -> Centred:
    grid = centred_grid(argument, bounds_of(argument), LARGEST_PART // building.rows)
    cell = building.total((grid.of(argument.expression),), present, _times(building.rows, grid.centred), Cap.MEAN)
    return Centred(cell=cell, step=grid.step, offset=grid.offset)


def _mean(building: _Building, argument: Argument) -> Recipe:
    bounds = bounds_of(argument)
    if bounds.width == 0:
        return Constant(bounds.low)
    return Mean(
        count=building.count(argument.expression),
        x=_centred(building, argument, ()),
        low=bounds.low,
        high=bounds.high,
    )


def _moments(building: _Building, aggregate: Aggregate) -> Recipe:
    """Sums of values and products around the middle of the bounds, over rows where no argument is missing."""
    function, arguments = aggregate.function, aggregate.arguments
    two = function in (Function.COVAR_POP, Function.COVAR_SAMP, Function.CORR)
    if len(arguments) != (2 if two else 1):
        raise InvalidParameter(f"{function.value} takes {'two arguments' if two else 'one argument'}")
    widths = [bounds_of(argument).width for argument in arguments]
    if not all(widths):
        if function is Function.CORR:
            raise Refused(
                "the bounds of an argument of CORR leave it one value, and a constant has no correlation",
                code="constant_argument",
                hint="Leave the column out, or have the owner declare wider bounds.",
            )
        return Constant(Fraction(0))
    x, y = arguments[0], arguments[-1]
    both = tuple(argument.expression for argument in arguments)
    squares = not two or function is Function.CORR
    return Moments(
        function=function,
        count=building.count(*both),
        x=_centred(building, x, _others(both, x)),
        y=_centred(building, y, _others(both, y)) if two else None,
        xx=_product(building, x, x, both) if squares else None,
        yy=_product(building, y, y, both) if two and squares else None,
        xy=_product(building, x, y, both) if two else None,
        half_x=widths[0] / 2,
        half_y=widths[-1] / 2,
    )


def _product(building: _Building, x: Argument, y: Argument, present: tuple[Expression, ...]) -> Product:
    """Each factor is so small that the product of ``rows`` rows is no larger than any other part."""
    most = math.isqrt(LARGEST_PART // building.rows)
    left, right = (centred_grid(argument, bounds_of(argument), most) for argument in (x, y))
    factors = (left.of(x.expression), right.of(y.expression))
    missing = tuple(e for e in present if e not in (x.expression, y.expression))
    cell = building.total(factors, missing, _times(building.rows, _corners(left, right, same=x == y)), Cap.MEAN)
    return Product(
        cell=cell,
        area=left.step * right.step,
        centres=(left.step * left.offset, right.step * right.offset),
    )


def _corners(left: Grid, right: Grid, *, same: bool) -> tuple[int, int]:
    """The smallest and the largest product."""
    products = [a * b for a in left.centred for b in right.centred]
    return (0 if same else min(products)), max(products)


def _times(rows: int, part: tuple[int, int]) -> tuple[int, int]:
    return rows * part[0], rows * part[1]


def _others(expressions: tuple[Expression, ...], argument: Argument) -> tuple[Expression, ...]:
    return tuple(e for e in expressions if e != argument.expression)


def _quantile(building: _Building, aggregate: Aggregate) -> Recipe:
    argument, q = _one(aggregate), aggregate.quantile
    if q is None:
        raise InvalidParameter("a quantile aggregate needs its quantile")
    bounds = bounds_of(argument)
    grid = bin_grid(argument, bounds)
    if grid.low == grid.high or bounds.width == 0:
        return Constant(bounds.low)
    gridded = grid.of(argument.expression)
    choice = QuantileChoice(bins=building.counted(gridded), grid=gridded, quantile=q)
    return Chosen(choice=building.choice(choice))


def _mode(building: _Building, argument: Argument) -> Recipe:
    """Rows are counted by the place of their value among the public ones; other values, and NULL, are left out."""
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
    return Chosen(choice=building.choice(choice), values=values, kind=argument.expression.kind)


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
