"""Clients that report a value of an ordered domain so that ranges of values can be counted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dither.errors import InvalidParameter
from dither.local.clients.base import (
    Client,
    InnerClient,
    ValueDomain,
    bytes_for,
    client_of,
    epsilon_up,
    fraction,
    whole,
)
from dither.local.clients.coins import SYSTEM, Coins
from dither.local.clients.means import check_bit

LARGEST_LEVELS = 24


class HierarchicalRangesClient(
    InnerClient, protocol="hierarchical_ranges", fields=("domain", "branching", "collection")
):
    """Draws a level of a tree over the domain and reports the value's node there; the tree has ``branching`` branches.

    ``collection`` is that of several attributes of which one is sampled: for each level, from the coarsest, the node.
    """

    def __init__(self, description: Mapping[str, Any]) -> None:
        super().__init__(description)
        self.domain = ValueDomain(description.get("domain"))
        self.branching = whole(description, "branching", least=2, most=2**LARGEST_LEVELS)
        self.levels = levels_of(self.domain.size, self.branching)
        collection = description.get("collection")
        if _sizes(collection) != [self.branching ** (level + 1) for level in range(self.levels)]:
            raise InvalidParameter(
                f"the collection must have an attribute for each of {self.levels} levels, of branching^level values"
            )
        if not isinstance(collection, Mapping) or collection.get("strategy") != "sample":
            raise InvalidParameter('the "strategy" of the collection must be "sample": one level is drawn')
        self.inner = client_of(collection)

    def payload(self, value: Any, coins: Coins = SYSTEM) -> bytes:
        """The payload of the level that was drawn."""
        place = self.domain.place(value)
        nodes = [place // self.branching ** (self.levels - level) for level in range(1, self.levels + 1)]
        return self.inner.payload(nodes, coins)


def _sizes(collection: Any) -> list[Any]:
    """The numbers of values of all attributes of a collection, none if it isn't one of attributes."""
    listed = collection.get("attributes") if isinstance(collection, Mapping) else None
    parts = [part.get("collection") for part in listed if isinstance(part, Mapping)] if isinstance(listed, list) else []
    return [part.get("domain") if isinstance(part, Mapping) else None for part in parts]


class WaveletRangesClient(Client, protocol="wavelet_ranges", fields=("domain", "keep")):
    """Draws a level of a binary tree and a row of a Hadamard matrix, and sends one bit about the value's half there.

    The tree has 2^levels leaves, as few as the domain needs. At level l, from 0, the node of a value is the number that
    its first l of ``levels`` binary digits spell, and its half is the next digit. The row r is uniform below 2^l; the
    bit is the half, plus the number of ones that r and the node have in common, modulo 2. It is sent as it is with
    probability ``keep``, else turned.
    """

    def __init__(self, description: Mapping[str, Any]) -> None:
        super().__init__(description)
        self.domain = ValueDomain(description.get("domain"))
        self.keep = fraction(description, "keep")
        check_bit(self.keep)
        self.levels = levels_of(self.domain.size, 2)

    @property
    def width(self) -> int:
        """A byte for the level; row and bit."""
        return 1 + bytes_for(2**self.levels)

    @property
    def epsilon(self) -> float:
        """A bit by randomised response."""
        return epsilon_up(self.keep / (1 - self.keep))

    def payload(self, value: Any, coins: Coins = SYSTEM) -> bytes:
        """The level in the first byte, then 2·row + bit, the lowest byte first."""
        place = self.domain.place(value)
        level = coins.below(self.levels)
        row = coins.below(1 << level)
        rest = place >> (self.levels - level - 1)
        node, half = rest >> 1, rest & 1
        bit = (half + (row & node).bit_count() + (not coins.chance(self.keep))) % 2
        return bytes([level]) + (2 * row + bit).to_bytes(self.width - 1, "little")


def levels_of(size: int, branching: int) -> int:
    """How many levels a tree needs below its root to have a leaf for every value."""
    levels, leaves = 1, branching
    while leaves < size:
        levels, leaves = levels + 1, leaves * branching
    if leaves > 2**LARGEST_LEVELS:
        raise InvalidParameter(f"a tree for ranges has at most 2^{LARGEST_LEVELS} leaves; got {leaves}")
    return levels
