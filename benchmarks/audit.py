"""How long the auditor takes to catch noise that is short, and how near its bound comes to a claim that is right.

Run with ``python benchmarks/audit.py [--budget 60s]``. Seconds are wall-clock on the processors that the process may
use; both are in the table. Results go to ``benchmarks/results/audit.json``.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from dither.audit import Assumption, Batched, lower_bound
from dither.audit.drawing.draws import cores
from dither.audit.lower_bound import seconds_of
from dither.mechanisms import Gaussian, GaussianLoss, Laplace
from dither.privacy import Guarantee, Sensitivity, calibrate

RESULTS = Path(__file__).parent / "results" / "audit.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A mechanism, what it claims, and whether the auditor should object."""

    name: str
    mechanism: Any
    claim: Any
    broken: bool
    delta: float = 0.0
    assuming: Assumption | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What the auditor said."""

    name: str
    claim: str
    expected: str
    verdict: str
    epsilon: float
    draws: int
    cores: int
    seconds: float
    cpu_seconds: float
    event: str


def floats(scale: float, *, gauss: bool = False) -> Batched:
    """Noise added in floating point, as people first write it."""

    def draw(x: float, n: int) -> np.ndarray[Any, Any]:
        rng = np.random.default_rng()
        return x + (rng.normal(0, scale, n) if gauss else rng.laplace(0, scale, n))

    return Batched(draw, copies=True)


def one_by_one(x: float) -> float:
    return x + np.random.laplace()  # noqa: NPY002


def cases() -> list[Case]:
    whole = GaussianLoss(Fraction(1))
    classical = math.sqrt(2 * math.log(1.25e5)) / 12
    twelve = Guarantee(12, 1e-5)
    return [
        *(
            Case(name=f"Laplace, scale {short} short", mechanism=Laplace(scale=scale), claim=1, broken=True)
            for short, scale in (("10%", "0.9"), ("2%", "0.98"), ("1%", "0.99"), ("0.5%", "0.995"))
        ),
        Case(name="Laplace, right", mechanism=Laplace(scale=1), claim=1, broken=False),
        *(
            Case(
                name=f"Gaussian, σ {short} short, its curve", mechanism=Gaussian(scale=scale), claim=whole, broken=True
            )
            for short, scale in (("10%", "0.9"), ("2%", "0.98"), ("1%", "0.99"))
        ),
        Case(name="Gaussian, right, its curve", mechanism=Gaussian(scale=1), claim=whole, broken=False, delta=1e-3),
        Case(name="Laplace in floats, many at once", mechanism=floats(1.0), claim=1, broken=True),
        Case(name="Laplace in floats, one by one", mechanism=one_by_one, claim=1, broken=True),
        Case(
            name="Gaussian, classical constant, assuming normal",
            mechanism=Gaussian(scale=classical),
            claim=twelve,
            broken=True,
            delta=1e-5,
            assuming=Assumption.NORMAL,
        ),
        Case(
            name="Gaussian, calibrated exactly, assuming normal",
            mechanism=calibrate(Gaussian, twelve, Sensitivity.l2(1)),
            claim=twelve,
            broken=False,
            delta=1e-5,
            assuming=Assumption.NORMAL,
        ),
    ]


def audited(case: Case, budget: str) -> Row:
    started = [clock() for clock in CLOCKS]
    found = lower_bound(
        case.mechanism, 0.0, 1.0, claim=case.claim, delta=case.delta, assuming=case.assuming, budget=budget
    )
    wall, cpu = (clock() - start for clock, start in zip(CLOCKS, started, strict=True))
    return Row(
        name=case.name,
        claim=str(found.claim),
        expected="broken" if case.broken else "held",
        verdict=found.verdict.name.lower(),
        epsilon=found.epsilon,
        draws=found.draws,
        cores=1 if case.mechanism is one_by_one else cores(),
        seconds=round(wall, 2),
        cpu_seconds=round(cpu, 2),
        event=found.event,
    )


def processor_seconds() -> float:
    """Of this process and of those that it waited for."""
    import resource

    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


CLOCKS: tuple[Callable[[], float], ...] = (time.perf_counter, processor_seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", default="60s", help="for each mechanism; right ones use all of it")
    parser.add_argument("--only", default="", help="only mechanisms whose name contains this")
    chosen = parser.parse_args()
    seconds_of(chosen.budget)
    rows = []
    for case in cases():
        if chosen.only in case.name:
            print(f"… {case.name}", file=sys.stderr)
            rows.append(audited(case, chosen.budget))
    head = ("mechanism", "claim", "expected", "found", "ε ≥", "draws", "cores", "seconds", "CPU s", "event")
    table = [head]
    for row in rows:
        numbers = (
            f"{row.epsilon:.4f}",
            f"{row.draws:.2e}",
            str(row.cores),
            f"{row.seconds:.1f}",
            f"{row.cpu_seconds:.1f}",
        )
        table.append((row.name, row.claim, row.expected, row.verdict, *numbers, row.event))
    widths = [max(len(line[i]) for line in table) for i in range(len(head))]
    for n, line in enumerate(table):
        print("| " + " | ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) + " |")
        if n == 0:
            print("| " + " | ".join("-" * width for width in widths) + " |")
    document = {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "machine": platform.machine(),
        "budget": chosen.budget,
        "confidence": 0.99,
        "rows": [asdict(row) for row in rows],
    }
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
