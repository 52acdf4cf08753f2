"""What to do about a refusal, in words of this protocol: settings of the session instead of arguments in Python.

A refusal is known by its code, which is permanent. Hints that hold in every protocol stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

_EXAMPLE = Fraction(1, 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """How a question was asked: ``for_error``, or for an ε, of which it may cost at most ``most`` if that is known."""

    for_error: bool = False
    most: Fraction | None = None


def hint_of(code: str, asking: Asking) -> str | None:
    """What this protocol says about a refusal; None where the refusal's own hint will do.

    Example:
        >>> hint_of("epsilon_too_large", Asking(most=Fraction(1, 2)))
        'SET dp.epsilon = 0.5 or less.'
        >>> hint_of("rows_shown", Asking()) is None
        True
    """
    hint = _HINTS.get(code)
    return hint(asking) if callable(hint) else hint


def _missing(asking: Asking) -> str:
    example = _EXAMPLE if asking.most is None else min(_EXAMPLE, asking.most)
    limit = "" if asking.most is None else f" (at most {float(asking.most):g})"
    return (
        f"SET dp.epsilon = {float(example):g}{limit}, or SET dp.error = 50 for an error; then EXPLAIN PRIVACY SELECT … "
        "shows what it buys."
    )


def _too_large(asking: Asking) -> str:
    if asking.for_error:
        return "SET dp.error to a larger error, or ask for fewer columns."
    return "SET dp.epsilon to less." if asking.most is None else f"SET dp.epsilon = {float(asking.most):g} or less."


def _needs_approval(asking: Asking) -> str:
    smaller = "SET dp.error to a larger error" if asking.for_error else "SET dp.epsilon to less"
    return f"Send it to the owner from the web page or over HTTP and ask it again once it is approved, or {smaller}."


_HINTS: Mapping[str, str | Callable[[Asking], str]] = {
    "epsilon_missing": _missing,
    "epsilon_too_large": _too_large,
    "epsilon_too_small": "SET dp.epsilon to more.",
    "budget_too_small": "SET dp.epsilon to more, or ask for fewer columns.",
    "error_unknown": (
        "SET dp.epsilon = 0.1 instead. An error can be asked for columns that are COUNT, or SUM of what has declared "
        "bounds: SET dp.error = 'n=50' names one."
    ),
    "error_unreachable": "SET dp.error to a larger error.",
    "unknown_weight": "Write SET dp.weights = 'n=1, total=3' with noisy columns of the answer, or RESET dp.weights.",
    "needs_approval": _needs_approval,
    "unknown_analyst": (
        "The owner of the data adds a section [analysts.NAME] to the policy and starts the server again: it reads the "
        "policy when it starts."
    ),
}
