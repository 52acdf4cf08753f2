"""What units keep: the fast ways against the definition, with hashes that tie on purpose."""

import math
from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dither.engines.duckdb_choice import keep_groups, sample_bins

KEYS = st.sampled_from(["a", "b", "c", "d", None])
IDS = st.sampled_from([-(2**63), -1, 0, 1, 2, 3, 2**63 - 1])


def by_definition(rows, most):
    """Each unit's rows with the smallest (hash, key), NULL last."""
    kept = []
    for unit in {row[0] for row in rows}:
        own = sorted((row for row in rows if row[0] == unit), key=lambda row: (row[1], row[2] is None, row[2] or ""))
        kept += own[:most]
    return Counter(kept)


def table(rows, unit_type):
    return pa.table(
        {
            "u": pa.array([row[0] if unit_type == pa.int64() else str(row[0]) for row in rows], type=unit_type),
            "_k0": pa.array([row[2] for row in rows], type=pa.string()),
            "_h": pa.array([row[1] for row in rows], type=pa.uint64()),
            "who": pa.array([row[0] for row in rows], type=pa.int64()),
            "hash": pa.array([row[1] for row in rows], type=pa.uint64()),
        }
    )


@given(
    pairs=st.sets(st.tuples(IDS, KEYS), max_size=30),
    hashes=st.lists(st.sampled_from([0, 1, 2, 8, 9, 2**40, 2**40 + 1, 2**63, 2**64 - 1]), min_size=30, max_size=30),
    most=st.integers(1, 4),
    unit_type=st.sampled_from([pa.int64(), pa.string()]),
)
def test_groups_are_kept_by_hash_and_then_by_key(pairs, hashes, most, unit_type):
    # few different hashes, many of them equal in their leading bits: packing alone would decide wrongly
    rows = [(unit, hashes[i], key) for i, (unit, key) in enumerate(sorted(pairs, key=str))]
    kept = keep_groups(table(rows, unit_type), ["_k0"], most)
    assert kept.column_names == ["_k0", "who", "hash"]
    found = zip(kept["who"].to_pylist(), kept["hash"].to_pylist(), kept["_k0"].to_pylist(), strict=True)
    assert Counter(found) == by_definition(rows, most)


def test_doubles_tie_by_their_order_with_nan_after_numbers():
    rows = [(1, 5, key) for key in (math.nan, 2.0, None, -1.0)]
    made = pa.table(
        {
            "u": pa.array([1] * 4),
            "_k0": pa.array([row[2] for row in rows], type=pa.float64()),
            "_h": pa.array([5] * 4, type=pa.uint64()),
        }
    )
    for most, wanted in ((1, "[-1.0]"), (2, "[2.0, -1.0]"), (3, "[nan, 2.0, -1.0]")):
        assert str(keep_groups(made, ["_k0"], most)["_k0"].to_pylist()) == wanted


@given(
    rows=st.lists(st.tuples(IDS, st.integers(0, 12)), max_size=60),
    most=st.integers(1, 5),
    as_text=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_samples_of_rows_follow_their_definition(rows, most, as_text, seed):
    rank = {unit: (hash((unit, seed)) * 0x9E3779B97F4A7C15) % 2**64 for unit, _ in rows}

    def rank_of(units):
        return np.array([rank[int(unit)] for unit in units.to_pylist()], dtype=np.uint64)

    ids = pa.array([str(unit) if as_text else unit for unit, _ in rows], type=pa.string() if as_text else pa.int64())
    values = np.array([value for _, value in rows], dtype=np.int64)
    found, counts = sample_bins(pa.chunked_array([ids]), values, 12, most, rank_of)
    wanted = Counter()
    for unit in rank:
        own = sorted(value for owner, value in rows if owner == unit)
        n = len(own)
        start = rank[unit] % n
        wanted.update(own if n <= most else [own[(start + j * n) // most] for j in range(most)])
    assert dict(zip(found.tolist(), counts.tolist(), strict=True)) == dict(wanted)


def test_every_row_has_the_same_chance_in_a_sample():
    # over all starting points, each of n rows is taken most times
    n, most = 7, 3
    taken = Counter()
    for start in range(n):
        found, counts = sample_bins(
            pa.chunked_array([pa.array([1] * n)]),
            np.arange(n, dtype=np.int64),
            n,
            most,
            lambda _, s=start: np.array([s], dtype=np.uint64),
        )
        assert counts.tolist() == [1] * most
        taken.update(found.tolist())
    assert taken == Counter(dict.fromkeys(range(n), most))
