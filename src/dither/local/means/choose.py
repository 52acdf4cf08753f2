"""Means of numbers: one bit, Laplace noise, piecewise, hybrid, and which of them to take. Proof in ``means.md``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dither.local.means.mean import UNIT, LocalMean, MeanAggregator, MeanEstimate
from dither.local.means.noisy import LaplaceMean, OneBitMean
from dither.local.means.piecewise import LEAST_HYBRID, HybridMean, PiecewiseMean
from dither.numeric import Number, positive, positive_int

__all__ = [
    "HybridMean",
    "LaplaceMean",
    "LocalMean",
    "MeanAggregator",
    "MeanChoice",
    "MeanEstimate",
    "OneBitMean",
    "PiecewiseMean",
    "best_mean",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanChoice:
    """The protocol that was chosen, and what it was chosen from, the smallest variance first."""

    best: LocalMean
    candidates: tuple[tuple[str, LocalMean, float], ...]

    def __str__(self) -> str:
        rows = [f"{'protocol':<12} {'standard error':>14} {'bytes':>6}"]
        rows += [f"{name:<12} {variance**0.5:>14.3g} {made.width:>6}" for name, made, variance in self.candidates]
        return "\n".join(rows)


MAKERS: dict[str, Callable[[tuple[Number, Number], Number], LocalMean]] = {
    "one bit": OneBitMean.for_epsilon,
    "Laplace": LaplaceMean.for_epsilon,
    "piecewise": PiecewiseMean.for_epsilon,
    "hybrid": HybridMean.for_epsilon,
}


def best_mean(epsilon: Number, n: int = 1_000_000, *, bounds: tuple[Number, Number] = UNIT) -> MeanChoice:
    """The protocol whose largest variance is smallest at ``epsilon``, with the table of all for ``n`` reports.

    Args:
        epsilon: Largest ε that one report may cost (REPLACE).
        n: Number of reports that are expected.
        bounds: Lower and upper bound, stated without looking at the data; what lies outside counts as the nearer one.

    Example:
        >>> [type(best_mean(epsilon).best).__name__ for epsilon in ("1/2", 2)]
        ['OneBitMean', 'HybridMean']
    """
    exact, count = positive(epsilon, "epsilon"), positive_int(n, "n")
    found = []
    for name, make in MAKERS.items():
        if name == "hybrid" and exact <= LEAST_HYBRID:
            continue
        made = make(bounds, exact)
        found.append((name, made, made.variance(count)))
    found.sort(key=lambda one: one[2])
    return MeanChoice(best=found[0][1], candidates=tuple(found))
