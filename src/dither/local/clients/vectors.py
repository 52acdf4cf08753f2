"""Clients that report a vector of numbers, every coordinate within the same public bounds."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from dither.errors import InvalidData, InvalidParameter
from dither.local.clients.base import Client, bytes_for, client_of, epsilon_up, fraction, sum_up, whole
from dither.local.clients.coins import SYSTEM, Coins
from dither.local.clients.means import Bounds, NumberClient, check_bit, on_grid

LARGEST_DIMENSION = 2**16


class OneBitVectorClient(Client, protocol="one_bit_vector", fields=("dimension", "bounds", "keep")):
    """Rounds every coordinate to one of the bounds and names a corner that agrees with most, or with few, of them."""

    def __init__(self, description: Mapping[str, Any]) -> None:
        super().__init__(description)
        self.bounds = Bounds(description.get("bounds"))
        self.dimension = whole(description, "dimension", least=1, most=LARGEST_DIMENSION)
        self.keep = fraction(description, "keep")
        check_bit(self.keep)

    @property
    def width(self) -> int:
        """One bit for each coordinate."""
        return -(-self.dimension // 8)

    @property
    def epsilon(self) -> float:
        """A corner that agrees with more than half against one that agrees with less."""
        return epsilon_up(self.keep / (1 - self.keep))

    def payload(self, value: Any, coins: Coins = SYSTEM) -> bytes:
        """The bits of a corner, coordinate i in bit i mod 8 of byte i div 8.

        A corner is drawn uniformly. With probability ``keep`` it is wanted to agree with the truth in more than half of
        the coordinates, else in less than half; if it does the opposite, the opposite corner is named. One that agrees
        in just half of them stays.
        """
        ends = positions_of(value, self.dimension, self.bounds)
        truth = sum(on_grid(end, 1, coins) << place for place, end in enumerate(ends))
        corner, wanted = coins.below(1 << self.dimension), coins.chance(self.keep)
        balance = self.dimension - 2 * (corner ^ truth).bit_count()
        turn = balance != 0 and (balance > 0) != wanted
        corner ^= ((1 << self.dimension) - 1) * turn
        return corner.to_bytes(self.width, "little")


class SampledVectorClient(Client, protocol="sampled_vector", fields=("dimension", "coordinates", "collection")):
    """Draws a few coordinates, whatever the vector is, and reports each of them as a number."""

    def __init__(self, description: Mapping[str, Any]) -> None:
        super().__init__(description)
        self.dimension = whole(description, "dimension", least=1, most=LARGEST_DIMENSION)
        self.coordinates = whole(description, "coordinates", least=1, most=self.dimension)
        inner = client_of(description.get("collection"))
        if not isinstance(inner, NumberClient):
            raise InvalidParameter('the "collection" of a sampled vector must be that of a number')
        self.inner = inner

    @property
    def width(self) -> int:
        """For each coordinate that is drawn its number and its report."""
        return self.coordinates * (bytes_for(self.dimension) + self.inner.width)

    @property
    def epsilon(self) -> float:
        """As many reports as coordinates are drawn."""
        return sum_up([self.inner.epsilon] * self.coordinates)

    def payload(self, value: Any, coins: Coins = SYSTEM) -> bytes:
        """The coordinates in the order in which they were drawn, each followed by the payload of its number."""
        positions = positions_of(value, self.dimension, self.inner.bounds)
        remaining, parts = list(range(self.dimension)), []
        for _ in range(self.coordinates):
            place = remaining.pop(coins.below(len(remaining)))
            parts.append(place.to_bytes(bytes_for(self.dimension), "little"))
            parts.append(self.inner.output(positions[place], coins).to_bytes(self.inner.width, "little"))
        return b"".join(parts)


def positions_of(value: Any, dimension: int, bounds: Bounds) -> list[Fraction]:
    """Where the coordinates of a vector lie between the bounds; the message of the error doesn't repeat any."""
    if not isinstance(value, list | tuple) or len(value) != dimension:
        raise InvalidData(f"the value must be a list of {dimension} numbers; nothing was drawn")
    return [bounds.position(one) for one in value]
