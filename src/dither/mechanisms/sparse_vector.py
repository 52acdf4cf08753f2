"""The sparse vector technique: which of a stream of answers exceed a threshold, paying for the hits only."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dither.entropy import SYSTEM, DiscreteLaplaceSampler, Source, laplace_sampler
from dither.errors import InvalidData, InvalidParameter, InvalidSensitivity, OutOfBudget
from dither.mechanisms import grid
from dither.mechanisms.base import Session, failure_probability, finite_floats, per_coordinate
from dither.mechanisms.laplace import Laplace
from dither.numeric import Number, as_fraction, ceil_div, fraction_down, fraction_up, positive, positive_int, up
from dither.privacy import Adjacency, PrivacyLoss, PureLoss, Sensitivity, compose

# The two noises share a grid whose step suits the smaller one (up to 2^48 steps); the sampler holds 2^56.
LARGEST_RATIO = 2**5
# Noise is drawn wider by this share, which pays for flooring answers to the grid (see grid.py).
WIDENING = grid.L1_GRID.widening(1)
# Shares of epsilon are multiples of this one, so that they stay short fractions.
SHARE = Fraction(1, 2**20)
SMALLEST_EPSILON = Fraction(1, 10**10)


@dataclass(frozen=True, slots=True)
class Above:
    """One answer of the sparse vector: whether the threshold was passed and, if asked for, a fresh noisy value."""

    above: bool
    value: float | None = None

    def __bool__(self) -> bool:
        return self.above


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseVector:
    """Tells which answers of a stream lie above a public threshold, up to ``count`` of them.

    Args:
        threshold_scale: Scale of the noise on the threshold.
        query_scale: Scale of the noise on every answer, within a factor of 32 of the other.
        count: How many answers above the threshold are given, after which the session ends.
        monotone: Promise that a unit moves all answers the same way, as counts do; under add_remove only.
        numeric_scale: Scale of the noise on the values of answers above; None tells no values.

    Guarantee: Δ/threshold_scale + 2·count·Δ/query_scale (count·Δ/query_scale for monotone queries), however many
        answers lie below (Lyu, Su & Li 2017, Algorithm 7); numeric answers add count·Δ/numeric_scale. See
        sparse_vector.md.
    Assumes: every query of the stream moves by at most the stated sensitivity; ``monotone`` means that between
        neighbours all of them move the same way, as counts do when a unit is added.
    Accuracy: with the stated confidence, over k queries nothing above threshold + error is called below, and nothing
        below threshold − error is called above.

    Example:
        >>> one = Sensitivity.linf(1)
        >>> mechanism = SparseVector(threshold_scale=4, query_scale=16, count=2)
        >>> mechanism.loss(one).pure()
        0.5
        >>> SparseVector.for_epsilon(1, one, count=2).loss(one).pure()
        1.0
        >>> round(mechanism.error(confidence=0.95, queries=1000), 1)
        180.0
        >>> SparseVector(threshold_scale=1, query_scale=0)
        Traceback (most recent call last):
        dither.errors.InvalidParameter: query_scale must be greater than 0; got 0
    """

    threshold_scale: Fraction
    query_scale: Fraction
    count: int
    monotone: bool
    numeric_scale: Fraction | None
    _exponent: int = field(init=False, repr=False, compare=False)
    _threshold_noise: DiscreteLaplaceSampler = field(init=False, repr=False, compare=False)
    _query_noise: DiscreteLaplaceSampler = field(init=False, repr=False, compare=False)
    _numeric: Laplace | None = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        *,
        threshold_scale: Number,
        query_scale: Number,
        count: int = 1,
        monotone: bool = False,
        numeric_scale: Number | None = None,
    ) -> None:
        rho, nu = positive(threshold_scale, "threshold_scale"), positive(query_scale, "query_scale")
        if max(rho, nu) > LARGEST_RATIO * min(rho, nu):
            raise InvalidParameter(
                f"threshold_scale and query_scale must be within a factor of {LARGEST_RATIO} of each other"
            )
        if not isinstance(monotone, bool):
            raise InvalidParameter(f"monotone must be True or False; got {monotone!r}")
        numeric = None if numeric_scale is None else Laplace(positive(numeric_scale, "numeric_scale"))
        exponent = grid.L1_GRID.exponent(min(rho, nu))
        step = Fraction(2) ** exponent
        assign = object.__setattr__
        assign(self, "threshold_scale", rho)
        assign(self, "query_scale", nu)
        assign(self, "count", positive_int(count, "count"))
        assign(self, "monotone", monotone)
        assign(self, "numeric_scale", None if numeric is None else numeric.scale)
        assign(self, "_exponent", exponent)
        assign(self, "_threshold_noise", laplace_sampler(rho * WIDENING / step))
        assign(self, "_query_noise", laplace_sampler(nu * WIDENING / step))
        assign(self, "_numeric", numeric)

    @classmethod
    def for_epsilon(
        cls,
        epsilon: Number,
        sensitivity: Sensitivity,
        *,
        count: int = 1,
        monotone: bool = False,
        numeric_share: Number = 0,
    ) -> Self:
        """The scales that spend ``epsilon`` best: ε₁ : ε₂ = 1 : (2c)^⅔, or 1 : c^⅔ if monotone.

        That split minimises the variance of the difference of the two noises (Lyu, Su & Li 2017, section 4.2); numeric
        answers get ``numeric_share`` of epsilon off the top.

        Args:
            epsilon: ε of the whole stream, whatever its length.
            sensitivity: How far one unit moves each answer.
            count: How many answers above the threshold are given.
            monotone: Promise that a unit moves all answers the same way; half the noise under add_remove.
            numeric_share: Part of ε for the values of answers above the threshold; 0 tells none.
        """
        total, c = positive(epsilon, "epsilon"), positive_int(count, "count")
        share = as_fraction(numeric_share, "numeric_share")
        if not 0 <= share < 1:
            raise InvalidParameter(f"numeric_share must be at least 0 and below 1; got {numeric_share!r}")
        if share and total * share / c < 2 * grid.LEAST_SHARE:
            raise InvalidParameter(
                f"numeric answers need at least 2^-15 of epsilon each; got {float(total * share / c):.3g}: "
                "use a larger epsilon or numeric_share, or a smaller count"
            )
        if total < SMALLEST_EPSILON:
            raise InvalidParameter(f"epsilon must be at least {SMALLEST_EPSILON}; got {epsilon!r}")
        bound = _scalar_bound(sensitivity)
        shifts = c if monotone else 2 * c
        # any split is private; this one only has to be near the best one
        ideal = min(1 / (1 + shifts ** (2 / 3)), LARGEST_RATIO / (LARGEST_RATIO + shifts))
        first = max(1, math.floor(ideal / SHARE)) * SHARE
        wider = Fraction(1)
        while True:
            test = wider * bound / (total * (1 - share))
            mechanism = cls(
                threshold_scale=test / first,
                query_scale=test * shifts / (1 - first),
                count=c,
                monotone=monotone,
                # rounded down to a float, so that the sum over the answers is exact
                numeric_scale=wider * bound / Fraction(fraction_down(total * share / c)) if share else None,
            )
            # only for an epsilon so small that flooring shows
            if sum(mechanism._costs(sensitivity)) <= total:
                return mechanism
            wider *= 1 + grid.LEAST_SHARE

    def loss(self, sensitivity: Sensitivity) -> PrivacyLoss:
        """ε₁ + ε₂ for the comparisons and one Laplace loss for each numeric answer, known before any data.

        Args:
            sensitivity: How far one unit moves each query's answer.
        """
        test = PureLoss(sum(self._costs(sensitivity)[:2]), sensitivity.adjacency)
        if self._numeric is None:
            return test
        value = self._numeric.loss(Sensitivity.l1(_scalar_bound(sensitivity), adjacency=sensitivity.adjacency))
        return compose([(test, 1), (value, self.count)])

    def _costs(self, sensitivity: Sensitivity) -> tuple[Fraction, Fraction, Fraction]:
        """(ε₁, ε₂, ε₃), exactly; floored answers of neighbours are at most ⌈Δ/g⌉ steps apart."""
        bound = _scalar_bound(sensitivity)
        if self.monotone and sensitivity.adjacency is not Adjacency.ADD_REMOVE:
            raise InvalidSensitivity(
                "monotone queries all move the same way when a unit is added; when one is replaced they need not: "
                "use monotone=False, or state the sensitivity for add_remove"
            )
        step = Fraction(2) ** self._exponent
        steps = bound / step
        moved = max(bound, ceil_div(steps.numerator, steps.denominator) * step / WIDENING)
        shifts = self.count if self.monotone else 2 * self.count
        third = Fraction(0)
        if self._numeric is not None:
            third = self.count * max(bound / self._numeric.scale, grid.LEAST_SHARE)
        return moved / self.threshold_scale, shifts * moved / self.query_scale, third

    def error(self, confidence: Number = 0.95, *, queries: int) -> float:
        """α such that over ``queries`` queries no answer is wrong by more than α, with this confidence.

        |ρ| and all |νᵢ| are bounded together, with the failure probability split in proportion to the scales, which
        minimises the sum.

        Args:
            confidence: How sure it is, between 0 and 1.
            queries: How many are asked.
        """
        k = positive_int(queries, "queries")
        failure = failure_probability(confidence)
        rho, nu = (fraction_up(scale * WIDENING) for scale in (self.threshold_scale, self.query_scale))
        first = failure * rho / (rho + nu)
        second = per_coordinate(-math.expm1(math.log1p(-failure) - math.log1p(-first)), k)
        # each noise on the grid exceeds its bound by less than a step; answer and threshold are floored
        return up(-rho * math.log(first) - nu * math.log(second), 2.0**-40) + 4 * math.ldexp(1.0, self._exponent)

    def numeric_error(self, confidence: Number = 0.95) -> float:
        """The absolute error that none of the ``count`` numeric answers exceeds with this confidence.

        Args:
            confidence: How sure it is, between 0 and 1.
        """
        if self._numeric is None:
            raise InvalidParameter("this mechanism gives no numeric answers: give it a numeric_scale")
        return self._numeric.error(confidence, coordinates=self.count)

    def start(self, threshold: Number, *, source: Source = SYSTEM) -> SparseVectorSession:
        """A session that answers until ``count`` answers lay above the public ``threshold``; paid for in full now.

        Args:
            threshold: What answers are compared with; public.
            source: Source of randomness; anything but the default is for tests.
        """
        units = as_fraction(threshold, "threshold") / Fraction(2) ** self._exponent
        level = units.numerator // units.denominator + self._threshold_noise.one(source)
        return SparseVectorSession(self.count, level, self._query_noise, self._exponent, self._numeric, source)

    def release(self, exact: Any, threshold: Number, *, source: Source = SYSTEM) -> npt.NDArray[np.bool_]:
        """Whether each of several answers lies above the threshold, up to and including the ``count``-th that does.

        Args:
            exact: Answers in their order, one-dimensional.
            threshold: What they are compared with; it may be chosen freely, but not from the data.
            source: Source of randomness; anything but the default is for tests.

        Returns:
            Whether each answer was above, up to the last one that is given.
        """
        values = finite_floats(exact)
        if values.ndim != 1:
            raise InvalidData("the answers must be a one-dimensional array")
        session = self.start(threshold, source=source)
        found: list[bool] = []
        for value in values.tolist():
            if session.remaining == 0:
                break
            found.append(bool(session.ask(value)))
        return np.array(found, dtype=np.bool_)


class SparseVectorSession(Session):
    """One run of a sparse vector: the noisy threshold is drawn once and kept secret.

    Example:
        >>> session = SparseVector(threshold_scale="1e-3", query_scale="1e-3").start(threshold=100)
        >>> bool(session.ask(3)), bool(session.ask(250)), session.remaining
        (False, True, 0)
        >>> session.ask(3)
        Traceback (most recent call last):
        dither.errors.OutOfBudget: this session has given all of its 1 answers above the threshold: ...
    """

    __slots__ = ("_count", "_exponent", "_level", "_noise", "_numeric", "_remaining", "_source")

    def __init__(
        self,
        count: int,
        level: int,
        noise: DiscreteLaplaceSampler,
        exponent: int,
        numeric: Laplace | None,
        source: Source,
    ) -> None:
        super().__init__()
        self._count = self._remaining = count
        self._level = level
        self._noise = noise
        self._exponent = exponent
        self._numeric = numeric
        self._source = source

    def __repr__(self) -> str:
        return f"SparseVectorSession(remaining={self._remaining})"

    @property
    def remaining(self) -> int:
        """How many answers above the threshold are left; the session ends with the last."""
        return self._remaining

    def ask(self, exact: Any) -> Above:
        """Whether an exact answer lies above the threshold, judged with noise that is fresh for every question."""
        self._check_process()
        value = finite_floats(exact)
        if value.ndim != 0:
            raise InvalidData("ask takes one number at a time; use release for an array")
        number = float(value)
        with self._lock:
            if self._remaining == 0:
                raise OutOfBudget(
                    f"this session has given all of its {self._count} answers above the threshold: nothing more is "
                    "answered; start another one, which costs as much again"
                )
            units = grid.floor_units(number, self._exponent)
            if units + self._noise.one(self._source) < self._level:
                return Above(above=False)
            self._remaining -= 1
        # never the noisy number that was compared: it is correlated with the secret threshold
        return Above(
            above=True, value=None if self._numeric is None else self._numeric.release(number, source=self._source)
        )


def _scalar_bound(sensitivity: Sensitivity) -> Fraction:
    """How far each query of the stream may move: any norm says it, since a stream's queries are numbers."""
    return sensitivity.bound
