"""Randomised response to a question with k possible answers; the proofs are in ``randomized_response.md``."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any, Self

import numpy as np
from scipy.special import ndtri

from dither.brief import brief
from dither.entropy import SYSTEM, Source, below_many, bernoulli_many
from dither.errors import InvalidData, InvalidParameter
from dither.mechanisms.base import FiniteLaw, Floats, Ints, failure_probability
from dither.mechanisms.randomized_response import check_odds, odds_for_epsilon
from dither.mechanisms.response_estimates import (
    SharesEstimate,
    Target,
    check_counts,
    check_informative,
    estimate_shares,
    needed_gap,
    share_covariance,
    share_variance,
    worst_error,
    worst_share,
)
from dither.numeric import Number, as_fraction, fraction_up, log_up, positive, positive_int, probability, up
from dither.numeric.rounding import SLACK
from dither.privacy import Adjacency, Array, Cells, Direction, PrivacyLoss, compose, mirrored
from dither.privacy.renyi import pure_kl, pure_renyi, pure_zcdp

LARGEST_CATEGORIES = 2**62


@dataclass(frozen=True, slots=True)
class KaryResponseLoss(PrivacyLoss, kind="kary_response"):
    """One answer among k categories, the true one ``odds`` times likelier than any given other.

    Guarantee: with w = 1/(odds + k − 1) the pair of two categories has loss ±ln(odds) with masses odds·w and w, and
        loss 0 with mass (k−2)·w: strictly better than binary randomised response of the same ε.

    Example:
        >>> from dither.mechanisms.randomized_response import RandomizedResponseLoss
        >>> loss, binary = KaryResponseLoss(Fraction(3), 10), RandomizedResponseLoss(Fraction(3))
        >>> loss.pure() == binary.pure(), f"{loss.delta(0):.4f} {binary.delta(0):.4f}"
        (True, '0.1667 0.5000')
    """

    odds: Fraction
    categories: int
    adjacency: Adjacency = Adjacency.REPLACE

    symmetric = True  # exchanging the two categories swaps the pair

    def __post_init__(self) -> None:
        object.__setattr__(self, "odds", check_odds(self.odds))
        positive_int(self.categories, "categories", least=2)

    @property
    def weight(self) -> Fraction:
        """The probability of one given lie."""
        return 1 / (self.odds + self.categories - 1)

    def pure(self) -> float:
        """The logarithm of the odds."""
        return log_up(self.odds)

    def profile(self, epsilon: Array, direction: Direction) -> Array:  # noqa: ARG002
        """(odds − e^ε)₊/(odds + k − 1) for ε ≥ 0: the best event is the category itself."""
        gap = np.minimum(np.abs(epsilon) - self.pure(), 0.0)
        return mirrored(-np.expm1(gap) * (fraction_up(self.odds * self.weight) * (1 + SLACK)), epsilon)

    def cells(self, edges: Array, direction: Direction) -> Cells:  # noqa: ARG002
        """Three point masses."""
        nothing = np.zeros(edges.size - 1)
        masses = [float(m * self.weight) for m in (self.odds, Fraction(self.categories - 2), Fraction(1))]
        return Cells(nothing, nothing, 0.0, np.array([self.pure(), 0.0, -self.pure()]), np.array(masses), 4e-16)

    def renyi(self, order: float) -> float:
        """ln(1 + m(e^x − 1))/(α−1): with probability m = (odds+1)·w the answer is binary, else it says nothing."""
        exponent = (order - 1) * pure_renyi(self.pure(), order)
        share = fraction_up((self.odds + 1) * self.weight)
        if exponent > 30:
            # 1 − m is read as 1, and neither e^x nor its product with a small m may overflow
            top = exponent + math.log(share)
            value = max(top, 0.0) + math.log1p(math.exp(-abs(top)))
            return min(self.pure(), up((value + 1e-13) / (order - 1)))
        return min(self.pure(), up(math.log1p(share * math.expm1(exponent)) / (order - 1)))

    def kl(self) -> float:
        """m·ε·tanh(ε/2)."""
        return up(fraction_up((self.odds + 1) * self.weight) * pure_kl(self.pure()))

    def zcdp(self) -> float:
        """The largest D_α/α, bounded over intervals of orders: D_α never falls with α."""
        return _kary_zcdp(self)

    def gaussian(self) -> float:
        """The μ whose trade-off curve passes through the corners (w, (k−1)·w) and its mirror image."""
        told, lied = (float(x * self.weight) for x in (Fraction(self.categories - 1), Fraction(1)))
        if lied < 1e-300:
            return math.inf
        # Φ⁻¹ of what is nearer to 0 keeps its digits
        upper = -float(ndtri(told)) if told < 0.5 else float(ndtri(float(self.odds * self.weight)))
        lower = float(ndtri(lied))
        return max(0.0, upper - lower + 2 * SLACK * (1 + abs(upper) + abs(lower))) if self.odds > 1 else 0.0

    def grouped(self, size: int) -> PrivacyLoss:
        """A group gives as many answers, each with its own coins."""
        return compose([(self, positive_int(size, "size"))])


@lru_cache(maxsize=1024)
def _kary_zcdp(loss: KaryResponseLoss) -> float:
    """The largest D_{next}/order over a grid; beyond order ε/KL even D = ε can't exceed the KL that order 1 shows."""
    pure, worst = loss.pure(), loss.kl()
    ceiling = pure_zcdp(pure)
    order = 1.0
    while order * worst < pure and worst < ceiling:
        following = order * 1.002
        worst = max(worst, loss.renyi(following) / order)
        order = following
    return min(ceiling, up(worst))


@dataclass(frozen=True, slots=True, init=False)
class KaryResponse:
    """Answers a question with k possible answers: the truth with probability ``keep``, else any other one alike.

    ``categories`` is k, for answers 0 … k−1, or the list of labels.

    Guarantee: ln(keep·(k−1)/(1−keep))-private under REPLACE, and better than binary randomised response of the same ε
        (see KaryResponseLoss). For a given ε, keep = e^ε/(e^ε + k − 1) (Kairouz, Oh & Viswanath 2014).
    Assumes: the categories are public, and every entry of an array belongs to a different unit.
    Accuracy: (share of reports − q)/(keep − q), q = (1−keep)/(k−1), is unbiased for every category.

    Example:
        >>> colour = KaryResponse(["red", "green", "blue"], keep="1/2")
        >>> colour.loss() == KaryResponseLoss(Fraction(2), 3)  # ε = ln 2
        True
        >>> KaryResponse.for_epsilon(10, epsilon=1).loss().pure() <= 1
        True
        >>> colour.release("mauve")
        Traceback (most recent call last):
        dither.errors.InvalidData: every answer must be one of the 3 categories; nothing was drawn
    """

    categories: int | tuple[Hashable, ...]
    keep: Fraction
    _labels: Any = field(init=False, repr=False, compare=False)
    _index: dict[Hashable, int] = field(init=False, repr=False, compare=False)

    __repr__ = brief

    def __init__(self, categories: int | Sequence[Hashable], keep: Number) -> None:
        listed = _checked(categories)
        size = _size(listed)
        exact = as_fraction(keep, "keep")
        if not Fraction(1, size) <= exact < 1:
            raise InvalidParameter(
                f"keep must be at least 1/{size}, one over the number of categories, and below 1 "
                f"(an honest answer has no finite ε); got {keep!r}"
            )
        labels = None if isinstance(listed, int) else listed
        object.__setattr__(self, "categories", listed)
        object.__setattr__(self, "keep", exact)
        object.__setattr__(self, "_labels", None if labels is None else _label_array(labels))
        object.__setattr__(self, "_index", {label: i for i, label in enumerate(labels or ())})

    @classmethod
    def for_epsilon(cls, categories: int | Sequence[Hashable], epsilon: Number) -> Self:
        """The most honest response whose loss is no more than ``epsilon``: ``keep`` is rounded down.

        Args:
            categories: How many answers there are, or the answers themselves.
            epsilon: The most that one answer may cost.
        """
        odds = odds_for_epsilon(epsilon)
        return cls(categories, odds / (odds + _size(_checked(categories)) - 1))

    @classmethod
    def for_error(cls, categories: int | Sequence[Hashable], error: Number, n: int, confidence: Number = 0.95) -> Self:
        """The most private response whose worst error over ``n`` answers, in any category, is at most ``error``.

        Args:
            categories: Number of answers, or their labels.
            error: Largest error of every share.
            n: Number of answers.
            confidence: Probability with which the bound holds, strictly between 0 and 1.
        """
        size = _size(_checked(categories))
        gap = needed_gap(positive(error, "error"), positive_int(n, "n"), failure_probability(confidence), size)
        return cls(categories, (1 + (size - 1) * gap) / size)

    @property
    def size(self) -> int:
        """The number of categories."""
        return _size(self.categories)

    @property
    def other(self) -> Fraction:
        """The probability of each answer that isn't the truth."""
        return (1 - self.keep) / (self.size - 1)

    def loss(self) -> KaryResponseLoss:
        """The exact pair of two categories, for the adjacency REPLACE."""
        return KaryResponseLoss(self.keep / self.other, self.size)

    def release(self, truth: Any, *, source: Source = SYSTEM) -> Any:
        """The randomised answer: an array for a list or an array, one answer for anything else.

        Args:
            truth: The true answer, or a list or an array of such.
            source: Source of randomness; anything but the default is for tests.
        """
        indices = self._indices(truth)
        kept = bernoulli_many(self.keep, indices.size, source).reshape(indices.shape)
        # always drawn, so that time doesn't tell which answers are lies
        steps = below_many(self.size - 1, indices.size, source).reshape(indices.shape)
        lies = indices - (self.size - 1 - steps)
        answers = np.where(kept, indices, np.where(lies < 0, lies + self.size, lies))
        if answers.ndim:
            return answers if self._labels is None else self._labels[answers]
        return int(answers) if isinstance(self.categories, int) else self.categories[int(answers)]

    def _indices(self, answers: Any) -> Ints:
        """The place of every answer among the categories."""
        problem = f"every answer must be one of the {self.size} categories; nothing was drawn"
        if isinstance(self.categories, int):
            array = np.asarray(answers)
            if array.dtype.kind not in "iu" or ((array < 0) | (array >= self.categories)).any():
                raise InvalidData(problem + f" (whole numbers from 0 to {self.size - 1})")
            return array.astype(np.int64)
        if isinstance(answers, list):
            array = np.fromiter(answers, dtype=object, count=len(answers))  # a label may itself be a tuple
        elif isinstance(answers, np.ndarray) or hasattr(answers, "to_numpy"):
            array = np.asarray(answers, dtype=object)
        else:
            array = np.empty((), dtype=object)
            array[()] = answers
        try:
            found = [self._index[label] for label in array.flat]
        except (KeyError, TypeError):
            raise InvalidData(problem) from None
        return np.array(found, dtype=np.int64).reshape(array.shape)

    def probabilities(self, truth: Any) -> tuple[Fraction, ...]:
        """The exact law of the answer, category by category.

        Args:
            truth: The true answer.
        """
        place = int(self._indices(truth))
        return tuple(self.keep if i == place else self.other for i in range(self.size))

    def law(self, exact: Any) -> FiniteLaw:
        """The law of the answer as floats.

        Args:
            exact: The true answer.
        """
        labels = None if isinstance(self.categories, int) else self.categories
        return FiniteLaw(np.array([float(p) for p in self.probabilities(exact)]), outcomes=labels)

    def worst_pair(self) -> tuple[Any, Any]:
        """Any two categories."""
        return (0, 1) if isinstance(self.categories, int) else (self.categories[0], self.categories[1])

    def variance(self, n: int, share: Number | None = None, *, target: Target = Target.POPULATION) -> float:
        """The variance of one category's estimate; by default for the share where it is largest.

        Args:
            n: Number of answers.
            share: True share to state it for; by default the one where it is largest.
            target: Whether the share in the population is meant, or that among those who answered.
        """
        check_informative(self.keep, self.other)
        theta = worst_share(self.keep, self.other, target) if share is None else probability(share, "share")
        return float(share_variance(positive_int(n, "n"), theta, self.keep, self.other, target))

    def covariance(self, n: int, shares: Sequence[Number], *, target: Target = Target.POPULATION) -> Floats:
        """The covariance matrix of all estimates for given true shares.

        Args:
            n: Number of answers.
            shares: True shares of all categories, which sum to 1.
            target: Whether the share in the population is meant, or that among those who answered.
        """
        exact = [probability(share, "share") for share in shares]
        if len(exact) != self.size or sum(exact) != 1:
            raise InvalidParameter(f"expected {self.size} shares that sum to 1")
        count, hit, miss = positive_int(n, "n"), self.keep, self.other
        matrix = [[share_covariance(count, (a, b), hit, miss, target) for b in exact] for a in exact]
        for i, share in enumerate(exact):
            matrix[i][i] = share_variance(count, share, hit, miss, target)
        return np.array(matrix, dtype=np.float64)

    def error(self, confidence: Number = 0.95, *, n: int, target: Target = Target.POPULATION) -> float:
        """The error that no category's estimate exceeds with this confidence, whatever the true shares.

        Args:
            confidence: Probability with which the bound holds, strictly between 0 and 1.
            n: Number of answers.
            target: Whether the share in the population is meant, or that among those who answered.
        """
        failure = failure_probability(confidence) / (1 if self.size == 2 else self.size)
        return worst_error(positive_int(n, "n"), self.keep, self.other, failure, target)

    def estimate(
        self,
        answers: Any = None,
        *,
        counts: Any = None,
        confidence: Number = 0.95,
        target: Target = Target.POPULATION,
        clip: bool = False,
    ) -> SharesEstimate:
        """The true shares of all categories, from released ``answers`` or from ``counts`` per category.

        Unbiased, so a share may be negative unless ``clip`` is set. All intervals hold together.

        Args:
            answers: What was answered; give these or counts.
            counts: How often each answer occurred, in place of the answers.
            confidence: Of all intervals together.
            target: Whether the share in the population is meant, or that among those who answered.
            clip: Cut estimates and intervals to [0, 1]: no longer unbiased, as good for privacy.

        Example:
            >>> found = KaryResponse(["red", "green", "blue"], keep="1/2").estimate(counts=(300, 300, 400))
            >>> [round(float(value), 6) for value in found.values]
            [0.2, 0.2, 0.6]
        """
        if (answers is None) == (counts is None):
            raise InvalidParameter("give either the answers or one count for every category")
        if counts is None:
            counts = np.bincount(self._indices(answers).ravel(), minlength=self.size)
        checked = check_counts(counts, self.size)
        values, variances, intervals = estimate_shares(
            checked, self.keep, self.other, failure=failure_probability(confidence), target=target, clip=clip
        )
        return SharesEstimate(
            values=values,
            variances=variances,
            intervals=intervals,
            confidence=float(as_fraction(confidence)),
            answers=int(checked.sum()),
            target=target,
        )


def _checked(categories: int | Sequence[Hashable]) -> int | tuple[Hashable, ...]:
    """The number of categories or their labels, refused unless there are two or more that can be told apart."""
    if isinstance(categories, int | np.integer) and 2 <= categories <= LARGEST_CATEGORIES:
        return int(categories)
    if not isinstance(categories, int | np.integer | str | bytes):
        try:
            labels = tuple(categories)
            # a label that doesn't equal itself (NaN) could never be found again
            if len(labels) >= 2 and len(set(labels)) == len(labels) and all(label == label for label in labels):
                return labels
        except TypeError:
            pass
    raise InvalidParameter("categories must be a number from 2 to 2^62, or two or more different labels")


def _size(categories: int | tuple[Hashable, ...]) -> int:
    return categories if isinstance(categories, int) else len(categories)


def _label_array(labels: tuple[Hashable, ...]) -> Any:
    """The labels for array releases, as Python objects unless they all are texts."""
    if all(type(label) is str for label in labels):
        return np.array(labels)
    return np.fromiter(labels, dtype=object, count=len(labels))
