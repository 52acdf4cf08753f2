"""What the files of this folder have in common: cells and choices that are measured, and recipes that read answers off.

Everything here follows from public facts. What one unit adds to a cell is bounded by the cell itself, so the price can
be computed before data is read. What a recipe makes of released cells is post-processing, so it is free: the same cells
give the same values and intervals, bit by bit. Intervals speak of the noise alone. What clamping, the grid and the
bound on contributions did to the exact answer isn't in them.

Values stay unbiased where they can: a noisy count below zero is shown as it is, since cutting it off would make sums of
counts too large. Ratios can't be unbiased; they are kept within what the declared bounds allow. Where the noisy count
isn't clearly above zero nothing is known, whatever the group holds: the interval is all that the bounds allow, and the
value its middle, so that an empty group answers like any other.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dither.mechanisms import DiscreteGaussian, Exponential, PermuteAndFlip, Quantile
from dither.mechanisms.base import Source
from dither.privacy import PrivacyLoss
from dither.query.aggregates.spread import Floats, Noise
from dither.query.arrow import array_of
from dither.query.expressions.expressions import Expression, canonical
from dither.query.kinds import Kind, Value
from dither.query.measure.measures import Bins, Cap, DistinctValues, Total
from dither.query.plan.plan import Gridded

Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]
Chooser: TypeAlias = Quantile | PermuteAndFlip | Exponential
Exact: TypeAlias = Total | DistinctValues
Item = TypeVar("Item")

DEFAULT_CONFIDENCE = Fraction(19, 20)


# ---------------------------------------------------------------------------------------------- what is measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One number for each group: what is measured, and the part of one unit in it, [low, high] or nothing."""

    exact: Exact
    low: int
    high: int


class AggregateChoice(ABC):
    """What a mechanism of its own chooses in each group, from rows counted in ``bins``.

    ``counts`` says what is counted, for people; ``drawn`` is the type of what is chosen.
    """

    __slots__ = ()

    bins: int
    counts: ClassVar[str]
    drawn: ClassVar[type[np.generic]]

    @abstractmethod
    def alone(self, rows: int) -> Fraction:
        """By how much so many rows that come or go move scores, relative to each other."""

    @abstractmethod
    def chooser(self, scale: Fraction, *, pure: bool) -> Chooser:
        """The mechanism, for a budget of pure ε or of zCDP."""

    @abstractmethod
    def loss(self, ratio: Fraction, *, pure: bool) -> PrivacyLoss:
        """What one choice costs a unit that comes or goes, whose rows move scores by so many scales."""

    @abstractmethod
    def release(self, chooser: Chooser, bins: Ints, counts: Ints, source: Source) -> int | float:
        """One draw in one group."""

    @abstractmethod
    def error(self, chooser: Chooser, confidence: Fraction) -> str:
        """The error to expect, in words."""


@dataclass(slots=True)
class Building:
    """Cells and choices so far; what two aggregates have in common exists once."""

    rows: int
    cells: list[Cell] = field(default_factory=list)
    bins: list[Bins] = field(default_factory=list)
    choices: list[AggregateChoice] = field(default_factory=list)

    def total(
        self,
        factors: tuple[Gridded, ...],
        present: tuple[Expression, ...],
        part: tuple[int, int],
        cap: Cap = Cap.CLAMP,
    ) -> int:
        """The place of a sum of products, of which a unit's part is within ``part``."""
        # which of the expressions that must be there comes first makes no difference
        ordered = tuple(sorted(set(present), key=canonical))
        total = Total(factors=factors, present=ordered, low=part[0], high=part[1], cap=cap)
        return self.cell(Cell(exact=total, low=part[0], high=part[1]))

    def cell(self, cell: Cell) -> int:
        """The place of a cell."""
        return place_in(self.cells, cell)

    def count(self, *present: Expression) -> int:
        """The place of the number of rows in which nothing of this is missing."""
        return self.total((), present, (0, self.rows))

    def counted(self, grid: Gridded) -> int:
        """The place of a histogram."""
        return place_in(self.bins, Bins(grid=grid))

    def choice(self, choice: AggregateChoice) -> int:
        """The place of a choice."""
        return place_in(self.choices, choice)


def place_in(items: list[Item], item: Item) -> int:
    """Where the item is in the list, to which it is added if it isn't there."""
    if item not in items:
        items.append(item)
    return items.index(item)


# ---------------------------------------------------------------------------------------------- what is released


@dataclass(frozen=True, slots=True, kw_only=True)
class Noisy:
    """What was released about ``size`` groups: cells with the law of their noise, and choices."""

    size: int
    cells: Sequence[Ints]
    noise: Sequence[Noise]
    choices: Sequence[npt.NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """An aggregate's value in each group and the ends of its interval; the ends of choices are NULL."""

    value: pa.Array[Any]
    low: pa.Array[Any]
    high: pa.Array[Any]

    @classmethod
    def of(cls, value: npt.NDArray[Any], low: npt.NDArray[Any], high: npt.NDArray[Any]) -> Estimate:
        """From arrays of numbers."""
        return cls(value=pa.array(value), low=pa.array(low), high=pa.array(high))


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanisms:
    """The mechanisms of a priced question: one for each cell, one for each choice."""

    noise: Sequence[Noise]
    choices: Sequence[AggregateChoice]
    choosers: Sequence[Chooser]


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedError:
    """The error of one aggregate in a group. ``half_width`` is None where the data has a say in it.

    ``text`` says it for people, ``mechanism`` what it comes from; it holds with probability ``confidence``.
    """

    half_width: float | None
    text: str
    confidence: Fraction
    mechanism: str


# ---------------------------------------------------------------------------------------------- recipes


class Recipe(ABC):
    """How an aggregate is read off released cells and choices.

    It is kept with an answer: the fields and names of its classes are permanent (``catalogue.to_json``).
    """

    __slots__ = ()

    @property
    def cells(self) -> tuple[int, ...]:
        """The cells that it is read off, each once."""
        return ()

    @property
    def choices(self) -> tuple[int, ...]:
        """The choices that it is read off; with any, it has no interval."""
        return ()

    @property
    def linear(self) -> tuple[tuple[tuple[int, Fraction], ...], Fraction] | None:
        """(cell, weight) pairs and a constant, if it is a linear form of cells."""
        return None

    @abstractmethod
    def estimate(self, noisy: Noisy, confidence: Fraction = DEFAULT_CONFIDENCE) -> Estimate:
        """Values, and intervals that cover the exact answers with this probability each."""

    def points(self, noisy: Noisy) -> pa.Array[Any]:
        """Values alone, where intervals aren't needed: much quicker for means and moments."""
        return self.estimate(noisy).value

    def ends(self, noisy: Noisy, confidence: Fraction) -> tuple[Floats, Floats, Bools] | None:
        """The interval where it isn't a linear form, and where there may be no exact value at all; None if unknown."""
        del noisy, confidence
        return None

    @abstractmethod
    def error(self, by: Mechanisms, confidence: Fraction) -> tuple[float | None, str]:
        """The error to expect before data is read: a half width if no data has a say in it, and words."""

    def mechanism(self, by: Mechanisms) -> str:
        """What it is released by, in words."""
        law = "Gaussian" if isinstance(by.noise[self.cells[0]], DiscreteGaussian) else "Laplace"
        return f"{law} noise on {len(self.cells)} sums"

    def predicted(self, by: Mechanisms, confidence: Fraction) -> PredictedError:
        """The error to expect at this confidence, and what it comes from."""
        half, text = self.error(by, confidence)
        return PredictedError(half_width=half, text=text, confidence=confidence, mechanism=self.mechanism(by))


@dataclass(frozen=True, slots=True)
class Constant(Recipe):
    """An aggregate that its public bounds alone decide: no unit can move it, so it is exact and free."""

    value: Fraction
    whole: bool = False

    @property
    def linear(self) -> tuple[tuple[tuple[int, Fraction], ...], Fraction]:
        """No cell."""
        return (), self.value

    def estimate(self, noisy: Noisy, confidence: Fraction = DEFAULT_CONFIDENCE) -> Estimate:
        """The same everywhere."""
        del confidence
        same, drawn = (int(self.value), np.int64) if self.whole else (float(self.value), np.float64)
        value = np.full(noisy.size, same, drawn)
        return Estimate.of(value, value, value)

    def error(self, by: Mechanisms, confidence: Fraction) -> tuple[float, str]:
        """None."""
        del by, confidence
        return 0.0, "exact"

    def mechanism(self, by: Mechanisms) -> str:
        """None."""
        del by
        return "decided by public bounds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen(Recipe):
    """A quantile or a mode: what a mechanism chose, as it is or, for a mode, by its place among the public values."""

    choice: int
    values: tuple[Value, ...] | None = None
    kind: Kind = Kind.DOUBLE

    @property
    def choices(self) -> tuple[int, ...]:
        """The one."""
        return (self.choice,)

    def estimate(self, noisy: Noisy, confidence: Fraction = DEFAULT_CONFIDENCE) -> Estimate:
        """What was drawn, without an interval."""
        del confidence
        drawn = noisy.choices[self.choice]
        value: pa.Array[Any]
        if self.values is None:
            value = pa.array(drawn.astype(np.float64))
        else:
            value = array_of(self.values, self.kind).take(pa.array(drawn))
        nothing = pa.nulls(noisy.size, value.type)
        return Estimate(value=value, low=nothing, high=nothing)

    def error(self, by: Mechanisms, confidence: Fraction) -> tuple[None, str]:
        """As its mechanism says it."""
        return None, by.choices[self.choice].error(by.choosers[self.choice], confidence)

    def mechanism(self, by: Mechanisms) -> str:
        """The mechanism's name and scale."""
        chooser = by.choosers[self.choice]
        name = "permute-and-flip" if isinstance(chooser, PermuteAndFlip) else "exponential mechanism"
        return f"{name}, scale {float(chooser.scale):.4g}"


def short(value: float) -> str:
    """Rounded up to three digits, or to a whole number above 1000."""
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(value)))
    scale = 10.0**digits
    # what is a short number already must not be pushed to the next one by its last bit
    text = f"{math.ceil(value * scale * (1 - 1e-12)) / scale:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
