"""Who may come in at the web page, who sees what, and that no other site can act for them."""

import re
from urllib.parse import urlencode

import pytest

from dither.server.auth.identity import Scope
from dither.server.auth.tokens import TokenFile
from support import web_site

CITIES = web_site.CITIES
COUNT = web_site.COUNT
FORMS = web_site.FORMS
HOSTILE = web_site.HOSTILE
HTMX = web_site.HTMX
PAGES = web_site.PAGES
PEOPLE = web_site.PEOPLE
Markup = web_site.Markup
Site = web_site.Site
open_asked = web_site.open_asked
open_site = web_site.open_site


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    with open_asked(tmp_path_factory.mktemp("asked")) as made:
        yield made


# ---------------------------------------------------------------------- signing in and out


def test_signing_in_and_out(asked):
    assert asked.send("GET", "/").headers["location"] == "/sign-in"
    page = asked.send("GET", "/sign-in")
    assert page.status_code == 200
    assert 'type="password"' in page.text
    come = asked.send("POST", "/sign-in", data={"token": f" {asked.tokens['ana']} "})
    assert (come.status_code, come.headers["location"]) == (303, "/ask")
    asked.cookies["fresh"] = come.cookies["dither_session"]
    assert asked.get("/", "fresh").headers["location"] == "/ask"
    page = asked.get("/ask", "fresh")
    assert page.status_code == 200
    asked.csrf["fresh"] = re.search(r'name="csrf" value="([0-9a-f]+)"', page.text).group(1)
    gone = asked.post("/sign-out", "fresh")
    assert (gone.status_code, gone.headers["location"]) == (303, "/sign-in")
    assert 'dither_session=""' in gone.headers["set-cookie"]
    assert asked.get("/ask", "fresh").headers["location"] == "/sign-in"
    # of another sign-in of the same person nothing changed
    assert asked.get("/ask", "ana").status_code == 200


@pytest.mark.parametrize("token", ["", "x", "dither_" + "A" * 43, "x" * 100_000, "\0", "ä", "' OR 1=1 --", HOSTILE])
def test_a_wrong_token_gets_no_session(asked, token):
    refused = asked.send("POST", "/sign-in", data={"token": token})
    assert refused.status_code == 401
    assert "set-cookie" not in refused.headers
    assert "unknown or has expired" in refused.text
    assert len(token) < 4 or token not in refused.text


def test_a_token_that_was_revoked_or_expired_ends_its_sessions(tmp_path, asked):
    now = [1000.0]
    with TokenFile.open(tmp_path / "clocked.access", clock=lambda: now[0]) as access:
        made = {who: access.create(who, Scope.ASK, days=days) for who, days in (("ana", 1 / 24), ("bob", 1))}
        before, site = asked.charges, Site(asked.service, access, {who: secret for who, (_, secret) in made.items()})
        assert [site.get("/ask", who).status_code for who in ("ana", "bob")] == [200, 200]
        access.revoke(made["bob"][0].number)
        assert [site.get("/ask", who).status_code for who in ("ana", "bob")] == [200, 303]
        now[0] += 3601
        assert site.get("/ask", "ana").status_code == 303
        assert site.post("/ask/run", "ana", sql=COUNT, amount="0.1").headers["location"] == "/sign-in"
        for who in ("ana", "bob"):
            assert site.send("POST", "/sign-in", data={"token": made[who][1]}).status_code == 401
    assert asked.charges == before


@pytest.mark.parametrize("secure", [False, True])
def test_the_cookie_stays_with_the_browser_and_this_host(asked, secure):
    site = Site(asked.service, asked.access, asked.tokens, secure_cookies=secure)
    cookie = site.send("POST", "/sign-in", data={"token": asked.tokens["ana"]}).headers["set-cookie"]
    flags = {part.strip().lower() for part in cookie.split(";")[1:]}
    assert {"httponly", "samesite=strict", "path=/"} <= flags
    assert ("secure" in flags) == secure
    assert not any(flag.startswith("domain") for flag in flags)
    assert cookie.startswith("__Host-" if secure else "dither_session=")
    assert site.get("/ask").status_code == 200


def test_signing_in_never_keeps_the_cookie_that_was_there(asked):
    """A cookie that somebody planted, or the session of whoever sat here before, isn't carried on."""
    earlier = asked.enter("earlier", asked.tokens["ana"])
    planted = {"Cookie": f"dither_session={asked.cookies[earlier]}"}
    made = asked.send("POST", "/sign-in", data={"token": asked.tokens["bob"]}, headers=planted)
    assert made.cookies["dither_session"] != asked.cookies[earlier]
    assert asked.get("/ask", earlier).headers["location"] == "/sign-in"


@pytest.mark.parametrize("headers", [{"Origin": "https://elsewhere.example"}, {"Sec-Fetch-Site": "cross-site"}])
def test_another_site_signs_nobody_in_or_out(asked, headers):
    refused = asked.send("POST", "/sign-in", data={"token": asked.tokens["ana"]}, headers=headers)
    assert refused.status_code == 401
    kept = asked.send("POST", "/sign-out", "ana", data={"csrf": asked.csrf["ana"]}, headers=headers)
    assert "set-cookie" not in kept.headers
    assert "set-cookie" not in asked.send("POST", "/sign-out", "ana", data={}).headers
    assert asked.get("/ask", "ana").status_code == 200


# ---------------------------------------------------------------------- forms of others


@pytest.mark.parametrize("path", FORMS)
def test_a_form_that_is_not_of_this_session_changes_nothing(asked, path):
    fields, allowed = FORMS[path]
    who = allowed[-1]
    other = "bob" if who != "bob" else "ana"
    place, right = path.format(request=asked.request), {**fields, "csrf": asked.csrf[who]}
    before = asked.state
    tried = [
        ({}, fields),
        ({}, {**fields, "csrf": ""}),
        ({}, {**fields, "csrf": asked.csrf[other]}),
        ({"X-CSRF": asked.csrf[other]}, right),
        ({"X-CSRF": "ä"}, fields),
        ({"Origin": "https://elsewhere.example"}, right),
        ({"Origin": "null"}, right),
        ({"Origin": "http://["}, right),
        ({"Origin": "http://shop.elsewhere.example"}, right),
        ({"Sec-Fetch-Site": "cross-site"}, right),
        ({"Sec-Fetch-Site": "same-site"}, right),
        ({"Content-Type": "text/plain"}, right),
        ({"Content-Type": "application/json"}, right),
    ]
    for headers, sent in tried:
        raw = {name.encode(): value.encode() for name, value in headers.items()}
        sent_as = {b"Content-Type": b"application/x-www-form-urlencoded", **raw}
        refused = asked.send("POST", place, who, content=urlencode(sent).encode(), headers=sent_as)
        assert refused.status_code == 403, headers
        assert "nothing was charged" in refused.text
    assert asked.state == before
    # the same form of this session's own page is taken
    assert asked.send("POST", place, who, data=right, headers={"Origin": "http://shop"}).status_code in (200, 303, 400)


@pytest.mark.parametrize("path", FORMS)
def test_a_form_without_a_session_leads_to_the_sign_in(asked, path):
    before = asked.state
    fields, _ = FORMS[path]
    place = path.format(request=asked.request)
    whole = asked.send("POST", place, data={**fields, "csrf": asked.csrf["ana"]})
    assert (whole.status_code, whole.headers["location"]) == (303, "/sign-in")
    part = asked.send("POST", place, data=fields, headers={**HTMX, "Cookie": "dither_session=" + "x" * 43})
    assert (part.status_code, part.headers["hx-redirect"], part.text) == (200, "/sign-in", "")
    assert asked.state == before


# ---------------------------------------------------------------------- who may do what


@pytest.mark.parametrize("who", PEOPLE)
def test_each_page_is_for_those_who_may_see_it(asked, who):
    for path, allowed in PAGES.items():
        page = asked.get(path, who)
        assert (page.status_code, path) == (200 if who in allowed else 403, path)
        part = asked.get(path, who, headers=HTMX)
        assert ('class="refused"' in part.text) == (who not in allowed)
    links = {attributes.get("href") for tag, attributes in Markup(asked.get("/ask", who).text).tags if tag == "a"}
    assert links & set(PAGES) == {path for path, allowed in PAGES.items() if who in allowed}


@pytest.mark.parametrize("who", PEOPLE)
@pytest.mark.parametrize("path", FORMS)
def test_each_form_is_for_those_whose_token_allows_it(asked, path, who):
    fields, allowed = FORMS[path]
    before = asked.state
    reply = asked.post(path.format(request=asked.request), who, **fields)
    if who in allowed:
        assert reply.status_code in (200, 303)
    else:
        assert reply.status_code in (400, 403)
        assert asked.state == before


@pytest.mark.parametrize(
    "path", ["", "/chart?kind=dot", "/download?form=csv", "/download?form=arrow", "/download?form=ipynb"]
)
def test_the_answer_of_another_is_like_no_answer_at_all(asked, path):
    for who in ("ana", "owner"):
        assert asked.get(f"/answers/{asked.number}{path}", who).status_code == 200
    theirs, none = (asked.get(f"/answers/{number}{path}", "bob") for number in (asked.number, "0" * len(asked.number)))
    assert (theirs.status_code, theirs.content) == (none.status_code, none.content) == (404, none.content)
    assert dict(theirs.headers) == dict(none.headers)
    assert asked.get(f"/answers/{asked.number}{path}", "looker").status_code == 403
    assert asked.get(f"/answers?before={asked.number}", "bob").status_code == 404


def test_nobody_sees_what_others_asked(asked):
    asked.ask(COUNT, "bob")
    for path in PAGES:
        for who in ("bob", "looker"):
            text = asked.get(path, who).text
            assert "GROUP BY city ORDER BY city" not in text
            assert "more months" not in text
            assert asked.number not in text
            assert re.search(r"\bana\b", text) is None
    assert 'data-label="Account">ana</td>' in asked.get("/budget", "owner").text
    assert "more months" in asked.get("/approvals", "owner").text
    assert asked.number in asked.get("/ledger", "owner").text
    assert "bob" not in asked.get("/budget", "ana").text


def test_a_price_token_of_somebody_reads_none_of_their_answers(asked):
    asked.enter("peek", asked.access.create("ana", Scope.PRICE)[1])
    before = asked.charges
    for path in ("/answers", f"/answers/{asked.number}", f"/answers/{asked.number}/download?form=csv", "/approvals"):
        assert asked.get(path, "peek").status_code == 403
    assert "latest one" in asked.get("/budget", "ana").text
    assert "latest one" not in asked.get("/budget", "peek").text
    refused = asked.post("/ask/run", "peek", sql=CITIES, amount="0.1")
    assert refused.status_code == 403
    assert asked.charges == before


def test_shared_answers_are_read_without_names(tmp_path):
    with open_site(tmp_path, more="share_answers = true") as site:
        number = site.ask(CITIES)
        text = site.get("/answers", "bob").text
        assert "another analyst" in text
        assert "ana ·" not in text
        shown = site.get(f"/answers/{number}", "bob")
        assert shown.status_code == 200
        assert re.search(r"\bana\b", shown.text) is None
        assert site.charges == 1
