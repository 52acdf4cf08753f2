"""Constants of the text: numbers, texts, and the types in which they are read."""

from __future__ import annotations

import math
import re
from fractions import Fraction

from sqlglot import exp

from dither.errors import Refused
from dither.query.dates import by_format
from dither.query.expressions import Literal
from dither.query.functions import Typed, adapt, literal, temporal
from dither.query.kinds import Kind
from dither.query.sql.refusals import refused

LARGEST_INTEGER = 2**63 - 1
KINDS: dict[exp.DType, Kind] = {
    exp.DType.BOOLEAN: Kind.BOOLEAN,
    **dict.fromkeys((exp.DType.INT, exp.DType.BIGINT, exp.DType.SMALLINT, exp.DType.TINYINT), Kind.INTEGER),
    **dict.fromkeys((exp.DType.FLOAT, exp.DType.DOUBLE, exp.DType.DECIMAL), Kind.DOUBLE),
    **dict.fromkeys((exp.DType.TEXT, exp.DType.VARCHAR, exp.DType.CHAR), Kind.TEXT),
    exp.DType.DATE: Kind.DATE,
    **dict.fromkeys((exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ, exp.DType.DATETIME), Kind.TIMESTAMP),
}
"""The kind of values of each type, other than of those with a time zone."""
TYPES_HINT = "Types are BOOLEAN, INTEGER, DOUBLE, DECIMAL, VARCHAR, DATE, TIMESTAMP"
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_BOOLEANS = {"true": True, "t": True, "false": False, "f": False}


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


def whole(node: exp.Expr | None) -> int | None:
    """A whole number of the text, in quotes or not; None if it isn't one or a very large one."""
    if isinstance(node, exp.Literal) and node.args.get("is_string"):
        text = str(node.this).strip()
        small = text.removeprefix("-").isascii() and text.removeprefix("-").isdecimal() and len(text) < 10
        return int(text) if small else None
    value = exact_number(node)
    return int(value) if value is not None and value.denominator == 1 and abs(value) < 10**9 else None


def is_constant(value: Typed) -> bool:
    """Whether it is a constant other than NULL."""
    return not value.null and value.facts.keys is not None and type(value.expression).__name__ == "Literal"


def readable(value: Typed) -> bool:
    """Whether a value isn't a constant text, or is one that reads as a date or timestamp."""
    text = value.expression.value if isinstance(value.expression, Literal) else None
    if value.kind is not Kind.TEXT or not isinstance(text, str):
        return True
    try:
        temporal(text, Kind.TIMESTAMP)
    except Refused:
        return False
    return True


def instant(value: Typed) -> Typed:
    """A constant as a TIMESTAMP WITH TIME ZONE, which is a timestamp in UTC."""
    fixed = value.null or is_constant(value)
    result = adapt(value, Kind.TIMESTAMP) if fixed else None
    if result is None:
        hint = "Use TIMESTAMP: timestamps of tables are in UTC"
        raise refused("types", "TIMESTAMP WITH TIME ZONE is a type of constants only", hint)
    return result


def formatted(name: str, arguments: list[Typed]) -> Typed:
    """What ``to_date`` or ``to_timestamp`` of two constant texts is."""
    texts = [each.expression.value for each in arguments if isinstance(each.expression, Literal)]
    kind = Kind(name.removeprefix("to_"))
    if len(arguments) != 2 or len(texts) != 2 or not all(isinstance(each, str) for each in texts):
        hint = f"Write {name}('2024-01-31', 'YYYY-MM-DD'); a column is converted with CAST(a AS {kind.name})"
        raise refused("types", f"{name} needs a constant text and its format", hint)
    return literal(by_format(str(texts[0]), str(texts[1]), kind), kind)


def element(value: Typed, kind: Kind, *, zoned: bool) -> Typed:
    """An element of an array as a constant of the array's kind: texts are read as PostgreSQL reads them."""
    expression = value.expression
    text = expression.value if isinstance(expression, Literal) and isinstance(expression.value, str) else None
    result: Typed | None = None
    if text is None or kind is Kind.TEXT:
        result = adapt(value, kind)
    elif kind.temporal:
        result = temporal(text, kind, zoned=zoned)
    elif kind is Kind.BOOLEAN:
        result = literal(_BOOLEANS[text.lower()], kind) if text.lower() in _BOOLEANS else None
    elif _NUMBER.fullmatch(text):
        result = adapt(numeral(text), kind)
    if result is None:
        raise refused(
            "literal", f"an element of this list can't be read as {kind.value}", "Check the list and its type"
        )
    return result
