"""Heavy hitters: the frequent values of a domain far too large to list, found symbol by symbol. ``heavy_hitters.md``.

A prefix tree (TreeHist of Bassily, Nissim, Stemmer & Thakurta 2017; the prefix extending method of Wang, Li & Jha
2018). Everybody draws a level of the tree and reports the beginning of their value, of that level's length, by a
sketch. The collector goes down the tree: the ways to continue what was frequent at one level are looked up at the
next, which other people report. Nobody is asked twice, and nothing depends on answers of others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dither.entropy import SYSTEM, Source, below_many
from dither.errors import InvalidData, InvalidParameter
from dither.local.clients.heavy import Spelling, Symbols, symbols_of
from dither.local.clients.wire import Json
from dither.local.core.columns import column_of
from dither.local.core.protocol import Aggregator, Counts, Payloads, Protocol, check_counters, total
from dither.local.sketches.count_mean import CountMeanSketch
from dither.local.sketches.fragments import sketch_of
from dither.local.sketches.sketch import (
    Discovered,
    HashedSketch,
    SketchAggregator,
    found_above_zero,
    read,
    smallest_seen,
)
from dither.mechanisms.base import failure_probability
from dither.numeric import Number, positive_int
from dither.privacy import PrivacyLoss

# Expected number of false beginnings that pass each level but the last, where it is decided.
FALSE_BEGINNINGS = 0.5
# Bounds of what all beginnings of such a level depend on may fail so often: then more are looked at, or fewer.
LOOSE = 0.01
# Number of beginnings that pass a level, as detection limits assume it.
GO_ON = 64


@dataclass(frozen=True, slots=True, init=False)
class HeavyHitters(Protocol, name="heavy_hitters"):
    """Collects values written as ``length`` symbols, of which ``step`` more are known at each level.

    ``values`` says what symbols are: the bits of whole numbers, the bytes of a text in UTF-8, or the letters of an
    ``alphabet``. Longer texts are cut; letters that aren't in the alphabet become one letter.

    Args:
        sketch: Sketch of beginnings, of an open domain; its loss is that of a report.
        values: How values are written: whole numbers, UTF-8 or letters.
        length: Symbols of a value; what is longer is cut.
        step: Symbols that become known at each level.
        alphabet: Letters that values are written in; any other becomes one letter.

    Guarantee: that of the sketch, for the whole value: a person reports one beginning, and the level is drawn without
        regard to the value.
    Assumes: one report for each person.
    Accuracy: shares have the error of the sketch with the reports of one level, n/levels; ``detection_limit``. With the
        stated confidence no value is listed that nobody has.

    Example:
        >>> numbers = HeavyHitters.for_epsilon(4, values=Spelling.INTEGERS, length=64, step=8)
        >>> numbers.levels, numbers.width, numbers.loss().pure() <= 4
        (8, 35, True)
        >>> f"{numbers.detection_limit(n=1_000_000):.4f}"
        '0.0079'
    """

    values: Spelling
    length: int
    step: int
    sketch: HashedSketch
    alphabet: str | None
    _symbols: Symbols = field(init=False, repr=False, compare=False)

    def __init__(
        self, *, sketch: HashedSketch, values: Spelling, length: int, step: int = 1, alphabet: str | None = None
    ) -> None:
        if not all(isinstance(part, kind) for part, kind in ((values, Spelling), (sketch, HashedSketch))):
            raise InvalidParameter("values is a Spelling, and sketch a CountMeanSketch or HadamardSketch")
        if sketch.domain is not None:
            raise InvalidParameter("the sketch of heavy hitters must have an open domain")
        symbols = Symbols(values, length=length, step=step, alphabet=alphabet)
        check_counters(symbols.levels * sketch.hashes * sketch.buckets)
        given = {"values": values, "length": length, "step": step, "sketch": sketch, "alphabet": alphabet}
        self._put(**given, _symbols=symbols)

    @classmethod
    def for_epsilon(
        cls,
        epsilon: Number,
        *,
        values: Spelling,
        length: int,
        step: int = 1,
        alphabet: str | None = None,
        hashes: int = 2048,
        buckets: int = 256,
    ) -> Self:
        """A collection whose loss is no more than ``epsilon``, with the count-mean sketch of least variance.

        Args:
            epsilon: Largest ε that one report may cost (REPLACE).
            values: How values are written: whole numbers, UTF-8 or letters.
            length: Symbols of a value; what is longer is cut.
            step: Symbols that become known at each level.
            alphabet: Letters that values are written in; any other becomes one letter.
            hashes: Number of hash functions; more make collisions matter less, at no cost of privacy.
            buckets: Buckets of each function; each costs the count-mean sketch a bit of every report.
        """
        sketch = CountMeanSketch.optimized(epsilon, hashes=hashes, buckets=buckets)
        return cls(sketch=sketch, values=values, length=length, step=step, alphabet=alphabet)

    @property
    def levels(self) -> int:
        """How many levels people are split among."""
        return self._symbols.levels

    @property
    def symbols(self) -> Symbols:
        """How values are written."""
        return self._symbols

    def loss(self) -> PrivacyLoss:
        """That of the sketch."""
        return self.sketch.loss()

    @property
    def width(self) -> int:
        """The level, and the payload of the sketch."""
        return 1 + self.sketch.width

    def variance(self, n: int, share: Number | None = None, *, concentration: Number | None = None) -> float:
        """The variance of a share from ``n`` reports, of which one level has n/levels.

        Args:
            n: Number of reports.
            share: True share to state it for; by default the one where it is largest.
            concentration: Sum of the squared shares of all other values; the worst by default.
        """
        here = max(1, positive_int(n, "n") // self.levels)
        return self.sketch.variance(here, share, concentration=concentration)

    def detection_limit(
        self, n: int, confidence: Number = 0.95, *, squares: Number = "1/100", largest: Number = "1/10"
    ) -> float:
        """The share from which on a value is found with this confidence, from ``n`` reports; for planning.

        By normal approximations. ``squares`` and ``largest`` are the sum of squared shares and the largest share, of
        beginnings, that one expects at the last level.

        Args:
            n: Number of reports.
            confidence: Probability with which the value is found.
            squares: Sum of squared shares that is expected of the other values.
            largest: Largest share that is expected of any other value.
        """
        here = max(1, positive_int(n, "n") // self.levels)
        failure = failure_probability(confidence)
        candidates = GO_ON * self._symbols.base**self.step
        return smallest_seen(
            self.sketch,
            here,
            each=min(failure, FALSE_BEGINNINGS) / candidates,
            confidence=1 - failure / self.levels,
            squares=squares,
            largest=largest,
        )

    def describe(self) -> Json:
        """The description."""
        letters = {} if self.alphabet is None else {"alphabet": self.alphabet}
        return {
            "protocol": self.name,
            "values": self.values.value,
            **letters,
            "length": self.length,
            "step": self.step,
            "sketch": self.sketch.describe(),
        }

    @classmethod
    def from_description(cls, description: Mapping[str, Any]) -> Self:
        """The inverse."""
        symbols = symbols_of(description)
        return cls._exactly(
            description,
            sketch=sketch_of(description.get("sketch")),
            values=symbols.values,
            length=symbols.length,
            step=symbols.step,
            alphabet=description.get("alphabet"),
        )

    def inputs(self) -> list[str | int]:
        """A few values to try."""
        if self.values is Spelling.INTEGERS:
            return [0, 1, (1 << self.length) - 1, 1 << (self.length - 1)]
        first = "a" if self.alphabet is None else self.alphabet[0]
        return ["", first, first * self.length]

    def reduced(self) -> HeavyHitters:
        """The same coins with a table so small that the law of the client can be listed in full."""
        sketch = self.sketch.resized(domain=None, hashes=2, buckets=2)
        return HeavyHitters(sketch=sketch, values=Spelling.INTEGERS, length=2, step=1)

    def randomize(self, values: Any, *, source: Source = SYSTEM) -> Payloads:
        """Payloads of many people, one row each, from a list of values."""
        different, codes = _different(values)
        spelled = [self._symbols.number(value) for value in different]
        levels = below_many(self.levels, codes.size, source)
        pairs, people = np.unique(codes * self.levels + levels, return_inverse=True)
        texts: dict[str, int] = {}
        places = np.empty(pairs.size, dtype=np.int64)
        for number, pair in enumerate(pairs.tolist()):
            code, level = divmod(pair, self.levels)
            text = self._symbols.text(self._symbols.beginning(spelled[code], level), level)
            places[number] = texts.setdefault(text, len(texts))
        rows = np.empty((codes.size, self.width), dtype=np.uint8)
        rows[:, 0] = levels
        rows[:, 1:] = self.sketch.randomize_coded(list(texts), places[people], source)
        return rows

    def valid(self, payloads: Payloads) -> npt.NDArray[np.bool_]:
        """A level that there is, and a payload of the sketch."""
        return (payloads[:, 0] < self.levels) & self.sketch.valid(np.ascontiguousarray(payloads[:, 1:]))

    def aggregator(self) -> HeavyHittersAggregator:
        """An empty aggregate for this collection."""
        return HeavyHittersAggregator(self)


class HeavyHittersAggregator(Aggregator[Discovered]):
    """A sketch for each level."""

    protocol: HeavyHitters

    def __init__(self, protocol: HeavyHitters) -> None:
        super().__init__(protocol)
        self.by_level: list[SketchAggregator] = [protocol.sketch.aggregator() for _ in range(protocol.levels)]

    def count(self, payloads: Payloads) -> None:
        """Add valid payloads."""
        for level, aggregate in enumerate(self.by_level):
            aggregate.add(np.ascontiguousarray(payloads[payloads[:, 0] == level, 1:]))

    def state(self) -> dict[str, Counts]:
        """The counters of all levels."""
        states = [aggregate.state() for aggregate in self.by_level]
        return {name: np.stack([state[name] for state in states]) for name in states[0]}

    def put(self, state: Mapping[str, Counts]) -> None:
        """Take a state in place of one's own."""
        for level, aggregate in enumerate(self.by_level):
            aggregate.put({name: counts[level] for name, counts in state.items()})
            aggregate.reports = total(aggregate.function_reports)

    def sound(self) -> bool:
        """Whether every report is of one level."""
        levels = self.by_level
        return sum(one.reports for one in levels) == self.reports and all(one.sound() for one in levels)

    def estimate(self, confidence: Number = 0.95, *, most: int = 256) -> Discovered:
        """The values that were found, with their shares among the people who reported at the last level.

        At most ``most`` beginnings go on at each level, the most frequent ones. The intervals hold for all values that
        were looked up at the last level together. People draw their levels, so those of the last are a fair sample of
        all.
        """
        if not all(aggregate.reports for aggregate in self.by_level):
            raise InvalidData("there are too few reports to estimate from: a level has none")
        symbols = self.protocol.symbols
        going: list[int | None] = [None]
        for level, aggregate in enumerate(self.by_level):
            numbers = [child for number in going for child in symbols.children(number, level)]
            texts = [symbols.text(number, level) for number in numbers]
            if level == self.protocol.levels - 1:
                return found_above_zero(
                    aggregate, texts, [symbols.value(number) for number in numbers], confidence=confidence
                )
            going = self._going_on(aggregate, numbers, texts, positive_int(most, "most"))
        raise AssertionError("there is a last level")

    def _going_on(
        self, aggregate: SketchAggregator, numbers: list[int], texts: list[str], most: int
    ) -> list[int | None]:
        """The beginnings that stand out, the most frequent ones."""
        if not numbers:
            return []
        shares, _, intervals = read(aggregate, texts, each=FALSE_BEGINNINGS / len(numbers), all_values=LOOSE)
        seen = np.flatnonzero(intervals[:, 0] > 0)
        return [numbers[place] for place in seen[np.argsort(-shares[seen], kind="stable")][:most].tolist()]


def _different(values: Any) -> tuple[list[Any], npt.NDArray[np.int64]]:
    """The different values, of any size, and which of them everybody has."""
    listed = column_of(values)
    if isinstance(listed, np.ndarray):
        present, codes = np.unique(listed, return_inverse=True)
        return present.tolist(), codes.astype(np.int64, copy=False)
    known: dict[str | int, int] = {}
    found = []
    for value in listed:
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise InvalidData("values are a list of texts or whole numbers; nothing was drawn")
        found.append(known.setdefault(value, len(known)))
    return list(known), np.array(found, dtype=np.int64)
