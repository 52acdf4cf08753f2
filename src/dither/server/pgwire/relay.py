"""One session's way to the shadow PostgreSQL, opened when it is first needed, with the same transaction open."""

from __future__ import annotations

from collections.abc import Mapping

from dither.server.identity import Identity
from dither.server.pgwire import views
from dither.server.pgwire.commands import Transaction
from dither.server.pgwire.errors import failure
from dither.server.pgwire.shadow import Reply, Shadow, ShadowConnection
from dither.server.pgwire.statements import Statement
from dither.server.pgwire.transactions import IDLE, TransactionState
from dither.server.service import Service


class Relay:
    """Passes on what isn't a question about private tables; the shadow holds no rows of them."""

    def __init__(
        self,
        shadow: Shadow | None,
        service: Service,
        who: Identity,
        *,
        transaction: TransactionState,
        startup: Mapping[str, str],
    ) -> None:
        self._shadow, self._service, self._who = shadow, service, who
        self._transaction, self._startup = transaction, startup
        self._connection: ShadowConnection | None = None
        self._unsynced = False

    @property
    def is_open(self) -> bool:
        """Whether the shadow was needed, and is still there."""
        return self._connection is not None and not self._connection.closed

    async def _opened(self) -> ShadowConnection:
        if self._connection is not None and not self._connection.closed:
            return self._connection
        if self._shadow is None:
            raise failure(
                "0A000",
                "this server answers questions about the tables of its policy, and nothing else",
                hint="The owner of the data can install dither[pgwire] for what clients ask about the catalogue.",
            )
        await self.close()
        self._connection = await self._shadow.connect(self._who, self._startup)
        if self._transaction.status != IDLE:
            await self._connection.simple("BEGIN")
            for name in self._transaction.savepoints:
                quoted = name.replace('"', '""')
                await self._connection.simple(f'SAVEPOINT "{quoted}"')
        return self._connection

    async def simple(self, statement: Statement) -> Reply:
        """Run a statement in the shadow."""
        connection = await self._opened()
        await views.fill(connection, self._service, self._who, statement.sql)
        return await connection.simple(statement.sql)

    async def extended(self, message: bytes, *, runs: str | None = None) -> Reply:
        """Pass on one message of the extended protocol; ``runs`` is the statement that it runs, if it does."""
        connection = await self._opened()
        if runs is not None:
            await views.fill(connection, self._service, self._who, runs)
        self._unsynced = True
        reply = await connection.extended(message)
        # after an error the connection has seen its Sync already
        self._unsynced = not reply.failed
        return reply

    async def sync(self) -> None:
        """End what the client's Sync ends, if the shadow had any part in it."""
        if self._unsynced and self._connection is not None and not self._connection.closed:
            await self._connection.sync()
        self._unsynced = False

    async def mirror(self, sql: str) -> Reply | None:
        """Run in the shadow what concerns its session as well; nothing if it isn't open."""
        return await self._connection.simple(sql) if self.is_open and self._connection is not None else None

    async def mirror_transaction(self, statement: Statement, wanted: Transaction, tag: str) -> None:
        """Begin and end transactions in the shadow as here; one that failed here alone ends there in ROLLBACK."""
        if wanted.action == "commit" and tag == "ROLLBACK":
            await self.mirror("ROLLBACK AND CHAIN" if wanted.chain else "ROLLBACK")
        else:
            await self.mirror(statement.sql)

    async def cancel(self) -> None:
        """Stop what the shadow is doing."""
        if self.is_open and self._connection is not None:
            await self._connection.cancel()

    async def close(self) -> None:
        """Hang up."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.close()
