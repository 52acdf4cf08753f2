"""Reading what clients send: beside the event loop, in turn, and no more than an analyst may ask for.

The loop serves all clients, and cancelling or revoking a token needs it too. So texts of SQL are read in threads, one
at a time for each analyst, over however many connections; and each text counts before it is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeAlias, TypeVar

from dither.curator.answers.in_memory_cache import Memory
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
# How much is kept for one analyst, in characters; of one thing a quarter of that at most.
MOST_KEPT, ROOM = 500, 500_000
MOST_DESCRIBED, ROOM_DESCRIBED = 1000, 10_000_000
_PER_TYPE, _PER_PLACE = 8, 50

T = TypeVar("T")
P = ParamSpec("P")
# the placeholders of a question, and the types of its parameters
Typed: TypeAlias = tuple[tuple[Placeholder, ...], tuple[int, ...]]


def _memory(most: int, room: int) -> Memory[tuple[T, int]]:
    """What was found before, each with how much room it takes."""
    return Memory(most, room=room, size=lambda kept: kept[1])


class AnalystReading:
    """Reads for one analyst, over however many connections.

    What is known is kept apart for each: how long a text takes would show whether others had sent it.
    """

    def __init__(self, analyst: str, rate: Rate, metrics: Metrics) -> None:
        self._analyst, self._rate, self._metrics = analyst, rate, metrics
        self._short, self._long, self._round = asyncio.Lock(), asyncio.Lock(), asyncio.Lock()
        self._split: Memory[tuple[tuple[Statement, ...], int]] = _memory(MOST_KEPT, ROOM)
        self._typed: Memory[tuple[Typed, int]] = _memory(MOST_KEPT, ROOM)
        self._described: Memory[tuple[tuple[types.WireColumn, ...], int]] = _memory(MOST_DESCRIBED, ROOM_DESCRIBED)

    async def statements(self, text: str, router: Router) -> tuple[Statement, ...]:
        """The statements of a message."""
        known = self._split.get(self._analyst, text)
        if known is not None:
            return known[0]
        if len(text) > LONGEST_TEXT:
            raise failure("54000", f"statements may have at most {LONGEST_TEXT} characters together")
        found = tuple(await self.beside(len(text), router.split, text))
        if len(found) <= MOST_STATEMENTS_KEPT:
            self._split.keep(self._analyst, text, (found, 3 * len(text)))
        return found

    async def types_of(self, text: str, declared: tuple[int, ...], guess: Callable[[], Typed]) -> Typed:
        """The placeholders of a question and the types of its parameters, as ``guess`` finds them."""
        known = self._typed.get(self._analyst, (text, declared))
        if known is not None:
            return known[0]
        found = await self.beside(len(text), guess)
        size = len(text) + _PER_TYPE * (len(declared) + len(found[1])) + _PER_PLACE * len(found[0])
        self._typed.keep(self._analyst, (text, declared), (found, size))
        return found

    async def columns_of(
        self, text: str, kinds: tuple[int, ...], price: Callable[[], Awaitable[tuple[types.WireColumn, ...]]]
    ) -> tuple[types.WireColumn, ...]:
        """The columns of a question's answer; ``kinds`` are the types of its parameters, where values are made up."""
        known = self._described.get(self._analyst, (text, kinds))
        if known is not None:
            return known[0]
        found = await price()
        self._described.keep(self._analyst, (text, kinds), (found, len(text) + len(kinds)))
        return found

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
