"""The conformance suite passes every mechanism of dither and fails every mutant."""

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import pytest

from dither.checks import check_mechanism
from dither.errors import ConformanceFailed
from dither.mechanisms.base import NoiseMechanism, RealLaw
from dither.mechanisms.discrete_gaussian import DiscreteGaussian
from dither.mechanisms.gaussian import Gaussian
from dither.mechanisms.laplace import DiscreteLaplace, Laplace
from dither.privacy import PureLoss, Sensitivity
from support.right_mechanisms import NOISE
from support.sizes import at_night


def sensitivity_near_one(mechanism):
    """A movement of about one scale, where a fault of the scale shows most."""
    bound = max(1, round(float(mechanism.scale))) if "Discrete" in repr(mechanism) else mechanism.scale
    return Sensitivity.l2(bound) if "Gaussian" in repr(mechanism) else Sensitivity.l1(bound)


@pytest.mark.parametrize("mechanism", NOISE, ids=repr)
def test_right_mechanisms_conform(mechanism):
    report = check_mechanism(mechanism, sensitivity=sensitivity_near_one(mechanism))
    assert report.passed
    assert len(report.findings) >= 9


class Mutant(NoiseMechanism):
    """Claims what the original claims and does something else."""

    def __init__(self, original):
        self.original = original

    scale = property(lambda self: self.original.scale)

    def loss(self, sensitivity):
        return self.original.loss(sensitivity)

    def error(self, confidence=0.95):
        return self.original.error(confidence)

    def release(self, exact):
        return self.original.release(exact)

    def law(self, exact):
        return self.original.law(exact)

    def worst_pair(self, sensitivity):
        return self.original.worst_pair(sensitivity)

    def __repr__(self):
        return f"{type(self).__name__} of {self.original!r}"


class LessNoise(Mutant):
    """Scale × 0.97."""

    def release(self, exact):
        return type(self.original)(scale=self.original.scale * Fraction(97, 100)).release(exact)


class LessNoiseWithoutLaw(LessNoise):
    """The same, by a mechanism that states no closed form: only neighbours can tell."""

    def law(self, exact):
        return None

    def error(self, confidence=0.95):
        return 1e300


class HalvedSensitivity(Mutant):
    """Charges for half the movement."""

    def loss(self, sensitivity):
        return self.original.loss(Sensitivity(sensitivity.norm, sensitivity.bound / 2, sensitivity.adjacency))

    def law(self, exact):
        return None


class ReusedDraw(Mutant):
    """Uses every draw twice."""

    kept = None

    def release(self, exact):
        if isinstance(exact, np.ndarray):
            half = self.original.release(exact[: (exact.size + 1) // 2])
            return np.repeat(half, 2)[: exact.size]
        if self.kept is None:
            self.kept = self.original.release(exact)
            return self.kept
        again, self.kept = self.kept, None
        return again


class Shifted(Mutant):
    """Adds a twentieth of the scale to every release."""

    def release(self, exact):
        return self.original.release(exact) + float(self.original.scale) / 20


class SmallerErrors(Mutant):
    """Promises errors that are 5% too small."""

    def error(self, confidence=0.95):
        return 0.95 * self.original.error(confidence)


class GrowingCost(Mutant):
    """Charges more for more noise."""

    def __init__(self, original=None, scale=None):
        super().__init__(original if scale is None else type(original or Laplace(1))(scale=scale))

    def loss(self, sensitivity):
        return PureLoss(self.original.scale + 1)


@pytest.mark.parametrize(
    "mutant", [LessNoise, LessNoiseWithoutLaw, HalvedSensitivity, ReusedDraw, SmallerErrors, Shifted]
)
@pytest.mark.parametrize(
    "original", [Laplace(scale=1), Gaussian(scale=1), pytest.param(Laplace(scale=300), marks=at_night)], ids=repr
)
def test_mutants_fail(mutant, original):
    """Catches a scale 3% too small, half of the sensitivity, draws used twice, errors 5% too small, a shift by 1/20."""
    with pytest.raises(ConformanceFailed):
        check_mechanism(mutant(original), sensitivity=sensitivity_near_one(original))


@pytest.mark.parametrize("mutant", [LessNoise, HalvedSensitivity, ReusedDraw])
@pytest.mark.parametrize("original", [DiscreteLaplace(scale=4), DiscreteGaussian(scale=4)], ids=repr)
def test_discrete_mutants_fail(mutant, original):
    """Catches a scale 3% too small, half of the sensitivity, draws used twice."""
    sensitivity = Sensitivity.l1(4)
    with pytest.raises(ConformanceFailed):
        check_mechanism(mutant(original), sensitivity=sensitivity)


def test_a_cost_that_grows_with_noise_fails():
    with pytest.raises(ConformanceFailed, match="more noise costs more"):
        check_mechanism(GrowingCost(Laplace(1)))


@dataclass(frozen=True)
class UsersOwn:
    """A mechanism that somebody else wrote, with nothing but loss and release."""

    scale: Fraction = field(default=Fraction(1))

    def loss(self, sensitivity):
        return PureLoss(2 * sensitivity.l1_bound() / self.scale)

    def release(self, exact):
        return Laplace(scale=self.scale).release(exact)


def test_a_users_own_mechanism_is_checked_too():
    report = check_mechanism(UsersOwn(), draws=5000)
    assert report.passed
    assert "not checked" in str(report)


class Dishonest(UsersOwn):
    def loss(self, sensitivity):
        return PureLoss(sensitivity.l1_bound() / (2 * self.scale))


def test_a_users_own_wrong_mechanism_fails():
    """Catches half of the loss."""
    with pytest.raises(ConformanceFailed, match="neighbours stay within the curve"):
        check_mechanism(Dishonest())


class NotALoss(UsersOwn):
    def loss(self, sensitivity):
        return 1.0


class LosesItself(UsersOwn):
    def loss(self, sensitivity):
        return Forgetful(3)


class Forgetful(PureLoss, kind="forgetful"):
    """Writes down less than it costs."""

    __slots__ = ()

    def parameters(self):
        return {"epsilon": "1"}


def test_contract_violations_are_named():
    with pytest.raises(ConformanceFailed, match="PrivacyLoss"):
        check_mechanism(NotALoss())
    with pytest.raises(ConformanceFailed, match="JSON round trip"):
        check_mechanism(LosesItself(), draws=2000)
    report = check_mechanism(Dishonest(), raises=False)
    assert not report.passed
    assert "FAILED" in str(report)


def test_the_chi_square_notices_a_wrong_law():
    """Catches a law whose scale is 3% too large."""

    class WrongLaw(Mutant):
        def law(self, exact):
            return RealLaw(Laplace(scale=self.original.scale * Fraction(103, 100)).law(exact).cdf)

    with pytest.raises(ConformanceFailed, match="closed form"):
        check_mechanism(WrongLaw(Laplace(scale=1)))
