"""The statistical tests behind the conformance suite: each returns a p-value or a bound that holds at a stated α.

With n draws the smallest fault that a test surely notices shrinks like 1/√n; each says which that is.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy import stats

Floats = npt.NDArray[np.float64]


def chi_square(values: Floats, cdf: Callable[[Floats], Floats], cells: int = 200) -> float:
    """The p-value of Pearson's test of draws against a distribution function, continuous or on the whole numbers.

    Cells are cut at quantiles of the draws' own half, so that the test needs no knowledge of the scale; the other half is
    counted. With 200 000 draws it notices a Laplace scale that is 3% off with probability above 1 − 1e-9 at α = 1e-9.
    """
    half = values.size // 2
    edges = np.unique(np.quantile(values[:half], np.linspace(0, 1, cells + 1)[1:-1]))
    if np.all(np.equal(np.mod(values[: min(half, 1000)], 1), 0)):
        edges = np.unique(np.floor(edges))
    expected = np.diff(np.concatenate([[0.0], cdf(edges), [1.0]])) * (values.size - half)
    counted = np.bincount(np.searchsorted(edges, values[half:], side="left"), minlength=edges.size + 1)
    return _pearson(counted.astype(np.float64), expected)


def chi_square_counts(counted: Floats, probabilities: Floats) -> float:
    """The p-value of Pearson's test of counts against probabilities."""
    return _pearson(counted, probabilities * counted.sum())


def _pearson(counted: Floats, expected: Floats) -> float:
    if np.any((expected <= 0) & (counted > 0)):
        return 0.0
    order = np.argsort(-expected)
    counted, expected = counted[order], expected[order]
    large = max(1, int(np.searchsorted(-expected, -10.0, side="right")))
    # cells with few expected draws are pooled into one
    pooled = [*zip(counted[:large], expected[:large], strict=True), (counted[large:].sum(), expected[large:].sum())]
    seen = np.array([pair for pair in pooled if pair[1] > 0])
    if seen.shape[0] < 2:
        return 1.0
    if seen[-1, 1] < 10:
        seen[-2] += seen[-1]
        seen = seen[:-1]
    statistic = float((((seen[:, 0] - seen[:, 1]) ** 2) / seen[:, 1]).sum())
    return float(stats.chi2.sf(statistic, max(1, seen.shape[0] - 1)))


def proportion_at_most(successes: int, trials: int, claimed: float) -> float:
    """The p-value of "the true proportion is at most ``claimed``", from the exact binomial law."""
    return float(stats.binom.sf(successes - 1, trials, claimed))


def serial_dependence(values: Floats) -> float:
    """The p-value of "neighbouring draws are independent", from the correlation of their ranks.

    A draw used twice makes it about one half; with 20 000 draws a correlation of 0.05 is noticed at α = 1e-9.
    """
    ranks = stats.rankdata(values)
    centred = ranks - ranks.mean()
    spread = float((centred**2).mean())
    if spread == 0:
        return 1.0
    statistic = float((centred[:-1] * centred[1:]).mean()) / spread * math.sqrt(values.size - 1)
    return float(2 * stats.norm.sf(abs(statistic)))


def largest_gap(
    first: npt.NDArray[np.generic],
    second: npt.NDArray[np.generic],
    claimed: Callable[[float], float],
    epsilons: Floats,
    alpha: float,
) -> tuple[float, str]:
    """By how much P(S) − e^ε·Q(S) surely exceeds the claimed δ(ε), over events chosen on a half of the draws.

    ``first`` and ``second`` are outputs on two neighbours, numbers or indices. Events: half lines at quantiles and single
    outcomes that repeat. All Clopper–Pearson bounds hold together with probability 1 − α; a positive result is a violation.
    """
    events = _events(first[: first.size // 2], second[: second.size // 2])
    p_draws, q_draws = first[first.size // 2 :], second[second.size // 2 :]
    level = alpha / (2 * 2 * max(1, len(events)))
    worst, witness = -math.inf, "no event"
    for name, event in events:
        inside_p, inside_q = int(event(p_draws).sum()), int(event(q_draws).sum())
        for a, n_a, b, n_b, way in (
            (inside_p, p_draws.size, inside_q, q_draws.size, ""),
            (inside_q, q_draws.size, inside_p, p_draws.size, " (reversed)"),
        ):
            low = float(stats.beta.ppf(level, a, n_a - a + 1)) if a else 0.0
            high = float(stats.beta.ppf(1 - level, b + 1, n_b - b)) if b < n_b else 1.0
            for epsilon in epsilons:
                excess = low - math.exp(float(epsilon)) * high - claimed(float(epsilon))
                if excess > worst:
                    worst, witness = excess, f"{name}{way} at ε = {float(epsilon):.4g}"
    return worst, witness


def _events(
    first: npt.NDArray[np.generic], second: npt.NDArray[np.generic]
) -> list[tuple[str, Callable[[npt.NDArray[np.generic]], npt.NDArray[np.bool_]]]]:
    both = np.concatenate([first, second])
    values, counts = np.unique(both, return_counts=True)
    events: list[tuple[str, Callable[[npt.NDArray[np.generic]], npt.NDArray[np.bool_]]]] = []
    if values.size <= 64:
        for value in values[counts > 20]:
            events.append((f"output = {value}", lambda y, v=value: np.asarray(y == v)))
    cuts = np.unique(np.quantile(both.astype(np.float64), np.linspace(0.02, 0.98, 49)))
    for cut in cuts:
        events.append((f"output ≤ {cut:.6g}", lambda y, c=cut: np.asarray(y <= c)))
        events.append((f"output > {cut:.6g}", lambda y, c=cut: np.asarray(y > c)))
    return events
