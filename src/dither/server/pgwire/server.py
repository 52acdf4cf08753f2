"""Listens for PostgreSQL clients and serves each in a task of its own; none of them can take the others down."""

from __future__ import annotations

import asyncio
import collections
import hmac
import logging
import secrets
import socket
import ssl

from dither.server.access import Access
from dither.server.pgwire.connection import Gone, Patience, Wire
from dither.server.pgwire.errors import Report, WireError, fatal, told
from dither.server.pgwire.messages import ProtocolError
from dither.server.pgwire.session import Session, Shared
from dither.server.pgwire.shadow import Shadow
from dither.server.pgwire.shadow_schema import database_of
from dither.server.pgwire.startup import CancelKey, SignedIn, begin
from dither.server.problems import INTERNAL, ServerRefusal
from dither.server.service import Service

LOG = logging.getLogger("dither.server.pgwire")


class PgServer:
    """The PostgreSQL front of one service: ``start`` listens, ``stop`` hangs up on everybody.

    ``require_tls`` turns away whoever doesn't encrypt; it is for servers that listen beyond this machine. ``shadow``
    answers what isn't a question about private tables; it is started and stopped by whoever made it.
    """

    def __init__(
        self,
        service: Service,
        access: Access,
        *,
        tls: ssl.SSLContext | None = None,
        require_tls: bool = False,
        shadow: Shadow | None = None,
        patience: Patience | None = None,
        most_names: int = 1000,
    ) -> None:
        self._service, self._access, self._tls, self._require_tls = service, access, tls, require_tls
        self._patience = patience or Patience()
        policy = service.curator.policy
        self._databases = (policy.source.name, database_of(policy))
        self._shared = Shared.of(service, access, shadow, most_names=most_names)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._seated: set[asyncio.Task[None]] = set()
        self._sessions: dict[int, tuple[int, Session]] = {}
        self._of_each: collections.Counter[str] = collections.Counter()

    async def start(self, host: str = "127.0.0.1", port: int = 5432) -> None:
        """Listen; port 0 takes any that is free."""
        self._server = await asyncio.start_server(self._connected, host, port)

    @property
    def port(self) -> int:
        """Where it listens."""
        if self._server is None:
            raise RuntimeError("the server hasn't been started")
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def connections(self) -> int:
        """How many clients are connected, those that are being turned away among them."""
        return len(self._tasks)

    async def stop(self) -> None:
        """Stop listening and hang up; questions that were begun go on."""
        if self._server is None:
            return
        self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None

    # ------------------------------------------------------------------ one connection

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "asyncio serves each connection in a task"
        wire = Wire(reader, writer, longest=self._service.limits.longest_message, patience=self._patience)
        if not self._seats(task) and len(self._tasks) - len(self._seated) >= self._service.limits.connections:
            # as many again are told why they are turned away, and cancel what others wait for; more get no word
            self._service.metrics.count("pgwire", "refused")
            wire.abort()
            return
        self._tasks.add(task)
        try:
            connection = writer.get_extra_info("socket")
            # so that clients whose machine is gone don't stay for ever
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            await self._serve(wire)
            await wire.close()
        except (asyncio.CancelledError, Gone, OSError):
            wire.abort()
        finally:
            self._tasks.discard(task)
            self._seated.discard(task)

    def _seats(self, task: asyncio.Task[None]) -> bool:
        """Whether a connection has one of the places, or gets one now."""
        if task not in self._seated and len(self._seated) < self._service.limits.connections:
            self._seated.add(task)
        return task in self._seated

    def _expect_seat(self) -> None:
        task = asyncio.current_task()
        if task is None or not self._seats(task):
            raise fatal("53300", "sorry, too many clients already", hint="Try again later.")

    async def _serve(self, wire: Wire) -> None:
        """Serve a client to its end; if it doesn't come of itself, say why."""
        kind = ""
        try:
            await self._begin(wire)
        except (Gone, ConnectionError):
            raise
        except asyncio.CancelledError:
            last = fatal("57P01", "terminating connection: the server is stopping").report
        except (WireError, ProtocolError) as error:
            self._service.metrics.count("pgwire", "refused")
            last = told(error)
        except Exception as error:  # noqa: BLE001 - one client's trouble must not be another's
            kind, last = type(error).__name__, told(ServerRefusal(INTERNAL))
        else:
            return
        if kind:
            # the kind alone, and not while it is handled: a log that can't be written prints that
            LOG.error("a connection ended in %s", kind)
        wire.send(_as_fatal(last).message())

    async def _begin(self, wire: Wire) -> None:
        try:
            async with asyncio.timeout(self._patience.sign_in):
                begun = await begin(
                    wire,
                    self._access,
                    tls=self._tls,
                    require_tls=self._require_tls,
                    expect_room=self._expect_seat,
                    databases=self._databases,
                )
        except TimeoutError:
            raise fatal("57P05", "signing in took too long") from None
        if isinstance(begun, CancelKey):
            await self._cancel(begun)
            return
        await self._run(wire, begun)

    async def _run(self, wire: Wire, signed_in: SignedIn) -> None:
        analyst = signed_in.identity.analyst
        if self._of_each[analyst] >= max(1, self._service.limits.connections // 2):
            # so that nobody can take all places and leave none to others
            raise fatal("53300", "too many connections of this analyst", hint="Close some first.")
        key = self._new_key()
        session = Session(wire, self._shared, signed_in, key)
        self._sessions[key.process] = (key.secret, session)
        self._of_each[analyst] += 1
        self._service.metrics.count("pgwire", "signed_in")
        LOG.info("signed in by token %s", signed_in.identity.token)
        try:
            await session.run()
        finally:
            del self._sessions[key.process]
            self._of_each[analyst] -= 1
            if not self._of_each[analyst]:
                del self._of_each[analyst]

    def _new_key(self) -> CancelKey:
        while True:
            process = secrets.randbelow(2**31 - 1) + 1
            if process not in self._sessions:
                return CancelKey(process=process, secret=secrets.randbits(32))

    async def _cancel(self, key: CancelKey) -> None:
        secret, session = self._sessions.get(key.process, (None, None))
        right = hmac.compare_digest((secret or 0).to_bytes(4, "big"), key.secret.to_bytes(4, "big"))
        if session is not None and right:
            self._service.metrics.count("pgwire", "cancelled")
            await session.cancel()


def _as_fatal(last: Report) -> Report:
    return Report(severity="FATAL", sqlstate=last.sqlstate, title=last.title, detail=last.detail, hint=last.hint)
