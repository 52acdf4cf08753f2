"""Running statements: each route of a statement to its result, for the simple and the extended protocol alike."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, ClassVar, NoReturn, TypeVar

import pyarrow as pa

from dither.server.auth.identity import Identity
from dither.server.pgwire.catalogue.relay import Relay
from dither.server.pgwire.catalogue.shadow import Reply
from dither.server.pgwire.protocol import messages, types
from dither.server.pgwire.protocol.connection import Wire
from dither.server.pgwire.protocol.errors import WireError, WireReport, failure, moved, notice
from dither.server.pgwire.session.portals import (
    Names,
    Portal,
    PreparedStatement,
    ResultRows,
    data_rows,
    description,
    formats_of,
)
from dither.server.pgwire.session.preparing import Preparing
from dither.server.pgwire.session.questions import Questions, beside, explained, paid
from dither.server.pgwire.sql import commands
from dither.server.pgwire.sql.copying import CopyWriter
from dither.server.pgwire.sql.lexer import words
from dither.server.pgwire.sql.parameters import BoundText, offset_of
from dither.server.pgwire.sql.reading import AnalystReading
from dither.server.pgwire.sql.routing import Route, Statement
from dither.server.pgwire.sql.settings import LEAST, SessionOptions
from dither.server.pgwire.sql.transactions import IDLE, TransactionState
from dither.server.problems import ServerProblem
from dither.server.service import Service

T = TypeVar("T")
RESETS = ("DISCARD ALL", "RESET")
LONGEST_SET = 500
# What to do where an answer has other columns than the client was told.
_BY_ITSELF = "Its values decide that. Give the column a type by itself, CAST(… AS DOUBLE), or write the values out."
_AGAIN = "Something else has the name now. Prepare the statement again."


class AlreadyTold(Exception):  # noqa: N818
    """A statement failed in the shadow, whose own error the client has."""


class StatementRunner:
    """Runs portals of one session and sends what comes of it."""

    def __init__(
        self,
        wire: Wire,
        service: Service,
        who: Identity,
        *,
        reading: AnalystReading,
        relay: Relay,
        names: Names,
        transaction: TransactionState,
    ) -> None:
        self._wire, self._service, self._who = wire, service, who
        self.questions = Questions(service, who, reading)
        self.preparing = Preparing(self.questions, service.curator.policy.schema, reading)
        self._relay, self._names, self._transaction = relay, names, transaction
        self.options = SessionOptions()

    async def run(self, portal: Portal, *, count: int = 0, describe: bool = False) -> None:
        """Run a portal, or go on with it; ``describe`` is the simple protocol, which sends the columns first."""
        if portal.statement.route is Route.EMPTY:
            self._wire.send(messages.EMPTY_QUERY)
            return
        if portal.rows is None:
            if portal.ran:
                raise failure("55000", "this portal has run and can't be run again")
            tag = await self._produce(portal)
            portal.ran = True
            if tag is not None:
                self._wire.send(messages.complete(tag))
                return
        if portal.rows is not None:
            if describe and portal.rows.binary:
                portal.formats = (1,)
            await self._send_rows(portal, portal.rows, count=count, describe=describe)

    def settle(self) -> None:
        """The client is about to be told that the server is ready: without a transaction, what it did stays or goes."""
        if self._transaction.status == IDLE:
            self.options.end(kept=not self._transaction.broken)
            self._names.end_transaction()
        self._transaction.settle()

    # ------------------------------------------------------------------ columns

    async def described(self, prepared: PreparedStatement) -> tuple[types.WireColumn, ...] | None:
        """The columns that a client is told of a statement, whatever its values; None if it gives no rows. Free."""
        statement, told = prepared.statement, prepared.told
        if statement.route is not Route.PRIVATE:
            return await self.columns(Portal(statement=statement, bound=BoundText(text=statement.question), told=told))
        if told.columns is None:
            told.columns = await self.questions.columns_of_any(prepared, self.options.current)
        return told.columns

    async def columns(self, portal: Portal) -> tuple[types.WireColumn, ...] | None:
        """The columns that a client is told of a portal; None if it has no rows to give. Free."""
        statement, detail, told = portal.statement, portal.statement.detail, portal.told
        if portal.rows is not None:
            return portal.rows.columns
        if statement.route is Route.PRIVATE or portal.cursor:
            if told.columns is None:
                told.columns = await self._own_columns(portal)
            await self._expect_told(portal)
            return told.columns
        if isinstance(detail, commands.Setting) and detail.action == "show":
            return (types.WireColumn(name=f"dp.{detail.name}", oid=types.TEXT),)
        if isinstance(detail, commands.Fetch) and not detail.move:
            told.columns = await self.columns(self._names.portal(detail.name))
            return told.columns
        if isinstance(detail, commands.ExecuteNamed):
            told.columns = await self._unplaced(self._own_columns(await self._executed(portal, detail)))
            return told.columns
        return None

    async def _own_columns(self, portal: Portal) -> tuple[types.WireColumn, ...]:
        """The columns that a question has with the values of its portal."""
        if portal.columns is None:
            portal.columns = await self.questions.columns(portal.statement, self.options.current, portal.bound)
        return portal.columns

    async def _expect_told(self, portal: Portal) -> None:
        """Refuse values that make other columns than the client reads the answer by; nothing is paid for yet."""
        told = portal.told.columns
        if told is not None and not types.fits(await self._own_columns(portal), told):
            raise _other_columns(_BY_ITSELF)

    def warn(self, told: WireReport | None) -> None:
        """Tell the client something besides, if it wants to hear it."""
        if told is not None and self.options.current.hears(told.severity):
            self._wire.send(told.message())

    def saw(self, statement: Statement) -> None:
        """A statement ran in the shadow; one setting of PostgreSQL's own holds for what is said here as well."""
        if len(statement.sql) > LONGEST_SET or LEAST not in statement.sql.lower():
            return
        said = commands.Words(words(statement.sql))
        _, wanted = commands.read_setting(said.any().keyword, said) or ("", None)
        if not isinstance(wanted, commands.Setting) or wanted.name != LEAST or wanted.action == "show":
            return
        if self._transaction.in_block or not wanted.local:
            self.options.change_least(wanted.value, local=wanted.local)

    def relayed(self, reply: Reply, *, offset: int = 0) -> None:
        """Send what the shadow said; its statement began at ``offset`` of the client's message."""
        self._wire.send(moved(reply.messages, offset) if reply.failed and offset else reply.messages)
        if reply.failed:
            raise AlreadyTold

    # ------------------------------------------------------------------ rows

    async def _send_rows(self, portal: Portal, rows: ResultRows, *, count: int, describe: bool) -> None:
        part = portal.forward(count)
        if describe:
            self._wire.send(description(rows.columns, portal.formats))
        for chunk in data_rows(part, rows.columns, portal.formats):
            self._wire.send(chunk)
            await self._wire.relieve()
        if count and part.num_rows == count:
            self._wire.send(messages.PORTAL_SUSPENDED)
        else:
            self._wire.send(messages.complete(rows.word if rows.word == "SHOW" else f"{rows.word} {part.num_rows}"))

    async def _answer(self, portal: Portal) -> ResultRows:
        """The answer of a portal with a question, asked for if it hasn't been."""
        if portal.rows is None:
            # what doesn't fit is refused before the question is paid for
            await self._expect_told(portal)
            if len(portal.formats) > 1:
                formats_of(portal.formats, len(await self._own_columns(portal)))
            told = portal.told.columns
            if portal.statement.no_rows:
                columns = told or await self._own_columns(portal)
                table = pa.table([pa.array([], pa.null()) for _ in columns], names=[each.name for each in columns])
            else:
                table = await self._table(portal.statement, portal.bound)
                table = table if told is None else _as_told(table, told)
                columns = told or types.columns_of(table.schema)
            portal.rows = ResultRows(table=table, columns=columns, word="SELECT")
        return portal.rows

    async def _table(self, statement: Statement, bound: BoundText) -> pa.Table:
        if statement.question[:7].upper() == "EXPLAIN":
            # free, so that a token which may only look at prices is enough
            quote = await self.questions.explain(statement, self.options.current, bound)
            if quote is not None:
                self.warn(beside(quote))
                return explained(quote)
        answer = await self.questions.ask(statement, self.options.current, bound)
        self.warn(paid(answer))
        return answer.table

    # ------------------------------------------------------------------ one statement

    async def _produce(self, portal: Portal) -> str | None:
        """Run a statement: its rows are kept in the portal, or the tag of its completion is given."""
        statement = portal.statement
        if statement.route is not Route.TRANSACTION:
            self._transaction.expect_working()
        # a cursor's statement is its DECLARE, which ran already
        run = StatementRunner._run_question if portal.cursor else self._RUN[statement.route]
        return await run(self, portal, statement.detail)

    async def _run_question(self, portal: Portal, _: object) -> None:
        await self._answer(portal)

    async def _by_shadow(self, portal: Portal) -> None:
        self.relayed(await self._relay.simple(portal.statement), offset=portal.statement.offset)

    async def _run_elsewhere(self, portal: Portal, _: object) -> None:
        await self._by_shadow(portal)
        self.saw(portal.statement)

    async def _refuse(self, portal: Portal, refusal: ServerProblem) -> NoReturn:
        raise _refusal(portal.statement, refusal)

    async def _run_transaction(self, portal: Portal, wanted: commands.Transaction) -> str:
        statement = portal.statement
        before = self._transaction.status
        tag, warning = self._transaction.run(wanted, statement.tag)
        self.warn(warning)
        if wanted.action == "begin" and before == IDLE:
            self._transaction.opening = statement.sql
        elif wanted.action in ("commit", "rollback"):
            # without a BEGIN it ends what came before it in the same message
            self.options.end(kept=tag == "COMMIT")
            self._names.end_transaction()
        else:
            self._move_marks(wanted)
        if (before == IDLE) == (wanted.action == "begin"):
            await self._relay.mirror_transaction(statement, wanted, tag)
        return tag

    def _move_marks(self, wanted: commands.Transaction) -> None:
        """Settings go back to a savepoint with everything else."""
        left = len(self._transaction.savepoints)
        if wanted.action == "savepoint":
            self.options.mark()
        elif wanted.action == "release":
            self.options.release(left)
        elif wanted.action == "rollback_to":
            self.options.back_to(left)

    async def _run_setting(self, portal: Portal, wanted: commands.Setting) -> str | None:
        if wanted.action == "show":
            value = await self._shown(wanted.name)
            table = pa.table({f"dp.{wanted.name}": [value]})
            portal.rows = ResultRows(table=table, columns=types.columns_of(table.schema), word="SHOW")
            return None
        local = wanted.local and wanted.action == "set"
        if local and not self._transaction.in_block:
            self.warn(notice("SET LOCAL can only be used in transaction blocks", severity="WARNING", sqlstate="25P01"))
            return portal.statement.tag
        self.options.change(wanted.name, wanted.value if wanted.action == "set" else "", local=local)
        return portal.statement.tag

    async def _shown(self, name: str) -> str:
        if name != "budget":
            return self.options.current.shown(name, default_epsilon=self.questions.default_epsilon())
        lines = await self.questions.waited(self._service.budget(self._who))
        return "\n".join(f"{line.account}: {line}" for line in lines)

    async def _run_copy(self, portal: Portal, wanted: commands.CopyOut) -> str:
        writer = CopyWriter(wanted)
        rows = await self._answer(portal)
        self._wire.send(messages.copy_out(len(rows.columns), writer.form))
        for part in writer.rows(rows.table, rows.columns):
            self._wire.send(part)
            await self._wire.relieve()
        self._wire.send(messages.COPY_DONE)
        # it ran; what is kept isn't to be read as rows
        portal.rows = None
        return f"COPY {rows.table.num_rows}"

    # ------------------------------------------------------------------ cursors and names

    async def _declare(self, portal: Portal, wanted: commands.Cursor) -> str:
        if not wanted.hold and not self._transaction.in_block:
            raise failure("25P01", "DECLARE CURSOR can only be used in transaction blocks", hint="Send BEGIN first.")
        cursor = Portal(
            statement=portal.statement,
            bound=portal.bound,
            kinds=portal.kinds,
            cursor=True,
            hold=wanted.hold,
            binary=wanted.binary,
        )
        # refused here if it can't be asked, as PostgreSQL would; the question itself is asked at the first FETCH
        await self.columns(cursor)
        self._names.open(wanted.name, cursor)
        return portal.statement.tag

    async def _fetch(self, portal: Portal, wanted: commands.Fetch) -> str | None:
        told = portal.told.columns
        if wanted.name not in self._names.portals and self._relay.is_open:
            if told is not None:
                raise _other_columns(_AGAIN)
            await self._by_shadow(portal)
            return None
        cursor = self._names.portal(wanted.name)
        if told is not None and _kinds(told) != _kinds(await self.columns(cursor) or ()):
            raise _other_columns(_AGAIN)
        rows = await self._answer(cursor)
        part = cursor.move(wanted)
        if wanted.move:
            return f"MOVE {part.num_rows}"
        portal.rows = ResultRows(table=part, columns=rows.columns, word="FETCH", binary=cursor.binary)
        return None

    async def _close(self, portal: Portal, wanted: commands.ByName) -> str | None:
        statement = portal.statement
        if wanted.name is None:
            self._names.portals.clear()
            await self._relay.mirror(statement.sql)
            return statement.tag
        if wanted.name not in self._names.portals and self._relay.is_open:
            await self._by_shadow(portal)
            return None
        self._names.portal(wanted.name)
        del self._names.portals[wanted.name]
        return statement.tag

    async def _prepare(self, portal: Portal, wanted: commands.PrepareAs) -> str | None:
        statement = portal.statement
        self._names.expect_free(wanted.name)
        if not statement.question:
            await self._by_shadow(portal)
            self._names.prepare(wanted.name, PreparedStatement(statement=statement, relayed=True))
            return None
        question = replace(statement, route=Route.PRIVATE, tag="SELECT", detail=None)
        found = await self.preparing.prepared(question, wanted.types, self.options.current)
        self._names.prepare(wanted.name, found)
        return statement.tag

    async def _execute(self, portal: Portal, wanted: commands.ExecuteNamed) -> str | None:
        if self._names.is_foreign(wanted.name) and self._relay.is_open:
            if portal.told.columns is not None:
                raise _other_columns(_AGAIN)
            await self._by_shadow(portal)
            return None
        portal.rows = await self._unplaced(self._answer(await self._executed(portal, wanted)))
        return None

    async def _executed(self, portal: Portal, wanted: commands.ExecuteNamed) -> Portal:
        """The question that an EXECUTE runs, with its arguments."""
        held = self._question_named(wanted.name)
        if wanted.arguments is None:
            hint = "Write numbers, texts in quotes, TRUE, FALSE or NULL."
            raise failure("0A000", "arguments of a question must be literals", hint=hint)
        bound = await self.preparing.bound(held, wanted.arguments, sqlstate="42601")
        return Portal(statement=held.statement, bound=bound, kinds=held.types, formats=portal.formats, told=portal.told)

    async def _unplaced(self, work: Awaitable[T]) -> T:
        """Do the work of an EXECUTE; the places of its errors are in the message that had the question."""
        try:
            return await work
        except WireError as error:
            raise WireError(replace(error.report, offset=None)) from None

    def _question_named(self, name: str) -> PreparedStatement:
        """A prepared question; nothing else can be run by EXECUTE."""
        held = self._names.statements.get(name)
        if held is not None and not held.relayed and held.statement.route is not Route.PRIVATE:
            raise failure("0A000", "EXECUTE runs questions alone", hint="Send the statement itself.")
        if held is None or held.relayed:
            raise failure("26000", "there is no prepared statement of this name")
        return held

    async def _deallocate(self, portal: Portal, wanted: commands.ByName) -> str | None:
        statement = portal.statement
        if wanted.name is None:
            self._names.statements.clear()
            await self._relay.mirror(statement.sql)
            return statement.tag
        held = self._names.statements.get(wanted.name)
        if (held is None or held.relayed) and self._relay.is_open:
            self._names.statements.pop(wanted.name, None)
            await self._by_shadow(portal)
            return None
        self._names.statement(wanted.name)
        del self._names.statements[wanted.name]
        return statement.tag

    async def _discard(self, portal: Portal, _: object) -> str:
        statement = portal.statement
        if statement.tag == "DISCARD ALL":
            if self._transaction.status != IDLE:
                raise failure("25001", "DISCARD ALL cannot run inside a transaction block")
            self._names.statements.clear()
            self._names.portals.clear()
        if statement.tag in RESETS:
            self.options.reset()
        await self._relay.mirror(statement.sql)
        return statement.tag

    # how a statement is run, by its route; each is given the portal and the statement's detail
    _RUN: ClassVar[dict[Route, Callable[[StatementRunner, Portal, Any], Awaitable[str | None]]]] = {
        Route.CLOSE: _close,
        Route.COPY: _run_copy,
        Route.DEALLOCATE: _deallocate,
        Route.DECLARE: _declare,
        Route.DISCARD: _discard,
        Route.EXECUTE: _execute,
        Route.FETCH: _fetch,
        Route.PREPARE: _prepare,
        Route.PRIVATE: _run_question,
        Route.REFUSED: _refuse,
        Route.SETTING: _run_setting,
        Route.SHADOW: _run_elsewhere,
        Route.TRANSACTION: _run_transaction,
    }


def _kinds(columns: tuple[types.WireColumn, ...]) -> list[int]:
    return [column.oid for column in columns]


def _other_columns(hint: str) -> WireError:
    title = "the answer would have other columns than it was described with"
    return failure("0A000", title, hint=hint, detail="Nothing was charged.")


def _as_told(table: pa.Table, told: tuple[types.WireColumn, ...]) -> pa.Table:
    """An answer in the types that the client reads it by."""
    with contextlib.suppress(ValueError):
        return types.as_told(table, told)
    hint = "Ask it without preparing it, which is free now, or give its columns types: CAST(… AS DOUBLE)."
    raise failure("22003", "the answer doesn't fit in the columns that it was described with", hint=hint)


def _refusal(statement: Statement, refusal: ServerProblem) -> WireError:
    offset = None if refusal.position is None else statement.offset + offset_of(statement.sql, refusal.position)
    detail = f"Nothing was charged. The reason's short name is {refusal.code}."
    return failure(refusal.sqlstate, refusal.title, hint=refusal.hint, detail=detail, offset=offset)
