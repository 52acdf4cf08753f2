"""How much work one question may make before it is charged: a few lines of text can stand for millions of steps.

What is counted are steps whose number a text can multiply: public values that are computed one by one, and written out.
Whoever binds or prices a question does so in ``limited``; the count depends on the text and on public facts alone, so
the same question is always refused or never.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from dither.errors import Refused

# about a second of a processor
MOST_STEPS = 500_000


class Effort:
    """The steps that were made so far."""

    __slots__ = ("steps",)

    def __init__(self) -> None:
        self.steps = 0


_COUNTED: ContextVar[Effort | None] = ContextVar("dither_effort", default=None)


@contextmanager
def limited() -> Iterator[Effort]:
    """Count what is spent in this block, from nothing, and refuse what is too much.

    Example:
        >>> with limited() as effort:
        ...     spend(1000)
        >>> effort.steps
        1000
    """
    effort = Effort()
    before = _COUNTED.set(effort)
    try:
        yield effort
    finally:
        _COUNTED.reset(before)


def spend(steps: int) -> None:
    """Count so many steps, before they are made.

    Raises:
        Refused: If the question has made too many; nothing was charged.
    """
    effort = _COUNTED.get()
    if effort is None:
        return
    effort.steps += steps
    if effort.steps > MOST_STEPS:
        raise Refused(
            "this question computes too many public values, one by one",
            code="too_long",
            hint="Compute with fewer columns of many public values at once, or ask in several questions.",
        )
