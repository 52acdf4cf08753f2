"""Sockets that never sign in take nobody's place: ``dither serve`` in a process of its own, hundreds of idle clients.

What is asserted never depends on how fast the machine is: times are there so that a test can't hang.
"""

import contextlib
import signal
import socket
import ssl
import struct
import subprocess
import sys
from types import SimpleNamespace

import psycopg
import pytest

from dither.policy import Policy
from dither.server.auth.identity import Scope
from dither.server.auth.tokens import TokenFile
from dither.server.run import access_path
from support import raw_client as raw
from support.sizes import at_night

from . import test_tls as certificates

SQL = "SELECT COUNT(*) AS n FROM orders"
SSL_REQUEST = struct.pack("!ii", 8, 80877103)
IDLE = 600
PROXY = "127.0.0.9"
HANG = 60


@contextlib.contextmanager
def serving(directory, *options):
    """``dither serve`` for the shop in this directory: its ports."""
    command = [sys.executable, "-m", "dither.cli.main", "serve", "--port", "0", "--pg-port", "0"]
    command += ["--log", str(directory / "server.log"), *options]
    process = subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    ports = {}
    try:
        for line in process.stdout:
            if line.startswith("web page"):
                ports["http"] = int(line.rsplit(":", 1)[1])
            if line.startswith("psql"):
                ports["pg"] = int(line.split("port=")[1].split()[0])
            if "Ctrl-C" in line:
                break
        assert ports, process.stderr.read()
        yield SimpleNamespace(pid=process.pid, **ports)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=HANG)


@pytest.fixture(scope="module")
def shop(tmp_path_factory, shop_data):
    directory = tmp_path_factory.mktemp("idle")
    for name in ("shop.duckdb", "dither.toml"):
        (directory / name).write_bytes(shop_data.with_name(name).read_bytes())
    with TokenFile.open(access_path(Policy.load(directory / "dither.toml"))) as tokens:
        scopes = {"ana": Scope.ASK, "bob": Scope.ASK, "owner": Scope.OWNER}
        found = {name: tokens.create(name, scope)[1] for name, scope in scopes.items()}
    return SimpleNamespace(directory=directory, tokens=found)


@pytest.fixture(scope="module")
def served(shop):
    with serving(shop.directory, "--proxy", PROXY, "--proxy", "10.0.0.0/8") as server:
        yield SimpleNamespace(http=server.http, pg=server.pg, tokens=shop.tokens)


def connected(port, source="127.0.0.1"):
    return socket.create_connection(("127.0.0.1", port), timeout=HANG, source_address=(source, 0))


@contextlib.contextmanager
def crowd(port, *, count=IDLE, says=(b"",), source="127.0.0.1"):
    """So many connections from one address, each of which says one of these, and then nothing."""
    with contextlib.ExitStack() as stack:
        links = []
        for number in range(count):
            links.append(stack.enter_context(connected(port, source)))
            links[-1].sendall(says[number % len(says)])
        yield links


def request(token=None, *, path="/v1/budget", more=b""):
    """The head of a GET."""
    shown = b"" if token is None else f"Authorization: Bearer {token}\r\n".encode()
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n".encode() + shown + more + b"\r\n"


def answered(link, sent):
    """The status and body of the answer to a request; the connection stays."""
    link.sendall(sent)
    head = b""
    while b"\r\n\r\n" not in head:
        part = link.recv(65536)
        if not part:
            raise EOFError(head)
        head += part
    head, _, body = head.partition(b"\r\n\r\n")
    size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    while len(body) < size:
        body += link.recv(65536)
    return int(head[9:12]), body


def read_all(link):
    found = b""
    with contextlib.suppress(ConnectionError):
        while part := link.recv(65536):
            found += part
    return found


def wire(port, user, token, source="127.0.0.1"):
    """A raw client of PostgreSQL from this address, signed in."""
    client = raw.RawClient.__new__(raw.RawClient)
    client.socket, client.step, client.parameters, client.key = connected(port, source), None, {}, None
    return client.sign_in(user, token)


HALF_HEAD = b"POST /v1/ask HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "


def test_who_signs_in_comes_in(served):
    """Hundreds from one address that say nothing, half of something, or ask for pages without ever signing in."""
    ana, bob = served.tokens["ana"], served.tokens["bob"]
    over_http = (b"", HALF_HEAD, request(path="/health"), request("dither_wrong"))
    over_wire = (b"", SSL_REQUEST, raw.startup(user="ana"), SSL_REQUEST[:3])
    with connected(served.http) as known, wire(served.pg, "ana", ana) as session:
        assert answered(known, request(ana))[0] == 200
        assert raw.tags(session.simple(SQL)) == ["SELECT 1"]
        with crowd(served.http, says=over_http) as pages, crowd(served.pg, says=over_wire) as clients:
            # who is signed in keeps working, as long as they come back before the usual five seconds
            with contextlib.suppress(EOFError, ConnectionError):
                assert answered(known, request(ana))[0] == 200
            assert raw.tags(session.simple(SQL)) == ["SELECT 1"]
            # new ones come in, from elsewhere and from the very same address
            for source in ("127.0.0.2", "127.0.0.1"):
                for token in (ana, bob):
                    with connected(served.http, source) as fresh:
                        assert answered(fresh, request(token))[0] == 200
                with wire(served.pg, "bob", bob, source) as fresh:
                    assert raw.tags(fresh.simple(SQL)) == ["SELECT 1"]
            # as libpq does it
            with psycopg.connect(f"host=127.0.0.1 port={served.pg} user=ana dbname=shop", password=ana) as link:
                assert len(link.execute(SQL).fetchall()) == 1
            # and all others are let go, though they never do
            pages, clients = [read_all(link) for link in pages], [read_all(link) for link in clients]
        assert raw.tags(session.simple(SQL)) == ["SELECT 1"]
    # what they are told, if they were heard at all: a crowd may be accepted, and pushed out, at once
    halves = [found for found in pages[1 :: len(over_http)] if found]
    assert all(found.startswith(b"HTTP/1.1 503") and b"Retry-After: 1\r\n" in found for found in halves)
    assert all(b"C53300" in found or b"C57P05" in found for found in clients if found not in (b"", b"N"))


@at_night
def test_a_declared_proxy_stands_for_many(served):
    """Nobody is pushed out for having the address of a proxy, and its clients come in."""
    with crowd(served.http, says=(HALF_HEAD,), count=300, source=PROXY) as links:
        with connected(served.http, PROXY) as fresh:
            assert answered(fresh, request(served.tokens["ana"]))[0] == 200
        assert all(read_all(link) == b"" for link in links)


@pytest.fixture(scope="module")
def encrypted(shop):
    certificate, key = certificates.make_certificate(shop.directory, "server")
    with serving(shop.directory, "--certificate", str(certificate), "--key", str(key)) as server:
        context = ssl.create_default_context(cafile=certificate)
        yield SimpleNamespace(http=server.http, pg=server.pg, tokens=shop.tokens, context=context)


@pytest.mark.nightly
def test_handshakes_that_never_end(encrypted):
    token = encrypted.tokens["ana"]
    with (
        crowd(encrypted.http, says=(b"", b"\x16\x03\x01")) as silent,
        crowd(encrypted.pg, says=(SSL_REQUEST,)) as asked,
    ):
        for source in ("127.0.0.2", "127.0.0.1"):
            with encrypted.context.wrap_socket(connected(encrypted.http, source), server_hostname="127.0.0.1") as link:
                assert answered(link, request(token))[0] == 200
        place = f"host=127.0.0.1 port={encrypted.pg} user=ana dbname=shop sslmode=require"
        with psycopg.connect(place, password=token) as link:
            assert len(link.execute(SQL).fetchall()) == 1
        for link in (*silent, *asked):
            read_all(link)
