"""DuckDB's connections, and what is read through them: results of queries, and which rows a unit keeps.

DuckDB opens a file once per process and in one configuration, and POSIX drops a process's locks on a file as soon as
the process closes any descriptor of it. So engines on one file share one database, and the last of them closes it.

After a fork the child has the parent's memory, but none of the threads that work on it. There nothing of the parent is
touched: not its database, not its directory, and its objects are never destroyed.

DuckDB's Python library parses and plans a query twice before it gives Arrow, once for the types and once to run it. For
small tables that takes longer than the query itself. Its DB-API plans once, but makes a Python object of every text.

Each choice is made from one unit's rows and the salt alone. So for every salt, taking a unit away leaves all other
units' choices as they are, which is what the bound on one unit's influence needs; how good the hash is matters for bias
only.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import tempfile
import threading

# ruff: noqa: S608 (all of it is generated from plans: names are quoted, literals written by kind)
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dither.engines.base import EngineFailure
from dither.engines.cells import LARGEST_CELL, Sampling
from dither.engines.duckdb.functions import rank
from dither.engines.sql import UNIT, Source
from dither.errors import InvalidParameter, SourceError
from dither.query.kinds import Kind
from dither.query.measure.measures import Measurement
from dither.query.plan.plan import Join, JoinKind, Relation, Scan, Union

_Key: TypeAlias = tuple[Path, int, int]

_guard = threading.RLock()  # a finaliser may run in a thread that holds it
_handles: set[duckdb.DuckDBPyConnection] = set()
_by_file: dict[_Key, Database] = {}
_of_parent: set[Path] = set()


class Database:
    """An open database, held by one engine, or by several on the same file; make one with ``open_database``."""

    __slots__ = ("_base", "_holders", "_key", "_options", "_own", "_process", "scratch")

    def __init__(
        self, base: duckdb.DuckDBPyConnection, scratch: Path, options: Mapping[str, str], key: _Key | None
    ) -> None:
        self._base, self.scratch, self._options, self._key = base, scratch, dict(options), key
        self._process, self._holders = os.getpid(), 1
        self._own = {base}
        keep_from_children(base)

    @property
    def forked(self) -> bool:
        """Whether this is a copy in a child of the process that opened it."""
        return os.getpid() != self._process

    def connection(self) -> duckdb.DuckDBPyConnection:
        """A connection of its own for a thread; give it back with ``drop``."""
        with _guard:
            made = self._base.cursor()
            self._own.add(made)
            keep_from_children(made)
            return made

    def drop(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Close a connection."""
        if self.forked:
            return
        with _guard:
            self._own.discard(connection)
            _handles.discard(connection)
        connection.close()

    def release(self, connection: duckdb.DuckDBPyConnection | None = None) -> None:
        """One holder and its connection less; the last one closes the database and removes the directory."""
        if self.forked:
            return
        with _guard, suppress(duckdb.Error):
            # at the end of the process a thread may still be in a query, and there is nobody to tell
            if connection is not None:
                self.drop(connection)
        with _guard:
            self._holders -= 1
            if self._holders:
                return
            _handles.difference_update(self._own)
            self._own.clear()
            if self._key is not None:
                del _by_file[self._key]
            with suppress(duckdb.Error):
                self._base.close()
            shutil.rmtree(self.scratch, ignore_errors=True)


def keep_from_children(connection: duckdb.DuckDBPyConnection) -> None:
    """A connection that a forked child must never destroy: it would wait for threads that it doesn't have."""
    with _guard:
        _handles.add(connection)


def open_database(
    path: Path | None, options: Mapping[str, str], prepare: Callable[[duckdb.DuckDBPyConnection], None]
) -> Database:
    """The database of a file, read-only, or an empty one in memory; ``prepare`` is called once for each, first of all.

    Raises SourceError where the file can't be opened.
    """
    with _guard:
        key = None
        if path is not None:
            facts = path.stat()
            key = (path.resolve(), facts.st_dev, facts.st_ino)
            shared = _by_file.get(key)
            if shared is not None:
                if shared._options != dict(options):  # noqa: SLF001
                    raise _open_already(path)
                shared._holders += 1  # noqa: SLF001
                return shared
        scratch = Path(tempfile.mkdtemp(prefix="dither-"))
        try:
            base = _connect(path, {**options, "temp_directory": str(scratch)})
            try:
                prepare(base)
            except BaseException:
                base.close()
                raise
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise
        database = Database(base, scratch, options, key)
        if key is not None:
            _by_file[key] = database
        return database


def _connect(path: Path | None, settings: Mapping[str, str]) -> duckdb.DuckDBPyConnection:
    if path is None:
        return duckdb.connect(":memory:", config=dict(settings))
    try:
        return duckdb.connect(path.resolve(), read_only=True, config=dict(settings))
    except duckdb.IOException as problem:
        if "lock" in str(problem):
            raise SourceError(f"{path} is in use by another process that may write to it: close that first") from None
        raise SourceError(f"{path} is not a DuckDB database, or a damaged one") from None
    except duckdb.Error as problem:
        if "different configuration" in str(problem) or "Unique file handle conflict" in str(problem):
            raise _open_already(path) from None
        raise SourceError(f"{path} can't be opened as a DuckDB database by version {duckdb.__version__}") from None


def _open_already(path: Path) -> SourceError:
    if path.resolve() in _of_parent:
        return SourceError(f"{path} was open when this process was forked: open it in one of both, after the fork")
    return SourceError(f"{path} is already open in this process with other settings: close it first")


def _in_child() -> None:
    """A child starts without databases; the lock may be held by a thread that doesn't exist here."""
    global _guard
    _guard = threading.RLock()
    for connection in _handles:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
    _of_parent.update(path for path, _, _ in _by_file)
    _handles.clear()
    _by_file.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


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


def reader(measurement: Measurement, sources: Mapping[str, Source]) -> Read:
    """The faster way for the totals of a measurement, from what the catalogue says about the size of tables.

    It has no influence on the result.
    """
    if any(key.kind not in _FEW_KINDS for key in measurement.keys):
        return fetch
    largest, rows = _sizes(measurement.relation, sources)
    return fetch_few if largest <= MOST_FEW and rows <= _MOST_JOINED else fetch


def _sizes(relation: Relation, sources: Mapping[str, Source]) -> tuple[float, float]:
    """Rows of the largest table, and how many rows there can be at most; infinite where it isn't known."""
    match relation:
        case Scan():
            source = sources.get(relation.table)
            rows = float("inf") if source is None or source.rows is None else float(source.rows)
            return rows, rows
        case Join():
            (left, rows), (right, matches) = _sizes(relation.left, sources), _sizes(relation.right, sources)
            fans_out = relation.kind in (JoinKind.INNER, JoinKind.LEFT)
            return max(left, right), rows * max(matches, 1.0) if fans_out else rows
        case Union():
            sizes = [_sizes(given, sources) for given in relation.inputs]
            return max(largest for largest, _ in sizes), sum(rows for _, rows in sizes)
        case _:
            return _sizes(relation.input, sources)


# ---------------------------------------------------------------------------------------------- choice


Ids: TypeAlias = "pa.Array[Any]"
"""Ids of units, each once."""

# Of so many rows the sums are made here: a statement of DuckDB's takes longer to prepare than they take.
MOST_ADDED = 20_000
# Types whose equality and order are DuckDB's; of doubles NaN and −0.0 aren't.
_ORDERED = (pa.bool_(), pa.int64(), pa.string(), pa.date32(), pa.timestamp("us"))
_FEW = 16
# DuckDB's min(x, n) sets memory for n values aside for each unit, and raises for a million, only once there is a row.
_MOST_SMALLEST = 64
# longer than any list of one unit's rows, and short enough for 64 bits
_LONGEST_LIST = 2**40


def keep_groups(table: pa.Table, keys: Sequence[str], most: int) -> pa.Table:
    """Of a row for each unit and group, those with the ``most`` smallest hashes ``_h`` of each unit, ties by the keys.

    The unit's number and the leading bits of the hash are packed into 64 bits and sorted at once. Codes label units,
    they never rank anything. How many bits of the hash fit depends on the number of units; so that this changes
    nobody's choice, a unit in which the packed bits tie at the edge is decided by the whole hash and then its keys.
    """
    dropped = table.drop_columns([UNIT, "_h"])
    if table.num_rows == 0:
        return dropped
    encoded = table.column(UNIT).combine_chunks().dictionary_encode()
    unit = np.asarray(encoded.indices.to_numpy(zero_copy_only=False))
    units = len(encoded.dictionary)
    sizes = np.bincount(unit, minlength=units)
    if int(sizes.max()) <= most:
        return dropped
    hashes = table.column("_h").to_numpy()
    bits = np.uint64(max(1, (units - 1).bit_length()))
    packed = hashes >> bits
    packed |= unit.astype(np.uint64) << (np.uint64(64) - bits)
    ranked = np.sort(packed)
    ends = np.cumsum(sizes)
    crowded = np.flatnonzero(sizes > most)
    last = (ends - sizes)[crowded] + (most - 1)
    edges = np.full(units, np.iinfo(np.uint64).max, dtype=np.uint64)
    edges[crowded] = ranked[last]
    kept = packed <= edges[unit]
    tied = crowded[ranked[last] == ranked[last + 1]]
    for code in tied.tolist():
        _decide(kept, np.flatnonzero(unit == code), hashes, dropped.select(list(keys)), most)
    return dropped.filter(pa.array(kept))


def _decide(
    kept: npt.NDArray[np.bool_], rows: npt.NDArray[np.intp], hashes: npt.NDArray[np.uint64], keys: pa.Table, most: int
) -> None:
    """One unit's choice by whole hashes, then by keys in ascending order with NULL last."""
    own = keys.take(rows).to_pylist()
    # NaN is greater than every number, and a key that is NULL comes last
    ordered = [
        (int(hashes[row]), [(v is None, v != v, v if v is not None and v == v else 0) for v in own[i].values()])
        for i, row in enumerate(rows.tolist())
    ]
    kept[rows] = False
    kept[rows[sorted(range(len(rows)), key=lambda i: ordered[i])[:most]]] = True


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


def sample_bins(
    unit: pa.ChunkedArray[Any],
    value: npt.NDArray[np.int64],
    width: int,
    most: int,
    rank_of: Callable[[Ids], npt.NDArray[np.uint64]],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Bins and counts of the sample that ``bins`` describes, for units with one group each.

    ``value`` lies between 0 and ``width``. Units and values are packed into 64 bits and sorted at once; how units are
    numbered has no influence, because ``rank_of`` gives the hash of the unit itself.
    """
    if len(unit) == 0:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    bits = max(1, width.bit_length())
    code, ids = _numbered(unit, 64 - bits)
    packed = code << np.uint64(bits)
    packed |= value.astype(np.uint64)
    packed.sort()
    owner = packed >> np.uint64(bits)
    starts = np.concatenate(([0], np.flatnonzero(owner[1:] != owner[:-1]) + 1))
    sizes = np.diff(np.append(starts, owner.size))
    taken = np.repeat(sizes <= most, sizes)
    crowded = sizes > most
    first, number = starts[crowded], sizes[crowded]
    shift = (rank_of(ids(owner[first])) % number.astype(np.uint64)).astype(np.int64)
    if most <= _FEW:
        for j in range(most):
            taken[first + (shift + j * number) // most] = True
    else:
        # one crowded unit at a time: each has more than ``most`` rows, however many that may be
        for unit_first, unit_shift, n in zip(first.tolist(), shift.tolist(), number.tolist(), strict=True):
            taken[unit_first + (unit_shift + np.arange(most) * n) // most] = True
    found, counts = np.unique(packed[taken] & np.uint64(2**bits - 1), return_counts=True)
    return found.astype(np.int64), counts.astype(np.int64)


def _numbered(
    unit: pa.ChunkedArray[Any], bits: int
) -> tuple[npt.NDArray[np.uint64], Callable[[npt.NDArray[np.uint64]], Ids]]:
    """Numbers of so many bits that tell units apart, and the way back from them."""
    if pa.types.is_int64(unit.type):
        ids = np.asarray(unit.to_numpy())
        low = int(ids.min())
        if (int(ids.max()) - low).bit_length() <= bits:
            # differences are right modulo 2^64 whatever the signs
            base = np.uint64(low % 2**64)
            return ids.view(np.uint64) - base, lambda codes: pa.array((codes + base).view(np.int64))
    encoded = unit.combine_chunks().dictionary_encode()
    if max(1, (len(encoded.dictionary) - 1).bit_length()) > bits:
        raise InvalidParameter("the grid of a histogram is too fine to be sampled: use a larger step")
    codes = np.asarray(encoded.indices.to_numpy(zero_copy_only=False)).astype(np.uint64)
    return codes, lambda chosen: encoded.dictionary.take(pa.array(chosen.astype(np.int64)))


def bins(rows: str, own: Sequence[str], most: int, salt: int) -> str:
    """The bins of a sample of each unit's rows in each group.

    Of n > most rows in the order of their bins, those at places ⌊(s + j·n)/most⌋ for j = 0, 1, … are taken, where s is
    a salted hash modulo n: systematic sampling, in which every row has the same chance most/n to be taken, and rows of
    one bin are interchangeable.
    """
    by = ", ".join(own)
    most = min(most, _LONGEST_LIST)
    listed = f"SELECT {by}, list_sort(list(r.v) FILTER (WHERE r.v IS NOT NULL)) AS l FROM ({rows}) AS r GROUP BY {by}"
    start = f"CAST({rank(salt, own)} % CAST(len(r.l) AS UBIGINT) AS BIGINT)"
    placed = f"SELECT {by}, r.l, CAST(len(r.l) AS BIGINT) AS _n, {start} AS _s FROM ({listed}) AS r"
    if most <= _FEW:
        places = "[" + ", ".join(f"(r._s + {j} * r._n) // {most} + 1" for j in range(most)) + "]"
    else:
        # as long as the list at most: a constant range would be made before the first row, whatever its length
        places = f"list_transform(range(least({most}, r._n)), lambda j: (r._s + j * r._n) // {most} + 1)"
    taken = f"CASE WHEN r._n IS NULL THEN [NULL] WHEN r._n <= {most} THEN r.l ELSE list_select(r.l, {places}) END"
    return f"SELECT {by}, {taken} AS l FROM ({placed}) AS r"


def values(rows: str, own: Sequence[str], most: int, salt: int) -> str:
    """Each unit's different values in each group: those with the smallest salted hash, ties by the value."""
    by = ", ".join(own)
    most = min(most, _LONGEST_LIST)
    once = f"SELECT DISTINCT {by}, r.v FROM ({rows}) AS r"
    # structs compare field by field
    packed = f"{{'h': {rank(salt, [*own, 'r.v'])}, 'v': r.v}}"
    if most < _MOST_SMALLEST:
        smallest = f"min({packed}, {most}) FILTER (WHERE r.v IS NOT NULL)"
    else:
        smallest = f"list_slice(list_sort(list({packed}) FILTER (WHERE r.v IS NOT NULL)), 1, {most})"
    listed = f"SELECT {by}, {smallest} AS l FROM ({once}) AS r GROUP BY {by}"
    return f"SELECT {by}, CASE WHEN r.l IS NULL THEN [NULL] ELSE [x.v for x in r.l] END AS l FROM ({listed}) AS r"


SAMPLING = Sampling(bins=bins, values=values, unnest=lambda sql: f"unnest({sql})")
