"""The client of Hadamard response: one number, which agrees with the true value more likely than not."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from dither.errors import InvalidParameter
from dither.local.clients.base import Client, ValueDomain, bytes_for, epsilon_up, fraction
from dither.local.clients.coins import SYSTEM, Coins


class HadamardClient(Client, protocol="hadamard", fields=("domain", "keep")):
    """Names a row of the Hadamard matrix in which the value's column is +1 with probability ``keep``."""

    def __init__(self, description: Mapping[str, Any]) -> None:
        super().__init__(description)
        self.domain = ValueDomain(description.get("domain"))
        self.keep = fraction(description, "keep")
        if not Fraction(1, 2) < self.keep < 1:
            raise InvalidParameter("keep must lie above 1/2 and below 1: an honest answer isn't private")

    @property
    def order(self) -> int:
        """The order of the matrix: the least power of two above the number of values."""
        return int(2 ** self.domain.size.bit_length())

    @property
    def width(self) -> int:
        """As many bytes as the largest row needs."""
        return bytes_for(self.order)

    @property
    def epsilon(self) -> float:
        """A row that agrees with the truth against one that doesn't."""
        return epsilon_up(self.keep / (1 - self.keep))

    def payload(self, value: Any, coins: Coins = SYSTEM) -> bytes:
        """The row; value v has column v + 1, since column 0 is the same everywhere."""
        column = self.domain.place(value) + 1
        agree = coins.chance(self.keep)
        row = coins.below(self.order)
        # +1 where row and column have an even number of ones in common; one bit of the column, turned, changes that
        odd = (row & column).bit_count() % 2
        row ^= (column & -column) * (odd == agree)
        return row.to_bytes(self.width, "little")
