"""Tokens: shown once, kept as hashes, expiring, revocable at once; sessions and SCRAM verifiers that hang on them."""

import base64
import hashlib
import hmac
import sqlite3
import stat

import pytest

from dither.errors import DitherError, InvalidParameter
from dither.server.auth.identity import Identity, Scope
from dither.server.auth.tokens import ITERATIONS, SESSION_SECONDS, TokenFile, scram_keys

DAY = 86400


class Clock:
    """A time that tests move."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def file(tmp_path, clock):
    with TokenFile.open(tmp_path / "shop.access", clock=clock) as opened:
        yield opened


def test_a_token_tells_who_holds_it(file):
    token, secret = file.create("ana", Scope.ASK)
    assert file.identify(secret) == Identity(analyst="ana", scope=Scope.ASK, token=token.number)


@pytest.mark.parametrize("wrong", ["", "dither_", "x", "dither_" + "A" * 43, "\udcff", "ana", "1" * 100_000])
def test_anything_else_tells_nothing(file, wrong):
    file.create("ana")
    assert file.identify(wrong) is None


def test_case_and_single_characters_count(file):
    _, secret = file.create("ana")
    assert file.identify(secret.swapcase()) is None
    assert file.identify(secret[:-1]) is None
    assert file.identify(secret + "=") is None


def test_the_file_holds_no_secret(file, tmp_path):
    secrets_made = [file.create("ana")[1] for _ in range(3)]
    cookie, session = file.sign_in(secrets_made[0])
    file.close()
    content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    for secret in [*secrets_made, cookie, session.csrf]:
        assert secret.encode() not in content
        assert secret.removeprefix("dither_").encode() not in content


def test_only_its_owner_reads_the_file(file, tmp_path):
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_tokens_expire(file, clock):
    token, secret = file.create("ana", days=2)
    assert token.expires == "2027-01-17T08:00:00Z"
    cookie, _ = file.sign_in(secret)
    clock.now += 2 * DAY - 1
    assert file.identify(secret) is not None
    clock.now += 1
    assert file.identify(secret) is None
    assert file.challenge("ana").verifiers == ()
    assert file.session(cookie) is None
    assert [one.valid for one in file.list()] == [False]


def test_a_session_ends_by_itself_and_by_signing_out(file, clock):
    _, secret = file.create("ana")
    first, second = file.sign_in(secret)[0], file.sign_in(secret)[0]
    assert file.session(first).identity.analyst == "ana"
    file.sign_out(first)
    file.sign_out(first)
    assert file.session(first) is None
    assert file.session(second) is not None
    clock.now += SESSION_SECONDS + 1
    assert file.session(second) is None
    assert file.session("unknown") is None
    assert file.sign_in("unknown") is None


def test_sessions_have_different_secrets_for_forms(file):
    _, secret = file.create("ana")
    (one, first), (other, second) = file.sign_in(secret), file.sign_in(secret)
    assert one != other
    assert first.csrf != second.csrf
    assert file.session(one).csrf == first.csrf


def test_revoking_holds_at_once_in_other_processes(file, tmp_path, clock):
    token, secret = file.create("ana")
    _, kept = file.create("ana")
    cookie, _ = file.sign_in(secret)
    assert file.identify(secret) is not None
    with TokenFile.open(tmp_path / "shop.access", clock=clock) as elsewhere:
        assert not elsewhere.revoke(token.number).valid
        assert not elsewhere.revoke(token.number).valid
    assert file.identify(secret) is None
    assert file.session(cookie) is None
    assert len(file.challenge("ana").verifiers) == 1
    assert file.identify(kept) is not None
    with pytest.raises(InvalidParameter, match="there is no token"):
        file.revoke("nobody")


def test_a_token_made_elsewhere_is_known_at_once(file, tmp_path, clock):
    assert file.identify("dither_x") is None
    with TokenFile.open(tmp_path / "shop.access", clock=clock) as elsewhere:
        _, secret = elsewhere.create("bob")
    assert file.identify(secret).analyst == "bob"


def test_scram_verifiers_prove_the_token(file):
    _, secret = file.create("ana")
    _, other = file.create("ana")
    challenge = file.challenge("ana")
    assert challenge.iterations == ITERATIONS
    expected = {scram_keys(one, challenge.salt, challenge.iterations) for one in (secret, other)}
    assert {(one.stored_key, one.server_key) for one in challenge.verifiers} == expected


def test_scram_keys_are_those_of_rfc_7677():
    # the example of RFC 7677, section 3: user "user", password "pencil"

    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    stored, server = scram_keys("pencil", salt, 4096)
    message = (
        b"n=user,r=rOprNGfwEbeRWgbNEkqO,"
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,"
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    proof = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    signature = hmac.digest(stored, message, "sha256")
    client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    assert hashlib.sha256(client_key).digest() == stored
    assert base64.b64encode(hmac.digest(server, message, "sha256")) == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_names_without_tokens_look_like_others(file):
    known, unknown = file.challenge("ana"), file.challenge("nobody")
    assert len(known.salt) == len(unknown.salt) == 16
    assert known.iterations == unknown.iterations
    # asked twice, the same salt: a random one would tell that the name isn't known
    assert file.challenge("nobody").salt == unknown.salt
    file.create("nobody")
    assert file.challenge("nobody").salt == unknown.salt


def test_two_spellings_of_a_name_are_one(file):
    _, secret = file.create("Zoe\u0301")
    assert file.identify(secret).analyst == "Zo\u00e9"
    assert len(file.challenge("Zo\u00e9").verifiers) == len(file.challenge("Zoe\u0301").verifiers) == 1


@pytest.mark.parametrize(
    ("name", "scope", "days", "note"),
    [
        ("ana", Scope.OWNER, 1, ""),
        ("owner", Scope.ASK, 1, ""),
        ("", Scope.ASK, 1, ""),
        (" ana", Scope.ASK, 1, ""),
        ("a/b", Scope.ASK, 1, ""),
        ("a\nb", Scope.ASK, 1, ""),
        ("a" * 201, Scope.ASK, 1, ""),
        ("ana", Scope.ASK, 0, ""),
        ("ana", Scope.ASK, -1, ""),
        ("ana", Scope.ASK, float("nan"), ""),
        ("ana", Scope.ASK, 1e9, ""),
        ("ana", Scope.ASK, 1, "two\nlines"),
        ("ana", Scope.ASK, 1, "x" * 201),
    ],
)
def test_what_makes_no_sense_is_refused(file, name, scope, days, note):
    with pytest.raises(InvalidParameter):
        file.create(name, scope, days=days, note=note)
    assert file.list() == ()


def test_whether_there_is_an_owner(file, clock):
    assert not file.has_owner()
    file.create("ana")
    assert not file.has_owner()
    file.create("owner", Scope.OWNER, days=1)
    assert file.has_owner()
    clock.now += 2 * DAY
    assert not file.has_owner()


def test_another_file_is_not_taken_for_one_of_tokens(tmp_path):
    (tmp_path / "text").write_text("not a database " * 100)
    with pytest.raises(DitherError, match="a file of their own"):
        TokenFile.open(tmp_path / "text")
    with sqlite3.connect(tmp_path / "other") as db:
        db.execute("CREATE TABLE t (x)")
    db.close()
    with pytest.raises(DitherError, match="a file of their own"):
        TokenFile.open(tmp_path / "other")
    with pytest.raises(DitherError, match="no directory"):
        TokenFile.open(tmp_path / "nowhere" / "shop.access")


def test_scopes_include_those_below():
    ask = Identity(analyst="ana", scope=Scope.ASK, token="1")
    assert [ask.allows(scope) for scope in Scope] == [True, True, False]
    look = Identity(analyst="ana", scope=Scope.PRICE, token="1")
    assert [look.allows(scope) for scope in Scope] == [True, False, False]
    assert not ask.is_owner
    assert Identity(analyst="owner", scope=Scope.OWNER, token="1").is_owner
