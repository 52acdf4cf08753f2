"""Subset selection: everybody names a few values at once. Proof in ``frequencies.md``."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dither.entropy import Source, below_many, bernoulli_many
from dither.errors import InvalidParameter
from dither.local.core.bits import BLOCK_BYTES, coin_rows, column_sums, packed, padding_is_zero
from dither.local.core.protocol import DOMAIN, FRACTION, Counts, Payloads, number_field
from dither.local.frequency.oracle import FEW, FrequencyOracle, Ints, checked_domain, checked_keep
from dither.mechanisms.randomized_response import odds_for_epsilon
from dither.mechanisms.response_estimates import Target, share_variance
from dither.numeric import Number, positive_int

# Rows in one block, where that isn't more than 64 MB: each step of the loop below does something for all of them.
FEWEST_ROWS = 512
LARGEST_BLOCK = 1 << 26


@dataclass(frozen=True, slots=True, init=False)
class SubsetSelection(
    FrequencyOracle, name="subset_selection", fields={"domain": DOMAIN, "subset": number_field(1), "keep": FRACTION}
):
    """Everybody names ``subset`` values: their own is among them with probability ``keep``, the others drawn alike.

    Args:
        domain: Public list of values: their number, or labels.
        subset: How many values a report names.
        keep: Probability that the truth is among them.

    Guarantee: ln(keep·(k−subset)/((1−keep)·subset))-private under REPLACE (Wang et al. 2016; Ye & Barg 2018).
    Accuracy: no ε-private report has a smaller worst-case error over all values at once; the margin over the optimised
        unary encoding vanishes for many values. With subset = 1 this is k-ary response.

    Example:
        >>> survey = SubsetSelection.for_epsilon(100, epsilon=1)
        >>> survey.subset, survey.loss().pure() <= 1
        (27, True)
    """

    subset: int
    keep: Fraction

    def __init__(self, domain: Any, *, subset: int, keep: Number) -> None:
        size = self._set_domain(domain).size
        if positive_int(subset, "subset") >= size:
            raise InvalidParameter(f"subset must be a number of values below {size}; got {subset}")
        certain = "a value that is surely among them"
        exact = checked_keep(keep, int(subset), size, ", the part of the values that is named,", certain)
        self._put(subset=int(subset), keep=exact)

    @classmethod
    def for_epsilon(cls, domain: Any, epsilon: Number) -> Self:
        """The subset of smallest variance for rare values, about k/(e^ε + 1), and ``keep`` rounded down."""
        odds, size = odds_for_epsilon(epsilon), checked_domain(domain).size
        lower = min(size - 1, max(1, int(size / (odds + 1))))
        oracles = [
            cls(domain, subset=some, keep=some * odds / (some * odds + size - some))
            for some in {lower, min(size - 1, lower + 1)}
        ]
        return min(oracles, key=lambda o: share_variance(1, Fraction(0), o.hit, o.miss, Target.POPULATION))

    @property
    def miss(self) -> Fraction:
        """The probability that a given other value is named: subset − 1 of the others with the truth, else subset."""
        return (self.subset - self.keep) / (self.size - 1)

    @property
    def odds(self) -> Fraction:
        """A given subset with the truth against a given one without it."""
        return self.keep * (self.size - self.subset) / ((1 - self.keep) * self.subset)

    @property
    def weight(self) -> Fraction:
        """The probability that a given other value is named and the truth isn't."""
        return (1 - self.keep) * Fraction(self.subset, self.size - 1)

    @property
    def width(self) -> int:
        """One bit for each value."""
        return -(-self.size // 8)

    @property
    def block(self) -> int:
        """As many people as have a byte for each bit in the cache, but enough for a step to be worth its call."""
        return max(1, min(max(FEWEST_ROWS, BLOCK_BYTES // self.size), LARGEST_BLOCK // self.size))

    def draw(self, truths: Ints, source: Source) -> Payloads:
        """Uniform subsets of stated sizes: coins for all, then random members taken out or others put in.

        Coins make every set of one size alike. To take out a uniform member, or to put in a uniform other, keeps it so:
        columns are drawn until one does, for all people at once.
        """
        people = np.arange(truths.size)
        kept = bernoulli_many(self.keep, truths.size, source)
        bits = coin_rows(Fraction(self.subset, self.size), truths.size, self.size, source)
        bits[people, truths] = False
        surplus = bits.sum(axis=1, dtype=np.int64) + kept - self.subset
        active = np.flatnonzero(surplus)
        while active.size:
            columns = below_many(self.size, active.size, source)
            taking = surplus[active] > 0
            fits = (bits[active, columns] == taking) & (columns != truths[active])
            rows, columns, taking = active[fits], columns[fits], taking[fits]
            bits[rows, columns] = ~taking
            surplus[rows] += np.where(taking, -1, 1)
            active = active[surplus[active] != 0]
        bits[people, truths] = kept
        return packed(bits)

    def valid(self, payloads: Payloads) -> npt.NDArray[np.bool_]:
        """As many bits as the subset has values, none beyond the last."""
        named = _ONES[payloads].sum(axis=1, dtype=np.int64)
        return np.asarray(padding_is_zero(payloads, self.size) & (named == self.subset))

    def support(self, payloads: Payloads) -> Counts:
        """A report supports the values that it names."""
        return column_sums(payloads, self.size)

    def reduced(self) -> SubsetSelection:
        """The same odds, and about the same part of the values, for few."""
        size = min(self.size, FEW + 1)
        subset = self.subset if size == self.size else min(size - 1, max(1, round(size * self.subset / self.size)))
        return SubsetSelection(size, subset=subset, keep=subset * self.odds / (subset * self.odds + size - subset))


# The number of ones in every byte.
_ONES = np.array([byte.bit_count() for byte in range(256)], dtype=np.uint8)
