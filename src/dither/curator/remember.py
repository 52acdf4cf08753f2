"""Answers that this process delivered: kept in memory, so that whoever asks again soon doesn't wait for the disk."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from dither.curator.answer import Answer, Bars

MOST_ANSWERS = 4096
MOST_BYTES = 64 * 2**20
# what an answer takes besides its columns, about
OVERHEAD = 2000


T = TypeVar("T")


class Kept(Generic[T]):
    """The latest results of something that gives the same for the same; the oldest are forgotten first.

    There are ``most`` of them at most, which take about ``room`` bytes together; ``size`` tells what one takes.

    Example:
        >>> kept = Kept[str](most=10, room=8, size=len)
        >>> for name in ("aa", "bb", "cc", "dd", "ee", "much too large"):
        ...     _ = kept.get(name, lambda name=name: name)
        >>> [kept.get(name, lambda: "new") for name in ("ee", "aa", "much too large")]
        ['ee', 'new', 'new']
    """

    def __init__(self, most: int, *, room: int = 1 << 62, size: Callable[[T], int] = lambda _: 1) -> None:
        self._most, self._left, self._size = most, room, size
        self._largest = room // 4 or room
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()

    def get(self, name: Hashable, make: Callable[[], T]) -> T:
        """What is known under this name, or what ``make`` makes now; what it raises isn't kept."""
        with self._lock:
            if name in self._kept:
                self._kept.move_to_end(name)
                return self._kept[name][0]
        made = make()
        size = self._size(made)
        if size > self._largest:
            return made
        with self._lock:
            old = self._kept.pop(name, None)
            self._left += (0 if old is None else old[1]) - size
            self._kept[name] = (made, size)
            while self._left < 0 or len(self._kept) > self._most:
                _, (_, gone) = self._kept.popitem(last=False)
                self._left += gone
        return made

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._left += sum(size for _, size in self._kept.values())
            self._kept.clear()


class Remembered:
    """The answers delivered last, by what was asked and by whom; the oldest are forgotten first."""

    def __init__(self, *, answers: int = MOST_ANSWERS, size: int = MOST_BYTES) -> None:
        self._most, self._largest = answers, size
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, tuple[Answer, int]] = OrderedDict()
        self._bytes = 0

    def get(self, asked: Hashable) -> Answer | None:
        """The answer to this, if it is still known."""
        with self._lock:
            found = self._kept.get(asked)
            if found is None:
                return None
            self._kept.move_to_end(asked)
            return found[0]

    def keep(self, asked: Hashable, answer: Answer) -> None:
        """Remember an answer that was recorded and delivered; its first holder may do with it what they like."""
        size = _size(answer)
        if size > self._largest // 4:
            return
        with self._lock:
            old = self._kept.pop(asked, None)
            self._bytes += size - (old[1] if old else 0)
            self._kept[asked] = (replace(answer, bars=_fixed(answer.bars)), size)
            while len(self._kept) > self._most or self._bytes > self._largest:
                _, (_, gone) = self._kept.popitem(last=False)
                self._bytes -= gone

    def forget(self) -> None:
        """Forget everything."""
        with self._lock:
            self._kept.clear()
            self._bytes = 0

    def __len__(self) -> int:
        return len(self._kept)


def _fixed(bars: Mapping[str, Bars]) -> Mapping[str, Bars]:
    """Copies that nobody can change: whoever asks again gets these very arrays."""
    return MappingProxyType(
        {name: replace(bar, low=_copy(bar.low), high=_copy(bar.high)) for name, bar in bars.items()}
    )


def _copy(ends: npt.NDArray[np.float64] | None) -> npt.NDArray[np.float64] | None:
    if ends is None:
        return None
    copied = ends.copy()
    copied.flags.writeable = False
    return copied


def _size(answer: Answer) -> int:
    bars = sum(end.nbytes for bar in answer.bars.values() for end in (bar.low, bar.high) if end is not None)
    return OVERHEAD + answer.table.nbytes + bars
