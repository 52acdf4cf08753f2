"""Who is protected, how far they can move an answer, and what that costs: units, sensitivity and the loss algebra."""

from dither.privacy.calibration import calibrate
from dither.privacy.composition import Composed, compose
from dither.privacy.currency import (
    PureFilter,
    PureOdometer,
    RenyiFilter,
    RenyiOdometer,
    ZcdpFilter,
    ZcdpOdometer,
)
from dither.privacy.group import as_replace
from dither.privacy.guarantee import Guarantee
from dither.privacy.loss import Array, Cells, Direction, Json, PrivacyLoss, mirrored
from dither.privacy.pld import Pld
from dither.privacy.sampling import poisson, without_replacement
from dither.privacy.sensitivity import Norm, Sensitivity
from dither.privacy.stated import ApproximateLoss, PureLoss, ZcdpLoss
from dither.privacy.theorems import advanced_composition, basic_composition, optimal_composition
from dither.privacy.unit import Adjacency, Contribution, PrivacyUnit

__all__ = [
    "Adjacency",
    "ApproximateLoss",
    "Array",
    "Cells",
    "Composed",
    "Contribution",
    "Direction",
    "Guarantee",
    "Json",
    "Norm",
    "Pld",
    "PrivacyLoss",
    "PrivacyUnit",
    "PureFilter",
    "PureLoss",
    "PureOdometer",
    "RenyiFilter",
    "RenyiOdometer",
    "Sensitivity",
    "ZcdpFilter",
    "ZcdpLoss",
    "ZcdpOdometer",
    "advanced_composition",
    "as_replace",
    "basic_composition",
    "calibrate",
    "compose",
    "mirrored",
    "optimal_composition",
    "poisson",
    "without_replacement",
]
