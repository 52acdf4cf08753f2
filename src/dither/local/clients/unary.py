"""The client of unary encodings: one randomised bit for every value."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from dither.errors import InvalidParameter
from dither.local.clients.base import Client, ValueDomain, epsilon_up, fraction, packed
from dither.local.clients.coins import SYSTEM, Coins

# A report has a bit for each value: with more of them it would be megabytes long.
MOST_VALUES = 2**24


class UnaryClient(Client, protocol="unary", fields=("domain", "keep", "noise")):
    """Sends the bit of the true value as 1 with probability ``keep``, that of any other with ``noise``."""

    def __init__(self, description: Mapping[str, Any]) -> None:
        super().__init__(description)
        self.domain = ValueDomain(description.get("domain"))
        self.keep, self.noise = fraction(description, "keep"), fraction(description, "noise")
        if not 0 < self.noise < self.keep < 1:
            raise InvalidParameter("0 < noise < keep < 1 is needed: a bit that is certain isn't private")
        check_size(self.domain.size)

    @property
    def width(self) -> int:
        """One bit for each value."""
        return -(-self.domain.size // 8)

    @property
    def epsilon(self) -> float:
        """Two values differ in two bits."""
        return epsilon_up(unary_odds(self.keep, self.noise))

    def payload(self, value: Any, coins: Coins = SYSTEM) -> bytes:
        """The bits, value v in bit v mod 8 of byte v div 8."""
        truth = self.domain.place(value)
        chances = (self.noise, self.keep)
        return packed((coins.chance(chances[place == truth]) for place in range(self.domain.size)), self.domain.size)


def unary_odds(keep: Fraction, noise: Fraction) -> Fraction:
    """Of the two bits in which two values differ: (1, 0) under one against (1, 0) under the other."""
    return keep * (1 - noise) / ((1 - keep) * noise)


def check_size(size: int) -> None:
    """Refuse to fill somebody's device with bits."""
    if size > MOST_VALUES:
        raise InvalidParameter(f"a report with a bit for each value is for at most {MOST_VALUES} of them; got {size}")
