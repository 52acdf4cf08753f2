"""Names in the text and what they stand for: tables of the schema, columns in scope."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal as OneOf, TypeAlias

from sqlglot import exp

from dither.query.expressions.expressions import Column
from dither.query.expressions.functions import Typed
from dither.query.expressions.public_values import ascending, whole_numbers
from dither.query.expressions.ranges import number
from dither.query.kinds import Auto, Facts, Interval, Kind, Value
from dither.query.plan.plan import Field, Relation
from dither.query.refusals import name_shown, refused
from dither.query.schema import ColumnFacts, Schema, TableFacts

Units: TypeAlias = OneOf["row", "column"]
_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def folded(name: str) -> str:
    """Lower case in ASCII only: look-alike letters that other foldings would merge stay different."""
    return name.lower() if name.isascii() else name.translate(_LOWER)


def same_name(identifier: exp.Identifier | str, name: str) -> bool:
    """Whether an identifier names this: exactly if quoted, in any letter case if not."""
    if isinstance(identifier, str):
        return folded(identifier) == folded(name)
    text = str(identifier.this)
    return text == name if identifier.args.get("quoted") else folded(text) == folded(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Visible:
    """A column that may be named: its label and where it is in the plan; no field if the owner hides it.

    ``shadowed`` columns can be named with their table only (the right side of USING).
    """

    label: str
    field: Field | None
    shadowed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A table, subquery or named subquery after FROM, under its alias."""

    alias: str
    columns: tuple[Visible, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A relation with what may be named in it.

    ``units`` is None if it is public. ``tables`` are the private tables read, one entry for each time.
    ``unique`` are sets of plan names of which a public relation holds every combination once.
    """

    relation: Relation
    sources: tuple[Source, ...]
    units: Units | None
    tables: tuple[TableFacts, ...] = ()
    unique: tuple[frozenset[str], ...] = ()

    @property
    def private(self) -> bool:
        """Whether rows belong to units."""
        return self.units is not None


def typed(field: Field) -> Typed:
    """The expression that reads a field."""
    return Typed(Column(field.name, field.kind), field.facts)


def find_table(node: exp.Table, schema: Schema) -> TableFacts:
    """The table of the schema that the text names."""
    parts = [part for part in (node.args.get("catalog"), node.args.get("db"), node.this) if part]
    if not all(isinstance(part, exp.Identifier) for part in parts):
        raise refused(
            "table_function", "only tables of the policy can be read", "Name a table; functions can't stand after FROM"
        )
    names = [str(part.this) for part in parts]
    quoted = any(part.args.get("quoted") for part in parts)
    wanted = ".".join(names)
    if wanted in schema.tables:
        return schema.tables[wanted]
    found = [] if quoted else [table for name, table in schema.tables.items() if folded(name) == folded(wanted)]
    if len(found) == 1:
        return found[0]
    if found:
        raise refused("ambiguous", f"{name_shown(wanted)} could be several tables", "Quote the name as it is declared")
    known = ", ".join(sorted(schema.tables)) or "none"
    raise refused("unknown_table", f"there is no table {name_shown(wanted)} in the policy", f"Tables are: {known}")


def find_column(node: exp.Column, sources: Sequence[Source]) -> Field:
    """The field that the text names; refused if there is none, several, or if the owner hides it."""
    identifier, table = node.this, node.args.get("table")
    if node.args.get("db") or node.args.get("catalog") or not isinstance(identifier, exp.Identifier):
        raise refused("unknown_column", "a column is named by its table's alias and its name", "Write alias.column")
    among = [source for source in sources if table is None or same_name(table, source.alias)]
    if table is not None and not among:
        raise refused("unknown_table", f"{name_shown(table.name)} isn't the name of anything after FROM")
    found = [
        visible
        for source in among
        for visible in source.columns
        if same_name(identifier, visible.label) and not (table is None and visible.shadowed)
    ]
    exact = [visible for visible in found if visible.label == identifier.this]
    found = exact if len(found) > 1 and len(exact) == 1 else found
    shown = name_shown(str(identifier.this))
    if not found:
        raise refused("unknown_column", f"there is no column {shown} here", _columns_hint(among))
    if len(found) > 1:
        raise refused("ambiguous", f"{shown} could be several columns", "Write alias.column")
    if found[0].field is None:
        raise refused("hidden_column", f"the owner hides the column {shown}", "Ask without it")
    return found[0].field


def _columns_hint(sources: Sequence[Source]) -> str:
    names = [visible.label for source in sources for visible in source.columns if visible.field is not None]
    return f"Columns are: {', '.join(dict.fromkeys(names))}" if names and len(names) <= 50 else ""


def column_facts(table: TableFacts, column: ColumnFacts) -> Facts:
    """What follows from the owner's declaration of a column."""
    bounds: Interval | None = None
    auto: frozenset[tuple[str, str]] = frozenset()
    step = column.step if column.kind.number else None
    keys = None if column.keys is None else ascending(_of_kind(value, column.kind) for value in column.keys)
    if column.kind.number:
        if column.between is Auto.AUTO or column.searched:
            auto = frozenset({(table.name, column.name)})
        if isinstance(column.between, Interval):
            bounds = column.between
        elif keys is not None and not auto:
            numbers = [value for key in keys if (value := number(key)) is not None]
            bounds = Interval(min(numbers), max(numbers)) if numbers else None
    if column.kind is Kind.INTEGER:
        step = step if step is not None and step.denominator == 1 else Fraction(1)
        if keys is None and not auto and column.name != table.unit_column:
            keys = whole_numbers(bounds, step, column.kind)
    if column.kind is Kind.BOOLEAN and keys is None:
        keys = (False, True)
    return Facts(bounds=bounds, step=step, keys=keys, auto=auto)


def _of_kind(value: Value, kind: Kind) -> Value:
    if isinstance(value, bool) or value is None:
        return value
    if kind is Kind.DOUBLE and isinstance(value, int | float | Fraction):
        return float(value)
    if kind is Kind.INTEGER and isinstance(value, float | Fraction) and Fraction(value).denominator == 1:
        return int(value)
    return value


def relabelled(rows: Rows, alias: exp.TableAlias | None, name: str) -> Rows:
    """The same rows as one source, under the alias and column names that the text gives them."""
    columns = tuple(visible for source in rows.sources for visible in source.columns)
    label = name
    if alias is not None:
        if alias.this is not None:
            label = str(alias.this.this)
        given = alias.args.get("columns") or []
        if len(given) > len(columns):
            raise refused("unknown_column", "more column names are given than there are columns")
        renamed = [replace(visible, label=str(i.name)) for visible, i in zip(columns, given, strict=False)]
        columns = (*renamed, *columns[len(given) :])
    return replace(rows, sources=(Source(alias=label, columns=columns),))
