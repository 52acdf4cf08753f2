"""Files as DuckDB reads them: CSV only after a strict check, and every table looked at once before it is asked about.

A question must never fail because of what one person's row says: a failure would tell of the row, for any ε. So
whatever can fail in reading does so here, where the owner is told, and before anything is charged.
"""

# ruff: noqa: S608 (names are quoted, literals written by kind; nothing here comes from analysts)

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq

from dither.engines.duckdb.connections import open_database
from dither.engines.duckdb.functions import DUCKDB
from dither.engines.duckdb.spellings import missing, read_id, read_text
from dither.engines.files.copies import Copies, Held, key_of, looked_at, versions
from dither.engines.files.strict_csv import LONGEST_RECORD, MOST_FAULTS, Checked, Head, check_csv, head_of
from dither.engines.relations import TableSource, quoted, text_literal
from dither.errors import SourceError
from dither.query.intake import Intake, Left, TableReport
from dither.query.kinds import Kind
from dither.query.schema import ColumnFacts, TableFacts

# what is read from the same bytes when this number is the same
_READER = 2
_COUNTED = "dither.counted"
CHANGED = "the data changed while it was being opened: open it again when it is whole"
_TEXTS = frozenset(("VARCHAR", "ENUM"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What is counted in CSV files as they stand, by column.

    ``missing`` are fields that say that there is no value, ``blanks`` texts that keep blanks around them.
    """

    missing: Mapping[str, int]
    blanks: Mapping[str, int]

    def to_json(self) -> str:
        """For the copy."""
        return json.dumps({"missing": dict(self.missing), "blanks": dict(self.blanks)})

    @classmethod
    def from_json(cls, text: bytes) -> Counted:
        """From the copy."""
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReader:
    """What follows FROM for the files of a table, and which files that opens; ``counted`` is about CSV files alone."""

    sql: str
    opens: tuple[Path, ...]
    counted: Counted | None = None
    held: Held | None = None


# ------------------------------------------------------------------ files


def is_csv(paths: Sequence[Path]) -> bool:
    """Whether all of the files are CSV by their names."""
    return _endings(paths) <= {"csv", "tsv"}


def _endings(paths: Sequence[Path]) -> set[str]:
    return {path.name.lower().removesuffix(".gz").rpartition(".")[2] for path in paths}


def reader_of(
    table: str, facts: TableFacts | None, paths: tuple[Path, ...], intake: Intake, settings: Mapping[str, str]
) -> TableReader:
    """How the files of a table are read; CSV files of a declared table are checked, and copied where that is wanted.

    Raises SourceError with the line and column of every fault.
    """
    endings = _endings(paths)
    if endings == {"parquet"}:
        listed = ", ".join(text_literal(str(path)) for path in paths)
        # Writers leave NaN out of a file's statistics. Where DuckDB believes them, whether a NaN passes a comparison
        # depends on the other rows of the file: one unit would decide about the rows of all others.
        options = "hive_partitioning = false, union_by_name = true, can_have_nan = true"
        return TableReader(sql=f"SELECT * FROM read_parquet([{listed}], {options})", opens=paths)
    if len(endings) != 1 or not is_csv(paths):
        raise SourceError(f"table {table} must come from .parquet, .csv or .tsv files, all of one sort")
    heads = [head_of(path, delimiter=intake.delimiter, header=intake.header) for path in paths]
    if len({head.names for head in heads}) != 1:
        raise SourceError(f"the files of table {table} have different columns in their first lines")
    if facts is None or intake.names_only:
        # no value is read, so it doesn't matter yet how lines end
        raw = _read_csv([(path, head, "\n") for path, head in zip(paths, heads, strict=True)])
        typed = raw if facts is None else _typed(facts, heads[0].names, raw, trim=intake.trim)
        return TableReader(sql=typed, opens=paths)
    return _checked_csv(facts, paths, heads, intake, settings)


def _checked_csv(
    facts: TableFacts, paths: tuple[Path, ...], heads: Sequence[Head], intake: Intake, settings: Mapping[str, str]
) -> TableReader:
    names = heads[0].names
    _typed(facts, names, "", trim=intake.trim)  # whether the columns are there is said before anything takes long

    def checked(connection: duckdb.DuckDBPyConnection) -> tuple[str, Counted]:
        found = [check_csv(path, head) for path, head in zip(paths, heads, strict=True)]
        _expect_no_faults(facts.name, paths, found)
        raw = _read_csv([(path, head, one.line_end) for path, head, one in zip(paths, heads, found, strict=True)])
        typed = _typed(facts, names, raw, trim=intake.trim)
        return typed, _count(connection, facts, names, raw, found, trim=intake.trim)

    if intake.copies is None:
        with _aside(settings) as connection:
            typed, counted = checked(connection)
        return TableReader(sql=typed, opens=paths, counted=counted)
    key = key_of_table(facts, paths, intake)

    def make(path: Path) -> None:
        with _aside(settings) as connection:
            _write_copy(connection, *checked(connection), path)
        if key_of_table(facts, paths, intake) != key:
            raise SourceError(CHANGED)

    held = Copies(intake.copies, intake.owner).hold(facts.name, key, make)
    kept = pq.read_metadata(held.path).metadata or {}
    return TableReader(
        sql=f"SELECT * FROM read_parquet([{text_literal(str(held.path))}], can_have_nan = true)",
        opens=(held.path,),
        counted=Counted.from_json(kept[_COUNTED.encode()]),
        held=held,
    )


def _expect_no_faults(table: str, paths: Sequence[Path], found: Sequence[Checked]) -> None:
    lines = [f"  {path.name}, {fault}" for path, one in zip(paths, found, strict=True) for fault in one.faults]
    if not lines:
        return
    more = "\n  … and perhaps more behind these" if len(lines) >= MOST_FAULTS else ""
    raise SourceError(
        f"the files of table {table} aren't CSV that every reader reads alike (RFC 4180), so nothing is read from "
        "them:\n" + "\n".join(lines[:MOST_FAULTS]) + more
    )


def _read_csv(files: Sequence[tuple[Path, Head, str]]) -> str:
    """A SELECT of every field as text. Without detection: everything is known, and nothing may depend on values."""
    groups: dict[tuple[str, str, bool], list[Path]] = {}
    for path, head, line_end in files:
        groups.setdefault((head.delimiter, line_end, path.suffix.lower() == ".gz"), []).append(path)
    names = ", ".join(f"{text_literal(name)}: 'VARCHAR'" for name in files[0][1].names)
    header = str(files[0][1].header).lower()
    parts = []
    # how lines end isn't said: DuckDB finds nothing in a file with CRLF where it is
    for (delimiter, _, packed), paths in groups.items():
        listed = ", ".join(text_literal(str(path)) for path in paths)
        options = (
            f"auto_detect = false, header = {header}, delim = {text_literal(delimiter)}, quote = '\"', escape = '\"', "
            f"compression = '{'gzip' if packed else 'none'}', strict_mode = true, "
            f"null_padding = false, ignore_errors = false, max_line_size = {LONGEST_RECORD + 2}, "
            "hive_partitioning = false"
        )
        parts.append(f"SELECT * FROM read_csv([{listed}], {options}, columns = {{{names}}})")
    return " UNION ALL ".join(parts)


# ------------------------------------------------------------------ typed columns


def _typed(facts: TableFacts, names: Sequence[str], raw: str, *, trim: bool) -> str:
    """The declared columns of CSV files, each in its kind, and no others."""
    wanted = [*facts.columns, *([facts.unit_column] if facts.unit_column else [])]
    for name in wanted:
        if name not in names:
            raise SourceError(f"table {facts.name} has no column {name}; it has {', '.join(names)}")
    listed = [f"{_value(name, facts, trim=trim)} AS {quoted(name)}" for name in dict.fromkeys(wanted)]
    return f"SELECT {', '.join(listed) or 'TRUE AS row'} FROM ({raw}) AS r"


def _value(name: str, facts: TableFacts, *, trim: bool) -> str:
    sql, column = f"r.{quoted(name)}", facts.columns.get(name)
    if column is not None and column.kind is not Kind.TEXT:
        return read_text(sql, column.kind)
    if name == facts.unit_column:
        # wherever the id is used: one person must not be two
        return read_id(sql)
    trimmed = f"trim({sql}, ' ')"
    if trim or column is None:
        return f"nullif({trimmed}, '')" if trim else sql
    if not column.keys:
        return sql
    # blanks around a key, which aren't part of any that is listed
    listed = _listed(column)
    return f"CASE WHEN {sql} NOT IN ({listed}) AND {trimmed} IN ({listed}) THEN {trimmed} ELSE {sql} END"


def _listed(column: ColumnFacts) -> str:
    return ", ".join(DUCKDB.literal(key, column.kind) for key in column.keys or () if key is not None)


@contextmanager
def _aside(settings: Mapping[str, str]) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection for what is done before the one for questions is locked."""
    database = open_database(None, settings, lambda _: None)
    connection = None
    try:
        connection = database.connection()
        yield connection
    finally:
        database.release(connection)


def _count(
    connection: duckdb.DuckDBPyConnection,
    facts: TableFacts,
    names: Sequence[str],
    raw: str,
    found: Sequence[Checked],
    *,
    trim: bool,
) -> Counted:
    """Look at the fields as they stand. Also sees that DuckDB reads as many records and bytes as there are."""
    bytes_read = " + ".join(f"coalesce(sum(strlen(r.{quoted(name)})), 0)" for name in names)
    parts = []
    texts = [name for name, column in facts.columns.items() if column.kind is Kind.TEXT]
    for name in facts.columns:
        nothing = f"{_value(name, facts, trim=trim)} IS NULL" if name in texts else missing(f"r.{quoted(name)}")
        parts.append(f"count(*) FILTER (WHERE {nothing})")
    for name in texts:
        text = _value(name, facts, trim=trim)
        parts.append(f"count(*) FILTER (WHERE {text} LIKE ' %' OR {text} LIKE '% ')")
    try:
        row = connection.execute(
            f"SELECT {', '.join(['count(*)', f'CAST({bytes_read} AS BIGINT)', *parts])} FROM ({raw}) AS r"
        ).fetchone()
    except duckdb.Error:
        raise SourceError(
            f"DuckDB can't read the files of table {facts.name}, for no fault in them: use Parquet"
        ) from None
    assert row is not None
    if row[:2] != (sum(one.records for one in found), sum(one.content for one in found)):
        raise SourceError(f"DuckDB reads the files of table {facts.name} otherwise than they are: use Parquet")
    counts = iter(row[2:])
    return Counted(
        missing={name: next(counts) for name in facts.columns}, blanks={name: next(counts) for name in texts}
    )


def _write_copy(connection: duckdb.DuckDBPyConnection, typed: str, counted: Counted, path: Path) -> None:
    known = f"KV_METADATA {{{quoted(_COUNTED)}: {text_literal(counted.to_json())}}}"
    try:
        connection.execute(f"COPY ({typed}) TO {text_literal(str(path))} (FORMAT parquet, COMPRESSION zstd, {known})")
    except duckdb.Error:
        # all of it was read a moment ago
        raise SourceError(
            f"a copy of the data can't be written in {path.parent.parent}: is there enough room? Name another place "
            'under [source], as copies = "/data/copies", or write copies = false'
        ) from None


def key_of_table(facts: TableFacts, files: tuple[Path, ...], intake: Intake) -> str:
    """What tells a table that was looked at from any other: its files, and how they are read."""
    return key_of(_READER, duckdb.__version__, facts.name, _form(facts, intake), looked_at(files))


def key_of_version(facts: TableFacts, files: tuple[Path, ...], intake: Intake) -> str:
    """What tells a version of a table that the owner accepts from any other: the data's version and how it is read."""
    return key_of("version", _READER, facts.name, _form(facts, intake), versions(files))


def _form(facts: TableFacts, intake: Intake) -> list[Any]:
    columns = {
        name: [column.kind.value, None if column.keys is None else [str(key) for key in column.keys], column.hidden]
        for name, column in facts.columns.items()
    }
    return [facts.private, facts.unit_column, columns, intake.delimiter, intake.header, intake.trim]


# ------------------------------------------------------------------ looking at a table


def look_at(
    connection: duckdb.DuckDBPyConnection,
    facts: TableFacts,
    source: TableSource,
    types: Mapping[str, str],
    counted: Counted | None,
) -> TableReport:
    """Read every row of a table as questions will, and count what no answer will have; raises SourceError.

    Texts come first: on one that isn't UTF-8 some functions of DuckDB fail in a way that ends the whole database.
    """
    used = [*facts.columns, *([facts.unit_column] if facts.unit_column else [])]
    texts = [name for name in dict.fromkeys(used) if counted is None and _base(types[name]) in _TEXTS]
    for names in ([name] for name in texts) if not _are_texts(connection, source, texts) else ():
        if not _are_texts(connection, source, names):
            raise SourceError(
                f"column {facts.name}.{names[0]} holds text that isn't UTF-8, or can't be read: mend it there, or "
                "leave the column out of the policy"
            )
    parts = ["count(*)"]
    wanted: list[tuple[str, str, str]] = []
    for name, column in facts.columns.items():
        value = source.columns[name]
        there = "TRUE" if counted is not None else _there(f"r.{quoted(name)}", types[name], column.kind)
        parts.append(f"count(*) FILTER (WHERE {there} AND {value} IS NULL)")
        wanted.append(("unreadable", name, column.kind.value))
        if column.keys is not None and not column.hidden:
            parts.append(f"count(*) FILTER (WHERE {value} NOT IN ({_listed(column)}))")
            wanted.append(("unlisted", name, column.kind.value))
    if facts.private and facts.unit_column and source.unit is not None:
        parts.append(f"count(*) FILTER (WHERE {source.unit} IS NULL)")
        wanted.append(("without_unit", facts.unit_column, ""))
    values = [*source.columns.values(), *([source.unit] if source.unit is not None else [])]
    # so that every value is read: a count alone may be known without
    parts += [f"bit_xor(hash({value}))" for value in values]
    try:
        row = connection.execute(f"SELECT {', '.join(parts)} FROM {source.relation} AS r").fetchone()
    except duckdb.Error:
        raise _unreadable(connection, facts, source) from None
    assert row is not None
    counts = dict(zip(wanted, row[1:], strict=False))
    if counted is not None:
        nothing = counted.missing
        counts |= {which: count - nothing[which[1]] for which, count in counts.items() if which[0] == "unreadable"}
        shown = {name: count for name, count in counted.blanks.items() if not facts.columns[name].hidden}
        counts |= {("blanks", name, facts.columns[name].kind.value): count for name, count in shown.items()}
    left = [Left(why=why, column=name, kind=kind, rows=rows, of=row[0]) for (why, name, kind), rows in counts.items()]
    return TableReport(
        table=facts.name, rows=row[0], left=tuple(one for one in left if one.rows), csv=counted is not None
    )


def _base(engine_type: str) -> str:
    return "" if engine_type.endswith("]") else engine_type.upper().partition("(")[0].strip()


def _are_texts(connection: duckdb.DuckDBPyConnection, source: TableSource, names: Sequence[str]) -> bool:
    """Whether columns hold UTF-8 alone; DuckDB makes sure only up to the first text in a block with an accent."""
    if not names:
        return True
    listed = ", ".join(f"max(strlen(decode(encode(CAST(r.{quoted(name)} AS VARCHAR)))))" for name in names)
    try:
        connection.execute(f"SELECT {listed} FROM {source.relation} AS r").fetchall()
    except duckdb.Error:
        return False
    return True


def _there(sql: str, engine_type: str, kind: Kind) -> str:
    """Whether a value is there at all: NA and NaN stand for one that is missing."""
    base = _base(engine_type)
    if base in _TEXTS and kind is not Kind.TEXT:
        return f"NOT {missing(f'CAST({sql} AS VARCHAR)')}"
    if base in ("FLOAT", "DOUBLE"):
        return f"({sql} IS NOT NULL AND NOT isnan({sql}))"
    return f"{sql} IS NOT NULL"


def _unreadable(connection: duckdb.DuckDBPyConnection, facts: TableFacts, source: TableSource) -> SourceError:
    """Which column can't be read."""
    for name, value in source.columns.items():
        try:
            connection.execute(f"SELECT bit_xor(hash({value})) FROM {source.relation} AS r").fetchall()
        except duckdb.Error:
            return SourceError(
                f"column {facts.name}.{name} can't be read to the end: the file is damaged, or, in a view, a value "
                "can't be computed"
            )
    return SourceError(f"table {facts.name} can't be read to the end: its file may be damaged")
