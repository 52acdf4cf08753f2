from .amount import (
    Account as Account,
    Amount as Amount,
    Currency as Currency,
    Limit as Limit,
    Quantity as Quantity,
    Sum as Sum,
)
from .base import Ledger as Ledger
from .entry import (
    Balance as Balance,
    Entry as Entry,
    EntryKind as EntryKind,
    Receipt as Receipt,
    Reservation as Reservation,
    Verified as Verified,
)
from .memory import MemoryLedger as MemoryLedger
from .sqlite import SqliteLedger as SqliteLedger
