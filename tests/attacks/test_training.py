"""The small private trainer: clipping is exact, the loss is that of its noise, and watching it can't be done better."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import expit
from scipy.stats import chi2

import dither as dp
from dither.attacks.training import NoisyDescent, Objective, clipped, fitted, watched_ratio
from dither.errors import InvalidData, InvalidParameter

ANY = st.floats(allow_nan=True, allow_infinity=True, width=64)


def plan(**changes):
    parameters = {"objective": Objective.LOGISTIC, "steps": 4, "noise": 2, "clip": 1.0, "rate": 0.1}
    return NoisyDescent(**{**parameters, **changes})


@given(arrays(np.float64, (4, 5), elements=ANY), st.sampled_from([1e-200, 0.1, 1.0, 3.7, 1e200]))
def test_clipped_rows_are_whole_numbers_of_exact_length_at_most_one(rows, clip):
    whole = clipped(rows, clip)
    for row in whole:
        exact = [int(value) for value in row]
        assert exact == list(row)
        assert sum(value * value for value in exact) <= 2**60


def test_clipping_keeps_short_rows_and_directions():
    short = np.array([[0.3, -0.4]])
    assert clipped(short, 1.0)[0] == pytest.approx([0.3 * 2**30, -0.4 * 2**30], abs=2)
    long = clipped(np.array([[30.0, -40.0]]), 1.0)[0] / 2**30
    assert long == pytest.approx([0.6, -0.8], abs=1e-8)
    assert (clipped(np.array([[np.nan, 1.0], [np.inf, 1.0]]), 1.0) == 0).all()


def test_one_person_moves_each_exact_sum_by_one_clipped_gradient():
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(50, 7)) * 5, np.where(rng.random(50) < 0.5, 1.0, -1.0)
    sums = {}
    for name, rows in (("all", slice(None)), ("one fewer", slice(1, None))):
        sums[name] = plan(clip=0.5).train(x[rows], y[rows], publish=lambda exact: exact).sums[0]
    moved = (sums["all"] - sums["one fewer"]) * 2**30
    exact = [int(value) for value in moved]
    assert exact == list(moved)
    assert 2**59 < sum(value * value for value in exact) <= 2**60  # the first step clips this row, and uses all of it


def test_loss_is_that_of_the_noise_and_stated_before_data():
    loss = plan(steps=9, noise=6).loss()
    assert loss == dp.Gaussian(scale=2).loss(dp.Sensitivity.l2(1))  # μ² adds: 9/36 = 1/4
    assert loss.adjacency is dp.Adjacency.ADD_REMOVE
    guarantee = dp.Guarantee(epsilon="0.5", delta="1e-6")
    made = NoisyDescent.calibrated(guarantee, objective=Objective.SQUARED, steps=20, clip=3.0, rate=0.1)
    assert guarantee.met_by(made.loss())
    assert made.loss().epsilon(delta=1e-6) > 0.4999


def noise_of(trainer, coordinates=500):
    """The noise of all steps, in stated standard deviations: features of length zero leave nothing else."""
    trained = trainer.train(np.zeros((3, coordinates)), np.ones(3))
    return (trained.sums / trainer.scale).ravel()


def wrong_variance(values):
    """Whether the sum of squares lies outside its range at α = 1e-9."""
    low, high = chi2.ppf([0.5e-9, 1 - 0.5e-9], values.size)
    return not low <= float(values @ values) <= high


def test_noise_has_the_stated_size_and_a_tenth_less_is_noticed():
    values = np.concatenate([noise_of(plan(steps=10)) for _ in range(4)])
    assert not wrong_variance(values)
    assert wrong_variance(values * 0.9)
    # fresh in each step and each run
    assert np.unique(values).size == values.size


def test_slopes_are_derivatives():
    at, target = np.linspace(-3, 3, 25), np.where(np.arange(25) % 2, 1.0, -1.0)
    step = 1e-6
    for objective, loss in (
        (Objective.LOGISTIC, lambda f: -np.log(expit(target * f))),
        (Objective.SQUARED, lambda f: (f - target) ** 2 / 2),
    ):
        numeric = (loss(at + step) - loss(at - step)) / (2 * step)
        assert objective.slope(at, target) == pytest.approx(numeric, abs=1e-6)


def test_exact_descent_finds_least_squares_and_the_noisy_form_without_noise_does_too():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(200, 4))
    y = x @ np.array([1.0, -2.0, 0.5, 0.0]) + 0.1 * rng.normal(size=200)
    best = np.linalg.lstsq(x, y, rcond=None)[0]
    assert fitted(x, y, objective=Objective.SQUARED, steps=300, rate=0.001) == pytest.approx(best, abs=1e-6)
    unclipped = plan(objective=Objective.SQUARED, steps=400, clip=1e3, rate=0.003)
    assert unclipped.train(x, y, publish=lambda exact: exact).weights == pytest.approx(best, abs=1e-4)


def test_watching_is_the_likelihood_ratio_of_the_noise():
    rng = np.random.default_rng(8)
    x, y = rng.normal(size=(6, 3)), np.array([1.0, -1, 1, -1, 1, -1])
    inside = np.array([True, True, False, True, False, False])
    trainer = plan(noise=1.5)
    trained = trainer.train(x[inside], y[inside])
    found = watched_ratio(trainer, trained, x, y, inside)
    for person in range(6):
        expected = 0.0
        others = inside & (np.arange(6) != person)
        for state, released in zip(trained.states, trained.sums, strict=True):
            known = trainer.gradients(state, x[others], y[others]).sum(axis=0)
            own = trainer.gradients(state, x[[person]], y[[person]])[0]
            without, with_it = released - known, released - known - own
            expected += (without @ without - with_it @ with_it) / (2 * 1.5**2)
        assert found[person] == pytest.approx(expected, abs=1e-9)


def test_wrong_input():
    with pytest.raises(InvalidParameter, match="steps"):
        plan(steps=0)
    with pytest.raises(InvalidParameter, match="noise"):
        plan(noise=0)
    with pytest.raises(InvalidParameter, match="clip"):
        plan(clip=-1.0)
    with pytest.raises(InvalidData, match="one row for each target"):
        plan().train(np.ones((3, 2)), np.ones(4))
    trained = plan().train(np.ones((3, 2)), np.ones(3))
    with pytest.raises(InvalidData, match="one entry for each row"):
        watched_ratio(plan(), trained, np.ones((3, 2)), np.ones(3), np.array([True]))
    assert math.isclose(plan().scale, 2.0)
