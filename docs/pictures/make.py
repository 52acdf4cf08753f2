"""Makes the pictures of the web page for the README: the demo shop, several questions, a real browser.

    python docs/pictures/make.py

needs the extras ``server`` and ``dev`` and Debian's chromium. The noise is fresh each time, so the numbers differ.
"""

from __future__ import annotations

import shutil
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path

import uvicorn
from playwright.sync_api import sync_playwright

from dither.cli.shop import POLICY, make_shop
from dither.curator import Curator
from dither.server.app import make_app
from dither.server.auth.tokens import TokenFile
from dither.server.service import Service

HERE = Path(__file__).parent
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
QUESTION = "SELECT city, COUNT(*) AS orders\nFROM orders\nGROUP BY city"
EARLIER = (
    ("SELECT COUNT(*) AS n FROM orders", "0.3"),
    ("SELECT age, COUNT(*) AS n FROM customers GROUP BY age", "0.5"),
    ("SELECT city, AVG(amount) AS mean FROM orders GROUP BY city", "0.4"),
    ("SELECT EXTRACT(month FROM day) AS month, SUM(amount) AS sales FROM orders GROUP BY month", "0.6"),
    ("SELECT city, SUM(amount) AS sales FROM orders GROUP BY city", "0.35"),
)


def main() -> int:
    """Write ask.png and budget.png beside this file."""
    browser_path = shutil.which("chromium")
    if browser_path is None:
        print("chromium isn't installed", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        make_shop(directory)
        policy = directory / "dither.toml"
        policy.write_text(POLICY, encoding="utf-8")
        with Curator.open(policy) as curator, TokenFile.open(directory / "shop.access") as access:
            _, token = access.create("ana")
            for sql, epsilon in EARLIER:
                curator.sql(sql, epsilon=epsilon, analyst="ana")
                # a pause, so that the steps of the burn-down are apart
                time.sleep(0.7)
            service = Service(curator)
            listener = socket.create_server(("127.0.0.1", 0))
            server = uvicorn.Server(uvicorn.Config(make_app(service, access), log_level="error", lifespan="off"))
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
            thread.start()
            try:
                _take(browser_path, f"http://127.0.0.1:{listener.getsockname()[1]}", token)
            finally:
                server.should_exit = True
                thread.join()
                listener.close()
                service.close()
    return 0


def _take(browser_path: str, url: str, token: str) -> None:
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=browser_path, args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 1200, "height": 1130}, color_scheme="light")
        page.goto(url)
        page.get_by_label("Token").fill(token)
        page.keyboard.press("Enter")
        page.wait_for_selector("#run:enabled")
        page.locator("#sql").fill(QUESTION)
        page.locator("#amount").fill("0.25")
        page.get_by_role("button", name="Run for ε = 0.25").click()
        page.get_by_test_id("cost").wait_for()
        page.get_by_role("button", name="Show again, free").wait_for()
        page.evaluate("document.activeElement.blur()")
        page.evaluate("window.scrollTo(0, 0)")
        page.screenshot(path=HERE / "ask.png")
        page.goto(f"{url}/budget")
        page.screenshot(path=HERE / "budget.png", full_page=True)
        browser.close()


if __name__ == "__main__":
    sys.exit(main())
