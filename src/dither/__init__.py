"""dither: differential privacy with exact noise, proven losses and a budget that can't be overspent.

The names below are the whole public surface; everything else can be reached through its package.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dither.errors import DitherError
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

__version__ = "0.1.0"

__all__ = [
    "Adjacency",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "DitherError",
    "Exponential",
    "Gaussian",
    "Guarantee",
    "KaryResponse",
    "Laplace",
    "LaplaceThreshold",
    "NoisyMax",
    "ParticipationResponse",
    "PartitionSelection",
    "PermuteAndFlip",
    "PrivacyLoss",
    "PrivacyUnit",
    "Quantile",
    "RandomizedResponse",
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


def __getattr__(name: str) -> Any:
    # the conformance suite needs scipy.stats, which takes longer to import than all the rest
    if name == "checks":
        return import_module("dither.checks")
    raise AttributeError(f"module 'dither' has no attribute {name!r}")
