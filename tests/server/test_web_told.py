"""What the page tells is true: of what waits, what is left, what is in the ledger, and of a question half typed."""

import html
import re

import duckdb
import pytest

from dither.curator import OWNER, Curator
from dither.server.web.links import ask_link
from dither.server.web.owner_pages import shown_records
from support import web_site

CITIES, COUNT, HTMX = web_site.CITIES, web_site.COUNT, web_site.HTMX
AVERAGE = "SELECT city, AVG(amount) AS mean, STDDEV(amount) AS spread FROM orders GROUP BY city"


@pytest.fixture
def site(tmp_path):
    with web_site.open_site(tmp_path, more="needs_approval_above = 0.3\nshare_answers = true", ana=1) as made:
        yield made


def text_of(markup):
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", markup))).strip()


def price(site, sql=CITIES, who="ana", **fields):
    return site.post("/ask/price", who, partly=True, sql=sql, **{"amount": "0.1", **fields}).text


# ---------------------------------------------------------------------- decisions


def test_a_decision_brings_every_figure_up_to_date(site):
    """Granting more changes what is left to the same analyst's other requests, and how many wait."""
    for place in range(12):
        site.curator.sql(CITIES, epsilon=f"0.{300 - place}", analyst="ana")
    asked = site.curator.request_question(CITIES, epsilon="0.9", analyst="ana")
    wish = site.curator.request_budget("ana", epsilon=5, why="more months")
    before = site.get("/approvals", "owner").text
    assert "<b>2</b> wait for your decision" in before
    assert "too little" in before
    after = site.post(f"/approvals/{wish.number}", "owner", partly=True, decision="approve").text
    assert "<b>1</b> waits for your decision" in after
    assert "too little" not in after
    assert "of ε = 6" in text_of(after)
    # the focus goes to what was decided, which is told once
    assert re.findall(r'id="request-(\w+)" tabindex="-1" data-decided', after) == [wish.number]
    assert "ana: approved</p>" in after
    assert f'id="request-{asked.number}"' in after
    assert "<!doctype" not in after
    # what is written beside other requests stays there
    assert f'id="why-{asked.number}" hx-preserve' in after


def test_a_decision_that_came_too_late_leaves_the_list_and_says_so(site):
    wish = site.curator.request_budget("ana", epsilon=5, why="more months")
    site.curator.decide(wish.number, approve=False)
    page = site.post(f"/approvals/{wish.number}", "owner", partly=True, decision="approve").text
    assert "this request was refused before" in page
    assert "more months" in page
    assert "Nothing waits for your decision" in page


# ---------------------------------------------------------------------- answers without rows


def test_what_having_left_out_is_not_called_rare(site):
    sql = "SELECT city, COUNT(*) AS n FROM orders GROUP BY city HAVING COUNT(*) > 100000"
    page = site.post("/ask/run", partly=True, sql=sql, amount="0.1").text
    assert "No row: HAVING or LIMIT left none." in page
    assert "common enough" not in page
    rare = "SELECT product, COUNT(*) AS n FROM orders WHERE product = 'nothing' GROUP BY product"
    page = site.post("/ask/run", partly=True, sql=rare, amount="0.1").text
    assert "No group was common enough to be shown.</td>" in page


# ---------------------------------------------------------------------- before anything is asked


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"sql": "SELECT city, COUN"}, "Not yet a question"),
        ({"sql": "SELECT nonsense FROM orders"}, "Not yet a question"),
        ({"amount": "abc"}, "No price yet"),
        ({"amount": "7"}, "No price yet"),
        ({"amount": "0.00001", "mode": "error"}, "No price yet"),
    ],
)
@pytest.mark.parametrize("partly", [True, False])
def test_what_is_half_typed_is_not_refused(site, fields, said, partly):
    page = site.post("/ask/price", partly=partly, **{"sql": CITIES, "amount": "0.1", **fields}).text
    assert f"<b>{said}:</b>" in page
    assert 'class="refused"' not in page
    assert "Refused" not in page
    # the meter and the button stay where they are
    assert 'data-testid="meter"' in page
    assert '<button type="submit" id="run" disabled>Run</button>' in page


def test_an_empty_editor_keeps_the_meter(site):
    page = price(site, "  ")
    assert 'data-testid="meter"' in page
    assert 'id="run" disabled' in page


def test_a_name_that_may_not_ask_has_no_meter(site):
    site.enter("eve", site.access.create("eve", web_site.Scope.ASK)[1])
    page = price(site, "SELECT", "eve")
    assert 'data-testid="meter"' not in page


def test_hints_speak_of_what_is_on_the_page(site):
    for fields in ({"amount": "7"}, {"sql": "SELECT COUNT(*) FRM"}, {"sql": "SELECT city FROM cities"}):
        page = text_of(price(site, **fields))
        assert "epsilon=" not in page
        assert "docs/" not in page
        assert "as they are" not in page
    assert "Ask with ε = 1 or less." in price(site, amount="7")


def test_the_error_of_a_mean_is_shown_for_a_group_that_one_can_imagine(site):
    page = price(site, AVERAGE)
    quote = site.curator.price(AVERAGE, epsilon="0.1", analyst="ana")
    for column, root in zip(quote.columns[1:], (1, 2), strict=True):
        total = float(re.search(r"\(([\d.,]+) / rows in the group\)", column.error).group(1).replace(",", ""))
        shown = re.search(rf"{column.name}, error at 95%</dt>.*?± ([\d.,]+) .*?in a group of 1,000 rows", page)
        assert float(shown.group(1).replace(",", "")) == pytest.approx((total / 1000) ** (1 / root), rel=0.01)
        # the formula is there for who wants it
        assert f'title="{column.error}"' in page
        assert f"<p>{column.name}: {column.error}" in page


def test_this_question_is_counted_among_those_that_fit(site):
    page = text_of(price(site))
    assert re.search(r"Questions like this [\d,]+ , this one included", page)


def test_explaining_takes_nothing_and_the_meter_shows_that(site):
    assert 'class="pending"' in price(site)
    assert 'class="pending"' not in price(site, f"EXPLAIN PRIVACY {CITIES}")


def test_a_price_is_not_said_aloud_after_an_answer(site):
    assert 'id="said"' in price(site)
    assert 'id="said"' not in price(site, quiet="1")
    assert 'id="said"' not in price(site, "SELECT", quiet="1")


# ---------------------------------------------------------------------- budgets


def test_the_meter_is_that_of_the_account_that_pays(tmp_path):
    """An owner with a cap of their own is told about that account, in the meter as in the price."""
    capped = "[analysts.owner]\nepsilon_budget = 1\n\n[analysts.ana]"
    with web_site.open_site(tmp_path, change=lambda text: text.replace("[analysts.ana]", capped)) as site:
        site.curator.sql(CITIES, epsilon="0.9", analyst="ana")
        site.curator.sql(CITIES, epsilon="0.5", analyst=OWNER)
        quote = site.curator.price(COUNT, epsilon="0.1", analyst=OWNER)
        page = price(site, COUNT, "owner")
        meter = text_of(re.search(r'data-testid="meter">(.*?)</div>', page, re.DOTALL).group(1))
        assert meter.endswith(quote.left)
        assert "of 1 (" in meter
        assert [line.account for line in site.curator.budget(OWNER) if line.told] == ["shop/owner"]
        assert [line.told for line in site.curator.budget("ana")] == [True]
    plain = tmp_path / "plain"
    plain.mkdir()
    with Curator.open(web_site.make_shop(plain)) as curator:
        assert [line.account for line in curator.budget(OWNER) if line.told] == ["shop"]


def test_what_is_nearly_all_is_not_called_all(site):
    site.curator.sql(COUNT, epsilon="0.001", analyst="ana")
    (line,) = site.curator.budget("ana")
    assert 0 < line.share < 0.0005
    assert "(over 99.9% of the budget is left)" in str(line)
    assert "over 99.9% of the budget is left" in price(site)


def test_the_latest_question_of_somebody_is_found_behind_those_of_others(site):
    site.curator.sql(COUNT, error=200, analyst="ana")
    before = re.search(r'data-testid="more">([\d,]+)<', site.get("/budget").text).group(1)
    for place in range(60):
        site.curator.sql(COUNT, epsilon=f"0.0{100 + place}", analyst="looker")
    # found behind them, and priced as it was asked, for its error
    assert re.search(r'data-testid="more">([\d,]+)<', site.get("/budget").text).group(1) == before
    assert "latest one" not in site.get("/budget", "bob").text


def test_accounts_are_named_as_people_are_and_digits_are_folded_away(site):
    site.curator.sql("SELECT product, COUNT(*) AS n FROM orders GROUP BY product", epsilon="0.2", analyst="ana")
    page = site.get("/budget", "owner").text
    table = re.search(r"<table.*?</table>", page, re.DOTALL).group(0)
    names = re.findall(r'data-label="Account">(.*?)</td>', table)
    assert names == ["everybody together", "ana", "bob", "looker"]
    assert "δ" not in table
    assert "shop/" not in page
    assert re.search(r"<details.*?ana: ρ = [\d.]+, δ = 0\.0000[\d]+", page, re.DOTALL)


# ---------------------------------------------------------------------- the ledger


def test_the_ledger_shows_each_question_with_its_price_in_one_row(site):
    number = site.ask(CITIES, amount="0.2")
    wish = site.curator.request_budget("ana", epsilon=2, why="more months")
    site.curator.decide(wish.number, approve=True)
    page = site.get("/ledger", "owner").text
    rows = [text_of(row) for row in re.findall(r"<tr>.*?</tr>", page, re.DOTALL)[1:]]
    (row,) = [row for row in rows if CITIES in row]
    assert re.match(r"\d+, \d+ \d{4}-\d\d-\d\d \d\d:\d\d:\d\d ana 0\.2 SELECT", row)
    assert f'<a href="/answers/{number}"><code>{number}</code></a>' in page
    assert site.get(f"/answers/{number}", "owner").status_code == 200
    assert sum(number in row for row in rows) == 1
    # the sum of the ledger is there without taking the room of the question
    assert re.search(r'<span title="in the ledger: ρ = [\d.]+, δ = 0">0.2</span>', page)
    # limits say what changed, and grants come before the entries
    assert any(re.search(r"limits ana: at most ε = 3$", row) for row in rows)
    assert page.index("ana: ε + 2") < page.index('id="entries"')


def test_an_answer_whose_charge_is_on_another_page_has_a_row_of_its_own(site):
    site.ask(CITIES)
    records = site.curator.records()
    (answer,) = [record for record in records if record.what == "answer"]
    (row,) = [row for row in shown_records([answer], "shop") if row.what]
    assert (row.what, row.entries, row.receipt) == ("answer", str(answer.number), answer.receipt)
    shown = shown_records(records, "shop")
    entries = sorted(int(entry) for row in shown for entry in row.entries.split(", "))
    assert entries == sorted(record.number for record in records)


# ---------------------------------------------------------------------- data, times, and pages that aren't there


def test_the_facts_are_where_they_belong(tmp_path):
    columns = 'year = { type = "integer", between = [2015, 2025] }\nvip = { type = "boolean" }\nsecret ='

    def two_more(text):
        with duckdb.connect(str(tmp_path / "shop.duckdb")) as database:
            database.execute("ALTER TABLE orders ADD COLUMN year BIGINT; ALTER TABLE orders ADD COLUMN vip BOOLEAN")
        return text.replace("secret =", columns)

    with web_site.open_site(tmp_path, change=two_more) as site:
        for path, who in (("/data", "ana"), ("/budget", "ana"), ("/data", "owner")):
            page = site.get(path, who).text
            assert "add_remove" not in page
            assert 'of table "' not in html.unescape(page)
        rows = {
            name: [text_of(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row)]
            for row in re.findall(r"<tr>.*?</tr>", site.get("/data").text)
            for name in re.findall(r"<code>(\w+)</code>", row)
        }
        assert rows["customer"] == ["customer", "integer", "–", "–", "Says who is protected."]
        assert rows["year"][2:4] == ["2015 to 2025", "each whole number"]
        assert rows["vip"][3] == "false, true"
        assert "Protected: each customer of orders, with all its rows" in site.get("/data").text
        # the large budget is the owner's to know about, as dither check says it
        assert "this is a large budget" in site.get("/data", "owner").text
        assert "this is a large budget" not in site.get("/data").text


def test_times_say_their_zone(site):
    site.ask(CITIES)
    site.curator.request_budget("ana", epsilon=2, why="more months")
    for path, who in (("/answers", "ana"), ("/approvals", "ana"), ("/approvals", "owner")):
        assert re.search(r"\d\d:\d\d UTC", site.get(path, who).text)
    assert "At, UTC" in site.get("/ledger", "owner").text


def test_who_is_signed_in_and_lost_finds_the_way_back(site):
    browser = {"Accept": "text/html"}
    page = site.get("/nowhere", headers=browser)
    assert page.status_code == 404
    assert '<nav aria-label="Pages">' in page.text
    assert '<nav aria-label="Pages">' not in site.send("GET", "/nowhere", headers=browser).text
    site.access.sign_out(site.cookies["ana"])
    assert '<nav aria-label="Pages">' not in site.get("/nowhere", headers=browser).text


def test_a_secure_server_knows_who_is_lost_by_its_own_cookie_alone(site, tmp_path):
    secure = web_site.Site(site.service, site.access, site.tokens, secure_cookies=True)
    browser = {"Accept": "text/html"}
    assert "<nav" in secure.get("/nowhere", headers=browser).text
    secure.name = "dither_session"
    assert "<nav" not in secure.get("/nowhere", headers=browser).text


def test_links_survive_every_letter(site):
    sql = 'SELECT COUNT(*) AS "a&b=c;#?/%" FROM orders -- é ε ✓'
    page = site.get(ask_link(sql, {"epsilon": "1/10"})).text
    assert html.unescape(re.search(r"<textarea[^>]*>(.*?)</textarea>", page, re.DOTALL).group(1)) == sql
