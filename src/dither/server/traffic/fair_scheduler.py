"""A fair scheduler: one analyst's long texts can't starve the others.

A long text takes a second of a processor to read and price, and each analyst may send many. So each analyst has a
queue, and the one that used least worker time lately goes first. While others are active an analyst has at most half of
the workers, and one worker after more than a fair share; alone, all but one, which is kept free for the next analyst.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")
# what was worked counts for about so many seconds, and so much of it is more than a fair share, if others have none
LATELY, MUCH = 10.0, 2.0


class Worked:
    """How many seconds of work something took, also if it failed."""

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds = 0.0


Start = Callable[[Worked], Awaitable[T]]


class Turns:
    """Runs what it is given, so many at once, in a fair order. Belongs to an event loop.

    What it is given to start is handed a ``Worked``, and notes there how many seconds of work it took.
    """

    def __init__(self, workers: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._workers, self._clock = workers, clock
        self._waiting: dict[str, deque[tuple[asyncio.Future[Any], Start[Any]]]] = {}
        self._running: Counter[str] = Counter()
        self._worked: dict[str, tuple[float, float]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def under_way(self, name: str) -> int:
        """How much of this name runs or waits."""
        return self._running[name] + len(self._waiting.get(name, ()))

    def take(self, name: str, start: Start[T]) -> asyncio.Future[T]:
        """Start this when its turn comes: what it gives."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(name, deque()).append((future, start))
        self._go_on()
        return future

    def _go_on(self) -> None:
        while self._running.total() < self._workers:
            ready = [name for name in self._waiting if self._running[name] < self._most(name)]
            if not ready:
                return
            name = min(ready, key=lambda one: (self._running[one], self.worked(one)))
            future, start = self._waiting[name].popleft()
            if not self._waiting[name]:
                del self._waiting[name]
            self._running[name] += 1
            task = asyncio.get_running_loop().create_task(self._run(name, future, start))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _most(self, name: str) -> int:
        """How many workers this name may have now."""
        others = (self._waiting.keys() | self._running.keys()) - {name}
        if not others:
            return max(1, self._workers - 1)
        # those who all work much share as equals
        fair = MUCH + 2 * min(self.worked(other) for other in others)
        return 1 if self.worked(name) > fair else max(1, self._workers // 2)

    def worked(self, name: str) -> float:
        """The seconds of work that this name took lately."""
        seconds, at = self._worked.get(name, (0.0, 0.0))
        return seconds * math.exp((at - self._clock()) / LATELY) if seconds else 0.0

    async def _run(self, name: str, future: asyncio.Future[T], start: Start[T]) -> None:
        worked = Worked()
        try:
            result = await start(worked)
        except asyncio.CancelledError:
            future.cancel()
            raise
        except GeneratorExit:  # the loop is gone, and all waiters with it
            raise
        except BaseException as problem:  # noqa: BLE001 - it is raised in the waiter
            if not future.done():
                future.set_exception(problem)
        else:
            if not future.done():
                future.set_result(result)
        finally:
            self._running[name] -= 1
            if not self._running[name]:
                del self._running[name]
            self._note(name, worked.seconds)
        # not where this was stopped: then everything is
        self._go_on()

    def _note(self, name: str, seconds: float) -> None:
        self._worked[name] = (self.worked(name) + seconds, self._clock())
        if len(self._worked) > 1000:
            # forget analysts whose recent work is negligible
            self._worked = {one: found for one, found in self._worked.items() if self.worked(one) > 0.001}
