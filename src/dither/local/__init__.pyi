from .clients import Client as Client, client_of as client_of
from .clients.heavy import Spelling as Spelling
from .clients.wire import Dropped as Dropped
from .core.consistent import Consistency as Consistency
from .core.protocol import Aggregator as Aggregator, Protocol as Protocol, load as load, protocol_of as protocol_of
from .frequency.attributes import Attributes as Attributes
from .frequency.choose import best_oracle as best_oracle
from .frequency.hadamard import HadamardResponse as HadamardResponse
from .frequency.hashing import LocalHashing as LocalHashing
from .frequency.kary import Kary as Kary
from .frequency.oracle import FrequencyOracle as FrequencyOracle, Shares as Shares
from .frequency.participation import Participation as Participation
from .frequency.projective import ProjectiveResponse as ProjectiveResponse
from .frequency.subset import SubsetSelection as SubsetSelection
from .frequency.unary import Unary as Unary
from .means.choose import best_mean as best_mean
from .means.noisy import LaplaceMean as LaplaceMean, OneBitMean as OneBitMean
from .means.piecewise import HybridMean as HybridMean, PiecewiseMean as PiecewiseMean
from .means.vectors import OneBitVector as OneBitVector, SampledVector as SampledVector, best_vector as best_vector
from .ranges.hierarchical import HierarchicalRanges as HierarchicalRanges
from .ranges.wavelet import WaveletRanges as WaveletRanges
from .rappor.associate import associate as associate
from .rappor.protocol import Rappor as Rappor
from .shuffling.shuffle import local_epsilon_for as local_epsilon_for, shuffled as shuffled
from .sketches.count_mean import CountMeanSketch as CountMeanSketch
from .sketches.fragments import SequenceFragments as SequenceFragments
from .sketches.hadamard import HadamardSketch as HadamardSketch
from .sketches.heavy_hitters import HeavyHitters as HeavyHitters
