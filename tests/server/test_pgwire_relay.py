"""What isn't a question: passed on to the shadow as it came, in the same transaction; a stand-in plays the shadow."""

import pytest

from dither.server.pgwire.catalogue.shadow import Reply
from dither.server.problems import ServerProblem, ServerRefusal
from support import raw_client as raw

CITIES = "SELECT city, COUNT(*) AS n FROM orders GROUP BY city ORDER BY city"
ERROR = raw.message(b"E", b"SERROR\0VERROR\0C42P01\0Mno such P9 thing\0P8\0\0")
ANSWERS = {b"P": b"1", b"B": b"2", b"D": b"n", b"E": b"C", b"C": b"3"}


class StandIn:
    """Plays the shadow: notes what it gets and answers with one row's worth of nothing."""

    version = "17.5"

    def __init__(self):
        self.log = []
        self.connections = []
        self.startup = None

    async def connect(self, identity, startup):
        self.startup = startup
        self.connections.append(StandInConnection(self.log, identity, startup.get("TimeZone", "UTC")))
        return self.connections[-1]


class StandInConnection:
    def __init__(self, log, identity, zone):
        self.log, self.identity = log, identity
        self.closed = False
        self.status = b"I"
        self.parameters = {"TimeZone": zone}

    async def simple(self, sql, *, to=None):
        self.log.append(sql)
        if "went_away" in sql:
            self.closed = True
            raise ServerRefusal(
                ServerProblem(status=503, sqlstate="57P01", code="gone", title="the catalogue went away")
            )
        if "fails" in sql:
            return Reply(messages=ERROR, failed=True)
        return Reply(messages=raw.message(b"C", b"SHADOW\0"), failed=False)

    async def extended(self, message, *, to=None):
        self.log.append(message)
        if b"fails" in message:
            return Reply(messages=ERROR, failed=True)
        body = b"SHADOW\0" if message[:1] == b"E" else b""
        return Reply(messages=raw.message(ANSWERS[message[:1]], body), failed=False)

    async def sync(self):
        self.log.append("sync")

    async def cancel(self):
        self.log.append("cancel")

    async def close(self):
        self.closed = True


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    shadow = StandIn()
    with raw.shop_served(tmp_path_factory.mktemp("relay"), shadow=shadow) as found:
        found.shadow = shadow
        yield found


@pytest.fixture
def log(served):
    served.shadow.log.clear()
    return served.shadow.log


@pytest.fixture
def client(served, log):
    with raw.RawClient(served.port) as connection:
        yield connection.sign_in("ana", served.tokens["ana"], application_name="test")


def roundtrip(client, *parts):
    client.send(*parts, raw.SYNC)
    return client.until()


def test_the_shadow_is_opened_when_it_is_needed_and_closed_with_the_client(served, log):
    before = len(served.shadow.connections)
    with raw.RawClient(served.port) as connection:
        connection.sign_in("ana", served.tokens["ana"], application_name="mine")
        assert connection.parameters["server_version"] == "17.5"
        connection.simple(CITIES)
        assert len(served.shadow.connections) == before
        assert raw.tags(connection.simple("SELECT 1; SELECT version()")) == ["SHADOW", "SHADOW"]
        assert len(served.shadow.connections) == before + 1
        assert served.shadow.connections[-1].identity.analyst == "ana"
        assert served.shadow.startup["application_name"] == "mine"
        connection.send(raw.TERMINATE)
        connection.rest()
    assert served.shadow.connections[-1].closed
    assert log == ["SELECT 1", "SELECT version()"]


@pytest.mark.parametrize("extended", [False, True])
def test_settings_of_the_start_are_told_once_they_hold(served, log, extended):
    sent = raw.parse("SELECT 1") + raw.bind() + raw.execute() + raw.SYNC if extended else raw.query("SELECT 1")
    with raw.RawClient(served.port) as connection:
        connection.sign_in("ana", served.tokens["ana"], TimeZone="Europe/Zurich")
        assert connection.parameters["TimeZone"] == "UTC"
        told = []
        for _ in range(2):
            connection.send(sent)
            told.append([each.body for each in connection.until() if each.kind == b"S"])
        assert told == [[b"TimeZone\0Europe/Zurich\0"], []]
    with raw.RawClient(served.port) as connection:
        connection.sign_in("ana", served.tokens["ana"])
        assert b"S" not in {each.kind for each in connection.simple("SELECT 1")}


def test_questions_never_reach_the_shadow(client, log):
    client.simple("SELECT 1")
    client.simple(CITIES)
    client.simple("SELECT * FROM orders")
    client.simple(f"BEGIN; DECLARE c CURSOR FOR {CITIES}; FETCH c; CLOSE c; COMMIT")
    roundtrip(client, raw.parse(CITIES, "s"), raw.bind(name="s"), raw.describe(b"P"), raw.execute())
    assert log == ["SELECT 1", "BEGIN", "COMMIT"]


def test_a_transaction_is_open_there_too(client, log):
    client.simple("BEGIN; SAVEPOINT a")
    assert log == []
    client.simple("SELECT 1")
    client.simple("SAVEPOINT b; ROLLBACK TO a; RELEASE a; COMMIT")
    assert log == ["BEGIN", 'SAVEPOINT "a"', "SELECT 1", "SAVEPOINT b", "ROLLBACK TO a", "RELEASE a", "COMMIT"]


def test_what_failed_here_is_rolled_back_there(client, log):
    client.simple("SELECT 1; BEGIN")
    client.simple("SELECT nope FROM orders")
    client.simple("SELECT 2")
    assert raw.tags(client.simple("COMMIT")) == ["ROLLBACK"]
    assert log == ["SELECT 1", "BEGIN", "ROLLBACK"]


def test_what_failed_there_fails_the_transaction_here(client):
    found = client.simple("BEGIN; SELECT fails; SELECT 1")
    assert raw.kinds(found) == "CEZ"
    assert found[-1].body == b"E"
    assert raw.errors(client.simple(CITIES))[0]["C"] == "25P02"
    assert client.simple("ROLLBACK")[-1].body == b"I"


def test_places_in_errors_there_count_from_the_beginning_of_the_message(client):
    assert raw.errors(client.simple("SELECT fails"))[0]["P"] == "8"
    found = client.simple("SELECT 1; SELECT fails")
    assert raw.kinds(found) == "CEZ"
    assert raw.errors(found)[0] == {"S": "ERROR", "V": "ERROR", "C": "42P01", "M": "no such P9 thing", "P": "18"}


def test_messages_are_passed_on_as_they_came(client, log):
    parts = [
        raw.parse("SELECT $1::int", "s", types=(23,)),
        raw.bind([b"5"], name="s", portal="p", formats=(0,), results=(1,)),
        raw.describe(b"S", "s"),
        raw.describe(b"P", "p"),
        raw.execute("p", 3),
        raw.close(b"P", "p"),
        raw.close(b"S", "s"),
    ]
    assert raw.kinds(roundtrip(client, *parts)) == "12nnC33Z"
    assert log == [*parts, "sync"]
    # neither is there any more
    assert raw.errors(roundtrip(client, raw.bind(name="s")))[0]["C"] == "26000"


def test_errors_there_skip_to_sync_here(client, log):
    found = roundtrip(client, raw.parse("SELECT fails", "bad"), raw.bind(name="bad"), raw.execute())
    assert raw.kinds(found) == "EZ"
    assert len(log) == 1
    # it isn't kept, so the name is free
    assert raw.kinds(roundtrip(client, raw.parse("SELECT 1", "bad"))) == "1Z"


def test_both_kinds_in_one_pipeline(client, log):
    found = roundtrip(
        client,
        raw.parse("SELECT 1"),
        raw.bind(),
        raw.execute(),
        raw.parse(CITIES),
        raw.bind(),
        raw.describe(b"P"),
        raw.execute(),
    )
    assert raw.kinds(found) == "12C12TNDDDCZ"
    assert len(log) == 4


def test_cursors_and_statements_of_the_shadow_are_its_own(client, log):
    client.simple("BEGIN; DECLARE theirs CURSOR FOR SELECT 1")
    assert raw.tags(client.simple("FETCH 3 FROM theirs; CLOSE theirs")) == ["SHADOW", "SHADOW"]
    roundtrip(client, raw.parse("FETCH theirs"), raw.bind(), raw.execute())
    roundtrip(client, raw.parse("SELECT 1", "t"))
    assert raw.tags(client.simple("DEALLOCATE t")) == ["SHADOW"]
    assert log[1:4] == ["DECLARE theirs CURSOR FOR SELECT 1", "FETCH 3 FROM theirs", "CLOSE theirs"]
    assert log[-1] == "DEALLOCATE t"
    client.simple("ROLLBACK")


def test_a_cursor_declared_there_is_described_and_run_there(client, log):
    client.simple("BEGIN; DECLARE theirs CURSOR FOR SELECT 1")
    parts = [raw.describe(b"P", "theirs"), raw.execute("theirs", 1), raw.close(b"P", "theirs")]
    assert raw.kinds(roundtrip(client, *parts)) == "nC3Z"
    assert log[2:] == [*parts, "sync"]
    client.simple("ROLLBACK")


def test_resetting_is_done_on_both_sides(client, log):
    client.simple("SELECT 1; SET dp.epsilon = 0.5")
    assert raw.tags(client.simple("RESET ALL")) == ["RESET"]
    assert raw.rows(client.simple("SHOW dp.epsilon")) == [[b"0.1"]]
    assert raw.tags(client.simple("CLOSE ALL; DEALLOCATE ALL; DISCARD ALL"))[-1] == "DISCARD ALL"
    assert log == ["SELECT 1", "RESET ALL", "CLOSE ALL", "DEALLOCATE ALL", "DISCARD ALL"]
    assert raw.errors(client.simple("BEGIN; DISCARD ALL"))[0]["C"] == "25001"


def test_a_shadow_that_went_away_is_opened_again(served, client):
    before = len(served.shadow.connections)
    assert raw.errors(client.simple("SELECT went_away"))[0]["C"] == "57P01"
    assert raw.tags(client.simple("SELECT 1")) == ["SHADOW"]
    assert len(served.shadow.connections) == before + 2
