"""Shares found at rates of false alarms, by hand, and the bound that ε gives against the exact test of two laws."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.stats import norm

import dither as dp
from dither.attacks.detection import best_accuracy, detected, detection_error, most_detected
from dither.errors import InvalidData, InvalidParameter


def test_no_more_false_alarms_than_stated():
    others = np.array([5.0, 4.0, 3.0, 2.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0])
    members = np.array([6.0, 4.5, 4.0, 0.5])
    assert detected(members, others, 0.0) == 0.25  # above 5
    assert detected(members, others, 0.1) == 0.5  # above 4: 4.0 itself is a tie
    assert detected(members, others, 0.2) == 0.75
    assert detected(members, others, 0.19) == 0.5
    assert detected(members, others, 1.0) == 1.0


@given(
    st.lists(st.integers(-3, 3), min_size=1, max_size=30),
    st.lists(st.integers(-3, 3), min_size=1, max_size=30),
    st.floats(0, 1),
)
def test_some_threshold_does_what_is_claimed(members, others, rate):
    found = float(detected(np.array(members, float), np.array(others, float), rate))
    cuts = [-10.0, *sorted(set(others)), 10.0]
    shares = [np.mean(np.array(members) > cut) for cut in cuts if np.mean(np.array(others) > cut) <= rate * (1 + 1e-11)]
    assert found == max(shares)


def test_best_accuracy_by_hand():
    assert best_accuracy(np.array([2.0, 3.0]), np.array([0.0, 1.0])) == 1.0
    assert best_accuracy(np.array([1.0, 1.0]), np.array([1.0, 1.0])) == 0.5
    assert best_accuracy(np.array([1.0, 3.0]), np.array([0.0, 2.0])) == 0.75


def test_bound_holds_for_the_best_test_of_gaussian_noise_and_is_nearly_met_by_pure_noise():
    rates = np.geomspace(1e-6, 1, 200)
    for epsilon in (0.1, 1, 3):
        guarantee = dp.Guarantee(epsilon=epsilon, delta="1e-5")
        mechanism = dp.calibrate(dp.Gaussian, guarantee, dp.Sensitivity.l2(1))
        best = norm.cdf(norm.ppf(rates) + 1 / float(mechanism.scale))
        assert (best <= most_detected(rates, guarantee) + 1e-12).all()
        # half the noise breaks it
        assert (norm.cdf(norm.ppf(rates) + 2 / float(mechanism.scale)) > most_detected(rates, guarantee)).any()
    # randomised response meets the bound at its corner: false alarms 1/(1 + e^ε), found e^ε/(1 + e^ε)
    pure = dp.Guarantee(epsilon=1)
    corner = 1 / (1 + np.e)
    assert most_detected(corner, pure) == pytest.approx(1 - corner, abs=1e-12)


def test_wrong_input():
    with pytest.raises(InvalidParameter, match="between 0 and 1"):
        detected(np.ones(3), np.ones(3), 1.5)
    with pytest.raises(InvalidData, match="at least one"):
        detected(np.array([]), np.ones(3), 0.5)
    with pytest.raises(InvalidData, match="numbers"):
        best_accuracy(np.array([np.nan]), np.ones(3))


@pytest.mark.parametrize("found", [0.01, 0.02])
def test_the_error_of_detection_is_that_of_repeated_runs(found):
    """Two normal laws apart: the spread of the share found, threshold from the others included, is about as stated."""
    rng, shift = np.random.default_rng(3), float(norm.ppf(0.99) - norm.ppf(1 - found))
    shares = [float(detected(rng.normal(size=1000) + shift, rng.normal(size=2000), 0.01)) for _ in range(400)]
    stated = detection_error(found, 0.01, members=1000, others=2000)
    # 400 runs tell a standard deviation to within 3.5%; the slope is a little below found/α
    assert 0.8 * stated <= 2 * float(np.std(shares)) <= 1.15 * stated
