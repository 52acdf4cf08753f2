from .discrete_gaussian import DiscreteGaussian as DiscreteGaussian
from .elastic_sensitivity import ElasticCount as ElasticCount
from .exponential import BoundedRangeLoss as BoundedRangeLoss, Exponential as Exponential
from .gaussian import (
    Gaussian as Gaussian,
    GaussianLoss as GaussianLoss,
    classical_gaussian_scale as classical_gaussian_scale,
)
from .kary_response import KaryResponse as KaryResponse
from .laplace import DiscreteLaplace as DiscreteLaplace, Laplace as Laplace, LaplaceLoss as LaplaceLoss
from .noisy_max import NoisyMax as NoisyMax
from .partition_selection import (
    GaussianThreshold as GaussianThreshold,
    LaplaceThreshold as LaplaceThreshold,
    PartitionSelection as PartitionSelection,
)
from .permute_and_flip import PermuteAndFlip as PermuteAndFlip
from .quantile import Quantile as Quantile
from .randomized_response import RandomizedResponse as RandomizedResponse
from .response_surveys import ParticipationResponse as ParticipationResponse, SeveralResponses as SeveralResponses
from .smooth_sensitivity import SmoothLaplace as SmoothLaplace, SmoothMedian as SmoothMedian
from .sparse_vector import SparseVector as SparseVector
from .subsampled import Subsampled as Subsampled, SubsampledWithoutReplacement as SubsampledWithoutReplacement
from .tree_counter import TreeCounter as TreeCounter
from .truncated_threshold import TruncatedThreshold as TruncatedThreshold
