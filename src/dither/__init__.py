"""dither: differential privacy with exact noise, proven losses and a budget that can't be overspent.

The names below are the whole public surface; everything else can be reached through its package.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dither.errors import DitherError, Failed, OutOfBudget, Refused
from dither.mechanisms import (
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    Gaussian,
    KaryResponse,
    Laplace,
    LaplaceThreshold,
    NoisyMax,
    ParticipationResponse,
    PartitionSelection,
    PermuteAndFlip,
    Quantile,
    RandomizedResponse,
    SparseVector,
    Subsampled,
    TreeCounter,
)
from dither.privacy import (
    Adjacency,
    Guarantee,
    PrivacyLoss,
    PrivacyUnit,
    Sensitivity,
    as_replace,
    calibrate,
    compose,
    poisson,
    without_replacement,
)

if TYPE_CHECKING:
    from dither import checks
    from dither.curator import Answer, Curator, Policy, Quote

__version__ = "0.1.0"

__all__ = [
    "Adjacency",
    "Answer",
    "Curator",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "DitherError",
    "Exponential",
    "Failed",
    "Gaussian",
    "Guarantee",
    "KaryResponse",
    "Laplace",
    "LaplaceThreshold",
    "NoisyMax",
    "OutOfBudget",
    "ParticipationResponse",
    "PartitionSelection",
    "PermuteAndFlip",
    "Policy",
    "PrivacyLoss",
    "PrivacyUnit",
    "Quantile",
    "Quote",
    "RandomizedResponse",
    "Refused",
    "Sensitivity",
    "SparseVector",
    "Subsampled",
    "TreeCounter",
    "as_replace",
    "calibrate",
    "checks",
    "compose",
    "poisson",
    "without_replacement",
]


# what needs more than numpy and scipy is loaded when it is first used
_LATER = dict.fromkeys(("Answer", "Curator", "Policy", "Quote"), "dither.curator")


def __getattr__(name: str) -> Any:
    if name == "checks":
        return import_module("dither.checks")
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module 'dither' has no attribute {name!r}")
