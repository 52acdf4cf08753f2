"""Full-domain generalisation from outside: releases, levels, weights, automatic hierarchies, refusals."""

from __future__ import annotations

import datetime as dt
import itertools
import random
from collections import Counter
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from dither.anonymize.attributes import Attribute, Role
from dither.anonymize.configuration import Configuration
from dither.anonymize.encoding import encode
from dither.anonymize.hierarchy.hierarchies import Hierarchy, TableHierarchy
from dither.anonymize.lattice.check import Requirements
from dither.anonymize.lattice.cost import Metric, cost_of
from dither.anonymize.lattice.full_domain import best_levels, full_domain, generalized
from dither.anonymize.lattice.generalize import (
    Domain,
    Grouping,
    Node,
    of_rows,
    rolled_up,
    with_hierarchies,
    with_histograms,
)
from dither.anonymize.models.catalogue import DistinctDiversity, KAnonymity, KMap, RecursiveDiversity, TCloseness
from dither.anonymize.table.values import AxisKind
from dither.anonymize.verifier.verify import verify
from dither.errors import InvalidParameter

TENS = Hierarchy.intervals((10, 20, 40))
CODES = Hierarchy.prefixes(3)


def people(rows: int = 200, seed: int = 1) -> pa.Table:
    rng = random.Random(seed)
    return pa.table(
        {
            "name": [f"person {number}" for number in range(rows)],
            "age": [rng.choice([None, *range(20, 60)]) for _ in range(rows)],
            "code": [f"{rng.choice('112')}{rng.choice('123')}{rng.choice('0123')}" for _ in range(rows)],
            "ill": [rng.choice(("flu", "cold", "gout")) for _ in range(rows)],
        }
    )


def asked(table: pa.Table, *, k: int = 5, suppression: Fraction = Fraction(0)) -> Configuration:
    return Configuration.of(table, quasi={"age": TENS, "code": CODES}, sensitive=["ill"], k=k, suppression=suppression)


def nodes(heights: Node) -> list[Node]:
    return list(itertools.product(*(range(height + 1) for height in heights)))


def test_rolled_up_classes_are_those_counted_from_rows() -> None:
    table = people(300)
    configuration = asked(table)
    domain = Domain.of(table, configuration.quasi)
    columns = [encode(table, configuration.attribute("ill"))]
    weights = np.arange(300, dtype=np.int64)

    def told(grouping: Grouping) -> dict[tuple[int, ...], tuple[int, int, tuple[int, ...]]]:
        assert grouping.histograms is not None
        dense = np.zeros((grouping.number, 3), np.int64)
        dense[grouping.histograms[0].class_of_entry, grouping.histograms[0].codes] = grouping.histograms[0].counts
        return {
            tuple(int(codes[place]) for codes in grouping.groups): (
                int(grouping.sizes[place]),
                int(grouping.people[0][place]),
                tuple(dense[place].tolist()),
            )
            for place in range(grouping.number)
        }

    lowest, _ = of_rows(domain, (0, 0), [weights], columns)
    assert domain.heights == (4, 3)
    for node in nodes(domain.heights):
        direct, of_row = of_rows(domain, node, [weights], columns)
        rolled, became = rolled_up(domain, lowest, node)
        assert told(with_histograms(rolled, lowest, became)) == told(direct)
        assert np.bincount(of_row).tolist() == direct.sizes.tolist()
        between = tuple(level // 2 for level in node)
        middle, _ = of_rows(domain, between, [weights], columns)
        again, became = rolled_up(domain, middle, node)
        assert told(with_histograms(again, middle, became)) == told(direct)


def test_keys_wider_than_a_word_are_renumbered() -> None:
    rng = np.random.default_rng(3)
    columns = {f"q{number}": rng.integers(0, 40, 50) for number in range(16)}
    table = pa.table(columns)
    configuration = with_hierarchies(table, Configuration.of(table, quasi=list(columns), k=2))
    domain = Domain.of(table, configuration.quasi)
    grouping, of_row = of_rows(domain, (0,) * 16, [], [])
    lines = list(zip(*(column.tolist() for column in columns.values()), strict=True))
    assert grouping.number == len(set(lines)) == 50
    top, _ = rolled_up(domain, grouping, domain.heights)
    assert top.sizes.tolist() == [50]
    assert sorted(of_row.tolist()) == list(range(50))


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.sampled_from([Fraction(0), Fraction(1, 10), Fraction(1, 2)]))
def test_floors_rise_and_excesses_fall(seed: int, limit: Fraction) -> None:
    """The two facts that pruning stands on, for every metric and pair of nodes, with a model that only grows."""
    table = people(40, seed)
    configuration = asked(table, k=3, suppression=limit)
    domain = Domain.of(table, configuration.quasi)
    for metric in Metric:
        cost = cost_of(metric, domain)
        requirements = Requirements(table, configuration, domain, cost, (0, 0))
        prior = cost.prior((0, 0), domain.heights)
        floors, excesses, lost = {}, {}, {}
        for node in nodes(domain.heights):
            grouping, _, failing = requirements.failing(node)
            floors[node], excesses[node] = cost.floor(grouping), cost.excess(grouping, failing)
            lost[node] = int(grouping.sizes[failing].sum())
            assert int(prior[node]) <= floors[node]
        for below, above in itertools.product(floors, floors):
            if all(a <= b for a, b in zip(below, above, strict=True)):
                assert floors[below] <= floors[above]
                assert excesses[below] >= excesses[above]
                assert lost[below] >= lost[above]


@pytest.mark.parametrize("metric", list(Metric))
def test_value_is_the_quality_of_the_release(metric: Metric) -> None:
    table = people(200)
    configuration = asked(table, suppression=Fraction(1, 20))
    found = best_levels(table, configuration, metric=metric)
    release = full_domain(table, configuration, metric=metric)
    quality = release.quality()
    assert round(quality.suppressed * 200) == found.suppressed <= 10
    expected = {
        Metric.LOSS: quality.ncp,
        Metric.ENTROPY: quality.entropy_loss,
        Metric.DISCERNIBILITY: quality.discernibility,
        Metric.CLASSES: quality.classes,
        Metric.HEIGHT: sum(found.levels.values()),
    }.get(metric, found.value)
    assert found.value == pytest.approx(expected, rel=1e-8)
    assert release.how == f"{found}"
    assert verify(release.table, configuration, table).good


def test_search_is_the_same_for_arrow_pandas_and_polars_and_for_any_order_of_rows() -> None:
    table = people(120).drop_columns(["name"])
    wanted = full_domain(table, quasi={"age": TENS, "code": CODES}, sensitive=["ill"], k=4, suppression="0.1")
    shuffled = table.take(pa.array(np.random.default_rng(1).permutation(120)))
    frame = table.to_pandas().astype({"age": pd.Int64Dtype()})
    for other in (shuffled, frame, pl.from_arrow(table)):
        found = full_domain(other, quasi={"age": TENS, "code": CODES}, sensitive=["ill"], k=4, suppression="0.1")
        assert Counter(map(str, found.table.to_pylist())) == Counter(map(str, wanted.table.to_pylist()))
        assert found.how == wanted.how


def test_suppression_limit_is_exact() -> None:
    """Two of forty rows stand alone: 5% may suppress them, a hair less may not."""
    table = pa.table({"code": ["a"] * 19 + ["b"] * 19 + ["c", "d"]})
    quasi = {"code": TableHierarchy.of([("a", "*"), ("b", "*"), ("c", "*"), ("d", "*")])}
    just = full_domain(table, quasi=quasi, k=5, suppression=Fraction(1, 20))
    assert (just.table.num_rows, just.classes.suppressed, just.classes.number) == (38, 2, 2)
    below = full_domain(table, quasi=quasi, k=5, suppression=Fraction(1, 20) - Fraction(1, 10**9))
    assert below.table.column("code").to_pylist() == ["*"] * 40


@pytest.mark.parametrize("metric", list(Metric))
def test_nobody_is_released_as_an_empty_table(metric: Metric) -> None:
    table = pa.table({"code": ["a", "b", "c", "d"]})
    release = full_domain(table, quasi=["code"], k=3, suppression=1, metric=metric)
    assert release.table.num_rows >= 3


def test_weights_decide_which_column_keeps_its_detail() -> None:
    table = pa.table({"a": ["x", "x", "y", "y"], "b": ["u", "v", "u", "v"]})
    flat = Hierarchy.from_mapping
    quasi = {"a": flat({"x": (), "y": ()}), "b": flat({"u": (), "v": ()})}
    for heavy, light in (("a", "b"), ("b", "a")):
        release = full_domain(table, quasi=quasi, k=2, weights={heavy: 2.0})
        assert set(release.table.column(light).to_pylist()) == {"*"}
        assert len(set(release.table.column(heavy).to_pylist())) == 2
    free = full_domain(table, quasi=quasi, k=2, weights={"a": 0.0})
    assert set(free.table.column("a").to_pylist()) == {"*"}
    with pytest.raises(InvalidParameter, match="at least one quasi-identifier needs a weight above 0"):
        full_domain(table, quasi=quasi, k=2, weights={"a": 0.0, "b": 0.0})


def test_levels_are_fixed_or_limited() -> None:
    table = people(200)
    configuration = asked(table, suppression=Fraction(1, 10))
    limited = best_levels(table, configuration, levels={"age": (2, 3), "code": 1})
    assert limited.nodes == 2
    assert limited.levels["age"] in (2, 3)
    assert limited.levels["code"] == 1
    for levels, text in (
        ({"height": 1}, "these are none: 'height'"),
        ({"age": 5}, "the levels of 'age' must be one level .* from 0 to 4; got 5"),
        ({"age": (3, 2)}, "the levels of 'age'"),
        ({"age": -1}, "the levels of 'age'"),
    ):
        with pytest.raises(InvalidParameter, match=text):
            best_levels(table, configuration, levels=levels)


@pytest.mark.parametrize("levels", ["1", 1.0, True, (0, 1, 2), (1,), (2, 1), (0, 99), -1, None])
def test_levels_that_are_none_are_named(levels: object) -> None:
    table = people(50)
    with pytest.raises(InvalidParameter, match=r"the levels of 'age' must be one level or \(lowest, highest\)"):
        full_domain(table, asked(table), levels={"age": levels})  # type: ignore[dict-item]


def test_levels_of_ones_own_are_released_if_they_satisfy_the_models() -> None:
    table = people(200)
    configuration = asked(table, suppression=Fraction(1, 10))
    release = generalized(table, configuration, {"age": 3, "code": 2})
    assert set(release.table.column("code").to_pylist()) == {"1**", "2**"}
    assert verify(release.table, configuration, table).good
    with pytest.raises(InvalidParameter, match=r"would suppress \d+ of 200 rows .* at most 20 may be"):
        generalized(table, configuration, {"age": 0, "code": 0})
    with pytest.raises(InvalidParameter, match="levels must name each quasi-identifier: 'age', 'code'"):
        generalized(table, configuration, {"age": 0})


def test_columns_without_a_hierarchy_get_one_of_their_kind() -> None:
    rng = random.Random(7)
    size = 160
    days = [dt.date(2020, 1, 1) + dt.timedelta(days=rng.randrange(9)) for _ in range(size)]
    table = pa.table(
        {
            "age": [rng.choice([None, 20, 21, 25, 30, 41]) for _ in range(size)],
            "day": days,
            "city": [rng.choice(("a", "a", "b", "c, d", "{e}")) for _ in range(size)],
            "grade": [rng.choice(("low", "middle", "high")) for _ in range(size)],
            "nothing": pa.array([None] * size, pa.string()),
            "constant": ["same"] * size,
        }
    )
    grade = Attribute(name="grade", role=Role.QUASI, kind=AxisKind.ORDERED, order=("low", "middle", "high"))
    quasi = ["age", "day", "city", grade, "nothing", "constant"]
    release = full_domain(table, quasi=quasi, k=4, suppression="0.1")
    made = release.configuration
    assert all(attribute.hierarchy is not None for attribute in made.quasi)
    assert verify(release.table, made, table).good
    order = made.attribute("grade").hierarchy
    assert order is not None
    # neighbours merge, never low with high
    assert order.level_codes(1, pa.array(["low", "middle", "high"]))[1] in (
        ("low–middle", "high"),
        ("low", "middle–high"),
    )
    coarse = generalized(table, made, {**{a.name: a.hierarchy.height for a in made.quasi if a.hierarchy}, "grade": 1})
    assert verify(coarse.table, made, table).good


def test_missing_values_are_a_group_of_their_own_below_the_top() -> None:
    table = pa.table({"age": [None, None, None, 21, 22, 23, 31, 32, 33]})
    release = full_domain(table, quasi={"age": TENS}, k=3)
    assert release.table.column("age").to_pylist() == ["20–29"] * 3 + ["30–39"] * 3 + [None] * 3
    assert verify(release.table, release.configuration, table).good


def test_k_map_counts_people_of_the_population() -> None:
    table = pa.table({"code": ["a", "b", "c"]})
    population = pa.table({"code": ["a"] * 5 + ["b"] * 5 + ["c"], "others": [1] * 11})
    quasi = {"code": TableHierarchy.of([("a", "*"), ("b", "*"), ("c", "*")])}
    release = full_domain(table, quasi=quasi, models=(KMap(5, population),), suppression="0.34")
    assert release.table.column("code").to_pylist() == ["a", "b"]


def test_search_that_is_cut_short_says_so_and_releases_the_best_it_saw() -> None:
    table = people(200)
    configuration = asked(table)
    whole, short = best_levels(table, configuration), best_levels(table, configuration, most=3)
    assert whole.complete
    assert not short.complete
    assert short.checked == 3
    assert short.value >= whole.value
    release = full_domain(table, configuration, most=3)
    assert release.how.endswith("least loss of 3 nodes checked")
    with pytest.raises(InvalidParameter, match=r"none of the 1 nodes that were checked .* let it check more"):
        best_levels(table, configuration, most=1)
    assert verify(release.table, configuration, table).good


def test_what_no_release_can_satisfy_is_said() -> None:
    table = people(50)
    impossible = Configuration.of(
        table, quasi={"age": TENS}, sensitive=["ill"], models=(KAnonymity(2), DistinctDiversity(4, "ill"))
    )
    with pytest.raises(InvalidParameter, match=r"no release can satisfy .* at least 4 .* the table has 3; ask for"):
        full_domain(table, impossible)
    never = Configuration.of(
        table, quasi={"age": TENS}, sensitive=["ill"], models=(RecursiveDiversity("1/9", 3, "ill"),)
    )
    with pytest.raises(InvalidParameter, match=r"no node of the lattice satisfies recursive .* allow more suppression"):
        full_domain(table, never)
    with pytest.raises(InvalidParameter, match="not both"):
        full_domain(table, impossible, k=3)
    with pytest.raises(InvalidParameter, match="metric must be one of loss, entropy"):
        full_domain(table, impossible, metric="beauty")  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match="most must be"):
        full_domain(table, never, most=0)
    wide = pa.table({f"q{number}": list(range(20)) for number in range(9)})
    with pytest.raises(InvalidParameter, match=r"the lattice has .* nodes"):
        full_domain(wide, quasi=wide.column_names, k=2)


def test_progress_is_told_and_an_interruption_leaves() -> None:
    table = people(200)
    told: list[tuple[float, str]] = []
    models = (KAnonymity(3), TCloseness("0.2", "ill"))
    configuration = Configuration.of(
        table, quasi={"age": TENS, "code": CODES}, sensitive=["ill"], models=models, suppression="0.1"
    )
    full_domain(table, configuration, watch=lambda share, doing: told.append((share, doing)))
    shares = [share for share, _ in told]
    assert shares == sorted(shares)
    assert shares[0] == 0.0
    assert shares[-1] == 1.0
    assert any("checked" in doing for _, doing in told)

    def interrupt(share: float, doing: str) -> None:
        if "checked" in doing:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        full_domain(table, configuration, watch=interrupt)
