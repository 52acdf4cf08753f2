"""Exact bounds of a binomial probability from a count, for the whole project.

Clopper & Pearson's (1934) bounds hold for every probability and every number of draws. They are quantiles of the beta
law, whose inverse a library computes to so many digits; every bound is moved outward by more than it may be off.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import betainccinv, betaincinv

Floats: TypeAlias = npt.NDArray[np.float64]

# What the inverse of the incomplete beta function may be off by, and much more.
INVERSE_SLACK = 1e-11
# The same in the failure that its result has, as a share of it, for every draw: a tail is a power by the number of
# draws and magnifies what a float rounds. Measured with 40 digits: 4e-10 at 1e7 draws, 5e-8 at 1e9, 8e-7 at 1e11.
SLACK_OF_A_DRAW = 1e-15
# By how much an interval that is shown to people is wider still.
SHOWN_SLACK = 1e-8


def at_least_down(inside: int, draws: int, failure: float) -> float:
    """A bound that the probability is below with a chance of at most ``failure``.

    Example:
        >>> round(at_least_down(10, 10, 0.05), 6)  # the tenth root of 0.05
        0.741134
    """
    if inside <= 0 or draws <= 0:
        return 0.0
    bound = float(betaincinv(float(inside), float(draws - inside + 1), _spent(draws, failure)))
    return max(0.0, bound * (1 - INVERSE_SLACK)) if math.isfinite(bound) else 0.0


def at_most_up(inside: int, draws: int, failure: float) -> float:
    """A bound that the probability is above with a chance of at most ``failure``."""
    if inside >= draws or draws <= 0:
        return 1.0
    bound = float(betainccinv(float(inside + 1), float(draws - inside), _spent(draws, failure)))
    return min(1.0, bound * (1 + INVERSE_SLACK)) if math.isfinite(bound) else 1.0


def _spent(draws: int, failure: float) -> float:
    return failure * max(0.0, 1 - SLACK_OF_A_DRAW * draws)


def clopper_pearson(inside: int, draws: int, failure: float) -> tuple[float, float]:
    """The exact interval of a probability; it misses it with a chance of at most ``failure``, half on each side.

    Example:
        >>> low, high = clopper_pearson(0, 10, 0.05)
        >>> low, round(high, 4)
        (0.0, 0.3085)
    """
    half = failure / 2 * (1 - SHOWN_SLACK)
    low, high = at_least_down(inside, draws, half), at_most_up(inside, draws, half)
    return low * (1 - SHOWN_SLACK), min(1.0, high + (1.0 - high) * SHOWN_SLACK)


def clopper_pearson_of_each(counts: npt.ArrayLike, draws: int, failure: float) -> tuple[Floats, Floats]:
    """The ends of ``clopper_pearson`` for many counts of the same number of draws, of which many are alike.

    Example:
        >>> low, high = clopper_pearson_of_each([0, 10, 0], 10, 0.05)
        >>> [(low[i], high[i]) == clopper_pearson(count, 10, 0.05) for i, count in enumerate((0, 10, 0))]
        [True, True, True]
    """
    different, places = np.unique(np.clip(counts, 0, draws), return_inverse=True)
    ends = np.array([clopper_pearson(int(inside), draws, failure) for inside in different], dtype=np.float64)
    low, high = ends.reshape(-1, 2).T
    return low[places], high[places]
