"""Exact cells are kept for a while: more ε for the same text needs no other pass, and nobody else gains from it."""

import numpy as np
import pyarrow as pa
import pytest

from dither.curator.execution import OVERHEAD, KeptCells
from dither.engines.base import EngineFailure
from dither.errors import Failed
from dither.query.measures import Histogram, Measured, Measurement
from dither.query.plan import Scan

BY_CITY = "SELECT city, COUNT(*) AS n, SUM(amount) AS s FROM orders GROUP BY city"
MEDIAN = "SELECT MEDIAN(amount) AS q, COUNT(DISTINCT item) AS items FROM orders"


def test_the_same_text_with_another_epsilon_reads_no_data_again(opened):
    shop = opened()
    first = shop.curator.sql(BY_CITY, epsilon=1, analyst="ana")
    assert shop.engine.runs == 1
    more = [shop.curator.sql(BY_CITY, epsilon=1 + n / 100, analyst="ana") for n in range(1, 6)]
    assert shop.engine.runs == 1
    # each has noise of its own, was charged, and is near the exact number: 800 rows a city
    seen = {tuple(answer.table.column("n").to_pylist()) for answer in (first, *more)}
    assert len(seen) > 1
    assert all(answer.cost.charged for answer in more)
    assert all(abs(n - 800) < 200 for numbers in seen for n in numbers)


@pytest.mark.parametrize("sql", [BY_CITY, BY_CITY.replace("city", "item"), "SELECT AVG(amount) AS m FROM orders"])
def test_others_and_other_texts_read_it_themselves(opened, sql):
    shop = opened()
    shop.curator.sql(sql, epsilon=1, analyst="ana")
    shop.curator.sql(sql, epsilon="0.2", analyst="bob")
    assert shop.engine.runs == 2
    shop.curator.sql(sql + " ", epsilon="1.5", analyst="ana")
    assert shop.engine.runs == 3


def test_bounds_that_are_found_anew_make_other_cells(opened):
    shop = opened()
    sql = "SELECT SUM(rating) AS s FROM orders"
    cells = {}
    for epsilon in (1, "1.1", "1.2"):
        shop.curator.sql(sql, epsilon=epsilon, analyst="ana")
        kept = shop.curator._execution._cells._kept["ana", sql]
        cells[kept[0]] = kept[1]
    # a pass for the search each time; one for the cells unless the same bounds were found as last time
    assert shop.engine.runs >= 3 + len(cells)


def test_what_failed_is_not_kept(opened):
    shop = opened()
    shop.engine.fails_with = EngineFailure("no")
    with pytest.raises(Failed):
        shop.curator.sql(BY_CITY, epsilon=1, analyst="ana")
    shop.engine.fails_with = None
    shop.curator.sql(BY_CITY, epsilon=1, analyst="ana")
    assert shop.engine.runs == 2


def test_a_pass_that_fails_for_one_epsilon_is_made_for_the_next(opened):
    shop = opened()
    shop.curator.sql(BY_CITY, epsilon=1, analyst="ana")
    shop.engine.fails_with = EngineFailure("no")
    # from what is known already: the engine isn't asked
    assert shop.curator.sql(BY_CITY, epsilon=2, analyst="ana").cost.charged
    assert shop.engine.runs == 1


def test_closing_forgets(opened):
    shop = opened()
    shop.curator.sql(BY_CITY, epsilon=1, analyst="ana")
    cells = shop.curator._execution._cells
    assert cells._kept
    shop.curator.close()
    assert not cells._kept
    assert cells._bytes == 0


WANTED = Measurement(
    relation=Scan(table="orders", private=True, unit_column="customer", columns=(), fields=()),
    units="column",
    keys=(),
    groups=1,
    rows=1,
    totals=(),
)


def measured(size):
    numbers = np.arange(size)
    found = Histogram(group=numbers.copy(), bin=numbers.copy(), count=numbers.copy())
    keys = pa.table({"k0": numbers})
    return Measured(keys=keys, size=size, totals=(numbers,), bins=(found,), distinct=(numbers.copy(),))


def test_memory_is_bounded_and_the_oldest_go_first():
    each = OVERHEAD + 1 + 6 * 8 * 100
    cells = KeptCells(size=5 * each)
    for name in "abcde":
        cells.keep(("ana", name), WANTED, measured(100))
    assert cells.get(("ana", "a"), WANTED) is not None
    cells.keep(("ana", "f"), WANTED, measured(100))
    assert cells.get(("ana", "b"), WANTED) is None
    assert [cells.get(("ana", name), WANTED) is not None for name in "acdef"] == [True] * 5
    # one that takes more than a quarter of it all isn't kept
    cells.keep(("ana", "g"), WANTED, measured(300))
    assert cells.get(("ana", "g"), WANTED) is None
    assert cells._bytes == 5 * each
    # kept again, it counts once
    cells.keep(("ana", "f"), WANTED, measured(100))
    assert cells._bytes == 5 * each


def test_kept_numbers_can_not_be_changed():
    cells, found = KeptCells(), measured(3)
    cells.keep(("ana", "a"), WANTED, found)
    kept = cells.get(("ana", "a"), WANTED)
    for array in (*kept.totals, *kept.distinct, kept.bins[0].group, kept.bins[0].bin, kept.bins[0].count):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7


def test_histograms_and_distinct_values_are_kept_too(opened):
    shop = opened()
    for n in range(3):
        shop.curator.sql(MEDIAN, epsilon=1 + n, analyst="ana")
    assert shop.engine.runs == 1
