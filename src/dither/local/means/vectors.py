"""Means of vectors: all coordinates in one corner of a cube, or a few of them as numbers. Proof in ``vectors.md``."""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dither.entropy import SYSTEM, Source, below_many, bernoulli_many
from dither.errors import InvalidParameter
from dither.local.clients.base import bytes_for
from dither.local.clients.means import check_bit
from dither.local.clients.vectors import LARGEST_DIMENSION
from dither.local.core.bits import BLOCK_BYTES, column_sums, in_blocks, packed, padding_is_zero
from dither.local.core.losses import response_loss
from dither.local.core.protocol import (
    FRACTION,
    Aggregator,
    Floats,
    Payloads,
    Protocol,
    collection_field,
    number_field,
    total,
)
from dither.local.core.tables import MOST_ROWS, Estimates, EstimateTable, meaning, rows_of
from dither.local.frequency.oracle import Ints, number_rows, row_numbers
from dither.local.means.choose import best_mean
from dither.local.means.mean import BOUNDS, UNIT, LocalMean, checked_bounds, checked_numbers, checked_steps, points_of
from dither.mechanisms.base import failure_probability
from dither.mechanisms.randomized_response import odds_for_epsilon
from dither.mechanisms.response_estimates import Target, estimate_share
from dither.numeric import Number, as_fraction, positive, positive_int
from dither.privacy import PrivacyLoss, compose

# The largest ε at which one coordinate more isn't worth halving it (Wang et al. 2019).
EPSILON_EACH = Fraction(5, 2)
# Vectors of so few coordinates have corners that can all be listed.
FEW_COORDINATES = 3


class LocalVector(Protocol):
    """Estimates the mean of a vector that everybody has; every coordinate lies within the same public bounds.

    Guarantee: a report is private as ``loss()`` states, under REPLACE of the whole vector.
    Assumes: bounds are public, and what lies outside is clamped.
    """

    dimension: int

    @property
    @abstractmethod
    def ends(self) -> tuple[Fraction, Fraction]:
        """The bounds of every coordinate."""

    @abstractmethod
    def variance(self, n: int, value: Number | None = None) -> float:
        """The variance of one coordinate's mean from ``n`` people who have ``value`` there; by default the largest."""

    def inputs(self) -> list[list[Fraction]]:
        """All corners of a small cube; of a large one some, and the middle."""
        low, high = self.ends
        if self.dimension <= FEW_COORDINATES:
            return [list(corner) for corner in itertools.product((low, high), repeat=self.dimension)]
        middle, turn = (low + high) / 2, [low, high] * self.dimension
        return [[one] * self.dimension for one in (low, high, middle)] + [turn[: self.dimension]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class VectorEstimate(Estimates):
    """The mean of every coordinate; a table when printed.

    The intervals hold at ``confidence``, all together if ``simultaneous``. Values are unbiased, so they may leave the
    bounds; intervals are cut to them.
    """

    def table(self) -> EstimateTable:
        """The first coordinates."""
        rows = rows_of(range(MOST_ROWS), self.values, self.intervals)
        notes = [meaning(self.confidence, simultaneous=self.simultaneous, reports=self.reports)]
        return EstimateTable(names="coordinate", values="mean", rows=rows, number=self.values.size, notes=notes)


DIMENSION = number_field(1, LARGEST_DIMENSION)


@dataclass(frozen=True, slots=True, init=False)
class OneBitVector(
    LocalVector, name="one_bit_vector", fields={"dimension": DIMENSION, "bounds": BOUNDS, "keep": FRACTION}
):
    """Rounds all coordinates to the bounds and names a corner that mostly agrees, with probability ``keep``.

    The ℓ∞ mechanism of Duchi, Jordan & Wainwright (2018); corners that agree in just half of the coordinates are
    equally likely for the two answers.

    Args:
        dimension: Number of coordinates.
        bounds: Lower and upper bound, stated without looking at the data; what lies outside counts as the nearer one.
        keep: Probability of a corner on the side of the truth.

    Guarantee: ln(keep/(1−keep))-private under REPLACE, whatever the number of coordinates.
    Accuracy: variance of each coordinate about (B/2)²·(π/2)·d·((e^ε+1)/(e^ε−1))²/n for d coordinates.

    Example:
        >>> week = OneBitVector.for_epsilon(7, (0, 24), epsilon=1)
        >>> week.width, week.loss().pure() <= 1, f"{week.variance(n=10_000) ** 0.5:.2f}"
        (1, True, '0.83')
    """

    dimension: int
    bounds: tuple[Fraction, Fraction]
    keep: Fraction

    def __init__(self, dimension: int, bounds: tuple[Number, Number], keep: Number) -> None:
        checked = checked_steps(dimension, LARGEST_DIMENSION, "dimension")
        self._put(dimension=checked, bounds=checked_bounds(bounds), keep=as_fraction(keep, "keep"))
        check_bit(self.keep)

    @classmethod
    def for_epsilon(cls, dimension: int, bounds: tuple[Number, Number], epsilon: Number) -> Self:
        """The most honest answer whose loss is no more than ``epsilon``: ``keep`` is rounded down.

        Args:
            dimension: Number of coordinates.
            bounds: Lower and upper bound, stated without looking at the data; what lies outside counts as the nearer
                one.
            epsilon: Largest ε that one report may cost (REPLACE).
        """
        odds = odds_for_epsilon(epsilon)
        return cls(dimension, bounds, odds / (1 + odds))

    @property
    def ends(self) -> tuple[Fraction, Fraction]:
        """The bounds of every coordinate."""
        return self.bounds

    @property
    def ties(self) -> Fraction:
        """The probability that a uniform corner agrees in just half of the coordinates."""
        d = self.dimension
        return Fraction(0) if d % 2 else Fraction(math.comb(d, d // 2), 2**d)

    @property
    def gap(self) -> Fraction:
        """How much likelier a bit of the report is to agree with its coordinate than not: E|agree − not|/d, kept."""
        odd = self.dimension + 1 - self.dimension % 2
        return Fraction(math.comb(odd - 1, (odd - 1) // 2), 2 ** (odd - 1)) * (2 * self.keep - 1)

    def loss(self) -> PrivacyLoss:
        """Opposite corners; a corner that ties says nothing."""
        return response_loss(self.keep / (1 - self.keep), (1 - self.ties) * (1 - self.keep))

    def variance(self, n: int, value: Number | None = None) -> float:
        """The variance of one coordinate's mean from ``n`` people who have ``value`` there; by default the largest."""
        low, high = self.bounds
        clamped = (low + high) / 2 if value is None else min(max(as_fraction(value, "value"), low), high)
        chance = (1 - self.gap) / 2 + self.gap * (clamped - low) / (high - low)
        return float((high - low) ** 2 * chance * (1 - chance) / self.gap**2 / positive_int(n, "n"))

    @property
    def width(self) -> int:
        """One bit for each coordinate."""
        return -(-self.dimension // 8)

    def randomize(self, values: Any, *, source: Source = SYSTEM) -> Payloads:
        """Payloads of many people, one row each; ``values`` has a column for each coordinate."""
        d = self.dimension

        def draw(part: Floats) -> Payloads:
            truth = points_of(part, self.bounds, 1, source).astype(np.bool_)
            words = source.fill(part.shape[0] * self.width).reshape(part.shape[0], self.width)
            corners = np.unpackbits(words, axis=1, count=d, bitorder="little").view(np.bool_)
            balance = d - 2 * np.count_nonzero(corners ^ truth, axis=1)
            wanted = bernoulli_many(self.keep, part.shape[0], source)
            turn = (balance != 0) & ((balance > 0) != wanted)
            return packed(corners ^ turn[:, None])

        return in_blocks(checked_numbers(values, d), self.width, max(1, BLOCK_BYTES // (8 * d)), draw)

    def valid(self, payloads: Payloads) -> npt.NDArray[np.bool_]:
        """Any bits, but none beyond the last coordinate."""
        return padding_is_zero(payloads, self.dimension)

    def aggregator(self) -> OneBitVectorAggregator:
        """An empty aggregate for this collection."""
        return OneBitVectorAggregator(self)

    def reduced(self) -> OneBitVector:
        """The same coins for two or three coordinates, between 0 and 1."""
        return OneBitVector(min(self.dimension, 2 + self.dimension % 2), UNIT, self.keep)


class OneBitVectorAggregator(Aggregator[VectorEstimate]):
    """Counts the ones of every coordinate."""

    protocol: OneBitVector

    def __init__(self, protocol: OneBitVector) -> None:
        super().__init__(protocol, ones=np.zeros(protocol.dimension, dtype=np.int64))

    def count(self, payloads: Payloads) -> None:
        """Add valid payloads."""
        self.counters["ones"] += column_sums(payloads, self.protocol.dimension)

    def estimate(self, confidence: Number = 0.95, *, simultaneous: bool = True) -> VectorEstimate:
        """The mean of every coordinate: a bit is 1 with probability (1−gap)/2 + gap·(mean position), so binomial."""
        self.expect_reports()
        protocol, gap = self.protocol, self.protocol.gap
        hit, miss = (1 + gap) / 2, (1 - gap) / 2
        failure = failure_probability(confidence) / (protocol.dimension if simultaneous else 1)
        found = [
            estimate_share(int(ones), self.reports, hit, miss, failure=failure, target=Target.POPULATION, clip=False)
            for ones in self.counters["ones"]
        ]
        low, spread = float(protocol.bounds[0]), float(protocol.bounds[1] - protocol.bounds[0])
        return VectorEstimate(
            values=low + spread * np.array([value for value, _, _ in found]),
            variances=spread**2 * np.array([variance for _, variance, _ in found]),
            intervals=low + spread * np.clip([ends for _, _, ends in found], 0.0, 1.0),
            confidence=float(as_fraction(confidence)),
            simultaneous=simultaneous,
            reports=self.reports,
        )


@dataclass(frozen=True, slots=True, init=False)
class SampledVector(
    LocalVector,
    name="sampled_vector",
    fields={"dimension": DIMENSION, "coordinates": DIMENSION, "collection": collection_field("mean")},
):
    """Draws ``coordinates`` of the ``dimension`` coordinates for every person and asks for each of them by ``mean``.

    Args:
        dimension: Number of coordinates.
        coordinates: How many coordinates a person reports.
        mean: Protocol of each of them; its loss counts once for each.

    Guarantee: as many reports of ``mean`` as coordinates are drawn, composed; which are drawn doesn't depend on the
        vector (Wang et al. 2019).
    Accuracy: a coordinate's mean is that of about n·coordinates/dimension reports, a sample of all people.

    Example:
        >>> week = SampledVector.for_epsilon(7, (0, 24), epsilon=1)
        >>> week.coordinates, week.loss().pure() <= 1, f"{week.variance(n=10_000) ** 0.5:.2f}"
        (1, True, '0.66')
    """

    dimension: int
    coordinates: int
    mean: LocalMean

    def __init__(self, dimension: int, *, coordinates: int, mean: LocalMean) -> None:
        size = checked_steps(dimension, LARGEST_DIMENSION, "dimension")
        some = checked_steps(coordinates, size, "coordinates")
        if not isinstance(mean, LocalMean):
            raise InvalidParameter("mean must be a protocol for a number, such as HybridMean.for_epsilon((0, 1), 2)")
        self._put(dimension=size, coordinates=some, mean=mean)

    @classmethod
    def for_epsilon(
        cls, dimension: int, bounds: tuple[Number, Number], epsilon: Number, *, coordinates: int | None = None
    ) -> Self:
        """The best protocol for a number at ε/coordinates; by default one coordinate for every 2.5 of ``epsilon``.

        Args:
            dimension: Number of coordinates.
            bounds: Lower and upper bound, stated without looking at the data; what lies outside counts as the nearer
                one.
            epsilon: Largest ε that one report may cost (REPLACE).
            coordinates: How many coordinates a person reports, each at an equal part of ε; by default ε/2.5.
        """
        exact, most = positive(epsilon, "epsilon"), positive_int(dimension, "dimension")
        number = max(1, min(most, int(exact / EPSILON_EACH))) if coordinates is None else coordinates
        each = exact / positive_int(number, "coordinates")
        return cls(dimension, coordinates=number, mean=best_mean(each, bounds=bounds).best)

    @property
    def ends(self) -> tuple[Fraction, Fraction]:
        """The bounds of every coordinate."""
        return self.mean.bounds

    def loss(self) -> PrivacyLoss:
        """One report for each coordinate that is drawn."""
        return compose([(self.mean.loss(), self.coordinates)])

    def variance(self, n: int, value: Number | None = None) -> float:
        """The variance of one coordinate's mean, if as many report it as is expected, all having ``value``."""
        share = Fraction(self.dimension, self.coordinates)
        return self.mean.variance(1, value) * float(share) / positive_int(n, "n")

    @property
    def _head(self) -> int:
        """The bytes of the number of a coordinate."""
        return bytes_for(self.dimension)

    @property
    def _each(self) -> int:
        return self._head + self.mean.width

    @property
    def width(self) -> int:
        """For each coordinate that is drawn its number and its report."""
        return self.coordinates * self._each

    def randomize(self, values: Any, *, source: Source = SYSTEM) -> Payloads:
        """Payloads of many people, one row each; ``values`` has a column for each coordinate."""
        table = checked_numbers(values, self.dimension)
        rows = np.empty((table.shape[0], self.width), dtype=np.uint8)
        everybody = np.arange(table.shape[0])
        drawn: list[Ints] = []
        for turn in range(self.coordinates):
            places = below_many(self.dimension - turn, table.shape[0], source)
            # the place among those that are left: skip every earlier one that isn't above, the lowest first
            for earlier in np.sort(np.array(drawn), axis=0) if drawn else ():
                places += places >= earlier
            drawn.append(places)
            start = turn * self._each
            rows[:, start : start + self._head] = number_rows(places, self._head)
            rows[:, start + self._head : start + self._each] = self.mean.randomize(
                table[everybody, places], source=source
            )
        return rows

    def pieces(self, payloads: Payloads) -> list[tuple[Ints, Payloads]]:
        """For every drawn coordinate of all rows its number and its report."""
        starts = range(0, self.width, self._each)
        return [
            (
                row_numbers(payloads[:, start : start + self._head]).astype(np.int64),
                np.ascontiguousarray(payloads[:, start + self._head : start + self._each]),
            )
            for start in starts
        ]

    def valid(self, payloads: Payloads) -> npt.NDArray[np.bool_]:
        """Different coordinates, each with a valid report."""
        good = np.ones(payloads.shape[0], dtype=np.bool_)
        seen: list[Ints] = []
        for places, reports in self.pieces(payloads):
            good &= (places < self.dimension) & self.mean.valid(reports)
            for earlier in seen:
                good &= places != earlier
            seen.append(places)
        return good

    def aggregator(self) -> SampledVectorAggregator:
        """An empty aggregate for this collection."""
        return SampledVectorAggregator(self)

    def reduced(self) -> SampledVector:
        """The same for two coordinates on few steps."""
        few = min(2, self.dimension)
        return SampledVector(few, coordinates=min(self.coordinates, few), mean=self.mean.reduced())


class SampledVectorAggregator(Aggregator[VectorEstimate]):
    """Counts for every coordinate how often each output was sent."""

    protocol: SampledVector

    def __init__(self, protocol: SampledVector) -> None:
        super().__init__(protocol, counts=np.zeros((protocol.dimension, protocol.mean.outputs), dtype=np.int64))

    def count(self, payloads: Payloads) -> None:
        """Add valid payloads."""
        outputs = self.protocol.mean.outputs
        for places, reports in self.protocol.pieces(payloads):
            slots = places * outputs + row_numbers(reports).astype(np.int64)
            counts = self.counters["counts"]
            counts += np.bincount(slots, minlength=counts.size).reshape(counts.shape)

    def sound(self) -> bool:
        """Whether every report has been counted once for each coordinate that it names."""
        return super().sound() and total(self.counters["counts"]) == self.reports * self.protocol.coordinates

    def estimate(self, confidence: Number = 0.95, *, simultaneous: bool = True) -> VectorEstimate:
        """The mean of every coordinate, from those who were asked for it; nobody knows one that nobody was asked."""
        self.expect_reports()
        protocol = self.protocol
        comparisons = protocol.dimension if simultaneous else 1
        low, high = (float(end) for end in protocol.ends)
        found = [
            protocol.mean.estimate_from(counts, confidence=confidence, comparisons=comparisons)
            if counts.any()
            else None
            for counts in self.counters["counts"]
        ]
        return VectorEstimate(
            values=np.array([(low + high) / 2 if one is None else one.value for one in found]),
            variances=np.array([math.inf if one is None else one.variance for one in found]),
            intervals=np.array([(low, high) if one is None else one.interval for one in found]),
            confidence=float(as_fraction(confidence)),
            simultaneous=simultaneous,
            reports=self.reports,
        )


def best_vector(epsilon: Number, dimension: int, *, bounds: tuple[Number, Number] = UNIT) -> LocalVector:
    """The protocol whose variance, where it is largest, is smaller; that of the sampling of people is counted too.

    Args:
        epsilon: Largest ε that one report may cost (REPLACE).
        dimension: Number of coordinates.
        bounds: Lower and upper bound, stated without looking at the data; what lies outside counts as the nearer one.

    Example:
        >>> [type(best_vector(epsilon, 10)).__name__ for epsilon in ("1/2", 5)]
        ['SampledVector', 'SampledVector']
    """
    corner = OneBitVector.for_epsilon(dimension, bounds, epsilon)
    sampled = SampledVector.for_epsilon(dimension, bounds, epsilon)
    low, high = corner.bounds
    # who is asked for a coordinate is a sample: the variance of a population is at most a quarter of its spread squared
    people = float((high - low) ** 2 * Fraction(sampled.dimension, 4 * sampled.coordinates))
    return corner if corner.variance(1) < sampled.variance(1) + people else sampled
