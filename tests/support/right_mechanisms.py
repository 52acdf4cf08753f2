"""Right mechanisms of every kind, for all tests that hold them to something: small instances that are quick to draw.

``NOISE`` adds noise to a number and has its sensitivity stated; ``MECHANISMS`` are all others by name, those whose
releases aren't single numbers seen through one. ``dither.audit.suite.mechanisms`` has what people audit.
"""

import numpy as np
import pytest

import dither as dp
from dither.mechanisms import (
    ElasticCount,
    GaussianThreshold,
    SmoothMedian,
    SubsampledWithoutReplacement,
    TruncatedThreshold,
)
from dither.mechanisms.elastic_sensitivity import Join, Table
from support.sizes import at_night

NOISE = [
    dp.Laplace(scale=2),
    dp.Laplace(scale="1e-3"),
    dp.Gaussian(scale="0.7"),
    dp.DiscreteLaplace(scale=2),
    dp.DiscreteLaplace(scale="1/3"),
    dp.DiscreteGaussian(scale=2),
    dp.DiscreteGaussian(scale="1/2"),
    *(
        pytest.param(mechanism, marks=at_night)
        for mechanism in (
            dp.Laplace(scale=1e9),
            dp.Gaussian(scale=5000),
            dp.DiscreteLaplace(scale=1000),
            dp.DiscreteGaussian(scale=500),
        )
    ),
]
REPLACE = dp.Adjacency.REPLACE
ONCE = dp.Sensitivity.contribution(groups=1, per_group=1)


class Wrapped:
    """A mechanism whose releases aren't single numbers, seen through one number."""

    def __init__(self, mechanism, draw, pair, loss, law=None):
        self.mechanism, self.draw, self.pair, self.cost = mechanism, draw, pair, loss
        if law is not None:
            self.law = law

    def loss(self):
        return self.cost

    def worst_pair(self):
        return self.pair

    def release(self, exact):
        return self.draw(exact)

    def __repr__(self):
        return repr(self.mechanism)


def threshold(mechanism, units):
    return Wrapped(
        mechanism,
        lambda units: int(mechanism.release(np.array([units]))[1][0]),
        (units, units - 1),
        mechanism.loss(ONCE),
    )


def sparse():
    mechanism = dp.SparseVector(threshold_scale=2, query_scale=2)
    return Wrapped(
        mechanism,
        lambda stream: sum(2**i for i, above in enumerate(mechanism.release(np.array(stream), threshold=0.0)) if above),
        ([0.0, 0.0, 1.0], [1.0, 1.0, 0.0]),
        mechanism.loss(dp.Sensitivity.linf(1)),
    )


def counter():
    mechanism = dp.TreeCounter(scale=2, horizon=2)

    def draw(stream):
        session = mechanism.start()
        first, second = (session.add(x) for x in stream)
        # the pair as one number: the first dominates, so that half lines see both
        return 1000 * round(first) + round(second)

    return Wrapped(mechanism, draw, ([0, 0], [1, 0]), mechanism.loss(ONCE))


def subsampled():
    mechanism = dp.Subsampled(dp.DiscreteLaplace(scale=1), rate="1/2")
    return Wrapped(
        mechanism,
        lambda rows: mechanism.release(np.array(rows), lambda sample: int(sample.sum())),
        ([1], []),
        mechanism.loss(dp.Sensitivity.l1(1)),
    )


def subsampled_without_replacement():
    mechanism = SubsampledWithoutReplacement(dp.DiscreteLaplace(scale=1), sample=1, population=2)
    return Wrapped(
        mechanism,
        lambda rows: mechanism.release(np.array(rows), lambda sample: int(sample.sum())),
        ([0, 0], [0, 1]),
        mechanism.loss(dp.Sensitivity.l1(1, adjacency=REPLACE)),
    )


def smooth_median():
    mechanism = SmoothMedian(epsilon=1, delta="1/1000", low=0, high=1)
    return Wrapped(
        mechanism,
        lambda values: float(mechanism.release(np.array(values))),
        ([0.0, 0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0, 1.0]),
        mechanism.loss(),
    )


def elastic_count():
    """People joined with visits on a key: a person with two visits, and the same without one of them."""
    mechanism = ElasticCount(epsilon=1, delta="1/1000")

    def draw(visits):
        people, seen = Table("people", {"id": 1}), Table("visits", {"id": visits})
        return mechanism.release(visits, Join(people, seen, "people.id", "visits.id"))

    return Wrapped(mechanism, draw, (2, 1), mechanism.loss())


MECHANISMS = {
    "randomised response": lambda: dp.RandomizedResponse(lie="1/4"),
    "randomised response by ε": lambda: dp.RandomizedResponse.for_epsilon("0.5"),
    "k-ary response": lambda: dp.KaryResponse.for_epsilon(4, 1),
    "hidden participation": lambda: dp.ParticipationResponse.for_epsilon(1),
    "exponential": lambda: dp.Exponential(scale=2),
    "exponential, monotone": lambda: dp.Exponential(scale=2, monotone=True),
    "noisy max": lambda: dp.NoisyMax(scale=2),
    "permute and flip": lambda: dp.PermuteAndFlip(scale=2),
    "k-ary response with labels": lambda: dp.KaryResponse(["red", "green", "blue"], keep="2/3"),
    "quantile between whole numbers": lambda: dp.Quantile(scale=4, bounds=(0, 60), step="0.1"),
    "quantile": lambda: dp.Quantile(scale=1, bounds=(0, 10), step=1),
    "partition selection": lambda: dp.PartitionSelection(epsilon=1, delta="1/100"),
    "laplace threshold": lambda: threshold(dp.LaplaceThreshold(scale=1, threshold=3), 3),
    "gaussian threshold": lambda: threshold(GaussianThreshold(scale=1, threshold=3), 3),
    "truncated threshold": lambda: threshold(TruncatedThreshold(scale=1, reach=3), 4),
    "sparse vector": sparse,
    "tree counter": counter,
    "subsampled": subsampled,
    "subsampled without replacement": subsampled_without_replacement,
    "smooth median": smooth_median,
    "elastic count": elastic_count,
}
