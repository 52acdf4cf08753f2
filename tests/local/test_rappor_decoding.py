"""Decoding RAPPOR: what is there is found, what isn't is not beyond the stated rate, and intervals cover."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from dither.entropy import InsecureSeededSource
from dither.errors import InvalidData, InvalidParameter
from dither.local.rappor.decode import FEWEST_REPORTS, Control, _present, decode, detection_limit
from dither.local.rappor.protocol import Rappor
from support.sizes import at_night

ALPHA = 1e-9
WORDS = [f"word{i}" for i in range(100)]
ABSENT = [f"absent{i}" for i in range(100)]


def zipf(size):
    shares = 1 / np.arange(1, size + 1)
    return shares / shares.sum()


def collected(protocol, people, names, seed):
    rows = protocol.randomize(people, candidates=names, source=InsecureSeededSource(seed))
    return protocol.aggregator().add(rows)


def counted(protocol, n, shares, names, rng):
    """An aggregate as it would be, from its counts: quicker than from reports, and for millions of people."""
    aggregate, places = protocol.aggregator(), protocol.places(names)
    sizes = rng.multinomial(n, np.full(protocol.cohorts, 1 / protocol.cohorts))
    for cohort, size in enumerate(sizes):
        have = rng.multinomial(size, shares)
        ones = np.zeros(protocol.bits, dtype=np.int64)
        for number, where in zip(have, places[cohort], strict=True):
            ones[np.unique(where)] += number
        aggregate.ones[cohort] = rng.binomial(ones, float(protocol.hit))
        aggregate.ones[cohort] += rng.binomial(size - ones, float(protocol.miss))
    aggregate.cohort_reports[:], aggregate.reports = sizes, n
    return aggregate


def test_frequent_words_of_a_zipf_population_are_found():
    protocol = Rappor.for_epsilon(3, bits=128, hashes=2, cohorts=32)
    shares, n = zipf(100), 100_000
    people = np.random.default_rng(1).choice(100, n, p=shares)
    result = collected(protocol, people, WORDS, seed=2).decode(WORDS + ABSENT)
    limit = detection_limit(protocol, n, 200)
    found = [entry.candidate for entry in result.found]
    often = [word for word, share in zip(WORDS, shares, strict=True) if share > 2.2 * limit]
    assert len(often) >= 7
    assert set(often) <= set(found)
    assert not set(found) & set(ABSENT)
    assert [entry.share for entry in result.found] == sorted((e.share for e in result.found), reverse=True)
    truth = np.concatenate([shares, np.zeros(100)])
    assert ((result.intervals[:, 0] <= truth) & (truth <= result.intervals[:, 1])).all()
    assert result.listed_interval[0] <= 1 <= result.listed_interval[1]
    assert result.explained == pytest.approx(sum(entry.share for entry in result.found))
    assert 0.3 < result.explained < result.listed
    assert (result.unpicked, result.reports) == (0, n)
    assert result.misfit > 1e-6
    first = result.found[0]
    assert first.candidate == "word0"
    assert first.count == pytest.approx(first.share * n)
    assert first.count_interval[0] <= (people == 0).sum() <= first.count_interval[1]
    assert first.p_value < 1e-9


def test_with_little_noise_the_error_is_that_of_the_sample():
    protocol = Rappor(bits=64, hashes=2, cohorts=12, f="1/200")
    shares = np.array([0.5, 0.3, 0.2])
    aggregate = collected(protocol, np.random.default_rng(3).choice(3, 20_000, p=shares), WORDS[:3], seed=4)
    result = aggregate.decode(WORDS[:3])
    assert np.abs(result.shares - shares).max() < 5 * math.sqrt(0.25 / 20_000)
    sample = np.sqrt(shares * (1 - shares) / 20_000)
    assert np.all((sample < result.standard_errors) & (result.standard_errors < 1.25 * sample))


SMALL = [
    Rappor(bits=32, hashes=2, cohorts=8, f="1/2", p="1/2", q="3/4"),
    pytest.param(Rappor(bits=16, hashes=1, cohorts=16, f="1/16"), marks=at_night),
]


@pytest.mark.parametrize("protocol", SMALL)
def test_intervals_cover_and_nothing_is_found_that_isnt_there(protocol):
    names, shares = WORDS[:10], zipf(10)
    truth = np.concatenate([shares, np.zeros(20)])
    rng, rounds = np.random.default_rng(5), 150
    inside, together, false, listed, squares, stated, narrow = 0, 0, 0, 0, 0.0, 0.0, 0
    for _ in range(rounds):
        result = counted(protocol, 5000, shares, names, rng).decode(names + ABSENT[:20])
        distance = np.abs(result.shares - truth)
        inside += int((distance <= 1.96 * result.standard_errors).sum())
        together += bool(((result.intervals[:, 0] <= truth) & (truth <= result.intervals[:, 1])).all())
        false += bool(result.present[10:].any())
        listed += result.listed_interval[0] <= 1 <= result.listed_interval[1]
        narrow += bool((distance <= 0.5 * stats.norm.isf(0.025 / 30) * result.standard_errors).all())
        squares += float((distance**2).sum())
        stated += float((result.standard_errors**2).sum())
    assert stats.binom.cdf(together, rounds, 0.95) > ALPHA
    assert stats.binom.cdf(listed, rounds, 0.95) > ALPHA
    assert stats.binom.sf(false - 1, rounds, 0.05) > ALPHA
    assert stats.binom.cdf(narrow, rounds, 0.95) < ALPHA  # intervals of half the width are noticed
    # 4,500 estimates, not quite independent: errors are stated within a tenth, and rather too large than too small
    assert 0.94 < inside / (rounds * 30) < 0.985
    assert 0.75 < squares / stated < 1.06


def test_counts_and_reports_have_one_law():
    """The quick simulation above against real payloads: the same means and spreads."""
    protocol, names, shares = SMALL[0], WORDS[:10], zipf(10)
    rng = np.random.default_rng(6)
    quick = [counted(protocol, 2000, shares, names, rng).ones.ravel() for _ in range(60)]
    real = [
        collected(protocol, rng.choice(10, 2000, p=shares), names, seed=100 + i).ones.ravel() for i in range(60)
    ]  # fmt: skip
    z = (np.mean(quick, axis=0) - np.mean(real, axis=0)) / np.sqrt((np.var(quick, axis=0) + np.var(real, axis=0)) / 60)
    assert 0.8 < float((z**2).mean()) < 1.3


def test_a_frequent_value_that_is_missing_shows_and_does_no_harm(monkeypatch):
    protocol, rounds = Rappor(bits=128, hashes=2, cohorts=16, f="1/4"), 10
    shares, rng = np.full(5, 0.2), np.random.default_rng(7)
    false = false_of_the_mutant = 0
    for i in range(rounds):
        names, nobody = [f"{i}-word{j}" for j in range(5)], [f"{i}-absent{j}" for j in range(250)]
        aggregate = counted(protocol, 1_000_000, shares, names, rng)
        result = aggregate.decode(names[1:] + nobody)
        false += bool(result.present[4:].any())
        assert result.present[:4].all()
        assert result.misfit < 1e-12
        assert result.listed_interval[0] <= 0.8 <= result.listed_interval[1]
        assert aggregate.decode(names).misfit > ALPHA
        with monkeypatch.context() as patch:
            patch.setattr("dither.local.rappor.decode.ENOUGH_COHORTS", protocol.cohorts + 1)
            false_of_the_mutant += bool(aggregate.decode(names[1:] + nobody).present[4:].any())
    assert stats.binom.sf(false - 1, rounds, 0.05) > 1e-3
    assert stats.binom.sf(false_of_the_mutant - 1, rounds, 0.05) < 1e-3  # errors that don't look at the cohorts


def test_more_candidates_than_bits_are_picked_by_half_of_the_cohorts():
    protocol = Rappor(bits=32, hashes=2, cohorts=16, f="1/4")
    names, shares = WORDS[:5], np.array([0.4, 0.3, 0.2, 0.06, 0.04])
    crowd = names + [f"nobody{i}" for i in range(1000)]
    rng = np.random.default_rng(8)
    false = covered = 0
    for _ in range(6):
        result = counted(protocol, 30_000, shares, names, rng).decode(crowd)
        truth = np.array([shares[names.index(c)] if c in names else 0.0 for c in result.candidates])
        covered += bool(((result.intervals[:, 0] <= truth) & (truth <= result.intervals[:, 1])).all())
        found = {entry.candidate for entry in result.found}
        false += not found <= set(names)
        assert {"word0", "word1", "word2"} <= found
        assert len(result.candidates) + result.unpicked == len(crowd)
        assert len(result.candidates) < 128
    assert stats.binom.sf(false - 1, 6, 0.05) > 1e-4
    assert stats.binom.cdf(covered, 6, 0.95) > 1e-4
    with pytest.raises(InvalidParameter, match="one cohort"):
        Rappor(bits=32, cohorts=1, f="1/4").aggregator().add(
            Rappor(bits=32, cohorts=1, f="1/4").randomize(["word0"] * 30)
        ).decode(crowd)  # fmt: skip


def test_nothing_there_is_an_answer():
    protocol = Rappor(bits=16, hashes=1, cohorts=4, f="9/10")
    aggregate = collected(protocol, np.zeros(50, dtype=np.int64), WORDS[:1], seed=9)
    result = aggregate.decode([f"nobody{i}" for i in range(300)])
    assert len(result.candidates) + result.unpicked == 300
    assert len(result.found) <= 1


def test_detection_limit_is_where_half_are_found():
    protocol = Rappor(bits=64, hashes=2, cohorts=16, f="1/2")
    n, rng = 20_000, np.random.default_rng(10)
    limit = detection_limit(protocol, n, 50)
    shares, names = np.array([limit, 0.3, 0.7 - limit]), WORDS[:3]
    hits = sum(bool(counted(protocol, n, shares, names, rng).decode(names + ABSENT[:47]).present[0]) for _ in range(80))
    assert 0.2 < hits / 60 < 0.7  # the errors are stated a few percent too large
    assert detection_limit(protocol, 4 * n, 50) == pytest.approx(limit / 2)
    assert detection_limit(protocol, n, 50, power=0.9) > limit
    assert detection_limit(protocol, n, 500) > limit
    assert detection_limit(protocol, n, 5000) > limit
    with pytest.raises(InvalidParameter):
        detection_limit(protocol, n, 50, power=1)


def test_control_of_false_discoveries():
    p_values = np.array([0.001, 0.012, 0.035, 0.2, 0.0299])
    assert list(_present(p_values, 0.05, Control.FAMILYWISE)) == [True, False, False, False, False]
    # thresholds 0.01, 0.02, 0.03, 0.04, 0.05 of the sorted values 0.001, 0.012, 0.0299, 0.035, 0.2
    assert list(_present(p_values, 0.05, Control.FALSE_DISCOVERY)) == [True, True, True, False, True]
    assert not _present(np.array([0.5, 0.9]), 0.05, Control.FALSE_DISCOVERY).any()
    # a step-up: the second passes although the first doesn't by itself
    assert list(_present(np.array([0.026, 0.04]), 0.05, Control.FALSE_DISCOVERY)) == [True, True]
    protocol = Rappor.for_epsilon(3, cohorts=16)
    aggregate = counted(protocol, 50_000, zipf(100), WORDS, np.random.default_rng(11))
    few, many = (aggregate.decode(WORDS, control=control) for control in Control)
    assert set(np.flatnonzero(few.present)) < set(np.flatnonzero(many.present))
    assert np.array_equal(few.shares, many.shares)


def test_wrong_candidates_are_refused():
    protocol = Rappor(bits=4, hashes=1, cohorts=1, f="1/2")
    aggregate = collected(protocol, np.zeros(100, dtype=np.int64), WORDS[:1], seed=12)
    for wrong in ([], ["a", "a"], ["1", 1], "ab"):
        with pytest.raises(InvalidParameter):
            aggregate.decode(wrong)
    places = protocol.places([str(i) for i in range(9)])[0, :, 0]
    same = next([str(i), str(j)] for i in range(9) for j in range(i) if places[i] == places[j])
    with pytest.raises(InvalidParameter, match="told apart"):
        aggregate.decode(same)
    with pytest.raises(InvalidData):
        decode(protocol.aggregator(), ["a"])
    with pytest.raises(InvalidParameter):
        aggregate.decode(["a"], confidence=1.5)


def test_a_single_lie_is_no_discovery():
    protocol = Rappor(bits=32, hashes=2, cohorts=1, f="1/4", p="1/4", q="3/4")
    few = protocol.aggregator().add(protocol.randomize(["somebody"] * (FEWEST_REPORTS - 1)))
    # two ones of one report, which chance brings once in ten times, would be reason enough to say that "a" is there
    with pytest.raises(InvalidData, match="at least 24 reports"):
        few.decode(["a"])
    assert few.add(protocol.randomize(["somebody"])).decode(["a"]).candidates == ("a",)


def test_it_prints_what_was_found_and_warns_of_what_is_missing():
    protocol = Rappor(bits=64, hashes=2, cohorts=16, f="1/100", p="1/100", q="99/100")
    people = np.repeat([0, 1], [9000, 3000])
    aggregate = collected(protocol, people, ["word\x1b[31m", "<b>"], seed=14)
    shown = str(aggregate.decode(["word\x1b[31m", "<b>", "absent"]))
    lines = shown.splitlines()
    assert lines[0].split() == ["candidate", "share", "interval"]
    assert [line.split()[0] for line in lines[1:3]] == ["word\N{REPLACEMENT CHARACTER}[31m", "<b>"]
    assert "95% intervals, which hold all together; 12,000 reports" in shown
    assert "missing" not in shown
    assert "missing from the list" in repr(aggregate.decode(["<b>", "absent"]))
    assert "&lt;b&gt;" in aggregate.decode(["<b>", "absent"])._repr_html_()


def test_cohorts_without_reports_are_left_out():
    protocol = Rappor(bits=64, hashes=2, cohorts=512, f="1/100")
    aggregate = collected(protocol, np.zeros(300, dtype=np.int64), WORDS[:1], seed=13)
    assert (aggregate.cohort_reports == 0).any()
    result = aggregate.decode(WORDS[:5])
    assert result.shares[0] == pytest.approx(1, abs=0.1)
    assert list(result.present) == [True, False, False, False, False]
