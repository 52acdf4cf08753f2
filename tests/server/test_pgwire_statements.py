"""Where statements go: whatever reads a table of the policy reaches the curator or is refused, never the shadow."""

import pytest
from hypothesis import given, strategies as st

from dither.query.kinds import Kind
from dither.query.schema import ColumnFacts, Schema, TableFacts
from dither.server.pgwire.sql import lexer
from dither.server.pgwire.sql.commands import ByName, CopyOut, Cursor, Fetch, Setting, Transaction
from dither.server.pgwire.sql.routing import Route, Router
from dither.server.problems import ServerProblem


def table(name, *columns, private=True):
    facts = {column: ColumnFacts(name=column, kind=Kind.TEXT) for column in columns}
    return TableFacts(name=name, private=private, columns=facts)


LONG = "t" * 70
SCHEMA = Schema(
    {
        "orders": table("orders", "city"),
        "Big Orders": table("Big Orders", "city"),
        "sales.visits": table("sales.visits", "city"),
        "name": table("name", "city"),
        "columns": table("columns", "city"),
        LONG: table(LONG, "city"),
        "cities": table("cities", "city", private=False),
    }
)
ROUTER = Router(SCHEMA, database="shop")


def one(text):
    (statement,) = ROUTER.split(text)
    return statement


PRIVATE = [
    "SELECT count(*) FROM orders",
    "select COUNT(*) from ORDERS",
    'SELECT count(*) FROM "orders"',
    "SELECT count(*) FROM public.orders",
    'SELECT count(*) FROM "public" . "orders"',
    "SELECT count(*) FROM shop.public.orders",
    "SELECT count(*) FROM/**/orders",
    "SELECT count(*) FROM /* /* nested */ FROM nothing */ orders -- that's it",
    "SELECT count(*) FROM ONLY orders",
    "SELECT count(*) FROM ONLY (orders)",
    "SELECT count(*) FROM orders *",
    'SELECT count(*) FROM "Big Orders"',
    'SELECT count(*) FROM "big orders"',
    "SELECT count(*) FROM sales.visits",
    "SELECT count(*) FROM cities",
    f"SELECT count(*) FROM {LONG}",
    f"SELECT count(*) FROM {'t' * 63}",
    f"SELECT count(*) FROM {'T' * 63}xyz",
    "SELECT 1 FROM pg_class, orders",
    "SELECT 1 FROM pg_class c CROSS JOIN orders o",
    "SELECT 1 FROM pg_class c NATURAL JOIN orders",
    "SELECT 1 FROM (orders CROSS JOIN pg_class)",
    "SELECT (SELECT count(*) FROM orders)",
    "SELECT relname FROM pg_class WHERE EXISTS (SELECT 1 FROM orders)",
    "WITH x AS (SELECT * FROM orders) SELECT count(*) FROM x",
    "WITH orders AS (SELECT 1) SELECT * FROM orders",
    "SELECT 1 UNION ALL SELECT count(*) FROM orders",
    "SELECT 1 UNION ALL TABLE orders",
    "TABLE orders",
    "TABLE ONLY orders",
    "(SELECT count(*) FROM orders)",
    "((SELECT count(*) FROM orders))",
    "VALUES ((SELECT count(*) FROM orders))",
    "SELECT * FROM orders",
    "SELECT * FROM orders LIMIT 1000",
    "SELECT * FROM orders WHERE 1 = 1",
    "SELECT * FROM orders LIMIT $1",
    "SELECT count(*) FROM orders WHERE 1 = 0",
    "SELECT count(*) FROM orders HAVING 1 = 0",
    "SELECT max(city) FROM orders WHERE false",
    "SELECT my_aggregate(city) FROM orders WHERE false",
    "SELECT city FROM orders WHERE 1 = 0 OR 1 = 1",
    "SELECT city FROM orders WHERE NOT 1 = 0",
    "SELECT city FROM orders WHERE 1 = 1 AND city = 'x'",
    "SELECT city FROM orders WHERE 2 <> 3 AND (true AND 1 = 1)",
    "SELECT city FROM orders WHERE 1 = 0 UNION ALL SELECT city FROM orders",
    "(SELECT city FROM orders LIMIT 0) UNION ALL (SELECT city FROM orders)",
    "SELECT city FROM orders ORDER BY (SELECT 1 LIMIT 0)",
    "SELECT (SELECT 1 WHERE false), city FROM orders",
    "SELECT E'it\\'s', count(*) FROM orders WHERE city = '\\'",
    "SELECT $$FROM nothing$$, count(*) FROM orders",
    "SELECT $a$ $$ $b$ $a$, count(*) FROM orders",
    "SELECT this is no SQL FROM orders (((",
    "EXPLAIN PRIVACY SELECT count(*) FROM orders",
    "explain privacy SELECT 1",
    "FROM orders SELECT count(*)",
]
SHADOW = [
    "SELECT 1",
    "SELECT version()",
    "SELECT current_user, current_database()",
    "SHOW server_version",
    "SHOW ALL",
    "SHOW TRANSACTION ISOLATION LEVEL",
    "SET application_name = 'x'",
    "SET client_encoding = 'UTF8'",
    "SET NAMES 'utf8'",
    "SET datestyle TO 'ISO, DMY'",
    "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
    "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    "SET TIME ZONE 'UTC'",
    "RESET work_mem",
    "UNLISTEN *",
    "SELECT oid FROM pg_catalog.pg_class WHERE relname = 'orders'",
    "SELECT 'orders'::regclass::oid",
    "SELECT 'SELECT count(*) FROM orders'",
    "SELECT $$ FROM orders $$",
    "SELECT 1 -- FROM orders",
    "SELECT 1 /* /* */ FROM orders */",
    "SELECT c.relname AS orders FROM pg_class c",
    "SELECT orders.relname FROM pg_class AS orders",
    "SELECT * FROM information_schema.columns WHERE table_name = 'orders'",
    "SELECT columns.column_name FROM information_schema.columns",
    "SELECT * FROM dp.columns",
    "SELECT * FROM dp.budget",
    "SELECT name FROM pg_catalog.pg_settings",
    "SELECT s.name, s.setting FROM pg_catalog.pg_settings s ORDER BY name",
    "SELECT lower(name), upper(name) FROM pg_settings",
    "SELECT * FROM orders_of_mine",
    "SELECT * FROM orders LIMIT 0",
    "SELECT * FROM public.orders WHERE 1=0",
    "SELECT * FROM orders WHERE (0 = 1)",
    "SELECT city, city::varchar FROM orders o WHERE false",
    "SELECT * FROM (SELECT * FROM orders) t WHERE 1 <> 1",
    "SELECT * FROM orders WHERE city = 'x' AND 1 = 2 ORDER BY 1",
    "SELECT city FROM orders FETCH FIRST 0 ROWS ONLY",
    "COPY (SELECT 1) TO STDOUT",
    "COPY pg_class TO STDOUT",
    "DECLARE c CURSOR FOR SELECT relname FROM pg_class",
    "EXPLAIN SELECT 1",
    "COMMIT PREPARED 'x'",
    "SELEC 1",
]
REFUSED = [
    "EXPLAIN SELECT count(*) FROM orders",
    "EXPLAIN (ANALYZE) SELECT count(*) FROM orders",
    "COPY orders TO STDOUT",
    "COPY public.orders (city) TO STDOUT",
    "COPY orders FROM STDIN",
    "COPY (SELECT count(*) FROM orders) TO '/tmp/x'",
    "COPY (SELECT count(*) FROM orders) TO PROGRAM 'cat'",
    "PREPARE p AS DELETE FROM orders",
    "PREPARE p AS EXPLAIN SELECT count(*) FROM orders",
    "PREPARE p (int[]) AS SELECT count(*) FROM orders WHERE city = $1",
    "PREPARE p (varchar(3)) AS SELECT count(*) FROM orders WHERE city = $1",
    "PREPARE p (,) AS SELECT count(*) FROM orders",
    "PREPARE p SELECT count(*) FROM orders",
    "PREPARE p (int AS SELECT count(*) FROM orders",
    "PREPARE p AS",
    "PREPARE 1 AS SELECT count(*) FROM orders",
    "EXECUTE",
    "EXECUTE p (1",
    "EXECUTE p (1) garbage",
    "EXECUTE p ((SELECT count(*) FROM orders))",
    "EXECUTE p (orders)",
    "DO $$ BEGIN PERFORM 1 FROM orders; END $$",
    "INSERT INTO orders VALUES (1)",
    "UPDATE orders SET city = 'x'",
    "DELETE FROM orders",
    "TRUNCATE orders",
    "CREATE TABLE mine AS SELECT * FROM orders",
    "CREATE TEMP TABLE mine (a int)",
    "CREATE VIEW v AS TABLE orders",
    "ALTER ROLE ana SET work_mem = '1GB'",
    "ALTER SYSTEM SET work_mem = '1GB'",
    "LOCK TABLE orders",
    "NOTIFY bob, 'hello'",
    "LISTEN ana",
    "LOAD 'x'",
    "SET work_mem = '1GB'",
    "SET SESSION work_mem TO '1GB'",
    "SET LOCAL temp_buffers = 1000",
    "SET standard_conforming_strings = off",
    'SET "Standard_Conforming_Strings" = off',
    "SET client_encoding = 'LATIN1'",
    "SET NAMES 'latin1'",
    "SET datestyle = 'German'",
    "SET dither_views.budget = '[]'",
    'SELECT count(*) FROM U&"\\006frders"',
    "SELECT count(*) FROM u&\"d!0061t\" UESCAPE '!'",
    "SELECT 'not closed FROM orders",
    "SELECT 1 /* not closed",
    'SELECT "not closed FROM orders',
    "SELECT $x$ not closed",
    "FETCH",
    "DECLARE c CURSOR WITHOUT A QUERY",
    "COPY () TO STDOUT",
    "COPY (SELECT count(*) FROM orders) TO STDOUT (FORMAT parquet)",
]


@pytest.mark.parametrize("sql", PRIVATE)
def test_what_reads_a_table_of_the_policy_goes_to_the_curator(sql):
    statement = one(sql)
    assert statement.route is Route.PRIVATE
    assert len(statement.question) <= len(sql)
    assert not statement.no_rows


@pytest.mark.parametrize("sql", SHADOW)
def test_what_reads_no_row_of_the_data_goes_to_the_shadow(sql):
    statement = one(sql)
    assert statement.route is Route.SHADOW
    assert statement.sql in sql


@pytest.mark.parametrize("sql", REFUSED)
def test_what_can_be_neither_is_refused_with_a_hint(sql):
    statement = one(sql)
    assert statement.route is Route.REFUSED
    assert isinstance(statement.detail, ServerProblem)
    assert statement.detail.hint
    assert len(statement.detail.sqlstate) == 5


def test_a_probe_of_an_answer_has_no_rows_and_isnt_asked():
    inner = "SELECT city, count(*) AS n FROM orders GROUP BY city LIMIT 9"
    expected = {
        "SELECT city, count(*) AS n FROM orders GROUP BY city LIMIT 0": None,
        f"SELECT * FROM ({inner}) t WHERE 1=0": inner,
        f"SELECT * FROM ({inner}) AS t LIMIT 0": inner,
        "SELECT t.n FROM (SELECT count(*) AS n FROM orders) AS t WHERE 0 = 1": None,
        f"SELECT * FROM ({inner}) AS t (a, b) WHERE 0 = 1": None,
        "SELECT count(*) FROM orders LIMIT 0": None,
    }
    for sql, asked in expected.items():
        statement = one(sql)
        assert (statement.route, statement.no_rows) == (Route.PRIVATE, True), sql
        assert statement.question == (asked or sql)
        assert sql[statement.question_offset :].startswith(statement.question)
    # an outer aggregate has a row even if nothing passes
    outer = "SELECT sum(n) FROM (SELECT count(*) AS n FROM orders) t WHERE 1=0"
    assert (one(outer).route, one(outer).no_rows) == (Route.PRIVATE, False)
    with_another = "SELECT n, (SELECT 1) FROM (SELECT count(*) AS n FROM orders) t, pg_class WHERE 1=0"
    assert not one(with_another).no_rows


def test_schema_names_are_blanked_so_that_places_stay():
    sql = 'SELECT "public"."orders"."city", count(*) FROM shop.public."orders" WHERE x.public.orders > 1'
    question = one(sql).question
    assert len(question) == len(sql)
    assert " ".join(question.split()) == 'SELECT "orders"."city", count(*) FROM "orders" WHERE x.public.orders > 1'
    assert question.index('"orders"."city"') == sql.index('"orders"."city"')
    assert one("SELECT count(*) FROM sales.visits").question == "SELECT count(*) FROM sales.visits"
    lines = one("SELECT count(*) FROM public\n.\norders").question
    assert lines == "SELECT count(*) FROM       \n \norders"


def test_several_statements_of_one_message_have_their_places():
    text = " BEGIN ;; SELECT count(*) FROM orders WHERE city = ';'; -- end\n COMMIT;"
    parts = ROUTER.split(text)
    assert [part.route for part in parts] == [Route.TRANSACTION, Route.PRIVATE, Route.TRANSACTION]
    assert [text[part.offset :].startswith(part.sql) for part in parts] == [True] * 3
    assert parts[1].question_offset == text.index("SELECT")
    assert parts[1].question == "SELECT count(*) FROM orders WHERE city = ';'"


@pytest.mark.parametrize("text", ["", "  ", ";", " ;; ", "-- nothing", "/* nothing */;"])
def test_an_empty_message_is_an_empty_statement(text):
    assert [part.route for part in ROUTER.split(text)] == [Route.EMPTY]


def test_parameters_are_counted_outside_strings():
    assert one("SELECT count(*) FROM orders WHERE city IN ($1,$3) AND product <> '$9' -- $8").parameters == 3
    assert one("SELECT $2::text").parameters == 2
    assert one("SELECT $$ $7 $$, $1").parameters == 1


def test_transactions():
    expected = {
        "BEGIN": ("BEGIN", Transaction(action="begin")),
        "begin work": ("BEGIN", Transaction(action="begin")),
        "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY": ("BEGIN", Transaction(action="begin")),
        "START TRANSACTION READ ONLY": ("START TRANSACTION", Transaction(action="begin")),
        "COMMIT": ("COMMIT", Transaction(action="commit")),
        "END TRANSACTION": ("COMMIT", Transaction(action="commit")),
        "COMMIT AND CHAIN": ("COMMIT", Transaction(action="commit", chain=True)),
        "ROLLBACK AND NO CHAIN": ("ROLLBACK", Transaction(action="rollback")),
        "ABORT": ("ROLLBACK", Transaction(action="rollback")),
        "SAVEPOINT Here": ("SAVEPOINT", Transaction(action="savepoint", name="here")),
        'RELEASE SAVEPOINT "Here"': ("RELEASE", Transaction(action="release", name="Here")),
        "RELEASE here": ("RELEASE", Transaction(action="release", name="here")),
        "ROLLBACK WORK TO SAVEPOINT here": ("ROLLBACK", Transaction(action="rollback_to", name="here")),
        "ROLLBACK TO here": ("ROLLBACK", Transaction(action="rollback_to", name="here")),
    }
    for sql, (tag, detail) in expected.items():
        statement = one(sql)
        assert (statement.route, statement.tag, statement.detail) == (Route.TRANSACTION, tag, detail), sql


def test_settings_of_dither():
    expected = {
        "SET dp.epsilon = 0.1": Setting(action="set", name="epsilon", value="0.1"),
        "SET SESSION dp.epsilon TO '0.1'": Setting(action="set", name="epsilon", value="0.1"),
        "SET LOCAL dp.Epsilon = .5": Setting(action="set", name="epsilon", value=".5", local=True),
        'SET "dp"."epsilon" = 1e-2': Setting(action="set", name="epsilon", value="1e-2"),
        'SET "dp.epsilon" = 1': Setting(action="set", name="epsilon", value="1"),
        "SET dp.error = -1": Setting(action="set", name="error", value="-1"),
        "SET dp.error = 'n=10, total=5'": Setting(action="set", name="error", value="n=10, total=5"),
        "SET dp.epsilon TO DEFAULT": Setting(action="set", name="epsilon", value=""),
        "RESET dp.epsilon": Setting(action="reset", name="epsilon"),
        "SHOW dp.budget": Setting(action="show", name="budget"),
    }
    for sql, detail in expected.items():
        statement = one(sql)
        assert (statement.route, statement.detail) == (Route.SETTING, detail), sql


def test_cursors():
    question = "SELECT count(*) FROM public.orders"
    statement = one(f"DECLARE C1 BINARY NO SCROLL CURSOR WITH HOLD FOR {question}")
    assert statement.route is Route.DECLARE
    assert statement.tag == "DECLARE CURSOR"
    assert statement.detail == Cursor(name="c1", binary=True, scroll=False, hold=True)
    assert statement.question == "SELECT count(*) FROM        orders"
    assert statement.question_offset == statement.sql.index("SELECT")
    scrolling = one(f'DECLARE "C1" SCROLL CURSOR FOR {question}').detail
    assert scrolling == Cursor(name="C1", scroll=True)

    expected = {
        "FETCH c": ("forward", 1),
        "FETCH next": ("forward", 1),
        "FETCH FROM c": ("forward", 1),
        "FETCH NEXT FROM c": ("forward", 1),
        "FETCH 10 IN c": ("forward", 10),
        "FETCH -10 c": ("forward", -10),
        "FETCH ALL c": ("forward", None),
        "FETCH FORWARD c": ("forward", 1),
        "FETCH FORWARD 100 FROM c": ("forward", 100),
        "FETCH FORWARD ALL FROM c": ("forward", None),
        "FETCH BACKWARD c": ("backward", 1),
        "FETCH BACKWARD ALL IN c": ("backward", None),
        "FETCH PRIOR c": ("backward", 1),
        "FETCH FIRST c": ("absolute", 1),
        "FETCH LAST c": ("absolute", -1),
        "FETCH ABSOLUTE 7 c": ("absolute", 7),
        "FETCH RELATIVE -2 c": ("relative", -2),
    }
    for sql, (direction, count) in expected.items():
        name = "next" if sql == "FETCH next" else "c"
        assert one(sql).detail == Fetch(name=name, move=False, direction=direction, count=count), sql
        assert one(sql.replace("FETCH", "MOVE")).detail == Fetch(name=name, move=True, direction=direction, count=count)
    assert (one("CLOSE c").route, one("CLOSE c").tag, one("CLOSE c").detail) == (
        Route.CLOSE,
        "CLOSE CURSOR",
        ByName("c"),
    )
    assert (one("CLOSE ALL").tag, one("CLOSE ALL").detail) == ("CLOSE CURSOR ALL", ByName(None))


def test_what_a_session_forgets():
    expected = {
        "DEALLOCATE p": (Route.DEALLOCATE, "DEALLOCATE", ByName("p")),
        'DEALLOCATE PREPARE "P"': (Route.DEALLOCATE, "DEALLOCATE", ByName("P")),
        "DEALLOCATE ALL": (Route.DEALLOCATE, "DEALLOCATE ALL", ByName(None)),
        "DISCARD ALL": (Route.DISCARD, "DISCARD ALL", None),
        "DISCARD TEMPORARY": (Route.DISCARD, "DISCARD TEMP", None),
        "RESET ALL": (Route.DISCARD, "RESET", None),
    }
    for sql, wanted in expected.items():
        statement = one(sql)
        assert (statement.route, statement.tag, statement.detail) == wanted, sql


def test_copy_options():
    question = "SELECT city, count(*) FROM orders GROUP BY (city)"
    expected = {
        "": CopyOut(),
        "BINARY": CopyOut(format="binary"),
        "CSV HEADER": CopyOut(format="csv", header=True),
        "WITH CSV DELIMITER AS ';' NULL AS '-'": CopyOut(format="csv", delimiter=";", null="-"),
        "WITH (FORMAT binary)": CopyOut(format="binary"),
        "(FORMAT 'csv', HEADER true, QUOTE '''', ESCAPE '\\', FORCE_QUOTE *)": CopyOut(
            format="csv", header=True, quote="'", escape="\\", force_quote_all=True
        ),
        "(HEADER off, DELIMITER E'\\t', NULL 'x', ENCODING 'utf-8')": CopyOut(delimiter="\t", null="x"),
        "CSV FORCE QUOTE *": CopyOut(format="csv", force_quote_all=True),
    }
    for written, options in expected.items():
        statement = one(f"COPY ({question}) TO STDOUT {written}")
        assert (statement.route, statement.tag, statement.detail) == (Route.COPY, "COPY", options), written
        assert statement.question == question
        assert statement.question_offset == len("COPY (")


def test_refusals_point_at_the_word():
    statement = ROUTER.split("SELECT 1;\nCOPY (SELECT count(*) FROM orders)\n TO STDOUT (FORMAT parquet)")[1]
    assert statement.detail.position == (2, 20)
    assert statement.detail.code == "syntax"
    unclosed = one("SELECT 1,\n  'x")
    assert unclosed.detail.position == (2, 3)
    assert unclosed.detail.sqlstate == "42601"


def test_deep_and_long_texts_are_no_trouble():
    deep = "SELECT " + "(" * 5000 + "1" + ")" * 5000 + ", orders FROM x"
    assert one(deep).route in (Route.SHADOW, Route.PRIVATE, Route.REFUSED)
    deep_table = "SELECT 1 FROM " + "(" * 3000 + "orders" + ")" * 3000
    assert one(deep_table).route in (Route.PRIVATE, Route.REFUSED)
    assert one("SELECT '" + "x" * 1_000_000 + "' FROM orders").route is Route.PRIVATE


NOISE = st.sampled_from([" ", "\n", "/* x */", "/* a /* b */ c */", "-- x\n", "\t"])
SPELLINGS = st.sampled_from(["orders", "ORDERS", "OrDeRs", '"orders"', "public.orders", '"public"."orders"'])


@given(st.lists(NOISE, min_size=1), SPELLINGS, st.lists(NOISE), st.sampled_from(["FROM", "from", "JOIN", "TABLE"]))
def test_no_comment_or_spelling_hides_a_table(before, spelling, after, keyword):
    head = {"TABLE": "", "JOIN": "SELECT 1 FROM pg_class CROSS"}.get(keyword, "SELECT count(*)")
    assert one(f"{head} {keyword}{''.join(before)}{spelling}{''.join(after)}").route is Route.PRIVATE


@given(st.text(alphabet="ab'\"$-/*\\;\n eEuU&$1()", max_size=40))
def test_words_cover_the_text_in_order_whatever_it_is(text):
    try:
        found = lexer.words(text)
    except lexer.Unclosed:
        assert [statement.route for statement in ROUTER.split(text)] == [Route.REFUSED]
        return
    end = 0
    for word in found:
        assert end <= word.start < word.end
        end = word.end
    assert end <= len(text)
    assert ROUTER.split(text)


@given(st.text(max_size=60))
def test_split_never_raises(text):
    for statement in ROUTER.split(text):
        assert text[statement.offset :].startswith(statement.sql)


def test_no_text_of_an_analyst_is_logged(caplog, capfd):
    for sql in (*PRIVATE, *SHADOW, *REFUSED):
        ROUTER.split(sql)
    assert caplog.records == []
    assert capfd.readouterr() == ("", "")
