"""What the forms of the page do, with and without a script, and what they do with odd input."""

import io
import json
import re
from urllib.parse import quote, urlencode

import pyarrow.csv as pa_csv
import pyarrow.ipc as pa_ipc
import pytest

from dither.server.web.web_session import STATIC, static_file
from support import web_site

CITIES = web_site.CITIES
COUNT = web_site.COUNT
HTMX = web_site.HTMX
open_asked = web_site.open_asked
open_site = web_site.open_site


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    with open_asked(tmp_path_factory.mktemp("asked")) as made:
        yield made


@pytest.fixture
def fresh(tmp_path):
    with open_site(tmp_path) as made:
        yield made


# ---------------------------------------------------------------------- what the forms do, with and without a script


def test_a_price_as_a_part_and_as_a_page(fresh):
    part = fresh.post("/ask/price", partly=True, sql=CITIES, amount="0,1")
    whole = fresh.post("/ask/price", sql=CITIES, amount="0,1")
    for page in (part, whole):
        assert re.search(r'data-testid="price">ε = 0.1<', page.text)
        assert "Run for ε = 0.1" in page.text
        assert "A suspicion of 10% that somebody is in the data becomes at least" in page.text
    assert "<!doctype html>" not in part.text
    assert whole.text.startswith("<!doctype html>")
    # the page keeps what was written
    assert "GROUP BY city ORDER BY city</textarea>" in whole.text
    assert 'value="0,1"' in whole.text
    assert fresh.charges == 0
    wanted = fresh.post("/ask/price", sql=CITIES, amount="100", mode="error").text
    assert 'value="error" checked' in wanted
    assert "± 100<" in wanted or re.search(r"± 9\d\.\d+<", wanted)


def test_an_answer_as_a_part_and_as_a_page(fresh):
    part = fresh.post("/ask/run", partly=True, sql=CITIES, amount="0.1")
    assert 'data-testid="chart"' in part.text
    assert "asked before, free" not in part.text
    whole = fresh.post("/ask/run", sql=CITIES, amount="0.1")
    assert whole.text.startswith("<!doctype html>")
    assert 'data-testid="free"' in whole.text
    values = [re.findall(r'<td class="num">([\d,.-]+) <span', page.text) for page in (part, whole)]
    assert values[0] == values[1]
    assert len(values[0]) == 3
    assert fresh.charges == 1


def test_a_refusal_marks_its_place(asked):
    before = asked.charges
    sql = "SELECT city,\n  nonsense\nFROM orders"
    for path in ("/ask/price", "/ask/run"):
        for partly in (True, False):
            page = asked.post(path, partly=partly, sql=sql, amount="0.1")
            assert page.status_code == (200 if partly or path == "/ask/price" else 400)
            assert "<mark>nonsense</mark>" in page.text
            assert "line 2: " in page.text
            # only what was asked is refused
            assert ("Refused, free of charge" in page.text) == (path == "/ask/run")
            assert ("Not yet a question" in page.text) == (path == "/ask/price")
            assert ('role="alert"' in page.text) == (path == "/ask/run")
    assert asked.charges == before


def test_a_place_in_a_very_long_line_is_shown_with_little_around_it(asked):
    sql = "SELECT " + " + ".join(["COUNT(*)"] * 500) + ", nonsense, " + ", ".join(["COUNT(*)"] * 100) + " FROM orders"
    page = asked.post("/ask/price", partly=True, sql=sql, amount="0.1")
    if "<mark>" in page.text:
        assert len(re.search(r'data-testid="where">(.*?)</pre>', page.text, re.DOTALL).group(1)) < 600


def test_over_the_budget(fresh):
    fresh.ask(CITIES, "bob", amount="0.4")
    page = fresh.post("/ask/price", "bob", partly=True, sql=COUNT, amount="0.45")
    assert "doesn't fit in the budget any more" in page.text
    assert re.search(r'<button type="submit" id="run" disabled>', page.text)
    for partly in (True, False):
        refused = fresh.post("/ask/run", "bob", partly=partly, sql=COUNT, amount="0.45")
        assert refused.status_code == (200 if partly else 402)
        assert "Not in the budget, nothing was charged" in refused.text
    assert fresh.charges == 1


def test_requests_without_a_script_end_on_the_list(asked):
    before = asked.charges
    made = asked.post("/ask/request", sql=COUNT, amount="0.45", why="for the report")
    assert made.status_code == 303
    place, number = made.headers["location"].split("#request-")
    assert place == "/approvals"
    listed = asked.get(place).text
    assert f'id="request-{number}"' in listed
    assert "for the report" in listed
    assert "needs the owner" in asked.post("/ask/price", partly=True, sql=COUNT, amount="0.45").text
    refused = asked.post("/ask/run", sql=COUNT, amount="0.45")
    assert refused.status_code == 403
    assert "Ask the owner" in refused.text
    decided = asked.post(f"/approvals/{number}", "owner", decision="approve", why="fine")
    assert decided.headers["location"] == f"/approvals#request-{number}"
    assert "The owner: fine" in asked.get("/approvals").text
    assert asked.charges == before
    assert asked.post("/ask/run", sql=COUNT, amount="0.45").status_code == 200
    assert asked.charges == before + 1
    assert asked.post(f"/approvals/{number}", "owner", decision="refuse").status_code == 409
    assert asked.post(f"/approvals/{number}", "owner", decision="both").status_code == 422
    assert asked.post("/approvals/unknown", "owner", decision="refuse").status_code == 404


def test_more_budget_shows_up(asked):
    asked.post("/budget/request", "bob", amount="1", why="more")
    number = next(
        request.number for request in asked.curator.requests() if request.analyst == "bob" and request.why == "more"
    )
    part = asked.post(f"/approvals/{number}", "owner", partly=True, decision="approve")
    assert 'class="tag approved"' in part.text
    assert ">1.5</td>" in asked.get("/budget", "bob").text
    assert "bob: ε + 1" in asked.get("/ledger", "owner").text


def test_the_ledger_is_verified_with_and_without_a_script(asked, monkeypatch):
    part = asked.post("/ledger/verify", "owner", partly=True)
    whole = asked.post("/ledger/verify", "owner")
    for page in (part, whole):
        assert "entries hold together" in page.text
    assert asked.number in whole.text
    assert asked.get("/ledger?before=3", "owner").text.count('data-label="Entry">') == 2
    for before in ("x", "-1", "1e3", "9" * 30, "٣"):
        assert asked.get("/ledger", "owner", params={"before": before}).status_code == 422


def test_a_chart_of_another_kind_as_a_part_and_as_a_page(asked):
    # names have no places on a line: they get dots, and the page says so
    for kind, drawn, mark in (("bar", "bar", "<rect"), ("dot", "dot", "<circle"), ("line", "dot", "<circle")):
        part = asked.get(f"/answers/{asked.number}/chart?kind={kind}", headers=HTMX).text
        assert mark in part
        assert re.search(rf'id="draw-{drawn}" aria-current="true"', part)
        whole = asked.get(f"/answers/{asked.number}/chart?kind={kind}").text
        assert whole.startswith("<!doctype html>")
        assert mark in whole
    assert asked.get(f"/answers/{asked.number}/chart?kind=pie").status_code == 422


def test_downloads(asked):
    before = asked.charges
    answer = asked.curator.answer(asked.number, analyst="ana")
    got = {form: asked.get(f"/answers/{asked.number}/download?form={form}") for form in ("csv", "arrow", "ipynb")}
    for form, reply in got.items():
        assert reply.headers["content-disposition"] == f'attachment; filename="answer-{asked.number}.{form}"'
        assert reply.headers["cache-control"] == "no-store"
        assert "default-src 'none'" in reply.headers["content-security-policy"]
    assert (
        pa_csv.read_csv(io.BytesIO(got["csv"].content)).column("n").to_pylist() == answer.table.column("n").to_pylist()
    )
    assert pa_ipc.open_stream(got["arrow"].content).read_all().to_pylist() == answer.table.to_pylist()
    book = json.loads(got["ipynb"].content)
    assert (book["nbformat"], len({cell["id"] for cell in book["cells"]})) == (4, len(book["cells"]))
    assert "http://shop" in book["cells"][1]["source"]
    assert asked.number in book["cells"][1]["source"]
    for form in ("", "pdf", "csv\r\nX-Evil: 1", "../csv"):
        refused = asked.get(f"/answers/{asked.number}/download", params={"form": form})
        assert refused.status_code == 422
        assert "x-evil" not in refused.headers
    for number in ("x\r\nX-Evil: 1", "é", "a/b", '";x=', "☃"):
        refused = asked.get(f"/answers/{quote(number)}/download?form=csv")
        assert refused.status_code == 404
        assert "x-evil" not in refused.headers
    assert asked.charges == before


def test_a_search_with_and_without_a_script(fresh):
    assert "Nothing was asked yet" in fresh.get("/answers").text
    fresh.ask(COUNT)
    fresh.ask(CITIES)
    for headers in (None, HTMX):
        assert fresh.get("/answers", headers=headers).text.count("<article") == 2
        found = fresh.get("/answers?search=CITY", headers=headers).text
        assert found.count("<article") == 1
        assert "GROUP BY city" in found
        assert "No question holds “zzz”" in fresh.get("/answers?search=zzz", headers=headers).text


def test_many_answers_have_pages(fresh):
    for place in range(26):
        fresh.curator.sql(COUNT, epsilon=f"0.0{100 + place}", analyst="bob")
    first = fresh.get("/answers", "bob").text
    assert first.count("<article") == 25
    older = re.search(r'href="(/answers\?[^"]*before=[^"]*)">Older', first).group(1).replace("&amp;", "&")
    assert fresh.get(older, "bob").text.count("<article") == 1


def test_an_answer_with_very_many_rows_is_cut_on_the_page_alone(tmp_path):
    keys = ", ".join(f'"key number {i:04d}"' for i in range(700))
    known = 'product = { type = "text", in = [' + keys + "] }"
    with open_site(tmp_path, change=lambda text: text.replace('product = { type = "text" }', known)) as site:
        sql = "SELECT product, COUNT(*) AS n FROM orders GROUP BY product"
        page = site.post("/ask/run", partly=True, sql=sql, amount="1")
        assert page.text.count("<tr>") == 501
        assert "700 rows, of which the first 500 are shown: download the answer to read all" in page.text
        assert len(page.content) < 400_000
        number = re.search(r"/answers/([0-9a-f]+)", page.text).group(1)
        assert site.get(f"/answers/{number}/download?form=csv").text.count("\n") == 701
        assert "700 keys" in site.get("/ask").text
        assert "and 670 more" in site.get("/data").text


# ---------------------------------------------------------------------- odd input


ODD_AMOUNTS = ["abc", "-1", "0", "nan", "inf", "1e999", "0x1", "1/0", "1" * 5000, "1e9999999", "\0", "0.1\n0.2", "ε"]


@pytest.mark.parametrize("mode", ["epsilon", "error"])
def test_an_odd_amount_is_refused_free_of_charge(asked, mode):
    before = asked.state
    for amount in ODD_AMOUNTS:
        for partly in (True, False):
            page = asked.post("/ask/run", partly=partly, sql=COUNT, amount=amount, mode=mode)
            assert 'class="refused"' in page.text, amount
            assert page.status_code in ((200,) if partly else (400, 402, 422))
            assert "something went wrong" not in page.text
            wish = asked.post("/budget/request", partly=partly, amount=amount, why="why")
            assert 'class="refused"' in wish.text
            assert "something went wrong" not in wish.text
    assert asked.state == before


@pytest.mark.parametrize(
    "sql",
    [
        "x" * 900_000,
        "SELECT " + "(" * 5000,
        "\0",
        "SELECT '\0' FROM orders",
        "\ufeff" + COUNT,
        "\u202e",
        "-- \r only",
        "/*",
        "'",
        "\n\n\n",
        ";;;",
        "é" * 10_000,
    ],
)
def test_an_odd_question_gets_a_page(asked, sql):
    before = asked.charges
    for path in ("/ask/price", "/ask/run"):
        for partly in (True, False):
            page = asked.post(path, partly=partly, sql=sql, amount="0.1")
            assert page.status_code in (200, 400, 413)
            assert "something went wrong" not in page.text
    assert asked.charges == before


def test_odd_bodies_are_no_forms(asked):
    before = asked.charges
    own = {"Content-Type": "application/x-www-form-urlencoded", "X-CSRF": asked.csrf["ana"]}
    many = "&".join(f"f{i}=1" for i in range(60)).encode()
    for body in (b"", b"sql=%ff%fe", b"sql=\xff", b"sql=%ED%A0%80", many, b"=&=&&", b"%" * 1000):
        page = asked.send("POST", "/ask/run", "ana", content=body, headers=own)
        assert page.status_code in (200, 400, 422)
        assert "something went wrong" not in page.text
    assert asked.charges == before
    large = asked.send("POST", "/ask/run", "ana", content=b"sql=" + b"x" * 1_100_000, headers=own)
    assert large.status_code == 413
    assert "nothing was charged" in large.text.lower()
    for kind in ("application/json", "multipart/form-data; boundary=x", "text/plain", ""):
        page = asked.send("POST", "/ask/run", "ana", content=b"sql=SELECT", headers={**own, "Content-Type": kind})
        assert page.status_code in (200, 400, 422)


def test_a_field_twice_counts_once(fresh):
    twice = [("csrf", fresh.csrf["ana"]), ("sql", CITIES), ("sql", COUNT), ("amount", "0.1"), ("agreed", "ε = 0.1")]
    body = urlencode(twice).encode()
    own = {"Content-Type": "application/x-www-form-urlencoded"}
    fresh.send("POST", "/ask/run", "ana", content=body, headers=own)
    assert [past.sql for past in fresh.curator.answers("ana").items] == [COUNT]


def test_a_text_comes_back_as_it_was_sent(asked):
    sql = "\n\n  SELECT COUNT(*) AS n\n\tFROM orders & more </textarea> "
    page = asked.post("/ask/price", sql=sql, amount="0.1").text
    shown = re.search(r"<textarea[^>]*>(.*?)</textarea>", page, re.DOTALL).group(1)
    # a browser drops the first line break in a textarea
    assert shown == "\n" + sql.replace("&", "&amp;").replace("</textarea>", "&lt;/textarea&gt;")


@pytest.mark.parametrize(
    "address",
    [
        "/ask?sql=%00",
        "/ask?sql=%ff",
        "/answers?search=%00",
        "/answers?before=%00",
        "/static/../pages.py",
        "/static/%2e%2e/pages.py",
        "/static/pages.py",
        "/answers/%00",
    ],
)
def test_odd_addresses(asked, address):
    page = asked.get(address)
    assert page.status_code in (200, 404, 422)
    assert "APIRouter" not in page.text


def test_redirects_lead_to_this_site_alone(asked):
    for extra in ("?next=https://elsewhere.example", "?return=//elsewhere.example", "?url=/\\elsewhere"):
        made = asked.send(
            "POST", f"/sign-in{extra}", data={"token": asked.tokens["ana"], "next": "https://elsewhere.example"}
        )
        assert made.headers["location"] == "/ask"
        assert asked.get(f"/{extra}").headers["location"] == "/ask"


def test_static_files_are_ours_and_may_be_kept(asked):
    for name, kind in STATIC.items():
        reply = asked.send("GET", f"/static/{name}")
        assert reply.status_code == 200
        assert reply.headers["content-type"].startswith(kind)
        assert reply.headers["x-content-type-options"] == "nosniff"
        again = asked.send("GET", f"/static/{name}", headers={"If-None-Match": reply.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    assert static_file("../pages.py") is None
    page = asked.get("/ask").text
    used = set(re.findall(r'(?:src|href)="/static/([^"]+)"', page))
    assert used == set(STATIC)
