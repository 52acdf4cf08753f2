"""The shadow PostgreSQL: it answers whatever isn't about data, and holds no row of any table.

Clients ask a PostgreSQL server for its catalogue, its settings and its version in a thousand ways. A real one answers
them best. Messages pass through as they are, so types and formats are PostgreSQL's own. Long replies pass in parts:
none is held whole, and PostgreSQL waits while a client doesn't read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from dither.policy import Policy
from dither.server.auth.identity import Identity
from dither.server.pgwire.catalogue.shadow_process import SUPERUSER, ShadowFailed, ShadowLimits, ShadowProcess
from dither.server.pgwire.catalogue.shadow_schema import database_of, make_contents, make_database, make_role, role_of
from dither.server.pgwire.protocol.connection import Gone
from dither.server.pgwire.protocol.messages import CANCEL_REQUEST, PROTOCOL_3_0, cstring, message
from dither.server.pgwire.sql.settings import PASSED_ON, is_iso
from dither.server.problems import ServerProblem, ServerRefusal

LOG = logging.getLogger("dither.server")
_HEADER = struct.Struct("!ci")
# What ends the reply to each message, if it doesn't fail.
_ENDS = {b"P": b"1", b"B": b"2", b"D": b"Tn", b"E": b"CIs", b"C": b"3"}
_CLEANING_UP = 5.0
# How much of a reply is held before it is passed on, and looked through before others have a turn.
_PART = 16_384
# Seconds between checks whether it is still the client that keeps a reply waiting.
_GLANCE = 0.1
# the name of statements and portals that aren't the client's
_OURS = "dither: views"

GONE = ServerProblem(
    code="shadow_gone",
    title="the catalogue's PostgreSQL has stopped and starts again",
    hint="Connect again; questions aren't affected.",
)
TOO_LONG = ServerProblem(
    code="took_too_long",
    title="the statement takes too long",
    hint="Only questions about the data are worth long waits; this one reads empty tables.",
)
TOO_MUCH = ServerProblem(code="too_much", title="the reply is too long", hint="Add LIMIT or a condition.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What PostgreSQL said, without ReadyForQuery, and whether it was an error.

    ``messages`` are ready to be sent on: whole ones, but for what was passed on before.
    """

    messages: bytes
    failed: bool


# Passes on part of a reply; it may wait until the client has read.
Passing: TypeAlias = Callable[[bytes], Awaitable[None]]


class ShadowConnection:
    """One client's connection to the shadow, under the role of an analyst."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, socket: str, limits: ShadowLimits
    ) -> None:
        self._reader, self._writer, self._socket, self._limits = reader, writer, socket, limits
        self._key = b""
        # what came and wasn't looked at; whether a client has got part of a message; how long it took to read
        self._came, self._torn = bytearray(), False
        self._reading_since: float | None = None
        self._read_for = 0.0
        self.parameters: dict[str, str] = {}
        self.status = b"I"
        self.closed = False

    @classmethod
    async def open(
        cls, socket: str, *, user: str, database: str, parameters: Mapping[str, str], limits: ShadowLimits
    ) -> ShadowConnection:
        """Connect and sign in; raises OSError if nothing listens and ServerRefusal if PostgreSQL says no."""
        reader, writer = await asyncio.open_unix_connection(socket)
        connection = cls(reader, writer, socket=socket, limits=limits)
        try:
            await connection._sign_in({"user": user, "database": database, **parameters})
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _sign_in(self, startup: Mapping[str, str]) -> None:
        fields = b"".join(cstring(key) + cstring(value) for key, value in startup.items()) + b"\0"
        self._writer.write(struct.pack("!ii", len(fields) + 8, PROTOCOL_3_0) + fields)
        async with asyncio.timeout(self._limits.seconds):
            while True:
                kind, body = await self._read()
                if kind == b"S":
                    key, value = body.split(b"\0")[:2]
                    self.parameters[key.decode()] = value.decode()
                elif kind == b"K":
                    self._key = body
                elif kind == b"E":
                    raise ServerRefusal(_problem(body))
                elif kind == b"Z":
                    return

    # ------------------------------------------------------------------ statements

    async def simple(self, sql: str, *, to: Passing | None = None) -> Reply:
        """The replies to a simple query; what is long is passed on in parts, if it says to whom."""
        return await self._relay(message(b"Q", cstring(sql)), ends=b"Z", to=to)

    async def extended(self, sent: bytes, *, to: Passing | None = None) -> Reply:
        """The reply to one Parse, Bind, Describe, Execute or Close; if it fails, the connection is synced too."""
        ends = _ENDS.get(sent[:1])
        if ends is None:
            raise ServerRefusal(ServerProblem(code="protocol", title="an unexpected message"))
        return await self._relay(sent + message(b"H"), ends=ends, to=to)

    async def sync(self) -> None:
        """End a sequence of extended messages, and with it the transaction that PostgreSQL opened for it."""
        await self._relay(message(b"S"), ends=b"Z")

    async def put(self, sql: str) -> None:
        """Run a statement of the server's own, also between a client's extended messages; what it says is dropped."""
        name = cstring(_OURS)
        for kind, body in (
            (b"P", name + cstring(sql) + b"\0\0"),
            (b"B", name + name + bytes(6)),
            (b"E", name + bytes(4)),
            (b"C", b"P" + name),
            (b"C", b"S" + name),
        ):
            reply = await self.extended(message(kind, body))
            if reply.failed:
                return

    async def _relay(self, sent: bytes, *, ends: bytes, to: Passing | None = None) -> Reply:
        if self.closed:
            raise ServerRefusal(GONE)
        try:
            self._send(sent)
            return await self._patiently(ends, to)
        except (OSError, EOFError):
            problem = ServerRefusal(GONE)
        except ServerRefusal as refusal:
            problem = refusal
        except BaseException:
            # what is left of the reply would be taken for the next one's
            await self.close()
            raise
        await self.close()
        if self._torn:
            # an error would be taken for the rest of the message that the client is reading
            raise Gone
        raise problem

    async def _patiently(self, ends: bytes, to: Passing | None) -> Reply:
        """The reply; a statement that turned PostgreSQL's own time limit off is cancelled from outside."""
        self._read_for = 0.0
        began, seconds = time.monotonic(), self._limits.seconds + 1
        reply = asyncio.ensure_future(self._reply(ends, to))
        try:
            if not await self._came_in(reply, seconds, began):
                await self.cancel()
                if not await self._came_in(reply, seconds + _CLEANING_UP, began):
                    raise ServerRefusal(TOO_LONG)
            return reply.result()
        finally:
            if not reply.done():
                reply.cancel()
                await asyncio.wait([reply])
            if not reply.cancelled():
                # retrieved, so that asyncio doesn't log it as never retrieved
                reply.exception()

    async def _came_in(self, reply: asyncio.Future[Reply], seconds: float, began: float) -> bool:
        """Whether the reply came so soon after it began; the time that the client took to read doesn't count."""
        while not reply.done():
            now = time.monotonic()
            reading = self._read_for + (0.0 if self._reading_since is None else now - self._reading_since)
            left = began + seconds + reading - now
            if left <= 0:
                return False
            await asyncio.wait([reply], timeout=max(left, _GLANCE))
        return True

    async def _reply(self, ends: bytes, to: Passing | None) -> Reply:
        messages, failed, taken = bytearray(), False, 0
        meaning = frozenset(b"ZGE" + ends)
        while True:
            size = self._without(meaning)
            if size:
                taken += size
                messages += await self._take(size)
            if to is not None and len(messages) > _PART and not failed:
                await self._pass_on(messages, to)
            kind, size = await self._header()
            taken += size
            if taken > self._limits.largest_reply:
                raise ServerRefusal(TOO_MUCH)
            if kind == b"Z":
                self.status = (await self._take(size))[5:]
                if ends == b"Z" or failed:
                    return Reply(messages=bytes(messages), failed=failed)
                continue
            if kind == b"G":
                await self._take(size)
                # nobody can write here, so nothing that the client sends would be taken
                self._send(message(b"f", cstring("the tables can't be written")))
                continue
            if to is None or size <= _PART:
                messages += await self._take(size)
            else:
                await self._pass_on(messages, to)
                await self._pass_pieces(size, to)
            if kind == b"E":
                failed = True
                if ends != b"Z":
                    self._send(message(b"S"))
            elif kind in ends and not failed:
                return Reply(messages=bytes(messages), failed=False)

    def _without(self, meaning: frozenset[int]) -> int:
        """How many bytes of whole messages came of which none has a kind that means something here."""
        came, at = self._came, 0
        while at < _PART and at + _HEADER.size <= len(came) and came[at] not in meaning:
            end = at + 1 + int.from_bytes(came[at + 1 : at + 5], "big")
            if end > len(came):
                break
            at = end
        return at

    async def _pass_pieces(self, size: int, to: Passing) -> None:
        """Pass on a message that is too long to be held."""
        self._torn = True
        while size:
            if not self._came:
                await self._more()
            piece = self._came[:size]
            del self._came[:size]
            size -= len(piece)
            await self._pass_on(piece, to)
        self._torn = False

    async def _pass_on(self, part: bytearray, to: Passing) -> None:
        content = bytes(part)
        part.clear()
        self._reading_since = time.monotonic()
        try:
            await to(content)
        finally:
            self._read_for += time.monotonic() - self._reading_since
            self._reading_since = None

    def _send(self, messages: bytes) -> None:
        try:
            self._writer.write(messages)
        except RuntimeError:
            # uvloop raises here; asyncio's own loop doesn't
            raise ConnectionResetError from None

    async def _read(self) -> tuple[bytes, bytes]:
        kind, size = await self._header()
        if size > self._limits.largest_reply:
            raise ServerRefusal(TOO_MUCH)
        return kind, (await self._take(size))[5:]

    async def _header(self) -> tuple[bytes, int]:
        """The letter of the next message and its size, the header's included."""
        while len(self._came) < _HEADER.size:
            await self._more()
        kind, length = _HEADER.unpack_from(self._came)
        return kind, length + 1

    async def _take(self, size: int) -> bytes:
        while len(self._came) < size:
            await self._more()
        taken = bytes(self._came[:size])
        del self._came[:size]
        return taken

    async def _more(self) -> None:
        more = await self._reader.read(_PART)
        if not more:
            raise EOFError
        self._came += more

    # ------------------------------------------------------------------ ends

    async def cancel(self) -> None:
        """Stop what runs; its reply is then an error."""
        if self.closed or not self._key:
            return
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_unix_connection(self._socket)
            writer.write(struct.pack("!ii", len(self._key) + 8, CANCEL_REQUEST) + self._key)
            await _shut(writer)

    async def close(self) -> None:
        """Close the connection. Idempotent."""
        if self.closed:
            return
        self.closed = True
        with contextlib.suppress(OSError):
            self._send(message(b"X"))
        await _shut(self._writer)


class Shadow:
    """The PostgreSQL without data that answers for one policy; starts anew if it dies."""

    def __init__(self, policy: Policy, *, limits: ShadowLimits | None = None) -> None:
        self._policy = policy
        self._limits = limits or ShadowLimits()
        self._process: ShadowProcess | None = None
        self._roles: set[str] = set()
        self._lock = asyncio.Lock()
        self.database = database_of(policy)
        self.version = ""

    async def start(self) -> None:
        """Make it and wait until it can be asked; a second call starts nothing if it runs."""
        async with self._lock:
            await self._expect_process()

    async def stop(self) -> None:
        """End it and remove what it wrote."""
        async with self._lock:
            process, self._process = self._process, None
            if process is not None:
                await process.stop()

    async def connect(self, identity: Identity, startup: Mapping[str, str]) -> ShadowConnection:
        """A connection under the analyst's name; of the client's startup settings the harmless ones are taken."""
        role = role_of(identity.analyst)
        wanted = {key: value for key, value in startup.items() if key.lower() in PASSED_ON}
        style = startup.get("DateStyle") or startup.get("datestyle") or ""
        settings = {
            **wanted,
            "client_encoding": "UTF8",
            "standard_conforming_strings": "on",
            "default_transaction_read_only": "on",
            "DateStyle": style if style and is_iso(style) else "ISO, MDY",
        }
        for _ in range(2):
            socket = await self._ready_for(identity.analyst, role)
            try:
                return await self._open(socket, user=role, parameters=settings)
            except (ConnectionRefusedError, FileNotFoundError):
                await self._end(socket)
            except (OSError, EOFError, TimeoutError):
                break
        raise ServerRefusal(GONE)

    async def _end(self, socket: str) -> None:
        """End a process to which nobody can connect any more, unless somebody else did."""
        async with self._lock:
            if self._process is not None and self._process.socket == socket:
                LOG.error("the shadow PostgreSQL can't be reached; it is started again")
                process, self._process = self._process, None
                await process.stop()

    async def _ready_for(self, analyst: str, role: str) -> str:
        """The socket of a process that knows the analyst's role."""
        async with self._lock:
            process = await self._expect_process()
            if role not in self._roles:
                try:
                    admin = await self._open(process.socket, user=SUPERUSER, parameters={})
                except (OSError, EOFError, TimeoutError):
                    return process.socket
                try:
                    await _run(admin, make_role(analyst, connections=self._limits.connections_each))
                finally:
                    await admin.close()
                self._roles.add(role)
            return process.socket

    async def _expect_process(self) -> ShadowProcess:
        if self._process is not None and not self._process.running:
            LOG.error("the shadow PostgreSQL ended; it is started again")
            await self._process.stop()
            self._process = None
        if self._process is None:
            self._roles.clear()
            process = await ShadowProcess.start(self._limits)
            try:
                await self._fill(process)
            except BaseException:
                await process.stop()
                raise
            self._process = process
        return self._process

    async def _fill(self, process: ShadowProcess) -> None:
        contents = ("SET allow_system_table_mods = on", *make_contents(self._policy))
        for database, statements in (("postgres", make_database(self._policy)), (self.database, contents)):
            admin = await self._open(process.socket, user=SUPERUSER, parameters={}, database=database)
            try:
                self.version = admin.parameters.get("server_version", "")
                for statement in statements:
                    await _run(admin, statement)
            finally:
                await admin.close()

    async def _open(
        self, socket: str, *, user: str, parameters: Mapping[str, str], database: str | None = None
    ) -> ShadowConnection:
        return await ShadowConnection.open(
            socket, user=user, database=database or self.database, parameters=parameters, limits=self._limits
        )


async def _run(connection: ShadowConnection, statement: str) -> None:
    reply = await connection.simple(statement)
    if reply.failed:
        at = reply.messages.index(b"E")
        raise ShadowFailed(f"the shadow PostgreSQL can't be made: {_problem(reply.messages[at + 5 :]).title}")


async def _shut(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


def _problem(body: bytes) -> ServerProblem:
    fields = {part[:1]: part[1:].decode(errors="replace") for part in body.split(b"\0") if part}
    title = fields.get(b"M", "the catalogue's PostgreSQL refuses")
    return ServerProblem(code="shadow", title=title, sqlstate=fields.get(b"C", ""))


__all__ = ["Reply", "Shadow", "ShadowConnection", "ShadowFailed", "ShadowLimits"]
