"""Requests that no client would send, by the thousand: the server stays up, says nothing it shouldn't, charges nothing.

More by command: ``DITHER_FUZZ=100000 DITHER_SEED=7 pytest tests/server/test_fuzz_http.py``.
"""

import asyncio
import contextlib
import gc
import json
import logging
import os
import random
import re
import socket
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

import dither as dp
from dither.curator.past.records import open_ledger
from dither.server.auth.identity import Scope
from dither.server.auth.tokens import TokenFile
from dither.server.limits import ServerLimits
from dither.server.run import Address, access_path, background
from support.sizes import short_or_full

NUMBER = int(os.environ.get("DITHER_FUZZ", short_or_full(1200, 6000)))
SEED = int(os.environ.get("DITHER_SEED", "20261"))
SQL = "SELECT city, COUNT(*) AS n FROM orders GROUP BY city"
QUESTION = {"sql": SQL, "epsilon": "0.1"}
FLAT = 48 << 20
STATUS = re.compile(rb"HTTP/1\.[01] (\d{3}) ")
WORDS = [
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP",
    "BY",
    "ORDER",
    "HAVING",
    "LIMIT",
    "JOIN",
    "ON",
    "AS",
    "COUNT(*)",
    "SUM(",
    "AVG(",
    "(",
    ")",
    ",",
    "*",
    "+",
    "-",
    "/",
    "=",
    "<",
    ">",
    "'x'",
    '"orders"',
    "orders",
    "city",
    "amount",
    "secret",
    "customer",
    "NULL",
    "1e308",
    "0x41",
    "--",
    "/*",
    "*/",
    ";",
    "UNION",
    "WITH",
    "RECURSIVE",
    "OVER",
    "PARTITION",
    "CASE",
    "WHEN",
    "END",
    "IN",
    "LIKE",
    "$1",
    "?",
    ":",
    "::",
    "\x00",
    "é",
    "EXPLAIN",
    "PRIVACY",
    "COPY",
    "ATTACH",
    "PRAGMA",
    "INSTALL",
    "read_csv('/etc/passwd')",
    "sleep(10)",
]
METHODS = ("GET", "PUT", "BREW", "CONNECT", "PRI", "")
TARGETS = ("/", "*", "//", "/%00", "/v1/answers/%ff", "/v1/../x", "http://x/", "/" + "a" * 70_000)
VERSIONS = ("1.1", "1.0", "2.0", "9.9", "0.9", "")
COUNTS = ("-1", "NaN", "9" * 400, "%00", "1&count=2")
UPGRADE = b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x\r\n\r\n"


class Kept(logging.Handler):
    """Keeps what is logged."""

    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)


@pytest.fixture(scope="module")
def served(tmp_path_factory, shop_data):
    directory = tmp_path_factory.mktemp("fuzzed")
    for name in ("shop.duckdb", "dither.toml"):
        (directory / name).write_bytes(shop_data.with_name(name).read_bytes())
    policy = dp.Policy.load(directory / "dither.toml")
    logs = Kept()
    logging.getLogger().addHandler(logs)
    with TokenFile.open(access_path(policy)) as access:
        tokens = {name: access.create(name, scope)[1] for name, scope in (("ana", Scope.ASK), ("looker", Scope.PRICE))}
    limits = ServerLimits(rate=1e6, burst=10**6, largest_request=200_000)
    with background(policy, Address(port=0, pg_port=None), limits=limits) as server:
        port = int(server.url.rsplit(":", 1)[1])
        with dp.client(server.url, tokens["looker"]) as client:
            client.price(SQL, epsilon="0.2")  # which imports libraries
        yield SimpleNamespace(policy=policy, port=port, url=server.url, tokens=tokens, logs=logs)
    logging.getLogger().removeHandler(logs)


# ---------------------------------------------------------------------- what is sent


def request(body, token, *, path="/v1/ask", more=""):
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{more}"
        f"Authorization: Bearer {token}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def noise(chance, longest=400):
    return chance.randbytes(chance.randint(1, longest))


def mutated(chance, content):
    """A few bytes changed, dropped, repeated or put in."""
    found = bytearray(content)
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(found))
        kind = chance.randrange(4)
        if kind == 0:
            found[place] = chance.randrange(256)
        elif kind == 1:
            del found[place : place + chance.randint(1, 8)]
        elif kind == 2:
            found[place:place] = noise(chance, 6)
        else:
            found[place:place] = found[place : place + chance.randint(1, 30)]
        if not found:
            return b"\0"
    return bytes(found)


def line(method, target, version="1.1"):
    return f"{method} {target} HTTP/{version}\r\n".encode()


def broken_head(chance, token):
    """A request that goes wrong in its head or in how long it says to be."""
    body = json.dumps(QUESTION).encode()
    bearer = f"Host: localhost\r\nAuthorization: Bearer {token}\r\n".encode()
    head = f"POST /v1/ask HTTP/1.1\r\nContent-Type: application/json\r\n{bearer.decode()}"
    lengths = ("-1", "+5", "0x10", "1e3", "9" * 40, "4 4", "", "5, 5", "99999999", "1")
    sizes = ("zz", "-5", "f" * 20, "0x5", "", "5;" + "x" * 300, "ffffffff")
    return chance.choice(
        (
            lambda: noise(chance, 2000),
            lambda: mutated(chance, request(body, "x" * 40)),
            lambda: request(body, token)[: chance.randint(1, 200)],
            lambda: (head + f"Content-Length: {chance.choice(lengths)}\r\n\r\n").encode() + body[:20],
            lambda: (head + "Content-Length: 5\r\nContent-Length: 7\r\n\r\n").encode() + body[:20],
            lambda: (
                (head + "Transfer-Encoding: chunked\r\n\r\n" + chance.choice(sizes) + "\r\n").encode() + noise(chance)
            ),
            lambda: (head + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n").encode() + noise(chance),
            lambda: (head + "Transfer-Encoding: x, identity\r\n\r\n").encode() + noise(chance),
            lambda: (head + "X: " + "y" * chance.choice((1000, 70_000, 200_000)) + "\r\n").encode(),
            lambda: (head + "".join(f"X-{i}: y\r\n" for i in range(chance.choice((100, 5000)))) + "\r\n").encode(),
            lambda: (
                head + chance.choice(("no colon", ": x", "a\0b: c", " folded", "a b: c", "é: ü")) + "\r\n\r\n"
            ).encode(),
            lambda: line(chance.choice(METHODS), chance.choice(TARGETS), chance.choice(VERSIONS)) + b"\r\n",
            lambda: line("GET", "/v1/answers/" + "%2e" * chance.randint(1, 60)) + bearer + b"\r\n",
            lambda: line("GET", f"/v1/answers?count={chance.choice(COUNTS)}&before=%f0") + bearer + b"\r\n",
            lambda: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + noise(chance),
            lambda: line("GET", "/") + UPGRADE + noise(chance),
        )
    )()


def broken_body(chance):
    """A body that isn't a question: not JSON, not of the form, or of values that make no sense."""
    numbers = (
        b"1e400",
        b"-1",
        b"0",
        b"NaN",
        b"-Infinity",
        b"9" * 5000,
        b'"1/0"',
        b'"9e99"',
        b'"\\u0000"',
        b"true",
        b"[]",
        b"{}",
        b"1e-320",
        b'"' + b"1" * 5000 + b'"',
    )
    depth = chance.choice((10, 300, 5000, 50_000))
    values = (None, True, -1, 2**70, 1e308, "", "x" * 1000, [], {}, [[]], {"n": {}}, "\ud800", "\0", "💥" * 50)
    field = lambda: chance.choice(("sql", "epsilon", "error", "weights", "confidence", "why", "", "é", "__proto__"))  # noqa: E731
    return chance.choice(
        (
            lambda: noise(chance),
            lambda: mutated(chance, json.dumps(QUESTION).encode())[: chance.randint(0, 30)],
            lambda: b"[" * depth,
            lambda: b'{"sql":' * depth + b"1" + b"}" * depth,
            lambda: b'{"sql": "x", "error": ' + b'{"n":' * depth + b"1" + b"}" * (depth + 1),
            lambda: b'{"sql": "SELECT COUNT(*) FROM orders", "epsilon": ' + chance.choice(numbers) + b"}",
            lambda: b'{"sql": "SELECT COUNT(*) FROM orders", "confidence": ' + chance.choice(numbers) + b"}",
            lambda: b'{"sql": "SELECT COUNT(*) AS n FROM orders", "weights": {"n": ' + chance.choice(numbers) + b"}}",
            lambda: json.dumps({field(): chance.choice(values) for _ in range(chance.randint(0, 5))}).encode(),
            lambda: b'{"sql": "\xff\xfe"}',
            lambda: b'{"sql": "\\ud800 \\udc00"}',
            lambda: "\ufeff{}".encode(),
            lambda: json.dumps(QUESTION).encode("utf-16"),
            lambda: b'{"sql": "a", "sql": "b", "epsilon": 1, "epsilon": 2}',
            lambda: b" " * 100_000,
            lambda: b'{"sql": "' + b"x" * 210_000 + b'"}',
        )
    )()


def word_soup(chance):
    sql = " ".join(chance.choice(WORDS) for _ in range(chance.randint(1, 25)))
    nested = chance.choice((20, 200, 1000))
    odd = chance.choice(
        (
            sql,
            f"SELECT COUNT(*) FROM orders WHERE {sql}",
            f"SELECT {'(' * nested}1{')' * nested} FROM orders",
            f"SELECT COUNT(*) FROM orders WHERE {' AND '.join(['amount < 1'] * nested)}",
            f"SELECT COUNT(*) FROM orders WHERE NOT {'NOT ' * nested} amount < 1",
            f"SELECT COUNT(*) FROM {'(SELECT * FROM ' * min(nested, 500)} orders {')' * min(nested, 500)}",
        )
    )
    return json.dumps({"sql": odd, "epsilon": chance.choice(("0.1", "1e-30", "1/3"))}).encode()


# ---------------------------------------------------------------------- sending


def sent_alone(port, content):
    """Everything that comes back on a connection of its own, which the client ends."""
    found = b""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as link:
        try:
            link.sendall(content)
            link.shutdown(socket.SHUT_WR)
            while part := link.recv(65536):
                found += part
        except TimeoutError:
            raise
        except OSError:
            pass  # the server may hang up on such a client
    return [int(status) for status in STATUS.findall(found)], found


def sent_together(port, contents):
    """Several requests at once on a connection; as many replies."""
    found, replies = b"", []
    with socket.create_connection(("127.0.0.1", port), timeout=60) as link:
        link.sendall(b"".join(contents))
        while len(replies) < len(contents):
            part = link.recv(65536)
            if not part:
                break
            found += part
            replies = STATUS.findall(found)
        link.shutdown(socket.SHUT_WR)
        while part := link.recv(65536):
            found += part
    return [int(status) for status in STATUS.findall(found)], found


def open_files():
    """What this process holds open, by kind and name."""
    found = Counter()
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found[re.sub(r"\[\d+\]", "", str(each.readlink()))] += 1
    # SQLite closes files that this test opens only with the last of their connections in the process
    return Counter({name: count for name, count in found.items() if "ledger" not in name})


def state(served):
    """What must not grow."""
    gc.collect()
    tasks = [each for each in gc.get_objects() if isinstance(each, asyncio.Task) and not each.done()]
    with open_ledger(served.policy) as ledger:
        entries = ledger.verify().entries
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return SimpleNamespace(
        tasks=len(tasks),
        files=open_files(),
        entries=entries,
        memory=pages * os.sysconf("SC_PAGE_SIZE"),
    )


def expect_unharmed(served, before):
    with dp.client(served.url, served.tokens["looker"]) as client:
        assert client.price(SQL, epsilon="0.1").columns
    after = state(served)
    assert after.entries == before.entries, "something was charged"
    assert after.tasks <= before.tasks
    assert after.files - before.files == Counter()
    assert after.memory - before.memory < FLAT
    bad = [
        (each.name, each.getMessage()) for each in served.logs.records if each.exc_info or each.levelno >= logging.ERROR
    ]
    assert bad == []


def expect_quiet(replies):
    """No reply is a server's own fault, and none tells how it is built."""
    for statuses, content in replies:
        assert all(status < 500 for status in statuses), content[:2000]
        for telling in (b"Traceback", b"site-packages", b".py", b"/tmp/"):
            assert telling not in content


def test_broken_heads(served):
    chance, token = random.Random(SEED), served.tokens["ana"]
    contents = [broken_head(chance, token) for _ in range(NUMBER // 3)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda content: sent_alone(served.port, content), contents[:200]))
        before = state(served)
        replies = list(pool.map(lambda content: sent_alone(served.port, content), contents))
    expect_quiet(replies)
    refused = [status for statuses, _ in replies for status in statuses]
    assert len(refused) > len(contents) / 3
    assert 200 not in refused
    expect_unharmed(served, before)


def test_broken_bodies(served):
    chance, tokens = random.Random(SEED + 1), served.tokens
    paths = ("/v1/ask", "/v1/price", "/v1/requests/budget", "/v1/requests/question")
    # whoever may only look can't be charged, whatever the body turns out to mean
    contents = [
        request(broken_body(chance), tokens["looker"], path=chance.choice(paths)) for _ in range(2 * NUMBER // 3)
    ]
    batches = [contents[start : start + 40] for start in range(0, len(contents), 40)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda batch: sent_together(served.port, batch), batches[:10]))
        before = state(served)
        replies = list(pool.map(lambda batch: sent_together(served.port, batch), batches))
    expect_quiet(replies)
    assert [len(statuses) for statuses, _ in replies] == [len(batch) for batch in batches]
    expect_unharmed(served, before)


def test_questions_of_random_words(served):
    chance = random.Random(SEED + 2)
    contents = [request(word_soup(chance), served.tokens["looker"], path="/v1/price") for _ in range(NUMBER // 60)]
    batches = [contents[start : start + 10] for start in range(0, len(contents), 10)]
    before = state(served)
    with ThreadPoolExecutor(4) as pool:
        replies = list(pool.map(lambda batch: sent_together(served.port, batch), batches))
    expect_quiet(replies)
    assert sum(len(statuses) for statuses, _ in replies) == len(contents)
    expect_unharmed(served, before)
