"""The exponential mechanism: exact laws over all neighbours, the bounded-range curve, accuracy, refusals."""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.stats import norm

from dither.checks import check_mechanism
from dither.checks.statistics import chi_square_counts
from dither.entropy import InsecureSeededSource, below, bernoulli
from dither.errors import DitherError, InvalidData, InvalidParameter, InvalidSensitivity
from dither.mechanisms.exponential import BoundedRangeLoss, Exponential, largest_range
from dither.mechanisms.laplace import DiscreteLaplace
from dither.privacy import Adjacency, Direction, Guarantee, PrivacyLoss, PureLoss, Sensitivity, calibrate, poisson

ALPHA = 1e-9
REPLACE = Adjacency.REPLACE
ETAS = (1e-6, 0.01, 0.3, 1.0, 2.5, 8.0, 40.0)


def exact_law(scores, z: Fraction) -> list[Fraction]:
    """The law at scale 1/ln(1/z), for whole-number scores: rational, so that ratios are compared exactly."""
    weights = [z ** (max(scores) - s) for s in scores]
    return [w / sum(weights) for w in weights]


def two_points(t: float, eta: float) -> tuple[np.ndarray, np.ndarray]:
    """The pair with losses t and t − η: P and Q."""
    p, rest = math.expm1(t - eta) / math.expm1(-eta), math.expm1(t) / math.expm1(eta)
    return np.array([p, rest]), np.array([p * math.exp(-t), rest * math.exp(eta - t)])


def hockey_stick(p, q, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


# ------------------------------------------------------------------ cost


def test_costs():
    one = Sensitivity.linf(1)
    assert Exponential(scale=2).loss(one).pure() == 1
    assert Exponential(scale=2, monotone=True).loss(one).pure() == 0.5
    # under replace one unit leaves and another enters: monotone buys nothing
    assert Exponential(scale=2, monotone=True).loss(Sensitivity.linf(1, adjacency=REPLACE)).pure() == 1
    assert Exponential(scale=2).loss(Sensitivity.linf(1, adjacency=REPLACE)).adjacency is REPLACE
    assert Exponential(scale="1/3").loss(Sensitivity.linf("1/7")).exact_range == Fraction(6, 7)
    assert Exponential(scale=2).loss(Sensitivity.contribution(groups=5, per_group=3)).pure() == 3


@pytest.mark.parametrize("z", [Fraction(1, 2), Fraction(9, 10)])
def test_all_neighbours_exactly(z):
    # Δ = 1 and scale 1/ln(1/z): e^ε = z^−2 in general and z^−1 for scores that move one way.
    general = monotone = Fraction(0)
    for scores in itertools.product(range(3), repeat=3):
        law = exact_law(scores, z)
        for move in itertools.product((-1, 0, 1), repeat=3):
            other = exact_law([s + m for s, m in zip(scores, move, strict=True)], z)
            ratios = [a / b for a, b in zip(law, other, strict=True)]
            width = max(ratios) / min(ratios)  # e^(range of the losses)
            general = max(general, width)
            assert max(ratios) < z**-2 if any(move) else max(ratios) == 1
            if -1 not in move:
                monotone = max(monotone, width)
                assert max(ratios) <= z**-1
    assert general == z**-2  # the range is attained
    assert monotone == z**-1


def test_without_the_factor_two_general_scores_are_not_private():
    # e^{εu/Δ} with e^ε = 2: a candidate that is far behind gains 1 while the leader loses 1.
    z = Fraction(1, 2)
    before, after = exact_law((0, 8), z), exact_law((1, 7), z)
    assert after[0] / before[0] > 2 * Fraction(19, 10)
    # … and the mechanism says so: that scale costs twice
    assert Exponential(scale=1).loss(Sensitivity.linf(1)).pure() == 2
    # monotone scores are fine
    up = exact_law((1, 8), z)
    assert max(a / b for a, b in zip(up, before, strict=True)) <= 2


def test_law_is_the_exact_one():
    scores = [3, 0, -2, 3, 7]
    law = Exponential(scale=2).law(scores).probabilities
    weights = np.exp(np.array(scores) / 2)
    assert np.allclose(law, weights / weights.sum(), rtol=1e-14)
    weighted = Exponential(scale=2).law(scores, weights=[1, 2, 0, 3, 10**400]).probabilities
    assert weighted[2] == 0
    assert weighted[4] == pytest.approx(1)
    assert Exponential(scale=1).law([0.0, -math.inf]).probabilities.tolist() == [1, 0]


def test_limits_are_uniform_and_argmax():
    scores = [0.0, 1.0, 5.0]
    assert np.allclose(Exponential(scale=10**9).law(scores).probabilities, 1 / 3, atol=1e-8)
    assert np.allclose(Exponential(scale="1/1000").law(scores).probabilities, [0, 0, 1])
    assert {Exponential(scale="1/1000").release(scores) for _ in range(20)} == {2}


def test_distance_scores_give_laplace_and_gauss():
    points = np.arange(-300, 301)
    absolute = Exponential(scale=3).law(-np.abs(points - 4.0)).probabilities
    cdf = DiscreteLaplace(scale=3).law(4.0).cdf(points.astype(float))
    assert np.allclose(np.cumsum(absolute), cdf, atol=1e-13)
    # −(q−a)² at scale s is Gaussian with variance s/2
    squared = Exponential(scale=800).law(-((points - 4.0) ** 2)).probabilities
    assert np.allclose(np.cumsum(squared), norm.cdf((points + 0.5 - 4) / 20), atol=1e-4)


# ------------------------------------------------------------------ the bounded-range curve


@pytest.mark.parametrize("eta", ETAS)
def test_curve_is_the_largest_of_all_two_point_pairs(eta):
    loss = BoundedRangeLoss(Fraction(eta))
    grid = np.linspace(-1.3 * eta, 1.3 * eta, 27)
    ts = np.linspace(0, eta, 801)
    for epsilon, bound in zip(grid, loss.profile(grid, Direction.ADD), strict=True):
        best = max(hockey_stick(*two_points(t, eta), epsilon) for t in ts)
        assert best <= bound * (1 + 1e-9) + 1e-15
        t = min(max((eta + epsilon) / 2, 0.0), eta)
        assert bound == pytest.approx(hockey_stick(*two_points(t, eta), epsilon), rel=1e-6, abs=1e-13)
    assert loss.delta(Fraction(loss.pure())) == 0


@pytest.mark.parametrize("eta", [0.3, 1.0, 8.0])
def test_curve_is_that_of_two_logistic_laws(eta):
    # so it is the curve of one pair, and products of it dominate compositions
    x = np.linspace(-60, 60, 400_001)
    density = 1 / (4 * np.cosh(x / 2) ** 2)
    shifted = 1 / (4 * np.cosh((x - eta) / 2) ** 2)
    for epsilon in (-0.7 * eta, 0.0, 0.2 * eta, 0.9 * eta):
        area = np.maximum(shifted - math.exp(epsilon) * density, 0).sum() * (x[1] - x[0])
        point = np.array([epsilon])
        assert BoundedRangeLoss(Fraction(eta)).profile(point, Direction.REMOVE)[0] == pytest.approx(area, rel=1e-6)


@given(
    st.lists(st.tuples(st.integers(-20, 20), st.integers(-4, 4)), min_size=2, max_size=6),
    st.sampled_from([1, 3, 10]),
)
def test_mechanism_stays_below_its_curve(pairs, scale):
    before = [a for a, _ in pairs]
    after = [a + m for a, m in pairs]
    mechanism = Exponential(scale=scale)
    p, q = mechanism.law(before).probabilities, mechanism.law(after).probabilities
    loss = mechanism.loss(Sensitivity.linf(4))
    for epsilon in np.linspace(-loss.pure(), loss.pure(), 9):
        assert hockey_stick(p, q, epsilon) <= loss.profile(np.array([epsilon]), Direction.ADD)[0] + 1e-12
    logs = np.log(p / q)
    assert logs.max() - logs.min() <= loss.pure() + 1e-9
    assert float((p * np.log(p / q)).sum()) <= loss.kl() + 1e-12


@pytest.mark.parametrize("monotone", [False, True])
def test_worst_pair_attains_the_curve(monotone):
    mechanism = Exponential(scale=2, monotone=monotone)
    one = Sensitivity.linf(1)
    first, second = mechanism.worst_pair(one)
    assert np.abs(first - second).max() <= 1
    p, q = mechanism.law(first).probabilities, mechanism.law(second).probabilities
    assert hockey_stick(p, q, 0.0) == pytest.approx(mechanism.loss(one).delta(0), rel=1e-9)


@pytest.mark.parametrize("eta", ETAS)
@pytest.mark.parametrize("order", [1.01, 1.5, 2.0, 7.0, 64.0])
def test_renyi_is_the_supremum_and_zcdp_covers_it(eta, order):
    loss = BoundedRangeLoss(Fraction(eta))
    best = 0.0
    for t in np.linspace(eta / 1500, eta * (1 - 1 / 1500), 1499):
        p, _ = two_points(float(t), eta)
        logs = np.log(p) + (order - 1) * np.array([t, t - eta])
        top = logs.max()
        best = max(best, (top + math.log(np.exp(logs - top).sum())) / (order - 1))
    value = loss.renyi(order)
    assert best <= value * (1 + 1e-9) + 1e-13 / (order - 1)
    assert value <= order * eta**2 / 8 * (1 + 1e-12)
    assert value <= order * loss.zcdp() * (1 + 1e-12)
    if eta >= 0.3:
        assert value == pytest.approx(best, rel=1e-3)


@pytest.mark.parametrize("eta", ETAS)
def test_expected_loss_and_gaussian_view(eta):
    loss = BoundedRangeLoss(Fraction(eta))
    t = np.linspace(0, eta, 20_001)
    kl = float((t - eta * np.expm1(t) / math.expm1(eta)).max())
    assert kl <= loss.kl() + 1e-15
    assert loss.kl() == pytest.approx(kl, rel=1e-3, abs=2e-15)
    assert loss.kl() <= loss.zcdp()
    # every corner (q, p) of a two-point pair lies above the Gaussian trade-off curve, the middle one on it
    x = np.linspace(-30, 30, 2001)
    lower, upper = -np.logaddexp(0, eta / 2 - x), -np.logaddexp(0, -eta / 2 - x)
    distance = norm.ppf(np.exp(upper[x <= 0])) - norm.ppf(np.exp(lower[x <= 0]))  # symmetric in x
    assert distance.max() <= loss.gaussian() * (1 + 1e-9) + 1e-12
    assert distance[-1] == pytest.approx(loss.gaussian(), rel=1e-6)
    assert loss.gaussian() < PureLoss(Fraction(eta)).gaussian()


def test_zcdp_value_and_zero_range():
    assert BoundedRangeLoss(Fraction(2)).zcdp() == 0.5
    assert BoundedRangeLoss(Fraction(100)).zcdp() <= 100.001
    nothing = BoundedRangeLoss(Fraction(0))
    assert (nothing.pure(), nothing.delta(0), nothing.zcdp(), nothing.renyi(2), nothing.kl()) == (0, 0, 0, 0, 0)
    with pytest.raises(InvalidParameter, match="must not be negative"):
        BoundedRangeLoss(Fraction(-1))


@pytest.mark.parametrize("epsilon", [0.0, 0.35, 0.9, 1.3])
def test_composition_covers_the_worst_adaptive_choice(epsilon):
    # first a two-point pair, then for each outcome another one; the worst of all choices, by a fine search
    eta = 0.8
    ts = np.linspace(1e-6, eta - 1e-6, 81)
    single = np.array([[two_points(t, eta)] for t in ts])[:, 0]  # t, (P, Q), outcome

    def second(reached: float) -> float:
        inner = single[:, 0, :] - math.exp(reached) * single[:, 1, :]
        return float(np.maximum(inner, 0).sum(axis=1).max())

    worst = 0.0
    for t in ts:
        p, _ = two_points(t, eta)
        worst = max(worst, p[0] * second(epsilon - t) + p[1] * second(epsilon - t + eta))
    stated = (2 * BoundedRangeLoss(Fraction("0.8"))).delta(epsilon)
    assert worst <= stated
    assert worst >= stated / 1.5  # and not by much
    assert stated < (2 * PureLoss("0.8")).delta(epsilon)
    if epsilon > 0.8:
        # the mutant that composes the balanced pair only, randomised response at half the range, promises too much
        assert worst > 0 == (2 * PureLoss("0.4")).delta(epsilon)


def test_long_compositions_use_the_orders():
    loss = 200 * BoundedRangeLoss(Fraction(1, 10))
    assert loss.zcdp() == pytest.approx(200 * 0.01 / 8)
    # non-adaptive composition of the balanced pair, randomised response with half the range, is a bound from below
    assert loss.epsilon(1e-6) >= (200 * PureLoss("1/20")).epsilon_bounds(1e-6)[0]
    assert loss.epsilon(1e-6) < 1.1 * (200 * PureLoss("1/20")).epsilon(1e-6)
    assert loss.epsilon(1e-6) < 0.6 * (200 * PureLoss("1/10")).epsilon(1e-6)


def test_loss_algebra():
    loss = Exponential(scale=2).loss(Sensitivity.linf(1))
    assert PrivacyLoss.from_json(json.loads(json.dumps(loss.to_json()))) == loss
    assert loss.to_json() == {"version": 1, "kind": "bounded_range", "adjacency": "add_remove", "range": "1"}
    assert loss.grouped(3) == BoundedRangeLoss(Fraction(3))
    sampled = poisson(loss, rate="1/10")
    assert sampled.pure() == pytest.approx(math.log1p(0.1 * math.expm1(1)))
    p, q = two_points(0.6, 1.0)
    mixed = 0.9 * q + 0.1 * p
    for order in (1.5, 2.0, 8.0):
        for a, b in ((mixed, q), (p, 0.9 * p + 0.1 * q)):
            assert math.log((a**order * b ** (1 - order)).sum()) / (order - 1) <= sampled.renyi(order)
    for epsilon in (0.0, 0.05, 0.12):
        assert max(hockey_stick(mixed, q, epsilon), hockey_stick(p, 0.9 * p + 0.1 * q, epsilon)) <= sampled.delta(
            epsilon
        )


def test_conformance():
    check_mechanism(Exponential(scale=2), sensitivity=Sensitivity.linf(1), draws=2000)
    check_mechanism(Exponential(scale=1, monotone=True), sensitivity=Sensitivity.linf(1), draws=2000)


# ------------------------------------------------------------------ calibration and accuracy


@given(
    epsilon=st.sampled_from(["1/100", "1/2", "1", "4", "30"]),
    delta=st.sampled_from(["0", "1e-12", "1e-6", "1/100", "1/2", "0.999"]),
    monotone=st.booleans(),
)
def test_calibration_is_tight(epsilon, delta, monotone):
    guarantee = Guarantee(epsilon, delta)
    mechanism = Exponential.calibrated(guarantee, Sensitivity.linf(3), monotone=monotone)
    loss = mechanism.loss(Sensitivity.linf(3))
    assert loss.epsilon(delta) <= float(guarantee.epsilon)
    wasteful = Exponential(mechanism.scale * Fraction(9999, 10000), monotone=monotone).loss(Sensitivity.linf(3))
    assert wasteful.epsilon(delta) > float(guarantee.epsilon)


def test_calibration_through_the_front_door():
    assert calibrate(Exponential, Guarantee(epsilon=1), Sensitivity.linf(1)).scale == 2
    assert largest_range(Guarantee(1)) == 1
    assert largest_range(Guarantee(1, "1e-6")) > 1


@given(
    others=st.integers(1, 50),
    best=st.integers(1, 5),
    confidence=st.sampled_from(["1/2", "19/20", "0.999"]),
    gap=st.integers(0, 30),
)
def test_error_bound_is_exact_and_below_the_textbook(others, best, confidence, gap):
    mechanism = Exponential(scale=3)
    failure = 1 - Fraction(confidence)
    error = mechanism.error(confidence, candidates=others + best, optimal=best)
    assert error <= 3 * (math.log((others + best) / best) - math.log(failure)) + 1e-9

    def missed(x: float) -> float:
        law = mechanism.law([0.0] * best + [-x] * others).probabilities
        return float(law[best:].sum())

    assert missed(error) <= float(failure) + 1e-12
    if error > 0.01:
        assert missed(error - 0.01) > float(failure)
    # t of the textbook: Pr[score ≤ best − scale·(ln(n/k) + t)] ≤ e^−t
    t = gap / 10
    assert missed(3 * (math.log((others + best) / best) + t)) <= math.exp(-t)


@given(st.lists(st.floats(-50, 0), min_size=1, max_size=12), st.integers(1, 3))
def test_expected_shortfall(lower, best):
    mechanism = Exponential(scale=2)
    scores = np.array([0.0] * best + lower)
    n = scores.size
    expected = float(-(mechanism.law(scores).probabilities * scores).sum())
    bound = mechanism.expected_shortfall(candidates=n, optimal=best)
    assert expected <= bound + 1e-12
    assert bound <= 2 * math.log(n / best) + 1e-9
    # attained where all others are W + 1 scales behind
    at = -(bound + 2)
    worst = np.array([0.0] * best + [at] * len(lower))
    assert -(mechanism.law(worst).probabilities * worst).sum() == pytest.approx(bound, rel=1e-9)


def test_error_edges_and_for_error():
    assert Exponential(scale=1).error(candidates=4, optimal=4) == 0
    assert Exponential(scale=1).expected_shortfall(candidates=4, optimal=4) == 0
    assert Exponential(scale=1).error(candidates=10**500) == pytest.approx(500 * math.log(10) + math.log(19))
    assert Exponential(scale=1).expected_shortfall(candidates=10**500) < 500 * math.log(10) + 1e-6
    with pytest.raises(InvalidParameter, match="at most candidates"):
        Exponential(scale=1).error(candidates=2, optimal=3)
    found = Exponential.for_error(10, candidates=1000, confidence=0.99)
    assert 9.999 < found.error(0.99, candidates=1000) <= 10
    with pytest.raises(InvalidParameter, match="every scale"):
        Exponential.for_error(10, candidates=2, confidence="2/5")


# ------------------------------------------------------------------ releases


def test_large_structured_ranges_without_listing_them():
    # One law three ways: listed, by intervals, by rejection. Catches a scale that is a third of what it should be.
    mechanism = Exponential(scale=3)
    points = np.arange(24)
    score = lambda x: -abs(int(x) - 9) // 4  # noqa: E731
    law = mechanism.law([score(x) for x in points]).probabilities
    n = 2_500
    pieces = [list(group) for _, group in itertools.groupby(points, key=score)]
    starts, lengths = [p[0] for p in pieces], [len(p) for p in pieces]
    levels = [score(p[0]) for p in pieces]

    def by_interval(m: Exponential) -> int:
        piece, offset = m.release_intervals(levels, lengths)
        return int(starts[piece]) + offset

    def by_rejection(m: Exponential) -> int:
        return m.release_from(lambda source: below(24, source), score, best=1)

    for draw in (by_interval, by_rejection):
        counts = np.bincount([draw(mechanism) for _ in range(n)], minlength=24).astype(float)
        assert chi_square_counts(counts, law) > ALPHA
        mutant = np.bincount([draw(Exponential(scale=1)) for _ in range(n)], minlength=24).astype(float)
        assert chi_square_counts(mutant, law) < ALPHA


def test_intervals_of_astronomic_length():
    piece, offset = Exponential(scale=1).release_intervals([0.0, 1.0], [10**100, 3], source=InsecureSeededSource(1))
    assert piece == 0
    assert 0 <= offset < 10**100


def test_rejection_clamps_scores_above_the_public_best():
    # scores 0 and 5 with best = 0 count as equal
    source = InsecureSeededSource(5)
    mechanism = Exponential(scale=1)
    drawn = [mechanism.release_from(lambda s: below(2, s), lambda c: 5.0 * c, 0, source=source) for _ in range(4000)]
    assert abs(sum(drawn) / 4000 - 0.5) < 0.05
    with pytest.raises(InvalidData):
        mechanism.release_from(lambda s: 0, lambda c: math.nan, 0)
    with pytest.raises(InvalidData):
        mechanism.release_from(lambda s: 0, lambda c: "high", 0)
    # −inf is never taken, and huge gaps are no problem
    assert mechanism.release_from(lambda s: below(3, s), lambda c: (0, -math.inf, -1e308)[c], 0) == 0
    assert mechanism.release_from(lambda s: bernoulli(Fraction(1, 2), s), lambda c: Fraction(0), "1/10") in (
        True,
        False,
    )


@pytest.mark.parametrize(
    "bad",
    [
        [math.nan, 1],
        [math.inf, 1],
        [],
        [[1.0]],
        ["a"],
        [True, False],
        [-math.inf],
        np.array([1j]),
        [Fraction(1, 3)],
        None,
    ],
)
def test_bad_scores_are_refused_and_draw_nothing(bad):
    class NoSource(InsecureSeededSource):
        def fill(self, nbytes):
            raise AssertionError("drew on bad input")

        bits = fill

    with pytest.raises(InvalidData) as caught:
        Exponential(scale=1).release(bad, source=NoSource(0))
    assert "nan" not in str(caught.value)


def test_bad_parameters_are_refused():
    for scale in (0, -1, math.nan, math.inf, "x", True):
        with pytest.raises(InvalidParameter):
            Exponential(scale=scale)
    for sensitivity in (Sensitivity.l1(1), Sensitivity.l2(1)):
        with pytest.raises(InvalidSensitivity):
            Exponential(scale=1).loss(sensitivity)
    with pytest.raises(DitherError):
        Exponential(scale=1).release([1.0, 2.0], weights=[1, -1])


def test_whole_numbers_are_clamped_not_rounded():
    assert Exponential(scale="1/1000").release([2**70, 0]) == 0
    assert Exponential(scale="1/1000").release(np.array([0, 2**63 - 1])) == 1
    assert Exponential(scale="1/1000").release(np.array([0, 2**64 - 1], np.uint64)) == 1
    # beyond the clamp both count the same
    even = Exponential(scale=1).law([2**60, 2**61]).probabilities
    assert even.tolist() == [0.5, 0.5]
