"""Laplace and Gaussian, continuous and discrete: exact losses, the grid, bad input."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import norm

from dither.entropy import InsecureSeededSource, Source
from dither.errors import InvalidData, InvalidParameter, InvalidSensitivity
from dither.mechanisms import discrete_gaussian, grid
from dither.mechanisms.base import failure_probability, release_whole
from dither.mechanisms.discrete_gaussian import DiscreteGaussian, DiscreteGaussianLoss
from dither.mechanisms.gaussian import Gaussian, GaussianLoss, gaussian_profile, normal_cells
from dither.mechanisms.laplace import DiscreteLaplace, DiscreteLaplaceLoss, Laplace
from dither.privacy import Direction, Sensitivity

L1, L2 = Sensitivity.l1(1), Sensitivity.l2(1)
CONTINUOUS = [Laplace, Gaussian]
DISCRETE = [DiscreteLaplace, DiscreteGaussian]


class Silent:
    """A sampler of zeros: shows what the grid does to an answer."""

    def into(self, out, source=None):
        out[...] = 0

    def one(self, source=None):
        return 0


def laws(probabilities_first, probabilities_second, epsilon):
    return np.maximum(probabilities_first - math.exp(epsilon) * probabilities_second, 0).sum()


# ------------------------------------------------------------------ exact curves


def test_values_of_the_issue():
    assert Laplace(scale=2).loss(L1).pure() == 0.5
    assert Gaussian(scale=1).loss(L2).epsilon(delta=1e-6) == pytest.approx(4.886554, abs=1e-6)


@pytest.mark.parametrize("scale", ["0.3", "1", "2.5", "7"])
@pytest.mark.parametrize("shift", [1, 2, 5])
def test_discrete_curves_match_summation(scale, shift):
    """Both discrete laws summed over the whole numbers, at positive and negative ε, in both directions."""
    x = np.arange(-900, 901)
    s = float(Fraction(scale))
    for law, loss in (
        (np.exp(-np.abs(x) / s), DiscreteLaplaceLoss(Fraction(scale), shift)),
        (np.exp(-(x.astype(float) ** 2) / (2 * s * s)), DiscreteGaussianLoss(Fraction(scale) ** 2, shift)),
    ):
        p = law / law.sum()
        q = np.concatenate([np.zeros(shift), p[:-shift]])
        for epsilon in np.linspace(-2, 4, 25):
            found = loss.profile(np.array([epsilon]), Direction.REMOVE)[0]
            exact = laws(p, q, epsilon)
            # mass that the shift pushes out of the window is far below the tolerance
            assert exact - 1e-13 <= found <= exact + 1e-9


@given(st.lists(st.integers(0, 3), min_size=2, max_size=3), st.floats(0.0, 1.5))
@settings(max_examples=40)
def test_one_coordinate_is_the_worst_case_for_l1(shifts, epsilon):
    """The claim of laplace.md: a movement split over coordinates is never worse than in one. Discrete, enumerated."""
    if sum(shifts) == 0:
        return
    x = np.arange(-25, 26)
    for weight in (np.exp(-np.abs(x) / 1.3), np.exp(-(x**2) / (2 * 1.7**2))):
        p = weight / weight.sum()
        ratio = np.ones(1)
        mass = np.ones(1)
        for shift in shifts:
            q = np.roll(p, shift)  # the window is wide enough: rolled mass is below 1e-8
            mass = np.multiply.outer(mass, p).ravel()
            ratio = np.multiply.outer(ratio, q).ravel()
        split = np.maximum(mass - math.exp(epsilon) * ratio, 0).sum()
        together = np.maximum(p - math.exp(epsilon) * np.roll(p, sum(shifts)), 0).sum()
        assert split <= together + 1e-6


def test_gaussian_curve_keeps_its_digits():
    """Against 60-digit arithmetic, for tiny and large μ."""
    from decimal import Decimal, localcontext

    def phi(z):  # Φ(z) by its series, in decimals
        z = Decimal(z)
        term, total, k = z, z, 0
        while abs(term) > Decimal(10) ** -70:
            k += 1
            term = term * -(z * z) / (2 * k) * (2 * k - 1) / (2 * k + 1)
            total += term
        pi = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899")
        return Decimal("0.5") + total / (2 * pi).sqrt()

    with localcontext() as context:
        context.prec = 90
        for mu, epsilon in (
            (0.001, 0.0),
            (0.001, 0.004),
            (0.1, 0.5),
            (0.29, 1.0),
            (0.31, 1.0),
            (1.0, 4.0),
            (6.0, 20.0),
        ):
            m, e = Decimal(mu), Decimal(epsilon)
            exact = phi(m / 2 - e / m) - e.exp() * phi(-m / 2 - e / m)
            found = Decimal(float(gaussian_profile(mu, np.array([epsilon]))[0]))
            assert exact <= found <= exact * (1 + Decimal("1e-11")) + Decimal("1e-299")


def test_normal_cells_keep_their_digits():
    edges = np.concatenate([[-np.inf], np.linspace(-9, 9, 4001), [np.inf]])
    cells = normal_cells(edges)
    assert cells.sum() == pytest.approx(1, abs=1e-12)
    tails = np.linspace(20, 20.01, 5)
    assert np.allclose(normal_cells(tails), -np.diff(norm.sf(tails)), rtol=1e-9)


def test_gaussian_beats_laplace_once_there_are_many_coordinates():
    """k counts, each changed by one unit, at ε = 1, δ = 1e-6: the Gaussian's error is smaller from some k on."""
    from dither.privacy import Guarantee, calibrate

    def errors(k):
        moved = Sensitivity.contribution(groups=k, per_group=1)
        return [calibrate(m, Guarantee(1, "1e-6"), moved).error(0.95) for m in (Laplace, Gaussian)]

    assert errors(1)[0] < errors(1)[1]
    assert errors(30)[0] > errors(30)[1]


# ------------------------------------------------------------------ error bars


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
@pytest.mark.parametrize("scale", ["0.4", 1, 13])
def test_discrete_errors_are_the_smallest_that_hold(confidence, scale):
    x = np.arange(-2000, 2001)
    s = float(Fraction(scale))
    for mechanism, weight in (
        (DiscreteLaplace, np.exp(-np.abs(x) / s)),
        (DiscreteGaussian, np.exp(-(x**2) / (2 * s * s))),
    ):
        p = weight / weight.sum()
        m = mechanism(scale=scale).error(confidence)
        assert p[np.abs(x) > m].sum() <= 1 - confidence
        if m > 0:
            assert p[np.abs(x) > m - 1].sum() > (1 - confidence) * (1 - 1e-9)


def summed(scale, failure):
    """The smallest m with Pr[|z| > m] ≤ failure, by adding up the law from its far end."""
    steps = np.arange(math.ceil(40 * float(scale)) + 2, dtype=np.float64)
    weights = np.exp(-(steps**2) / (2 * float(Fraction(scale) ** 2)))
    tail = np.cumsum(weights[::-1], dtype=np.longdouble)[::-1].astype(np.float64)
    beyond = 2 * (tail / (2 * float(tail[0]) - 1.0))[1:]
    return float(np.flatnonzero(beyond * (1 + 1e-12) <= failure)[0]), beyond


@given(
    st.fractions(1, 400, max_denominator=10**6) | st.sampled_from([Fraction(21), Fraction(5000), Fraction(19_999)]),
    st.fractions("1/1000000000000", "999/1000", max_denominator=10**15),
)
@settings(max_examples=100)
def test_gaussian_errors_are_those_of_the_summed_law(scale, failure):
    confidence = 1 - failure
    assert DiscreteGaussian(scale).error(confidence) == summed(scale, failure_probability(confidence))[0]


@pytest.mark.parametrize("scale", [35, 700])
@pytest.mark.parametrize("steps", [10, 60])
def test_a_quantile_too_close_to_call_is_left_to_the_sum(scale, steps):
    failure = float(summed(scale, 0.5)[1][steps])
    variance = Fraction(scale) ** 2
    assert discrete_gaussian._quantile(variance, failure) is None
    assert discrete_gaussian._quantile(variance, failure * (1 + 1e-7)) == steps
    assert discrete_gaussian._quantile(variance, failure * (1 - 1e-7)) == steps + 1


@pytest.mark.parametrize("mechanism", DISCRETE)
def test_a_price_makes_no_table_to_draw_from(mechanism):
    made = mechanism(scale=Fraction(12_345_677, 54_321))
    made.loss(Sensitivity.contribution(groups=3, per_group=2))
    made.error(0.95)
    assert made._noise._table._built is None
    assert made._noise._few is None
    # few draws make the short table alone
    made.release(np.zeros(3, dtype=np.int64))
    assert made._noise._table._built is None
    assert made._noise._few._table._built is not None
    made.release(np.zeros(65, dtype=np.int64))
    assert made._noise._table._built is not None


def test_errors_of_many_coordinates_hold_together():
    assert Laplace(scale=1).error(0.95, coordinates=10) == pytest.approx(-math.log(1 - 0.95**0.1), rel=1e-6)
    assert Gaussian(scale=1).error(0.95, coordinates=10) == pytest.approx(norm.isf((1 - 0.95**0.1) / 2), rel=1e-5)
    assert Laplace(scale=1).error(0.95, coordinates=10) <= math.log(10 / 0.05)


@pytest.mark.parametrize("confidence", [0, 1, -1, 2, float("nan")])
@pytest.mark.parametrize("mechanism", CONTINUOUS + DISCRETE)
def test_confidence_must_be_a_probability(mechanism, confidence):
    with pytest.raises(InvalidParameter, match="confidence"):
        mechanism(scale=1).error(confidence)


# ------------------------------------------------------------------ the grid


@given(
    st.floats(-1e15, 1e15) | st.floats(-1e-3, 1e-3) | st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["1e-9", "1", "3.7", "1e12"]),
    st.integers(-(2**60), 2**60),
)
def test_scalar_and_array_arithmetic_is_exact(exact, scale, noise):
    """The release is the exact sum of floored answer and noise, converted; scalars and arrays agree."""

    class Fixed(Silent):
        def into(self, out, source=None):
            out[...] = noise

    exponent = grid.L1_GRID.exponent(Fraction(scale))
    step = Fraction(2) ** exponent
    array = grid.L1_GRID.release_array(np.array([exact, 0.0, exact]), Fixed(), exponent, None)
    # the nearest float to the exact sum, in units of the grid
    total = math.floor(Fraction(exact) / step) + noise
    nearest = math.ldexp(float(total), exponent) if abs(total) < 2**1000 else exact
    assert array[0] == array[2] == nearest == grid.add_to_scalar(exact, noise, exponent)
    assert array[1] == math.ldexp(float(noise), exponent)


@given(st.fractions(min_value=Fraction(1, 10**12), max_value=10**12))
def test_grid_is_fine_enough_for_its_scale(scale):
    for kind in (grid.L1_GRID, grid.L2_GRID):
        step = Fraction(2) ** kind.exponent(scale)
        assert 2 ** (kind.bits - 1) <= scale / step < 2**kind.bits


@given(st.integers(1, 2**26), st.fractions(min_value=Fraction(1, 2**16), max_value=1000))
def test_widening_pays_for_flooring(coordinates, share):
    """(Δ + n·g)/(b·widening) ≤ Δ/b in l1 and the same with √n in l2, exactly, for every Δ of at least 2^-16·b."""
    step = Fraction(2, 2**grid.L1_GRID.bits)  # the largest grid for scale 1
    assert (share + coordinates * step) / grid.L1_GRID.widening(coordinates) <= share
    step = Fraction(2, 2**grid.L2_GRID.bits)
    # twice √n steps, squared so that no root is rounded
    assert ((grid.L2_GRID.widening(coordinates) - 1) * share) ** 2 >= 4 * coordinates * step**2


def test_without_widening_flooring_would_break_the_promise():
    """The mutant: a half-grid answer makes neighbours one grid step further apart than promised."""
    step = Fraction(1, 2**47)
    first, second = Fraction(1, 2) * step, Fraction(1, 2) * step + 1 - Fraction(1, 4) * step
    moved = math.floor(second / step) - math.floor(first / step)
    assert Fraction(moved) * step > second - first


@pytest.mark.parametrize("mechanism", CONTINUOUS)
def test_releases_lie_on_a_public_grid(mechanism):
    """Neighbours' releases have the same support: no low-order bits of the answer survive (Mironov 2012)."""
    for exact in (0.0, 1.0, 0.1, 1 / 3, 2**-40, 1e6 / 7):
        m = mechanism(scale=1)
        released = m.release(np.full(2000, exact))
        # every release is a multiple of the grid, or so large that floats of its size are
        kind = grid.L1_GRID if mechanism is Laplace else grid.L2_GRID
        step = 2.0 ** kind.exponent(Fraction(1))
        assert np.all(released / step == np.rint(released / step))


def test_precision_attack_sees_nothing():
    """Haney et al. 2022: the share of releases near zero with a given number of significant bits is the same."""
    shares = []
    for exact in (0.0, 1.0):
        released = Laplace(scale=1).release(np.full(200_000, exact))
        near = released[(released > 0) & (released < 0.25)]
        step = 2.0 ** grid.L1_GRID.exponent(Fraction(1))
        shares.append(float(np.mean(np.rint(near / step) % 2 == 0)))
        assert np.all(near * 2.0**47 == np.rint(near * 2.0**47))
    # fair low bit in both cases: 6.2 standard errors
    for share in shares:
        assert abs(share - 0.5) < 6.2 * 0.5 / math.sqrt(10_000)


def test_a_naive_float_mechanism_fails_the_same_test():
    """The mutant: numpy's Laplace added to a float leaves outputs that only one neighbour can produce."""
    rng = np.random.default_rng(1)
    released = 1.0 + rng.laplace(size=100_000)
    near = released[(released > 0) & (released < 0.25)]
    other = rng.laplace(size=100_000)
    other = other[(other > 0) & (other < 0.25)]
    on_coarse_grid = [float(np.mean(v * 2.0**53 == np.rint(v * 2.0**53))) for v in (near, other)]
    assert on_coarse_grid[0] == 1.0
    assert on_coarse_grid[1] < 0.9


# ------------------------------------------------------------------ releases


@pytest.mark.parametrize("mechanism", CONTINUOUS)
def test_release_keeps_shapes_and_kinds(mechanism):
    m = mechanism(scale=2)
    assert type(m.release(3)) is float
    assert type(m.release(3.5)) is float
    assert type(m.release(np.float64(3.5))) is float
    assert m.release(np.zeros((3, 4))).shape == (3, 4)
    assert m.release(np.zeros((3, 4), dtype=np.int32)).dtype == np.float64
    assert m.release([1, 2.5]).shape == (2,)
    assert m.release(np.zeros((0,))).shape == (0,)
    assert m.release(np.arange(10.0)[::2]).shape == (5,)


@pytest.mark.parametrize("mechanism", DISCRETE)
def test_discrete_release_keeps_shapes_and_kinds(mechanism):
    m = mechanism(scale=2)
    assert type(m.release(3)) is int
    assert type(m.release(np.int32(3))) is int
    assert m.release(np.zeros((3, 4), dtype=np.int16)).dtype == np.int64
    assert m.release(np.array([2**64 - 1], dtype=np.uint64))[0] > 2**61
    assert m.release(10**30) > 10**29
    for bad in (1.5, np.zeros(2), "3", True, [1.5], None):
        with pytest.raises(InvalidData):
            m.release(bad)


@pytest.mark.parametrize("mechanism", CONTINUOUS)
@pytest.mark.parametrize(
    "bad",
    [
        math.nan,
        math.inf,
        -math.inf,
        [1, math.nan],
        "3",
        None,
        True,
        [[1], [1, 2]],
        1j,
        Fraction(1, 3),
        Decimal("0.1"),
        np.longdouble(1),
        np.array([Fraction(1, 3)]),
        np.ma.masked_invalid([1.0, math.nan]),
        ["a secret"],
    ],
)
def test_bad_answers_are_refused_before_anything_is_drawn(mechanism, bad):
    class Watched(Source):
        def fill(self, nbytes):
            raise AssertionError("something was drawn")

    with pytest.raises(InvalidData) as caught:
        mechanism(scale=1).release(bad, source=Watched())
    assert "nan" not in str(caught.value).lower()
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("mechanism", CONTINUOUS + DISCRETE)
@pytest.mark.parametrize("scale", [0, -1, math.nan, math.inf, "x", None, True, "0/1"])
def test_bad_scales_are_refused(mechanism, scale):
    with pytest.raises(InvalidParameter, match="scale"):
        mechanism(scale=scale)


def test_sensitivity_below_a_whole_step_is_refused():
    for mechanism, sensitivity in ((DiscreteLaplace, Sensitivity.l1("0.5")), (DiscreteGaussian, Sensitivity.l2("0.5"))):
        with pytest.raises(InvalidSensitivity, match="at least 1"):
            mechanism(scale=1).loss(sensitivity)
    assert DiscreteLaplace(scale=1).loss(Sensitivity.l1("2.7")).pure() == 2


def test_tiny_sensitivities_are_charged_as_the_least():
    assert Laplace(scale=1).loss(Sensitivity.l1("1e-9")).pure() == 2.0**-16
    assert Gaussian(scale=1).loss(Sensitivity.l2("1e-9")).mu == pytest.approx(2.0**-16)


@pytest.mark.parametrize("mechanism", CONTINUOUS + DISCRETE)
def test_a_seeded_source_repeats_and_the_system_does_not(mechanism):
    m = mechanism(scale=1000)
    exact = np.zeros(20, dtype=np.int64)
    first = m.release(exact, source=InsecureSeededSource(7))
    assert np.array_equal(first, m.release(exact, source=InsecureSeededSource(7)))
    assert not np.array_equal(m.release(exact), m.release(exact))


@pytest.mark.parametrize("mechanism", CONTINUOUS + DISCRETE)
def test_mechanisms_are_values(mechanism):
    assert mechanism(scale="1/2") == mechanism(scale=0.5)
    assert hash(mechanism(scale=2)) == hash(mechanism(scale=2))
    with pytest.raises(AttributeError):
        mechanism(scale=1).scale = 2
    import copy
    import pickle

    assert copy.copy(mechanism(scale=2)) == mechanism(scale=2)
    assert pickle.loads(pickle.dumps(mechanism(scale=2))) == mechanism(scale=2)


@pytest.mark.parametrize("scale", ["1e-30", "1e30"])
def test_extreme_scales_work(scale):
    for mechanism in CONTINUOUS:
        m = mechanism(scale=scale)
        released = m.release(np.zeros(1000))
        assert np.isfinite(released).all()
        assert 0.1 < np.abs(released).mean() / float(Fraction(scale)) < 3
        assert math.isfinite(m.release(1e300))
        assert math.isfinite(m.release(1e-300))


def test_grouping_multiplies_the_distance():
    assert GaussianLoss(Fraction(1)).grouped(3).mu_squared == 9
    assert DiscreteLaplaceLoss(Fraction(2), 1).grouped(3).shift == 3
    assert DiscreteGaussianLoss(Fraction(4), 1).grouped(3).rho == Fraction(9, 8)


def test_discrete_gaussian_above_the_summed_scales_is_still_covered():
    """Around the change of method the two bounds agree within the proven margin."""
    near, far = DiscreteGaussianLoss(Fraction(19_999) ** 2, 1), DiscreteGaussianLoss(Fraction(20_001) ** 2, 1)
    for epsilon in (0.0, 1e-5, 1e-4):
        assert far.delta(epsilon) >= near.delta(epsilon) * 0.998
        assert far.delta(epsilon) <= near.delta(epsilon) * 1.1 + 1e-12
    assert DiscreteGaussian(scale=20_001).error(0.95) == pytest.approx(
        DiscreteGaussian(scale=19_999).error(0.95), rel=1e-3
    )


@pytest.mark.parametrize("mechanism", DISCRETE)
def test_huge_counts_and_huge_noise_saturate_instead_of_wrapping(mechanism):
    class Huge(Silent):
        def into(self, out, source=None):
            out[...] = 2**63 - 1

    largest = np.array([2**62, -(2**62)])
    # 2^62 + 2^62 would wrap to a negative number
    assert release_whole(largest, Huge(), None).tolist() == [2**63 - 1, -1]
    assert mechanism(scale=2).release(np.array([], dtype=np.int64)).size == 0
    assert mechanism(scale=2).release([]).size == 0


def test_a_bare_number_is_no_sensitivity():
    for mechanism in CONTINUOUS + DISCRETE:
        with pytest.raises(InvalidSensitivity, match="Sensitivity"):
            mechanism(scale=1).loss(1)


@pytest.mark.parametrize("mechanism", CONTINUOUS)
def test_large_answers_keep_their_size(mechanism):
    """Nothing is clamped: a float of any size comes back with noise of the stated size, alone or in an array."""
    for exact in (2e14, 1e15, 1e17, 1e300, -1e300, 1.7e308):
        alone, together = mechanism(scale=1).release(exact), mechanism(scale=1).release(np.array([exact]))[0]
        spacing = math.ulp(exact)
        assert abs(alone - exact) <= 60 + spacing
        assert abs(together - exact) <= 60 + spacing
    assert mechanism(scale=1e290).release(1.7e308) in (math.inf, pytest.approx(1.7e308, rel=1e-6))


@pytest.mark.parametrize("mechanism", CONTINUOUS)
def test_scales_beyond_floats_are_refused(mechanism):
    for scale in (Fraction(10) ** 400, Fraction(1, 10**400)):
        with pytest.raises(InvalidParameter, match="scale"):
            mechanism(scale)
    with pytest.raises(InvalidParameter, match="confidence"):
        mechanism(1).error(1 - Fraction(1, 10**400))


def test_discrete_laplace_curve_is_never_below_high_precision():
    from decimal import localcontext

    cases = (
        ("121/865", 232, "1658.5122"),
        ("7/3", 1000, "300"),
        ("2", 3, "0.1"),
        ("333333333333333667/1000", 3, "8.9e-15"),
    )
    with localcontext() as context:
        context.prec = 60
        for text, n, at in cases:
            scale, epsilon = Fraction(text), float(at)
            inverse = Decimal(scale.denominator) / Decimal(scale.numerator)
            q = (-inverse).exp()
            exact = max(
                (1 - (Decimal(epsilon) - (n - j) * inverse).exp() + q * (1 - (-j * inverse).exp())) / (1 + q)
                for j in range(n)
            )
            found = DiscreteLaplaceLoss(scale, n).profile(np.array([epsilon]), Direction.REMOVE)[0]
            assert Decimal(float(found)) >= exact
