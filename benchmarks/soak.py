"""A server under mixed load for a long time: does its memory grow? For ``server.py --part soak``.

Clients of both protocols ask in a steady mix, at a rate that the machine carries: questions that were asked before and
new ones, prices of both, pages, what is listed and what isn't found, requests that are refused, and sessions of
PostgreSQL that come, ask and go. Caches are filled first, with as many new questions as the server remembers. Then the
memory of the server's process is noted each second: RSS, and the part of it that is anonymous, which doesn't depend on
other processes, as USS does: that jumps whenever another process begins or ends to use the same libraries.

What is told is the slope after the warm-up, by least squares over the medians of equal stretches, in MiB for 100,000
requests, and the standard error of that slope: single samples jump with every answer, medians of stretches don't.

It fails if a reply has a status that its request mustn't have, if a connection is lost, or if memory may grow by more
than a MiB for 100,000 requests: the slope and two of its standard errors, of RSS or of anonymous memory. So it does
where it was too short to tell.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import random
import statistics
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psycopg

from serving import PLAIN, SQL, Fresh, Server, serving, shop

# answers that a server remembers: so many new questions fill that
FILL = 4500
BLOCKS = 20
PAGES = ("/ask", "/answers", "/budget", "/data", "/v1/budget", "/v1/schema", "/v1/answers?count=20", "/v1/openapi.json")
WRONG = (
    {"sql": "SELECT amount FROM orders"},
    {"sql": "SELECT COUNT(* FROM orders"},
    {"sql": "SELECT COUNT(*) AS n FROM nowhere"},
    {"sql": SQL, "epsilon": "1e9"},
    {"sql": SQL, "epsilon": "-1"},
    {"question": SQL},
)
# What each kind of request may be answered with. Anything else is a fault, and so is what isn't answered.
EXPECTED: dict[str, set[int | str]] = {
    "fill": {200},
    "sign in": {303},
    "repeated": {200},
    "fresh": {200},
    "new": {200},
    "price": {200},
    "page": {200},
    "refused": {400, 422},
    "stranger": {200, 401, 404},
    "wire sessions": {"done"},
    "wire": {"done"},
    "wire refused": {"0A000"},
}
LARGEST_SLOPE = 1.0
CATALOGUE = ("SELECT 1", "SELECT relname FROM pg_class WHERE relname = 'orders'", "TABLE dp.budget")


@dataclass(slots=True)
class Soak:
    """What the clients share: how many requests were made, until when, and how they ended."""

    port: int
    pg_port: int
    token: str
    until: float
    most: int
    rate: float
    chance: random.Random = field(default_factory=lambda: random.Random(5))
    fresh: Fresh = field(default_factory=Fresh)
    numbers: itertools.count[int] = field(default_factory=itertools.count)
    done: Counter[str] = field(default_factory=Counter)
    ended: Counter[tuple[str, int | str]] = field(default_factory=Counter)
    cookie: str = ""
    began: float = field(default_factory=time.perf_counter)

    @property
    def total(self) -> int:
        return self.done.total()

    def note(self, kind: str, how: int | str) -> None:
        """One more request of a kind, and how it ended."""
        self.done[kind] += 1
        self.ended[kind, how] += 1

    @property
    def unexpected(self) -> dict[str, int]:
        """What mustn't happen, and how often it did."""
        return {
            f"{kind}: {how}": number
            for (kind, how), number in sorted(self.ended.items(), key=str)
            if how not in EXPECTED[kind]
        }

    @property
    def over(self) -> bool:
        return time.perf_counter() >= self.until or self.total >= self.most

    async def pace(self) -> None:
        """Wait until the next request is due."""
        due = self.began + self.total / self.rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))


class Link:
    """One HTTP connection, opened again whenever it was closed."""

    def __init__(self, soak: Soak) -> None:
        self._soak = soak
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def request(self, method: str, path: str, *, body: bytes = b"", more: str = "", token: str = "") -> bytes:
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{more}Content-Length: {len(body)}\r\n"
        if token:
            head += f"Authorization: Bearer {token}\r\n"
        for _ in range(2):
            if self._streams is None:
                self._streams = await asyncio.open_connection("127.0.0.1", self._soak.port)
            reader, writer = self._streams
            try:
                writer.write(head.encode() + b"\r\n" + body)
                answer = await reader.readuntil(b"\r\n\r\n")
                length = answer.lower().partition(b"content-length: ")[2].split(b"\r", 1)[0]
                if length:
                    await reader.readexactly(int(length))
            except (OSError, asyncio.IncompleteReadError):
                # it was idle for too long
                self.close()
            else:
                return answer
        raise ConnectionError("the server hangs up")

    async def post(self, path: str, form: object) -> bytes:
        more = "Content-Type: application/json\r\nAccept: application/json\r\n"
        return await self.request("POST", path, body=json.dumps(form).encode(), more=more, token=self._soak.token)

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
        self._streams = None


def status_of(answer: bytes) -> int:
    """That of a reply's first line."""
    return int(answer.split(b" ", 2)[1])


async def sign_in(soak: Soak, link: Link) -> None:
    """A session on the page, whose cookie the page's requests show."""
    more = "Content-Type: application/x-www-form-urlencoded\r\n"
    answer = await link.request("POST", "/sign-in", body=urlencode({"token": soak.token}).encode(), more=more)
    soak.note("sign in", status_of(answer))
    # names are case-insensitive, what a cookie holds isn't
    start = answer.lower().index(b"set-cookie: ") + len(b"set-cookie: ")
    soak.cookie = answer[start:].split(b";", 1)[0].decode()


def new_text(soak: Soak) -> str:
    # no more digits than a double tells apart
    below = f"49.{next(soak.numbers) * 7919 % 10**8:08d}"
    if soak.chance.random() < 0.5:
        # without groups to choose among, so that its cells are kept too
        return f"SELECT COUNT(*) AS n FROM orders WHERE amount < {below}"
    return f"SELECT city, COUNT(*) AS n FROM orders WHERE amount < {below} GROUP BY city"


async def http_client(soak: Soak) -> None:
    link = Link(soak)

    async def repeated() -> bytes:
        return await link.post("/v1/ask", {"sql": SQL, "epsilon": f"0.{1 + soak.chance.randrange(50)}"})

    async def fresh() -> bytes:
        return await link.post("/v1/ask", {"sql": SQL, "epsilon": soak.fresh.epsilon()})

    async def new() -> bytes:
        return await link.post("/v1/ask", {"sql": new_text(soak), "epsilon": "0.0001"})

    async def price() -> bytes:
        text = PLAIN if soak.chance.random() < 0.5 else new_text(soak)
        return await link.post("/v1/price", {"sql": text, "epsilon": "0.1"})

    async def page() -> bytes:
        path = soak.chance.choice(PAGES)
        if path.startswith("/v1"):
            return await link.request("GET", path, token=soak.token)
        return await link.request("GET", path, more=f"Cookie: {soak.cookie}\r\n")

    async def refused() -> bytes:
        return await link.post(soak.chance.choice(("/v1/ask", "/v1/price")), soak.chance.choice(WRONG))

    async def stranger() -> bytes:
        return await link.request(
            "GET", soak.chance.choice(("/v1/budget", "/nowhere", "/health")), token="dither_nobody"
        )

    kinds: dict[str, tuple[Callable[[], Awaitable[bytes]], float]] = {
        "repeated": (repeated, 50),
        "fresh": (fresh, 6),
        "new": (new, 3),
        "price": (price, 15),
        "page": (page, 12),
        "refused": (refused, 8),
        "stranger": (stranger, 3),
    }
    names, weights = list(kinds), [weight for _, weight in kinds.values()]
    while not soak.over:
        await soak.pace()
        (name,) = soak.chance.choices(names, weights)
        try:
            soak.note(name, status_of(await kinds[name][0]()))
        except (ConnectionError, OSError):
            soak.note(name, "lost")
    link.close()


def wire_client(soak: Soak) -> None:
    """A session that asks a little, looks at the catalogue, is refused once, and goes; then another."""
    place = f"host=127.0.0.1 port={soak.pg_port} user=ana dbname=shop"
    while not soak.over:
        kind = "wire sessions"
        try:
            with psycopg.connect(place, password=soak.token, autocommit=True) as link:
                link.execute(f"SET dp.epsilon = {soak.fresh.epsilon()}")
                soak.note(kind, "done")
                kind = "wire"
                for sql in (SQL, SQL, PLAIN, *CATALOGUE):
                    link.execute(sql).fetchall()
                    soak.note(kind, "done")
                kind = "wire refused"
                link.execute("SELECT amount FROM orders")
                soak.note(kind, "done")
        except psycopg.Error as problem:
            soak.note(kind, problem.sqlstate or "lost")
        time.sleep(soak.chance.uniform(0.2, 0.6))


def held(pid: int) -> dict[str, float]:
    """What one process holds, in MiB."""
    lines = [line.partition(":") for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()]
    found = {name: int(rest.split()[0]) / 1024 for name, _, rest in lines if name in ("Rss", "Anonymous")}
    return {"rss": found["Rss"], "anonymous": found["Anonymous"]}


async def watched(soak: Soak, server: Server, samples: list[dict[str, float]], each: float = 1.0) -> None:
    told = 0.0
    while not soak.over:
        now = time.perf_counter() - soak.began
        samples.append({"seconds": round(now, 1), "requests": float(soak.total), **held(server.process.pid)})
        if now - told >= 30 or len(samples) == 1:
            told = now
            last = samples[-1]
            whole = server.memory()
            print(
                f"  {now:6.0f} s {soak.total:8d} requests  RSS {last['rss']:7.1f} MiB  "
                f"anonymous {last['anonymous']:7.1f} MiB  with all processes {whole:7.1f} MiB",
                flush=True,
            )
        await asyncio.sleep(each)


def slope(samples: list[dict[str, float]], what: str) -> dict[str, float] | None:
    """MiB for 100,000 requests, by least squares over the medians of equal stretches, with its standard error."""
    if len(samples) < 3 * BLOCKS:
        return None
    size = len(samples) // BLOCKS
    blocks = [samples[i * size : (i + 1) * size] for i in range(BLOCKS)]
    x = [statistics.median(one["requests"] for one in block) / 100_000 for block in blocks]
    y = [statistics.median(one[what] for one in block) for block in blocks]
    middle, level = statistics.fmean(x), statistics.fmean(y)
    spread = sum((one - middle) ** 2 for one in x)
    found = sum((a - middle) * (b - level) for a, b in zip(x, y, strict=True)) / spread
    rest = [b - level - found * (a - middle) for a, b in zip(x, y, strict=True)]
    noise = (sum(one**2 for one in rest) / (BLOCKS - 2)) ** 0.5
    return {
        "mib_per_100000": round(found, 3),
        "standard_error": round(noise / spread**0.5, 3),
        "noise_of_medians_mib": round(noise, 3),
    }


def faults(found: dict[str, Any]) -> list[str]:
    """What is wrong with a soak, in words; nothing if all is well."""
    said = [f"{number} times {what}" for what, number in found["unexpected"].items()]
    for what, name in (("rss", "RSS"), ("anonymous", "anonymous memory")):
        grown = found[what]
        if grown is None:
            said.append(f"too few samples after the warm-up to tell how {name} grows")
        elif (most := grown["mib_per_100000"] + 2 * grown["standard_error"]) > LARGEST_SLOPE:
            said.append(f"{name} may grow by {most:.2f} MiB for 100,000 requests")
    return said


def soak(seconds: float, requests: int, rate: float, warm_up: float, *, wires: int = 2) -> dict[str, Any]:
    """Fill the caches, then load for so long or so many requests; what memory does after the warm-up."""
    samples: list[dict[str, float]] = []
    with shop() as (directory, token), serving(directory) as server:
        state = Soak(server.port, server.pg_port, token, time.perf_counter() + 3600, FILL, rate=1e9)
        asyncio.run(_fill(state))
        filled = held(server.process.pid)
        print(f"  filled with {state.total} new questions: RSS {filled['rss']:.1f} MiB", flush=True)
        filling = state.unexpected
        state = Soak(server.port, server.pg_port, token, time.perf_counter() + seconds, requests, rate=rate)
        with ThreadPoolExecutor(wires) as pool:
            clients = [pool.submit(wire_client, state) for _ in range(wires)]
            asyncio.run(_load(state, server, samples))
            for client in clients:
                client.result()
        gc.collect()
    after = [one for one in samples if one["seconds"] >= warm_up]
    return {
        "seconds": round(samples[-1]["seconds"]),
        "requests": state.total,
        "kinds": dict(sorted(state.done.items())),
        "ended": {f"{kind}: {how}": number for (kind, how), number in sorted(state.ended.items(), key=str)},
        "unexpected": filling | state.unexpected,
        "warm_up_seconds": warm_up,
        "requests_after": round(after[-1]["requests"] - after[0]["requests"]) if after else 0,
        "rss_mib": [round(one["rss"], 1) for one in (samples[0], *after[:1], samples[-1])],
        "anonymous_mib": [round(one["anonymous"], 1) for one in (samples[0], *after[:1], samples[-1])],
        "rss": slope(after, "rss"),
        "anonymous": slope(after, "anonymous"),
    }


async def _fill(state: Soak) -> None:
    async def client() -> None:
        link = Link(state)
        while not state.over:
            answer = await link.post("/v1/ask", {"sql": SQL, "epsilon": state.fresh.epsilon()})
            state.note("fill", status_of(answer))
        link.close()

    await asyncio.gather(*(client() for _ in range(8)))


async def _load(state: Soak, server: Server, samples: list[dict[str, float]]) -> None:
    link = Link(state)
    await sign_in(state, link)
    link.close()
    await asyncio.gather(watched(state, server, samples), *(http_client(state) for _ in range(6)))
