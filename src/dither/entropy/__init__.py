"""Exact randomness: secure bits, and laws drawn from them with no floating-point law in between.

::

    source      where bits come from
    intervals   proven bounds of e^-x
    bernoulli   coins                      uniform   integers, orders, samples
    table       inverse CDF, read lazily   blocks    integers of any scale
    laplace     discrete Laplace           gaussian  discrete Gaussian
    select      exponential mechanism, permute-and-flip

Every decision compares a uniform number, read bit by bit, with a real number known by integer
bounds; see ``samplers.md`` for the proof.
"""

from dither.entropy.bernoulli import bernoulli, bernoulli_exp, bernoulli_exp_many, bernoulli_many, less_than_exp
from dither.entropy.gaussian import DiscreteGaussianSampler, gaussian_sampler
from dither.entropy.intervals import exp_neg_bounds
from dither.entropy.laplace import DiscreteLaplaceSampler, laplace_sampler
from dither.entropy.select import permute_and_flip, select, select_many
from dither.entropy.source import SYSTEM, InsecureSeededSource, Source, SystemSource
from dither.entropy.uniform import below, below_many, permutation, poisson_mask, sample_without_replacement

__all__ = [
    "SYSTEM",
    "DiscreteGaussianSampler",
    "DiscreteLaplaceSampler",
    "InsecureSeededSource",
    "Source",
    "SystemSource",
    "below",
    "below_many",
    "bernoulli",
    "bernoulli_exp",
    "bernoulli_exp_many",
    "bernoulli_many",
    "exp_neg_bounds",
    "gaussian_sampler",
    "laplace_sampler",
    "less_than_exp",
    "permutation",
    "permute_and_flip",
    "poisson_mask",
    "sample_without_replacement",
    "select",
    "select_many",
]
