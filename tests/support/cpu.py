"""Processor seconds of the tests by folder, for the table in CONTRIBUTING: they depend little on what else runs.

A test has what its worker spent while it ran, with the processes that it started and that have ended since.
``DITHER_CPU=file`` also writes every test with its seconds, most first.
"""

import os
import resource
import time
from collections import Counter
from pathlib import Path

import pytest

# what processes spent that have ended, but whose parent, a child of this process, goes on
elsewhere: list[float] = []


def spent():
    """Processor seconds of this process so far, and of processes below it that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime + sum(elsewhere)


class CpuByFolder:
    """A plugin of pytest: workers measure, the process that reports sums up."""

    def __init__(self, depth=2):
        self.depth = depth
        self.tests = Counter()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item, nextitem):
        item.cpu = spent()
        yield

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item, call):
        outcome = yield
        now = spent()
        outcome.get_result().user_properties.append(("cpu", now - item.cpu))
        item.cpu = now

    def pytest_runtest_logreport(self, report):
        # properties pile up over the phases of a test: the last one is this phase's
        self.tests[report.nodeid] += next(
            (seconds for name, seconds in reversed(report.user_properties) if name == "cpu"), 0
        )

    def by_folder(self):
        """The seconds of each folder, most first."""
        folders = Counter()
        for test, seconds in self.tests.items():
            folders["/".join(test.partition("::")[0].split("/")[:-1][: self.depth])] += seconds
        return folders.most_common()

    def pytest_terminal_summary(self, terminalreporter):
        if path := os.environ.get("DITHER_CPU"):
            Path(path).write_text("".join(f"{seconds:.2f}\t{test}\n" for test, seconds in self.tests.most_common()))
        folders = self.by_folder()
        whole = sum(seconds for _, seconds in folders)
        if whole < 60:
            return
        terminalreporter.section("processor seconds by folder")
        for folder, seconds in folders:
            if seconds >= whole / 200:
                terminalreporter.write_line(f"{seconds:7.0f}  {folder}")
        terminalreporter.write_line(f"{whole:7.0f}  in all: {whole / 60:.1f} minutes")
