"""Reconstruction: all bits below the frontier of √n, no more than by guessing above it and through the curator.

What is random but for dither's noise comes from a seed. Where noise is fresh, margins are 6.2 standard deviations of a
binomial share: one test in a billion fails by chance.
"""

import math
import tempfile
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import ndtr

import dither as dp
from dither.attacks import reconstruction as module
from dither.attacks.base import ReleaseKind
from dither.attacks.databases import curated_database, exact_database
from dither.attacks.linear import reconstruct_least_squares, reconstruct_lp, variance_of
from dither.attacks.reconstruction import (
    TOWNS,
    Subset,
    Town,
    ask_exactly,
    ask_until_refused,
    bits_by_flat,
    matrix,
    reconstruction,
    recovered,
)
from dither.errors import InvalidData, InvalidParameter

DEVIATIONS = 6.2
BOUND = math.e / (1 + math.e)
# what somebody's bit is, who is known to be in the data: two steps of adding and removing
SAID = 1 - 1 / (2 * math.e)
PEOPLE = 256


def margin(share, size):
    return DEVIATIONS * math.sqrt(share * (1 - share) / size)


@pytest.fixture(scope="module")
def town():
    return Town.made_up(PEOPLE, np.random.default_rng(3))


@pytest.fixture
def curator(town):
    with curated_database("people", town.table(), tables=town.policy(), epsilon=Fraction(1)) as opened:
        yield opened


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("solve", [reconstruct_lp, reconstruct_least_squares])
def test_exact_counts_of_few_people_are_solved(solve, seed):
    maker = np.random.default_rng(seed)
    bits = maker.random(12) < 0.5
    subsets = maker.integers(0, 2, (36, 12))
    assert np.array_equal(solve(subsets @ bits, subsets), bits)


def test_least_squares_is_the_best_linear_estimate():
    """Against the textbook form of the posterior mean, which inverts the other matrix."""
    maker = np.random.default_rng(5)
    bits, subsets = maker.random(20) < 0.3, maker.integers(0, 2, (15, 20)).astype(float)
    variance = maker.uniform(0.5, 4.0, 15)
    answers = subsets @ bits + np.sqrt(variance) * maker.standard_normal(15)
    gain = 0.21 * subsets.T @ np.linalg.inv(0.21 * subsets @ subsets.T + np.diag(variance))
    mean = 0.3 + gain @ (answers - 0.3 * subsets.sum(axis=1))
    assert np.array_equal(reconstruct_least_squares(answers, subsets, variance=variance, prior=0.3), mean > 0.5)


def test_answers_without_information_leave_the_prior():
    subsets = np.random.default_rng(5).integers(0, 2, (30, 20))
    for prior, expected in ((0.3, False), (0.7, True)):
        found = reconstruct_least_squares(np.full(30, 7.0), subsets, variance=1e12, prior=prior)
        assert (found == expected).all()


def test_linear_programming_survives_answers_that_are_altogether_wrong():
    maker = np.random.default_rng(9)
    bits, subsets = maker.random(64) < 0.5, maker.integers(0, 2, (384, 64))
    answers = (subsets @ bits).astype(float)
    wrong = maker.permutation(384)[:58]  # 15%
    answers[wrong] = maker.integers(0, 64, 58)
    assert np.array_equal(reconstruct_lp(answers, subsets), bits)
    assert np.mean(reconstruct_least_squares(answers, subsets, variance=1.0) == bits) < 0.95


@pytest.mark.parametrize("people", [64, 256])
def test_the_frontier_is_the_root_of_the_number_of_people(people):
    maker = np.random.default_rng(11)

    def share(level, **more):
        return recovered(people, 4 * people, level * math.sqrt(people), maker=maker, repeats=1024 // people, **more)

    assert share(1 / 8) > 0.99
    assert share(12.0) < 0.57
    # unweighted, each bit would be known to a variance of 4σ²/(m − n): the same for all n
    for level in (0.2, 0.35, 0.6):
        expected = ndtr(math.sqrt(3) / (4 * level))
        assert share(level) == pytest.approx(expected, abs=0.04)


def test_linear_programming_has_the_same_frontier():
    maker = np.random.default_rng(13)
    assert recovered(64, 256, 1.0, maker=maker, repeats=4, linear=True) > 0.98
    assert recovered(64, 256, 80.0, maker=maker, repeats=4, linear=True) < 0.65


def test_subsets_mean_the_same_in_sql_and_to_the_attacker(town):
    subsets = Subset.several(40, np.random.default_rng(17))
    rows = matrix(subsets, town.person)
    with exact_database("people", town.table()) as ask:
        assert np.array_equal(ask_exactly(ask, subsets), rows @ town.sick)
    assert abs(rows.mean() - 0.5) < 0.02
    assert np.linalg.matrix_rank(rows) == 40


def test_the_variance_of_noise_is_the_sum_over_its_law():
    for scale in (0.3, 2, 40):
        points = np.arange(-4000, 4001)
        mass = np.exp(-np.abs(points) / scale)
        assert variance_of(dp.DiscreteLaplace(scale)) == pytest.approx((mass * points**2).sum() / mass.sum(), rel=1e-9)


def test_the_curator_answers_as_many_questions_as_were_paid_for(town, curator):
    subsets = Subset.several(12, np.random.default_rng(19))
    answers, noise = ask_until_refused(curator, subsets, epsilon="1/8")
    assert answers.size == 8
    assert noise.scale == 8
    assert curator.budget()[0].epsilon_spent == 1.0
    with pytest.raises(dp.OutOfBudget):
        curator.sql(subsets[9].sql, epsilon="1/1000000", analyst="mallory")


def shares_with_a_budget(town, number):
    """The shares that both methods recover from counts that cost ε = 1 in all, with the noise of the curator."""
    rows = matrix(Subset.several(number, np.random.default_rng(23)), town.person)
    noise = dp.DiscreteLaplace(number)
    answers = noise.release((rows @ town.sick).astype(np.int64))
    squares = reconstruct_least_squares(answers, rows, variance=variance_of(noise))
    return np.mean(squares == town.sick), np.mean(reconstruct_lp(answers, rows) == town.sick)


@pytest.mark.parametrize("number", [64, 512])
def test_a_budget_leaves_little_but_guessing(town, number):
    # far below the bound: each count has noise of number·√2, and all bits together only move it by 8 or so
    assert max(shares_with_a_budget(town, number)) <= 0.53 + margin(0.5, PEOPLE)


def test_counts_without_noise_in_place_of_private_ones_are_noticed(town, monkeypatch):
    monkeypatch.setattr(dp.DiscreteLaplace, "release", lambda self, exact, **_: exact)
    assert max(shares_with_a_budget(town, 512)) == 1.0


def test_one_group_for_each_flat_reaches_the_bounds_and_does_not_exceed_them(town):
    found = bits_by_flat(town, epsilon=Fraction(1))
    assert found.counts == pytest.approx(BOUND, abs=margin(BOUND, PEOPLE))
    assert found.sums == pytest.approx(SAID, abs=margin(SAID, PEOPLE))


def test_exact_groups_in_place_of_private_ones_are_noticed(town, monkeypatch):
    monkeypatch.setattr(dp.DiscreteLaplace, "release", lambda self, exact, **_: exact)
    found = bits_by_flat(town, epsilon=Fraction(1))
    assert found.counts == found.sums == 1.0
    assert SAID + margin(SAID, PEOPLE) < 1


@pytest.fixture
def small_frontier(monkeypatch):
    monkeypatch.setattr(module, "LEVELS", (0.1, 1.0, 10.0))


@pytest.mark.usefixtures("small_frontier")
def test_the_attack_succeeds_without_protection_and_fails_through_the_curator(tmp_path):
    shares = []
    outcome = reconstruction(questions=64, watch=lambda share, doing: shares.append(share))
    exact, noisy = (score.value for score in outcome.scores if score.release is ReleaseKind.UNPROTECTED)
    assert exact == 1.0
    assert noisy > 0.98
    signed, counted, curated = (score.value for score in outcome.scores if score.release is ReleaseKind.PRIVATE)
    assert curated <= 0.53 + margin(0.5, PEOPLE)
    assert signed == pytest.approx(SAID, abs=margin(SAID, TOWNS * PEOPLE))
    assert counted == pytest.approx(BOUND, abs=margin(BOUND, TOWNS * PEOPLE))
    assert "answered 64 such questions for ε = 1 and refused the next" in outcome.summary
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert outcome.plot(tmp_path / "reconstruction.svg").stat().st_size < 150_000


def test_interrupts_go_through_and_leave_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def stop(share, doing):
        if share > 0.55:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reconstruction(people=16, questions=16, watch=stop)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (InvalidData, lambda: reconstruct_lp([1.0], [[1, 0], [0, 1]])),
        (InvalidData, lambda: reconstruct_lp([math.nan], [[1, 0]])),
        (InvalidData, lambda: reconstruct_least_squares([], np.zeros((0, 3)))),
        (InvalidData, lambda: reconstruct_least_squares([1.0], [1, 0])),
        (InvalidParameter, lambda: reconstruct_least_squares([1.0], [[1, 0]], variance=-1)),
        (InvalidParameter, lambda: reconstruct_least_squares([1.0], [[1, 0]], prior=1)),
        (InvalidParameter, lambda: reconstruction(people=3)),
        (InvalidParameter, lambda: reconstruction(questions=1)),
        (InvalidParameter, lambda: reconstruction(epsilon="0")),
    ],
)
def test_wrong_parameters_are_refused(kind, wrong):
    with pytest.raises(kind):
        wrong()
