"""Elastic sensitivity against the local sensitivity of every small database, and the mutants that it exposes."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from functools import cache

import pytest

from dither.errors import InvalidData, InvalidParameter, NotPrivate
from dither.mechanisms.elastic_sensitivity import (
    ElasticCount,
    Join,
    Polynomial,
    Table,
    elastic_sensitivity,
    smooth_elastic_sensitivity,
)
from dither.privacy import Adjacency, ApproximateLoss

# Databases are sorted tuples of rows (table, values …); every one with at most four rows is visited.
MOST_ROWS = 4


def most(rows, column) -> int:
    return max(Counter(row[column] for row in rows).values(), default=0)


class TwoTables:
    """r(a) ⋈ s(a)."""

    rows = (("r", 0), ("r", 1), ("s", 0), ("s", 1))

    @staticmethod
    def count(database):
        return sum(a[1] == b[1] for a in database for b in database if (a[0], b[0]) == ("r", "s"))

    @staticmethod
    def query(database):
        r, s = ([row for row in database if row[0] == name] for name in "rs")
        return Join(Table("r", {"a": most(r, 1)}), Table("s", {"a": most(s, 1)}), "r.a", "s.a")


class SelfJoin:
    """e(src, dst) ⋈ e(src, dst) on dst = src: paths of length two; an edge (0, 0) joins with itself."""

    rows = (("e", 0, 0), ("e", 0, 1), ("e", 1, 0))

    @staticmethod
    def count(database):
        return sum(a[2] == b[1] for a in database for b in database)

    @staticmethod
    def query(database):
        known = {"src": most(database, 1), "dst": most(database, 2)}
        return Join(Table("e", known, "e1"), Table("e", known, "e2"), "e1.dst", "e2.src")


class Chain:
    """r(a) ⋈ s(a, b) ⋈ r(a) again, on s.b: three uses, two tables, one of them twice."""

    rows = (("r", 0), ("s", 0, 0), ("s", 0, 1))

    @staticmethod
    def count(database):
        r = [row for row in database if row[0] == "r"]
        s = [row for row in database if row[0] == "s"]
        return sum(a[1] == b[1] and b[2] == c[1] for a in r for b in s for c in r)

    @staticmethod
    def query(database):
        r, s = ([row for row in database if row[0] == name] for name in "rs")
        first, second = (Table("r", {"a": most(r, 1)}, alias) for alias in ("r1", "r2"))
        middle = Table("s", {"a": most(s, 1), "b": most(s, 2)})
        return Join(Join(first, middle, "r1.a", "s.a"), second, "s.b", "r2.a")


@cache
def databases(case):
    return [x for n in range(MOST_ROWS + 2) for x in itertools.combinations_with_replacement(case.rows, n)]


@cache
def local_sensitivities(case):
    """x ↦ [largest |q(y) − q(y')| over y within k of x] for k = 0, 1, 2, over databases of at most MOST_ROWS rows."""
    counts = {x: case.count(x) for x in databases(case)}

    def around(x):
        more = [tuple(sorted((*x, row))) for row in case.rows]
        return [y for y in more + [x[:i] + x[i + 1 :] for i in range(len(x))] if y in counts]

    near = {x: around(x) for x in counts}
    # only databases all of whose neighbours are known, so that nothing is underestimated
    local = {x: max(abs(counts[x] - counts[y]) for y in near[x]) for x in counts if len(x) <= MOST_ROWS}
    levels = [local]
    for _ in range(2):
        last = levels[-1]
        levels.append({x: max([last[x]] + [last[y] for y in near[x] if y in last]) for x in last})
    return levels, near


CASES = [TwoTables, SelfJoin, Chain]


def violations(case, bound) -> int:
    levels, _ = local_sensitivities(case)
    return sum(level[x] > bound(case.query(x), k) for k, level in enumerate(levels) for x in level)


@pytest.mark.parametrize("case", CASES)
def test_bounds_every_local_sensitivity(case):
    assert violations(case, lambda query, k: elastic_sensitivity(query, distance=k)) == 0


@pytest.mark.parametrize("case", CASES)
def test_frequencies_that_dont_grow_are_caught(case):
    assert violations(case, lambda query, k: elastic_sensitivity(query, distance=0)) > 0


def test_self_join_rules_are_needed():
    def stabilities(query, k):
        left, right = query.left.frequency(query.left_on).at(k), query.right.frequency(query.right_on).at(k)
        return left, right

    # mutants: the maximum in place of the sum; the product of the two changes left out
    assert violations(SelfJoin, lambda query, k: max(stabilities(query, k))) > 0
    assert violations(SelfJoin, lambda query, k: sum(stabilities(query, k))) > 0
    assert violations(SelfJoin, lambda query, k: sum(stabilities(query, k)) + 1) == 0


def test_joins_multiply_frequencies():
    # mutant: the frequency of a column in a join taken from its table alone
    def flat(query, k):
        outer_left = query.left.left.frequency("r1.a").at(k), query.left.right.frequency("s.b").at(k)
        right = query.right.frequency("r2.a").at(k)
        first = query.left.stability("r").at(k)
        return max(outer_left[1] + right * first + first, right * query.left.stability("s").at(k))

    assert violations(Chain, flat) > 0


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("beta", [0.05, 0.7])
def test_smooth_for_all_neighbours(case, beta):
    levels, near = local_sensitivities(case)
    smooth = {x: smooth_elastic_sensitivity(case.query(x), beta) for x in databases(case)}
    for x in levels[0]:
        assert smooth[x] >= levels[0][x]
        for y in near[x]:
            assert smooth[x] <= math.exp(beta) * smooth[y] * (1 + 1e-12)
            assert smooth[y] <= math.exp(beta) * smooth[x] * (1 + 1e-12)
    # power: it is not smooth with half of β
    ratios = (smooth[x] / smooth[y] for x in levels[0] for y in near[x])
    assert beta > 0.5 or max(ratios) > math.exp(beta / 2)


def test_smooth_bound_is_the_maximum():
    query = Join(Table("r", {"a": 7}), Table("s", {"a": 30}), "r.a", "s.a")
    for beta in (0.001, 0.034, 2.0):
        expected = max(math.exp(-beta * k) * elastic_sensitivity(query, distance=k) for k in range(5000))
        assert smooth_elastic_sensitivity(query, beta) == pytest.approx(expected, rel=1e-9)
        assert smooth_elastic_sensitivity(query, beta) >= expected


def test_rules_by_hand():
    trips, drivers = Table("trips", {"driver": 20, "city": 900}), Table("drivers", {"id": 1, "home": 5})
    cities = Table("cities", {"id": 1}, public=True)
    assert elastic_sensitivity(trips, distance=9) == 1
    two = Join(trips, drivers, "trips.driver", "drivers.id")
    assert [elastic_sensitivity(two, distance=k) for k in (0, 1, 10)] == [20, 21, 30]
    # a public table with a unique key changes nothing, and its frequency doesn't grow
    three = Join(two, cities, "trips.city", "cities.id")
    assert [elastic_sensitivity(three, distance=k) for k in (0, 1, 10)] == [20, 21, 30]
    # the column of a joined row occurs as often as the product says
    assert three.frequency("drivers.home").at(0) == 5 * 20
    assert Polynomial((1, 2)) * Polynomial((3, 1)) == Polynomial((3, 7, 2))
    assert Polynomial((1,)) + Polynomial((0, 5)) == Polynomial((1, 5))


def test_bad_queries():
    r, s = Table("r", {"a": 1}), Table("s", {"a": 1})
    with pytest.raises(InvalidParameter, match="alias"):
        Join(r, r, "r.a", "r.a")
    with pytest.raises(InvalidParameter, match="no maximal frequency"):
        Join(r, s, "r.a", "s.b")
    with pytest.raises(InvalidParameter, match="no maximal frequency"):
        Join(r, s, "s.a", "r.a")
    with pytest.raises(InvalidParameter, match="public in one place"):
        Join(r, Table("r", {"a": 1}, "other", public=True), "r.a", "other.a")
    for bad in (-1, 1.5, True, None, 2**63):
        with pytest.raises(InvalidData, match=r"r\.a must be a whole number") as caught:
            Table("r", {"a": bad})
        assert "got" not in str(caught.value)
    query = Table("t0", {"a": 1})
    for i in range(1, 10):
        query = Join(query, Table(f"t{i}", {"a": 1}), "t0.a", f"t{i}.a")
    with pytest.raises(InvalidParameter, match="at most 10"):
        Join(query, Table("t10", {"a": 1}), "t0.a", "t10.a")
    with pytest.raises(NotPrivate):
        elastic_sensitivity(Table("p", {}, public=True), distance=0)
    with pytest.raises(InvalidParameter):
        elastic_sensitivity(r, distance=-1)
    for beta in (0, -1, math.nan):
        with pytest.raises(InvalidParameter):
            smooth_elastic_sensitivity(r, beta)
    with pytest.raises(InvalidParameter, match="too small"):
        smooth_elastic_sensitivity(Join(r, s, "r.a", "s.a"), 1e-9)


def test_largest_query_stays_finite():
    query = Table("e", {"a": 2**62, "b": 2**62}, "e0")
    for i in range(1, 10):
        query = Join(query, Table("e", {"a": 2**62, "b": 2**62}, f"e{i}"), f"e{i - 1}.b", f"e{i}.a")
    assert math.isfinite(smooth_elastic_sensitivity(query, 0.01))
    assert isinstance(ElasticCount(1, 1e-6).release(5, query), int)


def test_release():
    query = Join(Table("r", {"a": 3}), Table("s", {"a": 2}), "r.a", "s.a")
    mechanism = ElasticCount(epsilon=1, delta=1e-6)
    assert mechanism.loss() == ApproximateLoss(1, 1e-6)
    assert mechanism.loss().adjacency is Adjacency.ADD_REMOVE
    bound = mechanism.smooth_bound(query)
    assert bound >= 3
    limit = mechanism.noise.error(0.999999999, smooth_bound=bound)
    assert all(abs(mechanism.release(1000, query) - 1000) <= limit for _ in range(50))
    with pytest.raises(InvalidData):
        mechanism.release(1.5, query)
    assert mechanism.epsilon == 1
