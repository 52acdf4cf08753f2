"""The owner's tables as DuckDB has them: opened read-only, every column read in its declared kind, never raising.

The connection is locked before the first question: no file but the declared ones can be opened, no setting changed, no
extension loaded. Nothing here reads values, except public ones that are declared as unique, and the texts of small
tables to see how they can be fetched.
"""

# ruff: noqa: S608 (all of it is generated from plans: names are quoted, literals written by kind)

from __future__ import annotations

import csv
import gzip
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

import duckdb

from dither.engines.dialect import quoted, text_literal
from dither.engines.duckdb_connections import Database, open_database
from dither.engines.duckdb_functions import FIRST_DAY, FIRST_MOMENT, LAST_DAY, LAST_MOMENT, ZERO, parsed
from dither.engines.duckdb_results import MOST_FEW
from dither.engines.files import State, expect_separate, state_of
from dither.engines.sql import Source
from dither.errors import SourceError
from dither.query.kinds import Kind
from dither.query.schema import Schema, TableFacts

Files: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
Origin: TypeAlias = str | os.PathLike[str] | Mapping[str, Files]

_NARROW = frozenset(("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"))
_WIDE = frozenset(("UBIGINT", "HUGEINT", "UHUGEINT"))
_TEXTS = frozenset(("VARCHAR", "ENUM", "UUID"))
_MOMENTS = frozenset(("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE"))
_OTHER_UNITS = frozenset((*_WIDE, *_MOMENTS, "DECIMAL", "FLOAT", "DOUBLE", "BOOLEAN", "DATE", "BLOB"))


def base_type(engine_type: str) -> str:
    """The name of a type without its parameters; empty for lists, structs and the like."""
    if engine_type.endswith("]"):
        return ""
    return engine_type.upper().partition("(")[0].strip()


def kind_of(engine_type: str) -> Kind | None:
    """The kind that suits a type of DuckDB."""
    base = base_type(engine_type)
    if base == "DECIMAL":
        return Kind.INTEGER if re.fullmatch(r"DECIMAL\(\d+, *0\)", engine_type.upper()) else Kind.DOUBLE
    kinds = {
        **dict.fromkeys((*_NARROW, *_WIDE), Kind.INTEGER),
        **dict.fromkeys(("FLOAT", "DOUBLE"), Kind.DOUBLE),
        **dict.fromkeys(_TEXTS, Kind.TEXT),
        **dict.fromkeys(_MOMENTS, Kind.TIMESTAMP),
        "BOOLEAN": Kind.BOOLEAN,
        "DATE": Kind.DATE,
    }
    return kinds.get(base)


def in_kind(sql: str, engine_type: str, kind: Kind) -> str | None:
    """A column of some type as values of a kind: NULL where a value can't be one, None where the type can't be.

    Dates and timestamps outside of the years 1 to 9999, infinite ones too, are NULL: no language that receives an
    answer has them, and an error there would tell of them.
    """
    base = base_type(engine_type)
    if base in ("VARCHAR", "ENUM") and kind is not Kind.TEXT:
        return parsed(sql if base == "VARCHAR" else f"CAST({sql} AS VARCHAR)", kind)
    integer, number = base in _NARROW or base in _WIDE, base in ("DECIMAL", "FLOAT", "DOUBLE")
    match kind:
        case Kind.BOOLEAN if base == "BOOLEAN":
            return sql
        case Kind.BOOLEAN if integer:
            return f"({sql} <> 0)"
        case Kind.INTEGER if integer or number or base == "BOOLEAN":
            return sql if base == "BIGINT" else f"TRY_CAST({sql} AS BIGINT)"
        case Kind.DOUBLE if integer or number:
            return sql if base == "DOUBLE" else f"TRY_CAST({sql} AS DOUBLE)"
        case Kind.TEXT if base in _TEXTS or integer or base in ("BOOLEAN", "DATE"):
            return sql if base == "VARCHAR" else f"CAST({sql} AS VARCHAR)"
        case Kind.DATE if base == "DATE":
            return f"CASE WHEN {sql} BETWEEN {FIRST_DAY} AND {LAST_DAY} THEN {sql} END"
        case Kind.TIMESTAMP if base == "DATE":
            return f"CASE WHEN {sql} BETWEEN {FIRST_DAY} AND {LAST_DAY} THEN CAST({sql} AS TIMESTAMP) END"
        case Kind.DATE | Kind.TIMESTAMP if base in _MOMENTS:
            moment = sql if base == "TIMESTAMP" else f"TRY_CAST({sql} AS TIMESTAMP)"
            if base == "TIMESTAMP WITH TIME ZONE":
                # in UTC, whatever the session's zone
                moment = f"CASE WHEN isfinite({sql}) THEN make_timestamp(epoch_us({sql})) END"
            value = moment if kind is Kind.TIMESTAMP else f"CAST({moment} AS DATE)"
            return f"CASE WHEN {moment} BETWEEN {FIRST_MOMENT} AND {LAST_MOMENT} THEN {value} END"
    return None


def unit_of(sql: str, engine_type: str, declared: Kind | None) -> tuple[str, str] | None:
    """The id of a unit and its type: integers and text as they are, the rest as text that differs where values do.

    A text that is declared an integer is read as one: '7' and '07' are one unit then, and making two units one is
    always safe.
    """
    base = base_type(engine_type)
    if base in _NARROW:
        return (sql if base == "BIGINT" else f"CAST({sql} AS BIGINT)"), "BIGINT"
    if base == "VARCHAR" and declared is Kind.INTEGER:
        return parsed(sql, Kind.INTEGER), "BIGINT"
    if base in _TEXTS:
        return (sql if base == "VARCHAR" else f"CAST({sql} AS VARCHAR)"), "VARCHAR"
    if base in ("FLOAT", "DOUBLE"):
        # −0 and 0 are one unit, and so are all NaN
        double = f"CAST({sql} AS DOUBLE)"
        return f"CASE WHEN isnan({double}) THEN 'nan' ELSE CAST({double} + {ZERO} AS VARCHAR) END", "VARCHAR"
    if base == "BLOB":
        return f"hex({sql})", "VARCHAR"
    return (f"CAST({sql} AS VARCHAR)", "VARCHAR") if base in _OTHER_UNITS else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A locked database with what the catalogue says, and the files that it is made of."""

    database: Database
    connection: duckdb.DuckDBPyConnection
    catalogue: Mapping[str, Mapping[str, str]]
    sources: Mapping[str, Source]
    files: tuple[Path, ...]
    state: State


def open_sources(origin: Origin, schema: Schema, settings: Mapping[str, str]) -> Opened:
    """Connect to the owner's data and check that it is what the schema says; raises SourceError."""
    if isinstance(origin, Mapping):
        tables = {name: _expanded(name, files) for name, files in origin.items()}
        expect_separate(tables, schema)
        files = tuple(path for paths in tables.values() for path in paths)
        state = state_of(files)
        database = open_database(None, settings, partial(_make_views, tables))
    else:
        path = Path(origin)
        _check_file(path)
        files = (path.resolve(), path.resolve().with_name(path.resolve().name + ".wal"))
        state = state_of(files)
        database = open_database(path, settings, partial(_lock, allowed=()))
    connection = None
    try:
        connection = database.connection()
        catalogue = _catalogue(connection)
        collated = _collated(connection)
        sizes = _sizes(connection)
        sources = {name: _source(table, catalogue, collated=name in collated) for name, table in schema.tables.items()}
        _check_units(schema, catalogue)
        for name, source in list(sources.items()):
            _try_out(connection, name, source)
            _check_collation(connection, source)
            _check_unique(connection, schema.tables[name], source)
            rows = sizes.get(name)
            if rows is not None and (rows > MOST_FEW or _valid_texts(connection, schema.tables[name], source)):
                sources[name] = replace(source, rows=rows)
    except BaseException:
        database.release(connection)
        raise
    return Opened(
        database=database, connection=connection, catalogue=catalogue, sources=sources, files=files, state=state
    )


# ------------------------------------------------------------------ connections


def _lock(connection: duckdb.DuckDBPyConnection, allowed: Sequence[Path]) -> None:
    """Close every way out of the connection, and see that it is closed."""
    if allowed:
        listed = ", ".join(text_literal(str(path)) for path in allowed)
        connection.execute(f"SET allowed_paths = [{listed}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    wanted = {"enable_external_access": "false", "lock_configuration": "true", "autoload_known_extensions": "false"}
    names = ", ".join(text_literal(name) for name in wanted)
    found = connection.execute(f"SELECT name, value FROM duckdb_settings() WHERE name IN ({names})").fetchall()
    if dict(found) != wanted:
        raise SourceError("DuckDB could not be locked against reading other files; this version can't be used")


def _check_file(path: Path) -> None:
    if path.is_dir():
        raise SourceError(f"{path} is a directory: name the file itself, or files like {path / '*.parquet'}")
    if not path.exists():
        raise SourceError(f"{path} does not exist: check the path")
    if not os.access(path, os.R_OK):
        raise SourceError(f"{path} can't be read by this user: check its permissions")


def _make_views(tables: Mapping[str, Sequence[Path]], connection: duckdb.DuckDBPyConnection) -> None:
    for name, paths in tables.items():
        try:
            connection.execute(f"CREATE VIEW {quoted(name)} AS SELECT * FROM {_reader(name, paths)}")
        except duckdb.Error:
            raise SourceError(f"the files of table {name} can't be read: are they all {paths[0].suffix}?") from None
    _lock(connection, [path for paths in tables.values() for path in paths])


def _expanded(table: str, files: Files) -> tuple[Path, ...]:
    given = [files] if isinstance(files, str | os.PathLike) else list(files)
    paths: list[Path] = []
    for item in map(Path, given):
        if any(character in item.name for character in "*?["):
            found = sorted(item.parent.glob(item.name))
            if not found:
                raise SourceError(f"no file matches {item}, from which table {table} should come")
            paths += found
        else:
            paths.append(item)
    if not paths:
        raise SourceError(f"table {table} needs at least one file")
    for path in paths:
        _check_file(path)
    return tuple(path.resolve() for path in paths)


def _reader(table: str, paths: Sequence[Path]) -> str:
    listed = "[" + ", ".join(text_literal(str(path)) for path in paths) + "]"
    names = {path.name.lower().removesuffix(".gz").rpartition(".")[2] for path in paths}
    if names == {"parquet"}:
        # Writers leave NaN out of a file's statistics. Where DuckDB believes them, whether a NaN passes a comparison
        # depends on the other rows of the file: one unit would decide about the rows of all others.
        return f"read_parquet({listed}, hive_partitioning = false, union_by_name = true, can_have_nan = true)"
    if len(names) == 1 and names <= {"csv", "tsv"}:
        delimiter = "," if names == {"csv"} else "\t"
        headers = {tuple(_header(path, delimiter)) for path in paths}
        if len(headers) != 1:
            raise SourceError(f"the files of table {table} have different columns in their first lines")
        columns = ", ".join(f"{text_literal(name)}: 'VARCHAR'" for name in headers.pop())
        options = f"header = true, delim = {text_literal(delimiter)}, quote = '\"', escape = '\"', ignore_errors = true"
        # without detection, which would look at values
        return f"read_csv({listed}, auto_detect = false, {options}, columns = {{{columns}}})"
    raise SourceError(f"table {table} must come from .parquet, .csv or .tsv files, all of one sort")


def _header(path: Path, delimiter: str) -> list[str]:
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as lines:
            names = next(csv.reader(lines, delimiter=delimiter), [])
    except (OSError, UnicodeDecodeError, csv.Error):
        raise SourceError(f"{path} is not a text file in UTF-8 with the names of columns in its first line") from None
    if not names or "" in names or len({name.lower() for name in names}) < len(names):
        raise SourceError(f"the first line of {path} must give every column a name of its own")
    return names


# ------------------------------------------------------------------ tables


def _catalogue(connection: duckdb.DuckDBPyConnection) -> dict[str, dict[str, str]]:
    rows = connection.execute(
        "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE NOT internal AND schema_name = 'main' "
        "AND database_name = current_database() ORDER BY table_name, column_index"
    ).fetchall()
    catalogue: dict[str, dict[str, str]] = {}
    for table, name, engine_type in rows:
        catalogue.setdefault(table, {})[name] = engine_type
    return catalogue


def _sizes(connection: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """About how many rows each table has; views, which files are read through, don't say."""
    rows = connection.execute(
        "SELECT table_name, estimated_size FROM duckdb_tables() WHERE NOT internal AND schema_name = 'main' "
        "AND database_name = current_database() AND estimated_size IS NOT NULL"
    ).fetchall()
    return dict(rows)


def _valid_texts(connection: duckdb.DuckDBPyConnection, table: TableFacts, source: Source) -> bool:
    """Whether all texts are valid UTF-8, which DuckDB makes sure of only up to the first one in a block with an accent.

    It can't make Python objects of others: a question would fail because of one unit's name. Arrow takes them as they
    are, so a table with such a text is one whose size isn't known.
    """
    texts = [sql for name, sql in source.columns.items() if table.columns[name].kind is Kind.TEXT]
    texts += [source.unit] if source.unit is not None and source.unit_type == "VARCHAR" else []
    if not texts:
        return True
    listed = ", ".join(f"max(strlen(decode(encode({sql}))))" for sql in texts)
    try:
        connection.execute(f"SELECT {listed} FROM {source.relation} AS r").fetchall()
    except duckdb.Error:
        return False
    return True


def _collated(connection: duckdb.DuckDBPyConnection) -> set[str]:
    """Tables whose texts may compare by something else than their bytes; views hide it, so they may too."""
    rows = connection.execute("SELECT table_name FROM duckdb_tables() WHERE sql ILIKE '%collate%'").fetchall()
    rows += connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()
    return {name for (name,) in rows}


def _source(table: TableFacts, catalogue: Mapping[str, Mapping[str, str]], *, collated: bool) -> Source:
    present = catalogue.get(table.name)
    if present is None:
        known = ", ".join(sorted(catalogue)) or "none"
        raise SourceError(f"the data has no table {table.name}; there is {known}")
    columns = {}
    for name, facts in table.columns.items():
        sql = _read(name, table, present, collated=collated)
        value = in_kind(sql, present[name], facts.kind)
        if value is None:
            raise SourceError(
                f"column {table.name}.{name} has type {present[name]}, which can't be read as {facts.kind.value}"
            )
        columns[name] = value
    relation = quoted(table.name)
    if not table.private or table.unit_column is None:
        return Source(relation=relation, private=table.private, columns=columns)
    sql = _read(table.unit_column, table, present, collated=collated)
    declared = table.columns.get(table.unit_column)
    unit = unit_of(sql, present[table.unit_column], declared.kind if declared else None)
    if unit is None:
        kind = present[table.unit_column]
        raise SourceError(f"column {table.name}.{table.unit_column} has type {kind}, which can't identify a unit")
    return Source(
        relation=relation,
        private=True,
        columns=columns,
        unit_column=table.unit_column,
        unit=unit[0],
        unit_type=unit[1],
    )


def _read(name: str, table: TableFacts, present: Mapping[str, str], *, collated: bool) -> str:
    if name not in present:
        raise SourceError(f"table {table.name} has no column {name}; it has {', '.join(present)}")
    sql = f"r.{quoted(name)}"
    return f'({sql} COLLATE "binary")' if collated and present[name] == "VARCHAR" else sql


def _check_units(schema: Schema, catalogue: Mapping[str, Mapping[str, str]]) -> None:
    """One person must have one id everywhere: types whose texts may differ for equal values must be the same."""
    types = {
        f"{table.name}.{table.unit_column}": catalogue[table.name][table.unit_column]
        for table in schema.tables.values()
        if table.private and table.unit_column is not None
    }
    odd = {name: kind for name, kind in types.items() if base_type(kind) not in _NARROW | _TEXTS}
    if odd and len(set(types.values())) > 1:
        listed = ", ".join(f"{name} ({kind})" for name, kind in types.items())
        raise SourceError(f"columns that identify units must have one type, an integer or text at best; got {listed}")


def _try_out(connection: duckdb.DuckDBPyConnection, name: str, source: Source) -> None:
    listed = ", ".join([*source.columns.values(), *([source.unit] if source.unit else [])]) or "1"
    try:
        connection.execute(f"SELECT {listed} FROM {source.relation} AS r LIMIT 0").fetchall()
    except duckdb.Error:
        raise SourceError(f"table {name} can't be read: if it is a view, it may need files or extensions") from None


def _check_collation(connection: duckdb.DuckDBPyConnection, source: Source) -> None:
    """Ids must be told apart as the database does it: where 'bob' equals 'BOB' there, they'd be two units here.

    DuckDB compares nothing under two different collations, which it says when a query is made, before any value is
    read; so a column that can be compared under either of these has none. That works for views too.
    """
    if source.unit_column is None or source.unit_type != "VARCHAR":
        return
    for collation in ("nocase", "noaccent"):
        compared = f"CAST(r.{quoted(source.unit_column)} AS VARCHAR) = ('' COLLATE {collation})"
        try:
            connection.execute(f"SELECT {compared} FROM {source.relation} AS r LIMIT 0").fetchall()
        except duckdb.BinderException:
            raise SourceError(
                f"column {source.unit_column} of {source.relation} has a collation, under which different texts are "
                "equal: store ids of units in a column without one, for instance all in lower case"
            ) from None


def _check_unique(connection: duckdb.DuckDBPyConnection, table: TableFacts, source: Source) -> None:
    """A public table must keep the promise that joins at row level rest on, in the kinds in which it is read.

    Values that differ in the file may be equal as their kind ('1' and '01' as integers, two times of one day as dates),
    and then a protected row would count twice. NULL equals nothing, so it may repeat. Public values are no secret.
    """
    if table.private:
        return
    for key in table.unique:
        names = sorted(key)
        columns = ", ".join(f"{source.columns[name]} AS c{place}" for place, name in enumerate(names))
        by = ", ".join(f"r.c{place}" for place in range(len(names)))
        known = " AND ".join(f"r.c{place} IS NOT NULL" for place in range(len(names)))
        rows = f"SELECT {columns} FROM {source.relation} AS r"
        sql = f"SELECT 1 FROM ({rows}) AS r WHERE {known} GROUP BY {by} HAVING count(*) > 1 LIMIT 1"
        try:
            repeated = connection.execute(sql).fetchall()
        except duckdb.Error:
            raise SourceError(f"table {table.name} can't be read: its file may be damaged") from None
        if repeated:
            listed = ", ".join(names)
            raise SourceError(
                f"public table {table.name} holds some values of {listed} more than once (as they are read here): "
                "remove the duplicates, or the line that declares them as unique"
            )
