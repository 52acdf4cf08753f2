"""The Python client against a real server on loopback: it takes, returns and raises what the curator does."""

import dataclasses
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest
import uvicorn

import dither as dp
from dither.curator import OWNER, AnalystView, Curator, Request
from dither.errors import InvalidParameter
from dither.ledger import EntryKind
from dither.remote import HttpClient
from dither.server.app import make_app
from dither.server.limits import ServerLimits
from dither.server.service import Service

COUNT = "SELECT COUNT(*) AS n FROM orders"
CITIES = "SELECT city, COUNT(*) AS n, AVG(amount) AS mean FROM orders GROUP BY city ORDER BY city"


@pytest.fixture
def serve():
    """``serve(app)`` runs an app on a free port; its address, and everything is stopped in the end."""
    running = []

    def started(app, **settings):
        config = uvicorn.Config(
            app, port=0, log_config=None, access_log=False, server_header=False, lifespan="off", ws="none", **settings
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run)
        thread.start()
        running.append((server, thread))
        while not server.started and thread.is_alive():
            time.sleep(0.005)
        return f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"

    yield started
    for server, thread in running:
        server.should_exit = True
        thread.join()


@pytest.fixture
def url(serve, service, access):
    return serve(make_app(service, access, pages=False))


@pytest.fixture
def ana(url, tokens):
    with dp.client(url, tokens["ana"]) as made:
        yield made


def charges(curator):
    return [entry for entry in curator.ledger.entries() if entry.kind in (EntryKind.RESERVE, EntryKind.CHARGE)]


def test_answers_and_quotes_are_the_curators(ana, curator):
    quote = ana.price(CITIES, epsilon=0.3, weights={"n": 2}, confidence=0.9)
    mine = curator.price(CITIES, epsilon=0.3, weights={"n": 2}, confidence=0.9, analyst="ana")
    assert isinstance(quote, dp.Quote)
    assert str(quote) == str(mine)
    assert quote.error == mine.error
    assert quote.schema == mine.schema
    answer = ana.sql(CITIES, epsilon=0.3, weights={"n": 2}, confidence=0.9)
    assert type(answer) is dp.Answer
    assert answer.table.schema == quote.schema
    same = curator.sql(CITIES, epsilon=0.3, weights={"n": 2}, confidence=0.9, analyst="ana")
    assert answer.table == same.table
    assert (answer.receipt, answer.notes, answer.confidence) == (same.receipt, same.notes, same.confidence)
    assert answer.cost == dataclasses.replace(same.cost, charged=True)
    for name in same.bars:
        assert np.array_equal(answer.interval(name), same.interval(name))
        assert answer.bars[name].text == same.bars[name].text
    assert ana.price(CITIES, epsilon=0.3, weights={"n": 2}, confidence=0.9).free
    assert len(charges(curator)) == 1
    assert not ana.sql(CITIES, epsilon=0.3, weights={"n": 2}, confidence=0.9).cost.charged


@pytest.mark.parametrize("tenth", [0.1, "0.1", "1/10", Fraction(1, 10), np.float32(0.1)])
def test_numbers_arrive_exactly(ana, curator, tenth):
    ana.sql(COUNT, epsilon=tenth)
    assert curator.price(COUNT, epsilon="0.1", analyst="ana").free
    assert ana.price(COUNT, error={"n": 1000 * tenth if isinstance(tenth, float) else "100"}).error["n"] <= 100


def test_explain_is_free(ana, curator):
    answer = ana.sql(f"EXPLAIN PRIVACY {COUNT}", epsilon=0.2)
    assert answer.receipt is None
    assert answer.to_pylist()[0]["column"] == "n"
    assert charges(curator) == []


def test_errors_are_the_curators(url, ana, tokens, curator):
    with pytest.raises(dp.Refused) as refused:
        ana.sql("SELECT\n  nothing FROM orders", epsilon=0.1)
    with pytest.raises(dp.Refused) as mine:
        curator.sql("SELECT\n  nothing FROM orders", epsilon=0.1, analyst="ana")
    assert str(refused.value) == str(mine.value)
    for name in ("code", "hint", "position", "reason"):
        assert getattr(refused.value, name) == getattr(mine.value, name)
    with pytest.raises(InvalidParameter, match="not both"):
        ana.sql(COUNT, epsilon=0.1, error=5)
    with pytest.raises(InvalidParameter, match="epsilon must be greater than 0; got -1"):
        ana.sql(COUNT, epsilon=-1)
    with pytest.raises(InvalidParameter, match="must be a text"):
        ana.sql(None)
    with dp.client(url, tokens["bob"]) as bob:
        bob.sql(COUNT, epsilon=0.5)
        with pytest.raises(dp.OutOfBudget, match="it doesn't fit in the budget"):
            bob.sql(CITIES, epsilon=0.5)
        with pytest.raises(dp.Refused) as unknown:
            bob.answer("0" * 16)
        assert unknown.value.code == "unknown_receipt"
    with dp.client(url, tokens["looker"]) as looker:
        assert looker.price(COUNT, epsilon=0.1).epsilon <= 0.1
        with pytest.raises(dp.Refused) as forbidden:
            looker.sql(COUNT, epsilon=0.1)
        assert forbidden.value.code == "forbidden"
    with dp.client(url, "wrong") as nobody, pytest.raises(dp.Refused) as wrong:
        nobody.budget()
    assert wrong.value.code == "unknown_token"


@pytest.mark.parametrize("final", [False, True])
def test_what_failed_keeps_its_receipt(url, ana, curator, monkeypatch, final):
    def fail(*arguments, **more):
        raise dp.Failed("ab12", final=final)

    monkeypatch.setattr(AnalystView, "sql", fail)
    with pytest.raises(dp.Failed) as failed:
        ana.sql(COUNT, epsilon=0.1)
    assert (failed.value.receipt, failed.value.final) == ("ab12", final)
    assert str(failed.value) == str(dp.Failed("ab12", final=final))


def test_budget_answers_and_facts(url, ana, tokens, curator):
    first, second = ana.sql(COUNT, epsilon=0.1), ana.sql(COUNT, epsilon=0.2)
    assert ana.budget() == curator.budget("ana")
    page = ana.answers(count=1)
    assert page == curator.answers("ana", count=1)
    assert [item.number for item in page.items] == [second.receipt.number]
    older = ana.answers(before=page.next, search="count(*)")
    assert [item.number for item in older.items] == [first.receipt.number]
    assert ana.answer(first.receipt.number).table == first.table
    assert [table["name"] for table in ana.schema()["tables"]] == ["orders", "cities"]
    with dp.client(url, tokens["owner"]) as owner:
        assert owner.budget() == curator.budget(OWNER)


@pytest.fixture
def asking(shop_with, access, tokens, serve):
    """Questions above 0.3 need the owner: the curator, and clients of ana and of the owner."""
    with Curator.open(shop_with(more="needs_approval_above = 0.3") / "dither.toml") as opened:
        service = Service(opened)
        address = serve(make_app(service, access, pages=False))
        with dp.client(address, tokens["ana"]) as ana, dp.client(address, tokens["owner"]) as owner:
            yield opened, ana, owner
        service.close()


def test_a_question_is_requested_decided_and_asked(asking):
    curator, ana, owner = asking
    with pytest.raises(dp.Refused) as held:
        ana.sql(CITIES, epsilon=0.5, weights={"n": 2})
    with pytest.raises(dp.Refused) as mine:
        curator.sql(CITIES, epsilon=0.5, weights={"n": 2}, analyst="ana")
    assert (held.value.code, str(held.value)) == ("needs_approval", str(mine.value))
    made = ana.request_question(CITIES, epsilon=0.5, weights={"n": 2}, why="the annual report")
    assert isinstance(made, Request)
    assert (made.analyst, made.why, made.state.value) == ("ana", "the annual report", "waiting")
    assert made == curator.requests("ana")[0]
    # the same once more is the one that waits
    assert ana.request_question(CITIES, epsilon="1/2", weights={"n": 2}).number == made.number
    assert ana.requests(waiting_only=True) == owner.requests() == (made,)
    decided = owner.decide(made.number, approve=True, why="go ahead")
    assert (decided.state.value, decided.answer_why) == ("approved", "go ahead")
    assert ana.requests() == (decided,) == curator.requests("ana")
    assert ana.requests(waiting_only=True) == ()
    assert charges(curator) == []
    assert ana.sql(CITIES, epsilon=0.5, weights={"n": 2}).cost.charged


def test_more_budget_is_requested_and_decided(asking):
    curator, ana, owner = asking
    first, second = ana.request_budget(2, why="more months"), ana.request_budget(epsilon=Fraction(1, 3))
    assert (first.kind.value, first.epsilon, second.why) == ("budget", "2", "")
    assert owner.decide(first.number, approve=True).state.value == "approved"
    assert owner.decide(second.number, approve=False, why="enough").answer_why == "enough"
    assert ana.budget()[0].epsilon_budget == 52
    assert curator.requests("ana") == ana.requests()


def test_errors_of_requests_are_the_curators(asking):
    curator, ana, owner = asking
    made = ana.request_budget(1)
    owner.decide(made.number, approve=False)
    for client, call, mine in (
        (
            ana,
            lambda one: one.request_question(COUNT, epsilon=0.1),
            lambda: curator.request_question(COUNT, epsilon=0.1, analyst="ana"),
        ),
        (
            ana,
            lambda one: one.request_question("SELECT\n x FROM orders", epsilon=0.5),
            lambda: curator.request_question("SELECT\n x FROM orders", epsilon=0.5, analyst="ana"),
        ),
        (ana, lambda one: one.request_budget(10**9), lambda: curator.request_budget("ana", epsilon=10**9)),
        (
            owner,
            lambda one: one.decide(made.number, approve=True),
            lambda: curator.decide(made.number, approve=True),
        ),
        (
            owner,
            lambda one: one.decide("no such number?", approve=True),
            lambda: curator.decide("no such number?", approve=True),
        ),
        (owner, lambda one: one.request_budget(1), lambda: curator.request_budget(OWNER, epsilon=1)),
    ):
        with pytest.raises(dp.DitherError) as told:
            call(client)
        with pytest.raises(dp.DitherError) as known:
            mine()
        assert (type(told.value), str(told.value)) == (type(known.value), str(known.value))
        for name in ("code", "hint", "position"):
            assert getattr(told.value, name, None) == getattr(known.value, name, None)
    with pytest.raises(InvalidParameter, match="epsilon must be greater than 0; got 0"):
        ana.request_budget(0)
    with pytest.raises(InvalidParameter, match=r"the field why isn't as expected.*Fields are: "):
        ana.request_budget(1, why="x" * 1001)
    for forbidden in (
        lambda: ana.decide(made.number, approve=True),
        lambda: ana.records(),
        lambda: ana.verify(),
        lambda: ana.metrics(),
    ):
        with pytest.raises(dp.Refused) as told:
            forbidden()
        assert told.value.code == "forbidden"


def test_records_history_and_guarantee_are_the_curators(asking):
    curator, ana, owner = asking
    ana.sql(COUNT, epsilon=0.1)
    owner.sql(CITIES, epsilon=0.3)
    assert ana.history() == curator.history("ana") != ()
    assert owner.history() == curator.history()
    assert ana.guarantee() == curator.guarantee("ana")
    assert owner.guarantee() == curator.guarantee()
    assert owner.records() == curator.records()
    page = owner.records(count=2)
    assert page == curator.records(count=2)
    assert owner.records(before=page[-1].number) == curator.records(before=page[-1].number)
    assert owner.verify() == curator.verify()
    assert ana.whoami() == {"analyst": "ana", "scope": "ask"}
    assert 'dither_requests_total{what="ask"' in owner.metrics()


def test_the_client_can_do_all_that_the_api_offers(asking, monkeypatch):
    """Each operation of the OpenAPI document is sent by a method of the client."""
    curator, ana, owner = asking
    number = ana.sql(COUNT, epsilon=0.1).receipt.number
    sent = []
    really = HttpClient._request

    def noted(self, method, path, **more):
        sent.append((method.lower(), path.partition("?")[0]))
        return really(self, method, path, **more)

    monkeypatch.setattr(HttpClient, "_request", noted)
    ana.price(COUNT)
    ana.sql(COUNT)
    for free in (ana.budget, ana.answers, ana.history, ana.guarantee, ana.schema, ana.whoami, ana.requests):
        free()
    ana.answer(number)
    ana.request_question(COUNT, epsilon=0.4)
    wish = ana.request_budget(1).number
    owner.decide(wish, approve=True)
    for look in (owner.records, owner.verify, owner.metrics):
        look()
    document = make_app(Service(curator), None, pages=False).openapi()
    offered = {(method, path) for path, methods in document["paths"].items() for method in methods}
    numbered = {(method, path.replace(number, "{number}").replace(wish, "{number}")) for method, path in sent}
    assert numbered == offered - {("get", "/health")}


def test_many_threads_share_one_client_and_one_charge(ana, curator):
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda _: ana.sql(COUNT, epsilon=0.1), range(36)))
    assert len({answer.receipt.number for answer in answers}) == 1
    assert sum(answer.cost.charged for answer in answers) == 1
    assert len(charges(curator)) == 1


def test_who_goes_away_does_not_stop_the_question(url, tokens, curator, monkeypatch):
    reached, go_on, answered = threading.Event(), threading.Event(), threading.Event()
    really = AnalystView.sql

    def slowly(*arguments, **more):
        reached.set()
        go_on.wait(20)
        try:
            return really(*arguments, **more)
        finally:
            answered.set()

    monkeypatch.setattr(AnalystView, "sql", slowly)
    body = json.dumps({"sql": COUNT, "epsilon": 0.1}).encode()
    head = (
        f"POST /v1/ask HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {tokens['ana']}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as connection:
        connection.sendall(head.encode() + body)
        assert reached.wait(20)
    go_on.set()
    assert answered.wait(20)
    monkeypatch.undo()
    assert len(charges(curator)) == 1
    again = curator.sql(COUNT, epsilon=0.1, analyst="ana")
    assert not again.cost.charged


def test_a_question_that_takes_too_long_for_the_server(serve, curator, access, tokens, monkeypatch):
    held = threading.Event()
    monkeypatch.setattr(AnalystView, "sql", lambda *arguments, **more: held.wait(20))
    service = Service(curator, ServerLimits(patience=0.1))
    with dp.client(serve(make_app(service, access, pages=False)), tokens["ana"]) as ana:
        with pytest.raises(TimeoutError, match="isn't charged twice") as late:
            ana.sql(COUNT, epsilon=0.1)
        assert isinstance(late.value, ConnectionError)
        assert isinstance(late.value, dp.DitherError)
    held.set()
    service.close()
