"""Sparse ratings: the scoreboard by hand, the published figures, and totals with noise against who knows the rest."""

import math

import numpy as np
import pytest
from scipy.stats import binom, norm

from dither.attacks import films, ratings
from dither.attacks.base import ReleaseKind
from dither.attacks.films import Informant, Knowledge, Known, Ratings
from dither.attacks.ratings import FilmTotals, Scoreboard, match
from dither.errors import InvalidParameter
from dither.mechanisms import DiscreteGaussian
from dither.privacy import Guarantee

# α of the tests whose outcome depends on fresh noise
ALPHA = 1e-9


def table(rows, subscribers=4, count=3):
    """Ratings from (subscriber, film, stars, day)."""
    columns = np.array(sorted(rows, key=lambda row: (row[1], row[0]))).T
    return Ratings(
        subscribers=subscribers, films=count, **dict(zip(("subscriber", "film", "stars", "day"), columns, strict=True))
    )


SMALL = table([(0, 0, 5, 10), (1, 0, 4, 40), (2, 0, 1, 10), (1, 1, 3, 7), (3, 1, 3, 100), (2, 2, 2, 50)])


@pytest.fixture(scope="module")
def made():
    """Ten thousand subscribers, of whom the last five hundred aren't in the table."""
    maker = np.random.default_rng(0)
    everybody = films.rate(10_500, maker)
    shown = everybody.among(np.arange(10_500) < 10_000)
    return everybody, Scoreboard(shown), Informant(shown.popularity, maker)


class TestScoreboard:
    def test_scores_by_hand(self):
        known = Known(film=np.array([0, 1]), stars=np.array([5, 3]), day=np.array([10, 10]))
        rare, common = 1 / math.log(2), 1 / math.log(3)
        expected = [
            common * 2,
            common * (math.exp(-1 / 1.5) + math.exp(-1)) + rare * (1 + math.exp(-3 / 30)),
            common * (math.exp(-4 / 1.5) + 1),
            rare * (1 + math.exp(-3)),
        ]
        assert Scoreboard(SMALL).scores(known) == pytest.approx(expected)

    def test_without_days_only_stars_count(self):
        known = Known(film=np.array([0, 2]), stars=np.array([1, 2]))
        # one subscriber rated the third film: the weight is that of two, not infinite
        common, alone = 1 / math.log(3), 1 / math.log(2)
        expected = [common * math.exp(-4 / 1.5), common * math.exp(-3 / 1.5), common + alone, 0]
        assert Scoreboard(SMALL).scores(known) == pytest.approx(expected)

    def test_a_film_that_nobody_rated_tells_nothing(self):
        board = Scoreboard(table([(0, 0, 5, 10), (1, 2, 4, 40)]))
        assert not board.scores(Known(film=np.array([1]), stars=np.array([4]))).any()

    def test_the_lead_is_in_standard_deviations(self):
        scores = np.array([1.0, 5.0, 2.0, 0.0])
        found = match(scores)
        assert (found.subscriber, found.eccentricity) == (1, pytest.approx(3 / scores.std()))
        assert found.claimed
        assert not match(scores, eccentricity=2).claimed

    @pytest.mark.parametrize("scores", [[2.0, 2.0, 1.0], [0.0, 0.0]])
    def test_a_tie_claims_nobody(self, scores):
        found = match(np.array(scores))
        assert (found.eccentricity, found.claimed) == (0.0, False)

    @pytest.mark.parametrize("scores", [np.zeros(1), np.zeros((2, 2)), np.array([1.0, np.nan])])
    def test_match_refuses(self, scores):
        with pytest.raises(InvalidParameter):
            match(scores)

    def test_films_that_dont_exist_are_refused(self):
        with pytest.raises(InvalidParameter, match="numbered"):
            Scoreboard(SMALL).scores(Known(film=np.array([3]), stars=np.array([4])))


class TestKnowledge:
    def test_right_and_wrong_ones_are_as_stated(self, made):
        everybody, _, informant = made
        top = np.argsort(-everybody.among(np.arange(10_500) < 10_000).popularity, kind="stable")[:500]
        how = Knowledge(ratings=8, wrong=2, days=14, outside_top=500)
        told = 0
        for record in films.records(everybody, np.arange(100)):
            known = informant.tell(record, how)
            if known is None:
                assert (~np.isin(record.film, top)).sum() < 8
                continue
            told += 1
            mine = {film: (s, d) for film, s, d in zip(record.film, record.stars, record.day, strict=True)}
            assert not np.isin(known.film, top).any()
            assert [film in mine for film in known.film] == [True] * 6 + [False] * 2
            for film, stars, day in zip(known.film[:6], known.stars[:6], known.day[:6], strict=True):
                assert mine[film][0] == stars
                assert abs(mine[film][1] - day) <= 14
        assert told > 50

    def test_records_are_complete(self):
        first, second = films.records(SMALL, np.array([2, 0]))
        assert (first.film.tolist(), first.stars.tolist(), first.day.tolist()) == ([0, 2], [1, 2], [10, 50])
        assert second.film.tolist() == [0]

    def test_the_data_has_a_long_tail(self, made):
        everybody = made[0]
        popularity = np.sort(everybody.popularity)[::-1] / everybody.subscribers
        assert 0.3 < popularity[0] < 0.5
        assert np.median(popularity) < 0.002
        assert 70 < np.median(np.bincount(everybody.subscriber)) < 110
        both = everybody.film * everybody.subscribers + everybody.subscriber
        assert (np.diff(both) > 0).all(), "nobody rates a film twice"

    @pytest.mark.parametrize(
        "wrong",
        [
            lambda: Knowledge(ratings=2, wrong=2),
            lambda: Knowledge(ratings=2, days=-1),
            lambda: Knowledge(ratings=2, outside_top=-1),
            lambda: Known(film=np.array([], dtype=int), stars=np.array([], dtype=int)),
            lambda: Known(film=np.array([1, 1]), stars=np.array([1, 2])),
            lambda: Known(film=np.array([1, 2]), stars=np.array([1])),
            lambda: table([(0, 0, 6, 1)]),
            lambda: table([(9, 0, 5, 1)]),
            lambda: table([(0, 7, 5, 1)]),
            lambda: Ratings(
                subscribers=2, films=2, **{n: np.array([1, 0]) for n in ("subscriber", "film", "stars", "day")}
            ),
            lambda: films.rate(1, np.random.default_rng(0)),
            lambda: ratings.ratings(subscribers=1000, targets=500),
        ],
    )
    def test_wrong_input(self, wrong):
        with pytest.raises(InvalidParameter):
            wrong()


class TestSearch:
    def test_the_published_figure_comes_out(self, made):
        """99% published for 8 ratings of which 2 are wrong and days ±14; here within 2 points. Seeded."""
        everybody, board, informant = made
        people = films.records(everybody, np.arange(400))
        found = ratings.search(board, people, ratings.DATED, informant)
        assert found.right() == pytest.approx(0.99, abs=0.02)
        assert found.wrong() < 0.01

    def test_less_knowledge_finds_fewer(self, made):
        """68% published with two ratings among 16 times as many as here: more are found among fewer."""
        everybody, board, informant = made
        people = films.records(everybody, np.arange(300))
        two = ratings.search(board, people, ratings.TWO, informant).right()
        undated = ratings.search(board, people, Knowledge(ratings=2), informant).right()
        assert 0.68 < two < 0.95
        assert undated < two - 0.2

    def test_strangers_are_seldom_claimed(self, made):
        everybody, board, informant = made
        strangers = films.records(everybody, np.arange(10_000, 10_500))
        found = ratings.search(board, strangers, ratings.DATED, informant)
        assert found.right() == 0
        assert found.wrong(ratings.SURER) < found.wrong() / 2 < 0.12

    def test_nobody_with_enough_ratings(self, made):
        with pytest.raises(InvalidParameter, match="nobody"):
            ratings.search(made[1], films.records(SMALL, np.array([0])), Knowledge(ratings=8), made[2])


def separate(subscribers, kept, stars):
    """Everybody rates films of their own, so that what is told of one person is independent of all others."""
    film = np.arange(subscribers * kept)
    return Ratings(
        subscribers=subscribers,
        films=film.size,
        subscriber=film // kept,
        film=film,
        stars=np.full(film.size, stars),
        day=np.zeros(film.size, dtype=int),
    )


class TestTotals:
    goal = Guarantee(1, "1e-6")

    def test_the_loss_is_the_guarantee(self):
        totals = FilmTotals.for_guarantee(self.goal, kept=20)
        assert self.goal.met_by(totals.loss())
        smaller = FilmTotals(kept=20, noise=DiscreteGaussian(totals.noise.scale * 99 / 100))
        assert not self.goal.met_by(smaller.loss())
        # by hand: 20 counts and 20 sums that move by 2, each of which costs 2²/2σ²
        assert totals.loss().zcdp() == pytest.approx(40 * 2**2 / (2 * float(totals.noise.scale) ** 2), rel=1e-9)

    def test_one_subscriber_moves_no_more_than_stated(self, made):
        """The neighbour test: remove anybody; at most 2·kept coordinates move, by at most 2 each."""
        totals = FilmTotals(kept=5, noise=DiscreteGaussian(10))
        everybody = made[0].among(np.arange(10_500) < 300)
        bounded = totals.bounded(everybody, np.random.default_rng(1))
        assert (np.bincount(bounded.subscriber, minlength=300)[:300] == 5).all()
        whole = totals.exact(bounded)
        for one in range(0, 300, 10):
            moved = np.abs(whole - totals.exact(bounded.among(np.arange(10_500) != one)))
            assert (moved > 0).sum() <= 10
            assert moved.max() == 2

    def test_records_that_werent_cut_down_are_refused(self, made):
        with pytest.raises(InvalidParameter, match="more than 5"):
            FilmTotals(kept=5, noise=DiscreteGaussian(10)).release(made[0].among(np.arange(10_500) < 9))

    def test_the_exact_totals(self):
        assert FilmTotals(kept=3, noise=DiscreteGaussian(1)).exact(SMALL).tolist() == [[6, 4, 2], [1, 0, -1]]

    def test_evidence_is_the_likelihood_ratio(self):
        totals = FilmTotals(kept=3, noise=DiscreteGaussian(4))
        rest = np.random.default_rng(2).integers(-6, 7, (2, 3))
        record = films.records(SMALL, np.array([1]))[0]
        with_it, without = rest - totals.exact(record), rest
        expected = (float((without**2).sum()) - float((with_it**2).sum())) / (2 * 4**2)
        assert ratings.evidence(rest, record, totals) == pytest.approx(expected)

    def test_all_at_once_is_one_by_one(self):
        totals = FilmTotals(kept=3, noise=DiscreteGaussian(4))
        members = np.array([True, False, True, False])
        released = totals.exact(SMALL.among(members)) + np.random.default_rng(3).integers(-6, 7, (2, 3))
        at_once = ratings.tell_members(released, SMALL, members, totals)
        for one, record in enumerate(films.records(SMALL, np.arange(4))):
            others = members & (np.arange(4) != one)
            rest = released - totals.exact(SMALL.among(others))
            assert at_once[one] == pytest.approx(ratings.evidence(rest, record, totals))

    def right_ones(self, noise, *, claimed):
        """How many of 4,000 people are told rightly by who believes that the noise is as claimed."""
        kept, subscribers = 5, 4_000
        everybody = separate(subscribers, kept, 5)
        members = np.arange(subscribers) % 2 == 0
        released = FilmTotals(kept=kept, noise=noise).release(everybody.among(members)) if noise else None
        totals = FilmTotals(kept=kept, noise=claimed)
        exact = totals.exact(everybody.among(members))
        evidence = ratings.tell_members(exact if released is None else released, everybody, members, totals)
        return int(((evidence > 0) == members).sum())

    def test_members_are_told_as_often_as_the_noise_allows_and_no_more(self):
        """Independent coins: each right with probability Φ(μ/2), μ² = 8·kept/σ²; discreteness adds less than 0.02."""
        noise = FilmTotals.for_guarantee(self.goal, kept=5).noise
        right = self.right_ones(noise, claimed=noise)
        chance = norm.cdf(math.sqrt(8 * 5) / float(noise.scale) / 2)
        assert chance < math.e / (1 + math.e)
        assert binom.ppf(ALPHA, 4_000, chance - 0.02) <= right <= binom.isf(ALPHA, 4_000, chance + 0.02)

    @pytest.mark.parametrize("share", [0, "1/4"])
    def test_too_little_noise_is_noticed(self, share):
        """The mutants: no noise at all, and a quarter of what is claimed."""
        noise = FilmTotals.for_guarantee(self.goal, kept=5).noise
        actual = DiscreteGaussian(noise.scale / 4) if share else None
        chance = norm.cdf(math.sqrt(8 * 5) / float(noise.scale) / 2)
        right = self.right_ones(actual, claimed=noise)
        assert right > binom.isf(ALPHA, 4_000, chance + 0.02)
        assert share or right == 4_000

    def test_right_share(self):
        members = np.array([True, True, False, False, False])
        assert ratings.right_share(np.array([1.0, -1, -1, -1, 2]), members) == pytest.approx((1 / 2 + 2 / 3) / 2)
        with pytest.raises(InvalidParameter):
            ratings.right_share(np.zeros(2), np.array([True, True]))

    def test_outsiders_who_know_the_totals_of_others(self):
        """A film that is rated more than expected speaks for who rated it."""
        totals = FilmTotals(kept=1, noise=DiscreteGaussian(3))
        reference = np.array([[20, 20], [0, 0]])
        people = [Known(film=np.array([film]), stars=np.array([3])) for film in (0, 1)]
        found = ratings.tell_members_from_outside(np.array([[60, 38], [0, 0]]), reference, people, totals, share=2.0)
        variance = 4 * (2 + 4) * 10 + 9
        assert found == pytest.approx([2 * (60 - 40 - 1) / variance, 2 * (38 - 40 - 1) / variance])


def test_the_whole_attack(tmp_path):
    """Fresh noise: of 3,200 people 54% are told rightly; 73.1% is the most, over 20 standard deviations away."""
    seen = []
    outcome = ratings.ratings(seed=1, subscribers=4_000, targets=80, watch=lambda share, doing: seen.append(share))
    assert outcome.score(ReleaseKind.UNPROTECTED) > 0.95
    exact, private, outside = (score.value for score in outcome.scores[-3:])
    assert exact == 1.0
    assert private < 0.731
    assert outside < 0.731
    assert "ε = 1, δ = 1e-06" in str(outcome)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    pytest.importorskip("matplotlib")
    assert 10_000 < outcome.plot(tmp_path / "ratings.svg").stat().st_size < 150_000
