"""Listens for PostgreSQL clients and serves each in a task of its own; none of them can take the others down."""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import socket
import ssl

from dither.server.auth.tokens import TokenFile
from dither.server.pgwire.catalogue.shadow import Shadow
from dither.server.pgwire.catalogue.shadow_schema import database_of
from dither.server.pgwire.protocol.connection import Gone, Patience, Wire
from dither.server.pgwire.protocol.errors import WireError, WireReport, fatal, told
from dither.server.pgwire.protocol.messages import ProtocolError
from dither.server.pgwire.protocol.startup import CancelKey, SignedIn, begin
from dither.server.pgwire.session.session import ClientSession, Shared
from dither.server.problems import INTERNAL, ServerRefusal
from dither.server.service import Service
from dither.server.traffic.connection_slots import ConnectionPlaces, NoPlace, Visitor
from dither.server.traffic.listening import BACKLOG

LOG = logging.getLogger("dither.server.pgwire")


class PgServer:
    """The PostgreSQL front of one service: ``start`` listens, ``stop`` hangs up on everybody.

    ``require_tls`` refuses clients without TLS; it is for servers that listen beyond this machine. ``shadow``
    answers what isn't a question about private tables; the caller starts and stops it.
    """

    def __init__(
        self,
        service: Service,
        access: TokenFile,
        *,
        tls: ssl.SSLContext | None = None,
        require_tls: bool = False,
        shadow: Shadow | None = None,
        patience: Patience | None = None,
        most_names: int = 1000,
    ) -> None:
        self._service, self._access, self._tls, self._require_tls = service, access, tls, require_tls
        self._patience = patience or Patience(sign_in=service.limits.sign_in)
        self._places = service.places["pgwire"] = ConnectionPlaces(service.limits)
        policy = service.curator.policy
        self._databases = (policy.source.name, database_of(policy))
        self._shared = Shared(service, access, shadow, most_names=most_names)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._pushed_out: set[asyncio.Task[None]] = set()
        self._sessions: dict[int, tuple[int, ClientSession]] = {}

    async def start(self, host: str = "127.0.0.1", port: int = 5432) -> None:
        """Listen; port 0 takes any that is free."""
        self._server = await asyncio.start_server(self._connected, host, port, backlog=BACKLOG)

    @property
    def port(self) -> int:
        """Where it listens."""
        if self._server is None:
            raise RuntimeError("the server hasn't been started")
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def connections(self) -> int:
        """How many clients are connected, those that aren't signed in among them."""
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

        def push_out() -> None:
            self._pushed_out.add(task)
            task.cancel()

        visitor = self._places.enter(writer.get_extra_info("peername"), push_out)
        self._tasks.add(task)
        try:
            connection = writer.get_extra_info("socket")
            # so that clients whose machine is gone don't stay for ever
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            await self._serve(wire, visitor)
            if task in self._pushed_out and wire.encrypted:
                # TLS would have the client agree to the end
                wire.abort()
            await wire.close()
        except (asyncio.CancelledError, Gone, OSError):
            wire.abort()
        finally:
            self._places.leave(visitor)
            self._tasks.discard(task)
            self._pushed_out.discard(task)

    def _expect_room(self) -> None:
        if not self._places.room:
            raise _full()

    async def _serve(self, wire: Wire, visitor: Visitor) -> None:
        """Serve a client to its end; if it doesn't come of itself, say why."""
        kind = ""
        try:
            await self._begin(wire, visitor)
        except (Gone, ConnectionError):
            raise
        except asyncio.CancelledError:
            last = self._why_cancelled().report
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

    async def _begin(self, wire: Wire, visitor: Visitor) -> None:
        try:
            async with asyncio.timeout(self._patience.sign_in):
                begun = await begin(
                    wire,
                    self._access,
                    tls=self._tls,
                    require_tls=self._require_tls,
                    expect_room=self._expect_room,
                    databases=self._databases,
                )
        except TimeoutError:
            raise fatal("57P05", "signing in took too long") from None
        if isinstance(begun, CancelKey):
            await self._cancel(begun)
            return
        await self._run(wire, visitor, begun)

    async def _run(self, wire: Wire, visitor: Visitor, signed_in: SignedIn) -> None:
        analyst = signed_in.identity.analyst
        try:
            self._places.sign_in(visitor, analyst)
        except NoPlace as problem:
            raise _full(of_one=problem.of_one) from None
        key = self._new_key()
        session = ClientSession(wire, self._shared, signed_in, key)
        self._sessions[key.process] = (key.secret, session)
        self._service.metrics.count("pgwire", "signed_in")
        LOG.info("signed in by token %s", signed_in.identity.token)
        try:
            await session.run()
        finally:
            del self._sessions[key.process]

    def _why_cancelled(self) -> WireError:
        if asyncio.current_task() in self._pushed_out:
            self._service.metrics.count("pgwire", "pushed_out")
            return fatal(
                "53300", "too many clients that haven't signed in", hint="Sign in at once, or try again later."
            )
        return fatal("57P01", "terminating connection: the server is stopping")

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


def _full(*, of_one: bool = False) -> WireError:
    if of_one:
        return fatal("53300", "too many connections of this analyst", hint="Close some first.")
    return fatal("53300", "sorry, too many clients already", hint="Try again later.")


def _as_fatal(last: WireReport) -> WireReport:
    return WireReport(severity="FATAL", sqlstate=last.sqlstate, title=last.title, detail=last.detail, hint=last.hint)
