"""What OpenDP is asked for."""

from collections.abc import Callable

import opendp.prelude as dp
from accuracy import HIGH, Rows, answering

dp.enable_features("contrib")


def draws(family: str, scale: int, n: int) -> Callable[[], object]:
    """A vector release of zeros by the exact integer mechanism."""
    distance = dp.l1_distance(T=int) if family == "laplace" else dp.l2_distance(T=float)
    space = dp.vector_domain(dp.atom_domain(T=int)), distance
    make = dp.m.make_laplace if family == "laplace" else dp.m.make_gaussian
    mechanism = make(*space, scale=float(scale))
    zeros = [0] * n
    return lambda: mechanism(zeros)


# ---------------------------------------------------------------------------------------------- accuracy


def _noisy(values: list[float], scale: float) -> list[float]:
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l1_distance(T=float)
    found: list[float] = dp.m.make_laplace(*space, scale=scale)(values)
    return found


def _sums_and_counts(
    rows: Rows, groups: int, each: int, epsilon: float, delta: float
) -> tuple[list[float], list[float]]:
    """Both have half of ε; a mean is a quotient of them."""
    del delta
    sums = _noisy(rows.sums.tolist(), groups * each * HIGH / (epsilon / 2))
    return sums, _noisy(rows.counts.astype(float).tolist(), groups * each / (epsilon / 2))


def _mean(found: Rows, *, groups: int, rows: int, epsilon: float, delta: float) -> dict[int, list[float]]:
    sums, counts = _sums_and_counts(found, groups, rows, epsilon, delta)
    return {key: [sums[key], sums[key] / max(counts[key], 1.0)] for key in range(found.keys)}


def _three(found: Rows, **terms: float) -> dict[int, list[float]]:
    sums, counts = _sums_and_counts(found, terms["groups"], terms["rows"], terms["epsilon"], terms["delta"])
    return {key: [sums[key], sums[key] / max(counts[key], 1.0), counts[key]] for key in range(found.keys)}


def _count(found: Rows, *, groups: int, rows: int, epsilon: float, delta: float) -> dict[int, list[float]]:
    del delta
    counts = _noisy(found.counts.astype(float).tolist(), groups * rows / epsilon)
    return {key: [counts[key]] for key in range(found.keys)}


def _sum(found: Rows, *, groups: int, rows: int, epsilon: float, delta: float) -> dict[int, list[float]]:
    del delta
    sums = _noisy(found.sums.tolist(), groups * rows * HIGH / epsilon)
    return {key: [sums[key]] for key in range(found.keys)}


def _discovered(found: Rows, *, groups: int, rows: int, epsilon: float, delta: float) -> dict[int, list[float]]:
    """Counts above the least threshold for δ, of which a unit moves so many by so much."""
    space = dp.map_domain(dp.atom_domain(T=int), dp.atom_domain(T=int)), dp.l01inf_distance(dp.absolute_distance(T=int))
    moved = (groups, groups * rows, rows)
    low, high = 1, 100_000
    while low < high:
        middle = (low + high) // 2
        private = dp.m.make_laplace_threshold(*space, scale=groups * rows / epsilon, threshold=middle).map(moved)
        low, high = (low, middle) if private[1] <= delta else (middle + 1, high)
    mechanism = dp.m.make_laplace_threshold(*space, scale=groups * rows / epsilon, threshold=low)
    shown = mechanism({key: int(count) for key, count in enumerate(found.counts) if count})
    return {key: [float(count)] for key, count in shown.items()}


accuracy = answering({"mean": _mean, "three": _three, "count": _count, "sum": _sum, "discovered": _discovered})
