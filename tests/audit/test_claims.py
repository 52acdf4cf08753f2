"""What a claim allows: exact values, never too little, and fine enough to notice noise that is a little short."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.special import ndtr, ndtri

from dither.audit import Claim, claim_of
from dither.errors import InvalidParameter
from dither.mechanisms import DiscreteLaplace, GaussianLoss, Laplace, LaplaceLoss, RandomizedResponse
from dither.privacy import (
    ApproximateLoss,
    Guarantee,
    PureLoss,
    Sensitivity,
    ZcdpLoss,
    poisson,
)

Q = np.concatenate([np.geomspace(1e-9, 0.5, 200), np.linspace(0.5, 1, 101)])


def close_above(allowed, truth, relative):
    assert (allowed >= truth).all()
    assert (allowed <= truth * (1 + relative)).all()


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 3.0, 12.0])
def test_a_pure_claim_allows_the_smaller_of_its_two_lines(epsilon):
    truth = np.minimum(math.exp(epsilon) * Q, 1 - math.exp(-epsilon) * (1 - Q))
    close_above(claim_of(epsilon).largest(Q), truth * (1 - 1e-15), 1e-12)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-5), (0.1, 0.01), (12.0, 1e-5)])
def test_a_guarantee_allows_its_delta_more(epsilon, delta):
    truth = np.minimum(math.exp(epsilon) * Q + delta, 1 - math.exp(-epsilon) * (1 - delta - Q))
    close_above(claim_of(Guarantee(epsilon, delta)).largest(Q), np.minimum(truth, 1) * (1 - 1e-15), 1e-9)


@pytest.mark.parametrize("mu", [0.05, 0.3, 1.0, 2.5, 6.0])
def test_a_gaussian_claim_has_its_closed_form(mu):
    claim = claim_of(GaussianLoss(Fraction(mu) ** 2))
    close_above(claim.largest(Q), ndtr(ndtri(Q) + mu) * (1 - 1e-12), 2e-4)


@pytest.mark.parametrize("mu", [0.1, 0.27, 1.0, 3.0])
def test_the_grid_is_fine_enough_to_see_gaussian_noise_half_a_per_cent_short(mu):
    claim = claim_of(GaussianLoss(Fraction(mu) ** 2))
    q = np.linspace(0.02, 0.98, 60)
    assert (ndtr(ndtri(q) + 1.005 * mu) > claim.largest(q)).all()


def test_a_laplace_claim_allows_its_own_tails_and_no_more():
    # P(X ≤ t) and P(X + 1 ≤ t) are the two sides of the best events of Laplace noise
    t = np.linspace(-5, 6, 400)

    def cdf(x):
        return np.where(x < 0, 0.5 * np.exp(-np.abs(x)), 1 - 0.5 * np.exp(-np.abs(x)))

    close_above(claim_of(LaplaceLoss(Fraction(1))).largest(cdf(t - 1)), cdf(t) * (1 - 1e-12), 2e-6)


def test_corners_of_discrete_curves_are_met():
    loss = DiscreteLaplace(scale=1).loss(Sensitivity.l1(3))
    q = math.exp(-1)
    below = np.array([q ** (3 - m) / (1 + q) for m in range(3)])  # Pr[z + 3 ≤ m]
    above = np.array([1 - q ** (m + 1) / (1 + q) for m in range(3)])  # Pr[z ≤ m]
    close_above(claim_of(loss).largest(below), above * (1 - 1e-9), 1e-4)


def test_both_directions_are_allowed_for():
    loss = poisson(GaussianLoss(Fraction(4)), Fraction(1, 10))
    q = np.linspace(0.001, 0.999, 300)
    allowed = claim_of(loss).largest(q)
    mixed = 0.9 * q + 0.1 * ndtr(ndtri(q) + 2)  # P = mixture, Q = alone: the best events are half lines
    assert (allowed >= mixed * (1 - 1e-9)).all()
    other = np.linspace(-6, 6, 300)
    alone, mixture = ndtr(-other), 0.9 * ndtr(-other) + 0.1 * ndtr(2 - other)
    assert (claim_of(loss).largest(1 - mixture) >= (1 - alone) * (1 - 1e-9)).all()


LOSSES = st.one_of(
    st.floats(0.001, 20).map(PureLoss),
    st.tuples(st.floats(0.001, 20), st.floats(0, 0.5)).map(lambda p: ApproximateLoss(*p)),
    st.floats(0.001, 5).map(ZcdpLoss),
    st.floats(0.01, 5).map(lambda m: GaussianLoss(Fraction(m))),
    st.floats(0.05, 5).map(lambda b: Laplace(b).loss(Sensitivity.l1(1))),
    st.fractions("1/100", "49/100").map(lambda p: RandomizedResponse(p).loss()),
)


@given(loss=LOSSES)
def test_what_is_allowed_grows_bends_down_and_is_never_less_than_no_change(loss):
    q = np.linspace(0, 1, 200)
    allowed = Claim(loss).largest(q)
    assert (allowed >= q).all()
    assert (np.diff(allowed) >= -1e-12).all()
    assert (np.diff(allowed, 2) <= 1e-9).all()
    assert allowed[-1] == 1


@given(loss=LOSSES, q=st.floats(0, 1))
def test_no_line_of_the_curve_is_lower(loss, q):
    claim = Claim(loss)
    lines = np.exp(claim.epsilons) * q + claim.deltas
    allowed = float(claim.largest(np.array([q]))[0])
    assert allowed == pytest.approx(min(1.0, lines.min()), rel=1e-9)


def test_claims_say_what_they_are():
    assert str(claim_of("1/2")) == "ε = 0.5"
    assert str(claim_of(Guarantee(12, 1e-5))) == "ε = 12 at δ = 1e-05"
    assert str(claim_of(GaussianLoss(Fraction(1)))) == "the gaussian curve with ε = 4.88655 at δ = 1e-06"
    assert str(claim_of(5 * ApproximateLoss("0.1", "1e-6"))).endswith("at δ = 1e-05")
    assert "infinite" in str(claim_of(2 * ApproximateLoss(1, "1/2")))
    assert claim_of(Guarantee(1)).loss == PureLoss(1)
    assert claim_of(claim_of(2)).epsilon(0) == 2


@pytest.mark.parametrize("wrong", [float("nan"), -1, "x", None, float("inf"), [1]])
def test_what_is_no_claim_is_refused(wrong):
    with pytest.raises(InvalidParameter):
        claim_of(wrong)


def test_a_claim_is_made_of_a_loss():
    with pytest.raises(InvalidParameter, match="claim_of"):
        Claim(1.0)
