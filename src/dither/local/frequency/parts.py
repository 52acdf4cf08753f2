"""Aggregates that several collections share: of what reports name, and of one frequency oracle for each part."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Protocol as Shape

import numpy as np
import numpy.typing as npt

from dither.local.clients.base import bytes_for
from dither.local.core.protocol import Aggregator, Counts, E_co, Payloads, Protocol
from dither.local.frequency.oracle import FrequencyAggregator, FrequencyOracle, Ints, row_numbers


class NamingOracle(FrequencyOracle, ABC):
    """A frequency oracle whose reports name one of a list of things, each of which supports some values."""

    @property
    @abstractmethod
    def things(self) -> int:
        """How many things there are to name."""

    @abstractmethod
    def support_of_named(self, named: Counts) -> Counts:
        """For every value, how many reports support it, from how often each thing was named."""

    @property
    def width(self) -> int:
        """As many bytes as the largest number of a thing needs."""
        return bytes_for(self.things)

    def valid(self, payloads: Payloads) -> npt.NDArray[np.bool_]:
        """Numbers of things."""
        return np.asarray(row_numbers(payloads).astype(np.int64) < self.things)

    def named(self, payloads: Payloads) -> Counts:
        """How often each thing was named."""
        return np.bincount(row_numbers(payloads), minlength=self.things).astype(np.int64, copy=False)

    def support(self, payloads: Payloads) -> Counts:
        """For every value, how many of these payloads support it."""
        return self.support_of_named(self.named(payloads))

    def aggregator(self) -> NamedAggregator:
        """An empty aggregate for this collection."""
        return NamedAggregator(self)


class NamedAggregator(FrequencyAggregator):
    """Counts how often each thing was named; supports are worked out when they are asked for."""

    protocol: NamingOracle
    once = "named"

    def __init__(self, protocol: NamingOracle) -> None:
        Aggregator.__init__(self, protocol, named=np.zeros(protocol.things, dtype=np.int64))

    def count(self, payloads: Payloads) -> None:
        """Add valid payloads."""
        self.counters["named"] += self.protocol.named(payloads)

    def supports(self) -> Counts:
        """For every value, how many reports support it."""
        return self.protocol.support_of_named(self.counters["named"])


class InParts(Shape):
    """A collection whose reports hold payloads of several oracles, or of one among several."""

    @property
    def oracles(self) -> tuple[FrequencyOracle, ...]:
        """The oracles."""

    def pieces(self, payloads: Payloads) -> list[tuple[Ints, Payloads]]:
        """For every oracle, the rows that speak to it and their payloads."""


class PartsAggregator(Aggregator[E_co]):
    """One aggregate for each oracle of a collection."""

    def __init__(self, protocol: Protocol, parts: InParts) -> None:
        super().__init__(protocol)
        self._collection = parts
        self._parts: list[FrequencyAggregator] = [oracle.aggregator() for oracle in parts.oracles]

    def count(self, payloads: Payloads) -> None:
        """Add valid payloads."""
        for part, (rows, piece) in zip(self._parts, self._collection.pieces(payloads), strict=True):
            part.count(np.ascontiguousarray(piece))
            part.reports += rows.size

    def state(self) -> dict[str, Counts]:
        """The states of all oracles, and how many reports each has."""
        found = {f"{i}.{key}": counts for i, part in enumerate(self._parts) for key, counts in part.state().items()}
        return {"reports": np.array([part.reports for part in self._parts], dtype=np.int64), **found}

    def put(self, state: Mapping[str, Counts]) -> None:
        """Take a state in place of one's own."""
        for i, part in enumerate(self._parts):
            part.put({key: state[f"{i}.{key}"] for key in part.state()})
            part.reports = int(state["reports"][i])

    def sound(self) -> bool:
        """Whether every report is of one part."""
        return sum(part.reports for part in self._parts) == self.reports and all(part.sound() for part in self._parts)
