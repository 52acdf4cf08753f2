"""The messages of the protocol: those of clients taken apart and checked, those of the server put together.

Formats are in chapter "Frontend/Backend Protocol" of PostgreSQL's manual. Whatever doesn't follow them raises
``ProtocolError``; nothing of its content is repeated in the error.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

PROTOCOL_3_0 = 3 << 16
CANCEL_REQUEST = 80877102
SSL_REQUEST = 80877103
GSSENC_REQUEST = 80877104
_INT16, _INT32 = struct.Struct("!h"), struct.Struct("!i")
_UINT16 = struct.Struct("!H")
_NULL = _INT32.pack(-1)


class ProtocolError(Exception):
    """A client doesn't keep to the protocol; the connection can't go on."""


class NotUtf8(ProtocolError):  # noqa: N818
    """A text in another encoding, in a message that is in order otherwise."""


class WrongFormats(ProtocolError):  # noqa: N818
    """Formats that there aren't, or too many or too few of them, in a message that is in order otherwise."""

    def __init__(self, sqlstate: str, what: str) -> None:
        self.sqlstate = sqlstate
        super().__init__(what)


# ---------------------------------------------------------------------- messages of clients


@dataclass(frozen=True, slots=True, kw_only=True)
class Parse:
    """Prepare a statement under a name, with the types of its parameters where the client knows them (else 0)."""

    name: str
    sql: str
    types: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bind:
    """Give the parameters of a prepared statement their values; the result is a portal."""

    portal: str
    statement: str
    formats: tuple[int, ...]
    values: tuple[bytes | None, ...]
    results: tuple[int, ...]


class _Fields:
    """Reads the fields of one message in order."""

    def __init__(self, body: bytes) -> None:
        self._body, self._at = body, 0

    def take(self, size: int) -> bytes:
        if size < 0 or self._at + size > len(self._body):
            raise ProtocolError("a message is shorter than its fields")
        self._at += size
        return self._body[self._at - size : self._at]

    def number(self, form: struct.Struct) -> int:
        value: int = form.unpack(self.take(form.size))[0]
        return value

    def count(self) -> int:
        return self.number(_UINT16)

    def text(self) -> str:
        end = self._body.find(b"\0", self._at)
        if end < 0:
            raise ProtocolError("a text in a message has no end")
        raw = self.take(end - self._at)
        self._at += 1
        return decoded(raw)

    def formats(self) -> tuple[int, ...]:
        return tuple(self.number(_INT16) for _ in range(self.count()))

    def end(self) -> None:
        if self._at != len(self._body):
            raise ProtocolError("a message is longer than its fields")


def decoded(raw: bytes) -> str:
    """UTF-8 text."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        pass
    raise NotUtf8("a text isn't UTF-8, the only encoding of this server")


def read_query(body: bytes) -> str:
    """The text of a simple query."""
    fields = _Fields(body)
    sql = fields.text()
    fields.end()
    return sql


def read_parse(body: bytes) -> Parse:
    """The fields of Parse."""
    fields = _Fields(body)
    name, sql = fields.text(), fields.text()
    types = tuple(fields.number(_INT32) & 0xFFFFFFFF for _ in range(fields.count()))
    fields.end()
    return Parse(name=name, sql=sql, types=types)


def read_bind(body: bytes) -> Bind:
    """The fields of Bind."""
    fields = _Fields(body)
    portal, statement, formats = fields.text(), fields.text(), fields.formats()
    values: list[bytes | None] = []
    for _ in range(fields.count()):
        size = fields.number(_INT32)
        if size < -1:
            raise ProtocolError("a value has a negative length")
        values.append(None if size == -1 else fields.take(size))
    results = fields.formats()
    fields.end()
    # only now, when all of the message was read
    if any(each not in (0, 1) for each in formats + results):
        raise WrongFormats("22023", "a format is 0 (text) or 1 (binary)")
    if len(formats) not in (0, 1, len(values)):
        raise WrongFormats("08P01", f"there are {len(formats)} formats for {len(values)} values")
    return Bind(portal=portal, statement=statement, formats=formats, values=tuple(values), results=results)


def read_named(body: bytes) -> tuple[bool, str]:
    """What Describe and Close are about: whether it is a portal, not a prepared statement, and its name."""
    fields = _Fields(body)
    kind = fields.take(1)
    if kind not in (b"S", b"P"):
        raise ProtocolError("only statements (S) and portals (P) have names")
    name = fields.text()
    fields.end()
    return kind == b"P", name


def read_execute(body: bytes) -> tuple[str, int]:
    """The portal to run or to go on with, and at most how many rows; 0 means all."""
    fields = _Fields(body)
    portal, rows = fields.text(), fields.number(_INT32)
    fields.end()
    return portal, max(rows, 0)


def read_startup(body: bytes) -> dict[str, str]:
    """The settings in a startup message: pairs of texts and an empty text."""
    fields, found = _Fields(body), {}
    while name := fields.text():
        found[name] = fields.text()
    fields.end()
    return found


def read_sasl_first(body: bytes) -> tuple[str, bytes | None]:
    """The mechanism that a client chose, and its first message."""
    fields = _Fields(body)
    mechanism, size = fields.text(), fields.number(_INT32)
    first = None if size == -1 else fields.take(size)
    fields.end()
    return mechanism, first


# ---------------------------------------------------------------------- messages of the server


def message(kind: bytes, *parts: bytes) -> bytes:
    """A message: its letter, its length and its content."""
    body = b"".join(parts)
    return kind + _INT32.pack(len(body) + 4) + body


def cstring(text: str) -> bytes:
    """A text with its end; a NUL inside would end it early, and is shown as a sign."""
    return text.encode("utf-8", "replace").replace(b"\0", b"\xef\xbf\xbd") + b"\0"


PARSE_COMPLETE = message(b"1")
BIND_COMPLETE = message(b"2")
CLOSE_COMPLETE = message(b"3")
NO_DATA = message(b"n")
EMPTY_QUERY = message(b"I")
PORTAL_SUSPENDED = message(b"s")
COPY_DONE = message(b"c")
SYNC = message(b"S")
AUTHENTICATION_OK = message(b"R", _INT32.pack(0))


def sasl(kind: int, content: bytes) -> bytes:
    """AuthenticationSASL (10: the mechanisms), SASLContinue (11) or SASLFinal (12)."""
    return message(b"R", _INT32.pack(kind), content)


def negotiate_version(unknown: Sequence[str]) -> bytes:
    """NegotiateProtocolVersion: the newest that is spoken here, and the options that aren't known."""
    return message(b"v", _INT32.pack(PROTOCOL_3_0), _INT32.pack(len(unknown)), *map(cstring, unknown))


def parameter_status(name: str, value: str) -> bytes:
    """ParameterStatus: a setting that clients may rely on."""
    return message(b"S", cstring(name), cstring(value))


def key_data(process: int, secret: int) -> bytes:
    """BackendKeyData: what a client must show to cancel."""
    return message(b"K", struct.pack("!iI", process, secret))


def ready(status: bytes) -> bytes:
    """ReadyForQuery with the state of the transaction: I, T or E."""
    return message(b"Z", status)


def complete(tag: str) -> bytes:
    """CommandComplete."""
    return message(b"C", cstring(tag))


def report(kind: bytes, fields: Mapping[str, str]) -> bytes:
    """ErrorResponse (E) or NoticeResponse (N): fields by their letters, those that are empty left out."""
    parts = [letter.encode() + cstring(value) for letter, value in fields.items() if value]
    return message(kind, *parts, b"\0")


def parameter_description(types: Sequence[int]) -> bytes:
    """ParameterDescription."""
    return message(b"t", _UINT16.pack(len(types)), *(struct.pack("!I", each) for each in types))


def row_description(columns: Iterable[tuple[str, int, int, int]]) -> bytes:
    """RowDescription of (name, type, size of the type, format)."""
    parts = [cstring(name) + struct.pack("!iHIhih", 0, 0, oid, size, -1, form) for name, oid, size, form in columns]
    return message(b"T", _UINT16.pack(len(parts)), *parts)


def row_body(values: Iterable[bytes | None], count: int) -> bytes:
    """The number of values, and each with its length: a DataRow's content, and a row of a binary copy."""
    parts = [_INT16.pack(count)]
    for value in values:
        if value is None:
            parts.append(_NULL)
        else:
            parts += (_INT32.pack(len(value)), value)
    return b"".join(parts)


def copy_out(columns: int, form: int) -> bytes:
    """CopyOutResponse: how many columns follow, in text (0) or binary (1)."""
    return message(b"H", struct.pack("!bH", form, columns), _INT16.pack(form) * columns)
