"""Whether a node of a lattice may be released, and what that says about the nodes above and below it.

Rows of classes that fail a model are suppressed, as long as that are no more than the limit. What follows for other
nodes depends on the models. For nodes u ≤ v every class of v is a union of classes of u.

* **A class that satisfies the model still does with any rows added** (k-anonymity, k-map, distinct l-diversity): what
  is suppressed at v is suppressed at u. If u may be released so may v, with any limit.
* **Two classes that satisfy it do together** (all others that call themselves monotone: entropies are concave,
  distances to a distribution convex): the same, but only if nothing may be suppressed. With a limit above 0 a failing
  class of u, which u suppresses, may spoil a good one by merging with it in v. Then nothing is concluded but from the
  models of the first kind and from the rows that every class needs at least.
* **Other models**: likewise, nothing is concluded even without suppression.

Models that compare classes with the whole table (t-closeness, δ-disclosure, β-likeness) are asked twice if rows are
suppressed: against the table as it was, and against the rows that are released, which are all that a reader sees.
Suppressing for the second reason changes what is released, so that is repeated until nothing fails.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from dither.anonymize.configuration import Configuration
from dither.anonymize.encoding import Encoded, encode
from dither.anonymize.lattice.cost import CostMetric
from dither.anonymize.lattice.generalize import Domain, Grouping, Node, of_rows, rolled_up, with_histograms
from dither.anonymize.lattice.search import NodeCheck
from dither.anonymize.models.catalogue import DistinctDiversity, KAnonymity, KMap, Model, Overall
from dither.anonymize.table.classes import SUPPRESSED, Histogram
from dither.anonymize.table.values import Bools, Codes, Counts
from dither.errors import InvalidParameter

# Classes that satisfy one of these still do with any rows added.
_GROWING = (KAnonymity, KMap, DistinctDiversity)

# How many groupings are kept to roll up others from, and how many codes they may have in all (4 bytes each).
_MOST_KEPT = 256
_MOST_CODES = 1 << 24


class Requirements:
    """Everything that is asked of a node, with the groupings of nodes that were checked before."""

    def __init__(
        self, table: pa.Table, configuration: Configuration, domain: Domain, cost: CostMetric, lowest: Node
    ) -> None:
        self.configuration, self.domain, self.cost = configuration, domain, cost
        self.rows = domain.rows
        self.allowed = math.floor(configuration.suppression * self.rows)
        self.least = configuration.least
        models = configuration.models
        self.growing = [model for model in models if type(model) in _GROWING and not isinstance(model, KAnonymity)]
        self.others = [model for model in models if type(model) not in _GROWING]
        self.concludes = not self.others or (self.allowed == 0 and all(model.monotone for model in self.others))
        wanted = {model.sensitive for model in models}
        self.columns = [encode(table, one) for one in configuration.sensitive if one.name in wanted]
        self.place = {column.name: place for place, column in enumerate(self.columns)}
        self.overall = [Overall.of(column) for column in self.columns]
        self._expect_values()
        quasi = [attribute.name for attribute in configuration.quasi]
        self.maps = [model for model in models if isinstance(model, KMap)]
        people = [model.of_rows(table, quasi) for model in self.maps]
        self.lowest, self.of_row = of_rows(domain, lowest, people, self.columns)
        self.kept = _Kept(self.lowest)

    def _expect_values(self) -> None:
        """Say before searching that no class can have as many different values as a model needs."""
        for model in self.configuration.models:
            if model.sensitive is None:
                continue
            found = self.columns[self.place[model.sensitive]].size
            if found < model.least_values():
                raise InvalidParameter(
                    f"no release can satisfy {model.sentence()}: {model.sensitive!r} would need at least "
                    f"{model.least_values()} different values, and the table has {found}; ask for less"
                )

    def check(self, node: Node) -> NodeCheck:
        """Whether a node may be released, what it costs, and what follows."""
        source = self.kept.finer(node, counted=False)
        grouping, became = rolled_up(self.domain, source, node)
        failing = grouping.sizes < self.least
        floor = self.cost.floor(grouping)
        if not self._few(grouping, failing):
            self.kept.add(grouping)
            return NodeCheck(feasible=False, nothing_below=True, floor=floor)
        if self.columns:
            grouping = self._counted(grouping, source, became)
        self.kept.add(grouping)
        failing |= self._fails(self.growing, grouping)
        if not self._few(grouping, failing):
            return NodeCheck(feasible=False, nothing_below=True, floor=floor)
        excess = self.cost.excess(grouping, failing)
        if not self.others:
            return self._feasible(grouping, failing, floor, excess)
        more = self._others(grouping, failing)
        if not self._few(grouping, more):
            return NodeCheck(feasible=False, nothing_below=self.concludes, floor=floor, excess=excess)
        return self._feasible(grouping, more, floor, excess)

    def failing(self, node: Node) -> tuple[Grouping, Codes, Bools]:
        """The classes of a node, the class of each row, and which classes are to be suppressed."""
        grouping, became = rolled_up(self.domain, self.lowest, node)
        grouping = self._counted(grouping, self.lowest, became)
        failing = (grouping.sizes < self.least) | self._fails(self.growing, grouping)
        return grouping, became[self.of_row], self._others(grouping, failing)

    def _feasible(self, grouping: Grouping, failing: Bools, floor: int, excess: int) -> NodeCheck:
        return NodeCheck(
            feasible=True,
            all_above=self.concludes,
            cost=floor + self.cost.excess(grouping, failing),
            suppressed=int(grouping.sizes[failing].sum()),
            floor=floor,
            excess=excess,
        )

    def _few(self, grouping: Grouping, failing: Bools) -> bool:
        """Whether no more rows fail than may be suppressed, and not all of them: a release has rows."""
        rows = int(grouping.sizes[failing].sum())
        return rows <= self.allowed and rows < self.rows

    def _counted(self, grouping: Grouping, source: Grouping, became: Codes) -> Grouping:
        if source.histograms is None:
            source = self.kept.finer(grouping.node, counted=True)
            grouping, became = rolled_up(self.domain, source, grouping.node)
        return with_histograms(grouping, source, became)

    def _fails(self, models: Sequence[Model], grouping: Grouping) -> Bools:
        """Which classes fail one of the models, compared with the whole table."""
        failing = np.zeros(grouping.number, np.bool_)
        for model in models:
            if isinstance(model, KMap):
                people = next(one for asked, one in zip(self.maps, grouping.people, strict=True) if asked is model)
                failing |= ~model.check(grouping.sizes, population=people)
            elif model.sensitive is None:
                failing |= ~model.check(grouping.sizes)
            else:
                assert grouping.histograms is not None
                place = self.place[model.sensitive]
                failing |= ~model.check(grouping.sizes, grouping.histograms[place], self.overall[place])
        return failing

    def _others(self, grouping: Grouping, failing: Bools) -> Bools:
        """Which classes are to be suppressed once the models that don't only grow are asked too."""
        if not self.others:
            return failing
        failing = failing | self._fails(self.others, grouping)
        while failing.any() and self._few(grouping, failing):
            left = np.flatnonzero(~failing)
            into = np.full(grouping.number, SUPPRESSED, np.int64)
            into[left] = np.arange(left.size)
            again = np.zeros(left.size, np.bool_)
            for model in self.others:
                if model.sensitive is not None:
                    assert grouping.histograms is not None
                    place = self.place[model.sensitive]
                    histogram, overall = _seen(
                        self.columns[place], self.overall[place], grouping.histograms[place].merged(into, left.size)
                    )
                    again |= ~model.check(grouping.sizes[left], histogram, overall)
            if not again.any():
                break
            failing[left[again]] = True
        return failing


def _seen(column: Encoded, whole: Overall, histogram: Histogram) -> tuple[Histogram, Overall]:
    """What a reader of the release knows of a sensitive column: the values that are left, and how often they occur."""
    counts = np.bincount(histogram.codes, weights=histogram.counts, minlength=column.size).astype(np.int64)
    present = counts > 0
    number = int(np.count_nonzero(present))
    renumbered = (np.cumsum(present) - 1).astype(np.int32)
    levels = None if whole.levels is None else tuple(codes[present] for codes in whole.levels)
    return histogram.recoded(renumbered, number), replace(whole, counts=counts[present], levels=levels)


class _Kept:
    """Groupings of nodes that were checked, the oldest of which make room for new ones; the lowest stays."""

    def __init__(self, lowest: Grouping) -> None:
        self.lowest = lowest
        self.groupings: list[Grouping] = [lowest]
        self.nodes: Counts = np.array([lowest.node], np.int64)
        self.numbers: Counts = np.array([lowest.number], np.int64)
        self.counted: Bools = np.array([True])
        self.codes = 0

    def finer(self, node: Node, *, counted: bool) -> Grouping:
        """The grouping with the fewest classes from which a node's can be merged."""
        usable = (self.nodes <= np.array(node)).all(axis=1)
        if counted:
            usable &= self.counted
        which = np.flatnonzero(usable)
        return self.groupings[int(which[np.argmin(self.numbers[which])])]

    def add(self, grouping: Grouping) -> None:
        """Keep a grouping if it is worth it."""
        if 2 * grouping.number > self.lowest.number:
            return
        self.groupings.append(grouping)
        self.nodes = np.concatenate((self.nodes, np.array([grouping.node], np.int64)))
        self.numbers = np.append(self.numbers, grouping.number)
        self.counted = np.append(self.counted, grouping.histograms is not None)
        self.codes += _codes(grouping)
        while len(self.groupings) > 2 and (len(self.groupings) > _MOST_KEPT or self.codes > _MOST_CODES):
            self.codes -= _codes(self.groupings.pop(1))
            self.nodes, self.numbers = np.delete(self.nodes, 1, axis=0), np.delete(self.numbers, 1)
            self.counted = np.delete(self.counted, 1)


def _codes(grouping: Grouping) -> int:
    counted = sum(one.codes.size for one in grouping.histograms or ())
    return grouping.number * (len(grouping.groups) + 2) + 3 * counted
