"""PREPARE and EXECUTE in SQL: their names, types and arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dither.server.pgwire import types
from dither.server.pgwire.commands import Unreadable, Words
from dither.server.pgwire.lexer import Kind, Word

_TYPES = {
    **dict.fromkeys(("boolean", "bool"), types.BOOL),
    **dict.fromkeys(("smallint", "int2"), types.INT2),
    **dict.fromkeys(("integer", "int", "int4"), types.INT4),
    **dict.fromkeys(("bigint", "int8"), types.INT8),
    **dict.fromkeys(("real", "float4"), types.FLOAT4),
    **dict.fromkeys(("double precision", "float", "float8"), types.FLOAT8),
    **dict.fromkeys(("numeric", "decimal"), types.NUMERIC),
    "text": types.TEXT,
    **dict.fromkeys(("varchar", "character varying"), types.VARCHAR),
    "date": types.DATE,
    **dict.fromkeys(("timestamp", "timestamp without time zone"), types.TIMESTAMP),
    **dict.fromkeys(("timestamptz", "timestamp with time zone"), types.TIMESTAMPTZ),
    "unknown": 0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareAs:
    """What is prepared under which name; a type of 0 is guessed. No ``types`` at all where the shadow prepares it."""

    name: str
    types: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecuteNamed:
    """What is run by its name; ``arguments`` are texts of literals, and None if any of them is something else."""

    name: str
    arguments: tuple[bytes | None, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPrepare:
    """PREPARE, in its parts."""

    name: str
    types: list[Word]
    query: list[Word]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadExecute:
    """EXECUTE, in its parts."""

    name: str
    arguments: list[Word]


def read_prepare(given: list[Word]) -> ReadPrepare:
    """PREPARE name (types) AS a statement."""
    words = Words(given)
    words.any()
    name = words.name()
    declared = _inside(words) if words.next is not None and words.next.is_symbol("(") else []
    if not words.take("AS") or not words.rest:
        raise Unreadable("AS and a query were expected here", "Write PREPARE name AS SELECT …", words.next)
    return ReadPrepare(name=name, types=declared, query=words.rest)


def read_execute(given: list[Word]) -> ReadExecute:
    """EXECUTE name (arguments)."""
    words = Words(given)
    words.any()
    name = words.name()
    arguments = _inside(words) if words.next is not None and words.next.is_symbol("(") else []
    words.end()
    return ReadExecute(name=name, arguments=arguments)


def _inside(words: Words) -> list[Word]:
    """What is between parentheses, which it goes past."""
    found, depth = [], 0
    while True:
        word = words.any()
        depth += 1 if word.is_symbol("(") else -1 if word.is_symbol(")") else 0
        found.append(word)
        if not depth:
            return found[1:-1]


def _parts(words: Sequence[Word]) -> list[list[Word]]:
    """What is between commas, of which none is within parentheses; nothing at all has no parts."""
    parts: list[list[Word]] = [[]]
    for word in words:
        if word.is_symbol(","):
            parts.append([])
        else:
            parts[-1].append(word)
    return parts if words else []


def types_of(words: Sequence[Word]) -> tuple[int, ...]:
    """The types of a PREPARE's parameters."""
    found = []
    for part in _parts(words):
        oid = _TYPES.get(" ".join(word.value for word in part))
        if oid is None:
            hint = "Use names such as integer, float8, text or date without a length, or leave the types out."
            raise Unreadable("questions can't use this type", hint, part[0] if part else words[0])
        found.append(oid)
    return tuple(found)


def literals_of(words: Sequence[Word], message: str) -> tuple[bytes | None, ...] | None:
    """The texts of literals, as a client would send them for parameters; None if anything else is among them."""
    found: list[bytes | None] = []
    for part in _parts(words):
        signed = len(part) == 2 and part[0].kind is Kind.SYMBOL and part[0].value in "+-"
        word = part[-1] if len(part) == 1 or signed else None
        if word is not None and word.kind is Kind.NUMBER:
            found.append(((part[0].value if signed else "") + word.value).encode())
        elif word is None or signed:
            return None
        elif word.keyword == "NULL":
            found.append(None)
        elif word.keyword in ("TRUE", "FALSE"):
            found.append(word.value.encode())
        elif word.kind is Kind.STRING and message[word.start] in "'$":
            # others, such as E'…', would have to be decoded first
            found.append(word.value.encode("utf-8", "replace"))
        else:
            return None
    return tuple(found)
