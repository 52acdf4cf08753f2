"""Where bounds are easily lost: tiny and huge parameters, deep tails, directions that mix."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from dither.errors import InvalidParameter, OutOfBudget
from dither.mechanisms.discrete_gaussian import DiscreteGaussian, DiscreteGaussianLoss
from dither.mechanisms.gaussian import Gaussian, GaussianLoss
from dither.mechanisms.laplace import DiscreteLaplaceLoss, Laplace, LaplaceLoss
from dither.privacy import (
    Adjacency,
    ApproximateLoss,
    Guarantee,
    PrivacyLoss,
    PureLoss,
    Sensitivity,
    ZcdpFilter,
    ZcdpLoss,
    ZcdpOdometer,
    as_replace,
    calibrate,
    compose,
    optimal_composition,
    poisson,
    without_replacement,
)
from dither.privacy.renyi import pure_gaussian
from support.sizes import at_night

L1, L2 = Sensitivity.l1(1), Sensitivity.l2(1)
ALL = [
    PureLoss("0.7"),
    ApproximateLoss("0.7", "1e-4"),
    ZcdpLoss("0.2"),
    Laplace(scale=2).loss(L1),
    DiscreteLaplaceLoss(Fraction(2), 3),
    Gaussian(scale=2).loss(L2),
    DiscreteGaussian(scale=2).loss(L2),
    20 * Laplace(scale=2).loss(L1),
    100 * poisson(Gaussian(scale=2).loss(L2), "0.01"),
    as_replace(Gaussian(scale=2).loss(L2)),
]


@pytest.mark.parametrize(
    ("epsilon", "times"),
    [
        # these two are composed by transforms as long as there are
        pytest.param(epsilon, times, marks=[at_night] if times == 10**6 and epsilon in ("1e-6", 5) else [])
        for epsilon in ("1e-6", 5, 50, 700, 1000)
        for times in (2, 100, 10**6)
    ],
)
@pytest.mark.parametrize("kind", [PureLoss, LaplaceLoss])
def test_extreme_compositions_answer(kind, epsilon, times):
    loss = times * kind(Fraction(epsilon))
    for delta in (1e-300, 1e-9, 0.5):
        low, high = loss.epsilon_bounds(delta)
        assert 0 <= low <= high <= loss.pure()
        assert 0 <= loss.delta(1) <= 1


def test_extreme_parameters_answer():
    tiny = Fraction(1, 10**400)
    for loss in ALL:
        assert loss.epsilon(tiny) == loss.pure()
        low, high = loss.epsilon_bounds(tiny)
        assert low <= high
        assert loss.epsilon(Fraction(999_999_999, 10**9)) == 0
    assert poisson(PureLoss(1), 1 - Fraction(1, 10**20)).pure() == 1
    with pytest.raises(InvalidParameter, match="rate must be at least"):
        poisson(PureLoss(1), tiny)
    assert ApproximateLoss(1, "1e-6").grouped(1000).exact_delta == 1
    assert ApproximateLoss(1, 0).grouped(1000).pure() == 1000


@pytest.mark.parametrize("count", [9, 16, 30])
@pytest.mark.parametrize("delta", [1e-20, 1e-100, 1e-270])
def test_many_different_losses_at_tiny_deltas_are_not_understated(count, delta):
    """The tilt is limited there: a bound that the last point of the window doesn't certify must not be given."""
    total = compose([(DiscreteGaussianLoss(Fraction(100 + i), 1), 1) for i in range(count)])
    near = GaussianLoss(sum((Fraction(1, 100 + i) for i in range(count)), Fraction(0)))
    assert total.epsilon(delta) >= near.epsilon(delta) * (1 - 1e-6)


@pytest.mark.parametrize(
    ("loss", "deltas"),
    [
        pytest.param(
            100 * poisson(GaussianLoss(Fraction(1)), "0.01"), [10.0**-k for k in range(2, 60, 3)], marks=at_night
        ),
        pytest.param(
            775 * poisson(GaussianLoss(Fraction("0.5322") ** 2), "0.000492"),
            [10.0**-k for k in range(3, 40, 3)],
            marks=at_night,
        ),
        (1000 * poisson(LaplaceLoss(Fraction(1)), "0.01"), [10.0**-k for k in range(2, 40, 3)]),
        (10**5 * PureLoss("0.1"), [1e-3, 1e-50, 1e-150, 1e-202]),
    ],
)
def test_smaller_deltas_never_cost_less(loss, deltas):
    """A bound that its window doesn't certify would fall; one that misses its window would jump."""
    found = [loss.epsilon(delta) for delta in deltas]
    # beyond δ = 1e-25 the bound may be loose by a per cent or two
    assert all(a <= b * (1 + 2e-2) for a, b in itertools.pairwise(found)), found
    # and not far above the truth either: never beyond what the orders give
    from dither.privacy.renyi import renyi_epsilon

    assert all(e <= renyi_epsilon(loss.renyi, d) * (1 + 1e-9) for e, d in zip(found, deltas, strict=True))


def test_optimal_composition_is_not_exceeded_from_below():
    assert (10**5 * PureLoss("0.1")).epsilon(1e-202) >= optimal_composition("0.1", 10**5, 1e-202) * (1 - 1e-9)
    # cancellation between the target and what is given away
    found = optimal_composition("7.779e-6", 43, "1.64690000027e-9", "3.83e-11")
    assert found >= optimal_composition("7.779e-6", 43, "1.64690000028e-9", "3.83e-11")


def test_what_is_no_number_counts_as_everything():
    for loss, least in (
        (as_replace(3000 * LaplaceLoss(Fraction(1))), 0.99),
        (poisson(3000 * LaplaceLoss(Fraction(1)), "0.5"), 0.49),
        (poisson(1000 * LaplaceLoss(Fraction(5)), "0.1"), 0.09),
        (as_replace(10**5 * DiscreteGaussian(scale=1).loss(L2)), 0.99),
    ):
        assert loss.delta(800) >= least

    class Broken(PureLoss, kind="broken"):
        __slots__ = ()

        def profile(self, epsilon, direction):
            return np.full(epsilon.shape, np.nan)

        def pure(self):
            return math.inf

    assert Broken(1).delta(1) == 1.0


class Flag(PrivacyLoss, kind="flag"):
    """Given away with probability one half, in one direction only."""

    __slots__ = ("way",)
    adjacency = Adjacency.ADD_REMOVE

    def __init__(self, way):
        object.__setattr__(self, "way", way)

    def profile(self, epsilon, direction):
        given = 0.5 if direction.value == self.way else 0.0
        return np.maximum(-np.expm1(np.minimum(epsilon, 0)), 0) * (1 - given) + given

    def parameters(self):
        return {"way": self.way}

    @classmethod
    def from_parameters(cls, parameters):
        return cls(parameters["way"])

    def __hash__(self):
        return hash(self.way)

    def __eq__(self, other):
        return isinstance(other, Flag) and other.way == self.way


def test_one_replacement_moves_each_part_its_own_way():
    """Replacing {a} by {b} removes for one part and adds for the other: 1 − ½·½ is given away, not ½."""
    both = as_replace(Flag("remove") + Flag("add"))
    assert both.delta(5) >= 0.75 * (1 - 1e-6)
    assert as_replace(3 * LaplaceLoss(Fraction(1))).pure() == 6


def test_posterior_fails_no_more_often_than_said():
    """Both tails count: a pair that is (0.01, 0.1)-private leaves one-sided bounds with probability 0.299."""
    p, q = np.array([0.2, 0.099, 0.701]), np.array([0.099, 0.2, 0.701])
    guarantee = Guarantee("0.01", "0.10001")
    assert max(np.maximum(a - math.exp(0.01) * b, 0).sum() for a, b in ((p, q), (q, p))) <= 0.10001
    low, high = guarantee.posterior(0.5)
    posterior = p / (p + q)
    assert p[(posterior < low) | (posterior > high)].sum() <= 2 * 0.10001
    sure = Guarantee(50).posterior(1 - Fraction(1, 10**20))
    assert sure[0] < 0.02


@pytest.mark.parametrize(
    ("loss", "delta"),
    [
        (LaplaceLoss(Fraction(1, 10**12)), "1e-14"),
        (LaplaceLoss(Fraction(1, 10**9)), "1e-11"),
        (LaplaceLoss(Fraction(1, 10**6)), "1e-8"),
    ],
)
def test_tiny_losses_are_bounded_from_below_too(loss, delta):
    low, high = loss.epsilon_bounds(delta)
    # 1 − e^{(ε−e)/2} = δ, so ε = e + 2·ln(1−δ)
    exact = float(loss.exact_epsilon) + 2 * math.log1p(-float(delta))
    assert low <= exact * (1 + 1e-12)
    assert high >= exact * (1 - 1e-12)
    assert high - low <= 1e-9 * high


@pytest.mark.parametrize(
    "loss", [DiscreteLaplaceLoss(Fraction(10**8), 1), DiscreteGaussianLoss(Fraction(399_999_999), 1)]
)
def test_discrete_lower_bounds_stay_below_the_continuous_truth(loss):
    near = LaplaceLoss(loss.exact_epsilon) if isinstance(loss, DiscreteLaplaceLoss) else GaussianLoss(2 * loss.rho)
    for delta in ("1e-11", "1.5e-5"):
        low, high = loss.epsilon_bounds(delta)
        assert low <= near.epsilon(delta) * (1 + 1e-6) + 1e-15
        assert low <= high


def test_thousands_of_zcdp_losses_merge():
    assert (5000 * ZcdpLoss("1e-5")) == ZcdpLoss("0.05")
    many = 5000 * DiscreteGaussian(scale=100).loss(Sensitivity.l2(2))
    assert many.epsilon(1e-6) < 8


def test_the_zcdp_filter_counts_exactly():
    budget = ZcdpFilter(rho="0.3")
    for _ in range(3):
        budget.spend(ZcdpLoss("0.1"))
    assert budget.remaining == 0
    with pytest.raises(OutOfBudget):
        budget.spend(ZcdpLoss("1e-17"))
    with pytest.raises(InvalidParameter):
        ZcdpOdometer(delta=2)


@pytest.mark.parametrize("epsilon", ["1e-3", "0.01", "1", "10"])
@pytest.mark.parametrize("delta", [0, "1e-12", "1e-6", "0.1", "0.9"])
def test_calibration_always_meets_what_it_promises(epsilon, delta):
    guarantee = Guarantee(epsilon, delta)
    assert guarantee.met_by(calibrate(Laplace, guarantee, L1).loss(L1))
    if delta:
        assert guarantee.met_by(calibrate(Gaussian, guarantee, L2).loss(L2))


def test_gaussian_view_of_tiny_losses_is_positive():
    # the corner of randomised response: μ ≈ ε·√(2π)/2
    for epsilon in (1e-17, 1e-15, 1e-8):
        assert pure_gaussian(epsilon) >= epsilon * math.sqrt(2 * math.pi) / 2 * (1 - 1e-9)


@pytest.mark.parametrize("order", [1, 0.5, -1, math.nan, math.inf])
def test_orders_are_checked_everywhere(order):
    for loss in ALL:
        with pytest.raises(InvalidParameter, match="order"):
            loss.renyi(order)


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("laplace", "epsilon", "-1"),
        ("laplace", "epsilon", "x"),
        ("laplace", "adjacency", "sideways"),
        ("gaussian", "mu_squared", "-1"),
        ("poisson", "rate", "2"),
        ("composed", "parts", []),
        ("without_replacement", "sample", 9),
        ("discrete_gaussian", "shift", -1),
    ],
)
def test_json_is_validated(kind, field, value):
    replace = Gaussian(scale=1).loss(Sensitivity.l2(1, adjacency=Adjacency.REPLACE))
    forms = {
        "laplace": LaplaceLoss(Fraction(1)),
        "gaussian": GaussianLoss(Fraction(1)),
        "poisson": poisson(PureLoss(1), "0.5"),
        "composed": PureLoss(1) + PureLoss(2),
        "without_replacement": without_replacement(replace, sample=1, population=5),
        "discrete_gaussian": DiscreteGaussianLoss(Fraction(1), 1),
    }
    form = forms[kind].to_json()
    assert PrivacyLoss.from_json(form) == forms[kind]
    with pytest.raises(ValueError, match=r"."):
        PrivacyLoss.from_json({**form, field: value})
