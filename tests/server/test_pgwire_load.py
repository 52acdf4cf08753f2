"""Whatever a client sends is read in proportion to its length, beside the event loop, in turn and not too often."""

import contextlib
import threading
import time
from types import SimpleNamespace

import pytest

from dither.errors import Refused
from dither.query.kinds import Kind
from dither.query.schema import ColumnFacts, Schema, TableFacts
from dither.query.sql import parse
from dither.server.limits import ServerLimits
from dither.server.pgwire.catalogue import relay
from dither.server.pgwire.protocol import types
from dither.server.pgwire.session import preparing, session
from dither.server.pgwire.sql import reading, routing as statements, table_use as policy_tables
from dither.server.pgwire.sql.parameter_types import guess_types
from dither.server.pgwire.sql.parameters import placeholders
from dither.server.pgwire.sql.routing import Route, Router
from dither.server.problems import ServerRefusal
from support import raw_client as raw
from support.sizes import at_night

from .test_pgwire_limits import Catalogue

SCHEMA = Schema(
    {
        "orders": TableFacts(
            name="orders",
            private=True,
            columns={
                "city": ColumnFacts(name="city", kind=Kind.TEXT),
                "amount": ColumnFacts(name="amount", kind=Kind.DOUBLE),
            },
        )
    }
)
SHORT = "SELECT COUNT(*) AS n FROM orders WHERE amount < $1"
# for each character; far more than any of these takes, and far less than what grows faster than its text
STEPS = 500
# deadlines of what would otherwise wait for ever
HANG = 60.0


@pytest.fixture
def guessed(steps_within):
    def types(text, declared=()):
        with steps_within(STEPS * len(text) + 50_000):
            return guess_types(text, placeholders(text), declared, SCHEMA)

    return types


def numbered(first, last):
    return ",".join(f"${number}" for number in range(first, last + 1))


# ---------------------------------------------------------------------- types of parameters


def test_aliases_of_aliases_are_looked_at_once(guessed):
    """Each of them would double the work: three hundred bytes would keep a processor busy for years."""
    chain = ",".join(f"a{number}+a{number} AS a{number + 1}" for number in range(100))
    assert guessed(f"SELECT COUNT(*) AS a0,{chain} FROM orders WHERE a100 = $1") == (types.INT8,)


def test_aliases_that_name_each_other_have_a_type_if_anything_shows_it(guessed):
    assert guessed("SELECT a + 1 AS b, b + 1 AS a FROM orders WHERE a = $1") == (types.INT8,)
    assert guessed("SELECT a AS b, b AS a FROM orders WHERE a = $1") == (types.TEXT,)


@pytest.mark.parametrize(
    ("before", "first", "after", "expected"),
    [
        ("$1 IN (", 2, ")", types.TEXT),
        ("amount IN (", 1, ")", types.FLOAT8),
        ("coalesce(", 1, ") = 1", types.TEXT),
        ("greatest(amount,", 1, ") = 1", types.FLOAT8),
    ],
)
def test_many_parameters_beside_each_other_take_no_longer_each(before, first, after, expected, guessed):
    text = f"SELECT COUNT(*) FROM orders WHERE {before}{numbered(first, 4000)}{after}"
    assert guessed(text) == (expected,) * 4000


@at_night
def test_parameters_far_down_in_a_tree_take_no_longer_each(guessed):
    text = "SELECT COUNT(*) FROM orders WHERE " + " OR ".join(f"amount = ${number}" for number in range(1, 2001))
    assert guessed(text) == (types.FLOAT8,) * 2000


@pytest.mark.parametrize("sum_of", [["$1"] * 1500, ["- - $1"] * 1500, ["amount", *["$1"] * 3000]])
def test_long_sums_arent_deep(sum_of, guessed):
    found = guessed(f"SELECT COUNT(*) FROM orders WHERE {'+'.join(sum_of)} = 1.5")
    assert found == (types.FLOAT8 if "amount" in sum_of else types.TEXT,)


def test_what_is_nested_too_deeply_is_said_to_be(guessed):
    chain = ",".join(f"a{number}+1 AS a{number + 1}" for number in range(2000))
    with pytest.raises(Refused) as caught:
        guessed(f"SELECT b AS a0,{chain} FROM orders WHERE a2000 = $1")
    assert caught.value.code == "too_deep"


def test_a_number_of_a_parameter_that_skips_others_is_refused(guessed):
    """As in PostgreSQL; eight bytes would make as many types as a message can have parameters."""
    for text, missing in (("SELECT COUNT(*) FROM orders WHERE amount < $65535", 1), (SHORT + " AND city = $3", 2)):
        with pytest.raises(ServerRefusal) as caught:
            guessed(text)
        assert caught.value.problem.sqlstate == "42P18"
        assert f"${missing}" in caught.value.problem.title
    assert guessed(SHORT + " AND city = $3", (0, types.DATE)) == (types.FLOAT8, types.DATE, types.TEXT)


# ---------------------------------------------------------------------- routing


@pytest.fixture
def steps(monkeypatch):
    """Counts the steps of the parser."""
    taken = []
    parser = policy_tables._Dialect.Parser
    advance = parser._advance

    def counted(self, times=1):
        taken.append(times)
        advance(self, times)

    monkeypatch.setattr(parser, "_advance", counted)
    return taken


@pytest.fixture(scope="module")
def router():
    return Router(SCHEMA, database="shop")


def test_the_statements_of_a_message_share_its_steps(router, steps):
    # each of them may take some thousands for itself
    one = "SELECT " + "ARRAY[" * 20 + "1, orders" + "]" * 20 + ";"
    text = one * (5000 // len(one))
    found = router.split(text)
    assert len(found) > 20
    assert {each.route for each in found} == {Route.REFUSED}
    assert {each.detail.sqlstate for each in found} == {"54001"}
    assert len(steps) < 2 * parse.MOST_STEPS + parse.MOST_STEPS_EACH * len(text)


def test_the_tree_of_a_statement_is_read_once(router, monkeypatch):
    read, real = [], policy_tables.Trees._read
    monkeypatch.setattr(policy_tables.Trees, "_read", lambda self, words: read.append(words) or real(self, words))
    # whether it reads a table, and whether it wants a row
    (found,) = router.split("SELECT city, count(*) FROM pg_class, orders WHERE 1 = 0")
    assert found.route is Route.PRIVATE
    assert len(read) == 1


def test_many_usual_statements_of_one_message_have_steps_enough(router):
    one = "SELECT c.relname, (SELECT count(*) FROM pg_attribute orders WHERE orders.attrelid = c.oid) FROM pg_class c;"
    assert {each.route for each in router.split(one * 200)} == {Route.SHADOW}


def test_a_message_has_only_so_many_words(router, monkeypatch):
    """Each takes a hundred times the memory of a letter."""
    monkeypatch.setattr(statements, "MOST_WORDS", 1000)
    assert router.split("SELECT " + "1," * 499)[0].route is Route.SHADOW
    (found,) = router.split("SELECT " + "1," * 500)
    assert (found.route, found.detail.sqlstate, found.detail.code) == (Route.REFUSED, "54000", "too_long")


# ---------------------------------------------------------------------- what is kept


def test_what_is_kept_is_bounded_in_number_and_size():
    kept = reading._memory(5, 100)
    for number in range(7):
        kept.keep("ana", number, (str(number), 10))
    assert [kept.get("ana", number) for number in range(7)] == [None, None, *((str(n), 10) for n in range(2, 7))]
    kept.keep("ana", "large", ("x", 26))
    assert kept.get("ana", "large") is None
    assert kept.get("ana", 2) == ("2", 10)
    for number in range(5):
        kept.keep("ana", ("quarter", number), ("y", 25))
    assert [kept.get("ana", ("quarter", number)) for number in range(5)] == [None, *[("y", 25)] * 4]
    assert kept.get("ana", 2) is None
    # the same again takes no more room
    kept.keep("ana", ("quarter", 4), ("z", 25))
    assert [kept.get("ana", ("quarter", number)) for number in range(5)] == [None, *[("y", 25)] * 3, ("z", 25)]


# ---------------------------------------------------------------------- a server


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    with raw.shop_served(tmp_path_factory.mktemp("load")) as found:
        yield found


@pytest.fixture
def served(shop):
    """Serves the shop once more: ``served(limits, …)``; ``read`` are the texts that it split."""

    @contextlib.contextmanager
    def serve(limits=raw.ROOMY, **options):
        service = raw.CountingService(shop.curator, limits)
        try:
            with raw.serving(service, shop.access, **options) as server:
                read, router = [], server._shared.router

                def split(text):
                    read.append(text)
                    return router.split(text)

                object.__setattr__(server._shared, "router", SimpleNamespace(split=split))
                yield SimpleNamespace(
                    service=service, server=server, port=server.port, tokens=shop.tokens, read=read, router=router
                )
        finally:
            service.close()

    return serve


def signed_in(stack, served, name):
    return stack.enter_context(raw.RawClient(served.port)).sign_in(name, served.tokens[name])


LONG_VALUE = b"x" * 20_000
# What a client sends, and which function then reads it.
READS = [
    ("split", "split", lambda: [raw.query("SHOW dp.epsilon -- a")]),
    ("split", "split", lambda: [raw.parse("SELECT COUNT(*) FROM orders"), raw.SYNC]),
    ("guess_types", preparing, lambda: [raw.parse(SHORT), raw.SYNC]),
    ("placeholders", preparing, lambda: [raw.parse(SHORT), raw.SYNC]),
    ("bind_text", session, lambda: [raw.query(SHORT)]),
    (
        "bound_to",
        preparing,
        lambda: [
            raw.parse("SELECT COUNT(*) AS n FROM orders WHERE city = $1"),
            raw.bind([LONG_VALUE]),
            raw.SYNC,
        ],
    ),
    ("mentions_views", relay.views, lambda: [raw.query("SELECT" + " " * 20_000 + "'budget'")]),
]


@pytest.mark.parametrize(("name", "where", "sent"), READS, ids=[name for name, _, _ in READS])
def test_nobody_waits_while_a_text_is_read(served, monkeypatch, name, where, sent):
    """On the event loop it would keep everybody waiting, and whoever cancels or revokes a token as well."""
    goes_on, reading = threading.Event(), threading.Event()
    with served(shadow=Catalogue()) as found, contextlib.ExitStack() as stack:
        stack.callback(goes_on.set)
        ana, bob = signed_in(stack, found, "ana"), signed_in(stack, found, "bob")
        assert raw.kinds(bob.simple("SHOW dp.epsilon")) == "TDCZ"
        shared = found.server._shared
        real = shared.router.split if where == "split" else getattr(where, name)

        def waits(*given, **named):
            reading.set()
            assert goes_on.wait(HANG)
            return real(*given, **named)

        if where == "split":
            object.__setattr__(shared, "router", SimpleNamespace(split=waits))
        else:
            monkeypatch.setattr(where, name, waits)
        ana.send(*sent())
        assert reading.wait(HANG)
        bob.socket.settimeout(HANG / 2)
        assert raw.kinds(bob.simple("SHOW dp.epsilon")) == "TDCZ"
        goes_on.set()
        assert ana.until()[-1].kind == b"Z"


def test_short_texts_of_one_analyst_are_read_one_at_a_time(served, monkeypatch):
    at_once, most, lock = 0, [], threading.Lock()
    real = preparing.guess_types

    def slow(*given):
        nonlocal at_once
        with lock:
            at_once += 1
            most.append(at_once)
        time.sleep(0.02)
        with lock:
            at_once -= 1
        return real(*given)

    monkeypatch.setattr(preparing, "guess_types", slow)
    with served() as found, contextlib.ExitStack() as stack:
        clients = [signed_in(stack, found, "ana") for _ in range(5)]
        for number, client in enumerate(clients):
            client.send(raw.parse(f"{SHORT} AND amount > {number}"), raw.SYNC)
        assert [raw.kinds(client.until()) for client in clients] == ["1Z"] * 5
    assert most == [1] * 5


def test_texts_that_were_read_before_are_known_to_their_analyst_alone(served):
    """How long another's text takes would show whether anybody sent it."""
    with served() as found, contextlib.ExitStack() as stack:
        first, second, other = (signed_in(stack, found, name) for name in ("ana", "ana", "bob"))
        for client in (first, first, second, other, other):
            assert raw.kinds(client.simple("SHOW dp.epsilon")) == "TDCZ"
        assert found.read == ["SHOW dp.epsilon"] * 2


def test_types_that_were_guessed_before_are_known(served, monkeypatch):
    guesses, real = [], preparing.guess_types
    monkeypatch.setattr(preparing, "guess_types", lambda *given: guesses.append(given[:3]) or real(*given))
    with served() as found, contextlib.ExitStack() as stack:
        ana = signed_in(stack, found, "ana")
        for declared in ((), (), (23,), (23,), ()):
            ana.send(raw.parse(SHORT, types=declared), raw.describe(b"S"), raw.SYNC)
            assert raw.parameter_types(ana.until()) == list(declared or (types.FLOAT8,))
        assert len(guesses) == 2
        signed_in(stack, found, "bob").send(raw.parse(SHORT), raw.SYNC)
        ana.simple("SHOW dp.epsilon")


def test_messages_of_many_statements_arent_kept(served):
    with served() as found, contextlib.ExitStack() as stack:
        ana = signed_in(stack, found, "ana")
        for _ in range(2):
            assert raw.tags(ana.simple("BEGIN;COMMIT;" * 100)) == ["BEGIN", "COMMIT"] * 100
        assert len(found.read) == 2


def test_reading_has_a_limit_of_its_own(served):
    """Five times that of questions, over all connections; what is known needn't be read."""
    with served(ServerLimits(rate=1e-6, burst=2)) as found, contextlib.ExitStack() as stack:
        first, second = signed_in(stack, found, "ana"), signed_in(stack, found, "ana")
        for number in range(10):
            client = (first, second)[number % 2]
            assert raw.tags(client.simple(f"BEGIN; COMMIT -- {number}")) == ["BEGIN", "COMMIT"]
        for client in (first, second):
            (error,) = raw.errors(client.simple("BEGIN; COMMIT -- another"))
            assert (error["C"], error["M"]) == ("53400", "too many requests")
            assert "nothing was charged" in error["H"]
            client.send(raw.parse("SELECT COUNT(*) FROM orders"), raw.SYNC)
            assert raw.errors(client.until())[0]["C"] == "53400"
            assert raw.tags(client.simple("BEGIN; COMMIT -- 3")) == ["BEGIN", "COMMIT"]
        assert len(found.read) == 10
        assert 'dither_requests_total{what="rate",outcome="refused"} 4' in found.service.metrics.text({})
        assert raw.tags(signed_in(stack, found, "bob").simple("BEGIN; COMMIT")) == ["BEGIN", "COMMIT"]


def test_long_texts_count_more(served):
    with served(ServerLimits(rate=1e-6, burst=2)) as found, contextlib.ExitStack() as stack:
        ana, bob = signed_in(stack, found, "ana"), signed_in(stack, found, "bob")
        # one that counts more than there is left is still read, once
        assert raw.tags(ana.simple("BEGIN; COMMIT --" + " " * 50_000)) == ["BEGIN", "COMMIT"]
        assert raw.errors(ana.simple("BEGIN; COMMIT -- a"))[0]["C"] == "53400"
        assert raw.tags(bob.simple("BEGIN; COMMIT --" + " " * 4000)) == ["BEGIN", "COMMIT"]
        assert [raw.kinds(bob.simple(f"BEGIN; COMMIT -- {each}")) for each in range(7)] == ["CCZ"] * 5 + ["EZ"] * 2


def test_what_is_nested_too_deeply_has_the_code_of_postgresql(served):
    with served() as found, contextlib.ExitStack() as stack:
        ana = signed_in(stack, found, "ana")
        ana.send(raw.parse("SELECT COUNT(*) FROM orders WHERE " + "+".join(["$1"] * 1500) + " > 1"), raw.SYNC)
        (error,) = raw.errors(ana.until())
        assert error["C"] == "54001"
        assert raw.kinds(ana.simple("SHOW dp.epsilon")) == "TDCZ"


@pytest.mark.parametrize(
    ("column", "value", "declared"), [("city", b"x" * 100_000, ()), ("amount", b"1e300", (types.NUMERIC,))]
)
def test_a_value_that_stands_in_many_places_isnt_written_into_all_of_them(served, monkeypatch, column, value, declared):
    """A message of some kilobytes would become gigabytes."""
    made, real = [], preparing.bind_text
    monkeypatch.setattr(preparing, "bind_text", lambda *given: made.append(given) or real(*given))
    with served() as found, contextlib.ExitStack() as stack:
        ana = signed_in(stack, found, "ana")
        text = f"SELECT COUNT(*) AS n FROM orders WHERE {column} IN ({','.join(['$1'] * 1000)})"
        ana.send(raw.parse(text, types=declared))
        ana.send(raw.bind([value]), raw.SYNC)
        (error,) = raw.errors(ana.until())
        assert (error["C"], error["M"]) == ("0A000", "a question may have at most 100000 characters")
        assert "Nothing was charged" in error["D"]
        assert made == []


def test_many_connections_of_one_analyst_take_turns_on_the_loop(served, monkeypatch):
    """One message of an analyst's in each round, if it takes long: others wait for one of them, not for all."""
    with served() as found, contextlib.ExitStack() as stack:
        crowd = [signed_in(stack, found, "ana") for _ in range(30)]
        before = set(found.server._sessions)
        bob = signed_in(stack, found, "bob")
        bob.simple("SHOW dp.epsilon")
        heavy = session.ClientSession._flush

        turns, arrived = [0], []
        (process,) = set(found.server._sessions) - before
        his = found.server._sessions[process][1]
        reader, handle, answered = his._wire._reader, session.ClientSession._handle, []
        fed = reader.feed_data

        def arrive(content):
            # from here on it is the server that lets bob wait, and not a machine on which bob himself is slow
            arrived.append(turns[0])
            fed(content)

        async def handled(self, kind, body):
            await handle(self, kind, body)
            if self is his:
                answered.append(turns[0])

        monkeypatch.setattr(reader, "feed_data", arrive)
        monkeypatch.setattr(session.ClientSession, "_handle", handled)

        async def slow(self, body):
            time.sleep(0.02)
            turns[0] += 1
            await heavy(self, body)

        monkeypatch.setitem(session._EXTENDED, b"H", slow)
        for client in crowd:
            client.send(raw.FLUSH * 20)
        while not turns[0]:
            time.sleep(0.01)
        for _ in range(5):
            bob.simple("SHOW dp.epsilon")
        # the reply may be there before the server has noted that it was sent
        while len(answered) < 5:
            time.sleep(0.01)
        # ana's connections have 600 turns in all
        assert max(at - since for since, at in zip(arrived, answered, strict=False)) < 100
