"""Elastic sensitivity: how far one row can move a count over joins, from how often each join key occurs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from dither.entropy import SYSTEM, Source
from dither.errors import InvalidData, InvalidParameter, NotPrivate
from dither.mechanisms.smooth_sensitivity import BOUND_SLACK, SmoothLaplace
from dither.numeric import Number, positive_int
from dither.privacy import ApproximateLoss

# Distances looked at for the smooth bound: the largest term lies below (degree of the query)/β.
LARGEST_DISTANCE = 10**7
CHUNK = 1 << 16
# Frequencies of up to 2^62 in each leave every product within a float.
MOST_TABLES = 10


@dataclass(frozen=True, slots=True)
class Polynomial:
    """A polynomial in the distance k with whole, non-negative coefficients, constant term first."""

    coefficients: tuple[int, ...]

    def __add__(self, other: Polynomial) -> Polynomial:
        longer, shorter = sorted((self.coefficients, other.coefficients), key=len, reverse=True)
        padded = shorter + (0,) * (len(longer) - len(shorter))
        return Polynomial(tuple(a + b for a, b in zip(longer, padded, strict=True)))

    def __mul__(self, other: Polynomial) -> Polynomial:
        out = [0] * (len(self.coefficients) + len(other.coefficients) - 1)
        for i, a in enumerate(self.coefficients):
            for j, b in enumerate(other.coefficients):
                out[i + j] += a * b
        return Polynomial(tuple(out))

    def at(self, distance: int) -> int:
        """The value at a distance."""
        return sum(c * distance**power for power, c in enumerate(self.coefficients))

    @property
    def degree(self) -> int:
        """The highest power."""
        return len(self.coefficients) - 1


def _is_frequency(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and 0 <= int(value) <= 2**62


ZERO, ONE = Polynomial((0,)), Polynomial((1,))


@dataclass(frozen=True, slots=True)
class Table:
    """A table and, for each column that it is joined on, how often its most frequent value occurs.

    A private table's frequencies are as secret as its rows. ``alias`` tells apart several uses of one table; a public
    table's rows aren't protected.

    Example:
        >>> Table("edges", {"src": 3, "dst": 2}, alias="e1").alias
        'e1'
    """

    name: str
    max_frequency: Mapping[str, int]
    alias: str = ""
    public: bool = False

    def __post_init__(self) -> None:
        for column, frequency in self.max_frequency.items():
            if not _is_frequency(frequency):
                # no value in the message: the frequencies of a private table are data
                raise InvalidData(
                    f"the maximal frequency of {self.name}.{column} must be a whole number from 0 to 2^62"
                )
        frozen = {column: int(frequency) for column, frequency in self.max_frequency.items()}
        object.__setattr__(self, "max_frequency", MappingProxyType(frozen))
        object.__setattr__(self, "alias", self.alias or self.name)

    def tables(self) -> Iterator[Table]:
        """This table."""
        yield self

    def frequency(self, column: str) -> Polynomial | None:
        """At distance k a private table's most frequent value occurs at most k times more often."""
        alias, _, name = column.rpartition(".")
        if alias != self.alias or name not in self.max_frequency:
            return None
        return Polynomial((self.max_frequency[name],) if self.public else (self.max_frequency[name], 1))

    def stability(self, changed: str) -> Polynomial:
        """One row of the changed table is one row here."""
        return ONE if self.name == changed and not self.public else ZERO


@dataclass(frozen=True, slots=True)
class Join:
    """An equijoin of two relations on one column of each, written ``alias.column``.

    Filters and projections may be applied anywhere: they neither make values more frequent nor rows more numerous.

    Example:
        >>> trips, drivers = Table("trips", {"driver": 20}), Table("drivers", {"id": 1})
        >>> elastic_sensitivity(Join(trips, drivers, "trips.driver", "drivers.id"), distance=0)
        20
    """

    left: Relation
    right: Relation
    left_on: str
    right_on: str

    def __post_init__(self) -> None:
        aliases = [table.alias for table in self.tables()]
        if len(aliases) > MOST_TABLES:
            raise InvalidParameter(f"at most {MOST_TABLES} tables can be joined; got {len(aliases)}")
        if len(set(aliases)) != len(aliases):
            raise InvalidParameter(f"each use of a table needs its own alias; got {', '.join(sorted(aliases))}")
        private = {table.name for table in self.tables() if not table.public}
        if private & {table.name for table in self.tables() if table.public}:
            raise InvalidParameter("a table can't be public in one place and private in another")
        for side, column in ((self.left, self.left_on), (self.right, self.right_on)):
            if side.frequency(column) is None:
                raise InvalidParameter(
                    f"no maximal frequency is known for {column!r}: write alias.column, on the side that it belongs to"
                )

    def tables(self) -> Iterator[Table]:
        """Every use of a table below this join."""
        yield from self.left.tables()
        yield from self.right.tables()

    def frequency(self, column: str) -> Polynomial | None:
        """A row of one side meets at most as many of the other as that side's key occurs."""
        for side, other, key in ((self.left, self.right, self.right_on), (self.right, self.left, self.left_on)):
            own, matches = side.frequency(column), other.frequency(key)
            if own is not None and matches is not None:
                return own * matches
        return None

    def stability(self, changed: str) -> Polynomial:
        """Δ(r₁ ⋈ r₂) = Δr₁ ⋈ r₂ + r₁ ⋈ Δr₂ + Δr₁ ⋈ Δr₂; without a self-join one of the Δ is empty."""
        first, second = self.left.stability(changed), self.right.stability(changed)
        left, right = self.left.frequency(self.left_on), self.right.frequency(self.right_on)
        assert left is not None
        assert right is not None
        return left * second + right * first + first * second


Relation: TypeAlias = Table | Join


def _stabilities(query: Relation) -> list[Polynomial]:
    """One polynomial for each private table whose row may change."""
    names = {table.name for table in query.tables() if not table.public}
    if not names:
        raise NotPrivate("a count over public tables alone needs no noise: release it as it is")
    return [query.stability(name) for name in sorted(names)]


def elastic_sensitivity(query: Relation, *, distance: int) -> int:
    """A bound of the local sensitivity of COUNT(*) over ``query`` at every database within ``distance`` rows.

    Guarantee: |q(y) − q(y')| is at most this for neighbours y, y' (one row added or removed) with y within ``distance``
        added or removed rows of the data (after Johnson, Near & Song 2018, section 3). As secret as the data.
    """
    k = positive_int(distance, "distance", least=0)
    return max(bound.at(k) for bound in _stabilities(query))


def smooth_elastic_sensitivity(query: Relation, smoothness: float) -> float:
    """max_k e^{−βk}·Ŝ(k), rounded up: a β-smooth bound of the local sensitivity. As secret as the data."""
    if not (math.isfinite(smoothness) and smoothness > 0):
        raise InvalidParameter("the smoothness must be a positive, finite number")
    best = 0.0
    for bound in _stabilities(query):
        # a polynomial with such coefficients grows by at most (1 + 1/k)^degree a step: past degree/β the terms fall
        last = math.ceil(bound.degree / smoothness) + 1
        if last > LARGEST_DISTANCE:
            raise InvalidParameter("epsilon is too small for elastic sensitivity: the smooth bound can't be computed")
        coefficients = [float(c) for c in bound.coefficients]
        for start in range(0, last + 1, CHUNK):
            k = np.arange(start, min(start + CHUNK, last + 1), dtype=np.float64)
            value = np.zeros(k.size)
            for c in reversed(coefficients):
                value = value * k + c
            best = max(best, float((value * np.exp(-smoothness * k)).max()))
    return best * (1 + BOUND_SLACK)


@dataclass(frozen=True, slots=True)
class ElasticCount:
    """Releases COUNT(*) over a tree of equijoins with noise that follows its elastic sensitivity.

    Guarantee: (ε, δ) for one row of one private table, added or removed (Johnson, Near & Song 2018; Nissim,
        Raskhodnikova & Smith 2007). See elastic_sensitivity.md.
    Assumes: the frequencies in ``query`` are those of the data now, or public bounds of them; a unit is one row.
    Accuracy: noise of scale 2S/ε; S is as secret as the data.

    Example:
        >>> count = ElasticCount(epsilon=1, delta=1e-6)
        >>> count.loss().epsilon(delta=1e-6)
        1.0
        >>> count.release(10, Table("regions", {}, public=True))
        Traceback (most recent call last):
        dither.errors.NotPrivate: a count over public tables alone needs no noise: release it as it is
    """

    noise: SmoothLaplace

    def __init__(self, epsilon: Number, delta: Number) -> None:
        object.__setattr__(self, "noise", SmoothLaplace(epsilon, delta))

    @property
    def epsilon(self) -> Fraction:
        """The stated ε."""
        return self.noise.epsilon

    def loss(self) -> ApproximateLoss:
        """(ε, δ) under add_remove."""
        return self.noise.loss()

    def smooth_bound(self, query: Relation) -> float:
        """The smooth elastic sensitivity; as secret as the data."""
        return smooth_elastic_sensitivity(query, self.noise.smoothness)

    def release(self, exact: int, query: Relation, *, source: Source = SYSTEM) -> int:
        """The exact count plus noise."""
        return self.noise.release(exact, self.smooth_bound(query), source=source)
