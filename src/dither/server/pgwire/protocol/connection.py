"""Bytes from and to one client, with limits on sizes and times."""

from __future__ import annotations

import asyncio
import ssl
import struct
from dataclasses import dataclass

from dither.server.pgwire.protocol.errors import fatal
from dither.server.pgwire.protocol.messages import ProtocolError

LONGEST_BEFORE_SIGN_IN = 10_000
MOST_WAITING = 65_536
# So much may be unread of what another server says, which a client that reads slowly would otherwise keep waiting.
MOST_UNREAD = 1 << 20
_LENGTH = struct.Struct("!i")


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How many seconds a client may take.

    ``sign_in`` is for the whole sign-in, ``idle`` between messages, ``stalled`` to send or take part of one, and
    ``closing`` to read what is left when the connection is closed.
    """

    sign_in: float = 5.0
    idle: float = 3600.0
    stalled: float = 60.0
    closing: float = 2.0


class Gone(Exception):  # noqa: N818
    """The client has hung up, or doesn't read what it is sent."""


class Wire:
    """One client's connection: whole messages in, bytes out. Whatever ends it raises ``Gone``."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, longest: int, patience: Patience
    ) -> None:
        self._reader, self._writer, self._longest, self._patience = reader, writer, longest, patience
        self.encrypted = False

    async def read_first(self) -> tuple[int, bytes]:
        """A message without a letter, as connections begin with: its code and content."""
        size = await self._size()
        if not 4 <= size <= LONGEST_BEFORE_SIGN_IN:
            raise ProtocolError("this isn't how a PostgreSQL client begins")
        body = await self._exactly(size)
        return _LENGTH.unpack_from(body)[0], body[4:]

    async def read_password(self) -> bytes:
        """The content of a message of the sign-in."""
        if await self._exactly(1) != b"p":
            raise ProtocolError("a message of the sign-in was expected")
        return await self._body(LONGEST_BEFORE_SIGN_IN)

    async def read(self) -> tuple[bytes, bytes]:
        """The next message: its letter and content."""
        try:
            async with asyncio.timeout(self._patience.idle):
                kind = await self._exactly(1)
        except TimeoutError:
            raise fatal("57P05", "terminating connection due to idle-session timeout") from None
        try:
            async with asyncio.timeout(self._patience.stalled):
                return kind, await self._body(self._longest)
        except TimeoutError:
            raise Gone from None

    async def _exactly(self, size: int) -> bytes:
        try:
            return await self._reader.readexactly(size)
        except (OSError, asyncio.IncompleteReadError):
            raise Gone from None

    async def _size(self) -> int:
        size: int = _LENGTH.unpack(await self._exactly(4))[0]
        return size - 4

    async def _body(self, longest: int) -> bytes:
        size = await self._size()
        if not 0 <= size <= longest:
            raise ProtocolError(f"a message may have at most {longest} bytes")
        return await self._exactly(size)

    def send(self, content: bytes) -> None:
        """Write without waiting."""
        self._writer.write(content)

    async def flush(self) -> None:
        """Wait until the client has read most of what was written; raises Gone if it stops reading."""
        try:
            async with asyncio.timeout(self._patience.stalled):
                await self._writer.drain()
        except OSError:
            # a timeout is one of them
            self._writer.transport.abort()
            raise Gone from None

    async def relieve(self) -> None:
        """Wait if much is still unread."""
        if self._writer.transport.get_write_buffer_size() > MOST_WAITING:
            await self.flush()

    async def pass_on(self, content: bytes) -> None:
        """Write part of what another server says; wait if the client has left far too much of it unread."""
        self.send(content)
        if self._writer.transport.get_write_buffer_size() > MOST_UNREAD:
            await self.flush()

    async def encrypt(self, context: ssl.SSLContext) -> None:
        """Go on in TLS."""
        # what came in clear before the handshake could have been put there by anybody (CVE-2021-23214)
        if self._reader._buffer:  # type: ignore[attr-defined]  # noqa: SLF001 - asyncio has no public way to ask
            raise ProtocolError("a client must wait for the answer to SSLRequest")
        try:
            await self._writer.start_tls(context, ssl_handshake_timeout=self._patience.sign_in)
        except OSError:
            raise Gone from None
        self.encrypted = True

    async def close(self) -> None:
        """Send what is left, if the client takes it soon, and hang up."""
        self._writer.close()
        try:
            async with asyncio.timeout(self._patience.closing):
                await self._writer.wait_closed()
        except OSError:
            self._writer.transport.abort()

    def abort(self) -> None:
        """Hang up at once."""
        self._writer.transport.abort()
