"""Odd habits in a real Chromium: double clicks, the back button, a sign-in that ends, no script."""

import re

import pytest

from support import web_browser
from support.sizes import at_night

PATIENCE, expect, priced, run = web_browser.PATIENCE, web_browser.expect, web_browser.priced, web_browser.run
site, browser, visitor = web_browser.site, web_browser.browser, web_browser.visitor
pytestmark = web_browser.NEEDED


@at_night
def test_a_double_click_is_one_question(visitor, site):
    """What was paid for with the first click isn't shown as asked before because of the second."""
    page, before = visitor("ana"), site.charges
    priced(page, "SELECT COUNT(*) AS n FROM orders WHERE amount > 31", "0.019")
    sent = []
    page.on("request", lambda one: sent.append(one.url) if one.url.endswith("/ask/run") else None)
    page.locator("#run").dblclick()
    page.get_by_test_id("cost").wait_for()
    expect(page.locator("#run")).to_have_text("Show again, free")
    expect(page.get_by_test_id("cost")).to_contain_text("ε = 0.019")
    expect(page.get_by_test_id("free")).to_have_count(0)
    assert (len(sent), site.charges - before) == (1, 1)
    # nor are two clicks two wishes
    page.goto(f"{site.url}/budget")
    page.get_by_label("ε more").fill("1")
    page.get_by_label("Why").fill("twice in a hurry")
    page.get_by_role("button", name="Ask the owner").dblclick()
    expect(page.locator("#requested")).to_contain_text("The owner was asked")
    assert [request.why for request in site.curator.requests("ana")].count("twice in a hurry") == 1


@at_night
def test_what_is_being_written_stays_in_its_tab_until_its_writer_signs_out(visitor, site):
    page, before = visitor("ana"), site.charges
    written = "SELECT COUNT(*) AS long_thought_about FROM orders"
    priced(page, written, "0.21")

    def there(amount="0.21"):
        expect(page.locator("#sql")).to_have_value(written)
        expect(page.locator("#amount")).to_have_value(amount)
        expect(page.locator("#run")).to_have_text(f"Run for ε = {amount}")

    page.get_by_role("link", name="Data", exact=True).click()
    page.wait_for_url("**/data")
    page.go_back()
    there()
    page.reload()
    there()
    # a link with a question in it means that one
    page.goto(f"{site.url}/ask?sql=SELECT+COUNT(*)+AS+linked+FROM+orders")
    expect(page.locator("#sql")).to_have_value("SELECT COUNT(*) AS linked FROM orders")
    page.goto(f"{site.url}/ask")
    there()
    # the sign-in ends: what was pressed did nothing, and what was written is there again
    (cookie,) = [one["value"] for one in page.context.cookies() if one["name"] == "dither_session"]
    site.access.sign_out(cookie)
    page.locator("#run").click()
    expect(page.get_by_test_id("ended")).to_contain_text("what you pressed last did nothing")
    page.get_by_label("Token").fill(site.tokens["ana"])
    page.keyboard.press("Enter")
    page.wait_for_url("**/ask")
    there()
    # nobody else finds it
    page.get_by_role("button", name="Sign out").click()
    assert page.evaluate('sessionStorage.getItem("dither.draft")') is None
    page.evaluate(
        """sessionStorage.setItem("dither.draft", JSON.stringify({who: "ana", sql: "of ana", amount: "9"}))"""
    )
    page.get_by_label("Token").fill(site.tokens["bob"])
    page.keyboard.press("Enter")
    expect(page.locator("#run")).to_have_text("Run for ε = 0.1")
    expect(page.locator("#sql")).to_have_value(re.compile("^SELECT city"))
    assert site.charges == before


@pytest.mark.nightly
def test_without_a_script(visitor, site):
    """Every form ends on a whole page."""
    page, before = visitor("ana", java_script_enabled=False), site.charges
    page.locator("#sql").fill("SELECT COUNT(*) AS n FROM orders WHERE amount > 15")
    page.locator("#amount").fill("0.016")
    page.get_by_role("button", name="Show the price").click()
    expect(page.get_by_test_id("price")).to_have_text("ε = 0.016")
    expect(page.locator("#sql")).to_have_value("SELECT COUNT(*) AS n FROM orders WHERE amount > 15")
    page.get_by_role("button", name="Run for ε = 0.016").click()
    expect(page.get_by_role("heading", name="Answer")).to_be_visible()
    assert site.charges == before + 1
    page.goto(f"{site.url}/budget")
    page.get_by_label("ε more").fill("1")
    page.get_by_label("Why").fill("more months")
    page.get_by_role("button", name="Ask the owner").click()
    expect(page.locator("article").first).to_contain_text("more months")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_visible()
