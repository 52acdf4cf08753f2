"""Where each statement goes: to the curator, to the shadow PostgreSQL, or nowhere.

Whatever reads a table of the policy goes to the curator or is refused. Everything else goes to the shadow, which holds
the same tables without a row, so a mistake here can show no data. The other mistake would be to answer a question
about data from empty tables: so a name that could be a table of the policy counts as one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import ClassVar, TypeAlias

from dither.query.schema import Schema
from dither.server.pgwire.sql import commands, lexer
from dither.server.pgwire.sql.commands import Command, PrepareAs, Words
from dither.server.pgwire.sql.copying import read_copy
from dither.server.pgwire.sql.lexer import TooManyWords, Unclosed, Word
from dither.server.pgwire.sql.settings import setting_problem
from dither.server.pgwire.sql.table_use import PolicyTables, Probe, Trees, probed
from dither.server.problems import ServerProblem

# Who answers a statement, or what it does to the session.
Route = Enum(
    "Route",
    "EMPTY TRANSACTION SETTING PRIVATE COPY DECLARE FETCH CLOSE PREPARE EXECUTE DEALLOCATE DISCARD SHADOW REFUSED",
)


Detail: TypeAlias = (
    commands.Transaction
    | commands.Setting
    | commands.CopyOut
    | commands.Cursor
    | commands.Fetch
    | commands.ByName
    | PrepareAs
    | commands.ExecuteNamed
    | ServerProblem
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One statement of a message, and where it goes.

    ``offset`` and ``question_offset`` are places in the message, in characters. ``question`` is what the curator is
    asked: as long as the piece of the message that it stands for, but the schema's name before tables is blanked out.
    ``no_rows`` says that the answer has no rows whatever the data is, so it must not be asked for: its price has its
    columns. ``parameters`` is the highest ``$n``. ``detail`` belongs to the route;
    the place of a problem is in ``sql``.
    """

    route: Route
    sql: str
    offset: int
    tag: str = ""
    question: str = ""
    question_offset: int = 0
    parameters: int = 0
    no_rows: bool = False
    detail: Detail | None = None


MOST_STATEMENTS, MOST_WORDS = 10_000, 50_000
# What a client may say that has nothing to do with tables, by first word.
_TRANSACTION = ("BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SAVEPOINT", "RELEASE")
_COMMANDS: dict[str, tuple[Route, Callable[[str, Words], Command]]] = {
    "CLOSE": (Route.CLOSE, commands.read_close),
    "DEALLOCATE": (Route.DEALLOCATE, commands.read_deallocate),
    "DISCARD": (Route.DISCARD, commands.read_discard),
    "FETCH": (Route.FETCH, commands.read_fetch),
    "MOVE": (Route.FETCH, commands.read_fetch),
}
_QUESTIONS = ("SELECT", "WITH", "FROM", "VALUES", "TABLE")
# Statements that write, lock, load or signal. The shadow refuses most of them by itself; a role may change its own
# settings, though, and signals would reach other sessions.
_WRITES = (
    *("ALTER", "ANALYZE", "ANALYSE", "CALL", "CHECKPOINT", "CLUSTER", "COMMENT", "CREATE", "DELETE", "DO", "DROP"),
    *("GRANT", "IMPORT", "INSERT", "LISTEN", "LOAD", "LOCK", "MERGE", "NOTIFY", "REASSIGN", "REFRESH", "REINDEX"),
    *("REPACK", "REVOKE", "SECURITY", "TRUNCATE", "UPDATE", "VACUUM"),
)
_NO_CHANGES = "Nothing can be changed here; ask for aggregates, such as SELECT COUNT(*) FROM …"
_ASK = "Ask for aggregates, such as SELECT COUNT(*) FROM …; EXPLAIN PRIVACY SELECT … shows the price."


class Router:
    """Sends statements about the tables of one policy where they belong."""

    def __init__(self, schema: Schema, *, database: str) -> None:
        self._tables = PolicyTables(schema, database=database)

    def split(self, text: str) -> list[Statement]:
        """The statements of one message, never none: an empty text is an empty statement.

        Example:
            >>> from dither.query.schema import TableFacts
            >>> orders = TableFacts(name="orders", private=True, columns={})
            >>> router = Router(Schema({"orders": orders}), database="shop")
            >>> parts = router.split("BEGIN; SELECT count(*) FROM public.orders; SELECT version()")
            >>> [part.route.name for part in parts]
            ['TRANSACTION', 'PRIVATE', 'SHADOW']
            >>> parts[1].question
            'SELECT count(*) FROM        orders'
        """
        try:
            parts = lexer.statements(text, most=MOST_WORDS)
        except TooManyWords:
            return [_too_long(text, f"a message may have at most {MOST_WORDS} words")]
        except Unclosed as problem:
            refusal = ServerProblem(
                code="syntax",
                title=problem.what,
                hint="Close every quote and comment.",
                position=_line_and_column(text, problem.place),
            )
            return [Statement(route=Route.REFUSED, sql=text, offset=0, detail=refusal)]
        if len(parts) > MOST_STATEMENTS:
            return [_too_long(text, f"a message may have at most {MOST_STATEMENTS} statements")]
        trees = Trees(text, sum(map(len, parts)))
        found = [_Reading(part, self._tables, trees).statement() for part in parts]
        return found or [Statement(route=Route.EMPTY, sql=text, offset=0)]


class _Reading:
    """One statement being read."""

    def __init__(self, words: list[Word], tables: PolicyTables, trees: Trees) -> None:
        self._words, self._tables, self._trees = words, tables, trees
        self._start, self._end = words[0].start, words[-1].end
        self._message = trees.message
        self._sql = self._message[self._start : self._end]
        self._behind_head = Words(words[1:])
        self._head = words[0].keyword or ("SELECT" if words[0].is_symbol("(") else "")

    @property
    def _second(self) -> str:
        return self._words[1].keyword if len(self._words) > 1 else ""

    def statement(self) -> Statement:
        try:
            return self._routed()
        except commands.UnreadableStatement as problem:
            return self._refused("42601", "syntax", problem.what, problem.hint, problem.word)
        except RecursionError:
            return self._refused("54001", "too_deep", "the statement is nested too deeply", "Split it.")

    def _is_odd(self, word: Word) -> bool:
        return word.kind is lexer.WordKind.WORD and not self._message[word.start : word.end].isprintable()

    def _routed(self) -> Statement:
        encoded = next((word for word in self._words if word.kind is lexer.WordKind.ENCODED), None)
        if encoded is not None:
            hint = "Write the name itself between double quotes."
            return self._refused("0A000", "unsupported", "names with Unicode escapes can't be used", hint, encoded)
        blank = next((word for word in self._words if self._is_odd(word)), None)
        if blank is not None:
            # a letter for PostgreSQL: FROM<no-break space>orders would be one name, and the query another one
            hint = "Write a plain blank; texts copied from pages often hold others."
            return self._refused("42601", "syntax", "a word holds a blank or an invisible character", hint, blank)
        return self._READ.get(self._head, _Reading._other)(self)

    def _other(self) -> Statement:
        """A question, if it reads a table of the policy; else the shadow's."""
        if not self._tables.read_in(self._words, self._trees):
            return self._to_shadow()
        if self._head in _QUESTIONS:
            return self._question(self._words)
        return self._refused("0A000", "unsupported", "this isn't a question", _ASK, self._words[0])

    def _write(self) -> Statement:
        return self._refused("25006", "read_only", f"{self._head} can't be used here", _NO_CHANGES, self._words[0])

    # ------------------------------------------------------------------ what isn't about tables

    def _transaction(self) -> Statement:
        found = commands.read_transaction(self._head, self._behind_head)
        return self._other() if found is None else self._made(Route.TRANSACTION, *found)

    def _command(self) -> Statement:
        route, read = _COMMANDS[self._head]
        return self._made(route, *read(self._head, self._behind_head))

    def _setting(self) -> Statement:
        found = commands.read_setting(self._head, self._behind_head)
        if found is None:
            return self._to_shadow()
        _, setting = found
        if not isinstance(setting, commands.Setting):
            return self._made(Route.DISCARD, *found)
        if setting.ours:
            return self._made(Route.SETTING, *found)
        problem = setting_problem(setting)
        return self._to_shadow() if problem is None else self._refused("0A000", "setting", *problem, self._words[-1])

    # ------------------------------------------------------------------ what may be a question

    def _question(self, words: list[Word]) -> Statement:
        probe = self._tables.probe(words, self._trees)
        if probe is Probe.ROWS:
            # no row of the table is shown whatever it holds, and the empty table has the same columns
            return self._to_shadow()
        if probe is Probe.ANSWER:
            return self._asked(Route.PRIVATE, probed(words), no_rows=True)
        return self._asked(Route.PRIVATE, words)

    def _explain(self) -> Statement:
        if self._second == "PRIVACY":
            return self._asked(Route.PRIVATE, self._words)
        if not self._tables.read_in(self._words, self._trees):
            return self._to_shadow()
        hint = "Write EXPLAIN PRIVACY SELECT … to see what a question costs."
        return self._refused("0A000", "statement", "EXPLAIN would show the engine's plan", hint, self._words[0])

    def _profile(self) -> Statement:
        if not self._tables.read_in(self._words[1:], self._trees):
            return self._to_shadow()
        return self._asked(Route.PRIVATE, self._words)

    def _copy(self) -> Statement:
        question, options = read_copy(self._behind_head)
        if not self._tables.read_in(question or self._words, self._trees):
            return self._to_shadow()
        if not question:
            hint = "Write COPY (SELECT … aggregates …) TO STDOUT."
            return self._refused("42501", "rows_shown", "rows of these tables can't be copied", hint)
        if options is None:
            hint = "Write TO STDOUT; in psql, \\copy (SELECT …) TO 'file' writes the file on your side."
            return self._refused("42501", "read_only", "answers can be copied to the client alone", hint)
        return self._asked(Route.COPY, question, detail=options, tag="COPY")

    def _declare(self) -> Statement:
        cursor, question = commands.read_declare(self._behind_head)
        if not self._tables.read_in(question, self._trees):
            return self._to_shadow()
        return self._asked(Route.DECLARE, question, detail=cursor, tag="DECLARE CURSOR")

    def _prepare(self) -> Statement:
        """PREPARE of a question; of anything else it is the shadow's, and its name is noted."""
        if self._second == "TRANSACTION":
            return self._other()
        words = self._behind_head
        name, types = words.name(), words.inside()
        query = words.query_after("AS", "Write PREPARE name AS SELECT …")
        of_shadow = self._made(Route.PREPARE, "PREPARE", PrepareAs(name=name))
        if not self._tables.read_in(query, self._trees):
            return of_shadow
        if query[0].keyword not in _QUESTIONS and not query[0].is_symbol("("):
            return self._refused("0A000", "unsupported", "this isn't a question", _ASK, query[0])
        question = self._question(query)
        if question.route is Route.SHADOW:
            return of_shadow
        detail = PrepareAs(name=name, types=commands.types_of(types))
        return replace(question, route=Route.PREPARE, tag="PREPARE", detail=detail)

    def _execute(self) -> Statement:
        words = self._behind_head
        name, arguments = words.name(), words.inside()
        words.end()
        if arguments and self._tables.read_in(arguments, self._trees):
            hint = "Write numbers, texts in quotes, TRUE, FALSE or NULL."
            return self._refused("0A000", "unsupported", "an argument can't read a table", hint, arguments[0])
        detail = commands.ExecuteNamed(name=name, arguments=commands.literals_of(arguments, self._message))
        return replace(self._to_shadow(), route=Route.EXECUTE, tag="EXECUTE", detail=detail)

    # ------------------------------------------------------------------ statements

    def _made(self, route: Route, tag: str, detail: Detail | None = None) -> Statement:
        return Statement(route=route, sql=self._sql, offset=self._start, tag=tag, detail=detail)

    def _asked(
        self,
        route: Route,
        words: list[Word],
        *,
        detail: Detail | None = None,
        tag: str = "SELECT",
        no_rows: bool = False,
    ) -> Statement:
        return replace(
            self._made(route, tag, detail),
            question=self._tables.unqualified(words, self._message),
            question_offset=words[0].start,
            parameters=_highest_parameter(words),
            no_rows=no_rows,
        )

    def _to_shadow(self) -> Statement:
        return replace(self._made(Route.SHADOW, self._head), parameters=_highest_parameter(self._words))

    def _refused(self, sqlstate: str, code: str, title: str, hint: str = "", word: Word | None = None) -> Statement:
        position = None if word is None else _line_and_column(self._sql, word.start - self._start)
        problem = ServerProblem(sqlstate=sqlstate, code=code, title=title, hint=hint, position=position)
        return self._made(Route.REFUSED, self._head, problem)

    # how a statement is read, by its first word; the others may be questions
    _READ: ClassVar[dict[str, Callable[[_Reading], Statement]]] = {
        **dict.fromkeys(_TRANSACTION, _transaction),
        **dict.fromkeys(_COMMANDS, _command),
        **dict.fromkeys(_WRITES, _write),
        **dict.fromkeys(("SET", "RESET", "SHOW"), _setting),
        "COPY": _copy,
        "DECLARE": _declare,
        "EXECUTE": _execute,
        "EXPLAIN": _explain,
        "PREPARE": _prepare,
        "PROFILE": _profile,
    }


def _too_long(text: str, title: str) -> Statement:
    refusal = ServerProblem(sqlstate="54000", code="too_long", title=title, hint="Send them in several messages.")
    return Statement(route=Route.REFUSED, sql=text, offset=0, detail=refusal)


def _highest_parameter(words: list[Word]) -> int:
    return max((int(word.value[:6]) for word in words if word.kind is lexer.WordKind.PARAMETER), default=0)


def _line_and_column(text: str, place: int) -> tuple[int, int]:
    before = text[:place]
    return before.count("\n") + 1, place - (before.rfind("\n") + 1) + 1
