"""What somebody who knows certain columns could do: the prosecutor, the journalist and the marketer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dither.anonymize.risks.combinations import codes_of, unwrapped, unwrapped_type
from dither.anonymize.table.read import as_table
from dither.anonymize.table.row_keys import alike
from dither.anonymize.table.values import Counts
from dither.errors import InvalidData, InvalidParameter
from dither.numeric import positive_int

# Classes are counted by size between these, and between k: a band is below it or not.
BANDS = (1, 2, 3, 5, 10, 20, 50, 100, 1_000, 10_000, 100_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Classes whose size is from ``low`` to ``high`` (None: no end): how many, and how many rows they hold."""

    low: int
    high: int | None
    classes: int
    rows: int

    def __str__(self) -> str:
        if self.high is None:
            return f"{self.low:,}+"
        return f"{self.low:,}" if self.high == self.low else f"{self.low:,}–{self.high:,}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attacker:
    """What somebody could do: the share of rows with a risk above 1/k, the highest risk of a row, the mean risk.

    ``success`` is the greater mean of two ways to look for somebody (El Emam 2013): to take a row and look for its
    person, which has the mean of 1/F over the rows, and to take a person who is like some row and look for theirs,
    which has the number of classes over the people who are alike. For the prosecutor both are the same.
    """

    at_risk: float
    highest: float
    success: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """The risks from somebody who knows certain columns (El Emam & Dankar 2008; Dankar & El Emam 2010).

    The *prosecutor* knows that a person is in the table: a risk of 1/f in a class of f rows. The *journalist* doesn't,
    and has to tell the person from everybody in the population who is alike: 1/F; without a population it isn't known,
    and at most the prosecutor's. The *marketer* matches every row with a list of the population, and counts right ones:
    the mean of 1/F over the rows; without a population that of 1/f, which is the most it can be. ``absent`` are the
    rows that the population lacks; they were counted as if they were in it.
    """

    columns: tuple[str, ...]
    k: int
    rows: int
    classes: int
    smallest: int
    unique: int
    bands: tuple[Band, ...]
    prosecutor: Attacker
    journalist: Attacker | None
    marketer: float
    absent: int = 0


def exposure(data: Any, columns: Sequence[str], *, k: int = 10, population: Any = None) -> Exposure:
    """The risks of the prosecutor, the journalist and the marketer from somebody who knows these columns.

    Example:
        >>> people = pa.table({"sex": ["f", "f", "m", "m", "m"]})
        >>> exposure(people, ["sex"], k=3).prosecutor
        Attacker(at_risk=0.4, highest=0.5, success=0.4)
    """
    table, small = as_table(data), positive_int(k, "k")
    if not table.num_rows:
        raise InvalidData("the table has no rows: there is nobody to be at risk")
    names = known_columns(table, columns, [])
    rows = table.num_rows
    absent, journalist = 0, None
    if population is None:
        sizes = alike(*zip(*(codes_of(table.column(name)) for name in names), strict=True))[2]
        marketer = sizes.size / rows
    else:
        everybody = as_table(population)
        both = (codes_of(_together(table, everybody, name)) for name in names)
        first, classes, _ = alike(*zip(*both, strict=True))
        sizes = np.bincount(classes[:rows], minlength=first.size)
        people = np.bincount(classes[rows:], minlength=first.size)[sizes > 0]
        sizes = sizes[sizes > 0]
        # people of the table are people of the population, even where its list lacks them
        absent = int(np.maximum(sizes - people, 0).sum())
        people = np.maximum(sizes, people)
        journalist = _attacker(sizes, people, small)
        marketer = float((sizes / people).sum()) / rows
    return Exposure(
        columns=tuple(names),
        k=small,
        rows=rows,
        classes=int(sizes.size),
        smallest=int(sizes.min()),
        unique=int(np.count_nonzero(sizes == 1)),
        bands=_bands(sizes, small),
        prosecutor=_attacker(sizes, sizes, small),
        journalist=journalist,
        marketer=marketer,
        absent=absent,
    )


def known_columns(table: pa.Table, columns: Iterable[str] | None, notes: list[str]) -> list[str]:
    """The columns to look at, each once; those that can't be compared are refused if named, and else left out."""
    there = table.column_names
    if isinstance(columns, str):
        raise InvalidParameter("columns is a list of names; put a single one in brackets")
    names = list(there if columns is None else columns)
    if not names:
        raise InvalidParameter("at least one column is needed")
    if len(set(names)) < len(names):
        raise InvalidParameter("a column is named twice in columns")
    for name in names:
        if name not in there:
            raise InvalidParameter(f"the table has no column {name!r}; it has {', '.join(there)}")
    nested = [name for name in names if pa.types.is_nested(unwrapped_type(table.schema.field(name).type))]
    if columns is not None and nested:
        raise InvalidParameter(f"the column {nested[0]!r} holds lists or records: take it apart into plain columns")
    if nested:
        notes.append(f"left out, since they hold lists or records: {', '.join(nested)}")
        names = [name for name in names if name not in nested]
        if not names:
            raise InvalidParameter("no column has plain values: take lists and records apart first")
    return names


def _attacker(sizes: Counts, alike: Counts, k: int) -> Attacker:
    """Rows in classes of ``sizes``, to be told from ``alike`` people each."""
    rows = int(sizes.sum())
    return Attacker(
        at_risk=int(sizes[alike < k].sum()) / rows,
        highest=1 / int(alike.min()),
        success=max(sizes.size / int(alike.sum()), float((sizes / alike).sum()) / rows),
    )


def _bands(sizes: Counts, k: int) -> tuple[Band, ...]:
    bands, lows = [], sorted({*BANDS, k})
    for position, low in enumerate(lows):
        high = lows[position + 1] - 1 if position + 1 < len(lows) else None
        inside = (sizes >= low) & (sizes <= (high or sizes.max()))
        bands.append(Band(low=low, high=high, classes=int(inside.sum()), rows=int(sizes[inside].sum())))
    while len(bands) > 1 and not bands[-1].classes:
        bands.pop()
    return tuple(bands)


def _together(table: pa.Table, population: pa.Table, name: str) -> pa.ChunkedArray[Any]:
    """A column of the table, and below it that of the population, so that equal values get equal codes."""
    if name not in population.column_names:
        raise InvalidParameter(f"the population has no column {name!r}: it needs every column that is known")
    ours = unwrapped(table.column(name))
    kind: Any = ours.type
    try:
        theirs = unwrapped(population.column(name)).cast(kind)
        return pa.chunked_array([*ours.chunks, *theirs.chunks], kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise InvalidParameter(
            f"the column {name!r} of the population has another type than that of the table: make them alike"
        ) from None
