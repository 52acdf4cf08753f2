"""Ways out of the question: into the engine, into other files, into the terminal or the page that shows an answer."""

import csv
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import duckdb
import pytest
import sqlglot
from sqlglot import exp

from dither.engines import DuckDBEngine
from dither.errors import Refused

MARK = "zqx"
BATTERY = [
    (
        f"SELECT city AS {MARK}_alias, COUNT(*) AS n FROM orders AS {MARK}_table WHERE remark = "
        f"'{MARK}'' OR 1=1 --' GROUP BY 1"
    ),
    f'SELECT COUNT(*) AS "{MARK}""; DROP TABLE orders; --" FROM orders /* {MARK} comment */ -- {MARK} comment',
    (
        f"WITH {MARK}_cte AS (SELECT user_id, SUM(amount) AS {MARK}_sum FROM orders GROUP BY user_id) "
        f"SELECT AVG({MARK}_sum, contribution_bounds_per_row => (0, 9)) FROM {MARK}_cte"
    ),
    f"SELECT MEDIAN(amount), VAR_SAMP(quantity), COUNT(DISTINCT product) FROM orders WHERE remark LIKE '%{MARK}''%'",
    (
        f"SELECT a.city, COUNT(*) FROM orders a JOIN orders b ON a.user_id = b.user_id WHERE b.product "
        f"<> '{MARK}\\''' GROUP BY 1"
    ),
    (
        f"SELECT product, COUNT(*) AS n FROM orders WHERE replace(remark, '{MARK}', ';') IN ('x', "
        f"'y\u2028') GROUP BY product"
    ),
    (
        f"SELECT city, SUM(amount) FILTER (WHERE remark || '{MARK}' > 'a') AS {MARK}_s FROM orders GROUP "
        f"BY city HAVING {MARK}_s > 1 ORDER BY {MARK}_s LIMIT 2"
    ),
    (
        "SELECT city, COUNT(*) FROM (SELECT city, row_number() OVER (PARTITION BY user_id ORDER BY day) "
        "AS r FROM orders) WHERE r = 1 GROUP BY city"
    ),
]
ZCDP = {"delta_budget": "1e-6", "epsilon_budget": "300"}
OUTSIDE = re.compile(
    r"read_|glob|sniff|duckdb_|pragma|getenv|query|parquet|current_|random|error|setseed|secret|http", re.IGNORECASE
)


class Recorder:
    """A connection that writes down everything it is asked to run."""

    def __init__(self, connection, log):
        self._connection, self._log = connection, log

    def cursor(self):
        return Recorder(self._connection.cursor(), self._log)

    def __getattr__(self, name):
        method = getattr(self._connection, name)
        if name not in ("sql", "execute", "query", "executemany", "from_query"):
            return method

        def recorded(text, *rest, **named):
            self._log.append(text)
            return method(text, *rest, **named)

        return recorded


@pytest.fixture
def recorded(make, tmp_path, monkeypatch):
    """A shop all of whose SQL is written down, from the first question on."""
    log, connect = [], duckdb.connect
    directory = make.write_shop(tmp_path / "recorded", make.crowd(), **ZCDP)
    monkeypatch.setattr("dither.engines.duckdb.noisy_rows._OPEN", {})
    monkeypatch.setattr(duckdb, "connect", lambda *given, **named: Recorder(connect(*given, **named), log))
    one = make.open_shop(directory)
    assert log, "opening is recorded too"
    log.clear()
    yield one, log
    one.close()


def test_c25_only_selects_that_we_wrote_reach_the_engine(recorded, monkeypatch):
    """C25: SQL is generated from the plan. The analyst's names and comments aren't in it, and literals are literals."""
    one, log = recorded
    # as for many rows: the sums of a few aren't left to the database, so that half of the SQL wouldn't be seen
    monkeypatch.setattr("dither.engines.duckdb.engine.MOST_ADDED", -1)
    for sql in BATTERY:
        one.curator.sql(sql, epsilon=2)
    engine = [text for text in log if not re.fullmatch(r"SET (enable_external_access|lock_configuration) = \w+", text)]
    # what units keep, and their sums; plain columns of the answer need no statement of their own
    assert len(engine) >= 2 * len(BATTERY)
    for text in engine:
        statements = sqlglot.parse(text, read="duckdb")
        assert len(statements) == 1
        # one SELECT, or two of which one follows on the other: who has which values
        parts = [statements[0].left, statements[0].right] if isinstance(statements[0], exp.Union) else statements
        assert all(isinstance(part, exp.Select) for part in parts), text
        named = {node.alias for node in statements[0].find_all(exp.CTE)}
        names = {node.name.lower() for node in statements[0].find_all(exp.Anonymous)}
        tables = {node.name for node in statements[0].find_all(exp.Table)}
        assert not any(OUTSIDE.search(name) for name in names), names
        # the data, what units keep, and what was released; never a function or a file
        assert tables - named <= {"orders", "_kept", "_units", "released", ""}, tables
        assert all(not node.args.get("db") for node in statements[0].find_all(exp.Table))
        places = {node.name for node in statements[0].find_all(exp.Identifier) if MARK in node.name}
        assert not places
        assert "--" not in re.sub(r"'(?:[^']|'')*'", "''", text)
        assert MARK not in re.sub(r"'(?:[^']|'')*'", "''", text)


def test_c25_the_recorder_would_notice(recorded):
    """C25: what the test above looks for is found where it is."""
    one, log = recorded
    cursor = one.engine.engine._opened.connection.cursor()
    cursor.sql(f"SELECT 1 AS {MARK} FROM range(3)").fetchall()
    assert MARK in log[-1]
    assert OUTSIDE.search("read_csv_auto")


@pytest.fixture(scope="module")
def locked(make, tmp_path_factory):
    """The very connection on which questions run."""
    one = make.open_shop(make.write_shop(tmp_path_factory.mktemp("locked"), make.crowd(3)))
    yield one.engine.engine._opened.connection
    one.close()


def statements(path):
    return [
        f"SELECT * FROM read_csv('{path}')",
        f"SELECT * FROM read_text('{path}')",
        f"SELECT * FROM read_blob('{path}')",
        f"SELECT * FROM '{path}'",
        f"SELECT * FROM glob('{path.parent}/*')",
        f"COPY orders TO '{path.parent / 'out.csv'}'",
        f"COPY (SELECT 42) TO '{path}'",
        f"EXPORT DATABASE '{path.parent / 'export'}'",
        f"ATTACH '{path.parent / 'other.duckdb'}' AS other",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "SET allowed_directories = ['/']",
        "RESET enable_external_access",
        "PRAGMA enable_logging",
        "CREATE SECRET s (TYPE s3)",
        "SELECT getenv('HOME')",
    ]


@pytest.mark.parametrize("number", range(len(statements(Path("x/y")))))
def test_c25_the_engine_is_locked_whatever_it_is_told(locked, tmp_path, number):
    """C25: even SQL that slipped through could open, write or load nothing."""
    secret = tmp_path / "secret.csv"
    secret.write_text("name\nsecret-7391\n")
    with pytest.raises((duckdb.Error, RuntimeError)):
        locked.cursor().execute(statements(secret)[number]).fetchall()
    assert [path.name for path in tmp_path.iterdir()] == ["secret.csv"]
    assert secret.read_text() == "name\nsecret-7391\n"


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO orders SELECT * FROM orders",
        "DELETE FROM orders",
        "DROP TABLE orders",
        "CREATE TABLE main.copy AS SELECT * FROM orders",
    ],
)
def test_c25_a_database_is_read_only(locked, text):
    """C25, C6: nothing can be left behind for a later question."""
    with pytest.raises(duckdb.Error):
        locked.cursor().execute(text).fetchall()


def test_c25_files_can_be_read_where_declared_and_nowhere_else(make, tmp_path):
    """C25: a source of files opens those files, and neither their neighbours nor a way to write."""
    from dither.policy import Policy

    data, other = tmp_path / "orders.csv", tmp_path / "other.csv"
    data.write_text("user_id,amount\n1,2.5\n2,3.5\n")
    other.write_text("user_id,amount\n9,9\n")
    policy = Policy.parse(
        """
        [source]
        files = { orders = "orders.csv" }
        [budget]
        epsilon_budget = 10
        [tables.orders]
        private = true
        privacy_unit_column = "user_id"
        [tables.orders.columns]
        user_id = { type = "integer" }
        amount = { type = "double", between = [0, 10] }
        """,
        base=tmp_path,
    )
    with DuckDBEngine.open(policy.source.location, policy.schema) as engine:
        connection = engine._opened.connection.cursor()
        assert connection.execute('SELECT count(*) FROM "orders"').fetchall() == [(2,)]
        for text in statements(other):
            with pytest.raises((duckdb.Error, RuntimeError)):
                connection.execute(text).fetchall()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["orders.csv", "other.csv"]
    assert other.read_text() == "user_id,amount\n9,9\n"
    assert data.read_text() == "user_id,amount\n1,2.5\n2,3.5\n"


NASTY = [
    "<script>alert(1)</script>",
    "it's",
    'say "hi"',
    "a;b--c/*d*/",
    "\x1b[31mred\x1b[0m\x07",
    "[bold]x[/bold]",
    "tab\there",
    "line\nbreak",
    "\u202eright-to-left",
    "&amp;",
    "=cmd|' /C calc'!A0",
    "\\",
    "%s{}",
    "é\u0301",
]


@pytest.fixture
def nasty(shop, make):
    """A shop whose discovered keys and public keys are attacks on whatever shows them."""
    rows = [make.order(100 * n + m, product=key, city=key) for n, key in enumerate(NASTY) for m in range(60)]
    return shop(rows, **(ZCDP | {"cities": json.dumps(NASTY)}))


@pytest.mark.parametrize("column", ["product", "city"])
def test_quotes_and_control_characters_in_keys_are_keys(nasty, column):
    """Besides: nested quotes in keys, discovered or declared, come back as they are, and can be asked for."""
    sql = f"SELECT {column}, COUNT(*) AS n FROM orders GROUP BY {column}"
    found = {row[column]: row["n"] for row in nasty.curator.sql(sql, epsilon=100).to_pylist()}
    assert set(found) == set(NASTY)
    for key in (key for key in NASTY if key.isprintable()):
        quoted = key.replace("'", "''")
        one = nasty.curator.sql(f"SELECT COUNT(*) AS n FROM orders WHERE {column} = '{quoted}'", epsilon=20)
        assert abs(one.scalar() - 60) < 30


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.text = set(), []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        assert not any(name.startswith("on") for name, _ in attrs)

    def handle_data(self, data):
        self.text.append(data)


def test_keys_cannot_write_html(nasty):
    """Besides: in a notebook a key is text; aliases of the question too."""
    sql = 'SELECT product AS "<img src=x onerror=alert(1)>", COUNT(*) AS "<b>n</b>" FROM orders GROUP BY product'
    page = Tags()
    page.feed(nasty.curator.sql(sql, epsilon=100)._repr_html_())
    assert page.tags <= {"div", "table", "thead", "tbody", "tr", "th", "td", "span", "small", "br", "p"}
    assert "<script>alert(1)</script>" in page.text


@pytest.mark.parametrize("form", ["table", "csv", "json", "str"])
def test_keys_cannot_steer_a_terminal(nasty, form, forked):
    """Besides: no escape sequence, bell, or reversal of writing from a key reaches the screen as such."""
    sql = 'SELECT product AS "[bold]x", COUNT(*) AS n FROM orders GROUP BY product'
    if form == "str":
        shown = str(nasty.curator.sql(sql, epsilon=100))
    else:
        nasty.close()
        done = forked("ask", sql, "-e", "100", "--format", form, "-p", nasty.policy)
        assert done.status == 0, done.err
        shown = done.out
    if form == "csv":
        # a file format must keep its values; they come back whole
        assert {row[0] for row in csv.reader(io.StringIO(shown))} >= set(NASTY)
        return
    # JSON escapes what steers and keeps what is only drawn otherwise
    assert not set(shown) & ({"\x1b", "\x07", "\t"} | ({"\u202e"} if form != "json" else set()))
    assert "alert(1)" in shown


def test_questions_cannot_steer_a_terminal(shop, make, fresh):
    """Besides: control characters in a question are refused, so that no record, log or error can hold them."""
    one = shop(make.crowd())
    texts = ['SELECT COUNT(*) AS "\x1b[2Jn" FROM orders', "SELECT COUNT(*) FROM orders WHERE remark <> '\x1b[31m'"]
    for text in texts:
        with pytest.raises(Refused) as refused:
            one.curator.sql(text, epsilon=1, analyst="ana")
        assert "\x1b" not in str(refused.value)
    one.curator.sql(
        "SELECT COUNT(*) AS \"[bold]\u202en\" FROM orders WHERE remark <> '[/bold]'", epsilon=1, analyst="ana"
    )
    one.close()
    listed = fresh("ledger", "list", "-p", one.policy)
    told = [fresh("ask", text, "-e", "1", "-p", one.policy) for text in texts]
    assert [listed.status, *(done.status for done in told)] == [0, 1, 1]
    shown = "".join(done.out + done.err for done in (listed, *told))
    assert "[/bold]" in shown
    assert not set(shown) & {"\x1b", "\u202e"}


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*) FROM ordеrs",  # a Cyrillic е
        "SELECT COUNT(*) FROM orders\u200b",
        "SELECT COUNT(*) FROM \uff4frders",
        'SELECT COUNT(*) FROM "orders""; --"',
        "SELECT COUNT(*) FROM orders WHERE amount = \u02bc1\u02bc",
        "SELECT COUNT(*) FROM orders\x00; DROP TABLE orders",
    ],
)
def test_look_alikes_are_not_the_table(shop, make, text):
    """Besides: unicode look-alikes, invisible characters and nested quotes name nothing."""
    one = shop(make.crowd(3))
    with pytest.raises(Refused):
        one.curator.sql(text, epsilon=1)
    assert one.engine.seen == []


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*) FROM orders a JOIN orders b ON a.amount = b.amount",
        "SELECT COUNT(*) FROM orders a, orders b",
        "SELECT COUNT(*) FROM orders WHERE amount > (SELECT AVG(amount) FROM orders)",
        "SELECT COUNT(*) FROM orders o WHERE EXISTS (SELECT 1 FROM orders i WHERE i.amount = o.amount)",
        "SELECT COUNT(*) FROM (SELECT amount, lag(amount) OVER (ORDER BY day) AS l FROM orders) WHERE l = 1",
        "SELECT COUNT(*) FROM (SELECT * FROM orders LIMIT 1)",
        "SELECT COUNT(*) FROM (SELECT city, SUM(amount) AS s FROM orders GROUP BY city) WHERE s > 5",
        "SELECT user_id, COUNT(*) FROM orders GROUP BY user_id",
        "SELECT random(), COUNT(*) FROM orders GROUP BY 1",
        "SELECT COUNT(*) FROM orders WHERE now() > day",
        "SELECT COUNT(*) FROM orders TABLESAMPLE 10%",
        "SELECT list(amount) FROM orders",
        "SELECT string_agg(remark, ',') FROM orders",
        "SELECT MAX(amount) FROM orders",
        "SELECT any_value(remark) FROM orders",
    ],
)
def test_c24_what_reaches_over_units_is_refused(shop, make, text):
    """C24, Besides: volatile functions, correlated subqueries, windows and joins over other units, single values."""
    one = shop(make.crowd(3), **ZCDP)
    with pytest.raises(Refused):
        one.curator.sql(text, epsilon=1)
    assert (one.engine.seen, one.spent()["shop"]) == ([], (0, 0))
