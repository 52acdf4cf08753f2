"""Rényi, zCDP, KL and Gaussian views, and the conversions between them.

Binary randomised response with the same ε dominates every ε-private mechanism (Kairouz, Oh & Viswanath 2015), and
all these divergences are monotone under domination; so the views of a pure loss are those of randomised response.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import erfinv, ndtri

from dither.errors import InvalidParameter
from dither.numeric import up

if TYPE_CHECKING:
    from dither.privacy.loss import PrivacyLoss

# Orders at which a curve is first looked at; the best one is then refined.
ORDERS = (1.01, 1.05, 1.1, 1.2, 1.35, 1.5, 1.75, *range(2, 17), *range(18, 33, 2), 40, 48, 64, 80, 96, 128, 192,
          256, 512, 1024, 4096, 2**14, 2**17, 2**20)  # fmt: skip


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


def pure_zcdp(epsilon: float) -> float:
    """ε-privacy implies ε·tanh(ε/2)-zCDP, which is below the usual ε²/2 (Bun & Steinke 2016) and is tight.

    With u = α − ½, D_α/α for randomised response is the slope of v ↦ ln cosh(√v·ε) between v = ¼ and v = u².
    That function is concave (tanh(x)/x decreases), so the slope is largest as α → 1, where it is ε·tanh(ε/2).
    """
    if math.isinf(epsilon):
        return math.inf
    return up(epsilon * math.tanh(epsilon / 2))


def pure_kl(epsilon: float) -> float:
    """The expected loss of randomised response, ε·tanh(ε/2): the largest among all ε-private mechanisms."""
    return pure_zcdp(epsilon)


def pure_gaussian(epsilon: float) -> float:
    """The μ whose trade-off curve passes through the corner (1/(1+e^ε), 1/(1+e^ε)) of randomised response.

    The Gaussian curve is convex, so it lies below the two straight lines that meet in that corner
    (Dong, Roth & Su 2022).
    """
    if epsilon > 700:
        return math.inf
    if epsilon < 30:
        return up(2 * math.sqrt(2) * float(erfinv(math.tanh(epsilon / 2))))
    return up(-2 * float(ndtri(1 / (1 + math.exp(epsilon)))))


def delta_of_order(divergence: float, order: float, epsilon: float) -> float:
    """δ(ε) ≤ e^{(α−1)(D−ε)}·(1−1/α)^α/(α−1) (Canonne, Kamath & Steinke 2020, Proposition 12)."""
    exponent = (order - 1) * (divergence - epsilon) + order * math.log1p(-1 / order) - math.log(order - 1)
    return 1.0 if exponent >= 0 else up(math.exp(exponent))


def epsilon_of_order(divergence: float, order: float, delta: float) -> float:
    """The inverse of ``delta_of_order``: ε = D + ln(1−1/α) − (ln δ + ln α)/(α−1)."""
    value = divergence + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)
    return max(0.0, up(value) + 1e-15)


def best_order(value: Callable[[float], float]) -> float:
    """The smallest value over orders above 1: the listed ones first, then around the best of them."""
    values = [value(float(order)) for order in ORDERS]
    best = int(np.argmin(values))
    if math.isinf(values[best]):
        return math.inf
    low = math.log(ORDERS[max(best - 1, 0)] - 1)
    high = math.log(ORDERS[min(best + 1, len(ORDERS) - 1)] - 1)
    smallest = values[best]
    golden = (math.sqrt(5) - 1) / 2
    left, right = high - golden * (high - low), low + golden * (high - low)
    at_left, at_right = value(1 + math.exp(left)), value(1 + math.exp(right))
    for _ in range(40):
        smallest = min(smallest, at_left, at_right)
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - golden * (high - low)
            at_left = value(1 + math.exp(left))
        else:
            low, left, at_left = left, right, at_right
            right = low + golden * (high - low)
            at_right = value(1 + math.exp(right))
        if high - low < 1e-9:
            break
    return smallest


def renyi_epsilon(loss: PrivacyLoss, delta: float) -> float:
    """ε(δ) through the best Rényi order; an upper bound, infinity where the loss has no Rényi view."""
    return best_order(lambda order: epsilon_of_order(loss.renyi(order), order, delta))


def zcdp_epsilon(rho: float, delta: float) -> float:
    """ε(δ) of ρ-zCDP through the best order; below ρ + 2√(ρ ln(1/δ)).

    Example:
        >>> zcdp_epsilon(0.5, 1e-6) < 0.5 + 2 * math.sqrt(0.5 * math.log(1e6))
        True
    """
    if rho == 0:
        return 0.0
    return best_order(lambda order: epsilon_of_order(rho * order, order, delta))


def zcdp_for_epsilon(epsilon: float, delta: float) -> float:
    """The largest ρ (rounded down) whose ε(δ) is no more than ``epsilon``; what is returned was seen to fit.

    Example:
        >>> rho = zcdp_for_epsilon(1, 1e-6)
        >>> zcdp_epsilon(rho, 1e-6) <= 1 < zcdp_epsilon(rho * (1 + 1e-9), 1e-6)
        True
    """
    from dither.numeric import largest_true

    # ρ + 2√(ρ ln(1/δ)) is above ε(δ), so where it equals ε there is room left
    root = math.sqrt(math.log(1 / delta) + epsilon) - math.sqrt(math.log(1 / delta))
    last, rho = root * root, 1.25 * root * root
    before, error = zcdp_epsilon(last, delta) - epsilon, zcdp_epsilon(rho, delta) - epsilon
    for _ in range(50):
        if abs(rho - last) <= 1e-13 * rho or error == before:
            break
        # ε(δ) rises and bends one way only, so the line through two points soon meets it
        step = error * (rho - last) / (error - before)
        last, before, rho = rho, error, max(rho - step, rho / 4)
        error = zcdp_epsilon(rho, delta) - epsilon
    found = rho * (1 - 2e-13)
    if zcdp_epsilon(found, delta) <= epsilon < zcdp_epsilon(found * (1 + 1e-11), delta):
        return found
    # the curve has a corner where it leaves zero, which lines don't find: look between two ends instead
    top = max(root * root, 1e-300)
    while zcdp_epsilon(top, delta) <= epsilon:
        top *= 2
    return largest_true(lambda value: zcdp_epsilon(value, delta) <= epsilon, 0.0, top, relative=1e-12)


def zcdp_tail(rho: float, delta: float) -> float:
    """A bound that the loss itself exceeds with probability at most δ: ρ + 2√(ρ ln(1/δ)) (Bun & Steinke 2016)."""
    return up(rho + 2 * math.sqrt(rho * math.log(1 / delta)))
