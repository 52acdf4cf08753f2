"""Where dither states each kind of loss: the one table by which stored losses are read back.

A ledger holds losses of every layer, and a reader needn't have loaded that layer: ``dither ledger verify``
loads no mechanism, nor does a notebook that opens a stored loss. So what can be read must not depend on what happens to
be imported. A module is loaded by its name when a loss of its kind is read; this layer imports none above it.

Kinds are permanent. A class that moves keeps its kind, and its line here says where it is now. Classes of others aren't
listed: they are known once they are defined.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

# kind → module:class
KINDS: Mapping[str, str] = MappingProxyType(
    {
        "approximate": "dither.privacy.loss:ApproximateLoss",
        "bounded_range": "dither.mechanisms.exponential:BoundedRangeLoss",
        "composed": "dither.privacy.composition:Composed",
        "discrete_gaussian": "dither.mechanisms.discrete_gaussian:DiscreteGaussianLoss",
        "discrete_laplace": "dither.mechanisms.laplace:DiscreteLaplaceLoss",
        "gaussian": "dither.mechanisms.gaussian:GaussianLoss",
        "given_away": "dither.mechanisms.partition_selection:GivenAwayLoss",
        "grouped": "dither.privacy.group:Grouped",
        "kary_response": "dither.mechanisms.kary_response:KaryResponseLoss",
        "laplace": "dither.mechanisms.laplace:LaplaceLoss",
        "poisson": "dither.privacy.sampling:PoissonSampled",
        "pure": "dither.privacy.loss:PureLoss",
        "randomized_response": "dither.mechanisms.randomized_response:RandomizedResponseLoss",
        "replaced": "dither.privacy.group:Replaced",
        "shuffled": "dither.local.shuffling.shuffle:ShuffledLoss",
        "thinned_response": "dither.local.core.losses:ThinnedResponseLoss",
        "without_replacement": "dither.privacy.sampling:SampledWithoutReplacement",
        "zcdp": "dither.privacy.zcdp:ZcdpLoss",
    }
)
