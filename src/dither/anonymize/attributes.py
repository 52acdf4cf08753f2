"""What each column is, and what the release has to satisfy: the configuration of an anonymisation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from typing import Any

import pyarrow as pa

from dither.anonymize.columns import kind_for
from dither.anonymize.hierarchies import Hierarchy
from dither.anonymize.models import KAnonymity, Model, TCloseness
from dither.anonymize.tables import as_table
from dither.anonymize.values import Kind as Kind
from dither.errors import InvalidParameter
from dither.numeric import Number, probability


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
    kind: Kind | None = None
    hierarchy: Hierarchy | None = None
    order: tuple[Any, ...] | None = None
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not self.name:
            raise InvalidParameter("an attribute needs the name of its column")
        if not isinstance(self.role, Role):
            raise InvalidParameter(f"the role of {self.name!r} must be a Role, such as Role.QUASI; got {self.role!r}")
        if self.kind is not None and not isinstance(self.kind, Kind):
            raise InvalidParameter(f"the kind of {self.name!r} must be a Kind, such as Kind.NUMBER; got {self.kind!r}")
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
        if self.kind not in (None, Kind.ORDERED):
            raise InvalidParameter(f"{self.name!r} has an order, so its kind must be ORDERED; got {self.kind}")
        if not self.order or any(value is None for value in self.order):
            raise InvalidParameter(f"the order of {self.name!r} must be a tuple of its values, smallest first")
        if len({(type(value) is bool, value) for value in self.order}) != len(self.order):
            raise InvalidParameter(f"the order of {self.name!r} names a value twice")


@dataclass(frozen=True, slots=True)
class Configuration:
    """What each column is, the models that every class must satisfy, and how many rows may be suppressed."""

    attributes: tuple[Attribute, ...]
    models: tuple[Model, ...]
    suppression: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "suppression", probability(self.suppression, "suppression"))
        names = [attribute.name for attribute in self.attributes]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InvalidParameter(f"every column has one role; these have several: {', '.join(map(repr, twice))}")
        if not self.quasi:
            raise InvalidParameter(
                "at least one column must be quasi-identifying: what others may know of a person, such as age or "
                "postcode"
            )
        if not self.models or not all(isinstance(model, Model) for model in self.models):
            raise InvalidParameter("at least one model is needed, such as k=10 or models=(KAnonymity(10),)")
        if all(model.asks_nothing for model in self.models):
            asked = "; ".join(model.sentence() for model in self.models)
            only_k = all(isinstance(model, KAnonymity) for model in self.models)
            raise InvalidParameter(
                "k = 1 protects nobody: use a k of at least 2, or a further model"
                if only_k
                else f"every table satisfies that ({asked}), so nobody is protected: use a k of at least 2, or a "
                "stricter model"
            )
        sensitive = {attribute.name for attribute in self.sensitive}
        for model in self.models:
            if model.sensitive is not None and model.sensitive not in sensitive:
                raise InvalidParameter(
                    f"{model.sentence()} speaks about {model.sensitive!r}, which is not among the sensitive columns: "
                    f"add it to sensitive=[…]"
                )

    @classmethod
    def of(
        cls,
        table: Any = None,
        *,
        quasi: Sequence[str | Attribute] | Mapping[str, Hierarchy | None],
        sensitive: Sequence[str | Attribute] | Mapping[str, Hierarchy | None] = (),
        identifying: Sequence[str] = (),
        insensitive: Sequence[str] = (),
        k: int | None = None,
        models: Iterable[Model] = (),
        weights: Mapping[str, float] | None = None,
        suppression: Number = 0,
    ) -> Configuration:
        """A configuration for a table, checked against it; without a table only against itself.

        Columns that are named nowhere count as identifying and are removed: a forgotten column must not leave.

        Example:
            >>> table = pa.table({"name": ["A", "B"], "age": [31, 47], "ill": [True, False]})
            >>> found = Configuration.of(table, quasi=["age"], sensitive=["ill"], k=2)
            >>> [(attribute.name, attribute.role.value) for attribute in found.attributes]
            [('name', 'identifying'), ('age', 'quasi'), ('ill', 'sensitive')]
        """
        named = [
            *_attributes(quasi, Role.QUASI, weights or {}),
            *_attributes(sensitive, Role.SENSITIVE, {}),
            *_attributes(identifying, Role.IDENTIFYING, {}),
            *_attributes(insensitive, Role.INSENSITIVE, {}),
        ]
        _expect_weights(weights or {}, named)
        if isinstance(models, Model):
            raise InvalidParameter(f"models must be a list: [{models!r}]")
        wanted = tuple(models) if k is None else (KAnonymity(k), *models)
        if table is None:
            return cls(tuple(named), wanted, probability(suppression, "suppression"))
        arrow = as_table(table)
        by_name = {attribute.name: attribute for attribute in named}
        rest = [by_name.get(name) or Attribute(name=name, role=Role.IDENTIFYING) for name in arrow.column_names]
        if len(by_name) == len(named):
            extra = [attribute for attribute in named if attribute.name not in arrow.column_names]
            named = [*rest, *extra]
        found = cls(tuple(named), wanted, probability(suppression, "suppression"))
        found.check(arrow)
        return found

    def check(self, table: pa.Table) -> None:
        """Raise if the table lacks a column, or has too few rows for any class."""
        have = table.column_names
        lacking = [attribute.name for attribute in self.attributes if attribute.name not in have]
        if lacking:
            raise InvalidParameter(
                f"there is no column {', '.join(map(repr, lacking))}; the table has {', '.join(map(repr, have))}"
            )
        if not table.num_rows:
            raise InvalidParameter("the table is empty: there is nothing to anonymise")
        if self.least > table.num_rows:
            raise InvalidParameter(
                f"every class needs at least {self.least} rows, and the table has {table.num_rows}: no release can "
                "satisfy that"
            )
        for attribute in self.quasi:
            kind_for(attribute, table.schema.field(attribute.name).type)
        for model in self.models:
            if model.sensitive is not None:
                self._expect_comparable(model, table.schema.field(model.sensitive).type)

    def _expect_comparable(self, model: Model, sort: pa.DataType) -> None:
        attribute = self.attribute(model.sensitive or "")
        kind = kind_for(attribute, sort)
        if isinstance(model, TCloseness):
            model.expect(attribute.name, ordered=kind.on_a_line, hierarchy=attribute.hierarchy is not None)

    @property
    def quasi(self) -> tuple[Attribute, ...]:
        """The quasi-identifying columns."""
        return self._with(Role.QUASI)

    @property
    def sensitive(self) -> tuple[Attribute, ...]:
        """The sensitive columns."""
        return self._with(Role.SENSITIVE)

    @property
    def insensitive(self) -> tuple[Attribute, ...]:
        """The columns that are kept and not protected."""
        return self._with(Role.INSENSITIVE)

    @property
    def identifying(self) -> tuple[Attribute, ...]:
        """The columns that are removed."""
        return self._with(Role.IDENTIFYING)

    @property
    def least(self) -> int:
        """The smallest class that could satisfy every model."""
        return max(model.needs() for model in self.models)

    def attribute(self, name: str) -> Attribute:
        """The attribute of a column."""
        for attribute in self.attributes:
            if attribute.name == name:
                return attribute
        raise InvalidParameter(f"the configuration has no column {name!r}")

    def _with(self, role: Role) -> tuple[Attribute, ...]:
        return tuple(attribute for attribute in self.attributes if attribute.role is role)


def _attributes(columns: Any, role: Role, weights: Mapping[str, float]) -> list[Attribute]:
    if isinstance(columns, str):
        raise InvalidParameter(f"{role.value} must be a list of column names, not one text: [{columns!r}]")
    hierarchies = dict(columns) if isinstance(columns, Mapping) else {}
    found = []
    for column in columns:
        if isinstance(column, Attribute):
            if column.role is not role:
                raise InvalidParameter(f"{column.name!r} is listed as {role.value} but its role is {column.role.value}")
            found.append(replace(column, weight=weights.get(column.name, column.weight)))
            continue
        weight = weights.get(column, 1.0)
        found.append(Attribute(name=column, role=role, hierarchy=hierarchies.get(column), weight=weight))
    return found


def _expect_weights(weights: Mapping[str, float], named: list[Attribute]) -> None:
    quasi = {attribute.name for attribute in named if attribute.role is Role.QUASI}
    strangers = sorted(set(weights) - quasi)
    if strangers:
        raise InvalidParameter(
            f"weights are for quasi-identifying columns; these are none: {', '.join(map(repr, strangers))}"
        )
