"""Joins that keep every row with one unit.

A private relation with a public one: each result row has the left row's unit, whatever the condition. Two private ones
on the unit: both rows have the same unit. Anything else would give a row to two units or to none, and is refused. Where
the row is the unit, a join must not copy it: its equalities must cover a unique key of the public table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from dither.query.expressions.calendar_keys import or_null
from dither.query.expressions.functions import Typed, apply
from dither.query.expressions.public_values import with_null
from dither.query.kinds import Call, Column, Expression, columns
from dither.query.plan.plan import FilterRows, JoinKind, JoinRows, Relation, Scan, Union
from dither.query.refusals import only, refused
from dither.query.schema import TableFacts
from dither.query.sql.names import NamedSource, Rows, find_column
from dither.query.sql.scalars import Scalars, balanced, flattened, typed

MOST_JOINS = 6
_ON_UNIT = "Join private tables ON a.unit = b.unit, with the unit columns of both"


def check_units(left: Rows, right: Rows) -> None:
    """Refuse two private relations whose units aren't the same."""
    if left.units != right.units:
        hint = "Ask about them separately"
        raise refused("units_mixed", "one of the tables is protected row by row, the other by a unit column", hint)
    kinds = {_unit_kind(table) for table in (*left.tables, *right.tables)}
    if len(kinds) > 1:
        raise refused("units_mixed", "the unit columns of the tables have different types", "Ask about them separately")


def _unit_kind(table: TableFacts) -> object:
    return None if table.unit_column is None else table.columns[table.unit_column].kind


@dataclass(frozen=True, slots=True, kw_only=True)
class _Conditions:
    on_unit: bool
    rest: tuple[Typed, ...]
    shadowed: frozenset[str]


def joined(
    left: Rows, right: Rows, node: exp.Join, where: Sequence[exp.Expr], scalars: Callable[[Rows], Scalars]
) -> Rows:
    """The join that a node asks for; ``where`` are the conditions after WHERE, for joins written with commas."""
    only(node, "this", "side", "kind", "on", "using")
    side, kind = node.args.get("side") or "", node.args.get("kind") or ""
    if side == "FULL" or kind not in ("", "INNER", "OUTER", "CROSS") or side not in ("", "LEFT", "RIGHT"):
        hint = "Use INNER or LEFT JOIN; for semi joins IN (SELECT …)"
        raise refused("join", f"{(side + ' ' + kind).strip()} JOIN isn't supported", hint)
    if not left.private and not right.private:
        raise refused("join", "two public tables can't be joined with each other", "Begin FROM with the private table")
    names = {source.alias.lower() for source in left.sources} & {source.alias.lower() for source in right.sources}
    if names:
        raise refused("ambiguous", "two parts of FROM have the same name", "Give each an alias")
    both = replace(left, sources=left.sources + right.sources)
    first, second = (right, left) if side == "RIGHT" or (not side and not left.private) else (left, right)
    outer = side in ("LEFT", "RIGHT")
    if not first.private:
        hint = "Put the private table on the side that keeps all rows"
        raise refused("join", "rows of a public table without a match would belong to no unit", hint)
    if second.private:
        check_units(first, second)
    conditions = _conditions(first, second, both, node, where, scalars)
    if second.private:
        _check_private(first, on_unit=conditions.on_unit)
    elif first.units == "row":
        _check_unique(second, conditions.rest)
    rest = list(conditions.rest)
    relation: Relation = JoinRows(
        left=first.relation,
        right=second.relation,
        kind=JoinKind.LEFT if outer else JoinKind.INNER,
        on_unit=second.private,
        condition=balanced("and", rest).expression if rest else None,
    )
    if copies(relation) > MOST_JOINS:
        raise refused("join", f"a question may join at most {MOST_JOINS} times", "Aggregate per unit before joining")
    seen = {source.alias: _right_source(source, conditions.shadowed, outer=outer) for source in second.sources}
    sources = tuple(seen.get(source.alias, source) for source in both.sources)
    return Rows(relation=relation, sources=sources, units=first.units, tables=(*first.tables, *second.tables))


def copies(relation: Relation) -> int:
    """How many joins that can copy rows lie on one way through a relation.

    Each may multiply the work by the rows of a unit or of a public table, so that time would tell who is there.
    """
    if isinstance(relation, JoinRows):
        both = copies(relation.left), copies(relation.right)
        return sum(both) + 1 if relation.kind in (JoinKind.INNER, JoinKind.LEFT) else max(both)
    if isinstance(relation, Union):
        return max(copies(each) for each in relation.inputs)
    return 0 if isinstance(relation, Scan) else copies(relation.input)


def _right_source(source: NamedSource, shadowed: frozenset[str], *, outer: bool) -> NamedSource:
    result = []
    for visible in source.columns:
        field = visible.field
        if field is not None and outer:
            # without a match the column is NULL: a value of its own, and not the unit's id any more
            field = replace(field, unit=False, facts=or_null(replace(field.facts, keys=with_null(field.facts.keys))))
        hidden = visible.shadowed or (visible.field is not None and visible.field.name in shadowed)
        result.append(replace(visible, field=field, shadowed=hidden))
    return replace(source, columns=tuple(result))


def _conditions(
    first: Rows,
    second: Rows,
    both: Rows,
    node: exp.Join,
    where: Sequence[exp.Expr],
    scalars: Callable[[Rows], Scalars],
) -> _Conditions:
    units = first.unit_names, second.unit_names
    on, using = node.args.get("on"), node.args.get("using")
    rest: list[Typed] = []
    shadowed: set[str] = set()
    on_unit = False
    if using:
        for identifier in using:
            name = identifier.this if isinstance(identifier, exp.Column) else identifier
            column = exp.Column(this=name)
            a, b = find_column(column, first.sources), find_column(column, second.sources)
            shadowed.add(b.name)
            if second.private and a.name in units[0] and b.name in units[1]:
                on_unit = True
            else:
                rest.append(apply("equal", (typed(a), typed(b))))
    elif on is not None:
        binder = scalars(both)
        for part in flattened(on, exp.And):
            bound = binder.predicate(part)
            if second.private and _equates(bound.expression, *units):
                on_unit = True
            else:
                rest.append(bound)
    elif second.private:
        # FROM a, b WHERE a.unit = b.unit
        binder = scalars(both)
        on_unit = any(_equates(_maybe(binder, part), *units) for part in where if isinstance(part, exp.EQ))
    elif node.args.get("side"):
        raise refused("join", "a LEFT JOIN needs ON or USING")
    return _Conditions(on_unit=on_unit, rest=tuple(rest), shadowed=frozenset(shadowed))


def _maybe(binder: Scalars, part: exp.Expr) -> Expression | None:
    # WHERE may name tables that join later; it is bound in full afterwards
    if not all(isinstance(operand, exp.Column) for operand in (part.this, part.args.get("expression"))):
        return None
    try:
        return binder.bind(part).expression
    except ValueError:
        return None


def _equates(expression: Expression | None, left: frozenset[str], right: frozenset[str]) -> bool:
    if not isinstance(expression, Call) or expression.function != "equal":
        return False
    names = [argument.name for argument in expression.arguments if isinstance(argument, Column)]
    return len(names) == 2 and any(a in left and b in right for a, b in (names, names[::-1]))


def _check_private(first: Rows, *, on_unit: bool) -> None:
    if first.units == "row":
        hint = "Only joins with public tables are answered where every row is protected by itself"
        raise refused("row_level", "a row could take part in many rows of this join", hint)
    if not on_unit:
        raise refused("join", "rows of different units would be joined", _ON_UNIT)


def _check_unique(public: Rows, conditions: Sequence[Typed]) -> None:
    fields = {field.name for field in public.relation.fields}
    covered = set()
    for condition in conditions:
        expression = condition.expression
        if isinstance(expression, Call) and expression.function == "equal":
            for here, there in (expression.arguments, expression.arguments[::-1]):
                # of mixed kinds one value may equal several different ones
                same = here.kind is there.kind and not columns(there) & fields
                if isinstance(here, Column) and here.name in fields and same:
                    covered.add(here.name)
    if not any(key <= covered for key in public.unique):
        hint = "Join on columns that the policy declares as unique for the public table, or use IN (SELECT …)"
        raise refused("row_level", "this join could copy a row, which is the protected unit", hint)


def kept_if_in(rows: Rows, value: Typed, right: Rows, *, negated: bool) -> Rows:
    """Rows whose value is, or isn't, in the one column of another relation; that can't copy a row."""
    visible = [column for source in right.sources for column in source.columns]
    if len(visible) != 1 or visible[0].field is None:
        raise refused("subquery", "the subquery after IN needs exactly one column")
    target = visible[0].field
    kind = JoinKind.ANTI if negated else JoinKind.SEMI
    if right.private:
        check_units(rows, right)
        if rows.units == "row":
            hint = "Only public tables can be looked up where every row is protected by itself"
            raise refused("row_level", "one row could decide about many others", hint)
        own = isinstance(value.expression, Column) and value.expression.name in rows.unit_names
        if not own or not target.unit:
            hint = "Write unit IN (SELECT unit FROM …), with the unit columns of both"
            raise refused("subquery", "rows of one unit would decide about those of others", hint)
        relation = JoinRows(left=rows.relation, right=right.relation, kind=kind, on_unit=True, condition=None)
        return replace(rows, relation=relation, tables=(*rows.tables, *right.tables))
    condition = apply("equal", (value, typed(target))).expression
    left = rows.relation
    if negated:
        # NULL NOT IN (…) is never true; NULLs of the public list are ignored
        left = FilterRows(input=left, predicate=apply("is_not_null", (value,)).expression)
    return replace(
        rows, relation=JoinRows(left=left, right=right.relation, kind=kind, on_unit=False, condition=condition)
    )
