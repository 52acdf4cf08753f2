"""What the statistical tests of noise share: closed-form laws and one goodness-of-fit test.

Every test compares with ``ALPHA`` = 1e-9 and never retries, so that one false alarm is expected in
a billion runs. A test without power is worthless: each also runs on a mutant, a sampler with the
fault that the test exists to catch, and must reject it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

ALPHA = 1e-9
_FEWEST_EXPECTED = 10.0

Cdf = Callable[[NDArray[np.int64]], NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class Statistics:
    """Closed-form laws of integer noise, and p-values against them."""

    alpha: float = ALPHA

    @staticmethod
    def laplace_cdf(scale: float) -> Cdf:
        rate = 1 / scale

        def cdf(k: NDArray[np.int64]) -> NDArray[np.float64]:
            upper = 1 - np.exp(-rate * (np.maximum(k, 0) + 1.0)) / (1 + math.exp(-rate))
            lower = np.exp(-rate * np.maximum(-k, 0)) / (1 + math.exp(-rate))
            return np.where(k >= 0, upper, lower)

        return cdf

    @staticmethod
    def gaussian_cdf(sigma: float) -> Cdf:
        if sigma > 1e5:  # the midpoint rule is off by 1/(24σ²), far below what any sample shows
            return lambda k: stats.norm.cdf((k + 0.5) / sigma)
        reach = int(40 * sigma + 10)
        points = np.arange(-reach, reach + 1)
        cumulative = np.cumsum(np.exp(-(points.astype(float) ** 2) / (2 * sigma**2)))
        return lambda k: cumulative[np.clip(k, -reach, reach) + reach] / cumulative[-1]

    @staticmethod
    def chi_square(observed: NDArray[np.int64], probabilities: NDArray[np.float64]) -> float:
        """The p-value of counts; neighbouring cells are merged until each expects 10."""
        observed = np.asarray(observed)
        expected = np.asarray(probabilities, float) * observed.sum()
        cells: list[list[float]] = [[0.0, 0.0]]
        for o, e in zip(observed, expected, strict=True):
            if cells[-1][1] >= _FEWEST_EXPECTED:
                cells.append([0.0, 0.0])
            cells[-1][0] += float(o)
            cells[-1][1] += float(e)
        if len(cells) > 1 and cells[-1][1] < _FEWEST_EXPECTED:
            o, e = cells.pop()
            cells[-1][0] += o
            cells[-1][1] += e
        assert len(cells) > 1, "too few draws to test anything"
        merged = np.array(cells)
        statistic = float(((merged[:, 0] - merged[:, 1]) ** 2 / merged[:, 1]).sum())
        return float(stats.chi2.sf(statistic, len(cells) - 1))

    def fit(self, draws: NDArray[np.int64], cdf: Cdf, spread: float, bins: int = 400) -> float:
        """The p-value of integer draws against a law, in up to ``bins`` cells within 14 spreads."""
        reach = int(14 * spread) + 3
        step = max(1, 2 * reach // bins)
        ends = np.arange(-reach, reach + 1, step)
        counts = np.bincount(np.searchsorted(ends, draws), minlength=ends.size + 1)
        return self.chi_square(counts, np.diff(cdf(ends), prepend=0.0, append=1.0))

    def pairs(self, draws: NDArray[np.int64], cells: int = 4) -> float:
        """The p-value of independence between each draw's low bits and the next draw's."""
        low = (draws % cells)[: draws.size // 2 * 2]
        table = np.bincount(low[0::2] * cells + low[1::2], minlength=cells * cells)
        share = np.bincount(low, minlength=cells) / low.size
        return self.chi_square(table, np.outer(share, share).ravel())


@pytest.fixture(scope="session")
def statistics() -> Statistics:
    return Statistics()
