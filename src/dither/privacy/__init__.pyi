from .calibration import calibrate as calibrate
from .composition import Composed as Composed, compose as compose
from .curve import (
    Array as Array,
    Cells as Cells,
    Direction as Direction,
    at_least_nothing as at_least_nothing,
    mirrored as mirrored,
)
from .distributions.pld import Pld as Pld
from .filters import (
    PureFilter as PureFilter,
    PureOdometer as PureOdometer,
    RenyiFilter as RenyiFilter,
    RenyiOdometer as RenyiOdometer,
    ZcdpFilter as ZcdpFilter,
    ZcdpOdometer as ZcdpOdometer,
)
from .group import as_replace as as_replace
from .guarantee import Guarantee as Guarantee
from .loss import ApproximateLoss as ApproximateLoss, Json as Json, PrivacyLoss as PrivacyLoss, PureLoss as PureLoss
from .sampling import poisson as poisson, without_replacement as without_replacement
from .sensitivity import Norm as Norm, Sensitivity as Sensitivity
from .theorems import (
    advanced_composition as advanced_composition,
    basic_composition as basic_composition,
    optimal_composition as optimal_composition,
)
from .unit import Adjacency as Adjacency, Contribution as Contribution, PrivacyUnit as PrivacyUnit
from .zcdp import ZcdpLoss as ZcdpLoss
