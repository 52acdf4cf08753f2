"""A first real client: psycopg 3, without a shadow; its habits charge nothing twice."""

import datetime as dt

import pytest

from support import raw_client as raw

psycopg = pytest.importorskip("psycopg")


CITIES = "SELECT city, COUNT(*) AS n FROM orders GROUP BY city ORDER BY city"
FILTERED = "SELECT COUNT(*) AS n FROM orders WHERE amount > %s AND city = %s AND day >= %s"
VALUES = (10.5, "Bern", dt.date(2025, 3, 1))


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with raw.shop_served(tmp_path_factory.mktemp("psycopg")) as found:
        yield found


@pytest.fixture
def connection(served):
    settings = {"host": "127.0.0.1", "port": served.port, "user": "ana", "password": served.tokens["ana"]}
    with psycopg.connect(**settings, dbname="shop", autocommit=True) as made:
        yield made


@pytest.fixture
def receipts(served):
    before = len(served.curator.answers("ana", count=500).items)
    return lambda: len(served.curator.answers("ana", count=500).items) - before


def test_every_way_of_asking_is_one_charge(connection, receipts):
    expected = connection.execute(CITIES).fetchall()
    assert [city for city, _ in expected] == ["Basel", "Bern", "Zug"]
    assert connection.execute(CITIES, binary=True).fetchall() == expected
    assert connection.execute(CITIES, prepare=True).fetchall() == expected
    assert psycopg.ClientCursor(connection).execute(CITIES).fetchall() == expected
    with connection.transaction(), connection.cursor("named") as cursor:
        cursor.itersize = 2
        assert list(cursor.execute(CITIES)) == expected
    with connection.cursor().copy(f"COPY ({CITIES}) TO STDOUT") as copy:
        copy.set_types(["text", "int8"])
        assert list(copy.rows()) == expected
    with connection.cursor().copy(f"COPY ({CITIES}) TO STDOUT (FORMAT binary)") as copy:
        copy.set_types(["text", "int8"])
        assert list(copy.rows()) == expected
    with connection.pipeline():
        assert [connection.execute(CITIES).fetchall() for _ in range(3)] == [expected] * 3
    assert receipts() == 1


def test_parameters_are_one_question_however_they_are_sent(connection, receipts):
    expected = connection.execute(FILTERED, VALUES).fetchone()
    assert connection.execute(FILTERED.replace("%s", "%b"), VALUES).fetchone() == expected
    assert connection.execute(FILTERED.replace("%s", "%t"), VALUES).fetchone() == expected
    for _ in range(7):
        assert connection.execute(FILTERED, VALUES).fetchone() == expected
    assert receipts() == 1


def test_types_of_results(connection):
    sql = "SELECT day, COUNT(*) > 0 AS b, AVG(amount) AS a, COUNT(*) AS n FROM orders WHERE day = %s GROUP BY day"
    with connection.cursor(binary=True) as cursor:
        cursor.execute("SET dp.epsilon = 1")
        cursor.execute("SELECT SUM(amount) AS s, COUNT(*) AS n, COUNT(*) > 0 AS b FROM orders")
        assert [type(value) for value in cursor.fetchone()] == [float, int, bool]
        with pytest.raises(psycopg.Error):
            cursor.execute(sql, ("not a date",))


def test_notices_and_errors(connection):
    heard = []
    connection.add_notice_handler(lambda told: heard.append((told.severity, told.message_primary)))
    connection.execute("SELECT COUNT(*) FROM orders WHERE amount > 12")
    ((severity, text),) = heard
    assert severity == "NOTICE"
    assert text.startswith("cost: ε = 0.1")
    with pytest.raises(psycopg.errors.UndefinedColumn) as caught:
        connection.execute("SELECT COUNT(*) FROM orders WHERE nope = %s", (1,))
    assert int(caught.value.diag.statement_position) == 35
    assert caught.value.diag.message_hint.startswith("Columns are")


def test_a_failed_transaction(connection):
    with pytest.raises(psycopg.Error), connection.transaction():
        connection.execute("SELECT * FROM orders")
    assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    assert len(connection.execute(CITIES).fetchall()) == 3
