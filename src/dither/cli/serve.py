"""``dither serve``: answer a whole team, over HTTP, from psql and BI tools, and on a web page."""

from __future__ import annotations

import ipaddress
import logging
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer
from rich.text import Text

from dither.cli.options import DEFAULT_POLICY, PolicyFile
from dither.cli.screen import console
from dither.cli.shop import set_up
from dither.curator import OWNER
from dither.errors import InvalidParameter
from dither.server.limits import Network, ServerLimits
from dither.server.observe.logs import writing_logs

if TYPE_CHECKING:
    from dither.server.run import Running

MOST_PROCESSES = 256


def serve(
    context: typer.Context,
    *,
    policy: PolicyFile = DEFAULT_POLICY,
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="NUMBER", help="The port for HTTP and the web page.")] = 8765,
    pg_port: Annotated[
        int, typer.Option("--pg-port", metavar="NUMBER", help="The port for psql and other PostgreSQL clients.")
    ] = 5433,
    without_pgwire: Annotated[bool, typer.Option("--no-pg", help="Leave the PostgreSQL protocol out.")] = False,
    certificate: Annotated[
        Path | None, typer.Option("--certificate", metavar="FILE", help="A TLS certificate (PEM), with its chain.")
    ] = None,
    key: Annotated[Path | None, typer.Option("--key", metavar="FILE", help="The certificate's key (PEM).")] = None,
    rate: Annotated[
        float, typer.Option("--rate", metavar="NUMBER", help="How many requests a second one analyst may make.")
    ] = ServerLimits().rate,
    processes: Annotated[
        int,
        typer.Option(
            "--processes", metavar="NUMBER", help="How many more processes answer new questions: for many at once."
        ),
    ] = 0,
    proxy: Annotated[
        list[str] | None,
        typer.Option(
            "--proxy",
            metavar="ADDRESS",
            help="A proxy's address or network, whose connections are many clients'; may be given several times.",
        ),
    ] = None,
    new_owner_token: Annotated[
        bool, typer.Option("--new-owner-token", help="Make another token for the owner and show it.")
    ] = False,
    log: Annotated[
        Path | None, typer.Option("--log", metavar="FILE", help="Append the log here instead of to stderr.")
    ] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Serve a made-up shop from a temporary directory; takes no policy.")
    ] = False,
) -> None:
    """Answer a whole team.

    Serves the policy's data over HTTP, to psql and other PostgreSQL clients, and on a web page, until Ctrl-C. Make a
    token for each analyst with `dither token create NAME`. Beyond this machine a certificate is needed.

    Example:  dither serve --demo
    """
    from dither.policy import Policy
    from dither.server.run import Address, serve as serve_policy

    with ExitStack() as stack:
        if not 0 < rate < float("inf"):
            raise InvalidParameter(f"--rate is a number of requests a second, above 0; got {rate}")
        if not 0 <= processes <= MOST_PROCESSES:
            raise InvalidParameter(f"--processes is a number from 0 to {MOST_PROCESSES}; got {processes}")
        named = context.get_parameter_source("policy")
        if demo and named is not None and named.name != "DEFAULT":
            raise InvalidParameter("--demo serves a made-up shop and takes no policy: leave one of the two out")
        for file in (certificate, key):
            if file is not None and not file.is_file():
                raise InvalidParameter(f"{file}: there is no such file: expected a certificate or key in PEM")
        place = Address(
            host=host, port=port, pg_port=None if without_pgwire else pg_port, certificate=certificate, key=key
        )
        stack.enter_context(writing_logs(sys.stderr if log is None else stack.enter_context(_log(log))))
        path = set_up(Path(stack.enter_context(tempfile.TemporaryDirectory()))) if demo else policy
        rules = Policy.load(path)
        limits = ServerLimits(
            rate=rate, burst=max(1, round(10 * rate)), processes=processes, proxies=tuple(map(_network, proxy or ()))
        )
        begun = None if rules.source.ledger.exists() else rules.source.ledger.name
        listening = stack.enter_context(_no_word_of_the_library())
        say = partial(_say, path=path, begun=None if demo else begun, everywhere=_everywhere(host))

        def started(server: Running) -> None:
            listening()
            say(server)

        _warm()
        serve_policy(rules, place, started=started, limits=limits, new_owner_token=new_owner_token)
        console().print("stopped; everything that was charged is in the ledger")


@contextmanager
def _no_word_of_the_library() -> Iterator[Callable[[], None]]:
    """Until what this yields is called, uvicorn logs nothing: a port that is taken is told in words of ours."""
    library = logging.getLogger("uvicorn.error")

    def silent(_: logging.LogRecord) -> bool:
        return False

    library.addFilter(silent)
    try:
        yield lambda: library.removeFilter(silent)
    finally:
        library.removeFilter(silent)


def _warm() -> None:
    """Load now what the first answer would have to wait for: pyarrow looks for pandas at its first conversion."""
    import pyarrow as pa

    pa.array([0]).to_numpy(zero_copy_only=False)


def _everywhere(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        raise InvalidParameter(
            f'--proxy is an address or a network, such as 127.0.0.1 or 10.0.0.0/8; got "{text}"'
        ) from None


def _log(path: Path) -> TextIO:
    try:
        return path.open("a", encoding="utf-8")
    except OSError as problem:
        raise InvalidParameter(f"{path}: the log can't be written here: {problem.strerror}") from None


def _say(server: Running, *, path: Path, begun: str | None, everywhere: bool) -> None:
    screen = console()
    # what is printed has to work where it is pasted, also for a policy that isn't in this directory
    create = "dither token create {name}" + ("" if path == DEFAULT_POLICY else f" -p {shlex.quote(str(path))}")
    screen.print(f"web page     {server.url}")
    screen.print(f"HTTP API     {server.url}/v1", highlight=False)
    line = server.psql()
    if line is not None:
        screen.print(Text(f"psql         {line}"))
    if server.owner_token is not None:
        screen.print(Text(f"owner token  {server.owner_token}"))
        screen.print("             shown once: it is the password on the page and in psql, and is kept as a hash only")
    else:
        screen.print(Text(f"owner token  made before; for another: {create.format(name=OWNER)}"))
    screen.print(Text(f"analysts     {create.format(name='NAME')}"))
    if begun is not None:
        screen.print(Text(f"note         a new ledger was begun: {begun}. Keep it: it knows what was spent"))
    if everywhere:
        screen.print("note         other machines use the name in the certificate instead of this address")
    for note in server.notes:
        screen.print(Text(f"note         {note}"))
    screen.print("Ctrl-C stops it.")
