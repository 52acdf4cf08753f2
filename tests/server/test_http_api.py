"""The HTTP API on a real curator: what each operation says, to whom, and that nothing is charged twice."""

import asyncio
import csv
import io
from fractions import Fraction

import httpx
import pytest

from dither.curator import Curator
from dither.ledger import EntryKind
from dither.remote import reading
from dither.server.app import make_app
from dither.server.limits import ServerLimits
from dither.server.service import Service

COUNT = "SELECT COUNT(*) AS n FROM orders"
CITIES = "SELECT city, COUNT(*) AS n FROM orders GROUP BY city ORDER BY city"
ARROW = "application/vnd.apache.arrow.stream"
QUESTION = {"sql": COUNT, "epsilon": 0.1}
# every operation, a body that it takes, and the scope that it needs
OPERATIONS = [
    ("POST", "/v1/price", QUESTION, "price"),
    ("POST", "/v1/ask", QUESTION, "ask"),
    ("GET", "/v1/budget", None, "price"),
    ("GET", "/v1/history", None, "price"),
    ("GET", "/v1/guarantee", None, "price"),
    ("GET", "/v1/answers", None, "ask"),
    ("GET", "/v1/answers/{number}", None, "ask"),
    ("GET", "/v1/schema", None, "price"),
    ("GET", "/v1/ledger", None, "owner"),
    ("POST", "/v1/ledger/verify", None, "owner"),
    ("GET", "/v1/requests", None, "ask"),
    ("POST", "/v1/requests/question", {**QUESTION, "why": "because"}, "ask"),
    ("POST", "/v1/requests/budget", {"epsilon": 1, "why": "because"}, "ask"),
    ("POST", "/v1/requests/{number}/decision", {"approve": False}, "owner"),
    ("GET", "/v1/whoami", None, "price"),
    ("GET", "/metrics", None, "owner"),
]
SCOPES = {"looker": "price", "ana": "ask", "owner": "owner"}
RANK = ["price", "ask", "owner"]


def caller(service, access, tokens):
    """``call(method, path, who, …)``: one request to the app, in this process."""
    app = make_app(service, access, pages=False)

    def call(method, path, who="ana", *, headers=None, **more):
        said = {"Authorization": f"Bearer {tokens[who]}"} if who else {}

        async def sent():
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
                return await client.request(method, path, headers={**said, **(headers or {})}, **more)

        return asyncio.run(sent())

    call.app = app
    return call


@pytest.fixture
def call(service, access, tokens):
    return caller(service, access, tokens)


def charges(curator):
    return [entry for entry in curator.ledger.entries() if entry.kind in (EntryKind.RESERVE, EntryKind.CHARGE)]


def test_each_operation_needs_its_scope(call):
    listed = {
        (method.upper(), path) for path, operations in call.app.openapi()["paths"].items() for method in operations
    }
    assert {(method, path) for method, path, _, _ in OPERATIONS} == listed - {("GET", "/health")}
    for method, path, body, needed in OPERATIONS:
        place = path.replace("{number}", "abcdef")
        for token in (None, "wrong"):
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            refused = call(method, place, None, json=body, headers=headers)
            assert (refused.status_code, refused.json()["code"]) == (401, "unknown_token"), (method, path)
            assert refused.headers["www-authenticate"].startswith("Bearer")
        for who, scope in SCOPES.items():
            got = call(method, place, who, json=body)
            if RANK.index(scope) >= RANK.index(needed):
                assert got.status_code not in (401, 403), (method, path, who)
            else:
                assert got.status_code == 403, (method, path, who)
                assert got.json()["code"] == "forbidden"
                assert got.json()["title"].endswith(f"it needs the scope {needed}")


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Basic {ana}", "{ana}", "Bearer {ana}x", "Bearer " + "x" * 5000, "Token {ana}"]
)
def test_only_a_bearer_token_counts(call, tokens, header):
    assert call("GET", "/v1/whoami", None, headers={"Authorization": header.format(**tokens)}).status_code == 401


def test_the_scheme_of_a_token_is_case_insensitive(call, tokens):
    assert call("GET", "/v1/whoami", None, headers={"authorization": f"bearer {tokens['ana']}"}).status_code == 200


def test_cookies_count_for_nothing(call, access, tokens):
    cookie, _ = access.sign_in(tokens["ana"])
    for name in ("session", "dither", "dither_session", "__Host-session"):
        assert call("GET", "/v1/whoami", None, headers={"Cookie": f"{name}={cookie}"}).status_code == 401


def test_a_price_is_free_and_says_what_is_known(call, curator):
    quote = call("POST", "/v1/price", "looker", json={"sql": CITIES, "epsilon": "0.5"}).json()
    mine = curator.price(CITIES, epsilon=0.5, analyst="looker")
    assert quote["epsilon"] == mine.epsilon
    assert quote["schema"] == [{"name": "city", "type": "text"}, {"name": "n", "type": "integer"}]
    assert (quote["more"], quote["share"], quote["free"]) == (mine.more, mine.share, False)
    assert [column["half_width"] for column in quote["columns"]] == [None, mine.error["n"]]
    assert charges(curator) == []


def test_an_answer_in_three_formats_is_one_answer(call, curator):
    body = {"sql": CITIES, "epsilon": 0.5}
    as_json = call("POST", "/v1/ask", json=body).json()
    as_csv = call("POST", "/v1/ask", json=body, headers={"Accept": "text/csv"})
    as_arrow = call("POST", "/v1/ask", json=body, headers={"Accept": ARROW})
    answer = reading.answer(as_arrow.content)
    assert as_json["rows"] == [[row["city"], row["n"]] for row in answer.to_pylist()]
    rows = list(csv.DictReader(io.StringIO(as_csv.text)))
    assert [[row["city"], int(row["n"])] for row in rows] == as_json["rows"]
    low, high = answer.interval("n")
    assert [float(row["n_low"]) for row in rows] == list(low) == as_json["intervals"]["n"]["low"]
    assert [float(row["n_high"]) for row in rows] == list(high) == as_json["intervals"]["n"]["high"]
    assert as_csv.headers["content-type"] == "text/csv; charset=utf-8; header=present"
    assert as_arrow.headers["content-type"] == ARROW
    assert as_json["cost"]["charged"]
    assert not answer.cost.charged
    number = as_json["receipt"]["number"]
    assert {as_csv.headers["dither-receipt"], as_arrow.headers["dither-receipt"], answer.receipt.number} == {number}
    mine = curator.sql(CITIES, epsilon=Fraction(1, 2), analyst="ana")
    assert mine.table == answer.table
    assert mine.receipt == answer.receipt
    assert len(charges(curator)) == 1


def test_numbers_are_exact_so_the_same_question_is_charged_once(call, curator):
    for epsilon in ("0.1", '"0.1"', '"1/10"', "1e-1", '"0.10"'):
        body = '{"sql": "' + COUNT + '", "epsilon": ' + epsilon + "}"
        got = call("POST", "/v1/ask", content=body, headers={"Content-Type": "application/json; charset=utf-8"})
        assert got.status_code == 200, got.text
    assert len(charges(curator)) == 1
    call("POST", "/v1/ask", json={"sql": COUNT, "epsilon": "0.11"})
    assert len(charges(curator)) == 2


def test_many_at_once_are_charged_once(service, access, tokens, curator):
    app = make_app(service, access, pages=False)

    async def all_of_them():
        transport = httpx.ASGITransport(app)
        headers = {"Authorization": f"Bearer {tokens['ana']}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://shop", headers=headers) as client:
            return await asyncio.gather(*(client.post("/v1/ask", json=QUESTION) for _ in range(24)))

    replies = [reply.json() for reply in asyncio.run(all_of_them())]
    assert len({reply["receipt"]["number"] for reply in replies}) == 1
    assert len({str(reply["rows"]) for reply in replies}) == 1
    assert len(charges(curator)) == 1
    assert sum(reply["cost"]["charged"] for reply in replies) == 1


def test_nobody_reads_the_answers_of_others(call):
    mine = call("POST", "/v1/ask", json=QUESTION).json()
    number = mine["receipt"]["number"]
    again = call("GET", f"/v1/answers/{number}").json()
    assert again["rows"] == mine["rows"]
    assert not again["cost"]["charged"]
    theirs, unknown = (call("GET", f"/v1/answers/{one}", "bob") for one in (number, "0" * len(number)))
    assert theirs.status_code == unknown.status_code == 404
    assert theirs.content == unknown.content
    assert call("GET", "/v1/answers", "bob").json() == {"items": [], "next": None}
    listed = [call("GET", f"/v1/answers?before={one}", "bob") for one in (number, "0" * len(number))]
    assert {reply.status_code for reply in listed} == {404}
    assert listed[0].content == listed[1].content
    assert call("GET", "/v1/history", "bob").json() == []
    assert [line["account"] for line in call("GET", "/v1/budget", "bob").json()] == ["shop/bob"]
    assert call("GET", f"/v1/answers/{number}", "owner").status_code == 200


def test_answers_are_listed_in_pages_and_searched(call):
    for epsilon in ("0.1", "0.2", "0.3"):
        call("POST", "/v1/ask", json={"sql": COUNT, "epsilon": epsilon})
    call("POST", "/v1/ask", json={"sql": CITIES, "epsilon": 0.1})
    first = call("GET", "/v1/answers?count=2").json()
    assert [item["epsilon"] for item in first["items"]] == ["0.1", "0.3"]
    second = call("GET", f"/v1/answers?count=2&before={first['next']}").json()
    assert [item["epsilon"] for item in second["items"]] == ["0.2", "0.1"]
    assert second["next"] is None
    found = call("GET", "/v1/answers", params={"search": "group by CITY"}).json()["items"]
    assert [item["sql"] for item in found] == [CITIES]
    csv_again = call("GET", f"/v1/answers/{found[0]['number']}", headers={"Accept": "text/csv"})
    assert csv_again.text.startswith('"city","n","n_low","n_high"\n')


def test_the_owner_sees_the_ledger(call, curator):
    call("POST", "/v1/ask", json=QUESTION)
    records = call("GET", "/v1/ledger", "owner").json()
    assert [record["what"] for record in records][:2] == ["answer", "reserve"]
    assert records[1]["question"] == COUNT
    older = call("GET", f"/v1/ledger?before={records[1]['number']}&count=1", "owner").json()
    assert [record["number"] for record in older] == [records[1]["number"] - 1]
    verified = call("POST", "/v1/ledger/verify", "owner").json()
    assert verified["entries"] == len(list(curator.ledger.entries()))
    assert {balance["account"] for balance in verified["balances"]} >= {"shop", "shop/ana"}


def test_budget_history_and_who(call):
    call("POST", "/v1/ask", json=QUESTION)
    (line,) = call("GET", "/v1/budget").json()
    (point,) = call("GET", "/v1/history").json()
    assert line["account"] == point["account"] == "shop/ana"
    assert line["epsilon_spent"] == point["epsilon_spent"] > 0
    assert {one["account"] for one in call("GET", "/v1/budget", "owner").json()} >= {"shop", "shop/ana", "shop/bob"}
    assert call("GET", "/v1/whoami", "looker").json() == {"analyst": "looker", "scope": "price"}


def test_facts_health_and_metrics(call):
    facts = call("GET", "/v1/schema", "looker").json()
    assert [table["name"] for table in facts["tables"]] == ["orders", "cities"]
    assert call("GET", "/health", None).json() == {"status": "ok"}
    call("POST", "/v1/ask", json=QUESTION)
    call("POST", "/v1/ask", json=QUESTION)
    text = call("GET", "/metrics", "owner").text
    assert 'dither_requests_total{what="ask",outcome="charged"} 1\n' in text
    assert 'dither_requests_total{what="ask",outcome="repeated"} 1\n' in text
    assert "orders" not in text


def test_a_refusal_keeps_its_place(call):
    got = call("POST", "/v1/ask", json={"sql": "SELECT\n  nothing FROM orders", "epsilon": 0.1})
    problem = got.json()
    assert got.status_code == problem["status"] == 400
    assert got.headers["content-type"] == "application/problem+json"
    assert problem["code"] == "unknown_column"
    assert problem["position"] == {"line": 2, "column": 3}
    assert problem["hint"]
    assert "receipt" not in problem


def test_out_of_budget_and_invalid(call, curator):
    assert call("POST", "/v1/ask", "bob", json={"sql": COUNT, "epsilon": 0.5}).status_code == 200
    spent = call("POST", "/v1/ask", "bob", json={"sql": CITIES, "epsilon": 0.5})
    assert (spent.status_code, spent.json()["code"]) == (402, "out_of_budget")
    both = call("POST", "/v1/ask", json={"sql": COUNT, "epsilon": 1, "error": 5})
    assert (both.status_code, both.json()["code"]) == (422, "invalid")
    assert "not both" in both.json()["title"]
    assert len(charges(curator)) == 1


def test_an_error_instead_of_an_epsilon(call):
    for error in (100, "100", {"n": 100}, {"n": "100"}):
        quote = call("POST", "/v1/price", json={"sql": CITIES, "error": error, "confidence": "0.9"}).json()
        assert quote["columns"][1]["half_width"] <= 100
        assert quote["confidence"] == 0.9


def test_the_pages_change_nothing_of_the_api(service, access, tokens):
    app = make_app(service, access)
    assert app.openapi()["paths"].keys() == make_app(service, access, pages=False).openapi()["paths"].keys()

    async def sent():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client:
            page = await client.get("/", headers={"Accept": "text/html"}, follow_redirects=True)
            who = await client.get("/v1/whoami", headers={"Authorization": f"Bearer {tokens['ana']}"})
            return page, who

    page, who = asyncio.run(sent())
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'; frame-ancestors 'none'" not in page.headers["content-security-policy"]
    assert page.headers["x-content-type-options"] == "nosniff"
    assert who.json()["analyst"] == "ana"
    assert who.headers["content-security-policy"].startswith("default-src 'none'; frame-ancestors 'none'")


def test_approvals(shop_with, access, tokens):
    with Curator.open(shop_with(more="needs_approval_above = 0.2") / "dither.toml") as curator:
        service = Service(curator)
        call = caller(service, access, tokens)
        dear = {"sql": COUNT, "epsilon": 0.4}
        refused = call("POST", "/v1/ask", json=dear)
        assert (refused.status_code, refused.json()["code"]) == (403, "needs_approval")
        assert call("POST", "/v1/price", json=dear).json()["needs_approval"]
        made = call("POST", "/v1/requests/question", json={**dear, "why": "the yearly report"}).json()
        assert (made["kind"], made["state"], made["analyst"]) == ("question", "waiting", "ana")
        assert call("GET", "/v1/requests", "bob").json() == []
        assert [one["number"] for one in call("GET", "/v1/requests?waiting=true", "owner").json()] == [made["number"]]
        decided = call("POST", f"/v1/requests/{made['number']}/decision", "owner", json={"approve": True, "why": "ok"})
        assert (decided.json()["state"], decided.json()["answer_why"]) == ("approved", "ok")
        assert call("GET", "/v1/requests?waiting=true", "owner").json() == []
        assert call("POST", "/v1/ask", json=dear).json()["cost"]["charged"]
        more = call("POST", "/v1/requests/budget", "bob", json={"epsilon": "0.5", "why": "more"}).json()
        assert (more["kind"], more["epsilon"]) == ("budget", "0.5")
        assert charges(curator)[-1].body["path"] == ["shop", "ana"]
        service.close()


def test_who_asks_too_often_is_told_when_to_come_back(curator, access, tokens):
    service = Service(curator, ServerLimits(rate=0.5, burst=2))
    call = caller(service, access, tokens)
    assert [call("GET", "/v1/whoami").status_code for _ in range(2)] == [200, 200]
    refused = call("POST", "/v1/ask", json=QUESTION)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "2")
    assert call("GET", "/v1/whoami", "bob").status_code == 200
    assert charges(curator) == []
    service.close()


@pytest.mark.parametrize("number", [".5", "0.5", "5e-1", ".05e1"])
def test_a_text_may_leave_out_the_zero_before_the_point(call, number):
    got = call("POST", "/v1/price", json={"sql": COUNT, "epsilon": number})
    assert got.status_code == 200
    assert got.json()["epsilon"] == pytest.approx(0.5)
