"""Who asks: the analyst behind a token, and what the token allows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dither.curator import OWNER


class Scope(StrEnum):
    """What a token allows; each one includes those before it."""

    PRICE = "price"
    ASK = "ask"
    OWNER = "owner"

    @property
    def included(self) -> frozenset[Scope]:
        """This scope and those that it includes.

        Example:
            >>> sorted(Scope.ASK.included)
            [<Scope.ASK: 'ask'>, <Scope.PRICE: 'price'>]
        """
        order = list(Scope)
        return frozenset(order[: order.index(self) + 1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Somebody who showed a valid token: under which name they ask, and what they may do.

    ``token`` is the public number of the token, for logs; never its secret.
    """

    analyst: str
    scope: Scope
    token: str

    def allows(self, wanted: Scope) -> bool:
        """Whether this identity may do what ``wanted`` stands for."""
        return wanted in self.scope.included

    @property
    def is_owner(self) -> bool:
        """Whether this is the owner of the data."""
        return self.analyst == OWNER and self.scope is Scope.OWNER


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
class WebSession:
    """Somebody signed in on the web page: their identity and the secret that forms must send back."""

    identity: Identity
    csrf: str
