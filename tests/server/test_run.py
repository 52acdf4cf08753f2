"""Where a server may listen, and what it says to whoever starts it."""

import shlex
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import psycopg
import pytest

import dither as dp
from dither.errors import InvalidParameter
from dither.policy import Policy
from dither.server.auth.tokens import TokenFile
from dither.server.run import Address, Running, access_path, background, serve


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.8.8.8"])
def test_on_this_machine_no_certificate_is_needed(host):
    place = Address(host=host)
    assert place.local
    assert place.tls() is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "db.example.org", ""])
def test_beyond_it_one_is(host):
    with pytest.raises(InvalidParameter, match="must not travel in clear"):
        Address(host=host)


def test_a_certificate_has_a_key(tmp_path):
    with pytest.raises(InvalidParameter, match="both files"):
        Address(certificate=tmp_path / "a.pem")
    with pytest.raises(InvalidParameter, match="both files"):
        Address(key=tmp_path / "a.pem")


def test_files_that_are_no_certificate(tmp_path):
    (tmp_path / "a.pem").write_text("nothing")
    place = Address(host="0.0.0.0", certificate=tmp_path / "a.pem", key=tmp_path / "missing.pem")
    with pytest.raises(InvalidParameter, match="two PEM files"):
        place.tls()


@pytest.mark.parametrize("port", [-1, 65536])
def test_ports(port):
    with pytest.raises(InvalidParameter, match="from 0 to 65535"):
        Address(port=port)
    with pytest.raises(InvalidParameter, match="from 0 to 65535"):
        Address(pg_port=port)


def test_the_line_for_psql():
    server = Running(url="http://[::1]:8765", pg_port=5433, dataset="shop", owner_token=None, stop=lambda: None)
    assert server.psql() == 'psql "host=::1 port=5433 user=owner dbname=shop"'
    named = Running(url="https://db:1", pg_port=5433, dataset="my 'shop'", owner_token=None, stop=lambda: None)
    assert shlex.split(named.psql())[1] == r"host=db port=5433 user=owner dbname='my \'shop\'' sslmode=verify-full"
    without = Running(url="http://127.0.0.1:1", pg_port=None, dataset="shop", owner_token=None, stop=lambda: None)
    assert without.psql() is None


def test_both_protocols_answer_and_everything_stops(shop):
    before = threading.active_count()
    with background(shop / "dither.toml") as server:
        assert server.owner_token is not None
        client = dp.client(server.url, server.owner_token)
        answer = client.sql("SELECT COUNT(*) AS n FROM orders", epsilon="0.1")
        client.close()
        place = f"host=127.0.0.1 port={server.pg_port} user=owner dbname=shop"
        with psycopg.connect(place, password=server.owner_token) as connection:
            found = connection.execute("SELECT COUNT(*) AS n FROM orders").fetchone()
        # the same question over both protocols: charged once (the policy's default ε is 0.1)
        assert found == (answer.scalar(),)
    with dp.Curator.open(shop / "dither.toml") as curator:
        assert len(curator.answers().items) == 1
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"{server.url}/health", timeout=5)
    assert threading.active_count() == before


def test_an_owner_token_is_shown_once(shop):
    with background(shop / "dither.toml", Address(port=0, pg_port=None)) as server:
        secret = server.owner_token
        assert server.pg_port is None
    with background(shop / "dither.toml", Address(port=0, pg_port=None)) as again:
        assert again.owner_token is None
    with TokenFile.open(access_path(dp.Policy.load(shop / "dither.toml"))) as tokens:
        assert tokens.identify(secret).is_owner


def test_a_port_that_is_taken_is_said_so(shop):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InvalidParameter, match="--port"), background(shop / "dither.toml", Address(port=port)):
            pass
        place = Address(port=0, pg_port=port)
        with pytest.raises(InvalidParameter, match="--pg-port"), background(shop / "dither.toml", place):
            pass
    # nothing was left open: the curator can be opened again; and no token was made that nobody saw
    dp.Curator.open(shop / "dither.toml").close()
    with TokenFile.open(access_path(dp.Policy.load(shop / "dither.toml"))) as tokens:
        assert tokens.list() == ()


def test_the_command_prints_what_to_do_and_stops_on_an_interrupt(shop):
    command = [sys.executable, "-m", "dither.cli.main", "serve", "--port", "0", "--pg-port", "0"]
    with subprocess.Popen(
        command, cwd=shop, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "Ctrl-C" in line:
                break
        process.send_signal(2)
        rest, errors = process.communicate(timeout=60)
    said = "".join(lines)
    assert process.returncode == 0, errors
    assert "web page     http://127.0.0.1:" in said
    assert 'psql "host=127.0.0.1 port=' in said
    assert "owner token  dither_" in said
    assert "dither token create NAME" in said
    assert "stopped" in rest
    assert "Traceback" not in errors


def test_whoever_serves_gets_their_interrupts_back(shop):
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    seen = []

    def started(server):
        seen.append(server.url)
        signal.raise_signal(signal.SIGINT)

    serve(Policy.load(shop / "dither.toml"), Address(port=0, pg_port=None), started=started)
    assert len(seen) == 1
    assert {number: signal.getsignal(number) for number in before} == before
