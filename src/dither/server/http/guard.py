"""What surrounds every request: headers that protect the client, a limit on sizes, and errors that say nothing.

Plain ASGI: it costs microseconds, and no response is buffered.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import orjson
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dither.server.problems import ServerProblem, ServerRefusal, problem_of

LOG = logging.getLogger("dither.server")
PROBLEM = "application/problem+json"
# What a response gets unless it brings its own: the pages state a policy of theirs, static files may be kept.
DEFAULTS = {
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    b"cache-control": b"no-store",
    b"referrer-policy": b"no-referrer",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"cross-origin-resource-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"permissions-policy": b"camera=(), geolocation=(), microphone=()",
}
STRICT_TRANSPORT = (b"strict-transport-security", b"max-age=31536000")
CHALLENGE = 'Bearer realm="dither"'


def too_large(most: int) -> ServerRefusal:
    """A request has more bytes than the server takes."""
    title = f"the request is too large: at most {most} bytes are taken"
    return ServerRefusal(ServerProblem(code="too_large", title=title, hint="Nothing was charged."))


def problem_response(problem: ServerProblem, headers: Mapping[str, str] | None = None) -> Response:
    """A problem as application/problem+json (RFC 9457)."""
    form: dict[str, object] = {
        "type": f"urn:dither:problem:{problem.code}",
        "title": problem.title,
        "status": problem.status,
        "code": problem.code,
        "hint": problem.hint,
    }
    if problem.position is not None:
        form["position"] = {"line": problem.position[0], "column": problem.position[1]}
    if problem.receipt is not None:
        form["receipt"] = problem.receipt
    said = {**(headers or {}), "Content-Type": PROBLEM}
    if problem.retry_after is not None:
        said["Retry-After"] = str(problem.retry_after)
    if problem.status == 401:
        said["WWW-Authenticate"] = CHALLENGE
    return Response(orjson.dumps(form), status_code=problem.status, headers=said)


class HttpGuard:
    """The outermost part of the app that is ours."""

    def __init__(self, app: ASGIApp, *, largest_request: int, secure: bool) -> None:
        self._app, self._largest = app, largest_request
        self._always = [STRICT_TRANSPORT] if secure else []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def guarded(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = message.setdefault("headers", [])
                there = {name for name, _ in headers}
                headers.extend(pair for pair in DEFAULTS.items() if pair[0] not in there)
                headers.extend(self._always)
            await send(message)

        try:
            await self._app(scope, self._limited(scope, receive), guarded)
        except ClientDisconnect:
            # the client is gone, so there is no reply; its question goes on
            return
        except Exception as error:  # noqa: BLE001  whatever it is, its text stays here
            problem, kind = problem_of(error), type(error).__name__
        else:
            return
        # behind the except block: logging prints what it was called in when a log can't be written
        if problem.code == "internal":
            # its text may quote data or name files: the kind alone is logged
            LOG.error("a request ended in %s", kind)
        if not started:
            await problem_response(problem)(scope, receive, guarded)

    def _limited(self, scope: Scope, receive: Receive) -> Receive:
        """Refuses a body that is too large: at once if it says so, else as soon as it is."""
        taken = 0
        declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        too_long = declared.isdigit() and int(declared[:20]) > self._largest

        async def limited() -> Message:
            nonlocal taken
            if too_long:
                raise too_large(self._largest)
            message = await receive()
            if message["type"] == "http.request":
                taken += len(message.get("body", b""))
                if taken > self._largest:
                    raise too_large(self._largest)
            return message

        return limited
