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

*A basis.* Several cells of a group, to which a unit adds whole numbers p₁, p₂, … ≥ 0 with Σp ≤ M. Then l1 is Σp ≤ M
and l2² is Σp² ≤ (Σp)² ≤ M²: together they move as far as one of them could alone. Over G groups add_remove has
l1 ≤ G·M, l2² ≤ G·M². Under replace, in a group that both units hold, |p − p'| adds up to Σp + Σp' ≤ 2M, and (p − p')²
to Σp² + Σp'² ≤ 2M² at most, since p·p' ≥ 0: as in two groups. So l1 ≤ 2G·M and l2² ≤ 2G·M², reached by units that
hold different cells alone.

That cells of one argument are a basis: let a row have u = place − low, v = high − place with the *same* place, so that
u + v = N exactly, whatever rounding did; rows without a value count in none. Then u and v, or u², 2uv and v², or the
products of those of two arguments are no less than 0 and add up to N, N², … =: S for each row. A unit of n ≤ r rows
adds the sums over its rows, together n·S ≤ r·S; one of n > r rows the sums times r/n, together r·S. What is rounded
down (sums times r/n, division by ``divisor``) gets no larger and isn't negative, so M = ⌊r·S/divisor⌋ holds for what is
left. Ends are taken from a centred sum C, rounded down, and the number k = min(n, r) of rows, as C − low·k and
high·k − C, low and high seen from the centre: C lies between low·k and high·k, which are whole, so neither is negative,
and they add up to k·N. Rows without a value may be one more cell, ⌊S/divisor⌋ for each of min(all rows, r) − k: all of
them together have r·S/divisor at most.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from fractions import Fraction
from itertools import product
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
from dither.query.kinds import Call, Column, Expression, columns
from dither.query.plan.plan import (
    Distinct,
    FilterRows,
    Gridded,
    JoinKind,
    JoinRows,
    Key,
    PerUnit,
    Project,
    Relation,
    Scan,
    Union,
    Window,
)
from dither.query.schema import TableFacts, most_of

# One unit adds at most this to any total, so that 2^32 units can't overflow 64 bits.
LARGEST_PART = 2**30


class Cap(Enum):
    """How one unit's rows in one group are cut down to ``rows`` rows.

    ``CLAMP``: its sum is clamped to [low, high]. ``MEAN``: a unit with n > rows rows counts as ``rows``
    rows of its mean: ⌊sum·rows/n⌋, what drawing that many of its rows gives on average; then clamped. So a ratio of
    totals is the mean over rows where no unit weighs more than ``rows`` of them, not the mean over all rows.
    ``SCALE``: its sums in all groups together are scaled down until their sizes add up to at most max(−low, high), so
    that no group is left out. Sums are counted in ``Total.fine`` parts of a step. Where sizes add up to N > 0 steps,
    a sum s is s·fine where N·fine is no more than that, else ⌊|s|·max(−low, high)/N⌋ with the sign of s: rounded
    towards 0, so that the bound holds in whole numbers, whatever the groups.
    ``UNIT_MEAN``: every unit counts as one row of its mean, however many it may count with.
    """

    CLAMP = "clamp"
    MEAN = "mean"
    SCALE = "scale"
    UNIT_MEAN = "unit_mean"

    @property
    def averages(self) -> bool:
        """Whether a unit with too many rows counts with their mean."""
        return self in (Cap.MEAN, Cap.UNIT_MEAN)

    def rows(self, rows: int) -> int:
        """As how many rows a unit counts at most."""
        return 1 if self is Cap.UNIT_MEAN else rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """The sum over all units of what each adds: the product of the factors, over rows where nothing is missing.

    A row counts only if every factor and every expression of ``present`` is neither NULL nor NaN. Without factors a row
    counts as 1. At user level a unit's part in a group is capped to [low, high]; at row level a row is a unit.
    COUNT(*) is no factors; COUNT(DISTINCT unit) is that with high = 1. ``fine`` and ``once`` are for ``Cap.SCALE``:
    ``once`` says that all rows of a unit in a group count as one. Of
    products of several factors, none of them negative, the part that a unit would have may be divided by ``divisor``
    and rounded down, before it is capped.
    """

    factors: tuple[Gridded, ...]
    present: tuple[Expression, ...]
    low: int
    high: int
    cap: Cap
    fine: int = 1
    once: bool = False
    divisor: int = 1


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


def scaled_reach(low: int, high: int, span: Span, adjacency: Adjacency) -> Reach:
    """The reach of a cell to which one unit adds whole numbers whose sizes, over all groups, are at most these ends'.

    A vector that takes another's place: in l1 both lengths. In l2 both, or √2 of one where no entry is negative, as the
    square of the difference is no more than the sum of the squares then.

    Example:
        >>> moved = scaled_reach(0, 10, Span.of(3, 3), Adjacency.REPLACE)
        >>> moved.l1, moved.l2_squared, scaled_reach(-5, 10, Span.of(3, 3), Adjacency.REPLACE).l2_squared
        (20, 200, 400)
    """
    most = max(-low, high)
    sides = 1 if adjacency is Adjacency.ADD_REMOVE else 2
    return Reach(
        l1=sides * most,
        l2_squared=most**2 * (1 if sides == 1 else 2 if low >= 0 else 4),
        groups=span.groups if sides == 1 else span.most_moved,
        per_group=most if sides == 1 else high - low,
        adjacency=adjacency,
        # as of several cells: the distance may be spread over groups
        cells=2,
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


# ---------------------------------------------------------------------------------------------- what a unit adds
#
# What the policy's limits cut it to, and what public facts say it has. A join of two private relations gives a unit
# every pair of its rows, so the limits of both are multiplied; a relation with one row for each unit leaves those of
# the other as they are, and so does one in which units are only looked up. Facts make the bound smaller where a unit
# can't have more: from unique keys, from public values, from joins on them.
#
# Whatever comes out here is stated by a measurement, so the engine enforces it after the last join, and noise is made
# for it: a limit that is too small, or a fact that is wrong, cuts rows off. Privacy rests on none of them.

# so many unique keys of a join are followed; more would only make a bound smaller
MOST_KEYS = 16
ONE: frozenset[str] = frozenset()
"""The unique key of a relation with one row for each unit: there is nothing besides the unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """A table whose limits bound an answer: a unit counts in so many groups and as so many rows in each."""

    table: str
    groups: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitBound:
    """The most that one unit adds to an answer: groups, and rows in each of them.

    ``factors`` are the tables whose limits were multiplied. ``most_rows`` is the most that a unit can have in one group
    as far as public facts say, ``most_groups`` in how many groups it can be; None where they say nothing. Of the bounds
    without facts, ``limit_groups`` and ``limit_rows`` are what a question may state at most.
    """

    groups: int
    rows: int
    limit_groups: int
    limit_rows: int
    factors: tuple[Factor, ...]
    most_groups: int | None
    most_rows: int | None

    @property
    def one_each(self) -> bool:
        """Whether a unit has at most one row: then it is in one group, and nothing is lost by that bound."""
        return self.most_groups == 1 and self.most_rows == 1


def contribution(relation: Relation, tables: Mapping[str, TableFacts], keys: Collection[Expression] = ()) -> UnitBound:
    """What one unit adds to groups by these keys of a private relation whose units are ids.

    Args:
        relation: Read by the aggregation.
        tables: The tables of the schema, by name.
        keys: The group keys, over columns of the relation.

    Returns:
        The bound; unchanged by which keys' values are public.
    """
    grouped = frozenset(name for key in keys for name in columns(key))
    known, facts = _limits(relation, grouped, tables), _facts(relation, tables)
    limit_groups = _limits(relation, frozenset(each.name for each in relation.fields), tables).groups
    most_groups = _fewer(facts.most, known.most_groups)
    plain = {key.name for key in keys if isinstance(key, Column)}
    found = [most_of(key, plain, facts.sizes) for key in facts.unique]
    most_rows = min((most for most in (*found, facts.most) if most is not None), default=None)
    return UnitBound(
        groups=_least(known.groups, most_groups),
        rows=_least(known.rows, most_rows),
        limit_groups=limit_groups,
        limit_rows=known.rows,
        factors=known.factors,
        most_groups=most_groups,
        most_rows=most_rows,
    )


def one_row_each(relation: Relation) -> bool:
    """Whether a unit has at most one row by the form of the question alone, whatever the policy says."""
    if isinstance(relation, PerUnit):
        units = {field.name for field in relation.input.fields if field.unit}
        return all(isinstance(key, Column) and key.name in units for key in relation.keys)
    if isinstance(relation, Distinct) and all(field.unit for field in relation.fields):
        return True
    if isinstance(relation, FilterRows | Project | Distinct | Window):
        return one_row_each(relation.input)
    if isinstance(relation, JoinRows):
        copied = relation.kind in (JoinKind.INNER, JoinKind.LEFT)
        return one_row_each(relation.left) and (not copied or (relation.on_unit and one_row_each(relation.right)))
    return False


def _least(limit: int, most: int | None) -> int:
    return limit if most is None else min(limit, most)


def _fewer(one: int | None, other: int | None) -> int | None:
    return other if one is None else _least(one, other)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    """What the limits of the tables allow a unit in one relation; ``factors`` as in ``UnitBound``.

    ``most_groups`` is in how many groups it can be by facts alone, None where they don't say.
    """

    groups: int
    rows: int
    factors: tuple[Factor, ...]
    most_groups: int | None = None


def _limits(relation: Relation, grouped: frozenset[str], tables: Mapping[str, TableFacts]) -> _Limits:
    """The limits for groups by columns of these names."""
    if isinstance(relation, Scan):
        table = tables[relation.table]
        factor = Factor(table=table.name, groups=table.groups, rows=table.rows)
        return _Limits(groups=table.groups, rows=table.rows, factors=(factor,), most_groups=table.most_rows)
    if isinstance(relation, JoinRows):
        return _of_join(relation, grouped, tables)
    if isinstance(relation, Union):
        return _of_union(relation, grouped, tables)
    return _limits(relation.input, _below(relation, grouped), tables)


def _of_union(union: Union, grouped: frozenset[str], tables: Mapping[str, TableFacts]) -> _Limits:
    """The strictest of all parts."""
    places = [place for place, each in enumerate(union.fields) if each.name in grouped]
    parts = [_limits(part, frozenset(part.fields[i].name for i in places), tables) for part in union.inputs]
    return _Limits(groups=min(part.groups for part in parts), rows=min(part.rows for part in parts), factors=())


def _below(relation: FilterRows | Project | Distinct | PerUnit | Window, grouped: frozenset[str]) -> frozenset[str]:
    """The columns of the input that these of the output depend on; of what is computed from several rows, all."""
    if isinstance(relation, FilterRows | Distinct):
        return grouped
    own = frozenset(each.name for each in relation.input.fields)
    if isinstance(relation, Window):
        return grouped if grouped <= own else own
    computed = relation.expressions if isinstance(relation, Project) else relation.keys
    names = (each.name for each in relation.fields)
    given = {name: columns(expression) for name, expression in zip(names, computed, strict=False)}
    return frozenset[str]().union(*(given.get(name, own) for name in grouped))


def _of_join(join: JoinRows, grouped: frozenset[str], tables: Mapping[str, TableFacts]) -> _Limits:
    own = frozenset(each.name for each in join.left.fields)
    if join.kind in (JoinKind.SEMI, JoinKind.ANTI):
        return _limits(join.left, grouped, tables)
    if not join.on_unit:
        if grouped <= own:
            return _limits(join.left, grouped, tables)
        # which public rows match is up to any column
        return replace(_limits(join.left, own, tables), most_groups=None)
    left = _of_side(join.left, grouped & own, tables)
    right = _of_side(join.right, grouped - own, tables)
    if join.kind is JoinKind.LEFT and join.condition is not None and right.most_groups is not None and grouped - own:
        # rows of the left that match nothing have a group of their own
        right = replace(right, groups=right.groups + 1, most_groups=right.most_groups + 1)
    factors = (*left.factors, *right.factors)
    most = None
    if left.most_groups is not None and right.most_groups is not None:
        most = left.most_groups * right.most_groups
    return _Limits(groups=left.groups * right.groups, rows=left.rows * right.rows, factors=factors, most_groups=most)


def _of_side(relation: Relation, grouped: frozenset[str], tables: Mapping[str, TableFacts]) -> _Limits:
    """What one side multiplies the other by: of which no column is a key, that is in one group."""
    found, most = _limits(relation, grouped, tables), _facts(relation, tables).most
    most_groups = _fewer(found.most_groups, most) if grouped else 1
    groups, rows = _least(found.groups, most_groups), _least(found.rows, most)
    factors = found.factors
    if most == 1:
        factors = ()
    elif len(factors) == 1:
        factors = (replace(factors[0], groups=groups, rows=rows),)
    return _Limits(groups=groups, rows=rows, factors=factors, most_groups=most_groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """What is known of a relation: unique keys, public sizes of columns, and the most rows of one unit.

    ``unique`` are sets of plan names of which every combination occurs once, for each unit if the relation is private.
    Names that no column has any more go on counting: they only make a bound larger.
    """

    unique: tuple[frozenset[str], ...] = ()
    sizes: Mapping[str, int | None] = field(default_factory=dict)
    most: int | None = None


def _facts(relation: Relation, tables: Mapping[str, TableFacts]) -> _Facts:
    if one_row_each(relation):
        return _Facts(unique=(ONE,), most=1)
    if isinstance(relation, Scan):
        return _of_scan(relation, tables[relation.table])
    if isinstance(relation, JoinRows):
        return _joined(relation, tables)
    if isinstance(relation, Union):
        parts = [_facts(part, tables).most for part in relation.inputs]
        return _Facts(most=None if None in parts else sum(part for part in parts if part is not None))
    below = _facts(relation.input, tables)
    if isinstance(relation, Project):
        return _renamed(relation, below)
    if isinstance(relation, PerUnit):
        return _Facts(most=below.most)
    return below


def _of_scan(scan: Scan, table: TableFacts) -> _Facts:
    names = {column: name for name, column in scan.columns}
    if scan.private and not table.unique:
        return _Facts(unique=(ONE,) if table.most_rows == 1 else (), most=table.most_rows)
    # a hidden column has no name in the plan, but it is one
    hidden = f"{scan.columns[0][0] if scan.columns else ''}.{scan.table}"
    given = {table.unit_column} if scan.private else set()
    unique = tuple(
        frozenset(names.get(column, f"{hidden}.{column}") for column in key if column not in given)
        for key in table.unique
    )
    sizes = {names.get(column, f"{hidden}.{column}"): facts.domain for column, facts in table.columns.items()}
    most = table.most_rows if scan.private else None
    return _Facts(unique=(ONE,) if most == 1 else unique[:MOST_KEYS], sizes=sizes, most=most)


def _renamed(relation: Project, below: _Facts) -> _Facts:
    passed: dict[str, str] = {}
    for each, expression in zip(relation.fields, relation.expressions, strict=True):
        if isinstance(expression, Column):
            passed.setdefault(expression.name, each.name)
    unique = tuple(frozenset(passed.get(name, name) for name in key) for key in below.unique)
    return replace(
        below, unique=unique, sizes={**below.sizes, **{passed[n]: below.sizes[n] for n in passed if n in below.sizes}}
    )


def _joined(join: JoinRows, tables: Mapping[str, TableFacts]) -> _Facts:
    left = _facts(join.left, tables)
    if join.kind is JoinKind.ANTI:
        return left
    right = _facts(join.right, tables)
    equal = _equal(join)
    sizes = {**right.sizes, **left.sizes}
    if join.kind is not JoinKind.LEFT:
        # values that are equal have the fewer of both sides
        for here, there in equal:
            known = [size for size in (left.sizes.get(here), right.sizes.get(there)) if size is not None]
            if known:
                sizes[here] = sizes[there] = min(known)
    if join.kind is JoinKind.SEMI:
        return replace(left, sizes=sizes)
    if not join.on_unit:
        covered = {there for _, there in equal}
        if any(key <= covered for key in right.unique):
            unique = left.unique
            if join.kind is JoinKind.INNER:
                # the public column tells rows apart as well as the one that it equals
                also = (key - {here} | {there} for key in left.unique for here, there in equal if here in key)
                unique = tuple(dict.fromkeys((*unique, *also)))[:MOST_KEYS]
            return replace(left, unique=unique, sizes=sizes)
        return _Facts(unique=_pairs(left, right), sizes=sizes)
    most = None if left.most is None or right.most is None else left.most * right.most
    return _Facts(unique=_pairs(left, right), sizes=sizes, most=most)


def _pairs(left: _Facts, right: _Facts) -> tuple[frozenset[str], ...]:
    return tuple(dict.fromkeys(a | b for a, b in product(left.unique, right.unique)))[:MOST_KEYS]


def _equal(join: JoinRows) -> list[tuple[str, str]]:
    """Columns of the left that the condition makes equal to columns of the right, of one kind."""
    own, other = ({each.name for each in side.fields} for side in (join.left, join.right))
    found = []
    for part in _parts(join.condition):
        if not isinstance(part, Call) or part.function != "equal":
            continue
        a, b = part.arguments
        for here, there in ((a, b), (b, a)):
            both = isinstance(here, Column) and isinstance(there, Column) and here.kind is there.kind
            if both and here.name in own and there.name in other:  # type: ignore[union-attr]
                found.append((here.name, there.name))  # type: ignore[union-attr]
    return found


def _parts(condition: Expression | None) -> list[Expression]:
    if isinstance(condition, Call) and condition.function == "and":
        return [part for argument in condition.arguments for part in _parts(argument)]
    return [] if condition is None else [condition]
