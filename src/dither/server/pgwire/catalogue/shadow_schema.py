"""What the shadow PostgreSQL holds: empty tables with the policy's public facts as comments, the views of dp, no more.

The statements here are made of the policy alone, never of anything that an analyst sends. Names and texts are quoted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from fractions import Fraction

from dither.policy import Policy
from dither.query.kinds import Interval, Kind, Value
from dither.query.schema import ColumnFacts, TableFacts
from dither.server.pgwire.catalogue.shadow_process import SUPERUSER
from dither.server.pgwire.sql.lexer import LONGEST_NAME
from dither.server.wire.facts import since_1970

VIEW_SETTINGS = "dither_views"
TYPES = {
    Kind.BOOLEAN: "boolean",
    Kind.INTEGER: "bigint",
    Kind.DOUBLE: "double precision",
    Kind.TEXT: "text",
    Kind.DATE: "date",
    Kind.TIMESTAMP: "timestamp without time zone",
}
MOST_KEYS_SHOWN = 20
MOST_RECEIPTS = 500
# columns that every table of PostgreSQL has, so no other can have these names
_OWN_COLUMNS = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"})
# What psql shows of the columns of dp's views with \d+.
_ABOUT_VIEWS = {
    "budget.account": "the dataset's name, or the dataset's and the analyst's",
    "budget.epsilon_spent": "what all answers cost together, read as ε at this δ",
    "budget.epsilon_budget": "the most that they may cost; empty if the account has no cap of its own",
    "budget.share_used": "the share of the budget that is used up: 0 at first, 1 when nothing is left; it isn't the "
    "ratio of the two ε where δ is above 0",
    "budget.delta": "the δ of the budget",
    "ledger.number": "the number of the receipt",
    "ledger.at": "when it was charged",
    "ledger.who": "who asked",
    "ledger.sql": "the question",
    "ledger.epsilon": "the ε of the question by itself",
    "ledger.cost": "what was charged, as the ledger counts it",
    "columns.low": "the lower bound that the policy declares",
    "columns.high": "the upper bound that the policy declares",
    "columns.step": "values are whole multiples of it",
    "columns.keys": "the public values, which may be grouped by",
    "columns.is_unit": "whether it is the protected unit",
    "columns.is_hidden": "whether questions may not use it",
    "columns.is_private": "whether its table is private",
}
_RESERVED = frozenset({SUPERUSER, "public", "none", "current_user", "session_user", "current_role", "user"})

# Functions that may be called although what they give isn't settled by what they are given. All other such functions
# of PostgreSQL's own are taken away: they read files, wait, lock, signal, write, or run a text as SQL.
HARMLESS = (
    *("amvalidate", "array_sample", "array_shuffle", "clock_timestamp", "current_query", "currval"),
    *("gen_random_uuid", "lastval", "pg_advisory_unlock_all", "pg_collation_actual_version"),
    *("pg_database_collation_actual_version", "pg_database_size", "pg_indexes_size", "pg_is_in_recovery"),
    *("pg_is_wal_replay_paused", "pg_jit_available", "pg_partition_ancestors", "pg_partition_tree"),
    *("pg_relation_size", "pg_sequence_last_value", "pg_table_size", "pg_tablespace_size", "pg_total_relation_size"),
    *("random", "random_normal", "timeofday", "uuidv4", "uuidv7"),
)
# Functions that are settled by what they are given, and taken away all the same: they run a text as SQL, read whole
# tables by their names, tell what others do, or count rows of tables that have none here.
HARMFUL = (
    r"(query|table|schema|database|cursor)\_to\_xml%",
    r"pg\_stat\_get\_%",
    r"pg\_get\_(replication|publication|backend|shmem|aios)%",
    r"pg\_(read|ls|logical|replication|wal|hba|ident|config|show\_all\_file|lock|blocking|safe\_snapshot|control)%",
)
# Views of what others do, and of what happened to tables that have no rows here. Clients join them with what they need
# (Metabase's list of tables with pg_stat_user_tables), so they have PostgreSQL's columns, and never a row: one's own
# would be untrue, since it is about the connection between dither and the shadow.
EMPTIED = (r"pg\_stat(io|)\_%", r"pg\_(locks|prepared\_xacts|replication\_slots|publication\_tables)")
# What drivers set by this function: asyncpg turns jit off, pg_dump empties the search path.
SETTABLE = (
    *("application_name", "bytea_output", "client_min_messages", "default_transaction_isolation"),
    *("default_transaction_read_only", "extra_float_digits", "intervalstyle", "jit", "lock_timeout"),
    *("plan_cache_mode", "row_security", "search_path", "statement_timeout", "timezone", "transaction_isolation"),
    *("transaction_read_only"),
)


def name(text: str) -> str:
    """A name in quotes.

    Example:
        >>> print(name('my "big" table'))
        "my ""big"" table"
    """
    return '"' + text.replace("\0", "").replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text in quotes; backslashes mean themselves, since standard_conforming_strings is on.

    Example:
        >>> print(literal("it's"))
        'it''s'
    """
    return "'" + text.replace("\0", "").replace("'", "''") + "'"


def role_of(analyst: str) -> str:
    """The role of an analyst: the same name, unless PostgreSQL needs the name for itself or couldn't keep it.

    Example:
        >>> role_of("ana"), role_of("pg_monitor")
        ('ana', 'analyst_44a697c4514f3206')
    """
    usable = 0 < len(analyst.encode()) <= LONGEST_NAME and "\0" not in analyst
    if usable and analyst.lower() not in _RESERVED and not analyst.lower().startswith("pg_"):
        return analyst
    return "analyst_" + hashlib.sha256(analyst.encode()).hexdigest()[:16]


def make_role(analyst: str, *, connections: int) -> str:
    """The statement that makes an analyst's role, with at most so many connections at once."""
    role = name(role_of(analyst))
    may = "LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS INHERIT"
    may += f" CONNECTION LIMIT {connections}"
    return f"CREATE ROLE {role} {may}"


def make_database(policy: Policy) -> Iterator[str]:
    """The statements that make the dataset's database, sent to the database that every cluster has."""
    yield f"CREATE DATABASE {name(database_of(policy))} TEMPLATE template0"
    for database in ("postgres", "template1"):
        yield f"REVOKE ALL ON DATABASE {database} FROM PUBLIC"


def database_of(policy: Policy) -> str:
    """The name of the database: the dataset's, unless every cluster has one of that name."""
    dataset = policy.source.name.encode()[:LONGEST_NAME].decode(errors="ignore")
    return dataset + "_data" if dataset in ("postgres", "template0", "template1") else dataset


def make_contents(policy: Policy) -> Iterator[str]:
    """The statements that fill the database with what may be seen, and take away what may not be done.

    Every analyst may read all of it, so it is granted to PUBLIC: a common role would tell its members' names.
    """
    database = name(database_of(policy))
    yield f"REVOKE ALL ON DATABASE {database} FROM PUBLIC"
    yield f"GRANT CONNECT ON DATABASE {database} TO PUBLIC"
    yield f"COMMENT ON DATABASE {database} IS {literal('protects ' + policy.unit_statement())}"
    yield "REVOKE ALL ON SCHEMA public FROM PUBLIC"
    yield "GRANT USAGE ON SCHEMA public TO PUBLIC"
    for schema in sorted({_place(table)[0] for table in policy.schema.tables.values()} - {"public"}):
        yield f"CREATE SCHEMA {name(schema)}"
        yield f"GRANT USAGE ON SCHEMA {name(schema)} TO PUBLIC"
    for table in policy.schema.tables.values():
        yield from _make_table(table)
    yield from _make_views(policy)
    yield from _take_away()


def _place(table: TableFacts) -> tuple[str, str]:
    parts = table.name.split(".")
    return (parts[-2] if len(parts) > 1 else "public"), parts[-1]


def _make_table(table: TableFacts) -> Iterator[str]:
    place = ".".join(name(part) for part in _place(table))
    visible = [column for column in table.columns.values() if not column.hidden and column.name not in _OWN_COLUMNS]
    columns = ", ".join(f"{name(column.name)} {TYPES[column.kind]}" for column in visible)
    yield f"CREATE TABLE {place} ({columns})"
    yield f"COMMENT ON TABLE {place} IS {literal(about_table(table))}"
    for column in visible:
        said = about_column(column, table)
        if said:
            yield f"COMMENT ON COLUMN {place}.{name(column.name)} IS {literal(said)}"
    yield f"GRANT SELECT ON {place} TO PUBLIC"


def about_table(table: TableFacts) -> str:
    """What the policy says of a table, in a sentence."""
    if not table.private:
        return "public table; questions may join it with private ones"
    unit = "each row" if table.unit_column is None else f'each "{table.unit_column}"'
    return (
        f"private table, protects {unit}; an answer uses at most {table.groups} groups of one unit and {table.rows} "
        "rows in each; rows can't be shown, ask for aggregates"
    )


def about_column(column: ColumnFacts, table: TableFacts) -> str:
    """What the policy says of a column, in a few words; nothing if it says nothing."""
    said = []
    if column.name == table.unit_column:
        said.append("the protected unit")
    if isinstance(column.between, Interval):
        low, high = (_bound(end, column.kind) for end in (column.between.low, column.between.high))
        said.append(f"between {low} and {high}")
    elif column.between is not None:
        said.append("bounds are searched privately, which is charged")
    if column.step is not None:
        said.append(f"in steps of {_number(column.step)}")
    if column.keys is not None:
        shown = [_key(key) for key in column.keys[:MOST_KEYS_SHOWN]]
        more = len(column.keys) - len(shown)
        said.append("public keys: " + ", ".join(shown) + (f" and {more} more" if more > 0 else ""))
    return "; ".join(said)


def _bound(value: Fraction, kind: Kind) -> str:
    """A bound as people write it."""
    return str(since_1970(value, kind)) if kind.temporal else _number(value)


def _number(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else repr(float(value))


def _key(value: Value) -> str:
    return _number(value) if isinstance(value, Fraction) else str(value)


def _make_views(policy: Policy) -> Iterator[str]:
    yield "CREATE SCHEMA dp"
    yield "GRANT USAGE ON SCHEMA dp TO PUBLIC"
    yield "COMMENT ON SCHEMA dp IS 'what dither says about budgets, receipts and public facts'"
    budget = "account text, epsilon_spent float8, epsilon_budget float8, share_used float8, delta float8"
    ledger = "number text, at timestamptz, who text, sql text, epsilon text, cost text"
    for view, columns, about in (
        ("budget", budget, "how much of the privacy budget is spent, of the accounts that you may know"),
        ("ledger", ledger, f"the newest {MOST_RECEIPTS} questions that were paid for; asking the same again is free"),
    ):
        # the server sets the analyst's own rows on the analyst's connection, before the view is read
        rows = f"coalesce(nullif(current_setting('{VIEW_SETTINGS}.{view}', true), ''), '[]')::json"
        yield f"CREATE VIEW dp.{view} AS SELECT * FROM json_to_recordset({rows}) AS r({columns})"  # noqa: S608
        yield f"COMMENT ON VIEW dp.{view} IS {literal(about)}"
    rows = ", ".join(
        _facts(table, column) for table in policy.schema.tables.values() for column in table.columns.values()
    )
    columns = '"table", "column", type, low, high, step, keys, is_unit, is_hidden, is_private'
    nothing = (
        "SELECT ''::text, ''::text, ''::text, ''::text, ''::text, ''::text, '{}'::text[], true, true, true WHERE false"
    )
    yield f"CREATE VIEW dp.columns AS SELECT * FROM ({'VALUES ' + rows if rows else nothing}) AS r({columns})"  # noqa: S608
    yield "COMMENT ON VIEW dp.columns IS 'the public facts of every column'"
    for place, about in _ABOUT_VIEWS.items():
        yield f"COMMENT ON COLUMN dp.{place} IS {literal(about)}"
    yield "GRANT SELECT ON ALL TABLES IN SCHEMA dp TO PUBLIC"


def _facts(table: TableFacts, column: ColumnFacts) -> str:
    """A row of dp.columns; of a hidden column nothing is said but that there is one."""
    low = high = step = "NULL::text"
    keys = "NULL::text[]"
    if isinstance(column.between, Interval) and not column.hidden:
        low, high = (f"{literal(_bound(end, column.kind))}::text" for end in (column.between.low, column.between.high))
    if column.step is not None and not column.hidden:
        step = f"{literal(_number(column.step))}::text"
    if column.keys is not None and not column.hidden:
        keys = "ARRAY[" + ", ".join("NULL" if key is None else literal(_key(key)) for key in column.keys) + "]::text[]"
    flags = (column.name == table.unit_column, column.hidden, table.private)
    texts = (table.name, column.name, TYPES[column.kind])
    parts = [*(f"{literal(text)}::text" for text in texts), low, high, step, keys]
    return "(" + ", ".join(parts + [str(flag).lower() for flag in flags]) + ")"


def _take_away() -> Iterator[str]:
    """Whatever a reader needs no part of: functions that do things, languages, large objects, what others do."""
    kept = ", ".join(literal(each) for each in HARMLESS)
    harmful = " OR ".join(f"proname SIMILAR TO {literal(each)} ESCAPE '\\'" for each in HARMFUL)
    yield f"""DO $do$
        DECLARE each record;
        BEGIN
            FOR each IN
                SELECT oid::regprocedure AS signature FROM pg_proc
                WHERE pronamespace = 'pg_catalog'::regnamespace AND prokind IN ('f', 'w')
                AND ((provolatile = 'v' AND proname NOT IN ({kept})) OR {harmful})
            LOOP
                EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', each.signature);
            END LOOP;
        END $do$"""  # noqa: S608
    # this function may set what drivers need, and nothing else; the original is kept under another name
    settable = ", ".join(literal(each) for each in SETTABLE)
    yield "ALTER FUNCTION pg_catalog.set_config(text, text, boolean) RENAME TO set_config_unchecked"
    yield f"""CREATE FUNCTION
        pg_catalog.set_config(setting_name text, new_value text, is_local boolean) RETURNS text
        LANGUAGE plpgsql VOLATILE SECURITY DEFINER AS $set$
        BEGIN
            IF pg_catalog.lower(setting_name) OPERATOR(pg_catalog.=) ANY (ARRAY[{settable}]) THEN
                RETURN pg_catalog.set_config_unchecked(setting_name, new_value, is_local);
            END IF;
            RAISE insufficient_privilege USING
                MESSAGE = pg_catalog.format('the setting %s can''t be changed by set_config', setting_name),
                HINT = 'Use SET; settings of dither are set by SET dp.epsilon = 0.1.';
        END $set$"""
    yield "GRANT EXECUTE ON FUNCTION pg_catalog.set_config(text, text, boolean) TO PUBLIC"
    # lists of roles show one's own and the superuser's; a role's name can still be found by guessing its number
    for view, number in (("pg_roles", "oid"), ("pg_user", "usesysid"), ("pg_group", "grosysid")):
        yield f"""DO $do$
            DECLARE everybody text := rtrim(pg_get_viewdef('pg_catalog.{view}'::regclass), '; ');
            BEGIN
                EXECUTE 'CREATE OR REPLACE VIEW pg_catalog.{view} AS SELECT * FROM (' || everybody ||
                    ') AS r WHERE pg_catalog.pg_has_role(r.{number}, ''MEMBER'') OR r.{number} = 10';
            END $do$"""  # noqa: S608
    yield _empty_views()
    yield "REVOKE ALL ON LANGUAGE plpgsql FROM PUBLIC"
    yield "REVOKE UPDATE ON pg_catalog.pg_settings FROM PUBLIC"


def _empty_views() -> str:
    """The statement that takes the rows from views; who may read them, and what their columns are, stays."""
    emptied = " OR ".join(f"relname SIMILAR TO {literal(each)} ESCAPE '\\'" for each in EMPTIED)
    return f"""DO $do$
        DECLARE each record;
        BEGIN
            FOR each IN
                SELECT c.relname AS view, string_agg(
                    format('NULL::%s AS %I', format_type(a.atttypid, a.atttypmod), a.attname), ', ' ORDER BY a.attnum
                ) AS columns
                FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0
                WHERE c.relnamespace = 'pg_catalog'::regnamespace AND c.relkind = 'v' AND ({emptied})
                GROUP BY c.relname
            LOOP
                EXECUTE format(
                    'CREATE OR REPLACE VIEW pg_catalog.%I AS SELECT %s WHERE false', each.view, each.columns
                );
            END LOOP;
        END $do$"""  # noqa: S608
