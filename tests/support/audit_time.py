"""Clocks for audits that count what is done instead of seconds: an audit then finds the same on every machine."""

from importlib import import_module

import numpy as np


class OwnClock:
    """Time that passes only when a test says so."""

    def __init__(self):
        self.passed = 0.0

    def now(self):
        return self.passed


class CountedClock(OwnClock):
    """Time that passes by draws; a look at the clock takes a little, so that nothing waits for ever."""

    LOOK = 1e-5
    # about what they take: a number of an array, an object of a list, an answer of a curator
    IN_ARRAY, IN_LIST, ANSWER = 2e-7, 1e-5, 2e-2

    def now(self):
        self.passed += self.LOOK
        return self.passed


def count(monkeypatch):
    """Have audits in this process keep their time by a ``CountedClock``; one process does all the work."""
    mine, sampling = CountedClock(), import_module("dither.audit.drawing.draws")
    asking = import_module("dither.audit.queries.answers").Asking
    as_block, once = sampling.as_block, asking.once

    def counted(outputs, n):
        mine.passed += outputs.size * mine.IN_ARRAY if isinstance(outputs, np.ndarray) else n * mine.IN_LIST
        return as_block(outputs, n)

    def asked(side):
        mine.passed += mine.ANSWER
        return once(side)

    monkeypatch.setattr(sampling, "as_block", counted)
    monkeypatch.setattr(asking, "once", asked)
    monkeypatch.setattr(import_module("dither.audit.drawing.clock"), "now", mine.now)
    monkeypatch.setattr(import_module("dither.audit.lower_bound"), "cores", lambda: 1)
    return mine
