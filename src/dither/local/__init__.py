"""Local privacy: values are randomised before they leave their owner; nobody is trusted.

``dither.local.clients`` needs nothing but Python and runs where the values are; everything else is loaded when it is
first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dither.local.attributes import Attributes
    from dither.local.choosing import best_oracle
    from dither.local.clients import Client, client_of
    from dither.local.clients.heavy import Spelling
    from dither.local.consistent import Consistency
    from dither.local.count_mean import CountMeanSketch
    from dither.local.fragments import SequenceFragments
    from dither.local.frequencies import FrequencyOracle, Shares
    from dither.local.hadamard import HadamardResponse
    from dither.local.hadamard_sketch import HadamardSketch
    from dither.local.hashing import LocalHashing
    from dither.local.heavy_hitters import HeavyHitters
    from dither.local.kary import Kary
    from dither.local.means import best_mean
    from dither.local.noisy_means import LaplaceMean, OneBitMean
    from dither.local.participation import Participation
    from dither.local.piecewise_means import HybridMean, PiecewiseMean
    from dither.local.projective import ProjectiveResponse
    from dither.local.protocol import Aggregator, Protocol, load, protocol_of
    from dither.local.ranges import HierarchicalRanges
    from dither.local.rappor import Rappor
    from dither.local.rappor_association import associate
    from dither.local.shuffle import local_epsilon_for, shuffled
    from dither.local.subset import SubsetSelection
    from dither.local.unary import Unary
    from dither.local.vectors import OneBitVector, SampledVector, best_vector
    from dither.local.wavelet_ranges import WaveletRanges
    from dither.local.wire import Dropped

__all__ = [
    "Aggregator",
    "Attributes",
    "Client",
    "Consistency",
    "CountMeanSketch",
    "Dropped",
    "FrequencyOracle",
    "HadamardResponse",
    "HadamardSketch",
    "HeavyHitters",
    "HierarchicalRanges",
    "HybridMean",
    "Kary",
    "LaplaceMean",
    "LocalHashing",
    "OneBitMean",
    "OneBitVector",
    "Participation",
    "PiecewiseMean",
    "ProjectiveResponse",
    "Protocol",
    "Rappor",
    "SampledVector",
    "SequenceFragments",
    "Shares",
    "Spelling",
    "SubsetSelection",
    "Unary",
    "WaveletRanges",
    "associate",
    "best_mean",
    "best_oracle",
    "best_vector",
    "client_of",
    "load",
    "local_epsilon_for",
    "protocol_of",
    "shuffled",
]

_HOME_OF = {
    "Aggregator": "dither.local.protocol",
    "Attributes": "dither.local.attributes",
    "Client": "dither.local.clients",
    "Consistency": "dither.local.consistent",
    "CountMeanSketch": "dither.local.count_mean",
    "Dropped": "dither.local.wire",
    "FrequencyOracle": "dither.local.frequencies",
    "HadamardResponse": "dither.local.hadamard",
    "HadamardSketch": "dither.local.hadamard_sketch",
    "HeavyHitters": "dither.local.heavy_hitters",
    "HierarchicalRanges": "dither.local.ranges",
    "HybridMean": "dither.local.piecewise_means",
    "Kary": "dither.local.kary",
    "LaplaceMean": "dither.local.noisy_means",
    "LocalHashing": "dither.local.hashing",
    "OneBitMean": "dither.local.noisy_means",
    "OneBitVector": "dither.local.vectors",
    "Participation": "dither.local.participation",
    "PiecewiseMean": "dither.local.piecewise_means",
    "ProjectiveResponse": "dither.local.projective",
    "Protocol": "dither.local.protocol",
    "Rappor": "dither.local.rappor",
    "SampledVector": "dither.local.vectors",
    "SequenceFragments": "dither.local.fragments",
    "Shares": "dither.local.frequencies",
    "Spelling": "dither.local.clients.heavy",
    "SubsetSelection": "dither.local.subset",
    "Unary": "dither.local.unary",
    "WaveletRanges": "dither.local.wavelet_ranges",
    "associate": "dither.local.rappor_association",
    "best_mean": "dither.local.means",
    "best_oracle": "dither.local.choosing",
    "best_vector": "dither.local.vectors",
    "client_of": "dither.local.clients",
    "load": "dither.local.protocol",
    "local_epsilon_for": "dither.local.shuffle",
    "protocol_of": "dither.local.protocol",
    "shuffled": "dither.local.shuffle",
}

if not TYPE_CHECKING:  # type checkers have the imports above, and know a misspelt name by them

    def __getattr__(name: str) -> Any:
        if name in _HOME_OF:
            found = getattr(import_module(_HOME_OF[name]), name)
            globals()[name] = found
            return found
        raise AttributeError(f"module 'dither.local' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
