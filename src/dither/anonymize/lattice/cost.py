"""What the nodes of a lattice cost: six measures of lost detail, as whole numbers that bound each other exactly.

Every cost here is a *floor*, which is what the node would cost if no row were suppressed, and an *excess* for the
classes that are. A search may prune by two facts, for nodes u ≤ v (v at least as coarse in every quasi-identifier):

* floor(u) ≤ floor(v): groups only merge.
* excess(u) ≥ excess(v), if what is suppressed at v is suppressed at u too. An excess adds up, over suppressed rows,
  what the node had left to lose for them, and at finer nodes there are more such rows with more to lose.

Costs of cells are rounded down to multiples of 2^−32 of a whole row, group by group; since rounding keeps order, both
facts hold exactly, in integers, and equal costs are equal.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import Enum
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from dither.anonymize.lattice.generalize import Domain, Grouping, Node
from dither.anonymize.table.values import Bools, Counts
from dither.errors import InvalidParameter

_ONE = 1 << 32


class Metric(Enum):
    """What a full-domain search makes as small as possible, or as many in the case of classes."""

    LOSS = "loss"
    """The mean share of its column that a cell covers, a suppressed one all (NCP: Xu et al. 2006; Iyengar 2002)."""
    ENTROPY = "entropy"
    """The bits between what is printed and the original values (non-uniform entropy: Gionis & Tassa 2009)."""
    PRECISION = "precision"
    """The mean of level over height of all cells, a suppressed one at the top (Sweeney 2002)."""
    HEIGHT = "height"
    """The sum of all levels, whatever is suppressed (Samarati 2001)."""
    DISCERNIBILITY = "discernibility"
    """The pairs of rows that look alike, suppressed ones like everybody (Bayardo & Agrawal 2005)."""
    CLASSES = "classes"
    """The classes that are released, as many as possible.

    Without suppression that makes the average class smallest (LeFevre et al. 2006). With it the two differ: the average
    of the released classes also falls by suppressing large ones, which is nothing to strive for.
    """

    @property
    def goal(self) -> str:
        """What the best node has, in words."""
        return _GOALS[self]


_GOALS = {
    Metric.LOSS: "least loss",
    Metric.ENTROPY: "least loss by entropy",
    Metric.PRECISION: "greatest precision",
    Metric.HEIGHT: "lowest levels",
    Metric.DISCERNIBILITY: "fewest rows alike",
    Metric.CLASSES: "most classes",
}


class CostMetric(ABC):
    """One metric on one table."""

    @abstractmethod
    def prior(self, lowest: Node, highest: Node) -> Counts:
        """A bound from below on the floors of all nodes in a box, an array with a dimension for each level."""

    @abstractmethod
    def floor(self, grouping: Grouping) -> int:
        """What a node would cost if no row were suppressed."""

    @abstractmethod
    def excess(self, grouping: Grouping, failing: Bools) -> int:
        """What suppressing the failing classes costs beyond the floor."""

    @abstractmethod
    def measured(self, cost: int) -> float:
        """The cost as the figure that people know."""


def cost_of(metric: Metric, domain: Domain) -> CostMetric:
    """A metric made ready for a table."""
    if metric is Metric.DISCERNIBILITY:
        return Discernibility(domain)
    if metric is Metric.CLASSES:
        return ClassCount(domain)
    shares = weight_shares([axis.weight for axis in domain.axes])
    if metric is Metric.HEIGHT:
        return Height(shares)
    if metric is Metric.PRECISION:
        return CellCost.precision(domain, shares)
    return CellCost.loss(domain, shares) if metric is Metric.LOSS else CellCost.entropy(domain, shares)


def weight_shares(weights: Sequence[float]) -> list[Fraction]:
    """The share of each column in the whole."""
    exact = [Fraction(weight) for weight in weights]
    if not sum(exact):
        raise InvalidParameter("at least one quasi-identifier needs a weight above 0: without one nothing is lost")
    return [weight / sum(exact) for weight in exact]


class CellCost(CostMetric):
    """A metric that adds up over cells, each of which costs what its group costs, and a suppressed one most."""

    def __init__(
        self, domain: Domain, costs: list[list[Counts]], suppressed: int, *, offset: float = 0.0, whole: float
    ) -> None:
        """``costs[axis][level]`` has the cost of each group; ``suppressed`` is that of a whole row."""
        self.costs, self.suppressed, self.offset, self.whole = costs, suppressed, offset, whole
        self.floors = [
            [int(cost @ _counts(domain, axis, level)) for level, cost in enumerate(levels)]
            for axis, levels in enumerate(costs)
        ]

    @classmethod
    def loss(cls, domain: Domain, shares: list[Fraction]) -> CellCost:
        """The normalised certainty penalty: of m values, a group of s covers (s − 1)/(m − 1)."""
        costs = []
        for axis, share in zip(domain.axes, shares, strict=True):
            widest = max(1, axis.size - 1)
            costs.append([_scaled((last - first) / widest, share) for first, last in axis.bounds])
        # a column with one value has nothing to lose, even where it is suppressed
        most = sum(int(levels[-1][0]) for levels in costs)
        return cls(domain, costs, most, whole=_ONE * domain.rows)

    @classmethod
    def precision(cls, domain: Domain, shares: list[Fraction]) -> CellCost:
        """Level over height."""
        costs = []
        for axis, (height, share) in enumerate(zip(domain.heights, shares, strict=True)):
            levels = [np.full(domain.number(axis, level), level / height) for level in range(height + 1)]
            costs.append([_scaled(level, share) for level in levels])
        return cls(domain, costs, sum(int(levels[-1][0]) for levels in costs), whole=_ONE * domain.rows)

    @classmethod
    def entropy(cls, domain: Domain, shares: list[Fraction]) -> CellCost:
        """A value with c rows in a group with s rows leaves log2(s/c) bits open, of which −log2(c) is a constant."""
        bits = math.log2(domain.rows) or 1.0
        costs = []
        known = 0.0
        for axis, (one, share) in enumerate(zip(domain.axes, shares, strict=True)):
            levels = [np.log2(np.maximum(_counts(domain, axis, level), 1)) / bits for level in range(len(one.groups))]
            costs.append([_scaled(level, share) for level in levels])
            counts = one.counts[one.counts > 0]
            known += float(share) * float(counts @ np.log2(counts)) / bits
        most = sum(int(levels[-1][0]) for levels in costs)
        return cls(domain, costs, most, offset=_ONE * known, whole=_ONE * (domain.rows - known))

    def prior(self, lowest: Node, highest: Node) -> Counts:
        """The floors themselves: they are sums over columns."""
        return _outer_sum(
            [self.floors[axis][a : b + 1] for axis, (a, b) in enumerate(zip(lowest, highest, strict=True))]
        )

    def floor(self, grouping: Grouping) -> int:
        """What all cells cost."""
        return sum(self.floors[axis][level] for axis, level in enumerate(grouping.node))

    def excess(self, grouping: Grouping, failing: Bools) -> int:
        """What suppressed rows still had to lose."""
        sizes = grouping.sizes[failing]
        left = np.full(sizes.size, self.suppressed, np.int64)
        for levels, level, codes in zip(self.costs, grouping.node, grouping.groups, strict=True):
            left -= levels[level][codes[failing]]
        return int(sizes @ left)

    def measured(self, cost: int) -> float:
        """The mean cost of a cell."""
        return max(0.0, (cost - self.offset) / self.whole) if self.whole > 0 else 0.0


class Height(CostMetric):
    """The weighted sum of levels; suppression costs nothing."""

    def __init__(self, shares: list[Fraction]) -> None:
        self.steps = [math.floor(share * len(shares) * _ONE) for share in shares]

    def prior(self, lowest: Node, highest: Node) -> Counts:
        """The floors themselves."""
        levels = [range(a, b + 1) for a, b in zip(lowest, highest, strict=True)]
        return _outer_sum([[step * level for level in some] for step, some in zip(self.steps, levels, strict=True)])

    def floor(self, grouping: Grouping) -> int:
        """The sum of levels."""
        return sum(step * level for step, level in zip(self.steps, grouping.node, strict=True))

    def excess(self, grouping: Grouping, failing: Bools) -> int:  # noqa: ARG002
        """Nothing."""
        return 0

    def measured(self, cost: int) -> float:
        """The sum of levels."""
        return cost / _ONE


class Discernibility(CostMetric):
    """The sum of squared class sizes; a suppressed row counts as one of a class of all rows."""

    def __init__(self, domain: Domain) -> None:
        self.rows = domain.rows

    def prior(self, lowest: Node, highest: Node) -> Counts:
        """Nothing is known before classes are counted."""
        return np.zeros([b - a + 1 for a, b in zip(lowest, highest, strict=True)], np.int64)

    def floor(self, grouping: Grouping) -> int:
        """The sum of squares."""
        return int(grouping.sizes @ grouping.sizes)

    def excess(self, grouping: Grouping, failing: Bools) -> int:
        """A suppressed class of s rows counts s·N instead of s²."""
        sizes = grouping.sizes[failing]
        return int(sizes @ (self.rows - sizes))

    def measured(self, cost: int) -> float:
        """The number of pairs."""
        return float(cost)


class ClassCount(CostMetric):
    """Minus the number of released classes: the more there are, the better."""

    def __init__(self, domain: Domain) -> None:
        self.rows = domain.rows

    def prior(self, lowest: Node, highest: Node) -> Counts:
        """There are never more classes than rows."""
        return np.full([b - a + 1 for a, b in zip(lowest, highest, strict=True)], -self.rows, np.int64)

    def floor(self, grouping: Grouping) -> int:
        """All classes count."""
        return -grouping.number

    def excess(self, grouping: Grouping, failing: Bools) -> int:  # noqa: ARG002
        """Suppressed classes don't."""
        return int(np.count_nonzero(failing))

    def measured(self, cost: int) -> float:
        """The number of released classes, as ``Quality.classes`` has it."""
        return float(-cost)


def _counts(domain: Domain, axis: int, level: int) -> Counts:
    """How many rows are in each group of a level."""
    one = domain.axes[axis]
    return np.bincount(one.groups[level], weights=one.counts, minlength=domain.number(axis, level)).astype(np.int64)


def _scaled(costs: npt.NDArray[Any], share: Fraction) -> Counts:
    return np.floor(costs * float(share * _ONE)).astype(np.int64)


def _outer_sum(parts: Sequence[Sequence[int]]) -> Counts:
    total = np.zeros([len(part) for part in parts], np.int64)
    for axis, part in enumerate(parts):
        shape = [1] * len(parts)
        shape[axis] = len(part)
        total += np.array(part, np.int64).reshape(shape)
    return total
