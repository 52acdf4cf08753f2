"""What the owner does: read and verify the ledger, and decide about requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import Response

from dither.curator import OWNER, Curator, Outlook, Record, Request, RequestKind, RequestState
from dither.errors import DitherError, InvalidParameter, LedgerError
from dither.server.auth.identity import Scope
from dither.server.problems import ServerProblem, problem_of
from dither.server.web.web_session import Visit, short_name

PAGE = 50
CHARGES = ("reserve", "charge")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRecord:
    """A row of the ledger's page: an entry, or a charge together with the entry of its answer.

    ``what`` says what happened where it isn't a question with its answer; ``asked`` that the receipt is a question's.
    """

    entries: str
    at: str
    who: str
    epsilon: str
    cost: str
    what: str
    question: str
    receipt: str
    asked: bool


async def ledger(visit: Visit) -> Response:
    """Every entry, newest first."""
    return await _ledger(visit)


async def verify(visit: Visit) -> Response:
    """Replay the whole ledger."""
    found, problem = None, None
    try:
        found = await visit.do(Scope.OWNER, "verify", lambda curator: curator.verify())
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
    records, grants = await visit.do(
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
    dataset = visit.service.curator.policy.source.name
    rows = shown_records(records, dataset)
    return visit.page(template, records=rows, older=older, grants=grants, verified=verified, **outcome)


def shown_records(records: Sequence[Record], dataset: str) -> list[ShownRecord]:
    """The entries as rows, in their order; an answer is in the row of its charge, where both are there."""
    charges = {record.receipt for record in records if record.what in CHARGES}
    answers = {record.receipt: record.number for record in records if record.what == "answer"}
    rows = []
    for record in records:
        if record.what == "answer" and record.receipt in charges:
            continue
        charge, answer = record.what in CHARGES, answers.get(record.receipt)
        whole = charge and answer is not None
        rows.append(
            ShownRecord(
                entries=f"{record.number}, {answer}" if whole else str(record.number),
                at=record.at,
                who=short_name(record.who, dataset) if record.who else "",
                epsilon=record.epsilon,
                cost=record.cost,
                what="" if whole else record.what,
                question=record.question,
                receipt=record.receipt,
                asked=charge and bool(record.epsilon),
            )
        )
    return rows


async def approvals(visit: Visit) -> Response:
    """Requests: all for the owner, who decides; their own for analysts."""
    return await _requests(visit, "approvals.html")


async def _requests(
    visit: Visit, template: str, *, decided: str = "", problem: ServerProblem | None = None
) -> Response:
    """The list as it is now, ``decided`` being the number of what was decided just before."""
    who, decides = visit.analyst, visit.identity.is_owner

    def look(curator: Curator) -> tuple[tuple[Request, ...], dict[str, Outlook]]:
        found = curator.requests(who)
        waiting = [request for request in found if request.state is RequestState.WAITING] if decides else []
        return found, {request.number: curator.outlook(request) for request in waiting}

    requests, outlooks = await visit.do(Scope.ASK, "requests", look)
    waits = sum(request.state is RequestState.WAITING for request in requests)
    if decides:
        # what waits comes first, each part newest first
        requests = tuple(sorted(requests, key=lambda request: request.state is not RequestState.WAITING))
    more: dict[str, Any] = {"outlooks": outlooks, "waits": waits, "decided": decided, "problem": problem}
    return visit.page(template, requests=requests, **more)


async def decide(visit: Visit) -> Response:
    """Approve or refuse a request; the whole list comes back, since what is left changes for others too."""
    number, decision, why = visit.request.path_params["number"], visit.form.get("decision"), visit.form.get("why", "")
    if decision not in ("approve", "refuse"):
        raise InvalidParameter("a decision is to approve or to refuse")
    try:
        request = await visit.do(
            Scope.OWNER,
            "decide",
            lambda curator: curator.decide(number, approve=decision == "approve", why=why),
        )
    except DitherError as error:
        if not visit.partly:
            raise
        # somebody may have decided it elsewhere: the list says how it is now
        return await _requests(visit, "_approvals.html", decided=number, problem=problem_of(error))
    if visit.partly:
        return await _requests(visit, "_approvals.html", decided=request.number)
    return visit.to_request(request)
