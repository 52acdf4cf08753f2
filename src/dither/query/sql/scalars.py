"""Expressions of the text become expressions of the plan: typed, from the registry, nothing else.

Each kind of node is taken apart by one function that knows all its parts. A part that isn't known is refused, so a
clause can't be dropped in silence.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import ClassVar

from sqlglot import exp

from dither.errors import Refused
from dither.query.functions import SPELLINGS, Typed, adapt, apply, literal, temporal
from dither.query.kinds import Kind
from dither.query.sql.names import folded
from dither.query.sql.refusals import name_shown, placed, refused

DEEPEST_EXPRESSION = 150
LARGEST_INTEGER = 2**63 - 1

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
_CASTS: dict[exp.DType, str] = {
    exp.DType.BOOLEAN: "to_boolean",
    **dict.fromkeys((exp.DType.INT, exp.DType.BIGINT, exp.DType.SMALLINT, exp.DType.TINYINT), "to_integer"),
    **dict.fromkeys((exp.DType.FLOAT, exp.DType.DOUBLE, exp.DType.DECIMAL), "to_double"),
    **dict.fromkeys((exp.DType.TEXT, exp.DType.VARCHAR, exp.DType.CHAR), "to_text"),
    exp.DType.DATE: "to_date",
    **dict.fromkeys((exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ, exp.DType.DATETIME), "to_timestamp"),
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
_VOLATILE = {
    *("random", "rand", "uuid", "gen_random_uuid", "now", "today", "current_date", "current_timestamp", "current_time"),
    *("getdate", "localtime", "localtimestamp", "txid_current", "setseed", "nextval", "pg_sleep"),
}
_NO_PARENTHESES = (exp.CurrentDate, exp.CurrentTime, exp.CurrentTimestamp, exp.Localtime, exp.Localtimestamp)


def only(node: exp.Expr, *known: str) -> None:
    """Refuse a node that has any part besides the known ones: nothing is dropped in silence."""
    for name, value in node.args.items():
        if name not in known and value not in (None, False, [], ""):
            raise refused("unsupported", f"this use of {name_shown(_word(name))} isn't supported")


def _word(name: str) -> str:
    return name.strip("_").upper()


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

    def bind(self, node: exp.Expr | None) -> Typed:
        """The expression of a node, with its facts."""
        if node is None:
            raise refused("syntax", "an expression is missing")
        if self._depth > DEEPEST_EXPRESSION:
            raise refused("too_deep", "an expression is nested too deeply", "Split it with a subquery")
        self._depth += 1
        try:
            return self._bind(node)
        except Refused as error:
            raise placed(error, node, self._text) from None
        finally:
            self._depth -= 1

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
        if function is not None:
            only(node, "this", "expression", "typed", "safe")
            return self._binary(function, node)
        raise _unsupported(node)

    def _binary(self, function: str, node: exp.Expr) -> Typed:
        left, right = node.args.get("this"), node.args.get("expression")
        if function in ("add", "subtract") and isinstance(right, exp.Interval):
            return self._shifted(left, right, sign=1 if function == "add" else -1)
        if function == "add" and isinstance(left, exp.Interval):
            return self._shifted(right, left, sign=1)
        if isinstance(right, exp.All | exp.Any) or isinstance(left, exp.All | exp.Any):
            raise refused("subquery", "ANY and ALL aren't supported", "Use IN")
        return apply(function, (self.bind(left), self.bind(right)))

    def _shifted(self, moment: exp.Expr | None, interval: exp.Interval, *, sign: int) -> Typed:
        only(interval, "this", "unit")
        unit, size = interval.args.get("unit"), interval.this
        if not isinstance(unit, exp.Var) or not isinstance(size, exp.Literal | exp.Neg | exp.Paren):
            raise refused("literal", "an interval needs one number and one unit", "Write INTERVAL 3 DAY")
        count = _whole(size)
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
        if isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null):
            only(inner, "this", "expression")
            return apply("is_not_null", (self.bind(inner.this),))
        return apply("not", (self.predicate(inner),))

    def _is(self, node: exp.Expr) -> Typed:
        only(node, "this", "expression")
        if isinstance(node.expression, exp.Null):
            return apply("is_null", (self.bind(node.this),))
        if isinstance(node.expression, exp.Boolean):
            # three-valued: NULL IS TRUE is false
            same = apply("distinct_from", (self.predicate(node.this), constant(node.expression)))
            return apply("not", (same,))
        raise refused("unsupported", "IS is followed by NULL, TRUE, FALSE or DISTINCT FROM")

    def _null_safe_equal(self, node: exp.Expr) -> Typed:
        only(node, "this", "expression")
        return apply("not", (apply("distinct_from", (self.bind(node.this), self.bind(node.expression))),))

    def _between(self, node: exp.Expr) -> Typed:
        only(node, "this", "low", "high")
        value = self.bind(node.this)
        low, high = self.bind(node.args.get("low")), self.bind(node.args.get("high"))
        return apply("and", (apply("greater_equal", (value, low)), apply("less_equal", (value, high))))

    def _in(self, node: exp.Expr) -> Typed:
        if node.args.get("query") is not None or node.args.get("unnest") is not None:
            raise refused(
                "subquery",
                "IN with a subquery can stand by itself or between ANDs in WHERE only",
                "Write WHERE … AND x IN (SELECT …)",
            )
        only(node, "this", "expressions")
        values = [self.bind(value) for value in node.expressions]
        if any(value.null for value in values):
            raise refused("literal", "NULL in a list after IN matches nothing", "Remove it, or ask IS NULL")
        value = self.bind(node.this)
        if all(_constant(value) for value in values):
            return apply("in", (value, *values))
        return balanced("or", [apply("equal", (value, each)) for each in values])

    def _negate(self, node: exp.Expr) -> Typed:
        only(node, "this")
        if isinstance(node.this, exp.Literal) and not node.this.args.get("is_string"):
            return numeral("-" + str(node.this.this))
        return apply("negate", (self.bind(node.this),))

    def _case(self, node: exp.Expr) -> Typed:
        only(node, "this", "ifs", "default")
        subject = node.args.get("this")
        arguments: list[Typed] = []
        for branch in node.args.get("ifs") or []:
            only(branch, "this", "true")
            if subject is None:
                arguments.append(self.predicate(branch.this))
            else:
                arguments.append(apply("equal", (self.bind(subject), self.bind(branch.this))))
            arguments.append(self.bind(branch.args.get("true")))
        default = node.args.get("default")
        arguments.append(literal(None, Kind.TEXT) if default is None else self.bind(default))
        return apply("case", arguments)

    def _cast(self, node: exp.Expr) -> Typed:
        # CAST and TRY_CAST mean the same: what can't be converted is NULL
        only(node, "this", "to", "safe", "requires_string")
        target = node.args.get("to")
        if not isinstance(target, exp.DataType) or not isinstance(target.this, exp.DType) or target.args.get("nested"):
            raise refused("types", "this type isn't supported", _TYPES_HINT)
        function = _CASTS.get(target.this)
        if function is None:
            raise refused("types", "this type isn't supported", _TYPES_HINT)
        only(target, "this", "nested", "expressions")
        value = self.bind(node.this)
        kind = Kind(function.removeprefix("to_"))
        fixed = _constant(value) and value.kind is Kind.TEXT and kind.temporal
        if fixed and isinstance(node.this, exp.Literal):
            result = temporal(str(node.this.this), kind)
        elif value.null or value.kind is kind:
            result = adapt(value, kind) or value
        else:
            result = apply(function, (value,))
        parameters = target.expressions
        if target.this is exp.DType.DECIMAL and parameters:
            digits = _whole(parameters[1].this) if len(parameters) > 1 else 0
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
        function = SPELLINGS.get(name)
        if function is None:
            raise unknown_function(name)
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


_TYPES_HINT = "Types are BOOLEAN, INTEGER, DOUBLE, DECIMAL, VARCHAR, DATE, TIMESTAMP"


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
    """The refusal of a function that isn't on the list."""
    if name in _VOLATILE:
        return refused(
            "unknown_function",
            f"{name_shown(name)} doesn't depend on the row alone",
            "Write the value into the question",
        )
    return refused("unknown_function", f"there is no function {name_shown(name)}", "docs/sql.md lists all functions")


def constant(node: exp.Expr) -> Typed:
    """A literal as a typed constant."""
    if isinstance(node, exp.Null):
        return literal(None, Kind.TEXT)
    if isinstance(node, exp.Boolean):
        return literal(bool(node.this), Kind.BOOLEAN)
    text = str(node.this)
    if node.args.get("is_string"):
        return literal(text, Kind.TEXT)
    return numeral(text)


def numeral(text: str) -> Typed:
    """A number as written: whole and within 64 bits is an integer, else a double."""
    plain = text.removeprefix("-")
    if plain.isascii() and plain.isdecimal() and len(plain) < 25:
        value = int(text)
        if -LARGEST_INTEGER <= value <= LARGEST_INTEGER:
            return literal(value, Kind.INTEGER)
    return literal(_double(text), Kind.DOUBLE)


def _double(text: str) -> float:
    try:
        value = float(text) if text.isascii() else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise refused("literal", "this number can't be read", "Write digits, at most one point, perhaps an exponent")
    return value


def exact_number(node: exp.Expr | None) -> Fraction | None:
    """A number of the text, exactly as its decimal says; None if it isn't one."""
    sign = 1
    while isinstance(node, exp.Paren | exp.Neg):
        sign = -sign if isinstance(node, exp.Neg) else sign
        node = node.this
    if not isinstance(node, exp.Literal) or node.args.get("is_string"):
        return None
    text = str(node.this)
    # a decimal with a huge exponent is a huge fraction
    if len(text) > 40 or not text.isascii() or not math.isfinite(_double(text)):
        return None
    try:
        mantissa, _, exponent = text.lower().partition("e")
        return (
            sign * Fraction(mantissa) * Fraction(10) ** int(exponent or "0")
            if abs(int(exponent or "0")) <= 400
            else None
        )
    except ValueError:
        return None


def _whole(node: exp.Expr | None) -> int | None:
    if isinstance(node, exp.Literal) and node.args.get("is_string"):
        text = str(node.this).strip()
        small = text.removeprefix("-").isascii() and text.removeprefix("-").isdecimal() and len(text) < 10
        return int(text) if small else None
    value = exact_number(node)
    return int(value) if value is not None and value.denominator == 1 and abs(value) < 10**9 else None


def _constant(value: Typed) -> bool:
    return not value.null and value.facts.keys is not None and type(value.expression).__name__ == "Literal"


def _unsupported(node: exp.Expr) -> Refused:
    if isinstance(node, exp.Placeholder | exp.Parameter | exp.SessionParameter):
        return refused("parameter", "there is no value for a placeholder", "Write the value into the question")
    if isinstance(node, exp.Query | exp.Exists | exp.Subquery):
        return refused(
            "subquery", "a subquery can't stand in an expression", "Join with it, or use IN between ANDs in WHERE"
        )
    if isinstance(node, _NO_PARENTHESES):
        return unknown_function(folded(node.key))
    if isinstance(node, exp.Star):
        return refused("unsupported", "* can stand for itself in a select list or in COUNT(*) only")
    if isinstance(node, exp.Window):
        return refused("window", "a window can't stand here", "Use it in the select list of a subquery")
    if isinstance(node, exp.Distinct | exp.Kwarg | exp.Filter | exp.WithinGroup | exp.Order | exp.IgnoreNulls):
        return refused("aggregate", "this form is for aggregates only")
    return refused("unsupported", "this kind of expression isn't supported", "docs/sql.md lists what is")
