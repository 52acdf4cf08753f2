"""The client's connections: kept, replaced once when dropped, trusted only with a certificate, and never redirected."""

import contextlib
import datetime as dt
import ipaddress
import json
import socket
import ssl
import subprocess
import sys
import threading

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import dither as dp
from dither.errors import InvalidParameter, LedgerBusy
from dither.remote import ServerError, TookTooLong, Unreachable

FACTS = {"dataset": "shop"}


def reply(body, status="200 OK", kind="application/json", more=""):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n{more}\r\n"
    return head.encode() + data


@pytest.fixture
def scripted():
    """A server that plays a script: for each connection the replies that it gives, and then it hangs up.

    ``scripted(script)`` gives its address and the list of requests that it got, as (connection, first line).
    """
    with contextlib.ExitStack() as undo:

        def started(script, tls=None):
            listener = undo.enter_context(socket.create_server(("127.0.0.1", 0)))
            got = []

            def play():
                for number, replies in enumerate(script):
                    try:
                        connection, _ = listener.accept()
                    except OSError:
                        return
                    with connection, contextlib.suppress(OSError):
                        spoken = tls.wrap_socket(connection, server_side=True) if tls else connection
                        with spoken:
                            for one in replies:
                                got.append((number, request_of(spoken)))
                                spoken.sendall(one)

            thread = threading.Thread(target=play)
            thread.start()
            undo.callback(thread.join)
            undo.callback(lambda: stop(listener))
            scheme = "https" if tls else "http"
            return f"{scheme}://127.0.0.1:{listener.getsockname()[1]}", got

        yield started


def stop(listener):
    with contextlib.suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def request_of(connection):
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            raise OSError("hung up")
        data += more
    head, _, rest = data.partition(b"\r\n\r\n")
    lengths = [int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    while lengths and len(rest) < lengths[0]:
        rest += connection.recv(65536)
    return head.decode()


def test_a_connection_is_kept(scripted):
    url, got = scripted([[reply(FACTS), reply(FACTS)]])
    with dp.client(url, "token") as client:
        assert client.schema() == client.schema() == FACTS
    assert [number for number, _ in got] == [0, 0]
    assert "Authorization: Bearer token" in got[0][1]


def test_a_dropped_connection_is_replaced_once(scripted):
    url, got = scripted([[reply(FACTS)], [reply(FACTS)]])
    with dp.client(url, "token") as client:
        assert client.schema() == client.schema() == FACTS
    assert [number for number, _ in got] == [0, 1]


def test_a_post_is_sent_again_on_a_dropped_connection(scripted):
    problem = reply({"code": "out_of_budget", "title": "no", "status": 402}, "402 x", "application/problem+json")
    # the second request arrives and gets no reply at all
    url, got = scripted([[reply(FACTS), b""], [problem]])
    with dp.client(url, "token") as client:
        client.schema()
        with pytest.raises(dp.OutOfBudget):
            client.sql("SELECT 1", epsilon=1)
    assert [(number, head.split()[0]) for number, head in got] == [(0, "GET"), (0, "POST"), (1, "POST")]


def test_a_wish_for_more_budget_is_never_sent_twice(scripted):
    """Two of them would be two wishes: it has a connection of its own, and nothing is tried again."""
    url, got = scripted([[reply(FACTS)], [b""], [reply(FACTS)]])
    with dp.client(url, "token") as client:
        client.schema()
        with pytest.raises(Unreachable, match=r"look at requests\(\) before you send it again"):
            client.request_budget(1, why="more")
    assert [(number, head.split()[0]) for number, head in got] == [(0, "GET"), (1, "POST")]


def test_a_new_connection_that_drops_is_not_tried_again(scripted):
    url, got = scripted([[b""], [reply(FACTS)]])
    with dp.client(url, "token") as client:
        with pytest.raises(Unreachable, match="isn't charged twice"):
            client.schema()
        assert len(got) == 1
        assert client.schema() == FACTS


def test_a_reply_that_says_close_is_the_last(scripted):
    url, got = scripted([[reply(FACTS, more="Connection: close\r\n")], [reply(FACTS)]])
    with dp.client(url, "token") as client:
        assert client.schema() == client.schema() == FACTS
    assert [number for number, _ in got] == [0, 1]


def test_an_address_with_a_path(scripted):
    url, got = scripted([[reply(FACTS)]])
    with dp.client(f"{url}/data/", "token") as client:
        client.schema()
    assert got[0][1].startswith("GET /data/v1/schema ")


@pytest.mark.parametrize(
    ("sent", "kind", "said"),
    [
        (reply({"x": 1}, "500 x"), ServerError, "isn't one of a server of dither"),
        (reply(b"<html>"), ServerError, "isn't one of a server of dither"),
        (reply(b"<html>", kind="text/html"), ServerError, "isn't one of a server of dither"),
        (reply(b"nonsense", "503 x", "application/problem+json"), ServerError, "status 503"),
        (reply([], "503 x", "application/problem+json"), ServerError, "status 503"),
        (reply(b"", "302 Found", more="Location: http://elsewhere/\r\n"), ServerError, "elsewhere"),
        (b"SSH-2.0-OpenSSH\r\n", ServerError, "isn't one of a server of dither"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{}", Unreachable, "broke"),
        (
            reply({"code": "ledger_busy", "title": "busy", "hint": "Again."}, "503 x", "application/problem+json"),
            LedgerBusy,
            "busy. Again.",
        ),
        (
            reply({"code": "internal", "title": "oh", "hint": "Wait."}, "500 x", "application/problem+json"),
            ServerError,
            "oh. Wait.",
        ),
        (
            reply({"code": "took_too_long", "title": "not yet", "hint": ""}, "504 x", "application/problem+json"),
            TookTooLong,
            "not yet",
        ),
    ],
)
def test_strange_replies_are_said_plainly(scripted, sent, kind, said):
    url, _ = scripted([[sent]])
    with dp.client(url, "token") as client, pytest.raises(kind, match=said) as problem:
        client.schema()
    assert isinstance(problem.value, dp.DitherError)
    assert type(problem.value) is kind


def test_nobody_listens():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with (
        dp.client(f"http://127.0.0.1:{port}", "token") as client,
        pytest.raises(Unreachable, match=r"127\.0\.0\.1 can't"),
    ):
        client.schema()


def test_a_silent_server_is_not_awaited_for_ever():
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        dp.client(f"http://127.0.0.1:{listener.getsockname()[1]}", "token", timeout=0.05) as client,
        pytest.raises(TookTooLong, match=r"no reply within 0\.05 s"),
    ):
        client.schema()


@pytest.mark.parametrize(
    "url", ["http://example.org", "http://10.0.0.1:8765", "http://[2001:db8::1]", "http://0.0.0.0"]
)
def test_no_token_travels_in_clear(url):
    with pytest.raises(InvalidParameter, match="in clear"):
        dp.client(url, "token")
    dp.client(url, "token", insecure=True).close()


@pytest.mark.parametrize("url", ["http://localhost:1", "http://127.0.0.2", "http://[::1]:8765", "https://example.org"])
def test_loopback_and_tls_need_no_permission(url):
    with dp.client(url, "hidden") as client:
        assert repr(client) == f"<dither client of {url}>"


@pytest.mark.parametrize(
    "url", ["", "data.example.org", "ftp://x", "https://", "https://x:port", "https://me:pw@x", "https://x?y", "http:x"]
)
def test_addresses_that_are_none(url):
    with pytest.raises(InvalidParameter, match="looks like"):
        dp.client(url, "token")


@pytest.mark.parametrize("token", ["", "two words", "line\r\nCookie: x", "tökén", "x" * 513])
def test_tokens_that_are_none(token):
    with pytest.raises(InvalidParameter, match="the token must be"):
        dp.client("http://127.0.0.1", token)


def test_a_closed_client_says_so():
    client = dp.client("http://127.0.0.1", "token")
    client.close()
    client.close()
    with pytest.raises(InvalidParameter, match="was closed"):
        client.schema()


def test_the_client_needs_none_of_the_servers_libraries():
    script = """
import sys
for name in ("fastapi", "starlette", "uvicorn", "orjson", "jinja2", "httptools", "uvloop"):
    sys.modules[name] = None
import dither
dither.client("http://127.0.0.1", "token").close()
try:
    import dither.server.app
except dither.DitherError as problem:
    print(problem)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout == "the HTTP server needs more libraries: pip install 'dither[server]'\n"


@pytest.fixture
def certified(tmp_path):
    """A certificate for 127.0.0.1 that nobody signed, and what serves it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "shop")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    public, private = tmp_path / "cert.pem", tmp_path / "key.pem"
    public.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(public, private)
    return public, context


def test_certificates_are_checked(scripted, certified):
    public, context = certified
    url, got = scripted([[reply(FACTS)], [reply(FACTS)]], tls=context)
    with dp.client(url, "token") as client, pytest.raises(Unreachable, match=r"no trusted connection to 127\.0\.0\.1"):
        client.schema()
    assert got == []
    with dp.client(url, "token", certificates=public) as client:
        assert client.schema() == FACTS
    other, got = scripted([[reply(FACTS)]], tls=context)
    wrong_name = other.replace("127.0.0.1", "localhost")
    with dp.client(wrong_name, "token", certificates=public, insecure=True) as client, pytest.raises(Unreachable):
        client.schema()
    assert got == []
