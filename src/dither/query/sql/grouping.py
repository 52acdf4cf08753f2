"""SELECT with GROUP BY or aggregates over private rows: per unit if it groups by the unit, else over all units.

The private aggregation is where data becomes an answer. Its keys are public or must be discovered; its contribution is
the strictest of what the tables and the question allow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from sqlglot import exp

from dither.errors import Refused
from dither.query.expressions.expressions import Call, Column, Expression, Literal
from dither.query.expressions.functions import Typed, adapt, apply, literal
from dither.query.kinds import NOTHING, Kind
from dither.query.plan.plan import (
    Aggregation,
    Distinct,
    Field,
    Filter,
    InnerAggregate,
    Join,
    JoinKind,
    Key,
    Ordering,
    PerUnit,
    Project,
    Relation,
    Window,
)
from dither.query.refusals import only, placed, refused
from dither.query.sql.aggregates import PrivateAggregates
from dither.query.sql.calls import INTERVALS, AggregateCall, aggregate_call, has_aggregate, has_window, one_by_one
from dither.query.sql.joins import unit_names
from dither.query.sql.names import Rows, Source, Visible, find_column, same_name, typed
from dither.query.sql.options import Selection, clause
from dither.query.sql.per_unit import inner_aggregate
from dither.query.sql.released import Named, Released, interval_end, label_of, limits, ordinal
from dither.query.sql.scalars import Scalars, call_name

MOST_GROUPS = 1_000_000
MOST_KEYS = 50


class Binder(Protocol):
    """What grouping needs of the binder of the whole question."""

    text: str

    def fresh(self) -> str:
        """A name that the plan hasn't used."""

    def origin(self, name: str) -> tuple[str, str] | None:
        """The table and column that a name of the plan reads."""

    def scalars(self, rows: Rows) -> Scalars:
        """For expressions over the columns of single rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    """An item of the select list as written, with the name that it gives to its column."""

    label: str
    alias: exp.Identifier | None
    node: exp.Expr


def grouped(binder: Binder, rows: Rows, node: exp.Select) -> Rows | Released:
    """What a SELECT with groups or aggregates gives."""
    if not rows.private:
        hint = "Aggregates are answered over private tables: what is public needs no noise"
        raise refused("public_only", "this part of the question aggregates a public table", hint)
    if node.args.get("qualify") is not None or any(has_window(item) for item in node.expressions):
        raise refused("window", "windows can't stand beside aggregates", "Use them in a subquery")
    return _Grouping(binder, rows, node).bind()


class _Grouping:
    def __init__(self, binder: Binder, rows: Rows, node: exp.Select) -> None:
        self._binder, self._rows, self._node = binder, rows, node
        self._plain = binder.scalars(rows)
        self._units = unit_names(rows)
        self._items = self._select_items()
        self._keys = self._group_keys()
        self._aggregate: Callable[[AggregateCall], Typed] = self._unset
        self._results: set[Expression] = set()

    def bind(self) -> Rows | Released:
        if self._rows.units == "column" and any(_is_unit(key, self._units) for key in self._keys):
            return self._per_unit()
        return self._private()

    # the select list and the keys

    def _select_items(self) -> list[_Item]:
        labels = [Named(label=v.label, value=_NO_VALUE) for s in self._rows.sources for v in s.columns]
        items = []
        for position, item in enumerate(self._node.expressions):
            inner = item.this if isinstance(item, exp.Column) else item
            if isinstance(inner, exp.Star):
                hint = "Name the columns and aggregates that you want"
                raise placed(refused("rows_shown", "* would show rows", hint), item, self._binder.text)
            alias = item.args["alias"] if isinstance(item, exp.Alias) else None
            inner = item.this if isinstance(item, exp.Alias) else item
            label, parts = label_of(item, position, labels), one_by_one(inner)
            items += [_Item(label=label + end, alias=alias if not end else None, node=each) for end, each in parts]
        return items

    def _group_keys(self) -> list[Typed]:
        group = self._node.args.get("group")
        if group is None:
            if self._node.args.get("distinct") is None:
                return []
            return self._unique([self._plain.bind(item.node) for item in self._items])
        only(group, "expressions", "all")
        if group.args.get("all"):
            return self._unique([self._plain.bind(i.node) for i in self._items if not has_aggregate(i.node)])
        return self._unique([self._group_key(each) for each in group.expressions])

    def _unique(self, keys: list[Typed]) -> list[Typed]:
        if len(keys) > MOST_KEYS:
            raise refused("too_long", f"a question may have at most {MOST_KEYS} group keys")
        result: list[Typed] = []
        for key in keys:
            if not any(key.expression == other.expression for other in result):
                result.append(key)
        return result

    def _group_key(self, node: exp.Expr) -> Typed:
        try:
            while isinstance(node, exp.Paren):
                node = node.this
            place = ordinal(node, len(self._items))
            if place is not None:
                return self._key_of_item(self._items[place])
            if isinstance(node, exp.Literal | exp.Null | exp.Boolean):
                raise refused("unsupported", "a constant can't be a group key")
            if isinstance(node, exp.Rollup | exp.Cube | exp.GroupingSets | exp.Tuple):
                hint = "Ask one question for each set of keys"
                raise refused("unsupported", "ROLLUP, CUBE and GROUPING SETS aren't supported", hint)
            try:
                return self._plain.bind(node)
            except Refused as error:
                named = self._aliased(node)
                if error.code != "unknown_column" or named is None:
                    raise
                return self._key_of_item(named)
        except Refused as error:
            raise placed(error, node, self._binder.text) from None

    def _key_of_item(self, item: _Item) -> Typed:
        if has_aggregate(item.node):
            raise refused("aggregate", "an aggregate can't be a group key")
        return self._plain.bind(item.node)

    def _aliased(self, node: exp.Expr) -> _Item | None:
        if not isinstance(node, exp.Column) or node.args.get("table") is not None:
            return None
        found = [item for item in self._items if item.alias is not None and same_name(node.this, item.alias.name)]
        return found[0] if len(found) == 1 else None

    # expressions over keys and aggregates

    def _unset(self, call: AggregateCall) -> Typed:
        raise AssertionError(call.name)

    def _over_groups(self, names: list[str], *, aliases: bool) -> Callable[[exp.Expr], Typed]:
        """A binder of expressions over group keys (under these names) and aggregates."""
        keys = {key.expression: Column(name, key.kind) for key, name in zip(self._keys, names, strict=True)}

        def column(node: exp.Column) -> Typed:
            try:
                return typed(find_column(node, self._rows.sources))
            except Refused as error:
                item = self._aliased(node) if aliases and error.code == "unknown_column" else None
                if item is None:
                    raise
                return scalars.bind(item.node)

        def special(node: exp.Expr) -> Typed | None:
            if isinstance(node, exp.Anonymous) and call_name(node) in INTERVALS:
                return self._interval(node, scalars)
            call = aggregate_call(node)
            return None if call is None else self._made(self._aggregate(call))

        scalars = Scalars(self._binder.text, column=column, special=special)

        def bind(node: exp.Expr) -> Typed:
            bound = scalars.bind(node)
            try:
                expression = _with_keys(bound.expression, keys, self._results)
            except Refused as error:
                raise placed(error, node, self._binder.text) from None
            return Typed(expression, NOTHING)

        return bind

    def _interval(self, node: exp.Anonymous, scalars: Scalars) -> Typed:
        if len(node.expressions) != 1:
            raise refused("types", f"{node.name.upper()} needs one argument")
        argument = node.expressions[0]
        item = self._aliased(argument)
        return self._made(interval_end(node, scalars.bind(argument if item is None else item.node)))

    def _made(self, value: Typed) -> Typed:
        self._results.add(value.expression)
        return value

    # per unit

    def _per_unit(self) -> Rows:
        if self._node.args.get("hint") is not None:
            hint = "Write the clause after the outer SELECT"
            raise refused("options", "the privacy clause belongs to the aggregation over units", hint)
        if self._node.args.get("limit") is not None or self._node.args.get("offset") is not None:
            raise refused("limit", "LIMIT would choose among units", "Aggregate over the units first")
        rows, found = self._rows, list[tuple[InnerAggregate, Field]]()

        def aggregate(call: AggregateCall) -> Typed:
            inner, kind, facts = inner_aggregate(call, self._plain)
            for known, field in found:
                if known == inner:
                    return typed(field)
            found.append((inner, Field(name=self._binder.fresh(), kind=kind, facts=facts)))
            return typed(found[-1][1])

        self._aggregate = aggregate
        keys = tuple(
            Field(name=self._binder.fresh(), kind=k.kind, facts=k.facts, unit=_is_unit(k, self._units))
            for k in self._keys
        )
        facts = {key.name: key for key in keys}
        bind = self._over_groups([key.name for key in keys], aliases=True)
        values = [bind(item.node) for item in self._items]
        having = self._node.args.get("having")
        predicate = None if having is None else _boolean(bind(having.this))
        facts |= {field.name: field for _, field in found}
        relation: PerUnit | Filter | Project = PerUnit(
            input=rows.relation,
            keys=tuple(key.expression for key in self._keys),
            aggregates=tuple(inner for inner, _ in found),
            fields=(*keys, *(field for _, field in found)),
        )
        if predicate is not None:
            relation = Filter(input=relation, predicate=predicate)
        fields = []
        for value in values:
            source = facts.get(value.expression.name) if isinstance(value.expression, Column) else None
            known = _derived_again(value.expression, facts)
            unit = source is not None and source.unit
            fields.append(Field(name=self._binder.fresh(), kind=value.kind, facts=known.facts, unit=unit))
        project = Project(input=relation, expressions=tuple(v.expression for v in values), fields=tuple(fields))
        visible = tuple(Visible(label=i.label, field=f) for i, f in zip(self._items, fields, strict=True))
        return replace(rows, relation=project, sources=(Source(alias="", columns=visible),))

    # the private aggregation

    def _private(self) -> Released:
        rows, tables = self._rows, self._rows.tables
        for key in self._keys:
            if _is_unit(key, self._units):
                raise refused("unit_shown", "the privacy unit can't be a group of the answer")
        stated = clause(self._node.args.get("hint"), tables)
        keys = tuple(Key(expression=k.expression, kind=k.kind, values=k.facts.keys) for k in self._keys)
        discover = any(key.values is None for key in keys) or stated.selection is Selection.LAPLACE_THRESHOLD
        discover = discover and bool(keys)
        if stated.selection is Selection.PUBLIC_GROUPS:
            self._check_public(keys)
        size = math.prod(len(key.values) for key in keys if key.values is not None)
        if size > MOST_GROUPS:
            hint = "Group by fewer keys, or by coarser ones"
            raise refused("too_many_groups", f"there would be more than {MOST_GROUPS} public groups", hint)
        groups = min([*(table.groups for table in tables), *([] if stated.groups is None else [stated.groups])])
        count = min([*(table.rows for table in tables), *([] if stated.rows is None else [stated.rows])])
        if rows.units == "row" or one_row_each(rows.relation):
            groups = count = 1
        elif all(key.values is not None for key in keys):
            groups = min(groups, size)
        collected = PrivateAggregates(
            text=self._binder.text, scalars=self._plain, units=self._units, rows=count, origin=self._binder.origin
        )
        self._aggregate = collected.column
        bind = self._over_groups([f"k{i}" for i in range(len(keys))], aliases=False)
        outputs = tuple(Named(label=item.label, value=bind(item.node)) for item in self._items)
        having = self._node.args.get("having")
        late = self._over_groups([f"k{i}" for i in range(len(keys))], aliases=True)
        condition = None if having is None else _boolean(late(having.this))
        order = self._order(outputs, late)
        if not collected.found and not discover:
            hint = "Add an aggregate, for example COUNT(*)"
            raise refused("nothing_to_ask", "the groups are public and nothing is asked about them", hint)
        limit, offset = limits(self._node)
        aggregation = Aggregation(
            relation=rows.relation,
            units=rows.units or "column",
            keys=keys,
            aggregates=tuple(collected.found),
            groups=groups,
            rows=count,
            discover=discover,
            tables=tuple(sorted({table.name for table in tables})),
        )
        return Released(
            aggregation=aggregation,
            options=stated.options,
            outputs=outputs,
            having=condition,
            order=order,
            limit=limit,
            offset=offset,
        )

    def _check_public(self, keys: tuple[Key, ...]) -> None:
        for position, key in enumerate(keys):
            if key.values is None:
                name = self._binder.origin(key.expression.name) if isinstance(key.expression, Column) else None
                shown = f"key {position + 1}" if name is None else f"{name[0]}.{name[1]}"
                hint = "Leave group_selection_strategy out, or have the owner declare in = […] for it"
                raise refused("public_groups", f"the values of {shown} aren't public", hint)

    def _order(self, outputs: tuple[Named, ...], bind: Callable[[exp.Expr], Typed]) -> tuple[Ordering, ...]:
        order = self._node.args.get("order")
        result = []
        for each in [] if order is None else order.expressions:
            only(each, "this", "desc", "nulls_first")
            place = ordinal(each.this, len(outputs))
            item = self._aliased(each.this)
            if place is None and item is not None:
                place = self._items.index(item)
            value = bind(each.this) if place is None else outputs[place].value
            descending, first = bool(each.args.get("desc")), bool(each.args.get("nulls_first"))
            result.append(Ordering(expression=value.expression, descending=descending, nulls_first=first))
        return tuple(result)


def one_row_each(relation: Relation) -> bool:
    """Whether a unit has at most one row: then it is in one group, and bounding its contribution to that loses nothing.

    The bound is enforced like any other, so privacy doesn't rest on this.
    """
    if isinstance(relation, PerUnit):
        units = {field.name for field in relation.input.fields if field.unit}
        return all(isinstance(key, Column) and key.name in units for key in relation.keys)
    if isinstance(relation, Distinct) and all(field.unit for field in relation.fields):
        return True
    if isinstance(relation, Filter | Project | Distinct | Window):
        return one_row_each(relation.input)
    if isinstance(relation, Join):
        copied = relation.kind in (JoinKind.INNER, JoinKind.LEFT)
        return one_row_each(relation.left) and (not copied or (relation.on_unit and one_row_each(relation.right)))
    return False


def _is_unit(key: Typed, units: frozenset[str]) -> bool:
    return isinstance(key.expression, Column) and key.expression.name in units


def _with_keys(expression: Expression, keys: dict[Expression, Column], results: set[Expression]) -> Expression:
    """The expression over keys and results of aggregates; refused if it reads any other column."""
    if expression in results:
        return expression
    if expression in keys:
        return keys[expression]
    if isinstance(expression, Column):
        hint = "Add it to GROUP BY, or aggregate it"
        raise refused("not_grouped", "a column stands neither in GROUP BY nor inside an aggregate", hint)
    if isinstance(expression, Call):
        arguments = tuple(_with_keys(argument, keys, results) for argument in expression.arguments)
        return Call(expression.function, arguments, expression.kind)
    return expression


def _boolean(value: Typed) -> Expression:
    fitted = adapt(value, Kind.BOOLEAN)
    if fitted is None:
        raise refused("types", f"a condition must be boolean and is {value.kind.value}")
    return fitted.expression


def _derived_again(expression: Expression, fields: dict[str, Field]) -> Typed:
    """The facts of an expression over the results per unit, from those of the results."""
    if isinstance(expression, Column):
        return typed(fields[expression.name])
    if isinstance(expression, Literal):
        return literal(expression.value, expression.kind)
    return apply(expression.function, [_derived_again(argument, fields) for argument in expression.arguments])


_NO_VALUE = Typed(Column("", Kind.TEXT), NOTHING)
