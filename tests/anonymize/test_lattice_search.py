"""The search itself, on made-up lattices: always the cheapest node, none checked twice, few where much is known."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from dither.anonymize.lattice.generalize import Node
from dither.anonymize.lattice.search import MOST_NODES, NodeCheck, expect_searchable, search
from dither.errors import InvalidParameter
from support.sizes import examples


class MadeUp:
    """A lattice with random floors that rise, suppressed rows that fall, and a limit; ``spoilt`` nodes fail besides."""

    def __init__(self, shape: tuple[int, ...], seed: int, *, limit: int, spoilt: float, informed: bool) -> None:
        rng = np.random.default_rng(seed)
        self.floor = _rising(rng.integers(0, 6, shape))
        # what every node must suppress, and what that costs
        self.least = _rising(rng.integers(0, 4, shape)[(slice(None, None, -1),) * len(shape)])
        self.least = self.least[(slice(None, None, -1),) * len(shape)]
        self.least -= self.least.min()
        extra = np.where(rng.random(shape) < spoilt, rng.integers(0, 5, shape), 0)
        self.suppressed = self.least + extra
        self.spoilt = spoilt > 0
        self.limit = limit
        self.lowest = tuple(int(low) for low in rng.integers(0, 3, len(shape)))
        self.prior = self.floor.copy() if informed else np.zeros(shape, np.int64)
        self.seen: list[Node] = []

    def check(self, node: Node) -> NodeCheck:
        self.seen.append(node)
        place = tuple(level - low for level, low in zip(node, self.lowest, strict=True))
        floor, least, rows = int(self.floor[place]), int(self.least[place]), int(self.suppressed[place])
        if least > self.limit:
            return NodeCheck(feasible=False, nothing_below=True, floor=floor)
        if rows > self.limit:
            return NodeCheck(feasible=False, floor=floor, excess=2 * least)
        return NodeCheck(
            feasible=True,
            all_above=not self.spoilt,
            cost=floor + 2 * rows,
            suppressed=rows,
            floor=floor,
            excess=2 * least,
        )

    def best(self) -> tuple[int, int, Node] | None:
        found = []
        for place in itertools.product(*map(range, self.floor.shape)):
            rows = int(self.suppressed[place])
            if rows <= self.limit:
                node = tuple(level + low for level, low in zip(place, self.lowest, strict=True))
                found.append((int(self.floor[place]) + 2 * rows, rows, node))
        return min(found, default=None)


def _rising(values: np.ndarray) -> np.ndarray:
    for axis in range(values.ndim):
        values = np.maximum.accumulate(values, axis=axis)
    steps = np.indices(values.shape).sum(axis=0)
    return (values + steps // 2).astype(np.int64)


shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


@examples(40, 100)
@given(shapes, st.integers(0, 10**6), st.integers(0, 9), st.sampled_from([0.0, 0.3, 0.9]), st.booleans())
def test_cheapest_node_is_found(shape: tuple[int, ...], seed: int, limit: int, spoilt: float, informed: bool) -> None:
    lattice = MadeUp(shape, seed, limit=limit, spoilt=spoilt, informed=informed)
    found = search(lattice.lowest, lattice.prior.copy(), lattice.check)
    best = lattice.best()
    assert len(set(lattice.seen)) == len(lattice.seen)
    if best is None:
        assert found is None
        return
    assert found is not None
    assert (found.cost, found.suppressed, found.node) == best
    assert (found.checked, found.nodes, found.complete) == (len(lattice.seen), lattice.floor.size, True)


def test_few_nodes_are_checked_where_the_border_is_known_to_be_one() -> None:
    """k-anonymity without suppression on 10,000 nodes: a border that only depends on the height."""
    shape = (10, 10, 10, 10)
    heights = np.indices(shape).sum(axis=0)

    def check(node: Node) -> NodeCheck:
        good = sum(node) >= 20
        return NodeCheck(feasible=good, nothing_below=not good, all_above=good, cost=sum(node), floor=sum(node))

    found = search((0, 0, 0, 0), heights.astype(np.int64), check)
    assert found is not None
    assert (found.cost, found.node) == (20, (0, 2, 9, 9))
    # every node just below the border must be checked: nothing else says that it fails
    below = int((heights == 19).sum())
    assert below < found.checked < 3 * below


def _lying(change: Callable[[NodeCheck], NodeCheck], seeds: range) -> int:
    """On how many lattices the search goes wrong if outcomes say something that isn't so."""
    wrong = 0
    for seed in seeds:
        lattice = MadeUp((4, 3, 3), seed, limit=4, spoilt=0.3, informed=True)
        found = search(lattice.lowest, lattice.prior.copy(), lambda node, one=lattice: change(one.check(node)))
        wrong += (None if found is None else (found.cost, found.suppressed, found.node)) != lattice.best()
    return wrong


def test_conclusions_that_do_not_hold_are_noticed() -> None:
    """What an outcome claims is used: a claim that is false shows in the result, so that the claims must be right."""
    assert _lying(lambda one: one, range(40)) == 0
    assert _lying(lambda one: replace(one, nothing_below=not one.feasible), range(40))
    assert _lying(lambda one: replace(one, floor=one.cost + 3), range(40))
    assert _lying(lambda one: replace(one, excess=one.excess + 9), range(40))


def test_search_cut_short_says_so() -> None:
    lattice = MadeUp((4, 4, 4), 5, limit=9, spoilt=0.5, informed=True)
    found = search(lattice.lowest, lattice.prior.copy(), lattice.check, most=3)
    assert found is not None
    assert (found.checked, found.complete, len(lattice.seen)) == (3, False, 3)


def test_progress_rises_to_one_and_an_interruption_gets_out() -> None:
    shares: list[float] = []
    lattice = MadeUp((4, 4, 4), 6, limit=6, spoilt=0.5, informed=True)
    search(lattice.lowest, lattice.prior.copy(), lattice.check, watch=lambda share, doing: shares.append(share))
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert len(shares) > 2

    def interrupt(share: float, doing: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(lattice.lowest, lattice.prior.copy(), lattice.check, watch=interrupt)


def test_lattice_too_large_is_refused_before_anything_is_allocated() -> None:
    expect_searchable((0,), (MOST_NODES - 1,))
    with pytest.raises(InvalidParameter, match=r"the lattice has 1,000,000,000,000 nodes, .* or mondrian"):
        expect_searchable((0,) * 12, (9,) * 12)
