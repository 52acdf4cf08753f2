"""What each column is, and what the release has to satisfy: the configuration of an anonymisation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import pyarrow as pa

from dither.anonymize.attributes import Attribute, Role, kind_for
from dither.anonymize.hierarchy.hierarchies import Hierarchy
from dither.anonymize.models.catalogue import KAnonymity, Model, TCloseness
from dither.anonymize.table.read import as_table
from dither.anonymize.table.values import AxisKind as AxisKind
from dither.errors import InvalidParameter
from dither.numeric import Number, probability


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

        Args:
            table: Anything that ``as_table`` reads.
            quasi: What others may know of a person; a mapping gives columns their hierarchies, or None.
            sensitive: What nobody should learn of a person: kept as it is, and what ``models`` speak about.
            identifying: Columns to remove.
            insensitive: Columns to keep that are neither known nor harmful.
            k: Short for the model ``KAnonymity(k)``: how many rows must look alike at least.
            models: What every class of rows must satisfy, besides ``k``.
            weights: How much a quasi-identifier's detail matters; 1 where none is given.
            suppression: The most rows that may be left out, as a share from 0 to 1.

        Raises:
            InvalidParameter: If the columns and models contradict each other or the table, or protect nobody.

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


def configured(table: pa.Table, configuration: Configuration | None, **keywords: Any) -> Configuration:
    """The configuration that was given, or the one of the keywords of ``Configuration.of``; checked, and never both."""
    if configuration is None:
        return Configuration.of(table, **keywords)
    if any(value is not None if name == "k" else value for name, value in keywords.items()):
        raise InvalidParameter("give a configuration or keywords such as quasi=[…], k=…, not both")
    configuration.check(table)
    return configuration


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
