"""Composition theorems by name, to be compared with one another and with the exact composition.

``basic`` ≥ ``advanced`` (once k is large) ≥ ``optimal`` = what ``k * PureLoss(ε)`` computes.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
from scipy.special import gammaln

from dither.errors import InvalidParameter
from dither.numeric import Number, as_fraction, fraction_up, positive, positive_int, up
from dither.privacy.curve import Array


def basic_composition(epsilon: Number, times: int, delta: Number = 0) -> tuple[float, float]:
    """(kε, kδ): k-fold composition of (ε, δ)-private mechanisms (Dwork & Roth 2014, Theorem 3.16).

    Example:
        >>> basic_composition(0.1, times=100)
        (10.0, 0.0)
    """
    k = positive_int(times, "times")
    return fraction_up(k * positive(epsilon, "epsilon")), fraction_up(k * as_fraction(delta, "delta"))


def advanced_composition(epsilon: Number, times: int, slack: Number, delta: Number = 0) -> tuple[float, float]:
    """(√(2k ln(1/δ'))·ε + kε(e^ε−1), kδ + δ') (Dwork, Rothblum & Vadhan 2010, Theorem III.3).

    The losses are a martingale with steps in ±ε and drift at most ε(e^ε−1): Azuma's inequality bounds their sum.

    Example:
        >>> advanced_composition(0.1, times=100, slack=1e-6)
        (6.308..., 1.0...e-06)
    """
    k = positive_int(times, "times")
    one, rest = float(positive(epsilon, "epsilon")), float(positive(slack, "slack"))
    if rest >= 1:
        raise InvalidParameter(f"slack must be below 1; got {slack!r}")
    if one > 700:
        return math.inf, fraction_up(k * as_fraction(delta, "delta") + as_fraction(slack, "slack"))
    total = math.sqrt(2 * k * math.log(1 / rest)) * one + k * one * math.expm1(one)
    return up(total), fraction_up(k * as_fraction(delta, "delta") + as_fraction(slack, "slack"))


def optimal_composition(epsilon: Number, times: int, target_delta: Number, delta: Number = 0) -> float:
    """The smallest ε of k-fold composition at ``target_delta`` (Kairouz, Oh & Viswanath 2015, Theorem 3.3).

    Exact up to upward rounding: the composition of k randomised responses is a binomial distribution of losses
    (2i−k)·ε, and with probability 1 − (1−δ)^k everything is given away.

    Example:
        >>> optimal_composition(0.1, times=100, target_delta=1e-6)
        4.77...
    """
    k = positive_int(times, "times")
    one = float(positive(epsilon, "epsilon"))
    own = as_fraction(delta, "delta")
    rest = _left_over(as_fraction(target_delta), as_fraction(delta), k)
    if rest <= 0:
        return up(k * one) if own == 0 else math.inf
    i = np.arange(k + 1)
    losses = (2 * i - k) * one
    log_mass = (
        gammaln(k + 1) - gammaln(i + 1) - gammaln(k - i + 1)
        - i * math.log1p(math.exp(-one)) - (k - i) * (one + math.log1p(math.exp(-one)))
    )  # fmt: skip
    log_mass += 1e-15 * (10 + float(gammaln(k + 1)))  # gammaln's own rounding, upwards
    mass = np.exp(log_mass)
    # δ at each loss: sums over the losses above, every term positive
    above = np.append(np.cumsum(mass[::-1])[::-1][1:], 0.0)
    with np.errstate(over="ignore", under="ignore"):
        scaled = np.append(_scaled_tail(mass, one), 0.0)
    # a difference of sums that are good to a relative k units or so in the last place
    gain = above - scaled + 1e-15 * (k + 10) * above
    over = np.flatnonzero(gain > rest)
    if not over.size:
        return 0.0
    j = int(over[-1])
    if losses[j] < 0 and j + 1 <= k and losses[j + 1] <= 0:
        return 0.0
    ratio = (above[j] - rest) / scaled[j]
    found = losses[j] + math.log(ratio)
    return max(0.0, up(min(float(found), k * one), 1e-12))


def _left_over(target: Fraction, delta: Fraction, times: int) -> float:
    """(target − lost)/(1 − lost), lost = 1 − (1−δ)^k: what the finite part must reach; many digits, rounded down."""
    with localcontext() as context:
        context.prec = 60 + max(0, target.denominator.bit_length() - target.numerator.bit_length()) // 3
        kept = (1 - Decimal(delta.numerator) / Decimal(delta.denominator)) ** times
        goal = Decimal(target.numerator) / Decimal(target.denominator)
        return float((goal - 1 + kept) / kept) * (1 - 1e-15) if kept > 0 else 0.0


def _scaled_tail(mass: Array, one: float) -> Array:
    """e^{loss_j}·Σ_{i>j} mass_i·e^{−loss_i} for j = 0 … k−1, by a recurrence that never overflows."""
    k = mass.size - 1
    out = np.zeros(k)
    carried = 0.0
    shrink = math.exp(-2 * one)
    for j in range(k - 1, -1, -1):
        carried = (mass[j + 1] + carried) * shrink
        out[j] = carried
    return out
