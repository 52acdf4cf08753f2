"""Subsampling: amplification against exact laws, the textbook's mistake, and samples that stay inside."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dither.entropy import SYSTEM
from dither.errors import IncompatibleLosses, InvalidData, InvalidParameter
from dither.mechanisms.gaussian import Gaussian
from dither.mechanisms.laplace import DiscreteLaplace, Laplace
from dither.mechanisms.subsampled import Subsampled, SubsampledWithoutReplacement
from dither.privacy import Adjacency, Sensitivity, poisson

ALPHA = 1e-9
ONE = Sensitivity.l1(1)
REPLACE = Sensitivity.l1(1, adjacency=Adjacency.REPLACE)
REACH = 300
Y = np.arange(-REACH, REACH + 1)


def around(answer: int, scale: float) -> np.ndarray:
    q = math.exp(-1 / scale)
    return (1 - q) / (1 + q) * q ** np.abs(Y - answer)


def hockey_stick(p, q, epsilon) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def poisson_law(rows, rate, scale) -> np.ndarray:
    """The exact law of a noisy count over a Poisson sample, by all subsets."""
    total = np.zeros(Y.size)
    for mask in itertools.product((0, 1), repeat=len(rows)):
        weight = math.prod(rate if m else 1 - rate for m in mask)
        total += weight * around(sum(r for r, m in zip(rows, mask, strict=True) if m), scale)
    return total


def fixed_law(rows, sample, scale) -> np.ndarray:
    chosen = list(itertools.combinations(rows, sample))
    return sum(around(sum(c), scale) for c in chosen) / len(chosen)


@pytest.mark.parametrize("rate", ["1/10", "1/2", "9/10"])
@pytest.mark.parametrize("scale", ["1/2", "2"])
def test_poisson_loss_against_all_small_databases(rate, scale):
    q, b = float(Fraction(rate)), float(Fraction(scale))
    loss = Subsampled(DiscreteLaplace(scale), rate).loss(ONE)
    pure = math.log1p(q * math.expm1(1 / b))
    assert loss.pure() == pytest.approx(pure)
    attained = 0.0
    for n in range(4):
        for rows in itertools.product((0, 1), repeat=n):
            p, without = poisson_law((*rows, 1), q, b), poisson_law(rows, q, b)
            for epsilon in (0.0, 0.1, 0.5 * pure, pure):
                for first, second in ((p, without), (without, p)):
                    assert hockey_stick(first, second, epsilon) <= loss.delta(epsilon) + 1e-12
            attained = max(attained, hockey_stick(p, without, 0.5 * pure))
    # tight: some pair attains the curve; and the mutant qε is exceeded
    assert attained == pytest.approx(loss.delta(0.5 * pure), rel=1e-6)
    assert q * (1 / b) < 0.999 * pure
    assert hockey_stick(poisson_law((1,), q, b), poisson_law((), q, b), q / b) > 1e-4


def test_fixed_size_against_all_small_databases():
    scale, population, sample = 1.0, 4, 2
    mechanism = Subsampled.without_replacement(DiscreteLaplace(1), sample=sample, population=population)
    loss = mechanism.loss(REPLACE)
    assert mechanism.rate == Fraction(1, 2)
    assert loss.pure() == pytest.approx(math.log1p(0.5 * math.expm1(1)))
    for rows in itertools.product((0, 1), repeat=population - 1):
        p, q = fixed_law((*rows, 1), sample, scale), fixed_law((*rows, 0), sample, scale)
        for epsilon in (0.0, 0.2, 0.4, loss.pure()):
            assert hockey_stick(p, q, epsilon) <= loss.delta(epsilon) + 1e-12
            assert hockey_stick(q, p, epsilon) <= loss.delta(epsilon) + 1e-12


def test_delta_is_multiplied_by_the_rate():
    # (ε, δ) becomes (ln(1 + q(e^ε − 1)), qδ)
    gaussian, rate = Gaussian(2), 0.05
    base, sampled = gaussian.loss(Sensitivity.l2(1)), Subsampled(gaussian, rate).loss(Sensitivity.l2(1))
    for epsilon in (0.5, 1.0, 2.0, 3.0):
        amplified = math.log1p(rate * math.expm1(epsilon))
        assert sampled.delta(amplified) == pytest.approx(rate * base.delta(epsilon), rel=1e-6)


def test_textbook_composition_is_wrong():
    """'DP-SGD with T steps is (qTε, qTδ)': each step costs more than qε, for large ε far more."""
    rate = Fraction(1, 100)
    # one step, exactly: at qε the curve is far above qδ
    gaussian = Gaussian("0.4")
    base = gaussian.loss(Sensitivity.l2(1))
    delta = 1e-5
    epsilon = base.epsilon(delta)
    assert epsilon > 8
    step = poisson(base, rate)
    assert step.delta(float(rate) * epsilon) > 100 * float(rate) * delta
    # ten steps, by exact accounting from below
    steps = 10
    low, high = (steps * step).epsilon_bounds(steps * float(rate) * delta)
    assert low > 2 * steps * float(rate) * epsilon
    assert low <= high
    # for a small ε it is nearly right
    small = poisson(Laplace(100).loss(ONE), rate)
    assert small.pure() == pytest.approx(float(rate) * 0.01, rel=0.01)
    assert small.pure() > float(rate) * 0.01


def test_adjacency_is_checked():
    with pytest.raises(IncompatibleLosses, match="Poisson"):
        Subsampled(Laplace(1), 0.1).loss(REPLACE)
    with pytest.raises(IncompatibleLosses, match="without replacement"):
        Subsampled.without_replacement(Laplace(1), sample=1, population=10).loss(ONE)
    assert Subsampled(Laplace(1), 1).loss(ONE) == Laplace(1).loss(ONE)


def test_bad_input():
    for rate in (0, -0.1, 1.1, math.nan, "x"):
        with pytest.raises(InvalidParameter):
            Subsampled(Laplace(1), rate)
    for sample, population in ((0, 5), (6, 5), (1.5, 5), (1, 0)):
        with pytest.raises(InvalidParameter):
            SubsampledWithoutReplacement(Laplace(1), sample, population)
    fixed = SubsampledWithoutReplacement(Laplace(1), 2, 5)
    seen = []
    for rows in ([1, 2, 3], np.arange(6)):
        with pytest.raises(InvalidData, match="population"):
            fixed.release(rows, seen.append)
    with pytest.raises(InvalidData, match="array or a sequence"):
        Subsampled(Laplace(1), 0.5).release(7, seen.append)
    assert seen == []


def test_samples_are_fresh_and_exact():
    # who takes part: each of 20 rows in 20,000 samples; a rate 10 % off or a reused sample is caught
    rows, n = np.arange(20), 20_000
    seen: list[np.ndarray] = []

    def query(sample):
        seen.append(sample)
        return 0

    mechanism = Subsampled(DiscreteLaplace(1), "1/3")
    for _ in range(n):
        mechanism.release(rows, query)
    member = np.zeros((n, 20), dtype=bool)
    for i, sample in enumerate(seen):
        member[i, sample] = True

    def p_value(counts, rate):
        expected = np.array([1 - rate, rate]) * n
        statistic = sum(
            (((n - c) - expected[0]) ** 2 / expected[0] + (c - expected[1]) ** 2 / expected[1]) for c in counts
        )
        return float(stats.chi2.sf(statistic, len(counts)))

    assert p_value(member.sum(axis=0), 1 / 3) > ALPHA
    assert p_value(member.sum(axis=0), 0.3) < ALPHA
    # sizes are binomial: a fixed size charged as Poisson would show
    sizes = member.sum(axis=1)
    assert sizes.var() == pytest.approx(20 * 2 / 9, rel=0.1)
    # successive samples are independent
    repeats = (member[1:] == member[:-1]).all(axis=1).sum()
    assert repeats < 100


def test_fixed_samples_have_their_size_and_order():
    fixed = SubsampledWithoutReplacement(DiscreteLaplace("1/50"), 3, 6)
    members, mutant = np.zeros(6), np.zeros(6)
    for i in range(6000):
        drawn = []
        fixed.release(list(range(6)), lambda sample, drawn=drawn: drawn.extend(sample) or len(sample))
        members[drawn] += 1
        # Catches one sample in five that is the first rows.
        mutant[drawn if i % 5 else [0, 1, 2]] += 1
    assert members.sum() == 3 * 6000
    assert stats.chisquare(members).pvalue > ALPHA
    assert stats.chisquare(mutant).pvalue < ALPHA
    seen = []
    fixed.release(np.arange(6) * 10, lambda sample: seen.append(sample) or 0)
    assert seen[0].tolist() == sorted(seen[0].tolist())


def test_only_the_noisy_answer_leaves():
    answer = Subsampled(DiscreteLaplace(2), 0.5).release([1, 2, 3], lambda sample: sum(sample), source=SYSTEM)
    assert isinstance(answer, int)
    assert isinstance(Subsampled(Laplace(2), 0.5).release(np.ones(5), lambda sample: sample.sum()), float)


def test_scaled_error_covers():
    rows, rate, confidence, n = np.ones(400), Fraction(1, 4), 0.9, 3000
    mechanism = Subsampled(Laplace(3), rate)
    error = mechanism.scaled_error(confidence, bound=1, rows=rows.size)
    assert error > mechanism.error(confidence) / float(rate)
    estimates = np.array([mechanism.release(rows, np.sum) for _ in range(n)]) / float(rate)
    wrong = (np.abs(estimates - rows.size) > error).sum()
    limit = stats.binom.isf(ALPHA, n, 1 - confidence)
    assert wrong <= limit
    # power: the noise alone, unscaled, doesn't cover
    assert (np.abs(estimates - rows.size) > mechanism.error(confidence)).sum() > limit
    assert Subsampled(Laplace(3), 1).scaled_error(confidence, bound=1, rows=400) < 3 * math.log(20) * 1.01
