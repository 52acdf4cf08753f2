"""Amplification by sampling: written once, for every loss.

The sample must stay secret and be fresh for every release. Poisson sampling (every unit takes part independently)
goes with the add_remove adjacency, a sample of fixed size without replacement with replace.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Self, TypeAlias

import numpy as np
from scipy.special import gammaln

from dither.errors import IncompatibleLosses, InvalidParameter
from dither.numeric import Number, as_fraction, fraction_up, positive_int, up
from dither.numeric.rounding import SLACK
from dither.privacy.curve import Array, Cells, Direction, at_least_nothing
from dither.privacy.loss import Json, PrivacyLoss, expect_loss
from dither.privacy.renyi import pure_renyi, pure_zcdp
from dither.privacy.unit import Adjacency

LARGEST_SUMMED_ORDER = 512
SMALLEST_RATE = 1e-300
# More than a difference of numbers up to 1 can be off.
BLUR = 2.0**-50


# What makes a sampled loss's curve of its base's, at a rate and in one direction.
Mix: TypeAlias = Callable[[PrivacyLoss, float, Array, Direction], Array]


def poisson(loss: PrivacyLoss, rate: Number) -> PrivacyLoss:
    """The loss of a mechanism that sees each unit with probability ``rate``, independently.

    Args:
        loss: Of the mechanism on the sample, for add_remove.
        rate: Above 0 and at most 1.

    Example:
        >>> from dither.privacy import PureLoss
        >>> poisson(PureLoss(1), rate=0.01).pure()  # ln(1 + 0.01 (e − 1))
        0.01703686...
    """
    expect_loss(loss)
    exact = as_fraction(rate, "rate")
    if not 0 < exact <= 1:
        raise InvalidParameter(f"rate must be above 0 and at most 1; got {rate!r}")
    if loss.adjacency is not Adjacency.ADD_REMOVE:
        raise IncompatibleLosses(
            "Poisson sampling amplifies losses stated for add_remove; this one is for replace: "
            "use without_replacement, or state the sensitivity for add_remove"
        )
    if exact < SMALLEST_RATE:
        raise InvalidParameter(f"rate must be at least {SMALLEST_RATE}; got {rate!r}")
    # a rate that is 1 to a float's precision amplifies nothing worth the name
    return loss if float(exact) == 1 else PoissonSampled(loss, exact)


def without_replacement(loss: PrivacyLoss, *, sample: int, population: int) -> PrivacyLoss:
    """The loss of a mechanism that sees ``sample`` of ``population`` units, every subset being as likely.

    Args:
        loss: Loss of the mechanism on the sample, stated for replace.
        sample: Size of the sample.
        population: Number of units it is drawn from, which is public.

    Raises:
        IncompatibleLosses: The loss is stated for add_remove.
        InvalidParameter: The sample is larger than the population.

    Example:
        >>> from dither.privacy import PureLoss
        >>> loss = PureLoss(1, Adjacency.REPLACE)
        >>> without_replacement(loss, sample=1, population=100).pure()
        0.01703686...
    """
    expect_loss(loss)
    m, n = positive_int(sample, "sample"), positive_int(population, "population")
    if m > n:
        raise InvalidParameter(f"the sample must be no larger than the population; got {m} of {n}")
    if loss.adjacency is not Adjacency.REPLACE:
        raise IncompatibleLosses(
            "sampling without replacement amplifies losses stated for replace; this one is for add_remove: "
            "use poisson, or state the sensitivity with adjacency=Adjacency.REPLACE"
        )
    if Fraction(m, n) < SMALLEST_RATE:
        raise InvalidParameter(f"the share of the sample must be at least {SMALLEST_RATE}; got {m} of {n}")
    return loss if float(Fraction(m, n)) == 1 else SampledWithoutReplacement(loss, m, n)


def _mixture(base: PrivacyLoss, rate: float, epsilon: Array, direction: Direction) -> Array:
    """H(ε) of ((1−q)Q + qP, Q): q·H_base(ln(1 + (e^ε−1)/q)), and 1 − e^ε below ln(1−q)."""
    # beyond e^600 the −1 and the 1 are nothing next to e^ε/q
    inner = np.expm1(np.minimum(epsilon, 600.0)) / rate
    inside = inner > -1
    point = np.where(epsilon > 600.0, epsilon - math.log(rate), np.log1p(np.where(inside, inner, 0.0)))
    value = rate * base.profile(point, direction) * (1 + SLACK)
    return np.where(inside, value, -np.expm1(np.minimum(epsilon, 0.0)) * (1 + SLACK))


def _against_mixture(base: PrivacyLoss, rate: float, epsilon: Array, direction: Direction) -> Array:
    """H(ε) of (P, (1−q)P + qQ): (1 − (1−q)e^ε)·H_base(ln(q·e^ε/(1 − (1−q)e^ε))), zero above −ln(1−q)."""
    left = -np.expm1(np.minimum(epsilon + math.log1p(-rate), 1.0))
    inside = left > 0
    safe = np.where(inside, left, 1.0)
    point = epsilon + math.log(rate) - np.log(safe)
    value = safe * base.profile(np.where(inside, point, 0.0), direction) * (1 + SLACK)
    return np.where(inside, value, 0.0)


def _mixture_down(base: PrivacyLoss, rate: float, epsilon: Array, direction: Direction) -> Array:
    """``_mixture`` of the base's curve from below.

    The map of curves is monotone, so it takes a bound from below to one. The point is moved up by more than rounding
    can have moved it down: by a share of itself, and below zero, where 1 + (e^ε−1)/q cancels, by its relative error.
    """
    inner = np.expm1(np.minimum(epsilon, 600.0)) / rate
    left = np.where(inner > -1, 1 + inner, 1.0)
    point = np.where(epsilon > 600.0, epsilon - math.log(rate), np.log1p(np.where(inner > -1, inner, 0.0)))
    point = point + np.abs(point) * SLACK + np.where(inner < 0, BLUR / left, 0.0)
    value = rate * base.profile_down(point, direction) * (1 - SLACK)
    return at_least_nothing(np.where(inner > -1, value, 0.0), epsilon)


def _against_mixture_down(base: PrivacyLoss, rate: float, epsilon: Array, direction: Direction) -> Array:
    """``_against_mixture`` of the base's curve from below; 1 − (1−q)e^ε may be off by ``BLUR``."""
    left = -np.expm1(np.minimum(epsilon + math.log1p(-rate), 1.0)) - BLUR
    inside = left > 0
    safe = np.where(inside, left, 1.0)
    point = epsilon + math.log(rate) - np.log(safe)
    point = point + (np.abs(epsilon) + abs(math.log(rate)) + np.abs(np.log(safe))) * SLACK + 2 * BLUR / safe
    value = safe * base.profile_down(np.where(inside, point, 0.0), direction) * (1 - SLACK)
    return at_least_nothing(np.where(inside, value, 0.0), epsilon)


class _Amplified(PrivacyLoss):
    """What both kinds of sampling share: sampling never hurts, and a pure base gains."""

    __slots__ = ()
    base: PrivacyLoss

    @abstractmethod
    def _share(self) -> Fraction:
        """The share of units that take part."""

    @property
    def tight(self) -> bool:
        """As the base."""
        return self.base.tight

    def pure(self) -> float:
        """ln(1 + q(e^ε − 1)) (Balle, Barthe & Gaboardi 2018)."""
        return _amplified(self.base.pure(), self._share())

    def renyi(self, order: float) -> float:
        """Sampling never hurts; a pure base gives more."""
        return min(pure_renyi(self.pure(), order), self.base.renyi(order))

    def zcdp(self) -> float:
        """Sampling never hurts; a pure base gives more."""
        return min(pure_zcdp(self.pure()), self.base.zcdp())

    def kl(self) -> float:
        """The divergence is convex, so it falls at least in proportion to the rate; and no order is below it."""
        return min(up(float(self._share()) * self.base.kl()), self.renyi(1 + 1e-9))

    def gaussian(self) -> float:
        """Sampling never hurts."""
        return self.base.gaussian()


@dataclass(frozen=True, slots=True)
class PoissonSampled(_Amplified, kind="poisson"):
    """Each unit takes part with probability ``rate``.

    Guarantee: if (P, Q) dominates removal, ((1−q)Q + qP, Q) dominates it after sampling; if (P, Q) dominates addition,
        (P, (1−q)P + qQ) does (Zhu, Dong & Wang 2022, Theorem 11).
    Assumes: the sample is drawn afresh, independently for every unit, and is never revealed.
    """

    base: PrivacyLoss
    rate: Fraction
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    def _share(self) -> Fraction:
        return self.rate

    def profile(self, epsilon: Array, direction: Direction) -> Array:
        """The curve of the mixture."""
        mix = _mixture if direction is Direction.REMOVE else _against_mixture
        return mix(self.base, float(self.rate), epsilon, direction)

    def profile_down(self, epsilon: Array, direction: Direction) -> Array:
        """The curve of the mixture, from the base's curve from below."""
        mix = _mixture_down if direction is Direction.REMOVE else _against_mixture_down
        return mix(self.base, float(self.rate), epsilon, direction)

    def cells(self, edges: Array, direction: Direction) -> Cells | None:
        """The loss of the mixture is an increasing function of the base loss: move the edges back through it."""
        q = float(self.rate)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            sign = 1.0 if direction is Direction.REMOVE else -1.0
            inner = np.expm1(sign * edges) / q
            moved = sign * np.where(inner > -1, np.log1p(np.maximum(inner, -1.0)), -np.inf)
        base = self.base.cells(moved, direction)
        if base is None:
            return None
        relative = base.relative + 4e-16
        if direction is Direction.REMOVE:
            ratio = np.exp(-base.atom_losses)
            masses = base.atom_masses * ((1 - q) * ratio + q)
            losses = np.log1p(q * np.expm1(base.atom_losses))
            # above the last edge the base's Q-mass is at most its P-mass; leaving it out only lowers the bound
            return Cells((1 - q) * base.q + q * base.p, base.q, q * base.p_above, losses, masses, relative)
        losses = -np.log1p(q * np.expm1(-base.atom_losses))
        return Cells(base.p, (1 - q) * base.p + q * base.q, base.p_above, losses, base.atom_masses, relative)

    def renyi(self, order: float) -> float:
        """Binomial sum over integer orders; between them ln E[X^α] is convex, so its chord bounds it.

        For real pairs that an involution swaps, removal is the worse direction (Mironov, Talwar & Zhang 2019,
        Theorem 5).
        """
        simple = _Amplified.renyi(self, order)
        mirrored_pair = self.base.symmetric and self.base.tight
        if not mirrored_pair or order > LARGEST_SUMMED_ORDER or math.isinf(self.base.renyi(2.0)):
            return simple
        floor = math.floor(order)
        share = order - floor
        low = self._log_moment(floor)
        high = self._log_moment(floor + 1) if share else 0.0
        return min(simple, up(((1 - share) * low + share * high) / (order - 1)) + 1e-16)

    def _log_moment(self, order: int) -> float:
        """Ln E_Q[(1 − q + qX)^α] = ln Σ_j C(α,j)(1−q)^{α−j} q^j E_Q[X^j]."""
        if order <= 1:
            return 0.0
        j = np.arange(order + 1)
        q = float(self.rate)
        moments = np.array([0.0, 0.0, *((i - 1) * self.base.renyi(float(i)) for i in range(2, order + 1))])
        logs = (
            gammaln(order + 1) - gammaln(j + 1) - gammaln(order - j + 1)
            + (order - j) * math.log1p(-q) + j * math.log(q) + moments
        )  # fmt: skip
        top = float(logs.max())
        if math.isinf(top):
            return math.inf
        # gammaln of large arguments loses digits in proportion to its size
        slack = 1e-15 * (float(gammaln(order + 1)) + abs(top) + order)
        return max(0.0, top + math.log(float(np.exp(logs - top).sum())) + slack)

    @classmethod
    def from_parameters(cls, parameters: Json) -> Self:
        """The inverse."""
        rate = Fraction(parameters["rate"])
        if not SMALLEST_RATE <= rate < 1:
            raise InvalidParameter(f"the rate of a sampled loss must lie between 0 and 1; got {rate}")
        return cls(PrivacyLoss.from_json(parameters["loss"]), rate)


@dataclass(frozen=True, slots=True)
class SampledWithoutReplacement(_Amplified, kind="without_replacement"):
    """``sample`` of ``population`` units take part, every subset of that size being as likely.

    Guarantee: for replace neighbours and q = m/n the curve is that of ((1−q)Q + qP, Q) for ε ≥ 0 and that of
        (P, (1−q)P + qQ) for ε < 0 (Zhu, Dong & Wang 2022, Theorem 11; Balle, Barthe & Gaboardi 2018, Theorem 9).
    Assumes: the sample is drawn afresh for every release and is never revealed.
    """

    base: PrivacyLoss
    sample: int
    population: int
    adjacency: Adjacency = Adjacency.REPLACE

    symmetric = True  # either of the two replaced units may be the one that was there: the worse order is taken

    def _share(self) -> Fraction:
        return Fraction(self.sample, self.population)

    def profile(self, epsilon: Array, direction: Direction) -> Array:  # noqa: ARG002
        """The two halves, joined at zero, for the worse order of the pair."""
        return self._joined(epsilon, _mixture, _against_mixture)

    def profile_down(self, epsilon: Array, direction: Direction) -> Array:  # noqa: ARG002
        """The same two halves, from below."""
        return self._joined(epsilon, _mixture_down, _against_mixture_down)

    def _joined(self, epsilon: Array, mix: Mix, against: Mix) -> Array:
        rate, ways = float(self._share()), self.base.directions
        ahead, below = np.maximum(epsilon, 0.0), np.minimum(epsilon, 0.0)
        first = np.maximum.reduce([mix(self.base, rate, ahead, way) for way in ways])
        second = np.maximum.reduce([against(self.base, rate, below, way) for way in ways])
        return np.asarray(np.where(epsilon >= 0, first, second))

    @classmethod
    def from_parameters(cls, parameters: Json) -> Self:
        """The inverse."""
        sample = positive_int(parameters["sample"], "sample")
        population = positive_int(parameters["population"], "population", least=sample + 1)
        return cls(PrivacyLoss.from_json(parameters["loss"]), sample, population)


def _amplified(pure: float, rate: Fraction) -> float:
    if pure > 700:
        return math.inf if math.isinf(pure) else pure
    return min(pure, up(math.log1p(fraction_up(rate) * math.expm1(pure))))
