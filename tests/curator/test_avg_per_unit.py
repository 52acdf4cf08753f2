"""AVG by row and AVG_PER_UNIT by person: two numbers, both named in every answer."""

import duckdb
import numpy as np
import pyarrow as pa
import pytest

BOTH = "SELECT AVG(amount) AS by_row, AVG_PER_UNIT(amount) AS by_person FROM orders"


@pytest.fixture
def uneven(tmp_path, write_table, data):
    """Customers with one row to 37, who spend more the more they have; one has no amount at all."""
    rows = [1 + (n % 7) ** 2 for n in range(140)]
    customer = np.repeat(np.arange(len(rows)), rows)
    many = np.repeat(rows, rows)
    amount = np.clip(np.round(4 * (5 + many + np.arange(customer.size) % 5)) / 4, 0, 50)
    amounts = pa.array(amount, mask=customer == 8)
    columns = {name: data.column(name).slice(0, customer.size) for name in data.column_names}
    cities = [("Basel", "Bern", "Zug")[place % 2] for place in customer]
    table = pa.table({**columns, "customer": customer, "amount": amounts, "city": cities})
    for name in ("shop", "plain"):
        write_table(tmp_path / f"{name}.duckdb", table)
    return tmp_path


def test_each_person_counts_once(uneven, opened):
    made = opened(directory=uneven, budget="1000000", most="1000000")
    wanted = "SELECT {0} avg(m) AS m FROM (SELECT {0} avg(amount) AS m FROM orders GROUP BY {0} customer) {1}"
    with duckdb.connect(str(uneven / "plain.duckdb")) as database:
        exact = database.execute(wanted.format("", "")).fetchone()[0]
        by_row = database.execute("SELECT avg(amount) FROM orders").fetchone()[0]
        by_city = dict(database.execute(wanted.format("city,", "GROUP BY city")).fetchall())
    found = made.curator.sql(BOTH, epsilon="500000").table.to_pylist()[0]
    assert found["by_person"] == pytest.approx(exact, abs=0.01)
    # four rows of each person count by row: neither number is the other one, nor that of all rows
    assert abs(found["by_row"] - exact) > 1
    assert abs(found["by_row"] - by_row) > 1
    asked = made.curator.sql("SELECT city, AVG_PER_UNIT(amount) AS m FROM orders GROUP BY city", epsilon="500000")
    low, high = asked.interval("m")
    for place, row in enumerate(asked.table.to_pylist()):
        if row["city"] in by_city:
            assert row["m"] == pytest.approx(by_city[row["city"]], abs=0.01)
            assert low[place] - 0.01 <= by_city[row["city"]] <= high[place] + 0.01


def test_every_answer_says_which_mean_it_is(opened):
    made = opened()
    by_row = "AVG is the mean over rows; AVG_PER_UNIT that of each customer's own mean, and cuts off no rows"
    assert by_row in made.curator.sql("SELECT AVG(amount) AS m FROM orders", epsilon=1).notes
    assert by_row in made.curator.price(BOTH, epsilon=1).notes
    asked = made.curator.sql("SELECT AVG_PER_UNIT(amount) AS m FROM orders", epsilon=1)
    assert "AVG_PER_UNIT is the mean of each customer's own mean; AVG that over rows" in asked.notes
    assert by_row not in asked.notes
    assert "AVG" not in "\n".join(made.curator.price("SELECT COUNT(*) AS n FROM orders", epsilon=1).notes)


def test_the_rows_that_count_make_no_difference_to_its_noise(opened):
    few, many = (opened(unit=f'privacy_unit_column = "customer"\nmax_rows_contributed = {n}') for n in (1, 40))
    quoted = [made.curator.price(BOTH, epsilon=1).columns for made in (few, many)]
    assert quoted[0][1] == quoted[1][1]
    assert quoted[0][1].error.endswith(" / units in the group)")
    assert quoted[0][0].error != quoted[1][0].error


def test_where_each_row_is_a_person_it_is_the_mean(opened):
    made = opened(unit='privacy_unit = "row"', budget="1000000", most="1000000")
    answer = made.curator.sql(BOTH, epsilon="500000")
    row = answer.table.to_pylist()[0]
    assert row["by_row"] == pytest.approx(row["by_person"], abs=0.01)
    assert not any("AVG" in note for note in answer.notes)


def test_it_has_no_use_for_a_bound_on_rows(opened):
    """Nothing is said of rows that are cut, and nothing is spent on finding how many may count."""
    made = opened(unit='privacy_unit_column = "customer"\nmax_groups_contributed = 2\nmax_rows_contributed = "auto"')
    alone, both = (made.curator.price(sql, epsilon=1) for sql in ("SELECT AVG_PER_UNIT(amount) AS m FROM orders", BOTH))
    assert alone.notes == ("AVG_PER_UNIT is the mean of each customer's own mean; AVG that over rows",)
    assert any("goes into finding a bound on rows" in note for note in both.notes)
    by_city = made.curator.price("SELECT city, AVG_PER_UNIT(amount) AS m FROM orders GROUP BY city", epsilon=1)
    cut = "each customer counts in at most 2 groups; what that cuts off isn't in the error"
    assert by_city.notes[0] == cut
