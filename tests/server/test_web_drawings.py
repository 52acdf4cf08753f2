"""An answer on the page: digits, columns without intervals, which drawings are offered, and all of it on a phone."""

import re

import numpy as np
import pyarrow as pa
import pytest

from dither.curator import Answer, Bars, Cost
from dither.server.web.answer_view import shown_answer
from support import web_browser
from support.sizes import at_night

site, browser, visitor, expect = web_browser.site, web_browser.browser, web_browser.visitor, web_browser.expect
CITIES, HTMX = web_browser.web_site.CITIES, web_browser.web_site.HTMX
MONTHS = "SELECT EXTRACT(month FROM day) AS month, COUNT(*) AS n FROM orders GROUP BY month"
LONG = (
    "SELECT CASE WHEN city = 'Basel' THEN 'the town of Basel at the bend of the river Rhine' "
    "ELSE 'all the other towns of the country, together' END AS town, COUNT(*) AS n FROM orders GROUP BY town"
)
SIX = (
    "SELECT city, COUNT(*) AS a, SUM(amount) AS b, AVG(amount) AS c, COUNT(DISTINCT customer) AS d, "
    "MEDIAN(amount) AS e, MODE(city) AS f FROM orders GROUP BY city"
)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    with web_browser.web_site.open_site(tmp_path_factory.mktemp("fresh")) as made:
        yield made


def shown(table, bars):
    cost = Cost(epsilon=1.0, delta=0.0, charged=True, left="")
    return shown_answer(Answer(table=table, bars=bars, confidence=0.95, receipt=None, cost=cost))


def picks(html):
    """The kinds of drawing that are offered, and which of them is marked."""
    offered = re.findall(r'id="draw-(\w+)"( aria-current="true")?>', html)
    return [kind for kind, _ in offered], [kind for kind, marked in offered if marked]


def test_digits_follow_the_noise_and_years_are_years():
    values = np.array([818_905.26, 12_345.6])
    table = pa.table({"year": [2015, 2016], "s": values})
    found = shown(table, {"s": Bars(low=values - 511_718.71, high=values + 511_718.71, text="")})
    cells = [(key.text, one.text, one.half, one.interval) for key, one in found["rows"]]
    assert cells == [
        ("2015", "819,000", "512,000", "307,000 … 1,331,000"),
        ("2016", "12,000", "512,000", "-499,000 … 524,000"),
    ]


def test_an_error_in_words_stands_where_intervals_do():
    table = pa.table({"m": [3.5, 4.5], "top": ["Bern", "Zug"]})
    words = "a value that occurs at most 60 times less often than the most frequent one"
    bars = {"m": Bars(low=None, high=None, text="±347 ranks"), "top": Bars(low=None, high=None, text=words)}
    found = shown(table, bars)
    assert [(column.number, column.intervals) for column in found["names"]] == [(True, False), (False, False)]
    assert [one.interval for one in found["rows"][0]] == ["±347 ranks", "see below"]
    (_, ranks), (_, mode) = found["texts"]
    assert ranks.startswith("±347 ranks. Ranks are places when all rows")
    assert mode == f"{words}."
    # what has no interval can't be said to be noise
    assert not found["mostly_noise"]


def test_columns_without_intervals_on_the_page(fresh):
    html = fresh.post("/ask/run", partly=True, sql=SIX, amount="0.9").text
    assert "times less often" in html
    assert not re.search(r"<td[^>]*>±[\d,.]+ ranks</td>", html), "quantiles have intervals"
    # texts stand to the left, numbers to the right
    assert re.search(r'<th scope="col">f</th>', html)
    assert re.search(r'<th scope="col" class="num">e</th>', html)
    assert re.search(r"<td( class=\"nowrap\")?>Bern</td>", html)


def test_two_drawings_and_the_rest_folded_away(fresh):
    html = fresh.post("/ask/run", partly=True, sql=SIX, amount="0.9").text
    before, _, rest = html.partition("<summary>3 more drawings</summary>")
    assert before.count('data-testid="chart"') == 2
    folded = rest.partition("</details>")[0]
    assert folded.count('data-testid="chart"') == 3
    # all of them before the table, each once for wide and once for narrow pages
    assert html.count('class="drawn thin"') == 5
    few = fresh.post("/ask/run", partly=True, sql=CITIES, amount="0.1").text
    assert few.count('data-testid="chart"') == 1
    assert "more drawing" not in few


def test_the_kind_that_is_drawn_is_marked_and_lines_are_offered_where_they_can_be(fresh):
    cities, months = fresh.ask(CITIES), fresh.ask(MONTHS)
    assert picks(fresh.get(f"/answers/{cities}").text) == (["bar", "dot"], ["bar"])
    assert picks(fresh.get(f"/answers/{months}").text) == (["bar", "line", "dot"], ["line"])
    for headers in (None, HTMX):
        part = fresh.get(f"/answers/{cities}/chart?kind=line", headers=headers).text
        assert picks(part) == (["bar", "dot"], ["dot"])
        assert "<circle" in part
        part = fresh.get(f"/answers/{months}/chart?kind=bar", headers=headers).text
        assert picks(part) == (["bar", "line", "dot"], ["bar"])


def test_an_answer_without_a_drawing_offers_none(fresh):
    html = fresh.post("/ask/run", partly=True, sql="SELECT COUNT(*) AS n FROM orders", amount="0.1").text
    assert 'data-testid="chart"' not in html
    assert picks(html) == ([], [])


def boxes(page, selector):
    """Where each is, of those that are seen."""
    found = page.evaluate(
        "selector => [...document.querySelectorAll(selector)].map(one => one.getBoundingClientRect().toJSON())",
        selector,
    )
    return [box for box in found if box["width"] > 0]


@at_night
@web_browser.NEEDED
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_drawings_fit_a_phone(visitor, site, scheme):
    page = visitor("ana", color_scheme=scheme)
    page.set_viewport_size({"width": 390, "height": 844})
    for sql in (CITIES, LONG, MONTHS):
        number = site.curator.sql(sql, epsilon="0.11", analyst="ana").receipt.number
        page.goto(f"{site.url}/answers/{number}")
        (drawing,) = boxes(page, "svg.chart")
        assert drawing["x"] >= 0
        assert drawing["x"] + drawing["width"] <= 390
        texts = boxes(page, "svg.chart text")
        assert len(texts) > 4
        for box in texts:
            assert box["x"] >= drawing["x"] - 1
            assert box["x"] + box["width"] <= drawing["x"] + drawing["width"] + 1
            assert box["y"] + box["height"] <= drawing["y"] + drawing["height"] + 2
        # large enough to read: about 11 pixels
        assert min(box["height"] for box in texts) >= 11
        # of a table with one noisy column all is seen: the interval, which ± says too, gives way
        (table,) = boxes(page, ".values table")
        (region,) = boxes(page, ".values")
        assert table["width"] <= region["width"] + 1
        assert boxes(page, ".values .twice") == []
    page.set_viewport_size({"width": 1200, "height": 800})
    (drawing,) = boxes(page, "svg.chart")
    assert drawing["width"] > 600
    assert boxes(page, ".values .twice")


@at_night
@web_browser.NEEDED
def test_a_phone_shows_where_the_burn_down_ends(visitor, site):
    site.curator.sql(CITIES, epsilon="0.13", analyst="ana")
    page = visitor("ana", path="/budget")
    for width in (390, 1200):
        page.set_viewport_size({"width": width, "height": 844})
        (line,) = boxes(page, "svg.burn path.left")
        (region,) = boxes(page, "[data-testid=burn]")
        assert line["x"] >= region["x"] - 2
        assert line["x"] + line["width"] <= region["x"] + region["width"] + 2
        assert line["width"] > 0.6 * min(region["width"], 900)
        assert page.evaluate("document.querySelector('[data-testid=burn]').scrollWidth") <= region["width"] + 1
        texts = boxes(page, "svg.burn text")
        assert min(box["height"] for box in texts) >= 12
        assert all(box["x"] + box["width"] <= region["x"] + region["width"] + 1 for box in texts)


@at_night
@web_browser.NEEDED
def test_a_small_price_is_seen_in_the_meter(visitor, site):
    page = visitor("ana")
    web_browser.priced(page, "SELECT COUNT(*) AS n FROM orders WHERE amount > 7", "0.001")
    (pending,) = boxes(page, "[data-testid=meter] .pending")
    assert pending["width"] >= 4.9
