"""The client of k-ary randomised response (and of Warner's survey, where k is 2)."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from dither.errors import InvalidParameter
from dither.local.clients.base import Client, ValueDomain, bytes_for, epsilon_up, fraction
from dither.local.clients.coins import SYSTEM, Coins


class KaryClient(Client, protocol="kary", fields=("domain", "keep")):
    """Names the true value with probability ``keep``, else any other one alike."""

    def __init__(self, description: Mapping[str, Any]) -> None:
        super().__init__(description)
        self.domain = ValueDomain(description.get("domain"))
        self.keep = fraction(description, "keep")
        check_keep(self.keep, self.domain.size)

    @property
    def width(self) -> int:
        """As many bytes as the largest index needs."""
        return bytes_for(self.domain.size)

    @property
    def epsilon(self) -> float:
        """The truth against one given other value."""
        return epsilon_up(kary_odds(self.keep, self.domain.size))

    def payload(self, value: Any, coins: Coins = SYSTEM) -> bytes:
        """The index of the value that is named, the lowest byte first."""
        return respond(self.domain.place(value), self.domain.size, self.keep, coins).to_bytes(self.width, "little")


def respond(truth: int, size: int, keep: Fraction, coins: Coins) -> int:
    """The k-ary response to an index."""
    kept = coins.chance(keep)
    # drawn for kept answers too, so that time doesn't tell which answers are lies
    step = 1 + coins.below(size - 1)
    return (truth + step * (not kept)) % size


def kary_odds(keep: Fraction, size: int) -> Fraction:
    """How many times likelier an answer is where it is the truth."""
    return keep * (size - 1) / (1 - keep)


def check_keep(keep: Fraction, size: int) -> None:
    """Refuse a collection that asks for an honest answer."""
    if not Fraction(1, size) < keep < 1:
        raise InvalidParameter(
            f"keep must lie above 1/{size}, one over the number of values, and below 1: an honest answer isn't private"
        )
