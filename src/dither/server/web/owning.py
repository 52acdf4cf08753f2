"""What the owner does: read and verify the ledger, and decide about requests."""

from __future__ import annotations

from typing import Any

from fastapi import Response
from starlette.responses import RedirectResponse

from dither.curator import OWNER, Curator, Outlook, Request, RequestKind, RequestState
from dither.errors import InvalidParameter, LedgerError
from dither.server.identity import Scope
from dither.server.web.visits import Visit

PAGE = 50


async def ledger(visit: Visit) -> Response:
    """Every entry, newest first."""
    return await _ledger(visit)


async def verify(visit: Visit) -> Response:
    """Replay the whole ledger."""
    found, problem = None, None
    try:
        found = await visit.service.do(visit.session.identity, Scope.OWNER, "verify", lambda curator: curator.verify())
    except LedgerError as error:
        # the owner may know what is wrong with their own ledger
        problem = str(error)
    if visit.partly:
        return visit.page("_verified.html", found=found, problem=problem)
    return await _ledger(visit, verified=True, found=found, problem=problem)


async def _ledger(visit: Visit, *, verified: bool = False, **outcome: Any) -> Response:
    given = visit.request.query_params.get("before", "")
    if given and not (given.isascii() and given.isdigit() and len(given) < 19):
        raise InvalidParameter("before is the number of an entry")
    before = int(given) if given else None
    records, grants = await visit.service.do(
        visit.session.identity,
        Scope.OWNER,
        "ledger",
        lambda curator: (
            curator.records(count=PAGE, before=before),
            [
                request
                for request in curator.requests(OWNER)
                if request.kind is RequestKind.BUDGET and request.state is RequestState.APPROVED
            ],
        ),
    )
    older = records[-1].number if len(records) == PAGE and records[-1].number > 1 else None
    template = "_records.html" if visit.partly else "ledger.html"
    return visit.page(template, records=records, older=older, grants=grants, verified=verified, **outcome)


async def approvals(visit: Visit) -> Response:
    """Requests: all for the owner, who decides; their own for analysts."""
    who, decides = visit.analyst, visit.session.identity.is_owner

    def look(curator: Curator) -> tuple[tuple[Request, ...], dict[str, Outlook]]:
        found = curator.requests(who)
        waiting = [request for request in found if request.state is RequestState.WAITING] if decides else []
        return found, {request.number: curator.outlook(request) for request in waiting}

    requests, outlooks = await visit.service.do(visit.session.identity, Scope.ASK, "requests", look)
    waits = sum(request.state is RequestState.WAITING for request in requests)
    if decides:
        # what waits comes first, each part newest first
        requests = tuple(sorted(requests, key=lambda request: request.state is not RequestState.WAITING))
    return visit.page("approvals.html", requests=requests, outlooks=outlooks, waits=waits)


async def decide(visit: Visit) -> Response:
    """Approve or refuse a request."""
    number, decision, why = visit.request.path_params["number"], visit.form.get("decision"), visit.form.get("why", "")
    if decision not in ("approve", "refuse"):
        raise InvalidParameter("a decision is to approve or to refuse")
    request = await visit.service.do(
        visit.session.identity,
        Scope.OWNER,
        "decide",
        lambda curator: curator.decide(number, approve=decision == "approve", why=why),
    )
    if visit.partly:
        return visit.page("_request.html", request=request, outlooks={})
    return RedirectResponse(f"/approvals#request-{request.number}", status_code=303)
