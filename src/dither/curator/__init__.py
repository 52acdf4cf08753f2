"""The curator: the only place where data and budget meet."""

from dither.curator.accounts import OWNER, BudgetLine
from dither.curator.answer import Answer, Bars, Cost, PublicReceipt
from dither.curator.computation import Computation
from dither.curator.curator import Curator
from dither.curator.policy.policy import Policy
from dither.curator.quote import Quote, QuotedColumn
from dither.curator.statistical import Statistic

__all__ = [
    "OWNER",
    "Answer",
    "Bars",
    "BudgetLine",
    "Computation",
    "Cost",
    "Curator",
    "Policy",
    "PublicReceipt",
    "Quote",
    "QuotedColumn",
    "Statistic",
]
