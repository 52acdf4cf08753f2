"""Randomised response to a yes/no question: no single answer can be held against anybody.

More than two answers are in ``kary_response``; several attributes, and a form that also hides who took part, in
``response_surveys``; what the answers say about the truth in ``response_estimates``. One proof note,
``randomized_response.md``, covers them all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np

from dither.entropy import SYSTEM, Source, bernoulli, bernoulli_many, exp_neg_bounds
from dither.errors import InvalidData, InvalidParameter
from dither.mechanisms.base import FiniteLaw, failure_probability
from dither.mechanisms.response_estimates import (
    ShareEstimate,
    Target,
    check_counts,
    estimate_share,
    needed_gap,
    share_variance,
    worst_error,
)
from dither.numeric import Number, as_fraction, log_up, positive, positive_int, probability
from dither.privacy import Adjacency, Array, Cells, Direction, PrivacyLoss, compose
from dither.privacy.loss import randomized_response_cells, randomized_response_profile

LARGEST_EPSILON = 1000
HALF = Fraction(1, 2)


def odds_for_epsilon(epsilon: Number) -> Fraction:
    """A rational just below e^ε, by integer arithmetic: truth may be so much likelier than one given lie.

    It is low enough that the loss computed back from it, rounded up, still is no more than ε.
    """
    exact = positive(epsilon, "epsilon")
    if exact <= LARGEST_EPSILON:
        # bits for a relative accuracy of 2^-60 in e^-ε and in 1 − e^-ε alike
        precision = 64 + 2 * math.ceil(exact) + (exact.denominator // exact.numerator).bit_length()
        for spare in range(50, 20, -1):
            _, high = exp_neg_bounds(exact * (1 - Fraction(1, 2**spare)), precision)
            odds = Fraction(1 << precision, high)
            if log_up(odds) <= exact:
                return odds
    raise InvalidParameter(f"epsilon must lie between 1e-300 and {LARGEST_EPSILON}; got {epsilon!r}")


def check_odds(odds: Number) -> Fraction:
    """The odds of truth to one given lie, refused where the lie would be likelier."""
    exact = as_fraction(odds, "odds")
    if exact < 1:
        raise InvalidParameter(f"the odds of truth to lie must be at least 1; got {odds!r}")
    return exact


@dataclass(frozen=True, slots=True)
class RandomizedResponseLoss(PrivacyLoss, kind="randomized_response"):
    """One binary answer that is ``odds`` times likelier to be true than a lie.

    Example:
        >>> loss = RandomizedResponseLoss(Fraction(3))
        >>> f"{loss.pure():.6f} {(10 * loss).pure():.6f}"
        '1.098612 10.986123'
    """

    odds: Fraction
    adjacency: Adjacency = Adjacency.REPLACE

    symmetric = True  # exchanging yes and no swaps the pair

    def __post_init__(self) -> None:
        object.__setattr__(self, "odds", check_odds(self.odds))

    def pure(self) -> float:
        """The logarithm of the odds."""
        return log_up(self.odds)

    def profile(self, epsilon: Array, direction: Direction) -> Array:  # noqa: ARG002
        """(odds − e^ε)₊/(odds + 1) for ε ≥ 0."""
        return randomized_response_profile(self.pure(), epsilon)

    def cells(self, edges: Array, direction: Direction) -> Cells:  # noqa: ARG002
        """Two point masses, at ±ln(odds)."""
        return randomized_response_cells(self.pure(), edges)

    def grouped(self, size: int) -> PrivacyLoss:
        """A group gives as many answers, each with its own coins."""
        return compose([(self, positive_int(size, "size"))])


@dataclass(frozen=True, slots=True)
class RandomizedResponse:
    """Answers a yes/no question truthfully except for a lie of stated probability, whatever the truth is.

    Guarantee: ln((1−p)/p)-private for a lie of probability p ≤ ½ (Warner 1965), under REPLACE: what a respondent says
        is protected, that they answered is not. To hide that too use ParticipationResponse.
    Assumes: every entry of an array belongs to a different unit; one that answers m times costs m times as much.
    Accuracy: (ā − p)/(1 − 2p) is unbiased with variance θ(1−θ)/n + p(1−p)/(n(1−2p)²).

    Example:
        >>> two_coins = RandomizedResponse(lie="1/4")  # honest on heads; on tails a second coin answers
        >>> f"{two_coins.loss().pure():.6f}"  # ln 3
        '1.098612'
        >>> f"{two_coins.error(confidence=0.95, n=10_000):.4f}"
        '0.0272'
        >>> RandomizedResponse(lie=0)
        Traceback (most recent call last):
        dither.errors.InvalidParameter: lie must be above 0 (an honest answer has no finite ε) and at most 1/2; got 0
    """

    lie: Fraction

    def __init__(self, lie: Number) -> None:
        exact = as_fraction(lie, "lie")
        if not 0 < exact <= HALF:
            raise InvalidParameter(
                f"lie must be above 0 (an honest answer has no finite ε) and at most 1/2; got {lie!r}"
            )
        object.__setattr__(self, "lie", exact)

    @classmethod
    def for_epsilon(cls, epsilon: Number) -> Self:
        """The most honest response whose loss is no more than ``epsilon``: the lie is rounded up.

        Args:
            epsilon: The most that one answer may cost.
        """
        return cls(1 / (1 + odds_for_epsilon(epsilon)))

    @classmethod
    def for_error(cls, error: Number, n: int, confidence: Number = 0.95) -> Self:
        """The most private response whose worst error over ``n`` answers is no more than ``error``.

        Args:
            error: Largest error of the share.
            n: Number of answers.
            confidence: Probability with which the bound holds, strictly between 0 and 1.
        """
        gap = needed_gap(positive(error, "error"), positive_int(n, "n"), failure_probability(confidence), 2)
        return cls((1 - gap) / 2)

    @property
    def truth(self) -> Fraction:
        """The probability of an honest answer."""
        return 1 - self.lie

    def loss(self) -> RandomizedResponseLoss:
        """ε = ln((1−p)/p), for the adjacency REPLACE."""
        return RandomizedResponseLoss(self.truth / self.lie)

    def release(self, truth: Any, *, source: Source = SYSTEM) -> Any:
        """The randomised answer: a bool for a bool, 0 or 1 for 0 or 1, and arrays of the same shape and type.

        Args:
            truth: The true answer, or an array of such.
            source: Source of randomness; anything but the default is for tests.
        """
        array = np.asarray(truth)
        if array.dtype.kind not in "biu" or (array.dtype.kind != "b" and not ((array == 0) | (array == 1)).all()):
            raise InvalidData("answers must be truth values, or the whole numbers 0 and 1; nothing was drawn")
        if array.ndim == 0:
            answer = bool(array) ^ bernoulli(self.lie, source)
            return answer if array.dtype.kind == "b" else int(answer)
        lies = bernoulli_many(self.lie, array.size, source).reshape(array.shape)
        return array ^ lies.astype(array.dtype)

    def probabilities(self, truth: bool) -> tuple[Fraction, Fraction]:  # noqa: FBT001
        """The exact law of the answer: Pr[no], Pr[yes].

        Args:
            truth: The true answer.
        """
        return (self.lie, self.truth) if truth else (self.truth, self.lie)

    def law(self, exact: bool) -> FiniteLaw:  # noqa: FBT001
        """The law of the answer as floats.

        Args:
            exact: The true answer.
        """
        return FiniteLaw(np.array([float(p) for p in self.probabilities(exact)]))

    def worst_pair(self) -> tuple[bool, bool]:
        """The two truths."""
        return False, True

    def variance(self, n: int, share: Number = HALF, *, target: Target = Target.POPULATION) -> float:
        """The variance of the estimate from ``n`` answers; by default for the share where it is largest.

        Args:
            n: Number of answers.
            share: True share of yes.
            target: Whether the share in the population is meant, or that among those who answered.
        """
        theta = probability(share, "share")
        return float(share_variance(positive_int(n, "n"), theta, self.truth, self.lie, target))

    def error(self, confidence: Number = 0.95, *, n: int, target: Target = Target.POPULATION) -> float:
        """The error that the estimate from ``n`` answers doesn't exceed with this confidence, for any true share.

        Args:
            confidence: Probability with which the bound holds, strictly between 0 and 1.
            n: Number of answers.
            target: Whether the share in the population is meant, or that among those who answered.
        """
        failure = failure_probability(confidence)
        return worst_error(positive_int(n, "n"), self.truth, self.lie, failure, target)

    def estimate(
        self,
        answers: Any = None,
        *,
        counts: Any = None,
        confidence: Number = 0.95,
        target: Target = Target.POPULATION,
        clip: bool = False,
    ) -> ShareEstimate:
        """The share of true yeses, from released ``answers`` or from ``counts`` of (no, yes).

        Unbiased, so it may leave [0, 1] unless ``clip`` is set, which costs the unbiasedness but not the coverage.

        Args:
            answers: What was answered; give these or counts.
            counts: Numbers of no and of yes, in place of the answers.
            confidence: Probability with which the bound holds, strictly between 0 and 1.
            target: Whether the share in the population is meant, or that among those who answered.
            clip: Cut estimates and intervals to [0, 1]: no longer unbiased, as good for privacy.

        Example:
            >>> found = RandomizedResponse(lie="1/4").estimate(counts=(600, 400))
            >>> found.value, [f"{end:.3f}" for end in found.interval]
            (0.3, ['0.239', '0.362'])
        """
        if (answers is None) == (counts is None):
            raise InvalidParameter("give either the answers or counts=(no, yes)")
        if counts is None:
            array = np.asarray(answers)
            if array.dtype.kind not in "biu" or ((array != 0) & (array != 1)).any():
                raise InvalidData("answers must be truth values, or the whole numbers 0 and 1")
            yes = int(np.count_nonzero(array))
            counts = (array.size - yes, yes)
        no, yes = (int(c) for c in check_counts(counts, 2))
        value, variance, ends = estimate_share(
            yes, no + yes, self.truth, self.lie, failure=failure_probability(confidence), target=target, clip=clip
        )
        return ShareEstimate(
            value=value,
            variance=variance,
            interval=ends,
            confidence=float(as_fraction(confidence)),
            answers=no + yes,
            target=target,
        )
