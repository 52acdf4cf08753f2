"""Audits keep a budget of time, so what they find depends on how busy the machine is. In these tests it doesn't.

``audits_by_processor_time`` sees to that. A test that is about time or copies takes ``wall_clock`` or ``own_clock``. A
test that must find something within its budget takes ``counted_time``: each draw has its price, so that there are as
many of them on every machine.
"""

import sys

import numpy as np
import pytest

from dither.audit.drawing import clock
from dither.audit.queries.answers import Asking


@pytest.fixture
def wall_clock():
    """Real time."""


class OwnClock:
    """Time that passes only when a test says so."""

    def __init__(self):
        self.passed = 0.0

    def now(self):
        return self.passed


@pytest.fixture
def own_clock(monkeypatch):
    mine = OwnClock()
    monkeypatch.setattr(clock, "now", mine.now)
    return mine


class CountedClock(OwnClock):
    """Time that passes by draws; a look at the clock takes a little, so that nothing waits for ever."""

    LOOK = 1e-5
    # about what they take: a number of an array, an object of a list, an answer of a curator
    IN_ARRAY, IN_LIST, ANSWER = 2e-7, 1e-5, 2e-2

    def now(self):
        self.passed += self.LOOK
        return self.passed


@pytest.fixture
def counted_time(monkeypatch):
    mine, sampling = CountedClock(), sys.modules["dither.audit.drawing.draws"]
    as_block, once = sampling.as_block, Asking.once

    def counted(outputs, n):
        mine.passed += outputs.size * mine.IN_ARRAY if isinstance(outputs, np.ndarray) else n * mine.IN_LIST
        return as_block(outputs, n)

    def asked(side):
        mine.passed += mine.ANSWER
        return once(side)

    monkeypatch.setattr(sampling, "as_block", counted)
    monkeypatch.setattr(Asking, "once", asked)
    monkeypatch.setattr(clock, "now", mine.now)
    monkeypatch.setattr(sys.modules["dither.audit.lower_bound"], "cores", lambda: 1)
    return mine


@pytest.fixture(autouse=True)
def _processor_time(request):
    if not {"wall_clock", "own_clock", "counted_time"} & set(request.fixturenames):
        request.getfixturevalue("audits_by_processor_time")
