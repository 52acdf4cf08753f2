"""Audits keep a budget of time, so what they find depends on how busy the machine is. In these tests it doesn't.

``audits_by_processor_time`` sees to that. A test that is about time or copies takes ``wall_clock`` or ``own_clock``. A
test that must find something within its budget takes ``counted_time``: each draw has its price, so that there are as
many of them on every machine.
"""

import pytest

from dither.audit.drawing import clock
from support.audit_time import OwnClock


@pytest.fixture
def wall_clock():
    """Real time."""


@pytest.fixture
def own_clock(monkeypatch):
    mine = OwnClock()
    monkeypatch.setattr(clock, "now", mine.now)
    return mine


@pytest.fixture(autouse=True)
def _processor_time(request):
    if not {"wall_clock", "own_clock", "counted_time"} & set(request.fixturenames):
        request.getfixturevalue("audits_by_processor_time")
