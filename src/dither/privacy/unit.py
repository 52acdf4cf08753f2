"""Who is protected, and how much of one of them an answer may use."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from dither.numeric import positive_int


class Adjacency(Enum):
    """Which two databases are neighbours: the promise is about what one unit can do.

    ``ADD_REMOVE`` hides participation: one unit's rows are there or not.
    ``REPLACE`` hides what a unit's rows say; how many units there are is public.
    A replace step is two add/remove steps, so a loss stated for one says nothing directly about the other.
    """

    ADD_REMOVE = "add_remove"
    REPLACE = "replace"

    @property
    def sentence(self) -> str:
        """The protected change, in words.

        Example:
            >>> Adjacency.REPLACE.sentence
            "changing everything that one unit's rows say, the number of units being public"
        """
        if self is Adjacency.ADD_REMOVE:
            return "adding or removing all rows of one unit"
        return "changing everything that one unit's rows say, the number of units being public"


@dataclass(frozen=True, slots=True)
class PrivacyUnit:
    """The thing that is protected: the rows that share a value of ``column``, or each row by itself.

    Example:
        >>> print(PrivacyUnit("user_id"))
        each user_id, against adding or removing all rows of one unit
    """

    column: str | None = None
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    def __str__(self) -> str:
        who = "each row" if self.column is None else f"each {self.column}"
        return f"{who}, against {self.adjacency.sentence}"


@dataclass(frozen=True, slots=True)
class Contribution:
    """How much of one unit an answer may use: at most ``groups`` groups, ``rows`` rows in each."""

    groups: int = 1
    rows: int = 1

    def __post_init__(self) -> None:
        positive_int(self.groups, "groups")
        positive_int(self.rows, "rows")
