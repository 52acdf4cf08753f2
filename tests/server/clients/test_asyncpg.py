"""asyncpg: prepared statements, cursors, types read off the catalogue, COPY."""

import asyncio
import datetime as dt
import io

import asyncpg
import pytest

CITIES = ["Basel", "Bern", "Zug"]


def with_connection(served, work):
    async def run():
        connection = await asyncpg.connect(**served.settings, ssl=False)
        try:
            return await work(connection)
        finally:
            await connection.close()

    return asyncio.run(run())


def test_fetch_charges_once(served, question):
    async def work(connection):
        rows = await connection.fetch(question(301))
        assert [row["city"] for row in rows] == CITIES
        assert [tuple(row) for row in rows] == served.answer(question(301))
        assert await connection.fetch(question(301)) == rows
        assert await connection.fetchval("SELECT current_user") == "ana"

    with served.charging(1):
        with_connection(served, work)


def test_prepare_and_describe_are_free(served):
    sql = "SELECT COUNT(*) AS n, SUM(amount) AS total FROM orders WHERE city = $1 AND day >= $2 AND amount < $3"

    async def prepare(connection):
        statement = await connection.prepare(sql)
        assert [(part.name, part.type.name) for part in statement.get_attributes()] == [
            ("n", "int8"),
            ("total", "float8"),
        ]
        assert [part.name for part in statement.get_parameters()] == ["text", "date", "float8"]

    async def execute(connection):
        statement = await connection.prepare(sql)
        first = await statement.fetchrow("Zug", dt.date(2025, 3, 1), 44.5)
        assert await statement.fetchrow("Zug", dt.date(2025, 3, 1), 44.5) == first
        assert isinstance(first["total"], float)

    with served.free():
        with_connection(served, prepare)
    with served.charging(1):
        with_connection(served, execute)


def test_a_cursor_in_a_transaction(served, question):
    async def work(connection):
        async with connection.transaction():
            assert [row["city"] async for row in connection.cursor(question(302), prefetch=2)] == CITIES
            cursor = await connection.cursor(question(302))
            assert (await cursor.fetchrow())["city"] == "Basel"
            assert await cursor.forward(1) == 1
            assert [row["city"] for row in await cursor.fetch(5)] == ["Zug"]

    with served.charging(1):
        with_connection(served, work)


def test_copy_from_query(served, question):
    async def work(connection):
        csv, binary = io.BytesIO(), io.BytesIO()
        assert await connection.copy_from_query(question(303), output=csv, format="csv", header=True) == "COPY 3"
        await connection.copy_from_query(question(303), output=binary, format="binary")
        assert csv.getvalue().decode().splitlines()[0] == "city,n"
        assert binary.getvalue().startswith(b"PGCOPY\n\xff\r\n\0")
        assert binary.getvalue().endswith(b"\xff\xff")
        with pytest.raises(asyncpg.PostgresError):
            await connection.copy_from_table("orders", output=io.BytesIO())

    with served.charging(1):
        with_connection(served, work)


def test_a_pool_resets_its_connections(served, question):
    async def run():
        async with asyncpg.create_pool(**served.settings, ssl=False, min_size=1, max_size=2) as pool:
            for _ in range(3):
                async with pool.acquire() as connection:
                    await connection.execute("SET dp.epsilon = 0.3")
                    await connection.fetch(question(304))

    with served.charging(1):
        asyncio.run(run())


def test_refusals_are_errors_with_a_hint(served):
    async def work(connection):
        with pytest.raises(asyncpg.FeatureNotSupportedError) as refused:
            await connection.fetch("SELECT * FROM orders")
        assert refused.value.hint
        assert await connection.fetchval("SELECT 1") == 1

    with served.free():
        with_connection(served, work)


def test_types_of_the_catalogue_come_from_postgresql(served):
    async def work(connection):
        row = await connection.fetchrow('SELECT keys FROM dp.columns WHERE "column" = $1 AND keys IS NOT NULL', "city")
        assert row["keys"] == CITIES
        # an enum or a range makes asyncpg read the catalogue, with jit turned off by set_config
        assert (await connection.fetchval("SELECT int4range(1, 3)")).upper == 3

    with served.free():
        with_connection(served, work)


def test_a_value_that_is_missing(served):
    """The statement is described with made-up values, and its rows come in binary without being described again."""
    sql = "SELECT COALESCE(SUM(1), $1) AS x FROM orders WHERE amount < 305.5"

    async def work(connection):
        statement = await connection.prepare(sql)
        assert statement.get_attributes()[0].type.name == "float8"
        missing = await statement.fetchval(None)
        assert [(missing,)] == served.answer(sql.replace("$1", "NULL"))
        given = await statement.fetchval(5.5)
        assert [(given,)] == served.answer(sql.replace("$1", "5.5"))

    with served.charging(1):
        with_connection(served, work)


def test_values_that_make_another_type_are_free(served):
    sql = "SELECT SUM(CASE WHEN amount < 306.5 THEN 1 ELSE $1::bigint END) AS x FROM orders"

    async def work(connection):
        for _ in range(2):
            with pytest.raises(asyncpg.FeatureNotSupportedError, match="other columns"):
                await connection.fetchval(sql, 9 * 10**18)

    with served.free():
        with_connection(served, work)


def test_a_pool_keeps_the_price_of_its_connection_string(served):
    async def work():
        settings = {"dp.epsilon": "0.02"}
        async with asyncpg.create_pool(
            **served.settings, ssl=False, min_size=1, max_size=1, server_settings=settings
        ) as pool:
            for _ in range(3):
                async with pool.acquire() as connection:
                    assert await connection.fetchval("SHOW dp.epsilon") == "0.02"
                    await connection.execute("SET dp.epsilon = 0.5")

    asyncio.run(work())
