"""Reach: how far one unit can move what is released about all groups together, for either adjacency.

A unit's parts form a vector with one entry for each group: at most G entries aren't zero, each lies in [A, B] with
A ≤ 0 ≤ B (what an absent unit adds is 0). Let m = max(−A, B) and w = B − A, so m ≤ w ≤ 2m.

*add_remove.* The vector itself comes or goes: l1 ≤ G·m, l2² ≤ G·m².

*replace.* One vector takes another's place. If their supports share j groups, those move by at most w each and the
other 2(G − j) by at most m each: l1 ≤ j·w + 2(G − j)·m and l2² ≤ j·w² + 2(G − j)·m². Both bounds are linear in j, so
they are largest at an end. Of K groups in all, 2G − j ≤ K, so j runs from max(0, 2G − K) to G. For l1 the lower end
is the worst since w ≤ 2m; for l2² either may be.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dither.mechanisms import DiscreteGaussian, DiscreteLaplace
from dither.numeric import positive_int
from dither.privacy import Adjacency, PrivacyLoss, Sensitivity, ZcdpLoss


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
    """The distance between the exact cells of two neighbours, in both norms."""

    l1: int
    l2_squared: int
    groups: int
    per_group: int
    adjacency: Adjacency

    def laplace_loss(self, mechanism: DiscreteLaplace) -> PrivacyLoss:
        """What releasing all cells with this noise costs."""
        return mechanism.loss(Sensitivity.l1(self.l1, adjacency=self.adjacency))

    def gaussian_loss(self, mechanism: DiscreteGaussian) -> PrivacyLoss:
        """What releasing all cells with this noise costs: the curve where the worst movement is one, else its ρ.

        Under replace two kinds of movement may both be extreme, so only ρ is stated (Canonne, Kamath & Steinke 2020,
        Theorem 14).
        """
        if self.adjacency is Adjacency.ADD_REMOVE:
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
