"""What all frequency oracles share: estimates and their intervals, values and their places, numbers in payloads."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st

from dither.checks.statistics import proportion_at_most
from dither.entropy import InsecureSeededSource
from dither.errors import InvalidData, InvalidParameter
from dither.local.core.bits import coin_rows, column_sums, packed, padding_is_zero
from dither.local.core.consistent import Consistency
from dither.local.core.losses import ThinnedResponseLoss, response_loss
from dither.local.frequency.hadamard import HadamardResponse
from dither.local.frequency.kary import Kary
from dither.local.frequency.oracle import LARGEST_DOMAIN, number_rows, row_numbers, shares_from_supports
from dither.local.frequency.unary import Unary
from dither.mechanisms import KaryResponse
from dither.mechanisms.kary_response import KaryResponseLoss
from dither.mechanisms.randomized_response import RandomizedResponseLoss
from dither.mechanisms.response_estimates import Target
from dither.privacy import Adjacency, Direction, PrivacyLoss
from support.sizes import at_night

ALPHA = 1e-9


def counted(oracle, supports, reports):
    aggregate = oracle.aggregator()
    aggregate.put({"supports": np.array(supports)})
    aggregate.reports = reports
    return aggregate


@pytest.mark.parametrize("target", Target)
@pytest.mark.parametrize("labels", [["a", "b"], ["a", "b", "c"]])
def test_k_ary_estimates_are_those_of_the_mechanism(target, labels):
    counts = [310, 520, 170][: len(labels)]
    ours = counted(Kary(labels, keep="3/5"), counts, sum(counts)).estimate(0.9, target=target)
    theirs = KaryResponse(labels, keep="3/5").estimate(counts=counts, confidence=0.9, target=target)
    assert ours.values.tolist() == theirs.values.tolist()
    assert ours.variances.tolist() == theirs.variances.tolist()
    assert ours.intervals.tolist() == theirs.intervals.tolist()


def test_errors_before_any_report():
    oracle = Kary(["a", "b", "c"], keep="3/5")
    assert oracle.error(0.9, n=1000) == KaryResponse(["a", "b", "c"], keep="3/5").error(0.9, n=1000)
    assert oracle.error(0.9, n=1000, simultaneous=False) < oracle.error(0.9, n=1000)
    with pytest.raises(InvalidData, match="no reports"):
        oracle.aggregator().estimate()


def test_each_by_itself_or_all_together():
    aggregate = counted(Unary(50, keep="1/2", noise="1/4"), [300] * 25 + [250] * 25, 1000)
    single, together = (aggregate.estimate(simultaneous=how) for how in (False, True))
    assert (single.simultaneous, together.simultaneous) == (False, True)
    widths = [np.diff(shares.intervals, axis=1).mean() for shares in (single, together)]
    assert widths[0] < widths[1]
    alone = shares_from_supports(
        np.array([300]),
        1000,
        hit=Fraction(1, 2),
        miss=Fraction(1, 4),
        confidence=0.95,
        comparisons=50,
        simultaneous=True,
    )
    assert together.intervals[0].tolist() == alone.intervals[0].tolist()


@pytest.mark.parametrize("simultaneous", [True, pytest.param(False, marks=at_night)])
def test_intervals_cover(simultaneous):
    """2000 surveys of 150 people; the mutant (intervals of 80% that claim 95%) must fail."""
    oracle = HadamardResponse.for_epsilon(8, 2)
    shares = np.array([0.4, 0.3, 0.2, 0.1, 0, 0, 0, 0])
    truths = np.random.default_rng(6).choice(8, size=2000 * 150, p=shares)
    rows = oracle.randomize(truths, source=InsecureSeededSource(6)).reshape(2000, 150, oracle.width)
    misses = {0.95: 0, 0.8: 0}
    for part in rows:
        aggregate = oracle.aggregator().add(part)
        for confidence in misses:
            ends = aggregate.estimate(confidence, simultaneous=simultaneous).intervals
            outside = (ends[:, 0] > shares) | (ends[:, 1] < shares)
            misses[confidence] += bool(outside.any()) if simultaneous else bool(outside[0])
    assert proportion_at_most(misses[0.95], 2000, 0.05) > ALPHA
    assert proportion_at_most(misses[0.8], 2000, 0.05) < ALPHA


def test_variances_are_unbiased_estimates():
    oracle = Unary.for_epsilon(4, 2)
    truths = np.random.default_rng(8).choice(4, size=3000 * 60, p=[0.5, 0.3, 0.2, 0])
    rows = oracle.randomize(truths, source=InsecureSeededSource(8)).reshape(3000, 60, oracle.width)
    found = np.mean([oracle.aggregator().add(part).estimate().variances for part in rows], axis=0)
    wanted = [oracle.variance(60, share=share) for share in ("0.5", "0.3", "0.2", 0)]
    assert np.allclose(found, wanted, rtol=0.02)


def test_consistent_shares_keep_their_intervals():
    aggregate = counted(Unary(4, keep="1/2", noise="1/4"), [400, 350, 240, 230], 1000)
    plain = aggregate.estimate()
    assert plain.values.min() < 0
    nearest = aggregate.estimate(consistent=Consistency.NORM_SUB)
    assert nearest.rule is Consistency.NORM_SUB
    assert nearest.values.min() == 0
    assert nearest.values.sum() == pytest.approx(1, abs=1e-12)
    assert nearest.intervals.tolist() == np.clip(plain.intervals, 0, 1).tolist()
    assert nearest.variances.tolist() == plain.variances.tolist()
    cut = plain.made_consistent(Consistency.BASE_CUT)
    assert [value > 0 for value in cut.values] == [low > 0 for low, _ in plain.intervals]
    with pytest.raises(InvalidParameter, match="already"):
        cut.made_consistent(Consistency.CLIP)
    assert plain.counts.tolist() == (plain.values * 1000).tolist()
    with pytest.raises(ValueError):
        plain.values[0] = 1


def test_top_names_the_labels():
    shares = counted(Unary(["a", "b", "c"], keep="1/2", noise="1/4"), [250, 400, 300], 1000).estimate()
    assert [label for label, _, _ in shares.top(2)] == ["b", "c"]
    _, value, (low, high) = shares.top(1)[0]
    assert low < value < high
    assert counted(Unary(3, keep="1/2", noise="1/4"), [250, 400, 300], 1000).estimate().top(1)[0][0] == 1


def test_domains():
    with pytest.raises(InvalidParameter, match="heavy hitters"):
        Kary(LARGEST_DOMAIN + 1, keep="1/2")
    for wrong in (1, 0, -3, "abc", [], ["a"], ["a", "a"], [1.5, 2], None, True, [True, False]):
        with pytest.raises(InvalidParameter, match="domain"):
            Kary(wrong, keep="1/2")
    assert Kary(np.int64(5), keep="1/2") == Kary(5, keep="1/2")
    assert Kary(np.array(["a", "b", "c"]), keep="1/2") == Kary(("a", "b", "c"), keep="1/2")
    assert Kary([3, 1, 4], keep="1/2").places(np.array([4, 3])).tolist() == [2, 0]


@given(st.lists(st.integers(0, 2**64 - 1), max_size=20), st.integers(1, 8))
def test_numbers_come_back(numbers, width):
    array = np.array([number % 256**width for number in numbers], dtype=np.uint64)
    rows = number_rows(array, width)
    assert rows.shape == (array.size, width)
    assert [row.tobytes() for row in rows] == [int(number).to_bytes(width, "little") for number in array]
    assert row_numbers(rows).tolist() == array.tolist()


@given(st.integers(1, 40), st.integers(0, 600), st.integers(0, 2**32))
def test_bits_are_packed_and_summed(columns, rows, seed):
    bits = np.random.default_rng(seed).random((rows, columns)) < 0.3
    payloads = packed(bits)
    assert payloads.shape == (rows, -(-columns // 8))
    assert column_sums(payloads, columns).tolist() == bits.sum(axis=0).tolist()
    assert padding_is_zero(payloads, columns).all()
    if columns % 8 and rows:
        payloads[0, -1] |= 1 << (columns % 8)
        assert padding_is_zero(payloads, columns).tolist() == [False] + [True] * (rows - 1)


@pytest.mark.parametrize(
    "p", [Fraction(1, 3), Fraction(1, 2), Fraction(1, 1000), Fraction(999, 1000), Fraction(77, 256)]
)
def test_coins_have_their_probability(p):
    n = 4_000_000
    heads = int(coin_rows(p, 2000, 2000, InsecureSeededSource(9)).sum())
    z = (heads - n * float(p)) / math.sqrt(n * float(p * (1 - p)))
    assert abs(z) < 6.2
    # the mutant that decides ties by the first eight bits alone is off by up to 1/256
    assert abs((heads - n * math.floor(256 * p) / 256) / math.sqrt(n * float(p * (1 - p)))) > 6.2 or (256 * p) % 1 == 0


def test_coins_that_are_certain():
    source = InsecureSeededSource(1)
    assert coin_rows(Fraction(1), 3, 5, source).all()
    assert not coin_rows(Fraction(0), 3, 5, source).any()


def test_losses_of_pairs():
    assert response_loss(Fraction(3), Fraction(1, 4)) == RandomizedResponseLoss(Fraction(3))
    assert response_loss(Fraction(3), Fraction(1, 12)) == KaryResponseLoss(Fraction(3), 10)
    between = response_loss(Fraction(3), Fraction(1, 8), Adjacency.ADD_REMOVE)
    assert between == KaryResponseLoss(Fraction(3), 6, Adjacency.ADD_REMOVE)
    thinned = response_loss(Fraction(3), Fraction(2, 15))
    assert isinstance(thinned, ThinnedResponseLoss)
    assert PrivacyLoss.from_json(thinned.to_json()) == thinned
    for weight in (Fraction(1, 3), Fraction(2, 7)):  # the pair would have more than all probability
        with pytest.raises(InvalidParameter, match="categories"):
            response_loss(Fraction(3), weight)


def test_a_thinned_loss_lies_between_its_neighbours():
    low, middle, high = (
        KaryResponseLoss(Fraction(3), 6),
        ThinnedResponseLoss(Fraction(3), Fraction(11, 2)),
        KaryResponseLoss(Fraction(3), 5),
    )
    grid = np.linspace(-1, 1, 9)
    curves = [loss.profile(grid, Direction.REMOVE) for loss in (low, middle, high)]
    assert (curves[0] <= curves[1]).all()
    assert (curves[1] <= curves[2]).all()
    for view in ("kl", "zcdp", "gaussian"):
        assert getattr(low, view)() < getattr(middle, view)() < getattr(high, view)()
    assert low.renyi(3) < middle.renyi(3) < high.renyi(3)
    assert (20 * low).epsilon(1e-6) < (20 * middle).epsilon(1e-6) < (20 * high).epsilon(1e-6)


def test_two_bits_cost_what_two_responses_cost():
    """The symmetric encoding, priced in closed form, against the composition of two binary responses."""
    survey = Unary(9, keep="3/4", noise="1/4")
    both = 2 * RandomizedResponseLoss(Fraction(3))
    assert survey.loss().pure() == pytest.approx(both.pure(), rel=1e-12)
    for epsilon in (0, 0.5, 1.5):
        assert survey.loss().delta(epsilon) == pytest.approx(both.delta(epsilon), rel=1e-4)
