"""Estimates: values and intervals as functions of released cells, in closed form or against brute force."""

import itertools
import math
from fractions import Fraction as F

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st
from scipy import integrate, stats

from dither.mechanisms import DiscreteGaussian, DiscreteLaplace
from dither.query.aggregates.base import ChosenValue, Constant, Linear, Noisy
from dither.query.aggregates.mean import Centred, Mean
from dither.query.aggregates.moments import MomentsRecipe, Product
from dither.query.aggregates.spread import half_width, multiplier, quantile_of_difference, quantile_of_sum
from dither.query.kinds import Kind
from dither.query.plan.plan import Function

NOISES = [DiscreteLaplace(F(7)), DiscreteGaussian(F(9))]


def noisy(cells, noise, choices=()):
    arrays = [np.atleast_1d(np.asarray(cell, dtype=np.int64)) for cell in cells]
    size = arrays[0].size if arrays else 3
    return Noisy(size=size, cells=arrays, noise=noise, choices=choices)


def estimate(recipe, noisy, *confidence):
    return recipe.estimate(noisy, *confidence)


def columns(found):
    return found.value.to_numpy(), found.low.to_numpy(), found.high.to_numpy()


# ---------------------------------------------------------------------------------------------- counts, sums, choices


@pytest.mark.parametrize("noise", NOISES, ids=["laplace", "gaussian"])
def test_counts_keep_their_noise_even_below_zero(noise):
    recipe = Linear(cell=0, step=F(1), whole=True)
    value, low, high = columns(estimate(recipe, noisy([[-5, 0, 120]], [noise])))
    half = noise.error(F(19, 20))
    assert value.tolist() == [-5, 0, 120]
    assert value.dtype == low.dtype == np.int64
    assert (value - low).tolist() == (high - value).tolist() == [half] * 3


def test_sums_are_in_steps():
    recipe = Linear(cell=0, step=F(1, 100), whole=False)
    value, low, high = columns(estimate(recipe, noisy([[150]], NOISES[:1]), F(1, 2)))
    half = NOISES[0].error(F(1, 2))
    assert (value[0], low[0], high[0]) == pytest.approx((1.5, 1.5 - half / 100, 1.5 + half / 100))


def test_huge_cells_stay_finite_integers():
    recipe = Linear(cell=0, step=F(2**30), whole=True)
    value, low, high = columns(estimate(recipe, noisy([[2**62, -(2**62)]], NOISES[:1])))
    assert (low <= value).all()
    assert (value <= high).all()
    assert value[0] > 2**60 > -(2**60) > value[1]


def test_constants_and_choices():
    value, low, high = columns(estimate(Constant(F(5, 2)), noisy([], [])))
    assert value.tolist() == low.tolist() == high.tolist() == [2.5] * 3
    whole = estimate(Constant(F(0), whole=True), noisy([], []))
    assert whole.value.type == pa.int64()
    chosen = estimate(ChosenValue(choice=0), noisy([], [], [np.array([1.5, 2.5, 3.5])]))
    assert chosen.value.to_pylist() == [1.5, 2.5, 3.5]
    assert chosen.low.null_count == chosen.high.null_count == 3
    mode = ChosenValue(choice=0, values=("a", "b"), kind=Kind.TEXT)
    assert estimate(mode, noisy([], [], [np.array([1, 0, 1])])).value.to_pylist() == ["b", "a", "b"]


# ---------------------------------------------------------------------------------------------- averages

MEAN = Mean(count=1, x=Centred(cell=0, step=F(1, 4), offset=200), low=F(0), high=F(100))


@pytest.mark.parametrize("noise", NOISES, ids=["laplace", "gaussian"])
def test_an_average_is_a_ratio_within_the_bounds(noise):
    sums, counts = [-4000, 4000, 10**7, -(10**7)], [100, 100, 100, 100]
    value, low, high = columns(estimate(MEAN, noisy([sums, counts], [noise, noise])))
    assert value.tolist() == [40.0, 60.0, 100.0, 0.0]
    assert (low <= value).all()
    assert (value <= high).all()
    assert low.min() >= 0
    assert high.max() <= 100


@pytest.mark.parametrize("noise", NOISES, ids=["laplace", "gaussian"])
def test_a_count_lost_in_noise_says_nothing(noise):
    nothing = [-50, -1, 0, 1, int(half_width(noise, F(19, 20)))]
    value, low, high = columns(estimate(MEAN, noisy([[900] * 5, nothing], [noise, noise])))
    assert value.tolist() == [50.0] * 5
    assert low.tolist() == [0.0] * 5
    assert high.tolist() == [100.0] * 5
    # a wider interval needs a clearer count; the value doesn't depend on the confidence
    count = math.ceil(half_width(noise, F(19, 20))) + 1
    sure = estimate(MEAN, noisy([[900], [count]], [noise, noise]), F(999999, 1000000))
    assert (sure.low[0].as_py(), sure.high[0].as_py()) == (0.0, 100.0)
    assert sure.value == estimate(MEAN, noisy([[900], [count]], [noise, noise])).value


@given(
    st.integers(-20_000, 20_000), st.integers(30, 500), st.sampled_from([0, 1]), st.sampled_from([F(1, 2), F(19, 20)])
)
def test_the_interval_of_an_average_is_the_set_that_its_proof_is_about(total, count, which, confidence):
    noise = NOISES[which]
    _, low, high = columns(estimate(MEAN, noisy([[total], [count]], [noise, noise]), confidence))
    t = np.linspace(-200, 200, 4001)  # from 0 to 100 in steps of a quarter, around 50
    fits = np.abs(total - t * count) <= quantile_of_difference(noise, noise, t, confidence)
    inside = 50 + t[fits] / 4
    step = 100 / 4000
    if inside.size:
        assert low[0] <= inside.min() + 1e-6
        assert high[0] >= inside.max() - 1e-6
        assert low[0] >= inside.min() - step - 1e-6
        assert high[0] <= inside.max() + step + 1e-6
    else:
        assert high[0] - low[0] <= step


# ---------------------------------------------------------------------------------------------- quantiles of noise


@pytest.mark.parametrize("ratio", [0.0, 0.003, 0.2, 0.5, 0.77, 0.999, 1.0, 1.7, 40.0])
@pytest.mark.parametrize("confidence", [F(1, 2), F(19, 20), F(9999, 10000)])
def test_the_quantile_of_two_laplace_noises(ratio, confidence):
    # scales so large that the half steps don't matter; the tail by numerical convolution
    big = DiscreteLaplace(F(10**9))
    q = float(quantile_of_difference(big, big, np.array([-ratio]), confidence)[0]) / 1e9
    if ratio == 0:
        tail = math.exp(-q)
    else:

        def beyond(y):
            return stats.laplace.pdf(y) * (stats.laplace.sf(q - ratio * y) + stats.laplace.cdf(-q - ratio * y))

        kinks = sorted({-q / ratio, 0.0, q / ratio})
        ends = [-60.0, *[k for k in kinks if -60 < k < 60], 60.0]
        tail = sum(integrate.quad(beyond, a, b, epsabs=1e-13)[0] for a, b in itertools.pairwise(ends))
    failure = float(1 - confidence)
    assert failure * (1 - 2e-5) <= tail + 1e-10
    assert tail <= failure * (1 + 1e-6) + 1e-10


def test_gaussian_noises_add_in_squares():
    a, b = DiscreteGaussian(F(3 * 10**8)), DiscreteGaussian(F(10**8))
    q = quantile_of_difference(a, b, np.array([4.0]), F(19, 20))
    assert q[0] == pytest.approx(5e8 * stats.norm.ppf(0.975), rel=1e-8)


@pytest.mark.parametrize("scale", ["1/3", "1", "5/2", "40"])
@pytest.mark.parametrize("law", [DiscreteLaplace, DiscreteGaussian])
def test_half_widths_hold_between_whole_numbers_too(law, scale):
    noise = law(F(scale))
    points = np.arange(-2000, 2001)
    weights = np.exp(-np.abs(points) / float(noise.scale))
    if law is DiscreteGaussian:
        weights = np.exp(-(points**2) / (2 * float(noise.scale) ** 2))
    weights /= weights.sum()
    for confidence in (F(1, 2), F(9, 10), F(19, 20), F(999, 1000)):
        inside = weights[np.abs(points) <= half_width(noise, confidence)].sum()
        assert inside >= float(confidence) * (1 - 1e-9)


@pytest.mark.parametrize("scales", [("1/3", "1/3"), ("1", "1/2"), ("5/2", "1"), ("9", "4/5"), ("1/2", "6")])
@pytest.mark.parametrize("law", [DiscreteLaplace, DiscreteGaussian])
def test_ratios_of_coarse_noise_are_covered_too(law, scales):
    # the exact law of N − t·M on whole numbers, where half steps matter most
    points = np.arange(-150, 151)
    size = np.abs(points) if law is DiscreteLaplace else points**2 / 2
    laws = [np.exp(-size / float(F(s)) ** (1 if law is DiscreteLaplace else 2)) for s in scales]
    chances = np.multiply.outer(*(one / one.sum() for one in laws))
    noises = [law(F(s)) for s in scales]
    for t in (0.0, 0.1, 1 / 3, 0.5, 1.0, 1.5, 2.0, 7.3):
        distance = np.abs(np.subtract.outer(points, t * points))
        for confidence in (F(4, 5), F(9, 10), F(19, 20), F(99, 100)):
            q = quantile_of_difference(*noises, np.array([t]), confidence)[0]
            assert chances[distance <= q + 1e-9].sum() >= float(confidence) - 1e-9


def laplace_sum_tail(u, weights):
    """Pr[|Σ wᵢXᵢ| > u] for unit Laplace X and different weights, by partial fractions."""
    square = weights**2
    parts = [np.prod([w / (w - v) for v in square if v != w]) for w in square]
    return float(np.dot(parts, np.exp(-u / weights)))


@pytest.mark.parametrize("confidence", [F(1, 2), F(4, 5), F(9, 10), F(91, 100), F(19, 20), F(99, 100), 1 - F(1, 10**7)])
def test_spreads_of_laplace_noises_add_up_in_squares(confidence):
    # the widest sum for its variance is one noise alone, or infinitely many: nothing between is wider
    rng, failure = np.random.default_rng(11), float(1 - confidence)
    reach = multiplier(DiscreteLaplace(F(10**9)), confidence) * math.sqrt(2)
    closest = 0.0
    for _ in range(400):
        size = int(rng.integers(2, 6))
        # far enough from each other that partial fractions don't cancel
        weights = np.exp(-rng.choice([0.05, 0.4, 2.0]) * np.sort(rng.exponential(1.0, size))) * (
            1 + 0.02 * np.arange(size)
        )
        if np.diff(np.sort(weights)).min() < 4e-3 * weights.max():
            continue
        tail = laplace_sum_tail(reach * np.linalg.norm(weights), weights)
        assert tail <= failure * (1 + 1e-6)
        closest = max(closest, tail / failure)
    # and the bound is near: a hundredth of it less would be too little
    assert closest > 0.8
    one = np.array([1.0, 1e-4])
    if failure < 0.09:
        assert laplace_sum_tail(0.99 * reach * np.linalg.norm(one), one) > failure


@pytest.mark.parametrize("scales", [("1/3", "1/3", "1/3"), ("1", "1/2", "3"), ("5/2", "1", "2/5")])
@pytest.mark.parametrize("law", [DiscreteLaplace, DiscreteGaussian])
def test_sums_of_three_coarse_noises_are_covered_too(law, scales):
    points = np.arange(-40, 41)
    size = np.abs(points) if law is DiscreteLaplace else points**2 / 2
    laws = [np.exp(-size / float(F(s)) ** (1 if law is DiscreteLaplace else 2)) for s in scales]
    chances = np.multiply.outer(np.multiply.outer(*(one / one.sum() for one in laws[:2])), laws[2] / laws[2].sum())
    noises = [law(F(s)) for s in scales]
    for weights in ((1.0, 1.0, 1.0), (1.0, -0.3, 2.0), (1.0, 0.01, 0.1), (3.0, 3.1, -2.9)):
        a, b, c = weights
        off = np.abs(np.add.outer(np.add.outer(a * points, b * points), c * points))
        for confidence in (F(9, 10), F(19, 20), F(99, 100)):
            q = quantile_of_sum(list(zip(weights, noises, strict=True)), confidence)
            assert chances[off <= q + 1e-9].sum() >= float(confidence) - 1e-9


def test_the_quantile_of_one_noise_is_exact_and_of_none_is_zero():
    for noise in NOISES:
        assert quantile_of_sum([(-2.5, noise)], F(19, 20)) == 2.5 * noise.error(F(19, 20))
    assert quantile_of_sum([], F(19, 20)) == 0
    two = quantile_of_sum([(2.0, NOISES[0]), (-2.0, NOISES[0])], F(19, 20))
    assert two == 2 * quantile_of_difference(NOISES[0], NOISES[0], np.array([1.0]), F(19, 20))[0]


# ---------------------------------------------------------------------------------------------- moments


def moments(function, *, two=False):
    return MomentsRecipe(
        function=function,
        count=0,
        x=Centred(cell=1, step=F(1, 4), offset=40),
        y=Centred(cell=2, step=F(1, 2), offset=0) if two else None,
        xx=Product(cell=3, area=F(1, 16), centres=(F(10), F(10))) if not two or function is Function.CORR else None,
        yy=Product(cell=4, area=F(1, 4), centres=(F(0), F(0))) if function is Function.CORR else None,
        xy=Product(cell=5, area=F(1, 8), centres=(F(10), F(0))) if two else None,
        half_x=F(10),
        half_y=F(5) if two else F(10),
    )


def cells_of(x, y):
    """The exact cells of a table: x in quarters around 10, y in halves around 0."""
    a, b = np.rint((x - 10) * 4).astype(int), np.rint(y * 2).astype(int)
    return [[x.size], [a.sum()], [b.sum()], [(a * a).sum()], [(b * b).sum()], [(a * b).sum()]]


RNG = np.random.default_rng(3)
TABLE = (np.round(RNG.uniform(2, 18, 5000) * 4) / 4, np.round(RNG.uniform(-5, 5, 5000) * 2) / 2)
FINE = [DiscreteLaplace(F(1, 50))] * 6


@pytest.mark.parametrize("function", [f for f in Function if f.value.startswith(("var", "stddev", "covar", "corr"))])
def test_moments_without_noise_are_exact(function):
    x, y = TABLE[0], np.clip(TABLE[1] + np.round(TABLE[0] - 10) / 4 * 2, -5, 5)
    y = np.round(y * 2) / 2
    sample = 1 if function.value.endswith("samp") else 0
    if function.value.startswith("var"):
        truth = x.var(ddof=sample)
    elif function.value.startswith("stddev"):
        truth = x.std(ddof=sample)
    else:
        truth = np.cov(x, y, ddof=sample)[0, 1] if function is not Function.CORR else np.corrcoef(x, y)[0, 1]
    two = function.value.startswith("c")
    value, low, high = columns(estimate(moments(function, two=two), noisy(cells_of(x, y), FINE)))
    assert value[0] == pytest.approx(truth, rel=1e-9)
    assert low[0] < value[0] < high[0]
    assert high[0] - low[0] < 0.01


@pytest.mark.parametrize(
    ("function", "two", "low", "middle", "high"),
    [
        (Function.VAR_POP, False, 0, 50, 100),
        (Function.VAR_SAMP, False, 0, 100, 200),
        (Function.STDDEV_POP, False, 0, math.sqrt(50), 10),
        (Function.COVAR_POP, True, -50, 0, 50),
        (Function.COVAR_SAMP, True, -100, 0, 100),
        (Function.CORR, True, -1, 0, 1),
    ],
)
@pytest.mark.parametrize("noise", NOISES, ids=["laplace", "gaussian"])
def test_moments_of_nobody_are_all_that_is_possible(function, two, low, middle, high, noise):
    for cells in ([[0], [3], [-4], [7], [9], [-2]], [[-9], [300], [-400], [700], [90], [-2]]):
        found = columns(estimate(moments(function, two=two), noisy(cells, [noise] * 6)))
        assert [float(column[0]) for column in found] == pytest.approx([middle, low, high])


def test_a_correlation_needs_variances_that_are_seen():
    x, y = np.full(5000, 10.0), TABLE[1]
    found = columns(estimate(moments(Function.CORR, two=True), noisy(cells_of(x, y), [NOISES[0]] * 6)))
    assert [float(column[0]) for column in found] == [0.0, -1.0, 1.0]


@given(st.lists(st.integers(-(2**40), 2**40), min_size=6, max_size=6), st.sampled_from([0, 1]))
def test_moments_stay_within_what_is_possible(cells, which):
    for function, two in ((Function.VAR_SAMP, False), (Function.STDDEV_POP, False), (Function.CORR, True)):
        with np.errstate(all="raise", under="ignore"):
            value, low, high = columns(
                estimate(moments(function, two=two), noisy([[c] for c in cells], [NOISES[which]] * 6))
            )
        limits = {Function.VAR_SAMP: (0, 200), Function.STDDEV_POP: (0, 10), Function.CORR: (-1, 1)}[function]
        assert limits[0] <= low[0] <= value[0] <= high[0] <= limits[1]
