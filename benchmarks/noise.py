"""How fast exact noise is, beside numpy's insecure generator and other libraries, in one run.

Run with ``python benchmarks/noise.py``. Every row is a ratio of medians of
interleaved repeats on the same machine, so that a busy machine slows both sides. Libraries that
aren't installed are reported as such. Results go to ``benchmarks/results/noise.json``.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np

from dither.entropy import DiscreteGaussianSampler, DiscreteLaplaceSampler, permute_and_flip, select
from dither.mechanisms.gaussian import Gaussian
from dither.mechanisms.laplace import Laplace
from measure import Row, Section, Work, interleaved, run
from peers import work as peer_work

DRAWS = 1_000_000
SCALES = [1, 100, 1_000_000]
RESULTS = Path(__file__).parent / "results" / "noise.json"


def new_sampler(family: str, scale: int) -> DiscreteLaplaceSampler | DiscreteGaussianSampler:
    if family == "laplace":
        return DiscreteLaplaceSampler(Fraction(scale))
    return DiscreteGaussianSampler(Fraction(scale) ** 2)


def singles(sampler: DiscreteLaplaceSampler | DiscreteGaussianSampler, n: int) -> list[int]:
    return [sampler.one() for _ in range(n)]


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
            peers = {"opendp": peer_work("opendp", "draws", family=family, scale=scale, n=10_000)}
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
        peer = peer_work("diffprivlib", "draws", family=family, scale=scale, n=n)
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


def release_rows(repeats: int) -> list[Row]:
    """Mechanism objects: a float vector on the grid, and one scalar, against numpy's noise added to the same."""
    rng = np.random.default_rng()
    vector = rng.normal(size=DRAWS) * 100
    rows = []
    for mechanism, floor in ((Laplace, rng.laplace), (Gaussian, rng.normal)):
        name = mechanism.__name__
        for scale in SCALES:
            release = mechanism(scale=scale).release
            works: list[tuple[Work, int]] = [
                (partial(release, vector), DRAWS),
                (lambda floor=floor, scale=scale: vector + floor(scale=scale, size=DRAWS), DRAWS),
            ]
            ours, theirs = interleaved(works, repeats)
            what = f"{name} release of {DRAWS:g} floats, scale {scale:g}, each"
            rows.append(Row(name=what, ours_ns=ours, other="numpy (insecure)", other_ns=theirs))
        release = mechanism(scale=3).release
        works = [
            (lambda release=release: [release(41.5) for _ in range(4000)], 4000),
            (lambda floor=floor: [41.5 + floor(0.0, 3.0) for _ in range(4000)], 4000),
        ]
        ours, theirs = interleaved(works, repeats)
        rows.append(Row(name=f"{name} release of one float", ours_ns=ours, other="numpy (insecure)", other_ns=theirs))
    return rows


SECTIONS: list[Section] = [vector_rows, release_rows, scalar_rows, construction_rows, selection_rows]

if __name__ == "__main__":
    run(__doc__ or "", SECTIONS, RESULTS)
