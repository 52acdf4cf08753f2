"""Signing in by SCRAM-SHA-256 (RFC 5802, RFC 7677): the server's side of the exchange.

A client proves that it knows a token without sending it. An analyst may have several tokens; they share a salt, and a
proof is compared with all of them, always with at least ``COMPARED``, so that neither the messages nor the time tell
whether a name has tokens.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets

from dither.server.auth.identity import Identity, ScramChallenge, Verifier
from dither.server.pgwire.protocol.messages import ProtocolError

MECHANISM = "SCRAM-SHA-256"
COMPARED = 8
LONGEST_NONCE = 512
# gs2-header: no channel binding (n), or the client would have but saw that the server doesn't (y); and an identity
_FIRST = re.compile(r"(?P<header>(?P<flag>n|y|p=[A-Za-z0-9.-]+),(?P<identity>a=[^,]*)?,)(?P<bare>.*)", re.DOTALL)
_BARE = re.compile(r"n=(?P<name>[^,]*),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,[A-Za-z]=[^,]*)*", re.DOTALL)
_FINAL = re.compile(
    r"(?P<start>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[^,]+)(?:,[A-Za-z]=[^,]*)*),p=(?P<proof>[A-Za-z0-9+/=]+)",
    re.DOTALL,
)


class Scram:
    """One exchange. ``first`` answers the client's first message, ``final`` its proof; ``identity`` is who it was.

    ``nonce`` is the server's part, given by tests alone.
    """

    def __init__(self, challenge: ScramChallenge, *, nonce: str | None = None) -> None:
        self._challenge = challenge
        self._own = nonce or base64.b64encode(secrets.token_bytes(18)).decode()
        self._header = self._bare = self._nonce = self._sent = ""
        self.identity: Identity | None = None

    def first(self, message: bytes) -> bytes:
        """The server's first message: the whole nonce, the salt and the number of rounds."""
        found = _FIRST.fullmatch(_ascii_or_utf8(message))
        if found is None:
            raise ProtocolError("the first SCRAM message can't be read")
        if found["flag"].startswith("p"):
            raise ProtocolError("channel binding was asked for, and this server doesn't offer SCRAM-SHA-256-PLUS")
        bare = _BARE.fullmatch(found["bare"])
        if bare is None or found["bare"].startswith("m=") or len(bare["nonce"]) > LONGEST_NONCE:
            raise ProtocolError("the first SCRAM message can't be read")
        self._header, self._bare, self._nonce = found["header"], found["bare"], bare["nonce"] + self._own
        salt = base64.b64encode(self._challenge.salt).decode()
        self._sent = f"r={self._nonce},s={salt},i={self._challenge.iterations}"
        return self._sent.encode()

    def final(self, message: bytes) -> bytes | None:
        """The server's signature if the proof is right, else None; the work is the same."""
        found = _FINAL.fullmatch(_ascii_or_utf8(message))
        if found is None:
            raise ProtocolError("the final SCRAM message can't be read")
        binding, proof = _base64(found["binding"]), _base64(found["proof"])
        if len(proof) != hashlib.sha256().digest_size:
            raise ProtocolError("the proof of SCRAM-SHA-256 has 32 bytes")
        if binding != self._header.encode() or not hmac.compare_digest(found["nonce"].encode(), self._nonce.encode()):
            raise ProtocolError("the final SCRAM message doesn't belong to the first")
        signed = f"{self._bare},{self._sent},{found['start']}".encode()
        proven = self._proven(proof, signed)
        if proven is None:
            return None
        self.identity = proven.identity
        return b"v=" + base64.b64encode(hmac.digest(proven.server_key, signed, "sha256"))

    def _proven(self, proof: bytes, signed: bytes) -> Verifier | None:
        """The verifier that the proof fits; every one is tried, whichever fits."""
        kept: list[Verifier | None] = list(self._challenge.verifiers)
        kept += [None] * (COMPARED - len(kept))
        result: Verifier | None = None
        for verifier in kept:
            stored = bytes(32) if verifier is None else verifier.stored_key
            signature = hmac.digest(stored, signed, "sha256")
            client = bytes(left ^ right for left, right in zip(proof, signature, strict=True))
            fits = hmac.compare_digest(hashlib.sha256(client).digest(), stored)
            if fits and verifier is not None:
                result = verifier
        return result


def _ascii_or_utf8(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        pass
    raise ProtocolError("a SCRAM message isn't UTF-8")


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        pass
    raise ProtocolError("a SCRAM message holds something that isn't base64")
