"""What a privacy model is: a condition on each class of rows, checked for all classes at once.

A model sees how large each class is, how often each sensitive value occurs in it, and how often in the whole table.
Counts are integers and limits are fractions, so that a class on the limit is decided exactly; where logarithms are
needed, what can't be decided counts as failing.

No model bounds what a release tells about a person to somebody who knows more than the model assumes: none of them has
a privacy loss, and none composes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from enum import Enum
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dither.anonymize.encoding import Encoded
from dither.anonymize.table.classes import Classes, Histogram
from dither.anonymize.table.values import Bools, Codes, Counts
from dither.errors import InvalidParameter

SAFE = 1 << 62


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Overall:
    """What models may know of a sensitive column in the whole table: how often each value occurs, and its hierarchy.

    ``ordered`` says that the values are in an order that means something.
    """

    name: str
    counts: Counts
    levels: tuple[Codes, ...] | None = None
    ordered: bool = True

    @classmethod
    def of(cls, column: Encoded, counts: Counts | None = None) -> Overall:
        """The whole column, suppressed rows included; ``counts`` when only some of its rows are at hand."""
        levels = None if column.hierarchy is None else column.hierarchy.levels(column.values)
        found = column.counts if counts is None else np.asarray(counts, np.int64)
        if found.shape != (column.size,):
            raise InvalidParameter(f"counts must be one number for each of the {column.size} values of {column.name!r}")
        return cls(name=column.name, counts=found, levels=levels, ordered=column.kind.on_a_line)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Seen:
    """What a model may look at to decide: counts of each class and of the whole table."""

    sizes: Counts
    histogram: Histogram | None
    overall: Overall | None
    population: Counts | None


class Model(ABC):
    """A condition that every class of a release must satisfy.

    ``monotone``: two classes that satisfy it do so together; then coarser releases satisfy it too, and a search may
    prune. ``sensitive``: the column it speaks about, or none.
    """

    name: ClassVar[str]

    @property
    def monotone(self) -> bool:
        """Whether classes that satisfy the model still do after merging with each other."""
        return True

    @property
    def sensitive(self) -> str | None:
        """The sensitive column that the model speaks about."""
        return None

    @property
    def asks_nothing(self) -> bool:
        """Whether every class of every table satisfies the model."""
        return False

    def needs(self) -> int:
        """The fewest rows of a class that could satisfy the model."""
        return 1

    def least_values(self) -> int:
        """The fewest different sensitive values of a class that could satisfy the model."""
        return 1

    def check(
        self,
        sizes: Counts,
        histogram: Histogram | None = None,
        overall: Overall | None = None,
        population: Counts | None = None,
    ) -> Bools:
        """Which classes satisfy the model, from counts alone.

        ``histogram`` and ``overall`` are for models about a sensitive column, ``population`` (people of the population
        in each class) for those about a population.
        """
        return self._good(Seen(sizes=sizes, histogram=histogram, overall=overall, population=population))

    @abstractmethod
    def _good(self, seen: Seen) -> Bools:
        """Which classes satisfy the model."""

    def holds(
        self,
        classes: Classes,
        sensitive: Encoded | None = None,
        *,
        overall: Overall | None = None,
        population: Counts | None = None,
    ) -> Bools:
        """Which classes satisfy the model; ``population`` has one number for each row (``KMap.of_rows``)."""
        people = None if population is None else classes.sums(population)
        if self.sensitive is None:
            return self.check(classes.sizes, population=people)
        if sensitive is None or sensitive.name != self.sensitive:
            raise InvalidParameter(f"{self.sentence()}: checking it needs the column {self.sensitive!r}")
        histogram = classes.histogram(sensitive.codes, sensitive.size)
        return self.check(classes.sizes, histogram, overall or Overall.of(sensitive), people)

    def to_json(self) -> dict[str, Any]:
        """The model as JSON, read by ``model_from_json``; fractions are texts, exact."""
        model: Any = self
        return {"model": self.name, **{field.name: _written(getattr(self, field.name)) for field in fields(model)}}

    @abstractmethod
    def sentence(self) -> str:
        """What the model asks, in words."""


class ColumnModel(Model):
    """A model about one sensitive column; a subclass is a dataclass with that field."""

    column: str

    @property
    def sensitive(self) -> str:
        """The sensitive column."""
        return self.column


def counted(model: Model, seen: Seen) -> Histogram:
    """The histogram that a model about a sensitive column needs."""
    if seen.histogram is None:
        raise InvalidParameter(f"{model.sentence()}: checking it needs the counts of {model.sensitive!r} in each class")
    return seen.histogram


def compared(model: Model, seen: Seen) -> tuple[Histogram, Overall]:
    """The histogram and the whole table's counts that a model comparing the two needs."""
    if seen.overall is None:
        raise InvalidParameter(
            f"{model.sentence()}: checking it needs the counts of {model.sensitive!r} in the whole table"
        )
    found = counted(model, seen)
    if found.size != seen.overall.counts.size:
        raise InvalidParameter(f"the classes and the whole table must have the same values of {model.sensitive!r}")
    return found, seen.overall


def integers(bound: int) -> npt.DTypeLike:
    """A type whose sums and products up to ``bound`` are exact: 64 bits where they fit, else Python's integers."""
    return np.int64 if bound < SAFE else object


def at_most(values: npt.NDArray[Any], units: npt.NDArray[Any], limit: Fraction) -> Bools:
    """Whether ``values ≤ limit · units``, decided exactly for whole numbers."""
    a, b = limit.numerator, limit.denominator
    bound = max(_largest(values) * b, _largest(units) * abs(a))
    kind = integers(bound)
    return np.asarray(values.astype(kind) * b <= units.astype(kind) * a, dtype=bool)


def _largest(values: npt.NDArray[Any]) -> int:
    return max(abs(int(values.max())), abs(int(values.min()))) if values.size else 0


def _written(value: Any) -> Any:
    if isinstance(value, Fraction):
        return str(value)
    return value.value if isinstance(value, Enum) else value


def said(value: Fraction) -> str:
    """A fraction in a sentence: a short decimal if it has one."""
    short = f"{float(value):.6g}"
    return short if Fraction(short) == value else str(value)
