"""What the server carries: answers a second over HTTP and the PostgreSQL protocol, and what happens when it is killed.

Run with ``python benchmarks/server.py [--seconds 5] [--kills 200] [--processes 2] [--part repeated|fresh|…]``. The
server runs in a process of its own, started by the command ``dither serve``; the load comes from this process over
loopback, so the two share the machine. Results go to ``benchmarks/results/server.json``.

- *repeated*: one question, asked again and again by many connections.
- *fresh*: every question has to be charged, because its ε is another one; beside it, in the same run, how many such
  charges a second the ledger alone can reserve and record from eight threads: the durable commits that each fresh
  answer needs. Once with new questions answered in the server's own process, once with ``--processes`` more.
- *choosing*: the same for a question in which units choose among their groups by a salt of each question, so that the
  data is read each time.
- *new*: the same with another text each time, so that every question is parsed, analysed and run on the data.
- *alone*: one analyst who asks one fresh question after the other, beside the ledger alone from one thread.
- *mixed*: both over both protocols at once; afterwards every answer that a client got must be in the ledger.
- *wire*: the time of one repeated question over the PostgreSQL protocol, beside the same question to the curator in
  this process.
- *kills*: SIGKILL under load at random moments, start again, verify: every answer that a client got is in the ledger,
  is the same when asked for again, and the balances are the sums of the charges and those of the replay.
- *soak*: memory under mixed load (``soak.py``): ``--soak-seconds 3600 --soak-rate 100 --warm-up 600`` is an hour of
  which the first ten minutes don't count; ``--soak-requests`` ends it sooner. It runs only where it is named, and ends
  with status 1 if a reply wasn't what it should be, or if memory may grow by more than a MiB for 100,000 requests.

``load_before`` beside each result is what the machine had to do besides: numbers hold where it is well below the cores.
``--flush-ms 5`` makes each flush take so much longer, as on a disk that is slower than this machine's.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg

from dither.curator import Curator, Terms
from dither.ledger import Account, Amount, EntryKind
from dither.policy import Policy
from dither.privacy import PrivacyLoss
from dither.server.limits import ServerLimits
from dither.server.run import Address, serve
from serving import CONNECTIONS, REPEATED, SQL, Fresh, Told, http_load, post, quantiles, serving, shop, wire_client
from slow_disk import with_slow_flushes
from soak import faults, soak

RESULTS = Path(__file__).parent / "results" / "server.json"


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


def ledger_alone(seconds: float, body: bytes, threads: int = ServerLimits().workers) -> float:
    """Questions a second that the ledger alone can reserve and record: with the loss, note and answer of this one."""
    asked = json.loads(body)
    with shop() as (directory, _), Curator.open(directory / "dither.toml") as curator:
        curator.sql(asked["sql"], epsilon=asked["epsilon"], analyst="ana")  # which states the limits
        ledger, account = curator.ledger, Account(("shop", "ana"))
        first = next(entry for entry in ledger.entries() if entry.kind is EntryKind.RESERVE)
        loss, note, key = PrivacyLoss.from_json(first.body["loss"]), first.body["note"], first.body["key"]
        answer = ledger.reserve(key=key, account=account, loss=loss, note=note).answer
        assert answer is not None
        until = time.perf_counter() + seconds

        def work(_: int) -> int:
            done = 0
            while time.perf_counter() < until:
                reserved = ledger.reserve(key=os.urandom(32).hex(), account=account, loss=loss, note=note)
                ledger.record(reserved, answer)
                done += 1
            return done

        with ThreadPoolExecutor(threads) as pool:
            return sum(pool.map(work, range(threads))) / seconds


def fresh(seconds: float, processes: int) -> dict[str, Any]:
    return _charged(seconds, processes, Fresh().plain_body)


def choosing(seconds: float, processes: int) -> dict[str, Any]:
    return _charged(seconds, processes, Fresh().body)


def new(seconds: float, processes: int) -> dict[str, Any]:
    return _charged(seconds, processes, Fresh().new_body)


def _charged(seconds: float, processes: int, body: Callable[[], bytes]) -> dict[str, Any]:
    """Questions that are all charged, without more processes and with them, between two looks at the ledger alone."""
    before = ledger_alone(seconds / 2, body())
    found = {str(number): _load(seconds, number, body) for number in (0, processes)}
    alone = (before + ledger_alone(seconds / 2, body())) / 2
    for one in found.values():
        one["share_of_ledger"] = round(one["answers_per_second"] / alone, 3)
    return {"ledger_alone_per_second": round(alone), "processes": found}


def alone(seconds: float) -> dict[str, Any]:
    body = Fresh().plain_body
    before = ledger_alone(seconds / 2, body(), 1)
    found = _load(seconds, 0, body, connections=1)
    ledger = (before + ledger_alone(seconds / 2, body(), 1)) / 2
    return {
        **found,
        "ledger_alone_per_second": round(ledger),
        "share_of_ledger": round(found["answers_per_second"] / ledger, 3),
    }


def _load(seconds: float, processes: int, body: Callable[[], bytes], connections: int = CONNECTIONS) -> dict[str, Any]:
    with shop() as (directory, token), serving(directory, pg=False, processes=processes) as server:
        asyncio.run(http_load(server.port, token, body, 1.0, connections))
        began, memory = server.worked(), server.memory()
        told = asyncio.run(http_load(server.port, token, body, seconds, connections))
        worked = server.worked() - began
        return {
            "answers_per_second": round(len(told.times) / seconds),
            "server_cpu_ms_per_answer": round(1000 * worked / len(told.times), 2),
            **quantiles(told.times),
            "failed": told.failed,
            "memory_mib": [round(memory), round(server.memory())],
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
            here = _timed(lambda: curator.analyst("ana").remembered(SQL, Terms.of(epsilon="0.5")), seconds / 2)
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
    limits = ServerLimits(rate=1e6, burst=10**6)
    serve(Policy.load(policy), Address(port=0, pg_port=None), limits=limits, started=lambda one: ports.send(one.url))


def kills(count: int) -> dict[str, Any]:
    """Kill the server at random moments under load; nothing may be lost, free, or different the second time."""
    chance, bodies, asked, answers = random.Random(11), {}, [], 0
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["dither.server.run", "dither.server.app", "dither.server.web.pages", "pandas"])
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


PARTS = ("repeated", "fresh", "choosing", "new", "alone", "mixed", "wire", "kills")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--part", choices=(*PARTS, "soak"), action="append")
    parser.add_argument("--soak-seconds", type=float, default=3600.0, help="how long the soak lasts")
    parser.add_argument("--soak-requests", type=int, default=1_000_000, help="after how many requests it ends")
    parser.add_argument("--soak-rate", type=float, default=100.0, help="how many requests a second it makes")
    parser.add_argument("--warm-up", type=float, default=600.0, help="how many of its seconds don't count")
    parser.add_argument("--flush-ms", type=float, default=0.0, help="milliseconds that each flush takes longer")
    chosen = parser.parse_args()
    if chosen.flush_ms:
        with_slow_flushes(chosen.flush_ms)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    wrong: list[str] = []
    for part in chosen.part or PARTS:
        busy = os.getloadavg()[0]
        if part == "kills":
            found = kills(chosen.kills)
        elif part == "soak":
            found = soak(chosen.soak_seconds, chosen.soak_requests, chosen.soak_rate, chosen.warm_up)
            wrong += faults(found)
        elif part in ("fresh", "choosing", "new"):
            found = globals()[part](chosen.seconds, chosen.processes)
        else:
            found = globals()[part](chosen.seconds)
        results[part] = found | {"load_before": round(busy, 1)}
        print(f"{part}: {json.dumps(found)}", flush=True)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    for fault in wrong:
        print(f"soak: {fault}", flush=True)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
