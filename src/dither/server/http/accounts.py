"""Budgets, public facts, the ledger and the server's own state over HTTP."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from dither.curator import Curator
from dither.curator.epsilon_to_currency import Exchange
from dither.privacy import Json
from dither.server.auth.identity import Scope
from dither.server.http.dispatch import Who, problems, replies, service_of
from dither.server.http.formats import json_response
from dither.server.wire.facts import budget_form, guarantee_form, schema_form, verified_form
from dither.server.wire.forms import (
    BudgetLineForm,
    GuaranteeForm,
    HealthForm,
    RecordForm,
    SchemaForm,
    SpendingForm,
    VerifiedForm,
    WhoForm,
)

MOST_RECORDS = 500
router = APIRouter()


@router.get(
    "/v1/budget", tags=["budget"], summary="What was spent and what is left", responses=replies(list[BudgetLineForm])
)
async def budget(request: Request, who: Who) -> Response:
    """Every account for the owner; for an analyst their own."""
    return json_response(budget_form(await service_of(request).budget(who)))


@router.get("/v1/history", tags=["budget"], summary="How the budget was spent", responses=replies(list[SpendingForm]))
async def history(request: Request, who: Who) -> Response:
    """What accounts had spent, in the order of time: all for the owner, for an analyst their own."""
    found = await service_of(request).do(who, Scope.PRICE, "history", lambda curator: curator.history(who.analyst))
    return json_response([SpendingForm.of(point) for point in found])


@router.get(
    "/v1/guarantee",
    tags=["budget"],
    summary="What the answers so far can tell about one person",
    responses=replies(GuaranteeForm),
)
async def guarantee(request: Request, who: Who) -> Response:
    """The promise that all answers so far keep together: of those that the analyst paid for; of all, for the owner."""
    found = await service_of(request).do(who, Scope.PRICE, "guarantee", lambda curator: curator.guarantee(who.analyst))
    return json_response(guarantee_form(found))


@router.get("/v1/schema", tags=["facts"], summary="The public facts", responses=replies(SchemaForm))
async def schema(request: Request, who: Who) -> Response:
    """Tables, columns, who is protected, bounds and keys, as the owner states them; profiles that were paid for."""
    found = await service_of(request).do(who, Scope.PRICE, "schema", _facts)
    return json_response(found)


def _facts(curator: Curator) -> Json:
    return schema_form(curator.policy, curator.profiles())


@router.get("/v1/whoami", tags=["facts"], summary="Whose token this is", responses=replies(WhoForm))
async def whoami(request: Request, who: Who) -> Response:
    """The analyst under whose name questions are asked, and what the token allows."""
    service_of(request).admit(who, Scope.PRICE)
    return json_response({"analyst": who.analyst, "scope": who.scope.value})


@router.get("/v1/ledger", tags=["owner"], summary="The ledger", responses=replies(list[RecordForm]))
async def ledger(
    request: Request,
    who: Who,
    before: Annotated[
        int | None, Query(ge=1, le=2**53, description="Only entries with smaller numbers than this.")
    ] = None,
    count: Annotated[int, Query(ge=1, le=MOST_RECORDS, description="How many to list.")] = 50,
) -> Response:
    """Who asked what, when, and what it cost; newest first. For the owner."""
    found = await service_of(request).do(
        who, Scope.OWNER, "ledger", lambda curator: curator.records(count=count, before=before)
    )
    return json_response([RecordForm.of(record) for record in found])


@router.post("/v1/ledger/verify", tags=["owner"], summary="Check the whole ledger", responses=replies(VerifiedForm))
async def verify(request: Request, who: Who) -> Response:
    """Replay every entry and check balances, losses and answers. For the owner."""
    service = service_of(request)
    found = await service.do(who, Scope.OWNER, "verify", lambda curator: curator.verify())
    return json_response(verified_form(found, Exchange(service.curator.policy.budget.delta_budget).currency))


@router.get("/health", tags=["server"], summary="Whether the server is up", responses={200: {"model": HealthForm}})
async def health() -> Response:
    """Say ok, and nothing else; needs no token."""
    return json_response({"status": "ok"})


@router.get(
    "/metrics",
    tags=["server"],
    summary="Counts and times of requests",
    responses={
        200: {"description": "Prometheus's text format.", "content": {"text/plain": {"schema": {"type": "string"}}}},
        **problems(),
    },
    response_class=Response,
)
async def metrics(request: Request, who: Who) -> Response:
    """How many requests there were, how they ended and how long they took. For the owner."""
    service = service_of(request)
    service.admit(who, Scope.OWNER)
    text = service.metrics.text(service.gauges)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")
