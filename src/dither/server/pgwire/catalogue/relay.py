"""One session's way to the shadow PostgreSQL, opened when it is first needed, with the same transaction open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dither.server.auth.identity import Identity
from dither.server.limits import ServerLimits
from dither.server.pgwire.catalogue import views
from dither.server.pgwire.catalogue.shadow import Passing, Reply, Shadow, ShadowConnection
from dither.server.pgwire.protocol.errors import failure
from dither.server.pgwire.protocol.messages import parameter_status
from dither.server.pgwire.sql.commands import Transaction
from dither.server.pgwire.sql.reading import AnalystReading
from dither.server.pgwire.sql.routing import Statement
from dither.server.pgwire.sql.transactions import IDLE, TransactionState
from dither.server.problems import too_many
from dither.server.service import Service
from dither.server.traffic.rate_limit import Rate

# A tool that looks around sends hundreds of small statements at once, where a question is one.
TIMES_AS_OFTEN = 5
# Longer statements are looked through beside the event loop; this one then stands for one that mentions views.
LONGEST_AT_ONCE = 1000
_MENTIONS_VIEWS = "TABLE dp.budget"
# What PostgreSQL works for: reading a statement, and planning and running it, which happens once for each Bind.
_WORK = (b"P", b"B")
# How values are written. A client may ask for others at its start, and is told what the shadow took.
FORMATS = {"DateStyle": "ISO, MDY", "IntervalStyle": "postgres", "TimeZone": "UTC"}


def catalogue_rate(limits: ServerLimits) -> Rate:
    """How often each analyst may ask the catalogue: apart from questions and prices, and so many times as often."""
    return Rate(rate=TIMES_AS_OFTEN * limits.rate, burst=TIMES_AS_OFTEN * limits.burst)


class Relay:
    """Passes on what isn't a question about private tables; the shadow holds no rows of them."""

    def __init__(
        self,
        shadow: Shadow | None,
        service: Service,
        who: Identity,
        *,
        rate: Rate,
        transaction: TransactionState,
        startup: Mapping[str, str],
        reading: AnalystReading,
        to: Passing,
    ) -> None:
        self._shadow, self._service, self._who, self._rate = shadow, service, who, rate
        self._transaction, self._startup = transaction, startup
        self._reading, self._to = reading, to
        self._news = b""
        self._connection: ShadowConnection | None = None
        self._unsynced = False

    @property
    def is_open(self) -> bool:
        """Whether the shadow was needed, and is still there."""
        return self._live is not None

    @property
    def _live(self) -> ShadowConnection | None:
        return None if self._connection is None or self._connection.closed else self._connection

    async def _opened(self) -> ShadowConnection:
        if self._live is not None:
            return self._live
        if self._shadow is None:
            raise failure(
                "0A000",
                "this server answers questions about the tables of its policy, and nothing else",
                hint="The owner of the data can install dither[pgwire] for what clients ask about the catalogue.",
            )
        await self.close()
        self._connection = await self._shadow.connect(self._who, self._startup)
        holds = {name: self._connection.parameters.get(name, usual) for name, usual in FORMATS.items()}
        self._news = b"".join(parameter_status(name, value) for name, value in holds.items() if value != FORMATS[name])
        if self._transaction.status != IDLE:
            await self._connection.simple(self._transaction.opening)
            for name in self._transaction.savepoints:
                quoted = name.replace('"', '""')
                await self._connection.simple(f'SAVEPOINT "{quoted}"')
        return self._connection

    def _admit(self) -> None:
        """Apply the rate limit of the catalogue."""
        wait = self._rate.wait(self._who.analyst)
        if wait:
            self._service.metrics.count("rate", "refused")
            raise too_many(wait)

    async def simple(self, statement: Statement) -> Reply:
        """Run a statement in the shadow."""
        self._admit()
        connection = await self._opened()
        await self._fill_views(connection, statement.sql)
        return self._with_news(await connection.simple(statement.sql, to=self._pass_on))

    async def extended(self, message: bytes, *, runs: str | None = None) -> Reply:
        """Pass on one message of the extended protocol; ``runs`` is the statement that it runs, if it does."""
        if message[:1] in _WORK:
            self._admit()
        connection = await self._opened()
        if runs is not None:
            await self._fill_views(connection, runs)
        self._unsynced = True
        reply = await connection.extended(message, to=self._pass_on)
        # after an error the connection has seen its Sync already
        self._unsynced = not reply.failed
        return self._with_news(reply)

    async def _fill_views(self, connection: ShadowConnection, sql: str) -> None:
        """Give the views their rows, if the statement may read them."""
        if len(sql) > LONGEST_AT_ONCE:
            if connection.status == b"E" or not await self._reading.beside(len(sql), views.mentions_views, sql):
                return
            sql = _MENTIONS_VIEWS
        await views.fill(connection, self._service, self._who, sql)

    async def _pass_on(self, part: bytes) -> None:
        """Pass on part of a reply that is too long to be held, after what the client has to know of the connection."""
        news, self._news = self._news, b""
        await self._to(news + part)

    def _with_news(self, reply: Reply) -> Reply:
        """A reply, after what the client has to know of the connection that was opened for it."""
        news, self._news = self._news, b""
        return replace(reply, messages=news + reply.messages) if news else reply

    async def sync(self) -> None:
        """End what the client's Sync ends, if the shadow had any part in it."""
        if self._unsynced and self._live is not None:
            await self._live.sync()
        self._unsynced = False

    async def mirror(self, sql: str) -> Reply | None:
        """Run in the shadow what concerns its session as well; nothing if it isn't open."""
        return None if self._live is None else await self._live.simple(sql)

    async def mirror_transaction(self, statement: Statement, wanted: Transaction, tag: str) -> None:
        """Begin and end transactions in the shadow as here; one that failed here alone ends there in ROLLBACK."""
        if wanted.action == "commit" and tag == "ROLLBACK":
            await self.mirror("ROLLBACK AND CHAIN" if wanted.chain else "ROLLBACK")
        else:
            await self.mirror(statement.sql)

    async def cancel(self) -> None:
        """Stop what the shadow is doing."""
        if self._live is not None:
            await self._live.cancel()

    async def close(self) -> None:
        """Hang up."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.close()
