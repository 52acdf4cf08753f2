"""Expressions of the text become those of the plan: typed, from the registry, nothing else.

Each kind of node is taken apart by one function that knows all its parts. A part that isn't known is refused, so a
clause can't be dropped in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import ClassVar

from sqlglot import exp

from dither.errors import Refused, near_names
from dither.query.expressions.calendar_keys import calendar_of, column_of
from dither.query.expressions.functions import SPELLINGS, Typed, adapt, apply, literal, temporal
from dither.query.expressions.ranges import steps_between, whole_numbers
from dither.query.kinds import Auto, Call, Column, Expression, Facts, Interval, Kind, Later, Value, ascending, number
from dither.query.plan.plan import PlanField
from dither.query.refusals import name_shown, only, placed, refused
from dither.query.schema import ColumnFacts, TableFacts
from dither.query.sql.constants import (
    KINDS,
    TYPES_HINT,
    constant,
    element,
    formatted,
    instant,
    is_constant,
    listed,
    numeral,
    readable,
    whole,
)
from dither.query.sql.date_texts import day_name, month_name, strftime
from dither.query.sql.names import folded


def typed(field: PlanField) -> Typed:
    """The expression that reads a field."""
    return Typed(Column(field.name, field.kind), field.facts)


def column_facts(table: TableFacts, column: ColumnFacts) -> Facts:
    """What follows from the owner's declaration of a column."""
    bounds: Interval | None = None
    auto: frozenset[tuple[str, str]] = frozenset()
    step = column.step if column.kind.number else None
    keys = None if column.keys is None else ascending(_of_kind(value, column.kind) for value in column.keys)
    if column.kind.number:
        if column.between is Auto.AUTO or column.searched:
            auto = frozenset({(table.name, column.name)})
        if isinstance(column.between, Interval):
            bounds = column.between
        elif keys is not None and not auto:
            numbers = [value for key in keys if (value := number(key)) is not None]
            bounds = Interval(min(numbers), max(numbers)) if numbers else None
    if column.kind is Kind.INTEGER:
        step = step if step is not None and step.denominator == 1 else Fraction(1)
        if keys is None and not auto and column.name != table.unit_column:
            keys = whole_numbers(bounds, step, column.kind)
    if column.kind is Kind.BOOLEAN and keys is None:
        keys = (False, True)
    for_keys = None
    if keys is None and isinstance(column.between, Interval) and column.name != table.unit_column:
        if column.kind.temporal:
            calendar = calendar_of(column.between, column.kind)
            for_keys = None if calendar is None else column_of(calendar)
        elif column.kind is Kind.DOUBLE and step is not None and not auto:
            later = Later((), lambda: steps_between(bounds, step))
            for_keys = Facts(bounds=bounds, step=step, keys=later)  # type: ignore[arg-type]
    return Facts(bounds=bounds, step=step, keys=keys, auto=auto, for_keys=for_keys)


def _of_kind(value: Value, kind: Kind) -> Value:
    if isinstance(value, bool) or value is None:
        return value
    if kind is Kind.DOUBLE and isinstance(value, int | float | Fraction):
        return float(value)
    if kind is Kind.INTEGER and isinstance(value, float | Fraction) and Fraction(value).denominator == 1:
        return int(value)
    return value


# ---------------------------------------------------------------------------------------------- expressions


DEEPEST_EXPRESSION = 150
# BETWEEN and CASE x WHEN write x twice, so nesting them doubles an expression at each level: a line of text could keep
# the code that writes it out busy for years.
LARGEST_EXPRESSION = 10_000

_BINARY: dict[type[exp.Expr], str] = {
    exp.Add: "add",
    exp.Sub: "subtract",
    exp.Mul: "multiply",
    exp.Div: "divide",
    exp.IntDiv: "integer_divide",
    exp.Mod: "modulo",
    exp.Pow: "power",
    exp.EQ: "equal",
    exp.NEQ: "not_equal",
    exp.LT: "less",
    exp.LTE: "less_equal",
    exp.GT: "greater",
    exp.GTE: "greater_equal",
    exp.NullSafeNEQ: "distinct_from",
    exp.Like: "like",
    exp.ILike: "ilike",
    exp.DPipe: "concat",
}
_PARTS = {
    "year": "year",
    "quarter": "quarter",
    "month": "month",
    "week": "week",
    "day": "day",
    "isodow": "day_of_week",
    "dayofweekiso": "day_of_week",
    "doy": "day_of_year",
    "dayofyear": "day_of_year",
    "hour": "hour",
    "minute": "minute",
    "second": "second",
}
_VOLATILE = {"random", "rand", "uuid", "gen_random_uuid", "txid_current", "setseed", "nextval", "pg_sleep"}
_CLOCKS = {
    *("now", "today", "current_date", "current_datetime", "current_time", "current_timestamp", "localtime", "sysdate"),
    *("localtimestamp", "getdate", "curdate", "curtime", "get_current_time", "get_current_timestamp", "systimestamp"),
    *("transaction_timestamp", "statement_timestamp", "clock_timestamp", "timeofday", "unix_timestamp"),
}


class Scalars:
    """Binds the expressions of one place in the question.

    ``column`` says what a column stands for. ``special`` is asked first about calls, windows and subqueries: aggregates
    mean different things in different places.
    """

    def __init__(
        self, text: str, *, column: Callable[[exp.Column], Typed], special: Callable[[exp.Expr], Typed | None]
    ) -> None:
        self._text, self._column, self._special = text, column, special
        self._depth = 0
        # by identity, with the expression beside each so that no identity is given out again
        self._sizes: dict[int, tuple[Expression, int]] = {}

    def bind(self, node: exp.Expr | None) -> Typed:
        """The expression of a node, with its facts."""
        if node is None:
            raise refused("syntax", "an expression is missing")
        if self._depth > DEEPEST_EXPRESSION:
            raise refused("too_deep", "an expression is nested too deeply", "Split it with a subquery")
        self._depth += 1
        try:
            bound = self._bind(node)
            if self._size(bound.expression) > LARGEST_EXPRESSION + len(self._text):
                reason = "this expression is too long when it is written out"
                raise refused("too_long", reason, "Nest BETWEEN and CASE less deeply")
            return bound  # noqa: TRY300 - the refusal above gets its place as all do
        except Refused as error:
            raise placed(error, node, self._text) from None
        finally:
            self._depth -= 1

    def _size(self, expression: Expression) -> int:
        """How many parts an expression has, each counted as often as it stands there."""
        known = self._sizes.get(id(expression))
        if known is None:
            inner = expression.arguments if isinstance(expression, Call) else ()
            known = self._sizes[id(expression)] = (expression, 1 + sum(self._size(each) for each in inner))
        return known[1]

    def predicate(self, node: exp.Expr | None) -> Typed:
        """An expression that is true or not."""
        bound = self.bind(node)
        fitted = adapt(bound, Kind.BOOLEAN)
        if fitted is None:
            error = refused("types", f"a condition must be boolean and is {bound.kind.value}")
            raise placed(error, node, self._text)
        return fitted

    def _bind(self, node: exp.Expr) -> Typed:
        if isinstance(node, exp.Column):
            return self._column(node)
        if isinstance(node, exp.Literal | exp.Null | exp.Boolean):
            return constant(node)
        if isinstance(node, exp.Paren):
            only(node, "this")
            return self.bind(node.this)
        if isinstance(
            node, exp.Anonymous | exp.Window | exp.WithinGroup | exp.Filter | exp.Query | exp.Exists | exp.In
        ):
            special = self._special(node)
            if special is not None:
                return special
        bind = self._NODES.get(type(node))
        if bind is not None:
            return bind(self, node)
        function = _BINARY.get(type(node))
        if function is None:
            raise _unsupported(node)
        if isinstance(node, exp.Like | exp.ILike):
            only(node, "this", "expression", "negate")
            return _marked(node, self._binary(function, node))
        only(node, "this", "expression", "typed", "safe")
        return self._binary(function, node)

    def _binary(self, function: str, node: exp.Expr) -> Typed:
        left, right = node.args.get("this"), node.args.get("expression")
        if function in ("add", "subtract") and isinstance(right, exp.Interval):
            return self._shifted(left, right, sign=1 if function == "add" else -1)
        if function == "add" and isinstance(left, exp.Interval):
            return self._shifted(right, left, sign=1)
        if isinstance(right, exp.All | exp.Any) or isinstance(left, exp.All | exp.Any):
            raise refused("subquery", "ANY and ALL of a subquery aren't supported", "Use IN")
        if isinstance(right, exp.Anonymous) and call_name(right) in ("any", "some", "all"):
            return self._quantified(function, left, right)
        return self._applied(function, (left, right), (self.bind(left), self.bind(right)))

    def _applied(self, function: str, nodes: Sequence[exp.Expr | None], arguments: Sequence[Typed]) -> Typed:
        """The call; if a text among the arguments isn't the date that it should be, the refusal has its place."""
        try:
            return apply(function, arguments)
        except Refused as error:
            if error.code == "literal":
                for node, argument in zip(nodes, arguments, strict=True):
                    if not readable(argument):
                        raise placed(error, node, self._text) from None
            raise

    def _quantified(self, function: str, left: exp.Expr | None, right: exp.Anonymous) -> Typed:
        """``= ANY`` of a list is IN, and ``<> ALL`` is NOT IN."""
        only(right, "this", "expressions")
        name = call_name(right)
        negated = name == "all"
        if function != ("not_equal" if negated else "equal") or len(right.expressions) != 1:
            hint = "Write x = ANY(ARRAY[1, 2]), x <> ALL(ARRAY[1, 2]), or comparisons with OR and AND"
            raise refused("unsupported", f"{name.upper()} can't stand here", hint)
        try:
            found = listed(right.expressions[0])
        except Refused as error:
            raise placed(error, right.expressions[0], self._text) from None
        value = self.bind(left)
        # a text alone has no type, as with PostgreSQL: it is read as what it is compared with
        kind = found.kind or (value.kind if found.text and not value.kind.temporal else None)
        elements = [self._element(node, kind, zoned=found.zoned) for node in found.elements]
        among = self._among(left, value, found.elements, elements)
        return apply("not", (among,)) if negated else among

    def _element(self, node: exp.Expr, kind: Kind | None, *, zoned: bool) -> Typed:
        bound = self.bind(node)
        try:
            return bound if kind is None or bound.null else element(bound, kind, zoned=zoned)
        except Refused as error:
            raise placed(error, node, self._text) from None

    def _shifted(self, moment: exp.Expr | None, interval: exp.Interval, *, sign: int) -> Typed:
        only(interval, "this", "unit")
        unit, size = interval.args.get("unit"), interval.this
        if not isinstance(unit, exp.Var) or not isinstance(size, exp.Literal | exp.Neg | exp.Paren):
            raise refused("literal", "an interval needs one number and one unit", "Write INTERVAL 3 DAY")
        count = whole(size)
        if count is None:
            raise refused("literal", "an interval needs a whole number", "Write INTERVAL 3 DAY")
        start = self.bind(moment)
        start = start if start.kind.temporal else adapt(start, Kind.DATE) or start
        return apply("date_add", (start, literal(sign * count, Kind.INTEGER), literal(unit.name, Kind.TEXT)))

    def _logic(self, node: exp.Expr) -> Typed:
        only(node, "this", "expression")
        kind = type(node)
        name = "and" if kind is exp.And else "or"
        return balanced(name, [self.predicate(part) for part in flattened(node, kind)])

    def _not(self, node: exp.Expr) -> Typed:
        only(node, "this")
        inner = node.this
        if isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null) and not inner.args.get("negate"):
            only(inner, "this", "expression")
            return apply("is_not_null", (self.bind(inner.this),))
        return apply("not", (self.predicate(inner),))

    def _is(self, node: exp.Expr) -> Typed:
        only(node, "this", "expression", "negate")
        if isinstance(node.expression, exp.Null):
            return apply("is_not_null" if node.args.get("negate") else "is_null", (self.bind(node.this),))
        if isinstance(node.expression, exp.Boolean):
            # three-valued: NULL IS TRUE is false
            same = apply("distinct_from", (self.predicate(node.this), constant(node.expression)))
            return _marked(node, apply("not", (same,)))
        raise refused("unsupported", "IS is followed by NULL, TRUE, FALSE or DISTINCT FROM")

    def _null_safe_equal(self, node: exp.Expr) -> Typed:
        only(node, "this", "expression")
        return apply("not", (apply("distinct_from", (self.bind(node.this), self.bind(node.expression))),))

    def _between(self, node: exp.Expr) -> Typed:
        only(node, "this", "low", "high")
        value = self.bind(node.this)
        ends = [node.args.get("low"), node.args.get("high")]
        low, high = [self.bind(end) for end in ends]
        above = self._applied("greater_equal", (node.this, ends[0]), (value, low))
        return apply("and", (above, self._applied("less_equal", (node.this, ends[1]), (value, high))))

    def _in(self, node: exp.Expr) -> Typed:
        if node.args.get("query") is not None or node.args.get("unnest") is not None:
            raise refused(
                "subquery",
                "IN with a subquery can stand by itself or between ANDs in WHERE only",
                "Write WHERE … AND x IN (SELECT …)",
            )
        only(node, "this", "expressions")
        values = [self.bind(value) for value in node.expressions]
        return self._among(node.this, self.bind(node.this), node.expressions, values)

    def _among(self, node: exp.Expr | None, value: Typed, nodes: Sequence[exp.Expr], values: Sequence[Typed]) -> Typed:
        for null in (each for each, bound in zip(nodes, values, strict=True) if bound.null):
            error = refused("literal", "NULL in a list matches nothing", "Remove it, or ask IS NULL")
            raise placed(error, null, self._text)
        if all(is_constant(each) for each in values):
            return self._applied("in", (node, *nodes), (value, *values))
        equal = [self._applied("equal", (node, n), (value, v)) for n, v in zip(nodes, values, strict=True)]
        return balanced("or", equal)

    def _negate(self, node: exp.Expr) -> Typed:
        only(node, "this")
        if isinstance(node.this, exp.Literal) and not node.this.args.get("is_string"):
            return numeral("-" + str(node.this.this))
        return apply("negate", (self.bind(node.this),))

    def _case(self, node: exp.Expr) -> Typed:
        only(node, "this", "ifs", "default")
        subject = node.args.get("this")
        value = None if subject is None else self.bind(subject)
        arguments: list[Typed] = []
        for branch in node.args.get("ifs") or []:
            only(branch, "this", "true")
            if value is None:
                arguments.append(self.predicate(branch.this))
            else:
                when = self.bind(branch.this)
                arguments.append(self._applied("equal", (subject, branch.this), (value, when)))
            arguments.append(self.bind(branch.args.get("true")))
        default = node.args.get("default")
        arguments.append(literal(None, Kind.TEXT) if default is None else self.bind(default))
        return apply("case", arguments)

    def _cast(self, node: exp.Expr) -> Typed:
        # CAST and TRY_CAST mean the same: what can't be converted is NULL
        only(node, "this", "to", "safe", "requires_string")
        target = node.args.get("to")
        if not isinstance(target, exp.DataType) or not isinstance(target.this, exp.DType) or target.args.get("nested"):
            raise refused("types", "this type isn't supported", TYPES_HINT)
        if target.this is exp.DType.TIMESTAMPTZ:
            only(target, "this", "nested")
            return instant(self.bind(node.this))
        kind = KINDS.get(target.this)
        if kind is None:
            raise refused("types", "this type isn't supported", TYPES_HINT)
        only(target, "this", "nested", "expressions")
        value = self.bind(node.this)
        fixed = is_constant(value) and value.kind is Kind.TEXT and kind.temporal
        if fixed and isinstance(node.this, exp.Literal):
            result = temporal(str(node.this.this), kind, zoned=False)
        elif value.null or value.kind is kind:
            result = adapt(value, kind) or value
        else:
            result = apply(f"to_{kind.value}", (value,))
        parameters = target.expressions
        if target.this is exp.DType.DECIMAL and parameters:
            digits = whole(parameters[1].this) if len(parameters) > 1 else 0
            return apply("round", (result, literal(digits, Kind.INTEGER)))
        return result

    def _extract(self, node: exp.Expr) -> Typed:
        only(node, "this", "expression")
        function = _PARTS.get(folded(node.this.name) if isinstance(node.this, exp.Expr) else "")
        if function is None:
            hint = f"Parts are {', '.join(sorted(_PARTS))}; weeks begin on Monday, isodow counts it as 1"
            raise refused("types", "this part of a date isn't supported", hint)
        return apply(function, (self.bind(node.expression),))

    def _trim(self, node: exp.Expr) -> Typed:
        only(node, "this", "position")
        names = {None: "trim", "BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}
        name = names.get(node.args.get("position"))
        if name is None:
            raise refused("unsupported", "this form of TRIM isn't supported", "Write trim(t), ltrim(t) or rtrim(t)")
        return apply(name, (self.bind(node.this),))

    def _substring(self, node: exp.Expr) -> Typed:
        only(node, "this", "start", "length")
        length = node.args.get("length")
        size = literal(2**31 - 1, Kind.INTEGER) if length is None else self.bind(length)
        return apply("substring", (self.bind(node.this), self.bind(node.args.get("start")), size))

    def _position(self, node: exp.Expr) -> Typed:
        only(node, "this", "substr")
        return apply("position", (self.bind(node.args.get("substr")), self.bind(node.this)))

    def _call(self, node: exp.Expr) -> Typed:
        only(node, "this", "expressions")
        name = call_name(node)
        if name in ("strpos", "instr"):
            text, needle = self._arguments(node, 2)
            return apply("position", (needle, text))
        if name in ("substr", "substring") and len(node.expressions) == 2:
            text, start = self._arguments(node, 2)
            return apply("substring", (text, start, literal(2**31 - 1, Kind.INTEGER)))
        if name == "concat":
            # of the function, unlike ||, NULL parts are skipped
            parts = [apply("coalesce", (part, literal("", Kind.TEXT))) for part in self._arguments(node, None)]
            return apply("concat", parts)
        if name in ("date_part", "datepart"):
            part, moment = node.expressions if len(node.expressions) == 2 else (None, None)
            function = _PARTS.get(folded(str(part.this)) if isinstance(part, exp.Literal) else "")
            if function is not None:
                return apply(function, (self.bind(moment),))
        if name == "strftime":
            when, form = self._arguments(node, 2)
            try:
                return strftime(when, form)
            except Refused as error:
                raise placed(error, node, self._text) from None
        if name in ("dayname", "monthname"):
            (when,) = self._arguments(node, 1)
            return day_name(when) if name == "dayname" else month_name(when)
        if name in ("to_date", "to_timestamp"):
            arguments = self._arguments(node, None)
            try:
                return formatted(name, arguments)
            except Refused as error:
                raise placed(error, node.expressions[0] if error.code == "literal" else node, self._text) from None
        function = SPELLINGS.get(name)
        if function is None:
            raise unknown_function(node.name)
        arguments = self._arguments(node, None)
        if function == "case" and len(arguments) == 2:
            arguments.append(literal(None, Kind.TEXT))
        return apply(function, arguments)

    def _arguments(self, node: exp.Expr, count: int | None) -> list[Typed]:
        if count is not None and len(node.expressions) != count:
            raise refused("types", f"{name_shown(call_name(node))} needs {count} arguments")
        return [self.bind(argument) for argument in node.expressions]

    _NODES: ClassVar[dict[type[exp.Expr], Callable[[Scalars, exp.Expr], Typed]]] = {
        exp.And: _logic,
        exp.Or: _logic,
        exp.Not: _not,
        exp.Is: _is,
        exp.NullSafeEQ: _null_safe_equal,
        exp.Between: _between,
        exp.In: _in,
        exp.Neg: _negate,
        exp.Case: _case,
        exp.Cast: _cast,
        exp.TryCast: _cast,
        exp.Extract: _extract,
        exp.Trim: _trim,
        exp.Substring: _substring,
        exp.StrPosition: _position,
        exp.Anonymous: _call,
    }


def _marked(node: exp.Expr, bound: Typed) -> Typed:
    """NOT LIKE is NOT of a LIKE for some versions of the parser, and a LIKE with this mark for others."""
    return apply("not", (bound,)) if node.args.get("negate") else bound


def flattened(node: exp.Expr, kind: type[exp.Expr]) -> list[exp.Expr]:
    """The operands of a chain of ANDs (or ORs), through parentheses, without recursion."""
    result: list[exp.Expr] = []
    waiting = [node]
    while waiting:
        current = waiting.pop()
        while isinstance(current, exp.Paren):
            only(current, "this")
            current = current.this
        if type(current) is kind:
            only(current, "this", "expression")
            waiting += [current.args["expression"], current.args["this"]]
        else:
            result.append(current)
    return result


def balanced(name: str, parts: list[Typed]) -> Typed:
    """A chain of ANDs or ORs as a shallow tree; both are associative in three-valued logic."""
    while len(parts) > 1:
        pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
        parts = [apply(name, pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return parts[0]


def call_name(node: exp.Expr) -> str:
    """The name of a called function, in lower case."""
    return folded(node.name)


def unknown_function(name: str) -> Refused:
    """The refusal of a function that isn't on the list, in the spelling of the text."""
    if folded(name) in _CLOCKS:
        return refused(
            "unknown_function",
            f"{name_shown(name)} depends on the clock; a question must mean the same tomorrow, when its stored answer "
            "is given again",
            "Write the date as a literal, like DATE '2024-01-31'",
        )
    if folded(name) in _VOLATILE:
        return refused(
            "unknown_function",
            f"{name_shown(name)} doesn't depend on the row alone",
            "Write the value into the question",
        )
    near = near_names(name, SPELLINGS)
    some = (
        f"Similar ones are {', '.join(near)}" if near else "Functions like round, lower, substr, coalesce can be used"
    )
    return refused("unknown_function", f"there is no function {name_shown(name)}", some)


def _unsupported(node: exp.Expr) -> Refused:
    if isinstance(node, exp.Placeholder | exp.Parameter | exp.SessionParameter):
        return refused("parameter", "there is no value for a placeholder", "Write the value into the question")
    if isinstance(node, exp.Query | exp.Exists | exp.Subquery):
        return refused(
            "subquery", "a subquery can't stand in an expression", "Join with it, or use IN between ANDs in WHERE"
        )
    if isinstance(node, exp.Star):
        return refused("unsupported", "* can stand for itself in a select list or in COUNT(*) only")
    if isinstance(node, exp.Window):
        return refused("window", "a window can't stand here", "Use it in the select list of a subquery")
    if isinstance(node, exp.Distinct | exp.Kwarg | exp.Filter | exp.WithinGroup | exp.Order | exp.IgnoreNulls):
        return refused("aggregate", "this form is for aggregates only")
    return refused(
        "unsupported",
        "this kind of expression isn't supported",
        "Use operators, CASE, CAST, and functions like round, lower, substr, coalesce",
    )
