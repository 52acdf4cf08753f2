"""Independent implementations as oracles: other libraries must agree where they are right."""

import math
from fractions import Fraction

import pytest

from dither.mechanisms.discrete_gaussian import DiscreteGaussian
from dither.mechanisms.gaussian import Gaussian
from dither.mechanisms.laplace import DiscreteLaplace, Laplace
from dither.mechanisms.randomized_response import RandomizedResponse
from dither.privacy import Guarantee, Sensitivity, calibrate, poisson

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]
L1, L2 = Sensitivity.l1(1), Sensitivity.l2(1)


@pytest.fixture(scope="module")
def pld():
    return pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("times", [1, 3, 50])
def test_laplace_composition(pld, times, delta):
    theirs = pld.from_laplace_mechanism(2.0, value_discretization_interval=1e-4).self_compose(times)
    low, high = (times * Laplace(scale=2).loss(L1)).epsilon_bounds(delta)
    assert low * (1 - 1e-4) <= theirs.get_epsilon_for_delta(delta)
    assert high <= theirs.get_epsilon_for_delta(delta) + 2e-3


@pytest.mark.parametrize(("sigma", "rate", "steps"), [(1.0, 0.01, 1000), (0.8, 0.004, 1000), (4.0, 0.2, 50)])
def test_sampled_gaussian(pld, sigma, rate, steps):
    theirs = pld.from_gaussian_mechanism(sigma, sampling_prob=rate).self_compose(steps)
    low, high = (steps * poisson(Gaussian(scale=sigma).loss(L2), rate)).epsilon_bounds(1e-6)
    epsilon = theirs.get_epsilon_for_delta(1e-6)
    assert low <= epsilon
    assert high == pytest.approx(epsilon, rel=2e-3)


def test_sampled_laplace(pld):
    theirs = pld.from_laplace_mechanism(1.0, sampling_prob=0.1).self_compose(100)
    low, high = (100 * poisson(Laplace(scale=1).loss(L1), "0.1")).epsilon_bounds(1e-6)
    epsilon = theirs.get_epsilon_for_delta(1e-6)
    assert low <= epsilon * (1 + 1e-6)
    assert high == pytest.approx(epsilon, rel=2e-3)


def test_different_mechanisms_together(pld):
    theirs = pld.from_laplace_mechanism(3.0).compose(pld.from_gaussian_mechanism(2.0))
    theirs = theirs.compose(pld.from_randomized_response(0.5, 2))
    ours = Laplace(scale=3).loss(L1) + Gaussian(scale=2).loss(L2)
    # noise parameter 1/2 with two buckets is a lie with probability 1/4
    from dither.privacy import PureLoss

    ours = ours + PureLoss(Fraction(math.log(3)))
    assert ours.epsilon(1e-6) == pytest.approx(theirs.get_epsilon_for_delta(1e-6), rel=1e-3)


def test_discrete_mechanisms(pld):
    theirs = pld.from_discrete_laplace_mechanism(0.5, sensitivity=3)
    ours = DiscreteLaplace(scale=2).loss(Sensitivity.l1(3))
    for delta in (1e-2, 1e-5):
        assert ours.epsilon(delta) == pytest.approx(theirs.get_epsilon_for_delta(delta), rel=1e-3)
    theirs = pld.from_discrete_gaussian_mechanism(2.0)
    ours = DiscreteGaussian(scale=2).loss(L2)
    for delta in (1e-2, 1e-5):
        assert ours.epsilon(delta) == pytest.approx(theirs.get_epsilon_for_delta(delta), rel=1e-3)


def test_ten_randomised_responses_cost_ten_times_one():
    """dp-accounting 0.6.0 answers ln 3 for ten; a sum of ten pure losses of ln 3 is 10·ln 3."""
    loss = RandomizedResponse(lie="1/4").loss()
    assert loss.pure() == pytest.approx(math.log(3), rel=1e-15)
    assert (10 * loss).pure() == pytest.approx(10 * math.log(3), rel=1e-14)
    low, high = (10 * loss).epsilon_bounds(1e-6)
    assert 5 * math.log(3) < low <= high <= 10 * math.log(3) * (1 + 1e-14)


def test_renyi_accountant():
    rdp = pytest.importorskip("dp_accounting.rdp")
    event = pytest.importorskip("dp_accounting")
    accountant = rdp.RdpAccountant()
    accountant.compose(event.PoissonSampledDpEvent(0.01, event.GaussianDpEvent(1.0)), 1000)
    from dither.privacy.renyi import renyi_epsilon

    ours = renyi_epsilon((1000 * poisson(Gaussian(scale=1).loss(L2), "0.01")).renyi, 1e-6)
    assert ours == pytest.approx(accountant.get_epsilon(1e-6), rel=2e-2)


def test_prv_accountant_brackets_the_same_value():
    prv = pytest.importorskip("prv_accountant")
    accountant = prv.PRVAccountant(
        prvs=[prv.PoissonSubsampledGaussianMechanism(noise_multiplier=0.8, sampling_probability=0.004)],
        max_self_compositions=[1000],
        eps_error=0.05,
        delta_error=1e-9,
    )
    low, _, high = accountant.compute_epsilon(delta=1e-5, num_self_compositions=[1000])
    ours_low, ours_high = (1000 * poisson(Gaussian(scale="0.8").loss(L2), "0.004")).epsilon_bounds(1e-5)
    assert low <= ours_high
    assert ours_low <= high
    assert ours_high - ours_low < (high - low) / 10


def test_opendp_agrees_on_discrete_noise():
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    space = dp.atom_domain(T=int), dp.absolute_distance(T=int)
    laplace = dp.m.make_laplace(*space, scale=2.0)
    assert laplace.map(3) == pytest.approx(DiscreteLaplace(scale=2).loss(Sensitivity.l1(3)).pure(), rel=1e-9)
    gaussian = dp.m.make_gaussian(*space, scale=2.0)
    assert gaussian.map(1) == pytest.approx(DiscreteGaussian(scale=2).loss(L2).zcdp(), rel=1e-9)
    response = dp.m.make_randomized_response_bool(0.75)
    assert response.map(1) == pytest.approx(RandomizedResponse(lie="1/4").loss().pure(), rel=1e-9)


def test_diffprivlib_agrees_on_calibration():
    mechanisms = pytest.importorskip("diffprivlib.mechanisms")
    for epsilon, delta in ((0.5, 1e-6), (1.0, 1e-3), (4.0, 1e-5)):
        theirs = mechanisms.GaussianAnalytic(epsilon=epsilon, delta=delta, sensitivity=1.0)._scale
        ours = float(calibrate(Gaussian, Guarantee(epsilon, delta), L2).scale)
        assert ours == pytest.approx(theirs, rel=1e-6)
