"""Rate limits: a bucket of requests for each analyst, which fills up again with time."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

# of a text, so many characters count as one request: they take about as long to read
CHARACTERS_EACH = 1000


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

    def wait(self, name: str, more: int = 0) -> int:
        """0 if the name may go on, which counts; else for how many whole seconds to wait, which doesn't.

        ``more`` is by how much more than one it counts, as far as there is so much left: otherwise what is large could
        never be asked for.
        """
        with self._lock:
            now = self._clock()
            left, at = self._left.get(name, (self._burst, now))
            left = min(self._burst, left + (now - at) * self._rate)
            if left < 1:
                self._left[name] = (left, now)
                return math.ceil((1 - left) / self._rate)
            self._left[name] = (left - 1 - min(more, left - 1), now)
            return 0

    def spend(self, name: str, amount: float) -> None:
        """Count what is known only now; where it is more than is left, the rest has to be waited for."""
        with self._lock:
            now = self._clock()
            left, at = self._left.get(name, (self._burst, now))
            self._left[name] = (min(self._burst, left + (now - at) * self._rate) - amount, now)
