"""``dither serve`` and ``dither token``: what is printed can be pasted, and mistakes are told before it starts."""

import re
import shlex
import signal
import socket
from contextlib import closing

import pytest

from dither.server.auth.identity import Scope
from dither.server.auth.tokens import TokenFile

SECRET = re.compile(r"dither_[A-Za-z0-9_-]{43}")


def create(run, *arguments):
    """A token that was made: its secret and its number."""
    said = run("token", "create", *arguments)
    assert said.status == 0, said.err
    return said.out.strip(), re.search(r"number (\w+)", said.err)[1]


def states(run):
    """The state of each token, by its number."""
    lines = run("token", "list").out.splitlines()[1:]
    return {line.split()[0]: re.search(r"\b(valid|revoked|expired)\b", line)[1] for line in lines}


def read_until(stream, beginning):
    """The lines up to one with this beginning."""
    lines = []
    for line in stream:
        lines.append(line.rstrip("\n"))
        if line.startswith(beginning):
            return lines
    raise AssertionError(f"{beginning!r} was never said: {lines}")


@pytest.mark.parametrize("command", [["serve"], ["token"], ["token", "create"], ["token", "list"], ["token", "revoke"]])
def test_help(empty, run, command):
    said = run(*command, "--help")
    assert (said.status, said.err) == (0, "")
    assert f"Usage: dither {' '.join(command)}" in said.out
    assert list(empty.iterdir()) == []


def test_output_is_the_token_alone(shop, run):
    said = run("token", "create", "ana", "--note", "annual report")
    assert SECRET.fullmatch(said.out.strip())
    assert SECRET.search(said.err) is None
    assert "for ana, scope ask" in said.err
    with TokenFile.open(shop / "shop.ledger.access") as tokens:
        identity = tokens.identify(said.out.strip())
        assert (identity.analyst, identity.scope) == ("ana", Scope.ASK)


def test_a_list_shows_no_secret(shop, run):
    assert "no tokens yet" in run("token", "list").out
    secret, number = create(run, "ana", "--note", "annual report")
    said = run("token", "list")
    assert said.out.splitlines()[0].split() == ["number", "for", "scope", "made", "until", "state", "note"]
    assert said.out.splitlines()[1].split()[:3] == [number, "ana", "ask"]
    assert said.out.splitlines()[1].rstrip().endswith("annual report")
    assert secret not in said.out


@pytest.mark.parametrize(
    ("arguments", "scope"), [(["owner"], "owner"), (["ana"], "ask"), (["ana", "--scope", "price"], "price")]
)
def test_scopes(shop, run, arguments, scope):
    said = run("token", "create", *arguments)
    assert f"for {arguments[0]}, scope {scope}, until" in said.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["ana", "--scope", "owner"], 'the scope "owner" is for the name "owner"'),
        (["owner", "--scope", "price"], 'the scope "owner" is for the name "owner"'),
        (["owner", "--scope", "ask"], 'the scope "owner" is for the name "owner"'),
        (["ana", "--days", "0"], "more than 0 and at most 3650 days"),
        (["ana", "--days", "-1"], "more than 0 and at most 3650 days"),
        (["ana", "--days", "3651"], "more than 0 and at most 3650 days"),
        (["ana", "--days", "nan"], "more than 0 and at most 3650 days"),
        (["ana", "--note", "two\nlines"], "a line of at most 200 characters"),
        (["ana", "--note", "x" * 201], "a line of at most 200 characters"),
        (["bob"], "[analysts.NAME]"),
        (["Ana"], "[analysts.NAME]"),
        ([""], "[analysts.NAME]"),
    ],
)
def test_what_no_token_is_made_for(shop, run, arguments, told):
    said = run("token", "create", *arguments)
    assert (said.status, said.out) == (1, "")
    assert told in said.err
    assert "no tokens yet" in run("token", "list").out


def test_a_name_that_is_not_listed_is_told_to_the_owner(shop, run):
    """Which names there are, and what to write; not what an analyst would be told."""
    said = run("token", "create", "bob")
    assert 'the policy doesn\'t list "bob". It lists: ana' in said.err
    assert "nothing was charged" not in said.err
    assert "[analysts.NAME]" in said.err
    assert "this name" in run("token", "create", "b\x1b[31mob").err


def test_a_list_fits_a_narrow_screen(shop, run, monkeypatch):
    """What revoking needs is whole at 80 columns, whatever names and notes there are."""
    numbers = [create(run, "ana", "--note", "n" * 150)[1], create(run, "owner")[1]]
    monkeypatch.setenv("COLUMNS", "80")
    lines = run("token", "list").out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in "".join(lines)
    rows = [line.split() for line in lines[1:] if line.split()[0] in numbers]
    assert {row[0] for row in rows} == set(numbers)
    for row in rows:
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", row[3])
        assert row[5] == "valid"
    assert sum(line.count("n") for line in lines[1:]) >= 150


def test_a_scope_that_does_not_exist(shop, run):
    said = run("token", "create", "ana", "--scope", "admin")
    assert (said.status, said.out) == (2, "")
    assert all(f"'{scope}'" in said.err for scope in Scope)


@pytest.mark.parametrize("command", [["create", "ana"], ["list"], ["revoke", "1"]])
def test_no_policy_no_tokens(empty, run, command):
    said = run("token", *command)
    assert said.status == 1
    assert "dither init" in said.err
    assert list(empty.iterdir()) == []


def test_revoked_and_expired_are_told_apart(shop, run):
    (kept, first), (secret, second) = create(run, "ana"), create(run, "ana")
    _, third = create(run, "ana", "--days", "1e-9")
    said = run("token", "revoke", second)
    assert (said.status, said.out.strip()) == (0, f"{second} of ana is revoked")
    with TokenFile.open(shop / "shop.ledger.access") as tokens:
        assert tokens.identify(secret) is None
        assert tokens.identify(kept) is not None
    assert states(run) == {first: "valid", second: "revoked", third: "expired"}


def test_revoking_what_is_not_there(shop, run):
    said = run("token", "revoke", "99")
    assert (said.status, said.out) == (1, "")
    assert "dither token list" in said.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--rate", "0"], "--rate"),
        (["--rate", "nan"], "--rate"),
        (["--rate", "inf"], "--rate"),
        (["--port", "65536"], "a port is a number from 0 to 65535"),
        (["--port", "-1"], "a port is a number from 0 to 65535"),
        (["--certificate", "dither.toml"], "needs its key"),
        (["--certificate", "none.pem", "--key", "dither.toml"], "none.pem: there is no such file"),
        (["--certificate", "dither.toml", "--key", "none.key"], "none.key: there is no such file"),
        (["--certificate", "dither.toml", "--key", "dither.toml"], "two PEM files that belong together"),
        (["--host", "0.0.0.0"], "tokens must not travel in clear"),
        (["--host", "data.example.org"], "tokens must not travel in clear"),
        (["--log", "none/server.log"], "none/server.log: the log can't be written"),
        (["--policy", "none.toml"], "dither init"),
        (["--demo", "--policy", "other.toml"], "takes no policy"),
        (["--demo", "-p", "dither.toml"], "takes no policy"),
    ],
)
def test_mistakes_are_told_before_anything_starts(shop, run, arguments, told):
    before = sorted(shop.iterdir())
    said = run("serve", "--no-pg", "--port", "0", *arguments)
    assert (said.status, said.out) == (1, "")
    assert said.err.startswith("dither: ")
    assert told in said.err
    assert sorted(shop.iterdir()) == before


def test_a_taken_port(shop, run):
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        said = run("serve", "--no-pg", "--port", port)
    assert said.status == 1
    assert f"nothing can listen on 127.0.0.1:{port}" in said.err
    assert "a library reported a problem" not in said.err
    assert "--port" in said.err


def test_what_is_printed_can_be_pasted(shop, run, start):
    policy = shop / "my policy.toml"
    (shop / "dither.toml").rename(policy)
    server = start("serve", "--no-pg", "--port", 0, "--log", "server.log", "-p", policy, cwd=shop)
    said = dict(line.split(maxsplit=1) for line in read_until(server.stdout, "Ctrl-C"))
    assert said["web"].startswith("page     http://127.0.0.1:")
    secret = SECRET.search(said["owner"])[0]
    assert said["note"] == "a new ledger was begun: shop.ledger. Keep it: it knows what was spent"
    typed = shlex.split(said["analysts"])
    assert typed == ["dither", "token", "create", "NAME", "-p", str(policy)]
    assert SECRET.fullmatch(run(*typed[1:3], "ana", *typed[4:]).out.strip())
    server.send_signal(signal.SIGINT)
    assert server.wait() == 0
    assert server.stdout.read() == "stopped; everything that was charged is in the ledger\n"
    assert secret not in (shop / "server.log").read_text() + server.stderr.read()

    again = start("serve", "--no-pg", "--port", 0, "-p", policy, cwd=shop)
    said = dict(line.split(maxsplit=1) for line in read_until(again.stdout, "Ctrl-C"))
    typed = shlex.split(said["owner"].partition("for another: ")[2])
    assert typed == ["dither", "token", "create", "owner", "-p", str(policy)]
    assert SECRET.fullmatch(run(*typed[1:]).out.strip())
    assert "note" not in said
    again.send_signal(signal.SIGTERM)
    assert again.wait() == 0


@pytest.mark.nightly
def test_the_demo_says_where_its_policy_is(empty, run, start):
    server = start("serve", "--demo", "--no-pg", "--port", 0, cwd=empty)
    said = dict(line.split(maxsplit=1) for line in read_until(server.stdout, "Ctrl-C"))
    typed = shlex.split(said["analysts"])
    assert SECRET.fullmatch(run(*typed[1:3], "ana", *typed[4:]).out.strip())
    server.send_signal(signal.SIGINT)
    assert server.wait() == 0
    assert list(empty.iterdir()) == []
