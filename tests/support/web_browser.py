"""The shop behind a real server and a real Chromium, for the tests that look at the page as people do."""

import shutil
import socket
import threading
import time

import pytest
import uvicorn

from support import web_site

CHROMIUM = shutil.which("chromium")
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
PATIENCE = 20_000
LONG_NAME = "somebody_with_an_extraordinarily_long_name_that_nobody_would_choose_and_yet"

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
NEEDED = pytest.mark.skipif(CHROMIUM is None, reason="no chromium in PATH: install Debian's package chromium")
expect = playwright.expect
expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The shop behind a real server on loopback; questions above 0.3 need the owner."""

    def one_more(text):
        return text.replace("[tables.orders]", f"[analysts.{LONG_NAME}]\nepsilon_budget = 1\n\n[tables.orders]")

    with web_site.open_site(
        tmp_path_factory.mktemp("shop"), more="needs_approval_above = 0.3", change=one_more
    ) as made:
        listener = socket.create_server(("127.0.0.1", 0))
        made.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        settings = uvicorn.Config(made.app, log_config=None, lifespan="off", ws="none", timeout_graceful_shutdown=1)
        server = uvicorn.Server(settings)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield made
        server.should_exit = True
        thread.join(20)
        listener.close()
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield opened
        opened.close()


@pytest.fixture
def visitor(browser, site):
    """``visitor("ana")``: a page of its own, signed in; at the end nothing was logged and no other host was asked."""
    opened, complaints = [], []

    def come(who, *, path="/ask", typed=False, **options):
        context = browser.new_context(viewport={"width": 1200, "height": 900}, **options)
        context.set_default_timeout(PATIENCE)
        opened.append(context)
        page = context.new_page()
        page.complaints = complaints
        page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda sent: None if sent.url.startswith(site.url) else complaints.append(sent.url))
        if typed:
            page.goto(f"{site.url}/")
            page.get_by_label("Token").fill(site.tokens[who])
            page.keyboard.press("Enter")
            page.wait_for_url("**/ask")
        else:
            cookie, _ = site.access.sign_in(site.tokens[who])
            context.add_cookies([{"name": "dither_session", "value": cookie, "url": site.url}])
            page.goto(f"{site.url}{path}")
        return page

    yield come
    for context in opened:
        context.close()
    assert complaints == []


def priced(page, sql=None, amount=None):
    """Type a question, and wait for its price."""
    if sql is not None:
        page.locator("#sql").fill(sql)
    if amount is not None:
        page.locator("#amount").fill(amount)
    expect(page.locator("#run")).to_be_enabled(timeout=PATIENCE)


def run(page):
    with page.expect_response("**/ask/run"):
        page.locator("#run").click()
    page.get_by_test_id("cost").wait_for()
