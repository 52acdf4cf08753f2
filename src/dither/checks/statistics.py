"""The statistical tests behind the conformance suite: each returns a p-value or a bound that holds at a stated α.

With n draws the smallest fault that a test surely notices shrinks like 1/√n; each says which that is.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy import stats

from dither.mechanisms.base import Floats
from dither.numeric.binomial import at_least_down, at_most_up


def chi_square(values: Floats, cdf: Callable[[Floats], Floats], cells: int = 200) -> float:
    """The p-value of Pearson's test of draws against a distribution function, continuous or on the whole numbers.

    Cells are cut at quantiles of one half of the draws, so that the test needn't know the scale; the other half
    is counted. With two million draws it notices a Laplace scale that is 1% off, with 200 000 one that is 3% off.

    Args:
        values: The draws.
        cdf: The distribution function of the law that they should have.
        cells: How many cells the line is cut into.
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
    """The p-value of "the true proportion is at most ``claimed``", from the exact binomial law.

    Args:
        successes: How often it happened.
        trials: Of so many.
        claimed: The largest probability that it may have.
    """
    return float(stats.binom.sf(successes - 1, trials, claimed))


def serial_dependence(values: Floats) -> float:
    """The p-value of "neighbouring draws are independent", from the correlation of their ranks.

    A draw used twice makes it about one half; with 20 000 draws a correlation of 0.05 is noticed at α = 1e-9.
    """
    ranks = stats.rankdata(values[:200_000])
    centred = ranks - ranks.mean()
    spread = float((centred**2).mean())
    if spread == 0:
        return 1.0
    statistic = float((centred[:-1] * centred[1:]).mean()) / spread * math.sqrt(ranks.size - 1)
    return float(2 * stats.norm.sf(abs(statistic)))


def largest_gap(
    first: npt.NDArray[np.generic],
    second: npt.NDArray[np.generic],
    claimed: Callable[[float], float],
    epsilons: Floats,
    alpha: float,
) -> tuple[float, str]:
    """By how much P(S) − e^ε·Q(S) surely exceeds the claimed δ(ε), over events chosen on an eighth of the draws.

    Events: half lines at quantiles and single outcomes that repeat. All Clopper–Pearson bounds hold together with
    probability 1 − α. With two million draws of each it notices Laplace noise 3% too small at ε = 1.

    Args:
        first: Outputs on one input, numbers or indices.
        second: Outputs on its neighbour.
        claimed: The claimed δ for an ε.
        epsilons: Where the claim is looked at.
        alpha: The chance that any bound fails.

    Returns:
        The excess, above 0 for a violation, and the event in words.
    """
    p_draws, q_draws = first[first.size // 8 :], second[second.size // 8 :]
    events = _events(first[: first.size // 8], second[: second.size // 8])
    p_sorted, q_sorted = np.sort(p_draws), np.sort(q_draws)
    level = alpha / (2 * 2 * max(1, len(events)))
    worst, witness = -math.inf, "no event"
    for name, count in events:
        in_p, in_q = count(p_sorted), count(q_sorted)
        for inside, size, others, other_size, way in (
            (in_p, p_sorted.size, in_q, q_sorted.size, ""),
            (in_q, q_sorted.size, in_p, p_sorted.size, " (reversed)"),
        ):
            low, high = at_least_down(inside, size, level), at_most_up(others, other_size, level)
            for epsilon in epsilons:
                excess = low - math.exp(float(epsilon)) * high - claimed(float(epsilon))
                if excess > worst:
                    worst, witness = excess, f"{name}{way} at ε = {float(epsilon):.4g}"
    return worst, witness


def gap_missed(
    p: float, q: float, *, draws: int, epsilon: float, delta: float, events: int, alpha: float = 1e-9
) -> float:
    """An upper bound of the chance that ``largest_gap`` finds nothing, though it looks at S with P(S) = p, Q(S) = q.

    ``draws`` of each, of which seven eighths are counted; ``events`` is how many are looked at. With X and Y in S, a
    gap is missed only if X is below some x or Y above the largest y for which x and y still show one: the law of both
    is binomial, and every x gives a bound. The best is returned.

    Example:
        >>> truth, lie = 3 / 4, 1 / 4  # of ε = ln 3, claimed to be 0.6 times that
        >>> gap_missed(truth, lie, draws=20_000, epsilon=0.659, delta=1e-3, events=6) < 1e-6
        True
        >>> gap_missed(truth, lie, draws=2_000, epsilon=0.659, delta=1e-3, events=6) < 1e-6
        False
    """
    n, level = draws - draws // 8, alpha / (4 * events)
    best = 1.0
    for deviations in np.linspace(0.5, 12.0, 47):
        x = int(n * p - deviations * math.sqrt(n * p * (1 - p)))
        room = (at_least_down(x, n, level) - delta) * math.exp(-epsilon) if x > 0 else 0.0
        # the largest number of the others that still leaves a gap
        low, high = -1, n - 1
        while low < high:
            middle = (low + high + 1) // 2
            shows = at_most_up(middle, n, level) < room
            low, high = (middle, high) if shows else (low, middle - 1)
        if low >= 0:
            best = min(best, float(stats.binom.cdf(x - 1, n, p) + stats.binom.sf(low, n, q)))
    return best


Count = Callable[[npt.NDArray[np.generic]], int]


def _events(first: npt.NDArray[np.generic], second: npt.NDArray[np.generic]) -> list[tuple[str, Count]]:
    """Names of events, and how many of sorted outputs lie in each."""
    both = np.concatenate([first, second])
    values, counts = np.unique(both, return_counts=True)
    events: list[tuple[str, Count]] = []
    if values.size <= 64:
        events += [(f"output = {value}", _equal(value)) for value in values[counts > 20]]
    for cut in np.unique(np.quantile(both.astype(np.float64), np.linspace(0.02, 0.98, 49))):
        events += [(f"output ≤ {cut:.6g}", _below(float(cut))), (f"output > {cut:.6g}", _above(float(cut)))]
    return events


def _equal(value: np.generic) -> Count:
    return lambda y: int(np.searchsorted(y, value, side="right") - np.searchsorted(y, value, side="left"))


def _below(cut: float) -> Count:
    return lambda y: int(np.searchsorted(y, cut, side="right"))


def _above(cut: float) -> Count:
    return lambda y: y.size - int(np.searchsorted(y, cut, side="right"))
