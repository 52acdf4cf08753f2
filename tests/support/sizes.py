"""How much of a test runs: a short form in ``make test``, everything in ``make nightly``. Nothing is lost."""

import os
from collections.abc import Sequence
from typing import TypeVar

import pytest
from hypothesis import settings

Case = TypeVar("Case")
NIGHTLY = bool(os.environ.get("DITHER_NIGHTLY"))

# on a test or a parameter: only in the night
at_night = pytest.mark.nightly


def short_or_full(short: int, full: int) -> int:
    """So many repeats, rows or seeds by day, and so many in the night."""
    return full if NIGHTLY else short


def some(cases: Sequence[Case], every: int) -> list[Case]:
    """All cases in the night, by day every so many, among them the first and the last."""
    return (
        list(cases)
        if NIGHTLY
        else [case for place, case in enumerate(cases) if place % every == 0 or case is cases[-1]]
    )


def examples(short: int, full: int) -> settings:
    """Settings of hypothesis for so many examples."""
    return settings(max_examples=short_or_full(short, full))
