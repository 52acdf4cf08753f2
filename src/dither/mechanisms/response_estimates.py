"""What randomised answers say about the truth: unbiased shares, their variance, and intervals that cover.

Every kind of randomised response here looks the same to one category: somebody who belongs to it reports it with
probability ``hit``, somebody who doesn't with probability ``miss`` < ``hit``. A share is estimated from the number of
reports. Whose share is meant decides the variance:

- POPULATION: the respondents are an independent sample. Reports are binomial with λ = miss + (hit − miss)·θ.
- RESPONDENTS: only those who answered matter, their truths are fixed and all randomness is that of the lies.
  If T of n belong, reports are Binomial(T, hit) + Binomial(n − T, miss): a law with the single unknown T.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, cast

import numpy as np
from scipy.special import betainc

from dither.brief import SentenceEnum
from dither.errors import InvalidData, InvalidParameter
from dither.mechanisms.base import Floats, Ints
from dither.numeric import fraction_down, smallest_true, up
from dither.numeric.binomial import clopper_pearson

# Relative allowance for the incomplete beta function, always taken towards wider intervals.
_TAIL_SLACK = 1e-8
# Tails are summed over 12 standard deviations and 80 answers on either side: by Bernstein's inequality less than
# 2·e^-72 is left out.
_REACH = 12.0
_FAR = 80.0
_LEFT_OUT = 1e-30
# With more respondents the exact interval takes seconds; Chernoff's, wider by two fifths, takes none.
_LARGEST_EXACT = 10_000_000


class Target(SentenceEnum):
    """Whose share an estimate is about."""

    POPULATION = "population", "the share in the population that the respondents are an independent sample of"
    RESPONDENTS = "respondents", "the share among those who answered; only the lies are random"


class ReadOnlyArrays:
    """A dataclass whose arrays can't be written to."""

    __slots__ = ()

    def __post_init__(self) -> None:
        for field in fields(cast("Any", self)):
            array = getattr(self, field.name)
            if isinstance(array, np.ndarray):
                array.flags.writeable = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareEstimate:
    """A share read off randomised answers: unbiased unless clipped, with an interval that covers.

    ``variance`` is an unbiased estimate of the variance of ``value`` (POPULATION) or exact (RESPONDENTS, binary);
    ``interval`` holds the true share with probability of at least ``confidence``, whatever it is.
    """

    value: float
    variance: float
    interval: tuple[float, float]
    confidence: float
    answers: int
    target: Target


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SharesEstimate(ReadOnlyArrays):
    """The shares of all categories, which sum to 1; the intervals hold for all of them together."""

    values: Floats
    variances: Floats
    intervals: Floats
    confidence: float
    answers: int
    target: Target


def check_counts(counts: Any, categories: int) -> Ints:
    """Counts of reports as int64, refused unless there is one per category and at least one answer in all."""
    array = np.asarray(counts)
    if array.shape != (categories,) or array.dtype.kind not in "iu" or (array < 0).any() or not array.any():
        raise InvalidData(
            f"expected {categories} counts, whole numbers of at least 0, with at least one answer among them"
        )
    return array.astype(np.int64)


def check_informative(hit: Fraction, miss: Fraction) -> None:
    """Refuse to estimate from answers that don't depend on the truth."""
    if hit == miss:
        raise InvalidParameter(
            "these answers are independent of the truth (ε = 0), so nothing can be estimated from them: lie less often"
        )


def share_variance(n: int, share: Fraction, hit: Fraction, miss: Fraction, target: Target) -> Fraction:
    """The exact variance of an estimated share.

    POPULATION: λ(1−λ)/(n(hit−miss)²), for binary answers θ(1−θ)/n + p(1−p)/(n(1−2p)²).
    RESPONDENTS: [θ·hit(1−hit) + (1−θ)·miss(1−miss)]/(n(hit−miss)²), for binary answers the second term alone.
    """
    check_informative(hit, miss)
    if target is Target.POPULATION:
        report = miss + (hit - miss) * share
        spread = report * (1 - report)
    else:
        spread = share * hit * (1 - hit) + (1 - share) * miss * (1 - miss)
    return spread / (n * (hit - miss) ** 2)


def share_covariance(
    n: int, shares: tuple[Fraction, Fraction], hit: Fraction, miss: Fraction, target: Target
) -> Fraction:
    """The exact covariance of the estimated shares of two categories; negative, since a report is for one of them."""
    check_informative(hit, miss)
    first, second = shares
    if target is Target.POPULATION:
        spread = (miss + (hit - miss) * first) * (miss + (hit - miss) * second)
    else:
        spread = (first + second) * hit * miss + (1 - first - second) * miss**2
    return -spread / (n * (hit - miss) ** 2)


def worst_share(hit: Fraction, miss: Fraction, target: Target) -> Fraction:
    """The share for which the estimate varies most."""
    if target is Target.POPULATION:
        # λ(1−λ) is largest at λ = ½, or as near to it as λ can come
        return min(Fraction(1), max(Fraction(0), (Fraction(1, 2) - miss) / (hit - miss)))
    return Fraction(1 if hit * (1 - hit) >= miss * (1 - miss) else 0)


def worst_error(n: int, hit: Fraction, miss: Fraction, failure: float, target: Target) -> float:
    """An error that an estimated share exceeds with probability at most ``failure``, whatever the true share.

    Chernoff's bound on either side: Pr[Σ − E Σ ≥ n·t] ≤ exp(n·(ψ(s) − s·t)) for every s > 0, where ψ is the largest
    log-moment ln(1 − x + x·e^s) − s·x among the coins x that can occur: both ends if the truths are fixed; anything
    between if respondents are sampled, and then, ψ being concave in x, its largest value is at x = 1/s − 1/(e^s − 1).
    """
    check_informative(hit, miss)
    between = target is Target.POPULATION
    budget = up(math.log(2 / failure)) / n
    ends = float(miss), float(hit)
    sides = (ends, (1 - ends[1], 1 - ends[0]))
    return up(max(_deviation(low, high, budget, between) for low, high in sides) / fraction_down(hit - miss))


def _deviation(low: float, high: float, budget: float, between: bool) -> float:  # noqa: FBT001
    """The smallest (ψ(s) + budget)/s that a search finds; every s gives a valid bound, so no harm if it stops early."""

    def bound(log_s: float) -> float:
        s = math.exp(log_s)
        coins = [low, high]
        if between:
            # for small s the difference loses its digits, and the limit is ½
            peak = 1 / s - 1 / math.expm1(s) if s > 1e-4 else 0.5
            coins = [min(high, max(low, peak))]
        psi = max(math.log1p(x * math.expm1(s)) - s * x for x in coins)
        # x misses the maximiser by at most 1e-5, so ψ is short of its maximum by a relative 1e-9 or less
        return (max(psi, 0.0) * (1 + 1e-6) + budget) / s + 1e-15

    from scipy.optimize import minimize_scalar  # slow to import, and few need it

    centre = math.log(math.sqrt(8 * budget))  # where Hoeffding's ψ = s²/8 has its best s
    found = minimize_scalar(bound, bounds=(centre - 2, min(centre + 5, 6.0)), method="bounded")
    return min(bound(float(found.x)), math.sqrt(budget / 2))


def needed_gap(error: Fraction, n: int, failure: float, categories: int) -> Fraction:
    """The smallest hit − miss of a k-ary response whose worst error, POPULATION, is no more than ``error``."""
    each = failure if categories == 2 else failure / categories
    # Hoeffding's bound is never below the one that is searched
    enough = up(math.sqrt(math.log(2 / each) / (2 * n)), 2.0**-40) / float(error)
    if enough >= 1:
        needed = math.floor(math.log(2 / each) / (2 * float(error) ** 2)) + 1
        raise InvalidParameter(
            f"even honest answers could exceed this error: about {needed} answers or more are needed; got n={n}"
        )

    def meets(gap: float) -> bool:
        wide = Fraction(gap)
        hit, miss = (1 + (categories - 1) * wide) / categories, (1 - wide) / categories
        return worst_error(n, hit, miss, each, Target.POPULATION) <= error

    return Fraction(smallest_true(meets, enough / 4, enough, relative=1e-9))


def unbiased_variance(count: int, n: int, hit: Fraction, miss: Fraction, target: Target) -> float:
    """An unbiased estimate of the variance; with a single answer, which can't show any spread, the worst case."""
    if target is Target.POPULATION:
        if n == 1:
            return float(share_variance(1, worst_share(hit, miss, target), hit, miss, target))
        observed = Fraction(count, n)
        return float(observed * (1 - observed) / ((n - 1) * (hit - miss) ** 2))
    # linear in the share, so an unbiased share gives an unbiased variance; the truth lies within the two ends
    ends = [share_variance(n, Fraction(end), hit, miss, target) for end in (0, 1)]
    share = (Fraction(count, n) - miss) / (hit - miss)
    return float(ends[0] + share * (ends[1] - ends[0]))


def interval(count: int, n: int, hit: Fraction, miss: Fraction, failure: float, target: Target) -> tuple[float, float]:
    """An interval that misses the true share with probability at most ``failure``, half of it on each side."""
    check_informative(hit, miss)
    if target is Target.RESPONDENTS:
        if n <= _LARGEST_EXACT:
            return respondents_interval(count, n, hit, miss, failure)
        value = min(1.0, max(0.0, float((Fraction(count, n) - miss) / (hit - miss))))
        error = worst_error(n, hit, miss, failure, target)
        return max(0.0, value - error), min(1.0, value + error)
    low, high = clopper_pearson(count, n, failure)
    gap = float(hit - miss)
    return (low - float(miss)) / gap, (high - float(miss)) / gap


def respondents_interval(count: int, n: int, hit: Fraction, miss: Fraction, failure: float) -> tuple[float, float]:
    """All T/n for which neither so few nor so many reports would be a surprise: exact, since T is the only unknown.

    More true members mean stochastically more reports, so both tests turn once and bisection finds where. Where
    every T would be a surprise the nearest end is given.
    """
    half = failure / 2

    def likely(trues: int) -> bool:
        # as many reports as these: so few people not reporting
        return at_most(n - count, trues, n, 1 - hit, 1 - miss) > half

    def unlikely(trues: int) -> bool:
        return at_most(count, trues, n, hit, miss) <= half

    low, high = min(_first(likely, n), n), max(_first(unlikely, n) - 1, 0)
    return min(low, high) / n, max(low, high) / n


def _first(holds: Any, n: int) -> int:
    """The smallest whole number up to n at which a predicate that turns true once holds, or n + 1."""
    low, high = 0, n + 1
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


def at_most(count: int, trues: int, n: int, hit: Fraction, miss: Fraction) -> float:
    """Pr[reports ≤ count] if ``trues`` of n belong to the category, rounded up."""
    h, others = float(hit), float(n - trues)
    mean, reach = trues * h, _REACH * math.sqrt(trues * h * (1 - h)) + _FAR
    inner = np.arange(max(0, math.floor(mean - reach)), min(trues, math.ceil(mean + reach)) + 1, dtype=np.float64)
    # products of ratios of neighbouring probabilities keep their digits where factorials of large numbers don't
    ratios = (trues - inner[:-1]) * h / ((inner[:-1] + 1) * float(1 - hit))
    logs = np.concatenate([[0.0], np.cumsum(np.log(ratios))])
    weights = np.exp(logs - logs.max())
    rest = count - inner
    inside = (rest >= 0) & (rest < others)
    a = np.where(inside, rest, 0.0)
    tail = np.where(inside, betainc(np.maximum(others - a, 1.0), a + 1, float(1 - miss)), rest >= others)
    return float(weights @ tail / weights.sum()) * (1 + _TAIL_SLACK) + _LEFT_OUT


def estimate_share(
    count: int, n: int, hit: Fraction, miss: Fraction, *, failure: float, target: Target, clip: bool
) -> tuple[float, float, tuple[float, float]]:
    """Value, variance and interval of one category."""
    check_informative(hit, miss)
    value = float((Fraction(count, n) - miss) / (hit - miss))
    variance = unbiased_variance(count, n, hit, miss, target)
    low, high = interval(count, n, hit, miss, failure, target)
    if clip:
        value, low, high = (min(1.0, max(0.0, x)) for x in (value, low, high))
    return value, variance, (low, high)


def estimate_shares(
    counts: Sequence[int] | Ints, hit: Fraction, miss: Fraction, *, failure: float, target: Target, clip: bool
) -> tuple[Floats, Floats, Floats]:
    """Values, variances and simultaneous intervals of all categories (Bonferroni; two categories mirror each other)."""
    k, n = len(counts), int(np.sum(counts))
    each = failure if k == 2 else failure / k
    # equal counts have equal estimates: large domains hold few different ones
    known = {
        count: estimate_share(count, n, hit, miss, failure=each, target=target, clip=clip)
        for count in {int(c) for c in counts}
    }
    found = [known[int(count)] for count in counts]
    return (
        np.array([value for value, _, _ in found]),
        np.array([variance for _, variance, _ in found]),
        np.array([ends for _, _, ends in found]),
    )
