"""The client of subset selection: a few values are named at once, the true one more likely than others."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from dither.errors import InvalidParameter
from dither.local.clients.base import Client, ValueDomain, epsilon_up, fraction, whole
from dither.local.clients.coins import SYSTEM, Coins
from dither.local.clients.unary import check_size


class SubsetSelectionClient(Client, protocol="subset_selection", fields=("domain", "subset", "keep")):
    """Names ``subset`` values: the true one is among them with probability ``keep``, the others are drawn alike."""

    def __init__(self, description: Mapping[str, Any]) -> None:
        super().__init__(description)
        self.domain = ValueDomain(description.get("domain"))
        check_size(self.domain.size)
        self.subset = whole(description, "subset", least=1, most=self.domain.size - 1)
        self.keep = fraction(description, "keep")
        if not Fraction(self.subset, self.domain.size) < self.keep < 1:
            raise InvalidParameter(
                "keep must lie above subset/size and below 1: an answer that is certain isn't private"
            )

    @property
    def width(self) -> int:
        """One bit for each value."""
        return -(-self.domain.size // 8)

    @property
    def epsilon(self) -> float:
        """A given subset with the truth against a given one without it."""
        return epsilon_up(self.keep * (self.domain.size - self.subset) / ((1 - self.keep) * self.subset))

    def payload(self, value: Any, coins: Coins = SYSTEM) -> bytes:
        """The bits of the values that are named, value v in bit v mod 8 of byte v div 8."""
        truth = self.domain.place(value)
        kept = coins.chance(self.keep)
        others = [place for place in range(self.domain.size) if place != truth]
        # one more than a kept truth needs is drawn, so that time doesn't tell
        for drawn in range(self.subset):
            other = drawn + coins.below(len(others) - drawn)
            others[drawn], others[other] = others[other], others[drawn]
        named = [*others[: self.subset - 1], truth if kept else others[self.subset - 1]]
        payload = bytearray(self.width)
        for place in named:
            payload[place >> 3] |= 1 << (place & 7)
        return bytes(payload)
