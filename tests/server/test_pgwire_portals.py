"""Fetching from kept answers by PostgreSQL's rules, and answers as COPY writes them."""

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from dither.server.pgwire.protocol.errors import WireError
from dither.server.pgwire.protocol.types import columns_of
from dither.server.pgwire.session.portals import Portal, ResultRows, formats_of
from dither.server.pgwire.sql.commands import CopyOut, Fetch
from dither.server.pgwire.sql.copying import CopyWriter
from dither.server.pgwire.sql.parameters import BoundText
from dither.server.pgwire.sql.routing import Route, Statement

STATEMENT = Statement(route=Route.PRIVATE, sql="", offset=0)


def portal(count):
    table = pa.table({"row": list(range(1, count + 1))})
    rows = ResultRows(table=table, columns=columns_of(table.schema), word="SELECT")
    return Portal(statement=STATEMENT, bound=BoundText(text=""), rows=rows)


class Walker:
    """The rules of FETCH one step at a time: a place from 0 (before the first row) to total + 1 (after the last)."""

    def __init__(self, total):
        self.total, self.place = total, 0

    def step(self, by):
        self.place = min(max(self.place + by, 0), self.total + 1)
        return [self.place] if 1 <= self.place <= self.total else []

    def fetch(self, direction, count):
        if direction in ("forward", "backward"):
            by = 1 if direction == "forward" else -1
            if count is not None and count < 0:
                by, count = -by, -count
            if count == 0:
                return self.step(0)
            found = []
            for _ in range(self.total + 2 if count is None else count):
                row = self.step(by)
                if not row:
                    break
                found += row
            return found
        if direction == "relative":
            return self.step(count)
        self.place = 0 if count >= 0 else self.total + 1
        return self.step(count)


moves = st.one_of(
    st.tuples(st.sampled_from(["forward", "backward"]), st.one_of(st.none(), st.integers(-4, 6))),
    st.tuples(st.sampled_from(["absolute", "relative"]), st.integers(-7, 7)),
)


@settings(max_examples=100, deadline=None)
@given(total=st.integers(0, 5), wanted=st.lists(moves, max_size=12))
def test_fetching_follows_the_rules_one_step_at_a_time(total, wanted):
    found, model = portal(total), Walker(total)
    for direction, count in wanted:
        rows = found.move(Fetch(name="c", move=False, direction=direction, count=count))
        assert rows.column("row").to_pylist() == model.fetch(direction, count)
        assert found.place == model.place


@settings(max_examples=100, deadline=None)
@given(total=st.integers(0, 20), sizes=st.lists(st.integers(1, 7), max_size=10))
def test_executing_in_parts_gives_every_row_once(total, sizes):
    found = portal(total)
    rows = [row for size in sizes for row in found.forward(size).column("row").to_pylist()]
    rows += found.forward(0).column("row").to_pylist()
    assert rows == list(range(1, total + 1))
    assert found.forward(0).num_rows == 0


def test_formats():
    assert formats_of((), 2) == (0, 0)
    assert formats_of((1,), 2) == (1, 1)
    assert formats_of((0, 1), 2) == (0, 1)
    with pytest.raises(WireError):
        formats_of((0, 1), 3)


# ---------------------------------------------------------------------- COPY


def written(table, **options):
    parts = b"".join(CopyWriter(CopyOut(**options)).rows(table, columns_of(table.schema)))
    content = b""
    while parts:
        assert parts[:1] == b"d"
        size = int.from_bytes(parts[1:5], "big")
        content += parts[5 : 1 + size]
        parts = parts[1 + size :]
    return content


TABLE = pa.table({"t": ["a,b", 'say "hi"', "tab\tand\\", "two\nlines", "", None], "n": [1, 2, 3, 4, 5, None]})


def test_text():
    assert written(TABLE) == b'a,b\t1\nsay "hi"\t2\ntab\\tand\\\\\t3\ntwo\\nlines\t4\n\t5\n\\N\t\\N\n'
    assert written(TABLE, delimiter=",", null="-", header=True).startswith(b't,n\na\\,b,1\nsay "hi",2\ntab\\tand')


def test_csv():
    assert written(TABLE, format="csv", header=True) == (
        b't,n\n"a,b",1\n"say ""hi""",2\ntab\tand\\,3\n"two\nlines",4\n"",5\n,\n'
    )
    assert written(TABLE, format="csv", delimiter=";", quote="'", escape="\\", null="NULL") == (
        b"a,b;1\nsay \"hi\";2\ntab\tand\\;3\n'two\nlines';4\n;5\nNULL;NULL\n"
    )
    assert written(TABLE, format="csv", force_quote_all=True, header=True).startswith(b't,n\n"a,b","1"\n')


def test_binary_ends_even_without_rows():
    empty = written(TABLE.slice(0, 0), format="binary")
    assert empty == b"PGCOPY\n\xff\r\n\0" + bytes(8) + b"\xff\xff"
    assert written(TABLE.slice(5), format="binary") == empty[:-2] + b"\0\x02" + b"\xff" * 8 + b"\xff\xff"


def test_without_rows_a_header_is_still_written():
    assert written(TABLE.slice(0, 0), format="csv", header=True) == b"t,n\n"
    assert written(TABLE.slice(0, 0)) == b""


cells = st.one_of(st.none(), st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6))


@settings(max_examples=100, deadline=None)
@given(rows=st.lists(st.tuples(cells, cells), min_size=1, max_size=5))
def test_csv_and_text_can_be_read_back(rows):
    table = pa.table(
        {"a": pa.array([a for a, _ in rows], pa.string()), "b": pa.array([b for _, b in rows], pa.string())}
    )
    assert read_csv(written(table, format="csv").decode()) == rows
    assert read_text(written(table).decode()) == rows


def read_text(content):
    """PostgreSQL's text format, by its manual."""
    letters = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\"}
    found = []
    for line in content.split("\n")[:-1]:
        row = []
        for cell in line.split("\t"):
            text, place = "", 0
            while place < len(cell):
                if cell[place] == "\\" and cell != "\\N":
                    text += letters[cell[place + 1]]
                    place += 2
                else:
                    text += cell[place]
                    place += 1
            row.append(None if cell == "\\N" else text)
        found.append(tuple(row))
    return found


def read_csv(content):
    """CSV in which an empty cell is NULL and an empty text is in quotes."""
    found, row, cell, quoted, inside, place = [], [], "", False, False, 0
    while place < len(content):
        letter = content[place]
        if inside:
            if letter == '"' and content[place + 1 : place + 2] == '"':
                cell += '"'
                place += 1
            elif letter == '"':
                inside = False
            else:
                cell += letter
        elif letter == '"':
            inside = quoted = True
        elif letter in ",\n":
            row.append(cell if cell or quoted else None)
            cell, quoted = "", False
            if letter == "\n":
                found.append(tuple(row))
                row = []
        else:
            cell += letter
        place += 1
    return found


@pytest.mark.parametrize(
    "options",
    [
        {"delimiter": "ab"},
        {"delimiter": "\n"},
        {"delimiter": "a"},
        {"delimiter": "é"},
        {"quote": "'"},
        {"null": "a\tb"},
        {"format": "csv", "delimiter": '"'},
        {"format": "csv", "quote": ""},
        {"format": "binary", "header": True},
        {"format": "binary", "delimiter": ","},
    ],
)
def test_options_that_cant_be(options):
    with pytest.raises(WireError):
        CopyWriter(CopyOut(**options))
