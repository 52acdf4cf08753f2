"""Who may come in: tokens, sign-in sessions and PostgreSQL passwords, kept as hashes in a file beside the ledger.

This is the contract that the protocols rely on; ``tokens.TokenFile`` keeps it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from dither.server.identity import Identity


@dataclass(frozen=True, slots=True, kw_only=True)
class Verifier:
    """What is kept of a token for SCRAM-SHA-256 (RFC 5802, RFC 7677): it proves the token, and can't be turned back."""

    stored_key: bytes
    server_key: bytes
    identity: Identity


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramChallenge:
    """What is sent to somebody who wants to sign in, and the verifiers of all their valid tokens.

    All tokens of one analyst share a salt, so that any of them may be the password. A name without tokens gets a salt
    too, always the same, and no verifiers: so nobody learns which names exist.
    """

    salt: bytes
    iterations: int
    verifiers: tuple[Verifier, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Somebody signed in on the web page: their identity and the secret that forms must send back."""

    identity: Identity
    csrf: str


class Access(Protocol):
    """Tells who somebody is. All methods are safe to call from any thread, and quick."""

    def identify(self, token: str) -> Identity | None:
        """Whose token this is; None if it is unknown, revoked or expired."""
        ...

    def challenge(self, analyst: str) -> ScramChallenge:
        """What SCRAM needs for this name, known or not."""
        ...

    def sign_in(self, token: str) -> tuple[str, Session] | None:
        """A new session and the secret for its cookie; None if the token isn't valid."""
        ...

    def session(self, cookie: str) -> Session | None:
        """The session of a cookie; None if it is unknown, ended or expired, or its token isn't valid any more."""
        ...

    def sign_out(self, cookie: str) -> None:
        """End a session; twice is as once."""
        ...
