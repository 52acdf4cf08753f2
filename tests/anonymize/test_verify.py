"""The verifier: releases made by hand pass, and each way of spoiling one is noticed."""

import datetime as dt
import json
import random
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as parquet
import pytest
from hypothesis import given, strategies as st

from dither.anonymize.attributes import Attribute, AxisKind, Role
from dither.anonymize.configuration import Configuration
from dither.anonymize.hierarchy.hierarchies import Hierarchy
from dither.anonymize.models.catalogue import (
    BetaLikeness,
    DeltaDisclosure,
    Distance,
    DistinctDiversity,
    EntropyDiversity,
    KMap,
    Model,
    RecursiveDiversity,
    TCloseness,
)
from dither.anonymize.verifier.findings import Problem
from dither.anonymize.verifier.matching import placed
from dither.anonymize.verifier.parse import Unreadable, members
from dither.anonymize.verifier.verify import verify
from dither.errors import InvalidParameter
from support.sizes import examples

ORIGINAL = pa.table(
    {
        "name": list("ABCDEF"),
        "age": [21, 25, 29, 34, 38, None],
        "town": ["Ulm", "Bonn", "Ulm", "Kiel", "Kiel", "Bonn"],
        "ill": ["flu", "cold", "flu", "cold", "flu", "flu"],
    }
)
RELEASED = pa.table(
    {
        "age": ["21–29"] * 3 + ["{34–38, NULL}"] * 3,
        "town": ["{Bonn, Ulm}"] * 3 + ["{Bonn, Kiel}"] * 3,
        "ill": ["flu", "flu", "cold", "flu", "cold", "flu"],
    }
)
PLAN = Configuration.of(ORIGINAL, quasi=["age", "town"], sensitive=["ill"], k=3)


def problems(found):
    return [finding.problem for finding in found.findings]


def changed(table, column, row, value):
    values = table.column(column).to_pylist()
    values[row] = value
    return table.set_column(table.column_names.index(column), column, pa.array(values))


def column_for(name, texts):
    return RELEASED.set_column(RELEASED.column_names.index(name), name, pa.array(texts))


def test_a_release_made_by_hand_passes():
    found = verify(RELEASED, PLAN, ORIGINAL)
    assert found.good, str(found)
    assert (found.rows, found.classes, found.smallest, found.suppressed) == (6, 2, 3, 0)
    assert "every check passed" in str(found)
    assert verify(RELEASED, PLAN).good


def test_a_release_in_files_passes(tmp_path):
    parquet.write_table(RELEASED, tmp_path / "r.parquet")
    arrow_csv.write_csv(RELEASED, tmp_path / "r.csv")
    arrow_csv.write_csv(ORIGINAL, tmp_path / "o.csv")
    for file in ("r.parquet", "r.csv"):
        assert verify(tmp_path / file, PLAN, tmp_path / "o.csv").good


def test_dictionary_columns_pass():
    coded = pa.table({name: RELEASED.column(name).dictionary_encode() for name in RELEASED.column_names})
    assert verify(coded, PLAN, ORIGINAL).good


def test_a_class_that_is_too_small():
    plan = Configuration.of(ORIGINAL, quasi=["age", "town"], sensitive=["ill"], k=4)
    found = verify(RELEASED, plan)
    assert problems(found) == [Problem.MODEL_VIOLATED]
    assert found.findings[0].count == 2
    assert "2 of 2 classes (6 of 6 rows) violate it" in str(found)


def test_rows_are_grouped_by_text_alone():
    """A hyphen in place of the dash is another text: the class falls apart."""
    found = verify(changed(RELEASED, "age", 0, "21-29"), PLAN)
    assert problems(found) == [Problem.MODEL_VIOLATED]
    assert (found.classes, found.smallest) == (3, 1)


@pytest.mark.parametrize(
    ("column", "texts"),
    [
        ("age", ["21–28"] * 3 + ["{34–38, NULL}"] * 3),
        ("age", ["22–29"] * 3 + ["{34–38, NULL}"] * 3),
        ("age", ["21–29"] * 3 + ["34–38"] * 3),
        ("age", ["{21, 25}"] * 3 + ["{34–38, NULL}"] * 3),
        ("age", ["29–21"] * 3 + ["{34–38, NULL}"] * 3),
        ("town", ["Ulm"] * 3 + ["{Bonn, Kiel}"] * 3),
        ("town", ["{Bonn, Ulm}"] * 3 + ["{Kiel, Ulm}"] * 3),
        ("town", ["{Bonn, Ulm}"] * 3 + [None] * 3),
        ("ill", ["flu", "flu", "flu", "flu", "cold", "flu"]),
        ("ill", ["flu", "flu", "cold", "flu", "cold", "cold"]),
        ("ill", ["flu", "flu", "cold", "flu", "cold", None]),
        ("ill", ["flu", "flu", "cold", "flu", "cold", "plague"]),
    ],
)
def test_untrue_cells_are_noticed(column, texts):
    assert Problem.NOT_FROM_ORIGINAL in problems(verify(column_for(column, texts), PLAN, ORIGINAL))


@pytest.mark.parametrize(
    ("column", "texts"),
    [
        ("age", ["*"] * 6),
        ("age", ["20–30"] * 3 + ["{30–40, NULL}"] * 3),
        ("age", ["{21, 25–29}"] * 3 + ["{34, 38, NULL}"] * 3),
        ("age", ["21.0–29.0".replace(".0", "")] * 3 + ["*"] * 3),
        ("town", ['{"Bonn", Ulm, Oslo}'] * 3 + ["*"] * 3),
    ],
)
def test_true_but_wider_cells_pass(column, texts):
    found = verify(column_for(column, texts), PLAN, ORIGINAL)
    assert found.good, str(found)


def test_swapping_between_classes_is_noticed():
    """The multiset of the whole column is unchanged, that of each class isn't."""
    swapped = column_for("ill", ["flu", "flu", "flu", "cold", "cold", "flu"])
    assert problems(verify(swapped, PLAN, ORIGINAL)) == [Problem.NOT_FROM_ORIGINAL]


def test_rows_that_were_never_there():
    found = verify(pa.concat_tables([RELEASED, RELEASED.slice(0, 1)]), PLAN, ORIGINAL)
    assert problems(found) == [Problem.TOO_MANY_ROWS, Problem.NOT_FROM_ORIGINAL]
    twice = pa.concat_tables([RELEASED.slice(0, 3), RELEASED.slice(0, 3)])
    assert problems(verify(twice, PLAN, ORIGINAL)) == [Problem.NOT_FROM_ORIGINAL]


def test_rows_left_out_count_as_suppressed():
    found = verify(RELEASED.slice(0, 3), PLAN, ORIGINAL)
    assert problems(found) == [Problem.TOO_MANY_SUPPRESSED]
    assert found.suppressed == 3
    allowed = Configuration.of(ORIGINAL, quasi=["age", "town"], sensitive=["ill"], k=3, suppression="1/2")
    assert verify(RELEASED.slice(0, 3), allowed, ORIGINAL).good
    assert not verify(RELEASED.slice(0, 0), allowed, ORIGINAL).good
    whole = Configuration.of(ORIGINAL, quasi=["age", "town"], sensitive=["ill"], k=3, suppression=1)
    assert verify(RELEASED.slice(0, 0), whole, ORIGINAL).good


def test_rows_of_stars_are_suppressed_only_if_they_tell_nothing():
    stars = pa.table({"age": ["*"], "town": ["*"], "ill": pa.array([None], pa.string())})
    starred = pa.concat_tables([RELEASED.slice(0, 5), stars])
    plan = Configuration.of(quasi=["age", "town"], sensitive=["ill"], k=2, suppression="1/5")
    found = verify(starred, plan, ORIGINAL)
    assert found.good, str(found)
    assert (found.suppressed, found.classes) == (1, 2)
    telling = changed(starred, "ill", 5, "flu")
    assert problems(verify(telling, plan, ORIGINAL)) == [Problem.MODEL_VIOLATED]
    strict = Configuration.of(quasi=["age", "town"], sensitive=["ill"], k=2, suppression="1/7")
    assert problems(verify(starred, strict, ORIGINAL)) == [Problem.TOO_MANY_SUPPRESSED]


def test_columns_too_many_and_too_few():
    with_name = RELEASED.append_column("name", ORIGINAL.column("name"))
    assert problems(verify(with_name, PLAN)) == [Problem.IDENTIFYING_COLUMN]
    with_other = RELEASED.append_column("row", pa.array(range(6)))
    assert problems(verify(with_other, PLAN)) == [Problem.UNKNOWN_COLUMN]
    found = verify(RELEASED.drop_columns(["town", "ill"]), PLAN)
    assert problems(found) == [Problem.COLUMN_MISSING, Problem.COLUMN_MISSING]
    assert [finding.column for finding in found.findings] == ["town", "ill"]
    with pytest.raises(InvalidParameter, match="the original has no column 'town'"):
        verify(RELEASED, PLAN, ORIGINAL.drop_columns(["town"]))


def test_ends_of_ranges_belong_to_what_is_printed():
    good = RELEASED.append_column("age_low", pa.array([21] * 3 + [34] * 3)).append_column(
        "age_high", pa.array([29] * 3 + [38] * 3)
    )
    assert verify(good, PLAN, ORIGINAL).good
    telling = changed(good, "age_low", 0, 20)
    assert problems(verify(telling, PLAN, ORIGINAL)) == [Problem.MODEL_VIOLATED]
    untrue = good.set_column(3, "age_low", pa.array([22] * 3 + [34] * 3))
    assert problems(verify(untrue, PLAN, ORIGINAL)) == [Problem.NOT_FROM_ORIGINAL]


def test_hierarchies_are_the_only_words():
    towns = Hierarchy.from_mapping({"Ulm": "south", "Bonn": "west", "Kiel": "north"})
    ages = Hierarchy.intervals((10, 20))
    plan = Configuration.of(ORIGINAL, quasi={"age": ages, "town": towns}, sensitive=["ill"], k=2)
    released = pa.table(
        {
            "age": ["20–29", "20–29", "*", "*", "30–39", "30–39"],
            "town": ["south", "south", "west", "west", "Kiel", "Kiel"],
            "ill": ["flu", "flu", "cold", "flu", "cold", "flu"],
        }
    )
    found = verify(released, plan, ORIGINAL)
    assert found.good, str(found)
    for column, value, original in (("town", "{Kiel}", None), ("town", "east", ORIGINAL), ("age", "20–30", ORIGINAL)):
        spoilt = changed(changed(released, column, 4, value), column, 5, value)
        assert Problem.NOT_IN_HIERARCHY in problems(verify(spoilt, plan, original))
    wrong = changed(changed(released, "town", 4, "south"), "town", 5, "south")
    assert problems(verify(wrong, plan, ORIGINAL)) == [Problem.NOT_FROM_ORIGINAL]


def test_overlapping_classes_are_matched_as_a_whole():
    """Each row fits two classes; whether all find a place is a question of matching, not of counting."""
    original = pa.table({"x": [1, 2, 2, 3], "s": ["a", "b", "b", "a"]})
    plan = Configuration.of(original, quasi=["x"], sensitive=["s"], k=2)
    good = pa.table({"x": ["1–2"] * 2 + ["2–3"] * 2, "s": ["a", "b", "a", "b"]})
    assert verify(good, plan, original).good
    # three rows within 1–2 with two b's and one a, and one more b: only two b's were there
    bad = pa.table({"x": ["1–2"] * 2 + ["2–3"] * 2, "s": ["b", "b", "b", "a"]})
    assert problems(verify(bad, plan, original)) == [Problem.NOT_FROM_ORIGINAL]
    crowded = pa.table({"x": ["1–2"] * 4, "s": ["a", "b", "b", "a"]})
    found = verify(crowded, plan, original)
    assert found.findings[0].count == 1


def test_placing_is_a_maximum_flow():
    # two originals that fit sorts {0, 1} and {0}: a greedy choice of 0 for the first would strand the second
    assert placed(np.array([0, 0, 1]), np.array([0, 1, 0]), np.array([1, 1]), np.array([1, 1])) == 2
    assert placed(np.array([0, 0, 1]), np.array([0, 1, 0]), np.array([1, 1]), np.array([1, 0])) == 1
    assert placed(np.array([0, 1]), np.array([0, 0]), np.array([3, 4]), np.array([5])) == 5
    assert placed(np.zeros(0, int), np.zeros(0, int), np.array([1]), np.array([1])) == 0


DATES = [dt.date(2020, 1, 31), dt.date(2021, 5, 1)]
VALUES = [
    (DATES, "2020-01-31–2021-05-01"),
    (pa.array([5, 9], pa.timestamp("ns")), "1970-01-01 00:00:00–1970-01-01 00:00:01"),
    (pa.array([5, 9], pa.timestamp("s", tz="Europe/Paris")), "1970-01-01 01:00:05+0100–1970-01-01 01:00:09+0100"),
    (pa.array([5, 9], pa.time32("s")), "00:00:05–00:00:09"),
    (pa.array([5, 9], pa.duration("s")), "5–9"),
    ([Decimal("1.50"), Decimal("2.25")], "1.5–2.25"),
    ([-5.5, -3.25], "-5.5–-3.25"),
    (pa.array([0.1, 0.2], pa.float32()), "0.1–0.2"),
    ([True, False], "{false, true}"),
    (["a–b", "{c}"], '{"a–b", "{c}"}'),
    (["", "*"], '{"", "*"}'),
    ([" a", "b, c"], '{" a", "b, c"}'),
    (["NULL", "x"], '{"NULL", x}'),
]


@pytest.mark.parametrize(("values", "text"), VALUES, ids=[text for _, text in VALUES])
def test_every_type_is_read_back(values, text):
    original = pa.table({"x": values})
    plan = Configuration.of(original, quasi=["x"], k=2)
    assert verify(pa.table({"x": [text] * 2}), plan, original).good
    other = pa.table({"x": pa.concat_arrays([original.column("x").combine_chunks()[:1]] * 2)})
    spoilt = verify(pa.table({"x": [text] * 2}), plan, other)
    assert spoilt.good, "a cell that stands for more is true"
    missing = pa.table({"x": pa.array([None, None], original.column("x").type)})
    assert problems(verify(pa.table({"x": [text] * 2}), plan, missing)) == [Problem.NOT_FROM_ORIGINAL]


def test_ordered_text_has_ranges():
    original = pa.table({"x": ["low", "mid", "high"]})
    grade = Attribute(name="x", role=Role.QUASI, order=("low", "mid", "high"))
    plan = Configuration.of(original, quasi=[grade], k=3)
    assert verify(pa.table({"x": ["low–high"] * 3}), plan, original).good
    assert not verify(pa.table({"x": ["low–mid"] * 3}), plan, original).good
    assert not verify(pa.table({"x": ["low–top"] * 3}), plan, original).good
    unordered = Configuration.of(original, quasi=["x"], k=3)
    assert problems(verify(pa.table({"x": ["high–mid"] * 3}), unordered, original)) == [Problem.NOT_FROM_ORIGINAL] * 2


def test_members_of_cells():
    assert members('"20–29"') == [("20–29", "20–29")]
    assert members('{"a, b", NULL, "NULL", 1–2}') == [("a, b", "a, b"), None, ("NULL", "NULL"), ("1", "2")]
    assert members("NULL") == [("NULL", "NULL")]
    assert members("{}") == [("{}", "{}")]
    for text in ("{a,b}", "{a", '"a', "1–2–3", "–", "{a, }", '"a"b', "{, a}"):
        try:
            assert members(text) == [(text, text)]
        except Unreadable:
            continue


def test_nested_insensitive_columns_are_compared():
    original = ORIGINAL.append_column("tags", pa.array([[1], [2], [3], [4], [5], None]))
    plan = Configuration.of(original, quasi=["age", "town"], sensitive=["ill"], insensitive=["tags"], k=3)
    order = [0, 2, 1, 4, 3, 5]
    released = RELEASED.append_column("tags", original.column("tags").take(pa.array(order)))
    assert verify(released, plan, original).good
    assert not verify(released.set_column(3, "tags", original.column("tags")), plan, original).good


@pytest.mark.parametrize(
    ("model", "good", "bad"),
    [
        (DistinctDiversity(2, "s"), "abab", "aabb"),
        (EntropyDiversity(2, "s"), "abab", "aabb"),
        (RecursiveDiversity(2, 2, "s"), "abab", "aabb"),
        (TCloseness("1/4", "s"), "abab", "aabb"),
        (TCloseness("1/3", "s", Distance.ORDERED), "abba", "aacc"),
        (TCloseness("1/4", "s", Distance.HIERARCHICAL), "abab", "aacc"),
        (DeltaDisclosure("0.5", "s"), "abab", "aabb"),
        (BetaLikeness("0.9", "s"), "abab", "aabb"),
    ],
)
def test_models_are_recomputed(model: Model, good, bad):
    tree = Hierarchy.from_mapping({"a": "x", "b": "x", "c": "y"})
    kind = {"order": ("a", "b", "c"), "kind": AxisKind.ORDERED} if "ordered" in model.sentence() else {}
    sensitive = Attribute(name="s", role=Role.SENSITIVE, hierarchy=tree, **kind)
    plan = Configuration.of(quasi=["x"], sensitive=[sensitive], models=(model,))
    for letters, fine in ((good, True), (bad, False)):
        released = pa.table({"x": ["1–2"] * 2 + ["3–4"] * 2, "s": list(letters)})
        original = pa.table({"x": [1, 2, 3, 4], "s": list(letters)})
        assert verify(released, plan).good is fine
        assert problems(verify(released, plan, original)) == ([] if fine else [Problem.MODEL_VIOLATED])


def test_classes_are_compared_with_the_original_where_it_is_there():
    """Suppressing all of one illness would make the rest look like the whole."""
    original = pa.table({"x": [1, 1, 2, 2], "s": ["a", "a", "b", "b"]})
    released = pa.table({"x": ["1", "1"], "s": ["a", "a"]})
    plan = Configuration.of(original, quasi=["x"], sensitive=["s"], models=(TCloseness("0.1", "s"),), suppression="1/2")
    alone = verify(released, plan)
    assert alone.good
    assert "compared with the released rows" in alone.notes[0]
    assert problems(verify(released, plan, original)) == [Problem.MODEL_VIOLATED]


def test_k_map_counts_everybody_who_fits():
    people = pa.table({"age": [20, 24, 28, 31, 39, None], "town": ["Ulm", "Bonn", "Kiel", "Kiel", "Kiel", "Bonn"]})
    plan = Configuration.of(ORIGINAL, quasi=["age", "town"], sensitive=["ill"], models=(KMap(1, people),))
    assert verify(RELEASED, plan, ORIGINAL).good
    more = Configuration.of(ORIGINAL, quasi=["age", "town"], sensitive=["ill"], models=(KMap(2, people),))
    found = verify(RELEASED, more, ORIGINAL)
    assert problems(found) == [Problem.MODEL_VIOLATED]
    assert found.findings[0].count == 2
    counted = people.append_column("n", pa.array([9, 2, 9, 9, 9, 2]))
    weighed = KMap(2, counted, count="n")
    assert verify(RELEASED, Configuration.of(quasi=["age", "town"], sensitive=["ill"], models=(weighed,))).good


def _quoted(text):
    return json.dumps(text, ensure_ascii=False) if not text or any(mark in text for mark in '*{},"– ') else text


def _release(rows, cuts, chance):
    """Classes by thresholds of x; ranges of x and sets of y, printed by hand."""
    classes = {}
    for x, y, s in rows:
        classes.setdefault(sum(x is None or x > cut for cut in cuts), []).append((x, y, s))
    out = []
    for members_ in classes.values():
        xs = sorted({x for x, _, _ in members_ if x is not None})
        ends = (f"{xs[0]}–{xs[-1]}" if len(xs) > 1 else str(xs[0])) if xs else None
        missing = any(x is None for x, _, _ in members_)
        cell = "*" if ends is None else "{" + ends + ", NULL}" if missing else ends
        names = sorted({y for _, y, _ in members_})
        out += [(cell, "{" + ", ".join(map(_quoted, names)) + "}", s) for _, _, s in members_]
    chance.shuffle(out)
    return out, min(map(len, classes.values()))


rows_ = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(-9, 9)),
        st.sampled_from(["a", "b, c", "–", "{d}", "*", ""]),
        st.sampled_from("pqr"),
    ),
    min_size=1,
    max_size=25,
)


@examples(26, 80)
@given(rows_, st.lists(st.integers(-9, 9), max_size=3), st.integers(0, 2**32))
def test_honest_releases_pass_and_spoilt_ones_do_not(rows, cuts, seed):
    chance = random.Random(seed)
    released, smallest = _release(rows, cuts, chance)
    names = ("x", "y", "s")
    types = (pa.int64(), pa.string(), pa.string())
    original = pa.table({n: pa.array([row[i] for row in rows], types[i]) for i, n in enumerate(names)})
    table = pa.table({n: pa.array([row[i] for row in released], pa.string()) for i, n in enumerate(names)})
    size = max(2, smallest)
    plan = Configuration.of(quasi=["x", "y"], sensitive=["s"], k=size)
    found = verify(table, plan, original)
    assert problems(found) == ([] if smallest >= size else [Problem.MODEL_VIOLATED]), str(found)
    row = chance.randrange(len(rows))
    counts = {letter: sum(r[2] == letter for r in rows) for letter in "pqr"}
    other = next(letter for letter in "pqrz" if letter != released[row][2])
    assert counts.get(other, 0) <= len(rows)
    spoilt = verify(changed(table, "s", row, other), plan, original)
    assert Problem.NOT_FROM_ORIGINAL in problems(spoilt)
    outside = verify(changed(table, "x", row, "100–200"), plan, original)
    assert Problem.NOT_FROM_ORIGINAL in problems(outside)
