"""Counts and times of requests, in the text format that Prometheus reads. No question, answer or name is in them."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """How often what happened, and how long it took."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._times: dict[str, list[int]] = {}
        self._sums: Counter[str] = Counter()

    def count(self, what: str, outcome: str) -> None:
        """One more of ``what`` with this outcome."""
        with self._lock:
            self._counts[what, outcome] += 1

    def observe(self, what: str, outcome: str, seconds: float) -> None:
        """One more of ``what``, and how long it took."""
        with self._lock:
            self._counts[what, outcome] += 1
            self._times.setdefault(what, [0] * (len(BOUNDS) + 1))[bisect_left(BOUNDS, seconds)] += 1
            self._sums[what] += seconds  # type: ignore[assignment]

    def text(self, gauges: Mapping[str, float]) -> str:
        """Everything so far, and the gauges given, in Prometheus's text format."""
        with self._lock:
            counts, times = dict(self._counts), {what: list(found) for what, found in self._times.items()}
            sums = dict(self._sums)
        lines = ["# HELP dither_requests_total Requests by kind and outcome.", "# TYPE dither_requests_total counter"]
        lines += [
            f'dither_requests_total{{what="{what}",outcome="{outcome}"}} {number}'
            for (what, outcome), number in sorted(counts.items())
        ]
        lines += ["# HELP dither_seconds How long requests took.", "# TYPE dither_seconds histogram"]
        for what, found in sorted(times.items()):
            below = 0
            for bound, number in zip(BOUNDS, found, strict=False):
                below += number
                lines.append(f'dither_seconds_bucket{{what="{what}",le="{bound:g}"}} {below}')
            total = sum(found)
            lines.append(f'dither_seconds_bucket{{what="{what}",le="+Inf"}} {total}')
            lines.append(f'dither_seconds_sum{{what="{what}"}} {sums[what]:.6f}')
            lines.append(f'dither_seconds_count{{what="{what}"}} {total}')
        for name, value in sorted(gauges.items()):
            lines += [f"# TYPE dither_{name} gauge", f"dither_{name} {value:g}"]
        return "\n".join(lines) + "\n"
