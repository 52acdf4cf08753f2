"""Reports of Bloom filters by cohort: how often each bit is set, and how many people that says have it set."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from dither.local.clients.rappor import COHORT_BYTES, bloom_places, text_of
from dither.local.core.bits import column_sums
from dither.local.core.protocol import Aggregator, Counts, Floats, Payloads, Protocol
from dither.mechanisms.base import failure_probability
from dither.mechanisms.response_estimates import ReadOnlyArrays, Target, interval, unbiased_variance
from dither.numeric import as_fraction


class Filters(Protocol):
    """A collection whose reports are a cohort and a noisy Bloom filter; a subclass is a frozen dataclass."""

    bits: int
    hashes: int
    cohorts: int

    @property
    @abstractmethod
    def hit(self) -> Fraction:
        """The probability q* that a bit of the filter that is 1 is reported as 1."""

    @property
    @abstractmethod
    def miss(self) -> Fraction:
        """The probability p* that a bit of the filter that is 0 is reported as 1."""

    def places(self, texts: Sequence[str | bytes]) -> npt.NDArray[np.int64]:
        """The places of the bits of every text in every cohort: an array of cohorts × texts × hashes."""
        written = [text if isinstance(text, bytes) else text_of(text) for text in texts]
        found = self._places([(cohort, text) for cohort in range(self.cohorts) for text in written])
        return found.reshape(self.cohorts, len(written), self.hashes)

    def _places(self, pairs: Sequence[tuple[int, bytes]]) -> npt.NDArray[np.int64]:
        bits, hashes = self.bits, self.hashes
        found = [bloom_places(text, cohort, bits=bits, hashes=hashes) for cohort, text in pairs]
        return np.array(found, dtype=np.int64).reshape(len(pairs), hashes)


class CohortAggregator(Aggregator["BitEstimates"]):
    """Counts for every cohort its reports, and for each of its bits how many have it set."""

    protocol: Filters
    once = "cohort_reports"

    def __init__(self, protocol: Filters) -> None:
        ones = np.zeros((protocol.cohorts, protocol.bits), dtype=np.int64)
        super().__init__(protocol, ones=ones, cohort_reports=np.zeros(protocol.cohorts, dtype=np.int64))

    @property
    def ones(self) -> Counts:
        """How many reports of each cohort have each bit set."""
        return self.counters["ones"]

    @property
    def cohort_reports(self) -> Counts:
        """How many reports each cohort has."""
        return self.counters["cohort_reports"]

    def count(self, payloads: Payloads) -> None:
        """Add valid payloads."""
        cohorts = cohorts_of(payloads)
        order = np.argsort(cohorts, kind="stable")
        bits = payloads[order, COHORT_BYTES:]
        present, starts = np.unique(cohorts[order], return_index=True)
        ends = np.append(starts[1:], order.size)
        for cohort, start, end in zip(present, starts, ends, strict=True):
            self.ones[cohort] += column_sums(bits[start:end], self.protocol.bits)
            self.cohort_reports[cohort] += end - start

    def sound(self) -> bool:
        """Whether every report is of one cohort, and no bit is set in more reports than its cohort has."""
        return super().sound() and bool((self.ones <= self.cohort_reports[:, None]).all())

    def estimate(self, confidence: float = 0.95) -> BitEstimates:
        """How many people of each cohort have each bit set; the intervals hold for all bits of all cohorts together."""
        self.expect_reports()
        hit, miss = self.protocol.hit, self.protocol.miss
        failure = failure_probability(confidence) / self.ones.size
        gap = float(hit - miss)
        sizes = np.broadcast_to(self.cohort_reports[:, None], self.ones.shape)
        heard = sizes > 0
        shares = np.where(heard, (self.ones / np.maximum(sizes, 1) - float(miss)) / gap, 0.0)
        variances, ends = np.full(self.ones.shape, math.inf), np.empty((*self.ones.shape, 2))
        ends[...] = 0.0, 1.0
        # equal counts have equal estimates
        pairs, places = np.unique(np.stack([self.ones[heard], sizes[heard]]), axis=1, return_inverse=True)
        found = [
            (
                unbiased_variance(int(count), int(n), hit, miss, Target.POPULATION),
                *interval(int(count), int(n), hit, miss, failure, Target.POPULATION),
            )
            for count, n in pairs.T
        ]
        known = np.array(found)[places.ravel()]
        variances[heard], ends[heard] = known[:, 0], np.clip(known[:, 1:], 0.0, 1.0)
        return BitEstimates(
            shares=shares,
            variances=variances,
            intervals=ends,
            cohort_reports=self.cohort_reports.copy(),
            confidence=float(as_fraction(confidence)),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BitEstimates(ReadOnlyArrays):
    """How many people have each bit of the Bloom filter set, by cohort.

    ``shares`` are unbiased, so they may leave [0, 1]; a cohort without reports has the share 0, an infinite variance
    and the interval [0, 1]. The intervals hold for all bits of all cohorts together (Clopper & Pearson 1934;
    Bonferroni), for the population that the people who report are an independent sample of.
    """

    shares: Floats
    variances: Floats
    intervals: Floats
    cohort_reports: Counts
    confidence: float

    @property
    def counts(self) -> Floats:
        """The shares times the reports of their cohort."""
        return self.shares * self.cohort_reports[:, None]


def cohorts_of(payloads: Payloads) -> npt.NDArray[np.uint16]:
    """The cohorts that payloads name."""
    return np.ascontiguousarray(payloads[:, :COHORT_BYTES]).view("<u2").ravel()
