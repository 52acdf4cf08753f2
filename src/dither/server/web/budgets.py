"""What was spent, what is left, and what that means for one person."""

from __future__ import annotations

from fastapi import Response
from starlette.responses import RedirectResponse

from dither.curator import OWNER, Curator
from dither.curator.charts import burn_down
from dither.errors import DitherError
from dither.server.identity import Scope
from dither.server.web.meaning import meaning_of
from dither.server.web.visits import Visit


async def budget(visit: Visit) -> Response:
    """Accounts with their meters and burn-downs, and the guarantee in plain words."""
    who, policy = visit.analyst, visit.service.curator.policy
    may_ask = visit.session.identity.allows(Scope.ASK)
    lines, history, guarantee, latest = await visit.service.do(
        visit.session.identity,
        Scope.PRICE,
        "budget",
        lambda curator: (
            curator.budget(who),
            # the dataset's account before those of its analysts
            sorted(curator.history(who), key=lambda point: point.account),
            curator.guarantee(who),
            _latest(curator, who) if may_ask else None,
        ),
    )
    spent = any(line.epsilon_spent > 0 for line in lines)
    return visit.page(
        "budget.html",
        lines=lines,
        drawing=burn_down(history),
        meaning=meaning_of(guarantee, policy.schema.adjacency) if spent else None,
        unit=policy.unit_statement(),
        shared=policy.budget.share_answers,
        latest=latest,
        may_request=may_ask and who != OWNER and any(line.epsilon_budget is not None for line in lines),
    )


async def request_budget(visit: Visit) -> Response:
    """Ask the owner for more."""
    who, amount, why = visit.analyst, visit.amount("amount"), visit.form.get("why", "")
    request = await visit.service.do(
        visit.session.identity,
        Scope.ASK,
        "request",
        lambda curator: curator.request_budget(who, epsilon=amount, why=why),
    )
    if visit.partly:
        return visit.page("_requested.html", request=request)
    return RedirectResponse(f"/approvals#request-{request.number}", status_code=303)


def _latest(curator: Curator, who: str) -> tuple[str, int] | None:
    """The latest question, and how many of its price still fit."""
    page = curator.answers(who, count=1)
    mine = next((past for past in page.items if past.mine), None)
    if mine is None:
        return None
    try:
        quote = curator.price(mine.sql, epsilon=mine.epsilon, analyst=who)
    except (DitherError, ValueError):
        return None
    return None if quote.more is None else (mine.sql, quote.more)
