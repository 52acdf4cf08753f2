"""What is computed over the rows of one unit: inner aggregates and windows, both exact and unseen by other units."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction

from sqlglot import exp

from dither.query.aggregates.base import one, ones_and_zeros, where_true
from dither.query.expressions.calendar_keys import apart, or_null
from dither.query.expressions.functions import Typed
from dither.query.expressions.public_values import with_null
from dither.query.kinds import Column, Facts, Interval, Kind
from dither.query.measure.clamped_grids import holding, places_of
from dither.query.plan.plan import Gridded, Inner, InnerAggregate, Ordering, PlanField, Windowed, WindowFunction
from dither.query.refusals import only, refused
from dither.query.sql.aggregates import AggregateCall, aggregate_call, over_condition
from dither.query.sql.constants import exact_number
from dither.query.sql.scalars import Scalars, call_name

# Grid values of one row are at most this, so that a unit's sum over 2^22 rows stays within 64 bits.
FINEST = 2**40
_INNER = {"count": Inner.COUNT, "sum": Inner.SUM, "avg": Inner.AVG, "min": Inner.MIN, "max": Inner.MAX}
_RANKS: dict[str, WindowFunction] = {"row_number": "row_number", "rank": "rank", "dense_rank": "dense_rank"}
_SHIFTS: dict[str, WindowFunction] = {"lag": "lag", "lead": "lead"}
_SUPPORTED = "Use COUNT, COUNT(DISTINCT), SUM, AVG, MIN or MAX per unit"


def grid(value: Typed, bounds: Interval) -> Gridded:
    """A grid of whole numbers for exact sums: holds values and bounds if it is coarse enough, else a power of two."""
    held = holding(bounds, value.facts.step, (), lambda one: max(abs(one.low), abs(one.high)) <= FINEST)
    if held is not None and (value.kind is not Kind.INTEGER or held.step.denominator == 1):
        return held.of(value.expression)
    size = bounds.magnitude / FINEST
    exponent = max(math.ceil(math.log2(size)), -1000) if size > 0 else 0
    step = Fraction(2) ** exponent
    if value.kind is Kind.INTEGER:
        step = max(step, Fraction(1))
    low, high = places_of((bounds.low, bounds.high), step)
    return Gridded(expression=value.expression, step=step, low=low, high=high)


def inner_aggregate(call: AggregateCall, scalars: Scalars) -> tuple[InnerAggregate, Kind, Facts]:
    """An aggregate over the rows of one unit, and what is known of its result."""
    if call.named:
        hint = "State them for the outer aggregate"
        raise refused("options", "named arguments belong to private aggregates, not to those per unit", hint)
    if call.name not in ("count_if", "approx_count_distinct", *_INNER) or call.within is not None:
        raise refused("aggregate", f"{call.spelling.upper()} isn't supported per unit", _SUPPORTED)
    if call.distinct and call.name != "count":
        raise refused("aggregate", "DISTINCT is supported in COUNT only")
    whole = Facts(step=Fraction(1))
    if call.name == "count" and not call.distinct and not call.arguments:
        if call.condition is None:
            return InnerAggregate(function=Inner.COUNT, argument=None), Kind.INTEGER, whole
        value = over_condition(scalars, call.condition, one())
        return InnerAggregate(function=Inner.COUNT, argument=value.expression), Kind.INTEGER, whole
    if len(call.arguments) != 1 or call.star:
        raise refused("types", f"{call.spelling.upper()} needs one argument")
    if call.name == "count_if":
        value = where_true(scalars.predicate(call.arguments[0]))
    else:
        value = scalars.bind(call.arguments[0])
    value = over_condition(scalars, call.condition, value)
    if call.name in ("count", "count_if", "approx_count_distinct"):
        distinct = call.distinct or call.name == "approx_count_distinct"
        function = Inner.COUNT_DISTINCT if distinct else Inner.COUNT
        return InnerAggregate(function=function, argument=value.expression), Kind.INTEGER, whole
    function = _INNER[call.name]
    if function in (Inner.MIN, Inner.MAX):
        return InnerAggregate(function=function, argument=value.expression), value.kind, apart(value.facts)
    return _summed(function, ones_and_zeros(value), call)


def _summed(function: Inner, value: Typed, call: AggregateCall) -> tuple[InnerAggregate, Kind, Facts]:
    name = call.spelling.upper()
    if not value.kind.number:
        raise refused("types", f"{name} needs numbers and has {value.kind.value}")
    bounds = value.facts.bounds
    if bounds is None:
        hint = "Clamp it: LEAST(GREATEST(x, 0), 100), or have the owner declare between = [low, high] for its columns"
        raise refused("bounds_missing", f"{name} per unit needs bounds for its argument", hint)
    on = grid(value, bounds)
    aggregate = InnerAggregate(function=function, argument=value.expression, grid=on)
    if function is Inner.AVG:
        return aggregate, Kind.DOUBLE, Facts(bounds=bounds)
    kind = Kind.INTEGER if value.kind is Kind.INTEGER else Kind.DOUBLE
    return aggregate, kind, Facts(step=on.step)


@dataclass(slots=True, kw_only=True)
class Windows:
    """Collects the windows of one SELECT; each must be partitioned by the unit."""

    scalars: Scalars
    units: frozenset[str]
    fresh: Callable[[], str]
    named: dict[str, exp.Window]
    items: list[Windowed] = field(default_factory=list)
    fields: list[PlanField] = field(default_factory=list)

    def column(self, node: exp.Window) -> Typed:
        """The column that a window function adds."""
        windowed, kind, facts = self._bind(node)
        if windowed in self.items:
            added = self.fields[self.items.index(windowed)]
        else:
            added = PlanField(name=self.fresh(), kind=kind, facts=facts)
            self.items.append(windowed)
            self.fields.append(added)
        return Typed(Column(added.name, added.kind), added.facts)

    def _bind(self, node: exp.Window) -> tuple[Windowed, Kind, Facts]:
        only(node, "this", "partition_by", "order", "alias", "over")
        definition = node
        if node.args.get("alias") is not None:
            given = self.named.get(node.args["alias"].name.lower())
            if given is None or node.args.get("partition_by") or node.args.get("order"):
                raise refused("window", "there is no window of this name", "Write OVER (PARTITION BY …)")
            definition = given
            only(definition, "this", "partition_by", "order")
        parts = [self.scalars.bind(part) for part in definition.args.get("partition_by") or []]
        if not any(isinstance(part.expression, Column) and part.expression.name in self.units for part in parts):
            hint = "Write PARTITION BY the privacy unit, perhaps with more"
            raise refused("window", "a window over rows of several units would mix them", hint)
        partition = tuple(
            part.expression
            for part in parts
            if not (isinstance(part.expression, Column) and part.expression.name in self.units)
        )
        order = orderings(definition.args.get("order"), self.scalars)
        return self._function(node.this, partition=partition, order=order)

    def _function(
        self, node: exp.Expr, *, partition: tuple[object, ...], order: tuple[Ordering, ...]
    ) -> tuple[Windowed, Kind, Facts]:
        def windowed(
            function: WindowFunction,
            argument: Typed | None = None,
            aggregate: InnerAggregate | None = None,
            offset: int = 0,
        ) -> Windowed:
            return Windowed(
                function=function,
                argument=None if argument is None else argument.expression,
                aggregate=aggregate,
                offset=offset,
                partition=partition,  # type: ignore[arg-type]
                order=order,
            )

        name = call_name(node) if isinstance(node, exp.Anonymous) else ""
        if name in _RANKS:
            only(node, "this")
            return windowed(_RANKS[name]), Kind.INTEGER, Facts(step=Fraction(1))
        if name in _SHIFTS or name == "first_value":
            only(node, "this", "expressions")
            if not 1 <= len(node.expressions) <= (2 if name in _SHIFTS else 1):
                raise refused("window", f"{name} has a value and perhaps an offset", "Use COALESCE for a default")
            argument = self.scalars.bind(node.expressions[0])
            offset = exact_number(node.expressions[1]) if len(node.expressions) > 1 else Fraction(1)
            if offset is None or offset.denominator != 1 or not 0 <= offset <= 1000:
                raise refused("window", f"the offset of {name} is a whole number up to 1000")
            facts = apart(argument.facts)
            if name == "first_value":
                return windowed("first_value", argument), argument.kind, facts
            facts = or_null(replace(facts, keys=with_null(facts.keys)))
            return windowed(_SHIFTS[name], argument, offset=int(offset)), argument.kind, facts
        call = aggregate_call(node)
        if call is None:
            hint = "Use row_number, rank, dense_rank, lag, lead, first_value or an aggregate"
            raise refused("window", "this window function isn't supported", hint)
        aggregate, kind, facts = inner_aggregate(call, self.scalars)
        return windowed("aggregate", None, aggregate), kind, facts


def orderings(node: exp.Expr | None, scalars: Scalars) -> tuple[Ordering, ...]:
    """The expressions of an ORDER BY over rows."""
    if node is None:
        return ()
    result = []
    for each in node.expressions:
        only(each, "this", "desc", "nulls_first")
        bound = scalars.bind(each.this)
        descending, first = bool(each.args.get("desc")), bool(each.args.get("nulls_first"))
        result.append(Ordering(expression=bound.expression, descending=descending, nulls_first=first))
    return tuple(result)
