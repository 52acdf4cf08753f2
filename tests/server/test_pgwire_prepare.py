"""PREPARE and EXECUTE in SQL: of questions here, of anything else in the shadow, under names that both sides share."""

import pytest
from hypothesis import given, strategies as st

from dither.query.schema import Schema, TableFacts
from dither.server.pgwire.catalogue.shadow import Reply
from dither.server.pgwire.sql.commands import ExecuteNamed, PrepareAs, literals_of, types_of
from dither.server.pgwire.sql.lexer import words
from dither.server.pgwire.sql.routing import Route, Router
from support import raw_client as raw

BELOW = "SELECT COUNT(*) AS n FROM orders WHERE amount < $1"
OF_CITY = "SELECT COUNT(*) AS n FROM orders WHERE city = $1"


class Catalogue:
    """Plays the shadow, and notes what reaches it."""

    version = "17.5"
    closed = False
    status = b"I"

    def __init__(self):
        self.parameters = {}
        self.log = []

    async def connect(self, _identity, _startup):
        return self

    async def simple(self, sql, *, to=None):
        self.log.append(sql)
        if "fails" in sql:
            return Reply(messages=raw.message(b"E", b"SERROR\0C42P01\0Mno\0\0"), failed=True)
        return Reply(messages=raw.message(b"C", b"SHADOW\0"), failed=False)

    async def extended(self, message, *, to=None):
        self.log.append(message[:1])
        answer = {b"P": b"1", b"B": b"2", b"D": b"n", b"E": b"C", b"C": b"3"}[message[:1]]
        return Reply(messages=raw.message(answer, b"SHADOW\0" if answer == b"C" else b""), failed=False)

    async def put(self, _sql):
        """The rows of views, of which EXECUTE may read any."""

    async def sync(self):
        pass

    async def close(self):
        pass


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    shadow = Catalogue()
    with raw.shop_served(tmp_path_factory.mktemp("prepare"), shadow=shadow) as found:
        found.shadow = shadow
        yield found


@pytest.fixture
def client(served):
    served.service.asked.clear()
    served.shadow.log.clear()
    with raw.RawClient(served.port) as connection:
        yield connection.sign_in("ana", served.tokens["ana"])


def receipts(served):
    return len(served.curator.answers("ana", count=500).items)


def test_preparing_is_free_and_the_same_is_charged_once(served, client):
    before = receipts(served)
    assert raw.tags(client.simple(f"PREPARE q AS {BELOW}")) == ["PREPARE"]
    assert (receipts(served), served.service.asked) == (before, [])
    first = raw.rows(client.simple("EXECUTE q(7)"))
    assert raw.rows(client.simple("EXECUTE q(7)")) == raw.rows(client.simple("EXECUTE q('7')")) == first
    assert raw.rows(client.simple(BELOW.replace("$1", "7.0"))) == first
    assert receipts(served) == before + 1
    client.simple("EXECUTE q(8)")
    assert receipts(served) == before + 2
    assert served.shadow.log == []


def test_settings_are_those_of_the_moment_when_it_is_run(served, client):
    client.simple(f"SET dp.epsilon = 0.2; PREPARE q AS {BELOW}; SET dp.epsilon = 0.3; EXECUTE q(11)")
    assert [str(wanted.terms.epsilon) for wanted in served.service.asked] == ["3/10"]


@pytest.mark.parametrize(
    ("argument", "read"),
    [
        ("'Bern'", "'Bern'"),
        ("'it''s'' OR 1=1 --'", "'it''s'' OR 1=1 --'"),
        ("$x$'; SELECT 1; --$x$", "'''; SELECT 1; --'"),
        ("NULL", "NULL"),
        ("''", "''"),
        ("'a'\n'b'", "'ab'"),
    ],
)
def test_an_argument_becomes_a_value_and_nothing_else(served, client, argument, read):
    client.simple(f"PREPARE q AS {OF_CITY}")
    assert raw.tags(client.simple(f"EXECUTE q({argument})")) == ["SELECT 1"]
    (wanted,) = served.service.asked
    assert wanted.sql.split() == OF_CITY.replace("$1", read).split()


@pytest.mark.parametrize(
    "argument", ["E'a\\'", "U&'a'", "B'1'", "1 + 1", "now()", "$1", "'a'::text", "-'1'", "- 1 2", "x"]
)
def test_arguments_that_arent_literals_are_refused_free_of_charge(served, client, argument):
    client.simple(f"PREPARE q AS {OF_CITY}")
    (error,) = raw.errors(client.simple(f"EXECUTE q({argument})"))
    assert error["C"] in ("0A000", "42601")
    assert error["H"]
    assert (served.service.asked, served.shadow.log) == ([], [])


def test_what_is_wrong_is_found_when_it_is_prepared_and_marked_there(client):
    sql = "/* ε */ COMMIT; PREPARE q AS SELECT nope FROM orders"
    (error,) = raw.errors(client.simple(sql))
    assert (error["C"], error["P"]) == ("42703", str(sql.index("nope") + 1))
    assert raw.errors(client.simple("EXECUTE q"))[0]["C"] == "26000"


def test_a_refusal_when_it_is_run_marks_no_place_of_another_message(client):
    client.simple(f"PREPARE q AS {OF_CITY}; SET dp.epsilon = 5")
    (error,) = raw.errors(client.simple("EXECUTE q('Bern')"))
    assert "P" not in error
    client.simple("RESET dp.epsilon")
    (error,) = raw.errors(client.simple("EXECUTE q(1, 2)"))
    assert (error["C"], error["M"]) == ("42601", "there are 2 values for 1 parameters")


def test_the_shadow_keeps_what_isnt_a_question(served, client):
    assert raw.tags(client.simple("PREPARE q AS SELECT 1; EXECUTE q; DEALLOCATE q")) == ["SHADOW"] * 3
    assert served.shadow.log == ["PREPARE q AS SELECT 1", "EXECUTE q", "DEALLOCATE q"]
    # one that it refuses leaves its name free
    assert raw.errors(client.simple("PREPARE q AS SELECT fails"))
    assert raw.tags(client.simple(f"PREPARE q AS {BELOW}")) == ["PREPARE"]
    served.shadow.log.clear()
    assert raw.errors(client.simple("PREPARE q AS SELECT 1"))[0]["C"] == "42P05"
    assert served.shadow.log == []
    client.send(raw.parse("EXECUTE other"), raw.bind(), raw.execute(), raw.SYNC)
    assert raw.kinds(client.until()) == "12CZ"
    assert served.shadow.log == [b"P", b"B", b"E"]


def test_only_questions_are_run_by_their_name(client):
    client.send(raw.parse("BEGIN", "b"), raw.parse(f"COPY ({BELOW.replace('$1', '1')}) TO STDOUT", "c"), raw.SYNC)
    client.until()
    for name in ("b", "c"):
        assert raw.errors(client.simple(f"EXECUTE {name}"))[0]["C"] == "0A000"


def test_names_are_limited_as_those_of_the_protocol(tmp_path):
    with raw.shop_served(tmp_path, most_names=2) as found, raw.RawClient(found.port) as client:
        client.sign_in("ana", found.tokens["ana"])
        codes = [[each["C"] for each in raw.errors(client.simple(f"PREPARE q{n} AS {BELOW}"))] for n in range(3)]
        assert codes == [[], [], ["53400"]]


# ---------------------------------------------------------------------- words

ROUTER = Router(Schema({"orders": TableFacts(name="orders", private=True, columns={})}), database="shop")


@pytest.mark.parametrize(
    ("sql", "question", "detail"),
    [
        ("PREPARE p AS SELECT 1", "", PrepareAs(name="p")),
        ('PREPARE "P" (xml) AS SELECT $1', "", PrepareAs(name="P")),
        ("PREPARE p AS SELECT * FROM orders LIMIT 0", "", PrepareAs(name="p")),
        ("prepare P as select count(*) from orders", "select count(*) from orders", PrepareAs(name="p")),
        (
            "PREPARE orders (int, DOUBLE PRECISION, timestamp with time zone, unknown) AS TABLE orders",
            "TABLE orders",
            PrepareAs(name="orders", types=(23, 701, 1184, 0)),
        ),
    ],
)
def test_what_is_prepared(sql, question, detail):
    (statement,) = ROUTER.split(sql)
    assert (statement.route, statement.tag, statement.question, statement.detail) == (
        Route.PREPARE,
        "PREPARE",
        question,
        detail,
    )
    assert sql[statement.question_offset :].startswith(question)


@pytest.mark.parametrize(
    ("sql", "detail"),
    [
        ("EXECUTE p", ExecuteNamed(name="p", arguments=())),
        ("EXECUTE orders ()", ExecuteNamed(name="orders", arguments=())),
        ("EXECUTE p(1, -2.5e3, + 3, TRUE)", ExecuteNamed(name="p", arguments=(b"1", b"-2.5e3", b"+3", b"true"))),
        ("EXECUTE p(now(), (1, 2))", ExecuteNamed(name="p", arguments=None)),
        ("EXECUTE p(1,)", ExecuteNamed(name="p", arguments=None)),
    ],
)
def test_what_is_run(sql, detail):
    (statement,) = ROUTER.split(sql)
    assert (statement.route, statement.detail) == (Route.EXECUTE, detail)


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])) | st.none(), max_size=5))
def test_texts_come_through_as_they_were_written(given):
    text = ", ".join("NULL" if each is None else "'" + each.replace("'", "''") + "'" for each in given)
    expected = tuple(None if each is None else each.encode() for each in given)
    assert literals_of(words(text), text) == expected


def test_types_by_all_their_names():
    assert types_of(words("int, Float8, character varying, timestamptz, decimal")) == (23, 701, 1043, 1184, 1700)
    assert types_of([]) == ()
