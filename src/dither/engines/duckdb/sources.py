"""The owner's tables as DuckDB has them: opened read-only, every column read in its declared kind, never raising.

The connection is locked before the first question: no file but the declared ones can be opened, no setting changed, no
extension loaded. Every table is looked at once, so that no question can fail because of what a row says; what is found
is for the owner alone.
"""

# ruff: noqa: S608 (all of it is generated from plans: names are quoted, literals written by kind)

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

import duckdb

from dither.engines.duckdb.connections import CHANGEABLE, Opened, State, fingerprint, open_database, state_of
from dither.engines.duckdb.functions import DUCKDB, FIRST_DAY, FIRST_MOMENT, LAST_DAY, LAST_MOMENT, ZERO
from dither.engines.duckdb.intake import CHANGED, TableReader, is_csv, key_of_table, key_of_version, look_at, reader_of
from dither.engines.duckdb.spellings import id_of, read_text
from dither.engines.files.copies import Accepted, AcceptedRecord, Copies
from dither.engines.relations import TableSource, quoted, text_literal
from dither.errors import SourceError
from dither.query.intake import Intake, TableReport, expect_acceptable
from dither.query.kinds import Kind
from dither.query.schema import Schema, TableFacts


def expect_separate(files: Mapping[str, Sequence[Path]], schema: Schema) -> None:
    """A file with protected rows is read once, and under one name: raises SourceError.

    Twice in one table, or in two where the row is the unit, a row would count twice; in a public table it would be no
    secret. Links and patterns give one file several names, so files are compared by device and number.
    """
    readers: dict[tuple[int, int], list[TableFacts]] = {}
    for name, paths in files.items():
        table = schema.tables.get(name)
        if table is None:
            continue
        for path in paths:
            facts = path.stat()
            others = readers.setdefault((facts.st_dev, facts.st_ino), [])
            for other in others:
                if other is table:
                    raise SourceError(f"table {name} reads {path} more than once: list each file once")
                if other.private != table.private or (table.private and None in (table.unit_column, other.unit_column)):
                    raise SourceError(
                        f"tables {other.name} and {name} read the same file, {path}: leave one of them out"
                    )
            others.append(table)


# ---------------------------------------------------------------------------------------------- tables


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


def in_kind(sql: str, engine_type: str, kind: Kind) -> str | None:
    """A column of some type as values of a kind: NULL where a value can't be one, None where the type can't be.

    Dates and timestamps outside of the years 1 to 9999, infinite ones too, are NULL: no language that receives an
    answer has them, and an error there would tell of them.
    """
    base = base_type(engine_type)
    if base in ("VARCHAR", "ENUM") and kind is not Kind.TEXT:
        return read_text(sql if base == "VARCHAR" else f"CAST({sql} AS VARCHAR)", kind)
    integer, number = base in _NARROW or base in _WIDE, base in ("DECIMAL", "FLOAT", "DOUBLE")
    match kind:
        case Kind.BOOLEAN if base == "BOOLEAN":
            return sql
        case Kind.BOOLEAN if integer:
            return f"({sql} <> 0)"
        case Kind.INTEGER if integer or number or base == "BOOLEAN":
            return sql if base == "BIGINT" else DUCKDB.whole(sql)
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

    A text that is declared of another kind is read as that: '7' and '07' are one unit then, and making two units one is
    always safe. Nobody is called NaN, NA or nothing: that is NULL.
    """
    base = base_type(engine_type)
    if base in _NARROW:
        return (sql if base == "BIGINT" else f"CAST({sql} AS BIGINT)"), "BIGINT"
    if base in ("VARCHAR", "ENUM"):
        text = sql if base == "VARCHAR" else f"CAST({sql} AS VARCHAR)"
        if declared in (None, Kind.TEXT):
            return id_of(text), "VARCHAR"
        value = read_text(text, declared)
        if declared is Kind.INTEGER:
            return value, "BIGINT"
        return (_id_of_double(value) if declared is Kind.DOUBLE else f"CAST({value} AS VARCHAR)"), "VARCHAR"
    if base in _TEXTS:
        return f"CAST({sql} AS VARCHAR)", "VARCHAR"
    if base in ("FLOAT", "DOUBLE"):
        return _id_of_double(f"CAST({sql} AS DOUBLE)"), "VARCHAR"
    if base == "BLOB":
        return f"hex({sql})", "VARCHAR"
    return (f"CAST({sql} AS VARCHAR)", "VARCHAR") if base in _OTHER_UNITS else None


def _id_of_double(sql: str) -> str:
    """−0 and 0 are one unit, and NaN is none."""
    return f"CASE WHEN NOT isnan({sql}) THEN CAST({sql} + {ZERO} AS VARCHAR) END"


def open_sources(origin: Origin, schema: Schema, settings: Mapping[str, str], intake: Intake) -> Opened:
    """Connect to the owner's data and check that it is what the schema says; raises SourceError."""
    readers: dict[str, TableReader] = {}
    if isinstance(origin, Mapping):
        tables = {}
        for name, named in origin.items():
            with _stale_removed(name, replace(intake, names_only=False)):
                tables[name] = _expanded(name, named)
        expect_separate(tables, schema)
        files_of = {name: tables.get(name, ()) for name in schema.tables}
        files = tuple(path for paths in tables.values() for path in paths)
    else:
        path = Path(origin)
        _check_file(path)
        files = (path.resolve(), path.resolve().with_name(path.resolve().name + ".wal"))
        files_of = dict.fromkeys(schema.tables, files)
    state = state_of(files)
    trimmed = intake.trim and isinstance(origin, Mapping) and any(is_csv(paths) for paths in tables.values())
    reading = " trimmed" if trimmed else ""
    if intake.accepted not in (None, fingerprint(state) + reading):
        raise SourceError("the data isn't what was opened before any more: open the policy again")
    try:
        if isinstance(origin, Mapping):
            if _cleans(intake) and intake.copies is not None and any(is_csv(paths) for paths in tables.values()):
                # before there is one: whatever happens then, it is found again
                AcceptedRecord(intake.record).keep_place(intake.dataset, intake.copies.resolve(), intake.owner)
            for name, paths in tables.items():
                with _stale_removed(name, intake):
                    readers[name] = reader_of(name, schema.tables.get(name), paths, intake, settings)
            database = open_database(None, settings, partial(_make_views, readers))
        else:
            database = open_database(path, settings, partial(_lock, allowed=()))
    except BaseException:
        _let_go(readers)
        raise
    connection = None
    try:
        connection = database.connection()
        catalogue = _catalogue(connection)
        collated = _collated(connection)
        unique, sizes = _unique_keys(connection), _sizes(connection)
        sources = {name: _source(table, catalogue, collated=name in collated) for name, table in schema.tables.items()}
        _check_units(schema, catalogue)
        for name, source in sources.items():
            _try_out(connection, name, source)
            _check_collation(connection, source)
        record = AcceptedRecord(intake.record)
        seen = {name: key_of_table(table, files_of[name], intake) for name, table in schema.tables.items()}
        keys = {name: key_of_version(table, files_of[name], intake) for name, table in schema.tables.items()}
        reports: dict[str, TableReport] = {}
        news: dict[str, Accepted] = {}
        if not intake.names_only:
            for name, source in sources.items():
                known = record.found(keys[name])
                counted = readers[name].counted if name in readers else None
                if known is not None and known.seen == seen[name]:
                    reports[name] = known.report
                elif intake.accepted is None:  # otherwise the owner's process has looked at this very version
                    found = look_at(connection, schema.tables[name], source, catalogue[name], counted)
                    if known is not None:
                        found = replace(found, accepted=True, new=found != known.report)
                    reports[name] = found
                    news[keys[name]] = Accepted(found, seen[name])
            sources = {name: replace(source, rows=sizes.get(name)) for name, source in sources.items()}
        for name, source in sources.items():
            _check_unique(connection, schema.tables[name], source)
        _expect_unchanged(files, state)
        if intake.accepted is None:
            expect_acceptable(reports.values(), intake.limits)
            record.add(news)
    except BaseException:
        database.release(connection)
        _let_go(readers)
        raise
    database.rest(connection)
    held = tuple(reader.held for reader in readers.values() if reader.held is not None)
    opened = Opened(
        database=database,
        connection=connection,
        catalogue=catalogue,
        unique=unique,
        sources=sources,
        files=files,
        state=state,
        reading=reading,
        held=held,
        copied=state_of(copy.path for copy in held),
        reports=tuple(reports.values()),
        names_only=intake.names_only,
    )
    if _cleans(intake):
        _remove_old_copies(intake, set(opened.copies))
    return opened


def _cleans(intake: Intake) -> bool:
    """Whether it is the owner who opens, and not a further process of a server or somebody who looks at names."""
    return not intake.names_only and intake.accepted is None


def _remove_old_copies(intake: Intake, keep: set[Path]) -> None:
    """Copies of what isn't there any more, wherever they were kept: the policy may have named other places before.

    What is still in use stays, and so does the memory of its place.
    """
    record = AcceptedRecord(intake.record)
    places = record.places(intake.dataset)
    # the owner changes when the ledger moves, and copies may have moved with it
    owners = {owner for _, owner in places}
    named = {folder.resolve() for folder in (intake.copies, intake.unwanted) if folder is not None}
    empty = {
        folder: Copies(folder, intake.owner).clean({path.resolve() for path in keep}, owners=owners)
        for folder in named | {folder for folder, _ in places}
    }
    current = None if intake.copies is None else (intake.copies.resolve(), intake.owner)
    record.drop_places(intake.dataset, [place for place in places if place != current and empty[place[0]]])


def _expect_unchanged(files: Sequence[Path], state: State) -> None:
    if state_of(files) != state:
        raise SourceError(CHANGED)


def _let_go(readers: Mapping[str, TableReader]) -> None:
    for reader in readers.values():
        if reader.held is not None:
            reader.held.release()


@contextmanager
def _stale_removed(table: str, intake: Intake) -> Iterator[None]:
    """Where a table's files are gone or can't be read, copies of what they held before go too."""
    try:
        yield
    except SourceError:
        if intake.copies is not None and _cleans(intake):
            Copies(intake.copies, intake.owner).clean(set(), table=table)
        raise


# ------------------------------------------------------------------ connections


def _lock(connection: duckdb.DuckDBPyConnection, allowed: Sequence[Path]) -> None:
    """Close every way out of the connection, and see that it is closed."""
    if allowed:
        listed = ", ".join(text_literal(str(path)) for path in allowed)
        connection.execute(f"SET allowed_paths = [{listed}]")
    connection.execute("SET enable_external_access = false")
    with suppress(duckdb.CatalogException):  # the lock of older versions has no exceptions
        connection.execute(f"SET allowed_configs = [{text_literal(CHANGEABLE)}]")
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


def _make_views(readers: Mapping[str, TableReader], connection: duckdb.DuckDBPyConnection) -> None:
    for name, reader in readers.items():
        try:
            connection.execute(f"CREATE VIEW {quoted(name)} AS {reader.sql}")
        except duckdb.Error:
            ending = reader.opens[0].suffix
            raise SourceError(f"the files of table {name} can't be read: are they all {ending}, and whole?") from None
    _lock(connection, [path for reader in readers.values() for path in reader.opens])


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


def _unique_keys(connection: duckdb.DuckDBPyConnection) -> dict[str, tuple[tuple[str, ...], ...]]:
    """What the catalogue holds to be unique: primary keys, and other keys of columns that are never NULL."""
    here = "schema_name = 'main' AND database_name = current_database()"
    rows = connection.execute(
        f"SELECT table_name, constraint_column_names FROM duckdb_constraints() WHERE {here} "
        "AND constraint_type IN ('PRIMARY KEY', 'UNIQUE') ORDER BY table_name, constraint_index"
    ).fetchall()
    nullable = set(
        connection.execute(
            f"SELECT table_name, column_name FROM duckdb_columns() WHERE {here} AND is_nullable"
        ).fetchall()
    )
    found: dict[str, tuple[tuple[str, ...], ...]] = {}
    for table, columns in rows:
        key = tuple(columns)
        if not any((table, column) in nullable for column in key) and key not in found.get(table, ()):
            found[table] = (*found.get(table, ()), key)
    return found


def _sizes(connection: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """About how many rows each table has; views, which files are read through, don't say."""
    rows = connection.execute(
        "SELECT table_name, estimated_size FROM duckdb_tables() WHERE NOT internal AND schema_name = 'main' "
        "AND database_name = current_database() AND estimated_size IS NOT NULL"
    ).fetchall()
    return dict(rows)


def _collated(connection: duckdb.DuckDBPyConnection) -> set[str]:
    """Tables whose texts may compare by something else than their bytes; views hide it, so they may too."""
    rows = connection.execute("SELECT table_name FROM duckdb_tables() WHERE sql ILIKE '%collate%'").fetchall()
    rows += connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()
    return {name for (name,) in rows}


def _source(table: TableFacts, catalogue: Mapping[str, Mapping[str, str]], *, collated: bool) -> TableSource:
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
        return TableSource(relation=relation, private=table.private, columns=columns)
    sql = _read(table.unit_column, table, present, collated=collated)
    declared = table.columns.get(table.unit_column)
    unit = unit_of(sql, present[table.unit_column], declared.kind if declared else None)
    if unit is None:
        kind = present[table.unit_column]
        raise SourceError(f"column {table.name}.{table.unit_column} has type {kind}, which can't identify a unit")
    return TableSource(
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
        f"{table.name}.{table.unit_column}": _type_of_unit(table, catalogue[table.name][table.unit_column])
        for table in schema.tables.values()
        if table.private and table.unit_column is not None
    }
    odd = {name: kind for name, kind in types.items() if base_type(kind) not in _NARROW | _TEXTS}
    if odd and len(set(types.values())) > 1:
        listed = ", ".join(f"{name} ({kind})" for name, kind in types.items())
        raise SourceError(f"columns that identify units must have one type, an integer or text at best; got {listed}")


def _type_of_unit(table: TableFacts, engine_type: str) -> str:
    declared = table.columns.get(table.unit_column or "")
    if declared is None or declared.kind in (Kind.TEXT, Kind.INTEGER) or base_type(engine_type) not in _TEXTS:
        return engine_type
    return f"{engine_type} read as {declared.kind.value}"


def _try_out(connection: duckdb.DuckDBPyConnection, name: str, source: TableSource) -> None:
    listed = ", ".join([*source.columns.values(), *([source.unit] if source.unit else [])]) or "1"
    try:
        connection.execute(f"SELECT {listed} FROM {source.relation} AS r LIMIT 0").fetchall()
    except duckdb.Error:
        raise SourceError(f"table {name} can't be read: if it is a view, it may need files or extensions") from None


def _check_collation(connection: duckdb.DuckDBPyConnection, source: TableSource) -> None:
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


def _check_unique(connection: duckdb.DuckDBPyConnection, table: TableFacts, source: TableSource) -> None:
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
