"""What the server carries: answers a second over HTTP and the PostgreSQL protocol, and what happens when it is killed.

Run with ``python benchmarks/server.py [--seconds 5] [--kills 200] [--part repeated|fresh|mixed|wire|kills]``. The
server runs in a process of its own, started by the command ``dither serve``; the load comes from this process over
loopback, so the two share the machine. Results go to ``benchmarks/results/server.json``.

- *repeated*: one question, asked again and again by many connections.
- *fresh*: every question is new (another ε); beside it, in the same run, how many charges a second the ledger alone can
  reserve and record from eight threads: the durable commits that each fresh answer needs.
- *mixed*: both over both protocols at once; afterwards every answer that a client got must be in the ledger.
- *wire*: the time of one repeated question over the PostgreSQL protocol, beside the same question to the curator in
  this process.
- *kills*: SIGKILL under load at random moments, start again, verify: every answer that a client got is in the ledger,
  is the same when asked for again, and the balances are the sums of the charges and those of the replay.

``load_before`` beside each result is what the machine had to do besides: numbers hold where it is well below the cores.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import psycopg

from dither.curator import Curator, Policy
from dither.ledger import Account, Amount
from dither.privacy import Adjacency, ZcdpLoss
from dither.server.run import Place, access_path, serve
from dither.server.settings import Limits
from dither.server.tokens import TokenFile

RESULTS = Path(__file__).parent / "results" / "server.json"
POLICY = """
[source]
database = "shop.duckdb"
name = "shop"
ledger_head = "shop.head"

[budget]
epsilon_budget = 100000
delta_budget = 1e-6
max_epsilon_per_query = 1000

[analysts.ana]
epsilon_budget = 100000

[tables.orders]
private = true
privacy_unit_column = "customer"
max_groups_contributed = 2
max_rows_contributed = 3

[tables.orders.columns]
customer = { type = "integer" }
city = { type = "text", in = ["Basel", "Bern", "Zug"] }
amount = { type = "double", between = [0, 50], step = 0.5 }
"""
ORDERS = """
CREATE TABLE orders AS SELECT (i % 400)::BIGINT AS customer, ['Basel', 'Bern', 'Zug'][1 + i % 3] AS city,
((i * 7) % 100) / 2.0 AS amount FROM range(1200) AS t(i)
"""
SQL = "SELECT city, COUNT(*) AS n FROM orders GROUP BY city"
CONNECTIONS = 16


@dataclass(slots=True)
class Told:
    """What clients got."""

    times: list[float] = field(default_factory=list)
    receipts: set[str] = field(default_factory=set)
    failed: int = 0


@contextmanager
def shop() -> Iterator[tuple[Path, str]]:
    """A directory with a small shop and a token of ana."""
    directory = Path(tempfile.mkdtemp(prefix="dither-benchmark-"))
    try:
        with duckdb.connect(str(directory / "shop.duckdb")) as database:
            database.execute(ORDERS)
        (directory / "dither.toml").write_text(POLICY, encoding="utf-8")
        with TokenFile.open(access_path(Policy.load(directory / "dither.toml"))) as tokens:
            secret = tokens.create("ana")[1]
        yield directory, secret
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@dataclass(slots=True)
class Server:
    """``dither serve`` in a process of its own."""

    process: subprocess.Popen[str]
    port: int
    pg_port: int

    def memory(self) -> float:
        """Its resident memory, in MiB."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def worked(self) -> float:
        """The seconds of processor time that it has used."""
        spent = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(spent[11]) + int(spent[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def serving(directory: Path, *, pg: bool = True) -> Iterator[Server]:
    """Start the server and wait until it listens; stop it behind the block."""
    command = [sys.executable, "-m", "dither.cli.main", "serve", "--port", "0", "--pg-port", "0"]
    command += ["--rate", "1000000"]
    command += ["--log", str(directory / "server.log"), *([] if pg else ["--no-pg"])]
    process = subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    port = pg_port = 0
    for line in process.stdout:
        if line.startswith("web page"):
            port = int(line.rsplit(":", 1)[1])
        if line.startswith("psql"):
            pg_port = int(line.split("port=")[1].split()[0])
        if "Ctrl-C" in line:
            break
    try:
        yield Server(process, port, pg_port)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(60)
        process.stdout.close()


# ---------------------------------------------------------------------- clients


async def post(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str, body: bytes
) -> tuple[int, str, bytes]:
    """One request on a connection that stays open: the status, the number of the receipt, the body."""
    head = (
        "POST /v1/ask HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json\r\n"
        f"Authorization: Bearer {token}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    answer = (await reader.readuntil(b"\r\n\r\n")).lower()
    status, length = int(answer[9:12]), int(answer.split(b"content-length: ", 1)[1].split(b"\r", 1)[0])
    receipt = answer.partition(b"dither-receipt: ")[2].split(b"\r", 1)[0].decode()
    return status, receipt, await reader.readexactly(length)


async def http_client(port: int, token: str, body: Callable[[], bytes], until: float, told: Told) -> None:
    """Ask without a pause until the time is over, or the server goes away."""
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, OSError):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            while time.perf_counter() < until:
                began = time.perf_counter()
                status, receipt, _ = await post(reader, writer, token, body())
                told.times.append(time.perf_counter() - began)
                if status == 200:
                    told.receipts.add(receipt)
                else:
                    told.failed += 1
        finally:
            writer.close()


async def http_load(port: int, token: str, body: Callable[[], bytes], seconds: float, connections: int) -> Told:
    told = Told()
    until = time.perf_counter() + seconds
    await asyncio.gather(*(http_client(port, token, body, until, told) for _ in range(connections)))
    return told


def wire_client(port: int, token: str, sql: Callable[[], tuple[str, str]], until: float, told: Told) -> None:
    """The same over the PostgreSQL protocol; the receipt comes as a notice."""
    place = f"host=127.0.0.1 port={port} user=ana dbname=shop"
    with contextlib.suppress(psycopg.OperationalError), psycopg.connect(place, password=token, autocommit=True) as link:
        link.add_notice_handler(lambda said: told.receipts.update(_receipt(said.message_detail or "")))
        epsilon = ""
        while time.perf_counter() < until:
            began = time.perf_counter()
            text, wanted = sql()
            if wanted != epsilon:
                link.execute(f"SET dp.epsilon = {wanted}")
                epsilon = wanted
            link.execute(text).fetchall()
            told.times.append(time.perf_counter() - began)


def _receipt(detail: str) -> list[str]:
    return [
        word.strip(".") for line in detail.splitlines() if line.startswith("Receipt ") for word in line.split()[1:2]
    ]


class Fresh:
    """Questions that nobody asked before: each with another ε, all very cheap."""

    def __init__(self) -> None:
        self._lock, self._number = threading.Lock(), random.SystemRandom().randrange(10**9) * 1000

    def epsilon(self) -> str:
        with self._lock:
            self._number += 1
            return f"0.0001{self._number:015d}"

    def body(self) -> bytes:
        return json.dumps({"sql": SQL, "epsilon": self.epsilon()}).encode()

    def statement(self) -> tuple[str, str]:
        return SQL, self.epsilon()


REPEATED = json.dumps({"sql": SQL, "epsilon": "0.5"}).encode()


def quantiles(times: list[float]) -> dict[str, float]:
    """Milliseconds at the middle and near the end."""
    ordered = sorted(times)
    return {
        "p50_ms": round(1000 * ordered[len(ordered) // 2], 2),
        "p99_ms": round(1000 * ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))], 2),
    }


# ---------------------------------------------------------------------- parts


def repeated(seconds: float) -> dict[str, Any]:
    with shop() as (directory, token), serving(directory, pg=False) as server:
        asyncio.run(http_load(server.port, token, lambda: REPEATED, 1.0, CONNECTIONS))
        before, began = server.memory(), server.worked()
        told = asyncio.run(http_load(server.port, token, lambda: REPEATED, seconds, CONNECTIONS))
        after, worked = server.memory(), server.worked() - began
        return {
            "answers_per_second": round(len(told.times) / seconds),
            "server_cpu_ms_per_answer": round(1000 * worked / len(told.times), 3),
            **quantiles(told.times),
            "failed": told.failed,
            "receipts": len(told.receipts),
            "memory_mib": [round(before), round(after)],
        }


def ledger_alone(seconds: float, threads: int = 8) -> float:
    """Questions a second that the ledger alone can reserve and record."""
    with shop() as (directory, _), Curator.open(directory / "dither.toml") as curator:
        curator.sql(SQL, epsilon="0.1", analyst="ana")  # which states the limits
        ledger = curator.ledger
        loss, account = ZcdpLoss(Fraction(1, 10**6), Adjacency.ADD_REMOVE), Account(("shop", "ana"))
        until = time.perf_counter() + seconds
        note = {"sql": SQL, "analyst": "ana"}

        def work(_: int) -> int:
            done = 0
            while time.perf_counter() < until:
                reserved = ledger.reserve(key=os.urandom(16).hex(), account=account, loss=loss, note=note)
                ledger.record(reserved, b"x" * 1200)
                done += 1
            return done

        with ThreadPoolExecutor(threads) as pool:
            return sum(pool.map(work, range(threads))) / seconds


def fresh(seconds: float) -> dict[str, Any]:
    alone = ledger_alone(seconds)
    with shop() as (directory, token), serving(directory, pg=False) as server:
        questions = Fresh()
        asyncio.run(http_load(server.port, token, questions.body, 1.0, CONNECTIONS))
        began = server.worked()
        told = asyncio.run(http_load(server.port, token, questions.body, seconds, CONNECTIONS))
        worked = server.worked() - began
    rate = len(told.times) / seconds
    return {
        "answers_per_second": round(rate),
        "ledger_alone_per_second": round(alone),
        "share": round(rate / alone, 3),
        "server_cpu_ms_per_answer": round(1000 * worked / len(told.times), 2),
        **quantiles(told.times),
        "failed": told.failed,
    }


def mixed(seconds: float) -> dict[str, Any]:
    with shop() as (directory, token), serving(directory) as server:
        questions, told_wire = Fresh(), Told()
        until = time.perf_counter() + seconds
        choose = random.Random(7)
        body = lambda: questions.body() if choose.random() < 0.2 else REPEATED  # noqa: E731
        statement = lambda: questions.statement() if choose.random() < 0.2 else (SQL, "0.5")  # noqa: E731
        before = server.memory()
        with ThreadPoolExecutor(8) as pool:
            wire = [pool.submit(wire_client, server.pg_port, token, statement, until, told_wire) for _ in range(8)]
            told = asyncio.run(http_load(server.port, token, body, seconds, CONNECTIONS))
            for one in wire:
                one.result()
        after = server.memory()
        with Curator.open(directory / "dither.toml") as curator:
            kept = set(_receipts(curator))
            found = curator.verify()
        lost = (told.receipts | told_wire.receipts) - kept
        return {
            "http_per_second": round(len(told.times) / seconds),
            "wire_per_second": round(len(told_wire.times) / seconds),
            "http": quantiles(told.times),
            "wire": quantiles(told_wire.times),
            "failed": told.failed,
            "receipts": len(kept),
            "answers_without_receipt": len(lost),
            "entries_verified": found.entries,
            "memory_mib": [round(before), round(after)],
        }


def _receipts(curator: Curator) -> Iterator[str]:
    before = None
    while True:
        page = curator.answers(count=500, before=before)
        yield from (past.number for past in page.items)
        if page.next is None:
            return
        before = page.next


def wire(seconds: float) -> dict[str, Any]:
    """One client, one repeated question: over the wire, and in this process."""
    with shop() as (directory, token):
        with serving(directory) as server:
            place = f"host=127.0.0.1 port={server.pg_port} user=ana dbname=shop"
            with psycopg.connect(place, password=token, autocommit=True) as link:
                link.execute("SET dp.epsilon = 0.5")
                over = _timed(lambda: link.execute(SQL).fetchall(), seconds)
        with Curator.open(directory / "dither.toml") as curator:
            recorded = _timed(lambda: curator.sql(SQL, epsilon="0.5", analyst="ana"), seconds / 2)
            here = _timed(lambda: curator.remembered(SQL, epsilon="0.5", analyst="ana"), seconds / 2)
    return {
        "wire_p50_ms": round(1000 * over, 3),
        "remembered_p50_ms": round(1000 * here, 3),
        "recorded_p50_ms": round(1000 * recorded, 3),
        "overhead_p50_ms": round(1000 * (over - here), 3),
    }


def _timed(work: Callable[[], object], seconds: float) -> float:
    work()
    times, until = [], time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def forked(policy: str, ports: Any) -> None:
    """A server in a process that was forked with everything imported, so that starting it doesn't take seconds."""
    limits = Limits(rate=1e6, burst=10**6)
    serve(Policy.load(policy), Place(port=0, pg_port=None), limits=limits, started=lambda one: ports.send(one.url))


def kills(count: int) -> dict[str, Any]:
    """Kill the server at random moments under load; nothing may be lost, free, or different the second time."""
    chance, bodies, asked, answers = random.Random(11), {}, [], 0
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["dither.server.run", "dither.server.http.app", "dither.server.web.pages", "pandas"])
    questions, changed = Fresh(), 0
    with shop() as (directory, token):
        for number in range(count):
            here, there = context.Pipe()
            process = context.Process(target=forked, args=(str(directory / "dither.toml"), there))
            process.start()
            port = int(here.recv().rsplit(":", 1)[1])
            got: list[tuple[str, str, bytes]] = []
            asyncio.run(_until_killed(port, token, questions, asked, got, process, chance))
            process.join()
            for epsilon, receipt, body in got:
                # all but what is left of the budget
                told = (receipt, body[body.index(b'"columns"') :])
                changed += bodies.setdefault(epsilon, told) != told
            answers += len(got)
            print(f"\rkills {number + 1}/{count}, answers {answers}", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
        with Curator.open(directory / "dither.toml") as curator:
            kept = set(_receipts(curator))
            replayed = {str(balance.account): balance.spent for balance in curator.verify().balances}
            charged: dict[str, Amount] = {}
            for entry in curator.ledger.entries():
                for payer in entry.body.get("payers", ()):
                    name = "/".join(payer)
                    charged[name] = charged.get(name, Amount()) + Amount.from_json(entry.body["amount"])
            standing = {str(balance.account): balance.spent for balance in curator.ledger.balances()}
    return {
        "kills": count,
        "answers": answers,
        "questions_answered": len(bodies),
        "questions_charged": len(kept),
        "questions_asked": len(asked),
        "unrecorded": len({receipt for receipt, _ in bodies.values()} - kept),
        "different_the_second_time": changed,
        "wrong_balances": sum(
            replayed[name] != spent or charged.get(name, Amount()) != spent for name, spent in standing.items()
        ),
    }


async def _until_killed(
    port: int,
    token: str,
    questions: Fresh,
    asked: list[str],
    got: list[tuple[str, str, bytes]],
    process: Any,
    chance: random.Random,
) -> None:
    """Eight clients with new and old questions; after some answers, and a moment, the server is killed."""

    async def client() -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                while True:
                    if not asked or chance.random() < 0.5:
                        asked.append(questions.epsilon())
                        epsilon = asked[-1]
                    else:
                        epsilon = chance.choice(asked)
                    body = json.dumps({"sql": SQL, "epsilon": epsilon}).encode()
                    status, receipt, answer = await post(reader, writer, token, body)
                    assert status == 200, answer
                    got.append((epsilon, receipt, answer))
            finally:
                writer.close()

    clients = [asyncio.create_task(client()) for _ in range(8)]
    enough, patience = chance.choice((0, 1, 5, 20, 60)), time.perf_counter() + 10
    while len(got) < enough and time.perf_counter() < patience:
        await asyncio.sleep(0.001)
    await asyncio.sleep(chance.uniform(0, 0.02))
    process.kill()
    await asyncio.gather(*clients)


PARTS = ("repeated", "fresh", "mixed", "wire", "kills")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--part", choices=PARTS, action="append")
    chosen = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for part in chosen.part or PARTS:
        busy = os.getloadavg()[0]
        found = kills(chosen.kills) if part == "kills" else globals()[part](chosen.seconds)
        results[part] = found | {"load_before": round(busy, 1)}
        print(f"{part}: {json.dumps(found)}", flush=True)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
