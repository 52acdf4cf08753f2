"""Lowering: an aggregation becomes whole-number cells that an engine measures, and recipes that read them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from dither.brief import brief
from dither.errors import InvalidParameter, Refused
from dither.query.aggregates.base import (
    AggregateChoice,
    Building,
    Cell,
    Chooser,
    Mechanisms,
    PredictedError,
    Recipe,
    place_in,
)
from dither.query.aggregates.catalogue import BY_FUNCTION
from dither.query.aggregates.spread import Noise
from dither.query.measure.measures import LARGEST_PART, Cap, DistinctValues, Measurement, Total
from dither.query.measure.sensitivity import Span
from dither.query.plan.plan import Aggregation

MOST_GROUPS = 1_000_000
# Quantiles and modes are drawn group by group, about a millisecond each.
MOST_CHOSEN_GROUPS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Lowered:
    """What to measure and how to read it.

    ``cells`` get noise, ``choices`` are made by a mechanism of their own. ``units`` is the place among the totals of
    the number of units in each group, where keys must be discovered by it.
    """

    measurement: Measurement
    cells: tuple[Cell, ...]
    choices: tuple[AggregateChoice, ...]
    recipes: tuple[Recipe, ...]
    units: int | None
    span: Span

    __repr__ = brief

    def predict(
        self, noise: Sequence[Noise], choosers: Sequence[Chooser], confidence: Fraction
    ) -> tuple[PredictedError, ...]:
        """The error of each aggregate, as far as it is known before data is read."""
        by = Mechanisms(noise=noise, choices=self.choices, choosers=choosers)
        return tuple(recipe.predicted(by, confidence) for recipe in self.recipes)


def lower(aggregation: Aggregation) -> Lowered:
    """The measurement of an aggregation and the recipe of each aggregate; raises Refused for public reasons only."""
    groups, rows = aggregation.groups, aggregation.rows
    if aggregation.units == "row" and (groups, rows) != (1, 1):
        raise InvalidParameter("at row level a unit is one row in one group: state groups = 1 and rows = 1")
    if rows > LARGEST_PART:
        raise Refused("a unit may count with too many rows", code="rows_too_many", hint="Lower max_rows_contributed.")
    span = Span.of(groups, public_groups(aggregation))
    building = Building(rows)
    recipes = tuple(BY_FUNCTION[each.function].lower(building, each) for each in aggregation.aggregates)
    if building.choices and span.cells is not None and span.cells > MOST_CHOSEN_GROUPS:
        raise Refused(
            f"quantiles and modes are answered for at most {MOST_CHOSEN_GROUPS:,} groups",
            code="too_many_groups",
            hint="Group by fewer keys, or by coarser ones.",
        )
    totals = [cell.exact for cell in building.cells if isinstance(cell.exact, Total)]
    units = None
    if aggregation.discover:
        units = place_in(totals, Total(factors=(), present=(), low=0, high=1, cap=Cap.CLAMP))
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
