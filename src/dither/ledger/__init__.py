"""The durable record of everything that was spent: reserve before reading data, record before releasing."""

from dither.ledger.account import Account
from dither.ledger.amount import Amount, Currency, Limit
from dither.ledger.base import Ledger
from dither.ledger.entry import Balance, Entry, Kind, Receipt, Reservation, Verified
from dither.ledger.memory import MemoryLedger
from dither.ledger.sqlite import SqliteLedger

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
    "Receipt",
    "Reservation",
    "SqliteLedger",
    "Verified",
]
