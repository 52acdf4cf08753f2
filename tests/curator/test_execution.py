"""Exact cells are kept for a while: more ε for the same text needs no other pass, and nobody else gains from it."""

import gc
import tracemalloc
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from dither.curator import Terms
from dither.curator.execution import EACH_CHARACTER, EACH_VALUE, MOST_QUESTIONS, OVERHEAD, KeptCells
from dither.curator.price.pricing import LONGEST_KEPT
from dither.engines.base import EngineFailure
from dither.errors import Failed
from dither.query.kinds import Kind, Literal
from dither.query.measure.measures import BinCounts, Measured, Measurement
from dither.query.plan.plan import Key, Scan

FEW_ROWS = 'privacy_unit_column = "customer"\nmax_groups_contributed = 3\nmax_rows_contributed = 2'
BY_ROW = 'privacy_unit = "row"'
BY_CITY = "SELECT city, COUNT(*) AS n, SUM(amount) AS s FROM orders GROUP BY city"
MEDIAN = "SELECT MEDIAN(amount) AS q, COUNT(DISTINCT item) AS items FROM orders"


def test_the_same_text_with_another_epsilon_reads_no_data_again(opened):
    shop = opened(unit=BY_ROW)
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
    shop = opened(unit=BY_ROW)
    shop.curator.sql(sql, epsilon=1, analyst="ana")
    shop.curator.sql(sql, epsilon="0.2", analyst="bob")
    assert shop.engine.runs == 2
    shop.curator.sql(sql + " ", epsilon="1.5", analyst="ana")
    assert shop.engine.runs == 3


def test_bounds_that_are_found_anew_make_other_cells(opened):
    shop = opened(unit=BY_ROW)
    sql = "SELECT SUM(rating) AS s FROM orders"
    cells = {}
    for epsilon in (1, "1.1", "1.2"):
        shop.curator.sql(sql, epsilon=epsilon, analyst="ana")
        _, wanted, found = shop.curator._vault.execution._cells.memory.get("ana", sql)
        cells[wanted] = found
    # a pass for the search each time; one for the cells unless the same bounds were found as last time
    assert shop.engine.runs >= 3 + len(cells)


def test_what_failed_is_not_kept(opened):
    shop = opened(unit=BY_ROW)
    shop.engine.fails_with = EngineFailure("no")
    with pytest.raises(Failed):
        shop.curator.sql(BY_CITY, epsilon=1, analyst="ana")
    shop.engine.fails_with = None
    shop.curator.sql(BY_CITY, epsilon=1, analyst="ana")
    assert shop.engine.runs == 2


def test_a_pass_that_fails_for_one_epsilon_is_made_for_the_next(opened):
    shop = opened(unit=BY_ROW)
    shop.curator.sql(BY_CITY, epsilon=1, analyst="ana")
    shop.engine.fails_with = EngineFailure("no")
    # from what is known already: the engine isn't asked
    assert shop.curator.sql(BY_CITY, epsilon=2, analyst="ana").cost.charged
    assert shop.engine.runs == 1


def test_closing_forgets(opened):
    shop = opened(unit=BY_ROW)
    shop.curator.sql(BY_CITY, epsilon=1, analyst="ana")
    cells = shop.curator._vault.execution._cells
    assert len(cells.memory)
    shop.curator.close()
    assert not len(cells.memory)
    assert cells.memory.bytes == 0


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
    found = BinCounts(group=numbers.copy(), bin=numbers.copy(), count=numbers.copy())
    keys = pa.table({"k0": numbers})
    return Measured(keys=keys, size=size, totals=(numbers,), bins=(found,), distinct=(numbers.copy(),))


def test_memory_is_bounded_and_the_oldest_go_first():
    each = OVERHEAD + EACH_CHARACTER + 6 * 8 * 100
    cells = KeptCells(size=5 * each)
    for name in "abcde":
        cells.keep("ana", name, WANTED, measured(100))
    assert cells.get("ana", "a", WANTED) is not None
    cells.keep("ana", "f", WANTED, measured(100))
    assert cells.get("ana", "b", WANTED) is None
    assert [cells.get("ana", name, WANTED) is not None for name in "acdef"] == [True] * 5
    # one that takes more than a quarter of it all isn't kept
    cells.keep("ana", "g", WANTED, measured(300))
    assert cells.get("ana", "g", WANTED) is None
    assert cells.memory.bytes == 5 * each
    # kept again, it counts once
    cells.keep("ana", "f", WANTED, measured(100))
    assert cells.memory.bytes == 5 * each


def test_there_are_so_many_at_most_however_small_they_are():
    cells = KeptCells()
    for number in range(MOST_QUESTIONS + 10):
        cells.keep("ana", str(number), WANTED, measured(0))
    assert len(cells.memory) == MOST_QUESTIONS
    kept = [cells.get("ana", str(number), WANTED) is not None for number in (9, 10, MOST_QUESTIONS + 9)]
    assert kept == [False, True, True]
    # what a server keeps is reached soon, and is little: it doesn't grow for hours
    for number in range(MOST_QUESTIONS):
        cells.keep("ana", f"SELECT COUNT(*) AS n FROM orders WHERE amount < {number}", WANTED, measured(1))
    assert len(cells.memory) == MOST_QUESTIONS
    assert cells.memory.bytes < 2 * 2**20
    few = KeptCells(most=2)
    for name in "abc":
        few.keep("ana", name, WANTED, measured(100))
    assert few.memory.bytes == 2 * (OVERHEAD + EACH_CHARACTER + 6 * 8 * 100)


def test_texts_and_public_values_are_counted_too():
    cells = KeptCells()
    cells.keep("ana", "x" * LONGEST_KEPT, WANTED, measured(0))
    assert cells.memory.bytes == OVERHEAD + EACH_CHARACTER * LONGEST_KEPT
    # what is bound of a text takes much more than the text: those of more than a page aren't kept
    cells.keep("ana", "x" * (LONGEST_KEPT + 1), WANTED, measured(0))
    assert len(cells.memory) == 1
    cells.memory.forget()
    keys = tuple(Key(expression=Literal(1, Kind.INTEGER), kind=Kind.INTEGER, values=n) for n in (None, (1, 2), (3,)))
    cells.keep("ana", "", replace(WANTED, keys=keys), measured(0))
    assert cells.memory.bytes == OVERHEAD + 3 * EACH_VALUE


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) AS n FROM orders WHERE " + " OR ".join(f"amount < {n}" for n in range(400)),
        "SELECT COUNT(*) AS n FROM orders WHERE amount IN (" + ",".join(str(n % 10) for n in range(4000)) + ")",
    ],
)
def test_what_is_counted_is_no_less_than_what_is_held(opened, sql):
    shop = opened(unit=BY_ROW)
    tracemalloc.start()
    try:
        prepared = shop.curator._vault.pricing.prepare(sql, Terms.of(epsilon=1), shop.curator.analyst("ana").who)
        cells = KeptCells()
        cells.keep("ana", sql, prepared.priced.measurement, measured(1))
        counted = cells.memory.bytes
        del prepared
        shop.curator._vault.pricing._kept.forget()
        shop.curator._vault.pricing._bound.forget()
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        cells.memory.forget()
        gc.collect()
        held = before - tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert 5 * len(sql) < held <= counted


def test_kept_numbers_can_not_be_changed():
    cells, found = KeptCells(), measured(3)
    cells.keep("ana", "a", WANTED, found)
    kept = cells.get("ana", "a", WANTED)
    for array in (*kept.totals, *kept.distinct, kept.bins[0].group, kept.bins[0].bin, kept.bins[0].count):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7


@pytest.mark.parametrize("sql", [BY_CITY, MEDIAN, "SELECT item, COUNT(*) AS n FROM orders GROUP BY item"])
def test_where_units_choose_every_question_has_its_own_salt(opened, sql):
    shop = opened()
    for n in range(3):
        shop.curator.sql(sql, epsilon=1 + n / 100, analyst="ana")
    assert shop.engine.runs == 3
    assert not len(shop.curator._vault.execution._cells.memory)


def test_totals_without_keys_are_kept_for_units_with_many_rows_too(opened):
    shop = opened()
    for n in range(3):
        shop.curator.sql("SELECT COUNT(*) AS n, AVG(amount) AS m FROM orders", epsilon=1 + n / 100, analyst="ana")
    assert shop.engine.runs == 1


def test_histograms_and_distinct_values_are_kept_too(opened):
    shop = opened(unit=BY_ROW)
    for n in range(3):
        shop.curator.sql(MEDIAN, epsilon=1 + n, analyst="ana")
    assert shop.engine.runs == 1


SAME_FOR_EVERY_SALT = (
    "SELECT COUNT(*) AS n, SUM(amount) AS s, AVG(pieces) AS m FROM orders",
    "SELECT COUNT(DISTINCT customer) AS n FROM orders WHERE amount < 20",
    "SELECT COUNT(DISTINCT amount) AS n FROM orders",
    "SELECT pieces > 4 AS many, VAR_POP(amount) AS v FROM orders GROUP BY pieces > 4",
)
CHOSEN_BY_SALT = (
    "SELECT item, COUNT(*) AS n FROM orders GROUP BY item",
    "SELECT MEDIAN(amount) AS m FROM orders",
    "SELECT pieces, COUNT(*) AS n FROM orders GROUP BY pieces",
)


def cells_of(shop, sql, salts=6):
    """The engine's cells for several salts, and whether the plan says that units choose."""
    wanted = shop.curator.price(sql, epsilon=1).priced.measurement
    found = [shop.engine.run(wanted, salt=bytes([salt]) * 16) for salt in range(salts)]
    shown = {
        repr(
            (
                one.keys.to_pylist(),
                [total.tolist() for total in (*one.totals, *one.distinct)],
                [(each.group.tolist(), each.bin.tolist(), each.count.tolist()) for each in one.bins],
            )
        )
        for one in found
    }
    return wanted.chooses, len(shown)


@pytest.mark.parametrize("sql", SAME_FOR_EVERY_SALT)
def test_what_chooses_nothing_is_the_same_for_every_salt(opened, sql):
    assert cells_of(opened(unit=FEW_ROWS), sql) == (False, 1)


@pytest.mark.parametrize("sql", CHOSEN_BY_SALT)
def test_what_the_salt_decides_is_known_to_choose(opened, sql):
    chooses, different = cells_of(opened(unit=FEW_ROWS), sql)
    assert chooses
    assert different > 1


@pytest.mark.parametrize("sql", [SAME_FOR_EVERY_SALT[0], *CHOSEN_BY_SALT])
def test_rows_choose_nothing(opened, sql):
    assert cells_of(opened(unit=BY_ROW), sql) == (False, 1)
