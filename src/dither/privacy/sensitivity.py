"""Sensitivity: how far one unit can move an exact answer, for a stated adjacency."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Self

from dither.errors import InvalidSensitivity
from dither.numeric import Number, as_fraction, positive_int
from dither.privacy.unit import Adjacency


def expect_sensitivity(value: object) -> None:
    """Raise unless it is a Sensitivity; usually it is a bare number that doesn't say in which norm."""
    if not isinstance(value, Sensitivity):
        raise InvalidSensitivity(
            f"expected a sensitivity with its norm, such as Sensitivity.l1(1); got {type(value).__name__}"
        )


class Norm(Enum):
    """In which sense the distance between two neighbours' answers is bounded."""

    L1 = "l1"
    L2 = "l2"
    LINF = "linf"


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The largest distance between the exact answers of two neighbours.

    Stated in one norm, or as a contribution (at most ``groups`` coordinates move, each by at most
    ``bound``), which bounds every norm. Distances are kept squared, so that √groups stays exact.

    Example:
        >>> Sensitivity.l1(1).adjacency
        <Adjacency.ADD_REMOVE: 'add_remove'>
        >>> four = Sensitivity.contribution(groups=4, per_group=10)
        >>> four.l1_bound(), four.l2_squared(), four.linf_bound()
        (Fraction(40, 1), Fraction(400, 1), Fraction(10, 1))
        >>> Sensitivity.l2(1).l1_bound()
        Traceback (most recent call last):
        dither.errors.InvalidSensitivity: this mechanism needs a sensitivity in the l1 norm; got l2: ...
    """

    norm: Norm
    bound: Fraction
    adjacency: Adjacency = Adjacency.ADD_REMOVE
    groups: int | None = None

    def __post_init__(self) -> None:
        exact = as_fraction(self.bound, "sensitivity")
        if exact <= 0:
            raise InvalidSensitivity(
                f"sensitivity must be greater than 0; got {self.bound!r} "
                "(an answer that no unit can move is public and needs no noise)"
            )
        if not isinstance(self.adjacency, Adjacency):
            raise InvalidSensitivity(
                f"adjacency must be Adjacency.ADD_REMOVE or Adjacency.REPLACE; got {self.adjacency!r}"
            )
        object.__setattr__(self, "bound", exact)

    @classmethod
    def l1(cls, bound: Number, *, adjacency: Adjacency = Adjacency.ADD_REMOVE) -> Self:
        """The sum of absolute changes over all coordinates is at most ``bound``.

        Args:
            bound: By so much at most, between any two neighbours.
            adjacency: Which databases are neighbours.
        """
        return cls(Norm.L1, as_fraction(bound, "sensitivity"), adjacency)

    @classmethod
    def l2(cls, bound: Number, *, adjacency: Adjacency = Adjacency.ADD_REMOVE) -> Self:
        """The Euclidean length of the change is at most ``bound``.

        Args:
            bound: By so much at most, between any two neighbours.
            adjacency: Which databases are neighbours.
        """
        return cls(Norm.L2, as_fraction(bound, "sensitivity"), adjacency)

    @classmethod
    def linf(cls, bound: Number, *, adjacency: Adjacency = Adjacency.ADD_REMOVE) -> Self:
        """Every coordinate (or score) changes by at most ``bound``.

        Args:
            bound: By so much at most, between any two neighbours.
            adjacency: Which databases are neighbours.
        """
        return cls(Norm.LINF, as_fraction(bound, "sensitivity"), adjacency)

    @classmethod
    def contribution(cls, *, groups: int, per_group: Number, adjacency: Adjacency = Adjacency.ADD_REMOVE) -> Self:
        """At most ``groups`` coordinates change, each by at most ``per_group``.

        Under ``REPLACE`` one unit may leave ``groups`` coordinates and enter as many others: state the
        number of coordinates that change, usually twice the contribution.

        Args:
            groups: Most coordinates of the answer that one unit moves.
            per_group: How far it moves each, at most.
            adjacency: Whether a unit is added or removed, or replaced.
        """
        exact = as_fraction(per_group, "per_group")
        return cls(Norm.LINF, exact, adjacency, positive_int(groups, "groups"))

    def l1_bound(self) -> Fraction:
        """The bound in the l1 norm."""
        if self.groups is not None:
            return self.groups * self.bound
        return self._only(Norm.L1)

    def l2_squared(self) -> Fraction:
        """The square of the bound in the l2 norm."""
        if self.groups is not None:
            return self.groups * self.bound**2
        return self._only(Norm.L2) ** 2

    def linf_bound(self) -> Fraction:
        """The bound in the l∞ norm."""
        return self._only(Norm.LINF)

    def as_l2(self) -> Sensitivity:
        """The same bound read in the l2 norm, which never exceeds l1; a contribution keeps its own."""
        if self.groups is not None or self.norm is Norm.L2:
            return self
        if self.norm is Norm.L1:
            return Sensitivity(Norm.L2, self.bound, self.adjacency)
        raise InvalidSensitivity("l∞ doesn't bound l2: use Sensitivity.contribution(groups=…, per_group=…)")

    def integer_l1(self) -> int:
        """The l1 bound for answers that are whole numbers: rounded down, since distances are whole too."""
        steps = math.floor(self.l1_bound())
        if steps < 1:
            raise InvalidSensitivity(
                "whole-number answers that move by less than 1 don't move at all: "
                f"the sensitivity must be at least 1; got {self.l1_bound()}"
            )
        return steps

    def _only(self, wanted: Norm) -> Fraction:
        if self.norm is not wanted:
            raise InvalidSensitivity(
                f"this mechanism needs a sensitivity in the {wanted.value} norm; got {self.norm.value}: "
                f"use Sensitivity.{wanted.value}(…) or Sensitivity.contribution(groups=…, per_group=…)"
            )
        return self.bound
