"""The PostgreSQL server as a whole: TLS, cancelling, limits, clients that misbehave, and bytes at random."""

import contextlib
import datetime as dt
import logging
import random
import re
import socket
import ssl
import struct
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pytest

from dither.curator import AnalystView
from dither.server.limits import ServerLimits
from dither.server.pgwire.protocol.connection import Patience
from support import raw_client as raw

CITIES = "SELECT city, COUNT(*) AS n FROM orders GROUP BY city ORDER BY city"
SSL_REQUEST = struct.pack("!ii", 8, 80877103)
GSSENC_REQUEST = struct.pack("!ii", 8, 80877104)


def cancel_request(key):
    return struct.pack("!ii", 16, 80877102) + key


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with raw.shop_served(tmp_path_factory.mktemp("server"), limits=ServerLimits(waiting=20_000)) as found:
        yield found


@pytest.fixture
def client(served):
    with raw.RawClient(served.port) as connection:
        yield connection.sign_in("ana", served.tokens["ana"])


def until(condition):
    """Wait for something that another thread does; what never comes fails the test."""
    for _ in range(2000):
        if condition():
            return
        time.sleep(0.005)
    raise AssertionError("it didn't come")


def works(served):
    """Whether somebody can still sign in and ask."""
    with raw.RawClient(served.port) as connection:
        connection.sign_in("ana", served.tokens["ana"])
        return raw.tags(connection.simple(CITIES)) == ["SELECT 3"]


# ---------------------------------------------------------------------- TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    plain = serialization.NoEncryption()
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return path


@pytest.fixture
def encrypted(served, certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with raw.serving(served.service, served.access, tls=context, require_tls=True) as server:
        yield SimpleNamespace(port=server.port, tokens=served.tokens)


def test_without_tls_of_its_own_a_server_says_no_and_goes_on(served):
    with raw.RawClient(served.port) as connection:
        connection.send(SSL_REQUEST)
        assert connection.exactly(1) == b"N"
        connection.send(GSSENC_REQUEST)
        assert connection.exactly(1) == b"N"
        connection.sign_in("ana", served.tokens["ana"])


def test_tls(encrypted, certificate):
    with raw.RawClient(encrypted.port) as connection:
        connection.send(GSSENC_REQUEST)
        assert connection.exactly(1) == b"N"
        connection.send(SSL_REQUEST)
        assert connection.exactly(1) == b"S"
        context = ssl.create_default_context(cafile=certificate)
        connection.socket = context.wrap_socket(connection.socket, server_hostname="localhost")
        connection.sign_in("ana", encrypted.tokens["ana"], header="y,,")
        assert raw.tags(connection.simple(CITIES)) == ["SELECT 3"]


def test_whoever_doesnt_encrypt_is_turned_away_where_tls_is_required(encrypted):
    with raw.RawClient(encrypted.port) as connection:
        connection.send(raw.startup(user="ana"))
        (found,) = connection.rest()
        assert (raw.fields(found)["S"], raw.fields(found)["C"]) == ("FATAL", "28000")


def test_a_client_too_many_is_told_so_within_tls(served, certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    service = raw.CountingService(served.curator, ServerLimits(connections=1))
    with (
        contextlib.closing(service),
        raw.serving(service, served.access, tls=context, require_tls=True) as server,
        raw.RawClient(server.port) as first,
        raw.RawClient(server.port) as second,
    ):
        for connection in (first, second):
            connection.send(SSL_REQUEST)
            assert connection.exactly(1) == b"S"
            trusting = ssl.create_default_context(cafile=certificate)
            connection.socket = trusting.wrap_socket(connection.socket, server_hostname="localhost")
        first.sign_in("ana", served.tokens["ana"], header="y,,")
        second.send(raw.startup(user="ana"))
        (told,) = second.rest()
        assert (raw.fields(told)["S"], raw.fields(told)["C"]) == ("FATAL", "53300")


def test_what_was_sent_before_the_handshake_isnt_read_after_it(encrypted):
    with raw.RawClient(encrypted.port) as connection:
        connection.send(SSL_REQUEST + raw.startup(user="ana"))
        assert connection.exactly(1) == b"S"
        (found,) = connection.rest()
        assert raw.fields(found)["C"] == "08P01"


def test_a_handshake_that_isnt_one_takes_nobody_down(encrypted, certificate):
    with raw.RawClient(encrypted.port) as connection:
        connection.send(SSL_REQUEST)
        assert connection.exactly(1) == b"S"
        connection.send(b"this is not TLS at all, but long enough to be looked at")
        with contextlib.suppress(ConnectionError):
            while connection.socket.recv(1000):
                pass
    test_tls(encrypted, certificate)


def test_encryption_cant_be_asked_for_without_end(served):
    with raw.RawClient(served.port) as connection:
        connection.send(GSSENC_REQUEST * 9)
        assert connection.exactly(4) == b"NNNN"
        assert raw.fields(connection.rest()[0])["C"] == "08P01"


# ---------------------------------------------------------------------- cancelling


def cancelled(served):
    """How many requests to cancel were heeded."""
    found = re.search(r'what="pgwire",outcome="cancelled"} (\d+)', served.service.metrics.text({}))
    return int(found[1]) if found else 0


def test_cancelling_stops_the_waiting_and_never_the_question(served, client):
    gate = served.service.gate = threading.Event()
    before = cancelled(served)
    question = "SELECT COUNT(*) AS n FROM orders WHERE amount > 11"
    try:
        served.service.asked.clear()
        client.send(raw.query(question))
        until(lambda: served.service.asked)
        with raw.RawClient(served.port) as other:
            other.send(cancel_request(client.key[:4] + bytes(4)))
            assert other.rest() == []
        assert cancelled(served) == before
        with raw.RawClient(served.port) as other:
            other.send(cancel_request(client.key))
            assert other.rest() == []
        assert cancelled(served) == before + 1
        found = client.until()
        assert [error["C"] for error in raw.errors(found)] == ["57014"]
    finally:
        gate.set()
        served.service.gate = None
    assert raw.tags(client.simple(question)) == ["SELECT 1"]


def test_cancelling_a_question_that_runs_leaves_its_charge(tmp_path, monkeypatch):
    with raw.shop_served(tmp_path) as found, raw.RawClient(found.port) as client:
        client.sign_in("ana", found.tokens["ana"])
        began, goes_on = threading.Event(), threading.Event()
        real = AnalystView.sql

        def slow(*given, **more):
            began.set()
            assert goes_on.wait(20)
            return real(*given, **more)

        monkeypatch.setattr(AnalystView, "sql", slow)
        client.send(raw.query(CITIES))
        assert began.wait(20)
        with raw.RawClient(found.port) as other:
            other.send(cancel_request(client.key))
            other.rest()
        assert raw.errors(client.until())[0]["C"] == "57014"
        goes_on.set()
        until(lambda: found.service.under_way == 0)
        assert len(found.curator.answers("ana").items) == 1
        again = client.simple(CITIES)
        assert raw.fields(again[0])["M"].startswith("cost: nothing")


def test_cancelling_when_nothing_runs_changes_nothing(served, client):
    for key in (client.key, bytes(8), client.key[:4] + b"xxxx"):
        with raw.RawClient(served.port) as other:
            other.send(cancel_request(key))
            assert other.rest() == []
    assert raw.tags(client.simple(CITIES)) == ["SELECT 3"]


def test_waiting_ends_after_the_servers_patience(tmp_path, monkeypatch):
    with (
        raw.shop_served(tmp_path, limits=ServerLimits(patience=0.05)) as found,
        raw.RawClient(found.port) as client,
    ):
        client.sign_in("ana", found.tokens["ana"])
        goes_on = threading.Event()
        real = AnalystView.sql
        monkeypatch.setattr(AnalystView, "sql", lambda *a, **k: goes_on.wait(20) and real(*a, **k))
        (error,) = raw.errors(client.simple(CITIES))
        assert (error["C"], error["M"]) == ("57014", "the answer isn't there yet")
        goes_on.set()
        until(lambda: found.service.under_way == 0)


# ---------------------------------------------------------------------- limits


def test_too_many_connections(tmp_path):
    """Who hasn't signed in takes no place; where all are taken, one more is told so before it is asked for a token."""
    with raw.shop_served(tmp_path, limits=ServerLimits(connections=2)) as found:
        with raw.RawClient(found.port) as first, raw.RawClient(found.port) as silent, raw.RawClient(found.port) as last:
            first.sign_in("ana", found.tokens["ana"])
            silent.send(b"\0")
            until(lambda: found.server.connections == 3)
            last.sign_in("bob", found.tokens["bob"])
            with raw.RawClient(found.port) as more:
                more.send(raw.startup(user="bob"))
                (told,) = more.rest()
                assert (raw.fields(told)["S"], raw.fields(told)["C"]) == ("FATAL", "53300")
        until(lambda: found.server.connections == 0)
        assert works(found)


def test_slow_and_idle_clients_are_left(served):
    patience = Patience(sign_in=0.2, idle=0.4, stalled=0.2, closing=0.2)
    with raw.serving(served.service, served.access, patience=patience) as server:
        with raw.RawClient(server.port) as slow:
            slow.send(raw.startup(user="ana")[:9])
            assert raw.fields(slow.rest()[-1])["C"] == "57P05"
        with raw.RawClient(server.port) as idle:
            idle.sign_in("ana", served.tokens["ana"])
            assert raw.fields(idle.rest()[-1])["C"] == "57P05"
        with raw.RawClient(server.port) as stalled:
            stalled.sign_in("ana", served.tokens["ana"])
            stalled.send(raw.query(CITIES)[:9])
            assert stalled.rest() == []
        until(lambda: server.connections == 0)


def test_whoever_doesnt_read_is_left(served, monkeypatch):
    large(served, monkeypatch, 100_000)
    patience = Patience(stalled=0.3, closing=0.3)
    with (
        raw.serving(served.service, served.access, patience=patience) as server,
        raw.RawClient(server.port) as connection,
    ):
        connection.sign_in("ana", served.tokens["ana"])
        connection.send(raw.query(CITIES))
        until(lambda: server.connections == 0)


def test_a_large_answer_arrives_whole(served, client, monkeypatch):
    large(served, monkeypatch, 2500)
    found = client.simple(CITIES)
    assert [row[0][:4] for row in raw.rows(found)] == [b"%04d" % number for number in range(2500)]
    assert raw.tags(found) == ["SELECT 2500"]
    copied = client.simple(f"COPY ({CITIES}) TO STDOUT")
    assert [each.body[:4] for each in copied if each.kind == b"d"] == [b"%04d" % number for number in range(2500)]


def large(served, monkeypatch, rows):
    """Have every question answered by a table of many long rows."""
    real = served.service.ask

    async def ask(who, wanted):
        answer = await real(who, wanted)
        table = pa.table({"city": [f"{row:04d}" + "x" * 100 for row in range(rows)], "n": list(range(rows))})
        return replace(answer, table=table, bars={})

    monkeypatch.setattr(served.service, "ask", ask)


def test_much_work_of_one_client_leaves_others_their_turn(served, client):
    """Thousands of statements in one message; another client is served before they are done."""
    client.send(raw.query("SHOW dp.epsilon;" * 3000))
    first = client.read()
    ((_, busy),) = served.server._sessions.values()
    with raw.RawClient(served.port) as other:
        other.sign_in("bob", served.tokens["bob"])
        other.simple("SHOW dp.epsilon")
        done = busy._done
    assert raw.kinds([first, *client.until()]) == "TDC" * 3000 + "Z"
    assert done < 3000


def test_texts_that_are_too_long_for_statements(client):
    (error,) = raw.errors(client.simple("SELECT '" + "x" * 1_000_001 + "'"))
    assert error["C"] == "54000"


def test_clients_that_hang_up_leave_nothing_behind(tmp_path, monkeypatch):
    with raw.shop_served(tmp_path) as found:
        began, goes_on = threading.Event(), threading.Event()
        real = AnalystView.sql

        def slow(*given, **more):
            began.set()
            assert goes_on.wait(20)
            return real(*given, **more)

        monkeypatch.setattr(AnalystView, "sql", slow)
        with raw.RawClient(found.port) as client:
            client.sign_in("ana", found.tokens["ana"])
            client.send(raw.query(CITIES))
            assert began.wait(20)
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        goes_on.set()
        until(lambda: found.server.connections == 0 and found.service.under_way == 0)
        assert len(found.curator.answers("ana").items) == 1


def test_long_messages_are_refused_before_they_are_read(tmp_path):
    with (
        raw.shop_served(tmp_path, limits=ServerLimits(longest_message=1000)) as found,
        raw.RawClient(found.port) as client,
    ):
        client.sign_in("ana", found.tokens["ana"])
        assert raw.errors(client.simple("SELECT '" + "x" * 900 + "' FROM orders"))
        client.send(b"Q" + struct.pack("!i", 1005))
        assert raw.fields(client.rest()[0])["C"] == "08P01"


def test_stopping_tells_clients_and_waits_for_none(served):
    with raw.serving(served.service, served.access) as server, raw.RawClient(server.port) as client:
        client.sign_in("ana", served.tokens["ana"])
        server.run(server.stop())
        told = client.rest()
        assert [raw.fields(each)["C"] for each in told] == ["57P01"]


def test_an_error_nobody_foresaw_tells_nothing(served, client, monkeypatch, caplog):
    def broken(*_):
        raise RuntimeError("a secret path /srv/data and a value 4711")

    monkeypatch.setattr(served.service, "ask", broken)
    with caplog.at_level(logging.DEBUG):
        (error,) = raw.errors(client.simple(CITIES))
    assert error["C"] == "XX000"
    assert "secret" not in str(error)
    assert "secret" not in caplog.text
    monkeypatch.undo()
    assert raw.tags(client.simple(CITIES)) == ["SELECT 3"]


def test_logs_hold_neither_statements_nor_values_nor_tokens(served, caplog):
    with caplog.at_level(logging.DEBUG), raw.RawClient(served.port) as client:
        client.sign_in("ana", served.tokens["ana"])
        client.simple("SELECT COUNT(*) FROM orders WHERE product = 'article 4711'")
        client.simple("SELECT nope_4711 FROM orders")
        client.send(raw.message(b"P", b"4711"))
        client.rest()
    assert "4711" not in caplog.text
    assert served.tokens["ana"] not in caplog.text


# ---------------------------------------------------------------------- bytes at random


def mutated(chance, content):
    """A few bytes changed, cut out, doubled or put in."""
    found = bytearray(content)
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(found) + 1) if found else 0
        what = chance.randrange(4)
        if what == 0 and place < len(found):
            found[place] = chance.randrange(256)
        elif what == 1:
            del found[place : place + chance.randint(1, 5)]
        elif what == 2:
            found[place:place] = found[place : place + 8]
        else:
            found[place:place] = chance.randbytes(chance.randint(1, 4))
    return bytes(found)


PIECES = [
    raw.query(CITIES),
    raw.query("BEGIN; SHOW dp.epsilon; SET dp.epsilon = 0.1; ROLLBACK"),
    raw.parse("SELECT COUNT(*) FROM orders WHERE amount > $1 AND city = $2", "s"),
    raw.bind([b"5", b"Bern"], name="s", portal="p"),
    raw.bind([struct.pack("!d", 5), b"Bern"], name="s", formats=(1, 0), results=(1,)),
    raw.describe(b"S", "s"),
    raw.describe(b"P", "p"),
    raw.close(b"S", "s"),
    raw.close(b"P", "p"),
    raw.execute("p", 1),
    raw.query(f"COPY ({CITIES}) TO STDOUT (FORMAT csv)"),
    raw.FLUSH,
    raw.SYNC,
]


def test_connections_that_begin_with_anything(served):
    """A thousand of them: the server answers with nothing or one error, and serves the next."""
    chance = random.Random(7)
    openings = [SSL_REQUEST, raw.startup(user="ana"), cancel_request(bytes(8)), GSSENC_REQUEST + raw.startup(user="x")]
    for number in range(1000):
        content = (
            chance.randbytes(chance.randint(0, 40)) if number % 3 == 0 else mutated(chance, chance.choice(openings))
        )
        with raw.RawClient(served.port) as connection:
            connection.send(content)
            connection.socket.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionError):
                while connection.socket.recv(4096):
                    pass
    until(lambda: served.server.connections == 0)
    assert works(served)


def test_signed_in_clients_that_send_anything(served):
    """Thousands of broken messages in sequences: a connection ends by 08P01 or goes on, and the server stays."""
    chance = random.Random(11)
    sent = 0
    while sent < 4000:
        with raw.RawClient(served.port) as connection:
            connection.sign_in("ana", served.tokens["ana"])
            parts = [
                mutated(chance, piece) if chance.random() < 0.3 else piece
                for piece in chance.choices(PIECES, k=chance.randint(1, 40))
            ]
            sent += len(parts)
            with contextlib.suppress(ConnectionError):
                connection.send(*parts, raw.SYNC)
                connection.socket.shutdown(socket.SHUT_WR)
                for found in connection.rest():
                    if found.kind == b"E":
                        assert raw.fields(found)["C"] != "XX000", parts
    until(lambda: served.server.connections == 0)
    assert works(served)
