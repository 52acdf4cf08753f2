"""All aggregates, and how an aggregation becomes cells that an engine measures, with recipes that read them.

A new aggregate is a file beside this one and a line here.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from fractions import Fraction
from typing import Any

from dither.brief import brief
from dither.errors import InvalidParameter, Refused
from dither.privacy import Adjacency
from dither.query.aggregates import bernstein, count, mean, mode, moments, quantile, sum as sums
from dither.query.aggregates.base import (
    AggregateChoice,
    Building,
    Cell,
    ChosenValue,
    Constant,
    Definition,
    Linear,
    Recipe,
    place_in,
)
from dither.query.aggregates.bases import Way
from dither.query.aggregates.vicinity import Vicinity
from dither.query.kinds import Expression, Kind
from dither.query.measure.measures import (
    LARGEST_PART,
    Cap,
    DistinctValues,
    Exact,
    Measurement,
    Reach,
    Span,
    Total,
    WeightedTotals,
    basis_reach,
    reach_of,
    scaled_reach,
)
from dither.query.plan.plan import Aggregate, Aggregation, Function

MOST_GROUPS = 1_000_000
# Quantiles and modes are drawn group by group, about a millisecond each.
MOST_CHOSEN_GROUPS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Lowered:
    """What to measure and how to read it.

    ``cells`` get noise, ``choices`` are made by a mechanism of their own, ``vicinities`` are counted around them.
    ``units`` is the place among the totals of the number of units in each group, where keys must be discovered by it.
    ``blocks`` has every cell once, those of one basis together.
    """

    measurement: Measurement
    cells: tuple[Cell, ...]
    blocks: tuple[tuple[int, ...], ...]
    choices: tuple[AggregateChoice, ...]
    vicinities: tuple[Vicinity, ...]
    recipes: tuple[Recipe, ...]
    units: int | None
    span: Span

    __repr__ = brief

    def reaches(self, adjacency: Adjacency) -> tuple[Reach, ...]:
        """How far one unit moves each cell, or the whole basis that it is part of."""
        found: dict[int, Reach] = {}
        for block in self.blocks:
            first = self.cells[block[0]]
            alone = len(block) == 1
            if isinstance(first.exact, Total) and first.exact.cap is Cap.SCALE:
                found |= dict.fromkeys(block, scaled_reach(first.low, first.high, self.span, adjacency))
                continue
            reach = (
                reach_of(first.low, first.high, self.span, adjacency)
                if alone
                else basis_reach(len(block), first.high, self.span, adjacency)
            )
            found |= dict.fromkeys(block, reach)
        return tuple(found[place] for place in range(len(self.cells)))

    def blocks_of(self, recipe: Recipe) -> tuple[tuple[int, ...], ...]:
        """The blocks that a recipe is read off, each once."""
        return tuple(block for block in self.blocks if not set(block).isdisjoint(recipe.cells))


def lower(aggregation: Aggregation, ways: Sequence[Way] = ()) -> Lowered:
    """The measurement of an aggregation and the recipe of each aggregate; raises Refused for public reasons only.

    What ``ways`` name is read off the basis of each; the others as their definitions say.
    """
    groups, rows = aggregation.groups, aggregation.rows
    if aggregation.units == "row" and (groups, rows) != (1, 1):
        raise InvalidParameter("at row level a unit is one row in one group: state groups = 1 and rows = 1")
    if rows > LARGEST_PART:
        raise Refused("a unit may count with too many rows", code="rows_too_many", hint="Lower max_rows_contributed.")
    span = Span.of(groups, public_groups(aggregation))
    if aggregation.scaled and (ways or not can_be_scaled(aggregation)):
        raise InvalidParameter("only counts and sums over public groups can be scaled down, each by itself")
    together = {place for way in ways for place in way.places}
    others = {place: each for place, each in enumerate(aggregation.aggregates) if place not in together}
    building = Building(rows, alone=_alone(tuple(others.values())), scaled=aggregation.scaled, groups=span.groups)
    found = {place: recipe for way in ways for place, recipe in way.build(building).items()}
    found |= {place: BY_FUNCTION[each.function].lower(building, each) for place, each in others.items()}
    recipes = tuple(found[place] for place in range(len(aggregation.aggregates)))
    if building.choices and span.cells is not None and span.cells > MOST_CHOSEN_GROUPS:
        raise Refused(
            f"quantiles and modes are answered for at most {MOST_CHOSEN_GROUPS:,} groups",
            code="too_many_groups",
            hint="Group by fewer keys, or by coarser ones.",
        )
    totals: list[Total] = []
    for cell in building.cells:
        for total in _totals_of(cell.exact):
            place_in(totals, total)
    units = None
    if aggregation.discover:
        units = place_in(totals, Total(factors=(), present=(), low=0, high=1, cap=Cap.CLAMP))
    joined = {place for basis in building.bases for place in basis}
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
        blocks=(*building.bases, *((place,) for place in range(len(building.cells)) if place not in joined)),
        choices=tuple(building.choices),
        vicinities=tuple(building.vicinities),
        recipes=recipes,
        units=units,
        span=span,
    )


def can_be_scaled(aggregation: Aggregation) -> bool:
    """Whether a unit's whole part, in all groups together, can be bounded at once: counts and sums in public groups."""
    counted = (Function.COUNT, Function.COUNT_UNITS, Function.SUM)
    plain = all(one.function in counted and one.per_group is None for one in aggregation.aggregates)
    return plain and bool(aggregation.keys) and not aggregation.discover and aggregation.units == "column"


def _alone(aggregates: Sequence[Aggregate]) -> frozenset[Expression]:
    """Arguments about which only one kind of aggregate asks: nobody else has a use for their count."""
    asked: dict[Expression, set[Function]] = {}
    for aggregate in aggregates:
        for argument in aggregate.arguments:
            if aggregate.function is not Function.AVG_PER_UNIT:  # which counts units
                asked.setdefault(argument.expression, set()).add(aggregate.function)
    return frozenset(expression for expression, functions in asked.items() if len(functions) == 1)


def _totals_of(exact: Exact) -> tuple[Total, ...]:
    if isinstance(exact, WeightedTotals):
        return tuple(total for total, _ in exact.parts)
    return (exact,) if isinstance(exact, Total) else ()


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


# ---------------------------------------------------------------------------------------------- all aggregates


DEFINITIONS: Mapping[str, Definition] = {
    definition.name: definition
    for module in (count, sums, mean, moments, quantile, mode)
    for definition in module.DEFINITIONS
}
"""By name."""

AGGREGATES: Mapping[str, str] = {
    **{spelling: each.name for each in DEFINITIONS.values() for spelling in each.spellings},
    **{extreme: extreme for extreme in quantile.EXTREMES},
}
"""Spellings of the aggregates, and the name that each stands for."""

BY_FUNCTION: Mapping[Function, Definition] = {
    function: definition for definition in DEFINITIONS.values() for function in definition.functions
}
"""The definition by which each aggregate of a plan is lowered."""

_CLASSES: Mapping[str, type[Any]] = {
    "constant": Constant,
    "linear": Linear,
    "centred": mean.Centred,
    "product": moments.Product,
    "mean": mean.Mean,
    "ends": mean.Ends,
    "unit_ends": mean.UnitEnds,
    "moments": moments.MomentsRecipe,
    "chosen": ChosenValue,
    "combined": bernstein.Combined,
    "bernstein_mean": bernstein.BernsteinMean,
    "bernstein_moments": bernstein.BernsteinMoments,
    "quantile": quantile.Located,
    "different": count.Different,
}
_TAGS = {made: tag for tag, made in _CLASSES.items()}
_ENUMS: Mapping[str, type[Enum]] = {"function": Function, "kind": Kind}


def to_json(value: Any) -> Any:
    """The JSON form of a recipe or of anything inside one: plain values as they are, the rest as [tag, content]."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return ["float", value.hex()]
    if isinstance(value, Fraction):
        return ["fraction", str(value)]
    if isinstance(value, dt.datetime):
        return ["datetime", value.isoformat()]
    if isinstance(value, dt.date):
        return ["date", value.isoformat()]
    if isinstance(value, tuple):
        return ["tuple", [to_json(item) for item in value]]
    for tag, enum in _ENUMS.items():
        if isinstance(value, enum):
            return [tag, value.value]
    return [_TAGS[type(value)], {field.name: to_json(getattr(value, field.name)) for field in fields(value)}]


def from_json(form: Any) -> Any:
    """The inverse of ``to_json``."""
    if form is None or isinstance(form, bool | int | str):
        return form
    if not isinstance(form, list) or len(form) != 2:
        raise InvalidParameter("expected the JSON form of a recipe: a plain value or [tag, content]")
    tag, content = form
    if tag == "float":
        return float.fromhex(content)
    if tag == "fraction":
        return Fraction(content)
    if tag == "datetime":
        return dt.datetime.fromisoformat(content)
    if tag == "date":
        return dt.date.fromisoformat(content)
    if tag == "tuple":
        return tuple(from_json(item) for item in content)
    if tag in _ENUMS:
        return _ENUMS[tag](content)
    if tag not in _CLASSES:
        raise InvalidParameter(f"unknown recipe {tag!r}; known: {', '.join(sorted(_CLASSES))}")
    return _CLASSES[tag](**{name: from_json(inner) for name, inner in content.items()})
