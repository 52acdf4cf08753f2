"""k-anonymity and k-map: nobody is alone in the release, or in the population."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dither.anonymize.encoding import cleaned, dictionary
from dither.anonymize.models.base import Model, Seen
from dither.anonymize.table.read import as_table
from dither.anonymize.table.values import Bools, Counts, plain
from dither.errors import InvalidParameter
from dither.numeric import positive_int


@dataclass(frozen=True, slots=True)
class KAnonymity(Model):
    """Every row looks like at least k−1 others (Sweeney 2002).

    Example:
        >>> KAnonymity(3).check(np.array([3, 2, 7])).tolist()
        [True, False, True]
    """

    name: ClassVar[str] = "k-anonymity"

    k: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", positive_int(self.k, "k"))

    @property
    def asks_nothing(self) -> bool:
        """Whether k is 1: every row looks like itself."""
        return self.k == 1

    def needs(self) -> int:
        """The fewest rows of a class: k."""
        return self.k

    def _good(self, seen: Seen) -> Bools:
        return np.asarray(seen.sizes >= self.k)

    def sentence(self) -> str:
        """What the model asks, in words."""
        return f"k-anonymity: every class has at least {self.k} rows"


@dataclass(frozen=True, slots=True)
class KMap(Model):
    """Every row looks like at least k people of a population, of whom the table is a sample (Sweeney 2002).

    ``population`` has a line for each person, with the quasi-identifiers in columns of the same names and spelling; or,
    with ``count``, a line for each combination and its number of people in that column. People of the population are
    counted when their exact combination occurs in the table, which is never more than those who fit a class: a class
    that passes has k people.
    """

    name: ClassVar[str] = "k-map"

    k: int
    population: Any = field(repr=False, compare=False)
    count: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", positive_int(self.k, "k"))
        table = as_table(self.population)
        object.__setattr__(self, "population", table)
        if self.count is not None:
            if self.count not in table.column_names:
                raise InvalidParameter(f"the population has no column {self.count!r} with numbers of people")
            column = table.column(self.count)
            if not pa.types.is_integer(column.type) or column.null_count or (np.asarray(column) < 0).any():
                raise InvalidParameter(f"the column {self.count!r} must hold whole numbers of people, none missing")

    def needs(self) -> int:
        """The fewest rows of a class: one, since people of the population count."""
        return 1

    def of_rows(self, table: pa.Table, quasi: Sequence[str]) -> Counts:
        """Whole numbers for the rows of a table that add up, within any class, to people of the population.

        The first row of each combination of quasi-identifiers carries all people who share it; the others carry none.
        """
        lacking = [column for column in quasi if column not in self.population.column_names]
        if lacking:
            raise InvalidParameter(f"the population has no column {', '.join(map(repr, lacking))}")
        people: dict[tuple[str | None, ...], int] = {}
        numbers = (
            [1] * self.population.num_rows if self.count is None else self.population.column(self.count).to_pylist()
        )
        for key, number in zip(_keys(self.population, quasi), numbers, strict=True):
            people[key] = people.get(key, 0) + number
        carried = np.zeros(table.num_rows, np.int64)
        for row, key in enumerate(_keys(table, quasi)):
            carried[row] = people.pop(key, 0)
        return carried

    def _good(self, seen: Seen) -> Bools:
        if seen.population is None:
            raise InvalidParameter(f"{self.sentence()}: checking it needs the people of the population in each class")
        return np.asarray(seen.population >= self.k)

    def to_json(self) -> dict[str, Any]:
        """The model as JSON; the population itself stays where it is."""
        return {"model": self.name, "k": self.k, "count": self.count}

    def sentence(self) -> str:
        """What the model asks, in words."""
        return f"k-map: every class fits at least {self.k} people of the population"


def _keys(table: pa.Table, quasi: Sequence[str]) -> list[tuple[str | None, ...]]:
    """The combination of quasi-identifiers of each row, as text; text is taken of distinct values only."""
    columns: list[list[str | None]] = []
    for name in quasi:
        codes, values = dictionary(cleaned(table.column(name)))
        texts = plain(values).to_pylist()
        columns.append([texts[code] for code in codes.tolist()])
    return list(zip(*columns, strict=True))
