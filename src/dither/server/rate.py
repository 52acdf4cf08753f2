"""Rate limits: a bucket of requests for each analyst, which fills up again with time."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable


class Rate:
    """How often each name may ask: ``rate`` a second in the long run, ``burst`` at once.

    Example:
        >>> now = [0.0]
        >>> limit = Rate(rate=1.0, burst=2, clock=lambda: now[0])
        >>> [limit.wait("ana") for _ in range(3)]
        [0, 0, 1]
        >>> now[0] = 1.0
        >>> limit.wait("ana"), limit.wait("ana")
        (0, 1)
    """

    def __init__(self, *, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, float(burst), clock
        self._left: dict[str, tuple[float, float]] = {}
        self._lock = threading.Lock()

    def wait(self, name: str) -> int:
        """0 if the name may go on, which counts; else for how many whole seconds to wait, which doesn't."""
        with self._lock:
            now = self._clock()
            left, at = self._left.get(name, (self._burst, now))
            left = min(self._burst, left + (now - at) * self._rate)
            if left < 1:
                self._left[name] = (left, now)
                return math.ceil((1 - left) / self._rate)
            self._left[name] = (left - 1, now)
            return 0
