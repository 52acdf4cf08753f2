from .answers.answer import Answer as Answer, Bars as Bars, Cost as Cost, PublicReceipt as PublicReceipt
from .computation import Computation as Computation
from .curator import AnalystView as AnalystView, Curator as Curator, OwnerView as OwnerView
from .owner import OWNER as OWNER
from .preview import Outlook as Outlook
from .price.quote import Quote as Quote, QuotedColumn as QuotedColumn
from .results import (
    Account as Account,
    Amount as Amount,
    AnswerPage as AnswerPage,
    Balance as Balance,
    BudgetLine as BudgetLine,
    Currency as Currency,
    Limit as Limit,
    Past as Past,
    Record as Record,
    Request as Request,
    RequestKind as RequestKind,
    RequestState as RequestState,
    Spending as Spending,
    Verified as Verified,
)
from .statistical_query import Statistic as Statistic
from .terms import Terms as Terms
