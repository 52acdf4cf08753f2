"""Which columns may identify a person, judged by their names alone."""

from __future__ import annotations

import re
from collections.abc import Iterable

PEOPLE = (
    *("user", "customer", "client", "patient", "person", "people", "member", "employee", "student", "subject"),
    *("participant", "respondent", "household", "account", "passenger", "visitor", "subscriber", "device", "citizen"),
    *("ssn", "email"),
)


IDS = ("id", "uid", "uuid", "guid", "key", "no", "nr", "number")


def unit_candidates(columns: Iterable[str]) -> list[str]:
    """The columns that may say who is protected, the likeliest first.

    Example:
        >>> unit_candidates(["id", "order_id", "amount", "customer_id", "userName"])
        ['customer_id', 'userName', 'order_id', 'id']
    """
    ranked = [(_rank(name), number, name) for number, name in enumerate(columns)]
    return [name for rank, _, name in sorted(ranked) if rank < 4]


def person_column(columns: Iterable[str]) -> str:
    """The column that most probably identifies a person, for a line to write; ``COLUMN`` if none does.

    An order's id is never proposed: protecting orders instead of people would be a mistake that nobody notices.

    Example:
        >>> person_column(["order_id", "customer_id"]), person_column(["order_id"])
        ('customer_id', 'COLUMN')
    """
    return next((name for name in unit_candidates(columns) if _rank(name) < 2), "COLUMN")


def is_id(name: str) -> bool:
    """Whether a column holds ids, which nobody adds up or groups by.

    Example:
        >>> is_id("order_id"), is_id("account_balance")
        (True, False)
    """
    words = _words(name)
    return bool(words) and words[-1] in IDS


def _words(name: str) -> list[str]:
    return [word.casefold() for word in re.findall(r"[A-Z]*[a-z]+|[A-Z]+|\d+|[^\W\d_A-Za-z]+", name)]


def _rank(name: str) -> int:
    words = _words(name)
    about_people = any(word.startswith(person) for word in words for person in PEOPLE)
    if about_people:
        return 0 if is_id(name) else 1
    if is_id(name):
        return 2 if len(words) > 1 else 3
    return 4
