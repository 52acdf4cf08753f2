"""Text files as people have them: separators, quotes, byte-order marks, and what is missing or merely empty."""

import gzip
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from dither.anonymize.partition.mondrian import mondrian
from dither.anonymize.table.read import as_table
from dither.anonymize.table.values import plain
from dither.anonymize.verifier.verify import verify
from dither.errors import InvalidParameter, SourceError

LINES = [["age", "zip", "born", "ill"], ["31", "01234", "1990-05-01", "flu"], ["", "1", "", 'say "hi", x']]


def written(path, separator=",", *, mark=b"", end="\n", quotes=False):
    def field(text):
        needed = quotes or separator in text or '"' in text
        return '"' + text.replace('"', '""') + '"' if needed else text

    text = end.join(separator.join(map(field, line)) for line in LINES) + end
    path.write_bytes(mark + text.encode())
    return path


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("quotes", [True, False])
def test_one_table_in_many_forms(tmp_path, separator, mark, end, quotes):
    table = as_table(written(tmp_path / "t.csv", separator, mark=mark, end=end, quotes=quotes))
    assert table.schema.types == [pa.int64(), pa.string(), pa.date32(), pa.string()]
    assert table.column("age").to_pylist() == [31, None]
    assert table.column("zip").to_pylist() == ["01234", "1"]
    assert table.column("born").null_count == 1
    assert table.column("ill").to_pylist() == ["flu", 'say "hi", x']


def read(tmp_path, text, **more):
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    return as_table(tmp_path / "t.csv", **more)


def test_missing_is_an_empty_field_and_empty_is_two_quotes(tmp_path):
    table = read(tmp_path, 'a,b,n,d\nx,NA,1,\n,NULL,NA,2020-01-01\n"",nan,"",NULL\ny,b,2,\n')
    assert table.column("a").to_pylist() == ["x", None, "", "y"]
    assert table.column("b").to_pylist() == ["NA", "NULL", "nan", "b"]
    assert table.column("n").to_pylist() == [1, None, None, 2]
    assert table.column("d").null_count == 3


def test_codes_with_leading_zeros_may_be_missing(tmp_path):
    assert read(tmp_path, "z,x\n007,1\n,2\n8,3\n").column("z").to_pylist() == ["007", None, "8"]


def test_an_empty_line_is_a_missing_value_only_where_it_can_be_one(tmp_path):
    assert read(tmp_path, "a\n1\n\n3\n").column("a").to_pylist() == [1, None, 3]
    assert read(tmp_path, "a,b\n1,2\n\n3,4\n\n").num_rows == 2


def test_quoted_text_may_have_lines(tmp_path):
    assert read(tmp_path, 'a,b\n"one\ntwo",1\n').column("a").to_pylist() == ["one\ntwo"]


def test_types_are_those_that_are_wanted_where_they_can_be(tmp_path):
    text = "x,y,z\n1.50,1.50,1\n1.5,two,2\n"
    table = read(tmp_path, text, wanted={"x": pa.string(), "y": pa.float64(), "z": pa.float32(), "none": pa.int8()})
    assert table.column("x").to_pylist() == ["1.50", "1.5"]
    assert table.column("y").to_pylist() == ["1.50", "two"]
    assert table.column("z").type == pa.float32()


def test_compressed_text_is_read(tmp_path):
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"a;b\n1;2\n"))
    assert as_table(tmp_path / "t.csv.gz").to_pylist() == [{"a": 1, "b": 2}]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("empty.csv", b"", "is empty: its first line must name the columns"),
        ("blank.csv", b"\xef\xbb\xbf\n\n", "is empty"),
        ("latin.csv", "town\nZürich\n".encode("latin-1"), "is not UTF-8 text: save it as UTF-8"),
        ("ragged.csv", b"a,b\n1,2\nsecret\n", "the same number of fields"),
        ("wrong.parquet", b"a,b\n1,2\n", "see that it is what its ending says"),
        ("table.xlsx", b"PK", "must end in .parquet or in one of .csv"),
    ],
)
def test_files_that_cannot_be_read_are_explained(tmp_path, name, content, told):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError, match=told) as raised:
        as_table(tmp_path / name)
    assert "secret" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_names_that_occur_twice_and_files_that_are_not_there(tmp_path):
    with pytest.raises(InvalidParameter, match="occur more than once: 'a'"):
        read(tmp_path, "a,a\n1,2\n")
    with pytest.raises(SourceError, match="is not a file: there is nothing of that name"):
        as_table(tmp_path / "nothing.csv")
    with pytest.raises(SourceError, match=r"is not a file$"):
        as_table(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_no_right_to_read(tmp_path):
    (tmp_path / "t.csv").write_text("a\n1\n")
    (tmp_path / "t.csv").chmod(0)
    with pytest.raises(SourceError, match="there is no right to"):
        as_table(tmp_path / "t.csv")


def test_metadata_of_a_file_stays_behind(tmp_path):
    table = pa.table({"a": [1]}).replace_schema_metadata({"pandas": "index of Ulm"})
    parquet.write_table(table, tmp_path / "t.parquet")
    assert as_table(tmp_path / "t.parquet").schema.metadata is None


@pytest.mark.parametrize("width", [1, 2])
def test_missing_and_empty_text_survive_a_release_as_text(tmp_path, width):
    values = ["x", None, "", None, "x", "", "NA"]
    table = pa.table({"c": values, "kept": values}).select(["c", "kept"][:width])
    release = mondrian(table, quasi=["c"], insensitive=["kept"][: width - 1], k=2)
    release.save(tmp_path / "out.csv")
    back = as_table(tmp_path / "out.csv")
    assert back.to_pylist() == release.table.to_pylist()
    assert verify(tmp_path / "out.csv", release.configuration, table).good


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16])
def test_floats_are_spelled_all_at_once_as_one_by_one(kind):
    rng = np.random.default_rng(0)
    with np.errstate(over="ignore"):
        drawn = np.concatenate(
            [
                rng.normal(size=500) * 10.0 ** rng.integers(-9, 20, 500),
                rng.integers(-(10**6), 10**6, 100) / 100,
                [0.0, -0.0, np.inf, -np.inf, np.nan, 1e15, 1e16, 1e-4, 1e-5, 9.99e-6, 123456789012345.6],
            ]
        ).astype(kind)
    texts = plain(pa.chunked_array([pa.array(drawn[:50]), pa.array(drawn[50:])])).to_pylist()
    for value, text in zip(drawn, texts, strict=True):
        if np.isnan(value):
            assert text is None
        elif value == 0:
            assert text == "0"
        elif 1e-5 <= abs(float(value)) < 1e16:
            assert text == np.format_float_positional(value, trim="-")
        else:
            assert text == str(value)
    assert plain(pa.array([1.5, None])).to_pylist() == ["1.5", None]
    assert plain(pa.chunked_array([], pa.float64())).to_pylist() == []
