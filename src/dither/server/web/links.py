"""Ways back to a question: with exactly what was asked for, since a rounded ε is another question, paid for again."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any
from urllib.parse import urlencode

from dither.numeric import DEFAULT_CONFIDENCE

MOST_DIGITS = 40


def ask_link(sql: str, asked: Mapping[str, Any], epsilon: str = "") -> str:
    """The editor's address with this question in it, on the terms on which it was asked.

    ``epsilon`` is taken where the page has no field for them (``needs_more``), and where they aren't known.
    """
    if isinstance(asked.get("error"), str):
        terms = {"error": plain(asked["error"])}
    elif asked.get("epsilon"):
        terms = {"epsilon": plain(asked["epsilon"])}
    else:
        terms = {"epsilon": epsilon} if epsilon else {}
    return "/ask?" + urlencode({**terms, "sql": sql})


def needs_more(asked: Mapping[str, Any]) -> bool:
    """Whether a question was asked on terms for which the page has no field: asked there, it is another one."""
    if asked.get("weights") or isinstance(asked.get("error"), Mapping):
        return True
    # the confidence decides which ε reaches an error; with a given ε it changes the intervals alone
    return (
        asked.get("error") is not None and Fraction(asked.get("confidence", DEFAULT_CONFIDENCE)) != DEFAULT_CONFIDENCE
    )


def plain(number: str) -> str:
    """An exact number as people write it: with decimals where that is exact, else as the quotient that it is.

    Example:
        >>> plain("1/8"), plain("60"), plain("1/3")
        ('0.125', '60', '1/3')
    """
    exact = Fraction(number)
    with localcontext() as context:
        context.prec = MOST_DIGITS
        decimal = Decimal(exact.numerator) / Decimal(exact.denominator)
        shown = f"{decimal:f}"
    return shown if Fraction(shown) == exact and len(shown) <= MOST_DIGITS else number
