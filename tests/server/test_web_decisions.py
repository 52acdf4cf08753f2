"""What people see before they decide: the owner beside each request, and an analyst before anything is charged."""

import contextlib
import html
import re

import pytest

from dither.curator import Curator
from dither.errors import OutOfBudget
from dither.server.app import make_app
from dither.server.auth.identity import Scope
from support import web_site

CITIES, COUNT = web_site.CITIES, web_site.COUNT


@pytest.fixture
def site(tmp_path):
    """Questions above 0.3 need the owner, and ana has ε = 1 of the dataset's 2."""
    with web_site.open_site(tmp_path, more="needs_approval_above = 0.3", budget=2, ana=1) as made:
        yield made


def text_of(markup):
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", markup))).strip()


def article(site, number, who="owner"):
    page = site.get("/approvals", who).text
    return re.search(rf'<article class="past" id="request-{number}".*?</article>', page, re.DOTALL).group(0)


def rows(markup):
    """What is left to whom, now and afterwards."""
    table = re.search(r'data-testid="outlook">(.*?)</table>', markup, re.DOTALL).group(1)
    lines = [re.findall(r"<td.*?</td>", line) for line in re.findall(r"<tr>.*?</tr>", table)]
    return {text_of(line[0]): tuple(text_of(cell) for cell in line[1:]) for line in lines if line}


def left(line):
    return f"{100 * (1 - line.share):.3g}% of ε = {line.epsilon_budget:g}"


def percent(text):
    return float(re.search(r"([\d.]+)%", text).group(1))


# ---------------------------------------------------------------------- the owner decides


def test_a_waiting_question_is_shown_with_all_that_the_decision_needs(site):
    site.curator.sql(COUNT, epsilon=0.2, analyst="bob")
    site.curator.sql(COUNT, epsilon=0.3, analyst="ana")
    made = site.curator.request_question(CITIES, epsilon=0.6, analyst="ana", why="for the annual report")
    shown = article(site, made.number)
    quote = site.curator.price(CITIES, epsilon=0.6, analyst="ana")
    said = text_of(shown)
    assert CITIES in said
    assert f"Price ε = {quote.epsilon:.4g}" in said
    assert f"n, error at 95% ± {quote.error['n']:g}" in said
    assert "Why: for the annual report" in said
    before = site.curator.budget()
    (dataset, ana) = (next(line for line in before if line.account == name) for name in ("shop", "shop/ana"))
    table = rows(shown)
    assert table["ana"][0] == left(ana)
    assert table["everybody together"][0] == left(dataset)
    # looking charges nothing; what was foretold is what comes
    assert site.curator.budget() == before
    site.curator.decide(made.number, approve=True)
    site.curator.sql(CITIES, epsilon=0.6, analyst="ana")
    after = {line.account: 100 * (1 - line.share) for line in site.curator.budget() if line.share is not None}
    assert percent(table["ana"][1]) == pytest.approx(after["shop/ana"], rel=0.01)
    assert percent(table["everybody together"][1]) == pytest.approx(after["shop"], rel=0.01)
    assert "outlook" not in article(site, made.number)


def test_what_a_question_leaves_is_never_less_than_foretold(site):
    """Keys that are discovered take a part of δ too, and one that the dataset has paid for costs it nothing more."""
    sql = "SELECT product, COUNT(*) AS n FROM orders GROUP BY product"
    site.curator.sql(COUNT, epsilon=0.3, analyst="ana")
    site.curator.sql(sql, epsilon=0.5, analyst="owner")
    made = site.curator.request_question(sql, epsilon=0.5, analyst="ana")
    table = rows(article(site, made.number))
    assert table["everybody together"][1] == "the same"
    site.curator.decide(made.number, approve=True)
    site.curator.sql(sql, epsilon=0.5, analyst="ana")
    (line,) = site.curator.budget("ana")
    assert percent(table["ana"][1]) <= 100 * (1 - line.share) * 1.01


def test_a_wish_for_more_shows_the_percentages_before_and_after(site):
    site.curator.sql(COUNT, epsilon=0.3, analyst="ana")
    site.curator.sql(CITIES, epsilon=0.3, analyst="ana")
    made = site.curator.request_budget("ana", epsilon="0.75", why="more months")
    table = rows(article(site, made.number))
    dataset, ana = site.curator.budget()[0], site.curator.budget("ana")[0]
    assert table["ana"][0] == left(ana)
    assert table["everybody together"] == (left(dataset), "the same")
    site.curator.decide(made.number, approve=True)
    raised = site.curator.budget("ana")[0]
    assert raised.epsilon_budget == 1.75
    assert table["ana"][1] == left(raised) != left(ana)
    # a second one counts from there
    again = site.curator.request_budget("ana", epsilon=1)
    foretold = rows(article(site, again.number))["ana"][1]
    site.curator.decide(again.number, approve=True)
    assert foretold == left(site.curator.budget("ana")[0])


def test_a_question_that_fits_nowhere_is_said_to(site):
    for amount in ("0.3", "0.29", "0.28", "0.27"):
        site.curator.sql(CITIES, epsilon=amount, analyst="ana")
    own = site.curator.request_question(CITIES, epsilon=1, analyst="ana")
    shown = article(site, own.number)
    assert rows(shown)["ana"][1] == "too little"
    assert "doesn't fit in what is left to ana" in text_of(shown)
    site.curator.decide(own.number, approve=False)
    for amount in range(99, 40, -1):
        with contextlib.suppress(OutOfBudget):
            site.curator.sql(CITIES, epsilon=f"0.{amount}", analyst="owner")
    shared = site.curator.request_question(CITIES, epsilon="0.4", analyst="ana")
    shown = article(site, shared.number)
    assert rows(shown)["everybody together"][1] == "too little"
    assert "doesn't fit in what is left to everybody together" in text_of(shown)


def test_analysts_see_neither_balances_of_others_nor_of_the_dataset(site):
    site.curator.sql(COUNT, epsilon=0.3, analyst="bob")
    made = site.curator.request_question(CITIES, epsilon=0.6, analyst="ana")
    shown = article(site, made.number, "ana")
    assert "outlook" not in shown
    assert "everybody together" not in site.get("/approvals").text


def test_what_waits_comes_first_and_an_old_policy_is_no_obstacle(site, tmp_path):
    waits = site.curator.request_question(CITIES, epsilon=0.6, analyst="ana")
    done = site.curator.request_budget("bob", epsilon=1)
    site.curator.decide(done.number, approve=False)
    page = site.get("/approvals", "owner").text
    assert page.index(waits.number) < page.index(done.number)
    assert "<b>1</b> waits for your decision" in page
    # the policy lost the analyst since: the page comes, and says so
    policy = tmp_path / "dither.toml"
    policy.write_text(policy.read_text("utf-8").replace("[analysts.ana]", "[analysts.eve]"), "utf-8")
    with Curator.open(policy) as changed:
        site.service.curator = changed
        site.app = make_app(site.service, site.access)
        shown = article(site, waits.number)
        assert "the policy doesn't list the name" in text_of(shown)


# ---------------------------------------------------------------------- nothing is charged for another price


@pytest.mark.parametrize("partly", [False, True])
@pytest.mark.parametrize("agreed", [{}, {"agreed": ""}, {"agreed": "free"}, {"agreed": "ε = 0.1"}])
def test_a_price_that_the_button_did_not_state_is_not_charged(site, agreed, partly):
    fields = {"sql": CITIES, "amount": "0.2", "agreed": "", **agreed}
    if not agreed:
        del fields["agreed"]
    form = {"csrf": site.csrf["ana"], **fields}
    page = site.send("POST", "/ask/run", "ana", data=form, headers=web_site.HTMX if partly else None)
    assert "the button didn&#39;t state the price" in page.text
    assert "Refused, free of charge" in page.text
    assert site.charges == 0
    if not partly:
        # the price stands there now, and the button states it
        assert page.status_code == 409
        assert 'name="agreed" value="ε = 0.2"' in page.text
        assert "Run for ε = 0.2" in page.text
    assert site.post("/ask/run", **fields | {"agreed": "ε = 0.2"}).status_code == 200
    assert site.charges == 1
    # what is free needs no agreement
    again = site.send("POST", "/ask/run", "ana", data=form)
    assert "asked before, free" in again.text
    assert site.charges == 1


def test_no_button_runs_a_question_without_stating_its_price(site):
    """Also without a script: on every page with an editor, what sends to /ask/run says what it costs."""
    pages = [site.get("/ask"), site.post("/ask/price", sql=CITIES, amount="0.2"), site.post("/ask/price", sql="")]
    pages += [site.post("/ask/price", sql="SELECT", amount="0.1"), site.post("/ask/price", sql=CITIES, amount="0.6")]
    pages += [site.post("/ask/run", sql="SELECT", amount="0.1")]
    for page in pages:
        form = re.search(r'<form class="card" id="question".*?</form>', page.text, re.DOTALL).group(0)
        for attributes, label in re.findall(r"<button([^>]*)>(.*?)</button>", form):
            if "formaction" not in attributes and "disabled" not in attributes:
                assert label == "Run for ε = 0.2"


def test_explaining_is_free_and_called_so(site):
    page = site.post("/ask/price", sql=f"EXPLAIN PRIVACY {CITIES}", amount="0.2", partly=True)
    assert "Explain, free" in page.text
    found = site.post("/ask/run", sql=f"EXPLAIN PRIVACY {CITIES}", amount="0.2", agreed="")
    assert found.status_code == 200
    assert site.charges == 0


# ---------------------------------------------------------------------- odd habits


@pytest.mark.parametrize("path", [path.format(request="1") for path in web_site.FORMS])
def test_the_address_of_a_form_leads_back_to_its_page(site, path):
    before = site.state
    reply = site.get(path, "owner")
    assert (reply.status_code, reply.headers["location"]) == (303, "/" + path.split("/")[1])
    assert site.state == before


def test_a_browser_that_is_lost_gets_a_page_and_a_program_a_problem(site):
    browser = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    page = site.get("/nowhere", headers=browser)
    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "there is nothing here" in page.text
    assert '<a href="/ask">' in page.text
    for path, headers in (("/nowhere", {}), ("/v1/nowhere", browser)):
        assert site.get(path, headers=headers).json()["code"] == "not_found"


def test_who_is_signed_out_is_told_so_once(site):
    assert "Your sign-in has ended" not in site.send("GET", "/sign-in").text
    assert "Your sign-in has ended" not in site.get("/sign-in").text
    site.access.sign_out(site.cookies["ana"])
    assert site.get("/ask").headers["location"] == "/sign-in"
    assert "Your sign-in has ended" in site.get("/sign-in").text


@pytest.mark.parametrize("amount", ["abc", "0", "0.0", "-1", "0x1", "1e400", "0e5", "1..2", "0/3", "NaN", "٠٫١"])
def test_what_is_no_amount_is_said_in_plain_words(site, amount):
    page = site.post("/ask/price", sql=CITIES, amount=amount, partly=True)
    assert "No price yet:</b> the amount must be a number above 0, such as 0.1" in page.text


@pytest.mark.parametrize("amount", ["0,1", " .1", "1/10", "1e-1", "0.10"])
def test_amounts_as_people_write_them(site, amount):
    assert "Run for ε = 0.1<" in site.post("/ask/price", sql=CITIES, amount=amount, partly=True).text


@pytest.mark.parametrize(
    "sql",
    [
        f"{COUNT};",
        f"-- which\n{COUNT} -- so many\n;",
        f"/* all */ {COUNT};;",
        f"{COUNT};\n-- the end",
    ],
)
def test_semicolons_and_comments_are_the_same_question(site, sql):
    site.ask(COUNT)
    assert "Show again, free" in site.post("/ask/price", sql=sql, amount="0.1", partly=True).text


def test_several_statements_are_refused_at_the_second(site):
    page = site.post("/ask/price", sql=f"{COUNT};\n{CITIES}", amount="0.1", partly=True)
    assert "there is more than one statement" in page.text
    assert site.charges == 0


def test_an_answer_that_is_mostly_noise_says_so(site):
    assert 'data-testid="noise"' in site.post("/ask/run", sql=CITIES, amount="0.001", partly=True).text
    assert 'data-testid="noise"' not in site.post("/ask/run", sql=COUNT, amount="0.3", partly=True).text


# ---------------------------------------------------------------------- a name that came after the start


def test_a_name_that_the_running_policy_does_not_know_is_told_what_to_do(site):
    site.tokens["eve"] = site.access.create("eve", Scope.ASK)[1]
    site.enter("eve", site.tokens["eve"])
    for path in ("/ask", "/budget", "/answers", "/approvals"):
        page = site.get(path, "eve")
        assert page.status_code == 403
        assert "the policy doesn&#39;t list the name" in page.text
        assert "has to start the server again" in page.text
    assert "has to start the server again" in site.post("/ask/price", "eve", sql=CITIES, amount="0.1", partly=True).text
    own = {"Authorization": f"Bearer {site.tokens['eve']}"}
    replies = [site.send("GET", f"/v1/{name}", headers=own) for name in ("budget", "answers", "requests", "history")]
    replies.append(site.send("POST", "/v1/price", headers=own, json={"sql": CITIES}))
    for reply in replies:
        assert (reply.status_code, reply.json()["code"]) == (403, "unknown_analyst")
        assert "has to start the server again" in reply.json()["hint"]
    assert site.send("GET", "/v1/whoami", headers=own).json()["analyst"] == "eve"
