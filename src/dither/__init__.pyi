from . import anonymize as anonymize, attacks as attacks, audit as audit, checks as checks, local as local
from .curator import Answer as Answer, Curator as Curator, Quote as Quote
from .errors import DitherError as DitherError, Failed as Failed, OutOfBudget as OutOfBudget, Refused as Refused
from .mechanisms import (
    DiscreteGaussian as DiscreteGaussian,
    DiscreteLaplace as DiscreteLaplace,
    Exponential as Exponential,
    Gaussian as Gaussian,
    KaryResponse as KaryResponse,
    Laplace as Laplace,
    LaplaceThreshold as LaplaceThreshold,
    NoisyMax as NoisyMax,
    ParticipationResponse as ParticipationResponse,
    PartitionSelection as PartitionSelection,
    PermuteAndFlip as PermuteAndFlip,
    Quantile as Quantile,
    RandomizedResponse as RandomizedResponse,
    SparseVector as SparseVector,
    Subsampled as Subsampled,
    TreeCounter as TreeCounter,
)
from .policy import Policy as Policy
from .privacy import (
    Adjacency as Adjacency,
    Guarantee as Guarantee,
    PrivacyLoss as PrivacyLoss,
    PrivacyUnit as PrivacyUnit,
    Sensitivity as Sensitivity,
    as_replace as as_replace,
    calibrate as calibrate,
    compose as compose,
    poisson as poisson,
    without_replacement as without_replacement,
)
from .remote.http_client import client as client

__version__: str
