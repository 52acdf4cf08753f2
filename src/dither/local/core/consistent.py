"""Estimated shares made to look like shares: not negative, and summing to one.

Unbiased estimates of rare values are negative as often as not. Every rule here is post-processing, so it costs no
privacy; every rule also biases what it changes (Wang, Lopuhaä-Zwakenberg, Li, Skoric & Li 2020 compare them). Sums over
many values are best left as they are; single values, rankings and pictures profit.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dither.brief import SentenceEnum
from dither.errors import InvalidData, InvalidParameter

Floats = npt.NDArray[np.float64]


class Consistency(SentenceEnum):
    """How unbiased estimates are turned into shares."""

    NORM_SUB = (
        "norm-sub",
        "one number is taken from all, and what is then negative becomes 0, such that the rest sums to 1",
    )
    BASE_CUT = "base-cut", "what chance alone could have made of a value that nobody has becomes 0"
    CLIP = "clip", "what is negative becomes 0 and what exceeds 1 becomes 1"


def make_consistent(values: Floats, rule: Consistency, *, threshold: float | None = None) -> Floats:
    """The estimates after a rule; ``threshold`` is what BASE_CUT cuts at and no other rule needs.

    Example:
        >>> [round(float(share), 3) for share in make_consistent(np.array([0.7, 0.4, -0.1]), Consistency.NORM_SUB)]
        [0.65, 0.35, 0.0]
    """
    shares = np.asarray(values, dtype=np.float64)
    if shares.ndim != 1 or shares.size < 1 or not np.isfinite(shares).all():
        raise InvalidData("the estimates must be a list of finite numbers")
    if rule is Consistency.NORM_SUB:
        return project_to_simplex(shares)
    if rule is Consistency.CLIP:
        return np.clip(shares, 0.0, 1.0)
    if threshold is None or not threshold >= 0:
        raise InvalidParameter("base-cut needs the threshold, of at least 0, below which an estimate becomes 0")
    return np.where(shares > threshold, shares, 0.0)


def project_to_simplex(values: Floats) -> Floats:
    """The nearest shares (Euclidean) that aren't negative and sum to 1.

    The projection takes one number t from all values and cuts at 0, with t such that the rest sums to 1 (Held, Wolfe &
    Crowder 1974): the same as norm-sub. With the values sorted downwards, t is the largest (prefix sum − 1)/length.
    """
    falling = np.sort(values)[::-1]
    taken = (np.cumsum(falling) - 1.0) / np.arange(1, values.size + 1)
    shares = np.maximum(values - taken.max(), 0.0)
    # what rounding left over, a few units in the last place, is shared out in proportion
    return np.asarray(shares / shares.sum(), dtype=np.float64)
