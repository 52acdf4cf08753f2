"""Random hierarchies, tables, models and limits, every node by brute force: what the search concludes is true.

``test_lattice_optimum`` has one small world and all metrics; here everything is drawn by lot, and beside the optimum
the claims of every single check are compared: what it says of finer and of coarser nodes is what pruning stands on.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

import dither.anonymize.lattice.check as lattice_check
from dither.anonymize.configuration import Configuration
from dither.anonymize.hierarchy.hierarchies import TableHierarchy
from dither.anonymize.lattice.check import Requirements
from dither.anonymize.lattice.cost import Metric, cost_of
from dither.anonymize.lattice.full_domain import best_levels, full_domain, generalized
from dither.anonymize.lattice.generalize import Domain, Node
from dither.anonymize.models.catalogue import (
    BetaLikeness,
    DeltaDisclosure,
    Distance,
    DistinctDiversity,
    EntropyDiversity,
    KAnonymity,
    Model,
    RecursiveDiversity,
    TCloseness,
)
from dither.anonymize.verifier.definitions import satisfies
from dither.anonymize.verifier.verify import verify
from dither.errors import InvalidParameter
from support.sizes import examples

ILLS = ("flu", "cold", "gout")
ILL_TREE = TableHierarchy.of([("flu", "lungs", "*"), ("cold", "lungs", "*"), ("gout", "joints", "*")])
LIMITS = [Fraction(0), Fraction(1, 10), Fraction(1, 4), Fraction(1, 2), Fraction(1)]


def tree(rng: random.Random, name: str) -> list[tuple[str, ...]]:
    """A hierarchy whose groups merge by lot, so that they aren't stretches of the alphabet."""
    lines = [[f"{name}{place}"] for place in range(rng.randint(2, 5))]
    for level in range(1, rng.randint(1, 3)):
        parent = {line[-1]: f"{name}/{level}/{rng.randint(0, 2)}" for line in lines}
        for line in lines:
            line.append(parent[line[-1]])
    return [(*line, "*") for line in lines]


def some_models(rng: random.Random) -> tuple[Model, ...]:
    part, rate = Fraction(rng.randint(1, 9), 10), Fraction(rng.randint(3, 30), 10)
    drawn: list[Model] = [
        KAnonymity(rng.randint(2, 5)),
        DistinctDiversity(rng.randint(2, 3), "ill"),
        EntropyDiversity(1 + part, "ill"),
        RecursiveDiversity(rate, rng.randint(1, 3), "ill"),
        TCloseness(part / 2, "ill", rng.choice([Distance.EQUAL, Distance.HIERARCHICAL])),
        TCloseness(part / 2, "wage", Distance.ORDERED),
        DeltaDisclosure(rate, "ill", ignore_absent=rng.random() < 0.5),
        BetaLikeness(rate / 2, "wage", enhanced=rng.random() < 0.5),
    ]
    chosen = rng.sample(drawn, rng.choice([1, 1, 2, 3]))
    return tuple(chosen) if not all(one.asks_nothing for one in chosen) else (KAnonymity(2), *chosen)


@dataclass
class World:
    """One table with all its nodes, in plain Python."""

    seed: int

    def __post_init__(self) -> None:
        rng = random.Random(self.seed)
        self.trees = {name: tree(rng, name) for name in ("p", "q", "r")[: rng.choice([1, 2, 2, 3])]}
        rows = rng.randint(5, 22)
        values = {
            name: [line[0] for line in lines] + [None] * (rng.random() < 0.3) for name, lines in self.trees.items()
        }
        columns: dict[str, list[str | int | None]] = {
            name: [rng.choice(listed) for _ in range(rows)] for name, listed in values.items()
        }
        columns["ill"] = [rng.choice(ILLS) for _ in range(rows)]
        columns["wage"] = [rng.choice((10, 20, 30, None)) for _ in range(rows)]
        kinds = {"ill": pa.string(), "wage": pa.int64()}
        self.table = pa.table({name: pa.array(one, kinds.get(name, pa.string())) for name, one in columns.items()})
        self.rows = self.table.to_pylist()
        self.models = some_models(rng)
        self.limit = rng.choice(LIMITS)
        self.asked = Configuration.of(
            self.table,
            quasi={name: TableHierarchy.of(lines) for name, lines in self.trees.items()},
            sensitive={"ill": ILL_TREE, "wage": None},
            models=self.models,
            suppression=self.limit,
        )

    def nodes(self) -> list[Node]:
        return list(itertools.product(*(range(len(lines[0])) for lines in self.trees.values())))

    def classes(self, node: Node) -> list[list[int]]:
        found: dict[tuple[str | None, ...], list[int]] = {}
        for place, row in enumerate(self.rows):
            found.setdefault(self._key(row, node), []).append(place)
        return list(found.values())

    def _key(self, row: dict[str, str | None], node: Node) -> tuple[str | None, ...]:
        key: list[str | None] = []
        for (name, lines), level in zip(self.trees.items(), node, strict=True):
            line = next((line for line in lines if line[0] == row[name]), None)
            # a missing value is apart below the top
            key.append(line[level] if line else "*" if level == len(lines[0]) - 1 else None)
        return tuple(key)

    def good(self, members: list[int], whole: list[int]) -> bool:
        for model in self.models:
            counts: dict[int, int] = {}
            overall: list[int] = []
            levels = None
            if model.sensitive is not None:
                listed = [self.rows[place][model.sensitive] for place in whole]
                values = sorted(set(listed), key=lambda value: (value is None, value))
                overall = [listed.count(value) for value in values]
                counts = dict(Counter(values.index(self.rows[place][model.sensitive]) for place in members))
                if model.sensitive == "ill":
                    levels = [[("flu", "cold", "gout").index(value) for value in values]]
                    levels += [[int(value == "gout") for value in values], [0] * len(values)]
            if not satisfies(model, len(members), counts, overall, levels):
                return False
        return True

    def suppressed(self, node: Node) -> int | None:
        """The rows that have to be left out at a node, or None if it can't be released."""
        kept, out = self.classes(node), 0
        whole = list(range(len(self.rows)))
        # what fails against the whole table, then against what is left, until nothing does
        seen = whole
        while True:
            fine = [one for one in kept if self.good(one, whole) and self.good(one, seen)]
            out += sum(map(len, kept)) - sum(map(len, fine))
            if out > self.limit * len(self.rows) or out == len(self.rows):
                return None
            if len(fine) == len(kept):
                return out
            kept, seen = fine, [place for one in fine for place in one]


def under(u: Node, v: Node) -> bool:
    return all(a <= b for a, b in zip(u, v, strict=True))


worlds = st.integers(0, 10**9).map(World)


@examples(20, 60)
@given(worlds, st.sampled_from(list(Metric)))
def test_every_claim_of_a_check_is_true(world: World, metric: Metric) -> None:
    try:
        domain = Domain.of(world.table, world.asked.quasi)
        asked = Requirements(world.table, world.asked, domain, cost_of(metric, domain), (0,) * len(domain.axes))
    except InvalidParameter:
        assert all(world.suppressed(node) is None for node in world.nodes())
        return
    out = {node: world.suppressed(node) for node in world.nodes()}
    outcomes = {node: asked.check(node) for node in world.nodes()}
    for node, outcome in outcomes.items():
        assert outcome.feasible == (out[node] is not None), node
        if outcome.feasible:
            assert outcome.suppressed == out[node]
        below = [other for other in out if under(other, node)]
        above = [other for other in out if under(node, other)]
        assert not outcome.nothing_below or all(out[other] is None for other in below), node
        assert not outcome.all_above or all(out[other] is not None for other in above), node
        for other in above:
            assert not outcomes[other].feasible or outcome.floor <= outcomes[other].cost, (node, other)
        for other in below:
            least = outcomes[other].floor + outcome.excess
            assert not outcomes[other].feasible or outcome.nothing_below or least <= outcomes[other].cost, (node, other)


@examples(20, 60)
@given(worlds, st.sampled_from(list(Metric)))
def test_optimum_is_the_cheapest_node_then_the_fewest_rows_then_the_first(world: World, metric: Metric) -> None:
    out = {node: found for node in world.nodes() if (found := world.suppressed(node)) is not None}
    if not out:
        with pytest.raises(InvalidParameter, match=r"no node of the lattice satisfies|no release can satisfy"):
            best_levels(world.table, world.asked, metric=metric)
        return
    domain = Domain.of(world.table, world.asked.quasi)
    asked = Requirements(world.table, world.asked, domain, cost_of(metric, domain), (0,) * len(domain.axes))
    cheapest = min((asked.check(node).cost, suppressed, node) for node, suppressed in out.items())
    found = best_levels(world.table, world.asked, metric=metric)
    assert found.complete
    assert (found.suppressed, tuple(found.levels.values())) == cheapest[1:]


@settings(max_examples=20)
@given(worlds)
def test_released_tables_have_no_row_too_many_and_only_labels_of_the_level(world: World) -> None:
    for node in world.nodes():
        levels = dict(zip(world.trees, node, strict=True))
        out = world.suppressed(node)
        if out is None:
            with pytest.raises(InvalidParameter, match=r"these levels would suppress|no release can satisfy"):
                generalized(world.table, world.asked, levels)
            continue
        release = generalized(world.table, world.asked, levels)
        assert release.table.num_rows == len(world.rows) - out
        printed = Counter(zip(*(release.table.column(name).to_pylist() for name in world.trees), strict=True))
        assert not printed - Counter(world._key(row, node) for row in world.rows)
        assert verify(release.table, world.asked, world.table).good


def test_mutant_that_prunes_by_models_that_suppression_spoils_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """With every model taken for one that only grows, some claim of some check is false."""
    monkeypatch.setattr(lattice_check, "_GROWING", (*lattice_check._GROWING, EntropyDiversity, TCloseness))
    wrong = 0
    for seed in range(150):
        world = World(seed)
        if len({row["ill"] for row in world.rows}) < 2:
            continue
        world.models, world.limit = (KAnonymity(2), EntropyDiversity("1.8", "ill")), Fraction(1, 4)
        world.asked = Configuration(world.asked.attributes, world.models, world.limit)
        domain = Domain.of(world.table, world.asked.quasi)
        asked = Requirements(world.table, world.asked, domain, cost_of(Metric.LOSS, domain), (0,) * len(domain.axes))
        for node in world.nodes():
            claims = asked.check(node)
            finer = [other for other in world.nodes() if under(other, node)]
            wrong += claims.nothing_below and any(world.suppressed(other) is not None for other in finer)
    assert wrong


def test_nothing_follows_from_a_model_that_passes_over_absent_values() -> None:
    """Good classes without a value spoil good ones that have it: a node fails between two that hold."""
    table = pa.table(
        {
            "p": ["a"] * 20 + ["b"] * 5 + ["c"] * 20,
            "ill": ["flu"] * 20 + ["gout"] + ["flu"] * 4 + ["gout"] * 8 + ["flu"] * 12,
        }
    )
    quasi = {"p": TableHierarchy.of([("a", "x", "*"), ("b", "x", "*"), ("c", "y", "*")])}
    model = DeltaDisclosure(1, "ill", ignore_absent=True)
    asked = Configuration.of(table, quasi=quasi, sensitive=["ill"], models=[model])
    domain = Domain.of(table, asked.quasi)
    checks = Requirements(table, asked, domain, cost_of(Metric.LOSS, domain), (0,))
    found = [checks.check((level,)) for level in range(3)]
    assert [one.feasible for one in found] == [True, False, True]
    assert not any(one.nothing_below or one.all_above for one in found)
    assert best_levels(table, asked).levels == {"p": 0}


def test_limits_on_the_border_are_exact() -> None:
    """A tenth of 30 rows is three, though 0.1 · 30 is a little more in floats, and 0.7 of 10 is seven."""
    for share, rows, allowed in ((Fraction(1, 10), 30, 3), (Fraction(7, 10), 10, 7), (Fraction(29, 100), 100, 29)):
        alone = [f"x{place}" for place in range(allowed)]
        table = pa.table({"p": [*alone, *["a"] * (rows - allowed)]})
        quasi = {"p": TableHierarchy.of([(value, "*") for value in (*alone, "a")])}
        kept = full_domain(table, quasi=quasi, k=2, suppression=share, levels={"p": 0})
        assert kept.table.column("p").to_pylist() == ["a"] * (rows - allowed)
        with pytest.raises(InvalidParameter, match="allow more suppression"):
            full_domain(table, quasi=quasi, k=2, suppression=share - Fraction(1, 10**9), levels={"p": 0})
