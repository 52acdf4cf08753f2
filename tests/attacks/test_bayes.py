"""The Bayesian adversary: the right posterior, within the bounds of ε, and beliefs that come true as often as stated.

Noise is fresh in every run. Margins are 6.2 standard deviations of a binomial share: one test in a billion fails by
chance.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linprog

import dither as dp
from dither.attacks import bayes as module
from dither.attacks.base import ReleaseKind
from dither.attacks.bayes import (
    bayes,
    best_accuracy,
    best_accuracy_of_value,
    calibration,
    log_likelihood,
    posterior,
    posterior_table,
)
from dither.errors import InvalidParameter

DEVIATIONS = 6.2
RELEASES = 40_000


def margin(share, size):
    return DEVIATIONS * math.sqrt(max(share * (1 - share), 1e-6) / size)


@pytest.mark.parametrize("mechanism", [dp.DiscreteLaplace("3/2"), dp.DiscreteGaussian(2)])
def test_likelihoods_are_those_of_the_stated_law(mechanism):
    cdf = mechanism.law(5).cdf
    points = np.arange(-3.0, 12.0)
    mass = cdf(points) - cdf(points - 1)
    stated = np.exp(log_likelihood(mechanism, points, 5))
    assert stated / stated.sum() == pytest.approx(mass / mass.sum(), rel=1e-9)


def test_likelihoods_of_survey_answers_are_exact():
    survey = dp.RandomizedResponse(lie="1/4")
    found = np.exp(log_likelihood(survey, [True, False], [True, True]))
    assert found == pytest.approx([0.75, 0.25], rel=1e-15)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("prior", ["1/1000", "1/10", "1/2", "9/10"])
def test_the_extremes_of_discrete_laplace_are_the_bounds_of_the_guarantee(epsilon, prior):
    noise = dp.DiscreteLaplace(1 / Fraction(str(epsilon)))
    low, high = dp.Guarantee(epsilon).posterior(prior)
    assert float(posterior(noise, 41, prior=prior, truths=(42, 43))) == pytest.approx(low, rel=1e-12)
    assert float(posterior(noise, 50, prior=prior, truths=(42, 43))) == pytest.approx(high, rel=1e-12)


def test_certainty_stays_certainty():
    noise = dp.DiscreteLaplace(1)
    assert posterior(noise, [5, 7], prior=0).tolist() == [0.0, 0.0]
    assert posterior(noise, [5, 7], prior=1).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("prior", [0.5, 0.3, 0.05])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 2.5])
def test_the_best_accuracy_is_reached_by_discrete_laplace(epsilon, prior):
    q = math.exp(-epsilon)
    points = np.arange(-400, 402)
    mass = (1 - q) / (1 + q) * q ** np.abs(points)
    no, yes = (1 - prior) * mass[1:], prior * mass[:-1]
    assert np.maximum(no, yes).sum() == pytest.approx(best_accuracy(prior, dp.Guarantee(epsilon)), abs=1e-9)


def test_the_best_accuracy_with_delta_gives_delta_away():
    assert best_accuracy(0.5, dp.Guarantee(1, 0.1)) == pytest.approx(0.1 + 0.9 * math.e / (1 + math.e))


@pytest.mark.parametrize("prior", [0.5, 0.3, 0.1])
@pytest.mark.parametrize("epsilon", [0.3, 1.0])
def test_the_best_accuracy_about_a_value_is_the_optimum_over_all_mechanisms(epsilon, prior):
    """Three outcomes are enough (say yes, say no, the rest): the laws of yes, no and absent as a linear program."""
    e, size = math.exp(epsilon), 4
    blocks = np.eye(3 * size)
    yes, no, absent = blocks[:size], blocks[size : 2 * size], blocks[2 * size :]
    bounded = [row for law in (yes, no) for row in (*(law - e * absent), *(absent / e - law))]
    totals = np.array([law.sum(axis=0) for law in (yes, no, absent)])
    # the first half of the outcomes is answered with yes
    gain = prior * yes[: size // 2].sum(axis=0) + (1 - prior) * no[size // 2 :].sum(axis=0)
    best = linprog(-gain, A_ub=np.array(bounded), b_ub=np.zeros(len(bounded)), A_eq=totals, b_eq=np.ones(3))
    assert best_accuracy_of_value(prior, epsilon) == pytest.approx(-best.fun, abs=1e-9)
    assert best_accuracy_of_value(prior, epsilon) >= best_accuracy(prior, dp.Guarantee(epsilon)) - 1e-12


def attacked(name, epsilon, prior=0.5):
    return module._attacked(name, epsilon, prior, RELEASES, np.random.default_rng(2))


@pytest.mark.parametrize("name", [module.DL, module.CL, module.RR])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 2.0])
def test_accuracy_is_what_the_law_says_and_no_belief_leaves_the_bounds(name, epsilon):
    seen = attacked(name, epsilon)
    expected = 1 - math.exp(-epsilon / 2) / 2 if name == module.CL else best_accuracy(0.5, dp.Guarantee(epsilon))
    assert seen.accuracy == pytest.approx(expected, abs=margin(expected, RELEASES))
    assert seen.outside(0.5) == 0


def calibrated(beliefs, secrets):
    return all(
        abs(one.share - one.believed) <= margin(one.believed, one.releases) for one in calibration(beliefs, secrets)
    )


@pytest.mark.parametrize("name", [module.DL, module.CL, module.RR, module.DG])
@pytest.mark.parametrize("prior", [0.5, 0.2])
def test_beliefs_come_true_as_often_as_they_say(name, prior):
    seen = attacked(name, 1.0, prior)
    assert calibrated(seen.beliefs, seen.secrets)


@pytest.mark.parametrize("mechanism", [dp.DiscreteLaplace, dp.Laplace])
def test_noise_that_is_a_quarter_short_is_noticed_by_the_beliefs(mechanism):
    secrets = np.random.default_rng(2).random(RELEASES) < 0.5
    short = mechanism(Fraction(3, 4)).release(secrets * 1 if mechanism is dp.DiscreteLaplace else secrets * 1.0)
    assert not calibrated(posterior(mechanism(1), short, prior=0.5), secrets)


def test_with_delta_beliefs_leave_the_bounds_as_rarely_as_stated():
    seen = attacked(module.DG, 1.0)
    assert 0 <= seen.outside(0.5) <= 2 * module.VISIBLE_DELTA + margin(2 * module.VISIBLE_DELTA, RELEASES)


def test_calibration_counts_by_hand():
    found = calibration([0.1, 0.15, 0.9, 1.0], [False, True, True, True], bins=2)
    assert [(one.believed, one.share, one.releases) for one in found] == [(0.125, 0.5, 2), (0.95, 1.0, 2)]


def test_the_table_shows_the_bounds_of_the_guarantee():
    table = posterior_table((1,), (0.1,))
    assert table.splitlines()[1].split() == ["1", "3.93", "–", "23.2", "%"]
    assert posterior_table((1,), (0.1,), delta=1e-6) != table


def test_the_attack_reads_exact_counts_and_not_noisy_ones(tmp_path):
    outcome = bayes(people=RELEASES)
    assert outcome.score(ReleaseKind.UNPROTECTED) == 1.0
    bound = math.e / (1 + math.e)
    assert outcome.score(ReleaseKind.PRIVATE) == pytest.approx(bound, abs=margin(bound, RELEASES))
    assert len(outcome.scores) == 5
    assert "ε = 1" in str(outcome)
    assert outcome.plot(tmp_path / "bayes.svg").stat().st_size < 150_000


def test_an_exact_release_in_place_of_the_private_one_is_noticed(monkeypatch):
    monkeypatch.setattr(dp.DiscreteLaplace, "release", lambda self, exact, **_: exact)
    outcome = bayes(people=1000)
    assert outcome.score(ReleaseKind.PRIVATE) == 1.0
    seen = module._attacked(module.DL, 1.0, 0.5, 1000, np.random.default_rng(1))
    assert not calibrated(seen.beliefs, seen.secrets)


def test_progress_ends_at_one_and_interrupts_go_through():
    shares = []
    bayes(people=1000, watch=lambda share, doing: shares.append(share))
    assert shares == sorted(shares)
    assert shares[-1] == 1

    def stop(share, doing):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bayes(people=1000, watch=stop)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: bayes(people=10),
        lambda: bayes(prior=1),
        lambda: bayes(epsilon=0),
        lambda: posterior(dp.DiscreteLaplace(1), 3, prior=1.5),
        lambda: log_likelihood(dp.Gaussian(1), 3, 4),
        lambda: calibration([0.5], [True, False]),
        lambda: calibration([0.5], [True], bins=0),
        lambda: best_accuracy(2, dp.Guarantee(1)),
        lambda: best_accuracy_of_value(0.5, -1),
    ],
)
def test_wrong_parameters_are_refused(wrong):
    with pytest.raises(InvalidParameter):
        wrong()
