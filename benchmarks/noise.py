"""How fast exact noise is, beside numpy's insecure generator and other libraries, in one run.

Run with ``PYTHONPATH=src python benchmarks/noise.py``. Every row is a ratio of medians of
interleaved repeats on the same machine, so that a busy machine slows both sides. Libraries that
aren't installed are reported as such. Results go to ``benchmarks/results/noise.json``.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np

from dither.entropy import (
    DiscreteGaussianSampler,
    DiscreteLaplaceSampler,
    permute_and_flip,
    select,
)

DRAWS = 1_000_000
SCALES = [1, 100, 1_000_000]
RESULTS = Path(__file__).parent / "results" / "noise.json"

Work = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One comparison; times are for one operation as named, in nanoseconds."""

    name: str
    ours_ns: float
    other: str
    other_ns: float | None

    @property
    def ratio(self) -> float | None:
        return None if self.other_ns is None else self.other_ns / self.ours_ns


def interleaved(works: list[tuple[Work, int]], repeats: int) -> list[float]:
    """Median nanoseconds per operation of each work; each does so many operations in one call."""
    times: list[list[float]] = [[] for _ in works]
    for work, _ in works:
        work()
    for _ in range(repeats):
        for (work, operations), taken in zip(works, times, strict=True):
            start = time.perf_counter_ns()
            work()
            taken.append((time.perf_counter_ns() - start) / operations)
    return [statistics.median(taken) for taken in times]


def new_sampler(family: str, scale: int) -> DiscreteLaplaceSampler | DiscreteGaussianSampler:
    if family == "laplace":
        return DiscreteLaplaceSampler(Fraction(scale))
    return DiscreteGaussianSampler(Fraction(scale) ** 2)


def singles(sampler: DiscreteLaplaceSampler | DiscreteGaussianSampler, n: int) -> list[int]:
    return [sampler.one() for _ in range(n)]


def opendp_draws(family: str, scale: int, n: int) -> Work | None:
    """A vector release of zeros by OpenDP's exact integer mechanism."""
    try:
        import opendp.prelude as dp
    except ImportError:
        return None
    dp.enable_features("contrib")
    distance = dp.l1_distance(T=int) if family == "laplace" else dp.l2_distance(T=float)
    space = dp.vector_domain(dp.atom_domain(T=int)), distance
    make = dp.m.make_laplace if family == "laplace" else dp.m.make_gaussian
    mechanism = make(*space, scale=float(scale))
    zeros = [0] * n
    return lambda: mechanism(zeros)


def diffprivlib_draws(family: str, scale: int, n: int) -> Work | None:
    """Scalar releases by diffprivlib's mechanism of the same law (Laplace: geometric)."""
    with suppress(ImportError):
        import diffprivlib  # noqa: F401  its models may want another scikit-learn; mechanisms don't
    try:
        from diffprivlib.mechanisms import GaussianDiscrete, Geometric
    except ImportError:
        return None
    if family == "laplace":
        mechanism = Geometric(epsilon=1 / scale, sensitivity=1)
    else:
        # Its scale follows from epsilon and delta by a search; the speed hardly depends on it.
        mechanism = GaussianDiscrete(epsilon=min(0.9, 4 / scale), delta=1e-4, sensitivity=1)
    return lambda: [mechanism.randomise(0) for _ in range(n)]


def vector_rows(repeats: int) -> list[Row]:
    """Exact integer draws against numpy's floor and OpenDP."""
    rng = np.random.default_rng()
    rows = []
    for family in ("laplace", "gaussian"):
        for scale in SCALES:
            floor = rng.laplace if family == "laplace" else rng.normal
            works: list[tuple[Work, int]] = [
                (partial(new_sampler(family, scale).sample, DRAWS), DRAWS),
                (partial(floor, scale=scale, size=DRAWS), DRAWS),
            ]
            peers = {"opendp": opendp_draws(family, scale, 10_000)}
            works += [(work, 10_000) for work in peers.values() if work is not None]
            times = iter(interleaved(works, repeats))
            name = f"discrete {family}, scale {scale:g}, per draw of {DRAWS:g}"
            mine = next(times)
            rows.append(Row(name=name, ours_ns=mine, other="numpy (insecure)", other_ns=next(times)))
            rows += [
                Row(name=name, ours_ns=mine, other=peer, other_ns=next(times) if work else None)
                for peer, work in peers.items()
            ]
    return rows


def scalar_rows(repeats: int) -> list[Row]:
    """One draw at a time, from the pool."""
    rows = []
    for family in ("laplace", "gaussian"):
        scale, n = 100, 4_000
        works: list[tuple[Work, int]] = [(partial(singles, new_sampler(family, scale), n), n)]
        peer = diffprivlib_draws(family, scale, n)
        if peer is not None:
            works.append((peer, n))
        times = interleaved(works, repeats)
        rows.append(
            Row(
                name=f"discrete {family}, scale {scale}, one draw",
                ours_ns=times[0],
                other="diffprivlib",
                other_ns=times[1] if peer is not None else None,
            )
        )
    return rows


def construction_rows(repeats: int) -> list[Row]:
    """A sampler for a scale never seen before, tables included; there is nothing to compare with."""
    rows = []
    for scale in SCALES:
        works: list[tuple[Work, int]] = [
            (partial(new_sampler, "laplace", scale), 1),
            (partial(new_sampler, "gaussian", scale), 1),
        ]
        names = (f"new Laplace sampler, scale {scale:g}", f"new Gaussian sampler, scale {scale:g}")
        for name, taken in zip(names, interleaved(works, repeats), strict=True):
            rows.append(Row(name=name, ours_ns=taken, other="-", other_ns=None))
    return rows


def selection_rows(repeats: int) -> list[Row]:
    """The exponential mechanism over a million scores, against Gumbel noise in floats (not exact)."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=DRAWS) * 10
    weights = rng.integers(1, 1000, size=DRAWS)
    works: list[tuple[Work, int]] = [
        (lambda: select(scores, Fraction(1)), 1),
        (lambda: select(scores, Fraction(1), weights=weights), 1),
        (lambda: permute_and_flip(scores, Fraction(1)), 1),
        (lambda: np.argmax(scores + rng.gumbel(size=DRAWS)), 1),
    ]
    plain, weighted, flipped, noisy = interleaved(works, repeats)
    other = "numpy gumbel (insecure, inexact)"
    return [
        Row(name="exponential mechanism, 1e6 scores", ours_ns=plain, other=other, other_ns=noisy),
        Row(name="the same, weighted", ours_ns=weighted, other=other, other_ns=noisy),
        Row(name="permute-and-flip, 1e6 scores", ours_ns=flipped, other=other, other_ns=noisy),
    ]


# Rows for releases by mechanism objects (float vectors on a grid, scalars) belong in SECTIONS, as
# functions from repeats to rows like the ones above.
SECTIONS: list[Callable[[int], list[Row]]] = [
    vector_rows,
    scalar_rows,
    construction_rows,
    selection_rows,
]


def readable(nanoseconds: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.2f} {unit}"
    return f"{nanoseconds:.2f} ns"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    repeats = parser.parse_args().repeats
    rows = [row for section in SECTIONS for row in section(repeats)]
    print(f"{'what':<48} {'dither':>11}   {'beside':<34} {'time':>11} {'ratio':>8}")
    for row in rows:
        other = "" if row.other == "-" else "not installed"
        if row.other_ns is not None and row.ratio is not None:
            other = f"{readable(row.other_ns):>11} {row.ratio:>7.1f}×"
        print(f"{row.name:<48} {readable(row.ours_ns):>11}   {row.other:<34} {other}")
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": platform.machine(),
        "repeats": repeats,
        "rows": [{**asdict(row), "ratio": row.ratio} for row in rows],
    }
    RESULTS.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
