"""Local hashing: everybody hashes their value to one of few buckets with a hash of their own. ``frequencies.md``.

The hash is multiply-add-shift (Dietzfelbinger 1996): the upper half of (factor·value + offset) mod 2^word, for factor
and offset uniform. For values of half a word, two different values have hashes that are independent and uniform,
*exactly*. Brought down from 2^(word/2) to g buckets, whose sizes differ by one, two values share a bucket with a
probability that is a known fraction, a little above 1/g, and the same for every two values. It enters ``miss``, so the
estimates have no bias at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dither.entropy import Source
from dither.errors import InvalidParameter
from dither.local.clients.base import bytes_for
from dither.local.core.bits import BLOCK_BYTES
from dither.local.core.protocol import DOMAIN, FRACTION, Counts, Payloads, number_field
from dither.local.frequency.kary import KaryCoin, respond
from dither.local.frequency.oracle import FrequencyOracle, Ints, checked_domain, checked_keep, number_rows, row_numbers
from dither.mechanisms.randomized_response import odds_for_epsilon
from dither.numeric import Number, ceil_div, positive_int

Words = npt.NDArray[Any]

HALF = Fraction(1, 2)
SHORT_WORD, LONG_WORD = 32, 64
# The smallest hash, of four values to four buckets, whose seeds can all be listed.
TINY_WORD = 4
MOST_BUCKETS = 2**31
# Within a row, values are reached by adding two multiples of the factor: so many columns by as many as are needed.
COLUMNS = 512


@dataclass(frozen=True, slots=True, init=False)
class LocalHashing(
    KaryCoin,
    FrequencyOracle,
    name="local_hashing",
    fields={"domain": DOMAIN, "buckets": number_field(2), "keep": FRACTION, "word": number_field(TINY_WORD, LONG_WORD)},
):
    """Everybody names a bucket of their own hash: that of their value with probability ``keep``, else another alike.

    ``word`` is the number of bits that the hash computes with: 32 for up to 65,536 values, else 64.

    Args:
        domain: Public list of values: their number, or labels.
        buckets: Buckets of a hash.
        keep: Probability of the truth; the larger, the more a report costs.
        word: Bits that the hash computes with, even; by default 32 or 64.

    Guarantee: ln(keep·(g−1)/(1−keep))-private under REPLACE for g buckets, whatever the hash: given the hash it is
        g-ary response. ``loss()`` is the exact pair, in which the hash, drawn by the client, may also hide the
        difference.
    Accuracy: with g = e^ε + 1 the variance for rare values is that of the optimised unary encoding, from reports of a
        few bytes; but counting takes time for every report and value.

    Example:
        >>> words = LocalHashing.for_epsilon(10_000, epsilon=2)
        >>> words.buckets, words.width, words.loss().pure() <= 2
        (8, 9, True)
        >>> words.miss  # one in eight, since 8 divides 2^16
        Fraction(1, 8)
    """

    buckets: int
    keep: Fraction
    word: int

    def __init__(self, domain: Any, *, buckets: int, keep: Number, word: int | None = None) -> None:
        size = self._set_domain(domain).size
        bits = (SHORT_WORD if max(size, buckets) <= 2**16 else LONG_WORD) if word is None else word
        if bits not in range(TINY_WORD, LONG_WORD + 1, 2):
            raise InvalidParameter(f"word must be an even number from {TINY_WORD} to {LONG_WORD}; got {word!r}")
        most = 2 ** (bits // 2)
        if size > most or not 2 <= positive_int(buckets, "buckets") <= min(most, MOST_BUCKETS):
            raise InvalidParameter(
                f"a hash of {bits}-bit words takes up to {most} values to 2 to {min(most, MOST_BUCKETS)} buckets; got "
                f"{size} values and {buckets} buckets"
            )
        exact = checked_keep(keep, 1, int(buckets), ", one over the number of buckets,")
        self._put(buckets=int(buckets), keep=exact, word=bits)

    @classmethod
    def for_epsilon(cls, domain: Any, epsilon: Number, *, buckets: int | None = None) -> Self:
        """The most honest response whose loss is no more than ``epsilon``; by default g = ⌊e^ε + ½⌋ + 1 buckets.

        The variance for rare values, (e^ε + g − 1)²/((e^ε−1)²(g−1)), is smallest at g = e^ε + 1.

        Args:
            domain: Public list of values: their number, or labels.
            epsilon: Largest ε that one report may cost (REPLACE).
            buckets: Buckets of a hash; by default the number of least variance.
        """
        odds = odds_for_epsilon(epsilon)
        number = min(MOST_BUCKETS, int(odds + HALF) + 1) if buckets is None else positive_int(buckets, "buckets")
        checked_domain(domain)
        return cls(domain, buckets=number, keep=odds / (odds + number - 1))

    @property
    def answers(self) -> int:
        """The buckets."""
        return self.buckets

    @property
    def collision(self) -> Fraction:
        """The probability that two different values share a bucket: Σ(size of bucket)²/2^word, exactly.

        2^(word/2) = g·m + s hashes make s buckets of m + 1 and g − s buckets of m.
        """
        hashes = 2 ** (self.word // 2)
        each, more = divmod(hashes, self.buckets)
        return Fraction(more * (each + 1) ** 2 + (self.buckets - more) * each**2, hashes**2)

    @property
    def miss(self) -> Fraction:
        """The probability that the bucket of a given other value is named: it may be that of the truth."""
        return self.keep * self.collision + self.lie * (1 - self.collision)

    @property
    def weight(self) -> Fraction:
        """The probability that a given other value is in another bucket, and that one is named."""
        return self.lie * (1 - self.collision)

    @property
    def width(self) -> int:
        """Two words for the hash, and the bucket."""
        return 2 * self._word_bytes + bytes_for(self.buckets)

    @property
    def _word_bytes(self) -> int:
        return bytes_for(2**self.word)

    def draw(self, truths: Ints, source: Source) -> Payloads:
        """Hashes, and the buckets that are named."""
        each = self._word_bytes
        seeds = source.fill(2 * each * truths.size).reshape(truths.size, 2 * each)
        if self.word % 8:
            seeds = seeds & np.frombuffer(2 * (2**self.word - 1).to_bytes(each, "little"), dtype=np.uint8)
        named = respond(self._bucket(*self._seeds(seeds), truths), self.buckets, self.keep, source)
        return np.concatenate([seeds, number_rows(named, bytes_for(self.buckets))], axis=1)

    def _seeds(self, rows: Payloads) -> tuple[Words, Words]:
        """Factors and offsets at the upper end of machine words, whose arithmetic then is that mod 2^word."""
        each, bits = self._word_bytes, SHORT_WORD if self.word <= SHORT_WORD else LONG_WORD
        factors, offsets = (row_numbers(rows[:, i * each : (i + 1) * each]).astype(f"u{bits // 8}") for i in (0, 1))
        shift = factors.dtype.type(bits - self.word)
        return factors << shift, offsets << shift

    def _bucket(self, factors: Words, offsets: Words, truths: Ints) -> Ints:
        """The bucket of each person's value."""
        kind = factors.dtype.type
        mixed = factors * truths.astype(kind)
        mixed += offsets
        half = self.word // 2
        mixed >>= kind(factors.dtype.itemsize * 8 - half)
        mixed *= kind(self.buckets)  # both have at most half a word
        mixed >>= kind(half)
        return np.asarray(mixed.astype(np.int64))

    def valid(self, payloads: Payloads) -> npt.NDArray[np.bool_]:
        """Rows that name a bucket; any hash will do."""
        each = self._word_bytes
        named = row_numbers(payloads[:, 2 * each :])
        good = np.asarray(named.astype(np.uint64) < np.uint64(self.buckets))
        if self.word % 8:
            for i in (0, 1):
                seed = row_numbers(payloads[:, i * each : (i + 1) * each]).astype(np.uint64)
                good &= seed < np.uint64(2**self.word)
        return good

    def support(self, payloads: Payloads) -> Counts:
        """A report supports the values of the bucket that it names."""
        return self.support_of(payloads, np.arange(self.size))

    def reduced(self) -> LocalHashing:
        """The same odds with the smallest hash."""
        few = 2 ** (TINY_WORD // 2)
        buckets = min(self.buckets, few)
        keep = self.odds / (self.odds + buckets - 1)
        return LocalHashing(min(self.size, few), buckets=buckets, keep=keep, word=TINY_WORD)

    def support_of(self, payloads: Payloads, values: npt.NDArray[Any]) -> Counts:
        """For each of these indices, how many of the payloads support it; consecutive ones are quicker."""
        factors, starts, lengths = self._arcs(payloads)
        numbers = np.asarray(values, dtype=np.int64).astype(factors.dtype)
        sums = np.zeros(numbers.size, dtype=np.int64)
        if not numbers.size:
            return sums
        consecutive = bool((np.diff(numbers) == 1).all())
        # a byte counts up to 255 rows; fewer, where a row is long, keep the block in the cache
        block = int(min(255, max(8, BLOCK_BYTES // (factors.dtype.itemsize * numbers.size))))
        span = BLOCK_BYTES // (8 * factors.dtype.itemsize)
        for first in range(0, numbers.size, span):
            some = numbers[first : first + span]
            for start in range(0, factors.size, block):
                rows = slice(start, start + block)
                at = _progression if consecutive else _products
                mixed = at(factors[rows], starts[rows], some)
                inside = mixed < lengths[rows].reshape(-1, *(1,) * (mixed.ndim - 1))
                found = np.add.reduce(inside.view(np.uint8), axis=0, dtype=np.uint8)
                sums[first : first + span] += found.reshape(-1)[: some.size]
        return sums

    def _arcs(self, payloads: Payloads) -> tuple[Words, Words, Words]:
        """Factor, start and length such that a report supports x if and only if factor·x + start < length.

        The hashes of bucket y are an interval from ⌈y·2^h/g⌉, h half a word, so that (factor·x + offset) mod 2^word
        falls into an arc; moved to start at 0, one comparison tells.
        """
        each, half = self._word_bytes, self.word // 2
        factors, offsets = self._seeds(payloads)
        kind = factors.dtype.type
        named, one = row_numbers(payloads[:, 2 * each :]).astype(np.uint64), np.uint64(1)
        shift = kind(factors.dtype.itemsize * 8 - half)
        ends = named << np.uint64(half), (named + one) << np.uint64(half)
        first, last = (_ceil_div(end, self.buckets).astype(kind) for end in ends)
        return factors, offsets - (first << shift), (last - first) << shift


def _ceil_div(numerators: npt.NDArray[np.uint64], denominator: int) -> npt.NDArray[np.uint64]:
    quotients, rests = np.divmod(numerators, np.uint64(denominator))
    return np.asarray(quotients + (rests > 0))


def _progression(factors: Words, starts: Words, values: Words) -> Words:
    """Factor·value + start for consecutive values, padded to whole lines of columns: one addition for each."""
    columns = min(COLUMNS, values.size)
    lines = ceil_div(values.size, columns)
    kind = factors.dtype.type
    within = factors[:, None] * np.arange(columns, dtype=kind)
    heads = factors[:, None] * (values[0] + kind(columns) * np.arange(lines, dtype=kind)) + starts[:, None]
    return np.asarray(heads[:, :, None] + within[:, None, :])


def _products(factors: Words, starts: Words, values: Words) -> Words:
    mixed = factors[:, None] * values
    mixed += starts[:, None]
    return np.asarray(mixed)
