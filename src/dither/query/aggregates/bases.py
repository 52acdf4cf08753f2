"""Which aggregates of a question could be read off one basis, whose cells share one sensitivity.

A count, a sum and a mean of one argument follow from its two ends, moments of it from three cells, and of two arguments
from four or nine. What is asked about an argument may so be measured apart, as without this, or in one of several ways
together. Which one errs less depends on what is asked, on the bounds, on the law of the noise and on adjacency: all of
it public, and compared by formula in ``price/noise.py``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from dither.numeric import ceil_div
from dither.query.aggregates.base import Building, Recipe, total_of
from dither.query.aggregates.bernstein import BernsteinMean, BernsteinMoments, Combined
from dither.query.aggregates.mean import ends_of
from dither.query.aggregates.moments import COVARIANCES, PAIRS
from dither.query.kinds import Kind
from dither.query.measure.clamped_grids import WholeGrid, bounds_of, centred_grid, sum_grid
from dither.query.measure.measures import LARGEST_PART, Cap, Total
from dither.query.plan.plan import Aggregate, Aggregation, Argument, Function, Gridded

MOMENTS = (Function.VAR_POP, Function.VAR_SAMP, Function.STDDEV_POP, Function.STDDEV_SAMP)
# Half the width of a grid, by the number of factors of a polynomial: products of them fit in 64 bits.
MOST = {2: 2**29, 4: 2**14}
# A sum may be read off a grid so many times coarser than its own.
COARSER = 2

# Comparing one way takes a tenth of a millisecond for each aggregate asked: what is beyond is measured apart.
MOST_COMPARED = 1000

Recipes: TypeAlias = dict[int, Recipe]


@dataclass(frozen=True, slots=True)
class Way:
    """Aggregates of a question, by place, that are read off one basis, and what makes it."""

    places: tuple[int, ...]
    build: Callable[[Building], Recipes]


@dataclass(frozen=True, slots=True, kw_only=True)
class _AskedOfOne:
    """What a question asks about one argument, by place; ``every`` are counts of all rows."""

    argument: Argument
    means: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()
    sums: tuple[int, ...] = ()
    moments: tuple[int, ...] = ()
    every: tuple[int, ...] = ()

    @property
    def values(self) -> tuple[int, ...]:
        """What is asked about rows that have a value, but for moments."""
        return (*self.means, *self.counts, *self.sums)

    @property
    def plain(self) -> tuple[int, ...]:
        """Everything but moments."""
        return (*self.values, *self.every)


def ways(aggregation: Aggregation) -> tuple[tuple[tuple[Way, ...], ...], ...]:
    """For each argument, or pair of them: the ways in which it could be measured, beside that of today."""
    if aggregation.scaled:
        # what is scaled down as a whole has no ends that could be measured
        return ()
    found, left = [], MOST_COMPARED
    for each in (*(_of_one(aggregation, asked) for asked in _asked(aggregation)), *_of_pairs(aggregation)):
        left -= len(each) * len(aggregation.aggregates)
        if left < 0:
            break
        if each:
            found.append(each)
    return tuple(found)


def _asked(aggregation: Aggregation) -> Iterator[_AskedOfOne]:
    """Single arguments that means, sums or moments are asked of; the first one gets the counts of all rows."""
    aggregates = aggregation.aggregates
    arguments = dict.fromkeys(
        each.arguments[0]
        for each in aggregates
        if each.function in (Function.AVG, Function.SUM, *MOMENTS) and len(each.arguments) == 1
    )
    every = _places(aggregates, lambda each: each.function is Function.COUNT and not each.arguments)
    for argument in arguments:
        facts = argument.facts.bounds
        if facts is None or facts.width == 0 or aggregation.rows > LARGEST_PART // 4:
            continue

        def of(*functions: Function, argument: Argument = argument) -> tuple[int, ...]:
            return _places(aggregates, lambda each: each.function in functions and each.arguments == (argument,))

        yield _AskedOfOne(
            argument=argument,
            means=of(Function.AVG),
            # a unit's sum is better bounded than its rows are, where it may have several
            sums=of(Function.SUM) if aggregation.units == "row" and _adds_up(argument) else (),
            counts=_places(
                aggregates,
                lambda each: (
                    each.function is Function.COUNT and [a.expression for a in each.arguments] == [argument.expression]  # noqa: B023 - used at once
                ),
            ),
            moments=of(*MOMENTS),
            every=every,
        )
        every = ()


def _places(aggregates: Sequence[Aggregate], fits: Callable[[Aggregate], bool]) -> tuple[int, ...]:
    return tuple(place for place, each in enumerate(aggregates) if each.per_group is None and fits(each))


def _adds_up(argument: Argument) -> bool:
    """Whether sums on the grid of both ends are as good as on their own, for a row that is a unit."""
    bounds = bounds_of(argument)
    own, ends = sum_grid(argument, bounds, LARGEST_PART), centred_grid(argument, bounds, LARGEST_PART // 2)
    return ends.step <= own.step or (argument.expression.kind is not Kind.INTEGER and ends.step <= COARSER * own.step)


def _of_one(aggregation: Aggregation, asked: _AskedOfOne) -> tuple[tuple[Way, ...], ...]:
    found: list[tuple[Way, ...]] = []
    x = asked.argument.expression
    # AVG_PER_UNIT counts units, and has no use for what others count
    others = [each for each in aggregation.aggregates if each.function is not Function.AVG_PER_UNIT]
    askers = sum(any(argument.expression == x for argument in each.arguments) for each in others)
    if not asked.moments and len(asked.plain) < 2 and (askers < 2 or not asked.means):
        # a mean alone is read off both ends as it is, a sum alone is best measured apart
        return ()
    every = (*asked.means, *asked.sums, *asked.every)
    chosen = [places for places in dict.fromkeys((asked.plain, asked.values, every, asked.means)) if places]
    # a lone count or sum is better measured apart
    found += [(_ends_way(asked, places),) for places in chosen if len(places) > 1 or places == asked.means]
    if asked.moments:
        found.append((_squares_way(aggregation, asked, asked.moments),))
        found += [(_squares_way(aggregation, asked, asked.moments), _ends_way(asked, places)) for places in chosen]
        found += [(_squares_way(aggregation, asked, (*asked.moments, *places)),) for places in chosen]
    return tuple(found)


def _of_pairs(aggregation: Aggregation) -> Iterator[tuple[tuple[Way, ...], ...]]:
    aggregates = aggregation.aggregates
    pairs = dict.fromkeys(each.arguments for each in aggregates if each.function in PAIRS and len(each.arguments) == 2)
    for pair in pairs:
        x, y = pair
        if x.expression == y.expression or aggregation.rows > LARGEST_PART // 4:
            continue
        if any(each.facts.bounds is None or each.facts.bounds.width == 0 for each in pair):
            continue
        both = _places(aggregates, lambda each, pair=pair: each.function in PAIRS and each.arguments == pair)  # type: ignore[misc]
        linear = tuple(place for place in both if aggregates[place].function in COVARIANCES)
        ways_of_it: list[tuple[Way, ...]] = [(_pair_way(aggregation, pair, both, 2),)] if linear != both else []
        if linear:
            ways_of_it.append((_pair_way(aggregation, pair, linear, 1),))
        yield tuple(ways_of_it)


# ---------------------------------------------------------------------------------------------- what is built


def _ends_way(asked: _AskedOfOne, places: tuple[int, ...]) -> Way:
    """Counts, sums and means from both ends of the argument."""

    def build(building: Building) -> Recipes:
        missing = not set(places).isdisjoint(asked.every)
        ends, rest = ends_of(building, asked.argument, bounds_of(asked.argument), missing=missing)
        read = _Read(
            parts=(ends.below, ends.above),
            missing=rest,
            unit=Fraction(ends.size),
            first=ends.step * ends.first,
            width=ends.step * ends.size,
        )
        return {place: ends if place in asked.means else read.of(asked, place) for place in places}

    return Way(places, build)


def _squares_way(aggregation: Aggregation, asked: _AskedOfOne, places: tuple[int, ...]) -> Way:
    """Moments of one argument, with its counts, sums and mean, from three cells."""

    def build(building: Building) -> Recipes:
        argument = asked.argument
        bounds = bounds_of(argument)
        made = _cells(aggregation, building, (argument,), 2, missing=not set(places).isdisjoint(asked.every))
        (grid,) = made.grids
        first, width = grid.step * grid.low, grid.step * (grid.high - grid.low)
        read = _Read(parts=made.parts, missing=made.missing, unit=made.unit, first=first, width=width)
        found: Recipes = {}
        for place in places:
            if place in asked.moments:
                found[place] = BernsteinMoments(
                    function=aggregation.aggregates[place].function,
                    parts=made.parts,
                    unit=made.unit,
                    width_x=width,
                    width_y=width,
                )
            elif place in asked.means:
                found[place] = BernsteinMean(
                    parts=made.parts, unit=made.unit, first=first, width=width, low=bounds.low, high=bounds.high
                )
            else:
                found[place] = read.of(asked, place)
        return found

    return Way(places, build)


def _pair_way(aggregation: Aggregation, pair: tuple[Argument, ...], places: tuple[int, ...], degree: int) -> Way:
    """Covariances of two arguments from the products of their ends, correlations from those of degree 2 each."""

    def build(building: Building) -> Recipes:
        found: Recipes = {}
        made = _cells(aggregation, building, pair, degree, missing=False)
        x, y = (grid.step * (grid.high - grid.low) for grid in made.grids)
        for place in places:
            function = aggregation.aggregates[place].function
            found[place] = BernsteinMoments(function=function, parts=made.parts, unit=made.unit, width_x=x, width_y=y)
        return found

    return Way(places, build)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """How counts and sums are read off the cells of one argument, upwards, of which a row adds ``unit`` to all."""

    parts: tuple[int, ...]
    missing: int | None
    unit: Fraction
    first: Fraction
    width: Fraction

    def of(self, asked: _AskedOfOne, place: int) -> Recipe:
        """A count of rows with a value or of all rows, or a sum."""
        degree = len(self.parts) - 1
        if place in asked.sums:
            nodes = ((cell, self.first + self.width * j / degree) for j, cell in enumerate(self.parts))
            weights = [(cell, value / self.unit) for cell, value in nodes if value]
            bounds = bounds_of(asked.argument)
            whole = asked.argument.expression.kind is Kind.INTEGER and all(
                end.denominator == 1 for end in (bounds.low, bounds.high)
            )
            return Combined(weights=tuple(sorted(weights)), whole=whole)
        counted = self.parts
        if place in asked.every:
            assert self.missing is not None
            counted = (*counted, self.missing)
        return Combined(weights=tuple((cell, 1 / self.unit) for cell in sorted(counted)), whole=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cells:
    parts: tuple[int, ...]
    missing: int | None
    unit: Fraction
    grids: tuple[WholeGrid, ...]


def _cells(
    aggregation: Aggregation, building: Building, arguments: tuple[Argument, ...], degree: int, *, missing: bool
) -> _Cells:
    """The cells of all polynomials of a degree in each argument, with their binomial factors as weights.

    What a row adds to all of them, the product of the widths to the power of the degree, is divided by what brings it
    to the largest part there may be; each product is rounded down, so that their sum doesn't grow.
    """
    # a unit of more rows counts with its mean, rounded down: a finer grid keeps that from biasing averages
    finer = {} if aggregation.units == "column" else {"finer": 0}
    half = MOST[degree * len(arguments)]
    grids = tuple(centred_grid(argument, bounds_of(argument), half, **finer) for argument in arguments)
    whole = 1
    for grid in grids:
        whole *= (grid.high - grid.low) ** degree
    divisor = ceil_div(whole * building.rows, LARGEST_PART)
    most = whole * building.rows // divisor
    up = [grid_of(argument, grid, down=False) for argument, grid in zip(arguments, grids, strict=True)]
    down = [grid_of(argument, grid, down=True) for argument, grid in zip(arguments, grids, strict=True)]
    cells: list[tuple[tuple[Total, int], ...]] = []
    for powers in itertools.product(range(degree + 1), repeat=len(arguments)):
        factors: list[Gridded] = []
        times = 1
        for place, power in enumerate(powers):
            factors += [up[place]] * power + [down[place]] * (degree - power)
            times *= (1, 2, 1)[power] if degree == 2 else 1
        total = Total(factors=tuple(factors), present=(), low=0, high=most, cap=Cap.MEAN, divisor=divisor)
        cells.append(((total, times),))
    each = whole // divisor
    if missing:
        rows, there = ((0, building.rows) for _ in range(2))
        present = tuple(argument.expression for argument in arguments)
        cells.append(((total_of((), (), rows), each), (total_of((), present, there), -each)))
    places = building.basis(most, *cells)
    return _Cells(
        parts=places[: len(places) - missing],
        missing=places[-1] if missing else None,
        unit=Fraction(whole, divisor),
        grids=grids,
    )


def grid_of(argument: Argument, grid: WholeGrid, *, down: bool) -> Gridded:
    """The argument counted upwards from the lower end, or downwards from the upper one."""
    return Gridded(
        expression=argument.expression,
        step=grid.step,
        low=grid.low,
        high=grid.high,
        offset=0 if down else grid.low,
        down=down,
    )
