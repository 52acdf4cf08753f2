"""Prepared statements and portals: what a client named, and answers that are kept until it has read them.

A portal runs at most once. Its answer stays with it, so that fetching in parts, moving back and forth or executing
again asks nothing again. Cursors are portals too, as in PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from dither.server.pgwire.protocol import types
from dither.server.pgwire.protocol.errors import failure
from dither.server.pgwire.protocol.messages import message, row_body, row_description
from dither.server.pgwire.sql.commands import Fetch
from dither.server.pgwire.sql.parameters import BoundText, Placeholder
from dither.server.pgwire.sql.routing import Statement

_PER_TYPE = 8
# How many characters of statements, with their values, and bytes of answers a session may hold.
MOST_CHARACTERS = 8_000_000
MOST_BYTES = 64_000_000


@dataclass(slots=True)
class ToldColumns:
    """The columns that a client knows the rows of a statement by; None before anything was described.

    A client may read every later answer of the statement by them, so their types stay, as they do in PostgreSQL.
    """

    columns: tuple[types.WireColumn, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedStatement:
    """A statement that is ready to be given values. ``relayed`` says that the shadow holds it, under the same name.

    ``told`` is shared with its portals.
    """

    statement: Statement
    places: tuple[Placeholder, ...] = ()
    types: tuple[int, ...] = ()
    relayed: bool = False
    told: ToldColumns = field(default_factory=ToldColumns)

    @property
    def characters(self) -> int:
        """How much is held for it: its text, and the numbers of its types."""
        return len(self.statement.sql) + len(self.statement.question) + _PER_TYPE * len(self.types)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRows:
    """A result with rows; ``word`` is what its completion says before their number.

    ``binary`` says that they are binary where a client can't ask for a format, in the simple protocol.
    """

    table: pa.Table
    columns: tuple[types.WireColumn, ...]
    word: str
    binary: bool = False


@dataclass(slots=True, kw_only=True)
class Portal:
    """A statement with its values, and its answer once it ran; ``place`` is the row that was read last, from 1.

    ``columns`` are those of its own values, once they were looked up, and ``told`` those that the client knows;
    ``formats`` are those that it wants them in. ``cursor`` says that a DECLARE made it, and its question is the
    DECLARE's; ``binary`` that its rows are.
    """

    statement: Statement
    bound: BoundText
    kinds: tuple[int, ...] = ()
    formats: tuple[int, ...] = ()
    relayed: bool = False
    cursor: bool = False
    hold: bool = False
    binary: bool = False
    told: ToldColumns = field(default_factory=ToldColumns)
    columns: tuple[types.WireColumn, ...] | None = None
    rows: ResultRows | None = None
    ran: bool = False
    place: int = 0

    @property
    def characters(self) -> int:
        """How much is held for it; its statement may be closed before it is."""
        text = len(self.bound.text) + len(self.statement.sql) + len(self.statement.question)
        return text + _PER_TYPE * (len(self.kinds) + len(self.formats))

    @property
    def fetched(self) -> ResultRows:
        """The kept answer."""
        assert self.rows is not None, "rows are read after the portal ran"
        return self.rows

    def forward(self, count: int) -> pa.Table:
        """The next rows, at most ``count``; 0 is all."""
        return self.move(Fetch(name="", move=False, direction="forward", count=count or None))

    def move(self, wanted: Fetch) -> pa.Table:
        """The rows that a FETCH gives, in its order; the place moves on."""
        total = self.fetched.table.num_rows
        wanted_rows, place = _span(wanted, self.place, total)
        self.place = min(max(place, 0), total + 1)
        if wanted_rows.step > 0:
            return self.fetched.table.slice(wanted_rows.start - 1, len(wanted_rows))
        return self.fetched.table.take(pa.array([row - 1 for row in wanted_rows], pa.int64()))


def _span(wanted: Fetch, place: int, total: int) -> tuple[range, int]:
    """The rows of a FETCH, from 1, in its order, and the new place; 0 is before the first row."""
    direction, count = wanted.direction, wanted.count
    if direction in ("forward", "backward") and count is not None and count < 0:
        direction, count = ("backward" if direction == "forward" else "forward"), -count
    if direction in ("absolute", "relative") or count == 0:
        steps = count or 0
        if direction == "absolute":
            place = steps if steps >= 0 else total + 1 + steps
        else:
            place += steps
        return range(place, place + 1) if 1 <= place <= total else range(1, 1), place
    if direction == "forward":
        end = total + 1 if count is None else place + count
        first = min(place, total) + 1
        return range(first, max(min(end, total) + 1, first)), end
    end = 0 if count is None else place - count
    return range(min(place - 1, total), max(end, 1) - 1, -1), end


def formats_of(formats: Sequence[int], count: int) -> tuple[int, ...]:
    """The format of each column: none given is text, one is for all."""
    if len(formats) <= 1:
        return tuple(formats or (0,)) * count
    if len(formats) != count:
        raise failure("08P01", f"there are {len(formats)} result formats for {count} columns")
    return tuple(formats)


def description(columns: Sequence[types.WireColumn], formats: Sequence[int]) -> bytes:
    """RowDescription."""
    forms = formats_of(formats, len(columns))
    return row_description(
        (column.name, column.oid, column.size, form) for column, form in zip(columns, forms, strict=True)
    )


def data_rows(table: pa.Table, columns: Sequence[types.WireColumn], formats: Sequence[int]) -> Iterator[bytes]:
    """DataRow messages of a table, in parts that don't take long each."""
    forms = formats_of(formats, len(columns))
    for rows in types.encoded_rows(table, columns, forms):
        yield b"".join(message(b"D", row_body(row, len(columns))) for row in rows)


@dataclass(slots=True)
class Names:
    """The prepared statements and portals of one session; their number is limited."""

    most: int
    statements: dict[str, PreparedStatement] = field(default_factory=dict)
    portals: dict[str, Portal] = field(default_factory=dict)

    def prepare(self, name: str, prepared: PreparedStatement) -> None:
        """Keep a statement."""
        self.expect_free(name)
        self._expect_room(len(self.statements), prepared.characters + len(name))
        self.statements[name] = prepared

    def open(self, name: str, portal: Portal) -> None:
        """Keep a portal; only the one without a name may be replaced."""
        if name in self.portals and name:
            raise failure("42P03", "a cursor or portal of this name already exists")
        self._expect_room(len(self.portals), portal.characters + len(name))
        if sum(each.rows.table.nbytes for each in self.portals.values() if each.rows is not None) > MOST_BYTES:
            raise failure("53400", f"a session may hold {MOST_BYTES} bytes of answers", hint="Close cursors first.")
        self.portals[name] = portal

    def _expect_room(self, number: int, characters: int) -> None:
        if number >= self.most:
            raise failure("53400", f"a session may hold {self.most} statements and portals", hint="Close some first.")
        groups: tuple[dict[str, PreparedStatement] | dict[str, Portal], ...] = (self.statements, self.portals)
        held = sum(len(name) + each.characters for group in groups for name, each in group.items())
        if held + characters > MOST_CHARACTERS:
            title = f"the statements and portals of a session may have {MOST_CHARACTERS} characters together"
            raise failure("53400", title, hint="Close some first.")

    def statement(self, name: str) -> PreparedStatement:
        """A statement by its name."""
        found = self.statements.get(name)
        if found is None:
            raise failure("26000", "there is no prepared statement of this name")
        return found

    def is_foreign(self, name: str) -> bool:
        """Whether a statement is the shadow's, or nobody's."""
        held = self.statements.get(name)
        return held is None or held.relayed

    def expect_free(self, name: str) -> None:
        """Refuse a statement's name that is taken; only the one without a name may be replaced."""
        if name in self.statements and name:
            raise failure("42P05", "a prepared statement of this name already exists")

    def portal(self, name: str) -> Portal:
        """A portal by its name."""
        found = self.portals.get(name)
        if found is None:
            raise failure("34000", "there is no cursor or portal of this name")
        return found

    def end_transaction(self) -> None:
        """Portals end with their transaction, but for cursors WITH HOLD."""
        self.portals = {name: portal for name, portal in self.portals.items() if portal.hold}
