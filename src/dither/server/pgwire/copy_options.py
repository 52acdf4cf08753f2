"""COPY … TO STDOUT as it is written: what is copied, and with which options."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from dither.server.pgwire.commands import CopyOut, Unreadable, Words
from dither.server.pgwire.lexer import Kind, Word

_TRUE = ("TRUE", "ON", "1")
_FALSE = ("FALSE", "OFF", "0")
_UTF8 = ("utf8", "utf-8", "unicode")
_ESCAPES = {"\\t": "\t", "\\\\": "\\"}
_OLD = ("BINARY", "CSV", "HEADER", "DELIMITER", "NULL", "QUOTE", "ESCAPE", "FORCE", "ENCODING")
_KNOWN = "Use FORMAT, HEADER, DELIMITER, NULL, QUOTE, ESCAPE or FORCE_QUOTE."


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """COPY in its parts; ``question`` is empty where a table is named in its place."""

    question: list[Word]
    to_client: bool
    options: CopyOut


def read_copy(given: list[Word]) -> Copy:
    """The parts of a COPY; options are read only where a query is copied to the client."""
    words = Words(given)
    words.any()
    if not words.take_symbol("("):
        return Copy(question=[], to_client=False, options=CopyOut())
    question = _inside(words)
    if not words.take("TO"):
        raise Unreadable("TO was expected here", "Write COPY (SELECT …) TO STDOUT.", words.next)
    to_client = bool(words.take("STDOUT"))
    options = _options(words) if to_client else CopyOut()
    return Copy(question=question, to_client=to_client, options=options)


def _inside(words: Words) -> list[Word]:
    inside: list[Word] = []
    depth = 1
    while True:
        word = words.any()
        depth += 1 if word.is_symbol("(") else -1 if word.is_symbol(")") else 0
        if depth == 0:
            break
        inside.append(word)
    if not inside:
        raise Unreadable("there is no query between the parentheses", "Write COPY (SELECT …) TO STDOUT.", word)
    return inside


def _options(words: Words) -> CopyOut:
    words.take("WITH")
    options = CopyOut()
    if not words.take_symbol("("):
        # as they were written before PostgreSQL 9.0, and as people still type them
        while old := words.take(*_OLD):
            words.take("AS")
            if old == "CSV":
                options = replace(options, format="csv")
            elif old == "BINARY":
                options = replace(options, format="binary")
            elif old == "HEADER":
                options = replace(options, header=True)
            elif old == "FORCE":
                words.take("QUOTE")
                options = _with(options, "FORCE_QUOTE", words)
            else:
                options = _with(options, old, words)
        words.end()
        return options
    while True:
        word = words.any()
        if word.keyword not in (*_OLD, "FORMAT", "FORCE_QUOTE") or word.keyword in ("BINARY", "CSV", "FORCE"):
            raise Unreadable("this option of COPY isn't known", _KNOWN, word)
        options = _with(options, word.keyword, words)
        if words.take_symbol(")"):
            break
        if not words.take_symbol(","):
            raise Unreadable("a comma was expected between options", "Write (FORMAT csv, HEADER).", words.next)
    words.end()
    return options


def _with(options: CopyOut, name: str, words: Words) -> CopyOut:
    match name:
        case "FORMAT":
            return replace(options, format=_format(words.any()))
        case "HEADER":
            return replace(options, header=_switch(words))
        case "DELIMITER":
            return replace(options, delimiter=_text(words.any()))
        case "NULL":
            return replace(options, null=_text(words.any()))
        case "QUOTE":
            return replace(options, quote=_text(words.any()))
        case "ESCAPE":
            return replace(options, escape=_text(words.any()))
        case "FORCE_QUOTE":
            return replace(options, force_quote_all=_every_column(words))
    _expect_utf8(words.any())
    return options


def _format(word: Word) -> Literal["text", "csv", "binary"]:
    if word.kind in (Kind.WORD, Kind.STRING, Kind.QUOTED):
        match word.value.lower():
            case "text":
                return "text"
            case "csv":
                return "csv"
            case "binary":
                return "binary"
    raise Unreadable("this format isn't known", "Use text, csv or binary.", word)


def _switch(words: Words) -> bool:
    word = words.next
    if word is None or word.kind is Kind.SYMBOL:
        return True
    words.any()
    if word.value.upper() in _TRUE:
        return True
    if word.value.upper() in _FALSE:
        return False
    raise Unreadable("HEADER is true or false here", "Write HEADER or HEADER false.", word)


def _text(word: Word) -> str:
    if word.kind is not Kind.STRING:
        raise Unreadable("a text in quotes was expected here", "Put it between single quotes.", word)
    # E'\t' is how people write a tab
    return _ESCAPES.get(word.value, word.value)


def _every_column(words: Words) -> bool:
    if words.take_symbol("*"):
        return True
    raise Unreadable("FORCE_QUOTE needs *", "Write FORCE_QUOTE *.", words.next)


def _expect_utf8(word: Word) -> None:
    if word.value.lower() not in _UTF8:
        raise Unreadable("answers are written in UTF-8", "Leave ENCODING out.", word)
