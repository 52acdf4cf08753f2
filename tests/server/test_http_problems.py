"""What clients are told when something is wrong: the reason and the way out; no data, no paths, nothing they sent."""

import asyncio
import json
import logging
import threading
from types import SimpleNamespace

import httpx
import pytest
from hypothesis import given, settings, strategies as st
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from dither.errors import (
    DitherError,
    Failed,
    LedgerBusy,
    LedgerCorrupt,
    OutOfBudget,
    Refused,
    SourceError,
)
from dither.server.app import make_app
from dither.server.auth.identity import Identity, Scope
from dither.server.limits import ServerLimits
from dither.server.service import Service

SECRET = "/srv/secret/orders.duckdb: row ('Anna', 42) of SELECT name FROM people"
QUESTION = {"sql": "SELECT COUNT(*) AS n FROM orders", "epsilon": 0.1}
LARGEST = 2000
TOKENS = {"ana": Scope.ASK, "owner": Scope.OWNER}


class Tokens:
    """Names are their own tokens."""

    def identify(self, token):
        scope = TOKENS.get(token)
        return None if scope is None else Identity(analyst=token, scope=scope, token="1")


class Broken:
    """A curator of which every method raises the same."""

    def __init__(self, problem):
        self.problem = problem
        self.policy = SimpleNamespace(budget=SimpleNamespace(delta_budget=0))

    def __getattr__(self, name):
        def broken(*arguments, **more):
            raise self.problem

        return broken

    def analyst(self, _name):
        return self

    def remembered(self, *arguments, **more):
        return None


@pytest.fixture
def serve():
    """``serve(curator)`` gives a function that sends requests to an app in front of it."""
    services = []

    def made(curator=None, **settings):
        service = Service(curator or Broken(RuntimeError(SECRET)), ServerLimits(largest_request=LARGEST, patience=0.2))
        services.append(service)
        app = make_app(service, Tokens(), pages=False, **settings)

        def call(method, path, who="ana", *, headers=None, **more):
            said = {"Authorization": f"Bearer {who}"} if who else {}

            async def sent():
                transport = httpx.ASGITransport(app)
                async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
                    return await client.request(method, path, headers={**said, **(headers or {})}, **more)

            return asyncio.run(sent())

        call.service, call.app = service, app
        return call

    yield made
    for service in services:
        service.close()


EVERYTHING = [
    ("POST", "/v1/price", QUESTION),
    ("POST", "/v1/ask", QUESTION),
    ("GET", "/v1/budget", None),
    ("GET", "/v1/history", None),
    ("GET", "/v1/answers", None),
    ("GET", "/v1/answers/abc", None),
    ("GET", "/v1/schema", None),
    ("GET", "/v1/ledger", None),
    ("POST", "/v1/ledger/verify", None),
    ("GET", "/v1/requests", None),
    ("POST", "/v1/requests/question", {**QUESTION, "why": ""}),
    ("POST", "/v1/requests/budget", {"epsilon": 1, "why": ""}),
    ("POST", "/v1/requests/abc/decision", {"approve": True}),
]


@pytest.mark.parametrize("problem", [RuntimeError(SECRET), OSError(2, SECRET), KeyError(SECRET), MemoryError(SECRET)])
def test_an_unexpected_error_says_nothing_anywhere(serve, caplog, problem):
    call = serve(Broken(problem))
    with caplog.at_level(logging.DEBUG):
        for method, path, body in EVERYTHING:
            got = call(method, path, "owner", json=body)
            assert got.status_code == 500, path
            assert got.json()["code"] == "internal"
            assert got.headers["content-type"] == "application/problem+json"
            assert "secret" not in got.text
            assert "Traceback" not in got.text
    assert "secret" not in caplog.text
    assert "Anna" not in caplog.text
    assert f"ended in {type(problem).__name__}" in caplog.text


def test_an_error_in_the_server_itself_says_nothing(serve, caplog, monkeypatch):
    call = serve()

    def boom(gauges):
        raise RuntimeError(SECRET)

    monkeypatch.setattr(call.service.metrics, "text", boom)
    got = call("GET", "/metrics", "owner")
    assert (got.status_code, got.json()["code"]) == (500, "internal")
    assert got.headers["x-content-type-options"] == "nosniff"
    assert "secret" not in got.text + caplog.text
    assert "ended in RuntimeError" in caplog.text


@pytest.mark.parametrize(
    ("problem", "status", "code"),
    [
        (Refused("no", code="rows_shown", hint="Ask for aggregates.", position=(2, 5)), 400, "rows_shown"),
        (Refused("no", code="needs_approval"), 403, "needs_approval"),
        (Refused("no", code="unknown_request"), 404, "unknown_request"),
        (OutOfBudget("it doesn't fit"), 402, "out_of_budget"),
        (Failed("ab12"), 500, "failed"),
        (Failed("ab12", final=True), 500, "failed_for_good"),
        (LedgerBusy(SECRET), 503, "ledger_busy"),
        (LedgerCorrupt(SECRET), 503, "unavailable"),
        (SourceError(SECRET), 503, "unavailable"),
        (DitherError(SECRET), 400, "refused"),
    ],
)
def test_errors_of_the_curator_have_a_form(serve, problem, status, code):
    got = serve(Broken(problem))("POST", "/v1/ask", json=QUESTION)
    form = got.json()
    assert got.status_code == form["status"] == status
    assert form["code"] == code
    assert form["type"] == f"urn:dither:problem:{code}"
    assert set(form) <= {"type", "title", "status", "code", "hint", "position", "receipt"}
    assert form["title"]
    assert "secret" not in got.text
    assert form.get("receipt") == getattr(problem, "receipt", None)
    place = getattr(problem, "position", None)
    assert form.get("position") == (None if place is None else {"line": place[0], "column": place[1]})
    assert ("retry-after" in got.headers) == (code == "ledger_busy")


def test_a_receipt_is_in_what_failed(serve):
    form = serve(Broken(Failed("ab12")))("POST", "/v1/ask", json=QUESTION).json()
    assert form["receipt"] == "ab12"


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ("", 400, "JSON"),
        ("{", 400, "JSON"),
        ('{"sql": "\\ud800"}', 400, "JSON"),
        ("[]", 422, "object"),
        ("null", 422, "object"),
        ('"leaked"', 422, "object"),
        ("{}", 422, "sql"),
        ('{"sql": ""}', 422, "sql"),
        ('{"sql": 5}', 422, "sql"),
        ('{"sql": ["leaked"]}', 422, "sql"),
        ('{"sql": "leaked", "leaked": 1}', 422, "no others"),
        ('{"sql": "leaked", "epsilon": "leaked"}', 422, "epsilon"),
        ('{"sql": "leaked", "epsilon": true}', 422, "epsilon"),
        ('{"sql": "leaked", "epsilon": 0}', 422, "epsilon"),
        ('{"sql": "leaked", "epsilon": -1}', 422, "epsilon"),
        ('{"sql": "leaked", "epsilon": "-1"}', 422, "epsilon"),
        ('{"sql": "leaked", "epsilon": "1/0"}', 422, "epsilon"),
        ('{"sql": "leaked", "epsilon": "1e999"}', 422, "epsilon"),
        ('{"sql": "leaked", "epsilon": 1e999}', 422, "epsilon"),
        ('{"sql": "leaked", "epsilon": "nan"}', 422, "epsilon"),
        ('{"sql": "leaked", "epsilon": [1]}', 422, "epsilon"),
        ('{"sql": "leaked", "error": {"leaked": "x"}}', 422, "error"),
        ('{"sql": "leaked", "error": {"leaked": {}}}', 422, "error"),
        ('{"sql": "leaked", "weights": [1]}', 422, "weights"),
        ('{"sql": "leaked", "weights": {"leaked": -1}}', 422, "weights"),
        ('{"sql": "leaked", "confidence": null}', 422, "confidence"),
    ],
)
def test_a_wrong_body_is_refused_and_not_repeated(serve, body, status, said):
    got = serve()("POST", "/v1/ask", content=body, headers={"Content-Type": "application/json"})
    assert got.status_code == status
    assert said in got.json()["title"]
    assert got.json()["hint"]
    assert "leaked" not in got.text


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.floats()
    | st.integers()
    | st.text(max_size=8)
    | st.sampled_from(["0.1", "1/3", "1e9"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(["sql", "epsilon", "error", "weights", "confidence", "why", "approve", "other"])
BODIES = st.binary(max_size=60) | st.dictionaries(FIELDS, VALUES, max_size=5).map(
    lambda body: json.dumps(body).encode()
)


def test_no_body_brings_the_server_down(serve):
    call = serve(Broken(Refused("no", code="rows_shown")))
    paths = ("/v1/ask", "/v1/price", "/v1/requests/question", "/v1/requests/budget", "/v1/requests/x/decision")

    @settings(max_examples=150, deadline=None)
    @given(path=st.sampled_from(paths), body=BODIES)
    def sent(path, body):
        got = call("POST", path, "owner", content=body, headers={"Content-Type": "application/json"})
        assert got.status_code in (400, 422), (path, body)
        assert got.headers["content-type"] == "application/problem+json"
        assert got.json()["code"] in ("not_json", "invalid", "rows_shown")

    sent()


def test_nan_is_no_number(serve):
    for text in ("NaN", "Infinity", "-Infinity"):
        body = '{"sql": "SELECT 1", "epsilon": ' + text + "}"
        got = serve()("POST", "/v1/ask", content=body, headers={"Content-Type": "application/json"})
        assert got.status_code in (400, 422), text


@pytest.mark.parametrize(
    "path",
    [
        "/v1/answers?count=leaked",
        "/v1/answers?count=0",
        "/v1/answers?count=201",
        "/v1/answers?before=",
        "/v1/answers/le.aked",
        "/v1/requests?waiting=leaked",
        "/v1/ledger?before=leaked",
        "/v1/ledger?count=-1",
    ],
)
def test_wrong_parameters_are_refused_and_not_repeated(serve, path):
    got = serve()("GET", path, "owner")
    assert (got.status_code, got.json()["code"]) == (422, "invalid")
    assert got.headers["content-type"] == "application/problem+json"
    assert "leaked" not in got.text


def test_unknown_paths_methods_and_formats(serve):
    call = serve()
    for path in ("/leaked", "/v1", "/v1/", "/v1/ask/", "/docs", "/redoc", "/v1/answers/"):
        got = call("GET", path)
        assert (got.status_code, got.json()["code"]) == (404, "not_found"), path
        assert "leaked" not in got.text
    got = call("GET", "/v1/ask")
    assert (got.status_code, got.json()["code"], got.headers["allow"]) == (405, "method", "POST")
    got = call("POST", "/v1/ask", content="sql=1", headers={"Content-Type": "application/x-www-form-urlencoded"})
    assert (got.status_code, got.json()["code"]) == (415, "not_json")
    assert call("POST", "/v1/ask", content="{}").status_code == 415
    got = call("POST", "/v1/ask", json=QUESTION, headers={"Accept": "image/png"})
    assert (got.status_code, got.json()["code"]) == (406, "not_acceptable")


def test_a_format_that_cannot_be_had_is_refused_before_the_curator_is_asked(serve):
    asked = []
    curator = Broken(RuntimeError())
    curator.remembered = lambda *arguments, **more: asked.append(arguments)
    call = serve(curator)
    call("POST", "/v1/ask", json=QUESTION, headers={"Accept": "image/png"})
    assert asked == []
    call("POST", "/v1/ask", json=QUESTION)
    assert len(asked) == 1


def test_large_requests_are_refused_whether_or_not_they_say_so(serve):
    call = serve()
    kind = {"Content-Type": "application/json"}

    def pieces(size):
        async def send():
            for _ in range(size // 100):
                yield b" " * 100

        return send()

    said = call("POST", "/v1/ask", content=b" " * (LARGEST + 1), headers=kind)
    unsaid = call("POST", "/v1/ask", content=pieces(LARGEST + 100), headers=kind)
    for got in (said, unsaid):
        assert (got.status_code, got.json()["code"]) == (413, "too_large")
        assert str(LARGEST) in got.json()["title"]
    # just small enough: it is read, and isn't JSON
    assert call("POST", "/v1/ask", content=b" " * LARGEST, headers=kind).status_code == 400
    assert call("POST", "/v1/ask", content=pieces(LARGEST), headers=kind).status_code == 400
    # without a token nothing is read at all
    assert call("POST", "/v1/ask", None, content=pieces(LARGEST + 100), headers=kind).status_code == 401


def test_an_answer_that_takes_long_is_awaited_elsewhere(serve):
    held = threading.Event()
    curator = Broken(RuntimeError())
    curator.sql = lambda *arguments, **more: held.wait(20)
    got = serve(curator)("POST", "/v1/ask", json=QUESTION)
    held.set()
    assert (got.status_code, got.json()["code"]) == (504, "took_too_long")


def test_every_response_has_the_headers_that_protect(serve):
    call = serve()
    for method, path in (("GET", "/health"), ("GET", "/nope"), ("GET", "/v1/whoami"), ("POST", "/v1/ask")):
        headers = call(method, path, None).headers
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert headers["x-frame-options"] == "DENY"
        assert not {"server", "x-powered-by", "strict-transport-security", "access-control-allow-origin"} & set(headers)
    assert "max-age=" in serve(secure_cookies=True)("GET", "/health", None).headers["strict-transport-security"]


def test_other_sites_get_nothing(serve):
    got = serve()("OPTIONS", "/v1/ask", headers={"Origin": "https://evil", "Access-Control-Request-Method": "POST"})
    assert got.status_code == 405
    assert not [name for name in got.headers if name.startswith("access-control")]


def test_pages_may_state_a_policy_of_their_own(serve):
    call = serve()
    own = {"Content-Security-Policy": "default-src 'self'", "Cache-Control": "max-age=60"}
    call.app.router.routes.append(Route("/page", lambda request: PlainTextResponse("hello", headers=own)))
    headers = call("GET", "/page").headers
    assert headers.get_list("content-security-policy") == ["default-src 'self'"]
    assert headers.get_list("cache-control") == ["max-age=60"]
    assert headers["x-content-type-options"] == "nosniff"


def test_the_framework_reports_to_nobody(serve):
    """Its telemetry would send exceptions with their texts to whatever is configured in the environment."""
    settings = getattr(serve().app, "_telemetry", {})
    assert not any(settings.get(name) for name in ("tracing", "metrics", "logs", "operation_spans", "auto_configure"))


@pytest.mark.parametrize(
    ("field", "meant"), [("epsilom", "epsilon"), ("Epsilon", "epsilon"), ("errors", "error"), ("weight", "weights")]
)
def test_a_misspelt_field_is_told_by_the_one_that_it_resembles(serve, field, meant):
    body = {"sql": "SELECT COUNT(*) AS n FROM orders", field: 1}
    got = serve()("POST", "/v1/price", json=body)
    assert got.status_code == 422
    assert got.json()["title"] == f"there is a field that isn't known: did you mean {meant}?"
