"""Text to syntax tree: sqlglot's DuckDB grammar, with GoogleSQL's privacy clause and no function known.

The parser knows no function by name, so that every call reaches the binder as it was written, and can only mean what
the registry says. Whatever clause a tree holds, the binder refuses it unless it understands it.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from dither.query.refusals import line_and_column, refused

LONGEST = 100_000
MOST_TOKENS = 20_000
DEEPEST = 60
# Queries take about two steps of the parser for each word. Where it tries two readings of what is in parentheses
# (ARRAY[…], DATE (…), ROW((…))), each level doubles the steps: a line of text could keep it busy for years.
MOST_STEPS, MOST_STEPS_EACH = 2000, 5
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\ud800-\udfff]")
_DUCK: Any = DuckDB.Parser
_TOKENS: Any = DuckDB.Tokenizer
_OPENING = {TokenType.L_PAREN: 1, TokenType.L_BRACKET: 1, TokenType.L_BRACE: 1}
_CLOSING = {TokenType.R_PAREN: -1, TokenType.R_BRACKET: -1, TokenType.R_BRACE: -1}
_CLOCKS = ("CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP")
_STARTS = (TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN, TokenType.FROM)


class Steps:
    """How many steps are left to whatever parses so many words."""

    def __init__(self, words: int) -> None:
        self._left = MOST_STEPS + MOST_STEPS_EACH * words

    def take(self) -> None:
        """Take one; as if something were nested too deeply if there is none."""
        if not self._left:
            # a ParseError would be taken for one more reading that fails
            raise RecursionError
        self._left -= 1


class Bounded:
    """Goes before a parser of sqlglot among the bases of a class: gives up when its ``steps`` are used up.

    They are counted from the words that it parses, unless they are set.
    """

    steps: Steps | None = None

    def _advance(self, times: int = 1) -> None:
        if self.steps is None:
            self.steps = Steps(len(self._tokens))  # type: ignore[attr-defined] # the parser's
        self.steps.take()
        super()._advance(times)  # type: ignore[misc] # the parser's

    def _warn_unsupported(self) -> None:
        # otherwise a statement that isn't understood would be logged and kept as raw text
        self.raise_error("Unsupported statement")  # type: ignore[attr-defined] # the parser's


class PrivacyClause(exp.Hint):
    """``WITH DIFFERENTIAL_PRIVACY [OPTIONS (…)]`` after SELECT."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": False}


class Dialect(DuckDB):
    """What analysts may write."""

    class Tokenizer(DuckDB.Tokenizer):
        """DuckDB's, but EXPLAIN is a word like any other: EXPLAIN PRIVACY is taken off before parsing."""

        KEYWORDS: ClassVar[dict[str, Any]] = {k: v for k, v in _TOKENS.KEYWORDS.items() if k != "EXPLAIN"}

    class Parser(Bounded, _DUCK):  # type: ignore[misc]
        """DuckDB's without functions, with the privacy clause."""

        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: _DUCK.FUNCTION_PARSERS[name]
            for name in ("CAST", "TRY_CAST", "SAFE_CAST", "EXTRACT", "POSITION", "SUBSTRING", "TRIM")
        }
        NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            "CASE": _DUCK.NO_PAREN_FUNCTION_PARSERS["CASE"],
            **dict.fromkeys(_CLOCKS, lambda parser: parser._parse_clock()),  # noqa: SLF001 - it is the parser's own
        }
        TYPE_CONVERTERS: ClassVar[dict[Any, Any]] = {}

        def _parse_hint(self) -> Any:
            """The privacy clause stands where some dialects have hints: right after SELECT."""
            words = (self._curr.text.upper(), self._next.text.upper()) if self._curr and self._next else ()
            if words != ("WITH", "DIFFERENTIAL_PRIVACY"):
                return None
            self._advance(2)
            options: list[Any] = []
            if self._curr and self._curr.text.upper() == "OPTIONS":
                self._advance()
                options = self._parse_wrapped_csv(self._parse_assignment, optional=False)
            return self.expression(PrivacyClause(expressions=options))

        def _parse_clock(self) -> Any:
            """``CURRENT_DATE`` and the like: calls as any other, so that refusals have their spelling and place."""
            token = self._prev
            called = self._curr is not None and self._curr.token_type == TokenType.L_PAREN
            arguments = self._parse_wrapped_csv(self._parse_assignment) if called else []
            return self.expression(exp.Anonymous(this=token.text, expressions=arguments)).update_positions(token)


def parse(text: str) -> tuple[exp.Query, bool]:
    """The tree of the one query in the text, and whether EXPLAIN PRIVACY stood before it."""
    tokens = _tokens(text)
    explain = False
    if tokens and tokens[0].text.upper() == "EXPLAIN" and tokens[0].token_type != TokenType.IDENTIFIER:
        if len(tokens) < 2 or tokens[1].text.upper() != "PRIVACY" or tokens[1].token_type == TokenType.IDENTIFIER:
            raise _at(
                text,
                tokens[0],
                "statement",
                "EXPLAIN would show the engine's plan",
                "Write EXPLAIN PRIVACY SELECT … to see what a question costs",
            )
        explain, tokens = True, tokens[2:]
    if not tokens:
        raise refused("statement", "there is no question in the text", "Write a SELECT with aggregates")
    if tokens[0].token_type not in _STARTS:
        hint = "Only SELECT (or WITH … SELECT) can be asked"
        raise _at(text, tokens[0], "statement", "this isn't a question", hint)
    return _query(text, tokens), explain


def _tokens(text: str) -> list[Token]:
    if len(text) > LONGEST:
        raise refused("too_long", f"a question may have at most {LONGEST} characters", "Ask in several questions")
    control = _CONTROL.search(text)
    if control is not None:
        error = refused("syntax", "the text holds a control character", "Remove it")
        error.position = line_and_column(text, control.start())
        raise error
    try:
        tokens = list(Dialect().tokenize(text))
    except TokenError:
        pass
    else:
        return _checked(text, tokens)
    raise refused("syntax", "a quote or comment isn't closed", "Close every quote, identifier and comment")


def _checked(text: str, tokens: list[Token]) -> list[Token]:
    if len(tokens) > MOST_TOKENS:
        raise refused("too_long", f"a question may have at most {MOST_TOKENS} words", "Ask in several questions")
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        tokens.pop()
    depth = 0
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            raise _at(text, token, "statement", "there is more than one statement", "Ask one question at a time")
        depth += _OPENING.get(token.token_type, 0) + _CLOSING.get(token.token_type, 0)
        if depth > DEEPEST:
            hint = "Split it into named subqueries (WITH … AS)"
            raise _at(text, token, "too_deep", "parentheses are nested too deeply", hint)
    return tokens


def _query(text: str, tokens: list[Token]) -> exp.Query:
    parser: Any = Dialect.Parser(error_level=ErrorLevel.IMMEDIATE, dialect=Dialect())
    place: tuple[int, int] | None = None
    try:
        trees = parser.parse(tokens, text)
    except ParseError as error:
        offset = _offset(error, text)
        place = None if offset is None else line_and_column(text, offset)
        trees = None
    except RecursionError:
        raise
    except Exception:  # noqa: BLE001 - the parser is third-party: whatever it stumbles over isn't a question
        trees = None
    if trees is None:
        wrong = refused("syntax", "the text can't be read as SQL", "Check the place shown")
        wrong.position = place
        raise wrong from None
    if len(trees) != 1 or not isinstance(trees[0], exp.Query):
        raise refused("statement", "this isn't a question", "Only SELECT (or WITH … SELECT) can be asked")
    return trees[0]


def _offset(error: ParseError, text: str) -> int | None:
    if not error.errors:
        return None
    start = error.errors[0].get("start_context")
    highlight = error.errors[0].get("highlight")
    line, column = error.errors[0].get("line"), error.errors[0].get("col")
    if not isinstance(start, str) or not isinstance(line, int) or not isinstance(column, int):
        return None
    # columns are counted at the end of the word
    lines = text.split("\n")
    offset = sum(len(each) + 1 for each in lines[: line - 1]) + column - len(highlight or "")
    return min(max(offset, 0), len(text))


def _at(text: str, token: Token, code: str, reason: str, hint: str) -> Exception:
    error = refused(code, reason, hint)
    error.position = line_and_column(text, token.start)
    return error
