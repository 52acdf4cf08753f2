"""The public facts about the tables, as the owner declares them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

from dither.brief import brief
from dither.privacy import Adjacency
from dither.query.kinds import Auto, Interval, Kind, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFacts:
    """A column: its kind and, where declared, bounds, step or public keys.

    ``hidden`` columns can't be used in questions at all (names, free text). ``searched`` says that ``between`` was
    found privately for one question: it gives no public keys, and bounds that the question states needn't be narrower.
    """

    name: str
    kind: Kind
    between: Interval | Auto | None = None
    step: Fraction | None = None
    keys: tuple[Value, ...] | None = None
    hidden: bool = False
    searched: bool = False

    __repr__ = brief


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """A table: private (with its unit) or public, and how much of one unit an answer may use.

    ``unit_column`` None on a private table means that every row is a unit. ``unique`` lists sets of columns of which a
    public table holds every combination once. ``auto_rows`` says that each question chooses its bound on rows, of at
    most ``rows``, by a profile; ``auto_groups`` that it bounds the rows in all groups together, and no group is left
    out.
    """

    name: str
    private: bool
    columns: Mapping[str, ColumnFacts]
    unit_column: str | None = None
    groups: int = 1
    rows: int = 1
    unique: tuple[frozenset[str], ...] = ()
    auto_rows: bool = False
    auto_groups: bool = False

    __repr__ = brief


@dataclass(frozen=True, slots=True)
class Schema:
    """Every table that questions may use. A table that isn't here can't be asked about: unknown means private."""

    tables: Mapping[str, TableFacts]
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    __repr__ = brief

    def __post_init__(self) -> None:
        object.__setattr__(self, "tables", MappingProxyType(dict(self.tables)))
