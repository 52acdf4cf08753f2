"""What an engine is asked to compute: exact whole numbers, how far one unit moves them, and scales rounded up.

Everything that leaves an engine is a whole number: totals of bounded contributions, counts of bins, counts of distinct
values. The bound on one unit's part in each of them is written here and enforced by the engine, whatever the data.

A unit's parts form a vector with one entry for each group: at most G entries aren't zero, each lies in [A, B] with
A ≤ 0 ≤ B (what an absent unit adds is 0). Let m = max(−A, B) and w = B − A, so m ≤ w ≤ 2m.

*add_remove.* The vector itself comes or goes: l1 ≤ G·m, l2² ≤ G·m².

*replace.* One vector takes another's place. If their supports share j groups, those move by at most w each and the
other 2(G − j) by at most m each: l1 ≤ j·w + 2(G − j)·m and l2² ≤ j·w² + 2(G − j)·m². Both bounds are linear in j, so
they are largest at an end. Of K groups in all, 2G − j ≤ K, so j runs from max(0, 2G − K) to G. For l1 the lower end
is the worst since w ≤ 2m; for l2² either may be.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from math import prod
from typing import Literal as OneOf, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dither.brief import brief
from dither.errors import Refused
from dither.mechanisms import DiscreteGaussian, DiscreteLaplace
from dither.numeric import ceil_div, positive_int
from dither.privacy import Adjacency, PrivacyLoss, Sensitivity, ZcdpLoss
from dither.query.kinds import Expression
from dither.query.plan.plan import Gridded, Key, Relation

# One unit adds at most this to any total, so that 2^32 units can't overflow 64 bits.
LARGEST_PART = 2**30


class Cap(Enum):
    """How one unit's rows in one group are cut down to ``rows`` rows.

    ``CLAMP``: its sum is clamped to [low, high]. ``MEAN``: a unit with n > rows rows counts as ``rows``
    rows of its mean: ⌊sum·rows/n⌋, what drawing that many of its rows gives on average; then clamped. So a ratio of
    totals is the mean over rows where no unit weighs more than ``rows`` of them, not the mean over all rows.
    ``UNIT_MEAN``: every unit counts as one row of its mean, however many it may count with.
    """

    CLAMP = "clamp"
    MEAN = "mean"
    UNIT_MEAN = "unit_mean"

    def rows(self, rows: int) -> int:
        """As how many rows a unit counts at most."""
        return 1 if self is Cap.UNIT_MEAN else rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """The sum over all units of what each adds: the product of the factors, over rows where nothing is missing.

    A row counts only if every factor and every expression of ``present`` is neither NULL nor NaN. Without factors a row
    counts as 1. At user level a unit's part in a group is capped to [low, high]; at row level a row is a unit.
    COUNT(*) is no factors; COUNT(DISTINCT unit) is that with high = 1.
    """

    factors: tuple[Gridded, ...]
    present: tuple[Expression, ...]
    low: int
    high: int
    cap: Cap


@dataclass(frozen=True, slots=True, kw_only=True)
class Bins:
    """How many rows fall on each point of the grid, with at most ``rows`` rows of a unit in a group.

    Which rows of a unit are taken depends on its own rows and the salt alone.
    """

    grid: Gridded


@dataclass(frozen=True, slots=True, kw_only=True)
class DistinctValues:
    """How many different values units vouch for, each for at most ``rows`` in a group: the size of a largest matching.

    It is one number, whatever the salt, and never more than there are different values.
    """

    expression: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedTotals:
    """Totals that are added up with whole weights, after the engine has measured them."""

    parts: tuple[tuple[Total, int], ...]


Exact: TypeAlias = Total | DistinctValues | WeightedTotals
"""What a cell holds before noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One pass over the data: the relation, its groups, and what is wanted of each.

    Rows whose key isn't one of a key's public values are left out before anything else. Then every unit keeps at most
    ``groups`` groups, those with the smallest salted hash of unit and keys; at row level a row is in one group anyway.
    """

    relation: Relation
    units: OneOf["row", "column"]
    keys: tuple[Key, ...]
    groups: int
    rows: int
    totals: tuple[Total, ...]
    bins: tuple[Bins, ...] = ()
    distinct: tuple[DistinctValues, ...] = ()

    __repr__ = brief

    @property
    def most_groups(self) -> int | None:
        """How many groups a unit keeps; None where it can't have more than that many anyway."""
        sizes = [len(key.values) for key in self.keys if key.values is not None]
        return None if len(sizes) == len(self.keys) and prod(sizes) <= self.groups else self.groups

    @property
    def chooses(self) -> bool:
        """Whether a unit may have more than it may keep, so that the salt decides; known without looking at data.

        Capped totals and different values need no choice. Where no unit can be in more groups than it may, or rows are
        units, cells are the same for every salt.
        """
        return self.units == "column" and bool(self.bins or self.most_groups is not None)

    def numbers(self, exact: Exact, measured: Measured) -> npt.NDArray[np.int64]:
        """The exact numbers of a cell, one for each group that was measured."""
        if isinstance(exact, DistinctValues):
            return measured.distinct[self.distinct.index(exact)]
        if isinstance(exact, Total):
            return measured.totals[self.totals.index(exact)]
        numbers: npt.NDArray[np.int64] = np.zeros(measured.size, dtype=np.int64)
        for total, weight in exact.parts:
            numbers += weight * measured.totals[self.totals.index(total)]
        return numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class BinCounts:
    """Counts by group and bin: three arrays of one length; ``group`` is the row in ``Measured.keys``."""

    group: npt.NDArray[np.int64]
    bin: npt.NDArray[np.int64]
    count: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Exact cells, before noise: never shown to anybody.

    ``keys`` has a column ``k0``, ``k1``, … for each key and a row for each of the ``size`` groups that occur in the
    data, in ascending order of the keys, NULL last; with no keys there is one group, and no columns. ``totals`` and
    ``distinct`` have a number for each group, ``bins`` those of groups and bins that occur. A group of a public key
    that doesn't occur is not listed: it is filled in with zeros when noise is added.
    """

    keys: pa.Table
    size: int
    totals: tuple[npt.NDArray[np.int64], ...]
    bins: tuple[BinCounts, ...] = ()
    distinct: tuple[npt.NDArray[np.int64], ...] = ()

    def __repr__(self) -> str:
        # keep exact numbers out of logs and tracebacks
        return "Measured(…)"


# ---------------------------------------------------------------------------------------------- sensitivity


@dataclass(frozen=True, slots=True)
class Span:
    """How many groups one unit can be in, and how many there are (None: not known beforehand).

    Example:
        >>> Span.of(5, 3)
        Span(groups=3, cells=3)
    """

    groups: int
    cells: int | None

    @classmethod
    def of(cls, groups: int, cells: int | None) -> Span:
        """A unit can't be in more groups than there are."""
        most = positive_int(groups, "groups")
        return cls(most if cells is None else min(most, cells), cells)

    @property
    def least_shared(self) -> int:
        """How many groups a unit and its replacement have in common at least, if both are in ``groups`` of them."""
        return 0 if self.cells is None else max(0, 2 * self.groups - self.cells)

    @property
    def most_moved(self) -> int:
        """How many groups one replacement can touch."""
        return 2 * self.groups - self.least_shared


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """The distance between the exact cells of two neighbours, in both norms.

    Of several cells together where ``cells`` is more than one: what each of them moves is part of one distance.
    """

    l1: int
    l2_squared: int
    groups: int
    per_group: int
    adjacency: Adjacency
    cells: int = 1

    def laplace_loss(self, mechanism: DiscreteLaplace) -> PrivacyLoss:
        """What releasing all cells with this noise costs."""
        return mechanism.loss(Sensitivity.l1(self.l1, adjacency=self.adjacency))

    def gaussian_loss(self, mechanism: DiscreteGaussian) -> PrivacyLoss:
        """What releasing all cells with this noise costs: the curve where the worst movement is one, else its ρ.

        Where cells share a distance it may be spread over them, and under replace two kinds of movement may both be
        extreme, so only ρ is stated (Canonne, Kamath & Steinke 2020, Theorem 14).
        """
        if self.adjacency is Adjacency.ADD_REMOVE and self.cells == 1:
            return mechanism.loss(Sensitivity.contribution(groups=self.groups, per_group=self.per_group))
        return ZcdpLoss(self.l2_squared / (2 * mechanism.scale**2), self.adjacency)


def reach_of(low: int, high: int, span: Span, adjacency: Adjacency) -> Reach:
    """The reach of a cell to which one unit adds a whole number in [low, high], or nothing, in each of its groups.

    Example:
        >>> reach_of(0, 3, Span.of(2, None), Adjacency.ADD_REMOVE).l1
        6
        >>> moved = reach_of(-1, 1, Span.of(2, None), Adjacency.REPLACE)
        >>> moved.l1, moved.l2_squared
        (4, 8)
    """
    bottom, top = min(low, 0), max(high, 0)
    most, width, groups = max(-bottom, top), top - bottom, span.groups
    if adjacency is Adjacency.ADD_REMOVE:
        return Reach(l1=groups * most, l2_squared=groups * most**2, groups=groups, per_group=most, adjacency=adjacency)
    shared = span.least_shared
    return Reach(
        l1=shared * width + 2 * (groups - shared) * most,
        l2_squared=max(groups * width**2, shared * width**2 + 2 * (groups - shared) * most**2),
        groups=span.most_moved,
        per_group=width,
        adjacency=adjacency,
    )


def basis_reach(cells: int, most: int, span: Span, adjacency: Adjacency) -> Reach:
    """The reach of cells to which a unit adds whole numbers from 0 on, at most ``most`` in all, in each of its groups.

    Where a unit is replaced within a group, one may have had everything in one cell and the other in another: both
    amounts move, as they do in two groups. So it is the same whether or not groups are shared.

    Example:
        >>> both = basis_reach(2, 10, Span.of(1, None), Adjacency.ADD_REMOVE)
        >>> both.l1, both.l2_squared, basis_reach(2, 10, Span.of(1, 1), Adjacency.REPLACE).l1
        (10, 100, 20)
    """
    sides = 1 if adjacency is Adjacency.ADD_REMOVE else 2
    return Reach(
        l1=sides * span.groups * most,
        l2_squared=sides * span.groups * most**2,
        groups=span.groups if sides == 1 else span.most_moved,
        per_group=most,
        adjacency=adjacency,
        cells=cells,
    )


@dataclass(frozen=True, slots=True)
class ChoiceReach:
    """The ranges of all losses of one choice in each group, added up over the groups a unit can touch.

    ``total`` is the largest sum of ranges (pure losses add) and ``squares`` the largest sum of their squares, in units
    of 1/scale and 1/scale² (zCDP adds an eighth of them: Cesar & Rogers 2021).
    """

    total: Fraction
    squares: Fraction


def choice_reach(alone: Fraction, moved: Fraction, span: Span, adjacency: Adjacency) -> ChoiceReach:
    """``alone``: the range in a group that the unit enters or leaves; ``moved``: in one where it is replaced.

    As for cells: j groups are shared, 2(G − j) are not, and both sums are linear in j.
    """
    groups = span.groups
    if adjacency is Adjacency.ADD_REMOVE:
        return ChoiceReach(groups * alone, groups * alone**2)
    ends = (span.least_shared, groups)
    return ChoiceReach(
        max(j * moved + 2 * (groups - j) * alone for j in ends),
        max(j * moved**2 + 2 * (groups - j) * alone**2 for j in ends),
    )


# ---------------------------------------------------------------------------------------------- rounding


# Of a zCDP budget so much is divided: sums of floats, each rounded up, then stay within it.
MARGIN = 1 - Fraction(1, 2**40)
SCALE_BITS = 40
LONGEST_EXACT = 2**64
# Noise of this scale still fits 64 bits, but for a chance below e^-64.
LARGEST_SCALE = 2**55


def expect_scale(scale: Fraction) -> Fraction:
    """The scale, refused if its noise might not fit the numbers that are released."""
    if scale > LARGEST_SCALE:
        raise Refused(
            "the budget is too small for this question: its noise would be larger than any answer",
            code="budget_too_small",
            hint="Spend more, or ask for fewer columns.",
        )
    return scale


def short_up(value: Fraction) -> Fraction:
    """A positive fraction as it is if its terms are short, else rounded up to 40 significant bits.

    Example:
        >>> short_up(Fraction(1, 3)), short_up(Fraction(10**30 + 1, 10**30)) > 1
        (Fraction(1, 3), True)
    """
    if value.numerator < LONGEST_EXACT and value.denominator < LONGEST_EXACT:
        return value
    shift = SCALE_BITS - (value.numerator.bit_length() - value.denominator.bit_length())
    return _halved(_doubled_up(value, shift), shift)


def sqrt_up(value: Fraction) -> Fraction:
    """A short fraction whose square is no less than ``value`` > 0, and larger by less than 2^-38 of it.

    Example:
        >>> sqrt_up(Fraction(9, 4)), sqrt_up(Fraction(2)) ** 2 >= 2
        (Fraction(3, 2), True)
    """
    roots = math.isqrt(value.numerator), math.isqrt(value.denominator)
    if roots[0] ** 2 == value.numerator and roots[1] ** 2 == value.denominator:
        return short_up(Fraction(roots[0], roots[1]))
    half = (value.numerator.bit_length() - value.denominator.bit_length()) // 2
    shift = SCALE_BITS - half
    root = math.isqrt(_doubled_up(value, 2 * shift) - 1) + 1
    return _halved(root, shift)


def _doubled_up(value: Fraction, times: int) -> int:
    """A whole number that is no less than value · 2^times: the smallest."""
    if times >= 0:
        return ceil_div(value.numerator << times, value.denominator)
    return ceil_div(value.numerator, value.denominator << -times)


def _halved(whole: int, times: int) -> Fraction:
    """A whole number over 2^times."""
    return Fraction(whole, 1 << times) if times >= 0 else Fraction(whole << -times)
