"""What sketches say: unbiased over the hash functions, with the variance that is stated, and intervals that cover."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dither.errors import InvalidData, InvalidParameter
from dither.local.core.consistent import Consistency
from dither.local.frequency.oracle import Shares
from dither.local.sketches import sketch as sketch_reading
from dither.local.sketches.count_mean import CountMeanSketch
from dither.local.sketches.hadamard import HadamardSketch
from dither.local.sketches.sketch import Concentration, concentration, read, smallest_seen, strays

ALPHA = 1e-9
MAKERS = [CountMeanSketch.for_epsilon, CountMeanSketch.optimized, HadamardSketch.for_epsilon]
KINDS = pytest.mark.parametrize("make", MAKERS, ids=["count-mean", "optimized", "hadamard"])
SHARES = np.array([0.5, 0.3, 0.15, 0.05, 0.0])


def predicted(sketch, n, shares):
    """The formula of the proof note, in floats."""
    hit, miss = float(sketch.hit), float(sketch.miss)
    rate = miss + (hit - miss) * shares
    others = (shares**2).sum() - shares**2
    collided = (1 - 1 / n) * others / (sketch.hashes * (sketch.buckets - 1))
    return rate * (1 - rate) / (n * (hit - miss) ** 2) + collided


def surveys(make, trials, n, **options):
    """Shares and intervals of many surveys, each with hash functions of its own."""
    generator = np.random.default_rng()
    found = []
    for _ in range(trials):
        sketch = make(options["epsilon"], domain=SHARES.size, hashes=options["hashes"], buckets=options["buckets"])
        values = generator.choice(SHARES.size, size=n, p=SHARES)
        found.append(sketch.aggregator().add(sketch.randomize(values)))
    return found


# ------------------------------------------------------------------ centre and variance


@KINDS
def test_unbiased_with_the_stated_variance_over_hash_functions(make):
    """Collisions are most of the variance here: 0.3²/(k(m−1)) and more, against 1/n."""
    trials, n = 1500, 400
    aggregates = surveys(make, trials, n, epsilon=4, hashes=4, buckets=8)
    sketch = aggregates[0].protocol
    found = np.array([read(aggregate, range(5), each=0.1, all_values=0.1)[:2] for aggregate in aggregates])
    values, estimated = found[:, 0], found[:, 1]
    variances = predicted(sketch, n, SHARES)
    squares = [Fraction(float((SHARES**2).sum() - share**2)) for share in SHARES]
    stated = [sketch.variance(n, float(s), concentration=q) for s, q in zip(SHARES, squares, strict=True)]
    assert stated == pytest.approx(variances, rel=1e-9)
    z = (values - SHARES) / np.sqrt(variances)
    assert 2 * stats.norm.sf(abs(z.mean(axis=0)).max() * np.sqrt(trials)) * 5 > ALPHA
    # errors aren't normal, so the spread of their squares is taken from themselves
    means, spread = (z**2).mean(axis=0), (z**2).std(axis=0) / np.sqrt(trials)
    assert (abs(means - 1) < 6.2 * spread).all()
    assert (spread < 0.07).all()
    # without its collisions the variance is refuted; so are estimates without m/(m−1)
    alone = np.array([sketch.variance(n, float(share), concentration=0) for share in SHARES])
    assert (abs((z**2 * variances / alone).mean(axis=0) - 1) > 6.2 * spread * variances / alone).all()
    shrunk = (values * (1 - 1 / 8) - SHARES) / np.sqrt(variances)
    assert 2 * stats.norm.sf(abs(shrunk.mean(axis=0)).max() * np.sqrt(trials)) < ALPHA
    # what is estimated for the variance is right on average, too
    assert estimated.mean(axis=0) == pytest.approx(variances, rel=0.1)


@KINDS
def test_error_over_a_large_domain_is_within_five_per_cent_of_theory(make):
    size, n, trials = 10_000, 60_000, 4
    shares = 1 / np.arange(1, size + 1) ** 1.1
    shares /= shares.sum()
    generator = np.random.default_rng()
    buckets = 1024 if make is HadamardSketch.for_epsilon else 128
    ratios = []
    for _ in range(trials):
        sketch = make(4, domain=size, hashes=128, buckets=buckets)
        values = generator.choice(size, size=n, p=shares)
        found = sketch.aggregator().add(sketch.randomize(values)).estimate("0.999999")
        theory = predicted(sketch, n, shares).mean()
        ratios.append(((found.values - shares) ** 2).mean() / theory)
        assert found.variances.mean() == pytest.approx(theory, rel=0.05)
        assert not ((found.intervals[:, 0] > shares) | (found.intervals[:, 1] < shares)).any()
    # 40 000 errors, nearly independent: a standard error of 0.7%
    assert np.mean(ratios) == pytest.approx(1, abs=0.05)


def test_variance_is_the_formula():
    sketch = CountMeanSketch(keep="3/4", noise="1/4", hashes=10, buckets=16)
    n, share = 1000, Fraction(1, 5)
    rate = Fraction(1, 4) + Fraction(1, 2) * (share + (1 - share) / 16)
    coins = rate * (1 - rate) / n / (Fraction(1, 2) * Fraction(15, 16)) ** 2
    # Apple's: (m/(m−1))²·(q(1−q)/(1−2q)² + (1/m)(1−1/m))/n for a value that nobody has
    apple = (Fraction(16, 15)) ** 2 * (Fraction(3, 16) / Fraction(1, 4) + Fraction(15, 256)) / n
    assert sketch.variance(n, share, concentration=0) == pytest.approx(float(coins), rel=1e-12)
    assert sketch.variance(n, 0, concentration=0) == pytest.approx(float(apple), rel=1e-12)
    collided = Fraction(999, 1000) * (1 - share) ** 2 / (10 * 15)
    assert sketch.variance(n, share) == pytest.approx(float(coins + collided), rel=1e-12)
    assert sketch.variance(n) >= sketch.variance(n, share, concentration=0)
    with pytest.raises(InvalidParameter, match="concentration"):
        sketch.variance(n, share, concentration="65/100")
    with pytest.raises(InvalidParameter, match="n must be"):
        sketch.variance(0)


# ------------------------------------------------------------------ intervals


@KINDS
@pytest.mark.parametrize("hashes", [8, 40])
def test_intervals_cover_over_hash_functions(make, hashes, monkeypatch):
    """For each value by itself at 90%; and not without what they allow for collisions."""
    trials, n = 250, 5000
    aggregates = surveys(make, trials, n, epsilon=5, hashes=hashes, buckets=8)
    rates = []
    for name in ("right", "without collisions"):
        if name != "right":
            monkeypatch.setattr(sketch_reading, "strays", lambda *_, **__: (0.0, 0.0))
        found = np.array([a.estimate(0.9, simultaneous=False).intervals for a in aggregates])
        outside = (found[:, :, 0] > SHARES) | (found[:, :, 1] < SHARES)
        rates.append(outside.sum(axis=0))
    for misses in rates[0]:
        assert stats.binomtest(int(misses), trials, 0.1, alternative="greater").pvalue > ALPHA
    assert stats.binomtest(int(rates[1].max()), trials, 0.1, alternative="greater").pvalue < ALPHA


def test_simultaneous_intervals_cover_all_values_together():
    trials = 250
    aggregates = surveys(HadamardSketch.for_epsilon, trials, 3000, epsilon=3, hashes=64, buckets=64)
    found = np.array([aggregate.estimate(0.8).intervals for aggregate in aggregates])

    def p_value(low, high):
        outside = ((low > SHARES) | (high < SHARES)).any(axis=1)
        return stats.binomtest(int(outside.sum()), trials, 0.2, alternative="greater").pvalue

    low, high = found[:, :, 0], found[:, :, 1]
    assert p_value(low, high) > ALPHA
    # Catches intervals of a quarter of their width: bounds that hold together are wider than need be.
    assert p_value((5 * low + 3 * high) / 8, (3 * low + 5 * high) / 8) < ALPHA
    # they aren't so wide that they say nothing
    assert np.median(high - low) < 0.3


@KINDS
def test_concentration_is_estimated_and_bounded(make):
    trials = 300
    aggregates = surveys(make, trials, 4000, epsilon=4, hashes=40, buckets=16)
    found = [concentration(aggregate, failure=0.05) for aggregate in aggregates]
    squares = float((SHARES**2).sum())
    values = np.array([even.squares for even in found])
    assert abs(values.mean() - squares) < 6.2 * values.std() / np.sqrt(trials)
    assert values.std() / np.sqrt(trials) < 0.01
    for misses in (
        sum(even.most_squares < squares for even in found),
        sum(even.largest < SHARES[0] for even in found),
    ):
        assert stats.binomtest(misses, trials, 0.05, alternative="greater").pvalue > ALPHA
    # Catches the estimate, and what bounds the squares, taken for the bounds.
    for misses in (
        sum(even.squares < squares for even in found),
        sum(even.most_squares < SHARES[0] for even in found),
    ):
        assert stats.binomtest(misses, trials, 0.05, alternative="greater").pvalue < ALPHA
    assert np.median([even.most_squares for even in found]) < 1.5 * squares


def test_few_functions_or_reports_fall_back_on_the_largest_share():
    sketch = HadamardSketch.for_epsilon(4, hashes=8, buckets=16)
    found = concentration(sketch.aggregator().add(sketch.randomize(["x"] * 500)), failure=0.01)
    assert found.most_squares == found.largest == 1.0
    one = sketch.aggregator().add(sketch.randomize(["x"]))
    assert concentration(one, failure=0.01).largest == 1.0
    assert np.isfinite(one.estimate(values=["x"]).intervals).all()
    with pytest.raises(InvalidData, match="no reports"):
        concentration(sketch.aggregator(), failure=0.01)


def test_collision_masses_stray_no_further_than_stated():
    """Drawn directly: the mass of collisions of four values, over hash functions."""
    sketch = HadamardSketch.for_epsilon(1, hashes=16, buckets=16)
    others = np.array([0.5, 0.2, 0.2, 0.1])
    even = Concentration(squares=0, most_squares=float((others**2).sum()), largest=0.5)
    below, above = strays(sketch, even, failure=0.05)
    draws = np.random.default_rng(5).binomial(16, 1 / 16, (200_000, 4)) / 16 @ others - 1 / 16
    assert (draws > above).mean() < 0.05
    assert (draws < -below).mean() < 0.05
    # half of the allowance wouldn't do
    assert (draws > above / 2).mean() > 0.05


# ------------------------------------------------------------------ what is asked for


def test_estimates_of_lists_and_open_domains():
    sketch = CountMeanSketch.optimized(6, hashes=64, buckets=64)
    values = ["tea"] * 3000 + ["milk"] * 1000 + [17] * 1000
    aggregate = sketch.aggregator().add(sketch.randomize(values))
    with pytest.raises(InvalidParameter, match="values="):
        aggregate.estimate()
    with pytest.raises(InvalidParameter, match="at least one"):
        aggregate.estimate(values=[])
    with pytest.raises(InvalidParameter, match="confidence"):
        aggregate.estimate(1, values=["tea"])
    with pytest.raises(InvalidData, match="text"):
        aggregate.estimate(values=[1.5])
    found = aggregate.estimate(values=["tea", "milk", 17, "nothing"])
    assert isinstance(found, Shares)
    assert found.labels == ("tea", "milk", 17, "nothing")
    assert found.top(3)[0][0] == "tea"
    assert found.values == pytest.approx([0.6, 0.2, 0.2, 0], abs=0.1)
    assert aggregate.estimate(values=["17"]).values[0] == found.values[2]
    cut = aggregate.estimate(values=["tea", "nothing"], consistent=Consistency.BASE_CUT)
    assert (cut.values >= 0).all()
    closed = HadamardSketch.for_epsilon(2, domain=["a", "b"])
    assert closed.aggregator().add(closed.randomize(["a"] * 50)).estimate().labels == ("a", "b")


def test_planning_says_what_is_then_seen():
    sketch = CountMeanSketch.optimized(3, hashes=256, buckets=64)
    n, each, trials = 20_000, 1e-4, 60
    limit = smallest_seen(sketch, n, each=each, confidence=0.9, squares="1/100", largest="1/100")
    generator = np.random.default_rng()
    shares = np.full(101, (1 - limit) / 100)
    shares[0] = limit
    seen, weak = 0, 0
    for _ in range(trials):
        for half in (False, True):
            some = shares.copy()
            if half:
                some[0], some[1] = limit / 2, some[1] + limit / 2
            rows = sketch.randomize(generator.choice(101, size=n, p=some))
            low = read(sketch.aggregator().add(rows), [0], each=each, all_values=0.02)[2][0, 0]
            if half:
                weak += low > 0
            else:
                seen += low > 0
    assert seen >= 0.7 * trials
    assert weak <= 0.5 * trials
