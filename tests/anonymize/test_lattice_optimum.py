"""The node found is the cheapest of all: against brute force in plain Python, for every model, metric and limit."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest

import dither.anonymize.lattice.check as lattice_check
from dither.anonymize.configuration import Configuration
from dither.anonymize.hierarchy.hierarchies import Hierarchy, TableHierarchy
from dither.anonymize.lattice.cost import Metric
from dither.anonymize.lattice.full_domain import best_levels, full_domain
from dither.anonymize.models.catalogue import (
    BetaLikeness,
    DeltaDisclosure,
    Distance,
    DistinctDiversity,
    EntropyDiversity,
    KAnonymity,
    KMap,
    Model,
    RecursiveDiversity,
    TCloseness,
)
from dither.anonymize.verifier.definitions import satisfies
from dither.anonymize.verifier.verify import verify
from support.sizes import at_night

PLACES = [("a", "x", "*"), ("b", "x", "*"), ("c", "y", "*"), ("d", "y", "*")]
AGES = [(str(age), f"{age // 10 * 10}s", "young" if age < 40 else "old", "*") for age in (21, 25, 34, 38, 47, 52)]
SEXES = [("f", "*"), ("m", "*")]
ILLS = [("flu", "lungs", "*"), ("cold", "lungs", "*"), ("ulcer", "belly", "*"), ("gout", "other", "*")]
LINES = {"age": AGES, "place": PLACES, "sex": SEXES}
QUASI = {name: TableHierarchy.of(lines) for name, lines in LINES.items()}
WEIGHTS = {"age": 2.0, "place": 1.0, "sex": 0.5}


def people(seed: int, rows: int) -> pa.Table:
    rng = random.Random(seed)
    return pa.table(
        {
            "age": [int(rng.choice(AGES)[0]) for _ in range(rows)],
            "place": [rng.choice("aabcd") for _ in range(rows)],
            "sex": [rng.choice("fffm") for _ in range(rows)],
            "ill": [rng.choice(("flu", "flu", "flu", "cold", "ulcer", "gout")) for _ in range(rows)],
            "wage": [rng.choice((10, 20, 20, 30, 50)) for _ in range(rows)],
        }
    )


@dataclass
class Brute:
    """Every node by the definitions, with fractions, one class at a time."""

    table: pa.Table
    models: tuple[Model, ...]
    limit: Fraction

    def __post_init__(self) -> None:
        self.rows = self.table.to_pylist()
        self.label = {
            name: {line[0]: line for line in lines if line[0] in {str(row[name]) for row in self.rows}}
            for name, lines in LINES.items()
        }

    def nodes(self) -> Iterator[tuple[int, ...]]:
        return itertools.product(*(range(len(lines[0])) for lines in LINES.values()))

    def classes(self, node: tuple[int, ...]) -> dict[tuple[str, ...], list[dict[str, Any]]]:
        found: dict[tuple[str, ...], list[dict[str, Any]]] = {}
        for row in self.rows:
            key = tuple(self.label[name][str(row[name])][level] for name, level in zip(LINES, node, strict=True))
            found.setdefault(key, []).append(row)
        return found

    def good(self, members: list[dict[str, Any]], whole: list[dict[str, Any]]) -> bool:
        for model in self.models:
            if isinstance(model, KMap):
                exact = {tuple(row[name] for name in LINES) for row in members}
                if sum(tuple(row[name] for name in LINES) in exact for row in model.population.to_pylist()) < model.k:
                    return False
                continue
            counts: dict[int, int] = {}
            overall: list[int] = []
            levels = None
            if model.sensitive is not None:
                values = sorted({row[model.sensitive] for row in whole})
                overall = [sum(row[model.sensitive] == value for row in whole) for value in values]
                counts = dict(Counter(values.index(row[model.sensitive]) for row in members))
                if model.sensitive == "ill":
                    levels = TableHierarchy.of(ILLS).levels(pa.array(values))
            if not satisfies(model, len(members), counts, overall, levels):
                return False
        return True

    def suppressed(self, node: tuple[int, ...]) -> set[tuple[str, ...]] | None:
        """The classes to leave out, or None if they are too many."""
        classes = self.classes(node)
        out = {key for key, members in classes.items() if not self.good(members, self.rows)}
        while out:
            if sum(len(classes[key]) for key in out) > self.limit * len(self.rows) or len(out) == len(classes):
                return None
            seen = [row for key, members in classes.items() if key not in out for row in members]
            more = {key for key, members in classes.items() if key not in out and not self.good(members, seen)}
            if not more:
                break
            out |= more
        return out

    def cost(self, node: tuple[int, ...], metric: Metric, out: set[tuple[str, ...]]) -> float:
        classes = self.classes(node)
        number = len(self.rows)
        if metric is Metric.HEIGHT:
            total = sum(WEIGHTS.values())
            return sum(WEIGHTS[name] * level for name, level in zip(LINES, node, strict=True)) * len(LINES) / total
        if metric is Metric.DISCERNIBILITY:
            return sum(len(rows) * (number if key in out else len(rows)) for key, rows in classes.items())
        if metric is Metric.CLASSES:
            return -(len(classes) - len(out))
        lost = most = 0.0
        rows_of = {name: Counter(str(row[name]) for row in self.rows) for name in LINES}
        for position, (name, level) in enumerate(zip(LINES, node, strict=True)):
            lines = self.label[name]
            for key, rows in classes.items():
                group = [text for text, line in lines.items() if line[level] == key[position]]
                alike = sum(rows_of[name][text] for text in group)
                for text, times in Counter(str(row[name]) for row in rows).items():
                    if metric is Metric.PRECISION:
                        cell, worst = level / (len(lines[text]) - 1), 1.0
                    elif metric is Metric.LOSS:
                        cell, worst = (len(group) - 1) / max(1, len(lines) - 1), float(len(lines) > 1)
                    else:
                        cell, worst = math.log2(alike / rows_of[name][text]), math.log2(number / rows_of[name][text])
                    lost += times * WEIGHTS[name] * (worst if key in out else cell)
                    most += times * WEIGHTS[name] * (worst if metric is Metric.ENTROPY else 1.0)
        return lost / most if most else 0.0


MODELS: dict[str, tuple[Model, ...]] = {
    "k": (KAnonymity(3),),
    "k-map": (KMap(4, people(99, 120)),),
    "distinct": (KAnonymity(2), DistinctDiversity(2, "ill")),
    "entropy": (EntropyDiversity("1.7", "ill"),),
    "recursive": (KAnonymity(2), RecursiveDiversity(2, 2, "ill")),
    "close, equal": (KAnonymity(2), TCloseness("0.35", "ill", Distance.EQUAL)),
    "close, ordered": (TCloseness("0.2", "wage", Distance.ORDERED),),
    "close, hierarchical": (TCloseness("0.3", "ill", Distance.HIERARCHICAL),),
    "disclosure": (DeltaDisclosure("1.5", "ill"),),
    "disclosure, absent ignored": (KAnonymity(2), DeltaDisclosure("0.7", "ill", ignore_absent=True)),
    "likeness": (BetaLikeness("1.2", "ill"),),
    "likeness, enhanced": (KAnonymity(3), BetaLikeness("2", "ill", enhanced=True)),
    "several": (KAnonymity(3), DistinctDiversity(2, "wage"), EntropyDiversity("1.5", "ill")),
}


def configuration(table: pa.Table, models: tuple[Model, ...], limit: Fraction) -> Configuration:
    sensitive = {"ill": TableHierarchy.of(ILLS), "wage": None}
    return Configuration.of(table, quasi=QUASI, sensitive=sensitive, models=models, weights=WEIGHTS, suppression=limit)


@pytest.mark.parametrize(
    "limit",
    [Fraction(0), Fraction(1, 10), pytest.param(Fraction(1, 3), marks=at_night)],
    ids=["0", "10%", "33%"],
)
@pytest.mark.parametrize("models", MODELS.values(), ids=MODELS.keys())
def test_optimum_is_that_of_brute_force(models: tuple[Model, ...], limit: Fraction) -> None:
    for seed, rows in ((1, 14), (2, 40)):
        table = people(seed, rows)
        brute = Brute(table, models, limit)
        out = {node: found for node in brute.nodes() if (found := brute.suppressed(node)) is not None}
        for metric in Metric:
            if not out:
                with pytest.raises(ValueError, match="no node of the lattice satisfies"):
                    best_levels(table, configuration(table, models, limit), metric=metric)
                continue
            found = best_levels(table, configuration(table, models, limit), metric=metric)
            node = tuple(found.levels.values())
            costs = {one: brute.cost(one, metric, left) for one, left in out.items()}
            assert found.complete
            assert found.suppressed == sum(len(brute.classes(node)[key]) for key in out[node])
            assert costs[node] == pytest.approx(min(costs.values()), rel=1e-8, abs=1e-8)
            sign = -1 if metric is Metric.CLASSES else 1
            assert found.value == pytest.approx(sign * costs[node], rel=1e-8, abs=1e-8)


@pytest.mark.parametrize("models", MODELS.values(), ids=MODELS.keys())
def test_release_passes_the_verifier_with_and_without_the_original(models: tuple[Model, ...]) -> None:
    for seed in (3, 4):
        table = people(seed, 60)
        asked = configuration(table, models, Fraction(1, 4))
        release = full_domain(table, asked)
        assert verify(release.table, asked, table).good
        assert verify(release.table, asked).good


def spoiling() -> tuple[pa.Table, Configuration]:
    """Ages 21 and 31 have both illnesses alike; the five of age 22 have one, and spoil what they are merged with."""
    table = pa.table(
        {"age": [21] * 20 + [22] * 5 + [31] * 20, "ill": ["flu", "cold"] * 10 + ["flu"] * 5 + ["flu", "cold"] * 10}
    )
    decades = TableHierarchy.of([("21", "20s", "young", "*"), ("22", "20s", "young", "*"), ("31", "30s", "young", "*")])
    models = (EntropyDiversity(2, "ill"),)
    return table, Configuration.of(
        table, quasi={"age": decades}, sensitive=["ill"], models=models, suppression=Fraction(5, 45)
    )


def test_with_suppression_a_coarser_node_may_fail_where_a_finer_one_holds() -> None:
    table, asked = spoiling()
    found = best_levels(table, asked)
    assert (found.levels, found.suppressed, found.complete) == ({"age": 0}, 5, True)
    for level in (1, 2, 3):
        with pytest.raises(ValueError, match="no node of the lattice"):
            best_levels(table, asked, levels={"age": level})


def test_mutant_that_takes_every_model_for_a_growing_one_misses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lattice_check, "_GROWING", (KAnonymity, EntropyDiversity))
    with pytest.raises(ValueError, match="no node of the lattice"):
        best_levels(*spoiling())


def test_comparing_with_the_original_alone_would_release_what_readers_find_unlike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once rows are suppressed, classes must be close to the rows that are left as well."""
    failed = 0
    for seed in range(20):
        table = people(seed, 60)
        asked = configuration(table, (KAnonymity(4), TCloseness("0.2", "ill", Distance.EQUAL)), Fraction(1, 3))
        assert verify(full_domain(table, asked).table, asked).good
        with monkeypatch.context() as patch:
            patch.setattr(lattice_check, "_seen", lambda column, whole, histogram: (histogram, whole))
            release = full_domain(table, asked)
        assert verify(release.table, asked, table).good
        failed += not verify(release.table, asked).good
    assert failed


def test_incognitos_patients() -> None:
    """The example of LeFevre, DeWitt & Ramakrishnan 2005; its minimal nodes are (1, 1, 0), (1, 0, 2) and (0, 1, 2)."""
    table = pa.table(
        {
            "birth": ["1/21/76", "4/13/86", "2/28/76", "1/21/76", "4/13/86", "2/28/76"],
            "sex": ["m", "f", "m", "m", "f", "f"],
            "zip": ["53715", "53715", "53703", "53703", "53706", "53706"],
        }
    )
    zips = {code: (code[:4] + "*", code[:3] + "**") for code in ("53715", "53703", "53706")}
    quasi = {
        "birth": Hierarchy.from_mapping(dict.fromkeys(("1/21/76", "4/13/86", "2/28/76"), ())),
        "sex": Hierarchy.from_mapping({"m": (), "f": ()}),
        "zip": Hierarchy.from_mapping(zips),
    }

    def best(metric: Metric, limit: Fraction = Fraction(0)) -> tuple[tuple[int, ...], float, int]:
        asked = Configuration.of(table, quasi=quasi, k=2, suppression=limit)
        found = best_levels(table, asked, metric=metric)
        return tuple(found.levels.values()), round(found.value, 6), found.suppressed

    assert best(Metric.HEIGHT) == ((1, 1, 0), 2, 0)
    assert best(Metric.LOSS) == ((0, 1, 2), 0.666667, 0)
    assert best(Metric.DISCERNIBILITY) == ((0, 1, 2), 12, 0)
    assert best(Metric.CLASSES) == ((0, 1, 2), 3, 0)
    # two of six rows suppressed: the four others lose one column of three
    assert best(Metric.LOSS, Fraction(1, 3)) == ((0, 0, 2), 0.555556, 2)
    assert best(Metric.LOSS, Fraction(1, 4)) == ((0, 1, 2), 0.666667, 0)
