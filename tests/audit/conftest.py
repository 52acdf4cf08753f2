"""Audits keep a budget of time, so what they find depends on how busy the machine is. In these tests it doesn't.

Time is what the processor spent on this test, or a twentieth of the time that passed, whichever is more, and one
process does all the work, as the time of copies isn't seen. A test that is about time or copies takes ``wall_clock`` or
``own_clock``.
"""

import sys
import time

import pytest

from dither.audit import clock


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


@pytest.fixture(autouse=True)
def _processor_time(request, monkeypatch):
    if {"wall_clock", "own_clock"} & set(request.fixturenames):
        return
    wall, used = time.perf_counter(), time.process_time()
    monkeypatch.setattr(sys.modules["dither.audit.lower_bound"], "cores", lambda: 1)
    monkeypatch.setattr(clock, "now", lambda: max(time.process_time() - used, (time.perf_counter() - wall) / 20))
