"""The whole server as several people use it at once: limits, races on a budget, two servers, and who sees what."""

import asyncio
import contextlib
import json
import re
import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from types import SimpleNamespace
from urllib.parse import urlencode

import psycopg
import pytest

import dither as dp
from dither.curator import Curator
from dither.errors import Refused
from dither.ledger import Amount, EntryKind
from dither.remote import TookTooLong
from dither.server.auth.identity import Scope
from dither.server.auth.tokens import TokenFile
from dither.server.limits import ServerLimits
from dither.server.run import Address, access_path, background
from support.sizes import short_or_full

COUNT = "SELECT COUNT(*) AS n FROM orders"
HTTP_ONLY = Address(port=0, pg_port=None)
OFTEN = ServerLimits(rate=1e6, burst=10**6)


@contextlib.contextmanager
def people(directory, place=None, limits=OFTEN):
    """A server with a token for everybody."""
    policy = dp.Policy.load(directory / "dither.toml")
    scopes = {"ana": Scope.ASK, "bob": Scope.ASK, "looker": Scope.PRICE, "owner": Scope.OWNER}
    with TokenFile.open(access_path(policy)) as access:
        tokens = {name: access.create(name, scope)[1] for name, scope in scopes.items()}
    with background(policy, place, limits=limits) as server:
        host, port = server.url.removeprefix("http://").split(":")
        yield SimpleNamespace(server=server, url=server.url, address=(host, int(port)), tokens=tokens)


def psql(served, who, **options):
    place = f"host=127.0.0.1 port={served.server.pg_port} user={who} dbname=shop"
    return psycopg.connect(place, password=served.tokens[who], autocommit=True, **options)


def sqlstate(link, sql):
    try:
        link.execute(sql)
    except psycopg.Error as problem:
        return problem.sqlstate
    return "00000"


def sent(served, who, method, path, body=None, accept="application/json"):
    connection = HTTPConnection(*served.address, timeout=60)
    headers = {"Authorization": f"Bearer {served.tokens[who]}", "Accept": accept, "Content-Type": "application/json"}
    connection.request(method, path, body=None if body is None else json.dumps(body), headers=headers)
    response = connection.getresponse()
    content = response.read()
    connection.close()
    return response, content


def charges(curator):
    """How many charges the ledger holds; every balance is their sum."""
    sums, found = {}, set()
    for entry in curator.ledger.entries():
        if entry.kind in (EntryKind.RESERVE, EntryKind.CHARGE):
            for payer in entry.body["payers"]:
                path = tuple(payer)
                sums[path] = sums.get(path, Amount()) + Amount.from_json(entry.body["amount"])
            found.add((entry.body["key"], tuple(entry.body["path"])))
    spent = {each.account.path: each.spent for each in curator.verify().balances if each.spent != Amount()}
    assert spent == sums
    return len(found)


# ---------------------------------------------------------------------- limits


def test_one_rate_for_both_protocols(shop):
    limits = ServerLimits(rate=1e-4, burst=12)
    with people(shop, Address(port=0, pg_port=0), limits) as served:
        for _ in range(6):
            assert sent(served, "ana", "GET", "/v1/budget")[0].status == 200
        with psql(served, "ana") as link:
            codes = [sqlstate(link, COUNT) for _ in range(12)]
        # what is left of the burst, and not more
        assert 2 <= codes.count("00000") <= 6
        assert codes == sorted(codes)
        assert codes[-1] == "53400"
        response, content = sent(served, "ana", "GET", "/v1/budget")
        assert response.status == 429
        assert int(response.getheader("Retry-After")) > 0
        assert json.loads(content)["code"] == "too_many"
        assert sent(served, "bob", "GET", "/v1/budget")[0].status == 200


def test_large_requests(shop):
    with people(shop, HTTP_ONLY, ServerLimits(largest_request=1000)) as served:
        response, content = sent(served, "ana", "POST", "/v1/ask", {"sql": COUNT + " " * 1000})
        assert (response.status, json.loads(content)["code"]) == (413, "too_large")
        assert sent(served, "ana", "POST", "/v1/ask", {"sql": COUNT})[0].status == 200


def test_those_who_dawdle_do_not_keep_others(shop):
    with people(shop, Address(port=0, pg_port=0)) as served, contextlib.ExitStack() as stack:
        for number in range(60):
            place = served.address if number % 2 else ("127.0.0.1", served.server.pg_port)
            link = stack.enter_context(socket.create_connection(place, timeout=10))
            link.sendall(b"POST /v1/ask HTTP/1.1\r\nHost:" if number % 2 else struct.pack("!i", 90) + b"\0\3\0\0user")
        with dp.client(served.url, served.tokens["ana"]) as client, psql(served, "ana") as link:
            assert link.execute(COUNT).fetchone() == (client.sql(COUNT).scalar(),)


def test_too_many_connections(shop):
    with (
        people(shop, Address(port=0, pg_port=0), ServerLimits(connections=5)) as served,
        contextlib.ExitStack() as stack,
    ):
        for who in ("ana", "ana", "bob", "bob", "owner"):
            stack.enter_context(psql(served, who))
        with pytest.raises(psycopg.OperationalError, match="too many clients"):
            psql(served, "looker")
        # the other protocol has its own
        assert sent(served, "bob", "GET", "/v1/budget")[0].status == 200


def test_who_stops_waiting_gets_it_later_for_nothing(shop):
    with people(shop, Address(port=0, pg_port=0), ServerLimits(patience=0.0001)) as served:
        with dp.client(served.url, served.tokens["ana"]) as client, pytest.raises(TookTooLong):
            client.sql(COUNT, epsilon="0.1")
        with psql(served, "ana") as link:
            assert sqlstate(link, "SELECT SUM(amount) AS total FROM orders") == "57014"
    with people(shop, HTTP_ONLY) as served, dp.client(served.url, served.tokens["ana"]) as client:
        # begun questions were ended before the server was
        for sql in (COUNT, "SELECT SUM(amount) AS total FROM orders"):
            assert not client.sql(sql, epsilon="0.1").cost.charged
    with Curator.open(shop / "dither.toml") as curator:
        assert charges(curator) == 2


# ---------------------------------------------------------------------- races


async def rushed(served, who, bodies):
    """All requests at once, each on a connection of its own; the statuses and bodies."""

    async def one(body):
        reader, writer = await asyncio.open_connection(*served.address)
        try:
            content = json.dumps(body).encode()
            head = (
                "POST /v1/ask HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n"
                f"Authorization: Bearer {served.tokens[who]}\r\nContent-Length: {len(content)}\r\n\r\n"
            )
            writer.write(head.encode() + content)
            head, _, answer = (await reader.read()).partition(b"\r\n\r\n")
            return int(head.split()[1]), json.loads(answer)
        finally:
            writer.close()

    return await asyncio.gather(*(one(body) for body in bodies))


def test_a_thousand_at_once_and_a_budget_for_ten(shop_with):
    """By day three hundred."""
    # pure ε, so that ten questions of 0.1 are exactly the budget
    shop = shop_with(budget=100, ana=1)
    path = shop / "dither.toml"
    path.write_text(path.read_text().replace("delta_budget = 1e-6", "delta_budget = 0"), encoding="utf-8")
    limits = ServerLimits(rate=1e6, burst=10**6, connections=2000, strangers=1000, each_address=1000, waiting=2000)
    counts = [f"SELECT COUNT(*) AS n FROM orders WHERE amount < {1 + i}" for i in range(50)]
    questions = [{"sql": counts[i % 50], "epsilon": "0.1"} for i in range(short_or_full(300, 1000))]
    with people(shop, HTTP_ONLY, limits) as served:
        found = asyncio.run(rushed(served, "ana", questions))
        answered = {question["sql"] for question, (status, _) in zip(questions, found, strict=True) if status == 200}
        assert len(answered) == 10
        assert {status for status, _ in found} == {200, 402}
        assert sum(status == 200 and body["cost"]["charged"] for status, body in found) == 10
        assert {body["code"] for status, body in found if status == 402} == {"out_of_budget"}
    with Curator.open(path) as curator:
        assert charges(curator) == 10
        (line,) = curator.budget("ana")
        assert line.epsilon_spent == pytest.approx(1)
        assert curator.budget("ana")[0].share == pytest.approx(1)


def test_two_servers_on_one_ledger(shop):
    questions = [{"sql": COUNT, "epsilon": f"0.0{1 + i % 5}"} for i in range(60)]
    with people(shop, HTTP_ONLY) as one, people(shop, HTTP_ONLY) as two:

        def rush(served):
            return asyncio.run(rushed(served, "ana", questions))

        with ThreadPoolExecutor(2) as pool:
            first, second = pool.map(rush, (one, two))
        found = [*first, *second]
        assert {status for status, _ in found} == {200}
        assert sum(body["cost"]["charged"] for _, body in found) == 5
        for epsilon in range(5):
            told = [(body["receipt"]["number"], body["rows"]) for _, body in first[epsilon::5] + second[epsilon::5]]
            assert told.count(told[0]) == len(told)
        left = [json.loads(sent(each, "ana", "GET", "/v1/budget")[1]) for each in (one, two)]
        assert left[0] == left[1]
        # a token that one of them revokes is worthless at the other
        with TokenFile.open(access_path(dp.Policy.load(shop / "dither.toml"))) as access:
            for token in access.list():
                if token.analyst == "bob":
                    access.revoke(token.number)
        assert [sent(each, "bob", "GET", "/v1/budget")[0].status for each in (one, two)] == [401, 401]
    with Curator.open(shop / "dither.toml") as curator:
        assert charges(curator) == 5


# ---------------------------------------------------------------------- who sees what

PATHS = (
    "/v1/budget",
    "/v1/history",
    "/v1/schema",
    "/v1/whoami",
    "/v1/answers",
    "/v1/answers?search=orders",
    "/v1/requests",
    "/v1/ledger",
    "/v1/openapi.json",
    "/metrics",
    "/health",
)
PAGES = ("/", "/ask", "/budget", "/answers", "/answers?search=amount", "/data", "/ledger", "/approvals", "/missing")
STATEMENTS = (
    "SELECT * FROM dp.budget",
    "SELECT * FROM dp.ledger",
    "SELECT * FROM dp.columns",
    "SHOW dp.budget",
    "EXPLAIN PRIVACY SELECT COUNT(*) AS n FROM orders WHERE amount < 7",
    "SELECT * FROM orders",
    "SELECT relname, reltuples FROM pg_class WHERE relname = 'orders'",
    "SELECT count(*) FROM pg_stat_activity",
)
OF_ANA = "SELECT COUNT(*) AS n FROM orders WHERE amount < 7"


def seen(served, who, receipt):
    """All that somebody can see, over all three surfaces."""
    views = {}
    for path in (*PATHS, f"/v1/answers/{receipt}"):
        response, content = sent(served, who, "GET", path)
        views[path] = (response.status, content)
    for body in ({"sql": OF_ANA, "epsilon": "0.1"}, {"sql": "SELECT * FROM orders"}, {"sql": COUNT, "epsilon": "0.9"}):
        response, content = sent(served, who, "POST", "/v1/price", body)
        views["price", body["sql"]] = (response.status, content)
    with psql(served, who) as link:
        for sql in STATEMENTS:
            try:
                views[sql] = link.execute(sql).fetchall()
            except psycopg.Error as problem:
                views[sql] = (problem.sqlstate, str(problem))
    views |= pages(served, who)
    return views


def pages(served, who):
    connection = HTTPConnection(*served.address, timeout=60)
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    connection.request("POST", "/sign-in", body=urlencode({"token": served.tokens[who]}), headers=form)
    response = connection.getresponse()
    response.read()
    cookie = response.getheader("Set-Cookie").split(";")[0]
    views = {}
    for path in PAGES:
        connection.request("GET", path, headers={"Cookie": cookie})
        response = connection.getresponse()
        views["page", path] = (response.status, response.read())
    connection.close()
    return views


def same(view):
    """A view without what is random or a time: receipt numbers and times of bob's own, and secrets against forgery."""
    text = repr(view)
    text = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?Z?", "<time>", text)
    return re.sub(r"[0-9a-f]{64}", "<secret>", text)


def test_nobody_sees_what_others_asked(shop):
    with people(shop, Address(port=0, pg_port=0)) as served:
        with dp.client(served.url, served.tokens["bob"]) as bob:
            bob.sql("SELECT COUNT(*) AS n FROM orders WHERE amount < 3", epsilon="0.1")
        number = "0" * 32
        with dp.client(served.url, served.tokens["ana"]) as ana:
            before = seen(served, "bob", number)
            receipt = ana.sql(OF_ANA, epsilon="0.1").receipt.number
            ana.price(COUNT, epsilon="0.2")
            with pytest.raises(Refused):
                ana.sql("SELECT secret FROM orders")
            with psql(served, "ana") as link:
                link.execute("SELECT SUM(amount) AS total FROM orders").fetchall()
                link.execute("SELECT relname FROM pg_class").fetchall()  # by the shadow, where it stays connected
                after = seen(served, "bob", receipt)
        before = {key.replace(number, receipt) if isinstance(key, str) else key: view for key, view in before.items()}
        assert before.keys() == after.keys()
        for key, view in before.items():
            assert same(view) == same(after[key]), key
        # what is compared is there: their own question, prices, and pages
        assert b"amount &lt; 3" in before["page", "/answers"][1]
        assert json.loads(before["/v1/answers"][1])["items"][0]["mine"]
        assert len(before["SELECT * FROM dp.ledger"]) == 1
        assert [before["page", path][0] for path in ("/ask", "/budget", "/data")] == [200, 200, 200]
        assert before["/metrics"][0] == before["/v1/ledger"][0] == 403
        assert after[f"/v1/answers/{receipt}"][0] == 404
