"""The web page in a real Chromium: prices while typing, answers, keyboard, two people at once, phone and dark."""

import contextlib
import io
import json
import re
from pathlib import Path

import pyarrow.csv as pa_csv
import pyarrow.ipc as pa_ipc
import pytest

from dither.errors import OutOfBudget
from support import web_browser
from support.sizes import at_night

PATIENCE, expect, priced, run = web_browser.PATIENCE, web_browser.expect, web_browser.priced, web_browser.run
site, browser, visitor = web_browser.site, web_browser.browser, web_browser.visitor
pytestmark = web_browser.NEEDED
LONG_NAME, CITIES = web_browser.LONG_NAME, web_browser.web_site.CITIES


def test_a_question_from_its_price_to_its_answer_and_again(visitor, site):
    page = visitor("ana", typed=True)
    before = site.charges
    # the question that is there to begin with has a price at once
    expect(page.get_by_test_id("price")).to_have_text("ε = 0.1")
    page.locator("#sql").fill("")
    page.locator("#sql").press_sequentially("SELECT city, COUNT(*) AS n FROM orders GROUP BY city", delay=1)
    expect(page.get_by_test_id("error")).to_contain_text("±")
    page.locator("#amount").fill("0.25")
    expect(page.locator("#run")).to_have_text("Run for ε = 0.25")
    expect(page.get_by_test_id("meaning")).to_contain_text("For one person: A suspicion of 10%")
    expect(page.get_by_test_id("meter").locator(".pending")).to_have_count(1)
    assert site.charges == before
    run(page)
    assert site.charges == before + 1
    expect(page.locator("[data-testid=chart] .interval")).to_have_count(3)
    rows = page.locator(".values tbody tr")
    expect(rows).to_have_count(3)
    values = page.locator(".values td.num:not(.muted)").all_inner_texts()
    assert all(re.fullmatch(r"-?[\d,.]+ ± [\d,.]+", value) for value in values)
    expect(page.get_by_test_id("free")).to_have_count(0)
    # now the button offers the same again
    expect(page.locator("#run")).to_have_text("Show again, free")
    expect(page.locator("#run")).to_be_focused()
    run(page)
    expect(page.get_by_test_id("free")).to_have_text("asked before, free")
    assert page.locator(".values td.num:not(.muted)").all_inner_texts() == values
    assert site.charges == before + 1
    # the price that comes after the answer doesn't speak over it
    expect(page.locator("#said")).to_contain_text("Answered, 3 rows. Cost: nothing (asked before")


def test_a_button_never_stands_for_another_price(visitor, site):
    """Between a change in the editor and its price, nothing can be run: what is charged was shown before."""
    page, before = visitor("ana"), site.charges
    priced(page, "SELECT COUNT(*) AS n FROM orders WHERE amount > 40", "0.01")
    page.locator("#amount").press("End")
    page.keyboard.type("7")
    # at once, before the server was asked
    assert page.locator("#run").is_disabled()
    page.keyboard.press("Enter")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#run")).to_have_text("Run for ε = 0.017")
    assert site.charges == before
    # a price that comes after the next change isn't shown
    held = []
    page.route("**/ask/price", lambda route: route.continue_() if held else held.append(route))
    with page.expect_request("**/ask/price"):
        page.keyboard.type("1")
    page.keyboard.type("2")
    with page.expect_response("**/ask/price"):
        held[0].continue_()
    assert page.locator("#run").is_disabled()
    expect(page.locator("#run")).to_have_text("Run for ε = 0.01712")
    # typed and taken back: the button comes again
    page.keyboard.type("7")
    page.keyboard.press("Backspace")
    expect(page.locator("#run")).to_be_enabled(timeout=PATIENCE)
    assert site.charges == before


def test_typing_on_does_not_lose_the_answer_under_way(visitor, site):
    page = visitor("ana")
    priced(page, "SELECT COUNT(*) AS n FROM orders WHERE amount > 30", "0.011")
    held = []
    page.route("**/ask/run", lambda route: held.append(route))
    with page.expect_request("**/ask/run"):
        page.locator("#run").click()
    with page.expect_response("**/ask/price"):
        page.locator("#sql").fill("SELECT COUNT(*) AS other FROM orders")
    held[0].continue_()
    page.get_by_test_id("cost").wait_for()
    expect(page.locator(".values th").first).to_have_text("n")


def test_the_keyboard_alone(visitor, site):
    page, before = visitor("ana"), site.charges
    expect(page.locator("#run")).to_be_enabled(timeout=PATIENCE)
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    assert page.locator(".skip").bounding_box()["x"] >= 0
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    reached = []
    for _ in range(5):
        page.keyboard.press("Tab")
        # everything that has the focus shows it
        ring = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.name"))
        assert ring == "solid"
        if reached[-1] == "sql":
            page.keyboard.press("Control+A")
            page.keyboard.type("SELECT COUNT(*) AS n FROM orders WHERE amount > 20")
        if reached[-1] == "amount":
            page.keyboard.press("Control+A")
            page.keyboard.type("0.012")
            expect(page.locator("#run")).to_have_text("Run for ε = 0.012")
        if reached[-1] == "run":
            break
    assert reached == ["sql", "mode", "amount", "run"]
    page.locator("#sql").focus()
    page.keyboard.press("Control+Enter")
    page.get_by_test_id("cost").wait_for()
    assert site.charges == before + 1
    expect(page.locator("#run")).to_have_text("Show again, free")
    expect(page.locator("#said")).to_contain_text("Answered, 1 row. Cost: ε = 0.012")


def test_a_refusal_has_its_place_marked(visitor, site):
    page, before = visitor("ana"), site.charges
    page.locator("#sql").fill("SELECT city,\n  nonsense\nFROM orders")
    expect(page.get_by_test_id("where").locator("mark")).to_have_text("nonsense")
    expect(page.get_by_test_id("unpriced")).to_contain_text("Not yet a question")
    expect(page.get_by_test_id("refused")).to_have_count(0)
    expect(page.get_by_test_id("meter")).to_be_visible()
    expect(page.locator("#run")).to_be_disabled()
    expect(page.locator("#said")).to_contain_text("Not yet a question")
    assert page.get_by_role("alert").count() == 0
    assert site.charges == before


def test_over_the_budget(visitor, site):
    page, before = visitor("bob"), site.charges
    priced(page, CITIES, "0.3")
    run(page)
    for amount in range(20, 30):
        with contextlib.suppress(OutOfBudget):
            site.curator.sql(CITIES, epsilon=f"0.{amount}", analyst="bob")
    spent = site.charges
    page.locator("#amount").fill("0.29")
    expect(page.get_by_test_id("unfit")).to_contain_text("doesn't fit in the budget")
    expect(page.locator("#run")).to_be_disabled()
    # a button is no guard: sent by hand, the server refuses
    page.evaluate("document.querySelector('#run').disabled = false")
    page.locator("#run").click()
    expect(page.get_by_role("alert")).to_contain_text("Not in the budget, nothing was charged")
    assert site.charges == spent > before


def test_approval_between_two_people(visitor, site):
    ana, owner, before = visitor("ana"), visitor("owner", path="/approvals"), site.charges
    ana.locator("#sql").fill("SELECT AVG(amount) AS mean FROM orders")
    ana.locator("#amount").fill("0.8")
    ana.get_by_label("Why you need it").fill("for the annual report")
    # a price that comes while the reason is written leaves it there
    with ana.expect_response("**/ask/price"):
        ana.evaluate("htmx.trigger('#sql', 'reprice')")
    ana.wait_for_function("!document.querySelector('.htmx-request')")
    expect(ana.get_by_label("Why you need it")).to_have_value("for the annual report")
    expect(ana.locator("#run")).to_be_disabled()
    ana.get_by_role("button", name="Ask the owner").click()
    expect(ana.locator("#answer")).to_contain_text("The owner was asked")
    owner.reload()
    request = owner.locator("article", has_text="for the annual report")
    request.get_by_label("What to say to ana").fill("go ahead")
    request.get_by_role("button", name="Approve").click()
    decided = owner.locator("article", has_text="for the annual report")
    expect(decided.get_by_test_id("state")).to_have_text("approved")
    expect(decided).to_be_focused()
    assert site.charges == before
    ana.goto(f"{site.url}/approvals")
    expect(ana.locator("article").first).to_contain_text("The owner: go ahead")
    ana.get_by_role("link", name="Ask it").first.click()
    expect(ana.locator("#run")).to_have_text("Run for ε = 0.8")
    run(ana)
    assert site.charges == before + 1
    owner.goto(f"{site.url}/ledger")
    owner.get_by_role("button", name="Verify").click()
    expect(owner.get_by_test_id("verified")).to_contain_text("entries hold together")


def test_two_analysts_at_once(visitor, site):
    """The same question of two people is charged to each account once, and each sees their own account alone."""
    ana, bob = visitor("ana"), visitor("bob")
    spent = {who: site.curator.budget(who)[0].share for who in ("ana", "bob")}
    before = site.charges
    for page in (ana, bob):
        priced(page, "SELECT COUNT(*) AS both FROM orders WHERE amount > 10", "0.013")
    # both are sent before either is answered
    ana.locator("#run").click()
    bob.locator("#run").click()
    for page in (ana, bob):
        page.get_by_test_id("cost").wait_for()
        expect(page.locator("#run")).to_have_text("Show again, free")
        run(page)
    # one receipt each: what is paid for by one isn't free for another, and never charged twice
    assert site.charges - before == 2
    for who, page in (("ana", ana), ("bob", bob)):
        (line,) = site.curator.budget(who)
        assert line.share > spent[who]
        page.goto(f"{site.url}/budget")
        assert page.locator("td.account").all_inner_texts() == [who]


def test_drawings_and_downloads(visitor, site):
    page = visitor("ana")
    priced(page, CITIES, "0.21")
    run(page)
    for kind, mark in (("dot", "circle"), ("bar", "rect")):
        page.get_by_role("link", name=kind, exact=True).click()
        expect(page.locator(f"[data-testid=chart] .mark {mark}")).to_have_count(3)
        expect(page.locator(f"#draw-{kind}")).to_have_attribute("aria-current", "true")
        expect(page.locator(f"#draw-{kind}")).to_be_focused()
    shown = [
        float(text.split()[0].replace(",", "")) for text in page.locator(".values td.num:not(.muted)").all_inner_texts()
    ]
    files = {}
    for name in ("CSV", "Arrow", "notebook"):
        with page.expect_download() as download:
            page.get_by_role("link", name=name, exact=True).click()
        files[name] = (download.value.suggested_filename, Path(download.value.path()).read_bytes())
    number = re.search(r"answer-([0-9a-f]+)\.csv", files["CSV"][0]).group(1)
    answer = site.curator.answer(number, analyst="ana")
    values = answer.table.column("n").to_pylist()
    assert shown == values
    table = pa_csv.read_csv(io.BytesIO(files["CSV"][1]))
    assert table.column("n").to_pylist() == values
    assert table.column("n_low").to_pylist() == answer.bars["n"].low.tolist()
    assert pa_ipc.open_stream(files["Arrow"][1]).read_all().to_pylist() == answer.table.to_pylist()
    book = json.loads(files["notebook"][1])
    assert_notebook(book)
    assert site.tokens["ana"] not in json.dumps(book)
    # its cells, with the token given by hand, get the same numbers from the server
    names = {"getpass": type("Given", (), {"getpass": staticmethod(lambda _: site.tokens["ana"])})}
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            exec(cell["source"].replace("import getpass\n", ""), names)
    assert names["frame"]["n"].tolist() == values
    names["server"].close()


def assert_notebook(book):
    """What nbformat 4.5 asks for."""
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    assert set(book) == {"cells", "metadata", "nbformat", "nbformat_minor"}
    for cell in book["cells"]:
        assert re.fullmatch(r"[a-zA-Z0-9-_]{1,64}", cell["id"])
        wanted = {"id", "cell_type", "metadata", "source"}
        assert set(cell) == wanted | ({"execution_count", "outputs"} if cell["cell_type"] == "code" else set())
    assert len({cell["id"] for cell in book["cells"]}) == len(book["cells"])


def test_a_search_while_typing(visitor, site):
    page = visitor("ana", path="/answers")
    site.curator.sql("SELECT COUNT(*) AS wanted FROM orders WHERE amount > 45", epsilon="0.014", analyst="ana")
    page.get_by_label("Search the questions").fill("AMOUNT > 45")
    expect(page.locator("article")).to_have_count(1)
    expect(page.locator("#said")).to_have_text("1 question")
    page.get_by_role("link", name="Show, free").click()
    expect(page.get_by_test_id("free")).to_be_visible()


def test_a_server_that_does_not_answer_is_said(visitor, site):
    page = visitor("ana")
    priced(page)
    page.route("**/ask/run", lambda route: route.fulfill(status=503, body="{}"))
    page.locator("#run").click()
    expect(page.get_by_role("alert")).to_contain_text("can't do this now")
    # the browser itself logs the status
    assert [said for said in page.complaints if "503" not in said] == []
    page.complaints.clear()


# a page as a narrow phone shows it, and how well its texts stand out: WCAG 2.1, success criteria 1.4.3 and 1.4.10
CONTRASTS = """() => {
  const parse = (text) => { const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number); return { r, g, b, a }; };
  const over = (top, under) => Object.fromEntries(
    ["r", "g", "b"].map((c) => [c, top[c] * top.a + under[c] * (1 - top.a)]).concat([["a", 1]]));
  const light = ({ r, g, b }) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (node) => {
    const layers = [];
    for (let at = node; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((under, top) => over(top, under), { r: 255, g: 255, b: 255, a: 1 });
  };
  const found = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!own || !node.checkVisibility() || node.closest("svg, :disabled, noscript")) continue;
    const under = behind(node), [a, b] = [light(over(parse(getComputedStyle(node).color), under)), light(under)];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    found.push([contrast, node.tagName + "." + node.className, node.textContent.trim().slice(0, 30)]);
  }
  return found;
}"""


# what can't be reached or has no name (WCAG 2.1, 2.1.1 and 4.1.2): boxes that scroll, controls, links
UNREACHABLE = """() => [...document.querySelectorAll("body *")].filter((node) => {
  if (!node.checkVisibility() || node.closest("svg")) return false;
  const style = getComputedStyle(node);
  const scrolls = ["auto", "scroll"].some((how) => style.overflowX === how || style.overflowY === how)
    && node.tagName !== "TEXTAREA" && (node.scrollHeight > node.clientHeight || node.scrollWidth > node.clientWidth);
  if (scrolls && (node.tabIndex < 0 || !node.getAttribute("aria-label"))) return true;
  if (!node.matches("a, button, input:not([type=hidden]), textarea, summary")) return false;
  return !(node.textContent.trim() || node.getAttribute("aria-label") || (node.labels && node.labels.length));
}).map((node) => node.outerHTML.slice(0, 100))"""
# how the edges of fields stand out from what is around them: WCAG 2.1, 1.4.11
EDGES = """() => {
  const light = (text) => text.match(/[\\d.]+/g).slice(0, 3).map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const fields = [...document.querySelectorAll("textarea, input:not([type=hidden]):not([type=radio])")];
  return fields.filter((node) => node.checkVisibility()).map((node) => {
    const edge = light(getComputedStyle(node).borderTopColor);
    const around = light(getComputedStyle(node.closest(".card")).backgroundColor);
    return [(Math.max(edge, around) + 0.05) / (Math.min(edge, around) + 0.05), node.name];
  });
}"""


@pytest.mark.parametrize("scheme", [pytest.param("light", marks=at_night), "dark"])
@pytest.mark.nightly
def test_texts_stand_out_and_nothing_is_wider_than_a_phone(visitor, site, scheme, tmp_path):
    long = "SELECT city, COUNT(*) AS " + "a_very_long_name_" * 6 + " FROM orders GROUP BY city"
    number = site.curator.sql(long, epsilon="0.015", analyst="owner").receipt.number
    many = "SELECT COUNT(*) AS n FROM orders WHERE amount > 1" + "\n  AND amount > 2" * 40
    site.curator.sql(many, epsilon="0.015", analyst=LONG_NAME)
    site.curator.request_question(many, epsilon="0.4", analyst=LONG_NAME, why="w" * 300)
    page = visitor("owner", color_scheme=scheme)
    expect(page.locator("#run")).to_be_enabled(timeout=PATIENCE)
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(int(part) for part in re.findall(r"\d+", background)) < 200) == (scheme == "dark")
    seen = set()
    for path in (
        "/ask",
        "/answers",
        f"/answers/{number}",
        "/budget",
        "/data",
        "/approvals",
        "/ledger",
        "/ledger?before=x",
    ):
        if path != "/ledger?before=x":
            page.goto(f"{site.url}{path}")
        if path == "/ask":
            page.locator("#sql").fill(long)
            expect(page.locator("#run")).to_have_text("Run for ε = 0.1")
        for width in (1200, 390):
            page.set_viewport_size({"width": width, "height": 844})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        for contrast, what, text in page.evaluate(CONTRASTS):
            assert contrast >= 4.5, (path, what, text)
            seen.add(what.split(".")[0])
        assert page.evaluate(UNREACHABLE) == [], path
        for contrast, what in page.evaluate(EDGES):
            assert contrast >= 3, (path, what)
        page.screenshot(path=tmp_path / f"{scheme}.png")
    assert {"BUTTON", "A", "P", "TD", "TH", "H1", "H2", "SPAN", "DT", "DD"} <= seen
