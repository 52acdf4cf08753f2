"""What gets into the pages, and what is said about privacy: text that people write stays text, and nothing leaks."""

import json
import re
from urllib.parse import quote, urlencode

import numpy as np
import pyarrow as pa
import pytest

from dither.curator import AnalystView, Answer, Bars, Cost
from dither.errors import Failed
from dither.privacy import Adjacency, Guarantee
from dither.server.auth.identity import Scope
from dither.server.web.answer_view import shown_answer
from dither.server.web.guarantee_in_words import meaning_of
from support import web_site

CITIES = web_site.CITIES
COUNT = web_site.COUNT
HOSTILE = web_site.HOSTILE
PAGES = web_site.PAGES
PEOPLE = web_site.PEOPLE
Markup = web_site.Markup
open_asked = web_site.open_asked
open_site = web_site.open_site
pages_of = web_site.pages_of


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    with open_asked(tmp_path_factory.mktemp("asked")) as made:
        yield made


@pytest.fixture
def fresh(tmp_path):
    with open_site(tmp_path) as made:
        yield made


# ---------------------------------------------------------------------- what gets into a page


@pytest.mark.parametrize("who", PEOPLE)
def test_every_page_obeys_a_strict_policy(asked, who):
    policy = None
    for page in pages_of(asked, who):
        policy = page.headers["content-security-policy"]
        rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
        assert rules["default-src"] == "'none'"
        assert "unsafe" not in policy
        assert "*" not in policy
        assert rules["frame-ancestors"] == rules["base-uri"] == "'none'"
        # all that the pages use is allowed, and from here alone
        assert {rules[name] for name in ("script-src", "style-src", "img-src", "connect-src", "form-action")} == {
            "'self'"
        }
        assert page.headers["x-frame-options"] == "DENY"
        assert page.headers["x-content-type-options"] == "nosniff"
        assert page.headers["cache-control"] == "no-store"
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        markup = Markup(page.text)
        assert markup.bad == []
        for load in markup.loads:
            assert load.startswith(("/", "#"))
            assert not load.startswith("//")


@pytest.mark.parametrize("who", PEOPLE)
def test_every_page_can_be_read_by_a_machine(asked, who):
    """One main heading, headings in order, names for controls, no id twice, references that lead somewhere."""
    for page in pages_of(asked, who):
        markup = Markup(page.text)
        assert len(markup.ids) == len(set(markup.ids))
        for control in markup.controls:
            named = control.get("id") in markup.labels or "aria-label" in control or control.get("type") == "radio"
            assert named or any(label is None for label in markup.labels), control
        if "<!doctype html>" not in page.text:
            assert "<main" not in page.text
            continue
        assert markup.heads[0] == 1
        assert markup.heads.count(1) == 1
        assert all(after <= before + 1 for before, after in zip(markup.heads, markup.heads[1:], strict=False))
        assert set(markup.references) <= set(markup.ids)
        landmarks = [tag for tag, _ in markup.tags]
        assert landmarks.count("main") == 1
        assert landmarks.count("header") == 1
        assert re.search(r"<title>[A-Z].* · shop</title>", page.text)
        assert '<html lang="en">' in page.text
        for tag, attributes in markup.tags:
            assert tag != "th" or attributes["scope"] == "col"
            assert tag != "img" or "alt" in attributes
            if tag == "svg":
                assert attributes["role"] == "img"
                assert attributes["aria-label"]


def test_what_people_write_is_text_everywhere(tmp_path):
    alias = HOSTILE.replace('"', '""')
    hostile = f'SELECT city, COUNT(*) AS "{alias}" FROM orders GROUP BY city -- {HOSTILE}'
    with open_site(tmp_path, more="needs_approval_above = 0.3") as site:
        site.number = site.ask(hostile)
        site.post("/ask/request", sql=hostile, amount="0.4", why=HOSTILE)
        site.post("/budget/request", amount="1", why=HOSTILE)
        site.request = site.curator.requests()[0].number
        site.post(f"/approvals/{site.request}", "owner", decision="approve", why=HOSTILE)
        query = urlencode({"sql": HOSTILE, "epsilon": HOSTILE, "search": HOSTILE})
        seen = [page for who in ("ana", "owner") for page in pages_of(site, who)]
        seen += [site.get(f"/ask?{query}"), site.get(f"/answers?{query}"), site.get(f"/answers/{quote(HOSTILE)}")]
        for path in ("/ask/price", "/ask/run", "/ask/request"):
            for partly in (False, True):
                seen.append(site.post(path, partly=partly, sql=hostile, amount=HOSTILE, mode=HOSTILE))
                seen.append(site.post(path, partly=partly, sql=HOSTILE, amount="0.1"))
                seen.append(site.post(path, partly=partly, sql=hostile, amount="0.1"))
        held = 0
        for page in seen:
            assert "<script>alert" not in page.text
            assert "<img src=x" not in page.text
            # a template in what somebody writes stays a text
            assert page.text.count("onerror=alert(2)&gt;49") == 0
            assert Markup(page.text).bad == []
            held += "&lt;script&gt;alert(1)" in page.text
        assert held > 10


def test_names_are_text_too(tmp_path):
    name = "<b onclick=x>'\"&"
    odd = f"[analysts.{json.dumps(name)}]"
    with open_site(tmp_path, change=lambda text: text.replace("[analysts.looker]", odd)) as site:
        site.enter("odd", site.access.create(name, Scope.ASK)[1])
        site.ask(CITIES, "odd")
        site.post("/budget/request", "odd", amount="1", why="why")
        for who in ("odd", "owner"):
            for path in PAGES:
                page = site.get(path, who)
                assert "<b onclick" not in page.text
                assert Markup(page.text).bad == []
        assert "&lt;b onclick" in site.get("/budget", "owner").text


def test_no_page_names_files_or_hidden_things(asked):
    for who in PEOPLE:
        for page in pages_of(asked, who):
            assert str(asked.directory) not in page.text
            assert "Traceback" not in page.text
            assert "never shown" not in page.text
            assert ">secret<" not in page.text
            assert ".duckdb" not in page.text
    assert "1 more column, hidden by the owner" in asked.get("/data").text


def test_an_error_inside_says_nothing(asked, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("/home/owner/shop.duckdb row 17")

    for name in ("answers", "price", "sql", "history", "records", "verify", "requests", "answer"):
        monkeypatch.setattr(asked.curator.__class__, name, broken)
    for name in ("remembered", "price", "sql", "request_question"):
        monkeypatch.setattr(AnalystView, name, broken)
    for path in ("/answers", "/budget", "/ledger", "/approvals", f"/answers/{asked.number}/download?form=csv"):
        page = asked.get(path, "owner")
        assert page.status_code == 500
        assert "something went wrong" in page.text
        assert "duckdb" not in page.text
    for path, partly in (("/ask/price", True), ("/ask/run", True), ("/ask/run", False), ("/ledger/verify", True)):
        page = asked.post(path, "owner", partly=partly, sql=COUNT, amount="0.1")
        assert "something went wrong" in page.text
        assert "duckdb" not in page.text


def test_what_was_charged_is_never_called_free(asked, monkeypatch):
    def failed(*_, **__):
        raise Failed("abc123")

    monkeypatch.setattr(AnalystView, "sql", failed)
    for partly in (True, False):
        page = asked.post("/ask/run", partly=partly, sql=COUNT, amount="0.17")
        assert "Charged, but not answered" in page.text
        assert "abc123" in page.text
        assert "free of charge" not in page.text
    monkeypatch.setattr(AnalystView, "sql", lambda *_, **__: (_ for _ in ()).throw(TimeoutError()))
    page = asked.post("/ask/run", partly=True, sql=COUNT, amount="0.17")
    assert "Not answered" in page.text
    assert "free of charge" not in page.text


# ---------------------------------------------------------------------- what is said about privacy


def test_a_suspicion_moves_no_further_than_the_guarantee_says():
    meaning = meaning_of(Guarantee(epsilon=1), Adjacency.ADD_REMOVE)
    # odds of 1/9 times e and divided by e
    assert [(one.before, one.low, one.high) for one in meaning.suspicions] == [
        ("1%", "0.37%", "2.68%"),
        ("10%", "3.92%", "23.20%"),
        ("50%", "26.89%", "73.11%"),
    ]
    assert meaning.but_for == ""
    assert "twice the ε" in meaning.besides
    with_delta = meaning_of(Guarantee(epsilon=1, delta="1e-8"), Adjacency.REPLACE)
    assert with_delta.but_for == ", but for a chance of 1 in 1,000,000"
    # never smaller than it is
    for delta, said in (
        ("1/12345600", "1 in 120,000"),
        ("3e-8", "1 in 330,000"),
        ("1/250", "1 in 2"),
        (".5", "1 in 1"),
    ):
        assert meaning_of(Guarantee(epsilon=1, delta=delta), Adjacency.REPLACE).but_for.endswith(said)
    assert with_delta.besides == ""
    for without, loose in zip(meaning.suspicions, with_delta.suspicions, strict=True):
        assert float(loose.low[:-1]) <= float(without.low[:-1])
        assert float(loose.high[:-1]) >= float(without.high[:-1])


def test_the_budget_says_what_it_means_once_something_was_answered(fresh):
    before = fresh.get("/budget").text
    assert "Nothing was answered yet" in before
    assert "Each answer will be a step down here" in before
    fresh.ask(CITIES)
    after = fresh.get("/budget").text
    assert "Suspicion before" in after
    assert 'data-testid="burn"' in after
    assert re.search(r'data-testid="more">[\d,]+</b> more questions like your latest one', after)


def test_the_data_page_says_what_to_do_about_what_is_missing(fresh):
    text = fresh.get("/data").text
    assert "No keys. Groups are found privately and rare ones stay hidden; ask the owner to list the keys." in text
    assert "EXTRACT(month FROM day)" in text
    assert "0 to 50, in steps of 0.5" in text
    # what it tells to write is taken
    page = fresh.post(
        "/ask/price",
        partly=True,
        sql="SELECT EXTRACT(month FROM day) AS m, COUNT(*) AS n FROM orders GROUP BY m",
        amount="0.1",
    )
    assert "Run for" in page.text


def test_plus_minus_is_said_only_of_a_value_in_the_middle_of_its_interval():
    table = pa.table({"m": [50.0, 3.0, None]})
    bars = {"m": Bars(low=np.array([40.0, 0.0, 0.0]), high=np.array([60.0, 20.0, 1.0]), text="")}
    cost = Cost(epsilon=1.0, delta=0.0, charged=True, left="")
    shown = shown_answer(Answer(table=table, bars=bars, confidence=0.95, receipt=None, cost=cost))
    cells = [(one.text, one.half, one.interval) for (one,) in shown["rows"]]
    assert cells == [("50", "10", "40 … 60"), ("3", "", "0 … 20"), ("NULL", "", "")]
