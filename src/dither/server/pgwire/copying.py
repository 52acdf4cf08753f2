"""The rows of an answer as COPY … TO STDOUT writes them: text, CSV or binary."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import pyarrow as pa

from dither.server.pgwire import types
from dither.server.pgwire.commands import CopyOut
from dither.server.pgwire.errors import failure
from dither.server.pgwire.messages import message, row_body

BINARY_HEADER = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0)
BINARY_END = struct.pack("!h", -1)
ROWS_AT_ONCE = 1000
_ESCAPES = {
    ord("\\"): "\\\\",
    ord("\b"): "\\b",
    ord("\f"): "\\f",
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
    ord("\v"): "\\v",
}


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

    def start(self, columns: Sequence[types.Column]) -> bytes:
        """What comes before the first row."""
        if self._format == "binary":
            return BINARY_HEADER
        return self._line([column.name for column in columns], header=True) if self._header else b""

    def rows(self, table: pa.Table, columns: Sequence[types.Column]) -> Iterator[bytes]:
        """CopyData messages, one for each row, in parts that don't take long each."""
        before = self.start(columns)
        for start in range(0, table.num_rows, ROWS_AT_ONCE):
            part = table.slice(start, ROWS_AT_ONCE)
            cells = [
                types.encoded_column(part.column(index), column.oid, self.form) for index, column in enumerate(columns)
            ]
            found = [message(b"d", self._row(row)) for row in zip(*cells, strict=True)]
            if before:
                # a binary header comes in the first row's message, as PostgreSQL sends it: some clients rely on that
                first = self._row(tuple(column[0] for column in cells))
                found[:1] = [message(b"d", before + first)] if self.form else [message(b"d", before), found[0]]
                before = b""
            yield b"".join(found)
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
        escaped = cell.translate(_ESCAPES)
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
