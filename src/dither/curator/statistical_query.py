"""Statistical queries: the share of rows for which a predicate holds, within a tolerance (Kearns 1998).

The rows are those that count after each unit's were capped, as in every answer about units.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

from dither.curator.price.quote import Quote
from dither.curator.results import Answer
from dither.curator.terms import Terms
from dither.errors import InvalidParameter
from dither.numeric import Number, as_fraction, positive
from dither.query.aggregates.mean import Ends

Ask: TypeAlias = Callable[[str, Terms], Answer]
Price: TypeAlias = Callable[[str, Terms], Quote]

# An ε is searched among numbers of three digits, so that the same question again is the same question.
DIGITS, DECADES = 900, 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistic:
    """A share between 0 and 1 that is within ``tolerance`` of the exact one with probability ``confidence``.

    The exact one is that among the rows that count: a unit with more than ``max_rows_contributed`` rows counts as so
    many, with its own share of them. Where busy units differ from others it isn't the share among all rows of the
    table, and may be far from it; neither the tolerance nor the interval speaks of this bias, which depends on the
    data. The notes of ``answers`` say how many rows count.

    ``low`` and ``high`` are the ends of its own interval, at the same confidence and mostly narrower. ``epsilon`` is
    what the count and the share behind it cost by themselves; the first is the same for every predicate, so it is paid
    for once.
    """

    value: float
    low: float
    high: float
    tolerance: float
    confidence: float
    epsilon: float
    answers: tuple[Answer, Answer] = field(repr=False)


def statistical_query(
    ask: Ask,
    price: Price,
    table: str,
    predicate_sql: str,
    *,
    tolerance: Number,
    confidence: Number,
    count_epsilon: Fraction,
    most: Fraction,
) -> Statistic:
    """STAT(c): the average of c as 0 and 1, with the least ε, at most ``most``, that a noisy count shows to be enough.

    An average, because a unit that has more rows than count is in it with its own share; two counts would each be cut
    by themselves, and their ratio be far off. The predicate is refused, if it must be, before anything is charged.

    Accuracy: three quarters of the failure are the average's (``Ends.rows_for``), one is that of the noisy count which
        says that there are so many rows.
    """
    wanted, exact = positive(tolerance, "tolerance"), as_fraction(confidence, "confidence")
    if wanted >= 1:
        raise InvalidParameter("tolerance must lie between 0 and 1: the answer is a share")
    if not 0 < exact < 1:
        raise InvalidParameter("confidence must lie strictly between 0 and 1")
    place = '"' + table.replace('"', '""') + '"'
    sql = f"SELECT AVG(CASE WHEN ({predicate_sql}) THEN 1 ELSE 0 END) AS share FROM {place}"  # noqa: S608

    def needed(epsilon: Fraction) -> float:
        """How many rows must surely be there for this ε to be enough."""
        priced = price(sql, Terms(epsilon=epsilon)).priced
        (recipe,) = priced.lowered.recipes
        assert isinstance(recipe, Ends)
        return recipe.rows_for(priced.noise, wanted, 1 - exact)

    needed(most)
    counted = ask(
        f"SELECT COUNT(*) AS n FROM {place}",  # noqa: S608
        Terms.of(epsilon=count_epsilon, confidence=1 - (1 - exact) / 4),
    )
    sure = float(counted.interval("n")[0][0])
    epsilon = _least(lambda each: needed(each) <= sure, most)
    if epsilon is None:
        raise InvalidParameter(
            f"about {counted.scalar():,} rows, known to ±{float(counted.error['n'][0]):g}, are too few for a tolerance "
            f"of {float(wanted):g} with at most ε = {float(most):g}: ask for a larger tolerance, or give the count "
            "more with count_epsilon"
        )
    share = ask(sql, Terms(epsilon=epsilon, confidence=exact))
    low, high = (float(end[0]) for end in share.interval("share"))
    return Statistic(
        value=float(share.scalar()),
        low=low,
        high=high,
        tolerance=float(wanted),
        confidence=float(exact),
        epsilon=counted.cost.epsilon + share.cost.epsilon,
        answers=(counted, share),
    )


def _least(enough: Callable[[Fraction], bool], most: Fraction) -> Fraction | None:
    """The least ε of three digits that is enough, or the most that may be spent; None if that isn't enough."""

    def number(place: int) -> Fraction:
        return Fraction(100 + place % DIGITS) * Fraction(10) ** (place // DIGITS - DECADES)

    if not enough(most):
        return None
    low, high = -1, DIGITS * DECADES
    while number(high) < most:
        low, high = high, high + DIGITS
    while high - low > 1:
        middle = (low + high) // 2
        good = number(middle) >= most or enough(number(middle))
        low, high = (low, middle) if good else (middle, high)
    return min(number(high), most)
