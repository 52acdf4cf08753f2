"""Somebody at the web page without a browser, and what a page is made of; for the tests of the page."""

import asyncio
import html
import re
from contextlib import contextmanager
from html.parser import HTMLParser

import httpx

from dither.curator import Curator
from dither.ledger import EntryKind
from dither.policy import Policy
from dither.server.app import make_app
from dither.server.auth.identity import Scope
from dither.server.auth.tokens import TokenFile
from dither.server.run import access_path
from dither.server.service import Service
from support.shop import ROOMY, make_shop

COUNT = "SELECT COUNT(*) AS n FROM orders"
CITIES = "SELECT city, COUNT(*) AS n FROM orders GROUP BY city ORDER BY city"
PEOPLE = ("ana", "bob", "looker", "owner")
HTMX = {"HX-Request": "true"}
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{ 7 * 7 }}"
# every page, and who may see it
PAGES = {
    "/ask": PEOPLE,
    "/answers": ("ana", "bob", "owner"),
    "/budget": PEOPLE,
    "/data": PEOPLE,
    "/approvals": ("ana", "bob", "owner"),
    "/ledger": ("owner",),
}
# every form, what it sends, and whose token allows it
FORMS = {
    "/ask/price": ({"sql": COUNT, "amount": "0.1"}, PEOPLE),
    "/ask/run": ({"sql": COUNT, "amount": "0.1", "agreed": "ε = 0.1"}, ("ana", "bob", "owner")),
    "/ask/request": ({"sql": COUNT, "amount": "0.4", "why": "because"}, ("ana", "bob")),
    "/budget/request": ({"amount": "0.1", "why": "because"}, ("ana", "bob")),
    "/ledger/verify": ({}, ("owner",)),
    "/approvals/{request}": ({"decision": "refuse"}, ("owner",)),
}


def _bytes(text):
    return text if isinstance(text, bytes) else text.encode()


class Site:
    """The app, and somebody signed in at it under each name."""

    def __init__(self, service, access, tokens, **options):
        self.app, self.curator, self.access = make_app(service, access, **options), service.curator, access
        self.secure = options.get("secure_cookies", False)
        self.name = "__Host-dither_session" if self.secure else "dither_session"
        made = {who: access.sign_in(token) for who, token in tokens.items()}
        self.cookies = {who: cookie for who, (cookie, _) in made.items()}
        self.csrf = {who: session.csrf for who, (_, session) in made.items()}

    def send(self, method, path, who=None, *, headers=None, **more):
        sent = {_bytes(name): _bytes(value) for name, value in (headers or {}).items()}
        if who is not None:
            sent[b"Cookie"] = f"{self.name}={self.cookies[who]}".encode()
        base = "https://shop" if self.secure else "http://shop"

        async def answered():
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url=base) as client:
                return await client.request(method, path, headers=sent, **more)

        return asyncio.run(answered())

    def get(self, path, who="ana", **more):
        return self.send("GET", path, who, **more)

    def post(self, path, who="ana", *, partly=False, **fields):
        """Send a form; one that runs a question sends the price that its button states, as the page does."""
        data = {"csrf": self.csrf[who], **fields}
        if path == "/ask/run" and "agreed" not in fields:
            data |= self.agreed(who, fields)
        return self.send("POST", path, who, data=data, headers=HTMX if partly else None)

    def agreed(self, who, fields):
        """What the part of the form with the price holds, for these fields."""
        priced = self.send("POST", "/ask/price", who, data={"csrf": self.csrf[who], **fields}, headers=HTMX)
        found = re.search(r'name="agreed" value="([^"]*)"', priced.text)
        return {} if found is None else {"agreed": html.unescape(found.group(1))}

    def ask(self, sql=COUNT, who="ana", amount="0.1"):
        """Ask on the page; the receipt's number."""
        found = self.post("/ask/run", who, sql=sql, amount=amount, partly=True)
        return re.search(r"receipt <a href=\"/answers/([0-9a-f]+)\"", found.text).group(1)

    def enter(self, name, token):
        """Sign in once more, under a name of this test's own."""
        self.cookies[name], session = self.access.sign_in(token)
        self.csrf[name] = session.csrf
        return name

    @property
    def charges(self):
        return sum(1 for entry in self.curator.ledger.entries() if entry.kind in (EntryKind.RESERVE, EntryKind.CHARGE))

    @property
    def state(self):
        """Everything that a form could have changed."""
        return self.charges, self.curator.requests(), self.curator.budget()


class Markup(HTMLParser):
    """Collects what a strict page must not have, what it loads, and how it is built."""

    def __init__(self, text):
        super().__init__()
        self.bad, self.loads, self.ids, self.heads, self.tags = [], [], [], [], []
        self.controls, self.labels, self.references, self.script = [], [], [], False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, given):
        attributes = dict(given)
        self.tags.append((tag, attributes))
        self.script = tag == "script"
        for name, value in given:
            if name.startswith(("on", "hx-on")) or name in ("style", "srcdoc", "hx-vals"):
                self.bad.append((tag, name))
            if (value or "").strip().lower().startswith(("javascript:", "data:")):
                self.bad.append((tag, value))
        if tag in ("style", "iframe", "object", "embed", "base") or (tag == "script" and "src" not in attributes):
            self.bad.append((tag, "inline"))
        self.loads += [
            attributes[name] for name in ("src", "action", "formaction", "hx-get", "hx-post") if name in attributes
        ]
        if tag in ("link", "a", "use", "image"):
            self.loads.append(attributes.get("href", "/"))
        if "id" in attributes:
            self.ids.append(attributes["id"])
        if re.fullmatch("h[1-6]", tag):
            self.heads.append(int(tag[1]))
        if tag in ("input", "textarea") and attributes.get("type") != "hidden":
            self.controls.append(attributes)
        if tag == "label":
            self.labels.append(attributes.get("for"))
        self.references += [attributes[name] for name in ("aria-labelledby", "aria-describedby") if name in attributes]

    def handle_data(self, data):
        if self.script and data.strip():
            self.bad.append(("script", data))
        self.script = False


@contextmanager
def open_site(directory, *, change=None, **shop):
    """A shop with tokens for everybody, and its site; ``change`` rewrites the policy's text."""
    policy = make_shop(directory, **shop)
    if change is not None:
        policy.write_text(change(policy.read_text("utf-8")), "utf-8")
    scopes = {"ana": Scope.ASK, "bob": Scope.ASK, "looker": Scope.PRICE, "owner": Scope.OWNER}
    with Curator.open(policy) as curator, TokenFile.open(access_path(Policy.load(policy))) as access:
        tokens = {name: access.create(name, scope)[1] for name, scope in scopes.items()}
        service = Service(curator, ROOMY)
        try:
            made = Site(service, access, tokens)
            made.tokens, made.service, made.directory = tokens, service, directory
            yield made
        finally:
            service.close()


@contextmanager
def open_asked(directory):
    """A site where prices above 0.3 need approval, with an answer of ana's and a request of hers."""
    with open_site(directory, more="needs_approval_above = 0.3") as made:
        made.number = made.ask(CITIES)
        made.request = made.curator.request_budget("ana", epsilon=1, why="more months").number
        yield made


def pages_of(site, who):
    """Every page and part that this person can get, whole and in part."""
    found = [site.send("GET", "/sign-in")]
    for path in (*PAGES, f"/answers/{site.number}", f"/answers/{site.number}/chart?kind=dot", "/answers?search=zzz"):
        found += [site.get(path, who), site.get(path, who, headers=HTMX)]
    for path, (fields, _) in FORMS.items():
        for partly in (False, True):
            found.append(site.post(path.format(request=site.request), who, partly=partly, **fields))
    for sql in (
        "SELECT city FROM orders",
        "SELECT",
        CITIES,
        "SELECT product, AVG(amount) AS a FROM orders GROUP BY product",
    ):
        for partly in (False, True):
            for path in ("/ask/price", "/ask/run"):
                found.append(site.post(path, who, partly=partly, sql=sql, amount="0.1"))
    return [page for page in found if page.status_code != 303]
