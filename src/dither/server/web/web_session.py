"""Somebody at the web page: their session, what they sent, and how a page is sent back."""

from __future__ import annotations

import hmac
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

from fastapi import Request, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, RedirectResponse

from dither.curator import OWNER, Curator, Request as OwnerRequest
from dither.drawings.meters import meter
from dither.drawings.texts import cell, number
from dither.errors import InvalidParameter
from dither.numeric.rounding import percent
from dither.server.auth.identity import Identity, Scope, WebSession
from dither.server.http.dispatch import access_of, known, service_of
from dither.server.problems import ServerProblem, problem_of
from dither.server.service import Service
from dither.server.web.links import ask_link, needs_more
from dither.server.web.predicted_errors import shown_error

T = TypeVar("T")
# Under the prefix __Host- browsers take the cookie from this very host alone, and only over TLS (RFC 6265bis).
COOKIES = {False: "dither_session", True: "__Host-dither_session"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
MOST_FIELDS = 40
EVERYBODY = "everybody together"
NUMBER = re.compile(r"(?:[0-9]{1,40}|[0-9]{0,40}\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,2})?|[0-9]{1,40}/[1-9][0-9]{0,39}")
NOT_ZERO = re.compile(r"[0.]*[1-9]")
# the page itself writes thousands like this; read as decimals they would be a thousand times as dear
THOUSANDS = re.compile(r"[1-9][0-9]{0,2}(?:,[0-9]{3})+(?:\.[0-9]*)?")
STATIC = {
    "htmx-2.0.11.min.js": "text/javascript",
    "dither.js": "text/javascript",
    "dither.css": "text/css",
    "dither.svg": "image/svg+xml",
}
HERE = Path(__file__).parent
STALE = ServerProblem(
    code="stale_form",
    title="this form is from another session",
    hint="Load the page again; nothing was charged.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One request of somebody who is signed in."""

    request: Request
    service: Service
    session: WebSession
    form: Mapping[str, str]

    @property
    def analyst(self) -> str:
        """Under which name they ask."""
        return self.identity.analyst

    @property
    def identity(self) -> Identity:
        """Who they are, and what they may do."""
        return self.session.identity

    async def do(self, scope: Scope, what: str, work: Callable[[Curator], T]) -> T:
        """Have the curator do something for them, as ``Service.do`` has it."""
        return await self.service.do(self.identity, scope, what, work)

    def amount(self, name: str) -> str:
        """A number above 0 that somebody wrote, with a decimal comma or point; empty where they wrote nothing."""
        written = self.form.get(name, "").strip()
        if THOUSANDS.fullmatch(written):
            raise InvalidParameter("this number can be read in two ways: write 1000 or 0.5, without a comma")
        written = written.replace(",", ".")
        if written and (not NUMBER.fullmatch(written) or not NOT_ZERO.match(written)):
            raise InvalidParameter("the amount must be a number above 0, such as 0.1")
        return written

    @property
    def partly(self) -> bool:
        """Whether htmx asks for a part of a page."""
        return self.request.headers.get("hx-request") == "true"

    def page(self, template: str, *, status: int = 200, **context: Any) -> Response:
        """A page or a part of one."""
        here = "/" + self.request.url.path.split("/")[1]
        shared = {
            "who": self.analyst,
            "is_owner": self.identity.is_owner,
            "csrf": self.session.csrf,
            "dataset": self.service.curator.policy.source.name,
            "here": here,
            "partly": template.startswith("_"),
            "may_ask": self.identity.allows(Scope.ASK),
        }
        return html(template, status=status, **shared, **context)

    def requested(self, request: OwnerRequest) -> Response:
        """What is said to a request to the owner: without a script, the list that it is in now."""
        if self.partly:
            return self.page("_requested.html", request=request)
        return self.to_request(request)

    def to_request(self, request: OwnerRequest) -> Response:
        """Off to a request in the list of all."""
        return RedirectResponse(f"/approvals#request-{request.number}", status_code=303)

    def problem(self, problem: ServerProblem) -> Response:
        """A problem, as a page or as a part of one; htmx shows parts only if they come with a good status."""
        if self.partly:
            return self.page("_problem.html", problem=problem)
        return self.page("problem.html", status=problem.status, problem=problem)


Handler = Callable[[Visit], Awaitable[Response]]


def html(template: str, *, status: int = 200, **context: Any) -> Response:
    """A template, rendered, under the strict policy of the pages."""
    text = environment().get_template(template).render(**context)
    # with no referrer at all, browsers send forms with an origin of "null", which could be anybody's
    headers = {"Content-Security-Policy": POLICY, "Referrer-Policy": "same-origin"}
    return HTMLResponse(text, status_code=status, headers=headers)


def lost(request: Request, problem: ServerProblem, *, cookie: str) -> Response:
    """A page for somebody whose address leads nowhere, signed in or not."""
    service, session = service_of(request), session_of(request, cookie)
    plain = replace(problem, hint="The address may be mistyped, or what was there is gone.")
    if session is not None:
        whole = Visit(request=request, service=service, session=session, form={})
        return whole.page("problem.html", status=problem.status, problem=plain)
    dataset = service.curator.policy.source.name
    return html("problem.html", status=problem.status, problem=plain, dataset=dataset, here="")


def visited(handler: Handler, *, cookie: str) -> Callable[[Request], Awaitable[Response]]:
    """The handler, for those who are signed in; others are sent to sign in, and forms of other sites are refused.

    The service is the app's: FastAPI remembers functions for as long as the process lasts, and must hold no curator.
    """

    async def endpoint(request: Request) -> Response:
        session = session_of(request, cookie)
        if session is None:
            return to_sign_in(request)
        visit = Visit(request=request, service=service_of(request), session=session, form={})
        try:
            if request.method == "POST":
                visit = replace(visit, form=await read_form(request))
                if not own_form(request, visit.form, session):
                    return visit.problem(STALE)
            return await handler(visit)
        except ClientDisconnect:
            raise
        except Exception as error:  # noqa: BLE001 - every problem is told in the same way, and says nothing of data
            return visit.problem(problem_of(error))

    return endpoint


def session_of(request: Request, cookie: str) -> WebSession | None:
    """Who is signed in, by the cookie of this name."""
    sent = request.cookies.get(cookie, "")
    session = access_of(request).session(sent) if sent else None
    if session is not None:
        known(request, session.identity)
    return session


def to_sign_in(request: Request) -> Response:
    """Off to the sign-in page; htmx is told to change the whole page."""
    if request.headers.get("hx-request") == "true":
        return Response(status_code=200, headers={"HX-Redirect": "/sign-in"})
    return RedirectResponse("/sign-in", status_code=303)


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a posted form, each once; anything that isn't one has none."""
    if request.headers.get("content-type", "").split(";")[0].strip() != "application/x-www-form-urlencoded":
        return {}
    body = await request.body()
    try:
        pairs = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict", encoding="utf-8"
        )
    except ValueError:
        return {}
    return {name: value.replace("\r\n", "\n") for name, value in pairs}


def same_site(request: Request) -> bool:
    """Whether a form was sent from this site, as far as the browser says."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = request.headers.get("origin")
    try:
        return origin is None or urlsplit(origin).netloc == request.headers.get("host")
    except ValueError:
        return False


def own_form(request: Request, form: Mapping[str, str], session: WebSession) -> bool:
    """Whether a form comes from a page of this very session."""
    sent = request.headers.get("x-csrf") or form.get("csrf", "")
    return same_site(request) and hmac.compare_digest(sent.encode(), session.csrf.encode())


@cache
def environment() -> Environment:
    """The templates; everything is escaped, and a name that isn't given is an error."""
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {"meter": meter, "OWNER": OWNER, "shown_error": shown_error}
    made.globals |= {"ask_link": ask_link, "needs_more": needs_more}
    made.filters |= {"cell": cell, "number": number, "when": when, "percent": percent, "short_name": short_name}
    return made


def when(at: str) -> str:
    """A time of the ledger as people read it."""
    return at[:16].replace("T", " ") + " UTC"


def short_name(account: str, dataset: str) -> str:
    """An account as its people call it: the analyst's name, or everybody's for the dataset's own."""
    return EVERYBODY if account == dataset else account.removeprefix(f"{dataset}/")


@cache
def static_file(name: str) -> bytes | None:
    """One of our own files for the page."""
    return (HERE / "static" / name).read_bytes() if name in STATIC else None
