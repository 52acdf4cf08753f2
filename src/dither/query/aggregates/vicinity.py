"""Counts around what was drawn: the interval of a quantile in values, by inverting tests of its rank.

The draw is released first. Around it, and never around the exact quantile, places of the grid are put into bins: one
place next to it, twice as many with each bin further out. A row is in one bin, so that all of them together move by
what one count does, though they reach to both bounds; quantiles of one expression share the bins around all draws.

Let D(e) = #(≤ e) − q·n. The exact quantile lies in some bin, above whose lower edge D ≥ −q and below whose upper edge
D ≤ 1 − q hold, whichever of the usual definitions it follows (a quantile between two values takes one row more or
less; ties are in one bin). The low end is the start of the first bin whose noisy D at the upper edge isn't clearly
below −q, the high end that of the last bin whose noisy D at the lower edge isn't clearly above 1 − q. So each end is
wrong only if one stated test fails: the draw is independent of the noise of the counts, hence bins count as fixed, and
no union over them is needed. Where nothing is counted both ends are those of the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dither.mechanisms import DiscreteGaussian
from dither.query.aggregates.spread import Floats, Noise

Ints: TypeAlias = npt.NDArray[np.int64]

SHARE = Fraction(1, 2)
"""Of the budget of a quantile, what the counts around it get; the draw has the rest."""

# Laws are computed on whole numbers up to this scale, and stretched beyond: there their shape no longer changes.
FINE = 32.0
STRETCHED = 1.0005
SIZE = 2**16
# Below, a bound on the tail is taken in place of sums of its chances, whose last digits are lost.
SMALLEST = 1e-9
HALVINGS = 40
# Sums of doubles come out a little off whole numbers.
LAST_DIGITS = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Vicinity:
    """What is counted around the values of ``choices``, from the histogram ``bins`` on a grid from 0 to ``last``."""

    bins: int
    last: int
    choices: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Nearby:
    """Noisy counts around the draws of each group; those of group g are ``counts[starts[g]:starts[g + 1]]``.

    ``ends`` are the last places of the bins, ascending; the last of a group is the grid's.
    """

    starts: Ints
    ends: Ints
    counts: Ints

    @classmethod
    def none(cls) -> Nearby:
        """Those of no groups."""
        nothing = np.zeros(0, dtype=np.int64)
        return cls(starts=np.zeros(1, dtype=np.int64), ends=nothing, counts=nothing)

    def take(self, groups: Ints) -> Nearby:
        """Some of the groups."""
        sizes = np.diff(self.starts)[groups]
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        picked = np.repeat(self.starts[:-1][groups] - starts[:-1], sizes) + np.arange(starts[-1])
        return Nearby(starts=starts, ends=self.ends[picked], counts=self.counts[picked])


def ends_around(drawn: Sequence[int], last: int) -> Ints:
    """The last place of each bin, where these places of a grid from 0 to ``last`` were drawn.

    Example:
        >>> ends_around([10], 30).tolist()
        [2, 6, 8, 9, 10, 11, 13, 17, 25, 30]
    """
    steps = 2 ** np.arange(last.bit_length() + 1, dtype=np.int64) - 1
    edges = [np.array([last])]
    for place in drawn:
        edges += [place + steps, place - 1 - steps]
    found: Ints = np.unique(np.concatenate(edges))
    return found[(found >= 0) & (found <= last)]


def counted_in(ends: Ints, places: Ints, counts: Ints) -> Ints:
    """How many values lie in each bin, of so many at each place."""
    found = np.zeros(ends.size, dtype=np.int64)
    np.add.at(found, np.searchsorted(ends, np.clip(places, 0, ends[-1])), counts)
    return found


def interval(nearby: Nearby, q: Fraction, noise: Noise, confidence: Fraction) -> tuple[Ints, Ints]:
    """The first and the last place of the interval of the q-quantile in each group."""
    sizes = np.diff(nearby.starts)
    low, high = np.zeros(sizes.size, dtype=np.int64), np.zeros(sizes.size, dtype=np.int64)
    share, slack = float(q), LAST_DIGITS
    for size in np.unique(sizes).tolist():
        groups = np.flatnonzero(sizes == size)
        place = nearby.starts[groups][:, np.newaxis] + np.arange(size)
        ends, upto = nearby.ends[place], np.cumsum(nearby.counts[place], axis=1)
        above = upto[:, :-1] - share * upto[:, -1:]  # D at the edges between bins
        reach = np.array([off_by(noise, q, below, size - below, confidence) for below in range(1, size)])
        sure = np.ones((groups.size, 1), dtype=np.bool_)
        not_below = np.hstack([above >= -(reach + share + slack), sure])
        not_above = np.hstack([sure, above <= reach + 1 - share + slack])
        first = np.argmax(not_below, axis=1)
        final = size - 1 - np.argmax(not_above[:, ::-1], axis=1)
        rows = np.arange(groups.size)
        low[groups] = np.where(first > 0, ends[rows, np.maximum(first - 1, 0)] + 1, 0)
        high[groups] = ends[rows, final]
    return low, high


def empty(nearby: Nearby, noise: Noise, confidence: Fraction) -> npt.NDArray[np.bool_]:
    """Whether there may be nothing to have a quantile of."""
    sizes = np.diff(nearby.starts)
    counted = np.add.reduceat(np.append(nearby.counts, 0), nearby.starts[:-1]) if sizes.size else np.zeros(0)
    bounds = {size: _tail_bound(noise, ((1.0, size),), float(1 - confidence)) for size in set(sizes.tolist())}
    return np.array([n <= bounds[size] for n, size in zip(counted.tolist(), sizes.tolist(), strict=True)], dtype=bool)


# ---------------------------------------------------------------------------------------------- sums of noises


def off_by(noise: Noise, q: Fraction, below: int, above: int, confidence: Fraction) -> float:
    """What (1 − q)·A − q·B exceeds with at most half of the failure, for sums A, B of so many independent noises.

    Computed from the chances of both sums. For scales above 32 from those of 32, stretched: the variance of discrete
    noise is then within 1/12,000 of that of continuous noise, and half a whole number makes up for the coarser steps.
    """
    failure = float(1 - confidence) / 2
    share, scale = float(q), float(noise.scale)
    if failure < SMALLEST:
        return _tail_bound(noise, ((1 - share, below), (share, above)), failure)
    fine = min(scale, FINE)
    found = _tail(type(noise), fine, share, below, above, failure)
    return found if scale <= FINE else scale / fine * STRETCHED * (found + max(share, 1 - share) / 2)


def _tail_bound(noise: Noise, parts: tuple[tuple[float, int], ...], failure: float) -> float:
    """By Chernoff; discrete noise has no larger moments than continuous noise of its scale."""
    scale, wanted = float(noise.scale), -math.log(failure)
    if isinstance(noise, DiscreteGaussian):
        return scale * math.sqrt(2 * wanted * sum(many * weight**2 for weight, many in parts))
    rates = np.linspace(0.001, 0.999, 999) / max(weight for weight, many in parts if many)
    moments = sum(-many * np.log1p(-np.minimum((rates * weight) ** 2, 0.999999)) for weight, many in parts)
    return scale * float(np.min((wanted + moments) / rates))


@lru_cache(maxsize=4096)
def _tail(law: type[Noise], scale: float, q: float, below: int, above: int, failure: float) -> float:
    beyond, chances = _sum_of(law, scale, below)[1], _sum_of(law, scale, above)[0]
    reach, other = beyond.size // 2, np.arange(chances.size) - chances.size // 2
    low, high = 0.0, (1 - q) * reach + q * float(other[-1]) + 1
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        least = np.floor((middle + q * other) / (1 - q) + LAST_DIGITS).astype(np.int64)
        tail = np.where(least < -reach, 1.0, beyond[np.clip(least + reach, 0, 2 * reach)])
        low, high = (low, middle) if float(chances @ tail) <= failure else (middle, high)
        if high - low < 1e-6 * max(1.0, high):
            break
    return high


@lru_cache(maxsize=1024)
def _sum_of(law: type[Noise], scale: float, many: int) -> tuple[Floats, Floats]:
    """The chances of a sum of so many noises from −r to r, and those of being beyond each of these numbers."""
    half = SIZE // 2
    away = np.abs(np.arange(SIZE) - half).astype(np.float64)
    one = np.exp(-((away / scale) ** 2) / 2) if law is DiscreteGaussian else np.exp(-away / scale)
    transformed = np.fft.rfft(np.fft.ifftshift(one / one.sum())) ** many
    chances = np.maximum(np.fft.fftshift(np.fft.irfft(transformed, SIZE)), 0.0)
    reach = min(half - 1, math.ceil(scale * (30 + 12 * math.sqrt(2 * many))))
    kept = chances[half - reach : half + reach + 1]
    return kept, np.append(np.cumsum(kept[::-1])[::-1][1:], 0.0)
