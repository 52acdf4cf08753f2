"""A client reads an answer by the columns that it was told: what is sent is of those types, or nothing is charged."""

import asyncio
import contextlib
import struct
from dataclasses import replace

import pyarrow as pa
import pytest

from dither.server.observe.metrics import Metrics
from dither.server.pgwire.protocol import types
from dither.server.pgwire.sql.reading import AnalystReading
from dither.server.traffic.rate_limit import Rate
from support import raw_client as raw

FLOAT8, INT8, TEXT, DATE, BOOL = 701, 20, 25, 1082, 16
# a float by its parameter's type, and a whole number where that has no value
OR_ELSE = "SELECT COALESCE(SUM(1), $1) AS x FROM orders WHERE amount < {}"
# a whole number, unless the value makes the sum too large for one
LARGE = "SELECT SUM(CASE WHEN amount < {} THEN 1 ELSE $1 END) AS x FROM orders"
HUGE = b"9000000000000000000"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with raw.shop_served(tmp_path_factory.mktemp("described")) as found:
        yield found


@pytest.fixture
def client(served):
    with raw.RawClient(served.port) as connection:
        yield connection.sign_in("ana", served.tokens["ana"])


@pytest.fixture(params=[0, 1], ids=["text", "binary"])
def form(request):
    return request.param


def roundtrip(client, *parts):
    client.send(*parts, raw.SYNC)
    return client.until()


def number(cell, oid, form):
    """What a client makes of a cell that it was told the type of."""
    if not form:
        return float(cell)
    return struct.unpack({FLOAT8: "!d", INT8: "!q"}[oid], cell)[0]


def exact(served, sql):
    """The number that the curator itself gives ana for a question that she paid for."""
    answer = served.curator.sql(sql, analyst="ana")
    assert not answer.cost.charged
    return answer.scalar()


# ---------------------------------------------------------------------- parameters without a value


@pytest.mark.parametrize("described", ["statement", "portal", "both"])
def test_a_missing_value_is_of_its_type(served, client, form, described):
    sql = OR_ELSE.format(f"{30 + form}.5")
    parts = [raw.parse(sql, types=(FLOAT8,))]
    parts += [raw.describe(b"S")] if described != "portal" else []
    parts += [raw.bind([None], results=(form,))]
    parts += [raw.describe(b"P")] if described != "statement" else []
    found = roundtrip(client, *parts, raw.execute())
    assert raw.errors(found) == []
    oids = {oid for each in found if each.kind == b"T" for _, oid, _, _ in raw.columns([each])}
    ((cell,),) = raw.rows(found)
    assert number(cell, oids.pop(), form) == exact(served, sql.replace("$1", "NULL"))
    assert not oids


def test_a_missing_value_alone_is_a_column_of_its_type(client):
    sql = "SELECT $1 AS x, COUNT(*) AS n FROM orders WHERE amount < 32.5"
    for oid in (FLOAT8, INT8, DATE, BOOL, TEXT):
        found = roundtrip(
            client, raw.parse(sql, types=(oid,)), raw.describe(b"S"), raw.bind([None], results=(1,)), raw.execute()
        )
        assert raw.columns(found)[0][1] == oid
        assert [row[0] for row in raw.rows(found)] == [None]


def test_every_value_of_a_statement_is_sent_in_one_type(served, client, form):
    """As pgjdbc and asyncpg do: the columns are asked for once, with whatever values."""
    sql = OR_ELSE.format(33.5 + form)
    found = roundtrip(client, raw.parse(sql, "s", types=(FLOAT8,)), raw.describe(b"S", "s"))
    assert raw.columns(found) == [("x", FLOAT8, 8, 0)]
    for value in (b"5.5", None, b"5", None):
        found = roundtrip(client, raw.bind([value], name="s", results=(form,)), raw.execute())
        ((cell,),) = raw.rows(found)
        text = sql.replace("$1", "NULL" if value is None else f"{float(value)}")
        assert number(cell, FLOAT8, form) == exact(served, text)


# ---------------------------------------------------------------------- values that make another type


def test_what_doesnt_fit_the_described_statement_is_refused_before_it_is_asked(client, counting, form):
    sql = LARGE.format(34.5)
    found = roundtrip(client, raw.parse(sql, "s", types=(INT8,)), raw.describe(b"S", "s"))
    assert raw.columns(found) == [("x", INT8, 8, 0)]
    for _ in range(2):
        found = roundtrip(client, raw.bind([HUGE], name="s", results=(form,)), raw.execute())
        (told,) = raw.errors(found)
        assert (told["C"], told["D"]) == ("0A000", "Nothing was charged.")
        assert "CAST" in told["H"]
        assert raw.errors(roundtrip(client, raw.bind([HUGE], name="s"), raw.describe(b"P")))[0]["C"] == "0A000"
    assert counting.asked == []
    # other values go on, and so does what the hint says
    assert raw.kinds(roundtrip(client, raw.bind([b"3"], name="s", results=(form,)), raw.execute())) == "2NDCZ"
    cast = sql.replace("SUM(", "CAST(SUM(").replace(" AS x", " AS DOUBLE) AS x")
    found = roundtrip(client, raw.parse(cast, types=(INT8,)), raw.describe(b"S"), raw.bind([HUGE]), raw.execute())
    assert raw.columns(found)[0][1] == FLOAT8
    assert len(raw.rows(found)) == 1


def test_what_was_described_as_a_portal_holds_for_the_statement(client, counting):
    """As pgjdbc does: the first portal of a statement is described, later ones aren't."""
    sql = LARGE.format(35.5)
    found = roundtrip(
        client, raw.parse(sql, "s", types=(INT8,)), raw.bind([b"3"], name="s"), raw.describe(b"P"), raw.execute()
    )
    assert raw.columns(found)[0][1] == INT8
    found = roundtrip(client, raw.bind([HUGE], name="s", results=(1,)), raw.execute())
    assert [told["C"] for told in raw.errors(found)] == ["0A000"]
    assert len(counting.asked) == 1


def test_a_portal_is_described_by_its_own_values_if_nothing_was_said_before(served, client, counting):
    """As psycopg does; what another client was told of the same text doesn't matter."""
    sql = LARGE.format(36.5)
    with raw.RawClient(served.port) as other:
        other.sign_in("ana", served.tokens["ana"])
        assert raw.columns(roundtrip(other, raw.parse(sql, types=(INT8,)), raw.describe(b"S")))[0][1] == INT8
    for value, oid in ((HUGE, FLOAT8), (b"3", INT8), (HUGE, FLOAT8)):
        found = roundtrip(
            client,
            raw.parse(sql, types=(INT8,)),
            raw.bind([value], results=(1,)),
            raw.describe(b"P"),
            raw.execute(),
        )
        assert raw.kinds(found) == "12TNDCZ"
        assert raw.columns(found)[0][1] == oid


def test_a_portal_that_nobody_described_is_sent_as_it_is(client):
    found = roundtrip(client, raw.parse(LARGE.format(37.5), types=(INT8,)), raw.bind([HUGE]), raw.execute())
    assert raw.kinds(found) == "12NDCZ"


def test_a_statement_that_is_prepared_again_may_be_of_other_types(client):
    found = roundtrip(client, raw.parse(OR_ELSE.format(38.5), types=(FLOAT8,)), raw.describe(b"S"))
    assert raw.columns(found)[0][1] == FLOAT8
    found = roundtrip(client, raw.parse(OR_ELSE.format(38.5), types=(INT8,)), raw.describe(b"S"), raw.bind([None]))
    assert raw.columns(found)[0][1] == INT8


# ---------------------------------------------------------------------- other ways in


def test_execute_is_described_by_its_arguments(served, client, counting, form):
    sql = OR_ELSE.format(39.5 + form)
    assert raw.errors(client.simple(f"PREPARE q(float8) AS {sql}; PREPARE r(bigint) AS {LARGE.format(39.5)}")) == []
    for name, given, text in (("q", "NULL", sql), ("q", "5.5", sql), ("r", HUGE.decode(), LARGE.format(39.5))):
        execute = f"EXECUTE {name}({given})"
        found = roundtrip(
            client,
            raw.parse(execute),
            raw.describe(b"S"),
            raw.bind(results=(form,)),
            raw.describe(b"P"),
            raw.execute(),
        )
        ((cell,),) = raw.rows(found)
        assert number(cell, raw.columns(found)[0][1], form) == exact(served, text.replace("$1", given))
        ((again,),) = raw.rows(client.simple(execute))
        assert float(again) == number(cell, raw.columns(found)[0][1], form)


def test_execute_of_another_statement_under_the_same_name(client, counting):
    client.simple("PREPARE q AS SELECT COUNT(*) AS n FROM orders WHERE amount < 40.5")
    found = roundtrip(client, raw.parse("EXECUTE q", "s"), raw.describe(b"S", "s"))
    assert raw.columns(found)[0][1] == INT8
    client.simple("DEALLOCATE q")
    client.simple("PREPARE q AS SELECT SUM(amount) AS n FROM orders WHERE amount < 40.5")
    found = roundtrip(client, raw.bind(name="s", results=(1,)), raw.execute())
    assert [told["C"] for told in raw.errors(found)] == ["0A000"]
    assert counting.asked == []
    found = roundtrip(client, raw.describe(b"S", "s"), raw.bind(name="s", results=(1,)), raw.execute())
    assert raw.columns(found)[0][1] == FLOAT8
    assert len(raw.rows(found)) == 1


def test_a_cursor_with_values_is_described_by_them(served, client, form):
    client.simple("BEGIN")
    for sql, value in ((OR_ELSE.format(41.5 + form), None), (LARGE.format(41.5), HUGE)):
        oid = FLOAT8 if value is None else INT8
        found = roundtrip(
            client, raw.parse(f"DECLARE c CURSOR FOR {sql}", types=(oid,)), raw.bind([value]), raw.execute()
        )
        assert raw.errors(found) == []
        found = roundtrip(
            client, raw.parse("FETCH 1 FROM c"), raw.describe(b"S"), raw.bind(results=(form,)), raw.execute()
        )
        ((cell,),) = raw.rows(found)
        text = sql.replace("$1", "NULL" if value is None else value.decode())
        assert number(cell, raw.columns(found)[0][1], form) == exact(served, text)
        client.simple("CLOSE c")


def test_fetch_from_another_cursor_of_the_same_name(client, counting):
    client.simple("BEGIN; DECLARE c CURSOR FOR SELECT COUNT(*) AS n FROM orders WHERE amount < 42.5")
    found = roundtrip(client, raw.parse("FETCH 1 FROM c", "f"), raw.describe(b"S", "f"))
    assert raw.columns(found)[0][1] == INT8
    client.simple("CLOSE c; DECLARE c CURSOR FOR SELECT SUM(amount) AS n FROM orders WHERE amount < 42.5")
    found = roundtrip(client, raw.bind(name="f", results=(1,)), raw.execute())
    assert [told["C"] for told in raw.errors(found)] == ["0A000"]
    assert counting.asked == []


def test_a_copy_is_of_the_types_of_its_parameters(served, client, counting):
    sql = OR_ELSE.format(43.5)
    copy = f"COPY ({sql}) TO STDOUT (FORMAT binary)"
    found = roundtrip(client, raw.parse(copy, types=(FLOAT8,)), raw.bind([None]), raw.execute())
    data = next(each.body for each in found if each.kind == b"d")
    assert data[19:25] == struct.pack("!hi", 1, 8)
    assert struct.unpack("!d", data[25:33])[0] == exact(served, sql.replace("$1", "NULL"))
    counting.asked.clear()
    copy = f"COPY ({LARGE.format(43.5)}) TO STDOUT (FORMAT binary)"
    found = roundtrip(client, raw.parse(copy, types=(INT8,)), raw.bind([HUGE]), raw.execute())
    assert [told["C"] for told in raw.errors(found)] == ["0A000"]
    assert counting.asked == []


# ---------------------------------------------------------------------- prices and answers


def test_the_columns_of_values_are_looked_up_once(client, counting):
    sql = LARGE.format(44.5)
    for _ in range(3):
        found = roundtrip(
            client,
            raw.parse(sql, types=(INT8,)),
            raw.describe(b"S"),
            raw.bind([b"2"]),
            raw.describe(b"P"),
            raw.execute(),
        )
        assert raw.errors(found) == []
    # with made-up values and with those that were given
    assert len(counting.priced) == 2


def test_texts_and_values_are_kept_apart():
    whole, float8 = (types.WireColumn(name="x", oid=INT8),), (types.WireColumn(name="x", oid=FLOAT8),)

    async def story():
        reading = AnalystReading("ana", Rate(rate=1.0, burst=1), Metrics())

        async def columns(text, kinds, found):
            async def price():
                return found

            return await reading.columns_of(text, kinds, price)

        assert await columns("SELECT $1", (FLOAT8,), float8) == float8
        assert await columns("SELECT CAST(NULL AS DOUBLE)", (), whole) == whole
        assert await columns("SELECT $1", (FLOAT8,), None) == float8
        assert await columns("SELECT $1", (INT8,), None) is None
        assert await columns("SELECT CAST(NULL AS DOUBLE)", (), None) == whole

    asyncio.run(story())


@contextlib.contextmanager
def answering(service, value):
    """Every answer is this value, whatever its price said: as where bounds are found late."""
    real = service.ask

    async def ask(who, wanted):
        answer = await real(who, wanted)
        return replace(answer, table=pa.table({"x": pa.array([value], pa.float64())}))

    service.ask = ask
    try:
        yield
    finally:
        del service.ask


@pytest.mark.parametrize(
    ("value", "sent"), [(12.4, b"12"), (-3e15, b"-3000000000000000"), (None, None), (1e30, "22003")]
)
def test_an_answer_that_turns_out_to_be_of_another_type(served, client, value, sent):
    sql = "SELECT COUNT(*) AS x FROM orders WHERE amount < 45.5"
    with answering(served.service, value):
        found = roundtrip(client, raw.parse(sql), raw.describe(b"S"), raw.bind(), raw.execute())
    assert raw.columns(found)[0][1] == INT8
    if sent == "22003":
        assert [told["C"] for told in raw.errors(found)] == [sent]
    else:
        assert raw.rows(found) == [[sent]]


def test_which_types_can_be_sent_as_which():
    def column(oid):
        return [types.WireColumn(name="x", oid=oid)]

    oids = sorted(types.OF_KIND.values())
    for found in oids:
        for told in oids:
            assert types.fits(column(found), column(told)) == (found == told or (found, told) == (INT8, FLOAT8))
    assert not types.fits(column(INT8), [])
    table = pa.table({"n": pa.array([1, None, 2**60])})
    assert types.as_told(table, column(FLOAT8)).to_pydict() == {"x": [1.0, None, 2.0**60]}
    for wrong in (column(TEXT), []):
        with pytest.raises(ValueError, match=r"columns|25"):
            types.as_told(table, wrong)
