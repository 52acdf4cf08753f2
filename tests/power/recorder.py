"""A pytest plugin that writes down what statistical tests compare, while they run.

    PYTHONPATH=tests/power python -m pytest -p recorder -o enable_assertion_pass_hook=true --power=FILE tests/noise

Each line of the file is one comparison of one test: ``[test, line, what, value, limit, drew, run]``. ``what`` is
the comparison's sign for an assertion between two numbers, ``p`` for a p-value that scipy worked out for the test, or
``gap`` for the excess that ``largest_gap`` found. ``measure.py`` makes the table of several runs.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from scipy import stats

from dither.checks import mechanism, statistics
from dither.entropy import source

NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|inf)"
SIDE = rf"(?:np\.\w+\()?({NUMBER})\)?"
COMPARED = re.compile(rf"^\(?{SIDE} (<=|>=|<|>) {SIDE}\)?(?: (<=|>=|<|>) {SIDE}\)?)?")
HERE = Path(__file__).resolve().parents[2]
P_VALUES = ("binomtest", "ks_2samp", "ks_1samp", "chisquare", "kstest")


class Recorder:
    """What was compared since the test began, and how many bytes of noise were drawn."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.test = ""
        self.drew = self.run = 0
        self.rows: list[list[Any]] = []

    def add(self, line: int, what: str, value: float, limit: float) -> None:
        if self.test:
            self.rows.append([self.test, line, what, value, limit])

    def caller(self) -> int:
        """The line of the test's own file that is being run."""
        frame, file = sys._getframe(2), self.test.split("::")[0]
        while frame is not None:
            if frame.f_code.co_filename.endswith(file):
                return frame.f_lineno
            frame = frame.f_back  # type: ignore[assignment]
        return 0

    def flush(self) -> None:
        with self.path.open("a") as out:
            for row in self.rows or [[self.test, 0, "", 0.0, 0.0]]:
                out.write(json.dumps([*row, self.drew, self.run]) + "\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--power", help="write what statistical tests compare to this file")
    parser.addoption("--power-runs", type=int, default=1, help="run every test so often")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--power")
    if path:
        config.stash[RECORDER] = recorder = Recorder(Path(path))
        _watch(recorder)


RECORDER: pytest.StashKey[Recorder] = pytest.StashKey()


def _watch(recorder: Recorder) -> None:
    """Notes noise that is drawn, and p-values and gaps as they are worked out."""
    drawn = source._system_bytes

    def system_bytes(nbytes: int) -> bytes:
        recorder.drew += nbytes
        return drawn(nbytes)

    source._system_bytes = system_bytes

    def watched(function: Any, name: str) -> Any:
        def inner(*args: Any, **kwargs: Any) -> Any:
            found = function(*args, **kwargs)
            value = getattr(found, "pvalue", found)
            # scipy's own calls of one another are no test's p-values
            if "scipy" in sys._getframe(1).f_code.co_filename:
                return found
            if isinstance(value, tuple):
                recorder.add(recorder.caller(), "gap", float(value[0]), 0.0)
            elif getattr(value, "ndim", 0) == 0 and 0 <= float(value) <= 1:
                recorder.add(recorder.caller(), "p", float(value), 1e-9)
            return found

        inner.__name__ = name
        return inner

    for name in P_VALUES:
        setattr(stats, name, watched(getattr(stats, name), name))
    for law in (stats.binom, stats.chi2, stats.norm, stats.poisson):
        law.sf = watched(law.sf, "sf")
        law.cdf = watched(law.cdf, "cdf")
    for name in ("largest_gap",):
        for module in (statistics, mechanism):
            if hasattr(module, name):
                setattr(module, name, watched(getattr(module, name), name))


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    recorder = item.config.stash.get(RECORDER, None)
    runs = item.config.getoption("--power-runs")
    if recorder is None or runs < 2:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for recorder.run in range(runs):
        item._initrequest()  # type: ignore[attr-defined]
        last = recorder.run == runs - 1
        runtestprotocol(item, log=last, nextitem=nextitem)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    recorder = item.config.stash.get(RECORDER, None)
    if recorder is None:
        yield
        return
    recorder.test, recorder.drew, recorder.rows = item.nodeid, 0, []
    yield
    # numpy's generators aren't watched: what they made is seen by its varying from run to run
    if recorder.drew or recorder.rows:
        recorder.flush()
    recorder.test = ""


def pytest_assertion_pass(item: pytest.Item, lineno: int, orig: str, expl: str) -> None:
    recorder = item.config.stash.get(RECORDER, None)
    match = COMPARED.match(expl) if recorder is not None else None
    if recorder is None or match is None or len(recorder.rows) > 2000:
        return
    first, sign, second, again, third = match.groups()
    recorder.add(lineno, sign, float(first), float(second))
    if again:
        recorder.add(lineno, again, float(second), float(third))
