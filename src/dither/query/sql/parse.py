"""Text to syntax tree: sqlglot's DuckDB grammar, with GoogleSQL's privacy clause and no function known.

The parser knows no function by name, so that every call reaches the binder as it was written, and can only mean what
the registry says. Whatever clause a tree holds, the binder refuses it unless it understands it.

The parser is third-party, and its trees change: NOT LIKE was NOT of a LIKE, and became a LIKE with a mark. A mark that
nobody reads would change what a question means in silence, so a tree is accepted only if all that is set in it stands
in ``READ``. A test holds both tables together with the installed parser: an argument in neither of them is news.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from dither.errors import Refused
from dither.query.refusals import line_and_column, only, placed, refused

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


class ParserSteps:
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

    steps: ParserSteps | None = None

    def _advance(self, times: int = 1) -> None:
        if self.steps is None:
            self.steps = ParserSteps(len(self._tokens))  # type: ignore[attr-defined] # the parser's
        self.steps.take()
        super()._advance(times)  # type: ignore[misc] # the parser's

    def _warn_unsupported(self) -> None:
        # otherwise a statement that isn't understood would be logged and kept as raw text
        self.raise_error("Unsupported statement")  # type: ignore[attr-defined] # the parser's


class PrivacyClause(exp.Hint):
    """``WITH DIFFERENTIAL_PRIVACY [OPTIONS (…)]`` after SELECT."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": False}


class ProfileClause(exp.Hint):
    """Stands in a SELECT that was written ``PROFILE table WHERE …``."""

    arg_types: ClassVar[dict[str, bool]] = {}


class FrontDoorDialect(DuckDB):
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
    if tokens[0].text.upper() == "PROFILE" and tokens[0].token_type != TokenType.IDENTIFIER:
        return _profile(text, tokens), explain
    if tokens[0].token_type not in _STARTS:
        hint = "Only SELECT (or WITH … SELECT) can be asked"
        raise _at(text, tokens[0], "statement", "this isn't a question", hint)
    return _query(text, tokens), explain


def _profile(text: str, tokens: list[Token]) -> exp.Query:
    """What stands after PROFILE is what may stand after FROM, and WHERE."""
    hint = "Write PROFILE and a table, as in PROFILE orders WHERE city = 'Bern'"
    if len(tokens) < 2:
        raise _at(text, tokens[0], "profile", "it isn't said of what a profile is wanted", hint)
    query = _query(text, [*_tokens("SELECT COUNT(*) FROM"), *tokens[1:]])
    if not isinstance(query, exp.Select):
        raise _at(text, tokens[0], "profile", "a profile is of one table or join, with or without WHERE", hint)
    try:
        only(query, "expressions", "from_", "joins", "where")
    except Refused:
        raise _at(text, tokens[0], "profile", "a profile has no more than tables and WHERE", hint) from None
    query.set("hint", ProfileClause())
    return query


def _tokens(text: str) -> list[Token]:
    if len(text) > LONGEST:
        raise refused("too_long", f"a question may have at most {LONGEST} characters", "Ask in several questions")
    control = _CONTROL.search(text)
    if control is not None:
        error = refused("syntax", "the text holds a control character", "Remove it")
        error.position = line_and_column(text, control.start())
        raise error
    try:
        tokens = list(FrontDoorDialect().tokenize(text))
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
    parser: Any = FrontDoorDialect.Parser(error_level=ErrorLevel.IMMEDIATE, dialect=FrontDoorDialect())
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


# ---------------------------------------------------------------------------------------------- grammar


_BINARY = ("this", "expression")
_ONE = ("this",)
_LIST = ("expressions",)
_QUERY = (
    *("cluster", "connect", "distribute", "for_", "format", "laterals", "locks", "match", "options", "pivots"),
    *("prewhere", "sample", "settings", "sort"),
)
_CLAUSES = ("group", "having", "joins", "limit", "offset", "qualify", "where", "windows")

READ: Mapping[type[exp.Expr], tuple[str, ...]] = MappingProxyType(
    {
        # queries
        exp.Select: (
            *("expressions", "hint", "distinct", "from_", "joins", "where", "group", "having", "qualify", "windows"),
            *("order", "limit", "offset", "with_"),
        ),
        # the order of a set has no influence on what is made of it
        exp.Union: ("this", "expression", "distinct", "order", "with_"),
        exp.Subquery: ("this", "alias", "with_"),
        exp.With: _LIST,
        # materialized is about how, not what
        exp.CTE: ("this", "alias", "materialized"),
        PrivacyClause: _LIST,
        ProfileClause: (),
        exp.From: _ONE,
        exp.Join: ("this", "side", "kind", "on", "using"),
        exp.Table: ("this", "db", "catalog", "alias"),
        exp.TableAlias: ("this", "columns"),
        exp.Where: _ONE,
        exp.Group: ("expressions", "all"),
        exp.Having: _ONE,
        exp.Qualify: _ONE,
        exp.Order: _LIST,
        exp.Ordered: ("this", "desc", "nulls_first"),
        exp.Limit: ("expression",),
        exp.Offset: ("expression",),
        exp.Distinct: _LIST,
        exp.Star: (),
        # names and constants
        exp.Alias: ("this", "alias"),
        exp.Column: ("this", "table"),
        exp.Identifier: ("this", "quoted"),
        exp.Var: _ONE,
        exp.Literal: ("this", "is_string"),
        exp.Boolean: _ONE,
        exp.Null: (),
        exp.Array: _LIST,
        exp.Tuple: _LIST,
        exp.Interval: ("this", "unit"),
        exp.DataType: ("this", "expressions", "nested"),
        exp.DataTypeParam: _ONE,
        # expressions
        exp.Paren: _ONE,
        exp.Not: _ONE,
        exp.Neg: _ONE,
        **dict.fromkeys((exp.And, exp.Or, exp.Add, exp.Sub, exp.Mul, exp.IntDiv, exp.Mod, exp.Pow), _BINARY),
        **dict.fromkeys((exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ), _BINARY),
        # what the parser notes about its dialect, whose meaning isn't ours: / is always of doubles, NULL if undefined
        exp.Div: (*_BINARY, "typed", "safe"),
        exp.DPipe: (*_BINARY, "safe"),
        **dict.fromkeys((exp.Like, exp.ILike, exp.Is), (*_BINARY, "negate")),
        exp.Between: ("this", "low", "high"),
        exp.In: ("this", "expressions", "query"),
        exp.Case: ("this", "ifs", "default"),
        exp.If: ("this", "true"),
        **dict.fromkeys((exp.Cast, exp.TryCast), ("this", "to", "safe", "requires_string")),
        exp.Extract: _BINARY,
        exp.Trim: ("this", "position"),
        exp.Substring: ("this", "start", "length"),
        exp.StrPosition: ("this", "substr"),
        exp.Anonymous: ("this", "expressions"),
        exp.Kwarg: _BINARY,
        exp.PropertyEQ: _BINARY,
        exp.Filter: _BINARY,
        exp.WithinGroup: _BINARY,
        exp.Window: ("this", "partition_by", "order", "alias", "over"),
    }
)
"""What the binder reads of each kind of node, and what changes nothing."""

REFUSED: Mapping[type[exp.Expr], tuple[str, ...]] = MappingProxyType(
    {
        exp.Select: (*_QUERY, "exclude", "into", "kind", "operation_modifiers"),
        exp.Union: (*_QUERY, *_CLAUSES, "by_name", "kind", "on", "side"),
        exp.Subquery: (*_QUERY, *_CLAUSES, "order"),
        exp.With: ("cycle", "recursive", "search", "udfs"),
        exp.CTE: ("key_expressions", "scalar"),
        exp.Join: ("directed", "expressions", "global_", "hint", "match_condition", "method", "nearest", "pivots"),
        exp.Table: (
            *("changes", "format", "hints", "indexed", "joins", "laterals", "only", "ordinality", "partition"),
            *("pattern", "pivots", "rows_from", "sample", "system_time", "version", "when"),
        ),
        exp.Group: ("cube", "grouping_sets", "rollup", "totals"),
        exp.Order: ("siblings", "this"),
        exp.Ordered: ("with_fill",),
        exp.Limit: ("expressions", "limit_options", "offset", "this"),
        exp.Offset: ("expressions", "this"),
        exp.Distinct: ("on",),
        exp.Star: ("except_", "ilike", "rename", "replace"),
        exp.Column: ("db", "catalog", "join_mark", "shadow"),
        exp.Identifier: ("global_", "temporary"),
        exp.Array: ("bracket_notation", "struct_name_inheritance", "value_constructor"),
        exp.Interval: ("fraction_in_string",),
        exp.DataType: ("collate", "kind", "nullable", "values"),
        exp.DataTypeParam: ("expression",),
        exp.Between: ("symmetric",),
        exp.In: ("field", "is_global", "unnest"),
        exp.If: ("false",),
        exp.Cast: ("action", "default", "format"),
        exp.TryCast: ("action", "default", "format", "null_on_text_overflow", "probe_date_format"),
        exp.Trim: ("collation", "expression"),
        exp.Substring: ("zero_start",),
        exp.StrPosition: ("clamp_position", "occurrence", "position"),
        exp.Window: ("first", "spec"),
    }
)
"""What is known and isn't answered; it is listed only so that a test can tell it from what is new."""


def expect_known(tree: exp.Expr, text: str) -> None:
    """Refuse a tree in which anything is set that nobody reads; asked last, since the binder's refusals say more."""
    for node in tree.walk():
        known = READ.get(type(node))
        try:
            if known is None:
                raise refused(
                    "unsupported",
                    "this kind of expression isn't supported",
                    "use columns, functions and aggregates that the documentation of SQL lists",
                )
            only(node, *known)
        except Refused as error:
            raise placed(error, node, text) from None
