"""Discrete Laplace and Gaussian draws against their closed forms, at every scale and stage."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dither.entropy import (
    DiscreteGaussianSampler,
    DiscreteLaplaceSampler,
    InsecureSeededSource,
    gaussian_sampler,
    laplace_sampler,
)
from dither.entropy.blocks import ALIKE, FAST, IntegerSampler, LazyTable, Resolution
from dither.errors import InvalidParameter
from support.sizes import at_night

SCALES = ["0.3", "1", "3.7", "20", "300", "777.25", "5000", "1e6", str(2**50), str(2**56)]
TINY_WORDS = Resolution(first=6, second=9)
ALWAYS_EXACT = Resolution(doubt=1.0)
FAMILIES = ["laplace", "gaussian"]


def sampler(family: str, scale: Fraction, resolution: Resolution = FAST) -> IntegerSampler:
    if family == "laplace":
        return DiscreteLaplaceSampler(scale, resolution)
    return DiscreteGaussianSampler(scale**2, resolution)


def cdf(statistics, family: str, scale: Fraction):
    make = statistics.laplace_cdf if family == "laplace" else statistics.gaussian_cdf
    return make(float(scale))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("scale", [Fraction(scale) for scale in SCALES], ids=SCALES)
def test_draws_have_the_stated_law(statistics, family, scale):
    # Catches a scale that is 3 % too small, the smallest fault with power 1 - 1e-9 at scale 0.3; at
    # larger scales a million draws reveal 1.5 %.
    n = 2_000_000 if scale < 1 else 1_000_000
    law = cdf(statistics, family, scale)
    assert statistics.fit(sampler(family, scale).sample(n), law, float(scale)) > statistics.alpha
    mutant = sampler(family, scale * Fraction(97, 100)).sample(n)
    assert statistics.fit(mutant, law, float(scale)) < statistics.alpha


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("scale", [Fraction(scale) for scale in SCALES], ids=SCALES)
def test_few_draws_have_the_stated_law(statistics, family, scale):
    # What few draws are made by. Catches a scale 5 % off, and accepting all that is proposed.
    n, law = 250_000, cdf(statistics, family, scale)
    drawn = sampler(family, scale, ALIKE)
    assert statistics.fit(drawn.sample(n), law, float(scale)) > statistics.alpha
    mutant = sampler(family, scale * Fraction(95, 100), ALIKE).sample(n)
    assert statistics.fit(mutant, law, float(scale)) < statistics.alpha


@pytest.mark.parametrize("family", FAMILIES)
def test_offsets_within_wide_blocks_fall_as_the_law_does(statistics, family, monkeypatch):
    # Without the acceptance step they are uniform instead of tilted by a few per cent.
    scale = 2**20 + 1
    drawer = sampler(family, Fraction(scale), ALIKE)
    width = 1 << drawer._shift
    ends = np.arange(1000)[:, None] * width + np.arange(9) * (width // 8)
    above = np.exp(-ends / scale) if family == "laplace" else stats.norm.sf(ends / scale)
    weights = -np.diff(above, axis=1).sum(axis=0)

    def p_value() -> float:
        x = drawer.sample(2_000_000)
        offsets = (x ^ (x >> 63)) & (width - 1)
        return statistics.chi_square(np.bincount(offsets // (width // 8), minlength=8), weights / weights.sum())

    assert p_value() > statistics.alpha
    monkeypatch.setattr(IntegerSampler, "_accept", lambda self, x, coins, source: coins == coins)
    assert p_value() < statistics.alpha


@pytest.mark.parametrize("family", FAMILIES)
def test_the_number_of_draws_alone_decides_how_they_are_made(family):
    # draws from a source don't depend on what was drawn before, from this sampler or by anybody
    scale = Fraction(1234, 3)
    used = sampler(family, scale)
    used.sample(10_000)
    for n in (1, 3, 64, 65, 500):
        fresh = sampler(family, scale)
        assert (fresh.sample(n, InsecureSeededSource(n)) == used.sample(n, InsecureSeededSource(n))).all()
    few = sampler(family, scale, ALIKE)
    assert (few.sample(64, InsecureSeededSource(1)) == used.sample(64, InsecureSeededSource(1))).all()
    assert (few.sample(65, InsecureSeededSource(1)) != used.sample(65, InsecureSeededSource(1))).any()


class Counting(InsecureSeededSource):
    """Notes which words were asked for."""

    def __init__(self, seed):
        super().__init__(seed)
        self.asked = []

    def fill(self, nbytes):
        self.asked.append(nbytes)
        return super().fill(nbytes)


def steps(family, scale, words, n=20_000):
    """For each of n single draws: how far out it lies, and what was read to make it."""
    drawer, source, out, found = sampler(family, Fraction(scale), words), Counting(7), np.empty(1, np.int64), []
    for _ in range(n):
        source.asked.clear()
        drawer._fill(out, source)
        found.append((abs(int(out[0])), tuple(source.asked)))
    return found


@pytest.mark.parametrize(
    ("family", "scale"),
    [
        ("gaussian", "3"),
        ("laplace", "3"),
        pytest.param("laplace", "1000", marks=at_night),
        pytest.param("gaussian", "1000", marks=at_night),
    ],
)
def test_few_draws_take_the_same_steps_whatever_they_are(statistics, family, scale):
    # C4: the time of a draw must not tell its value. What is read says which steps were taken; only the number of
    # tries may vary, and must not depend on the value. The mutant has a first stage: it reads on for rare values.
    found = steps(family, scale, ALIKE)
    shortest = min((read for _, read in found), key=len)
    tries = [len(read) // len(shortest) for _, read in found]
    assert all(read == shortest * k for (_, read), k in zip(found, tries, strict=True))
    assert max(tries) <= (1 if scale == "3" else 12)
    once, more = (
        [size for (size, _), k in zip(found, tries, strict=True) if (k == 1) is alone] for alone in (True, False)
    )
    if more:
        assert stats.ks_2samp(once, more).pvalue > statistics.alpha
    others = steps(family, scale, Resolution(first=10))
    common = Counter(read for _, read in others).most_common(1)[0][0]
    quick, slow = ([size for size, read in others if (read == common) is same] for same in (True, False))
    assert stats.ks_2samp(quick, slow).pvalue < statistics.alpha


@pytest.mark.parametrize("family", FAMILIES)
def test_few_draws_at_a_time_have_the_stated_law(statistics, family):
    # Catches a scale 10 % off.
    law = cdf(statistics, family, Fraction(300))
    for scale, right in ((300, True), (270, False)):
        drawer = sampler(family, Fraction(scale))
        # a wrong scale shows alike however few are drawn at a time
        drawn = np.concatenate([drawer.sample(3) for _ in range(20_000)]) if right else drawer.sample(60_000)
        p = statistics.fit(drawn, law, 300.0, bins=100)
        if right:
            assert p > statistics.alpha
        else:
            assert p < statistics.alpha


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("scale", "n"),
    [
        ("0.3", 40_000),
        ("1", 40_000),
        ("3.7", 20_000),
        ("20", 6_000),
        pytest.param("300", 1_500, marks=at_night),
    ],
)
def test_tiny_words_force_every_stage(statistics, family, scale, n):
    # 9 bits leave most thresholds to stage 3. The word size must not show in the law. Catches a
    # scale half of what it should be; the mutant of the next test is the finer one.
    exact = Fraction(scale)
    law = cdf(statistics, family, exact)
    drawn = sampler(family, exact, TINY_WORDS).sample(n)
    assert statistics.fit(drawn, law, float(exact)) > statistics.alpha
    mutant = sampler(family, exact / 2, TINY_WORDS).sample(n)
    assert statistics.fit(mutant, law, float(exact)) < statistics.alpha


@pytest.mark.parametrize("family", FAMILIES)
def test_rounding_thresholds_to_a_word_would_show(statistics, family, monkeypatch):
    # The mutant answers from the rounded thresholds instead of reading on: a law rounded to 2^-7,
    # which is what a table without stage 3 draws from.
    words = Resolution(first=4, second=7)
    law = cdf(statistics, family, Fraction(37, 10))
    exact = sampler(family, Fraction(37, 10), words)
    assert statistics.fit(exact.sample(40_000), law, 3.7) > statistics.alpha

    def rounded(self, u, source):
        stages = self._stages
        return int(stages.codes[max(0, np.searchsorted(stages.floors, u, side="right") - 2)])

    monkeypatch.setattr(LazyTable, "_decide", rounded)
    assert statistics.fit(exact.sample(40_000), law, 3.7) < statistics.alpha


@pytest.mark.parametrize("family", FAMILIES)
def test_acceptance_decided_by_integers_alone(statistics, family):
    # Every suspect goes to less_than_exp. Catches a scale 5 % too small.
    law = cdf(statistics, family, Fraction(300))
    drawn = sampler(family, Fraction(300), ALWAYS_EXACT).sample(250_000)
    assert statistics.fit(drawn, law, 300.0, bins=100) > statistics.alpha
    mutant = sampler(family, Fraction(285), ALWAYS_EXACT).sample(250_000)
    assert statistics.fit(mutant, law, 300.0, bins=100) < statistics.alpha


@pytest.mark.parametrize("family", FAMILIES)
def test_offsets_within_blocks_fall_as_the_law_does(statistics, family, monkeypatch):
    # The finest feature of the block regime: without the acceptance step, offsets within a block
    # are uniform instead of tilted by 1/64. It takes 24 million draws to see that for sure.
    n, width = 8_000_000, 1 << 14
    if family == "laplace":
        drawer: IntegerSampler = DiscreteLaplaceSampler(Fraction(2**20))
        ends = np.arange(9) * (width // 8)
        weights = np.diff(-np.exp(-ends / 2**20))
    else:
        sigma = 2**20 + 1
        drawer = DiscreteGaussianSampler(Fraction(sigma) ** 2)
        ends = np.arange(9) * (width // 8)
        blocks = np.arange(1000)[:, None] * width
        weights = np.diff(stats.norm.cdf((blocks + ends) / sigma), axis=1).sum(axis=0)
    assert drawer._shift == 14

    def p_value() -> float:
        cells = np.zeros(8, np.int64)
        for _ in range(3):
            x = drawer.sample(n)
            distance = x ^ (x >> 63)
            cells += np.bincount((distance & (width - 1)) >> 11, minlength=8)
        return statistics.chi_square(cells, weights / weights.sum())

    assert p_value() > statistics.alpha
    monkeypatch.setattr(IntegerSampler, "_accept", lambda self, x, coins, source: coins == coins)
    assert p_value() < statistics.alpha


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("scale", [10**6, 2**50])
def test_low_bits_are_even(statistics, family, scale):
    # Catches a low bit that is cleared in 2 % of draws, a deviation of 28 standard errors.
    x = sampler(family, Fraction(scale)).sample(2_000_000)
    assert _low_bits(statistics, x) > statistics.alpha
    x[::50] &= ~np.int64(1)
    assert _low_bits(statistics, x) < statistics.alpha


def _low_bits(statistics, x):
    return statistics.chi_square(np.bincount(x & 7, minlength=8), np.full(8, 1 / 8))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("scale", ["3.7", "1e6"])
def test_draws_are_independent(statistics, family, scale):
    # Catches one draw in twenty used twice in a row.
    x = sampler(family, Fraction(scale)).sample(1_000_000)
    assert statistics.pairs(x) > statistics.alpha
    x[1::40] = x[0::40]
    assert statistics.pairs(x) < statistics.alpha


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("scale", ["20", "777.25", "1e6"])
def test_moments(statistics, family, scale):
    # 6.1 standard errors are 1e-9. Catches a mean off by 2 % of the scale, a variance off by 2 %.
    exact, n = Fraction(scale), 2_000_000
    kurtosis = 6 if family == "laplace" else 3
    variance = (2 if family == "laplace" else 1) * float(exact) ** 2
    bound = stats.norm.isf(statistics.alpha / 2)

    def deviations(x):
        mean_z = abs(x.mean()) / np.sqrt(variance / n)
        square_z = abs(np.mean(x * x) / variance - 1) / np.sqrt((kurtosis - 1) / n)
        return mean_z, square_z

    x = sampler(family, exact).sample(n).astype(float)
    # Discrete minus continuous variance is 1/6 of a unit for Laplace: far below the error here.
    assert max(deviations(x)) < bound
    assert deviations(x + 0.02 * float(exact))[0] > bound
    assert deviations(x * 0.99)[1] > bound


@pytest.mark.parametrize("scale", ["20", "1e6"])
def test_laplace_tail_beyond_the_table(statistics, scale):
    # The table ends after 11 scales; 70 of 4 million draws lie beyond 11. A table that forgets to
    # move the tail outwards draws none.
    exact, n = Fraction(scale), 4_000_000
    edge = int(11 * exact)
    beyond = 1 - np.diff(statistics.laplace_cdf(float(exact))(np.array([-edge - 1, edge])))[0]

    def p_value(draws):
        return stats.binomtest(int((np.abs(draws) > edge).sum()), n, beyond).pvalue

    x = sampler("laplace", exact).sample(n)
    assert p_value(x) > statistics.alpha
    assert p_value(np.clip(x, -edge, edge)) < statistics.alpha


def test_gaussian_tail(statistics):
    # P(|x| > 4.5 sigma) is 6.8e-6: 41 of six million. Catches a law that was cut off at 4.5 sigma.
    n = 6_000_000
    beyond = 2 * stats.norm.sf(4.5)
    x = sampler("gaussian", Fraction(10**6)).sample(n)
    count = int((np.abs(x) > 4_500_000).sum())
    assert stats.binomtest(count, n, beyond).pvalue > statistics.alpha
    assert stats.binomtest(0, n, beyond).pvalue < statistics.alpha


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("scale", ["1", "20"])
def test_symmetric_about_zero(statistics, family, scale):
    # Catches the classic fault of a sign drawn beside the size, which moves every negative draw
    # by one: at scale 20 that takes 1/40 of the mass from one side.
    x = sampler(family, Fraction(scale)).sample(4_000_000)

    def p_value(draws):
        positive, negative = int((draws > 0).sum()), int((draws < 0).sum())
        return stats.binomtest(positive, positive + negative).pvalue

    assert p_value(x) > statistics.alpha
    assert p_value(x + (x < 0)) < statistics.alpha


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("scale", ["1/1000", "1/1000000"])
def test_tiny_scales_are_nearly_always_zero(family, scale):
    # e^-1000 is below 2^-1400; any other value would be a fault.
    drawer = sampler(family, Fraction(scale))
    assert not drawer.sample(1_000_000).any()
    assert not sampler(family, Fraction(scale), TINY_WORDS).sample(5_000).any()
    assert drawer.one() == 0


def test_small_scale_has_the_right_rate_of_ones(statistics):
    # scale 0.1: P(x != 0) = 2q/(1+q) with q = e^-10, 9.08e-5: 363 of 4 million. Catches 60 % less.
    x = sampler("laplace", Fraction(1, 10)).sample(4_000_000)
    q = np.exp(-10.0)
    hits = int((x != 0).sum())
    assert stats.binomtest(hits, x.size, 2 * q / (1 + q)).pvalue > statistics.alpha
    assert stats.binomtest(int(hits * 0.4), x.size, 2 * q / (1 + q)).pvalue < statistics.alpha


@pytest.mark.parametrize("family", FAMILIES)
def test_into_fills_any_shape_and_refuses_other_arrays(family):
    drawer = sampler(family, Fraction(10**6))
    out = np.zeros((30, 70_000 // 30), np.int64)
    drawer.into(out)
    assert (out != 0).mean() > 0.99
    for wrong in (np.zeros(4, np.int32), np.zeros((4, 4), np.int64)[:, 0]):
        with pytest.raises(InvalidParameter, match="contiguous"):
            drawer.into(wrong)
    assert drawer.sample(0).size == 0


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("scale", [Fraction(0), Fraction(-1), Fraction(2**56) + 1])
def test_scales_out_of_range_are_refused(family, scale):
    make = DiscreteLaplaceSampler if family == "laplace" else DiscreteGaussianSampler
    with pytest.raises(InvalidParameter, match="must lie above 0"):
        make(scale if family == "laplace" else scale * abs(scale))


def test_samplers_are_cached_by_parameter():
    assert laplace_sampler(Fraction(7, 3)) is laplace_sampler(Fraction(14, 6))
    assert gaussian_sampler(Fraction(7, 3)) is gaussian_sampler(Fraction(14, 6))
    assert "7/3" in repr(laplace_sampler(Fraction(7, 3)))
    assert "7/3" in repr(gaussian_sampler(Fraction(7, 3)))


@pytest.mark.parametrize("family", FAMILIES)
def test_one_has_the_law_too(statistics, family):
    # Catches a pool that hands out each value twice.
    drawer = sampler(family, Fraction(20))
    x = np.array([drawer.one() for _ in range(100_000)])
    law = cdf(statistics, family, Fraction(20))
    assert statistics.fit(x, law, 20.0) > statistics.alpha
    assert statistics.pairs(x) > statistics.alpha
    assert statistics.pairs(np.repeat(x[:50_000], 2)) < statistics.alpha
