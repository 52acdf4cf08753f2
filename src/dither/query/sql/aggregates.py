"""The private aggregates of a question: which they are, what they are clamped to, what kind their answer has.

Bounds come from the policy, from interval arithmetic, or from the question itself; the question's may only be narrower.
The same aggregate twice is one aggregate: it is paid for once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import NoReturn

from sqlglot import exp

from dither.errors import Refused
from dither.mechanisms.quantile import LARGEST_DENOMINATOR
from dither.query.expressions import Column, Literal, columns, walk
from dither.query.functions import Typed, apply, literal
from dither.query.grids import LARGEST_INTEGER
from dither.query.kinds import NOTHING, Facts, Interval, Kind
from dither.query.plan import Aggregate, Argument, Function
from dither.query.sql.calls import AggregateCall
from dither.query.sql.constants import exact_number
from dither.query.sql.refusals import only, placed, refused
from dither.query.sql.scalars import Scalars

MOST_AGGREGATES = 100
_MOMENTS = {
    "sum": Function.SUM,
    "avg": Function.AVG,
    "var_pop": Function.VAR_POP,
    "var_samp": Function.VAR_SAMP,
    "stddev_pop": Function.STDDEV_POP,
    "stddev_samp": Function.STDDEV_SAMP,
    "covar_pop": Function.COVAR_POP,
    "covar_samp": Function.COVAR_SAMP,
    "corr": Function.CORR,
}
_PAIRS = (Function.COVAR_POP, Function.COVAR_SAMP, Function.CORR)
_COUNTS = (Function.COUNT, Function.COUNT_UNITS, Function.COUNT_DISTINCT)


def over_condition(scalars: Scalars, condition: exp.Expr | None, value: Typed) -> Typed:
    """FILTER (WHERE p): the value where p holds, else NULL, which every aggregate leaves out."""
    if condition is None:
        return value
    return apply("case", (scalars.predicate(condition), value, literal(None, value.kind)))


def one() -> Typed:
    """The constant 1: what a row counts."""
    return literal(1, Kind.INTEGER)


def ones_and_zeros(value: Typed) -> Typed:
    """A boolean as 1 and 0; NULL stays NULL."""
    zero, nothing = literal(0, Kind.INTEGER), literal(None, Kind.INTEGER)
    return apply("case", (value, one(), apply("not", (value,)), zero, nothing))


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
        return Typed(Column(f"a{self.found.index(aggregate)}", released_kind(aggregate)), NOTHING)

    def _bind(self, call: AggregateCall) -> Aggregate:
        if call.name in ("min", "max"):
            extreme = "0.01" if call.name == "min" else "0.99"
            hint = f"Use a quantile, for example QUANTILE_CONT(x, {extreme})"
            raise refused("aggregate", f"{call.name.upper()} is one person's value", hint)
        weight = self._weight(call)
        if call.within is not None and call.name not in ("quantile", "mode"):
            raise refused("aggregate", "WITHIN GROUP goes with PERCENTILE_CONT and MODE only")
        if call.distinct and call.name != "count":
            raise refused("aggregate", "DISTINCT is supported in COUNT only", "SUM and AVG count every row")
        if call.star and call.name != "count":
            raise refused("types", "* is an argument of COUNT only")
        if call.name in ("count", "count_if", "approx_count_distinct"):
            return replace(self._count(call), weight=weight)
        if call.name in ("median", "quantile"):
            return replace(self._quantile(call), weight=weight)
        if call.name == "mode":
            return replace(self._mode(call), weight=weight)
        return replace(self._moment(call), weight=weight)

    # counts

    def _count(self, call: AggregateCall) -> Aggregate:
        self._only_named(call, "contribution_bounds_per_group", "weight")
        per_group = self._count_bounds(call)
        if call.name == "approx_count_distinct" or call.distinct:
            return replace(self._distinct(call), per_group=per_group)
        if call.name == "count_if":
            condition = self.scalars.predicate(self._arguments(call, 1)[0])
            value = apply("case", (condition, one(), literal(None, Kind.INTEGER)))
        elif call.star or not call.arguments:
            if call.arguments:
                raise refused("types", "COUNT has either * or an argument")
            value = one()
        else:
            value = self.scalars.bind(self._arguments(call, 1)[0])
        value = over_condition(self.scalars, call.condition, value)
        if isinstance(value.expression, Literal) and not value.null:
            return Aggregate(function=Function.COUNT, per_group=per_group)
        return Aggregate(function=Function.COUNT, arguments=(_counted(value),), per_group=per_group)

    def _distinct(self, call: AggregateCall) -> Aggregate:
        if len(call.arguments) != 1 or call.star:
            raise refused("types", "COUNT(DISTINCT …) needs one argument", "Join several with ||")
        value = self.scalars.bind(call.arguments[0])
        filtered = over_condition(self.scalars, call.condition, value)
        if self._is_unit(value):
            whole = call.condition is None and isinstance(value.expression, Column)
            return Aggregate(function=Function.COUNT_UNITS, arguments=() if whole else (_counted(filtered),))
        return Aggregate(function=Function.COUNT_DISTINCT, arguments=(_counted(filtered),))

    def _is_unit(self, value: Typed) -> bool:
        """Whether every value is the unit's own id or NULL: the id itself, or CASE WHEN … THEN id END."""
        expression = value.expression
        if isinstance(expression, Column):
            return expression.name in self.units
        if getattr(expression, "function", "") != "case":
            return False
        arguments = expression.arguments  # type: ignore[union-attr]
        results = [*arguments[1:-1:2], arguments[-1]]
        ids = [each for each in results if isinstance(each, Column) and each.name in self.units]
        nulls = [each for each in results if isinstance(each, Literal) and each.value is None]
        return bool(ids) and len(ids) + len(nulls) == len(results)

    def _count_bounds(self, call: AggregateCall) -> tuple[Fraction, Fraction] | None:
        given = self._pair(call, "contribution_bounds_per_group")
        if given is None:
            return None
        low, high = given
        if low < 0 or low.denominator != 1 or high.denominator != 1:
            raise refused("options", "bounds of a count are whole numbers from 0")
        if high > self.rows:
            reason = f"the policy lets one unit count as at most {self.rows} rows of a group"
            raise refused("bounds_wider", reason, f"State at most (0, {self.rows})")
        return low, high

    # sums and moments

    def _moment(self, call: AggregateCall) -> Aggregate:
        function = _MOMENTS[call.name]
        self._only_named(call, "contribution_bounds_per_row", "contribution_bounds_per_group", "weight")
        nodes = self._arguments(call, 2 if function in _PAIRS else 1)
        values = [over_condition(self.scalars, call.condition, self.scalars.bind(node)) for node in nodes]
        if function is Function.SUM and values[0].kind is Kind.BOOLEAN:
            self._only_named(call, "weight")
            value = apply("case", (values[0], one(), literal(None, Kind.INTEGER)))
            return Aggregate(function=Function.COUNT, arguments=(_counted(value),))
        values = [ones_and_zeros(value) if value.kind is Kind.BOOLEAN else value for value in values]
        per_row = self._pair(call, "contribution_bounds_per_row")
        per_group = self._pair(call, "contribution_bounds_per_group")
        if per_group is not None and function is not Function.SUM:
            # of a mean both spellings bound each value, and so the mean of any unit
            if per_row is not None:
                raise refused("options", "state either bounds per row or per group")
            per_row, per_group = per_group, None
        arguments = []
        for value in values:
            self._number(value, call)
            arguments.append(self._bounded(value, per_row, per_group, call))
        if per_group is not None:
            per_group = self._group_bounds(arguments[0], per_group)
        return Aggregate(function=function, arguments=tuple(arguments), per_group=per_group)

    def _number(self, value: Typed, call: AggregateCall) -> None:
        name = call.spelling.upper()
        if isinstance(value.expression, Column) and value.expression.name in self.units:
            hint = "The unit can be counted: COUNT(DISTINCT …)"
            raise refused("unit_shown", f"{name} of the privacy unit isn't answered", hint)
        if value.kind.temporal:
            hint = "Turn it into a number first, for example date_diff('day', DATE '2020-01-01', d)"
            raise refused("types", f"{name} of a {value.kind.value} isn't supported", hint)
        if not value.kind.number:
            raise refused("types", f"{name} needs numbers and has {value.kind.value}")

    def _bounded(
        self,
        value: Typed,
        per_row: tuple[Fraction, Fraction] | None,
        per_group: tuple[Fraction, Fraction] | None,
        call: AggregateCall,
    ) -> Argument:
        facts = value.facts
        if per_row is not None:
            low, high = per_row
            declared = facts.bounds
            if declared is not None and not facts.auto and (low < declared.low or high > declared.high):
                reason = f"the policy bounds these values by {_shown(declared.low)} and {_shown(declared.high)}"
                raise refused("bounds_wider", reason, "State narrower bounds, or none")
            if value.kind is Kind.INTEGER and (low >= LARGEST_INTEGER or high < -LARGEST_INTEGER):
                hint = "State bounds between -9223372036854775808 and 9223372036854775807, or multiply it by 1.0"
                raise refused("types", "no integer lies within these bounds", hint)
            facts = Facts(bounds=Interval(low, high), step=facts.step)
        elif facts.bounds is None and not facts.auto:
            if per_group is None:
                self._bounds_missing(value, call)
            low, high = per_group
            # where nothing is known of a row, it is clamped to what a group may hold
            facts = Facts(bounds=Interval(min(low, Fraction(0)), max(high, Fraction(0))), step=facts.step)
        # keys say nothing about a number that is added up, and would only tell two spellings apart
        return Argument(expression=value.expression, facts=replace(facts, keys=None))

    def _group_bounds(self, argument: Argument, given: tuple[Fraction, Fraction]) -> tuple[Fraction, Fraction]:
        bounds = argument.facts.bounds
        if bounds is not None and not argument.facts.auto:
            least, most = min(bounds.low * self.rows, Fraction(0)), max(bounds.high * self.rows, Fraction(0))
            if given[0] < least or given[1] > most:
                reason = f"the policy bounds one unit's sum in a group by {_shown(least)} and {_shown(most)}"
                raise refused("bounds_wider", reason, "State narrower bounds, or none")
        return given

    def _bounds_missing(self, value: Typed, call: AggregateCall) -> NoReturn:
        origins = [found for name in sorted(columns(value.expression)) if (found := self.origin(name)) is not None]
        named = "Add contribution_bounds_per_row => (low, high), or have the owner declare between = [low, high]"
        if len(origins) == 1 and isinstance(value.expression, Column):
            table, column = origins[0]
            hint = f"{named} for the column {column} of {table}"
        else:
            hint = f"{named} for its columns"
        raise refused("bounds_missing", f"{call.spelling.upper()} needs bounds for its argument", hint)

    # quantiles and the mode

    def _quantile(self, call: AggregateCall) -> Aggregate:
        self._only_named(call, "contribution_bounds_per_row", "weight")
        share: Fraction | None = Fraction(1, 2)
        if call.name == "median":
            (node,) = self._arguments(call, 1)
        elif call.within is not None:
            only(call.within, "this", "desc", "nulls_first")
            node, share = call.within.this, exact_number(self._arguments(call, 1)[0])
            share = None if share is None else 1 - share if call.within.args.get("desc") else share
        else:
            node, at = self._arguments(call, 2)
            share = exact_number(at)
        if share is None or not 0 < share < 1 or share.denominator > LARGEST_DENOMINATOR:
            hint = "Write QUANTILE_CONT(x, 0.95); for the largest value use 0.99, say"
            raise refused("literal", "a quantile is a number between 0 and 1, with at most six digits", hint)
        value = over_condition(self.scalars, call.condition, self.scalars.bind(node))
        value = ones_and_zeros(value) if value.kind is Kind.BOOLEAN else value
        self._number(value, call)
        argument = self._bounded(value, self._pair(call, "contribution_bounds_per_row"), None, call)
        return Aggregate(function=Function.QUANTILE, arguments=(argument,), quantile=share)

    def _mode(self, call: AggregateCall) -> Aggregate:
        self._only_named(call, "weight")
        if call.within is not None:
            only(call.within, "this", "desc", "nulls_first")
        node = call.within.this if call.within is not None else self._arguments(call, 1)[0]
        value = over_condition(self.scalars, call.condition, self.scalars.bind(node))
        if any(isinstance(part, Column) and part.name in self.units for part in walk(value.expression)):
            raise refused("unit_shown", "MODE of the privacy unit isn't answered")
        keys = tuple(key for key in value.facts.keys or () if key is not None)
        if not keys:
            hint = "GROUP BY it with COUNT(*), or have the owner declare in = […] for its column"
            raise refused("aggregate", "MODE chooses among public values, and these aren't", hint)
        argument = Argument(expression=value.expression, facts=replace(value.facts, keys=keys))
        return Aggregate(function=Function.MODE, arguments=(argument,))

    # named arguments

    def _arguments(self, call: AggregateCall, count: int) -> Sequence[exp.Expr]:
        if len(call.arguments) != count or call.star:
            raise refused("types", f"{call.spelling.upper()} needs {count} argument{'s' if count > 1 else ''}")
        return call.arguments

    def _only_named(self, call: AggregateCall, *known: str) -> None:
        for name in call.named:
            if name not in known:
                raise refused("options", f"{name} has no meaning for {call.spelling.upper()}")

    def _weight(self, call: AggregateCall) -> Fraction:
        node = call.named.get("weight")
        weight = Fraction(1) if node is None else exact_number(node)
        if weight is None or not Fraction(1, 1000) <= weight <= 1000:
            raise refused("options", "a weight is a number between 0.001 and 1000")
        return weight

    def _pair(self, call: AggregateCall, name: str) -> tuple[Fraction, Fraction] | None:
        node = call.named.get(name)
        if node is None:
            return None
        parts = node.expressions if isinstance(node, exp.Tuple) else []
        numbers = [exact_number(part) for part in parts]
        low, high = numbers if len(numbers) == 2 else (None, None)
        if low is None or high is None or low >= high:
            raise refused("options", f"{name} needs two numbers, the smaller first", f"Write {name} => (0, 100)")
        return low, high


def _counted(value: Typed) -> Argument:
    """An argument of a count: only whether it is NULL, or equal to another, matters."""
    return Argument(expression=value.expression, facts=NOTHING)


def released_kind(aggregate: Aggregate) -> Kind:
    """The kind of an aggregate's answer: counts and sums of integers are whole, a mode is what it chooses among.

    Integers that are clamped to bounds with decimals no longer add up to integers.
    """
    if aggregate.function in _COUNTS:
        return Kind.INTEGER
    if aggregate.function is Function.MODE:
        return aggregate.arguments[0].expression.kind
    if aggregate.function is Function.SUM:
        bounds = aggregate.arguments[0].facts.bounds
        ends = [*((bounds.low, bounds.high) if bounds is not None else ()), *(aggregate.per_group or ())]
        return aggregate.arguments[0].expression.kind if all(end.denominator == 1 for end in ends) else Kind.DOUBLE
    return Kind.DOUBLE


def _shown(number: Fraction) -> str:
    return str(number.numerator) if number.denominator == 1 else f"{float(number):g}"
