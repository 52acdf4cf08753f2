"""The search for the cheapest node of a generalisation lattice: exact, with as few nodes checked as bounds allow.

Checking a node says whether it may be released and what it costs. What else it says about nodes that weren't checked
comes from :class:`NodeCheck`, and nothing is assumed beyond it, so that the node found is the cheapest of all:

* ``nothing_below``: no finer node may be released. *(Predictive tagging: Samarati 2001, Incognito, OLA, Flash.)*
* ``all_above``: every coarser node may be released; so checks look for the border along a path by halving it, as Flash
  does (Kohlmayer et al. 2012), instead of walking up to it.
* The floor bounds the cost of all coarser nodes, the excess that of all finer ones
  (:mod:`dither.anonymize.lattice.cost`): nodes that can't be cheaper than the best so far aren't checked.
* If a node suppresses nothing, its cost is its floor, and no coarser node is cheaper.

Among nodes of equal cost, the one that suppresses fewest rows is taken, then the first in lexicographic order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dither.anonymize.lattice.generalize import Node
from dither.anonymize.table.values import Bools, Counts
from dither.errors import InvalidParameter
from dither.progress import Watch, unwatched

# The arrays of a search have an entry for each node: with this many they take 150 MB.
MOST_NODES = 4_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCheck:
    """What checking a node found, and what follows for others.

    ``feasible``: it may be released, suppressing ``suppressed`` rows at the cost ``cost``. ``floor`` is at most the
    cost of any coarser node; ``excess`` is at most what suppression adds to the floor of any finer one.
    """

    feasible: bool
    nothing_below: bool = False
    all_above: bool = False
    cost: int = 0
    suppressed: int = 0
    floor: int = 0
    excess: int = 0


Check: TypeAlias = Callable[[Node], NodeCheck]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The cheapest node, and how it was found; ``complete`` unless the search was cut short."""

    node: Node
    cost: int
    suppressed: int
    nodes: int
    checked: int
    complete: bool


def search(
    lowest: Node, prior: Counts, check: Check, *, most: int | None = None, watch: Watch = unwatched
) -> Found | None:
    """The cheapest node of the box above ``lowest`` that ``prior`` spans, or None if no node may be released.

    ``prior`` bounds the floor of each node from below, and never falls from a node to a coarser one. With ``most`` the
    search ends after so many checks, with the best of them.
    """
    run = _Search(lowest, prior, check, most, watch)
    run.to_the_end()
    if run.best is None:
        return None
    cost, suppressed, place = run.best
    node, nodes = run.node(place), prior.size
    return Found(node=node, cost=cost, suppressed=suppressed, nodes=nodes, checked=run.checked, complete=run.complete)


class _Search:
    """One run: what is known of every node, in arrays with a dimension for each quasi-identifier."""

    def __init__(self, lowest: Node, prior: Counts, check: Check, most: int | None, watch: Watch) -> None:
        self.lowest, self.check, self.most, self.watch = lowest, check, most, watch
        self.shape = prior.shape
        self.floor = np.ascontiguousarray(prior)
        self.excess = np.zeros(self.shape, np.int64)
        self.settled: Bools = np.zeros(self.shape, np.bool_)
        self.good: Bools = np.zeros(self.shape, np.bool_)
        self.flat_floor, self.flat_excess = self.floor.reshape(-1), self.excess.reshape(-1)
        self.flat_settled, self.flat_good = self.settled.reshape(-1), self.good.reshape(-1)
        self.strides = [int(np.prod(self.shape[axis + 1 :], dtype=np.int64)) for axis in range(len(self.shape))]
        self.best: tuple[int, int, int] | None = None
        self.checked = 0
        # whether every check so far told something about the nodes above or below
        self.conclusive = True
        self.complete = True

    def node(self, place: int) -> Node:
        """The levels of a node, from its place in the flat arrays."""
        return tuple(low + int(level) for low, level in zip(self.lowest, self._levels(place), strict=True))

    def to_the_end(self) -> None:
        """Settle every node, cheapest floors first, each with a path above it."""
        # where nothing is known of costs, low nodes first
        heights = np.zeros(self.shape, np.int64)
        for axis, size in enumerate(self.shape):
            heights += np.arange(size).reshape([-1 if other == axis else 1 for other in range(len(self.shape))])
        order = np.lexsort((heights.reshape(-1), self.flat_floor))
        for place in order.tolist():
            if not self._worth_it(place):
                continue
            if self.flat_good[place]:
                self._look(place)
            else:
                self._halve(self._path(place))
                if self.complete and self._worth_it(place):
                    # no conclusion from above reached it
                    self._look(place)
            if not self.complete:
                break
        self.watch(1.0, f"checked {self.checked:,} of {self.floor.size:,} nodes")

    def _worth_it(self, place: int) -> bool:
        """Whether a node could still be better than the best."""
        if self.flat_settled[place]:
            return False
        if self.best is None:
            return True
        least = int(self.flat_floor[place] + self.flat_excess[place])
        # 0 is the least that can be suppressed, so that among equal costs the order of places decides
        return (least, 0, place) < self.best

    def _path(self, place: int) -> list[int]:
        """Nodes of unknown standing, one above the other, each the cheapest step up."""
        path = [place]
        while True:
            levels = self._levels(path[-1])
            steps = [
                path[-1] + stride
                for stride, level, size in zip(self.strides, levels, self.shape, strict=True)
                if level + 1 < size
            ]
            steps = [step for step in steps if self._worth_it(step) and not self.flat_good[step]]
            if not steps:
                return path
            path.append(min(steps, key=lambda step: (int(self.flat_floor[step]), step)))

    def _halve(self, path: list[int]) -> None:
        """Binary-search a path for the first node that may be released, or for the last one that can't be."""
        low, high = 0, len(path) - 1
        # once a cost is known a path ends at it: if its end fails too, nothing on the path is left
        middle = high if self.best is not None and self.conclusive else high // 2
        while low <= high and self.complete:
            if not self._worth_it(path[middle]):
                # what became too dear stays so above; below what can't be released nothing can
                up = bool(self.flat_settled[path[middle]])
            else:
                outcome = self._look(path[middle])
                up = outcome.nothing_below or (self.best is None and not outcome.feasible)
            low, high = (middle + 1, high) if up else (low, middle - 1)
            middle = (low + high) // 2

    def _look(self, place: int) -> NodeCheck:
        """Check a node and note what follows."""
        outcome = self.check(self.node(place))
        self.checked += 1
        levels = self._levels(place)
        above = tuple(slice(level, None) for level in levels)
        below = tuple(slice(None, level + 1) for level in levels)
        self.flat_settled[place] = True
        self.conclusive &= outcome.nothing_below or outcome.all_above
        if outcome.nothing_below:
            self.settled[below] = True
        else:
            np.maximum(self.excess[below], outcome.excess, out=self.excess[below])
        np.maximum(self.floor[above], outcome.floor, out=self.floor[above])
        if outcome.all_above:
            self.good[above] = True
        if outcome.feasible:
            found = (outcome.cost, outcome.suppressed, place)
            self.best = found if self.best is None else min(self.best, found)
            if not outcome.suppressed:
                # cost = floor, and floors only rise
                self.settled[above] = True
        if self.most is not None and self.checked >= self.most:
            self.complete = False
        if self.checked % 8 == 1:
            done = self.flat_settled
            if self.best is not None:
                done = done | (self.flat_floor + self.flat_excess > self.best[0])
            self.watch(np.count_nonzero(done) / done.size, f"checked {self.checked:,} of {self.floor.size:,} nodes")
        return outcome

    def _levels(self, place: int) -> npt.NDArray[np.int64]:
        return np.array(np.unravel_index(place, self.shape), np.int64)


def expect_searchable(lowest: Node, highest: Node) -> None:
    """Raise if a lattice has more nodes than are searched in memory."""
    nodes = 1
    for low, high in zip(lowest, highest, strict=True):
        nodes *= high - low + 1
    if nodes > MOST_NODES:
        raise InvalidParameter(
            f"the lattice has {nodes:,} nodes, and at most {MOST_NODES:,} are searched: use fewer quasi-identifiers or "
            "levels (hierarchies with fewer levels, or levels={'age': (1, 3)}), or mondrian, which needs no lattice"
        )
