"""Mondrian on tables that are easily got wrong: layouts of other libraries, extreme values, weights; and its boxes."""

import datetime as dt
import decimal
import itertools
import math
from collections import Counter
from importlib import import_module

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from dither.anonymize.attributes import Attribute, AxisKind, Role
from dither.anonymize.encoding import encode, on_a_line
from dither.anonymize.hierarchy.hierarchies import Hierarchy
from dither.anonymize.models.catalogue import DistinctDiversity, KMap
from dither.anonymize.partition.mondrian import mondrian
from dither.anonymize.releases.quasi_identifier_axis import AxisShape
from dither.anonymize.table.arrow_layouts import plain_layout
from dither.anonymize.table.read import as_table
from dither.anonymize.verifier.verify import verify
from dither.errors import InvalidParameter
from support.sizes import examples

BERLIN = pa.timestamp("us", "Europe/Berlin")
PLACES = Hierarchy.from_mapping({"Paris": "France", "Lyon": "France", "Rome": "Italy", "Kyoto": "Japan"})

# pyarrow has short ones since version 19
SHORT = getattr(pa, "decimal32", pa.decimal128)

# twelve rows of everything
ODD = {
    "nothing": pa.nulls(12),
    "no number": pa.nulls(12, pa.int64()),
    "not a number": pa.array([math.nan] * 12),
    "floats": pa.array([math.nan, None, 1.0, -0.0, 0.0, math.inf, -math.inf, 2.0, 2.0, 5e-324, 1e308, -1e308]),
    "zeros": pa.array([0.0, -0.0] * 6),
    "large": pa.array([2**63 - 1, -(2**63), 0, 1, 2**63 - 1, 2**63 - 2, None, 5, 5, 5, 5, 5]),
    "unsigned": pa.array([2**64 - 1, 2**64 - 2, 0, 1, 2, 3, 4, 5, 6, 7, 8, None], pa.uint64()),
    "small floats": pa.array(np.arange(12).astype(np.float16)),
    "short decimals": pa.array([decimal.Decimal("1.50"), decimal.Decimal("-2"), None] * 4, SHORT(5, 2)),
    "long decimals": pa.array([decimal.Decimal("1.50"), decimal.Decimal(10) ** 60, None] * 4, pa.decimal256(70, 2)),
    "flags": pa.array([True, False, None] * 4),
    "days": pa.array([dt.date(2020, 1, 1 + day) for day in range(11)] + [None]),
    "all days": pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31)] * 6),
    # an hour that comes twice
    "zone": pa.array([0, None, *(1_603_584_000_000_000 + 1_800_000_000 * step for step in range(10))], BERLIN),
    "nanoseconds": pa.array([1, 2, 3, None, 5, 6] * 2, pa.timestamp("ns")),
    "times": pa.array([1, 2, None] * 4, pa.time32("s")),
    "spans": pa.array([1, -2, None] * 4, pa.duration("us")),
    "texts": pa.array(["", "*", "NULL", None, " ", "{", "}", '"', "–", "a–b", "\x00", "u\u0308"]),
    "long texts": pa.array([letter * 100_000 for letter in "abcdefghijkl"]),
    "views": pa.array(["a", "", None] * 4, pa.string_view()),
    "twice": pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, None] * 3, pa.int8()), pa.array(["x", "x", None])),
    "category views": pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 2] * 4, pa.uint32()), pa.array(["x", "", "z"], pa.string_view())
    ),
    "chunks": pa.chunked_array(
        [pa.array(["a", "b"]).dictionary_encode(), pa.array(["c", "b"] * 5).dictionary_encode()]
    ),
    "empty chunks": pa.chunked_array([pa.array([], pa.int32()), pa.array(range(12), pa.int32())]),
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array([6, 12], pa.int32()), pa.array([1, 2])),
    "one": pa.array([7] * 12),
}


def expect_good(release, table, names, k):
    """Counted by hand, and by the verifier."""
    columns = [release.table.column(name).to_pylist() for name in names]
    assert min(Counter(zip(*columns, strict=True)).values()) >= k
    assert release.table.num_rows == table.num_rows
    found = verify(release.table, release.configuration, table)
    assert not found.findings, str(found)
    quality = release.quality()
    assert 0 <= quality.ncp <= 1
    assert 0 <= quality.entropy_loss <= 1 + 1e-9


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("name", ODD)
def test_every_odd_column_alone_and_beside_another(name, strict):
    table = as_table(pa.table({name: ODD[name], "age": range(12), "kept": ODD[name], "ill": list("xyz") * 4}))
    for names, k in itertools.product(([name], [name, "age"]), (2, 5, 12)):
        release = mondrian(table, quasi=names, sensitive=["ill"], insensitive=["kept"], k=k, strict=strict)
        expect_good(release, table, names, k)


SOME = list("abcabcab")
FRAMES = {
    "an index of two levels": pd.DataFrame(
        {"a": range(8)}, index=pd.MultiIndex.from_product([[1, 2], [1, 2, 3, 4]], names=["a", "b"])
    ),
    "pandas categories": pd.DataFrame({"a": pd.Categorical(SOME, categories=list("cbaz"), ordered=True)}),
    "pandas whole numbers with gaps": pd.DataFrame({"a": pd.array([1, None, 3, 4, 5, 6, 7, 8], "Int64")}),
    "pandas text with two kinds of nothing": pd.DataFrame({"a": [None, float("nan"), "x", "y"] * 2}),
    "pandas hours of a zone": pd.DataFrame({"a": pd.date_range("2020-10-25", periods=8, freq="h", tz="Europe/Berlin")}),
    "polars categories": pl.DataFrame({"a": pl.Series([*SOME[:7], None], dtype=pl.Categorical)}),
    "polars enum": pl.DataFrame({"a": pl.Series([*SOME[:7], None], dtype=pl.Enum(list("cbaz")))}),
    "polars decimals": pl.DataFrame({"a": pl.Series([decimal.Decimal(n) / 4 for n in range(8)])}),
    "polars text": pl.DataFrame({"a": ["x", "y", None, ""] * 2}),
    "polars nothing": pl.DataFrame({"a": [None] * 8}),
}


@pytest.mark.parametrize("name", FRAMES)
def test_frames_of_other_libraries(name):
    frame = FRAMES[name]
    table = as_table(frame)
    both = pa.table({"a": table.column("a"), "b": table.column("a")})
    for k in (2, 3):
        expect_good(mondrian(frame, quasi=["a"], k=k), table, ["a"], k)
        # kept, and spoken about by a model
        release = mondrian(both, quasi=["a"], sensitive=["b"], k=k, models=[DistinctDiversity(1, "b")])
        expect_good(release, both, ["a"], k)


def test_layouts_change_and_values_do_not():
    frame = pl.DataFrame(
        {
            "category": pl.Series(["x", None, ""], dtype=pl.Categorical),
            "lists": [["x"], [None, ""], None],
            "records": [{"a": "x", "b": b"1"}] * 3,
            "bytes": [b"x", None, b""],
            "text": ["", None, "x"],
            "number": [1, 2, 3],
        }
    )
    made = plain_layout(pa.table(frame))
    assert made.to_pylist() == pa.table(frame).to_pylist()
    assert [str(kind) for kind in made.schema.types] == [
        "string",
        "large_list<item: string>",
        "struct<a: string, b: binary>",
        "binary",
        "string",
        "int64",
    ]
    # polars notes the categories that there could be beside the column
    assert all(field.metadata is None for field in made.schema)
    sliced = pa.concat_tables([pa.table({"runs": ODD["runs"], "d": ODD["short decimals"]})] * 2).slice(5, 9)
    assert plain_layout(sliced).to_pylist() == sliced.to_pylist()
    views = pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), pa.array(["hidden"], pa.string_view()))
    with pytest.raises(InvalidParameter, match="column 'x' has the type run_end_encoded") as found:
        plain_layout(pa.table({"x": views}))
    assert "hidden" not in str(found.value)


NUMBERS = [
    (pa.int8(), st.integers(-128, 127)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)),
    (pa.uint64(), st.integers(0, 2**64 - 1) | st.integers(2**64 - 4, 2**64 - 1)),
    (pa.float64(), st.floats(allow_nan=False) | st.integers(-2, 2).map(float)),
    (pa.date32(), st.dates() | st.dates(dt.date(2020, 1, 1), dt.date(2020, 1, 9))),
    (pa.timestamp("us", "Europe/Berlin"), st.integers(0, 2**40) | st.integers(0, 3)),
    (pa.duration("s"), st.integers(-(2**40), 2**40)),
]


@examples(50, 150)
@given(st.data(), st.sampled_from(NUMBERS), st.integers(0, 12), st.integers(0, 12))
def test_numbers_are_ranked_as_python_sorts_them(data, kind, rows, cut):
    sort, values = kind
    column = pa.array(data.draw(st.lists(values | st.none(), min_size=rows, max_size=rows)), sort)
    codes, different = on_a_line(pa.chunked_array([column[:cut], column[cut:]], sort))
    exact = column.cast(pa.int64()) if pa.types.is_timestamp(sort) else column
    known = sorted({value for value in exact.to_pylist() if value is not None})
    back = different.cast(pa.int64()) if pa.types.is_timestamp(sort) else different
    assert back.to_pylist() == known + [None] * (exact.null_count > 0)
    assert different.type == sort
    assert [back[code].as_py() for code in codes.tolist()] == exact.to_pylist()


def test_dates_that_have_no_common_spelling_are_refused():
    for values in (pa.array([2**62, 0], pa.timestamp("us")), pa.array([3_000_000, 0], pa.int32()).view(pa.date32())):
        for kind in (None, AxisKind.CATEGORY):
            with pytest.raises(InvalidParameter, match="column 'day' has dates outside of the years 0 to 9999"):
                encode(pa.table({"day": values}), Attribute(name="day", role=Role.QUASI, kind=kind))


@pytest.mark.parametrize("weights", [(1e308, 1e308), (5e-324, 1e-300), (0, 0), (1e308, 0)])
def test_extreme_weights(weights):
    table = pa.table({"a": range(8), "b": [value * value for value in range(8)]})
    release = mondrian(table, quasi=["a", "b"], k=2, weights=dict(zip("ab", weights, strict=True)))
    expect_good(release, table, ["a", "b"], 2)
    assert release.classes.number == 4


def test_one_row_is_enough_where_people_of_a_population_count():
    table = pa.table({"age": [31]})
    release = mondrian(table, quasi=["age"], models=[KMap(2, pa.table({"age": [31, 31]}))])
    assert release.table.column("age").to_pylist() == ["31"]
    with pytest.raises(InvalidParameter, match="the table has 1"):
        mondrian(table, quasi=["age"], k=2)


@st.composite
def boxes(draw):
    rows = draw(st.integers(2, 60))
    few = st.sampled_from([1, 2, 3, 5, 50, None])
    lists = {
        "n": draw(st.lists(few, min_size=rows, max_size=rows)),
        "m": draw(st.lists(st.integers(0, 9), min_size=rows, max_size=rows)),
        "c": draw(st.lists(st.sampled_from(["a", "b", "c", "d", None]), min_size=rows, max_size=rows)),
        "p": draw(st.lists(st.sampled_from(["Paris", "Lyon", "Rome", "Kyoto", None]), min_size=rows, max_size=rows)),
        "s": draw(st.lists(st.sampled_from("xyz"), min_size=rows, max_size=rows)),
    }
    kinds = {"n": pa.int64(), "m": pa.int64(), "c": pa.string(), "p": pa.string(), "s": pa.string()}
    names = draw(st.lists(st.sampled_from("nmcp"), min_size=1, unique=True))
    table = pa.table({name: pa.array(values, kinds[name]) for name, values in lists.items()})
    return table, {name: PLACES if name == "p" else None for name in names}


@examples(40, 120)
@given(boxes(), st.integers(2, 6), st.booleans())
def test_strict_classes_are_disjoint_boxes(made, k, diverse):
    """Each two classes have an axis on which they share no value: printed ones, or in a hierarchy those that occur."""
    table, quasi = made
    models = [DistinctDiversity(2, "s")] if diverse and len(set(table.column("s").to_pylist())) > 1 else []
    k = min(k, table.num_rows)
    release = mondrian(table, quasi=quasi, sensitive=["s"], k=k, models=models)
    number = release.classes.number
    apart = np.eye(number, dtype=bool)
    for one in release.cells:
        inside = np.zeros((number, one.axis.size), bool)
        if one.axis.shape is AxisShape.RANGE:
            places = np.arange(one.axis.size)
            inside = (places >= one.low[:, None]) & (places <= one.high[:, None])
            if one.axis.missing >= 0:
                inside[:, one.axis.missing] = one.or_missing
        elif one.members is not None:
            inside[one.members] = True
        else:
            inside[release.classes.of_row, one.axis.positions] = True
        apart |= (inside.astype(int) @ inside.T.astype(int)) == 0
    assert apart.all()


@examples(20, 60)
@given(boxes(), st.integers(2, 6))
def test_merging_equal_rows_first_changes_nothing(made, k):
    table, quasi = made
    k = min(k, table.num_rows)
    # the package has a function of that name
    module = import_module("dither.anonymize.partition.mondrian")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MOSTLY_DIFFERENT", 1.0)
        merged = mondrian(table, quasi=quasi, sensitive=["s"], k=k)
        patch.setattr(module, "_MOSTLY_DIFFERENT", 0.0)
        rows = mondrian(table, quasi=quasi, sensitive=["s"], k=k)
    assert merged.table.equals(rows.table)


def test_texts_of_many_ranges_are_made_in_stretches(monkeypatch):
    rng = np.random.default_rng(5)
    table = pa.table({"a": pa.array([None, *rng.normal(size=399)]), "b": rng.integers(0, 9, 400)})
    expected = mondrian(table, quasi=["a", "b"], k=3)
    monkeypatch.setattr("dither.anonymize.releases.printing._STRETCH", 7)
    assert mondrian(table, quasi=["a", "b"], k=3).table.equals(expected.table)
    monkeypatch.setattr("dither.anonymize.encoding._STRETCH", 7)
    assert mondrian(table, quasi=["a", "b"], k=3).table.equals(expected.table)
