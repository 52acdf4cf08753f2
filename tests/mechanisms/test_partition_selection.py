"""Key selection: both inequalities with exact fractions, singletons, the split over keys, and the mutants."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dither.entropy import SYSTEM, InsecureSeededSource, exp_neg_bounds
from dither.errors import InvalidData, InvalidParameter, InvalidSensitivity
from dither.mechanisms.partition_selection import (
    GaussianThreshold,
    GivenAwayLoss,
    LaplaceThreshold,
    PartitionSelection,
    certified_ladder,
)
from dither.privacy import Adjacency, ApproximateLoss, PrivacyLoss, PureLoss, Sensitivity

ALPHA = 1e-9
CASES = [("1", "1e-5"), ("0.1", "1e-8"), ("0.01", "1e-6"), ("3", "1e-10"), ("20", "0.01"), ("1/3", "1e-30")]


def once(keys: int) -> Sensitivity:
    return Sensitivity.contribution(groups=keys, per_group=1)


def exp_down(epsilon: Fraction) -> Fraction:
    return Fraction(2**400, exp_neg_bounds(epsilon, 400)[1])


def violations(keep, epsilon: Fraction, delta: Fraction, upto: int) -> int:
    """How many of the four inequalities fail for n − 1 and n units, n up to a limit; e^ε rounded down."""
    growth, count, low = exp_down(epsilon), 0, keep(0)
    for n in range(1, upto + 1):
        high = keep(n)
        for p, q in ((high, low), (low, high), (1 - low, 1 - high), (1 - high, 1 - low)):
            count += p > growth * q + delta
        low = high
    return count


@pytest.mark.parametrize(("epsilon", "delta"), CASES)
def test_both_inequalities_hold_exactly(epsilon, delta):
    e, d = Fraction(epsilon), Fraction(delta)
    selection = PartitionSelection(e, d)
    assert selection.keep_probability(0) == 0
    assert violations(selection.keep_probability, e, d, 2000) == 0
    # power: probabilities a millionth larger break them
    more = Fraction(1_000_001, 1_000_000)
    assert violations(lambda n: min(Fraction(1), more * selection.keep_probability(n)), e, d, 50) > 0


@pytest.mark.parametrize(("epsilon", "delta"), CASES[:4])
def test_no_rule_keeps_more(epsilon, delta):
    # against the closed form of Desfontaines et al. 2022, Theorem 1
    e, d = float(Fraction(epsilon)), float(Fraction(delta))
    selection = PartitionSelection(epsilon, delta)
    turn = 1 + math.floor(math.log((math.exp(e) + 2 * d - 1) / (d * (math.exp(e) + 1))) / e)
    at_turn = d * math.expm1(turn * e) / math.expm1(e)
    for n in range(1, selection.certain):
        if n <= turn:
            expected = d * math.expm1(n * e) / math.expm1(e)
        else:
            m = n - turn
            expected = -math.expm1(-m * e) * (1 + d / math.expm1(e)) + math.exp(-m * e) * at_turn
        assert float(selection.keep_probability(n)) == pytest.approx(min(1, expected), rel=1e-9)
    assert selection.keep_probability(selection.certain) == 1 == selection.keep_probability(10**9)


def test_second_inequality_left_out_is_caught():
    e, d = Fraction(1), Fraction(1, 10**5)
    growth = exp_down(e)

    def greedy(n):
        p = Fraction(0)
        for _ in range(n):
            p = min(Fraction(1), growth * p + d)
        return p

    assert violations(greedy, e, d, 14) > 0


def test_total_over_several_keys():
    """The product law over κ keys against (ε, δ): exact for κ = 3, all numbers of other units around each step."""
    e, d, keys = Fraction(1), Fraction(1, 100), 3

    def worst(keep) -> float:
        top = 0.0
        growth = float(exp_down(e))
        for others in itertools.combinations_with_replacement(range(12), keys):
            with_unit = [float(keep(n + 1)) for n in others]
            without = [float(keep(n)) for n in others]
            for p_side, q_side in ((with_unit, without), (without, with_unit)):
                gain = 0.0
                for kept in itertools.product((True, False), repeat=keys):
                    p = math.prod(x if k else 1 - x for x, k in zip(p_side, kept, strict=True))
                    q = math.prod(x if k else 1 - x for x, k in zip(q_side, kept, strict=True))
                    gain += max(0.0, p - growth * q)
                top = max(top, gain)
        return top

    assert worst(PartitionSelection(e, d, groups=keys).keep_probability) <= d
    assert worst(PartitionSelection(e / keys, d).keep_probability) > 2 * d  # mutant: δ not split
    assert worst(PartitionSelection(e, d / keys).keep_probability) > d  # mutant: ε not split


def test_threshold_and_loss():
    selection = PartitionSelection(1, "1e-5", groups=4)
    n = selection.threshold(0.95)
    assert selection.keep_probability(n) >= Fraction(19, 20) > selection.keep_probability(n - 1)
    assert selection.threshold(1) == selection.certain
    assert selection.loss() == ApproximateLoss(1, "1e-5")
    assert selection.loss(once(4)) == selection.loss(once(1)) == selection.loss()
    for bad in (
        once(5),
        Sensitivity.l1(1),
        Sensitivity.contribution(groups=1, per_group=2),
        Sensitivity.contribution(groups=1, per_group=1, adjacency=Adjacency.REPLACE),
    ):
        with pytest.raises(InvalidSensitivity):
            selection.loss(bad)
    with pytest.raises(InvalidParameter):
        selection.threshold(0)


def test_bad_input():
    for epsilon, delta, groups in ((0, 0.1, 1), (1, 0, 1), (1, 1, 1), (1, 0.1, 0), (-1, 0.1, 1), (math.nan, 0.1, 1)):
        with pytest.raises(InvalidParameter):
            PartitionSelection(epsilon, delta, groups)
    with pytest.raises(InvalidParameter, match="units to be surely kept"):
        PartitionSelection("1e-9", "1e-9")
    selection = PartitionSelection(1, 0.1)
    for counts in ([-1], [1.5], ["x"], [True], [math.nan]):
        with pytest.raises(InvalidData):
            selection.release(np.array(counts))
        with pytest.raises(InvalidData):
            LaplaceThreshold(1, 5).release(np.array(counts))
    for scale, threshold in ((0, 5), (1, 0), (1, 2.5), (-1, 3)):
        with pytest.raises(InvalidParameter):
            LaplaceThreshold(scale, threshold)
        with pytest.raises(InvalidParameter):
            GaussianThreshold(scale, threshold)


def test_a_million_keys_take_no_step_each(steps_within):
    selection = PartitionSelection(1, "1e-8", groups=4)
    counts = np.arange(10**6) % 150
    selection.release(counts[:10])
    with steps_within(5_000):
        kept = selection.release(counts)
    assert not kept[counts == 0].any()
    assert kept[counts >= selection.certain].all()
    assert selection.release(0) is False
    assert selection.release(10**12) is True
    assert selection.release(counts[:6].reshape(2, 3)).shape == (2, 3)
    assert selection.release(np.array([], dtype=np.int64)).size == 0


def p_value(kept: np.ndarray, probability: float) -> float:
    """Two-sided, exact."""
    return float(stats.binomtest(int(kept.sum()), kept.size, probability).pvalue)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_measured_probability(n):
    # Catches a δ 15 % too large: at π = 0.01 that is 15 standard errors of a million coins, 9 beyond those of α.
    selection = PartitionSelection(1, "1/100")
    other = PartitionSelection(1, "0.0115")
    probability = float(selection.keep_probability(n))
    counts = np.full(10**6, n)
    assert p_value(selection.release(counts, source=SYSTEM), probability) > ALPHA
    assert p_value(other.release(counts, source=SYSTEM), probability) < ALPHA


def test_ties_are_decided_by_the_remaining_bits():
    class Tie(InsecureSeededSource):
        """First words that equal those of π, then ordinary bits."""

        __slots__ = ("word",)

        def u64(self, n):
            return np.full(n, self.word, dtype=np.uint64)

    selection = PartitionSelection(1, "1/3")
    ladder = certified_ladder(Fraction(1), Fraction(1, 3))
    source = Tie(3)
    source.word = ladder.words[1]
    shift = ladder.bits - 64
    rest = (ladder.steps[1] & ((1 << shift) - 1)) / 2**shift
    assert p_value(selection.release(np.ones(20_000, dtype=int), source=source), rest) > ALPHA
    source.word = np.uint64(0)
    assert not selection.release(np.zeros(100, dtype=int), source=source).any()


# --- noisy thresholds ---


@pytest.mark.parametrize(("scale", "threshold"), [("1", 15), ("4", 60), ("1/2", 3), ("10", 1), ("7/3", 2)])
def test_singletons_are_shown_with_the_charged_probability(scale, threshold):
    # the off-by-one of several libraries: the tail starts at τ − 1, not at τ
    mechanism = LaplaceThreshold(scale, threshold)
    q = math.exp(-1 / float(Fraction(scale)))
    z = np.arange(-5000, 5001)
    law = (1 - q) / (1 + q) * q ** np.abs(z)
    exact = float(law[1 + z >= threshold].sum())
    charged = float(mechanism.loss(once(1)).chance)
    assert charged == pytest.approx(exact, rel=1e-9)
    assert charged >= exact * (1 - 1e-12)
    late = float(law[z >= threshold].sum())  # mutant: threshold − 1 in the implementation, or τ in the formula
    assert late < 0.96 * charged


def thresholded(count: int, scale: float, threshold: int, reach: int = 400) -> np.ndarray:
    """The law of one key's output: hidden (last entry), or its noisy count."""
    z = np.arange(-reach, reach + 1)
    q = math.exp(-1 / scale)
    law = (1 - q) / (1 + q) * q ** np.abs(z - count)
    if count == 0:
        law = np.zeros_like(law)
    shown = np.where(z >= threshold, law, 0.0)
    return np.append(shown, 1 - shown.sum())


def hockey_stick(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


@pytest.mark.parametrize("per_key", [1, 3])
def test_threshold_loss_against_the_exact_law_of_one_key(per_key):
    scale, threshold = 2.0, 9
    loss = LaplaceThreshold(2, threshold).loss(Sensitivity.contribution(groups=1, per_group=per_key))
    for epsilon in (0.1, 0.5, 1.0, per_key / scale):
        for others in range(12):
            p, q = thresholded(others + per_key, scale, threshold), thresholded(others, scale, threshold)
            assert hockey_stick(p, q, epsilon) <= loss.delta(epsilon) + 1e-12
            assert hockey_stick(q, p, epsilon) <= loss.delta(epsilon) + 1e-12
    # power: with the threshold one lower the charged chance is exceeded
    p, q = thresholded(per_key, scale, threshold - 1), thresholded(0, scale, threshold - 1)
    assert hockey_stick(p, q, per_key / scale) > loss.delta(per_key / scale) * 1.2


def test_two_keys_by_their_product_law():
    scale, threshold = 2.0, 6
    loss = LaplaceThreshold(2, threshold).loss(once(2))
    one = float(LaplaceThreshold(2, threshold).loss(once(1)).chance)
    assert float(loss.chance) == pytest.approx(1 - (1 - one) ** 2, rel=1e-12)
    for others in itertools.combinations_with_replacement((0, 1, 4, 6), 2):
        p = np.outer(*(thresholded(n + 1, scale, threshold, 120) for n in others))
        q = np.outer(*(thresholded(n, scale, threshold, 120) for n in others))
        for epsilon in (0.2, 0.7, 1.0):
            assert hockey_stick(p, q, epsilon) <= loss.delta(epsilon) + 1e-12
            assert hockey_stick(q, p, epsilon) <= loss.delta(epsilon) + 1e-12
    # mutant: δ of one key charged for two
    p, q = (
        np.outer(*[thresholded(1, scale, threshold, 120)] * 2),
        np.outer(*[thresholded(0, scale, threshold, 120)] * 2),
    )
    assert hockey_stick(p, q, 1.0) > one


def test_hidden_counts_never_leave():
    for mechanism in (LaplaceThreshold(1, 40), GaussianThreshold(1, 40)):
        shown, noisy = mechanism.release(np.array([0, 1, 30, 39, 100, 100]))
        assert shown[4:].all()
        assert not shown[:2].any()
        assert (noisy[~shown] == 0).all()
        assert (noisy[shown] >= 40).all()
        assert mechanism.keep_probability(0) == 0
    # a key that nobody holds isn't shown even at a threshold that noise reaches easily
    assert not LaplaceThreshold(50, 1).release(np.zeros(1000, dtype=int))[0].any()
    assert not GaussianThreshold(50, 1).release(np.zeros(1000, dtype=int))[0].any()


def test_measured_singletons():
    # 10^6 singletons reveal a tail 3 % off
    for mechanism in (LaplaceThreshold(2, 6), GaussianThreshold(2, 5)):
        mutant = type(mechanism)(2, mechanism.threshold - 1)
        probability = mechanism.keep_probability(1)
        ones = np.ones(10**6, dtype=int)
        assert p_value(mechanism.release(ones, source=SYSTEM)[0], probability) > ALPHA
        assert p_value(mutant.release(ones, source=SYSTEM)[0], probability) < ALPHA


def test_for_guarantee_is_met_and_smallest():
    mechanism = LaplaceThreshold.for_guarantee(1, "1e-6", groups=3)
    assert mechanism.scale == 3
    loss = mechanism.loss(once(3))
    assert loss.chance <= Fraction("1e-6") < LaplaceThreshold(3, mechanism.threshold - 1).loss(once(3)).chance
    assert loss.epsilon(1e-6) <= 1
    assert loss.epsilon(loss.chance) == 1.0
    with pytest.raises(InvalidParameter):
        LaplaceThreshold.for_guarantee(1, 0)


def test_given_away_loss():
    base = PureLoss(1)
    loss = GivenAwayLoss(base, Fraction(1, 1000))
    stated = ApproximateLoss(1, "1/1000")
    for epsilon in (-2, -0.5, 0, 0.3, 0.99, 1, 5):
        assert loss.delta(epsilon) == pytest.approx(stated.delta(epsilon), rel=1e-9)
    assert loss.pure() == math.inf
    assert loss.approximate_zcdp() == pytest.approx(stated.approximate_zcdp())
    assert PrivacyLoss.from_json(loss.to_json()) == loss
    assert GivenAwayLoss(base, Fraction(0)).pure() == 1
    assert math.isfinite((3 * loss).epsilon(0.01))
    # more keys cost more
    gaussian = GaussianThreshold(4, 30)
    costs = [gaussian.loss(once(k)).epsilon(1e-6) for k in (1, 2, 8)]
    assert costs == sorted(costs)
    assert gaussian.loss(once(1)).epsilon(1e-6) > 0
    assert gaussian.error() > 0
    assert LaplaceThreshold(1, 3).error() == 3  # 2e^-4/(1 + e^-1) = 0.027


def test_given_away_loss_over_a_composition_is_bracketed():
    """From the chance on no ε is above the base's pure one, 3·1 + 1/2, and at the chance it is just that."""
    chance = Fraction(1, 10**8)
    base = 3 * PureLoss(1) + PureLoss(Fraction(1, 2))
    loss = GivenAwayLoss(base, chance)
    low, high = loss.epsilon_bounds(chance)
    assert high == loss.epsilon(chance) == 3.5
    assert 3.5 - 1e-9 <= low <= 3.5
    # the largest loss has probability top, and the next one is 2.5: above that H(ε) = top·(1 − e^(ε − 3.5))
    top = (math.e / (1 + math.e)) ** 3 * math.exp(0.5) / (1 + math.exp(0.5))
    for delta in ("1.0000001e-8", "1e-7", "1e-5", "1e-3", "0.1"):
        low, high = loss.epsilon_bounds(delta)
        rest = float((Fraction(delta) - chance) / (1 - chance))
        assert low <= 3.5 + math.log1p(-rest / top) <= high == loss.epsilon(delta) <= 3.5
        assert high - low < 2e-3
    assert loss.epsilon_bounds(Fraction(99, 100)) == (0.0, 0.0)
    # a pure loss has the curve (e^p − e^ε)/(1 + e^p), of which ln(e^p − δ·(1 + e^p)) is the inverse
    for delta in ("1e-3", "0.1"):
        rest = float((Fraction(delta) - chance) / (1 - chance))
        exact = math.log(math.e - rest * (1 + math.e))
        low, high = GivenAwayLoss(PureLoss(1), chance).epsilon_bounds(delta)
        assert low - 1e-12 <= exact <= high + 1e-12
        assert high - low < 1e-9
    assert loss.epsilon_bounds("1e-9") == (0.0, math.inf)
    assert GivenAwayLoss(base, Fraction(1)).epsilon(0.5) == math.inf
    for bad in (1, -1):
        with pytest.raises(InvalidParameter, match="delta must be at least 0 and below 1"):
            loss.epsilon(bad)


def test_tiny_deltas_are_reached():
    mechanism = LaplaceThreshold.for_guarantee(1, "1e-78")
    assert 175 < mechanism.threshold < 185
    assert mechanism.loss(once(1)).chance <= Fraction("1e-78")
