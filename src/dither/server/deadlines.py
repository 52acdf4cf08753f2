"""HTTP connections that can't be kept busy by doing little: a client has so long to send a request or take its answer.

Otherwise a few hundred clients that each send half a request would hold all connections for as long as they like, and
one that sends headers without end would take all memory.
"""

from __future__ import annotations

from asyncio import TimerHandle, Transport

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LARGEST_HEAD = 64 * 1024


def with_deadlines(seconds: float) -> type[HttpToolsProtocol]:
    """The protocol of uvicorn, with so many seconds for each request and each answer that waits to be taken."""
    return type("Deadlines", (_Deadlines,), {"seconds": seconds})


class _Deadlines(HttpToolsProtocol):
    seconds: float
    _sending: TimerHandle | None = None
    _taking: TimerHandle | None = None
    _head: int | None = 0
    _new = True

    # ------------------------------------------------------------------ the connection

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._sending = self.loop.call_later(self.seconds, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        self._sent()
        self._taken()
        # where the connection broke, the one for idle connections is left running
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._new = False
        super().data_received(data)
        # a piece with which a head begins may hold requests before it, and is small
        if self._head is not None and not self._new:
            self._head += len(data)
            if self._head > LARGEST_HEAD:
                self.send_400_response("The head of the request is too large.")
                self._head = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._taking = self._taking or self.loop.call_later(self.seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._taken()

    # ------------------------------------------------------------------ one request

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head, self._new = 0, True
        self._sending = self._sending or self.loop.call_later(self.seconds, self._too_slow)

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._head = None

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._sent()

    # ------------------------------------------------------------------ timers

    def _too_slow(self) -> None:
        if self.flow.read_paused:
            # it is we who don't read: requests before this one are being answered
            self._sending = self.loop.call_later(self.seconds, self._too_slow)
        else:
            self.transport.abort()

    def _sent(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None

    def _taken(self) -> None:
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None
