"""Permute-and-flip: the exponential mechanism's better twin for a single choice."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.special import roots_legendre

from dither.entropy import SYSTEM, Source, permute_and_flip
from dither.mechanisms.base import FiniteLaw, failure_probability
from dither.mechanisms.exponential import Exponential, ScoreMechanism, checked_counts, raised, score_array, score_range
from dither.numeric import Number, fraction_up, up
from dither.privacy import Guarantee, PureLoss, Sensitivity


@dataclass(frozen=True, slots=True, init=False)
class PermuteAndFlip(ScoreMechanism):
    """Visits candidates in random order and takes each with probability e^{(score − best)/scale}, until one is taken.

    Guarantee: 2Δ/scale-private for scores that each move by at most Δ, Δ/scale-private with ``monotone=True``
        (McKenna & Sheldon 2020); see permute_and_flip.md. Unlike the exponential mechanism it has no bounded range, so
        that one may be cheaper in long compositions.
    Assumes: as ``Exponential``: the sensitivity holds for the scores as passed in, the same candidates are open for
        both neighbours, and ``monotone=True`` promises that adding a unit never raises one score and lowers another.
    Accuracy: whatever the scores, at least as likely to reach any level as the exponential mechanism of the same scale,
        so never worse in expectation; the error bound is smaller by up to scale·ln 2.

    Example:
        >>> PermuteAndFlip(scale=2).loss(Sensitivity.linf(1)).pure()
        1.0
        >>> PermuteAndFlip(scale=2).error(candidates=100) < Exponential(scale=2).error(candidates=100)
        True
        >>> PermuteAndFlip(scale=0)
        Traceback (most recent call last):
        dither.errors.InvalidParameter: scale must be greater than 0; got 0
    """

    def loss(self, sensitivity: Sensitivity) -> PureLoss:
        """ε = 2Δ∞/scale, or Δ∞/scale for monotone scores under add_remove.

        Args:
            sensitivity: How far one unit moves a score: ``Sensitivity.linf``.
        """
        return PureLoss(score_range(sensitivity, monotone=self.monotone) / self.scale, sensitivity.adjacency)

    def error(self, confidence: Number = 0.95, *, candidates: int, optimal: int = 1) -> float:
        """How far below the best score the choice falls at most, with this confidence.

        With all others at gap x and q = e^{−x/scale}, one of the k best is taken with probability at least
        (1 − q/(k+1))^{n−k}; and the bound of the exponential mechanism holds too.

        Args:
            confidence: How sure it is, between 0 and 1.
            candidates: How many there are to choose from.
            optimal: How many of them have the best score.
        """
        others, best = checked_counts(candidates, optimal)
        if others == 0:
            return 0.0
        taken = -math.expm1(math.log1p(-failure_probability(confidence)) / others)
        own = max(0.0, -math.log(taken) - math.log(best + 1))
        exponential = Exponential(self.scale).error(confidence, candidates=candidates, optimal=optimal)
        return min(exponential, up(fraction_up(self.scale) * own, 2.0**-40))

    def expected_shortfall(self, *, candidates: int, optimal: int = 1) -> float:
        """A bound of E[best − score]: that of the exponential mechanism.

        Args:
            candidates: How many there are to choose from.
            optimal: How many of them have the best score.
        """
        return Exponential(self.scale).expected_shortfall(candidates=candidates, optimal=optimal)

    def release(self, scores: Any, *, source: Source = SYSTEM) -> int:
        """The index of the choice.

        Args:
            scores: One for each candidate.
            source: Source of randomness; anything but the default is for tests.
        """
        return permute_and_flip(score_array(scores), self.scale, source)

    def law(self, scores: Any) -> FiniteLaw:
        """The probability of each index: p_i·∫₀¹ Π_{j≠i}(1 − p_j·x) dx with p = e^{(score − best)/scale}.

        The integrand is a polynomial of degree n − 1, which Gauss–Legendre integrates exactly with n/2 nodes.

        Args:
            scores: One for each candidate.
        """
        values = score_array(scores)
        heads = np.exp((values - values.max()) / float(self.scale))
        nodes, node_weights = roots_legendre(min((heads.size + 1) // 2, 64 + 4 * math.isqrt(heads.size)))
        chances = np.zeros_like(heads)
        for node, weight in zip((nodes + 1) / 2, node_weights / 2, strict=True):
            tails = np.log1p(-heads * node)
            chances += weight * np.exp(tails.sum() - tails)
        return FiniteLaw(heads * chances)

    @staticmethod
    def largest(guarantee: Guarantee) -> Fraction:
        """The largest ε' for which ε'-privacy implies (ε, δ): e^ε' = (e^ε + δ)/(1 − δ)."""
        if not guarantee.delta:
            return guarantee.epsilon
        delta = float(guarantee.delta)
        gain = math.log1p(delta * math.exp(-float(guarantee.epsilon))) - math.log(float(1 - guarantee.delta))
        return raised(guarantee.epsilon, gain)
