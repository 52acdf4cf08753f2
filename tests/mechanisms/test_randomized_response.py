"""Randomised response: exact laws over all neighbours, exact curves, unbiased estimates, intervals that cover.

Statistical tests use α = 1e-9 without retries; each states the smallest fault it catches and runs on a mutant.
"""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr, ndtri

from dither.entropy import InsecureSeededSource, Source, bernoulli_many
from dither.errors import IncompatibleLosses, InvalidData, InvalidParameter
from dither.mechanisms.kary_response import KaryResponse, KaryResponseLoss
from dither.mechanisms.randomized_response import RandomizedResponse, RandomizedResponseLoss, odds_for_epsilon
from dither.mechanisms.response_estimates import Target
from dither.mechanisms.response_surveys import (
    ParticipationResponse,
    SeveralResponses,
    Strategy,
)
from dither.numeric import exp_up
from dither.privacy import (
    Adjacency,
    Direction,
    Guarantee,
    PrivacyLoss,
    PureLoss,
    optimal_composition,
    without_replacement,
)

ALPHA = 1e-9
F = Fraction
LIES = [F(1, 4), F(1, 10), F(49, 100), F(1, 1000)]


class NoSource(Source):
    """Fails the test if anything is drawn."""

    def fill(self, nbytes: int) -> np.ndarray:
        raise AssertionError("something was drawn")


def product_law(laws):
    """The exact law over tuples of independent answers."""
    out = {}
    for outcome in itertools.product(*(range(len(law)) for law in laws)):
        out[outcome] = math.prod(law[i] for law, i in zip(laws, outcome, strict=True))
    return out


def largest_ratio(p, q):
    """sup p/q over all outcomes, exact; infinity where q misses something that p can give."""
    return max(math.inf if not q.get(o) else p[o] / q[o] for o in p if p[o])


def hockey_stick(p, q, t):
    """sup over all subsets of P(S) − t·Q(S), by trying every subset."""
    outcomes = range(len(p))
    return max(
        sum((p[i] - t * q[i] for i in subset), F(0))
        for size in range(len(p) + 1)
        for subset in itertools.combinations(outcomes, size)
    )


# ---------------------------------------------------------------------- the law and its privacy


def test_two_coin_survey_is_a_quarter_and_costs_ln_3():
    # honest on heads; on tails a second coin answers
    yes_if_yes, yes_if_no = F(1, 2) + F(1, 2) * F(1, 2), F(1, 2) * F(1, 2)
    survey = RandomizedResponse(lie="1/4")
    assert survey.probabilities(True) == (1 - yes_if_yes, yes_if_yes)
    assert survey.probabilities(False) == (1 - yes_if_no, yes_if_no)
    assert survey.loss() == RandomizedResponseLoss(F(3))
    assert 0 <= survey.loss().pure() - math.log(3) <= 3 * math.ulp(1.0986)
    ten = 10 * survey.loss()
    assert ten.pure() == pytest.approx(10 * math.log(3), rel=1e-15)
    assert ten.pure() >= 10 * math.log(3)


def test_saying_yes_half_of_the_time_and_being_honest_otherwise_is_not_private():
    yes, no = (F(0), F(1)), (F(1, 2), F(1, 2))  # Pr[no], Pr[yes] for a true yes and a true no
    law = [dict(enumerate(x)) for x in (yes, no)]
    assert largest_ratio(law[1], law[0]) == math.inf  # a No proves the truth
    assert largest_ratio(law[0], law[1]) == 2


@pytest.mark.parametrize("lie", LIES)
def test_binary_law_over_all_inputs_and_replace_neighbours(lie):
    survey = RandomizedResponse(lie)
    worst = F(0)
    for truth in itertools.product([False, True], repeat=3):
        law = product_law([survey.probabilities(t) for t in truth])
        assert sum(law.values()) == 1
        for i in range(3):
            other = list(truth)
            other[i] = not other[i]
            neighbour = product_law([survey.probabilities(t) for t in other])
            worst = max(worst, largest_ratio(law, neighbour))
    assert worst == survey.loss().odds == (1 - lie) / lie
    assert exp_up(survey.loss().pure()) >= worst


@pytest.mark.parametrize("k", [2, 3, 4, 7])
@pytest.mark.parametrize("epsilon", ["0.05", "1", "4"])
def test_kary_law_over_all_pairs(k, epsilon):
    response = KaryResponse.for_epsilon(k, epsilon)
    laws = [dict(enumerate(response.probabilities(t))) for t in range(k)]
    assert all(sum(law.values()) == 1 for law in laws)
    ratios = {largest_ratio(a, b) for a, b in itertools.permutations(laws, 2)}
    assert ratios == {response.loss().odds}
    assert response.loss().odds <= F(exp_up(float(F(epsilon))))
    # keep is e^ε/(e^ε + k − 1), rounded down by next to nothing
    ideal = math.exp(float(F(epsilon))) / (math.exp(float(F(epsilon))) + k - 1)
    assert float(response.keep) == pytest.approx(ideal, rel=1e-12)
    # mutant: the lie drawn among all k answers, the truth included
    truth, other = response.keep + (1 - response.keep) / k, (1 - response.keep) / k
    assert truth / other > response.loss().odds


@pytest.mark.parametrize(
    "epsilon", ["1e-300", "1e-12", "0.001", "1/3", "0.1", "0.4", "0.5", "1", "1.1", "2.3", "7", "50", "700", "1000"]
)
def test_the_lie_is_rounded_up_so_that_the_loss_never_exceeds_epsilon(epsilon):
    exact = F(epsilon)
    survey = RandomizedResponse.for_epsilon(epsilon)
    pure = survey.loss().pure()
    assert F(pure) <= exact
    assert F(pure) >= exact * (1 - F(1, 10**12))
    assert Guarantee(epsilon).met_by(survey.loss())
    for d in (2, 3, 7):
        split = SeveralResponses((2, 3, 4, 5, 2, 2, 2)[:d], epsilon)
        assert F(split.loss().pure()) <= exact


@pytest.mark.parametrize("epsilon", ["0.25", "1", "3"])
def test_odds_lie_below_the_exponential_by_an_independent_series(epsilon):
    exact, term, total = F(epsilon), F(1), F(0)
    for i in range(1, 60):
        total += term
        term = term * exact / i
    assert total * (1 - F(1, 10**12)) < odds_for_epsilon(epsilon) < total  # the partial sum is itself below e^ε
    # mutant: the lie rounded the other way exceeds ε
    mutant = RandomizedResponse(1 / (1 + total * (1 + F(1, 10**12))))
    assert not Guarantee(epsilon).met_by(mutant.loss())


def test_plain_response_is_not_private_under_add_remove_and_its_loss_says_replace():
    survey = RandomizedResponse("1/4")
    here = product_law([survey.probabilities(t) for t in (True, False, True)])
    gone = product_law([survey.probabilities(t) for t in (True, False)])
    assert largest_ratio(here, gone) == math.inf
    assert largest_ratio(gone, here) == math.inf
    assert survey.loss().adjacency is Adjacency.REPLACE
    with pytest.raises(IncompatibleLosses):
        survey.loss() + PureLoss(1)
    with pytest.raises(IncompatibleLosses):
        KaryResponse(3, "1/2").loss() + ParticipationResponse("1/2").loss()
    assert (survey.loss() + PureLoss(1, Adjacency.REPLACE)).pure() == pytest.approx(1 + math.log(3))


# ---------------------------------------------------------------------- curves


@pytest.mark.parametrize("k", [2, 3, 4, 6])
@pytest.mark.parametrize("odds", [F(3), F(11, 10), F(50), F(1)])
def test_curve_equals_the_best_subset(k, odds):
    loss = KaryResponseLoss(odds, k)
    response = KaryResponse(k, odds / (odds + k - 1))
    assert response.loss() == loss
    for t in (F(1, 100), F(1, 2), F(9, 10), F(1), F(21, 20), F(2), F(29, 10), F(40), F(60)):
        exact = hockey_stick(response.probabilities(0), response.probabilities(k - 1), t)
        for direction in Direction:
            curve = float(loss.profile(np.array([math.log(t)]), direction)[0])
            assert curve >= float(exact) * (1 - 1e-15)
            assert curve == pytest.approx(float(exact), rel=1e-11, abs=1e-14)
    if k == 2:
        grid = np.linspace(-5, 5, 101)
        binary = RandomizedResponseLoss(odds).profile(grid, Direction.ADD)
        assert np.allclose(loss.profile(grid, Direction.ADD), binary, rtol=1e-12, atol=1e-15)
    elif odds > 1:
        # tighter than binary, and than any pure loss of this ε
        assert loss.delta(0) < RandomizedResponseLoss(odds).delta(0)


@pytest.mark.parametrize("k", [2, 3, 10, 1000])
@pytest.mark.parametrize("odds", [F(3), F(21, 20), F(10**6), F(10**30)])
def test_other_views_against_sums_over_outcomes(k, odds):
    loss, w = KaryResponseLoss(odds, k), 1 / (odds + k - 1)
    p = np.array([float(odds * w), float(w), float((k - 2) * w)])
    losses = np.array([math.log(odds), -math.log(odds), 0.0])
    kl = float(p @ losses)
    assert kl * (1 - 1e-14) <= loss.kl() <= kl * (1 + 1e-9)
    for order in (1.001, 1.5, 2.0, 8.0, 64.0, 1e4):
        exponents = (order - 1) * losses + np.log(np.maximum(p, 1e-300))
        top = exponents.max()
        exact = (top + math.log(np.exp(exponents - top).sum())) / (order - 1)
        assert loss.renyi(order) >= exact * (1 - 1e-12) - 1e-13
        assert loss.renyi(order) <= min(loss.pure(), exact * (1 + 1e-9) + 1e-9)
        assert loss.zcdp() * order >= exact * (1 - 1e-12) - 1e-13
    assert loss.zcdp() <= PureLoss(math.log(odds)).zcdp() * (1 + 1e-12)
    # Gaussian: the trade-off curve of N(0,1) against N(μ,1) lies below every corner, and touches one
    mu = loss.gaussian()
    corners = [(float(w), float((k - 1) * w)), (float((k - 1) * w), float(w))]
    for first, second in corners:
        assert ndtr(-ndtri(first) - mu) <= second * (1 + 1e-9) + 1e-12
    assert ndtr(-ndtri(corners[0][0]) - mu * (1 - 1e-6)) > corners[0][1] * (1 - 1e-3) - 1e-6


def test_zcdp_of_many_categories_is_not_that_of_order_one():
    loss = KaryResponseLoss(F(10**6), 10**8)
    # the wrong formula, which is right for two categories: ρ = KL
    assert loss.renyi(2.0) / 2 > 30 * loss.kl()
    assert loss.zcdp() >= loss.renyi(2.0) / 2


def composed_delta(loss: KaryResponseLoss, times: int, epsilon: float) -> float:
    """δ of ``times`` answers by enumerating how many of them told, lied about, and said nothing of the pair."""
    w = loss.weight
    total = 0.0
    for up in range(times + 1):
        for down in range(times + 1 - up):
            flat = times - up - down
            ways = math.comb(times, up) * math.comb(times - up, down)
            mass = float(ways * (loss.odds * w) ** up * w**down * ((loss.categories - 2) * w) ** flat)
            gap = epsilon - (up - down) * math.log(loss.odds)
            total += mass * max(0.0, -math.expm1(gap))
    return total


@pytest.mark.parametrize(("k", "times"), [(2, 20), (3, 20), (10, 40)])
def test_composition_against_enumeration(k, times):
    loss = KaryResponseLoss(F(2), k)
    composed = times * loss
    for epsilon in (0.0, 0.7, 2.0, 4.0):
        exact = composed_delta(loss, times, epsilon)
        assert exact * (1 - 1e-12) <= composed.delta(epsilon) <= exact * (1 + 1e-6) + 1e-15
    low, high = composed.epsilon_bounds(1e-4)
    assert composed_delta(loss, times, high) <= 1e-4 <= composed_delta(loss, times, low)
    assert high - low < 1e-3 * high
    if k > 2:
        assert high < (times * RandomizedResponseLoss(F(2))).epsilon(1e-4)


@pytest.mark.parametrize("lie", [F(1, 4), F(2, 5)])
def test_repeated_binary_answers_cost_what_the_optimal_theorem_says(lie):
    loss = RandomizedResponse(lie).loss()
    for times, delta in ((10, 0.01), (10, 1e-6), (100, 1e-6)):
        theorem = optimal_composition(loss.pure(), times=times, target_delta=delta)
        low, high = (times * loss).epsilon_bounds(delta)
        assert low <= theorem * (1 + 1e-9)
        assert high == pytest.approx(theorem, rel=1e-6)


def test_a_group_gives_as_many_answers():
    for loss in (RandomizedResponseLoss(F(3)), KaryResponseLoss(F(3), 4)):
        assert loss.grouped(1) == loss
        assert loss.grouped(3) == 3 * loss
        assert loss.grouped(2).delta(0.5) < PureLoss(2 * math.log(3)).delta(0.5)


@pytest.mark.parametrize(
    "loss",
    [
        RandomizedResponse("1/4").loss(),
        RandomizedResponse.for_epsilon("0.3").loss(),
        KaryResponse.for_epsilon(12, 2).loss(),
        ParticipationResponse.for_epsilon(1).loss(),
        ParticipationResponse.for_epsilon(1).loss(adjacency=Adjacency.REPLACE),
        10 * RandomizedResponse("1/4").loss() + KaryResponse(5, "1/2").loss(),
        SeveralResponses((2, 3), 1).loss(),
        without_replacement(KaryResponse(5, "1/2").loss(), sample=1, population=7),
    ],
)
def test_json_round_trip(loss):
    form = json.loads(json.dumps(loss.to_json()))
    again = PrivacyLoss.from_json(form)
    assert again == loss
    assert again.pure() == loss.pure()
    assert again.adjacency is loss.adjacency


def test_json_forms_are_permanent():
    assert RandomizedResponse("1/4").loss().to_json() == {
        "version": 1, "kind": "randomized_response", "adjacency": "replace", "odds": "3",
    }  # fmt: skip
    assert ParticipationResponse("1/2").loss().to_json() == {
        "version": 1, "kind": "kary_response", "adjacency": "add_remove", "odds": "2", "categories": 3,
    }  # fmt: skip
    with pytest.raises(InvalidParameter):
        PrivacyLoss.from_json({"version": 1, "kind": "kary_response", "adjacency": "replace", "odds": "3"})


# ---------------------------------------------------------------------- drawing


def frequencies_p_value(counts, probabilities) -> float:
    return float(stats.chisquare(counts, np.asarray(probabilities, float) * np.sum(counts)).pvalue)


@pytest.mark.parametrize("lie", [F(1, 4), F(1, 1000), F(1, 2)])
def test_frequencies_of_lies(lie):
    """Catches a lie whose probability is wrong by 15 % at p = 1/1000, by 0.6 % at p = 1/4."""
    n = 2_000_000
    survey, source = RandomizedResponse(lie), InsecureSeededSource(11)
    for truth in (False, True):
        yes = int(survey.release(np.full(n, truth), source=source).sum())
        assert frequencies_p_value([n - yes, yes], [float(x) for x in survey.probabilities(truth)]) > ALPHA
    mutant = RandomizedResponse(lie * F(85, 100))
    yes = int(mutant.release(np.zeros(n, np.int8), source=source).sum())
    assert frequencies_p_value([n - yes, yes], [float(1 - lie), float(lie)]) < ALPHA


def test_scalar_frequencies():
    """Catches a wrong probability of 3 % in 20,000 single draws."""
    survey, source = RandomizedResponse("1/4"), InsecureSeededSource(5)
    yes = sum(survey.release(False, source=source) for _ in range(20_000))
    assert frequencies_p_value([20_000 - yes, yes], [0.75, 0.25]) > ALPHA
    assert frequencies_p_value([20_000 - yes, yes], [0.71, 0.29]) < ALPHA


def test_answers_of_different_people_use_different_coins():
    """Catches one coin shared by two respondents."""
    n = 200_000
    lies = RandomizedResponse("1/4").release(np.zeros((n, 2), np.int64), source=InsecureSeededSource(3))
    joint = [F(9, 16), F(3, 16), F(3, 16), F(1, 16)]
    expected = [float(p) for p in joint]
    assert frequencies_p_value(np.bincount(lies[:, 0] * 2 + lies[:, 1], minlength=4), expected) > ALPHA
    shared = bernoulli_many(F(1, 4), n, InsecureSeededSource(3)).astype(int)
    mutant = np.where(np.arange(n) % 10 == 0, shared, lies[:, 1])  # one pair in ten shares a coin
    assert frequencies_p_value(np.bincount(shared * 2 + mutant, minlength=4), expected) < ALPHA


@pytest.mark.parametrize("k", [2, 3, 10, 1000])
def test_frequencies_of_categories(k):
    """Catches a lie drawn among all k answers, and one that favours the next answer by a tenth."""
    n = 1_000_000
    response, source = KaryResponse.for_epsilon(k, 1), InsecureSeededSource(17)
    expected = [float(p) for p in response.probabilities(1)]
    drawn = response.release(np.ones(n, np.int64), source=source)
    assert frequencies_p_value(np.bincount(drawn, minlength=k), expected) > ALPHA
    if k < 100:
        mutant = np.where(drawn == 1, 1, np.where(np.arange(n) % 20 == 0, 1, drawn))
        assert frequencies_p_value(np.bincount(mutant, minlength=k), expected) < ALPHA
    if k > 2:
        favoured = np.where((drawn != 1) & (np.arange(n) % 10 == 0), 2, drawn)
        assert frequencies_p_value(np.bincount(favoured, minlength=k), expected) < ALPHA


def test_release_keeps_the_kind():
    survey = RandomizedResponse("1/4")
    assert type(survey.release(True)) is bool
    assert type(survey.release(np.True_)) is bool
    assert type(survey.release(1)) is int
    for dtype in (np.bool_, np.int64, np.uint8):
        out = survey.release(np.ones((3, 2), dtype))
        assert out.shape == (3, 2)
        assert out.dtype == dtype
        assert set(np.unique(out)) <= {0, 1}
    assert survey.release(np.zeros(0, bool)).size == 0
    colours = KaryResponse(["red", "green", "ultramarine"], "1/2")
    assert colours.release("red") in colours.categories
    assert set(colours.release(["red", "green"] * 50)) <= set(colours.categories)
    # a narrow text type must not cut labels short
    assert set(colours.release(np.array(["red"] * 200))) == set(colours.categories)
    pairs = KaryResponse([("a", 1), ("b", 2)], "2/3")
    assert pairs.release(("a", 1)) in pairs.categories
    assert all(label in pairs.categories for label in pairs.release([("a", 1), ("b", 2)]))
    wide = KaryResponse(2**62, "1/2")
    assert 0 <= wide.release(2**62 - 1) < 2**62
    assert KaryResponse(3, "1/2").release(np.zeros((2, 2), np.uint8)).shape == (2, 2)


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize("lie", [0, -0.1, "3/4", 1, float("nan"), float("inf"), "x", True])
def test_refused_lies(lie):
    with pytest.raises(InvalidParameter):
        RandomizedResponse(lie)


@pytest.mark.parametrize("epsilon", [0, -1, float("nan"), float("inf"), 1e9, "1e-400"])
def test_refused_epsilons(epsilon):
    with pytest.raises(InvalidParameter):
        RandomizedResponse.for_epsilon(epsilon)
    with pytest.raises(InvalidParameter):
        KaryResponse.for_epsilon(3, epsilon)
    with pytest.raises(InvalidParameter):
        ParticipationResponse.for_epsilon(epsilon)


@pytest.mark.parametrize(
    ("categories", "keep"),
    [(1, "1/2"), (True, "1/2"), (3, 1), (3, "1/4"), (["a", "a"], "1/2"), (["a"], "1/2"), ("abc", "1/2"), (2.5, "1/2"),
     ([float("nan"), 1], "1/2"), ([[], 1], "1/2"), (2**63, "1/2"), (3, float("nan"))],
)  # fmt: skip
def test_refused_categories(categories, keep):
    with pytest.raises(InvalidParameter):
        KaryResponse(categories, keep)


def test_bad_answers_draw_nothing_and_are_not_repeated():
    survey, colours, numbers = RandomizedResponse("1/4"), KaryResponse(["r", "g"], "2/3"), KaryResponse(3, "1/2")
    for bad in (2, -1, 0.5, "yes", None, np.array([0, 7]), np.array([0.0, 1.0]), [True, None]):
        with pytest.raises(InvalidData) as caught:
            survey.release(bad, source=NoSource())
        assert "7" not in str(caught.value)
    for bad in ("secret", None, ["r", "secret"], np.array(["r", "secret"]), [["r"]], {}):
        with pytest.raises(InvalidData) as caught:
            colours.release(bad, source=NoSource())
        assert "secret" not in str(caught.value)
    for bad in (3, -1, 1.0, True, [0, 3], "0"):
        with pytest.raises(InvalidData):
            numbers.release(bad, source=NoSource())
    several = SeveralResponses((2, 3), 1)
    for bad in ([0, 1], [[0, 3]], [[0, -1]], [[0.0, 1.0]], [[0, 1, 0]]):
        with pytest.raises(InvalidData):
            several.release(bad, source=NoSource())


def test_laws_for_the_conformance_suite():
    survey, response = RandomizedResponse("1/4"), KaryResponse(["a", "b", "c"], "1/2")
    assert list(survey.law(True).probabilities) == [0.25, 0.75]
    assert survey.worst_pair() == (False, True)
    assert list(response.law("b").probabilities) == [0.25, 0.5, 0.25]
    assert response.worst_pair() == ("a", "b")
    assert Target.POPULATION.sentence != Target.RESPONDENTS.sentence
    assert len({s.sentence for s in Strategy}) == 3
