"""Constants of the text: numbers, texts, the types in which they are read, and lists of them.

Lists are those that clients of PostgreSQL write: ``ANY(ARRAY[1, 2])`` and ``ANY('{1,2}')``.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction

from sqlglot import exp

from dither.errors import Refused
from dither.query.expressions.dates import by_format
from dither.query.expressions.functions import Typed, adapt, literal, temporal
from dither.query.kinds import Kind, Literal
from dither.query.refusals import only, refused

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
MOST_ELEMENTS = 10_000
_ELEMENT = re.compile(r'\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^",{}\\\s][^",{}\\]*))\s*', re.DOTALL)
_HINT = "Write x = ANY(ARRAY[1, 2]), x = ANY('{1,2}') or x IN (1, 2)"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """The elements of an array in the text.

    ``kind`` is that of its type, if one is written. ``text`` says that the whole array was a text, so that its elements
    are texts whatever they mean. ``zoned`` says whether timestamps may have an offset.
    """

    elements: tuple[exp.Expr, ...]
    kind: Kind | None
    text: bool
    zoned: bool


def listed(node: exp.Expr) -> Listed:
    """What stands in the parentheses of ANY or ALL."""
    kind, zoned = None, True
    while isinstance(node, exp.Paren):
        only(node, "this")
        node = node.this
    if isinstance(node, exp.Cast):
        only(node, "this", "to", "safe", "requires_string")
        kind, zoned = _type(node.args.get("to"))
        node = node.this
    if isinstance(node, exp.Array):
        only(node, "expressions")
        elements, text = tuple(node.expressions), False
    elif isinstance(node, exp.Literal) and node.args.get("is_string"):
        elements, text = _elements(node), True
    else:
        raise refused("subquery", "ANY and ALL need a list of constants", _HINT)
    if not elements:
        raise refused("literal", "nothing is in this list, so it matches nothing", "Leave the condition out")
    if len(elements) > MOST_ELEMENTS:
        raise refused("too_long", f"a list may have at most {MOST_ELEMENTS} elements", "Ask in several questions")
    return Listed(elements=elements, kind=kind, text=text, zoned=zoned)


def _type(target: exp.Expr | None) -> tuple[Kind, bool]:
    if isinstance(target, exp.DataType) and target.this is exp.DType.ARRAY and len(target.expressions) == 1:
        only(target, "this", "nested", "expressions")
        inner = target.expressions[0]
        if isinstance(inner, exp.DataType) and isinstance(inner.this, exp.DType) and not inner.expressions:
            zoned = inner.this is exp.DType.TIMESTAMPTZ
            kind = Kind.TIMESTAMP if zoned else KINDS.get(inner.this)
            if kind is not None:
                only(inner, "this", "nested")
                return kind, zoned
    raise refused("types", "this type of array isn't supported", f"{TYPES_HINT}; an array has one with []")


def _elements(node: exp.Literal) -> tuple[exp.Expr, ...]:
    """The elements of ``{a,"b c"}``, each at the place of the whole text."""
    text = str(node.this).strip()
    found: list[exp.Expr] = []
    place, last = 1, len(text) - 1
    closed = text[:1] == "{" and text[-1:] == "}" and last > 0
    if closed and not text[1:last].strip():
        return ()
    while closed:
        match = _ELEMENT.match(text, place, last)
        if match is None or len(found) > MOST_ELEMENTS:
            break
        plain, quoted = match["plain"], match["quoted"]
        null = plain is not None and plain.strip().lower() == "null"
        written = plain.strip() if plain is not None else re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
        found.append(_at(node, exp.Null() if null else exp.Literal.string(written)))
        place = match.end()
        if place == last:
            return tuple(found)
        if text[place] != ",":
            break
        place += 1
    if len(found) > MOST_ELEMENTS:
        return tuple(found)
    raise refused("literal", "this text isn't a list", "Write it as '{1,2}' or '{Bern,\"Den Haag\"}'")


def _at(place: exp.Literal, node: exp.Expr) -> exp.Expr:
    node.meta.update(place.meta)
    return node
