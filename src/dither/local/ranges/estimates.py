"""What reports about an ordered domain say: shares of ranges, the distribution function, quantiles, with intervals."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from dither.errors import InvalidParameter
from dither.local.clients.base import ValueDomain
from dither.local.core.protocol import Floats, Protocol
from dither.local.core.tables import EstimateTable, Shown, meaning, rows_of
from dither.local.frequency.oracle import Label
from dither.mechanisms.base import failure_probability
from dither.numeric import Number, as_fraction

# Number of values that a distribution function is shown at.
TENTHS = 10
# From two places, first and one beyond the last: the estimate, and the middle and half the width of its interval.
RangeOf: TypeAlias = Callable[[int, int], tuple[float, float, float]]


class OrderedRanges(Protocol):
    """A protocol for an ordered list of values."""

    _known: ValueDomain

    @property
    def size(self) -> int:
        """The number of values."""
        return self._known.size

    @property
    def ordered(self) -> ValueDomain:
        """The values in their order."""
        return self._known

    def estimates(
        self,
        cumulative: Floats,
        centres: Floats,
        proxies: Floats,
        range_of: RangeOf,
        *,
        reports: int,
        confidence: Number,
        simultaneous: bool,
    ) -> RangeEstimates:
        """The estimates of a cumulative distribution; ``proxies`` stand for variances in Hoeffding's inequality."""
        # of all values together nothing has to be estimated
        cumulative[self.size], centres[self.size], proxies[self.size] = 1.0, 1.0, 0.0
        budget = math.log(2 / failure_probability(confidence) * (self.size - 1 if simultaneous else 1))
        return RangeEstimates(
            cumulative=cumulative,
            centres=centres,
            errors=np.sqrt(2 * proxies * budget) * (1 + 1e-12),
            confidence=float(as_fraction(confidence)),
            simultaneous=simultaneous,
            reports=reports,
            domain=self._known,
            range_of=range_of,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeShare:
    """The share of a range; ``interval`` holds the true one with probability of at least ``confidence``."""

    value: float
    interval: tuple[float, float]
    confidence: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantileEstimate:
    """A quantile: the least value with a share of at least q at or below it. ``interval`` holds it as stated."""

    value: Label
    interval: tuple[Label, Label]
    confidence: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class RangeEstimates(Shown):
    """Shares of all ranges of an ordered domain, from randomised reports; a table of tenths when printed.

    ``cumulative[i]`` estimates the share of values before place i, ``centres`` and ``errors`` are the middle and half
    the width of its interval. Intervals hold for the population that people are an independent sample of: each by
    itself, or, for the distribution function, all together if ``simultaneous``.
    """

    cumulative: Floats
    centres: Floats
    errors: Floats
    confidence: float
    simultaneous: bool
    reports: int
    domain: ValueDomain
    range_of: RangeOf

    def share(self, first: Label, last: Label) -> RangeShare:
        """The share of the values from ``first`` to ``last``, both included; its interval holds by itself."""
        start, end = self.domain.place(first), self.domain.place(last) + 1
        if start >= end:
            raise InvalidParameter("the first value of a range must not come after the last")
        value, centre, error = self.range_of(start, end)
        ends = min(max(centre - error, 0.0), 1.0), max(min(centre + error, 1.0), 0.0)
        return RangeShare(value=value, interval=ends, confidence=self.confidence)

    def shares(self) -> Floats:
        """The share of every value by itself: noisy where the domain is large, and possibly negative."""
        return np.diff(self.cumulative)

    def cdf(self) -> Floats:
        """For every value the share of values at or below it, made not to fall, between 0 and 1."""
        rising = np.maximum.accumulate(self.cumulative[1:])
        falling = np.minimum.accumulate(self.cumulative[:0:-1])[::-1]
        return np.clip((rising + falling) / 2, 0.0, 1.0)

    def cdf_intervals(self) -> Floats:
        """The interval of every value of the distribution function."""
        low, high = self.centres[1:] - self.errors[1:], self.centres[1:] + self.errors[1:]
        return np.clip(np.stack([low, high], axis=1), 0.0, 1.0)

    def table(self) -> EstimateTable:
        """The share at or below the values that end each tenth of the domain."""
        size = self.domain.size
        shown = min(size, TENTHS)
        places = [-(-size * part // shown) - 1 for part in range(1, shown + 1)]
        values, ends = self.cdf(), self.cdf_intervals()
        rows = rows_of((self._label(place) for place in places), values[places], ends[places])
        notes = [meaning(self.confidence, simultaneous=self.simultaneous, reports=self.reports)]
        return EstimateTable(names="up to", values="share", rows=rows, number=shown, notes=notes)

    def quantile(self, q: Number) -> QuantileEstimate:
        """The q-quantile; the interval holds all values that aren't refuted as such, so it needs no correction.

        If x is the quantile, then F(x) ≥ q and F(x − 1) < q: x is refuted if the upper end at x lies below q, or the
        lower end at x − 1 isn't below it.
        """
        exact = as_fraction(q, "q")
        if not 0 < exact <= 1:
            raise InvalidParameter(f"q must lie above 0 and be at most 1; got {q!r}")
        goal = float(exact)
        place = min(int(np.searchsorted(self.cdf(), goal, side="left")), self.domain.size - 1)
        ends = self.cdf_intervals()
        below = np.concatenate([[0.0], ends[:-1, 0]])
        left = np.flatnonzero((ends[:, 1] >= goal) & (below < goal))
        low, high = (int(left[0]), int(left[-1])) if left.size else (place, place)
        return QuantileEstimate(
            value=self._label(place),
            interval=(self._label(min(low, place)), self._label(max(high, place))),
            confidence=self.confidence,
        )

    def _label(self, place: int) -> Label:
        return self.domain.values[place]


def unbiased(counts: Floats, reports: int, hit: Fraction, miss: Fraction) -> Floats:
    """Shares from numbers of supporting reports; zeros where there are no reports."""
    if not reports:
        return np.zeros(counts.size)
    return np.asarray((counts / reports - float(miss)) / float(hit - miss))
