"""ADBC: answers come as Arrow through COPY in the binary format."""

import adbc_driver_postgresql.dbapi as adbc
import pyarrow as pa
import pytest


@pytest.fixture
def connection(served):
    with adbc.connect(served.uri) as opened:
        yield opened


def test_an_answer_is_an_arrow_table(served, connection):
    sql = "SELECT city, COUNT(*) AS n, SUM(amount) AS total FROM orders WHERE amount < 601 GROUP BY city ORDER BY city"
    with served.charging(1), connection.cursor() as cursor:
        cursor.execute(sql)
        table = cursor.fetch_arrow_table()
        assert table.schema == pa.schema([("city", pa.string()), ("n", pa.int64()), ("total", pa.float64())])
        assert table["city"].to_pylist() == ["Basel", "Bern", "Zug"]
        assert [tuple(row.values()) for row in table.to_pylist()] == served.answer(sql)
        cursor.execute(sql)
        assert cursor.fetch_arrow_table() == table


def test_parameters(served, connection):
    with served.charging(1), connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) AS n FROM orders WHERE amount < $1 AND city = $2", (602.5, "Zug"))
        ((n,),) = cursor.fetchall()
        assert isinstance(n, int)


def test_the_catalogue_is_free(served, connection):
    with served.free():
        schema = connection.adbc_get_table_schema("orders")
        assert schema.names == ["customer", "city", "product", "day", "amount"]
        assert schema.field("day").type == pa.date32()
        found = connection.adbc_get_objects(depth="tables", catalog_filter="shop", db_schema_filter="public")
        (catalogue,) = found.read_all().to_pylist()
        tables = [table["table_name"] for table in catalogue["catalog_db_schemas"][0]["db_schema_tables"]]
        assert sorted(tables) == ["cities", "orders"]


def test_refusals(served, connection):
    with served.free(), connection.cursor() as cursor, pytest.raises(adbc.Error):
        cursor.execute("SELECT * FROM orders")
