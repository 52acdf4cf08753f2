"""The client of several attributes: all by themselves, one picked by chance, or all as one answer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dither.errors import InvalidData, InvalidParameter
from dither.local.clients.base import Client, ValueDomain, bytes_for, expect_fields, oracle_of, sum_up
from dither.local.clients.coins import SYSTEM, Coins

STRATEGIES = ("split", "sample", "joint")


class AttributesClient(Client, protocol="attributes"):
    """Randomises a record: a mapping by the names of the attributes, or their values in order.

    - *split*: the payloads of all attributes, one after the other.
    - *sample*: the number of one attribute, drawn uniformly, and its payload, filled up with zeros to the longest one.
    - *joint*: the payload of one question whose values are all combinations, the last attribute running fastest.
    """

    def __init__(self, description: Mapping[str, Any]) -> None:
        super().__init__(description)
        self.strategy = description.get("strategy")
        listed = description.get("attributes")
        if self.strategy not in STRATEGIES or not isinstance(listed, list) or not listed:
            raise InvalidParameter(
                f'"strategy" must be one of {", ".join(STRATEGIES)}, and "attributes" a list of one or more'
            )
        self.names = tuple(part.get("name") if isinstance(part, Mapping) else None for part in listed)
        if not all(isinstance(name, str) for name in self.names) or len(set(self.names)) != len(self.names):
            raise InvalidParameter('every attribute must have its own "name"')
        self.joint: Client | None = None
        self.parts: tuple[Client, ...] = ()
        joint = self.strategy == "joint"
        expect_fields(self.description, "protocol", "strategy", "attributes", *(["joint"] if joint else []))
        for part in listed:
            expect_fields(part, "name", "domain" if joint else "collection")
        if joint:
            self.joint = oracle_of(description["joint"])
            self.domains = tuple(ValueDomain(part["domain"]) for part in listed)
            # with fewer values some records could not be answered, and silence would tell which
            if self.joint.description.get("domain") != math.prod(domain.size for domain in self.domains):
                raise InvalidParameter('"joint" must have one value for each combination of the attributes\' values')
        else:
            self.parts = tuple(oracle_of(part["collection"]) for part in listed)
            self.domains = tuple(ValueDomain(part.description.get("domain")) for part in self.parts)

    @property
    def width(self) -> int:
        """The number of bytes of every payload."""
        if self.joint is not None:
            return self.joint.width
        if self.strategy == "split":
            return sum(part.width for part in self.parts)
        return bytes_for(len(self.parts)) + max(part.width for part in self.parts)

    @property
    def epsilon(self) -> float:
        """Of the whole record: all parts together (split), or the largest, since which is asked is drawn (sample)."""
        if self.joint is not None:
            return self.joint.epsilon
        each = [part.epsilon for part in self.parts]
        return sum_up(each) if self.strategy == "split" else max(each)

    def payload(self, value: Any, coins: Coins = SYSTEM) -> bytes:
        """The randomised record."""
        values = self._in_order(value)
        # all are looked up, also those that won't be asked: whether a mistake is noticed must not depend on the coins
        places = [domain.place(one) for domain, one in zip(self.domains, values, strict=True)]
        if self.joint is not None:
            place = 0
            for domain, one in zip(self.domains, places, strict=True):
                place = place * domain.size + one
            return self.joint.payload(place, coins)
        if self.strategy == "split":
            return b"".join(part.payload(one, coins) for part, one in zip(self.parts, values, strict=True))
        asked = coins.below(len(self.parts))
        head = asked.to_bytes(bytes_for(len(self.parts)), "little")
        return (head + self.parts[asked].payload(values[asked], coins)).ljust(self.width, b"\0")

    def _in_order(self, value: Any) -> Sequence[Any]:
        if isinstance(value, Mapping) and set(value) == set(self.names):
            return [value[name] for name in self.names]
        if isinstance(value, list | tuple) and len(value) == len(self.names):
            return value
        raise InvalidData(f"a record has one value for each of {', '.join(map(str, self.names))}; nothing was drawn")
