"""Whether a CSV file is one that every reader reads alike: RFC 4180, and every fault with its line and column.

Readers of CSV differ on what breaks the rules. DuckDB's, in its strict mode too, drops blank lines, what stands between
a quote and the next delimiter if it is blank, and a last empty field; a quote that is never closed takes all the lines
behind it along. So one line of one person could decide about everybody else's rows. Here the whole file is looked at
before anything is read from it, and DuckDB reads only what has no fault (decision 0017).
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from dither.errors import SourceError
from dither.query.intake import like_values

MOST_FAULTS = 20
LONGEST_RECORD = 2_000_000
"""Bytes of a record and its line end: what DuckDB's reader takes without being told otherwise."""
DELIMITERS = (",", ";", "\t", "|")
_BLOCK = 4 * 2**20
_BOM = b"\xef\xbb\xbf"
_WIDE = (b"\xff\xfe", b"\xfe\xff")
_DELIMITER, _QUOTE, _LF, _CR = 1, 2, 3, 4
_QUOTES = ord('"')
TOO_LONG = f"the line has more than {LONGEST_RECORD:,} bytes"

Positions: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, order=True)
class CsvFault:
    """A place where a file breaks the rules; ``column`` counts characters. Says nothing about the values there."""

    line: int
    column: int
    what: str

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}: {self.what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The first line of a CSV file: the names of its columns, and what is between them."""

    names: tuple[str, ...]
    delimiter: str
    header: bool

    @property
    def like_data(self) -> tuple[int, ...]:
        """The columns, counted from 1, whose names look like values: perhaps the file has no line of names."""
        return like_values(self.names) if self.header else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What was found in a file: its faults, how many records there are, and how many bytes their fields have."""

    faults: tuple[CsvFault, ...]
    records: int
    content: int
    line_end: str


def open_csv(path: Path) -> IO[bytes]:
    """The bytes of a file, unpacked where its name says that it is packed."""
    return cast("IO[bytes]", gzip.open(path, "rb")) if path.suffix.lower() == ".gz" else path.open("rb")


def head_of(path: Path, *, delimiter: str | None, header: bool) -> Head:
    """The names of columns, from the first line alone; raises SourceError.

    A delimiter that isn't given is the one that stands in the line of names: a comma if there is one, else a semicolon,
    a tab or a bar. Columns without names are called column_1, column_2 and so on.
    """
    text = _first_record(path)
    usual = "\t" if path.name.lower().removesuffix(".gz").endswith(".tsv") else ","
    between = delimiter or (_delimiter_in(text, usual) if header else usual)
    try:
        names = next(csv.reader(io.StringIO(text, newline=""), delimiter=between, strict=True), [])
    except csv.Error:
        raise SourceError(
            f"{path}, line 1: a quote isn't closed, or something other than a delimiter stands behind one"
        ) from None
    if not header:
        if not names:
            raise SourceError(f"{path} is empty: without a line of names it needs at least one line of values")
        return Head(names=tuple(f"column_{place + 1}" for place in range(len(names))), delimiter=between, header=False)
    if not names or "" in names or len({name.lower() for name in names}) < len(names):
        raise SourceError(
            f"the first line of {path} must give every column a name of its own; if the file has no line of names, "
            "write header = false under [source] (dither init --no-header)"
        )
    if any("\n" in name or "\r" in name for name in names):
        raise SourceError(f"{path}, line 1: a name of a column has a line break in it")
    return Head(names=tuple(names), delimiter=between, header=True)


def _first_record(path: Path) -> str:
    text = b""
    try:
        with open_csv(path) as file:
            # a line feed in quotes isn't the end
            while (line := file.readline(LONGEST_RECORD)) and len(text) < LONGEST_RECORD:
                text += line
                if text.count(b'"') % 2 == 0:
                    break
        if text.startswith(_WIDE):
            raise SourceError(f"{path} is text in UTF-16: save it as UTF-8")
        found = text.removeprefix(_BOM).decode("utf-8")
    except (OSError, EOFError, zlib.error):
        raise SourceError(
            f"{path} can't be read: it may be damaged, or its name ends in .gz and it isn't packed"
        ) from None
    except UnicodeDecodeError:
        raise SourceError(f"{path} is not a text file in UTF-8 with the names of columns in its first line") from None
    if "\0" in found:
        raise SourceError(f"{path} has NUL bytes in its first line: if it is text in UTF-16, save it as UTF-8")
    if "\r" in found.rstrip("\r\n") and "\n" not in found:
        raise SourceError(f"the lines of {path} end in CR alone: save it with LF or CRLF")
    return found


def _delimiter_in(text: str, usual: str) -> str:
    outside = re.sub('"[^"]*"', "", text)
    return next((mark for mark in dict.fromkeys((usual, *DELIMITERS)) if mark in outside), usual)


def check_csv(path: Path, head: Head) -> Checked:
    """Look at the whole file: where it isn't RFC 4180, or has another number of fields than the first line.

    Lines end in LF or in CRLF, all of them alike; fields with quotes, delimiters or line breaks are quoted, and quotes
    in them doubled; text is UTF-8. Empty lines are let pass at the very end alone, if there are several columns.
    """
    look = _Look(len(head.names), head.delimiter)
    try:
        with open_csv(path) as file:
            for block in _blocks(file, look):
                look.at(block)
                if len(look.faults) >= MOST_FAULTS:
                    break
            else:
                look.at_end()
    except (EOFError, zlib.error, gzip.BadGzipFile):
        look.fault(look.line, 1, "the packed file is damaged, or ends too early")
    except OSError:
        raise SourceError(f"{path} can't be read any more") from None
    named = sum(len(name.encode()) for name in head.names) if head.header else 0
    return Checked(
        faults=tuple(sorted(look.faults)[:MOST_FAULTS]),
        records=look.records - head.header,
        content=look.content - named,
        line_end="\r\n" if look.crlf else "\n",
    )


def _blocks(file: IO[bytes], look: _Look) -> Iterator[bytes]:
    """The file in pieces that end behind a line feed, so that what stands next to a byte is in the same piece."""
    rest = file.read(len(_BOM)).removeprefix(_BOM)
    while more := file.read(_BLOCK):
        rest += more
        cut = rest.rfind(b"\n") + 1
        if cut:
            yield rest[:cut]
            rest = rest[cut:]
        elif len(rest) > LONGEST_RECORD:
            look.fault(look.line, 1, TOO_LONG)
            return
    if rest:
        # the last line may have no end; at the end of the file one more changes nothing
        yield rest if rest.endswith(b"\n") else rest + (b"\r\n" if look.crlf else b"\n")


class _Look:
    """What is known of a file up to some place in it."""

    def __init__(self, columns: int, delimiter: str) -> None:
        self.faults: list[CsvFault] = []
        self.records = self.content = 0
        self.crlf: bool | None = None
        self.line = 1
        self._columns = columns
        self._classes = np.zeros(256, dtype=np.uint8)
        for byte, kind in ((ord(delimiter), _DELIMITER), (_QUOTES, _QUOTE), (10, _LF), (13, _CR)):
            self._classes[byte] = kind
        self._before_a_quote, self._behind_a_quote = np.zeros(256, dtype=bool), np.zeros(256, dtype=bool)
        self._before_a_quote[[ord(delimiter), 10, _QUOTES]] = True
        self._behind_a_quote[[ord(delimiter), 10, 13, _QUOTES]] = True
        self._empty: list[int] = []
        self._mixed = False
        self._anew()

    def _anew(self) -> None:
        """At the beginning of a record: its line, its delimiters and bytes so far, and where a quote is open."""
        self._begun, self._delimiters, self._bytes = self.line, 0, 0
        self._opened: tuple[int, int] | None = None

    def fault(self, line: int, column: int, what: str) -> None:
        """Remember a fault."""
        self.faults.append(CsvFault(line, column, what))

    def at(self, block: bytes) -> None:
        """Look at the next piece of the file; behind a fault go on with the next line, as if a record began there."""
        while block and len(self.faults) < MOST_FAULTS:
            bad, what = _no_text(block)
            whole = block if bad is None else block[: block.rfind(b"\n", 0, bad) + 1]
            place = self._records(whole) if whole else None
            if place is None and bad is not None:
                # self.line is the line of the bad byte now
                self.fault(self.line, _column(block, bad), what)
                place = bad
            if place is None:
                return
            end = block.find(b"\n", place) + 1
            self.line += block.count(b"\n", len(whole) if place == bad else 0, end)
            self._anew()
            block = block[end:]

    def at_end(self) -> None:
        """Behind the last piece."""
        if self._opened is not None:
            self.fault(*self._opened, "the quote that is opened here is never closed")
        if self._columns == 1:
            # of one column an empty line may be a field without a value, and readers differ
            for line in self._empty[:MOST_FAULTS]:
                self.fault(line, 1, "the line is empty")

    def _records(self, block: bytes) -> int | None:
        """Look at records that are text; returns the place of a fault behind which nothing can be told."""
        data = np.frombuffer(block, dtype=np.uint8)
        kinds = self._classes[data]
        places = np.flatnonzero(kinds)
        kinds = kinds[places]
        quotes = kinds == _QUOTE
        after = (np.cumsum(quotes) + (self._opened is not None)) % 2 == 1
        before = after ^ quotes
        # a piece begins behind a line feed and ends with one
        previous = np.where(places > 0, data[places - 1], 10)
        following = data[np.minimum(places + 1, len(data) - 1)]
        opening = quotes & ~before
        wrong = opening & ~self._before_a_quote[previous]
        wrong |= quotes & before & ~self._behind_a_quote[following]
        wrong |= (kinds == _CR) & ~before & (following != 10)
        lines = self.line + np.cumsum(kinds == _LF) - (kinds == _LF)
        # where a quoted field begins, rather than the second of two quotes that stand for one
        begins = opening & (previous != _QUOTES)
        first = int(np.argmax(wrong)) if wrong.any() else None
        outside = ~before[:first]
        ends = np.flatnonzero((kinds[:first] == _LF) & outside)
        self._count(places[ends], np.cumsum((kinds[:first] == _DELIMITER) & outside)[ends], lines[ends], previous[ends])
        if first is not None:
            self._explain(block, int(places[first]), int(kinds[first]), int(lines[first]), opened=bool(before[first]))
            return int(places[first])
        marks = np.count_nonzero(~before & ~quotes) + np.count_nonzero(quotes) - np.count_nonzero(opening & ~begins)
        self.content += len(data) - int(marks)
        self.line = int(lines[-1]) + 1
        if not after[-1]:
            self._anew()
            return None
        # the piece ends in the middle of a quoted field
        if begins.any():
            last = int(np.flatnonzero(begins)[-1])
            self._opened = int(lines[last]), _column(block, int(places[last]))
        behind = int(ends[-1]) + 1 if ends.size else 0
        kept = 0 if ends.size else self._delimiters
        self._begun = int(lines[ends[-1]]) + 1 if ends.size else self._begun
        self._delimiters = kept + int(np.count_nonzero((kinds[behind:] == _DELIMITER) & ~before[behind:]))
        self._bytes = len(data) - int(places[ends[-1]]) - 1 if ends.size else self._bytes + len(data)
        if self._bytes > LONGEST_RECORD:
            self.fault(self._begun, 1, TOO_LONG)
            return len(data) - 1
        return None

    def _count(
        self, stops: Positions, delimiters: Positions, lines: Positions, previous: npt.NDArray[np.uint8]
    ) -> None:
        """Records that end in this piece: their fields, their lengths and how their lines end."""
        if not stops.size:
            return
        crlf = previous == 13
        lengths = np.diff(stops, prepend=-self._bytes - 1) - 1 - crlf
        fields = np.diff(delimiters, prepend=-self._delimiters) + 1
        begun = np.concatenate(([self._begun], lines[:-1] + 1))
        if self.crlf is None:
            self.crlf = bool(crlf[0])
        if not self._mixed and (crlf != self.crlf).any():
            # once is enough: usually there are many
            self._mixed = True
            ends = ("LF", "CRLF") if self.crlf else ("CRLF", "LF")
            self.fault(
                int(lines[np.argmax(crlf != self.crlf)]), 1, f"the line ends in {ends[0]}, the first in {ends[1]}"
            )
        full = lengths > 0
        if full.any():
            last = int(np.flatnonzero(full)[-1])
            for line in [*self._empty, *(int(one) for one in begun[:last][~full[:last]])][:MOST_FAULTS]:
                self.fault(line, 1, "the line is empty")
            self._empty = []
            full_to = last + 1
        else:
            full_to = 0
        self._empty += [int(one) for one in begun[full_to:][:MOST_FAULTS]]
        self.records += int(np.count_nonzero(full))
        for record in np.flatnonzero(full & (fields != self._columns))[:MOST_FAULTS]:
            self.fault(int(begun[record]), 1, f"{fields[record]} fields, and not {self._columns} as in the first line")
        for record in np.flatnonzero(lengths > LONGEST_RECORD)[:MOST_FAULTS]:
            self.fault(int(begun[record]), 1, TOO_LONG)

    def _explain(self, block: bytes, place: int, kind: int, line: int, *, opened: bool) -> None:
        column = _column(block, place)
        if kind == _CR:
            self.fault(line, column, "a carriage return that isn't part of a line end, outside of quotes")
        elif not opened:
            self.fault(line, column, "a quote in a field that isn't in quotes: quote the field, and double the quote")
        else:
            start = self._opening(block, place)
            if start[0] == line:
                self.fault(
                    line, column, "something other than a delimiter behind a quote: double a quote that is meant"
                )
            else:
                behind = f"line {line}, column {column}"
                self.fault(
                    *start, f"the quote that is opened here isn't closed, or at {behind}, in the midst of a field"
                )

    def _opening(self, block: bytes, place: int) -> tuple[int, int]:
        """Line and column of the quote that opened the field in which a quote stands."""
        inside = self._opened is not None
        found = self._opened or (self.line, 1)
        for match in re.finditer(b'"', block[:place]):
            inside = not inside
            at = match.start()
            if inside and block[at - 1 : at] != b'"':
                found = self.line + block.count(b"\n", 0, at), _column(block, at)
        return found


def _no_text(block: bytes) -> tuple[int | None, str]:
    """The place of the first byte that isn't text, and what it is."""
    nul = block.find(0)
    try:
        block.decode("utf-8")
    except UnicodeDecodeError as problem:
        if nul < 0 or problem.start < nul:
            return problem.start, "bytes that aren't UTF-8"
    return (None, "") if nul < 0 else (nul, "a NUL byte")


def _column(block: bytes, place: int) -> int:
    """Counted in characters, from 1."""
    before = block[block.rfind(b"\n", 0, place) + 1 : place]
    return len(before.decode("utf-8", "replace")) + 1
