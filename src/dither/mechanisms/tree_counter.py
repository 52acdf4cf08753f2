"""A running sum released at every step, with noise that grows with the logarithm of time."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, Self, get_args

import numpy as np
from scipy.special import ndtri

from dither.entropy import SYSTEM, Source
from dither.errors import InvalidData, InvalidParameter, InvalidSensitivity, OutOfBudget
from dither.mechanisms import grid
from dither.mechanisms.base import Session, failure_probability
from dither.mechanisms.gaussian import Gaussian
from dither.mechanisms.laplace import DiscreteLaplace
from dither.numeric import Number, ceil_div, fraction_down, fraction_up, positive, positive_int, up
from dither.privacy import PrivacyLoss, Sensitivity
from dither.privacy.sensitivity import expect_sensitivity

Noise = Literal["laplace", "gaussian"]
# Up to this scale (in steps) the law of a sum of discrete noises is summed as it is.
SUMMED_SCALE = 1000
# Whole numbers must lie on the grid of Gaussian noise (see grid.py).
LARGEST_GAUSSIAN_SCALE = 2 ** (grid.L2_GRID.bits - 2)


@dataclass(frozen=True, slots=True)
class TreeCounter:
    """Counts for ever (up to a horizon): after each increment the noisy running sum is released.

    Every dyadic block of time has one noisy sum; a running sum adds up at most log₂ T + 1 of them.

    Args:
        scale: Scale of the noise on each node of the tree.
        horizon: Most increments; public.
        noise: "laplace" for pure ε, "gaussian" for zCDP.
        step: Grid that increments are rounded down to.
        bound: Increments are clamped to ±bound; None promises that they keep to the sensitivity.

    Guarantee: an increment that moves by Δ moves ⌊log₂ T⌋ + 1 blocks by Δ each, so the whole stream of T answers costs
        as many Laplace (or Gaussian) losses of Δ/scale (Dwork, Naor, Pitassi & Rothblum 2010; Chan, Shi & Song 2011),
        for increments chosen adaptively too. See tree_counter.md.
    Assumes: event level: a unit moves as many increments as ``Sensitivity.contribution(groups=…, per_group=…)`` says,
        each by at most so much.
    Accuracy: at time t the sum of as many noises as t has binary ones.

    Example:
        >>> counter = TreeCounter(scale=16, horizon=1024)
        >>> counter.levels, counter.loss(Sensitivity.contribution(groups=1, per_group=1)).pure()
        (11, 0.6875)
        >>> counter.error(confidence=0.95, time=512) < counter.error(confidence=0.95)
        True
        >>> TreeCounter(scale=16, horizon=0)
        Traceback (most recent call last):
        dither.errors.InvalidParameter: horizon must be a whole number of at least 1; got 0
    """

    scale: Fraction
    horizon: int
    noise: Noise
    step: Fraction
    bound: Fraction | None
    _mechanism: DiscreteLaplace | Gaussian = field(init=False, repr=False, compare=False)

    def __init__(
        self, scale: Number, horizon: int, *, noise: Noise = "laplace", step: Number = 1, bound: Number | None = None
    ) -> None:
        if noise not in get_args(Noise):
            raise InvalidParameter(f'noise must be "laplace" or "gaussian"; got {noise!r}')
        size, unit = positive(scale, "scale"), positive(step, "step")
        if noise == "gaussian" and size / unit > LARGEST_GAUSSIAN_SCALE:
            raise InvalidParameter(
                f"scale/step must be at most {LARGEST_GAUSSIAN_SCALE} for Gaussian noise: choose a coarser step"
            )
        object.__setattr__(self, "scale", size)
        object.__setattr__(self, "horizon", positive_int(horizon, "horizon"))
        object.__setattr__(self, "noise", noise)
        object.__setattr__(self, "step", unit)
        object.__setattr__(self, "bound", None if bound is None else positive(bound, "bound"))
        make = DiscreteLaplace if noise == "laplace" else Gaussian
        object.__setattr__(self, "_mechanism", make(size / unit))

    @classmethod
    def for_epsilon(cls, epsilon: Number, sensitivity: Sensitivity, *, horizon: int, step: Number = 1) -> Self:
        """Laplace noise of the scale that costs ``epsilon`` for the whole stream.

        Args:
            epsilon: ε of the whole stream.
            sensitivity: How many increments one unit moves, and how far: a contribution.
            horizon: Most increments; the noise grows with its logarithm.
            step: Grid of the increments.
        """
        unit = positive(step, "step")
        levels = positive_int(horizon, "horizon").bit_length()
        # rounded down to a float, so that the sum over the levels is exact
        share = Fraction(fraction_down(positive(epsilon, "epsilon") / levels))
        return cls(_steps(sensitivity, unit) * unit / share, horizon, step=unit)

    @property
    def levels(self) -> int:
        """How many blocks hold one increment: ⌊log₂ T⌋ + 1."""
        return self.horizon.bit_length()

    def loss(self, sensitivity: Sensitivity) -> PrivacyLoss:
        """What all ``horizon`` answers together cost.

        Args:
            sensitivity: How many increments one unit moves, and how far: a contribution.
        """
        steps = _steps(sensitivity, self.step)
        make = Sensitivity.l1 if self.noise == "laplace" else Sensitivity.l2
        return self.levels * self._mechanism.loss(make(steps, adjacency=sensitivity.adjacency))

    def error(self, confidence: Number = 0.95, *, time: int | None = None) -> float:
        """The absolute error of the answer at ``time`` (default: the worst time) not exceeded with this confidence.

        It is that of the noise: increments that aren't whole steps, or exceed ``bound``, lose what is cut off besides.

        Args:
            confidence: How sure it is, between 0 and 1.
            time: Of the answer, from 1; the worst by default.
        """
        failure = failure_probability(confidence)
        if time is None:
            # the time below the horizon with the most binary ones
            ones = max(self.levels - 1, self.horizon.bit_count())
        else:
            ones = positive_int(time, "time").bit_count()
            if time > self.horizon:
                raise InvalidParameter(f"time must be at most the horizon, {self.horizon}; got {time}")
        scale, step = fraction_up(self.scale / self.step), fraction_up(self.step)
        if self.noise == "gaussian":
            # the noise of a block is a little wider than stated, and its answer floored (see grid.py)
            wide = fraction_up(grid.L2_GRID.widening(1))
            return (
                up(-math.sqrt(ones) * float(ndtri(failure / 2)) * scale * step * wide) + ones * scale * step * 2.0**-37
            )
        return up(_laplace_sum_quantile(scale, ones, failure) * step)

    def start(self, *, source: Source = SYSTEM) -> CounterSession:
        """A fresh counter at time 0; all ``horizon`` answers are paid for now.

        Args:
            source: Source of randomness; anything but the default is for tests.
        """
        return CounterSession(self.horizon, self._mechanism, self.step, self.bound, source)


class CounterSession(Session):
    """One stream: keeps one exact and one noisy sum for each level, and draws the noise of a block once.

    Example:
        >>> session = TreeCounter(scale="0.01", horizon=4).start()
        >>> [session.add(x) for x in (3, 0, 2, 5)]
        [3, 3, 5, 10]
        >>> session.add(1)
        Traceback (most recent call last):
        dither.errors.OutOfBudget: this counter has reached its horizon of 4 increments: ...
    """

    __slots__ = ("_bound", "_exact", "_horizon", "_mechanism", "_noisy", "_source", "_step", "_time")

    def __init__(
        self,
        horizon: int,
        mechanism: DiscreteLaplace | Gaussian,
        step: Fraction,
        bound: Fraction | None,
        source: Source,
    ) -> None:
        super().__init__()
        self._horizon = horizon
        self._mechanism = mechanism
        self._step = step
        self._bound = bound
        self._source = source
        self._time = 0
        levels = horizon.bit_length()
        self._exact = [0] * levels
        self._noisy: list[int | float] = [0] * levels

    def __repr__(self) -> str:
        return f"CounterSession(time={self._time})"

    @property
    def time(self) -> int:
        """How many increments were added."""
        return self._time

    def add(self, increment: Any) -> int | float:
        """Adds an increment and releases the noisy running sum; nothing changes if the increment is refused."""
        self._check_process()
        steps = self._on_grid(increment)
        with self._lock:
            if self._time == self._horizon:
                raise OutOfBudget(
                    f"this counter has reached its horizon of {self._horizon} increments: start another one, which "
                    "costs as much again"
                )
            self._time += 1
            # the block that ends now swallows the smaller ones that end now too
            level = (self._time & -self._time).bit_length() - 1
            total = steps + sum(self._exact[:level])
            self._exact[:level] = [0] * level
            self._exact[level] = total
            self._noisy[level] = self._mechanism.release(total, source=self._source)
            noisy = sum(self._noisy[i] for i in range(self._time.bit_length()) if self._time >> i & 1)
        return noisy if self._step == 1 else float(Fraction(noisy) * self._step)

    def _on_grid(self, increment: Any) -> int:
        """The increment in whole steps, floored; exactly, whatever its type."""
        if isinstance(increment, bool | np.bool_) or not isinstance(
            increment, int | float | np.integer | np.floating | Fraction
        ):
            raise InvalidData("an increment must be a number")
        if isinstance(increment, float | np.floating):
            if not math.isfinite(increment):
                raise InvalidData("an increment must be finite; nothing was drawn")
            if isinstance(increment, np.floating) and increment.itemsize > 8:
                raise InvalidData("an increment must be a float of at most 64 bits: a wider one would be rounded")
            exact = Fraction(float(increment))
        else:
            exact = Fraction(int(increment)) if isinstance(increment, np.integer) else Fraction(increment)
        if self._bound is not None:
            exact = min(max(exact, -self._bound), self._bound)
        units = exact / self._step
        return units.numerator // units.denominator


def _steps(sensitivity: Sensitivity, step: Fraction) -> int:
    """How many grid steps one unit moves all increments together: each floored one by at most ⌈Δ/step⌉."""
    expect_sensitivity(sensitivity)
    if sensitivity.groups is None:
        raise InvalidSensitivity(
            "a counter needs to know how many increments a unit moves, and how far: "
            "use Sensitivity.contribution(groups=1, per_group=1)"
        )
    units = sensitivity.bound / step
    return sensitivity.groups * ceil_div(units.numerator, units.denominator)


def _laplace_sum_quantile(scale: float, count: int, failure: float) -> float:
    """The smallest whole a with Pr[|z₁ + … + z_m| > a] ≤ failure, up to a few steps for large scales."""
    tail = _discrete_tail if scale <= SUMMED_SCALE else _continuous_tail
    low, high = -1, max(1, math.ceil(scale * count))
    if failure < 1e-15:
        # beyond what the sums resolve: each noise at its share of the failure, which is more than enough
        return float(math.ceil(up(count * scale * (math.log(2 * count) - math.log(failure)))))
    while tail(high, scale, count) > failure:
        low, high = high, 2 * high
    while high - low > max(1, math.floor(scale * 1e-4)):
        middle = (low + high) // 2
        low, high = (low, middle) if tail(middle, scale, count) <= failure else (middle, high)
    # z is the difference of two whole parts of exponential draws, each within 1 of its draw
    return float(high if scale <= SUMMED_SCALE else high + count)


def _discrete_tail(a: int, scale: float, count: int) -> float:
    """Pr[|Σz| > a]: the sum is the difference of two negative binomial counts of failures."""
    from scipy.stats import nbinom  # takes longer to import than all the rest, and few need it

    success = -math.expm1(-1 / scale)
    reach = math.ceil(scale * (count + 12 * math.sqrt(count) + 50))
    n = np.arange(reach + 1)
    return 2 * up(float((nbinom.pmf(n, count, success) * nbinom.sf(n + a, count, success)).sum()), 1e-9) + 1e-18


def _continuous_tail(a: int, scale: float, count: int) -> float:
    """Pr[|ΣL| > a] for continuous noise: a difference of two gamma draws, as a race of two Poisson processes."""
    from scipy.stats import nbinom, poisson

    j = np.arange(count)
    return 2 * up(float((poisson.pmf(j, a / scale) * nbinom.cdf(count - 1 - j, count, 0.5)).sum()), 1e-9)
