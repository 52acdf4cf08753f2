"""Permute-and-flip: exact laws over all neighbours, dominance over the exponential mechanism, accuracy."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st

from dither.checks import check_mechanism
from dither.errors import InvalidData, InvalidParameter, InvalidSensitivity
from dither.mechanisms.exponential import Exponential
from dither.mechanisms.permute_and_flip import PermuteAndFlip
from dither.privacy import Adjacency, Guarantee, PureLoss, Sensitivity, calibrate


def exact_law(heads: list[Fraction]) -> list[Fraction]:
    """p_i·∫Π_{j≠i}(1 − p_j·x)dx, term by term."""
    law = []
    for i, p in enumerate(heads):
        polynomial = [Fraction(1)]
        for j, other in enumerate(heads):
            if j != i:
                shifted = [Fraction(0), *(-other * c for c in polynomial)]
                polynomial = [a + b for a, b in zip([*polynomial, Fraction(0)], shifted, strict=True)]
        law.append(p * sum(c / (k + 1) for k, c in enumerate(polynomial)))
    return law


def by_definition(heads: list[Fraction]) -> list[Fraction]:
    """Every order and every outcome of the coins."""
    n = len(heads)
    law = [Fraction(0)] * n
    for order in itertools.permutations(range(n)):
        left = Fraction(1)
        for i in order:
            law[i] += left * heads[i]
            left *= 1 - heads[i]
    return [p / math.factorial(n) for p in law]


def heads_of(scores, z: Fraction) -> list[Fraction]:
    return [z ** (max(scores) - s) for s in scores]


def test_costs():
    one = Sensitivity.linf(1)
    assert PermuteAndFlip(scale=2).loss(one) == PureLoss(1)
    assert PermuteAndFlip(scale=2, monotone=True).loss(one) == PureLoss("1/2")
    replace = Sensitivity.linf(1, adjacency=Adjacency.REPLACE)
    assert PermuteAndFlip(scale=2, monotone=True).loss(replace) == PureLoss(1, Adjacency.REPLACE)
    with pytest.raises(InvalidSensitivity):
        PermuteAndFlip(scale=2).loss(Sensitivity.l2(1))


def test_law_formula_against_the_definition():
    for heads in (
        [Fraction(1)],
        [Fraction(1), Fraction(1, 3)],
        [Fraction(1, 2), Fraction(1), Fraction(1, 7), Fraction(1)],
    ):
        assert exact_law(heads) == by_definition(heads)
        assert sum(exact_law(heads)) == 1


@pytest.mark.parametrize("z", [Fraction(1, 2), Fraction(9, 10)])
def test_all_neighbours_exactly(z):
    # Δ = 1 and scale 1/ln(1/z): e^ε = z^−2 in general and z^−1 for scores that move one way; both attained.
    laws = {scores: exact_law(heads_of(scores, z)) for scores in itertools.product(range(-1, 5), repeat=3)}
    general = monotone = Fraction(0)
    for scores in itertools.product(range(4), repeat=3):
        for move in itertools.product((-1, 0, 1), repeat=3):
            other = laws[tuple(s + m for s, m in zip(scores, move, strict=True))]
            worst = max(max(a / b, b / a) for a, b in zip(laws[scores], other, strict=True))
            general = max(general, worst)
            if -1 not in move:
                monotone = max(monotone, worst)
    assert z**-2 * Fraction(4, 5) < general <= z**-2
    assert monotone <= z**-1
    # the textbook mistake: half the scale is needed for general scores
    assert general > z**-1


def test_no_bounded_range():
    # the losses of one pair of neighbours spread over more than ε, so the exponential mechanism's curve doesn't apply
    z = Fraction(1, 2)
    before, after = exact_law(heads_of((0, 0, 2), z)), exact_law(heads_of((1, -1, 1), z))
    ratios = [a / b for a, b in zip(before, after, strict=True)]
    assert max(ratios) / min(ratios) > z**-2


@given(st.lists(st.fractions(Fraction(1, 50), 1, max_denominator=50), min_size=1, max_size=6))
def test_never_worse_than_exponential(heads):
    # The likelihood ratio against the exponential mechanism rises with the score: exact, and stronger than expectation.
    heads = [*heads, Fraction(1)]
    ours, theirs = exact_law(heads), [p / sum(heads) for p in heads]
    by_score = sorted(range(len(heads)), key=lambda i: heads[i])
    ratios = [ours[i] / theirs[i] for i in by_score]
    assert all(a <= b for a, b in itertools.pairwise(ratios))
    for k in range(len(heads)):
        assert sum(ours[i] for i in by_score[:k]) <= sum(theirs[i] for i in by_score[:k])
    scores = [math.log(p) for p in heads]
    assert np.dot([float(p) for p in ours], scores) >= np.dot([float(p) for p in theirs], scores) - 1e-12


@given(st.lists(st.floats(-40, 40), min_size=1, max_size=40), st.sampled_from([1, 5]))
def test_stated_law_and_expectation(scores, scale):
    law = PermuteAndFlip(scale=scale).law(scores).probabilities
    assert law.sum() == pytest.approx(1, rel=1e-12)
    theirs = Exponential(scale=scale).law(scores).probabilities
    assert law @ np.array(scores) >= theirs @ np.array(scores) - 1e-10
    bound = PermuteAndFlip(scale=scale).expected_shortfall(candidates=len(scores))
    assert max(scores) - law @ np.array(scores) <= bound + 1e-9


def test_stated_law_is_the_exact_one():
    heads = [Fraction(1), Fraction(1, 2), Fraction(1, 2), Fraction(1, 16), Fraction(1, 4)]
    scores = np.array([0, -1, -1, -4, -2]) * math.log(2)
    assert np.allclose(
        PermuteAndFlip(scale=1).law(scores).probabilities, [float(p) for p in exact_law(heads)], rtol=1e-13
    )
    many = PermuteAndFlip(scale=1).law(np.zeros(20_000)).probabilities
    assert np.allclose(many, 1 / 20_000, rtol=1e-9)
    assert PermuteAndFlip(scale=1).law([0.0, -math.inf]).probabilities.tolist() == [1, 0]


@given(others=st.integers(1, 40), best=st.integers(1, 4), confidence=st.sampled_from(["1/2", "19/20", "0.999"]))
def test_error_holds_in_the_worst_case(others, best, confidence):
    mechanism = PermuteAndFlip(scale=3)
    failure = float(1 - Fraction(confidence))
    error = mechanism.error(confidence, candidates=others + best, optimal=best)
    law = mechanism.law([0.0] * best + [-error] * others).probabilities
    assert law[best:].sum() <= failure + 1e-12
    assert error <= Exponential(scale=3).error(confidence, candidates=others + best, optimal=best)
    # close to the truth: a tenth of a scale less is too little where the bound isn't trivial
    if error > 1 and failure < 0.1:
        law = mechanism.law([0.0] * best + [-(error - 0.3)] * others).probabilities
        assert law[best:].sum() > failure


def test_error_edges():
    assert PermuteAndFlip(scale=3).error(candidates=2, optimal=2) == 0
    gain = Exponential(scale=1).error(0.9999, candidates=100) - PermuteAndFlip(scale=1).error(0.9999, candidates=100)
    assert gain == pytest.approx(math.log(2), abs=1e-3)
    with pytest.raises(InvalidParameter):
        PermuteAndFlip(scale=3).error(confidence=1, candidates=2)


def test_calibration():
    assert calibrate(PermuteAndFlip, Guarantee(epsilon=1), Sensitivity.linf(1)).scale == 2
    for delta in ("1e-9", "1/1000", "1/2"):
        mechanism = PermuteAndFlip.calibrated(Guarantee(1, delta), Sensitivity.linf(1), monotone=True)
        assert mechanism.loss(Sensitivity.linf(1)).epsilon(delta) <= 1
        tighter = PermuteAndFlip(mechanism.scale * (1 - Fraction(delta) / 100), monotone=True)
        assert tighter.loss(Sensitivity.linf(1)).epsilon(delta) > 1


def test_conformance():
    check_mechanism(PermuteAndFlip(scale=2), sensitivity=Sensitivity.linf(1), draws=2000)
    check_mechanism(PermuteAndFlip(scale=1, monotone=True), sensitivity=Sensitivity.linf(1), draws=2000)


@pytest.mark.parametrize("bad", [[math.nan, 1], [math.inf], [], [[1.0]], ["a"], [True]])
def test_bad_scores_are_refused(bad):
    with pytest.raises(InvalidData):
        PermuteAndFlip(scale=1).release(bad)
    with pytest.raises(InvalidParameter):
        PermuteAndFlip(scale=-1)
