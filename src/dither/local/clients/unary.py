"""The client of unary encodings: one randomised bit for every value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dither.errors import InvalidParameter
from dither.local.clients.base import Client, Domain, fraction
from dither.local.coins import SYSTEM, Coins

# A report has a bit for each value: with more of them it would be megabytes long.
MOST_VALUES = 2**24


class UnaryClient(Client, protocol="unary"):
    """Sends the bit of the true value as 1 with probability ``keep``, that of any other with ``noise``."""

    def __init__(self, description: Mapping[str, Any]) -> None:
        super().__init__(description)
        self.domain = Domain(description.get("domain"))
        self.keep, self.noise = fraction(description, "keep"), fraction(description, "noise")
        if not 0 < self.noise < self.keep < 1:
            raise InvalidParameter("0 < noise < keep < 1 is needed: a bit that is certain isn't private")
        check_size(self.domain.size)

    @property
    def width(self) -> int:
        """One bit for each value."""
        return -(-self.domain.size // 8)

    def payload(self, value: Any, coins: Coins = SYSTEM) -> bytes:
        """The bits, value v in bit v mod 8 of byte v div 8."""
        truth = self.domain.place(value)
        chances = (self.noise, self.keep)
        bits = 0
        for place in range(self.domain.size):
            bits |= coins.chance(chances[place == truth]) << place
        return bits.to_bytes(self.width, "little")


def check_size(size: int) -> None:
    """Refuse to fill somebody's device with bits."""
    if size > MOST_VALUES:
        raise InvalidParameter(f"a report with a bit for each value is for at most {MOST_VALUES} of them; got {size}")
