"""The curator: the only place where data and budget meet."""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dither.curator.accounts import BudgetLine
    from dither.curator.answer import Answer, Bars, Cost, PublicReceipt
    from dither.curator.computation import Computation
    from dither.curator.curator import Curator
    from dither.curator.history import Spending
    from dither.curator.outlook import Outlook
    from dither.curator.owner import OWNER
    from dither.curator.past import AnswerPage, Past
    from dither.curator.policy.policy import Policy
    from dither.curator.quote import Quote, QuotedColumn
    from dither.curator.records import Record
    from dither.curator.requests import Request, RequestKind, RequestState
    from dither.curator.statistical import Statistic

# without a handler Python prints what is logged: to the terminal of whoever asks
logging.getLogger("dither").addHandler(logging.NullHandler())

__all__ = [
    "OWNER",
    "Answer",
    "AnswerPage",
    "Bars",
    "BudgetLine",
    "Computation",
    "Cost",
    "Curator",
    "Outlook",
    "Past",
    "Policy",
    "PublicReceipt",
    "Quote",
    "QuotedColumn",
    "Record",
    "Request",
    "RequestKind",
    "RequestState",
    "Spending",
    "Statistic",
]

_HOMES = {
    "dither.curator.accounts": ("BudgetLine",),
    "dither.curator.answer": ("Answer", "Bars", "Cost", "PublicReceipt"),
    "dither.curator.computation": ("Computation",),
    "dither.curator.curator": ("Curator",),
    "dither.curator.history": ("Spending",),
    "dither.curator.outlook": ("Outlook",),
    "dither.curator.owner": ("OWNER",),
    "dither.curator.past": ("AnswerPage", "Past"),
    "dither.curator.policy.policy": ("Policy",),
    "dither.curator.quote": ("Quote", "QuotedColumn"),
    "dither.curator.records": ("Record",),
    "dither.curator.requests": ("Request", "RequestKind", "RequestState"),
    "dither.curator.statistical": ("Statistic",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

if not TYPE_CHECKING:  # type checkers have the imports above, and know a misspelt name by them

    def __getattr__(name: str) -> Any:
        if name in _HOME_OF:
            found = getattr(import_module(_HOME_OF[name]), name)
            globals()[name] = found
            return found
        raise AttributeError(f"module 'dither.curator' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
