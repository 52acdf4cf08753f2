"""What needs the owner's word, over HTTP: questions above a price and wishes for more budget."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from dither.server.auth.identity import Scope
from dither.server.http.bodies import BudgetRequest, Decision, QuestionRequest
from dither.server.http.dispatch import QUESTION, Direct, Who, replies, service_of
from dither.server.http.formats import json_response
from dither.server.wire.forms import RequestForm

BODY = (400, 413, 415)
direct = APIRouter(prefix="/v1/requests", tags=["requests"], route_class=Direct)
plain = APIRouter(prefix="/v1/requests", tags=["requests"])


@plain.get("", summary="Requests to the owner", responses=replies(list[RequestForm]))
async def requests(
    request: Request,
    who: Who,
    *,
    waiting: Annotated[bool, Query(description="Only those that aren't decided.")] = False,
) -> Response:
    """All requests for the owner, for an analyst their own; newest first."""
    found = await service_of(request).do(
        who, Scope.ASK, "requests", lambda curator: curator.requests(who.analyst, waiting_only=waiting)
    )
    return json_response([RequestForm.of(one) for one in found])


@direct.post("/question", summary="Ask the owner to approve a question", responses=replies(RequestForm, *QUESTION))
async def request_question(request: Request, who: Who, body: QuestionRequest) -> Response:
    """Put a question that costs more than the policy allows without approval before the owner. Charges nothing."""
    made = await service_of(request).request_question(who, body.wanted(), why=body.why)
    return json_response(RequestForm.of(made))


@direct.post("/budget", summary="Ask the owner for more budget", responses=replies(RequestForm, *BODY))
async def request_budget(request: Request, who: Who, body: BudgetRequest) -> Response:
    """Put a wish for more budget before the owner."""
    made = await service_of(request).request_budget(who, body.epsilon, why=body.why)
    return json_response(RequestForm.of(made))


@direct.post("/{number}/decision", summary="Decide a request", responses=replies(RequestForm, *BODY, 404, 409))
async def decide(
    request: Request,
    who: Who,
    body: Decision,
    number: Annotated[str, Path(description="The number of the request.")],
) -> Response:
    """Approve or refuse a request. For the owner.

    An approved question may be asked; an approved budget raises the analyst's cap for good.
    """
    made = await service_of(request).do(
        who, Scope.OWNER, "decide", lambda curator: curator.decide(number, approve=body.approve, why=body.why)
    )
    return json_response(RequestForm.of(made))
