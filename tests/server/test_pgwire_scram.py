"""SCRAM-SHA-256: the example of RFC 7677, several tokens of one name, and everything that must not get in."""

import base64
import hashlib
import hmac

import pytest
from hypothesis import given, settings, strategies as st

from dither.server.auth.identity import Identity, Scope, ScramChallenge, Verifier
from dither.server.pgwire.protocol import scram
from dither.server.pgwire.protocol.messages import ProtocolError
from dither.server.pgwire.protocol.scram import Scram

# RFC 7677, section 3
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def verifier(password, analyst="user", token="t1"):
    salted = hashlib.pbkdf2_hmac("sha256", password, SALT, 4096)
    return Verifier(
        stored_key=hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest(),
        server_key=hmac.digest(salted, b"Server Key", "sha256"),
        identity=Identity(analyst=analyst, scope=Scope.ASK, token=token),
    )


def exchange(*verifiers):
    return Scram(ScramChallenge(salt=SALT, iterations=4096, verifiers=verifiers), nonce=SERVER_NONCE)


def test_the_example_of_the_rfc():
    found = exchange(verifier(b"pencil"))
    assert found.first(CLIENT_FIRST) == SERVER_FIRST
    assert found.identity is None
    assert found.final(CLIENT_FINAL) == SERVER_FINAL
    assert found.identity.analyst == "user"


@pytest.mark.parametrize("place", [0, 3, 11])
def test_any_of_several_tokens_is_found_by_its_own(place):
    others = [verifier(b"other%d" % number, token=f"o{number}") for number in range(11)]
    others.insert(place, verifier(b"pencil", token="right"))
    found = exchange(*others)
    found.first(CLIENT_FIRST)
    assert found.final(CLIENT_FINAL) == SERVER_FINAL
    assert found.identity.token == "right"


@pytest.mark.parametrize("verifiers", [(), (verifier(b"pen"),), tuple(verifier(b"x%d" % n) for n in range(9))])
def test_a_wrong_proof_gets_the_same_first_message_and_no_signature(verifiers):
    found = exchange(*verifiers)
    assert found.first(CLIENT_FIRST) == SERVER_FIRST
    assert found.final(CLIENT_FINAL) is None
    assert found.identity is None


def test_the_key_of_no_token_opens_nothing():
    """Where there are fewer tokens than are compared, the place holders' key is public: it must not sign anybody in."""
    found = exchange()
    found.first(CLIENT_FIRST)
    start = CLIENT_FINAL.split(b",p=")[0]
    signed = CLIENT_FIRST[3:] + b"," + SERVER_FIRST + b"," + start
    signature = hmac.digest(bytes(32), signed, "sha256")
    assert found.final(start + b",p=" + base64.b64encode(signature)) is None
    assert found.identity is None


def test_as_much_is_compared_for_a_name_without_tokens_as_for_one_with(monkeypatch):
    counts = []
    for verifiers in ((), (verifier(b"pencil"),), (verifier(b"pencil"), verifier(b"other"))):
        found = exchange(*verifiers)
        compared = counted(monkeypatch)
        found.first(CLIENT_FIRST)
        found.final(CLIENT_FINAL.replace(b"p=dHz", b"p=eHz"))
        monkeypatch.undo()
        counts.append(len(compared))
    assert counts == [scram.COMPARED] * 3


@pytest.mark.parametrize("place", [0, 5])
def test_comparing_goes_on_after_the_right_token(monkeypatch, place):
    others = [verifier(b"other%d" % number) for number in range(5)]
    others.insert(place, verifier(b"pencil"))
    found = exchange(*others)
    found.first(CLIENT_FIRST)
    compared = counted(monkeypatch)
    assert found.final(CLIENT_FINAL) == SERVER_FINAL
    # and one more for the signature
    assert len(compared) == scram.COMPARED + 1


def counted(monkeypatch):
    real, calls = hmac.digest, []
    monkeypatch.setattr(scram.hmac, "digest", lambda *given: calls.append(given[2]) or real(*given))
    return calls


def test_a_client_that_saw_no_channel_binding_is_let_in():
    found = exchange(verifier(b"pencil"))
    assert found.first(b"y" + CLIENT_FIRST[1:]) == SERVER_FIRST
    # the header is part of what is signed: the one that was sent must come back
    with pytest.raises(ProtocolError, match="belong"):
        found.final(CLIENT_FINAL)


@pytest.mark.parametrize(
    "first",
    [
        b"p=tls-server-end-point,,n=user,r=abc",
        b"n,,n=user",
        b"n,,r=abc",
        b"n,,m=x,n=user,r=abc",
        b"x,,n=user,r=abc",
        b"n,,n=user,r=a b",
        b"n,,n=user,r=" + b"a" * 600,
        b"\xff",
        b"",
    ],
)
def test_first_messages_that_are_refused(first):
    with pytest.raises(ProtocolError):
        exchange(verifier(b"pencil")).first(first)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"c=biws", b"c=eSws"),
        (b"r=rOpr", b"r=rOps"),
        (b"k0,p", b"k1,p"),
        (b"ndVQ=", b"ndV="),
        (b",p=dHzb", b",p=dHz"),
        (b"c=biws,", b""),
        (b"p=dHz", b"p=*Hz"),
    ],
)
def test_final_messages_that_are_refused(old, new):
    found = exchange(verifier(b"pencil"))
    found.first(CLIENT_FIRST)
    with pytest.raises(ProtocolError):
        found.final(CLIENT_FINAL.replace(old, new))
    assert found.identity is None


PENCIL = verifier(b"pencil")


@settings(max_examples=300, deadline=None)
@given(first=st.binary(max_size=60), final=st.binary(max_size=120), place=st.integers(0, 200), byte=st.integers(0, 255))
def test_no_bytes_get_in_or_raise_anything_else(first, final, place, byte):
    for opening, closing in ((first, final), (CLIENT_FIRST, final), (CLIENT_FIRST, changed(CLIENT_FINAL, place, byte))):
        found = exchange(PENCIL)
        try:
            found.first(opening)
            verdict = found.final(closing)
        except ProtocolError:
            verdict = None
        assert verdict is None or closing == CLIENT_FINAL
        assert (found.identity is None) == (verdict is None)


def changed(content, place, byte):
    place %= len(content)
    return content[:place] + bytes([byte]) + content[place + 1 :]


def test_nonces_differ():
    challenge = ScramChallenge(salt=SALT, iterations=4096, verifiers=())
    firsts = {Scram(challenge).first(CLIENT_FIRST) for _ in range(20)}
    assert len(firsts) == 20
