"""Reading what clients send: beside the event loop, in turn, and no more than an analyst may ask for.

The loop serves everybody, and whoever cancels or revokes a token needs it too. So texts of SQL are read in threads, one
at a time for each analyst, over however many connections; and each text counts before it is read.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, ParamSpec, TypeVar

from dither.server.observe.metrics import Metrics
from dither.server.pgwire.protocol import types
from dither.server.pgwire.protocol.errors import failure
from dither.server.pgwire.sql.parameters import Placeholder
from dither.server.pgwire.sql.routing import Router, Statement
from dither.server.problems import too_many
from dither.server.traffic.rate_limit import CHARACTERS_EACH, Rate

# Longer texts are read apart from short ones: nobody waits for their own long text with a short one.
LONGEST_SHORT = 5000
LONGEST_TEXT = 1_000_000
# Messages of more statements take far more memory than their text does.
MOST_STATEMENTS_KEPT = 10
MOST_DESCRIBED, LONGEST_DESCRIBED = 1000, 10_000
_PER_TYPE, _PER_PLACE = 8, 50

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
T = TypeVar("T")
P = ParamSpec("P")


class Kept(Generic[K, V]):
    """What was found before, the last ``most`` of it, of ``room`` altogether and ``largest`` each.

    Example:
        >>> kept = Kept[str, int](most=2, room=100, largest=50)
        >>> for number, name in enumerate("abc"):
        ...     kept.keep(name, number, size=1)
        >>> kept.get("a"), kept.get("c")
        (None, 2)
    """

    def __init__(self, *, most: int = 500, room: int = 500_000, largest: int = 3 * LONGEST_SHORT) -> None:
        self._most, self._left, self._largest = most, room, largest
        self._kept: OrderedDict[K, tuple[V, int]] = OrderedDict()

    def get(self, key: K) -> V | None:
        """What was kept, if it still is."""
        found = self._kept.get(key)
        if found is None:
            return None
        self._kept.move_to_end(key)
        return found[0]

    def keep(self, key: K, value: V, *, size: int) -> None:
        """Keep a value, unless it is too large; what wasn't wanted for longest goes."""
        if size > self._largest:
            return
        self._drop(key)
        self._kept[key] = (value, size)
        self._left -= size
        while self._left < 0 or len(self._kept) > self._most:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: K) -> None:
        found = self._kept.pop(key, None)
        if found is not None:
            self._left += found[1]


class Reading:
    """Reads for one analyst, over however many connections.

    What is known is kept apart for each: how long a text takes would show whether others had sent it.
    """

    def __init__(self, analyst: str, rate: Rate, metrics: Metrics) -> None:
        self._analyst, self._rate, self._metrics = analyst, rate, metrics
        self._short, self._long, self._round = asyncio.Lock(), asyncio.Lock(), asyncio.Lock()
        self._split: Kept[str, tuple[Statement, ...]] = Kept()
        self._typed: Kept[tuple[str, tuple[int, ...]], tuple[tuple[Placeholder, ...], tuple[int, ...]]] = Kept()
        # the columns of a question's answer, by its text and, where values are made up, the types of its parameters
        self.described: Kept[tuple[str, tuple[int, ...]], tuple[types.Column, ...]] = Kept(
            most=MOST_DESCRIBED, room=MOST_DESCRIBED * LONGEST_DESCRIBED, largest=LONGEST_DESCRIBED
        )

    async def statements(self, text: str, router: Router) -> tuple[Statement, ...]:
        """The statements of a message."""
        known = self._split.get(text)
        if known is not None:
            return known
        if len(text) > LONGEST_TEXT:
            raise failure("54000", f"statements may have at most {LONGEST_TEXT} characters together")
        found = tuple(await self.beside(len(text), router.split, text))
        if len(found) <= MOST_STATEMENTS_KEPT:
            self._split.keep(text, found, size=3 * len(text))
        return found

    async def types_of(
        self, text: str, declared: tuple[int, ...], guess: Callable[[], tuple[tuple[Placeholder, ...], tuple[int, ...]]]
    ) -> tuple[tuple[Placeholder, ...], tuple[int, ...]]:
        """The placeholders of a question and the types of its parameters, as ``guess`` finds them."""
        known = self._typed.get((text, declared))
        if known is None:
            known = await self.beside(len(text), guess)
            size = len(text) + _PER_TYPE * (len(declared) + len(known[1])) + _PER_PLACE * len(known[0])
            self._typed.keep((text, declared), known, size=size)
        return known

    async def beside(self, size: int, work: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
        """Read something of so many characters beside the event loop, when it is its turn.

        Raises:
            ServerRefusal: If the analyst has too much read.
        """
        self._admit(size)
        async with self._long if size > LONGEST_SHORT else self._short:
            return await asyncio.to_thread(work, *given, **named)

    def _admit(self, size: int) -> None:
        wait = self._rate.wait(self._analyst, size // CHARACTERS_EACH)
        if wait:
            self._metrics.count("rate", "refused")
            raise too_many(wait)

    async def yield_turn(self) -> None:
        """Let others have the loop: of all that the analyst's connections have to do, one thing is done in a round."""
        async with self._round:
            await asyncio.sleep(0)
