"""The rule that chooses a bound on rows: never far from the best bound, on seven shapes; without its margin it is.

Noise is drawn from a fixed seed, so that the test is the same every time.
"""

import math

import numpy as np
import pytest

from dither.mechanisms import DiscreteLaplace
from dither.query.plan.profile import LOWER_ENDS, MOST_CHOSEN, UPPER_ENDS
from dither.query.price import profile as rule
from dither.query.price.profile import Profile

EPSILON = 0.5
DRAWS = 400


def shapes():
    maker = np.random.default_rng(7)
    return {
        "1 row each": np.ones(32_561, int),
        "5 rows each": np.full(5_000, 5),
        # most have few hundreds, some have thousands
        "ratings": np.minimum(20 + np.ceil(maker.lognormal(4.2, 1.3, 610)).astype(int), 2_698),
        "log-normal, many": np.ceil(maker.lognormal(1.5, 1.5, 20_000)).astype(int),
        "log-normal, few": np.ceil(maker.lognormal(1.5, 1.5, 500)).astype(int),
        "Zipf 2.0": np.minimum(maker.zipf(2.0, 20_000), 10_000),
        "Zipf 1.5": np.minimum(maker.zipf(1.5, 2_000), 10_000),
    }


SHAPES = shapes()


def bins(rows):
    return np.histogram(rows, [*LOWER_ENDS, 2**62])[0]


def error_of(rows, bound):
    """The mean error of a count with this bound: of noise of scale bound/ε around what is cut."""
    cut, scale = float((rows - np.minimum(rows, bound)).sum()), bound / EPSILON
    return cut + scale * math.exp(-cut / scale)


def ratio(rows, seed=1):
    """The mean error with the bound that the rule chooses, as a multiple of the best bound's."""
    maker, exact = np.random.default_rng(seed), bins(rows)
    best = min(error_of(rows, bound) for bound in UPPER_ENDS)
    q = math.exp(-EPSILON)
    noise = maker.geometric(1 - q, (DRAWS, len(exact))) - maker.geometric(1 - q, (DRAWS, len(exact)))
    profiles = (Profile(counts=tuple(map(int, exact + each)), noise=DiscreteLaplace(2)) for each in noise)
    return np.mean([error_of(rows, one.least_bound(1 / EPSILON)) for one in profiles]) / best


@pytest.mark.parametrize("name", SHAPES)
def test_the_error_stays_within_five_times_the_best(name):
    assert ratio(SHAPES[name]) <= 5


@pytest.mark.parametrize("margin", [0, 1, 1.6])
def test_rules_without_the_margin_are_noticed(margin, monkeypatch):
    monkeypatch.setattr(rule, "MARGIN", margin)
    assert ratio(SHAPES["1 row each"]) > 20


def test_a_rule_that_cuts_too_much_is_noticed(monkeypatch):
    monkeypatch.setattr(rule, "MARGIN", 60)
    assert max(map(ratio, SHAPES.values())) > 5


@pytest.mark.parametrize("name", SHAPES)
def test_without_noise_it_is_the_least_bound_that_cuts_few(name):
    """With next to no noise the margin is nothing: exactly as many units as are worth it may be cut."""
    rows = SHAPES[name]
    exact = Profile(counts=tuple(map(int, bins(rows))), noise=DiscreteLaplace(1e-6))
    for spared in (0.5, 2, 10, 100):
        bound = exact.least_bound(spared)
        assert (rows > bound).sum() <= spared or bound == MOST_CHOSEN
        if bound > 1:
            assert (rows > UPPER_ENDS[UPPER_ENDS.index(bound) - 1]).sum() > spared


def test_noise_alone_never_asks_for_a_larger_bound_than_that():
    """More noise in the profile never means that fewer units are cut."""
    counts = tuple(map(int, bins(SHAPES["log-normal, many"])))
    bounds = [Profile(counts=counts, noise=DiscreteLaplace(scale)).least_bound(2) for scale in (0.1, 1, 10, 100, 1000)]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] > bounds[-1]
