"""Mechanisms: one file and one proof note each; every one knows its cost and its error before it sees data."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dither.mechanisms.discrete_gaussian import DiscreteGaussian
    from dither.mechanisms.elastic_sensitivity import ElasticCount
    from dither.mechanisms.exponential import BoundedRangeLoss, Exponential
    from dither.mechanisms.gaussian import Gaussian, GaussianLoss, classical_gaussian_scale
    from dither.mechanisms.kary_response import KaryResponse
    from dither.mechanisms.laplace import DiscreteLaplace, Laplace, LaplaceLoss
    from dither.mechanisms.noisy_max import NoisyMax
    from dither.mechanisms.partition_selection import GaussianThreshold, LaplaceThreshold, PartitionSelection
    from dither.mechanisms.permute_and_flip import PermuteAndFlip
    from dither.mechanisms.quantile import Quantile
    from dither.mechanisms.randomized_response import RandomizedResponse
    from dither.mechanisms.response_surveys import ParticipationResponse, SeveralResponses
    from dither.mechanisms.smooth_sensitivity import SmoothLaplace, SmoothMedian
    from dither.mechanisms.sparse_vector import SparseVector
    from dither.mechanisms.subsampled import Subsampled, SubsampledWithoutReplacement
    from dither.mechanisms.tree_counter import TreeCounter

__all__ = [
    "BoundedRangeLoss",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "ElasticCount",
    "Exponential",
    "Gaussian",
    "GaussianLoss",
    "GaussianThreshold",
    "KaryResponse",
    "Laplace",
    "LaplaceLoss",
    "LaplaceThreshold",
    "NoisyMax",
    "ParticipationResponse",
    "PartitionSelection",
    "PermuteAndFlip",
    "Quantile",
    "RandomizedResponse",
    "SeveralResponses",
    "SmoothLaplace",
    "SmoothMedian",
    "SparseVector",
    "Subsampled",
    "SubsampledWithoutReplacement",
    "TreeCounter",
    "classical_gaussian_scale",
]

_HOMES = {
    "dither.mechanisms.discrete_gaussian": ("DiscreteGaussian",),
    "dither.mechanisms.elastic_sensitivity": ("ElasticCount",),
    "dither.mechanisms.exponential": ("BoundedRangeLoss", "Exponential"),
    "dither.mechanisms.gaussian": ("Gaussian", "GaussianLoss", "classical_gaussian_scale"),
    "dither.mechanisms.kary_response": ("KaryResponse",),
    "dither.mechanisms.laplace": ("DiscreteLaplace", "Laplace", "LaplaceLoss"),
    "dither.mechanisms.noisy_max": ("NoisyMax",),
    "dither.mechanisms.partition_selection": ("GaussianThreshold", "LaplaceThreshold", "PartitionSelection"),
    "dither.mechanisms.permute_and_flip": ("PermuteAndFlip",),
    "dither.mechanisms.quantile": ("Quantile",),
    "dither.mechanisms.randomized_response": ("RandomizedResponse",),
    "dither.mechanisms.response_surveys": ("ParticipationResponse", "SeveralResponses"),
    "dither.mechanisms.smooth_sensitivity": ("SmoothLaplace", "SmoothMedian"),
    "dither.mechanisms.sparse_vector": ("SparseVector",),
    "dither.mechanisms.subsampled": ("Subsampled", "SubsampledWithoutReplacement"),
    "dither.mechanisms.tree_counter": ("TreeCounter",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

if not TYPE_CHECKING:  # type checkers have the imports above, and know a misspelt name by them

    def __getattr__(name: str) -> Any:
        if name in _HOME_OF:
            found = getattr(import_module(_HOME_OF[name]), name)
            globals()[name] = found
            return found
        raise AttributeError(f"module 'dither.mechanisms' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
