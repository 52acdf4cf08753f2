"""Names of the text: the tables and columns that they mean, where an unknown one is refused with what there is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal as OneOf, TypeAlias

from sqlglot import exp

from dither.errors import Refused, did_you_mean
from dither.query.plan.plan import PlanField, Relation
from dither.query.refusals import name_shown, refused
from dither.query.schema import Schema, TableFacts

Units: TypeAlias = OneOf["row", "column"]
MOST_LISTED = 50
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
    field: PlanField | None
    shadowed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedSource:
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
    sources: tuple[NamedSource, ...]
    units: Units | None
    tables: tuple[TableFacts, ...] = ()
    unique: tuple[frozenset[str], ...] = ()

    @property
    def private(self) -> bool:
        """Whether rows belong to units."""
        return self.units is not None

    @property
    def unit_names(self) -> frozenset[str]:
        """The plan's names of the unit's own id."""
        visible = (each for source in self.sources for each in source.columns)
        return frozenset(each.field.name for each in visible if each.field is not None and each.field.unit)


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
    listed = f"Tables are: {', '.join(sorted(schema.tables)) or 'none'}"
    hint = _meant(wanted, schema.tables, listed)
    raise refused("unknown_table", f"there is no table {name_shown(wanted)} in the policy", hint)


def find_column(node: exp.Column, sources: Sequence[NamedSource]) -> PlanField:
    """The field that the text names; refused if there is none, several, or if the owner hides it.

    Where another meaning is left, ask ``names_column`` first: a refusal looks for what was meant, which takes time.
    """
    identifier, table = node.this, node.args.get("table")
    if node.args.get("db") or node.args.get("catalog") or not isinstance(identifier, exp.Identifier):
        raise refused("unknown_column", "a column is named by its table's alias and its name", "Write alias.column")
    among = [source for source in sources if table is None or same_name(table, source.alias)]
    if table is not None and not among:
        raise unknown_alias(table.name, [source.alias for source in sources])
    found = _of_this_name(node, sources)
    exact = [visible for visible in found if visible.label == identifier.this]
    found = exact if len(found) > 1 and len(exact) == 1 else found
    shown = name_shown(str(identifier.this))
    if not found:
        names = [visible.label for source in among for visible in source.columns if visible.field is not None]
        raise unknown_column(str(identifier.this), names)
    if len(found) > 1:
        raise refused("ambiguous", f"{shown} could be several columns", "Write alias.column")
    if found[0].field is None:
        raise refused("hidden_column", f"the owner hides the column {shown}", "Ask without it")
    return found[0].field


def names_column(node: exp.Column, sources: Sequence[NamedSource]) -> bool:
    """Whether the text names a column: one, several, or one that the owner hides."""
    return isinstance(node.this, exp.Identifier) and bool(_of_this_name(node, sources))


def _of_this_name(node: exp.Column, sources: Sequence[NamedSource]) -> list[Visible]:
    table = node.args.get("table")
    return [
        visible
        for source in sources
        if table is None or same_name(table, source.alias)
        for visible in source.columns
        if same_name(node.this, visible.label) and not (table is None and visible.shadowed)
    ]


def unknown_column(name: str, known: Sequence[str]) -> Refused:
    """The refusal of a name that no column has; ``known`` are the columns that may be told, hidden ones aren't."""
    listed = f"Columns are: {', '.join(dict.fromkeys(known))}" if known and len(known) <= MOST_LISTED else ""
    return refused("unknown_column", f"there is no column {name_shown(name)} here", _meant(name, known, listed))


def unknown_alias(name: str, known: Iterable[str]) -> Refused:
    """The refusal of what stands before a column's point and isn't one of the names after FROM."""
    reason = f"{name_shown(name)} isn't the name of anything after FROM"
    return refused("unknown_table", reason, _meant(name, known, ""))


def _meant(name: str, known: Iterable[str], listed: str) -> str:
    near = did_you_mean(name, known)
    parts = ["" if near is None else f"Did you mean {name_shown(near)}?", listed]
    return " ".join(part for part in parts if part)


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
    return replace(rows, sources=(NamedSource(alias=label, columns=columns),))
