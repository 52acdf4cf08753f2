"""What was spent, what is left, and what that means for one person."""

from __future__ import annotations

from dataclasses import replace

from fastapi import Response

from dither.curator import OWNER, Curator, Past
from dither.drawings.meters import burn_down
from dither.errors import DitherError, InvalidParameter
from dither.server.auth.identity import Scope
from dither.server.web.facts import protected
from dither.server.web.guarantee_in_words import meaning_of
from dither.server.web.web_session import Visit, short_name

# among so many questions of others an analyst's latest one is looked for, in pages of growing size
PAGES = (1, 50, 500, 500, 500, 500)


async def budget(visit: Visit) -> Response:
    """Accounts with their meters and burn-downs, and the guarantee in plain words."""
    who, policy = visit.analyst, visit.service.curator.policy
    may_ask = visit.identity.allows(Scope.ASK)
    lines, history, guarantee, by_levels, latest = await visit.do(
        Scope.PRICE,
        "budget",
        lambda curator: (
            curator.budget(who),
            # the dataset's account before those of its analysts
            sorted(curator.history(who), key=lambda point: point.account),
            curator.guarantee(who),
            curator.spent_by_levels,
            _latest(curator, who) if may_ask else None,
        ),
    )
    spent, dataset = any(line.epsilon_spent > 0 for line in lines), policy.source.name
    named = [replace(point, account=short_name(point.account, dataset)) for point in history]
    return visit.page(
        "budget.html",
        lines=lines,
        drawing=burn_down(named),
        meaning=meaning_of(guarantee, policy.schema.adjacency) if spent else None,
        unit=protected(policy),
        by_levels=by_levels,
        shared=policy.budget.share_answers,
        latest=latest,
        may_request=may_ask and who != OWNER and any(line.epsilon_budget is not None for line in lines),
    )


async def request_budget(visit: Visit) -> Response:
    """Ask the owner for more."""
    amount, why = visit.amount("amount"), visit.form.get("why", "")
    if not amount:
        raise InvalidParameter("say by how much your budget should grow: a number above 0, such as 0.1")
    request = await visit.service.request_budget(visit.identity, amount, why=why)
    return visit.requested(request)


def _latest(curator: Curator, who: str) -> tuple[str, int] | None:
    """Their latest question, and how many of its price still fit."""
    mine = _own_latest(curator, who)
    if mine is None:
        return None
    try:
        quote = curator.price(mine.sql, analyst=who, **mine.asked)
    except (DitherError, ValueError):
        return None
    return None if quote.more is None else (mine.sql, quote.more)


def _own_latest(curator: Curator, who: str) -> Past | None:
    """The latest question that this account paid for: where all answers are listed, others may have asked since."""
    before = None
    for count in PAGES:
        page = curator.answers(who, before=before, count=count)
        mine = next((past for past in page.items if past.mine), None)
        if mine is not None or page.next is None:
            return mine
        before = page.next
    return None
