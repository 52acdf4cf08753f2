"""Report noisy max: add Laplace noise to every score, tell only which is the largest."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Self

import numpy as np

from dither.entropy import SYSTEM, DiscreteLaplaceSampler, Source, below, laplace_sampler
from dither.errors import NotPrivate
from dither.mechanisms import grid
from dither.mechanisms.base import Floats, Ints, failure_probability
from dither.mechanisms.exponential import ScoreMechanism, checked_counts, score_array, score_range
from dither.mechanisms.permute_and_flip import PermuteAndFlip
from dither.numeric import Number, fraction_up, smallest_true, up
from dither.privacy import Guarantee, PureLoss, Sensitivity

WORD = 32
# Scores are clamped to ±2^94 grid points, so that they fit two words.
CLAMP = 2.0**94


@dataclass(frozen=True, slots=True, init=False)
class NoisyMax(ScoreMechanism):
    """Tells which of several scores is the largest after Laplace noise of a stated scale; the noisy scores stay inside.

    Guarantee: 2Δ/scale-private for scores that each move by at most Δ, Δ/scale-private with ``monotone=True``
        (Dwork & Roth 2014, Claim 3.9), for noise on a grid and ties broken at random; see noisy_max.md.
        With one-sided exponential noise instead of Laplace this is ``PermuteAndFlip`` (Ding et al. 2021), which errs
        less at the same cost.
    Assumes: the sensitivity holds for the scores as passed in, the same candidates are open (not −inf) for both
        neighbours, and ``monotone=True`` promises that adding a unit never raises one score and lowers another (it
        helps under add_remove only).
    Accuracy: a score that is x below the best wins against it with probability at most (2 + x/scale)/4·e^{−x/scale}.

    Example:
        >>> NoisyMax(scale=2).loss(Sensitivity.linf(1)).pure(), NoisyMax(scale=2, monotone=True).loss(
        ...     Sensitivity.linf(1)).pure()
        (1.0, 0.5)
        >>> NoisyMax(scale=2).error(confidence=0.95, candidates=100) < 2 * 2 * math.log(100 / 0.05)
        True
        >>> NoisyMax(scale=1).release([])
        Traceback (most recent call last):
        dither.errors.InvalidData: scores must be a one-dimensional array with at least one score; nothing was drawn
    """

    _exponent: int = field(init=False, repr=False, compare=False)
    _noise: DiscreteLaplaceSampler = field(init=False, repr=False, compare=False)

    def __init__(self, scale: Number, *, monotone: bool = False) -> None:
        ScoreMechanism.__init__(self, scale, monotone=monotone)
        object.__setattr__(self, "_exponent", grid.L1_GRID.exponent(self.scale))
        object.__setattr__(self, "_noise", laplace_sampler(self._wide / Fraction(2) ** self._exponent))

    @property
    def _wide(self) -> Fraction:
        # flooring moves each score by less than one grid step against its neighbour's: the widening of one coordinate
        return self.scale * grid.L1_GRID.widening(1)

    def loss(self, sensitivity: Sensitivity) -> PureLoss:
        """ε = 2Δ∞/scale, or Δ∞/scale for monotone scores under add_remove; a Δ∞ below 2^-16 scales counts as that.

        Args:
            sensitivity: How far one unit moves a score: ``Sensitivity.linf``.
        """
        sides = score_range(sensitivity, monotone=self.monotone) / sensitivity.linf_bound()
        return PureLoss(sides * max(sensitivity.linf_bound() / self.scale, grid.LEAST_SHARE), sensitivity.adjacency)

    def error(self, confidence: Number = 0.95, *, candidates: int, optimal: int = 1) -> float:
        """How far below the best score the choice falls at most, with this confidence.

        A union bound: each of the worse candidates against one of the best. Scores beyond ±2^44 scales are clamped, and
        then compared as such.

        Args:
            confidence: How sure it is, between 0 and 1.
            candidates: How many there are to choose from.
            optimal: How many of them have the best score.
        """
        others, _ = checked_counts(candidates, optimal)
        if others == 0:
            return 0.0
        log_failure = math.log(failure_probability(confidence)) - math.log(others)

        def rare(gap: float) -> bool:
            return math.log((2 + gap) / 4) - gap <= log_failure

        # (2 + x)/4·e^−x ≤ e^{−x/2}/2 for all x ≥ 0
        gap = smallest_true(rare, 0.0, max(1.0, -2 * log_failure))
        return up(fraction_up(self._wide) * gap, 2.0**-38) + math.ldexp(1.0, self._exponent)

    def release(self, scores: Any, *, source: Source = SYSTEM) -> int:
        """The index of the largest noisy score.

        Args:
            scores: One for each candidate.
            source: Source of randomness; anything but the default is for tests.
        """
        values = score_array(scores)
        open_ones = np.flatnonzero(values > -math.inf)
        noise = np.empty(open_ones.size, dtype=np.int64)
        self._noise.into(noise, source)
        tied = largest(*noisy_words(values[open_ones], noise, self._exponent))
        return int(open_ones[tied[below(tied.size, source)]])

    @staticmethod
    def largest(guarantee: Guarantee) -> Fraction:
        """That of any pure loss."""
        return PermuteAndFlip.largest(guarantee)

    @classmethod
    def calibrated(cls, guarantee: Guarantee, sensitivity: Sensitivity, *, monotone: bool = False) -> Self:
        """The smallest scale for which ε'-privacy implies (ε, δ).

        Args:
            guarantee: The (ε, δ) to be met.
            sensitivity: How far one unit moves a score: ``Sensitivity.linf``.
            monotone: Whether all scores move the same way when a unit is added.
        """
        epsilon = cls.largest(guarantee)
        width = score_range(sensitivity, monotone=monotone)
        least = width / sensitivity.linf_bound() * grid.LEAST_SHARE
        if epsilon < least:
            raise NotPrivate(f"noisy max costs at least {least}, whatever its scale: use PermuteAndFlip instead")
        return cls(width / epsilon, monotone=monotone)


def noisy_words(values: Floats, noise: Ints, exponent: int) -> tuple[Ints, Ints]:
    """⌊score/2^exponent⌋ + noise, exactly, as high·2^32 + low with 0 ≤ low < 2^32.

    Sums rounded to floats may not be compared instead: the proof needs a threshold for each score's noise that moves no
    further than the scores do, and one that has been rounded can jump.
    """
    with np.errstate(over="ignore", under="ignore"):
        units = np.clip(np.ldexp(values, -exponent), -CLAMP, CLAMP)
    np.floor(units, out=units)  # before the split: of a whole number both parts are exact
    top = np.floor(units * 2.0**-WORD)
    high = top.astype(np.int64)
    low = (units - top * 2.0**WORD).astype(np.int64)
    low += noise
    high += low >> WORD
    low &= (1 << WORD) - 1
    return high, low


def largest(high: Ints, low: Ints) -> Ints:
    """The indices of the largest sum: usually one, several in a tie."""
    tied = np.flatnonzero(high == high.max())
    lows = low[tied]
    best: Ints = tied[lows == lows.max()]
    return best
