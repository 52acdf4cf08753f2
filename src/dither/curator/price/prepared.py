"""A question that was bound and priced: what charging, running and delivering it go by."""

from __future__ import annotations

from dataclasses import dataclass

from dither.curator.price.open_bounds import Place
from dither.curator.terms import Settled, Terms
from dither.curator.who import Asker
from dither.privacy import PrivacyLoss
from dither.query.plan.plan import Question
from dither.query.price.price import Priced, QueryBudget


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A question ready to be charged and run: a function of its text, of what was asked by whom, and of the policy.

    ``searched`` are the columns whose bounds must be found first; until then ``priced`` stands on made-up bounds, which
    change the size of the noise but not the loss. ``epsilon`` and ``delta`` are its cost by itself; ``settled`` are the
    terms with all that was left open in ``terms``.
    """

    sql: str
    terms: Terms
    who: Asker
    question: Question
    priced: Priced
    loss: PrivacyLoss
    key: str
    epsilon: float
    delta: float
    searched: tuple[Place, ...]
    search_budget: QueryBudget | None
    settled: Settled


def aggregates_of(names: frozenset[str] | set[str]) -> list[int]:
    """The indices of the aggregates among the columns of an output (``a0``, ``a0.low``, …)."""
    return sorted({int(name[1:].partition(".")[0]) for name in names if name.startswith("a")})
