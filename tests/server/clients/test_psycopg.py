"""psycopg 3: parameters, text and binary, COPY, named cursors, pipelines, prepared statements."""

import datetime as dt

import psycopg
import pytest
from psycopg.rows import dict_row

CITIES = ["Basel", "Bern", "Zug"]


@pytest.fixture
def connection(served):
    with psycopg.connect(served.uri) as opened:
        yield opened


def test_connecting_costs_nothing_and_tells_who_one_is(served):
    with served.free(), psycopg.connect(served.uri) as connection:
        assert connection.execute("SELECT current_user, current_database()").fetchone() == ("ana", "shop")
        assert connection.info.server_version >= 160000
        assert connection.info.encoding == "utf-8"


@pytest.mark.parametrize("binary", [False, True])
def test_a_question_is_charged_once_however_often_it_is_read(served, connection, question, binary):
    with served.charging(1):
        cursor = connection.execute(question(101 + binary), binary=binary)
        rows = cursor.fetchall()
        assert [row[0] for row in rows] == CITIES
        assert rows == served.answer(question(101 + binary))
        assert [column.name for column in cursor.description] == ["city", "n"]
    with served.free():
        again = connection.execute(question(101 + binary), binary=not binary).fetchall()
        assert again == rows


@pytest.mark.parametrize("binary", [False, True])
def test_parameters(served, connection, binary):
    sql = "SELECT COUNT(*) AS n FROM orders WHERE city = %s AND amount <= %s AND day < %s AND customer <> %s"
    values = ("Bern", 20.5 + binary, dt.date(2026, 1, 1), 7)
    with served.charging(1):
        ((n,),) = connection.execute(sql, values, binary=binary).fetchall()
        assert isinstance(n, int)
    with served.free():
        assert connection.execute(sql, values, prepare=True).fetchone() == (n,)
        assert connection.execute(sql, values, prepare=True).fetchone() == (n,)


def test_values_in_the_text_are_values_and_never_sql(served, connection):
    with served.charging(1):
        sql = "SELECT COUNT(*) AS n FROM orders WHERE product = %s"
        connection.execute(sql, ("x' OR 1=1 --",)).fetchall()


def test_copy_in_three_formats(served, connection, question):
    with served.charging(1), connection.cursor() as cursor:
        with cursor.copy(f"COPY ({question(103)}) TO STDOUT") as copy:
            copy.set_types(["text", "int8"])
            rows = list(copy.rows())
        assert rows == served.answer(question(103))
        with cursor.copy(f"COPY ({question(103)}) TO STDOUT (FORMAT binary)") as copy:
            copy.set_types(["text", "int8"])
            assert list(copy.rows()) == rows
        with cursor.copy(f"COPY ({question(103)}) TO STDOUT CSV HEADER") as copy:
            text = b"".join(bytes(part) for part in copy).decode()
        assert text == "city,n\n" + "".join(f"{city},{n}\n" for city, n in rows)


def test_a_named_cursor(served, connection, question):
    with served.charging(1), connection.cursor(name="mine", row_factory=dict_row) as cursor:
        cursor.itersize = 2
        cursor.execute(question(104))
        assert [row["city"] for row in cursor] == CITIES
    connection.commit()


def test_a_cursor_of_the_catalogue_is_the_shadows(served, connection):
    with served.free(), connection.cursor(name="mine") as cursor:
        cursor.execute("SELECT relname FROM pg_class WHERE relname IN ('orders', 'cities') ORDER BY 1")
        assert cursor.fetchall() == [("cities",), ("orders",)]


def test_a_pipeline_of_questions_and_catalogue(served, connection, question):
    with served.charging(2), connection.pipeline():
        first = connection.execute(question(105))
        middle = connection.execute("SELECT count(*) FROM pg_class WHERE relname = %s", ("orders",))
        second = connection.execute(question(106))
        assert len(first.fetchall()) == 3
        assert middle.fetchone() == (1,)
        assert len(second.fetchall()) == 3


def test_executemany_asks_each_once(served, connection):
    with served.charging(3), connection.cursor() as cursor:
        cursor.executemany(
            "SELECT COUNT(*) AS n FROM orders WHERE amount < %s", [(11.5,), (12.5,), (13.5,)], returning=True
        )
        found = 0
        while True:
            found += len(cursor.fetchall())
            if not cursor.nextset():
                break
        assert found == 3


def test_refusals_keep_code_place_and_hint(served, connection):
    with served.free():
        with pytest.raises(psycopg.Error) as refused:
            connection.execute("SELECT *\nFROM orders LIMIT 100")
        connection.rollback()
        assert refused.value.sqlstate == "0A000"
        assert refused.value.diag.message_hint
        assert refused.value.diag.statement_position
        with pytest.raises(psycopg.errors.UndefinedColumn) as unknown:
            connection.execute("SELECT COUNT(nonsense) AS n FROM orders")
        connection.rollback()
        assert unknown.value.diag.statement_position == "14"
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            connection.execute("DELETE FROM orders")


def test_transactions_are_kept(served, connection, question):
    with served.charging(1):
        with connection.transaction():
            connection.execute(question(107))
        with pytest.raises(psycopg.Error), connection.transaction():
            connection.execute("SELECT nonsense")
        with connection.transaction(), connection.transaction():
            assert connection.execute("SELECT 1").fetchone() == (1,)
            connection.execute(question(107))
    assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


def test_a_failed_question_fails_the_transaction(served, connection):
    with served.free():
        with pytest.raises(psycopg.Error):
            connection.execute("SELECT * FROM orders")
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.INERROR
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            connection.execute("SELECT 1")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            connection.execute("SELECT COUNT(*) AS n FROM orders")


def test_settings_price_and_views(served, question):
    with psycopg.connect(served.uri, autocommit=True) as connection:
        notices = []
        connection.add_notice_handler(lambda notice: notices.append(notice.message_primary))
        with served.free():
            connection.execute("SET dp.epsilon = 0.25")
            assert connection.execute("SHOW dp.epsilon").fetchone() == ("0.25",)
            explained = connection.execute(f"EXPLAIN PRIVACY {question(108)}").fetchall()
            assert explained
            assert connection.execute("SELECT count(*) FROM dp.budget").fetchone() == (1,)
            keys = 'SELECT keys FROM dp.columns WHERE "table" = %s AND "column" = \'city\''
            assert connection.execute(keys, ("orders",)).fetchone() == (CITIES,)
        spent = "SELECT epsilon_spent FROM dp.budget"
        (before,) = connection.execute(spent).fetchone()
        with served.charging(1):
            connection.execute(question(108))
        assert notices
        (after,) = connection.execute(spent).fetchone()
        assert after > before
        newest = connection.execute("SELECT sql FROM dp.ledger ORDER BY at DESC LIMIT 1").fetchone()
        assert newest == (question(108),)


def test_probes_of_columns_are_free(served, connection, question):
    with served.free():
        for sql in ("SELECT * FROM orders LIMIT 0", "SELECT * FROM public.orders WHERE 1=0"):
            cursor = connection.execute(sql)
            assert [column.name for column in cursor.description] == ["customer", "city", "product", "day", "amount"]
            assert cursor.fetchall() == []
        for sql in (f"SELECT * FROM ({question(109)}) AS t WHERE 1=0", f"{question(109)} LIMIT 0"):
            cursor = connection.execute(sql)
            assert [(column.name, column.type_code) for column in cursor.description] == [("city", 25), ("n", 20)]
            assert cursor.fetchall() == []


def test_what_odbc_sends_for_a_bi_tool(served):
    """Several statements in one simple query: a cursor that is held, read in parts and closed."""
    question = (
        'SELECT "orders"."city" AS "city", SUM("orders"."amount") AS "sum:amount:ok" FROM "public"."orders" "orders" '
        'WHERE "orders"."amount" < 111.5 GROUP BY 1 ORDER BY 1'
    )
    with served.charging(1), psycopg.connect(served.uri, autocommit=True) as connection:
        wire = connection.pgconn
        begun = wire.exec_(f'BEGIN;declare "SQL_CUR1" cursor with hold for {question};fetch 2 in "SQL_CUR1"'.encode())
        assert (begun.ntuples, begun.fname(1)) == (2, b"sum:amount:ok")
        assert wire.exec_(b"COMMIT").command_status == b"COMMIT"
        assert wire.exec_(b'fetch 2 in "SQL_CUR1"').ntuples == 1
        assert wire.exec_(b'close "SQL_CUR1"').command_status == b"CLOSE CURSOR"
        # the same again, as a tool does that looks at the columns first
        probe = wire.exec_(f"SELECT * FROM ({question}) AS probe LIMIT 0".encode())
        assert (probe.ntuples, probe.fname(0)) == (0, b"city")


def test_a_token_for_prices_alone_asks_nothing(served, question):
    uri = served.uri.replace(f"ana:{served.password}", f"looker:{served.tokens['looker']}")
    with served.free(), psycopg.connect(uri, autocommit=True) as connection:
        assert connection.execute(f"EXPLAIN PRIVACY {question(110)}").fetchall()
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(question(110))


def test_wrong_tokens_dont_get_in(served):
    for name, password in (("ana", "wrong"), ("nobody", served.password), ("bob", served.password)):
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(f"postgresql://{name}:{password}@127.0.0.1:{served.port}/shop")


@pytest.mark.parametrize("prepare", [False, True])
@pytest.mark.parametrize("binary", [False, True])
def test_a_value_that_is_missing(served, connection, prepare, binary):
    sql = f"SELECT COALESCE(SUM(1), %s) AS x FROM orders WHERE amount < {112 + 2 * prepare + binary}.5"
    with served.charging(1):
        for _ in range(2):
            row = connection.execute(sql, (None,), prepare=prepare, binary=binary).fetchone()
            assert [row] == served.answer(sql.replace("%s", "NULL"))


def test_a_value_that_makes_another_type(served, connection):
    sql = "SELECT SUM(CASE WHEN amount < 116.5 THEN 1 ELSE %s END) AS x FROM orders"
    with served.charging(2):
        for value in (9 * 10**18, 3):
            row = connection.execute(sql, (value,), prepare=False).fetchone()
            assert [row] == served.answer(sql.replace("%s", str(value)))


def test_the_isolation_level_holds_for_the_catalogue(served):
    with psycopg.connect(served.uri) as connection:
        connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        assert connection.execute("SHOW transaction_isolation").fetchone() == ("serializable",)
