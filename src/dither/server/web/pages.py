"""The routes of the web page."""

from __future__ import annotations

import hashlib

from fastapi import APIRouter, Request, Response
from starlette.responses import HTMLResponse, RedirectResponse

from dither.server.http.dispatch import access_of, known, service_of
from dither.server.web import answers, ask_page, budgets, facts, owner_pages
from dither.server.web.web_session import (
    COOKIES,
    STATIC,
    html,
    own_form,
    read_form,
    same_site,
    session_of,
    static_file,
    to_sign_in,
    visited,
)

# Tokens are 32 random bytes: they can't be guessed, so trying is not limited.
LONGEST_TOKEN = 500


def router(*, secure_cookies: bool = False) -> APIRouter:
    """Every page, for the service of the app that includes it."""
    routes = APIRouter(include_in_schema=False)
    cookie = COOKIES[secure_cookies]

    for method, path, handler in (
        ("GET", "/ask", ask_page.ask),
        ("POST", "/ask/price", ask_page.price),
        ("POST", "/ask/run", ask_page.run),
        ("POST", "/ask/request", ask_page.request_approval),
        ("GET", "/answers", answers.listed),
        ("GET", "/answers/{number}", answers.shown),
        ("GET", "/answers/{number}/chart", answers.chart),
        ("GET", "/answers/{number}/download", answers.download),
        ("GET", "/budget", budgets.budget),
        ("POST", "/budget/request", budgets.request_budget),
        ("GET", "/data", facts.data),
        ("GET", "/ledger", owner_pages.ledger),
        ("POST", "/ledger/verify", owner_pages.verify),
        ("GET", "/approvals", owner_pages.approvals),
        ("POST", "/approvals/{number}", owner_pages.decide),
    ):
        page = visited(handler, cookie=cookie)
        routes.add_api_route(path, page, methods=[method], response_model=None, response_class=HTMLResponse)

    async def start(request: Request) -> Response:
        known = session_of(request, cookie)
        return to_sign_in(request) if known is None else RedirectResponse("/ask", status_code=303)

    async def sign_in_page(request: Request) -> Response:
        # a cookie without a session: of somebody who was signed in, and isn't any more
        ended = bool(request.cookies.get(cookie)) and session_of(request, cookie) is None
        return html("sign_in.html", problem=None, ended=ended, dataset=_dataset(request))

    async def sign_in(request: Request) -> Response:
        dataset, access = _dataset(request), access_of(request)
        token = (await read_form(request)).get("token", "").strip()
        made = access.sign_in(token) if 0 < len(token) <= LONGEST_TOKEN and same_site(request) else None
        if made is None:
            problem = "This token is unknown or has expired."
            return html("sign_in.html", status=401, problem=problem, ended=False, dataset=dataset)
        known(request, made[1].identity)
        # ends the session that this browser had before
        access.sign_out(request.cookies.get(cookie, ""))
        response = RedirectResponse("/ask", status_code=303)
        response.set_cookie(cookie, made[0], httponly=True, secure=secure_cookies, samesite="strict", path="/")
        return response

    async def sign_out(request: Request) -> Response:
        session, form = session_of(request, cookie), await read_form(request)
        response = RedirectResponse("/sign-in", status_code=303)
        if session is not None:
            if not own_form(request, form, session):
                # another site must not sign anybody out
                return RedirectResponse("/ask", status_code=303)
            access_of(request).sign_out(request.cookies.get(cookie, ""))
            response.delete_cookie(cookie, path="/", httponly=True, secure=secure_cookies, samesite="strict")
        return response

    async def static(request: Request, name: str) -> Response:
        content = static_file(name)
        if content is None:
            return Response(status_code=404)
        tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        headers = {"ETag": tag, "Cache-Control": "public, max-age=3600"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=STATIC[name], headers=headers)

    async def again(request: Request) -> Response:
        # the address of a form, typed or kept: back to the page that has it
        return RedirectResponse("/" + request.url.path.split("/")[1], status_code=303)

    for method, path, endpoint in (
        ("GET", "/ask/price", again),
        ("GET", "/ask/run", again),
        ("GET", "/ask/request", again),
        ("GET", "/budget/request", again),
        ("GET", "/ledger/verify", again),
        ("GET", "/approvals/{number}", again),
        ("GET", "/", start),
        ("GET", "/sign-in", sign_in_page),
        ("POST", "/sign-in", sign_in),
        ("POST", "/sign-out", sign_out),
        ("GET", "/static/{name}", static),
    ):
        routes.add_api_route(path, endpoint, methods=[method], response_model=None)
    return routes


def _dataset(request: Request) -> str:
    return service_of(request).curator.policy.source.name
