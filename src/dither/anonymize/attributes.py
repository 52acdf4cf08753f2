"""What each column is: its role, its kind, its order and its hierarchy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pyarrow.types as types

from dither.anonymize.hierarchy.hierarchies import Hierarchy
from dither.anonymize.table.values import AxisKind as AxisKind, kind_of
from dither.errors import InvalidParameter


class Role(Enum):
    """What a column tells, and so what becomes of it."""

    IDENTIFYING = "identifying"
    """Names a person by itself; removed."""
    QUASI = "quasi"
    """Known to others, and identifies in combination; generalised."""
    SENSITIVE = "sensitive"
    """What nobody should learn about a person; kept as it is, and protected by diversity and its kin."""
    INSENSITIVE = "insensitive"
    """Neither known to others nor harmful; kept as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """One column: its role, how it is cut, its hierarchy, and how much its detail matters.

    ``kind`` is found from the column's type if it is left out; ``order`` lists the values of an ordered column from the
    smallest; ``weight`` says how much a loss of detail counts against other columns.
    """

    name: str
    role: Role
    kind: AxisKind | None = None
    hierarchy: Hierarchy | None = None
    order: tuple[Any, ...] | None = None
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not self.name:
            raise InvalidParameter("an attribute needs the name of its column")
        if not isinstance(self.role, Role):
            raise InvalidParameter(f"the role of {self.name!r} must be a Role, such as Role.QUASI; got {self.role!r}")
        if self.kind is not None and not isinstance(self.kind, AxisKind):
            raise InvalidParameter(
                f"the kind of {self.name!r} must be an AxisKind, such as AxisKind.NUMBER; got {self.kind!r}"
            )
        if self.hierarchy is not None and not isinstance(self.hierarchy, Hierarchy):
            raise InvalidParameter(
                f"the hierarchy of {self.name!r} must be a Hierarchy, such as Hierarchy.from_csv(path); got a "
                f"{type(self.hierarchy).__name__}"
            )
        if self.hierarchy is not None and self.role not in (Role.QUASI, Role.SENSITIVE):
            raise InvalidParameter(
                f"{self.name!r} is {self.role.value}, and only quasi-identifying and sensitive columns use a hierarchy"
            )
        self._expect_order()
        weight: Any = self.weight
        number = isinstance(weight, int | float | Fraction) and not isinstance(weight, bool)
        if not number or not math.isfinite(weight) or weight < 0:
            raise InvalidParameter(f"the weight of {self.name!r} must be a number of at least 0; got {self.weight!r}")

    def _expect_order(self) -> None:
        if self.order is None:
            return
        if self.kind not in (None, AxisKind.ORDERED):
            raise InvalidParameter(f"{self.name!r} has an order, so its kind must be ORDERED; got {self.kind}")
        if not self.order or any(value is None for value in self.order):
            raise InvalidParameter(f"the order of {self.name!r} must be a tuple of its values, smallest first")
        if len({(type(value) is bool, value) for value in self.order}) != len(self.order):
            raise InvalidParameter(f"the order of {self.name!r} names a value twice")


def kind_for(attribute: Attribute, sort: pa.DataType) -> AxisKind:
    """How a column of this Arrow type is cut for an attribute; raises if the two don't go together."""
    name = attribute.name
    sort = sort.value_type if types.is_dictionary(sort) else sort
    found = kind_of(sort, name)
    kind = attribute.kind or (AxisKind.ORDERED if attribute.order is not None else found)
    if (
        kind is AxisKind.ORDERED
        and attribute.order is None
        and found is AxisKind.CATEGORY
        and not types.is_boolean(sort)
    ):
        raise InvalidParameter(f"column {name!r} is ordered text: say in which order, smallest first: order=(…)")
    if kind in (AxisKind.NUMBER, AxisKind.DATE) and found is not kind:
        wanted = "numbers" if kind is AxisKind.NUMBER else "dates or timestamps"
        raise InvalidParameter(
            f"column {name!r} is to be cut as {kind.value} but has the type {sort}: convert it to {wanted}, or give it "
            "the kind CATEGORY or ORDERED"
        )
    return kind
