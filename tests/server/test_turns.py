"""Turns: whoever sends much work waits for it themselves, and nobody else does."""

import asyncio
import itertools
import time
from types import SimpleNamespace

import pytest

from dither.curator import AnalystView, Quote
from dither.server.auth.identity import Identity, Scope
from dither.server.limits import ServerLimits
from dither.server.problems import ServerRefusal
from dither.server.service import AskedQuestion, Service
from dither.server.traffic.fair_scheduler import MUCH, Turns
from dither.server.traffic.rate_limit import Rate

ANA, BOB = (Identity(analyst=name, scope=Scope.ASK, token=name) for name in ("ana", "bob"))


class Bench:
    """Work that ends when it is told to, and takes as long as it is told to."""

    def __init__(self, workers):
        self.now = 0.0
        self.turns = Turns(workers, clock=lambda: self.now)
        self.running, self.begun = [], []

    def take(self, name, *, seconds=0.0, fails=False):
        end = asyncio.get_running_loop().create_future()

        async def start(worked):
            self.begun.append(name)
            self.running.append((name, end))
            try:
                await end
            finally:
                worked.seconds = seconds
            if fails:
                raise ValueError(name)
            return name

        return self.turns.take(name, start)

    async def finish(self, name=None):
        """End the first that runs, of this name."""
        await asyncio.sleep(0)
        index = next(i for i, (one, _) in enumerate(self.running) if name in (None, one))
        _, end = self.running.pop(index)
        end.set_result(None)
        for _ in range(5):
            await asyncio.sleep(0)

    async def names(self):
        for _ in range(3):
            await asyncio.sleep(0)
        return sorted(name for name, _ in self.running)


def test_alone_there_is_room_for_one_more():
    async def story():
        bench = Bench(4)
        for _ in range(10):
            bench.take("ana")
        assert await bench.names() == ["ana"] * 3
        bench.take("bob")
        assert await bench.names() == ["ana"] * 3 + ["bob"]
        # while bob is there, ana has half
        await bench.finish("ana")
        await bench.finish("ana")
        assert await bench.names() == ["ana", "ana", "bob"]
        await bench.finish("bob")
        assert await bench.names() == ["ana"] * 3
        assert bench.turns.under_way("ana") == 8

    asyncio.run(story())


def test_whoever_worked_much_lately_has_one_while_others_are_there():
    async def story():
        bench = Bench(4)
        for _ in range(6):
            bench.take("ana", seconds=MUCH)
        for _ in range(3):
            bench.take("bob")
        await bench.finish("ana")
        await bench.finish("ana")
        for _ in range(20):
            found = await bench.names()
            if "bob" not in found:
                break
            assert found.count("ana") <= 2
            await bench.finish("bob")
        # all of bob's was done while work of ana's waited
        assert bench.begun.count("bob") == 3
        assert bench.turns.under_way("ana")
        # which is forgotten
        assert bench.turns.worked("ana") > MUCH
        bench.now = 1000.0
        assert bench.turns.worked("ana") < 1e-6

    asyncio.run(story())


def test_who_has_one_only_gets_no_second_while_another_waits():
    async def story():
        bench = Bench(4)
        bench.take("ana", seconds=10 * MUCH)
        await bench.finish("ana")
        bench.take("bob", seconds=10 * MUCH)
        bench.take("bob")
        for _ in range(3):
            bench.take("ana")
        assert await bench.names() == ["ana", "bob", "bob"]
        # two who both work much are equals again
        await bench.finish("bob")
        assert await bench.names() == ["ana", "ana", "bob"]

    asyncio.run(story())


def test_failures_and_who_went_away_leave_nothing_behind():
    async def story():
        bench = Bench(1)
        failed, left, done = bench.take("ana", fails=True), bench.take("ana"), bench.take("bob")
        left.cancel()
        for _ in range(3):
            await bench.finish()
        with pytest.raises(ValueError, match="ana"):
            await failed
        assert await done == "bob"
        assert (bench.turns.under_way("ana"), bench.turns.under_way("bob")) == (0, 0)

    asyncio.run(story())


def test_long_texts_count_more_as_far_as_there_is_anything_left():
    limit = Rate(rate=1.0, burst=10, clock=lambda: 0.0)
    assert [limit.wait("ana", 4) for _ in range(3)] == [0, 0, 1]
    assert [limit.wait("bob", 1000), limit.wait("bob")] == [0, 1]


def refusals(service, who, count, wanted):
    async def story():
        found = []
        for _ in range(count):
            try:
                found.append(await service.price(who, wanted))
            except ServerRefusal as refusal:
                found.append(refusal.problem.code)
        return found

    return asyncio.run(story())


def test_prices_of_long_texts_count_more(curator):
    service = Service(curator, ServerLimits(rate=1e-6, burst=20))
    try:
        short = AskedQuestion(sql="SELECT COUNT(*) AS n FROM orders")
        long = AskedQuestion(sql="SELECT COUNT(*) AS n FROM orders" + " " * 9000)
        found = refusals(service, ANA, 4, long)
        assert [isinstance(one, Quote) for one in found[:2]] == [True, True]
        assert found[2:] == ["too_many", "too_many"]
        assert all(isinstance(one, Quote) for one in refusals(service, BOB, 20, short))
        assert refusals(service, BOB, 1, short) == ["too_many"]
    finally:
        service.close()


def test_what_is_spent_afterwards_has_to_be_waited_for():
    now = [0.0]
    limit = Rate(rate=1.0, burst=10, clock=lambda: now[0])
    limit.spend("ana", 13)
    assert [limit.wait("ana"), limit.wait("bob")] == [4, 0]
    now[0] = 4.0
    assert [limit.wait("ana"), limit.wait("ana")] == [0, 1]


def test_work_of_one_analyst_is_bounded_whatever_the_texts_are(curator, monkeypatch):
    """As processors count it: a price that takes 15 seconds of one is possible, a third of them isn't."""
    service = Service(curator, ServerLimits())
    clock = itertools.count(step=15.0)
    fake = SimpleNamespace(thread_time=lambda: next(clock), monotonic=time.monotonic)
    monkeypatch.setattr("dither.server.service.time", fake)
    try:
        short = AskedQuestion(sql="SELECT COUNT(*) AS n FROM orders")
        found = refusals(service, ANA, 3, short)
        assert [isinstance(one, Quote) for one in found[:2]] == [True, True]
        assert found[2] == "too_many"
        assert isinstance(refusals(service, BOB, 1, short)[0], Quote)
    finally:
        service.close()


def test_one_analyst_leaves_room_to_wait_to_others(curator, monkeypatch):
    service = Service(curator, ServerLimits(workers=2, waiting=8))

    async def story():
        gate = asyncio.Event()
        loop = asyncio.get_running_loop()

        def held(view, sql, terms):
            asyncio.run_coroutine_threadsafe(gate.wait(), loop).result(60)
            return sql

        monkeypatch.setattr(AnalystView, "price", held)
        mine = [asyncio.create_task(service.price(ANA, AskedQuestion(sql=str(n)))) for n in range(8)]
        await asyncio.sleep(0.1)
        theirs = asyncio.create_task(service.price(BOB, AskedQuestion(sql="bob")))
        await asyncio.sleep(0.1)
        gate.set()
        return await asyncio.gather(*mine, return_exceptions=True), await theirs

    try:
        mine, theirs = asyncio.run(story())
    finally:
        service.close()
    assert theirs == "bob"
    assert mine[:6] == ["0", "1", "2", "3", "4", "5"]
    assert [(one.problem.code, one.problem.status, one.problem.retry_after) for one in mine[6:]] == [
        ("busy", 503, 1)
    ] * 2
