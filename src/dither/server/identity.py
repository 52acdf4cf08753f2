"""Who asks: the analyst behind a token, and what the token allows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dither.curator.owner import OWNER


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
