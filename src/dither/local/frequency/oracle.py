"""Frequency oracles: how often each value of a public list occurs, from reports that hide who has which.

A report *supports* some values. Whoever has a value sends a report that supports it with probability ``hit``; whoever
hasn't does so with probability ``miss`` < ``hit``, the same for all (a "pure" protocol: Wang, Blocki, Li & Jha 2017).
So (share of supporting reports − miss)/(hit − miss) is unbiased for the share of those who have the value, and the
number of supporting reports is binomial: variances and intervals are those of ``mechanisms.response_estimates``.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dither.entropy import SYSTEM, Source
from dither.errors import InvalidData, InvalidParameter
from dither.local.clients.base import ValueDomain
from dither.local.core.bits import in_blocks
from dither.local.core.columns import column_of
from dither.local.core.consistent import Consistency, make_consistent
from dither.local.core.losses import response_loss
from dither.local.core.protocol import Aggregator, Counts, Floats, Payloads, Protocol
from dither.local.core.tables import MOST_ROWS, EstimateRow, Estimates, EstimateTable, meaning
from dither.mechanisms.base import failure_probability
from dither.mechanisms.response_estimates import (
    Target,
    check_informative,
    estimate_share,
    share_variance,
    worst_error,
    worst_share,
)
from dither.numeric import Number, as_fraction, positive_int, probability
from dither.privacy import PrivacyLoss

Label: TypeAlias = str | int
Ints: TypeAlias = npt.NDArray[np.int64]

# An aggregate holds one counter for each value; a larger domain is a matter for heavy hitters.
LARGEST_DOMAIN = 2**24
# As many people at a time as keep all arrays in the cache.
BLOCK_PEOPLE = 1 << 16
# Domains of up to this size are small enough for all laws of a client to be listed.
FEW = 4


class Supporting(Protocol):
    """A collection whose reports support some values and not others, and whose loss follows from how often they do."""

    keep: Fraction

    @property
    def hit(self) -> Fraction:
        """The probability that a report supports the value of the person who sends it."""
        return self.keep

    @property
    @abstractmethod
    def miss(self) -> Fraction:
        """The probability that a report supports a given other value."""

    @property
    @abstractmethod
    def odds(self) -> Fraction:
        """How many times likelier a report may be for one value than for another: e^ε."""

    @property
    @abstractmethod
    def weight(self) -> Fraction:
        """The probability that a report speaks for one given other value and against the truth."""

    def loss(self) -> PrivacyLoss:
        """The exact pair of two values, for the adjacency REPLACE."""
        return response_loss(self.odds, self.weight)


@dataclass(frozen=True, slots=True, init=False)
class FrequencyOracle(Supporting):
    """Estimates the shares of all values of a public list.

    A subclass is a frozen dataclass; ``domain`` is the number of values, or their labels.

    Guarantee: the curve of one report is weight·(odds − e^ε)₊ for every two values, so ε = ln(odds) under REPLACE.
    Assumes: the list is public, and every report is of another person; m reports of one cost m times as much.
    Accuracy: unbiased; the variance of a share θ from n reports is λ(1−λ)/(n(hit−miss)²), λ = miss + (hit−miss)·θ.
    """

    domain: int | tuple[Label, ...]
    _known: ValueDomain = field(init=False, repr=False, compare=False)

    # ------------------------------------------------------------------ what a subclass says

    @abstractmethod
    def draw(self, truths: Ints, source: Source) -> Payloads:
        """Payloads of as many people as fit into the cache, one row each, from the indices of their values."""

    @abstractmethod
    def support(self, payloads: Payloads) -> Counts:
        """For every value, how many of these payloads support it."""

    @abstractmethod
    def reduced(self) -> FrequencyOracle:
        """The same oracle for so few values that the law of its client can be listed in full."""

    # ------------------------------------------------------------------ what follows for all

    def _set_domain(self, domain: Any) -> ValueDomain:
        known = checked_domain(domain)
        self._put(domain=values_of(known), _known=known)
        return known

    @property
    def size(self) -> int:
        """The number of values."""
        return self._known.size

    @property
    def labels(self) -> tuple[Label, ...] | None:
        """The values, unless they are 0 … size − 1."""
        return self._known.labels

    def inputs(self) -> list[Label]:
        """All values."""
        return list(self._known.values)

    def places(self, values: Any) -> Ints:
        """The index of every value; the message of the error doesn't repeat any."""
        return places(values, self._known)

    @property
    def block(self) -> int:
        """How many people's payloads are drawn at a time."""
        return BLOCK_PEOPLE

    def randomize_places(self, truths: Ints, source: Source) -> Payloads:
        """Payloads of many people, one row each, from the indices of their values."""
        return in_blocks(truths, self.width, self.block, lambda some: self.draw(some, source))

    def randomize(self, values: Any, *, source: Source = SYSTEM) -> Payloads:
        """Payloads of many people, one row each, of the same law as the client's."""
        return self.randomize_places(self.places(values), source)

    def variance(self, n: int, share: Number | None = None, *, target: Target = Target.POPULATION) -> float:
        """The variance of one value's estimate from ``n`` reports; by default for the share where it is largest."""
        check_informative(self.hit, self.miss)
        theta = worst_share(self.hit, self.miss, target) if share is None else probability(share, "share")
        return float(share_variance(positive_int(n, "n"), theta, self.hit, self.miss, target))

    def error(
        self, confidence: Number = 0.95, *, n: int, simultaneous: bool = True, target: Target = Target.POPULATION
    ) -> float:
        """The error that no value's estimate exceeds with this confidence (or a given one's), whatever the shares."""
        failure = failure_probability(confidence) / (self.comparisons if simultaneous else 1)
        return worst_error(positive_int(n, "n"), self.hit, self.miss, failure, target)

    @property
    def comparisons(self) -> int:
        """How many intervals have to hold for all to hold."""
        return self.size

    def aggregator(self) -> FrequencyAggregator:
        """An empty aggregate for this collection."""
        return FrequencyAggregator(self)


class FrequencyAggregator(Aggregator["Shares"]):
    """Counts for every value how many reports support it."""

    protocol: FrequencyOracle

    def __init__(self, protocol: FrequencyOracle) -> None:
        super().__init__(protocol, supports=np.zeros(protocol.size, dtype=np.int64))

    def count(self, payloads: Payloads) -> None:
        """Add valid payloads."""
        self.counters["supports"] += self.protocol.support(payloads)

    def supports(self) -> Counts:
        """For every value, how many reports support it."""
        return self.counters["supports"]

    def estimate(
        self,
        confidence: Number = 0.95,
        *,
        simultaneous: bool = True,
        target: Target = Target.POPULATION,
        consistent: Consistency | None = None,
    ) -> Shares:
        """The shares of all values.

        Unbiased, so a share may be negative, unless ``consistent`` names a rule. All intervals hold together
        (Bonferroni) if ``simultaneous``, else each by itself.
        """
        self.expect_reports()
        oracle = self.protocol
        return shares_from_supports(
            self.supports(),
            self.reports,
            hit=oracle.hit,
            miss=oracle.miss,
            confidence=confidence,
            comparisons=oracle.comparisons if simultaneous else 1,
            simultaneous=simultaneous,
            target=target,
            labels=oracle.labels,
            consistent=consistent,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Shares(Estimates):
    """What the reports say about the share of every value; a table of the largest when printed.

    ``values`` are unbiased unless ``rule`` names how they were made consistent; ``variances`` always are unbiased
    estimates of the variances of the unbiased values. The intervals hold at ``confidence``: all together if
    ``simultaneous``, else each by itself. They stay those of the unbiased values also where a rule moved a value, and
    are then cut to [0, 1]: they cover as stated, but aren't centred on it, and needn't hold it.
    """

    target: Target
    labels: tuple[Label, ...] | None = None
    rule: Consistency | None = None

    @property
    def counts(self) -> Floats:
        """The shares times the number of reports."""
        return self.values * self.reports

    def top(self, number: int) -> list[tuple[Label, float, tuple[float, float]]]:
        """The values with the largest shares: label, share, interval."""
        order = np.argsort(-self.values, kind="stable")[: positive_int(number, "number")]
        return [
            (
                int(place) if self.labels is None else self.labels[place],
                float(self.values[place]),
                (float(self.intervals[place, 0]), float(self.intervals[place, 1])),
            )
            for place in order
        ]

    def table(self) -> EstimateTable:
        """The largest shares."""
        notes = [meaning(self.confidence, simultaneous=self.simultaneous, reports=self.reports)]
        notes += [f"share: {self.target.sentence}"]
        notes += [] if self.rule is None else [f"shares, not intervals, by {self.rule.value}: {self.rule.sentence}"]
        rows = [
            EstimateRow(name=str(label), value=share, interval=ends)
            for label, share, ends in (self.top(MOST_ROWS) if self.values.size else [])
        ]
        # what a rule moved is possible, and may be meant to lie outside
        return EstimateTable(
            names="value", values="share", rows=rows, number=self.values.size, notes=notes, cut=self.rule is None
        )

    def made_consistent(self, rule: Consistency) -> Shares:
        """The same estimates after a rule that makes them not negative (and, with NORM_SUB, sum to 1).

        BASE_CUT cuts what lies within half of its interval's width of 0: an estimate that the reports don't show to be
        of a value that anybody has.
        """
        if self.rule is not None:
            raise InvalidParameter(f"these shares have been made consistent already, by {self.rule.value}")
        values = self.values
        if rule is Consistency.BASE_CUT:
            values = np.where(self.intervals[:, 0] > 0, values, 0.0)
            values = make_consistent(values, rule, threshold=0.0)
        else:
            values = make_consistent(values, rule)
        return replace(self, values=values, intervals=np.clip(self.intervals, 0.0, 1.0), rule=rule)


def shares_from_supports(
    supports: Counts,
    reports: int,
    *,
    hit: Fraction,
    miss: Fraction,
    confidence: Number,
    comparisons: int,
    simultaneous: bool,
    target: Target = Target.POPULATION,
    labels: tuple[Label, ...] | None = None,
    consistent: Consistency | None = None,
) -> Shares:
    """Shares from the numbers of supporting reports: exact binomial intervals, each failing 1/comparisons as often."""
    failure = failure_probability(confidence) / comparisons
    # equal counts have equal estimates: large domains hold few different ones
    different, places_of = np.unique(supports, return_inverse=True)
    found = [
        estimate_share(int(count), reports, hit, miss, failure=failure, target=target, clip=False)
        for count in different
    ]
    shares = Shares(
        values=np.array([value for value, _, _ in found])[places_of],
        variances=np.array([variance for _, variance, _ in found])[places_of],
        intervals=np.array([ends for _, _, ends in found])[places_of],
        confidence=float(as_fraction(confidence)),
        simultaneous=simultaneous,
        reports=reports,
        target=target,
        labels=labels,
    )
    return shares if consistent is None else shares.made_consistent(consistent)


# ------------------------------------------------------------------ domains and numbers in payloads


def checked_domain(domain: Any) -> ValueDomain:
    """The values of a question, as many as an aggregate can count one by one."""
    plain = int(domain) if isinstance(domain, np.integer) else domain
    known = ValueDomain(plain.tolist() if isinstance(plain, np.ndarray) else plain)
    if known.size > LARGEST_DOMAIN:
        raise InvalidParameter(
            f"a frequency oracle counts at most {LARGEST_DOMAIN} values one by one: find the frequent ones first, with "
            "heavy hitters"
        )
    return known


def checked_keep(keep: Number, part: int, whole: int, what: str, certain: str = "an honest answer") -> Fraction:
    """The probability of the truth: more than ``what`` the truth is among all reports, part/whole."""
    exact = as_fraction(keep, "keep")
    if not Fraction(part, whole) < exact < 1:
        raise InvalidParameter(
            f"keep must lie above {part}/{whole}{what} and below 1 ({certain} has no finite ε); got {keep!r}"
        )
    return exact


def values_of(domain: ValueDomain) -> int | tuple[Label, ...]:
    """A domain as protocols keep it: the number of values, or their labels."""
    return domain.size if domain.labels is None else domain.labels


def places(values: Any, domain: ValueDomain) -> Ints:
    """The index of every value in a domain."""
    if domain.labels is None:
        array = np.asarray(values)
        if array.size == 0 and array.ndim == 1:
            return np.zeros(0, dtype=np.int64)
        fits = array.ndim == 1 and array.dtype.kind in "iu" and not isinstance(values, np.ma.MaskedArray)
        if not fits or int(array.min()) < 0 or int(array.max()) >= domain.size:
            raise InvalidData(
                f"the values must be a list of whole numbers from 0 to {domain.size - 1}; nothing was drawn"
            )
        return array.astype(np.int64, copy=False)
    listed = column_of(values, "a list of labels")
    plain = listed.tolist() if isinstance(listed, np.ndarray) else listed
    return np.fromiter((domain.place(value) for value in plain), dtype=np.int64)


def number_rows(numbers: npt.NDArray[Any], width: int) -> Payloads:
    """Whole numbers as rows of ``width`` bytes, the lowest first."""
    words = np.ascontiguousarray(numbers, dtype="<u8").view(np.uint8).reshape(numbers.size, 8)
    return np.ascontiguousarray(words[:, :width])


def row_numbers(rows: Payloads) -> npt.NDArray[Any]:
    """The inverse of ``number_rows``, for up to eight bytes: unsigned numbers of the narrowest type that holds them."""
    count, width = rows.shape
    kind = next(size for size in (1, 2, 4, 8) if size >= width)
    if kind != width:
        padded = np.zeros((count, kind), dtype=np.uint8)
        padded[:, :width] = rows
        rows = padded
    return np.ascontiguousarray(rows).view(f"<u{kind}").reshape(count)
