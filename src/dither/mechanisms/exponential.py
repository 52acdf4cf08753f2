"""The exponential mechanism: choose a candidate by its score, and nothing but the choice leaves."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.special import lambertw

from dither.entropy import SYSTEM, Source, below, bernoulli_exp, select
from dither.errors import InvalidData, InvalidParameter
from dither.mechanisms.base import FiniteLaw, Floats, failure_probability
from dither.numeric import (
    DEFAULT_CONFIDENCE,
    Number,
    as_fraction,
    fraction_down,
    fraction_up,
    positive,
    positive_int,
    up,
)
from dither.numeric.rounding import SLACK
from dither.privacy import Adjacency, Array, Direction, Guarantee, PrivacyLoss, Sensitivity, mirrored
from dither.privacy.renyi import pure_gaussian, pure_renyi, pure_zcdp

Candidate = TypeVar("Candidate")
# Keeps what a closed form returns on the private side of the float arithmetic that evaluated it.
CALIBRATION_SLACK = Fraction(1, 2**30)
EVALUATION_SLACK = Fraction(1, 2**42)


@dataclass(frozen=True, slots=True)
class BoundedRangeLoss(PrivacyLoss, kind="bounded_range"):
    """For any two neighbours all privacy losses lie in one interval of length ``exact_range``; where, isn't known.

    Guarantee: the curve is the largest that any such mechanism has at each ε (Dong, Durfee & Rogers 2020). It is also
        that of one pair, two logistic laws of unit scale ``exact_range`` apart, so it composes like any other
        (exponential.md).
        The Rényi view is the exact supremum, below α·range²/8 (Cesar & Rogers 2021), and wins in long compositions.

    Example:
        >>> loss = BoundedRangeLoss(Fraction(1))
        >>> loss.pure(), loss.zcdp()
        (1.0, 0.125)
        >>> loss.grouped(3).pure()
        3.0
    """

    exact_range: Fraction
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    # the curve is the same both ways, but the pairs it bounds aren't their own mirror images: sampling would otherwise
    # apply a theorem on such pairs to the Rényi view, which is beyond what any single pair has
    symmetric = False
    tight = False

    def __post_init__(self) -> None:
        exact = as_fraction(self.exact_range, "range")
        if exact < 0:
            raise InvalidParameter(f"range must not be negative; got {self.exact_range!r}")
        object.__setattr__(self, "exact_range", exact)

    def pure(self) -> float:
        """The interval contains 0, so no loss exceeds its length."""
        return fraction_up(self.exact_range)

    def pure_exactly(self) -> Fraction:
        """The length, as a fraction."""
        return self.exact_range

    def profile(self, epsilon: Array, direction: Direction) -> Array:  # noqa: ARG002
        """H(ε) = (1 − e^{(ε−η)/2})² / (1 − e^{−η}) for 0 ≤ ε ≤ η: two losses, (η+ε)/2 and (ε−η)/2."""
        width = self.pure()
        if width == 0:
            return mirrored(np.zeros_like(epsilon), epsilon)
        gap = np.minimum((np.abs(epsilon) - width) / 2, 0.0)
        return mirrored(np.expm1(gap) ** 2 / -math.expm1(-width) * (1 + SLACK), epsilon)

    def renyi(self, order: float) -> float:
        """The supremum over all two-point pairs of this range, in closed form."""
        width, a = self.pure(), order
        simple = min(pure_renyi(width, a), up(a * self.zcdp()))
        if width == 0:
            return 0.0
        terms = (
            (a - 1) * width,
            a * math.log(-math.expm1(-a * width)),
            -(a - 1) * math.log(-math.expm1(-(a - 1) * width)),
            -math.log(-math.expm1(-width)),
            (a - 1) * math.log(a - 1),
            -a * math.log(a),
        )
        size = math.fsum(abs(term) for term in terms) + abs(terms[0])
        return min(simple, up((math.fsum(terms) + 16 * math.ulp(size)) / (a - 1)))

    def zcdp(self) -> float:
        """η²/8 (Cesar & Rogers 2021), or what η-privacy gives if that is less."""
        return fraction_up(self.zcdp_exactly())

    def zcdp_exactly(self) -> Fraction:
        """The same, as a fraction."""
        return min(self.exact_range**2 / 8, Fraction(pure_zcdp(self.pure())))

    def kl(self) -> float:
        """The largest of t − η(e^t−1)/(e^η−1), which is at e^t = (e^η−1)/η."""
        width = self.pure()
        if width == 0 or width > 700:
            return min(width, self.zcdp())
        ratio = width / math.expm1(width)
        exact = ratio - 1 - math.log(ratio)
        return min(self.zcdp(), up(exact) + 1e-15)

    def gaussian(self) -> float:
        """As η/2-privacy: among the two-point pairs the balanced one is the furthest from Gaussian (exponential.md)."""
        return pure_gaussian(self.pure() / 2)

    def grouped(self, size: int) -> BoundedRangeLoss:
        """Losses along a chain of neighbours add, and so do the lengths of their intervals."""
        return BoundedRangeLoss(positive_int(size, "size") * self.exact_range, self.adjacency)


def score_range(sensitivity: Sensitivity, *, monotone: bool) -> Fraction:
    """How much further one score can move than another between neighbours.

    Twice the l∞ sensitivity; once if all scores move the same way when a unit is added. Under replace one unit leaves
    and another enters, which moves monotone scores both ways, so there it is twice in any case.
    """
    bound = sensitivity.linf_bound()
    return bound if monotone and sensitivity.adjacency is Adjacency.ADD_REMOVE else 2 * bound


def score_array(scores: Any) -> Floats:
    """Scores as exact float64 values, one for each candidate; −inf means never.

    Whole numbers beyond ±2^53 are clamped, which moves no two neighbours apart and keeps the order.
    """
    try:
        array = np.asarray(scores)
    except (ValueError, TypeError, OverflowError) as problem:
        raise InvalidData("scores must be a one-dimensional array of numbers") from problem
    if array.ndim != 1 or array.size == 0:
        raise InvalidData("scores must be a one-dimensional array with at least one score; nothing was drawn")
    if array.dtype.kind in "iu":
        whole: Floats = np.clip(array, -(2**53), 2**53).astype(np.float64)
        return whole
    if array.dtype.kind == "O" and all(isinstance(v, int) and not isinstance(v, bool) for v in array):
        return np.array([min(max(int(v), -(2**53)), 2**53) for v in array], dtype=np.float64)
    if array.dtype.kind != "f" or array.dtype.itemsize > 8:
        raise InvalidData(f"scores must be floats or whole numbers; got {array.dtype}; nothing was drawn")
    values = array.astype(np.float64, copy=False)
    best = float(values.max())
    if not best < math.inf:
        raise InvalidData("scores must be finite, or -inf for a candidate that is never chosen; nothing was drawn")
    if best == -math.inf:
        raise InvalidData("every score is -inf, so nothing can be chosen; nothing was drawn")
    return values


def checked_counts(candidates: int, optimal: int) -> tuple[int, int]:
    """How many candidates don't have the best score, and how many do."""
    all_of_them, best = positive_int(candidates, "candidates"), positive_int(optimal, "optimal")
    if best > all_of_them:
        raise InvalidParameter(f"optimal must be at most candidates ({all_of_them}); got {best}")
    return all_of_them - best, best


@dataclass(frozen=True, slots=True, init=False)
class ScoreMechanism(ABC):
    """A mechanism that chooses a candidate by its score; ``monotone``: a unit moves all scores the same way."""

    scale: Fraction
    monotone: bool = False

    def __init__(self, scale: Number, *, monotone: bool = False) -> None:
        object.__setattr__(self, "scale", positive(scale, "scale"))
        object.__setattr__(self, "monotone", bool(monotone))

    @abstractmethod
    def error(self, confidence: Number = 0.95, *, candidates: int, optimal: int = 1) -> float:
        """How far below the best score the choice falls at most, with this confidence.

        Args:
            confidence: Probability with which the bound holds, strictly between 0 and 1.
            candidates: Number of candidates: public, whatever the data say.
            optimal: How many candidates are best; more make the bound smaller.
        """

    @staticmethod
    @abstractmethod
    def largest(guarantee: Guarantee) -> Fraction:
        """The largest length of the interval of losses, as a multiple of 1/scale, that meets a guarantee.

        Args:
            guarantee: The (ε, δ) to be met.
        """

    @classmethod
    def calibrated(cls, guarantee: Guarantee, sensitivity: Sensitivity, *, monotone: bool = False) -> Self:
        """The smallest scale that meets a guarantee.

        Args:
            guarantee: What one release may cost.
            sensitivity: How far one unit moves the scores: l∞.
            monotone: Promise that a unit moves all scores the same way, as counts do; halves the loss under add_remove.
        """
        return cls(score_range(sensitivity, monotone=monotone) / cls.largest(guarantee), monotone=monotone)

    def worst_pair(self, sensitivity: Sensitivity) -> tuple[Floats, Floats]:
        """Two candidates that change places, as far apart as the sensitivity allows.

        Args:
            sensitivity: How far one unit moves a score: ``Sensitivity.linf``.
        """
        step = fraction_down(sensitivity.linf_bound())
        if self.monotone and sensitivity.adjacency is Adjacency.ADD_REMOVE:
            return np.array([0.0, step / 2]), np.array([step, step / 2])
        return np.array([0.0, step]), np.array([step, 0.0])


@dataclass(frozen=True, slots=True, init=False)
class Exponential(ScoreMechanism):
    """Chooses a candidate with probability exactly proportional to e^{score/scale}.

    Guarantee: 2Δ/scale-private for scores that each move by at most Δ (McSherry & Talwar 2007), Δ/scale-private with
        ``monotone=True``. All losses lie in an interval of that length, which composes better; see exponential.md.
    Assumes: the sensitivity holds for the scores as they are passed in, and the same candidates are open (not −inf) for
        both neighbours. ``monotone=True`` promises that adding a unit never raises one score and lowers another (counts
        of units, say); it helps under add_remove only.
    Accuracy: Pr[score ≤ best − scale·(ln(n/k) + t)] ≤ e^−t and E[score] ≥ best − scale·ln(n/k), for n candidates of
        which k are best.

    Example:
        >>> Exponential(scale=2).loss(Sensitivity.linf(1)).pure()
        1.0
        >>> Exponential(scale=2, monotone=True).loss(Sensitivity.linf(1)).pure()
        0.5
        >>> Exponential(scale=2).error(confidence=0.95, candidates=100) < 2 * (math.log(100) + math.log(20))
        True
        >>> Exponential(scale=1).release([1.0, float("nan")])
        Traceback (most recent call last):
        dither.errors.InvalidData: scores must be finite, or -inf for a candidate that is never chosen; ...
    """

    def loss(self, sensitivity: Sensitivity) -> BoundedRangeLoss:
        """All losses lie in an interval of length 2Δ∞/scale, or Δ∞/scale for monotone scores under add_remove.

        Args:
            sensitivity: How far one unit moves a score: ``Sensitivity.linf``.
        """
        return BoundedRangeLoss(score_range(sensitivity, monotone=self.monotone) / self.scale, sensitivity.adjacency)

    def error(self, confidence: Number = 0.95, *, candidates: int, optimal: int = 1) -> float:
        """How far below the best score the choice falls at most, with this confidence.

        In the worst case all others score exactly x less: (n−k)e^−x/(k + (n−k)e^−x) = β, in scales. The usual
        ln(n/k) + ln(1/β) is larger.

        Args:
            confidence: How sure it is, between 0 and 1.
            candidates: How many there are to choose from. With weights, their total.
            optimal: How many of them have the best score. With weights, that of the best.
        """
        others, best = checked_counts(candidates, optimal)
        if others == 0:
            return 0.0
        return up(fraction_up(self.scale) * _unit_error(failure_probability(confidence), others, best))

    @staticmethod
    def largest(guarantee: Guarantee) -> Fraction:
        """The range η that solves (1 − e^{(ε−η)/2})² = δ·(1 − e^−η)."""
        return largest_range(guarantee)

    def expected_shortfall(self, *, candidates: int, optimal: int = 1) -> float:
        """The largest E[best − score]: scale·W((n−k)/(ke)), Lambert's W; below the usual scale·ln(n/k).

        Args:
            candidates: How many there are to choose from.
            optimal: How many of them have the best score.
        """
        others, best = checked_counts(candidates, optimal)
        log_ratio = math.log(others) - math.log(best) if others else -math.inf
        if log_ratio > 600:
            return up(fraction_up(self.scale) * log_ratio)
        return up(fraction_up(self.scale) * float(lambertw(math.exp(log_ratio - 1)).real), 2.0**-40)

    def release(
        self, scores: Any, *, weights: npt.NDArray[Any] | Sequence[int] | None = None, source: Source = SYSTEM
    ) -> int:
        """The index of the choice, drawn with probability exactly ∝ weights[i]·e^{scores[i]/scale}.

        ``weights`` is a public base measure of whole numbers, such as how many alike candidates an index stands for.

        Args:
            scores: One score for each candidate; −inf closes one, for all neighbours alike.
            weights: Public multiplicities: how many alike each candidate stands for.
            source: Source of randomness; anything but the default is for tests.
        """
        return select(score_array(scores), self.scale, source, weights)

    def release_intervals(
        self, scores: Any, lengths: npt.NDArray[Any] | Sequence[int], *, source: Source = SYSTEM
    ) -> tuple[int, int]:
        """A point of a huge range whose scores are constant on intervals: which interval, and where in it.

        Each point is drawn with probability exactly ∝ e^{score/scale}; lengths are whole numbers of any size. Scores
        and lengths may both depend on the data, as long as the score of every *point* keeps to the sensitivity.

        Args:
            scores: Score of each interval of candidates that are alike.
            lengths: How many candidates each has.
            source: Source of randomness; anything but the default is for tests.
        """
        chosen = self.release(scores, weights=lengths, source=source)
        return chosen, below(int(lengths[chosen]), source)

    def release_from(
        self,
        propose: Callable[[Source], Candidate],
        score: Callable[[Candidate], Any],
        best: Number,
        *,
        source: Source = SYSTEM,
    ) -> Candidate:
        """A candidate from a range too large to list, with probability exactly ∝ (chance of proposal)·e^{score/scale}.

        ``propose`` draws from a fixed, public base measure with the source it is given; ``best`` is a public upper
        bound of all scores. A higher score counts as ``best``: min(score, best) moves no further than the score does,
        and the same way. A proposal is accepted with probability e^{(score − best)/scale}, so the number of tries
        depends on the data and shows in the time this takes. It has no limit: what is done at a limit would be part of
        the law.

        Args:
            propose: Draws a candidate, without looking at the data.
            score: Its score, read exactly, or −inf.
            best: Bound of all scores, public; the closer, the fewer draws.
            source: Source of randomness; anything but the default is for tests.
        """
        ceiling = as_fraction(best, "best")
        while True:
            candidate = propose(source)
            exact = _exact_score(score(candidate))
            if exact is not None and bernoulli_exp(max(ceiling - exact, Fraction(0)) / self.scale, source):
                return candidate

    def law(self, scores: Any, *, weights: npt.NDArray[Any] | Sequence[int] | None = None) -> FiniteLaw:
        """The probability of each index.

        Args:
            scores: One for each candidate; −inf is never chosen.
            weights: How many candidates each score stands for; one by default.
        """
        logs = score_array(scores) / float(self.scale)
        if weights is not None:
            logs = logs + np.array([math.log(int(w)) if w else -math.inf for w in weights])
        shares = np.exp(logs - logs.max())
        return FiniteLaw(shares / shares.sum())

    @classmethod
    def for_error(
        cls,
        error: Number,
        *,
        candidates: int,
        optimal: int = 1,
        confidence: Number = DEFAULT_CONFIDENCE,
        monotone: bool = False,
    ) -> Self:
        """The largest scale whose error at this confidence is no more than ``error``.

        Args:
            error: How far below the best score the choice may fall.
            candidates: Number of candidates: public, whatever the data say.
            optimal: How many candidates are best; more make the bound smaller.
            confidence: Probability with which the bound holds, strictly between 0 and 1.
            monotone: Promise that a unit moves all scores the same way, as counts do; halves the loss under add_remove.

        Example:
            >>> Exponential.for_error(10, candidates=1000).error(candidates=1000) <= 10
            True
        """
        target = positive(error, "error")
        others, best = checked_counts(candidates, optimal)
        unit = _unit_error(failure_probability(confidence), others, best) if others else 0.0
        if unit <= 0:
            raise InvalidParameter("every scale has this error: with so few worse candidates any choice is good enough")
        return cls(target / Fraction(unit) * (1 - CALIBRATION_SLACK), monotone=monotone)


def largest_range(guarantee: Guarantee) -> Fraction:
    """The largest η for which η-bounded range implies (ε, δ); rounded down where it isn't ε itself."""
    if not guarantee.delta:
        return guarantee.epsilon
    delta, rest = float(guarantee.delta), float(1 - guarantee.delta)
    # the smaller root of the quadratic in e^{−η/2}: η = ε + 2·ln((1 + √(δ(1 − (1−δ)e^−ε)))/(1−δ))
    root = math.sqrt(delta * (delta - rest * math.expm1(-float(guarantee.epsilon))))
    return raised(guarantee.epsilon, 2 * (math.log1p(root) - math.log(rest)))


def raised(epsilon: Fraction, gain: float) -> Fraction:
    """ε plus what a δ gains, less what evaluating the curve may lose to rounding; never below ε itself."""
    return max(epsilon, epsilon + Fraction(gain) * (1 - CALIBRATION_SLACK) - (1 + epsilon) * EVALUATION_SLACK)


def _unit_error(failure: float, others: int, best: int) -> float:
    return max(0.0, up(math.log(others) - math.log(best) + math.log1p(-failure) - math.log(failure), 2.0**-40))


def _exact_score(value: Any) -> Fraction | None:
    """The exact value of one score; None for −inf."""
    if isinstance(value, float | np.float32 | np.float16):
        number = float(value)
        if number == -math.inf:
            return None
        if not math.isfinite(number):
            raise InvalidData("a score must be finite, or -inf for a candidate that is never chosen")
        return Fraction(number)
    if isinstance(value, int | np.integer | Fraction) and not isinstance(value, bool):
        return Fraction(value) if isinstance(value, Fraction) else Fraction(int(value))
    raise InvalidData(f"a score must be a float, a whole number or a Fraction; got {type(value).__name__}")
