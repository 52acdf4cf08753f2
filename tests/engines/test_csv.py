"""CSV is read as RFC 4180 has it or not at all: Python's own reader is the outside truth."""

import csv
import gzip
import io
import random

import duckdb
import pytest

from dither.engines.duckdb.intake import _read_csv
from dither.engines.files import strict_csv
from dither.engines.files.strict_csv import check_csv, head_of
from dither.errors import SourceError

HEAD = b"who,n\n"


def faults(path, **form):
    head = head_of(path, delimiter=form.get("delimiter"), header=form.get("header", True))
    return [(fault.line, fault.column, fault.what) for fault in check_csv(path, head).faults]


def by_duckdb(path, **form):
    """The records as they are read for the typed copy; None where the file isn't read at all."""
    head = head_of(path, delimiter=form.get("delimiter"), header=form.get("header", True))
    checked = check_csv(path, head)
    if checked.faults:
        return None
    rows = duckdb.execute(_read_csv([(path, head, checked.line_end)])).fetchall()
    assert len(rows) == checked.records
    assert sum(len((value or "").encode()) for row in rows for value in row) == checked.content
    return [[value or "" for value in row] for row in rows]


def by_python(data, delimiter=","):
    text = io.StringIO(data.decode("utf-8-sig"), newline="")
    return [row for row in csv.reader(text, delimiter=delimiter, strict=True) if row][1:]


GOOD = {
    "lines end in LF": HEAD + b"1,2\n3,4\n",
    "lines end in CRLF": b"who,n\r\n1,2\r\n3,4\r\n",
    "no end of the last line": HEAD + b"1,2\n3,4",
    "doubled quotes": HEAD + b'"1","a ""b"" c"\n3,""""\n',
    "a line break in quotes": HEAD + b'1,"a\nb"\n3,4\n',
    "another line end in quotes": HEAD + b'1,"a\r\nb\rc"\n3,4\n',
    "an LF in quotes where lines end in CRLF": b'who,n\r\n1,"a\nb"\r\n3,4\r\n',
    "a delimiter in quotes": HEAD + b'1,"a,b"\n',
    "a byte order mark": b"\xef\xbb\xbf" + HEAD + b"1,2\n",
    "empty fields": HEAD + b',\n"",""\n',
    "a backslash": HEAD + b'1,"a\\"\n3,\\\n',
    "what others take for a comment": HEAD + b"#1,2\n",
    "other alphabets": HEAD + "1,\u00e9\u4e2d\U0001f600\n".encode(),
    "empty lines at the end": HEAD + b"1,2\n\n\n",
    "empty lines at the end, CRLF": b"who,n\r\n1,2\r\n\r\n",
    "names alone": HEAD,
    "names without an end": b"who,n",
}


@pytest.mark.parametrize("name", GOOD)
def test_what_keeps_to_the_rules_is_read_as_python_reads_it(tmp_path, name):
    (tmp_path / "a.csv").write_bytes(GOOD[name])
    assert by_duckdb(tmp_path / "a.csv") == by_python(GOOD[name])
    with gzip.open(tmp_path / "a.csv.gz", "wb") as packed:
        packed.write(GOOD[name])
    assert by_duckdb(tmp_path / "a.csv.gz") == by_python(GOOD[name])


OPEN, INSIDE, BEHIND = "is never closed", "isn't in quotes", "other than a delimiter behind a quote"
BAD = {
    "an open quote": (HEAD + b'1,2\n3,"4\n5,6\n7,8\n', [(3, 3, OPEN)]),
    "an open quote, others behind it": (HEAD + b'1,2\n3,"4\n5,"6"\n7,8\n', [(3, 3, "closed, or at line 4, column 3")]),
    "an open quote at the end": (HEAD + b'1,2\n3,"', [(3, 3, OPEN)]),
    "three quotes": (HEAD + b'1,2\n3,"""\n', [(3, 3, OPEN)]),
    "a quote in a field": (HEAD + b'1,a"b\n3,a"b"\n', [(2, 4, INSIDE), (3, 4, INSIDE)]),
    "a blank before a quote": (HEAD + b'1, "a"\n', [(2, 4, INSIDE)]),
    "a letter behind a quote": (HEAD + b'1,"a"b\n', [(2, 5, BEHIND)]),
    "a blank behind a quote": (HEAD + b'1,"a" \n', [(2, 5, BEHIND)]),
    "a quote escaped by a backslash": (HEAD + b'1,"a\\"b"\n', [(2, 6, BEHIND)]),
    "a CR in a field": (HEAD + b"1,a\rb\n3,4\n", [(2, 4, "carriage return")]),
    "LF among CRLF": (b"who,n\r\n1,2\n3,4\r\n", [(2, 1, "ends in LF, the first in CRLF")]),
    "CRLF among LF": (HEAD + b"1,2\r\n3,4\n", [(2, 1, "ends in CRLF, the first in LF")]),
    "a NUL": (HEAD + b'1,2\n3,"a\0b"\n', [(3, 5, "NUL")]),
    "bytes that aren't UTF-8": (HEAD + "\u00e9".encode() + b",\xff\n3,\xc3\n", [(2, 3, "UTF-8"), (3, 3, "UTF-8")]),
    "fields too few": (HEAD + b"1\n3,4\n", [(2, 1, "1 fields, and not 2")]),
    "fields too many": (HEAD + b"1,2,3\n3,4\n", [(2, 1, "3 fields, and not 2")]),
    "a delimiter at the end": (HEAD + b"1,2,\n3,4,\n", [(2, 1, "3 fields"), (3, 1, "3 fields")]),
    "an empty line": (HEAD + b"1,2\n\n3,4\n", [(3, 1, "empty")]),
    "an empty line at the end of one column": (b"x\n1\n2\n\n", [(4, 1, "empty")]),
    "empty lines at the end of one column": (b"x\r\n1\r\n\r\n\r\n", [(3, 1, "empty"), (4, 1, "empty")]),
    "a blank line": (HEAD + b"1,2\n  \n3,4\n", [(3, 1, "1 fields")]),
    "the end of a DOS file": (HEAD + b"1,2\n\x1a", [(3, 1, "1 fields")]),
    "a long line": (HEAD + b"1," + b"x" * 2_000_001 + b"\n3,4\n", [(2, 1, "more than 2,000,000 bytes")]),
    "a long field in quotes": (HEAD + b'1,"' + b"x\n" * 1_100_000 + b'"\n3,4\n', [(2, 1, "more than 2,000,000 bytes")]),
    "after a fault the next line counts": (HEAD + b'1,a"b\n3\n5,6\n', [(2, 4, INSIDE), (3, 1, "1 fields")]),
}


@pytest.mark.parametrize("name", BAD)
def test_what_breaks_the_rules_is_told_with_line_and_column(tmp_path, name):
    data, expected = BAD[name]
    (tmp_path / "a.csv").write_bytes(data)
    found = faults(tmp_path / "a.csv")
    assert [(line, column) for line, column, _ in found] == [(line, column) for line, column, _ in expected]
    for (_, _, what), (_, _, part) in zip(found, expected, strict=True):
        assert part in what


def test_faults_beyond_the_first_twenty_are_not_looked_for(tmp_path):
    (tmp_path / "a.csv").write_bytes(HEAD + b"1\n" * 1000)
    assert [line for line, _, _ in faults(tmp_path / "a.csv")] == list(range(2, 22))


@pytest.mark.parametrize(
    ("name", "data", "problem"),
    [
        ("a.csv", b"", "a name of its own"),
        ("a.csv", b"\n", "a name of its own"),
        ("a.csv", b"a,A\n1,2\n", "a name of its own"),
        ("a.csv", b"a,\n1,2\n", "a name of its own"),
        ("a.csv", b"a,b\r1,2\r3,4\r", "end in CR alone"),
        ("a.csv", "a,b\n1,2\n".encode("utf-16"), "UTF-16"),
        ("a.csv", "a,b\n1,2\n".encode("utf-16-le"), "NUL bytes in its first line.*UTF-16"),
        ("a.csv", b"a,\xff\n1,2\n", "not a text file in UTF-8"),
        ("a.csv", b'a,"b\n1,2\n', "line 1: a quote isn't closed"),
        ("a.csv", b'a,"b\nc"\n1,2\n', "line break"),
        ("a.csv.gz", b"a,b\n1,2\n", "can't be read"),
    ],
)
def test_first_lines_that_name_no_columns(tmp_path, name, data, problem):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(SourceError, match=problem):
        head_of(tmp_path / name, delimiter=None, header=True)


def test_a_packed_file_that_is_cut_is_a_fault(tmp_path):
    # seven digits that don't repeat, so that packing doesn't make it small
    whole = gzip.compress(HEAD + b"".join(b"%d,%d\n" % (n, n * n % 9973) for n in range(20_000)))
    (tmp_path / "a.csv.gz").write_bytes(whole[: len(whole) // 2])
    assert faults(tmp_path / "a.csv.gz")[-1][2] == "the packed file is damaged, or ends too early"


@pytest.mark.parametrize(
    ("first", "delimiter", "names"),
    [
        ("a,b", ",", ("a", "b")),
        ("a;b", ";", ("a", "b")),
        ("a\tb", "\t", ("a", "b")),
        ("a|b", "|", ("a", "b")),
        ("a,b;c", ",", ("a", "b;c")),
        ('"a,b";c', ";", ("a,b", "c")),
        ("alone", ",", ("alone",)),
    ],
)
def test_the_line_of_names_shows_what_is_between_fields(tmp_path, first, delimiter, names):
    (tmp_path / "a.csv").write_text(first + "\n", encoding="utf-8")
    head = head_of(tmp_path / "a.csv", delimiter=None, header=True)
    assert (head.delimiter, head.names) == (delimiter, names)
    assert head_of(tmp_path / "a.csv", delimiter=";", header=True).delimiter == ";"


def test_files_without_a_line_of_names(tmp_path):
    (tmp_path / "a.csv").write_bytes(b'1,"a\nb"\n3,4\n')
    head = head_of(tmp_path / "a.csv", delimiter=None, header=False)
    assert (head.names, head.like_data) == (("column_1", "column_2"), ())
    assert by_duckdb(tmp_path / "a.csv", header=False) == [["1", "a\nb"], ["3", "4"]]
    (tmp_path / "a.csv").write_bytes(b"")
    with pytest.raises(SourceError, match="is empty"):
        head_of(tmp_path / "a.csv", delimiter=None, header=False)


@pytest.mark.parametrize(
    ("first", "places"),
    [
        ("39, State-gov, 77516, Bachelors, <=50K", (1, 3)),
        ("id,2024-01-05,n", (2,)),
        ("id,2024-01-05 10:00:00,1.5e3", (2, 3)),
        ("name,true", (2,)),
        ("id,q1,year_2024,x1", ()),
        ("e5,no,f", ()),
    ],
)
def test_names_that_look_like_values(tmp_path, first, places):
    (tmp_path / "a.csv").write_text(first + "\n", encoding="utf-8")
    assert head_of(tmp_path / "a.csv", delimiter=None, header=True).like_data == places


# ------------------------------------------------------------------ against Python, at random


def test_random_rows_are_read_as_they_were_written(tmp_path, monkeypatch):
    monkeypatch.setattr(strict_csv, "_BLOCK", 64)  # so that fields lie across pieces
    rng, path = random.Random(7), tmp_path / "a.csv"
    for _ in range(30):
        end, quoting = rng.choice(("\n", "\r\n")), rng.choice((csv.QUOTE_MINIMAL, csv.QUOTE_ALL))
        # where lines end in LF, Python doesn't quote a CR unless it quotes everything
        letters = 'ab,;"\n \u00e9' + ("" if (end, quoting) == ("\n", csv.QUOTE_MINIMAL) else "\r")
        rows = [["".join(rng.choices(letters, k=rng.randrange(12))) for _ in range(3)] for _ in range(20)]
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator=end, quoting=quoting).writerows([["a", "b", "c"], *rows])
        path.write_bytes(text.getvalue().encode())
        assert by_duckdb(path) == rows


def test_whatever_passes_is_read_alike_by_all(tmp_path, monkeypatch):
    monkeypatch.setattr(strict_csv, "_BLOCK", 16)
    rng, path, passed, refused = random.Random(11), tmp_path / "a.csv", 0, 0
    for _ in range(800):
        data = b"a,b\n" + "".join(rng.choices('x,"\n\r\u00e9', (8, 6, 4, 6, 1, 1), k=rng.randrange(24))).encode()
        path.write_bytes(data)
        head = head_of(path, delimiter=None, header=True)
        checked = check_csv(path, head)
        if checked.faults:
            refused += 1
            continue
        passed += 1
        rows = by_python(data)
        assert [len(row) for row in rows] == [2] * checked.records
        assert sum(len(value.encode()) for row in rows for value in row) == checked.content
        if passed % 8 == 0:
            assert by_duckdb(path) == rows
    assert passed > 50
    assert refused > 200


def test_faults_are_the_same_in_pieces_of_any_size(tmp_path, monkeypatch):
    rng, path = random.Random(5), tmp_path / "a.csv"
    for _ in range(100):
        path.write_bytes(b"a,b\n" + "".join(rng.choices('x,"\n\u00e9', (8, 6, 2, 6, 1), k=60)).encode())
        found = []
        for size in (8, 4 * 2**20):
            monkeypatch.setattr(strict_csv, "_BLOCK", size)
            found.append(faults(path))
        assert found[0] == found[1]
