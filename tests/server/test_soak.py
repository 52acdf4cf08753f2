"""The soak of the benchmarks fails where it must: replies that mustn't be, lost connections, memory that grows."""

import asyncio
import importlib.util
import sys
import time
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def bench():
    path = Path(__file__).parents[2] / "benchmarks" / "soak.py"
    spec = importlib.util.spec_from_file_location("benchmark_soak", path)
    module = importlib.util.module_from_spec(spec)
    # as Python does for a script: its own folder comes first
    sys.path.insert(0, str(path.parent))
    sys.modules["benchmark_soak"] = module
    spec.loader.exec_module(module)
    sys.path.remove(str(path.parent))
    yield module
    del sys.modules["benchmark_soak"]


def grown(mib, *, jump=0.0, minutes=30):
    """Samples of a server that grows by so much for 100,000 requests, each second, at a hundred a second."""
    return [
        {"seconds": float(i), "requests": 100.0 * i, "rss": 300 + mib * i / 1000 + jump * (i % 7), "anonymous": 200.0}
        for i in range(60 * minutes)
    ]


def found(bench, samples, unexpected=()):
    return {
        "unexpected": dict(unexpected),
        "rss": bench.slope(samples, "rss"),
        "anonymous": bench.slope(samples, "anonymous"),
    }


@pytest.mark.parametrize(("mib", "fault"), [(0.0, False), (0.9, False), (1.1, True), (5.0, True), (-3.0, False)])
def test_memory_that_grows_by_more_than_a_mebibyte_is_a_fault(bench, mib, fault):
    faults = bench.faults(found(bench, grown(mib, jump=0.5)))
    assert bool(faults) is fault
    assert all("RSS may grow by" in each for each in faults)


def test_what_can_not_be_told_is_a_fault(bench):
    """Too short after its warm-up, or so noisy that two standard errors reach beyond."""
    assert len(bench.faults(found(bench, grown(0.0)[:20]))) == 2
    wild = [one | {"rss": 300.0 + 40 * (i // 90 % 2)} for i, one in enumerate(grown(0.0))]
    assert bench.faults(found(bench, wild))


async def answered(bench, content, *, requests=60):
    """A client against a server that says the same to everything."""

    replying = []

    async def reply(reader, writer):
        replying.append(asyncio.current_task())
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r", 1)[0])
                await reader.readexactly(length)
                if not content:
                    break
                writer.write(content)
        except asyncio.IncompleteReadError:
            pass
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(reply, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        state = bench.Soak(port, 0, "token", time.perf_counter() + 3600, requests, rate=1e9)
        await bench.http_client(state)
        await asyncio.gather(*replying)
    return state


@pytest.mark.usefixtures("no_hang")
@pytest.mark.parametrize("status", [200, 401, 429, 500, 503])
def test_replies_are_told_apart_by_their_status(bench, status):
    content = f"HTTP/1.1 {status} Something\r\nContent-Length: 2\r\n\r\nok".encode()
    state = asyncio.run(answered(bench, content))
    assert sum(state.ended.values()) == state.total == 60
    assert {how for _, how in state.ended} == {status}
    # a repeated question is half of all, and mustn't be refused
    assert (f"repeated: {status}" in state.unexpected) is (status != 200)
    # nor may what must be refused be answered
    assert all(kind.startswith("refused") for kind in state.unexpected) or status != 200


@pytest.mark.usefixtures("no_hang")
def test_connections_that_are_lost_are_a_fault(bench):
    state = asyncio.run(answered(bench, b""))
    assert state.unexpected["repeated: lost"] > 0
    calm = found(bench, grown(0.0), state.unexpected)
    assert any("times repeated: lost" in each for each in bench.faults(calm))
