from .approval.preview import Outlook as Outlook
from .asker import OWNER as OWNER
from .computation import Computation as Computation
from .curator import (
    AnalystView as AnalystView,
    Curator as Curator,
    OwnerView as OwnerView,
    profile_text as profile_text,
)
from .price.computation_quote import Booking as Booking, ComputationQuote as ComputationQuote
from .price.profiles import KnownProfile as KnownProfile
from .price.quote import Quote as Quote, QuotedColumn as QuotedColumn
from .results import (
    Account as Account,
    Amount as Amount,
    Answer as Answer,
    AnswerPage as AnswerPage,
    Balance as Balance,
    Bars as Bars,
    BudgetLine as BudgetLine,
    Cost as Cost,
    Currency as Currency,
    Limit as Limit,
    Past as Past,
    PublicReceipt as PublicReceipt,
    Record as Record,
    Request as Request,
    RequestKind as RequestKind,
    RequestState as RequestState,
    Spending as Spending,
    Verified as Verified,
)
from .statistical_query import Statistic as Statistic
from .terms import Terms as Terms
