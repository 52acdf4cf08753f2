"""The policy: the public facts and the budget that the owner states once, in one file."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from dither.brief import brief
from dither.errors import InvalidPolicy, Refused
from dither.policy.budget import Analyst, Budget
from dither.policy.findings import PolicyFinding
from dither.policy.reading import FILE, PolicyReading, read
from dither.policy.source import PolicySource, name_problem
from dither.privacy.unit import Unit
from dither.query.kinds import Auto, Interval, Value
from dither.query.schema import ColumnFacts, Schema, TableFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What may be asked, about whom, and how much may be lost: a ``dither.toml`` without mistakes.

    ``warnings`` are what the owner should know although the policy can be used. ``reading`` remembers the lines.

    Example:
        >>> policy = Policy.parse('''
        ... [source]
        ... database = "shop.duckdb"
        ... [budget]
        ... epsilon_budget = 3.0
        ... analysts = "any"
        ... [tables.orders]
        ... private = true
        ... privacy_unit_column = "user_id"
        ... columns.user_id = { type = "integer" }
        ... ''', base=Path("data"))
        >>> policy.source.database.as_posix(), policy.budget.epsilon_budget
        ('data/shop.duckdb', Fraction(3, 1))
        >>> print(policy.unit_statement())
        each "user_id" of table "orders"; against adding or removing all rows of one unit (add_remove)
    """

    schema: Schema
    source: PolicySource
    budget: Budget
    analysts: Mapping[str, Analyst]
    warnings: tuple[PolicyFinding, ...] = ()
    reading: PolicyReading = field(repr=False, compare=False)

    __repr__ = brief

    def __post_init__(self) -> None:
        object.__setattr__(self, "analysts", MappingProxyType(dict(self.analysts)))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The policy in a file; raises InvalidPolicy with every problem. Reads nothing but this file.

        Args:
            path: Of the policy, a TOML file.
        """
        return cls.of(read_file(path))

    @classmethod
    def parse(cls, text: str, base: str | Path = ".") -> Self:
        """The policy in a text; paths in it are relative to ``base``.

        Args:
            text: A policy as TOML.
            base: The folder that paths in it are relative to.
        """
        return cls.of(read(text, Path(base)))

    @classmethod
    def of(cls, reading: PolicyReading) -> Self:
        """The policy that was read; raises InvalidPolicy if there is anything to mend.

        Args:
            reading: What ``read_file`` found.
        """
        if reading.errors:
            raise InvalidPolicy([str(problem) for problem in reading.errors])
        assert reading.source is not None
        assert reading.budget is not None
        tables: dict[str, TableFacts] = {}
        for name, table in reading.tables.items():
            # a table without facts would be a table without a unit: never believe that silently
            assert table.facts is not None
            tables[name] = table.facts
        return cls(
            schema=Schema(tables, reading.adjacency),
            source=reading.source,
            budget=reading.budget,
            analysts=reading.analysts,
            warnings=reading.findings,
            reading=reading,
        )

    def __reduce__(self) -> tuple[object, ...]:
        # another process reads the same text; one that was changed since by hand has no text that says so
        if Policy.of(self.reading) != self:
            raise TypeError("a policy that isn't what its file says can't be sent to another process: write it down")
        return _read_again, (self.reading.text, self.reading.base, self.reading.file)

    def analyst(self, name: str) -> Analyst:
        """What an analyst may lose; raises Refused if the policy doesn't let this name ask.

        Args:
            name: Who would ask.
        """
        normal = unicodedata.normalize("NFC", name)
        if normal in self.analysts:
            return self.analysts[normal]
        if self.budget.analysts == "any" and name_problem(normal) is None:
            return Analyst(
                name=normal,
                epsilon_budget=None,
                delta_budget=None,
                max_epsilon_per_query=self.budget.max_epsilon_per_query,
                needs_approval_above=self.budget.needs_approval_above,
            )
        raise Refused(
            "this analyst may not ask: the policy doesn't list the name",
            code="unknown_analyst",
            hint="Ask under a listed name, or let the owner of the data add a section [analysts.NAME] to the policy.",
        )

    def fingerprint(self) -> str:
        """A hash of everything that affects privacy or answers: tables, units, bounds, keys, adjacency, rounding.

        Budgets and analysts are not part of it: raising a budget doesn't make a recorded answer another one.
        """
        form = {
            "adjacency": self.schema.adjacency.value,
            "round_answer_time_up_to": str(self.budget.round_answer_time_up_to),
            "tables": {name: _table_form(table) for name, table in self.schema.tables.items()},
        }
        canonical = json.dumps(form, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(canonical.encode("ascii")).hexdigest()

    def unit_level(self) -> str:
        """At which level units are protected: what a ledger is kept for.

        Tables may be added later, so the ledger isn't tied to their names; each charge records ``unit_statement``.
        """
        levels = {
            "row" if table.unit_column is None else "id" for table in self.schema.tables.values() if table.private
        }
        return {"row": "each row", "id": "each id", "idrow": "each id or row"}["".join(sorted(levels))]

    def units(self) -> dict[str, Unit]:
        """The unit of each private table: what a ledger is bound to."""
        tables = self.schema.tables.items()
        return {
            name: Unit(() if table.unit_column is None else (table.unit_column,))
            for name, table in tables
            if table.private
        }

    def unit_statement(self) -> str:
        """Who is protected, table by table, and against what."""
        units = []
        for name, table in sorted(self.schema.tables.items()):
            if table.private:
                # in quotes, so that no name can imitate another statement
                unit = "row" if table.unit_column is None else json.dumps(table.unit_column)
                units.append(f"each {unit} of table {json.dumps(name)}")
        adjacency = self.schema.adjacency
        return f"{', '.join(units)}; against {adjacency.sentence} ({adjacency.value})"


def _read_again(text: str, base: Path, file: str) -> Policy:
    return Policy.of(read(text, base, file))


def read_file(path: str | Path) -> PolicyReading:
    """Read a policy file as far as it goes, for ``dither check``; raises InvalidPolicy if there is no such file."""
    place = Path(path)
    try:
        data = place.read_bytes()
    except (OSError, ValueError):
        raise InvalidPolicy(
            [f"{place}: this file can't be read. Name another, or write one: dither init shop.duckdb"]
        ) from None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        raise InvalidPolicy([f"{place.name}, line {line}: this isn't UTF-8. Save the file as UTF-8."]) from None
    return read(text.removeprefix("\ufeff"), place.parent, place.name or FILE)


def _table_form(table: TableFacts) -> dict[str, Any]:
    # named only where it is stated, so that the policies of before keep their fingerprints
    stated = {} if table.rows_at_most is None else {"rows_at_most": table.rows_at_most}
    return stated | {
        "private": table.private,
        "unit_column": table.unit_column,
        "groups": "auto" if table.auto_groups else table.groups,
        "rows": "auto" if table.auto_rows else table.rows,
        "unique": sorted(sorted(columns) for columns in table.unique),
        "columns": {name: _column_form(column) for name, column in table.columns.items()},
    }


def _column_form(column: ColumnFacts) -> dict[str, Any]:
    between: Any = None
    if isinstance(column.between, Interval):
        between = [str(column.between.low), str(column.between.high)]
    elif isinstance(column.between, Auto):
        between = column.between.value
    return {
        "kind": column.kind.value,
        "between": between,
        "step": None if column.step is None else str(column.step),
        "keys": None if column.keys is None else [_key_form(key) for key in column.keys],
        "hidden": column.hidden,
    }


def _key_form(key: Value) -> Any:
    if isinstance(key, float):
        return key.hex()
    if isinstance(key, dt.date):
        return key.isoformat()
    return str(key) if isinstance(key, Fraction) else key
