"""The functions that expressions may call: how they are typed, what follows for bounds and public values.

One list for everybody: the front door binds to it, engines generate from it, docs/sql.md is counted against it. Every
function is deterministic, depends on its arguments alone, and gives NULL where an engine would raise.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import TypeAlias

from dither.errors import Refused
from dither.query.expressions.calendar_keys import called, dated_facts
from dither.query.expressions.dates import moment
from dither.query.expressions.public_values import public_values
from dither.query.expressions.ranges import RULES, rounded, step_of
from dither.query.kinds import Call, Expression, Facts, Interval, Kind, Later, Literal, Value, literal_step, point


@dataclass(frozen=True, slots=True)
class Typed:
    """An expression with what is publicly known about its values."""

    expression: Expression
    facts: Facts

    @property
    def kind(self) -> Kind:
        """Of its values."""
        return self.expression.kind

    @property
    def null(self) -> bool:
        """Whether it is the literal NULL, which takes any kind."""
        return isinstance(self.expression, Literal) and self.expression.value is None


Rule: TypeAlias = Callable[[str, tuple[Typed, ...]], tuple[tuple[Typed, ...], Kind]]

_B, _I, _D, _T = Kind.BOOLEAN, Kind.INTEGER, Kind.DOUBLE, Kind.TEXT
_DA, _TS = Kind.DATE, Kind.TIMESTAMP
_NUMBER, _WHEN = (_I, _D), (_DA, _TS)
DATE_UNITS = ("year", "quarter", "month", "week", "day")
TIME_UNITS = ("hour", "minute", "second")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    """A function of the registry: its permanent name, how SQL spells it, how it is typed.

    ``spellings`` are functions of SQL with the same arguments in the same order; ``syntax`` shows how it is written.
    ``constants`` are the arguments that must be literals. ``may_fail`` says that some engines would raise on some
    values, where the result must be NULL.
    """

    name: str
    syntax: str
    rule: Rule
    spellings: tuple[str, ...] = ()
    constants: frozenset[int] = frozenset()
    may_fail: bool = False


def literal(value: Value, kind: Kind) -> Typed:
    """A constant; its only value is public."""
    expression = Literal(value, kind)
    if value is None:
        return Typed(expression, Facts(keys=(None,)))
    return Typed(expression, Facts(bounds=point(expression), step=literal_step(value) or None, keys=(value,)))


def mistyped(reason: str, hint: str = "") -> Refused:
    """The refusal of a call whose arguments have the wrong kinds."""
    return Refused(reason, code="types", hint=hint)


def temporal(text: str, kind: Kind, *, zoned: bool = True) -> Typed:
    """A date or timestamp literal from its ISO text, in UTC."""
    return literal(moment(text, kind, zoned=zoned), kind)


def adapt(argument: Typed, kind: Kind) -> Typed | None:
    """The argument as a value of the kind, if that loses nothing: NULL, whole numbers, dates as text; else None."""
    if argument.null:
        return literal(None, kind)
    if argument.kind is kind:
        return argument
    value = argument.expression.value if isinstance(argument.expression, Literal) else None
    if argument.kind is Kind.INTEGER and kind is Kind.DOUBLE:
        if isinstance(value, int):
            return literal(float(value), kind)
        return apply("to_double", (argument,))
    if argument.kind is Kind.TEXT and kind.temporal and isinstance(value, str):
        return temporal(value, kind)
    if argument.kind is Kind.DATE and kind is Kind.TIMESTAMP:
        if isinstance(value, dt.date):
            return literal(dt.datetime.combine(value, dt.time()), kind)
        return apply("to_timestamp", (argument,))
    return None


def common_kind(arguments: Sequence[Typed]) -> Kind | None:
    """The kind in which all of them can be had; None if there is none."""
    kinds = {argument.kind for argument in arguments if not argument.null}
    if kinds & {_DA, _TS} and _T in kinds:
        texts = [a for a in arguments if a.kind is _T and not a.null]
        if all(isinstance(a.expression, Literal) for a in texts):
            kinds.discard(_T)
            if kinds == {_DA} and any(len(str(a.expression.value)) > 10 for a in texts):  # type: ignore[union-attr]
                kinds = {_TS}
    if not kinds:
        return arguments[0].kind
    if len(kinds) == 1:
        return kinds.pop()
    return _D if kinds == {_I, _D} else _TS if kinds == {_DA, _TS} else None


def aligned(name: str, arguments: Sequence[Typed], *, mix: bool = False) -> tuple[tuple[Typed, ...], Kind]:
    """All of one kind; ``mix`` leaves integers among doubles, and dates among timestamps, to the engine."""
    kind = common_kind(arguments)
    if kind is None:
        kinds = ", ".join(sorted({a.kind.value for a in arguments if not a.null}))
        raise mistyped(f"{name} needs arguments of one kind and has {kinds}", "Convert one of them with CAST")
    result = []
    for argument in arguments:
        keep = mix and not argument.null and (argument.kind.number or argument.kind.temporal)
        adapted = argument if keep else adapt(argument, kind)
        if adapted is None:
            raise mistyped(f"{name} needs arguments of one kind", "Convert one of them with CAST")
        result.append(adapted)
    return tuple(result), kind


def _positions(
    *accepted: tuple[Kind, ...], result: Kind | None = None, optional: int = 0, repeat: bool = False
) -> Rule:
    """Arguments by position. Without a result: DOUBLE if any of the first two is one, else the kind of the first."""

    def rule(name: str, arguments: tuple[Typed, ...]) -> tuple[tuple[Typed, ...], Kind]:
        most = math.inf if repeat else len(accepted)
        if not len(accepted) - optional <= len(arguments) <= most:
            raise mistyped(f"{name} needs {len(accepted) - optional or 1} arguments and has {len(arguments)}")
        bound = []
        for index, argument in enumerate(arguments):
            kinds = accepted[min(index, len(accepted) - 1)]
            if argument.kind in kinds and not argument.null:
                bound.append(argument)
                continue
            fits = (adapted for kind in kinds if (adapted := _fit(argument, kind)) is not None)
            adapted = next(fits, None)
            if adapted is None:
                wanted = " or ".join(kind.value for kind in kinds)
                raise mistyped(f"argument {index + 1} of {name} must be {wanted} and is {argument.kind.value}")
            bound.append(adapted)
        if result is not None:
            return tuple(bound), result
        kinds_of = {argument.kind for argument in bound[:2]}
        return tuple(bound), _D if _D in kinds_of else bound[0].kind

    return rule


def _fit(argument: Typed, kind: Kind) -> Typed | None:
    # a text that isn't a date is an error of kinds here, not of the literal
    try:
        return adapt(argument, kind)
    except Refused:
        return None


def _same(result: Kind | None = None, *, least: int = 1, most: int | None = None, mix: bool = False) -> Rule:
    def rule(name: str, arguments: tuple[Typed, ...]) -> tuple[tuple[Typed, ...], Kind]:
        if len(arguments) < least or (most is not None and len(arguments) > most):
            raise mistyped(f"{name} needs at least {least} arguments and has {len(arguments)}")
        bound, kind = aligned(name, arguments, mix=mix)
        return bound, result or kind

    return rule


def _case(_: str, arguments: tuple[Typed, ...]) -> tuple[tuple[Typed, ...], Kind]:
    if len(arguments) < 3 or len(arguments) % 2 == 0:
        raise mistyped("CASE needs conditions, results and a default")
    conditions = []
    for condition in arguments[:-1:2]:
        adapted = adapt(condition, Kind.BOOLEAN)
        if adapted is None:
            raise mistyped(f"a condition of CASE must be boolean and is {condition.kind.value}")
        conditions.append(adapted)
    results, kind = aligned("CASE", (*arguments[1:-1:2], arguments[-1]))
    paired = [part for pair in zip(conditions, results[:-1], strict=True) for part in pair]
    return (*paired, results[-1]), kind


def _any(result: Kind) -> Rule:
    def rule(name: str, arguments: tuple[Typed, ...]) -> tuple[tuple[Typed, ...], Kind]:
        if len(arguments) != 1:
            raise mistyped(f"{name} needs one argument and has {len(arguments)}")
        return arguments, result

    return rule


def _unit(position: int, units: tuple[str, ...], rule: Rule) -> Rule:
    def checked(name: str, arguments: tuple[Typed, ...]) -> tuple[tuple[Typed, ...], Kind]:
        bound, kind = rule(name, arguments)
        given = bound[position].expression
        unit = str(given.value).lower() if isinstance(given, Literal) else ""
        unit = unit[:-1] if unit.endswith("s") else unit
        if unit not in units:
            raise mistyped(f"{name} doesn't know this unit", f"Units are {', '.join(units)}")
        bound = (*bound[:position], literal(unit, _T), *bound[position + 1 :])
        when = next(argument.kind for argument in bound if argument.kind.temporal)
        if name == "date_trunc":
            kind = when
        if name == "date_add":
            kind = _TS if unit in TIME_UNITS else when
        return bound, kind

    return checked


def _list() -> tuple[Scalar, ...]:
    n2, n1 = _positions(_NUMBER, _NUMBER), _positions(_NUMBER)
    real, compare = _positions(_NUMBER, result=_D), _same(_B, least=2, most=2, mix=True)
    text, part = _positions((_T,), result=_T), _positions(_WHEN, result=_I)
    clock = _positions((_TS,), result=_I)
    has = _positions((_T,), (_T,), result=_B)
    logic = _positions((_B,), (_B,), result=_B)
    trunc_units = (*DATE_UNITS, "hour", "minute")
    add_units = (*DATE_UNITS, *TIME_UNITS)
    f = _scalar
    return (
        f("add", "a + b", n2, fail=True),
        f("subtract", "a - b", n2, fail=True),
        f("multiply", "a * b", n2, fail=True),
        f("negate", "-a", n1, fail=True),
        f("abs", "abs(a)", n1, "abs", fail=True),
        f("divide", "a / b", _positions(_NUMBER, _NUMBER, result=_D), fail=True),
        f("integer_divide", "a // b", _positions((_I,), (_I,), result=_I), "div", fail=True),
        f("modulo", "a % b", _positions((_I,), (_I,), result=_I), "mod", fail=True),
        f("power", "a ^ b", _positions(_NUMBER, _NUMBER, result=_D), "power", "pow", fail=True),
        f("sqrt", "sqrt(a)", real, "sqrt", fail=True),
        f("exp", "exp(a)", real, "exp", fail=True),
        f("ln", "ln(a)", real, "ln", fail=True),
        f("log10", "log10(a)", real, "log10", "log", fail=True),
        f("log2", "log2(a)", real, "log2", fail=True),
        f("floor", "floor(a)", n1, "floor"),
        f("ceil", "ceil(a)", n1, "ceil", "ceiling"),
        f("trunc", "trunc(a)", n1, "trunc"),
        f("round", "round(a [, digits])", _round, "round", constants=(1,), fail=True),
        f("sign", "sign(a)", _positions(_NUMBER, result=_I), "sign"),
        f("greatest", "greatest(a, b, …)", _same(), "greatest"),
        f("least", "least(a, b, …)", _same(), "least"),
        f("is_nan", "isnan(a)", _positions((_D,), result=_B), "isnan", "is_nan"),
        f("equal", "a = b", compare),
        f("not_equal", "a <> b", compare),
        f("less", "a < b", compare),
        f("less_equal", "a <= b", compare),
        f("greater", "a > b", compare),
        f("greater_equal", "a >= b", compare),
        f("distinct_from", "a IS DISTINCT FROM b", compare),
        f("in", "a IN (1, 2, …)", _same(_B, least=2, mix=True)),
        f("is_null", "a IS NULL", _any(_B)),
        f("is_not_null", "a IS NOT NULL", _any(_B)),
        f("and", "p AND q", logic),
        f("or", "p OR q", logic),
        f("not", "NOT p", _positions((_B,), result=_B)),
        f("case", "CASE WHEN p THEN a … ELSE b END", _case, "if", "iff"),
        f("coalesce", "coalesce(a, b, …)", _same(), "coalesce", "ifnull"),
        f("nullif", "nullif(a, b)", _same(least=2, most=2), "nullif"),
        f("lower", "lower(t)", text, "lower", "lcase"),
        f("upper", "upper(t)", text, "upper", "ucase"),
        f("trim", "trim(t)", text, "trim"),
        f("ltrim", "ltrim(t)", text, "ltrim"),
        f("rtrim", "rtrim(t)", text, "rtrim"),
        f("length", "length(t)", _positions((_T,), result=_I), "length", "len", "char_length", "character_length"),
        f("substring", "substring(t, start, length)", _text_and(2), "substring", "substr", constants=(1, 2)),
        f("left", "left(t, n)", _text_and(1), "left", constants=(1,)),
        f("right", "right(t, n)", _text_and(1), "right", constants=(1,)),
        f("concat", "a || b", _positions((_T,), result=_T, repeat=True)),
        f("replace", "replace(t, 'a', 'b')", _positions((_T,), (_T,), (_T,), result=_T), "replace", constants=(1, 2)),
        f("starts_with", "starts_with(t, a)", has, "starts_with"),
        f("ends_with", "ends_with(t, a)", has, "ends_with", "suffix"),
        f("contains", "contains(t, a)", has, "contains"),
        f("like", "t LIKE 'a%'", has, constants=(1,)),
        f("ilike", "t ILIKE 'a%'", has, constants=(1,)),
        f("position", "position('a' IN t)", _positions((_T,), (_T,), result=_I), constants=(0,)),
        f("year", "year(d)", part, "year"),
        f("quarter", "quarter(d)", part, "quarter"),
        f("month", "month(d)", part, "month"),
        f("day", "day(d)", part, "day", "dayofmonth"),
        f("day_of_week", "isodow(d)", part, "isodow"),
        f("day_of_year", "dayofyear(d)", part, "dayofyear"),
        f("week", "week(d)", part, "week", "weekofyear"),
        f("hour", "hour(s)", clock, "hour"),
        f("minute", "minute(s)", clock, "minute"),
        f("second", "second(s)", clock, "second"),
        f(
            "date_trunc",
            "date_trunc('month', d)",
            _unit(0, trunc_units, _positions((_T,), _WHEN)),
            *("date_trunc", "datetrunc"),
            constants=(0,),
            fail=True,
        ),
        f(
            "date_add",
            "d + INTERVAL 3 DAY",
            _unit(2, add_units, _positions(_WHEN, (_I,), (_T,))),
            constants=(2,),
            fail=True,
        ),
        f(
            "date_diff",
            "date_diff('day', d, e)",
            _unit(0, add_units, _positions((_T,), _WHEN, _WHEN, result=_I)),
            *("date_diff", "datediff"),
            constants=(0,),
            fail=True,
        ),
        f("to_boolean", "CAST(a AS BOOLEAN)", _positions((_B, _I, _T), result=_B), fail=True),
        f("to_integer", "CAST(a AS INTEGER)", _positions((_B, _I, _D, _T), result=_I), fail=True),
        f("to_double", "CAST(a AS DOUBLE)", _positions((_I, _D, _T), result=_D), fail=True),
        f("to_text", "CAST(a AS VARCHAR)", _positions((_T, _B, _I, _D, _DA, _TS), result=_T), fail=True),
        f("to_date", "CAST(a AS DATE)", _positions((_DA, _TS, _T), result=_DA), fail=True),
        f("to_timestamp", "CAST(a AS TIMESTAMP)", _positions((_TS, _DA, _T), result=_TS), fail=True),
    )


def _scalar(
    name: str, syntax: str, rule: Rule, *spellings: str, constants: tuple[int, ...] = (), fail: bool = False
) -> Scalar:
    return Scalar(
        name=name, syntax=syntax, rule=rule, spellings=spellings, constants=frozenset(constants), may_fail=fail
    )


def _text_and(numbers: int) -> Rule:
    """A text and constant whole numbers that aren't negative: engines differ in what a negative one means."""
    typed = _positions((_T,), *[(_I,)] * numbers, result=_T)

    def rule(name: str, arguments: tuple[Typed, ...]) -> tuple[tuple[Typed, ...], Kind]:
        bound, kind = typed(name, arguments)
        for argument in bound[1:]:
            value = argument.expression.value if isinstance(argument.expression, Literal) else None
            if isinstance(value, int) and not 0 <= value <= 2**31 - 1:
                raise mistyped(f"{name} needs numbers that aren't negative")
        if name == "substring" and bound[1].expression == Literal(0, _I):
            raise mistyped("substring counts characters from 1")
        return bound, kind

    return rule


def _round(name: str, arguments: tuple[Typed, ...]) -> tuple[tuple[Typed, ...], Kind]:
    bound, _ = _positions(_NUMBER, (_I,), optional=1)(name, arguments)
    digits = bound[1].expression.value if len(bound) > 1 and isinstance(bound[1].expression, Literal) else 0
    if not isinstance(digits, int) or abs(digits) > 15:
        raise mistyped("round needs between −15 and 15 digits")
    return bound, bound[0].kind


FUNCTIONS: MappingProxyType[str, Scalar] = MappingProxyType({scalar.name: scalar for scalar in _list()})
SPELLINGS: MappingProxyType[str, str] = MappingProxyType(
    {spelling: scalar.name for scalar in FUNCTIONS.values() for spelling in scalar.spellings}
)


def apply(name: str, arguments: Sequence[Typed]) -> Typed:
    """The call of a function on typed arguments, with the facts that follow; refused if the kinds don't fit."""
    scalar = FUNCTIONS[name]
    bound, kind = scalar.rule(name, tuple(arguments))
    for position in scalar.constants:
        if position < len(bound) and (bound[position].null or not isinstance(bound[position].expression, Literal)):
            raise mistyped(f"argument {position + 1} of {name} must be a constant", "Write the value itself")
    expressions = tuple(argument.expression for argument in bound)
    return Typed(Call(name, expressions, kind), _derived(name, bound, expressions, kind))


def _derived(name: str, bound: tuple[Typed, ...], expressions: tuple[Expression, ...], kind: Kind) -> Facts:
    facts = _by_rules(name, bound, expressions, kind)
    if all(argument.facts.for_keys is None for argument in bound):
        return facts
    known = tuple(Typed(argument.expression, argument.facts.for_keys or argument.facts) for argument in bound)
    for_keys = _by_rules(name, known, expressions, kind)
    dated = called(name, [(argument.expression, argument.facts.dated) for argument in known], kind)
    for_keys = for_keys if dated is None else dated_facts(for_keys, dated)
    later = Later((facts,), lambda: facts.keys)
    return Facts(bounds=facts.bounds, step=facts.step, keys=later, auto=facts.auto, for_keys=for_keys)  # type: ignore[arg-type]


def _by_rules(name: str, bound: tuple[Typed, ...], expressions: tuple[Expression, ...], kind: Kind) -> Facts:
    bounds: Interval | None = None
    auto: frozenset[tuple[str, str]] = frozenset()
    rule = RULES.get(name) if kind.number else None
    if rule is not None:
        known = [_interval(argument) for argument in bound]
        bounds = rounded(rule(known, expressions), kind)
        waiting = [argument for argument in bound if argument.facts.auto]

        def supposing(interval: Interval | None) -> Interval | None:
            supposed = [interval if a.facts.auto else i for a, i in zip(bound, known, strict=True)]
            return rounded(rule(supposed, expressions), kind)

        # bounds that stand without the searched columns don't wait for them
        if waiting and supposing(None) is None and supposing(Interval(Fraction(1), Fraction(2))) is not None:
            auto = frozenset[tuple[str, str]]().union(*(argument.facts.auto for argument in waiting))
    step = step_of(name, [_step(a) for a in bound], expressions, kind) if kind.number else None
    known_bounds = None if auto else bounds

    def values() -> tuple[Value, ...] | None:
        keys = [argument.facts.keys for argument in bound]
        return public_values(name, keys, expressions, kind, bounds=known_bounds, step=step)

    later = Later([argument.facts for argument in bound], values)
    return Facts(bounds=bounds, step=step, keys=later, auto=auto)  # type: ignore[arg-type]


def _interval(argument: Typed) -> Interval | None:
    if argument.kind is Kind.BOOLEAN:
        return Interval(Fraction(0), Fraction(1))
    return argument.facts.bounds


def _step(argument: Typed) -> Fraction | None:
    if isinstance(argument.expression, Literal):
        return literal_step(argument.expression.value)
    return argument.facts.step or (Fraction(1) if argument.kind is Kind.INTEGER else None)
