"""Parameters become literals in the text of a question, which then reads as if the client had written them.

A literal is written from a typed value, never from a client's bytes, and with blanks around it. The curator's own
tokenizer then reads the whole text: unless it finds each literal exactly where it was put, as exactly the words that
were meant, the question isn't asked. So no value can become anything but a value.
"""

from __future__ import annotations

import datetime as dt
import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import TokenType

from dither.query.sql.parse import FrontDoorDialect
from dither.server.pgwire.protocol import types
from dither.server.pgwire.protocol.values import Null, Parameter
from dither.server.pgwire.sql import lexer
from dither.server.problems import ServerProblem, ServerRefusal

MOST_PARAMETERS = 65535
_WORDS = {
    **{word: TokenType[word] for word in ("NULL", "BOOLEAN", "BIGINT", "DOUBLE", "TRUE", "FALSE", "DATE")},
    "CAST": TokenType.VAR,
    "AS": TokenType.ALIAS,
    "TIMESTAMP": TokenType.TIMESTAMPNTZ,
    "(": TokenType.L_PAREN,
    ")": TokenType.R_PAREN,
    "-": TokenType.DASH,
}
# The curator's names of types. A missing text has none: a text can be read as a date, and so may what is missing.
_TYPES = {
    types.BOOL: "BOOLEAN",
    **dict.fromkeys((types.INT2, types.INT4, types.INT8, types.OID), "BIGINT"),
    **dict.fromkeys((types.FLOAT4, types.FLOAT8, types.NUMERIC), "DOUBLE"),
    types.DATE: "DATE",
    **dict.fromkeys((types.TIMESTAMP, types.TIMESTAMPTZ), "TIMESTAMP"),
}
# Makes up the value of parameter n; they grow with n, so that two of them can be bounds.
_MADE_UP: dict[int, Callable[[int], Parameter]] = {
    types.BOOL: lambda _: True,
    types.DATE: lambda number: types.DAY_ZERO + dt.timedelta(days=number),
    types.TIMESTAMP: lambda number: types.MOMENT_ZERO + dt.timedelta(days=number),
    types.TIMESTAMPTZ: lambda number: types.MOMENT_ZERO + dt.timedelta(days=number),
    **dict.fromkeys((types.INT2, types.INT4, types.INT8, types.OID), lambda number: number),
    **dict.fromkeys((types.FLOAT4, types.FLOAT8), lambda number: round(number / (number + 1), 4)),
    types.NUMERIC: lambda number: round(Decimal(number) / (number + 1), 4),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Placeholder:
    """``$number`` in a text, from ``start`` up to ``end``."""

    start: int
    end: int
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundText:
    """A question with its values in place, and from where in the client's text each part of it came.

    ``starts`` are places in ``text`` and ``origins`` the same in the client's text; where a ``fixed`` part begins, all
    of it came from one place.
    """

    text: str
    starts: tuple[int, ...] = (0,)
    origins: tuple[int, ...] = (0,)
    fixed: tuple[bool, ...] = (False,)

    def origin(self, position: tuple[int, int] | None) -> int | None:
        """The offset in the client's text of a (line, column) of this one."""
        if position is None:
            return None
        offset = offset_of(self.text, position)
        part = bisect_right(self.starts, offset) - 1
        return self.origins[part] + (0 if self.fixed[part] else offset - self.starts[part])


def offset_of(text: str, position: tuple[int, int]) -> int:
    """Where a (line, column), both from 1, is in a text."""
    line, column = position
    return sum(len(each) + 1 for each in text.split("\n")[: line - 1]) + column - 1


def literal(value: Parameter) -> tuple[str, ...]:
    """The words of a literal, each one a token for the curator.

    Example:
        >>> literal(-5), literal("it's"), literal(dt.date(2024, 2, 29))
        (('(', '-', '5', ')'), ("'it''s'",), ('DATE', "'2024-02-29'"))
        >>> literal(Null(types.FLOAT8)), literal(Null(types.TEXT))
        (('CAST', '(', 'NULL', 'AS', 'DOUBLE', ')'), ('NULL',))
    """
    if isinstance(value, Null):
        return ("CAST", "(", "NULL", "AS", _TYPES[value.oid], ")") if value.oid in _TYPES else ("NULL",)
    if isinstance(value, bool):
        return ("TRUE" if value else "FALSE",)
    if isinstance(value, str):
        return ("'" + value.replace("'", "''") + "'",)
    if isinstance(value, dt.datetime):
        return ("TIMESTAMP", f"'{types.timestamp_text(value)}'")
    if isinstance(value, dt.date):
        return ("DATE", f"'{value.isoformat()}'")
    # without the parentheses, a minus before the placeholder would make two of them: a comment
    size = _number(value.copy_abs() if isinstance(value, Decimal) else abs(value))
    negative = value < 0 or (isinstance(value, float) and math.copysign(1.0, value) < 0)
    return ("(", "-", size, ")") if negative else (size,)


def _number(value: int | float | Decimal) -> str:
    if isinstance(value, int):
        return str(value)
    text = repr(value) if isinstance(value, float) else f"{value:f}"
    # so that a number with a type that has a fraction stays one, whatever its value
    return text if any(mark in text for mark in ".e") else text + ".0"


def made_up(kinds: Sequence[int]) -> tuple[tuple[Parameter, ...], ...]:
    """Values for parameters that aren't known yet, to be tried in turn: names and types hardly ever depend on them.

    What all but the last are refused for, in the same words, has nothing to do with the values.
    """

    def each(text: str, further: int) -> tuple[Parameter, ...]:
        numbered = enumerate(kinds, 1 + further)
        return tuple(text if kind in types.TEXTS else _MADE_UP[kind](number) for number, kind in numbered)

    # a word, a day, and the name of a part of a date
    return each("a", 0), each("2000-01-01", 10), each("month", 0), tuple(map(Null, kinds))


def placeholders(text: str) -> tuple[Placeholder, ...]:
    """Every placeholder of a question, in order; none if the text can't be read, which the curator will say.

    Example:
        >>> [place.number for place in placeholders("SELECT $2, '$3', a$4 -- $5")]
        [2]
    """
    try:
        words = lexer.words(text)
    except lexer.Unclosed:
        return ()
    return tuple(
        # more than there can be: one that nobody gives a value for
        Placeholder(start=word.start, end=word.end, number=min(int(word.value[:6]), MOST_PARAMETERS))
        for word in words
        if word.kind is lexer.WordKind.PARAMETER
    )


def bind_text(text: str, values: Sequence[Parameter], places: Sequence[Placeholder] | None = None) -> BoundText:
    """The text with its placeholders replaced by literals; ``values[0]`` is that of ``$1``."""
    found = placeholders(text) if places is None else places
    for place in found:
        if not 1 <= place.number <= len(values):
            raise _unknown(place)
    bound, expected = fill(text, found, lambda place: literal(values[place.number - 1]))
    _expect_words(bound.text, expected)
    return bound


def fill(
    text: str, places: Sequence[Placeholder], words_of: Callable[[Placeholder], Sequence[str]]
) -> tuple[BoundText, list[tuple[int, str]]]:
    """The text with words in the places of placeholders, blanks around each, and where those words now are."""
    parts: list[str] = []
    starts, origins, fixed = [0], [0], [False]
    expected: list[tuple[int, str]] = []
    length = before = 0
    for place in places:
        parts += (text[before : place.start], " ")
        length += place.start - before
        starts.append(length)
        length += 1
        for word in words_of(place):
            expected.append((length, word))
            parts.append(word + " ")
            length += len(word) + 1
        before = place.end
        starts.append(length)
        origins += (place.start, before)
        fixed += (True, False)
    parts.append(text[before:])
    bound = BoundText(text="".join(parts), starts=tuple(starts), origins=tuple(origins), fixed=tuple(fixed))
    return bound, expected


def _expect_words(text: str, expected: Sequence[tuple[int, str]]) -> None:
    """Refuse a text in which the curator would read anything else in the places of the literals."""
    if not expected:
        return
    try:
        tokens = {token.start: token for token in FrontDoorDialect().tokenize(text)}
    except TokenError:
        tokens = {}
    for start, word in expected:
        token = tokens.get(start)
        if token is None or token.end != start + len(word) - 1:
            raise misplaced()
        if word.startswith("'"):
            right = token.token_type is TokenType.STRING and token.text == word[1:-1].replace("''", "'")
        elif word[0].isdigit():
            right = token.token_type is TokenType.NUMBER and token.text == word
        else:
            right = token.token_type is _WORDS[word]
        if not right:
            raise misplaced()


def misplaced() -> ServerRefusal:
    """A placeholder isn't where a value can be: as a name, or within a word."""
    title, hint = "a parameter stands where no value can be put", "Write the value itself into the question."
    return ServerRefusal(ServerProblem(code="parameter", sqlstate="42601", title=title, hint=hint))


def _unknown(place: Placeholder) -> ServerRefusal:
    title, hint = f"there is no parameter ${place.number}", "Give a value for each of $1, $2 and so on."
    return ServerRefusal(ServerProblem(code="parameter", sqlstate="42P02", title=title, hint=hint))
