"""k-ary randomised response as a collection: everybody names a value, the true one with a stated probability.

Warner's survey (1965) is the case of two values. Proof in ``frequencies.md``.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dither.entropy import Source, below_many, bernoulli_many
from dither.local.clients.base import bytes_for
from dither.local.core.protocol import DOMAIN, FRACTION, Counts, Payloads
from dither.local.frequency.oracle import (
    FEW,
    FrequencyOracle,
    Ints,
    checked_domain,
    checked_keep,
    number_rows,
    row_numbers,
)
from dither.mechanisms.randomized_response import odds_for_epsilon
from dither.numeric import Number


class KaryCoin:
    """The law of naming one of several answers: the true one with probability ``keep``, else any other alike."""

    __slots__ = ()
    keep: Fraction

    @property
    @abstractmethod
    def answers(self) -> int:
        """How many answers there are."""

    @property
    def lie(self) -> Fraction:
        """The probability of one given other answer."""
        return (1 - self.keep) / (self.answers - 1)

    @property
    def odds(self) -> Fraction:
        """Truth against one given other answer."""
        return self.keep / self.lie


@dataclass(frozen=True, slots=True, init=False)
class Kary(KaryCoin, FrequencyOracle, name="kary", fields={"domain": DOMAIN, "keep": FRACTION}):
    """Everybody names a value: their own with probability ``keep``, else any other alike.

    Guarantee: ln(keep·(k−1)/(1−keep))-private under REPLACE (Kairouz, Oh & Viswanath 2014), with the curve of
        KaryResponseLoss. For two values this is Warner's survey.
    Accuracy: variance about k/(e^ε−1)²/n for rare values: the best oracle for few values or a large ε (k < 3e^ε + 2).

    Example:
        >>> survey = Kary(["no", "yes"], keep="3/4")
        >>> f"{survey.loss().pure():.6f}", survey.variance(n=10_000)
        ('1.098612', 0.0001)
        >>> Kary.for_epsilon(100, epsilon=1).loss().pure() <= 1
        True
    """

    keep: Fraction

    def __init__(self, domain: Any, keep: Number) -> None:
        size = self._set_domain(domain).size
        self._put(keep=checked_keep(keep, 1, size, ", one over the number of values,"))

    @classmethod
    def for_epsilon(cls, domain: Any, epsilon: Number) -> Self:
        """The most honest response whose loss is no more than ``epsilon``: ``keep`` is rounded down."""
        odds = odds_for_epsilon(epsilon)
        return cls(domain, odds / (odds + checked_domain(domain).size - 1))

    @property
    def answers(self) -> int:
        """The values."""
        return self.size

    @property
    def miss(self) -> Fraction:
        """The probability of one given other value."""
        return self.lie

    @property
    def weight(self) -> Fraction:
        """The probability of one given other value."""
        return self.lie

    @property
    def comparisons(self) -> int:
        """Two shares that sum to 1 have intervals that mirror each other."""
        return 1 if self.size == 2 else self.size

    @property
    def width(self) -> int:
        """As many bytes as the largest index needs."""
        return bytes_for(self.size)

    def draw(self, truths: Ints, source: Source) -> Payloads:
        """The numbers of the values that are named."""
        return number_rows(respond(truths, self.size, self.keep, source), self.width)

    def valid(self, payloads: Payloads) -> npt.NDArray[np.bool_]:
        """Rows that are the index of a value."""
        numbers = row_numbers(payloads)
        if self.size > np.iinfo(numbers.dtype).max:
            return np.ones(numbers.size, dtype=np.bool_)
        return numbers < self.size

    def support(self, payloads: Payloads) -> Counts:
        """A report supports the value that it names."""
        return np.bincount(row_numbers(payloads), minlength=self.size).astype(np.int64, copy=False)

    def reduced(self) -> Kary:
        """The same odds for few values."""
        size = min(self.size, FEW)
        return Kary(size, self.odds / (self.odds + size - 1))


def respond(truths: Ints, size: int, keep: Fraction, source: Source) -> Ints:
    """k-ary responses to indices: the truth with probability ``keep``, else one of the others alike."""
    kept = bernoulli_many(keep, truths.size, source)
    # drawn for kept answers too, so that time doesn't tell which answers are lies
    steps = below_many(size - 1, truths.size, source)
    steps += 1
    steps[kept] = 0
    steps += truths
    np.subtract(steps, size, out=steps, where=steps >= size)
    return steps
