"""COPY … TO STDOUT: what is copied and with which options, and the rows as text, CSV or binary."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from dither.server.pgwire.protocol import types
from dither.server.pgwire.protocol.errors import failure
from dither.server.pgwire.protocol.messages import message, row_body
from dither.server.pgwire.sql.commands import CopyOut, Format, UnreadableStatement, Words
from dither.server.pgwire.sql.lexer import Word, WordKind

_FORMATS: dict[str, Format] = {"text": "text", "csv": "csv", "binary": "binary"}
_TRUE = ("TRUE", "ON", "1")
_FALSE = ("FALSE", "OFF", "0")
_UTF8 = ("utf8", "utf-8", "unicode")
_ESCAPES = {"\\t": "\t", "\\\\": "\\"}
_ALONE: dict[str, dict[str, Any]] = {
    "CSV": {"format": "csv"},
    "BINARY": {"format": "binary"},
    "HEADER": {"header": True},
}
_OLD = ("BINARY", "CSV", "HEADER", "DELIMITER", "NULL", "QUOTE", "ESCAPE", "FORCE", "ENCODING")
_KNOWN = "Use FORMAT, HEADER, DELIMITER, NULL, QUOTE, ESCAPE or FORCE_QUOTE."


def read_copy(words: Words) -> tuple[list[Word], CopyOut | None]:
    """The query of a COPY, empty where a table is named in its place, and how rows are written to the client.

    Options are read only where a query is copied to the client; None is elsewhere.
    """
    if words.next is None or not words.next.is_symbol("("):
        return [], None
    closing, question = words.rest[1:2], words.inside()
    if not question:
        raise UnreadableStatement(
            "there is no query between the parentheses", "Write COPY (SELECT …) TO STDOUT.", closing[0]
        )
    words.expect("TO", "Write COPY (SELECT …) TO STDOUT.")
    return question, _options(words) if words.take("STDOUT") else None


def _options(words: Words) -> CopyOut:
    words.take("WITH")
    options = CopyOut()
    if not words.take_symbol("("):
        # as they were written before PostgreSQL 9.0, and as people still type them
        while old := words.take(*_OLD):
            words.take("AS")
            if old == "FORCE":
                words.take("QUOTE")
                old = "FORCE_QUOTE"
            options = replace(options, **_ALONE[old]) if old in _ALONE else _with(options, old, words)
        words.end()
        return options
    while True:
        word = words.any()
        if word.keyword not in (*_OLD, "FORMAT", "FORCE_QUOTE") or word.keyword in ("BINARY", "CSV", "FORCE"):
            raise UnreadableStatement("this option of COPY isn't known", _KNOWN, word)
        options = _with(options, word.keyword, words)
        if words.take_symbol(")"):
            break
        if not words.take_symbol(","):
            raise UnreadableStatement("a comma was expected between options", "Write (FORMAT csv, HEADER).", words.next)
    words.end()
    return options


def _with(options: CopyOut, name: str, words: Words) -> CopyOut:
    if name not in _OPTIONS:
        _expect_utf8(words.any())
        return options
    field, read = _OPTIONS[name]
    changed: dict[str, Any] = {field: read(words)}
    return replace(options, **changed)


def _format(words: Words) -> Format:
    word = words.any()
    found = _FORMATS.get(word.value.lower())
    if found is None or word.kind not in (WordKind.WORD, WordKind.STRING, WordKind.QUOTED):
        raise UnreadableStatement("this format isn't known", "Use text, csv or binary.", word)
    return found


def _switch(words: Words) -> bool:
    word = words.next
    if word is None or word.kind is WordKind.SYMBOL:
        return True
    words.any()
    if word.value.upper() in _TRUE:
        return True
    if word.value.upper() in _FALSE:
        return False
    raise UnreadableStatement("HEADER is true or false here", "Write HEADER or HEADER false.", word)


def _text(words: Words) -> str:
    word = words.any()
    if word.kind is not WordKind.STRING:
        raise UnreadableStatement("a text in quotes was expected here", "Put it between single quotes.", word)
    # E'\t' is how people write a tab
    return _ESCAPES.get(word.value, word.value)


def _every_column(words: Words) -> bool:
    if words.take_symbol("*"):
        return True
    raise UnreadableStatement("FORCE_QUOTE needs *", "Write FORCE_QUOTE *.", words.next)


def _expect_utf8(word: Word) -> None:
    if word.value.lower() not in _UTF8:
        raise UnreadableStatement("answers are written in UTF-8", "Leave ENCODING out.", word)


# the field that each option fills, and what reads it
_OPTIONS: dict[str, tuple[str, Callable[[Words], object]]] = {
    "FORMAT": ("format", _format),
    "HEADER": ("header", _switch),
    **{name: (name.lower(), _text) for name in ("DELIMITER", "NULL", "QUOTE", "ESCAPE")},
    "FORCE_QUOTE": ("force_quote_all", _every_column),
}


# ---------------------------------------------------------------------- rows

BINARY_HEADER = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0)
BINARY_END = struct.pack("!h", -1)
_TEXT_ESCAPES = str.maketrans(
    {"\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
)


class CopyWriter:
    """Writes rows in one format; checked when it is made, before a question is asked."""

    def __init__(self, options: CopyOut) -> None:
        csv = options.format == "csv"
        self._format, self._header, self._quote_all = options.format, options.header, options.force_quote_all
        self._delimiter = options.delimiter if options.delimiter is not None else ("," if csv else "\t")
        self._null = options.null if options.null is not None else ("" if csv else "\\N")
        self._quote = options.quote if options.quote is not None else '"'
        self._escape = options.escape if options.escape is not None else self._quote
        self._check(options)

    def _check(self, options: CopyOut) -> None:
        if options.format == "binary":
            if options.header or options.delimiter is not None or options.null is not None:
                raise failure("42601", "a binary COPY has no header, delimiter or null")
            return
        if options.format != "csv" and (options.quote is not None or options.escape is not None):
            raise failure("0A000", "only a CSV COPY has a quote and an escape")
        for name, mark in (("delimiter", self._delimiter), ("quote", self._quote), ("escape", self._escape)):
            if len(mark) != 1 or not mark.isascii() or mark in "\r\n\0":
                raise failure("0A000", f"the {name} of COPY must be a single one-byte character")
        forbidden = "\\.abcdefghijklmnopqrstuvwxyz0123456789"
        if self._format == "text" and self._delimiter in forbidden:
            raise failure("22023", "this character can't be the delimiter of COPY")
        if self._format == "csv" and self._delimiter == self._quote:
            raise failure("22023", "the delimiter and the quote of COPY must differ")
        if any(mark in self._null for mark in "\r\n") or self._delimiter in self._null:
            raise failure("22023", "the null of COPY can't hold the delimiter or the end of a line")

    @property
    def form(self) -> int:
        """The format on the wire: 1 for binary."""
        return 1 if self._format == "binary" else 0

    def start(self, columns: Sequence[types.WireColumn]) -> bytes:
        """What comes before the first row."""
        if self._format == "binary":
            return BINARY_HEADER
        return self._line([column.name for column in columns], header=True) if self._header else b""

    def rows(self, table: pa.Table, columns: Sequence[types.WireColumn]) -> Iterator[bytes]:
        """CopyData messages, one for each row, in parts that don't take long each."""
        before = self.start(columns)
        for rows in types.encoded_rows(table, columns, [self.form] * len(columns)):
            found = [self._row(row) for row in rows]
            if before and self.form:
                # a binary header comes in the first row's message, as PostgreSQL sends it: some clients rely on that
                found[0] = before + found[0]
            elif before:
                found.insert(0, before)
            before = b""
            yield b"".join(message(b"d", each) for each in found)
        end = BINARY_END if self.form else b""
        if before or end:
            yield message(b"d", before + end)

    def _row(self, cells: Sequence[bytes | None]) -> bytes:
        if self.form:
            return row_body(cells, len(cells))
        return self._line([None if cell is None else cell.decode() for cell in cells])

    def _line(self, cells: Sequence[str | None], *, header: bool = False) -> bytes:
        write = self._csv if self._format == "csv" else self._text
        alone = len(cells) == 1
        return (self._delimiter.join(write(cell, header=header, alone=alone) for cell in cells) + "\n").encode()

    def _text(self, cell: str | None, *, header: bool, alone: bool) -> str:  # noqa: ARG002 - the same for all formats
        if cell is None:
            return self._null
        escaped = cell.translate(_TEXT_ESCAPES)
        return escaped.replace(self._delimiter, "\\" + self._delimiter) if self._delimiter != "\t" else escaped

    def _csv(self, cell: str | None, *, header: bool, alone: bool) -> str:
        if cell is None:
            return self._null
        needed = (
            cell == self._null
            or (alone and cell == "\\.")
            or any(mark in cell for mark in (self._delimiter, self._quote, "\n", "\r"))
        )
        if not needed and (header or not self._quote_all):
            return cell
        escaped = cell
        if self._escape != self._quote:
            escaped = escaped.replace(self._escape, self._escape * 2)
        return self._quote + escaped.replace(self._quote, self._escape + self._quote) + self._quote
