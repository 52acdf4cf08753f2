"""Ranges of an ordered domain by a tree of histograms, made consistent. Proof in ``ranges.md``.

``WaveletRanges`` does the same with one bit and narrower intervals; the tree can use any frequency oracle.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dither.entropy import SYSTEM, Source
from dither.errors import InvalidParameter
from dither.local.clients.base import ValueDomain, whole
from dither.local.clients.ranges import LARGEST_LEVELS, levels_of
from dither.local.clients.wire import Json
from dither.local.core.protocol import Floats, Payloads, protocol_of
from dither.local.frequency.attributes import Attributes
from dither.local.frequency.choose import best_oracle
from dither.local.frequency.kary import Kary
from dither.local.frequency.oracle import FEW, FrequencyOracle, Ints, Label, checked_domain, places, values_of
from dither.local.frequency.parts import PartsAggregator
from dither.local.frequency.unary import Unary
from dither.local.means.mean import checked_steps
from dither.local.ranges.estimates import OrderedRanges, QuantileEstimate, RangeEstimates, RangeShare, unbiased
from dither.local.ranges.wavelet import WaveletRanges
from dither.mechanisms.base import failure_probability
from dither.mechanisms.response_surveys import Strategy
from dither.numeric import Number, positive_int, up
from dither.privacy import PrivacyLoss

__all__ = ["HierarchicalRanges", "QuantileEstimate", "RangeEstimates", "RangeShare", "WaveletRanges"]


@dataclass(frozen=True, slots=True, init=False)
class HierarchicalRanges(OrderedRanges, name="hierarchical_ranges"):
    """Counts ranges of an ordered domain: everybody reports their node at one level of a tree, drawn by chance.

    ``oracles`` has one frequency oracle for each level, from the coarsest; that of level l, from 1, has branching^l
    values. Level estimates are made consistent by least squares (Hay, Rastogi, Miklau & Suciu 2010).

    Args:
        domain: Ordered public list of values: their number, or labels.
        branching: Children of each node of the tree.
        oracles: Frequency oracle of each level, from the coarsest.

    Guarantee: the mean of the oracles' curves under REPLACE, since the level is drawn whatever the value is.
    Accuracy: ``error``; a range is a sum of at most 2·(branching − 1) nodes for each level (Cormode, Kulkarni &
        Srivastava 2019).

    Example:
        >>> ages = HierarchicalRanges.for_epsilon(100, epsilon=1)
        >>> ages.levels, ages.loss().pure() <= 1
        (7, True)
    """

    domain: int | tuple[Label, ...]
    branching: int
    oracles: tuple[FrequencyOracle, ...]
    _known: ValueDomain = field(init=False, repr=False, compare=False)
    _inner: Attributes = field(init=False, repr=False, compare=False)

    def __init__(self, domain: Any, *, branching: int, oracles: tuple[FrequencyOracle, ...]) -> None:
        known = checked_domain(domain)
        branches = checked_branching(branching)
        wanted = [branches ** (level + 1) for level in range(levels_of(known.size, branches))]
        if [getattr(oracle, "domain", None) for oracle in oracles] != wanted:
            raise InvalidParameter(f"oracles must have {', '.join(map(str, wanted))} values: one for each level")
        inner = Attributes({_level(place): oracle for place, oracle in enumerate(oracles)}, Strategy.SAMPLE)
        self._put(domain=values_of(known), branching=branches, oracles=tuple(oracles), _known=known, _inner=inner)

    @classmethod
    def for_epsilon(cls, domain: Any, epsilon: Number, *, branching: int = 2) -> Self:
        """With the oracle of smallest variance at ``epsilon`` for each level.

        Args:
            domain: Ordered public list of values: their number, or labels.
            epsilon: Largest ε that one report may cost (REPLACE).
            branching: Children of each node of the tree.
        """
        levels = levels_of(checked_domain(domain).size, checked_branching(branching))
        oracles = tuple(best_oracle(epsilon, branching ** (level + 1)).best for level in range(levels))
        return cls(domain, branching=branching, oracles=oracles)

    @property
    def levels(self) -> int:
        """The number of levels below the root."""
        return len(self.oracles)

    def loss(self) -> PrivacyLoss:
        """One level is drawn: values that differ at the first level differ at all."""
        return self._inner.loss()

    def error(self, confidence: Number = 0.95, *, n: int) -> float:
        """The error that the share below any given value doesn't exceed, if ``n`` reports spread evenly over levels."""
        each = np.full(self.levels, positive_int(n, "n") / self.levels)
        most = sum(self.proxies(np.array([self.branching - 1]), each)[:, 0])
        return up(math.sqrt(2 * most * math.log(2 / failure_probability(confidence))))

    def proxies(self, nodes: Ints, reports: Floats) -> Floats:
        """For every level, how much a sum of ``nodes`` nodes varies at most: e^{s²·proxy/2} bounds E[e^{s·error}].

        One node is a coin, of which Kearns & Saul (1998) know the best proxy. The nodes of a k-ary response exclude
        each other, so that their sum is a coin as well; those of a unary encoding are negatively associated, so that
        theirs varies no more than if they were independent; of others only the triangle inequality is used.
        """
        rows = []
        for oracle, count in zip(self.oracles, reports, strict=True):
            coin = _coin_proxy(oracle.hit, oracle.miss)
            if isinstance(oracle, Kary):
                total = np.where(nodes > 1, 0.25, np.where(nodes == 1, coin, 0.0))
            else:
                total = coin * (nodes if isinstance(oracle, Unary) else nodes**2)
            scale = float(oracle.hit - oracle.miss) ** -2
            rows.append(np.where(total > 0, total * scale / count if count else math.inf, 0.0))
        return np.array(rows)

    @property
    def width(self) -> int:
        """The number of bytes of a payload."""
        return self._inner.width

    def describe(self) -> Json:
        """The description."""
        form = {"protocol": self.name, "domain": self._known.to_json(), "branching": self.branching}
        return {**form, "collection": self._inner.describe()}

    @classmethod
    def from_description(cls, description: Mapping[str, Any]) -> Self:
        """The inverse."""
        branching = whole(description, "branching", least=2, most=2**LARGEST_LEVELS)
        inner: Any = protocol_of(description.get("collection"))
        if not isinstance(inner, Attributes):
            raise InvalidParameter('the "collection" of hierarchical ranges must be one of several attributes')
        return cls._exactly(description, domain=description.get("domain"), branching=branching, oracles=inner.oracles)

    def nodes(self, values: Any) -> dict[str, Ints]:
        """For every level the nodes of many values."""
        truths = places(values, self._known)
        return {_level(place): truths // self.branching ** (self.levels - 1 - place) for place in range(self.levels)}

    def randomize(self, values: Any, *, source: Source = SYSTEM) -> Payloads:
        """Payloads of many people, one row each, of the same law as the client's."""
        return self._inner.randomize(self.nodes(values), source=source)

    def valid(self, payloads: Payloads) -> npt.NDArray[np.bool_]:
        """Which rows a client could have sent."""
        return self._inner.valid(payloads)

    def pieces(self, payloads: Payloads) -> list[tuple[Ints, Payloads]]:
        """For every level the rows that speak of it and their payloads."""
        return self._inner.pieces(payloads)

    def aggregator(self) -> HierarchicalAggregator:
        """An empty aggregate for this collection."""
        return HierarchicalAggregator(self)

    def reduced(self) -> HierarchicalRanges:
        """Two binary levels of k-ary responses with the same odds, so that the law of the client can be listed."""
        odds = max(oracle.odds for oracle in self.oracles)
        kept = tuple(Kary(size, odds / (odds + size - 1)) for size in (2, FEW))
        return HierarchicalRanges(FEW, branching=2, oracles=kept)

    def inputs(self) -> list[Label]:
        """The first values and the last."""
        labels = self._known.values
        return [*labels[:FEW], *labels[max(FEW, self.size - 1) :]]


class HierarchicalAggregator(PartsAggregator[RangeEstimates]):
    """One aggregate for each level."""

    protocol: HierarchicalRanges

    def __init__(self, protocol: HierarchicalRanges) -> None:
        super().__init__(protocol, protocol)

    def estimate(self, confidence: Number = 0.95, *, simultaneous: bool = False) -> RangeEstimates:
        """The shares of all ranges; ``simultaneous`` makes the intervals of the distribution function hold together.

        Values are those of the consistent tree. Intervals are around sums of the fewest nodes, whose errors are known,
        so they needn't be centred on the values.
        """
        self.expect_reports()
        protocol, failure = self.protocol, failure_probability(confidence)
        reports = np.array([part.reports for part in self._parts], dtype=np.float64)
        levels = [
            unbiased(part.supports().astype(np.float64), part.reports, oracle.hit, oracle.miss)
            for part, oracle in zip(self._parts, protocol.oracles, strict=True)
        ]
        precisions = [
            1 / oracle.variance(int(count), share=1 / oracle.size) if count else 0.0
            for oracle, count in zip(protocol.oracles, reports, strict=True)
        ]
        leaves = make_tree_consistent(levels, precisions, protocol.branching)
        size = protocol.size
        cumulative = np.concatenate([[0.0], np.cumsum(leaves)])[: size + 1]
        stops = np.arange(size + 1)
        centres, nodes = _prefixes(levels, protocol.branching, stops)
        proxies = np.zeros(size + 1)
        for level in range(protocol.levels):
            table = protocol.proxies(np.arange(protocol.branching), reports)[level]
            proxies += table[nodes[level]]

        def range_of(start: int, end: int) -> tuple[float, float, float]:
            middle, used = _decompose(levels, protocol.branching, start, end)
            total = sum(protocol.proxies(used[level : level + 1], reports)[level, 0] for level in range(used.size))
            if end == size and proxies[start] <= total:
                middle, total = float(1 - centres[start]), float(proxies[start])
            value = float(cumulative[end] - cumulative[start])
            return value, middle, math.sqrt(2 * total * math.log(2 / failure)) * (1 + 1e-12)

        return protocol.estimates(
            cumulative,
            centres,
            proxies,
            range_of,
            reports=self.reports,
            confidence=confidence,
            simultaneous=simultaneous,
        )


def make_tree_consistent(levels: list[Floats], precisions: list[float], branching: int) -> Floats:
    """The leaves of the tree that is nearest to the estimates and whose nodes are the sums of their children.

    Least squares with the root known to be 1, every level weighted by the precision (1/variance) of its estimates: up
    the tree, a node and the sum of its children are averaged; down the tree, what is missing from a parent's share is
    given to its children alike (Hay et al. 2010, who have one precision for all).

    Example:
        >>> halves, quarters = np.array([0.5, 0.7]), np.array([0.2, 0.2, 0.2, 0.2])
        >>> make_tree_consistent([halves, quarters], [1.0, 1.0], 2).round(3).tolist()
        [0.217, 0.217, 0.283, 0.283]
    """
    best, precision = [levels[-1]], precisions[-1]
    for estimates, own in zip(reversed(levels[:-1]), reversed(precisions[:-1]), strict=True):
        sums = best[0].reshape(-1, branching).sum(axis=1)
        below = precision / branching
        precision = own + below
        share = own / precision if precision else 0.0
        best.insert(0, share * estimates + (1 - share) * sums)
    shares = np.ones(1)
    for estimates in best:
        children = estimates.reshape(-1, branching)
        missing = (shares - children.sum(axis=1)) / branching
        shares = (children + missing[:, None]).ravel()
    return shares


def _prefixes(levels: list[Floats], branching: int, stops: Ints) -> tuple[Floats, list[Ints]]:
    """Sums of the fewest nodes that make up the share before each place, and how many nodes of each level."""
    total, counts = np.zeros(stops.size), []
    for level, estimates in enumerate(levels):
        sums = np.concatenate([[0.0], np.cumsum(estimates)])
        size = branching ** (len(levels) - 1 - level)
        last = stops // size
        first = last - last % branching
        total += sums[last] - sums[first]
        counts.append(last - first)
    return total, counts


def _decompose(levels: list[Floats], branching: int, start: int, end: int) -> tuple[float, Ints]:
    """The fewest nodes that make up a range: their sum, and how many of each level."""
    total, counts = 0.0, np.zeros(len(levels), dtype=np.int64)
    for level in reversed(range(len(levels))):
        inner_start, inner_end = -(-start // branching), end // branching
        if inner_start >= inner_end or level == 0:
            total += float(levels[level][start:end].sum())
            counts[level] += end - start
            break
        edges = (start, inner_start * branching), (inner_end * branching, end)
        for low, high in edges:
            total += float(levels[level][low:high].sum())
            counts[level] += high - low
        start, end = inner_start, inner_end
    return total, counts


def _coin_proxy(hit: Any, miss: Any) -> float:
    """The largest (1 − 2p)/(2·ln((1−p)/p)) of a coin p between miss and hit: where p is nearest to a half."""
    nearest = min(max(0.5, float(miss)), float(hit))
    if abs(nearest - 0.5) < 1e-6:
        return 0.25
    return (1 - 2 * nearest) / (2 * math.log((1 - nearest) / nearest)) * (1 + 1e-9)


def _level(place: int) -> str:
    return f"level {place + 1}"


def checked_branching(branching: int) -> int:
    """The number of branches of a tree."""
    positive_int(branching, "branching", least=2)
    return checked_steps(branching, 2**LARGEST_LEVELS, "branching")
