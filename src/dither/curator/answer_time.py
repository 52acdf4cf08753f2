"""Which questions run, so that closing can wait for them, and when each leaves: rounded up, so that times say less."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dither.errors import SourceError

PATIENCE = 0.05


class UnderWay:
    """The questions of one curator that are under way; ``step`` is what the time of each is rounded up to."""

    def __init__(self, step: float = 0.0) -> None:
        self._step = step
        self._change = threading.Condition()
        self._threads: Counter[int] = Counter()
        self.closing = False

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Count a question as running; refused once the curator is being closed."""
        here = threading.get_ident()
        with self._change:
            if self.closing and not self._threads[here]:
                raise SourceError("the curator was closed: open it again")
            self._threads[here] += 1
        try:
            yield
        finally:
            with self._change:
                self._threads[here] -= 1
                if not self._threads[here]:
                    del self._threads[here]
                self._change.notify_all()

    @contextmanager
    def paced(self) -> Iterator[None]:
        """Leave at a multiple of the policy's step after entering; an interrupt leaves at once.

        So the time of an answer says less about the data (Haeberlen, Pierce & Narayan 2011).
        """
        started = time.monotonic()
        with self.under_way():
            try:
                yield
            except Exception:
                self._wait(started)
                raise
            self._wait(started)

    def _wait(self, started: float) -> None:
        if self._step > 0:
            passed = time.monotonic() - started
            time.sleep(self._step - passed % self._step)

    def finish(self, interrupt: Callable[[], None]) -> None:
        """Let no new question begin, stop what runs in other threads, and wait until all of it has ended."""
        here = threading.get_ident()
        with self._change:
            self.closing = True
        while True:
            with self._change:
                if not any(count for thread, count in self._threads.items() if thread != here):
                    return
            interrupt()
            with self._change:
                self._change.wait(PATIENCE)
