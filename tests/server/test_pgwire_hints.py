"""What a client is told to do: in settings of its session, never in arguments of Python; and what SHOW says of them."""

import math
import re
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from dither.curator import Curator
from dither.server.auth.identity import Scope
from dither.server.auth.tokens import TokenFile
from dither.server.pgwire.protocol.errors import HowAsked, hint_of
from dither.server.pgwire.session.questions import shown_epsilon
from support import raw_client as raw

COUNT = "SELECT COUNT(*) AS n FROM orders"
# an argument of Python, or the bare word where a setting is meant
PYTHON = re.compile(r"\bepsilon=|\berror=|(?<!dp\.)\bepsilon\b|[Gg]ive error|[Aa]sk with")


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The shop without a default ε; bob's questions need approval above 0.3, and eve came after the server began."""
    directory = tmp_path_factory.mktemp("hints")
    path = raw.make_shop(directory)
    text = path.read_text(encoding="utf-8").replace("default_epsilon = 0.1\n", "")
    text = text.replace("[analysts.bob]\n", "[analysts.bob]\nneeds_approval_above = 0.3\nmax_epsilon_per_query = 0.4\n")
    path.write_text(text, encoding="utf-8")
    with Curator.open(path) as curator, TokenFile.open(directory / "shop.access") as access:
        tokens = {name: access.create(name, Scope.ASK)[1] for name in ("ana", "bob", "eve")}
        service = raw.CountingService(curator)
        try:
            with raw.serving(service, access) as server:
                server.tokens = tokens
                yield server
        finally:
            service.close()


@pytest.fixture
def sign_in(served):
    clients = []

    def signed_in(name):
        clients.append(raw.RawClient(served.port))
        return clients[-1].sign_in(name, served.tokens[name])

    yield signed_in
    for client in clients:
        client.socket.close()


@pytest.mark.parametrize(
    ("who", "settings", "sql", "code", "hint"),
    [
        ("ana", "", COUNT, "epsilon_missing", "SET dp.epsilon = 0.1 (at most 1), or SET dp.error = 50 for an error; "),
        ("bob", "", COUNT, "epsilon_missing", "SET dp.epsilon = 0.1 (at most 0.4), or "),
        ("ana", "SET dp.epsilon = 1.5", COUNT, "epsilon_too_large", "SET dp.epsilon = 1 or less."),
        ("bob", "SET dp.epsilon = 1.5", COUNT, "epsilon_too_large", "SET dp.epsilon = 0.4 or less."),
        ("ana", "SET dp.error = 1", COUNT, "epsilon_too_large", "SET dp.error to a larger error, or ask for fewer"),
        ("ana", "SET dp.epsilon = 1e-13", COUNT, "epsilon_too_small", "SET dp.epsilon to more."),
        ("ana", "SET dp.error = 'x=1'", COUNT, "error_unknown", "SET dp.epsilon = 0.1 instead. "),
        ("ana", "SET dp.error = 1", "SELECT AVG(amount) AS n FROM orders", "error_unknown", "SET dp.epsilon = 0.1 in"),
        ("ana", "SET dp.epsilon = 0.1; SET dp.weights = 'x=1'", COUNT, "unknown_weight", "Write SET dp.weights = "),
        (
            "bob",
            "SET dp.epsilon = 0.35",
            COUNT,
            "needs_approval",
            "Send it to the owner from the web page",
        ),
        (
            "eve",
            "SET dp.epsilon = 0.1",
            COUNT,
            "unknown_analyst",
            "The owner of the data adds a section ",
        ),
    ],
)
def test_hints_speak_of_settings(sign_in, who, settings, sql, code, hint):
    client = sign_in(who)
    if settings:
        assert not raw.errors(client.simple(settings))
    (error,) = raw.errors(client.simple(sql))
    assert f"short name is {code}." in error["D"]
    assert error["H"].startswith(hint)
    assert not PYTHON.search(error["H"])
    # the same where a client only prepares it
    client.send(raw.parse(sql), raw.SYNC)
    if code != "needs_approval":
        assert raw.errors(client.until())[0]["H"] == error["H"]


def test_what_others_prepared_doesnt_show(sign_in):
    """Whether a question is refused must not depend on whether somebody else has asked about it."""
    ana, bob, asked = sign_in("ana"), sign_in("bob"), f"{COUNT} WHERE amount < 17"
    ana.simple("SET dp.epsilon = 0.1")
    ana.send(raw.parse(asked), raw.SYNC)
    assert not raw.errors(ana.until())
    bob.send(raw.parse(asked), raw.SYNC)
    assert "epsilon_missing" in raw.errors(bob.until())[0]["D"]


def test_other_hints_stay_as_they_are(sign_in):
    (error,) = raw.errors(sign_in("ana").simple("SET dp.epsilon = 0.1; SELECT customer FROM orders"))
    assert error["H"].startswith("Ask for aggregates")


def test_a_name_that_the_policy_doesnt_have_yet_is_told_that_the_server_must_start_again(sign_in):
    client = sign_in("eve")
    for sql in ("SHOW dp.budget", COUNT):
        (error,) = raw.errors(client.simple(sql))
        assert (error["C"], "starts the server again" in error["H"]) == ("42501", True)
    assert raw.rows(client.simple("SHOW dp.epsilon")) == [[b"not set"]]


def test_every_hint_of_this_protocol_names_a_setting_or_the_owner():
    codes = ["epsilon_missing", "epsilon_too_large", "epsilon_too_small", "budget_too_small", "error_unknown"]
    codes += ["error_unreachable", "unknown_weight", "needs_approval", "unknown_analyst"]
    for code in codes:
        for asking in (HowAsked(), HowAsked(for_error=True), HowAsked(most=Fraction(1, 20))):
            hint = hint_of(code, asking)
            assert re.search(r"SET dp\.(epsilon|error|weights)|owner", hint)
            assert not PYTHON.search(hint)
    # no example is more than may be spent
    assert hint_of("epsilon_missing", HowAsked(most=Fraction(1, 20))).startswith("SET dp.epsilon = 0.05 (at most 0.05)")


# ---------------------------------------------------------------------- SHOW


def test_show_says_in_words_what_isnt_set(sign_in):
    client = sign_in("ana")
    shown = raw.rows(client.simple("SHOW dp.epsilon; SHOW dp.error; SHOW dp.weights; SHOW dp.confidence"))
    assert shown == [[b"not set"], [b"not set"], [b"not set"], [b"0.95"]]
    # what is shown can be set
    assert not raw.errors(client.simple("SET dp.epsilon = 0.2; SET dp.epsilon = 'not set'"))
    assert raw.rows(client.simple("SHOW dp.epsilon")) == [[b"not set"]]


def test_show_says_which_default_applies(tmp_path):
    path = raw.make_shop(tmp_path)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("[analysts.bob]\n", "[analysts.bob]\nmax_epsilon_per_query = 0.05\n"))
    with Curator.open(path) as curator, TokenFile.open(tmp_path / "shop.access") as access:
        service = raw.CountingService(curator)
        try:
            with raw.serving(service, access) as server:
                for name, applies in (("ana", b"0.1"), ("bob", b"0.05")):
                    with raw.RawClient(server.port) as client:
                        client.sign_in(name, access.create(name, Scope.ASK)[1])
                        assert raw.rows(client.simple("SHOW dp.epsilon")) == [[applies]]
                        found = client.simple(f"EXPLAIN PRIVACY {COUNT}")
                        place = [column[0] for column in raw.columns(found)].index("epsilon")
                        assert raw.rows(found)[0][place] == applies
                        client.simple("SET dp.error = 500")
                        assert raw.rows(client.simple("SHOW dp.epsilon; SHOW dp.error")) == [[b"not set"], [b"500"]]
        finally:
            service.close()


# ---------------------------------------------------------------------- EXPLAIN PRIVACY


@pytest.mark.parametrize("asked", ["0.05", "0.1", "0.3", "0.12345", "0.999"])
def test_explain_shows_the_epsilon_that_was_asked_for(sign_in, asked):
    client = sign_in("ana")
    client.simple(f"SET dp.epsilon = {asked}")
    found = client.simple(f"EXPLAIN PRIVACY {COUNT}")
    place = [column[0] for column in raw.columns(found)].index("epsilon")
    assert [row[place].decode() for row in raw.rows(found)] == [asked]


@given(st.floats(1e-9, 100))
def test_a_shown_epsilon_is_rounded_up_and_by_little(epsilon):
    shown = shown_epsilon(epsilon)
    assert shown == float(f"{shown:.9g}")
    assert epsilon * (1 - 2**-52) <= shown <= epsilon * (1 + 1e-8)


@given(st.decimals("0.000001", "10", places=6))
def test_an_epsilon_of_few_digits_is_shown_as_it_is(asked):
    exact = Fraction(asked)
    up = float(exact)
    while Fraction(up) < exact:
        up = math.nextafter(up, 11)
    assert shown_epsilon(up) == float(asked)
    assert shown_epsilon(up * (1 - 1e-13)) == float(asked)
