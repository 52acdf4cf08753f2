"""The OpenAPI document is complete, and the server keeps to it whatever is sent (schemathesis, in this process)."""

import json

import hypothesis
import pytest
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    ignored_auth,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from dither.server.app import OPENAPI, make_app
from dither.server.limits import ServerLimits
from dither.server.service import Service
from support.sizes import short_or_full

CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    ignored_auth,
    unsupported_method,
)
NEEDS_NO_TOKEN = {("/health", "get")}


@pytest.fixture
def app(curator, access):
    service = Service(curator, ServerLimits(rate=1e6, burst=10**6))
    yield make_app(service, access, pages=False)
    service.close()


def statuses(operation, headers):
    """Send what the document allows, and look at what comes back; which statuses there were."""
    seen = set()

    @hypothesis.settings(
        max_examples=short_or_full(6, 15),
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
    )
    @hypothesis.given(case=operation.as_strategy())
    def sent(case):
        response = case.call(headers=headers)
        seen.add(response.status_code)
        case.validate_response(response, checks=CHECKS)

    sent()
    return seen


def test_whatever_is_sent_is_answered_as_documented(app, tokens):
    schema = schemathesis.openapi.from_asgi(OPENAPI, app)
    headers = {"Authorization": f"Bearer {tokens['owner']}"}
    operations = [found.ok() for found in schema.get_all_operations()]
    tried = {operation.label: statuses(operation, headers) for operation in operations}
    assert len(tried) == 17
    # what is sent at random reaches the operations: wherever no number or question has to be guessed, one succeeded
    guessed = {"POST /v1/ask", "POST /v1/price", "GET /v1/answers/{number}", "POST /v1/requests/question"}
    guessed |= {"POST /v1/requests/budget", "POST /v1/requests/{number}/decision"}
    assert {label for label, seen in tried.items() if 200 in seen} >= set(tried) - guessed


def test_the_document_is_complete(app):
    document = app.openapi()
    json.dumps(document)
    assert len(document["paths"]) == 17
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            place = f"{method} {path}"
            assert operation["summary"], place
            assert operation["description"], place
            assert operation["responses"]["200"]["content"], place
            if (path, method) in NEEDS_NO_TOKEN:
                assert "security" not in operation, place
                continue
            assert operation["security"] == [{"token": []}], place
            for status in ("401", "403", "422", "429", "500", "503", "504"):
                content = operation["responses"][status]["content"]
                assert content == {
                    "application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemForm"}}
                }, place
            assert ("requestBody" in operation) == ("415" in operation["responses"]), place
    assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    assert not {"HTTPValidationError", "ValidationError"} & set(document["components"]["schemas"])


def test_references_resolve(app):
    document = app.openapi()
    found = set()

    def walk(node):
        if isinstance(node, dict):
            if "$ref" in node:
                found.add(node["$ref"])
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(document)
    assert found
    assert {name.removeprefix("#/components/schemas/") for name in found} <= set(document["components"]["schemas"])
