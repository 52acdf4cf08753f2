"""Several attributes of every person within one ε: all by themselves, one picked by chance, or all as one answer.

Each attribute goes through a frequency oracle of its own. Proof in ``frequencies.md``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dither.entropy import SYSTEM, Source, below_many
from dither.errors import InvalidData, InvalidParameter
from dither.local.clients.base import bytes_for
from dither.local.clients.wire import Json
from dither.local.core.columns import column_names
from dither.local.core.consistent import Consistency
from dither.local.core.losses import response_loss
from dither.local.core.protocol import Payloads, Protocol, check_counters, protocol_of
from dither.local.frequency.choose import best_oracle
from dither.local.frequency.kary import Kary
from dither.local.frequency.oracle import (
    FEW,
    LARGEST_DOMAIN,
    FrequencyOracle,
    Label,
    Shares,
    checked_domain,
    number_rows,
    places,
    row_numbers,
    shares_from_supports,
)
from dither.local.frequency.parts import PartsAggregator
from dither.mechanisms.response_estimates import Target
from dither.mechanisms.response_surveys import Strategy
from dither.numeric import Number, positive, positive_int
from dither.privacy import PrivacyLoss, compose


@dataclass(frozen=True, slots=True, init=False)
class Attributes(Protocol, name="attributes"):
    """Randomises several attributes of every person, in one of three ways.

    ``oracles`` has one oracle for each name (SPLIT, SAMPLE), or one k-ary response over all combinations (JOINT), the
    last attribute running fastest. Records are a mapping from names to columns, or a table with one column for each.

    Guarantee: private as ``loss()`` states under REPLACE of a whole record. SPLIT composes its oracles. SAMPLE asks one
        attribute, drawn by the client whatever the record: the mean of the oracles' curves. JOINT is one answer.
    Accuracy: ``variance(n)``; ``best`` picks the way with the smallest.

    Example:
        >>> survey = Attributes.best({"smokes": ["no", "yes"], "decade": 10}, epsilon=1)
        >>> survey.strategy, survey.loss().pure() <= 1
        (<Strategy.SAMPLE: 'sample'>, True)
    """

    names: tuple[str, ...]
    domains: tuple[int | tuple[Label, ...], ...]
    strategy: Strategy
    oracles: tuple[FrequencyOracle, ...]

    def __init__(self, oracles: Mapping[str, FrequencyOracle], strategy: Strategy = Strategy.SPLIT) -> None:
        if strategy is Strategy.JOINT or not isinstance(strategy, Strategy):
            raise InvalidParameter(
                "strategy must be Strategy.SPLIT or Strategy.SAMPLE; Attributes.joint makes the third"
            )
        if not oracles or not all(isinstance(oracle, FrequencyOracle) for oracle in oracles.values()):
            raise InvalidParameter("every attribute needs a frequency oracle, such as Kary.for_epsilon(10, epsilon=1)")
        _fill(self, tuple(oracles), tuple(o.domain for o in oracles.values()), strategy, tuple(oracles.values()))

    @classmethod
    def joint(cls, domains: Mapping[str, Any], keep: Number) -> Self:
        """One k-ary response over all combinations, kept with probability ``keep``."""
        known = [checked_domain(domain) for domain in domains.values()]
        size = math.prod(domain.size for domain in known)
        made = cls.__new__(cls)
        listed = tuple(domain.size if domain.labels is None else domain.labels for domain in known)
        _fill(made, tuple(domains), listed, Strategy.JOINT, (Kary(size, keep),))
        return made

    @classmethod
    def for_epsilon(cls, domains: Mapping[str, Any], epsilon: Number, strategy: Strategy = Strategy.SPLIT) -> Self:
        """One of the ways at ``epsilon``, with the oracle of smallest variance for each attribute.

        Args:
            domains: Domain of each attribute, by name.
            epsilon: Largest ε that the report of a whole record may cost (REPLACE).
            strategy: How the budget covers the attributes.
        """
        exact = positive(epsilon, "epsilon")
        if strategy is Strategy.JOINT:
            size = math.prod(checked_domain(domain).size for domain in domains.values())
            return cls.joint(domains, Kary.for_epsilon(size, exact).keep)
        each = exact / max(1, len(domains)) if strategy is Strategy.SPLIT else exact
        return cls({name: best_oracle(each, domain).best for name, domain in domains.items()}, strategy)

    @classmethod
    def best(cls, domains: Mapping[str, Any], epsilon: Number) -> Self:
        """The way with the smallest variance, summed over attributes and values, where that is largest."""
        ways = [cls.for_epsilon(domains, epsilon, strategy) for strategy in (Strategy.SPLIT, Strategy.SAMPLE)]
        if math.prod(checked_domain(domain).size for domain in domains.values()) <= LARGEST_DOMAIN:
            ways.append(cls.for_epsilon(domains, epsilon, Strategy.JOINT))
        # their ratio doesn't depend on the number of people
        return min(ways, key=lambda way: sum(way.variance(len(domains)).values()))

    # ------------------------------------------------------------------ what it costs and how exact it is

    def loss(self) -> PrivacyLoss:
        """The loss of one report towards the whole record.

        The curves of SAMPLE have the mean Σwᵢ(rᵢ − e^ε)₊/m: convex in e^ε, so it lies below the line from its value at
        ε = 0 to its zero at the largest odds, and on it if all odds are equal.
        """
        if self.strategy is not Strategy.SAMPLE:
            return compose([(oracle.loss(), 1) for oracle in self.oracles])
        odds = max(oracle.odds for oracle in self.oracles)
        start = sum((o.weight * (o.odds - 1) for o in self.oracles), Fraction(0)) / len(self.oracles)
        return response_loss(odds, start / (odds - 1))

    def variance(self, n: int) -> dict[str, float]:
        """For every attribute the sum of its shares' variances, where it is largest: equal shares."""
        count = Fraction(positive_int(n, "n"), len(self.names) if self.strategy is Strategy.SAMPLE else 1)
        found = {}
        for name, size, (hit, miss) in zip(self.names, self.sizes, self.responses, strict=True):
            report = miss + (hit - miss) / size
            found[name] = float(size * report * (1 - report) / (count * (hit - miss) ** 2))
        return found

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of values of each attribute."""
        return tuple(domain if isinstance(domain, int) else len(domain) for domain in self.domains)

    @property
    def responses(self) -> tuple[tuple[Fraction, Fraction], ...]:
        """Hit and miss of each attribute by itself.

        A value of a joint answer is named if the answer is kept, or is another combination with the same value; the
        rest is spread evenly. That is a k-ary response too.
        """
        if self.strategy is not Strategy.JOINT:
            return tuple((oracle.hit, oracle.miss) for oracle in self.oracles)
        whole = self.oracles[0]
        return tuple(
            (whole.hit + (whole.size // size - 1) * whole.miss, whole.size // size * whole.miss) for size in self.sizes
        )

    # ------------------------------------------------------------------ the collection

    @property
    def width(self) -> int:
        """The number of bytes of a payload."""
        if self.strategy is Strategy.SAMPLE:
            return self._head + max(oracle.width for oracle in self.oracles)
        return sum(oracle.width for oracle in self.oracles)

    @property
    def _head(self) -> int:
        """The bytes that say which attribute was asked."""
        return bytes_for(len(self.oracles)) if self.strategy is Strategy.SAMPLE else 0

    def describe(self) -> Json:
        """The description."""
        if self.strategy is Strategy.JOINT:
            listed = [
                {"name": name, "domain": domain if isinstance(domain, int) else list(domain)}
                for name, domain in zip(self.names, self.domains, strict=True)
            ]
            form = {"protocol": self.name, "strategy": self.strategy.value, "attributes": listed}
            return {**form, "joint": self.oracles[0].describe()}
        parts = [{"name": n, "collection": o.describe()} for n, o in zip(self.names, self.oracles, strict=True)]
        return {"protocol": self.name, "strategy": self.strategy.value, "attributes": parts}

    @classmethod
    def from_description(cls, description: Mapping[str, Any]) -> Self:
        """The inverse."""
        found = cls._read(description)
        if found is None or found.describe() != dict(description):
            raise InvalidParameter(
                'a description of "attributes" has a strategy (split, sample or joint) and a list of attributes, each '
                "with a name of its own and a frequency oracle as its collection (a domain, if joint), and nothing else"
            )
        return found

    @classmethod
    def _read(cls, description: Mapping[str, Any]) -> Self | None:
        try:
            strategy, listed = Strategy(description.get("strategy")), list(description["attributes"])
            if strategy is not Strategy.JOINT:
                parts: dict[str, Any] = {part["name"]: protocol_of(part["collection"]) for part in listed}
                return cls(parts, strategy)
            keep = getattr(protocol_of(description["joint"]), "keep", None)
            return None if keep is None else cls.joint({part["name"]: part["domain"] for part in listed}, keep)
        except InvalidParameter:
            raise
        except (KeyError, TypeError, ValueError):
            return None

    def randomize(self, values: Any, *, source: Source = SYSTEM) -> Payloads:
        """Payloads of many people, one row each; ``values`` maps names to columns, or has a column for each."""
        columns = self._columns(values)
        people = columns[0].size
        if self.strategy is Strategy.JOINT:
            together = np.zeros(people, dtype=np.int64)
            for size, column in zip(self.sizes, columns, strict=True):
                together = together * size + column
            return self.oracles[0].randomize_places(together, source)
        if self.strategy is Strategy.SPLIT:
            parts = [o.randomize_places(column, source) for o, column in zip(self.oracles, columns, strict=True)]
            return np.concatenate(parts, axis=1)
        asked = below_many(len(self.oracles), people, source)
        rows = np.zeros((people, self.width), dtype=np.uint8)
        rows[:, : self._head] = number_rows(asked, self._head)
        for place, (oracle, column) in enumerate(zip(self.oracles, columns, strict=True)):
            chosen = np.flatnonzero(asked == place)
            body = slice(self._head, self._head + oracle.width)
            rows[chosen, body] = oracle.randomize_places(column[chosen], source)
        return rows

    def _columns(self, values: Any) -> list[npt.NDArray[np.int64]]:
        known = column_names(values)
        if known is not None and set(known) == set(self.names):
            # by name: the columns of a table needn't be in the order of the questions
            listed = [values[name] for name in self.names]
        else:
            table = np.asarray(values, dtype=object) if known is None else np.zeros(0)
            if table.ndim != 2 or table.shape[1] != len(self.names):
                raise InvalidData(f"records need a column for each of {', '.join(self.names)}; nothing was drawn")
            # labels stay Python's own: an array of texts would turn 1 into "1", and cut zeros off their ends
            whole = [isinstance(domain, int) and table.size for domain in self.domains]
            listed = [np.array(c.tolist()) if plain else c.tolist() for c, plain in zip(table.T, whole, strict=True)]
        found = [places(column, checked_domain(d)) for column, d in zip(listed, self.domains, strict=True)]
        if len({column.size for column in found}) > 1:
            raise InvalidData("every attribute needs as many values as there are people; nothing was drawn")
        return found

    def pieces(self, payloads: Payloads) -> list[tuple[npt.NDArray[np.int64], Payloads]]:
        """For every oracle, the rows that speak to it and their payloads."""
        everybody = np.arange(payloads.shape[0])
        if self.strategy is Strategy.SAMPLE:
            asked = row_numbers(payloads[:, : self._head])
            chosen = [np.flatnonzero(asked == place) for place in range(len(self.oracles))]
            bodies = [slice(self._head, self._head + oracle.width) for oracle in self.oracles]
            return [(rows, payloads[rows, body]) for rows, body in zip(chosen, bodies, strict=True)]
        ends = np.cumsum([0, *(oracle.width for oracle in self.oracles)])
        return [(everybody, payloads[:, ends[i] : ends[i + 1]]) for i in range(len(self.oracles))]

    def valid(self, payloads: Payloads) -> npt.NDArray[np.bool_]:
        """Rows whose pieces are all valid, and zero beyond them."""
        good = np.ones(payloads.shape[0], dtype=np.bool_)
        if self.strategy is Strategy.SAMPLE:
            good = row_numbers(payloads[:, : self._head]).astype(np.int64) < len(self.oracles)
        for oracle, (rows, piece) in zip(self.oracles, self.pieces(payloads), strict=True):
            good[rows] &= oracle.valid(np.ascontiguousarray(piece))
            if self.strategy is Strategy.SAMPLE:
                good[rows] &= ~payloads[rows, self._head + oracle.width :].any(axis=1)
        return np.asarray(good)

    def aggregator(self) -> AttributesAggregator:
        """An empty aggregate for this collection."""
        return AttributesAggregator(self)

    def reduced(self) -> Attributes:
        """The first two attributes, for few values, so that the law of the client can be listed in full."""
        if self.strategy is not Strategy.JOINT:
            few = dict(zip(self.names[:2], (oracle.reduced() for oracle in self.oracles), strict=False))
            return Attributes(few, self.strategy)
        sizes = {name: min(size, FEW - 1) for name, size in zip(self.names[:2], self.sizes, strict=False)}
        odds, size = self.oracles[0].odds, math.prod(sizes.values())
        return Attributes.joint(sizes, odds / (odds + size - 1))

    def inputs(self) -> list[tuple[Label, ...]]:
        """All records."""
        return list(itertools.product(*(range(d) if isinstance(d, int) else d for d in self.domains)))


def _fill(
    protocol: Attributes,
    names: tuple[str, ...],
    domains: tuple[int | tuple[Label, ...], ...],
    strategy: Strategy,
    oracles: tuple[FrequencyOracle, ...],
) -> None:
    if not names or not all(isinstance(name, str) for name in names):
        raise InvalidParameter("at least one attribute is needed, each with a name")
    check_counters(sum(oracle.size for oracle in oracles))
    for field, value in (("names", names), ("domains", domains), ("strategy", strategy), ("oracles", oracles)):
        object.__setattr__(protocol, field, value)


class AttributesAggregator(PartsAggregator[dict[str, Shares]]):
    """One aggregate for each oracle."""

    protocol: Attributes

    def __init__(self, protocol: Attributes) -> None:
        super().__init__(protocol, protocol)

    def sound(self) -> bool:
        """Whether every report is of one attribute (SAMPLE), or of each."""
        if self.protocol.strategy is Strategy.SAMPLE:
            return super().sound()
        return all(part.reports == self.reports and part.sound() for part in self._parts)

    def estimate(
        self,
        confidence: Number = 0.95,
        *,
        simultaneous: bool = True,
        target: Target = Target.POPULATION,
        consistent: Consistency | None = None,
    ) -> dict[str, Shares]:
        """The shares of every attribute's values; ``simultaneous`` intervals hold together within an attribute."""
        protocol = self.protocol
        silent = [name for name, part in zip(protocol.names, self._parts, strict=False) if not part.reports]
        if self.reports and silent:
            raise InvalidData(
                f"nobody was asked about {', '.join(silent)} yet: everybody answers one question by chance"
            )
        if protocol.strategy is not Strategy.JOINT:
            return {
                name: part.estimate(confidence, simultaneous=simultaneous, target=target, consistent=consistent)
                for name, part in zip(protocol.names, self._parts, strict=True)
            }
        if not self.reports:
            raise InvalidData("there are no reports to estimate from")
        sizes = protocol.sizes
        table = self._parts[0].supports().reshape(sizes)
        found = {}
        for axis, (name, domain) in enumerate(zip(protocol.names, protocol.domains, strict=True)):
            hit, miss = protocol.responses[axis]
            found[name] = shares_from_supports(
                table.sum(axis=tuple(other for other in range(len(sizes)) if other != axis)),
                self.reports,
                hit=hit,
                miss=miss,
                confidence=confidence,
                comparisons=1 if sizes[axis] == 2 or not simultaneous else sizes[axis],
                simultaneous=simultaneous,
                target=target,
                labels=None if isinstance(domain, int) else domain,
                consistent=consistent,
            )
        return found
