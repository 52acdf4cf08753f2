"""Means by one bit and by Laplace noise. Proof in ``means.md``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

import numpy as np

from dither.entropy import Source, bernoulli_many
from dither.local.clients.means import LARGEST_LAPLACE_STEPS, check_bit, check_decay, geometric_coins
from dither.local.core.losses import response_loss
from dither.local.core.protocol import FRACTION, Counts, Floats, number_field
from dither.local.frequency.oracle import Ints
from dither.local.means.mean import BOUNDS, FEW_STEPS, LEAST_STEPS, UNIT, LocalMean, checked_bounds, checked_steps
from dither.mechanisms.base import failure_probability
from dither.mechanisms.laplace import DiscreteLaplaceLoss
from dither.mechanisms.randomized_response import odds_for_epsilon
from dither.mechanisms.response_estimates import Target, interval, worst_error
from dither.numeric import Number, as_fraction, log_up, positive, positive_int
from dither.privacy import Adjacency, PrivacyLoss


@dataclass(frozen=True, slots=True, init=False)
class OneBitMean(LocalMean, name="one_bit_mean", fields={"bounds": BOUNDS, "keep": FRACTION}):
    """Rounds everybody's number to one of the bounds, by a coin, and asks which: the truth with probability ``keep``.

    Guarantee: ln(keep/(1−keep))-private under REPLACE: binary randomised response (Duchi, Jordan & Wainwright 2018;
        Ding, Kulkarni & Yekhanin 2017).
    Accuracy: variance B²·((e^ε+1)/(e^ε−1))²/(4n) at most, B being the distance of the bounds: the best for ε < 0.61.

    Example:
        >>> age = OneBitMean(bounds=(0, 100), keep="3/4")
        >>> f"{age.loss().pure():.6f}", age.variance(n=10_000)
        ('1.098612', 1.0)
    """

    bounds: tuple[Fraction, Fraction]
    keep: Fraction

    def __init__(self, bounds: tuple[Number, Number], keep: Number) -> None:
        self._put(bounds=checked_bounds(bounds), keep=as_fraction(keep, "keep"))
        check_bit(self.keep)

    @classmethod
    def for_epsilon(cls, bounds: tuple[Number, Number], epsilon: Number) -> Self:
        """The most honest bit whose loss is no more than ``epsilon``: ``keep`` is rounded down."""
        odds = odds_for_epsilon(epsilon)
        return cls(bounds, odds / (1 + odds))

    @property
    def steps(self) -> int:
        """The bounds alone."""
        return 1

    @property
    def outputs(self) -> int:
        """The bounds."""
        return 2

    def loss(self) -> PrivacyLoss:
        """Binary randomised response."""
        return response_loss(self.keep / (1 - self.keep), 1 - self.keep)

    def law(self, point: int) -> tuple[Fraction, ...]:
        """The exact probability of every output for a point of the grid."""
        return (self.keep, 1 - self.keep) if point == 0 else (1 - self.keep, self.keep)

    def decode(self, output: int) -> Fraction:
        """The position that an output stands for."""
        return (output - (1 - self.keep)) / (2 * self.keep - 1)

    def decoded(self) -> Floats:
        """The positions of both outputs."""
        return np.array([float(self.decode(0)), float(self.decode(1))])

    def second_moments(self) -> Floats:
        """For every point the mean square of the position that is sent."""
        squares = [self.decode(0) ** 2, self.decode(1) ** 2]
        return np.array([float(sum(p * x for p, x in zip(self.law(k), squares, strict=True))) for k in (0, 1)])

    def respond(self, points: Ints, source: Source) -> Ints:
        """The outputs for many points."""
        return points ^ ~bernoulli_many(self.keep, points.size, source)

    def position_interval(self, counts: Counts, failure: float) -> tuple[float, float]:
        """The exact binomial interval: the bit is 1 with probability 1 − keep + (2·keep − 1)·mean position."""
        ends = interval(
            int(counts[1]), int(counts.sum()), self.keep, 1 - self.keep, failure=failure, target=Target.POPULATION
        )
        low, high = (min(1.0, max(0.0, end)) for end in ends)
        return low, high

    def error(self, confidence: Number = 0.95, *, n: int) -> float:
        """The error that the estimate from ``n`` reports doesn't exceed with this confidence, for any population."""
        failure, count = failure_probability(confidence), positive_int(n, "n")
        return float(self.spread) * worst_error(count, self.keep, 1 - self.keep, failure, Target.POPULATION)

    def reduced(self) -> OneBitMean:
        """The same between 0 and 1."""
        return OneBitMean(UNIT, self.keep)


@dataclass(frozen=True, slots=True, init=False)
class LaplaceMean(
    LocalMean,
    name="laplace_mean",
    fields={"bounds": BOUNDS, "steps": number_field(1, LARGEST_LAPLACE_STEPS), "decay": FRACTION},
):
    """Adds two-sided geometric noise (discrete Laplace) to everybody's number, on a grid of ``steps`` steps.

    Pr[z] ∝ ``decay``^|z|. What leaves the grid is reported as its end. That loses nothing: geometric noise has no
    memory, so how far beyond doesn't depend on the number, and the ends stand for their mean overshoot.

    Args:
        bounds: Lower and upper bound, stated without looking at the data; what lies outside counts as the nearer one.
        steps: Steps of the grid between the bounds.
        decay: Pr[z] ∝ decay^|z|; the nearer to 1, the less a report costs.

    Guarantee: steps·ln(1/decay)-private under REPLACE, with the curve of discrete Laplace noise (Ghosh, Roughgarden &
        Sundararajan 2009).
    Accuracy: variance below 2B²/(ε²n), that of plain Laplace noise.

    Example:
        >>> age = LaplaceMean.for_epsilon((0, 100), epsilon=4)
        >>> age.steps, age.loss().pure() <= 4, age.variance(n=1) < 2 * 100**2 / 4**2
        (64, True, True)
    """

    bounds: tuple[Fraction, Fraction]
    steps: int
    decay: Fraction

    def __init__(self, bounds: tuple[Number, Number], *, steps: int, decay: Number) -> None:
        object.__setattr__(self, "bounds", checked_bounds(bounds))
        object.__setattr__(self, "steps", checked_steps(steps, LARGEST_LAPLACE_STEPS))
        object.__setattr__(self, "decay", as_fraction(decay, "decay"))
        check_decay(self.decay, self.steps)

    @classmethod
    def for_epsilon(cls, bounds: tuple[Number, Number], epsilon: Number, *, steps: int | None = None) -> Self:
        """The smallest noise whose loss is no more than ``epsilon``: ``decay`` is rounded up.

        By default the grid is so fine that rounding to it adds less than a hundredth to the variance.

        Args:
            bounds: Lower and upper bound, stated without looking at the data; what lies outside counts as the nearer
                one.
            epsilon: Largest ε that one report may cost (REPLACE).
            steps: Steps of the grid between the bounds; by default as many as the accuracy needs.
        """
        exact = positive(epsilon, "epsilon")
        wanted = 2 ** math.ceil(math.log2(16 * max(1.0, float(exact))))
        number = min(LARGEST_LAPLACE_STEPS, max(LEAST_STEPS, wanted)) if steps is None else positive_int(steps, "steps")
        return cls(bounds, steps=number, decay=1 / odds_for_epsilon(exact / number))

    @property
    def outputs(self) -> int:
        """The points of the grid."""
        return self.steps + 1

    def loss(self) -> PrivacyLoss:
        """The curve of discrete Laplace noise whose scale is a rational just below 1/ln(1/decay)."""
        return DiscreteLaplaceLoss(1 / Fraction(log_up(1 / self.decay)), self.steps, Adjacency.REPLACE)

    def law(self, point: int) -> tuple[Fraction, ...]:
        """The exact probability of every output for a point of the grid."""
        decay, last = self.decay, self.steps
        inner = [decay ** abs(j - point) * (1 - decay) / (1 + decay) for j in range(1, last)]
        return (decay**point / (1 + decay), *inner, decay ** (last - point) / (1 + decay))

    @property
    def overshoot(self) -> Fraction:
        """How far beyond its end, in steps, noise that leaves the grid lies on average."""
        return self.decay / (1 - self.decay)

    def decode(self, output: int) -> Fraction:
        """The position that an output stands for."""
        beyond = (output == self.steps) - (output == 0)
        return (output + beyond * self.overshoot) / self.steps

    def decoded(self) -> Floats:
        """The positions of all outputs."""
        return np.array([float(self.decode(output)) for output in range(self.outputs)])

    def second_moments(self) -> Floats:
        """For every point the mean square of the position that is sent."""
        squares = self.decoded() ** 2
        places = np.arange(self.outputs)
        powers = float(self.decay) ** np.abs(places[:, None] - places)
        inner = float((1 - self.decay) / (1 + self.decay))
        powers[:, 1:-1] *= inner
        powers[:, [0, -1]] /= float(1 + self.decay)
        return np.asarray(powers @ squares)

    def end_laws(self) -> tuple[Floats, Floats]:
        """The laws of the two ends of the grid, without powers of fractions."""
        falling: Floats = float(self.decay) ** np.arange(self.outputs, dtype=np.float64) / float(1 + self.decay)
        falling[1:-1] *= float(1 - self.decay)
        return np.asarray(falling), falling[::-1].copy()

    def respond(self, points: Ints, source: Source) -> Ints:
        """The outputs for many points."""
        down, far, digits = geometric_coins(self.decay, self.steps)
        n = points.size
        noise = bernoulli_many(far, n, source).astype(np.int64) << len(digits)
        for place, p in enumerate(digits):
            noise += bernoulli_many(p, n, source).astype(np.int64) << place
        negative = bernoulli_many(down, n, source)
        np.invert(noise, out=noise, where=negative)  # −1 − noise
        noise += points
        return np.clip(noise, 0, self.steps, out=noise)

    def reduced(self) -> LaplaceMean:
        """About the same noise on few steps, between 0 and 1."""
        few = min(self.steps, FEW_STEPS)
        return LaplaceMean(UNIT, steps=few, decay=self.decay ** (self.steps // few))
