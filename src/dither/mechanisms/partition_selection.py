"""Partition selection: which keys may be shown, when the keys themselves come from the data."""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from dither.entropy import SYSTEM, Source, bernoulli, exp_neg_bounds
from dither.errors import InvalidData, InvalidParameter, InvalidSensitivity
from dither.mechanisms.base import FiniteLaw, Floats, Ints, whole_numbers
from dither.mechanisms.discrete_gaussian import (
    LARGEST_SUMMED_SCALE,
    DiscreteGaussian,
    discrete_gaussian_cdf,
    discrete_gaussian_tail_up,
)
from dither.mechanisms.laplace import DiscreteLaplace
from dither.numeric import Number, as_fraction, fraction_down, fraction_up, positive, positive_int, probability
from dither.numeric.rounding import SLACK
from dither.privacy import Adjacency, ApproximateLoss, Array, Direction, PrivacyLoss, Sensitivity, at_least_nothing
from dither.privacy.loss import checked_delta

Bools: TypeAlias = npt.NDArray[np.bool_]

# The longest ladder of probabilities that is worth keeping: it grows like ln(1/δ)/ε.
LONGEST_LADDER = 2**20
WORD = 64
# Bits behind the leading one of δ to which probabilities are kept; what is rounded off only lowers them.
GUARD = 64
# Beyond this many keys (1 − p)^k is no longer worked out exactly.
MANY_KEYS = 1000


@dataclass(frozen=True, slots=True)
class Ladder:
    """The probabilities π(0) ≤ π(1) ≤ … ≤ 1 of keeping a key, as whole multiples of 2^-bits, and their first words."""

    bits: int
    steps: tuple[int, ...]
    words: npt.NDArray[np.uint64]


@lru_cache(maxsize=16)
def certified_ladder(epsilon: Fraction, delta: Fraction) -> Ladder:
    """The largest probabilities that (ε, δ) allows, rounded down so that both inequalities hold exactly.

    π(n) ≤ e^ε·π(n−1) + δ for keeping a key and 1 − π(n−1) ≤ e^ε·(1 − π(n)) + δ for not keeping it; with proven integer
    bounds of e^-ε, every step is rounded towards a smaller π(n).
    """
    bits = WORD + GUARD + max(0, (delta.denominator // delta.numerator).bit_length())
    one = 1 << bits
    high = exp_neg_bounds(epsilon, bits)[1]
    whole_delta = delta.numerator * one // delta.denominator
    steps = [0]
    while steps[-1] < one:
        last = steps[-1]
        kept = (last << bits) // high + whole_delta
        missing = max(0, one - last - whole_delta)
        dropped = one - -(-missing * high >> bits)
        # equal probabilities satisfy every inequality, so a step that rounding would turn back stays where it is
        steps.append(max(last, min(kept, dropped, one)))
        if len(steps) > LONGEST_LADDER:
            raise InvalidParameter(
                f"with this epsilon and delta a key would need more than {LONGEST_LADDER} units to be surely kept: "
                "choose a larger epsilon or delta, or fewer groups"
            )
    words = np.array([min(step >> (bits - WORD), 2**WORD - 1) for step in steps], dtype=np.uint64)
    return Ladder(bits, tuple(steps), words)


@dataclass(frozen=True, slots=True)
class PartitionSelection:
    """Decides which keys found in the data may be shown: the more units hold a key, the likelier it is kept.

    Args:
        epsilon: ε of the whole selection.
        delta: δ of the whole selection, below 1.
        groups: Most keys that one unit holds; more are refused by ``loss``.

    Guarantee: (ε, δ) for units that hold up to ``groups`` keys each, under add_remove; no rule that is
        (ε/groups, δ/groups)-private for each key keeps any key with a larger probability (Desfontaines, Voss, Gipson &
        Mandayam 2022). See partition_selection.md.
    Assumes: no unit holds more than ``groups`` of the keys, and each unit counts once for a key.
    Accuracy: ``keep_probability(n)``; ``threshold(confidence)`` units are enough.

    Example:
        >>> selection = PartitionSelection(epsilon=1, delta="1e-5")
        >>> selection.loss().epsilon(delta="1e-5"), float(selection.keep_probability(1))
        (1.0, 1e-05)
        >>> selection.threshold(confidence=0.95)
        14
        >>> PartitionSelection(epsilon=1, delta=0)
        Traceback (most recent call last):
        dither.errors.InvalidParameter: delta must be greater than 0; got 0
    """

    epsilon: Fraction
    delta: Fraction
    groups: int
    _ladder: Ladder = field(init=False, repr=False, compare=False)

    def __init__(self, epsilon: Number, delta: Number, groups: int = 1) -> None:
        exact, chance = positive(epsilon, "epsilon"), positive(delta, "delta")
        if chance >= 1:
            raise InvalidParameter(f"delta must be below 1; got {delta!r}")
        keys = positive_int(groups, "groups")
        object.__setattr__(self, "epsilon", exact)
        object.__setattr__(self, "delta", chance)
        object.__setattr__(self, "groups", keys)
        object.__setattr__(self, "_ladder", certified_ladder(exact / keys, chance / keys))

    def loss(self, sensitivity: Sensitivity | None = None) -> ApproximateLoss:
        """(ε, δ) as stated; a sensitivity, if given, must be a contribution that was provided for.

        Args:
            sensitivity: In how many keys one unit counts, to be compared with what the mechanism is for.
        """
        if sensitivity is not None:
            keys, per_key = key_contribution(sensitivity)
            if keys > self.groups or per_key != 1:
                raise InvalidSensitivity(
                    f"this selection is for units that count once in each of at most {self.groups} keys; "
                    f"got {keys} keys and {per_key} in each"
                )
        return ApproximateLoss(self.epsilon, self.delta)

    @property
    def certain(self) -> int:
        """The smallest number of units with which a key is always kept."""
        return len(self._ladder.steps) - 1

    def keep_probability(self, units: int) -> Fraction:
        """The exact probability of keeping a key that ``units`` units hold.

        Args:
            units: How many units hold the key.
        """
        n = min(positive_int(units, "units", least=0), self.certain)
        return Fraction(self._ladder.steps[n], 1 << self._ladder.bits)

    def keep_chances(self, units: Ints) -> Floats:
        """``keep_probability`` of many numbers of units at once, to a float's accuracy; for planning.

        Args:
            units: How many units hold each key.
        """
        return self._ladder.words[np.minimum(units, self.certain)] / 2.0**WORD

    def threshold(self, confidence: Number = 0.95) -> int:
        """How many units a key needs to be kept with probability ``confidence``.

        Args:
            confidence: How sure it is, between 0 and 1.
        """
        exact = as_fraction(confidence, "confidence")
        if not 0 < exact <= 1:
            raise InvalidParameter(f"confidence must be above 0 and at most 1; got {confidence!r}")
        wanted = exact * (1 << self._ladder.bits)
        return bisect.bisect_left(self._ladder.steps, wanted)

    def release(self, counts: Any, *, source: Source = SYSTEM) -> Any:
        """Which keys to keep, given how many units hold each: a bool for a number, a bool array for an array.

        Args:
            counts: How many units hold each key: a number or an array.
            source: Source of randomness; anything but the default is for tests.
        """
        units = unit_counts(counts)
        flat = np.minimum(units.ravel(), self.certain)
        kept = self._keep(flat, source)
        return bool(kept[0]) if units.ndim == 0 else kept.reshape(units.shape)

    def _keep(self, units: Ints, source: Source) -> Bools:
        """U < π exactly: the first 64 bits decide unless they equal those of π; then a coin with the bits behind."""
        bounds = self._ladder.words[units]
        words = source.u64(units.size)
        kept: Bools = words < bounds
        kept[units == self.certain] = True
        shift = self._ladder.bits - WORD
        for i in np.flatnonzero((words == bounds) & (units < self.certain)):
            rest = self._ladder.steps[int(units[i])] & ((1 << shift) - 1)
            kept[i] = bernoulli(Fraction(rest, 1 << shift), source)
        return kept

    def law(self, exact: int) -> FiniteLaw:
        """(not kept, kept).

        Args:
            exact: How many units hold the key.
        """
        kept = float(self.keep_probability(exact))
        return FiniteLaw(np.array([1 - kept, kept]))

    def worst_pair(self, sensitivity: Sensitivity | None = None) -> tuple[int, int]:  # noqa: ARG002
        """A key that nobody holds and one that a single unit holds: here δ is used up.

        Args:
            sensitivity: Makes no difference.
        """
        return 0, 1


@dataclass(frozen=True, slots=True)
class GivenAwayLoss(PrivacyLoss, kind="given_away"):
    """Another loss, and beside it a probability ``chance`` of giving everything away."""

    base: PrivacyLoss
    chance: Fraction
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    def __post_init__(self) -> None:
        probability(self.chance, "chance")

    @property
    def symmetric(self) -> bool:
        """As the base."""
        return self.base.symmetric

    @property
    def tight(self) -> bool:
        """As the base."""
        return self.base.tight

    def pure(self) -> float:
        """Infinite, unless nothing can be given away."""
        return math.inf if self.chance else self.base.pure()

    def approximate_zcdp(self) -> tuple[float, float]:
        """The base's ρ; the chances add (Bun & Steinke 2016, Lemma 8.2)."""
        rho, delta = self.base.approximate_zcdp()
        return rho, fraction_up(Fraction(delta) + self.chance)

    def decomposed(self) -> tuple[PrivacyLoss, Fraction]:
        """The base; the chances add."""
        base, delta = self.base.decomposed()
        return base, delta + self.chance

    def profile(self, epsilon: Array, direction: Direction) -> Array:
        """δ + (1 − δ)·H(ε): the curve of the product with a pair that is disjoint with probability δ."""
        chance = fraction_up(self.chance)
        # a finite pure loss lies far below the ε at which a curve like this one is searched
        limit = self.base.pure()
        inside = np.minimum(epsilon, limit) if math.isfinite(limit) else epsilon
        return np.minimum(chance + (1 - chance) * self.base.profile(inside, direction), 1.0)

    def profile_down(self, epsilon: Array, direction: Direction) -> Array:
        """The same with both parts from below."""
        chance = fraction_down(self.chance)
        known = (chance + (1 - chance) * self.base.profile_down(epsilon, direction)) * (1 - SLACK)
        return at_least_nothing(known, epsilon)

    def epsilon(self, delta: Number) -> float:
        """The base's ε at (δ − chance)/(1 − chance), and never more than its pure ε; infinite below the chance.

        For chance + (1 − chance)·H(ε) ≤ δ says H(ε) ≤ (δ − chance)/(1 − chance), and H is 0 at the base's pure ε.
        """
        rest = self._rest(delta)
        return math.inf if rest is None else min(self.base.epsilon(rest), self.base.pure())

    def epsilon_bounds(self, delta: Number) -> tuple[float, float]:
        """Those of the base at (δ − chance)/(1 − chance); at the chance itself both are its pure ε, up to rounding."""
        rest = self._rest(delta)
        if rest is None:
            return 0.0, math.inf
        low, high = self.base.epsilon_bounds(rest)
        high = min(high, self.base.pure())
        return min(low, high), high

    def _rest(self, delta: Number) -> Fraction | None:
        """What δ leaves for the base; None if giving everything away takes more already."""
        exact = checked_delta(delta)
        return None if exact < self.chance else (exact - self.chance) / (1 - self.chance)


@dataclass(frozen=True, slots=True, init=False)
class _Threshold:
    """Shows a key with its noisy count if that count reaches a threshold."""

    noise: ClassVar[type[DiscreteLaplace | DiscreteGaussian]]

    scale: Fraction
    threshold: int
    _noise: DiscreteLaplace | DiscreteGaussian = field(init=False, repr=False, compare=False)

    def __init__(self, scale: Number, threshold: int) -> None:
        object.__setattr__(self, "_noise", self.noise(scale))
        object.__setattr__(self, "scale", self._noise.scale)
        object.__setattr__(self, "threshold", positive_int(threshold, "threshold"))

    def error(self, confidence: Number = 0.95) -> float:
        """The absolute error of the noisy count of a key, shown or not, at this confidence.

        Args:
            confidence: How sure it is, between 0 and 1.
        """
        return self._noise.error(confidence)

    def release(self, counts: Any, *, source: Source = SYSTEM) -> tuple[Bools, Ints]:
        """(which keys to show, their noisy counts); the entry of a key that isn't shown is 0.

        Args:
            counts: The exact count of each key: an array.
            source: Source of randomness; anything but the default is for tests.
        """
        units = unit_counts(counts, dimensions=1)
        noisy = self._noise.release(units, source=source)
        shown = (noisy >= self.threshold) & (units > 0)
        return shown, np.where(shown, noisy, 0)


@dataclass(frozen=True, slots=True, init=False)
class LaplaceThreshold(_Threshold):
    """Shows a key with its noisy count if that count reaches a threshold.

    Guarantee: for units that count up to m in each of up to κ keys: κ·m/scale, but for the probability
        1 − (1 − δ₁)^κ with δ₁ = Pr[m + noise ≥ threshold] (Korolova, Kenthapadi, Mishra & Ntoulas 2009). See
        partition_selection.md.
    Assumes: counts are whole numbers and a key that no unit holds is not in the input (or is 0, and never shown).
    Accuracy: of shown counts, that of discrete Laplace noise; ``keep_probability(n)`` for the rest.

    Example:
        >>> mechanism = LaplaceThreshold(scale=1, threshold=15)
        >>> loss = mechanism.loss(Sensitivity.contribution(groups=1, per_group=1))
        >>> f"{loss.delta(1):.3e}"  # e^-14/(1 + e^-1)
        '6.079e-07'
        >>> LaplaceThreshold.for_guarantee(1, 1e-6).threshold
        15
    """

    noise = DiscreteLaplace

    @classmethod
    def for_guarantee(cls, epsilon: Number, delta: Number, *, groups: int = 1) -> Self:
        """Scale groups/ε and the smallest threshold that meets δ, for units that count once per key.

        Args:
            epsilon: Largest ε of the guarantee.
            delta: Largest δ: the chance that a key of one unit alone is shown.
            groups: Most keys in which one unit counts.
        """
        scale = positive_int(groups, "groups") / positive(epsilon, "epsilon")
        target = positive(delta, "delta")
        low, high = 1, max(2, math.ceil(scale))
        while _shown_alone(scale, high, groups, 1) > target:
            low, high = high, 2 * high
        while low < high:
            middle = (low + high) // 2
            enough = _shown_alone(scale, middle, groups, 1) <= target
            low, high = (low, middle) if enough else (middle + 1, high)
        return cls(scale, high)

    def loss(self, sensitivity: Sensitivity) -> GivenAwayLoss:
        """The noise's own curve, and beside it the chance that a key held by one unit alone is shown.

        Args:
            sensitivity: In how many keys one unit counts, and with how much: ``Sensitivity.contribution``.
        """
        keys, per_key = key_contribution(sensitivity)
        chance = _shown_alone(self.scale, self.threshold, keys, per_key)
        return GivenAwayLoss(self._noise.loss(Sensitivity.l1(keys * per_key)), chance)

    def keep_probability(self, units: int) -> float:
        """The probability of showing a key with this count.

        Args:
            units: The key's exact count.
        """
        n = positive_int(units, "units", least=0)
        return 0.0 if n == 0 else fraction_up(_laplace_tail_up(self.scale, self.threshold - n))


@dataclass(frozen=True, slots=True, init=False)
class GaussianThreshold(_Threshold):
    """Shows a key with its noisy count if that count reaches a threshold, with Gaussian noise.

    Guarantee: for units that count up to m in each of up to κ keys: κ discrete Gaussian losses of m/scale, but for the
        probability 1 − (1 − δ₁)^κ with δ₁ = Pr[m + noise ≥ threshold]. See partition_selection.md.
    Assumes: as LaplaceThreshold.
    Accuracy: of shown counts, that of discrete Gaussian noise.

    Example:
        >>> loss = GaussianThreshold(scale=4, threshold=25).loss(Sensitivity.contribution(groups=4, per_group=1))
        >>> loss.epsilon(delta=1e-6) < 2.5
        True
    """

    noise = DiscreteGaussian

    def loss(self, sensitivity: Sensitivity) -> GivenAwayLoss:
        """The noise's own curve, and beside it the chance that a key held by one unit alone is shown."""
        keys, per_key = key_contribution(sensitivity)
        exact = Sensitivity.contribution(groups=keys, per_group=per_key)
        one = Fraction(self.keep_probability(per_key))
        return GivenAwayLoss(self._noise.loss(exact), any_of(one, keys))

    def keep_probability(self, units: int) -> float:
        """The probability of showing a key with this count, rounded up."""
        n = positive_int(units, "units", least=0)
        return 0.0 if n == 0 else discrete_gaussian_tail_up(self.scale**2, self.threshold - n)

    def keep_chances(self, units: Ints) -> Floats:
        """``keep_probability`` of many numbers of units at once, about; for planning."""
        below = self.threshold - units.astype(np.float64)
        # what rounds to at least so many lies above that less ½
        large = ndtr((0.5 - below) / float(self.scale))
        found = large if self.scale > LARGEST_SUMMED_SCALE else discrete_gaussian_cdf(self.scale**2, -below)
        return np.where(units > 0, found, 0.0)


def unit_counts(counts: Any, dimensions: int | None = None) -> Ints:
    """Numbers of units, refused before anything is drawn unless they are whole and not negative."""
    units = whole_numbers(counts, "number of units")
    if dimensions is not None and units.ndim != dimensions:
        raise InvalidData("the numbers of units must be a one-dimensional integer array")
    if units.size and int(units.min()) < 0:
        raise InvalidData("the numbers of units must not be negative; nothing was drawn")
    return units


def key_contribution(sensitivity: Sensitivity) -> tuple[int, int]:
    """(keys, count in each) of a contribution under add_remove."""
    if sensitivity.groups is None:
        raise InvalidSensitivity(
            "keys need a sensitivity stated as Sensitivity.contribution(groups=…, per_group=…): how many keys a unit "
            "holds, and how much it counts in each"
        )
    if sensitivity.adjacency is not Adjacency.ADD_REMOVE:
        raise InvalidSensitivity("key selection is stated for add_remove; for replace use dither.as_replace(loss)")
    return sensitivity.groups, Sensitivity.l1(sensitivity.bound).integer_l1()


def _laplace_tail_up(scale: Fraction, m: int) -> Fraction:
    """Pr[z ≥ m] for discrete Laplace noise, rounded up: q^m/(1+q) above 0, 1 − q^{1−m}/(1+q) otherwise."""
    # so many bits that the tail itself, about e^{−m/scale}, still has 128 of them
    bits = 256 + 2 * math.ceil(max(m, 1 - m, 1) / scale)
    q_low, q_high = exp_neg_bounds(1 / scale, bits)
    one = 1 << bits
    if m > 0:
        top = exp_neg_bounds(m / scale, bits)[1]
        return min(Fraction(1), Fraction(top, one + q_low))
    bottom = exp_neg_bounds((1 - m) / scale, bits)[0]
    return 1 - Fraction(bottom, one + q_high)


def _shown_alone(scale: Fraction, threshold: int, keys: int, per_key: int) -> Fraction:
    """The chance that any of ``keys`` keys that one unit alone holds is shown, rounded up."""
    return any_of(_laplace_tail_up(scale, threshold - per_key), keys)


def any_of(one: Fraction, keys: int) -> Fraction:
    """1 − (1 − p)^k, rounded up to a float's value; for many keys the union bound."""
    total = keys * one
    if keys <= MANY_KEYS:
        total = min(total, 1 - (1 - Fraction(min(1.0, fraction_up(one)))) ** keys) if keys > 1 else one
    return Fraction(min(1.0, fraction_up(total)))
