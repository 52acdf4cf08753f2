"""Rényi, zCDP and KL views of a symmetric curve that is known point by point.

The curve is convex in t = e^ε, so the chords between some of its points lie above it, and are the curve of a pair with
point masses at those ε. Divergences only grow with the curve: those of that pair, which are sums, are bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from dither.numeric import up
from dither.numeric.rounding import SLACK
from dither.privacy import Array
from dither.privacy.renyi import check_order, pure_renyi, pure_zcdp

# Down to this height the points are equally far apart; below, each is this factor beyond the one before.
LOWEST = 1e-25
NEXT_POINT = 1.02
# zCDP looks at orders so far apart.
NEXT_ORDER = 1.01
# Allowance for the sums.
RELATIVE = 1e-9
SMALLEST = 5e-324


@dataclass(frozen=True, slots=True)
class Chords:
    """Chords of a symmetric curve, from above: logarithms of its heights at rising ε from 0 to the pure ε.

    The last one is −∞.
    """

    epsilons: Array
    logs: Array

    @classmethod
    def of(cls, curve: Callable[[float], float], log_tail: Callable[[float], float], pure: float, nodes: int) -> Chords:
        """Chords of a curve, and of a bound on its logarithm where it is low."""
        reach = _reach(curve, pure)
        even = np.linspace(0.0, reach, nodes)
        points = max(0, math.ceil(math.log(pure / reach) / math.log(NEXT_POINT)) - 1)
        beyond = reach * NEXT_POINT ** np.arange(1, points + 1)
        beyond = beyond[beyond < pure]
        heights = [math.log(max(curve(float(e)), SMALLEST)) for e in even if e < pure]
        logs = np.array([*heights, *(min(heights[-1], log_tail(float(e)) + SLACK) for e in beyond), -math.inf])
        at = np.concatenate([even[: len(heights)], beyond, [pure]])
        # rounding must not make it rise anywhere
        return cls(at, np.maximum.accumulate(logs[::-1])[::-1])

    def at(self, epsilon: Array) -> Array:
        """The heights at ε ≥ 0: between two points on the chord, which is straight in e^ε."""
        place = np.clip(np.searchsorted(self.epsilons, epsilon, side="right") - 1, 0, self.epsilons.size - 2)
        left, right = self.epsilons[place], self.epsilons[place + 1]
        share = np.expm1(np.clip(epsilon, left, right) - left) / np.expm1(right - left)
        low, high = np.exp(self.logs[place]), np.exp(self.logs[place + 1])
        found = np.maximum(low - share * (1 - SLACK) * (low - high), SMALLEST)
        return np.where(epsilon >= self.epsilons[-1], 0.0, found * (1 + SLACK))

    def under(self, below: Array, epsilon: Array) -> Array:
        """The curve from below at ε ≥ 0, given values from below at the first of the points.

        It falls, so a value holds nearer by as well; and it is convex in t = e^ε, so that it lies above the line
        through a point above it and one below it, beyond the latter: on either side.
        """
        t, high = np.exp(self.epsilons[: below.size]), np.exp(self.logs[: below.size])
        asked = np.exp(np.minimum(epsilon, float(self.epsilons[-1])))
        # by how much it may fall after a point, and how much it must have fallen before one; Q is at most 1
        rise = np.append(1.0, np.minimum((high[:-1] - below[1:]) / np.diff(t), 1.0))
        fall = np.append(np.maximum((below[:-1] - high[1:]) / np.diff(t), 0.0), 0.0)
        right = np.searchsorted(t, asked)
        left, inside = np.maximum(right - 1, 0), right < below.size
        right = np.minimum(right, below.size - 1)
        from_left = below[left] - rise[left] * (asked - t[left])
        from_right = below[right] + fall[right] * (t[right] - asked)
        found = np.maximum(from_left, np.where(inside, from_right, 0.0))
        return np.where(epsilon >= self.epsilons[-1], 0.0, np.maximum(found, 0.0) * (1 - RELATIVE))

    def masses(self) -> Array:
        """Logarithms of the chords' point masses under P at every ε but 0; −∞ where there is none, or less than none.

        A corner's mass is what the slope loses there.
        """
        step, drop = np.diff(self.epsilons), np.diff(self.logs)
        with np.errstate(divide="ignore", invalid="ignore"):
            fall = self.logs[:-1] + np.log(-np.expm1(drop))
            arrives = fall - np.log(-np.expm1(-step))
            stays = np.append(fall[1:] - np.log(np.expm1(step[1:])), -math.inf)
            return np.where(stays < arrives, arrives + np.log(-np.expm1(np.minimum(stays - arrives, 0.0))), -math.inf)

    def renyi(self, order: float) -> float:
        """D_α of the chords' pair: E_P[e^{(α−1)L}] = 1 + Σ m·(e^{(α−1)ε} − 1 + e^{−ε}·(e^{−(α−1)ε} − 1))."""
        check_order(order)
        simple = pure_renyi(float(self.epsilons[-1]), order)
        at, masses = self.epsilons[1:], self.masses()
        power = (order - 1) * at
        small = power < 30.0
        growth = np.expm1(np.minimum(power, 30.0)) + np.exp(-at) * np.expm1(-power)
        logs = np.where(small, np.log(np.maximum(growth, SMALLEST)), power)
        total = float(logsumexp(masses + logs)) + RELATIVE
        excess = math.log1p(math.exp(total)) if total < 0 else total + math.log1p(math.exp(-total))
        return min(simple, up(excess / (order - 1)))

    def kl(self) -> float:
        """E_P[L] of the chords' pair: Σ m·ε·(1 − e^{−ε})."""
        at = self.epsilons[1:]
        return up(float(np.sum(np.exp(self.masses()) * at * -np.expm1(-at))), RELATIVE)

    def zcdp(self) -> float:
        """The largest D_α/α, bounded over intervals of orders: D_α never falls with α, and is at most the pure ε."""
        pure, worst = float(self.epsilons[-1]), self.kl()
        ceiling = pure_zcdp(pure)
        order = 1.0
        while order * worst < pure and worst < ceiling:
            following = order * NEXT_ORDER
            worst = max(worst, self.renyi(following) / order)
            order = following
        return min(ceiling, up(worst))


def _reach(curve: Callable[[float], float], pure: float) -> float:
    """About where the curve falls to LOWEST; a proof needs no more."""
    if curve(pure / 2) > LOWEST:
        return pure
    high = pure / 2
    while high > 1e-12 and curve(high / 2) <= LOWEST:
        high /= 2
    low = high / 2
    while high - low > 0.01 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if curve(middle) <= LOWEST else (middle, high)
    return high
