"""Every frequency oracle by its exact law: the client, run on every way its coins can fall, against what is stated."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from dither.local.clients.coins import law_of
from dither.local.frequency.hadamard import HadamardResponse
from dither.local.frequency.hashing import LocalHashing
from dither.local.frequency.kary import Kary
from dither.local.frequency.projective import ProjectiveResponse
from dither.local.frequency.subset import SubsetSelection
from dither.local.frequency.unary import Unary
from dither.mechanisms.kary_response import KaryResponseLoss
from dither.privacy import PrivacyLoss

MAKERS = {
    "kary": Kary.for_epsilon,
    "unary": Unary.for_epsilon,
    "symmetric": Unary.symmetric,
    "hashing": LocalHashing.for_epsilon,
    "subset": SubsetSelection.for_epsilon,
    "hadamard": HadamardResponse.for_epsilon,
    "projective": ProjectiveResponse.for_epsilon,
}
EPSILONS = ("1/3", "1", "3")

ORACLES = {
    **{f"{name}, ε={epsilon}": make(100, epsilon).reduced() for name, make in MAKERS.items() for epsilon in EPSILONS},
    "warner": Kary(["no", "yes"], keep="3/4"),
    "two bits": Unary(2, keep="1/2", noise="1/4"),
    "uneven buckets": LocalHashing(4, buckets=3, keep="1/2", word=4),
    "large subset": SubsetSelection(5, subset=4, keep="5/6"),
    "subset of two": SubsetSelection(6, subset=2, keep="1/2"),
    "seven columns": HadamardResponse(7, keep="2/3"),
    "eight columns": HadamardResponse(8, keep="2/3"),
    "a line": ProjectiveResponse(3, prime=2, keep="1/2"),
    "fano": ProjectiveResponse(7, prime=2, keep="1/2"),
    "of three": ProjectiveResponse(13, prime=3, keep="1/2"),
}


def laws_of(oracle):
    client = oracle.client()
    return [law_of(lambda coins, value=value: client.payload(value, coins)) for value in oracle.inputs()]


@pytest.fixture(scope="module", params=sorted(ORACLES))
def known(request):
    oracle = ORACLES[request.param]
    return oracle, laws_of(oracle)


def test_law_and_claims_agree_as_fractions(known):
    oracle, laws = known
    assert all(sum(law.values()) == 1 for law in laws)
    assert all(set(law) == set(laws[0]) for law in laws)
    payloads = sorted(laws[0])
    assert {len(payload) for payload in payloads} == {oracle.width}
    rows = np.frombuffer(b"".join(payloads), dtype=np.uint8).reshape(len(payloads), oracle.width)
    assert oracle.valid(rows).all()
    supports = [oracle.support(row[None, :]) for row in rows]
    for (u, first), (v, second) in itertools.permutations(enumerate(laws), 2):
        ratios = {first[y] / second[y] for y in payloads}
        assert ratios <= {oracle.odds, Fraction(1), 1 / oracle.odds}
        assert max(ratios) == oracle.odds
        assert sum(first[y] for y in payloads if second[y] > first[y]) == oracle.weight
        assert sum(first[y] for y in payloads if first[y] > second[y]) == oracle.odds * oracle.weight
        hits = sum(first[y] for y, support in zip(payloads, supports, strict=True) if support[u])
        misses = sum(first[y] for y, support in zip(payloads, supports, strict=True) if support[v])
        assert (hits, misses) == (oracle.hit, oracle.miss)


def test_variance_is_that_of_the_law(known):
    """For one report, mean and variance of the estimate as fractions, under the mixture of two values."""
    oracle, laws = known
    payloads = sorted(laws[0])
    share = Fraction(1, 5)
    law = {y: share * laws[0][y] + (1 - share) * laws[1][y] for y in payloads}
    gap = oracle.hit - oracle.miss
    rows = [np.frombuffer(y, dtype=np.uint8)[None, :] for y in payloads]
    estimates = {y: (int(oracle.support(row)[0]) - oracle.miss) / gap for y, row in zip(payloads, rows, strict=True)}
    mean = sum(p * estimates[y] for y, p in law.items())
    square = sum(p * estimates[y] ** 2 for y, p in law.items())
    assert mean == share
    assert oracle.variance(1, share=share) == pytest.approx(float(square - mean**2), rel=1e-12)
    assert oracle.variance(50, share=share) == pytest.approx(float(square - mean**2) / 50, rel=1e-12)


def test_curve_is_that_of_the_law(known):
    oracle, laws = known
    loss = oracle.loss()
    assert PrivacyLoss.from_json(loss.to_json()) == loss
    assert loss.pure() == pytest.approx(math.log(oracle.odds), rel=1e-12)
    first, second = ([float(law[y]) for y in sorted(laws[0])] for law in laws[:2])
    for part in (0.0, 0.3, 0.8):
        epsilon = part * loss.pure()
        delta = sum(max(p - math.exp(epsilon) * q, 0.0) for p, q in zip(first, second, strict=True))
        assert delta <= loss.delta(Fraction(epsilon)) <= delta * (1 + 1e-9) + 1e-12


def test_payloads_that_no_client_sends_are_dropped(known):
    oracle, laws = known
    if oracle.width > 2:
        return
    everything = np.indices((256,) * oracle.width).reshape(oracle.width, -1).T.astype(np.uint8)
    good = {row.tobytes() for row in everything[oracle.valid(everything)]}
    assert good == set(laws[0])


@pytest.mark.parametrize("name", sorted(MAKERS))
@pytest.mark.parametrize("epsilon", ["1/1000", "0.1", 1, 2.5, 6])
def test_the_stated_epsilon_is_used_and_not_exceeded(name, epsilon):
    oracle = MAKERS[name](37, epsilon)
    exact = Fraction(str(epsilon))
    assert oracle.loss().pure() <= exact
    assert oracle.loss().pure() >= float(exact) * (1 - 1e-11)
    assert oracle.longitudinal_loss(3).pure() == pytest.approx(3 * oracle.loss().pure())
    # fresh coins for every report hide changes too
    assert oracle.longitudinal_loss(3, changes="public") == oracle.longitudinal_loss(3, changes="secret")


def test_known_parameters():
    oue = Unary.for_epsilon(10, 1)
    assert oue.keep == Fraction(1, 2)
    assert float(oue.noise) == pytest.approx(1 / (math.e + 1), rel=1e-12)
    assert oue.variance(1000, share=0) == pytest.approx(4 * math.e / (math.e - 1) ** 2 / 1000, rel=1e-9)
    sue = Unary.symmetric(10, 1)
    assert sue.keep + sue.noise == 1
    half = math.exp(0.5)
    assert sue.variance(1000, share=0) == pytest.approx(half / (half - 1) ** 2 / 1000, rel=1e-9)
    kary = Kary.for_epsilon(10, 1)
    assert kary.variance(1000, share=0) == pytest.approx((10 - 2 + math.e) / (math.e - 1) ** 2 / 1000, rel=1e-9)
    assert kary.loss() == KaryResponseLoss(kary.odds, 10)
    hadamard = HadamardResponse.for_epsilon(10, 1)
    assert hadamard.variance(1000) == pytest.approx(((math.e + 1) / (math.e - 1)) ** 2 / 1000, rel=1e-9)
    subset = SubsetSelection.for_epsilon(1000, 1)
    assert subset.subset == round(1000 / (math.e + 1))
    assert [LocalHashing.for_epsilon(100, epsilon).buckets for epsilon in (0.1, 1, 2, 3)] == [2, 4, 8, 21]
    assert ProjectiveResponse.for_epsilon(100, 3).prime in (19, 23)


def test_a_subset_of_one_is_k_ary_response():
    oracle, kary = SubsetSelection(7, subset=1, keep="1/2"), Kary(7, keep="1/2")
    assert (oracle.hit, oracle.miss, oracle.odds, oracle.weight) == (kary.hit, kary.miss, kary.odds, kary.weight)
    assert oracle.loss() == kary.loss()


@pytest.mark.parametrize("epsilon", ["1/2", 1, 2, 4])
def test_no_oracle_beats_subset_selection(epsilon):
    """It is the best of all ε-private reports, for the sum of variances at equal shares (Ye & Barg 2018)."""
    best = SubsetSelection.for_epsilon(40, epsilon).variance(1, share=Fraction(1, 40))
    for make in MAKERS.values():
        assert make(40, epsilon).variance(1, share=Fraction(1, 40)) >= best * (1 - 1e-12)
