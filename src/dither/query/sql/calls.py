"""Calls of aggregates as they stand in the text: name, arguments, DISTINCT, FILTER, WITHIN GROUP, named arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp

from dither.errors import Refused
from dither.query.sql.names import folded
from dither.query.sql.refusals import name_shown, only, refused
from dither.query.sql.scalars import call_name

AGGREGATES: Mapping[str, str] = {
    "count": "count",
    "count_if": "count_if",
    "countif": "count_if",
    "sum": "sum",
    "avg": "avg",
    "mean": "avg",
    "var_pop": "var_pop",
    "var_samp": "var_samp",
    "variance": "var_samp",
    "stddev_pop": "stddev_pop",
    "stddev_samp": "stddev_samp",
    "stddev": "stddev_samp",
    "covar_pop": "covar_pop",
    "covar_samp": "covar_samp",
    "corr": "corr",
    "median": "median",
    "quantile": "quantile",
    "quantile_cont": "quantile",
    "quantile_disc": "quantile",
    "percentile_cont": "quantile",
    "percentile_disc": "quantile",
    "approx_quantile": "quantile",
    "approx_percentile": "quantile",
    "approx_count_distinct": "approx_count_distinct",
    "mode": "mode",
    "min": "min",
    "max": "max",
}
"""Spellings of the aggregates, and what each stands for."""

OTHERS = {
    *("array_agg", "list", "string_agg", "group_concat", "listagg", "any_value", "first", "last", "arg_min", "arg_max"),
    *("argmin", "argmax", "min_by", "max_by", "bool_and", "bool_or", "every", "product", "histogram", "bit_and"),
    *("bit_or", "bit_xor", "skewness", "kurtosis", "entropy", "regr_slope", "regr_intercept", "json_agg", "fsum"),
    *("string_agg", "sum_no_overflow", "approx_top_k", "reservoir_quantile", "mad", "geomean", "array_concat_agg"),
}
INTERVALS = {"dp_interval_low": "low", "dp_interval_high": "high"}
NAMED = ("contribution_bounds_per_row", "contribution_bounds_per_group", "weight")


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateCall:
    """An aggregate as written; ``spelling`` is the name in the text, ``name`` what it stands for."""

    name: str
    spelling: str
    arguments: tuple[exp.Expr, ...]
    star: bool
    distinct: bool
    condition: exp.Expr | None
    within: exp.Ordered | None
    named: Mapping[str, exp.Expr]
    node: exp.Expr


def own_nodes(node: exp.Expr) -> Iterator[exp.Expr]:
    """The node and what is inside it, but not inside its subqueries."""
    waiting: list[exp.Expr] = [node]
    while waiting:
        current = waiting.pop()
        yield current
        if current is node or not isinstance(current, exp.Query):
            waiting.extend(current.iter_expressions())


def has_aggregate(node: exp.Expr | None) -> bool:
    """Whether an aggregate is called in a node, other than over a window."""
    if node is None:
        return False
    over = set()
    found = []
    for part in own_nodes(node):
        if isinstance(part, exp.Window):
            inner = part.this
            while isinstance(inner, exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
                inner = inner.this
            over.add(id(inner))
        elif isinstance(part, exp.Anonymous) and ((name := call_name(part)) in AGGREGATES or name in OTHERS):
            found.append(id(part))
    return any(each not in over for each in found)


def has_window(node: exp.Expr | None) -> bool:
    """Whether a window function is called in a node."""
    return node is not None and any(isinstance(part, exp.Window) for part in own_nodes(node))


def aggregate_call(node: exp.Expr) -> AggregateCall | None:
    """The aggregate that a node calls; None if it calls something else."""
    inner, condition, within = node, None, None
    if isinstance(inner, exp.Filter):
        only(inner, "this", "expression")
        condition = inner.expression.this
        inner = inner.this
    if isinstance(inner, exp.WithinGroup):
        only(inner, "this", "expression")
        orders = inner.expression.expressions if isinstance(inner.expression, exp.Order) else []
        if len(orders) != 1:
            raise refused("aggregate", "WITHIN GROUP needs one ORDER BY expression")
        within, inner = orders[0], inner.this
    if not isinstance(inner, exp.Anonymous):
        return None
    spelling = call_name(inner)
    if spelling in OTHERS:
        raise other_aggregate(spelling)
    if spelling not in AGGREGATES:
        return None
    only(inner, "this", "expressions")
    return _taken_apart(spelling, inner, condition=condition, within=within, node=node)


def _taken_apart(
    spelling: str, inner: exp.Expr, *, condition: exp.Expr | None, within: exp.Ordered | None, node: exp.Expr
) -> AggregateCall:
    arguments: list[exp.Expr] = []
    named: dict[str, exp.Expr] = {}
    star = distinct = False
    for argument in inner.expressions:
        if isinstance(argument, exp.Kwarg | exp.PropertyEQ):
            only(argument.this, "this", "quoted")
            name = folded(argument.this.name)
            if name not in NAMED:
                reason = f"there is no named argument {name_shown(name)}"
                raise refused("options", reason, f"Named arguments are {', '.join(NAMED)}")
            if name in named:
                raise refused("options", f"{name} is given twice")
            named[name] = argument.expression
        elif isinstance(argument, exp.Star):
            only(argument)
            star = True
        elif isinstance(argument, exp.Distinct):
            only(argument, "expressions")
            distinct = True
            arguments += argument.expressions
        elif isinstance(
            argument, exp.Order | exp.Limit | exp.HavingMax | exp.IgnoreNulls | exp.RespectNulls | exp.Alias
        ):
            raise refused("aggregate", "an order, limit or name inside an aggregate isn't supported")
        else:
            arguments.append(argument)
    return AggregateCall(
        name=AGGREGATES[spelling],
        spelling=spelling,
        arguments=tuple(arguments),
        star=star,
        distinct=distinct,
        condition=condition,
        within=within,
        named=named,
        node=node,
    )


def other_aggregate(spelling: str) -> Refused:
    """The refusal of an aggregate that has no private form here."""
    hint = "Use COUNT, SUM, AVG, VARIANCE, STDDEV, COVAR, CORR, MEDIAN, QUANTILE or MODE"
    return refused("aggregate", f"{name_shown(spelling.upper())} has no private form here", hint)
