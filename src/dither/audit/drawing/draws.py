"""Drawing outputs of a mechanism, whatever it is: dither's own, another library's, a plain function.

Time is measured as draws are made, so that a mechanism of ten draws a second and one of a hundred million both get as
many as the budget allows.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np

from dither.audit.drawing import clock
from dither.audit.outputs.layout import Block, as_block, joined
from dither.errors import InvalidData, InvalidParameter
from dither.mechanisms.base import NoiseMechanism, Session

# Immutable types.
FIXED = frozenset({float, int, bool, str, bytes, type(None), np.float64, np.int64, np.bool_})
# Numbers (draws times columns) that are in memory at once for one input.
LARGEST_BLOCK = 1 << 19
# The same while a sample is collected that stays in memory as a whole.
LARGEST_SAMPLE = 1 << 24
# Noise on an array is wider by 2^-31 for each coordinate (see mechanisms/laplace.md), because neighbours may differ in
# all of them. Draws are releases of one number each, so arrays are kept so short that this doesn't show: 2^-15.
LONGEST_ARRAY = 1 << 16


@dataclass(frozen=True, slots=True)
class Batched:
    """A mechanism that makes many outputs at once, for audits that need millions.

    ``draw(x, n)`` returns n independent outputs on the input x: an array (n,), an array (n, d) or a list of n objects.
    ``copies`` promises that forked copies of the process draw independently of each other (randomness from the
    operating system, or seeded in each process), so that several can work at once.

    Example:
        >>> generator = np.random.default_rng()
        >>> noisy = Batched(lambda x, n: x + generator.laplace(size=n))
        >>> noisy.draw(0.0, 3).shape
        (3,)
    """

    draw: Callable[[Any, int], Any]
    copies: bool = False

    def __post_init__(self) -> None:
        if not callable(self.draw):
            raise InvalidParameter("Batched takes a function draw(x, n) that returns n outputs")


def batched(mechanism: Any) -> Batched:
    """Any mechanism as one that draws in batches: Batched, one with ``release``, or a function of the input."""
    if isinstance(mechanism, Batched):
        return mechanism
    if isinstance(mechanism, NoiseMechanism):
        return Batched(lambda x, n: _released(mechanism, x, n), copies=True)
    release = getattr(mechanism, "release", None)
    one: Any = release if callable(release) else mechanism
    if not callable(one) or isinstance(mechanism, type):
        raise InvalidParameter(
            "a mechanism is a function of its input, an object with release(input), or Batched(draw); "
            f"got {mechanism!r:.100}"
        )
    ours = type(mechanism).__module__.startswith("dither.mechanisms.") and not isinstance(mechanism, Session)
    return Batched(lambda x, n: [settled(one(x)) for _ in range(n)], copies=ours)


def settled(output: Any) -> Any:
    """An output that its maker can't change any more.

    Code that saves memory writes every output into one array and returns that: kept as it is, n outputs would be the
    last one n times, and counts of them anything but binomial.
    """
    kind = type(output)
    if kind in FIXED:
        return output
    if kind is np.ndarray:
        return output.copy()
    if kind in (list, tuple, set, frozenset):
        return kind(settled(part) for part in output)
    if kind is dict:
        return {key: settled(part) for key, part in output.items()}
    if kind.__module__.partition(".")[0] in ("pyarrow", "polars"):
        return output  # never change
    try:
        return deepcopy(output)
    except Exception:  # noqa: BLE001  what can't be copied is judged as it is
        return output


def _released(mechanism: NoiseMechanism, x: Any, n: int) -> Any:
    """Releases of one exact answer, many in an array; vectors stay together in rows."""
    exact = np.asarray(x)
    if exact.dtype.kind not in "iuf" or exact.ndim > 1:
        return [mechanism.release(x) for _ in range(n)]
    rows = max(1, LONGEST_ARRAY // max(1, exact.size))
    parts = []
    for start in range(0, n, rows):
        many = np.broadcast_to(exact, (min(rows, n - start), *exact.shape))
        parts.append(mechanism.release(np.ascontiguousarray(many)))
    return np.concatenate(parts)


def cores() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # pragma: no cover - depends on the system


class Draws:
    """Outputs of a mechanism on one input, with the time they take."""

    __slots__ = ("_batched", "_first", "_input", "_name", "drawn", "seconds")

    def __init__(self, mechanism: Batched, x: Any, name: str) -> None:
        self._batched, self._input, self._name = mechanism, x, name
        self.drawn = 0
        self.seconds = 0.0
        self._first: float | None = None

    def __call__(self, n: int) -> Block:
        """So many independent outputs."""
        start = clock.now()
        try:
            outputs = self._batched.draw(self._input, n)
        except (Exception, SystemExit) as problem:
            # one that ends the process would end the audit without a verdict, and with a status that says "all is well"
            # the auditor's user wrote the mechanism and chose its inputs: what it says may be shown
            raise InvalidData(
                f"the mechanism failed on {self._name}: {type(problem).__name__}: {problem}; "
                "return a value for what goes wrong if that is one of its outputs"
            ) from problem
        block = as_block(outputs, n)
        took = clock.now() - start
        if self._first is None:
            self._first = took / n
        else:
            self.seconds += took
            self.drawn += n
        return block

    @property
    def each(self) -> float:
        """Seconds for one output, as measured so far; a first call may load things and only counts if it is alone."""
        if self.drawn:
            return max(self.seconds / self.drawn, 1e-10)
        return 0.0 if self._first is None else max(self._first, 1e-10)


def numbers_in(block: Block) -> int:
    """About how many numbers one output takes in memory."""
    if isinstance(block, np.ndarray):
        return max(1, block.nbytes // (8 * max(1, len(block))))
    try:
        return max(1, len(pickle.dumps(block[0])) // 8)
    except Exception:  # noqa: BLE001  many things can't be pickled
        return 64


def collect(pair: tuple[Draws, Draws], *, most: int, seconds: float, later: float = 0.0) -> tuple[Block, Block]:
    """Outputs on both inputs, as many of each, until there are enough or the time is over; at least one.

    ``later`` is how many seconds reading one will take. Of large outputs there are no more than memory holds.
    """
    start = clock.now()
    largest = 1
    parts: tuple[list[Block], list[Block]] = ([], [])
    count, step = 0, 1
    while count < most:
        step = min(step, most - count, largest)
        for draws, into in zip(pair, parts, strict=True):
            block = draws(step)
            # a function that fills one array again and again would change what it gave before
            into.append(block.copy() if isinstance(block, np.ndarray) else block)
        if not count:
            numbers = max(map(numbers_in, (parts[0][0], parts[1][0])))
            largest = max(1, LARGEST_BLOCK // numbers)
            most = min(most, max(2, LARGEST_SAMPLE // numbers))
        count += step
        spent = clock.now() - start + 2 * count * later
        if spent >= seconds:
            break
        # twice as many as so far, if they fit into the time that is left
        step = max(1, min(2 * step, int((seconds - spent) * count / max(spent, 1e-9))))
    return joined(parts[0]), joined(parts[1])
