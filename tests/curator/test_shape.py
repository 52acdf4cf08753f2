"""Post-processing of released cells: columns, filters, orders, and the intervals of computed columns."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from dither.curator.answer import Bars
from dither.curator.release import Released
from dither.curator.shape import _middle, shape
from dither.query.recipes import Mean
from dither.query.sql import bind

ALPHA = 1e-9


@pytest.fixture
def priced_of(opened):
    """A question priced on the shop, with what is needed to shape it."""
    curators = {}

    def make(sql, *, delta="1e-6", epsilon="1/2"):
        if not curators:
            curators["made"] = opened(delta=delta)
        quote = curators["made"].curator.price(sql, epsilon=epsilon)
        return quote.priced, bind(sql, curators["made"].policy.schema).shape

    return make


def released(priced, cells, *, keys=None):
    size = len(cells[0])
    return Released(
        keys=pa.table({"k0": keys}) if keys is not None else pa.table({}),
        size=size,
        cells=tuple(np.asarray(cell, dtype=np.int64) for cell in cells),
        noise=priced.noise,
        choices=(),
        recipes=priced.lowered.recipes,
    )


def shaped(priced, wanted, found, confidence="0.95"):
    exact = Fraction(confidence)
    return shape(found, wanted, priced.errors(exact), exact)


def test_columns_filter_order_and_limit_come_from_released_cells(priced_of):
    sql = (
        "SELECT upper(city) AS place, 2 * COUNT(*) AS twice FROM orders GROUP BY city "
        "HAVING COUNT(*) > 100 ORDER BY COUNT(*) DESC LIMIT 1 OFFSET 1"
    )
    priced, wanted = priced_of(sql)
    table, bars = shaped(priced, wanted, released(priced, [[150, 300, 20]], keys=["Basel", "Bern", "Zug"]))
    assert table.to_pylist() == [{"place": "BASEL", "twice": 300}]
    assert set(bars) == {"twice"}
    low, high = bars["twice"].low, bars["twice"].high
    half = 2 * float(priced.errors()[0].half_width)
    # simulated, so within a few percent of what is exact for a line
    assert low[0] == pytest.approx(300 - half, abs=0.15 * half)
    assert high[0] == pytest.approx(300 + half, abs=0.15 * half)


def test_bars_follow_their_rows_through_order_and_limit(priced_of):
    priced, wanted = priced_of("SELECT city, COUNT(*) AS n FROM orders GROUP BY city ORDER BY n LIMIT 2")
    table, bars = shaped(priced, wanted, released(priced, [[150, 300, 20]], keys=["Basel", "Bern", "Zug"]))
    half = priced.errors()[0].half_width
    assert table.column("n").to_pylist() == [20, 150]
    assert bars["n"].low.tolist() == [20 - half, 150 - half]


def test_the_same_cells_give_the_same_bars(priced_of):
    priced, wanted = priced_of("SELECT 100.0 * SUM(amount) / COUNT(*) AS x FROM orders")
    found = released(priced, [[70_000], [2_400]])
    first, second = (shaped(priced, wanted, found)[1]["x"] for _ in range(2))
    assert (first.low, first.high, first.text) == (second.low, second.high, "simulated")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) / 0 AS x FROM orders",
        "SELECT 1.0 / (COUNT(*) - COUNT(*)) AS x FROM orders",
        "SELECT sqrt(-1 - abs(COUNT(*))) AS x FROM orders",
        "SELECT nullif(COUNT(*), COUNT(*)) AS x FROM orders",
    ],
)
def test_what_is_null_has_an_unknown_interval_and_no_warning(priced_of, sql):
    priced, wanted = priced_of(sql)
    table, bars = shaped(priced, wanted, released(priced, [[2_400]]))
    assert table.column("x").to_pylist() == [None]
    assert np.isnan(bars["x"].low).all()


def test_no_groups_at_all(opened):
    made = opened()
    sql = "SELECT item, COUNT(*) AS n, 1.0 * SUM(pieces) / COUNT(*) AS x FROM orders GROUP BY item"
    answer = made.curator.sql(sql, epsilon="0.01")
    assert answer.table.num_rows == 0
    assert answer.table.column_names == ["item", "n", "x"]
    assert answer.interval("x")[0].size == 0


def test_keys_and_constants_have_no_bars_and_truths_no_interval(opened):
    answer = opened().curator.sql(
        "SELECT city, 'x' AS c, COUNT(*) > 100 AS many, MEDIAN(amount) + 1 AS m, STDDEV(amount) * 2 AS d "
        "FROM orders GROUP BY city",
        epsilon=1,
    )
    assert set(answer.bars) == {"many", "m", "d"}
    for name in ("many", "m", "d"):
        assert answer.bars[name] == Bars(low=None, high=None, text="computed from noisy values")


def test_the_middle_is_rounded_outward():
    numbers = np.arange(1000.0)[:, np.newaxis] * np.array([1.0, 2.0])
    numbers = np.concatenate([numbers, np.full((10, 2), np.nan)])
    low, high = _middle(numbers, Fraction(19, 20))
    assert low.tolist() == [24.0, 48.0]
    assert high.tolist() == [975.0, 1950.0]
    inside = ((numbers >= low) & (numbers <= high)).sum(axis=0)
    assert (inside >= 950).all()


# Coverage, measured with 10,000 repeats of each: 94.7% to 95.4%.
@pytest.mark.parametrize("delta", ["1e-6", "0"])
@pytest.mark.parametrize(
    ("sql", "exact"),
    [
        ("SELECT 100.0 * SUM(amount) / COUNT(*) AS x FROM orders", lambda s, n: 100 * s / n),
        ("SELECT SUM(amount) / (COUNT(*) + 1) AS x FROM orders", lambda s, n: s / (n + 1)),
        ("SELECT SUM(amount) - 10 * COUNT(*) AS x FROM orders", lambda s, n: s - 10 * n),
        ("SELECT AVG(amount) * 2 + 1 AS x FROM orders", lambda s, n: s / n * 2 + 1),
    ],
)
def test_intervals_of_computed_columns_cover_at_their_stated_rate(priced_of, monkeypatch, sql, exact, delta):
    """Rows are independent repeats, shaped at once, each with 500 imagined draws."""
    repeats, count, total = 1_000, 2_400, 70_000
    monkeypatch.setattr("dither.curator.shape.MOST_SIMULATED", 500 * repeats)
    priced, wanted = priced_of(sql, delta=delta)
    truth = [0, 0]
    for recipe in priced.lowered.recipes:
        if isinstance(recipe, Mean):
            truth[recipe.count], truth[recipe.x.cell] = count, int(total / recipe.x.step) - recipe.x.offset * count
        else:
            truth[recipe.cell] = count if recipe.whole else int(total / recipe.step)
    cells = [
        mechanism.release(np.full(repeats, value, dtype=np.int64))
        for mechanism, value in zip(priced.noise, truth, strict=True)
    ]
    _, bars = shaped(priced, wanted, released(priced, cells))
    middle, half = (bars["x"].high + bars["x"].low) / 2, (bars["x"].high - bars["x"].low) / 2
    covered, too_few = (int((np.abs(middle - exact(total, count)) <= part * half).sum()) for part in (1, 0.65))
    assert stats.binomtest(covered, repeats, 0.95).pvalue > ALPHA
    # a mutant: bars of 65% of the width are noticed
    assert stats.binomtest(too_few, repeats, 0.95).pvalue < ALPHA
