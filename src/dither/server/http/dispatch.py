"""Who sends a request, and how requests reach the functions that answer them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Annotated, Any, cast, get_type_hints

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer

from dither.server.auth.identity import Identity
from dither.server.auth.tokens import TokenFile
from dither.server.http.bodies import Body, read_body
from dither.server.http.formats import Answers
from dither.server.http.guard import PROBLEM
from dither.server.problems import UNKNOWN_TOKEN, ServerRefusal
from dither.server.service import Service
from dither.server.traffic.connection_slots import SIGNED_IN
from dither.server.wire.forms import ProblemForm

LONGEST_TOKEN = 512
BEARER = HTTPBearer(scheme_name="token", description="The token that the owner of the data gave you.", auto_error=False)
MEANINGS = {
    400: "The question is refused for public reasons; nothing was charged.",
    401: "There is no token, or it is unknown or has expired.",
    402: "The question doesn't fit in the budget any more; nothing was charged.",
    403: "The token doesn't allow this, or the owner has to approve it first; nothing was charged.",
    404: "There is nothing of this number that this token may read.",
    406: "The answer isn't given in any of the accepted formats; nothing was charged.",
    409: "That was decided before, or there is no answer to show; nothing was charged.",
    410: "The answer is one of other data or another policy; nothing was charged.",
    413: "The request is too large; nothing was charged.",
    415: "The body isn't JSON; nothing was charged.",
    422: "The request isn't of the right form; nothing was charged.",
    429: "Too many requests; nothing was charged.",
    500: "Something went wrong. With a receipt, the question was charged, and asking it again is free.",
    503: "Too much to do, or the data can't be asked about at the moment. Asking again doesn't charge twice.",
    504: "The answer isn't there yet; the question goes on. Asking again doesn't charge twice.",
}
HEADERS: dict[int, tuple[str, str]] = {
    401: ("WWW-Authenticate", "Which kind of token is expected."),
    429: ("Retry-After", "In how many seconds to come back."),
    503: ("Retry-After", "In how many seconds to come back, where that is known."),
}
ALWAYS = (401, 403, 422, 429, 500, 503, 504)
QUESTION = (400, 402, 413, 415)


def problems(*more: int) -> dict[int | str, dict[str, Any]]:
    """The problems that an operation may end in, as the OpenAPI document lists them."""
    reference = {"$ref": f"#/components/schemas/{ProblemForm.__name__}"}
    listed: dict[int | str, dict[str, Any]] = {}
    for status in sorted({*ALWAYS, *more}):
        listed[status] = {"description": MEANINGS[status], "content": {PROBLEM: {"schema": reference}}}
        if status in HEADERS:
            name, meaning = HEADERS[status]
            listed[status]["headers"] = {name: {"description": meaning, "schema": {"type": "string"}}}
    return listed


def replies(model: Any, *more: int) -> dict[int | str, dict[str, Any]]:
    """What an operation gives: a form, or one of the problems that it may end in."""
    return {200: {"model": model}, **problems(*more)}


def service_of(request: Request) -> Service:
    """The service that this app is in front of."""
    return cast("Service", request.app.state.service)


def access_of(request: Request) -> TokenFile:
    """Who may come in."""
    return cast("TokenFile", request.app.state.access)


def answers_of(request: Request) -> Answers:
    """Writes this app's answers."""
    return cast("Answers", request.app.state.answers)


def identify(request: Request) -> Identity:
    """Whose token a request shows. Cookies count for nothing here, so no other site can ask in somebody's name."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and 0 < len(token) <= LONGEST_TOKEN:
        who = access_of(request).identify(token.strip())
        if who is not None:
            known(request, who)
            return who
    raise ServerRefusal(UNKNOWN_TOKEN)


def known(request: Request, who: Identity) -> None:
    """Tell the connection who is there, so that it isn't taken for a stranger's; refused where there is no place."""
    tell = request.scope.get(SIGNED_IN)
    if tell is not None:
        tell(who.analyst)


async def _identity(request: Request, _: Annotated[object, Depends(BEARER)]) -> Identity:
    return identify(request)


Who = Annotated[Identity, Depends(_identity)]


class Direct(APIRoute):
    """A route with a JSON body whose function is called without FastAPI's machinery between.

    Its function takes the request, who sent it and the body, in this order, then the parts of the path by name. The
    OpenAPI document is made from the signature. The token is looked at before the body is read, and the body is read
    under the limit on sizes.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The function that serves a request."""
        answer = cast("Callable[..., Awaitable[Response]]", self.endpoint)
        model: type[Body] = get_type_hints(self.endpoint)["body"]

        async def handler(request: Request) -> Response:
            who = identify(request)
            return await answer(request, who, await read_body(request, model), **request.path_params)

        return handler
