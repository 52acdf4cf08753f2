"""Who is protected, how much of one of them an answer may use, and how those who ask are named."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import dataclass
from typing import Any

from dither.brief import SentenceEnum
from dither.errors import InvalidParameter
from dither.numeric import positive_int

LONGEST_NAME = 200


class Adjacency(SentenceEnum):
    """Which two databases are neighbours: the promise is about what one unit can do.

    ``ADD_REMOVE`` hides participation: one unit's rows are there or not.
    ``REPLACE`` hides what a unit's rows say; how many units there are is public.
    A replace step is two add/remove steps, so a loss stated for one says nothing directly about the other.
    """

    ADD_REMOVE = "add_remove", "adding or removing all rows of one unit"
    REPLACE = "replace", "changing everything that one unit's rows say, the number of units being public"


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


@dataclass(frozen=True, slots=True)
class Unit:
    """What one unit of a table is: the rows with one value of ``columns``, or each row where there are none."""

    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not all(self.columns):
            raise InvalidParameter("a unit is given by the names of its columns")

    def to_json(self) -> dict[str, Any]:
        """The permanent form; other ways to name a unit will be other fields."""
        return {"columns": list(self.columns)}

    @classmethod
    def from_json(cls, form: object) -> Unit:
        """The inverse of ``to_json``."""
        if not isinstance(form, dict) or set(form) != {"columns"}:
            raise InvalidParameter("this unit was written by a later version of dither: use that one")
        return cls(tuple(form["columns"]))

    def __str__(self) -> str:
        if not self.columns:
            return "each row"
        return "each " + " and ".join(json.dumps(column, ensure_ascii=False) for column in self.columns)


def account_name(name: object) -> str:
    """A name in the ledger, of a dataset or an analyst, as it is compared; InvalidParameter if it can't be one."""
    if not isinstance(name, str) or not 1 <= len(name) <= LONGEST_NAME:
        raise InvalidParameter(f"a name in an account is a text of 1 to {LONGEST_NAME} characters")
    normal = unicodedata.normalize("NFC", name)
    # in ASCII, what can't be printed are the control characters
    strange = not normal.isprintable() if normal.isascii() else any(unicodedata.category(c)[0] == "C" for c in normal)
    if strange or "/" in normal or normal != normal.strip():
        raise InvalidParameter('a name in an account has no "/", no control characters and no blanks around it')
    return normal
