"""Post-processing of released cells: columns, filters, orders, and the intervals of computed columns."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from dither.curator.answers.post_processing import COMPUTED, SORTED, shape
from dither.curator.answers.release import Released
from dither.curator.results import Bars
from dither.query.aggregates.mean import Ends
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
    # one of three groups was chosen by its noise: each interval is so wide that those of all three hold at once
    wide = 2 * float(priced.errors(1 - Fraction(1, 60))[0].half_width)
    assert wide > 1.1 * half
    assert (low.tolist(), high.tolist()) == ([300 - wide], [300 + wide])


def test_bars_follow_their_rows_through_order_and_limit(priced_of):
    priced, wanted = priced_of("SELECT city, COUNT(*) AS n FROM orders GROUP BY city ORDER BY n LIMIT 2")
    table, bars = shaped(priced, wanted, released(priced, [[150, 300, 20]], keys=["Basel", "Bern", "Zug"]))
    half = priced.errors(1 - Fraction(1, 60))[0].half_width
    assert table.column("n").to_pylist() == [20, 150]
    assert bars["n"].low.tolist() == [20 - half, 150 - half]


def test_the_same_cells_give_the_same_bars(priced_of):
    priced, wanted = priced_of("SELECT 100.0 * SUM(amount) / COUNT(*) AS x FROM orders")
    found = released(priced, [[70_000], [2_400]])
    first, second = (shaped(priced, wanted, found)[1]["x"] for _ in range(2))
    assert (first.low, first.high, first.text) == (second.low, second.high, COMPUTED)


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


# ROUND of a sum that is known to a hundredth, and what follows for it from end to end
@pytest.mark.parametrize(
    ("expression", "low", "high"),
    [
        ("COUNT(*)", -1, 1),
        ("2 * COUNT(*) + 1", -2, 2),
        ("COUNT(*) - COUNT(*)", 0, 0),
        ("ROUND(COUNT(*), -2)", "whole", None),
        ("FLOOR(COUNT(*) / 1000)", "whole", None),
        ("COALESCE(COUNT(*), 7)", -1, 1),
        ("GREATEST(COUNT(*), 0)", -1, 1),
        ("CASE WHEN COUNT(*) > 100 THEN COUNT(*) ELSE 0 END", -1, 1),
        ("CASE WHEN COUNT(*) > 2400 THEN 1 ELSE 0 END", "either", None),
        ("ABS(-COUNT(*))", -1, 1),
        ("CAST(COUNT(*) AS DOUBLE)", -1, 1),
    ],
)
def test_ends_go_to_ends(priced_of, expression, low, high):
    """One count of 2,400, whose own interval is [2,400 − h, 2,400 + h]; low and high are in units of h."""
    priced, wanted = priced_of(f"SELECT {expression} AS x FROM orders")
    table, bars = shaped(priced, wanted, released(priced, [[2_400]]))
    half, value = priced.errors()[0].half_width, table.column("x")[0].as_py()
    ends = (bars["x"].low[0], bars["x"].high[0])
    if low == "whole":
        unit = 100 if "ROUND" in expression else 1
        scale = 1 if "ROUND" in expression else 1000
        # every value of the count's interval, as DuckDB would show it
        span = np.arange(2_400 - half, 2_400 + half + 1) / scale
        shown = np.round(span / unit) * unit if unit == 100 else np.floor(span)
        assert ends == (shown.min(), shown.max())
    elif low == "either":
        assert (value, ends) == (0, (0, 1))
    else:
        assert ends == (pytest.approx(value + low * half), pytest.approx(value + high * half))


@pytest.mark.parametrize(
    ("expression", "known"),
    [
        # the noise of the divisor reaches zero
        ("1.0 / (COUNT(*) - 2400)", False),
        ("AVG(amount) / (COUNT(*) - 2400)", False),
        ("LN(COUNT(*) - 2400.0)", False),
        ("1.0 / COUNT(*)", True),
        ("AVG(amount) / COUNT(*)", True),
        ("LN(COUNT(*))", True),
        # a text of a number and back: no rule, and so no interval
        ("CAST(CAST(COUNT(*) AS VARCHAR) AS INTEGER)", False),
        ("COALESCE(1.0 / NULLIF(COUNT(*) - 2400, 0), 0)", False),
    ],
)
def test_what_has_no_bounds_has_no_interval(priced_of, expression, known):
    priced, wanted = priced_of(f"SELECT {expression} AS x FROM orders")
    # one row too many; the average is in the middle of its bounds
    cells = [[2_401] for _ in priced.noise]
    for recipe in priced.lowered.recipes:
        if isinstance(recipe, Ends):
            cells[recipe.above] = cells[recipe.below] = [1_200 * recipe.size]
    _, bars = shaped(priced, wanted, released(priced, cells))
    assert bool(np.isfinite(bars["x"].low[0]) and np.isfinite(bars["x"].high[0])) is known
    assert bool(np.isnan(bars["x"].low[0]) and np.isnan(bars["x"].high[0])) is not known


def test_nothing_is_called_exact_that_has_noise(priced_of):
    """ROUND(AVG(x), 2) of three people was 50.00 ± 0: of so few nothing is known."""
    priced, wanted = priced_of("SELECT ROUND(AVG(amount), 2) AS x, AVG(amount) - AVG(pieces) AS y FROM orders")
    _, bars = shaped(priced, wanted, released(priced, [[3]] * len(priced.noise)))
    assert (bars["x"].low[0], bars["x"].high[0]) == (0, 50)
    assert bars["y"].low[0] <= -8
    assert bars["y"].high[0] >= 50


def test_keys_take_part_in_expressions(priced_of):
    columns = "CASE WHEN city = 'Bern' THEN COUNT(*) ELSE 0 END AS x, length(city) * COUNT(*) AS y"
    sql = f"SELECT city, {columns} FROM orders GROUP BY city"
    priced, wanted = priced_of(sql)
    _, bars = shaped(priced, wanted, released(priced, [[150, 300, 20]], keys=["Basel", "Bern", "Zug"]))
    half = priced.errors()[0].half_width
    assert (bars["x"].high - bars["x"].low).tolist() == [0, 2 * half, 0]
    assert (bars["y"].high - bars["y"].low).tolist() == [5 * 2 * half, 4 * 2 * half, 3 * 2 * half]


def test_interval_columns_of_chosen_rows_are_their_bars(priced_of):
    sql = "SELECT city, COUNT(*) AS n, DP_INTERVAL_LOW(n) AS lo, COUNT(*) - DP_INTERVAL_LOW(n) AS up FROM orders "
    sql += "GROUP BY city"
    for ending in ("", " ORDER BY n DESC LIMIT 1", " HAVING DP_INTERVAL_LOW(n) > 100"):
        priced, wanted = priced_of(sql + ending)
        table, bars = shaped(priced, wanted, released(priced, [[1_500, 3_000, 20]], keys=["Basel", "Bern", "Zug"]))
        assert table.num_rows == {"": 3, " ORDER BY n DESC LIMIT 1": 1}.get(ending, 2)
        assert table.column("lo").to_pylist() == bars["n"].low.tolist()
        # what is left of n above a number that is known
        assert bars["up"].low.tolist() == [0] * table.num_rows
        assert bars["up"].high == pytest.approx(bars["n"].high - bars["n"].low)


# said before paying alone: it is about what to ask
MANY = "there are 3 public groups, and each customer counts in at most 2: coarser groups would cut less"


def test_an_answer_says_that_noise_chose_its_rows(opened):
    curator = opened().curator
    plain = "SELECT city, COUNT(*) AS n FROM orders GROUP BY city"
    for ending, said in (("", False), (" ORDER BY n DESC LIMIT 1", True), (" ORDER BY city LIMIT 1", False)):
        notes = curator.sql(plain + ending, epsilon="1/2").notes
        assert any("chosen by noisy values" in note for note in notes) is said
        assert curator.price(plain + ending, epsilon="1/2").notes == (*notes, MANY)


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        ("", False),
        (" ORDER BY city", False),
        (" ORDER BY n DESC", True),
        (" ORDER BY city, AVG(amount)", True),
        (" HAVING n > 10 ORDER BY n", True),
        (" ORDER BY n LIMIT 2", False),
        (" ORDER BY n LIMIT 1000", False),
        (" ORDER BY n OFFSET 1", False),
    ],
)
def test_an_answer_says_that_it_is_sorted_by_noise(opened, ending, said):
    """Without a LIMIT the intervals stay as narrow as asked: over all rows they hold, and the first one doesn't."""
    curator = opened().curator
    sql = "SELECT city, COUNT(*) AS n FROM orders GROUP BY city" + ending
    answer = curator.sql(sql, epsilon="1/2")
    assert (SORTED in answer.notes) is said
    assert (SORTED in str(answer)) is (SORTED in answer._repr_html_()) is said
    assert curator.price(sql, epsilon="1/2").notes == (*answer.notes, MANY)


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
    assert answer.bars["many"] == Bars(low=None, high=None, text="computed from noisy values")
    for name in ("m", "d"):
        assert np.isfinite(answer.error[name]).all()


# Neither too narrow nor too wide: linear forms and ratios of two sums have a closed form.
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
def test_intervals_of_computed_columns_cover_at_their_stated_rate(priced_of, sql, exact, delta):
    """Rows are independent repeats, shaped at once."""
    repeats, count, total = 4_000, 2_400, 70_000
    priced, wanted = priced_of(sql, delta=delta)
    truth = [0, 0]
    for recipe in priced.lowered.recipes:
        if isinstance(recipe, Ends):
            above = int(total / recipe.step) - recipe.first * count
            truth[recipe.above], truth[recipe.below] = above, recipe.size * count - above
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
