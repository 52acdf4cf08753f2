"""Hadamard response: one small number from everybody, and all shares by one fast transform. ``frequencies.md``."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np

from dither.entropy import Source, bernoulli_many
from dither.local.core.bits import odd_ones
from dither.local.core.protocol import DOMAIN, FRACTION, Counts, Payloads
from dither.local.frequency.oracle import FEW, Ints, checked_domain, checked_keep, number_rows
from dither.local.frequency.parts import NamingOracle
from dither.mechanisms.randomized_response import odds_for_epsilon
from dither.numeric import Number

HALF = Fraction(1, 2)


class SignCoin:
    """The law of a sign that is true with probability ``keep``, at a row drawn from the Hadamard matrix."""

    __slots__ = ()
    keep: Fraction

    @property
    def odds(self) -> Fraction:
        """The true sign against the other."""
        return self.keep / (1 - self.keep)

    @property
    def weight(self) -> Fraction:
        """The probability of a row in which two given columns differ, and of the sign of the other one."""
        return (1 - self.keep) / 2


@dataclass(frozen=True, slots=True, init=False)
class HadamardResponse(SignCoin, NamingOracle, name="hadamard", fields={"domain": DOMAIN, "keep": FRACTION}):
    """Everybody names a row of the Hadamard matrix, one with +1 in their value's column with probability ``keep``.

    Guarantee: ln(keep/(1−keep))-private under REPLACE (Acharya, Sun & Zhang 2019, with one block).
    Accuracy: variance (e^ε+1)²/(e^ε−1)²/n for every value: as good as any for ε up to about 1, but it stays above 1/n
        for larger ones. Reports have log₂(values) bits; counting takes no time for each value.

    Example:
        >>> survey = HadamardResponse.for_epsilon(1000, epsilon="1/2")
        >>> survey.order, survey.width, survey.loss().pure() <= 0.5
        (1024, 2, True)
    """

    keep: Fraction

    def __init__(self, domain: Any, keep: Number) -> None:
        self._set_domain(domain)
        self._put(keep=checked_keep(keep, 1, 2, ""))

    @classmethod
    def for_epsilon(cls, domain: Any, epsilon: Number) -> Self:
        """The most honest response whose loss is no more than ``epsilon``: ``keep`` is rounded down."""
        odds = odds_for_epsilon(epsilon)
        checked_domain(domain)
        return cls(domain, odds / (odds + 1))

    @property
    def order(self) -> int:
        """The order of the matrix: the least power of two above the number of values."""
        return int(2 ** self.size.bit_length())

    @property
    def miss(self) -> Fraction:
        """Columns are orthogonal: whatever the truth, half of the rows have +1 in another column."""
        return HALF

    def draw(self, truths: Ints, source: Source) -> Payloads:
        """Numbers of rows of the matrix."""
        columns = truths.astype(np.uint32) + np.uint32(1)
        agree = bernoulli_many(self.keep, columns.size, source)
        rows = source.u32(columns.size) & np.uint32(self.order - 1)
        turn = odd_ones(rows & columns) == agree
        # one bit of the column, turned, changes the sign and leaves the row uniform among those of the other
        rows ^= (columns & (~columns + np.uint32(1))) * turn
        return number_rows(rows, self.width)

    @property
    def things(self) -> int:
        """The rows of the matrix."""
        return self.order

    def support_of_named(self, named: Counts) -> Counts:
        """A report supports the values in whose columns its row has +1: (all + transform)/2, in whole numbers."""
        return np.asarray((named.sum() + hadamard_transform(named)[1 : self.size + 1]) // 2)

    def reduced(self) -> HadamardResponse:
        """The same coins for few values."""
        return HadamardResponse(min(self.size, FEW), self.keep)


def hadamard_transform(counts: Counts) -> Counts:
    """Σ counts[row]·(−1)^(ones that row and column share), for every column, in whole numbers.

    Example:
        >>> hadamard_transform(np.array([1, 0, 0, 2])).tolist()
        [3, -1, -1, 3]
    """
    out = np.array(counts, dtype=np.int64)
    step = 1
    while step < out.size:
        pairs = out.reshape(-1, 2, step)
        sums = pairs[:, 0] + pairs[:, 1]
        pairs[:, 1] = pairs[:, 0] - pairs[:, 1]
        pairs[:, 0] = sums
        step *= 2
    return out
