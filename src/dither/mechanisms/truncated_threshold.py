"""Keys that come from the data, shown with their noisy counts: one noise decides and is told."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Self

import numpy as np

from dither.entropy import SYSTEM, Source, exp_neg_bounds
from dither.errors import InvalidParameter, InvalidSensitivity
from dither.mechanisms.base import FiniteLaw, Floats, Ints
from dither.mechanisms.laplace import DiscreteLaplace
from dither.mechanisms.partition_selection import Bools, GivenAwayLoss, any_of, key_contribution, unit_counts
from dither.numeric import Number, fraction_up, positive, positive_int
from dither.privacy import Adjacency, PureLoss, Sensitivity, compose

# a key would need twice as many units to be surely shown
LONGEST_REACH = 2**40
# Of a law with more outcomes than this nobody wants the list.
MOST_LISTED = 2**16


@dataclass(frozen=True, slots=True)
class TruncatedThreshold:
    """Shows a key with its noisy count if that is above ``reach``, which the noise itself never exceeds.

    Guarantee: for units that count up to m in each of up to κ keys: κ·m/scale, but for the probability 1 − (1 − δ₁)^κ,
        where δ₁ is the chance of the m outermost values of the noise. With m = 1 no rule that is (1/scale, δ₁)-private
        for one key shows a key more often (Desfontaines, Voss, Gipson & Mandayam 2022), and here the count is told
        besides. See truncated_threshold.md.
    Assumes: as LaplaceThreshold.
    Accuracy: of the count of a key, shown or not, that of discrete Laplace noise, and never worse than ``reach``; a key
        of ``certain`` units is always shown.

    Example:
        >>> mechanism = TruncatedThreshold.for_guarantee(1, 1e-6)
        >>> mechanism.reach, mechanism.threshold(0.95), mechanism.error()
        (14, 17, 3.0)
        >>> loss = mechanism.loss(Sensitivity.contribution(groups=1, per_group=1))
        >>> loss.decomposed()[0].pure(), loss.decomposed()[1] <= Fraction(1, 10**6)
        (1.0, True)
    """

    scale: Fraction
    reach: int
    _noise: DiscreteLaplace = field(init=False, repr=False, compare=False)

    def __init__(self, scale: Number, reach: int) -> None:
        noise = DiscreteLaplace(scale)
        object.__setattr__(self, "scale", noise.scale)
        object.__setattr__(self, "reach", positive_int(reach, "reach"))
        object.__setattr__(self, "_noise", noise)

    @classmethod
    def for_guarantee(cls, epsilon: Number, delta: Number, *, groups: int = 1, per_group: int = 1) -> Self:
        """Scale and smallest reach for (ε, δ), for units that count up to ``per_group`` in each of ``groups`` keys.

        Args:
            epsilon: what all keys of a unit together may cost, apart from δ.
            delta: the chance that any key which a single unit holds is shown; it is split evenly over the keys.
            groups: in how many keys a unit counts at most.
            per_group: how much it counts in each at most.

        Raises:
            InvalidParameter: where a key would need more than 2^40 units to be shown.
        """
        keys, most = positive_int(groups, "groups"), positive_int(per_group, "per_group")
        scale, target = keys * most / positive(epsilon, "epsilon"), positive(delta, "delta") / keys
        low, high = most, max(2 * most, math.ceil(scale))
        while edge_up(scale, high, most) > target:
            low, high = high, 2 * high
            if high > LONGEST_REACH:
                raise InvalidParameter(
                    f"with this epsilon and delta a key would need more than {LONGEST_REACH} units to be shown: choose "
                    "a larger epsilon or delta, or fewer groups"
                )
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if edge_up(scale, middle, most) <= target else (middle + 1, high)
        return cls(scale, high)

    def loss(self, sensitivity: Sensitivity) -> GivenAwayLoss:
        """What keys and counts cost a unit that comes or goes, stated as a contribution under add_remove."""
        keys, per_key = key_contribution(sensitivity)
        return self.loss_of(keys, per_key, Adjacency.ADD_REMOVE)

    def loss_of(self, keys: int, per_key: int, adjacency: Adjacency) -> GivenAwayLoss:
        """What it costs that the counts of so many keys move by up to ``per_key`` each."""
        if per_key > 2 * self.reach + 1:
            raise InvalidSensitivity(
                f"a unit that counts {per_key} in a key would show it for sure: the reach is {self.reach}"
            )
        each = PureLoss(per_key / self.scale, adjacency)
        return GivenAwayLoss(compose([(each, keys)]), any_of(edge_up(self.scale, self.reach, per_key), keys), adjacency)

    @property
    def certain(self) -> int:
        """The smallest number of units with which a key is always shown."""
        return 2 * self.reach + 1

    def keep_probability(self, units: int) -> float:
        """The probability of showing a key with this count, rounded up."""
        n = positive_int(units, "units", least=0)
        if n == 0:
            return 0.0
        return min(1.0, fraction_up(edge_up(self.scale, self.reach, min(n, self.certain))))

    def keep_chances(self, units: Ints) -> Floats:
        """``keep_probability`` of many numbers of units at once, about; for planning."""
        scale, n = float(self.scale), np.minimum(units, self.certain).astype(np.float64)
        # the n outermost of 2·reach + 1 values, in parts so that no exponent is positive
        last = math.exp(-(self.reach + 1) / scale)
        whole = -math.expm1(-1 / scale) + 2 * math.exp(-1 / scale) * (1 - math.exp(-self.reach / scale))
        upper = np.minimum(n, self.reach)
        lower = np.maximum(n - self.reach, 0.0)
        tail = np.exp(-(self.reach + 1 - upper) / scale) - last
        return np.where(n > 0, np.minimum((tail - np.expm1(-lower / scale)) / whole, 1.0), 0.0)

    def threshold(self, confidence: Number = 0.95) -> int:
        """How many units a key needs to be shown with probability ``confidence``."""
        wanted = positive(confidence, "confidence")
        if wanted > 1:
            raise InvalidParameter(f"confidence must be above 0 and at most 1; got {confidence!r}")
        low, high = 1, self.certain
        while low < high:
            middle = (low + high) // 2
            # rounded up by 2^-50 of itself at the most, which matters to no plan
            low, high = (low, middle) if self.keep_probability(middle) >= wanted else (middle + 1, high)
        return low

    def error(self, confidence: Number = 0.95) -> float:
        """The absolute error of the noisy count of a key, shown or not, at this confidence."""
        return min(self._noise.error(confidence), float(self.reach))

    def release(self, counts: Any, *, source: Source = SYSTEM) -> tuple[Bools, Ints]:
        """(which keys to show, their noisy counts); the entry of a key that isn't shown is 0."""
        units = unit_counts(counts, dimensions=1)
        noisy = units + self._truncated(units.size, source)
        shown = (noisy > self.reach) & (units > 0)
        return shown, np.where(shown, noisy, 0)

    def _truncated(self, size: int, source: Source) -> Ints:
        """Noise within the reach: what lies beyond, a draw in about 1/δ₁, is drawn again."""
        noise: Ints = self._noise.release(np.zeros(size, dtype=np.int64), source=source)
        while (beyond := np.flatnonzero(np.abs(noise) > self.reach)).size:
            noise[beyond] = self._noise.release(np.zeros(beyond.size, dtype=np.int64), source=source)
        return noise

    def law(self, exact: int) -> FiniteLaw | None:
        """The chances of not being shown and of each noisy count; None where those are too many to list."""
        if self.reach > MOST_LISTED:
            return None
        weights = np.exp(-np.abs(np.arange(-self.reach, self.reach + 1)) / float(self.scale))
        weights /= weights.sum()
        told = exact + np.arange(-self.reach, self.reach + 1)
        seen = (told > self.reach) & (exact > 0)
        outcomes = [(False, 0), *((True, int(n)) for n in told[seen])]
        return FiniteLaw(np.array([weights[~seen].sum(), *weights[seen]]), outcomes)


def edge_up(scale: Fraction, reach: int, values: int) -> Fraction:
    """The chance of the ``values`` largest of 2·reach + 1 values, ∝ e^(−|z|/scale), rounded up.

    With t = e^(−1/scale) all weights add up to (1 + t − 2t^(reach+1))/(1 − t), and the largest m ≤ reach of them to
    t^(reach−m+1)·(1 − t^m)/(1 − t).
    """
    if values > 2 * reach:
        return Fraction(1)
    if values > reach:
        # all but the smallest ones, which by symmetry are the largest of the rest
        return 1 - _edge(scale, reach, 2 * reach + 1 - values, up=False)
    return _edge(scale, reach, values, up=True)


def _edge(scale: Fraction, reach: int, values: int, *, up: bool) -> Fraction:
    # so many bits that the chance itself, about e^(−reach/scale), still has 128 of them, and 1 − t as well
    bits = 256 + 2 * math.ceil((reach + 1) / scale) + 2 * math.ceil(scale).bit_length()
    one = 1 << bits
    outer, several = exp_neg_bounds((reach - values + 1) / scale, bits), exp_neg_bounds(values / scale, bits)
    step, last = exp_neg_bounds(1 / scale, bits), exp_neg_bounds((reach + 1) / scale, bits)
    near, far = (1, 0) if up else (0, 1)
    above = outer[near] * (one - several[far])
    below = one + step[far] - 2 * last[near]
    return min(Fraction(1), Fraction(above, one * below))
