"""Which groups and rows of a unit are kept, where it has more than count: at most so many, by a salted hash.

Each choice is made from one unit's rows and the salt alone. So for every salt, taking a unit away leaves all other
units' choices as they are, which is what the bound on one unit's influence needs; how good the hash is matters for bias
only.
"""

# ruff: noqa: S608 (all of it is generated from plans: names are quoted, literals written by kind)

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dither.engines.bounding import Sampling
from dither.engines.relations import UNIT
from dither.errors import InvalidParameter


def rank(salt: int, columns: Sequence[str]) -> str:
    """A salted hash: the columns' hash and the salt through another round, so that the salt moves every bit."""
    return f"hash(xor(hash({', '.join(columns)}), CAST({salt % 2**64} AS UBIGINT)))"


Ids: TypeAlias = "pa.Array[Any]"
"""Ids of units, each once."""

_FEW = 16
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


def values(rows: str, own: Sequence[str]) -> str:
    """Each unit's different values in each group."""
    by, known = ", ".join(own), "list(DISTINCT r.v) FILTER (WHERE r.v IS NOT NULL)"
    return f"SELECT {by}, coalesce({known}, [NULL]) AS l FROM ({rows}) AS r GROUP BY {by}"


SAMPLING = Sampling(bins=bins, values=values, unnest=lambda sql: f"unnest({sql})")
