"""The public facts about the tables, as the owner declares them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod
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

    @property
    def domain(self) -> int | None:
        """How many public values the column has; None where that isn't known, or where there is no end to them."""
        if self.keys is not None:
            return len(self.keys)
        if self.kind is Kind.BOOLEAN:
            return 2
        step = Fraction(1) if self.kind in (Kind.INTEGER, Kind.DATE) and self.step is None else self.step
        if not isinstance(self.between, Interval) or self.searched or step is None:
            return None
        return int(self.between.width / step) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """A table: private (with its unit) or public, and how much of one unit an answer may use.

    ``unit_column`` None on a private table means that every row is a unit. ``unique`` lists sets of columns of which
    the table holds every combination once, and ``rows_at_most`` says that no unit has more rows. ``groups`` and
    ``rows`` cut what a unit adds to an answer. The facts make that less where they say that a unit can't have as much,
    and are never believed without the cut. ``most_rows`` is the public maximum of one unit's rows: stated, or as many
    as the rest of a unique key has values; None where it isn't known. ``auto_rows`` says that each
    question chooses its bound on rows, of at most ``rows``, by a profile; ``auto_groups`` that it bounds the rows in
    all groups together, and no group is left out.
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
    rows_at_most: int | None = None
    most_rows: int | None = field(init=False, compare=False)

    __repr__ = brief

    def __post_init__(self) -> None:
        most = 1 if self.private else None
        if self.unit_column is not None:
            sizes = {name: column.domain for name, column in self.columns.items()} if self.unique else {}
            found = [most_of(key, {self.unit_column}, sizes) for key in self.unique]
            most = min((each for each in (*found, self.rows_at_most) if each is not None), default=None)
        object.__setattr__(self, "most_rows", most)


def most_of(key: Iterable[str], given: Collection[str], sizes: Mapping[str, int | None]) -> int | None:
    """How many rows can share what is given, where every combination of the key occurs once; None: not known.

    Example:
        >>> most_of({"user", "day"}, {"user"}, {"day": 366}), most_of({"user", "film"}, {"user"}, {})
        (366, None)
        >>> most_of({"user"}, {"user"}, {})
        1
    """
    known = [sizes.get(name) for name in key if name not in given]
    return None if None in known else max(1, prod(size for size in known if size is not None))


@dataclass(frozen=True, slots=True)
class Schema:
    """Every table that questions may use. A table that isn't here can't be asked about: unknown means private."""

    tables: Mapping[str, TableFacts]
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    __repr__ = brief

    def __post_init__(self) -> None:
        object.__setattr__(self, "tables", MappingProxyType(dict(self.tables)))
