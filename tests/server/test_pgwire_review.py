"""Ways to get more than one pays for, to be told something untrue, or to keep others waiting: each of them closed."""

import contextlib
import datetime as dt

import pyarrow as pa
import pytest

from dither.query.schema import Schema, TableFacts
from dither.server.auth.identity import ScramChallenge
from dither.server.limits import ServerLimits
from dither.server.pgwire.protocol import types
from dither.server.pgwire.protocol.errors import WireError
from dither.server.pgwire.protocol.values import InvalidValue, read_value
from dither.server.pgwire.session import portals, session
from dither.server.pgwire.session.portals import Names, Portal, PreparedStatement, ResultRows
from dither.server.pgwire.sql import lexer, routing as statements
from dither.server.pgwire.sql.parameters import BoundText
from dither.server.pgwire.sql.routing import Route, Router, Statement
from support import raw_client as raw


@pytest.fixture(scope="module")
def router():
    return Router(Schema({"orders": TableFacts(name="orders", private=True, columns={})}), database="shop")


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with raw.shop_served(tmp_path_factory.mktemp("review")) as found:
        yield found


@pytest.fixture
def client(served):
    with raw.RawClient(served.port) as connection:
        yield connection.sign_in("ana", served.tokens["ana"])


# ---------------------------------------------------------------------- words that PostgreSQL would read otherwise


@pytest.mark.parametrize("between", ["\n", " \t\n", "\r", " -- why\n", "\n -- why\n \f", "--\r\n--\n"])
def test_a_string_that_goes_on_in_the_next_line_is_read_as_its_first_part(router, between):
    # in an escape string \' is a quote, so that PostgreSQL sees what follows as words and not as a text
    hidden = f"SELECT E'a'{between}'b\\'', (SELECT count(*) FROM orders) --'"
    assert [part.route for part in router.split(hidden)] == [Route.PRIVATE]
    hidden = f"SELECT E'a'{between}'b\\''; NOTIFY others --'"
    assert [part.route for part in router.split(hidden)] == [Route.SHADOW, Route.REFUSED]


@pytest.mark.parametrize(
    ("text", "strings"),
    [
        ("'a'\n'b'", ["ab"]),
        ("'a'\n'b'\n'c''d'", ["abc'd"]),
        ("'a\\'\n'b'", ["a\\b"]),
        ("'a' 'b'", ["a", "b"]),
        ("'a' /* why */\n'b'", ["a", "b"]),
        ("E'a' 'b\\'", ["a", "b\\"]),
        ("'a'\nE'b'", ["a", "b"]),
        ("'a'\n-- why", ["a"]),
    ],
)
def test_which_strings_go_on(text, strings):
    found = lexer.words(text)
    assert [word.value for word in found] == strings
    assert found[-1].end == text.rindex("'") + 1


def test_a_string_whose_next_line_isnt_closed():
    with pytest.raises(lexer.Unclosed):
        lexer.words("E'a'\n'b\\'")


@pytest.mark.parametrize("blank", ["\u00a0", "\u2003", "\u200b", "\u3000", "\ufeff", "\u0085"])
def test_a_blank_that_is_a_letter_for_postgresql_is_refused(router, blank):
    # SELECT count(*) FROM<no-break space>orders would be a count of nothing under an odd name: 1
    (found,) = router.split(f"SELECT count(*) FROM{blank}orders")
    assert (found.route, found.detail.position) == (Route.REFUSED, (1, 17))
    (found,) = router.split(f"SELECT {'x' * 70}{blank}orders")
    assert found.route is Route.REFUSED
    (found,) = router.split(f"SELECT '{blank}' AS \"a{blank}b\", 1 AS größe")
    assert found.route is Route.SHADOW


@pytest.mark.parametrize("depth", [30, 50, 59, 300])
@pytest.mark.parametrize(
    ("opened", "closed"), [("ARRAY[", "]"), ("DATE (", ")"), ("ROW((", "))"), ("TIMESTAMP (", ")"), ("INT (", ")")]
)
def test_reading_a_statement_takes_no_longer_than_its_length_asks_for(router, opened, closed, depth):
    # each level would double the work: a line of text would stop the server for everybody
    (found,) = router.split(f"SELECT {opened * depth}1, orders{closed * depth}")
    assert found.route in (Route.REFUSED, Route.PRIVATE)


@pytest.mark.parametrize("text", ["'a'" + " --x" * 100_000, "'a'\n" + "--x\n" * 100_000, "'a'" + " " * 100_000 + "x"])
def test_reading_what_may_follow_a_string_takes_no_longer_either(text):
    assert lexer.words(text)[0].end == 3


def test_a_message_has_only_so_many_statements(router):
    assert len(router.split("a;" * statements.MOST_STATEMENTS)) == statements.MOST_STATEMENTS
    (found,) = router.split("a;" * (statements.MOST_STATEMENTS + 1))
    assert (found.route, found.detail.sqlstate) == (Route.REFUSED, "54000")


# ---------------------------------------------------------------------- charges


def test_formats_that_dont_fit_are_found_before_the_question_is_paid_for(served, client):
    before = len(served.curator.answers("ana", count=500).items)
    served.service.asked.clear()
    sql = "SELECT COUNT(*) AS n, SUM(amount) AS total FROM orders WHERE amount < 34"
    client.send(raw.parse(sql), raw.bind(results=(0, 1, 0)), raw.execute(), raw.SYNC)
    (told,) = raw.errors(client.until())
    assert told["C"] == "08P01"
    assert served.service.asked == []
    client.send(raw.parse(sql), raw.bind(results=(0, 1)), raw.execute(), raw.SYNC)
    found = client.until()
    assert [len(row) for row in raw.rows(found)] == [2]
    assert len(raw.rows(found)[0][1]) == 8
    assert len(served.curator.answers("ana", count=500).items) == before + 1


def test_a_token_that_was_revoked_pays_for_nothing_more_of_the_same_message(served, client, monkeypatch):
    monkeypatch.setattr(session, "TOKEN_SECONDS", 0.0)
    real, served.service.asked[:] = served.access.challenge, []

    def challenge(analyst):
        # revoked once the first question was asked
        found = real(analyst)
        return (
            ScramChallenge(salt=found.salt, iterations=found.iterations, verifiers=())
            if served.service.asked
            else found
        )

    monkeypatch.setattr(served.access, "challenge", challenge)
    client.send(
        raw.query("SELECT COUNT(*) FROM orders WHERE amount < 11; SELECT COUNT(*) FROM orders WHERE amount < 12")
    )
    told = [raw.fields(each) for each in client.rest() if each.kind == b"E"]
    assert [each["S"] for each in told] == ["FATAL"]
    assert len(served.service.asked) == 1


# ---------------------------------------------------------------------- what a session may hold


def held(text, question=""):
    return Statement(route=Route.PRIVATE, sql=text, offset=0, question=question)


def test_statements_of_a_session_have_so_many_characters_together(monkeypatch):
    # three of them are names
    monkeypatch.setattr(portals, "MOST_CHARACTERS", 103)
    names = Names(1000)
    names.prepare("a", PreparedStatement(statement=held("x" * 30, "y" * 30)))
    names.open("b", Portal(statement=held("x" * 10), bound=BoundText(text="z" * 20)))
    with pytest.raises(WireError, match="53400"):
        names.prepare("c", PreparedStatement(statement=held("x" * 11)))
    with pytest.raises(WireError, match="53400"):
        names.open("d", Portal(statement=held(""), bound=BoundText(text="z" * 11)))
    assert set(names.statements) | set(names.portals) == {"a", "b"}
    names.open("d", Portal(statement=held(""), bound=BoundText(text="z" * 10)))


def test_answers_of_a_session_have_so_many_bytes_together(monkeypatch):
    monkeypatch.setattr(portals, "MOST_BYTES", 100)
    names = Names(1000)
    table = pa.table({"n": list(range(10))})
    for name in "ab":
        rows = ResultRows(table=table, columns=types.columns_of(table.schema), word="SELECT")
        names.open(name, Portal(statement=held(""), bound=BoundText(text=""), rows=rows))
    with pytest.raises(WireError, match="53400"):
        names.open("c", Portal(statement=held(""), bound=BoundText(text="")))
    del names.portals["a"]
    names.open("c", Portal(statement=held(""), bound=BoundText(text="")))


# ---------------------------------------------------------------------- texts and values


@pytest.mark.parametrize("sent", [raw.query("SELECT 1"), raw.parse("SELECT 1") + raw.SYNC])
def test_a_text_in_another_encoding_is_an_error_and_not_the_end(client, sent):
    client.send(sent.replace(b"SELECT 1", b"SELECT \xff"))
    (told,) = raw.errors(client.until())
    assert (told["S"], told["C"]) == ("ERROR", "22021")
    assert raw.tags(client.simple("BEGIN; COMMIT")) == ["BEGIN", "COMMIT"]


@pytest.mark.parametrize("number", ["0", "65536", "99999", "100000", "9" * 400])
def test_parameters_that_there_cant_be(served, client, number):
    served.service.asked.clear()
    client.send(raw.parse(f"SELECT COUNT(*) FROM orders WHERE amount < ${number}"), raw.describe(b"S"), raw.SYNC)
    client.send(raw.bind([b"1"]), raw.execute(), raw.SYNC)
    told = raw.errors(client.until()) + raw.errors(client.until())
    assert {each["C"] for each in told} <= {"42P02", "42P18", "08P01", "26000"}
    assert told
    assert served.service.asked == []


@pytest.mark.parametrize(
    ("oid", "text"),
    [
        (types.FLOAT8, "1e-400"),
        (types.FLOAT8, "-0.1e-323"),
        (types.FLOAT8, "1e400"),
        (types.FLOAT4, "1e-46"),
        (types.FLOAT4, "1e39"),
        (types.FLOAT4, "-1e39"),
    ],
)
def test_floats_that_arent_the_number_that_was_sent(oid, text):
    with pytest.raises(InvalidValue) as problem:
        read_value(text.encode(), oid, form=0, number=1)
    assert problem.value.sqlstate == "22003"


@pytest.mark.parametrize("text", ["0", "-0", "0e5", "0.000e-400", ".0"])
def test_zero_is_a_float(text):
    assert read_value(text.encode(), types.FLOAT8, form=0, number=1) == 0


@pytest.mark.parametrize(
    ("oid", "text"),
    [
        (types.DATE, "2024-01-01 99:99"),
        (types.DATE, "2024-01-01 10:00:61"),
        (types.TIMESTAMPTZ, "2024-01-01 00:00:00+99"),
        (types.TIMESTAMPTZ, "2024-01-01 00:00:00+16"),
        (types.TIMESTAMPTZ, "2024-01-01 00:00:00+01:60"),
        (types.TIMESTAMP, "2024-01-01 00:00:00-15:00:60"),
    ],
)
def test_moments_that_there_arent(oid, text):
    with pytest.raises(InvalidValue) as problem:
        read_value(text.encode(), oid, form=0, number=1)
    assert problem.value.sqlstate == "22P02"


def test_the_furthest_time_zone():
    found = read_value(b"2024-01-02 00:00:00+15:59:59", types.TIMESTAMPTZ, form=0, number=1)
    assert found == dt.datetime(2024, 1, 1, 8, 0, 1)  # noqa: DTZ001 - what is read has no time zone


# ---------------------------------------------------------------------- others


def test_nobody_can_take_all_connections(tmp_path):
    with raw.shop_served(tmp_path, limits=ServerLimits(connections=4)) as found, contextlib.ExitStack() as stack:
        first, _second = (
            stack.enter_context(raw.RawClient(found.port)).sign_in("ana", found.tokens["ana"]) for _ in range(2)
        )
        with raw.RawClient(found.port) as third:
            assert third.scram("ana", found.tokens["ana"])[0].kind == b"R"
            told = [raw.fields(each) for each in third.rest() if each.kind == b"E"]
            assert [(each["S"], each["C"]) for each in told] == [("FATAL", "53300")]
        other = stack.enter_context(raw.RawClient(found.port)).sign_in("bob", found.tokens["bob"])
        assert raw.tags(other.simple("BEGIN")) == ["BEGIN"]
        first.send(raw.TERMINATE)
        assert first.rest() == []
        again = stack.enter_context(raw.RawClient(found.port)).sign_in("ana", found.tokens["ana"])
        assert raw.tags(again.simple("BEGIN")) == ["BEGIN"]


@pytest.mark.parametrize(
    "sql",
    [
        "COMMIT garbage",
        "END AND CHAIN garbage",
        "ROLLBACK garbage",
        "SAVEPOINT a garbage",
        "RELEASE a garbage",
        "ROLLBACK TO a garbage",
        "BEGIN garbage",
        "START TRANSACTION ISOLATION LEVEL none",
    ],
)
def test_what_follows_a_statement_of_transactions_isnt_passed_over(router, sql):
    (found,) = router.split(sql)
    assert (found.route, found.detail.sqlstate) == (Route.REFUSED, "42601")


@pytest.mark.parametrize(
    "sql",
    [
        "BEGIN",
        "BEGIN WORK ISOLATION LEVEL SERIALIZABLE, READ ONLY, NOT DEFERRABLE",
        "START TRANSACTION ISOLATION LEVEL REPEATABLE READ READ WRITE",
        "begin transaction isolation level read uncommitted",
        "COMMIT WORK AND NO CHAIN",
        "END",
        "ABORT TRANSACTION",
        'ROLLBACK WORK TO SAVEPOINT "a b"',
    ],
)
def test_statements_of_transactions(router, sql):
    (found,) = router.split(sql)
    assert found.route is Route.TRANSACTION
