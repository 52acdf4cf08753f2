"""pg8000: a driver in plain Python, with a native and a DB-API side."""

import pg8000.dbapi
import pg8000.native
import pytest

CITIES = ["Basel", "Bern", "Zug"]


@pytest.fixture
def connection(served):
    opened = pg8000.native.Connection(**served.settings)
    yield opened
    opened.close()


def test_questions_and_parameters(served, connection, question):
    with served.charging(2):
        rows = connection.run(question(401))
        assert [row[0] for row in rows] == CITIES
        assert [tuple(row) for row in rows] == served.answer(question(401))
        assert connection.run(question(401)) == rows
        assert [column["name"] for column in connection.columns] == ["city", "n"]
        counted = connection.run(
            "SELECT COUNT(*) AS n FROM orders WHERE city = :city AND amount < :most", city="Zug", most=41.5
        )
        assert isinstance(counted[0][0], int)


def test_prepared(served, connection):
    with served.charging(2):
        statement = connection.prepare("SELECT COUNT(*) AS n FROM orders WHERE amount < :most")
        first = statement.run(most=42.5)
        assert statement.run(most=42.5) == first
        assert len(statement.run(most=43.5)) == 1
        statement.close()


def test_dbapi_transactions_and_errors(served, question):
    with served.charging(1):
        opened = pg8000.dbapi.connect(**served.settings)
        cursor = opened.cursor()
        cursor.execute(question(402))
        assert [row[0] for row in cursor.fetchall()] == CITIES
        opened.commit()
        with pytest.raises(pg8000.dbapi.DatabaseError) as refused:
            cursor.execute("SELECT * FROM orders LIMIT 10")
        assert refused.value.args[0]["H"]
        opened.rollback()
        cursor.execute("SELECT relname FROM pg_class WHERE oid = %s::regclass", ("orders",))
        assert [row[0] for row in cursor.fetchall()] == ["orders"]
        opened.close()
