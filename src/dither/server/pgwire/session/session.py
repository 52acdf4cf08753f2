"""One client after it signed in: reads its messages and answers them, in the simple and the extended protocol.

After an error in the extended protocol everything is skipped up to the next Sync, as the protocol has it. Logs hold
neither statements nor values.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from dither.errors import Refused
from dither.server.auth.tokens import TokenFile
from dither.server.pgwire.catalogue.relay import FORMATS, Relay, catalogue_rate
from dither.server.pgwire.catalogue.shadow import Shadow
from dither.server.pgwire.protocol import messages
from dither.server.pgwire.protocol.connection import Gone, Wire
from dither.server.pgwire.protocol.errors import WireError, failure, fatal, told
from dither.server.pgwire.protocol.messages import NotUtf8, ProtocolError, WrongFormats
from dither.server.pgwire.protocol.startup import CancelKey, SignedIn
from dither.server.pgwire.protocol.values import InvalidValue
from dither.server.pgwire.session.execution import AlreadyTold, StatementRunner
from dither.server.pgwire.session.portals import Names, Portal, PreparedStatement, description
from dither.server.pgwire.sql.parameters import BoundText, bind_text
from dither.server.pgwire.sql.reading import AnalystReading
from dither.server.pgwire.sql.routing import Route, Router, Statement
from dither.server.pgwire.sql.transactions import TransactionState
from dither.server.problems import INTERNAL, UNKNOWN_TOKEN, ServerRefusal
from dither.server.service import Service

LOG = logging.getLogger("dither.server.pgwire")
LONGEST_TURN = 0.001
MOST_AT_ONCE = 50
TOKEN_SECONDS = 1.0
VERSION_WITHOUT_SHADOW = "16.0"
_ASKING = (Route.PRIVATE, Route.COPY, Route.DECLARE)
_IGNORED = (b"d", b"c", b"f")


class Shared:
    """What all sessions of a server share."""

    def __init__(self, service: Service, access: TokenFile, shadow: Shadow | None, *, most_names: int) -> None:
        policy = service.curator.policy
        self.service, self.access, self.shadow, self.most_names = service, access, shadow, most_names
        self.router = Router(policy.schema, database=policy.source.name)
        self.catalogue_rate, self._reading_rate = catalogue_rate(service.limits), catalogue_rate(service.limits)
        # apart for each analyst: what is known already would show in how long it takes
        self._reading: dict[str, AnalystReading] = {}

    def reading_for(self, analyst: str) -> AnalystReading:
        """What all sessions of an analyst share in reading."""
        found = self._reading.get(analyst)
        if found is None:
            found = self._reading[analyst] = AnalystReading(analyst, self._reading_rate, self.service.metrics)
        return found


class ClientSession:
    """One client. ``run`` serves it until it goes; ``cancel`` may be called meanwhile."""

    def __init__(self, wire: Wire, shared: Shared, signed_in: SignedIn, key: CancelKey) -> None:
        self._wire, self._shared, self._who, self._key = wire, shared, signed_in.identity, key
        self._settings = signed_in.settings
        self._transaction = TransactionState()
        self._names = Names(shared.most_names)
        self._reading = shared.reading_for(self._who.analyst)
        self._relay = Relay(
            shared.shadow,
            shared.service,
            self._who,
            rate=shared.catalogue_rate,
            transaction=self._transaction,
            startup=self._settings,
            reading=self._reading,
            to=self._pass_part,
        )
        self._execution = StatementRunner(
            wire,
            shared.service,
            self._who,
            reading=self._reading,
            relay=self._relay,
            names=self._names,
            transaction=self._transaction,
        )
        self._skipping = False
        self._done, self._began = 0, 0.0
        self._token_seen = asyncio.get_running_loop().time()

    # ------------------------------------------------------------------ the loop

    async def run(self) -> None:
        """Serve the client until it leaves."""
        self._greet()
        await self._wire.flush()
        try:
            while True:
                kind, body = await self._wire.read()
                if kind == b"X":
                    return
                self._began = asyncio.get_running_loop().time()
                await self._handle(kind, body)
                await self._yield_turn()
        finally:
            await self._relay.close()

    async def _yield_turn(self) -> None:
        """Let others have their turn after what took long, and now and then, however much work is there already."""
        self._done += 1
        if self._done % MOST_AT_ONCE == 0 or asyncio.get_running_loop().time() - self._began > LONGEST_TURN:
            await self._reading.yield_turn()
            self._began = asyncio.get_running_loop().time()
        await self._wire.relieve()

    async def _pass_part(self, content: bytes) -> None:
        """Pass on part of what the shadow says."""
        await self._wire.pass_on(content)
        await self._reading.yield_turn()

    async def cancel(self) -> None:
        """The client doesn't want to wait any longer."""
        self._execution.questions.cancel()
        await self._relay.cancel()

    def _greet(self) -> None:
        self._execution.options.start_with(self._settings)
        version = VERSION_WITHOUT_SHADOW if self._shared.shadow is None else self._shared.shadow.version
        told_settings = {
            "server_version": version,
            "server_encoding": "UTF8",
            "client_encoding": "UTF8",
            "application_name": self._settings.get("application_name", ""),
            "is_superuser": "off",
            "session_authorization": self._who.analyst,
            **FORMATS,
            "integer_datetimes": "on",
            "standard_conforming_strings": "on",
            "default_transaction_read_only": "on",
            "in_hot_standby": "off",
        }
        self._wire.send(b"".join(messages.parameter_status(name, value) for name, value in told_settings.items()))
        self._wire.send(messages.key_data(self._key.process, self._key.secret))
        self._wire.send(messages.ready(self._transaction.status))

    async def _handle(self, kind: bytes, body: bytes) -> None:
        if kind == b"S":
            await self._sync(body)
        elif self._skipping or kind in _IGNORED:
            return
        elif kind == b"Q":
            await self._guarded(self._simple, body)
            await self._ready()
        elif kind == b"F":
            self._report(failure("0A000", "function calls by the protocol aren't supported"))
            await self._ready()
        elif kind in _EXTENDED:
            if not await self._guarded(functools.partial(_EXTENDED[kind], self), body):
                self._skipping = True
                # a client may wait for the error before it sends Sync
                await self._wire.flush()
        else:
            raise ProtocolError("this server doesn't know a message of this kind")

    async def _guarded(self, handle: Callable[[bytes], Awaitable[None]], body: bytes) -> bool:
        """Handle a message, and report errors to the client; whether it succeeded."""
        kind = ""
        try:
            self._expect_valid_token()
            await handle(body)
        except AlreadyTold:
            self._transaction.fail()
        except NotUtf8 as error:
            self._report(failure("22021", str(error), hint="Set client_encoding to UTF8."))
        except WrongFormats as error:
            self._report(failure(error.sqlstate, str(error)))
        except (ProtocolError, Gone):
            raise
        except (WireError, InvalidValue, Refused, ServerRefusal) as error:
            self._report(error)
        except Exception as error:  # noqa: BLE001 - nothing that goes wrong may reach the client or end the server
            kind = type(error).__name__
        else:
            return True
        if kind:
            # the kind alone, and not while it is handled: a log that can't be written prints that
            LOG.error("a message ended in %s", kind)
            self._report(ServerRefusal(INTERNAL))
        return False

    def _report(self, error: Exception) -> None:
        if isinstance(error, WireError) and error.report.severity == "FATAL":
            raise error
        self._wire.send(told(error).message())
        self._transaction.fail()

    def _expect_valid_token(self) -> None:
        """End the session of a token that was revoked or has expired since."""
        now = asyncio.get_running_loop().time()
        if now - self._token_seen < TOKEN_SECONDS:
            return
        self._token_seen = now
        valid = self._shared.access.challenge(self._who.analyst).verifiers
        if all(verifier.identity != self._who for verifier in valid):
            raise fatal(UNKNOWN_TOKEN.sqlstate, UNKNOWN_TOKEN.title, hint=UNKNOWN_TOKEN.hint)

    async def _ready(self) -> None:
        self._execution.settle()
        self._wire.send(messages.ready(self._transaction.status))
        await self._wire.flush()

    # ------------------------------------------------------------------ the simple protocol

    async def _simple(self, body: bytes) -> None:
        text = messages.read_query(body)
        self._names.statements.pop("", None)
        self._names.portals.pop("", None)
        found = await self._reading.statements(text, self._shared.router)
        self._transaction.implicit = len(found) > 1
        for statement in found:
            self._expect_valid_token()
            if statement.route in _ASKING and statement.parameters:
                # refused: the simple protocol has no values to give
                await self._reading.beside(len(statement.question), bind_text, statement.question, ())
            portal = Portal(statement=statement, bound=BoundText(text=statement.question))
            await self._execution.run(portal, describe=True)
            await self._yield_turn()

    # ------------------------------------------------------------------ the extended protocol

    async def _parse(self, body: bytes) -> None:
        wanted = messages.read_parse(body)
        if not wanted.name:
            self._names.statements.pop("", None)
        found = await self._reading.statements(wanted.sql, self._shared.router)
        if len(found) > 1:
            raise failure("42601", "cannot insert multiple commands into a prepared statement")
        statement = found[0]
        if statement.route not in (Route.TRANSACTION, Route.EMPTY):
            self._transaction.expect_working()
        if self._is_relayed(statement):
            self._names.prepare(wanted.name, PreparedStatement(statement=statement, relayed=True))
            await self._pass_on(b"P", body, undo=(self._names.statements, wanted.name))
            return
        prepared = PreparedStatement(statement=statement)
        if statement.route in _ASKING:
            options = self._execution.options.current
            prepared = await self._execution.preparing.prepared(statement, wanted.types, options)
        self._names.prepare(wanted.name, prepared)
        self._wire.send(messages.PARSE_COMPLETE)

    def _is_relayed(self, statement: Statement) -> bool:
        """Whether a statement is the shadow's: what isn't a question, and names that aren't held here."""
        if statement.route is Route.SHADOW:
            return True
        name = getattr(statement.detail, "name", None)
        foreign = statement.route in (Route.FETCH, Route.CLOSE) and name is not None and name not in self._names.portals
        if statement.route is Route.EXECUTE:
            foreign = self._names.is_foreign(name or "")
        return foreign and self._relay.is_open

    async def _bind(self, body: bytes) -> None:
        wanted = messages.read_bind(body)
        prepared = self._names.statement(wanted.statement)
        if prepared.statement.route is not Route.TRANSACTION:
            self._transaction.expect_working()
        if not wanted.portal:
            self._names.portals.pop("", None)
        bound = BoundText(text=prepared.statement.question)
        if prepared.relayed:
            portal = Portal(statement=prepared.statement, bound=bound, relayed=True)
            self._names.open(wanted.portal, portal)
            await self._pass_on(b"B", body, undo=(self._names.portals, wanted.portal))
            return
        bound = await self._execution.preparing.bound(prepared, wanted.values, wanted.formats)
        portal = Portal(
            statement=prepared.statement,
            bound=bound,
            kinds=prepared.types,
            formats=wanted.results,
            told=prepared.told,
        )
        self._names.open(wanted.portal, portal)
        self._wire.send(messages.BIND_COMPLETE)

    async def _describe(self, body: bytes) -> None:
        is_portal, name = messages.read_named(body)
        if is_portal:
            if self._is_foreign(name):
                await self._pass_on(b"D", body)
                return
            portal = self._names.portal(name)
            columns = await self._execution.columns(portal)
            formats = portal.formats
        else:
            prepared = self._names.statement(name)
            if prepared.relayed:
                await self._pass_on(b"D", body)
                return
            columns = await self._execution.described(prepared)
            formats = ()
        if columns is not None:
            # as in PostgreSQL: nothing that gives rows is looked at in a transaction that failed
            self._transaction.expect_working()
        if not is_portal:
            self._wire.send(messages.parameter_description(prepared.types))
        self._wire.send(messages.NO_DATA if columns is None else description(columns, formats))

    async def _execute(self, body: bytes) -> None:
        name, count = messages.read_execute(body)
        if self._is_foreign(name):
            self._transaction.expect_working()
            held = self._names.portals.get(name)
            await self._pass_on(b"E", body, runs=None if held is None else held.statement.sql)
            if held is not None:
                self._execution.saw(held.statement)
            return
        await self._execution.run(self._names.portal(name), count=count)

    def _is_foreign(self, name: str) -> bool:
        """Whether a portal is the shadow's: bound to a statement of its own, or a cursor that was declared there."""
        held = self._names.portals.get(name)
        return self._relay.is_open if held is None else held.relayed

    async def _close(self, body: bytes) -> None:
        is_portal, name = messages.read_named(body)
        group: dict[str, Portal] | dict[str, PreparedStatement] = (
            self._names.portals if is_portal else self._names.statements
        )
        held = group.pop(name, None)
        if self._relay.is_open if held is None else held.relayed:
            await self._pass_on(b"C", body)
        else:
            self._wire.send(messages.CLOSE_COMPLETE)

    async def _flush(self, body: bytes) -> None:
        _expect_empty(body)
        await self._wire.flush()

    async def _sync(self, body: bytes) -> None:
        _expect_empty(body)
        self._skipping = False
        await self._guarded(self._sync_relay, body)
        await self._ready()

    async def _sync_relay(self, _body: bytes) -> None:
        await self._relay.sync()

    async def _pass_on(
        self, kind: bytes, body: bytes, *, runs: str | None = None, undo: tuple[dict[str, Any], str] | None = None
    ) -> None:
        """Pass a message on to the shadow; what it refuses to keep isn't kept here either."""
        try:
            self._execution.relayed(await self._relay.extended(messages.message(kind, body), runs=runs))
        except BaseException:
            if undo is not None:
                undo[0].pop(undo[1], None)
            raise


def _expect_empty(body: bytes) -> None:
    if body:
        raise ProtocolError("a message is longer than its fields")


_EXTENDED: dict[bytes, Callable[[ClientSession, bytes], Awaitable[None]]] = {
    b"P": ClientSession._parse,  # noqa: SLF001 - the table of its own methods
    b"B": ClientSession._bind,  # noqa: SLF001
    b"D": ClientSession._describe,  # noqa: SLF001
    b"E": ClientSession._execute,  # noqa: SLF001
    b"C": ClientSession._close,  # noqa: SLF001
    b"H": ClientSession._flush,  # noqa: SLF001
}
