"""Start and stop it all: the curator, HTTP with the web page, and the PostgreSQL protocol."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from dither.curator import OWNER, Curator, drafts
from dither.errors import InvalidParameter, MissingLibrary
from dither.policy import Policy
from dither.remote.http_client import is_loopback
from dither.server.auth.identity import Scope
from dither.server.auth.tokens import TokenFile, access_path as access_path
from dither.server.limits import ServerLimits
from dither.server.service import Service
from dither.server.traffic.connection_slots import ConnectionPlaces, Visitor
from dither.server.traffic.listening import Listener, bound
from dither.server.workers.pool import WorkerPool

if TYPE_CHECKING:
    import uvicorn

# what the data, the ledger and the libraries have open
OTHER_FILES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where to listen. Beyond this machine everything is encrypted: a certificate and its key are needed then.

    A port of 0 takes a free one; ``pg_port`` None leaves the PostgreSQL protocol out.
    """

    host: str = "127.0.0.1"
    port: int = 8765
    pg_port: int | None = 5433
    certificate: Path | None = None
    key: Path | None = None

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise InvalidParameter("a certificate needs its key, and a key its certificate: give both files")
        if not self.local and self.certificate is None:
            raise InvalidParameter(
                f"{self.host} can be reached from other machines, and tokens must not travel in clear: give a "
                "certificate and its key (--certificate, --key), or listen on 127.0.0.1 behind a proxy"
            )
        for port in (self.port, self.pg_port):
            if port is not None and not 0 <= port < 2**16:
                raise InvalidParameter(f"a port is a number from 0 to 65535; got {port}")

    @property
    def local(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)

    def tls(self) -> ssl.SSLContext | None:
        """What encrypts, from the two files."""
        if self.certificate is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError):
            raise InvalidParameter(
                "the certificate or its key can't be read: expected two PEM files that belong together"
            ) from None
        return context


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A server that listens: its ports, and what its starter may hand out."""

    url: str
    pg_port: int | None
    dataset: str
    owner_token: str | None
    notes: tuple[str, ...] = ()
    stop: Callable[[], object] = field(repr=False)

    def psql(self) -> str | None:
        """The line to type for psql; it asks for the token."""
        if self.pg_port is None:
            return None
        host = self.url.split("://", 1)[1].rsplit(":", 1)[0].strip("[]")
        secure = " sslmode=verify-full" if self.url.startswith("https") else ""
        return f'psql "host={host} port={self.pg_port} user={OWNER} dbname={_conninfo(self.dataset)}{secure}"'


def _conninfo(value: str) -> str:
    """A value in a connection string of libpq, typed in double quotes in a shell."""
    if value.isidentifier() and value.isascii():
        return value
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return "'" + "".join(f"\\{c}" if c in '"$`\\' else c for c in escaped) + "'"


@asynccontextmanager
async def running(
    policy: Policy, place: Address, *, limits: ServerLimits | None = None, new_owner_token: bool = False
) -> AsyncIterator[Running]:
    """Serve a policy for as long as the block lasts; everything is stopped and closed behind it, in order.

    Where nobody holds a token of the owner yet, or another is wanted, one is made; its secret is in the result and
    nowhere else.
    """
    web = _library("uvicorn")
    from dither.server.app import make_app
    from dither.server.observe.logs import RequestLog

    tls = place.tls()
    async with AsyncExitStack() as stack:
        processes = 0 if limits is None else limits.processes
        curator = stack.enter_context(Curator.open(policy, sharing=1 + processes))
        tokens = stack.enter_context(TokenFile.open(access_path(policy)))
        crew = None
        if limits is not None and processes:
            crew = WorkerPool(policy, size=processes, threads=limits.workers, version=curator.version)
            stack.push_async_callback(crew.stop)
            await crew.start()
        service = Service(curator, limits, crew=crew)
        stack.callback(service.close)
        app = make_app(service, tokens, secure_cookies=tls is not None)
        http, port = await stack.enter_async_context(_http(web, RequestLog(app), place, service))
        pg_port: int | None = None
        notes = tuple(f"new data: {line}" for line in drafts.news(curator.reports))
        if place.pg_port is not None:
            pg_port, about = await stack.enter_async_context(_pgwire(service, tokens, place, tls))
            notes += about
        secret = None
        # once everything listens: a start that fails must not make a token that nobody sees
        if new_owner_token or not tokens.has_owner():
            _, secret = tokens.create(OWNER, Scope.OWNER, days=90, note="made by dither serve")
        scheme = "http" if tls is None else "https"
        host = f"[{place.host}]" if ":" in place.host else place.host
        yield Running(
            url=f"{scheme}://{host}:{port}",
            pg_port=pg_port,
            dataset=policy.source.name,
            owner_token=secret,
            notes=notes,
            stop=lambda: setattr(http, "should_exit", True),
        )


def serve(
    policy: Policy,
    place: Address,
    *,
    started: Callable[[Running], None],
    limits: ServerLimits | None = None,
    new_owner_token: bool = False,
) -> None:
    """Serve until Ctrl-C or SIGTERM; ``started`` is called once everything listens."""
    _raise_open_files(limits or ServerLimits())

    async def until_stopped() -> None:
        async def serving() -> None:
            async with running(policy, place, limits=limits, new_owner_token=new_owner_token) as server:
                started(server)
                await asyncio.Event().wait()

        # a start can be stopped too; a second signal doesn't stop the stopping
        task = asyncio.create_task(serving())
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, lambda: None if task.cancelling() else task.cancel())
        with contextlib.suppress(asyncio.CancelledError):
            await task

    # uvloop leaves its handlers behind, which would swallow later interrupts of this process
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(until_stopped())
    finally:
        for number, handler in before.items():
            # None: set by something other than Python, which can't be put back
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _raise_open_files(limits: ServerLimits) -> None:
    """Let this process have as many open files as its places take, where the system lets it."""
    try:
        import resource
    except ImportError:
        return
    # two protocols; behind each session of one there is a connection to the catalogue
    wanted = 2 * (limits.connections + 2 * limits.strangers) + limits.connections + OTHER_FILES
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY:
        wanted = min(wanted, most)
    if now != resource.RLIM_INFINITY and now < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The faster loop, where it is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


@contextmanager
def background(
    policy: Policy | str | Path, place: Address | None = None, *, limits: ServerLimits | None = None
) -> Iterator[Running]:
    """Serve in a thread of this process for as long as the block lasts: for notebooks, tests and trying things out."""
    rules = policy if isinstance(policy, Policy) else Policy.load(policy)
    where = place or Address(port=0, pg_port=0)
    begun: Future[Running] = Future()
    stopped = threading.Event()

    async def until_stopped() -> None:
        loop, end = asyncio.get_running_loop(), asyncio.Event()
        try:
            async with running(rules, where, limits=limits) as server:
                # called from the thread that started it
                begun.set_result(replace(server, stop=lambda: loop.call_soon_threadsafe(end.set)))
                await end.wait()
        except BaseException as problem:
            if begun.done():
                raise
            begun.set_exception(problem)
        finally:
            stopped.set()

    thread = threading.Thread(target=lambda: asyncio.run(until_stopped()), name="dither-server")
    thread.start()
    try:
        server = begun.result()
        yield server
    finally:
        if begun.exception() is None and not stopped.is_set():
            with contextlib.suppress(RuntimeError):  # it stopped by itself in between
                begun.result().stop()
        thread.join()


@asynccontextmanager
async def _http(
    web: ModuleType, app: object, place: Address, service: Service
) -> AsyncIterator[tuple[uvicorn.Server, int]]:
    from dither.server.traffic.timeouts import Deadlines

    limits = service.limits
    config = web.Config(
        app,
        log_config=None,
        access_log=False,
        ws="none",
        server_header=False,
        date_header=False,
        proxy_headers=False,
        lifespan="off",
        timeout_graceful_shutdown=5,
    )
    server = web.Server(config)
    # signals are ours: one of them must stop both protocols
    server.capture_signals = _no_signals
    places = service.places["http"] = ConnectionPlaces(limits)

    def made(visitor: Visitor) -> Deadlines:
        return Deadlines(
            limits, places, visitor, config=config, server_state=server.server_state, app_state=server.lifespan.state
        )

    tls = place.tls()
    try:
        sockets = bound(place.host, place.port)
    except OSError:
        raise _taken(place.host, place.port, "--port") from None
    # uvicorn's own would count nobody before the TLS handshake has ended
    listener = Listener(sockets, made, places=places, tls=tls, handshake=limits.sign_in)
    task = asyncio.create_task(server.serve(sockets=[]))
    try:
        while not server.started and not task.done():
            await asyncio.sleep(0.01)
        listener.start()
        yield server, int(sockets[0].getsockname()[1])
    finally:
        await listener.stop()
        server.should_exit = True
        await asyncio.gather(task, return_exceptions=True)


@contextmanager
def _no_signals() -> Iterator[None]:
    yield


@asynccontextmanager
async def _pgwire(
    service: Service, tokens: TokenFile, place: Address, tls: ssl.SSLContext | None
) -> AsyncIterator[tuple[int, tuple[str, ...]]]:
    from dither.server.pgwire.catalogue.shadow import Shadow
    from dither.server.pgwire.server import PgServer

    assert place.pg_port is not None
    async with AsyncExitStack() as stack:
        shadow: Shadow | None = None
        notes: tuple[str, ...] = ()
        try:
            made = Shadow(service.curator.policy)
            await made.start()
            stack.push_async_callback(made.stop)
            shadow = made
        except MissingLibrary as problem:
            notes = (f"psql's \\d and the like aren't answered: {problem}",)
        server = PgServer(service, tokens, tls=tls, require_tls=not place.local, shadow=shadow)
        try:
            await server.start(place.host, place.pg_port)
        except OSError:
            raise _taken(place.host, place.pg_port, "--pg-port") from None
        stack.push_async_callback(server.stop)
        yield server.port, notes


def _taken(host: str, port: int, option: str) -> InvalidParameter:
    return InvalidParameter(
        f"nothing can listen on {host}:{port}: is another server running there? Give another {option}"
    )


def _library(name: str) -> ModuleType:
    import importlib

    try:
        for needed in ("fastapi", "httptools", "jinja2", "orjson"):
            importlib.import_module(needed)
        return importlib.import_module(name)
    except ImportError:
        raise MissingLibrary(
            "the server needs libraries that aren't installed: pip install 'dither[server,pgwire]'"
        ) from None
