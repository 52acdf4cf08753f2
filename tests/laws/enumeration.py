"""Losses whose whole law is enumerated, in sixty digits: the truth that brackets must hold.

A pair of laws (P, Q) is a table {ratio t = dP/dQ: Q-mass}, and what P holds where Q has nothing. Its hockey-stick curve
H(t) = Σ Q(u)·(u − t)₊ + infinite is a polygon in t = e^ε whose corners are the ratios, so that curve and pair are two
forms of one thing; δ and ε are read off it exactly.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cached_property

from dither.mechanisms.kary_response import KaryResponseLoss
from dither.mechanisms.laplace import DiscreteLaplaceLoss
from dither.mechanisms.partition_selection import GivenAwayLoss
from dither.mechanisms.randomized_response import RandomizedResponseLoss
from dither.privacy import Adjacency, ApproximateLoss, Direction, PrivacyLoss, PureLoss, poisson, without_replacement

DIGITS = 60
# ratios that agree to so many digits are one
SAME = Decimal(10) ** -40


def decimal(value: Fraction | int | float) -> Decimal:
    exact = Fraction(value)
    return Decimal(exact.numerator) / Decimal(exact.denominator)


@dataclass(frozen=True)
class Pair:
    """Q-masses by their ratio dP/dQ, and P's mass outside of Q."""

    masses: dict[Decimal, Decimal]
    infinite: Decimal = Decimal(0)

    @cached_property
    def _falling(self) -> list[tuple[Decimal, Decimal, Decimal]]:
        """(ratio, P-mass and Q-mass strictly above it), from the largest ratio down to 0."""
        p, q = self.infinite, Decimal(0)
        rows = []
        for ratio in sorted(self.masses, reverse=True):
            rows.append((ratio, p, q))
            p, q = p + ratio * self.masses[ratio], q + self.masses[ratio]
        if not rows or rows[-1][0] > 0:
            rows.append((Decimal(0), p, q))
        return rows

    def delta(self, t: Decimal) -> Decimal:
        for ratio, p, q in self._falling:
            if t >= ratio:
                return p - t * q
        raise AssertionError("a ratio is never negative")

    def epsilon(self, delta: Decimal) -> Decimal:
        """The smallest ε ≥ 0 with δ(ε) ≤ delta."""
        if self.delta(Decimal(1)) <= delta:
            return Decimal(0)
        if self.infinite > delta:
            return Decimal("Infinity")
        for ratio, p, q in self._falling:
            # between this ratio and the one above the curve is p − t·q
            if p - ratio * q > delta:
                return ((p - delta) / q).ln()
        raise AssertionError("unreachable: at 1 the curve is above")

    def reversed(self) -> Pair:
        masses = {1 / ratio: ratio * mass for ratio, mass in self.masses.items() if ratio}
        if self.infinite:
            masses[Decimal(0)] = self.infinite
        return Pair(masses, self.masses.get(Decimal(0), Decimal(0)))

    def times(self, other: Pair) -> Pair:
        masses: dict[Decimal, Decimal] = defaultdict(Decimal)
        for one, first in self.masses.items():
            for two, second in other.masses.items():
                masses[one * two] += first * second
        kept = (1 - self.infinite) * (1 - other.infinite)
        return Pair(_merged(masses), 1 - kept)

    def mixed(self, rate: Decimal) -> Pair:
        """((1−q)Q + qP, Q)."""
        masses = {1 - rate + rate * ratio: mass for ratio, mass in self.masses.items()}
        return Pair(masses, rate * self.infinite)

    def curve_of(self, other: Pair) -> Pair:
        """The pair whose curve is this one's for t ≥ 1 and the other's below."""
        ends = {Decimal(0), Decimal(1)}
        ahead, behind = {t for t in self.masses if t > 1 + SAME}, {t for t in other.masses if SAME < t < 1 - SAME}
        corners = sorted(ends | ahead | behind)
        heights = [self.delta(t) if t >= 1 else other.delta(t) for t in corners]
        points = itertools.pairwise(zip(corners, heights, strict=True))
        slopes = [Decimal(-1), *((b - a) / (v - u) for (u, a), (v, b) in points), Decimal(0)]
        masses = {t: after - before for t, (before, after) in zip(corners, itertools.pairwise(slopes), strict=True)}
        assert min(masses.values()) >= -SAME, "the joined curve isn't convex"
        return Pair({t: m for t, m in masses.items() if m > 0}, heights[-1])


def _merged(masses: dict[Decimal, Decimal]) -> dict[Decimal, Decimal]:
    """Ratios that differ by rounding alone are one: what isn't equal differs in far earlier digits."""
    out: dict[Decimal, Decimal] = {}
    last: Decimal | None = None
    for ratio in sorted(masses):
        if last is not None and ratio - last <= SAME * ratio:
            out[last] += masses[ratio]
        else:
            last = ratio
            out[ratio] = masses[ratio]
    return out


@dataclass(frozen=True)
class Truth:
    """A loss, and its pair for each direction as enumeration has it."""

    loss: PrivacyLoss
    remove: Pair
    add: Pair

    @property
    def atoms(self) -> int:
        return max(len(self.remove.masses), len(self.add.masses))

    def of(self, direction: Direction) -> Pair:
        return self.remove if direction is Direction.REMOVE else self.add

    def curve(self, epsilon: float, direction: Direction) -> Decimal:
        with localcontext() as context:
            context.prec = DIGITS
            return self.of(direction).delta(decimal(epsilon).exp())

    def epsilon(self, delta: Fraction) -> Decimal:
        with localcontext() as context:
            context.prec = DIGITS
            return max(self.remove.epsilon(decimal(delta)), self.add.epsilon(decimal(delta)))

    def __add__(self, other: Truth) -> Truth:
        with localcontext() as context:
            context.prec = DIGITS
            remove, add = self.remove.times(other.remove), self.add.times(other.add)
        return Truth(self.loss + other.loss, remove, add)

    def repeated(self, times: int) -> Truth:
        total = self
        for _ in range(times - 1):
            total = total + self
        return Truth(times * self.loss, total.remove, total.add)

    def poisson(self, rate: Fraction) -> Truth:
        """Removal: ((1−q)Q + qP, Q). Addition: (P, (1−q)P + qQ), which is the reverse of mixing the reverse."""
        with localcontext() as context:
            context.prec = DIGITS
            q = decimal(rate)
            remove, add = self.remove.mixed(q), self.add.reversed().mixed(q).reversed()
        return Truth(poisson(self.loss, rate), remove, add)

    def without_replacement(self, sample: int, population: int) -> Truth:
        """The curve of the mixture ahead of 0 and that against the mixture below (for pairs with one curve)."""
        with localcontext() as context:
            context.prec = DIGITS
            q = decimal(Fraction(sample, population))
            joined = self.remove.mixed(q).curve_of(self.remove.reversed().mixed(q).reversed())
        return Truth(without_replacement(self.loss, sample=sample, population=population), joined, joined)

    def given_away(self, chance: Fraction) -> Truth:
        with localcontext() as context:
            context.prec = DIGITS
            c = decimal(chance)
            shown = Pair({Decimal(1): 1 - c, Decimal(0): c}, c)
            remove, add = self.remove.times(shown), self.add.times(shown)
        return Truth(GivenAwayLoss(self.loss, chance, self.loss.adjacency), remove, add)


def symmetric(loss: PrivacyLoss, pair: Pair) -> Truth:
    return Truth(loss, pair, pair)


def response(odds: Decimal, categories: Decimal = Decimal(2)) -> Pair:
    weight = 1 / (odds + categories - 1)
    masses = {odds: weight, 1 / odds: odds * weight}
    if categories > 2:
        masses[Decimal(1)] = (categories - 2) * weight
    return Pair(masses)


def pure(epsilon: Fraction, adjacency: Adjacency) -> Truth:
    with localcontext() as context:
        context.prec = DIGITS
        return symmetric(PureLoss(epsilon, adjacency), response(decimal(epsilon).exp()))


def approximate(epsilon: Fraction, delta: Fraction, adjacency: Adjacency) -> Truth:
    with localcontext() as context:
        context.prec = DIGITS
        d = decimal(delta)
        pair = response(decimal(epsilon).exp()).times(Pair({Decimal(1): 1 - d, Decimal(0): d}, d))
    return symmetric(ApproximateLoss(epsilon, delta, adjacency), pair)


def binary(odds: Fraction, adjacency: Adjacency) -> Truth:
    with localcontext() as context:
        context.prec = DIGITS
        return symmetric(RandomizedResponseLoss(odds, adjacency), response(decimal(odds)))


def kary(odds: Fraction, categories: int, adjacency: Adjacency) -> Truth:
    with localcontext() as context:
        context.prec = DIGITS
        pair = response(decimal(odds), Decimal(categories))
        return symmetric(KaryResponseLoss(odds, categories, adjacency), pair)


def discrete_laplace(scale: Fraction, shift: int, adjacency: Adjacency) -> Truth:
    """Whole-number noise: all outcomes below 0 have one ratio, and so have all beyond the shift."""
    with localcontext() as context:
        context.prec = DIGITS
        r = (-1 / decimal(scale)).exp()
        masses: dict[Decimal, Decimal] = {}
        for x in range(shift + 1):
            # P is centred at 0, Q at the shift; the ends stand for everything beyond
            near = (1 - r) / (1 + r) * r ** (shift - x)
            q = r ** (shift - x) / (1 + r) if x == 0 else 1 / (1 + r) if x == shift else near
            masses[r ** (2 * x - shift)] = q
        return symmetric(DiscreteLaplaceLoss(scale, shift, adjacency), Pair(masses))
