"""What units keep: the fast ways against the definition, with hashes that tie on purpose."""

import math
from collections import Counter
from datetime import date

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from dither.engines.duckdb.engine import MOST_ADDED, add_up
from dither.engines.duckdb.group_choice import keep_groups, sample_bins
from support.sizes import examples

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


DATES = st.dates(min_value=date(1, 1, 1))
KEY_COLUMNS = [
    (pa.bool_(), st.booleans()),
    (pa.int64(), IDS),
    (pa.string(), st.sampled_from(["", "a", "B", "b", "é", "z", "Ω", "\U0001f600", "\uffff"])),
    (pa.date32(), DATES),
    (pa.timestamp("us"), st.sampled_from([-(2**40), -1, 0, 1, 2**50])),
]


@st.composite
def kept_rows(draw):
    """Rows that units keep: one or two keys of any type with NULLs, sums in both widths with NULLs."""
    types = draw(st.lists(st.sampled_from(KEY_COLUMNS), min_size=1, max_size=2))
    size = draw(st.integers(0, 25))

    def column(of, kind):
        return pa.array(draw(st.lists(st.none() | of, min_size=size, max_size=size)), type=kind)

    found = {f"_k{place}": column(values, kind) for place, (kind, values) in enumerate(types)}
    found |= {"_t0": column(st.integers(-3, 3), pa.int32()), "_t1": column(st.integers(-(2**50), 2**50), pa.int64())}
    return pa.table(found), len(types)


@examples(30, 100)
@given(made=kept_rows())
def test_sums_are_those_of_the_database(made):
    kept, number = made
    keys = [f"_k{place}" for place in range(number)]
    listed = ", ".join(keys)
    order = ", ".join(f"{key} ASC NULLS LAST" for key in keys)
    sums = ", ".join(f"CAST(coalesce(sum({name}), 0) AS BIGINT) AS {name}" for name in ("_t0", "_t1"))
    with duckdb.connect(":memory:") as database:
        database.register("kept", kept)
        wanted = database.sql(f"SELECT {listed}, {sums} FROM kept GROUP BY {listed} ORDER BY {order}").to_arrow_table()
    found = add_up(kept, keys, {"_t0": 3, "_t1": 2**50})
    assert found is not None
    assert found.schema.equals(wanted.schema)
    assert found.to_pydict() == wanted.to_pydict()


@pytest.mark.parametrize(
    ("keys", "largest"),
    [
        (pa.array(["a"] * (MOST_ADDED + 1)), 1),
        (pa.array(["a", "b"]), 2**61),
        (pa.array([0.0, -0.0]), 1),
    ],
)
def test_sums_that_only_the_database_can_make_are_left_to_it(keys, largest):
    kept = pa.table({"_k0": keys, "_t0": pa.array([1] * len(keys), type=pa.int64())})
    assert add_up(kept, ["_k0"], {"_t0": largest}) is None


def test_sums_at_the_edge_are_made_here():
    keys = pa.array(["a"] * MOST_ADDED)
    kept = pa.table({"_k0": keys, "_t0": pa.array([2**40] * MOST_ADDED, type=pa.int64())})
    found = add_up(kept, ["_k0"], {"_t0": 2**40})
    assert found is not None
    assert found.to_pydict() == {"_k0": ["a"], "_t0": [MOST_ADDED * 2**40]}
