"""The service: scopes, rates, a bounded number of questions at once, and questions that outlive their askers."""

import asyncio
import logging
import threading

import pytest

from dither.curator import Curator, Terms
from dither.errors import Failed, LedgerBusy, LedgerCorrupt, OutOfBudget, Refused, SourceError
from dither.server.auth.identity import Identity, Scope
from dither.server.limits import ServerLimits
from dither.server.problems import INTERNAL, STOPPED_WAITING, ServerRefusal, problem_of
from dither.server.service import AskedQuestion, Service

ANA = Identity(analyst="ana", scope=Scope.ASK, token="1")
LOOKER = Identity(analyst="looker", scope=Scope.PRICE, token="2")
OWNER = Identity(analyst="owner", scope=Scope.OWNER, token="3")
COUNT = AskedQuestion(sql="SELECT COUNT(*) AS n FROM orders", terms=Terms.of(epsilon="0.1"))


class Slow:
    """Stands for a curator whose questions last until they are let go."""

    def __init__(self) -> None:
        self.go, self.begun, self.ended = threading.Event(), threading.Semaphore(0), threading.Semaphore(0)

    def analyst(self, _: str):
        return self

    def remembered(self, *_: object, **__: object) -> None:
        return None

    def sql(self, *_: object, **__: object):
        self.begun.release()
        self.go.wait(30)
        self.ended.release()
        raise RuntimeError("a value 4711 that must not be seen")


def run(work):
    return asyncio.run(work)


def test_a_question_is_priced_and_answered(service, curator):
    async def story():
        quote = await service.price(ANA, COUNT)
        first = await service.ask(ANA, COUNT)
        again = await service.ask(ANA, COUNT)
        return quote, first, again

    quote, first, again = run(story())
    assert quote.epsilon == pytest.approx(0.1, rel=1e-6)
    assert first.cost.charged
    assert not again.cost.charged
    assert first.table == again.table
    assert [line.account for line in run(service.budget(ANA))] == ["shop/ana"]
    assert len(run(service.budget(OWNER))) > 1


@pytest.mark.parametrize(
    ("who", "scope", "allowed"),
    [
        (LOOKER, Scope.PRICE, True),
        (LOOKER, Scope.ASK, False),
        (LOOKER, Scope.OWNER, False),
        (ANA, Scope.ASK, True),
        (ANA, Scope.OWNER, False),
        (OWNER, Scope.OWNER, True),
        (Identity(analyst="ana", scope=Scope.OWNER, token="4"), Scope.OWNER, False),
    ],
)
def test_a_token_allows_no_more_than_its_scope(service, who, scope, allowed):
    if allowed:
        service.admit(who, scope)
        return
    with pytest.raises(ServerRefusal) as refused:
        service.admit(who, scope)
    assert (refused.value.problem.status, refused.value.problem.sqlstate) == (403, "42501")


def test_looking_tokens_can_not_ask(service, curator):
    with pytest.raises(ServerRefusal):
        run(service.ask(LOOKER, COUNT))
    assert len(curator.ledger.latest(10)) == 1
    assert run(service.price(LOOKER, COUNT)).columns


def test_who_asks_too_often_waits_and_others_do_not(curator):
    service = Service(curator, ServerLimits(rate=0.5, burst=2))
    for _ in range(2):
        service.admit(ANA, Scope.PRICE)
    with pytest.raises(ServerRefusal) as refused:
        service.admit(ANA, Scope.PRICE)
    assert refused.value.problem.status == 429
    assert refused.value.problem.retry_after in (1, 2)
    service.admit(OWNER, Scope.PRICE)
    service.close()


def test_no_more_questions_wait_than_allowed():
    slow = Slow()
    service = Service(slow, ServerLimits(workers=1, waiting=2))

    async def story():
        tasks = [asyncio.create_task(service.ask(ANA, COUNT)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(ServerRefusal) as refused:
            await service.ask(ANA, COUNT)
        assert refused.value.problem.status == 503
        slow.go.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert service.under_way == 0
        return found

    assert [type(problem) for problem in run(story())] == [RuntimeError, RuntimeError]
    service.close()


def test_a_question_outlives_the_patience_of_its_asker(caplog):
    slow = Slow()
    service = Service(slow, ServerLimits(patience=0.01))

    async def story():
        with pytest.raises(TimeoutError) as late:
            await service.ask(ANA, COUNT)
        assert problem_of(late.value) == STOPPED_WAITING
        assert service.under_way == 1
        slow.go.set()
        await asyncio.get_running_loop().run_in_executor(None, slow.ended.acquire)
        while service.under_way:
            await asyncio.sleep(0.001)

    with caplog.at_level(logging.INFO):
        run(story())
    service.close()
    # what went wrong is logged by its kind alone
    assert "RuntimeError" in caplog.text
    assert "4711" not in caplog.text


def test_a_cancelled_asker_does_not_stop_the_question():
    slow = Slow()
    service = Service(slow, ServerLimits())

    async def story():
        task = asyncio.create_task(service.ask(ANA, COUNT))
        await asyncio.get_running_loop().run_in_executor(None, slow.begun.acquire)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert service.under_way == 1
        slow.go.set()
        await asyncio.get_running_loop().run_in_executor(None, slow.ended.acquire)

    run(story())
    service.close()


@pytest.mark.parametrize(
    ("error", "status", "sqlstate", "code"),
    [
        (Refused("no", code="rows_shown", hint="count"), 400, "0A000", "rows_shown"),
        (Refused("no", code="syntax"), 400, "42601", "syntax"),
        (Refused("no", code="unknown_receipt"), 404, "02000", "unknown_receipt"),
        (OutOfBudget("too much"), 402, "53400", "out_of_budget"),
        (Failed("r1"), 500, "58000", "failed"),
        (LedgerBusy("x"), 503, "55P03", "ledger_busy"),
        (LedgerCorrupt("entry 7 of /srv/secret"), 503, "58030", "unavailable"),
        (SourceError("/srv/secret/shop.duckdb"), 503, "58030", "unavailable"),
        (TimeoutError(), 504, "57014", "took_too_long"),
        (RuntimeError("value 4711"), 500, "XX000", "internal"),
        (MemoryError(), 500, "XX000", "internal"),
    ],
)
def test_errors_in_the_words_of_each_protocol(error, status, sqlstate, code):
    problem = problem_of(error)
    assert (problem.status, problem.sqlstate, problem.code) == (status, sqlstate, code)
    assert "4711" not in str(problem)
    assert "/srv" not in str(problem)


def test_what_nobody_foresaw_says_nothing():
    assert problem_of(ValueError("SELECT secret")) is INTERNAL


def test_metrics_count_what_happened(service, curator):
    async def story():
        await service.ask(ANA, COUNT)
        await service.ask(ANA, COUNT)
        with pytest.raises(Refused):
            await service.price(ANA, AskedQuestion(sql="SELECT * FROM orders", terms=Terms.of(epsilon=1)))

    run(story())
    text = service.metrics.text({"budget_share": 0.5})
    assert 'dither_requests_total{what="ask",outcome="charged"} 1' in text
    assert 'dither_requests_total{what="ask",outcome="repeated"} 1' in text
    assert 'dither_requests_total{what="price",outcome="rows_shown"} 1' in text
    assert 'dither_seconds_count{what="price"} 1' in text
    assert "dither_budget_share 0.5" in text
    assert "orders" not in text
    assert "ana" not in text


def test_the_service_leaves_the_curator_open(shop):
    with Curator.open(shop / "dither.toml") as curator:
        Service(curator).close()
        assert curator.price("SELECT COUNT(*) FROM orders", epsilon=1).columns
