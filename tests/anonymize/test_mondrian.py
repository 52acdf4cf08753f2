"""Mondrian: exact small cases, a plain recursive version as an oracle, and the verifier on random tables."""

import datetime as dt
import json
import math
from dataclasses import replace
from fractions import Fraction
from importlib import import_module

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from dither.anonymize.attributes import Attribute, AxisKind, Role
from dither.anonymize.configuration import Configuration
from dither.anonymize.encoding import encode
from dither.anonymize.hierarchy.hierarchies import Hierarchy
from dither.anonymize.models.catalogue import (
    BetaLikeness,
    DeltaDisclosure,
    Distance,
    DistinctDiversity,
    EntropyDiversity,
    KMap,
    RecursiveDiversity,
    TCloseness,
)
from dither.anonymize.partition import splits as cutting
from dither.anonymize.partition.mondrian import mondrian
from dither.anonymize.releases.quasi_identifier_axis import Axis
from dither.anonymize.table.values import plain
from dither.anonymize.verifier.verify import verify
from dither.errors import InvalidParameter
from support.sizes import examples

# the package has a function of that name
module = import_module("dither.anonymize.partition.mondrian")

PLACES = Hierarchy.from_mapping(
    {
        "Paris": ("France", "Europe"),
        "Lyon": ("France", "Europe"),
        "Rome": ("Italy", "Europe"),
        "Kyoto": ("Japan", "Asia"),
        "Osaka": ("Japan", "Asia"),
    }
)
ORDER = ("low", "mid", "high")

# every kind of quasi-identifier, with the values that are easily got wrong
POOLS = {
    "number": (pa.int64(), [-5, -3, 0, 1, 2, 3, 40, 2**62, None], Attribute(name="number", role=Role.QUASI)),
    "float": (
        pa.float64(),
        [-math.inf, -1e300, -0.0, 0.0, 1e-9, 1.5, 2.5, math.inf, math.nan, None],
        Attribute(name="float", role=Role.QUASI),
    ),
    "day": (
        pa.date32(),
        [dt.date(1969, 12, 31), dt.date(2001, 1, 1), dt.date(2001, 1, 2), dt.date(2001, 12, 31), None],
        Attribute(name="day", role=Role.QUASI),
    ),
    "text": (
        pa.string(),
        ["", "*", "NULL", "{a}", "a, b", "a", "b", "a–b", '"q"', " x", "x ", "ü", "null", "a\nb", None],
        Attribute(name="text", role=Role.QUASI),
    ),
    "flag": (pa.bool_(), [True, False, None], Attribute(name="flag", role=Role.QUASI)),
    "grade": (pa.string(), [*ORDER, None], Attribute(name="grade", role=Role.QUASI, order=ORDER)),
    "place": (
        pa.string(),
        ["Paris", "Lyon", "Rome", "Kyoto", "Osaka", None],
        Attribute(name="place", role=Role.QUASI, hierarchy=PLACES),
    ),
    "age": (
        pa.int32(),
        [0, 4, 5, 9, 10, 19, 20, 33, None],
        Attribute(name="age", role=Role.QUASI, hierarchy=Hierarchy.intervals((5, 10, 20))),
    ),
}


@st.composite
def tables(draw, least=2, most=40):
    rows = draw(st.integers(least, most))
    names = draw(st.lists(st.sampled_from(sorted(POOLS)), min_size=1, max_size=4, unique=True))
    columns = {}
    for name in names:
        kind, pool, _ = POOLS[name]
        few = draw(st.lists(st.sampled_from(pool), min_size=1, max_size=6))
        columns[name] = pa.array(draw(st.lists(st.sampled_from(few), min_size=rows, max_size=rows)), kind)
    ill = draw(st.lists(st.sampled_from(["flu", "cold", "well", None]), min_size=rows, max_size=rows))
    columns["ill"] = pa.array(ill, pa.string())
    columns["wage"] = pa.array(draw(st.lists(st.integers(0, 3), min_size=rows, max_size=rows)))
    columns["name"] = pa.array([f"person {row}" for row in range(rows)])
    return pa.table(columns), [POOLS[name][2] for name in names]


def members(text):
    """The members of a printed set, read by hand."""
    found, rest = [], text[1:-1]
    reader = json.JSONDecoder()
    while rest:
        if rest[0] == '"':
            value, end = reader.raw_decode(rest)
            found.append(value)
        else:
            end = rest.find(", ")
            end = len(rest) if end < 0 else end
            found.append(None if rest[:end] == "NULL" else rest[:end])
        rest = rest[end + 2 :]
    return found


def stands_for(text, value, attribute, kind):
    """Whether a printed cell stands for a value, by the grammar of the release alone."""
    if isinstance(value, float) and math.isnan(value):
        value = None
    if attribute.hierarchy is not None:
        own = pa.array([value], kind)
        return text in [attribute.hierarchy.level_codes(h, own)[1][0] for h in range(attribute.hierarchy.height + 1)]
    if value is None:
        return text is None or (text.startswith("{") and text.endswith(("NULL}",)))
    if text is None:
        return False
    spelled = plain(pa.array([value], kind)).to_pylist()[0]
    if attribute.order is None and kind in (pa.string(), pa.bool_()):
        if text.startswith("{"):
            return spelled in members(text)
        return spelled == (json.loads(text) if text.startswith('"') else text)
    if text.startswith("{"):
        assert text.endswith(", NULL}")
        text = text[1 : -len(", NULL}")]
    low, _, high = text.partition("–")
    if attribute.order is not None:
        read = ORDER.index
    elif kind == pa.date32():
        read = dt.date.fromisoformat
    else:
        read = float if kind == pa.float64() else int
    exact = read(spelled) if attribute.order is not None else value
    return read(low) <= exact <= read(high or low)


def expect_true(release, table):
    """The verifier finds nothing, and every printed cell stands for the value of the very row it was printed for."""
    found = verify(release.table, release.configuration, table)
    assert not found.findings, str(found)
    assert release.table.num_rows == table.num_rows == np.unique(release.rows).size
    for attribute in release.configuration.quasi:
        printed = release.table.column(attribute.name).cast(pa.string()).to_pylist()
        column = table.column(attribute.name)
        exact = column.take(pa.array(release.rows)).to_pylist()
        wrong = [
            (text, value)
            for text, value in zip(printed, exact, strict=True)
            if not stands_for(text, value, attribute, column.type)
        ]
        assert not wrong


@examples(50, 150)
@given(tables(), st.integers(2, 12), st.booleans())
def test_every_release_satisfies_k_and_tells_the_truth(made, k, strict):
    table, quasi = made
    k = min(k, table.num_rows)
    release = mondrian(table, quasi=quasi, sensitive=["ill"], insensitive=["wage"], k=k, strict=strict)
    assert release.table.column_names == [*(attribute.name for attribute in quasi), "ill", "wage"]
    assert release.classes.sizes.min() >= k
    expect_true(release, table)


MODELS = [
    DistinctDiversity(2, "ill"),
    EntropyDiversity(Fraction(3, 2), "ill"),
    RecursiveDiversity(3, 2, "ill"),
    TCloseness(Fraction(1, 4), "ill"),
    TCloseness(Fraction(1, 5), "wage", Distance.ORDERED),
    DeltaDisclosure(2, "ill"),
    BetaLikeness(1, "ill"),
]


@examples(40, 120)
@given(tables(6), st.sets(st.sampled_from(range(len(MODELS))), min_size=1, max_size=2), st.booleans())
def test_every_release_satisfies_the_other_models(made, chosen, strict):
    table, quasi = made
    configuration = Configuration.of(
        table, quasi=quasi, sensitive=["ill", "wage"], k=2, models=[MODELS[place] for place in sorted(chosen)]
    )
    whole = {attribute.name: ["*"] * table.num_rows for attribute in quasi}
    one = pa.table({**whole, "ill": table.column("ill"), "wage": table.column("wage")})
    if verify(one, configuration).findings:
        with pytest.raises(InvalidParameter, match="no release can satisfy"):
            mondrian(table, configuration, strict=strict)
    else:
        expect_true(mondrian(table, configuration, strict=strict), table)


@examples(20, 40)
@given(tables(4), st.integers(2, 6))
def test_k_map_counts_people_of_the_population(made, k):
    table, quasi = made
    names = [attribute.name for attribute in quasi]
    population = pa.concat_tables([table.select(names)] * k)
    release = mondrian(table, quasi=quasi, sensitive=["ill"], models=[KMap(k, population)])
    # everybody has k doubles in the population, so that nothing needs to be hidden
    assert release.quality().ncp == 0
    expect_true(release, table)


@examples(20, 60)
@given(tables(2, 25), st.integers(2, 5), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_show(made, k, random):
    table, quasi = made
    k = min(k, table.num_rows)
    order = list(range(table.num_rows))
    random.shuffle(order)
    asked = {"quasi": quasi, "sensitive": ["ill"], "insensitive": ["wage"], "k": k}
    one, other = mondrian(table, **asked), mondrian(table.take(pa.array(order)), **asked)
    assert one.table.equals(other.table)


def plain_mondrian(columns, k):
    """Strict Mondrian on lists of whole numbers, one part at a time, as it is written in the paper."""
    spans = [max(column) - min(column) for column in columns]

    def cut(part):
        widths = [
            (max(column[row] for row in part) - min(column[row] for row in part)) / span if span else 0
            for column, span in zip(columns, spans, strict=True)
        ]
        for axis in sorted(range(len(columns)), key=lambda axis: -widths[axis]):
            if not widths[axis]:
                continue
            values = sorted(columns[axis][row] for row in part)
            median = values[max(len(part) // 2, 1) - 1]
            under = [row for row in part if columns[axis][row] < median]
            upto = [row for row in part if columns[axis][row] <= median]
            half = len(part) // 2
            for left in sorted((upto, under), key=lambda left: abs(len(left) - half)):
                if len(left) >= k and len(part) - len(left) >= k:
                    chosen = set(left)
                    return cut(left) + cut([row for row in part if row not in chosen])
        return [frozenset(part)]

    return set(cut(list(range(len(columns[0])))))


@examples(33, 100)
@given(st.data(), st.integers(1, 3), st.integers(1, 6), st.integers(2, 60))
def test_the_classes_are_those_of_the_plain_algorithm(data, width, k, rows):
    if k == 1:
        k = 2
    k = min(k, rows)
    top = data.draw(st.sampled_from([1, 3, 10, 1000]))
    columns = [data.draw(st.lists(st.integers(0, top), min_size=rows, max_size=rows)) for _ in range(width)]
    table = pa.table({f"q{place}": column for place, column in enumerate(columns)} | {"s": [0] * rows})
    release = mondrian(table, quasi=table.column_names[:-1], sensitive=["s"], k=k)
    got = {frozenset(np.flatnonzero(release.classes.of_row == one).tolist()) for one in range(release.classes.number)}
    assert got == plain_mondrian(columns, k)


def ages(values, **others):
    return pa.table({"age": values, **others})


def printed(release, column):
    return release.table.column(column).cast(pa.string()).to_pylist()


def test_equal_values_stay_together_in_strict_cuts_and_not_in_relaxed_ones():
    table = ages([30, 40, 40, 40, 40, 50])
    assert printed(mondrian(table, quasi=["age"], k=3), "age") == ["30–50"] * 6
    assert printed(mondrian(table, quasi=["age"], k=3, strict=False), "age") == ["30–40"] * 3 + ["40–50"] * 3


def test_relaxed_classes_are_small_unless_their_rows_are_all_alike():
    rng = np.random.default_rng(1)
    table = pa.table({"a": rng.integers(0, 4, 500), "b": rng.choice(list("xyz"), 500)})
    release = mondrian(table, quasi=["a", "b"], k=7, strict=False)
    alike = np.all([one.shares == 0 for one in release.cells], axis=0)
    assert ((release.classes.sizes < 14) | alike).all()
    assert release.quality().ncp <= mondrian(table, quasi=["a", "b"], k=7).quality().ncp


def test_missing_values_are_cut_off_first():
    table = ages([1, 2, 3, 4, None, None])
    assert printed(mondrian(table, quasi=["age"], k=2), "age") == ["1–2", "1–2", "3–4", "3–4", None, None]
    # alone it would be too small a class
    assert printed(mondrian(ages([1, 2, 3, None]), quasi=["age"], k=2), "age") == ["1–2", "1–2"] + ["{3, NULL}"] * 2
    assert printed(mondrian(ages([1, 2, 3, None]), quasi=["age"], k=3), "age") == ["{1–3, NULL}"] * 4
    assert printed(mondrian(ages(pa.array([None] * 3, pa.int32())), quasi=["age"], k=2), "age") == [None] * 3


def test_a_hierarchy_is_cut_along_its_children():
    towns = ["Paris", "Lyon", "Rome", "Rome", "Kyoto", "Osaka", "Osaka"]
    table = pa.table({"place": towns})
    assert sorted(printed(mondrian(table, quasi={"place": PLACES}, k=2), "place")) == (
        ["France"] * 2 + ["Japan"] * 3 + ["Rome"] * 2
    )
    assert sorted(printed(mondrian(table, quasi={"place": PLACES}, k=3), "place")) == ["Europe"] * 4 + ["Japan"] * 3
    assert printed(mondrian(table, quasi={"place": PLACES}, k=5), "place") == ["*"] * 7


def test_one_child_is_cut_off_where_the_others_are_too_few_to_stand_alone():
    towns = ["Paris"] * 2 + ["Rome"] * 6 + ["Kyoto"] * 2
    flat = Hierarchy.from_mapping(dict.fromkeys(("Paris", "Rome", "Kyoto"), ()))
    for asked in ({"place": flat}, ["place"]):
        found = sorted(printed(mondrian(pa.table({"place": towns}), quasi=asked, k=4), "place"))
        rest = "*" if asked == {"place": flat} else "{Kyoto, Paris}"
        assert found == sorted([rest] * 4 + ["Rome"] * 6)


def test_a_subset_is_cut_along_a_hierarchy_that_the_whole_could_not_be_cut_along():
    table = pa.table({"place": ["Kyoto", "Paris", "Paris", "Paris", "Rome", "Rome"], "age": [0, 0, 1, 1, 1, 1]})
    release = mondrian(table, quasi={"place": PLACES, "age": None}, k=2)
    assert sorted(zip(printed(release, "place"), printed(release, "age"), strict=True)) == [
        *[("*", "0")] * 2,
        *[("Paris", "1")] * 2,
        *[("Rome", "1")] * 2,
    ]


def test_a_subset_is_cut_where_the_whole_would_not_have_been_diverse():
    table = pa.table({"a": [1, 0, 0, 2, 0, 2, 2, 0, 2], "b": [2, 2, 0, 1, 0, 2, 2, 1, 2], "ill": list("yxxyxxzxy")})
    release = mondrian(table, quasi=["a", "b"], sensitive=["ill"], models=[DistinctDiversity(2, "ill")])
    found = set(zip(printed(release, "a"), printed(release, "b"), strict=True))
    assert found == {("0–1", "2"), ("0–2", "0–1"), ("2", "2")}


def test_a_child_that_cannot_be_cut_off_stays_in_its_place():
    flat = Hierarchy.from_mapping(dict.fromkeys("abcd", ()))
    table = pa.table({"place": list("cdcdaa"), "ill": list("yzyzzy")})
    release = mondrian(table, quasi={"place": flat}, sensitive=["ill"], models=[DistinctDiversity(2, "ill")])
    # c alone isn't diverse; a is, and so are c and d together
    assert sorted(printed(release, "place")) == ["*"] * 4 + ["a"] * 2


def test_the_heavier_weight_is_cut_first_and_weight_nought_last():
    table = pa.table({"a": [0, 0, 1, 1], "b": [0, 1, 0, 1]})
    for weights, kept in (({"a": 2.0}, "a"), ({"b": 2.0}, "b"), ({"a": 0.0}, "b")):
        release = mondrian(table, quasi=["a", "b"], k=2, weights=weights)
        assert release.quality().by_column[kept] == 0
        assert release.quality().classes == 2
    only = mondrian(table, quasi=["a"], k=2, weights={"a": 0.0})
    assert only.quality().by_column["a"] == 0


def test_values_that_floats_cannot_tell_apart_are_still_cut():
    table = ages([2**62, 2**62 + 1, 2**62 + 2, 2**62 + 3, 0, 0, 0, 0])
    assert mondrian(table, quasi=["age"], k=2).classes.number == 3


def test_the_whole_table_is_one_class_if_k_is_its_size():
    release = mondrian(ages([1, 2, 3]), quasi=["age"], k=3)
    assert printed(release, "age") == ["1–3"] * 3
    assert release.how == "mondrian strict"


def test_wrong_requests_are_explained():
    table = ages([1, 2, 3], ill=["a", "a", "a"])
    with pytest.raises(InvalidParameter, match="at least 4 rows, and the table has 3"):
        mondrian(table, quasi=["age"], k=4)
    with pytest.raises(InvalidParameter, match="there is no column 'town'"):
        mondrian(table, quasi=["town"], k=2)
    with pytest.raises(InvalidParameter, match="no release can satisfy distinct l-diversity"):
        mondrian(table, quasi=["age"], sensitive=["ill"], models=[DistinctDiversity(2, "ill")])
    configuration = Configuration.of(table, quasi=["age"], k=2)
    with pytest.raises(InvalidParameter, match="not both"):
        mondrian(table, configuration, k=2)
    with pytest.raises(InvalidParameter, match="the table has 'other'"):
        mondrian(pa.table({"other": [1]}), configuration)


def wide(rows=3000):
    rng = np.random.default_rng(2)
    return pa.table(
        {
            "a": rng.normal(size=rows),
            "b": rng.integers(0, 50, rows),
            "c": rng.choice(["u", "v", "w", "x"], rows, p=[0.7, 0.1, 0.1, 0.1]),
            "d": rng.choice(["Paris", "Lyon", "Rome", "Kyoto"], rows),
            "s": rng.integers(0, 5, rows),
        }
    )


ASKED = {"quasi": {"a": None, "b": None, "c": None, "d": PLACES}, "sensitive": ["s"], "k": 5}


def test_keys_that_do_not_fit_a_word_are_sorted_another_way(monkeypatch):
    table = wide(800)
    expected = mondrian(table, **ASKED)
    start = cutting._Partition.__init__

    def with_many_rows(self, points, watch):
        start(self, points, watch)
        self.row_bits = np.uint64(60)

    monkeypatch.setattr(cutting._Partition, "__init__", with_many_rows)
    assert mondrian(table, **ASKED).table.equals(expected.table)


def test_categories_are_counted_alike_in_words_and_by_sorting():
    rng = np.random.default_rng(3)
    for size in (2, 63, 64, 65, 200, 300):
        codes = np.concatenate((np.arange(size), rng.integers(0, size, 2000)))
        table = pa.table({"c": [f"{code:04d}" for code in codes]})
        attribute = Attribute(name="c", role=Role.QUASI, kind=AxisKind.CATEGORY)
        axis = Axis.of(encode(table, attribute), attribute)
        starts = np.concatenate(([0], np.sort(rng.choice(np.arange(1, codes.size), 30, replace=False))))
        ends = np.append(starts[1:], codes.size)
        expected = [len(set(axis.positions[a:b].tolist())) for a, b in zip(starts, ends, strict=True)]
        assert axis.distinct(axis.positions, starts).tolist() == expected
        part, _ = axis.members(axis.positions, starts)
        assert np.bincount(part).tolist() == expected


def test_progress_rises_to_the_end_and_work_can_be_stopped():
    table = wide()
    seen = []
    mondrian(table, **ASKED, watch=lambda share, doing: seen.append(share))
    assert seen == sorted(seen)
    assert seen[0] == 0.0
    assert seen[-1] == 1.0
    assert len(seen) > 8
    # told along the way, not at the end only
    assert any(0.3 < share < 0.7 for share in seen)

    def stop(share, doing):
        if share > 0.2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mondrian(table, **ASKED, watch=stop)


def test_a_release_that_went_wrong_is_noticed(monkeypatch):
    """Mutants: cuts that leave too few rows, and rows in a class that doesn't stand for them."""
    table = wide(400)
    real = cutting.partition
    monkeypatch.setattr(module, "partition", lambda points, watch: real(replace(points, least=points.least - 1), watch))
    with pytest.raises(InvalidParameter, match="found no release that satisfies k-anonymity"):
        mondrian(table, **ASKED)
    monkeypatch.undo()
    release = mondrian(table, **ASKED)
    spoiled = release.table.set_column(0, "a", pa.array(printed(release, "a")[::-1]))
    assert verify(release.table, release.configuration, table).findings == ()
    assert verify(spoiled, release.configuration, table).findings


@pytest.mark.parametrize("strict", [True, False])
def test_threads_change_nothing_but_the_time(strict):
    table = wide()
    alone = mondrian(table, **ASKED, strict=strict, workers=1)
    for workers in (2, 3, 16):
        together = mondrian(table, **ASKED, strict=strict, workers=workers)
        assert together.table.equals(alone.table)
        assert together.quality() == alone.quality()
    with pytest.raises(InvalidParameter, match="workers"):
        mondrian(table, **ASKED, workers=0)
