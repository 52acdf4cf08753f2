"""SELECT with GROUP BY or aggregates over private rows: per unit if it groups by the unit, else over all units.

The private aggregation is where data becomes an answer. Its keys are public or must be discovered; its contribution is
the strictest of what the tables and the question allow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from sqlglot import exp

from dither.errors import Refused
from dither.query.aggregates.catalogue import MOST_GROUPS, can_be_scaled
from dither.query.expressions.functions import Typed, adapt, apply, literal
from dither.query.kinds import NOTHING, Auto, Call, Column, Expression, Kind, Literal
from dither.query.measure.measures import contribution, one_row_each
from dither.query.plan.plan import (
    COUNTED_ONCE,
    Aggregation,
    FilterRows,
    InnerAggregate,
    Key,
    Options,
    Ordering,
    PerUnit,
    PlanField,
    Project,
)
from dither.query.plan.profile import MOST_CHOSEN, profile_of, profile_shape
from dither.query.refusals import name_shown, only, placed, refused
from dither.query.schema import Schema, TableFacts
from dither.query.sql.aggregates import (
    INTERVALS,
    AggregateCall,
    PrivateAggregates,
    aggregate_call,
    has_aggregate,
    has_window,
    one_by_one,
)
from dither.query.sql.clause import NOTHING_STATED, Selection, clause
from dither.query.sql.constants import exact_number
from dither.query.sql.names import (
    NamedSource,
    Rows,
    Visible,
    find_column,
    names_column,
    same_name,
    unknown_alias,
    unknown_column,
)
from dither.query.sql.parse import ProfileClause
from dither.query.sql.per_unit import inner_aggregate
from dither.query.sql.scalars import Scalars, call_name, typed

MOST_KEYS = 50


class Binder(Protocol):
    """What grouping needs of the binder of the whole question."""

    text: str
    schema: Schema

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


def grouped(binder: Binder, rows: Rows, node: exp.Select) -> Rows | ReleasedColumns:
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
        self._units = rows.unit_names
        self._items = self._select_items()
        self._keys = self._group_keys()
        self._aggregate: Callable[[AggregateCall], Typed] = self._unset
        self._results: set[Expression] = set()

    def bind(self) -> Rows | ReleasedColumns:
        if self._rows.units == "column" and any(_is_unit(key, self._units) for key in self._keys):
            return self._per_unit()
        return self._private()

    # the select list and the keys

    def _select_items(self) -> list[_Item]:
        labels = [NamedColumn(label=v.label, value=_NO_VALUE) for s in self._rows.sources for v in s.columns]
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
            named = self._aliased(node)
            return self._plain.bind(node) if named is None else self._key_of_item(named)
        except Refused as error:
            raise placed(error, node, self._binder.text) from None

    def _key_of_item(self, item: _Item) -> Typed:
        if has_aggregate(item.node):
            raise refused("aggregate", "an aggregate can't be a group key")
        return self._plain.bind(item.node)

    def _aliased(self, node: exp.Expr) -> _Item | None:
        """The item of the select list that this names by its alias; columns come first."""
        if not isinstance(node, exp.Column) or node.args.get("table") is not None:
            return None
        if names_column(node, self._rows.sources):
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
            item = self._aliased(node) if aliases else None
            return typed(find_column(node, self._rows.sources)) if item is None else scalars.bind(item.node)

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
        rows, found = self._rows, list[tuple[InnerAggregate, PlanField]]()

        def aggregate(call: AggregateCall) -> Typed:
            inner, kind, facts = inner_aggregate(call, self._plain)
            for known, field in found:
                if known == inner:
                    return typed(field)
            found.append((inner, PlanField(name=self._binder.fresh(), kind=kind, facts=facts)))
            return typed(found[-1][1])

        self._aggregate = aggregate
        keys = tuple(
            PlanField(name=self._binder.fresh(), kind=k.kind, facts=k.facts, unit=_is_unit(k, self._units))
            for k in self._keys
        )
        facts = {key.name: key for key in keys}
        bind = self._over_groups([key.name for key in keys], aliases=True)
        values = [bind(item.node) for item in self._items]
        having = self._node.args.get("having")
        predicate = None if having is None else _boolean(bind(having.this))
        facts |= {field.name: field for _, field in found}
        relation: PerUnit | FilterRows | Project = PerUnit(
            input=rows.relation,
            keys=tuple(key.expression for key in self._keys),
            aggregates=tuple(inner for inner, _ in found),
            fields=(*keys, *(field for _, field in found)),
        )
        if predicate is not None:
            relation = FilterRows(input=relation, predicate=predicate)
        fields = []
        for value in values:
            source = facts.get(value.expression.name) if isinstance(value.expression, Column) else None
            known = derived_again(value.expression, facts)
            unit = source is not None and source.unit
            fields.append(PlanField(name=self._binder.fresh(), kind=value.kind, facts=known.facts, unit=unit))
        project = Project(input=relation, expressions=tuple(v.expression for v in values), fields=tuple(fields))
        visible = tuple(Visible(label=i.label, field=f) for i, f in zip(self._items, fields, strict=True))
        return replace(rows, relation=project, sources=(NamedSource(alias="", columns=visible),))

    # the private aggregation

    def _private(self) -> ReleasedColumns:
        rows, tables = self._rows, self._rows.tables
        hint = self._node.args.get("hint")
        if isinstance(hint, ProfileClause):
            return _profile(rows)
        for key in self._keys:
            if _is_unit(key, self._units):
                raise refused("unit_shown", "the privacy unit can't be a group of the answer")
        known = None
        if rows.units == "column":
            known = contribution(rows.relation, self._binder.schema.tables, [key.expression for key in self._keys])
        stated = NOTHING_STATED if hint is None else clause(hint, tables, known)
        former = tuple(Key(expression=k.expression, kind=k.kind, values=k.facts.keys) for k in self._keys)
        keys = former if stated.selection is Selection.LAPLACE_THRESHOLD else self._public_keys(former)
        discover = any(key.values is None for key in keys) or stated.selection is Selection.LAPLACE_THRESHOLD
        discover = discover and bool(keys)
        if stated.selection is Selection.PUBLIC_GROUPS:
            self._check_public(keys)
        size = math.prod(len(key.values) for key in keys if key.values is not None)
        if size > MOST_GROUPS:
            hint = "Group by fewer keys, or by coarser ones"
            raise refused("too_many_groups", f"there would be more than {MOST_GROUPS} public groups", hint)
        # tables in which units are only looked up bound nothing
        factors = set() if known is None else {factor.table for factor in known.factors}
        bounding = [table for table in tables if table.name in factors] or tables
        automatic = isinstance(stated.rows, Auto)
        automatic = automatic or (stated.rows is None and any(table.auto_rows for table in bounding))
        every = isinstance(stated.groups, Auto)
        every = every or (stated.groups is None and all(table.auto_groups for table in bounding))
        asked = [None if isinstance(value, Auto) else value for value in (stated.groups, stated.rows)]
        groups = count = 1
        if known is not None:
            # where the policy leaves the number of groups open, a question may state any
            most = (known.most_groups or MOST_GROUPS) if any(table.auto_groups for table in bounding) else known.groups
            groups, count = min(most, asked[0] or most), min(known.rows, asked[1] or known.rows)
            if automatic and keys and every:
                # one bound for all groups together: facts about one group say nothing of it
                count = contribution(rows.relation, self._binder.schema.tables).rows
        one_each = known is None or known.one_each
        automatic = automatic and not one_each and count > 1
        count = min(count, MOST_CHOSEN) if automatic else count
        collected = PrivateAggregates(
            text=self._binder.text, scalars=self._plain, units=self._units, rows=count, origin=self._binder.origin
        )
        self._aggregate = collected.column
        bind = self._over_groups([f"k{i}" for i in range(len(keys))], aliases=False)
        outputs = tuple(NamedColumn(label=item.label, value=bind(item.node)) for item in self._items)
        having = self._node.args.get("having")
        late = self._over_groups([f"k{i}" for i in range(len(keys))], aliases=True)
        condition = None if having is None else _boolean(late(having.this))
        order = self._order(outputs, late)
        if not collected.found and not keys:
            hint = "Add an aggregate, for example COUNT(*)"
            raise refused("nothing_to_ask", "nothing is asked about the rows", hint)
        rows_matter = any(one.function not in COUNTED_ONCE for one in collected.found)
        automatic = automatic and (rows_matter or bool(keys and every))
        if every and keys and not (automatic or one_each):
            hint = "State max_groups_contributed too, or neither"
            raise refused("auto", "as many groups as there are can be had only where the bound on rows is chosen", hint)
        limit, offset = limits(self._node)
        if rows.units == "column" and all(key.values is not None for key in keys):
            groups = min(groups, size)
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
        if automatic and keys:
            aggregation = _scaled(aggregation, size, every=every)
        return ReleasedColumns(
            aggregation=aggregation,
            former=None if automatic else _formerly(aggregation, former, tables, stated.selection, *asked),
            auto=automatic,
            options=stated.options,
            outputs=outputs,
            having=condition,
            order=order,
            limit=limit,
            offset=offset,
        )

    def _public_keys(self, former: tuple[Key, ...]) -> tuple[Key, ...]:
        """The keys with all that is public of them, if every one is then, and they aren't too many: else as before."""
        found = []
        for key, bound in zip(former, self._keys, strict=True):
            known = bound.facts.for_keys
            # where no value can pass WHERE, all of them are answered, as nothing
            values = key.values if known is None or not known.keys else known.keys
            found.append(replace(key, values=values))
        size = math.prod(len(key.values or ()) for key in found)
        return tuple(found) if found and 0 < size <= MOST_GROUPS else former

    def _check_public(self, keys: tuple[Key, ...]) -> None:
        for position, key in enumerate(keys):
            if key.values is None:
                name = self._binder.origin(key.expression.name) if isinstance(key.expression, Column) else None
                shown = f"key {position + 1}" if name is None else f"{name[0]}.{name[1]}"
                hint = "Leave group_selection_strategy out, or have the owner declare in = […] for it"
                raise refused("public_groups", f"the values of {shown} aren't public", hint)

    def _order(self, outputs: tuple[NamedColumn, ...], bind: Callable[[exp.Expr], Typed]) -> tuple[Ordering, ...]:
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


def _scaled(aggregation: Aggregation, size: int, *, every: bool) -> Aggregation:
    """The same with one bound on what a unit has in all groups together; Refused where there can't be one."""
    scaled = replace(aggregation, groups=size, scaled=True)
    stating = "State numbers for this question: OPTIONS (max_groups_contributed = 4, max_rows_contributed = 20)"
    if not every:
        hint = f"{stating}, or 'auto' for both"
        raise refused("auto", "with groups a bound on rows is chosen for all groups together, not for so many", hint)
    if not can_be_scaled(scaled):
        reason = "with groups a bound on rows can be chosen only for COUNT and SUM, and where all keys are public"
        raise refused("auto", reason, stating)
    return scaled


def _profile(rows: Rows) -> ReleasedColumns:
    """How many units have how many rows."""
    if rows.units != "column" or one_row_each(rows.relation):
        hint = "Nothing is cut where each has one row, so ask the question itself"
        raise refused("profile", "a profile shows how many rows each unit has, and here each has one", hint)
    shape = profile_shape()
    return ReleasedColumns(
        aggregation=profile_of(rows.relation, tuple(sorted({table.name for table in rows.tables}))),
        options=Options(),
        outputs=tuple(NamedColumn(label=o.name, value=Typed(o.expression, NOTHING)) for o in shape.outputs),
        profile=True,
    )


def _formerly(
    aggregation: Aggregation,
    keys: tuple[Key, ...],
    tables: Sequence[TableFacts],
    selection: Selection | None,
    most_groups: int | None,
    most_rows: int | None,
) -> Aggregation | None:
    """The aggregation as dither 0.1 and 0.2 read it; None if they refused it, or read it as now.

    Keys weren't public by calendars and WHERE, and the limits of joined tables weren't multiplied: the strictest held.
    """
    selected = selection is Selection.LAPLACE_THRESHOLD
    discover = bool(keys) and (selected or any(key.values is None for key in keys))
    size = math.prod(len(key.values) for key in keys if key.values is not None)
    groups, rows = min(table.groups for table in tables), min(table.rows for table in tables)
    if size > MOST_GROUPS or (most_groups or 1) > groups or (most_rows or 1) > rows:
        return None
    groups, rows = min(groups, most_groups or groups), min(rows, most_rows or rows)
    if aggregation.units == "row" or one_row_each(aggregation.relation):
        groups = rows = 1
    elif all(key.values is not None for key in keys):
        groups = min(groups, size)
    former = replace(aggregation, keys=keys, groups=groups, rows=rows, discover=discover)
    return None if former == aggregation else former


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


def derived_again(expression: Expression, fields: dict[str, PlanField]) -> Typed:
    """The facts of an expression over the results per unit, from those of the results."""
    if isinstance(expression, Column):
        return typed(fields[expression.name])
    if isinstance(expression, Literal):
        return literal(expression.value, expression.kind)
    return apply(expression.function, [derived_again(argument, fields) for argument in expression.arguments])


_NO_VALUE = Typed(Column("", Kind.TEXT), NOTHING)


# ---------------------------------------------------------------------------------------------- released groups


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedColumn:
    """A column of the released table: its label and what it is computed from."""

    label: str
    value: Typed


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedColumns:
    """A private aggregation and what has been asked of its answer so far; ``former`` as in ``BoundQuestion``."""

    aggregation: Aggregation
    former: Aggregation | None = None
    options: Options
    outputs: tuple[NamedColumn, ...]
    having: Expression | None = None
    order: tuple[Ordering, ...] = ()
    limit: int | None = None
    offset: int = 0
    profile: bool = False
    auto: bool = False


def interval_end(node: exp.Anonymous, value: Typed) -> Typed:
    """An end of an aggregate's interval: a column ``a0.low`` or ``a0.high``."""
    expression = value.expression
    if not isinstance(expression, Column) or not expression.name.startswith("a") or not expression.kind.number:
        hint = "Name an aggregate, or the alias of one; expressions over aggregates have none"
        raise refused("interval", "only a number released by an aggregate has error bars", hint)
    if "." in expression.name:
        raise refused("interval", "this is the end of an interval already")
    return Typed(Column(f"{expression.name}.{INTERVALS[call_name(node)]}", Kind.DOUBLE), NOTHING)


def conjunction(first: Expression | None, second: Typed | None) -> Expression | None:
    """Both conditions."""
    if first is None or second is None:
        return first if second is None else second.expression
    return apply("and", (Typed(first, NOTHING), second)).expression


def limits(node: exp.Expr) -> tuple[int | None, int]:
    """LIMIT and OFFSET of a query."""
    limit, offset = node.args.get("limit"), node.args.get("offset")
    if limit is not None:
        if not isinstance(limit, exp.Limit):
            raise refused("unsupported", "FETCH isn't supported", "Use LIMIT")
        only(limit, "expression")
    if offset is not None:
        only(offset, "expression")
    return (None if limit is None else _count(limit.expression)), (0 if offset is None else _count(offset.expression))


def _count(node: exp.Expr) -> int:
    value = exact_number(node)
    if value is None or value.denominator != 1 or not 0 <= value < 2**63:
        raise refused("literal", "LIMIT and OFFSET need a whole number")
    return int(value)


def cut(released: ReleasedColumns, limit: int | None, offset: int) -> ReleasedColumns:
    """The rows of an outer LIMIT among those of an inner one."""
    if limit is None and offset == 0:
        return released
    left = None if released.limit is None else max(released.limit - offset, 0)
    smaller = min((each for each in (left, limit) if each is not None), default=None)
    return replace(released, limit=smaller, offset=released.offset + offset)


def ordinal(node: exp.Expr, size: int) -> int | None:
    """The place that ORDER BY 2 or GROUP BY 2 means, from 0; None if it isn't a number."""
    if not isinstance(node, exp.Literal) or node.args.get("is_string"):
        return None
    value = exact_number(node)
    if value is None or value.denominator != 1 or not 1 <= value <= size:
        raise refused("unknown_column", f"the select list has {size} columns to be named by number")
    return int(value) - 1


class PostProcessing:
    """A query around the private aggregation: what it does to the released table."""

    def __init__(self, text: str, inner: ReleasedColumns, alias: str) -> None:
        self._text, self._inner, self._alias = text, inner, alias
        self._outputs: list[NamedColumn] = []
        self._scalars = Scalars(text, column=self._column, special=self._special)
        self._orders = Scalars(text, column=self._ordered_column, special=self._special)

    def apply(self, node: exp.Select) -> ReleasedColumns:
        """The released table after this query."""
        if node.args.get("hint") is not None:
            hint = "Write the clause after the SELECT that aggregates"
            raise refused("options", "the privacy clause belongs to the aggregation", hint)
        if node.args.get("distinct") is not None or node.args.get("qualify") is not None:
            raise refused("post_processing", "DISTINCT and QUALIFY aren't supported on released numbers")
        if node.args.get("group") is not None or node.args.get("having") is not None or _aggregates(node):
            raise refused(
                "second_aggregation",
                "released numbers can't be aggregated again here",
                "Ask for the total directly: it is more exact than a sum of noisy parts",
            )
        cut_before = self._inner.limit is not None or self._inner.offset > 0
        where, order = node.args.get("where"), node.args.get("order")
        if cut_before and (where is not None or order is not None):
            hint = "Filter and order in the query that has the LIMIT"
            raise refused("post_processing", "a filter or an order after LIMIT isn't supported", hint)
        having = None if where is None else self._scalars.predicate(where.this)
        self._outputs = self._select_list(node)
        orders = self._inner.order if order is None else tuple(self._ordering(each) for each in order.expressions)
        result = replace(
            self._inner,
            outputs=tuple(self._outputs),
            having=conjunction(self._inner.having, having),
            order=orders,
        )
        return cut(result, *limits(node))

    def _select_list(self, node: exp.Select) -> list[NamedColumn]:
        outputs: list[NamedColumn] = []
        for position, item in enumerate(node.expressions):
            if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
                only(item if isinstance(item, exp.Star) else item.this)
                self._check_table(item.args.get("table"))
                outputs += self._inner.outputs
                continue
            inner = item.this if isinstance(item, exp.Alias) else item
            value = self._scalars.bind(inner)
            outputs.append(NamedColumn(label=label_of(item, position, self._inner.outputs), value=value))
        return outputs

    def _ordering(self, each: exp.Expr) -> Ordering:
        only(each, "this", "desc", "nulls_first")
        place = ordinal(each.this, len(self._outputs))
        value = self._orders.bind(each.this) if place is None else self._outputs[place].value
        return Ordering(
            expression=value.expression,
            descending=bool(each.args.get("desc")),
            nulls_first=bool(each.args.get("nulls_first")),
        )

    def _check_table(self, table: exp.Expr | None) -> None:
        if table is not None and not same_name(table, self._alias):  # type: ignore[arg-type]
            raise unknown_alias(table.name, [self._alias])

    def _column(self, node: exp.Column) -> Typed:
        self._check_table(node.args.get("table"))
        return named_output(node, self._inner.outputs)

    def _ordered_column(self, node: exp.Column) -> Typed:
        own = [output for output in self._outputs if same_name(node.this, output.label)]
        if node.args.get("table") is None and len(own) == 1:
            return own[0].value
        return self._column(node)

    def _special(self, node: exp.Expr) -> Typed | None:
        if isinstance(node, exp.Anonymous) and call_name(node) in INTERVALS:
            if len(node.expressions) != 1:
                raise refused("types", f"{node.name.upper()} needs one argument")
            return interval_end(node, self._scalars.bind(node.expressions[0]))
        if isinstance(node, exp.Window):
            raise refused("post_processing", "windows aren't supported on released numbers")
        if aggregate_call(node) is not None:
            raise refused("second_aggregation", "released numbers can't be aggregated again here")
        return None


def _aggregates(node: exp.Select) -> bool:
    return any(has_aggregate(item) for item in node.expressions)


def named_output(node: exp.Column, outputs: Sequence[NamedColumn]) -> Typed:
    """The output that a column names."""
    if not isinstance(node.this, exp.Identifier) or node.args.get("db") is not None:
        raise refused("unknown_column", "a column is named by its alias")
    found = [output for output in outputs if same_name(node.this, output.label)]
    if not found:
        raise unknown_column(node.name, [output.label for output in outputs])
    if len(found) > 1 and any(each.value != found[0].value for each in found):
        raise refused("ambiguous", f"{name_shown(node.name)} could be several columns", "Give each an alias")
    return found[0].value


def label_of(item: exp.Expr, position: int, outputs: Sequence[NamedColumn] = ()) -> str:
    """The name of a column of the answer: its alias, its own name, the function's, or its place."""
    if isinstance(item, exp.Alias):
        label = str(item.args["alias"].name)
        if not label or len(label) > 200:
            raise placed(refused("syntax", "an alias has between 1 and 200 characters"), item, "")
        return label
    if isinstance(item, exp.Column) and isinstance(item.this, exp.Identifier):
        own = [output.label for output in outputs if same_name(item.this, output.label)]
        return own[0] if own else str(item.this.this)[:200]
    inner = item
    while isinstance(inner, exp.Filter | exp.WithinGroup | exp.Paren | exp.Window):
        inner = inner.this
    name = call_name(inner) if isinstance(inner, exp.Anonymous) else ""
    return name or f"column_{position + 1}"
