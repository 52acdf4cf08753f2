"""MEDIAN and quantiles: a point of a grid, chosen by how far its rank is from the one asked for."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from dither.errors import InvalidParameter
from dither.mechanisms import BoundedRangeLoss, Quantile
from dither.mechanisms.base import Source
from dither.mechanisms.quantile import LARGEST_DENOMINATOR, rank_sensitivity
from dither.privacy import Adjacency, PrivacyLoss
from dither.query.aggregates.base import (
    PER_ROW,
    AggregateChoice,
    Building,
    Chooser,
    ChosenValue,
    Constant,
    Definition,
    Ints,
    Ranks,
    Recipe,
    Written,
    bounded,
    ones_and_zeros,
    the_one,
)
from dither.query.measure.clamped_grids import bin_grid, bounds_of
from dither.query.plan.plan import Aggregate, Function, Gridded
from dither.query.refusals import refused

EXTREMES = {"min": "0.01", "max": "0.99"}
"""What has no private form, being one person's value, and the quantile that is nearly the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantileChoice(AggregateChoice):
    """A quantile of the values counted in ``bins``."""

    bins: int
    grid: Gridded
    quantile: Fraction
    counts: ClassVar[str] = "rows by place on the grid of a quantile"
    drawn: ClassVar[type[np.generic]] = np.float64

    def alone(self, rows: int) -> Fraction:
        """A row counts below or above, and moves ranks by q or 1 − q; the score has both sides of it."""
        return 2 * rows * rank_sensitivity(self.quantile, Adjacency.ADD_REMOVE)

    def chooser(self, scale: Fraction, *, pure: bool) -> Quantile:
        """The exponential mechanism, whatever the budget."""
        del pure
        grid = self.grid
        return Quantile(scale, bounds=(grid.low * grid.step, grid.high * grid.step), step=grid.step, q=self.quantile)

    def loss(self, ratio: Fraction, *, pure: bool) -> PrivacyLoss:
        """That of the exponential mechanism."""
        del pure
        return BoundedRangeLoss(ratio)

    def release(self, chooser: Chooser, bins: Ints, counts: Ints, source: Source) -> float:
        """A point of the grid."""
        assert isinstance(chooser, Quantile)
        drawn = chooser.release_counts(bins, counts, source=source)
        assert isinstance(drawn, float)
        return drawn

    def error(self, chooser: Chooser, confidence: Fraction) -> Ranks:
        """In ranks."""
        assert isinstance(chooser, Quantile)
        return Ranks(chooser.error(confidence))


def _bind_median(call: Written) -> Aggregate:
    call.expect(1)
    return _quantile(call, Fraction(1, 2))


def _bind(call: Written) -> Aggregate:
    descending = call.ordered and call.descending()
    call.expect(1 if call.ordered else 2)
    share = call.number(0 if call.ordered else 1)
    return _quantile(call, 1 - share if share is not None and descending else share)


def _quantile(call: Written, share: Fraction | None) -> Aggregate:
    if share is None or not 0 < share < 1 or share.denominator > LARGEST_DENOMINATOR:
        hint = "Write QUANTILE_CONT(x, 0.95); for the largest value use 0.99, say"
        raise refused("literal", "a quantile is a number between 0 and 1, with at most six digits", hint)
    value = ones_and_zeros(call.over(call.subject()))
    argument = bounded(call, value, call.pair(PER_ROW))
    return Aggregate(function=Function.QUANTILE, arguments=(argument,), quantile=share)


def _lower(building: Building, aggregate: Aggregate) -> Recipe:
    argument, q = the_one(aggregate), aggregate.quantile
    if q is None:
        raise InvalidParameter("a quantile aggregate needs its quantile")
    bounds = bounds_of(argument)
    grid = bin_grid(argument, bounds)
    if grid.low == grid.high or bounds.width == 0:
        return Constant(bounds.low)
    gridded = grid.of(argument.expression)
    choice = QuantileChoice(bins=building.counted(gridded), grid=gridded, quantile=q)
    return ChosenValue(choice=building.choice(choice))


DEFINITIONS = (
    Definition(
        name="median",
        spellings=("median",),
        bind=_bind_median,
        functions=(Function.QUANTILE,),
        lower=_lower,
        examples=("MEDIAN(amount)",),
    ),
    Definition(
        name="quantile",
        spellings=(
            *("quantile", "quantile_cont", "quantile_disc", "percentile_cont", "percentile_disc"),
            *("approx_quantile", "approx_percentile"),
        ),
        bind=_bind,
        functions=(Function.QUANTILE,),
        lower=_lower,
        arguments=("number", "share"),
        examples=("QUANTILE_CONT(rating, 0.9)",),
        within=True,
        several=True,
    ),
)
