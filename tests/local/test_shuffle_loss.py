"""The loss of a shuffled report: its views, its permanent form, what it can be made from, and calibration."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from dither.errors import InvalidParameter
from dither.local.frequency.hadamard import HadamardResponse
from dither.local.frequency.kary import Kary
from dither.local.frequency.participation import Participation
from dither.local.frequency.unary import Unary
from dither.local.rappor.protocol import Rappor
from dither.local.shuffling import curve as shuffle_curve
from dither.local.shuffling.curve import OVERSTATED, Randomiser, ShuffledCurve
from dither.local.shuffling.shuffle import ShuffledLoss, local_epsilon_for, shuffled
from dither.mechanisms.kary_response import KaryResponseLoss
from dither.mechanisms.randomized_response import RandomizedResponseLoss
from dither.privacy import Adjacency, ApproximateLoss, Direction, PrivacyLoss, PureLoss, without_replacement
from support.sizes import at_night

THREE, QUARTER = Fraction(3), Fraction(1, 4)


def known(odds, weight, clones=None, silent=0, common=0):
    clones = weight if clones is None else clones
    exact = {"clones": Fraction(clones), "silent": Fraction(silent), "common": Fraction(common)}
    return Randomiser(odds=Fraction(odds), weight=Fraction(weight), **exact)


def of(odds, weight, users, **more):
    return ShuffledLoss(known(odds, weight, **more), users)


TYPICAL = known(3, "1/8", "1/10", "1/2", "1/5")


def pair(local, users):
    """Both laws of the sorted labels: first, second, third, and known to be somebody's."""
    w = local.weight
    left = 1 - (local.odds + 1) * w - local.silent
    user = [(local.odds * w, w), (w, local.odds * w), (local.silent,) * 2, (left, left)]
    other = [local.clones, local.clones, local.common, 1 - 2 * local.clones - local.common]
    crowd = Counter({(): Fraction(1)})
    for _ in range(users - 1):
        step = Counter()
        for labels, chance in crowd.items():
            for label, p in zip("ABCx", other, strict=True):
                step[tuple(sorted((*labels, label)))] += chance * p
        crowd = step
    laws = Counter(), Counter()
    for labels, chance in crowd.items():
        for label, ps in zip("ABCk", user, strict=True):
            for law, p in zip(laws, ps, strict=True):
                law[tuple(sorted((*labels, label)))] += chance * p
    return [(laws[0][key], laws[1][key]) for key in laws[0] if laws[0][key]]


def hockey_stick(law, t):
    return sum(max(0, p - t * q) for p, q in law)


# ------------------------------------------------------------------ the loss and its views


def test_more_users_and_more_in_common_hide_better_and_larger_odds_worse():
    def at(odds=3, users=50, common="1/4"):
        local = known(odds, Fraction(1, 8), None, "1/4", common)
        return [ShuffledCurve(local, users).delta_up(e) for e in (0.0, 0.1, 0.3)]

    middle = at()
    assert all(a < b for a, b in zip(at(users=60), middle, strict=True))
    assert all(a > b for a, b in zip(at(odds=4), middle, strict=True))
    assert all(a > b for a, b in zip(at(common="1/5"), middle, strict=True))
    assert all(a > b for a, b in zip((shuffled(e, 50).delta(0.1) for e in (1, 2)), (0, middle[1]), strict=True))


def test_one_user_is_hidden_by_nobody():
    for local in (RandomizedResponseLoss(THREE), KaryResponseLoss(THREE, 7)):
        alone = shuffled(local, 1)
        for epsilon in (0, 0.3, 1):
            assert alone.delta(epsilon) == pytest.approx(local.delta(epsilon), rel=1e-12)


def test_the_views_of_a_few_users_are_those_of_the_exact_pair():
    law = [(float(p), float(q)) for p, q in pair(TYPICAL, 7)]
    loss = ShuffledLoss(TYPICAL, 7)
    kl = sum(p * math.log(p / q) for p, q in law)
    assert kl <= loss.kl() <= kl * 1.01
    for order in (1.01, 1.5, 2.0, 5.0, 20.0, 100.0):
        exact = math.log(sum(q * (p / q) ** order for p, q in law)) / (order - 1)
        assert exact <= loss.renyi(order) <= exact * 1.02 + 1e-6
        assert loss.renyi(order) <= loss.zcdp() * order * (1 + 1e-12)
    assert loss.zcdp() < 1.1 * max(kl, loss.renyi(5.0) / 5)
    assert loss.renyi(1e9) <= loss.pure() == pytest.approx(math.log(3))


def test_zcdp_of_a_crowd_is_near_its_expected_loss():
    loss = shuffled(1, 10_000)
    assert loss.kl() < loss.zcdp() < 1.3 * loss.kl()
    # orders beyond those that any δ asks for
    assert loss.renyi(2**20) < loss.pure() * (1 + 1e-12)


def test_many_points_lie_on_chords_above_single_ones():
    loss = shuffled(1, 2_000)
    epsilons = np.linspace(-0.3, 0.3, 301)
    many = loss.profile(epsilons, Direction.REMOVE)
    single = np.array([float(loss.profile(np.array([e]), Direction.ADD)[0]) for e in epsilons])
    assert (many >= single * (1 - 1e-12)).all()
    seen = (single > 1e-12) & (epsilons >= 0)
    assert (many[seen] <= single[seen] * 1.01).all()
    assert loss.profile(np.linspace(1.001, 3.0, 100), Direction.REMOVE).max() == 0


def test_below_zero_the_curve_is_mirrored():
    loss, x = shuffled(1, 100), 0.2
    there, back = (float(loss.profile(np.array([e]), Direction.REMOVE)[0]) for e in (x, -x))
    assert back == pytest.approx(1 - math.exp(-x) + math.exp(-x) * there)


def test_rounds_compose_as_exact_products():
    """Two rounds of three people each: the composed claim against the product of the exact laws."""
    law = pair(known(3, QUARTER), 3)
    product = [(p * r, q * s) for (p, q), (r, s) in itertools.product(law, repeat=2)]
    twice = 2 * of(3, QUARTER, 3)
    for epsilon in (0.0, 0.4, 1.0):
        exact = float(hockey_stick(product, Fraction(math.exp(epsilon))))
        assert exact * (1 - 1e-12) <= twice.delta(epsilon) <= exact * 1.02


def test_bounds_of_epsilon_are_close_and_the_curve_is_kept():
    loss = shuffled(Kary.for_epsilon(2, 2), 5_000)
    for delta in (1e-4, 1e-8, 1e-15):
        low, high = loss.epsilon_bounds(delta)
        assert 0 < low <= high <= low * (1 + 10 * OVERSTATED)
        assert loss.delta(high) <= delta
        assert loss.delta(low * (1 - 1e-6)) > delta
    assert loss.epsilon(0) == loss.pure()
    assert loss.epsilon(0.9) == 0


def exact_epsilon(law, delta):
    """The smallest ε ≥ 0 of one exact law at δ, by bisection on its curve."""
    low, high = 0.0, 5.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if hockey_stick(law, Fraction(math.exp(middle))) > delta else (low, middle)
    return low


@pytest.mark.parametrize("delta", [pytest.param("0.1", marks=at_night), "0.01", pytest.param("0.003", marks=at_night)])
def test_bounds_hold_the_exact_law_of_a_small_crowd(delta):
    """By itself, twice over, and sampled: chords lie above the curve, and no lower bound may rest on them."""
    local = known(3, "1/8", "1/10", "1/2", "1/5")
    law = pair(local, 4)
    loss = ShuffledLoss(local, 4)
    twice = [(p * r, q * s) for (p, q), (r, s) in itertools.product(law, repeat=2)]
    half = Fraction(1, 2)
    sampled = [(half * p + half * q, q) for p, q in law]
    for made, exact in ((loss, law), (2 * loss, twice), (without_replacement(loss, sample=1, population=2), sampled)):
        truth = exact_epsilon(exact, Fraction(delta))
        low, high = made.epsilon_bounds(delta)
        assert low <= truth + 1e-15
        assert truth <= high + 1e-15
        assert low >= 0.99 * truth - 1e-3


def test_many_points_from_below_lie_below_single_ones():
    loss = shuffled(1, 2_000)
    epsilons = np.linspace(-0.3, 0.3, 301)
    many = loss.profile_down(epsilons, Direction.REMOVE)
    single = np.array([float(loss.profile(np.array([e]), Direction.ADD)[0]) for e in epsilons])
    assert (many <= single).all()
    seen = (single > 1e-12) & (epsilons >= 0)
    assert (many[seen] >= single[seen] * 0.98).all()


def test_a_crowd_counted_in_steps_is_bracketed(monkeypatch):
    """Where sizes are taken in steps, the curve is above the sum over all of them by more than any rounding."""
    loss = shuffled(Kary.for_epsilon(50, 2), 200)
    low, high = loss.epsilon_bounds(1e-6)
    points = np.linspace(0.05, 0.3, 6)
    below = loss.profile_down(points, Direction.REMOVE)
    monkeypatch.setattr(shuffle_curve, "FEW_SIZES", 10**9)
    one_by_one = ShuffledCurve(loss.local, 200)
    assert (below <= [one_by_one.delta_down(float(e)) * (1 + OVERSTATED) for e in points]).all()
    assert one_by_one.delta_down(low) * (1 + 1e-6) >= 1e-6 >= one_by_one.delta_down(high)
    assert one_by_one.delta_up(high * 0.999) < 1e-6  # what the steps cost


def test_json_is_permanent():
    loss = of(3, "1/10", 1_000, clones="1/12", silent="1/3", common="1/4")
    form = loss.to_json()
    assert form == {
        "version": 1,
        "kind": "shuffled",
        "adjacency": "replace",
        "odds": "3",
        "weight": "1/10",
        "clones": "1/12",
        "silent": "1/3",
        "common": "1/4",
        "users": 1_000,
    }
    assert PrivacyLoss.from_json(form) == loss
    with pytest.raises(InvalidParameter, match="users"):
        PrivacyLoss.from_json({**form, "users": 0})


# ------------------------------------------------------------------ what can be shuffled


def test_every_kind_of_local_loss():
    oracle = Kary.for_epsilon(10, 1)
    rest = 8 * oracle.miss
    assert shuffled(oracle, 100) == of(oracle.odds, oracle.weight, 100, silent=rest, common=rest)
    assert shuffled(Kary(2, keep="3/4"), 100) == of(3, QUARTER, 100)
    # of a loss it is known that everybody's report has at least a third of anybody's probability
    assert shuffled(RandomizedResponseLoss(THREE), 100) == of(3, QUARTER, 100, clones="1/6")
    assert shuffled(KaryResponseLoss(THREE, 18), 100) == of(
        3, "1/20", 100, clones="1/20", silent="7/10", common=Fraction(1, 3) - Fraction(1, 10)
    )
    stated = shuffled(PureLoss(math.log(3), Adjacency.REPLACE), 100)
    assert stated.delta(0.1) == pytest.approx(shuffled(RandomizedResponseLoss(THREE), 100).delta(0.1), rel=1e-9)
    # of a composition two numbers are kept, which is less than all but more than its ε
    several = shuffled(Rappor.for_epsilon(2), 10_000).epsilon(1e-6)
    assert several < 0.8 * shuffled(2, 10_000).epsilon(1e-6)
    survey = shuffled(Participation.for_epsilon(["no", "yes"], 1), 50)
    assert survey.adjacency is Adjacency.ADD_REMOVE
    assert survey.local == shuffled(Kary.for_epsilon(3, 1), 50).local
    nothing = PureLoss(0, Adjacency.REPLACE)
    assert shuffled(nothing, 10) is nothing
    hopeless = PureLoss(900, Adjacency.REPLACE)
    assert shuffled(hopeless, 10) is hopeless


def test_the_better_of_two_readings_of_an_oracle_is_taken():
    bits, rows = (
        shuffled(Unary.for_epsilon(100, 3), 100).local,
        shuffled(HadamardResponse.for_epsilon(100, 1), 100).local,
    )
    assert bits.silent == bits.common
    assert rows.silent == rows.odds * rows.common
    for oracle, known in ((Unary.for_epsilon(100, 3), bits), (HadamardResponse.for_epsilon(100, 1), rows)):
        other = oracle.loss()
        assert ShuffledLoss(known, 100).epsilon(1e-6) < shuffled(other, 100).epsilon(1e-6)


def test_odds_of_one_cost_nothing():
    free = of(1, "1/2", 10)
    assert (free.pure(), free.delta(0), free.epsilon(1e-9), free.kl(), free.zcdp(), free.renyi(2.0)) == (0,) * 6
    assert float(free.profile(np.array([0.0]), Direction.ADD)[0]) == 0


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: shuffled(1, 0), "users must be a whole number of at least 1"),
        (lambda: shuffled(0, 10), "epsilon must be greater than 0"),
        (lambda: shuffled(ApproximateLoss(1, 1e-6, Adjacency.REPLACE), 10), "has no finite ε at δ = 0"),
        (lambda: of(3, "1/3", 10), "must lie between 0 and 1"),
        (lambda: of(3, "1/8", 10, silent="3/5", common="3/5"), "must lie between 0 and 1"),
        (lambda: of(3, "1/8", 10, silent="-1/5"), "must lie between 0 and 1"),
        (lambda: of(3, "1/8", 10, clones="1/7"), "at most weight"),
        (lambda: of(3, "1/8", 10, common="4/5"), r"2·clones \+ common at most 1"),
        (lambda: of(3, "1/8", 10, silent="1/2", common="1/10"), "isn't hidden by anybody"),
        (lambda: of("1/2", "1/3", 10), "odds of truth to lie must be at least 1"),
        (lambda: of(Fraction(10) ** 200, Fraction(1, 10**300), 10), "odds must be at most"),
        (lambda: local_epsilon_for(1, 0, 10), "delta must be greater than 0"),
        (lambda: local_epsilon_for(1, 1, 10), "delta must be above 0 and below 1"),
        (lambda: local_epsilon_for(1, 1e-6, 10, make=lambda e: 2 * e), "no more than what it is given"),
    ],
)
def test_wrong_input_is_refused(make, told):
    with pytest.raises(InvalidParameter, match=told):
        make()


@pytest.mark.parametrize(("epsilon", "delta", "users"), [(1, 1e-6, 10_000), ("1/10", 1e-8, 10**6), (3, 1e-5, 1)])
@pytest.mark.parametrize("make", [None, lambda e: Kary.for_epsilon(50, e)])
def test_the_largest_local_epsilon_fits_and_a_little_more_does_not(epsilon, delta, users, make):
    found = local_epsilon_for(epsilon, delta, users, make=make)
    build = make or (lambda e: e)
    assert shuffled(build(found), users).epsilon(delta) <= Fraction(epsilon) * (1 + Fraction(1, 10**9))
    assert shuffled(build(found * 1.0001), users).epsilon(delta) > Fraction(epsilon)


def test_a_crowd_without_end_lets_people_speak_openly():
    assert local_epsilon_for(100, 0.5, 10**9) == 50
