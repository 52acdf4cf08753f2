"""Laws of the loss algebra, for every loss and on random ones."""

import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dither.errors import IncompatibleLosses, InvalidParameter
from dither.mechanisms.discrete_gaussian import DiscreteGaussian
from dither.mechanisms.gaussian import Gaussian
from dither.mechanisms.laplace import DiscreteLaplace, Laplace
from dither.numeric import fraction_up
from dither.privacy import (
    Adjacency,
    ApproximateLoss,
    Composed,
    Direction,
    PrivacyLoss,
    PureLoss,
    Sensitivity,
    ZcdpLoss,
    advanced_composition,
    as_replace,
    basic_composition,
    compose,
    optimal_composition,
    poisson,
    without_replacement,
)
from dither.privacy.renyi import pure_renyi, pure_zcdp, renyi_epsilon
from dither.privacy.zcdp import zcdp_epsilon, zcdp_for_epsilon

L1, L2 = Sensitivity.l1(1), Sensitivity.l2(1)
REPLACE = Adjacency.REPLACE
SIMPLE = {
    "pure": PureLoss("0.7"),
    "approximate": ApproximateLoss("0.7", "1e-4"),
    "zcdp": ZcdpLoss("0.2"),
    "laplace": Laplace(scale=2).loss(L1),
    "discrete laplace": DiscreteLaplace(scale=2).loss(Sensitivity.l1(3)),
    "gaussian": Gaussian(scale=2).loss(L2),
    "discrete gaussian": DiscreteGaussian(scale=2).loss(L2),
}
DERIVED = {
    "repeated": 20 * SIMPLE["laplace"],
    "composed": SIMPLE["laplace"] + SIMPLE["gaussian"] + SIMPLE["pure"],
    "poisson laplace": poisson(SIMPLE["laplace"], "0.1"),
    "poisson gaussian": poisson(SIMPLE["gaussian"], "0.01"),
    "run": 100 * poisson(SIMPLE["gaussian"], "0.01"),
    "without replacement": without_replacement(
        Gaussian(scale=2).loss(Sensitivity.l2(1, adjacency=REPLACE)), sample=1, population=20
    ),
    "grouped": poisson(SIMPLE["laplace"], "0.1").grouped(3),
    "replaced": as_replace(SIMPLE["gaussian"]),
    "poisson of a composition": poisson(SIMPLE["laplace"] + SIMPLE["gaussian"], "0.2"),
}
ALL = SIMPLE | DERIVED
EPSILONS = np.linspace(-3, 3, 61)


@pytest.mark.parametrize("name", ALL)
def test_curve_is_a_hockey_stick(name):
    """Falling, convex in e^ε, between (1 − e^ε)₊ and 1, and consistent between the two directions."""
    loss = ALL[name]
    for direction in Direction:
        curve = loss.profile(EPSILONS, direction)
        assert np.all(curve <= 1)
        assert np.all(curve >= np.maximum(0, -np.expm1(EPSILONS)) - 1e-12)
        assert np.all(np.diff(curve) <= 1e-9)
        if loss.tight and not isinstance(loss, Composed):  # a composed curve is a bound from several tilts
            slopes = np.diff(curve) / np.diff(np.exp(EPSILONS))
            assert np.all(np.diff(slopes) >= -1e-6 * np.abs(slopes[:-1]) - 1e-9)
        positive = EPSILONS[EPSILONS >= 0]
        mirror = -np.expm1(-positive) + np.exp(-positive) * loss.profile(positive, direction)
        assert np.allclose(loss.profile(-positive, direction.reversed), mirror, atol=2e-5)


@pytest.mark.parametrize("name", ALL)
def test_delta_and_epsilon_are_inverse(name):
    loss = ALL[name]
    for delta in (1e-2, 1e-5, 1e-8):
        epsilon = loss.epsilon(delta)
        if 0 < epsilon < math.inf:
            assert loss.delta(Fraction(epsilon)) <= delta * (1 + 1e-3)
            low, high = loss.epsilon_bounds(delta)
            assert 0 <= low <= high == epsilon
            # epsilon_bounds takes the smaller of the two for its lower end, which would hide a fault
            assert loss._epsilon_down(delta) <= loss._epsilon_up(delta)
    assert loss.epsilon(0) == loss.pure()


@pytest.mark.parametrize("name", ALL)
def test_json_round_trip_is_exact(name):
    loss = ALL[name]
    form = json.loads(json.dumps(loss.to_json()))
    again = PrivacyLoss.from_json(form)
    assert again == loss
    assert again.to_json() == form
    assert again.adjacency is loss.adjacency


def test_json_forms_are_frozen():
    """The permanent forms: changing one of these breaks ledgers that exist."""
    assert SIMPLE["pure"].to_json() == {
        "version": 1, "kind": "pure", "adjacency": "add_remove", "epsilon": "7/10",
    }  # fmt: skip
    assert SIMPLE["laplace"].to_json() == {
        "version": 1, "kind": "laplace", "adjacency": "add_remove", "epsilon": "1/2",
    }  # fmt: skip
    assert SIMPLE["gaussian"].to_json() == {
        "version": 1, "kind": "gaussian", "adjacency": "add_remove", "mu_squared": "1/4",
    }  # fmt: skip
    assert (3 * poisson(SIMPLE["laplace"], "1/10")).to_json() == {
        "version": 1,
        "kind": "composed",
        "adjacency": "add_remove",
        "parts": [
            {
                "times": 3,
                "loss": {
                    "version": 1,
                    "kind": "poisson",
                    "adjacency": "add_remove",
                    "rate": "1/10",
                    "loss": {"version": 1, "kind": "laplace", "adjacency": "add_remove", "epsilon": "1/2"},
                },
            }
        ],
    }


@pytest.mark.parametrize("form", [None, {}, {"version": 2, "kind": "pure"}, {"version": 1, "kind": "no such kind"}])
def test_json_of_something_else_is_refused(form):
    with pytest.raises(InvalidParameter):
        PrivacyLoss.from_json(form)


def test_json_with_a_missing_field_is_refused():
    with pytest.raises(InvalidParameter, match="lacks or garbles"):
        PrivacyLoss.from_json({"version": 1, "kind": "pure", "adjacency": "add_remove"})


@pytest.mark.parametrize("name", ALL)
def test_views_agree(name):
    """A view is never below what the curve shows: Rényi, zCDP, expected loss, Gaussian."""
    loss = ALL[name]
    for delta in (1e-3, 1e-6):
        if loss.tight:
            assert renyi_epsilon(loss.renyi, delta) >= loss.epsilon_bounds(delta)[0] - 1e-9
            assert zcdp_epsilon(loss.zcdp(), delta) >= loss.epsilon_bounds(delta)[0] - 1e-9
            if loss.gaussian() < math.inf:
                mu = Fraction(loss.gaussian())
                assert Gaussian(scale=1).loss(Sensitivity.l2(mu)).epsilon(delta) >= loss.epsilon_bounds(delta)[0] - 1e-9
    for order in (1.2, 2.0, 7.5, 40.0):
        assert loss.renyi(order) <= order * loss.zcdp() * (1 + 1e-9)
        assert loss.renyi(order) <= loss.renyi(order + 1) * (1 + 1e-9)
    assert loss.kl() <= loss.renyi(1.001) * (1 + 1e-2) + 1e-12


@given(st.lists(st.integers(1, 30), min_size=2, max_size=5), st.randoms())
@settings(max_examples=20)
def test_composition_is_commutative_associative_and_counts(epsilons, random):
    losses = [PureLoss(Fraction(e, 20)) for e in epsilons]
    shuffled = random.sample(losses, len(losses))
    total = sum(losses)
    other = shuffled[0] + compose([(loss, 1) for loss in shuffled[1:]])
    assert total.pure() == other.pure() == fraction_up(Fraction(sum(epsilons), 20))
    assert total.epsilon(1e-5) == pytest.approx(other.epsilon(1e-5), rel=1e-6)
    assert (3 * losses[0]).pure() == (losses[0] + losses[0] + losses[0]).pure()
    assert 3 * losses[0] == losses[0] + losses[0] + losses[0]
    assert 6 * losses[0] == 2 * (3 * losses[0])


def test_sum_of_many_losses_is_quick_and_the_same():
    losses = [PureLoss(Fraction(k + 1, 10_000)) for k in range(1000)]
    assert sum(losses).pure() == compose([(loss, 1) for loss in losses]).pure() == fraction_up(Fraction("50.05"))


def test_gaussians_merge_in_closed_form():
    one = Gaussian(scale=1).loss(L2)
    assert 10_000 * one == Gaussian(scale=1).loss(Sensitivity.l2(100))
    assert (one + Gaussian(scale="1/2").loss(L2)).mu_squared == 5
    # Balle & Wang's formula, evaluated independently
    from scipy.stats import norm

    mu, epsilon = 100.0, (10_000 * one).epsilon(1e-5)
    delta = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon + norm.logcdf(-mu / 2 - epsilon / mu))
    assert delta == pytest.approx(1e-5, rel=1e-7)


@pytest.mark.parametrize("times", [2, 5, 30])
@pytest.mark.parametrize("epsilon", ["0.05", "0.7", "2"])
def test_numeric_composition_of_pure_losses_is_the_optimal_theorem(times, epsilon):
    for delta in (1e-3, 1e-7):
        low, high = (times * PureLoss(epsilon)).epsilon_bounds(delta)
        exact = optimal_composition(epsilon, times, delta)
        assert low * (1 - 1e-9) <= exact <= high * (1 + 1e-9)
        assert high - low <= 1e-5 * high


def brute_force_composition(losses, epsilon):
    """δ(ε) of composed randomised responses by enumerating all outcomes, in exact-enough doubles."""
    total = 0.0
    for signs in itertools.product((1, -1), repeat=len(losses)):
        loss = sum(s * e for s, e in zip(signs, losses, strict=True))
        mass = math.prod(1 / (1 + math.exp(-s * e)) for s, e in zip(signs, losses, strict=True))
        total += mass * max(0.0, -math.expm1(epsilon - loss))
    return total


@given(st.lists(st.integers(5, 150), min_size=2, max_size=7), st.floats(0.0, 2.0))
@settings(max_examples=25)
def test_bounds_hold_against_enumeration(hundredths, epsilon):
    losses = [e / 100 for e in hundredths]
    composed = compose([(PureLoss(Fraction(e, 100)), 1) for e in hundredths])
    exact = brute_force_composition(losses, epsilon)
    assert composed.delta(Fraction(epsilon)) >= exact * (1 - 1e-9)
    assert composed.delta(Fraction(epsilon)) <= exact + 2e-3
    if exact > 1e-6:
        low, high = composed.epsilon_bounds(Fraction(exact))
        assert low <= epsilon + 1e-9
        assert high >= epsilon - 1e-9


def test_bounds_bracket_the_known_values_of_private_sgd():
    """σ = 0.8, q = 0.004, δ = 1e-5: 1.2840, 3.5348, 13.0703; and within a thousandth of each other."""
    for steps, value in ((1000, 1.2840), (10_000, 3.5348), (100_000, 13.0703)):
        low, high = (steps * poisson(Gaussian(scale="0.8").loss(L2), "0.004")).epsilon_bounds(1e-5)
        assert low - 1e-4 <= value <= high + 1e-4
        assert high - low <= 1e-3 * high


def test_finer_lattices_nest():
    """Bounds computed with different steps must overlap: a wrong error term would part them."""
    from dither.privacy.distributions import fourier, merge
    from dither.privacy.distributions.lattice import upper

    part = poisson(Gaussian(scale=1).loss(L2), "0.01")
    lows, highs = [], []
    for step in (2e-3, 1e-3, 5e-4, 2e-4):
        for theta_for in (1e-4, 1e-6, 1e-8):
            items = [(upper(part, Direction.REMOVE, step, 1e-18), 1000)]
            highs.append(fourier.composed(items, fourier.tilt_for_delta(items, theta_for)).epsilon_up(1e-6))
            merged = [(merge.lower(part, Direction.REMOVE, step, 1e-18), 1000)]
            lows.append(fourier.composed(merged, fourier.tilt_for_delta(merged, theta_for)).epsilon_down(1e-6))
    lowest, highest = (min(x for x in highs if x is not None), max(x for x in lows if x is not None))
    assert highest <= lowest
    assert lowest - highest < 1e-4


def test_lower_bounds_fail_if_their_safety_is_removed():
    """A mutant that rounds up instead of merging would claim more than the truth."""
    from dither.privacy.distributions import fourier
    from dither.privacy.distributions.lattice import upper

    part = PureLoss("0.1")
    step = 0.03  # not a divisor: the polygon overstates
    items = [(upper(part, Direction.REMOVE, step, 1e-18), 50)]
    claimed = fourier.composed(items, fourier.tilt_for_delta(items, 1e-6)).epsilon_down(1e-6)
    assert claimed > optimal_composition("0.1", 50, 1e-6) * 1.01


# ------------------------------------------------------------------ groups


@pytest.mark.parametrize("size", [2, 3, 5])
def test_group_bound_covers_the_true_group(size):
    """For Laplace the true group curve is known: the generic bound must lie above it."""
    from dither.privacy.group import Grouped

    one = Laplace(scale=2).loss(L1)
    generic = Grouped(one, size, one.adjacency)
    exact = one.grouped(size)
    assert exact.pure() == size * 0.5
    curve = exact.profile(EPSILONS, Direction.REMOVE)
    assert np.all(generic.profile(EPSILONS, Direction.REMOVE) >= curve - 1e-12)
    assert generic.pure() >= exact.pure()


def test_group_of_an_approximate_loss_is_the_textbook_bound():
    loss = ApproximateLoss(1, "1e-6").grouped(3)
    assert loss.exact_epsilon == 3
    assert float(loss.exact_delta) == pytest.approx(1e-6 * math.expm1(3) / math.expm1(1))


def test_replace_is_two_steps():
    assert as_replace(Laplace(scale=2).loss(L1)).pure() == 1.0
    assert as_replace(Gaussian(scale=2).loss(L2)).zcdp() == 0.5
    with pytest.raises(IncompatibleLosses):
        as_replace(PureLoss(1, REPLACE))


# ------------------------------------------------------------------ theorems and conversions


def test_theorems_are_ordered():
    basic, _ = basic_composition("0.1", 1000)
    advanced, delta = advanced_composition("0.1", 1000, "1e-6")
    optimal = optimal_composition("0.1", 1000, "1e-6")
    assert optimal < advanced < basic
    assert advanced == pytest.approx(math.sqrt(2000 * math.log(1e6)) * 0.1 + 100 * math.expm1(0.1))
    assert 1e-6 <= delta <= 1.000001e-6
    assert optimal_composition("0.1", 1000, 0) == pytest.approx(100.0)


def test_optimal_composition_with_delta_matches_enumeration():
    """Three (ε, δ) mechanisms of the worst kind, enumerated."""
    epsilon, delta, k = 0.5, 1e-3, 3
    lost = 1 - (1 - delta) ** k
    for target in (0.01, 0.1):
        found = optimal_composition(epsilon, k, target, delta)
        reached = lost + (1 - lost) * brute_force_composition([epsilon] * k, found)
        assert reached == pytest.approx(target, rel=1e-9)
    assert optimal_composition(epsilon, k, 1e-3, delta) == math.inf


def test_pure_loss_views_are_those_of_randomised_response():
    for epsilon in (0.01, 0.5, 3.0):
        p = 1 / (1 + math.exp(-epsilon))
        for order in (1.5, 2.0, 10.0):
            exact = math.log(p**order * (1 - p) ** (1 - order) + (1 - p) ** order * p ** (1 - order)) / (order - 1)
            assert pure_renyi(epsilon, order) == pytest.approx(exact, rel=1e-6)
            assert exact <= order * pure_zcdp(epsilon) * (1 + 1e-9)
        assert pure_zcdp(epsilon) == pytest.approx(epsilon * math.tanh(epsilon / 2))
        assert pure_zcdp(epsilon) <= epsilon**2 / 2 * (1 + 1e-12)


def test_zcdp_conversion_inverts_and_beats_the_simple_bound():
    for rho, delta in ((0.01, 1e-6), (0.5, 1e-9), (3.0, 1e-3)):
        epsilon = zcdp_epsilon(rho, delta)
        assert epsilon < rho + 2 * math.sqrt(rho * math.log(1 / delta))
        back = zcdp_for_epsilon(epsilon, delta)
        assert back == pytest.approx(rho, rel=1e-6)
        assert zcdp_epsilon(back, delta) <= epsilon
        # a Gaussian with that ρ must be covered
        assert Gaussian(scale=1).loss(Sensitivity.l2(Fraction(math.sqrt(2 * rho)))).epsilon(delta) <= epsilon


def test_infinite_loss_is_legal_and_nan_never_appears():
    gives_all_away = ApproximateLoss(0, 1)
    assert gives_all_away.epsilon(1e-6) == math.inf
    both = gives_all_away + PureLoss(1)
    assert isinstance(both, Composed)
    assert both.epsilon(1e-6) == math.inf
    assert both.pure() == math.inf
    assert both.delta(1) == 1.0
    nothing = PureLoss(0)
    assert nothing.epsilon(0) == 0.0
    assert nothing.delta(0) == 0.0
    assert (10 * nothing).epsilon(1e-6) == 0.0
    assert (nothing + PureLoss(1)) == PureLoss(1)
    assert (5 * nothing + nothing).pure() == 0.0


def test_a_loss_kind_can_not_be_taken_twice():
    with pytest.raises(InvalidParameter, match="taken"):

        class Another(PureLoss, kind="pure"):
            pass


def test_mistakes_are_named():
    mechanism = Laplace(scale=1)
    for mistake in (
        lambda: compose([]),
        lambda: compose([(mechanism, 1)]),
        lambda: poisson(mechanism, "0.1"),
        lambda: without_replacement(mechanism, sample=1, population=2),
        lambda: as_replace(mechanism),
        lambda: 0 * PureLoss(1),
        lambda: PureLoss(-1),
        lambda: PureLoss(1).epsilon(1),
        lambda: PureLoss(1).renyi(1),
    ):
        with pytest.raises(InvalidParameter):
            mistake()
    with pytest.raises(TypeError):
        PureLoss(1) + 3
    with pytest.raises(TypeError):
        (PureLoss(1) + PureLoss(2)) + "x"
    with pytest.raises(TypeError):
        1.5 * PureLoss(1)
    assert PureLoss(1) * 3 == 3 * PureLoss(1)
