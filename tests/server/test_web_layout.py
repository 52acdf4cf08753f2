"""How the page looks and behaves in a real Chromium: with little room, with much to show, and while one waits."""

import re

import pytest

from support import web_browser

PATIENCE, expect, priced = web_browser.PATIENCE, web_browser.expect, web_browser.priced
site, browser, visitor = web_browser.site, web_browser.browser, web_browser.visitor
LONG_NAME, CITIES = web_browser.LONG_NAME, web_browser.web_site.CITIES
pytestmark = web_browser.NEEDED
# texts of a table that are printed over the cell beside them, or that can't be seen without scrolling sideways
SPILLED = """() => [...document.querySelectorAll("main td")].filter((cell) => {
  const box = cell.getBoundingClientRect(), range = document.createRange();
  range.selectNodeContents(cell);
  const text = range.getBoundingClientRect();
  return text.width && (text.right > box.right + 1 || text.right > document.documentElement.clientWidth);
}).map((cell) => cell.textContent.slice(0, 60))"""
# how a disabled button stands out: WCAG asks nothing of it, but it states a price
CONTRAST = """(button) => {
  const light = (text) => text.match(/[\\d.]+/g).slice(0, 3).map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const card = getComputedStyle(button.closest(".card")), own = getComputedStyle(button);
  const [a, b] = [light(own.color), light(card.backgroundColor)];
  return Number(own.opacity) * (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}"""


@pytest.mark.parametrize("width", [1280, 900, 640, 390])
def test_no_text_of_a_table_is_hidden_or_over_another(visitor, site, width):
    site.curator.sql("SELECT product, COUNT(*) AS n FROM orders GROUP BY product", epsilon="0.0211", analyst=LONG_NAME)
    site.curator.sql(CITIES, epsilon="0.0212", analyst="ana")
    page = visitor("owner", path="/budget")
    page.set_viewport_size({"width": width, "height": 844})
    for path in ("/budget", "/ledger", "/data"):
        page.goto(f"{site.url}{path}")
        assert page.evaluate(SPILLED) == [], path


def test_a_phone_shows_the_name_whole_and_two_rows_of_header(visitor, site):
    page = visitor("owner", path="/data")
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.locator("header.top").bounding_box()["height"] < 100
    assert page.locator(".brand b").bounding_box()["height"] < 30
    # every page is within reach, and in one row
    tops = {link.bounding_box()["y"] for link in page.locator("nav a").all()}
    assert (page.locator("nav a").count(), len(tops)) == (6, 1)
    assert page.get_by_role("link", name="Ledger").bounding_box()["x"] < 390
    # what to know of a column is under it
    assert page.get_by_text("No keys. Groups are found privately").first.bounding_box()["x"] < 60


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_price_that_cannot_be_paid_is_still_readable(visitor, site, scheme):
    page = visitor("ana", color_scheme=scheme)
    page.locator("#amount").fill("0.9")
    button = page.locator("#run")
    expect(button).to_have_text("Run for ε = 0.9")
    expect(button).to_be_disabled()
    assert button.evaluate(CONTRAST) >= 4.5


def test_a_question_that_runs_says_so(visitor, site):
    page = visitor("ana")
    priced(page, "SELECT COUNT(*) AS n FROM orders WHERE amount > 41", "0.0213")
    held = []
    page.route("**/ask/run", lambda route: held.append(route))
    with page.expect_request("**/ask/run"):
        page.locator("#run").click()
    expect(page.locator("#run")).to_have_text("Running…")
    expect(page.locator("#run")).to_have_attribute("aria-busy", "true")
    held[0].continue_()
    page.get_by_test_id("cost").wait_for()
    expect(page.locator("#run")).to_have_text("Show again, free")
    expect(page.locator("#run")).not_to_have_attribute("aria-busy", "true")


def test_a_price_that_was_asked_for_twice_is_shown_once(visitor, site):
    """Two fields were typed in: the second field's price comes when the question runs."""
    page = visitor("ana")
    expect(page.locator("#run")).to_be_enabled()
    prices, runs = [], []
    page.route("**/ask/price", lambda route: prices.append(route))
    page.route("**/ask/run", lambda route: runs.append(route))
    with page.expect_request("**/ask/price"):
        page.locator("#sql").fill("SELECT COUNT(*) AS n FROM orders WHERE amount > 43")
        page.locator("#amount").fill("0.0215")
    page.wait_for_timeout(500)
    with page.expect_request("**/ask/price"):
        prices[0].continue_()
    expect(page.locator("#run")).to_have_text("Run for ε = 0.0215")
    with page.expect_request("**/ask/run"):
        page.locator("#run").click()
    with page.expect_response("**/ask/price"):
        prices[1].continue_()
    page.wait_for_timeout(200)
    expect(page.locator("#run")).to_have_text("Running…")
    runs[0].continue_()
    page.get_by_test_id("cost").wait_for()


def test_a_question_that_ends_badly_gives_the_button_back(visitor, site):
    page = visitor("ana")
    priced(page, "SELECT COUNT(*) AS n FROM orders WHERE amount > 42", "0.0214")
    page.route("**/ask/run", lambda route: route.fulfill(status=503, body="{}"))
    page.locator("#run").click()
    expect(page.get_by_role("alert")).to_contain_text("can't do this now")
    expect(page.locator("#run")).to_have_text("Run for ε = 0.0214")
    expect(page.locator("#run")).not_to_have_attribute("aria-busy", "true")
    page.complaints.clear()


def test_a_wish_is_sent_once_and_its_form_is_empty_then(visitor, site):
    page = visitor("ana", path="/budget")
    page.get_by_label("ε more").fill("2")
    page.get_by_label("Why").fill("a wish of once")
    button = page.get_by_role("button", name="Ask the owner")
    button.click()
    expect(page.locator("#requested")).to_contain_text("The owner was asked")
    expect(page.get_by_label("ε more")).to_have_value("")
    expect(page.get_by_label("Why")).to_have_value("")
    below = page.locator("#requested > *").bounding_box()["y"]
    assert below >= button.bounding_box()["y"] + button.bounding_box()["height"] + 6
    # a second click sends nothing, for want of an amount
    button.click()
    assert [request.why for request in site.curator.requests("ana")].count("a wish of once") == 1
    # what is refused stays to be corrected
    page.get_by_label("ε more").fill("1,000")
    page.get_by_label("Why").fill("too much")
    button.click()
    expect(page.locator("#requested")).to_contain_text("two ways")
    expect(page.get_by_label("ε more")).to_have_value("1,000")


def test_a_decision_keeps_what_is_written_beside_the_others(visitor, site):
    first = site.curator.request_budget("ana", epsilon=1, why="the first of two")
    site.curator.request_budget("ana", epsilon=1, why="the second of two")
    page = visitor("owner", path="/approvals")
    waits = int(page.get_by_test_id("waits").locator("b").inner_text())
    second = page.locator("article", has_text="the second of two")
    second.get_by_label("What to say to ana").fill("let me think")
    page.locator("article", has_text="the first of two").get_by_role("button", name="Approve").click()
    decided = page.locator(f"#request-{first.number}")
    expect(decided.get_by_test_id("state")).to_have_text("approved")
    expect(decided).to_be_focused()
    expect(page.locator("#said")).to_have_text("ana: approved")
    expect(page.get_by_test_id("waits")).to_contain_text(re.compile(rf"^{waits - 1} wait|Nothing"))
    expect(second.get_by_label("What to say to ana")).to_have_value("let me think")
    # and again, from the list that came back
    second.get_by_role("button", name="Refuse").click()
    expect(second.get_by_test_id("state")).to_have_text("refused")
    expect(second).to_contain_text("The owner: let me think")
    expect(second).to_be_focused()


@pytest.mark.nightly
def test_a_half_typed_question_is_told_without_alarm_and_nothing_jumps(visitor, site):
    page = visitor("ana")
    priced(page, CITIES, "0.1")
    page.locator("#sql").fill("SELECT city, COUN")
    box = page.get_by_test_id("unpriced")
    expect(box).to_contain_text("Not yet a question")
    expect(page.get_by_test_id("meter")).to_be_visible()
    expect(page.locator("#run")).to_be_visible()
    red = page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--bad-back')").strip()
    parts = ", ".join(str(int(red[at : at + 2], 16)) for at in (1, 3, 5))
    assert box.evaluate("(node) => getComputedStyle(node).backgroundColor") != f"rgb({parts})"
