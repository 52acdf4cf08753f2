"""The Hadamard sketch: one noisy entry of a matrix instead of a bit for each bucket. Proof in ``sketches.md``."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dither.entropy import Source, below_many, bernoulli_many
from dither.local.clients.base import bytes_for
from dither.local.clients.sketch import check_sign
from dither.local.core.bits import odd_ones
from dither.local.core.protocol import FRACTION, Counts, Floats, Payloads
from dither.local.frequency.hadamard import SignCoin
from dither.local.frequency.oracle import number_rows, row_numbers
from dither.local.sketches.sketch import TABLE, HashedSketch, SketchAggregator
from dither.mechanisms.randomized_response import odds_for_epsilon
from dither.numeric import Number, as_fraction

HALF = Fraction(1, 2)
# Functions that are transformed at a time: they fit into the second-level cache.
LINES = 32


@dataclass(frozen=True, slots=True, init=False)
class HadamardSketch(SignCoin, HashedSketch, name="hadamard_sketch", fields={**TABLE, "keep": FRACTION}):
    """An entry of the Hadamard matrix, in a row that is drawn and the column of the value's bucket; true with ``keep``.

    Args:
        keep: Probability of the true sign.

    Guarantee: ln(keep/(1−keep))-private under REPLACE: a sign by randomised response.
    Accuracy: variance about ((e^ε+1)/(e^ε−1))²/n and the collisions: more than the count-mean sketch for ε above 1,
        from reports of a few bytes.

    Example:
        >>> words = HadamardSketch.for_epsilon(4)
        >>> words.width, words.loss().pure() <= 4
        (4, True)
    """

    keep: Fraction

    def __init__(
        self, *, keep: Number, domain: Any = None, hashes: int = 1024, buckets: int = 1024, seed: str | None = None
    ) -> None:
        self._set(domain, hashes, buckets, seed)
        self._put(keep=as_fraction(keep, "keep"))
        check_sign(self.keep)

    @classmethod
    def for_epsilon(
        cls, epsilon: Number, *, domain: Any = None, hashes: int = 1024, buckets: int = 1024, seed: str | None = None
    ) -> Self:
        """The sketch whose loss is no more than ``epsilon``: ``keep`` is rounded down."""
        odds = odds_for_epsilon(epsilon)
        return cls(keep=odds / (odds + 1), domain=domain, hashes=hashes, buckets=buckets, seed=seed)

    @property
    def other(self) -> Fraction:
        """Columns are orthogonal: the sign says nothing about other buckets."""
        return HALF

    @property
    def width(self) -> int:
        """The function, and the row with its sign."""
        return bytes_for(self.hashes) + bytes_for(2 * self.buckets)

    def randomize_buckets(self, truths: npt.NDArray[Any], source: Source) -> Payloads:
        """Rows with their signs."""
        drawn = below_many(self.buckets, truths.size, source)
        turned = ~bernoulli_many(self.keep, truths.size, source)
        return number_rows(2 * drawn + (odd_ones(drawn & truths) ^ turned), bytes_for(2 * self.buckets))

    def valid(self, payloads: Payloads) -> npt.NDArray[np.bool_]:
        """A function and a row that there are."""
        rows = row_numbers(payloads[:, bytes_for(self.hashes) :]).astype(np.int64)
        return (self.drawn_functions(payloads).astype(np.int64) < self.hashes) & (rows < 2 * self.buckets)

    def aggregator(self) -> HadamardSketchAggregator:
        """An empty aggregate for this collection."""
        return HadamardSketchAggregator(self)


class HadamardSketchAggregator(SketchAggregator):
    """Sums the signs of each row of each function; what they say about buckets is worked out when it is asked for."""

    protocol: HadamardSketch
    unsigned = False

    def count(self, payloads: Payloads) -> None:
        """Add valid payloads."""
        drawn = self.protocol.drawn_functions(payloads).astype(np.int64)
        rows = row_numbers(payloads[:, bytes_for(self.protocol.hashes) :]).astype(np.int64)
        places = drawn * self.protocol.buckets + (rows >> 1)
        np.add.at(self.sums.reshape(-1), places, 1 - 2 * (rows & 1))
        self.counters["function_reports"] += np.bincount(drawn, minlength=self.protocol.hashes)

    def supports(self) -> Counts:
        """Reports that support a bucket, less those that don't: the transform of every function's signs."""
        return transform_rows(self.sums)

    def pair_sums(self) -> tuple[Floats, Floats]:
        """The same as for bits, with z = sign·entry/(2·keep − 1); rows are orthogonal, so no transform is needed."""
        reports, signs = self.function_reports.astype(np.float64), self.sums.astype(np.float64)
        scale = self.protocol.buckets / float(2 * self.protocol.keep - 1) ** 2
        return scale * ((signs**2).sum(axis=1) - reports), reports * (reports - 1)


def transform_rows(sums: Counts) -> Counts:
    """The Hadamard transform of every row, in whole numbers.

    Example:
        >>> transform_rows(np.array([[1, 0, 0, 2], [0, 1, 0, 0]])).tolist()
        [[3, -1, -1, 3], [1, -1, 1, -1]]
    """
    out = np.empty(sums.shape, dtype=np.int64)
    for start in range(0, sums.shape[0], LINES):
        # columns become the outer axis, so that also the first steps add whole lines
        turned = np.array(sums[start : start + LINES].T, dtype=np.int64, order="C")
        step = turned.shape[1]
        while step < turned.size:
            pairs = turned.reshape(-1, 2, step)
            total = pairs[:, 0] + pairs[:, 1]
            np.subtract(pairs[:, 0], pairs[:, 1], out=pairs[:, 1])
            pairs[:, 0] = total
            step *= 2
        out[start : start + LINES] = turned.T
    return out
