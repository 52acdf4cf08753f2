"""The extended protocol, message by message: describing is free, executing asks once, errors skip to Sync."""

import struct

import pytest

from support import raw_client as raw

CITIES = "SELECT city, COUNT(*) AS n FROM orders GROUP BY city ORDER BY city"
FILTERED = (
    "SELECT city, COUNT(*) AS n, SUM(amount) AS total FROM orders "
    "WHERE amount > $1 AND day >= $2 AND city <> $3 GROUP BY city ORDER BY city LIMIT $4"
)
TEXTS = [b"10.5", b"2025-02-01", b"Zug", b"1"]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with raw.shop_served(tmp_path_factory.mktemp("extended"), most_names=20) as found:
        yield found


@pytest.fixture
def client(served):
    with raw.RawClient(served.port) as connection:
        yield connection.sign_in("ana", served.tokens["ana"])


def roundtrip(client, *parts):
    client.send(*parts, raw.SYNC)
    return client.until()


def test_describing_never_asks_and_executing_asks_once(client, counting):
    found = roundtrip(client, raw.parse(CITIES, "s"), raw.describe(b"S", "s"))
    assert raw.kinds(found) == "1tTZ"
    assert raw.parameter_types(found) == []
    assert raw.columns(found) == [("city", 25, -1, 0), ("n", 20, 8, 0)]
    found = roundtrip(client, raw.bind(name="s", results=(0, 1)), raw.describe(b"P"))
    assert raw.kinds(found) == "2TZ"
    assert raw.columns(found) == [("city", 25, -1, 0), ("n", 20, 8, 1)]
    assert counting.asked == []
    assert len(counting.priced) <= 1
    found = roundtrip(client, raw.bind(name="s", results=(0, 1)), raw.execute(), raw.execute(), raw.execute())
    assert raw.kinds(found) == "2NDDDCCCZ"
    assert raw.tags(found) == ["SELECT 3", "SELECT 0", "SELECT 0"]
    assert all(len(row[1]) == 8 for row in raw.rows(found))
    assert len(counting.asked) == 1


def test_rows_in_parts_ask_once(client, counting):
    roundtrip(client, raw.parse("BEGIN"), raw.bind(), raw.execute())
    found = roundtrip(client, raw.parse(CITIES), raw.bind(portal="p"), raw.execute("p", 2))
    assert raw.kinds(found) == "12NDDsZ"
    found = roundtrip(client, raw.execute("p", 1))
    assert raw.kinds(found) == "DsZ"
    found = roundtrip(client, raw.execute("p", 1))
    assert (raw.kinds(found), raw.tags(found)) == ("CZ", ["SELECT 0"])
    found = roundtrip(client, raw.close(b"P", "p"), raw.close(b"P", "p"))
    assert raw.kinds(found) == "33Z"
    assert raw.errors(roundtrip(client, raw.execute("p")))[0]["C"] == "34000"
    assert len(counting.asked) == 1


def test_portals_end_with_their_transaction(client):
    found = roundtrip(client, raw.parse(CITIES), raw.bind(portal="p"), raw.execute("p", 1))
    assert raw.kinds(found) == "12NDsZ"
    assert raw.errors(roundtrip(client, raw.execute("p", 1)))[0]["C"] == "34000"


def test_parameters_in_text_and_binary_are_the_same_question(client, served, counting):
    found = roundtrip(client, raw.parse(FILTERED, "f"), raw.describe(b"S", "f"))
    assert raw.parameter_types(found) == [701, 1082, 25, 20]
    assert raw.columns(found)[2] == ("total", 701, 8, 0)
    before = len(served.curator.answers("ana", count=500).items)
    first = roundtrip(client, raw.bind(TEXTS, name="f"), raw.execute())
    binary = [struct.pack("!d", 10.5), struct.pack("!i", 9163), b"Zug", struct.pack("!q", 1)]
    again = roundtrip(client, raw.bind(binary, name="f", formats=(1,)), raw.execute())
    mixed = roundtrip(
        client, raw.bind([TEXTS[0], binary[1], TEXTS[2], binary[3]], name="f", formats=(0, 1, 0, 1)), raw.execute()
    )
    assert raw.rows(first) == raw.rows(again) == raw.rows(mixed)
    assert len(raw.rows(first)) == 1
    assert counting.asked[0].sql == counting.asked[1].sql
    assert "DATE '2025-02-01'" in counting.asked[0].sql
    assert len(served.curator.answers("ana", count=500).items) == before + 1


def test_declared_types_are_kept(client):
    sql = "SELECT COUNT(*) AS n FROM orders WHERE amount > $1 AND customer = $2"
    found = roundtrip(client, raw.parse(sql, types=(1700, 0)), raw.describe(b"S"))
    assert raw.parameter_types(found) == [1700, 20]


@pytest.mark.parametrize("step", [1, 5])
def test_a_pipeline_may_come_in_any_pieces(served, step):
    with raw.RawClient(served.port, step=step) as connection:
        connection.sign_in("ana", served.tokens["ana"])
        found = roundtrip(connection, raw.parse(FILTERED), raw.bind(TEXTS), raw.describe(b"P"), raw.execute())
        assert raw.kinds(found) == "12TNDCZ"


def test_an_error_skips_to_sync_and_is_sent_at_once(client, counting):
    client.send(raw.parse("SELECT nope FROM orders"), raw.bind(), raw.describe(b"P"))
    found = client.until(b"E")
    assert raw.kinds(found) == "E"
    assert raw.errors(found)[0]["P"] == "8"
    client.send(raw.execute(), raw.parse(CITIES), raw.query(CITIES), raw.bind(), raw.execute(), raw.SYNC)
    assert raw.kinds(client.until()) == "Z"
    assert counting.asked == []
    assert raw.kinds(roundtrip(client, raw.parse(CITIES), raw.bind(), raw.execute())) == "12NDDDCZ"


def test_places_of_errors_with_values_in_front_of_them(client):
    sql = "SELECT COUNT(*) FROM orders\nWHERE city IN ($1, $1) AND nope = $2"
    found = roundtrip(client, raw.parse(sql), raw.bind([b"a very long value" * 9, b"1"]), raw.execute())
    assert raw.kinds(found) == "EZ"
    assert sql[int(raw.errors(found)[0]["P"]) - 1 :].startswith("nope")


def test_what_is_wrong_with_the_values_alone_is_found_when_they_are_there(client, counting):
    sql = "SELECT COUNT(*) AS n FROM orders WHERE day > $1"
    found = roundtrip(client, raw.parse(sql, types=(25,)), raw.bind([b"no date"]), raw.execute())
    assert raw.kinds(found) == "12EZ"
    found = roundtrip(client, raw.parse(sql, types=(25,)), raw.bind([b"2025-02-03"]), raw.describe(b"P"), raw.execute())
    assert raw.kinds(found) == "12TNDCZ"


@pytest.mark.parametrize(
    ("sql", "values"),
    [
        (
            "SELECT COUNT(*) AS n FROM orders WHERE date_trunc($1, day) = $2 AND city = $3",
            [b"week", b"2025-02-03", b"Zug"],
        ),
        ("SELECT APPROX_QUANTILE(amount, $1) AS q FROM orders WHERE amount > $2", [b"0.9", b"1"]),
        ("SELECT SUM(amount, contribution_bounds_per_row => ($1, $2)) AS s FROM orders", [b"2", b"20"]),
        ("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = $1) COUNT(*) AS n FROM orders LIMIT $2", [b"0.3", b"1"]),
        ("SELECT COUNT(*) AS n FROM orders WHERE left(product, $1) = $2", [b"3", b"art"]),
    ],
)
def test_questions_can_be_described_whatever_their_values_are_for(client, counting, sql, values):
    found = roundtrip(client, raw.parse(sql), raw.describe(b"S"))
    assert raw.kinds(found) == "1tTZ"
    assert counting.asked == []
    found = roundtrip(client, raw.bind(values), raw.execute())
    assert raw.kinds(found) == "2NDCZ"


def test_a_question_that_no_made_up_value_fits_can_still_be_asked(client, counting):
    """A part of a date and a day, both declared as text: nothing that is made up is both."""
    sql = "SELECT COUNT(*) AS n FROM orders WHERE date_trunc($1, day) > $2"
    assert raw.kinds(roundtrip(client, raw.parse(sql, types=(25, 25)), raw.describe(b"S"))) == "1EZ"
    found = roundtrip(client, raw.bind([b"week", b"2025-02-03"]), raw.describe(b"P"), raw.execute())
    assert raw.kinds(found) == "2TNDCZ"
    assert len(counting.asked) == 1


def test_flush_sends_without_sync(client):
    client.send(raw.parse(CITIES), raw.describe(b"S"), raw.FLUSH)
    assert raw.kinds([client.read(), client.read(), client.read()]) == "1tT"
    client.send(raw.SYNC)
    assert raw.kinds(client.until()) == "Z"


@pytest.mark.parametrize(
    ("parts", "sqlstate"),
    [
        ([raw.bind(name="none")], "26000"),
        ([raw.execute("none")], "34000"),
        ([raw.describe(b"S", "none")], "26000"),
        ([raw.describe(b"P", "none")], "34000"),
        ([raw.parse("BEGIN; COMMIT")], "42601"),
        ([raw.parse("SELECT COUNT(*) FROM orders WHERE city = $1"), raw.bind()], "08P01"),
        ([raw.parse("SELECT COUNT(*) FROM orders WHERE amount > $1"), raw.bind([b"much"])], "22P02"),
        ([raw.parse("SELECT COUNT(*) FROM orders WHERE amount > $1"), raw.bind([b"NaN"])], "22003"),
        ([raw.parse("SELECT COUNT(*) FROM orders WHERE customer IN ($1)", types=(1016,))], "0A000"),
        ([raw.parse("SELECT COUNT(*) AS $1 FROM orders")], "42601"),
        ([raw.parse("SELECT COUNT(*) FROM orders WHERE AND $1")], "42601"),
        ([raw.parse(CITIES), raw.bind(results=(0, 0, 0)), raw.execute()], "08P01"),
        ([raw.parse(CITIES, "twice"), raw.parse(CITIES, "twice")], "42P05"),
        ([raw.parse("SELECT 1")], "0A000"),
        ([raw.parse("FETCH c"), raw.bind(), raw.execute()], "34000"),
    ],
)
def test_errors_of_the_extended_protocol(client, counting, parts, sqlstate):
    found = roundtrip(client, *parts)
    assert [error["C"] for error in raw.errors(found)] == [sqlstate]
    assert raw.kinds(found).endswith("EZ")
    assert raw.kinds(roundtrip(client)) == "Z"


def test_named_portals_cant_be_replaced_and_the_unnamed_can(client):
    roundtrip(client, raw.parse("BEGIN"), raw.bind(), raw.execute())
    found = roundtrip(client, raw.parse(CITIES), raw.bind(), raw.bind(), raw.bind(portal="p"), raw.bind(portal="p"))
    assert raw.kinds(found) == "1222EZ"
    assert raw.errors(found)[0]["C"] == "42P03"
    assert found[-1].body == b"E"
    assert raw.errors(roundtrip(client, raw.parse(CITIES)))[0]["C"] == "25P02"
    found = roundtrip(client, raw.parse("ROLLBACK"), raw.bind(), raw.execute())
    assert (raw.tags(found), found[-1].body) == (["ROLLBACK"], b"I")


def test_the_number_of_statements_is_limited(client):
    found = roundtrip(client, *(raw.parse(CITIES, f"s{number}") for number in range(30)))
    assert raw.kinds(found) == "1" * 20 + "EZ"
    assert raw.errors(found)[0]["C"] == "53400"
    assert raw.tags(client.simple("DEALLOCATE s3; DEALLOCATE ALL")) == ["DEALLOCATE", "DEALLOCATE ALL"]
    assert raw.errors(client.simple("DEALLOCATE s3"))[0]["C"] == "26000"
    assert (
        raw.kinds(roundtrip(client, raw.parse(CITIES, "s1"), raw.close(b"S", "s1"), raw.parse(CITIES, "s1"))) == "131Z"
    )


def test_what_isnt_a_question_runs_here_too(client):
    found = roundtrip(client, raw.parse("SHOW dp.confidence"), raw.bind(), raw.describe(b"P"), raw.execute())
    assert (raw.kinds(found), raw.rows(found)) == ("12TDCZ", [[b"0.95"]])
    found = roundtrip(client, raw.parse("SET dp.epsilon = 0.3"), raw.describe(b"S"), raw.bind(), raw.execute())
    assert raw.kinds(found) == "1tn2CZ"
    found = roundtrip(client, raw.parse("SET dp.epsilon = 0.3"), raw.bind(), raw.execute(), raw.execute())
    assert raw.errors(found)[0]["C"] == "55000"
    found = roundtrip(client, raw.parse(""), raw.bind(), raw.describe(b"P"), raw.execute())
    assert raw.kinds(found) == "12nIZ"


def test_cursors_with_parameters(client, counting):
    question = "SELECT city, COUNT(*) AS n FROM orders WHERE amount < $1 GROUP BY city ORDER BY city"
    roundtrip(client, raw.parse("BEGIN"), raw.bind(), raw.execute())
    found = roundtrip(client, raw.parse(f"DECLARE c CURSOR FOR {question}"), raw.describe(b"S"))
    assert raw.kinds(found) == "1tnZ"
    assert raw.parameter_types(found) == [701]
    found = roundtrip(client, raw.bind([b"20"]), raw.describe(b"P"), raw.execute())
    assert (raw.kinds(found), raw.tags(found)) == ("2nCZ", ["DECLARE CURSOR"])
    assert raw.columns(roundtrip(client, raw.describe(b"P", "c")))[1][:2] == ("n", 20)
    assert counting.asked == []
    found = roundtrip(client, raw.parse("FETCH 2 FROM c"), raw.bind(results=(1,)), raw.describe(b"P"), raw.execute())
    assert raw.kinds(found) == "12TNDDCZ"
    assert len(raw.rows(found)[0][1]) == 8
    found = roundtrip(client, raw.execute("c"))
    assert (raw.kinds(found), raw.tags(found)) == ("DCZ", ["SELECT 1"])
    assert len(counting.asked) == 1


def test_a_copy_by_the_extended_protocol(client, counting):
    sql = f"COPY ({CITIES}) TO STDOUT"
    found = roundtrip(client, raw.parse(sql), raw.bind(), raw.describe(b"P"), raw.execute())
    assert raw.kinds(found) == "12nNHdddcCZ"
    assert raw.tags(found) == ["COPY 3"]
    assert len(counting.asked) == 1


def test_described_columns_are_priced_once_for_all(served, counting):
    question = "SELECT city, COUNT(*) AS how_many FROM orders GROUP BY city"
    for _ in range(3):
        with raw.RawClient(served.port) as connection:
            connection.sign_in("bob", served.tokens["bob"])
            found = roundtrip(connection, raw.parse(question), raw.bind(), raw.describe(b"P"))
            assert raw.columns(found)[1][0] == "how_many"
    assert len(counting.priced) == 1


@pytest.mark.parametrize(
    "content",
    [
        raw.message(b"P", b"no end"),
        raw.message(b"B", b"\0"),
        raw.message(b"D", b"X\0"),
        raw.message(b"E", b"\0"),
        raw.message(b"S", b"more"),
        raw.message(b"y", b""),
        raw.message(b"p", b"again"),
        b"Q" + struct.pack("!i", 3),
        b"Q" + struct.pack("!i", -1),
        b"Q" + struct.pack("!i", 2**31 - 1),
    ],
)
def test_messages_that_break_the_protocol_end_the_connection(client, content):
    client.send(content)
    (found,) = client.rest()
    assert (raw.fields(found)["S"], raw.fields(found)["C"]) == ("FATAL", "08P01")
