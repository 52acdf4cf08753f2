"""The mean of numbers from randomised reports: what every protocol for a number has in common, and its intervals.

A protocol puts a number on a public grid between public bounds, by a coin that keeps its mean, and answers the point k
with one of finitely many outputs, whose probabilities are known fractions. Every output stands for a number such that
the mean of what is sent equals the point: so the mean of the reports is unbiased. Proof in ``means.md``.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from dither.entropy import SYSTEM, Source
from dither.errors import InvalidData, InvalidParameter
from dither.local.clients.base import bytes_for
from dither.local.clients.means import Bounds
from dither.local.core.bits import in_blocks
from dither.local.core.protocol import Aggregator, Counts, Field, Floats, Payloads, Protocol
from dither.local.core.tables import within
from dither.local.frequency.oracle import Ints, number_rows, row_numbers
from dither.mechanisms.base import failure_probability
from dither.numeric import Number, as_fraction, positive_int, up

P = TypeVar("P", bound=Protocol)

# As many people at a time as keep all arrays in the cache.
BLOCK_PEOPLE = 1 << 15
# Allowance for sums of floats in the ends of intervals, which go outwards; relative to the distance of the bounds.
SLACK = 1e-9
# No exponential of the Chernoff bound exceeds e^500.
LARGEST_EXPONENT = 500.0
# The constant of Berry's and Esseen's theorem for terms of different laws (Shevtsova 2010).
BERRY_ESSEEN = 0.56
UNIT = (Fraction(0), Fraction(1))
# A grid is at least this fine unless told otherwise.
LEAST_STEPS = 64
# Grids of so few steps have laws that can be listed in full.
FEW_STEPS = 6


def _bounds(description: Mapping[str, Any], name: str) -> tuple[Fraction, Fraction]:
    known = Bounds(description.get(name))
    return known.low, known.high


BOUNDS = Field(_bounds, lambda bounds: [str(end) for end in bounds])


class LocalMean(Protocol):
    """Estimates the mean of a number that everybody has.

    A subclass is a frozen dataclass with a field ``bounds``. Positions are relative to the bounds, from 0 to 1; points
    are 0 … ``steps``; outputs are 0 … ``outputs`` − 1.

    Guarantee: a report is private as ``loss()`` states, under REPLACE, for any two numbers whatsoever.
    Assumes: the bounds are public; what lies outside is clamped, and the mean is that of the clamped numbers.
    Accuracy: unbiased; ``variance`` is exact, and ``estimate`` has intervals that cover for any population.
    """

    bounds: tuple[Fraction, Fraction]

    # ------------------------------------------------------------------ what a subclass says

    @property
    @abstractmethod
    def steps(self) -> int:
        """The number of steps of the grid."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """The number of different reports."""

    @abstractmethod
    def law(self, point: int) -> tuple[Fraction, ...]:
        """The exact probability of every output for a point of the grid."""

    @abstractmethod
    def decode(self, output: int) -> Fraction:
        """The position that an output stands for, exactly; it may lie outside of 0 … 1."""

    @abstractmethod
    def decoded(self) -> Floats:
        """The positions of all outputs."""

    @abstractmethod
    def second_moments(self) -> Floats:
        """For every point the mean square of the position that is sent."""

    @abstractmethod
    def respond(self, points: Ints, source: Source) -> Ints:
        """The outputs for many points."""

    @abstractmethod
    def reduced(self) -> LocalMean:
        """The same protocol on a grid of so few steps that the law of its client can be listed in full."""

    # ------------------------------------------------------------------ what follows for all

    @property
    def spread(self) -> Fraction:
        """The distance of the bounds."""
        return self.bounds[1] - self.bounds[0]

    @property
    def width(self) -> int:
        """As many bytes as the largest output needs."""
        return bytes_for(self.outputs)

    def inputs(self) -> list[Fraction]:
        """The bounds and three numbers between them."""
        return [self.bounds[0] + self.spread * Fraction(part, 8) for part in (0, 1, 4, 7, 8)]

    def randomize(self, values: Any, *, source: Source = SYSTEM) -> Payloads:
        """Payloads of many people, one row each, of the same law as the client's."""

        def draw(some: Floats) -> Payloads:
            points = points_of(some, self.bounds, self.steps, source)
            return number_rows(self.respond(points, source), self.width)

        return in_blocks(checked_numbers(values), self.width, BLOCK_PEOPLE, draw)

    def valid(self, payloads: Payloads) -> npt.NDArray[np.bool_]:
        """Rows that are the number of an output."""
        return np.asarray(row_numbers(payloads).astype(np.int64) < self.outputs)

    def variance(self, n: int, value: Number | None = None) -> float:
        """The variance that the reports of ``n`` people who have ``value`` add to their mean.

        By default for the value where it is largest. If people are sampled from a population, its variance/n comes on
        top.
        """
        count, unit, moments = positive_int(n, "n"), float(self.spread) ** 2, self.second_moments()
        if value is None:
            return float(largest_variance(moments) * unit / count)
        clamped = min(max(as_fraction(value, "value"), self.bounds[0]), self.bounds[1])
        position = (clamped - self.bounds[0]) / self.spread
        place = min(int(position * self.steps), self.steps - 1)
        rest = float(position * self.steps - place)
        square = moments[place] * (1 - rest) + moments[place + 1] * rest
        return float((square - float(position) ** 2) * unit / count)

    def error(self, confidence: Number = 0.95, *, n: int) -> float:
        """The error that the estimate from ``n`` reports doesn't exceed with this confidence, for any population."""
        failure = failure_probability(confidence)
        laws = self.end_laws()
        return up(float(self.spread) * chernoff_error(self.decoded(), laws, positive_int(n, "n"), failure))

    def end_laws(self) -> tuple[Floats, Floats]:
        """The laws of the two ends of the grid, as floats."""
        first, last = (np.array([float(p) for p in self.law(end)]) for end in (0, self.steps))
        return first, last

    def position_interval(self, counts: Counts, failure: float) -> tuple[float, float]:
        """Where the mean position lies, from how often each output was sent.

        By the normal law with its proven error where there are reports enough, else by Chernoff's bound. Which of them
        depends on the number of reports alone, so that nothing has to be paid for the choice.
        """
        n, found = int(counts.sum()), self.decoded()
        mean = float(counts @ found) / n
        factors = normal_factors(found, math.sqrt(least_variance(self.second_moments())), n, failure)
        if factors is None:
            return chernoff_interval(found, self.end_laws(), mean, n, failure)
        deviation = math.sqrt(float(counts @ (found - mean) ** 2) / (n - 1))
        reach = factors[0] * (deviation + factors[1]) / math.sqrt(n) + SLACK
        return min(max(mean - reach, 0.0), 1.0), max(min(mean + reach, 1.0), 0.0)

    def aggregator(self) -> MeanAggregator:
        """An empty aggregate for this collection."""
        return MeanAggregator(self)

    def estimate_from(self, counts: Counts, *, confidence: Number, comparisons: int = 1) -> MeanEstimate:
        """The mean from how often each output was sent; the interval fails 1/``comparisons`` as often."""
        n = int(counts.sum())
        low, spread = float(self.bounds[0]), float(self.spread)
        found = self.decoded()
        mean = float(counts @ found) / n
        if n > 1:
            variance = float(counts @ (found - mean) ** 2) / (n - 1) / n
        else:
            # one report can't show any spread: the worst of reports and population
            variance = float(largest_variance(self.second_moments())) + 0.25
        ends = self.position_interval(counts, failure_probability(confidence) / comparisons)
        return MeanEstimate(
            value=low + spread * mean,
            variance=spread**2 * variance,
            interval=(low + spread * ends[0], low + spread * ends[1]),
            confidence=float(as_fraction(confidence)),
            reports=n,
        )


class MeanAggregator(Aggregator["MeanEstimate"]):
    """Counts how often each output was sent."""

    protocol: LocalMean
    once = "counts"

    def __init__(self, protocol: LocalMean) -> None:
        super().__init__(protocol, counts=np.zeros(protocol.outputs, dtype=np.int64))

    def count(self, payloads: Payloads) -> None:
        """Add valid payloads."""
        self.counters["counts"] += np.bincount(row_numbers(payloads), minlength=self.protocol.outputs)

    def estimate(self, confidence: Number = 0.95) -> MeanEstimate:
        """The mean, unbiased, so it may leave the bounds; the interval is cut to them."""
        self.expect_reports()
        return self.protocol.estimate_from(self.counters["counts"], confidence=confidence)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanEstimate:
    """A mean read off randomised reports.

    ``value`` is unbiased, and ``variance`` an unbiased estimate of its variance, sampling of people included.
    ``interval`` holds the mean with probability of at least ``confidence``: that of the people who reported, and that
    of the population that they are an independent sample of, each by itself.
    """

    value: float
    variance: float
    interval: tuple[float, float]
    confidence: float
    reports: int

    def __str__(self) -> str:
        low, high = self.interval
        value = within(self.value, self.interval)
        return f"{value:.4g} ({100 * self.confidence:g}% interval {low:.4g} … {high:.4g}; {self.reports:,} reports)"


# ------------------------------------------------------------------ bounds and numbers


def checked_bounds(bounds: Any) -> tuple[Fraction, Fraction]:
    """Two numbers, the lower one first, that floats can tell apart."""
    try:
        low, high = (as_fraction(end, "bounds") for end in bounds)
        Bounds([str(low), str(high)])
        apart = math.isfinite(float(high - low)) and float(low) < float(high)
    except (TypeError, ValueError, OverflowError):
        apart = False
    if not apart:
        raise InvalidParameter("bounds must be two numbers, the lower one first, that floats can tell apart")
    return low, high


def checked_steps(steps: int, most: int, name: str = "steps") -> int:
    """A number of steps or cells."""
    if positive_int(steps, name) > most:
        raise InvalidParameter(f"{name} must be at most {most}; got {steps!r}")
    return int(steps)


def checked_numbers(values: Any, columns: int | None = None) -> Floats:
    """A list of numbers as floats, or a table with ``columns`` columns; the error message repeats no value."""
    shape = "a list of numbers" if columns is None else f"a table of numbers with {columns} columns"
    try:
        array = np.asarray(values)
        if array.dtype.kind == "O" and all(
            issubclass(kind, int | float | Fraction) for kind in set(map(type, array.flat))
        ):
            array = array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        array = np.zeros((), dtype=np.bool_)
    fits = array.ndim == 1 if columns is None else array.ndim == 2 and array.shape[1] == columns
    if array.size == 0 and array.ndim >= 1:
        return np.zeros((0,) if columns is None else (0, columns))
    if isinstance(values, np.ma.MaskedArray) or not fits or array.dtype.kind not in "iuf" or np.isnan(array).any():
        raise InvalidData(f"the values must be {shape}, without NaN; nothing was drawn")
    return np.asarray(array, dtype=np.float64)


def points_of(values: Floats, bounds: tuple[Fraction, Fraction], steps: int, source: Source) -> Ints:
    """For every value one of the two points around it, such that their mean is the value.

    Privacy doesn't rest on this coin: the loss holds for any two points. So floats are good enough for it.
    """
    low, high = float(bounds[0]), float(bounds[1])
    places = np.clip(values, low, high)
    places -= low
    places *= steps / (high - low)
    np.clip(places, 0.0, steps, out=places)
    below = np.floor(places)
    coins = (source.u64(values.size) >> np.uint64(11)).astype(np.float64).reshape(values.shape)
    coins *= 2.0**-53
    places -= below
    below += coins < places
    return below.astype(np.int64)


def largest_variance(moments: Floats) -> float:
    """The largest variance between the ends of the grid, from the mean squares at its points.

    Between two points the mean square is a line and the square of the mean a parabola.
    """
    steps = moments.size - 1
    slopes = np.diff(moments) * steps
    starts = np.arange(steps) / steps
    best = np.clip(slopes / 2, starts, starts + 1 / steps)
    return float((moments[:-1] + slopes * (best - starts) - best**2).max())


def least_variance(moments: Floats) -> float:
    """The smallest variance between the ends of the grid: at a point, since it is concave between two."""
    steps = moments.size - 1
    return float((moments - (np.arange(steps + 1) / steps) ** 2).min())


# ------------------------------------------------------------------ the normal law, with its error


def normal_factors(found: Floats, least: float, n: int, failure: float) -> tuple[float, float] | None:
    """Factors z and m: mean ± z·(sample deviation + m)/√n covers; None if Chernoff's interval would be narrower.

    The mean of independent reports is normal up to 0.56·R/(σ√n) (Shevtsova 2010), where no report is further than R
    from its mean, and σ² ≥ ``least``² is their mean variance. The sample deviation + m exceeds σ but with probability
    failure/20, for m = width·√(2·ln(20/failure)/(n−1)) (Maurer & Pontil 2009, Theorem 10).
    """
    if n < 2 or least <= 0:
        return None
    furthest = max(float(found.max()), 1 - float(found.min()))
    tail = failure * (1 - 1 / 20) / 2 - BERRY_ESSEEN * furthest / (least * math.sqrt(n))
    if tail <= 0:
        return None
    z = up(-float(ndtri(tail)), 1e-12)
    more = float(found.max() - found.min()) * math.sqrt(2 * math.log(20 / failure) / (n - 1))
    return (z, more) if z * (1 + more / least) < math.sqrt(2 * math.log(2 / failure)) else None


# ------------------------------------------------------------------ Chernoff's bound
#
# For a population of mean position u, E[e^{sX}] of one report is at most (1−u)·M₀(s) + u·M₁(s), M₀ and M₁ being those
# of the two ends, since E[e^{sX}] is convex in the point. So Pr[mean of n ≥ x] ≤ (that·e^{−sx})^n for every s > 0.


def chernoff_interval(
    found: Floats, laws: tuple[Floats, Floats], mean: float, n: int, failure: float
) -> tuple[float, float]:
    """All u between 0 and 1 for which neither so small nor so large a mean is a surprise.

    u is too small if (1−u)·M₀ + u·M₁ ≤ e^{s·mean − ln(2/failure)/n} for some s > 0, which is solved for u; every s
    gives a valid end, so no harm if the search stops early. The other end is the mirror image.
    """
    budget = up(math.log(2 / failure)) / n
    low = _too_small(found, laws, mean, budget)
    high = 1 - _too_small(1 - found, (laws[1], laws[0]), 1 - mean, budget)
    return min(max(low - SLACK, 0.0), 1.0), max(min(high + SLACK, 1.0), 0.0)


def _too_small(found: Floats, laws: tuple[Floats, Floats], mean: float, budget: float) -> float:
    def end(log_s: float) -> float:
        s = math.exp(log_s)
        exponents = s * found
        # differences from 1 keep their digits where s is small
        base = float(laws[0] @ np.expm1(exponents))
        gap = float((laws[1] - laws[0]) @ np.exp(exponents))
        reach = s * mean - budget
        return (math.expm1(min(reach, LARGEST_EXPONENT)) - base) / gap

    return max(0.0, -_search(lambda log_s: -end(log_s), found, laws, budget))


def chernoff_error(found: Floats, laws: tuple[Floats, Floats], n: int, failure: float) -> float:
    """An error of the mean that has probability at most ``failure`` whatever the population is."""
    budget = up(math.log(2 / failure)) / n
    sides = ((found, laws), (1 - found, (laws[1], laws[0])))
    return max(_search(_deviation(side, ends, budget), side, ends, budget) for side, ends in sides) + SLACK


def _deviation(found: Floats, laws: tuple[Floats, Floats], budget: float) -> Callable[[float], float]:
    """(ψ(s) + budget)/s, where ψ = ln((1−u)M₀ + u·M₁) − s·u is largest at u = 1/s − M₀/(M₁ − M₀)."""

    def bound(log_s: float) -> float:
        s = math.exp(log_s)
        exponents = s * found
        base = float(laws[0] @ np.expm1(exponents))
        gap = float((laws[1] - laws[0]) @ np.exp(exponents))
        u = min(1.0, max(0.0, 1 / s - (1 + base) / gap))
        # near its largest value ψ is flat: what u misses costs far less than this allowance
        psi = max(math.log1p(base + gap * u) - s * u, 0.0) * (1 + 1e-6)
        return (psi + budget) / s

    return bound


def _search(bound: Callable[[float], float], found: Floats, laws: tuple[Floats, Floats], budget: float) -> float:
    """The least value of a bound over ln s, around where that of a normal law would have it."""
    from scipy.optimize import minimize_scalar  # slow to import, and few need it

    spread = max(float(law @ (found - law @ found) ** 2) for law in laws) + 0.25
    most = math.log(LARGEST_EXPONENT / max(1.0, float(np.abs(found).max())))
    centre = min(0.5 * math.log(2 * budget / spread), most)
    result = minimize_scalar(bound, bounds=(centre - 3, min(centre + 3, most)), method="bounded")
    return float(bound(float(result.x)))
