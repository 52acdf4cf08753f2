"""What an engine is asked to compute: exact whole numbers, in which one unit moves nothing by more than was claimed.

Everything that leaves an engine is a whole number: totals of bounded contributions, counts of bins, counts of distinct
values. The bound on one unit's part in each of them is written here and enforced by the engine, whatever the data.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import Literal as OneOf

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dither.brief import brief
from dither.query.expressions.expressions import Expression
from dither.query.plan.plan import Gridded, Key, Relation

# One unit adds at most this to any total, so that 2^32 units can't overflow 64 bits.
LARGEST_PART = 2**30


class Cap(Enum):
    """How one unit's rows in one group are cut down to ``rows`` rows.

    ``CLAMP``: its sum is clamped to [low, high]. ``MEAN``: a unit with n > rows rows counts as ``rows``
    rows of its mean: ⌊sum·rows/n⌋, what drawing that many of its rows gives on average; then clamped. So a ratio of
    totals is the mean over rows where no unit weighs more than ``rows`` of them, not the mean over all rows.
    """

    CLAMP = "clamp"
    MEAN = "mean"


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """The sum over all units of what each adds: the product of the factors, over rows where nothing is missing.

    A row counts only if every factor and every expression of ``present`` is neither NULL nor NaN. Without factors a row
    counts as 1. At user level a unit's part in a group is capped to [low, high]; at row level a row is a unit.
    COUNT(*) is no factors; COUNT(DISTINCT unit) is that with high = 1.
    """

    factors: tuple[Gridded, ...]
    present: tuple[Expression, ...]
    low: int
    high: int
    cap: Cap


@dataclass(frozen=True, slots=True, kw_only=True)
class Bins:
    """How many rows fall on each point of the grid, with at most ``rows`` rows of a unit in a group.

    Which rows of a unit are taken depends on its own rows and the salt alone.
    """

    grid: Gridded


@dataclass(frozen=True, slots=True, kw_only=True)
class DistinctValues:
    """How many different values occur, with at most ``rows`` values of a unit in a group."""

    expression: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One pass over the data: the relation, its groups, and what is wanted of each.

    Rows whose key isn't one of a key's public values are left out before anything else. Then every unit keeps at most
    ``groups`` groups, those with the smallest salted hash of unit and keys; at row level a row is in one group anyway.
    """

    relation: Relation
    units: OneOf["row", "column"]
    keys: tuple[Key, ...]
    groups: int
    rows: int
    totals: tuple[Total, ...]
    bins: tuple[Bins, ...] = ()
    distinct: tuple[DistinctValues, ...] = ()

    __repr__ = brief

    @property
    def most_groups(self) -> int | None:
        """How many groups a unit keeps; None where it can't have more than that many anyway."""
        sizes = [len(key.values) for key in self.keys if key.values is not None]
        return None if len(sizes) == len(self.keys) and prod(sizes) <= self.groups else self.groups

    @property
    def chooses(self) -> bool:
        """Whether a unit may have more than it may keep, so that the salt decides; known without looking at data.

        Capped totals need no choice. Where no unit can be in more groups than it may, or rows are units, cells are the
        same for every salt.
        """
        return self.units == "column" and bool(self.bins or self.distinct or self.most_groups is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """Counts by group and bin: three arrays of one length; ``group`` is the row in ``Measured.keys``."""

    group: npt.NDArray[np.int64]
    bin: npt.NDArray[np.int64]
    count: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Exact cells, before noise: never shown to anybody.

    ``keys`` has a column ``k0``, ``k1``, … for each key and a row for each of the ``size`` groups that occur in the
    data, in ascending order of the keys, NULL last; with no keys there is one group, and no columns. ``totals`` and
    ``distinct`` have a number for each group, ``bins`` those of groups and bins that occur. A group of a public key
    that doesn't occur is not listed: it is filled in with zeros when noise is added.
    """

    keys: pa.Table
    size: int
    totals: tuple[npt.NDArray[np.int64], ...]
    bins: tuple[Histogram, ...] = ()
    distinct: tuple[npt.NDArray[np.int64], ...] = ()

    def __repr__(self) -> str:
        # exact numbers have no business in a log or a traceback
        return "Measured(…)"
