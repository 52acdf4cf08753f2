"""Sampling before a mechanism: the same noise costs less, because nobody knows who took part."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from dither.entropy import SYSTEM, Source, poisson_mask, sample_without_replacement
from dither.errors import InvalidData, InvalidParameter
from dither.mechanisms.base import NoiseMechanism, failure_probability
from dither.numeric import Number, as_fraction, positive, positive_int, up
from dither.privacy import PrivacyLoss, Sensitivity, poisson, without_replacement

Rows = TypeVar("Rows", bound="Sequence[Any] | npt.NDArray[Any]")


@dataclass(frozen=True, slots=True)
class Subsampled:
    """Runs a mechanism on a secret sample in which each row is present with probability ``rate``, independently.

    Guarantee: the mechanism's loss amplified by Poisson sampling, for add_remove and one row per unit: an ε-private
        mechanism becomes ln(1 + q(e^ε − 1))-private, an (ε, δ)-private one has qδ at that ε (Balle, Barthe & Gaboardi
        2018), with the exact curve of Zhu, Dong & Wang 2022. See subsampled.md.
    Assumes: the query is a function of the sampled rows alone, has the stated sensitivity on every sample, and
        neither it nor anybody else shows the sample or its size.
    Accuracy: that of the mechanism on the sample's answer; ``scaled_error`` for a sum that is scaled up by 1/rate.

    Example:
        >>> from dither.mechanisms import Laplace
        >>> sampled = Subsampled(Laplace(scale=1), rate="1/100")
        >>> sampled.loss(Sensitivity.l1(1)).pure()  # ln(1 + 0.01·(e − 1))
        0.01703686...
        >>> Subsampled(Laplace(scale=1), rate=2)
        Traceback (most recent call last):
        dither.errors.InvalidParameter: rate must be above 0 and at most 1; got 2
    """

    mechanism: NoiseMechanism
    rate: Fraction

    def __init__(self, mechanism: NoiseMechanism, rate: Number) -> None:
        exact = as_fraction(rate, "rate")
        if not 0 < exact <= 1:
            raise InvalidParameter(f"rate must be above 0 and at most 1; got {rate!r}")
        object.__setattr__(self, "mechanism", mechanism)
        object.__setattr__(self, "rate", exact)

    @staticmethod
    def without_replacement(mechanism: NoiseMechanism, *, sample: int, population: int) -> SubsampledWithoutReplacement:
        """The same with a sample of fixed size, for replace neighbours.

        Args:
            mechanism: Noise on the answer of the sample.
            sample: Size of the sample.
            population: Number of units, which is public.
        """
        return SubsampledWithoutReplacement(mechanism, sample, population)

    def loss(self, sensitivity: Sensitivity) -> PrivacyLoss:
        """The cost of one release from a fresh sample; ``sensitivity`` is that of the query on the sample.

        Args:
            sensitivity: How far one unit of the sample moves the query's answer on it.
        """
        return poisson(self.mechanism.loss(sensitivity), self.rate)

    def error(self, confidence: Number = 0.95) -> float:
        """The error of the sample's answer, that is of the noise alone.

        Args:
            confidence: How sure it is, between 0 and 1.
        """
        return self.mechanism.error(confidence)

    def scaled_error(self, confidence: Number = 0.95, *, bound: Number, rows: int) -> float:
        """The error of answer/rate as an estimate of a sum over at most ``rows`` rows, each within ±``bound``.

        Noise and sampling get half of the failure probability each; the sampling error by Bernstein's inequality,
        with a variance of at most rows·q(1 − q)·bound².

        Args:
            confidence: Probability with which the bound holds, strictly between 0 and 1.
            bound: Largest contribution of one row to the sum.
            rows: Most rows that there may be.
        """
        half = failure_probability(confidence) / 2
        largest, q = float(positive(bound, "bound")), float(self.rate)
        log = math.log(2 / half)
        variance = positive_int(rows, "rows") * q * (1 - q) * largest**2
        linear = largest * max(q, 1 - q) * log / 3 if self.rate < 1 else 0.0
        sampling = linear + math.sqrt(linear**2 + 2 * variance * log)
        return up((self.mechanism.error(1 - Fraction(half)) + sampling) / q)

    def release(self, rows: Rows, query: Callable[[Rows], Any], *, source: Source = SYSTEM) -> Any:
        """The mechanism's answer to ``query`` on a fresh sample of ``rows``, which never leaves.

        Args:
            rows: One row for each unit.
            query: Exact answer of a sample of the rows.
            source: Source of randomness; anything but the default is for tests.
        """
        mask = poisson_mask(self.rate, _length(rows), source)
        return _released(self.mechanism, query(_chosen(rows, np.flatnonzero(mask))), source)


@dataclass(frozen=True, slots=True)
class SubsampledWithoutReplacement:
    """Runs a mechanism on ``sample`` of ``population`` rows, every subset of that size being as likely.

    Guarantee: ln(1 + q(e^ε − 1)) with q = sample/population, and qδ, under replace, the number of rows being public
        (Balle, Barthe & Gaboardi 2018, Theorem 9). See subsampled.md.
    Assumes: as Subsampled.
    Accuracy: that of the mechanism on the sample's answer.

    Example:
        >>> from dither.mechanisms import Laplace
        >>> from dither.privacy import Adjacency
        >>> sampled = Subsampled.without_replacement(Laplace(scale=1), sample=1, population=100)
        >>> sampled.loss(Sensitivity.l1(1, adjacency=Adjacency.REPLACE)).pure()
        0.01703686...
        >>> sampled.loss(Sensitivity.l1(1))
        Traceback (most recent call last):
        dither.errors.IncompatibleLosses: sampling without replacement amplifies losses stated for replace; ...
    """

    mechanism: NoiseMechanism
    sample: int
    population: int

    def __post_init__(self) -> None:
        m, n = positive_int(self.sample, "sample"), positive_int(self.population, "population")
        if m > n:
            raise InvalidParameter(f"the sample must be no larger than the population; got {m} of {n}")

    @property
    def rate(self) -> Fraction:
        """The share of rows in the sample."""
        return Fraction(self.sample, self.population)

    def loss(self, sensitivity: Sensitivity) -> PrivacyLoss:
        """The cost of one release from a fresh sample; ``sensitivity`` is that of the query on the sample."""
        return without_replacement(self.mechanism.loss(sensitivity), sample=self.sample, population=self.population)

    def error(self, confidence: Number = 0.95) -> float:
        """The error of the sample's answer, that is of the noise alone."""
        return self.mechanism.error(confidence)

    def release(self, rows: Rows, query: Callable[[Rows], Any], *, source: Source = SYSTEM) -> Any:
        """The mechanism's answer to ``query`` on a fresh sample of ``rows``, which never leaves."""
        if _length(rows) != self.population:
            raise InvalidData(f"expected the stated population of {self.population} rows; nothing was drawn")
        # in the order of the rows: a random order would do no harm, but queries may rely on it
        chosen = np.sort(sample_without_replacement(self.population, self.sample, source))
        return _released(self.mechanism, query(_chosen(rows, chosen)), source)


def _length(rows: Any) -> int:
    try:
        return len(rows)
    except TypeError as problem:
        raise InvalidData("the rows must be an array or a sequence, one row per unit") from problem


def _chosen(rows: Any, places: npt.NDArray[np.int64]) -> Any:
    return rows[places] if isinstance(rows, np.ndarray) else [rows[i] for i in places.tolist()]


def _released(mechanism: Any, exact: Any, source: Source) -> Any:
    return mechanism.release(exact, source=source)
