"""The in-memory cache: what one process keeps, until it ends, for those who ask the same again soon.

It spares work, not budget: that the same question is free again is the ledger's rule (``charge_or_replay``). It is
kept by analyst: the time of an answer, or of a price, must not tell one what another asked.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import replace
from types import MappingProxyType
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from dither.curator.results import Answer

T = TypeVar("T")


class Memory(Generic[T]):
    """A least-recently-used cache of at most ``entries`` results that take about ``room`` bytes together.

    ``size`` says what one takes; one that takes more than a quarter of the room isn't kept.

    Example:
        >>> memory = Memory[str](10, room=8, size=len)
        >>> for text in ("aa", "bb", "cc", "dd", "ee", "much too large"):
        ...     memory.keep("ana", text, text)
        >>> [memory.get("ana", text) for text in ("ee", "aa", "much too large")], memory.get("bob", "ee")
        (['ee', None, None], None)
    """

    def __init__(self, entries: int, *, room: int = sys.maxsize, size: Callable[[T], int] = lambda _: 1) -> None:
        self._entries, self._room, self._size = entries, room, size
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, Hashable], tuple[T, int]] = OrderedDict()
        self.bytes = 0

    def get(self, analyst: str, key: Hashable) -> T | None:
        """What is kept for this analyst under this key."""
        with self._lock:
            found = self._kept.get((analyst, key))
            if found is None:
                return None
            self._kept.move_to_end((analyst, key))
            return found[0]

    def keep(self, analyst: str, key: Hashable, value: T) -> None:
        """Keep it; what wasn't used for longest is forgotten."""
        size = self._size(value)
        if size > self._room // 4:
            return
        with self._lock:
            _, before = self._kept.pop((analyst, key), (None, 0))
            self._kept[analyst, key] = (value, size)
            self.bytes += size - before
            while self.bytes > self._room or len(self._kept) > self._entries:
                _, (_, gone) = self._kept.popitem(last=False)
                self.bytes -= gone

    def made(self, analyst: str, key: Hashable, make: Callable[[], T]) -> T:
        """What is kept, or what ``make`` makes now; what it raises isn't kept."""
        found = self.get(analyst, key)
        if found is None:
            found = make()
            self.keep(analyst, key, found)
        return found

    def forget(self) -> None:
        """Forget everything."""
        with self._lock:
            self._kept.clear()
            self.bytes = 0

    def __len__(self) -> int:
        return len(self._kept)


# ---------------------------------------------------------------------------------------------- cache


# so that a busy server reaches it, and has replaced them all, within minutes
MOST_ANSWERS = 1024
MOST_BYTES = 64 * 2**20
# what an answer takes besides its columns, about
OVERHEAD = 2000


def delivered(answers: int = MOST_ANSWERS, room: int = MOST_BYTES) -> Memory[Answer]:
    """The answers delivered last; what is put there was ``fixed``."""
    return Memory(answers, room=room, size=_size)


def fixed(answer: Answer) -> Answer:
    """With copies that nobody can change: its first holder may do with it what they like."""
    bars = {name: replace(bar, low=_copy(bar.low), high=_copy(bar.high)) for name, bar in answer.bars.items()}
    return replace(answer, bars=MappingProxyType(bars))


def _copy(ends: npt.NDArray[np.float64] | None) -> npt.NDArray[np.float64] | None:
    if ends is None:
        return None
    copied = ends.copy()
    copied.flags.writeable = False
    return copied


def _size(answer: Answer) -> int:
    bars = sum(end.nbytes for bar in answer.bars.values() for end in (bar.low, bar.high) if end is not None)
    return OVERHEAD + answer.table.nbytes + bars
