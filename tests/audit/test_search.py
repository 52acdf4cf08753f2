"""The search finds the telling pair, proves it on fresh draws, and makes tables that really are neighbours."""

import itertools
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from dither.audit import (
    Batched,
    Verdict,
    neighbouring_tables,
    query_patterns,
    search,
    search_tables,
)
from dither.errors import InvalidParameter, MissingLibrary
from dither.mechanisms import Laplace
from dither.privacy import Adjacency
from support.sizes import at_night, short_or_full

# what is found in its time is found by as many draws on every machine
pytestmark = pytest.mark.usefixtures("counted_time")

SURE = 1 - 1e-9
# for what is right
BRIEF = short_or_full("1s", "3s")


def noisy_max(scale):
    """The index of the largest noisy score; right for monotone queries with scale 1/ε, else with 2/ε."""

    def draw(scores, n):
        noise = np.random.default_rng().exponential(scale, (n, len(scores)))  # one-sided noise shows more
        return (np.asarray(scores) + noise).argmax(axis=1)

    return Batched(draw, copies=True)


def test_the_telling_pair_is_found():
    def sharp_at_seven(x, n):
        rng = np.random.default_rng()
        return np.where((x >= 7) & (rng.random(n) < 0.2), 99.0, rng.integers(0, 10, n))

    found = search(Batched(sharp_at_seven), [(x, x + 1) for x in range(10)], claim=1, confidence=SURE, budget="8s")
    assert found.pair == (6, 7)
    assert found.broken
    assert found.more_likely == "x_neighbour"


@at_night
def test_right_mechanisms_hold_on_every_pair():
    pairs = query_patterns(3)
    # all coordinates move by at most one each: l1 distance up to 3
    found = search(Laplace(scale=3), pairs, claim=1, confidence=SURE, budget="3s")
    assert found.verdict is Verdict.HELD
    assert 0.3 < found.epsilon <= 1


def test_noisy_max_without_the_two_is_caught_by_the_patterns():
    found = search(noisy_max(1.0), query_patterns(5), claim=1, confidence=SURE, budget="20s")
    assert found.broken
    assert search(noisy_max(2.0), query_patterns(5), claim=1, confidence=SURE, budget=BRIEF).verdict is Verdict.HELD


def test_one_pair_needs_no_screening_and_endless_pairs_end(counted_time):
    coin = Batched(lambda x, n: np.random.default_rng().random(n) < 0.5)
    assert search(coin, [(0, 1)], budget="0.3s").pair == (0, 1)
    before = counted_time.passed
    found = search(coin, ((x, x + 1) for x in itertools.count()), budget="1s")
    assert counted_time.passed - before < 1.2
    assert found.epsilon < 0.5


@pytest.mark.parametrize("nothing", [[], iter([])])
def test_a_search_needs_pairs(nothing):
    with pytest.raises(InvalidParameter, match="at least one pair"):
        search(lambda x: x, nothing, budget="0.2s")


@pytest.mark.parametrize("length", [1, 2, 5, 10])
@pytest.mark.parametrize("change", [1.0, 0.25])
def test_patterns_are_neighbours(length, change):
    pairs = query_patterns(length, change=change)
    assert pairs
    for number, (first, second) in enumerate(pairs):
        assert len(first) == len(second) == length
        assert first != second
        assert max(abs(a - b) for a, b in zip(first, second, strict=True)) <= change
        assert (first, second) not in pairs[:number]


@pytest.mark.parametrize("wrong", [{"length": 0}, {"length": 2, "change": 0}, {"length": 2, "change": float("inf")}])
def test_patterns_of_nothing_are_refused(wrong):
    with pytest.raises(InvalidParameter):
        query_patterns(**wrong)


# ------------------------------------------------------------------ tables

COLUMNS = {"age": (0, 120), "sex": ("f", "m"), "score": (0.0, 1.0), "stars": [1, 2, 3]}


def rows_of(table):
    return list(zip(*table.values(), strict=True))


@given(pair=neighbouring_tables(COLUMNS, rows=(1, 6)))
def test_tables_differ_by_one_row(pair):
    few, many = sorted(map(rows_of, pair), key=len)
    assert len(many) == len(few) + 1 <= 6
    assert len(few) >= 1
    assert any(many[:place] + many[place + 1 :] == few for place in range(len(many)))


@given(pair=neighbouring_tables(COLUMNS, rows=(1, 6), adjacency=Adjacency.REPLACE))
def test_replaced_tables_have_one_other_row(pair):
    first, second = map(rows_of, pair)
    assert 1 <= len(first) == len(second) <= 6
    assert sum(a != b for a, b in zip(first, second, strict=True)) <= 1


@given(pair=neighbouring_tables(COLUMNS))
def test_values_are_within_what_was_stated(pair):
    for table in pair:
        assert list(table) == list(COLUMNS)
        assert all(isinstance(age, int) and 0 <= age <= 120 for age in table["age"])
        assert all(0 <= score <= 1 for score in table["score"])
        assert set(table["sex"]) <= {"f", "m"}
        assert set(table["stars"]) <= {1, 2, 3}
    pa.table(pair[0])


@pytest.mark.parametrize(
    "wrong",
    [
        {"columns": {}},
        {"columns": {"a": ()}},
        {"columns": {"a": "fm"}},
        {"columns": {"a": (3, 1)}},
        {"columns": {"a": (0, 1)}, "rows": (5, 2)},
        {"columns": {"a": (0, 1)}, "rows": (-1, 2)},
    ],
    ids=str,
)
def test_tables_that_cannot_be_are_refused(wrong):
    with pytest.raises(InvalidParameter):
        neighbouring_tables(**wrong)


def noisy_sum(bound):
    """A sum of ages clamped to ``bound``, with noise for that bound."""

    def draw(table, n):
        exact = float(np.minimum(table["age"], bound).sum()) if table["age"] else 0.0
        return Laplace(scale=100).release(np.full(n, exact))

    return Batched(draw, copies=True)


@at_night
def test_hypothesis_leads_to_the_row_that_breaks_the_claim():
    """Noise for ages up to 100 on ages up to 120 is short for few rows only."""
    tables = neighbouring_tables({"age": (0, 400), "sex": ("f", "m")}, rows=(0, 4))
    found = search_tables(noisy_sum(400), tables, examples=60, claim=1, confidence=SURE, budget="12s")
    assert found.broken
    ages = [sum(table["age"]) for table in found.pair]
    assert abs(ages[0] - ages[1]) > 100
    right = search_tables(noisy_sum(100), tables, examples=30, claim=1, confidence=SURE, budget=BRIEF)
    assert right.verdict is Verdict.HELD


def test_the_search_over_tables_keeps_its_time(own_clock):
    def slow(table):
        own_clock.passed += 0.005
        return len(table["age"])

    search_tables(slow, neighbouring_tables({"age": (0, 100)}), examples=500, budget="1.5s")
    assert own_clock.passed < 2


def test_a_missing_library_is_named(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "hypothesis"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with pytest.raises(MissingLibrary, match=r"dither\[search\]"):
        neighbouring_tables({"a": (0, 1)})
    with pytest.raises(MissingLibrary, match=r"dither\[search\]"):
        search_tables(lambda x: x, None)
