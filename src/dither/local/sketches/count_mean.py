"""The count-mean sketch: a noisy bit for each bucket of a hash function. Proof in ``sketches.md``."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dither.entropy import Source
from dither.local.clients.base import bytes_for
from dither.local.clients.sketch import check_bits
from dither.local.core.bits import BLOCK_BYTES, column_sums, in_blocks, one_hot_coins, padding_is_zero
from dither.local.core.protocol import FRACTION, Counts, Floats, Payloads
from dither.local.frequency.unary import BitCoins
from dither.local.sketches.sketch import TABLE, HashedSketch, SketchAggregator
from dither.mechanisms.randomized_response import odds_for_epsilon
from dither.numeric import Number, as_fraction, positive

HALF = Fraction(1, 2)


@dataclass(frozen=True, slots=True, init=False)
class CountMeanSketch(
    BitCoins, HashedSketch, name="count_mean_sketch", fields={**TABLE, "keep": FRACTION, "noise": FRACTION}
):
    """A noisy bit for each bucket: that of the value's bucket is 1 with probability ``keep``, any other with ``noise``.

    Args:
        keep: Probability that the true bit is sent as 1.
        noise: Probability that any other bit is sent as 1, below keep.

    Guarantee: ln(keep·(1−noise)/((1−keep)·noise))-private under REPLACE, as a unary encoding of the bucket.
    Accuracy: Apple's (``for_epsilon``) has variance about e^{ε/2}/(e^{ε/2}−1)²/n for rare values, ``optimized`` about
        4e^ε/(e^ε−1)²/n, plus 1/(m−1)/n and the collisions.

    Example:
        >>> words = CountMeanSketch.for_epsilon(4, hashes=1024, buckets=1024)
        >>> words.width, words.loss().pure() <= 4
        (130, True)
        >>> f"{words.variance(n=1_000_000, share=0, concentration='1/100'):.2g}"  # a hundred values that are alike
        '1.9e-07'
    """

    keep: Fraction
    noise: Fraction

    def __init__(
        self,
        *,
        keep: Number,
        noise: Number,
        domain: Any = None,
        hashes: int = 1024,
        buckets: int = 1024,
        seed: str | None = None,
    ) -> None:
        self._set(domain, hashes, buckets, seed)
        self._put(keep=as_fraction(keep, "keep"), noise=as_fraction(noise, "noise"))
        check_bits(self.keep, self.noise)

    @classmethod
    def for_epsilon(
        cls, epsilon: Number, *, domain: Any = None, hashes: int = 1024, buckets: int = 1024, seed: str | None = None
    ) -> Self:
        """Apple's sketch, whose loss is no more than ``epsilon``: every bit is turned round with one probability.

        Args:
            epsilon: Largest ε that one report may cost (REPLACE).
            domain: Public list of values, or None for an open one.
            hashes: Number of hash functions; more make collisions matter less, at no cost of privacy.
            buckets: Buckets of each function; each costs the count-mean sketch a bit of every report.
            seed: Chooses the hash functions, 32 hexadecimal digits, public; drawn by default.
        """
        odds = odds_for_epsilon(positive(epsilon, "epsilon") / 2)
        lie = 1 / (1 + odds)
        return cls(keep=1 - lie, noise=lie, domain=domain, hashes=hashes, buckets=buckets, seed=seed)

    @classmethod
    def optimized(
        cls, epsilon: Number, *, domain: Any = None, hashes: int = 1024, buckets: int = 1024, seed: str | None = None
    ) -> Self:
        """The sketch of the same loss with the least variance for rare values (Wang, Blocki, Li & Jha 2017)."""
        noise = 1 / (1 + odds_for_epsilon(epsilon))
        return cls(keep=HALF, noise=noise, domain=domain, hashes=hashes, buckets=buckets, seed=seed)

    @property
    def other(self) -> Fraction:
        """The probability that another bit is sent as 1."""
        return self.noise

    @property
    def width(self) -> int:
        """The function, and the bits."""
        return bytes_for(self.hashes) + -(-self.buckets // 8)

    def randomize_buckets(self, truths: npt.NDArray[Any], source: Source) -> Payloads:
        """Rows of bits."""
        width, block = -(-self.buckets // 8), max(1, BLOCK_BYTES // self.buckets)
        return in_blocks(
            truths, width, block, lambda some: one_hot_coins(some, self.buckets, self.keep, self.noise, source)
        )

    def valid(self, payloads: Payloads) -> npt.NDArray[np.bool_]:
        """A function that there is, and no bit beyond the last bucket."""
        return (self.drawn_functions(payloads).astype(np.int64) < self.hashes) & padding_is_zero(payloads, self.buckets)

    def aggregator(self) -> CountMeanAggregator:
        """An empty aggregate for this collection."""
        return CountMeanAggregator(self)


class CountMeanAggregator(SketchAggregator):
    """Counts how many reports of each function have each bit set."""

    protocol: CountMeanSketch
    unsigned = True

    def count(self, payloads: Payloads) -> None:
        """Add valid payloads."""
        drawn = self.protocol.drawn_functions(payloads)
        order = np.argsort(drawn, kind="stable")
        bits = payloads[order, bytes_for(self.protocol.hashes) :]
        each = np.bincount(drawn, minlength=self.protocol.hashes)
        ends = np.cumsum(each)
        for function in np.flatnonzero(each):
            end = ends[function]
            self.sums[function] += column_sums(bits[end - each[function] : end], self.protocol.buckets)
        self.counters["function_reports"] += each

    def supports(self) -> Counts:
        """The bits that are set."""
        return self.sums

    def pair_sums(self) -> tuple[Floats, Floats]:
        """Σ_b (Σ z)² − Σ z² for z = (bit − noise)/(keep − noise), whose mean is whether the value is in bucket b."""
        noise, gap = float(self.protocol.noise), float(self.protocol.keep - self.protocol.noise)
        reports, ones = self.function_reports.astype(np.float64), self.sums.astype(np.float64)
        squares = (
            (ones - noise * reports[:, None]) ** 2 - ones * (1 - noise) ** 2 - (reports[:, None] - ones) * noise**2
        )
        return squares.sum(axis=1) / gap**2, reports * (reports - 1)
