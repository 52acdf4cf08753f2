"""Which groups appear, in which order; and which rows of a person count: nobody's choice."""

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dither.checks.statistics import proportion_at_most
from dither.errors import Refused

ALPHA = 1e-9
CITIES = ["Bern", "Lyon", "Oslo"]
BY_PRODUCT = "SELECT product, COUNT(*) AS n FROM orders GROUP BY product"
# δ so large that its meaning can be measured: 0.2 a question, half of it for showing keys.
LARGE_DELTA = {"delta_budget": "0.6", "epsilon_budget": "50"}
SINGLETONS = 40_000


class OneMore:
    """A mutant engine: everybody seems to have company, so thresholds are off by one."""

    def __init__(self, engine):
        self.engine = engine

    def run(self, measurement, *, salt):
        measured = self.engine.run(measurement, salt=salt)
        return replace(measured, totals=tuple(total + 1 for total in measured.totals))

    def __getattr__(self, name):
        return getattr(self.engine, name)


@pytest.fixture
def singletons(shop, make):
    """People who each hold a key of their own."""
    import duckdb

    one = shop([], unit='privacy_unit_column = "user_id"', **LARGE_DELTA)
    one.close()
    with duckdb.connect(one.directory / "shop.duckdb") as database:
        database.execute(
            "INSERT INTO orders SELECT i, 'Bern', 'p' || i, DATE '2024-01-01', 1.0, 1, 'r' "
            f"FROM range({SINGLETONS}) AS t(i)"
        )
    policy = one.policy.read_text().replace("adjacency", "delta_per_query = 0.2\nadjacency")
    one.policy.write_text(policy)
    opened = make.open_shop(one.directory)
    yield opened
    opened.close()


@pytest.mark.parametrize("epsilon", [1, 8])
def test_c15_c22_singletons_are_shown_with_probability_delta_at_most(singletons, epsilon):
    """C15, C22: the exact binomial test over forty thousand people with a key of their own."""
    quote = singletons.curator.price(BY_PRODUCT, epsilon=epsilon)
    delta = Fraction(1, 10)
    assert quote.priced.budget.delta <= delta
    shown = singletons.curator.sql(BY_PRODUCT, epsilon=epsilon).table.num_rows
    assert proportion_at_most(shown, SINGLETONS, float(delta)) > ALPHA
    # the selection isn't so strict that the test could not fail
    singletons.curator._vault.execution._engine = OneMore(singletons.engine)
    off_by_one = singletons.curator.sql(BY_PRODUCT, epsilon=epsilon + Fraction(1, 1000)).table.num_rows
    assert proportion_at_most(off_by_one, SINGLETONS, float(delta)) < ALPHA


def test_c15_the_delta_of_discovered_keys_is_charged(shop, make):
    """C15: showing keys costs δ, in the ledger, apart from ε."""
    one = shop(make.crowd(), delta_budget="1e-3", epsilon_budget="50")
    one.curator.sql("SELECT city, COUNT(*) AS n FROM orders GROUP BY city", epsilon=1)
    assert one.spent()["shop"][1] == 0
    one.curator.sql(BY_PRODUCT, epsilon=1)
    charged = one.spent()["shop"][1]
    assert 0 < charged <= 5 * 10**12  # half of a hundredth of 1e-3
    assert charged >= one.curator.price(BY_PRODUCT, epsilon=1).priced.budget.delta * 10**17


def test_c15_without_a_delta_no_key_is_discovered(shop, make):
    """C15: a pure budget refuses unknown keys, before any cost."""
    one = shop(make.crowd())
    with pytest.raises(Refused) as refused:
        one.curator.sql(BY_PRODUCT, epsilon=1)
    assert "bread" not in str(refused.value)
    assert one.spent()["shop"] == (0, 0)


@pytest.mark.parametrize("cities", [[], ["Bern"], ["Rome", "rare"], ["Bern", "Lyon", "Oslo", None]])
@pytest.mark.parametrize("unit", ["row", "column"])
def test_c16_public_keys_are_complete_and_there_are_no_others(shop, make, cities, unit):
    """C16: whatever is in the data, the declared keys answer, in their order, and nothing else does."""
    settings = {"unit": make.ROW_LEVEL} if unit == "row" else {}
    rows = [make.order(number, city=city) for number, city in enumerate(cities * 7)]
    one = shop(rows, **settings)
    answer = one.curator.sql("SELECT city, COUNT(*) AS n, AVG(amount) AS m FROM orders GROUP BY city", epsilon=1)
    assert [row["city"] for row in answer.to_pylist()] == CITIES
    assert all(row["n"] is not None and row["m"] is not None for row in answer.to_pylist())
    several = one.curator.sql("SELECT city, quantity > 3 AS many, COUNT(*) FROM orders GROUP BY ALL", epsilon=1)
    combinations = sorted((row["city"], row["many"]) for row in several.to_pylist())
    assert combinations == list(itertools.product(CITIES, [False, True]))


def test_c16_groups_cannot_be_forced_open_by_the_question(shop, make):
    """C16: HAVING, WHERE and LIMIT choose among noisy or public groups; NULL is no secret group."""
    one = shop([make.order(1, city="Bern"), make.order(2, city=None)])
    for sql in (
        "SELECT city, COUNT(*) AS n FROM orders WHERE city = 'Rome' GROUP BY city",
        "SELECT city, COUNT(*) AS n FROM orders WHERE city IS NULL GROUP BY city",
        "SELECT city, COUNT(*) AS n FROM orders WHERE FALSE GROUP BY city",
    ):
        assert [row["city"] for row in one.curator.sql(sql, epsilon=1).to_pylist()] == CITIES


def test_c18_the_order_of_rows_decides_nothing(shop, make):
    """C18: the answer's order is that of its keys, or the one that was asked for."""
    products = ["pear", "apple", "fig", "plum", "zucchini", "Banana", "éclair"]
    rows = [make.order(100 * p + n, product=product) for p, product in enumerate(products) for n in range(40)]
    found = []
    for order in (rows, rows[::-1], rows[1::2] + rows[::2]):
        one = shop(order, delta_budget="1e-3", epsilon_budget="2000")
        found.append([row["product"] for row in one.curator.sql(BY_PRODUCT, epsilon=500).to_pylist()])
    assert found[0] == found[1] == found[2] == sorted(products)


def test_c18_the_order_of_equal_rows_decides_nothing_per_person(shop, make):
    """C18: rows that tie inside a person's window are ordered by all their columns, not by where they lie."""
    rows = [make.order(1, amount=float(a), product=p) for a, p in itertools.product((5, 6), "abcdef")]
    sql = (
        "SELECT SUM(amount) AS s FROM (SELECT amount, row_number() OVER (PARTITION BY user_id ORDER BY city) AS r "
        "FROM orders) WHERE r <= 2"
    )
    found = [shop(order, salt=b"0123456789abcdef").measured(sql) for order in (rows, rows[::-1])]
    assert found[0] == found[1]


@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.parametrize("unit", ["row", "column"])
def test_c27_empty_and_singleton_tables_answer_like_any_other(shop, make, rows, unit):
    """C27: no division by zero, no NULL that tells of emptiness."""
    settings = {"unit": make.ROW_LEVEL} if unit == "row" else {}
    one = shop(make.crowd(rows), **settings)
    aggregates = [
        "COUNT(*)",
        "SUM(amount)",
        "AVG(amount)",
        "STDDEV(quantity)",
        "MEDIAN(amount)",
        "MODE(city)",
        "COVAR_POP(amount, quantity)",
        "QUANTILE_CONT(quantity, 0.9)",
        "COUNT(DISTINCT product)",
    ]
    for keys in ("", " GROUP BY city"):
        answer = one.curator.sql(f"SELECT {', '.join(aggregates)} FROM orders{keys}", epsilon=5)
        assert answer.table.num_rows == (3 if keys else 1)
        assert all(column.null_count == 0 for column in answer.table.columns), answer
        assert answer._repr_html_()


def test_c27_an_empty_group_is_no_null(shop, make):
    """C27: the mean of an empty group is a number inside the bounds, as that of a small group is."""
    one = shop(make.crowd(1))
    means = [
        one.curator.sql("SELECT city, AVG(amount) AS m FROM orders GROUP BY city", epsilon=1 + n / 1000).to_pylist()
        for n in range(8)
    ]
    assert all(0 <= row["m"] <= 100 for rows in means for row in rows)


def kept_evenly(kept, chances, units):
    """The p-value of "each of ``chances`` groups is kept equally often" when every unit keeps two of them."""
    size, share = len(kept), 2 / len(kept)
    spread = units * chances * share * (1 - share) * size / (size - 1)
    return float(stats.chi2.sf(((np.array(kept) - units * chances * share) ** 2).sum() / spread, size - 1))


@pytest.mark.parametrize("crowd", [1, 40])
def test_c28_no_group_of_a_person_is_kept_more_often_than_another(shop, make, crowd):
    """C28: the choice is made by a keyed hash: not by order, not by key, not by what an analyst can choose."""
    places = [f"city {n}" for n in range(8)]
    rows = [make.order(user, city=city) for user in range(crowd) for city in places]
    one = shop(rows, cities=str(places))
    measurement = one.curator.price("SELECT city, COUNT(*) FROM orders GROUP BY city", epsilon=1).priced.measurement
    runs, kept, seen = 300 if crowd == 1 else 60, np.zeros(len(places)), set()
    for run in range(runs):
        found = one.engine.run(measurement, salt=run.to_bytes(16, "big"))
        counts = dict(zip((row["k0"] for row in found.keys.to_pylist()), found.totals[0].tolist(), strict=True))
        assert sum(counts.values()) == 2 * crowd
        kept += [counts.get(city, 0) for city in places]
        seen.add(tuple(sorted(counts.items())))
    assert kept_evenly(kept, runs, crowd) > ALPHA
    assert len(seen) > 20
    # what keeping the first groups, or a salt that never changes, would give
    assert kept_evenly([runs * crowd] * 2 + [0] * 6, runs, crowd) < ALPHA


def test_c28_every_question_has_a_fresh_salt(shop, make):
    """C28: sixteen bytes that no question, policy or earlier salt determines."""
    salts = []
    for _ in range(2):
        one = shop(make.crowd())
        for n in range(10):
            one.curator.sql("SELECT city, COUNT(*) AS n FROM orders GROUP BY city", epsilon=1 + n / 1000)
        salts += [salt for _, salt, _ in one.engine.seen]
    assert len(salts) == len(set(salts)) == 20
    assert all(len(salt) >= 16 for salt in salts)
