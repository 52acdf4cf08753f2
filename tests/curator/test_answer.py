"""What an analyst holds: tables, bars, texts and HTML of an answer."""

import datetime as dt
import re
from html.parser import HTMLParser

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dither.curator.results import Answer, Bars, Cost
from dither.drawings.texts import cell, number

CITIES = ["Basel", "Bern", "Zug"]


def made_up(table, *, bars=None, notes=(), charged=True):
    cost = Cost(epsilon=0.5, delta=1e-8, charged=charged, left="ε = 1 spent of 3")
    return Answer(table=table, bars=bars or {}, confidence=0.95, receipt=None, cost=cost, notes=notes)


def bars(low, high, text=""):
    return Bars(low=np.array(low, dtype=float), high=np.array(high, dtype=float), text=text)


def test_an_answer_is_a_table_everywhere(opened):
    answer = opened().curator.sql("SELECT city, COUNT(*) AS n, AVG(amount) AS m FROM orders GROUP BY city", epsilon=1)
    assert answer.to_arrow() is answer.table
    assert len(answer) == 3
    frame = answer.to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert list(frame.columns) == ["city", "n", "m"]
    assert frame["city"].tolist() == CITIES
    assert frame["n"].dtype == np.int64
    polars = answer.to_polars()
    assert polars.schema == {"city": pl.String, "n": pl.Int64, "m": pl.Float64}
    assert pl.DataFrame(answer).equals(polars)
    assert pa.table(answer).equals(answer.table)
    with duckdb.connect() as database:
        database.register("t", pa.table(answer))
        assert database.execute("SELECT sum(n) FROM t").fetchall() == [(sum(frame["n"]),)]
    assert answer.to_pylist() == frame.to_dict("records")
    assert answer.receipt.number in answer._repr_html_()


def test_error_and_interval_agree_with_the_table(opened):
    made = opened()
    sql = "SELECT city, COUNT(*) AS n, MEDIAN(amount) AS m, MODE(city) AS c FROM orders GROUP BY city ORDER BY n DESC"
    answer = made.curator.sql(sql, epsilon=1)
    low, high = answer.interval("n")
    values = np.array(answer.table.column("n").to_pylist())
    np.testing.assert_array_equal((low + high) / 2, values)
    np.testing.assert_array_equal(answer.error["n"], high - values)
    assert set(answer.error["n"]) == {made.curator.price(sql, epsilon=1).error["n"]}
    low, high = answer.interval("m")
    assert (low <= np.array(answer.table.column("m"))).all()
    assert (np.array(answer.table.column("m")) <= high).all()
    assert "ranks" in answer.bars["m"].text
    with pytest.raises(KeyError, match="no interval for 'c'; columns that have one: n, m"):
        answer.interval("c")


def test_interval_columns_are_the_bars(opened):
    answer = opened().curator.sql(
        "SELECT city, COUNT(*) AS n, DP_INTERVAL_LOW(n) AS lo, DP_INTERVAL_HIGH(n) AS hi FROM orders GROUP BY city",
        epsilon=1,
    )
    low, high = answer.interval("n")
    assert answer.table.column("lo").to_pylist() == low.tolist()
    assert answer.table.column("hi").to_pylist() == high.tolist()
    assert set(answer.bars) == {"n"}


def test_scalar_is_for_one_value(opened):
    curator = opened().curator
    assert isinstance(curator.sql("SELECT COUNT(*) AS n FROM orders", epsilon=1).scalar(), int)
    with pytest.raises(ValueError, match="3 rows and 2 columns"):
        curator.sql("SELECT city, COUNT(*) AS n FROM orders GROUP BY city", epsilon=1).scalar()


def test_text_has_values_errors_and_the_cost():
    table = pa.table({"city": ["Basel", None], "n": [1234, -5], "x": [0.12345, float("nan")]})
    text = str(made_up(table, bars={"n": bars([1200, -40], [1268, 30])}))
    assert text.splitlines() == [
        "city   n           x      ",
        "Basel  1,234 ± 34  0.12345",
        "NULL   -5 ± 35     unknown",
        "cost: ε = 0.5, δ = 1e-08; ε = 1 spent of 3",
    ]
    assert str(made_up(table.slice(0, 0))).startswith("city  n  x\ncost")
    assert "… 10 more rows" in str(made_up(pa.table({"n": list(range(60))})))
    assert "cost: nothing (asked before; it had cost ε = 0.5" in str(made_up(table, charged=False))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "NULL"),
        (True, "True"),
        (1234567, "1,234,567"),
        (1234.5678, "1,234.57"),
        (0.000012345, "1.234e-05"),
        (2.0, "2"),
        (float("inf"), "unknown"),
        ("a b", "a b"),
        (dt.date(2026, 1, 2), "2026-01-02"),
    ],
)
def test_values_as_people_read_them(value, text):
    assert cell(value) == text
    if isinstance(value, float):
        assert number(value) == text


def test_values_have_the_digits_that_their_noise_leaves():
    table = pa.table({"year": [2015, 2016], "sum": [818_905.26, -12_345.6], "mean": [23.5612, 9.0], "n": [18_864, -5]})
    drawn = {
        "sum": bars([307_186.55, -524_064.31], [1_330_623.97, 499_373.11]),
        "mean": bars([19.0702, 4.509], [28.0522, 13.491]),
        "n": bars([17_861, -1008], [19_867, 998]),
    }
    lines = [re.split(r"\s{2,}", line.strip()) for line in str(made_up(table, bars=drawn)).splitlines()]
    assert lines[1] == ["2015", "819,000 ± 512,000", "23.6 ± 4.5", "18,860 ± 1,000"]
    assert lines[2] == ["2016", "-12,000 ± 512,000", "9.0 ± 4.5", "0 ± 1,000"]
    html = made_up(table, bars=drawn)._repr_html_()
    for text in ("2015", "819,000", "± 512,000", "± 4.5"):
        assert text in html
    assert "818,905" not in html
    # nothing is taken from the table itself
    assert made_up(table, bars=drawn).to_pylist()[0]["sum"] == 818_905.26


def test_one_number_of_decimals_for_a_column():
    values = np.array([12.0, 7.123456, 9.5, 1.0])
    half = np.array([0.5, 0.61, 2.0, 0.0004])
    made = made_up(pa.table({"m": values}), bars={"m": bars(values - half, values + half)})
    texts = made.texts("m")
    assert [str(text) for text in texts] == ["12.00 ± 0.50", "7.12 ± 0.61", "9.50 ± 2.00", "1.00000 ± 0.00040"]
    assert (texts[1].low, texts[1].high) == ("6.51", "7.73")
    assert made.texts("m", 2) == texts[:2]


def test_it_is_told_where_a_value_is_not_in_the_middle():
    made = made_up(pa.table({"m": [3.0, 10.0, None]}), bars={"m": bars([0.0, 0.0, 0.0], [20.0, 20.0, 1.0])})
    cut, whole, missing = made.texts("m")
    assert (str(cut), cut.low, cut.high, cut.around) == ("3 ± 17", "0", "20", False)
    assert whole.around
    assert str(missing) == "NULL"
    unknown = made_up(pa.table({"m": [3.0]}), bars={"m": bars([-np.inf], [np.inf])})
    assert str(unknown.texts("m")[0]) == "3 ± unknown"


def test_keys_are_written_as_they_are():
    keys = [2015, 123456789, -1, 0.1, 2015.0, 12345.678, True, None, dt.date(2026, 1, 2)]
    shown = [str(made_up(pa.table({"k": [key]})).texts("k")[0]) for key in keys]
    assert shown == ["2015", "123456789", "-1", "0.1", "2015", "12345.678", "True", "NULL", "2026-01-02"]


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.text, self.seen = [], [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def read(html):
    tags = Tags()
    tags.feed(html)
    assert not tags.open
    return tags


def test_html_escapes_whatever_comes_from_the_data_or_the_question():
    evil = "<script>alert('x')</script>\" onmouseover='y'"
    table = pa.table({evil: [evil, None], "n": [5, 7]})
    html = made_up(table, bars={"n": bars([4, 6], [6, 8])}, notes=(evil,))._repr_html_()
    tags = read(html)
    assert {tag for tag, _ in tags.seen} <= {"div", "table", "thead", "tbody", "tr", "th", "td", "span", "small", "br"}
    assert all(set(attributes) <= {"style"} for _, attributes in tags.seen)
    assert "".join(tags.text).count("<script>") == 3


def test_html_bars_show_the_sure_part_and_the_interval():
    table = pa.table({"n": [50, 100, -20]})
    html = made_up(table, bars={"n": bars([40, 90, -30], [60, 110, -10])})._repr_html_()
    stops = [
        tuple(map(float, found)) for found in re.findall(r"0\.45\) ([\d.]+)%,.*?0\.2\) ([\d.]+)%,transparent", html)
    ]
    assert stops == [(36.4, 54.5), (81.8, 100.0), (0.0, 0.0)]
    assert html.count("± 10") == 3
    assert "95% intervals" in html
    many = made_up(pa.table({"n": list(range(300))}))._repr_html_()
    assert "… 100 more rows" in many
    assert len(read(many).seen) < 1000


def test_html_of_values_without_numbers_or_intervals():
    table = pa.table({"n": pa.array([None, 3], pa.int64()), "x": [float("nan"), float("inf")]})
    nothing = Bars(low=None, high=None, text="")
    unknown = bars([np.nan, np.nan], [np.nan, np.nan])
    html = made_up(table, bars={"n": nothing, "x": unknown})._repr_html_()
    read(html)
    assert "NULL" in html
    assert "nan%" not in html
    read(made_up(table.slice(0, 0), bars={"n": nothing, "x": bars([], [])})._repr_html_())
