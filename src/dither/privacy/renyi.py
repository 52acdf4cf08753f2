"""Rényi divergences: views of pure losses (also zCDP, KL and Gaussian), and ε(δ) of a divergence; ρ is in ``zcdp``.

Binary randomised response with the same ε dominates every ε-private mechanism (Kairouz, Oh & Viswanath 2015), and
all these divergences are monotone under domination; so the views of a pure loss are those of randomised response.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from fractions import Fraction

import numpy as np

from dither.errors import InvalidParameter
from dither.numeric import fraction_down, fraction_up, up

# Orders at which a curve is first looked at; the best one is then refined.
ORDERS = (1.01, 1.05, 1.1, 1.2, 1.35, 1.5, 1.75, *range(2, 17), *range(18, 33, 2), 40, 48, 64, 80, 96, 128, 192,
          256, 512, 1024, 4096, 2**14, 2**17, 2**20)  # fmt: skip
_ENDS = [
    (math.log(ORDERS[max(i - 1, 0)] - 1), math.log(ORDERS[min(i + 1, len(ORDERS) - 1)] - 1)) for i in range(len(ORDERS))
]
_GOLDEN = (math.sqrt(5) - 1) / 2
# What a sum of a few results of log and log1p may be off, as a share of its terms' sizes: 32 roundings.
_CANCELLED = 2.0**-48


def check_order(order: float) -> None:
    """Refuse an order at which the divergence isn't defined."""
    if not (math.isfinite(order) and order > 1):
        raise InvalidParameter(f"the order must be finite and above 1; got {order!r} (for order 1 use kl())")


def pure_renyi(epsilon: float, order: float) -> float:
    """The Rényi divergence of randomised response: [ln cosh((α−½)ε) − ln cosh(ε/2)] / (α−1).

    Example:
        >>> pure_renyi(1.0, 2.0) < min(1.0, 2.0 * 1.0**2 / 2)
        True
    """
    check_order(order)
    if math.isinf(epsilon):
        return math.inf
    outer = (order - 0.5) * epsilon
    excess = _log_cosh(outer) - _log_cosh(epsilon / 2)
    exact = (excess + 8 * math.ulp(max(1.0, outer))) / (order - 1)
    return min(epsilon, up(order * pure_zcdp(epsilon)), up(exact))


def _log_cosh(x: float) -> float:
    return x + math.log1p(math.exp(-2 * x)) - math.log(2)


def pure_kl(epsilon: float) -> float:
    """The expected loss of randomised response, ε·tanh(ε/2): the largest among all ε-private mechanisms."""
    return pure_zcdp(epsilon)


def pure_gaussian(epsilon: float) -> float:
    """The μ whose trade-off curve passes through the corner (1/(1+e^ε), 1/(1+e^ε)) of randomised response.

    The Gaussian curve is convex, so it lies below the two straight lines that meet in that corner
    (Dong, Roth & Su 2022).
    """
    from scipy.special import erfinv, ndtri  # slow to import, and ledgers don't need it

    if epsilon > 700:
        return math.inf
    if epsilon < 30:
        return up(2 * math.sqrt(2) * float(erfinv(math.tanh(epsilon / 2))))
    return up(-2 * float(ndtri(1 / (1 + math.exp(epsilon)))))


def epsilon_of_order(divergence: float, order: float, delta: float) -> float:
    """ε(δ) = D + ln(1−1/α) − (ln δ + ln α)/(α−1), from Canonne, Kamath & Steinke 2020, Proposition 12."""
    return reading(divergence, order - 1, delta)


def reading(divergence: float, gap: float, delta: float) -> float:
    """``epsilon_of_order`` by α − 1, rounded up: what is left where terms cancel is no surer than the terms were."""
    shrinkage = math.log1p(1 / gap)
    log_delta, log_order = math.log(delta), math.log1p(gap)
    value = divergence - shrinkage - (log_delta + log_order) / gap
    size = divergence + shrinkage + (abs(log_delta) + log_order) / gap
    return max(0.0, up(value) + _CANCELLED * size) if size < math.inf else math.inf


def best_order(value: Callable[[float], float]) -> float:
    """The smallest value over orders above 1: the listed ones first, then around the best of them."""
    values = [value(float(order)) for order in ORDERS]
    best = int(np.argmin(values))
    if math.isinf(values[best]):
        return math.inf
    low, high = _ENDS[best]
    smallest = values[best]
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = value(1 + math.exp(left)), value(1 + math.exp(right))
    for _ in range(40):
        smallest = min(smallest, at_left, at_right)
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = value(1 + math.exp(left))
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = value(1 + math.exp(right))
        if high - low < 1e-9:
            break
    return smallest


def renyi_epsilon(divergence: Callable[[float], float], delta: float) -> float:
    """ε(δ) through the best order of a loss's ``renyi``; an upper bound, infinity where it has no Rényi view."""
    return best_order(lambda order: epsilon_of_order(divergence(order), order, delta))


def epsilon_so_far(
    *, pure: Fraction | None, divergences: Iterable[tuple[int, Fraction | None, Fraction]], cap: Fraction | None = None
) -> float:
    """What was spent by now, as an ε that may be read at any moment, also at one that the answers chose.

    ``pure`` is the sum of ε (None once something had none), ``divergences`` are (order, sum of D_i, its part of δ), and
    ``cap`` is the ε of a filter that let nothing more through, with a part of δ of its own.

    Guarantee: for every set S of transcripts whose reading is at most e, P(S) ≤ e^e·Q(S) + δ, where δ is the sum of all
        parts, that of the cap included; whoever stops, when, and however parameters were chosen. At order α,
        e^{(α−1)(L − ΣD_i)} is a non-negative supermartingale that starts at 1 (Feldman & Zrnic 2021), and
        (1 − e^{ε−L})₊ ≤ e^{(α−1)(L−ε)}·(1 − 1/α)^α/(α − 1) pointwise (Canonne, Kamath & Steinke 2020), so the part of
        δ bounds what stops at this order's reading; the parts of disjoint sets of transcripts add up. See filters.md.

    Example:
        >>> f"{epsilon_so_far(pure=None, divergences=[(16, Fraction(8, 25), Fraction(1, 10**7))]):.3f}"
        '1.145'
        >>> epsilon_so_far(pure=Fraction(1, 2), divergences=[(16, Fraction(8, 25), Fraction(1, 10**7))])
        0.5
    """
    readings = [math.inf if pure is None else fraction_up(pure), math.inf if cap is None else fraction_up(cap)]
    for order, divergence, part in divergences:
        if divergence is not None and part > 0:
            readings.append(epsilon_of_order(fraction_up(divergence), order, fraction_down(part)))
    return min(readings)


def pure_zcdp(epsilon: float) -> float:
    """ε-privacy implies ε·tanh(ε/2)-zCDP, which is below the usual ε²/2 (Bun & Steinke 2016) and is tight.

    With u = α − ½, D_α/α for randomised response is the slope of v ↦ ln cosh(√v·ε) between v = ¼ and v = u².
    That function is concave (tanh(x)/x decreases), so the slope is largest as α → 1, where it is ε·tanh(ε/2).
    """
    if math.isinf(epsilon):
        return math.inf
    return up(epsilon * math.tanh(epsilon / 2))
