"""Private quantiles: the exponential mechanism over a declared grid, by rank."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from typing import Any, Self

import numpy as np

from dither.entropy import SYSTEM, Source
from dither.errors import InvalidData, InvalidParameter
from dither.mechanisms.base import FiniteLaw, Floats, Ints, failure_probability, per_coordinate, whole_numbers
from dither.mechanisms.exponential import BoundedRangeLoss, Exponential, largest_range
from dither.numeric import Number, as_fraction, positive, positive_int, smallest_true
from dither.numeric.rounding import near_float
from dither.privacy import Adjacency, Guarantee, PrivacyLoss, compose

LARGEST_GRID = 2**62
# Scores are whole multiples of 1/denominator; float64 holds them exactly for 9·10^9 values and this denominator.
LARGEST_DENOMINATOR = 10**6
LARGEST_SCORE = 2**53
LARGEST_LAW = 2**22


@dataclass(frozen=True, slots=True)
class Quantile:
    """Estimates a quantile, or several, of values that lie within declared bounds.

    A point of the grid from ``bounds[0]`` to ``bounds[1]`` in steps of ``step`` is drawn with probability
    ∝ e^{−(rank error)/scale}. The rank error of x is the distance of q·n from the ranks that x can claim: from the
    number of values below it to the number not above it. ``scale`` is thus a number of ranks. The grid is never listed.
    Values are clamped to the bounds and rounded to the grid; infinities are clamped too, NaN counts as a missing value.
    No value, and no number of them, is refused: an empty table answers as any other.

    Args:
        scale: Scale of the choice: the larger, the less a release costs.
        bounds: Lower and upper bound, stated without looking at the data.
        step: Distance of the points of the grid; smaller ones cost no privacy.
        q: Quantile strictly between 0 and 1, or several in ascending order.

    Guarantee: 2·max(q, 1−q)/scale-private under add_remove and 2/scale-private under replace, for each quantile, with
        the loss of the exponential mechanism (Smith 2011; quantile.md); several quantiles compose.
    Assumes: bounds and step are public, and a unit has at most ``rows`` values.
    Accuracy: rank error at most scale·ln(m(1−β)/β) with probability 1 − β, on a grid of m + 1 points, however many
        values there are.

    Example:
        >>> median = Quantile(scale=10, bounds=(0, 100), step="1/100")
        >>> median.loss(Adjacency.ADD_REMOVE).pure(), median.loss(Adjacency.REPLACE).pure()
        (0.1, 0.2)
        >>> round(median.error(confidence=0.95))
        122
        >>> quartiles = Quantile(scale=8, bounds=(0, 100), step="1/100", q=("1/4", "1/2", "3/4"))
        >>> quartiles.loss(Adjacency.ADD_REMOVE).pure()
        0.5
        >>> Quantile(scale=10, bounds=(0, 1), step="2/3")
        Traceback (most recent call last):
        dither.errors.InvalidParameter: the distance of the bounds must be a whole number of steps, ...
    """

    scale: Fraction
    bounds: tuple[Fraction, Fraction]
    step: Fraction
    q: Fraction | tuple[Fraction, ...]
    _steps: int = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        scale: Number,
        *,
        bounds: tuple[Number, Number],
        step: Number,
        q: Number | Iterable[Number] = Fraction(1, 2),
    ) -> None:
        object.__setattr__(self, "scale", positive(scale, "scale"))
        object.__setattr__(self, "step", positive(step, "step"))
        object.__setattr__(self, "bounds", _checked_bounds(bounds))
        object.__setattr__(self, "_steps", _checked_steps(self.bounds, self.step))
        if isinstance(q, str | int | float | Fraction) or not isinstance(q, Iterable):
            object.__setattr__(self, "q", _checked_quantile(q))
            return
        several = tuple(_checked_quantile(one) for one in q)
        if not several or list(several) != sorted(several):
            raise InvalidParameter("q must be one quantile or several in ascending order")
        object.__setattr__(self, "q", several)

    @property
    def quantiles(self) -> tuple[Fraction, ...]:
        """The quantiles that one release estimates."""
        return self.q if isinstance(self.q, tuple) else (self.q,)

    def loss(self, adjacency: Adjacency = Adjacency.ADD_REMOVE, *, rows: int = 1) -> PrivacyLoss:
        """The cost of one release, for units of at most ``rows`` values each.

        Args:
            adjacency: Which databases are neighbours.
            rows: How many values one unit may have.
        """
        return compose((BoundedRangeLoss(move / self.scale, adjacency), 1) for move in self._ranges(adjacency, rows))

    def _ranges(self, adjacency: Adjacency, rows: int) -> list[Fraction]:
        """Twice the sensitivity of each quantile's score."""
        if not isinstance(adjacency, Adjacency):
            raise InvalidParameter(f"adjacency must be Adjacency.ADD_REMOVE or Adjacency.REPLACE; got {adjacency!r}")
        most = positive_int(rows, "rows")
        return [2 * most * rank_sensitivity(q, adjacency) for q in self.quantiles]

    def error(self, confidence: Number = 0.95) -> float:
        """The rank error that no quantile exceeds with this confidence; known before any data is touched.

        Args:
            confidence: How sure it is, between 0 and 1.
        """
        failure = per_coordinate(failure_probability(confidence), len(self.quantiles))
        return Exponential(self.scale).error(1 - Fraction(failure), candidates=self._steps + 1)

    def release(self, values: Any, *, source: Source = SYSTEM) -> float | tuple[float, ...]:
        """The estimate, or as many as there are quantiles, in ascending order (sorting costs nothing and errs less).

        Args:
            values: The exact values; what lies outside the bounds is clamped.
            source: Source of randomness; anything but the default is for tests.
        """
        return self._draw(*self._pieces(values), source)

    def release_counts(self, places: Any, counts: Any, *, source: Source = SYSTEM) -> float | tuple[float, ...]:
        """As ``release``, for values that come as a histogram: ``counts[i]`` values at place ``places[i]`` of the grid.

        The lower bound is place 0. Places may repeat and come in any order; those beyond the grid count at its ends,
        and a count below 0 as none, so that nothing is refused for what the data says.

        Args:
            places: Points of the grid, counted from the lower bound.
            counts: How many values lie on each.
            source: Source of randomness; anything but the default is for tests.
        """
        held, many = _histogram(places, counts, self._steps)
        return self._draw(*self._cut(held, np.cumsum(many)), source)

    def _draw(
        self, starts: Ints, lengths: Ints, low: Ints, high: Ints, total: int, source: Source
    ) -> float | tuple[float, ...]:
        drawn = []
        for q in self.quantiles:
            scores = _rank_scores(q, low, high, total)
            choice = Exponential(self.scale * q.denominator)
            piece, offset = choice.release_intervals(scores, lengths, source=source)
            drawn.append(int(starts[piece]) + offset)
        points = tuple(self._point(place) for place in sorted(drawn))
        return points if isinstance(self.q, tuple) else points[0]

    def law(self, values: Any) -> FiniteLaw:
        """The probability of each point of the grid, for one quantile on a grid small enough to list.

        Args:
            values: The exact values.
        """
        if isinstance(self.q, tuple) or self._steps >= LARGEST_LAW:
            raise InvalidParameter(f"the law is listed for one quantile and at most {LARGEST_LAW} points only")
        starts, lengths, low, high, total = self._pieces(values)
        scores = np.empty(self._steps + 1)
        listed = _rank_scores(self.q, low, high, total)
        for start, length, score in zip(starts, lengths, listed, strict=True):
            scores[start : start + length] = score
        chances = Exponential(self.scale * self.q.denominator).law(scores).probabilities
        return FiniteLaw(chances, outcomes=[self._point(place) for place in range(self._steps + 1)])

    def worst_pair(self, adjacency: Adjacency = Adjacency.ADD_REMOVE) -> tuple[Floats, Floats]:
        """Two tables that move one score up and another down by as much as any two neighbours can.

        All values are in the middle but for one: it comes to one end, or goes from one end to the other.

        Args:
            adjacency: Which databases are neighbours.
        """
        q = self.quantiles[0]
        odds = max((1 - q) / q, q / (1 - q))
        low, high = float(self.bounds[0]), float(self.bounds[1])
        middle = [self._point(self._steps // 2)] * math.ceil(odds)
        if adjacency is Adjacency.REPLACE:
            return np.array([low, *middle]), np.array([*middle, high])
        return np.array(middle), np.array([*middle, low if 2 * q <= 1 else high])

    @classmethod
    def calibrated(
        cls,
        guarantee: Guarantee,
        adjacency: Adjacency,
        *,
        bounds: tuple[Number, Number],
        step: Number,
        q: Number | Iterable[Number] = Fraction(1, 2),
        rows: int = 1,
    ) -> Self:
        """The smallest scale that meets a guarantee for all quantiles together.

        Args:
            guarantee: What one release may cost.
            adjacency: Whether a unit is added or removed, or replaced.
            bounds: Lower and upper bound, stated without looking at the data.
            step: Distance of the points of the grid; smaller ones cost no privacy.
            q: Quantile, or several in ascending order.
            rows: Most rows of one unit.

        Example:
            >>> Quantile.calibrated(Guarantee(epsilon=1), Adjacency.REPLACE, bounds=(0, 1), step="1/10").scale
            Fraction(2, 1)
        """
        unit = cls(1, bounds=bounds, step=step, q=q)
        ranges = unit._ranges(adjacency, rows)

        if len(ranges) == 1:
            return unit._with_scale(ranges[0] / largest_range(guarantee))
        simple = sum(ranges, Fraction(0)) / guarantee.epsilon
        if guarantee.delta == 0:
            return unit._with_scale(simple)

        # searched as a share of the scale that is enough even for δ = 0
        def enough(share: float) -> bool:
            return guarantee.met_by(unit._with_scale(simple * Fraction(share)).loss(adjacency, rows=rows))

        share = smallest_true(enough, 2.0**-40, 1.0, relative=1e-6)
        return unit._with_scale(simple * Fraction(share))

    def _with_scale(self, scale: Fraction) -> Self:
        return type(self)(scale, bounds=self.bounds, step=self.step, q=self.q)

    def _point(self, place: int) -> float:
        """The float nearest to a point of the grid: a function of its place alone."""
        return float(self.bounds[0] + place * self.step)

    def _places(self, values: Any) -> Ints:
        """The place on the grid of each value that isn't NaN.

        A fixed function of each value by itself, so its float arithmetic can't bring neighbouring tables apart.
        """
        numbers = _as_floats(values)
        low, high = float(self.bounds[0]), float(self.bounds[1])
        inside = np.clip(numbers[~np.isnan(numbers)], low, high)
        with np.errstate(over="ignore"):
            places = np.rint((inside - low) / float(self.step))
        # steps may round up to a float above it: clip again as whole numbers
        return np.minimum(np.minimum(places, float(LARGEST_GRID)).astype(np.int64), self._steps)

    def _pieces(self, values: Any) -> tuple[Ints, Ints, Ints, Ints, int]:
        """The grid cut at the data: starts, lengths, and for each piece the least and largest rank it can claim."""
        places = self._places(values)
        places.sort()
        last = np.flatnonzero(np.append(places[1:] != places[:-1], [True] * bool(places.size)))
        return self._cut(places[last], last + 1)

    def _cut(self, held: Ints, upto: Ints) -> tuple[Ints, Ints, Ints, Ints, int]:
        """The pieces, from the different places that hold values, ascending, and how many values lie up to each."""
        before = np.concatenate([[0], upto])  # how many values lie below gap i, and below the point that ends it
        gap_starts = np.concatenate([[0], held + 1])
        gap_lengths = np.concatenate([held, [self._steps + 1]]) - gap_starts
        real = gap_lengths > 0
        ranks = before[real]
        return (
            np.concatenate([gap_starts[real], held]),
            np.concatenate([gap_lengths[real], np.ones_like(held)]),
            np.concatenate([ranks, before[:-1]]),
            np.concatenate([ranks, upto]),
            int(upto[-1]) if upto.size else 0,
        )


def _histogram(places: Any, counts: Any, last: int) -> tuple[Ints, Ints]:
    """The places that hold at least one value, ascending, each once, and how many they hold."""
    where, many = whole_numbers(places, "places"), whole_numbers(counts, "counts")
    if where.ndim != 1 or where.shape != many.shape:
        raise InvalidData("places and counts must be one-dimensional integer arrays of one length")
    present = many > 0
    held, index = np.unique(np.clip(where[present], 0, last), return_inverse=True)
    added = np.zeros(held.size, dtype=np.int64)
    np.add.at(added, index, many[present])
    return held, added


def _as_floats(values: Any) -> Floats:
    """One float for each value; None is missing, like NaN. Only what isn't a number by its type is refused."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise InvalidData("the values must be a one-dimensional array of numbers")
    if array.size == 0 or array.dtype.kind in "iuf":
        return array.astype(np.float64)
    if array.dtype.kind != "O" or not all(v is None or _is_number(v) for v in array):
        raise InvalidData(f"the values must be a one-dimensional array of numbers; got {array.dtype}")
    return np.array([math.nan if v is None else near_float(v) for v in array])


def _is_number(value: Any) -> bool:
    return isinstance(value, Real | Decimal) and not isinstance(value, bool)


def rank_sensitivity(q: Fraction, adjacency: Adjacency) -> Fraction:
    """How far one value moves the rank error of any point: max(q, 1−q) under add_remove, 1 under replace."""
    return max(q, 1 - q) if adjacency is Adjacency.ADD_REMOVE else Fraction(1)


def _rank_scores(q: Fraction, low: Ints, high: Ints, total: int) -> Floats:
    """−denominator·(distance of q·n from [low, high]): whole numbers, exact as floats."""
    wanted = q.numerator * total
    distance = np.maximum(np.maximum(q.denominator * low - wanted, wanted - q.denominator * high), 0)
    return -np.minimum(distance, LARGEST_SCORE).astype(np.float64)


def _checked_quantile(q: Any) -> Fraction:
    exact = as_fraction(q, "q")
    if not 0 < exact < 1:
        raise InvalidParameter(
            f"q must lie strictly between 0 and 1; got {q!r} (for the largest value use q=0.99, say)"
        )
    if exact.denominator > LARGEST_DENOMINATOR:
        raise InvalidParameter(f"q must be a fraction with a denominator of at most {LARGEST_DENOMINATOR}; got {q!r}")
    return exact


def _checked_bounds(bounds: Any) -> tuple[Fraction, Fraction]:
    if not isinstance(bounds, tuple | list) or len(bounds) != 2:
        raise InvalidParameter(f"bounds must be a pair (low, high); got {bounds!r}")
    low, high = as_fraction(bounds[0], "bounds[0]"), as_fraction(bounds[1], "bounds[1]")
    if not -(10**300) <= low < high <= 10**300:
        raise InvalidParameter(f"bounds must be a pair (low, high) with low < high; got {bounds!r}")
    return low, high


def _checked_steps(bounds: tuple[Fraction, Fraction], step: Fraction) -> int:
    steps = (bounds[1] - bounds[0]) / step
    if steps.denominator != 1 or steps > LARGEST_GRID or step < Fraction(1, 10**300):
        raise InvalidParameter(
            "the distance of the bounds must be a whole number of steps, at most 2^62, of at least 1e-300 each; "
            f"got {steps} steps"
        )
    return int(steps)
