"""Columns as codes, and tables from wherever they are: every Arrow type, missing values, files, and clear errors."""

import datetime as dt
import gzip
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import given, strategies as st

from dither.anonymize.attributes import Attribute, AxisKind, Role
from dither.anonymize.encoding import encode
from dither.anonymize.hierarchy.hierarchies import Hierarchy
from dither.anonymize.table.read import as_table
from dither.anonymize.table.values import plain
from dither.errors import InvalidParameter, SourceError
from support.sizes import examples


def encoded(values, **more):
    return encode(pa.table({"x": values}), Attribute(name="x", role=Role.QUASI, **more))


def back(column):
    return [column.values[code].as_py() for code in column.codes]


TYPES = [
    (pa.array([3, 1, None, 3], pa.int8()), AxisKind.NUMBER, ["1", "3", None]),
    (pa.array([2**64 - 1, 0], pa.uint64()), AxisKind.NUMBER, ["0", "18446744073709551615"]),
    (pa.array([1.5, -0.0, 0.0, float("nan"), None]), AxisKind.NUMBER, ["0", "1.5", None]),
    (pa.array([1e20, 1e-7, 100000.0]), AxisKind.NUMBER, ["1e-07", "100000", "1e+20"]),
    (pa.array([1.1], pa.float32()), AxisKind.NUMBER, ["1.1"]),
    (pa.array(np.array([1.5], np.float16)), AxisKind.NUMBER, ["1.5"]),
    (pa.array([Decimal("1.50"), Decimal("-2")]), AxisKind.NUMBER, ["-2.00", "1.50"]),
    (pa.array([7, 3], pa.duration("ms")), AxisKind.NUMBER, ["3", "7"]),
    (pa.array([dt.date(2020, 2, 1), dt.date(1999, 1, 1)]), AxisKind.DATE, ["1999-01-01", "2020-02-01"]),
    (pa.array([18262 * 86_400 + 5 * 3600], pa.timestamp("s")), AxisKind.DATE, ["2020-01-01 05:00:00"]),
    (
        pa.array([2, 1], pa.timestamp("ns")),
        AxisKind.DATE,
        ["1970-01-01 00:00:00.000000001", "1970-01-01 00:00:00.000000002"],
    ),
    (pa.array([0], pa.timestamp("us", tz="UTC")), AxisKind.DATE, ["1970-01-01 00:00:00Z"]),
    (pa.array([dt.time(3, 4)]), AxisKind.DATE, ["03:04:00"]),
    (pa.array([True, False, False, None]), AxisKind.CATEGORY, ["false", "true", None]),
    (pa.array(["b", "a", "b", None]), AxisKind.CATEGORY, ["b", "a", None]),
    (pa.array(["b", "a"], pa.large_string()), AxisKind.CATEGORY, ["b", "a"]),
    (pa.array(["b"], pa.string_view()), AxisKind.CATEGORY, ["b"]),
    (pa.array(["b", "a", None, "a"]).dictionary_encode(), AxisKind.CATEGORY, ["a", "b", None]),
    (pa.array([None, None]), AxisKind.CATEGORY, [None]),
]


@pytest.mark.parametrize(
    ("values", "kind", "texts"), TYPES, ids=[str(case[0].type) + str(i) for i, case in enumerate(TYPES)]
)
def test_every_type_has_codes_and_texts(values, kind, texts):
    column = encode(
        pa.table({"x": pa.chunked_array([values, values[:0], values])}), Attribute(name="x", role=Role.QUASI)
    )
    assert column.kind is kind
    assert column.texts == texts
    assert column.size == len(texts)
    assert column.missing == (texts[-1] is None)
    assert column.codes.dtype == np.int32
    assert column.counts.sum() == 2 * len(values)
    numbers = column.numbers
    assert np.isnan(numbers[-1]) == column.missing
    present = numbers[:-1] if column.missing else numbers
    assert (np.diff(present) > 0).all()


def test_numbers_are_places_on_a_line():
    assert encoded([dt.date(1970, 1, 2), dt.date(1970, 1, 5)]).numbers.tolist() == [1, 4]
    assert encoded(pa.array([43_200_000], pa.timestamp("ms"))).numbers.tolist() == [0.5]
    assert encoded([10, 2.5, None]).numbers[:2].tolist() == [2.5, 10]


@examples(40, 100)
@given(st.lists(st.one_of(st.none(), st.integers(-5, 5))))
def test_codes_give_the_values_back_in_order(values):
    column = encoded(pa.array(values, pa.int64()))
    assert back(column) == values
    assert column.missing == (None in values)
    present = [value for value in column.values.to_pylist() if value is not None]
    assert present == sorted(set(present))


@examples(40, 100)
@given(st.lists(st.one_of(st.none(), st.sampled_from("abcde"))))
def test_categories_come_by_frequency_and_missing_last(values):
    column = encoded(pa.array(values, pa.string()))
    assert back(column) == values
    assert column.missing == (None in values)
    assert None not in column.texts[:-1]
    counts = column.counts.tolist()
    if column.missing:
        counts.pop()
    assert counts == sorted(counts, reverse=True)


def test_categories_follow_their_hierarchy():
    places = Hierarchy.from_mapping({"Paris": "F", "Rome": "I", "Lyon": "F", "Bari": "I"})
    column = encoded(["Rome", "Lyon", None, "Bari", "Paris", "Rome"], hierarchy=places)
    assert column.texts == ["Paris", "Lyon", "Rome", "Bari", None]
    assert column.level_codes(1)[0].tolist() == [0, 0, 1, 1, 2]
    with pytest.raises(InvalidParameter, match="not in its hierarchy"):
        encoded(["Oslo"], hierarchy=places)
    with pytest.raises(InvalidParameter, match="has no hierarchy"):
        encoded(["Oslo"]).level_codes(1)


def test_orders():
    grades = encoded(["low", "high", None, "mid"], order=("low", "mid", "high"))
    assert (grades.kind, grades.texts) == (AxisKind.ORDERED, ["low", "mid", "high", None])
    assert grades.codes.tolist() == [0, 2, 3, 1]
    assert encoded([3, 1], kind=AxisKind.ORDERED).texts == ["1", "3"]
    assert encoded([True, False], order=(True, False)).texts == ["true", "false"]
    with pytest.raises(InvalidParameter, match="1 of the 2 distinct values of 'x' are not in its order"):
        encoded(["low", "odd"], order=("low",))
    with pytest.raises(InvalidParameter, match="say in which order"):
        encoded(["low"], kind=AxisKind.ORDERED)


def test_kinds_that_do_not_fit_the_type():
    with pytest.raises(InvalidParameter, match="cut as number but has the type string"):
        encoded(["1"], kind=AxisKind.NUMBER)
    with pytest.raises(InvalidParameter, match="cut as date"):
        encoded([1], kind=AxisKind.DATE)
    assert encoded([5, 7, 5], kind=AxisKind.CATEGORY).texts == ["5", "7"]
    for nested in (pa.array([[1]]), pa.array([{"a": 1}]), pa.array([b"x"])):
        with pytest.raises(InvalidParameter, match="convert the column, or leave it out"):
            encoded(nested)


def test_columns_that_are_not_there():
    with pytest.raises(InvalidParameter, match="no column 'y'; the table has 'x'"):
        encode(pa.table({"x": [1]}), Attribute(name="y", role=Role.QUASI))


def test_empty_columns():
    column = encoded(pa.array([], pa.int64()))
    assert (column.size, column.missing, column.codes.tolist()) == (0, False, [])


def test_taking_rows_keeps_codes():
    column = encoded([5, 6, 7]).take(np.array([2, 0]))
    assert (column.codes.tolist(), column.size) == ([2, 0], 3)


def test_plain_texts_of_floats_are_shortest():
    assert plain(pa.array([0.1, 1e15, 123456789.125, -2.0])).to_pylist() == [
        "0.1",
        "1000000000000000",
        "123456789.125",
        "-2",
    ]


def test_tables_from_frames():
    frame = pd.DataFrame({"a": [1.0, float("nan")], "b": ["x", None]}, index=[7, 8])
    assert as_table(frame).to_pydict() == {"a": [1.0, None], "b": ["x", None]}
    assert as_table(frame).column_names == ["a", "b"]
    assert as_table(pl.DataFrame({"a": [1, None]})).to_pydict() == {"a": [1, None]}
    assert as_table(pl.LazyFrame({"a": [1]})).to_pydict() == {"a": [1]}
    assert as_table({"a": [1]}).num_rows == as_table(pa.record_batch({"a": [1]})).num_rows == 1


def test_tables_that_cannot_be():
    for bad in (3, [1, 2], None, object()):
        with pytest.raises(InvalidParameter, match="expected an Arrow table"):
            as_table(bad)
    with pytest.raises(InvalidParameter, match="occur more than once: 'a'"):
        as_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]))
    with pytest.raises(InvalidParameter, match="more than once"):
        as_table(pd.DataFrame([[1, 2]], columns=["a", "a"]))
    with pytest.raises(InvalidParameter, match="name that is text"):
        as_table(pd.DataFrame([[1, 2]]))
    with pytest.raises(InvalidParameter, match="values of one type") as found:
        as_table({"a": ["hidden", 1]})
    assert "hidden" not in str(found.value)
    with pytest.raises(InvalidParameter, match="same length"):
        as_table({"a": [1], "b": [1, 2]})


def test_files(tmp_path):
    table = pa.table({"a": [1, 2], "b": ["x", "y"]})
    parquet.write_table(table, tmp_path / "t.parquet")
    assert as_table(tmp_path / "t.parquet").equals(table)
    for name, mark in (("t.csv", ","), ("u.csv", ";"), ("t.tsv", "\t")):
        (tmp_path / name).write_text(f"a{mark}b\r\n1{mark}x\r\n2{mark}y\r\n")
        assert as_table(str(tmp_path / name)).equals(table)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"a;b\n1;x\n2;y\n"))
    assert as_table(tmp_path / "t.csv.gz").equals(table)
    (tmp_path / "bom.csv").write_bytes(b"\xef\xbb\xbfa,b\n1,x\n2,y\n")
    assert as_table(tmp_path / "bom.csv").equals(table)


def test_postcodes_keep_their_zeros(tmp_path):
    (tmp_path / "t.csv").write_text("code,age,delta\n02139,30,0\n90210,4,-1\n,5,2\n")
    assert as_table(tmp_path / "t.csv").to_pydict() == {
        "code": ["02139", "90210", None],
        "age": [30, 4, 5],
        "delta": [0, -1, 2],
    }


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(SourceError, match="is not a file"):
        as_table(tmp_path / "no.csv")
    (tmp_path / "t.xls").write_text("")
    with pytest.raises(SourceError, match="must end in"):
        as_table(tmp_path / "t.xls")
    (tmp_path / "t.csv").write_text("a,b\n1,2\nhidden\n")
    with pytest.raises(SourceError, match="same number of fields") as found:
        as_table(tmp_path / "t.csv")
    assert "hidden" not in str(found.value)
    (tmp_path / "t.parquet").write_text("no")
    with pytest.raises(SourceError, match="can't be read"):
        as_table(tmp_path / "t.parquet")
    (tmp_path / "twice.csv").write_text("a,a\n1,2\n")
    with pytest.raises(InvalidParameter, match="more than once"):
        as_table(tmp_path / "twice.csv")
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(SourceError):
        as_table(tmp_path / "empty.csv")
