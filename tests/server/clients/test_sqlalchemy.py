"""SQLAlchemy 2 and pandas: connecting, looking at the schema, asking through Core and read_sql."""

import pandas as pd
import pytest
import sqlalchemy as sa

DRIVERS = ["psycopg", "pg8000"]


@pytest.fixture(params=DRIVERS)
def engine(served, request):
    made = sa.create_engine(served.uri.replace("postgresql://", f"postgresql+{request.param}://"))
    yield made
    made.dispose()


def test_the_schema_is_free_to_look_at(served, engine):
    with served.free():
        inspector = sa.inspect(engine)
        assert inspector.get_schema_names() == ["dp", "information_schema", "public"]
        assert sorted(inspector.get_table_names()) == ["cities", "orders"]
        assert sorted(inspector.get_view_names(schema="dp")) == ["budget", "columns", "ledger"]
        columns = {column["name"]: column for column in inspector.get_columns("orders")}
        assert list(columns) == ["customer", "city", "product", "day", "amount"]
        assert isinstance(columns["amount"]["type"], sa.Double)
        assert columns["amount"]["comment"] == "between 0 and 50; in steps of 0.5"
        assert inspector.get_pk_constraint("orders")["constrained_columns"] == []
        assert inspector.get_indexes("orders") == []
        assert inspector.has_table("orders")
        assert inspector.get_table_comment("orders")["text"].startswith("private table")


def test_a_reflected_table_can_be_asked_about(served, engine):
    number = 501.5 if engine.driver == "psycopg" else 502.5
    with served.charging(1):
        orders = sa.Table("orders", sa.MetaData(), autoload_with=engine)
        wanted = (
            sa.select(orders.c.city, sa.func.count().label("n"), sa.func.avg(orders.c.amount).label("mean"))
            .where(orders.c.amount < number, orders.c.city.in_(["Bern", "Zug"]))
            .group_by(orders.c.city)
            .order_by(orders.c.city)
        )
        with engine.connect() as connection:
            rows = connection.execute(wanted).all()
            assert connection.execute(wanted).all() == rows
        assert {row.city for row in rows} >= {"Bern", "Zug"}
        assert all(isinstance(row.n, int) for row in rows)


def test_a_table_in_a_named_schema_is_the_same_table(served, engine):
    number = 503.5 if engine.driver == "psycopg" else 504.5
    orders = sa.Table("orders", sa.MetaData(schema="public"), sa.Column("amount", sa.Double))
    with served.charging(1), engine.connect() as connection:
        wanted = sa.select(sa.func.count().label("n")).select_from(orders).where(orders.c.amount < number)
        assert isinstance(connection.execute(wanted).scalar_one(), int)


def test_rows_are_refused_for_free(served, engine):
    orders = sa.table("orders", sa.column("city"))
    with served.free(), engine.connect() as connection, pytest.raises(sa.exc.DBAPIError):
        connection.execute(sa.select(orders).limit(100))


def test_pandas_reads_an_answer(served, engine, question):
    number = 505 if engine.driver == "psycopg" else 506
    with served.charging(1):
        frame = pd.read_sql(sa.text(question(number)), engine)
        assert list(frame.columns) == ["city", "n"]
        assert list(frame["city"]) == ["Basel", "Bern", "Zug"]
        assert frame["n"].dtype == "int64"
        assert list(frame.itertuples(index=False, name=None)) == served.answer(question(number))
        chunks = list(pd.read_sql(sa.text(question(number)), engine, chunksize=2))
        assert [len(chunk) for chunk in chunks] == [2, 1]
