"""dither: differential privacy with exact noise, proven losses and a budget that can't be overspent.

The names below are the whole public surface; everything else can be reached through its package. Each is loaded when it
is first used, so that a survey's client, which needs nothing but Python, starts at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dither.errors import DitherError, Failed, OutOfBudget, Refused

if TYPE_CHECKING:
    from dither import anonymize, attacks, audit, checks, local
    from dither.curator import Answer, Curator, Policy, Quote
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
    from dither.server.client import client

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
    "anonymize",
    "as_replace",
    "attacks",
    "audit",
    "calibrate",
    "checks",
    "client",
    "compose",
    "local",
    "poisson",
    "without_replacement",
]

_PACKAGES = ("anonymize", "attacks", "audit", "checks", "local")
_HOMES = {
    "dither.curator": ("Answer", "Curator", "Policy", "Quote"),
    "dither.mechanisms": (
        "DiscreteGaussian",
        "DiscreteLaplace",
        "Exponential",
        "Gaussian",
        "KaryResponse",
        "Laplace",
        "LaplaceThreshold",
        "NoisyMax",
        "ParticipationResponse",
        "PartitionSelection",
        "PermuteAndFlip",
        "Quantile",
        "RandomizedResponse",
        "SparseVector",
        "Subsampled",
        "TreeCounter",
    ),
    "dither.privacy": (
        "Adjacency",
        "Guarantee",
        "PrivacyLoss",
        "PrivacyUnit",
        "Sensitivity",
        "as_replace",
        "calibrate",
        "compose",
        "poisson",
        "without_replacement",
    ),
    "dither.server.client": ("client",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

if not TYPE_CHECKING:  # type checkers have the imports above, and know a misspelt name by them

    def __getattr__(name: str) -> Any:
        if name in _PACKAGES:
            return import_module(f"dither.{name}")
        if name in _HOME_OF:
            found = getattr(import_module(_HOME_OF[name]), name)
            globals()[name] = found
            return found
        raise AttributeError(f"module 'dither' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
