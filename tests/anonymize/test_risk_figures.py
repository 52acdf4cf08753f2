"""Every figure of a risk report against definitions written down plainly, on random tables and populations."""

import math
from collections import Counter
from itertools import chain, combinations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from dither.anonymize import risk
from dither.anonymize.risks.attackers import exposure
from dither.anonymize.risks.report import Notice, percent
from support.sizes import examples

MISSING = object()
CELLS = st.one_of(st.none(), st.integers(0, 2))
WORDS = st.one_of(st.none(), st.sampled_from(["", "a", "b"]))
FLOATS = st.sampled_from([None, float("nan"), 0.0, -0.0, 2.5])


def plain(table, columns):
    """The rows as tuples; every kind of missing value is one value."""
    rows = table.select(columns).to_pylist()
    return [tuple(MISSING if v is None or v != v else v for v in row.values()) for row in rows]


@st.composite
def people(draw, least=1, most=25):
    rows = draw(st.integers(least, most))

    def column(cells, kind):
        return pa.array(draw(st.lists(cells, min_size=rows, max_size=rows)), kind)

    table = {"n": column(CELLS, pa.int64()), "w": column(WORDS, pa.string()), "f": column(FLOATS, pa.float64())}
    return pa.table({**table, "m": column(CELLS, pa.int64())})


@examples(40, 100)
@given(table=people(), others=people(least=0), k=st.integers(1, 12), size=st.integers(1, 4))
def test_the_attackers_by_their_definitions(table, others, k, size):
    """A population holds the people of the table and others; the attackers' risks are sums over rows and people."""
    columns = table.column_names[:size]
    rows, everybody = plain(table, columns), plain(pa.concat_tables([others, table]), columns)
    f, F = Counter(rows), Counter(everybody)
    n = len(rows)
    known = exposure(table, columns, k=k, population=pa.concat_tables([others, table]))
    assert known.absent == 0
    assert (known.classes, known.smallest, known.unique) == (len(f), min(f.values()), list(f.values()).count(1))
    assert known.prosecutor.at_risk == pytest.approx(sum(1 / f[row] > 1 / k for row in rows) / n)
    assert known.prosecutor.highest == max(1 / f[row] for row in rows)
    assert known.prosecutor.success == pytest.approx(sum(1 / f[row] for row in rows) / n)
    assert known.journalist.at_risk == pytest.approx(sum(1 / F[row] > 1 / k for row in rows) / n)
    assert known.journalist.highest == max(1 / F[row] for row in rows)
    from_rows = sum(1 / F[row] for row in rows) / n
    alike = [person for person in everybody if person in f]
    from_people = sum(1 / F[person] for person in alike) / len(alike)
    assert known.journalist.success == pytest.approx(max(from_rows, from_people))
    assert known.marketer == pytest.approx(from_rows)
    alone = exposure(table, columns, k=k)
    assert alone.journalist is None
    assert alone.prosecutor == known.prosecutor
    assert alone.marketer == pytest.approx(len(f) / n)
    # what the report says without a population: at most
    assert known.journalist.success <= known.prosecutor.success + 1e-12
    assert known.marketer <= alone.marketer + 1e-12


def test_the_journalist_takes_the_better_of_two_ways():
    """One of two people who are alike, and a hundred of a hundred: from people to rows more are found."""
    table = pa.table({"sex": ["f"] + ["m"] * 100})
    everybody = pa.table({"sex": ["f", "f"] + ["m"] * 100})
    known = exposure(table, ["sex"], population=everybody)
    assert known.journalist.success == pytest.approx(2 / 102)
    assert known.marketer == pytest.approx(1.5 / 101)
    assert known.prosecutor.success == pytest.approx(2 / 101)


@examples(40, 100)
@given(table=people(), population=people(least=0))
def test_rows_without_counterpart_are_counted_and_never_lower_a_risk(table, population):
    columns = table.column_names[:2]
    f, F = Counter(plain(table, columns)), Counter(plain(population, columns))
    known = exposure(table, columns, population=population)
    assert known.absent == sum(max(0, number - F[row]) for row, number in f.items())
    assert known.journalist.highest == max(1 / max(f[row], F[row]) for row in f)


@examples(40, 100)
@given(sizes=st.lists(st.integers(1, 60), min_size=1, max_size=20), k=st.integers(1, 70))
def test_bands_are_counted_plainly_and_none_straddles_k(sizes, k):
    table = pa.table({"group": [place for place, size in enumerate(sizes) for _ in range(size)]})
    known = exposure(table, ["group"], k=k)
    for band in known.bands:
        inside = [size for size in sizes if band.low <= size and (band.high is None or size <= band.high)]
        assert (band.classes, band.rows) == (len(inside), sum(inside))
        assert band.low >= k or (band.high is not None and band.high < k)
    assert sum(band.classes for band in known.bands) == len(sizes)
    small = sum(band.rows for band in known.bands if band.low < k)
    assert small / sum(sizes) == known.prosecutor.at_risk


@examples(40, 100)
@given(table=people(), most=st.integers(1, 4), share=st.sampled_from([0.05, 0.2, 0.5, 0.9, 1.0]))
def test_minimal_sets_are_all_that_are_enough_and_have_nothing_to_spare(table, most, share):
    report = risk(table, most=most)
    usual = [each.name for each in report.columns if each.notice not in (Notice.IDENTIFIER, Notice.CONSTANT)]

    def unique_share(names):
        sizes = Counter(plain(table, list(names)))
        return list(sizes.values()).count(1) / table.num_rows

    names = [name for name in table.column_names if name in usual]
    searched = {(name,) for name in table.column_names}
    searched |= set(chain.from_iterable(combinations(names, size) for size in range(1, most + 1)))
    enough = {each for each in searched if unique_share(each) >= share}
    minimal = {each for each in enough if not any(set(other) < set(each) for other in enough)}
    found = report.minimal_sets(share)
    assert {each.columns for each in found} == minimal
    assert [len(each.columns) for each in found] == sorted(len(each.columns) for each in found)


@examples(40, 100)
@given(table=people())
def test_columns_are_described_plainly(table):
    report = risk(table)
    n = table.num_rows
    for column in report.columns:
        values = [row[0] for row in plain(table, [column.name])]
        counts = Counter(values)
        assert column.distinct == len(counts)
        assert column.missing == values.count(MISSING)
        assert column.bits == pytest.approx(-sum(c / n * math.log2(c / n) for c in counts.values()), abs=1e-9)
        alone = list(counts.values()).count(1) / n
        expected = Notice.IDENTIFIER if alone >= 0.95 else Notice.CONSTANT if len(counts) == 1 else None
        assert column.notice is expected or (expected is None and column.notice is Notice.DETERMINED)
        if column.notice is Notice.DETERMINED:
            other = [row[0] for row in plain(table, [column.determined_by])]
            assert len(set(zip(other, values, strict=True))) == len(set(other))


@pytest.mark.parametrize("seed", range(20))
def test_dense_tables_are_counted_as_by_hand(seed):
    """Few values among many rows: columns split classes without leaving anybody alone, or split nothing at all."""
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(20, 200))
    columns = {f"c{i}": rng.integers(0, int(rng.integers(2, 5)), rows) for i in range(4)}
    table = pa.table({**columns, "told": columns["c0"] // 2, "both": columns["c0"] + 10 * columns["c1"]})
    report = risk(table, most=4, k=3)
    assert len(report.combinations) > 20
    for found in report.combinations:
        sizes = Counter(plain(table, list(found.columns))).values()
        assert (found.classes, found.unique, found.smallest) == (len(sizes), list(sizes).count(1), min(sizes))
        assert found.small == sum(size for size in sizes if size < 3)


def test_what_is_told_by_one_row_is_found_by_minimal_sets():
    table = pa.table({"a": [1, 1, 2, 2], "b": [1, 2, 1, 2], "c": [1, 2, 2, 1], "same": [0] * 4})
    assert [each.columns for each in risk(table).minimal_sets(1.0)] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert risk(table, most=1).minimal_sets() == ()


def test_columns_are_ranked_by_the_same_combinations_when_some_are_left_out():
    """Where pairs tell everybody apart a third column adds nothing: who is in triples must not fall behind."""
    rng = np.random.default_rng(0)
    table = pa.table({f"c{i:02}": rng.integers(0, 40 - i, 60) for i in range(30)})
    limited, every = risk(table, limit=500), risk(table, most=2)
    assert limited.notes[0].startswith("combinations of 3 columns were searched among the 14 most telling columns only")
    assert limited.notes[1:] == ("columns are ranked by combinations of up to 2, which all were searched",)
    assert {each.name: each.gain for each in limited.columns} == {each.name: each.gain for each in every.columns}
    assert limited.quasi_identifiers == every.quasi_identifiers
    few = risk(table, limit=40)
    assert few.notes[-1] == "columns are ranked by what they tell alone, since not all were combined"
    assert {each.name: each.gain for each in few.columns} == {e.name: e.gain for e in risk(table, most=1).columns}


def test_progress_never_stands_at_the_end_while_work_goes_on():
    rng = np.random.default_rng(0)
    table = pa.table({f"c{i}": rng.integers(0, 9, 100) for i in range(30)})
    for limit in (10_000, 500, 40):
        seen = []
        report = risk(table, limit=limit, watch=lambda share, doing, seen=seen: seen.append(share))
        assert seen == sorted(seen)
        assert seen[-1] == 1
        assert seen.count(1) == 1
        assert len(seen) >= len(report.of_size(2))


def test_interrupting_stops_the_search():
    rng = np.random.default_rng(0)
    table = pa.table({f"c{i}": rng.integers(0, 9, 100) for i in range(12)})

    def pressed(share, doing):
        if share > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        risk(table, watch=pressed)


# ------------------------------------------------------------------ columns of every kind


@pytest.mark.parametrize(
    "column",
    [
        pa.array([b"x", b"", None, b"x", b"", b"z"], pa.binary()),
        pa.array([b"x", b"", None, b"x", b"", b"z"], pa.large_binary()),
        pa.array(["x", "", None, "x", "", "z"]).dictionary_encode(),
        pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0, 1, 3]), pa.array(["x", "", None, "z"])),
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 0, 1, 3]), pa.array([1.0, 2.0, float("nan"), 4.0])),
        pa.RunEndEncodedArray.from_arrays(pa.array([2, 4, 5, 6], pa.int32()), pa.array([1, 2, None, 3])),
        pa.ExtensionArray.from_storage(
            pa.uuid(), pa.array([b"a" * 16, b"b" * 16, None, b"a" * 16, b"b" * 16, b"c" * 16], pa.binary(16))
        ),
        pa.array([1.5, 0.0, float("nan"), 1.5, -0.0, 3.5], pa.float32()),
    ],
    ids=lambda column: str(column.type)[:20],
)
def test_every_kind_of_plain_column_is_counted(column):
    table = pa.table({"x": ["a", "a", "b", "b", "c", "c"], "it": column})
    report = risk(table)
    it = next(each for each in report.columns if each.name == "it")
    assert (it.distinct, it.alone.unique, it.missing) == (4, 2, 1)
    assert exposure(table, ["it"], population=table).journalist == report_of(table).prosecutor


def report_of(table):
    return risk(table, ["it"]).exposure


def test_lists_in_dictionaries_are_lists():
    lists = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), pa.array([[1], [2]]))
    table = pa.table({"x": ["a", "a", "b"], "lists": lists})
    assert risk(table).notes == ("left out, since they hold lists or records: lists",)


def test_sixty_columns_and_one_row():
    table = pa.table({f"c{i}": [i] for i in range(60)})
    report = risk(table)
    assert len(report.combinations) == 60
    assert report.exposure.prosecutor.highest == 1
    assert "No other column tells people apart." in str(report)


# ------------------------------------------------------------------ numbers as text


@examples(40, 100)
@given(st.fractions(0, 1, max_denominator=10**6))
def test_a_share_as_text_is_near_and_never_none_or_all_by_rounding(share):
    text = percent(float(share))
    assert (text == "0%") == (share == 0)
    assert (text == "100%") == (share == 1)
    if "<" not in text and ">" not in text:
        assert float(text[:-1]) == pytest.approx(100 * float(share), rel=0.06, abs=0.006)
