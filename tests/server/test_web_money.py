"""What is charged is what was meant: links back to a question, amounts as people write them, keys that don't pay."""

import html
import re
from urllib.parse import parse_qs, urlsplit

import pytest

from dither.curator import OWNER
from dither.server.web.links import ask_link, needs_more, plain
from support import web_browser

web_site = web_browser.web_site
PATIENCE, expect, priced = web_browser.PATIENCE, web_browser.expect, web_browser.priced
site, browser, visitor = web_browser.site, web_browser.browser, web_browser.visitor
CITIES, COUNT = web_site.CITIES, web_site.COUNT


@pytest.fixture
def fresh(tmp_path):
    with web_site.open_site(tmp_path, more="share_answers = true") as made:
        yield made


def linked(text, label):
    """The address behind a link of this name, as a browser follows it."""
    return html.unescape(re.search(rf'<a href="([^"]*)">{label}</a>', text).group(1))


def opened(site, address, who="ana"):
    """The price that the editor states once it is opened by a link."""
    given = {name: value for name, (value,) in parse_qs(urlsplit(address).query).items()}
    page = site.get(address, who).text
    mode = "error" if 'value="error" checked' in page else "epsilon"
    amount = html.unescape(re.search(r'id="amount"[^>]*value="([^"]*)"', page).group(1))
    return site.post("/ask/price", who, partly=True, sql=given["sql"], mode=mode, amount=amount).text


# ---------------------------------------------------------------------- back to a question


TERMS = [
    {"error": 60},
    {"error": "60.5"},
    {"epsilon": "1/3"},
    {"epsilon": "0.1234567891"},
    {"epsilon": "0.3"},
    {},
]


@pytest.mark.parametrize("terms", TERMS)
def test_every_way_back_to_a_question_finds_it_paid_for(fresh, terms):
    """What was asked for an error, or for an ε of many digits, isn't priced as another question."""
    number = fresh.curator.sql(CITIES, analyst="ana", **terms).receipt.number
    for address in (
        linked(fresh.get("/answers").text, "Change it"),
        linked(fresh.get(f"/answers/{number}").text, "Ask something like this"),
    ):
        assert "Show again, free" in opened(fresh, address), address
    assert fresh.charges == 1


@pytest.mark.parametrize(("mode", "amount"), [("error", "60"), ("epsilon", "0,1234567891")])
def test_a_page_without_a_script_links_to_what_was_just_asked(fresh, mode, amount):
    page = fresh.post("/ask/run", sql=CITIES, mode=mode, amount=amount)
    assert "Show again, free" in opened(fresh, linked(page.text, "Ask something like this"))


def test_an_approved_request_is_asked_for_exactly_what_was_approved(tmp_path):
    with web_site.open_site(tmp_path, more="needs_approval_above = 0.3") as site:
        made = site.curator.request_question(CITIES, epsilon="0.4000000001", analyst="ana")
        site.curator.decide(made.number, approve=True)
        page = opened(site, linked(site.get("/approvals").text, "Ask it"))
        assert "Run for ε = 0.4<" in page
        assert "needs the owner" not in page


def test_what_the_page_cannot_ask_is_said_to_be_so(fresh):
    sql = "SELECT city, COUNT(*) AS n, SUM(amount) AS s FROM orders GROUP BY city"
    fresh.curator.sql(sql, epsilon="0.3", weights={"n": 3}, analyst="ana")
    assert "from Python or over HTTP" in fresh.get("/answers").text
    assert "from Python or over HTTP" not in fresh.get("/answers?search=nothing").text
    assert needs_more({"epsilon": None, "error": {"n": "5"}, "weights": {}, "confidence": "19/20"})
    assert needs_more({"epsilon": None, "error": "5", "weights": {}, "confidence": "9/10"})
    assert not needs_more({"epsilon": "1/10", "error": None, "weights": {}, "confidence": "9/10"})


def test_the_terms_of_the_list_are_what_was_asked_and_nothing_about_the_data(fresh):
    fresh.curator.sql(CITIES, error=60, analyst="ana")
    for who in ("ana", "bob", OWNER):
        (past,) = fresh.curator.answers(who).items
        assert past.asked == {"epsilon": None, "error": "60", "weights": {}, "confidence": "19/20"}


def test_numbers_in_links_are_exact_and_as_people_write_them():
    assert [plain(text) for text in ("1/10", "3/10", "60", "121/2", "1/3", "617283945/5000000000", "1/8")] == [
        "0.1",
        "0.3",
        "60",
        "60.5",
        "1/3",
        "0.123456789",
        "0.125",
    ]
    assert plain("1/" + "3" * 50) == "1/" + "3" * 50
    address = ask_link("SELECT 1", {"error": "60"}, "0.2")
    assert address == "/ask?error=60&sql=SELECT+1"
    # what says nothing of its terms, as before there were any: the rounded ε is the best that is known
    assert ask_link("SELECT 1", {}, "0.2") == "/ask?epsilon=0.2&sql=SELECT+1"


# ---------------------------------------------------------------------- amounts


@pytest.mark.parametrize("mode", ["error", "epsilon"])
@pytest.mark.parametrize("amount", ["1,000", "12,500", "1,000,000", "1,000.5", " 1,329 "])
def test_a_thousand_with_a_comma_is_never_read_as_one(fresh, mode, amount):
    for path in ("/ask/price", "/ask/run"):
        page = fresh.post(path, partly=True, sql=CITIES, mode=mode, amount=amount)
        assert "can be read in two ways: write 1000 or 0.5, without a comma" in page.text
        assert "Run for" not in page.text
    assert fresh.charges == 0
    wish = fresh.post("/budget/request", partly=True, amount=amount, why="why")
    assert "two ways" in wish.text
    assert fresh.curator.requests() == ()


@pytest.mark.parametrize(("amount", "price"), [("0,125", "0.125"), ("0,5", "0.5"), ("0,05", "0.05")])
def test_a_decimal_comma_is_still_one(fresh, amount, price):
    assert f"Run for ε = {price}<" in fresh.post("/ask/price", partly=True, sql=CITIES, amount=amount).text


def test_an_error_that_was_not_written_is_not_the_default_price(fresh):
    page = fresh.post("/ask/price", partly=True, sql=CITIES, mode="error", amount="")
    assert "write which error you want" in page.text
    assert "Run for" not in page.text


@pytest.mark.parametrize("partly", [True, False])
def test_a_wish_without_an_amount_is_told_so_in_plain_words(fresh, partly):
    page = fresh.post("/budget/request", partly=partly, amount="", why="why")
    assert "by how much" in page.text
    assert "Fraction" not in page.text
    assert fresh.curator.requests() == ()


# ---------------------------------------------------------------------- keys, in a real Chromium


@web_browser.NEEDED
@pytest.mark.parametrize(("field", "amount"), [("#amount", "0.0171"), ("input[value=epsilon]", "0.0172")])
def test_enter_in_a_field_charges_nothing(visitor, site, field, amount):
    page, before = visitor("ana"), site.charges
    priced(page, "SELECT COUNT(*) AS entered FROM orders", amount)
    sent = []
    page.on("request", lambda one: sent.append(one.url) if one.url.endswith("/ask/run") else None)
    page.locator(field).press("Enter")
    page.wait_for_timeout(600)
    expect(page.locator("#run")).to_have_text(f"Run for ε = {amount}")
    expect(page.locator("#run")).to_be_enabled()
    assert (sent, site.charges) == ([], before)
    # with Ctrl it is meant
    with page.expect_response("**/ask/run"):
        page.locator("#amount").press("Control+Enter")
    page.get_by_test_id("cost").wait_for()
    assert site.charges == before + 1


@web_browser.NEEDED
def test_another_way_to_ask_takes_over_what_the_price_said(visitor, site):
    """An ε of 0.1 doesn't become an error of ±0.1, which costs a thousand times as much."""
    page = visitor("ana")
    priced(page, "SELECT city, COUNT(*) AS switched FROM orders GROUP BY city", "0.1")
    half = float(page.get_by_test_id("error").inner_text().removeprefix("± ").replace(",", ""))
    page.get_by_label("an error, ±").check()
    expect(page.locator("#run")).to_be_enabled(timeout=PATIENCE)
    written = float(page.locator("#amount").input_value())
    assert half <= written <= 1.02 * half
    assert float(page.get_by_test_id("price").inner_text().removeprefix("ε = ")) == pytest.approx(0.1, rel=0.03)
    # and back, without having drifted
    page.get_by_label("a price, ε").check()
    expect(page.locator("#amount")).to_have_value("0.1")
    expect(page.locator("#run")).to_have_text("Run for ε = 0.1")


@web_browser.NEEDED
def test_an_error_that_nobody_knows_is_left_to_be_written(visitor, site):
    page = visitor("ana")
    priced(page, "SELECT AVG(amount) AS mean FROM orders", "0.1")
    page.get_by_label("an error, ±").check()
    expect(page.locator("#amount")).to_have_value("")
    expect(page.locator("#price")).to_contain_text("write which error you want")
    expect(page.locator("#run")).to_be_disabled()
