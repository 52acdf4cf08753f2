"""Means by the piecewise and the hybrid mechanism of Wang et al. (2019), on a grid. Proof in ``means.md``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np

from dither.entropy import Source, below_many, bernoulli_many
from dither.errors import InvalidParameter
from dither.local.clients.base import fraction, whole
from dither.local.clients.means import LARGEST_STEPS, check_share, check_window
from dither.local.clients.wire import Json
from dither.local.core.losses import response_loss
from dither.local.core.protocol import FRACTION, Floats, number_field
from dither.local.frequency.oracle import Ints
from dither.local.means.mean import BOUNDS, FEW_STEPS, LEAST_STEPS, UNIT, LocalMean, checked_bounds, checked_steps
from dither.local.means.noisy import OneBitMean
from dither.mechanisms.randomized_response import odds_for_epsilon
from dither.numeric import Number, as_fraction, positive, positive_int
from dither.privacy import PrivacyLoss

# A window of fewer cells is too coarse a copy of the continuous one.
LEAST_WINDOW = 16
# Below it one bit is better than any mixture (Wang et al. 2019).
LEAST_HYBRID = Fraction(61, 100)


@dataclass(frozen=True, slots=True, init=False)
class PiecewiseMean(
    LocalMean,
    name="piecewise_mean",
    fields={
        "bounds": BOUNDS,
        "steps": number_field(1, LARGEST_STEPS),
        "window": number_field(1, LARGEST_STEPS),
        "keep": FRACTION,
    },
):
    """Names one of steps + window cells: with probability ``keep`` one of the ``window`` that begin at the number.

    The piecewise mechanism of Wang, Xiao, Yang, Zhao, Hui, Shin, Shin & Yu (2019) on a grid, where its probabilities
    are fractions.

    Args:
        bounds: Lower and upper bound, stated without looking at the data; what lies outside counts as the nearer one.
        steps: Steps of the grid between the bounds.
        window: Cells that begin at the number.
        keep: Probability of a cell of the window.

    Guarantee: ln(keep·steps/((1−keep)·window))-private under REPLACE: a cell of the window against one outside.
    Accuracy: variance (B/2)²·(4e^{ε/2}/(3(e^{ε/2}−1)²))/n at most, on a fine grid; least for numbers in the middle.

    Example:
        >>> age = PiecewiseMean.for_epsilon((0, 100), epsilon=2)
        >>> age.steps, age.window, age.width, age.loss().pure() <= 2
        (64, 24, 1, True)
    """

    bounds: tuple[Fraction, Fraction]
    steps: int
    window: int
    keep: Fraction

    def __init__(self, bounds: tuple[Number, Number], *, steps: int, window: int, keep: Number) -> None:
        cells = {"steps": checked_steps(steps, LARGEST_STEPS), "window": checked_steps(window, LARGEST_STEPS, "window")}
        self._put(bounds=checked_bounds(bounds), keep=as_fraction(keep, "keep"), **cells)
        check_window(self.keep, self.steps, self.window)

    @classmethod
    def for_epsilon(cls, bounds: tuple[Number, Number], epsilon: Number, *, steps: int | None = None) -> Self:
        """The most honest answer whose loss is no more than ``epsilon``; the window is steps·e^{−ε/2} cells wide.

        Args:
            bounds: Lower and upper bound, stated without looking at the data; what lies outside counts as the nearer
                one.
            epsilon: Largest ε that one report may cost (REPLACE).
            steps: Steps of the grid between the bounds; by default as many as the accuracy needs.
        """
        odds = odds_for_epsilon(epsilon)
        shrink = math.exp(-min(float(as_fraction(epsilon)), 40.0) / 2)
        wanted = 2 ** math.ceil(math.log2(LEAST_WINDOW / shrink))
        number = min(LARGEST_STEPS, max(LEAST_STEPS, wanted)) if steps is None else positive_int(steps, "steps")
        window = max(1, round(number * shrink))
        return cls(bounds, steps=number, window=window, keep=odds * window / (odds * window + number))

    @property
    def outputs(self) -> int:
        """The number of cells."""
        return self.steps + self.window

    @property
    def inside(self) -> Fraction:
        """The probability of one given cell of the window."""
        return self.keep / self.window

    @property
    def outside(self) -> Fraction:
        """The probability of one given other cell."""
        return (1 - self.keep) / self.steps

    def loss(self) -> PrivacyLoss:
        """Two points whose windows have as few cells in common as possible: the ends of the grid."""
        return response_loss(self.inside / self.outside, self.weight)

    @property
    def weight(self) -> Fraction:
        """The probability that a report speaks for one end of the grid, at the other end."""
        return min(self.window, self.steps) * self.outside

    def law(self, point: int) -> tuple[Fraction, ...]:
        """The exact probability of every output for a point of the grid."""
        others = self.steps - point
        return (self.outside,) * point + (self.inside,) * self.window + (self.outside,) * others

    def end_laws(self) -> tuple[Floats, Floats]:
        """The laws of the two ends of the grid, without as many fractions."""
        first = np.full(self.outputs, float(self.outside))
        first[: self.window] = float(self.inside)
        return first, first[::-1].copy()

    @property
    def line(self) -> tuple[Fraction, Fraction]:
        """Position = slope·cell + offset: the mean cell is linear in the point, so a line brings it back."""
        cells, gap = self.outputs, (self.inside - self.outside) * self.window
        offset = self.outside * cells * (cells - 1) / 2 / gap + Fraction(self.window - 1, 2)
        return 1 / (gap * self.steps), -offset / self.steps

    def decode(self, output: int) -> Fraction:
        """The position that an output stands for."""
        slope, offset = self.line
        return slope * output + offset

    def decoded(self) -> Floats:
        """The positions of all outputs."""
        slope, offset = self.line
        return np.asarray(float(slope) * np.arange(self.outputs) + float(offset))

    def second_moments(self) -> Floats:
        """For every point the mean square of the position that is sent."""
        squares = self.decoded() ** 2
        sums = np.concatenate([[0.0], np.cumsum(squares)])
        windows = sums[self.window :] - sums[: self.steps + 1]
        return np.asarray(float(self.outside) * sums[-1] + float(self.inside - self.outside) * windows)

    def respond(self, points: Ints, source: Source) -> Ints:
        """The outputs for many points."""
        n = points.size
        inside = bernoulli_many(self.keep, n, source)
        near, others = below_many(self.window, n, source), below_many(self.steps, n, source)
        near += points
        np.add(others, self.window, out=others, where=others >= points)
        return np.where(inside, near, others)

    def reduced(self) -> PiecewiseMean:
        """The same odds on few steps, between 0 and 1."""
        steps, odds = min(self.steps, FEW_STEPS), self.inside / self.outside
        window = max(1, round(steps * self.window / self.steps))
        return PiecewiseMean(UNIT, steps=steps, window=window, keep=odds * window / (odds * window + steps))


@dataclass(frozen=True, slots=True, init=False)
class HybridMean(LocalMean, name="hybrid_mean"):
    """Asks piecewise with probability ``share``, else for one bit; the report tells which it was.

    The hybrid mechanism of Wang et al. (2019): the two have their largest variances for different numbers.

    Args:
        share: Probability of the piecewise part.
        piecewise: Piecewise part.
        bit: One-bit part, with the same bounds.

    Guarantee: that of both parts, which have one ε under REPLACE; the curve is their mean.
    Accuracy: the smallest largest variance of all protocols here from ε = 0.61 on; the same for nearly all numbers.

    Example:
        >>> age = HybridMean.for_epsilon((0, 100), epsilon=2)
        >>> age.loss().pure() <= 2, age.variance(n=1) < age.piecewise.variance(n=1)
        (True, True)
    """

    bounds: tuple[Fraction, Fraction]
    share: Fraction
    piecewise: PiecewiseMean
    bit: OneBitMean

    def __init__(self, *, share: Number, piecewise: PiecewiseMean, bit: OneBitMean) -> None:
        self._put(bounds=piecewise.bounds, share=as_fraction(share, "share"), piecewise=piecewise, bit=bit)
        check_share(self.share)
        if piecewise.bounds != bit.bounds:
            raise InvalidParameter("both parts must have the same bounds")

    @classmethod
    def for_epsilon(cls, bounds: tuple[Number, Number], epsilon: Number, *, steps: int | None = None) -> Self:
        """Both parts at ``epsilon``, piecewise with probability 1 − e^{−ε/2}, which makes the variance even.

        Args:
            bounds: Lower and upper bound, stated without looking at the data; what lies outside counts as the nearer
                one.
            epsilon: Largest ε that one report may cost (REPLACE), above 0.61.
            steps: Steps of the grid between the bounds; by default as many as the accuracy needs.
        """
        if positive(epsilon, "epsilon") <= LEAST_HYBRID:
            raise InvalidParameter(
                f"up to ε = {float(LEAST_HYBRID)} one bit is better than any mixture: use OneBitMean; "
                f"got epsilon={epsilon!r}"
            )
        share = min(
            Fraction(round(-math.expm1(-float(as_fraction(epsilon)) / 2) * 2**20), 2**20), 1 - Fraction(1, 2**20)
        )
        piecewise = PiecewiseMean.for_epsilon(bounds, epsilon, steps=steps)
        return cls(share=share, piecewise=piecewise, bit=OneBitMean.for_epsilon(bounds, epsilon))

    @property
    def steps(self) -> int:
        """The grid of the piecewise part."""
        return self.piecewise.steps

    @property
    def outputs(self) -> int:
        """Cells, and a bit."""
        return self.piecewise.outputs + 2

    def loss(self) -> PrivacyLoss:
        """The mean of two curves weight·(odds − e^ε)₊; where odds differ by a rounding, their chord."""
        parts = (
            (self.share, self.piecewise.inside / self.piecewise.outside, self.piecewise.weight),
            (1 - self.share, self.bit.keep / (1 - self.bit.keep), 1 - self.bit.keep),
        )
        odds = max(part[1] for part in parts)
        start = sum((share * weight * (ratio - 1) for share, ratio, weight in parts), Fraction(0))
        return response_loss(odds, start / (odds - 1))

    def law(self, point: int) -> tuple[Fraction, ...]:
        """The exact probability of every output for a point of the grid."""
        place = Fraction(point, self.steps)
        ends = zip(self.bit.law(0), self.bit.law(1), strict=True)
        bits = ((1 - self.share) * ((1 - place) * p + place * q) for p, q in ends)
        return (*(self.share * p for p in self.piecewise.law(point)), *bits)

    def end_laws(self) -> tuple[Floats, Floats]:
        """The laws of the two ends of the grid, without as many fractions."""
        share, parts = float(self.share), zip(self.piecewise.end_laws(), self.bit.end_laws(), strict=True)
        first, last = (np.concatenate([share * cells, (1 - share) * bits]) for cells, bits in parts)
        return first, last

    def decode(self, output: int) -> Fraction:
        """The position that an output stands for."""
        cells = self.piecewise.outputs
        return self.piecewise.decode(output) if output < cells else self.bit.decode(output - cells)

    def decoded(self) -> Floats:
        """The positions of all outputs."""
        return np.concatenate([self.piecewise.decoded(), self.bit.decoded()])

    def second_moments(self) -> Floats:
        """For every point the mean square of the position that is sent."""
        ends, share = self.bit.second_moments(), float(self.share)
        places = np.arange(self.steps + 1) / self.steps
        bits = (1 - places) * ends[0] + places * ends[1]
        return np.asarray(share * self.piecewise.second_moments() + (1 - share) * bits)

    def respond(self, points: Ints, source: Source) -> Ints:
        """The outputs for many points."""
        n, cells = points.size, self.piecewise.outputs
        chosen = bernoulli_many(self.share, n, source)
        named = self.piecewise.respond(points, source)
        ends = (below_many(self.steps, n, source) < points).astype(np.int64)
        return np.where(chosen, named, self.bit.respond(ends, source) + cells)

    def describe(self) -> Json:
        """The description."""
        piecewise = self.piecewise.describe()
        bit = {"bit_keep": str(self.bit.keep), "share": str(self.share)}
        return {**piecewise, "protocol": self.name, **bit}

    @classmethod
    def from_description(cls, description: Mapping[str, Any]) -> Self:
        """The inverse."""
        bounds = BOUNDS.read(description, "bounds")
        steps, window = (whole(description, name, least=1, most=LARGEST_STEPS) for name in ("steps", "window"))
        piecewise = PiecewiseMean(bounds, steps=steps, window=window, keep=fraction(description, "keep"))
        bit = OneBitMean(bounds, fraction(description, "bit_keep"))
        return cls._exactly(description, share=fraction(description, "share"), piecewise=piecewise, bit=bit)

    def reduced(self) -> HybridMean:
        """The same odds on few steps, between 0 and 1."""
        return HybridMean(share=self.share, piecewise=self.piecewise.reduced(), bit=self.bit.reduced())
