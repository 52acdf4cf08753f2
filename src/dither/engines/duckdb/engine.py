"""The DuckDB engine: in the process, out of core, read-only, locked.

DuckDB's Python library parses and plans a query twice before it gives Arrow, once for the types and once to run it. For
small tables that takes longer than the query itself. Its DB-API plans once, but makes a Python object of every text.
"""

# ruff: noqa: S608 (all of it is generated from plans: names are quoted, literals written by kind)

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dither.engines.base import SHORTEST_SALT, EngineBroken, EngineFailure
from dither.engines.bounding import KEPT, LARGEST_CELL, CellsSql, Steps
from dither.engines.duckdb.behaviour import expect_behaviour, is_known_to_behave
from dither.engines.duckdb.connections import Opened, fingerprint, state_of
from dither.engines.duckdb.facts import beyond
from dither.engines.duckdb.functions import DUCKDB
from dither.engines.duckdb.group_choice import SAMPLING, Ids, keep_groups, sample_bins
from dither.engines.duckdb.rows import rows_sql
from dither.engines.duckdb.sources import Origin, open_sources
from dither.engines.matching import vouched_for
from dither.engines.relations import UNIT, Relations, TableSource
from dither.errors import InvalidParameter, SourceError
from dither.query.arrow import TYPES
from dither.query.intake import Beyond, Intake, TableReport
from dither.query.kinds import Kind
from dither.query.measure.measures import BinCounts, Measured, Measurement
from dither.query.plan.plan import JoinKind, JoinRows, Relation, Scan, Union
from dither.query.schema import Schema

T = TypeVar("T")
UNITS = "_units"
# An interrupt stops a query that runs, not one that is about to start, so it is repeated at this distance in seconds.
_PATIENCE = 0.05
# how DuckDB writes sizes, and less than which no engine gets
_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50}
_LEAST_MEMORY = 256 * 2**20


class DuckDBEngine:
    """Exact bounded cells from a DuckDB file, or from Parquet and CSV files; make one with ``open``.

    Several threads may call ``run`` at once. Ctrl-C stops a running query and passes through as KeyboardInterrupt.
    Engines of one process on the same file share one database. An engine belongs to the process that opened it: after
    a fork the child can't use it, and leaves it alone when it ends.
    """

    def __init__(self, opened: Opened, schema: Schema) -> None:
        self._opened, self._schema = opened, schema
        # by the thread that uses them
        self._running: dict[duckdb.DuckDBPyConnection, int] = {}
        self._idle = threading.Condition()
        self._closing = False
        # also when nobody closes it: a notebook's cell that is run again drops the engine before
        self._release = weakref.finalize(self, opened.release)

    @classmethod
    def open(
        cls,
        source: Origin,
        schema: Schema,
        *,
        threads: int | None = None,
        memory_limit: str | None = None,
        intake: Intake | None = None,
    ) -> DuckDBEngine:
        """Connect to a .duckdb file, or to files by table; raises SourceError where they aren't what the schema says.

        Every table is read once, so that no question fails because of a row.

        Args:
            source: A DuckDB file, or files by table.
            schema: Tables and columns as the policy declares them.
            threads: How many DuckDB uses; all of the machine's by default.
            memory_limit: Such as "4GiB"; most of the machine's memory by default. Intermediate results that don't fit
                go to a private directory that is removed on close.
            intake: How files are read, and where it is remembered that they were.
        """
        settings = {
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_community_extensions": "false",
            # results are sorted by key or counted, so the order of rows needn't be kept
            "preserve_insertion_order": "false",
        }
        if threads is not None:
            settings["threads"] = str(threads)
        if memory_limit is not None:
            settings["memory_limit"] = memory_limit
        _check_settings(settings)
        return cls(open_sources(source, schema, settings, intake or Intake()), schema)

    def describe(self) -> Mapping[str, Mapping[str, str]]:
        """Tables, their columns and DuckDB's types."""
        return self._opened.catalogue

    def unique_keys(self) -> Mapping[str, tuple[tuple[str, ...], ...]]:
        """By table the columns of PRIMARY KEY and, where nothing can be missing, of UNIQUE constraints."""
        return self._opened.unique

    def version(self) -> str:
        """A fingerprint of the files that are read, which are those found on opening: names, sizes, times of change.

        That of a CSV file is its own, whether or not a copy is read in its place; without that copy it is another.
        """
        self._expect_own_process()
        found = fingerprint(state_of(self._opened.files)) + self._opened.reading
        return found if state_of(self._opened.copies) == self._opened.copied else f"{found} without its copy"

    def unchanged(self) -> bool:
        """Whether every file is still the one that was opened, with the same size and time of change."""
        self._expect_own_process()
        return state_of(self._opened.files) == self._opened.state

    @property
    def reports(self) -> tuple[TableReport, ...]:
        """What was found when the tables were looked at; for the owner alone."""
        return self._opened.reports

    def beyond_facts(self) -> Mapping[str, tuple[Beyond, ...]]:
        """By table what the policy states of private rows and the data doesn't keep to; for the owner alone.

        Reads the tables of which something is stated.
        """
        with self._cursor() as cursor:
            tables = self._schema.tables.items()
            return {name: beyond(cursor, table, self._opened.sources[name]) for name, table in tables}

    def interrupt(self) -> None:
        """Stop what is running: those calls raise EngineFailure."""
        if not self._opened.database.forked:
            with self._idle:
                for cursor in self._running:
                    cursor.interrupt()

    def close(self) -> None:
        """Stop what is running, wait for it, close the connection and remove intermediate files. Idempotent."""
        if self._opened.database.forked:
            return
        with self._idle:
            self._closing = True
            while self._running:
                self.interrupt()
                if threading.get_ident() in self._running.values():
                    return  # called from a signal's handler in the middle of a query, which closes when it ends
                self._idle.wait(_PATIENCE)
            self._release()

    def _expect_own_process(self) -> None:
        if self._opened.database.forked:
            raise SourceError("the data was opened before this process was forked: open it again, after the fork")

    def __enter__(self) -> DuckDBEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------ running

    def run(self, measurement: Measurement, *, salt: bytes) -> Measured:
        """The exact, bounded cells of a measurement.

        Guarantee: for every salt, one unit changes at most ``groups`` rows of the result, and each cell of them by no
        more than what the measurement states; the result doesn't depend on the order of rows or on threads.
        """
        if len(salt) < SHORTEST_SALT:
            raise InvalidParameter(f"a salt needs at least {SHORTEST_SALT} random bytes")
        relations = Relations(DUCKDB, self._opened.sources, measurement.units)
        cells = CellsSql(relations, SAMPLING, measurement, salt)
        read = reader(measurement, self._opened.sources)

        def work(cursor: duckdb.DuckDBPyConnection) -> tuple[pa.Table, list[BinCounts], list[npt.NDArray[np.int64]]]:
            table = _totals(cursor, cells, measurement, read)
            bins = [_bins(cursor, cells, measurement, place, read) for place in range(len(measurement.bins))]
            size = table.num_rows if measurement.keys else 1
            distinct = [
                _numbers(read(cursor, cells.distinct(place).final), "n", size)
                if measurement.units == "row"
                else _vouched(cursor, cells, place, measurement.rows)
                for place in range(len(measurement.distinct))
            ]
            return table, bins, distinct

        with self._cursor() as cursor:
            table, bins, distinct = _stoppable(cursor, work)
        size = table.num_rows if measurement.keys else 1
        if any(found.size != size for found in distinct):
            raise EngineFailure("different values have other groups than the totals: did the data change?")
        for histogram in bins:
            if histogram.group.size and int(histogram.group.max()) >= size:
                raise EngineFailure("a histogram has more groups than the totals: did the data change?")
        return Measured(
            keys=_keys(table, measurement),
            size=size,
            totals=tuple(_numbers(table, f"_t{place}", size) for place in range(len(measurement.totals))),
            bins=tuple(bins),
            distinct=tuple(distinct),
        )

    def rows(self, table: str, columns: Sequence[str], *, rows: int, salt: bytes) -> pa.Table:
        """At most ``rows`` rows of each unit of a private table, sorted by all columns; see ``duckdb_rows``."""
        if len(salt) < SHORTEST_SALT:
            raise InvalidParameter(f"a salt needs at least {SHORTEST_SALT} random bytes")
        facts = self._schema.tables.get(table)
        if facts is None:
            raise InvalidParameter(f"there is no table {table}; there is {', '.join(self._schema.tables)}")
        source = self._opened.sources[table]
        sql = rows_sql(facts, source, columns, rows=rows, salt=salt, dialect=DUCKDB)
        with self._cursor() as cursor:
            found = _stoppable(cursor, lambda cursor: fetch(cursor, sql))
            arrays = [found.column(place).cast(TYPES[facts.columns[name].kind]) for place, name in enumerate(columns)]
            return pa.Table.from_arrays(arrays, names=list(columns))

    @contextmanager
    def _cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection for one measurement; the text of errors stays on the owner's side.

        No transaction holds its statements together: nothing writes to the database, a file is opened read-only and
        one in memory has views of files alone, which no transaction would keep from changing.
        """
        self._expect_own_process()
        if self._opened.names_only:
            raise EngineFailure("the data was opened for its names alone")
        with self._idle:
            if self._closing:
                raise EngineFailure("the engine is closed")
            try:
                cursor = self._opened.database.connection()
            except duckdb.Error as problem:
                raise self._failure(problem) from None
            self._running[cursor] = threading.get_ident()
        try:
            yield cursor
        except (duckdb.Error, pa.ArrowException, MemoryError) as problem:
            raise self._failure(problem) from None
        except RuntimeError as problem:
            # this is what DuckDB makes of a SIGINT that arrives while a query runs
            if str(problem) == "Query interrupted":
                raise KeyboardInterrupt from None
            raise self._failure(problem) from None
        except KeyboardInterrupt:
            cursor.interrupt()
            raise
        finally:
            # a fork in another thread ends up here in the child too, where locks may be held by nobody
            if not self._opened.database.forked:
                with self._idle:
                    self._opened.database.drop(cursor)
                    del self._running[cursor]
                    if self._closing and not self._running:
                        self._release()
                    self._idle.notify_all()

    def _failure(self, problem: BaseException) -> EngineFailure:
        """The failure to raise for a problem. After a fatal error DuckDB rejects every query."""
        cause = f"{type(problem).__name__}: {problem}"
        return EngineFailure(cause) if self._works() else EngineBroken(cause)

    def _works(self) -> bool:
        try:
            probe = self._opened.database.connection()
            try:
                probe.execute("SELECT 1").fetchall()
            finally:
                self._opened.database.drop(probe)
        except (duckdb.Error, RuntimeError):
            return False
        return True


def _stoppable(cursor: duckdb.DuckDBPyConnection, work: Callable[[duckdb.DuckDBPyConnection], T]) -> T:
    """Do the work, in a thread of its own where this is the main one, so that Ctrl-C stops it.

    Python tells the main thread alone of a signal, and DuckDB looks for one between its tasks, which may take hours.
    """
    if threading.current_thread() is not threading.main_thread():
        return work(cursor)
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(work(cursor))
        except BaseException as problem:  # noqa: BLE001 it is raised in the thread that waits
            outcome.set_exception(problem)

    thread = threading.Thread(target=run, name="dither-query", daemon=True)
    thread.start()
    try:
        return outcome.result()
    finally:
        # an interrupt may come before the query has begun, so it is repeated
        while thread.is_alive():
            if not outcome.done():
                cursor.interrupt()
            thread.join(_PATIENCE)


def share_of_memory(engines: int) -> str:
    """What each of so many engines may take, so that all of them take what one takes by default."""
    with duckdb.connect(":memory:") as probe:
        # DuckDB knows the limits of a container; "18.7 GiB"
        (text,) = probe.execute("SELECT current_setting('memory_limit')").fetchone() or ("",)
    number, unit = text.split()
    size = float(number) * _UNITS[unit]
    return f"{max(_LEAST_MEMORY, int(size / engines)) >> 20}MiB"


# the settings that worked on an empty database of this process
_tried: set[frozenset[tuple[str, str]]] = set()


def _check_settings(settings: Mapping[str, str]) -> None:
    """Try the settings, and DuckDB itself, on an empty database: an error on the owner's file is one of the file.

    Once for each process: what worked there works again.
    """
    these = frozenset(settings.items())
    if these in _tried and is_known_to_behave():
        return
    try:
        probe = duckdb.connect(":memory:", config=dict(settings))
    except duckdb.Error:
        raise InvalidParameter('threads must be at least 1 and memory_limit a size like "4GiB"') from None
    try:
        expect_behaviour(probe)
    finally:
        probe.close()
    _tried.add(these)


def _totals(cursor: duckdb.DuckDBPyConnection, cells: CellsSql, measurement: Measurement, read: Read) -> pa.Table:
    steps = cells.totals()
    if steps.units is None:
        return read(cursor, steps.final)
    kept = _kept(read(cursor, steps.units), cells)
    largest = {f"_t{i}": max(abs(total.low), abs(total.high)) for i, total in enumerate(measurement.totals)}
    added = add_up(kept, cells.key_names, largest)
    return _from_kept(cursor, kept, steps.final, read) if added is None else added


def _answer(cursor: duckdb.DuckDBPyConnection, cells: CellsSql, steps: Steps, read: Read) -> pa.Table:
    if steps.units is None:
        return read(cursor, steps.final)
    # what units keep has lists here
    return _from_kept(cursor, _kept(fetch(cursor, steps.units), cells), steps.final, read)


def _kept(units: pa.Table, cells: CellsSql) -> pa.Table:
    assert cells.most_groups is not None
    return keep_groups(units, cells.key_names, cells.most_groups)


def _from_kept(cursor: duckdb.DuckDBPyConnection, kept: pa.Table, final: str, read: Read) -> pa.Table:
    cursor.register(KEPT, kept)
    try:
        return read(cursor, final)
    finally:
        cursor.unregister(KEPT)


def _keys(table: pa.Table, measurement: Measurement) -> pa.Table:
    columns = {
        f"k{place}": table.column(f"_k{place}").cast(TYPES[key.kind]) for place, key in enumerate(measurement.keys)
    }
    return pa.table(columns)  # type: ignore[arg-type]


def _numbers(table: pa.Table, name: str, size: int) -> npt.NDArray[np.int64]:
    column = table.column(name)
    if column.type != pa.int64() or column.null_count or len(column) != size:
        raise EngineFailure(f"column {name} has type {column.type}, {len(column)} rows and {column.null_count} NULLs")
    return np.array(column.to_numpy(), dtype=np.int64)


def _bins(
    cursor: duckdb.DuckDBPyConnection, cells: CellsSql, measurement: Measurement, place: int, read: Read
) -> BinCounts:
    if measurement.keys or measurement.units == "row":
        return _histogram(_answer(cursor, cells, cells.bins(place), read))
    table, grid = read(cursor, cells.values_of_units(place)), measurement.bins[place].grid
    lowest = grid.low - grid.offset

    def rank_of(units: Ids) -> npt.NDArray[np.uint64]:
        cursor.register(UNITS, pa.table({UNIT: units, "i": pa.array(np.arange(len(units)))}))
        try:
            ranked = read(cursor, f"SELECT r.i, {cells.rank_of_units(place)} AS h FROM {UNITS} AS r")
        finally:
            cursor.unregister(UNITS)
        result = np.zeros(len(units), dtype=np.uint64)
        result[ranked.column("i").to_numpy()] = ranked.column("h").to_numpy()
        return result

    values = np.asarray(table.column("v").to_numpy()).astype(np.int64) - lowest
    found, counts = sample_bins(table.column(UNIT), values, grid.high - grid.low, measurement.rows, rank_of)
    return BinCounts(group=np.zeros(found.size, dtype=np.int64), bin=found + lowest, count=counts)


def _vouched(cursor: duckdb.DuckDBPyConnection, cells: CellsSql, place: int, most: int) -> npt.NDArray[np.int64]:
    """For each group how many different values units vouch for, at most so many each."""
    table = _answer(cursor, cells, cells.vouched(place, most), fetch)
    own = pc.is_valid(table.column("n"))
    groups, pairs = table.filter(own), table.filter(pc.invert(own))
    result = np.zeros(max(groups.num_rows, 0 if cells.key_names else 1), dtype=np.int64)
    result[groups.column("g").to_numpy()] = groups.column("n").to_numpy()
    if not pairs.num_rows:
        return result
    group = pairs.column("g").to_numpy()
    # a unit of two groups is two, and so is a value
    unit, value = (_numbered_within(group, pairs.column(name)) for name in ("o", "v"))
    found = vouched_for(unit, value, most)
    of_value = np.zeros(found.size, dtype=np.int64)
    of_value[value] = group
    np.add.at(result, of_value[found], 1)
    return result


def _numbered_within(group: npt.NDArray[np.int64], column: pa.ChunkedArray[Any]) -> npt.NDArray[np.int64]:
    encoded = column.combine_chunks().dictionary_encode()
    codes = np.asarray(encoded.indices.to_numpy(zero_copy_only=False)).astype(np.int64)
    _, found = np.unique(group * len(encoded.dictionary) + codes, return_inverse=True)
    return np.asarray(found, dtype=np.int64)


def _histogram(table: pa.Table) -> BinCounts:
    """Counts by group and bin; rows without a bin only make sure that every group has its number."""
    groups = np.array(table.column("g").to_numpy(), dtype=np.int64)
    kept = np.asarray(table.column("v").is_valid().to_numpy(), dtype=bool)
    bins = table.column("v").drop_null().to_numpy()
    return BinCounts(
        group=groups[kept],
        bin=np.array(bins, dtype=np.int64),
        count=np.array(table.column("n").to_numpy(), dtype=np.int64)[kept],
    )


# ---------------------------------------------------------------------------------------------- results


Read: TypeAlias = Callable[[duckdb.DuckDBPyConnection, str], pa.Table]

LONGEST_SQL = 16_000_000
MOST_FEW = 20_000
"""Rows of the largest table up to which ``fetch_few`` is the faster way."""
# what a join of small tables may grow to, so that no result of Python objects takes much memory
_MOST_JOINED = 2**20
# So many texts of LONGEST_TEXT characters, of four bytes each, fit in the 2 GiB that a batch of Arrow texts can hold.
_BATCH = 100_000
# Those whose values come through NumPy as they are; of dates and timestamps that depends on DuckDB's version.
_FEW_KINDS = (Kind.BOOLEAN, Kind.INTEGER, Kind.DOUBLE, Kind.TEXT)
_TYPES: Mapping[str, pa.DataType] = MappingProxyType(
    {
        "bool": pa.bool_(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "uint64": pa.uint64(),
        "float64": pa.float64(),
        "object": pa.string(),
    }
)


def fetch(cursor: duckdb.DuckDBPyConnection, sql: str) -> pa.Table:
    """The result of a query."""
    _expect_length(sql)
    table: pa.Table = cursor.sql(sql).to_arrow_table(_BATCH)
    return table


def fetch_few(cursor: duckdb.DuckDBPyConnection, sql: str) -> pa.Table:
    """The same, faster, where there are few rows: of truth values, integers of 64 bits, doubles and texts only."""
    _expect_length(sql)
    columns = cursor.execute(sql).fetchnumpy()
    return pa.Table.from_arrays([_array(name, values) for name, values in columns.items()], names=list(columns))


def _expect_length(sql: str) -> None:
    if len(sql) > LONGEST_SQL:
        raise EngineFailure(f"the query has {len(sql)} characters")


def _array(name: str, values: Any) -> pa.Array[Any]:
    kind = _TYPES.get(str(values.dtype))
    if kind is None:
        raise EngineFailure(f"column {name} has type {values.dtype}")
    if isinstance(values, np.ma.MaskedArray):
        return pa.array(values.data, type=kind, mask=np.ma.getmaskarray(values), from_pandas=False)
    return pa.array(values, type=kind, from_pandas=False)


def reader(measurement: Measurement, sources: Mapping[str, TableSource]) -> Read:
    """The faster way for the totals of a measurement, from what the catalogue says about the size of tables.

    It has no influence on the result.
    """
    if any(key.kind not in _FEW_KINDS for key in measurement.keys):
        return fetch
    largest, rows = _sizes(measurement.relation, sources)
    return fetch_few if largest <= MOST_FEW and rows <= _MOST_JOINED else fetch


def _sizes(relation: Relation, sources: Mapping[str, TableSource]) -> tuple[float, float]:
    """Rows of the largest table, and how many rows there can be at most; infinite where it isn't known."""
    match relation:
        case Scan():
            source = sources.get(relation.table)
            rows = float("inf") if source is None or source.rows is None else float(source.rows)
            return rows, rows
        case JoinRows():
            (left, rows), (right, matches) = _sizes(relation.left, sources), _sizes(relation.right, sources)
            fans_out = relation.kind in (JoinKind.INNER, JoinKind.LEFT)
            return max(left, right), rows * max(matches, 1.0) if fans_out else rows
        case Union():
            sizes = [_sizes(given, sources) for given in relation.inputs]
            return max(largest for largest, _ in sizes), sum(rows for _, rows in sizes)
        case _:
            return _sizes(relation.input, sources)


# ---------------------------------------------------------------------------------------------- sums


# Of so many rows the sums are made here: a statement of DuckDB's takes longer to prepare than they take.
MOST_ADDED = 20_000
# Types whose equality and order are DuckDB's; of doubles NaN and −0.0 aren't.
_ORDERED = (pa.bool_(), pa.int64(), pa.string(), pa.date32(), pa.timestamp("us"))


def add_up(kept: pa.Table, keys: Sequence[str], largest: Mapping[str, int]) -> pa.Table | None:
    """Sums by key in ascending order with NULL last: what the final query of totals makes of the rows that units keep.

    ``largest`` says for each column to sum how large a value is at most. None where DuckDB has to do it: for more rows,
    sums that could reach 2^62, and keys that compare otherwise here.
    """
    rows = kept.num_rows
    if not keys or rows > MOST_ADDED or any(rows * most >= LARGEST_CELL for most in largest.values()):
        return None
    if any(kept.schema.field(name).type not in _ORDERED for name in keys):
        return None
    group = np.zeros(rows, dtype=np.int64)
    for name in keys:
        encoded = kept.column(name).combine_chunks().dictionary_encode(null_encoding="encode")
        order = pc.sort_indices(encoded.dictionary).to_numpy()
        rank = np.empty(order.size, dtype=np.int64)
        rank[order] = np.arange(order.size)
        group *= order.size
        group += rank[encoded.indices.to_numpy()]
        # numbered again after each key, so that no number grows beyond the square of the rows
        _, first, group = np.unique(group, return_index=True, return_inverse=True)
    found = [kept.column(name).combine_chunks().take(first) for name in keys]
    for name in largest:
        sums = np.zeros(first.size, dtype=np.int64)
        np.add.at(sums, group, kept.column(name).combine_chunks().fill_null(0).to_numpy().astype(np.int64))
        found.append(pa.array(sums))
    return pa.Table.from_arrays(found, names=[*keys, *largest])
