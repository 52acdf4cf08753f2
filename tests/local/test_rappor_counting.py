"""RAPPOR: the law of one report, many people at once, and what is counted."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy import stats

from dither.entropy import InsecureSeededSource
from dither.errors import InvalidData, InvalidParameter
from dither.local.clients.coins import law_of
from dither.local.clients.rappor import bloom_places
from dither.local.clients.wire import Dropped
from dither.local.core.protocol import aggregator_of, load
from dither.local.rappor.protocol import Rappor, RapporAggregator
from support.sizes import at_night

ALPHA = 1e-9
PAPER = {"f": Fraction(1, 2), "p": Fraction(1, 2), "q": Fraction(3, 4)}
SYMMETRIC = {"f": Fraction(1, 4), "p": Fraction(1, 3), "q": Fraction(2, 3)}
ONE_TIME = {"f": Fraction(1, 2), "p": Fraction(0), "q": Fraction(1)}
HALF_OPEN = {"f": Fraction(1, 3), "p": Fraction(0), "q": Fraction(3, 5)}


def filter_of(protocol, value, cohort):
    return frozenset(bloom_places(str(value).encode(), cohort, bits=protocol.bits, hashes=protocol.hashes))


@pytest.mark.parametrize("setting", [PAPER, SYMMETRIC, ONE_TIME, HALF_OPEN])
@pytest.mark.parametrize(("bits", "hashes", "cohorts"), [(2, 1, 3), pytest.param(4, 2, 1, marks=at_night)])
def test_law_of_the_client_is_the_product_of_its_bits(setting, bits, hashes, cohorts):
    protocol = Rappor(bits=bits, hashes=hashes, cohorts=cohorts, **setting)
    for value in ("a", 17):
        found = law_of(lambda coins: protocol.client().payload(value, coins))  # noqa: B023
        assert found == product_law(protocol, value)


def product_law(protocol, value):
    """The law of a first report, by formula."""
    found = {}
    for cohort, numbers in product(range(protocol.cohorts), product((0, 1), repeat=protocol.bits)):
        probability = Fraction(1, protocol.cohorts)
        for place, number in enumerate(numbers):
            one = protocol.hit if place in filter_of(protocol, value, cohort) else protocol.miss
            probability *= one if number else 1 - one
        code = sum(number << place for place, number in enumerate(numbers))
        if probability:
            found[cohort.to_bytes(2, "little") + bytes([code])] = probability
    return found


# ------------------------------------------------------------------ many people at once


def payload_p_value(claimed, drawn, value):
    """Pearson's test of payloads drawn by one collection against the law of a value in another."""
    rows = drawn.randomize([value] * 200_000, source=InsecureSeededSource(11))
    codes = rows[:, 0].astype(np.int64) * 256 + rows[:, 2]
    exact = product_law(claimed, value)
    outputs = sorted(exact)
    counts = np.array([np.count_nonzero(codes == output[0] * 256 + output[2]) for output in outputs])
    assert counts.sum() == codes.size
    return float(stats.chisquare(counts, [float(exact[o]) * codes.size for o in outputs]).pvalue)


@pytest.mark.parametrize("setting", [PAPER, SYMMETRIC, {"f": Fraction(1, 3), "p": Fraction(0), "q": Fraction(4, 5)}])
def test_many_people_follow_the_law_of_the_client(setting):
    """Catches an f that is 1/20 too large; drawn from a seed."""
    protocol = Rappor(bits=4, hashes=2, cohorts=2, **setting)
    mutant = Rappor(bits=4, hashes=2, cohorts=2, **(setting | {"f": setting["f"] + Fraction(1, 20)}))
    for value in ("a", "b"):
        assert payload_p_value(protocol, protocol, value) > ALPHA
        assert payload_p_value(protocol, mutant, value) < ALPHA


def test_values_come_as_texts_numbers_or_places():
    quiet = Rappor(bits=64, hashes=2, cohorts=3, f=Fraction(1, 10**15))
    names = ["10", "news", "ünïcode"]
    ways = [
        quiet.randomize(["10", "news", "ünïcode", "10"] * 50),
        quiet.randomize(np.array(["10", "news", "ünïcode", "10"] * 50)),
        quiet.randomize([10, "news", "ünïcode", "10"] * 50),
        quiet.randomize(np.array([0, 1, 2, 0] * 50), candidates=names),
    ]
    for rows in ways:
        for row, value in zip(rows, ["10", "news", "ünïcode", "10"] * 50, strict=True):
            places = np.flatnonzero(np.unpackbits(row[2:], bitorder="little"))
            assert set(places) == set(bloom_places(value.encode(), int(row[0]), bits=64, hashes=2))
    assert {int(row[0]) for row in ways[0]} == {0, 1, 2}
    numbers = quiet.randomize(np.array([7, 10, 7]))
    assert set(np.flatnonzero(np.unpackbits(numbers[1, 2:], bitorder="little"))) == set(
        bloom_places(b"10", int(numbers[1, 0]), bits=64, hashes=2)
    )
    assert quiet.randomize([]).shape == (0, quiet.width)
    assert quiet.randomize(np.zeros(0, dtype=np.int64), candidates=names).shape == (0, quiet.width)
    for wrong in ("news", 3, np.zeros((2, 2)), [1.5]):
        with pytest.raises(InvalidData):
            quiet.randomize(wrong)
    for wrong in ([3], [-1], [[0]], ["news"], [0.0]):
        with pytest.raises(InvalidData):
            quiet.randomize(wrong, candidates=names)


# ------------------------------------------------------------------ counting


def test_counts_are_those_of_the_payloads():
    protocol = Rappor(bits=20, hashes=2, cohorts=5, **PAPER)
    rows = protocol.randomize(np.arange(3000) % 7, source=InsecureSeededSource(1))
    aggregate = protocol.aggregator().add(rows)
    bits = np.unpackbits(rows[:, 2:], axis=1, count=20, bitorder="little").astype(np.int64)
    for cohort in range(5):
        assert np.array_equal(aggregate.ones[cohort], bits[rows[:, 0] == cohort].sum(axis=0))
    assert aggregate.cohort_reports.sum() == aggregate.reports == 3000
    parts = [protocol.aggregator().add(rows[i::3]) for i in range(3)]
    merged = parts[2] + parts[0] + parts[1]
    assert np.array_equal(merged.ones, aggregate.ones)
    assert np.array_equal(merged.cohort_reports, aggregate.cohort_reports)
    with pytest.raises(InvalidParameter):
        aggregate + Rappor(bits=20, hashes=2, cohorts=5, **SYMMETRIC).aggregator()


def test_clients_reports_arrive_and_others_are_dropped(tmp_path):
    protocol = Rappor(bits=20, hashes=2, cohorts=5, **PAPER)
    other = Rappor(bits=20, hashes=2, cohorts=5, **SYMMETRIC)
    good = [protocol.client().report("x") for _ in range(20)] + [protocol.client().text("y") for _ in range(20)]
    head = good[0][:9]
    far, padded = head + bytes([5, 0, 0, 0, 0]), head + bytes([0, 0, 0, 0, 0x10])
    wrong = [far, head + bytes([0, 1, 0, 0, 0]), padded, good[0][:-1], bytes([2]) + good[0][1:], "!", b"",
             other.client().report("x"), None]  # fmt: skip
    aggregate = protocol.aggregator().add_reports(good + wrong)
    assert aggregate.reports == 40
    assert aggregate.dropped == {
        Dropped.OUT_OF_RANGE: 3,
        Dropped.LENGTH: 1,
        Dropped.VERSION: 1,
        Dropped.NOT_A_REPORT: 3,
        Dropped.OTHER_COLLECTION: 1,
    }
    place = tmp_path / "aggregate.json"
    aggregate.save(place)
    again = load(place)
    assert isinstance(again, RapporAggregator)
    assert np.array_equal(again.ones, aggregate.ones)
    assert again.dropped == aggregate.dropped
    assert aggregator_of(aggregate.to_json()).reports == 40
    damaged = protocol.aggregator()
    damaged.ones[0, 0] = 1
    with pytest.raises(InvalidData):
        aggregator_of(damaged.to_json())


def test_bit_estimates_are_unbiased_with_the_stated_variance():
    protocol = Rappor(bits=8, hashes=1, cohorts=2, **PAPER)
    values = [2, 3, 5, 7]
    truth = np.zeros((2, 8))
    for cohort, value in product(range(2), values):
        truth[cohort, list(filter_of(protocol, value, cohort))] += 0.25
    n, rounds, source = 2000, 300, InsecureSeededSource(3)
    rng = np.random.default_rng(4)
    found, stated, covered = [], [], 0
    for _ in range(rounds):
        people = rng.integers(0, 4, n)
        estimate = protocol.aggregator().add(
            protocol.randomize(people, candidates=[str(v) for v in values], source=source)
        ).estimate(confidence=0.8)  # fmt: skip
        found.append(estimate.shares)
        stated.append(estimate.variances)
        low, high = estimate.intervals[..., 0], estimate.intervals[..., 1]
        covered += bool(((low <= truth) & (truth <= high)).all())
        assert np.allclose(estimate.counts, estimate.shares * estimate.cohort_reports[:, None])
    mean, spread, claimed = np.mean(found, axis=0), np.var(found, axis=0, ddof=1), np.mean(stated, axis=0)
    z = (mean - truth) / np.sqrt(claimed / rounds)
    assert 2 * stats.norm.sf(np.abs(z)).min() * z.size > ALPHA
    # the whole spread against the stated variances: 16 × 299 degrees of freedom, 10% is noticed
    statistic, freedom = float((spread / claimed).sum()) * (rounds - 1), z.size * (rounds - 1)
    assert ALPHA < stats.chi2.cdf(statistic, freedom) < 1 - ALPHA
    assert stats.chi2.cdf(1.25 * statistic, freedom) > 1 - ALPHA
    assert stats.binom.cdf(covered, rounds, 0.8) > ALPHA
    # close to the exact variance, averaged over the sizes of the cohorts
    exact = np.array([[protocol.variance(n // 2, Fraction(t)) for t in row] for row in truth])
    assert np.allclose(claimed, exact, rtol=0.05)


def test_cohorts_without_reports_say_nothing():
    protocol = Rappor(bits=8, hashes=1, cohorts=50, **PAPER)
    with pytest.raises(InvalidData):
        protocol.aggregator().estimate()
    estimate = protocol.aggregator().add(protocol.randomize(["x"])).estimate()
    empty = estimate.cohort_reports == 0
    assert empty.sum() == 49
    assert np.isinf(estimate.variances[empty]).all()
    assert (estimate.intervals[empty] == [0.0, 1.0]).all()
    assert np.isfinite(estimate.variances[~empty]).all()


def test_reduced_keeps_the_coins():
    small = Rappor(**PAPER).reduced()
    assert (small.hit, small.miss) == (Rappor(**PAPER).hit, Rappor(**PAPER).miss)
    assert len(law_of(lambda coins: small.client().payload("x", coins))) == 4


def test_a_batch_in_which_nothing_is_a_report_changes_nothing():
    # two cohorts: a payload of ones names a cohort that there isn't
    aggregate = Rappor(f="1/2", bits=8, hashes=1, cohorts=2).aggregator()
    aggregate.add(np.full((3, aggregate.protocol.width), 255, dtype=np.uint8))
    assert aggregate.reports == 0
    assert aggregate.dropped == {Dropped.OUT_OF_RANGE: 3}
