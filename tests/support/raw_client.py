"""A PostgreSQL client that writes its bytes itself, and a server in a thread for it; loaded by the tests of pgwire."""

import asyncio
import base64
import contextlib
import hashlib
import hmac
import socket
import struct
import threading
from collections import namedtuple
from types import SimpleNamespace

from dither.curator import Curator
from dither.server.auth.identity import Scope
from dither.server.auth.tokens import TokenFile
from dither.server.pgwire.server import PgServer
from dither.server.service import Service
from support.shop import ROOMY, make_shop

Message = namedtuple("Message", ["kind", "body"])


class CountingService(Service):
    """A service that counts what is asked of it, and can be made to wait."""

    def __init__(self, curator, limits=ROOMY):
        super().__init__(curator, limits)
        self.asked, self.priced = [], []
        self.gate = None

    async def ask(self, who, wanted):
        self.asked.append(wanted)
        if self.gate is not None:
            await asyncio.to_thread(self.gate.wait, 20)
        return await super().ask(who, wanted)

    async def price(self, who, wanted):
        self.priced.append(wanted)
        return await super().price(who, wanted)


async def _stopped():
    """Whatever still runs is cancelled, as ``asyncio.run`` does."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


@contextlib.contextmanager
def serving(service, access, **options):
    """A server on a free port, in a thread with an event loop of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def run(work):
        return asyncio.run_coroutine_threadsafe(work, loop).result(20)

    server = PgServer(service, access, **options)
    try:
        run(server.start("127.0.0.1", 0))
        server.run = run
        yield server
    finally:
        run(server.stop())
        run(_stopped())
        run(loop.shutdown_default_executor())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextlib.contextmanager
def shop_served(directory, *, limits=ROOMY, shadow=None, ana=50, **options):
    """A shop of its own with tokens, served; for tests that share one server and look at what changes."""
    make_shop(directory, ana=ana)
    with Curator.open(directory / "dither.toml") as curator, TokenFile.open(directory / "shop.access") as access:
        scopes = {"ana": Scope.ASK, "bob": Scope.ASK, "looker": Scope.PRICE, "owner": Scope.OWNER}
        tokens = {name: access.create(name, scope)[1] for name, scope in scopes.items()}
        service = CountingService(curator, limits)
        try:
            with serving(service, access, shadow=shadow, **options) as server:
                yield SimpleNamespace(
                    curator=curator, access=access, tokens=tokens, service=service, server=server, port=server.port
                )
        finally:
            service.close()


def message(kind, body=b""):
    return kind + struct.pack("!i", len(body) + 4) + body


def text(value):
    return value.encode() + b"\0"


def query(sql):
    return message(b"Q", text(sql))


def parse(sql, name="", types=()):
    return message(b"P", text(name) + text(sql) + struct.pack(f"!h{len(types)}I", len(types), *types))


def bind(values=(), *, portal="", name="", formats=(), results=()):
    body = text(portal) + text(name) + struct.pack(f"!h{len(formats)}h", len(formats), *formats)
    body += struct.pack("!h", len(values))
    for value in values:
        body += struct.pack("!i", -1) if value is None else struct.pack("!i", len(value)) + value
    return message(b"B", body + struct.pack(f"!h{len(results)}h", len(results), *results))


def describe(kind, name=""):
    return message(b"D", kind + text(name))


def execute(portal="", rows=0):
    return message(b"E", text(portal) + struct.pack("!i", rows))


def close(kind, name=""):
    return message(b"C", kind + text(name))


SYNC, FLUSH, TERMINATE = message(b"S"), message(b"H"), message(b"X")


def startup(version=3 << 16, **settings):
    body = struct.pack("!i", version) + b"".join(text(k) + text(v) for k, v in settings.items()) + b"\0"
    return struct.pack("!i", len(body) + 4) + body


class RawClient:
    """One connection."""

    def __init__(self, port, *, step=None):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.step = step
        self.parameters, self.key = {}, None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, *parts):
        content = b"".join(parts)
        if self.step is None:
            self.socket.sendall(content)
        else:
            for start in range(0, len(content), self.step):
                self.socket.sendall(content[start : start + self.step])

    def exactly(self, size):
        found = b""
        while len(found) < size:
            part = self.socket.recv(size - len(found))
            if not part:
                raise EOFError(found)
            found += part
        return found

    def read(self):
        kind = self.exactly(1)
        (size,) = struct.unpack("!i", self.exactly(4))
        return Message(kind, self.exactly(size - 4))

    def until(self, kind=b"Z"):
        found = []
        while not found or found[-1].kind != kind:
            found.append(self.read())
        return found

    def rest(self):
        """Everything up to the end of the connection."""
        found = []
        with contextlib.suppress(EOFError, ConnectionError):
            while True:
                found.append(self.read())
        return found

    def scram(self, user, password, *, header="n,,", mechanism=b"SCRAM-SHA-256", **settings):
        """Sign in up to the server's verdict, by RFC 5802, without any code of the server."""
        self.send(startup(**{"user": user, "database": "shop", **settings}))
        request = self.read()
        while request.kind == b"v":
            request = self.read()
        assert request == (b"R", struct.pack("!i", 10) + b"SCRAM-SHA-256\0\0"), request
        nonce = "clientnonce+/"
        bare = f"n=,r={nonce}"
        first = (header + bare).encode()
        self.send(message(b"p", mechanism + b"\0" + struct.pack("!i", len(first)) + first))
        challenge = self.read()
        if challenge.kind != b"R":
            return [challenge]
        server_first = challenge.body[4:].decode()
        fields = dict(part.split("=", 1) for part in server_first.split(","))
        assert fields["r"].startswith(nonce)
        assert len(fields["r"]) > len(nonce) + 18
        salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        without = f"c={base64.b64encode(header.encode()).decode()},r={fields['r']}"
        signed = f"{bare},{server_first},{without}".encode()
        signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
        proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
        self.send(message(b"p", f"{without},p={proof}".encode()))
        verdict = self.read()
        if verdict.kind == b"R":
            server_key = hmac.digest(salted, b"Server Key", "sha256")
            expected = b"v=" + base64.b64encode(hmac.digest(server_key, signed, "sha256"))
            assert verdict.body == struct.pack("!i", 12) + expected
        return [verdict]

    def sign_in(self, user, password, **settings):
        assert self.scram(user, password, **settings)[0].kind == b"R"
        assert self.read() == (b"R", struct.pack("!i", 0))
        for found in self.until():
            if found.kind == b"S":
                name, value, _ = found.body.split(b"\0")
                self.parameters[name.decode()] = value.decode()
            elif found.kind == b"K":
                self.key = found.body
        return self

    def simple(self, sql):
        self.send(query(sql))
        return self.until()


def kinds(found):
    return b"".join(each.kind for each in found).decode()


def fields(report):
    """The fields of an error or notice, by their letters."""
    return {part[:1].decode(): part[1:].decode() for part in report.body.split(b"\0") if part}


def errors(found):
    return [fields(each) for each in found if each.kind == b"E"]


def rows(found):
    """The values of all DataRows."""
    return [values(each.body) for each in found if each.kind == b"D"]


def values(body):
    (count,) = struct.unpack_from("!h", body)
    place, found = 2, []
    for _ in range(count):
        (size,) = struct.unpack_from("!i", body, place)
        place += 4
        found.append(None if size < 0 else body[place : place + size])
        place += max(size, 0)
    assert place == len(body)
    return found


def columns(found):
    """(name, type, size, format) of each column of the RowDescription."""
    body = next(each.body for each in found if each.kind == b"T")
    (count,) = struct.unpack_from("!h", body)
    place, result = 2, []
    for _ in range(count):
        end = body.index(b"\0", place)
        _, _, oid, size, _, form = struct.unpack_from("!ihIhih", body, end + 1)
        result.append((body[place:end].decode(), oid, size, form))
        place = end + 19
    assert place == len(body)
    return result


def tags(found):
    return [each.body[:-1].decode() for each in found if each.kind == b"C"]


def parameter_types(found):
    body = next(each.body for each in found if each.kind == b"t")
    return list(struct.unpack_from(f"!{struct.unpack_from('!h', body)[0]}I", body, 2))
