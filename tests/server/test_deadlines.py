"""Clients that send little, slowly, or without end don't keep a connection."""

import contextlib
import socket
import time

import pytest

import dither as dp
from dither.curator import AnalystView
from dither.server.limits import ServerLimits
from dither.server.run import Address, background

HEAD = b"POST /v1/ask HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer x\r\n"
GOOD = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture(scope="module")
def address(tmp_path_factory, shop_data):
    directory = tmp_path_factory.mktemp("deadlines")
    for name in ("shop.duckdb", "dither.toml"):
        (directory / name).write_bytes(shop_data.with_name(name).read_bytes())
    limits = ServerLimits(slowest=1.0, sign_in=1.0, connections=20, strangers=40, each_address=30)
    with background(directory / "dither.toml", Address(port=0, pg_port=None), limits=limits) as server:
        yield "127.0.0.1", int(server.url.rsplit(":", 1)[1])


@pytest.fixture
def patient(shop):
    """A server with as few places, whose deadlines nothing comes near to."""
    limits = ServerLimits(slowest=600.0, sign_in=600.0, connections=20, strangers=40, each_address=30)
    with background(shop / "dither.toml", Address(port=0, pg_port=None), limits=limits) as server:
        yield "127.0.0.1", int(server.url.rsplit(":", 1)[1])


def read_all(link):
    found = b""
    try:
        while part := link.recv(65536):
            found += part
    except ConnectionError:
        pass
    return found


def read_one(link):
    """One answer on a connection that stays open: its head and its body, in however many pieces they come."""
    found = b""
    while b"\r\n\r\n" not in found and (part := link.recv(65536)):
        found += part
    head, _, body = found.partition(b"\r\n\r\n")
    (length,) = [int(line[15:]) for line in head.lower().splitlines() if line.startswith(b"content-length:")]
    while len(body) < length and (part := link.recv(65536)):
        body += part
    return head + b"\r\n\r\n" + body


HALVES = (
    b"",
    b"PO",
    HEAD,
    HEAD + b"Content-Length: 50\r\n\r\n",
    HEAD + b"Content-Length: 50\r\n\r\n{",
    HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{",
    GOOD + GOOD[:10],
)


def test_half_a_request_is_not_waited_for(address):
    with contextlib.ExitStack() as stack:
        links = [stack.enter_context(socket.create_connection(address, timeout=20)) for _ in HALVES]
        for link, begun in zip(links, HALVES, strict=True):
            link.sendall(begun)
        answers = [read_all(link).count(b"200 OK") for link in links]
    assert answers == [0, 0, 0, 0, 0, 0, 1]


def test_a_byte_now_and_then_does_not_help(address):
    with socket.create_connection(address, timeout=20) as link:
        sent = 0
        try:
            for sent in range(400):
                link.sendall(HEAD[sent % len(HEAD) :][:1])
                time.sleep(0.01)
        except ConnectionError:
            pass
    assert sent < 399


def test_requests_one_after_the_other_are_answered(patient):
    with socket.create_connection(patient, timeout=20) as link:
        for _ in range(5):
            link.sendall(GOOD[:7])
            time.sleep(0.1)
            link.sendall(GOOD[7:])
            answer = b""
            while not answer.endswith(b"}"):
                answer += link.recv(65536)
            assert answer.startswith(b"HTTP/1.1 200")


def test_many_requests_at_once_are_not_a_large_head(address):
    with socket.create_connection(address, timeout=20) as link:
        padded = GOOD[:-2] + b"X: " + b"y" * 1000 + b"\r\n\r\n"
        link.sendall(padded * 500 + GOOD[:-2] + b"Connection: close\r\n\r\n")
        assert read_all(link).count(b"HTTP/1.1 200") == 501


def test_headers_without_end(address):
    with socket.create_connection(address, timeout=20) as link:
        link.sendall(HEAD)
        # far more than the two ends can hold in between
        with pytest.raises(ConnectionError):
            link.sendall((b"X: " + b"y" * 5000 + b"\r\n") * 5000)


def test_half_requests_take_no_place_from_others(address):
    """Far more of them than there are places, also for those who come from the same address."""
    with contextlib.ExitStack() as stack:
        held = []
        for _ in range(100):
            held.append(stack.enter_context(socket.create_connection(address, timeout=20)))
            held[-1].sendall(HEAD)
        with socket.create_connection(address, timeout=20) as link:
            link.sendall(GOOD)
            assert link.recv(65536).startswith(b"HTTP/1.1 200")
        answers = [read_all(link) for link in held]
    assert {answer[:12] for answer in answers} <= {b"", b"HTTP/1.1 503"}


def test_whoever_had_begun_to_ask_is_told_why_they_have_to_go(patient):
    with contextlib.ExitStack() as stack:

        def come():
            return stack.enter_context(socket.create_connection(patient, timeout=60))

        begun, silent, known = come(), come(), come()
        begun.sendall(HEAD)
        # whoever came later was answered, so the others are there and were heard
        known.sendall(GOOD)
        assert read_one(known).startswith(b"HTTP/1.1 200")
        for _ in range(60):
            come()
        told = read_all(begun)
        assert told.startswith(b"HTTP/1.1 503")
        assert b"\r\nRetry-After: 1\r\n" in told
        assert b"too many connections that aren't signed in" in told
        assert read_all(silent) == b""


def test_places_for_who_is_signed_in(shop):
    """Half of them at most for one analyst; more are told to come back."""
    limits = ServerLimits(connections=2)
    with (
        background(shop / "dither.toml", Address(port=0, pg_port=None), limits=limits) as server,
        contextlib.ExitStack() as stack,
    ):
        port = int(server.url.rsplit(":", 1)[1])
        asks = f"GET /v1/budget HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.owner_token}\r\n\r\n".encode()
        first, second, page = (
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20)) for _ in range(3)
        )
        first.sendall(asks)
        assert read_one(first).startswith(b"HTTP/1.1 200")
        second.sendall(asks)
        answer = read_one(second)
        assert answer.startswith(b"HTTP/1.1 503")
        assert b"\r\nretry-after: 1\r\n" in answer
        # which is no reason to be shut out of what anybody may see
        page.sendall(GOOD)
        assert read_one(page).startswith(b"HTTP/1.1 200")
        first.close()
        for _ in range(1000):
            if not answer.startswith(b"HTTP/1.1 503"):
                break
            time.sleep(0.02)
            second.sendall(asks)
            answer = read_one(second)
        assert answer.startswith(b"HTTP/1.1 200")


def test_pages_that_nobody_reads(shop):
    """Far more than the two ends can hold in between."""
    with (
        background(shop / "dither.toml", Address(port=0, pg_port=None), limits=ServerLimits(slowest=1.0)) as server,
        socket.socket() as link,
    ):
        address = ("127.0.0.1", int(server.url.rsplit(":", 1)[1]))
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        link.settimeout(20)
        link.connect(address)
        link.sendall(b"GET /static/htmx.min.js HTTP/1.1\r\nHost: x\r\n\r\n" * 500)
        # before the server has begun there is no stranger either
        assert link.recv(1, socket.MSG_PEEK)
        shown = f"Authorization: Bearer {server.owner_token}\r\nConnection: close\r\n\r\n".encode()
        for _ in range(1000):
            with socket.create_connection(address, timeout=20) as owner:
                owner.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n" + shown)
                if b"\ndither_http_strangers 0\n" in read_all(owner):
                    break
            time.sleep(0.05)
        # what was sent by then is all that comes
        assert read_all(link).count(b"HTTP/1.1 200") < 500


def test_long_questions_outlast_it(shop, monkeypatch):
    """The deadline is for what clients do; what the server takes is its own affair."""
    answer = AnalystView.sql

    def slow(*given, **named):
        time.sleep(1.5)
        return answer(*given, **named)

    monkeypatch.setattr(AnalystView, "sql", slow)
    with (
        background(shop / "dither.toml", Address(port=0, pg_port=None), limits=ServerLimits(slowest=1.0)) as server,
        dp.client(server.url, server.owner_token) as client,
    ):
        assert client.sql("SELECT COUNT(*) AS n FROM orders", epsilon="0.01").scalar() is not None
