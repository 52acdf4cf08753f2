"""Measures of what was lost: by hand, against their definitions row by row, and at their ends."""

import math
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from dither.anonymize.attributes import Attribute, Role
from dither.anonymize.configuration import Configuration
from dither.anonymize.encoding import encode
from dither.anonymize.hierarchy.hierarchies import Hierarchy
from dither.anonymize.partition.mondrian import mondrian
from dither.anonymize.releases.printing import PrintedColumn
from dither.anonymize.releases.quasi_identifier_axis import Axis
from dither.anonymize.releases.release import Release
from dither.anonymize.releases.utility import task_utility
from dither.anonymize.table.classes import Classes
from dither.errors import InvalidParameter
from support.sizes import examples

PLACES = Hierarchy.from_mapping({"Paris": "France", "Lyon": "France", "Rome": "Italy", "Kyoto": "Japan"})


def by_hand(table, quasi, of_row, **others):
    """The release with classes of our own choice."""
    configuration = Configuration.of(table, quasi=quasi, suppression=1, k=2, **others)
    of_row = np.array(of_row)
    number = int(of_row.max()) + 1
    axes = [Axis.of(encode(table, attribute), attribute) for attribute in configuration.quasi]
    cells = [PrintedColumn.of(axis, of_row, number) for axis in axes]
    return Release.of(table, configuration, Classes.of(of_row, number), cells, how="by hand")


def test_ncp_by_hand():
    table = pa.table(
        {
            "age": [0, 10, 30, 40, None],
            "town": ["a", "b", "c", "c", "c"],
            "place": ["Paris", "Lyon", "Rome", "Kyoto", "Kyoto"],
        }
    )
    release = by_hand(table, {"age": None, "town": None, "place": PLACES}, [0, 0, 1, 1, 1])
    found = release.quality()
    # ages: 10 of 40, and all where one is missing; towns: 2 of 3, and one; places: 2 of 4, and everything
    assert found.by_column == pytest.approx(
        {"age": (2 * 0.25 + 3) / 5, "town": 2 * 0.5 / 5, "place": (2 * (1 / 3) + 3) / 5}
    )
    assert found.ncp == pytest.approx(sum(found.by_column.values()) / 3)
    assert (found.discernibility, found.classes, found.average_class_size, found.smallest_class) == (13, 2, 2.5, 2)
    weighted = by_hand(table, ["age", "town"], [0, 0, 1, 1, 1], weights={"age": 3.0}).quality()
    assert weighted.ncp == pytest.approx((3 * 0.7 + 0.2) / 4)


def test_suppressed_rows_lose_everything():
    table = pa.table({"age": [1, 1, 5, 5]})
    found = by_hand(table, ["age"], [0, 0, -1, -1]).quality()
    assert (found.ncp, found.suppressed, found.discernibility) == (0.5, 0.5, 4 + 2 * 4)
    # each value is one of two equally frequent ones: one bit, of which half is gone
    assert found.entropy_loss == pytest.approx(0.5)
    assert "50% of rows suppressed" in str(found)


def test_a_table_that_is_released_as_it_was_loses_nothing():
    table = pa.table({"age": [1, 1, 5, 5], "town": ["a", "a", None, None]})
    found = mondrian(table, quasi=["age", "town"], k=2).quality()
    assert (found.ncp, found.entropy_loss, found.suppressed, found.classes) == (0, 0, 0, 2)


def test_a_table_that_says_nothing_has_lost_everything():
    table = pa.table({"age": [1, 2, 3, 4], "town": list("abcd"), "place": ["Paris", "Lyon", "Rome", "Kyoto"]})
    found = mondrian(table, quasi={"age": None, "town": None, "place": PLACES}, k=4).quality()
    assert (found.ncp, found.entropy_loss, found.discernibility) == (1, 1, 16)


def test_a_column_with_one_value_has_nothing_to_lose():
    table = pa.table({"age": [7, 7, 7], "town": ["a"] * 3})
    found = by_hand(table, ["age", "town"], [0, 0, -1]).quality()
    assert (found.ncp, found.entropy_loss) == (0, 0)


@examples(20, 60)
@given(st.data(), st.integers(2, 25))
def test_measures_follow_their_definitions_row_by_row(data, rows):
    ages = data.draw(st.lists(st.sampled_from([0, 1, 2, 5, 9, None]), min_size=rows, max_size=rows))
    towns = data.draw(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=rows, max_size=rows))
    places = data.draw(st.lists(st.sampled_from(["Paris", "Lyon", "Rome", "Kyoto"]), min_size=rows, max_size=rows))
    of_row = data.draw(st.lists(st.integers(-1, 3), min_size=rows, max_size=rows))
    named = {old: new for new, old in enumerate(sorted(set(of_row) - {-1}))}
    of_row = [named.get(one, -1) for one in of_row]
    if not named:
        of_row = [0] * rows
    table = pa.table({"age": pa.array(ages, pa.int64()), "town": pa.array(towns, pa.string()), "place": places})
    release = by_hand(table, {"age": None, "town": None, "place": PLACES}, of_row)
    found = release.quality()
    classes = {one: [row for row in range(rows) if of_row[row] == one] for one in set(of_row) - {-1}}
    country = {"Paris": "France", "Lyon": "France", "Rome": "Italy", "Kyoto": "Japan"}

    def stands_for(column, values):
        """Which values of a column are printed for some of them."""
        if column is ages:
            known = [value for value in values if value is not None]
            inside = {v for v in ages if v is not None and known and min(known) <= v <= max(known)}
            return inside | ({None} if None in values else set())
        if column is places and len(set(values)) > 1:
            countries = {country[value] for value in values}
            return {v for v in places if len(countries) > 1 or country[v] in countries}
        return set(values)

    def share(column, values):
        covered, domain = stands_for(column, values), set(column)
        if len(covered) <= 1 or len(domain) <= 1:
            return 0.0
        if column is ages:
            known = [value for value in ages if value is not None]
            return 1.0 if None in covered else (max(covered) - min(covered)) / (max(known) - min(known))
        return (len(covered) - 1) / (len(domain) - 1)

    lost, bits, all_bits = {}, 0.0, 0.0
    for name, column in (("age", ages), ("town", towns), ("place", places)):
        counts = Counter(column)
        total = 0.0
        for row, one in enumerate(of_row):
            all_bits += math.log2(rows / counts[column[row]])
            if one < 0:
                total += 1.0 if len(counts) > 1 else 0.0
                bits += math.log2(rows / counts[column[row]])
                continue
            values = [column[other] for other in classes[one]]
            total += share(column, values)
            bits += math.log2(sum(counts[v] for v in stands_for(column, values)) / counts[column[row]])
        lost[name] = total / rows
    # classes that print the same are one, but cover the same: only their number changes
    assert found.by_column == pytest.approx(lost)
    assert found.entropy_loss == pytest.approx(bits / all_bits if all_bits else 0.0, abs=1e-12)
    sizes = Counter(tuple(cell) for cell in zip(*(c.texts.to_pylist() for c in release.cells), strict=True))
    assert max(sizes.values()) == 1
    assert found.discernibility == sum(int(s) ** 2 for s in release.classes.sizes) + of_row.count(-1) * rows


def learnable(rows=2000, seed=5):
    """A target that follows from age and town, with some noise."""
    rng = np.random.default_rng(seed)
    age = rng.integers(20, 80, rows)
    town = rng.choice(["a", "b", "c"], rows)
    rich = ((age > 50) ^ (rng.random(rows) < 0.1)) & (town != "c")
    wage = pa.array(np.where(rich, "high", "low"))
    return pa.table({"age": age, "town": town, "noise": rng.normal(size=rows), "wage": wage})


def test_a_classifier_learns_less_from_coarser_tables():
    table = learnable()
    quasi = ["age", "town", "noise"]
    found = {
        k: task_utility(mondrian(table, quasi=quasi, sensitive=["wage"], k=k), "wage", original=table)
        for k in (2, 900, 2000)
    }
    majority = found[2].majority
    assert majority == max(Counter(table.column("wage").to_pylist()).values()) / 2000
    assert found[2].original > majority + 0.15
    assert found[2].original == found[900].original == found[2000].original
    assert found[2].released > found[2].original - 0.02
    assert found[2000].released == majority
    assert found[2000].kept == 0
    assert majority <= found[900].released <= found[2].released - 0.05
    assert "trained on the release" in str(found[2])


def test_released_as_it_was_a_table_teaches_the_same():
    table = learnable(400).select(["age", "town", "wage"])
    table = pa.concat_tables([table, table])
    for quasi in (["age", "town"], {"age": Hierarchy.intervals((5, 10)), "town": None}):
        release = mondrian(table, quasi=quasi, sensitive=["wage"], k=2)
        assert release.quality().ncp == 0
        found = task_utility(release, "wage", original=table)
        assert found.released == found.original
        assert found.kept == 1


def test_nothing_to_learn_is_nothing_lost():
    rng = np.random.default_rng(6)
    table = pa.table({"age": rng.integers(0, 9, 600), "wage": rng.integers(0, 2, 600) < 0})
    found = task_utility(mondrian(table, quasi=["age"], sensitive=["wage"], k=50), "wage", original=table)
    assert (found.released, found.original, found.majority, found.kept) == (1, 1, 1, 1)


def test_missing_values_and_many_categories_can_be_learned_from():
    rng = np.random.default_rng(7)
    code = rng.integers(0, 200, 3000)
    age = [None if one % 3 == 0 else int(one) for one in code]
    table = pa.table({"age": age, "code": [f"c{one:03d}" for one in code], "wage": (code % 3 == 0)})
    release = mondrian(table, quasi=["age", "code"], sensitive=["wage"], k=5)
    found = task_utility(release, "wage", original=table)
    assert found.original > 0.95
    assert found.released > 0.9


def test_wrong_tasks_are_explained():
    table = learnable(300)
    release = mondrian(table, quasi=["age"], sensitive=["wage"], insensitive=["noise"], k=5)
    with pytest.raises(InvalidParameter, match="one of 'noise', 'wage'"):
        task_utility(release, "age", original=table)
    with pytest.raises(InvalidParameter, match="at most 100 different values; 'noise' has 300"):
        task_utility(release, "noise", original=table)
    with pytest.raises(InvalidParameter, match="with 300 rows; it has 10"):
        task_utility(release, "wage", original=table.slice(0, 10))
    with pytest.raises(InvalidParameter, match="folds must be at least 2"):
        task_utility(release, "wage", original=table, folds=1)


def test_suppressed_people_are_not_learned_from_but_still_met():
    table = pa.table({"age": [1, 1, 1, 1, 9, 9, 9, 9] * 10, "wage": [0, 0, 0, 0, 1, 1, 1, 1] * 10})
    of_row = [0, 0, 0, 0, -1, -1, -1, -1] * 10
    release = by_hand(table, ["age"], of_row, sensitive=[Attribute(name="wage", role=Role.SENSITIVE)])
    found = task_utility(release, "wage", original=table)
    assert (found.released, found.original) == (0.5, 1.0)
