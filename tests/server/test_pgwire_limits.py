"""How many clients there may be, how they are turned away, and how often the catalogue may be asked."""

import contextlib
import threading
import time
from types import SimpleNamespace

import psycopg
import pytest

from dither.server.limits import ServerLimits
from dither.server.pgwire.catalogue.shadow import Reply
from dither.server.pgwire.protocol.connection import Patience
from dither.server.pgwire.session import portals
from dither.server.pgwire.sql.routing import Route, Statement
from support import raw_client as raw

CITIES = "SELECT city, COUNT(*) AS n FROM orders GROUP BY city ORDER BY city"
SSL_REQUEST, GSSENC_REQUEST = (b"\0\0\0\x08\x04\xd2\x16" + bytes([last]) for last in (0x2F, 0x30))
FULL = ("FATAL", "53300", "sorry, too many clients already")


def until(condition):
    for _ in range(2000):
        if condition():
            return
        time.sleep(0.005)
    raise AssertionError("it didn't come")


def said(found):
    return tuple(raw.fields(found)[letter] for letter in "SCM")


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    with raw.shop_served(tmp_path_factory.mktemp("limits")) as found:
        yield found


@pytest.fixture
def served(shop):
    """Serves the shop once more, with other limits: ``served(limits, …)``."""

    @contextlib.contextmanager
    def serve(limits=raw.ROOMY, **options):
        service = raw.CountingService(shop.curator, limits)
        try:
            with raw.serving(service, shop.access, **options) as server:
                yield SimpleNamespace(service=service, server=server, port=server.port, tokens=shop.tokens)
        finally:
            service.close()

    return serve


# ---------------------------------------------------------------------- connections


def test_a_client_too_many_is_answered_about_encryption_first(served):
    with (
        served(ServerLimits(connections=1)) as found,
        raw.RawClient(found.port) as first,
    ):
        first.sign_in("ana", found.tokens["ana"])
        with raw.RawClient(found.port) as second:
            second.send(SSL_REQUEST)
            assert second.exactly(1) == b"N"
            second.send(GSSENC_REQUEST)
            assert second.exactly(1) == b"N"
            second.send(raw.startup(user="bob"))
            (told,) = second.rest()
            assert said(told) == FULL
        # as libpq does it, which tries to encrypt without being told to
        with pytest.raises(psycopg.OperationalError, match="too many clients already"):
            psycopg.connect(f"host=127.0.0.1 port={found.port} user=bob dbname=shop", password=found.tokens["bob"])
        assert raw.tags(first.simple(CITIES)) == ["SELECT 3"]


def test_those_turned_away_hold_no_place_and_have_only_so_long(served):
    patience = Patience(sign_in=0.3, closing=0.2)
    with (
        served(ServerLimits(connections=1), patience=patience) as found,
        raw.RawClient(found.port) as first,
    ):
        first.sign_in("ana", found.tokens["ana"])
        with raw.RawClient(found.port) as silent:
            until(lambda: found.server.connections == 2)
            first.send(raw.TERMINATE)
            assert first.rest() == []
            until(lambda: found.server.connections == 1)
            with raw.RawClient(found.port) as second:
                second.sign_in("bob", found.tokens["bob"])
                (told,) = silent.rest()
                assert said(told)[:2] == ("FATAL", "57P05")
                assert raw.tags(second.simple("BEGIN")) == ["BEGIN"]


def test_whoever_came_too_early_gets_a_place_that_came_free_before_their_startup_message(served):
    with served(ServerLimits(connections=1)) as found, raw.RawClient(found.port) as first:
        first.sign_in("ana", found.tokens["ana"])
        with raw.RawClient(found.port) as second:
            until(lambda: found.server.connections == 2)
            first.send(raw.TERMINATE)
            assert first.rest() == []
            until(lambda: found.server.connections == 1)
            second.sign_in("bob", found.tokens["bob"])
            with raw.RawClient(found.port) as third:
                third.send(raw.startup(user="ana"))
                assert said(third.read()) == FULL


def test_whoever_says_nothing_has_no_place_of_those_who_sign_in(served):
    with served(ServerLimits(connections=1, strangers=3, each_address=3)) as found:
        with raw.RawClient(found.port) as first, raw.RawClient(found.port), raw.RawClient(found.port):
            until(lambda: found.server.connections == 3)
            # the one who has been there for longest makes room, and is told why
            with raw.RawClient(found.port) as known:
                known.sign_in("ana", found.tokens["ana"])
                (told,) = first.rest()
                assert said(told) == ("FATAL", "53300", "too many clients that haven't signed in")
                assert raw.tags(known.simple(CITIES)) == ["SELECT 3"]
                assert found.server.connections == 3
        until(lambda: found.server.connections == 0)
        with raw.RawClient(found.port) as again:
            again.sign_in("ana", found.tokens["ana"])


def test_the_last_place_goes_to_who_signs_in_first(served):
    """Several may be signing in at once; whoever is too late is told so then."""
    with (
        served(ServerLimits(connections=1)) as found,
        raw.RawClient(found.port) as late,
        raw.RawClient(found.port) as first,
    ):
        late.send(raw.startup(user="bob", database="shop"))
        assert late.read().kind == b"R"
        first.sign_in("ana", found.tokens["ana"])
        with raw.RawClient(found.port) as another:
            another.send(raw.startup(user="bob"))
            assert said(another.read()) == FULL
        assert raw.tags(first.simple(CITIES)) == ["SELECT 3"]


def test_a_full_server_still_cancels(served):
    with (
        served(ServerLimits(connections=1)) as found,
        raw.RawClient(found.port) as first,
    ):
        first.sign_in("ana", found.tokens["ana"])
        with raw.RawClient(found.port) as second:
            second.send(b"\0\0\0\x10\x04\xd2\x16\x2e" + first.key)
            assert second.rest() == []
        assert 'dither_requests_total{what="pgwire",outcome="cancelled"} 1' in found.service.metrics.text({})


# ---------------------------------------------------------------------- the catalogue


class Catalogue:
    """Plays the shadow, and counts what reaches it."""

    version = "17.5"
    closed = False
    status = b"I"

    def __init__(self):
        self.parameters = {}
        self.ran = 0

    async def connect(self, _identity, _startup):
        return self

    async def simple(self, _sql, *, to=None):
        self.ran += 1
        return Reply(messages=raw.message(b"C", b"SHADOW\0"), failed=False)

    async def extended(self, message, *, to=None):
        self.ran += message[:1] == b"E"
        answer = {b"P": b"1", b"B": b"2", b"D": b"n", b"E": b"C", b"C": b"3"}[message[:1]]
        return Reply(messages=raw.message(answer, b"SHADOW\0" if answer == b"C" else b""), failed=False)

    async def sync(self):
        pass

    async def close(self):
        pass


@pytest.fixture
def limited(served):
    """A server that lets ask twice in a row, and the catalogue ten times, and then hardly ever."""
    shadow = Catalogue()
    with served(ServerLimits(rate=1e-6, burst=2), shadow=shadow) as found:
        found.shadow = shadow
        yield found


def test_the_catalogue_has_a_limit_of_its_own(limited):
    with raw.RawClient(limited.port) as client, raw.RawClient(limited.port) as again:
        client.sign_in("ana", limited.tokens["ana"])
        found = client.simple("SELECT 1;" * 12)
        assert raw.tags(found) == ["SHADOW"] * 10
        (error,) = raw.errors(found)
        assert (error["C"], error["M"]) == ("53400", "too many requests")
        assert "nothing was charged" in error["H"]
        assert limited.shadow.ran == 10
        # for all connections of an analyst together, in whatever protocol
        again.sign_in("ana", limited.tokens["ana"])
        again.send(raw.parse("SELECT 1"), raw.bind(), raw.execute(), raw.SYNC)
        found = again.until()
        assert (raw.kinds(found), raw.errors(found)[0]["C"]) == ("EZ", "53400")
        # and apart from questions, and from others
        assert raw.tags(again.simple(CITIES)) == ["SELECT 3"]
        with raw.RawClient(limited.port) as other:
            other.sign_in("bob", limited.tokens["bob"])
            assert raw.tags(other.simple("SELECT 1")) == ["SHADOW"]


def test_what_is_prepared_once_counts_each_time_that_it_is_bound(limited):
    with raw.RawClient(limited.port) as client:
        client.sign_in("ana", limited.tokens["ana"])
        client.send(raw.parse("SELECT 1", "s"), raw.SYNC)
        client.until()
        for _ in range(12):
            client.send(raw.bind(name="s"), raw.describe(b"P"), raw.execute(), raw.SYNC)
        found = [client.until() for _ in range(12)]
        assert [raw.kinds(each) for each in found] == ["2nCZ"] * 9 + ["EZ"] * 3
        assert limited.shadow.ran == 9


def test_what_tools_ask_of_the_catalogue_at_once_is_far_below_the_limit(served):
    shadow = Catalogue()
    with served(shadow=shadow) as found, raw.RawClient(found.port) as client:
        client.sign_in("ana", found.tokens["ana"])
        # ten statements for each of 250 tables, sent without waiting
        batch = raw.parse("SELECT 1") + raw.bind() + raw.describe(b"P") + raw.execute() + raw.SYNC
        for _ in range(50):
            client.send(batch * 50)
            assert [raw.kinds(client.until()) for _ in range(50)] == ["12nCZ"] * 50
        assert shadow.ran == 2500


# ---------------------------------------------------------------------- what one session holds


def test_names_types_and_formats_count_as_what_is_held(served, monkeypatch):
    monkeypatch.setattr(portals, "MOST_CHARACTERS", 1000)
    with served() as found, raw.RawClient(found.port) as client:
        client.sign_in("ana", found.tokens["ana"])
        for held in (
            raw.parse("", "n" * 1001),
            raw.parse(CITIES, "s", types=(23,) * 125),
            raw.parse("COMMIT", "b") + raw.bind(name="b", portal="n" * 1001),
            raw.parse("COMMIT", "c") + raw.bind(name="c", portal="p", results=(0,) * 125),
        ):
            client.send(held, raw.SYNC)
            assert [error["C"] for error in raw.errors(client.until())] == ["53400"]
        assert raw.tags(client.simple(CITIES)) == ["SELECT 3"]


def test_savepoints_are_limited(served):
    with served() as found, raw.RawClient(found.port) as client:
        client.sign_in("ana", found.tokens["ana"])
        found = client.simple("BEGIN;" + "SAVEPOINT a;" * 1001)
        assert raw.tags(found) == ["BEGIN"] + ["SAVEPOINT"] * 1000
        assert raw.errors(found)[0]["C"] == "53400"


def test_long_texts_of_one_analyst_are_read_one_at_a_time(served):
    """Each takes a processor for as long as it takes; whoever sends many would have them all."""
    with served() as found, contextlib.ExitStack() as stack:
        reading, most, lock = set(), [], threading.Lock()
        goes_on = threading.Event()

        class Slow:
            """Reads no long text before it is told to."""

            def __init__(self, router):
                self.router = router

            def split(self, text):
                if len(text) < 5000:
                    return self.router.split(text)
                with lock:
                    reading.add(text)
                    most.append({each[-1] for each in reading})
                goes_on.wait(20)
                with lock:
                    reading.discard(text)
                return [Statement(route=Route.EMPTY, sql=text, offset=0)]

        object.__setattr__(found.server._shared, "router", Slow(found.server._shared.router))
        clients = []
        for number, name in enumerate(("ana", "ana", "ana", "bob")):
            client = stack.enter_context(raw.RawClient(found.port)).sign_in(name, found.tokens[name])
            client.send(raw.query(" " * 6000 + str(number)))
            clients.append(client)
        until(lambda: len(most) == 2)
        # others aren't kept waiting, with short texts or long ones
        with raw.RawClient(found.port) as short:
            assert raw.tags(short.sign_in("ana", found.tokens["ana"]).simple(CITIES)) == ["SELECT 3"]
        goes_on.set()
        assert [raw.kinds(client.until()) for client in clients] == ["IZ"] * 4
        assert len(most) == 4
        assert all(len(at_once - {"3"}) <= 1 for at_once in most)
