"""Statistical queries: the share of rows for which a predicate holds, within a tolerance (Kearns 1998)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

from dither.curator.answer import Answer
from dither.errors import InvalidParameter
from dither.numeric import Number, as_fraction, positive

Ask: TypeAlias = Callable[..., Answer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistic:
    """A share between 0 and 1 that is within ``tolerance`` of the exact one with probability ``confidence``.

    ``epsilon`` is what the two counts behind it cost by themselves; the first is the same for every predicate, so it is
    paid for once.
    """

    value: float
    tolerance: float
    confidence: float
    epsilon: float
    answers: tuple[Answer, Answer] = field(repr=False)


def statistical_query(
    ask: Ask,
    table: str,
    predicate_sql: str,
    *,
    tolerance: Number,
    confidence: Number,
    count_epsilon: Fraction,
    analyst: str,
) -> Statistic:
    """STAT(c) from two noisy counts: of all rows, then, with the error that the tolerance leaves, of those with c.

    Accuracy: for exact counts h ≤ n and noisy ones h′, n′, h′/n′ − h/n = (h′ − h)/n′ + (h/n)(n − n′)/n′, so the error
        is at most (|h′ − h| + |n′ − n|)/n′. Each count may miss its part with half of the failure probability.
    """
    wanted, exact = positive(tolerance, "tolerance"), as_fraction(confidence, "confidence")
    if wanted >= 1:
        raise InvalidParameter("tolerance must lie between 0 and 1: the answer is a share")
    if not 0 < exact < 1:
        raise InvalidParameter("confidence must lie strictly between 0 and 1")
    each: dict[str, Any] = {"analyst": analyst, "confidence": (1 + exact) / 2}
    place = '"' + table.replace('"', '""') + '"'
    rows = ask(f"SELECT COUNT(*) AS n FROM {place}", epsilon=count_epsilon, **each)  # noqa: S608
    count, missed = int(rows.scalar()), Fraction(float(rows.error["n"][0]))
    left = wanted * count - missed
    if left <= 0:
        raise InvalidParameter(
            f"about {count} rows, known to ±{float(missed):g}, are too few for a tolerance of {float(wanted):g}: "
            "ask for a larger tolerance, or give the count more with count_epsilon"
        )
    # an error in steps of a thousandth, rounded down, so that the same question again is the same question
    error = Fraction(int(left * 1000), 1000)
    if error <= 0:
        raise InvalidParameter("ask for a larger tolerance")
    hits = ask(f"SELECT COUNT_IF({predicate_sql}) AS n FROM {place}", error=error, **each)  # noqa: S608
    return Statistic(
        value=min(1.0, max(0.0, int(hits.scalar()) / count)),
        tolerance=float(wanted),
        confidence=float(exact),
        epsilon=rows.cost.epsilon + hits.cost.epsilon,
        answers=(rows, hits),
    )
