"""Amplification by sampling against explicit mixtures, enumeration and quadrature."""

import math
from fractions import Fraction

import numpy as np
import pytest

from dither.errors import IncompatibleLosses, InvalidParameter
from dither.mechanisms.gaussian import Gaussian
from dither.mechanisms.laplace import DiscreteLaplace
from dither.privacy import Adjacency, ApproximateLoss, Direction, PureLoss, Sensitivity, poisson, without_replacement

L2 = Sensitivity.l2(1)
REPLACE = Adjacency.REPLACE


def test_poisson_amplifies_as_the_theorem_says():
    base = PureLoss(1)
    assert poisson(base, "0.01").pure() == pytest.approx(math.log1p(0.01 * math.expm1(1)))
    mixed = poisson(ApproximateLoss(1, "1e-4"), "0.01")
    assert mixed.delta(Fraction(math.log1p(0.01 * math.expm1(1)) + 1e-12)) == pytest.approx(1e-6, rel=1e-4)
    assert poisson(base, 1) is base


@pytest.mark.parametrize("rate", [0.01, 0.3, 0.9])
@pytest.mark.parametrize("direction", list(Direction))
def test_poisson_curve_matches_the_mixture_of_discrete_laws(rate, direction):
    """Brute force: the sampled discrete Laplace as an explicit mixture of two laws on the whole numbers."""
    scale, shift = 1.5, 2
    x = np.arange(-80, 81)
    without = np.exp(-np.abs(x) / scale)
    without /= without.sum()
    with_unit = np.exp(-np.abs(x - shift) / scale)
    with_unit /= with_unit.sum()
    mixture = (1 - rate) * without + rate * with_unit
    p, q = (mixture, without) if direction is Direction.REMOVE else (without, mixture)
    loss = poisson(DiscreteLaplace(scale="1.5").loss(Sensitivity.l1(2)), Fraction(str(rate)))
    for epsilon in np.linspace(-1.5, 1.5, 31):
        exact = np.maximum(p - math.exp(epsilon) * q, 0).sum()
        assert loss.profile(np.array([epsilon]), direction)[0] == pytest.approx(exact, abs=1e-9)


def test_without_replacement_matches_enumeration():
    """All samples of 2 of 5 replace-neighbours, randomised response on the sample's sum parity-free law."""
    rate, epsilon_one = Fraction(2, 5), 1.2
    keep = 1 / (1 + math.exp(-epsilon_one))
    base = PureLoss("1.2", REPLACE)
    loss = without_replacement(base, sample=2, population=5)
    # worst case: the mechanism sees the changed unit with probability 2/5 and then is (P, Q), else it is Q or P
    p, q = np.array([keep, 1 - keep]), np.array([1 - keep, keep])
    for other in (q, p):
        first = float(rate) * p + (1 - float(rate)) * other
        second = float(rate) * q + (1 - float(rate)) * other
        for epsilon in np.linspace(-1, 1, 21):
            exact = np.maximum(first - math.exp(epsilon) * second, 0).sum()
            assert loss.profile(np.array([epsilon]), Direction.REMOVE)[0] >= exact - 1e-12


def test_renyi_of_the_sampled_gaussian_matches_quadrature():
    from scipy.integrate import quad
    from scipy.stats import norm

    sigma, rate = 2.0, 0.1
    loss = poisson(Gaussian(scale=2).loss(L2), "0.1")
    for order in (2, 3, 8):
        for swap in (False, True):

            def integrand(x, order=order, swap=swap):
                plain = norm.pdf(x, 0, sigma)
                mixed = (1 - rate) * plain + rate * norm.pdf(x, 1, sigma)
                p, q = (plain, mixed) if swap else (mixed, plain)
                return q * (p / q) ** order

            value = math.log(quad(integrand, -40, 60, limit=500)[0]) / (order - 1)
            assert loss.renyi(float(order)) >= value - 1e-12
            if not swap:
                assert loss.renyi(float(order)) == pytest.approx(value, rel=1e-6)


def test_sampling_refuses_the_wrong_adjacency():
    with pytest.raises(IncompatibleLosses, match="add_remove"):
        poisson(PureLoss(1, REPLACE), "0.1")
    with pytest.raises(IncompatibleLosses, match="replace"):
        without_replacement(PureLoss(1), sample=1, population=2)
    with pytest.raises(IncompatibleLosses, match="different adjacencies"):
        PureLoss(1) + PureLoss(1, REPLACE)
    for rate in (0, -1, 2, "x", float("nan")):
        with pytest.raises(InvalidParameter):
            poisson(PureLoss(1), rate)
    with pytest.raises(InvalidParameter):
        without_replacement(PureLoss(1, REPLACE), sample=3, population=2)


def test_sampling_without_replacement_takes_the_worse_order():
    """A replace loss that differs by order: both orders of the sampled loss are charged the worse one."""

    class OneWay(PureLoss, kind="one way"):
        __slots__ = ()

        @property
        def symmetric(self):
            return False

        def profile(self, epsilon, direction):
            small = PureLoss("0.1").profile(epsilon, direction)
            return PureLoss(1).profile(epsilon, direction) if direction is Direction.REMOVE else small

    mixed = without_replacement(OneWay(1, REPLACE), sample=1, population=4)
    worse = without_replacement(PureLoss(1, REPLACE), sample=1, population=4)
    points = np.linspace(-0.5, 0.5, 11)
    for direction in Direction:
        assert np.all(mixed.profile(points, direction) >= worse.profile(points, direction) - 1e-12)
