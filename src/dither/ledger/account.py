"""Who pays: a tree of budgets, the dataset at the root. And who is protected: the unit of each private table.

What was spent was spent on these units. Told for others, the same sums are an untrue claim: a total for orders says
nothing about customers. So a ledger keeps the unit of every table it was used for. A further table of a unit that it
knows changes nothing; another unit for a known table does, unless the owner says that both name the same people.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from dither.errors import InvalidParameter, LedgerMismatch
from dither.privacy import Json
from dither.privacy.unit import Unit, account_name

DEEPEST = 16


@dataclass(frozen=True, slots=True)
class Account:
    """Who pays: a path of names from the dataset down.

    Whoever asks pays from every account on the path, so a limit on the dataset binds all analysts together.

    Example:
        >>> print(Account(("shop", "ana"))), [str(a) for a in Account(("shop", "ana")).lineage]
        shop/ana
        (None, ['shop', 'shop/ana'])
    """

    path: tuple[str, ...]

    def __post_init__(self) -> None:
        path: object = self.path
        if not isinstance(path, tuple | list) or not 1 <= len(path) <= DEEPEST:
            raise InvalidParameter(f'an account is a tuple of 1 to {DEEPEST} names, such as ("shop", "ana")')
        # two spellings of one accented letter must not be two budgets
        object.__setattr__(self, "path", tuple(account_name(name) for name in path))

    @property
    def lineage(self) -> tuple[Account, ...]:
        """Every account that pays when this one asks, the dataset first."""
        above = (Account(self.path[:depth]) for depth in range(1, len(self.path)))
        return (*above, self)

    def __str__(self) -> str:
        return "/".join(self.path)


# ---------------------------------------------------------------------------------------------- who is protected


# as the notes of format 1 state it: each "user_id" of table "orders", each row of table "visits"; against …
_STATED = re.compile(r'each (row|"(?:[^"\\]|\\.)*") of table ("(?:[^"\\]|\\.)*")')


Units: TypeAlias = Mapping[str, Unit]
NO_UNITS: Units = MappingProxyType({})


def units_to_json(units: Units) -> Json:
    """The permanent form of the units of several tables."""
    return {table: unit.to_json() for table, unit in units.items()}


def units_from_json(form: Json) -> Units:
    """The inverse of ``units_to_json``."""
    return {str(table): Unit.from_json(unit) for table, unit in form.items()}


def units_in_note(note: object) -> Units:
    """The units that the note of a charge of format 1 states."""
    stated = note.get("units") if isinstance(note, dict) else None
    if not isinstance(stated, str):
        return NO_UNITS
    found = _STATED.findall(stated)
    return {json.loads(table): Unit(() if unit == "row" else (json.loads(unit),)) for unit, table in found}


def with_further_tables(kept: Units, wanted: Units) -> Units:
    """What a ledger that was kept for ``kept`` is kept for from now on; LedgerMismatch if that isn't the same."""
    for table, unit in wanted.items():
        known = kept.get(table)
        if known is not None and known != unit:
            raise LedgerMismatch(
                f"this ledger was kept for {known} of table {table!r}, and now {unit} is to be protected. What was "
                "spent was spent on other units, and can't be converted. If these are other people, give them a ledger "
                "of their own (`ledger` in [source]); if both name the same people, say so: dither ledger rebind"
            )
        if known is None and kept and unit not in kept.values():
            raise LedgerMismatch(
                f"this ledger was kept for {in_words(kept)}, and table {table!r} has another unit: {unit}. If its "
                "units are other people, give them a ledger of their own (`ledger` in [source]); if they are the same "
                "people, say so: dither ledger rebind"
            )
    return {**kept, **wanted}


def in_words(units: Units) -> str:
    """Every table with its unit."""
    return ", ".join(f"{unit} of table {table!r}" for table, unit in sorted(units.items()))
