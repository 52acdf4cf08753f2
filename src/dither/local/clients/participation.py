"""The client of a survey that also hides who took part: not taking part is one of the answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dither.errors import InvalidParameter
from dither.local.clients.base import InnerClient, ValueDomain, oracle_of
from dither.local.clients.coins import SYSTEM, Coins


class ParticipationClient(InnerClient, protocol="participation", fields=("domain", "collection")):
    """Randomises an answer, or ``None`` for somebody who doesn't take part: one value more than there are answers.

    Everybody on the public list has to send a report, those who don't take part as well.
    """

    def __init__(self, description: Mapping[str, Any]) -> None:
        super().__init__(description)
        self.domain = ValueDomain(description.get("domain"))
        collection = description.get("collection")
        self.inner = oracle_of(collection)
        if not isinstance(collection, Mapping) or collection.get("domain") != self.domain.size + 1:
            raise InvalidParameter("the collection must have one value more than the domain: that of the absent")

    def payload(self, value: Any, coins: Coins = SYSTEM) -> bytes:
        """The randomised answer; the absent have the last index."""
        return self.inner.payload(self.domain.size if value is None else self.domain.place(value), coins)
