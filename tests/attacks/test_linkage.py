"""Linkage: uniqueness in closed form, by simulation and as published; names by a join; and what counts with ε tell."""

import itertools
import math

import numpy as np
import pytest

from dither.attacks import hospital, linkage, population
from dither.attacks.base import ReleaseKind
from dither.errors import InvalidParameter
from dither.progress import unwatched

# α of the tests whose outcome depends on fresh noise
ALPHA = 1e-9


@pytest.fixture(scope="module")
def country():
    return population.areas(281_000_000, np.random.default_rng(0))


@pytest.fixture(scope="module")
def state():
    """Many small places, so that the released counts are many and independent."""
    maker = np.random.default_rng(5)
    sizes = np.full(300, 600)
    where = population.Areas(sizes=sizes, town=np.arange(300), county=np.arange(300) // 10)
    people = population.populate(where, maker)
    return people, hospital.admit(people, 12_000, maker)


@pytest.fixture(scope="module")
def answers(state):
    people, patients = state
    return linkage.ask_for_counts(patients, people.areas.sizes.size, (0.25, 0.5, 2.0), unwatched)


class TestUniqueness:
    @pytest.mark.parametrize("n", [1, 2, 3, 4])
    def test_enumeration_agrees(self, n):
        p = np.array([0.5, 0.3, 0.2])
        expected = sum(
            math.prod(p[list(cells)]) * sum(cells.count(cell) == 1 for cell in cells) / n
            for cells in itertools.product(range(3), repeat=n)
        )
        assert population.uniqueness([n], p) == pytest.approx(expected, rel=1e-12)

    def test_areas_count_by_their_people(self):
        p = np.full(365, 1 / 365)
        each = [population.uniqueness([n], p) for n in (10, 50)]
        assert population.uniqueness([10, 50], p) == pytest.approx((10 * each[0] + 50 * each[1]) / 60, rel=1e-12)
        assert population.uniqueness([0, 10], p) == each[0]

    def test_probabilities_that_are_grouped_change_little(self):
        p = np.random.default_rng(1).gamma(2.0, size=20_000)
        p /= p.sum()
        sizes = np.array([3, 500, 20_000, 90_000])
        exact = sum(n * float((p * (1 - p) ** (n - 1)).sum()) for n in sizes) / sizes.sum()
        assert population.uniqueness(sizes, p) == pytest.approx(exact, abs=1e-6)

    def test_a_value_that_everybody_has_makes_nobody_unique_but_hermits(self):
        assert population.uniqueness([5], [1.0]) == 0
        assert population.uniqueness([1], [1.0]) == 1

    def test_simulation_agrees(self):
        """The share's standard deviation is below 0.0014 for 300,000 people; the seed is fixed."""
        maker = np.random.default_rng(2)
        people = population.populate(population.areas(300_000, maker), maker)
        expected = population.uniqueness(people.areas.sizes, people.births.probabilities)
        assert population.unique_share(people.postcode, people.days, people.sex) == pytest.approx(expected, abs=0.006)
        years = population.age_of(people.days)
        coarse = population.uniqueness(people.areas.sizes, people.births.by(people.births.ages))
        assert population.unique_share(people.postcode, years, people.sex) == pytest.approx(coarse, abs=0.002)

    def test_the_published_figures_come_out(self, country):
        """63% (Golle) as expected; 87%, 53% and 18% (Sweeney) as she counted: within 5 points on made-up areas."""
        rows = population.uniqueness_table(country, population.births())
        postcode, town, county = rows[:3]
        assert postcode.alone == pytest.approx(0.63, abs=0.05)
        assert postcode.golle == 0.63
        assert [row.sweeney for row in rows[:3]] == [0.87, 0.53, 0.18]
        for row in (postcode, town, county):
            assert row.by_threshold == pytest.approx(row.sweeney, abs=0.05)
            assert row.alone < row.by_threshold
        assert rows[-1].alone < 1e-6

    def test_the_population_is_as_stated(self, country):
        assert 2_000 < np.median(country.sizes) < 4_000
        assert country.sizes.mean() == pytest.approx(8_500, rel=0.05)
        assert country.sizes.max() <= population.LARGEST_POSTCODE
        law = population.births()
        assert law.probabilities.sum() == pytest.approx(1)
        share = law.probabilities.sum(axis=0)
        # weekends and seasons move the bands of a few years by little
        for low, high, per_cent in population.PYRAMID:
            inside = (law.ages >= low) & (law.ages < high)
            assert share[inside].sum() == pytest.approx(per_cent / 99.9, rel=0.02)

    def test_threshold_counts_all_or_nobody(self):
        assert population.uniqueness_by_threshold([365, 366], [1.0], [365]) == pytest.approx(365 / 731)
        # of 365 people with random birthdays e^-1 are alone, and the threshold calls all of them unique
        assert population.uniqueness([365], np.full(365, 1 / 365)) == pytest.approx(math.exp(-1), abs=0.001)

    @pytest.mark.parametrize(
        "wrong",
        [
            lambda: population.uniqueness([], [1.0]),
            lambda: population.uniqueness([0], [1.0]),
            lambda: population.uniqueness([-1, 3], [1.0]),
            lambda: population.uniqueness([3], [0.5, 0.4]),
            lambda: population.uniqueness([3], [1.5, -0.5]),
            lambda: population.uniqueness_by_threshold([0], [1.0], [1]),
            lambda: population.uniqueness_by_threshold([3], [1.0], []),
            lambda: population.unique_share([]),
            lambda: population.keys([-1]),
            lambda: population.keys([0.5]),
            lambda: population.keys([2**40], [2**40]),
            lambda: population.areas(0, np.random.default_rng(0)),
        ],
    )
    def test_wrong_input(self, wrong):
        with pytest.raises(InvalidParameter):
            wrong()


class TestLink:
    def test_only_what_is_alone_in_both_tables_is_claimed(self):
        assert linkage.link([1, 2, 3, 3, 9], [3, 1, 2, 2, 5]).tolist() == [1, -1, -1, -1, -1]
        assert linkage.link([], [1]).tolist() == []
        assert linkage.link([1], []).tolist() == [-1]

    def test_everybody_alone_on_a_complete_list_is_named(self):
        maker = np.random.default_rng(3)
        named = maker.permutation(1000)
        assert (named[linkage.link(np.arange(1000), named)] == np.arange(1000)).all()

    def test_the_attacker_knows_how_sure_to_be(self):
        """Claims are as often right as expected; 3 points are more than 5 standard deviations."""
        maker = np.random.default_rng(4)
        people = population.populate(population.areas(400_000, maker), maker)
        patients = hospital.admit(people, 12_000, maker)
        named = linkage.name_patients(patients, hospital.register(people, maker), people.areas, people.births)
        assert named.right == pytest.approx(named.claimed * named.precision)
        assert 0.3 < named.right < 0.55
        assert named.precision == pytest.approx(named.expected_precision, abs=0.03)
        # twins who aren't on the list make claims wrong: nobody is sure of all
        assert named.precision < 0.97

    @pytest.mark.parametrize("arguments", [([-1.0], 0.5, 0.5), ([1.0], 0.4, 0.5), ([1.0], 0.5, 0.0)])
    def test_certainty_refuses(self, arguments):
        alike, listed, correct = arguments
        with pytest.raises(InvalidParameter):
            linkage.certainty(alike, listed=listed, correct=correct)

    def test_looking_up_is_right_for_all_but_those_who_look_alike(self):
        rows = hospital.Patients(
            person=np.arange(4),
            postcode=np.array([1, 1, 1, 2]),
            days=np.array([5, 5, 6, 5]),
            sex=np.array([0, 0, 0, 0]),
            diagnosis=np.array([3, 4, 4, 9]),
            chances=np.full((4, 10), 0.1),
        )
        assert linkage.look_up(rows) == (0.5 + 0.5 + 1 + 1) / 4


def margin(patients):
    """How far above its mean a share may come out with probability ALPHA, by Hoeffding: groups have their own noise."""
    groups = population.keys(patients.postcode, patients.age_band, patients.sex)
    weights = np.unique(groups, return_counts=True)[1] / groups.size
    return math.sqrt(math.log(1 / ALPHA) / 2 * float((weights**2).sum()))


class TestPrivateCounts:
    @pytest.mark.parametrize("epsilon", [0.25, 0.5])
    def test_nobody_learns_more_than_epsilon_allows(self, state, answers, epsilon):
        patients = state[1]
        told = linkage.tell_diagnoses(patients, answers[epsilon], epsilon=epsilon)
        bound = linkage.success_bound(told.guessing_best, epsilon=epsilon)
        assert told.knowing_others < bound + margin(patients)
        assert told.from_counts < bound + margin(patients)
        assert bound + margin(patients) < 0.5

    def test_the_attack_is_no_straw_man(self, state, answers):
        """With ε = 2 whoever knows all others tells most: two thirds in expectation."""
        told = linkage.tell_diagnoses(state[1], answers[2.0], epsilon=2.0)
        assert told.knowing_others > 0.65 - margin(state[1])
        assert told.knowing_others > 2 * told.guessing_best

    @pytest.mark.parametrize("claimed", [0.25, 0.5])
    def test_counts_without_noise_are_noticed(self, state, claimed):
        """The mutant: exact counts where noisy ones are promised."""
        people, patients = state
        exact = hospital.counts_of(patients, people.areas.sizes.size)
        told = linkage.tell_diagnoses(patients, exact, epsilon=50.0)
        assert told.knowing_others == 1
        assert told.knowing_others > linkage.success_bound(told.guessing_best, epsilon=claimed) + margin(patients)

    def test_noise_that_is_too_small_is_noticed(self, state, answers):
        """The mutant: counts with ε = 2 where 0.5 is promised."""
        told = linkage.tell_diagnoses(state[1], answers[2.0], epsilon=2.0)
        assert told.knowing_others > linkage.success_bound(told.guessing_best, epsilon=0.5) + margin(state[1])

    def test_the_curator_counts_what_is_there(self, state, answers):
        """Noise apart: the sum of 36,000 discrete Laplace counts at ε = 2 has σ = 126 and isn't 7 σ away."""
        people, patients = state
        exact = hospital.counts_of(patients, people.areas.sizes.size)
        assert exact.sum() == 12_000
        assert answers[2.0].shape == exact.shape
        off = answers[2.0] - exact
        sigma = math.sqrt(off.size * 2 * math.exp(-2) / (1 - math.exp(-2)) ** 2)
        assert abs(off.sum()) < 7 * sigma
        assert off.any()

    def test_most_likely_is_the_best_answer(self):
        """Against all posteriors, computed from the law of the noise itself."""
        maker = np.random.default_rng(6)
        noisy, others = maker.integers(-3, 9, (200, 4)), maker.integers(0, 5, (200, 4))
        prior = maker.dirichlet(np.ones(4), 200)
        found = linkage.most_likely(noisy.astype(float), others.astype(float), prior, epsilon=0.7)
        posterior = np.empty((200, 4))
        for group in range(4):
            exact = others + np.eye(4, dtype=int)[group]
            posterior[:, group] = prior[:, group] * np.exp(-0.7 * np.abs(noisy - exact)).prod(axis=1)
        assert (found == posterior.argmax(axis=1)).all()

    def test_the_bound(self):
        assert linkage.success_bound(0.2, epsilon=0) == pytest.approx(0.2)
        assert linkage.success_bound(0.2, epsilon=0.5) == pytest.approx(0.2 * math.exp(0.5))
        odds = 0.2 * math.exp(4)
        assert linkage.success_bound(0.2, epsilon=2) == pytest.approx(odds / (odds + 0.8))
        assert linkage.success_bound(0.2, epsilon=1e9) == 1

    @pytest.mark.parametrize(
        "wrong",
        [
            lambda: linkage.linkage(epsilon=0),
            lambda: linkage.success_bound(1.2, epsilon=1),
            lambda: linkage.success_bound(0.2, epsilon=-1),
            lambda: linkage.most_likely(np.zeros((1, 2)), np.zeros((1, 2)), np.zeros((1, 3)), epsilon=1),
            lambda: linkage.most_likely(np.zeros((1, 2)), np.zeros((1, 2)), np.ones((1, 2)), epsilon=0),
        ],
    )
    def test_wrong_input(self, wrong):
        with pytest.raises(InvalidParameter):
            wrong()

    @pytest.mark.parametrize("count", [0, 200_000_000])
    def test_as_many_patients_as_there_are_people(self, state, count):
        with pytest.raises(InvalidParameter, match="patients"):
            hospital.admit(state[0], count, np.random.default_rng(0))


def test_the_whole_attack(tmp_path):
    seen = []
    outcome = linkage.linkage(
        seed=1, people=150_000, patients=4_000, country=20_000_000, watch=lambda share, doing: seen.append(share)
    )
    assert outcome.score(ReleaseKind.UNPROTECTED) > 0.98
    assert outcome.scores[0].guessing < 0.3
    # patients are in so few groups here that only a wide margin is sure: the bound of 0.37, and 0.45 by Hoeffding
    assert outcome.score(ReleaseKind.PRIVATE) < 0.85
    assert "ε = 0.5" in str(outcome)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    pytest.importorskip("matplotlib")
    assert 10_000 < outcome.plot(tmp_path / "linkage.svg").stat().st_size < 150_000
