"""The client of projective geometry response: one point, in the true value's plane more likely than elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from dither.errors import InvalidParameter
from dither.local.clients.base import Client, ValueDomain, bytes_for, epsilon_up, fraction, whole
from dither.local.clients.coins import SYSTEM, Coins

# Larger ones are of no use: their points are as many as the values, and k-ary response does the same.
LARGEST_PRIME = 2**15


class ProjectiveClient(Client, protocol="projective", fields=("domain", "prime", "keep")):
    """Names a point orthogonal to the value's own with probability ``keep``, else one that isn't; alike in each."""

    def __init__(self, description: Mapping[str, Any]) -> None:
        super().__init__(description)
        self.domain = ValueDomain(description.get("domain"))
        self.prime = whole(description, "prime", least=2, most=LARGEST_PRIME)
        if not is_prime(self.prime):
            raise InvalidParameter(f"prime must be a prime number; got {self.prime}")
        self.dimension = dimension_for(self.domain.size, self.prime)
        self.keep = fraction(description, "keep")
        points, plane = number_of_points(self.prime, self.dimension), number_of_points(self.prime, self.dimension - 1)
        if not Fraction(plane, points) < self.keep < 1:
            raise InvalidParameter(
                f"keep must lie above {plane}/{points}, a plane's part of all points, and below 1: an honest answer "
                "isn't private"
            )

    @property
    def width(self) -> int:
        """As many bytes as the largest number of a point needs."""
        return bytes_for(number_of_points(self.prime, self.dimension))

    @property
    def epsilon(self) -> float:
        """A given orthogonal point against a given other one."""
        points, plane = (number_of_points(self.prime, self.dimension - less) for less in (0, 1))
        return epsilon_up(self.keep * (points - plane) / ((1 - self.keep) * plane))

    def payload(self, value: Any, coins: Coins = SYSTEM) -> bytes:
        """The number of the point; value v has point v."""
        q, t = self.prime, self.dimension
        own = point(self.domain.place(value), q, t)
        lead = own.index(1)
        inside = coins.chance(self.keep)
        # both are drawn, so that time doesn't tell; orthogonal vectors that aren't all zero, or any with product 1
        free = coins.below(q ** (t - 1) - 1) + 1, coins.below(q ** (t - 1))
        rest = digits(free[not inside], q, t - 1)
        named = [*rest[:lead], 0, *rest[lead:]]
        product = sum(a * b for a, b in zip(own, named, strict=True))
        named[lead] = ((not inside) - product) % q
        return number(named, q).to_bytes(self.width, "little")


def is_prime(number: int) -> bool:
    """Whether a small number, from 2, is prime."""
    return all(number % divisor for divisor in range(2, int(number**0.5) + 1))


def number_of_points(prime: int, dimension: int) -> int:
    """The number of lines through the origin: (q^t − 1)/(q − 1)."""
    return int((prime**dimension - 1) // (prime - 1))


def dimension_for(values: int, prime: int) -> int:
    """The least dimension, from 2, with a point for every value."""
    dimension = 2
    while number_of_points(prime, dimension) < values:
        dimension += 1
    return dimension


def digits(value: int, base: int, length: int) -> list[int]:
    """The digits of a number, the highest first."""
    return [value // base**place % base for place in reversed(range(length))]


def point(index: int, prime: int, dimension: int) -> list[int]:
    """The vector of a point: the first coordinate that isn't 0 is 1.

    Points are numbered by how many coordinates follow that one, then by those: point (q^m − 1)/(q − 1) + r has m
    coordinates after its 1, which spell r.
    """
    after = 0
    while number_of_points(prime, after + 1) <= index:
        after += 1
    return digits(prime**after + index - number_of_points(prime, after), prime, dimension)


def number(vector: list[int], prime: int) -> int:
    """The number of the point that a vector lies on."""
    lead = next(place for place, coordinate in enumerate(vector) if coordinate)
    scale = pow(vector[lead], -1, prime)
    after = len(vector) - lead - 1
    spelled = 0
    for coordinate in vector[lead + 1 :]:
        spelled = spelled * prime + coordinate * scale % prime
    return number_of_points(prime, after) + spelled
