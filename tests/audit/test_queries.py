"""The query audit: right questions pass, broken prices, engines and answers don't, nothing of the owner's is read."""

import datetime as dt
import hashlib
import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import islice

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from dither.audit.claims import telling_delta
from dither.audit.queries.audit import audit_query
from dither.audit.queries.made_up_tables import worlds
from dither.audit.queries.movement import in_words, movements
from dither.audit.queries.neighbours import Fault
from dither.audit.queries.releases import MOST_SHOWN, SCORE, Releases
from dither.audit.queries.synthetic import constants_of, tables_of, unit_id, values_of
from dither.audit.result import Verdict
from dither.checks.statistics import chi_square
from dither.curator import Curator, execution
from dither.engines import bounding
from dither.errors import InvalidParameter, InvalidPolicy, Refused
from dither.mechanisms import GaussianLoss
from dither.mechanisms.randomized_response import RandomizedResponse
from dither.policy import Policy
from dither.privacy import Adjacency, ApproximateLoss, PureLoss
from dither.query.aggregates import catalogue
from dither.query.kinds import Kind
from dither.query.measure.measures import BinCounts, Measured
from dither.query.price.noise import QueryBudget, price
from dither.query.sql import bind
from support.sizes import at_night, short_or_full, some

ALPHA = 1e-9
SURE = 1 - 1e-6
POLICY = """
[source]
database = "shop.duckdb"
name = "shop"
ledger_head = "shop.head"

[budget]
epsilon_budget = 8
{budget}

[analysts.ana]
epsilon_budget = 2

[tables.orders]
private = true
{unit}

[tables.orders.columns]
customer = {{ type = "integer" }}
city = {{ type = "text", in = ["Basel", "Bern"] }}
product = {{ type = "text" }}
day = {{ type = "date" }}
amount = {{ type = "double", between = [0, 50], step = 0.5 }}
weight = {{ type = "double", between = "auto" }}

[tables.cities]
public = true
unique = [["city"]]

[tables.cities.columns]
city = {{ type = "text", in = ["Basel", "Bern"] }}
size = {{ type = "integer", between = [1, 9] }}
"""
BY_UNIT = 'privacy_unit_column = "customer"\nmax_groups_contributed = 2\nmax_rows_contributed = 4'
COUNT = "SELECT COUNT(*) AS n FROM orders"


def policy_text(*, budget="", unit=BY_UNIT):
    return POLICY.format(budget=budget, unit=unit)


def policy(**more):
    return Policy.parse(policy_text(**more), base="nowhere")


def audited(sql, rules=None, *, epsilon="2", budget=1.5, pairs=12, **more):
    return audit_query(
        rules or policy(), sql, epsilon=epsilon, budget=budget, pairs=pairs, confidence=SURE, workers=1, **more
    )


# ------------------------------------------------------------------ right questions


def test_a_right_question_holds_and_its_claim_is_tight():
    found = audited(
        "SELECT city, COUNT(*) AS n, SUM(amount) AS s FROM orders GROUP BY city", budget=short_or_full(1.6, 3)
    )
    assert not found.broken
    # all that was asked for, or what a busy machine had time for
    assert 6 <= found.neighbours.pairs <= 12
    assert found.neighbours.moved >= 4
    assert found.neighbours.broken == ()
    assert {each.what for each in found.neighbours.movements} == {"n: count", "s: sum"}
    assert found.neighbours.furthest == 1.0
    assert found.release.verdict is found.answers.verdict is Verdict.HELD
    # ε = 2 is claimed and, on the pair that moved furthest, nearly reached
    assert 0.5 < found.release.epsilon <= 2.0
    # both bounds together keep the confidence that was asked for
    assert found.release.confidence == found.answers.confidence == pytest.approx(1 - 5e-7, abs=1e-12)
    text = str(found)
    assert "claim       ε = 2 (charged as ε = 2" in text
    assert "100% of what is claimed: n: count" in text
    assert "verdict     held." in text


@pytest.mark.parametrize(
    ("sql", "more"),
    some(
        [
            ("SELECT product, COUNT(*) AS n FROM orders GROUP BY product", {"budget": "delta_budget = 1e-4"}),
            (
                "SELECT city, SUM(amount) AS s FROM orders GROUP BY city",
                {"budget": 'adjacency = "replace"\ndelta_budget = 1e-6'},
            ),
            ("SELECT COUNT(*) AS n, AVG(amount) AS a FROM orders", {"unit": 'privacy_unit = "row"'}),
            (
                "SELECT COUNT(*) AS n FROM orders WHERE amount > 20",
                {"unit": 'privacy_unit = "row"', "budget": 'adjacency = "replace"'},
            ),
            ("SELECT SUM(weight) AS w FROM orders", {}),
            ("SELECT c.size, COUNT(*) AS n FROM orders o JOIN cities c ON o.city = c.city GROUP BY c.size", {}),
            ("SELECT MEDIAN(amount) AS m, MODE(city) AS c FROM orders HAVING COUNT(*) > 3", {}),
        ],
        2,
    ),
)
def test_other_right_questions_hold(sql, more):
    found = audited(sql, policy(**more), budget=short_or_full(0.3, 1), pairs=8)
    assert not found.broken, str(found)
    assert found.neighbours.moved > 0
    assert (found.release is None) == ("weight" in sql)
    if "weight" in sql:
        searches = [
            each for each in found.neighbours.movements if "search for the bounds of orders.weight" in each.what
        ]
        assert [each.share for each in searches] == [1.0]


def test_without_an_epsilon_it_is_the_default_or_the_most_that_a_question_may_cost():
    assert audited(COUNT, epsilon=None, budget=0.1, pairs=2).quote.epsilon == 8.0
    assert audited(COUNT, epsilon=None, analyst="ana", budget=0.1, pairs=2).quote.epsilon == 2.0
    rules = policy(budget="default_epsilon = 3")
    assert audited(COUNT, rules, epsilon=None, budget=0.1, pairs=2).quote.epsilon == 3.0


# ------------------------------------------------------------------ mutants


def halved_reach(patch):
    """The price believes that a unit moves half as far as it can."""
    for name in ("reach_of", "basis_reach"):
        whole = getattr(catalogue, name)

        def half(*facts, whole=whole):
            found = whole(*facts)
            return replace(
                found, l1=found.l1 // 2, l2_squared=found.l2_squared // 4, per_group=Fraction(found.per_group, 2)
            )

        patch.setattr(catalogue, name, half)


def no_cap(patch):
    """What a unit adds to a group isn't cut down."""

    def capped(self, rows):
        return f"CAST(r.{self.name if self.total.factors else self._counter} AS HUGEINT)"

    patch.setattr(bounding._Part, "capped", capped)


@pytest.mark.parametrize(("mutant", "budget"), [pytest.param(halved_reach, 4, marks=at_night), (no_cap, 2)])
@pytest.mark.usefixtures("counted_time")
def test_a_broken_price_and_a_broken_engine_are_caught_twice(monkeypatch, mutant, budget):
    mutant(monkeypatch)
    found = audited(COUNT, budget=budget, pairs=20)
    assert found.broken
    faults = {each.breach.fault for each in found.neighbours.broken}
    assert faults & {Fault.CELL, Fault.L1}
    worst = max(found.neighbours.broken, key=lambda each: each.breach.found)
    assert worst.what == "n: count"
    assert worst.breach.found > worst.breach.claimed
    assert found.release.verdict is Verdict.BROKEN
    assert found.release.epsilon > 2.0
    text = str(found)
    assert "BROKEN n: count" in text
    assert "verdict     BROKEN." in text


@pytest.mark.usefixtures("counted_time")
def test_answers_that_skip_the_noise_are_caught_though_releases_have_it(monkeypatch):
    """What the analyst gets is what is tested: a fault behind the release is seen in whole answers alone."""
    honest = execution.release

    def exact(priced, measured, **more):
        found = honest(priced, measured, **more)
        return replace(found, cells=tuple(np.array(total, dtype=np.int64) for total in measured.totals))

    monkeypatch.setattr(execution, "release", exact)
    found = audit_query(policy(), COUNT, epsilon="1/10", pairs=6, budget=4, confidence=0.9999, workers=1)
    assert found.neighbours.broken == ()
    assert found.release.verdict is Verdict.HELD
    assert found.answers.verdict is Verdict.BROKEN
    assert found.broken
    assert "Outputs tell neighbours apart" in found.verdict


# ------------------------------------------------------------------ refusals, and what is never touched


def test_what_would_be_refused_is_refused():
    with pytest.raises(Refused) as refusal:
        audited("SELECT MAX(amount) FROM orders")
    assert refusal.value.code == "aggregate"
    with pytest.raises(Refused) as refusal:
        audited("SELECT product, COUNT(*) FROM orders GROUP BY product")
    assert refusal.value.code == "keys_need_delta"
    with pytest.raises(Refused) as refusal:
        audited(COUNT, epsilon="9")
    assert refusal.value.code == "epsilon_too_large"
    with pytest.raises(Refused) as refusal:
        audited(COUNT, analyst="eve")
    assert refusal.value.code == "unknown_analyst"


def test_mistakes_are_said(tmp_path):
    with pytest.raises(InvalidPolicy, match="can't be read"):
        audit_query(tmp_path / "none.toml", COUNT)
    with pytest.raises(InvalidParameter, match="leave EXPLAIN PRIVACY out"):
        audited("EXPLAIN PRIVACY " + COUNT)
    with pytest.raises(InvalidParameter, match="pairs"):
        audited(COUNT, pairs=0)
    with pytest.raises(InvalidParameter, match="budget must be a time"):
        audited(COUNT, budget="soon")


def fingerprints(folder):
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(p): (hashlib.sha256(p.read_bytes()).hexdigest(), p.stat().st_mtime_ns) for p in files}


def test_the_owners_data_and_ledger_are_never_opened(tmp_path):
    (tmp_path / "dither.toml").write_text(policy_text(), encoding="utf-8")
    # there is no data at all, and none is made
    assert not audited(COUNT, tmp_path / "dither.toml", budget=0.1, pairs=2).broken
    assert [p.name for p in tmp_path.iterdir()] == ["dither.toml"]
    # there is data that can't even be opened
    (tmp_path / "shop.duckdb").write_bytes(b"not a database")
    (tmp_path / "shop.duckdb").chmod(0)
    (tmp_path / "shop.ledger").write_bytes(b"not a ledger")
    (tmp_path / "shop.duckdb").chmod(0o600)
    before = fingerprints(tmp_path)
    assert not audited(COUNT, tmp_path / "dither.toml", budget=0.1, pairs=2).broken
    assert fingerprints(tmp_path) == before


def test_nothing_is_charged(tmp_path):
    (tmp_path / "dither.toml").write_text(policy_text(), encoding="utf-8")
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as database:
        columns = (
            "1 AS customer, 'Bern' AS city, 'a' AS product, DATE '2024-01-01' AS day, 1.0 AS amount, 2.0 AS weight"
        )
        database.execute(f"CREATE TABLE orders AS SELECT {columns}")
        database.execute("CREATE TABLE cities AS SELECT 'Bern' AS city, 1 AS size")
    with Curator.open(tmp_path / "dither.toml") as curator:
        curator.sql(COUNT, epsilon=1)
    before = fingerprints(tmp_path)
    audited(COUNT, tmp_path / "dither.toml", budget=0.1, pairs=2)
    assert fingerprints(tmp_path) == before
    with Curator.open(tmp_path / "dither.toml") as curator:
        assert curator.budget()[0].epsilon_spent == 1.0


# ------------------------------------------------------------------ made-up tables


def asked(sql, rules):
    return bind(sql, rules.schema).aggregation


def test_worlds_have_the_shape_of_the_policy_and_more():
    rules = policy()
    joined = "orders o JOIN cities c ON o.city = c.city"
    sql = f"SELECT COUNT(*) AS n FROM {joined} WHERE o.product LIKE 'shoe%' AND c.size < 5"
    aggregation = asked(sql, rules)
    assert tables_of(aggregation) == ("cities", "orders")
    seen: dict[str, set] = {name: set() for name in rules.schema.tables["orders"].columns}
    most = 0
    for world in islice(worlds(rules.schema, aggregation, seed=5), 40):
        orders, cities = world.base["orders"], world.base["cities"]
        assert orders.column_names == list(rules.schema.tables["orders"].columns)
        assert orders.schema.field("day").type == pa.date32()
        named = [city for city in cities.column("city").to_pylist() if city is not None]
        assert len(named) == len(set(named)), "declared as unique"
        for name in seen:
            seen[name] |= set(map(repr, orders.column(name).to_pylist()))
        most = max(most, *Counter(orders.column("customer").to_pylist()).values())
        # one unit is gone, all other rows are as they were
        for pair in world.pairs():
            assert pair.adjacency is Adjacency.ADD_REMOVE
            gone = Counter(map(repr, pair.before["orders"].to_pylist()))
            gone.subtract(Counter(map(repr, pair.after["orders"].to_pylist())))
            assert min(gone.values()) >= 0
            assert len({row.partition("'city'")[0] for row, count in gone.items() if count}) == 1
            assert pair.before["cities"].equals(pair.after["cities"])
    assert {"None", "nan", "inf", "-inf"} <= seen["amount"], "values that nobody declared"
    assert any(value not in ("None", "nan") and float(value) > 50 for value in seen["amount"])
    assert {"'Basel'", "'Bern'", "None"} <= seen["city"]
    assert any("shoe" in value for value in seen["product"]), "what the question asks about"
    assert "None" in seen["customer"], "rows of nobody"
    assert most >= 2 * 4, "a unit with more rows than it may count with"


def test_the_same_seed_makes_the_same_worlds():
    rules = policy()
    first, again, other = (
        [world.base["orders"].to_pydict() for world in islice(worlds(rules.schema, asked(COUNT, rules), seed=s), 3)]
        for s in (1, 1, 2)
    )
    assert repr(first) == repr(again)
    assert repr(first) != repr(other)


def test_a_crowd_shares_the_groups_of_the_heavy_unit():
    rules = policy(budget="delta_budget = 1e-6")
    aggregation = asked("SELECT product, COUNT(*) FROM orders GROUP BY product", rules)
    crowded = next(iter(worlds(rules.schema, aggregation, seed=1, crowd=30)))
    users: dict = {}
    for row in crowded.base["orders"].to_pylist():
        users.setdefault(row["product"], set()).add(row["customer"])
    assert max(map(len, users.values())) > 15


def test_replaced_units_stay_units_and_replaced_rows_keep_their_number():
    rules = policy(budget='adjacency = "replace"', unit='privacy_unit = "row"')
    for world in islice(worlds(rules.schema, asked(COUNT, rules), seed=3), 10):
        for pair in world.pairs():
            assert pair.adjacency is Adjacency.REPLACE
            assert pair.before["orders"].num_rows == pair.after["orders"].num_rows


def test_values_stand_around_the_constants_of_the_question():
    rules = policy()
    sql = "SELECT COUNT(*) FROM orders WHERE day >= DATE '2024-05-01' AND amount < 17"
    constants = constants_of(asked(sql, rules))
    from random import Random

    columns = rules.schema.tables["orders"].columns
    days = values_of(columns["day"], constants, Random(1))
    assert {dt.date(2024, 4, 30), dt.date(2024, 5, 1), dt.date(2024, 5, 2)} <= set(days.mentioned)
    amounts = values_of(columns["amount"], constants, Random(1))
    assert {16.0, 17.0, 18.0} <= set(amounts.mentioned)
    assert (amounts.lowest, amounts.highest) == (0.0, 50.0)


def test_ids_are_different_and_the_same_in_every_kind_where_kinds_differ():
    for kind in Kind:
        ids = [unit_id(number, kind, odd=True) for number in range(12)]
        known = [each for each in ids if each is not None]
        assert len(set(known)) == len(known) == (2 if kind is Kind.BOOLEAN else 12)
    plain = [unit_id(number, Kind.TEXT, odd=False) for number in range(9)]
    assert plain == [str(unit_id(number, Kind.INTEGER, odd=False)) for number in range(9)]


# ------------------------------------------------------------------ movement and releases, by hand


def measured(keys, totals, bins=()):
    table = pa.table({"k0": keys}) if keys is not None else pa.table({})
    size = len(totals[0])
    return Measured(
        keys=table,
        size=size,
        totals=tuple(np.array(total, dtype=np.int64) for total in totals),
        bins=tuple(BinCounts(group=np.array(g), bin=np.array(b), count=np.array(n)) for g, b, n in bins),
    )


def priced(sql, rules=None, *, main=2, kind="pure"):
    rules = rules or policy()
    question = bind(sql, rules.schema)
    budget = QueryBudget(kind=kind, main=Fraction(main))
    return question, price(question.aggregation, budget, rules.schema.adjacency)


def test_movement_is_the_share_of_the_claim_in_the_norm_of_the_noise():
    question, pure = priced("SELECT city, COUNT(*) AS n FROM orders GROUP BY city")
    before = measured(["Basel", "Bern"], [[7, 5]])
    # two groups of four rows each: 8 in l1; 2 + 4 of them moved
    assert movements(pure, before, measured(["Basel", "Bern"], [[5, 1]])) == (6 / 8,)
    assert in_words(pure, question) == ("n: count",)
    _, zcdp = priced("SELECT city, COUNT(*) AS n FROM orders GROUP BY city", kind="zcdp")
    assert movements(zcdp, before, measured(["Basel", "Bern"], [[5, 1]])) == (math.sqrt(20 / 32),)
    # a group that isn't there counts as none; groups that aren't looked at don't count
    assert movements(pure, before, measured(["Basel"], [[7]])) == (5 / 8,)
    assert movements(pure, before, measured(["Basel"], [[7]]), among={("Basel",)}) == (0.0,)


def test_the_score_of_a_release_is_the_log_of_the_likelihood_ratio():
    _, pure = priced("SELECT city, COUNT(*) AS n FROM orders GROUP BY city")
    before, after = measured(["Basel", "Bern"], [[7, 5]]), measured(["Basel", "Bern"], [[3, 5]])
    releases = Releases.of(pure, before, after, ("x", "y"))
    assert releases.groups == (("Basel",),)
    assert releases.columns == (SCORE, "cell 0 of group 0")
    drawn = releases.draw(releases.sides[0], 5000)
    scale = float(pure.noise[0].scale)
    expected = (np.abs(drawn[:, 1] - 3) - np.abs(drawn[:, 1] - 7)) / scale
    np.testing.assert_allclose(drawn[:, 0], expected)


@pytest.mark.parametrize("wrong", [0, 1])
def test_copies_of_a_release_follow_the_law_of_one(wrong):
    """The noise of every copy is that of the price, around the exact cell of its side; a mutant is one row off."""
    _, pure = priced("SELECT city, COUNT(*) AS n FROM orders GROUP BY city", main=8)
    before, after = measured(["Basel", "Bern"], [[7, 5]]), measured(["Basel"], [[3]])
    releases = Releases.of(pure, before, after, ("x", "y"))
    assert set(releases.groups) == {("Basel",), ("Bern",)}
    place = 1 + releases.groups.index(("Bern",))
    for side, exact in zip(releases.sides, (5, 0), strict=True):
        drawn = releases.draw(side, 40_000)
        p = chi_square(drawn[:, place] - exact + wrong, lambda x: discrete_laplace_cdf(x, pure.noise[0].scale))
        assert (p < ALPHA) == bool(wrong)
        # copies and groups are independent of each other
        assert abs(np.corrcoef(drawn[:, 1], drawn[:, 2])[0, 1]) < 6 / math.sqrt(len(drawn))
        assert abs(np.corrcoef(drawn[:-1, 1], drawn[1:, 1])[0, 1]) < 6 / math.sqrt(len(drawn))


def discrete_laplace_cdf(x, scale):
    q = math.exp(-1 / float(scale))
    k = np.floor(x)
    return np.where(k < 0, q**-k / (1 + q), 1 - q ** (k + 1) / (1 + q))


def test_releases_of_choices_and_of_many_groups_keep_their_shape():
    rules = policy()
    _, pure = priced("SELECT city, COUNT(*) AS n, MODE(city) AS m FROM orders GROUP BY city", rules)
    bins = [([0, 1], [0, 1], [7, 5])]
    before = measured(["Basel", "Bern"], [[7, 5]], bins)
    after = measured(["Basel", "Bern"], [[4, 4]], [([0, 1], [0, 1], [4, 4])])
    releases = Releases.of(pure, before, after, ("x", "y"))
    drawn = releases.draw(releases.sides[1], 50)
    assert drawn.shape == (50, len(releases.columns)) == (50, 1 + 2 + 2)
    assert set(np.unique(drawn[:, 3:])) <= {0.0, 1.0}
    assert MOST_SHOWN >= 2


def test_the_delta_of_a_bound_is_one_that_samples_can_see():
    assert telling_delta(PureLoss(1)) == 0.0
    assert telling_delta(RandomizedResponse("1/4").loss()) == 0.0
    assert telling_delta(ApproximateLoss(1, "1/20")) == 0.05
    # a quarter of Φ(½) − Φ(−½)
    assert telling_delta(GaussianLoss(Fraction(1))) == pytest.approx(0.3829 / 4, rel=0.02)


def test_a_wrong_confidence_is_told_as_it_was_given():
    with pytest.raises(InvalidParameter, match="got 2"):
        audit_query(policy(), COUNT, confidence=2)
