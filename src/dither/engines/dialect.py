"""What differs between SQL engines: names of types, literals, one template per function, the salted hash.

Everything that reaches an engine is generated here and in sql.py from the plan. Names are quoted, literals are written
by kind, and no text of an analyst is ever copied outside of a quoted literal.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from dither.errors import InvalidParameter
from dither.query.expressions.expressions import Call, Column, Expression, Literal
from dither.query.kinds import Kind, Value
from dither.query.plan.plan import Gridded

INT64_LOW, INT64_HIGH = -(2**63), 2**63 - 1

Template: TypeAlias = Callable[[Call, Sequence[str]], str]
"""Makes the SQL of a call from the call itself (for kinds and literal arguments) and its arguments' SQL.

A template writes each argument once, so that nested calls stay linear in length, and its result can't raise.
"""


def quoted(name: str) -> str:
    """An identifier in double quotes."""
    if "\0" in name:
        raise InvalidParameter("a name of a table or column must not contain a NUL character")
    return '"' + name.replace('"', '""') + '"'


def text_literal(text: str) -> str:
    """A text in single quotes."""
    if "\0" in text:
        raise InvalidParameter("a text in a question must not contain a NUL character")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidParameter("a text in a question must be valid Unicode") from None
    return "'" + text.replace("'", "''") + "'"


def text_of(value: Value, kind: Kind) -> str:
    """A value that isn't NULL as the text that engines read back as exactly that value."""
    match kind, value:
        case Kind.BOOLEAN, bool():
            return "true" if value else "false"
        case Kind.INTEGER, int() if not isinstance(value, bool) and INT64_LOW <= value <= INT64_HIGH:
            return str(value)
        case Kind.DOUBLE, int() | float() | Fraction() if not isinstance(value, bool):
            number = float(value)
            return repr(number) if math.isfinite(number) else str(number)
        case Kind.TEXT, str():
            return value
        case Kind.TIMESTAMP, dt.datetime() if value.tzinfo is None:
            return value.isoformat(sep=" ")
        case Kind.TIMESTAMP, dt.date() if not isinstance(value, dt.datetime):
            return dt.datetime(value.year, value.month, value.day).isoformat(sep=" ")  # noqa: DTZ001
        case Kind.DATE, dt.date() if not isinstance(value, dt.datetime):
            return value.isoformat()
    raise InvalidParameter(f"a literal of kind {kind.value} can't be a {type(value).__name__} or is out of range")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How one engine writes what all of them share.

    ``grid`` makes an integer expression from the SQL of a number, its kind and the grid. ``rank`` makes a hash of good
    quality from a salt and columns. ``wide`` is an integer type in which no sum overflows, and ``whole`` casts such an
    integer to 64 bits, with NULL where it doesn't fit.
    """

    name: str
    types: Mapping[Kind, str]
    functions: Mapping[str, Template]
    grid: Callable[[str, Kind, Gridded], str]
    rank: Callable[[int, Sequence[str]], str]
    whole: Callable[[str], str]
    wide: str

    def literal(self, value: Value, kind: Kind) -> str:
        """A typed constant."""
        if value is None:
            return f"CAST(NULL AS {self.types[kind]})"
        text = text_literal(text_of(value, kind))
        return text if kind is Kind.TEXT else f"CAST({text} AS {self.types[kind]})"

    def expression(self, expression: Expression, scope: Mapping[str, str]) -> str:
        """The SQL of an expression; ``scope`` has the qualified name of each column."""
        if isinstance(expression, Column):
            if expression.name not in scope:
                raise InvalidParameter(f"the relation has no column {expression.name}")
            return scope[expression.name]
        if isinstance(expression, Literal):
            return self.literal(expression.value, expression.kind)
        template = self.functions.get(expression.function)
        if template is None:
            raise InvalidParameter(f"{self.name} has no function {expression.function}")
        return template(expression, [self.expression(argument, scope) for argument in expression.arguments])

    def widen(self, sql: str, kind: Kind, to: Kind) -> str:
        """The same value in a kind that holds it: integers as doubles, dates as timestamps."""
        if kind is to:
            return sql
        if (kind, to) in ((Kind.INTEGER, Kind.DOUBLE), (Kind.DATE, Kind.TIMESTAMP)):
            return f"CAST({sql} AS {self.types[to]})"
        raise InvalidParameter(f"a {kind.value} can't be used where a {to.value} is needed")

    def plain(self, sql: str, kind: Kind) -> str:
        """A double in the one form that equal values share: −0 is 0, and there is one NaN; ``sql`` is a plain name.

        Engines group equal doubles but return the form of whichever row came first.
        """
        if kind is not Kind.DOUBLE:
            return sql
        nan = self.literal(math.nan, kind)
        return f"CASE WHEN isnan({sql}) THEN {nan} ELSE {sql} + {self.literal(0.0, kind)} END"


def common_kind(expressions: Sequence[Expression]) -> Kind:
    """The kind in which expressions are compared: doubles where integers are mixed in, timestamps for dates."""
    kinds = {expression.kind for expression in expressions}
    if len(kinds) == 1:
        return next(iter(kinds))
    if kinds == {Kind.INTEGER, Kind.DOUBLE}:
        return Kind.DOUBLE
    if kinds == {Kind.DATE, Kind.TIMESTAMP}:
        return Kind.TIMESTAMP
    raise InvalidParameter(f"values of kinds {', '.join(sorted(kind.value for kind in kinds))} can't be mixed")


def literal_argument(call: Call, place: int, kind: Kind) -> Value:
    """The constant at a place where only a constant is allowed; None is NULL."""
    argument = call.arguments[place]
    if not isinstance(argument, Literal) or (argument.kind is not kind and argument.value is not None):
        raise InvalidParameter(f"argument {place + 1} of {call.function} must be a {kind.value} literal")
    return argument.value
