"""``dither price``: what a question would cost and how accurate it would be; free."""

from __future__ import annotations

from dither.cli.options import (
    DEFAULT_POLICY,
    Analyst,
    Epsilon,
    PolicyFile,
    Question,
    Wanted,
    Weights,
    named,
    wanted_error,
)
from dither.cli.screen import console, show_quote
from dither.curator import OWNER, Curator


def price(
    sql: Question,
    epsilon: Epsilon = None,
    error: Wanted = None,
    weight: Weights = None,
    analyst: Analyst = OWNER,
    policy: PolicyFile = DEFAULT_POLICY,
) -> None:
    """Say what a question would cost and how accurate it would be. Reads no data and costs nothing."""
    with Curator.open(policy) as curator:
        quote = curator.price(
            sql,
            epsilon=epsilon,
            error=wanted_error(error),
            weights=named(weight, "--weight"),
            analyst=analyst,
        )
        show_quote(quote, console())
