"""Rows of ratios: medians of interleaved repeats in one run, so that a busy machine slows both sides."""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import scipy

from peers import PeerWork

Work = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One comparison; times are for one operation as named, in nanoseconds."""

    name: str
    ours_ns: float
    other: str = "-"
    other_ns: float | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        return None if self.other_ns is None else self.other_ns / self.ours_ns


Section = Callable[[int], list[Row]]


def interleaved(works: Sequence[tuple[Work, int]], repeats: int) -> list[float]:
    """Median nanoseconds per operation of each work; each does so many operations in one call."""
    times: list[list[float]] = [[] for _ in works]
    for work, _ in works:
        work()
    for _ in range(repeats):
        for (work, operations), taken in zip(works, times, strict=True):
            start = time.perf_counter_ns()
            work()
            # a peer in another process tells its own time
            passed = work.nanoseconds if isinstance(work, PeerWork) else time.perf_counter_ns() - start
            taken.append(passed / operations)
    return [statistics.median(taken) for taken in times]


def readable(nanoseconds: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.2f} {unit}"
    return f"{nanoseconds:.2f} ns"


def cells(row: Row) -> tuple[str, str, str, str, str, str]:
    """What, ours, beside, time, ratio, note."""
    if row.other == "-":
        return row.name, readable(row.ours_ns), "", "", "", row.note
    if row.other_ns is None or row.ratio is None:
        return row.name, readable(row.ours_ns), row.other, "not installed", "", row.note
    return (
        row.name,
        readable(row.ours_ns),
        row.other,
        readable(row.other_ns),
        f"{row.ratio:.0f} ×" if row.ratio >= 20 else f"{row.ratio:.2f} ×",
        row.note,
    )


def run(description: str, sections: Sequence[Section], results: Path, repeats: int = 9) -> None:
    """Measure, print a Markdown table, write JSON."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--repeats", type=int, default=repeats)
    chosen = parser.parse_args().repeats
    rows: list[Row] = []
    for section in sections:
        print(f"… {section.__name__}", file=sys.stderr)
        rows += section(chosen)
    head = ("what", "dither", "beside", "time", "ratio", "note")
    table = [head, *(cells(row) for row in rows)]
    widths = [max(len(line[i]) for line in table) for i in range(len(head))]
    for n, line in enumerate(table):
        print("| " + " | ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) + " |")
        if n == 0:
            print("| " + " | ".join("-" * width for width in widths) + " |")
    results.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "machine": platform.machine(),
        "repeats": chosen,
        "rows": [{**asdict(row), "ratio": row.ratio} for row in rows],
    }
    results.write_text(json.dumps(document, indent=1) + "\n")
