"""Answers that this process delivered: kept in memory, so that whoever asks again soon doesn't wait for the disk."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from dither.curator.answers.answer import Answer
from dither.curator.memory import Memory

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
