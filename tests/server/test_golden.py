"""What clients read of the server, frozen: the OpenAPI document and a response of each kind, to the byte.

What differs from run to run (noise, random numbers, times, names under a secret) is replaced by what it is, so that the
rest, the order of fields too, is compared as it is sent. To write the files anew after a change that is meant:
``DITHER_WRITE_GOLDEN=1 pytest tests/server/test_golden.py``.
"""

import asyncio
import datetime as dt
import json
import math
import os
from pathlib import Path

import httpx
import numpy as np
import orjson
import pyarrow as pa
import pytest

from dither.curator import Answer, Bars, Cost, PublicReceipt
from dither.ledger import Amount, Currency
from dither.privacy import PureLoss
from dither.server.app import make_app
from dither.server.http.formats import Answers, MediaType

GOLDEN = Path(__file__).parent / "golden"
COUNT = "SELECT COUNT(*) AS n FROM orders"
CITIES = "SELECT city, COUNT(*) AS n, AVG(amount) AS mean FROM orders GROUP BY city ORDER BY city"
ARTICLES = "SELECT product, day, COUNT(*) AS n FROM orders GROUP BY product, day"
# random, or under a secret, or of the moment: what stands there instead
VARYING = {"number", "at", "key", "head", "receipt", "next"}
# (name, method, path, who, what is sent); in this order, on one shop
REQUESTS = [
    ("health", "GET", "/health", None, None),
    ("whoami", "GET", "/v1/whoami", "ana", None),
    ("schema", "GET", "/v1/schema", "ana", None),
    ("guarantee_of_nothing", "GET", "/v1/guarantee", "bob", None),
    ("quote", "POST", "/v1/price", "ana", {"sql": CITIES, "epsilon": 0.25}),
    ("quote_of_discovered_keys", "POST", "/v1/price", "ana", {"sql": ARTICLES, "epsilon": 0.5}),
    ("quote_by_error", "POST", "/v1/price", "ana", {"sql": COUNT, "error": {"n": 20}, "confidence": "0.9"}),
    ("quote_explained", "POST", "/v1/price", "ana", {"sql": f"EXPLAIN PRIVACY {COUNT}"}),
    ("answer", "POST", "/v1/ask", "ana", {"sql": CITIES, "epsilon": 0.25}),
    ("answer_again", "POST", "/v1/ask", "ana", {"sql": CITIES, "epsilon": "0.25"}),
    ("answer_explained", "POST", "/v1/ask", "ana", {"sql": f"EXPLAIN PRIVACY {COUNT}"}),
    ("quote_free", "POST", "/v1/price", "ana", {"sql": CITIES, "epsilon": 0.25}),
    ("answer_of_bob", "POST", "/v1/ask", "bob", {"sql": COUNT, "epsilon": "1/8"}),
    ("budget_of_ana", "GET", "/v1/budget", "ana", None),
    ("budget_of_owner", "GET", "/v1/budget", "owner", None),
    ("history", "GET", "/v1/history", "owner", None),
    ("guarantee", "GET", "/v1/guarantee", "ana", None),
    ("answers", "GET", "/v1/answers", "ana", None),
    ("answers_first", "GET", "/v1/answers?count=1", "owner", None),
    ("request_question", "POST", "/v1/requests/question", "ana", {"sql": COUNT, "epsilon": 0.75, "why": "because"}),
    ("request_budget", "POST", "/v1/requests/budget", "ana", {"epsilon": 1, "why": "more"}),
    ("requests", "GET", "/v1/requests", "owner", None),
    ("decision", "POST", "/v1/requests/{request}/decision", "owner", {"approve": True, "why": "well"}),
    ("requests_decided", "GET", "/v1/requests", "ana", None),
    ("ledger", "GET", "/v1/ledger", "owner", None),
    ("verified", "POST", "/v1/ledger/verify", "owner", None),
    ("error_no_token", "GET", "/v1/budget", None, None),
    ("error_forbidden", "GET", "/v1/ledger", "ana", None),
    ("error_not_found", "GET", "/v1/answers/ab12", "ana", None),
    ("error_nothing_here", "GET", "/v1/nothing", "ana", None),
    ("error_method", "DELETE", "/v1/ask", "ana", None),
    ("error_refused", "POST", "/v1/price", "ana", {"sql": "SELECT\n  secret FROM orders"}),
    ("error_field", "POST", "/v1/price", "ana", {"sql": COUNT, "epsilom": 1}),
    ("error_missing", "POST", "/v1/price", "ana", {}),
    ("error_parameter", "GET", "/v1/answers?count=0", "ana", None),
    ("error_out_of_budget", "POST", "/v1/ask", "bob", {"sql": COUNT, "epsilon": 1}),
    ("error_needs_less", "POST", "/v1/ask", "ana", {"sql": COUNT, "epsilon": 7}),
]


def expect_golden(name, form):
    """Compare with the file of that name, or write it."""
    path, found = GOLDEN / f"{name}.json", json.dumps(form, indent=1, ensure_ascii=False) + "\n"
    if os.environ.get("DITHER_WRITE_GOLDEN"):
        path.write_text(found, encoding="utf-8")
    assert found == path.read_text(encoding="utf-8")


def steady(form, name=""):
    """The same without what differs from run to run."""
    if isinstance(form, dict):
        return {key: steady(value, key) for key, value in form.items()}
    if name == "rows":
        return [[f"<{type(cell).__name__}>" for cell in row] for row in form]
    if isinstance(form, list):
        return [steady(one, name) for one in form]
    if form and name in VARYING and isinstance(form, str):
        return f"<{name}>"
    if name in ("low", "high") and isinstance(form, float | int):
        return f"<{name}>"
    return form


def test_a_response_of_each_kind(service, access, tokens):
    app = make_app(service, access, pages=False)
    known, found = {}, {}

    async def sent(method, path, who, body):
        headers = {"Authorization": f"Bearer {tokens[who]}"} if who else {}
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            return await client.request(method, path.format(**known), headers=headers, json=body)

    for name, method, path, who, body in REQUESTS:
        response = asyncio.run(sent(method, path, who, body))
        form = json.loads(response.text)
        # so that the forms say all that was sent
        assert response.content == orjson.dumps(form)
        if name == "request_budget":
            known["request"] = form["number"]
        headers = {
            header: value
            for header, value in response.headers.items()
            if header.startswith(("dither-", "content-type", "vary", "www-", "allow", "retry"))
        }
        headers |= {"dither-receipt": "<receipt>"} if "dither-receipt" in headers else {}
        found[name] = {"status": response.status_code, "headers": headers, "body": steady(form)}
    expect_golden("responses", found)


def test_an_answer_of_every_type_in_every_format():
    table = pa.table(
        {
            "t": ["a,b", None, "ü\n"],
            "n": pa.array([2**53 + 1, None, -(2**63)]),
            "x": [0.1, math.nan, 1e300],
            "day": pa.array([dt.date(2025, 2, 3), None, dt.date(1, 1, 1)]),
            "at": pa.array([dt.datetime(2025, 2, 3, 4, 5, 6, 7), None, dt.datetime(1970, 1, 1)], pa.timestamp("us")),  # noqa: DTZ001
            "yes": [True, None, False],
        }
    )
    answer = Answer(
        table=table,
        bars={
            "n": Bars(low=np.array([0.5, -math.inf, math.nan]), high=np.array([1.5, math.inf, 3.0]), text=""),
            "x": Bars(low=None, high=None, text="some ranks"),
        },
        confidence=0.95,
        receipt=PublicReceipt(
            number="ab12",
            at="2026-01-01T00:00:00Z",
            account="shop/ana",
            amount=Amount(333333333334, 7),
            amount_in_words=Amount(333333333334, 7).in_words(Currency.ZCDP),
            loss=PureLoss("1/3"),
        ),
        cost=Cost(epsilon=0.1, delta=1e-8, charged=True, left="much"),
        notes=("bounds were found",),
        older_than_data=True,
    )
    found = {}
    for wanted in MediaType:
        response = asyncio.run(Answers().response(answer, wanted))
        body = bytes(response.body)
        if wanted is MediaType.ARROW:
            with pa.ipc.open_stream(pa.BufferReader(body)) as stream:
                schema = stream.schema
            body = b"\n".join([str(schema.remove_metadata()).encode(), schema.metadata[b"dither"]])
        found[wanted.value] = {"headers": dict(response.headers) | {"content-length": ""}, "body": body.decode()}
    # the same number, as older versions of orjson spell it
    of_json = found[MediaType.JSON.value]
    of_json["body"] = of_json["body"].replace(",1e300,", ",1e+300,")
    expect_golden("formats", found)


@pytest.mark.skipif(bool(os.environ.get("DITHER_LOWEST")), reason="the framework words its part in its own way")
def test_the_openapi_document(service, access):
    expect_golden("openapi", make_app(service, access, pages=False).openapi())
