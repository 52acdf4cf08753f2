import math
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from dither.errors import IncompatibleLosses, InvalidParameter, InvalidSensitivity, NotPrivate, OutOfBudget
from dither.mechanisms.discrete_gaussian import DiscreteGaussian
from dither.mechanisms.gaussian import Gaussian, classical_gaussian_scale
from dither.mechanisms.laplace import DiscreteLaplace, Laplace
from dither.privacy import (
    Adjacency,
    ApproximateLoss,
    Contribution,
    Guarantee,
    PrivacyUnit,
    PureFilter,
    PureLoss,
    PureOdometer,
    RenyiFilter,
    RenyiOdometer,
    Sensitivity,
    ZcdpFilter,
    ZcdpLoss,
    ZcdpOdometer,
    calibrate,
    poisson,
)

L1, L2 = Sensitivity.l1(1), Sensitivity.l2(1)

# ------------------------------------------------------------------ guarantees in words


def test_posterior_of_the_issue():
    low, high = Guarantee(epsilon=1).posterior(prior=0.1)
    assert low == pytest.approx(0.1 / (0.1 + math.e * 0.9))
    assert high == pytest.approx(0.1 / (0.1 + math.exp(-1) * 0.9))
    assert str(low).startswith("0.0392")
    assert str(high).startswith("0.2319")


@given(st.floats(0.01, 5), st.floats(0.001, 0.999), st.integers(2, 6))
def test_posterior_bounds_hold_for_randomised_response(epsilon, prior, outcomes):
    """Bayes' rule on the worst ε-private mechanism reaches the bounds and never leaves them."""
    low, high = Guarantee(Fraction(epsilon)).posterior(Fraction(prior))
    keep = 1 / (1 + math.exp(-epsilon))
    for likelihood, other in ((keep, 1 - keep), (1 - keep, keep)):
        posterior = prior * likelihood / (prior * likelihood + (1 - prior) * other)
        assert low <= posterior <= high
    assert high == pytest.approx(prior * keep / (prior * keep + (1 - prior) * (1 - keep)), rel=1e-9)
    assert outcomes >= 2


def test_posterior_with_delta_fails_only_as_often_as_said():
    """For the Gaussian mechanism: the loss leaves ±(ε + ln(2 + e^−ε)) with probability at most 2δ."""
    from scipy.stats import norm

    loss = Gaussian(scale=1).loss(L2)
    delta = 1e-3
    guarantee = Guarantee(Fraction(loss.epsilon(delta)), delta)
    worst = float(guarantee.epsilon) + math.log(2 + math.exp(-float(guarantee.epsilon)))
    assert norm.sf(worst - 0.5) + norm.cdf(-worst - 0.5) <= 2 * delta  # the loss is N(1/2, 1)
    low, high = guarantee.posterior(0.1)
    assert high == pytest.approx(0.1 * math.exp(worst) / (0.1 * math.exp(worst) + 0.9))
    assert 0 < low < 0.1
    assert "but for a chance of 0.1" in guarantee.sentence(0.1)
    with pytest.raises(InvalidParameter, match="failure"):
        guarantee.posterior(0.1, failure=1e-4)


def test_certainty_stays_certain():
    assert Guarantee(1).posterior(0) == (0.0, 0.0)
    assert Guarantee(1).posterior(1) == (1.0, 1.0)
    assert Guarantee(2000).posterior(0.5) == (0.0, 1.0)


@pytest.mark.parametrize("epsilon", [0, -1, float("nan"), float("inf"), "x"])
def test_guarantees_that_promise_nothing_are_refused(epsilon):
    with pytest.raises(InvalidParameter, match="epsilon"):
        Guarantee(epsilon=epsilon)
    with pytest.raises(InvalidParameter):
        Guarantee(epsilon=1, delta=1)
    with pytest.raises(InvalidParameter, match="prior"):
        Guarantee(epsilon=1).posterior(prior=1.5)


# ------------------------------------------------------------------ units and sensitivities


def test_units_speak():
    assert "each user_id" in str(PrivacyUnit("user_id"))
    assert "each row" in str(PrivacyUnit(adjacency=Adjacency.REPLACE))
    with pytest.raises(InvalidParameter):
        Contribution(groups=0)


def test_sensitivity_states_its_norm():
    with pytest.raises(InvalidSensitivity, match="l1"):
        Laplace(scale=1).loss(L2)
    with pytest.raises(InvalidSensitivity, match="l2"):
        Gaussian(scale=1).loss(L1)
    assert Gaussian(scale=1).loss(L1.as_l2()).mu_squared == 1
    with pytest.raises(InvalidSensitivity):
        Sensitivity.linf(1).as_l2()
    for bound in (0, -1, float("nan")):
        with pytest.raises(InvalidParameter):
            Sensitivity.l1(bound)
    with pytest.raises(InvalidSensitivity, match="adjacency"):
        Sensitivity.l1(1, adjacency="replace")


def test_contribution_bounds_every_norm():
    many = Sensitivity.contribution(groups=4, per_group=3)
    assert Laplace(scale=1).loss(many).pure() == 12
    assert Gaussian(scale=1).loss(many).mu_squared == 36
    assert DiscreteGaussian(scale=6).loss(many).zcdp() == 0.5


def test_losses_carry_the_adjacency_of_their_sensitivity():
    replaced = Sensitivity.l1(1, adjacency=Adjacency.REPLACE)
    assert Laplace(scale=1).loss(replaced).adjacency is Adjacency.REPLACE
    with pytest.raises(IncompatibleLosses):
        Laplace(scale=1).loss(replaced) + Laplace(scale=1).loss(L1)


# ------------------------------------------------------------------ calibration


@pytest.mark.parametrize("epsilon", ["0.1", "1", "3.7"])
@pytest.mark.parametrize("delta", [0, "1e-6"])
def test_laplace_is_calibrated_exactly(epsilon, delta):
    guarantee = Guarantee(epsilon, delta)
    found = calibrate(Laplace, guarantee, Sensitivity.l1(3))
    assert guarantee.met_by(found.loss(Sensitivity.l1(3)))
    assert not guarantee.met_by(Laplace(found.scale * Fraction(999_999, 1_000_000)).loss(Sensitivity.l1(3)))
    if delta == 0:
        assert found.scale == 3 / Fraction(epsilon)


@pytest.mark.parametrize("epsilon", ["0.01", "1", "8", "30"])
@pytest.mark.parametrize("delta", ["1e-3", "1e-12"])
@pytest.mark.parametrize("sensitivity", [L2, Sensitivity.contribution(groups=3, per_group=7)])
def test_gaussian_is_calibrated_exactly(epsilon, delta, sensitivity):
    guarantee = Guarantee(epsilon, delta)
    found = calibrate(Gaussian, guarantee, sensitivity)
    assert guarantee.met_by(found.loss(sensitivity))
    assert not guarantee.met_by(Gaussian(found.scale * Fraction(999_999, 1_000_000)).loss(sensitivity))


def test_classical_gaussian_is_worse_where_proven_and_wrong_where_not():
    for epsilon in (0.1, 0.5, 1.0):
        assert float(calibrate(Gaussian, Guarantee(epsilon, 1e-5), L2).scale) < classical_gaussian_scale(
            epsilon, 1e-5, L2
        )
    # the formula beyond its proof: at ε = 12, δ = 1e-5 it is not private
    broken = math.sqrt(2 * math.log(1.25 / 1e-5)) / 12
    assert Gaussian(scale=broken).loss(L2).epsilon(1e-5) > 12
    assert Gaussian(scale=math.sqrt(2 * math.log(1.25 / 1e-5)) / 8).loss(L2).epsilon(1e-5) < 8
    # the form that lacks the square root is private but far too noisy
    too_noisy = 2 * math.log(1.25 / 1e-5)
    assert too_noisy > 4 * float(calibrate(Gaussian, Guarantee(1, 1e-5), L2).scale)


@pytest.mark.parametrize("mechanism", [Laplace, DiscreteLaplace, DiscreteGaussian])
def test_generic_calibration_meets_the_guarantee_tightly(mechanism):
    guarantee = Guarantee(1, "1e-6")
    sensitivity = L2 if mechanism is DiscreteGaussian else L1
    found = calibrate(mechanism, guarantee, sensitivity, plan=lambda loss: 5 * loss)
    assert guarantee.met_by(5 * found.loss(sensitivity))
    assert not guarantee.met_by(5 * mechanism(scale=found.scale * Fraction(999, 1000)).loss(sensitivity))


def test_calibration_of_a_training_run():
    guarantee = Guarantee(1, "1e-5")
    found = calibrate(Gaussian, guarantee, L2, plan=lambda loss: 10_000 * poisson(loss, rate="0.004"))
    assert guarantee.met_by(10_000 * poisson(found.loss(L2), rate="0.004"))
    assert float(found.scale) == pytest.approx(1.6594, abs=1e-3)


@pytest.mark.parametrize("mechanism", [Laplace, Gaussian, DiscreteLaplace, DiscreteGaussian])
@pytest.mark.parametrize("error", [0.5, 3, 50, 1e4])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_calibration_for_an_error(mechanism, error, confidence):
    found = calibrate(mechanism, error=error, confidence=confidence)
    assert found.error(confidence) <= error
    assert mechanism(scale=found.scale * Fraction(1001, 1000)).error(confidence) > error or error < 10


def test_calibration_refuses_what_no_noise_can_do():
    with pytest.raises(NotPrivate, match="δ = 0"):
        calibrate(Gaussian, Guarantee(1), L2)
    for mechanism, sensitivity in ((Laplace, L1), (Gaussian, L2)):
        with pytest.raises(NotPrivate, match="2\\^-16"):
            calibrate(mechanism, Guarantee("1e-8", "1e-9"), sensitivity)
    with pytest.raises(NotPrivate, match="at least 1e-290"):
        calibrate(Gaussian, Guarantee(1, Fraction(1, 10**302)), L2)
    with pytest.raises(NotPrivate, match="no scale"):
        calibrate(Gaussian, Guarantee(1), L2, plan=lambda loss: 2 * loss)
    with pytest.raises(InvalidParameter, match="either"):
        calibrate(Laplace, Guarantee(1), L1, error=3)
    with pytest.raises(InvalidParameter, match="either"):
        calibrate(Laplace)
    with pytest.raises(InvalidParameter, match="sensitivity"):
        calibrate(Laplace, Guarantee(1))
    with pytest.raises(InvalidParameter, match="error must be"):
        calibrate(Laplace, error=0)


# ------------------------------------------------------------------ filters and odometers


def test_a_refused_spend_changes_nothing_and_smaller_ones_still_fit():
    budget = PureFilter(epsilon=1)
    budget.spend(PureLoss("0.7"))
    with pytest.raises(OutOfBudget, match=r"ε = 0\.3"):
        budget.spend(PureLoss("0.31"))
    assert budget.spent == Fraction(7, 10)
    budget.spend(PureLoss("0.3"))
    assert budget.remaining == 0
    assert not budget.fits(Gaussian(scale=1).loss(L2))


def test_filters_keep_one_adjacency():
    with pytest.raises(IncompatibleLosses):
        PureFilter(1).spend(PureLoss("0.1", Adjacency.REPLACE))


def test_zcdp_filter_keeps_delta_apart():
    budget = ZcdpFilter(rho=1, delta="1e-6")
    budget.spend(Gaussian(scale=1).loss(L2))
    assert budget.spent == Fraction(1, 2)
    budget.spend(ApproximateLoss("0.1", "6e-7"))
    assert budget.delta_spent > 0
    with pytest.raises(OutOfBudget):
        budget.spend(ApproximateLoss("0.1", "6e-7"))
    assert budget.epsilon(1e-6) == math.inf
    assert budget.epsilon(2e-6) < 8
    plain = ZcdpFilter(rho=1)
    assert not plain.fits(ApproximateLoss("0.1", "6e-7"))


def test_renyi_filter_allows_no_more_than_exact_composition_would():
    budget, spent = RenyiFilter(epsilon=2, delta=1e-6), 0
    step = Gaussian(scale=30).loss(L2)
    while budget.fits(step):
        budget.spend(step)
        spent += 1
    assert spent > 50
    assert (spent * step).epsilon(1e-6) <= 2
    with pytest.raises(OutOfBudget):
        budget.spend(step)


def test_odometers_say_no_less_than_was_spent():
    pure, meter, orders = PureOdometer(), ZcdpOdometer(delta=1e-6), RenyiOdometer(delta=1e-6)
    assert meter.epsilon() == 0
    total = None
    for scale in (3, 10, 5, 40):
        loss = Laplace(scale=scale).loss(L1)
        pure.record(loss)
        meter.record(loss)
        orders.record(loss)
        total = loss if total is None else total + loss
        assert pure.epsilon() >= total.pure() - 1e-12
        assert meter.epsilon() >= total.epsilon(1e-6)
        assert orders.epsilon() >= total.epsilon(1e-6)
    with pytest.raises(IncompatibleLosses):
        pure.record(ZcdpLoss(1))
    with pytest.raises(IncompatibleLosses):
        meter.record(ApproximateLoss(1, "1e-6"))
    with pytest.raises(IncompatibleLosses):
        orders.record(ApproximateLoss(1, "1e-6"))
    # over thousands of small steps the orders beat the levels of the zCDP odometer, and stay above the truth
    step = Gaussian(scale=100).loss(L2)
    for _ in range(3000):
        orders.record(step)
        meter.record(step)
    assert (3000 * step).epsilon(1e-6) < orders.epsilon() < meter.epsilon()


@pytest.mark.parametrize("make", [PureFilter, ZcdpFilter])
def test_empty_budgets_are_refused(make):
    for amount in (0, -1, float("nan")):
        with pytest.raises(InvalidParameter):
            make(amount)
    with pytest.raises(InvalidParameter):
        RenyiFilter(epsilon=1, delta=1e-6, orders=[])
