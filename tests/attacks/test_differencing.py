"""Differencing: exact answers give everybody away; the curator's don't, however often and in whatever words.

Noise is fresh in every run. Margins are 6.2 standard deviations of a binomial share: one test in a billion fails by
chance.
"""

import math
import tempfile
from fractions import Fraction

import numpy as np
import pytest

import dither as dp
from dither.attacks import salaries as module
from dither.attacks.base import ReleaseKind
from dither.attacks.databases import as_budget, curated_database, noise_of
from dither.attacks.differencing import (
    HOUSES,
    House,
    differencing,
    found_by_differencing,
    posterior_of_bit,
    reword_until_refused,
    votes_by_seat,
)
from dither.attacks.salaries import Salaries, evidence_by_band, guesses_by_band, guesses_by_sums, salary_from_averages
from dither.errors import InvalidParameter

DEVIATIONS = 6.2
EPSILON = Fraction(1, 2)
BOUND = 1 / (1 + math.exp(-0.5))
# what a member said, who is known to have voted: two steps of adding and removing
SAID = 1 - math.exp(-0.5) / 2


def margin(share, size):
    return DEVIATIONS * math.sqrt(share * (1 - share) / size)


@pytest.fixture(scope="module")
def house():
    return House.made_up(435, np.random.default_rng(3))


@pytest.fixture
def curator(house):
    with curated_database("members", house.table(), tables=house.policy(), epsilon=EPSILON) as opened:
        yield opened


def test_two_averages_are_a_salary():
    assert salary_from_averages((3, 50_000.0), (2, 45_000.0)) == 60_000.0


def test_averages_rounded_to_whole_numbers_are_a_salary_too(house):
    salary = house.salary.astype(float)
    before = (salary.size, round(salary.mean()))
    for place in range(20):
        rest = np.delete(salary, place)
        found = salary_from_averages(before, (rest.size, round(rest.mean())))
        assert abs(found - salary[place]) <= salary.size


def law_of_difference(scale):
    """By convolution of two laws, without the closed form."""
    points = np.arange(-600, 601)
    mass = np.exp(-np.abs(points) / scale)
    both = np.convolve(mass, mass)
    return both / both.sum(), 1200


@pytest.mark.parametrize("scale", [0.5, 2.0, 20.0])
@pytest.mark.parametrize("prior", [0.5, 0.1])
def test_the_posterior_of_a_bit_is_bayes_rule(scale, prior):
    law, middle = law_of_difference(scale)
    differences = np.array([3, 0, 2, -5])
    yes, no = (np.prod(law[middle + differences - bit]) for bit in (1, 0))
    expected = prior * yes / (prior * yes + (1 - prior) * no)
    found = float(posterior_of_bit(differences, dp.DiscreteLaplace(scale), prior=prior))
    assert found == pytest.approx(expected, rel=1e-9)


def test_exact_differences_are_certain():
    assert posterior_of_bit([[1, 1], [0, 0]]).tolist() == [1.0, 0.0]


def test_the_prior_of_salaries_is_that_of_the_people():
    prior = Salaries.prior()
    assert prior.weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert prior.weights.min() >= 0
    salaries = House.made_up(200_000, np.random.default_rng(5)).salary
    for quantile in (0.1, 0.5, 0.9):
        below = prior.weights[prior.values <= np.quantile(salaries, quantile)].sum()
        assert below == pytest.approx(quantile, abs=0.01)


def test_the_best_guess_is_the_best_window_by_brute_force():
    prior = Salaries.prior()
    guess, mass = prior.best_guess()
    windows = [prior.weights[np.abs(prior.values - g) <= 0.05 * prior.values + 1e-9].sum() for g in prior.values]
    assert float(mass) == pytest.approx(max(windows), abs=1e-12)
    assert windows[int(guess) // module.STEP] == pytest.approx(max(windows), abs=1e-12)


def test_evidence_moves_the_guess():
    prior = Salaries.prior()
    evidence = np.where(prior.values == 120_000, 0.0, -math.inf)[np.newaxis, :]
    guess, mass = prior.after(evidence).best_guess()
    assert abs(guess[0] - 120_000) <= 6_000
    assert mass[0] == pytest.approx(1.0)


def test_repeats_are_free_and_rewordings_are_charged_until_the_budget_is_empty(curator, house):
    refusal = reword_until_refused(curator, int(house.member[0]), pairs=4)
    assert refusal.repeats == 3
    assert refusal.pairs == 4
    assert len(set(refusal.differences)) > 1
    assert refusal.noise.scale == 2 * 4 / EPSILON
    assert curator.budget()[0].epsilon_spent == 0.5
    with pytest.raises(dp.OutOfBudget):
        curator.sql("SELECT COUNT(*) AS n FROM members WHERE member > 7", epsilon="1/1000", analyst="mallory")


def test_without_a_budget_averaging_finds_the_bit_and_with_one_it_does_not():
    maker = np.random.default_rng(7)
    # 4096 differences of mean 0 or 1 and standard deviation 8: four deviations from the middle
    assert found_by_differencing(dp.DiscreteLaplace(4), 4096, worlds=300, maker=maker) > 0.97
    for times in (1, 64):
        found = found_by_differencing(dp.DiscreteLaplace(2 * times / EPSILON), times, worlds=2000, maker=maker)
        assert found <= BOUND + margin(BOUND, 2000)


def test_the_attack_finds_everybody_in_exact_answers_and_hardly_anybody_in_private_ones(tmp_path):
    outcome = differencing(worlds=100)
    unprotected = [score.value for score in outcome.scores if score.release is ReleaseKind.UNPROTECTED]
    assert unprotected == [1.0, 1.0]
    signed, counted, reworded, salaries, sums = (s for s in outcome.scores if s.release is ReleaseKind.PRIVATE)
    size = HOUSES * 435
    assert signed.value == pytest.approx(SAID, abs=margin(SAID, size))
    assert counted.value == pytest.approx(BOUND, abs=margin(BOUND, size))
    assert reworded.value <= BOUND + margin(BOUND, 1000)
    window = float(Salaries.prior().best_guess()[1])
    assert salaries.guessing == sums.guessing == window
    most = math.exp(0.5) * window
    assert salaries.value <= most + margin(most, size)
    # half of the budget is spent on a sum that the person isn't in
    most = math.exp(0.25) * window
    assert sums.value <= most + margin(most, size)
    assert "ε = 0.5" in str(outcome)
    assert "nobody finds more than 69.7% on average" in outcome.summary
    assert outcome.plot(tmp_path / "differencing.svg").stat().st_size < 150_000


def test_questions_by_seat_reach_their_bounds_for_every_epsilon(house):
    found = votes_by_seat(house, [Fraction(1, 3), Fraction(2)])
    assert found.members == 435
    for epsilon in (Fraction(1, 3), Fraction(2)):
        counted, signed = 1 / (1 + math.exp(-epsilon)), 1 - math.exp(-epsilon) / 2
        assert found.counts[epsilon] == pytest.approx(counted, abs=margin(counted, 435))
        assert found.sums[epsilon] == pytest.approx(signed, abs=margin(signed, 435))


def test_an_exact_release_in_place_of_the_private_one_is_noticed(monkeypatch, house):
    monkeypatch.setattr(dp.DiscreteLaplace, "release", lambda self, exact, **_: exact)
    found = votes_by_seat(house, [EPSILON])
    assert found.counts[EPSILON] == found.sums[EPSILON] == 1.0
    assert SAID + margin(SAID, 435) < 1
    noise = dp.DiscreteLaplace(8)
    assert found_by_differencing(noise, 4, worlds=100, maker=np.random.default_rng(1)) == 1.0


def bands_shown(curator, house):
    """The share of members whose own band of salaries gained the most weight."""
    gained = evidence_by_band(curator, house.salary.size, epsilon=EPSILON)
    return np.mean(gained.argmax(axis=1) == house.salary // module.BAND)


def test_no_more_bands_are_shown_than_epsilon_allows(curator, house):
    # of 41 bands that all may win, the own one does e^ε times as often at most as without its owner
    assert bands_shown(curator, house) <= 0.3


def test_exact_bands_in_place_of_private_ones_are_noticed(monkeypatch, curator, house):
    monkeypatch.setattr(dp.DiscreteLaplace, "release", lambda self, exact, **_: exact)
    assert bands_shown(curator, house) == 1.0


def test_salaries_are_found_where_noise_is_missing(monkeypatch):
    monkeypatch.setattr(dp.DiscreteLaplace, "release", lambda self, exact, **_: exact)
    salaries = House.made_up(1200, np.random.default_rng(9)).salary
    # more people than are looked at together: every part is in its place
    assert module.share_found(guesses_by_sums(salaries, dp.DiscreteLaplace(1)), salaries) == 1.0


def test_evidence_about_bands_moves_guesses_in_every_part():
    salaries = House.made_up(1200, np.random.default_rng(9)).salary
    evidence = np.where(np.arange(41) == salaries[:, np.newaxis] // module.BAND, 0.0, -50.0)
    guesses = guesses_by_band(evidence)
    # the window around the guess, which reaches 5.3% beyond it, overlaps the band
    assert (np.abs(guesses - salaries) <= module.BAND + 0.06 * salaries).all()


def test_interrupts_go_through_and_leave_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def stop(share, doing):
        if share > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        differencing(members=20, worlds=10, pairs=1, watch=stop)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: salary_from_averages((3, 1.0), (3, 1.0)),
        lambda: salary_from_averages((1, 1.0), (0, 1.0)),
        lambda: posterior_of_bit(1),
        lambda: posterior_of_bit([2]),
        lambda: posterior_of_bit([0, 1]),
        lambda: posterior_of_bit([0, 1], dp.DiscreteLaplace(1), prior=-1),
        lambda: differencing(members=3),
        lambda: differencing(pairs=0),
        lambda: differencing(worlds=0),
        lambda: differencing(epsilon=0),
        lambda: as_budget("-1/2"),
    ],
)
def test_wrong_parameters_are_refused(wrong):
    with pytest.raises(InvalidParameter):
        wrong()


def test_only_one_noisy_cell_has_a_noise(curator):
    with pytest.raises(InvalidParameter, match="one count or one sum"):
        noise_of(curator, "SELECT COUNT(*) AS n, SUM(salary) AS s FROM members", "1/10")
