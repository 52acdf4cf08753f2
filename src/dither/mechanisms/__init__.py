"""Mechanisms: one file and one proof note each; every one knows its cost and its error before it sees data."""

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
