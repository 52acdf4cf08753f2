"""A small shop behind ``dither serve``, and clients of both protocols that ask without a pause: for ``server.py``."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import psycopg

from dither.policy import Policy
from dither.server.auth.tokens import TokenFile
from dither.server.run import access_path

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
PLAIN = "SELECT COUNT(*) AS n FROM orders"
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

    def _processes(self) -> list[Path]:
        """Itself and what it started."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [Path("/proc") / str(one) for one in (pid, *children)]

    def memory(self) -> float:
        """Its resident memory and that of its processes, in MiB."""
        pages = sum(int((one / "statm").read_text().split()[1]) for one in self._processes())
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def worked(self) -> float:
        """The seconds of processor time that they have used."""
        spent = [(one / "stat").read_text().rpartition(")")[2].split() for one in self._processes()]
        return sum(int(one[11]) + int(one[12]) for one in spent) / os.sysconf("SC_CLK_TCK")


@contextmanager
def serving(directory: Path, *, pg: bool = True, processes: int = 0) -> Iterator[Server]:
    """Start the server and wait until it listens; stop it behind the block."""
    command = [sys.executable, "-m", "dither.cli.main", "serve", "--port", "0", "--pg-port", "0"]
    command += ["--rate", "1000000", "--processes", str(processes)]
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
    """Questions that nobody asked before: each with another ε, and on request another text; all very cheap."""

    def __init__(self) -> None:
        self._lock, self._number = threading.Lock(), random.SystemRandom().randrange(10**9) * 1000

    def epsilon(self) -> str:
        with self._lock:
            self._number += 1
            # the leading digits differ too: noise of another scale each time
            return f"0.0{1 + self._number % 8}{self._number * 7919 % 10**12:012d}"

    def body(self) -> bytes:
        return json.dumps({"sql": SQL, "epsilon": self.epsilon()}).encode()

    def plain_body(self) -> bytes:
        return json.dumps({"sql": PLAIN, "epsilon": self.epsilon()}).encode()

    def new_body(self) -> bytes:
        with self._lock:
            self._number += 1
        # no more digits than a double tells apart
        below = f"49.{self._number * 7919 % 10**10:010d}"
        sql = f"SELECT city, COUNT(*) AS n FROM orders WHERE amount < {below} GROUP BY city"
        return json.dumps({"sql": sql, "epsilon": "0.0001"}).encode()

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
