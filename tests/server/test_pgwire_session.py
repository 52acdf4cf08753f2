"""A client's session, byte by byte: signing in, the simple protocol, transactions, cursors, settings, copies."""

import struct

import pytest

from support import raw_client as raw

CITIES = "SELECT city, COUNT(*) AS n FROM orders GROUP BY city ORDER BY city"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with raw.shop_served(tmp_path_factory.mktemp("session")) as found:
        yield found


@pytest.fixture
def receipts(served):
    """How many receipts ana has got in this test."""
    before = len(served.curator.answers("ana", count=500).items)
    return lambda: len(served.curator.answers("ana", count=500).items) - before


@pytest.fixture
def client(served):
    with raw.RawClient(served.port) as connection:
        yield connection.sign_in("ana", served.tokens["ana"])


# ---------------------------------------------------------------------- signing in


def test_what_a_client_is_told_after_signing_in(client):
    assert client.parameters["server_encoding"] == "UTF8"
    assert client.parameters["session_authorization"] == "ana"
    assert client.parameters["standard_conforming_strings"] == "on"
    assert client.parameters["integer_datetimes"] == "on"
    assert len(client.key) == 8


@pytest.mark.parametrize("step", [1, 3, 7])
def test_messages_may_come_in_any_pieces(served, step):
    with raw.RawClient(served.port, step=step) as connection:
        connection.sign_in("ana", served.tokens["ana"], header="y,,")
        found = connection.simple("SELECT COUNT(*) AS n FROM orders")
        assert raw.kinds(found) == "NTDCZ"


@pytest.mark.parametrize(("user", "password"), [("ana", "wrong"), ("nobody", "x"), ("ana", ""), ("bob", "ana's")])
def test_whoever_has_no_token_is_told_nothing_else(served, user, password):
    password = served.tokens["ana"] if password == "ana's" else password
    with raw.RawClient(served.port) as connection:
        (verdict,) = connection.scram(user, password)
        found = raw.fields(verdict)
        assert (found["S"], found["C"], found["M"]) == ("FATAL", "28P01", "password authentication failed")
        assert connection.rest() == []


def test_channel_binding_and_other_mechanisms_are_refused(served):
    with raw.RawClient(served.port) as connection:
        (verdict,) = connection.scram("ana", served.tokens["ana"], header="p=tls-unique,,")
        assert raw.fields(verdict)["C"] == "08P01"
    with raw.RawClient(served.port) as connection:
        (verdict,) = connection.scram("ana", served.tokens["ana"], mechanism=b"SCRAM-SHA-256-PLUS")
        assert raw.fields(verdict)["C"] == "28000"


def test_a_newer_version_and_unknown_options_are_negotiated(served):
    with raw.RawClient(served.port) as connection:
        connection.send(raw.startup(3 << 16 | 2, user="ana", **{"_pq_.later": "1"}))
        assert connection.read() == (b"v", struct.pack("!ii", 3 << 16, 1) + b"_pq_.later\0")
        assert connection.read().kind == b"R"


def test_other_versions_are_refused(served):
    with raw.RawClient(served.port) as connection:
        connection.send(raw.startup(2 << 16, user="ana"))
        (found,) = connection.rest()
        assert raw.fields(found)["C"] == "0A000"


def test_settings_at_the_start_hold_for_questions(served, counting):
    with raw.RawClient(served.port) as connection:
        connection.sign_in("ana", served.tokens["ana"], options="-c dp.epsilon=0.25 --dp.confidence=0.9")
        assert raw.rows(connection.simple("SHOW dp.epsilon; SHOW dp.confidence")) == [[b"0.25"], [b"0.9"]]
        connection.simple("SELECT COUNT(*) FROM orders")
        assert str(counting.asked[0].terms.epsilon) == "1/4"


def test_only_utf8_is_spoken(served):
    with raw.RawClient(served.port) as connection:
        connection.send(raw.startup(user="ana", client_encoding="LATIN1"))
        assert raw.fields(connection.rest()[-1])["C"] == "22023"


def test_a_revoked_token_ends_the_session(served, monkeypatch):
    token, secret = served.access.create("ana")
    monkeypatch.setattr("dither.server.pgwire.session.session.TOKEN_SECONDS", 0.0)
    with raw.RawClient(served.port) as connection:
        connection.sign_in("ana", secret)
        assert raw.kinds(connection.simple(CITIES)) == "NTDDDCZ"
        served.access.revoke(token.number)
        connection.send(raw.query(CITIES))
        (found,) = connection.rest()
        assert (raw.fields(found)["S"], raw.fields(found)["C"]) == ("FATAL", "28P01")


# ---------------------------------------------------------------------- the simple protocol


def test_a_question_is_asked_once_and_its_price_comes_before_its_rows(client, counting):
    question = CITIES.replace("GROUP", "WHERE amount > 7 GROUP")
    found = client.simple(question)
    assert raw.kinds(found) == "NTDDDCZ"
    told = raw.fields(found[0])
    assert (told["S"], told["C"]) == ("NOTICE", "00000")
    assert told["M"].startswith("cost: ε = 0.1")
    assert "Receipt " in told["D"]
    assert raw.columns(found) == [("city", 25, -1, 0), ("n", 20, 8, 0)]
    assert [row[0] for row in raw.rows(found)] == [b"Basel", b"Bern", b"Zug"]
    assert raw.tags(found) == ["SELECT 3"]
    assert found[-1].body == b"I"
    again = client.simple(question)
    assert raw.rows(again) == raw.rows(found)
    assert raw.fields(again[0])["M"].startswith("cost: nothing")
    assert len(counting.asked) == 2
    assert counting.priced == []


def test_the_text_reaches_the_curator_as_it_was_written(client, counting):
    client.simple(f"  {CITIES} ; ")
    assert counting.asked[0].sql == CITIES


def test_several_statements_stop_at_the_first_error(client, counting):
    found = client.simple(f"{CITIES}; SELECT nope FROM orders; {CITIES}")
    assert raw.kinds(found) == "NTDDDCEZ"
    assert len(counting.asked) == 2


def test_an_empty_query(client):
    assert raw.kinds(client.simple("")) == "IZ"
    assert raw.kinds(client.simple(" ;; -- nothing")) == "IZ"


@pytest.mark.parametrize(
    ("before", "question", "wrong", "sqlstate"),
    [
        ("", "SELECT COUNT(*) FROM orders WHERE nope = 1", "nope", "42703"),
        ("BEGIN; /* é🎉 */ ", "SELECT COUNT(*)\nFROM orders\nWHERE nope = 1", "nope", "42703"),
        ("", "SELECT COUNT(*) FROM orders WHERE (", None, "42601"),
        ("", "SELECT COUNT(*), random() FROM orders", "random", "42883"),
        ("", "SELECT * FROM orders", None, "0A000"),
        ("COPY (", "SELECT nope FROM orders) TO STDOUT", "nope", "42703"),
    ],
)
def test_refusals_say_where_and_that_nothing_was_charged(client, receipts, before, question, wrong, sqlstate):
    (error,) = raw.errors(client.simple(before + question))
    assert (error["S"], error["V"], error["C"]) == ("ERROR", "ERROR", sqlstate)
    assert error["D"].startswith("Nothing was charged.")
    if wrong is not None:
        # characters from 1, in the whole message
        assert (before + question)[int(error["P"]) - 1 :].startswith(wrong)
    assert receipts() == 0


def test_out_of_budget(tmp_path):
    with raw.shop_served(tmp_path, ana=0.05) as poor, raw.RawClient(poor.port) as client:
        client.sign_in("ana", poor.tokens["ana"])
        (error,) = raw.errors(client.simple(f"SET dp.epsilon = 0.9; {CITIES}"))
        assert error["C"] == "53400"
        assert error["D"].startswith("Nothing was charged.")


def test_a_token_for_prices_alone_cant_ask(served):
    with raw.RawClient(served.port) as connection:
        connection.sign_in("looker", served.tokens["looker"])
        assert raw.errors(connection.simple(CITIES))[0]["C"] == "42501"


def test_explain_privacy_is_free(client, receipts):
    found = client.simple(f"EXPLAIN PRIVACY {CITIES}")
    assert raw.kinds(found) == "NTDDCZ"
    assert [column[0] for column in raw.columns(found)][:2] == ["column", "error"]
    assert receipts() == 0


def test_a_token_for_prices_alone_may_explain(served):
    with raw.RawClient(served.port) as connection:
        connection.sign_in("looker", served.tokens["looker"])
        assert raw.kinds(connection.simple(f"explain privacy {CITIES}")) == "NTDDCZ"


def test_a_probe_without_rows_never_asks(client, counting):
    found = client.simple(f"SELECT * FROM ({CITIES}) AS probe LIMIT 0")
    assert raw.kinds(found) == "TCZ"
    assert raw.columns(found) == [("city", 25, -1, 0), ("n", 20, 8, 0)]
    assert counting.asked == []


def test_parameters_without_values(client):
    (error,) = raw.errors(client.simple("SELECT COUNT(*) FROM orders WHERE city = $1"))
    assert error["C"] == "42P02"


def test_without_a_shadow_other_statements_are_refused(client):
    (error,) = raw.errors(client.simple("SELECT 1"))
    assert error["C"] == "0A000"


def test_function_calls_are_refused_and_stray_copy_data_ignored(client):
    client.send(raw.message(b"F", b"anything"))
    assert raw.kinds(client.until()) == "EZ"
    client.send(raw.message(b"d", b"x"), raw.message(b"c"), raw.message(b"f", b"x\0"), raw.query(""))
    assert raw.kinds(client.until()) == "IZ"


def test_terminate_closes_the_connection(client):
    client.send(raw.TERMINATE)
    assert client.rest() == []


# ---------------------------------------------------------------------- transactions


def status(found):
    return found[-1].body


def test_the_status_of_transactions(client, counting):
    assert status(client.simple("BEGIN")) == b"T"
    assert status(client.simple(CITIES)) == b"T"
    assert status(client.simple("SELECT nope FROM orders")) == b"E"
    found = client.simple(CITIES)
    assert [error["C"] for error in raw.errors(found)] == ["25P02"]
    assert status(found) == b"E"
    found = client.simple("COMMIT")
    assert (raw.tags(found), status(found)) == (["ROLLBACK"], b"I")
    assert len(counting.asked) == 2


@pytest.mark.parametrize(
    ("sql", "tag"),
    [("START TRANSACTION ISOLATION LEVEL SERIALIZABLE READ ONLY", "START TRANSACTION"), ("BEGIN WORK", "BEGIN")],
)
def test_beginning_and_ending(client, sql, tag):
    assert raw.tags(client.simple(sql)) == [tag]
    again = client.simple(sql)
    assert (raw.kinds(again), raw.fields(again[0])["C"]) == ("NCZ", "25001")
    assert raw.tags(client.simple("END")) == ["COMMIT"]
    outside = client.simple("COMMIT")
    assert (raw.kinds(outside), raw.fields(outside[0])["S"], raw.fields(outside[0])["C"]) == ("NCZ", "WARNING", "25P01")
    assert raw.tags(client.simple("BEGIN; ROLLBACK AND CHAIN")) == ["BEGIN", "ROLLBACK"]
    assert status(client.simple("ABORT")) == b"I"


def test_savepoints(client):
    assert raw.errors(client.simple("SAVEPOINT a"))[0]["C"] == "25P01"
    client.simple("BEGIN; SAVEPOINT a; SAVEPOINT b")
    assert status(client.simple("SELECT nope FROM orders")) == b"E"
    found = client.simple("ROLLBACK TO a")
    assert (raw.tags(found), status(found)) == (["ROLLBACK"], b"T")
    assert raw.tags(client.simple("RELEASE a")) == ["RELEASE"]
    found = client.simple("ROLLBACK TO b")
    assert (raw.errors(found)[0]["C"], status(found)) == ("3B001", b"E")
    client.simple("ROLLBACK")


# ---------------------------------------------------------------------- settings


def test_settings_are_used_shown_and_reset(client, counting):
    assert raw.tags(client.simple("SET dp.epsilon = 0.2; SET dp.weights TO 'n=1, m=3'; SET dp.confidence = '0.9'"))
    client.simple("SELECT COUNT(*) AS n, SUM(amount) AS m FROM orders")
    wanted = counting.asked[0].terms
    assert (str(wanted.epsilon), str(wanted.confidence)) == ("1/5", "9/10")
    assert {name: str(weight) for name, weight in wanted.weights.items()} == {"n": "1", "m": "3"}
    found = client.simple("SHOW dp.epsilon")
    assert (raw.columns(found)[0][:2], raw.rows(found), raw.tags(found)) == (("dp.epsilon", 25), [[b"0.2"]], ["SHOW"])
    client.simple("RESET dp.epsilon; SET dp.confidence TO DEFAULT")
    assert raw.rows(client.simple("SHOW dp.epsilon; SHOW dp.confidence")) == [[b"0.1"], [b"0.95"]]
    client.simple("DISCARD ALL")
    assert raw.rows(client.simple("SHOW dp.weights")) == [[b"not set"]]


def test_an_error_instead_of_an_epsilon(client, counting):
    client.simple("SET dp.error = 'n=50'")
    client.simple(CITIES)
    assert {name: int(size) for name, size in counting.asked[0].terms.error.items()} == {"n": 50}


@pytest.mark.parametrize(
    ("sql", "sqlstate"),
    [
        ("SET dp.epsilon = 0", "22023"),
        ("SET dp.epsilon = -1", "22023"),
        ("SET dp.epsilon = 'much'", "22023"),
        ("SET dp.epsilon = 'nan'", "22023"),
        ("SET dp.confidence = 1", "22023"),
        ("SET dp.error = 'n=1,n=2'", "22023"),
        ("SET dp.weights = 3", "22023"),
        ("SET dp.delta = 1", "42704"),
        ("SHOW dp.nothing", "42704"),
    ],
)
def test_settings_that_cant_be(client, sql, sqlstate):
    assert [error["C"] for error in raw.errors(client.simple(sql))] == [sqlstate]


def test_settings_go_with_their_transaction(client):
    client.simple("SET dp.epsilon = 0.2; BEGIN; SET dp.epsilon = 0.3; SET LOCAL dp.confidence = 0.8")
    assert raw.rows(client.simple("SHOW dp.epsilon; SHOW dp.confidence")) == [[b"0.3"], [b"0.8"]]
    client.simple("COMMIT")
    assert raw.rows(client.simple("SHOW dp.epsilon; SHOW dp.confidence")) == [[b"0.3"], [b"0.95"]]
    client.simple("BEGIN; SET dp.epsilon = 0.4; ROLLBACK")
    assert raw.rows(client.simple("SHOW dp.epsilon")) == [[b"0.3"]]
    assert raw.kinds(client.simple("SET LOCAL dp.epsilon = 0.5")) == "NCZ"
    assert raw.rows(client.simple("SHOW dp.epsilon")) == [[b"0.3"]]


def test_the_budget_is_shown(client):
    before = raw.rows(client.simple("SHOW dp.budget"))
    client.simple("SELECT COUNT(*) FROM orders WHERE amount > 9")
    after = raw.rows(client.simple("SHOW dp.budget"))
    assert before != after
    assert b"of 50" in after[0][0]


# ---------------------------------------------------------------------- cursors


def test_cursors_read_a_kept_answer(client, counting):
    found = client.simple(f"BEGIN; DECLARE c SCROLL CURSOR FOR {CITIES}")
    assert raw.tags(found) == ["BEGIN", "DECLARE CURSOR"]
    assert counting.asked == []

    def fetch(what):
        found = client.simple(f"FETCH {what} FROM c")
        return [row[0].decode() for row in raw.rows(found)], raw.tags(found)[0]

    assert raw.kinds(client.simple("FETCH NEXT FROM c")) == "NTDCZ"
    assert fetch("2") == (["Bern", "Zug"], "FETCH 2")
    assert fetch("NEXT") == ([], "FETCH 0")
    assert fetch("PRIOR") == (["Zug"], "FETCH 1")
    assert fetch("BACKWARD ALL") == (["Bern", "Basel"], "FETCH 2")
    assert fetch("ALL") == (["Basel", "Bern", "Zug"], "FETCH 3")
    assert fetch("FIRST") == (["Basel"], "FETCH 1")
    assert fetch("LAST") == (["Zug"], "FETCH 1")
    assert fetch("ABSOLUTE 2") == (["Bern"], "FETCH 1")
    assert fetch("RELATIVE -1") == (["Basel"], "FETCH 1")
    assert fetch("0") == (["Basel"], "FETCH 1")
    assert fetch("ABSOLUTE 0") == ([], "FETCH 0")
    assert fetch("BACKWARD 5") == ([], "FETCH 0")
    assert raw.tags(client.simple("MOVE 2 IN c")) == ["MOVE 2"]
    assert fetch("FORWARD 1") == (["Zug"], "FETCH 1")
    assert raw.tags(client.simple("CLOSE c")) == ["CLOSE CURSOR"]
    assert raw.errors(client.simple("FETCH c"))[0]["C"] == "34000"
    assert len(counting.asked) == 1


def test_cursors_end_with_their_transaction_unless_held(client, counting):
    assert raw.errors(client.simple(f"DECLARE c CURSOR FOR {CITIES}"))[0]["C"] == "25P01"
    client.simple(f"BEGIN; DECLARE c CURSOR FOR {CITIES}; DECLARE h BINARY CURSOR WITH HOLD FOR {CITIES}; COMMIT")
    assert raw.errors(client.simple("FETCH c"))[0]["C"] == "34000"
    found = client.simple("FETCH h")
    assert raw.columns(found)[1][3] == 1
    assert len(raw.rows(found)[0][1]) == 8
    assert raw.tags(client.simple("CLOSE ALL")) == ["CLOSE CURSOR ALL"]
    assert raw.errors(client.simple("FETCH h"))[0]["C"] == "34000"
    assert len(counting.asked) == 1


def test_a_cursor_that_cant_be_asked_is_refused_when_it_is_declared(client):
    text = "BEGIN; DECLARE c CURSOR FOR SELECT nope FROM orders"
    (error,) = raw.errors(client.simple(text))
    assert text[int(error["P"]) - 1 :].startswith("nope")
    client.simple("ROLLBACK")
    client.simple(f"BEGIN; DECLARE c CURSOR FOR {CITIES}")
    assert raw.errors(client.simple(f"DECLARE c CURSOR FOR {CITIES}"))[0]["C"] == "42P03"


# ---------------------------------------------------------------------- copies


def copied(found):
    return [each.body for each in found if each.kind == b"d"]


def test_copies_in_every_format_are_one_charge(client, counting, receipts):
    question = CITIES.replace("GROUP", "WHERE amount > 8 GROUP")
    found = client.simple(f"COPY ({question}) TO STDOUT")
    assert raw.kinds(found) == "NHdddcCZ"
    assert found[1].body == b"\0\0\x02\0\0\0\0"
    assert raw.tags(found) == ["COPY 3"]
    lines = [line.split(b"\t") for line in copied(found)]
    assert [line[0] for line in lines] == [b"Basel", b"Bern", b"Zug"]
    csv = b"".join(copied(client.simple(f"COPY ({question}) TO STDOUT WITH (FORMAT csv, HEADER)")))
    assert csv == b"city,n\n" + b"".join(b",".join(line) for line in lines)
    found = client.simple(f"COPY ({question}) TO STDOUT (FORMAT binary)")
    content = b"".join(copied(found))
    assert content[:19] == b"PGCOPY\n\xff\r\n\0" + bytes(8)
    assert content[-2:] == b"\xff\xff"
    assert content[19:34] == b"\0\x02\0\0\0\x05Basel\0\0\0\x08"
    assert struct.unpack("!q", content[34:42])[0] == int(lines[0][1])
    assert len(counting.asked) == 3
    assert receipts() == 1


def test_a_copy_that_cant_be_written_isnt_asked_for(client, counting):
    found = client.simple(f"COPY ({CITIES}) TO STDOUT (FORMAT text, DELIMITER 'ab')")
    assert raw.kinds(found) == "EZ"
    assert counting.asked == []
