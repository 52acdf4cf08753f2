"""The HTTP app: the API and, if wanted, the web page, behind one guard."""

from __future__ import annotations

from functools import partial
from importlib.metadata import version
from typing import Any

# first, since it says what to install where FastAPI is missing
from dither.server import http as _http  # noqa: F401

# isort: split
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException

from dither.server.auth.tokens import TokenFile
from dither.server.http import accounts, approvals, questions
from dither.server.http.formats import Answers
from dither.server.http.guard import HttpGuard, problem_response
from dither.server.problems import INTERNAL, ServerProblem
from dither.server.service import Service
from dither.server.wire.forms import ProblemForm

OPENAPI = "/v1/openapi.json"
# Newer versions of the framework send exceptions with their texts, and addresses with their queries, to whatever
# OpenTelemetry is configured in the process or its environment. Ours tell nobody.
SILENT = dict.fromkeys(("tracing", "metrics", "logs", "operation_spans", "auto_configure"), False)
ABOUT = """Questions about private tables, answered with noise, for a budget.

Numbers in requests are exact: `0.1` and `"0.1"` both mean one tenth. A question that was asked before is answered from
the record and costs nothing, so every request may be repeated. Problems are `application/problem+json` (RFC 9457)."""


def make_app(service: Service, access: TokenFile, *, pages: bool = True, secure_cookies: bool = False) -> FastAPI:
    """The app in front of a service; ``pages`` adds the web page, ``secure_cookies`` says that clients use TLS."""
    settings: dict[str, Any] = {"telemetry": SILENT}
    app = FastAPI(
        title="dither",
        version=version("dither"),
        description=ABOUT,
        openapi_url=OPENAPI,
        # these pages load scripts from elsewhere
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        **settings,
    )
    app.state.service, app.state.access, app.state.answers, app.state.lost = service, access, Answers(), None
    for router in (questions.direct, questions.plain, accounts.router, approvals.plain, approvals.direct):
        app.include_router(router)
    if pages:
        # templates are read where there are pages alone
        from dither.server.web.pages import router as pages_router
        from dither.server.web.web_session import COOKIES, lost

        app.state.lost = partial(lost, cookie=COOKIES[secure_cookies])
        app.include_router(pages_router(secure_cookies=secure_cookies), include_in_schema=False)
    app.add_middleware(HttpGuard, largest_request=service.limits.largest_request, secure=secure_cookies)
    app.add_exception_handler(HTTPException, _http_problem)
    app.add_exception_handler(RequestValidationError, _validation_problem)
    app.openapi = lambda: _document(app)  # type: ignore[method-assign]
    return app


async def _http_problem(request: Request, error: Exception) -> Response:
    """What the router itself refuses: unknown paths and methods; a browser outside of the API gets a page."""
    assert isinstance(error, HTTPException)
    if error.status_code >= 500:
        return problem_response(INTERNAL)
    known = {
        404: ("not_found", "there is nothing here", f"Paths are listed in {OPENAPI}."),
        405: ("method", "this method isn't taken here", "The header Allow says which are."),
    }
    code, title, hint = known.get(error.status_code, ("refused", "this can't be done", ""))
    problem = ServerProblem(status=error.status_code, sqlstate="22023", code=code, title=title, hint=hint)
    state = request.app.state
    if state.lost and "text/html" in request.headers.get("accept", "") and not request.url.path.startswith("/v1"):
        page: Response = state.lost(request, problem)
        return page
    return problem_response(problem, error.headers)


async def _validation_problem(_: Request, error: Exception) -> Response:
    """A parameter that isn't as declared: its name, which is ours, and nothing of what was sent."""
    assert isinstance(error, RequestValidationError)
    place = error.errors()[0]["loc"]
    named = f"the parameter {place[1]}" if len(place) > 1 and place[0] in ("query", "path") else "the request"
    title = f"{named} isn't as expected"
    hint = f"What is expected is in {OPENAPI}."
    return problem_response(ServerProblem(code="invalid", title=title, hint=hint))


def _document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, with the form of problems in place of the framework's own."""
    if not app.openapi_schema:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        schemas = document["components"]["schemas"]
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        form = ProblemForm.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= form.pop("$defs", {})
        schemas[ProblemForm.__name__] = form
        app.openapi_schema = document
    return app.openapi_schema
