"""Unary encodings: one bit for every value, each randomised by itself. Proof in ``frequencies.md``."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dither.entropy import Source
from dither.errors import InvalidParameter
from dither.local.core.bits import BLOCK_BYTES, column_sums, one_hot_coins, padding_is_zero
from dither.local.core.protocol import DOMAIN, FRACTION, Counts, Payloads
from dither.local.frequency.oracle import FEW, FrequencyOracle, Ints
from dither.mechanisms.randomized_response import odds_for_epsilon
from dither.numeric import Number, as_fraction, positive

HALF = Fraction(1, 2)


class BitCoins:
    """The law of bits of which one is true: it is sent as 1 with probability ``keep``, any other with ``noise``."""

    __slots__ = ()
    keep: Fraction
    noise: Fraction

    @property
    def odds(self) -> Fraction:
        """Of the two bits that differ: (1, 0) under one value against (1, 0) under the other."""
        return self.keep * (1 - self.noise) / ((1 - self.keep) * self.noise)

    @property
    def weight(self) -> Fraction:
        """The probability that a given other bit is 1 and the true one 0."""
        return self.noise * (1 - self.keep)


@dataclass(frozen=True, slots=True, init=False)
class Unary(BitCoins, FrequencyOracle, name="unary", fields={"domain": DOMAIN, "keep": FRACTION, "noise": FRACTION}):
    """A bit for every value: that of the true one is sent as 1 with probability ``keep``, any other with ``noise``.

    Args:
        domain: Public list of values: their number, or labels.
        keep: Probability that the true bit is sent as 1.
        noise: Probability that any other bit is sent as 1, below keep.

    Guarantee: ln(keep·(1−noise)/((1−keep)·noise))-private under REPLACE: two values differ in two bits.
    Accuracy: ``optimized`` has variance 4e^ε/(e^ε−1)²/n for rare values, whatever their number; ``symmetric`` (basic
        RAPPOR of Erlingsson, Pihur & Korolova 2014) has e^{ε/2}/(e^{ε/2}−1)²/n, which is more.

    Example:
        >>> survey = Unary(5, keep="1/2", noise="1/4")
        >>> f"{survey.loss().pure():.6f}", survey.width  # ln 3, one byte
        ('1.098612', 1)
        >>> few, many = Unary.for_epsilon(10, epsilon=1), Unary.for_epsilon(1000, epsilon=1)
        >>> few.variance(n=1000, share=0) == many.variance(n=1000, share=0)
        True
    """

    keep: Fraction
    noise: Fraction

    def __init__(self, domain: Any, *, keep: Number, noise: Number) -> None:
        self._set_domain(domain)
        exact = as_fraction(keep, "keep"), as_fraction(noise, "noise")
        if not 0 < exact[1] < exact[0] < 1:
            raise InvalidParameter(
                f"0 < noise < keep < 1 is needed: a bit that is certain has no finite ε; got keep={keep!r}, "
                f"noise={noise!r}"
            )
        self._put(keep=exact[0], noise=exact[1])

    @classmethod
    def for_epsilon(cls, domain: Any, epsilon: Number) -> Self:
        """The optimised encoding (OUE), whose loss is no more than ``epsilon``: ``noise`` is rounded up.

        Of all keep and noise of one ε, keep = 1/2 and noise = 1/(e^ε + 1) have the smallest variance for rare values
        (Wang, Blocki, Li & Jha 2017).
        """
        return cls(domain, keep=HALF, noise=1 / (1 + odds_for_epsilon(epsilon)))

    @classmethod
    def symmetric(cls, domain: Any, epsilon: Number) -> Self:
        """The symmetric encoding (SUE): every bit is a binary response with half of ``epsilon``."""
        odds = odds_for_epsilon(positive(epsilon, "epsilon") / 2)
        return cls(domain, keep=odds / (1 + odds), noise=1 / (1 + odds))

    @property
    def miss(self) -> Fraction:
        """The probability that another bit is sent as 1."""
        return self.noise

    @property
    def width(self) -> int:
        """One bit for each value."""
        return -(-self.size // 8)

    @property
    def block(self) -> int:
        """As many people as have a byte for each bit in the cache."""
        return max(1, BLOCK_BYTES // self.size)

    def draw(self, truths: Ints, source: Source) -> Payloads:
        """Rows of coins."""
        return one_hot_coins(truths, self.size, self.keep, self.noise, source)

    def valid(self, payloads: Payloads) -> npt.NDArray[np.bool_]:
        """Any bits, but none beyond the last value."""
        return padding_is_zero(payloads, self.size)

    def support(self, payloads: Payloads) -> Counts:
        """A report supports the values whose bits are 1."""
        return column_sums(payloads, self.size)

    def reduced(self) -> Unary:
        """The same coins for few values."""
        return Unary(min(self.size, FEW), keep=self.keep, noise=self.noise)
