"""Projective geometry response: small reports, the least variance, and all shares by one fast transform.

Feldman, Nelson, Nguyen & Talwar 2022. Values are points of a projective space over the field of a prime q near e^ε + 1;
a report is a point as well, and supports the values that it is orthogonal to. Proof in ``frequencies.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np

from dither.entropy import Source, below_many, bernoulli_many
from dither.errors import InvalidParameter
from dither.local.clients.projective import LARGEST_PRIME, dimension_for, is_prime, number_of_points
from dither.local.core.protocol import DOMAIN, FRACTION, Counts, Payloads, number_field
from dither.local.frequency.oracle import Ints, checked_domain, checked_keep, number_rows
from dither.local.frequency.parts import NamingOracle
from dither.mechanisms.randomized_response import odds_for_epsilon
from dither.mechanisms.response_estimates import Target, share_variance
from dither.numeric import Number, positive_int

# The transform holds one complex number for every vector: a gigabyte.
MOST_VECTORS = 2**26


@dataclass(frozen=True, slots=True, init=False)
class ProjectiveResponse(
    NamingOracle, name="projective", fields={"domain": DOMAIN, "prime": number_field(2), "keep": FRACTION}
):
    """Everybody names a point: one orthogonal to their value's with probability ``keep``, else another, alike in each.

    ``prime`` is q.

    Args:
        domain: Public list of values: their number, or labels.
        prime: Size of the field, near e^ε + 1.
        keep: Probability of a point orthogonal to that of the truth.

    Guarantee: ln(keep·q^(t−1)/((1−keep)·c))-private under REPLACE, where c of all points, which are c + q^(t−1), are
        orthogonal to a given one.
    Accuracy: with q near e^ε + 1 the variance is within a few per cent of that of subset selection, the least there
        is, from reports of log₂(values) bits.

    Example:
        >>> survey = ProjectiveResponse.for_epsilon(10_000, epsilon=2)
        >>> survey.prime, survey.dimension, survey.width, survey.loss().pure() <= 2
        (7, 6, 2, True)
    """

    prime: int
    keep: Fraction

    def __init__(self, domain: Any, *, prime: int, keep: Number) -> None:
        size = self._set_domain(domain).size
        if positive_int(prime, "prime", least=2) > LARGEST_PRIME or not is_prime(prime):
            raise InvalidParameter(f"prime must be a prime number of at most {LARGEST_PRIME}; got {prime}")
        dimension = dimension_for(size, prime)
        if prime**dimension > MOST_VECTORS:
            raise InvalidParameter(
                f"{size} values over a field of {prime} are too many to be counted in memory: use another oracle"
            )
        plane, points = number_of_points(prime, dimension - 1), number_of_points(prime, dimension)
        self._put(prime=int(prime), keep=checked_keep(keep, plane, points, ", a plane's part of all points,"))

    @classmethod
    def for_epsilon(cls, domain: Any, epsilon: Number) -> Self:
        """The prime of smallest variance for rare values, near e^ε + 1, and ``keep`` rounded down."""
        odds, size = odds_for_epsilon(epsilon), checked_domain(domain).size
        middle = int(min(odds + 1, Fraction(LARGEST_PRIME - 100)))
        oracles = []
        for prime in {_prime(middle, -1), _prime(middle + 1, 1)}:
            dimension = dimension_for(size, prime)
            if prime**dimension <= MOST_VECTORS:
                oracles.append(cls(domain, prime=prime, keep=_keep(odds, prime, dimension)))
        if not oracles:
            raise InvalidParameter(f"{size} values at this ε are too many to be counted in memory: use another oracle")
        return min(oracles, key=lambda o: share_variance(1, Fraction(0), o.hit, o.miss, Target.POPULATION))

    @property
    def dimension(self) -> int:
        """The number of coordinates t: the least with a point for every value."""
        return dimension_for(self.size, self.prime)

    @property
    def points(self) -> int:
        """The number of points, (q^t − 1)/(q − 1)."""
        return number_of_points(self.prime, self.dimension)

    @property
    def _plane(self) -> int:
        """How many points are orthogonal to one."""
        return number_of_points(self.prime, self.dimension - 1)

    @property
    def _line(self) -> int:
        """How many points are orthogonal to two."""
        return number_of_points(self.prime, self.dimension - 2)

    @property
    def miss(self) -> Fraction:
        """The probability of a point orthogonal to that of a given other value."""
        return self.keep * Fraction(self._line, self._plane) + self.weight

    @property
    def odds(self) -> Fraction:
        """A given orthogonal point against a given other one."""
        return self.keep * (self.points - self._plane) / ((1 - self.keep) * self._plane)

    @property
    def weight(self) -> Fraction:
        """The probability of a point that is orthogonal to a given other value's and not to the truth's."""
        return (1 - self.keep) * Fraction(self._plane - self._line, self.points - self._plane)

    def draw(self, truths: Ints, source: Source) -> Payloads:
        """Numbers of points."""
        q, t, people = self.prime, self.dimension, truths.size
        own = _vectors(truths, q, t)
        # the coordinates from the highest on; the first that isn't 0 is 1 and holds the one that isn't free
        lead = (own != 0).argmax(axis=0)
        inside = bernoulli_many(self.keep, people, source)
        # both are drawn: orthogonal vectors that aren't all zero, or any with product 1
        free = np.where(
            inside, below_many(q ** (t - 1) - 1, people, source) + 1, below_many(q ** (t - 1), people, source)
        )
        rest = _digits(free, q, t - 1)
        named = np.zeros((t, people), dtype=np.int64)
        for place in range(t - 1):
            before = place < lead
            named[place] += np.where(before, rest[place], 0)
            named[place + 1] += np.where(before, 0, rest[place])
        product = (own * named).sum(axis=0)
        named[lead, np.arange(people)] = (~inside - product) % q
        return number_rows(_numbers(named, q), self.width)

    @property
    def things(self) -> int:
        """The points."""
        return self.points

    def support_of_named(self, named: Counts) -> Counts:
        """A report supports the values whose points it is orthogonal to.

        With y(u) the number of reports on the line of u, and ŷ its Fourier transform over the vectors, those orthogonal
        to v are (all + ŷ(v))/q. The transform is in floats, its result a whole number.
        """
        q, t = self.prime, self.dimension
        vectors = _vectors(np.arange(self.points), q, t)
        weights = q ** np.arange(t - 1, -1, -1)
        spread = np.zeros(q**t)
        for scale in range(1, q):
            spread[weights @ (vectors * scale % q)] = named
        transformed = np.fft.fftn(spread.reshape((q,) * t)).real.ravel()
        found = transformed[weights @ vectors[:, : self.size]]
        return np.asarray(np.rint((found + named.sum()) / q).astype(np.int64))

    def reduced(self) -> ProjectiveResponse:
        """The same odds over the same field, or that of 5 if it is larger, for few values in three dimensions."""
        prime = min(self.prime, 5)
        size = min(self.size, prime + 2)
        return ProjectiveResponse(size, prime=prime, keep=_keep(self.odds, prime, dimension_for(size, prime)))


def _digits(values: Ints, base: int, length: int) -> Ints:
    """One row for each digit, the highest first."""
    out = np.empty((length, values.size), dtype=np.int64)
    for place in range(length - 1, -1, -1):
        values, out[place] = np.divmod(values, base)
    return out


def _vectors(indices: Ints, prime: int, dimension: int) -> Ints:
    """The vectors of points, as ``clients.projective.point`` numbers them; one row for each coordinate."""
    firsts = np.array([number_of_points(prime, after) for after in range(dimension + 1)], dtype=np.int64)
    after = np.searchsorted(firsts, indices, side="right") - 1
    powers = prime ** np.arange(dimension, dtype=np.int64)
    return _digits(indices - firsts[after] + powers[after], prime, dimension)


def _numbers(vectors: Ints, prime: int) -> Ints:
    """The numbers of the points that vectors lie on."""
    dimension, people = vectors.shape
    lead = (vectors != 0).argmax(axis=0)
    inverses = np.array([0, *(pow(i, -1, prime) for i in range(1, prime))], dtype=np.int64)
    scale = inverses[vectors[lead, np.arange(people)]]
    spelled = np.zeros(people, dtype=np.int64)
    for coordinate in vectors:
        spelled = spelled * prime + coordinate * scale % prime
    after = dimension - 1 - lead
    firsts = np.array([number_of_points(prime, m) for m in range(dimension)], dtype=np.int64)
    powers = prime ** np.arange(dimension, dtype=np.int64)
    return np.asarray(spelled - powers[after] + firsts[after])


def _keep(odds: Fraction, prime: int, dimension: int) -> Fraction:
    """The probability of a plane whose points are ``odds`` times likelier than others."""
    plane = number_of_points(prime, dimension - 1)
    return odds * plane / (odds * plane + number_of_points(prime, dimension) - plane)


def _prime(start: int, step: int) -> int:
    """The nearest prime from ``start`` on, going up or down; 2 if there is none below."""
    number = max(2, start)
    while not is_prime(number):
        number += step
    return number
