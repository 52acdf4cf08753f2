"""Whether a statement reads a table of the policy, and whether it wants to see anything of it.

Public tables count too: the shadow holds none of their rows either.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import SqlglotError

from dither.query.schema import Schema
from dither.query.sql.parse import MOST_TOKENS, Bounded, ParserSteps
from dither.server.pgwire.sql.lexer import Word, WordKind, cut, folded

# Schemas of the shadow that hold other things than tables of the policy.
ELSEWHERE = frozenset({"pg_catalog", "information_schema", "pg_toast", "dp"})
# After these words stands a table, and after these symbols may stand one.
_BEFORE_TABLES = frozenset({"FROM", "JOIN", "ONLY", "TABLE", "INTO", "UPDATE", "USING", "TRUNCATE", "LATERAL"})
_BEFORE_ANYTHING = frozenset({",", "("})
# What a query is made of that shows columns as they are: with nothing else in it, no rows in means no rows out.
_PLAIN = (
    *(exp.Select, exp.Subquery, exp.From, exp.Join, exp.Table, exp.TableAlias, exp.Identifier),
    *(exp.Column, exp.Star, exp.Alias, exp.Where, exp.Limit, exp.Fetch, exp.LimitOptions, exp.Order, exp.Ordered),
    *(exp.And, exp.EQ, exp.NEQ, exp.Paren, exp.Boolean, exp.Literal, exp.Null, exp.Cast, exp.DataType),
)
_PARSER: Any = Postgres.Parser


class _Dialect(Postgres):
    """PostgreSQL's, for queries alone."""

    class Parser(Bounded, _PARSER):  # type: ignore[misc]
        """Says nothing about statements that it can't read: a warning would put an analyst's text into a log."""


class Trees:
    """The trees of one message's statements, which share its steps."""

    def __init__(self, message: str, words: int) -> None:
        self.message = message
        self._steps = ParserSteps(words)
        self._last: tuple[tuple[int, int], exp.Expr | None] | None = None

    def of(self, words: list[Word]) -> exp.Expr | None:
        """The tree of a query, None if it can't be read; parameters stand in it as a number that isn't 0.

        Raises:
            RecursionError: If it is nested too deeply, or too little is left of the message's steps.
        """
        if len(words) > MOST_TOKENS:
            return None
        place = words[0].start, words[-1].end
        if self._last is None or self._last[0] != place:
            self._last = place, self._read(words)
        return self._last[1]

    def _read(self, words: list[Word]) -> exp.Expr | None:
        start = words[0].start
        text = list(self.message[start : words[-1].end])
        for word in words:
            if word.kind is WordKind.PARAMETER:
                text[word.start - start : word.end - start] = "1".ljust(word.end - word.start)
        sql = "".join(text)
        dialect = _Dialect()
        parser: Any = dialect.parser()
        parser.steps = self._steps
        try:
            trees = parser.parse(dialect.tokenize(sql), sql)
        except (SqlglotError, ValueError):
            return None
        return trees[0] if len(trees) == 1 else None


class Probe(Enum):
    """What a statement that wants no row asks for: the columns of tables, or those of an answer."""

    NONE = "none"
    ROWS = "rows"
    ANSWER = "answer"


class PolicyTables:
    """The names of the policy's tables, and how statements mention them."""

    def __init__(self, schema: Schema, *, database: str) -> None:
        parts = [name.split(".") for name in schema.tables]
        self._names = frozenset(_key(part[-1]) for part in parts)
        self._plain = frozenset(_key(part[0]) for part in parts if len(part) == 1)
        self._schemas = frozenset({"public"} | {_key(part[-2]) for part in parts if len(part) > 1})
        self._database = _key(database)

    def read_in(self, words: list[Word], trees: Trees) -> bool:
        """Whether these words, which are a statement or a query in one, may read a table of the policy."""
        doubtful = False
        for at, word in enumerate(words):
            if not word.is_name or _key(word.value) not in self._names:
                continue
            before = words[at - 1] if at else None
            if before is None or before.keyword in _BEFORE_TABLES:
                return True
            if before.is_symbol("."):
                # a column of something, or a table of another schema, unless the schema is one of ours
                if at > 1 and _key(words[at - 2].value) in self._schemas:
                    return True
            elif before.kind is WordKind.SYMBOL and before.value in _BEFORE_ANYTHING:
                doubtful = True
            elif words[0].keyword not in ("SELECT", "WITH", "VALUES") and not words[0].is_symbol("("):
                # LOCK orders, ANALYZE orders, EXPLAIN …: not read word by word
                doubtful = True
        return doubtful and self._in_tree(words, trees)

    def _in_tree(self, words: list[Word], trees: Trees) -> bool:
        tree = trees.of(words)
        if not isinstance(tree, exp.Query):
            return True
        return any(
            _key(table.name) in self._names and _key(table.db) not in ELSEWHERE for table in tree.find_all(exp.Table)
        )

    def unqualified(self, words: list[Word], message: str) -> str:
        """The text of these words with the schema's name before tables blanked out: the curator knows no schemas."""
        start = words[0].start
        text = list(message[start : words[-1].end])
        for at, word in enumerate(words):
            if not word.is_name or _key(word.value) not in self._plain or at < 2 or not words[at - 1].is_symbol("."):
                continue
            if not words[at - 2].is_name or _key(words[at - 2].value) != "public":
                continue
            first = words[at - 2]
            if at >= 4 and words[at - 3].is_symbol(".") and _key(words[at - 4].value) == self._database:
                first = words[at - 4]
            elif at >= 3 and words[at - 3].is_symbol("."):
                continue
            for place in range(first.start - start, word.start - start):
                text[place] = "\n" if text[place] == "\n" else " "
        return "".join(text)

    def probe(self, words: list[Word], trees: Trees) -> Probe:
        """Whether the query wants no rows at all, as tools do that look for the names and types of columns."""
        if not _may_want_nothing(words):
            return Probe.NONE
        tree = trees.of(words)
        while isinstance(tree, exp.Subquery) and not tree.alias and tree.this is not None:
            tree = tree.this
        if not isinstance(tree, exp.Select) or tree.args.get("into"):
            return Probe.NONE
        none_wanted, none_passes = _is_zero(tree.args.get("limit")), _is_never(tree.args.get("where"))
        if not none_wanted and not none_passes:
            return Probe.NONE
        if all(isinstance(node, _PLAIN) for node in tree.walk()):
            return Probe.ROWS
        if none_wanted:
            return Probe.ANSWER
        around = [node for part in (tree.expressions, [tree.args["where"]]) for each in part for node in each.walk()]
        wraps = isinstance(getattr(tree.args.get("from_"), "this", None), exp.Subquery)
        used = {name for name, value in tree.args.items() if value}
        if wraps and used <= {"expressions", "from_", "where"} and all(isinstance(node, _PLAIN) for node in around):
            return Probe.ANSWER
        return Probe.NONE


def probed(words: list[Word]) -> list[Word]:
    """The query whose columns a probe wants: that in parentheses for ``SELECT * FROM (…) AS t WHERE 1=0``, else all.

    What the curator refuses after an answer's LIMIT then doesn't matter: the columns are those of the inner query.
    """
    if len(words) < 5 or [word.value for word in words[:4]] != ["select", "*", "from", "("]:
        return words
    depth, end = 1, 4
    while end < len(words) and depth:
        depth += 1 if words[end].is_symbol("(") else -1 if words[end].is_symbol(")") else 0
        end += 1
    after = words[end + 1 :] if end < len(words) and words[end].keyword == "AS" else words[end:]
    if depth or len(after) < 2 or not after[0].is_name or after[1].keyword not in ("WHERE", "LIMIT"):
        return words
    inside = words[4 : end - 1]
    return inside if inside and inside[0].keyword in ("SELECT", "WITH") else words


def _may_want_nothing(words: list[Word]) -> bool:
    """Whether it is worth reading the tree: something is limited to 0, false, or a number compared with a number."""
    last = None
    for word in words:
        if word.value == "0" and last is not None and last.keyword in ("LIMIT", "FIRST", "NEXT"):
            return True
        if word.value == "false" or (word.kind is WordKind.NUMBER and last is not None and last.value in ("=", ">")):
            return True
        last = word
    return False


def _is_zero(limit: exp.Expr | None) -> bool:
    number = limit.args.get("expression" if isinstance(limit, exp.Limit) else "count") if limit is not None else None
    return isinstance(number, exp.Literal) and not number.is_string and number.name == "0"


def _is_never(where: exp.Expr | None) -> bool:
    """Whether a condition is false whatever the row: 1 = 0 and its like, alone or with others by AND."""
    condition = where.this if isinstance(where, exp.Where) else where
    while isinstance(condition, exp.Paren):
        condition = condition.this
    if isinstance(condition, exp.And):
        return _is_never(condition.left) or _is_never(condition.right)
    if isinstance(condition, exp.Boolean):
        return not condition.this
    if isinstance(condition, exp.EQ | exp.NEQ):
        sides = condition.left, condition.right
        if all(isinstance(side, exp.Literal) and not side.is_string and side.name.isdigit() for side in sides):
            same = int(sides[0].name) == int(sides[1].name)
            return same if isinstance(condition, exp.NEQ) else not same
    return False


def _key(name: str) -> str:
    # looser than PostgreSQL: names that differ in the case of letters count as one
    return cut(folded(name))
