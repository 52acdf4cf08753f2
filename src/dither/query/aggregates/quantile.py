"""MEDIAN and quantiles: a point of a grid, chosen by how far its rank is from the one asked for."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dither.errors import InvalidParameter
from dither.mechanisms import BoundedRangeLoss, DiscreteGaussian, Quantile
from dither.mechanisms.base import Source
from dither.mechanisms.quantile import LARGEST_DENOMINATOR, rank_sensitivity
from dither.privacy import Adjacency, PrivacyLoss
from dither.query.aggregates.base import (
    DEFAULT_CONFIDENCE,
    PER_ROW,
    AggregateChoice,
    Bools,
    Building,
    Chooser,
    Constant,
    Definition,
    Estimate,
    Ints,
    Mechanisms,
    Noisy,
    Prediction,
    Ranks,
    Recipe,
    Written,
    bounded,
    ones_and_zeros,
    the_one,
)
from dither.query.aggregates.spread import Floats
from dither.query.aggregates.vicinity import SHARE, empty, interval
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

    def places(self, drawn: npt.NDArray[Any]) -> list[int]:
        """On the grid, from 0; exactly, as doubles tell its points apart."""
        different, index = np.unique(drawn, return_inverse=True)
        found = [round(Fraction(each) / self.grid.step) - self.grid.low for each in different.tolist()]
        return [found[each] for each in index]

    def error(self, chooser: Chooser, confidence: Fraction) -> Ranks:
        """In ranks."""
        assert isinstance(chooser, Quantile)
        return Ranks(chooser.error(confidence))


@dataclass(frozen=True, slots=True, kw_only=True)
class Located(Recipe):
    """A quantile: the point that was drawn, and an interval from the counts around it.

    Places of the grid are points step · (first + place).
    """

    choice: int
    nearby: int
    quantile: Fraction
    step: Fraction
    first: int

    @property
    def choices(self) -> tuple[int, ...]:
        """The one."""
        return (self.choice,)

    def estimate(self, noisy: Noisy, confidence: Fraction = DEFAULT_CONFIDENCE) -> Estimate:
        """What was drawn, between the ends that the counts around it leave."""
        value = noisy.choices[self.choice].astype(np.float64)
        found = interval(noisy.nearby[self.nearby], self.quantile, noisy.nearby_noise[self.nearby], confidence)
        low, high = (self._points(places) for places in found)
        return Estimate.of(value, np.minimum(low, value), np.maximum(high, value))

    def points(self, noisy: Noisy) -> pa.Array[Any]:
        """What was drawn."""
        return pa.array(noisy.choices[self.choice].astype(np.float64))

    def ends(self, noisy: Noisy, confidence: Fraction) -> tuple[Floats, Floats, Bools]:
        """Its interval; of no rows there is no quantile."""
        found = self.estimate(noisy, confidence)
        few = empty(noisy.nearby[self.nearby], noisy.nearby_noise[self.nearby], confidence)
        return found.low.to_numpy(), found.high.to_numpy(), few

    def error(self, by: Mechanisms, confidence: Fraction) -> Prediction:
        """In ranks, that of the draw."""
        return by.choices[self.choice].error(by.choosers[self.choice], confidence)

    def mechanism(self, by: Mechanisms) -> str:
        """The mechanism of the draw, and what its interval is made of."""
        noise = by.nearby[self.nearby]
        law = "Gaussian noise, σ =" if isinstance(noise, DiscreteGaussian) else "Laplace noise, scale"
        chooser = f"exponential mechanism, scale {float(by.choosers[self.choice].scale):.4g}"
        return f"{chooser}; {float(SHARE):.0%} of its budget for the interval: {law} {float(noise.scale):.4g}"

    def _points(self, places: Ints) -> Floats:
        """The doubles nearest to the points, as those that are drawn."""
        different, index = np.unique(places, return_inverse=True)
        points: Floats = np.array([float(self.step * (self.first + place)) for place in different.tolist()])
        return points[index]


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
    choice = building.choice(QuantileChoice(bins=building.counted(gridded), grid=gridded, quantile=q))
    last = grid.high - grid.low
    nearby = building.vicinity(choice, last)
    return Located(choice=choice, nearby=nearby, quantile=q, step=grid.step, first=grid.low)


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
