"""The curator: the only place where data and budget meet."""

from dither.curator.accounts import OWNER, BudgetLine
from dither.curator.answer import Answer, Bars, Cost, PublicReceipt
from dither.curator.computation import Computation
from dither.curator.curator import Curator
from dither.curator.history import Spending
from dither.curator.past import AnswerPage, Past
from dither.curator.policy.policy import Policy
from dither.curator.quote import Quote, QuotedColumn
from dither.curator.records import Record
from dither.curator.requests import Request, RequestKind, RequestState
from dither.curator.statistical import Statistic

__all__ = [
    "OWNER",
    "Answer",
    "AnswerPage",
    "Bars",
    "BudgetLine",
    "Computation",
    "Cost",
    "Curator",
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
