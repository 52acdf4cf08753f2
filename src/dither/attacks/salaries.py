"""What to believe of somebody's salary: from averages before and after they left, and from private answers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy.special import ndtr

from dither.attacks.databases import ATTACKER, column, noise_of
from dither.curator import Curator
from dither.errors import InvalidParameter
from dither.mechanisms import DiscreteLaplace
from dither.mechanisms.base import Floats, Ints
from dither.numeric import positive_int

LARGEST, STEP, BAND = 200_000, 100, 5_000
# Salaries are made lognormal; the attacker knows that, as somebody who has seen the statistics of the country does.
MEDIAN, SPREAD = 60_000.0, 0.35
TOLERANCE = 0.05
BY_BAND = f"SELECT seat, floor(salary / {BAND}) AS band, COUNT(*) AS n FROM members GROUP BY seat, band"  # noqa: S608
# So many people at once: beliefs are a table of 2,001 salaries for each.
ROWS = 500


def salary_from_averages(before: tuple[int, float], after: tuple[int, float]) -> float:
    """What the person earns who left between two published averages, each given as (people, mean).

    Means that were rounded to d give it away to within n·d all the same.

    Example:
        >>> salary_from_averages((435, 61_010.0), (434, 60_875.0))
        119600.0
    """
    (n, mean), (left, other) = before, after
    if positive_int(n, "people before", least=2) - positive_int(left, "people after") != 1:
        raise InvalidParameter(f"one person leaves between the two averages; got {n} people before and {left} after")
    return n * float(mean) - left * float(other)


def draw_salaries(people: int, maker: np.random.Generator) -> Ints:
    """Lognormal salaries on multiples of the step, none above the largest."""
    raw = MEDIAN * np.exp(SPREAD * maker.standard_normal(people))
    return STEP * np.clip(np.round(raw / STEP), 0, LARGEST // STEP).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Salaries:
    """What somebody believes about salaries: the weight of each whole multiple of the step; rows are people."""

    weights: Floats

    @property
    def values(self) -> Floats:
        """The salaries that the weights are of."""
        return STEP * np.arange(self.weights.shape[-1], dtype=np.float64)

    @classmethod
    def prior(cls) -> Salaries:
        """How salaries are distributed among everybody."""
        edges = STEP * (np.arange(LARGEST // STEP + 2) - 0.5)
        edges[-1] = math.inf
        with np.errstate(divide="ignore"):
            shares = ndtr(np.log(np.maximum(edges, 0.0) / MEDIAN) / SPREAD)
        return cls(np.diff(shares))

    def after(self, log_likelihood: Floats) -> Salaries:
        """The beliefs after evidence; a row of it for each person."""
        weights = self.weights * np.exp(log_likelihood - log_likelihood.max(axis=-1, keepdims=True))
        return Salaries(weights / weights.sum(axis=-1, keepdims=True))

    def best_guess(self, tolerance: float = TOLERANCE) -> tuple[Floats, Floats]:
        """The salary that is most probably within the tolerance of the truth, and that probability."""
        values = self.values
        # v is within the tolerance of a guess g if g/(1+t) ≤ v ≤ g/(1−t)
        low = np.searchsorted(values, values / (1 + tolerance) - 1e-9)
        high = np.searchsorted(values, values / (1 - tolerance) + 1e-9)
        sums = np.concatenate([np.zeros((*self.weights.shape[:-1], 1)), np.cumsum(self.weights, axis=-1)], axis=-1)
        mass = sums[..., high] - sums[..., low]
        best = mass.argmax(axis=-1)
        return np.asarray(values[best]), np.asarray(mass.max(axis=-1))


def share_found(guesses: Floats | float, salaries: Ints) -> float:
    """The share of salaries that were guessed to within the tolerance."""
    return float(np.mean(np.abs(guesses - salaries) <= TOLERANCE * salaries + 1e-9))


def log_of_difference(distance: Floats, noise: DiscreteLaplace) -> Floats:
    """The log probability of a difference of two noises, up to a constant: Pr[d] ∝ q^|d|·(|d| + (1+q²)/(1−q²))."""
    scale = float(noise.scale)
    # with q = e^{−1/scale}, (1+q²)/(1−q²) = coth(1/scale)
    return np.asarray(-np.abs(distance) / scale + np.log(np.abs(distance) + 1 / math.tanh(1 / scale)))


def evidence_by_band(curator: Curator, members: int, *, epsilon: Fraction) -> Floats:
    """The log likelihood of every band of salaries for every member, after one question with a group for each."""
    noise = noise_of(curator, BY_BAND, epsilon)
    answer = curator.sql(BY_BAND, epsilon=epsilon, analyst=ATTACKER).table
    counts = np.zeros((members, LARGEST // BAND + 1))
    seats, bands = column(answer, "seat").astype(int), column(answer, "band").astype(int)
    counts[seats - 1, bands] = column(answer, "n")
    return np.asarray((np.abs(counts) - np.abs(counts - 1)) / float(noise.scale))


def guesses_by_band(evidence: Floats) -> Floats:
    """The best guess of every member's salary from evidence about bands."""
    place = np.arange(LARGEST // STEP + 1) * STEP // BAND
    parts = (Salaries.prior().after(evidence[some][:, place]).best_guess()[0] for some in _parts(len(evidence)))
    return np.concatenate(list(parts))


def guesses_by_sums(salaries: Ints, noise: DiscreteLaplace) -> Floats:
    """The same from two sums, with each member and without, in a world for each: the textbook way."""
    whole = salaries // STEP
    rest = int(whole.sum()) - whole
    seen = np.asarray(noise.release(rest + whole) - noise.release(rest), dtype=np.float64)
    grid = np.arange(LARGEST // STEP + 1, dtype=np.float64)
    parts = (
        Salaries.prior().after(log_of_difference(seen[some, np.newaxis] - grid, noise)).best_guess()[0]
        for some in _parts(whole.size)
    )
    return np.concatenate(list(parts))


def _parts(people: int) -> Iterator[slice]:
    return (slice(start, start + ROWS) for start in range(0, people, ROWS))
