"""How well scores tell members from others: detection at a stated rate of false alarms, and the most that ε allows.

Average accuracy hides what matters: an attacker who is sure about one person in a hundred, and right, has broken a
promise to that person. So members found are counted at few false alarms (Carlini et al. 2022, IEEE S&P).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dither.errors import InvalidData, InvalidParameter
from dither.mechanisms.base import Floats
from dither.privacy import Guarantee

# Where curves are drawn.
RATES: Floats = np.geomspace(1e-3, 1.0, 61)


def detected(members: Floats, others: Floats, false_alarms: npt.ArrayLike) -> Floats:
    """The share of members above the threshold that at most a share ``false_alarms`` of the others exceeds.

    A tie isn't a detection, so the stated rate of false alarms is never exceeded.

    Example:
        >>> detected(np.array([3.0, 1.5, 0.5]), np.array([0.0, 1.0, 2.0, -1.0]), [0, 0.25, 0.5]).round(2).tolist()
        [0.33, 0.67, 1.0]
    """
    inside, outside = _scores(members), np.sort(_scores(others))[::-1]
    rates = np.asarray(false_alarms, dtype=np.float64)
    if not ((rates >= 0) & (rates <= 1)).all():
        raise InvalidParameter("a rate of false alarms lies between 0 and 1")
    # a rate such as 0.29 of 100 is 29 people, though its float is a little less
    allowed = np.floor(rates * outside.size * (1 + 1e-12)).astype(np.int64)
    threshold = np.append(outside, -np.inf)[np.minimum(allowed, outside.size)]
    above = inside.size - np.searchsorted(np.sort(inside), threshold, side="right")
    return np.asarray(above / inside.size, dtype=np.float64)


def detection_error(found: float, false_alarms: float, *, members: int, others: int) -> float:
    """How far chance moves the share of members found: two standard deviations, exceeded in one run out of twenty.

    It has two parts: which members are tested, and which others set the threshold. A threshold that lets pass a share
    α·(1 + x) in truth finds about found·(1 + x), and never more than that where detection is concave in false alarms.

    Example:
        >>> round(detection_error(0.02, 0.01, members=1000, others=2000), 3)
        0.013
    """
    own, threshold = found * (1 - found) / members, found**2 * (1 - false_alarms) / (false_alarms * others)
    return 2 * math.sqrt(own + threshold)


def most_detected(false_alarms: npt.ArrayLike, guarantee: Guarantee) -> Floats:
    """The largest share of members that any test finds at these rates of false alarms, under (ε, δ).

    min(e^ε·α + δ, 1 − e^−ε·(1 − δ − α)), whatever the attacker knows (Wasserman & Zhou 2010; Kairouz, Oh & Viswanath
    2015).

    Example:
        >>> most_detected([0.001, 0.05], Guarantee(epsilon=1, delta="1e-5")).round(4).tolist()
        [0.0027, 0.1359]
    """
    alpha = np.asarray(false_alarms, dtype=np.float64)
    growth, delta = np.exp(float(guarantee.epsilon)), float(guarantee.delta)
    few, many = growth * alpha + delta, 1 - (1 - delta - alpha) / growth
    return np.asarray(np.clip(np.minimum(few, many), 0.0, 1.0), dtype=np.float64)


def best_accuracy(members: Floats, others: Floats) -> float:
    """The share of right answers at the best threshold, members and others being equally many."""
    inside, outside = _scores(members), _scores(others)
    cuts = np.append(np.unique(np.concatenate([inside, outside])), np.inf)
    found = 1 - np.searchsorted(np.sort(inside), cuts, side="left") / inside.size
    alarms = 1 - np.searchsorted(np.sort(outside), cuts, side="left") / outside.size
    return float(0.5 + 0.5 * np.max(found - alarms))


def log_normal(x: Floats, mean: Floats, variance: Floats) -> Floats:
    """The logarithm of a normal law's density, without the constant."""
    return np.asarray(-((x - mean) ** 2) / (2 * variance) - np.log(variance) / 2)


def _scores(scores: Floats) -> Floats:
    values = np.asarray(scores, dtype=np.float64).ravel()
    if values.size == 0 or np.isnan(values).any():
        raise InvalidData("scores must be numbers, at least one for members and one for others")
    return values
