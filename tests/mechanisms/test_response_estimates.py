"""What randomised answers say: estimates unbiased by enumeration, intervals that cover by exact summation.

Statistical tests use α = 1e-9 without retries; each states the smallest fault it catches and runs on a mutant.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dither.entropy import InsecureSeededSource, bernoulli_many
from dither.errors import InvalidParameter
from dither.mechanisms import response_estimates as estimates
from dither.mechanisms.kary_response import KaryResponse
from dither.mechanisms.randomized_response import RandomizedResponse
from dither.mechanisms.response_estimates import Target

ALPHA = 1e-9
F = Fraction


def product_law(laws):
    """The exact law over tuples of independent answers."""
    out = {}
    for outcome in itertools.product(*(range(len(law)) for law in laws)):
        out[outcome] = math.prod(law[i] for law, i in zip(laws, outcome, strict=True))
    return out


# ---------------------------------------------------------------------- estimates: unbiased, exact variance


@pytest.mark.parametrize("lie", [F(1, 4), F(1, 10)])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_binary_estimate_by_enumeration(lie, n):
    """Mean and variance over all truths and all lies, in both senses, in fractions."""
    survey, share = RandomizedResponse(lie), F(3, 10)
    first = second = F(0)
    estimated_variance = F(0)
    for truth in itertools.product([0, 1], repeat=n):
        weight = math.prod(share if t else 1 - share for t in truth)
        inner = F(0), F(0)
        for outcome, chance in product_law([survey.probabilities(bool(t)) for t in truth]).items():
            found = survey.estimate(counts=(n - sum(outcome), sum(outcome)))
            value = (F(sum(outcome), n) - lie) / (1 - 2 * lie)
            assert found.value == pytest.approx(float(value), abs=1e-15)
            inner = inner[0] + chance * value, inner[1] + chance * value**2
            estimated_variance += weight * chance * F(found.variance)
        # respondents fixed: unbiased for their own share, and only the lies vary
        assert inner[0] == F(sum(truth), n)
        fixed = inner[1] - inner[0] ** 2
        assert fixed == lie * (1 - lie) / (n * (1 - 2 * lie) ** 2)
        assert float(fixed) == survey.variance(n, F(sum(truth), n), target=Target.RESPONDENTS)
        first, second = first + weight * inner[0], second + weight * inner[1]
    assert first == share
    sampled = second - first**2
    assert sampled == share * (1 - share) / n + lie * (1 - lie) / (n * (1 - 2 * lie) ** 2)
    assert survey.variance(n, share) == float(sampled)
    # mutant: the variance without its sampling term
    assert survey.variance(n, share, target=Target.RESPONDENTS) < float(sampled)
    if n > 1:
        assert float(estimated_variance) == pytest.approx(float(sampled), rel=1e-12)
    assert survey.variance(n) >= survey.variance(n, share)


@pytest.mark.parametrize("k", [3, 4])
def test_kary_estimate_by_enumeration(k):
    n, shares = 2, [F(1, 2), F(1, 3), F(1, 6), F(0)][:k]
    response = KaryResponse(k, F(3, 5))
    gap = response.keep - response.other
    mean = [F(0)] * k
    product = [[F(0)] * k for _ in range(k)]
    variances = np.zeros(k)
    for truth in itertools.product(range(k), repeat=n):
        weight = math.prod(shares[t] for t in truth)
        inner_mean = [F(0)] * k
        inner = [[F(0)] * k for _ in range(k)]
        for outcome, chance in product_law([response.probabilities(t) for t in truth]).items():
            values = [(F(outcome.count(j), n) - response.other) / gap for j in range(k)]
            assert sum(values) == 1
            found = response.estimate(np.array(outcome))
            assert np.allclose(found.values, [float(v) for v in values], atol=1e-15)
            variances += float(weight * chance) * found.variances
            for i in range(k):
                inner_mean[i] += chance * values[i]
                for j in range(k):
                    inner[i][j] += chance * values[i] * values[j]
        own = [F(truth.count(j), n) for j in range(k)]
        assert inner_mean == own
        fixed = [[float(inner[i][j] - own[i] * own[j]) for j in range(k)] for i in range(k)]
        assert np.allclose(response.covariance(n, own, target=Target.RESPONDENTS), fixed, rtol=1e-13, atol=1e-15)
        for i in range(k):
            mean[i] += weight * inner_mean[i]
            for j in range(k):
                product[i][j] += weight * inner[i][j]
    assert mean == shares
    sampled = [[float(product[i][j] - mean[i] * mean[j]) for j in range(k)] for i in range(k)]
    assert np.allclose(response.covariance(n, shares), sampled, rtol=1e-13, atol=1e-15)
    assert np.allclose(variances, np.diag(sampled), rtol=1e-12)
    assert response.variance(n) >= max(np.diag(sampled)) - 1e-15
    for target in Target:
        assert response.variance(n, target=target) == pytest.approx(
            max(response.variance(n, F(s, 200), target=target) for s in range(201)), rel=1e-3
        )


def test_estimates_refuse_what_carries_no_information():
    for survey in (RandomizedResponse("1/2"), KaryResponse(2, "1/2")):
        assert survey.loss().pure() == 0
        for call in (lambda s: s.estimate(counts=(1, 1)), lambda s: s.error(n=10), lambda s: s.variance(10)):
            with pytest.raises(InvalidParameter, match="independent of the truth"):
                call(survey)
    survey = RandomizedResponse("1/4")
    wrongs = [{}, {"counts": (0, 0)}, {"counts": (1, -1)}, {"counts": (1, 2, 3)}, {"counts": (1, 1), "confidence": 1}]
    for wrong in [*wrongs, {"answers": [0, 2]}, {"answers": [0.5]}, {"answers": [1], "counts": (0, 1)}]:
        with pytest.raises(InvalidParameter):
            survey.estimate(**wrong)
    with pytest.raises(InvalidParameter):
        KaryResponse(3, "1/2").covariance(5, ["1/2", "1/2", "1/2"])


def test_clipping_is_an_option():
    survey = RandomizedResponse("1/4")
    raw = survey.estimate(counts=(90, 10))
    assert raw.value < 0
    clipped = survey.estimate(counts=(90, 10), clip=True)
    assert clipped.value == 0
    assert 0 <= clipped.interval[0] <= clipped.interval[1] <= 1
    assert survey.estimate(np.array([True] * 10 + [False] * 90)) == raw
    assert survey.estimate(counts=(90, 10), confidence="19/20") == raw


# ---------------------------------------------------------------------- intervals: coverage, computed exactly


def exact_tail_law(trues, n, hit, miss):
    """The law of the number of reports by exact convolution."""

    def binomial(m, p):
        return [math.comb(m, i) * p**i * (1 - p) ** (m - i) for i in range(m + 1)]

    a, b = binomial(trues, hit), binomial(n - trues, miss)
    law = [F(0)] * (n + 1)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            law[i + j] += x * y
    return law


@pytest.mark.parametrize(("hit", "miss"), [(F(3, 4), F(1, 4)), (F(1, 2), F(1, 10)), (F(99, 100), F(1, 100))])
def test_tails_of_two_binomials(hit, miss):
    n = 14
    for trues in (0, 3, 14):
        law = exact_tail_law(trues, n, hit, miss)
        for count in range(n + 1):
            tail, exact = estimates.at_most(count, trues, n, hit, miss), float(sum(law[: count + 1]))
            assert exact <= tail * (1 + 1e-13)
            assert tail == pytest.approx(exact, rel=3e-8, abs=1e-25)


def test_tails_with_many_respondents_against_the_normal_law():
    hit, miss, n, trues = F(3, 4), F(1, 4), 10**7, 3 * 10**6
    mean, deviation = float(trues * hit + (n - trues) * miss), math.sqrt(n * 3 / 16)
    for z in (-3.0, 0.0, 2.0):
        tail = estimates.at_most(round(mean + z * deviation), trues, n, hit, miss)
        assert tail == pytest.approx(stats.norm.cdf(z), rel=5e-3)


@pytest.mark.parametrize("confidence", [0.95, 0.6])
@pytest.mark.parametrize(("hit", "miss"), [(F(3, 4), F(1, 4)), (F(1, 2), F(1, 10)), (F(95, 100), F(5, 100))])
def test_intervals_cover_for_every_truth(hit, miss, confidence):
    """Coverage summed over all outcomes: no simulation. Half as wide an interval falls short."""
    n = 25
    for target in Target:
        ends = [estimates.interval(s, n, hit, miss, 1 - confidence, target) for s in range(n + 1)]
        halved = [((3 * a + b) / 4, (a + 3 * b) / 4) for a, b in ends]
        worst, worst_halved = 1.0, 1.0
        for step in range(n + 1) if target is Target.RESPONDENTS else range(201):
            if target is Target.RESPONDENTS:
                share, law = step / n, [float(x) for x in exact_tail_law(step, n, hit, miss)]
            else:
                share = step / 200
                law = stats.binom.pmf(range(n + 1), n, float(miss) + float(hit - miss) * share)

            def coverage(intervals, share=share, law=law):
                return sum(p for p, (a, b) in zip(law, intervals, strict=True) if a - 1e-12 <= share <= b + 1e-12)

            worst, worst_halved = min(worst, coverage(ends)), min(worst_halved, coverage(halved))
        assert worst >= confidence - 1e-9
        assert worst_halved < confidence


def test_only_lies_give_a_narrower_interval_than_lies_and_sampling():
    survey = RandomizedResponse("1/20")
    sampled = survey.estimate(counts=(500, 500)).interval
    fixed = survey.estimate(counts=(500, 500), target=Target.RESPONDENTS).interval
    assert sampled[0] < fixed[0] < 0.5 < fixed[1] < sampled[1]
    # normal approximation of both, from the variance formulas
    for ends, target in ((sampled, Target.POPULATION), (fixed, Target.RESPONDENTS)):
        assert ends[1] - ends[0] == pytest.approx(2 * 1.96 * math.sqrt(survey.variance(1000, target=target)), rel=0.05)


def test_intervals_cover_in_simulation():
    """2,000 surveys of 400 people. Catches a coverage of 92 % instead of 95 %; half the width covers about 67 %."""
    survey, source, runs, n, share = RandomizedResponse("1/4"), InsecureSeededSource(23), 2_000, 400, F(3, 10)
    truth = bernoulli_many(share, runs * n, source).reshape(runs, n)
    yes = survey.release(truth, source=source).sum(axis=1)
    hits = halved = respondents = 0
    for i, count in enumerate(yes):
        found = survey.estimate(counts=(n - int(count), int(count)))
        low, high = found.interval
        hits += low <= share <= high
        halved += (3 * low + high) / 4 <= share <= (low + 3 * high) / 4
        if i < 300:
            low, high = survey.estimate(counts=(n - int(count), int(count)), target=Target.RESPONDENTS).interval
            respondents += low <= truth[i].mean() <= high
    assert stats.binomtest(hits, runs, 0.95, alternative="less").pvalue > ALPHA
    assert stats.binomtest(respondents, 300, 0.95, alternative="less").pvalue > ALPHA
    assert stats.binomtest(halved, runs, 0.95, alternative="less").pvalue < ALPHA


def test_simultaneous_intervals_cover_in_simulation():
    """1,000 surveys of 500 people and 4 categories; intervals of the same counts at half the width fall short."""
    response, source, runs, n = KaryResponse(4, "3/5"), InsecureSeededSource(29), 1_000, 500
    shares = np.array([0.1, 0.2, 0.3, 0.4])
    truth = np.repeat(np.arange(4), (shares * n).astype(int))
    hits = halved = 0
    for i in range(runs):
        target = Target.RESPONDENTS if i % 10 == 0 else Target.POPULATION
        ends = response.estimate(response.release(truth, source=source), target=target).intervals
        middle, half = ends.mean(axis=1), (ends[:, 1] - ends[:, 0]) / 2
        hits += bool((np.abs(shares - middle) <= half + 1e-12).all())
        halved += bool((np.abs(shares - middle) <= half / 2).all())
    assert stats.binomtest(hits, runs, 0.95, alternative="less").pvalue > ALPHA
    assert stats.binomtest(halved, runs, 0.95, alternative="less").pvalue < ALPHA


def test_large_counts_take_the_quick_interval_which_contains_the_exact_one():
    hit, miss = F(3, 4), F(1, 4)
    n = 100_000
    exact = estimates.respondents_interval(40_000, n, hit, miss, 0.05)
    error = estimates.worst_error(n, hit, miss, 0.05, Target.RESPONDENTS)
    assert 0.3 - error < exact[0] < exact[1] < 0.3 + error
    found = RandomizedResponse("1/4").estimate(counts=(6 * 10**8, 4 * 10**8), target=Target.RESPONDENTS)
    assert found.interval[0] < 0.3 < found.interval[1]
    assert found.interval[1] - found.interval[0] < 2e-4


# ---------------------------------------------------------------------- error predicted before any data


@pytest.mark.parametrize(("hit", "miss"), [(F(3, 4), F(1, 4)), (F(1, 3), F(1, 20)), (F(9, 10), F(1, 10))])
@pytest.mark.parametrize("failure", [0.05, 0.3])
def test_predicted_error_holds_for_every_truth(hit, miss, failure):
    n, gap = 30, float(hit - miss)
    for target in Target:
        error = estimates.worst_error(n, hit, miss, failure, target)
        tightest = 0.0
        for step in range(n + 1):
            share = step / n
            if target is Target.RESPONDENTS:
                law = np.array([float(x) for x in exact_tail_law(step, n, hit, miss)])
            else:
                law = stats.binom.pmf(np.arange(n + 1), n, float(miss) + gap * share)
            off = np.abs((np.arange(n + 1) / n - float(miss)) / gap - share)
            assert law[off > error].sum() <= failure
            tightest = max(tightest, law[off > 0.45 * error].sum())
        assert tightest > failure  # so small a part of it would not do


def test_constructors_from_accuracy_meet_it_and_no_more():
    for n, error in ((1_000, 0.1), (10_000, 0.02)):
        survey = RandomizedResponse.for_error(error, n)
        assert error * (1 - 1e-6) <= survey.error(n=n) <= error
        response = KaryResponse.for_error(4, error, n, confidence=0.9)
        assert response.error(0.9, n=n) <= error
    with pytest.raises(InvalidParameter, match="answers or more are needed"):
        RandomizedResponse.for_error(0.01, 100)
    assert RandomizedResponse("1/4").error(n=400, target=Target.RESPONDENTS) < RandomizedResponse("1/4").error(n=400)
