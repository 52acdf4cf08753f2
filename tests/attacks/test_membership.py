"""Membership inference: LiRA against brute force, the published contrast, and what noisy training leaves of it.

Data and exact training are seeded, so those figures are the same in every run. With noise, 64 models and about 12,800
records on either side, the share found at 5% false alarms has a standard deviation below 0.01 (measured: 0.003); the
strongest attacker is expected at 0.061 where 0.136 is allowed.
"""

import numpy as np
import pytest
from scipy.stats import norm

import dither as dp
from dither.attacks.base import ReleaseKind
from dither.attacks.detection import detected, most_detected
from dither.attacks.membership import (
    ATTACK,
    Finder,
    confidence,
    make_world,
    measure,
    membership,
    noisy_plan,
    shadow_ratio,
    train_exactly,
    train_noisily,
)
from dither.attacks.training import watched_ratio
from dither.errors import InvalidData, InvalidParameter

GUARANTEE = dp.Guarantee(epsilon=1, delta="1e-5")
RATE = 0.05


@pytest.fixture(scope="module")
def world():
    return make_world(seed=0, pool=400, models=64)


@pytest.fixture(scope="module")
def exact(world):
    return measure(world, train_exactly(world))


@pytest.fixture(scope="module")
def private(world):
    weights, watched = train_noisily(world, noisy_plan(GUARANTEE))
    return measure(world, weights, watched=watched)


def test_shadow_models_find_members_about_as_often_as_published(exact):
    """Carlini et al. 2022: 8.4% at 0.1% false alarms on CIFAR-10, where the loss threshold finds 0.0%."""
    assert 0.05 < float(exact.at(Finder.SHADOWS, 0.001)) < 0.15
    assert float(exact.at(Finder.THRESHOLD, 0.001)) < 0.004
    # on average over everybody both look alike, which is their point: 63.8% and 59.4%
    assert 0.6 < exact.balanced(Finder.THRESHOLD) < 0.8
    assert 0.6 < exact.balanced(Finder.SHADOWS) < 0.8
    assert exact.training_accuracy > 0.99
    assert 0.7 < exact.accuracy < 0.8


def test_nobody_finds_more_than_the_bound_in_the_private_model(private):
    for attacker in Finder:
        for rate in (RATE, 0.2):
            assert float(private.at(attacker, rate)) < float(most_detected(rate, GUARANTEE))
    assert abs(float(private.at(Finder.SHADOWS, RATE)) - RATE) < 0.04
    # whoever watches does see something: the noise isn't more than was paid for
    assert float(private.at(Finder.WATCHING, 0.5)) > 0.5


def test_private_model_is_of_use(exact, private):
    assert private.accuracy > 0.62
    assert private.training_accuracy - private.accuracy < 0.1 < exact.training_accuracy - exact.accuracy


def test_training_without_noise_is_noticed(world):
    plan = noisy_plan(GUARANTEE)
    members = world.members[0]
    trained = plan.train(world.features[members], world.labels[members], publish=lambda exact: exact)
    scores = watched_ratio(plan, trained, world.features, world.labels, members)
    assert float(detected(scores[members], scores[~members], 0.0)) == 1.0


def test_a_tenth_of_the_noise_is_noticed(world):
    claimed = noisy_plan(GUARANTEE)
    inside, outside = [], []
    for members in world.members[:16]:
        trained = claimed.train(
            world.features[members], world.labels[members], publish=dp.Gaussian(claimed.noise / 10).release
        )
        scores = watched_ratio(claimed, trained, world.features, world.labels, members)
        inside.extend(scores[members])
        outside.extend(scores[~members])
    found = float(detected(np.array(inside), np.array(outside), RATE))
    assert found > 1.5 * float(most_detected(RATE, GUARANTEE))


def test_training_that_learns_by_heart_in_place_of_the_private_one_is_noticed(exact):
    assert float(exact.at(Finder.SHADOWS, 0.001)) > 10 * float(most_detected(0.001, GUARANTEE))


def test_shadow_ratio_leaves_the_model_in_question_out():
    rng = np.random.default_rng(4)
    members = rng.random((12, 5)) < 0.5
    values = rng.normal(size=(12, 5)) + 2 * members
    found = shadow_ratio(values, members)

    def law(model, chosen):
        """Mean and variance of each record over all other models, the variance drawn towards the mean of all."""
        others = np.arange(12) != model
        picked = [values[others & chosen[:, record], record] for record in range(5)]
        variances = np.array([each.var(ddof=1) for each in picked])
        sizes = np.array([each.size for each in picked])
        return np.array([each.mean() for each in picked]), (variances * sizes + 4 * variances.mean()) / (sizes + 4)

    for model in range(12):
        logs = []
        for chosen in (members, ~members):
            mean, variance = law(model, chosen)
            logs.append(norm.logpdf(values[model], mean, np.sqrt(variance)))
        assert found[model] == pytest.approx(logs[0] - logs[1], abs=1e-8)


def test_confidence_is_the_logit_of_the_right_label():
    weights, rows, labels = np.array([[1.0, -2.0]]), np.array([[0.5, 1.0], [2.0, 0.0]]), np.array([-1.0, 1.0])
    told = confidence(weights, rows, labels)
    right = 1 / (1 + np.exp(-labels * (rows @ weights[0])))
    assert told[0] == pytest.approx(np.log(right / (1 - right)), abs=1e-12)


def test_loss_is_stated_before_training():
    plan = noisy_plan(GUARANTEE)
    assert GUARANTEE.met_by(plan.loss())
    # gradients of a logistic model over rows of length 1 are never cut
    world = make_world(seed=3, pool=30, models=8, tested=5)
    rows = plan.gradients(np.zeros(world.features.shape[1]), world.features, world.labels)
    assert np.linalg.norm(rows, axis=1) == pytest.approx(np.full(30, 0.5), abs=1e-6)


def test_outcome_says_what_was_measured_and_can_be_interrupted(tmp_path):
    seen = []
    outcome = membership(seed=5, pool=120, models=16, watch=lambda share, doing: seen.append(share))
    assert outcome.score(ReleaseKind.UNPROTECTED) >= 0
    assert "ε = 1" in str(outcome)
    assert "Carlini" in str(outcome)
    assert "accuracy on new people" in str(outcome)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    assert outcome.plot(tmp_path / "membership.svg").stat().st_size < 150_000
    assert ATTACK.run is membership

    def stop(share, doing):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        membership(pool=50, models=8, watch=stop)


def test_wrong_input():
    with pytest.raises(InvalidData, match="one row for each model"):
        shadow_ratio(np.zeros((10, 3)), np.zeros((10, 4), dtype=bool))
    with pytest.raises(InvalidParameter, match="at least 8 models"):
        shadow_ratio(np.zeros((4, 3)), np.zeros((4, 3), dtype=bool))
    with pytest.raises(InvalidData, match="train more models"):
        shadow_ratio(np.zeros((10, 3)), np.zeros((10, 3), dtype=bool))
    with pytest.raises(InvalidParameter, match="at least 8 models"):
        membership(models=4)
    few = make_world(seed=0, pool=2000, models=8, tested=5).members.sum(axis=0)
    assert few.min() == 3
    assert few.max() == 5
    with pytest.raises(InvalidParameter, match="pool"):
        membership(pool=0)
