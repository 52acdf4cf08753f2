"""Lists of constants as clients of PostgreSQL write them: ``ANY(ARRAY[1, 2])`` and ``ANY('{1,2}')``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sqlglot import exp

from dither.query.kinds import Kind
from dither.query.sql.constants import KINDS, TYPES_HINT
from dither.query.sql.refusals import only, refused

MOST_ELEMENTS = 10_000
_ELEMENT = re.compile(r'\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^",{}\\\s][^",{}\\]*))\s*', re.DOTALL)
_HINT = "Write x = ANY(ARRAY[1, 2]), x = ANY('{1,2}') or x IN (1, 2)"


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
