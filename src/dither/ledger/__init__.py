"""The durable record of everything that was spent: reserve before reading data, record before releasing."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dither.ledger.account import Account
    from dither.ledger.amount import Amount, Currency, Limit
    from dither.ledger.base import Ledger
    from dither.ledger.entry import Balance, Entry, Kind, Receipt, Reservation, Verified
    from dither.ledger.memory import MemoryLedger
    from dither.ledger.sqlite import SqliteLedger
    from dither.ledger.sums import Quantity, Sum
    from dither.ledger.units import Unit

__all__ = [
    "Account",
    "Amount",
    "Balance",
    "Currency",
    "Entry",
    "Kind",
    "Ledger",
    "Limit",
    "MemoryLedger",
    "Quantity",
    "Receipt",
    "Reservation",
    "SqliteLedger",
    "Sum",
    "Unit",
    "Verified",
]

_HOMES = {
    "dither.ledger.account": ("Account",),
    "dither.ledger.amount": ("Amount", "Currency", "Limit"),
    "dither.ledger.base": ("Ledger",),
    "dither.ledger.entry": ("Balance", "Entry", "Kind", "Receipt", "Reservation", "Verified"),
    "dither.ledger.memory": ("MemoryLedger",),
    "dither.ledger.sqlite": ("SqliteLedger",),
    "dither.ledger.sums": ("Quantity", "Sum"),
    "dither.ledger.units": ("Unit",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

if not TYPE_CHECKING:  # type checkers have the imports above, and know a misspelt name by them

    def __getattr__(name: str) -> Any:
        if name in _HOME_OF:
            found = getattr(import_module(_HOME_OF[name]), name)
            globals()[name] = found
            return found
        raise AttributeError(f"module 'dither.ledger' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
