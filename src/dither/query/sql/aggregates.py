"""The private aggregates of a question, as their definitions bind them (``query/aggregates``).

The same aggregate twice is one aggregate: it is paid for once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction

from sqlglot import exp

from dither.errors import Refused
from dither.query.aggregates.binding import WEIGHT, Pair, Written
from dither.query.aggregates.catalogue import BY_FUNCTION, DEFINITIONS
from dither.query.aggregates.quantile import EXTREMES
from dither.query.expressions.expressions import Column
from dither.query.expressions.functions import Typed, apply, literal
from dither.query.kinds import NOTHING
from dither.query.plan.plan import Aggregate
from dither.query.refusals import only, placed, refused
from dither.query.sql.calls import AggregateCall
from dither.query.sql.constants import exact_number
from dither.query.sql.scalars import Scalars

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
