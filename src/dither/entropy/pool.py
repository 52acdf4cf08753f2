"""Scalar draws served from a batch, so that one draw costs what a vector's element costs.

It also decouples when a draw is made from what it is: the time of a single release says nothing
about the value of its noise, whose rare values take longer to draw.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

_FIRST_BATCH = 16
_LARGEST_BATCH = 4096
_GROWTH = 4


class Pool:
    """Values drawn ahead; each is handed out once, to one thread of one process.

    ``list.pop`` and ``list.extend`` are atomic, so no lock is needed, and none can be left locked
    by a fork or a signal. Two threads that find the pool empty both refill it, which only makes it
    larger.
    """

    __slots__ = ("__weakref__", "_batch", "_values")

    def __init__(self) -> None:
        self._values: list[int] = []
        self._batch = _FIRST_BATCH
        _POOLS.add(self)

    def pop(self, draw: Callable[[int], NDArray[np.int64]]) -> int:
        """A value that was never handed out; ``draw`` makes a batch when there is none."""
        try:
            return self._values.pop()
        except IndexError:
            pass
        # A mechanism made for one release shouldn't pay for thousands; one that is used a lot
        # should.
        batch, self._batch = self._batch, min(self._batch * _GROWTH, _LARGEST_BATCH)
        fresh: list[int] = draw(batch).tolist()
        value = fresh.pop()
        self._values.extend(fresh)
        return value

    def clear(self) -> None:
        """Forgets the values drawn ahead."""
        self._values.clear()

    def __len__(self) -> int:
        return len(self._values)

    # A copy, whether pickled to another process or made here, starts empty: values in both would be
    # the same noise on two answers.
    def __reduce__(self) -> tuple[type[Pool], tuple[()]]:
        return Pool, ()

    def __copy__(self) -> Pool:
        return Pool()

    def __deepcopy__(self, memo: object) -> Pool:
        return Pool()


# Weak, so that a pool lives no longer than its sampler.
_POOLS: WeakSet[Pool] = WeakSet()


def _empty_all() -> None:
    # A forked child inherits the values that its parent is going to use: the same noise on two
    # answers would cancel in their difference.
    for pool in list(_POOLS):
        pool.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_empty_all)
