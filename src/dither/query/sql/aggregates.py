"""The private aggregates of a question: their calls in the text, bound by ``query/aggregates``.

The same aggregate twice is one aggregate: it is paid for once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from sqlglot import exp

from dither.errors import Refused
from dither.query.aggregates.base import PER_GROUP, PER_ROW, WEIGHT, Pair, Written
from dither.query.aggregates.catalogue import AGGREGATES, BY_FUNCTION, DEFINITIONS
from dither.query.aggregates.quantile import EXTREMES
from dither.query.expressions.functions import Typed, apply, literal
from dither.query.kinds import NOTHING, Column
from dither.query.plan.plan import Aggregate
from dither.query.refusals import name_shown, only, placed, refused
from dither.query.sql.constants import exact_number
from dither.query.sql.names import folded
from dither.query.sql.scalars import Scalars, call_name

OTHERS = {
    *("array_agg", "list", "string_agg", "group_concat", "listagg", "any_value", "first", "last", "arg_min", "arg_max"),
    *("argmin", "argmax", "min_by", "max_by", "bool_and", "bool_or", "every", "product", "histogram", "bit_and"),
    *("bit_or", "bit_xor", "skewness", "kurtosis", "entropy", "regr_slope", "regr_intercept", "json_agg", "fsum"),
    *("string_agg", "sum_no_overflow", "approx_top_k", "reservoir_quantile", "mad", "geomean", "array_concat_agg"),
}
INTERVALS = {"dp_interval_low": "low", "dp_interval_high": "high"}
# Quantiles that may be asked for in one list.
MOST_AT_ONCE = 20
_AMONG = "among"
NAMED = (PER_ROW, PER_GROUP, WEIGHT)


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateCall:
    """An aggregate as written; ``spelling`` is the name in the text, ``name`` what it stands for.

    ``among`` is how many are written as one, with a list of constants: they share its weight.
    """

    name: str
    spelling: str
    arguments: tuple[exp.Expr, ...]
    star: bool
    distinct: bool
    condition: exp.Expr | None
    within: exp.Ordered | None
    named: Mapping[str, exp.Expr]
    node: exp.Expr
    among: int


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
        among=inner.meta.get(_AMONG, 1) if inner._meta else 1,  # noqa: SLF001 - `meta` would create a dictionary
    )


def one_by_one(node: exp.Expr) -> list[tuple[str, exp.Expr]]:
    """The calls that one with a list of constants stands for, each with the end of its name; it alone if it has none.

    ``QUANTILE_CONT(x, [0.25, 0.5])`` is QUANTILE_CONT(x, 0.25) and QUANTILE_CONT(x, 0.5), named ``…_25`` and ``…_50``.
    """
    places = [place for place, each in enumerate(_call_of(node).expressions) if isinstance(each, exp.Array)]
    call = aggregate_call(node) if places else None
    if call is None or call.name not in DEFINITIONS or not DEFINITIONS[call.name].several:
        return [("", node)]
    array = _call_of(node).expressions[places[0]]
    only(array, "expressions")
    if not 0 < len(array.expressions) <= MOST_AT_ONCE:
        reason = f"a list of quantiles has between 1 and {MOST_AT_ONCE} numbers"
        raise refused("literal", reason, "Write QUANTILE_CONT(x, [0.25, 0.5, 0.75])")
    made = []
    for element in array.expressions:
        copy = node.copy()
        inner = _call_of(copy)
        inner.set("expressions", [element if at == places[0] else e for at, e in enumerate(inner.expressions)])
        inner.meta[_AMONG] = len(array.expressions)
        share = exact_number(element)
        # one that is no share is refused when it is bound
        percent = "" if share is None else f"{float(100 * share):.10g}".replace(".", "_")
        made.append((f"_{percent}", copy))
    return made


def _call_of(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Filter | exp.WithinGroup):
        node = node.this
    return node


def other_aggregate(spelling: str) -> Refused:
    """The refusal of an aggregate that has no private form here."""
    hint = "Use COUNT, SUM, AVG, VARIANCE, STDDEV, COVAR, CORR, MEDIAN, QUANTILE or MODE"
    return refused("aggregate", f"{name_shown(spelling.upper())} has no private form here", hint)


# ------------------------------------------------------------------------------------------- aggregates of a question


MOST_AGGREGATES = 100


def over_condition(scalars: Scalars, condition: exp.Expr | None, value: Typed) -> Typed:
    """FILTER (WHERE p): the value where p holds, else NULL, which every aggregate leaves out."""
    if condition is None:
        return value
    return apply("case", (scalars.predicate(condition), value, literal(None, value.kind)))


@dataclass(slots=True, kw_only=True)
class PrivateAggregates:
    """Collects the aggregates of one private aggregation.

    ``units`` are the plan's names of the unit's id; ``rows`` is how many rows of a unit count in a group; ``origin``
    says which column of the schema a name of the plan is.
    """

    text: str
    scalars: Scalars
    units: frozenset[str]
    rows: int
    origin: Callable[[str], tuple[str, str] | None]
    found: list[Aggregate] = field(default_factory=list)

    def column(self, call: AggregateCall) -> Typed:
        """The released value of an aggregate, as a column ``a0``, ``a1`` and so on."""
        try:
            aggregate = self._bind(call)
        except Refused as error:
            raise placed(error, call.node, self.text) from None
        if aggregate not in self.found:
            if len(self.found) >= MOST_AGGREGATES:
                raise refused("too_long", f"a question may have at most {MOST_AGGREGATES} aggregates")
            self.found.append(aggregate)
        kind = BY_FUNCTION[aggregate.function].kind(aggregate)
        return Typed(Column(f"a{self.found.index(aggregate)}", kind), NOTHING)

    def _bind(self, call: AggregateCall) -> Aggregate:
        if call.name in EXTREMES:
            hint = f"Use a quantile, for example QUANTILE_CONT(x, {EXTREMES[call.name]})"
            raise refused("aggregate", f"{call.name.upper()} is one person's value", hint)
        definition = DEFINITIONS[call.name]
        weight = _weight(call)
        if call.within is not None and not definition.within:
            raise refused("aggregate", "WITHIN GROUP goes with PERCENTILE_CONT and MODE only")
        if call.distinct and not definition.distinct:
            raise refused("aggregate", "DISTINCT is supported in COUNT only", "SUM and AVG count every row")
        if call.star and not definition.star:
            raise refused("types", "* is an argument of COUNT only")
        written = _Written(
            spelling=call.spelling,
            size=len(call.arguments),
            star=call.star,
            distinct=call.distinct,
            filtered=call.condition is not None,
            ordered=call.within is not None,
            named=tuple(call.named),
            units=self.units,
            rows=self.rows,
            call=call,
            around=self,
        )
        written.expect_named(*definition.named)
        return replace(definition.bind(written), weight=weight)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written(Written):
    """A call, with what binds its parts."""

    call: AggregateCall
    around: PrivateAggregates

    def value(self, place: int) -> Typed:
        return self.around.scalars.bind(self.call.arguments[place])

    def subject(self) -> Typed:
        within = self.call.within
        return self.value(0) if within is None else self.around.scalars.bind(within.this)

    def descending(self) -> bool:
        assert self.call.within is not None
        only(self.call.within, "this", "desc", "nulls_first")
        return bool(self.call.within.args.get("desc"))

    def predicate(self) -> Typed:
        return self.around.scalars.predicate(self.call.arguments[0])

    def over(self, value: Typed) -> Typed:
        return over_condition(self.around.scalars, self.call.condition, value)

    def number(self, place: int) -> Fraction | None:
        return exact_number(self.call.arguments[place])

    def pair(self, name: str) -> Pair | None:
        node = self.call.named.get(name)
        if node is None:
            return None
        parts = node.expressions if isinstance(node, exp.Tuple) else []
        numbers = [exact_number(part) for part in parts]
        low, high = numbers if len(numbers) == 2 else (None, None)
        if low is None or high is None or low >= high:
            raise refused("options", f"{name} needs two numbers, the smaller first", f"Write {name} => (0, 100)")
        return low, high

    def origin(self, name: str) -> tuple[str, str] | None:
        return self.around.origin(name)


def _weight(call: AggregateCall) -> Fraction:
    node = call.named.get(WEIGHT)
    weight = Fraction(1) if node is None else exact_number(node)
    if weight is None or not Fraction(1, 1000) <= weight <= 1000:
        raise refused("options", "a weight is a number between 0.001 and 1000")
    return weight / call.among
