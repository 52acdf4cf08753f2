"""What a profile that was paid for says: how many units are beyond a bound, give or take its noise."""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass, replace
from fractions import Fraction

from dither.brief import brief
from dither.errors import InvalidParameter
from dither.mechanisms import DiscreteGaussian
from dither.query.aggregates.spread import Noise, quantile_of_sum, standard_deviation
from dither.query.plan.plan import Aggregate, BoundQuestion, Function
from dither.query.plan.profile import LOWER_ENDS, UPPER_ENDS
from dither.query.price.noise import Priced, price

CONFIDENCE = Fraction(19, 20)
# at which the statements about all bounds hold together, so that each does that was picked after looking
SURE = 1 - (1 - CONFIDENCE) / len(LOWER_ENDS)
# how many standard deviations of the noise above a bound count as nobody
MARGIN = 2.5


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitsBeyond:
    """About how many units have more than so many rows, and how far off that may be."""

    rows: int
    units: int
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The noisy number of units in each bin of ``plan.profile``, and the law of the noise that each got by itself.

    Example:
        >>> from dither.mechanisms import DiscreteLaplace
        >>> profile = Profile(counts=(70, 20, 9, *([0] * 13)), noise=DiscreteLaplace(1))
        >>> seen = profile.beyond(2)
        >>> seen.rows, seen.units, round(seen.error, 1)
        (2, 9, 13.1)
        >>> profile.beyond(3).rows, profile.units
        (4, 99)
    """

    counts: tuple[int, ...]
    noise: Noise

    __repr__ = brief

    def __post_init__(self) -> None:
        if len(self.counts) != len(LOWER_ENDS):
            raise InvalidParameter(f"a profile has {len(LOWER_ENDS)} bins; got {len(self.counts)}")

    @property
    def units(self) -> int:
        """About how many units there are."""
        return max(0, sum(self.counts))

    def least_bound(self, spared: float) -> int:
        """The least bound on rows above which no more units are seen than ``spared``, and what noise may make of none.

        ``spared`` is how many units are cut at the bound of least error: there one row more costs as much noise as it
        saves of the cut. Noise in empty bins looks like a few units that have many rows, so the number seen is held
        against MARGIN of its standard deviations: without them tables of one row a unit get bounds in the thousands.
        """
        deviation = standard_deviation(self.noise)
        for place, end in enumerate(UPPER_ENDS):
            above = self.counts[place + 1 :]
            if sum(above) <= spared + MARGIN * deviation * math.sqrt(len(above)):
                return end
        return UPPER_ENDS[-1]

    @property
    def error(self) -> float:
        """How far off the number of one bin may be, at 95%."""
        return self.noise.error(CONFIDENCE)

    def beyond(self, rows: int, *, confidence: Fraction = CONFIDENCE) -> UnitsBeyond:
        """The units that have more rows than the least end of a bin from ``rows`` on.

        What is beyond the last end but one can't be told apart: from there on it is that end.
        """
        place = min(bisect.bisect_left(UPPER_ENDS, rows), len(UPPER_ENDS) - 1)
        counted = self.counts[place + 1 :]
        error = quantile_of_sum([(1.0, self.noise)] * len(counted), confidence)
        return UnitsBeyond(rows=UPPER_ENDS[place], units=max(0, sum(counted)), error=error)


def bounded_rows(question: BoundQuestion, rows: int) -> BoundQuestion:
    """The question with a bound on rows that was left open."""
    return replace(question, aggregation=replace(question.aggregation, rows=rows))


def rows_worth_sparing(priced: Priced) -> float:
    """How many units are cut at the bound on rows of least error, by the noise that one row needs.

    One row more costs the error of that noise, and saves a row of each unit that is cut: they balance where as many
    units are cut as that noise errs, in rows. Of several aggregates the mean.
    """
    reach = [max(-cell.low, cell.high) for cell in priced.lowered.cells]
    errs = [_mean_error(noise) / each for noise, each in zip(priced.noise, reach, strict=True)]
    if priced.aggregation.scaled:
        # one row more costs noise in every group
        errs = [priced.lowered.span.groups * each for each in errs]
    if not errs:
        # nothing but choices: as for a count
        counting = replace(priced.aggregation, aggregates=(Aggregate(function=Function.COUNT),))
        return rows_worth_sparing(price(counting, priced.budget, priced.adjacency))
    return sum(errs) / len(errs)


def _mean_error(noise: Noise) -> float:
    """E|noise|, of a continuous law."""
    return float(noise.scale) * (math.sqrt(2 / math.pi) if isinstance(noise, DiscreteGaussian) else 1.0)
