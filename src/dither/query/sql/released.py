"""What may be done with released numbers: projection, filter, order, limit. It reads no data, so it is free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from dither.query.expressions.expressions import Column, Expression
from dither.query.expressions.functions import Typed, apply
from dither.query.kinds import NOTHING, Kind
from dither.query.plan.plan import Aggregation, Options, Ordering
from dither.query.refusals import name_shown, only, placed, refused
from dither.query.sql.calls import INTERVALS, aggregate_call, has_aggregate
from dither.query.sql.constants import exact_number
from dither.query.sql.names import same_name
from dither.query.sql.scalars import Scalars, call_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A column of the released table: its label and what it is computed from."""

    label: str
    value: Typed


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """A private aggregation and what has been asked of its answer so far."""

    aggregation: Aggregation
    options: Options
    outputs: tuple[Named, ...]
    having: Expression | None = None
    order: tuple[Ordering, ...] = ()
    limit: int | None = None
    offset: int = 0


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


def cut(released: Released, limit: int | None, offset: int) -> Released:
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

    def __init__(self, text: str, inner: Released, alias: str) -> None:
        self._text, self._inner, self._alias = text, inner, alias
        self._outputs: list[Named] = []
        self._scalars = Scalars(text, column=self._column, special=self._special)
        self._orders = Scalars(text, column=self._ordered_column, special=self._special)

    def apply(self, node: exp.Select) -> Released:
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

    def _select_list(self, node: exp.Select) -> list[Named]:
        outputs: list[Named] = []
        for position, item in enumerate(node.expressions):
            if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
                only(item if isinstance(item, exp.Star) else item.this)
                self._check_table(item.args.get("table"))
                outputs += self._inner.outputs
                continue
            inner = item.this if isinstance(item, exp.Alias) else item
            value = self._scalars.bind(inner)
            outputs.append(Named(label=label_of(item, position, self._inner.outputs), value=value))
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
            raise refused("unknown_table", f"{name_shown(table.name)} isn't the name of anything after FROM")

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


def named_output(node: exp.Column, outputs: Sequence[Named]) -> Typed:
    """The output that a column names."""
    if not isinstance(node.this, exp.Identifier) or node.args.get("db") is not None:
        raise refused("unknown_column", "a column is named by its alias")
    found = [output for output in outputs if same_name(node.this, output.label)]
    if not found:
        names = ", ".join(dict.fromkeys(output.label for output in outputs))
        raise refused("unknown_column", f"there is no column {name_shown(node.name)} here", f"Columns are: {names}")
    if len(found) > 1 and any(each.value != found[0].value for each in found):
        raise refused("ambiguous", f"{name_shown(node.name)} could be several columns", "Give each an alias")
    return found[0].value


def label_of(item: exp.Expr, position: int, outputs: Sequence[Named] = ()) -> str:
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
