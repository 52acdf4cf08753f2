"""HTTP connections that can't be kept busy by doing little: so long to sign in, send a request, and take its answer.

Otherwise a few hundred clients that each send half a request would hold all connections for as long as they like, and
one that sends headers without end would take all memory. A connection is a stranger's until a request on it shows a
valid token or session; then the app calls what is in its scope under ``SIGNED_IN``.
"""

from __future__ import annotations

from asyncio import TimerHandle, Transport
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from dither.server.limits import ServerLimits
from dither.server.problems import busy
from dither.server.traffic.connection_slots import SIGNED_IN, ConnectionPlaces, NoPlace, Visitor

LARGEST_HEAD = 64 * 1024
TOO_MANY = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Content-Length: 60\r\nConnection: close\r\n\r\n"
    b"too many connections that aren't signed in: try again later\n"
)


class Deadlines(HttpToolsProtocol):
    """The protocol of uvicorn, with so many seconds for each request and each answer that waits to be taken."""

    _sending: TimerHandle | None = None
    _taking: TimerHandle | None = None
    _unknown: TimerHandle | None = None
    _head: int | None = 0
    _new = True
    _heard = False

    def __init__(self, limits: ServerLimits, places: ConnectionPlaces, visitor: Visitor, **given: Any) -> None:
        super().__init__(**given)
        self._limits, self._places, self._visitor = limits, places, visitor

    @property
    def _seconds(self) -> float:
        known = self._visitor.signed_in
        return self._limits.slowest if known else min(self._limits.sign_in, self._limits.slowest)

    # ------------------------------------------------------------------ the connection

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Begin to count the seconds."""
        super().connection_made(transport)
        self._visitor.drop = self.pushed_out
        self._sending = self.loop.call_later(self._seconds, self._too_slow)
        self._unknown = self.loop.call_later(self._limits.sign_in, self._still_unknown)

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        self._places.leave(self._visitor)
        self._sent()
        self._taken()
        self._known()
        # where the connection broke, the one for idle connections is left running
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, but no head without end."""
        self._new, self._heard = False, True
        super().data_received(data)
        # a piece with which a head begins may hold requests before it, and is small
        if self._head is not None and not self._new:
            self._head += len(data)
            if self._head > LARGEST_HEAD:
                self.send_400_response("The head of the request is too large.")
                self._head = None

    def pause_writing(self) -> None:
        """The client doesn't read as fast as it is written to."""
        super().pause_writing()
        self._expect_to_be_read()

    def resume_writing(self) -> None:
        """It has read most of it."""
        super().resume_writing()
        self._taken()
        self._expect_to_be_read()

    # ------------------------------------------------------------------ who it is

    def signed_in(self, analyst: str) -> None:
        """A request on this connection has shown a valid token or session; refused if there is no place for more."""
        if self._visitor.signed_in:
            return
        try:
            # a proxy's connection serves one after the other
            self._places.sign_in(self._visitor, None if self._visitor.proxied else analyst)
        except NoPlace:
            raise busy() from None
        self._known()
        if self._sending is not None:
            # the body may take as long as anybody's
            self._sent()
            self._sending = self.loop.call_later(self._seconds, self._too_slow)

    def pushed_out(self) -> None:
        """A stranger whose place another needs: told why, if they began to ask."""
        if self._heard and not self._answering and not self.transport.is_closing():
            self.transport.write(TOO_MANY)
        self._let_go()

    @property
    def _answering(self) -> bool:
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is not None and not cycle.response_complete

    def _still_unknown(self) -> None:
        """A stranger's time is over: what is being answered may be taken, and that was it."""
        if not self._answering:
            self._let_go()
            return
        self.cycle.keep_alive = False
        self._unknown = self.loop.call_later(self._limits.sign_in, self.transport.abort)

    def _let_go(self) -> None:
        """Close, whether what was said before is taken or not."""
        self.transport.close()
        self._known()
        self._unknown = self.loop.call_later(self._limits.sign_in, self.transport.abort)

    # ------------------------------------------------------------------ one request

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        cast("dict[str, Any]", self.scope)[SIGNED_IN] = self.signed_in
        self._head, self._new = 0, True
        self._sending = self._sending or self.loop.call_later(self._seconds, self._too_slow)

    def on_headers_complete(self) -> None:
        """Its head is there."""
        super().on_headers_complete()
        self._head = None

    def on_message_complete(self) -> None:
        """All of it is there."""
        super().on_message_complete()
        self._sent()

    def on_response_complete(self) -> None:
        """Its answer was written."""
        super().on_response_complete()
        self._expect_to_be_read()

    # ------------------------------------------------------------------ timers

    def _too_slow(self) -> None:
        if self.flow.read_paused:
            # it is we who don't read: requests before this one are being answered
            self._sending = self.loop.call_later(self._seconds, self._too_slow)
        else:
            self.transport.abort()

    def _sent(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None

    def _expect_to_be_read(self) -> None:
        """Give the client so long to take what was written, also if it is the end of it and little."""
        if not self.transport.get_write_buffer_size():
            self._taken()
        elif self._taking is None:
            self._taking = self.loop.call_later(self._seconds, self._unread)

    def _unread(self) -> None:
        self._taking = None
        if self.transport.get_write_buffer_size():
            self.transport.abort()

    def _taken(self) -> None:
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None

    def _known(self) -> None:
        if self._unknown is not None:
            self._unknown.cancel()
            self._unknown = None
