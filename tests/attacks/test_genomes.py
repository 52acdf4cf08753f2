"""Membership from allele counts: exact ratios by brute force, power as predicted, and what noise leaves of it.

Data is seeded, so figures on exact counts are the same in every run. With noise the margins below fail with probability
below 1e-9: at 5% false alarms, 1000 participants and 4000 others, a found share has a standard deviation of at most
0.01, and the worst attacker is expected at about 0.07 where 0.136 is allowed.
"""

import itertools

import numpy as np
import pytest
from scipy.stats import binom, norm

import dither as dp
from dither.attacks.base import ReleaseKind
from dither.attacks.detection import most_detected
from dither.attacks.genomes import (
    ATTACK,
    attack_by_distance,
    attack_exact,
    attack_noisy,
    genomes,
    homer_distance,
    insider_ratio,
    likelihood_ratio,
    make_study,
    mechanism,
    noisy_likelihood_ratio,
    power,
    sensitivity,
)
from dither.errors import InvalidData, InvalidParameter

GUARANTEE = dp.Guarantee(epsilon=1, delta="1e-5")
RATE = 0.05


@pytest.fixture(scope="module")
def study():
    return make_study(seed=1, people=1000, snps=4000, participants=1000, others=4000)


def test_likelihood_ratio_is_that_of_the_two_binomials():
    n, p = 3, np.array([0.3, 0.6])
    for counts in itertools.product(range(2 * n + 1), repeat=2):
        for genome in itertools.product(range(3), repeat=2):
            found = likelihood_ratio(np.array([genome], dtype=np.int8), np.array(counts), people=n, population=p)[0]
            member = np.prod([binom.pmf(c - g, 2 * n - 2, q) for c, g, q in zip(counts, genome, p, strict=True)])
            other = np.prod([binom.pmf(c, 2 * n, q) for c, q in zip(counts, p, strict=True)])
            if member == 0:
                assert found == -np.inf
            else:
                assert found == pytest.approx(np.log(member / other), abs=1e-9)


def test_noisy_ratio_is_that_of_two_normal_laws():
    p, counts = np.array([0.3, 0.6, 0.5]), np.array([7, 25, 18])
    genome = np.array([[0, 2, 1]], dtype=np.int8)
    n, noise = 20, 3.0
    expected = 0.0
    for c, g, q in zip(counts, genome[0], p, strict=True):
        spread_in = np.sqrt((2 * n - 2) * q * (1 - q) + noise**2)
        spread_out = np.sqrt(2 * n * q * (1 - q) + noise**2)
        expected += norm.logpdf(c, (2 * n - 2) * q + g, spread_in) - norm.logpdf(c, 2 * n * q, spread_out)
    found = noisy_likelihood_ratio(genome, counts, people=n, population=p, noise=noise)[0]
    assert found == pytest.approx(expected, abs=1e-10)


def test_insider_ratio_is_that_of_the_noise():
    genome, left = np.array([0, 2, 1], dtype=np.int8), np.array([1.0, -3.0, 4.0])
    expected = norm.logpdf(left, genome, 2.5).sum() - norm.logpdf(left, 0, 2.5).sum()
    assert insider_ratio(genome, left, noise=2.5) == pytest.approx(expected, abs=1e-12)


def test_homer_distance_by_hand():
    genome = np.array([[2, 0]], dtype=np.int8)
    near, far = np.array([0.9, 0.3]), np.array([0.5, 0.4])
    # D = 0.5 − 0.1 and 0.4 − 0.3
    each = np.array([0.4, 0.1])
    expected = each.mean() / (each.std() / np.sqrt(2))
    assert homer_distance(genome, near, far)[0] == pytest.approx(expected, abs=1e-12)


def test_genotypes_are_in_hardy_weinberg_proportions(study):
    p = study.population
    assert 0.05 <= p.min() < p.max() <= 0.95
    for genotype, expected in enumerate(((1 - p) ** 2, 2 * p * (1 - p), p**2)):
        shares = (study.others == genotype).mean(axis=0)
        spread = np.sqrt(expected * (1 - expected) / len(study.others))
        assert np.abs((shares - expected) / spread).max() < 6
    assert (study.counts == study.participants.sum(axis=0, dtype=np.int64)).all()


@pytest.mark.parametrize("snps", [250, 1000, 2500, 4000])
def test_power_is_as_predicted(study, snps):
    ratio = attack_exact(study, snps=snps)
    for rate in (0.01, 0.05, 0.2):
        assert float(ratio.at(rate)) == pytest.approx(power(snps=snps, people=1000, false_alarms=rate), abs=0.05)


def test_a_person_who_is_a_thousandth_of_the_study_is_found():
    """Homer et al. 2008: less than 0.1% of the mixture."""
    large = make_study(seed=0, people=1000, snps=25_000, participants=150, others=1000)
    homer, ratio = attack_by_distance(large), attack_exact(large)
    assert float(ratio.at(0.01)) > 0.98
    assert float(homer.at(0.01)) > 0.95
    # the likelihood ratio beats the distance, as it must
    assert float(ratio.at(0.001)) > float(homer.at(0.001))


def test_noise_leaves_no_more_than_the_bound_to_anybody(study):
    noisy = mechanism(4000, GUARANTEE)
    outsider, insider = attack_noisy(study, noisy.release, noise=float(noisy.scale))
    for found in (outsider, insider):
        for rate in (RATE, 0.2):
            assert float(found.at(rate)) < float(most_detected(rate, GUARANTEE))
    assert abs(float(outsider.at(RATE)) - RATE) < 0.07


def test_exact_counts_in_place_of_noisy_ones_are_noticed(study):
    noise = float(mechanism(4000, GUARANTEE).scale)
    outsider, insider = attack_noisy(study, lambda counts: counts, noise=noise)
    assert float(insider.at(0.0)) == 1.0
    assert float(outsider.at(RATE)) > 2 * float(most_detected(RATE, GUARANTEE))


def test_a_tenth_of_the_noise_is_noticed(study):
    short = dp.DiscreteGaussian(scale=mechanism(4000, GUARANTEE).scale / 10)
    _, insider = attack_noisy(study, short.release, noise=float(short.scale))
    assert float(insider.at(RATE)) > 2 * float(most_detected(RATE, GUARANTEE))


def test_noise_is_for_whole_genomes():
    for snps in (1, 7, 4000):
        noisy = mechanism(snps, GUARANTEE)
        assert GUARANTEE.met_by(noisy.loss(sensitivity(snps)))
    # one genome more moves each of m counts by at most 2
    assert sensitivity(4000).l2_squared() == 4 * 4000
    assert mechanism(4000, GUARANTEE).scale > 60 * mechanism(1, GUARANTEE).scale


def test_outcome_says_what_was_measured_and_can_be_interrupted(tmp_path):
    seen = []
    outcome = genomes(
        seed=2,
        people=200,
        snps=1500,
        participants=100,
        others=300,
        watch=lambda share, doing: seen.append(share),
    )
    assert outcome.score(ReleaseKind.UNPROTECTED) > 0.4
    assert outcome.score(ReleaseKind.PRIVATE) < 0.2
    assert "ε = 1" in str(outcome)
    assert "Homer" in str(outcome)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    assert outcome.plot(tmp_path / "genomes.svg").stat().st_size < 150_000
    assert ATTACK.run is genomes

    def stop(share, doing):
        if share > 0.7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        genomes(people=200, snps=200, participants=50, others=100, watch=stop)


def test_wrong_input():
    with pytest.raises(InvalidParameter, match="at most all 10"):
        make_study(seed=0, people=10, snps=5, participants=11, others=5)
    with pytest.raises(InvalidParameter, match="snps"):
        make_study(seed=0, people=10, snps=0, participants=5, others=5)
    good = np.zeros((2, 3), dtype=np.int8)
    with pytest.raises(InvalidData, match="0, 1 or 2"):
        likelihood_ratio(good + 3, np.ones(3, dtype=np.int64), people=5, population=np.full(3, 0.5))
    with pytest.raises(InvalidData, match="one column for each SNP"):
        homer_distance(good, np.full(4, 0.5), np.full(4, 0.5))
    with pytest.raises(InvalidData, match="one entry for each SNP"):
        insider_ratio(good[0], np.zeros(4), noise=1.0)
    with pytest.raises(InvalidParameter, match="epsilon"):
        genomes(epsilon=0)
