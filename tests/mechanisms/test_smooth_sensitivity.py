"""Smooth sensitivity: against exhaustive search, smoothness over all neighbours, and the exact (ε, δ) of the noise."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dither.entropy import SYSTEM
from dither.errors import InvalidData, InvalidParameter
from dither.mechanisms import smooth_sensitivity
from dither.mechanisms.smooth_sensitivity import (
    SmoothLaplace,
    SmoothMedian,
    discrete_laplace,
    median_rank,
    smooth_median_bound,
)
from dither.privacy import Adjacency, ApproximateLoss
from support.sizes import at_night

ALPHA = 1e-9


def hockey_stick(f, scale, g, other, epsilon) -> float:
    """sup_S P(S) − e^ε·Q(S) for discrete Laplace laws around f and g, in logarithms until the end."""
    reach = math.ceil(60 * max(scale, other)) + abs(f - g)
    y = np.arange(min(f, g) - reach, max(f, g) + reach + 1)
    log_p = math.log(math.tanh(0.5 / scale)) - np.abs(y - f) / scale
    log_q = math.log(math.tanh(0.5 / other)) - np.abs(y - g) / other
    return float(np.maximum(np.exp(log_p) - np.exp(epsilon + log_q), 0).sum())


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-6])
@pytest.mark.parametrize("bound", [0.7, 3.0, 40.0])
def test_noise_is_private_for_the_worst_pairs(epsilon, delta, bound):
    mechanism = SmoothLaplace(epsilon, delta)
    growth = math.exp(mechanism.smoothness)
    for ratio in (1 / growth, growth ** (-0.5), 1.0, growth**0.5, growth):
        other = bound * ratio
        for move in {0, 1, math.floor(min(bound, other))}:
            if move <= min(bound, other):
                worst = hockey_stick(0, 2 * bound / epsilon, move, 2 * other / epsilon, epsilon)
                assert worst <= delta


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.5, 1e-9)])
def test_mutants_of_the_noise_are_caught(epsilon, delta):
    beta = SmoothLaplace(epsilon, delta).smoothness
    bound = 40
    lower = bound * math.exp(-2 * beta)
    # smoothed with 2β
    assert hockey_stick(0, 2 * bound / epsilon, int(lower), 2 * lower / epsilon, epsilon) > 5 * delta
    # noise S/ε in place of 2S/ε
    lower = bound * math.exp(-beta)
    assert hockey_stick(0, bound / epsilon, int(lower), lower / epsilon, epsilon) > 10 * delta


def medians(n: int, largest: int):
    """All sorted databases, their medians, and who is whose neighbour under replace."""
    points = list(itertools.combinations_with_replacement(range(largest + 1), n))
    rank = median_rank(n)

    def neighbours(x):
        out = set()
        for i in range(n):
            for value in range(largest + 1):
                out.add(tuple(sorted(x[:i] + x[i + 1 :] + (value,))))
        return out

    return points, {x: x[rank] for x in points}, {x: neighbours(x) for x in points}


def exhaustive(points, value, near, beta):
    """max_k e^{−βk}·(largest local sensitivity within k replacements)."""
    local = {x: max(abs(value[x] - value[y]) for y in near[x]) for x in points}
    bounds, current = dict(local), dict(local)
    for k in range(1, len(points[0]) + 1):
        current = {x: max(current[y] for y in near[x]) for x in points}
        bounds = {x: max(bounds[x], math.exp(-beta * k) * current[x]) for x in points}
    return local, bounds


@pytest.mark.parametrize(("n", "largest"), [(1, 6), (2, 6), (3, 6), (4, 5), (5, 5), (6, 3)])
@pytest.mark.parametrize("beta", [0.03, 0.5, 1.5])
def test_against_exhaustive_search(n, largest, beta):
    points, value, near = medians(n, largest)
    local, expected = exhaustive(points, value, near, beta)
    found = {x: smooth_median_bound(np.array(x), largest, beta) for x in points}
    for x in points:
        assert found[x] >= local[x]
        assert found[x] == pytest.approx(expected[x], rel=1e-9)
        for y in near[x]:
            assert found[x] <= math.exp(beta + 2.0**-38) * found[y]
    # mutant: the local sensitivity itself isn't smooth
    assert n == 1 or any(local[x] > math.exp(beta) * local[y] + 1e-9 for x in points for y in near[x])


def test_whole_mechanism_on_a_small_domain():
    """(ε, δ) of the median's noise for all neighbours, and that it fails for the mutants."""
    epsilon, delta, largest = 2.0, 1e-3, 6
    beta = SmoothLaplace(epsilon, delta).smoothness
    points, value, near = medians(5, largest)
    local, _ = exhaustive(points, value, near, beta)

    def worst(bound):
        return max(
            hockey_stick(value[x], 2 * bound[x] / epsilon, value[y], 2 * bound[y] / epsilon, epsilon)
            for x in points
            for y in near[x]
            if x != y
        )

    assert worst({x: smooth_median_bound(np.array(x), largest, beta) for x in points}) <= delta
    assert worst({x: max(local[x], 0.05) for x in points}) > 10 * delta
    # at ten times β the bound changes too quickly
    assert worst({x: smooth_median_bound(np.array(x), largest, 10 * beta) for x in points}) > delta


@pytest.mark.parametrize("beta", [0.01, 0.2])
def test_divide_and_conquer_finds_the_maximum(beta):
    generator = np.random.default_rng(4)
    for n in (1, 2, 7, 40, 401):
        for spread in (1, 30, 10**6):
            x = np.sort(np.clip(generator.normal(5 * 10**6, spread, n), 0, 10**7).astype(np.int64))
            m = median_rank(n)
            padded = np.concatenate([np.zeros(n + 1), x, np.full(n + 1, 10.0**7)])
            centre = n + 1 + m
            i, j = np.arange(0, centre + 1), np.arange(centre, padded.size)
            gap = j[None, :] - i[:, None] - 1
            gains = np.where(
                gap >= 0, (padded[j][None, :] - padded[i][:, None]) * np.exp(-beta * np.maximum(gap, 0)), 0
            )
            expected = max(float(gains.max()), 2.0**-40 * 10**7)
            found = smooth_median_bound(x, 10**7, beta)
            assert expected <= found <= expected * (1 + 1e-9)


def test_truncation_is_a_bound_and_the_same_for_all():
    # values all alike: only changes of half of them matter, and beyond the window the constant takes over
    x = np.full(100_001, 2**39)
    beta = 0.01
    window = math.ceil(40 * math.log(2) / beta)
    assert window < 50_000
    assert smooth_median_bound(x, 2**40, beta) == pytest.approx(1.0, rel=1e-9)


def test_parameters_and_loss():
    mechanism = SmoothLaplace(1, 1e-6, Adjacency.REPLACE)
    assert mechanism.loss() == ApproximateLoss(1, 1e-6, Adjacency.REPLACE)
    tail = math.log(2e6)
    assert mechanism.smoothness <= math.log1p(1 / (2 * tail)) <= mechanism.smoothness + 1e-9
    assert mechanism.smoothness < 1 / (2 * tail)  # the constant of Nissim, Raskhodnikova & Smith
    for epsilon, delta in ((0, 0.1), (1, 0), (1, 0.6), (-1, 0.1), (math.inf, 0.1), ("1e-12", "1e-6")):
        with pytest.raises(InvalidParameter):
            SmoothLaplace(epsilon, delta)
    for bound in (0, -1, math.nan, math.inf, 0.0):
        with pytest.raises(InvalidParameter):
            mechanism.release(3, bound)
    for exact in (1.5, True, "x", None):
        with pytest.raises(InvalidData):
            mechanism.release(exact, 1)
    for low, high in ((1, 1), (2, 1), (0, math.inf), ("-1e308", "1.5e308")):
        with pytest.raises(InvalidParameter):
            SmoothMedian(1, 1e-6, low, high)
    median = SmoothMedian(1, 1e-6, 0, 1)
    for values in ([], [[1.0]], [math.nan], ["a"], 3.0, [True]):
        with pytest.raises(InvalidData):
            median.release(values)


def p_value(draws, scale) -> float:
    q = math.exp(-1 / scale)
    edge = math.ceil(8 * scale)
    z = np.arange(-edge, edge + 1)
    law = (1 - q) / (1 + q) * q ** np.abs(z)
    law[0] = law[-1] = q**edge / (1 + q)
    counts = np.bincount(np.clip(draws, -edge, edge) + edge, minlength=z.size)
    keep = law * draws.size >= 10
    expected = np.append(law[keep], law[~keep].sum()) * draws.size
    observed = np.append(counts[keep], counts[~keep].sum())
    keep = expected > 0
    return float(stats.chi2.sf(((observed - expected)[keep] ** 2 / expected[keep]).sum(), keep.sum() - 1))


@pytest.mark.parametrize("scale", [pytest.param("1/3", marks=at_night), "5/2", pytest.param("7", marks=at_night)])
def test_draws_have_the_stated_law(scale):
    # 30,000 draws reveal a scale 15 % off; exactness is by construction
    exact = Fraction(scale)
    draws = np.array([discrete_laplace(exact, SYSTEM) for _ in range(30_000)])
    assert p_value(draws, float(exact)) > ALPHA
    assert p_value(draws, float(exact) * 0.85) < ALPHA
    # mutant: a sign drawn beside the size, so that 0 comes twice as often
    doubled = np.concatenate([draws, draws[draws == 0]])
    assert p_value(doubled, float(exact)) < ALPHA


def test_huge_scales():
    draws = [discrete_laplace(Fraction(3 * 10**40, 7), SYSTEM) for _ in range(50)]
    assert len(set(draws)) == 50
    assert max(abs(d) for d in draws) < 10**43


def test_median_release_and_error():
    median = SmoothMedian(1, 1e-6, -10, 90)
    values = np.linspace(30, 50, 20_001)
    bound = median.smooth_sensitivity(values)
    assert bound < 0.05
    released = [median.release(values) for _ in range(200)]
    noise = SmoothLaplace(1, 1e-6)
    limit = noise.error(0.999999, smooth_bound=1) * bound
    assert sum(abs(r - 40) > limit for r in released) <= 2
    # clamped to the public range; values outside it are clamped, infinities too
    wild = [median.release([1e300, -math.inf, math.inf]) for _ in range(50)]
    assert all(-10 <= r <= 90 for r in wild)
    assert median.release([5]) <= 90


def test_grid_is_public(monkeypatch):
    # whatever S, what leaves is low + whole number · (high − low)/2^40
    median = SmoothMedian(1, 1e-2, 0, 1024)
    for values in (np.full(1001, 3.3), np.linspace(0, 1024, 7)):
        for _ in range(20):
            assert (median.release(values) * 2**30).is_integer()
    assert smooth_sensitivity.STEPS == 2**40


def test_error_is_the_tail():
    mechanism = SmoothLaplace(1, 1e-6)
    error = mechanism.error(0.95, smooth_bound=3)
    q = math.exp(-1 / 6)
    assert 2 * q ** (error + 1) / (1 + q) <= 0.05
    assert mechanism.law(3, reach=400).probabilities.sum() == pytest.approx(1)
