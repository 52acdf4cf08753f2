"""How long work tells how far it is: a function that is called now and then with a share and a few words.

Whatever may take longer than a second takes an argument ``watch``. The command line draws a bar with it; a notebook can
print; nothing happens with the default.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

# The share that is done, from 0 to 1, and what is going on; never anything about protected data.
Watch: TypeAlias = Callable[[float, str], None]


def unwatched(share: float, doing: str) -> None:
    """The default: progress is discarded."""


def part_of(watch: Watch, start: float, end: float) -> Watch:
    """A watch for one step of a longer work: its 0 is ``start`` and its 1 is ``end`` of the whole.

    Example:
        >>> seen = []
        >>> part_of(lambda share, doing: seen.append((share, doing)), 0.5, 1.0)(0.5, "counting")
        >>> seen
        [(0.75, 'counting')]
    """
    return lambda share, doing: watch(start + (end - start) * min(1.0, max(0.0, share)), doing)
