"""RAPPOR: how often texts of an open domain occur, from people who may report the same thing every day.

Erlingsson, Pihur & Korolova 2014. A value sets a few bits of a Bloom filter; every bit is turned round by noise that is
drawn once and kept, and again by noise that is drawn for every report. ``decode`` reads the counted bits against a list
of candidates; ``associate`` estimates two variables together. The proofs are in ``rappor.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dither.entropy import SYSTEM, Source, below_many, bernoulli_many
from dither.errors import InvalidData, InvalidParameter
from dither.local.clients.rappor import (
    COHORT_BYTES,
    LARGEST_BITS,
    LARGEST_COHORTS,
    LARGEST_HASHES,
    check_probabilities,
    check_sizes,
    text_of,
)
from dither.local.core.bits import coin_rows, packed, padding_is_zero
from dither.local.core.columns import column_of
from dither.local.core.losses import response_loss
from dither.local.core.protocol import FRACTION, GIVEN, Changes, Payloads, expect_changes
from dither.local.rappor.counting import CohortAggregator, Filters, cohorts_of
from dither.local.rappor.decode import Control, Decoding, decode
from dither.mechanisms.randomized_response import RandomizedResponseLoss, odds_for_epsilon
from dither.mechanisms.response_estimates import Target, share_variance
from dither.numeric import Number, log_up, positive, positive_int, probability
from dither.privacy import Adjacency, ApproximateLoss, PrivacyLoss, PureLoss, compose

# Work is done in blocks of about this many coins, one byte each, which stay in the second-level cache.
BLOCK_BYTES = 1 << 20
# Above this number of reports of one value the limit for infinitely many is used, which costs slightly more.
MOST_EXACT_REPORTS = 256
# Ratios of probabilities over several reports are rounded up to this: their fractions would have thousands of digits.
ROUNDED_TO = 1 << 64


@dataclass(frozen=True, slots=True, init=False)
class Rappor(
    Filters,
    name="rappor",
    fields={"bits": GIVEN, "hashes": GIVEN, "cohorts": GIVEN, "f": FRACTION, "p": FRACTION, "q": FRACTION},
):
    """A collection of texts by RAPPOR, with the letters of the paper: f, p and q.

    ``bits`` and ``hashes`` size the Bloom filter, ``cohorts`` is how many groups with hash functions of their own the
    clients fall into. A bit of the filter is turned round for ever with probability f/2; a permanent 1 is reported as 1
    with probability q, a permanent 0 with probability p.

    Args:
        bits: Bits of a filter.
        hashes: Bits that one value sets.
        cohorts: Groups with hash functions of their own.
        f: Probability that a permanent bit is drawn anew, half of which are lies: what all reports together cost.
        p: Probability that a permanent 0 is reported as 1.
        q: Probability that a permanent 1 is reported as 1, above p.

    Guarantee: one report is h·ln(q*(1−p*)/(p*(1−q*)))-private under REPLACE, where q* and p* are the probabilities that
        a bit of the filter that is 1 or 0 is reported as 1 (``hit`` and ``miss``). Any number of reports about one
        value is 2h·ln((1−f/2)/(f/2))-private together (Erlingsson, Pihur & Korolova 2014, Theorems 1 and 2).
    Assumes: for more than one report, that the client keeps its memory, and that *which* of somebody's reports are
        about the same value is no secret (that the value changed, that an old one came back): who looks at reports of
        one person sees whether they have permanent bits in common. See ``secret_changes_loss``.
    Accuracy: the estimated share of set bits is unbiased (``variance``); see ``decode.detection_limit`` for
        how frequent a value must be to be found.

    Example:
        >>> rappor = Rappor(bits=128, hashes=2, cohorts=64, f="1/2", p="1/2", q="3/4")
        >>> f"{rappor.loss().pure():.4f} {rappor.permanent_loss().pure():.4f}"
        '1.0743 4.3944'
        >>> [round(rappor.longitudinal_loss(10, changes="public", values=m).pure(), 4) for m in (1, 10)]
        [4.2993, 10.7429]
        >>> round(rappor.longitudinal_loss(10, changes="secret").pure(), 4)  # a bad bound: little is hidden
        799.5798
        >>> Rappor.for_epsilon(1, permanent=2).loss().pure() <= 1
        True
    """

    bits: int
    hashes: int
    cohorts: int
    f: Fraction
    p: Fraction
    q: Fraction

    def __init__(
        self, *, bits: int = 128, hashes: int = 2, cohorts: int = 64, f: Number, p: Number = 0, q: Number = 1
    ) -> None:
        put = object.__setattr__
        put(self, "hashes", _within(hashes, "hashes", 1, LARGEST_HASHES))
        put(self, "bits", _within(bits, "bits (at least twice the hashes)", 2 * self.hashes, LARGEST_BITS))
        put(self, "cohorts", _within(cohorts, "cohorts", 1, LARGEST_COHORTS))
        for name, value in (("f", f), ("p", p), ("q", q)):
            put(self, name, probability(value, name))
        check_sizes(self.bits, self.cohorts)
        check_probabilities(self.f, self.p, self.q)

    @classmethod
    def for_epsilon(
        cls, epsilon: Number, *, permanent: Number | None = None, bits: int = 128, hashes: int = 2, cohorts: int = 64
    ) -> Self:
        """The most honest collection whose loss per report is no more than ``epsilon``, rounded the safe way.

        ``permanent`` is the most that all reports about one value may cost together. Without it, or where it is no more
        than ``epsilon``, there is no second step of noise: one-time RAPPOR, whose reports of one value are all alike.

        Args:
            epsilon: Largest ε that one report may cost (REPLACE).
            permanent: Largest ε of all reports about one value together; by default that of one.
            bits: Bits of a filter.
            hashes: Bits that one value sets; they share ε.
            cohorts: Groups with hash functions of their own.
        """
        one = positive(epsilon, "epsilon")
        whole = one if permanent is None else positive(permanent, "permanent")
        lie = 1 / (1 + odds_for_epsilon(whole / (2 * positive_int(hashes, "hashes"))))
        p, q = Fraction(0), Fraction(1)
        if whole > one:
            # a bit is reported truly with probability lie·p + (1 − lie)·q, p = 1 − q: solved for q
            true = 1 - 1 / (1 + odds_for_epsilon(one / (2 * hashes)))
            q = min(Fraction(1), (true - lie) / (1 - 2 * lie))
            p = 1 - q
        return cls(bits=bits, hashes=hashes, cohorts=cohorts, f=2 * lie, p=p, q=q)

    # ------------------------------------------------------------------ what it costs

    @property
    def hit(self) -> Fraction:
        """The probability q* that a bit of the filter that is 1 is reported as 1."""
        return self.q * (1 - self.f / 2) + self.p * self.f / 2

    @property
    def miss(self) -> Fraction:
        """The probability p* that a bit of the filter that is 0 is reported as 1."""
        return self.p * (1 - self.f / 2) + self.q * self.f / 2

    def loss(self) -> PrivacyLoss:
        """What one report costs: of two values, each sets at most h bits that the other doesn't."""
        return self._filter_loss(self.hit, self.miss)

    def permanent_loss(self) -> PrivacyLoss:
        """What all reports about one value cost together, however many: they are made from its permanent bits."""
        return self._filter_loss(1 - self.f / 2, self.f / 2)

    # unlike for other protocols it must be said whether changes are public: reports share permanent bits
    def longitudinal_loss(  # type: ignore[override]
        self, reports: int, *, changes: Changes, values: int | None = None
    ) -> PrivacyLoss:
        """What ``reports`` reports of one person cost together, about at most ``values`` different values.

        ``changes`` must be said, since who sees several reports of one person sees whether they share permanent bits:

        - "public": it is no secret which reports are about the same value, for example because values are read at
          fixed times and each is another one. By default every report is about another value; this is also what they
          cost if the client doesn't keep its memory, whatever is secret. Fewer ``values`` are cheaper, up to ``values``
          times the permanent loss, if the client keeps its memory.
        - "secret": when, and whether, the value changes or returns is to be hidden as well: ``secret_changes_loss``,
          unless ``values`` is 1, so that nothing changes.

        How many reports each value has isn't known here. An even split has the largest ε but not the largest curve, so
        that for several reports of several values the loss is ε alone, with the curve of any ε-private report.

        Args:
            reports: Number of reports of one person.
            changes: Whether it is public or secret when the value changes.
            values: Most different values that they speak of; by default all differ.
        """
        expect_changes(changes)
        times = positive_int(reports, "reports")
        different = times if values is None else min(positive_int(values, "values"), times)
        if different == 1:
            return self._repeated_loss(times)
        if changes == "secret":
            return self.secret_changes_loss(times)
        if different == times:
            return compose([(self.loss(), times)])
        # ε of several reports about one value is concave in their number: an even split costs most
        size, larger = divmod(times, different)
        parts = [(size, different - larger), (size + 1, larger)]
        epsilon = sum(count * Fraction(self._repeated_loss(each).pure()) for each, count in parts if count)
        return PureLoss(epsilon, Adjacency.REPLACE)

    def secret_changes_loss(self, reports: int) -> PrivacyLoss:
        """What ``reports`` reports cost together if it is also secret when, and whether, the value changes or returns.

        A bound, and a bad one, because little is kept secret: the reports of a new value have new permanent bits, in
        all places. Without a second step of noise everybody sees that, and there is no finite ε.
        """
        later = positive_int(reports, "reports") - 1
        if not later:
            return self.loss()
        if self.p == 0 or self.q == 1:
            return ApproximateLoss(0, 1, Adjacency.REPLACE)
        odds = max(self.q / self.p, (1 - self.p) / (1 - self.q))
        return self.loss() + PureLoss(later * self.bits * Fraction(log_up(odds)), Adjacency.REPLACE)

    def _repeated_loss(self, reports: int) -> PrivacyLoss:
        """What ``reports`` reports about one value cost together."""
        if reports == 1:
            return self.loss()
        if reports > MOST_EXACT_REPORTS:
            return self.permanent_loss()
        lie, p, q = self.f / 2, self.p**reports, self.q**reports
        no_p, no_q = (1 - self.p) ** reports, (1 - self.q) ** reports
        most = (1 - lie) / lie
        ones = min(most, _rounded_up(((1 - lie) * q + lie * p) / (lie * q + (1 - lie) * p)))
        zeros = min(most, _rounded_up(((1 - lie) * no_p + lie * no_q) / (lie * no_p + (1 - lie) * no_q)))
        # the binary response whose two answers are as telling as the two most telling sequences of bits
        miss = (zeros - 1) / (ones * zeros - 1)
        found, permanent = self._filter_loss(ones * miss, miss), self.permanent_loss()
        return found if found.pure() < permanent.pure() else permanent

    def _filter_loss(self, hit: Fraction, miss: Fraction) -> PrivacyLoss:
        """The loss of a Bloom filter whose bits are sent as 1 with probability ``hit`` where 1, ``miss`` where 0."""
        if hit + miss == 1:
            return compose([(RandomizedResponseLoss(hit / miss), 2 * self.hashes)])
        # a bit of one value and one of the other: they speak for the first, for the second, or (both alike) for neither
        pair = response_loss(hit * (1 - miss) / (miss * (1 - hit)), miss * (1 - hit))
        return compose([(pair, self.hashes)])

    def variance(self, n: int, share: Number = Fraction(1, 2)) -> float:
        """The variance of the estimated share of people in a cohort with a given bit set, from ``n`` reports of it."""
        theta = probability(share, "share")
        return float(share_variance(positive_int(n, "n"), theta, self.hit, self.miss, Target.POPULATION))

    def inputs(self) -> list[str]:
        """A few values to try."""
        return ["a", "b", "c", "d"]

    def reduced(self) -> Rappor:
        """The same coins with so few bits that the law of the client can be listed in full."""
        return replace(self, bits=2, hashes=1, cohorts=1)

    # ------------------------------------------------------------------ the wire

    @property
    def width(self) -> int:
        """Two bytes for the cohort, and the bits."""
        return COHORT_BYTES + (self.bits + 7) // 8

    def valid(self, payloads: Payloads) -> npt.NDArray[np.bool_]:
        """A cohort that there is, and no bit beyond the last."""
        return (cohorts_of(payloads) < self.cohorts) & padding_is_zero(payloads, self.bits)

    # ------------------------------------------------------------------ many people at once

    def randomize(self, values: Any, *, candidates: Sequence[str] | None = None, source: Source = SYSTEM) -> Payloads:
        """First reports of many people, one row each; each has a cohort of their own.

        ``values`` are texts, or whole numbers: places in the list ``candidates`` if one is given, else standing for
        their decimal text.

        Args:
            values: Texts or whole numbers; with candidates, places in that list.
            candidates: List of texts that values are places of.
            source: Source of randomness; anything but the default is for tests.
        """
        texts, codes = _coded(values, candidates)
        cohorts = below_many(self.cohorts, codes.size, source)
        # only the pairs of cohort and value that occur are hashed
        pairs, rows_of = np.unique(cohorts * len(texts) + codes, return_inverse=True)
        places = self._places([(int(pair) // len(texts), texts[int(pair) % len(texts)]) for pair in pairs])
        rows = np.empty((codes.size, self.width), dtype=np.uint8)
        rows[:, :COHORT_BYTES] = cohorts.astype("<u2").view(np.uint8).reshape(-1, COHORT_BYTES)
        block = max(1, BLOCK_BYTES // self.bits)
        for start in range(0, codes.size, block):
            some = places[rows_of[start : start + block]]
            people = np.arange(some.shape[0])
            bits = coin_rows(self.miss, some.shape[0], self.bits, source)
            for j in range(self.hashes):
                # where two hashes agree the second coin takes the place of the first: one coin of the same law
                bits[people, some[:, j]] = bernoulli_many(self.hit, some.shape[0], source)
            rows[start : start + block, COHORT_BYTES:] = packed(bits)
        return rows

    def aggregator(self) -> RapporAggregator:
        """An empty aggregate for this collection."""
        return RapporAggregator(self)


class RapporAggregator(CohortAggregator):
    """The aggregate of a collection by RAPPOR."""

    protocol: Rappor

    def decode(
        self, candidates: Sequence[str], *, confidence: float = 0.95, control: Control = Control.FAMILYWISE
    ) -> Decoding:
        """Which of the candidates people have, and how many of them: see ``rappor.decode.decode``."""
        return decode(self, candidates, confidence=confidence, control=control)


def _coded(values: Any, candidates: Sequence[str] | None) -> tuple[list[bytes], npt.NDArray[np.int64]]:
    """The different values as they are hashed, and which of them each person has."""
    if candidates is not None:
        codes = np.asarray(values)
        inside = codes.size == 0 or (codes.dtype.kind in "iu" and codes.min() >= 0 and codes.max() < len(candidates))
        if codes.ndim != 1 or not inside or isinstance(values, np.ma.MaskedArray):
            raise InvalidData("with candidates, values are a list of places in it, from 0; nothing was drawn")
        return [text_of(text) for text in candidates], codes.astype(np.int64)
    listed = column_of(values)
    if isinstance(listed, np.ndarray):
        different, codes = np.unique(listed, return_inverse=True)
        return [text_of(int(value)) for value in different], codes.astype(np.int64)
    known: dict[bytes, int] = {}
    codes = np.fromiter((known.setdefault(text_of(value), len(known)) for value in listed), dtype=np.int64)
    return list(known), codes


def _within(value: object, name: str, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= most:
        raise InvalidParameter(f"{name} must be a whole number from {least} to {most}; got {value!r}")
    return int(value)


def _rounded_up(value: Fraction) -> Fraction:
    return Fraction(-(-value.numerator * ROUNDED_TO // value.denominator), ROUNDED_TO)
