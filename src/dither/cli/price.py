"""``dither price``: what a question would cost and how accurate it would be; free."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from dither.cli import options
from dither.cli.read_only_curator import looking
from dither.cli.screen import console, pointing, show_choices, show_quote
from dither.curator import OWNER

if TYPE_CHECKING:
    from dither.curator import Curator, Quote

PARTS = (Fraction(1, 50), Fraction(1, 10), Fraction(1, 4), Fraction(1, 2), Fraction(1))


def price(
    sql: options.Question,
    epsilon: options.Epsilon = None,
    error: options.Wanted = None,
    weight: options.Weights = None,
    noise: options.Noise = None,
    analyst: options.Analyst = OWNER,
    policy: options.PolicyFile = options.DEFAULT_POLICY,
) -> None:
    """Say what a question would cost.

    And how accurate it would be. Reads no data and is free. Without --epsilon and --error it shows what some choices
    of ε would buy.

    Example:  dither price "SELECT city, COUNT(*) AS n FROM orders GROUP BY city" --epsilon 0.5
    """
    with pointing(sql), looking(policy) as curator:
        if epsilon is None and error is None and curator.policy.budget.default_epsilon is None:
            show_choices(_choices(curator, sql, options.named(weight, "--weight"), analyst, noise), console())
            return
        quote = curator.price(
            sql,
            epsilon=epsilon,
            error=options.wanted_error(error),
            weights=options.named(weight, "--weight"),
            analyst=analyst,
            noise=noise,
        )
        show_quote(quote, console())


def _choices(curator: Curator, sql: str, weights: dict[str, str], analyst: str, noise: str | None) -> list[Quote]:
    """Quotes at some parts of the most that a question may cost, or the one that the question itself asks for."""
    most = curator.most_epsilon(analyst)
    quotes = [curator.price(sql, epsilon=most * part, weights=weights, analyst=analyst, noise=noise) for part in PARTS]
    return list({quote.epsilon: quote for quote in quotes}.values())
