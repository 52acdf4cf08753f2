"""Ranges of an ordered domain by the Haar wavelet: one bit from everybody, intervals that are tight. ``ranges.md``."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dither.entropy import SYSTEM, Source, below_many, bernoulli_many
from dither.local.clients.base import ValueDomain, bytes_for
from dither.local.clients.means import check_bit
from dither.local.clients.ranges import levels_of
from dither.local.core.bits import in_blocks, odd_ones
from dither.local.core.losses import response_loss
from dither.local.core.protocol import DOMAIN, FRACTION, Aggregator, Floats, Payloads
from dither.local.frequency.hadamard import hadamard_transform
from dither.local.frequency.oracle import Ints, Label, checked_domain, number_rows, places, row_numbers, values_of
from dither.local.means.mean import BLOCK_PEOPLE
from dither.local.ranges.estimates import OrderedRanges, RangeEstimates
from dither.mechanisms.base import failure_probability
from dither.mechanisms.randomized_response import odds_for_epsilon
from dither.numeric import Number, as_fraction, positive_int, up
from dither.privacy import PrivacyLoss

# Values for which the law of the client is listed in full.
FEW_VALUES = 8


@dataclass(frozen=True, slots=True, init=False)
class WaveletRanges(OrderedRanges, name="wavelet_ranges", fields={"domain": DOMAIN, "keep": FRACTION}):
    """Counts ranges of an ordered domain: everybody sends one bit about one level of a binary tree.

    The difference between the two halves of every node is a Haar coefficient; whatever range is asked has a share that
    is a sum of at most two of them for each level, so that answers are consistent by themselves (Cormode, Kulkarni &
    Srivastava 2019).

    Guarantee: ln(keep/(1−keep))-private under REPLACE; ``loss()`` is the exact pair of two values that differ from the
        first level on.
    Accuracy: variance of the share below any value at most about ((e^ε+1)/(e^ε−1))²·h(h + 2)/(9n), h = log₂ of the
        size. Every report has one of two values, so Hoeffding's bound is as good as its variance.

    Example:
        >>> ages = WaveletRanges.for_epsilon(100, epsilon=1)
        >>> ages.width, ages.loss().pure() <= 1, f"{ages.error(n=1_000_000):.4f}"
        (2, True, '0.0147')
    """

    domain: int | tuple[Label, ...]
    keep: Fraction
    _known: ValueDomain = field(init=False, repr=False, compare=False)

    def __init__(self, domain: Any, keep: Number) -> None:
        known = checked_domain(domain)
        self._put(domain=values_of(known), _known=known, keep=as_fraction(keep, "keep"))
        check_bit(self.keep)
        levels_of(known.size, 2)

    @classmethod
    def for_epsilon(cls, domain: Any, epsilon: Number) -> Self:
        """The most honest bit whose loss is no more than ``epsilon``: ``keep`` is rounded down."""
        odds = odds_for_epsilon(epsilon)
        return cls(domain, odds / (1 + odds))

    @property
    def levels(self) -> int:
        """The number of levels of the tree above its leaves."""
        return levels_of(self.size, 2)

    @property
    def gap(self) -> Fraction:
        """How much likelier a bit is true than not."""
        return 2 * self.keep - 1

    def loss(self) -> PrivacyLoss:
        """Two values that differ in their first digit have different bits at the first level, then every second time.

        Level and row are drawn whatever the value is. Of values that first differ at level j, no level before j tells
        them apart, level j always does, and any later one for half of its rows: most do if j = 0.
        """
        differ = Fraction(self.levels + 1, 2 * self.levels)
        return response_loss(self.keep / (1 - self.keep), differ * (1 - self.keep))

    def weights(self, stops: Ints) -> Floats:
        """For every level and place, how much the coefficient of its node counts for the share before that place.

        A node of which the part x lies before the place counts min(x, 1 − x).
        """
        sizes = 2 ** np.arange(self.levels, 0, -1)
        parts = (stops % sizes[:, None]) / sizes[:, None]
        return np.asarray(np.minimum(parts, 1 - parts))

    def variance(self, n: int, first: Label | None = None, last: Label | None = None) -> float:
        """The largest variance of a range's share, if ``n`` reports are spread evenly over levels.

        Of the range from ``first`` to ``last``, or of the worst one that begins with the first value.

        Args:
            n: Number of reports.
            first: First value of the range; by default the worst range that begins the list.
            last: Last value of the range.
        """
        each = positive_int(n, "n") / self.levels
        if first is not None and last is not None:
            start, end = self._known.place(first), self._known.place(last) + 1
            return float((self.pair_weights(start, end)[1]).sum() / float(self.gap) ** 2 / each)
        most = 0.0
        for start in range(0, self.size, 1 << 16):
            squares = self.weights(np.arange(start, min(self.size, start + (1 << 16)))) ** 2
            most = max(most, float(squares.sum(axis=0).max()))
        return most / float(self.gap) ** 2 / each

    def error(self, confidence: Number = 0.95, *, n: int) -> float:
        """The error that the share below a given value doesn't exceed, if ``n`` reports spread evenly over levels."""
        return up(math.sqrt(2 * self.variance(n) * math.log(2 / failure_probability(confidence))))

    def pair_weights(self, start: int, end: int) -> tuple[Floats, Floats]:
        """For every level the sum of |weight|, and of weight², of the one or two nodes that a range needs there."""
        end = 2**self.levels if end == self.size else end  # of all values together nothing has to be estimated
        low, high = self.weights(np.array([start, end])).T
        sizes = 2 ** np.arange(self.levels, 0, -1)
        same = (start // sizes) == (end // sizes)
        return np.where(same, np.abs(high - low), high + low), np.where(same, (high - low) ** 2, high**2 + low**2)

    # ------------------------------------------------------------------ the collection

    @property
    def width(self) -> int:
        """A byte for the level; row and bit."""
        return 1 + bytes_for(2**self.levels)

    def inputs(self) -> list[Label]:
        """All values of a small domain, some of a large one."""
        labels = self._known.values
        if self.size <= FEW_VALUES:
            return list(labels)
        return [labels[place] for place in (0, 1, self.size // 2, 2 ** (self.levels - 1), self.size - 1)]

    def randomize(self, values: Any, *, source: Source = SYSTEM) -> Payloads:
        """Payloads of many people, one row each, of the same law as the client's."""

        def draw(block: Ints) -> Payloads:
            levels = below_many(self.levels, block.size, source)
            draws = source.u32(block.size).astype(np.int64) & ((1 << levels) - 1)
            rest = block >> (self.levels - 1 - levels)
            lies = ~bernoulli_many(self.keep, block.size, source)
            bits = odd_ones(draws & (rest >> 1)) ^ (rest & 1) ^ lies
            numbers = number_rows(2 * draws + bits, self.width - 1)
            return np.concatenate([levels.astype(np.uint8)[:, None], numbers], axis=1)

        return in_blocks(places(values, self._known), self.width, BLOCK_PEOPLE, draw)

    def _slots(self, payloads: Payloads) -> tuple[Ints, Ints]:
        return payloads[:, 0].astype(np.int64), row_numbers(payloads[:, 1:]).astype(np.int64)

    def valid(self, payloads: Payloads) -> npt.NDArray[np.bool_]:
        """Rows that name a level, and a row of its matrix with a bit."""
        levels, numbers = self._slots(payloads)
        return np.asarray((levels < self.levels) & (numbers < 2 << np.minimum(levels, self.levels)))

    def slots(self, payloads: Payloads) -> Ints:
        """The counter of every payload: those of a level follow those of all levels before."""
        levels, numbers = self._slots(payloads)
        return np.asarray((2 << levels) - 2 + numbers)

    def aggregator(self) -> WaveletAggregator:
        """An empty aggregate for this collection."""
        return WaveletAggregator(self)

    def reduced(self) -> WaveletRanges:
        """The same coins for few values."""
        return WaveletRanges(min(self.size, FEW_VALUES), self.keep)


class WaveletAggregator(Aggregator[RangeEstimates]):
    """Counts for every level how often each row was sent with each bit."""

    protocol: WaveletRanges
    once = "counts"

    def __init__(self, protocol: WaveletRanges) -> None:
        super().__init__(protocol, counts=np.zeros((2 << protocol.levels) - 2, dtype=np.int64))

    def count(self, payloads: Payloads) -> None:
        """Add valid payloads."""
        counts = self.counters["counts"]
        counts += np.bincount(self.protocol.slots(payloads), minlength=counts.size)

    def coefficients(self) -> tuple[list[Floats], Floats]:
        """For every level the share of the left half minus that of the right, node by node; and its reports."""
        found, reports = [], np.zeros(self.protocol.levels)
        for level in range(self.protocol.levels):
            rows = self.counters["counts"][(2 << level) - 2 : (4 << level) - 2].reshape(-1, 2)
            reports[level] = rows.sum()
            sums = hadamard_transform(rows[:, 0] - rows[:, 1])
            found.append(sums / max(1.0, reports[level]) / float(self.protocol.gap))
        return found, reports

    def estimate(self, confidence: Number = 0.95, *, simultaneous: bool = False) -> RangeEstimates:
        """The shares of all ranges; ``simultaneous`` makes the intervals of the distribution function hold together."""
        self.expect_reports()
        protocol = self.protocol
        failure = failure_probability(confidence)
        coefficients, reports = self.coefficients()
        noise = np.full(reports.size, math.inf)
        np.divide(float(protocol.gap) ** -2, reports, out=noise, where=reports > 0)
        size, levels = protocol.size, protocol.levels
        cumulative, spread = np.empty(size + 1), np.empty(size + 1)
        for start in range(0, size + 1, BLOCK_PEOPLE):
            stops = np.arange(start, min(start + BLOCK_PEOPLE, size + 1))
            weights = protocol.weights(stops)
            total = stops / 2**levels
            for level in range(levels):
                nodes = np.minimum(stops >> (levels - level), (1 << level) - 1)
                total += weights[level] * coefficients[level][nodes]
            cumulative[start : start + BLOCK_PEOPLE] = total
            spread[start : start + BLOCK_PEOPLE] = np.multiply(
                weights**2, noise[:, None], out=np.zeros(weights.shape), where=weights > 0
            ).sum(axis=0)

        def range_of(start: int, end: int) -> tuple[float, float, float]:
            value = float(cumulative[end] - cumulative[start])
            return value, value, _error(protocol, start, end, noise, math.log(2 / failure))

        return protocol.estimates(
            cumulative,
            cumulative,
            spread,
            range_of,
            reports=self.reports,
            confidence=confidence,
            simultaneous=simultaneous,
        )


def _error(protocol: WaveletRanges, start: int, end: int, noise: Floats, budget: float) -> float:
    """Hoeffding's or Bernstein's bound for a range, whichever is smaller; both depend on the numbers of reports alone.

    A report moves the estimate by ±(|w| + |w′|) at most; its mean square is w² + w′², since two columns of a Hadamard
    matrix are orthogonal.
    """
    sums, squares = protocol.pair_weights(start, end)
    used = sums > 0
    if not used.any():
        return 0.0
    if not np.isfinite(noise[used]).all():
        return math.inf
    hoeffding = math.sqrt(2 * budget * float((sums[used] ** 2 * noise[used]).sum()))
    variance = float((squares[used] * noise[used]).sum())
    largest = 2 * float((sums[used] * noise[used]).max()) * float(protocol.gap)
    third = largest * budget / 3
    return min(hoeffding, third + math.sqrt(third**2 + 2 * variance * budget)) * (1 + 1e-12)
