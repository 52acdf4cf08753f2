"""Accepts connections: each has a place from its first moment, before TLS, whose handshake may never end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from functools import partial

from dither.server.traffic.connection_slots import ConnectionPlaces, Visitor

LOG = logging.getLogger("dither.server")
# connections that wait to be accepted: a crowd must not make others wait for a second attempt
BACKLOG = 1024
# seconds until the next attempt where the system has no file or memory to give
PAUSE = 0.5


def bound(host: str, port: int) -> list[socket.socket]:
    """A socket for each address of a host; raises OSError where one can't be had."""
    made: list[socket.socket] = []
    with contextlib.ExitStack() as undo:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, number, _, address in dict.fromkeys(found):
            link = undo.enter_context(socket.socket(family, kind, number))
            link.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                # so that the same port can be had for both
                link.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            link.bind(address)
            link.listen(BACKLOG)
            link.setblocking(False)  # noqa: FBT003
            made.append(link)
        undo.pop_all()
    return made


class Listener:
    """Accepts on sockets that are bound, and makes a protocol for each client, behind TLS if there is any.

    ``start`` begins and ``stop`` ends it; connections that were accepted belong to their protocols.
    """

    def __init__(
        self,
        sockets: list[socket.socket],
        make: Callable[[Visitor], asyncio.Protocol],
        *,
        places: ConnectionPlaces,
        tls: ssl.SSLContext | None,
        handshake: float,
    ) -> None:
        self._sockets, self._make, self._places = sockets, make, places
        self._tls, self._handshake = tls, handshake
        self._entering: set[asyncio.Task[None]] = set()
        self._waiting: set[socket.socket] = set()

    def start(self) -> None:
        """Begin to accept."""
        for link in self._sockets:
            self._resume(link)

    async def stop(self) -> None:
        """Accept no more, and close connections that are still being set up."""
        loop = asyncio.get_running_loop()
        for link in self._sockets:
            loop.remove_reader(link)
            link.close()
        entering = list(self._entering)
        for task in entering:
            task.cancel()
        await asyncio.gather(*entering, return_exceptions=True)

    def _resume(self, link: socket.socket) -> None:
        if link.fileno() >= 0:
            asyncio.get_running_loop().add_reader(link, self._accept, link)

    def _accept(self, link: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(BACKLOG):
            try:
                client, address = link.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as problem:
                kind = type(problem).__name__
                loop.remove_reader(link)
                loop.call_later(PAUSE, self._resume, link)
                break
            self._waiting.add(client)
            task = loop.create_task(self._let_in(client, address))
            self._entering.add(task)
            task.add_done_callback(partial(self._let_in_or_not, client))
        else:
            return
        LOG.error("a connection can't be accepted: %s", kind)

    def _let_in_or_not(self, client: socket.socket, task: asyncio.Task[None]) -> None:
        self._entering.discard(task)
        if client in self._waiting:
            # stopped before it began: then nothing of it runs, and nobody else would close this
            self._waiting.discard(client)
            client.close()

    async def _let_in(self, client: socket.socket, address: object) -> None:
        self._waiting.discard(client)
        task = asyncio.current_task()
        assert task is not None, "it is a task that lets a client in"

        def push_out() -> None:
            # in the middle of a handshake nothing can be said
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
            task.cancel()

        client.setblocking(False)  # noqa: FBT003
        visitor = self._places.enter(address, push_out)
        timeout = None if self._tls is None else self._handshake
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._make(visitor), client, ssl=self._tls, ssl_handshake_timeout=timeout
            )
        except OSError:
            # a client that doesn't speak TLS, took too long, or went away
            self._places.leave(visitor)
        except BaseException:
            self._places.leave(visitor)
            push_out()
            raise
